//! Functions on strings. Positions and lengths count characters, from 1.

use block::folded::small;
use block::value::{Datum, DatumRef};

use super::func::{Calls, PureFunc};
use super::{Env, Expr, Val, regex, similar};
use crate::error::{Error, Result};

/// Longest string a function builds, PostgreSQL's limit of a value: 1 GB less what headers take.
pub const MAX_RESULT_BYTES: usize = 0x3fff_ff00;

pub fn call<'a>(func: PureFunc, values: &[Val<'_>]) -> Result<Val<'a>> {
    let first = values[0].get();
    if let (DatumRef::Bytea(b), PureFunc::ByteaLength) = (first, func) {
        return Ok(Val::int4(b.len() as i32));
    }
    if let (DatumRef::Bytea(b), PureFunc::Substr) = (first, func) {
        let (skip, take) = part(values)?;
        let bytes = b.iter().copied().skip(skip).take(take).collect();
        return Ok(Val::Own(Datum::Bytea(bytes)));
    }
    if func == PureFunc::Md5 {
        return Ok(Val::text(match first {
            DatumRef::Bytea(b) => super::md5::hex(b),
            _ => super::md5::hex(string(values, 0)?.as_bytes()),
        }));
    }
    if let (DatumRef::Bytea(b), PureFunc::Encode) = (first, func) {
        return Ok(Val::text(super::encoding::encode(b, string(values, 1)?)?));
    }
    if func == PureFunc::Decode {
        let bytes = super::encoding::decode(string(values, 0)?, string(values, 1)?)?;
        return Ok(Val::Own(Datum::Bytea(bytes)));
    }
    if func == PureFunc::Chr {
        return chr(number(values, 0)?);
    }
    match (func, first) {
        (PureFunc::ToHex, DatumRef::Int4(n)) => return Ok(Val::text(format!("{n:x}"))),
        (PureFunc::ToHex, DatumRef::Int8(n)) => return Ok(Val::text(format!("{n:x}"))),
        (PureFunc::BitLength, DatumRef::Text(t)) => return Ok(Val::int4(t.len() as i32 * 8)),
        (PureFunc::BitLength, DatumRef::Bytea(b)) => return Ok(Val::int4(b.len() as i32 * 8)),
        _ => {}
    }
    let s = string(values, 0)?;
    let result = match func {
        PureFunc::Lower => s.chars().map(small).collect(),
        PureFunc::Upper => s.chars().map(upper).collect(),
        PureFunc::Initcap => initcap(s),
        PureFunc::Length => return Ok(Val::int4(s.chars().count() as i32)),
        PureFunc::OctetLength => return Ok(Val::int4(s.len() as i32)),
        PureFunc::Substr => {
            let (skip, take) = part(values)?;
            s.chars().skip(skip).take(take).collect()
        }
        PureFunc::SimilarToEscape => {
            let escape = match values.len() {
                1 => Some('\\'),
                _ => similar::escape_of(string(values, 1)?)?,
            };
            similar::to_regex(s, escape)?
        }
        PureFunc::QuoteLiteral => quote_literal(s),
        PureFunc::QuoteIdent => quote_ident(s),
        PureFunc::Trim => trim(s, values, true, true)?,
        PureFunc::LTrim => trim(s, values, true, false)?,
        PureFunc::RTrim => trim(s, values, false, true)?,
        PureFunc::Left => left(s, number(values, 1)?).to_string(),
        PureFunc::Right => right(s, number(values, 1)?).to_string(),
        PureFunc::Repeat => repeat(s, number(values, 1)?)?,
        PureFunc::Replace => {
            let from = string(values, 1)?;
            if from.is_empty() {
                s.to_string()
            } else {
                limited(s.replace(from, string(values, 2)?))?
            }
        }
        PureFunc::Reverse => s.chars().rev().collect(),
        PureFunc::Position => return Ok(Val::int4(position(s, string(values, 1)?))),
        PureFunc::SplitPart => split_part(s, string(values, 1)?, number(values, 2)?)?,
        PureFunc::LPad => pad(s, values, true)?,
        PureFunc::RPad => pad(s, values, false)?,
        PureFunc::Ascii => return Ok(Val::int4(s.chars().next().map_or(0, |c| c as i32))),
        PureFunc::StartsWith => return Ok(Val::bool(s.starts_with(string(values, 1)?))),
        PureFunc::Translate => translate(s, string(values, 1)?, string(values, 2)?),
        PureFunc::Overlay => overlay(s, values)?,
        PureFunc::Regex | PureFunc::RegexFolded => {
            let fold_case = func == PureFunc::RegexFolded;
            let found = regex::matches(s, string(values, 1)?, fold_case)?;
            return Ok(Val::bool(found));
        }
        PureFunc::RegexReplace => {
            let flags = match values.len() {
                4 => regex::Flags::parse(string(values, 3)?)?,
                _ => regex::Flags::default(),
            };
            let (pattern, with) = (string(values, 1)?, string(values, 2)?);
            limited(regex::replace(s, pattern, with, flags)?)?
        }
        other => return Err(Error::internal(format!("{other:?} of a string"))),
    };
    Ok(Val::text(result))
}

pub fn quote_ident(s: &str) -> String {
    match crate::views::needs_quotes(s) {
        true => format!("\"{s}\""),
        false => crate::bind::names::quote(s),
    }
}

pub fn concat<'a>(args: &'a [Expr], env: &Env<'a>, calls: &mut dyn Calls) -> Result<Val<'a>> {
    let mut result = String::new();
    for a in args {
        if let DatumRef::Text(t) = a.eval(env, calls)?.get() {
            result.push_str(t);
        }
    }
    Ok(Val::text(limited(result)?))
}

pub fn concat_ws<'a>(args: &'a [Expr], env: &Env<'a>, calls: &mut dyn Calls) -> Result<Val<'a>> {
    let Some((separator, rest)) = args.split_first() else {
        return Ok(Val::NULL);
    };
    let separator = separator.eval(env, calls)?;
    let DatumRef::Text(separator) = separator.get() else {
        return Ok(Val::NULL);
    };
    let mut result = String::new();
    let mut first = true;
    for a in rest {
        if let DatumRef::Text(t) = a.eval(env, calls)?.get() {
            if !first {
                result.push_str(separator);
            }
            first = false;
            result.push_str(t);
        }
    }
    Ok(Val::text(limited(result)?))
}

/// Each character of `from` becomes the one at its place in `to`; without one it goes.
fn translate(s: &str, from: &str, to: &str) -> String {
    let to: Vec<char> = to.chars().collect();
    let become_ = |c: char| match from.chars().position(|f| f == c) {
        Some(at) => to.get(at).copied(),
        None => Some(c),
    };
    s.chars().filter_map(become_).collect()
}

/// `overlay(s placing new from start for count)`.
fn overlay(s: &str, values: &[Val<'_>]) -> Result<String> {
    let (new, start) = (string(values, 1)?, number(values, 2)?);
    let count = match values.len() {
        4 => number(values, 3)?,
        _ => i32::try_from(new.chars().count()).unwrap_or(i32::MAX),
    };
    if start <= 0 {
        return Err(Error::new("22011", "negative substring length not allowed"));
    }
    let end = start
        .checked_add(count)
        .ok_or_else(|| Error::new("22003", "integer out of range"))?;
    let before = s.chars().take(start as usize - 1);
    let after = s.chars().skip(usize::try_from(end - 1).unwrap_or(0));
    limited(before.chain(new.chars()).chain(after).collect())
}

fn string<'v>(values: &'v [Val<'_>], i: usize) -> Result<&'v str> {
    match values.get(i).map(Val::get) {
        Some(DatumRef::Text(t)) => Ok(t),
        other => Err(Error::internal(format!(
            "argument {} is {other:?}, not text",
            i + 1
        ))),
    }
}

fn number(values: &[Val<'_>], i: usize) -> Result<i32> {
    match values.get(i).map(Val::get) {
        Some(DatumRef::Int4(n)) => Ok(n),
        other => Err(Error::internal(format!(
            "argument {} is {other:?}, not integer",
            i + 1
        ))),
    }
}

fn limited(s: String) -> Result<String> {
    if s.len() > MAX_RESULT_BYTES {
        Err(too_large())
    } else {
        Ok(s)
    }
}

fn too_large() -> Error {
    Error::new("54000", "requested length too large")
}

fn chr(code: i32) -> Result<Val<'static>> {
    match u32::try_from(code).ok().and_then(char::from_u32) {
        Some('\0') => Err(Error::new("54000", "null character not permitted")),
        Some(c) => Ok(Val::text(c.to_string())),
        None if code < 0 => Err(Error::new("22023", "character number must be positive")),
        None => {
            let why = match code > char::MAX as i32 {
                true => "too large",
                false => "not valid",
            };
            let message = format!("requested character {why} for encoding: {code}");
            Err(Error::new("54000", message))
        }
    }
}

/// The capital letter if it is one letter, as the C library has it: of `ß` there is none.
fn upper(c: char) -> char {
    let mut letters = c.to_uppercase();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => letter,
        _ => c,
    }
}

fn initcap(s: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if inside {
            out.push(small(c));
        } else {
            out.push(upper(c));
        }
        inside = c.is_alphanumeric();
    }
    out
}

/// How much of a string or of bytes is passed over, and how much is taken.
fn part(values: &[Val<'_>]) -> Result<(usize, usize)> {
    let start = i64::from(number(values, 1)?);
    let end = match values.len() {
        3 => {
            let count = i64::from(number(values, 2)?);
            if count < 0 {
                return Err(Error::new("22011", "negative substring length not allowed"));
            }
            start + count
        }
        _ => i64::MAX,
    };
    let skip = (start - 1).max(0);
    let take = (end - 1).max(skip) - skip;
    Ok((skip as usize, take as usize))
}

/// A literal that reads back as the string: backslashes need the form that has escapes.
pub fn quote_literal(s: &str) -> String {
    let quoted = s.replace('\'', "''");
    match s.contains('\\') {
        true => format!("E'{}'", quoted.replace('\\', "\\\\")),
        false => format!("'{quoted}'"),
    }
}

fn trim(s: &str, values: &[Val<'_>], front: bool, back: bool) -> Result<String> {
    let set = if values.len() > 1 {
        string(values, 1)?
    } else {
        " "
    };
    let within = |c: char| set.contains(c);
    let s = if front {
        s.trim_start_matches(within)
    } else {
        s
    };
    Ok(if back { s.trim_end_matches(within) } else { s }.to_string())
}

/// The byte at which character `n` starts, or the end.
fn offset(s: &str, n: usize) -> usize {
    s.char_indices().nth(n).map_or(s.len(), |(at, _)| at)
}

/// The first `n` characters; all but the last `-n` if negative.
fn left(s: &str, n: i32) -> &str {
    let take = if n >= 0 {
        n as usize
    } else {
        s.chars().count().saturating_sub(n.unsigned_abs() as usize)
    };
    &s[..offset(s, take)]
}

fn right(s: &str, n: i32) -> &str {
    let skip = if n >= 0 {
        s.chars().count().saturating_sub(n as usize)
    } else {
        n.unsigned_abs() as usize
    };
    &s[offset(s, skip)..]
}

fn repeat(s: &str, n: i32) -> Result<String> {
    let n = n.max(0) as usize;
    if s.len().saturating_mul(n) > MAX_RESULT_BYTES {
        return Err(too_large());
    }
    Ok(s.repeat(n))
}

fn position(s: &str, part: &str) -> i32 {
    s.find(part)
        .map_or(0, |at| s[..at].chars().count() as i32 + 1)
}

fn split_part(s: &str, separator: &str, n: i32) -> Result<String> {
    if n == 0 {
        return Err(Error::new("22023", "field position must not be zero"));
    }
    let index = n.unsigned_abs() as usize - 1;
    if separator.is_empty() {
        return Ok(if index == 0 { s } else { "" }.to_string());
    }
    let part = if n > 0 {
        s.split(separator).nth(index)
    } else {
        s.rsplit(separator).nth(index)
    };
    Ok(part.unwrap_or("").to_string())
}

fn pad(s: &str, values: &[Val<'_>], front: bool) -> Result<String> {
    let width = number(values, 1)?.max(0) as usize;
    let fill = if values.len() > 2 {
        string(values, 2)?
    } else {
        " "
    };
    if width > MAX_RESULT_BYTES {
        return Err(too_large());
    }
    let length = s.chars().count();
    if length >= width || fill.is_empty() {
        return Ok(s[..offset(s, width)].to_string());
    }
    let filling: String = fill.chars().cycle().take(width - length).collect();
    Ok(if front {
        filling + s
    } else {
        s.to_string() + &filling
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_postgres_has_it() {
        assert_eq!(
            (
                left("abc", -1),
                left("äbc", 2),
                right("abc", -1),
                right("abc", 2)
            ),
            ("ab", "äb", "bc", "bc")
        );
        assert_eq!(split_part("a,b,c", ",", 2).unwrap(), "b");
        assert_eq!(split_part("a,b,c", ",", -1).unwrap(), "c");
        assert_eq!(position("häuser", "user"), 3);
        assert_eq!(initcap("hi THOMAS-x"), "Hi Thomas-X");
    }
}
