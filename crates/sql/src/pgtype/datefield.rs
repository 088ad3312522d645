//! The pieces of a date's text: cutting it into fields, and reading words, times of day and zone offsets.

use super::calendar::MICROS_PER_SECOND;
use super::zone::MAX_OFFSET_SECONDS;
use crate::error::Error;

/// Longest text looked at; PostgreSQL's own work buffer has 128 bytes and more fields than 25 are refused.
const MAX_TEXT: usize = 128;
const MAX_FIELDS: usize = 25;

pub type Read<T> = Result<T, Fault>;

/// Why a text is no date. One variant for each of PostgreSQL's answers.
#[derive(Debug)]
pub enum Fault {
    Format,
    Overflow,
    /// Month or day beyond any month: the order of the fields may be another.
    MonthOrDayOverflow,
    Displacement,
    UnknownZone(String),
}

impl Fault {
    pub fn error(self, type_name: &str, text: &str) -> Error {
        match self {
            Fault::Format => Error::new(
                "22007",
                format!("invalid input syntax for type {type_name}: \"{text}\""),
            ),
            Fault::Overflow => Error::new(
                "22008",
                format!("date/time field value out of range: \"{text}\""),
            ),
            Fault::MonthOrDayOverflow => Error::new(
                "22008",
                format!("date/time field value out of range: \"{text}\""),
            )
            .hint("Perhaps you need a different \"datestyle\" setting."),
            Fault::Displacement => Error::new(
                "22009",
                format!("time zone displacement out of range: \"{text}\""),
            ),
            Fault::UnknownZone(zone) => {
                Error::new("22023", format!("time zone \"{zone}\" not recognized"))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Number,
    Date,
    Time,
    Zone,
    Word,
    Special,
}

/// Cuts the text into lower-case fields.
pub fn split(text: &str) -> Read<Vec<(Kind, String)>> {
    split_within(text, MAX_TEXT)
}

/// The same of a text of at most so many bytes.
pub fn split_within(text: &str, most: usize) -> Read<Vec<(Kind, String)>> {
    let bytes = text.as_bytes();
    if bytes.len() > most || !text.is_ascii() {
        return Err(Fault::Format);
    }
    let mut fields = Vec::new();
    let mut at = 0;
    let run = |from: usize, accept: &dyn Fn(u8) -> bool| {
        bytes[from..].iter().take_while(|&&b| accept(b)).count()
    };
    while at < bytes.len() {
        let b = bytes[at];
        let (kind, len) = if b.is_ascii_whitespace() {
            at += 1;
            continue;
        } else if b.is_ascii_digit() {
            let digits = run(at, &|c| c.is_ascii_digit());
            match bytes.get(at + digits).copied() {
                Some(b':') => (
                    Kind::Time,
                    run(at, &|c| c.is_ascii_digit() || c == b':' || c == b'.'),
                ),
                Some(delimiter @ (b'-' | b'/' | b'.')) => {
                    let after = at + digits + 1;
                    if bytes.get(after).is_some_and(u8::is_ascii_digit) {
                        let second = run(after, &|c| c.is_ascii_digit());
                        if bytes.get(after + second) == Some(&delimiter) {
                            (
                                Kind::Date,
                                run(at, &|c| c.is_ascii_digit() || c == delimiter),
                            )
                        } else {
                            let kind = if delimiter == b'.' {
                                Kind::Number
                            } else {
                                Kind::Date
                            };
                            (kind, digits + 1 + second)
                        }
                    } else {
                        (
                            Kind::Date,
                            digits
                                + 1
                                + run(after, &|c| c.is_ascii_alphanumeric() || c == delimiter),
                        )
                    }
                }
                _ => (Kind::Number, digits),
            }
        } else if b == b'.' {
            (Kind::Number, 1 + run(at + 1, &|c| c.is_ascii_digit()))
        } else if b.is_ascii_alphabetic() {
            let letters = run(at, &|c| c.is_ascii_alphabetic());
            match bytes.get(at + letters).copied() {
                Some(b'-' | b'/' | b'.' | b'_') => {
                    let accept = |c: u8| {
                        c.is_ascii_alphanumeric()
                            || matches!(c, b'+' | b'-' | b'/' | b'_' | b'.' | b':')
                    };
                    (Kind::Date, run(at, &accept))
                }
                // A zone as POSIX has it, unless the word stands for itself.
                Some(b'+' | b'0'..=b'9') if !is_own_word(&text[at..at + letters]) => {
                    let accept = |c: u8| {
                        c.is_ascii_alphanumeric()
                            || matches!(c, b'+' | b'-' | b'/' | b'_' | b'.' | b':')
                    };
                    (Kind::Date, run(at, &accept))
                }
                _ => (Kind::Word, letters),
            }
        } else if b == b'+' || b == b'-' {
            // Blanks behind a sign are nothing.
            let blanks = run(at + 1, &|c| c.is_ascii_whitespace());
            at += blanks;
            let next = bytes.get(at + 1).copied().unwrap_or(0);
            let (kind, len) = if next.is_ascii_digit() {
                let more = |c: u8| c.is_ascii_digit() || matches!(c, b':' | b'.' | b'-');
                (Kind::Zone, run(at + 1, &more))
            } else if next.is_ascii_alphabetic() {
                (Kind::Special, run(at + 1, &|c| c.is_ascii_alphabetic()))
            } else {
                return Err(Fault::Format);
            };
            let rest = text[at + 1..at + 1 + len].to_ascii_lowercase();
            fields.push((kind, format!("{}{rest}", char::from(b))));
            at += 1 + len;
            if fields.len() > MAX_FIELDS {
                return Err(Fault::Format);
            }
            continue;
        } else if b.is_ascii_punctuation() {
            at += 1;
            continue;
        } else {
            return Err(Fault::Format);
        };
        fields.push((kind, text[at..at + len].to_ascii_lowercase()));
        if fields.len() > MAX_FIELDS {
            return Err(Fault::Format);
        }
        at += len;
    }
    Ok(fields)
}

/// Whether a word means something other than a zone.
fn is_own_word(word: &str) -> bool {
    const WORDS: [&str; 28] = [
        "ad", "allballs", "am", "at", "bc", "d", "dow", "doy", "dst", "epoch", "h", "infinity",
        "isodow", "isoyear", "j", "jd", "julian", "m", "mm", "mon", "now", "on", "pm", "s", "t",
        "today", "tomorrow", "y",
    ];
    let word = word.to_ascii_lowercase();
    month_name(&word).is_some()
        || is_weekday(&word)
        || word == "yesterday"
        || WORDS.contains(&word.as_str())
}

pub fn set_once<T>(slot: &mut Option<T>, value: T) -> Read<()> {
    if slot.replace(value).is_some() {
        Err(Fault::Format)
    } else {
        Ok(())
    }
}

pub fn integer(digits: &str) -> Read<i64> {
    digits.parse().map_err(|_| {
        if digits.bytes().all(|b| b.is_ascii_digit()) {
            Fault::Overflow
        } else {
            Fault::Format
        }
    })
}

pub fn month_name(word: &str) -> Option<i64> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let exact =
        |name: &str| word == name || word == &name[..3] || word == "sept" && name == "september";
    NAMES
        .iter()
        .position(|name| exact(name))
        .map(|at| at as i64 + 1)
}

pub fn is_weekday(word: &str) -> bool {
    const NAMES: [&str; 7] = [
        "sunday",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
    ];
    NAMES.iter().any(|name| word == *name || word == &name[..3])
        || matches!(word, "tues" | "weds" | "thur" | "thurs")
}

/// `hh:mm`, `hh:mm:ss` or `hh:mm:ss.ffffff` (rounded to microseconds).
pub fn clock(field: &str) -> Read<i64> {
    let (whole, fraction) = field.split_once('.').map_or((field, ""), |(w, f)| (w, f));
    let parts: Vec<&str> = whole.split(':').collect();
    if !(2..=3).contains(&parts.len()) || parts.len() == 2 && field.contains('.') {
        return Err(Fault::Format);
    }
    let hours = integer(parts[0])?;
    let minutes = integer(parts[1])?;
    let seconds = parts.get(2).map_or(Ok(0), |s| {
        if s.is_empty() {
            Err(Fault::Format)
        } else {
            integer(s)
        }
    })?;
    time_of_day(hours, minutes, seconds, fraction_micros(fraction)?)
}

/// `hhmm` or `hhmmss`, as after a `T`.
pub fn compact_clock(digits: &str, fraction: Option<&str>) -> Read<i64> {
    let (hours, rest) = match digits.len() {
        2 => (digits, ""),
        4 | 6 => digits.split_at(2),
        _ => return Err(Fault::Format),
    };
    let (minutes, seconds) = if rest.is_empty() {
        ("0", "0")
    } else {
        (&rest[..2], &rest[2..])
    };
    let seconds = if seconds.is_empty() { "0" } else { seconds };
    time_of_day(
        integer(hours)?,
        integer(minutes)?,
        integer(seconds)?,
        fraction_micros(fraction.unwrap_or(""))?,
    )
}

pub fn fraction_micros(digits: &str) -> Read<i64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fault::Format);
    }
    if digits.len() > 6 {
        // As the double that they are, halves to even: so PostgreSQL does.
        let fraction: f64 = format!("0.{digits}").parse().map_err(|_| Fault::Format)?;
        return Ok((fraction * 1e6).round_ties_even() as i64);
    }
    let mut micros = 0;
    for place in 0..6 {
        micros = micros * 10 + i64::from(digits.as_bytes().get(place).map_or(0, |b| b - b'0'));
    }
    Ok(micros)
}

/// A minute may have a 60th second, and a day may end at 24:00:00.
pub fn time_of_day(hours: i64, minutes: i64, seconds: i64, micros: i64) -> Read<i64> {
    let at_end = hours == 24 && (minutes > 0 || seconds > 0 || micros > 0);
    if hours > 24 || at_end || minutes > 59 || seconds > 60 || seconds == 60 && micros > 0 {
        return Err(Fault::Overflow);
    }
    Ok(((hours * 60 + minutes) * 60 + seconds) * MICROS_PER_SECOND + micros)
}

/// `+5`, `+05`, `+0530`, `+05:30`, `+05:30:15`: seconds east of Greenwich.
pub fn displacement(field: &str) -> Read<i32> {
    let (sign, digits) = field.split_at(1);
    let (hours, minutes, seconds) = if digits.contains(':') {
        let parts: Vec<&str> = digits.split(':').collect();
        if parts.len() > 3 || parts.iter().any(|p| p.is_empty()) {
            return Err(Fault::Format);
        }
        (
            integer(parts[0])?,
            integer(parts[1])?,
            parts.get(2).map_or(Ok(0), |s| integer(s))?,
        )
    } else if digits.len() > 2 {
        let value = integer(digits)?;
        (value / 100, value % 100, 0)
    } else {
        (integer(digits)?, 0, 0)
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Fault::Displacement);
    }
    let east = (hours * 60 + minutes) * 60 + seconds;
    if east > i64::from(MAX_OFFSET_SECONDS) {
        return Err(Fault::Displacement);
    }
    Ok(if sign == "-" { -east } else { east } as i32)
}
