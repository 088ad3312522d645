//! Functions and operators of amounts of money.

use block::value::{Datum, DatumRef};

use super::{Function, Operator, binary, function, int};
use crate::error::{Error, Result};
use crate::expr::arith::{ArithOp, division_by_zero};
use crate::expr::number;
use crate::pgtype::money::PARTS;
use crate::types::SqlType;

use SqlType::{Float4, Float8, Int2, Int4, Int8, Money, Text};

pub const OPERATORS: &[Operator] = &[
    binary("+", Money, Money, Money, "cash_pl", |v, _| {
        amount(int(v, 0)?.checked_add(int(v, 1)?))
    }),
    binary("-", Money, Money, Money, "cash_mi", |v, _| {
        amount(int(v, 0)?.checked_sub(int(v, 1)?))
    }),
    binary("/", Money, Money, Float8, "cash_div_cash", |v, _| {
        match (int(v, 0)?, int(v, 1)?) {
            (_, 0) => Err(division_by_zero()),
            (l, r) => Ok(Datum::Float8(l as f64 / r as f64)),
        }
    }),
    binary("*", Money, Float8, Money, "cash_mul_flt8", times),
    binary("*", Money, Float4, Money, "cash_mul_flt4", times),
    binary("*", Money, Int8, Money, "cash_mul_int8", times),
    binary("*", Money, Int4, Money, "cash_mul_int4", times),
    binary("*", Money, Int2, Money, "cash_mul_int2", times),
    binary("*", Float8, Money, Money, "flt8_mul_cash", times),
    binary("*", Float4, Money, Money, "flt4_mul_cash", times),
    binary("*", Int8, Money, Money, "int8_mul_cash", times),
    binary("*", Int4, Money, Money, "int4_mul_cash", times),
    binary("*", Int2, Money, Money, "int2_mul_cash", times),
    binary("/", Money, Float8, Money, "cash_div_flt8", divided),
    binary("/", Money, Float4, Money, "cash_div_flt4", divided),
    binary("/", Money, Int8, Money, "cash_div_int8", divided),
    binary("/", Money, Int4, Money, "cash_div_int4", divided),
    binary("/", Money, Int2, Money, "cash_div_int2", divided),
];

pub const FUNCTIONS: &[Function] = &[function(
    "cash_words",
    &[Money],
    Text,
    "cash_words",
    |v, _| Ok(Datum::Text(words(int(v, 0)?))),
)];

pub fn out_of_range() -> Error {
    Error::new("22003", "money out of range")
}

/// The amount of a number of wholes.
pub fn of_number(value: DatumRef<'_>) -> Result<i64> {
    let beyond = || crate::expr::arith::out_of_range(Int8);
    if let Some(wholes) = crate::expr::arith::integer(value) {
        return wholes.checked_mul(PARTS).ok_or_else(beyond);
    }
    let DatumRef::Numeric(wholes) = value else {
        return Err(Error::internal(format!("{value:?} as money")));
    };
    if wholes.to_bigdecimal().is_none() {
        let what = if wholes.is_nan() { "NaN" } else { "infinity" };
        return Err(Error::new(
            "0A000",
            format!("cannot convert {what} to bigint"),
        ));
    }
    let hundred = number::from_i64(PARTS);
    let parts = number::apply(ArithOp::Mul, wholes, hundred.borrow())?;
    number::to_i64(parts.borrow()).ok_or_else(beyond)
}

pub fn to_numeric(amount: i64) -> Datum {
    Datum::Numeric(number::scaled(amount, 2))
}

fn amount(parts: Option<i64>) -> Result<Datum> {
    parts.map(Datum::Int8).ok_or_else(out_of_range)
}

/// A float, rounded.
fn rounded(f: f64) -> Result<Datum> {
    let parts = f.round_ties_even();
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&parts);
    amount(fits.then_some(parts as i64))
}

fn float(value: DatumRef<'_>) -> Option<f64> {
    match value {
        DatumRef::Float8(f) => Some(f),
        DatumRef::Float4(f) => Some(f.into()),
        _ => None,
    }
}

type Io = crate::pgtype::IoSettings;

fn times(v: &[DatumRef<'_>], _: &Io) -> Result<Datum> {
    match (
        v.first().copied().and_then(float),
        v.get(1).copied().and_then(float),
    ) {
        (None, Some(f)) => rounded(int(v, 0)? as f64 * f),
        (Some(f), None) => rounded(int(v, 1)? as f64 * f),
        _ => amount(int(v, 0)?.checked_mul(int(v, 1)?)),
    }
}

fn divided(v: &[DatumRef<'_>], _: &Io) -> Result<Datum> {
    let parts = int(v, 0)?;
    match v.get(1).copied().and_then(float) {
        Some(0.0) => Err(division_by_zero()),
        Some(f) => rounded(parts as f64 / f),
        None => match int(v, 1)? {
            0 => Err(division_by_zero()),
            by => amount(parts.checked_div(by)),
        },
    }
}

const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] = [
    "", "ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];

/// A number below a thousand.
fn words_below_thousand(n: u64) -> String {
    let (hundreds, rest) = ((n / 100) as usize, (n % 100) as usize);
    let below_hundred = match (rest, rest % 10) {
        (0..20, _) => SMALL[rest].to_string(),
        (_, 0) => TENS[rest / 10].to_string(),
        (_, ones) => format!("{} {}", TENS[rest / 10], SMALL[ones]),
    };
    match (hundreds, rest) {
        (0, _) => below_hundred,
        (_, 0) => format!("{} hundred", SMALL[hundreds]),
        (_, 1..20) => format!("{} hundred and {below_hundred}", SMALL[hundreds]),
        _ => format!("{} hundred {below_hundred}", SMALL[hundreds]),
    }
}

/// An amount in words.
fn words(amount: i64) -> String {
    const GROUPS: [(u64, &str); 6] = [
        (100_000_000_000_000_000, " quadrillion "),
        (100_000_000_000_000, " trillion "),
        (100_000_000_000, " billion "),
        (100_000_000, " million "),
        (100_000, " thousand "),
        (100, ""),
    ];
    let parts = amount.unsigned_abs();
    let mut text = String::new();
    for (of, name) in GROUPS {
        let group = parts / of % 1000;
        if group > 0 {
            text.push_str(&words_below_thousand(group));
            text.push_str(name);
        }
    }
    if text.is_empty() {
        text.push_str("zero");
    }
    let whole = if parts / 100 == 1 {
        "dollar"
    } else {
        "dollars"
    };
    let part = if parts % 100 == 1 { "cent" } else { "cents" };
    let cents = words_below_thousand(parts % 100);
    let sign = if amount < 0 { "minus " } else { "" };
    let text = format!("{sign}{text} {whole} and {cents} {part}");
    let (first, rest) = text.split_at(1);
    first.to_uppercase() + rest
}
