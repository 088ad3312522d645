//! Operators and literals of dates, times, timestamps and intervals.

use block::value::Datum;
use sqlparser::ast::{self, DateTimeField, FunctionArg, FunctionArgExpr};

use super::coerce::fold;
use super::{Binder, Typed, names};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::{ArithOp, Expr, Func};
use crate::pgtype::interval::{MAX_DIGITS, Modifier, Unit};
use crate::types::SqlType;

/// How an operation is computed, and on what types.
struct Operation {
    how: How,
    left: SqlType,
    right: SqlType,
    result: SqlType,
}

enum How {
    Arith(SqlType),
    Call(PureFunc),
}

impl Operation {
    /// What an operator of two types does; an operand of unknown type has been given one.
    fn of(op: ArithOp, left: SqlType, right: SqlType) -> Option<Operation> {
        use ArithOp::{Add, Div, Mul, Sub};
        use SqlType::{Date, Float8, Interval, Time, Timestamp, TimestampTz};
        let operation = |how, left, right, result| {
            Some(Operation {
                how,
                left,
                right,
                result,
            })
        };
        let arith = |left, right, result| operation(How::Arith(result), left, right, result);
        let moved = |left| match op {
            Add => operation(How::Call(PureFunc::MoveBy), left, Interval, left),
            _ => operation(How::Call(PureFunc::MoveBack), left, Interval, left),
        };
        match (left, op, right) {
            (Interval, Add | Sub, Interval) => arith(Interval, Interval, Interval),
            (Interval, Mul | Div, n) if n.is_number() => arith(Interval, Float8, Interval),
            (Timestamp | TimestampTz, Add | Sub, Interval) => moved(left),
            (Date, Add | Sub, Interval) => moved(Timestamp),
            (Time, Add | Sub, Interval) => arith(Time, Interval, Time),
            (Date, Add, Time) => arith(Date, Time, Timestamp),
            // The times' own type tells them from integers.
            (Time, Sub, Time) => operation(How::Arith(Time), Time, Time, Interval),
            (Timestamp | TimestampTz, Add | Sub, Time) => moved(left),
            (Date, Sub, Time) => moved(Timestamp),
            (Interval, Sub, Time) => arith(Interval, Interval, Interval),
            (Timestamp, Sub, Timestamp | Date) | (Date, Sub, Timestamp) => {
                operation(How::Arith(Interval), Timestamp, Timestamp, Interval)
            }
            (TimestampTz, Sub, TimestampTz | Timestamp | Date)
            | (Timestamp | Date, Sub, TimestampTz) => {
                operation(How::Arith(Interval), TimestampTz, TimestampTz, Interval)
            }
            _ => None,
        }
    }
}

/// The type that a literal or parameter has beside one of these types.
fn beside(op: ArithOp, known: SqlType, known_is_left: bool) -> Option<SqlType> {
    use ArithOp::{Add, Div, Mul, Sub};
    use SqlType::{Date, Float8, Interval, Time, Timestamp, TimestampTz};
    Some(match (known, op) {
        (Interval, Add | Sub) => Interval,
        (Interval, Mul) => Float8,
        (Interval, Div) if known_is_left => Float8,
        (Timestamp | TimestampTz, Add) => Interval,
        (Timestamp | TimestampTz | Time, Sub) => known,
        (Time, Add) => Interval,
        (Date, Sub) => Date,
        _ => return None,
    })
}

fn is_temporal(ty: SqlType) -> bool {
    use SqlType::{Date, Interval, Time, Timestamp, TimestampTz};
    matches!(ty, Date | Time | Timestamp | TimestampTz | Interval)
}

impl Binder<'_> {
    /// An operation on dates, times and intervals; `None` if it is none.
    pub(super) fn temporal(
        &self,
        op: ArithOp,
        left: &Typed,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        if !is_temporal(left.ty) && !is_temporal(right.ty) {
            return Ok(None);
        }
        let typed = |t: &Typed, other: SqlType, other_is_left| match t.ty {
            SqlType::Unknown => beside(op, other, other_is_left),
            ty => Some(ty),
        };
        let types = typed(left, right.ty, false).zip(typed(right, left.ty, true));
        let one_of_many = match (left.ty, right.ty) {
            (SqlType::Date, SqlType::Unknown) | (SqlType::Unknown, SqlType::Date) => true,
            both => both == (SqlType::Time, SqlType::Time),
        };
        if op == ArithOp::Add && one_of_many {
            let (l, r) = (left.ty.name(), right.ty.name());
            return Err(Error::new("42725", format!("operator is not unique: {l} + {r}"))
                .hint("Could not choose a best candidate operator. You might need to add explicit type casts."));
        }
        let Some((l, r)) = types else {
            return Ok(None);
        };
        let (operation, left, right) = match Operation::of(op, l, r) {
            Some(operation) => (operation, left, right),
            None if matches!(op, ArithOp::Add | ArithOp::Mul) => match Operation::of(op, r, l) {
                Some(operation) => (operation, right, left),
                None => return Ok(None),
            },
            None => return Ok(None),
        };
        let as_type = |t: &Typed, ty| {
            let t = self.coerce(t.clone(), ty, -1, CastContext::Implicit)?;
            Ok::<_, Error>(t.expr)
        };
        let left = as_type(left, operation.left)?;
        let right = as_type(right, operation.right)?;
        let expr = match operation.how {
            How::Arith(ty) => Expr::Arith(op, ty, Box::new(left), Box::new(right)),
            How::Call(func) => Expr::Call(Func::Pure(func), vec![left, right]),
        };
        Ok(Some(Typed::new(fold(expr)?, operation.result)))
    }

    /// `interval '1-2' year to month`.
    pub(super) fn interval_literal(&self, i: &ast::Interval) -> Result<Typed> {
        let fields = match (&i.leading_field, &i.last_field) {
            (Some(first), Some(last)) => Some((unit(first)?, unit(last)?)),
            (Some(only), None) => Some((unit(only)?, unit(only)?)),
            (None, _) => None,
        };
        if fields.is_some_and(|(first, last)| first < last) {
            return Err(Error::new(
                "42601",
                "syntax error at or near an interval's fields",
            ));
        }
        if i.leading_precision.is_some() && i.leading_field != Some(DateTimeField::Second) {
            return Err(Error::unsupported(format!("{i}")));
        }
        let digits = i.fractional_seconds_precision.or(i.leading_precision);
        let digits = digits.map(|d| i32::try_from(d).unwrap_or(MAX_DIGITS).min(MAX_DIGITS));
        let typmod = Modifier::packed(fields, digits);
        let value = self.expr(&i.value)?;
        self.coerce(value, SqlType::Interval, typmod, CastContext::Explicit)
    }

    /// The age of a time, counted from the midnight at which today begins.
    pub(super) fn age_today(&self, time: Typed) -> Result<Vec<Typed>> {
        let ty = match time.ty {
            SqlType::Timestamp => SqlType::Timestamp,
            _ => SqlType::TimestampTz,
        };
        let today = self.call("current_date", Vec::new())?;
        let today = self.coerce(today, ty, -1, CastContext::Implicit)?;
        Ok(vec![today, time])
    }

    /// The arguments of `make_interval`, which may be named and left out.
    pub(super) fn interval_parts(&self, args: &[FunctionArg]) -> Result<Vec<Typed>> {
        const NAMES: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];
        let zero = Typed::literal(Datum::Int4(0), SqlType::Int4);
        let mut parts = vec![zero; NAMES.len()];
        let mut given = [false; NAMES.len()];
        for (place, arg) in args.iter().enumerate() {
            let (at, value) = match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => {
                    if given[..place.min(NAMES.len())].contains(&false) {
                        let message = "positional argument cannot follow named argument";
                        return Err(Error::new("42601", message));
                    }
                    (Some(place), e)
                }
                FunctionArg::Named {
                    name,
                    arg: FunctionArgExpr::Expr(e),
                    ..
                } => {
                    let name = names::ident(name);
                    (NAMES.iter().position(|n| *n == name), e)
                }
                other => return Err(Error::unsupported(format!("argument {other}"))),
            };
            let slot = at.and_then(|at| Some((parts.get_mut(at)?, given.get_mut(at)?)));
            match slot {
                Some((part, given)) if !*given => (*part, *given) = (self.expr(value)?, true),
                _ => {
                    return Err(Error::new(
                        "42883",
                        "function make_interval does not exist with these arguments",
                    ));
                }
            }
        }
        Ok(parts)
    }
}

fn unit(field: &DateTimeField) -> Result<Unit> {
    let named = Unit::named(&field.to_string().to_lowercase());
    named.ok_or_else(|| Error::unsupported(format!("interval {field}")))
}
