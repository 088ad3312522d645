//! Text of `bytea`, `uuid` and `boolean`.

use super::number::{invalid, is_c_space};
use crate::error::{Error, Result};

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Reads a `bytea`: `\x` and hexadecimal digits, or the escape form.
pub fn parse_bytea(text: &str) -> Result<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(digits) => parse_hex(digits),
        None => parse_escaped(text),
    }
}

pub fn parse_hex(digits: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(digits.len() / 2);
    let mut chars = digits.chars().filter(|&c| !is_c_space(c));
    while let Some(high) = chars.next() {
        let high = hex_digit(high)?;
        let low = chars
            .next()
            .ok_or_else(|| Error::new("22023", "invalid hexadecimal data: odd number of digits"))?;
        out.push(high << 4 | hex_digit(low)?);
    }
    Ok(out)
}

fn hex_digit(c: char) -> Result<u8> {
    let digit = c
        .to_digit(16)
        .ok_or_else(|| Error::new("22023", format!("invalid hexadecimal digit: \"{c}\"")))?;
    Ok(digit as u8)
}

pub fn parse_escaped(text: &str) -> Result<Vec<u8>> {
    let wrong = || Error::new("22P02", "invalid input syntax for type bytea");
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        match bytes.get(at + 1..) {
            Some([b'\\', ..]) => {
                out.push(b'\\');
                at += 2;
            }
            Some([a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                at += 4;
            }
            _ => return Err(wrong()),
        }
    }
    Ok(out)
}

pub fn write_bytea_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(2 + bytes.len() * 2);
    out.extend_from_slice(b"\\x");
    for byte in bytes {
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

pub fn write_bytea_escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x20..=0x7e => out.push(byte),
            _ => out.extend_from_slice(&[
                b'\\',
                b'0' + (byte >> 6),
                b'0' + (byte >> 3 & 7),
                b'0' + (byte & 7),
            ]),
        }
    }
}

/// Reads a `uuid`: 32 hexadecimal digits, a hyphen allowed after each group of four, braces around.
pub fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    let wrong = || invalid("uuid", text);
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(wrong)?,
        None => text,
    };
    let mut uuid = [0u8; 16];
    let mut rest = inner.as_bytes();
    for (i, byte) in uuid.iter_mut().enumerate() {
        let [high, low, tail @ ..] = rest else {
            return Err(wrong());
        };
        let digit = |b: u8| {
            char::from(b)
                .to_digit(16)
                .map(|d| d as u8)
                .ok_or_else(wrong)
        };
        *byte = digit(*high)? << 4 | digit(*low)?;
        rest = tail;
        if let ([b'-', tail @ ..], true) = (rest, i % 2 == 1 && i < 15) {
            rest = tail;
        }
    }
    if rest.is_empty() {
        Ok(uuid)
    } else {
        Err(wrong())
    }
}

pub fn write_uuid(out: &mut Vec<u8>, uuid: &[u8; 16]) {
    for (i, byte) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    }
}

/// Reads a `boolean`: any unambiguous beginning of true, false, yes, no, on, off; 1 or 0.
pub fn parse_bool(text: &str) -> Result<bool> {
    let word = text.trim_matches(is_c_space).to_ascii_lowercase();
    let begins = |full: &str| !word.is_empty() && full.starts_with(&word);
    if begins("true") || begins("yes") || word == "on" || word == "1" {
        return Ok(true);
    }
    if begins("false") || begins("no") || word == "off" || word == "of" || word == "0" {
        return Ok(false);
    }
    Err(invalid("boolean", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytea_both_ways() {
        assert_eq!(parse_bytea("\\x00 fF").unwrap(), [0, 255]);
        assert_eq!(parse_bytea("a\\\\b\\000\\377").unwrap(), b"a\\b\0\xff");
        assert_eq!(parse_bytea("\\x0").unwrap_err().sqlstate(), "22023");
        assert_eq!(parse_bytea("\\xzz").unwrap_err().sqlstate(), "22023");
        assert_eq!(parse_bytea("\\9").unwrap_err().sqlstate(), "22P02");
        let (mut hex, mut escape) = (Vec::new(), Vec::new());
        write_bytea_hex(&mut hex, b"\x00\xab");
        write_bytea_escape(&mut escape, b"a\\\x00\xff");
        assert_eq!(
            (&hex[..], &escape[..]),
            (&b"\\x00ab"[..], &b"a\\\\\\000\\377"[..])
        );
    }

    #[test]
    fn uuid_spellings() {
        let canonical = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for text in [
            canonical,
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
        ] {
            let mut out = Vec::new();
            write_uuid(&mut out, &parse_uuid(text).unwrap());
            assert_eq!(out, canonical.as_bytes());
        }
        for text in [
            "",
            "{a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "a0eebc999c0b4ef8bb6d6bb9bd380a1",
            "a0-eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert!(parse_uuid(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn bool_spellings() {
        for text in ["t", "TRUE", "y", " yes ", "on", "1"] {
            assert!(parse_bool(text).unwrap(), "{text:?}");
        }
        for text in ["f", "fal", "n", "off", "of", "0"] {
            assert!(!parse_bool(text).unwrap(), "{text:?}");
        }
        for text in ["", "o", "truer", "2"] {
            assert!(parse_bool(text).is_err(), "{text:?}");
        }
    }
}
