//! Points in time made of their fields, bins of time, and buckets of numbers. None is called with
//! NULL.

use bigdecimal::BigDecimal;
use block::interval::Interval;
use block::value::DatumRef;

use super::eval::strict;
use super::func::{Calls, Func, PureFunc, Signature};
use super::moments::{in_range, is_infinite, to_utc};
use super::{Env, Expr, Val, arith, from_char};
use crate::error::{Error, Result};
use crate::pgtype::calendar::{
    Civil, DATE_END, DATE_MIN, MICROS_PER_DAY, MICROS_PER_SECOND, TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY, days_from_civil, days_in_month,
};
use crate::pgtype::zone::TimeZone;
use crate::types::SqlType;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MadeFunc {
    Date,
    Time,
    Timestamp,
    TimestampTz,
    /// Of seconds from 1970.
    FromSeconds,
    /// `to_date` and `to_timestamp` of a text and its format.
    DateFromText,
    MomentFromText,
    NumberFromText,
    /// `date_bin(stride, time, origin)`.
    Bin,
    /// `width_bucket(value, low, high, count)`.
    Bucket,
}

/// The overloads of the function of that name.
pub fn overloads(name: &str) -> Vec<Signature> {
    use SqlType::{Date, Float8, Int4, Interval, Numeric, Text, Time, Timestamp, TimestampTz};
    let of = |func: MadeFunc, args: &'static [SqlType], result: SqlType| Signature {
        func: Func::Pure(PureFunc::Made(func)),
        args,
        result,
    };
    const FIELDS: &[SqlType] = &[Int4, Int4, Int4, Int4, Int4, Float8];
    const ZONED: &[SqlType] = &[Int4, Int4, Int4, Int4, Int4, Float8, Text];
    const NUMERICS: &[SqlType] = &[Numeric, Numeric, Numeric, Int4];
    const FLOATS: &[SqlType] = &[Float8, Float8, Float8, Int4];
    match name {
        "make_date" => vec![of(MadeFunc::Date, &[Int4, Int4, Int4], Date)],
        "make_time" => vec![of(MadeFunc::Time, &[Int4, Int4, Float8], Time)],
        "make_timestamp" => vec![of(MadeFunc::Timestamp, FIELDS, Timestamp)],
        "make_timestamptz" => vec![
            of(MadeFunc::TimestampTz, FIELDS, TimestampTz),
            of(MadeFunc::TimestampTz, ZONED, TimestampTz),
        ],
        "to_timestamp" => vec![
            of(MadeFunc::FromSeconds, &[Float8], TimestampTz),
            of(MadeFunc::MomentFromText, &[Text, Text], TimestampTz),
        ],
        "to_date" => vec![of(MadeFunc::DateFromText, &[Text, Text], Date)],
        "to_number" => vec![of(MadeFunc::NumberFromText, &[Text, Text], Numeric)],
        "date_bin" => vec![
            of(
                MadeFunc::Bin,
                &[Interval, TimestampTz, TimestampTz],
                TimestampTz,
            ),
            of(MadeFunc::Bin, &[Interval, Timestamp, Timestamp], Timestamp),
        ],
        "width_bucket" => vec![
            of(MadeFunc::Bucket, FLOATS, Int4),
            of(MadeFunc::Bucket, NUMERICS, Int4),
        ],
        _ => Vec::new(),
    }
}

pub fn call<'a>(
    func: MadeFunc,
    args: &'a [Expr],
    env: &Env<'a>,
    calls: &mut dyn Calls,
) -> Result<Val<'a>> {
    let Some(values) = strict(args, env, calls)? else {
        return Ok(Val::NULL);
    };
    let int = |at: usize| match values.get(at).map(Val::get) {
        Some(DatumRef::Int4(n)) => Ok(n),
        other => Err(Error::internal(format!("{other:?} as a field of time"))),
    };
    let float = |at: usize| match values.get(at).map(Val::get) {
        Some(DatumRef::Float8(n)) => Ok(n),
        other => Err(Error::internal(format!("{other:?} as seconds"))),
    };
    match func {
        MadeFunc::Date => {
            let days = date(int(0)?, int(1)?, int(2)?)?;
            Ok(Val::Ref(DatumRef::Date(days as i32)))
        }
        MadeFunc::Time => Ok(Val::int8(time(int(0)?, int(1)?, float(2)?)?)),
        MadeFunc::Timestamp | MadeFunc::TimestampTz => {
            let days = date(int(0)?, int(1)?, int(2)?)?;
            let local = days * MICROS_PER_DAY + time(int(3)?, int(4)?, float(5)?)?;
            let local = in_range(local)?;
            Ok(Val::Ref(match (func, values.get(6).map(Val::get)) {
                (MadeFunc::Timestamp, _) => DatumRef::Timestamp(local),
                (_, Some(DatumRef::Text(name))) => {
                    let zone = zone(name)?;
                    let offset = i64::from(zone.offset_at_local(local)) * MICROS_PER_SECOND;
                    DatumRef::TimestampTz(in_range(local - offset)?)
                }
                _ => DatumRef::TimestampTz(to_utc(local, calls.io())?),
            }))
        }
        MadeFunc::FromSeconds => from_seconds(float(0)?),
        MadeFunc::DateFromText | MadeFunc::MomentFromText | MadeFunc::NumberFromText => {
            let (DatumRef::Text(text), DatumRef::Text(format)) = (values[0].get(), values[1].get())
            else {
                return Err(Error::internal("a format that is no text"));
            };
            if func == MadeFunc::NumberFromText {
                return super::to_number::call(text, format);
            }
            Ok(Val::Ref(match func {
                MadeFunc::DateFromText => DatumRef::Date(from_char::to_date(text, format)?),
                _ => DatumRef::TimestampTz(from_char::to_timestamp(text, format, calls.io())?),
            }))
        }
        MadeFunc::Bin => bin(&values),
        MadeFunc::Bucket => match (values[0].get(), int(3)?) {
            (_, count) if count <= 0 => Err(Error::new("2201G", "count must be greater than zero")),
            (DatumRef::Numeric(_), count) => bucket_of_numeric(&values, count),
            (_, count) => bucket(float(0)?, float(1)?, float(2)?, count),
        },
    }
}

/// Days from 2000. A year below zero is before Christ.
fn date(year: i32, month: i32, day: i32) -> Result<i64> {
    let out_of_range = || {
        let message = format!("date field value out of range: {year}-{month:02}-{day:02}");
        Error::new("22008", message)
    };
    let astronomical = match year {
        0 => return Err(out_of_range()),
        year if year < 0 => i64::from(year) + 1,
        year => i64::from(year),
    };
    let month = u32::try_from(month).ok().filter(|m| (1..=12).contains(m));
    let month = month.ok_or_else(out_of_range)?;
    let most = days_in_month(astronomical, month);
    let day = u32::try_from(day).ok().filter(|d| (1..=most).contains(d));
    let civil = Civil {
        year: astronomical,
        month,
        day: day.ok_or_else(out_of_range)?,
    };
    let days = days_from_civil(civil);
    match (DATE_MIN..DATE_END).contains(&days) {
        true => Ok(days),
        false => Err(Error::new(
            "22008",
            format!("date out of range: {year}-{month:02}-{:02}", civil.day),
        )),
    }
}

/// Microseconds from midnight.
fn time(hour: i32, minute: i32, second: f64) -> Result<i64> {
    let fields = (0..=24).contains(&hour) && (0..60).contains(&minute);
    let fits = fields && (0.0..=60.0).contains(&second);
    if !fits || hour == 24 && (minute > 0 || second > 0.0) {
        let shown = match second.fract() == 0.0 {
            true => format!("{second:02}"),
            false => format!("{second}"),
        };
        let message = format!("time field value out of range: {hour}:{minute:02}:{shown}");
        return Err(Error::new("22008", message));
    }
    let minutes = i64::from(hour) * 60 + i64::from(minute);
    let micros = (second * MICROS_PER_SECOND as f64).round_ties_even();
    Ok(minutes * 60 * MICROS_PER_SECOND + micros as i64)
}

fn zone(name: &str) -> Result<TimeZone> {
    let unknown = || Error::new("22023", format!("time zone \"{name}\" not recognized"));
    // Numbers must have a sign, and count to the east.
    let digits = name.starts_with(|c: char| c.is_ascii_digit());
    if digits {
        let message = format!("invalid input syntax for type numeric time zone: \"{name}\"");
        return Err(Error::new("22023", message)
            .hint("Numeric time zones must have \"-\" or \"+\" as first character."));
    }
    if let Some(rest) = name.strip_prefix(['+', '-']) {
        let mut seconds = 0;
        for (part, unit) in rest.splitn(3, ':').zip([3600, 60, 1]) {
            let n: i32 = part.parse().map_err(|_| unknown())?;
            seconds += n * unit;
        }
        let east = if name.starts_with('-') {
            -seconds
        } else {
            seconds
        };
        return TimeZone::fixed(east).ok_or_else(unknown);
    }
    TimeZone::of_name(name).ok_or_else(unknown)
}

/// A moment by its seconds from 1970.
fn from_seconds<'a>(seconds: f64) -> Result<Val<'a>> {
    const FIRST: f64 = -210_866_803_200.0;
    const END: f64 = 9_224_318_016_000.0;
    const TO_2000: f64 = 946_684_800.0;
    if seconds.is_nan() {
        return Err(Error::new("22008", "timestamp cannot be NaN"));
    }
    if seconds.is_infinite() {
        return Ok(Val::Ref(DatumRef::TimestampTz(match seconds > 0.0 {
            true => TIMESTAMP_INFINITY,
            false => TIMESTAMP_MINUS_INFINITY,
        })));
    }
    let out_of_range = || {
        let mut shown = Vec::new();
        crate::pgtype::write_rounded(&mut shown, seconds, 6);
        let shown = String::from_utf8_lossy(&shown);
        Error::new("22008", format!("timestamp out of range: \"{shown}\""))
    };
    if !(FIRST..END).contains(&seconds) {
        return Err(out_of_range());
    }
    let micros = ((seconds - TO_2000) * MICROS_PER_SECOND as f64).round_ties_even();
    let moment = in_range(micros as i64).map_err(|_| out_of_range())?;
    Ok(Val::Ref(DatumRef::TimestampTz(moment)))
}

fn bin<'a>(values: &[Val<'_>]) -> Result<Val<'a>> {
    let (stride, time, origin) = match (values[0].get(), values[1].get(), values[2].get()) {
        (DatumRef::Interval(i), DatumRef::Timestamp(t), DatumRef::Timestamp(o))
        | (DatumRef::Interval(i), DatumRef::TimestampTz(t), DatumRef::TimestampTz(o)) => (i, t, o),
        _ => return Err(Error::internal("date_bin of no times")),
    };
    let zoned = matches!(values[1].get(), DatumRef::TimestampTz(_));
    let made = |t: i64| {
        Val::Ref(match zoned {
            true => DatumRef::TimestampTz(t),
            false => DatumRef::Timestamp(t),
        })
    };
    if is_infinite(time) {
        return Ok(made(time));
    }
    if is_infinite(origin) {
        return Err(Error::new("22008", "origin out of range"));
    }
    let Interval {
        months,
        days,
        micros,
    } = stride;
    if months != 0 {
        return Err(Error::new(
            "0A000",
            "timestamps cannot be binned into intervals containing months or years",
        ));
    }
    let stride = i64::from(days)
        .checked_mul(MICROS_PER_DAY)
        .and_then(|d| d.checked_add(micros));
    let stride = stride.ok_or_else(|| Error::new("22008", "interval out of range"))?;
    if stride <= 0 {
        return Err(Error::new("22008", "stride must be greater than zero"));
    }
    let difference = time.checked_sub(origin);
    let difference = difference.ok_or_else(|| Error::new("22008", "interval out of range"))?;
    let start = origin.checked_add(difference - difference.rem_euclid(stride));
    let out_of_range = || Error::new("22008", "timestamp out of range");
    in_range(start.ok_or_else(out_of_range)?).map(made)
}

fn bad_bounds(message: &str) -> Error {
    Error::new("2201G", message)
}

fn bucket<'a>(value: f64, low: f64, high: f64, count: i32) -> Result<Val<'a>> {
    if value.is_nan() || low.is_nan() || high.is_nan() {
        let message = "operand, lower bound, and upper bound cannot be NaN";
        return Err(bad_bounds(message));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(bad_bounds("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(bad_bounds("lower bound cannot equal upper bound"));
    }
    let (before, behind) = match low < high {
        true => (value < low, value >= high),
        false => (value > low, value <= high),
    };
    if before {
        return Ok(Val::int4(0));
    }
    if behind {
        return last(count);
    }
    let share = match (high - low).is_infinite() {
        false => (value - low) / (high - low),
        true => (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
    };
    // The share may be rounded to one, which it is not.
    let at = (f64::from(count) * share) as i32;
    Ok(Val::int4(at.min(count - 1) + 1))
}

/// The bucket behind all others.
fn last<'a>(count: i32) -> Result<Val<'a>> {
    let behind = count.checked_add(1);
    let behind = behind.ok_or_else(|| arith::out_of_range(SqlType::Int4))?;
    Ok(Val::int4(behind))
}

fn bucket_of_numeric<'a>(values: &[Val<'_>], count: i32) -> Result<Val<'a>> {
    let number = |at: usize| match values[at].get() {
        DatumRef::Numeric(n) => Ok(n),
        other => Err(Error::internal(format!("{other:?} is no numeric"))),
    };
    let (value, low, high) = (number(0)?, number(1)?, number(2)?);
    if value.is_nan() || low.is_nan() || high.is_nan() {
        let message = "operand, lower bound, and upper bound cannot be NaN";
        return Err(bad_bounds(message));
    }
    let (Some(l), Some(h)) = (low.to_bigdecimal(), high.to_bigdecimal()) else {
        return Err(bad_bounds("lower and upper bounds must be finite"));
    };
    if l == h {
        return Err(bad_bounds("lower bound cannot equal upper bound"));
    }
    let rises = l < h;
    let (before, behind) = match rises {
        true => (value < low, value >= high),
        false => (value > low, value <= high),
    };
    if before {
        return Ok(Val::int4(0));
    }
    let Some(v) = value.to_bigdecimal().filter(|_| !behind) else {
        return last(count);
    };
    // How many of the upper bounds of buckets are passed: by bisection, so that all is exact.
    let width: BigDecimal = h - &l;
    let passed = |k: i32| {
        let left = (&v - &l) * BigDecimal::from(count);
        let right = &width * BigDecimal::from(k);
        if rises { left >= right } else { left <= right }
    };
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match passed(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok(Val::int4(low + 1))
}

#[cfg(test)]
mod tests {
    use block::value::Datum;

    use super::*;

    #[test]
    fn buckets_are_those_of_postgresql() {
        let of = |v: f64, l: f64, h: f64, n: i32| bucket(v, l, h, n).unwrap().into_datum();
        assert_eq!(of(5.35, 0.024, 10.06, 5), Datum::Int4(3));
        assert_eq!(of(10.0, 10.0, 1.0, 3), Datum::Int4(1));
        assert_eq!(of(1.0, 10.0, 1.0, 3), Datum::Int4(4));
        assert_eq!(of(-1.0, 0.0, 1.0, 3), Datum::Int4(0));
    }
}
