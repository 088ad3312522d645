//! Comparisons of dates with timestamps.

use block::value::Datum;

use crate::expr::moments::is_infinite;
use crate::expr::{Cast, CmpOp, Conversion, Expr};
use crate::pgtype::calendar::MICROS_PER_DAY;
use crate::types::SqlType;

/// A comparison; of a date with a constant timestamp one with a date, which an index has, and which
/// converts no value.
pub fn day_compared(op: CmpOp, left: Expr, right: Expr) -> Expr {
    let as_dates = match (&left, &right) {
        (Expr::Cast(cast, date), Expr::Const(Datum::Timestamp(t))) => of_day(cast, op, *t)
            .map(|(op, day)| (op, date.clone(), Box::new(Expr::Const(Datum::Date(day))))),
        (Expr::Const(Datum::Timestamp(t)), Expr::Cast(cast, date)) => of_day(cast, op.flip(), *t)
            .map(|(op, day)| (op, date.clone(), Box::new(Expr::Const(Datum::Date(day))))),
        _ => None,
    };
    match as_dates {
        Some((op, date, day)) => Expr::Compare(op, date, day),
        None => Expr::Compare(op, Box::new(left), Box::new(right)),
    }
}

/// How a date that was converted for a comparison with a timestamp compares with a day.
fn of_day(cast: &Cast, op: CmpOp, t: i64) -> Option<(CmpOp, i32)> {
    let compared = cast.how == Conversion::Compared && cast.typmod < 0;
    if !compared || (cast.from, cast.to) != (SqlType::Date, SqlType::Timestamp) || is_infinite(t) {
        return None;
    }
    let day = i32::try_from(t.div_euclid(MICROS_PER_DAY)).ok()?;
    if t.rem_euclid(MICROS_PER_DAY) == 0 {
        return Some((op, day));
    }
    match op {
        CmpOp::Lt | CmpOp::Le => Some((CmpOp::Le, day)),
        CmpOp::Gt | CmpOp::Ge => Some((CmpOp::Gt, day)),
        CmpOp::Eq | CmpOp::Ne => None,
    }
}
