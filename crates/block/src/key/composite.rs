//! Keys of rows as values.

use super::{END, NULL_LAST, Order, Reader, VALUE, push_column};
use crate::composite::{Composite, CompositeRef, FieldKind, MAX_FIELDS};
use crate::value::{ColType, Datum, DatumRef};
use crate::{BlockError, Result};

/// As for arrays, the end sorts before any field.
pub(super) fn put(out: &mut Vec<u8>, v: CompositeRef<'_>) {
    for (kind, field) in v.kinds().zip(v.values()) {
        out.push(kind.ty as u8);
        push_column(out, kind.ty, Order::ASC, field);
    }
    out.push(END);
}

impl Reader<'_> {
    pub(super) fn fields(&mut self) -> Result<Composite> {
        let damaged = || BlockError::corrupt("an index key has a damaged row");
        let (mut kinds, mut values) = (Vec::new(), Vec::new());
        loop {
            let ty = match self.byte()? {
                END => break,
                ty => ColType::from_u8(ty).ok_or_else(damaged)?,
            };
            kinds.push(FieldKind { ty, number: 0 });
            values.push(match self.byte()? {
                VALUE => self.value(ty)?,
                NULL_LAST => Datum::Null,
                _ => return Err(damaged()),
            });
            if kinds.len() > MAX_FIELDS {
                return Err(damaged());
            }
        }
        let values: Vec<DatumRef<'_>> = values.iter().map(Datum::borrow).collect();
        Composite::new(&kinds, &values).ok_or_else(damaged)
    }
}
