//! Text of integers, and the binary form of `numeric`.

use ::block::numeric::{NumericRef, Short};

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

/// Writes the binary form (digits to the base of 10,000) of a number.
pub fn write_numeric_binary(out: &mut Vec<u8>, n: NumericRef<'_>) {
    let short = n.short().and_then(|n| write_short_binary(out, n));
    if short.is_none() {
        write_text_as_binary(out, &n.to_string());
    }
}

/// Nothing is written if the number, filled up to a whole group, does not fit 128 bits.
fn write_short_binary(out: &mut Vec<u8>, n: Short) -> Option<()> {
    /// Of the largest number of 128 bits.
    const MOST: usize = 10;
    let scale = usize::from(n.scale);
    let fraction = scale.div_ceil(DIGIT_LEN);
    let filled = fraction * DIGIT_LEN - scale;
    let mut rest = n
        .value
        .unsigned_abs()
        .checked_mul(10_u128.pow(filled as u32))?;
    let mut groups = [0_u16; MOST];
    let mut count = 0;
    while rest > 0 {
        groups[count] = match u64::try_from(rest) {
            Ok(small) => {
                rest = u128::from(small / 10_000);
                (small % 10_000) as u16
            }
            Err(_) => {
                let group = (rest % 10_000) as u16;
                rest /= 10_000;
                group
            }
        };
        count += 1;
    }
    let weight = match count {
        0 => 0,
        count => count as i32 - fraction as i32 - 1,
    };
    let zeros = groups[..count].iter().take_while(|g| **g == 0).count();
    let sign = if n.value < 0 { SIGN_NEGATIVE } else { 0 };
    let head = [
        (count - zeros) as u16,
        weight as i16 as u16,
        sign,
        scale as u16,
    ];
    write_u16s(out, &head);
    for group in groups[zeros..count].iter().rev() {
        out.extend_from_slice(&group.to_be_bytes());
    }
    Some(())
}

/// The same of a number given as plain decimal text.
fn write_text_as_binary(out: &mut Vec<u8>, text: &str) {
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

/// What the binary form of a number says.
pub enum FromBinary {
    Short(Short),
    /// Plain decimal text.
    Text(String),
}

/// Reads the binary form of a number.
pub fn read_numeric_binary(bytes: &[u8]) -> Result<FromBinary> {
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
        SIGN_NAN => return Ok(FromBinary::Text("NaN".into())),
        SIGN_INFINITY => return Ok(FromBinary::Text("Infinity".into())),
        SIGN_MINUS_INFINITY => return Ok(FromBinary::Text("-Infinity".into())),
        0 | SIGN_NEGATIVE => {}
        _ => return Err(wrong("sign")),
    }
    if scale > MAX_SCALE {
        return Err(wrong("scale"));
    }
    let groups = digits
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    if groups.clone().any(|group| group >= 10_000) {
        return Err(wrong("digit"));
    }
    if let Some(short) = short_of_groups(groups.clone(), weight, sign == SIGN_NEGATIVE, scale) {
        return Ok(FromBinary::Short(short));
    }
    let groups: Vec<u16> = groups.collect();
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
    Ok(FromBinary::Text(text))
}

/// The number that groups of four digits make, the first of which stands at `weight`, cut to the
/// scale. `None`: it has more digits than are looked at here.
fn short_of_groups(
    groups: impl ExactSizeIterator<Item = u16>,
    weight: i32,
    negative: bool,
    scale: u16,
) -> Option<Short> {
    /// So many fit 128 bits whatever is in them.
    const MOST: usize = 9;
    if groups.len() > MOST {
        return None;
    }
    // Digits after the point that the groups have; less than none if zeros follow them.
    let given = (groups.len() as i32 - weight - 1) * DIGIT_LEN as i32;
    let value = groups.fold(0_i128, |n, group| n * 10_000 + i128::from(group));
    let more = i32::from(scale) - given;
    let value = match u32::try_from(more) {
        Ok(more) => value.checked_mul(10_i128.checked_pow(more)?)?,
        Err(_) => value / 10_i128.checked_pow(more.unsigned_abs())?,
    };
    Some(Short {
        value: if negative { -value } else { value },
        scale,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::block::numeric::Numeric;
    use proptest::prelude::*;

    impl FromBinary {
        fn into_text(self) -> String {
            match self {
                FromBinary::Short(n) => Numeric::from(n).to_string(),
                FromBinary::Text(text) => text,
            }
        }
    }

    proptest! {
        /// Short numbers are written the same as their texts, and read back.
        #[test]
        fn short_numbers_take_the_short_way(
            bits in 0_u32..120, value in any::<i128>(), scale in 0_u16..50,
        ) {
            let n = Short { value: value >> (127 - bits), scale };
            let (mut short, mut long) = (Vec::new(), Vec::new());
            let text = Numeric::from(n).to_string();
            write_numeric_binary(&mut short, Numeric::from(n).borrow());
            write_text_as_binary(&mut long, &text);
            prop_assert_eq!(&short, &long);
            prop_assert_eq!(read_numeric_binary(&short).unwrap().into_text(), text);
        }

        /// Whatever groups a client sends mean the same both ways, if both have an answer.
        #[test]
        fn groups_are_read_alike(
            groups in prop::collection::vec(0_u16..10_000, 0..9),
            weight in -6_i16..12, negative: bool, scale in 0_u16..30,
        ) {
            let sign = if negative { SIGN_NEGATIVE } else { 0 };
            let mut bytes = Vec::new();
            write_u16s(&mut bytes, &[groups.len() as u16, weight as u16, sign, scale]);
            write_u16s(&mut bytes, &groups);
            let read = read_numeric_binary(&bytes).unwrap().into_text();
            // Groups of zeros behind make it too long for the short way, and change nothing.
            let zeros = vec![0; 40];
            let mut longer = Vec::new();
            write_u16s(&mut longer, &[groups.len() as u16 + 40, weight as u16, sign, scale]);
            write_u16s(&mut longer, &groups);
            write_u16s(&mut longer, &zeros);
            let long = read_numeric_binary(&longer).unwrap().into_text();
            let number = |text: &str| text.parse::<Numeric>().unwrap().to_string();
            prop_assert_eq!(number(&read), number(&long));
        }
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
            write_text_as_binary(&mut out, text);
            assert_eq!(read_numeric_binary(&out).unwrap().into_text(), text);
        }
        let mut out = Vec::new();
        write_text_as_binary(&mut out, "-12345.678");
        assert_eq!(
            out,
            [0, 3, 0, 1, 0x40, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1a, 0x7c]
        );
        assert!(read_numeric_binary(&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]).is_err());
        assert!(read_numeric_binary(&[0, 9, 0, 0]).is_err());
    }
}
