//! Arrow arrays of stored values, a column of a batch at a time (out of them: [`super::arrow`]).
//!
//! Values of one size are gathered from the rows of a block in one loop without a test, which is what a scan spends most of its time in.

use std::sync::Arc;

use block::value::{ColType, DatumRef};
use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanBuilder, Decimal128Builder,
    NullBufferBuilder, PrimitiveArray, StringBuilder,
};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};

use super::arrow::{EPOCH_DAYS, EPOCH_MICROS};
use crate::error::{Error, Result};
use crate::expr::moments;

/// Fills one column of a batch.
pub enum Builder {
    Bool(BooleanBuilder),
    Int2(Fixed<Int16Type>),
    Int4(Fixed<Int32Type>),
    Int8(Fixed<Int64Type>),
    Float4(Fixed<Float32Type>),
    Float8(Fixed<Float64Type>),
    Numeric(Decimal128Builder, i8),
    Text(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Fixed<Date32Type>),
    Timestamp(Fixed<TimestampMicrosecondType>),
}

/// Values of one size.
pub struct Fixed<T: ArrowPrimitiveType> {
    values: Vec<T::Native>,
    nulls: NullBufferBuilder,
    ty: DataType,
    /// Values to make room for.
    room: usize,
}

impl<T: ArrowPrimitiveType> Fixed<T> {
    fn new(ty: &DataType, room: usize) -> Fixed<T> {
        Fixed {
            values: Vec::with_capacity(room),
            nulls: NullBufferBuilder::new(room),
            ty: ty.clone(),
            room,
        }
    }

    #[inline]
    fn append_value(&mut self, value: T::Native) {
        self.values.push(value);
        self.nulls.append_non_null();
    }

    fn append_null(&mut self) {
        self.values.push(T::Native::default());
        self.nulls.append_null();
    }

    /// Adds what `read` makes of the bytes at `at` of each row.
    #[inline]
    fn gather<const N: usize>(
        &mut self,
        rows: &[&[u8]],
        at: usize,
        mut read: impl FnMut([u8; N]) -> T::Native,
    ) {
        self.values
            .extend(rows.iter().map(|row| read(bytes_at(row, at))));
        self.nulls.append_n_non_nulls(rows.len());
    }

    fn finish(&mut self) -> PrimitiveArray<T> {
        let values = std::mem::replace(&mut self.values, Vec::with_capacity(self.room));
        PrimitiveArray::new(values.into(), self.nulls.finish()).with_data_type(self.ty.clone())
    }
}

impl Builder {
    pub fn new(ty: &DataType, rows: usize) -> Result<Builder> {
        Ok(match ty {
            DataType::Boolean => Builder::Bool(BooleanBuilder::with_capacity(rows)),
            DataType::Int16 => Builder::Int2(Fixed::new(ty, rows)),
            DataType::Int32 => Builder::Int4(Fixed::new(ty, rows)),
            DataType::Int64 => Builder::Int8(Fixed::new(ty, rows)),
            DataType::Float32 => Builder::Float4(Fixed::new(ty, rows)),
            DataType::Float64 => Builder::Float8(Fixed::new(ty, rows)),
            DataType::Decimal128(_, scale) => Builder::Numeric(
                Decimal128Builder::with_capacity(rows).with_data_type(ty.clone()),
                *scale,
            ),
            DataType::Utf8 => Builder::Text(StringBuilder::with_capacity(rows, rows * 16)),
            DataType::Binary => Builder::Bytea(BinaryBuilder::with_capacity(rows, rows * 16)),
            DataType::Date32 => Builder::Date(Fixed::new(ty, rows)),
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Builder::Timestamp(Fixed::new(ty, rows))
            }
            other => return Err(Error::internal(format!("no column of type {other}"))),
        })
    }

    #[inline]
    pub fn push(&mut self, value: DatumRef<'_>) -> Result<()> {
        match (self, value) {
            (Builder::Int4(b), DatumRef::Int4(v)) => b.append_value(v),
            (Builder::Int8(b), DatumRef::Int8(v)) => b.append_value(v),
            (Builder::Text(b), DatumRef::Text(v)) => b.append_value(v),
            (Builder::Text(b), DatumRef::Uuid(v)) => b.append_value(uuid_text(&v)),
            (Builder::Bool(b), DatumRef::Bool(v)) => b.append_value(v),
            (Builder::Int2(b), DatumRef::Int2(v)) => b.append_value(v),
            (Builder::Float4(b), DatumRef::Float4(v)) => b.append_value(plain_real(v)),
            (Builder::Float8(b), DatumRef::Float8(v)) => b.append_value(plain_double(v)),
            (Builder::Numeric(b, scale), DatumRef::Numeric(v)) => {
                b.append_value(decimal(v, *scale)?)
            }
            (Builder::Bytea(b), DatumRef::Bytea(v)) => b.append_value(v),
            (Builder::Date(b), DatumRef::Date(v)) => b.append_value(v.saturating_add(EPOCH_DAYS)),
            (Builder::Timestamp(b), DatumRef::Timestamp(v) | DatumRef::TimestampTz(v)) => {
                if is_beyond(v) {
                    return Err(beyond());
                }
                b.append_value(match v {
                    // What a date that no timestamp reaches is compared as: between the last one and infinity.
                    moments::BEYOND_TIMESTAMPS => v,
                    _ => v.saturating_add(EPOCH_MICROS),
                });
            }
            (b, DatumRef::Null) => b.push_null(),
            (_, other) => {
                return Err(Error::internal(format!(
                    "{other:?} in a column of another type"
                )));
            }
        }
        Ok(())
    }

    /// Adds the value at `at` of each row, which the caller knows to be there, of the type, and not NULL.
    pub fn gather(&mut self, ty: ColType, rows: &[&[u8]], at: usize) -> Result<()> {
        match (self, ty) {
            (Builder::Int4(b), ColType::Int4) => b.gather(rows, at, i32::from_le_bytes),
            (Builder::Int8(b), ColType::Int8) => b.gather(rows, at, i64::from_le_bytes),
            (Builder::Float8(b), ColType::Float8) => {
                b.gather(rows, at, |v| plain_double(f64::from_le_bytes(v)));
            }
            (Builder::Int2(b), ColType::Int2) => b.gather(rows, at, i16::from_le_bytes),
            (Builder::Float4(b), ColType::Float4) => {
                b.gather(rows, at, |v| plain_real(f32::from_le_bytes(v)));
            }
            (Builder::Date(b), ColType::Date) => b.gather(rows, at, |v| {
                i32::from_le_bytes(v).saturating_add(EPOCH_DAYS)
            }),
            (Builder::Timestamp(b), ColType::Timestamp | ColType::TimestampTz) => {
                let mut any_beyond = false;
                b.gather(rows, at, |v| {
                    let v = i64::from_le_bytes(v);
                    any_beyond |= is_beyond(v);
                    v.saturating_add(EPOCH_MICROS)
                });
                if any_beyond {
                    return Err(beyond());
                }
            }
            (Builder::Bool(b), ColType::Bool) => {
                rows.iter().for_each(|r| b.append_value(r[at] != 0));
            }
            (Builder::Text(b), ColType::Uuid) => {
                for row in rows {
                    b.append_value(uuid_text(&bytes_at(row, at)));
                }
            }
            (_, other) => {
                return Err(Error::internal(format!(
                    "{other:?} in a column of another type"
                )));
            }
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Builder::Bool(b) => b.append_null(),
            Builder::Int2(b) => b.append_null(),
            Builder::Int4(b) => b.append_null(),
            Builder::Int8(b) => b.append_null(),
            Builder::Float4(b) => b.append_null(),
            Builder::Float8(b) => b.append_null(),
            Builder::Numeric(b, _) => b.append_null(),
            Builder::Text(b) => b.append_null(),
            Builder::Bytea(b) => b.append_null(),
            Builder::Date(b) => b.append_null(),
            Builder::Timestamp(b) => b.append_null(),
        }
    }

    pub fn finish(&mut self) -> ArrayRef {
        match self {
            Builder::Bool(b) => Arc::new(b.finish()),
            Builder::Int2(b) => Arc::new(b.finish()),
            Builder::Int4(b) => Arc::new(b.finish()),
            Builder::Int8(b) => Arc::new(b.finish()),
            Builder::Float4(b) => Arc::new(b.finish()),
            Builder::Float8(b) => Arc::new(b.finish()),
            Builder::Numeric(b, _) => Arc::new(b.finish()),
            Builder::Text(b) => Arc::new(b.finish()),
            Builder::Bytea(b) => Arc::new(b.finish()),
            Builder::Date(b) => Arc::new(b.finish()),
            Builder::Timestamp(b) => Arc::new(b.finish()),
        }
    }
}

/// Arrow compares, sorts and groups floats by their bits: there is one zero here and one NaN.
#[inline]
fn plain_double(v: f64) -> f64 {
    match v.is_nan() {
        true => f64::NAN,
        false => v + 0.0,
    }
}

#[inline]
fn plain_real(v: f32) -> f32 {
    match v.is_nan() {
        true => f32::NAN,
        false => v + 0.0,
    }
}

/// The value's bytes; the row is long enough.
#[inline]
fn bytes_at<const N: usize>(row: &[u8], at: usize) -> [u8; N] {
    row[at..at + N].try_into().expect("a range of N bytes")
}

/// Whether a timestamp is so late that Arrow, which counts from 1970, has no number for it.
fn is_beyond(v: i64) -> bool {
    (i64::MAX - EPOCH_MICROS - 1..moments::BEYOND_TIMESTAMPS).contains(&v)
}

fn beyond() -> Error {
    Error::unsupported("a timestamp after 294247-01-10 in a query of the general kind")
}

/// A numeric as an integer of 10^-scale; refused if that would lose digits.
fn decimal(v: block::numeric::NumericRef<'_>, scale: i8) -> Result<i128> {
    let refused = || {
        Error::unsupported(format!(
            "the numeric value {v} in a query of the general kind"
        ))
        .detail(
            "Digits in all: 38, after the point: 10, unless the column is declared with others.",
        )
    };
    let number = v.to_bigdecimal().ok_or_else(refused)?;
    let (digits, exponent) = number.into_bigint_and_exponent();
    let shift = i64::from(scale) - exponent;
    let digits = i128::try_from(digits).map_err(|_| refused())?;
    let power = u32::try_from(shift.unsigned_abs())
        .ok()
        .and_then(|s| 10_i128.checked_pow(s))
        .ok_or_else(refused)?;
    match shift >= 0 {
        true => digits.checked_mul(power).ok_or_else(refused),
        false if digits % power == 0 => Ok(digits / power),
        false => Err(refused()),
    }
}

fn uuid_text(v: &[u8; 16]) -> String {
    let mut s = String::with_capacity(36);
    for (i, byte) in v.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            s.push('-');
        }
        s.push_str(&format!("{byte:02x}"));
    }
    s
}
