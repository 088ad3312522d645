//! Types that catalogs have: `int2vector` and `oidvector`, arrays of one dimension that count from
//! zero and are written without braces, `"char"` and `xid`.

use block::array::{Array, ArrayRef, Dimension};
use block::value::{Datum, DatumRef};
use charset::Encoding;

use super::{IoSettings, array, number};
use crate::error::{Error, Result};
use crate::types::{Element, SqlType};

pub fn is_vector(ty: SqlType) -> bool {
    matches!(ty, SqlType::Int2Vector | SqlType::OidVector)
}

fn element(ty: SqlType) -> Result<Element> {
    let element = ty.element().and_then(Element::of);
    element.ok_or_else(|| Error::internal(format!("{} as a vector", ty.name())))
}

/// A vector of these values.
pub fn make(ty: SqlType, values: &[Datum]) -> Result<Array> {
    let length = i32::try_from(values.len()).map_err(|_| array::too_large())?;
    let dimensions: &[Dimension] = match length {
        0 => &[],
        length => &[Dimension { length, lower: 0 }],
    };
    array::make(element(ty)?, dimensions, values)
}

/// `1 2`
pub fn parse(ty: SqlType, text: &str, io: &IoSettings) -> Result<Datum> {
    let of = element(ty)?.ty();
    let values = text.split(number::is_c_space).filter(|v| !v.is_empty());
    let values = values.map(|item| super::text_in(of, item, io));
    Ok(Datum::Array(make(
        ty,
        &values.collect::<Result<Vec<_>>>()?,
    )?))
}

pub fn write(vector: ArrayRef<'_>, out: &mut Vec<u8>) {
    for (at, value) in vector.values().enumerate() {
        if at > 0 {
            out.push(b' ');
        }
        match value {
            DatumRef::Int2(v) => number::write_integer(out, v.into()),
            DatumRef::Int8(v) => number::write_integer(out, v),
            _ => {}
        }
    }
}

pub fn binary_in(ty: SqlType, bytes: &[u8], encoding: Encoding) -> Result<Datum> {
    let read = array::binary_in(element(ty)?, bytes, encoding)?;
    let whole = read.borrow();
    let dimensions: Vec<Dimension> = whole.dimensions().collect();
    let plain = matches!(dimensions[..], [] | [Dimension { lower: 0, .. }]);
    let has_null = whole.values().any(|v| matches!(v, DatumRef::Null));
    match plain && !has_null {
        true => Ok(Datum::Array(read)),
        false => Err(Error::new("22P03", format!("invalid {} data", ty.name()))),
    }
}

/// The first byte of a text, or the one that `\ooo` says, as it is kept.
pub fn internal_char(text: &str) -> String {
    let octal = |b: u8| (b'0'..=b'7').contains(&b);
    let byte = match text.as_bytes() {
        [b'\\', a, b, c] if octal(*a) && octal(*b) && octal(*c) => {
            let digits = [a, b, c].map(|d| u32::from(d - b'0'));
            (digits[0] * 64 + digits[1] * 8 + digits[2]) as u8
        }
        bytes => bytes.first().copied().unwrap_or(0),
    };
    char_of_byte(byte)
}

/// How a `"char"` is kept: nothing for the byte zero, else the character whose number it is, so
/// that bytes beyond ASCII are texts and in their order.
pub fn char_of_byte(byte: u8) -> String {
    match byte {
        0 => String::new(),
        byte => char::from(byte).to_string(),
    }
}

/// The byte of a `"char"` that is kept.
pub fn byte_of_char(kept: &str) -> u8 {
    let byte = kept.chars().next().map_or(Ok(0), u8::try_from);
    byte.unwrap_or(b'?')
}

/// The text form of a `"char"`: a byte beyond ASCII by its digits.
pub fn write_char(kept: &str, out: &mut Vec<u8>) {
    match byte_of_char(kept) {
        byte if byte.is_ascii() => out.extend_from_slice(kept.as_bytes()),
        byte => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
    }
}

/// The digits that a text begins with, as C's `strtoul` reads them.
pub fn parse_xid(text: &str) -> u32 {
    let text = text.trim_start_matches(number::is_c_space);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = digits
        .bytes()
        .take_while(u8::is_ascii_digit)
        .fold(0_u64, |n, d| {
            n.saturating_mul(10).saturating_add(u64::from(d - b'0'))
        });
    match negative {
        true => value.wrapping_neg() as u32,
        false => value as u32,
    }
}

pub fn no_input_of_rows() -> Error {
    Error::new(
        "0A000",
        "input of anonymous composite types is not implemented",
    )
}

/// `(7,1)`
pub fn write_row(row: ArrayRef<'_>, out: &mut Vec<u8>) {
    out.push(b'(');
    for (at, value) in row.values().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        if let DatumRef::Int4(v) = value {
            number::write_integer(out, v.into());
        }
    }
    out.push(b')');
}

/// How many fields, and of each its type, its length and its bytes.
pub fn row_binary_out(row: ArrayRef<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&(row.count() as i32).to_be_bytes());
    for value in row.values() {
        out.extend_from_slice(&SqlType::Int4.oid().to_be_bytes());
        match value {
            DatumRef::Int4(v) => {
                out.extend_from_slice(&4_i32.to_be_bytes());
                out.extend_from_slice(&v.to_be_bytes());
            }
            _ => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        }
    }
}
