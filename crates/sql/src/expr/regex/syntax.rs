//! The syntax of PostgreSQL's regular expressions (Tcl's "advanced" ones): a pattern's text to its
//! tree. What is refused with 0A000: options `b` and `e`, which name other languages, and names of
//! collating elements.

use std::rc::Rc;

use super::{Flags, MOST_REPEATS, invalid};
use crate::error::{Error, Result};

/// How deep parentheses may nest.
const MAX_DEPTH: usize = 150;

/// A part of a pattern.
#[derive(Clone, Debug)]
pub(super) enum Ast {
    Empty,
    Set(Rc<Set>),
    Assert(Assert),
    Look(Rc<Look>),
    Cat(Vec<Ast>),
    Alt(Vec<Ast>),
    /// A number from 1 on if it captures, zero if it does not.
    Group(usize, Box<Ast>),
    /// What a group has matched.
    Back(usize),
    Repeat(Box<Repeat>),
}

#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub of: Ast,
    pub least: u32,
    pub most: Option<u32>,
    pub prefers: Prefers,
}

/// What a quantifier prefers, as far as it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Prefers {
    Nothing,
    Long,
    Short,
}

/// Characters by ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub ranges: Vec<(char, char)>,
    pub negated: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Assert {
    /// The beginning and the end of the text.
    Begin,
    End,
    /// Of a line, if the flags say so.
    LineBegin,
    LineEnd,
    WordBegin,
    WordEnd,
    WordBoundary,
    NoWordBoundary,
}

#[derive(Debug)]
pub(super) struct Look {
    pub ahead: bool,
    pub negated: bool,
    pub of: Ast,
}

/// A pattern, read.
pub(super) struct Pattern {
    pub tree: Ast,
    /// Those asked for, with those that the pattern itself sets.
    pub flags: Flags,
    pub groups: usize,
    /// It prefers short matches somewhere.
    pub is_lazy: bool,
    /// It refers back or looks around.
    pub is_beyond_automata: bool,
}

struct Reader {
    chars: Vec<char>,
    at: usize,
    pattern: Pattern,
    /// Groups that are closed.
    closed: Vec<bool>,
    depth: usize,
    /// Within something that looks around, where nothing captures.
    looking: bool,
}

pub(super) fn read(text: &str, flags: Flags) -> Result<Pattern> {
    let mut reader = Reader {
        chars: text.chars().collect(),
        at: 0,
        pattern: Pattern {
            tree: Ast::Empty,
            flags,
            groups: 0,
            is_lazy: false,
            is_beyond_automata: false,
        },
        closed: vec![false],
        depth: 0,
        looking: false,
    };
    if reader.starts_with("***=") {
        reader.at = 4;
        reader.pattern.flags.literal = true;
    } else if reader.starts_with("***:") {
        reader.at = 4;
    } else if reader.starts_with("***") {
        return Err(invalid("invalid regexp (reg version 0.8)"));
    }
    if reader.pattern.flags.literal {
        let rest = reader.chars[reader.at..].iter();
        reader.pattern.tree = Ast::Cat(rest.map(|c| one(*c)).collect());
        return Ok(reader.pattern);
    }
    reader.embedded_options()?;
    if reader.pattern.flags.literal {
        let rest = reader.chars[reader.at..].iter();
        reader.pattern.tree = Ast::Cat(rest.map(|c| one(*c)).collect());
        return Ok(reader.pattern);
    }
    reader.pattern.tree = reader.alternatives()?;
    match reader.at < reader.chars.len() {
        true => Err(invalid("parentheses () not balanced")),
        false => Ok(reader.pattern),
    }
}

/// A set of one character.
fn one(c: char) -> Ast {
    set(&[(c, c)], false)
}

fn set(ranges: &[(char, char)], negated: bool) -> Ast {
    Ast::Set(Rc::new(Set {
        ranges: ranges.to_vec(),
        negated,
    }))
}

const DIGITS: &[(char, char)] = &[('0', '9')];
const WORDS: &[(char, char)] = &[('0', '9'), ('A', 'Z'), ('a', 'z'), ('_', '_')];
const SPACES: &[(char, char)] = &[('\t', '\r'), (' ', ' ')];

/// A class of characters by its name. As in the C locale they are of ASCII.
fn class(name: &str) -> Option<&'static [(char, char)]> {
    Some(match name {
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "upper" => &[('A', 'Z')],
        "lower" => &[('a', 'z')],
        "digit" => DIGITS,
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "graph" => &[('!', '~')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "space" => SPACES,
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "ascii" => &[('\0', '\x7f')],
        "word" => WORDS,
        _ => return None,
    })
}

impl Reader {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        Some(c)
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(i, c)| self.peek(i) == Some(c))
    }

    fn accept(&mut self, text: &str) -> bool {
        let found = self.starts_with(text);
        if found {
            self.at += text.chars().count();
        }
        found
    }

    /// `(?i)` and the like at the beginning.
    fn embedded_options(&mut self) -> Result<()> {
        if !self.starts_with("(?") || !self.peek(2).is_some_and(|c| c.is_ascii_alphabetic()) {
            return Ok(());
        }
        let Some(end) = self.chars[self.at..].iter().position(|c| *c == ')') else {
            return Err(invalid("invalid embedded option"));
        };
        let options: String = self.chars[self.at + 2..self.at + end].iter().collect();
        if options.contains('g') {
            return Err(invalid("invalid embedded option"));
        }
        let mut flags = self.pattern.flags;
        flags.add(&options)?;
        self.pattern.flags = flags;
        self.at += end + 1;
        Ok(())
    }

    /// What means nothing: comments, and with the option `x` blanks.
    fn skip(&mut self) {
        loop {
            if self.starts_with("(?#") {
                while self.next().is_some_and(|c| c != ')') {}
            } else if self.pattern.flags.expanded && self.peek(0).is_some_and(char::is_whitespace) {
                self.at += 1;
            } else if self.pattern.flags.expanded && self.peek(0) == Some('#') {
                while self.next().is_some_and(|c| c != '\n') {}
            } else {
                return;
            }
        }
    }

    fn alternatives(&mut self) -> Result<Ast> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(invalid("regular expression is too complex"));
        }
        let mut branches = vec![self.branch()?];
        while self.peek(0) == Some('|') {
            self.at += 1;
            branches.push(self.branch()?);
        }
        self.depth -= 1;
        Ok(match branches.len() {
            1 => branches.remove(0),
            _ => Ast::Alt(branches),
        })
    }

    fn branch(&mut self) -> Result<Ast> {
        let mut parts = Vec::new();
        loop {
            self.skip();
            match self.peek(0) {
                None | Some('|' | ')') => break,
                Some(_) => {
                    let atom = self.atom()?;
                    self.skip();
                    parts.push(self.quantified(atom)?);
                }
            }
        }
        Ok(Ast::Cat(parts))
    }

    fn atom(&mut self) -> Result<Ast> {
        let c = self.next().unwrap_or('\0');
        Ok(match c {
            '(' => self.group()?,
            '[' => self.bracket()?,
            '\\' => self.escape()?,
            '^' => Ast::Assert(Assert::LineBegin),
            '$' => Ast::Assert(Assert::LineEnd),
            '.' => set(self.newline(), true),
            '*' | '+' | '?' => return Err(invalid("quantifier operand invalid")),
            '{' if self.peek(0).is_some_and(|c| c.is_ascii_digit()) => {
                return Err(invalid("quantifier operand invalid"));
            }
            c => one(c),
        })
    }

    /// What `.` and `[^..]` do not match.
    fn newline(&self) -> &'static [(char, char)] {
        match self.pattern.flags.stops_at_newline {
            true => &[('\n', '\n')],
            false => &[],
        }
    }

    fn group(&mut self) -> Result<Ast> {
        let looks = [
            ("?=", true, false),
            ("?!", true, true),
            ("?<=", false, false),
            ("?<!", false, true),
        ];
        if self.accept("?:") {
            let of = self.alternatives()?;
            self.close()?;
            return Ok(Ast::Group(0, Box::new(of)));
        }
        for (written, ahead, negated) in looks {
            if self.accept(written) {
                self.pattern.is_beyond_automata = true;
                let outer = std::mem::replace(&mut self.looking, true);
                let of = self.alternatives()?;
                self.looking = outer;
                self.close()?;
                let look = Look { ahead, negated, of };
                return Ok(Ast::Look(Rc::new(look)));
            }
        }
        if self.peek(0) == Some('?') {
            return Err(invalid("quantifier operand invalid"));
        }
        if self.looking {
            let of = self.alternatives()?;
            self.close()?;
            return Ok(Ast::Group(0, Box::new(of)));
        }
        self.pattern.groups += 1;
        let number = self.pattern.groups;
        self.closed.push(false);
        let of = self.alternatives()?;
        self.close()?;
        self.closed[number] = true;
        Ok(Ast::Group(number, Box::new(of)))
    }

    fn close(&mut self) -> Result<()> {
        match self.next() {
            Some(')') => Ok(()),
            _ => Err(invalid("parentheses () not balanced")),
        }
    }

    fn quantified(&mut self, of: Ast) -> Result<Ast> {
        let (least, most, counts) = match self.peek(0) {
            Some('*') => (0, None, false),
            Some('+') => (1, None, false),
            Some('?') => (0, Some(1), false),
            Some('{') if self.peek(1).is_some_and(|c| c.is_ascii_digit()) => {
                self.at += 1;
                self.bounds()?
            }
            _ => return Ok(of),
        };
        self.at += 1;
        if matches!(of, Ast::Assert(_) | Ast::Look(_)) {
            return Err(invalid("quantifier operand invalid"));
        }
        let is_short = self.peek(0) == Some('?');
        self.at += usize::from(is_short);
        self.pattern.is_lazy |= is_short && !counts;
        let prefers = match (counts, is_short) {
            // It is as greedy as what it repeats.
            (true, _) => Prefers::Nothing,
            (false, true) => Prefers::Short,
            (false, false) => Prefers::Long,
        };
        self.skip();
        if matches!(self.peek(0), Some('*' | '+' | '?')) {
            return Err(invalid("quantifier operand invalid"));
        }
        Ok(Ast::Repeat(Box::new(Repeat {
            of,
            least,
            most,
            prefers,
        })))
    }

    /// Least and most repetitions, and whether it is one number; the closing brace is left.
    fn bounds(&mut self) -> Result<(u32, Option<u32>, bool)> {
        let least = self.number()?;
        let (mut most, mut counts) = (Some(least), true);
        if self.peek(0) == Some(',') {
            self.at += 1;
            counts = false;
            most = match self.peek(0) {
                Some('}') => None,
                _ => Some(self.number()?),
            };
        }
        if self.peek(0) != Some('}') || most.is_some_and(|most| most < least) {
            return Err(invalid("invalid repetition count(s)"));
        }
        Ok((least, most, counts))
    }

    fn number(&mut self) -> Result<u32> {
        let start = self.at;
        while self.peek(0).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        let digits: String = self.chars[start..self.at].iter().collect();
        match digits.parse() {
            Ok(n) if n <= MOST_REPEATS => Ok(n),
            _ => Err(invalid("invalid repetition count(s)")),
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Result<Ast> {
        let Some(c) = self.next() else {
            return Err(invalid("invalid escape \\ sequence"));
        };
        Ok(match c {
            'd' => set(DIGITS, false),
            'D' => set(DIGITS, true),
            'w' => set(WORDS, false),
            'W' => set(WORDS, true),
            's' => set(SPACES, false),
            'S' => set(SPACES, true),
            'A' => Ast::Assert(Assert::Begin),
            'Z' => Ast::Assert(Assert::End),
            'm' => Ast::Assert(Assert::WordBegin),
            'M' => Ast::Assert(Assert::WordEnd),
            'y' => Ast::Assert(Assert::WordBoundary),
            'Y' => Ast::Assert(Assert::NoWordBoundary),
            '1'..='9' => return self.back_reference(c),
            c => one(self.character(c)?),
        })
    }

    /// A number of one digit always refers back, a longer one if there are so many groups; else it
    /// is an octal code.
    fn back_reference(&mut self, first: char) -> Result<Ast> {
        let begin = self.at;
        let mut number = first.to_digit(10).unwrap_or(0) as usize;
        while let Some(digit) = self.peek(0).and_then(|c| c.to_digit(10))
            && number < 1000
        {
            number = number * 10 + digit as usize;
            self.at += 1;
        }
        if self.at > begin && number > self.pattern.groups {
            self.at = begin - 1;
            return Ok(one(self.octal()?));
        }
        if self.looking || !self.closed.get(number).copied().unwrap_or(false) {
            return Err(invalid("invalid backreference number"));
        }
        self.pattern.is_beyond_automata = true;
        Ok(Ast::Back(number))
    }

    /// The character that an escape stands for.
    fn character(&mut self, c: char) -> Result<char> {
        let bad = || invalid("invalid escape \\ sequence");
        Ok(match c {
            'a' => '\x07',
            'b' => '\x08',
            'B' => '\\',
            'c' => char::from(self.next().ok_or_else(bad)? as u8 & 0x1f),
            'e' => '\x1b',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '0' => {
                self.at -= 1;
                self.octal()?
            }
            'u' => self.hex(4)?,
            'U' => self.hex(8)?,
            'x' => self.hex_of_any_length()?,
            c if c.is_ascii_alphanumeric() => return Err(bad()),
            c => c,
        })
    }

    /// Up to three octal digits.
    fn octal(&mut self) -> Result<char> {
        let mut code = 0;
        let mut digits = 0;
        while digits < 3
            && let Some(digit) = self.peek(0).and_then(|c| c.to_digit(8))
        {
            code = code * 8 + digit;
            digits += 1;
            self.at += 1;
        }
        match (digits, char::from_u32(code)) {
            (1.., Some(c)) if code < 256 => Ok(c),
            _ => Err(invalid("invalid escape \\ sequence")),
        }
    }

    fn hex(&mut self, digits: usize) -> Result<char> {
        let bad = || invalid("invalid escape \\ sequence");
        let text: String = self.chars[self.at..].iter().take(digits).collect();
        let code = u32::from_str_radix(&text, 16).map_err(|_| bad())?;
        if text.len() != digits || text.starts_with('+') {
            return Err(bad());
        }
        self.at += digits;
        char::from_u32(code).ok_or_else(bad)
    }

    fn hex_of_any_length(&mut self) -> Result<char> {
        let bad = || invalid("invalid escape \\ sequence");
        let begin = self.at;
        let mut code = 0_u32;
        while let Some(digit) = self.peek(0).and_then(|c| c.to_digit(16)) {
            code = code.checked_mul(16).ok_or_else(bad)? | digit;
            self.at += 1;
        }
        match self.at > begin {
            true => char::from_u32(code).ok_or_else(bad),
            false => Err(bad()),
        }
    }

    fn bracket(&mut self) -> Result<Ast> {
        if self.accept("[:<:]]") {
            return Ok(Ast::Assert(Assert::WordBegin));
        }
        if self.accept("[:>:]]") {
            return Ok(Ast::Assert(Assert::WordEnd));
        }
        let negated = self.accept("^");
        let mut ranges = Vec::new();
        if negated {
            ranges.extend_from_slice(self.newline());
        }
        let mut first = true;
        loop {
            let Some(c) = self.next() else {
                return Err(invalid("brackets [] not balanced"));
            };
            match c {
                ']' if !first => break,
                '[' if self.peek(0) == Some(':') => {
                    self.at += 1;
                    let name = self.named(":]")?;
                    let class = class(&name).ok_or_else(|| invalid("invalid character class"))?;
                    ranges.extend_from_slice(class);
                }
                '[' if self.accept("=") => {
                    let c = self.element("=]")?;
                    ranges.push((c, c));
                }
                '\\' if matches!(self.peek(0), Some('d' | 'w' | 's')) => {
                    ranges.extend_from_slice(match self.next() {
                        Some('d') => DIGITS,
                        Some('w') => WORDS,
                        _ => SPACES,
                    });
                }
                c => {
                    let range = self.range(c)?;
                    ranges.push(range);
                }
            }
            first = false;
        }
        Ok(set(&ranges, negated))
    }

    /// What stands before the end of a class or collating element, which is taken too.
    fn named(&mut self, end: &str) -> Result<String> {
        let mut name = String::new();
        while !self.accept(end) {
            match self.next() {
                Some(c) => name.push(c),
                None => return Err(invalid("brackets [] not balanced")),
            }
        }
        Ok(name)
    }

    /// A collating element, which is one character.
    fn element(&mut self, end: &str) -> Result<char> {
        let name = self.named(end)?;
        let mut chars = name.chars();
        match (chars.next(), chars.next()) {
            (Some(c), None) => Ok(c),
            (None, _) => Err(invalid("invalid collating element")),
            _ => Err(Error::unsupported(format!(
                "the collating element \"{name}\" in a regular expression"
            ))),
        }
    }

    /// A character of a bracket expression, or a range that begins with it.
    fn range(&mut self, c: char) -> Result<(char, char)> {
        let low = self.bound(c)?;
        if self.peek(0) != Some('-') || matches!(self.peek(1), Some(']') | None) {
            return Ok((low, low));
        }
        self.at += 1;
        let c = self.next().unwrap_or('-');
        let high = self.bound(c)?;
        match high < low {
            true => Err(invalid("invalid character range")),
            false => Ok((low, high)),
        }
    }

    fn bound(&mut self, c: char) -> Result<char> {
        match c {
            '[' if self.accept(".") => self.element(".]"),
            '\\' => {
                let c = self
                    .next()
                    .ok_or_else(|| invalid("invalid escape \\ sequence"))?;
                self.character(c)
            }
            c => Ok(c),
        }
    }
}
