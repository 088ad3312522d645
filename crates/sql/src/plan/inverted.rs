//! The choice of an inverted index: which of the conditions it serves, all of which it answers at
//! once.
//!
//! **Invariant.** The conditions stay in the filter: different values may have one key, and the
//! index has entries of versions that the statement does not see.

use block::value::Datum;

use super::Path;
use super::estimate::Estimate;
use super::indexed;
use super::path::{in_list, key_column, key_term};
use crate::dict::inverted::{KeyClass, Strategy};
use crate::expr::array::ArrayFunc;
use crate::expr::func::PureFunc;
use crate::expr::json::JsonFunc;
use crate::expr::{CmpOp, Expr, Func};

/// Parts of the rows that meet a condition of which nothing is known, as PostgreSQL guesses.
const CONTAINED_SHARE: f64 = 0.005;
const OVERLAP_SHARE: f64 = 0.01;
const JSON_SHARE: f64 = 0.01;
const PATTERN_SHARE: f64 = 0.005;
const CHAR_SHARE: f64 = 0.2;
const ANY_CHAR_SHARE: f64 = 0.9;
const ANY_RUN_FACTOR: f64 = 5.0;
/// If statistics say how many rows there are: the part of them from which on they are read one
/// after the other, though the index has been read until then, and a number below which it is not
/// worth it.
const MOST_SHARE: f64 = 0.25;
const FEW_ROWS: f64 = 1000.0;

/// A condition on a column of an inverted index.
#[derive(Clone, Debug)]
pub struct ElementTerm {
    /// Which column of the index.
    pub key: usize,
    pub strategy: Strategy,
    /// What the column is compared with, known before the table's row is. If there are several, one
    /// of them is enough.
    pub values: Vec<Expr>,
    /// The condition as the filter has it.
    pub condition: Expr,
}

/// What an inverted index would do for the conditions.
pub struct Served {
    pub path: Path,
    pub terms: usize,
    pub rows: f64,
}

/// The inverted index that leads to the fewest rows. The table's columns come after `offset`
/// others, which are known.
pub fn best(known: &Estimate<'_>, offset: usize, terms: &[Expr]) -> Option<Served> {
    let table = known.table;
    let all = table.indexes.iter().enumerate();
    let all = all.filter_map(|(at, index)| Some((at, index.inverted.as_ref()?)));
    let served = all.filter_map(|(at, inverted)| {
        let seen = indexed::seen(table, offset, at, terms, &[])?;
        let mut found = Vec::new();
        let mut share = known.all(seen.partial.as_deref().unwrap_or_default(), offset);
        for (seen_term, condition) in seen.terms.iter().zip(terms) {
            let columns = seen.keys.iter().zip(&inverted.classes).enumerate();
            let term = columns.into_iter().find_map(|(key, (k, class))| {
                let slot = offset + k.column;
                let (strategy, values) = condition_on(seen_term, slot, offset, *class)?;
                Some(ElementTerm {
                    key,
                    strategy,
                    values,
                    condition: condition.clone(),
                })
            });
            if let Some(term) = term {
                share *= match term.strategy {
                    Strategy::Like { .. } => pattern_share(&term.values[0]),
                    _ => known.term(condition, offset),
                };
                found.push(term);
            }
        }
        if found.is_empty() {
            return None;
        }
        let most = known
            .stats
            .map(|_| (known.rows() * MOST_SHARE).max(FEW_ROWS) as u64);
        Some(Served {
            terms: found.len(),
            rows: (known.rows() * share).max(1.0),
            path: Path::Inverted {
                index: at,
                terms: found,
                most,
            },
        })
    });
    served.min_by(|a, b| a.rows.total_cmp(&b.rows))
}

/// The part of the rows that meets a condition on what an array or a document has in it. `None`:
/// it is another condition.
pub fn share(condition: &Expr) -> Option<f64> {
    let Expr::Call(Func::Pure(func), _) = condition else {
        return None;
    };
    match func {
        PureFunc::Array(ArrayFunc::Contains | ArrayFunc::ContainedBy) => Some(CONTAINED_SHARE),
        PureFunc::Array(ArrayFunc::Overlaps) => Some(OVERLAP_SHARE),
        PureFunc::Json(
            JsonFunc::Contains
            | JsonFunc::ContainedBy
            | JsonFunc::Exists
            | JsonFunc::ExistsAny
            | JsonFunc::ExistsAll,
        ) => Some(JSON_SHARE),
        _ => None,
    }
}

/// Reads a condition as one on a column that the class of an index serves.
fn condition_on(
    term: &Expr,
    slot: usize,
    offset: usize,
    class: KeyClass,
) -> Option<(Strategy, Vec<Expr>)> {
    if let Expr::Like {
        expr,
        pattern,
        escape,
        fold_case,
        negated: false,
    } = term
    {
        let strategy = Strategy::Like {
            escape: *escape,
            fold_case: *fold_case,
        };
        let is_column = key_column(expr) == Some((slot, true));
        let fits = is_column && is_known(pattern, offset) && class.serves(strategy);
        return fits.then(|| (strategy, vec![(**pattern).clone()]));
    }
    if class.serves(Strategy::Equal) {
        if let Some((list, exact)) = in_list(term, slot, offset) {
            return exact.then(|| (Strategy::Equal, list.to_vec()));
        }
        if let Some(key) = key_term(term, offset, usize::MAX - offset) {
            let fits = key.op == CmpOp::Eq && key.column + offset == slot && key.is_exact();
            return fits.then(|| (Strategy::Equal, vec![key.value.clone()]));
        }
    }
    let Expr::Call(Func::Pure(func), args) = term else {
        return None;
    };
    let [left, right] = args.as_slice() else {
        return None;
    };
    let strategy = match func {
        PureFunc::Array(ArrayFunc::Contains) | PureFunc::Json(JsonFunc::Contains) => {
            Strategy::Contains
        }
        PureFunc::Array(ArrayFunc::ContainedBy) | PureFunc::Json(JsonFunc::ContainedBy) => {
            Strategy::ContainedBy
        }
        PureFunc::Array(ArrayFunc::Overlaps) => Strategy::Overlaps,
        PureFunc::Json(JsonFunc::Exists) => Strategy::Exists,
        PureFunc::Json(JsonFunc::ExistsAny) => Strategy::ExistsAny,
        PureFunc::Json(JsonFunc::ExistsAll) => Strategy::ExistsAll,
        _ => return None,
    };
    let is_column = |e: &Expr| key_column(e) == Some((slot, true));
    let mirrored = match strategy {
        Strategy::Contains => Some(Strategy::ContainedBy),
        Strategy::ContainedBy => Some(Strategy::Contains),
        Strategy::Overlaps => Some(Strategy::Overlaps),
        _ => None,
    };
    let (strategy, value) = match mirrored {
        _ if is_column(left) => (strategy, right),
        Some(mirrored) if is_column(right) => (mirrored, left),
        _ => return None,
    };
    let fits = is_known(value, offset) && class.serves(strategy);
    fits.then(|| (strategy, vec![value.clone()]))
}

/// Whether a value is known before the table's row is.
fn is_known(value: &Expr, offset: usize) -> bool {
    !value.is_volatile() && value.columns_needed() <= offset
}

/// The part of the rows that match a pattern, by its length, as PostgreSQL guesses.
fn pattern_share(pattern: &Expr) -> f64 {
    let Expr::Const(Datum::Text(pattern)) = pattern else {
        return PATTERN_SHARE;
    };
    let of_char = |c| match c {
        '%' => ANY_RUN_FACTOR,
        '_' => ANY_CHAR_SHARE,
        _ => CHAR_SHARE,
    };
    let share: f64 = pattern
        .trim_start_matches('%')
        .chars()
        .map(of_char)
        .product();
    share.min(1.0)
}
