//! Documents as rows of a type: PostgreSQL's `json_populate_record` and its kin.
//!
//! What a document has no key for stays as the base has it. A value that is a string is read by its
//! type's text form, also where the type is one of arrays or rows.

use block::array::Dimension;
use block::composite::CompositeRef;
use block::json::{JsonRef, View};
use block::value::{Datum, DatumRef};

use super::read::{field, shown, shown_item};
use super::{as_text, invalid};
use crate::error::{Error, Result};
use crate::pgtype::json::{self, Item, Value};
use crate::pgtype::{self, IoSettings};
use crate::query::record_function::RecordFunction;
use crate::types::composite::CompositeType;
use crate::types::{Element, SqlType};

/// A part of a document of either form.
#[derive(Clone, Copy)]
enum Part<'a> {
    Text(&'a Item<'a>),
    Binary(JsonRef<'a>),
}

enum Kind<'a> {
    Null,
    String(&'a str),
    Array(Vec<Part<'a>>),
    Object,
    Scalar,
}

impl<'a> Part<'a> {
    fn kind(self) -> Kind<'a> {
        match self {
            Part::Text(item) => match &item.value {
                Value::Null => Kind::Null,
                Value::String(s) => Kind::String(s),
                Value::Array(items) => Kind::Array(items.iter().map(Part::Text).collect()),
                Value::Object(_) => Kind::Object,
                Value::Bool(_) | Value::Number => Kind::Scalar,
            },
            Part::Binary(json) => match json.view() {
                View::Null => Kind::Null,
                View::String(s) => Kind::String(s),
                View::Array(items) => Kind::Array(items.iter().map(Part::Binary).collect()),
                View::Object(_) => Kind::Object,
                View::Bool(_) | View::Number(_) => Kind::Scalar,
            },
        }
    }

    fn is_array(self) -> bool {
        match self {
            Part::Text(item) => matches!(item.value, Value::Array(_)),
            Part::Binary(json) => matches!(json.view(), View::Array(_)),
        }
    }

    fn get(self, key: &str) -> Option<Part<'a>> {
        match self {
            Part::Text(item) => field(item, key).map(Part::Text),
            Part::Binary(json) => match json.view() {
                View::Object(pairs) => pairs.get(key).map(Part::Binary),
                _ => None,
            },
        }
    }

    /// As `->>` has it.
    fn text(self) -> Result<Datum> {
        match self {
            Part::Text(item) => Ok(shown_item(Some(item), true)),
            Part::Binary(json) => shown(Some(json), true),
        }
    }

    fn as_json(self) -> Result<Datum> {
        match self {
            Part::Text(item) => Ok(Datum::Text(item.text.to_string())),
            Part::Binary(json) => {
                let mut out = Vec::new();
                json::write(json, &mut out);
                as_text(out)
            }
        }
    }

    fn as_jsonb(self) -> Result<Datum> {
        match self {
            Part::Text(item) => json::jsonb(&json::node(item)?),
            Part::Binary(json) => Ok(Datum::Json(json.to_json())),
        }
    }
}

/// A row of a type of a document, or, of a function that gives several, an array of them.
pub fn call(
    row: CompositeType,
    function: RecordFunction,
    args: &[DatumRef<'_>],
    io: &IoSettings,
) -> Result<Datum> {
    let [base, document] = args else {
        return Err(Error::internal("a document without its base"));
    };
    let text = match document {
        DatumRef::Text(text) => Some(json::parse(text, true)?),
        _ => None,
    };
    let part = match (&text, document) {
        (Some(item), _) => Part::Text(item),
        (None, DatumRef::Json(json)) => Part::Binary(*json),
        (None, DatumRef::Null) if function.set => return Ok(Datum::Null),
        (None, DatumRef::Null) => return Ok(base.to_datum()),
        (None, other) => return Err(Error::internal(format!("a row of {other:?}"))),
    };
    let base = match base {
        DatumRef::Composite(base) => Some(*base),
        _ => None,
    };
    match function.set {
        true => rows(row, function, base, part, io),
        false => populated(row, base, part, io),
    }
}

fn rows(
    row: CompositeType,
    function: RecordFunction,
    base: Option<CompositeRef<'_>>,
    document: Part<'_>,
    io: &IoSettings,
) -> Result<Datum> {
    let name = function.name();
    let parts = match document.kind() {
        Kind::Array(parts) => parts,
        _ if function.binary => {
            return Err(invalid(&format!("cannot call {name} on a non-array")));
        }
        Kind::Object => return Err(invalid(&format!("cannot call {name} on an object"))),
        _ => return Err(invalid(&format!("cannot call {name} on a scalar"))),
    };
    let mut made = Vec::with_capacity(parts.len());
    for part in parts {
        if !matches!(part.kind(), Kind::Object) {
            let message = format!("argument of {name} must be an array of objects");
            return Err(invalid(&message));
        }
        made.push(populated(row, base, part, io)?);
    }
    let element = Element::of(SqlType::Composite(row));
    let element = element.ok_or_else(|| Error::internal("rows of which there are no arrays"))?;
    pgtype::array::list(element, &made).map(Datum::Array)
}

fn populated(
    row: CompositeType,
    base: Option<CompositeRef<'_>>,
    document: Part<'_>,
    io: &IoSettings,
) -> Result<Datum> {
    match document.kind() {
        Kind::Object => {}
        Kind::Array(_) => return Err(invalid("cannot call populate_composite on an array")),
        _ => return Err(invalid("cannot call populate_composite on a scalar")),
    }
    let fields = row.fields().unwrap_or_default();
    let mut values = Vec::with_capacity(fields.len());
    for (at, f) in fields.iter().enumerate() {
        let before = base.and_then(|base| base.value(at)).unwrap_or_default();
        values.push(match document.get(&f.name) {
            Some(part) => value((f.ty, f.typmod), before, part, Some(&f.name), io)?,
            None => before.to_datum(),
        });
    }
    let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
    pgtype::composite::make(row, &values)
}

/// A part as a value of a type. `key` is where it stands, for hints.
fn value(
    (ty, typmod): (SqlType, i32),
    before: DatumRef<'_>,
    part: Part<'_>,
    key: Option<&str>,
    io: &IoSettings,
) -> Result<Datum> {
    let read = |text: &str| {
        let value = pgtype::text_in_typmod(ty, typmod, text, io)?;
        pgtype::apply_typmod(ty, typmod, value, false)
    };
    match (part.kind(), ty) {
        (Kind::Null, _) => Ok(Datum::Null),
        (_, SqlType::Json) => part.as_json(),
        (_, SqlType::Jsonb) => part.as_jsonb(),
        (Kind::String(s), _) => read(s),
        (_, SqlType::Array(element)) => {
            let mut array = Elements {
                of: (element, typmod),
                key,
                lengths: Vec::new(),
                place: Vec::new(),
                values: Vec::new(),
            };
            let length = array.take(part, 1, io)?;
            array.made(length)
        }
        (_, SqlType::Composite(row)) => {
            let before = match before {
                DatumRef::Composite(before) => Some(before),
                _ => None,
            };
            populated(row, before, part, io)
        }
        _ => match part.text()? {
            Datum::Text(text) => read(&text),
            other => Err(Error::internal(format!("{other:?} as a part's text"))),
        },
    }
}

/// The elements of an array as they are found.
struct Elements<'k> {
    of: (Element, i32),
    key: Option<&'k str>,
    /// Of each dimension, once it is known. The first element that is no array says how many
    /// dimensions there are.
    lengths: Vec<Option<usize>>,
    /// The subscripts, from 0, that lead to the part at hand.
    place: Vec<usize>,
    values: Vec<Datum>,
}

impl Elements<'_> {
    /// Takes the parts of an array that is so deep, the outermost 1, and gives its length.
    fn take(&mut self, part: Part<'_>, depth: usize, io: &IoSettings) -> Result<usize> {
        let Kind::Array(parts) = part.kind() else {
            return Err(self.no_array());
        };
        if self.lengths.is_empty() && !parts.first().is_some_and(|p| p.is_array()) {
            if depth > block::array::MAX_DIMENSIONS {
                return Err(pgtype::array::too_many_dimensions(depth));
            }
            self.lengths = vec![None; depth];
        }
        let length = parts.len();
        for (at, part) in parts.into_iter().enumerate() {
            if depth >= self.lengths.len() && !self.lengths.is_empty() {
                let (element, typmod) = self.of;
                let made = value((element.ty(), typmod), DatumRef::Null, part, None, io)?;
                self.values.push(made);
                continue;
            }
            self.place.push(at);
            let inner = self.take(part, depth + 1, io)?;
            self.place.pop();
            match self.lengths.get_mut(depth) {
                Some(known @ None) => *known = Some(inner),
                Some(Some(known)) if *known == inner => {}
                _ => return Err(malformed()),
            }
        }
        Ok(length)
    }

    fn made(self, length: usize) -> Result<Datum> {
        let element = self.of.0;
        if self.values.is_empty() {
            return pgtype::array::list(element, &[]).map(Datum::Array);
        }
        let inner = self.lengths.iter().skip(1).map(|l| l.unwrap_or(0));
        let dimension = |length: usize| {
            let length = i32::try_from(length).map_err(|_| pgtype::array::too_large())?;
            Ok(Dimension { length, lower: 1 })
        };
        let all = std::iter::once(length).chain(inner).map(dimension);
        let all = all.collect::<Result<Vec<_>>>()?;
        pgtype::array::make(element, &all, &self.values).map(Datum::Array)
    }

    fn no_array(&self) -> Error {
        let error = Error::new("22P02", "expected JSON array");
        let subscripts: String = self.place.iter().map(|at| format!("[{at}]")).collect();
        match (self.key, subscripts.is_empty()) {
            (Some(key), true) => error.hint(format!("See the value of key \"{key}\".")),
            (Some(key), false) => error.hint(format!(
                "See the array element {subscripts} of key \"{key}\"."
            )),
            (None, true) => error,
            (None, false) => error.hint(format!("See the array element {subscripts}.")),
        }
    }
}

fn malformed() -> Error {
    Error::new("22P02", "malformed JSON array")
        .detail("Multidimensional arrays must have sub-arrays with matching dimensions.")
}
