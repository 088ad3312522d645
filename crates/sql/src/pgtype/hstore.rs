//! `hstore`: texts by keys. It is kept as a document whose members are texts or null, as the order
//! of the keys is the same in both.

use block::json::{Json, JsonRef, Node, View};
use charset::Encoding;

use super::client_text;
use crate::error::{Error, Result};

/// A key and its value, which may be NULL.
pub type Pair = (String, Option<String>);

/// A value of pairs in any order. Of a key that is there twice the first one counts.
pub fn made(mut pairs: Vec<Pair>) -> Json {
    // Of several the last one would be kept.
    pairs.reverse();
    let node = |(key, value): Pair| (key, value.map_or(Node::Null, Node::String));
    Json::new(&Node::Object(pairs.into_iter().map(node).collect()))
}

fn text_of(value: JsonRef<'_>) -> Option<&str> {
    match value.view() {
        View::String(text) => Some(text),
        _ => None,
    }
}

/// The pairs of a value, in the order of their keys.
pub fn pairs(value: JsonRef<'_>) -> impl Iterator<Item = (&str, Option<&str>)> {
    let object = match value.view() {
        View::Object(pairs) => Some(pairs),
        _ => None,
    };
    object
        .into_iter()
        .flat_map(|all| all.iter())
        .map(|(key, value)| (key, text_of(value)))
}

/// The value of a key; outside: there is none, inside: it is NULL.
pub fn get<'v>(value: JsonRef<'v>, key: &str) -> Option<Option<&'v str>> {
    match value.view() {
        View::Object(pairs) => pairs.get(key).map(text_of),
        _ => None,
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.bump();
        }
    }

    fn wrong(&self) -> Error {
        match self.peek() {
            None => Error::new("XX000", "Unexpected end of string"),
            Some(c) => {
                let message = format!("Syntax error near \"{c}\" at position {}", self.at);
                Error::new("XX000", message)
            }
        }
    }

    /// A key or a value, and whether it is in quotes; `None`: the text ends before it.
    fn word(&mut self, is_key: bool) -> Result<Option<(String, bool)>> {
        let mut word = String::new();
        self.blanks();
        match self.peek() {
            None => return Ok(None),
            Some('"') => {
                self.bump();
                loop {
                    match self.bump().ok_or_else(|| self.wrong())? {
                        '"' => return Ok(Some((word, true))),
                        '\\' => word.push(self.bump().ok_or_else(|| self.wrong())?),
                        c => word.push(c),
                    }
                }
            }
            Some('=') if is_key => return Err(self.wrong()),
            Some(_) => {}
        }
        while let Some(c) = self.peek() {
            let ends = match c {
                '=' => is_key,
                // A word may begin with a comma.
                ',' => !is_key && !word.is_empty(),
                c => is_blank(c),
            };
            if ends {
                break;
            }
            self.bump();
            word.push(match c {
                '\\' => self.bump().ok_or_else(|| self.wrong())?,
                c => c,
            });
        }
        Ok(Some((word, false)))
    }
}

/// The blanks of C.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

pub fn parse(text: &str) -> Result<Vec<Pair>> {
    let mut r = Reader { text, at: 0 };
    let mut pairs = Vec::new();
    while let Some((key, _)) = r.word(true)? {
        r.blanks();
        for wanted in ['=', '>'] {
            match r.peek() {
                Some(c) if c == wanted => r.bump(),
                _ => return Err(r.wrong()),
            };
        }
        let (value, quoted) = r.word(false)?.ok_or_else(|| r.wrong())?;
        let is_null = !quoted && value.eq_ignore_ascii_case("null");
        pairs.push((key, (!is_null).then_some(value)));
        r.blanks();
        match r.peek() {
            None => break,
            Some(',') => r.bump(),
            Some(_) => return Err(r.wrong()),
        };
    }
    Ok(pairs)
}

pub fn write(value: JsonRef<'_>, out: &mut Vec<u8>) {
    let quoted = |text: &str, out: &mut Vec<u8>| {
        out.push(b'"');
        for byte in text.bytes() {
            if matches!(byte, b'"' | b'\\') {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    };
    for (at, (key, value)) in pairs(value).enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        quoted(key, out);
        out.extend_from_slice(b"=>");
        match value {
            Some(value) => quoted(value, out),
            None => out.extend_from_slice(b"NULL"),
        }
    }
}

/// A count, then each key and value with its length; that of NULL is -1.
pub fn binary_in(bytes: &[u8], encoding: Encoding) -> Result<Vec<Pair>> {
    let short = || Error::new("08P01", "insufficient data left in message");
    let mut rest = bytes;
    let word = |rest: &mut &[u8]| -> Result<i32> {
        let (word, after) = rest.split_first_chunk().ok_or_else(short)?;
        *rest = after;
        Ok(i32::from_be_bytes(*word))
    };
    let text = |rest: &mut &[u8]| -> Result<Option<String>> {
        let Ok(length) = usize::try_from(word(rest)?) else {
            return Ok(None);
        };
        let (text, after) = rest.split_at_checked(length).ok_or_else(short)?;
        *rest = after;
        client_text(text, encoding).map(|t| Some(t.into_owned()))
    };
    let mut pairs = Vec::new();
    for _ in 0..word(&mut rest)?.max(0) {
        let null = || Error::new("22004", "null value not allowed for hstore key");
        let key = text(&mut rest)?.ok_or_else(null)?;
        pairs.push((key, text(&mut rest)?));
    }
    Ok(pairs)
}

pub fn binary_out(value: JsonRef<'_>, encoding: Encoding, out: &mut Vec<u8>) -> Result<()> {
    let length = |n: usize| i32::try_from(n).unwrap_or(i32::MAX).to_be_bytes();
    let text = |text: &str, out: &mut Vec<u8>| -> Result<()> {
        let bytes = encoding.encode(text)?;
        out.extend(length(bytes.len()));
        out.extend_from_slice(&bytes);
        Ok(())
    };
    out.extend(length(pairs(value).count()));
    for (key, value) in pairs(value) {
        text(key, out)?;
        match value {
            Some(value) => text(value, out)?,
            None => out.extend((-1_i32).to_be_bytes()),
        }
    }
    Ok(())
}
