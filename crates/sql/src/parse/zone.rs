//! `SET TIME ZONE INTERVAL '+05:30' HOUR TO MINUTE`.

use sqlparser::tokenizer::Token;

use super::tokens::Words;
use crate::error::{Error, Result};
use crate::pgtype::zone::TimeZone;

/// After the word INTERVAL: the zone's name, in PostgreSQL's spelling of a fixed offset.
pub fn interval(w: &mut Words<'_>) -> Result<String> {
    if w.accept_token(&Token::LParen) {
        w.integer()?;
        w.expect_token(&Token::RParen)?;
    }
    let text = w.string()?;
    let to_minutes = w.accept("hour to minute");
    let hours = !to_minutes && w.accept("hour");
    // A number alone counts the last of the fields; without any, seconds.
    let unit = match (hours, to_minutes) {
        (true, _) => 3600,
        (_, true) => 60,
        _ => 1,
    };
    let seconds = seconds(text.trim(), unit).ok_or_else(|| refused(&text))?;
    let zone = TimeZone::fixed(seconds).ok_or_else(|| refused(&text))?;
    Ok(zone.name())
}

/// `[+-]h`, `[+-]h:m` or `[+-]h:m:s` in seconds.
fn seconds(text: &str, unit: i32) -> Option<i32> {
    let (minus, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let field = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<i32>().ok()).flatten()
    };
    let parts: Vec<&str> = digits.split(':').collect();
    let total = match parts[..] {
        [n] => field(n)?.checked_mul(unit)?,
        [h, m] => field(h)?
            .checked_mul(3600)?
            .checked_add(sexagesimal(field(m)?)? * 60)?,
        [h, m, s] => {
            let minutes = sexagesimal(field(m)?)? * 60 + sexagesimal(field(s)?)?;
            field(h)?.checked_mul(3600)?.checked_add(minutes)?
        }
        _ => return None,
    };
    Some(if minus { -total } else { total })
}

fn sexagesimal(n: i32) -> Option<i32> {
    (n < 60).then_some(n)
}

fn refused(text: &str) -> Error {
    let message = format!("invalid value for parameter \"TimeZone\": \"INTERVAL '{text}'\"");
    Error::new("22023", message).hint("Give hours and minutes, as '+05:30'.")
}
