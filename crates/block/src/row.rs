//! Rows as bytes.
//!
//! ```text
//! columns u16 | bitmap of NULLs, a bit a column, (columns + 7) / 8 bytes
//! | values of the columns that are not NULL, in order
//! value of fixed length: little endian
//! value of variable length: length u8, or 255 and length u32, then the bytes
//! ```
//!
//! **Invariant.** The number of columns is the row's own. A table that has got columns since has
//! more. The missing ones stand for what the table's definition says they were before, so adding a
//! column rewrites nothing.

use crate::array::ArrayRef;
use crate::composite::CompositeRef;
use crate::folded::FoldedRef;
use crate::interval::Interval;
use crate::json::JsonRef;
use crate::numeric::NumericRef;
use crate::value::{ColType, DatumRef};
use crate::{BlockError, Result};

/// The length from which on a variable value has a four-byte length.
const LONG: usize = 255;

/// Appends a row to `out`. `values` have the columns' types; the caller has checked that.
pub fn encode(values: &[DatumRef<'_>], out: &mut Vec<u8>) {
    let columns =
        u16::try_from(values.len()).expect("invariant: a table has fewer columns than 65,536");
    out.extend_from_slice(&columns.to_le_bytes());
    let bitmap = out.len();
    out.resize(bitmap + values.len().div_ceil(8), 0);
    for (i, v) in values.iter().enumerate() {
        if v.is_null() {
            out[bitmap + i / 8] |= 1 << (i % 8);
        }
        encode_value(v, out);
    }
}

/// Appends a value; of NULL nothing.
pub(crate) fn encode_value(v: &DatumRef<'_>, out: &mut Vec<u8>) {
    match *v {
        DatumRef::Null => {}
        DatumRef::Bool(v) => out.push(v.into()),
        DatumRef::Int2(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Int4(v) | DatumRef::Date(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Int8(v) | DatumRef::Timestamp(v) | DatumRef::TimestampTz(v) => {
            out.extend_from_slice(&v.to_le_bytes())
        }
        DatumRef::Float4(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Float8(v) => out.extend_from_slice(&v.to_le_bytes()),
        DatumRef::Uuid(v) => out.extend_from_slice(&v),
        DatumRef::Interval(v) => out.extend_from_slice(&v.to_bytes()),
        DatumRef::Array(v) => put_variable(v.as_bytes(), out),
        DatumRef::Json(v) => put_variable(v.as_bytes(), out),
        DatumRef::Composite(v) => put_variable(v.as_bytes(), out),
        DatumRef::Numeric(v) => put_variable(v.as_bytes(), out),
        DatumRef::Text(v) | DatumRef::Folded(FoldedRef(v)) => put_variable(v.as_bytes(), out),
        DatumRef::Bytea(v) => put_variable(v, out),
    }
}

/// How many bytes a value takes in a row; of NULL none, but for its bit.
pub fn stored_bytes(value: DatumRef<'_>) -> usize {
    let mut bytes = Vec::new();
    encode_value(&value, &mut bytes);
    bytes.len()
}

fn put_variable(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.len() < LONG {
        out.push(bytes.len() as u8);
    } else {
        let len = u32::try_from(bytes.len()).expect("invariant: a value is smaller than 4 GiB");
        out.push(LONG as u8);
        out.extend_from_slice(&len.to_le_bytes());
    }
    out.extend_from_slice(bytes);
}

/// Walks over a row's columns from the first on, and gives each or steps over it.
pub struct RowReader<'a> {
    bitmap: &'a [u8],
    rest: &'a [u8],
    columns: usize,
    next: usize,
}

fn short() -> BlockError {
    BlockError::corrupt("row is cut short")
}

impl<'a> RowReader<'a> {
    pub fn new(row: &'a [u8]) -> Result<RowReader<'a>> {
        let (count, rest) = row.split_at_checked(2).ok_or_else(short)?;
        let columns = u16::from_le_bytes([count[0], count[1]]) as usize;
        let (bitmap, rest) = rest
            .split_at_checked(columns.div_ceil(8))
            .ok_or_else(short)?;
        Ok(RowReader {
            bitmap,
            rest,
            columns,
            next: 0,
        })
    }

    /// The number of columns that the row has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The next column. None once the row has no more.
    #[inline]
    pub fn value(&mut self, ty: ColType) -> Result<Option<DatumRef<'a>>> {
        match self.enter() {
            Step::End => Ok(None),
            Step::Null => Ok(Some(DatumRef::Null)),
            Step::Value => take_value(ty, &mut self.rest).map(Some),
        }
    }

    /// Steps over the next column.
    #[inline]
    pub fn skip(&mut self, ty: ColType) -> Result<()> {
        if let Step::Value = self.enter() {
            match ty.fixed_len() {
                Some(len) => take_bytes(&mut self.rest, len)?,
                None => take_variable(&mut self.rest)?,
            };
        }
        Ok(())
    }

    #[inline]
    fn enter(&mut self) -> Step {
        let i = self.next;
        if i == self.columns {
            return Step::End;
        }
        self.next += 1;
        match self.bitmap[i / 8] >> (i % 8) & 1 {
            0 => Step::Value,
            _ => Step::Null,
        }
    }
}

enum Step {
    End,
    Null,
    Value,
}

#[inline]
fn take_bytes<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(len).ok_or_else(short)?;
    *rest = after;
    Ok(bytes)
}

#[inline]
fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or_else(short)?;
    *rest = after;
    Ok(*bytes)
}

#[inline]
pub(crate) fn take_variable<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8]> {
    let [first] = take(rest)?;
    let len = match usize::from(first) {
        LONG => u32::from_le_bytes(take(rest)?) as usize,
        len => len,
    };
    take_bytes(rest, len)
}

#[inline]
fn take_text<'a>(rest: &mut &'a [u8]) -> Result<&'a str> {
    let bytes = take_variable(rest)?;
    std::str::from_utf8(bytes).map_err(|_| BlockError::corrupt("text is not UTF-8"))
}

/// Reads a value that is not NULL from the front of `rest`.
#[inline]
pub(crate) fn take_value<'a>(ty: ColType, rest: &mut &'a [u8]) -> Result<DatumRef<'a>> {
    Ok(match ty {
        ColType::Int4 => DatumRef::Int4(i32::from_le_bytes(take(rest)?)),
        ColType::Int8 => DatumRef::Int8(i64::from_le_bytes(take(rest)?)),
        ColType::Float8 => DatumRef::Float8(f64::from_le_bytes(take(rest)?)),
        ColType::Text | ColType::Varchar | ColType::Char => DatumRef::Text(take_text(rest)?),
        ColType::Bool => DatumRef::Bool(take::<1>(rest)? != [0]),
        ColType::Int2 => DatumRef::Int2(i16::from_le_bytes(take(rest)?)),
        ColType::Float4 => DatumRef::Float4(f32::from_le_bytes(take(rest)?)),
        ColType::Date => DatumRef::Date(i32::from_le_bytes(take(rest)?)),
        ColType::Timestamp => DatumRef::Timestamp(i64::from_le_bytes(take(rest)?)),
        ColType::TimestampTz => DatumRef::TimestampTz(i64::from_le_bytes(take(rest)?)),
        ColType::Uuid => DatumRef::Uuid(take(rest)?),
        ColType::Interval => DatumRef::Interval(Interval::from_bytes(take(rest)?)),
        ColType::Array => DatumRef::Array(ArrayRef::from_bytes(take_variable(rest)?)?),
        ColType::Json => DatumRef::Json(JsonRef::from_bytes(take_variable(rest)?)?),
        ColType::Composite => DatumRef::Composite(CompositeRef::from_bytes(take_variable(rest)?)?),
        ColType::Numeric => DatumRef::Numeric(NumericRef::from_bytes(take_variable(rest)?)?),
        ColType::Bytea => DatumRef::Bytea(take_variable(rest)?),
        ColType::Folded => DatumRef::Folded(FoldedRef(take_text(rest)?)),
    })
}

/// Appends the row's first `needed` columns, or fewer if the row has fewer.
///
/// Each value is made where it will stay. A value handed on through a `Result<Option<_>>` is copied
/// in other pieces than it was stored in. That makes the forwarding of stores fail, which costs a
/// third of a scan's time.
pub fn decode_prefix<'a>(
    row: &'a [u8],
    columns: &[ColType],
    needed: usize,
    out: &mut Vec<DatumRef<'a>>,
) -> Result<()> {
    let mut r = RowReader::new(row)?;
    out.reserve(needed);
    for &ty in &columns[..needed] {
        match r.enter() {
            Step::End => break,
            Step::Null => out.push(DatumRef::Null),
            Step::Value => match ty {
                ColType::Int4 => out.push(DatumRef::Int4(i32::from_le_bytes(take(&mut r.rest)?))),
                ColType::Int8 => out.push(DatumRef::Int8(i64::from_le_bytes(take(&mut r.rest)?))),
                ColType::Float8 => {
                    out.push(DatumRef::Float8(f64::from_le_bytes(take(&mut r.rest)?)))
                }
                ty => out.push(take_value(ty, &mut r.rest)?),
            },
        }
    }
    Ok(())
}

/// One column of a row. None if the row does not have it.
pub fn column<'a>(row: &'a [u8], columns: &[ColType], at: usize) -> Result<Option<DatumRef<'a>>> {
    let mut r = RowReader::new(row)?;
    for &ty in &columns[..at] {
        r.skip(ty)?;
    }
    r.value(columns[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Datum;
    use proptest::prelude::*;

    fn any_value() -> impl Strategy<Value = (ColType, Datum)> {
        let typed = prop_oneof![
            any::<bool>().prop_map(|v| (ColType::Bool, Datum::Bool(v))),
            any::<i16>().prop_map(|v| (ColType::Int2, Datum::Int2(v))),
            any::<i32>().prop_map(|v| (ColType::Int4, Datum::Int4(v))),
            any::<i64>().prop_map(|v| (ColType::Int8, Datum::Int8(v))),
            any::<i64>().prop_map(|v| (ColType::TimestampTz, Datum::TimestampTz(v))),
            (-1e300f64..1e300).prop_map(|v| (ColType::Float8, Datum::Float8(v))),
            any::<[u8; 16]>().prop_map(|v| (ColType::Uuid, Datum::Uuid(v))),
            any::<[u8; 16]>()
                .prop_map(|v| { (ColType::Interval, Datum::Interval(Interval::from_bytes(v)),) }),
            any::<i64>().prop_map(|v| (ColType::Numeric, Datum::Numeric(v.into()))),
            "\\PC{0,600}".prop_map(|v| (ColType::Text, Datum::Text(v))),
            proptest::collection::vec(any::<u8>(), 0..600)
                .prop_map(|v| (ColType::Bytea, Datum::Bytea(v))),
        ];
        (typed, any::<bool>()).prop_map(|((ty, v), null)| (ty, if null { Datum::Null } else { v }))
    }

    proptest! {
        #[test]
        fn rows_read_back(columns in proptest::collection::vec(any_value(), 0..20)) {
            let types: Vec<_> = columns.iter().map(|c| c.0).collect();
            let values: Vec<_> = columns.iter().map(|c| c.1.borrow()).collect();
            let mut row = Vec::new();
            encode(&values, &mut row);
            let mut back = Vec::new();
            decode_prefix(&row, &types, types.len(), &mut back).unwrap();
            prop_assert_eq!(&back, &values);
            for (at, value) in values.iter().enumerate() {
                prop_assert_eq!(column(&row, &types, at).unwrap(), Some(*value));
            }
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), columns in proptest::collection::vec(any_value(), 0..20)) {
            let types: Vec<_> = columns.iter().map(|c| c.0).collect();
            let _ = decode_prefix(&bytes, &types, types.len(), &mut Vec::new());
        }
    }

    #[test]
    fn a_row_older_than_its_table_has_fewer_columns() {
        let mut row = Vec::new();
        encode(&[DatumRef::Int4(7)], &mut row);
        let types = [ColType::Int4, ColType::Text];
        assert_eq!(column(&row, &types, 1).unwrap(), None);
        let mut out = Vec::new();
        decode_prefix(&row, &types, 2, &mut out).unwrap();
        assert_eq!(out, [DatumRef::Int4(7)]);
    }
}
