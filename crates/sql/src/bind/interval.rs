//! Intervals within an expression: a point in time may be moved by one. There is no type of them,
//! so an interval is its three parts, and as a result it is refused.

use block::value::Datum;
use sqlparser::ast::{self, BinaryOperator, DataType, DateTimeField, UnaryOperator, Value};

use super::coerce::fold;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::{ArithOp, CmpOp, Expr, Func};
use crate::pgtype::calendar::MICROS_PER_DAY;
use crate::pgtype::interval::{self, Unit};
use crate::types::SqlType;

/// Months, days and microseconds, each a bigint.
pub struct Interval([Expr; 3]);

impl From<interval::Interval> for Interval {
    fn from(i: interval::Interval) -> Interval {
        let part = |n: i64| Expr::Const(Datum::Int8(n));
        Interval([part(i.months.into()), part(i.days.into()), part(i.micros)])
    }
}

impl Interval {
    /// Each part with what stands at its place in the other one, or with one value for all.
    fn with(self, op: ArithOp, other: [Expr; 3]) -> Result<Interval> {
        let [a, b, c] = self.0;
        let [x, y, z] = other;
        let both =
            |l: Expr, r: Expr| fold(Expr::Arith(op, SqlType::Int8, Box::new(l), Box::new(r)));
        Ok(Interval([both(a, x)?, both(b, y)?, both(c, z)?]))
    }

    pub fn into_parts(self) -> [Expr; 3] {
        self.0
    }

    fn negated(self) -> Result<Interval> {
        let minus = || Expr::Const(Datum::Int8(-1));
        self.with(ArithOp::Mul, [minus(), minus(), minus()])
    }
}

impl Binder<'_> {
    /// The interval that an expression is, if it is one.
    pub fn interval(&self, e: &ast::Expr) -> Result<Option<Interval>> {
        match e {
            ast::Expr::Nested(inner) => self.interval(inner),
            ast::Expr::Interval(i) => {
                let last = match i.last_field.as_ref().or(i.leading_field.as_ref()) {
                    Some(field) => Some(unit(field)?),
                    None => None,
                };
                literal_interval(&i.value, last).map(Some)
            }
            ast::Expr::Cast {
                expr,
                data_type: DataType::Interval { fields: None, .. },
                ..
            } => literal_interval(expr, None).map(Some),
            ast::Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr,
            } => self.interval(expr)?.map(Interval::negated).transpose(),
            ast::Expr::BinaryOp { left, op, right } => match op {
                BinaryOperator::Multiply => match (self.interval(left)?, self.interval(right)?) {
                    (Some(interval), None) => self.times(interval, right).map(Some),
                    (None, Some(interval)) => self.times(interval, left).map(Some),
                    _ => Ok(None),
                },
                BinaryOperator::Plus | BinaryOperator::Minus => {
                    let (Some(left), Some(right)) = (self.interval(left)?, self.interval(right)?)
                    else {
                        return Ok(None);
                    };
                    let op = match op {
                        BinaryOperator::Plus => ArithOp::Add,
                        _ => ArithOp::Sub,
                    };
                    left.with(op, right.0).map(Some)
                }
                _ => Ok(None),
            },
            _ => Ok(None),
        }
    }

    fn times(&self, interval: Interval, number: &ast::Expr) -> Result<Interval> {
        let number = self.expr(number)?;
        if !number.ty.is_integer() {
            return Err(Error::unsupported(
                "an interval times what is no integer expression",
            ));
        }
        let number = self.coerce(number, SqlType::Int8, -1, CastContext::Implicit)?;
        let n = || number.expr.clone();
        interval.with(ArithOp::Mul, [n(), n(), n()])
    }

    /// `time + interval`, `interval + time` or `time - interval`; `None` if there is no interval.
    pub(super) fn moved(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Option<Typed>> {
        let (time, interval) = match (self.interval(left)?, self.interval(right)?) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(as_a_result()),
            (None, Some(interval)) if *op == BinaryOperator::Minus => (left, interval.negated()?),
            (None, Some(interval)) => (left, interval),
            (Some(interval), None) if *op == BinaryOperator::Plus => (right, interval),
            (Some(_), None) => {
                let message = format!("operator does not exist: interval {op} {right}");
                return Err(Error::new("42883", message));
            }
        };
        let time = self.expr(time)?;
        let time = match time.ty {
            SqlType::Timestamp | SqlType::TimestampTz => time,
            SqlType::Date => self.coerce(time, SqlType::Timestamp, -1, CastContext::Implicit)?,
            // It would be an interval, too.
            SqlType::Unknown => return Err(as_a_result()),
            other => {
                let message = format!("operator does not exist: {} {op} interval", other.name());
                return Err(Error::new("42883", message)
                    .hint("No operator matches the given name and argument types. You might need to add explicit type casts."));
            }
        };
        let [months, days, micros] = interval.0;
        let args = vec![time.expr, months, days, micros];
        let call = Expr::Call(Func::Pure(PureFunc::MoveBy), args);
        Ok(Some(Typed::new(fold(call)?, time.ty)))
    }
}

/// What an interval is compared as: a month counts for 30 days.
fn total(interval: Interval) -> Result<Expr> {
    let by = |e: Expr, n: i64| {
        let each = Box::new(Expr::Const(Datum::Int8(n)));
        fold(Expr::Arith(ArithOp::Mul, SqlType::Int8, Box::new(e), each))
    };
    let sum = |l: Expr, r: Expr| {
        fold(Expr::Arith(
            ArithOp::Add,
            SqlType::Int8,
            Box::new(l),
            Box::new(r),
        ))
    };
    let [months, days, micros] = interval.0;
    let days = sum(by(months, 30)?, days)?;
    sum(by(days, MICROS_PER_DAY)?, micros)
}

impl Binder<'_> {
    /// A comparison of intervals, of which each is written out or lies between two points in time.
    pub(super) fn compared_intervals(
        &self,
        op: CmpOp,
        left: &ast::Expr,
        right: &ast::Expr,
    ) -> Result<Option<Typed>> {
        let sides = match (self.interval(left)?, self.interval(right)?) {
            (None, None) => return Ok(None),
            (Some(l), Some(r)) => [total(l)?, total(r)?],
            (Some(l), None) => [total(l)?, self.micros_between(right)?],
            (None, Some(r)) => [self.micros_between(left)?, total(r)?],
        };
        let [left, right] = sides.map(Box::new);
        let compared = fold(Expr::Compare(op, left, right))?;
        Ok(Some(Typed::new(compared, SqlType::Bool)))
    }

    /// `a - b` in microseconds, beside an interval.
    fn micros_between(&self, e: &ast::Expr) -> Result<Expr> {
        match self.difference(e)? {
            Some(times) => Ok(Expr::Call(Func::Pure(PureFunc::MicrosBetween), times)),
            None => Err(Error::unsupported(format!("an interval beside {e}"))),
        }
    }

    /// `extract(epoch from a - b)`; `None` if it is of something else.
    pub(super) fn seconds_between(&self, field: &str, e: &ast::Expr) -> Result<Option<Typed>> {
        match self.difference(e)? {
            Some(times) if field == "epoch" => {
                let call = Expr::Call(Func::Pure(PureFunc::SecondsBetween), times);
                Ok(Some(Typed::new(call, SqlType::Numeric)))
            }
            _ => Ok(None),
        }
    }

    /// The two points in time of which an expression is the difference.
    fn difference(&self, e: &ast::Expr) -> Result<Option<Vec<Expr>>> {
        use SqlType::{Date, Timestamp, TimestampTz};
        let (left, right) = match e {
            ast::Expr::Nested(inner) => return self.difference(inner),
            ast::Expr::BinaryOp {
                left,
                op: BinaryOperator::Minus,
                right,
            } => (left, right),
            _ => return Ok(None),
        };
        if self.interval(right)?.is_some() {
            return Ok(None);
        }
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        let ty = match (left.ty, right.ty) {
            (TimestampTz, TimestampTz | Timestamp | Date) | (Timestamp | Date, TimestampTz) => {
                TimestampTz
            }
            (Timestamp, Timestamp | Date) | (Date, Timestamp) => Timestamp,
            _ => return Ok(None),
        };
        let time = |t: Typed| {
            self.coerce(t, ty, -1, CastContext::Implicit)
                .map(|t| t.expr)
        };
        Ok(Some(vec![time(left)?, time(right)?]))
    }
}

fn as_a_result() -> Error {
    Error::unsupported("type interval as a result")
}

fn literal_interval(e: &ast::Expr, last: Option<Unit>) -> Result<Interval> {
    let text = match e {
        ast::Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(s) | Value::EscapedStringLiteral(s) => Some(s),
            _ => None,
        },
        _ => None,
    };
    match text {
        Some(text) => interval::Interval::parse(text, last).map(Interval::from),
        None => Err(Error::unsupported("an interval that is no literal")),
    }
}

fn unit(field: &DateTimeField) -> Result<Unit> {
    Unit::named(&field.to_string().to_lowercase())
        .ok_or_else(|| Error::unsupported(format!("interval {field}")))
}
