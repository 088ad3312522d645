//! Indexes on expressions and partial indexes, as plans see them: an expression of an index is a
//! column behind those of the table, wherever the statement has the same expression; a partial index
//! is one only for conditions that imply its own.

use std::borrow::Cow;
use std::cmp::Ordering;

use block::value::Datum;

use super::SortKey;
use super::path::conjuncts;
use crate::bind::collation;
use crate::dict::{IndexKey, Table};
use crate::expr::{CmpOp, Expr, compare};

/// What the choice of a path looks at, for one index.
pub struct Seen<'t> {
    pub keys: Vec<IndexKey>,
    pub terms: Cow<'t, [Expr]>,
    pub order: Cow<'t, [SortKey]>,
    /// Columns of the table, and expressions behind them.
    pub width: usize,
    pub offset: usize,
    /// The conditions that the rows of a partial index meet.
    pub partial: Option<Vec<Expr>>,
}

/// An index, with the terms and the order as it has them. `None`: it does not have all rows that
/// meet the terms.
pub fn seen<'t>(
    table: &Table,
    offset: usize,
    at: usize,
    terms: &'t [Expr],
    order: &'t [SortKey],
) -> Option<Seen<'t>> {
    let index = &table.indexes[at];
    if !index.is_valid() {
        return None;
    }
    let mut seen = Seen {
        keys: index.keys.clone(),
        terms: Cow::Borrowed(terms),
        order: Cow::Borrowed(order),
        width: table.columns.len(),
        offset,
        partial: None,
    };
    let Some(bound) = &index.bound else {
        return Some(seen);
    };
    if let Some(predicate) = &bound.predicate {
        let met = conjuncts(Some(moved(predicate, offset)));
        if !met.iter().all(|wanted| implies(terms, wanted)) {
            return None;
        }
        seen.partial = Some(met);
    }
    let mut expressions = Vec::new();
    for (key, typed) in seen.keys.iter_mut().zip(&bound.keys) {
        if key.is_expression() {
            key.column = seen.width;
            expressions.push((moved(&typed.expr, offset), offset + seen.width));
            seen.width += 1;
        }
    }
    if !expressions.is_empty() {
        let replace = &mut |e: &Expr| {
            let found = expressions.iter().find(|(known, _)| known == e);
            found.map(|(_, slot)| Expr::Column(*slot))
        };
        seen.terms
            .to_mut()
            .iter_mut()
            .for_each(|e| e.replace(replace));
        for key in seen.order.to_mut() {
            // An index in the order of a collation has its keys.
            if let Some(by) = key.by {
                let wanted = collation::key_of(key.expr.clone(), by);
                if let Some((_, slot)) = expressions.iter().find(|(known, _)| *known == wanted) {
                    (key.expr, key.by) = (Expr::Column(*slot), None);
                }
            } else {
                key.expr.replace(replace);
            }
        }
    }
    Some(seen)
}

/// An expression over a table's columns, as one over a row in which these come after others.
fn moved(e: &Expr, offset: usize) -> Expr {
    let mut e = e.clone();
    e.replace(&mut |e| match e {
        Expr::Column(at) => Some(Expr::Column(at + offset)),
        _ => None,
    });
    e
}

/// Whether a condition is true of every row for which all of the terms are. False if that cannot be
/// seen.
pub fn implies(terms: &[Expr], wanted: &Expr) -> bool {
    match wanted {
        Expr::And(all) => all.iter().all(|part| implies(terms, part)),
        Expr::Or(any) => {
            terms.iter().any(|term| one_implies(term, wanted))
                || any.iter().any(|part| implies(terms, part))
        }
        _ => terms.iter().any(|term| one_implies(term, wanted)),
    }
}

fn one_implies(term: &Expr, wanted: &Expr) -> bool {
    let (term, wanted) = (plain(term), plain(wanted));
    if term == wanted {
        return true;
    }
    match term {
        Expr::And(all) => return implies(all, wanted),
        Expr::Or(any) => {
            return any
                .iter()
                .all(|part| implies(std::slice::from_ref(part), wanted));
        }
        _ => {}
    }
    match wanted {
        Expr::IsNull {
            expr,
            negated: true,
        } => is_strict_in(term, expr),
        Expr::Compare(op, left, right) => match (bounds(term), &**right) {
            (Some((own, e, value)), Expr::Const(limit)) if e == &**left => {
                let Expr::Const(value) = value else {
                    return false;
                };
                match compare(value.borrow(), limit.borrow()) {
                    Ok(order) => within((own, order), *op),
                    Err(_) => false,
                }
            }
            _ => false,
        },
        _ => false,
    }
}

/// `x = true` and `x IS TRUE` as `x`: where the one is true, so is the other.
fn plain(e: &Expr) -> &Expr {
    match e {
        Expr::Compare(CmpOp::Eq, left, right) => match (&**left, &**right) {
            (e, Expr::Const(Datum::Bool(true))) | (Expr::Const(Datum::Bool(true)), e) => plain(e),
            _ => e,
        },
        Expr::IsBool {
            expr,
            value: Some(true),
            negated: false,
        } => plain(expr),
        _ => e,
    }
}

/// A comparison with a constant.
fn bounds(term: &Expr) -> Option<(CmpOp, &Expr, &Expr)> {
    let Expr::Compare(op, left, right) = term else {
        return None;
    };
    match (&**left, &**right) {
        (e, c @ Expr::Const(d)) if !d.is_null() => Some((*op, e, c)),
        (c @ Expr::Const(d), e) if !d.is_null() => Some((op.flip(), e, c)),
        _ => None,
    }
}

/// Whether `x own value` implies `x wanted limit`, given how value and limit compare.
fn within((own, order): (CmpOp, Ordering), wanted: CmpOp) -> bool {
    use CmpOp::{Eq, Ge, Gt, Le, Lt, Ne};
    match (own, wanted) {
        (Eq, wanted) => wanted.holds(order),
        (Lt, Lt | Le) | (Le, Le) => order.is_le(),
        (Le, Lt) => order.is_lt(),
        (Gt, Gt | Ge) | (Ge, Ge) => order.is_ge(),
        (Ge, Gt) => order.is_gt(),
        (Lt, Ne) => order.is_le(),
        (Le, Ne) => order.is_lt(),
        (Gt, Ne) => order.is_ge(),
        (Ge, Ne) => order.is_gt(),
        (Ne, Ne) => order.is_eq(),
        _ => false,
    }
}

/// Whether a term is true only where the expression is not NULL.
fn is_strict_in(term: &Expr, e: &Expr) -> bool {
    let has = |part: &Expr| part == e || is_strict_value(part, e);
    match term {
        Expr::Compare(_, left, right) => has(left) || has(right),
        Expr::InList { expr, .. } => has(expr),
        Expr::Like { expr, pattern, .. } => has(expr) || has(pattern),
        Expr::IsNull {
            expr,
            negated: true,
        } => has(expr),
        Expr::IsBool {
            value: Some(_),
            negated: false,
            expr,
        } => has(expr),
        Expr::Not(inner) => match &**inner {
            Expr::Compare(..) | Expr::Like { .. } => is_strict_in(inner, e),
            other => has(other),
        },
        other => has(other),
    }
}

/// Whether a value is NULL where the expression is.
fn is_strict_value(value: &Expr, e: &Expr) -> bool {
    let has = |part: &Expr| part == e || is_strict_value(part, e);
    match value {
        Expr::Arith(_, _, left, right) => has(left) || has(right),
        Expr::Negate(inner) | Expr::Cast(_, inner) => has(inner),
        _ => false,
    }
}
