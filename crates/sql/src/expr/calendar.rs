//! Parts of points in time: `extract`, `date_part`, `date_trunc`. A timestamp with time zone is looked at in the
//! session's zone, as PostgreSQL does.

use bigdecimal::BigDecimal;
use block::interval::Interval;
use block::numeric::Numeric;
use block::value::{Datum, DatumRef};

use super::func::{Calls, PureFunc};
use super::moments::{in_range, is_infinite};
use super::{Val, number, spans};
use crate::error::{Error, Result};
use crate::pgtype::calendar::{
    Civil, DATE_INFINITY, DATE_MINUS_INFINITY, JULIAN_OF_EPOCH, MICROS_PER_DAY, MICROS_PER_SECOND,
    civil_from_days, days_from_civil,
};
use crate::pgtype::zone::TimeZone;

/// Seconds between 1970 and 2000.
const UNIX_EPOCH_S: i64 = 946_684_800;

/// `date_part(field, time)`, `extract` with numeric result, or `date_trunc(field, time)`.
pub fn call(func: PureFunc, values: &[Val<'_>], calls: &mut dyn Calls) -> Result<Val<'static>> {
    let (DatumRef::Text(field), Some(time)) = (values[0].get(), values.get(1)) else {
        return Err(Error::internal("a part of no time"));
    };
    let field = field.to_lowercase();
    let zone = match values.get(2).map(Val::get) {
        // No zone is looked up for what is the same in all of them.
        Some(DatumRef::Text(name)) if !matches!(time.get(), DatumRef::TimestampTz(t) if is_infinite(t)) => {
            named_zone(name)?
        }
        _ => calls.io().time_zone,
    };
    let (local, offset, zoned) = match time.get() {
        DatumRef::Date(day) => return part_of_date(&field, day).map(|n| numeric(n, func)),
        DatumRef::Timestamp(t) => (t, 0, false),
        DatumRef::TimestampTz(t) if is_infinite(t) => (t, 0, true),
        DatumRef::TimestampTz(t) => {
            let offset = i64::from(zone.offset_at(t));
            (t + offset * MICROS_PER_SECOND, offset, true)
        }
        DatumRef::Interval(i) if func == PureFunc::DateTrunc => {
            return spans::truncated(&field, i);
        }
        DatumRef::Interval(i) => return spans::part(func, &field, i, false),
        DatumRef::Int8(t) => return spans::part(func, &field, spans::of_time(t), true),
        other => return Err(Error::internal(format!("a part of {other:?}"))),
    };
    if func == PureFunc::DateTrunc {
        if is_infinite(local) {
            return Ok(as_time(local, zoned));
        }
        let cut = truncate(&field, local, if zoned { ZONED } else { UNZONED })?;
        let utc = match zoned {
            true => cut - i64::from(zone.offset_at_local(cut)) * MICROS_PER_SECOND,
            false => cut,
        };
        return Ok(as_time(in_range(utc)?, zoned));
    }
    let of = |f: &str| unknown(f, if zoned { ZONED } else { UNZONED });
    if is_infinite(local) {
        return Ok(numeric(
            infinite_part(&field, local > 0).ok_or_else(|| of(&field))?,
            func,
        ));
    }
    Ok(numeric(
        part(&field, local, offset, zoned).ok_or_else(|| of(&field))?,
        func,
    ))
}

/// Whether a date or time is none of the infinities.
pub fn is_finite(values: &[Val<'_>]) -> Result<Val<'static>> {
    let finite = match values.first().map(Val::get) {
        Some(DatumRef::Date(d)) => !matches!(d, DATE_INFINITY | DATE_MINUS_INFINITY),
        Some(DatumRef::Timestamp(t) | DatumRef::TimestampTz(t)) => !is_infinite(t),
        Some(DatumRef::Interval(_)) => true,
        other => return Err(Error::internal(format!("isfinite of {other:?}"))),
    };
    Ok(Val::bool(finite))
}

/// The zone that is so far to the east of Greenwich.
fn zone_of_interval(east: Interval) -> Result<TimeZone> {
    if east.months != 0 || east.days != 0 {
        let mut shown = Vec::new();
        crate::pgtype::interval::write(&mut shown, east);
        let message = format!(
            "interval time zone \"{}\" must not include months or days",
            String::from_utf8_lossy(&shown)
        );
        return Err(Error::new("22023", message));
    }
    let seconds = i32::try_from(east.micros / MICROS_PER_SECOND).ok();
    let zone = seconds.and_then(TimeZone::fixed);
    zone.ok_or_else(|| Error::new("22008", "timestamp out of range"))
}

/// `timezone(zone, time)`: a moment as the local time of a zone, or the moment of a local time.
pub fn named_zone(name: &str) -> Result<TimeZone> {
    TimeZone::of_name(name)
        .ok_or_else(|| Error::new("22023", format!("time zone \"{name}\" not recognized")))
}

pub fn at_zone(values: &[Val<'_>]) -> Result<Val<'static>> {
    let zone = match values[0].get() {
        DatumRef::Text(name) => named_zone(name)?,
        DatumRef::Interval(east) => zone_of_interval(east)?,
        other => return Err(Error::internal(format!("{other:?} as a zone"))),
    };
    let Some(time) = values.get(1) else {
        return Err(Error::internal("a zone of no time"));
    };
    let micros = |offset_s: i32| i64::from(offset_s) * MICROS_PER_SECOND;
    Ok(Val::Ref(match time.get() {
        DatumRef::TimestampTz(t) if is_infinite(t) => DatumRef::Timestamp(t),
        DatumRef::TimestampTz(t) => DatumRef::Timestamp(in_range(t + micros(zone.offset_at(t)))?),
        DatumRef::Timestamp(t) if is_infinite(t) => DatumRef::TimestampTz(t),
        DatumRef::Timestamp(t) => {
            DatumRef::TimestampTz(in_range(t - micros(zone.offset_at_local(t)))?)
        }
        other => return Err(Error::internal(format!("a zone of {other:?}"))),
    }))
}

const ZONED: &str = "timestamp with time zone";
const UNZONED: &str = "timestamp without time zone";

/// A part of a time.
enum Part {
    /// An integer of 10^-digits.
    Scaled(i128, i32),
    Julian {
        day: i64,
        time: i64,
    },
    Infinite {
        positive: bool,
    },
    /// What goes round and round has no value at infinity.
    Null,
}

fn numeric(part: Part, func: PureFunc) -> Val<'static> {
    let value = match part {
        Part::Null => return Val::NULL,
        Part::Scaled(scaled, digits) if func == PureFunc::DatePart => {
            return Val::Ref(DatumRef::Float8(scaled as f64 / 10_f64.powi(digits)));
        }
        Part::Julian { day, time } if func == PureFunc::DatePart => {
            let fraction = time as f64 / MICROS_PER_DAY as f64;
            return Val::Ref(DatumRef::Float8(day as f64 + fraction));
        }
        Part::Infinite { positive } if func == PureFunc::DatePart => {
            let infinity = if positive {
                f64::INFINITY
            } else {
                f64::NEG_INFINITY
            };
            return Val::Ref(DatumRef::Float8(infinity));
        }
        Part::Scaled(scaled, digits) => {
            Numeric::from_bigdecimal(BigDecimal::new(scaled.into(), digits.into()))
        }
        Part::Julian { day, time } => number::days_and_time(day, time, MICROS_PER_DAY),
        Part::Infinite { positive } => number::infinity(positive),
    };
    Val::Own(Datum::Numeric(value))
}

fn as_time(t: i64, zoned: bool) -> Val<'static> {
    Val::Ref(match zoned {
        true => DatumRef::TimestampTz(t),
        false => DatumRef::Timestamp(t),
    })
}

fn unknown(field: &str, ty: &str) -> Error {
    Error::new(
        "22023",
        format!("unit \"{field}\" not recognized for type {ty}"),
    )
}

/// A part of a date; only `extract` has those, `date_part` is of its midnight.
fn part_of_date(field: &str, day: i32) -> Result<Part> {
    const TIME_OF_DAY: [&str; 5] = ["micro", "milli", "second", "minute", "hour"];
    let of_time = TIME_OF_DAY.iter().any(|f| field.starts_with(f))
        || field.starts_with("timezone")
        || matches!(field, "usec" | "msec");
    let not_of_date = || unknown(field, "date");
    let found = match day {
        _ if of_time => None,
        DATE_INFINITY | DATE_MINUS_INFINITY => infinite_part(field, day > 0),
        _ => part_of_day(field, day.into()).map(|n| Part::Scaled(n, 0)),
    };
    found.ok_or_else(|| match part(field, 0, 0, true) {
        Some(_) => Error::new(
            "0A000",
            format!("unit \"{field}\" not supported for type date"),
        ),
        None => not_of_date(),
    })
}

/// At infinity: what grows is infinite, what goes round is nothing.
fn infinite_part(field: &str, positive: bool) -> Option<Part> {
    match field {
        "year" | "years" | "decade" | "century" | "millennium" | "isoyear" | "epoch" | "julian" => {
            Some(Part::Infinite { positive })
        }
        _ => part(field, 0, 0, true).map(|_| Part::Null),
    }
}

/// Digits after the point of the part, as PostgreSQL shows them; `None` for a field that is none.
pub fn digits(field: &str) -> i32 {
    match field {
        "epoch" | "second" | "seconds" => 6,
        "millisecond" | "milliseconds" | "msec" => 3,
        _ => 0,
    }
}

/// Whether points in time have a part of that name.
pub fn is_field(field: &str) -> bool {
    part(field, 0, 0, true).is_some()
}

/// A part of a finite time; `None` if there is none of that name.
fn part(field: &str, local: i64, offset_s: i64, zoned: bool) -> Option<Part> {
    let (days, time) = (
        local.div_euclid(MICROS_PER_DAY),
        local.rem_euclid(MICROS_PER_DAY),
    );
    let value: i64 = match field {
        "microsecond" | "microseconds" | "usec" => time % 60_000_000,
        "millisecond" | "milliseconds" | "msec" | "second" | "seconds" => time % 60_000_000,
        "minute" | "minutes" => time / 60_000_000 % 60,
        "hour" | "hours" => time / 3_600_000_000,
        "epoch" => {
            let utc = i128::from(local) - i128::from(offset_s * MICROS_PER_SECOND);
            let unix = utc + i128::from(UNIX_EPOCH_S * MICROS_PER_SECOND);
            return Some(Part::Scaled(unix, 6));
        }
        "julian" => {
            return Some(Part::Julian {
                day: days + JULIAN_OF_EPOCH,
                time,
            });
        }
        "timezone" if zoned => offset_s,
        "timezone_hour" | "timezone_h" if zoned => offset_s / 3600,
        "timezone_minute" | "timezone_m" if zoned => offset_s / 60 % 60,
        _ => return part_of_day(field, days).map(|n| Part::Scaled(n, 0)),
    };
    Some(Part::Scaled(value.into(), digits(field)))
}

/// A part of a day that is a whole number.
fn part_of_day(field: &str, days: i64) -> Option<i128> {
    let date = civil_from_days(days);
    // A year before 1 is shown as that many before Christ, of which there is no year 0.
    let year = if date.year > 0 {
        date.year
    } else {
        date.year - 1
    };
    let round_up = |n: i64| match year > 0 {
        true => (year + n - 1) / n,
        false => -((-year + n - 1) / n),
    };
    let value: i64 = match field {
        "day" | "days" => i64::from(date.day),
        "month" | "months" => i64::from(date.month),
        "quarter" => i64::from(date.month - 1) / 3 + 1,
        "year" | "years" => year,
        "decade" => date.year.div_euclid(10),
        "century" => round_up(100),
        "millennium" => round_up(1000),
        // 2000-01-01 was a Saturday.
        "dow" => (days + 6).rem_euclid(7),
        "isodow" => (days + 5).rem_euclid(7) + 1,
        "doy" => days - first_of_year(date.year) + 1,
        "week" => iso_week(days).1,
        "isoyear" => match iso_week(days).0 {
            y if y > 0 => y,
            y => y - 1,
        },
        "epoch" => days * 86_400 + UNIX_EPOCH_S,
        "julian" => days + JULIAN_OF_EPOCH,
        _ => return None,
    };
    Some(value.into())
}

fn first_of_year(year: i64) -> i64 {
    days_from_civil(Civil {
        year,
        month: 1,
        day: 1,
    })
}

/// The Monday of ISO week 1 of a year: the week that has January 4th.
fn first_week(year: i64) -> i64 {
    let fourth = first_of_year(year) + 3;
    fourth - (fourth + 5).rem_euclid(7)
}

/// ISO year and week of a day.
fn iso_week(days: i64) -> (i64, i64) {
    let year = civil_from_days(days).year;
    let of = [year + 1, year, year - 1]
        .into_iter()
        .find(|y| first_week(*y) <= days);
    let of = of.unwrap_or(year - 1);
    (of, (days - first_week(of)) / 7 + 1)
}

fn truncate(field: &str, local: i64, ty: &str) -> Result<i64> {
    let down = |unit: i64| local - local.rem_euclid(unit);
    let days = local.div_euclid(MICROS_PER_DAY);
    let date = civil_from_days(days);
    let start = |year: i64, month: u32| {
        days_from_civil(Civil {
            year,
            month,
            day: 1,
        }) * MICROS_PER_DAY
    };
    // The first year of a decade, century or millennium; the last two begin with year 1.
    let era = |n: i64| (date.year - 1).div_euclid(n) * n + 1;
    Ok(match field {
        "microsecond" | "microseconds" => local,
        "millisecond" | "milliseconds" => down(1_000),
        "second" | "seconds" => down(1_000_000),
        "minute" | "minutes" => down(60_000_000),
        "hour" | "hours" => down(3_600_000_000),
        "day" | "days" => down(MICROS_PER_DAY),
        "week" => (days - (days + 5).rem_euclid(7)) * MICROS_PER_DAY,
        "month" | "months" => start(date.year, date.month),
        "quarter" => start(date.year, (date.month - 1) / 3 * 3 + 1),
        "year" | "years" => start(date.year, 1),
        "decade" => start(date.year.div_euclid(10) * 10, 1),
        "century" => start(era(100), 1),
        "millennium" => start(era(1000), 1),
        other => return Err(unknown(other, ty)),
    })
}
