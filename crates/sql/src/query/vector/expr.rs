//! Expressions over batches: a value or a truth for each row.
//!
//! **Invariant.** What a row's expression would answer with an error (an overflow, a division by
//! zero) is no answer here: evaluation stops with [`Stop::Refused`], and the row operators say what
//! is to be said. So more may be computed here than the row operators would.

use super::Stop;
use super::batch::{Batch, Column, Layout, Texts, Type, Values};
use super::condition::{Condition, TRUE, UNKNOWN};
use crate::expr::ArithOp;
use crate::pgtype::calendar::civil_from_days;

#[derive(Clone, Debug)]
pub enum Constant {
    Int(i64),
    Float(f64),
    Decimal(i128),
    Text(Box<[u8]>),
}

/// An expression of a known type.
#[derive(Clone, Debug)]
pub struct Value {
    pub ty: Type,
    pub operation: Operation,
}

#[derive(Clone, Debug)]
pub enum Operation {
    /// By its place in the batch.
    Column(usize),
    Constant(Constant),
    /// Of two values of one layout, decimals of one scale if they are added.
    Arith(ArithOp, Box<Value>, Box<Value>),
    Negate(Box<Value>),
    /// An integer as a double.
    ToFloat(Box<Value>),
    /// An integer as a decimal without digits after the point.
    ToDecimal(Box<Value>),
    /// An integer as one of another type.
    Narrow(Box<Value>),
    /// A single as a double, which it is already.
    Widen(Box<Value>),
    /// A decimal times a power of ten: with more digits after the point.
    Rescale(Box<Value>, i128),
    /// A string without the blanks at its end.
    Trim(Box<Value>),
    /// Of a string, from a character on, counted from 0, so many.
    Substring(Box<Value>, usize, usize),
    /// The year of a date, as a decimal without digits after the point.
    Year(Box<Value>),
    Truth(Box<Condition>),
    /// A branch without a value is NULL, and so is the end without one.
    Case(Vec<(Condition, Option<Value>)>, Option<Box<Value>>),
}

/// The values of an expression for the rows of a batch.
pub enum Operand<'b> {
    Column(&'b Column),
    Owned(Column),
    Constant(&'b Constant),
}

/// Of one layout: a value for each row, or one for all.
#[derive(Clone, Copy)]
pub enum Source<'s, T> {
    Each(&'s [T]),
    All(T),
}

impl<T: Copy> Source<'_, T> {
    #[inline(always)]
    pub fn get(&self, at: usize) -> T {
        match self {
            Source::Each(list) => list[at],
            Source::All(value) => *value,
        }
    }
}

fn misfit() -> Stop {
    crate::Error::internal("values of two layouts in a batch").into()
}

impl Operand<'_> {
    pub fn column(&self) -> Option<&Column> {
        match self {
            Operand::Column(c) => Some(c),
            Operand::Owned(c) => Some(c),
            Operand::Constant(_) => None,
        }
    }

    pub fn nulls(&self) -> &[bool] {
        self.column().map_or(&[], |c| &c.nulls)
    }

    pub fn ints(&self) -> Result<Source<'_, i64>, Stop> {
        match (self.column().map(|c| &c.values), self) {
            (Some(Values::Int(v)), _) => Ok(Source::Each(v)),
            (None, Operand::Constant(Constant::Int(v))) => Ok(Source::All(*v)),
            _ => Err(misfit()),
        }
    }

    pub fn floats(&self) -> Result<Source<'_, f64>, Stop> {
        match (self.column().map(|c| &c.values), self) {
            (Some(Values::Float(v)), _) => Ok(Source::Each(v)),
            (None, Operand::Constant(Constant::Float(v))) => Ok(Source::All(*v)),
            _ => Err(misfit()),
        }
    }

    pub fn decimals(&self) -> Result<Source<'_, i128>, Stop> {
        match (self.column().map(|c| &c.values), self) {
            (Some(Values::Decimal(v)), _) => Ok(Source::Each(v)),
            (None, Operand::Constant(Constant::Decimal(v))) => Ok(Source::All(*v)),
            _ => Err(misfit()),
        }
    }

    /// As a column of so many rows.
    pub fn into_column(self, rows: usize) -> Column {
        match self {
            Operand::Column(c) => c.clone(),
            Operand::Owned(c) => c,
            Operand::Constant(c) => Column {
                values: match c {
                    Constant::Int(v) => Values::Int(vec![*v; rows]),
                    Constant::Float(v) => Values::Float(vec![*v; rows]),
                    Constant::Decimal(v) => Values::Decimal(vec![*v; rows]),
                    Constant::Text(v) => {
                        let mut texts = Texts::default();
                        (0..rows).for_each(|_| texts.push(v));
                        Values::Text(texts)
                    }
                },
                nulls: Vec::new(),
            },
        }
    }

    pub fn text(&self, at: usize) -> Result<&[u8], Stop> {
        match (self.column().map(|c| &c.values), self) {
            (Some(Values::Text(v)), _) => Ok(v.get(at)),
            (None, Operand::Constant(Constant::Text(v))) => Ok(v),
            _ => Err(misfit()),
        }
    }
}

/// Which rows are NULL on either side.
fn either(left: &[bool], right: &[bool]) -> Vec<bool> {
    match (left.is_empty(), right.is_empty()) {
        (true, _) => right.to_vec(),
        (_, true) => left.to_vec(),
        _ => left.iter().zip(right).map(|(l, r)| l | r).collect(),
    }
}

impl Value {
    pub fn new(ty: Type, operation: Operation) -> Value {
        Value { ty, operation }
    }

    /// Whether there are values for which it stops.
    pub fn can_stop(&self) -> bool {
        match &self.operation {
            Operation::Column(_) | Operation::Constant(_) => false,
            Operation::Trim(v)
            | Operation::Substring(v, ..)
            | Operation::ToFloat(v)
            | Operation::ToDecimal(v)
            | Operation::Widen(v) => v.can_stop(),
            Operation::Truth(c) => c.can_stop(),
            Operation::Case(branches, otherwise) => {
                let branch = |(c, v): &(Condition, Option<Value>)| {
                    c.can_stop() || v.as_ref().is_some_and(Value::can_stop)
                };
                branches.iter().any(branch) || otherwise.as_ref().is_some_and(|v| v.can_stop())
            }
            Operation::Arith(..)
            | Operation::Negate(_)
            | Operation::Narrow(_)
            | Operation::Year(_)
            | Operation::Rescale(..) => true,
        }
    }

    pub fn eval<'b>(&'b self, batch: &'b Batch) -> Result<Operand<'b>, Stop> {
        let rows = batch.rows;
        let owned = |values, nulls| Ok(Operand::Owned(Column { values, nulls }));
        match &self.operation {
            Operation::Column(at) => Ok(Operand::Column(&batch.columns[*at])),
            Operation::Constant(c) => Ok(Operand::Constant(c)),
            Operation::Arith(op, left, right) => {
                let (left, right) = (left.eval(batch)?, right.eval(batch)?);
                let nulls = either(left.nulls(), right.nulls());
                let values = self.arith(*op, &left, &right, rows, &nulls)?;
                owned(values, nulls)
            }
            Operation::Negate(v) => {
                let v = v.eval(batch)?;
                let nulls = v.nulls().to_vec();
                let values = match self.ty.layout() {
                    Layout::Float => {
                        let v = v.floats()?;
                        let negated = |at| match v.get(at) {
                            f if f.is_nan() => f,
                            f => -f,
                        };
                        Values::Float((0..rows).map(negated).collect())
                    }
                    Layout::Decimal => {
                        let v = v.decimals()?;
                        Values::Decimal((0..rows).map(|at| -v.get(at)).collect())
                    }
                    _ => {
                        let zero = Source::All(0);
                        let v = v.ints()?;
                        Values::Int(self.integers(zero, v, rows, &nulls, i64::overflowing_sub)?)
                    }
                };
                owned(values, nulls)
            }
            Operation::ToFloat(v) => {
                let v = v.eval(batch)?;
                let ints = v.ints()?;
                let values = (0..rows).map(|at| ints.get(at) as f64).collect();
                owned(Values::Float(values), v.nulls().to_vec())
            }
            Operation::ToDecimal(v) => {
                let v = v.eval(batch)?;
                let ints = v.ints()?;
                let values = (0..rows).map(|at| ints.get(at).into()).collect();
                owned(Values::Decimal(values), v.nulls().to_vec())
            }
            Operation::Narrow(v) => {
                let v = v.eval(batch)?;
                let nulls = v.nulls().to_vec();
                let same = |l: i64, r: i64| (l.wrapping_add(r), false);
                let values = self.integers(v.ints()?, Source::All(0), rows, &nulls, same)?;
                owned(Values::Int(values), nulls)
            }
            Operation::Widen(v) => v.eval(batch),
            Operation::Rescale(v, power) => {
                let v = v.eval(batch)?;
                let power = Source::All(*power);
                let values = each(v.decimals()?, power, rows, v.nulls(), product)?;
                owned(Values::Decimal(values), v.nulls().to_vec())
            }
            Operation::Trim(v) => {
                let v = v.eval(batch)?;
                let mut texts = Texts::default();
                for at in 0..rows {
                    texts.push(trimmed(v.text(at)?));
                }
                owned(Values::Text(texts), v.nulls().to_vec())
            }
            Operation::Substring(v, from, length) => {
                let v = v.eval(batch)?;
                let mut texts = Texts::default();
                for at in 0..rows {
                    texts.push(substring(v.text(at)?, *from, *length)?);
                }
                owned(Values::Text(texts), v.nulls().to_vec())
            }
            Operation::Year(v) => {
                let v = v.eval(batch)?;
                let years = each(v.ints()?, Source::All(0), rows, v.nulls(), |day, _| {
                    year(day)
                })?;
                owned(Values::Decimal(years), v.nulls().to_vec())
            }
            Operation::Truth(condition) => {
                let truth = condition.eval(batch)?;
                let values = truth.iter().map(|t| i64::from(*t == TRUE)).collect();
                let nulls = match truth.contains(&UNKNOWN) {
                    true => truth.iter().map(|t| *t == UNKNOWN).collect(),
                    false => Vec::new(),
                };
                owned(Values::Int(values), nulls)
            }
            Operation::Case(branches, otherwise) => Ok(Operand::Owned(self.case(
                branches,
                otherwise.as_deref(),
                batch,
            )?)),
        }
    }

    fn arith(
        &self,
        op: ArithOp,
        left: &Operand<'_>,
        right: &Operand<'_>,
        rows: usize,
        nulls: &[bool],
    ) -> Result<Values, Stop> {
        use ArithOp::{Add, Div, Mod, Mul, Sub};
        Ok(match self.ty.layout() {
            Layout::Int => {
                let (l, r) = (left.ints()?, right.ints()?);
                Values::Int(match op {
                    Add => self.integers(l, r, rows, nulls, i64::overflowing_add)?,
                    Sub => self.integers(l, r, rows, nulls, i64::overflowing_sub)?,
                    Mul => self.integers(l, r, rows, nulls, i64::overflowing_mul)?,
                    Div => self.integers(l, r, rows, nulls, quotient)?,
                    Mod => self.integers(l, r, rows, nulls, remainder)?,
                    _ => return Err(misfit()),
                })
            }
            Layout::Float => {
                let (l, r) = (left.floats()?, right.floats()?);
                let single = self.ty == Type::Float4;
                let of = |f: fn(f64, f64) -> (f64, bool)| {
                    each(l, r, rows, nulls, |l, r| match (f(l, r), single) {
                        ((wide, stops), true) => {
                            let narrow = f64::from(wide as f32);
                            let lost = narrow.is_infinite() && !wide.is_infinite()
                                || narrow == 0.0 && wide != 0.0;
                            (narrow, stops | lost)
                        }
                        (wide, false) => wide,
                    })
                };
                Values::Float(match op {
                    Add => of(|l, r| bounded(l, r, l + r))?,
                    Sub => of(|l, r| bounded(l, r, l - r))?,
                    Mul => of(|l, r| seen(l, r, l * r))?,
                    Div => of(|l, r| {
                        let (result, stops) = seen(l, r, l / r);
                        (result, stops | (r == 0.0))
                    })?,
                    _ => return Err(misfit()),
                })
            }
            Layout::Decimal => {
                let (l, r) = (left.decimals()?, right.decimals()?);
                Values::Decimal(match op {
                    Add => each(l, r, rows, nulls, i128::overflowing_add)?,
                    Sub => each(l, r, rows, nulls, i128::overflowing_sub)?,
                    Mul => each(l, r, rows, nulls, product)?,
                    _ => return Err(misfit()),
                })
            }
            Layout::Text => return Err(misfit()),
        })
    }

    /// An operation on integers, whose result is within the type.
    #[inline]
    fn integers(
        &self,
        left: Source<'_, i64>,
        right: Source<'_, i64>,
        rows: usize,
        nulls: &[bool],
        f: impl Fn(i64, i64) -> (i64, bool),
    ) -> Result<Vec<i64>, Stop> {
        let Some((least, most)) = self.ty.range() else {
            return Err(misfit());
        };
        each(left, right, rows, nulls, |l, r| {
            let (result, stops) = f(l, r);
            (result, stops | (result < least) | (result > most))
        })
    }

    fn case(
        &self,
        branches: &[(Condition, Option<Value>)],
        otherwise: Option<&Value>,
        batch: &Batch,
    ) -> Result<Column, Stop> {
        let rows = batch.rows;
        // From the last to the first, so that the first that holds stays.
        let mut chosen = match otherwise {
            Some(v) => v.eval(batch)?.into_column(rows),
            None => nothing(self.ty.layout(), rows),
        };
        for (condition, value) in branches.iter().rev() {
            let truth = condition.eval(batch)?;
            let value = match value {
                Some(v) => v.eval(batch)?.into_column(rows),
                None => nothing(self.ty.layout(), rows),
            };
            fn put<T: Copy>(into: &mut [T], from: &[T], truth: &[u8]) {
                for ((to, from), truth) in into.iter_mut().zip(from).zip(truth) {
                    if *truth == TRUE {
                        *to = *from;
                    }
                }
            }
            match (&mut chosen.values, &value.values) {
                (Values::Int(to), Values::Int(from)) => put(to, from, &truth),
                (Values::Float(to), Values::Float(from)) => put(to, from, &truth),
                (Values::Decimal(to), Values::Decimal(from)) => put(to, from, &truth),
                _ => return Err(misfit()),
            }
            if !chosen.nulls.is_empty() || !value.nulls.is_empty() {
                chosen.nulls.resize(rows, false);
                for (at, null) in chosen.nulls.iter_mut().enumerate() {
                    if truth[at] == TRUE {
                        *null = value.nulls.get(at).copied().unwrap_or(false);
                    }
                }
            }
        }
        Ok(chosen)
    }
}

/// A column of NULLs.
fn nothing(layout: Layout, rows: usize) -> Column {
    Column {
        values: match layout {
            Layout::Int => Values::Int(vec![0; rows]),
            Layout::Float => Values::Float(vec![0.0; rows]),
            Layout::Decimal => Values::Decimal(vec![0; rows]),
            Layout::Text => {
                let mut texts = Texts::default();
                (0..rows).for_each(|_| texts.push(&[]));
                Values::Text(texts)
            }
        },
        nulls: vec![true; rows],
    }
}

fn trimmed(text: &[u8]) -> &[u8] {
    let blanks = text.iter().rev().take_while(|b| **b == b' ').count();
    &text[..text.len() - blanks]
}

fn substring(text: &[u8], from: usize, length: usize) -> Result<&[u8], Stop> {
    if text.is_ascii() {
        let from = from.min(text.len());
        return Ok(&text[from..from.saturating_add(length).min(text.len())]);
    }
    let text = std::str::from_utf8(text).map_err(|_| Stop::Refused("text that is not UTF-8"))?;
    let place = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    Ok(&text.as_bytes()[place(from)..place(from.saturating_add(length))])
}

/// The year of a day after Christ; infinite days stop.
#[inline]
fn year(day: i64) -> (i128, bool) {
    let year = civil_from_days(day).year;
    (
        year.into(),
        year < 1 || day.unsigned_abs() >= i32::MAX as u64,
    )
}

/// Calls `f`, which says whether it stops, for each row.
#[inline]
fn each<T: Copy, R>(
    left: Source<'_, T>,
    right: Source<'_, T>,
    rows: usize,
    nulls: &[bool],
    f: impl Fn(T, T) -> (R, bool),
) -> Result<Vec<R>, Stop> {
    let mut stops = false;
    let list = match (left, right) {
        (Source::Each(l), Source::All(r)) if nulls.is_empty() => {
            let one = |l: &T| {
                let (result, stop) = f(*l, r);
                stops |= stop;
                result
            };
            l.iter().map(one).collect()
        }
        (Source::Each(l), Source::Each(r)) if nulls.is_empty() => {
            let both = |(l, r): (&T, &T)| {
                let (result, stop) = f(*l, *r);
                stops |= stop;
                result
            };
            l.iter().zip(r).map(both).collect()
        }
        _ => {
            let any = |at| {
                let (result, stop) = f(left.get(at), right.get(at));
                stops |= stop && !nulls.get(at).copied().unwrap_or(false);
                result
            };
            (0..rows).map(any).collect()
        }
    };
    match stops {
        true => Err(Stop::Refused("a value out of range")),
        false => Ok(list),
    }
}

#[inline]
fn quotient(l: i64, r: i64) -> (i64, bool) {
    match r {
        0 => (0, true),
        r => l.overflowing_div(r),
    }
}

#[inline]
fn remainder(l: i64, r: i64) -> (i64, bool) {
    match (u32::try_from(l), u32::try_from(r)) {
        (_, Ok(0)) => (0, true),
        // Processors take several times as long for 64 bits.
        (Ok(l), Ok(r)) => ((l % r).into(), false),
        _ => (l.wrapping_rem(r), false),
    }
}

/// A product, by one multiplication if both sides have 64 bits.
#[inline]
fn product(l: i128, r: i128) -> (i128, bool) {
    match (i64::try_from(l), i64::try_from(r)) {
        (Ok(l), Ok(r)) => (i128::from(l) * i128::from(r), false),
        _ => l.overflowing_mul(r),
    }
}

/// A float that has not grown infinite.
#[inline]
fn bounded(l: f64, r: f64, result: f64) -> (f64, bool) {
    (
        result,
        result.is_infinite() && l.is_finite() && r.is_finite(),
    )
}

/// A float that has neither grown infinite nor vanished.
#[inline]
fn seen(l: f64, r: f64, result: f64) -> (f64, bool) {
    let finite = l.is_finite() && r.is_finite();
    let vanished = result == 0.0 && l != 0.0 && r != 0.0;
    (result, finite && (result.is_infinite() || vanished))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substrings_are_of_characters() {
        let of = |text: &str, from, length| {
            let part = substring(text.as_bytes(), from, length).unwrap();
            String::from_utf8(part.to_vec()).unwrap()
        };
        assert_eq!(of("abcd", 1, 2), "bc");
        assert_eq!(of("abcd", 3, 9), "d");
        assert_eq!(of("ab", 5, 1), "");
        assert_eq!(of("äöü", 1, 1), "ö");
        assert_eq!(of("äöü", 2, usize::MAX), "ü");
    }
}
