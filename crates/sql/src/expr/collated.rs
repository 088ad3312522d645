//! Functions of strings by a collation.

use block::value::{Datum, DatumRef};

use super::Val;
use crate::collate::Collation;
use crate::error::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collated {
    /// Bytes that compare as the string does, and the string of them.
    Key(Collation),
    Text(Collation),
    /// `lower` and `upper`.
    Case {
        collation: Collation,
        upper: bool,
    },
    /// `initcap` of letters of ASCII.
    Initcap,
}

pub fn call(func: Collated, values: &[Val<'_>]) -> Result<Val<'static>> {
    Ok(match (func, values.first().map(Val::get)) {
        (Collated::Key(by), Some(DatumRef::Text(text))) => Val::Own(Datum::Bytea(by.key(text)?)),
        (Collated::Text(by), Some(DatumRef::Bytea(key))) => {
            Val::text(by.text_of_key(key)?.to_string())
        }
        (Collated::Case { collation, upper }, Some(DatumRef::Text(text))) => {
            Val::text(match upper {
                true => collation.upper(text),
                false => collation.lower(text),
            })
        }
        (Collated::Initcap, Some(DatumRef::Text(text))) => {
            let mut inside = false;
            let capitals = text.chars().map(|c| {
                let shown = match inside {
                    true => c.to_ascii_lowercase(),
                    false => c.to_ascii_uppercase(),
                };
                inside = c.is_ascii_alphanumeric();
                shown
            });
            Val::text(capitals.collect())
        }
        (func, other) => return Err(Error::internal(format!("{func:?} of {other:?}"))),
    })
}
