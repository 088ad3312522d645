//! Parts of points in time: `extract`, `date_part`, `date_trunc`. A timestamp with time zone is looked at in the
//! session's zone, as PostgreSQL does.

use block::numeric::Numeric;
use block::value::{Datum, DatumRef};

use super::Val;
use super::func::{Calls, PureFunc};
use crate::error::{Error, Result};
use crate::pgtype::calendar::{Civil, civil_from_days, days_from_civil};

const DAY_US: i64 = 86_400_000_000;
/// Seconds between 1970 and 2000.
const UNIX_EPOCH_S: i64 = 946_684_800;
/// The Julian day of 2000-01-01.
const JULIAN_2000: i64 = 2_451_545;

/// `date_part(field, time)`, `extract` with numeric result, or `date_trunc(field, time)`.
pub fn call(func: PureFunc, values: &[Val<'_>], calls: &mut dyn Calls) -> Result<Val<'static>> {
    let (DatumRef::Text(field), Some(time)) = (values[0].get(), values.get(1)) else {
        return Err(Error::internal("a part of no time"));
    };
    let field = field.to_lowercase();
    let zone = calls.io().time_zone;
    let (local, offset, zoned) = match time.get() {
        DatumRef::Timestamp(t) => (t, 0, false),
        DatumRef::TimestampTz(t) if is_infinite(t) => (t, 0, true),
        DatumRef::TimestampTz(t) => {
            let offset = i64::from(zone.offset_at(t));
            (t + offset * 1_000_000, offset, true)
        }
        other => return Err(Error::internal(format!("a part of {other:?}"))),
    };
    if func == PureFunc::DateTrunc {
        if is_infinite(local) {
            return Ok(as_time(local, zoned));
        }
        let cut = truncate(&field, local)?;
        let utc = match zoned {
            true => cut - i64::from(zone.offset_at_local(cut)) * 1_000_000,
            false => cut,
        };
        return Ok(as_time(utc, zoned));
    }
    let (scaled, digits) = part(&field, local, offset, zoned)?;
    Ok(match func {
        PureFunc::DatePart => {
            let divisor = 10_f64.powi(digits);
            Val::Ref(DatumRef::Float8(scaled as f64 / divisor))
        }
        _ => Val::Own(Datum::Numeric(Numeric::from_bigdecimal(
            bigdecimal::BigDecimal::new(scaled.into(), digits.into()),
        ))),
    })
}

fn is_infinite(t: i64) -> bool {
    t == i64::MAX || t == i64::MIN
}

fn as_time(t: i64, zoned: bool) -> Val<'static> {
    Val::Ref(match zoned {
        true => DatumRef::TimestampTz(t),
        false => DatumRef::Timestamp(t),
    })
}

fn unknown(field: &str, zoned: bool) -> Error {
    let ty = if zoned {
        "timestamp with time zone"
    } else {
        "timestamp without time zone"
    };
    Error::new(
        "22023",
        format!("unit \"{field}\" not recognized for type {ty}"),
    )
}

/// Digits after the point of the part, as PostgreSQL shows them; `None` for a field that is none.
pub fn digits(field: &str) -> i32 {
    match field {
        "epoch" | "second" | "seconds" => 6,
        "millisecond" | "milliseconds" | "msec" => 3,
        _ => 0,
    }
}

/// The part as an integer of 10^-digits.
fn part(field: &str, local: i64, offset_s: i64, zoned: bool) -> Result<(i128, i32)> {
    if is_infinite(local) {
        return Err(Error::unsupported(format!(
            "{field} of an infinite timestamp"
        )));
    }
    let (days, time) = (local.div_euclid(DAY_US), local.rem_euclid(DAY_US));
    let date = civil_from_days(days);
    let day_of_year = || days - first_of_year(date.year) + 1;
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
        "microsecond" | "microseconds" | "usec" => time % 60_000_000,
        "millisecond" | "milliseconds" | "msec" | "second" | "seconds" => time % 60_000_000,
        "minute" | "minutes" => time / 60_000_000 % 60,
        "hour" | "hours" => time / 3_600_000_000,
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
        "doy" => day_of_year(),
        "week" => iso_week(days).1,
        "isoyear" => match iso_week(days).0 {
            y if y > 0 => y,
            y => y - 1,
        },
        "epoch" => {
            let utc = i128::from(local) - i128::from(offset_s) * 1_000_000;
            return Ok((utc + i128::from(UNIX_EPOCH_S) * 1_000_000, 6));
        }
        "julian" if time == 0 => days + JULIAN_2000,
        "timezone" if zoned => offset_s,
        "timezone_hour" if zoned => offset_s / 3600,
        "timezone_minute" if zoned => offset_s / 60 % 60,
        _ => return Err(unknown(field, zoned)),
    };
    Ok((value.into(), digits(field)))
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

fn truncate(field: &str, local: i64) -> Result<i64> {
    let down = |unit: i64| local - local.rem_euclid(unit);
    let days = local.div_euclid(DAY_US);
    let date = civil_from_days(days);
    let start = |year: i64, month: u32| {
        days_from_civil(Civil {
            year,
            month,
            day: 1,
        }) * DAY_US
    };
    // The first year of a decade, century or millennium; the last two begin with year 1.
    let era = |n: i64| (date.year - 1).div_euclid(n) * n + 1;
    Ok(match field {
        "microsecond" | "microseconds" => local,
        "millisecond" | "milliseconds" => down(1_000),
        "second" | "seconds" => down(1_000_000),
        "minute" | "minutes" => down(60_000_000),
        "hour" | "hours" => down(3_600_000_000),
        "day" | "days" => down(DAY_US),
        "week" => (days - (days + 5).rem_euclid(7)) * DAY_US,
        "month" | "months" => start(date.year, date.month),
        "quarter" => start(date.year, (date.month - 1) / 3 * 3 + 1),
        "year" | "years" => start(date.year, 1),
        "decade" => start(date.year.div_euclid(10) * 10, 1),
        "century" => start(era(100), 1),
        "millennium" => start(era(1000), 1),
        other => return Err(unknown(other, false)),
    })
}
