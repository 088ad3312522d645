//! Memcomparable keys: column values as bytes whose plain comparison is the order of the index.
//!
//! ```text
//! column: tag u8 | value
//! tag:    0 NULL that sorts first, 1 a value, 2 NULL that sorts last
//! ```
//!
//! | type | value |
//! |---|---|
//! | bool | 1 byte |
//! | smallint, integer, bigint, date, timestamps | big-endian, sign bit flipped |
//! | real, double precision | IEEE bits big-endian; -0 as 0, NaN greatest; see below |
//! | numeric | class (negative infinity .. NaN), exponent of the first pair of digits, |
//! | | pairs + 1, 0 |
//! | text, varchar, bytea | bytes, `00` as `00 ff`, ended by `00 00` (C collation) |
//! | char(n) | as text, without trailing spaces |
//! | uuid | 16 bytes |
//! | array | element type, columns as of an ascending index, 0, dimensions |
//! | composite | of each field: its type, a column as of an ascending index; then 0 |
//! | interval | its span in microseconds, 16 bytes big-endian, sign bit flipped |
//! | jsonb | its parts in the order in which PostgreSQL compares them: see `put_json` |
//!
//! Of a negative real or double precision value all bits are inverted; of any other the sign bit is
//! flipped.
//!
//! In a descending column all bytes of the value are inverted. The tag is not, so the place of
//! NULLs is independent of the direction.
//!
//! **Invariant.** Every value delimits itself. So no key of an index is a proper prefix of another,
//! and a key followed by a row id compares by columns first, then by row id.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::{BigInt, BigUint, Sign};

use crate::array::{Array, ArrayRef, Dimension, MAX_DIMENSIONS};
use crate::interval::Interval;
use crate::json::{self, Json, JsonRef, Node, View};
use crate::numeric::{MAX_INTEGER_DIGITS, MAX_SCALE, Numeric, NumericRef};
use crate::value::{ColType, Datum, DatumRef};
use crate::{BlockError, Result};

/// The order of a column of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    pub descending: bool,
    pub nulls_first: bool,
}

impl Order {
    /// `ASC`, which puts NULLs last.
    pub const ASC: Order = Order {
        descending: false,
        nulls_first: false,
    };
    /// `DESC`, which puts NULLs first.
    pub const DESC: Order = Order {
        descending: true,
        nulls_first: true,
    };
}

const NULL_FIRST: u8 = 0;
const VALUE: u8 = 1;
const NULL_LAST: u8 = 2;
/// Behind the last element of an array.
const END: u8 = 0;

/// The classes of numeric values, in their order.
mod class {
    pub const NEGATIVE_INFINITY: u8 = 0x08;
    pub const NEGATIVE: u8 = 0x10;
    pub const ZERO: u8 = 0x20;
    pub const POSITIVE: u8 = 0x30;
    pub const INFINITY: u8 = 0x38;
    pub const NAN: u8 = 0x40;
}

/// A decimal number on its way into or out of a key. Its value is `digits` without leading zeros
/// (empty for zero), times `10^-scale`.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Decimal {
    NegativeInfinity,
    Finite {
        negative: bool,
        digits: Vec<u8>,
        scale: i64,
    },
    Infinity,
    NaN,
}

/// Appends the bytes of one value, which `f` writes in ascending form.
fn value(out: &mut Vec<u8>, order: Order, f: impl FnOnce(&mut Vec<u8>)) {
    out.push(VALUE);
    let start = out.len();
    f(out);
    if order.descending {
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
}

fn null(out: &mut Vec<u8>, order: Order) {
    out.push(if order.nulls_first {
        NULL_FIRST
    } else {
        NULL_LAST
    });
}

fn put_i16(out: &mut Vec<u8>, v: i16) {
    out.extend_from_slice(&(v as u16 ^ 1 << 15).to_be_bytes());
}
fn put_i32(out: &mut Vec<u8>, v: i32) {
    out.extend_from_slice(&(v as u32 ^ 1 << 31).to_be_bytes());
}
fn put_i64(out: &mut Vec<u8>, v: i64) {
    out.extend_from_slice(&(v as u64 ^ 1 << 63).to_be_bytes());
}

fn put_f32(out: &mut Vec<u8>, v: f32) {
    // There is one zero and one NaN: values that compare equal must have one key.
    let bits = if v.is_nan() {
        f32::NAN.to_bits() & !(1 << 31)
    } else {
        (v + 0.0).to_bits()
    };
    let key = if bits >> 31 != 0 {
        !bits
    } else {
        bits | 1 << 31
    };
    out.extend_from_slice(&key.to_be_bytes());
}
fn put_f64(out: &mut Vec<u8>, v: f64) {
    let bits = if v.is_nan() {
        f64::NAN.to_bits() & !(1 << 63)
    } else {
        (v + 0.0).to_bits()
    };
    let key = if bits >> 63 != 0 {
        !bits
    } else {
        bits | 1 << 63
    };
    out.extend_from_slice(&key.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    for &b in bytes {
        out.push(b);
        if b == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

fn put_decimal(out: &mut Vec<u8>, v: &Decimal) {
    let (negative, digits, scale) = match v {
        Decimal::NegativeInfinity => return out.push(class::NEGATIVE_INFINITY),
        Decimal::Infinity => return out.push(class::INFINITY),
        Decimal::NaN => return out.push(class::NAN),
        Decimal::Finite { digits, .. } if digits.is_empty() => return out.push(class::ZERO),
        Decimal::Finite {
            negative,
            digits,
            scale,
        } => (*negative, digits, *scale),
    };
    out.push(if negative {
        class::NEGATIVE
    } else {
        class::POSITIVE
    });
    let start = out.len();
    // The value is 0.d1d2.. * 10^point. Pairs begin at an even power of ten, so that equal values
    // have equal pairs.
    let point = digits.len() as i64 - scale;
    let exponent = point.div_euclid(2) + point.rem_euclid(2);
    let significant = digits.len() - digits.iter().rev().take_while(|&&d| d == 0).count();
    let lead = if point.rem_euclid(2) == 1 { 1 } else { 0 };
    put_i32(out, exponent.clamp(i32::MIN as i64, i32::MAX as i64) as i32);
    let digit = |i: usize| {
        i.checked_sub(lead)
            .and_then(|i| digits[..significant].get(i))
            .copied()
            .unwrap_or(0)
    };
    for pair in 0..(significant + lead).div_ceil(2) {
        out.push(digit(pair * 2) * 10 + digit(pair * 2 + 1) + 1);
    }
    out.push(0);
    if negative {
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
}

/// Reads a key value by value.
struct Reader<'a> {
    bytes: &'a [u8],
    flip: u8,
}

fn short() -> BlockError {
    BlockError::corrupt("an index key is cut short")
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8> {
        let (&b, rest) = self.bytes.split_first().ok_or_else(short)?;
        self.bytes = rest;
        Ok(b ^ self.flip)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(short)?;
        self.bytes = rest;
        Ok(head.map(|b| b ^ self.flip))
    }
    fn i16(&mut self) -> Result<i16> {
        Ok((u16::from_be_bytes(self.array()?) ^ 1 << 15) as i16)
    }
    fn i32(&mut self) -> Result<i32> {
        Ok((u32::from_be_bytes(self.array()?) ^ 1 << 31) as i32)
    }
    fn i64(&mut self) -> Result<i64> {
        Ok((u64::from_be_bytes(self.array()?) ^ 1 << 63) as i64)
    }
    fn f32(&mut self) -> Result<f32> {
        let key = u32::from_be_bytes(self.array()?);
        Ok(f32::from_bits(if key >> 31 != 0 {
            key & !(1 << 31)
        } else {
            !key
        }))
    }
    fn f64(&mut self) -> Result<f64> {
        let key = u64::from_be_bytes(self.array()?);
        Ok(f64::from_bits(if key >> 63 != 0 {
            key & !(1 << 63)
        } else {
            !key
        }))
    }
    fn bytes(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            match self.byte()? {
                0 if self.byte()? == 0 => return Ok(out),
                b => out.push(b),
            }
        }
    }
    fn decimal(&mut self) -> Result<Decimal> {
        let negative = match self.byte()? {
            class::NEGATIVE_INFINITY => return Ok(Decimal::NegativeInfinity),
            class::INFINITY => return Ok(Decimal::Infinity),
            class::NAN => return Ok(Decimal::NaN),
            class::ZERO => {
                return Ok(Decimal::Finite {
                    negative: false,
                    digits: Vec::new(),
                    scale: 0,
                });
            }
            class::NEGATIVE => true,
            class::POSITIVE => false,
            other => {
                return Err(BlockError::corrupt(format!(
                    "an index key has a number of class {other}"
                )));
            }
        };
        let flip = self.flip;
        self.flip ^= if negative { 0xff } else { 0 };
        let exponent = self.i32()? as i64;
        let mut digits = Vec::new();
        loop {
            match self.byte()? {
                0 => break,
                pair @ 1..=100 => digits.extend([(pair - 1) / 10, (pair - 1) % 10]),
                other => {
                    return Err(BlockError::corrupt(format!(
                        "an index key has a pair of digits {other}"
                    )));
                }
            }
        }
        self.flip = flip;
        let scale = digits.len() as i64 - 2 * exponent;
        let trailing = digits.iter().rev().take_while(|&&d| d == 0).count();
        digits.truncate(digits.len() - trailing);
        let leading = digits.iter().take_while(|&&d| d == 0).count();
        digits.drain(..leading);
        Ok(Decimal::Finite {
            negative,
            digits,
            scale: scale - trailing as i64,
        })
    }
}

/// The least key above every key that begins with `prefix`, which is the exclusive end of a scan of
/// all keys with equal leading columns. None if there is no such bound.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// Appends the key of one column value. `ty` is the type of the indexed column, which `v` has.
pub fn push_column(out: &mut Vec<u8>, ty: ColType, order: Order, v: DatumRef<'_>) {
    match v {
        DatumRef::Null => null(out, order),
        DatumRef::Bool(v) => value(out, order, |o| o.push(v as u8)),
        DatumRef::Int2(v) => value(out, order, |o| put_i16(o, v)),
        DatumRef::Int4(v) | DatumRef::Date(v) => value(out, order, |o| put_i32(o, v)),
        DatumRef::Int8(v) | DatumRef::Timestamp(v) | DatumRef::TimestampTz(v) => {
            value(out, order, |o| put_i64(o, v))
        }
        DatumRef::Float4(v) => value(out, order, |o| put_f32(o, v)),
        DatumRef::Float8(v) => value(out, order, |o| put_f64(o, v)),
        DatumRef::Numeric(v) => value(out, order, |o| put_decimal(o, &Decimal::from_numeric(v))),
        DatumRef::Text(v) if ty == ColType::Char => value(out, order, |o| {
            put_bytes(o, v.trim_end_matches(' ').as_bytes())
        }),
        DatumRef::Text(v) => value(out, order, |o| put_bytes(o, v.as_bytes())),
        DatumRef::Bytea(v) => value(out, order, |o| put_bytes(o, v)),
        DatumRef::Folded(v) => value(out, order, |o| {
            put_bytes(o, v.small().collect::<String>().as_bytes())
        }),
        DatumRef::Uuid(v) => value(out, order, |o| o.extend_from_slice(&v)),
        DatumRef::Interval(v) => value(out, order, |o| {
            o.extend_from_slice(&(v.span() as u128 ^ 1 << 127).to_be_bytes())
        }),
        DatumRef::Array(v) => value(out, order, |o| put_array(o, v)),
        DatumRef::Composite(v) => value(out, order, |o| composite::put(o, v)),
        DatumRef::Json(v) => value(out, order, |o| match v.view() {
            View::Array(items) if items.is_empty() => o.push(kind::EMPTY_ARRAY),
            _ => put_json(o, v),
        }),
    }
}

/// What a part of a jsonb value is, in their order. An empty array is below all others as a whole
/// value, but not as a part of one.
mod kind {
    pub const EMPTY_ARRAY: u8 = 0;
    pub const NULL: u8 = 1;
    pub const STRING: u8 = 2;
    pub const NUMBER: u8 = 3;
    pub const BOOL: u8 = 4;
    pub const ARRAY: u8 = 5;
    pub const OBJECT: u8 = 6;
}

/// A part of a jsonb value: its kind; of an array or an object then the number of its parts, so
/// that one with more of them is greater; then what it holds, of an object each key before its
/// value.
fn put_json(out: &mut Vec<u8>, v: JsonRef<'_>) {
    let count = |out: &mut Vec<u8>, n: usize| {
        let n = u32::try_from(n).expect("invariant: counts of jsonb have 32 bits");
        out.extend_from_slice(&n.to_be_bytes());
    };
    match v.view() {
        View::Null => out.push(kind::NULL),
        View::String(s) => {
            out.push(kind::STRING);
            put_bytes(out, s.as_bytes());
        }
        View::Number(n) => {
            out.push(kind::NUMBER);
            put_decimal(out, &Decimal::from_numeric(n));
        }
        View::Bool(b) => out.extend_from_slice(&[kind::BOOL, b.into()]),
        View::Array(items) => {
            out.push(kind::ARRAY);
            count(out, items.len());
            items.iter().for_each(|item| put_json(out, item));
        }
        View::Object(pairs) => {
            out.push(kind::OBJECT);
            count(out, pairs.len());
            for (key, value) in pairs.iter() {
                put_bytes(out, key.as_bytes());
                put_json(out, value);
            }
        }
    }
}

/// Elements come first, and their end sorts before any element, so that the shorter of two arrays
/// that begin alike is the lesser one. A NULL is above all other elements.
fn put_array(out: &mut Vec<u8>, v: ArrayRef<'_>) {
    out.push(v.element() as u8);
    for element in v.values() {
        push_column(out, v.element(), Order::ASC, element);
    }
    out.push(END);
    out.push(v.dimensions().len() as u8);
    v.dimensions().for_each(|d| put_i32(out, d.length));
    v.dimensions().for_each(|d| put_i32(out, d.lower));
}

/// Reads a key back into values. What the key does not hold is lost: the scale of a number (`1.50`
/// comes back as `1.5`; so in jsonb), the sign of zero and of NaN, trailing spaces of `char(n)`,
/// how much of an interval is months and days, the numbers of a row's fields. To show columns of
/// those types, read them from the row.
pub fn decode(key: &[u8], columns: &[(ColType, Order)]) -> Result<Vec<Datum>> {
    let mut r = Reader {
        bytes: key,
        flip: 0,
    };
    let values = columns
        .iter()
        .map(|&(ty, order)| r.column(ty, order))
        .collect::<Result<_>>()?;
    match r.bytes.is_empty() {
        true => Ok(values),
        false => Err(BlockError::corrupt(
            "bytes are left after the last column of an index key",
        )),
    }
}

/// Whether a value of this type comes back from a key exactly as it was.
pub fn is_lossless(ty: ColType) -> bool {
    !matches!(
        ty,
        ColType::Float4
            | ColType::Float8
            | ColType::Numeric
            | ColType::Char
            | ColType::Interval
            | ColType::Array
            | ColType::Json
            | ColType::Composite
            | ColType::Folded
    )
}

impl Reader<'_> {
    fn column(&mut self, ty: ColType, order: Order) -> Result<Datum> {
        self.flip = 0;
        match self.byte()? {
            VALUE => self.flip = if order.descending { 0xff } else { 0 },
            NULL_FIRST | NULL_LAST => return Ok(Datum::Null),
            other => {
                return Err(BlockError::corrupt(format!(
                    "an index key has a value with tag {other}"
                )));
            }
        }
        self.value(ty)
    }

    fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?)
            .map_err(|_| BlockError::corrupt("an index key has text that is not UTF-8"))
    }

    /// A value that is not NULL.
    fn value(&mut self, ty: ColType) -> Result<Datum> {
        Ok(match ty {
            ColType::Bool => Datum::Bool(self.byte()? != 0),
            ColType::Int2 => Datum::Int2(self.i16()?),
            ColType::Int4 => Datum::Int4(self.i32()?),
            ColType::Int8 => Datum::Int8(self.i64()?),
            ColType::Float4 => Datum::Float4(self.f32()?),
            ColType::Float8 => Datum::Float8(self.f64()?),
            ColType::Numeric => Datum::Numeric(self.decimal()?.to_numeric()?),
            ColType::Text | ColType::Varchar | ColType::Char => Datum::Text(self.text()?),
            ColType::Folded => Datum::Folded(self.text()?),
            ColType::Bytea => Datum::Bytea(self.bytes()?),
            ColType::Date => Datum::Date(self.i32()?),
            ColType::Timestamp => Datum::Timestamp(self.i64()?),
            ColType::TimestampTz => Datum::TimestampTz(self.i64()?),
            ColType::Uuid => Datum::Uuid(self.array()?),
            ColType::Interval => Datum::Interval(Interval::of_span(
                (u128::from_be_bytes(self.array()?) ^ 1 << 127) as i128,
            )),
            ColType::Array => Datum::Array(self.elements()?),
            ColType::Json => Datum::Json(Json::new(&self.json(0)?)),
            ColType::Composite => Datum::Composite(self.fields()?),
        })
    }
}

impl Reader<'_> {
    fn json(&mut self, depth: usize) -> Result<Node> {
        let damaged = || BlockError::corrupt("an index key has a damaged jsonb value");
        let text = |bytes| String::from_utf8(bytes).map_err(|_| damaged());
        if depth > json::MAX_DEPTH {
            return Err(damaged());
        }
        Ok(match self.byte()? {
            kind::EMPTY_ARRAY => Node::Array(Vec::new()),
            kind::NULL => Node::Null,
            kind::STRING => Node::String(text(self.bytes()?)?),
            kind::NUMBER => Node::Number(self.decimal()?.to_numeric()?),
            kind::BOOL => Node::Bool(self.byte()? != 0),
            kind::ARRAY => {
                let mut items = Vec::new();
                for _ in 0..u32::from_be_bytes(self.array()?) {
                    items.push(self.json(depth + 1)?);
                }
                Node::Array(items)
            }
            kind::OBJECT => {
                let mut pairs = Vec::new();
                for _ in 0..u32::from_be_bytes(self.array()?) {
                    let key = text(self.bytes()?)?;
                    pairs.push((key, self.json(depth + 1)?));
                }
                Node::Object(pairs)
            }
            _ => return Err(damaged()),
        })
    }

    fn elements(&mut self) -> Result<Array> {
        let damaged = || BlockError::corrupt("an index key has a damaged array");
        let element = ColType::from_u8(self.byte()?).filter(|t| *t != ColType::Array);
        let element = element.ok_or_else(damaged)?;
        let mut values = Vec::new();
        loop {
            match self.byte()? {
                END => break,
                VALUE => values.push(self.value(element)?),
                NULL_LAST => values.push(Datum::Null),
                _ => return Err(damaged()),
            }
        }
        let count = usize::from(self.byte()?);
        if count > MAX_DIMENSIONS {
            return Err(damaged());
        }
        let lengths: Vec<i32> = (0..count).map(|_| self.i32()).collect::<Result<_>>()?;
        let lowers: Vec<i32> = (0..count).map(|_| self.i32()).collect::<Result<_>>()?;
        let dimensions = lengths.into_iter().zip(lowers);
        let dimensions: Vec<_> = dimensions
            .map(|(length, lower)| Dimension { length, lower })
            .collect();
        let array = Array::new(element, &dimensions, &values);
        ArrayRef::from_bytes(array.as_bytes())?;
        Ok(array)
    }
}

impl Decimal {
    fn from_numeric(v: NumericRef<'_>) -> Decimal {
        if v.is_nan() {
            return Decimal::NaN;
        }
        let Some(number) = v.to_bigdecimal() else {
            // The value is infinite: the sign is that of the comparison with any finite number.
            return if v.to_numeric() > Numeric::from(0) {
                Decimal::Infinity
            } else {
                Decimal::NegativeInfinity
            };
        };
        let (int, scale) = number.into_bigint_and_exponent();
        let (sign, mut digits) = int.to_radix_be(10);
        if sign == Sign::NoSign {
            digits.clear();
        }
        Decimal::Finite {
            negative: sign == Sign::Minus,
            digits,
            scale,
        }
    }

    fn to_numeric(&self) -> Result<Numeric> {
        Ok(match self {
            Decimal::NaN => Numeric::nan(),
            Decimal::Infinity => Numeric::infinity(),
            Decimal::NegativeInfinity => Numeric::neg_infinity(),
            Decimal::Finite {
                negative,
                digits,
                scale,
            } => {
                if *scale > i64::from(MAX_SCALE) || *scale < -(MAX_INTEGER_DIGITS as i64) {
                    return Err(BlockError::corrupt(
                        "an index key has a number beyond all limits",
                    ));
                }
                let magnitude = BigUint::from_radix_be(digits, 10).unwrap_or_default();
                let sign = if *negative { Sign::Minus } else { Sign::Plus };
                Numeric::from_bigdecimal(BigDecimal::new(
                    BigInt::from_biguint(sign, magnitude),
                    *scale,
                ))
            }
        })
    }
}

mod composite;
#[cfg(test)]
mod tests;
