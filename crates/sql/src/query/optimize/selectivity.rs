//! How many rows a join or a grouping gives, by the distinct values of the columns that it
//! compares.

use std::collections::HashSet;
use std::sync::Arc;

use super::Planner;
use super::conditions::equality;
use crate::dict::Table;
use crate::expr::Expr;
use crate::plan::estimate::Estimate;
use crate::query::plan::Register;

/// Part of pairs of rows that a condition which is no equality of columns lets through.
const PASSES: f64 = 0.3;
/// Of a grouping of which nothing is known: groups for each row.
const GROUPS_PER_ROW: f64 = 0.2;

/// The column of a table that a register is of.
#[derive(Clone)]
pub struct Origin {
    table: Arc<Table>,
    column: usize,
    /// The first register of the relation: the same table may be there several times.
    relation: Register,
}

/// Two relations that are compared in one or several columns.
struct Compared {
    relations: (Register, Register),
    share: f64,
    rows: f64,
}

impl Planner<'_> {
    pub(super) fn note_origins(&mut self, table: &Arc<Table>, columns: &[Register]) {
        let Some(&relation) = columns.first() else {
            return;
        };
        for (column, register) in columns.iter().enumerate() {
            let origin = Origin {
                table: table.clone(),
                column,
                relation,
            };
            self.origins.insert(*register, origin);
        }
    }

    /// Of a column: the distinct values and the rows of its table, and the relation; if ANALYZE
    /// found them out.
    fn distinct(&self, register: Register) -> Option<(f64, f64, Register)> {
        let origin = self.origins.get(&register)?;
        let stats = self.dict.stats(origin.table.oid)?;
        let known = Estimate {
            table: &origin.table,
            stats: Some(stats),
        };
        Some((
            known.distinct(origin.column)?,
            known.rows(),
            origin.relation,
        ))
    }

    /// The part of all pairs of rows of two sides that conditions between them let through; if
    /// statistics know the columns of every equality. `fixed` columns equal a constant on both
    /// sides, and so each other.
    pub(super) fn matched(
        &self,
        conditions: &[Expr],
        (left, right): (&HashSet<Register>, &HashSet<Register>),
        fixed: &HashSet<Register>,
    ) -> Option<f64> {
        let mut pairs: Vec<Compared> = Vec::new();
        let mut share = 1.0;
        for condition in conditions {
            let Some((a, b)) = equality(condition, left, right) else {
                share *= PASSES;
                continue;
            };
            let (Expr::Column(a), Expr::Column(b)) = (a, b) else {
                return None;
            };
            if fixed.contains(a) && fixed.contains(b) {
                continue;
            }
            let ((values, rows, of), (other_values, other_rows, other)) =
                (self.distinct(*a)?, self.distinct(*b)?);
            let equal = 1.0 / values.max(other_values);
            match pairs.iter_mut().find(|p| p.relations == (of, other)) {
                Some(pair) => pair.share *= equal,
                None => pairs.push(Compared {
                    relations: (of, other),
                    share: equal,
                    rows: rows.max(other_rows),
                }),
            }
        }
        // Columns together have no more distinct values than there are rows.
        let of_pairs = pairs.iter().map(|p| p.share.max(1.0 / p.rows));
        Some(share * of_pairs.product::<f64>())
    }

    /// Groups that rows make by these keys.
    pub(super) fn groups(&self, keys: &[(Expr, Register)], rows: f64) -> f64 {
        let mut groups = 1.0;
        for (key, _) in keys {
            let known = match key {
                Expr::Column(r) => self.distinct(*r),
                _ => None,
            };
            match known {
                Some((values, ..)) => groups *= values,
                None => return (rows * GROUPS_PER_ROW).max(1.0),
            }
        }
        groups.min(rows).max(1.0)
    }
}
