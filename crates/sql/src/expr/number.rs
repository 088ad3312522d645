//! Arithmetic and functions on `numeric`, with PostgreSQL's rules for the scale of results.

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, RoundingMode, ToPrimitive, Zero};
use block::numeric::{Numeric, NumericRef, Short};

use super::arith::{ArithOp, division_by_zero};
use super::func::PureFunc;
use super::transcendental;
use crate::error::{Error, Result};
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

/// Digits a quotient has at least, and scale it has at most.
pub const MIN_SIGNIFICANT_DIGITS: i64 = 16;
pub const MAX_SCALE: i64 = 1000;
/// Scale to which a number may be rounded: the highest that is stored.
const MAX_ROUNDED_SCALE: i64 = block::numeric::MAX_SCALE as i64;
/// Digits before the point, beyond which PostgreSQL calls it an overflow.
const MAX_INTEGER_DIGITS: i64 = 131_072;

/// An integer of 10^-digits.
pub fn scaled(n: i64, digits: i64) -> Numeric {
    Numeric::from_bigdecimal(BigDecimal::new(n.into(), digits))
}

pub fn from_i64(i: i64) -> Numeric {
    Numeric::from(i)
}

pub fn from_i128(value: i128) -> Numeric {
    Numeric::from(Short { value, scale: 0 })
}

fn parse(text: &str) -> Result<Numeric> {
    match pgtype::text_in(SqlType::Numeric, text, &IoSettings::default())? {
        block::value::Datum::Numeric(n) => Ok(n),
        other => Err(Error::internal(format!("{other:?} read as numeric"))),
    }
}

/// PostgreSQL's conversion goes through 15 digits, those a double is sure of.
pub fn from_f64(f: f64) -> Result<Numeric> {
    significant(f, 15)
}

pub fn from_f32(f: f32) -> Result<Numeric> {
    significant(f.into(), 6)
}

fn significant(f: f64, digits: usize) -> Result<Numeric> {
    if !f.is_finite() {
        return parse(if f.is_nan() {
            "NaN"
        } else if f > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        });
    }
    let text = format!("{:.*e}", digits - 1, f);
    let value: BigDecimal = text
        .parse()
        .map_err(|_| Error::internal(format!("{text} is no number")))?;
    let value = value.normalized();
    Ok(Numeric::from_bigdecimal(
        if value.as_bigint_and_exponent().1 < 0 {
            value.with_scale(0)
        } else {
            value
        },
    ))
}

pub fn to_f64(n: NumericRef<'_>) -> f64 {
    if let Some(float) = n.short().and_then(Short::to_f64) {
        return float;
    }
    match n.to_bigdecimal() {
        Some(d) => d.to_string().parse().unwrap_or(f64::NAN),
        None => special(n),
    }
}

/// NaN and the infinities as floats.
fn special(n: NumericRef<'_>) -> f64 {
    if n.is_nan() {
        f64::NAN
    } else if n.to_string().starts_with('-') {
        f64::NEG_INFINITY
    } else {
        f64::INFINITY
    }
}

/// Rounded half away from zero; `None` if it does not fit, or is no number.
pub fn to_i64(n: NumericRef<'_>) -> Option<i64> {
    if let Some(whole) = n.short().and_then(|n| n.round(0)) {
        return whole.value.try_into().ok();
    }
    n.to_bigdecimal()?
        .with_scale_round(0, RoundingMode::HalfUp)
        .to_i64()
}

pub fn negate(n: NumericRef<'_>) -> Numeric {
    if let Some(Short { value, scale }) = n.short() {
        return Numeric::from(Short {
            value: -value,
            scale,
        });
    }
    match n.to_bigdecimal() {
        Some(d) => Numeric::from_bigdecimal(-d),
        None if n.is_nan() => n.to_numeric(),
        None => from_f64(-special(n)).unwrap_or_else(|_| n.to_numeric()),
    }
}

pub fn apply(op: ArithOp, l: NumericRef<'_>, r: NumericRef<'_>) -> Result<Numeric> {
    if let (Some(a), Some(b)) = (l.short(), r.short())
        && let Some(made) = short(op, a, b)
    {
        return Ok(made.into());
    }
    let (Some(a), Some(b)) = (l.to_bigdecimal(), r.to_bigdecimal()) else {
        return specials(op, l, r);
    };
    let result = match op {
        // A zero operand would leave the other one its own scale.
        ArithOp::Add | ArithOp::Sub => {
            let both = scale(&a).max(scale(&b));
            match op {
                ArithOp::Add => (a + b).with_scale(both),
                _ => (a - b).with_scale(both),
            }
        }
        ArithOp::Mul => {
            let both = scale(&a) + scale(&b);
            (a * b).with_scale(both)
        }
        ArithOp::Div => divide(a, b)?,
        ArithOp::Mod if b.is_zero() => return Err(division_by_zero()),
        ArithOp::Mod => a % b,
        ArithOp::Pow => transcendental::power(&a, &b)?,
        _ => return Err(Error::internal("bit operation on numeric")),
    };
    bounded(result)
}

/// The result, if 128 bits are enough for all of it.
fn short(op: ArithOp, a: Short, b: Short) -> Option<Short> {
    match op {
        ArithOp::Add => a.plus(b),
        ArithOp::Sub => a.minus(b),
        ArithOp::Mul => a.times(b),
        ArithOp::Div => {
            let groups = (a.leading_group()?, b.leading_group()?);
            let scales = (a.scale.into(), b.scale.into());
            a.divide(b, u16::try_from(scale_of_quotient(groups, scales)).ok()?)
        }
        _ => None,
    }
}

/// With NaN or an infinity on a side: as floats do it.
fn specials(op: ArithOp, l: NumericRef<'_>, r: NumericRef<'_>) -> Result<Numeric> {
    let value = |n: NumericRef<'_>| {
        if n.to_bigdecimal().is_some() {
            to_f64(n)
        } else {
            special(n)
        }
    };
    let (a, b) = (value(l), value(r));
    if op == ArithOp::Pow && !a.is_nan() && !b.is_nan() {
        let whole = r.to_bigdecimal().is_none_or(|d| d.is_integer());
        if l.to_bigdecimal().is_some_and(|d| d.is_zero()) && b < 0.0 {
            return Err(Error::new(
                "2201F",
                "zero raised to a negative power is undefined",
            ));
        }
        if a < 0.0 && !whole {
            return Err(Error::new(
                "2201F",
                "a negative number raised to a non-integer power yields a complex result",
            ));
        }
    }
    from_f64(match op {
        ArithOp::Add => a + b,
        ArithOp::Sub => a - b,
        ArithOp::Mul => a * b,
        ArithOp::Div | ArithOp::Mod if b == 0.0 && !a.is_nan() => return Err(division_by_zero()),
        ArithOp::Div => a / b,
        ArithOp::Mod => a % b,
        ArithOp::Pow => a.powf(b),
        _ => return Err(Error::internal("bit operation on numeric")),
    })
}

/// A result, unless it has more digits than a numeric can have.
pub fn bounded(d: BigDecimal) -> Result<Numeric> {
    if d.digits() as i64 - scale(&d) > MAX_INTEGER_DIGITS {
        return Err(Error::new("22003", "value overflows numeric format"));
    }
    Ok(Numeric::from_bigdecimal(d))
}

pub fn scale(d: &BigDecimal) -> i64 {
    d.as_bigint_and_exponent().1
}

/// The place of the first digit in groups of four, as PostgreSQL stores numbers, and that group's value.
fn leading_group(d: &BigDecimal) -> (i64, i64) {
    if d.is_zero() {
        return (0, 0);
    }
    let (int, scale) = d.as_bigint_and_exponent();
    let digits = int.magnitude().to_string();
    let before_point = digits.len() as i64 - scale;
    let weight = (before_point - 1).div_euclid(4);
    let width = (before_point - 1).rem_euclid(4) as usize + 1;
    let mut group: String = digits.chars().take(width).collect();
    while group.len() < width {
        group.push('0');
    }
    (weight, group.parse().unwrap_or(0))
}

fn divide(a: BigDecimal, b: BigDecimal) -> Result<BigDecimal> {
    if b.is_zero() {
        return Err(division_by_zero());
    }
    Ok(quotient(&a, &b, quotient_scale(&a, &b)))
}

/// A quotient with as many digits as PostgreSQL gives it.
pub fn divided(a: BigDecimal, b: BigDecimal) -> Result<Numeric> {
    bounded(divide(a, b)?)
}

/// The square root of a number that is not negative, with as many digits after the point.
pub fn root(n: &Numeric) -> Numeric {
    use bigdecimal::num_bigint::BigInt;
    let Some(d) = n.to_bigdecimal() else {
        return n.clone();
    };
    let (int, scale) = d.into_bigint_and_exponent();
    // One more digit to round by.
    let digits = (int * BigInt::from(10).pow((scale + 2) as u32)).sqrt();
    let root = BigDecimal::new(digits, scale + 1);
    Numeric::from_bigdecimal(root.with_scale_round(scale, RoundingMode::HalfUp))
}

/// Digits after the point that PostgreSQL gives a quotient.
fn quotient_scale(a: &BigDecimal, b: &BigDecimal) -> i64 {
    let groups = (leading_group(a), leading_group(b));
    scale_of_quotient(groups, (scale(a), scale(b)))
}

/// The same from the place and value of both numbers' first groups, and from their scales.
fn scale_of_quotient(
    ((weight_a, first_a), (weight_b, first_b)): ((i64, i64), (i64, i64)),
    (scale_a, scale_b): (i64, i64),
) -> i64 {
    let mut weight = weight_a - weight_b;
    if first_a <= first_b {
        weight -= 1;
    }
    (MIN_SIGNIFICANT_DIGITS - weight * 4)
        .max(scale_a)
        .max(scale_b)
        .clamp(0, MAX_SCALE)
}

/// `a / b` rounded half away from zero to a scale, in whole numbers.
pub fn quotient(a: &BigDecimal, b: &BigDecimal, result_scale: i64) -> BigDecimal {
    use bigdecimal::num_bigint::BigInt;
    let (a_int, a_scale) = a.as_bigint_and_exponent();
    let (b_int, b_scale) = b.as_bigint_and_exponent();
    let shift = result_scale + b_scale - a_scale;
    let ten = |n: i64| BigInt::from(10).pow(n as u32);
    let (numerator, denominator) = if shift >= 0 {
        (a_int * ten(shift), b_int)
    } else {
        (a_int, b_int * ten(-shift))
    };
    let negative = (numerator.sign() == Sign::Minus) != (denominator.sign() == Sign::Minus);
    let (n, d) = (
        BigInt::from(numerator.magnitude().clone()),
        BigInt::from(denominator.magnitude().clone()),
    );
    let rounded: BigInt = (&n * 2 + &d) / (&d * 2);
    BigDecimal::new(if negative { -rounded } else { rounded }, result_scale)
}

/// A count of days and a part of a day, with as many digits as PostgreSQL gives such a quotient.
pub fn days_and_time(days: i64, time: i64, day: i64) -> Numeric {
    let (days, time, day) = (
        BigDecimal::from(days),
        BigDecimal::from(time),
        BigDecimal::from(day),
    );
    let part = quotient(&time, &day, quotient_scale(&time, &day));
    let digits = scale(&part);
    Numeric::from_bigdecimal((days + part).with_scale(digits))
}

pub fn infinity(positive: bool) -> Numeric {
    match positive {
        true => Numeric::infinity(),
        false => Numeric::neg_infinity(),
    }
}

/// Digits after the point without the zeros at the end.
fn min_scale(d: &BigDecimal) -> i64 {
    scale(&d.normalized()).max(0)
}

/// The digits after the point: of the number as it is, or without zeros at the end. `None`: it is
/// none.
pub fn digits_after_point(f: PureFunc, n: NumericRef<'_>) -> Option<i32> {
    let d = n.to_bigdecimal()?;
    let digits = match f {
        PureFunc::MinScale => min_scale(&d),
        _ => scale(&d),
    };
    i32::try_from(digits).ok()
}

/// A quotient without what is behind the point.
pub fn whole_quotient(l: NumericRef<'_>, r: NumericRef<'_>) -> Result<Numeric> {
    let (Some(a), Some(b)) = (l.to_bigdecimal(), r.to_bigdecimal()) else {
        let quotient = specials(ArithOp::Div, l, r)?;
        return function(PureFunc::Trunc, quotient.borrow(), 0);
    };
    if b.is_zero() {
        return Err(division_by_zero());
    }
    let remainder = &a % &b;
    bounded(quotient(&(a - remainder), &b, 0))
}

/// A power of ten, with as many digits as PostgreSQL gives it.
pub fn power_of_ten(exponent: i64) -> Result<Numeric> {
    bounded(transcendental::power(
        &BigDecimal::from(10),
        &BigDecimal::from(exponent),
    )?)
}

/// The greatest common divisor, or the least common multiple.
pub fn common(f: PureFunc, l: NumericRef<'_>, r: NumericRef<'_>) -> Result<Numeric> {
    let (Some(a), Some(b)) = (l.to_bigdecimal(), r.to_bigdecimal()) else {
        return from_f64(f64::NAN);
    };
    let digits = scale(&a).max(scale(&b));
    let (mut divisor, mut rest) = (a.abs(), b.abs());
    while !rest.is_zero() {
        let next = &divisor % &rest;
        divisor = std::mem::replace(&mut rest, next);
    }
    if f == PureFunc::Gcd {
        return bounded(divisor.with_scale(digits));
    }
    if a.is_zero() || b.is_zero() {
        return bounded(BigDecimal::zero().with_scale(digits));
    }
    let whole = quotient(&a.abs(), &divisor, 0);
    bounded((whole * b.abs()).with_scale(digits))
}

/// The logarithm of a number to a base.
pub fn log_base(base: NumericRef<'_>, n: NumericRef<'_>) -> Result<Numeric> {
    if base.is_nan() || n.is_nan() {
        return Ok(if base.is_nan() { base } else { n }.to_numeric());
    }
    let refused = |n: NumericRef<'_>| PureFunc::Ln.float(special(n)).map(|_| ());
    match (base.to_bigdecimal(), n.to_bigdecimal()) {
        (Some(b), Some(x)) => bounded(transcendental::log(&b, &x)?),
        (b, x) => {
            // Their signs are looked at before infinity is.
            for (value, written) in [(b.as_ref(), base), (x.as_ref(), n)] {
                match value {
                    Some(d) => transcendental::positive(d)?,
                    None => refused(written)?,
                }
            }
            Ok(match (b, x) {
                (None, None) => Numeric::nan(),
                (None, Some(_)) => from_i64(0),
                _ => n.to_numeric(),
            })
        }
    }
}

/// The product of the whole numbers up to one.
pub fn factorial(n: i64) -> Result<Numeric> {
    const MOST: i64 = 32_177;
    if n < 0 {
        let message = "factorial of a negative number is undefined";
        return Err(Error::new("22003", message));
    }
    if n > MOST {
        return Err(Error::new("22003", "value overflows numeric format"));
    }
    let product = (2..=n).fold(BigInt::from(1), |product, n| product * n);
    bounded(BigDecimal::new(product, 0))
}

/// A function of one numeric; `places` is the second argument of round and trunc.
pub fn function(f: PureFunc, n: NumericRef<'_>, places: i64) -> Result<Numeric> {
    let Some(d) = n.to_bigdecimal() else {
        return match f {
            PureFunc::Sign if n.is_nan() => Ok(n.to_numeric()),
            PureFunc::Round | PureFunc::RoundTo | PureFunc::Trunc | PureFunc::TruncTo => {
                Ok(n.to_numeric())
            }
            PureFunc::TrimScale => Ok(n.to_numeric()),
            // Of a float these would leave the range of doubles.
            PureFunc::Exp if special(n) == f64::NEG_INFINITY => Ok(from_i64(0)),
            PureFunc::Exp => Ok(n.to_numeric()),
            _ => from_f64(f.float(special(n))?),
        };
    };
    // One digit more than there can be before the point may come of rounding, and overflows.
    let places = places.clamp(-MAX_INTEGER_DIGITS - 1, MAX_ROUNDED_SCALE);
    let rounded = |mode: RoundingMode, to: i64| {
        let d = d.with_scale_round(to, mode);
        if to < 0 { d.with_scale(0) } else { d }
    };
    let result = match f {
        PureFunc::Abs => d.abs(),
        PureFunc::Sign => BigDecimal::from(match d.sign() {
            Sign::Minus => -1,
            Sign::NoSign => 0,
            Sign::Plus => 1,
        }),
        PureFunc::Round | PureFunc::RoundTo => rounded(RoundingMode::HalfUp, places),
        PureFunc::Trunc | PureFunc::TruncTo => rounded(RoundingMode::Down, places),
        PureFunc::Ceil => rounded(RoundingMode::Ceiling, 0),
        PureFunc::Floor => rounded(RoundingMode::Floor, 0),
        PureFunc::Sqrt => transcendental::sqrt(&d)?,
        PureFunc::Exp => transcendental::exp(&d)?,
        PureFunc::Ln => transcendental::ln(&d)?,
        PureFunc::Log10 => transcendental::log_base_10(&d)?,
        PureFunc::TrimScale => {
            let digits = min_scale(&d);
            d.with_scale(digits)
        }
        other => return Err(Error::internal(format!("{other:?} of a numeric"))),
    };
    bounded(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calc(op: ArithOp, a: &str, b: &str) -> String {
        apply(op, parse(a).unwrap().borrow(), parse(b).unwrap().borrow())
            .unwrap()
            .to_string()
    }

    #[test]
    fn scales_as_postgres_has_them() {
        assert_eq!(calc(ArithOp::Div, "1", "3"), "0.33333333333333333333");
        assert_eq!(calc(ArithOp::Div, "6", "3"), "2.0000000000000000");
        assert_eq!(calc(ArithOp::Div, "100000", "3"), "33333.333333333333");
        assert_eq!(calc(ArithOp::Div, "-2", "3"), "-0.66666666666666666667");
        assert_eq!(calc(ArithOp::Mul, "1.10", "2.0"), "2.200");
        assert_eq!(calc(ArithOp::Add, "1.10", "2"), "3.10");
        assert_eq!(calc(ArithOp::Sub, "20", "0.00"), "20.00");
        assert_eq!(calc(ArithOp::Mul, "0.00", "1.5"), "0.000");
        assert_eq!(calc(ArithOp::Mod, "-7.5", "2"), "-1.5");
        assert!(
            apply(
                ArithOp::Div,
                parse("1").unwrap().borrow(),
                parse("0").unwrap().borrow()
            )
            .is_err()
        );
        assert_eq!(
            function(PureFunc::RoundTo, parse("2.5").unwrap().borrow(), 0)
                .unwrap()
                .to_string(),
            "3"
        );
        assert_eq!(
            function(PureFunc::RoundTo, parse("-1234.5").unwrap().borrow(), -2)
                .unwrap()
                .to_string(),
            "-1200"
        );
        assert_eq!(from_f64(0.1).unwrap().to_string(), "0.1");
    }
}
