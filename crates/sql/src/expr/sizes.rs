//! `pg_size_pretty` and `pg_size_bytes`: numbers of bytes as people write them.

use bigdecimal::{BigDecimal, RoundingMode, ToPrimitive};
use block::numeric::Numeric;
use block::value::{Datum, DatumRef};

use super::func::{Func, PureFunc, Signature};
use super::{Val, arith};
use crate::error::{Error, Result};
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeFunc {
    Pretty,
    Bytes,
}

/// The units, each 1024 times the one before, and the size up to which one is shown.
const UNITS: [(&str, i64); 6] = [
    ("bytes", 10 * 1024),
    ("kB", 20 * 1024 - 1),
    ("MB", 20 * 1024 - 1),
    ("GB", 20 * 1024 - 1),
    ("TB", 20 * 1024 - 1),
    ("PB", 20 * 1024 - 1),
];

pub fn overloads(name: &str) -> Vec<Signature> {
    use SqlType::{Int8, Numeric, Text};
    let of = |func: SizeFunc, args: &'static [SqlType], result: SqlType| Signature {
        func: Func::Pure(PureFunc::Size(func)),
        args,
        result,
    };
    match name {
        "pg_size_pretty" => vec![
            of(SizeFunc::Pretty, &[Int8], Text),
            of(SizeFunc::Pretty, &[Numeric], Text),
        ],
        "pg_size_bytes" => vec![of(SizeFunc::Bytes, &[Text], Int8)],
        _ => Vec::new(),
    }
}

pub fn call(func: SizeFunc, values: &[Val<'_>]) -> Result<Val<'static>> {
    match (func, values.first().map(Val::get)) {
        (SizeFunc::Bytes, Some(DatumRef::Text(text))) => Ok(Val::int8(bytes(text)?)),
        (SizeFunc::Pretty, Some(DatumRef::Int8(n))) => Ok(Val::text(pretty(n))),
        (SizeFunc::Pretty, Some(DatumRef::Numeric(n))) => match n.to_bigdecimal() {
            Some(n) => Ok(Val::text(pretty_numeric(n))),
            None => Ok(Val::text(format!("{n} PB"))),
        },
        (_, other) => Err(Error::internal(format!("{func:?} of {other:?}"))),
    }
}

/// Shown units are kept twice as large, to be rounded when they are shown.
fn pretty(bytes: i64) -> String {
    let half_rounded = |n: i64| (n + if n < 0 { -1 } else { 1 }) / 2;
    let mut size = bytes;
    for (at, (unit, limit)) in UNITS.iter().enumerate() {
        let last = at + 1 == UNITS.len();
        if last || size.unsigned_abs() < limit.unsigned_abs() {
            let shown = if at > 0 { half_rounded(size) } else { size };
            return format!("{shown} {unit}");
        }
        // The first step leaves twice the number of units, and so do all others.
        size /= if at == 0 { 512 } else { 1024 };
    }
    format!("{size} bytes")
}

fn pretty_numeric(bytes: BigDecimal) -> String {
    let whole = |n: BigDecimal| n.with_scale_round(0, RoundingMode::Down);
    let mut size = bytes;
    for (at, (unit, limit)) in UNITS.iter().enumerate() {
        let last = at + 1 == UNITS.len();
        if last || size.abs() < BigDecimal::from(*limit) {
            let shown = match at {
                0 => size,
                _ => {
                    let one = BigDecimal::from(if size < BigDecimal::from(0) { -1 } else { 1 });
                    whole((whole(size) + one) / BigDecimal::from(2))
                }
            };
            let shown = Numeric::from_bigdecimal(shown);
            return format!("{shown} {unit}");
        }
        size = whole(size / BigDecimal::from(if at == 0 { 512 } else { 1024 }));
    }
    String::new()
}

/// The number of bytes that a text names.
fn bytes(text: &str) -> Result<i64> {
    let invalid = || Error::new("22023", format!("invalid size: \"{text}\""));
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    let trimmed = text.trim_matches(is_space);
    let unsigned = trimmed.trim_start_matches(['+', '-']);
    if trimmed.len() - unsigned.len() > 1 {
        return Err(invalid());
    }
    let digits = |s: &str| s.len() - s.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let mut end = trimmed.len() - unsigned.len();
    let before = digits(&trimmed[end..]);
    end += before;
    let mut after = 0;
    if trimmed[end..].starts_with('.') {
        after = digits(&trimmed[end + 1..]);
        end += 1 + after;
    }
    if before + after == 0 {
        return Err(invalid());
    }
    // An exponent is one only with its digits; without them it begins a unit.
    if let Some(exponent) = trimmed[end..].strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let count = digits(unsigned);
        if count > 0 {
            end += 1 + (exponent.len() - unsigned.len()) + count;
        }
    }
    let (number, unit) = trimmed.split_at(end);
    let number = match pgtype::text_in(SqlType::Numeric, number, &IoSettings::default())? {
        Datum::Numeric(n) => n,
        other => return Err(Error::internal(format!("{other:?} read as numeric"))),
    };
    let number = number.to_bigdecimal().ok_or_else(invalid)?;
    let unit = unit.trim_start_matches(is_space);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "bytes" => Some(0),
        "kb" => Some(10),
        "mb" => Some(20),
        "gb" => Some(30),
        "tb" => Some(40),
        "pb" => Some(50),
        _ => None,
    };
    let Some(factor) = factor else {
        return Err(invalid()
            .detail(format!("Invalid size unit: \"{unit}\"."))
            .hint("Valid units are \"bytes\", \"kB\", \"MB\", \"GB\", \"TB\", and \"PB\"."));
    };
    let size = number * BigDecimal::from(1_i64 << factor);
    let size = size.with_scale_round(0, RoundingMode::HalfUp).to_i64();
    size.ok_or_else(|| arith::out_of_range(SqlType::Int8))
}
