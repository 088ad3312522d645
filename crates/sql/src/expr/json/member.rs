//! Values of keys as they become columns: `null` is NULL, arrays are read as arrays.

use block::json::{JsonRef, View};
use block::value::{Datum, DatumRef};

use super::read::{shown, shown_item};
use super::{as_text, read};
use crate::error::{Error, Result};
use crate::pgtype::array::write_item;
use crate::pgtype::json::{self, Item, Value};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Member {
    /// As it is.
    Json,
    /// As text, to be read as a type.
    Text,
    /// As the text form of an array.
    Array,
}

/// The value of a key.
pub fn call(of: DatumRef<'_>, key: &str, how: Member) -> Result<Datum> {
    let text = how == Member::Text;
    let mut out = Vec::new();
    match of {
        DatumRef::Json(of) => {
            let View::Object(pairs) = of.view() else {
                return Ok(Datum::Null);
            };
            let Some(value) = pairs.get(key).filter(|v| v.view() != View::Null) else {
                return Ok(Datum::Null);
            };
            match (how, value.view()) {
                (Member::Array, View::Array(_)) => literal(value, &mut out)?,
                (Member::Array, View::String(s)) => return Ok(Datum::Text(s.to_string())),
                (Member::Array, _) => return Err(no_array(key)),
                _ => return shown(Some(value), text),
            }
        }
        DatumRef::Text(of) => {
            let of = json::parse(of, true)?;
            let value = read::field(&of, key);
            let Some(value) = value.filter(|v| !matches!(v.value, Value::Null)) else {
                return Ok(Datum::Null);
            };
            match (how, &value.value) {
                (Member::Array, Value::Array(_)) => literal_of_item(value, &mut out),
                (Member::Array, Value::String(s)) => return Ok(Datum::Text(s.to_string())),
                (Member::Array, _) => return Err(no_array(key)),
                _ => return Ok(shown_item(Some(value), text)),
            }
        }
        other => return Err(Error::internal(format!("a member of {other:?}"))),
    }
    as_text(out)
}

fn no_array(key: &str) -> Error {
    Error::new("22P02", "expected JSON array").hint(format!("See the value of key \"{key}\"."))
}

fn literal(of: JsonRef<'_>, out: &mut Vec<u8>) -> Result<()> {
    match of.view() {
        View::Array(items) => {
            out.push(b'{');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                literal(item, out)?;
            }
            out.push(b'}');
        }
        View::Null => out.extend_from_slice(b"NULL"),
        _ => {
            if let Datum::Text(text) = shown(Some(of), true)? {
                write_item(text.as_bytes(), out);
            }
        }
    }
    Ok(())
}

fn literal_of_item(of: &Item<'_>, out: &mut Vec<u8>) {
    match &of.value {
        Value::Array(items) => {
            out.push(b'{');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                literal_of_item(item, out);
            }
            out.push(b'}');
        }
        Value::Null => out.extend_from_slice(b"NULL"),
        _ => {
            if let Datum::Text(text) = shown_item(Some(of), true) {
                write_item(text.as_bytes(), out);
            }
        }
    }
}
