//! How large a part of a table's rows meets a condition: by what ANALYZE found out, or by guess.
//! The rules are those of PostgreSQL's `selfuncs.c`.

use std::cmp::Ordering;

use block::value::{Datum, DatumRef};

use super::inverted;
use super::path::{KeyBound, in_list, key_column, key_term, like_prefix};
use crate::dict::{ColumnStats, Stats, Table};
use crate::expr::number::to_f64;
use crate::expr::{CmpOp, Expr, compare};
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

/// Rows assumed of a table that was never analyzed.
const UNKNOWN_ROWS: f64 = 1000.0;
/// Guesses, where statistics say nothing.
const RANGE_SHARE: f64 = 0.3;
/// Of a range with both ends, such as `BETWEEN $1 AND $2`: whoever asks for one means few rows. It
/// is PostgreSQL's guess, too.
const BETWEEN_SHARE: f64 = 0.005;
pub const EQUAL_SHARE: f64 = 0.005;
/// Of a range that statistics say is empty: they may be old.
const LEAST_RANGE_SHARE: f64 = 0.0001;

/// What is known of a table's rows.
#[derive(Clone, Copy)]
pub struct Estimate<'s> {
    pub table: &'s Table,
    pub stats: Option<&'s Stats>,
}

impl Estimate<'_> {
    pub fn rows(&self) -> f64 {
        self.stats.map_or(UNKNOWN_ROWS, |s| s.rows.max(1.0))
    }

    fn column(&self, column: usize) -> Option<&ColumnStats> {
        self.stats?.column(column)
    }

    /// How far the table is in the order of a column: 1 and -1 if it is, 0 if not or unknown.
    pub fn correlation(&self, column: usize) -> f64 {
        let column = self.column(column);
        column.and_then(|c| c.correlation).unwrap_or(0.0)
    }

    /// Distinct values of a column, if that is known.
    pub fn distinct(&self, column: usize) -> Option<f64> {
        let distinct = self.column(column)?.distinct_of(self.rows());
        (distinct >= 1.0).then_some(distinct)
    }

    /// The part in which a column has one value, whichever.
    pub fn equal(&self, column: usize) -> f64 {
        match (self.column(column), self.distinct(column)) {
            (Some(c), Some(distinct)) => (1.0 - c.null_fraction) / distinct,
            _ => EQUAL_SHARE,
        }
    }

    /// The part in which a column has this value.
    pub fn equal_to(&self, column: usize, value: &Expr) -> f64 {
        self.known_equal(column, value)
            .unwrap_or_else(|| self.equal(column))
    }

    fn known_equal(&self, column: usize, value: &Expr) -> Option<f64> {
        let (known, value) = (self.column(column)?, constant(value)?);
        if value.is_null() {
            return Some(0.0);
        }
        let common = &known.values(self.table.columns[column].ty()).common;
        let found = common
            .iter()
            .zip(&known.frequencies)
            .find(|(v, _)| compare(v.borrow(), value.borrow()).is_ok_and(Ordering::is_eq));
        if let Some((_, frequency)) = found {
            return Some(*frequency);
        }
        let of_common: f64 = known.frequencies.iter().sum();
        let rest = (1.0 - of_common - known.null_fraction).max(0.0);
        let others = self.distinct(column)? - known.frequencies.len() as f64;
        let share = rest / others.max(1.0);
        // It is no more common than the least of the most common.
        let least = known.frequencies.last().copied().unwrap_or(1.0);
        Some(share.min(least))
    }

    /// One of these values.
    pub fn one_of(&self, column: usize, values: &[Expr]) -> f64 {
        let each = values.iter().map(|v| self.equal_to(column, v));
        each.sum::<f64>().min(1.0)
    }

    /// A value within bounds.
    pub fn range(&self, column: usize, low: Option<&KeyBound>, high: Option<&KeyBound>) -> f64 {
        self.known_range(column, low, high)
            .unwrap_or(match (low, high) {
                (None, None) => 1.0,
                (Some(_), Some(_)) => BETWEEN_SHARE,
                _ => RANGE_SHARE,
            })
    }

    /// The same, if the bounds are constants, and statistics have values to compare them with.
    fn known_range(
        &self,
        column: usize,
        low: Option<&KeyBound>,
        high: Option<&KeyBound>,
    ) -> Option<f64> {
        let known = self.column(column)?;
        let ty = self.table.columns[column].ty();
        let values = known.values(ty);
        if values.common.is_empty() && values.bounds.len() < 2 {
            return None;
        }
        let value = |b: Option<&KeyBound>| match b {
            None => Some(None),
            Some(b) => constant(&b.value).map(|v| Some((v, b.inclusive))),
        };
        let (low, high) = (value(low)?, value(high)?);
        let above = |v: &Datum| match &low {
            None => Some(true),
            Some((bound, inclusive)) => match compare(v.borrow(), bound.borrow()).ok()? {
                Ordering::Less => Some(false),
                Ordering::Equal => Some(*inclusive),
                Ordering::Greater => Some(true),
            },
        };
        let below = |v: &Datum| match &high {
            None => Some(true),
            Some((bound, inclusive)) => match compare(v.borrow(), bound.borrow()).ok()? {
                Ordering::Less => Some(true),
                Ordering::Equal => Some(*inclusive),
                Ordering::Greater => Some(false),
            },
        };
        let mut share = 0.0;
        for (v, frequency) in values.common.iter().zip(&known.frequencies) {
            if above(v)? && below(v)? {
                share += frequency;
            }
        }
        let of_common: f64 = known.frequencies.iter().sum();
        let rest = (1.0 - of_common - known.null_fraction).max(0.0);
        let place = |bound: &Option<(Datum, bool)>, open: f64| match bound {
            None => Some(open),
            Some((v, _)) => place(ty, &values.bounds, v),
        };
        if values.bounds.len() >= 2 {
            let part = place(&high, 1.0)? - place(&low, 0.0)?;
            // A value at a bound belongs to it.
            let at_bounds = [&low, &high].into_iter().flatten().filter(|b| b.1).count();
            let others = self.distinct(column)? - known.frequencies.len() as f64;
            let at_bound = at_bounds.min(1) as f64 / others.max(1.0);
            share += rest * (part.max(0.0) + at_bound).min(1.0);
        }
        Some(share.clamp(LEAST_RANGE_SHARE, 1.0))
    }

    /// What meets a term of a condition, over a row in which the table's columns come after
    /// `offset` others.
    pub fn term(&self, term: &Expr, offset: usize) -> f64 {
        if let Some(key) = key_term(term, offset, self.table.columns.len()) {
            let bound = |inclusive| KeyBound {
                value: key.value.clone(),
                inclusive,
            };
            return match key.op {
                CmpOp::Eq => self.equal_to(key.column, key.value),
                CmpOp::Ne => self.not(key.column, self.equal_to(key.column, key.value)),
                CmpOp::Gt => self.range(key.column, Some(&bound(false)), None),
                CmpOp::Ge => self.range(key.column, Some(&bound(true)), None),
                CmpOp::Lt => self.range(key.column, None, Some(&bound(false))),
                CmpOp::Le => self.range(key.column, None, Some(&bound(true))),
            };
        }
        let own = |e: &Expr| match key_column(e) {
            Some((slot, _)) if slot >= offset => Some(slot - offset),
            _ => None,
        };
        let share = match term {
            Expr::And(list) => return self.all(list, offset),
            Expr::Or(list) => {
                let none: f64 = list.iter().map(|e| 1.0 - self.term(e, offset)).product();
                return 1.0 - none;
            }
            Expr::Not(e) => return 1.0 - self.term(e, offset),
            Expr::IsNull { expr, negated } => own(expr).and_then(|c| {
                let nulls = self.column(c)?.null_fraction;
                Some(if *negated { 1.0 - nulls } else { nulls })
            }),
            Expr::Column(_) => {
                let truth = Expr::Const(Datum::Bool(true));
                own(term).map(|c| self.equal_to(c, &truth))
            }
            Expr::InList { expr, negated, .. } => own(expr).and_then(|c| {
                let positive = positive(term)?;
                let (list, _) = in_list(&positive, c + offset, offset)?;
                let share = self.one_of(c, list);
                Some(if *negated { self.not(c, share) } else { share })
            }),
            Expr::Like { expr, negated, .. } => own(expr).and_then(|c| {
                let positive = positive(term)?;
                let (low, high) = like_prefix(&positive, c + offset)?;
                let share = self.known_range(c, Some(&low), high.as_ref())?;
                Some(if *negated { self.not(c, share) } else { share })
            }),
            Expr::Compare(CmpOp::Eq, ..) => Some(EQUAL_SHARE),
            Expr::Call(..) => inverted::share(term),
            _ => None,
        };
        share.unwrap_or(RANGE_SHARE)
    }

    /// What meets all terms, as if they had nothing to do with each other, but for bounds of one
    /// column.
    pub fn all(&self, terms: &[Expr], offset: usize) -> f64 {
        let width = self.table.columns.len();
        let mut share = 1.0;
        // By column: the first lower and the first upper bound.
        let mut ranges: Vec<(usize, [Option<KeyBound>; 2])> = Vec::new();
        for term in terms {
            let key = key_term(term, offset, width);
            let Some((key, upper)) = key.and_then(|k| match k.op {
                CmpOp::Gt | CmpOp::Ge => Some((k, false)),
                CmpOp::Lt | CmpOp::Le => Some((k, true)),
                _ => None,
            }) else {
                share *= self.term(term, offset);
                continue;
            };
            let at = match ranges.iter().position(|(c, _)| *c == key.column) {
                Some(at) => at,
                None => {
                    ranges.push((key.column, [None, None]));
                    ranges.len() - 1
                }
            };
            let place = &mut ranges[at].1[usize::from(upper)];
            match place {
                Some(_) => share *= self.term(term, offset),
                None => {
                    *place = Some(KeyBound {
                        value: key.value.clone(),
                        inclusive: matches!(key.op, CmpOp::Ge | CmpOp::Le),
                    });
                }
            }
        }
        for (column, [low, high]) in &ranges {
            share *= self.range(*column, low.as_ref(), high.as_ref());
        }
        share
    }

    /// The rest of the rows in which a column is not NULL.
    fn not(&self, column: usize, share: f64) -> f64 {
        let nulls = self.column(column).map_or(0.0, |c| c.null_fraction);
        (1.0 - nulls - share).max(0.0)
    }
}

/// The condition without its NOT.
fn positive(term: &Expr) -> Option<Expr> {
    let mut positive = term.clone();
    match &mut positive {
        Expr::InList { negated, .. } | Expr::Like { negated, .. } => *negated = false,
        _ => return None,
    }
    Some(positive)
}

/// Which part of what a histogram describes lies below a value.
fn place(ty: SqlType, bounds: &[Datum], value: &Datum) -> Option<f64> {
    let mut below = 0;
    for bound in bounds {
        match compare(bound.borrow(), value.borrow()).ok()? {
            Ordering::Less => below += 1,
            _ => break,
        }
    }
    let groups = (bounds.len() - 1) as f64;
    if below == 0 {
        return Some(0.0);
    }
    if below == bounds.len() {
        return Some(1.0);
    }
    let (from, to) = (&bounds[below - 1], &bounds[below]);
    // Values without a scale, such as texts, lie in the middle.
    let within = scale(ty, from)
        .zip(scale(ty, to))
        .zip(scale(ty, value))
        .filter(|((from, to), _)| to > from)
        .map_or(0.5, |((from, to), v)| {
            ((v - from) / (to - from)).clamp(0.0, 1.0)
        });
    Some(((below - 1) as f64 + within) / groups)
}

/// The value of an expression that is a constant, be it written as text of another type.
fn constant(e: &Expr) -> Option<Datum> {
    match e {
        Expr::Const(value) => Some(value.clone()),
        Expr::Cast(cast, text) => match &**text {
            Expr::Const(Datum::Text(text)) => {
                pgtype::text_in(cast.to, text, &IoSettings::default()).ok()
            }
            _ => None,
        },
        _ => None,
    }
}

/// A value on a scale, if its type has one.
fn scale(ty: SqlType, value: &Datum) -> Option<f64> {
    let n = match value.borrow() {
        DatumRef::Int2(v) => v.into(),
        DatumRef::Int4(v) => v.into(),
        DatumRef::Int8(v) => v as f64,
        DatumRef::Float4(v) => v.into(),
        DatumRef::Float8(v) => v,
        DatumRef::Numeric(v) => to_f64(v),
        DatumRef::Date(v) if ty == SqlType::Date => v.into(),
        DatumRef::Timestamp(v) if ty == SqlType::Timestamp => v as f64,
        DatumRef::TimestampTz(v) if ty == SqlType::TimestampTz => v as f64,
        _ => return None,
    };
    n.is_finite().then_some(n)
}
