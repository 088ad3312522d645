//! What functions and operators of ranges and multiranges compute. A range is a multirange of one
//! range or none: what both have in common is computed once.

use std::cmp::Ordering;

use block::value::{Datum, DatumRef};

use super::eval::strict;
use super::{Calls, Env, Expr, Val, compare};
use crate::error::{Error, Result};
use crate::pgtype::range::{Bound, Span, make, multirange, of_datum, spans_of, to_datum};
use crate::types::SqlType;
use crate::types::ranges::RangeOf;

/// What a range function is given: a range, a multirange, or a value of their bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeFunc {
    /// Of two bounds, and of what says which belong to it.
    Make,
    /// Of ranges.
    MakeMultirange,
    Lower,
    Upper,
    IsEmpty,
    LowerInclusive,
    UpperInclusive,
    LowerInfinite,
    UpperInfinite,
    /// The range from the least to the greatest.
    Merge,
    ToMultirange,
    Contains,
    ContainedBy,
    /// Of a range or multirange and a value of its bounds.
    ContainsValue,
    ValueContainedBy,
    Overlaps,
    Before,
    After,
    /// Does not go on to the right of the other.
    OverLeft,
    /// Does not go on to the left of the other.
    OverRight,
    Adjacent,
    Union,
    Difference,
    Intersection,
}

pub fn call<'a>(
    func: RangeFunc,
    of: RangeOf,
    args: &'a [Expr],
    env: &Env<'a>,
    calls: &mut dyn Calls,
) -> Result<Val<'a>> {
    if func == RangeFunc::Make {
        return made(of, args, env, calls).map(Val::Own);
    }
    let Some(values) = strict(args, env, calls)? else {
        return Ok(Val::NULL);
    };
    let values: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    if func == RangeFunc::MakeMultirange {
        return made_multirange(of, &values).map(Val::Own);
    }
    match values[..] {
        [value] => of_one(func, of, value).map(Val::Own),
        [left, right] => of_two(func, of, left, right).map(Val::Own),
        _ => Err(Error::internal(format!("{func:?} of {values:?}"))),
    }
}

/// What `int4range` and its kin make. NULL is no bound.
fn made(of: RangeOf, args: &[Expr], env: &Env<'_>, calls: &mut dyn Calls) -> Result<Datum> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        values.push(arg.eval(env, calls)?.into_datum());
    }
    let (lower_inclusive, upper_inclusive) = match values.get(2) {
        None => (true, false),
        Some(Datum::Null) => {
            let message = "range constructor flags argument must not be null";
            return Err(Error::new("22000", message));
        }
        Some(Datum::Text(flags)) => match flags.as_str() {
            "[]" => (true, true),
            "[)" => (true, false),
            "(]" => (false, true),
            "()" => (false, false),
            _ => {
                return Err(Error::new("42601", "invalid range bound flags")
                    .hint("Valid values are \"[]\", \"[)\", \"(]\", and \"()\"."));
            }
        },
        Some(other) => return Err(Error::internal(format!("{other:?} as flags of a range"))),
    };
    values.truncate(2);
    let bound = |value: Option<Datum>, inclusive, lower| Bound {
        value: value.filter(|v| !v.is_null()),
        inclusive,
        lower,
    };
    let upper = bound(values.pop(), upper_inclusive, false);
    let lower = bound(values.pop(), lower_inclusive, true);
    to_datum(of, make(of, lower, upper)?.as_ref())
}

/// What `int4multirange` and its kin make of ranges, or of an array of them.
fn made_multirange(of: RangeOf, values: &[DatumRef<'_>]) -> Result<Datum> {
    let mut spans = Vec::new();
    for value in values {
        match value {
            DatumRef::Array(ranges) if ranges.dimensions().len() > 1 => {
                let message = "multiranges cannot be constructed from multidimensional arrays";
                return Err(Error::new("21000", message));
            }
            DatumRef::Array(ranges) => {
                for range in ranges.values() {
                    if range.is_null() {
                        let message = "multirange values cannot contain null members";
                        return Err(Error::new("22004", message));
                    }
                    spans.extend(of_datum(range)?);
                }
            }
            range => spans.extend(of_datum(*range)?),
        }
    }
    multirange(of, &normalized(of, spans)?)
}

/// The ranges that are not empty of a range or multirange.
fn spans(value: DatumRef<'_>) -> Result<Vec<Span>> {
    match value {
        DatumRef::Array(_) => spans_of(value),
        value => Ok(of_datum(value)?.into_iter().collect()),
    }
}

/// A range as the multirange of it.
pub fn as_multirange(of: RangeOf, range: DatumRef<'_>) -> Result<Datum> {
    multirange(of, &spans(range)?)
}

fn of_one(func: RangeFunc, of: RangeOf, value: DatumRef<'_>) -> Result<Datum> {
    use RangeFunc::*;
    let all = spans(value)?;
    let (lower, upper) = (all.first().map(|s| &s.lower), all.last().map(|s| &s.upper));
    let bound = |b: Option<&Bound>| b.and_then(|b| b.value.clone()).unwrap_or(Datum::Null);
    let inclusive = |b: Option<&Bound>| Datum::Bool(b.is_some_and(|b| b.inclusive));
    let infinite = |b: Option<&Bound>| Datum::Bool(b.is_some_and(|b| b.value.is_none()));
    Ok(match func {
        Lower => bound(lower),
        Upper => bound(upper),
        IsEmpty => Datum::Bool(all.is_empty()),
        LowerInclusive => inclusive(lower),
        UpperInclusive => inclusive(upper),
        LowerInfinite => infinite(lower),
        UpperInfinite => infinite(upper),
        Merge => match (lower, upper) {
            (Some(lower), Some(upper)) => {
                to_datum(of, make(of, lower.clone(), upper.clone())?.as_ref())?
            }
            _ => to_datum(of, None)?,
        },
        ToMultirange => multirange(of, &all)?,
        other => return Err(Error::internal(format!("{other:?} of one range"))),
    })
}

fn of_two(func: RangeFunc, of: RangeOf, left: DatumRef<'_>, right: DatumRef<'_>) -> Result<Datum> {
    use RangeFunc::*;
    match func {
        ContainsValue => return has_value(&spans(left)?, right).map(Datum::Bool),
        ValueContainedBy => return has_value(&spans(right)?, left).map(Datum::Bool),
        _ => {}
    }
    let (l, r) = (spans(left)?, spans(right)?);
    Ok(Datum::Bool(match func {
        Contains => contains(&l, &r)?,
        ContainedBy => contains(&r, &l)?,
        Overlaps => overlap(&l, &r)?,
        Before => is_before(&l, &r)?,
        After => is_before(&r, &l)?,
        OverLeft => match (l.last(), r.last()) {
            (Some(l), Some(r)) => l.upper.order(&r.upper)?.is_le(),
            _ => false,
        },
        OverRight => match (l.first(), r.first()) {
            (Some(l), Some(r)) => l.lower.order(&r.lower)?.is_ge(),
            _ => false,
        },
        Adjacent => match (l.first().zip(l.last()), r.first().zip(r.last())) {
            (Some((l_first, l_last)), Some((r_first, r_last))) => {
                meets(of, &l_last.upper, &r_first.lower)?
                    || meets(of, &r_last.upper, &l_first.lower)?
            }
            _ => false,
        },
        _ => {
            let set = of_sets(func, of, l, r)?;
            return match left {
                DatumRef::Array(_) => multirange(of, &set),
                _ => one_range(func, of, set),
            };
        }
    }))
}

/// A set that is one range, as an operator of ranges has to give.
fn one_range(func: RangeFunc, of: RangeOf, mut set: Vec<Span>) -> Result<Datum> {
    if set.len() > 1 {
        let what = match func {
            RangeFunc::Union => "union",
            _ => "difference",
        };
        let message = format!("result of range {what} would not be contiguous");
        return Err(Error::new("22000", message));
    }
    to_datum(of, set.pop().as_ref())
}

/// The operators that make a set of two.
fn of_sets(func: RangeFunc, of: RangeOf, l: Vec<Span>, r: Vec<Span>) -> Result<Vec<Span>> {
    match func {
        RangeFunc::Union => normalized(of, l.into_iter().chain(r).collect()),
        RangeFunc::Difference => difference(of, l, &r),
        RangeFunc::Intersection => intersection(of, &l, &r),
        RangeFunc::Merge => {
            let all = normalized(of, l.into_iter().chain(r).collect())?;
            let ends = all.first().zip(all.last());
            let whole = ends.map(|(first, last)| make(of, first.lower.clone(), last.upper.clone()));
            Ok(whole.transpose()?.flatten().into_iter().collect())
        }
        other => Err(Error::internal(format!("{other:?} of two ranges"))),
    }
}

fn has_value(all: &[Span], value: DatumRef<'_>) -> Result<bool> {
    for span in all {
        let inside = |bound: &Bound, outside: Ordering| match &bound.value {
            None => Ok(true),
            Some(end) => {
                let order = compare(value, end.borrow())?;
                Ok::<_, Error>(order.is_eq() && bound.inclusive || order == outside.reverse())
            }
        };
        if inside(&span.lower, Ordering::Less)? && inside(&span.upper, Ordering::Greater)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether each range of the second set lies within one of the first.
fn contains(all: &[Span], parts: &[Span]) -> Result<bool> {
    for part in parts {
        let mut within = false;
        for span in all {
            within |=
                span.lower.order(&part.lower)?.is_le() && span.upper.order(&part.upper)?.is_ge();
        }
        if !within {
            return Ok(false);
        }
    }
    Ok(true)
}

fn overlap(left: &[Span], right: &[Span]) -> Result<bool> {
    for l in left {
        for r in right {
            if l.lower.order(&r.upper)?.is_le() && r.lower.order(&l.upper)?.is_le() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn is_before(left: &[Span], right: &[Span]) -> Result<bool> {
    match (left.last(), right.first()) {
        (Some(l), Some(r)) => Ok(l.upper.order(&r.lower)?.is_lt()),
        _ => Ok(false),
    }
}

/// Whether there is nothing between an upper bound and a lower one behind it, and no value that
/// both include.
fn meets(of: RangeOf, upper: &Bound, lower: &Bound) -> Result<bool> {
    let (Some(u), Some(l)) = (&upper.value, &lower.value) else {
        return Ok(false);
    };
    Ok(match compare(u.borrow(), l.borrow())? {
        Ordering::Greater => false,
        Ordering::Equal => upper.inclusive != lower.inclusive,
        Ordering::Less => match of {
            RangeOf::Int4 | RangeOf::Int8 | RangeOf::Date => {
                make(of, upper.opposite(), lower.opposite())?.is_none()
            }
            _ => false,
        },
    })
}

/// Ranges in order, those that meet or overlap joined.
pub fn normalized(of: RangeOf, mut spans: Vec<Span>) -> Result<Vec<Span>> {
    let mut failed = None;
    spans.sort_by(|l, r| {
        let order = l.lower.order(&r.lower).and_then(|order| match order {
            Ordering::Equal => l.upper.order(&r.upper),
            order => Ok(order),
        });
        order.unwrap_or_else(|e| {
            failed = Some(e);
            Ordering::Equal
        })
    });
    if let Some(e) = failed {
        return Err(e);
    }
    let mut all: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        if let Some(last) = all.last_mut() {
            let joined =
                span.lower.order(&last.upper)?.is_le() || meets(of, &last.upper, &span.lower)?;
            if joined {
                if span.upper.order(&last.upper)?.is_gt() {
                    last.upper = span.upper;
                }
                continue;
            }
        }
        all.push(span);
    }
    Ok(all)
}

fn greater(l: &Bound, r: &Bound) -> Result<Bound> {
    Ok(if l.order(r)?.is_ge() { l } else { r }.clone())
}

fn lesser(l: &Bound, r: &Bound) -> Result<Bound> {
    Ok(if l.order(r)?.is_le() { l } else { r }.clone())
}

fn intersection(of: RangeOf, left: &[Span], right: &[Span]) -> Result<Vec<Span>> {
    let mut all = Vec::new();
    for l in left {
        for r in right {
            if overlap(std::slice::from_ref(l), std::slice::from_ref(r))? {
                let lower = greater(&l.lower, &r.lower)?;
                let upper = lesser(&l.upper, &r.upper)?;
                all.extend(make(of, lower, upper)?);
            }
        }
    }
    normalized(of, all)
}

fn difference(of: RangeOf, left: Vec<Span>, right: &[Span]) -> Result<Vec<Span>> {
    let mut rest = left;
    for r in right {
        let mut next = Vec::with_capacity(rest.len() + 1);
        for l in rest {
            if !overlap(std::slice::from_ref(&l), std::slice::from_ref(r))? {
                next.push(l);
                continue;
            }
            if l.lower.order(&r.lower)?.is_lt() {
                next.extend(make(of, l.lower, r.lower.opposite())?);
            }
            if l.upper.order(&r.upper)?.is_gt() {
                next.extend(make(of, r.upper.opposite(), l.upper)?);
            }
        }
        rest = next;
    }
    Ok(rest)
}

/// The value of an aggregate of ranges.
pub fn finished(of: RangeOf, set: Vec<Span>, result: SqlType) -> Result<Datum> {
    let mut set = normalized(of, set)?;
    match result {
        SqlType::Multirange(_) => multirange(of, &set),
        _ => to_datum(of, set.pop().as_ref()),
    }
}

/// What `range_agg` and `range_intersect_agg` make of a set so far and of a range or multirange.
pub fn gathered(
    of: RangeOf,
    so_far: Option<Vec<Span>>,
    value: DatumRef<'_>,
    intersect: bool,
) -> Result<Vec<Span>> {
    let next = spans(value)?;
    match (so_far, intersect) {
        (None, _) => Ok(next),
        (Some(set), true) => intersection(of, &set, &next),
        // They are put in order once, when all are there.
        (Some(mut set), false) => {
            set.extend(next);
            Ok(set)
        }
    }
}
