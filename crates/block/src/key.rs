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
//! | real, double precision | IEEE bits big-endian; negative ones inverted, others with the sign bit flipped; -0 as 0; NaN greatest |
//! | numeric | class (negative infinity .. NaN), exponent of the first pair of digits, pairs + 1, 0 |
//! | text, varchar, bytea | bytes, `00` as `00 ff`, ended by `00 00` (C collation) |
//! | char(n) | as text, without trailing spaces |
//! | uuid | 16 bytes |
//!
//! In a descending column all bytes of the value are inverted; the tag is not, so the place of NULLs is independent of it.
//!
//! **Invariant.** Every value delimits itself, so no key of an index is a proper prefix of another and a key followed by a row id
//! compares by columns first, then by row id.

use crate::{BlockError, Result};

/// How a column of an index is ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    pub descending: bool,
    pub nulls_first: bool,
}

impl Order {
    /// `ASC`, which puts NULLs last.
    pub const ASC: Order = Order { descending: false, nulls_first: false };
    /// `DESC`, which puts NULLs first.
    pub const DESC: Order = Order { descending: true, nulls_first: true };
}

const NULL_FIRST: u8 = 0;
const VALUE: u8 = 1;
const NULL_LAST: u8 = 2;

/// Classes of numeric values, in their order.
mod class {
    pub const NEGATIVE_INFINITY: u8 = 0x08;
    pub const NEGATIVE: u8 = 0x10;
    pub const ZERO: u8 = 0x20;
    pub const POSITIVE: u8 = 0x30;
    pub const INFINITY: u8 = 0x38;
    pub const NAN: u8 = 0x40;
}

/// A decimal number on its way into or out of a key: `digits` without leading zeros (empty for zero), times `10^-scale`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Decimal {
    NegativeInfinity,
    Finite { negative: bool, digits: Vec<u8>, scale: i64 },
    Infinity,
    NaN,
}

/// Appends the bytes of one value, `f` writing them in ascending form.
fn value(out: &mut Vec<u8>, order: Order, f: impl FnOnce(&mut Vec<u8>)) {
    out.push(VALUE);
    let start = out.len();
    f(out);
    if order.descending {
        out[start..].iter_mut().for_each(|b| *b = !*b);
    }
}

fn null(out: &mut Vec<u8>, order: Order) {
    out.push(if order.nulls_first { NULL_FIRST } else { NULL_LAST });
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
    // One zero and one NaN: values that compare equal must have one key.
    let bits = if v.is_nan() { f32::NAN.to_bits() & !(1 << 31) } else { (v + 0.0).to_bits() };
    let key = if bits >> 31 != 0 { !bits } else { bits | 1 << 31 };
    out.extend_from_slice(&key.to_be_bytes());
}
fn put_f64(out: &mut Vec<u8>, v: f64) {
    let bits = if v.is_nan() { f64::NAN.to_bits() & !(1 << 63) } else { (v + 0.0).to_bits() };
    let key = if bits >> 63 != 0 { !bits } else { bits | 1 << 63 };
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
        Decimal::Finite { negative, digits, scale } => (*negative, digits, *scale),
    };
    out.push(if negative { class::NEGATIVE } else { class::POSITIVE });
    let start = out.len();
    // The value is 0.d1d2.. * 10^point; pairs begin at an even power of ten, so that equal values have equal pairs.
    let point = digits.len() as i64 - scale;
    let exponent = point.div_euclid(2) + point.rem_euclid(2);
    let significant = digits.len() - digits.iter().rev().take_while(|&&d| d == 0).count();
    let lead = if point.rem_euclid(2) == 1 { 1 } else { 0 };
    put_i32(out, exponent.clamp(i32::MIN as i64, i32::MAX as i64) as i32);
    let digit = |i: usize| i.checked_sub(lead).and_then(|i| digits[..significant].get(i)).copied().unwrap_or(0);
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
        Ok(f32::from_bits(if key >> 31 != 0 { key & !(1 << 31) } else { !key }))
    }
    fn f64(&mut self) -> Result<f64> {
        let key = u64::from_be_bytes(self.array()?);
        Ok(f64::from_bits(if key >> 63 != 0 { key & !(1 << 63) } else { !key }))
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
            class::ZERO => return Ok(Decimal::Finite { negative: false, digits: Vec::new(), scale: 0 }),
            class::NEGATIVE => true,
            class::POSITIVE => false,
            other => return Err(BlockError::corrupt(format!("an index key has a number of class {other}"))),
        };
        let flip = self.flip;
        self.flip ^= if negative { 0xff } else { 0 };
        let exponent = self.i32()? as i64;
        let mut digits = Vec::new();
        loop {
            match self.byte()? {
                0 => break,
                pair @ 1..=100 => digits.extend([(pair - 1) / 10, (pair - 1) % 10]),
                other => return Err(BlockError::corrupt(format!("an index key has a pair of digits {other}"))),
            }
        }
        self.flip = flip;
        let scale = digits.len() as i64 - 2 * exponent;
        let trailing = digits.iter().rev().take_while(|&&d| d == 0).count();
        digits.truncate(digits.len() - trailing);
        let leading = digits.iter().take_while(|&&d| d == 0).count();
        digits.drain(..leading);
        Ok(Decimal::Finite { negative, digits, scale: scale - trailing as i64 })
    }
}

/// The least key above every key that begins with `prefix`, or none if there is no such bound: the exclusive end of a scan of
/// all keys with equal leading columns.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
