//! Choice of the access path to one table: which index, with which part of the condition as its key.
//!
//! A path may return rows that the condition refuses, never the reverse: what is not wholly expressed by the key stays
//! in the filter.

use super::{Planner, TableAccess};
use crate::dict::{Index, Table};
use crate::expr::{CmpOp, Expr};
use crate::plan::SortKey;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub enum Path {
    /// All rows, block by block.
    Full,
    /// Entries of an index: a prefix of its columns equal to `equal`, the next one within the bounds.
    Index {
        /// Position in the table's list of indexes.
        index: usize,
        equal: Vec<Expr>,
        low: Option<KeyBound>,
        high: Option<KeyBound>,
        backward: bool,
        /// Every column of a unique index is given: at most one row.
        unique: bool,
    },
    /// A condition that no row meets.
    Nothing,
}

/// A bound on the column after the equal ones, in the order of values, not of the index.
#[derive(Clone, Debug)]
pub struct KeyBound {
    pub value: Expr,
    pub inclusive: bool,
}

/// Rows assumed of a table that was never analyzed.
const UNKNOWN_ROWS: f64 = 1000.0;
/// Guessed shares of rows that meet a condition, where statistics say nothing.
const RANGE_SHARE: f64 = 0.3;
const EQUAL_SHARE: f64 = 0.005;

/// The conjuncts of a condition.
pub fn conjuncts(condition: Option<Expr>) -> Vec<Expr> {
    match condition {
        None => Vec::new(),
        Some(Expr::And(list)) => list.into_iter().flat_map(|e| conjuncts(Some(e))).collect(),
        Some(other) => vec![other],
    }
}

pub fn conjoin(mut list: Vec<Expr>) -> Option<Expr> {
    match list.len() {
        0 => None,
        1 => list.pop(),
        _ => Some(Expr::And(list)),
    }
}

/// `column op value`, with the value computable before the table's row is known.
struct KeyTerm<'e> {
    op: CmpOp,
    column: usize,
    value: &'e Expr,
}

/// The part of an index that the condition and the order use.
struct Candidate {
    index: usize,
    equal: Vec<Expr>,
    low: Option<KeyBound>,
    high: Option<KeyBound>,
    /// Conjuncts that the key expresses wholly.
    used: Vec<usize>,
    backward: bool,
    ordered: bool,
    unique: bool,
    rows: f64,
}

impl Planner<'_> {
    /// The path for the conjuncts that concern this table and, if it can be had from an index, the order. Returns
    /// whether rows come in that order. `known` columns (of an outer table) may be used in keys.
    pub fn access(&self, table: &Arc<Table>, offset: usize, terms: Vec<Expr>, order: &[SortKey], limited: bool) -> (TableAccess, bool) {
        let total = self.dict.stats(table.oid).map_or(UNKNOWN_ROWS, |s| s.rows.max(1.0));
        let share = terms.iter().map(|t| if matches!(t, Expr::Compare(CmpOp::Eq, ..)) { EQUAL_SHARE } else { RANGE_SHARE }).product::<f64>();
        let mut best: Option<Candidate> = None;
        for at in 0..table.indexes.len() {
            let Some(candidate) = self.candidate(table, offset, at, &terms, order, total) else { continue };
            let useful = !candidate.equal.is_empty() || candidate.low.is_some() || candidate.high.is_some();
            if !useful && !(candidate.ordered && (limited || terms.is_empty())) {
                continue;
            }
            if best.as_ref().is_none_or(|b| better(&candidate, b)) {
                best = Some(candidate);
            }
        }
        let needed = 0;
        match best {
            None => {
                let rows = (total * share).max(1.0);
                (TableAccess { table: table.clone(), offset, path: Path::Full, needed, filter: conjoin(terms), rows }, order.is_empty())
            }
            Some(c) => {
                let mut position = 0;
                let mut rest = terms;
                rest.retain(|_| {
                    position += 1;
                    !c.used.contains(&(position - 1))
                });
                let path = Path::Index { index: c.index, equal: c.equal, low: c.low, high: c.high, backward: c.backward, unique: c.unique };
                (TableAccess { table: table.clone(), offset, path, needed, filter: conjoin(rest), rows: c.rows }, c.ordered)
            }
        }
    }

    fn candidate(&self, table: &Table, offset: usize, at: usize, terms: &[Expr], order: &[SortKey], total: f64) -> Option<Candidate> {
        let index = &table.indexes[at];
        let keys: Vec<Option<KeyTerm<'_>>> = terms.iter().map(|t| key_term(t, offset, table.columns.len())).collect();
        let mut c = Candidate {
            index: at,
            equal: Vec::new(),
            low: None,
            high: None,
            used: Vec::new(),
            backward: false,
            ordered: false,
            unique: false,
            rows: total,
        };
        for key in &index.keys {
            let found = keys.iter().position(|k| k.as_ref().is_some_and(|k| k.op == CmpOp::Eq && k.column == key.column));
            let Some(term) = found else { break };
            c.equal.push(keys[term].as_ref()?.value.clone());
            c.used.push(term);
        }
        c.unique = index.unique && c.equal.len() == index.keys.len();
        if let Some(next) = index.keys.get(c.equal.len()) {
            for key in keys.iter().flatten().filter(|k| k.column == next.column) {
                let bound = Some(KeyBound { value: key.value.clone(), inclusive: matches!(key.op, CmpOp::Le | CmpOp::Ge) });
                match key.op {
                    CmpOp::Gt | CmpOp::Ge if c.low.is_none() => c.low = bound,
                    CmpOp::Lt | CmpOp::Le if c.high.is_none() => c.high = bound,
                    _ => {}
                }
            }
        }
        c.rows = self.expected(table, index, &c, total);
        if let Some(backward) = index_order(index, c.equal.len(), offset, order) {
            c.ordered = true;
            c.backward = backward;
        }
        c.ordered |= c.unique;
        Some(c)
    }

    fn expected(&self, table: &Table, index: &Index, c: &Candidate, total: f64) -> f64 {
        if c.unique {
            return 1.0;
        }
        let stats = self.dict.stats(table.oid);
        let mut rows = total;
        for key in index.keys.iter().take(c.equal.len()) {
            let distinct = stats.and_then(|s| s.columns.get(key.column)).map(|s| s.distinct).filter(|d| *d >= 1.0);
            rows *= distinct.map_or(EQUAL_SHARE, |d| 1.0 / d);
        }
        for bound in [&c.low, &c.high] {
            if bound.is_some() {
                rows *= RANGE_SHARE;
            }
        }
        rows.max(1.0)
    }
}

fn better(a: &Candidate, b: &Candidate) -> bool {
    (a.unique, a.equal.len(), a.low.is_some() as u8 + a.high.is_some() as u8, a.ordered) > (b.unique, b.equal.len(), b.low.is_some() as u8 + b.high.is_some() as u8, b.ordered)
}

/// Reads a conjunct as a key term of the table whose columns are `offset..offset + width` of the combined row.
fn key_term(term: &Expr, offset: usize, width: usize) -> Option<KeyTerm<'_>> {
    let Expr::Compare(op, left, right) = term else { return None };
    let own = |e: &Expr| match e {
        Expr::Column(i) if (offset..offset + width).contains(i) => Some(i - offset),
        _ => None,
    };
    let outside = |e: &Expr| {
        let mut outside = !e.is_volatile();
        e.visit(&mut |n| outside &= !matches!(n, Expr::Column(i) if *i >= offset));
        outside
    };
    if let Some(column) = own(left)
        && outside(right)
    {
        return Some(KeyTerm { op: *op, column, value: right });
    }
    if let Some(column) = own(right)
        && outside(left)
    {
        return Some(KeyTerm { op: op.flip(), column, value: left });
    }
    None
}

/// Whether the index, after its first `equal` columns are fixed, delivers the order; and then whether backwards.
fn index_order(index: &Index, equal: usize, offset: usize, order: &[SortKey]) -> Option<bool> {
    if order.is_empty() {
        return Some(false);
    }
    let fixed: Vec<usize> = index.keys[..equal].iter().map(|k| k.column).collect();
    let mut rest = index.keys[equal..].iter();
    let mut direction: Option<bool> = None;
    for key in order {
        let Expr::Column(slot) = key.expr else { return None };
        let column = slot.checked_sub(offset)?;
        if fixed.contains(&column) {
            continue;
        }
        let have = rest.next()?;
        if have.column != column {
            return None;
        }
        let backward = have.descending != key.descending;
        if (have.nulls_first != key.nulls_first) != backward || direction.is_some_and(|d| d != backward) {
            return None;
        }
        direction = Some(backward);
    }
    Some(direction.unwrap_or(false))
}
