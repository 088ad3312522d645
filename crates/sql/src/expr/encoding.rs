//! `encode` and `decode`: bytes as text in hex, base64 or the escape form.

use crate::error::{Error, Result};
use crate::pgtype::bytes::{parse_escaped, parse_hex};

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Base64 has lines of so many characters, as in MIME.
const LINE: usize = 76;

pub fn encode(bytes: &[u8], format: &str) -> Result<String> {
    Ok(match format.to_ascii_lowercase().as_str() {
        "hex" => bytes.iter().map(|b| format!("{b:02x}")).collect(),
        "base64" => base64(bytes),
        "escape" => escape(bytes),
        _ => return Err(unknown(format)),
    })
}

pub fn decode(text: &str, format: &str) -> Result<Vec<u8>> {
    match format.to_ascii_lowercase().as_str() {
        "hex" => parse_hex(text),
        "base64" => from_base64(text),
        "escape" => parse_escaped(text),
        _ => Err(unknown(format)),
    }
}

fn unknown(format: &str) -> Error {
    Error::new("22023", format!("unrecognized encoding: \"{format}\""))
}

/// Only what text cannot hold is written as a number, and what is not ASCII.
fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            0 | 0x80.. => out += &format!("\\{b:03o}"),
            b'\\' => out += "\\\\",
            b => out.push(char::from(b)),
        }
    }
    out
}

fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() / 3 * 4 + bytes.len() / 57 + 5);
    for (i, group) in bytes.chunks(3).enumerate() {
        if i > 0 && i * 4 % LINE == 0 {
            out.push('\n');
        }
        let at = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            out.push(match digit <= group.len() {
                true => char::from(BASE64[(bits >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    out
}

fn from_base64(text: &str) -> Result<Vec<u8>> {
    let wrong = |message: String| {
        Error::new("22023", message)
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted.")
    };
    let end = || wrong("invalid base64 end sequence".into());
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut digits, mut padding) = (0u32, 0, 0);
    for c in text
        .chars()
        .filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r'))
    {
        let value = match c {
            '=' if padding == 0 && digits < 2 || padding == 2 => {
                let message = "unexpected \"=\" while decoding base64 sequence";
                return Err(Error::new("22023", message));
            }
            '=' => {
                padding += 1;
                0
            }
            _ if padding > 0 => return Err(end()),
            c => {
                let known = BASE64.iter().position(|b| char::from(*b) == c);
                known.ok_or_else(|| {
                    let message =
                        format!("invalid symbol \"{c}\" found while decoding base64 sequence");
                    Error::new("22023", message)
                })?
            }
        };
        bits = bits << 6 | value as u32;
        digits += 1;
        if digits == 4 {
            let [_, all @ ..] = bits.to_be_bytes();
            out.extend_from_slice(&all[..3 - padding]);
            (bits, digits) = (0, 0);
        }
    }
    match digits {
        0 => Ok(out),
        _ => Err(end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 answers.
    #[test]
    fn as_postgresql() {
        let said = |text: &str, format: &str| {
            decode(text, format).map_err(|e| (e.sqlstate().to_string(), e.message().to_string()))
        };
        let refused = |state: &str, message: &str| Err((state.to_string(), message.to_string()));
        assert_eq!(said("YWJj YWJj", "base64"), Ok(b"abcabc".to_vec()));
        assert_eq!(said("YQ==", "BASE64"), Ok(b"a".to_vec()));
        let end = || refused("22023", "invalid base64 end sequence");
        for text in ["YWJ", "YQ=", "YQ", "YWJjZA==x"] {
            assert_eq!(said(text, "base64"), end(), "{text}");
        }
        let padding = "unexpected \"=\" while decoding base64 sequence";
        for text in ["=abc", "YWJj="] {
            assert_eq!(said(text, "base64"), refused("22023", padding), "{text}");
        }
        let symbol = "invalid symbol \"*\" found while decoding base64 sequence";
        assert_eq!(said("Y*Jj", "base64"), refused("22023", symbol));
        assert_eq!(said("ab\ncd", "hex"), Ok(vec![0xab, 0xcd]));
        let odd = "invalid hexadecimal data: odd number of digits";
        assert_eq!(said("abc", "hex"), refused("22023", odd));
        assert_eq!(said("a\\\\b\\101", "escape"), Ok(b"a\\bA".to_vec()));
        let syntax = "invalid input syntax for type bytea";
        assert_eq!(said("a\\9", "escape"), refused("22P02", syntax));
        let long = encode(&b"abcdef".repeat(20), "base64").expect("text");
        assert_eq!(long.lines().map(str::len).collect::<Vec<_>>(), [76, 76, 8]);
        assert_eq!(long.lines().last(), Some("YWJjZGVm"));
        assert_eq!(
            encode(b"\0\x01\xff\\A", "escape").expect("text"),
            "\\000\x01\\377\\\\A"
        );
        assert_eq!(encode(b"\xff", "HEX").expect("text"), "ff");
        assert!(encode(b"", "nosuch").is_err());
        for n in 0..200usize {
            let bytes: Vec<u8> = (0..n).map(|i| (i * 31 + n) as u8).collect();
            for format in ["hex", "base64", "escape"] {
                let text = encode(&bytes, format).expect("text");
                assert_eq!(decode(&text, format).expect("bytes"), bytes, "{format}");
            }
        }
    }
}
