//! Regular expressions: PostgreSQL's (Tcl's "advanced" ones).
//!
//! A match begins as far to the left as it can, and of those that begin there the longest counts,
//! unless the pattern prefers short ones. Where automata of a library can tell ([`render`]), they
//! do: whether there is a match, and which one, if no part prefers short ones. For the rest, and
//! for groups, patterns are taken apart as PostgreSQL does it ([`parts`], [`dissect`]).

mod dissect;
mod parts;
mod program;
mod render;
mod syntax;
#[cfg(test)]
mod tests;

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta::{Config, Regex as Engine};
use regex_automata::util::syntax::Config as Syntax;
use regex_automata::{Anchored, Input, MatchKind};

use crate::error::{Error, Result};
use parts::Part as Tree;
use program::Text;

/// Compiled patterns that a thread keeps.
const KEPT: usize = 32;
/// Longest repetition that can be asked for, PostgreSQL's `DUPMAX`.
const MOST_REPEATS: u32 = 255;
/// Memory of a compiled pattern.
const MAX_BYTES: usize = 8 << 20;

thread_local! {
    /// The newest last.
    static COMPILED: RefCell<Vec<Rc<Compiled>>> = const { RefCell::new(Vec::new()) };
}

/// What the flags of a function, or the operator, ask for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Flags {
    pub fold_case: bool,
    /// `.` and `[^..]` do not match a newline.
    pub stops_at_newline: bool,
    /// `^` and `$` match at newlines.
    pub anchors_at_newline: bool,
    pub everywhere: bool,
    /// Blanks and comments mean nothing.
    pub expanded: bool,
    /// The pattern is a text to be found as it is.
    pub literal: bool,
}

impl Flags {
    /// The last argument of `regexp_replace` and its kin.
    pub fn parse(text: &str) -> Result<Flags> {
        let mut flags = Flags::default();
        flags.add(text)?;
        Ok(flags)
    }

    /// What is not mentioned stays.
    fn add(&mut self, text: &str) -> Result<()> {
        let flags = self;
        for c in text.chars() {
            match c {
                'g' => flags.everywhere = true,
                'i' => flags.fold_case = true,
                'c' => flags.fold_case = false,
                'n' | 'm' => (flags.stops_at_newline, flags.anchors_at_newline) = (true, true),
                'p' => (flags.stops_at_newline, flags.anchors_at_newline) = (true, false),
                'w' => (flags.stops_at_newline, flags.anchors_at_newline) = (false, true),
                's' => (flags.stops_at_newline, flags.anchors_at_newline) = (false, false),
                't' => flags.expanded = false,
                'x' => flags.expanded = true,
                'q' => flags.literal = true,
                'b' | 'e' => {
                    return Err(Error::unsupported(format!(
                        "regular expression option \"{c}\""
                    )));
                }
                _ => {
                    return Err(Error::new(
                        "22023",
                        format!("invalid regular expression option: \"{c}\""),
                    ));
                }
            }
        }
        Ok(())
    }
}

struct Compiled {
    pattern: String,
    flags: Flags,
    /// Those that the pattern itself sets are in.
    effective: Flags,
    /// None, if the pattern looks around or refers back.
    automata: Option<Automata>,
    /// It prefers short matches somewhere.
    is_lazy: bool,
    groups: usize,
    syntax: syntax::Ast,
    /// The pattern taken apart, once that was needed.
    tree: OnceCell<Tree>,
}

struct Automata {
    engine: Engine,
    longest: DFA,
    cache: RefCell<Cache>,
}

/// Whether the text has a match of the pattern.
pub fn matches(text: &str, pattern: &str, fold_case: bool) -> Result<bool> {
    let flags = Flags {
        fold_case,
        ..Flags::default()
    };
    matches_with(text, pattern, flags)
}

/// Whether the text has a match of the pattern, as flags say.
pub fn matches_with(text: &str, pattern: &str, flags: Flags) -> Result<bool> {
    compiled(pattern, flags)?.is_match(text)
}

/// The text with the first match replaced, or with all of them.
pub fn replace(text: &str, pattern: &str, with: &str, flags: Flags) -> Result<String> {
    let which = usize::from(!flags.everywhere);
    replace_from(text, pattern, with, flags, 0, which)
}

/// The text with the match of that number from there on replaced; zero means all of them.
pub fn replace_from(
    text: &str,
    pattern: &str,
    with: &str,
    flags: Flags,
    from: usize,
    which: usize,
) -> Result<String> {
    let compiled = compiled(pattern, flags)?;
    let parts = replacement(with);
    let of_groups = parts.iter().any(|part| matches!(part, Part::Group(1..)));
    let search = Search::new(&compiled, text, of_groups);
    let mut result = String::with_capacity(text.len());
    let (mut at, mut copied, mut number) = (from, 0, 0);
    while at <= text.len()
        && let Some(found) = search.find(at)?
    {
        number += 1;
        if which == 0 || which == number {
            result.push_str(&text[copied..found.start]);
            expand(&parts, text, &found, &mut result);
            copied = found.end;
        }
        if which == number {
            break;
        }
        at = behind(text, found.start, found.end);
    }
    result.push_str(&text[copied..]);
    Ok(result)
}

/// Where the next match may begin: after an empty one behind the next character.
fn behind(text: &str, start: usize, end: usize) -> usize {
    match end > start {
        true => end,
        false => end + text[end..].chars().next().map_or(1, char::len_utf8),
    }
}

/// A match with its groups, in bytes.
pub struct Found {
    pub start: usize,
    pub end: usize,
    pub groups: Vec<Option<(usize, usize)>>,
}

/// The matches from there on, as many as are wanted.
pub fn all(
    text: &str,
    pattern: &str,
    flags: Flags,
    from: usize,
    most: usize,
) -> Result<Vec<Found>> {
    let compiled = compiled(pattern, flags)?;
    let search = Search::new(&compiled, text, true);
    let (mut all, mut at) = (Vec::new(), from);
    while all.len() < most
        && at <= text.len()
        && let Some(found) = search.find(at)?
    {
        at = behind(text, found.start, found.end);
        all.push(found);
    }
    Ok(all)
}

/// A part of what replaces a match.
enum Part {
    Text(String),
    Group(usize),
}

fn replacement(with: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut text = String::new();
    let mut chars = with.chars().peekable();
    while let Some(c) = chars.next() {
        let group = match (c, chars.peek()) {
            ('\\', Some('&')) => Some(0),
            ('\\', Some(d)) => d.to_digit(10).filter(|d| *d > 0).map(|d| d as usize),
            _ => None,
        };
        match group {
            Some(n) => {
                chars.next();
                parts.push(Part::Text(std::mem::take(&mut text)));
                parts.push(Part::Group(n));
            }
            None => {
                // A backslash before another one stands for itself.
                if c == '\\' && chars.peek() == Some(&'\\') {
                    chars.next();
                }
                text.push(c);
            }
        }
    }
    parts.push(Part::Text(text));
    parts
}

impl Compiled {
    fn tree(&self) -> Result<&Tree> {
        if let Some(tree) = self.tree.get() {
            return Ok(tree);
        }
        let tree = parts::of(&self.syntax, self.groups, self.effective)?;
        Ok(self.tree.get_or_init(|| tree))
    }

    fn is_match(&self, text: &str) -> Result<bool> {
        match &self.automata {
            Some(automata) => Ok(automata.engine.is_match(text)),
            None => Ok(Search::new(self, text, false).find(0)?.is_some()),
        }
    }
}

impl Automata {
    /// Start and end of the first match from there on, the longest.
    fn find(&self, text: &str, from: usize) -> Result<Option<(usize, usize)>> {
        let Some(first) = self.engine.find(Input::new(text).range(from..)) else {
            return Ok(None);
        };
        let input = Input::new(text)
            .range(first.start()..)
            .anchored(Anchored::Yes);
        let longest = self
            .longest
            .try_search_fwd(&mut self.cache.borrow_mut(), &input)
            .map_err(|e| Error::internal(format!("a regular expression failed: {e}")))?;
        let end = longest.map_or(first.end(), |m| m.offset());
        Ok(Some((first.start(), end)))
    }
}

/// A text in which matches of a pattern are looked for.
struct Search<'s> {
    pattern: &'s Compiled,
    text: &'s str,
    with_groups: bool,
    /// The text by its characters, and the byte at which each begins; made when it is needed.
    characters: OnceCell<(Text, Vec<usize>)>,
}

impl Search<'_> {
    fn new<'s>(pattern: &'s Compiled, text: &'s str, with_groups: bool) -> Search<'s> {
        Search {
            pattern,
            text,
            with_groups: with_groups && pattern.groups > 0,
            characters: OnceCell::new(),
        }
    }

    fn characters(&self) -> &(Text, Vec<usize>) {
        self.characters.get_or_init(|| {
            let bytes = self.text.char_indices().map(|(byte, _)| byte);
            let bytes = bytes.chain(std::iter::once(self.text.len())).collect();
            (
                Text::new(self.text, self.pattern.effective.fold_case),
                bytes,
            )
        })
    }

    /// The first match from a byte on.
    fn find(&self, from: usize) -> Result<Option<Found>> {
        let groups = self.pattern.groups;
        let found = match &self.pattern.automata {
            Some(automata) if !self.pattern.is_lazy => {
                let Some((start, end)) = automata.find(self.text, from)? else {
                    return Ok(None);
                };
                if !self.with_groups {
                    let groups = Vec::new();
                    return Ok(Some(Found { start, end, groups }));
                }
                let (text, bytes) = self.characters();
                let place = |byte: usize| bytes.partition_point(|b| *b < byte);
                let tree = self.pattern.tree()?;
                dissect::groups(tree, groups, text, place(start), place(end))?
            }
            Some(automata)
                if !automata
                    .engine
                    .is_match(Input::new(self.text).range(from..)) =>
            {
                None
            }
            _ => {
                let (text, bytes) = self.characters();
                let from = bytes.partition_point(|b| *b < from);
                dissect::find(self.pattern.tree()?, groups, text, from)?
            }
        };
        let Some(found) = found else {
            return Ok(None);
        };
        let (_, bytes) = self.characters();
        let place = |(from, to): (usize, usize)| (bytes[from], bytes[to]);
        Ok(Some(Found {
            start: bytes[found.start],
            end: bytes[found.end],
            groups: found.groups[1..].iter().map(|g| g.map(place)).collect(),
        }))
    }
}

fn expand(parts: &[Part], text: &str, found: &Found, out: &mut String) {
    for part in parts {
        let range = match part {
            Part::Text(literal) => {
                out.push_str(literal);
                continue;
            }
            Part::Group(0) => Some((found.start, found.end)),
            Part::Group(n) => found.groups.get(n - 1).copied().flatten(),
        };
        if let Some((from, to)) = range {
            out.push_str(&text[from..to]);
        }
    }
}

fn compiled(pattern: &str, flags: Flags) -> Result<Rc<Compiled>> {
    COMPILED.with_borrow_mut(|kept| {
        let known = kept
            .iter()
            .position(|c| c.pattern == pattern && c.flags == flags);
        let compiled = match known {
            Some(at) => kept.remove(at),
            None => {
                if kept.len() == KEPT {
                    kept.remove(0);
                }
                Rc::new(compile(pattern, flags)?)
            }
        };
        kept.push(compiled.clone());
        Ok(compiled)
    })
}

fn compile(pattern: &str, flags: Flags) -> Result<Compiled> {
    let read = syntax::read(pattern, flags)?;
    let automata = match read.is_beyond_automata {
        true => None,
        false => Some(automata(&render::pattern(&read.tree), read.flags)?),
    };
    Ok(Compiled {
        pattern: pattern.to_string(),
        flags,
        effective: read.flags,
        automata,
        is_lazy: read.is_lazy,
        groups: read.groups,
        syntax: read.tree,
        tree: OnceCell::new(),
    })
}

fn automata(pattern: &str, flags: Flags) -> Result<Automata> {
    let syntax = Syntax::new()
        .case_insensitive(flags.fold_case)
        .multi_line(flags.anchors_at_newline);
    let too_complex = || invalid("regular expression is too complex");
    let config = Config::new().nfa_size_limit(Some(MAX_BYTES));
    let engine = Engine::builder()
        .syntax(syntax)
        .configure(config)
        .build(pattern)
        .map_err(|_| too_complex())?;
    let longest = DFA::builder()
        .syntax(syntax)
        .configure(DFA::config().match_kind(MatchKind::All))
        .build(pattern)
        .map_err(|_| too_complex())?;
    Ok(Automata {
        cache: RefCell::new(longest.create_cache()),
        engine,
        longest,
    })
}

fn invalid(what: &str) -> Error {
    Error::new("2201B", format!("invalid regular expression: {what}"))
}
