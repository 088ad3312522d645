//! Functions of what texts are written with: normal forms of Unicode, its escapes, identifiers.
//! None is called with NULL.

use block::value::{Datum, DatumRef};
use unicode_normalization::UnicodeNormalization;

use super::Val;
use super::func::{Func, PureFunc, Signature};
use crate::error::{Error, Result};
use crate::pgtype::array;
use crate::types::{Element, SqlType};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WordFunc {
    Normalize,
    IsNormalized,
    /// A text with escapes of Unicode, `\XXXX` and its kin, as the text that they stand for.
    Unescape,
    /// The parts of a qualified name.
    ParseIdent,
}

/// The overloads of the function of that name.
pub fn overloads(name: &str) -> Vec<Signature> {
    use SqlType::{Bool, Text};
    let of = |func: WordFunc, args: &'static [SqlType], result: SqlType| Signature {
        func: Func::Pure(PureFunc::Word(func)),
        args,
        result,
    };
    match name {
        "normalize" => vec![
            of(WordFunc::Normalize, &[Text], Text),
            of(WordFunc::Normalize, &[Text, Text], Text),
        ],
        "is_normalized" => vec![
            of(WordFunc::IsNormalized, &[Text], Bool),
            of(WordFunc::IsNormalized, &[Text, Text], Bool),
        ],
        "unistr" => vec![of(WordFunc::Unescape, &[Text], Text)],
        "parse_ident" => vec![
            of(WordFunc::ParseIdent, &[Text], SqlType::TEXTS),
            of(WordFunc::ParseIdent, &[Text, Bool], SqlType::TEXTS),
        ],
        _ => Vec::new(),
    }
}

pub fn call(func: WordFunc, values: &[Val<'_>]) -> Result<Val<'static>> {
    let text = |at: usize| match values.get(at).map(Val::get) {
        Some(DatumRef::Text(text)) => Ok(text),
        other => Err(Error::internal(format!("{func:?} of {other:?}"))),
    };
    let form = || match values.len() {
        1 => Ok(Form::Composed),
        _ => Form::named(text(1)?),
    };
    Ok(match func {
        WordFunc::Normalize => Val::text(form()?.of(text(0)?)),
        WordFunc::IsNormalized => {
            let form = form()?;
            let text = text(0)?;
            Val::bool(form.of(text) == text)
        }
        WordFunc::Unescape => Val::text(unescaped(text(0)?)?),
        WordFunc::ParseIdent => {
            let strict = !matches!(values.get(1).map(Val::get), Some(DatumRef::Bool(false)));
            let parts = parse_ident(text(0)?, strict)?;
            let parts: Vec<Datum> = parts.into_iter().map(Datum::Text).collect();
            let element = Element::of(SqlType::Text);
            let element = element.ok_or_else(|| Error::internal("texts have no arrays"))?;
            Val::Own(Datum::Array(array::list(element, &parts)?))
        }
    })
}

/// A normal form of Unicode.
#[derive(Clone, Copy)]
enum Form {
    Composed,
    Decomposed,
    CompatiblyComposed,
    CompatiblyDecomposed,
}

impl Form {
    fn named(name: &str) -> Result<Form> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "NFC" => Form::Composed,
            "NFD" => Form::Decomposed,
            "NFKC" => Form::CompatiblyComposed,
            "NFKD" => Form::CompatiblyDecomposed,
            _ => {
                let message = format!("invalid normalization form: {name}");
                return Err(Error::new("22023", message));
            }
        })
    }

    fn of(self, text: &str) -> String {
        match self {
            Form::Composed => text.nfc().collect(),
            Form::Decomposed => text.nfd().collect(),
            Form::CompatiblyComposed => text.nfkc().collect(),
            Form::CompatiblyDecomposed => text.nfkd().collect(),
        }
    }
}

fn bad_pair() -> Error {
    Error::new("42601", "invalid Unicode surrogate pair")
}

/// The number that an escape gives, which begins behind its backslash, and what follows it.
fn escape(rest: &str) -> Result<(u32, &str)> {
    let forms = [("", 4), ("u", 4), ("+", 6), ("U", 8)];
    let found = forms.into_iter().find_map(|(prefix, digits)| {
        let number = rest.strip_prefix(prefix)?;
        let (number, rest) = number.split_at_checked(digits)?;
        let all = number.bytes().all(|b| b.is_ascii_hexdigit());
        let number = u32::from_str_radix(number, 16).ok().filter(|_| all)?;
        Some((number, rest))
    });
    found.ok_or_else(|| {
        Error::new("42601", "invalid Unicode escape")
            .hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
    })
}

fn unescaped(text: &str) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    // The first half of a character that is written as two.
    let mut first: Option<u32> = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c != '\\' || rest.starts_with('\\') {
            if first.is_some() {
                return Err(bad_pair());
            }
            out.push(c);
            rest = rest
                .strip_prefix('\\')
                .filter(|_| c == '\\')
                .unwrap_or(rest);
            continue;
        }
        let (number, behind) = escape(rest)?;
        rest = behind;
        if !(1..=0x10_ffff).contains(&number) {
            let message = format!("invalid Unicode code point: {number:04X}");
            return Err(Error::new("22023", message));
        }
        let number = match (first.take(), number) {
            (Some(high), 0xdc00..=0xdfff) => 0x1_0000 + ((high & 0x3ff) << 10) + (number & 0x3ff),
            (Some(_), _) | (None, 0xdc00..=0xdfff) => return Err(bad_pair()),
            (None, 0xd800..=0xdbff) => {
                first = Some(number);
                continue;
            }
            (None, number) => number,
        };
        out.push(char::from_u32(number).ok_or_else(bad_pair)?);
    }
    match first {
        Some(_) => Err(bad_pair()),
        None => Ok(out),
    }
}

/// The parts of a name; what follows it is an error if `strict`.
fn parse_ident(text: &str, strict: bool) -> Result<Vec<String>> {
    let invalid = || {
        let message = format!("string is not a valid identifier: \"{text}\"");
        Error::new("22023", message)
    };
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    let mut rest = text.trim_start_matches(is_space);
    let mut parts = Vec::new();
    loop {
        let is_start = |c: char| c == '_' || c.is_ascii_alphabetic() || !c.is_ascii();
        if let Some(quoted) = rest.strip_prefix('"') {
            let (name, behind) = quoted_name(quoted)
                .ok_or_else(|| invalid().detail("String has unclosed double quotes."))?;
            if name.is_empty() {
                return Err(invalid().detail("Quoted identifier must not be empty."));
            }
            parts.push(name);
            rest = behind;
        } else if rest.starts_with(is_start) {
            let goes_on = |c: char| is_start(c) || c.is_ascii_digit() || c == '$';
            let end = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
            parts.push(rest[..end].to_ascii_lowercase());
            rest = &rest[end..];
        } else if rest.starts_with('.') {
            return Err(invalid().detail("No valid identifier before \".\"."));
        } else if !parts.is_empty() {
            return Err(invalid().detail("No valid identifier after \".\"."));
        } else {
            return Err(invalid());
        }
        rest = rest.trim_start_matches(is_space);
        match rest.strip_prefix('.') {
            Some(behind) => rest = behind.trim_start_matches(is_space),
            None if rest.is_empty() || !strict => return Ok(parts),
            None => return Err(invalid()),
        }
    }
}

/// A quoted name up to its end, behind its first quote, and what follows it.
fn quoted_name(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text);
    loop {
        let end = rest.find('"')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(behind) => {
                name.push('"');
                rest = behind;
            }
            None => return Some((name, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_parts() {
        let of = |text, strict| parse_ident(text, strict).map_err(|e| e.to_string());
        let parts = |parts: &[&str]| Ok(parts.iter().map(|p| p.to_string()).collect());
        assert_eq!(of(" Foo . \"a\"\"B\" ", true), parts(&["foo", "a\"B"]));
        assert_eq!(of("a.b[1]", false), parts(&["a", "b"]));
        assert_eq!(of("a.ÄB$1", false), parts(&["a", "Äb$1"]));
        for wrong in ["", "a.", ".a", "\"\"", "\"a", "1a", "a b", "a.b["] {
            assert!(of(wrong, true).is_err(), "{wrong}");
        }
    }

    #[test]
    fn escapes_of_unicode() {
        let of = |text: &str| unescaped(text).map_err(|e| e.message().to_string());
        assert_eq!(of("d\\0061t\\+000061").as_deref(), Ok("data"));
        assert_eq!(of("\\u00e4\\U0001f600\\\\").as_deref(), Ok("ä😀\\"));
        assert_eq!(of("\\d83d\\de00").as_deref(), Ok("😀"));
        for pair in ["\\d83d", "\\d83dx", "\\de00", "\\d83d\\0061", "\\d83d\\\\"] {
            assert_eq!(of(pair), Err("invalid Unicode surrogate pair".to_string()));
        }
        assert_eq!(of("\\00g0"), Err("invalid Unicode escape".to_string()));
        assert_eq!(
            of("\\0000"),
            Err("invalid Unicode code point: 0000".to_string())
        );
    }
}
