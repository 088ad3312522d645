//! What a value is in bytes: its binary form, how many bytes it takes in a row of a table, and what
//! the comparison functions of PostgreSQL give. None is called with NULL.

use block::row;
use block::value::{Datum, DatumRef};

use super::{Val, compare};
use crate::error::Result;
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stored {
    /// `float8send` and its kin, of a value of that type.
    Sent(SqlType),
    /// `pg_column_size`.
    Size,
}

impl Stored {
    pub fn is_immutable(self) -> bool {
        // Strings are sent in the client's encoding.
        matches!(self, Stored::Sent(ty) if ty.is_number())
    }
}

pub fn call(func: Stored, value: DatumRef<'_>, io: &IoSettings) -> Result<Val<'static>> {
    match func {
        Stored::Sent(ty) => {
            let mut bytes = Vec::new();
            pgtype::binary_out(ty, value, io.encoding, &mut bytes)?;
            Ok(Val::Own(Datum::Bytea(bytes)))
        }
        Stored::Size => {
            let size = row::stored_bytes(value);
            Ok(Val::int4(i32::try_from(size).unwrap_or(i32::MAX)))
        }
    }
}

/// How two values are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compared {
    /// By the first bytes that differ.
    Bytes,
    /// The same, without the blanks at their ends.
    Padded,
    Values,
}

/// The order of two values, with PostgreSQL's numbers: of bytes the difference of the first ones
/// that differ, of small integers theirs.
pub fn order(left: DatumRef<'_>, right: DatumRef<'_>, how: Compared) -> Result<i32> {
    let sign = |order: std::cmp::Ordering| order as i32;
    let of_bytes = |l: &[u8], r: &[u8]| {
        let differing = l.iter().zip(r).find(|(l, r)| l != r);
        differing.map_or(sign(l.len().cmp(&r.len())), |(l, r)| {
            i32::from(*l) - i32::from(*r)
        })
    };
    Ok(match (left, right) {
        (DatumRef::Int2(l), DatumRef::Int2(r)) => i32::from(l) - i32::from(r),
        (DatumRef::Bytea(l), DatumRef::Bytea(r)) if how == Compared::Bytes => of_bytes(l, r),
        (DatumRef::Text(l), DatumRef::Text(r)) if how == Compared::Padded => {
            let l = l.trim_end_matches(' ');
            of_bytes(l.as_bytes(), r.trim_end_matches(' ').as_bytes())
        }
        (DatumRef::Text(l), DatumRef::Text(r)) => of_bytes(l.as_bytes(), r.as_bytes()),
        (left, right) => sign(compare(left, right)?),
    })
}
