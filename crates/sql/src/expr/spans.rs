//! Intervals and times of day in expressions: their arithmetic, parts, and what points in time make
//! of each other. As in PostgreSQL, step by step, as the steps decide what is rounded and refused.

use block::interval::Interval;
use block::value::{Datum, DatumRef};

use super::arith::{ArithOp, division_by_zero};
use super::eval::strict;
use super::func::PureFunc;
use super::moments::{self, is_infinite};
use super::{Calls, Env, Expr, Val, number};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::pgtype::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_in_month};
use crate::pgtype::interval::{Unit, out_of_range};
use crate::types::SqlType;

const DAYS_PER_MONTH: i32 = 30;
const SECONDS_PER_DAY: f64 = 86_400.0;

pub fn of_time(micros: i64) -> Interval {
    Interval {
        micros,
        ..Interval::default()
    }
}

pub fn time_of_day(micros: i64) -> i64 {
    micros.rem_euclid(MICROS_PER_DAY)
}

fn interval(i: Interval) -> Val<'static> {
    Val::Ref(DatumRef::Interval(i))
}

/// The operators of intervals and times of day; `None` if the operation is none of theirs. A time of
/// day is an integer, of which the operation's type says that it is one.
pub fn apply(
    op: ArithOp,
    ty: SqlType,
    left: DatumRef<'_>,
    right: DatumRef<'_>,
) -> Result<Option<Val<'static>>> {
    use DatumRef::{Date, Float8, Int8, Timestamp, TimestampTz};
    Ok(Some(match (left, op, right) {
        (DatumRef::Interval(l), ArithOp::Add, DatumRef::Interval(r)) => interval(sum(l, r)?),
        (DatumRef::Interval(l), ArithOp::Sub, DatumRef::Interval(r)) => interval(difference(l, r)?),
        (DatumRef::Interval(i), ArithOp::Mul, Float8(f)) => interval(scaled(i, &|n| n * f)?),
        (DatumRef::Interval(_), ArithOp::Div, Float8(0.0)) => return Err(division_by_zero()),
        (DatumRef::Interval(i), ArithOp::Div, Float8(f)) => interval(scaled(i, &|n| n / f)?),
        (Int8(t), ArithOp::Add, DatumRef::Interval(i)) => {
            Val::int8(time_of_day(t.wrapping_add(i.micros)))
        }
        (Int8(t), ArithOp::Sub, DatumRef::Interval(i)) => {
            Val::int8(time_of_day(t.wrapping_sub(i.micros)))
        }
        (Int8(l), ArithOp::Sub, Int8(r)) if ty == SqlType::Time => interval(of_time(l - r)),
        (Date(day), ArithOp::Add, Int8(t)) if ty == SqlType::Timestamp => {
            let midnight = moments::timestamp_of_date(day)?;
            Val::Ref(Timestamp(match is_infinite(midnight) {
                true => midnight,
                false => moments::in_range(midnight + t)?,
            }))
        }
        (Timestamp(l), ArithOp::Sub, Timestamp(r))
        | (TimestampTz(l), ArithOp::Sub, TimestampTz(r)) => interval(between(l, r)?),
        _ => return Ok(None),
    }))
}

pub fn negated(i: Interval) -> Result<Interval> {
    let part = |n: i32| n.checked_neg().ok_or_else(out_of_range);
    Ok(Interval {
        months: part(i.months)?,
        days: part(i.days)?,
        micros: i.micros.checked_neg().ok_or_else(out_of_range)?,
    })
}

pub fn sum(l: Interval, r: Interval) -> Result<Interval> {
    let part = |l: i32, r: i32| l.checked_add(r).ok_or_else(out_of_range);
    Ok(Interval {
        months: part(l.months, r.months)?,
        days: part(l.days, r.days)?,
        micros: l.micros.checked_add(r.micros).ok_or_else(out_of_range)?,
    })
}

pub fn difference(l: Interval, r: Interval) -> Result<Interval> {
    let part = |l: i32, r: i32| l.checked_sub(r).ok_or_else(out_of_range);
    Ok(Interval {
        months: part(l.months, r.months)?,
        days: part(l.days, r.days)?,
        micros: l.micros.checked_sub(r.micros).ok_or_else(out_of_range)?,
    })
}

/// Microseconds, rounded: what lies that near to a whole number is one.
fn to_micro(n: f64) -> f64 {
    (n * 1e6).round_ties_even() / 1e6
}

fn to_i32(n: f64) -> Result<i32> {
    let fits = n >= f64::from(i32::MIN) && n < 2_147_483_648.0;
    fits.then_some(n as i32).ok_or_else(out_of_range)
}

/// Each part by `by`; what is left of a month becomes days, and of a day time.
fn scaled(i: Interval, by: &dyn Fn(f64) -> f64) -> Result<Interval> {
    let (months, days) = (by(i.months.into()), by(i.days.into()));
    let mut result = Interval {
        months: to_i32(months)?,
        days: to_i32(days)?,
        micros: 0,
    };
    let days_left = (months - f64::from(result.months)) * f64::from(DAYS_PER_MONTH);
    let days_left = to_micro(days_left);
    let seconds = days - f64::from(result.days) + days_left - days_left.trunc();
    let mut seconds = to_micro(seconds * SECONDS_PER_DAY);
    let add_days = |days: i32, more: f64| {
        let sum = days.checked_add(more.trunc() as i32);
        sum.ok_or_else(out_of_range)
    };
    if seconds.abs() >= SECONDS_PER_DAY {
        let whole = (seconds / SECONDS_PER_DAY).trunc();
        result.days = add_days(result.days, whole)?;
        seconds -= whole * SECONDS_PER_DAY;
    }
    result.days = add_days(result.days, days_left)?;
    let micros = (by(i.micros as f64) + seconds * 1e6).round_ties_even();
    let fits = micros >= i64::MIN as f64 && micros < 9_223_372_036_854_775_808.0;
    if !fits {
        return Err(out_of_range());
    }
    result.micros = micros as i64;
    Ok(result)
}

/// The average of several that come to `sum`.
pub fn average(sum: Interval, count: i64) -> Result<Interval> {
    scaled(sum, &|n| n / count as f64)
}

/// What lies that share of the way from one to another.
pub fn within(low: Interval, high: Interval, share: f64) -> Result<Interval> {
    sum(low, scaled(difference(high, low)?, &|n| n * share)?)
}

/// From the second point in time to the first, in days and time.
fn between(later: i64, earlier: i64) -> Result<Interval> {
    if is_infinite(later) || is_infinite(earlier) {
        return Err(Error::new("22008", "cannot subtract infinite timestamps"));
    }
    let micros = later.checked_sub(earlier).ok_or_else(out_of_range)?;
    justified_hours(of_time(micros))
}

fn justified_hours(i: Interval) -> Result<Interval> {
    let whole = (i.micros / MICROS_PER_DAY) as i32;
    let days = i.days.checked_add(whole).ok_or_else(out_of_range)?;
    Ok(same_sign(Interval {
        days,
        micros: i.micros % MICROS_PER_DAY,
        ..i
    }))
}

fn justified_days(i: Interval) -> Result<Interval> {
    let mut result = whole_months(i)?;
    match (result.months.signum(), result.days.signum()) {
        (1, -1) => (result.months, result.days) = (result.months - 1, result.days + DAYS_PER_MONTH),
        (-1, 1) => (result.months, result.days) = (result.months + 1, result.days - DAYS_PER_MONTH),
        _ => {}
    }
    Ok(result)
}

/// Days, as many as make months.
fn whole_months(i: Interval) -> Result<Interval> {
    let months = i.months.checked_add(i.days / DAYS_PER_MONTH);
    Ok(Interval {
        months: months.ok_or_else(out_of_range)?,
        days: i.days % DAYS_PER_MONTH,
        ..i
    })
}

/// Days and time of one sign.
fn same_sign(mut i: Interval) -> Interval {
    match (i.days.signum(), i.micros.signum()) {
        (1, -1) => (i.days, i.micros) = (i.days - 1, i.micros + MICROS_PER_DAY),
        (-1, 1) => (i.days, i.micros) = (i.days + 1, i.micros - MICROS_PER_DAY),
        _ => {}
    }
    i
}

fn justified(i: Interval) -> Result<Interval> {
    let mut result = match i.days.signum() * i.micros.signum() as i32 {
        1 => whole_months(i)?,
        _ => i,
    };
    // Of the same sign the days are fewer than a month by now, so the sum fits.
    result.days += (result.micros / MICROS_PER_DAY) as i32;
    result.micros %= MICROS_PER_DAY;
    let mut result = whole_months(result)?;
    let rest = match result.days {
        0 => result.micros.signum() as i32,
        days => days.signum(),
    };
    match (result.months.signum(), rest) {
        (1, -1) => (result.months, result.days) = (result.months - 1, result.days + DAYS_PER_MONTH),
        (-1, 1) => (result.months, result.days) = (result.months + 1, result.days - DAYS_PER_MONTH),
        _ => {}
    }
    Ok(same_sign(result))
}

/// Functions whose arguments or results are intervals.
pub fn call(func: PureFunc, values: &[Val<'_>], io: &IoSettings) -> Result<Val<'static>> {
    let wrong = || Error::internal(format!("{func:?} of {values:?}"));
    let first = values.first().ok_or_else(wrong)?.get();
    let second = values.get(1).map(Val::get);
    Ok(match (func, first, second) {
        (PureFunc::MoveBy, time, Some(DatumRef::Interval(i))) => moments::move_by(time, i, io)?,
        (PureFunc::MoveBack, time, Some(DatumRef::Interval(i))) => {
            moments::move_by(time, negated(i)?, io)?
        }
        (PureFunc::JustifyHours, DatumRef::Interval(i), None) => interval(justified_hours(i)?),
        (PureFunc::JustifyDays, DatumRef::Interval(i), None) => interval(justified_days(i)?),
        (PureFunc::JustifyInterval, DatumRef::Interval(i), None) => interval(justified(i)?),
        (PureFunc::Age, DatumRef::Timestamp(l), Some(DatumRef::Timestamp(r))) => {
            interval(age(l, r)?)
        }
        (PureFunc::Age, DatumRef::TimestampTz(l), Some(DatumRef::TimestampTz(r))) => {
            interval(age(moments::to_local(l, io)?, moments::to_local(r, io)?)?)
        }
        _ => return Err(wrong()),
    })
}

/// Of years, months, weeks, days, hours, minutes and seconds. The integers wrap as PostgreSQL's do.
pub fn make(args: &[Expr], env: &Env<'_>, calls: &mut dyn Calls) -> Result<Val<'static>> {
    let Some(values) = strict(args, env, calls)? else {
        return Ok(Val::NULL);
    };
    Ok(interval(made(&values)?))
}

fn made(values: &[Val<'_>]) -> Result<Interval> {
    let [years, months, weeks, days, hours, minutes, seconds] = values else {
        return Err(Error::internal("parts of an interval"));
    };
    let part = |v: &Val<'_>| match v.get() {
        DatumRef::Int4(n) => Ok(n),
        other => Err(Error::internal(format!(
            "{other:?} as a part of an interval"
        ))),
    };
    let DatumRef::Float8(seconds) = seconds.get() else {
        return Err(Error::internal("seconds of an interval"));
    };
    let seconds = (seconds * 1e6).round_ties_even();
    if !seconds.is_finite() {
        return Err(out_of_range());
    }
    let hours = i64::from(part(hours)?) * 3600 * MICROS_PER_SECOND;
    let minutes = i64::from(part(minutes)?) * 60 * MICROS_PER_SECOND;
    Ok(Interval {
        months: part(years)?.wrapping_mul(12).wrapping_add(part(months)?),
        days: part(weeks)?.wrapping_mul(7).wrapping_add(part(days)?),
        micros: hours.wrapping_add(minutes).wrapping_add(seconds as i64),
    })
}

/// From the second local time to the first in years, months, days and time, as calendars have them.
fn age(later: i64, earlier: i64) -> Result<Interval> {
    if is_infinite(later) || is_infinite(earlier) {
        return Err(Error::new("22008", "timestamp out of range"));
    }
    let negative = later < earlier;
    let (from, to) = if negative {
        (later, earlier)
    } else {
        (earlier, later)
    };
    let civil = |t: i64| civil_from_days(t.div_euclid(MICROS_PER_DAY));
    let (start, end) = (civil(from), civil(to));
    let mut micros = to.rem_euclid(MICROS_PER_DAY) - from.rem_euclid(MICROS_PER_DAY);
    let mut days = i64::from(end.day) - i64::from(start.day);
    let mut months = (end.year - start.year) * 12 + i64::from(end.month) - i64::from(start.month);
    if micros < 0 {
        micros += MICROS_PER_DAY;
        days -= 1;
    }
    // Days are borrowed of the month in which the time begins.
    while days < 0 {
        days += i64::from(days_in_month(start.year, start.month));
        months -= 1;
    }
    let age = Interval {
        months: i32::try_from(months).map_err(|_| out_of_range())?,
        days: days as i32,
        micros,
    };
    if negative { negated(age) } else { Ok(age) }
}

/// `extract` and `date_part` of an interval or, as its type has it, of a time of day.
pub fn part(func: PureFunc, field: &str, of: Interval, time: bool) -> Result<Val<'static>> {
    let name = if time {
        SqlType::Time
    } else {
        SqlType::Interval
    }
    .name();
    let second = of.micros % (60 * MICROS_PER_SECOND);
    let hours = of.micros / (3600 * MICROS_PER_SECOND);
    let scaled = |n: i64, digits: i64| match func {
        PureFunc::DatePart => Val::Ref(DatumRef::Float8(n as f64 / 10_f64.powi(digits as i32))),
        _ => Val::Own(Datum::Numeric(number::scaled(n, digits))),
    };
    if field == "epoch" {
        return Ok(epoch(func, of));
    }
    let unit = Unit::named(field).filter(|_| !field.is_empty());
    let whole = match unit {
        Some(Unit::Microsecond) => second,
        Some(Unit::Millisecond) => return Ok(scaled(second, 3)),
        Some(Unit::Second) => return Ok(scaled(second, 6)),
        Some(Unit::Minute) => of.micros / (60 * MICROS_PER_SECOND) % 60,
        Some(Unit::Hour) => hours,
        Some(Unit::Day) if !time => of.days.into(),
        Some(Unit::Month) if !time => i64::from(of.months % 12),
        Some(Unit::Quarter) if !time => i64::from(of.months % 12 / 3 + 1),
        Some(Unit::Year) if !time => i64::from(of.months / 12),
        Some(Unit::Decade) if !time => i64::from(of.months / 120),
        Some(Unit::Century) if !time => i64::from(of.months / 1200),
        Some(Unit::Millennium) if !time => i64::from(of.months / 12_000),
        Some(_) => return Err(not_supported(field, name)),
        None if super::calendar::is_field(field) => return Err(not_supported(field, name)),
        None => {
            let message = format!("unit \"{field}\" not recognized for type {name}");
            return Err(Error::new("22023", message));
        }
    };
    Ok(scaled(whole, 0))
}

fn not_supported(field: &str, name: &str) -> Error {
    Error::new(
        "0A000",
        format!("unit \"{field}\" not supported for type {name}"),
    )
}

/// Seconds: of a year 365.25 days, of a month 30.
fn epoch(func: PureFunc, of: Interval) -> Val<'static> {
    let (years, months) = (i64::from(of.months / 12), i64::from(of.months % 12));
    if func == PureFunc::DatePart {
        let mut seconds = of.micros as f64 / 1e6;
        seconds += 365.25 * SECONDS_PER_DAY * years as f64;
        seconds += f64::from(DAYS_PER_MONTH) * SECONDS_PER_DAY * months as f64;
        seconds += SECONDS_PER_DAY * f64::from(of.days);
        return Val::Ref(DatumRef::Float8(seconds));
    }
    let quarter_days = 1461 * years + 120 * months + 4 * i64::from(of.days);
    let micros = i128::from(quarter_days) * 21_600_000_000 + i128::from(of.micros);
    let seconds = bigdecimal::BigDecimal::new(micros.into(), 6);
    Val::Own(Datum::Numeric(block::numeric::Numeric::from_bigdecimal(
        seconds,
    )))
}

/// `date_trunc` of an interval.
pub fn truncated(field: &str, i: Interval) -> Result<Val<'static>> {
    let time = |each: i64| Interval {
        micros: i.micros / each * each,
        ..i
    };
    let months = |each: i32| Interval {
        months: i.months / each * each,
        ..Interval::default()
    };
    Ok(interval(match Unit::named(field) {
        Some(Unit::Microsecond) => i,
        Some(Unit::Millisecond) => time(1000),
        Some(Unit::Second) => time(MICROS_PER_SECOND),
        Some(Unit::Minute) => time(60 * MICROS_PER_SECOND),
        Some(Unit::Hour) => time(3600 * MICROS_PER_SECOND),
        Some(Unit::Day) => Interval { micros: 0, ..i },
        Some(Unit::Month) => months(1),
        Some(Unit::Quarter) => months(3),
        Some(Unit::Year) => months(12),
        Some(Unit::Decade) => months(120),
        Some(Unit::Century) => months(1200),
        Some(Unit::Millennium) => months(12_000),
        Some(Unit::Week) => {
            return Err(
                not_supported(field, "interval").detail("Months usually have fractional weeks.")
            );
        }
        None => {
            let message = format!("unit \"{field}\" not recognized for type interval");
            return Err(Error::new("22023", message));
        }
    }))
}
