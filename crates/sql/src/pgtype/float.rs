//! Text of floating point numbers, with PostgreSQL's choice of digits.

use std::io::Write as _;

use super::number::{invalid, is_c_space, is_decimal, write_integer};
use crate::error::{Error, Result};

/// Reads a `double precision`.
pub fn parse_float8(text: &str) -> Result<f64> {
    // Digits and signs only, and neither zero nor infinite: nothing to look at more closely.
    let plain = |b: &u8| matches!(b, b'0'..=b'9' | b'.' | b'-');
    if text.as_bytes().iter().all(plain)
        && let Ok(value) = text.parse::<f64>()
        && value != 0.0
        && value.is_finite()
    {
        return Ok(value);
    }
    let name = "double precision";
    let trimmed = text.trim_matches(is_c_space);
    if let Some(special) = special_float(trimmed) {
        return Ok(special);
    }
    let value: f64 = float_syntax(trimmed)
        .ok_or_else(|| invalid(name, text))?
        .parse()
        .map_err(|_| invalid(name, text))?;
    if value.is_infinite() || value == 0.0 && !is_zero(trimmed) {
        return Err(Error::new(
            "22003",
            format!("\"{trimmed}\" is out of range for type {name}"),
        ));
    }
    Ok(value)
}

/// Reads a `real`, rounding once from the decimal text.
pub fn parse_float4(text: &str) -> Result<f32> {
    let name = "real";
    let trimmed = text.trim_matches(is_c_space);
    if let Some(special) = special_float(trimmed) {
        return Ok(special as f32);
    }
    let value: f32 = float_syntax(trimmed)
        .ok_or_else(|| invalid(name, text))?
        .parse()
        .map_err(|_| invalid(name, text))?;
    if value.is_infinite() || value == 0.0 && !is_zero(trimmed) {
        return Err(Error::new(
            "22003",
            format!("\"{trimmed}\" is out of range for type {name}"),
        ));
    }
    Ok(value)
}

fn special_float(text: &str) -> Option<f64> {
    let (negative, word) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if word.eq_ignore_ascii_case("infinity") || word.eq_ignore_ascii_case("inf") {
        return Some(if negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        });
    }
    text.eq_ignore_ascii_case("nan").then_some(f64::NAN)
}

/// The text if it is a decimal number; Rust's parser also takes words that C's does not.
fn float_syntax(text: &str) -> Option<&str> {
    is_decimal(text).then_some(text)
}

/// Whether the mantissa has no digit but zeros.
fn is_zero(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or("");
    !mantissa.bytes().any(|b| (b'1'..=b'9').contains(&b))
}

/// Shortest text that reads back as the same number, in PostgreSQL's choice of digits and notation.
pub fn write_float8(out: &mut Vec<u8>, value: f64) {
    if !write_special_float(out, value) && !write_short_decimal(out, value) {
        write_shortest(out, value);
    }
}

/// A number rounded to so many digits, and at least one.
pub fn write_rounded(out: &mut Vec<u8>, value: f64, digits: i8) {
    if write_special_float(out, value) {
        return;
    }
    let digits = i32::from(digits).max(1);
    let text = format!("{value:.*e}", (digits - 1) as usize);
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    Scientific::new(format_args!("{mantissa}e{exponent}")).write(out, digits);
}

fn write_shortest(out: &mut Vec<u8>, value: f64) {
    let mut text = Scientific::new(format_args!("{value:e}"));
    if text.is_tie(value) {
        let even = Scientific::new(format_args!("{value:.*e}", text.digits() - 1));
        // At a power of two the even choice may be nearer to the number below.
        if even.text().parse() == Ok(value) {
            text = even;
        }
    } else if value.abs() >= 2f64.powi(f64::MANTISSA_DIGITS as i32) {
        let gap = value.abs().next_up() - value.abs();
        text = text.without_middle(value, gap, |text| text.parse() == Ok(value));
    }
    text.write(out, 15);
}

/// Writes a number that is a decimal of few digits, as most are; false if it is not, or not seen to be.
///
/// Of all decimals of up to fifteen digits at most one reads back as a given number, so if one does, it is the shortest. `whole` and the
/// power of ten are exact, so their quotient is the number that the decimal reads back as.
fn write_short_decimal(out: &mut Vec<u8>, value: f64) -> bool {
    const POWERS: [f64; 7] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
    const FIFTEEN_DIGITS: f64 = 1e15;
    let magnitude = value.abs();
    if value.to_bits() == 0 {
        out.push(b'0');
        return true;
    }
    // Below, PostgreSQL writes an exponent; the sign of a zero is not in its digits.
    if magnitude < 1e-4 {
        return false;
    }
    for (decimals, power) in POWERS.iter().enumerate() {
        let whole = (magnitude * power).round();
        if whole >= FIFTEEN_DIGITS {
            return false;
        }
        if whole / power != magnitude {
            continue;
        }
        if value < 0.0 {
            out.push(b'-');
        }
        let (whole, power) = (whole as i64, *power as i64);
        write_integer(out, whole / power);
        if decimals > 0 {
            // A one before the fraction keeps its leading zeros; the point takes its place.
            let point = out.len();
            write_integer(out, power + whole % power);
            out[point] = b'.';
        }
        return true;
    }
    false
}

/// As [`write_float8`], for the shorter type.
pub fn write_float4(out: &mut Vec<u8>, value: f32) {
    let wide = f64::from(value);
    if write_special_float(out, wide) {
        return;
    }
    let mut text = Scientific::new(format_args!("{value:e}"));
    if text.is_tie(wide) {
        let even = Scientific::new(format_args!("{value:.*e}", text.digits() - 1));
        // At a power of two the even choice may be nearer to the number below.
        if even.text().parse() == Ok(value) {
            text = even;
        }
    } else if value.abs() >= 2f32.powi(f32::MANTISSA_DIGITS as i32) {
        let gap = f64::from(value.abs().next_up()) - wide.abs();
        text = text.without_middle(wide, gap, |text| text.parse() == Ok(value));
    }
    text.write(out, 6);
}

/// A number in Rust's scientific notation, such as `-1.25e-7`.
///
/// Rust's shortest digits are not always PostgreSQL's. Both are as short as they can be, but PostgreSQL rounds a tie to the even
/// digit ([`Scientific::is_tie`]) and takes no decimal exactly between two numbers ([`Scientific::without_middle`]).
struct Scientific {
    /// Sign, 17 digits, point, `e`, sign and three digits at most.
    buffer: [u8; 32],
    length: usize,
}

impl Scientific {
    fn new(number: std::fmt::Arguments<'_>) -> Scientific {
        let mut buffer = [0u8; 32];
        let size = buffer.len();
        let mut rest = &mut buffer[..];
        // The buffer holds the longest possible number, so the write cannot fail.
        let length = rest.write_fmt(number).map_or(0, |()| size - rest.len());
        Scientific { buffer, length }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.buffer[..self.length]).unwrap_or("0e0")
    }

    /// The parts around the `e`; the first without its sign.
    fn parts(&self) -> (&str, i32) {
        let (mantissa, exponent) = self.text().split_once('e').unwrap_or(("0", "0"));
        (
            mantissa.trim_start_matches('-'),
            exponent.parse().unwrap_or(0),
        )
    }

    fn digits(&self) -> usize {
        let (mantissa, _) = self.parts();
        if mantissa.len() > 1 {
            mantissa.len() - 1
        } else {
            1
        }
    }

    /// Whether the digits were cut from one more, which was a five: the exact number lies halfway between two choices.
    fn is_tie(&self, value: f64) -> bool {
        let bits = value.to_bits();
        let biased = (bits >> 52 & 0x7ff) as i32;
        let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
        // The exact number has as many binary digits after the point as decimal ones.
        let fraction_digits = 52 - (biased - 1023) - mantissa.trailing_zeros() as i32;
        let exact_digits = self.parts().1 + fraction_digits + 1;
        biased > 0 && fraction_digits > 0 && exact_digits == self.digits() as i32 + 1
    }

    /// The same with more digits if it lies exactly between two numbers. `gap` is the distance to the next larger one.
    fn without_middle(self, value: f64, gap: f64, reads_back: impl Fn(&str) -> bool) -> Scientific {
        /// Exact middles with few enough digits end far below this, and all arithmetic fits 128 bits.
        const MIDDLES_END: f64 = 1e36;
        let magnitude = value.abs();
        // The next smaller number is nearer at a power of two.
        let is_middle = |text: &str| {
            let distance = whole_number(text).abs_diff(magnitude as u128);
            distance != 0
                && (distance * 2 == gap as u128
                    || distance * 4 == gap as u128 && magnitude.log2().fract() == 0.0)
        };
        if magnitude >= MIDDLES_END || !is_middle(self.text()) {
            return self;
        }
        (self.digits()..18)
            .map(|precision| Scientific::new(format_args!("{value:.precision$e}")))
            .find(|longer| !is_middle(longer.text()) && reads_back(longer.text()))
            .unwrap_or(self)
    }

    /// Plain digits for exponents in `-4..plain_below`, otherwise `1.25e-07`.
    fn write(&self, out: &mut Vec<u8>, plain_below: i32) {
        if self.buffer[0] == b'-' {
            out.push(b'-');
        }
        let (mantissa, exponent) = self.parts();
        let mantissa = mantissa.as_bytes();
        let tail: &[u8] = if mantissa.len() > 2 {
            &mantissa[2..]
        } else {
            &[]
        };
        if !(-4..plain_below).contains(&exponent) {
            out.extend_from_slice(mantissa);
            out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
            let magnitude = i64::from(exponent.abs());
            if magnitude < 10 {
                out.push(b'0');
            }
            write_integer(out, magnitude);
        } else if exponent < 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + (-exponent - 1) as usize, b'0');
            out.push(mantissa[0]);
            out.extend_from_slice(tail);
        } else {
            let whole = exponent as usize;
            out.push(mantissa[0]);
            out.extend_from_slice(&tail[..tail.len().min(whole)]);
            if tail.len() <= whole {
                out.resize(out.len() + whole - tail.len(), b'0');
            } else {
                out.push(b'.');
                out.extend_from_slice(&tail[whole..]);
            }
        }
    }
}

fn write_special_float(out: &mut Vec<u8>, value: f64) -> bool {
    let text: &[u8] = if value.is_nan() {
        b"NaN"
    } else if value.is_infinite() {
        if value > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        }
    } else {
        return false;
    };
    out.extend_from_slice(text);
    true
}

/// The whole number that scientific notation stands for; its exponent is at least the number of its fraction digits.
fn whole_number(text: &str) -> u128 {
    let (mantissa, exponent) = text
        .trim_start_matches('-')
        .split_once('e')
        .unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: usize = exponent.parse().unwrap_or(0);
    let zeros = "0".repeat(exponent.saturating_sub(fraction.len()));
    format!("{whole}{fraction}{zeros}").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgtype::number::parse_integer;

    fn float8(value: f64) -> String {
        let mut out = Vec::new();
        write_float8(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    proptest::proptest! {
        /// The quick way, where it is taken, writes what the general one does.
        #[test]
        fn short_decimals_are_the_shortest(whole in -(1i64 << 51)..1i64 << 51, shift in 0u32..52, decimals in 0i32..9) {
            let value = (whole >> shift) as f64 / 10f64.powi(decimals);
            let (mut quick, mut general) = (Vec::new(), Vec::new());
            if write_short_decimal(&mut quick, value) {
                write_shortest(&mut general, value);
                proptest::prop_assert_eq!(String::from_utf8(quick), String::from_utf8(general));
            }
        }
    }

    #[test]
    fn floats_choose_postgresql_notation() {
        let cases = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (1.25e15, "1.25e+15"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (123456.789, "123456.789"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (value, text) in cases {
            assert_eq!(float8(value), text);
        }
        let mut out = Vec::new();
        write_float4(&mut out, 1e6);
        write_float4(&mut out, 123456.0);
        assert_eq!(out, b"1e+06123456");
        // Ties go to the even digit, and exact middles between two numbers are not taken.
        assert_eq!(
            float8("1223383794756801.25".parse().unwrap()),
            "1.2233837947568012e+15"
        );
        assert_eq!(float8(-21_691_341_486_096_248.0), "-2.1691341486096248e+16");
        assert_eq!(float8(2f64.powi(-24)), "5.960464477539063e-08");
        assert_eq!(float8(1e23), "9.999999999999999e+22");
        out.clear();
        write_float4(&mut out, "-2854276.25".parse().unwrap());
        write_float4(&mut out, -208_513_408.0);
        assert_eq!(out, b"-2.8542762e+06-2.0851341e+08");
    }

    #[test]
    fn numbers_out_of_range_and_out_of_syntax() {
        assert_eq!(parse_integer::<i16>(" -32768 ").unwrap(), i16::MIN);
        assert_eq!(
            parse_integer::<i16>("32768").unwrap_err().sqlstate(),
            "22003"
        );
        assert_eq!(
            parse_integer::<i64>("9".repeat(60).as_str())
                .unwrap_err()
                .sqlstate(),
            "22003"
        );
        for text in ["", " ", "1 2", "+-1", "1.0", "0x10"] {
            assert_eq!(
                parse_integer::<i32>(text).unwrap_err().sqlstate(),
                "22P02",
                "{text:?}"
            );
        }
        assert_eq!(parse_float8("1e400").unwrap_err().sqlstate(), "22003");
        assert_eq!(parse_float8("1e-400").unwrap_err().sqlstate(), "22003");
        assert_eq!(parse_float8("0e-400").unwrap(), 0.0);
        assert_eq!(parse_float8("infinit").unwrap_err().sqlstate(), "22P02");
        assert!(parse_float4("1e39").is_err() && parse_float4("-inf").unwrap().is_infinite());
    }
}
