//! What is kept of the values of each group, in arrays over the groups' numbers.
//!
//! **Invariants.**
//! - The result is that of the row operators' [`State`], into which what is kept is put at the end.
//! - Where the result depends on the order of values (which of two zeros is the least) or is an
//!   error, this stops.

use std::ops::AddAssign;

use block::numeric::{Numeric, Short};
use block::value::Datum;

use super::Stop;
use super::batch::{Batch, Column, Layout, Type, Values};
use super::condition::{Condition, TRUE};
use super::expr::Value;
use super::keys::text;
use crate::query::aggregate::{Aggregate, State, Sums};

/// Up to here no sum of squares of fewer than 2^53 values, which averages of floats keep too, can
/// become infinite.
const MOST_AVERAGED: f64 = 1e100;

/// A call of an aggregate function over batches.
#[derive(Debug)]
pub struct Call {
    pub function: Aggregate,
    pub argument: Option<Value>,
    pub filter: Option<Condition>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Count,
    Integers,
    Decimals(u16),
    /// `sum(case when filter then argument else 0 end)`, whose zeros have no digits after the
    /// point.
    Zeroed(u16),
    Floats {
        averaged: bool,
    },
    Singles,
    Best {
        max: bool,
        ty: Type,
    },
}

impl Call {
    pub fn new(
        function: Aggregate,
        argument: Option<Value>,
        filter: Option<Condition>,
    ) -> Result<Call, Stop> {
        use Aggregate::{Avg, BoolAnd, BoolOr, Count, CountRows, Max, Min, Sum};
        let ty = argument.as_ref().map(|a| a.ty);
        let kind = match (function, ty) {
            (CountRows, None) | (Count, Some(_)) => Kind::Count,
            (Sum(_) | Avg(_), Some(Type::Int2 | Type::Int4 | Type::Int8)) => Kind::Integers,
            (Sum(_) | Avg(_), Some(Type::Decimal(scale))) => Kind::Decimals(scale),
            (Sum(_), Some(Type::Float4)) => Kind::Singles,
            (Sum(_), Some(Type::Float8)) => Kind::Floats { averaged: false },
            (Avg(_), Some(Type::Float4 | Type::Float8)) => Kind::Floats { averaged: true },
            (BoolAnd, Some(ty @ Type::Bool)) => Kind::Best { max: false, ty },
            (BoolOr, Some(ty @ Type::Bool)) => Kind::Best { max: true, ty },
            (Min(of), Some(ty)) if of != crate::SqlType::Char => Kind::Best { max: false, ty },
            (Max(of), Some(ty)) if of != crate::SqlType::Char => Kind::Best { max: true, ty },
            _ => return Err(Stop::Refused("an aggregate function")),
        };
        Ok(Call {
            function,
            argument,
            filter,
            kind,
        })
    }

    /// `sum(case when condition then argument else 0 end)` of decimals.
    pub fn or_zero(function: Aggregate, argument: Value, condition: Condition) -> Option<Call> {
        match (function, argument.ty) {
            (Aggregate::Sum(_), Type::Decimal(scale)) => Some(Call {
                function,
                argument: Some(argument),
                filter: Some(condition),
                kind: Kind::Zeroed(scale),
            }),
            _ => None,
        }
    }

    /// Whether the result's last digit depends on the order of values.
    pub fn is_ordered(&self) -> bool {
        matches!(self.kind, Kind::Floats { .. } | Kind::Singles)
    }
}

/// The states of one call in all groups.
pub enum States {
    Count(Vec<i64>),
    Integers(Vec<Sum<i128>>),
    Decimals(Vec<Sum<i128>>),
    /// With the number of zeros.
    Zeroed(Vec<Sum<i128>>, Vec<i64>),
    Floats(Vec<Sum<f64>>),
    Singles(Vec<Sum<f32>>),
    BestInt(Vec<Option<i64>>),
    BestFloat(Vec<Option<f64>>),
    BestDecimal(Vec<Option<i128>>),
    /// With the bytes that all of them take.
    BestText(Vec<Option<Box<[u8]>>>, usize),
}

#[derive(Clone, Copy, Default)]
pub struct Sum<T> {
    sum: T,
    count: i64,
}

impl<T: Copy + AddAssign> Sum<T> {
    /// Adds the sum of later values. A sum of no values is not added to: zero plus a negative zero
    /// is another zero.
    fn add(&mut self, more: &Sum<T>) {
        match (self.count, more.count) {
            (_, 0) => {}
            (0, _) => *self = *more,
            _ => {
                self.sum += more.sum;
                self.count += more.count;
            }
        }
    }
}

impl States {
    pub fn new(call: &Call) -> States {
        match call.kind {
            Kind::Count => States::Count(Vec::new()),
            Kind::Integers => States::Integers(Vec::new()),
            Kind::Decimals(_) => States::Decimals(Vec::new()),
            Kind::Zeroed(_) => States::Zeroed(Vec::new(), Vec::new()),
            Kind::Floats { .. } => States::Floats(Vec::new()),
            Kind::Singles => States::Singles(Vec::new()),
            Kind::Best { ty, .. } => match ty.layout() {
                Layout::Int => States::BestInt(Vec::new()),
                Layout::Float => States::BestFloat(Vec::new()),
                Layout::Decimal => States::BestDecimal(Vec::new()),
                Layout::Text => States::BestText(Vec::new(), 0),
            },
        }
    }

    /// Makes room for so many groups.
    pub fn resize(&mut self, groups: usize) {
        match self {
            States::Count(v) => v.resize(groups, 0),
            States::Integers(v) | States::Decimals(v) => v.resize(groups, Sum::default()),
            States::Zeroed(sums, zeros) => {
                sums.resize(groups, Sum::default());
                zeros.resize(groups, 0);
            }
            States::Floats(v) => v.resize(groups, Sum::default()),
            States::Singles(v) => v.resize(groups, Sum::default()),
            States::BestInt(v) => v.resize(groups, None),
            States::BestFloat(v) => v.resize(groups, None),
            States::BestDecimal(v) => v.resize(groups, None),
            States::BestText(v, _) => v.resize(groups, None),
        }
    }

    /// Bytes in use.
    pub fn memory(&self) -> usize {
        match self {
            States::Count(v) => v.len() * 8,
            States::Integers(v) | States::Decimals(v) => v.len() * size_of::<Sum<i128>>(),
            States::Zeroed(v, _) => v.len() * (size_of::<Sum<i128>>() + 8),
            States::Floats(v) => v.len() * size_of::<Sum<f64>>(),
            States::Singles(v) => v.len() * size_of::<Sum<f32>>(),
            States::BestInt(v) => v.len() * size_of::<Option<i64>>(),
            States::BestFloat(v) => v.len() * size_of::<Option<f64>>(),
            States::BestDecimal(v) => v.len() * size_of::<Option<i128>>(),
            States::BestText(v, bytes) => v.len() * size_of::<Option<Box<[u8]>>>() + bytes,
        }
    }

    /// Takes in a batch, whose rows belong to these groups.
    pub fn add(&mut self, call: &Call, batch: &Batch, groups: Rows<'_>) -> Result<(), Stop> {
        let filtered = match &call.filter {
            Some(filter) => Some(filter.eval(batch)?),
            None => None,
        };
        if let (States::Zeroed(_, zeros), Some(truth)) = (&mut *self, &filtered) {
            let rows = Counted {
                groups,
                counts: truth.iter().map(|t| *t != TRUE).collect(),
            };
            rows.each(truth, |group, _| zeros[group] += 1);
        }
        let operand = match &call.argument {
            Some(argument) => Some(argument.eval(batch)?),
            None => None,
        };
        let nulls = operand.as_ref().map_or(&[][..], |o| o.nulls());
        // Which rows count. Empty: all.
        let counts: Vec<bool> = match (&filtered, nulls.is_empty()) {
            (None, true) => Vec::new(),
            (None, false) => nulls.iter().map(|null| !null).collect(),
            (Some(truth), true) => truth.iter().map(|t| *t == TRUE).collect(),
            (Some(truth), false) => {
                let both = truth.iter().zip(nulls);
                both.map(|(t, null)| *t == TRUE && !null).collect()
            }
        };
        let rows = Counted { groups, counts };
        let Some(operand) = operand else {
            return self.add_rows(batch.rows, &rows);
        };
        match operand.column() {
            Some(column) => self.add_column(call, column, &rows),
            None => self.add_column(call, &operand.into_column(batch.rows), &rows),
        }
    }

    fn add_rows(&mut self, number: usize, rows: &Counted<'_>) -> Result<(), Stop> {
        let States::Count(counts) = self else {
            return Err(misfit());
        };
        match rows.groups {
            Rows::All if rows.counts.is_empty() => counts[0] += number as i64,
            _ => rows.each(&vec![(); number], |group, ()| counts[group] += 1),
        }
        Ok(())
    }

    fn add_column(&mut self, call: &Call, column: &Column, rows: &Counted<'_>) -> Result<(), Stop> {
        let max = matches!(call.kind, Kind::Best { max: true, .. });
        let mut stops = false;
        match (self, &column.values) {
            (counts @ States::Count(_), _) => return counts.add_rows(column.len(), rows),
            (States::Integers(sums), Values::Int(v)) => match rows.groups {
                Rows::All if rows.counts.is_empty() => {
                    sums[0].sum += v.iter().map(|v| i128::from(*v)).sum::<i128>();
                    sums[0].count += v.len() as i64;
                }
                _ => rows.each(v, |group, v| {
                    let sum = &mut sums[group];
                    sum.sum += i128::from(v);
                    sum.count += 1;
                }),
            },
            (States::Decimals(sums) | States::Zeroed(sums, _), Values::Decimal(v)) => {
                rows.each(v, |group, v| {
                    let (sum, wrapped) = sums[group].sum.overflowing_add(v);
                    stops |= wrapped;
                    sums[group].sum = sum;
                    sums[group].count += 1;
                })
            }
            (States::Floats(sums), Values::Float(v)) => {
                let averaged = matches!(call.kind, Kind::Floats { averaged: true });
                rows.each(v, |group, v| {
                    stops |= averaged && (v.is_nan() || v.abs() > MOST_AVERAGED);
                    let sum = &mut sums[group];
                    // The first value itself: the sum of a negative zero is one.
                    sum.sum = if sum.count == 0 { v } else { sum.sum + v };
                    sum.count += 1;
                });
            }
            (States::Singles(sums), Values::Float(v)) => rows.each(v, |group, v| {
                let (sum, v) = (&mut sums[group], v as f32);
                sum.sum = if sum.count == 0 { v } else { sum.sum + v };
                sum.count += 1;
            }),
            (States::BestInt(best), Values::Int(v)) => rows.each(v, |group, v| {
                let so_far = best[group].get_or_insert(v);
                *so_far = if max {
                    (*so_far).max(v)
                } else {
                    (*so_far).min(v)
                };
            }),
            (States::BestFloat(best), Values::Float(v)) => rows.each(v, |group, v| {
                stops |= better_float(&mut best[group], v, max);
            }),
            (States::BestDecimal(best), Values::Decimal(v)) => rows.each(v, |group, v| {
                let so_far = best[group].get_or_insert(v);
                *so_far = if max {
                    (*so_far).max(v)
                } else {
                    (*so_far).min(v)
                };
            }),
            (States::BestText(best, bytes), Values::Text(v)) => {
                let numbers: Vec<usize> = (0..v.len()).collect();
                rows.each(&numbers, |group, at| {
                    better_text(&mut best[group], v.get(at), max, bytes);
                });
            }
            _ => return Err(misfit()),
        }
        match stops {
            true => Err(Stop::Refused("a value that the order decides on")),
            false => Ok(()),
        }
    }

    /// Takes in the states of another worker, whose groups have these numbers here.
    pub fn merge(&mut self, call: &Call, other: &States, numbers: &[u32]) -> Result<(), Stop> {
        let max = matches!(call.kind, Kind::Best { max: true, .. });
        let mut stops = false;
        let pairs = numbers.iter().map(|n| *n as usize);
        match (self, other) {
            (States::Count(own), States::Count(other)) => {
                pairs.zip(other).for_each(|(at, n)| own[at] += n);
            }
            (States::Integers(own), States::Integers(other))
            | (States::Decimals(own), States::Decimals(other)) => {
                for (at, more) in pairs.zip(other) {
                    let (sum, wrapped) = own[at].sum.overflowing_add(more.sum);
                    stops |= wrapped;
                    own[at].sum = sum;
                    own[at].count += more.count;
                }
            }
            (States::Zeroed(own, zeros), States::Zeroed(other, more)) => {
                for ((at, sum), more) in pairs.zip(other).zip(more) {
                    let (total, wrapped) = own[at].sum.overflowing_add(sum.sum);
                    stops |= wrapped;
                    own[at].sum = total;
                    own[at].count += sum.count;
                    zeros[at] += more;
                }
            }
            (States::Floats(own), States::Floats(other)) => {
                pairs.zip(other).for_each(|(at, more)| own[at].add(more));
            }
            (States::Singles(own), States::Singles(other)) => {
                pairs.zip(other).for_each(|(at, more)| own[at].add(more));
            }
            (States::BestInt(own), States::BestInt(other)) => {
                for (at, v) in pairs.zip(other) {
                    if let Some(v) = *v {
                        let best = own[at].get_or_insert(v);
                        *best = if max { (*best).max(v) } else { (*best).min(v) };
                    }
                }
            }
            (States::BestFloat(own), States::BestFloat(other)) => {
                for (at, v) in pairs.zip(other) {
                    if let Some(v) = v {
                        stops |= better_float(&mut own[at], *v, max);
                    }
                }
            }
            (States::BestDecimal(own), States::BestDecimal(other)) => {
                for (at, v) in pairs.zip(other) {
                    if let Some(v) = *v {
                        let best = own[at].get_or_insert(v);
                        *best = if max { (*best).max(v) } else { (*best).min(v) };
                    }
                }
            }
            (States::BestText(own, bytes), States::BestText(other, _)) => {
                for (at, v) in pairs.zip(other) {
                    if let Some(v) = v {
                        better_text(&mut own[at], v, max, bytes);
                    }
                }
            }
            _ => return Err(misfit()),
        }
        match stops {
            true => Err(Stop::Refused("a value that the order decides on")),
            false => Ok(()),
        }
    }

    /// Stops if there is a result that only the row operators can tell: a sum that is not finite
    /// may be an overflow.
    pub fn check(&self) -> Result<(), Stop> {
        let finite = match self {
            States::Floats(v) => v.iter().all(|s| s.sum.is_finite()),
            States::Singles(v) => v.iter().all(|s| s.sum.is_finite()),
            _ => true,
        };
        match finite {
            true => Ok(()),
            false => Err(Stop::Refused("a sum that is not finite")),
        }
    }

    /// The value of the call for a group.
    pub fn result(&self, call: &Call, group: usize) -> Result<Datum, Stop> {
        let sums = match self {
            States::Count(v) => Sums::Count(v[group]),
            States::Integers(v) => Sums::Integers(v[group].sum, v[group].count),
            States::Decimals(v) => {
                let Kind::Decimals(scale) = call.kind else {
                    return Err(misfit());
                };
                Sums::Decimals(v[group].sum, scale, v[group].count)
            }
            States::Zeroed(v, zeros) => match (call.kind, v[group].count) {
                (_, 0) => Sums::Decimals(0, 0, zeros[group]),
                (Kind::Zeroed(scale), _) => Sums::Decimals(v[group].sum, scale, v[group].count),
                _ => return Err(misfit()),
            },
            States::Floats(v) => Sums::Float8(v[group].sum, v[group].count),
            States::Singles(v) => Sums::Float4(v[group].sum, v[group].count),
            _ => Sums::Best(self.best(call, group)?),
        };
        Ok(State::of(&call.function, sums)?.into_result()?)
    }

    fn best(&self, call: &Call, group: usize) -> Result<Datum, Stop> {
        let Kind::Best { ty, .. } = call.kind else {
            return Err(misfit());
        };
        Ok(match (self, ty) {
            (States::BestInt(v), ty) => v[group].map_or(Datum::Null, |v| ty.datum_of_int(v)),
            (States::BestFloat(v), ty) => v[group].map_or(Datum::Null, |v| ty.datum_of_float(v)),
            (States::BestDecimal(v), Type::Decimal(scale)) => {
                v[group].map_or(Datum::Null, |v| decimal(v, scale))
            }
            (States::BestText(v, _), _) => match &v[group] {
                Some(bytes) => text(bytes)?,
                None => Datum::Null,
            },
            _ => return Err(misfit()),
        })
    }
}

/// Groups of the rows of a batch: one of all, or each its own.
#[derive(Clone, Copy)]
pub enum Rows<'g> {
    All,
    Each(&'g [u32]),
}

struct Counted<'g> {
    groups: Rows<'g>,
    counts: Vec<bool>,
}

impl Counted<'_> {
    /// Calls `f` with the group and the value of each row that counts.
    #[inline(always)]
    fn each<T: Copy>(&self, values: &[T], mut f: impl FnMut(usize, T)) {
        match (self.groups, self.counts.is_empty()) {
            (Rows::All, true) => values.iter().for_each(|v| f(0, *v)),
            (Rows::All, false) => {
                for (v, counts) in values.iter().zip(&self.counts) {
                    if *counts {
                        f(0, *v);
                    }
                }
            }
            (Rows::Each(groups), true) => {
                for (v, group) in values.iter().zip(groups) {
                    f(*group as usize, *v);
                }
            }
            (Rows::Each(groups), false) => {
                for ((v, group), counts) in values.iter().zip(groups).zip(&self.counts) {
                    if *counts {
                        f(*group as usize, *v);
                    }
                }
            }
        }
    }
}

fn misfit() -> Stop {
    crate::Error::internal("an aggregate of another layout").into()
}

pub fn decimal(value: i128, scale: u16) -> Datum {
    Datum::Numeric(Numeric::from(Short { value, scale }))
}

/// Takes a float if it is better; true if it equals the best and looks different, so that the last
/// of them counts.
#[inline]
fn better_float(best: &mut Option<f64>, v: f64, max: bool) -> bool {
    let so_far = best.get_or_insert(v);
    if so_far.is_nan() || v.is_nan() {
        // NaN is above all.
        if v.is_nan() == max {
            *so_far = v;
        }
        return false;
    }
    if if max { v > *so_far } else { v < *so_far } {
        *so_far = v;
        return false;
    }
    v == *so_far && v.to_bits() != so_far.to_bits()
}

fn better_text(best: &mut Option<Box<[u8]>>, v: &[u8], max: bool, bytes: &mut usize) {
    let better = match best {
        None => true,
        Some(best) if max => v > &**best,
        Some(best) => v < &**best,
    };
    if better {
        *bytes += v.len();
        *bytes -= best.as_ref().map_or(0, |b| b.len());
        *best = Some(v.into());
    }
}
