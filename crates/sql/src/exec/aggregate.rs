//! Grouping in memory.

use std::collections::HashMap;

use block::numeric::Numeric;
use block::value::{Datum, DatumRef};

use crate::error::{Error, Result};
use crate::expr::{ArithOp, Env, cast, compare, number};
use crate::plan::{AggFunc, Aggregate};
use crate::session::Core;
use crate::types::SqlType;

/// Groups that a direct plan keeps. More belong to the general lane, which spills.
const MAX_GROUPS: usize = 1_000_000;

pub struct Groups {
    /// The key as bytes that are equal if and only if the values are, to the place in `groups`.
    index: HashMap<Vec<u8>, usize>,
    groups: Vec<Group>,
    key: Vec<u8>,
}

struct Group {
    keys: Vec<Datum>,
    states: Vec<State>,
}

enum State {
    Count(i64),
    /// Sums of integers cannot overflow 128 bits.
    Int {
        sum: i128,
        count: i64,
    },
    Float {
        sum: f64,
        count: i64,
    },
    Numeric {
        sum: Option<Numeric>,
        count: i64,
    },
    Best(Datum),
}

impl Groups {
    pub fn new(plan: &Aggregate) -> Groups {
        let mut groups = Groups {
            index: HashMap::new(),
            groups: Vec::new(),
            key: Vec::new(),
        };
        if plan.keys.is_empty() {
            groups.groups.push(Group {
                keys: Vec::new(),
                states: fresh(plan),
            });
        }
        groups
    }

    /// Takes in one input row.
    pub fn add(&mut self, plan: &Aggregate, core: &mut Core, env: &Env<'_>) -> Result<()> {
        let at = if plan.keys.is_empty() {
            0
        } else {
            self.group(plan, core, env)?
        };
        let group = &mut self.groups[at];
        for (state, (func, arg)) in group.states.iter_mut().zip(&plan.functions) {
            match arg {
                None => state.add(*func, DatumRef::Bool(true))?,
                Some(e) => state.add(*func, e.eval(env, core)?.get())?,
            }
        }
        Ok(())
    }

    /// Whether no further row can change the answer.
    pub fn is_found(&self, plan: &Aggregate) -> bool {
        let found = |group: &Group| matches!(group.states.as_slice(), [State::Best(best)] if !best.is_null());
        plan.first && self.groups.first().is_some_and(found)
    }

    fn group(&mut self, plan: &Aggregate, core: &mut Core, env: &Env<'_>) -> Result<usize> {
        self.key.clear();
        for e in &plan.keys {
            encode(e.eval(env, core)?.get(), &mut self.key);
        }
        if let Some(at) = self.index.get(&self.key) {
            return Ok(*at);
        }
        if self.groups.len() >= MAX_GROUPS {
            return Err(Error::new(
                "53400",
                "grouping this query needs more memory than a direct plan may use",
            ));
        }
        let keys = plan
            .keys
            .iter()
            .map(|e| Ok(e.eval(env, core)?.into_datum()))
            .collect::<Result<Vec<_>>>()?;
        self.groups.push(Group {
            keys,
            states: fresh(plan),
        });
        self.index.insert(self.key.clone(), self.groups.len() - 1);
        Ok(self.groups.len() - 1)
    }

    /// Hands over each group as a row: keys, then aggregates.
    pub fn finish(
        self,
        plan: &Aggregate,
        mut take: impl FnMut(Vec<Datum>) -> Result<()>,
    ) -> Result<()> {
        for group in self.groups {
            let mut row = group.keys;
            for (state, (func, _)) in group.states.into_iter().zip(&plan.functions) {
                row.push(state.finish(*func)?);
            }
            take(row)?;
        }
        Ok(())
    }
}

/// The row of a group of which another lane has computed the keys, and what the aggregates are made of ([`crate::plan::WholeTable`]).
pub fn of_parts(plan: &Aggregate, parts: &[DatumRef<'_>]) -> Result<Vec<Datum>> {
    let missing = || Error::internal("a group without one of its parts");
    let mut parts = parts.iter().copied();
    let mut row = Vec::with_capacity(plan.keys.len() + plan.functions.len());
    for _ in &plan.keys {
        row.push(parts.next().ok_or_else(missing)?.to_datum());
    }
    for (func, _) in &plan.functions {
        let part = parts.next().ok_or_else(missing)?;
        let count = match func {
            AggFunc::Avg(_) => integer(parts.next().ok_or_else(missing)?)?,
            _ => 1,
        };
        row.push(State::of_part(*func, part, count)?.finish(*func)?);
    }
    Ok(row)
}

fn integer(value: DatumRef<'_>) -> Result<i64> {
    cast::integer(value).ok_or_else(|| Error::internal("sum of what is no integer"))
}

fn fresh(plan: &Aggregate) -> Vec<State> {
    let state = |f: &AggFunc| match f {
        AggFunc::CountRows | AggFunc::Count => State::Count(0),
        AggFunc::Min | AggFunc::Max => State::Best(Datum::Null),
        AggFunc::Sum(ty) | AggFunc::Avg(ty) => match ty {
            SqlType::Float4 | SqlType::Float8 => State::Float { sum: 0.0, count: 0 },
            SqlType::Numeric => State::Numeric {
                sum: None,
                count: 0,
            },
            _ => State::Int { sum: 0, count: 0 },
        },
    };
    plan.functions.iter().map(|(f, _)| state(f)).collect()
}

impl State {
    /// The state that so many values lead to: their number, their sum, or the best of them.
    fn of_part(func: AggFunc, part: DatumRef<'_>, count: i64) -> Result<State> {
        Ok(match (func, part) {
            (AggFunc::CountRows | AggFunc::Count, n) => State::Count(integer(n)?),
            (AggFunc::Min | AggFunc::Max, best) => State::Best(best.to_datum()),
            (_, DatumRef::Null) => State::Int { sum: 0, count: 0 },
            (_, DatumRef::Float8(sum)) => State::Float { sum, count },
            (_, DatumRef::Numeric(sum)) => State::Numeric {
                sum: Some(sum.to_numeric()),
                count,
            },
            (_, sum) => State::Int {
                sum: integer(sum)?.into(),
                count,
            },
        })
    }

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
            State::Float { sum, count } => {
                *sum += match value {
                    DatumRef::Float8(f) => f,
                    DatumRef::Float4(f) => f.into(),
                    other => return Err(Error::internal(format!("sum of {other:?}"))),
                };
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
                        let order = compare(value, so_far)?;
                        if func == AggFunc::Min {
                            order.is_lt()
                        } else {
                            order.is_gt()
                        }
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
            (
                State::Int { count: 0, .. }
                | State::Float { count: 0, .. }
                | State::Numeric { count: 0, .. },
                _,
            ) => Datum::Null,
            (State::Int { sum, count }, AggFunc::Avg(_)) => {
                return average(number::from_i128(sum), count);
            }
            (State::Int { sum, .. }, AggFunc::Sum(SqlType::Int8)) => {
                Datum::Numeric(number::from_i128(sum))
            }
            (State::Int { sum, .. }, _) => Datum::Int8(
                i64::try_from(sum).map_err(|_| Error::new("22003", "bigint out of range"))?,
            ),
            (State::Float { sum, count }, AggFunc::Avg(_)) => Datum::Float8(sum / count as f64),
            (State::Float { sum, .. }, AggFunc::Sum(SqlType::Float4)) => Datum::Float4(sum as f32),
            (State::Float { sum, .. }, _) => Datum::Float8(sum),
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
        integer => bytes(9, &cast::integer(integer).unwrap_or(0).to_le_bytes()),
    }
}
