//! Keys that an OR of conditions leads to: `(a, b) in ((1, 2), (3, 4))`, `a = 1 and (b = 2 or b = 5)`.

use super::path::{Path, conjuncts, key_column};
use crate::dict::Table;
use crate::expr::{CmpOp, Expr};

/// Longest list of keys that an OR becomes.
const MAX_KEYS: usize = 1000;
/// Rows guessed for a beginning of a key.
const ROWS_OF_PREFIX: f64 = 10.0;

/// Whole keys of an index, or beginnings of them all of one length, that one of the terms leads to,
/// and the rows that these have. The table's columns come after `offset` others, which are known.
pub fn keys(table: &Table, offset: usize, terms: &[Expr]) -> Option<(Path, f64)> {
    let mut best: Option<(Path, f64, usize)> = None;
    let common = equalities(terms, offset);
    for term in terms {
        let branches = disjuncts(term);
        if branches.len() < 2 || branches.len() > MAX_KEYS {
            continue;
        }
        let each: Vec<Equalities> = branches
            .iter()
            .map(|b| equalities(&conjuncts(Some((*b).clone())), offset))
            .collect();
        let all = table.indexes.iter().enumerate();
        for (at, index) in all.filter(|(_, i)| i.predicate.is_none() && i.is_valid_order()) {
            let columns: Vec<usize> = index.keys.iter().map(|k| k.column).collect();
            let Some(keys) = of_index(&columns, &common, &each) else {
                continue;
            };
            let width = keys[0].len();
            let unique = index.is_unique_now() && width == columns.len();
            let rows = keys.len() as f64 * if unique { 1.0 } else { ROWS_OF_PREFIX };
            if best.as_ref().is_none_or(|(.., known)| width > *known) {
                let index = at;
                let path = Path::Keys {
                    index,
                    keys,
                    unique,
                };
                best = Some((path, rows, width));
            }
        }
    }
    best.map(|(path, rows, _)| (path, rows))
}

/// Columns of the table and what they are to equal.
type Equalities = Vec<(usize, Expr)>;

/// The beginnings of an index's keys that the branches of an OR give, with what holds for all.
fn of_index(columns: &[usize], common: &Equalities, each: &[Equalities]) -> Option<Vec<Vec<Expr>>> {
    let mut keys = Vec::with_capacity(each.len());
    for branch in each {
        let mut key = Vec::new();
        let mut own = false;
        for column in columns {
            let of = |list: &Equalities| {
                let found = list.iter().find(|(c, _)| c == column);
                found.map(|(_, value)| value.clone())
            };
            let in_branch = of(branch);
            own |= in_branch.is_some();
            match in_branch.or_else(|| of(common)) {
                Some(value) => key.push(value),
                None => break,
            }
        }
        if !own {
            return None;
        }
        keys.push(key);
    }
    let width = keys.iter().map(Vec::len).min().filter(|w| *w > 0)?;
    keys.iter_mut().for_each(|k| k.truncate(width));
    Some(keys)
}

/// The alternatives of a condition.
pub fn disjuncts(e: &Expr) -> Vec<&Expr> {
    match e {
        Expr::Or(list) => list.iter().flat_map(disjuncts).collect(),
        other => vec![other],
    }
}

/// Columns that conditions say to equal what is known before the row is.
fn equalities(terms: &[Expr], offset: usize) -> Equalities {
    let known = |e: &Expr| {
        let mut known = !e.is_volatile();
        e.visit(&mut |e| {
            known &= match e {
                Expr::Column(c) => *c < offset,
                Expr::Subquery { .. } => false,
                _ => true,
            }
        });
        known
    };
    let column = |e: &Expr| match key_column(e) {
        Some((c, true)) => c.checked_sub(offset),
        _ => None,
    };
    let mut found = Vec::new();
    for term in terms {
        let Expr::Compare(CmpOp::Eq, left, right) = term else {
            continue;
        };
        match (column(left), column(right)) {
            (Some(c), _) if known(right) => found.push((c, (**right).clone())),
            (_, Some(c)) if known(left) => found.push((c, (**left).clone())),
            _ => {}
        }
    }
    found
}
