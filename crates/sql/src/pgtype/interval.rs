//! The text forms of intervals: quantities with units, times of day, years and months of the SQL
//! standard, ISO 8601. Read as PostgreSQL reads them, field by
//! field from the right; written in that style.

use block::interval::Interval;

use super::calendar::{self, MICROS_PER_DAY, MICROS_PER_SECOND};
use super::datefield::{self, Fault, Kind, Read};
use super::iso_interval;
use super::styles::IntervalStyle;
use crate::error::{Error, Result};

/// PostgreSQL's work buffer.
const MAX_TEXT: usize = 255;

const MICROS_PER_MINUTE: i64 = 60 * MICROS_PER_SECOND;
const MICROS_PER_HOUR: i64 = 60 * MICROS_PER_MINUTE;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
}

/// Words are told apart by as many letters.
const WORD_LETTERS: usize = 10;

impl Unit {
    pub fn named(word: &str) -> Option<Unit> {
        Some(match word.get(..WORD_LETTERS).unwrap_or(word) {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecon" => Unit::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecon" => Unit::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
            "d" | "day" | "days" => Unit::Day,
            "w" | "week" | "weeks" => Unit::Week,
            "mon" | "mons" | "month" | "months" => Unit::Month,
            "qtr" | "quarter" => Unit::Quarter,
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
            "dec" | "decs" | "decade" | "decades" => Unit::Decade,
            "c" | "cent" | "century" | "centuries" => Unit::Century,
            "mil" | "mils" | "millennia" | "millennium" => Unit::Millennium,
            _ => return None,
        })
    }

    fn mask(self) -> u32 {
        1 << self as u32
    }
}

/// The fields and the digits of the seconds that a type modifier allows, as PostgreSQL packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modifier {
    fields: i32,
    digits: i32,
}

const YEAR: i32 = 1 << 2;
const MONTH: i32 = 1 << 1;
const DAY: i32 = 1 << 3;
const HOUR: i32 = 1 << 10;
const MINUTE: i32 = 1 << 11;
const SECOND: i32 = 1 << 12;
const ALL_FIELDS: i32 = 0x7fff;
const ALL_DIGITS: i32 = 0xffff;
pub const MAX_DIGITS: i32 = 6;

impl Modifier {
    pub fn unpacked(typmod: i32) -> Modifier {
        match typmod {
            ..0 => Modifier {
                fields: ALL_FIELDS,
                digits: ALL_DIGITS,
            },
            _ => Modifier {
                fields: typmod >> 16 & ALL_FIELDS,
                digits: typmod & ALL_DIGITS,
            },
        }
    }

    /// The modifier of `interval first to last (digits)`; without fields and digits there is none.
    pub fn packed(fields: Option<(Unit, Unit)>, digits: Option<i32>) -> i32 {
        if fields.is_none() && digits.is_none() {
            return -1;
        }
        let all = [
            (Unit::Year, YEAR),
            (Unit::Month, MONTH),
            (Unit::Day, DAY),
            (Unit::Hour, HOUR),
            (Unit::Minute, MINUTE),
            (Unit::Second, SECOND),
        ];
        let between = |first: Unit, last: Unit| {
            let within = all.iter().filter(|(u, _)| *u <= first && *u >= last);
            within.fold(0, |fields, (_, bit)| fields | bit)
        };
        let fields = fields.map_or(ALL_FIELDS, |(first, last)| between(first, last));
        fields << 16 | digits.unwrap_or(ALL_DIGITS)
    }

    /// The unit of the last field, which is that of a number without one.
    fn last(self) -> Unit {
        match self.fields {
            ALL_FIELDS => Unit::Second,
            f if f & SECOND != 0 => Unit::Second,
            f if f & MINUTE != 0 => Unit::Minute,
            f if f & HOUR != 0 => Unit::Hour,
            f if f & DAY != 0 => Unit::Day,
            f if f & MONTH != 0 => Unit::Month,
            _ => Unit::Year,
        }
    }

    /// Two parts of a time are minutes and seconds.
    fn minutes_first(self) -> bool {
        self.fields == MINUTE | SECOND
    }

    /// `day to second(3)`, behind a space.
    pub fn suffix(self) -> String {
        let names = [
            (YEAR, "year"),
            (MONTH, "month"),
            (DAY, "day"),
            (HOUR, "hour"),
            (MINUTE, "minute"),
            (SECOND, "second"),
        ];
        let mut named = names.iter().filter(|(bit, _)| self.fields & bit != 0);
        let mut out = String::new();
        if self.fields != ALL_FIELDS {
            let (first, last) = (named.next(), named.next_back());
            out.extend(first.map(|(_, name)| format!(" {name}")));
            out.extend(last.map(|(_, name)| format!(" to {name}")));
        }
        if self.digits != ALL_DIGITS {
            out.push_str(&format!("({})", self.digits));
        }
        out
    }

    /// Without what is smaller than the last field, and rounded to the digits.
    pub fn fit(self, interval: Interval) -> Interval {
        let cut = |each: i64| Interval {
            micros: interval.micros / each * each,
            ..interval
        };
        let fitted = match self.last() {
            Unit::Year => Interval {
                months: interval.months / 12 * 12,
                ..Interval::default()
            },
            Unit::Month => Interval {
                months: interval.months,
                ..Interval::default()
            },
            Unit::Day => Interval {
                micros: 0,
                ..interval
            },
            Unit::Hour => cut(MICROS_PER_HOUR),
            Unit::Minute => cut(MICROS_PER_MINUTE),
            _ => interval,
        };
        match self.digits {
            0..MAX_DIGITS => Interval {
                micros: rounded(fitted.micros, self.digits),
                ..fitted
            },
            _ => fitted,
        }
    }
}

/// To that many digits after the point, halves away from zero.
fn rounded(micros: i64, digits: i32) -> i64 {
    let unit = 10_i64.pow((MAX_DIGITS - digits) as u32);
    let half = if micros < 0 { -unit / 2 } else { unit / 2 };
    micros.saturating_add(half) / unit * unit
}

pub fn out_of_range() -> Error {
    Error::new("22008", "interval out of range")
}

/// Reads an interval, as its modifier says what numbers without units are; see [`Modifier::fit`].
/// In the style of the standard a sign before all of it is that of each field.
pub fn parse(text: &str, typmod: i32, style: IntervalStyle) -> Result<Interval> {
    let modifier = Modifier::unpacked(typmod);
    let fields = match is_glued(text) {
        true => Err(Fault::Format),
        false => datefield::split_within(text, MAX_TEXT),
    };
    let read = fields.and_then(|fields| {
        let standard = style == IntervalStyle::SqlStandard;
        decode(&fields, modifier, standard && is_negative(&fields))
    });
    let read = match read {
        Err(Fault::Format) => iso_interval::read(text),
        read => read,
    };
    let parts = read.map_err(|fault| match fault {
        Fault::Overflow => Error::new(
            "22015",
            format!("interval field value out of range: \"{text}\""),
        ),
        fault => fault.error("interval", text),
    })?;
    let months = i64::from(parts.years) * 12 + i64::from(parts.months);
    Ok(modifier.fit(Interval {
        months: i32::try_from(months).map_err(|_| out_of_range())?,
        days: parts.days,
        micros: parts.micros,
    }))
}

/// Whether a minus sign stands before the first field, and none before another.
fn is_negative(fields: &[(Kind, String)]) -> bool {
    let mut fields = fields.iter().map(|(_, field)| field);
    fields.next().is_some_and(|first| first.starts_with('-'))
        && !fields.any(|field| field.starts_with(['-', '+']))
}

/// Whether a word of several letters stands directly before a digit: only some short ones may.
fn is_glued(text: &str) -> bool {
    let mut word = String::new();
    for c in text.chars() {
        if c.is_ascii_alphabetic() {
            word.push(c.to_ascii_lowercase());
            continue;
        }
        let may = matches!(
            word.as_str(),
            "" | "d" | "h" | "m" | "s" | "y" | "dec" | "mon"
        );
        if !may && (c.is_ascii_digit() || c == '+') {
            return true;
        }
        word.clear();
    }
    false
}

/// What has been read so far.
#[derive(Default)]
pub(super) struct Parts {
    years: i32,
    months: i32,
    days: i32,
    micros: i64,
}

/// From the last field to the first, so that a unit is known before its number.
fn decode(fields: &[(Kind, String)], modifier: Modifier, negative: bool) -> Read<Parts> {
    const TIME: u32 = 1 << Unit::Hour as u32 | 1 << Unit::Minute as u32 | SECONDS;
    const SECONDS: u32 =
        1 << Unit::Second as u32 | 1 << Unit::Millisecond as u32 | 1 << Unit::Microsecond as u32;
    // `ago` is no unit, and neither does a number after it get the one at the end.
    enum Next {
        Last,
        None,
        Unit(Unit),
    }
    let mut parts = Parts::default();
    let (mut next, mut seen, mut ago) = (Next::Last, 0, false);
    for (kind, field) in fields.iter().rev() {
        let mask = match kind {
            Kind::Word | Kind::Special => {
                next = match Unit::named(field) {
                    Some(unit) => Next::Unit(unit),
                    None if field == "ago" => {
                        ago = true;
                        Next::None
                    }
                    None => return Err(Fault::Format),
                };
                continue;
            }
            Kind::Time => {
                parts.micros = clock(field, modifier)?;
                next = Next::Unit(Unit::Day);
                TIME
            }
            Kind::Zone if field.contains(':') && clock(&field[1..], modifier).is_ok() => {
                let micros = clock(&field[1..], modifier)?;
                parts.micros = if field.starts_with('-') {
                    -micros
                } else {
                    micros
                };
                next = Next::Unit(Unit::Day);
                TIME
            }
            Kind::Zone | Kind::Date | Kind::Number => {
                let unit = match next {
                    Next::Last => modifier.last(),
                    Next::Unit(unit) => unit,
                    Next::None => return Err(Fault::Format),
                };
                let (unit, number) = Number::parse(field, unit)?;
                parts.add(unit, number)?;
                // What follows an hour to the left is of days; otherwise of the same unit.
                next = Next::Unit(if unit == Unit::Hour { Unit::Day } else { unit });
                match unit == Unit::Second && number.fraction != 0.0 {
                    true => SECONDS,
                    false => unit.mask(),
                }
            }
        };
        if seen & mask != 0 {
            return Err(Fault::Format);
        }
        seen |= mask;
    }
    if negative {
        parts.years = -parts.years.abs();
        parts.months = -parts.months.abs();
        parts.days = -parts.days.abs();
        parts.micros = -parts.micros.abs();
    }
    match seen {
        0 => Err(Fault::Format),
        _ if ago => parts.negated(),
        _ => Ok(parts),
    }
}

/// `hours:minutes[:seconds]`, or minutes and seconds with a fraction, or of a type that has those.
fn clock(field: &str, modifier: Modifier) -> Read<i64> {
    let (whole, fraction) = field
        .split_once('.')
        .map_or((field, None), |(w, f)| (w, Some(f)));
    let parts: Vec<&str> = whole.split(':').collect();
    let number = |at: usize| match parts[at] {
        "" => Ok(0),
        digits => datefield::integer(digits),
    };
    let small = |at: usize| number(at).and_then(|n| i32::try_from(n).map_err(|_| Fault::Overflow));
    let (hours, minutes, seconds) = match parts.len() {
        2 if fraction.is_some() || modifier.minutes_first() => {
            (0, i64::from(small(0)?), i64::from(small(1)?))
        }
        2 => (number(0)?, i64::from(small(1)?), 0),
        3 => (number(0)?, i64::from(small(1)?), i64::from(small(2)?)),
        _ => return Err(Fault::Format),
    };
    let micros = match fraction {
        Some(digits) => (part(digits)? * 1e6).round_ties_even() as i64,
        None => 0,
    };
    if minutes > 59 || seconds > 60 {
        return Err(Fault::Overflow);
    }
    let rest = minutes * MICROS_PER_MINUTE + seconds * MICROS_PER_SECOND + micros;
    hours
        .checked_mul(MICROS_PER_HOUR)
        .and_then(|h| h.checked_add(rest))
        .ok_or(Fault::Overflow)
}

/// Digits after a point.
fn part(digits: &str) -> Read<f64> {
    match digits {
        "" => Ok(0.0),
        _ if digits.bytes().all(|b| b.is_ascii_digit()) => {
            format!("0.{digits}").parse().map_err(|_| Fault::Format)
        }
        _ => Err(Fault::Format),
    }
}

/// A decimal number, its fraction with its sign.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pub whole: i64,
    pub fraction: f64,
}

impl Number {
    /// A number of a unit, or years and months of the SQL standard, which are months.
    fn parse(field: &str, unit: Unit) -> Read<(Unit, Number)> {
        let negative = field.starts_with('-');
        let digits = field.strip_prefix(['-', '+']).unwrap_or(field);
        let end = digits.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, rest) = digits.split_at(end);
        let whole = match whole {
            "" => 0,
            _ => whole.parse::<i64>().map_err(|_| Fault::Overflow)?,
        };
        let sign = if negative { -1 } else { 1 };
        if let Some(months) = rest.strip_prefix('-') {
            if !months.bytes().all(|b| b.is_ascii_digit()) {
                return Err(Fault::Format);
            }
            let months = match months {
                "" => 0,
                _ => months.parse::<i64>().map_err(|_| Fault::Overflow)?,
            };
            if months >= 12 {
                return Err(Fault::Overflow);
            }
            let total = whole.checked_mul(12).and_then(|m| m.checked_add(months));
            let whole = sign * total.ok_or(Fault::Overflow)?;
            return Ok((
                Unit::Month,
                Number {
                    whole,
                    fraction: 0.0,
                },
            ));
        }
        let fraction = match rest.strip_prefix('.') {
            Some(digits) => part(digits)?,
            None if rest.is_empty() => 0.0,
            None => return Err(Fault::Format),
        };
        Ok((
            unit,
            Number {
                whole: sign * whole,
                fraction: sign as f64 * fraction,
            },
        ))
    }
}

impl Parts {
    pub(super) fn add(&mut self, unit: Unit, n: Number) -> Read<()> {
        match unit {
            Unit::Millennium => self.add_years(n, 1000),
            Unit::Century => self.add_years(n, 100),
            Unit::Decade => self.add_years(n, 10),
            Unit::Year => self.add_years(n, 1),
            Unit::Month => {
                self.add_months(n.whole)?;
                self.add_part_of_days(n.fraction, 30)
            }
            Unit::Week => {
                self.add_days(n.whole, 7)?;
                self.add_part_of_days(n.fraction, 7)
            }
            Unit::Day => {
                self.add_days(n.whole, 1)?;
                self.add_part(n.fraction, MICROS_PER_DAY)
            }
            Unit::Hour => self.add_micros(n, MICROS_PER_HOUR),
            Unit::Minute => self.add_micros(n, MICROS_PER_MINUTE),
            Unit::Second => self.add_micros(n, MICROS_PER_SECOND),
            Unit::Millisecond => self.add_micros(n, 1000),
            Unit::Microsecond => self.add_micros(n, 1),
            Unit::Quarter => Err(Fault::Format),
        }
    }

    pub(super) fn add_years(&mut self, n: Number, each: i32) -> Read<()> {
        let whole = i32::try_from(n.whole).ok();
        let years = whole.and_then(|y| y.checked_mul(each));
        let years = years.and_then(|y| y.checked_add(self.years));
        self.years = years.ok_or(Fault::Overflow)?;
        let months = (n.fraction * f64::from(each) * 12.0).round_ties_even();
        self.add_months(months as i64)
    }

    pub(super) fn add_months(&mut self, months: i64) -> Read<()> {
        let sum = i32::try_from(months).ok();
        let sum = sum.and_then(|m| m.checked_add(self.months));
        self.months = sum.ok_or(Fault::Overflow)?;
        Ok(())
    }

    pub(super) fn add_days(&mut self, n: i64, each: i32) -> Read<()> {
        let days = i32::try_from(n).ok().and_then(|d| d.checked_mul(each));
        let sum = days.and_then(|d| d.checked_add(self.days));
        self.days = sum.ok_or(Fault::Overflow)?;
        Ok(())
    }

    /// A part of several days: whole ones, and the rest as time.
    fn add_part_of_days(&mut self, fraction: f64, each: i32) -> Read<()> {
        let days = fraction * f64::from(each);
        self.add_days(days.trunc() as i64, 1)?;
        self.add_part(days - days.trunc(), MICROS_PER_DAY)
    }

    /// A part of so many microseconds, rounded to the nearest, halves down.
    pub(super) fn add_part(&mut self, fraction: f64, each: i64) -> Read<()> {
        let micros = fraction * each as f64;
        let whole = micros as i64;
        let rest = micros - whole as f64;
        let whole = match () {
            () if rest > 0.5 => whole + 1,
            () if rest < -0.5 => whole - 1,
            () => whole,
        };
        self.micros = self.micros.checked_add(whole).ok_or(Fault::Overflow)?;
        Ok(())
    }

    fn add_micros(&mut self, n: Number, each: i64) -> Read<()> {
        let sum = n.whole.checked_mul(each);
        let sum = sum.and_then(|m| m.checked_add(self.micros));
        self.micros = sum.ok_or(Fault::Overflow)?;
        self.add_part(n.fraction, each)
    }

    fn negated(self) -> Read<Parts> {
        let negated = |n: i32| n.checked_neg().ok_or(Fault::Overflow);
        Ok(Parts {
            years: negated(self.years)?,
            months: negated(self.months)?,
            days: negated(self.days)?,
            micros: self.micros.checked_neg().ok_or(Fault::Overflow)?,
        })
    }
}

/// `1 year 2 mons -3 days +04:05:06.7`.
pub fn write(out: &mut Vec<u8>, interval: Interval) {
    let (mut first, mut after_negative) = (true, false);
    let parts = [
        (interval.months / 12, "year"),
        (interval.months % 12, "mon"),
        (interval.days, "day"),
    ];
    for (n, unit) in parts.into_iter().filter(|(n, _)| *n != 0) {
        let space = if first { "" } else { " " };
        let plus = if after_negative && n > 0 { "+" } else { "" };
        let plural = if n == 1 { "" } else { "s" };
        out.extend_from_slice(format!("{space}{plus}{n} {unit}{plural}").as_bytes());
        (first, after_negative) = (false, n < 0);
    }
    if interval.micros == 0 && !first {
        return;
    }
    let sign = match interval.micros < 0 {
        true => "-",
        false if after_negative => "+",
        false => "",
    };
    let micros = interval.micros.unsigned_abs();
    let second = MICROS_PER_SECOND as u64;
    let (seconds, fraction) = (micros / second, micros % second);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let space = if first { "" } else { " " };
    let time = format!("{space}{sign}{hours:02}:{minutes:02}:{seconds:02}");
    out.extend_from_slice(time.as_bytes());
    calendar::write_fraction(out, fraction as i64);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that PostgreSQL 15 shows.
    #[test]
    fn intervals_are_read_as_in_postgresql() {
        let second = MICROS_PER_SECOND;
        let cases = [
            ("1 day", 0, 1, 0),
            ("1 year 2 mons -3 days", 14, -3, 0),
            ("1.5 months", 1, 15, 0),
            ("1.5 weeks", 0, 10, 43_200 * second),
            ("1 2:03:04.5", 0, 1, 7_384_500_000),
            ("-02:30", 0, 0, -9000 * second),
            ("1-2", 14, 0, 0),
            ("P1Y2M3DT4H5M6S", 14, 3, 14_706 * second),
            ("P0001-02-03T04:05:06", 14, 3, 14_706 * second),
            ("P00010203T040506", 14, 3, 14_706 * second),
            ("2 hours ago", 0, 0, -7200 * second),
            ("90", 0, 0, 90 * second),
            ("1h30m", 0, 0, 5400 * second),
            ("1 decade", 120, 0, 0),
            ("0.5 years", 6, 0, 0),
            ("1 day 2", 0, 1, 2 * second),
            ("1 +02:03", 0, 1, 7380 * second),
        ];
        for (text, months, days, micros) in cases {
            let read = parse(text, -1, IntervalStyle::Postgres).unwrap();
            assert_eq!(
                (read.months, read.days, read.micros),
                (months, days, micros),
                "{text}"
            );
        }
        for text in [
            "",
            "1 foo",
            "day",
            "abc",
            "1:2:3:4",
            "p1d",
            "1 day 1 day",
            "1 day2 hours",
            "P",
        ] {
            assert_eq!(
                parse(text, -1, IntervalStyle::Postgres)
                    .unwrap_err()
                    .sqlstate(),
                "22007",
                "{text}"
            );
        }
        for text in ["3000000000 days", "1:70", "1-13"] {
            assert_eq!(
                parse(text, -1, IntervalStyle::Postgres)
                    .unwrap_err()
                    .sqlstate(),
                "22015",
                "{text}"
            );
        }
        let hours = Modifier::packed(Some((Unit::Hour, Unit::Hour)), None);
        assert_eq!(
            parse("2", hours, IntervalStyle::Postgres).unwrap().micros,
            7200 * second
        );
        let cut = parse("1 day 02:03", hours, IntervalStyle::Postgres).unwrap();
        assert_eq!((cut.days, cut.micros), (1, 7200 * second));
    }

    #[test]
    fn intervals_are_written_as_in_postgresql() {
        let shown = |months, days, micros| {
            let mut out = Vec::new();
            let interval = Interval {
                months,
                days,
                micros,
            };
            write(&mut out, interval);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(0, 0, 0), "00:00:00");
        assert_eq!(shown(14, -3, 1), "1 year 2 mons -3 days +00:00:00.000001");
        assert_eq!(shown(-1, 0, -1_500_000), "-1 mons -00:00:01.5");
        assert_eq!(shown(0, 1, 0), "1 day");
        assert_eq!(shown(0, 0, i64::MIN), "-2562047788:00:54.775808");
    }
}
