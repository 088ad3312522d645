//! Amounts of money, integers of a hundredth, as the locale `C` writes them.

use super::number::{invalid, is_c_space};
use crate::error::{Error, Result};

/// Digits behind the point.
const DIGITS: u32 = 2;
/// Parts of a whole.
pub const PARTS: i64 = 100;

fn without(text: &str, symbol: char) -> &str {
    let text = text.trim_start_matches(is_c_space);
    let text = text.strip_prefix(symbol).unwrap_or(text);
    text.trim_start_matches(is_c_space)
}

/// Reads an amount: a sign or a parenthesis, `$`, digits in groups, and the same behind them.
pub fn parse(text: &str) -> Result<i64> {
    let beyond = || {
        let message = format!("value \"{text}\" is out of range for type money");
        Error::new("22003", message)
    };
    let rest = without(text, '$');
    let (mut negative, rest) = match rest.chars().next() {
        Some('-' | '(') => (true, &rest[1..]),
        Some('+') => (false, &rest[1..]),
        _ => (false, rest),
    };
    let rest = without(rest, '$');
    // Built below zero, where there is one amount more.
    let mut amount = 0_i64;
    let mut decimals: Option<u32> = None;
    let mut at = 0;
    for c in rest.chars() {
        match c {
            '0'..='9' if decimals.is_none_or(|d| d < DIGITS) => {
                let digit = i64::from(c as u8 - b'0');
                let longer = amount.checked_mul(10).and_then(|a| a.checked_sub(digit));
                amount = longer.ok_or_else(beyond)?;
                decimals = decimals.map(|d| d + 1);
            }
            '.' if decimals.is_none() => decimals = Some(0),
            ',' => {}
            _ => break,
        }
        at += 1;
    }
    let rest = &rest[at..];
    if rest.starts_with(|c: char| ('5'..='9').contains(&c)) {
        amount = amount.checked_sub(1).ok_or_else(beyond)?;
    }
    for _ in decimals.unwrap_or(0)..DIGITS {
        amount = amount.checked_mul(10).ok_or_else(beyond)?;
    }
    for c in rest
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .chars()
    {
        match c {
            '-' => negative = true,
            ')' | '+' | '$' => {}
            c if is_c_space(c) => {}
            _ => return Err(invalid("money", text)),
        }
    }
    match negative {
        true => Ok(amount),
        false => amount.checked_neg().ok_or_else(beyond),
    }
}

pub fn write(amount: i64, out: &mut Vec<u8>) {
    let parts = amount.unsigned_abs();
    let whole = (parts / PARTS as u64).to_string();
    out.extend_from_slice(if amount < 0 { b"-$" } else { b"$" });
    for (at, digit) in whole.bytes().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            out.push(b',');
        }
        out.push(digit);
    }
    out.extend_from_slice(format!(".{:02}", parts % PARTS as u64).as_bytes());
}
