//! Paths into json documents, `jsonpath`: their syntax tree, and how they are written.
//!
//! A path is stored as the text that PostgreSQL writes, so that it is read again to be followed.

mod parse;

use std::fmt::Write;

use block::numeric::Numeric;
use block::value::Datum;
use charset::Encoding;

pub use parse::parse;

use crate::error::{Error, Result};

/// A path with its mode.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    /// `strict`: what is not there is an error.
    pub strict: bool,
    pub path: Path,
}

/// Something, and what is then done with it, step by step.
pub type Path = Vec<Step>;

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Null,
    Bool(bool),
    Number(Numeric),
    String(String),
    Variable(String),
    /// `$`
    Root,
    /// `@`
    Current,
    /// The last place of an array.
    Last,
    Arithmetic(Arithmetic, Box<[Path; 2]>),
    /// `+` or `-` before a path.
    Signed {
        negative: bool,
        of: Path,
    },
    And(Box<[Path; 2]>),
    Or(Box<[Path; 2]>),
    Not(Path),
    IsUnknown(Path),
    Exists(Path),
    Compare(Comparison, Box<[Path; 2]>),
    StartsWith(Box<[Path; 2]>),
    LikeRegex {
        of: Path,
        pattern: String,
        flags: Flags,
    },
    Key(String),
    AnyKey,
    AnyElement,
    /// Subscripts, each from a place to a place.
    Elements(Vec<(Path, Option<Path>)>),
    /// `**`: all within, from a level to a level.
    Any {
        first: u32,
        last: u32,
    },
    Filter(Path),
    Method(Method),
    /// The method `datetime`, and its template.
    DateTime(Option<String>),
}

/// A level of `**` that is the deepest.
pub const DEEPEST: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

impl Arithmetic {
    pub fn symbol(self) -> &'static str {
        match self {
            Arithmetic::Add => "+",
            Arithmetic::Sub => "-",
            Arithmetic::Mul => "*",
            Arithmetic::Div => "/",
            Arithmetic::Mod => "%",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
}

impl Comparison {
    fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::Greater => ">",
            Comparison::LessOrEqual => "<=",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Type,
    Size,
    Abs,
    Floor,
    Ceiling,
    Double,
    KeyValue,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Type => "type",
            Method::Size => "size",
            Method::Abs => "abs",
            Method::Floor => "floor",
            Method::Ceiling => "ceiling",
            Method::Double => "double",
            Method::KeyValue => "keyvalue",
        }
    }
}

/// The flags of `like_regex`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub fold_case: bool,
    /// `.` matches a newline, too.
    pub dot_all: bool,
    pub multiline: bool,
    /// Blanks in the pattern mean nothing.
    pub extended: bool,
    /// The pattern is a text.
    pub quoted: bool,
}

impl Flags {
    fn letters(self) -> String {
        let all = [
            (self.fold_case, 'i'),
            (self.dot_all, 's'),
            (self.multiline, 'm'),
            (self.extended, 'x'),
            (self.quoted, 'q'),
        ];
        all.iter().filter(|(set, _)| *set).map(|(_, c)| c).collect()
    }
}

/// How close a step binds its operands.
fn priority(path: &[Step]) -> u8 {
    match path.first() {
        Some(Step::Or(_)) => 0,
        Some(Step::And(_)) => 1,
        Some(Step::Compare(..) | Step::StartsWith(_)) => 2,
        Some(Step::Arithmetic(Arithmetic::Add | Arithmetic::Sub, _)) => 3,
        Some(Step::Arithmetic(..)) => 4,
        Some(Step::Signed { .. }) => 5,
        _ => 6,
    }
}

/// The version of the binary form.
const VERSION: u8 = 1;

pub fn binary_in(bytes: &[u8], encoding: Encoding) -> Result<Datum> {
    match bytes.split_first() {
        Some((&VERSION, text)) => {
            let path = parse(&super::client_text(text, encoding)?)?;
            Ok(Datum::Text(path.to_string()))
        }
        Some((version, _)) => Err(Error::new(
            "XX000",
            format!("unsupported jsonpath version number: {version}"),
        )),
        None => Err(Error::new("08P01", "no data left in message")),
    }
}

pub fn binary_out(path: &str, encoding: Encoding, out: &mut Vec<u8>) -> Result<()> {
    out.push(VERSION);
    match encoding.converts() {
        true => out.extend_from_slice(&encoding.encode(path)?),
        false => out.extend_from_slice(path.as_bytes()),
    }
    Ok(())
}

impl std::fmt::Display for JsonPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        if self.strict {
            out.push_str("strict ");
        }
        write_path(&self.path, true, &mut out);
        f.write_str(&out)
    }
}

fn string(s: &str, out: &mut String) {
    let mut quoted = Vec::new();
    super::json::write_string(s, &mut quoted);
    out.push_str(&String::from_utf8_lossy(&quoted));
}

/// Writes a path; `brackets`: around an operator with which it begins.
fn write_path(path: &[Step], brackets: bool, out: &mut String) {
    for (at, step) in path.iter().enumerate() {
        // A point behind a number would belong to it.
        if let (Step::Number(n), [_, _, ..]) = (step, path) {
            let _ = write!(out, "({n})");
            continue;
        }
        write_step(step, brackets || at > 0, at > 0, out);
    }
}

/// An operand, in brackets unless it binds closer than the operator.
fn operand(of: &[Step], operator: &[Step], out: &mut String) {
    write_path(of, priority(of) <= priority(operator), out);
}

/// An operator between two paths.
fn between(sides: &[Path; 2], symbol: &str, step: &Step, brackets: bool, out: &mut String) {
    let own = std::slice::from_ref(step);
    out.push_str(if brackets { "(" } else { "" });
    operand(&sides[0], own, out);
    out.push(' ');
    out.push_str(symbol);
    out.push(' ');
    operand(&sides[1], own, out);
    out.push_str(if brackets { ")" } else { "" });
}

fn write_step(step: &Step, brackets: bool, in_key: bool, out: &mut String) {
    let own = std::slice::from_ref(step);
    match step {
        Step::Null => out.push_str("null"),
        Step::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Step::Number(n) => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{n}");
        }
        Step::String(s) => string(s, out),
        Step::Variable(name) => {
            out.push('$');
            string(name, out);
        }
        Step::Root => out.push('$'),
        Step::Current => out.push('@'),
        Step::Last => out.push_str("last"),
        Step::Arithmetic(how, sides) => between(sides, how.symbol(), step, brackets, out),
        Step::And(sides) => between(sides, "&&", step, brackets, out),
        Step::Or(sides) => between(sides, "||", step, brackets, out),
        Step::Compare(how, sides) => between(sides, how.symbol(), step, brackets, out),
        Step::StartsWith(sides) => between(sides, "starts with", step, brackets, out),
        Step::Signed { negative, of } => {
            out.push_str(if brackets { "(" } else { "" });
            out.push(if *negative { '-' } else { '+' });
            operand(of, own, out);
            out.push_str(if brackets { ")" } else { "" });
        }
        Step::LikeRegex { of, pattern, flags } => {
            out.push_str(if brackets { "(" } else { "" });
            operand(of, own, out);
            out.push_str(" like_regex ");
            string(pattern, out);
            let flags = flags.letters();
            if !flags.is_empty() {
                out.push_str(&format!(" flag \"{flags}\""));
            }
            out.push_str(if brackets { ")" } else { "" });
        }
        Step::Not(of) => wrapped("!(", of, ")", out),
        Step::IsUnknown(of) => wrapped("(", of, ") is unknown", out),
        Step::Exists(of) => wrapped("exists (", of, ")", out),
        Step::Filter(of) => wrapped("?(", of, ")", out),
        Step::Key(key) => {
            out.push_str(if in_key { "." } else { "" });
            string(key, out);
        }
        Step::AnyKey => out.push_str(if in_key { ".*" } else { "*" }),
        Step::AnyElement => out.push_str("[*]"),
        Step::Elements(subscripts) => {
            out.push('[');
            for (at, (from, to)) in subscripts.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_path(from, false, out);
                if let Some(to) = to {
                    out.push_str(" to ");
                    write_path(to, false, out);
                }
            }
            out.push(']');
        }
        Step::Any { first, last } => {
            out.push_str(if in_key { "." } else { "" });
            let level = |level: u32| match level {
                DEEPEST => "last".to_string(),
                level => level.to_string(),
            };
            match (*first, *last) {
                (0, DEEPEST) => out.push_str("**"),
                (first, last) if first == last => {
                    out.push_str(&format!("**{{{}}}", level(first)));
                }
                (first, last) => {
                    out.push_str(&format!("**{{{} to {}}}", level(first), level(last)));
                }
            }
        }
        Step::Method(method) => out.push_str(&format!(".{}()", method.name())),
        Step::DateTime(template) => {
            out.push_str(".datetime(");
            if let Some(template) = template {
                string(template, out);
            }
            out.push(')');
        }
    }
}

fn wrapped(before: &str, of: &[Step], behind: &str, out: &mut String) {
    out.push_str(before);
    write_path(of, false, out);
    out.push_str(behind);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 writes.
    #[test]
    fn paths_are_written_as_by_postgres() {
        let pairs = [
            ("$.a[*] ? (@ > 3)", "$.\"a\"[*]?(@ > 3)"),
            ("strict $.a.b + 1", "strict ($.\"a\".\"b\" + 1)"),
            (
                "$ ? (!(@.x == 1) && @.y starts with \"z\")",
                "$?(!(@.\"x\" == 1) && @.\"y\" starts with \"z\")",
            ),
            ("$.**{2 to last}.size()", "$.**{2 to last}.size()"),
            ("$[0, 1 to last - 1]", "$[0,1 to last - 1]"),
            ("-1 * (2 + 3)", "(-1 * (2 + 3))"),
            (
                "$ ? (@.a like_regex \"^x\" flag \"im\")",
                "$?(@.\"a\" like_regex \"^x\" flag \"im\")",
            ),
            (
                "$ ? (exists (@.a) || (@.b == null) is unknown)",
                "$?(exists (@.\"a\") || (@.\"b\" == null) is unknown)",
            ),
        ];
        for (text, written) in pairs {
            assert_eq!(parse(text).unwrap().to_string(), written);
            assert_eq!(parse(written).unwrap().to_string(), written);
        }
    }
}
