//! Conditions over batches: the truth of each row.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::Stop;
use super::batch::{Batch, Layout};
use super::expr::{Constant, Source, Value};
use crate::expr::CmpOp;
use crate::expr::like::Pieces;

#[derive(Clone, Debug)]
pub enum Condition {
    Known(Option<bool>),
    /// Of a boolean.
    Value(Value),
    /// Of two values of one layout, and decimals of one scale.
    Compare(CmpOp, Value, Value),
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Not(Box<Condition>),
    IsNull(Value, bool),
    /// IS [NOT] TRUE / FALSE / UNKNOWN.
    Is(Box<Condition>, Option<bool>, bool),
    In(Box<Member>),
    /// LIKE, or not.
    Like(Value, Pieces<Box<[u8]>>, bool),
}

/// Whether a value is among constants.
#[derive(Clone, Debug)]
pub struct Member {
    value: Value,
    ints: HashSet<i64>,
    texts: HashSet<Box<[u8]>>,
    floats: Vec<f64>,
    decimals: Vec<i128>,
    /// NULL is among them, so no value is known not to be.
    null: bool,
    negated: bool,
}

/// Truth of a row: in this order AND is the least of two, OR the greatest.
pub const FALSE: u8 = 0;
pub const UNKNOWN: u8 = 1;
pub const TRUE: u8 = 2;

fn truth(known: Option<bool>) -> u8 {
    match known {
        Some(true) => TRUE,
        Some(false) => FALSE,
        None => UNKNOWN,
    }
}

#[inline]
fn float_order(l: f64, r: f64) -> Ordering {
    match l.partial_cmp(&r) {
        Some(order) => order,
        // NaN equals itself and is above all.
        None => l.is_nan().cmp(&r.is_nan()),
    }
}

/// A comparison of two values for each row, with a loop of its own for each operator.
#[inline]
fn compared<T: Copy>(
    op: CmpOp,
    left: Source<'_, T>,
    right: Source<'_, T>,
    rows: usize,
    order: impl Fn(T, T) -> Ordering + Copy,
) -> Vec<u8> {
    #[inline]
    fn by<T: Copy>(
        left: Source<'_, T>,
        right: Source<'_, T>,
        rows: usize,
        holds: impl Fn(T, T) -> bool,
    ) -> Vec<u8> {
        let truth = |l, r| if holds(l, r) { TRUE } else { FALSE };
        match (left, right) {
            (Source::Each(l), Source::All(r)) => l.iter().map(|l| truth(*l, r)).collect(),
            (Source::Each(l), Source::Each(r)) => {
                l.iter().zip(r).map(|(l, r)| truth(*l, *r)).collect()
            }
            _ => (0..rows)
                .map(|at| truth(left.get(at), right.get(at)))
                .collect(),
        }
    }
    match op {
        CmpOp::Eq => by(left, right, rows, |l, r| order(l, r).is_eq()),
        CmpOp::Ne => by(left, right, rows, |l, r| order(l, r).is_ne()),
        CmpOp::Lt => by(left, right, rows, |l, r| order(l, r).is_lt()),
        CmpOp::Le => by(left, right, rows, |l, r| order(l, r).is_le()),
        CmpOp::Gt => by(left, right, rows, |l, r| order(l, r).is_gt()),
        CmpOp::Ge => by(left, right, rows, |l, r| order(l, r).is_ge()),
    }
}

impl Condition {
    pub fn member(value: Value, members: Vec<Constant>, null: bool, negated: bool) -> Condition {
        let mut member = Member {
            value,
            ints: HashSet::new(),
            texts: HashSet::new(),
            floats: Vec::new(),
            decimals: Vec::new(),
            null,
            negated,
        };
        for constant in members {
            match constant {
                Constant::Int(v) => {
                    member.ints.insert(v);
                }
                Constant::Text(v) => {
                    member.texts.insert(v);
                }
                Constant::Float(v) => member.floats.push(v),
                Constant::Decimal(v) => member.decimals.push(v),
            }
        }
        Condition::In(Box::new(member))
    }

    /// Whether there are values for which it stops.
    pub fn can_stop(&self) -> bool {
        match self {
            Condition::Known(_) => false,
            Condition::Value(v) | Condition::IsNull(v, _) => v.can_stop(),
            Condition::Compare(_, l, r) => l.can_stop() || r.can_stop(),
            Condition::And(list) | Condition::Or(list) => list.iter().any(Condition::can_stop),
            Condition::Not(c) | Condition::Is(c, ..) => c.can_stop(),
            Condition::In(m) => m.value.can_stop(),
            Condition::Like(v, ..) => v.can_stop(),
        }
    }

    /// The truth of each row.
    pub fn eval(&self, batch: &Batch) -> Result<Vec<u8>, Stop> {
        let rows = batch.rows;
        Ok(match self {
            Condition::Known(known) => vec![truth(*known); rows],
            Condition::Value(v) => {
                let v = v.eval(batch)?;
                let ints = v.ints()?;
                let truth = |at| if ints.get(at) != 0 { TRUE } else { FALSE };
                unknown_where((0..rows).map(truth).collect(), v.nulls())
            }
            Condition::Compare(op, left, right) => {
                let (l, r) = (left.eval(batch)?, right.eval(batch)?);
                let truth = match left.ty.layout() {
                    Layout::Int => {
                        let order = |l: i64, r: i64| l.cmp(&r);
                        compared(*op, l.ints()?, r.ints()?, rows, order)
                    }
                    Layout::Float => compared(*op, l.floats()?, r.floats()?, rows, float_order),
                    Layout::Decimal => {
                        let order = |l: i128, r: i128| l.cmp(&r);
                        compared(*op, l.decimals()?, r.decimals()?, rows, order)
                    }
                    Layout::Text => {
                        let one = |at| {
                            let holds = op.holds(l.text(at)?.cmp(r.text(at)?));
                            Ok(if holds { TRUE } else { FALSE })
                        };
                        (0..rows).map(one).collect::<Result<_, Stop>>()?
                    }
                };
                unknown_where(unknown_where(truth, l.nulls()), r.nulls())
            }
            Condition::And(list) => together(list, batch, TRUE, u8::min)?,
            Condition::Or(list) => together(list, batch, FALSE, u8::max)?,
            Condition::Not(c) => {
                let mut truth = c.eval(batch)?;
                truth.iter_mut().for_each(|t| *t = TRUE - *t);
                truth
            }
            Condition::IsNull(v, negated) => {
                let v = v.eval(batch)?;
                let nulls = v.nulls();
                let null = |at| nulls.get(at).copied().unwrap_or(false);
                let one = |at| truth(Some(null(at) != *negated));
                (0..rows).map(one).collect()
            }
            Condition::Is(c, value, negated) => {
                let wanted = truth(*value);
                let mut list = c.eval(batch)?;
                for t in &mut list {
                    *t = truth(Some((*t == wanted) != *negated));
                }
                list
            }
            Condition::In(member) => member.eval(batch)?,
            Condition::Like(v, pieces, negated) => {
                let v = v.eval(batch)?;
                let one = |at| {
                    let matches = pieces.matches(v.text(at)?);
                    Ok(truth(Some(matches != *negated)))
                };
                let truth = (0..rows).map(one).collect::<Result<_, Stop>>()?;
                unknown_where(truth, v.nulls())
            }
        })
    }
}

fn together(
    list: &[Condition],
    batch: &Batch,
    begin: u8,
    both: impl Fn(u8, u8) -> u8,
) -> Result<Vec<u8>, Stop> {
    let mut truth = vec![begin; batch.rows];
    for condition in list {
        let more = condition.eval(batch)?;
        for (t, m) in truth.iter_mut().zip(more) {
            *t = both(*t, m);
        }
    }
    Ok(truth)
}

fn unknown_where(mut truth: Vec<u8>, nulls: &[bool]) -> Vec<u8> {
    for (t, null) in truth.iter_mut().zip(nulls) {
        if *null {
            *t = UNKNOWN;
        }
    }
    truth
}

impl Member {
    fn eval(&self, batch: &Batch) -> Result<Vec<u8>, Stop> {
        let value = self.value.eval(batch)?;
        let rows = batch.rows;
        let found: Vec<bool> = match self.value.ty.layout() {
            Layout::Int => {
                let v = value.ints()?;
                (0..rows).map(|at| self.ints.contains(&v.get(at))).collect()
            }
            Layout::Float => {
                let v = value.floats()?;
                let is = |at| {
                    let same = |m: &f64| float_order(v.get(at), *m).is_eq();
                    self.floats.iter().any(same)
                };
                (0..rows).map(is).collect()
            }
            Layout::Decimal => {
                let v = value.decimals()?;
                (0..rows)
                    .map(|at| self.decimals.contains(&v.get(at)))
                    .collect()
            }
            Layout::Text => {
                let is = |at| Ok(self.texts.contains(value.text(at)?));
                (0..rows).map(is).collect::<Result<_, Stop>>()?
            }
        };
        let truth = found
            .into_iter()
            .map(|found| match (found, self.null) {
                (true, _) => truth(Some(!self.negated)),
                (false, false) => truth(Some(self.negated)),
                (false, true) => UNKNOWN,
            })
            .collect();
        Ok(unknown_where(truth, value.nulls()))
    }
}
