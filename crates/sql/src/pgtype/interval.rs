//! The text form of intervals, as PostgreSQL reads it with `IntervalStyle` `postgres`: quantities
//! with units, times of day, years and months of the SQL standard, ISO 8601.

use super::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND};
use crate::error::{Error, Result};

/// An interval: its three parts do not convert into each other, as months and days differ in
/// length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

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
    Year,
    Decade,
    Century,
    Millennium,
}

impl Unit {
    pub fn named(word: &str) -> Option<Unit> {
        Some(match word {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds"
            | "microsecon" => Unit::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds"
            | "millisecon" => Unit::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
            "d" | "day" | "days" => Unit::Day,
            "w" | "week" | "weeks" => Unit::Week,
            "mon" | "mons" | "month" | "months" => Unit::Month,
            "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
            "dec" | "decs" | "decade" | "decades" => Unit::Decade,
            "c" | "cent" | "century" | "centuries" => Unit::Century,
            "mil" | "mils" | "millennia" | "millennium" => Unit::Millennium,
            _ => return None,
        })
    }
}

fn out_of_range() -> Error {
    Error::new("22008", "interval field value out of range")
}

impl Interval {
    /// `last`: the last field that the type has, as in `interval '90' minute`; a number without a
    /// unit is of that, and what is smaller is dropped.
    pub fn parse(text: &str, last: Option<Unit>) -> Result<Interval> {
        let invalid = || {
            Error::new(
                "22007",
                format!("invalid input syntax for type interval: \"{text}\""),
            )
        };
        let lower = text.trim().to_lowercase();
        let mut sum = Interval::default();
        if let Some(iso) = lower.strip_prefix('p') {
            sum.add_iso(iso, &invalid)?;
        } else {
            sum.add_words(&lower, last.unwrap_or(Unit::Second), &invalid)?;
        }
        Ok(match last {
            Some(unit) => sum.down_to(unit),
            None => sum,
        })
    }

    fn add_words(&mut self, text: &str, bare: Unit, invalid: &dyn Fn() -> Error) -> Result<()> {
        let words = words(text);
        let mut words = words.iter().map(String::as_str).peekable();
        let (mut any, mut ago) = (false, false);
        while let Some(word) = words.next() {
            match word {
                "@" => continue,
                "ago" if any && words.peek().is_none() => {
                    ago = true;
                    continue;
                }
                _ => any = true,
            }
            if word.contains(':') {
                self.add_clock(word, invalid)?;
                continue;
            }
            if let Some((years, months)) = years_and_months(word) {
                let sign = if word.starts_with('-') { -1 } else { 1 };
                let total = years.checked_mul(12).and_then(|y| y.checked_add(months));
                self.add_months(sign * total.ok_or_else(out_of_range)?)?;
                continue;
            }
            let number = Number::parse(word).ok_or_else(invalid)?;
            let unit = match words.peek() {
                Some(next) if next.contains(':') => Unit::Day,
                Some(next) => match Unit::named(next) {
                    Some(unit) => {
                        words.next();
                        unit
                    }
                    None => return Err(invalid()),
                },
                None => bare,
            };
            self.add(unit, number)?;
        }
        if !any {
            return Err(invalid());
        }
        if ago {
            *self = self.negated()?;
        }
        Ok(())
    }

    /// `[-]hours:minutes[:seconds]`, or minutes and seconds with a fraction.
    fn add_clock(&mut self, word: &str, invalid: &dyn Fn() -> Error) -> Result<()> {
        let negative = word.starts_with('-');
        let parts: Vec<&str> = word.trim_start_matches(['-', '+']).split(':').collect();
        let units: &[Unit] = match parts.len() {
            2 if parts[1].contains('.') => &[Unit::Minute, Unit::Second],
            2 => &[Unit::Hour, Unit::Minute],
            3 => &[Unit::Hour, Unit::Minute, Unit::Second],
            _ => return Err(invalid()),
        };
        for (part, unit) in parts.iter().zip(units) {
            let mut number = Number::parse(part).ok_or_else(invalid)?;
            let is_field = *unit != Unit::Hour && number.whole >= 60;
            if part.starts_with(['-', '+']) || *unit != Unit::Second && part.contains('.') {
                return Err(invalid());
            }
            if is_field {
                return Err(out_of_range());
            }
            if negative {
                number = number.negated();
            }
            self.add(*unit, number)?;
        }
        Ok(())
    }

    /// After the `P` of ISO 8601, with designators.
    fn add_iso(&mut self, text: &str, invalid: &dyn Fn() -> Error) -> Result<()> {
        let (mut number, mut in_time, mut any) = (String::new(), false, false);
        for c in text.chars() {
            match c {
                't' if number.is_empty() && !in_time => in_time = true,
                c if c.is_ascii_digit() || matches!(c, '.' | '-' | '+') => number.push(c),
                c => {
                    let unit = match (c, in_time) {
                        ('y', false) => Unit::Year,
                        ('m', false) => Unit::Month,
                        ('w', false) => Unit::Week,
                        ('d', false) => Unit::Day,
                        ('h', true) => Unit::Hour,
                        ('m', true) => Unit::Minute,
                        ('s', true) => Unit::Second,
                        _ => return Err(invalid()),
                    };
                    self.add(unit, Number::parse(&number).ok_or_else(invalid)?)?;
                    number.clear();
                    any = true;
                }
            }
        }
        match any && number.is_empty() {
            true => Ok(()),
            false => Err(invalid()),
        }
    }

    fn add(&mut self, unit: Unit, n: Number) -> Result<()> {
        let months = |each: i64| -> Result<i64> {
            let whole = n.whole.checked_mul(each).ok_or_else(out_of_range)?;
            Ok(whole + (n.fraction * each as f64).round_ties_even() as i64)
        };
        match unit {
            Unit::Millennium => self.add_months(months(12_000)?),
            Unit::Century => self.add_months(months(1200)?),
            Unit::Decade => self.add_months(months(120)?),
            Unit::Year => self.add_months(months(12)?),
            Unit::Month => {
                self.add_months(n.whole)?;
                self.add_days_and_fraction(0, n.fraction * 30.0)
            }
            Unit::Week => {
                let days = n.whole.checked_mul(7).ok_or_else(out_of_range)?;
                self.add_days_and_fraction(days, n.fraction * 7.0)
            }
            Unit::Day => self.add_days_and_fraction(n.whole, n.fraction),
            Unit::Hour => self.add_micros(n, 3600 * MICROS_PER_SECOND),
            Unit::Minute => self.add_micros(n, 60 * MICROS_PER_SECOND),
            Unit::Second => self.add_micros(n, MICROS_PER_SECOND),
            Unit::Millisecond => self.add_micros(n, 1000),
            Unit::Microsecond => self.add_micros(n, 1),
        }
    }

    fn add_months(&mut self, months: i64) -> Result<()> {
        let sum = i64::from(self.months).checked_add(months);
        self.months = sum
            .and_then(|m| i32::try_from(m).ok())
            .ok_or_else(out_of_range)?;
        Ok(())
    }

    /// Days, of which a part is time.
    fn add_days_and_fraction(&mut self, days: i64, fraction: f64) -> Result<()> {
        let whole = fraction.trunc();
        let sum = i64::from(self.days)
            .checked_add(days)
            .and_then(|d| d.checked_add(whole as i64));
        self.days = sum
            .and_then(|d| i32::try_from(d).ok())
            .ok_or_else(out_of_range)?;
        let rest = ((fraction - whole) * MICROS_PER_DAY as f64).round_ties_even();
        self.micros = self
            .micros
            .checked_add(rest as i64)
            .ok_or_else(out_of_range)?;
        Ok(())
    }

    fn add_micros(&mut self, n: Number, each: i64) -> Result<()> {
        let rest = (n.fraction * each as f64).round_ties_even() as i64;
        let sum = n.whole.checked_mul(each);
        self.micros = sum
            .and_then(|m| m.checked_add(rest))
            .and_then(|m| m.checked_add(self.micros))
            .ok_or_else(out_of_range)?;
        Ok(())
    }

    pub fn negated(self) -> Result<Interval> {
        Ok(Interval {
            months: self.months.checked_neg().ok_or_else(out_of_range)?,
            days: self.days.checked_neg().ok_or_else(out_of_range)?,
            micros: self.micros.checked_neg().ok_or_else(out_of_range)?,
        })
    }

    /// Without what is smaller than a field.
    fn down_to(self, unit: Unit) -> Interval {
        let cut = |each: i64| self.micros / each * each;
        let time = |micros| Interval { micros, ..self };
        match unit {
            Unit::Year | Unit::Decade | Unit::Century | Unit::Millennium => Interval {
                months: self.months / 12 * 12,
                ..Interval::default()
            },
            Unit::Month => Interval {
                months: self.months,
                ..Interval::default()
            },
            Unit::Day | Unit::Week => time(0),
            Unit::Hour => time(cut(3600 * MICROS_PER_SECOND)),
            Unit::Minute => time(cut(60 * MICROS_PER_SECOND)),
            Unit::Second | Unit::Millisecond | Unit::Microsecond => self,
        }
    }
}

/// A decimal number, its fraction with its sign.
#[derive(Clone, Copy)]
struct Number {
    whole: i64,
    fraction: f64,
}

impl Number {
    fn parse(text: &str) -> Option<Number> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if !all_digits(whole) || !all_digits(fraction) || whole.len() + fraction.len() == 0 {
            return None;
        }
        let number = Number {
            whole: match whole {
                "" => 0,
                whole => whole.parse().ok()?,
            },
            fraction: match fraction {
                "" => 0.0,
                _ => format!("0.{fraction}").parse().ok()?,
            },
        };
        Some(match negative {
            true => number.negated(),
            false => number,
        })
    }

    fn negated(self) -> Number {
        Number {
            whole: -self.whole,
            fraction: -self.fraction,
        }
    }
}

/// `1-2` of the SQL standard.
fn years_and_months(word: &str) -> Option<(i64, i64)> {
    let (years, months) = word.trim_start_matches(['-', '+']).split_once('-')?;
    let number = |t: &str| match t.bytes().all(|b| b.is_ascii_digit()) {
        true => t.parse::<i64>().ok(),
        false => None,
    };
    Some((number(years)?, number(months).filter(|m| *m < 12)?))
}

/// Words, a quantity and the unit that follows it at once apart.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = word.find(|c: char| c.is_ascii_alphabetic());
        match unit {
            Some(at) if at > 0 => {
                let (quantity, unit) = word.split_at(at);
                // `1h30m`, too.
                words.push(quantity.to_string());
                let mut rest = unit;
                while let Some(at) = rest.find(|c: char| !c.is_ascii_alphabetic()) {
                    words.push(rest[..at].to_string());
                    let number = &rest[at..];
                    let end = number
                        .find(|c: char| c.is_ascii_alphabetic())
                        .unwrap_or(number.len());
                    words.push(number[..end].to_string());
                    rest = &number[end..];
                }
                if !rest.is_empty() {
                    words.push(rest.to_string());
                }
            }
            _ => words.push(word.to_string()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that PostgreSQL 15 shows for `justify`-less intervals.
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
            ("2 hours ago", 0, 0, -7200 * second),
            ("90", 0, 0, 90 * second),
            ("1h30m", 0, 0, 5400 * second),
            ("1 decade", 120, 0, 0),
            ("0.5 years", 6, 0, 0),
        ];
        for (text, months, days, micros) in cases {
            let expected = Interval {
                months,
                days,
                micros,
            };
            assert_eq!(Interval::parse(text, None).unwrap(), expected, "{text}");
        }
        for text in ["", "1 foo", "day", "1 day 2", "abc", "1:2:3:4"] {
            let parsed = Interval::parse(text, None);
            match text {
                // A number at the end is of seconds.
                "1 day 2" => assert!(parsed.is_ok()),
                _ => assert_eq!(parsed.unwrap_err().sqlstate(), "22007", "{text}"),
            }
        }
        let hours = Interval::parse("2", Some(Unit::Hour)).unwrap();
        assert_eq!(hours.micros, 7200 * second);
        let cut = Interval::parse("1 day 02:03", Some(Unit::Hour)).unwrap();
        assert_eq!((cut.days, cut.micros), (1, 7200 * second));
    }
}
