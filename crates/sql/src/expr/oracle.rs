//! Functions of Oracle's that PostgreSQL has not, and that are no other words for what it has.

use block::value::DatumRef;

use super::moments::{days_away, in_range, is_infinite};
use super::{ArithOp, Val};
use crate::error::{Error, Result};
use crate::pgtype::calendar::{
    Civil, DATE_INFINITY, DATE_MINUS_INFINITY, MICROS_PER_DAY, civil_from_days, days_from_civil,
    days_in_month,
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OracleFunc {
    /// `instr(text, part [, from [, which]])`.
    Instr,
    /// `add_months(time, months)`.
    AddMonths,
    /// `last_day(time)`.
    LastDay,
    /// `months_between(later, earlier)` in parts of a month of 31 days: microseconds of these.
    MonthsBetween,
}

pub fn call(func: OracleFunc, values: &[Val<'_>]) -> Result<Val<'static>> {
    let wrong = || Error::internal(format!("{func:?} of other types"));
    let number = |at: usize, default: i32| match values.get(at).map(Val::get) {
        None => Ok(default),
        Some(DatumRef::Int4(n)) => Ok(n),
        Some(_) => Err(wrong()),
    };
    match func {
        OracleFunc::Instr => {
            let (Some(DatumRef::Text(text)), Some(DatumRef::Text(part))) =
                (values.first().map(Val::get), values.get(1).map(Val::get))
            else {
                return Err(wrong());
            };
            let which = number(3, 1)?;
            if which < 1 {
                let message = format!("occurrence {which} of INSTR is out of range");
                return Err(Error::new("22023", message));
            }
            if part.is_empty() {
                return Ok(Val::NULL);
            }
            Ok(Val::int4(instr(text, part, number(2, 1)?, which)))
        }
        OracleFunc::AddMonths => {
            let months = i64::from(number(1, 0)?);
            of_day(values, &|date| months_later(date, months))
        }
        OracleFunc::LastDay => of_day(values, &|date| {
            Some(Civil {
                day: days_in_month(date.year, date.month),
                ..date
            })
        }),
        OracleFunc::MonthsBetween => {
            let (Some(DatumRef::Timestamp(later)), Some(DatumRef::Timestamp(earlier))) =
                (values.first().map(Val::get), values.get(1).map(Val::get))
            else {
                return Err(wrong());
            };
            let beyond = || Error::new("22008", "timestamp out of range");
            if is_infinite(later) || is_infinite(earlier) {
                return Err(beyond());
            }
            let parts = months_between(later, earlier).ok_or_else(beyond)?;
            Ok(Val::Ref(DatumRef::Int8(parts)))
        }
    }
}

/// The character, from 1, at which a part begins for the so manyth time; 0: it does not. From a
/// negative character on, which counts from the end, it is looked for backwards.
fn instr(text: &str, part: &str, from: i32, which: i32) -> i32 {
    let skipped = from.unsigned_abs().saturating_sub(1) as usize;
    let others = which.unsigned_abs() as usize - 1;
    let begin = match from {
        0 => None,
        1.. => text.char_indices().nth(skipped),
        _ => text.char_indices().nth_back(skipped),
    };
    let Some((begin, _)) = begin else { return 0 };
    let found = match from > 0 {
        true => places(text, part).filter(|at| *at >= begin).nth(others),
        false => {
            let before: Vec<usize> = places(text, part).take_while(|at| *at <= begin).collect();
            before.into_iter().nth_back(others)
        }
    };
    found.map_or(0, |at| text[..at].chars().count() as i32 + 1)
}

/// The bytes at which a part begins in a text, which may overlap. It takes time in proportion to
/// both lengths together (Knuth, Morris and Pratt).
fn places<'t>(text: &'t str, part: &'t str) -> impl Iterator<Item = usize> + 't {
    let part = part.as_bytes();
    // For each beginning of the part: how much of its end is a beginning too.
    let mut borders = vec![0; part.len()];
    let mut same = 0;
    for at in 1..part.len() {
        same = lengthened(part, &borders, same, part[at]);
        borders[at] = same;
    }
    let mut same = 0;
    text.bytes().enumerate().filter_map(move |(at, byte)| {
        same = lengthened(part, &borders, same, byte);
        if same < part.len() {
            return None;
        }
        same = borders[same - 1];
        Some(at + 1 - part.len())
    })
}

/// How long a beginning of the part ends with a byte, before which one of `same` bytes ends.
fn lengthened(part: &[u8], borders: &[usize], mut same: usize, byte: u8) -> usize {
    while same > 0 && part[same] != byte {
        same = borders[same - 1];
    }
    same + usize::from(part[same] == byte)
}

/// A date or time moved to another day, at the same time of the day.
fn of_day(values: &[Val<'_>], to: &dyn Fn(Civil) -> Option<Civil>) -> Result<Val<'static>> {
    let beyond = |what: &str| Error::new("22008", format!("{what} out of range"));
    match values.first().map(Val::get) {
        Some(DatumRef::Date(day @ (DATE_INFINITY | DATE_MINUS_INFINITY))) => {
            Ok(Val::Ref(DatumRef::Date(day)))
        }
        Some(DatumRef::Date(day)) => {
            let moved = to(civil_from_days(day.into())).map(days_from_civil);
            let day = moved.ok_or_else(|| beyond("date"))?;
            let day = days_away(ArithOp::Add, 0, day)?;
            Ok(Val::Ref(DatumRef::Date(day)))
        }
        Some(DatumRef::Timestamp(t)) if is_infinite(t) => Ok(Val::Ref(DatumRef::Timestamp(t))),
        Some(DatumRef::Timestamp(t)) => {
            let (day, time) = (t.div_euclid(MICROS_PER_DAY), t.rem_euclid(MICROS_PER_DAY));
            let moved = to(civil_from_days(day)).map(days_from_civil);
            let moved = moved.and_then(|day| day.checked_mul(MICROS_PER_DAY)?.checked_add(time));
            let moved = in_range(moved.ok_or_else(|| beyond("timestamp"))?)?;
            Ok(Val::Ref(DatumRef::Timestamp(moved)))
        }
        _ => Err(Error::internal("a day of no time")),
    }
}

/// The last day of a month stays the last day.
fn months_later(date: Civil, months: i64) -> Option<Civil> {
    let is_last = date.day == days_in_month(date.year, date.month);
    let month = date
        .year
        .checked_mul(12)?
        .checked_add(i64::from(date.month) - 1);
    let month = month?.checked_add(months)?;
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12) as u32 + 1);
    if year.abs() > i64::from(i32::MAX) {
        return None;
    }
    let last = days_in_month(year, month);
    let day = if is_last { last } else { date.day.min(last) };
    Some(Civil { year, month, day })
}

/// Whole months between the same days, and between last days; else days count as parts of 31.
fn months_between(later: i64, earlier: i64) -> Option<i64> {
    let apart = |t: i64| {
        let date = civil_from_days(t.div_euclid(MICROS_PER_DAY));
        let is_last = date.day == days_in_month(date.year, date.month);
        (date, t.rem_euclid(MICROS_PER_DAY), is_last)
    };
    let ((a, a_time, a_last), (b, b_time, b_last)) = (apart(later), apart(earlier));
    let months = (a.year - b.year) * 12 + i64::from(a.month) - i64::from(b.month);
    let whole = months.checked_mul(31 * MICROS_PER_DAY)?;
    if a.day == b.day || a_last && b_last {
        return Some(whole);
    }
    let days = i64::from(a.day) - i64::from(b.day);
    whole.checked_add(days * MICROS_PER_DAY + a_time - b_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_from_either_end() {
        assert_eq!(instr("abcabc", "b", 1, 1), 2);
        assert_eq!(instr("abcabc", "b", 3, 1), 5);
        assert_eq!(instr("abcabc", "b", 1, 2), 5);
        assert_eq!(instr("abcabc", "b", 1, 3), 0);
        assert_eq!(instr("abcabc", "b", -1, 1), 5);
        assert_eq!(instr("abcabc", "b", -3, 1), 2);
        assert_eq!(instr("aaaa", "aa", 1, 3), 3);
        assert_eq!(instr("äöü", "ü", 1, 1), 3);
        assert_eq!(instr("aaaa", "aa", -1, 3), 1);
        assert_eq!(instr("aabaab aabaaab", "aabaaab", 1, 1), 8);
        assert_eq!(instr("äüäü", "äü", -2, 1), 3);
        assert_eq!(instr("", "a", 1, 1), 0);
        assert_eq!(instr("abc", "b", 0, 1), 0);
        assert_eq!(instr("abc", "b", 9, 1), 0);
        assert_eq!(instr("abc", "b", -9, 1), 0);
    }

    #[test]
    fn the_last_day_of_a_month_stays_the_last() {
        let date = |year, month, day| Civil { year, month, day };
        assert_eq!(months_later(date(2024, 2, 29), 1), Some(date(2024, 3, 31)));
        assert_eq!(months_later(date(2024, 1, 31), 1), Some(date(2024, 2, 29)));
        assert_eq!(
            months_later(date(2024, 1, 15), -13),
            Some(date(2022, 12, 15))
        );
    }
}
