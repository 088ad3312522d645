//! The parts of a document as rows: `json_each`, `json_array_elements`, `json_object_keys` and
//! their kin of jsonb.

use block::json::{JsonRef, View};
use block::value::{Datum, DatumRef};

use super::series::Counter;
use crate::error::{Error, Result};
use crate::expr::json::{shown, shown_item};
use crate::pgtype::json::{self, Item, Value};
use crate::query::plan::JsonSeries;

pub fn start(of: JsonSeries, document: &Datum) -> Result<Counter> {
    match document.borrow() {
        DatumRef::Json(document) => of_jsonb(of, document),
        DatumRef::Text(text) => {
            let escapes = of != JsonSeries::Elements { text: false };
            of_json(of, json::parse(text, escapes)?)
        }
        other => Err(Error::internal(format!("parts of {other:?}"))),
    }
}

fn refused(message: &str) -> Error {
    Error::new("22023", message.to_string())
}

fn suffix(text: bool) -> &'static str {
    if text { "_text" } else { "" }
}

fn of_jsonb(of: JsonSeries, document: JsonRef<'_>) -> Result<Counter> {
    match (of, document.view()) {
        (JsonSeries::Each { text }, View::Object(pairs)) => {
            let pair = |(key, value): (&str, _)| {
                Ok((Datum::Text(key.to_string()), shown(Some(value), text)?))
            };
            let mut rows = pairs.iter().map(pair).collect::<Result<Vec<_>>>()?;
            rows.reverse();
            Ok(Counter::Pairs(rows))
        }
        (JsonSeries::Each { text }, _) => {
            let name = suffix(text);
            Err(refused(&format!(
                "cannot call jsonb_each{name} on a non-object"
            )))
        }
        (JsonSeries::Elements { text }, View::Array(items)) => {
            let rows = items.iter().map(|item| shown(Some(item), text));
            let mut rows = rows.collect::<Result<Vec<_>>>()?;
            rows.reverse();
            Ok(Counter::Elements(rows))
        }
        (JsonSeries::Elements { .. }, View::Object(_)) => {
            Err(refused("cannot extract elements from an object"))
        }
        (JsonSeries::Elements { .. }, _) => Err(refused("cannot extract elements from a scalar")),
        (JsonSeries::Keys, View::Object(pairs)) => {
            let keys = pairs.iter().map(|(key, _)| Datum::Text(key.to_string()));
            let mut keys: Vec<Datum> = keys.collect();
            keys.reverse();
            Ok(Counter::Elements(keys))
        }
        (JsonSeries::Keys, View::Array(_)) => {
            Err(refused("cannot call jsonb_object_keys on an array"))
        }
        (JsonSeries::Keys, _) => Err(refused("cannot call jsonb_object_keys on a scalar")),
    }
}

fn of_json(of: JsonSeries, document: Item<'_>) -> Result<Counter> {
    match (of, document.value) {
        (JsonSeries::Each { text }, Value::Object(pairs)) => {
            let pairs = pairs.iter().rev();
            let rows = pairs.map(|(key, value)| {
                let key = Datum::Text(key.to_string());
                (key, shown_item(Some(value), text))
            });
            Ok(Counter::Pairs(rows.collect()))
        }
        (JsonSeries::Each { .. }, Value::Array(_)) => {
            Err(refused("cannot deconstruct an array as an object"))
        }
        (JsonSeries::Each { .. }, _) => Err(refused("cannot deconstruct a scalar")),
        (JsonSeries::Elements { text }, Value::Array(items)) => {
            let rows = items.iter().rev().map(|item| shown_item(Some(item), text));
            Ok(Counter::Elements(rows.collect()))
        }
        (JsonSeries::Elements { text }, value) => {
            let what = match value {
                Value::Object(_) => "non-array",
                _ => "scalar",
            };
            let name = suffix(text);
            Err(refused(&format!(
                "cannot call json_array_elements{name} on a {what}"
            )))
        }
        (JsonSeries::Keys, Value::Object(pairs)) => {
            let keys = pairs
                .iter()
                .rev()
                .map(|(key, _)| Datum::Text(key.to_string()));
            Ok(Counter::Elements(keys.collect()))
        }
        (JsonSeries::Keys, Value::Array(_)) => {
            Err(refused("cannot call json_object_keys on an array"))
        }
        (JsonSeries::Keys, _) => Err(refused("cannot call json_object_keys on a scalar")),
    }
}
