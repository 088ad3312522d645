//! Conditions: which relations they need, what follows from them, and what they exclude.

use std::collections::HashSet;

use crate::expr::{CmpOp, Expr};
use crate::plan::path::{conjoin, conjuncts};
use crate::query::plan::Register;

/// Registers that an expression reads.
pub fn registers(e: &Expr) -> HashSet<Register> {
    let mut found = HashSet::new();
    super::uses::of_expr(e, &mut found);
    found
}

pub fn has_subquery(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| found |= matches!(e, Expr::Subquery { .. }));
    found
}

/// Adds what equalities say of other columns: of `a = b` and `a = 1`, `b = 1`. `own` are the
/// registers of the relations to be joined; what needs none of them is a constant here.
pub fn carry_constants(conditions: &mut Vec<Expr>, own: &HashSet<Register>) {
    let mut classes: Vec<(HashSet<Register>, Vec<Expr>)> = Vec::new();
    let column = |e: &Expr| match e {
        Expr::Column(r) if own.contains(r) => Some(*r),
        _ => None,
    };
    let constant = |e: &Expr| {
        !e.is_volatile() && !has_subquery(e) && registers(e).iter().all(|r| !own.contains(r))
    };
    for c in conditions.iter() {
        let Expr::Compare(CmpOp::Eq, left, right) = c else {
            continue;
        };
        let (members, value): (Vec<Register>, Option<&Expr>) = match (column(left), column(right)) {
            (Some(a), Some(b)) => (vec![a, b], None),
            (Some(a), None) if constant(right) => (vec![a], Some(right)),
            (None, Some(b)) if constant(left) => (vec![b], Some(left)),
            _ => continue,
        };
        let mut merged = (members.into_iter().collect::<HashSet<_>>(), Vec::new());
        merged.1.extend(value.cloned());
        classes.retain(|(registers, values)| {
            let apart = registers.is_disjoint(&merged.0);
            if !apart {
                merged.0.extend(registers);
                merged.1.extend(values.iter().cloned());
            }
            apart
        });
        classes.push(merged);
    }
    for (members, values) in classes {
        let Some(value) = values.first() else {
            continue;
        };
        let mut members: Vec<Register> = members.into_iter().collect();
        members.sort_unstable();
        for r in members {
            let known = |c: &Expr| {
                matches!(c, Expr::Compare(CmpOp::Eq, l, right)
                    if (**l == Expr::Column(r) && constant(right))
                        || (**right == Expr::Column(r) && constant(l)))
            };
            if !conditions.iter().any(known) {
                conditions.push(Expr::Compare(
                    CmpOp::Eq,
                    Box::new(Expr::Column(r)),
                    Box::new(value.clone()),
                ));
            }
        }
    }
}

/// Of `a AND b OR a AND c`, a, and what is left; and of alternatives over several relations what
/// each says of one of them, for rows that no alternative takes need not be joined. `items` are the
/// registers of each relation.
pub fn take_alternatives_apart(conditions: &mut Vec<Expr>, items: &[&HashSet<Register>]) {
    let mut found = Vec::new();
    for condition in std::mem::take(conditions) {
        match condition {
            Expr::Or(list) if list.iter().all(is_simple) => found.extend(common(list)),
            other => found.push(other),
        }
    }
    let mut more = Vec::new();
    for condition in &found {
        let Expr::Or(list) = condition else { continue };
        if !list.iter().all(is_simple) {
            continue;
        }
        let read = registers(condition);
        for own in items {
            if !read.is_disjoint(own) && !read.is_subset(own) {
                more.extend(alternatives_of(list, own));
            }
        }
    }
    conditions.extend(found);
    conditions.extend(more);
}

/// Whether it may be looked at once more, and elsewhere.
fn is_simple(e: &Expr) -> bool {
    !e.is_volatile() && !has_subquery(e)
}

/// The conditions that alternatives have in common, and the rest of the alternatives.
fn common(list: Vec<Expr>) -> Vec<Expr> {
    let mut each: Vec<Vec<Expr>> = list.into_iter().map(|e| conjuncts(Some(e))).collect();
    let Some(first) = each.first() else {
        return vec![Expr::Or(Vec::new())];
    };
    let in_all = |e: &&Expr| each.iter().all(|list| list.contains(e));
    let mut found: Vec<Expr> = first.iter().filter(in_all).cloned().collect();
    for list in &mut each {
        list.retain(|e| !found.contains(e));
    }
    // An alternative with nothing left takes all rows.
    if each.iter().all(|list| !list.is_empty()) {
        found.push(Expr::Or(each.into_iter().filter_map(conjoin).collect()));
    }
    found
}

/// What alternatives say of one relation, if each says something.
fn alternatives_of(list: &[Expr], own: &HashSet<Register>) -> Option<Expr> {
    let mut alternatives = Vec::new();
    for e in list {
        let mut parts = conjuncts(Some(e.clone()));
        parts.retain(|part| {
            let read = registers(part);
            !read.is_empty() && read.is_subset(own)
        });
        alternatives.push(conjoin(parts)?);
    }
    Some(Expr::Or(alternatives))
}

/// Whether a condition cannot hold for a row in which all these registers are NULL.
pub fn rejects_nulls(e: &Expr, nulls: &HashSet<Register>) -> bool {
    match e {
        Expr::And(list) => list.iter().any(|e| rejects_nulls(e, nulls)),
        Expr::Or(list) => !list.is_empty() && list.iter().all(|e| rejects_nulls(e, nulls)),
        Expr::IsNull {
            expr,
            negated: true,
        } => is_null_with(expr, nulls),
        Expr::IsBool {
            expr,
            value: Some(_),
            negated: false,
        } => is_null_with(expr, nulls),
        Expr::Not(inner) => is_null_with(inner, nulls),
        other => is_null_with(other, nulls),
    }
}

/// Whether a value is NULL if all these registers are.
fn is_null_with(e: &Expr, nulls: &HashSet<Register>) -> bool {
    let of = |e: &Expr| is_null_with(e, nulls);
    match e {
        Expr::Column(r) => nulls.contains(r),
        Expr::Compare(_, l, r) | Expr::Arith(_, _, l, r) | Expr::Concat(l, r) => of(l) || of(r),
        Expr::Negate(e) | Expr::Cast(_, e) | Expr::Not(e) => of(e),
        Expr::Like { expr, pattern, .. } => of(expr) || of(pattern),
        Expr::InList { expr, list, .. } => !list.is_empty() && of(expr),
        Expr::And(list) | Expr::Or(list) => !list.is_empty() && list.iter().all(of),
        _ => false,
    }
}

/// An equality whose sides are of `left` alone and of what is not: the side of `left` first.
pub fn equality<'e>(
    e: &'e Expr,
    left: &HashSet<Register>,
    right: &HashSet<Register>,
) -> Option<(&'e Expr, &'e Expr)> {
    let Expr::Compare(CmpOp::Eq, a, b) = e else {
        return None;
    };
    if e.is_volatile() || has_subquery(e) {
        return None;
    }
    let (of_a, of_b) = (registers(a), registers(b));
    let only = |found: &HashSet<Register>, side: &HashSet<Register>, other: &HashSet<Register>| {
        !found.is_disjoint(side) && found.is_disjoint(other)
    };
    if only(&of_a, left, right) && only(&of_b, right, left) {
        return Some((a, b));
    }
    if only(&of_b, left, right) && only(&of_a, right, left) {
        return Some((b, a));
    }
    None
}

/// Cheap conditions before those that run subqueries, each kind in the order given.
pub fn cheapest_first(conditions: &mut [Expr]) {
    conditions.sort_by_key(has_subquery);
}

/// Whether a condition can do more than let a row pass or not: fail, or call what could tell of the
/// row. Comparisons and their connections cannot.
pub fn might_tell(e: &Expr) -> bool {
    let mut found = false;
    e.visit(&mut |e| {
        found |= !matches!(
            e,
            Expr::Column(_)
                | Expr::Param(_)
                | Expr::Const(_)
                | Expr::Compare(..)
                | Expr::And(_)
                | Expr::Or(_)
                | Expr::Not(_)
                | Expr::IsNull { .. }
                | Expr::IsBool { .. }
                | Expr::InList { .. }
        );
    });
    found
}

/// Whether a condition is known to refuse every row.
pub fn is_never(e: &Expr) -> bool {
    matches!(
        e,
        Expr::Const(block::value::Datum::Bool(false) | block::value::Datum::Null)
    )
}
