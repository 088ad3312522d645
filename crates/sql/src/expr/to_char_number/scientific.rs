//! `to_char` of numbers with `EEEE`: a digit, a point, and a power of ten.

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, RoundingMode, Zero};
use block::value::DatumRef;

use crate::error::{Error, Result};
use crate::expr::arith;

/// Room for the sign, the point, and an exponent of two digits with its own sign.
const MARKS: usize = 6;

pub fn write(value: DatumRef<'_>, before: usize, behind: usize) -> Result<String> {
    let no_number = || {
        let mut out: Vec<u8> = vec![b'#'; before + behind + MARKS];
        out[0] = b' ';
        out[before + 1] = b'.';
        String::from_utf8_lossy(&out).into_owned()
    };
    let text = match value {
        DatumRef::Float8(f) if !f.is_finite() => return Ok(no_number()),
        DatumRef::Float8(f) => of_double(f, behind),
        // As PostgreSQL does it: half a digit goes to the even one.
        DatumRef::Int4(i) => of_double(i.into(), behind),
        DatumRef::Numeric(n) => match n.to_bigdecimal() {
            Some(n) => of_decimal(&n, behind),
            None => return Ok(no_number()),
        },
        other => match arith::integer(other) {
            Some(i) => of_decimal(&BigDecimal::from(i), behind),
            None => return Err(Error::internal(format!("to_char of {other:?}"))),
        },
    };
    Ok(match text.starts_with('-') {
        true => text,
        false => format!(" {text}"),
    })
}

fn exponent(e: i64) -> String {
    let sign = if e < 0 { '-' } else { '+' };
    format!("e{sign}{:02}", e.abs())
}

fn of_double(f: f64, behind: usize) -> String {
    let text = format!("{f:.behind$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{mantissa}{}", exponent(power.parse().unwrap_or(0)))
}

fn of_decimal(n: &BigDecimal, behind: usize) -> String {
    let digits_of = |n: &BigDecimal| {
        let (int, scale) = n.as_bigint_and_exponent();
        (int.magnitude().to_string(), scale)
    };
    let power = match n.is_zero() {
        true => 0,
        false => {
            let (digits, scale) = digits_of(n);
            digits.len() as i64 - 1 - scale
        }
    };
    let scaled = n * BigDecimal::new(BigInt::from(1), power);
    let scaled = scaled.with_scale_round(behind as i64, RoundingMode::HalfUp);
    let (digits, _) = digits_of(&scaled);
    let digits = format!("{digits:0<width$}", width = behind + 1);
    let sign = if scaled.sign() == Sign::Minus {
        "-"
    } else {
        ""
    };
    // Rounding may give a digit more, which PostgreSQL shows before the point: `10.0e+00`.
    let (first, rest) = digits.split_at(digits.len() - behind);
    let point = if behind > 0 { "." } else { "" };
    format!("{sign}{first}{point}{rest}{}", exponent(power))
}
