//! The words of a body, as PostgreSQL's scanner cuts them.

use crate::Error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name without quotes, in lower case.
    Word(String),
    /// A name in quotes, as it is meant.
    Quoted(String),
    /// A string of any form; what it says.
    Text(String),
    Number,
    /// `$1` and the like.
    Parameter,
    /// An operator, or one of the signs that stand alone.
    Sign(String),
}

/// A word with its place in the body.
#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    pub line: u32,
}

impl Token {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(w) if w == word)
    }

    pub fn is_sign(&self, sign: &str) -> bool {
        matches!(&self.kind, Kind::Sign(s) if s == sign)
    }

    /// The name that it is, with or without quotes.
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(name) | Kind::Quoted(name) => Some(name),
            _ => None,
        }
    }
}

/// The characters of operators.
const OPERATOR: &str = "+-*/<>=~!@#%^&|`?:";

pub fn tokens(body: &str) -> Result<Vec<Token>, Error> {
    let mut scanner = Scanner {
        body,
        bytes: body.as_bytes(),
        at: 0,
        line: 1,
    };
    let mut found = Vec::new();
    while let Some(token) = scanner.next()? {
        found.push(token);
    }
    Ok(found)
}

struct Scanner<'b> {
    body: &'b str,
    bytes: &'b [u8],
    at: usize,
    line: u32,
}

fn begins_name(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

fn is_name(b: u8) -> bool {
    begins_name(b) || b.is_ascii_digit() || b == b'$'
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Goes on to a place, over the lines between.
    fn go_to(&mut self, end: usize) {
        let passed = &self.bytes[self.at..end];
        self.line += passed.iter().filter(|b| **b == b'\n').count() as u32;
        self.at = end;
    }

    fn skip_blanks(&mut self) -> Result<(), Error> {
        loop {
            let rest = &self.bytes[self.at..];
            if rest.first().is_some_and(u8::is_ascii_whitespace) {
                self.go_to(self.at + 1);
            } else if rest.starts_with(b"--") {
                let end = rest.iter().position(|b| *b == b'\n');
                self.go_to(self.at + end.unwrap_or(rest.len()));
            } else if rest.starts_with(b"/*") {
                let end = self.comment_end()?;
                self.go_to(end);
            } else {
                return Ok(());
            }
        }
    }

    /// Comments nest.
    fn comment_end(&self) -> Result<usize, Error> {
        let (mut at, mut depth) = (self.at + 2, 1);
        while depth > 0 {
            let rest = self.bytes.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return Err(self.unterminated("/* comment"));
            }
            (at, depth) = match () {
                () if rest.starts_with(b"/*") => (at + 2, depth + 1),
                () if rest.starts_with(b"*/") => (at + 2, depth - 1),
                () => (at + 1, depth),
            };
        }
        Ok(at)
    }

    fn unterminated(&self, what: &str) -> Error {
        Error {
            sqlstate: "42601",
            message: format!(
                "unterminated {what} at or near \"{}\"",
                &self.body[self.at..]
            ),
            hint: None,
            at: self.at,
            line: self.line,
        }
    }

    fn next(&mut self) -> Result<Option<Token>, Error> {
        self.skip_blanks()?;
        let (start, line) = (self.at, self.line);
        if start >= self.bytes.len() {
            return Ok(None);
        }
        let (kind, end) = self.cut()?;
        self.go_to(end);
        Ok(Some(Token {
            kind,
            start,
            end,
            line,
        }))
    }

    fn cut(&self) -> Result<(Kind, usize), Error> {
        let b = self.peek(0);
        match b {
            b'\'' => self.quoted_text(self.at, false),
            b'e' | b'E' if self.peek(1) == b'\'' => self.quoted_text(self.at + 1, true),
            b'"' => self.quoted_name(),
            b'$' if self.peek(1).is_ascii_digit() => Ok((
                Kind::Parameter,
                self.while_at(self.at + 1, |b| b.is_ascii_digit()),
            )),
            b'$' => self.dollar_quoted(),
            b'0'..=b'9' => Ok((Kind::Number, self.number_end())),
            b'.' if self.peek(1).is_ascii_digit() => Ok((Kind::Number, self.number_end())),
            b'.' if self.peek(1) == b'.' => Ok((Kind::Sign("..".into()), self.at + 2)),
            _ if begins_name(b) => {
                let end = self.while_at(self.at, is_name);
                Ok((Kind::Word(self.body[self.at..end].to_lowercase()), end))
            }
            _ if OPERATOR.as_bytes().contains(&b) => {
                let end = self.operator_end();
                Ok((Kind::Sign(self.body[self.at..end].to_string()), end))
            }
            _ => Ok((Kind::Sign((b as char).to_string()), self.at + 1)),
        }
    }

    fn while_at(&self, from: usize, wanted: impl Fn(u8) -> bool) -> usize {
        let rest = &self.bytes[from..];
        from + rest.iter().take_while(|b| wanted(**b)).count()
    }

    /// A number with its fraction and exponent; the two points of a range are none of it.
    fn number_end(&self) -> usize {
        let digit = |b: u8| b.is_ascii_digit();
        let byte = |at: usize| self.bytes.get(at).copied().unwrap_or(0);
        let mut end = self.while_at(self.at, digit);
        if byte(end) == b'.' && byte(end + 1) != b'.' {
            end = self.while_at(end + 1, digit);
        }
        if matches!(byte(end), b'e' | b'E') {
            let sign = usize::from(matches!(byte(end + 1), b'+' | b'-'));
            if digit(byte(end + 1 + sign)) {
                end = self.while_at(end + 1 + sign, digit);
            }
        }
        end
    }

    /// An operator ends before a comment; `:=`, `::` and labels' brackets are words of their own.
    fn operator_end(&self) -> usize {
        let rest = &self.bytes[self.at..];
        for own in [":=", "::", "<<", ">>"] {
            if rest.starts_with(own.as_bytes()) {
                return self.at + 2;
            }
        }
        let mut end = self.while_at(self.at, |b| OPERATOR.as_bytes().contains(&b));
        let text = &self.body[self.at..end];
        for comment in ["--", "/*"] {
            if let Some(at) = text.find(comment).filter(|at| *at > 0) {
                end = end.min(self.at + at);
            }
        }
        end
    }

    fn quoted_text(&self, from: usize, escapes: bool) -> Result<(Kind, usize), Error> {
        let (mut at, mut said) = (from + 1, Vec::new());
        loop {
            match self.bytes.get(at).copied() {
                None => return Err(self.unterminated("quoted string")),
                Some(b'\'') if self.bytes.get(at + 1) == Some(&b'\'') => {
                    said.push(b'\'');
                    at += 2;
                }
                Some(b'\'') => match self.continuation(at + 1) {
                    Some(next) => at = next,
                    None => break,
                },
                Some(b'\\') if escapes => {
                    let escaped = self.bytes.get(at + 1).copied().unwrap_or(b'\\');
                    said.push(match escaped {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        other => other,
                    });
                    at += 2;
                }
                Some(b) => {
                    said.push(b);
                    at += 1;
                }
            }
        }
        Ok((
            Kind::Text(String::from_utf8_lossy(&said).into_owned()),
            at + 1,
        ))
    }

    /// Where a string goes on that has ended here: behind the quote of another one that only blanks
    /// with a line's end among them, and comments of lines, stand before.
    fn continuation(&self, from: usize) -> Option<usize> {
        let (mut at, mut has_line_end) = (from, false);
        loop {
            match self.bytes.get(at)? {
                b'\n' | b'\r' => has_line_end = true,
                b if b.is_ascii_whitespace() => {}
                b'-' if self.bytes.get(at + 1) == Some(&b'-') => {
                    at = self.while_at(at, |b| b != b'\n' && b != b'\r');
                    continue;
                }
                b'\'' if has_line_end => return Some(at + 1),
                _ => return None,
            }
            at += 1;
        }
    }

    fn quoted_name(&self) -> Result<(Kind, usize), Error> {
        let (mut at, mut name) = (self.at + 1, Vec::new());
        loop {
            match self.bytes.get(at).copied() {
                None => return Err(self.unterminated("quoted identifier")),
                Some(b'"') if self.bytes.get(at + 1) == Some(&b'"') => {
                    name.push(b'"');
                    at += 2;
                }
                Some(b'"') => break,
                Some(b) => {
                    name.push(b);
                    at += 1;
                }
            }
        }
        Ok((
            Kind::Quoted(String::from_utf8_lossy(&name).into_owned()),
            at + 1,
        ))
    }

    fn dollar_quoted(&self) -> Result<(Kind, usize), Error> {
        let name_end = self.while_at(self.at + 1, |b| is_name(b) && b != b'$');
        if self.bytes.get(name_end) != Some(&b'$') {
            return Ok((Kind::Sign("$".into()), self.at + 1));
        }
        let quote = &self.body[self.at..=name_end];
        let begin = name_end + 1;
        match self.body[begin..].find(quote) {
            Some(length) => {
                let said = self.body[begin..begin + length].to_string();
                Ok((Kind::Text(said), begin + length + quote.len()))
            }
            None => Err(self.unterminated("dollar-quoted string")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(body: &str) -> Vec<Kind> {
        let found = tokens(body).expect("it can be cut");
        found.into_iter().map(|t| t.kind).collect()
    }

    #[test]
    fn a_range_of_numbers_is_three_words() {
        let signs = [Kind::Number, Kind::Sign("..".into()), Kind::Number];
        assert_eq!(kinds("1..10"), signs);
    }

    #[test]
    fn quotes_and_comments_hide_what_is_in_them() {
        let body = "a /* b /* c */ ; */ 'it''s;' $q$ ; $q$ -- ;\nB";
        let expected = [
            Kind::Word("a".into()),
            Kind::Text("it's;".into()),
            Kind::Text(" ; ".into()),
            Kind::Word("b".into()),
        ];
        assert_eq!(kinds(body), expected);
    }

    #[test]
    fn lines_are_counted_through_strings() {
        let found = tokens("'a\nb'\nc").expect("it can be cut");
        assert_eq!(found[1].line, 3);
    }

    #[test]
    fn a_string_goes_on_in_the_next_line() {
        let text = |said: &str| Kind::Text(said.into());
        assert_eq!(kinds("'a' -- x\n 'b''' \n'c'"), [text("ab'c")]);
        assert_eq!(kinds("E'a'\n'\\tb'"), [text("a\tb")]);
        assert_eq!(kinds("'a' 'b'"), [text("a"), text("b")]);
        assert_eq!(kinds("'a' -- 'b'"), [text("a")]);
    }

    #[test]
    fn a_string_without_an_end_is_an_error() {
        assert!(tokens("'abc").is_err());
        assert!(tokens("/* abc").is_err());
    }
}
