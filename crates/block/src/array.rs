//! Arrays as values: elements of one type in up to six dimensions.
//!
//! ```text
//! element type u8 | dimensions u8 | of each: length i32, lower bound i32
//! | bitmap of NULLs, a bit an element | elements that are not NULL, as in rows
//! ```
//!
//! **Invariant.** What an [`ArrayRef`] stands for was read to its end when it was made, so that its
//! elements can be read without errors.

use std::cmp::Ordering;

use crate::key::{self, Order};
use crate::row;
use crate::value::{ColType, Datum, DatumRef};
use crate::{BlockError, Result};

pub const MAX_DIMENSIONS: usize = 6;
/// Elements that an array has at most.
pub const MAX_ELEMENTS: usize = 134_217_727;

const HEAD: usize = 2;
const DIMENSION: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub length: i32,
    pub lower: i32,
}

/// An owned array.
#[derive(Clone, PartialEq, Debug)]
pub struct Array(Vec<u8>);

/// An array that lies somewhere else.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ArrayRef<'a>(&'a [u8]);

impl Array {
    /// An array of as many elements as its dimensions have together; without elements it has no
    /// dimensions.
    pub fn new(element: ColType, dimensions: &[Dimension], values: &[Datum]) -> Array {
        let dimensions = if values.is_empty() { &[] } else { dimensions };
        let mut bytes = vec![element as u8, dimensions.len() as u8];
        for d in dimensions {
            bytes.extend_from_slice(&d.length.to_le_bytes());
            bytes.extend_from_slice(&d.lower.to_le_bytes());
        }
        let bitmap = bytes.len();
        bytes.resize(bitmap + values.len().div_ceil(8), 0);
        for (i, v) in values.iter().enumerate() {
            if v.is_null() {
                bytes[bitmap + i / 8] |= 1 << (i % 8);
            }
            row::encode_value(&v.borrow(), &mut bytes);
        }
        Array(bytes)
    }

    /// An array of one dimension that counts from 1.
    pub fn of(element: ColType, values: &[Datum]) -> Array {
        let length =
            i32::try_from(values.len()).expect("invariant: an array has an i32 of elements");
        Array::new(element, &[Dimension { length, lower: 1 }], values)
    }

    pub fn borrow(&self) -> ArrayRef<'_> {
        ArrayRef(&self.0)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<'a> ArrayRef<'a> {
    /// Checks all of the bytes.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<ArrayRef<'a>> {
        let corrupt = || BlockError::corrupt("an array is damaged");
        let head = bytes.first_chunk::<HEAD>().ok_or_else(corrupt)?;
        let element = ColType::from_u8(head[0]).ok_or_else(corrupt)?;
        let dimensions = usize::from(head[1]);
        if dimensions > MAX_DIMENSIONS || bytes.len() < HEAD + dimensions * DIMENSION {
            return Err(corrupt());
        }
        let array = ArrayRef(bytes);
        let mut count = i64::from(dimensions > 0);
        for d in array.dimensions() {
            if d.length <= 0 || d.lower.checked_add(d.length).is_none() {
                return Err(corrupt());
            }
            count = count.saturating_mul(d.length.into());
        }
        let bitmap = HEAD + dimensions * DIMENSION;
        let room = bytes.len() - bitmap;
        let fits = usize::try_from(count).is_ok_and(|n| n <= MAX_ELEMENTS && n.div_ceil(8) <= room);
        if !fits {
            return Err(corrupt());
        }
        let mut values = array.reader();
        for _ in 0..count {
            // Elements may be arrays whose own elements are none: bytes cannot nest further.
            match element {
                ColType::Array => values.next_array()?,
                _ => values.next_checked().map(drop)?,
            }
        }
        match values.rest.is_empty() {
            true => Ok(array),
            false => Err(corrupt()),
        }
    }

    pub fn to_array(self) -> Array {
        Array(self.0.to_vec())
    }

    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    pub fn element(self) -> ColType {
        ColType::from_u8(self.0[0]).expect("invariant: the element type was checked")
    }

    pub fn dimensions(self) -> impl ExactSizeIterator<Item = Dimension> + 'a {
        let count = usize::from(self.0[1]);
        let words = &self.0[HEAD..HEAD + count * DIMENSION];
        words.chunks_exact(DIMENSION).map(|d| Dimension {
            length: i32::from_le_bytes([d[0], d[1], d[2], d[3]]),
            lower: i32::from_le_bytes([d[4], d[5], d[6], d[7]]),
        })
    }

    /// How many elements it has.
    pub fn count(self) -> usize {
        match self.0[1] {
            0 => 0,
            _ => self.dimensions().map(|d| d.length as usize).product(),
        }
    }

    /// All elements, those of the last dimension side by side.
    pub fn values(self) -> impl Iterator<Item = DatumRef<'a>> {
        let mut values = self.reader();
        (0..self.count()).map(move |_| {
            values
                .next_checked()
                .expect("invariant: the elements were checked")
        })
    }

    fn reader(self) -> Values<'a> {
        let at = HEAD + usize::from(self.0[1]) * DIMENSION;
        let bitmap = self.count().div_ceil(8);
        Values {
            element: self.element(),
            bitmap: &self.0[at..at + bitmap],
            rest: &self.0[at + bitmap..],
            next: 0,
        }
    }

    /// As PostgreSQL orders arrays: element by element, a NULL above all others; then the shorter
    /// one first, then by dimensions. The order of keys.
    pub fn compare(self, other: ArrayRef<'_>) -> Ordering {
        let (mut l, mut r) = (Vec::new(), Vec::new());
        for (a, b) in self.values().zip(other.values()) {
            l.clear();
            r.clear();
            key::push_column(&mut l, self.element(), Order::ASC, a);
            key::push_column(&mut r, other.element(), Order::ASC, b);
            match l.cmp(&r) {
                Ordering::Equal => {}
                order => return order,
            }
        }
        let shape = |a: ArrayRef<'_>| (a.count(), a.0[1]);
        let lengths = |a: ArrayRef<'_>| a.dimensions().map(|d| d.length).collect::<Vec<_>>();
        let lowers = |a: ArrayRef<'_>| a.dimensions().map(|d| d.lower).collect::<Vec<_>>();
        shape(self)
            .cmp(&shape(other))
            .then_with(|| lengths(self).cmp(&lengths(other)))
            .then_with(|| lowers(self).cmp(&lowers(other)))
    }
}

struct Values<'a> {
    element: ColType,
    bitmap: &'a [u8],
    rest: &'a [u8],
    next: usize,
}

impl<'a> Values<'a> {
    /// Checks the next element, an array whose elements are no arrays in turn: a multirange is one
    /// of rows.
    fn next_array(&mut self) -> Result<()> {
        let mut ahead = self.rest;
        let is_null = self.bitmap[self.next / 8] >> (self.next % 8) & 1 == 1;
        if !is_null && row::take_variable(&mut ahead)?.first() == Some(&(ColType::Array as u8)) {
            return Err(BlockError::corrupt("an array is damaged"));
        }
        self.next_checked().map(drop)
    }

    fn next_checked(&mut self) -> Result<DatumRef<'a>> {
        let i = self.next;
        self.next += 1;
        match self.bitmap[i / 8] >> (i % 8) & 1 {
            0 => row::take_value(self.element, &mut self.rest),
            _ => Ok(DatumRef::Null),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arrays_read_back(values in proptest::collection::vec(proptest::option::of("[a-c]{0,3}"), 0..20)) {
            let values: Vec<Datum> = values.into_iter().map(|v| v.map_or(Datum::Null, Datum::Text)).collect();
            let array = Array::of(ColType::Text, &values);
            let read = ArrayRef::from_bytes(array.as_bytes()).unwrap();
            prop_assert_eq!(read.count(), values.len());
            prop_assert_eq!(read.values().map(|v| v.to_datum()).collect::<Vec<_>>(), values);
        }

        #[test]
        fn arrays_of_arrays_read_back(lengths in proptest::collection::vec(proptest::option::of(0..4usize), 0..9)) {
            let inner = |n| Datum::Array(Array::of(ColType::Int4, &vec![Datum::Int4(7); n]));
            let values: Vec<Datum> = lengths.into_iter().map(|n| n.map_or(Datum::Null, inner)).collect();
            let array = Array::of(ColType::Array, &values);
            let read = ArrayRef::from_bytes(array.as_bytes()).unwrap();
            prop_assert_eq!(read.values().map(|v| v.to_datum()).collect::<Vec<_>>(), values.clone());
            // They nest once, however deep damaged bytes go.
            let deeper = Array::of(ColType::Array, &[Datum::Array(array)]);
            prop_assert!(ArrayRef::from_bytes(deeper.as_bytes()).is_err());
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(prop_oneof![0u8..20, any::<u8>()], 0..60)) {
            if let Ok(array) = ArrayRef::from_bytes(&bytes) {
                prop_assert_eq!(array.values().count(), array.count());
            }
        }
    }
}
