//! `to_char` of points in time and of intervals: PostgreSQL's template patterns, of which the
//! longest counts that a place begins with.

use block::interval::Interval;
use block::value::DatumRef;

use super::Val;
use super::moments::is_infinite;
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::pgtype::calendar::{
    Civil, JULIAN_OF_EPOCH, MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil,
};

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const ROMAN: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];
/// Patterns of names and halves of the day, whose letters say in which case they are written.
const WORDS: &[&str] = &[
    "A.D.", "A.M.", "AD", "AM", "B.C.", "BC", "DAY", "DY", "Day", "Dy", "MONTH", "MON", "Month",
    "Mon", "P.M.", "PM", "a.d.", "a.m.", "ad", "am", "b.c.", "bc", "day", "dy", "month", "mon",
    "p.m.", "pm",
];
/// Patterns that are numbers, in capitals or in small letters.
const NUMBERS: &[&str] = &[
    "CC", "DDD", "DD", "D", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6", "FX", "HH24", "HH12", "HH",
    "IDDD", "ID", "IW", "IYYY", "IYY", "IY", "I", "J", "MI", "MM", "MS", "OF", "Q", "RM", "SSSSS",
    "SSSS", "SS", "TZH", "TZM", "TZ", "US", "WW", "W", "Y,YYY", "YYYY", "YYY", "YY", "Y",
];

/// The parts of a time, or of a span.
struct Parts {
    year: i64,
    month: i64,
    day: i64,
    /// Days before the first: of a year, or of the span.
    day_of_year: i64,
    /// From Sunday.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// Days from 2000; none for a span.
    date: Option<i64>,
    /// Seconds east of Greenwich, and what the zone calls that.
    zone: Option<(i64, String)>,
}

/// `to_char(value, format)`; NULL for an empty format, and for infinity.
pub fn call(values: &[Val<'_>], io: &IoSettings) -> Result<Val<'static>> {
    let Some(DatumRef::Text(format)) = values.get(1).map(Val::get) else {
        return Err(Error::internal("to_char without a format"));
    };
    let parts = match values[0].get() {
        number @ (DatumRef::Int4(_)
        | DatumRef::Int8(_)
        | DatumRef::Float8(_)
        | DatumRef::Numeric(_)) => return super::to_char_number::call(number, format),
        DatumRef::Timestamp(t) | DatumRef::TimestampTz(t) if is_infinite(t) => {
            return Ok(Val::NULL);
        }
        DatumRef::Timestamp(t) => of_time(t, None),
        DatumRef::TimestampTz(t) => {
            let offset = i64::from(io.time_zone.offset_at(t));
            let zone = (offset, io.time_zone.abbreviation_at(t));
            of_time(t + offset * MICROS_PER_SECOND, Some(zone))
        }
        DatumRef::Interval(i) => of_span(i),
        other => return Err(Error::internal(format!("to_char of {other:?}"))),
    };
    match format.is_empty() {
        true => Ok(Val::NULL),
        false => written(&parts, format).map(Val::text),
    }
}

fn of_time(local: i64, zone: Option<(i64, String)>) -> Parts {
    let days = local.div_euclid(MICROS_PER_DAY);
    let time = local.rem_euclid(MICROS_PER_DAY);
    let civil = civil_from_days(days);
    let first = days_from_civil(Civil {
        month: 1,
        day: 1,
        ..civil
    });
    let seconds = time / MICROS_PER_SECOND;
    Parts {
        year: civil.year,
        month: civil.month.into(),
        day: civil.day.into(),
        day_of_year: days - first + 1,
        // 2000 began on a Saturday.
        weekday: (days + 6).rem_euclid(7),
        hour: seconds / 3600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
        micros: time % MICROS_PER_SECOND,
        date: Some(days),
        zone,
    }
}

fn of_span(span: Interval) -> Parts {
    let (months, seconds) = (i64::from(span.months), span.micros / MICROS_PER_SECOND);
    Parts {
        year: months / 12,
        month: months % 12,
        day: span.days.into(),
        day_of_year: months * 30 + i64::from(span.days),
        weekday: 0,
        hour: seconds / 3600,
        minute: seconds / 60 % 60,
        second: seconds % 60,
        micros: span.micros % MICROS_PER_SECOND,
        date: None,
        zone: None,
    }
}

/// A pattern with what stands around it.
struct Pattern<'f> {
    name: &'f str,
    /// `FM`, or `TM`: nothing is filled up.
    plain: bool,
    /// `TH` or `th`: the ending of an ordinal number.
    ordinal: Option<bool>,
}

/// The pattern that a text begins with, and what follows.
pub(super) fn pattern(text: &str) -> Option<(&str, &str)> {
    let words = WORDS.iter().filter(|w| text.starts_with(**w));
    let numbers = NUMBERS.iter().filter(|n| {
        let begin = text.get(..n.len());
        begin.is_some_and(|b| b == **n || b == n.to_ascii_lowercase())
    });
    let longest = words.chain(numbers).map(|p| p.len()).max()?;
    Some(text.split_at(longest))
}

fn written(parts: &Parts, format: &str) -> Result<String> {
    let (mut out, mut rest) = (String::new(), format);
    while !rest.is_empty() {
        let prefix = ["FM", "fm", "TM", "tm"]
            .into_iter()
            .find(|p| rest.starts_with(p));
        rest = &rest[prefix.map_or(0, str::len)..];
        if let Some((name, after)) = pattern(rest) {
            let ordinal = match after.get(..2) {
                Some("TH") => Some(true),
                Some("th") => Some(false),
                _ => None,
            };
            let skipped = usize::from(ordinal.is_some() || after.starts_with("SP")) * 2;
            rest = &after[skipped..];
            let pattern = Pattern {
                name,
                plain: prefix.is_some(),
                ordinal,
            };
            pattern.write(parts, &mut out)?;
            continue;
        }
        rest = match rest.strip_prefix('"') {
            Some(quoted) => literal(quoted, &mut out),
            None => {
                let rest = match rest.strip_prefix('\\') {
                    Some(after) if after.starts_with('"') => after,
                    _ => rest,
                };
                let mut chars = rest.chars();
                out.extend(chars.next());
                chars.as_str()
            }
        };
    }
    Ok(out)
}

/// Text up to a quote; gives what comes after it.
fn literal<'f>(quoted: &'f str, out: &mut String) -> &'f str {
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return chars.as_str(),
            '\\' => out.push(chars.next().unwrap_or('\\')),
            c => out.push(c),
        }
    }
    ""
}

fn of_a_span() -> Error {
    Error::new(
        "22007",
        "invalid format specification for an interval value",
    )
    .hint("Intervals are not tied to specific calendar dates.")
}

impl Pattern<'_> {
    /// A number of so many digits, one more place if it is negative.
    fn number(&self, value: i64, digits: usize, out: &mut String) {
        let digits = match self.plain {
            true => 0,
            false => digits + usize::from(value < 0),
        };
        self.written(format!("{value:0digits$}"), out);
    }

    /// A number of so many places, its sign among them.
    fn fixed(&self, value: i64, places: usize, out: &mut String) {
        let places = if self.plain { 0 } else { places };
        self.written(format!("{value:0places$}"), out);
    }

    fn written(&self, number: String, out: &mut String) {
        out.push_str(&number);
        self.ending(&number, out);
    }

    /// `st`, `nd`, `rd` or `th`.
    fn ending(&self, number: &str, out: &mut String) {
        let Some(capitals) = self.ordinal else {
            return;
        };
        let digits: Vec<u8> = number.bytes().rev().take(2).collect();
        let ending = match (digits.first(), digits.get(1)) {
            (_, Some(b'1')) => "th",
            (Some(b'1'), _) => "st",
            (Some(b'2'), _) => "nd",
            (Some(b'3'), _) => "rd",
            _ => "th",
        };
        match capitals {
            true => out.push_str(&ending.to_ascii_uppercase()),
            false => out.push_str(ending),
        }
    }

    /// A name in the case of the pattern, filled up to a width.
    fn name(&self, name: &str, width: usize, out: &mut String) {
        let mut letters = self.name.chars();
        let first = letters.next().is_some_and(|c| c.is_ascii_uppercase());
        let second = letters.next().is_some_and(|c| c.is_ascii_uppercase());
        let name = match (first, second) {
            (true, true) => name.to_ascii_uppercase(),
            (true, false) => name.to_string(),
            _ => name.to_ascii_lowercase(),
        };
        let width = if self.plain { 0 } else { width };
        out.push_str(&format!("{name:width$}"));
    }

    /// One of two, with points or without as the pattern, and in its case.
    fn either(&self, first: bool, [yes, no]: [&str; 2], out: &mut String) {
        let chosen = if first { yes } else { no };
        let with_points = self.name.contains('.');
        for c in chosen.chars() {
            let small = self.name.starts_with(|c: char| c.is_ascii_lowercase());
            out.push(if small { c.to_ascii_lowercase() } else { c });
            if with_points {
                out.push('.');
            }
        }
    }

    fn write(&self, p: &Parts, out: &mut String) -> Result<()> {
        let capitals = self.name.to_ascii_uppercase();
        match capitals.as_str() {
            "AM" | "A.M." | "PM" | "P.M." => {
                self.either(p.hour.rem_euclid(24) >= 12, ["PM", "AM"], out);
            }
            "HH" | "HH12" => {
                let hour = match p.hour % 12 {
                    0 => 12,
                    hour => hour,
                };
                let digits = 2 + usize::from(p.hour < 0 && hour >= 0);
                self.number(hour, digits, out);
            }
            "HH24" => self.number(p.hour, 2, out),
            "MI" => self.number(p.minute, 2, out),
            "SS" => self.number(p.second, 2, out),
            "MS" => self.fraction(p.micros / 1000, 3, out),
            "US" => self.fraction(p.micros, 6, out),
            "FX" => {}
            "SSSS" | "SSSSS" => {
                let seconds = (p.hour * 3600 + p.minute * 60 + p.second).to_string();
                out.push_str(&seconds);
                self.ending(&seconds, out);
            }
            "DD" => self.fixed(p.day, 2, out),
            "DDD" => self.fixed(p.day_of_year, 3, out),
            "WW" => self.fixed((p.day_of_year - 1) / 7 + 1, 2, out),
            "MM" => self.number(p.month, 2, out),
            "Q" if p.month == 0 => {}
            "Q" => {
                let quarter = ((p.month - 1) / 3 + 1).to_string();
                out.push_str(&quarter);
                self.ending(&quarter, out);
            }
            "W" => self.number((p.day - 1) / 7 + 1, 0, out),
            "CC" => {
                let century = match (p.date, p.year) {
                    (None, year) => year / 100,
                    (Some(_), year) if year > 0 => (year - 1) / 100 + 1,
                    (Some(_), year) => year / 100 - 1,
                };
                self.number(century, 2, out);
            }
            "RM" => self.roman(p, out),
            fraction if fraction.starts_with("FF") => {
                let digits = usize::from(fraction.as_bytes()[2] - b'0');
                let divisor = 10_i64.pow(6 - digits as u32);
                self.fraction(p.micros / divisor, digits, out);
            }
            years if years.starts_with('Y') => self.years(p, p.year, out),
            _ => return self.write_dated(&capitals, p, out),
        }
        Ok(())
    }

    fn fraction(&self, value: i64, digits: usize, out: &mut String) {
        let text = format!("{value:0digits$}");
        out.push_str(&text);
        self.ending(&text, out);
    }

    fn roman(&self, p: &Parts, out: &mut String) {
        if p.month == 0 && p.year == 0 {
            return;
        }
        // Months below zero are counted from the end, and whole years are at either end.
        let month = match p.month {
            1.. => p.month - 1,
            0 if p.year < 0 => 0,
            0 => 11,
            before => 12 + before,
        };
        let name = ROMAN[month as usize];
        let name = match self.name {
            "rm" => name.to_ascii_lowercase(),
            _ => name.to_string(),
        };
        let width = if self.plain { 0 } else { 4 };
        out.push_str(&format!("{name:width$}"));
    }

    /// The last digits of a year, as many as the pattern has letters.
    fn years(&self, p: &Parts, year: i64, out: &mut String) {
        let year = match p.date {
            Some(_) if year <= 0 => 1 - year,
            _ => year,
        };
        match self.name.len() {
            5 => {
                let text = format!("{},{:03}", year / 1000, year % 1000);
                out.push_str(&text);
                self.ending(&text, out);
            }
            4 => self.number(year, 4, out),
            digits => self.number(year % 10_i64.pow(digits as u32), digits, out),
        }
    }

    /// What only a date has.
    fn write_dated(&self, capitals: &str, p: &Parts, out: &mut String) -> Result<()> {
        let date = p.date.ok_or_else(of_a_span)?;
        let weekday = DAYS[p.weekday as usize];
        let month = MONTHS[(p.month - 1) as usize];
        match capitals {
            "AD" | "A.D." | "BC" | "B.C." => self.either(p.year <= 0, ["BC", "AD"], out),
            "MONTH" => self.name(month, 9, out),
            "MON" => self.name(&month[..3], 0, out),
            "DAY" => self.name(weekday, 9, out),
            "DY" => self.name(&weekday[..3], 0, out),
            "D" => self.number(p.weekday + 1, 0, out),
            "ID" => self.number(iso_weekday(p), 0, out),
            "J" => self.number(date + JULIAN_OF_EPOCH, 0, out),
            "IW" => self.number(iso_week(date, p).1, 2, out),
            "IDDD" => {
                let (_, week) = iso_week(date, p);
                self.number((week - 1) * 7 + iso_weekday(p), 3, out);
            }
            years if years.starts_with("IY") || years == "I" => {
                self.years(p, iso_week(date, p).0, out);
            }
            _ => self.zone(capitals, p, out),
        }
        Ok(())
    }

    fn zone(&self, capitals: &str, p: &Parts, out: &mut String) {
        let (offset, name) = p.zone.clone().unwrap_or_default();
        let sign = if offset < 0 { '-' } else { '+' };
        let (hours, minutes) = (offset.abs() / 3600, offset.abs() / 60 % 60);
        match capitals {
            "TZH" => out.push_str(&format!("{sign}{hours:02}")),
            "TZM" => out.push_str(&format!("{minutes:02}")),
            "OF" => {
                let width = if self.plain { 0 } else { 2 };
                out.push_str(&format!("{sign}{hours:0width$}"));
                if minutes != 0 {
                    out.push_str(&format!(":{minutes:02}"));
                }
            }
            _ if self.name.starts_with('t') => out.push_str(&name.to_lowercase()),
            _ => out.push_str(&name),
        }
    }
}

/// From Monday, which is 1.
fn iso_weekday(p: &Parts) -> i64 {
    match p.weekday {
        0 => 7,
        day => day,
    }
}

/// The year and the week that a day is of by ISO 8601: those of its Thursday.
fn iso_week(date: i64, p: &Parts) -> (i64, i64) {
    let thursday = date + 4 - iso_weekday(p);
    let year = civil_from_days(thursday).year;
    let first = days_from_civil(Civil {
        year,
        month: 1,
        day: 1,
    });
    (year, (thursday - first) / 7 + 1)
}
