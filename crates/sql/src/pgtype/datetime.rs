//! Reading dates and timestamps as PostgreSQL reads them: the text is cut into fields by their first characters, then
//! each field is understood by what is still missing. Accepts ISO 8601, month names, day of year, Julian days, eras,
//! 12-hour times, zone offsets, names and abbreviations, and the special words.

use super::calendar::{self, Civil, MICROS_PER_DAY, MICROS_PER_SECOND};
use super::datefield::{self, Fault, Kind, Read, integer, set_once};
use super::posix_zone::PosixZone;
use super::timetz::Zoned;
use super::zone::{self, TimeZone};
use super::{DateOrder, IoSettings};
use crate::error::{Error, Result};

/// Reads a `date`: days from 2000-01-01, or one of the infinities.
pub fn parse_date(text: &str, io: &IoSettings) -> Result<i32> {
    let name = "date";
    match decode(text, io).map_err(|fault| fault.error(name, text))? {
        Decoded::Infinity => Ok(calendar::DATE_INFINITY),
        Decoded::MinusInfinity => Ok(calendar::DATE_MINUS_INFINITY),
        Decoded::Epoch => Ok(-calendar::UNIX_TO_PG_DAYS as i32),
        Decoded::Instant(micros) => {
            let local = micros + i64::from(io.time_zone.offset_at(micros)) * MICROS_PER_SECOND;
            Ok(local.div_euclid(MICROS_PER_DAY) as i32)
        }
        Decoded::Fields(fields) => {
            let days = calendar::days_from_civil(fields.date);
            if !(calendar::DATE_MIN..calendar::DATE_END).contains(&days) {
                return Err(out_of_range(name, text));
            }
            Ok(days as i32)
        }
    }
}

/// Reads a `timestamp`: microseconds from 2000-01-01, a zone in the text being ignored as PostgreSQL does.
pub fn parse_timestamp(text: &str, io: &IoSettings) -> Result<i64> {
    let name = "timestamp";
    match decode(text, io).map_err(|fault| fault.error(name, text))? {
        Decoded::Infinity => Ok(calendar::TIMESTAMP_INFINITY),
        Decoded::MinusInfinity => Ok(calendar::TIMESTAMP_MINUS_INFINITY),
        Decoded::Epoch => Ok(-calendar::UNIX_TO_PG_DAYS * MICROS_PER_DAY),
        Decoded::Instant(micros) => {
            Ok(micros + i64::from(io.time_zone.offset_at(micros)) * MICROS_PER_SECOND)
        }
        Decoded::Fields(fields) => fields
            .local_micros()
            .filter(|&m| calendar::timestamp_is_valid(m))
            .ok_or_else(|| out_of_range(name, text)),
    }
}

/// Reads a `timestamptz`: microseconds from 2000-01-01 UTC; without a zone in the text the session's is meant.
pub fn parse_timestamptz(text: &str, io: &IoSettings) -> Result<i64> {
    match decode(text, io).map_err(|fault| fault.error("timestamp with time zone", text))? {
        Decoded::Infinity => Ok(calendar::TIMESTAMP_INFINITY),
        Decoded::MinusInfinity => Ok(calendar::TIMESTAMP_MINUS_INFINITY),
        Decoded::Epoch => Ok(-calendar::UNIX_TO_PG_DAYS * MICROS_PER_DAY),
        Decoded::Instant(micros) => Ok(micros),
        Decoded::Fields(fields) => fields
            .local_micros()
            .map(|local| {
                let zone = fields.zone.unwrap_or(io.time_zone);
                // A local time may lie just outside the range of what its UTC time lies in.
                let near = local.clamp(calendar::TIMESTAMP_MIN, calendar::TIMESTAMP_END - 1);
                local - i64::from(zone.offset_at_local(near)) * MICROS_PER_SECOND
            })
            .filter(|&micros| calendar::timestamp_is_valid(micros))
            .ok_or_else(|| out_of_range("timestamp", text)),
    }
}

/// Reads a `time`: microseconds since midnight. A date before it and a zone behind it are read, and
/// ignored as PostgreSQL does.
pub fn parse_time(text: &str, io: &IoSettings) -> Result<i64> {
    let read = datefield::split(text).and_then(|fields| match &fields[..] {
        [(Kind::Word, word)] if word == "now" => {
            let offset = i64::from(io.time_zone.offset_at(io.now_micros)) * MICROS_PER_SECOND;
            Ok((io.now_micros + offset).rem_euclid(MICROS_PER_DAY))
        }
        [(Kind::Date, date), _, ..] if !is_clock_and_zone(date) => {
            let dated = fields[1..].iter().any(|(kind, _)| *kind == Kind::Time);
            match decode(text, io)? {
                Decoded::Fields(fields) if dated => Ok(fields.time_micros),
                _ => Err(Fault::Format),
            }
        }
        _ => time_of(&fields).map(|(time, _)| time),
    });
    read.map_err(|fault| fault.error("time", text))
}

/// Reads a `time with time zone`, as it is stored. Without a zone in the text the session's is
/// meant, as it is today; a zone by name is read with a date only.
pub fn parse_timetz(text: &str, io: &IoSettings) -> Result<i64> {
    let read = datefield::split(text).and_then(|fields| match &fields[..] {
        [(Kind::Word, word)] if word == "now" => Ok(Zoned::of_moment(io.now_micros, io)),
        [(Kind::Date, date), _, ..] if !is_clock_and_zone(date) => {
            let dated = fields[1..].iter().any(|(kind, _)| *kind == Kind::Time);
            match decode(text, io)? {
                Decoded::Fields(fields) if dated => Ok(fields.zoned(io)),
                _ => Err(Fault::Format),
            }
        }
        _ => time_of(&fields).map(|(micros, east_s)| match east_s {
            Some(east_s) => Some(Zoned { micros, east_s }),
            None => Some(Zoned::of_time(micros, io)),
        }),
    });
    let name = "time with time zone";
    let zoned = read.map_err(|fault| fault.error(name, text))?;
    let zoned = zoned.ok_or_else(|| Fault::Format.error(name, text))?;
    Ok(zoned.to_stored())
}

/// `040506-08`, which looks like a date.
fn is_clock_and_zone(field: &str) -> bool {
    let digits = field.bytes().take_while(u8::is_ascii_digit).count();
    matches!(digits, 4 | 6)
        && field[digits..].starts_with('-')
        && !field[digits + 1..].contains('-')
}

/// A time of day alone, and the seconds east of Greenwich that stand behind it.
fn time_of(fields: &[(Kind, String)]) -> Read<(i64, Option<i32>)> {
    let (mut time, mut zone, mut afternoon) = (None, None, None);
    for (kind, field) in fields {
        match kind {
            Kind::Time => set_once(&mut time, datefield::clock(field)?)?,
            Kind::Number => {
                let (digits, fraction) = match field.split_once('.') {
                    Some((digits, fraction)) => (digits, Some(fraction)),
                    None => (field.as_str(), None),
                };
                if !matches!(digits.len(), 4 | 6) {
                    return Err(Fault::Format);
                }
                set_once(&mut time, datefield::compact_clock(digits, fraction)?)?;
            }
            Kind::Date if is_clock_and_zone(field) => {
                let (digits, offset) = field.split_at(field.find('-').unwrap_or(0));
                set_once(&mut time, datefield::compact_clock(digits, None)?)?;
                set_once(&mut zone, datefield::displacement(offset)?)?;
            }
            Kind::Zone => set_once(&mut zone, datefield::displacement(field)?)?,
            Kind::Word => match field.as_str() {
                "am" | "pm" => set_once(&mut afternoon, field == "pm")?,
                "allballs" => {
                    set_once(&mut time, 0)?;
                    zone = Some(0);
                }
                "t" if time.is_none() => {}
                word => {
                    let offset = zone::abbreviation(word).ok_or(Fault::Format)?;
                    set_once(&mut zone, offset)?;
                }
            },
            Kind::Date | Kind::Special => return Err(Fault::Format),
        }
    }
    let time = time.ok_or(Fault::Format)?;
    let time = match afternoon {
        Some(afternoon) => half_of_day(time, afternoon)?,
        None => time,
    };
    Ok((time, zone))
}

/// A time with `am` or `pm`.
fn half_of_day(time_micros: i64, afternoon: bool) -> Read<i64> {
    let hours = time_micros / (3600 * MICROS_PER_SECOND);
    let shift = match (afternoon, hours) {
        (_, 13..) => return Err(Fault::Overflow),
        (true, 12) => 0,
        (true, _) => 12,
        (false, 12) => -12,
        (false, _) => 0,
    };
    Ok(time_micros + shift * 3600 * MICROS_PER_SECOND)
}

fn out_of_range(what: &str, text: &str) -> Error {
    Error::new("22008", format!("{what} out of range: \"{text}\""))
}

enum Decoded {
    Infinity,
    MinusInfinity,
    /// 1970-01-01 00:00:00, whatever the session's zone.
    Epoch,
    /// `now`, in UTC.
    Instant(i64),
    Fields(Fields),
}

struct Fields {
    date: Civil,
    time_micros: i64,
    zone: Option<TimeZone>,
}

impl Fields {
    /// The time of day in its zone, or in the session's.
    fn zoned(&self, io: &IoSettings) -> Option<Zoned> {
        let zone = self.zone.unwrap_or(io.time_zone);
        let local = self.local_micros()?;
        let near = local.clamp(calendar::TIMESTAMP_MIN, calendar::TIMESTAMP_END - 1);
        Some(Zoned {
            micros: self.time_micros,
            east_s: zone.offset_at_local(near),
        })
    }

    fn local_micros(&self) -> Option<i64> {
        calendar::days_from_civil(self.date)
            .checked_mul(MICROS_PER_DAY)?
            .checked_add(self.time_micros)
    }
}

/// What the fields read so far have given.
#[derive(Default)]
struct State {
    year: Option<(i64, usize)>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    month_is_word: bool,
    julian: Option<i64>,
    time_micros: Option<i64>,
    zone: Option<TimeZone>,
    /// `true` for BC.
    bc: Option<bool>,
    /// `true` for PM.
    afternoon: Option<bool>,
    /// A relative day (`today`), in days from now.
    relative: Option<i64>,
    /// The next number is a time (after `T`) or a Julian day (after `J`).
    expect_time: bool,
    expect_julian: bool,
}

impl State {
    fn has_date(&self) -> bool {
        self.julian.is_some()
            || self.relative.is_some()
            || self.day_of_year.is_some() && self.year.is_some()
            || self.year.is_some() && self.month.is_some() && self.day.is_some()
    }
}

fn decode(text: &str, io: &IoSettings) -> Read<Decoded> {
    let fields = datefield::split(text)?;
    if let [(kind, word)] = &fields[..] {
        match (kind, word.as_str()) {
            (Kind::Word, "infinity") => return Ok(Decoded::Infinity),
            (Kind::Special, "-infinity") => return Ok(Decoded::MinusInfinity),
            (Kind::Word, "now") => return Ok(Decoded::Instant(io.now_micros)),
            (Kind::Word, "epoch") => return Ok(Decoded::Epoch),
            _ => {}
        }
    }
    let mut state = State::default();
    for (kind, field) in &fields {
        match kind {
            Kind::Date => date_field(&mut state, field, io)?,
            Kind::Time => set_once(&mut state.time_micros, datefield::clock(field)?)?,
            Kind::Zone => {
                if state.time_micros.is_none() && !state.has_date() {
                    return Err(Fault::Format);
                }
                set_once(
                    &mut state.zone,
                    TimeZone::Fixed(datefield::displacement(field)?),
                )?;
            }
            Kind::Number => number_field(&mut state, field, io)?,
            Kind::Word => word_field(&mut state, field)?,
            Kind::Special => return Err(Fault::Format),
        }
    }
    finish(state, io)
}

/// `2024-01-31`, `jan-31-2024`, `31/1/2024`; or, once there is a date, the name of a zone.
fn date_field(state: &mut State, field: &str, io: &IoSettings) -> Read<()> {
    if state.has_date()
        || state.month.is_some() && state.day.is_some()
        || field.starts_with(|c: char| c.is_ascii_alphabetic())
            && !field.contains(|c: char| c.is_ascii_digit())
    {
        if !field.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(Fault::Format);
        }
        let posix = || PosixZone::parse(field).map(TimeZone::Posix);
        let zone = TimeZone::named(field).or_else(posix);
        let zone = zone.ok_or_else(|| Fault::UnknownZone(field.to_string()))?;
        return set_once(&mut state.zone, zone);
    }
    let parts: Vec<&str> = field
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|p| !p.is_empty())
        .collect();
    // A month by name leaves no doubt about itself, so it is taken before the numbers.
    let mut numbers = Vec::new();
    for part in parts {
        if part.bytes().all(|b| b.is_ascii_digit()) {
            numbers.push(part);
        } else {
            let month = datefield::month_name(part).ok_or(Fault::Format)?;
            state.month_is_word = true;
            set_once(&mut state.month, month)?;
        }
    }
    for number in numbers {
        date_number(state, number, io)?;
    }
    if state.has_date() || state.day_of_year.is_some() {
        Ok(())
    } else {
        Err(Fault::Format)
    }
}

/// Gives a bare number the meaning that the fields already known leave for it.
fn date_number(state: &mut State, digits: &str, io: &IoSettings) -> Read<()> {
    let value = integer(digits)?;
    let long = digits.len() >= 3;
    let year = Some((value, digits.len()));
    if digits.len() == 3 && state.year.is_some() && state.month.is_none() && state.day.is_none() {
        return set_once(&mut state.day_of_year, value);
    }
    match (
        state.year.is_some(),
        state.month.is_some(),
        state.day.is_some(),
    ) {
        (false, false, false) => {
            if long || io.date_order == DateOrder::Ymd {
                state.year = year;
            } else if io.date_order == DateOrder::Dmy {
                state.day = Some(value);
            } else {
                state.month = Some(value);
            }
        }
        (true, false, false) => state.month = Some(value),
        (true, true, false) => match state.year {
            // The number before a month by name was no year, whatever the order.
            Some((day, ..3)) if state.month_is_word && long => {
                state.day = Some(day);
                state.year = year;
            }
            _ => state.day = Some(value),
        },
        (false, true, false) => {
            if state.month_is_word && (long || io.date_order == DateOrder::Ymd) {
                state.year = year;
            } else {
                state.day = Some(value);
            }
        }
        (false, true, true) => state.year = year,
        (false, false, true) => state.month = Some(value),
        (true, false, true) => state.month = Some(value),
        (true, true, true) => return Err(Fault::Format),
    }
    Ok(())
}

/// A field of digits alone, perhaps with a fraction.
fn number_field(state: &mut State, field: &str, io: &IoSettings) -> Read<()> {
    let (whole, fraction) = field
        .split_once('.')
        .map_or((field, None), |(w, f)| (w, Some(f)));
    if state.expect_julian && fraction.is_none() {
        state.expect_julian = false;
        let days = integer(whole)?;
        // Beyond every type's range, and small enough for all arithmetic on days.
        const JULIAN_LIMIT: i64 = 4_000_000_000;
        return if days > JULIAN_LIMIT {
            Err(Fault::Overflow)
        } else {
            set_once(&mut state.julian, days)
        };
    }
    if state.expect_time
        || state.has_date() && state.time_micros.is_none() && matches!(whole.len(), 4 | 6)
    {
        return set_once(
            &mut state.time_micros,
            datefield::compact_clock(whole, fraction)?,
        );
    }
    if let Some(fraction) = fraction {
        // `1999.008`: a year and its day.
        if whole.len() >= 3 && fraction.len() == 3 && state.year.is_none() {
            state.year = Some((integer(whole)?, whole.len()));
            return set_once(&mut state.day_of_year, integer(fraction)?);
        }
        return Err(Fault::Format);
    }
    let nothing = state.year.is_none() && state.month.is_none() && state.day.is_none();
    if nothing && matches!(whole.len(), 6 | 8) {
        let (year, rest) = whole.split_at(whole.len() - 4);
        state.year = Some((integer(year)?, year.len()));
        state.month = Some(integer(&rest[..2])?);
        state.day = Some(integer(&rest[2..])?);
        return Ok(());
    }
    if state.has_date() {
        return Err(Fault::Format);
    }
    date_number(state, whole, io)
}

fn word_field(state: &mut State, word: &str) -> Read<()> {
    match word {
        "t" if state.has_date() => state.expect_time = true,
        "at" | "on" => {}
        "j" | "jd" | "julian" => state.expect_julian = true,
        "ad" | "bc" => set_once(&mut state.bc, word == "bc")?,
        "am" | "pm" => set_once(&mut state.afternoon, word == "pm")?,
        "today" => set_once(&mut state.relative, 0)?,
        "tomorrow" => set_once(&mut state.relative, 1)?,
        "yesterday" => set_once(&mut state.relative, -1)?,
        "allballs" => {
            set_once(&mut state.time_micros, 0)?;
            state.zone = Some(TimeZone::UTC);
        }
        _ => {
            if let Some(month) = datefield::month_name(word) {
                // A month by name after a number that was taken for one makes that number the day.
                if let (Some(number @ 1..=31), None, false) =
                    (state.month, state.day, state.month_is_word)
                {
                    state.day = Some(number);
                    state.month = None;
                }
                state.month_is_word = true;
                return set_once(&mut state.month, month);
            }
            if datefield::is_weekday(word) {
                return Ok(());
            }
            let zone = zone::abbreviation(word)
                .map(TimeZone::Fixed)
                .or_else(|| TimeZone::named(word));
            return set_once(&mut state.zone, zone.ok_or(Fault::Format)?);
        }
    }
    Ok(())
}

/// Checks the fields against each other and puts the date together.
fn finish(state: State, io: &IoSettings) -> Read<Decoded> {
    let mut time_micros = state.time_micros.unwrap_or(0);
    if let Some(afternoon) = state.afternoon {
        if state.time_micros.is_none() {
            return Err(Fault::Format);
        }
        time_micros = half_of_day(time_micros, afternoon)?;
    }
    let waits_for_time = state.expect_time && state.time_micros.is_none();
    if !state.has_date() || waits_for_time || state.expect_julian {
        return Err(Fault::Format);
    }
    let date = if let Some(days) = state.relative {
        let local =
            io.now_micros + i64::from(io.time_zone.offset_at(io.now_micros)) * MICROS_PER_SECOND;
        calendar::civil_from_days(local.div_euclid(MICROS_PER_DAY) + days)
    } else if let Some(julian) = state.julian {
        calendar::civil_from_days(julian - calendar::JULIAN_OF_EPOCH)
    } else {
        let (year, digits) = state.year.ok_or(Fault::Format)?;
        let year = full_year(year, digits, state.bc == Some(true))?;
        match state.day_of_year {
            Some(day) if state.month.is_none() => {
                // Day 366 of a common year is the first of the next, as in PostgreSQL.
                if !(1..=366).contains(&day) {
                    return Err(Fault::Overflow);
                }
                let first = calendar::days_from_civil(Civil {
                    year,
                    month: 1,
                    day: 1,
                });
                calendar::civil_from_days(first + day - 1)
            }
            _ => {
                let month = state.month.ok_or(Fault::Format)?;
                let day = state.day.ok_or(Fault::Format)?;
                if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
                    return Err(Fault::MonthOrDayOverflow);
                }
                if day > i64::from(calendar::days_in_month(year, month as u32)) {
                    return Err(Fault::Overflow);
                }
                Civil {
                    year,
                    month: month as u32,
                    day: day as u32,
                }
            }
        }
    };
    Ok(Decoded::Fields(Fields {
        date,
        time_micros,
        zone: state.zone,
    }))
}

/// Two-digit years are of 1970..=2069; there is no year 0.
fn full_year(year: i64, digits: usize, bc: bool) -> Read<i64> {
    // The limit is far beyond every type's range, and small enough for all arithmetic on days.
    if year == 0 && (bc || digits > 2) || year > i64::from(i32::MAX) {
        return Err(Fault::Overflow);
    }
    Ok(match (bc, digits) {
        (true, _) => 1 - year,
        (false, ..=2) if year < 70 => 2000 + year,
        (false, ..=2) => 1900 + year,
        _ => year,
    })
}
