//! Intervals of ISO 8601, as far as PostgreSQL reads them.

use super::calendar::MICROS_PER_DAY;
use super::datefield::{Fault, Read};
use super::interval::{Number, Parts, Unit};

/// ISO 8601: with designators, or digits in the places of a date and a time.
pub fn read(text: &str) -> Read<Parts> {
    let mut parts = Parts::default();
    let mut rest = match text.strip_prefix('P') {
        Some(rest) if !rest.is_empty() => rest,
        _ => return Err(Fault::Format),
    };
    let (mut in_time, mut any) = (false, false);
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T') {
            (rest, in_time, any) = (time, true, false);
            continue;
        }
        let (written, number, after) = iso_number(rest)?;
        let mut chars = after.chars();
        let unit = match (chars.next(), in_time) {
            (Some('Y'), false) => Unit::Year,
            (Some('M'), false) => Unit::Month,
            (Some('W'), false) => Unit::Week,
            (Some('D'), false) => Unit::Day,
            (Some('H'), true) => Unit::Hour,
            (Some('M'), true) => Unit::Minute,
            (Some('S'), true) => Unit::Second,
            (None | Some('T' | '-'), false) => {
                let Some(time) = parts.add_iso_date(written, number, after, any)? else {
                    return Ok(parts);
                };
                (rest, in_time, any) = (time, true, false);
                continue;
            }
            (None | Some(':'), true) => {
                parts.add_iso_time(written, number, after, any)?;
                return Ok(parts);
            }
            _ => return Err(Fault::Format),
        };
        parts.add(unit, number)?;
        (rest, any) = (chars.as_str(), true);
    }
    Ok(parts)
}

/// A number at the front: as it is written, its value, and what follows.
fn iso_number(text: &str) -> Read<(&str, Number, &str)> {
    const MOST: f64 = 1e15;
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.')) {
        return Err(Fault::Format);
    }
    let run = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let mut end = usize::from(text.starts_with('-'));
    end += run(end);
    if text[end..].starts_with('.') {
        end += 1 + run(end + 1);
    }
    // An exponent, if digits follow the letter.
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        let digits = run(end + 1 + sign);
        end += if digits > 0 { 1 + sign + digits } else { 0 };
    }
    let value: f64 = text[..end].parse().map_err(|_| Fault::Format)?;
    if value.abs() > MOST {
        return Err(Fault::Overflow);
    }
    let number = Number {
        whole: value.trunc() as i64,
        fraction: value - value.trunc(),
    };
    Ok((&text[..end], number, &text[end..]))
}

/// Digits before the point.
fn iso_digits(written: &str) -> usize {
    let digits = written.trim_start_matches('-');
    digits.bytes().take_while(u8::is_ascii_digit).count()
}

impl Parts {
    /// `yyyymmdd` or `yyyy-mm-dd`; what follows the `T` after it, or `None` at the end.
    fn add_iso_date<'t>(
        &mut self,
        written: &str,
        n: Number,
        after: &'t str,
        any: bool,
    ) -> Read<Option<&'t str>> {
        let whole = |n: i64| Number {
            whole: n,
            fraction: 0.0,
        };
        if iso_digits(written) == 8 && !any && !after.starts_with('-') {
            self.add_years(whole(n.whole / 10_000), 1)?;
            self.add_months(n.whole / 100 % 100)?;
            self.add_days(n.whole % 100, 1)?;
            self.add_part(n.fraction, MICROS_PER_DAY)?;
            return Ok(after.strip_prefix('T'));
        }
        if any {
            return Err(Fault::Format);
        }
        self.add(Unit::Year, n)?;
        let mut rest = after;
        for unit in [Unit::Month, Unit::Day] {
            rest = match rest.strip_prefix('-') {
                Some(number) => {
                    let (_, number, after) = iso_number(number)?;
                    self.add(unit, number)?;
                    after
                }
                None => break,
            };
        }
        match rest.strip_prefix('T') {
            Some(time) => Ok(Some(time)),
            None if rest.is_empty() => Ok(None),
            None => Err(Fault::Format),
        }
    }

    /// `hhmmss` or `hh:mm:ss`.
    fn add_iso_time(&mut self, written: &str, n: Number, after: &str, any: bool) -> Read<()> {
        if iso_digits(written) == 6 && !any && after.is_empty() {
            let whole = |n: i64| Number {
                whole: n,
                fraction: 0.0,
            };
            self.add(Unit::Hour, whole(n.whole / 10_000))?;
            self.add(Unit::Minute, whole(n.whole / 100 % 100))?;
            self.add(Unit::Second, whole(n.whole % 100))?;
            return self.add_part(n.fraction, 1);
        }
        if any {
            return Err(Fault::Format);
        }
        self.add(Unit::Hour, n)?;
        let mut rest = after;
        for unit in [Unit::Minute, Unit::Second] {
            rest = match rest.strip_prefix(':') {
                Some(number) => {
                    let (_, number, after) = iso_number(number)?;
                    self.add(unit, number)?;
                    after
                }
                None => break,
            };
        }
        match rest.is_empty() {
            true => Ok(()),
            false => Err(Fault::Format),
        }
    }
}
