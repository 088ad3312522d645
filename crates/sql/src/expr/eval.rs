//! Evaluation of an expression over one row.

use std::cmp::Ordering;

use block::value::{Datum, DatumRef};

use super::{Calls, CmpOp, Expr, Val, arith, like};
use crate::error::{Error, Result};

/// What an expression sees: the row and the statement's parameters.
#[derive(Clone, Copy)]
pub struct Env<'a> {
    pub row: &'a [DatumRef<'a>],
    pub params: &'a [Datum],
}

impl Env<'static> {
    /// For expressions without columns and parameters.
    pub const EMPTY: Env<'static> = Env {
        row: &[],
        params: &[],
    };
}

impl Expr {
    /// The expression's value over a row. `calls` answers what depends on session and database.
    pub fn eval<'a>(&'a self, env: &Env<'a>, calls: &mut dyn Calls) -> Result<Val<'a>> {
        Ok(match self {
            Expr::Const(d) => Val::Ref(d.borrow()),
            Expr::Column(i) => Val::Ref(
                *env.row
                    .get(*i)
                    .ok_or_else(|| Error::internal("column beyond the row"))?,
            ),
            Expr::Param(i) => Val::Ref(
                env.params
                    .get(*i)
                    .ok_or_else(|| missing_parameter(*i))?
                    .borrow(),
            ),
            Expr::Compare(op, left, right) => {
                let left = left.eval(env, calls)?;
                let right = right.eval(env, calls)?;
                truth(compare_op(*op, left.get(), right.get())?)
            }
            Expr::And(_) | Expr::Or(_) | Expr::Not(_) | Expr::InList { .. } => {
                truth(self.test(env, calls)?)
            }
            Expr::IsNull { expr, negated } => {
                Val::bool(expr.eval(env, calls)?.is_null() != *negated)
            }
            Expr::IsBool {
                expr,
                value,
                negated,
            } => Val::bool((expr.test(env, calls)? == *value) != *negated),
            Expr::Distinct {
                left,
                right,
                negated,
            } => {
                let left = left.eval(env, calls)?;
                let right = right.eval(env, calls)?;
                let distinct = match (left.is_null(), right.is_null()) {
                    (true, true) => false,
                    (false, false) => compare(left.get(), right.get())?.is_ne(),
                    _ => true,
                };
                Val::bool(distinct != *negated)
            }
            Expr::Arith(op, ty, left, right) => {
                let left = left.eval(env, calls)?;
                let right = right.eval(env, calls)?;
                arith::apply(*op, *ty, left.get(), right.get())?
            }
            Expr::Negate(e) => arith::negate(e.eval(env, calls)?)?,
            Expr::Concat(left, right) => {
                let left = left.eval(env, calls)?;
                let right = right.eval(env, calls)?;
                concat(left.get(), right.get())?
            }
            Expr::Like {
                expr,
                pattern,
                escape,
                fold_case,
                negated,
            } => {
                let value = expr.eval(env, calls)?;
                let pattern = pattern.eval(env, calls)?;
                match (value.get(), pattern.get()) {
                    (DatumRef::Text(v), DatumRef::Text(p)) => {
                        Val::bool(like::matches(v, p, *escape, *fold_case)? != *negated)
                    }
                    _ => Val::NULL,
                }
            }
            Expr::Case {
                branches,
                otherwise,
            } => {
                for (condition, result) in branches {
                    if condition.test(env, calls)? == Some(true) {
                        return result.eval(env, calls);
                    }
                }
                match otherwise {
                    Some(e) => e.eval(env, calls)?,
                    None => Val::NULL,
                }
            }
            Expr::Coalesce(list) => {
                for e in list {
                    let v = e.eval(env, calls)?;
                    if !v.is_null() {
                        return Ok(v);
                    }
                }
                Val::NULL
            }
            Expr::NullIf(left, right) => {
                let left = left.eval(env, calls)?;
                let right = right.eval(env, calls)?;
                let equal = compare_op(CmpOp::Eq, left.get(), right.get())? == Some(true);
                if equal { Val::NULL } else { left }
            }
            Expr::Cast(cast, e) => {
                let value = e.eval(env, calls)?;
                cast.apply(value, calls.io())?
            }
            Expr::Call(func, args) => func.call(args, env, calls)?,
            Expr::Domain(domain, e) => {
                let value = e.eval(env, calls)?;
                domain.check(value.get(), calls)?;
                value
            }
            Expr::Quantified(q) => q.eval(env, calls)?,
            Expr::Subquery { number, inputs } => {
                let inputs = inputs
                    .iter()
                    .map(|e| Ok(e.eval(env, calls)?.into_datum()))
                    .collect::<Result<Vec<_>>>()?;
                calls.subquery(*number, inputs)?
            }
        })
    }

    /// Whether a row passes a condition. Of several that must all hold the first that does not, be
    /// it unknown, decides; the others are not looked at, as in PostgreSQL.
    pub fn holds<'a>(&'a self, env: &Env<'a>, calls: &mut dyn Calls) -> Result<bool> {
        if let Expr::And(list) = self {
            for e in list {
                if !e.holds(env, calls)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Ok(self.test(env, calls)? == Some(true))
    }

    /// A condition's truth; `None` is unknown.
    pub fn test<'a>(&'a self, env: &Env<'a>, calls: &mut dyn Calls) -> Result<Option<bool>> {
        match self {
            Expr::And(list) => {
                let mut truth = Some(true);
                for e in list {
                    match e.test(env, calls)? {
                        Some(false) => return Ok(Some(false)),
                        Some(true) => {}
                        None => truth = None,
                    }
                }
                Ok(truth)
            }
            Expr::Or(list) => {
                let mut truth = Some(false);
                for e in list {
                    match e.test(env, calls)? {
                        Some(true) => return Ok(Some(true)),
                        Some(false) => {}
                        None => truth = None,
                    }
                }
                Ok(truth)
            }
            Expr::Not(e) => Ok(e.test(env, calls)?.map(|b| !b)),
            Expr::Compare(op, left, right) => {
                let left = left.eval(env, calls)?;
                let right = right.eval(env, calls)?;
                compare_op(*op, left.get(), right.get())
            }
            Expr::InList {
                expr,
                list,
                negated,
                sorted,
            } => {
                let value = expr.eval(env, calls)?;
                if *sorted {
                    return Ok(find(value.get(), list)?.map(|found| found != *negated));
                }
                let mut truth = Some(false);
                for e in list {
                    let candidate = e.eval(env, calls)?;
                    match compare_op(CmpOp::Eq, value.get(), candidate.get())? {
                        Some(true) => return Ok(Some(!*negated)),
                        Some(false) => {}
                        None => truth = None,
                    }
                }
                Ok(truth.map(|b| b != *negated))
            }
            _ => match self.eval(env, calls)?.get() {
                DatumRef::Bool(b) => Ok(Some(b)),
                DatumRef::Null => Ok(None),
                other => Err(Error::internal(format!("a condition gave {other:?}"))),
            },
        }
    }
}

fn truth(b: Option<bool>) -> Val<'static> {
    match b {
        Some(b) => Val::bool(b),
        None => Val::NULL,
    }
}

/// The error of a parameter, from 0, that has no value.
pub fn missing_parameter(i: usize) -> Error {
    Error::new("08P01", format!("no value for parameter ${}", i + 1))
}

fn concat(left: DatumRef<'_>, right: DatumRef<'_>) -> Result<Val<'static>> {
    match (left, right) {
        (DatumRef::Null, _) | (_, DatumRef::Null) => Ok(Val::NULL),
        (DatumRef::Text(l), DatumRef::Text(r)) => {
            let mut s = String::with_capacity(l.len() + r.len());
            s.push_str(l);
            s.push_str(r);
            Ok(Val::text(s))
        }
        (DatumRef::Bytea(l), DatumRef::Bytea(r)) => Ok(Val::Own(Datum::Bytea([l, r].concat()))),
        _ => Err(Error::internal(
            "concatenation of other types than text or bytea",
        )),
    }
}

/// `None` if either side is NULL.
fn compare_op(op: CmpOp, left: DatumRef<'_>, right: DatumRef<'_>) -> Result<Option<bool>> {
    if matches!(left, DatumRef::Null) || matches!(right, DatumRef::Null) {
        return Ok(None);
    }
    Ok(Some(op.holds(compare(left, right)?)))
}

/// The order of two values that are not NULL: of one type, or integers of any width. NaN equals itself and is above all.
pub fn compare(left: DatumRef<'_>, right: DatumRef<'_>) -> Result<Ordering> {
    use DatumRef::*;
    Ok(match (left, right) {
        (Int4(l), Int4(r)) => l.cmp(&r),
        (Int8(l), Int8(r)) => l.cmp(&r),
        (Text(l), Text(r)) => l.as_bytes().cmp(r.as_bytes()),
        (Bool(l), Bool(r)) => l.cmp(&r),
        (Float8(l), Float8(r)) => float_order(l, r),
        (Float4(l), Float4(r)) => float_order(l.into(), r.into()),
        (Numeric(l), Numeric(r)) => l.cmp(&r),
        (Date(l), Date(r)) => l.cmp(&r),
        (Timestamp(l), Timestamp(r)) | (TimestampTz(l), TimestampTz(r)) => l.cmp(&r),
        (Bytea(l), Bytea(r)) => l.cmp(r),
        (Uuid(l), Uuid(r)) => l.cmp(&r),
        (Interval(l), Interval(r)) => l.cmp(&r),
        (Array(l), Array(r)) => l.compare(r),
        (Json(l), Json(r)) => l.compare(r),
        (Folded(l), Folded(r)) => l.cmp(&r),
        (Composite(l), Composite(r)) => super::composite::compared(l, r)?,
        (l, r) => match (arith::integer(l), arith::integer(r)) {
            (Some(l), Some(r)) => l.cmp(&r),
            _ => return Err(Error::internal(format!("comparison of {l:?} with {r:?}"))),
        },
    })
}

fn float_order(l: f64, r: f64) -> Ordering {
    match (l.is_nan(), r.is_nan()) {
        (true, true) => Ordering::Equal,
        (true, false) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => l.partial_cmp(&r).unwrap_or(Ordering::Equal),
    }
}

/// Whether a value is in a list of constants in ascending order.
fn find(value: DatumRef<'_>, list: &[Expr]) -> Result<Option<bool>> {
    if matches!(value, DatumRef::Null) {
        return Ok(None);
    }
    let (mut low, mut high) = (0, list.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let Expr::Const(constant) = &list[middle] else {
            return Err(crate::Error::internal(
                "a sorted list of what is not constant",
            ));
        };
        match compare(value, constant.borrow())? {
            std::cmp::Ordering::Equal => return Ok(Some(true)),
            std::cmp::Ordering::Less => high = middle,
            std::cmp::Ordering::Greater => low = middle + 1,
        }
    }
    Ok(Some(false))
}

/// The values of the arguments of a strict function; `None` if one of them is NULL.
pub fn strict<'a>(
    args: &'a [Expr],
    env: &Env<'a>,
    calls: &mut dyn Calls,
) -> Result<Option<Vec<Val<'a>>>> {
    let mut values = Vec::with_capacity(args.len());
    for arg in args {
        let value = arg.eval(env, calls)?;
        if value.is_null() {
            return Ok(None);
        }
        values.push(value);
    }
    Ok(Some(values))
}
