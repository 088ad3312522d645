//! Regular expressions: PostgreSQL's (Tcl's "advanced" ones) translated for the engine that we
//! have.
//!
//! A match begins as far to the left as it can, and of those that begin there the longest counts,
//! as POSIX has it. So the end is found by an automaton that looks for the longest match; groups,
//! which that does not know, by the engine that backtracks, as long as both agree where the match
//! ends.
//!
//! **Invariant.** A pattern that would mean something else after the translation is refused with
//! 0A000: references back, looking ahead and behind, collating elements.

mod translate;

use std::cell::RefCell;
use std::rc::Rc;

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta::{Config, Regex as Engine};
use regex_automata::util::captures::Captures;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

use crate::error::{Error, Result};
use translate::Translator;

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
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    pub fold_case: bool,
    /// `.` and `[^..]` do not match a newline.
    pub stops_at_newline: bool,
    /// `^` and `$` match at newlines.
    pub anchors_at_newline: bool,
    pub everywhere: bool,
}

impl Flags {
    /// The last argument of `regexp_replace` and its kin.
    pub fn parse(text: &str) -> Result<Flags> {
        let mut flags = Flags::default();
        for c in text.chars() {
            match c {
                'g' => flags.everywhere = true,
                'i' => flags.fold_case = true,
                'c' => flags.fold_case = false,
                'n' | 'm' => (flags.stops_at_newline, flags.anchors_at_newline) = (true, true),
                'p' => (flags.stops_at_newline, flags.anchors_at_newline) = (true, false),
                'w' => (flags.stops_at_newline, flags.anchors_at_newline) = (false, true),
                's' => (flags.stops_at_newline, flags.anchors_at_newline) = (false, false),
                't' => {}
                'b' | 'e' | 'q' | 'x' => {
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
        Ok(flags)
    }
}

struct Compiled {
    pattern: String,
    flags: Flags,
    engine: Engine,
    longest: DFA,
    cache: RefCell<Cache>,
    groups: usize,
    /// It prefers short matches somewhere.
    is_lazy: bool,
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
    Ok(compiled(pattern, flags)?.engine.is_match(text))
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
    compiled.refuse_lazy()?;
    let parts = replacement(with);
    let mut result = String::with_capacity(text.len());
    let (mut at, mut copied, mut number) = (from, 0, 0);
    while at <= text.len()
        && let Some((start, end)) = compiled.find(text, at)?
    {
        number += 1;
        if which == 0 || which == number {
            result.push_str(&text[copied..start]);
            compiled.expand(&parts, text, (start, end), &mut result)?;
            copied = end;
        }
        if which == number {
            break;
        }
        at = behind(text, start, end);
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
    compiled.refuse_lazy()?;
    let (mut found, mut at) = (Vec::new(), from);
    while found.len() < most
        && at <= text.len()
        && let Some((start, end)) = compiled.find(text, at)?
    {
        let groups = match compiled.groups {
            0 => Vec::new(),
            groups => {
                let captures = compiled.captures(text, start, end)?;
                let part = |n| captures.get_group(n).map(|g| (g.start, g.end));
                (1..=groups).map(part).collect()
            }
        };
        found.push(Found { start, end, groups });
        at = behind(text, start, end);
    }
    Ok(found)
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
    /// Start and end of the first match from there on.
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

    fn refuse_lazy(&self) -> Result<()> {
        match self.is_lazy {
            false => Ok(()),
            true => Err(Error::unsupported(
                "what a pattern that prefers short matches finds",
            )),
        }
    }

    /// The groups of a match.
    fn captures(&self, text: &str, start: usize, end: usize) -> Result<Captures> {
        let mut found = self.engine.create_captures();
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        self.engine.search_captures(&input, &mut found);
        match found.get_match().is_some_and(|m| m.end() == end) {
            true => Ok(found),
            false => Err(Error::unsupported(
                "groups of a match that is not the first alternative's",
            )),
        }
    }

    fn expand(
        &self,
        parts: &[Part],
        text: &str,
        (start, end): (usize, usize),
        out: &mut String,
    ) -> Result<()> {
        let mut captures = None;
        for part in parts {
            match part {
                Part::Text(literal) => out.push_str(literal),
                Part::Group(0) => out.push_str(&text[start..end]),
                Part::Group(n) if *n > self.groups => {}
                Part::Group(n) => {
                    if captures.is_none() {
                        captures = Some(self.captures(text, start, end)?);
                    }
                    if let Some(group) = captures.as_ref().and_then(|c| c.get_group(*n)) {
                        out.push_str(&text[group.start..group.end]);
                    }
                }
            }
        }
        Ok(())
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
    let mut translator = Translator::new(pattern, flags);
    translator.translate()?;
    let Translator {
        out,
        flags: effective,
        groups,
        is_lazy,
        ..
    } = translator;
    let syntax = syntax::Config::new()
        .case_insensitive(effective.fold_case)
        .dot_matches_new_line(!effective.stops_at_newline)
        .multi_line(effective.anchors_at_newline);
    let config = Config::new().nfa_size_limit(Some(MAX_BYTES));
    let engine = Engine::builder()
        .syntax(syntax)
        .configure(config)
        .build(&out)
        .map_err(|_| invalid("invalid pattern"))?;
    let longest = DFA::builder()
        .syntax(syntax)
        .configure(DFA::config().match_kind(MatchKind::All))
        .build(&out)
        .map_err(|_| invalid("invalid pattern"))?;
    Ok(Compiled {
        pattern: pattern.to_string(),
        flags,
        cache: RefCell::new(longest.create_cache()),
        engine,
        longest,
        groups,
        is_lazy,
    })
}

fn invalid(what: &str) -> Error {
    Error::new("2201B", format!("invalid regular expression: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of PostgreSQL 15.
    #[test]
    fn patterns_mean_what_they_mean_in_postgresql() {
        let yes = [
            ("a\nb", "a.b"),
            ("abc", "^abc$"),
            ("a]", "^[]a]+$"),
            ("x{", "x{"),
            ("foo bar", "\\mbar\\M"),
            ("a-b", "^[a-]-b$"),
            ("a&&b", "^[a&b]+$"),
            ("aB", "(?i)^ab$"),
            ("a.b", "***=a.b"),
            ("tab\t", "\\t"),
            ("e9", "^[[:alpha:]][[:digit:]]$"),
            ("aaa", "^a{2,}$"),
        ];
        for (text, pattern) in yes {
            assert!(matches(text, pattern, false).unwrap(), "{text} ~ {pattern}");
        }
        let no = [
            ("abc", "^b"),
            ("a\n", "^a$"),
            ("axb", "***=a.b"),
            ("é", "^\\w$"),
        ];
        for (text, pattern) in no {
            assert!(
                !matches(text, pattern, false).unwrap(),
                "{text} ~ {pattern}"
            );
        }
        for (pattern, state) in [
            ("(a", "2201B"),
            ("a)", "2201B"),
            ("*a", "2201B"),
            ("a**", "2201B"),
            ("[a", "2201B"),
            ("a{300}", "2201B"),
            ("a{3,2}", "2201B"),
            ("[b-a]", "2201B"),
            ("(a)\\1", "0A000"),
            ("a(?=b)", "0A000"),
            ("[[.a.]]", "0A000"),
        ] {
            let e = matches("a", pattern, false).unwrap_err();
            assert_eq!(e.sqlstate(), state, "{pattern}");
        }
    }

    #[test]
    fn the_longest_match_is_replaced() {
        let replaced = |text: &str, pattern: &str, with: &str, flags: &str| {
            replace(text, pattern, with, Flags::parse(flags).unwrap()).unwrap()
        };
        assert_eq!(replaced("foobarbaz", "b..", "X", ""), "fooXbaz");
        assert_eq!(replaced("foobarbaz", "b..", "X", "g"), "fooXX");
        assert_eq!(replaced("foobarbaz", "b(..)", "X\\1Y", "g"), "fooXarYXazY");
        assert_eq!(replaced("abab", "a|ab", "<\\&>", "g"), "<ab><ab>");
        assert_eq!(replaced("abc", "x*", "-", "g"), "-a-b-c-");
        assert_eq!(replaced("a.b", "\\.", "\\\\", ""), "a\\b");
    }
}
