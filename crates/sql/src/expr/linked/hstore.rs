//! The functions of `hstore`.

use std::collections::HashSet;

use block::array::{Array, ArrayRef};
use block::json::JsonRef;
use block::value::{ColType, Datum, DatumRef};

use super::{Entry, entry, text, unexpected};
use crate::error::{Error, Result};
use crate::pgtype::hstore::{Pair, get, made, pairs};
use crate::pgtype::json;

pub const ENTRIES: &[Entry] = &[
    entry("hstore_fetchval", |v, _| {
        let found = get(store(v, 0)?, text(v, 1)?).flatten();
        Ok(found.map_or(Datum::Null, of_text))
    }),
    entry("hstore_slice_to_array", |v, _| {
        let store = store(v, 0)?;
        let each = |key: Option<String>| {
            let found = key.and_then(|key| get(store, &key)?);
            found.map_or(Datum::Null, of_text)
        };
        Ok(array(keys(v, 1)?.into_iter().map(each).collect()))
    }),
    entry("hstore_slice_to_hstore", |v, _| {
        let store = store(v, 0)?;
        let each = |key: Option<String>| {
            let key = key?;
            let value = get(store, &key)?.map(str::to_string);
            Some((key, value))
        };
        Ok(of_pairs(keys(v, 1)?.into_iter().filter_map(each).collect()))
    }),
    entry("hstore_exists", |v, _| {
        Ok(Datum::Bool(get(store(v, 0)?, text(v, 1)?).is_some()))
    }),
    entry("hstore_exists_any", |v, _| {
        let store = store(v, 0)?;
        let mut keys = keys(v, 1)?.into_iter().flatten();
        Ok(Datum::Bool(keys.any(|key| get(store, &key).is_some())))
    }),
    entry("hstore_exists_all", |v, _| {
        let store = store(v, 0)?;
        let mut keys = keys(v, 1)?.into_iter().flatten();
        Ok(Datum::Bool(keys.all(|key| get(store, &key).is_some())))
    }),
    entry("hstore_defined", |v, _| {
        let found = get(store(v, 0)?, text(v, 1)?);
        Ok(Datum::Bool(found.flatten().is_some()))
    }),
    entry("hstore_delete", |v, _| {
        let key = text(v, 1)?;
        Ok(kept(store(v, 0)?, |k, _| k != key))
    }),
    entry("hstore_delete_array", |v, _| {
        let gone: HashSet<String> = keys(v, 1)?.into_iter().flatten().collect();
        Ok(kept(store(v, 0)?, |k, _| !gone.contains(k)))
    }),
    entry("hstore_delete_hstore", |v, _| {
        let gone = store(v, 1)?;
        Ok(kept(store(v, 0)?, |k, value| get(gone, k) != Some(value)))
    }),
    entry("hstore_concat", |v, _| {
        let both = owned(store(v, 1)?).chain(owned(store(v, 0)?));
        Ok(of_pairs(both.collect()))
    }),
    entry("hstore_contains", |v, _| {
        Ok(Datum::Bool(contains(store(v, 0)?, store(v, 1)?)))
    }),
    entry("hstore_contained", |v, _| {
        Ok(Datum::Bool(contains(store(v, 1)?, store(v, 0)?)))
    }),
    // Neither is strict: of no key there is no value, of a key without a value there is one.
    entry("hstore_from_text", |v, _| {
        let value = |at: usize| match v.get(at) {
            Some(DatumRef::Text(text)) => Some(text.to_string()),
            _ => None,
        };
        Ok(match value(0) {
            Some(key) => of_pairs(vec![(key, value(1))]),
            None => Datum::Null,
        })
    }),
    entry("hstore_from_arrays", from_arrays),
    entry("hstore_from_array", |v, _| {
        let lengths: Vec<i32> = array_at(v, 0)?.dimensions().map(|d| d.length).collect();
        match lengths.as_slice() {
            [] | [_, 2] => {}
            [length] if length % 2 == 0 => {}
            [_] => return Err(wrong_array("array must have even number of elements")),
            [_, _] => return Err(wrong_array("array must have two columns")),
            _ => return Err(wrong_array("wrong number of array subscripts")),
        }
        let all = keys(v, 0)?;
        let (pairs, _) = all.as_chunks::<2>();
        let pair = |[key, value]: &[Option<String>; 2]| Ok((key_of(key.clone())?, value.clone()));
        Ok(of_pairs(pairs.iter().map(pair).collect::<Result<_>>()?))
    }),
    entry("hstore_to_json", |v, _| {
        let mut out = Vec::new();
        json::write(store(v, 0)?, &mut out);
        let text = String::from_utf8(out);
        let text = text.map_err(|_| Error::internal("json that is not UTF-8"))?;
        Ok(Datum::Text(text))
    }),
    entry("hstore_to_jsonb", |v, _| {
        Ok(Datum::Json(store(v, 0)?.to_json()))
    }),
    entry("hstore_to_array", |v, _| {
        let each = pairs(store(v, 0)?);
        let each = each.flat_map(|(k, v)| [of_text(k), v.map_or(Datum::Null, of_text)]);
        Ok(array(each.collect()))
    }),
    entry("hstore_akeys", |v, _| {
        Ok(array(
            pairs(store(v, 0)?).map(|(k, _)| of_text(k)).collect(),
        ))
    }),
    entry("hstore_avals", |v, _| {
        let values = pairs(store(v, 0)?).map(|(_, v)| v.map_or(Datum::Null, of_text));
        Ok(array(values.collect()))
    }),
];

fn store<'v>(values: &[DatumRef<'v>], at: usize) -> Result<JsonRef<'v>> {
    match values.get(at) {
        Some(DatumRef::Json(store)) => Ok(*store),
        other => Err(unexpected(*other.unwrap_or(&DatumRef::Null))),
    }
}

fn array_at<'v>(values: &[DatumRef<'v>], at: usize) -> Result<ArrayRef<'v>> {
    match values.get(at) {
        Some(DatumRef::Array(array)) => Ok(*array),
        other => Err(unexpected(*other.unwrap_or(&DatumRef::Null))),
    }
}

fn wrong_array(message: &str) -> Error {
    Error::new("2202E", message)
}

/// The elements of an array.
fn keys(values: &[DatumRef<'_>], at: usize) -> Result<Vec<Option<String>>> {
    let array = array_at(values, at)?;
    let element = |v: DatumRef<'_>| match v {
        DatumRef::Text(text) => Some(text.to_string()),
        _ => None,
    };
    Ok(array.values().map(element).collect())
}

fn key_of(key: Option<String>) -> Result<String> {
    key.ok_or_else(|| Error::new("22004", "null value not allowed for hstore key"))
}

fn of_text(text: &str) -> Datum {
    Datum::Text(text.to_string())
}

fn array(values: Vec<Datum>) -> Datum {
    Datum::Array(Array::of(ColType::Text, &values))
}

fn of_pairs(pairs: Vec<Pair>) -> Datum {
    Datum::Json(made(pairs))
}

fn owned(store: JsonRef<'_>) -> impl Iterator<Item = Pair> {
    pairs(store).map(|(k, v)| (k.to_string(), v.map(str::to_string)))
}

/// The pairs that a condition holds of.
fn kept(store: JsonRef<'_>, keep: impl Fn(&str, Option<&str>) -> bool) -> Datum {
    let kept = owned(store).filter(|(k, v)| keep(k, v.as_deref()));
    of_pairs(kept.collect())
}

fn contains(whole: JsonRef<'_>, part: JsonRef<'_>) -> bool {
    pairs(part).all(|(key, value)| get(whole, key) == Some(value))
}

fn from_arrays(v: &[DatumRef<'_>], _: &crate::pgtype::IoSettings) -> Result<Datum> {
    if matches!(v.first(), None | Some(DatumRef::Null)) {
        return Ok(Datum::Null);
    }
    let bounds = array_at(v, 0)?.dimensions().collect::<Vec<_>>();
    let subscripts = || wrong_array("wrong number of array subscripts");
    if bounds.len() > 1 {
        return Err(subscripts());
    }
    let keys_given = keys(v, 0)?;
    let values = match v.get(1) {
        None | Some(DatumRef::Null) => vec![None; keys_given.len()],
        Some(_) => {
            let of_values = array_at(v, 1)?.dimensions().collect::<Vec<_>>();
            if of_values.len() > 1 {
                return Err(subscripts());
            }
            if bounds != of_values {
                return Err(wrong_array("arrays must have same bounds"));
            }
            keys(v, 1)?
        }
    };
    let pairs = keys_given.into_iter().zip(values);
    let pairs = pairs.map(|(key, value)| Ok((key_of(key)?, value)));
    Ok(of_pairs(pairs.collect::<Result<_>>()?))
}
