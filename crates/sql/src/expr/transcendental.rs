//! Roots, powers, exponentials and logarithms of `numeric`: every digit that is shown is right, and as many are shown
//! as PostgreSQL shows.

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, RoundingMode, ToPrimitive, Zero};

use super::number::{MAX_SCALE, MIN_SIGNIFICANT_DIGITS, quotient, scale};
use crate::error::{Error, Result};

/// Digits computed beyond those that are shown, for what rounding on the way takes.
const GUARD_DIGITS: i64 = 20;
/// Results with more digits before the point are refused; PostgreSQL's own limit is higher, and takes it minutes.
const MAX_RESULT_DIGITS: f64 = 6_000.0;
/// Digits of the exact product up to which an integer power is multiplied out.
const MAX_PRODUCT_DIGITS: u64 = 100_000;

fn overflow() -> Error {
    Error::new("22003", "value overflows numeric format")
}

/// Digits after the point of a result of about 10^`magnitude`.
fn result_scale(magnitude: f64, least: i64) -> i64 {
    (MIN_SIGNIFICANT_DIGITS - magnitude as i64)
        .max(least)
        .clamp(0, MAX_SCALE)
}

fn rounded(d: BigDecimal, to: i64) -> BigDecimal {
    d.with_scale_round(to, RoundingMode::HalfUp)
}

/// The decimal logarithm of a positive number, about.
fn log10(d: &BigDecimal) -> f64 {
    let (int, scale) = d.as_bigint_and_exponent();
    let digits = int.magnitude().to_string();
    let head = &digits[..digits.len().min(17)];
    let mantissa: f64 = head.parse().unwrap_or(1.0);
    mantissa.log10() + (digits.len() - head.len()) as f64 - scale as f64
}

pub fn sqrt(d: &BigDecimal) -> Result<BigDecimal> {
    if d.sign() == Sign::Minus {
        return Err(Error::new(
            "2201F",
            "cannot take square root of a negative number",
        ));
    }
    // PostgreSQL counts digits in groups of four, of which the first has `weight`.
    let weight = match d.is_zero() {
        true => 0,
        false => (d.digits() as i64 - scale(d) - 1).div_euclid(4),
    };
    let shown = (MIN_SIGNIFICANT_DIGITS - ((weight + 1) * 2 - 1))
        .max(scale(d))
        .clamp(0, MAX_SCALE);
    // The root of the number with twice the digits, in whole numbers; one more to round by.
    let (int, from) = d.with_scale(scale(d).max(0)).into_bigint_and_exponent();
    let places = (shown + 1).max((from + 1) / 2);
    let shift = u32::try_from(2 * places - from).map_err(|_| overflow())?;
    let root = (int * BigInt::from(10).pow(shift)).sqrt();
    Ok(rounded(BigDecimal::new(root, places), shown))
}

/// e^x to `digits` digits after the point.
fn exp_to(x: &BigDecimal, digits: i64) -> BigDecimal {
    let magnitude = x.to_f64().unwrap_or(0.0) * std::f64::consts::LOG10_E;
    let work = digits + GUARD_DIGITS + magnitude.abs() as i64;
    // Halved until the series converges quickly, squared as often again.
    let size = x.to_f64().unwrap_or(0.0).abs();
    let halvings = (size / 0.01).max(1.0).log2().ceil() as u32;
    let half = quotient(x, &BigDecimal::from(BigInt::from(2).pow(halvings)), work);
    let (mut sum, mut term) = (BigDecimal::from(1), BigDecimal::from(1));
    let mut n = 1_i64;
    while !term.is_zero() {
        term = quotient(
            &rounded(&term * &half, work + 4),
            &BigDecimal::from(n),
            work,
        );
        sum += &term;
        n += 1;
    }
    for _ in 0..halvings {
        sum = rounded(&sum * &sum, work);
    }
    sum
}

pub fn exp(x: &BigDecimal) -> Result<BigDecimal> {
    // PostgreSQL's limit, which is nearer than that of the digits of a numeric.
    const MAX_EXPONENT: f64 = 6_000.0;
    match x.to_f64() {
        Some(n) if n < MAX_EXPONENT => exp_shown(x, scale(x)),
        _ => Err(overflow()),
    }
}

fn exp_shown(x: &BigDecimal, least: i64) -> Result<BigDecimal> {
    let magnitude = x.to_f64().unwrap_or(f64::INFINITY) * std::f64::consts::LOG10_E;
    if magnitude >= MAX_RESULT_DIGITS {
        return Err(overflow());
    }
    let shown = result_scale(magnitude.max(-(MAX_SCALE as f64)), least);
    if magnitude < -(MAX_SCALE as f64) - 1.0 {
        return Ok(BigDecimal::new(BigInt::from(0), shown));
    }
    Ok(rounded(exp_to(x, shown), shown))
}

/// The natural logarithm of a positive number to `digits` digits after the point.
fn ln_to(x: &BigDecimal, digits: i64) -> BigDecimal {
    let work = digits + GUARD_DIGITS;
    let about = log10(x) * std::f64::consts::LN_10;
    let mut y = BigDecimal::try_from(about).unwrap_or_default();
    let one = BigDecimal::from(1);
    // Each step has three times the right digits of the one before, of which doubles gave a dozen.
    let mut right = 12;
    while right < work * 2 {
        let ratio = rounded(x * exp_to(&-&y, work + log10(x).abs() as i64), work);
        let step = quotient(
            &((&ratio - &one) * BigDecimal::from(2)),
            &(&ratio + &one),
            work,
        );
        y = rounded(y + step, work);
        right *= 3;
    }
    y
}

pub fn positive(x: &BigDecimal) -> Result<()> {
    match x.sign() {
        Sign::Plus => Ok(()),
        Sign::NoSign => Err(Error::new("2201E", "cannot take logarithm of zero")),
        Sign::Minus => Err(Error::new(
            "2201E",
            "cannot take logarithm of a negative number",
        )),
    }
}

/// The decimal magnitude of the natural logarithm of a positive number.
fn ln_magnitude(x: &BigDecimal) -> f64 {
    let near = x - BigDecimal::from(1);
    if near.is_zero() {
        return 0.0;
    }
    if near.abs() <= BigDecimal::new(BigInt::from(1), 1) {
        return log10(&near.abs()).floor();
    }
    (log10(x) * std::f64::consts::LN_10).abs().log10().trunc()
}

pub fn ln(x: &BigDecimal) -> Result<BigDecimal> {
    positive(x)?;
    let shown = result_scale(ln_magnitude(x), scale(x));
    Ok(rounded(ln_to(x, shown), shown))
}

pub fn log_base_10(x: &BigDecimal) -> Result<BigDecimal> {
    positive(x)?;
    let shown = result_scale(ln_magnitude(x), scale(x));
    let work = shown + GUARD_DIGITS;
    let ten = ln_to(&BigDecimal::from(10), work);
    Ok(quotient(&ln_to(x, work), &ten, shown))
}

/// The logarithm of a positive number to a base.
pub fn log(base: &BigDecimal, x: &BigDecimal) -> Result<BigDecimal> {
    positive(base)?;
    positive(x)?;
    if (base - BigDecimal::from(1)).is_zero() {
        return Err(Error::new("22012", "division by zero"));
    }
    let (of_base, of_x) = (ln_magnitude(base) as i64, ln_magnitude(x) as i64);
    let shown = (MIN_SIGNIFICANT_DIGITS - (of_x - of_base))
        .max(scale(base))
        .max(scale(x))
        .clamp(0, MAX_SCALE);
    // The smaller the logarithm of the base, the more of its digits count.
    let work = shown + GUARD_DIGITS + of_base.abs() + of_x.abs();
    Ok(quotient(&ln_to(x, work), &ln_to(base, work), shown))
}

pub fn power(a: &BigDecimal, b: &BigDecimal) -> Result<BigDecimal> {
    let whole = b.is_integer();
    if a.is_zero() {
        return match b.sign() {
            Sign::Minus => Err(Error::new(
                "2201F",
                "zero raised to a negative power is undefined",
            )),
            Sign::NoSign => Ok(BigDecimal::from(1).with_scale(MIN_SIGNIFICANT_DIGITS)),
            Sign::Plus => Ok(BigDecimal::new(BigInt::from(0), MIN_SIGNIFICANT_DIGITS)),
        };
    }
    if a.sign() == Sign::Minus && !whole {
        return Err(Error::new(
            "2201F",
            "a negative number raised to a non-integer power yields a complex result",
        ));
    }
    let size = a.abs();
    let magnitude = log10(&size) * b.to_f64().unwrap_or(f64::INFINITY);
    if magnitude >= MAX_RESULT_DIGITS {
        return Err(overflow());
    }
    if magnitude < -(MAX_SCALE as f64) - 1.0 {
        return Ok(BigDecimal::new(BigInt::from(0), MAX_SCALE));
    }
    let exponent = b.to_i32().filter(|_| whole);
    if let Some(n) =
        exponent.filter(|n| u64::from(n.unsigned_abs()) * a.digits().max(1) <= MAX_PRODUCT_DIGITS)
    {
        let shown = MIN_SIGNIFICANT_DIGITS
            .max(scale(a))
            .max(scale(b))
            .min(MAX_SCALE);
        let product = multiplied(a, n.unsigned_abs());
        return Ok(match n < 0 {
            true => quotient(&BigDecimal::from(1), &product, shown),
            false => rounded(product, shown),
        });
    }
    let digits = MIN_SIGNIFICANT_DIGITS + GUARD_DIGITS + magnitude.abs() as i64 + log10_of(b);
    let product = ln_to(&size, digits) * b;
    let result = exp_shown(&product, scale(a).max(scale(b)))?;
    let odd = whole && !(b / BigDecimal::from(2)).is_integer();
    Ok(match a.sign() == Sign::Minus && odd {
        true => -result,
        false => result,
    })
}

/// Digits before the point of a number.
fn log10_of(d: &BigDecimal) -> i64 {
    if d.is_zero() {
        return 0;
    }
    (log10(&d.abs()) as i64).max(0) + 1
}

fn multiplied(a: &BigDecimal, n: u32) -> BigDecimal {
    let (mut base, mut n, mut product) = (a.clone(), n, BigDecimal::from(1));
    while n > 0 {
        if n & 1 == 1 {
            product *= &base;
        }
        n >>= 1;
        if n > 0 {
            base = &base * &base;
        }
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(s: &str) -> BigDecimal {
        s.parse().unwrap()
    }

    /// What PostgreSQL 15 answers.
    #[test]
    fn digits_are_those_of_postgresql() {
        let of =
            |f: fn(&BigDecimal) -> Result<BigDecimal>, s: &str| f(&d(s)).unwrap().to_plain_string();
        assert_eq!(of(exp, "1.0"), "2.7182818284590452");
        assert_eq!(of(exp, "10.5"), "36315.502674246638");
        assert_eq!(of(exp, "-5.2"), "0.005516564420760772");
        assert_eq!(of(exp, "0"), "1.0000000000000000");
        assert_eq!(of(ln, "10.0"), "2.3025850929940457");
        assert_eq!(of(ln, "2"), "0.6931471805599453");
        assert_eq!(of(ln, "123456.789"), "11.723646487185881");
        assert_eq!(of(ln, "0.001"), "-6.9077552789821371");
        assert_eq!(of(log_base_10, "1000"), "3.0000000000000000");
        assert_eq!(of(log_base_10, "2"), "0.3010299956639812");
        assert_eq!(of(sqrt, "2"), "1.414213562373095");
        assert_eq!(of(sqrt, "9999999999999999"), "99999999.999999995");
        assert_eq!(of(sqrt, "100000"), "316.2277660168379");
        assert_eq!(of(sqrt, "0.0004"), "0.02000000000000000");
        assert_eq!(of(sqrt, "0"), "0.000000000000000");
        let pow = |a: &str, b: &str| power(&d(a), &d(b)).unwrap().to_plain_string();
        assert_eq!(pow("2", "0.5"), "1.4142135623730950");
        assert_eq!(pow("2.0", "3"), "8.0000000000000000");
        assert_eq!(pow("2", "-10"), "0.0009765625000000");
        assert_eq!(pow("10", "20"), "100000000000000000000.0000000000000000");
        assert_eq!(pow("-2", "3"), "-8.0000000000000000");
        assert_eq!(pow("1.5", "2.5"), "2.7556759606310754");
        assert_eq!(pow("3.7", "-2.5"), "0.03797481701315094");
        assert_eq!(pow("1.01", "1000.5"), "21063.690728374197");
        assert_eq!(pow("0.0", "2"), "0.0000000000000000");
        assert_eq!(of(ln, "1.05"), "0.048790164169432003");
        assert!(power(&d("-2"), &d("0.5")).is_err());
        assert!(ln(&d("0")).is_err());
    }
}
