//! Which queries may lock rows: decided here for both lanes, in PostgreSQL's words.

use sqlparser::ast::{self, Distinct, GroupByExpr, Query, Select, SelectItem, SetExpr};

use super::finds_call;
use super::locking::kind;
use crate::bind::{is_aggregate, names};
use crate::error::{Error, Result};
use crate::query::aggregate;

/// Refuses FOR UPDATE and its kin where a row of the answer is not one of each table.
pub fn check_lockable(q: &Query) -> Result<()> {
    let Some(lock) = q.locks.first() else {
        return Ok(());
    };
    let kind = kind(lock);
    let refused = |what: &str| Err(Error::new("0A000", format!("{kind} {what}")));
    let select = match &*q.body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { .. } => {
            return refused("is not allowed with UNION/INTERSECT/EXCEPT");
        }
        SetExpr::Values(_) => return refused("cannot be applied to VALUES"),
        _ => return Ok(()),
    };
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    };
    let aggregate = |f: &ast::Function| f.over.is_none() && is_aggregate_call(f);
    let series = |f: &ast::Function| is_one_of(f, &["generate_series", "unnest"]);
    match select {
        s if !matches!(s.distinct, None | Some(Distinct::All)) => {
            refused("is not allowed with DISTINCT clause")
        }
        _ if grouped => refused("is not allowed with GROUP BY clause"),
        s if s.having.is_some() => refused("is not allowed with HAVING clause"),
        s if calls(s, q, &aggregate) => refused("is not allowed with aggregate functions"),
        s if calls(s, q, &|f| f.over.is_some()) => refused("is not allowed with window functions"),
        s if calls(s, q, &series) => {
            refused("is not allowed with set-returning functions in the target list")
        }
        _ => Ok(()),
    }
}

fn is_one_of(f: &ast::Function, of: &[&str]) -> bool {
    names::Qualified::new(&f.name).is_ok_and(|n| of.contains(&n.name.as_str()))
}

fn is_aggregate_call(f: &ast::Function) -> bool {
    names::Qualified::new(&f.name)
        .is_ok_and(|n| is_aggregate(&n.name) || aggregate::is_aggregate(&n.name))
}

/// Whether the select list, or what the answer is ordered by, calls such a function.
fn calls(select: &Select, q: &Query, wanted: &dyn Fn(&ast::Function) -> bool) -> bool {
    let listed = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => Some(e),
        _ => None,
    });
    let ordered = q.order_by.iter().flat_map(|o| match &o.kind {
        ast::OrderByKind::Expressions(keys) => keys.as_slice(),
        ast::OrderByKind::All(_) => &[],
    });
    listed
        .chain(ordered.map(|k| &k.expr))
        .any(|e| finds_call(e, wanted))
}
