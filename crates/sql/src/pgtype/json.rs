//! Text and binary forms of `json` and `jsonb`: a reader as strict as PostgreSQL's, with its
//! errors, and the writers.
//!
//! `json` is the text as it was written, so it is read again by whoever looks into it. Only then
//! are its escapes looked at: `\u0000` is good `json`, but no text.

use std::borrow::Cow;

use block::json::{Json, JsonRef, MAX_DEPTH, Node, View};
use block::value::Datum;
use charset::Encoding;

use super::{client_text, parse_numeric};
use crate::error::{Error, Result};

/// The longest document that PostgreSQL stores as `jsonb`.
const MAX_BYTES: usize = 0x0fff_ffff;

/// The first byte of the binary form of `jsonb`.
const VERSION: u8 = 1;

/// A part of a text: where it stands, and what it is.
#[derive(Debug)]
pub struct Item<'a> {
    pub text: &'a str,
    pub value: Value<'a>,
}

#[derive(Debug)]
pub enum Value<'a> {
    Null,
    Bool(bool),
    Number,
    String(Cow<'a, str>),
    Array(Vec<Item<'a>>),
    /// With its keys as they are written, one maybe twice.
    Object(Vec<(Cow<'a, str>, Item<'a>)>),
}

/// Reads a text. Without `escapes` strings are left as they are written.
pub fn parse(text: &str, escapes: bool) -> Result<Item<'_>> {
    let mut lexer = Lexer::new(text, escapes);
    lexer.advance()?;
    let item = lexer.value(0)?;
    lexer.expect(Token::End, "end of input")?;
    Ok(item)
}

/// A text that is json, as a value.
pub fn checked(text: &str) -> Result<Datum> {
    parse(text, false)?;
    Ok(Datum::Text(text.to_string()))
}

pub fn jsonb_in(text: &str) -> Result<Datum> {
    of_size(Json::new(&node(&parse(text, true)?)?)).map(Datum::Json)
}

fn of_size(json: Json) -> Result<Json> {
    if json.as_bytes().len() > MAX_BYTES {
        return Err(Error::new(
            "54000",
            format!("total size of jsonb object elements exceeds the maximum of {MAX_BYTES} bytes"),
        ));
    }
    Ok(json)
}

fn too_deep() -> Error {
    Error::new("54001", "stack depth limit exceeded")
}

/// A document that was made of others, which may nest too deeply together.
pub fn jsonb(node: &Node) -> Result<Datum> {
    let json = of_size(Json::new(node))?;
    JsonRef::from_bytes(json.as_bytes()).map_err(|_| too_deep())?;
    Ok(Datum::Json(json))
}

pub fn node(item: &Item<'_>) -> Result<Node> {
    Ok(match &item.value {
        Value::Null => Node::Null,
        Value::Bool(b) => Node::Bool(*b),
        Value::Number => Node::Number(parse_numeric(item.text)?),
        Value::String(s) => Node::String(s.to_string()),
        Value::Array(items) => Node::Array(items.iter().map(node).collect::<Result<_>>()?),
        Value::Object(pairs) => {
            let pairs = pairs.iter().map(|(k, v)| Ok((k.to_string(), node(v)?)));
            Node::Object(pairs.collect::<Result<_>>()?)
        }
    })
}

pub fn binary_in(bytes: &[u8], encoding: Encoding) -> Result<Datum> {
    match bytes.split_first() {
        Some((&VERSION, text)) => jsonb_in(&client_text(text, encoding)?),
        Some((version, _)) => Err(Error::internal(format!(
            "unsupported jsonb version number {version}"
        ))),
        None => Err(Error::new("08P01", "insufficient data left in message")),
    }
}

pub fn binary_out(v: JsonRef<'_>, out: &mut Vec<u8>) {
    out.push(VERSION);
    write(v, out);
}

/// A string with its quotes and escapes.
pub fn write_string(s: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for &b in s.as_bytes() {
        match b {
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0..32 => out.extend_from_slice(format!("\\u{b:04x}").as_bytes()),
            b => out.push(b),
        }
    }
    out.push(b'"');
}

/// The text form of `jsonb`.
pub fn write(v: JsonRef<'_>, out: &mut Vec<u8>) {
    write_with(v, None, out);
}

/// With a line for each part, as `jsonb_pretty` has it.
pub fn write_pretty(v: JsonRef<'_>, out: &mut Vec<u8>) {
    write_with(v, Some(0), out);
}

fn new_line(indent: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.resize(out.len() + 4 * indent, b' ');
}

fn write_with(v: JsonRef<'_>, indent: Option<usize>, out: &mut Vec<u8>) {
    let deeper = indent.map(|n| n + 1);
    let separate = |first: &mut bool, out: &mut Vec<u8>| {
        match (std::mem::take(first), deeper) {
            (true, None) => {}
            (false, None) => out.extend_from_slice(b", "),
            (first, Some(deeper)) => {
                if !first {
                    out.push(b',');
                }
                new_line(deeper, out);
            }
        };
    };
    let mut first = true;
    match v.view() {
        View::Null => out.extend_from_slice(b"null"),
        View::Bool(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
        View::Number(n) => out.extend_from_slice(n.to_string().as_bytes()),
        View::String(s) => write_string(s, out),
        View::Array(items) => {
            out.push(b'[');
            for item in items.iter() {
                separate(&mut first, out);
                write_with(item, deeper, out);
            }
            if let Some(indent) = indent {
                new_line(indent, out);
            }
            out.push(b']');
        }
        View::Object(pairs) => {
            out.push(b'{');
            for (key, value) in pairs.iter() {
                separate(&mut first, out);
                write_string(key, out);
                out.extend_from_slice(b": ");
                write_with(value, deeper, out);
            }
            if let Some(indent) = indent {
                new_line(indent, out);
            }
            out.push(b'}');
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Token {
    /// Before the first one.
    None,
    String,
    Number,
    True,
    False,
    Null,
    Mark(u8),
    End,
}

/// Reads token by token. `start` and `end` are where the last one stands, or where reading failed.
struct Lexer<'a> {
    input: &'a str,
    escapes: bool,
    line: u32,
    line_start: usize,
    start: usize,
    end: usize,
    token: Token,
    /// The string that the last token is.
    string: Cow<'a, str>,
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\n' | b'\r')
}

/// What PostgreSQL takes together as one token, good or not.
fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80
}

impl<'a> Lexer<'a> {
    fn new(input: &'a str, escapes: bool) -> Lexer<'a> {
        Lexer {
            input,
            escapes,
            line: 1,
            line_start: 0,
            start: 0,
            end: 0,
            token: Token::None,
            string: Cow::Borrowed(""),
        }
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.input.as_bytes().get(at).copied()
    }

    fn advance(&mut self) -> Result<()> {
        let mut at = self.end;
        while let Some(b) = self.byte(at).filter(|b| is_space(*b)) {
            at += 1;
            if b == b'\n' {
                self.line += 1;
                self.line_start = at;
            }
        }
        self.start = at;
        let Some(b) = self.byte(at) else {
            (self.end, self.token) = (at, Token::End);
            return Ok(());
        };
        match b {
            b'{' | b'}' | b'[' | b']' | b',' | b':' => {
                (self.end, self.token) = (at + 1, Token::Mark(b));
            }
            b'"' => {
                self.read_string()?;
                self.token = Token::String;
            }
            b'-' | b'0'..=b'9' => {
                self.read_number(at + usize::from(b == b'-'))?;
                self.token = Token::Number;
            }
            _ => {
                let rest = &self.input.as_bytes()[at..];
                let length = rest.iter().take_while(|b| is_word(**b)).count();
                self.end = at + length.max(1);
                self.token = match &rest[..length] {
                    b"true" => Token::True,
                    b"false" => Token::False,
                    b"null" => Token::Null,
                    _ => return Err(self.invalid()),
                };
            }
        }
        Ok(())
    }

    fn read_number(&mut self, mut at: usize) -> Result<()> {
        let digits = |at: &mut usize| {
            let start = *at;
            while self.byte(*at).is_some_and(|b| b.is_ascii_digit()) {
                *at += 1;
            }
            *at > start
        };
        let mut good = match self.byte(at) {
            Some(b'0') => {
                at += 1;
                true
            }
            _ => digits(&mut at),
        };
        if self.byte(at) == Some(b'.') {
            at += 1;
            good &= digits(&mut at);
        }
        if matches!(self.byte(at), Some(b'e' | b'E')) {
            at += 1;
            at += usize::from(matches!(self.byte(at), Some(b'+' | b'-')));
            good &= digits(&mut at);
        }
        while self.byte(at).is_some_and(is_word) {
            at += 1;
            good = false;
        }
        self.end = at;
        if good { Ok(()) } else { Err(self.invalid()) }
    }

    /// The end of the character that begins there.
    fn after(&self, at: usize) -> usize {
        let rest = self.input.get(at..).unwrap_or_default();
        at + rest.chars().next().map_or(0, char::len_utf8)
    }

    fn read_string(&mut self) -> Result<()> {
        let mut at = self.start + 1;
        let mut text = String::new();
        let mut high = None;
        loop {
            let Some(c) = self.input[at..].chars().next() else {
                self.end = at;
                return Err(self.invalid());
            };
            if c == '"' {
                break;
            }
            if c < ' ' {
                self.end = at;
                let detail = format!("Character with value 0x{:02x} must be escaped.", c as u32);
                return Err(self.fail(detail));
            }
            if c == '\\' {
                at = self.read_escape(at + 1, &mut text, &mut high)?;
                continue;
            }
            if high.is_some() {
                return Err(self.lone_surrogate(at));
            }
            text.push(c);
            at += c.len_utf8();
        }
        if high.is_some() {
            return Err(self.lone_surrogate(at));
        }
        self.end = at + 1;
        self.string = match self.escapes {
            true => Cow::Owned(text),
            false => Cow::Borrowed(&self.input[self.start + 1..at]),
        };
        Ok(())
    }

    /// What stands behind a backslash; where it ends.
    fn read_escape(
        &mut self,
        at: usize,
        text: &mut String,
        high: &mut Option<u32>,
    ) -> Result<usize> {
        let Some(b) = self.byte(at) else {
            self.end = at;
            return Err(self.invalid());
        };
        if b == b'u' {
            return self.read_code(at + 1, text, high);
        }
        if high.is_some() && self.escapes {
            return Err(self.lone_surrogate(at));
        }
        text.push(match b {
            b'"' | b'\\' | b'/' => char::from(b),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            _ => {
                (self.start, self.end) = (at, self.after(at));
                let sequence = &self.input[self.start..self.end];
                return Err(self.fail(format!("Escape sequence \"\\{sequence}\" is invalid.")));
            }
        });
        Ok(at + 1)
    }

    fn read_code(
        &mut self,
        start: usize,
        text: &mut String,
        high: &mut Option<u32>,
    ) -> Result<usize> {
        let mut code = 0;
        for at in start..start + 4 {
            let Some(b) = self.byte(at) else {
                self.end = at;
                return Err(self.invalid());
            };
            let Some(digit) = char::from(b).to_digit(16) else {
                self.end = self.after(at);
                let detail = "\"\\u\" must be followed by four hexadecimal digits.";
                return Err(self.fail(detail.to_string()));
            };
            code = code * 16 + digit;
        }
        let end = start + 4;
        if !self.escapes {
            return Ok(end);
        }
        match (code, high.take()) {
            (0xd800..0xdc00, None) => {
                *high = Some(code);
                return Ok(end);
            }
            (0xd800..0xdc00, Some(_)) => {
                self.end = end;
                let detail = "Unicode high surrogate must not follow a high surrogate.";
                return Err(self.fail(detail.to_string()));
            }
            (0xdc00..0xe000, Some(high)) => {
                code = 0x1_0000 + ((high - 0xd800) << 10) + (code - 0xdc00);
            }
            (0xdc00..0xe000, None) | (_, Some(_)) => return Err(self.lone_surrogate(end - 1)),
            (0, None) => {
                self.end = end;
                let error = Error::new("22P05", "unsupported Unicode escape sequence");
                let detail = "\\u0000 cannot be converted to text.";
                return Err(self.explain(error.detail(detail)));
            }
            (_, None) => {}
        }
        text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        Ok(end)
    }

    fn lone_surrogate(&mut self, at: usize) -> Error {
        self.end = self.after(at);
        self.fail("Unicode low surrogate must follow a high surrogate.".to_string())
    }

    fn invalid(&self) -> Error {
        self.fail(format!("Token \"{}\" is invalid.", self.shown()))
    }

    fn shown(&self) -> &'a str {
        self.input.get(self.start..self.end).unwrap_or_default()
    }

    fn fail(&self, detail: String) -> Error {
        self.explain(Error::new("22P02", "invalid input syntax for type json").detail(detail))
    }

    /// The line with what is wrong at its end.
    fn explain(&self, error: Error) -> Error {
        const SHOWN: usize = 50;
        let mut start = self.line_start;
        while self.end - start >= SHOWN {
            start = self.after(start);
        }
        if start - self.line_start <= 3 {
            start = self.line_start;
        }
        let before = if start > self.line_start { "..." } else { "" };
        let more = self
            .byte(self.end)
            .is_some_and(|b| b != b'\n' && b != b'\r');
        let after = if more && self.token != Token::End {
            "..."
        } else {
            ""
        };
        let line = &self.input[start..self.end];
        let context = format!("JSON data, line {}: {before}{line}{after}", self.line);
        error.context_if_none(context)
    }

    fn unexpected(&self, wanted: &str) -> Error {
        match self.token {
            Token::End => self.fail("The input string ended unexpectedly.".to_string()),
            _ => self.fail(format!(
                "Expected {wanted}, but found \"{}\".",
                self.shown()
            )),
        }
    }

    fn expect(&mut self, token: Token, wanted: &str) -> Result<()> {
        match self.token == token {
            true if token == Token::End => Ok(()),
            true => self.advance(),
            false => Err(self.unexpected(wanted)),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Item<'a>> {
        let start = self.start;
        let value = match self.token {
            Token::Mark(b'{' | b'[') if depth >= MAX_DEPTH => {
                return Err(too_deep());
            }
            Token::Mark(b'{') => return self.object(depth + 1),
            Token::Mark(b'[') => return self.array(depth + 1),
            Token::String => Value::String(std::mem::take(&mut self.string)),
            Token::Number => Value::Number,
            Token::True => Value::Bool(true),
            Token::False => Value::Bool(false),
            Token::Null => Value::Null,
            _ => return Err(self.unexpected("JSON value")),
        };
        let text = &self.input[start..self.end];
        self.advance()?;
        Ok(Item { text, value })
    }

    fn array(&mut self, depth: usize) -> Result<Item<'a>> {
        let start = self.start;
        let mut items = Vec::new();
        self.advance()?;
        if self.token != Token::Mark(b']') {
            items.push(self.value(depth)?);
            while self.token == Token::Mark(b',') {
                self.advance()?;
                items.push(self.value(depth)?);
            }
        }
        let text = &self.input[start..self.end];
        self.expect(Token::Mark(b']'), "\",\" or \"]\"")?;
        let value = Value::Array(items);
        Ok(Item { text, value })
    }

    fn object(&mut self, depth: usize) -> Result<Item<'a>> {
        let start = self.start;
        let mut pairs = Vec::new();
        self.advance()?;
        match self.token {
            Token::Mark(b'}') => {}
            Token::String => {
                pairs.push(self.field(depth)?);
                while self.token == Token::Mark(b',') {
                    self.advance()?;
                    pairs.push(self.field(depth)?);
                }
            }
            _ => return Err(self.unexpected("string or \"}\"")),
        }
        let text = &self.input[start..self.end];
        self.expect(Token::Mark(b'}'), "\",\" or \"}\"")?;
        let value = Value::Object(pairs);
        Ok(Item { text, value })
    }

    fn field(&mut self, depth: usize) -> Result<(Cow<'a, str>, Item<'a>)> {
        if self.token != Token::String {
            return Err(self.unexpected("string"));
        }
        let key = std::mem::take(&mut self.string);
        self.advance()?;
        self.expect(Token::Mark(b':'), "\":\"")?;
        Ok((key, self.value(depth)?))
    }
}
