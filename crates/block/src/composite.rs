//! Rows as values: fields of types of their own.
//!
//! ```text
//! depth u8 | fields u16 | of each: type u8, number u32 | bitmap of NULLs, a bit a field
//! | values of the fields that are not NULL, as in rows
//! ```
//!
//! The *number* of a field says to `sql` which of its types the field has; nothing here reads it.
//! The *depth* is 1, or one more than that of the deepest row within.
//!
//! **Invariant.** What a [`CompositeRef`] stands for was read to its end when it was made, so that
//! its fields can be read without errors.

use std::cmp::Ordering;

use crate::key::{self, Order};
use crate::row;
use crate::value::{ColType, DatumRef};
use crate::{BlockError, Result};

/// Rows nest that deep at most, as what reads them recurses.
pub const MAX_DEPTH: usize = 100;
/// Fields of a row at most, PostgreSQL's limit.
pub const MAX_FIELDS: usize = 1664;

const HEAD: usize = 3;
const FIELD: usize = 5;

/// An owned row.
#[derive(Clone, PartialEq, Debug)]
pub struct Composite(Vec<u8>);

/// A row that lies somewhere else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CompositeRef<'a>(&'a [u8]);

/// What a field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FieldKind {
    pub ty: ColType,
    pub number: u32,
}

impl Composite {
    /// `None`: it would nest too deep, or has too many fields.
    pub fn new(kinds: &[FieldKind], values: &[DatumRef<'_>]) -> Option<Composite> {
        let depth = 1 + values.iter().map(|v| depth(*v)).max().unwrap_or(0);
        if depth > MAX_DEPTH || kinds.len() > MAX_FIELDS {
            return None;
        }
        let mut bytes = vec![depth as u8];
        bytes.extend_from_slice(&(kinds.len() as u16).to_le_bytes());
        for kind in kinds {
            bytes.push(kind.ty as u8);
            bytes.extend_from_slice(&kind.number.to_le_bytes());
        }
        let bitmap = bytes.len();
        bytes.resize(bitmap + values.len().div_ceil(8), 0);
        for (i, v) in values.iter().enumerate() {
            if v.is_null() {
                bytes[bitmap + i / 8] |= 1 << (i % 8);
            }
            row::encode_value(v, &mut bytes);
        }
        Some(Composite(bytes))
    }

    pub fn borrow(&self) -> CompositeRef<'_> {
        CompositeRef(&self.0)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How deep rows nest in a value.
fn depth(v: DatumRef<'_>) -> usize {
    match v {
        DatumRef::Composite(row) => usize::from(row.0[0]),
        DatumRef::Array(a) if a.element() == ColType::Composite => {
            a.values().map(depth).max().unwrap_or(0)
        }
        _ => 0,
    }
}

impl<'a> CompositeRef<'a> {
    /// Checks all of the bytes.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<CompositeRef<'a>> {
        let corrupt = || BlockError::corrupt("a row as a value is damaged");
        let head = bytes.first_chunk::<HEAD>().ok_or_else(corrupt)?;
        let fields = usize::from(u16::from_le_bytes([head[1], head[2]]));
        let bitmap = HEAD + fields * FIELD;
        if usize::from(head[0]) > MAX_DEPTH || bytes.len() < bitmap + fields.div_ceil(8) {
            return Err(corrupt());
        }
        let kinds = bytes[HEAD..bitmap].chunks_exact(FIELD);
        if !kinds.map(|k| ColType::from_u8(k[0])).all(|ty| ty.is_some()) {
            return Err(corrupt());
        }
        let row = CompositeRef(bytes);
        let mut values = row.reader();
        for kind in row.kinds() {
            let value = values.next_checked(kind.ty)?;
            if depth(value) >= usize::from(head[0]) {
                return Err(corrupt());
            }
        }
        match values.rest.is_empty() {
            true => Ok(row),
            false => Err(corrupt()),
        }
    }

    pub fn to_composite(self) -> Composite {
        Composite(self.0.to_vec())
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// How many fields it has.
    pub fn count(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[1], self.0[2]]))
    }

    pub fn kinds(self) -> impl ExactSizeIterator<Item = FieldKind> + 'a {
        let kinds = &self.0[HEAD..HEAD + self.count() * FIELD];
        kinds.chunks_exact(FIELD).map(|k| FieldKind {
            ty: ColType::from_u8(k[0]).expect("invariant: the types of fields were checked"),
            number: u32::from_le_bytes([k[1], k[2], k[3], k[4]]),
        })
    }

    pub fn values(self) -> impl Iterator<Item = DatumRef<'a>> {
        let mut values = self.reader();
        self.kinds().map(move |kind| {
            values
                .next_checked(kind.ty)
                .expect("invariant: the fields were checked")
        })
    }

    /// A field, from 0; `None`: it has not that many.
    pub fn value(self, at: usize) -> Option<DatumRef<'a>> {
        self.values().nth(at)
    }

    fn reader(self) -> Values<'a> {
        let at = HEAD + self.count() * FIELD;
        let bitmap = self.count().div_ceil(8);
        Values {
            bitmap: &self.0[at..at + bitmap],
            rest: &self.0[at + bitmap..],
            next: 0,
        }
    }

    /// Field by field, a NULL above all others; then the one with fewer fields first. The order of
    /// keys.
    pub fn compare(self, other: CompositeRef<'_>) -> Ordering {
        let key = |row: CompositeRef<'_>| {
            let mut key = Vec::new();
            key::push_column(
                &mut key,
                ColType::Composite,
                Order::ASC,
                DatumRef::Composite(row),
            );
            key
        };
        key(self).cmp(&key(other))
    }
}

struct Values<'a> {
    bitmap: &'a [u8],
    rest: &'a [u8],
    next: usize,
}

impl<'a> Values<'a> {
    fn next_checked(&mut self, ty: ColType) -> Result<DatumRef<'a>> {
        let i = self.next;
        self.next += 1;
        match self.bitmap[i / 8] >> (i % 8) & 1 {
            0 => row::take_value(ty, &mut self.rest),
            _ => Ok(DatumRef::Null),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Datum;
    use proptest::prelude::*;

    fn field() -> impl Strategy<Value = (ColType, Datum)> {
        prop_oneof![
            any::<i32>().prop_map(|v| (ColType::Int4, Datum::Int4(v))),
            "[a-c]{0,3}".prop_map(|v| (ColType::Text, Datum::Text(v))),
            Just((ColType::Date, Datum::Null)),
        ]
    }

    fn made(fields: &[(ColType, Datum)]) -> Composite {
        let kinds: Vec<FieldKind> = (fields.iter().zip(1..))
            .map(|((ty, _), number)| FieldKind { ty: *ty, number })
            .collect();
        let values: Vec<DatumRef<'_>> = fields.iter().map(|(_, v)| v.borrow()).collect();
        Composite::new(&kinds, &values).unwrap()
    }

    proptest! {
        #[test]
        fn rows_read_back(fields in proptest::collection::vec(field(), 0..20)) {
            let row = made(&fields);
            let read = CompositeRef::from_bytes(row.as_bytes()).unwrap();
            prop_assert_eq!(read.count(), fields.len());
            let values: Vec<Datum> = read.values().map(|v| v.to_datum()).collect();
            prop_assert!(values.iter().eq(fields.iter().map(|(_, v)| v)));
            let nested = made(&[(ColType::Composite, Datum::Composite(row))]);
            prop_assert!(CompositeRef::from_bytes(nested.as_bytes()).is_ok());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..60)) {
            if let Ok(row) = CompositeRef::from_bytes(&bytes) {
                prop_assert_eq!(row.values().count(), row.count());
            }
        }
    }

    #[test]
    fn rows_nest_a_hundred_deep() {
        let mut value = Datum::Int4(1);
        let mut ty = ColType::Int4;
        for _ in 0..MAX_DEPTH {
            value = Datum::Composite(made(&[(ty, value)]));
            ty = ColType::Composite;
        }
        let kind = FieldKind { ty, number: 1 };
        assert!(Composite::new(&[kind], &[value.borrow()]).is_none());
    }
}
