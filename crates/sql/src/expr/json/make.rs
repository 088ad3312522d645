//! Values of other types as json and jsonb, and documents of several of them.

use block::array::{ArrayRef, Dimension};
use block::json::Node;
use block::value::{Datum, DatumRef};

use super::{as_text, invalid};
use crate::error::{Error, Result};
use crate::pgtype::styles::{self, DateStyle};
use crate::pgtype::{self, IoSettings, json};
use crate::types::SqlType;

/// A value as json or jsonb; NULL as `null`.
pub fn value(of: SqlType, value: DatumRef<'_>, binary: bool, io: &IoSettings) -> Result<Datum> {
    if binary {
        return json::jsonb(&as_node(of, value, io)?);
    }
    let mut out = Vec::new();
    as_json(of, value, false, io, &mut out)?;
    as_text(out)
}

fn text(of: SqlType, value: DatumRef<'_>, io: &IoSettings) -> Result<String> {
    let mut out = Vec::new();
    pgtype::text_out(of, value, io, &mut out);
    as_string(out)
}

fn as_string(text: Vec<u8>) -> Result<String> {
    String::from_utf8(text).map_err(|_| Error::internal("text output is not UTF-8"))
}

/// A date or time in ISO 8601, as PostgreSQL writes them in json.
fn iso_time(of: SqlType, value: DatumRef<'_>, io: &IoSettings) -> Result<String> {
    let mut shown = Vec::new();
    styles::write(&mut shown, value, DateStyle::Iso, io);
    let shown = as_string(shown)?;
    let (time, era) = match shown.strip_suffix(" BC") {
        Some(time) => (time, " BC"),
        None => (shown.as_str(), ""),
    };
    let Some((date, time)) = time.split_once(' ') else {
        return Ok(shown);
    };
    // A zone has its minutes even if they are none.
    let hours_alone = of == SqlType::TimestampTz
        && time
            .rfind(['+', '-'])
            .is_some_and(|at| !time[at..].contains(':'));
    let minutes = if hours_alone { ":00" } else { "" };
    Ok(format!("{date}T{time}{minutes}{era}"))
}

/// Whether a number as it is written is one in json.
fn is_finite(number: &str) -> bool {
    number.starts_with(|c: char| c.is_ascii_digit() || c == '-') && !number.ends_with('y')
}

/// Appends a value as json. Elements of an array are on lines of their own if `lines`.
pub fn as_json(
    of: SqlType,
    value: DatumRef<'_>,
    lines: bool,
    io: &IoSettings,
    out: &mut Vec<u8>,
) -> Result<()> {
    match (of, value) {
        (_, DatumRef::Null) => out.extend_from_slice(b"null"),
        (_, DatumRef::Bool(b)) => out.extend_from_slice(if b { b"true" } else { b"false" }),
        (SqlType::Json, DatumRef::Text(t)) => out.extend_from_slice(t.as_bytes()),
        (_, DatumRef::Json(v)) => json::write(v, out),
        (SqlType::Array(element), DatumRef::Array(a)) => {
            let dimensions: Vec<Dimension> = a.dimensions().collect();
            let mut values = a.values();
            let mut write =
                |v: DatumRef<'_>, out: &mut Vec<u8>| as_json(element.ty(), v, false, io, out);
            array(&dimensions, lines, &mut values, out, &mut write)?;
        }
        (SqlType::Composite(row), DatumRef::Composite(v)) => {
            out.push(b'{');
            for (at, (kind, field)) in v.kinds().zip(v.values()).enumerate() {
                if at > 0 {
                    out.extend_from_slice(if lines { b",\n " } else { b"," });
                }
                json::write_string(&row.field_name(at), out);
                out.push(b':');
                let ty = row.field_type(at, kind.number).unwrap_or(SqlType::Text);
                as_json(ty, field, false, io, out)?;
            }
            out.push(b'}');
        }
        (SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz, value) => {
            json::write_string(&iso_time(of, value, io)?, out);
        }
        // An oid is no number to PostgreSQL here.
        (of, value) => {
            let shown = text(of, value, io)?;
            match of.is_number() && of != SqlType::Oid && is_finite(&shown) {
                true => out.extend_from_slice(shown.as_bytes()),
                false => json::write_string(&shown, out),
            }
        }
    }
    Ok(())
}

type WriteValue<'w> = dyn FnMut(DatumRef<'_>, &mut Vec<u8>) -> Result<()> + 'w;

fn array<'v>(
    dimensions: &[Dimension],
    lines: bool,
    values: &mut dyn Iterator<Item = DatumRef<'v>>,
    out: &mut Vec<u8>,
    write: &mut WriteValue<'_>,
) -> Result<()> {
    out.push(b'[');
    let (length, inner) = match dimensions {
        [] => (0, dimensions),
        [first, inner @ ..] => (first.length, inner),
    };
    for at in 0..length {
        if at > 0 {
            out.extend_from_slice(if lines { b",\n " } else { b"," });
        }
        match (inner, values.next()) {
            ([], Some(value)) => write(value, out)?,
            (inner, Some(first)) => {
                let mut rest = std::iter::once(first).chain(&mut *values);
                array(inner, false, &mut rest, out, write)?;
            }
            (_, None) => return Err(Error::internal("an array without its elements")),
        }
    }
    out.push(b']');
    Ok(())
}

pub fn of_array(of: SqlType, value: DatumRef<'_>, lines: bool, io: &IoSettings) -> Result<Datum> {
    let mut out = Vec::new();
    as_json(of, value, lines, io, &mut out)?;
    as_text(out)
}

/// A value as a part of a document.
pub fn as_node(of: SqlType, value: DatumRef<'_>, io: &IoSettings) -> Result<Node> {
    Ok(match (of, value) {
        (_, DatumRef::Null) => Node::Null,
        (_, DatumRef::Bool(b)) => Node::Bool(b),
        (_, DatumRef::Json(v)) => Node::Whole(v.to_json()),
        (SqlType::Json, DatumRef::Text(t)) => json::node(&json::parse(t, true)?)?,
        (SqlType::Array(element), DatumRef::Array(a)) => {
            let dimensions: Vec<Dimension> = a.dimensions().collect();
            nested(&dimensions, &mut a.values(), element.ty(), io)?
        }
        (SqlType::Composite(row), DatumRef::Composite(v)) => {
            let fields = v.kinds().zip(v.values()).enumerate();
            let pairs = fields.map(|(at, (kind, field))| {
                let ty = row.field_type(at, kind.number).unwrap_or(SqlType::Text);
                Ok((row.field_name(at), as_node(ty, field, io)?))
            });
            Node::Object(pairs.collect::<Result<_>>()?)
        }
        (SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz, value) => {
            Node::String(iso_time(of, value, io)?)
        }
        (of, value) => {
            let shown = text(of, value, io)?;
            match of.is_number() && of != SqlType::Oid && is_finite(&shown) {
                true => Node::Number(pgtype::parse_numeric(&shown)?),
                false => Node::String(shown),
            }
        }
    })
}

fn nested<'v>(
    dimensions: &[Dimension],
    values: &mut dyn Iterator<Item = DatumRef<'v>>,
    of: SqlType,
    io: &IoSettings,
) -> Result<Node> {
    let (length, inner) = match dimensions {
        [] => (0, dimensions),
        [first, inner @ ..] => (first.length, inner),
    };
    let mut items = Vec::new();
    for _ in 0..length {
        items.push(match inner {
            [] => {
                let value = values.next();
                let value = value.ok_or_else(|| Error::internal("an array without elements"))?;
                as_node(of, value, io)?
            }
            inner => nested(inner, values, of, io)?,
        });
    }
    Ok(Node::Array(items))
}

/// A value that was made jsonb.
fn made(part: DatumRef<'_>) -> Result<Node> {
    match part {
        DatumRef::Json(v) => Ok(Node::Whole(v.to_json())),
        other => Err(Error::internal(format!("{other:?} is no jsonb"))),
    }
}

/// A value that was made json.
fn written(part: DatumRef<'_>) -> Result<&str> {
    match part {
        DatumRef::Text(t) => Ok(t),
        other => Err(Error::internal(format!("{other:?} is no json"))),
    }
}

pub fn build_array(parts: &[DatumRef<'_>], binary: bool) -> Result<Datum> {
    if binary {
        let items = parts.iter().map(|p| made(*p)).collect::<Result<_>>()?;
        return json::jsonb(&Node::Array(items));
    }
    let parts = parts.iter().map(|p| written(*p));
    let parts = parts.collect::<Result<Vec<_>>>()?;
    Ok(Datum::Text(format!("[{}]", parts.join(", "))))
}

fn null_key(argument: usize, binary: bool) -> Error {
    match binary {
        true => invalid(&format!("argument {argument}: key must not be null")),
        false => invalid(&format!("argument {argument} cannot be null"))
            .hint("Object keys should be text."),
    }
}

pub fn build_object(parts: &[DatumRef<'_>], binary: bool) -> Result<Datum> {
    let mut pairs = Vec::with_capacity(parts.len() / 2);
    for (at, pair) in parts.chunks_exact(2).enumerate() {
        match pair[0] {
            DatumRef::Text(key) => pairs.push((key, pair[1])),
            _ => return Err(null_key(2 * at + 1, binary)),
        }
    }
    if binary {
        let pairs = pairs
            .into_iter()
            .map(|(k, v)| Ok((k.to_string(), made(v)?)));
        return json::jsonb(&Node::Object(pairs.collect::<Result<_>>()?));
    }
    let mut out = vec![b'{'];
    for (at, (key, value)) in pairs.into_iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        json::write_string(key, &mut out);
        out.extend_from_slice(b" : ");
        out.extend_from_slice(written(value)?.as_bytes());
    }
    out.push(b'}');
    as_text(out)
}

/// `json_object` and `jsonb_object`.
pub fn of_texts(parts: &[DatumRef<'_>], binary: bool) -> Result<Datum> {
    let pairs = match parts {
        [DatumRef::Array(both)] => by_turns(*both)?,
        [DatumRef::Array(keys), DatumRef::Array(values)] => {
            if keys.dimensions().len() > 1 || keys.dimensions().len() != values.dimensions().len() {
                return Err(Error::new("2202E", "wrong number of array subscripts"));
            }
            if keys.count() != values.count() {
                return Err(Error::new("2202E", "mismatched array dimensions"));
            }
            keys.values().zip(values.values()).collect()
        }
        other => return Err(Error::internal(format!("an object of {other:?}"))),
    };
    let mut node = Vec::with_capacity(pairs.len());
    let mut out = vec![b'{'];
    for (at, (key, value)) in pairs.into_iter().enumerate() {
        let DatumRef::Text(key) = key else {
            return Err(Error::new("22004", "null value not allowed for object key"));
        };
        let value = match value {
            DatumRef::Text(value) => Some(value),
            _ => None,
        };
        if binary {
            let value = value.map_or(Node::Null, |v| Node::String(v.to_string()));
            node.push((key.to_string(), value));
            continue;
        }
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        json::write_string(key, &mut out);
        out.extend_from_slice(b" : ");
        match value {
            Some(value) => json::write_string(value, &mut out),
            None => out.extend_from_slice(b"null"),
        }
    }
    if binary {
        return json::jsonb(&Node::Object(node));
    }
    out.push(b'}');
    as_text(out)
}

type Pairs<'a> = Vec<(DatumRef<'a>, DatumRef<'a>)>;

fn by_turns(both: ArrayRef<'_>) -> Result<Pairs<'_>> {
    let lengths: Vec<i32> = both.dimensions().map(|d| d.length).collect();
    let message = match lengths.as_slice() {
        [] | [_, 2] => None,
        [n] if n % 2 == 0 => None,
        [_] => Some("array must have even number of elements"),
        [_, _] => Some("array must have two columns"),
        _ => Some("wrong number of array subscripts"),
    };
    if let Some(message) = message {
        return Err(Error::new("2202E", message));
    }
    let mut values = both.values();
    let mut pairs = Vec::new();
    while let (Some(key), Some(value)) = (values.next(), values.next()) {
        pairs.push((key, value));
    }
    Ok(pairs)
}
