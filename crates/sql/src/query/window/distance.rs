//! Distances of RANGE frames: whether a row's value lies beyond another's plus or minus an offset,
//! by PostgreSQL's `in_range` functions.

use std::cmp::Ordering;

use block::interval::Interval;
use block::numeric::{Numeric, NumericRef};
use block::value::DatumRef;

use crate::error::{Error, Result};
use crate::expr::{ArithOp, Val, compare, moments, number, spans};
use crate::pgtype::IoSettings;

/// Whether `value <= base ± offset` (`less`) or `value >= base ± offset`; minus if `sub`. None of
/// them is NULL. Intervals move points in time by the session's zone (`io`).
pub fn in_range(
    value: DatumRef<'_>,
    base: DatumRef<'_>,
    offset: DatumRef<'_>,
    sub: bool,
    less: bool,
    io: &IoSettings,
) -> Result<bool> {
    match (value, base, offset) {
        (_, _, DatumRef::Interval(o)) => times(value, base, o, sub, less, io),
        (DatumRef::Numeric(v), DatumRef::Numeric(b), DatumRef::Numeric(o)) => {
            numerics(v, b, o, sub, less)
        }
        (DatumRef::Float8(v), DatumRef::Float8(b), DatumRef::Float8(o)) => {
            floats(v, b, o, sub, less)
        }
        (DatumRef::Float4(v), DatumRef::Float4(b), DatumRef::Float8(o)) => {
            floats(v.into(), b.into(), o, sub, less)
        }
        _ => {
            let (Some(v), Some(b), Some(o)) = (integer(value), integer(base), integer(offset))
            else {
                return Err(Error::internal(format!(
                    "a frame of {value:?} by {offset:?} from {base:?}"
                )));
            };
            if o < 0 {
                return Err(invalid_size());
            }
            let end = if sub { b - o } else { b + o };
            Ok(lies(v.cmp(&end), less))
        }
    }
}

/// Whether a value that compares so with the end of a frame is on its side of it.
fn lies(order: Ordering, less: bool) -> bool {
    match less {
        true => order != Ordering::Greater,
        false => order != Ordering::Less,
    }
}

fn times(
    value: DatumRef<'_>,
    base: DatumRef<'_>,
    offset: Interval,
    sub: bool,
    less: bool,
    io: &IoSettings,
) -> Result<bool> {
    // Of a time of day months and days move nothing, and do not count.
    let of_day = |t: DatumRef<'_>| match t {
        DatumRef::Int8(micros) => Some(micros),
        _ => None,
    };
    if let (Some(v), Some(b)) = (of_day(value), of_day(base)) {
        let by = i128::from(offset.micros);
        if by < 0 {
            return Err(invalid_size());
        }
        let end = i128::from(b) + if sub { -by } else { by };
        return Ok(lies(i128::from(v).cmp(&end), less));
    }
    if offset.span() < 0 {
        return Err(invalid_size());
    }
    let point = |d: DatumRef<'_>| -> Result<Val<'static>> {
        Ok(Val::Ref(match d {
            DatumRef::Date(day) => DatumRef::Timestamp(moments::timestamp_of_date(day)?),
            DatumRef::Timestamp(t) => DatumRef::Timestamp(t),
            DatumRef::TimestampTz(t) => DatumRef::TimestampTz(t),
            DatumRef::Interval(i) => DatumRef::Interval(i),
            other => return Err(Error::internal(format!("a frame of {other:?} by time"))),
        }))
    };
    let (value, base) = (point(value)?, point(base)?);
    let end = match (base.get(), sub) {
        (DatumRef::Interval(b), true) => {
            Val::Ref(DatumRef::Interval(spans::difference(b, offset)?))
        }
        (DatumRef::Interval(b), false) => Val::Ref(DatumRef::Interval(spans::sum(b, offset)?)),
        (t, true) => moments::move_by(t, spans::negated(offset)?, io)?,
        (t, false) => moments::move_by(t, offset, io)?,
    };
    Ok(lies(compare(value.get(), end.get())?, less))
}

pub fn invalid_size() -> Error {
    Error::new(
        "22013",
        "invalid preceding or following size in window function",
    )
}

/// Wide enough for what two of them add up to.
fn integer(value: DatumRef<'_>) -> Option<i128> {
    crate::expr::cast::integer(value).map(i128::from)
}

/// What NaN decides: it equals itself, and is above all.
fn not_numbers(value: bool, base: bool, less: bool) -> Option<bool> {
    match (value, base) {
        (true, true) => Some(true),
        (true, false) => Some(!less),
        (false, true) => Some(less),
        (false, false) => None,
    }
}

fn floats(v: f64, base: f64, offset: f64, sub: bool, less: bool) -> Result<bool> {
    if offset.is_nan() || offset < 0.0 {
        return Err(invalid_size());
    }
    if let Some(decided) = not_numbers(v.is_nan(), base.is_nan(), less) {
        return Ok(decided);
    }
    // Infinitely far before infinity is everything.
    if offset.is_infinite() && base.is_infinite() && (base > 0.0) == sub {
        return Ok(true);
    }
    let end = if sub { base - offset } else { base + offset };
    Ok(if less { v <= end } else { v >= end })
}

fn numerics(
    v: NumericRef<'_>,
    base: NumericRef<'_>,
    offset: NumericRef<'_>,
    sub: bool,
    less: bool,
) -> Result<bool> {
    if offset.is_nan() || offset < number::from_i64(0).borrow() {
        return Err(invalid_size());
    }
    if let Some(decided) = not_numbers(v.is_nan(), base.is_nan(), less) {
        return Ok(decided);
    }
    let infinite = |n: NumericRef<'_>| {
        let positive = n > number::from_i64(0).borrow();
        n.is_infinite().then_some(positive)
    };
    let end = match (infinite(base), infinite(offset)) {
        (Some(positive), Some(_)) if positive == sub => return Ok(true),
        (Some(_), _) => base.to_numeric(),
        (None, Some(_)) if sub => Numeric::neg_infinity(),
        (None, Some(_)) => Numeric::infinity(),
        (None, None) => {
            let op = if sub { ArithOp::Sub } else { ArithOp::Add };
            number::apply(op, base, offset)?
        }
    };
    let order = compare(DatumRef::Numeric(v), DatumRef::Numeric(end.borrow()))?;
    Ok(lies(order, less))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_range(
        value: DatumRef<'_>,
        base: DatumRef<'_>,
        offset: DatumRef<'_>,
        sub: bool,
        less: bool,
    ) -> Result<bool> {
        super::in_range(value, base, offset, sub, less, &IoSettings::default())
    }

    fn float(v: f64, base: f64, offset: f64, sub: bool, less: bool) -> bool {
        let d = DatumRef::Float8;
        in_range(d(v), d(base), d(offset), sub, less).unwrap()
    }

    fn numeric(v: &str, base: &str, offset: &str, sub: bool, less: bool) -> bool {
        let n = |s: &str| s.parse::<Numeric>().unwrap();
        let (v, base, offset) = (n(v), n(base), n(offset));
        let d = |n| DatumRef::Numeric(n);
        in_range(
            d(v.borrow()),
            d(base.borrow()),
            d(offset.borrow()),
            sub,
            less,
        )
        .unwrap()
    }

    #[test]
    fn integers_do_not_wrap() {
        let d = DatumRef::Int8;
        let max = d(i64::MAX);
        assert!(in_range(max, d(i64::MAX - 1), d(5), false, true).unwrap());
        assert!(!in_range(max, d(i64::MAX - 1), d(5), false, false).unwrap());
        assert!(!in_range(d(i64::MIN), d(i64::MIN), d(1), true, true).unwrap());
        assert!(in_range(d(i64::MIN), d(i64::MIN), d(1), true, false).unwrap());
        let mixed = in_range(
            DatumRef::Int2(3),
            DatumRef::Int2(5),
            d(i64::MAX),
            true,
            false,
        );
        assert!(mixed.unwrap());
        let e = in_range(max, max, d(-1), true, true).unwrap_err();
        assert_eq!(e.sqlstate(), "22013");
    }

    #[test]
    fn infinities_and_nan() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        // inf - inf: everything is in range.
        assert!(float(-inf, inf, inf, true, true));
        assert!(float(1.0, inf, inf, true, true));
        assert!(float(1.0, -inf, inf, false, false));
        // A finite distance from an infinity reaches nothing finite.
        assert!(!float(1.0, inf, 5.0, true, false));
        assert!(float(inf, inf, 5.0, true, false));
        assert!(float(nan, nan, 0.0, true, true));
        assert!(!float(nan, 1.0, inf, false, true));
        assert!(float(1.0, nan, 0.0, true, true));
        for bad in [nan, -1.0, -inf] {
            let d = DatumRef::Float4(1.0);
            assert!(in_range(d, d, DatumRef::Float8(bad), true, true).is_err());
        }
    }

    #[test]
    fn numerics_as_floats() {
        assert!(numeric("1.10", "1.2", "0.1", true, true));
        assert!(numeric("1.10", "1.2", "0.1", true, false));
        assert!(numeric("-Infinity", "Infinity", "Infinity", true, true));
        assert!(!numeric("-1", "5", "Infinity", true, true));
        assert!(numeric("-Infinity", "5", "Infinity", true, true));
        assert!(numeric("NaN", "NaN", "0", true, true));
        assert!(!numeric("NaN", "1", "Infinity", false, true));
        assert!(!numeric("7", "Infinity", "3", true, false));
    }
}
