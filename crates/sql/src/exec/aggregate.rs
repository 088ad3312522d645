//! Aggregates of direct plans, over all rows of the source: groups are the tree lane's.

use block::key::{self, Order};
use block::numeric::Numeric;
use block::value::{ColType, Datum, DatumRef};

use crate::error::{Error, Result};
use crate::expr::{ArithOp, Env, cast, compare, number};
use crate::plan::{AggFunc, Aggregate};
use crate::query::aggregate::takes_last;
use crate::session::Core;
use crate::types::SqlType;

/// What the aggregates of a plan have come to.
pub struct States(Vec<State>);

enum State {
    Count(i64),
    /// Sums of integers cannot overflow 128 bits.
    Int {
        sum: i128,
        count: i64,
    },
    Numeric {
        sum: Option<Numeric>,
        count: i64,
    },
    Best(Datum),
}

impl States {
    pub fn new(plan: &Aggregate) -> States {
        let state = |f: &AggFunc| match f {
            AggFunc::CountRows | AggFunc::Count => State::Count(0),
            AggFunc::Min | AggFunc::Max => State::Best(Datum::Null),
            AggFunc::Sum(SqlType::Numeric) | AggFunc::Avg(SqlType::Numeric) => State::Numeric {
                sum: None,
                count: 0,
            },
            AggFunc::Sum(_) | AggFunc::Avg(_) => State::Int { sum: 0, count: 0 },
        };
        States(plan.functions.iter().map(|(f, _)| state(f)).collect())
    }

    /// Takes in one input row.
    pub fn add(&mut self, plan: &Aggregate, core: &mut Core, env: &Env<'_>) -> Result<()> {
        for (state, (func, arg)) in self.0.iter_mut().zip(&plan.functions) {
            match arg {
                None => state.add(*func, DatumRef::Bool(true))?,
                Some(e) => state.add(*func, e.eval(env, core)?.get())?,
            }
        }
        Ok(())
    }

    /// Whether no further row can change the answer.
    pub fn is_found(&self, plan: &Aggregate) -> bool {
        plan.first && matches!(self.0.as_slice(), [State::Best(best)] if !best.is_null())
    }

    /// The aggregates' values.
    pub fn finish(self, plan: &Aggregate) -> Result<Vec<Datum>> {
        let states = self.0.into_iter().zip(&plan.functions);
        states
            .map(|(state, (func, _))| state.finish(*func))
            .collect()
    }
}

fn integer(value: DatumRef<'_>) -> Result<i64> {
    cast::integer(value).ok_or_else(|| Error::internal("sum of what is no integer"))
}

impl State {
    fn add(&mut self, func: AggFunc, value: DatumRef<'_>) -> Result<()> {
        if matches!(value, DatumRef::Null) {
            return Ok(());
        }
        match self {
            State::Count(n) => *n += 1,
            State::Int { sum, count } => {
                *sum += i128::from(integer(value)?);
                *count += 1;
            }
            State::Numeric { sum, count } => {
                let DatumRef::Numeric(n) = value else {
                    return Err(Error::internal(format!("sum of {value:?}")));
                };
                *sum = Some(match sum.take() {
                    None => n.to_numeric(),
                    Some(s) => number::apply(ArithOp::Add, s.borrow(), n)?,
                });
                *count += 1;
            }
            State::Best(best) => {
                let better = match best.borrow() {
                    DatumRef::Null => true,
                    so_far => {
                        let order = match func {
                            AggFunc::Min => compare(so_far, value)?,
                            _ => compare(value, so_far)?,
                        };
                        order.is_gt() || order.is_eq() && takes_last(value)
                    }
                };
                if better {
                    *best = value.to_datum();
                }
            }
        }
        Ok(())
    }

    fn finish(self, func: AggFunc) -> Result<Datum> {
        let average = |sum: Numeric, count: i64| {
            Ok(Datum::Numeric(number::apply(
                ArithOp::Div,
                sum.borrow(),
                number::from_i64(count).borrow(),
            )?))
        };
        Ok(match (self, func) {
            (State::Count(n), _) => Datum::Int8(n),
            (State::Best(best), _) => best,
            (State::Int { count: 0, .. } | State::Numeric { count: 0, .. }, _) => Datum::Null,
            (State::Int { sum, count }, AggFunc::Avg(_)) => {
                return average(number::from_i128(sum), count);
            }
            (State::Int { sum, .. }, AggFunc::Sum(SqlType::Int8)) => {
                Datum::Numeric(number::from_i128(sum))
            }
            (State::Int { sum, .. }, _) => Datum::Int8(
                i64::try_from(sum).map_err(|_| Error::new("22003", "bigint out of range"))?,
            ),
            (
                State::Numeric {
                    sum: Some(sum),
                    count,
                },
                AggFunc::Avg(_),
            ) => return average(sum, count),
            (State::Numeric { sum, .. }, _) => sum.map_or(Datum::Null, Datum::Numeric),
        })
    }
}

/// Bytes that are equal exactly if the values are.
pub fn encode(value: DatumRef<'_>, out: &mut Vec<u8>) {
    let mut bytes = |tag: u8, b: &[u8]| {
        out.push(tag);
        out.extend_from_slice(&(b.len() as u32).to_le_bytes());
        out.extend_from_slice(b);
    };
    match value {
        DatumRef::Null => bytes(0, &[]),
        DatumRef::Bool(b) => bytes(1, &[b.into()]),
        DatumRef::Float4(f) => encode(DatumRef::Float8(f.into()), out),
        // The two zeros are equal, and so are all NaNs.
        DatumRef::Float8(0.0) => bytes(2, &0f64.to_le_bytes()),
        DatumRef::Float8(f) if f.is_nan() => bytes(2, &f64::NAN.to_le_bytes()),
        DatumRef::Float8(f) => bytes(2, &f.to_le_bytes()),
        DatumRef::Numeric(n) => match n.to_bigdecimal() {
            Some(d) => bytes(3, d.normalized().to_string().as_bytes()),
            None => bytes(3, n.to_string().as_bytes()),
        },
        DatumRef::Text(t) => bytes(4, t.as_bytes()),
        DatumRef::Bytea(b) => bytes(5, b),
        DatumRef::Date(d) => bytes(6, &d.to_le_bytes()),
        DatumRef::Timestamp(t) | DatumRef::TimestampTz(t) => bytes(7, &t.to_le_bytes()),
        DatumRef::Uuid(u) => bytes(8, &u),
        DatumRef::Interval(i) => bytes(10, &i.span().to_le_bytes()),
        DatumRef::Array(_) => {
            let mut key = Vec::new();
            key::push_column(&mut key, ColType::Array, Order::ASC, value);
            bytes(11, &key);
        }
        DatumRef::Json(_) => {
            let mut key = Vec::new();
            key::push_column(&mut key, ColType::Json, Order::ASC, value);
            bytes(12, &key);
        }
        DatumRef::Composite(_) => {
            let mut key = Vec::new();
            key::push_column(&mut key, ColType::Composite, Order::ASC, value);
            bytes(13, &key);
        }
        DatumRef::Folded(t) => bytes(14, t.small().collect::<String>().as_bytes()),
        integer => bytes(9, &cast::integer(integer).unwrap_or(0).to_le_bytes()),
    }
}
