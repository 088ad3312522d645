//! Functions and operators of times of day with their time zones.

use block::interval::Interval;
use block::numeric::Numeric;
use block::value::{Datum, DatumRef};

use super::{Function, Operator, binary, function, int};
use crate::error::{Error, Result};
use crate::expr::{calendar, number, spans};
use crate::pgtype::IoSettings;
use crate::pgtype::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND};
use crate::pgtype::interval::Unit;
use crate::pgtype::timetz::Zoned;
use crate::types::SqlType;

use SqlType::{Date, Float8, Interval as Span, Text, TimeTz, TimestampTz};

pub const OPERATORS: &[Operator] = &[
    binary("+", TimeTz, Span, TimeTz, "timetz_pl_interval", |v, _| {
        moved(zoned(v, 0)?, span(v, 1)?.micros)
    }),
    binary("+", Span, TimeTz, TimeTz, "interval_pl_timetz", |v, _| {
        moved(zoned(v, 1)?, span(v, 0)?.micros)
    }),
    binary("-", TimeTz, Span, TimeTz, "timetz_mi_interval", |v, _| {
        moved(zoned(v, 0)?, span(v, 1)?.micros.wrapping_neg())
    }),
    binary(
        "+",
        Date,
        TimeTz,
        TimestampTz,
        "datetimetz_timestamptz",
        |v, _| moment(v.first(), zoned(v, 1)?),
    ),
    binary("+", TimeTz, Date, TimestampTz, "timetzdate_pl", |v, _| {
        moment(v.get(1), zoned(v, 0)?)
    }),
];

pub const FUNCTIONS: &[Function] = &[
    function(
        "date_part",
        &[Text, TimeTz],
        Float8,
        "timetz_part",
        |v, _| {
            let (scaled, digits) = part(text(v, 0)?, zoned(v, 1)?)?;
            Ok(Datum::Float8(scaled as f64 / 10_f64.powi(digits)))
        },
    ),
    function(
        "extract",
        &[Text, TimeTz],
        SqlType::Numeric,
        "extract_timetz",
        |v, _| {
            let (scaled, digits) = part(text(v, 0)?, zoned(v, 1)?)?;
            let part: Numeric = number::scaled(scaled, digits.into());
            Ok(Datum::Numeric(part))
        },
    ),
    function(
        "timezone",
        &[Text, TimeTz],
        TimeTz,
        "timetz_zone",
        |v, io| {
            let zone = calendar::named_zone(text(v, 0)?)?;
            at(zoned(v, 1)?, zone.offset_at(io.now_micros))
        },
    ),
    function(
        "timezone",
        &[Span, TimeTz],
        TimeTz,
        "timetz_izone",
        |v, io| at(zoned(v, 1)?, offset(span(v, 0)?, io)?),
    ),
];

fn zoned(values: &[DatumRef<'_>], at: usize) -> Result<Zoned> {
    int(values, at).map(Zoned::stored)
}

fn datum(zoned: Zoned) -> Datum {
    Datum::Int8(zoned.to_stored())
}

fn text<'v>(values: &[DatumRef<'v>], at: usize) -> Result<&'v str> {
    match values.get(at) {
        Some(DatumRef::Text(text)) => Ok(text),
        other => Err(Error::internal(format!("{other:?} as a text"))),
    }
}

fn span(values: &[DatumRef<'_>], at: usize) -> Result<Interval> {
    match values.get(at) {
        Some(DatumRef::Interval(span)) => Ok(*span),
        other => Err(Error::internal(format!("{other:?} as an interval"))),
    }
}

fn moved(from: Zoned, by: i64) -> Result<Datum> {
    let micros = spans::time_of_day(from.micros.wrapping_add(by));
    Ok(datum(Zoned { micros, ..from }))
}

/// The moment that a time of day with its zone is on a date.
fn moment(date: Option<&DatumRef<'_>>, time: Zoned) -> Result<Datum> {
    let Some(DatumRef::Date(date)) = date else {
        return Err(Error::internal(format!("{date:?} as a date")));
    };
    let midnight = crate::expr::moments::timestamp_of_date(*date)?;
    if crate::expr::moments::is_infinite(midnight) {
        return Ok(Datum::TimestampTz(midnight));
    }
    let moment = crate::expr::moments::in_range(midnight + time.utc_micros())?;
    Ok(Datum::TimestampTz(moment))
}

/// The same moment of the day in another zone, by its seconds east of Greenwich.
fn at(time: Zoned, east_s: i32) -> Result<Datum> {
    let micros = time.utc_micros() + i64::from(east_s) * MICROS_PER_SECOND;
    let micros = micros.rem_euclid(MICROS_PER_DAY);
    Ok(datum(Zoned { micros, east_s }))
}

fn offset(zone: Interval, io: &IoSettings) -> Result<i32> {
    if zone.months != 0 || zone.days != 0 {
        let mut text = Vec::new();
        crate::pgtype::text_out(Span, DatumRef::Interval(zone), io, &mut text);
        let text = String::from_utf8_lossy(&text);
        let message = format!("interval time zone \"{text}\" must not include months or days");
        return Err(Error::new("22023", message));
    }
    let east_s = i32::try_from(zone.micros / MICROS_PER_SECOND).ok();
    let known = east_s.filter(|s| crate::pgtype::zone::TimeZone::fixed(*s).is_some());
    known.ok_or_else(|| Error::new("22009", "time zone displacement out of range"))
}

/// A part of a time as an integer of 10^-digits.
fn part(field: &str, time: Zoned) -> Result<(i64, i32)> {
    let field = field.to_lowercase();
    let minute = 60 * MICROS_PER_SECOND;
    let east_s = i64::from(time.east_s);
    let of_zone = match field.as_str() {
        "epoch" => Some((time.utc_micros(), 6)),
        "timezone" => Some((east_s, 0)),
        "timezone_hour" => Some((east_s / 3600, 0)),
        "timezone_minute" => Some((east_s / 60 % 60, 0)),
        _ => None,
    };
    if let Some(part) = of_zone {
        return Ok(part);
    }
    let unit = Unit::named(&field).filter(|_| !field.is_empty());
    let (state, what) = match unit {
        Some(Unit::Microsecond) => return Ok((time.micros % minute, 0)),
        Some(Unit::Millisecond) => return Ok((time.micros % minute, 3)),
        Some(Unit::Second) => return Ok((time.micros % minute, 6)),
        Some(Unit::Minute) => return Ok((time.micros / minute % 60, 0)),
        Some(Unit::Hour) => return Ok((time.micros / (60 * minute), 0)),
        Some(_) => ("0A000", "not supported"),
        None if calendar::is_field(&field) => ("0A000", "not supported"),
        None => ("22023", "not recognized"),
    };
    let message = format!("unit \"{field}\" {what} for type {}", TimeTz.name());
    Err(Error::new(state, message))
}
