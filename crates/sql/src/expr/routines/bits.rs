//! Functions and operators of bit strings.

use block::value::{Datum, DatumRef};

use super::{Function, Operator, Prefix, binary, function, int, prefix};
use crate::error::{Error, Result};
use crate::pgtype::bits::{Bits, MAX_BITS, too_many_bits};
use crate::types::SqlType;

use SqlType::{Bit, Int4, Int8, Varbit};

pub const OPERATORS: &[Operator] = &[
    binary("&", Bit, Bit, Bit, "bitand", |v, _| {
        both(v, "AND", |l, r| l & r)
    }),
    binary("|", Bit, Bit, Bit, "bitor", |v, _| {
        both(v, "OR", |l, r| l | r)
    }),
    binary("#", Bit, Bit, Bit, "bitxor", |v, _| {
        both(v, "XOR", |l, r| l ^ r)
    }),
    binary("<<", Bit, Int4, Bit, "bitshiftleft", |v, _| {
        Ok(datum(&shifted(bits(v, 0)?, int(v, 1)?)))
    }),
    binary(">>", Bit, Int4, Bit, "bitshiftright", |v, _| {
        Ok(datum(&shifted(bits(v, 0)?, -int(v, 1)?)))
    }),
    binary("||", Varbit, Varbit, Varbit, "bitcat", |v, _| {
        Ok(datum(&joined([bits(v, 0)?, bits(v, 1)?])?))
    }),
];

pub const PREFIXES: &[Prefix] = &[prefix("~", Bit, Bit, "bitnot", |v, _| {
    Ok(datum(&Bits(bits(v, 0)?.0.iter().map(|b| !b).collect())))
})];

pub const FUNCTIONS: &[Function] = &[
    function("length", &[Bit], Int4, "bitlength", length),
    function("bit_length", &[Bit], Int4, "bitlength", length),
    function("octet_length", &[Bit], Int4, "bitoctetlength", |v, _| {
        Ok(Datum::Int4(bits(v, 0)?.count().div_ceil(8) as i32))
    }),
    function(
        "substring",
        &[Bit, Int4],
        Bit,
        "bitsubstr_no_len",
        |v, _| Ok(datum(&part(&bits(v, 0)?, int(v, 1)?, None)?)),
    ),
    function("substring", &[Bit, Int4, Int4], Bit, "bitsubstr", |v, _| {
        Ok(datum(&part(&bits(v, 0)?, int(v, 1)?, Some(int(v, 2)?))?))
    }),
    function(
        "overlay",
        &[Bit, Bit, Int4],
        Bit,
        "bitoverlay_no_len",
        overlay,
    ),
    function(
        "overlay",
        &[Bit, Bit, Int4, Int4],
        Bit,
        "bitoverlay",
        overlay,
    ),
    function("position", &[Bit, Bit], Int4, "bitposition", |v, _| {
        Ok(Datum::Int4(position(&bits(v, 0)?, &bits(v, 1)?)))
    }),
    function("get_bit", &[Bit, Int4], Int4, "bitgetbit", |v, _| {
        let bits = bits(v, 0)?;
        let at = place(&bits, int(v, 1)?)?;
        Ok(Datum::Int4(bits.0[at].into()))
    }),
    function("set_bit", &[Bit, Int4, Int4], Bit, "bitsetbit", |v, _| {
        let mut bits = bits(v, 0)?;
        let at = place(&bits, int(v, 1)?)?;
        bits.0[at] = match int(v, 2)? {
            0 => false,
            1 => true,
            _ => return Err(Error::new("22023", "new bit must be 0 or 1")),
        };
        Ok(datum(&bits))
    }),
    function("bit_count", &[Bit], Int8, "bit_bit_count", |v, _| {
        let ones = bits(v, 0)?.0.iter().filter(|bit| **bit).count();
        Ok(Datum::Int8(ones as i64))
    }),
];

fn length(v: &[DatumRef<'_>], _: &crate::pgtype::IoSettings) -> Result<Datum> {
    Ok(Datum::Int4(bits(v, 0)?.count() as i32))
}

fn bits(values: &[DatumRef<'_>], at: usize) -> Result<Bits> {
    match values.get(at) {
        Some(DatumRef::Bytea(stored)) => Ok(Bits::stored(stored)),
        other => Err(Error::internal(format!("{other:?} as a bit string"))),
    }
}

fn datum(bits: &Bits) -> Datum {
    Datum::Bytea(bits.to_stored())
}

fn both(v: &[DatumRef<'_>], verb: &str, how: fn(bool, bool) -> bool) -> Result<Datum> {
    combined(&bits(v, 0)?, &bits(v, 1)?, verb, how).map(|bits| datum(&bits))
}

/// Bit by bit, of two bit strings of one length.
fn combined(left: &Bits, right: &Bits, verb: &str, how: fn(bool, bool) -> bool) -> Result<Bits> {
    if left.count() != right.count() {
        let message = format!("cannot {verb} bit strings of different sizes");
        return Err(Error::new("22026", message));
    }
    let pairs = left.0.iter().zip(&right.0);
    Ok(Bits(pairs.map(|(l, r)| how(*l, *r)).collect()))
}

/// What `bit_and` and its kin make of two stored bit strings.
pub fn aggregated(
    left: &[u8],
    right: &[u8],
    verb: &str,
    how: fn(bool, bool) -> bool,
) -> Result<Datum> {
    let both = combined(&Bits::stored(left), &Bits::stored(right), verb, how)?;
    Ok(datum(&both))
}

/// Moved to the left, or for a negative count to the right, in its length.
fn shifted(bits: Bits, count: i64) -> Bits {
    let length = bits.count();
    let by = usize::try_from(count.unsigned_abs()).map_or(length, |by| by.min(length));
    let zeros = std::iter::repeat_n(false, by);
    Bits(match count >= 0 {
        true => bits.0[by..].iter().copied().chain(zeros).collect(),
        false => zeros.chain(bits.0[..length - by].iter().copied()).collect(),
    })
}

fn joined<const N: usize>(parts: [Bits; N]) -> Result<Bits> {
    if parts.iter().map(Bits::count).sum::<usize>() > MAX_BITS {
        return Err(too_many_bits());
    }
    Ok(Bits(parts.into_iter().flat_map(|part| part.0).collect()))
}

/// The bits from a place on, counted from 1, which may lie before the first.
fn part(bits: &Bits, start: i64, count: Option<i64>) -> Result<Bits> {
    let beyond = bits.count() as i64 + 1;
    let end = match count {
        None => beyond,
        Some(count) if count < 0 => return Err(negative_length()),
        Some(count) => (start + count).min(beyond),
    };
    let start = start.max(1);
    Ok(Bits(match start < end {
        true => bits.0[start as usize - 1..end as usize - 1].to_vec(),
        false => Vec::new(),
    }))
}

fn negative_length() -> Error {
    Error::new("22011", "negative substring length not allowed")
}

fn overlay(v: &[DatumRef<'_>], _: &crate::pgtype::IoSettings) -> Result<Datum> {
    let (all, new, start) = (bits(v, 0)?, bits(v, 1)?, int(v, 2)?);
    let count = match v.len() {
        4 => int(v, 3)?,
        _ => new.count() as i64,
    };
    if start <= 0 {
        return Err(negative_length());
    }
    let end = i32::try_from(start + count);
    let end = end.map_err(|_| Error::new("22003", "integer out of range"))?;
    let before = part(&all, 1, Some(start - 1))?;
    let after = part(&all, end.into(), None)?;
    Ok(datum(&joined([before, new, after])?))
}

/// Where a part is, from 1; 0 if it is nowhere.
fn position(all: &Bits, part: &Bits) -> i32 {
    if all.count() == 0 || part.count() > all.count() {
        return 0;
    }
    if part.count() == 0 {
        return 1;
    }
    let found = all.0.windows(part.count()).position(|w| w == part.0);
    found.map_or(0, |at| at as i32 + 1)
}

fn place(bits: &Bits, at: i64) -> Result<usize> {
    match usize::try_from(at) {
        Ok(place) if place < bits.count() => Ok(place),
        _ => {
            let last = bits.count() as i64 - 1;
            let message = format!("bit index {at} out of valid range (0..{last})");
            Err(Error::new("2202E", message))
        }
    }
}

/// An integer as that many bits, the first of them its signs; one, if no number is given.
pub fn of_integer(value: i64, typmod: i32) -> Datum {
    let count = typmod.max(1);
    let bit = |at: i32| value >> at.min(63) & 1 == 1;
    datum(&Bits((0..count).rev().map(bit).collect()))
}

/// The integer whose last bits they are.
pub fn to_integer(stored: &[u8], ty: SqlType) -> Result<Datum> {
    let bits = Bits::stored(stored);
    let width = if ty == Int4 { 32 } else { 64 };
    if bits.count() > width {
        return Err(crate::expr::arith::out_of_range(ty));
    }
    let value = bits.0.iter().fold(0_u64, |v, bit| v << 1 | u64::from(*bit));
    Ok(match ty {
        Int4 => Datum::Int4(value as u32 as i32),
        _ => Datum::Int8(value as i64),
    })
}
