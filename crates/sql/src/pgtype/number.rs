//! Text of integers and floating point numbers, and the binary form of `numeric`.

use std::io::Write as _;

use crate::error::{Error, Result};

/// Integer types by the name PostgreSQL's messages use.
pub trait Integer: Sized {
    const NAME: &'static str;
    fn from_i128(value: i128) -> Option<Self>;
}

macro_rules! integer {
    ($type:ty, $name:literal) => {
        impl Integer for $type {
            const NAME: &'static str = $name;
            fn from_i128(value: i128) -> Option<Self> {
                value.try_into().ok()
            }
        }
    };
}
integer!(i16, "smallint");
integer!(i32, "integer");
integer!(i64, "bigint");

impl Integer for u32 {
    const NAME: &'static str = "oid";
    /// A negative number means the OID with the same bits.
    fn from_i128(value: i128) -> Option<u32> {
        u32::try_from(value)
            .ok()
            .or_else(|| i32::try_from(value).ok().map(|v| v as u32))
    }
}

/// Reads an integer: white space around it, one sign, decimal digits.
pub fn parse_integer<T: Integer>(text: &str) -> Result<T> {
    if let Some(value) = short_integer(text.as_bytes()).and_then(|v| T::from_i128(v.into())) {
        return Ok(value);
    }
    let trimmed = text.trim_matches(is_c_space);
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(T::NAME, text));
    }
    // Anything that does not fit 128 bits fits none of the types either.
    let value = trimmed.parse::<i128>().ok();
    value.and_then(T::from_i128).ok_or_else(|| {
        Error::new(
            "22003",
            format!("value \"{text}\" is out of range for type {}", T::NAME),
        )
    })
}

/// A number of so few digits, with no more around it than a minus, that 64 bits hold it: nearly every one that comes.
fn short_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0;
    for b in digits {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

pub fn write_integer(out: &mut Vec<u8>, value: i64) {
    /// Sign and nineteen digits.
    const LONGEST: usize = 20;
    let mut buffer = [0u8; LONGEST];
    let mut at = LONGEST;
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        at -= 1;
        buffer[at] = b'-';
    }
    out.extend_from_slice(&buffer[at..]);
}

/// `isspace` of the C locale.
pub fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

pub fn invalid(type_name: &str, text: &str) -> Error {
    Error::new(
        "22P02",
        format!("invalid input syntax for type {type_name}: \"{text}\""),
    )
}

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

/// Whether the text is a decimal number: sign, digits with a point perhaps, exponent.
pub fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    let exponent_is_fine = exponent.is_none_or(|e| {
        let digits = e.strip_prefix(['-', '+']).unwrap_or(e);
        !digits.is_empty() && all_digits(digits)
    });
    has_digits && all_digits(whole) && all_digits(fraction) && exponent_is_fine
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

/// Signs in the binary form of `numeric`.
const SIGN_NEGATIVE: u16 = 0x4000;
const SIGN_NAN: u16 = 0xC000;
const SIGN_INFINITY: u16 = 0xD000;
const SIGN_MINUS_INFINITY: u16 = 0xF000;
/// Decimal digits per digit of the binary form.
const DIGIT_LEN: usize = 4;
/// Largest display scale that PostgreSQL accepts.
const MAX_SCALE: u16 = 0x3fff;

/// Writes the binary form (digits to the base of 10,000) of a number given as plain decimal text.
pub fn write_numeric_binary(out: &mut Vec<u8>, text: &str) {
    let special = match text {
        "NaN" => Some(SIGN_NAN),
        "Infinity" => Some(SIGN_INFINITY),
        "-Infinity" => Some(SIGN_MINUS_INFINITY),
        _ => None,
    };
    if let Some(sign) = special {
        return write_u16s(out, &[0, 0, sign, 0]);
    }
    let (sign, magnitude) = match text.strip_prefix('-') {
        Some(rest) => (SIGN_NEGATIVE, rest),
        None => (0, text),
    };
    let (whole, fraction) = magnitude.split_once('.').unwrap_or((magnitude, ""));
    // Align both parts to groups of four around the point.
    let mut aligned = "0".repeat((DIGIT_LEN - whole.len() % DIGIT_LEN) % DIGIT_LEN);
    aligned.push_str(whole);
    let mut weight = (aligned.len() / DIGIT_LEN) as i32 - 1;
    aligned.push_str(fraction);
    aligned.push_str(&"0".repeat((DIGIT_LEN - fraction.len() % DIGIT_LEN) % DIGIT_LEN));
    let groups: Vec<u16> = aligned
        .as_bytes()
        .chunks(DIGIT_LEN)
        .map(|g| g.iter().fold(0, |n, b| n * 10 + u16::from(b - b'0')))
        .collect();
    let leading = groups.iter().take_while(|&&g| g == 0).count();
    let mut digits = &groups[leading..];
    weight -= leading as i32;
    while let [rest @ .., 0] = digits {
        digits = rest;
    }
    if digits.is_empty() {
        weight = 0;
    }
    let sign = if digits.is_empty() { 0 } else { sign };
    write_u16s(
        out,
        &[
            digits.len() as u16,
            weight as i16 as u16,
            sign,
            fraction.len() as u16,
        ],
    );
    write_u16s(out, digits);
}

fn write_u16s(out: &mut Vec<u8>, values: &[u16]) {
    for value in values {
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Plain decimal text of a number in binary form.
pub fn read_numeric_binary(bytes: &[u8]) -> Result<String> {
    let wrong = |what: &str| {
        Error::new(
            "22P03",
            format!("invalid {what} in external \"numeric\" value"),
        )
    };
    let (header, digits) = bytes.split_at_checked(8).ok_or_else(|| wrong("length"))?;
    let word = |at: usize| u16::from_be_bytes([header[at * 2], header[at * 2 + 1]]);
    let (count, weight, sign, scale) = (
        word(0) as usize,
        i32::from(word(1) as i16),
        word(2),
        word(3),
    );
    if digits.len() != count * 2 {
        return Err(wrong("length"));
    }
    match sign {
        SIGN_NAN => return Ok("NaN".into()),
        SIGN_INFINITY => return Ok("Infinity".into()),
        SIGN_MINUS_INFINITY => return Ok("-Infinity".into()),
        0 | SIGN_NEGATIVE => {}
        _ => return Err(wrong("sign")),
    }
    if scale > MAX_SCALE {
        return Err(wrong("scale"));
    }
    let mut groups = Vec::with_capacity(count);
    for pair in digits.chunks_exact(2) {
        let group = u16::from_be_bytes([pair[0], pair[1]]);
        if group >= 10_000 {
            return Err(wrong("digit"));
        }
        groups.push(group);
    }
    // Group i stands at weight - i; what lies beyond the given digits is zero.
    let group_at = |w: i32| {
        usize::try_from(weight - w)
            .ok()
            .and_then(|i| groups.get(i))
            .copied()
            .unwrap_or(0)
    };
    let mut text = String::new();
    if sign == SIGN_NEGATIVE {
        text.push('-');
    }
    let mut whole = String::new();
    for w in (0..=weight.max(0)).rev() {
        whole.push_str(&format!("{:04}", group_at(w)));
    }
    let significant = whole.trim_start_matches('0');
    text.push_str(if significant.is_empty() {
        "0"
    } else {
        significant
    });
    if scale > 0 {
        let mut fraction = String::new();
        for w in 1..=usize::from(scale).div_ceil(DIGIT_LEN) as i32 {
            fraction.push_str(&format!("{:04}", group_at(-w)));
        }
        fraction.truncate(usize::from(scale));
        text.push('.');
        text.push_str(&fraction);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn numeric_binary_is_read_as_written() {
        for text in [
            "0",
            "0.00",
            "1",
            "-1",
            "10000",
            "12345678.9",
            "0.0001",
            "0.00001000",
            "-99999999999999999999.999999",
            "NaN",
            "-Infinity",
        ] {
            let mut out = Vec::new();
            write_numeric_binary(&mut out, text);
            assert_eq!(read_numeric_binary(&out).unwrap(), text);
        }
        let mut out = Vec::new();
        write_numeric_binary(&mut out, "-12345.678");
        assert_eq!(
            out,
            [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]
        );
        assert!(read_numeric_binary(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]).is_err());
        assert!(read_numeric_binary(&[0, 9, 0, 0]).is_err());
    }
}
