//! What a value is in bytes: its binary form, and how many bytes it takes in a row of a table. None
//! is called with NULL.

use block::row;
use block::value::{Datum, DatumRef};

use super::Val;
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
