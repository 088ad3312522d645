//! Dates and timestamps made from each other, and days counted between dates. What leaves the range of its type is 22008; infinities stay what they are.

use block::interval::Interval;
use block::value::DatumRef;

use super::Val;
use super::arith::ArithOp;
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::pgtype::calendar::{
    Civil, DATE_END, DATE_INFINITY, DATE_MIN, DATE_MINUS_INFINITY, MICROS_PER_DAY,
    MICROS_PER_SECOND, TIMESTAMP_END, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY,
    civil_from_days, days_from_civil, days_in_month, timestamp_is_valid,
};

/// Later than every finite timestamp, earlier than infinity: what a date that no timestamp reaches is compared as.
pub const BEYOND_TIMESTAMPS: i64 = TIMESTAMP_INFINITY - 1;

pub fn is_infinite(t: i64) -> bool {
    t == TIMESTAMP_INFINITY || t == TIMESTAMP_MINUS_INFINITY
}

fn is_infinite_date(day: i32) -> bool {
    day == DATE_INFINITY || day == DATE_MINUS_INFINITY
}

/// A timestamp, if it is in the type's range.
pub fn in_range(t: i64) -> Result<i64> {
    match is_infinite(t) || timestamp_is_valid(t) {
        true => Ok(t),
        false => Err(Error::new("22008", "timestamp out of range")),
    }
}

/// The midnight at which a date begins; `None` if no timestamp reaches so far.
fn midnight(day: i32) -> Option<i64> {
    match day {
        DATE_INFINITY => Some(TIMESTAMP_INFINITY),
        DATE_MINUS_INFINITY => Some(TIMESTAMP_MINUS_INFINITY),
        _ if i64::from(day) < TIMESTAMP_END / MICROS_PER_DAY => {
            Some(i64::from(day) * MICROS_PER_DAY)
        }
        _ => None,
    }
}

fn beyond() -> Error {
    Error::new("22008", "date out of range for timestamp")
}

pub fn timestamp_of_date(day: i32) -> Result<i64> {
    midnight(day).ok_or_else(beyond)
}

pub fn timestamptz_of_date(day: i32, io: &IoSettings) -> Result<i64> {
    timestamp_of_date(day)
        .and_then(|t| to_utc(t, io))
        .map_err(|_| beyond())
}

/// As the timestamp that it is compared as, with time zone or without.
pub fn compared_as(day: i32, zoned: bool, io: &IoSettings) -> i64 {
    match midnight(day) {
        None => BEYOND_TIMESTAMPS,
        Some(t) if zoned && !is_infinite(t) => t - offset_at_local(t, io),
        Some(t) => t,
    }
}

pub fn date_of_timestamp(t: i64) -> i32 {
    match t {
        TIMESTAMP_INFINITY => DATE_INFINITY,
        TIMESTAMP_MINUS_INFINITY => DATE_MINUS_INFINITY,
        _ => t.div_euclid(MICROS_PER_DAY) as i32,
    }
}

/// The date of a moment where the session is. Its local time may lie beyond the last timestamp.
pub fn date_of_timestamptz(t: i64, io: &IoSettings) -> i32 {
    match is_infinite(t) {
        true => date_of_timestamp(t),
        false => (t + offset_at(t, io)).div_euclid(MICROS_PER_DAY) as i32,
    }
}

/// A local time of the session's zone in UTC.
pub fn to_utc(t: i64, io: &IoSettings) -> Result<i64> {
    match is_infinite(t) {
        true => Ok(t),
        false => in_range(t - offset_at_local(t, io)),
    }
}

/// A moment as the local time of the session's zone.
pub fn to_local(t: i64, io: &IoSettings) -> Result<i64> {
    match is_infinite(t) {
        true => Ok(t),
        false => in_range(t + offset_at(t, io)),
    }
}

/// Microseconds east of Greenwich. Timestamps end a week before their integers do, so that adding it to one cannot overflow.
fn offset_at(t: i64, io: &IoSettings) -> i64 {
    i64::from(io.time_zone.offset_at(t)) * MICROS_PER_SECOND
}

fn offset_at_local(t: i64, io: &IoSettings) -> i64 {
    i64::from(io.time_zone.offset_at_local(t)) * MICROS_PER_SECOND
}

/// A date some days later, or with [`ArithOp::Sub`] earlier.
pub fn days_away(op: ArithOp, day: i32, count: i64) -> Result<i32> {
    if is_infinite_date(day) {
        return Ok(day);
    }
    let sum = match op {
        ArithOp::Add => i64::from(day).checked_add(count),
        _ => i64::from(day).checked_sub(count),
    };
    sum.filter(|d| (DATE_MIN..DATE_END).contains(d))
        .map(|d| d as i32)
        .ok_or_else(|| Error::new("22008", "date out of range"))
}

pub fn days_between(later: i32, earlier: i32) -> Result<i32> {
    if is_infinite_date(later) || is_infinite_date(earlier) {
        return Err(Error::new("22008", "cannot subtract infinite dates"));
    }
    // The range of dates is narrower than that of their integers.
    Ok(later - earlier)
}

/// A timestamp moved by months, days and microseconds, in this order: months keep the day, as far
/// as the month has it; days are of the session's zone, if it is a point in time.
pub fn move_by(time: DatumRef<'_>, by: Interval, io: &IoSettings) -> Result<Val<'static>> {
    let (t, zoned) = match time {
        DatumRef::Timestamp(t) => (t, false),
        DatumRef::TimestampTz(t) => (t, true),
        other => return Err(Error::internal(format!("{other:?} moved by an interval"))),
    };
    let (months, days) = (by.months.into(), by.days.into());
    let moved = match is_infinite(t) {
        true => t,
        false => moved(t, zoned.then_some(io), months, days, by.micros)?,
    };
    Ok(Val::Ref(match zoned {
        true => DatumRef::TimestampTz(moved),
        false => DatumRef::Timestamp(moved),
    }))
}

fn moved(t: i64, zone: Option<&IoSettings>, months: i64, days: i64, micros: i64) -> Result<i64> {
    let beyond = || Error::new("22008", "timestamp out of range");
    let mut t = t;
    if months != 0 || days != 0 {
        let local = match zone {
            Some(io) => t + offset_at(t, io),
            None => t,
        };
        let (mut day, time) = (
            local.div_euclid(MICROS_PER_DAY),
            local.rem_euclid(MICROS_PER_DAY),
        );
        if months != 0 {
            let date = civil_from_days(day);
            let month = i64::from(date.month) - 1 + date.year * 12;
            let month = month.checked_add(months).ok_or_else(beyond)?;
            let (year, month) = (month.div_euclid(12), month.rem_euclid(12) as u32 + 1);
            if year.abs() > i64::from(i32::MAX) {
                return Err(beyond());
            }
            let day_of_month = date.day.min(days_in_month(year, month));
            day = days_from_civil(Civil {
                year,
                month,
                day: day_of_month,
            });
        }
        day = day.checked_add(days).ok_or_else(beyond)?;
        let local = day
            .checked_mul(MICROS_PER_DAY)
            .and_then(|d| d.checked_add(time))
            .filter(|t| timestamp_is_valid(*t))
            .ok_or_else(beyond)?;
        t = match zone {
            Some(io) => to_utc(local, io)?,
            None => local,
        };
    }
    in_range(t.checked_add(micros).ok_or_else(beyond)?).and_then(|t| match is_infinite(t) {
        true => Err(beyond()),
        false => Ok(t),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pgtype::zone::TimeZone;

    /// What PostgreSQL 15 answers. Once a multiplication overflowed here, which ended the instance.
    #[test]
    fn the_ends_of_time() {
        let io = IoSettings {
            time_zone: TimeZone::named("Pacific/Kiritimati").unwrap(),
            ..IoSettings::default()
        };
        let (last_day, first_day) = ((DATE_END - 1) as i32, DATE_MIN as i32);
        assert!(timestamp_of_date(last_day).is_err());
        assert_eq!(timestamp_of_date(DATE_INFINITY).unwrap(), i64::MAX);
        assert_eq!(timestamp_of_date(DATE_MINUS_INFINITY).unwrap(), i64::MIN);
        assert_eq!(date_of_timestamp(i64::MAX), DATE_INFINITY);
        assert_eq!(date_of_timestamp(i64::MIN), DATE_MINUS_INFINITY);
        // Ahead of UTC, as Auckland by its sun, midnight is before the first timestamp. Kiritimati by its sun is behind.
        let auckland = IoSettings {
            time_zone: TimeZone::named("Pacific/Auckland").unwrap(),
            ..IoSettings::default()
        };
        assert!(timestamptz_of_date(first_day, &auckland).is_err());
        assert!(timestamptz_of_date(first_day, &io).is_ok());
        // Fourteen hours ahead of UTC, as it is now: the last timestamp is in the next year there.
        assert!(to_local(TIMESTAMP_END - 1, &io).is_err());
        assert_eq!(
            date_of_timestamptz(TIMESTAMP_END - 1, &io),
            date_of_timestamp(TIMESTAMP_END - 1) + 1
        );
        let last = compared_as(last_day, true, &io);
        assert!(last > TIMESTAMP_END && last < TIMESTAMP_INFINITY);
        assert_eq!(days_between(last_day, first_day).unwrap(), 2_147_483_493);
        assert!(days_between(DATE_INFINITY, DATE_MINUS_INFINITY).is_err());
        assert!(days_away(ArithOp::Add, last_day, 1).is_err());
        assert!(days_away(ArithOp::Sub, first_day, 1).is_err());
        assert!(days_away(ArithOp::Add, 0, i64::MAX).is_err());
        assert_eq!(
            days_away(ArithOp::Sub, DATE_INFINITY, 1).unwrap(),
            DATE_INFINITY
        );
    }
}
