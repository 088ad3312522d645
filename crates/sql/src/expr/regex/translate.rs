//! Translates a pattern of PostgreSQL's language into one of the engine's.
//!
//! **Invariant.** What would mean something else there is refused with 0A000.

use super::{Flags, MOST_REPEATS, invalid};
use crate::error::{Error, Result};

/// A pattern on its way from one language to the other.
pub(super) struct Translator {
    chars: Vec<char>,
    at: usize,
    /// What the engine is given.
    pub(super) out: String,
    /// Those asked for, with those that the pattern itself sets.
    pub(super) flags: Flags,
    pub(super) groups: usize,
    pub(super) is_lazy: bool,
}

impl Translator {
    pub(super) fn new(pattern: &str, flags: Flags) -> Translator {
        Translator {
            chars: pattern.chars().collect(),
            at: 0,
            out: String::with_capacity(pattern.len() + 16),
            flags,
            groups: 0,
            is_lazy: false,
        }
    }

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

    fn literal(&mut self, c: char) {
        match c.is_ascii_alphanumeric() || c == '_' || c as u32 > 127 {
            true => self.out.push(c),
            false => self.out += &format!("\\x{{{:x}}}", c as u32),
        }
    }

    pub(super) fn translate(&mut self) -> Result<()> {
        if self.starts_with("***=") {
            self.at = 4;
            while let Some(c) = self.next() {
                self.literal(c);
            }
            return Ok(());
        }
        if self.starts_with("***:") {
            self.at = 4;
        }
        self.embedded_options()?;
        // The groups that are open; and whether there is something that can be repeated.
        let (mut open, mut operand) = (0usize, false);
        while let Some(c) = self.next() {
            operand = match c {
                '(' => {
                    self.open_group()?;
                    open += 1;
                    false
                }
                ')' if open > 0 => {
                    open -= 1;
                    self.out.push(')');
                    true
                }
                ')' => return Err(invalid("parentheses () not balanced")),
                '|' => {
                    self.out.push('|');
                    false
                }
                '^' | '$' => {
                    self.out.push(c);
                    // Such a thing cannot be repeated.
                    false
                }
                '.' => {
                    self.out.push('.');
                    true
                }
                '*' | '+' | '?' => {
                    if !operand {
                        return Err(invalid("quantifier operand invalid"));
                    }
                    self.out.push(c);
                    self.laziness();
                    false
                }
                '{' if self.peek(0).is_some_and(|c| c.is_ascii_digit()) => {
                    if !operand {
                        return Err(invalid("quantifier operand invalid"));
                    }
                    self.bounds()?;
                    false
                }
                '[' => self.bracket()?,
                '\\' => self.escape()?,
                c => {
                    self.literal(c);
                    true
                }
            };
        }
        match open {
            0 => Ok(()),
            _ => Err(invalid("parentheses () not balanced")),
        }
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
        let flags = Flags::parse(&options)?;
        let everywhere = self.flags.everywhere;
        self.flags = Flags {
            everywhere,
            // What is not mentioned stays.
            fold_case: match options.contains(['i', 'c']) {
                true => flags.fold_case,
                false => self.flags.fold_case,
            },
            ..flags
        };
        self.at += end + 1;
        Ok(())
    }

    fn open_group(&mut self) -> Result<()> {
        if self.starts_with("?:") {
            self.at += 2;
            self.out += "(?:";
            return Ok(());
        }
        if self.peek(0) == Some('?') {
            return match self.peek(1) {
                Some('=' | '!' | '<') => Err(Error::unsupported(
                    "regular expressions that look ahead or behind",
                )),
                _ => Err(invalid("quantifier operand invalid")),
            };
        }
        self.groups += 1;
        self.out.push('(');
        Ok(())
    }

    fn laziness(&mut self) {
        if self.peek(0) == Some('?') {
            self.at += 1;
            self.is_lazy = true;
            self.out.push('?');
        }
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

    fn bounds(&mut self) -> Result<()> {
        let least = self.number()?;
        let mut most = Some(least);
        if self.peek(0) == Some(',') {
            self.at += 1;
            most = match self.peek(0) {
                Some('}') => None,
                _ => Some(self.number()?),
            };
        }
        if self.next() != Some('}') || most.is_some_and(|most| most < least) {
            return Err(invalid("invalid repetition count(s)"));
        }
        self.out += &match most {
            Some(most) => format!("{{{least},{most}}}"),
            None => format!("{{{least},}}"),
        };
        self.laziness();
        Ok(())
    }

    /// What follows a backslash; whether it can be repeated.
    fn escape(&mut self) -> Result<bool> {
        let Some(c) = self.next() else {
            return Err(invalid("invalid escape \\ sequence"));
        };
        let (text, repeats) = match c {
            'd' => ("[0-9]", true),
            'D' => (self.negated("[^0-9]", "[^0-9\\n]"), true),
            'w' => ("[0-9A-Za-z_]", true),
            'W' => (self.negated("[^0-9A-Za-z_]", "[^0-9A-Za-z_\\n]"), true),
            's' => ("[ \\t\\n\\x0b\\x0c\\r]", true),
            'S' => ("[^ \\t\\n\\x0b\\x0c\\r]", true),
            'A' => ("\\A", false),
            'Z' => ("\\z", false),
            'm' => ("(?-u:\\b{start})", false),
            'M' => ("(?-u:\\b{end})", false),
            'y' => ("(?-u:\\b)", false),
            'Y' => ("(?-u:\\B)", false),
            '1'..='9' => {
                return Err(Error::unsupported(
                    "regular expressions with back references",
                ));
            }
            c => {
                let c = self.character(c)?;
                self.literal(c);
                return Ok(true);
            }
        };
        self.out += text;
        Ok(repeats)
    }

    fn negated(&self, plain: &'static str, by_line: &'static str) -> &'static str {
        match self.flags.stops_at_newline {
            true => by_line,
            false => plain,
        }
    }

    /// The character that an escape stands for.
    fn character(&mut self, c: char) -> Result<char> {
        let bad = || invalid("invalid escape \\ sequence");
        Ok(match c {
            'a' => '\x07',
            'b' => '\x08',
            'B' => '\\',
            'e' => '\x1b',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '0' => '\0',
            'u' => self.hex(4)?,
            'U' => self.hex(8)?,
            'x' => self.hex(2)?,
            c if c.is_ascii_alphanumeric() => return Err(bad()),
            c => c,
        })
    }

    fn hex(&mut self, digits: usize) -> Result<char> {
        let bad = || invalid("invalid escape \\ sequence");
        let text: String = self.chars[self.at..].iter().take(digits).collect();
        let code = u32::from_str_radix(&text, 16).map_err(|_| bad())?;
        if text.len() != digits {
            return Err(bad());
        }
        self.at += digits;
        char::from_u32(code).ok_or_else(bad)
    }

    /// A bracket expression; whether it can be repeated.
    fn bracket(&mut self) -> Result<bool> {
        for (written, boundary) in [("[:<:]]", "start"), ("[:>:]]", "end")] {
            if self.starts_with(written) {
                self.at += written.len();
                self.out += &format!("(?-u:\\b{{{boundary}}})");
                return Ok(false);
            }
        }
        self.out.push('[');
        if self.peek(0) == Some('^') {
            self.at += 1;
            self.out.push('^');
            if self.flags.stops_at_newline {
                self.out += "\\n";
            }
        }
        let mut first = true;
        loop {
            let Some(c) = self.next() else {
                return Err(invalid("brackets [] not balanced"));
            };
            match c {
                ']' if !first => break,
                '[' if matches!(self.peek(0), Some('.' | '=')) => {
                    return Err(Error::unsupported(
                        "collating elements in regular expressions",
                    ));
                }
                '[' if self.peek(0) == Some(':') => self.class()?,
                '\\' if matches!(self.peek(0), Some('d' | 'w' | 's')) => {
                    let class = self.next();
                    self.out += match class {
                        Some('d') => "0-9",
                        Some('w') => "0-9A-Za-z_",
                        _ => " \\t\\n\\x0b\\x0c\\r",
                    };
                }
                c => self.member(c)?,
            }
            first = false;
        }
        self.out.push(']');
        Ok(true)
    }

    fn class(&mut self) -> Result<()> {
        const CLASSES: [&str; 12] = [
            "alpha", "upper", "lower", "digit", "xdigit", "alnum", "print", "punct", "graph",
            "cntrl", "space", "blank",
        ];
        let rest: String = self.chars[self.at + 1..].iter().collect();
        let name = rest.split(":]").next().unwrap_or_default();
        if !CLASSES.contains(&name) {
            return Err(invalid("invalid character class"));
        }
        self.out += &format!("[:{name}:]");
        self.at += name.len() + 3;
        Ok(())
    }

    /// A character of a bracket expression, or a range that begins with it.
    fn member(&mut self, c: char) -> Result<()> {
        let single = |t: &mut Translator, c: char| match c {
            '\\' => {
                let c = t
                    .next()
                    .ok_or_else(|| invalid("invalid escape \\ sequence"))?;
                t.character(c)
            }
            c => Ok(c),
        };
        let low = single(self, c)?;
        self.literal(low);
        if self.peek(0) != Some('-') || matches!(self.peek(1), Some(']') | None) {
            return Ok(());
        }
        self.at += 1;
        let c = self.next().unwrap_or('-');
        let high = single(self, c)?;
        if high < low {
            return Err(invalid("invalid character range"));
        }
        self.out.push('-');
        self.literal(high);
        Ok(())
    }
}
