//! Refuses what DataFusion would take and do otherwise than PostgreSQL.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, SetExpr, TableFactor, Visit, Visitor,
};

use crate::bind::names;
use crate::error::{Error, Result};

/// Functions of DataFusion that do what PostgreSQL's of the same name do. All others are ours, or refused.
const SAME: &[&str] = &[
    "coalesce",
    "nullif",
    "greatest",
    "least",
    "translate",
    "to_hex",
    "sin",
    "cos",
    "tan",
    "cot",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "degrees",
    "radians",
    "cbrt",
    "bit_length",
    "regexp_replace",
    "overlay",
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
    "generate_series",
    "unnest",
    "array",
];

/// Aggregates over floats only: over other numbers PostgreSQL's are exact.
pub const FLOAT_AGGREGATES: &[&str] = &[
    "stddev",
    "stddev_samp",
    "stddev_pop",
    "variance",
    "var_samp",
    "var_pop",
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_slope",
    "regr_intercept",
    "regr_count",
    "regr_r2",
    "regr_avgx",
    "regr_avgy",
    "regr_sxx",
    "regr_syy",
    "regr_sxy",
];

/// The other aggregates that are the same, beside those of the direct lane.
pub const AGGREGATES: &[&str] = &[
    "string_agg",
    "bool_and",
    "bool_or",
    "every",
    "bit_and",
    "bit_or",
    "bit_xor",
];

/// Whether a function of that name is there, but not as PostgreSQL has it. One that nobody knows is for the planner to
/// say.
fn is_other(name: &str) -> Result<bool> {
    let known = SAME.contains(&name)
        || AGGREGATES.contains(&name)
        || FLOAT_AGGREGATES.contains(&name)
        || crate::bind::is_aggregate(name)
        || crate::views::functions::find(name).is_some()
        || super::bound::is_pure(name)
        || super::rewrite::is_stable(name);
    if known {
        return Ok(false);
    }
    let state = super::planner::state()?;
    Ok(!crate::expr::func::overloads(name).is_empty()
        || state.scalar_functions().contains_key(name)
        || state.higher_order_functions().contains_key(name)
        || state.aggregate_functions().contains_key(name)
        || state.window_functions().contains_key(name)
        || state.table_functions().contains_key(name))
}

pub fn check(query: &Query) -> Result<()> {
    match query.visit(&mut Gate) {
        ControlFlow::Break(e) => Err(e),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Gate;

fn refuse(what: impl std::fmt::Display) -> ControlFlow<Error> {
    ControlFlow::Break(Error::unsupported(what))
}

impl Visitor for Gate {
    type Break = Error;

    fn pre_visit_query(&mut self, q: &Query) -> ControlFlow<Error> {
        if !q.locks.is_empty() {
            return refuse("FOR UPDATE or FOR SHARE in a query of this kind");
        }
        match &*q.body {
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                refuse("data-modifying statements in WITH")
            }
            SetExpr::Select(s) if s.into.is_some() => refuse("SELECT INTO"),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, t: &TableFactor) -> ControlFlow<Error> {
        match t {
            TableFactor::Table {
                sample: Some(_), ..
            } => refuse("TABLESAMPLE"),
            TableFactor::Table {
                with_ordinality: true,
                ..
            }
            | TableFactor::Function {
                with_ordinality: true,
                ..
            } => refuse("WITH ORDINALITY"),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, e: &Expr) -> ControlFlow<Error> {
        match e {
            Expr::Function(f) => {
                match names::Qualified::new(&f.name).and_then(|n| is_other(&n.name)) {
                    Ok(true) => refuse(format!("function {} in a query of this kind", f.name)),
                    Ok(false) => ControlFlow::Continue(()),
                    Err(e) => ControlFlow::Break(e),
                }
            }
            Expr::AnyOp {
                compare_op, right, ..
            } if is_subquery(right) && *compare_op != BinaryOperator::Eq => {
                refuse(format!("{compare_op} ANY (subquery)"))
            }
            Expr::AllOp {
                compare_op, right, ..
            } if is_subquery(right) && *compare_op != BinaryOperator::NotEq => {
                refuse(format!("{compare_op} ALL (subquery)"))
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn is_subquery(e: &Expr) -> bool {
    match e {
        Expr::Nested(inner) => is_subquery(inner),
        other => matches!(other, Expr::Subquery(_)),
    }
}
