//! Functions and operators of `json` and `jsonb`. A value of `json` is text here, one of `jsonb` a
//! document, so that one function serves both where PostgreSQL has two.

mod assign;
mod change;
mod make;
mod moment;
pub mod path;
mod populate;
mod read;

use block::array::ArrayRef;
use block::value::{Datum, DatumRef};

use super::{Calls, Env, Expr, Val};
use crate::error::{Error, Result};
use crate::pgtype::json;
use crate::query::record_function::RecordFunction;
use crate::types::SqlType;
use crate::types::composite::CompositeType;

pub use read::{scalar, shown, shown_item};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonFunc {
    /// `->`, and with `text` `->>`: the value of a key or an element.
    Get {
        text: bool,
    },
    /// `#>` and `#>>`: what is at the end of a path, which is an array.
    Path {
        text: bool,
    },
    /// The same of a path whose steps are arguments.
    Extract {
        text: bool,
    },
    /// A row of a type of a base and a document, or an array of rows.
    Populate {
        row: CompositeType,
        function: RecordFunction,
    },
    Typeof,
    ArrayLength,
    /// What a path leads to.
    /// `zoned`: times without a time zone are where the session is.
    Follow {
        question: path::Question,
        zoned: bool,
    },
    StripNulls,
    Pretty,
    Contains,
    ContainedBy,
    Exists,
    ExistsAny,
    ExistsAll,
    Concat,
    /// `-` a key, a place or several keys.
    Delete,
    DeletePath,
    Set,
    SetLax,
    Insert,
    /// The document with a part given another value; in place of NULL an array or an object.
    Assign {
        is_array: bool,
    },
    /// A value of a type as json or jsonb; NULL stays NULL unless it is to be `null`.
    Make {
        of: SqlType,
        binary: bool,
        nulls: bool,
    },
    /// Of an array, with a line for each element if the second argument says so.
    OfArray(SqlType),
    BuildArray {
        binary: bool,
    },
    /// Of keys and values by turns.
    BuildObject {
        binary: bool,
    },
    /// Of texts: keys and values by turns, or in two arrays.
    OfTexts {
        binary: bool,
    },
}

impl JsonFunc {
    /// Whether the session's settings have no part in the result.
    pub fn is_immutable(self) -> bool {
        match self {
            JsonFunc::Make { of, .. } | JsonFunc::OfArray(of) => {
                !of.element().unwrap_or(of).has_styles()
            }
            JsonFunc::Populate { .. } => false,
            JsonFunc::Follow { zoned, .. } => !zoned,
            _ => true,
        }
    }

    /// Whether NULLs are arguments as others.
    pub fn takes_nulls(self) -> bool {
        use JsonFunc::{Assign, BuildArray, BuildObject, Make, Populate, SetLax};
        matches!(
            self,
            Assign { .. }
                | BuildArray { .. }
                | BuildObject { .. }
                | Make { .. }
                | Populate { .. }
                | SetLax
        )
    }
}

pub fn call(
    func: JsonFunc,
    args: &[Expr],
    env: &Env<'_>,
    calls: &mut dyn Calls,
) -> Result<Val<'static>> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        let value = arg.eval(env, calls)?;
        if value.is_null() && !func.takes_nulls() {
            return Ok(Val::NULL);
        }
        values.push(value);
    }
    let args: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    let made = match (func, args.as_slice()) {
        (JsonFunc::Get { text }, [of, at]) => read::get(*of, *at, text)?,
        (JsonFunc::Path { text }, [of, DatumRef::Array(path)]) => {
            read::path(*of, &texts(*path)?, text)?
        }
        (JsonFunc::Extract { text }, [of, steps @ ..]) => {
            let steps = steps.iter().map(|s| optional_text(*s));
            read::path(*of, &steps.collect::<Result<Vec<_>>>()?, text)?
        }
        (JsonFunc::Populate { row, function }, args) => {
            populate::call(row, function, args, calls.io())?
        }
        (JsonFunc::Follow { question, zoned }, args) => {
            path::call(question, args, zoned.then(|| calls.io()))?
        }
        (JsonFunc::Typeof, [of]) => Datum::Text(read::type_of(*of)?.to_string()),
        (JsonFunc::ArrayLength, [of]) => Datum::Int4(read::array_length(*of)?),
        (JsonFunc::StripNulls, [of]) => change::strip_nulls(*of)?,
        (JsonFunc::Pretty, [DatumRef::Json(of)]) => {
            let mut out = Vec::new();
            json::write_pretty(*of, &mut out);
            as_text(out)?
        }
        (JsonFunc::Contains, [DatumRef::Json(a), DatumRef::Json(b)])
        | (JsonFunc::ContainedBy, [DatumRef::Json(b), DatumRef::Json(a)]) => {
            Datum::Bool(read::contains(*a, *b))
        }
        (JsonFunc::Exists, [DatumRef::Json(of), DatumRef::Text(key)]) => {
            Datum::Bool(read::exists(*of, key))
        }
        (
            JsonFunc::ExistsAny | JsonFunc::ExistsAll,
            [DatumRef::Json(of), DatumRef::Array(keys)],
        ) => {
            let keys = texts(*keys)?;
            let mut found = keys.iter().flatten().map(|key| read::exists(*of, key));
            Datum::Bool(match func {
                JsonFunc::ExistsAny => found.any(|found| found),
                _ => found.all(|found| found),
            })
        }
        (JsonFunc::Concat, [DatumRef::Json(a), DatumRef::Json(b)]) => change::concat(*a, *b)?,
        (JsonFunc::Delete, [DatumRef::Json(of), what]) => change::delete(*of, *what)?,
        (JsonFunc::DeletePath, [DatumRef::Json(of), DatumRef::Array(path)]) => {
            change::delete_path(*of, *path)?
        }
        (
            JsonFunc::Set,
            [
                DatumRef::Json(of),
                DatumRef::Array(path),
                DatumRef::Json(new),
                rest @ ..,
            ],
        ) => change::set(*of, *path, *new, !matches!(rest, [DatumRef::Bool(false)]))?,
        (
            JsonFunc::Insert,
            [
                DatumRef::Json(of),
                DatumRef::Array(path),
                DatumRef::Json(new),
                rest @ ..,
            ],
        ) => change::insert(*of, *path, *new, matches!(rest, [DatumRef::Bool(true)]))?,
        (JsonFunc::Assign { is_array }, args) => assign::call(args, is_array)?,
        (JsonFunc::SetLax, args) => change::set_lax(args)?,
        (JsonFunc::Make { of, binary, nulls }, [value]) => match value.is_null() && !nulls {
            true => Datum::Null,
            false => make::value(of, *value, binary, calls.io())?,
        },
        (JsonFunc::OfArray(of), [value, rest @ ..]) => {
            let lines = matches!(rest, [DatumRef::Bool(true)]);
            make::of_array(of, *value, lines, calls.io())?
        }
        (JsonFunc::BuildArray { binary }, parts) => make::build_array(parts, binary)?,
        (JsonFunc::BuildObject { binary }, parts) => make::build_object(parts, binary)?,
        (JsonFunc::OfTexts { binary }, parts) => make::of_texts(parts, binary)?,
        (func, args) => return Err(Error::internal(format!("{func:?} of {args:?}"))),
    };
    Ok(Val::Own(made))
}

fn as_text(bytes: Vec<u8>) -> Result<Datum> {
    let text = String::from_utf8(bytes);
    text.map(Datum::Text)
        .map_err(|_| Error::internal("json that is not UTF-8"))
}

fn optional_text(d: DatumRef<'_>) -> Result<Option<&str>> {
    match d {
        DatumRef::Null => Ok(None),
        DatumRef::Text(t) => Ok(Some(t)),
        other => Err(Error::internal(format!("{other:?} is no text"))),
    }
}

fn texts(a: ArrayRef<'_>) -> Result<Vec<Option<&str>>> {
    a.values().map(optional_text).collect()
}

/// The steps of a path that is to be changed, or keys to be removed.
fn one_dimension(a: ArrayRef<'_>) -> Result<Vec<Option<&str>>> {
    if a.dimensions().len() > 1 {
        return Err(Error::new("2202E", "wrong number of array subscripts"));
    }
    texts(a)
}

fn invalid(message: &str) -> Error {
    Error::new("22023", message.to_string())
}
