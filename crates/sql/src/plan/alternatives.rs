//! One table by several indexes, or ranges of one: an OR of which each alternative leads to an index,
//! `a = 1 or b = 2`.
//!
//! **Invariant.** The accesses together give each row that meets the conditions once: that of an
//! alternative leaves out the rows of those before it.

use std::sync::Arc;

use block::value::Datum;

use super::estimate::Estimate;
use super::keys::disjuncts;
use super::path::{ENTERED, ROW_ANYWHERE, Wish, conjuncts};
use super::{Path, Planner, TableAccess};
use crate::dict::Table;
use crate::expr::Expr;

/// Most alternatives that are read one after the other.
const MOST: usize = 16;

impl Planner<'_> {
    /// An access for each alternative of one of the terms, which are an AND. `None`: no term has an
    /// index for each of its alternatives.
    pub fn alternatives(
        &self,
        table: &Arc<Table>,
        offset: usize,
        terms: &[Expr],
    ) -> Option<Vec<TableAccess>> {
        if table.indexes.is_empty() {
            return None;
        }
        let of_term = |at: usize| {
            let term = &terms[at];
            let branches = disjuncts(term);
            if !(2..=MOST).contains(&branches.len()) || !is_plain(term) {
                return None;
            }
            let others = terms.iter().enumerate().filter(|(n, _)| *n != at);
            let others: Vec<Expr> = others.map(|(_, e)| e.clone()).collect();
            let access = |(n, branch): (usize, &&Expr)| {
                let mut all = conjuncts(Some((**branch).clone()));
                all.extend(others.iter().cloned());
                all.extend(branches[..n].iter().map(|before| is_not_true(before)));
                let (access, _) = self.access(table, offset, all, Wish::default());
                (!matches!(access.path, Path::Full)).then_some(access)
            };
            branches.iter().enumerate().map(access).collect()
        };
        let found = (0..terms.len()).filter_map(of_term);
        let best = found.min_by(|a: &Vec<TableAccess>, b| cost(a).total_cmp(&cost(b)))?;
        let stats = self.dict.stats(table.oid).map(|s| &**s);
        let rows = Estimate { table, stats }.rows();
        (stats.is_none() || cost(&best) < rows).then_some(best)
    }

    /// Whether a table of at least so many rows, of which all are to be read, is better read by
    /// alternatives.
    pub fn is_better_apart(&self, access: &TableAccess, least: f64) -> bool {
        let Path::Full = access.path else {
            return false;
        };
        let stats = self.dict.stats(access.table.oid).map(|s| &**s);
        let table = &access.table;
        let rows = Estimate { table, stats }.rows();
        rows >= least && {
            let terms = conjuncts(access.filter.clone());
            let apart = self.alternatives(table, access.offset, &terms);
            apart.is_some()
        }
    }
}

/// In rows that a scan of the whole table looks at.
fn cost(accesses: &[TableAccess]) -> f64 {
    accesses
        .iter()
        .map(|a| a.rows * ROW_ANYWHERE + ENTERED)
        .sum()
}

/// Whether it may be looked at more often than it is written.
fn is_plain(e: &Expr) -> bool {
    let mut plain = !e.is_volatile();
    e.visit(&mut |e| plain &= !matches!(e, Expr::Subquery { .. }));
    plain
}

fn is_not_true(e: &Expr) -> Expr {
    let not = Expr::Not(Box::new(e.clone()));
    Expr::Coalesce(vec![not, Expr::Const(Datum::Bool(true))])
}
