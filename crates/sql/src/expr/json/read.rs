//! What is in a document.

use block::json::{JsonRef, View};
use block::value::{Datum, DatumRef};

use super::super::Val;
use super::{as_text, invalid};
use crate::error::{Error, Result};
use crate::expr::cast::{Cast, Conversion};
use crate::pgtype::json::{self, Item, Value};
use crate::pgtype::{IoSettings, parse_integer};
use crate::types::SqlType;

/// A place in an array, from the end if it is negative.
fn place(at: i32, count: usize) -> Option<usize> {
    let at = i64::from(at);
    let at = if at < 0 { at + count as i64 } else { at };
    usize::try_from(at).ok()
}

/// An element by its place as a step of a path says it; none if it is no number.
fn step_place(step: &str, count: usize) -> Option<usize> {
    let step = step.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let number = !step.ends_with(|c: char| !c.is_ascii_digit());
    let at = parse_integer::<i32>(step).ok().filter(|_| number)?;
    place(at, count)
}

/// A part of a document as it is, or as text.
pub fn shown(part: Option<JsonRef<'_>>, text: bool) -> Result<Datum> {
    let Some(part) = part else {
        return Ok(Datum::Null);
    };
    match part.view() {
        _ if !text => Ok(Datum::Json(part.to_json())),
        View::Null => Ok(Datum::Null),
        View::String(s) => Ok(Datum::Text(s.to_string())),
        _ => {
            let mut out = Vec::new();
            json::write(part, &mut out);
            as_text(out)
        }
    }
}

/// The same of a part of a text.
pub fn shown_item(part: Option<&Item<'_>>, text: bool) -> Datum {
    match part {
        None => Datum::Null,
        Some(part) => match &part.value {
            Value::Null if text => Datum::Null,
            Value::String(s) if text => Datum::Text(s.to_string()),
            _ => Datum::Text(part.text.to_string()),
        },
    }
}

/// The value of a key: of several the last one.
pub(super) fn field<'i, 'a>(of: &'i Item<'a>, key: &str) -> Option<&'i Item<'a>> {
    match &of.value {
        Value::Object(pairs) => pairs.iter().rev().find(|p| p.0 == key).map(|p| &p.1),
        _ => None,
    }
}

pub fn get(of: DatumRef<'_>, at: DatumRef<'_>, text: bool) -> Result<Datum> {
    match (of, at) {
        (DatumRef::Json(of), DatumRef::Text(key)) => match of.view() {
            View::Object(pairs) => shown(pairs.get(key), text),
            _ => Ok(Datum::Null),
        },
        (DatumRef::Json(of), DatumRef::Int4(at)) => match of.view() {
            View::Array(items) => {
                let found = place(at, items.len()).and_then(|at| items.get(at));
                shown(found, text)
            }
            View::Object(_) => Ok(Datum::Null),
            // To PostgreSQL a value by itself is an array of it.
            _ => shown(place(at, 1).filter(|at| *at == 0).map(|_| of), text),
        },
        (DatumRef::Text(of), DatumRef::Text(key)) => {
            Ok(shown_item(field(&json::parse(of, true)?, key), text))
        }
        (DatumRef::Text(of), DatumRef::Int4(at)) => {
            let of = json::parse(of, true)?;
            let found = match &of.value {
                Value::Array(items) => place(at, items.len()).and_then(|at| items.get(at)),
                _ => None,
            };
            Ok(shown_item(found, text))
        }
        (of, at) => Err(Error::internal(format!("{at:?} of {of:?}"))),
    }
}

pub fn path(of: DatumRef<'_>, steps: &[Option<&str>], text: bool) -> Result<Datum> {
    if steps.iter().any(Option::is_none) {
        return Ok(Datum::Null);
    }
    let mut steps = steps.iter().flatten();
    match of {
        DatumRef::Json(of) => {
            let found = steps.try_fold(of, |of, step| match of.view() {
                View::Object(pairs) => pairs.get(step),
                View::Array(items) => items.get(step_place(step, items.len())?),
                _ => None,
            });
            shown(found, text)
        }
        DatumRef::Text(of) => {
            let of = json::parse(of, true)?;
            let found = steps.try_fold(&of, |of, step| match &of.value {
                Value::Array(items) => items.get(step_place(step, items.len())?),
                _ => field(of, step),
            });
            Ok(shown_item(found, text))
        }
        other => Err(Error::internal(format!("a path in {other:?}"))),
    }
}

fn kind(of: JsonRef<'_>) -> &'static str {
    match of.view() {
        View::Null => "null",
        View::Bool(_) => "boolean",
        View::Number(_) => "number",
        View::String(_) => "string",
        View::Array(_) => "array",
        View::Object(_) => "object",
    }
}

pub fn type_of(of: DatumRef<'_>) -> Result<&'static str> {
    match of {
        DatumRef::Json(of) => Ok(kind(of)),
        DatumRef::Text(of) => Ok(match json::parse(of, false)?.value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }),
        other => Err(Error::internal(format!("{other:?} is no json"))),
    }
}

pub fn array_length(of: DatumRef<'_>) -> Result<i32> {
    let count = match of {
        DatumRef::Json(of) => match of.view() {
            View::Array(items) => Ok(items.len()),
            View::Object(_) => Err("cannot get array length of a non-array"),
            _ => Err("cannot get array length of a scalar"),
        },
        DatumRef::Text(of) => match json::parse(of, false)?.value {
            Value::Array(items) => Ok(items.len()),
            Value::Object(_) => Err("cannot get array length of a non-array"),
            _ => Err("cannot get array length of a scalar"),
        },
        other => return Err(Error::internal(format!("{other:?} is no json"))),
    };
    let count = count.map_err(invalid)?;
    i32::try_from(count).map_err(|_| Error::internal("an array of too many elements"))
}

/// Whether a scalar or key is there. A scalar is an array of itself.
pub fn exists(of: JsonRef<'_>, key: &str) -> bool {
    let is_key = |v: JsonRef<'_>| v.view() == View::String(key);
    match of.view() {
        View::Object(pairs) => pairs.get(key).is_some(),
        View::Array(items) => items.iter().any(is_key),
        _ => is_key(of),
    }
}

fn is_scalar(v: JsonRef<'_>) -> bool {
    !matches!(v.view(), View::Array(_) | View::Object(_))
}

/// Whether each part of `b` is in `a` at the same place; of arrays, at any place. As a whole, but
/// not as a part, an array contains a scalar that is one of its elements.
pub fn contains(a: JsonRef<'_>, b: JsonRef<'_>) -> bool {
    match a.view() {
        View::Array(items) if is_scalar(b) => items.iter().any(|item| equal(item, b)),
        _ => contains_part(a, b),
    }
}

fn equal(a: JsonRef<'_>, b: JsonRef<'_>) -> bool {
    a.compare(b).is_eq()
}

fn contains_part(a: JsonRef<'_>, b: JsonRef<'_>) -> bool {
    match (a.view(), b.view()) {
        (View::Object(a), View::Object(b)) => {
            b.len() <= a.len()
                && b.iter()
                    .all(|(key, b)| a.get(key).is_some_and(|a| contains_part(a, b)))
        }
        (View::Array(a), View::Array(b)) => b.iter().all(|b| match is_scalar(b) {
            true => a.iter().any(|a| equal(a, b)),
            false => a.iter().any(|a| contains_part(a, b)),
        }),
        _ => is_scalar(a) && is_scalar(b) && equal(a, b),
    }
}

/// A document as a value of another type, by cast.
pub fn scalar(of: JsonRef<'_>, to: SqlType, io: &IoSettings) -> Result<Val<'static>> {
    match (of.view(), to) {
        (View::Bool(b), SqlType::Bool) => Ok(Val::bool(b)),
        (View::Number(n), SqlType::Numeric) => Ok(Val::Own(Datum::Numeric(n.to_numeric()))),
        (View::Number(n), to) if to.is_number() => {
            let cast = Cast {
                from: SqlType::Numeric,
                to,
                typmod: -1,
                how: Conversion::Explicit,
            };
            let value = cast.apply(Val::Ref(DatumRef::Numeric(n)), io)?;
            Ok(Val::Own(value.into_datum()))
        }
        (View::Array(_) | View::Object(_), to) => Err(invalid(&format!(
            "cannot cast jsonb {} to type {}",
            kind(of),
            to.name()
        ))),
        (view, to) => {
            let what = match view {
                View::Null => "null",
                View::Bool(_) => "boolean",
                View::Number(_) => "numeric",
                _ => "string",
            };
            let message = format!("cannot cast jsonb {what} to type {}", to.name());
            Err(invalid(&message))
        }
    }
}
