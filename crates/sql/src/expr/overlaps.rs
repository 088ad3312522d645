//! `OVERLAPS`: whether two spans of time have a moment in common. An end that is not known leaves
//! the answer open only where it would decide it.

use std::cmp::Ordering;

use block::value::DatumRef;

use super::{Calls, Env, Expr, Val, compare};
use crate::error::{Error, Result};

/// Of the start and end of one span, and those of the other; a span may be given the other way
/// round.
pub fn call<'a>(args: &'a [Expr], env: &Env<'a>, calls: &mut dyn Calls) -> Result<Val<'a>> {
    let mut values = Vec::with_capacity(4);
    for arg in args {
        values.push(arg.eval(env, calls)?);
    }
    let [a, b, c, d] = values.as_slice() else {
        return Err(Error::internal("spans without their ends"));
    };
    let (Some(left), Some(right)) = (span(a.get(), b.get())?, span(c.get(), d.get())?) else {
        return Ok(Val::NULL);
    };
    let (first, second) = match compare(left.0, right.0)? {
        Ordering::Equal => {
            return Ok(match left.1.is_null() || right.1.is_null() {
                true => Val::NULL,
                false => Val::bool(true),
            });
        }
        Ordering::Less => (left, right),
        Ordering::Greater => (right, left),
    };
    // The span that starts first must last until the other one starts.
    if first.1.is_null() {
        return Ok(Val::NULL);
    }
    if compare(second.0, first.1)?.is_lt() {
        return Ok(Val::bool(true));
    }
    Ok(match second.1.is_null() {
        true => Val::NULL,
        false => Val::bool(false),
    })
}

/// Start and end in their order; the start is known, or else nothing is.
fn span<'v>(
    start: DatumRef<'v>,
    end: DatumRef<'v>,
) -> Result<Option<(DatumRef<'v>, DatumRef<'v>)>> {
    Ok(match (start.is_null(), end.is_null()) {
        (true, true) => None,
        (true, false) => Some((end, start)),
        (false, false) if compare(start, end)?.is_gt() => Some((end, start)),
        _ => Some((start, end)),
    })
}
