//! Text of integers, and the binary form of `numeric`.

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
