//! Choice of the access path to one table: which index, with which part of the condition as its key.
//!
//! A path may return rows that the condition refuses, never the reverse: what is not wholly expressed by the key stays
//! in the filter.

use block::value::Datum;

use super::common::{self, Part};
use super::estimate::Estimate;
use super::indexed::{self, Seen};
use super::inverted::{self, ElementTerm};
use super::keys::keys;
use super::{Planner, TableAccess};
use crate::dict::{IndexKey, Table};
use crate::expr::{CmpOp, Expr};
use crate::plan::SortKey;
use crate::types::SqlType;
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
        /// The column after the equal ones is one of these: the index is entered once for each.
        any_of: Vec<Expr>,
        low: Option<KeyBound>,
        high: Option<KeyBound>,
        backward: bool,
        /// Every column of a unique index is given: at most one row.
        unique: bool,
    },
    /// Entries of an index for each of these keys, or beginnings of keys, all of one length.
    Keys {
        /// Position in the table's list of indexes.
        index: usize,
        keys: Vec<Vec<Expr>>,
        /// They are whole keys of a unique index.
        unique: bool,
    },
    /// The rows that entries of each of these indexes lead to, in the order of the table.
    Common {
        parts: Vec<IndexPart>,
        /// The conditions that the indexes say all of. They are in the filter nevertheless.
        said: Vec<Expr>,
    },
    /// The rows that meet all of these conditions by an inverted index, in the order of the table.
    Inverted {
        /// Position in the table's list of indexes.
        index: usize,
        terms: Vec<ElementTerm>,
        /// If a condition leads to more rows than this, all rows are read.
        most: Option<u64>,
    },
}

/// A part of an index, as of [`Path::Index`].
#[derive(Clone, Debug)]
pub struct IndexPart {
    pub index: usize,
    pub equal: Vec<Expr>,
    pub any_of: Vec<Expr>,
    pub low: Option<KeyBound>,
    pub high: Option<KeyBound>,
}

impl IndexPart {
    /// What its columns are compared with.
    pub fn values(&self) -> impl Iterator<Item = &Expr> {
        let bounds = self.low.iter().chain(&self.high).map(|b| &b.value);
        self.equal.iter().chain(&self.any_of).chain(bounds)
    }
}

/// A bound on the column after the equal ones, in the order of values, not of the index.
#[derive(Clone, Debug)]
pub struct KeyBound {
    pub value: Expr,
    pub inclusive: bool,
}

/// What a row costs, in rows that a scan of the whole table looks at: one that an index leads to,
/// if the table is in the index's order or in any; and one in a column batch. Measured with 500,000
/// rows in memory (docs/benchmarks.md, "Where an index pays").
const ROW_IN_ORDER: f64 = 2.5;
pub const ROW_ANYWHERE: f64 = 5.5;
pub const BATCHED_ROW: f64 = 0.15;
/// Entering an index.
pub const ENTERED: f64 = 4.0;
/// Rows of a table from which on batches are worth it.
pub const BATCHED_ROWS: f64 = 2000.0;

/// An index that leads to fewer rows is not combined with others.
const COMBINED_ROWS: f64 = 50.0;

/// Estimates that differ by less are the same.
const SAME_ROWS: f64 = 1.5;
/// Longest IN list that becomes keys.
const MAX_LIST: usize = 10_000;

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
pub struct KeyTerm<'e> {
    pub op: CmpOp,
    pub column: usize,
    pub value: &'e Expr,
    /// Whether the key says all that the term does; else it finds more rows.
    exact: bool,
}

impl KeyTerm<'_> {
    /// Whether the key says all that the term does.
    pub fn is_exact(&self) -> bool {
        self.exact
    }
}

/// The part of an index that the condition and the order use.
struct Candidate {
    index: usize,
    equal: Vec<Expr>,
    any_of: Vec<Expr>,
    low: Option<KeyBound>,
    high: Option<KeyBound>,
    /// Conjuncts that the key expresses wholly.
    used: Vec<usize>,
    backward: bool,
    ordered: bool,
    unique: bool,
    rows: f64,
}

/// What is wanted of a table's rows.
#[derive(Clone, Copy, Default)]
pub struct Wish<'w> {
    /// The order, if it can be had from an index.
    pub order: &'w [SortKey],
    /// Perhaps only the first ones are wanted.
    pub limited: bool,
    /// A scan of the whole table would have them in column batches.
    pub batched: bool,
}

impl Candidate {
    /// Whether it costs less to look at all rows. Only statistics can tell. An index that gives the order is not
    /// compared: it saves a sort, or most of the rows.
    fn is_beaten_by_scan(&self, known: &Estimate<'_>, wish: &Wish<'_>) -> bool {
        if known.stats.is_none() || self.unique || wish.limited {
            return false;
        }
        if self.ordered && !wish.order.is_empty() {
            return false;
        }
        wish.scan_beats(known, self.cost(known))
    }

    fn cost(&self, known: &Estimate<'_>) -> f64 {
        let first = known.table.indexes[self.index].keys.first();
        let correlation = first.map_or(0.0, |k| known.correlation(k.column));
        let row = ROW_ANYWHERE + correlation.powi(2) * (ROW_IN_ORDER - ROW_ANYWHERE);
        ENTERED * self.any_of.len().max(1) as f64 + self.rows * row
    }

    /// The entries by themselves, and the columns of which they say something.
    fn as_part(&self, seen: &Seen<'_>) -> Part {
        let is_next_known = !self.any_of.is_empty() || self.low.is_some() || self.high.is_some();
        let known = self.equal.len() + usize::from(is_next_known);
        Part {
            part: IndexPart {
                index: self.index,
                equal: self.equal.clone(),
                any_of: self.any_of.clone(),
                low: self.low.clone(),
                high: self.high.clone(),
            },
            columns: seen.keys[..known].iter().map(|k| k.column).collect(),
            said: self.used.clone(),
            rows: self.rows,
        }
    }
}

impl Wish<'_> {
    /// Whether a scan of the whole table costs less than this, by statistics.
    fn scan_beats(&self, known: &Estimate<'_>, cost: f64) -> bool {
        let rows = known.rows();
        let by_scan = match self.batched && rows >= BATCHED_ROWS {
            true => rows * BATCHED_ROW,
            false => rows,
        };
        known.stats.is_some() && by_scan < cost
    }
}

impl Planner<'_> {
    /// The path for the conjuncts that concern this table and, if it can be had from an index, the order. Returns
    /// whether rows come in that order. `known` columns (of an outer table) may be used in keys.
    pub fn access(
        &self,
        table: &Arc<Table>,
        offset: usize,
        terms: Vec<Expr>,
        wish: Wish<'_>,
    ) -> (TableAccess, bool) {
        let Wish { order, limited, .. } = wish;
        let known = Estimate {
            table,
            stats: self.dict.stats(table.oid).map(|s| &**s),
        };
        let mut best: Option<Candidate> = None;
        // Of a table that was never analyzed nobody knows what two indexes have in common.
        let combines = known.stats.is_some() && order.is_empty() && !limited;
        let mut parts = Vec::new();
        for (at, index) in table.indexes.iter().enumerate() {
            if !index.method.is_ordered() {
                continue;
            }
            let Some(seen) = indexed::seen(table, offset, at, &terms, order) else {
                continue;
            };
            let Some(candidate) = candidate(&known, offset, at, &seen) else {
                continue;
            };
            let useful = !candidate.equal.is_empty()
                || !candidate.any_of.is_empty()
                || candidate.low.is_some()
                || candidate.high.is_some()
                || seen.partial.is_some();
            // Without either, it would only be a slower way to all rows.
            let wanted = !order.is_empty() && candidate.ordered && (limited || terms.is_empty());
            if !useful && !wanted {
                continue;
            }
            if combines && useful && candidate.rows >= COMBINED_ROWS {
                parts.push(candidate.as_part(&seen));
            }
            if best
                .as_ref()
                .is_none_or(|b| better(&candidate, b, known.stats.is_some()))
            {
                best = Some(candidate);
            }
        }
        let needed = 0;
        if let Some((path, rows)) = keys(table, offset, &terms)
            && best
                .as_ref()
                .is_none_or(|b| !b.unique && rows < b.rows && !(limited && b.ordered))
        {
            let access = TableAccess {
                table: table.clone(),
                offset,
                path,
                needed,
                filter: conjoin(terms),
                rows,
            };
            return (access, order.is_empty());
        }
        if let Some(served) = inverted::best(&known, offset, &terms)
            && best
                .as_ref()
                .is_none_or(|b| !b.unique && served.rows < b.rows && !(limited && b.ordered))
            && !wish.scan_beats(
                &known,
                ENTERED * served.terms as f64 + served.rows * ROW_ANYWHERE,
            )
        {
            let access = TableAccess {
                table: table.clone(),
                offset,
                path: served.path,
                needed,
                filter: conjoin(terms),
                rows: served.rows,
            };
            return (access, order.is_empty());
        }
        if parts.len() > 1
            && let Some(common) = common::best(&known, parts)
            && best.as_ref().is_none_or(|b| common.cost < b.cost(&known))
            && !wish.scan_beats(&known, common.cost)
        {
            let access = TableAccess {
                table: table.clone(),
                offset,
                path: Path::Common {
                    parts: common.parts,
                    said: common.said.iter().map(|at| terms[*at].clone()).collect(),
                },
                needed,
                filter: conjoin(terms),
                rows: common.rows,
            };
            return (access, true);
        }
        match best.filter(|b| !b.is_beaten_by_scan(&known, &wish)) {
            None => {
                let rows = (known.rows() * known.all(&terms, offset)).max(1.0);
                (
                    TableAccess {
                        table: table.clone(),
                        offset,
                        path: Path::Full,
                        needed,
                        filter: conjoin(terms),
                        rows,
                    },
                    order.is_empty(),
                )
            }
            Some(c) => {
                let mut position = 0;
                let mut rest = terms;
                rest.retain(|_| {
                    position += 1;
                    !c.used.contains(&(position - 1))
                });
                let path = Path::Index {
                    index: c.index,
                    equal: c.equal,
                    any_of: c.any_of,
                    low: c.low,
                    high: c.high,
                    backward: c.backward,
                    unique: c.unique,
                };
                (
                    TableAccess {
                        table: table.clone(),
                        offset,
                        path,
                        needed,
                        filter: conjoin(rest),
                        rows: c.rows,
                    },
                    c.ordered,
                )
            }
        }
    }
}

/// What an index would do for the terms and the order.
fn candidate(known: &Estimate<'_>, offset: usize, at: usize, seen: &Seen<'_>) -> Option<Candidate> {
    let (terms, order) = (&*seen.terms, &*seen.order);
    let index = &known.table.indexes[at];
    let width = seen.width;
    let keys: Vec<Option<KeyTerm<'_>>> = terms
        .iter()
        .map(|t| key_term(t, offset, width).or_else(|| implied_bound(t, offset, width)))
        .collect();
    let mut c = Candidate {
        index: at,
        equal: Vec::new(),
        any_of: Vec::new(),
        low: None,
        high: None,
        used: Vec::new(),
        backward: false,
        ordered: false,
        unique: false,
        rows: known.rows(),
    };
    for key in &seen.keys {
        let found = keys.iter().position(|k| {
            k.as_ref()
                .is_some_and(|k| k.op == CmpOp::Eq && k.column == key.column)
        });
        let Some(term) = found else { break };
        let key = keys[term].as_ref()?;
        c.equal.push(key.value.clone());
        if key.exact {
            c.used.push(term);
        }
    }
    if let Some(next) = seen.keys.get(c.equal.len())
        && let Some((term, (list, exact))) = terms
            .iter()
            .enumerate()
            .find_map(|(i, t)| Some((i, in_list(t, offset + next.column, offset)?)))
    {
        c.any_of = list.to_vec();
        if exact {
            c.used.push(term);
        }
    }
    let given = c.equal.len() + usize::from(!c.any_of.is_empty());
    c.unique = index.is_unique_now() && given == index.keys.len();
    if c.any_of.is_empty()
        && let Some(next) = seen.keys.get(c.equal.len())
    {
        for key in keys.iter().flatten().filter(|k| k.column == next.column) {
            let bound = Some(KeyBound {
                value: key.value.clone(),
                inclusive: !key.exact || matches!(key.op, CmpOp::Le | CmpOp::Ge),
            });
            match key.op {
                CmpOp::Gt | CmpOp::Ge if c.low.is_none() => c.low = bound,
                CmpOp::Lt | CmpOp::Le if c.high.is_none() => c.high = bound,
                _ => {}
            }
        }
        if c.low.is_none()
            && c.high.is_none()
            && let Some((low, high)) = terms
                .iter()
                .find_map(|t| like_prefix(t, offset + next.column))
        {
            (c.low, c.high) = (Some(low), high);
        }
    }
    c.rows = expected(known, seen, &c);
    if c.any_of.is_empty()
        && let Some(backward) = index_order(&seen.keys, c.equal.len(), offset, order)
    {
        c.ordered = true;
        c.backward = backward;
    }
    c.ordered |= order.is_empty() || c.unique && c.any_of.is_empty();
    Some(c)
}

/// Rows that the index leads to.
fn expected(known: &Estimate<'_>, seen: &Seen<'_>, c: &Candidate) -> f64 {
    if c.unique {
        return c.any_of.len().max(1) as f64;
    }
    let mut share = known.all(seen.partial.as_deref().unwrap_or_default(), seen.offset);
    for (key, value) in seen.keys.iter().zip(&c.equal) {
        share *= known.equal_to(key.column, value);
    }
    if let Some(next) = seen.keys.get(c.equal.len()) {
        if !c.any_of.is_empty() {
            share *= known.one_of(next.column, &c.any_of);
        } else if c.low.is_some() || c.high.is_some() {
            share *= known.range(next.column, c.low.as_ref(), c.high.as_ref());
        }
    }
    (known.rows() * share).max(1.0)
}

/// Whether an index is the better one of two. Where statistics say how many rows each leads to, that decides, unless it is about the same.
fn better(a: &Candidate, b: &Candidate, known: bool) -> bool {
    if known && (a.rows > b.rows * SAME_ROWS || b.rows > a.rows * SAME_ROWS) {
        return a.rows < b.rows;
    }
    let rank = |c: &Candidate| {
        (
            c.unique,
            c.equal.len(),
            !c.any_of.is_empty(),
            u8::from(c.low.is_some()) + u8::from(c.high.is_some()),
            c.ordered,
        )
    };
    rank(a) > rank(b)
}

/// The column that an expression is to an index, and whether it is no other than that. A blank-padded string is compared without its padding, and
/// so it stands in the index; but the value that it is compared with, should it end in blanks, has a place there as if it did not.
pub fn key_column(e: &Expr) -> Option<(usize, bool)> {
    match e {
        Expr::Column(i) => Some((*i, true)),
        Expr::Cast(c, inner) if c.from == SqlType::Char && c.to == SqlType::Text => {
            match (&**inner, c.typmod) {
                (Expr::Column(i), -1) => Some((*i, false)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `column IN (list)` with values known before the table's row is, and whether their keys are all that the term says.
pub fn in_list(term: &Expr, slot: usize, offset: usize) -> Option<(&[Expr], bool)> {
    let Expr::InList {
        expr,
        list,
        negated: false,
        ..
    } = term
    else {
        return None;
    };
    let known = |e: &Expr| {
        !e.is_volatile()
            && e.columns_needed() <= offset
            && !matches!(e, Expr::Column(i) if *i >= offset)
    };
    let (column, exact) = key_column(expr)?;
    let fits = column == slot && list.len() <= MAX_LIST && list.iter().all(known);
    fits.then_some((list, exact))
}

/// `column LIKE 'abc%'` as the range of strings that begin with `abc`. The term itself stays in the filter.
pub fn like_prefix(term: &Expr, slot: usize) -> Option<(KeyBound, Option<KeyBound>)> {
    let Expr::Like {
        expr,
        pattern,
        escape,
        fold_case: false,
        negated: false,
    } = term
    else {
        return None;
    };
    let Expr::Const(Datum::Text(pattern)) = &**pattern else {
        return None;
    };
    if !matches!(**expr, Expr::Column(i) if i == slot) {
        return None;
    }
    let end = pattern
        .find(|c| c == '%' || c == '_' || Some(c) == *escape)
        .unwrap_or(pattern.len());
    let prefix = &pattern[..end];
    let bound = |text: String, inclusive| KeyBound {
        value: Expr::Const(Datum::Text(text)),
        inclusive,
    };
    let last = prefix.chars().next_back()?;
    let head = &prefix[..prefix.len() - last.len_utf8()];
    // The next character in the order of UTF-8, which is that of code points; none follows the last.
    let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
    Some((
        bound(prefix.to_string(), true),
        next.map(|c| bound(format!("{head}{c}"), false)),
    ))
}

/// Reads a conjunct as a key term of the table whose columns are `offset..offset + width` of the combined row.
pub fn key_term(term: &Expr, offset: usize, width: usize) -> Option<KeyTerm<'_>> {
    let Expr::Compare(op, left, right) = term else {
        return None;
    };
    let own = |e: &Expr| {
        let (column, exact) = key_column(e)?;
        (offset..offset + width)
            .contains(&column)
            .then(|| (column - offset, exact))
    };
    let outside = |e: &Expr| {
        let mut outside = !e.is_volatile();
        e.visit(&mut |n| outside &= !matches!(n, Expr::Column(i) if *i >= offset));
        outside
    };
    if let Some((column, exact)) = own(left)
        && outside(right)
    {
        return Some(KeyTerm {
            op: *op,
            column,
            value: right,
            exact,
        });
    }
    if let Some((column, exact)) = own(right)
        && outside(left)
    {
        return Some(KeyTerm {
            op: op.flip(),
            column,
            value: left,
            exact,
        });
    }
    None
}

/// The bound that an OR implies: of `a > 1 or (a = 1 and b > 2)`, as `(a, b) > (1, 2)` is written
/// out, `a >= 1`.
fn implied_bound(term: &Expr, offset: usize, width: usize) -> Option<KeyTerm<'_>> {
    let Expr::Or(branches) = term else {
        return None;
    };
    let first = branches.first()?;
    let upper = |op| match op {
        CmpOp::Lt | CmpOp::Le => Some(true),
        CmpOp::Gt | CmpOp::Ge => Some(false),
        _ => None,
    };
    key_terms(first, offset, width).into_iter().find_map(|k| {
        let is_upper = upper(k.op)?;
        let follows = |t: &KeyTerm<'_>| {
            t.column == k.column
                && t.value == k.value
                && (t.op == CmpOp::Eq || upper(t.op) == Some(is_upper))
        };
        let all = branches
            .iter()
            .all(|branch| key_terms(branch, offset, width).iter().any(follows));
        let op = if is_upper { CmpOp::Le } else { CmpOp::Ge };
        all.then_some(KeyTerm {
            op,
            exact: false,
            ..k
        })
    })
}

/// The key terms that all hold if a condition does.
fn key_terms(e: &Expr, offset: usize, width: usize) -> Vec<KeyTerm<'_>> {
    match e {
        Expr::And(list) => list
            .iter()
            .flat_map(|e| key_terms(e, offset, width))
            .collect(),
        other => key_term(other, offset, width).into_iter().collect(),
    }
}

/// Whether the index, after its first `equal` columns are fixed, delivers the order; and then whether backwards.
fn index_order(keys: &[IndexKey], equal: usize, offset: usize, order: &[SortKey]) -> Option<bool> {
    if order.is_empty() {
        return Some(false);
    }
    let fixed: Vec<usize> = keys[..equal].iter().map(|k| k.column).collect();
    let mut rest = keys[equal..].iter();
    let mut direction: Option<bool> = None;
    for key in order {
        let (Expr::Column(slot), None) = (&key.expr, key.by) else {
            return None;
        };
        let column = slot.checked_sub(offset)?;
        if fixed.contains(&column) {
            continue;
        }
        let have = rest.next()?;
        if have.column != column {
            return None;
        }
        let backward = have.descending != key.descending;
        if (have.nulls_first != key.nulls_first) != backward
            || direction.is_some_and(|d| d != backward)
        {
            return None;
        }
        direction = Some(backward);
    }
    Some(direction.unwrap_or(false))
}
