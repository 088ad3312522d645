//! Positions in the log (`pg_lsn`): 64 bits, written as two hexadecimal numbers, `16/B374D848`.
//!
//! **Invariant.** A stored position is the signed integer that stands where the position stands
//! among all: the lowest is the lowest integer. So comparisons are those of integers.

use std::io::Write as _;

use crate::error::{Error, Result};

/// The most hexadecimal digits of each half.
const MAX_DIGITS: usize = 8;

pub fn stored(position: u64) -> i64 {
    (position ^ (1 << 63)) as i64
}

pub fn position(stored: i64) -> u64 {
    stored as u64 ^ (1 << 63)
}

pub fn parse(text: &str) -> Result<i64> {
    let half = |digits: &str| {
        let is_number = (1..=MAX_DIGITS).contains(&digits.len())
            && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let number = is_number.then(|| u64::from_str_radix(digits, 16));
        number.and_then(std::result::Result::ok)
    };
    let halves = text.split_once('/');
    let halves = halves.and_then(|(high, low)| Some((half(high)?, half(low)?)));
    let (high, low) = halves.ok_or_else(|| {
        let message = format!("invalid input syntax for type pg_lsn: \"{text}\"");
        Error::new("22P02", message)
    })?;
    Ok(stored(high << 32 | low))
}

pub fn write(value: i64, out: &mut Vec<u8>) {
    let position = position(value);
    // Writing to memory does not fail.
    let _ = write!(out, "{:X}/{:X}", position >> 32, position as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_in_the_order_of_their_integers() {
        let all = [
            "0/0",
            "0/1",
            "0/FFFFFFFF",
            "1/0",
            "7FFFFFFF/FFFFFFFF",
            "80000000/0",
        ];
        let all = all.iter().chain(&["FFFFFFFF/FFFFFFFF"]);
        let stored: Vec<i64> = all.clone().map(|t| parse(t).unwrap()).collect();
        assert!(stored.is_sorted());
        for (text, value) in all.zip(stored) {
            let mut written = Vec::new();
            write(value, &mut written);
            assert_eq!(written, text.as_bytes());
        }
        for wrong in [
            "",
            "/",
            "0/",
            "/0",
            "123456789/0",
            "0/G",
            "0/0/0",
            " 0/0",
            "-1/0",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
