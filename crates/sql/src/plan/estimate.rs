//! How large a part of a table's rows meets a condition: by what ANALYZE found out, or by guess.

use block::value::{Datum, DatumRef};

use super::path::{KeyBound, in_list, key_column, key_term};
use crate::dict::{ColumnStats, Stats, Table};
use crate::expr::number::to_f64;
use crate::expr::{CmpOp, Expr};
use crate::pgtype::{self, IoSettings};
use crate::types::SqlType;

/// Rows assumed of a table that was never analyzed.
const UNKNOWN_ROWS: f64 = 1000.0;
/// Guesses, where statistics say nothing.
const RANGE_SHARE: f64 = 0.3;
const EQUAL_SHARE: f64 = 0.005;
/// Of a range that statistics say is empty: they may be old.
const LEAST_RANGE_SHARE: f64 = 0.0001;

/// What is known of a table's rows.
pub struct Estimate<'s> {
    pub table: &'s Table,
    pub stats: Option<&'s Stats>,
}

impl Estimate<'_> {
    pub fn rows(&self) -> f64 {
        self.stats.map_or(UNKNOWN_ROWS, |s| s.rows.max(1.0))
    }

    fn column(&self, column: usize) -> Option<&ColumnStats> {
        self.stats?.columns.get(column)
    }

    /// The part in which a column has one value.
    pub fn equal(&self, column: usize) -> f64 {
        match self.column(column) {
            Some(c) if c.distinct >= 1.0 => (1.0 - c.null_fraction) / c.distinct,
            _ => EQUAL_SHARE,
        }
    }

    /// One of so many values.
    pub fn one_of(&self, column: usize, values: usize) -> f64 {
        (self.equal(column) * values as f64).min(1.0)
    }

    /// A value within bounds.
    pub fn range(&self, column: usize, low: Option<&KeyBound>, high: Option<&KeyBound>) -> f64 {
        self.known_range(column, low, high).unwrap_or_else(|| {
            RANGE_SHARE.powi(i32::from(low.is_some()) + i32::from(high.is_some()))
        })
    }

    /// The same, if the bounds are constants, and the least and the greatest value known numbers or times.
    fn known_range(
        &self,
        column: usize,
        low: Option<&KeyBound>,
        high: Option<&KeyBound>,
    ) -> Option<f64> {
        let known = self.column(column)?;
        let ty = self.table.columns[column].ty();
        let parsed = |text: &Option<String>| {
            let value = pgtype::text_in(ty, text.as_deref()?, &IoSettings::default()).ok()?;
            number(ty, value.borrow())
        };
        let (least, greatest) = (parsed(&known.min)?, parsed(&known.max)?);
        let bound = |b: Option<&KeyBound>, open: f64| match b.map(|b| &b.value) {
            None => Some(open),
            Some(e) => constant(e).and_then(|value| number(ty, value.borrow())),
        };
        let low = bound(low, least)?.max(least);
        let high = bound(high, greatest)?.min(greatest);
        if greatest <= least {
            return None;
        }
        // A value at a bound belongs to it.
        let part = (high - low) / (greatest - least) + self.equal(column);
        Some((part * (1.0 - known.null_fraction)).clamp(LEAST_RANGE_SHARE, 1.0))
    }

    /// What meets a term of a condition, over a row in which the table's columns come after `offset` others.
    pub fn term(&self, term: &Expr, offset: usize) -> f64 {
        if let Some(key) = key_term(term, offset, self.table.columns.len()) {
            let bound = KeyBound {
                value: key.value.clone(),
                inclusive: true,
            };
            return match key.op {
                CmpOp::Eq => self.equal(key.column),
                CmpOp::Ne => 1.0 - self.equal(key.column),
                CmpOp::Gt | CmpOp::Ge => self.range(key.column, Some(&bound), None),
                CmpOp::Lt | CmpOp::Le => self.range(key.column, None, Some(&bound)),
            };
        }
        match term {
            Expr::Compare(CmpOp::Eq, ..) => EQUAL_SHARE,
            Expr::InList { expr, .. } => match key_column(expr) {
                Some((slot, _)) if slot >= offset => in_list(term, slot, offset)
                    .map_or(RANGE_SHARE, |(list, _)| {
                        self.one_of(slot - offset, list.len())
                    }),
                _ => RANGE_SHARE,
            },
            _ => RANGE_SHARE,
        }
    }
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
fn number(ty: SqlType, value: DatumRef<'_>) -> Option<f64> {
    let n = match value {
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
