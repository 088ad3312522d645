//! Texts of sessions whose `standard_conforming_strings` is off, where a backslash in a plain
//! string begins an escape. Such a string gets the `E` with which everybody reads it so.
//!
//! **Invariant.** What is parsed, kept in plans and stored has standard strings alone: only texts
//! on their way from a client, or those that a body makes, pass here.

use super::split::{escape_string, is_escape_quote, is_word, skipped_end, token_end};
use crate::error::{Error, Result};

/// How a session reads backslashes in strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backslashes {
    /// They begin escapes in plain strings, too.
    pub in_plain: bool,
    /// Escapes in plain strings are told of.
    pub warns: bool,
    /// A quote behind one is refused.
    pub no_quotes: bool,
}

/// The text of a client with standard strings.
#[derive(Debug)]
pub struct Reread {
    pub text: String,
    /// Behind which characters of the client's text there are more, and how many.
    added: Vec<(u32, u32)>,
    /// What is told of strings with escapes: a message and a hint.
    pub warnings: Vec<(&'static str, &'static str)>,
}

impl Reread {
    /// An error with its position in the client's text.
    pub fn error(&self, error: Error) -> Error {
        let Some(position) = error.fields().position else {
            return error;
        };
        let mut before = 0;
        for (at, more) in &self.added {
            let behind = (position - 1).saturating_sub(at + before);
            before += behind.min(*more);
        }
        error.moved_back(before)
    }
}

fn characters(text: &str) -> u32 {
    text.chars().count() as u32
}

/// Counts the characters of a text on to places that come one behind the other.
#[derive(Default)]
struct Counted {
    bytes: usize,
    characters: u32,
}

impl Counted {
    fn until(&mut self, text: &str, at: usize) -> u32 {
        self.characters += characters(&text[self.bytes..at]);
        self.bytes = at;
        self.characters
    }
}

/// The text as others read it; `None`: they read it alike.
pub fn reread(sql: &str, how: Backslashes) -> Result<Option<Reread>> {
    let bytes = sql.as_bytes();
    if how == Backslashes::default() || !(sql.contains('\\') || sql.contains("&'")) {
        return Ok(None);
    }
    let mut found = Reread {
        text: String::with_capacity(sql.len() + 16),
        added: Vec::new(),
        warnings: Vec::new(),
    };
    let mut counted = Counted::default();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        if let Some(end) = skipped_end(bytes, at) {
            at = end;
            continue;
        }
        if bytes[at] != b'\'' {
            at = token_end(sql, at);
            continue;
        }
        let prefix = match is_escape_quote(bytes, at) {
            true => Prefix::Escapes,
            false => prefix(bytes, at),
        };
        if !how.in_plain && prefix != Prefix::Escapes || prefix == Prefix::Bits {
            at = token_end(sql, at);
            continue;
        }
        let (pieces, end) = escape_string(bytes, at);
        let piece = |(from, to): &(usize, usize)| &sql[*from..*to];
        if how.no_quotes && pieces.iter().map(piece).any(has_escaped_quote) {
            let before = at - usize::from(prefix == Prefix::Escapes);
            return Err(unsafe_quote().at(characters(&sql[..before]) + 1));
        }
        let escape = pieces.iter().map(piece).find_map(first_escape);
        match (prefix, escape) {
            (Prefix::Unicode, _) => {
                let message = "unsafe use of string constant with Unicode escapes";
                let detail = "String constants with Unicode escapes cannot be used when \
                              standard_conforming_strings is off.";
                let error = Error::new("0A000", message).detail(detail);
                return Err(error.at(characters(&sql[..at - 2]) + 1));
            }
            (Prefix::National, Some(_)) => {
                let what = "escapes in N'..' while standard_conforming_strings is off";
                return Err(Error::unsupported(what));
            }
            (Prefix::None, Some(escape)) => {
                found.text.push_str(&sql[copied..at]);
                let mark = match at > 0 && is_word(bytes[at - 1]) {
                    true => " E",
                    false => "E",
                };
                let before = counted.until(sql, at);
                found.added.push((before, mark.len() as u32));
                found.text.push_str(mark);
                copied = at;
                found.warnings.extend(how.warns.then(|| warning(escape)));
            }
            _ => {}
        }
        at = end;
    }
    if copied == 0 && found.added.is_empty() {
        return Ok(None);
    }
    found.text.push_str(&sql[copied..]);
    Ok(Some(found))
}

/// What stands before a quote that begins no string with escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefix {
    None,
    Escapes,
    Bits,
    National,
    Unicode,
}

fn prefix(bytes: &[u8], quote: usize) -> Prefix {
    let alone = |back: usize| quote == back || !is_word(bytes[quote - back - 1]);
    match &bytes[..quote] {
        [.., b'u' | b'U', b'&'] if alone(2) => Prefix::Unicode,
        [.., b'b' | b'B' | b'x' | b'X'] if alone(1) => Prefix::Bits,
        [.., b'n' | b'N'] if alone(1) => Prefix::National,
        _ => Prefix::None,
    }
}

/// The character behind the first backslash.
fn first_escape(piece: &str) -> Option<char> {
    let (_, rest) = piece.split_once('\\')?;
    Some(rest.chars().next().unwrap_or('\\'))
}

fn has_escaped_quote(piece: &str) -> bool {
    let mut chars = piece.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next() == Some('\'') {
            return true;
        }
    }
    false
}

fn unsafe_quote() -> Error {
    Error::new("22P06", "unsafe use of \\' in a string literal")
        .hint("Use '' to write quotes in strings. \\' is insecure in client-only encodings.")
}

fn warning(escape: char) -> (&'static str, &'static str) {
    match escape {
        '\'' => (
            "nonstandard use of \\' in a string literal",
            "Use '' to write quotes in strings, or use the escape string syntax (E'...').",
        ),
        '\\' => (
            "nonstandard use of \\\\ in a string literal",
            "Use the escape string syntax for backslashes, e.g., E'\\\\'.",
        ),
        _ => (
            "nonstandard use of escape in a string literal",
            "Use the escape string syntax for escapes, e.g., E'\\r\\n'.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: Backslashes = Backslashes {
        in_plain: true,
        warns: true,
        no_quotes: false,
    };

    fn text(sql: &str) -> String {
        let found = reread(sql, OFF).expect("it is read");
        found.map_or_else(|| sql.to_string(), |found| found.text)
    }

    #[test]
    fn strings_with_escapes_get_an_e() {
        assert_eq!(text(r"select 'a\'b', 'c'"), r"select E'a\'b', 'c'");
        assert_eq!(text(r"select'\\'"), r"select E'\\'");
        assert_eq!(text(r"select E'\'', '\''"), r"select E'\'', E'\''");
        assert_eq!(text("select 'a'\n'\\n'"), "select E'a'\n'\\n'");
        let same = [
            r"select $$'\$$",
            r#"select "'\""#,
            r"-- '\",
            r"/* '\ */ select B'\'",
        ];
        for sql in same {
            assert_eq!(text(sql), sql);
        }
    }

    #[test]
    fn what_is_not_taken_is_an_error() {
        let error = |sql: &str, how| reread(sql, how).expect_err("it is refused");
        let refused = error(r"select U&'\0041'", OFF);
        assert_eq!(
            (refused.sqlstate(), refused.fields().position),
            ("0A000", Some(8))
        );
        let quotes = Backslashes {
            no_quotes: true,
            ..Backslashes::default()
        };
        assert_eq!(error(r"select E'\''", quotes).sqlstate(), "22P06");
        assert!(reread(r"select '\'", quotes).expect("it is read").is_none());
    }

    /// It took minutes when the characters before each string were counted anew.
    #[test]
    fn many_strings_are_read_once() {
        let sql = format!("select {} '\\n', nothing", r"'ä\n', ".repeat(300_000));
        let found = reread(&sql, OFF).expect("it is read");
        let found = found.expect("it has escapes");
        assert_eq!(found.text.len(), sql.len() + 300_001);
        let last = found.text.chars().count() as u32 - 6;
        let moved = found.error(Error::new("42703", "x").at(last));
        assert_eq!(moved.fields().position, Some(last - 300_001));
    }

    #[test]
    fn positions_are_those_of_the_text_that_came() {
        let found = reread(r"select '\n', '\t', nothing", OFF);
        let found = found.expect("it is read").expect("it has escapes");
        let at = |p: u32| {
            let moved = found.error(Error::new("42703", "x").at(p));
            moved.fields().position
        };
        // Behind both, between them, and before both.
        assert_eq!((at(22), at(12), at(1)), (Some(20), Some(11), Some(1)));
    }
}
