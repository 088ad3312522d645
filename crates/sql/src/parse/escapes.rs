//! The tokens of a text, with the values of `E''` strings as PostgreSQL reads them: bytes by octal
//! and hexadecimal codes, halves of surrogate pairs, and escapes in strings that go on. The
//! tokenizer gets a text in which escapes are masked, so that it sees where strings end.

use memchr::{memchr, memchr_iter};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError};

use super::dialect::Postgres;
use super::split::{escape_string, is_escape_quote, skipped_end, token_end};
use super::{strings, tokens, unicode, untokenized};
use crate::error::{Error, Result};
use crate::pgtype;

/// Where the pieces of a string are, without their quotes.
type Pieces = Vec<(usize, usize)>;

/// The tokens of a text, blanks too. Strings that go on are one, and escapes are what they stand
/// for.
pub fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>> {
    let wrong = |e: TokenizerError| {
        let position = tokens::offset(sql, e.location);
        untokenized(&e.message, sql, position)
    };
    let plain = |text: &str| Tokenizer::new(&Postgres, text).tokenize_with_location();
    let mut tokens = match masked(sql) {
        None => plain(sql).map_err(wrong)?,
        Some((masked, found)) => {
            let mut tokens = plain(&masked).map_err(wrong)?;
            put_values(&mut tokens, sql, found)?;
            tokens
        }
    };
    strings::join(&mut tokens)?;
    unicode::decode(&mut tokens, sql)?;
    Ok(tokens)
}

/// The text with as many other characters in the place of escapes, and its `E''` strings; `None`:
/// there is no escape in one.
fn masked(sql: &str) -> Option<(String, Vec<Pieces>)> {
    let bytes = sql.as_bytes();
    memchr(b'\\', bytes)?;
    memchr_iter(b'\'', bytes).find(|at| is_escape_quote(bytes, *at))?;
    let mut out = String::with_capacity(sql.len());
    let mut found = Vec::new();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        if let Some(end) = skipped_end(bytes, at) {
            at = end;
        } else if bytes[at] == b'\'' && is_escape_quote(bytes, at) {
            let (pieces, end) = escape_string(bytes, at);
            for (from, to) in &pieces {
                out.push_str(&sql[copied..*from]);
                mask(&sql[*from..*to], &mut out);
                copied = *to;
            }
            found.push(pieces);
            at = end;
        } else {
            at = token_end(sql, at);
        }
    }
    out.push_str(&sql[copied..]);
    Some((out, found))
}

fn mask(piece: &str, out: &mut String) {
    let mut chars = piece.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push('x');
        // Lines stay lines.
        out.extend(chars.next().map(|c| if c == '\n' { c } else { 'x' }));
    }
}

/// Gives the `E''` strings their values.
fn put_values(tokens: &mut Vec<TokenWithSpan>, sql: &str, found: Vec<Pieces>) -> Result<()> {
    let mut found = found.into_iter();
    let mut rest = std::mem::take(tokens).into_iter();
    while let Some(mut token) = rest.next() {
        if let Token::EscapedStringLiteral(value) = &mut token.token {
            let Some(pieces) = found.next() else {
                return Err(Error::internal("a string with escapes that was not found"));
            };
            *value = decoded(sql, &pieces)?;
            let mut more = pieces.len() - 1;
            while more > 0
                && let Some(next) = rest.next()
            {
                more -= usize::from(matches!(next.token, Token::SingleQuotedString(_)));
            }
        }
        tokens.push(token);
    }
    Ok(())
}

fn position(sql: &str, byte: usize) -> u32 {
    sql[..byte].chars().count() as u32 + 1
}

/// An error at a piece of the text.
fn near(message: &str, sql: &str, from: usize, bytes: usize) -> Error {
    let piece = sql.get(from..from + bytes);
    // What is no whole character is shown as the one that it begins.
    let piece = piece.map(str::to_string);
    let piece = piece.or_else(|| sql[from..].chars().next().map(String::from));
    let message = format!("{message} at or near \"{}\"", piece.unwrap_or_default());
    Error::new("42601", message).at(position(sql, from))
}

/// The value of a string.
fn decoded(sql: &str, pieces: &[(usize, usize)]) -> Result<String> {
    let mut value = Value {
        sql,
        bytes: Vec::new(),
        first: None,
    };
    let mut behind = 0;
    for (from, to) in pieces {
        value.add(*from, *to)?;
        behind = *to;
    }
    if value.first.is_some() {
        return Err(near("invalid Unicode surrogate pair", sql, behind, 1));
    }
    pgtype::utf8(&value.bytes).map(str::to_string)
}

struct Value<'s> {
    sql: &'s str,
    bytes: Vec<u8>,
    /// The first half of a surrogate pair.
    first: Option<u32>,
}

impl Value<'_> {
    fn add(&mut self, from: usize, to: usize) -> Result<()> {
        let text = &self.sql.as_bytes()[..to];
        let mut at = from;
        while at < to {
            let next = text.get(at + 1).copied();
            let is_code = text[at] == b'\\' && matches!(next, Some(b'u' | b'U'));
            if self.first.is_some() && !is_code {
                let message = "invalid Unicode surrogate pair";
                return Err(near(message, self.sql, at, 1));
            }
            at = match (text[at], next) {
                (b'\'', _) => {
                    self.bytes.push(b'\'');
                    at + 2
                }
                (b'\\', Some(next)) => self.escape(text, at, next)?,
                (byte, _) => {
                    self.bytes.push(byte);
                    at + 1
                }
            };
        }
        Ok(())
    }

    /// Takes the escape at a place; where it ends.
    fn escape(&mut self, text: &[u8], at: usize, kind: u8) -> Result<usize> {
        let digits = |from: usize, radix: u32, most: usize| {
            let digits = text[from..].iter().take(most);
            let digits = digits.map_while(|b| char::from(*b).to_digit(radix));
            let code =
                |(code, count): (u32, usize), digit| (code.wrapping_mul(radix) + digit, count + 1);
            digits.fold((0, 0), code)
        };
        let (byte, end) = match kind {
            b'b' => (0x08, at + 2),
            b'f' => (0x0c, at + 2),
            b'n' => (b'\n', at + 2),
            b'r' => (b'\r', at + 2),
            b't' => (b'\t', at + 2),
            b'0'..=b'7' => {
                let (code, count) = digits(at + 1, 8, 3);
                (code as u8, at + 1 + count)
            }
            b'x' => match digits(at + 2, 16, 2) {
                (_, 0) => (b'x', at + 2),
                (code, count) => (code as u8, at + 2 + count),
            },
            b'u' | b'U' => {
                let wanted = if kind == b'u' { 4 } else { 8 };
                let (code, count) = digits(at + 2, 16, wanted);
                if count != wanted {
                    let error = Error::new("22025", "invalid Unicode escape");
                    return Err(error
                        .hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.")
                        .at(position(self.sql, at)));
                }
                let end = at + 2 + count;
                self.code(code, (at, end))?;
                return Ok(end);
            }
            other => (other, at + 2),
        };
        self.bytes.push(byte);
        Ok(end)
    }

    fn code(&mut self, code: u32, (from, to): (usize, usize)) -> Result<()> {
        let wrong = |what: &str| {
            Err(near(
                &format!("invalid Unicode {what}"),
                self.sql,
                from,
                to - from,
            ))
        };
        let code = match (self.first, code) {
            (Some(high), 0xDC00..=0xDFFF) => 0x1_0000 + ((high & 0x3FF) << 10) + (code & 0x3FF),
            (Some(_), _) | (None, 0xDC00..=0xDFFF) => return wrong("surrogate pair"),
            (None, code) => code,
        };
        self.first = None;
        match char::from_u32(code) {
            Some('\0') => return wrong("escape value"),
            Some(c) => {
                let mut buffer = [0; 4];
                self.bytes.extend(c.encode_utf8(&mut buffer).as_bytes());
            }
            None if (0xD800..=0xDBFF).contains(&code) => self.first = Some(code),
            None => return wrong("escape value"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(sql: &str) -> Result<String> {
        match tokenize(sql)?.into_iter().next().map(|t| t.token) {
            Some(Token::EscapedStringLiteral(value)) => Ok(value),
            other => panic!("{sql}: {other:?}"),
        }
    }

    #[test]
    fn escapes_are_bytes_and_codes() {
        for (sql, value) in [
            (r"E'd\u0061t\U00000061'", "data"),
            (r"E'\303\251\xc3\xa9\x41\101\q'", "ééAAq"),
            (r"E'a\'b''c\\'", "a'b'c\\"),
            (r"E'\ud83d\ude00'", "\u{1f600}"),
            ("E'a\\'b' -- and\n  'c\\'d', 1", "a'bc'd"),
            ("E'a\\\nb'", "a\nb"),
            ("E'\\é'", "é"),
        ] {
            assert_eq!(first(sql).unwrap(), value, "{sql}");
        }
    }

    #[test]
    fn wrong_escapes_have_their_place() {
        for (sql, state, position) in [
            (r"E'wrong: \u061'", "22025", Some(10)),
            (r"E'wrong: \udb99'", "42601", Some(16)),
            (r"E'wrong: \udb99xy'", "42601", Some(16)),
            (r"E'wrong: \udb99\u0061'", "42601", Some(16)),
            (r"E'wrong: \U002FFFFF'", "42601", Some(10)),
            (r"E'\xff'", "22021", None),
            (r"E'\000'", "22021", None),
        ] {
            let e = first(sql).expect_err(sql);
            assert_eq!(
                (e.sqlstate(), e.fields().position),
                (state, position),
                "{sql}"
            );
        }
    }
}
