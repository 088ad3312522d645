//! Refuses what DataFusion would take and do otherwise than PostgreSQL.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, JoinConstraint, JoinOperator, Query, SetExpr, TableFactor, UnaryOperator,
    Visit, Visitor,
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

/// Whether it is an aggregate that the direct lane has not.
pub fn is_general_aggregate(name: &str) -> bool {
    AGGREGATES.contains(&name) || FLOAT_AGGREGATES.contains(&name)
}

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
        if q.fetch.is_some() {
            return refuse("FETCH FIRST ... WITH TIES in the general lane");
        }
        if !q.locks.is_empty() {
            return refuse("FOR UPDATE or FOR SHARE in a query of this kind");
        }
        match &*q.body {
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => {
                refuse("data-modifying statements in WITH")
            }
            SetExpr::Select(s) if s.into.is_some() => refuse("SELECT INTO"),
            body => memberships(body),
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
            Expr::InSubquery { expr, .. } if matches!(**expr, Expr::Tuple(_)) => {
                refuse("rows IN (SELECT ..) other than as a condition of its own")
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
            // DataFusion takes its pattern for a regular expression.
            Expr::SimilarTo { .. } => refuse("SIMILAR TO"),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Where a condition stands, as far as unknown and false differ.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    /// A conjunct of the whole condition.
    Conjunct,
    /// Below OR: only true counts, too, but it is not a join of its own.
    Alternative,
}

/// DataFusion takes `x IN (SELECT ..)` for false where it is unknown, unless it is a whole conjunct of a condition, in
/// which NOT IN is planned by itself. That is refused wherever it could be told apart.
fn memberships(body: &SetExpr) -> ControlFlow<Error> {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            memberships(left)?;
            memberships(right)
        }
        SetExpr::Select(s) => {
            for condition in s.selection.iter().chain(&s.having) {
                membership(condition, Place::Conjunct)?;
            }
            for join in s.from.iter().flat_map(|t| &t.joins) {
                if let JoinOperator::Join(JoinConstraint::On(e))
                | JoinOperator::Inner(JoinConstraint::On(e))
                | JoinOperator::Left(JoinConstraint::On(e))
                | JoinOperator::LeftOuter(JoinConstraint::On(e))
                | JoinOperator::Right(JoinConstraint::On(e))
                | JoinOperator::RightOuter(JoinConstraint::On(e))
                | JoinOperator::FullOuter(JoinConstraint::On(e)) = &join.join_operator
                {
                    membership(e, Place::Alternative)?;
                }
            }
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Continue(()),
    }
}

fn membership(e: &Expr, place: Place) -> ControlFlow<Error> {
    match e {
        Expr::Nested(inner) => membership(inner, place),
        Expr::BinaryOp {
            left,
            op: op @ (BinaryOperator::And | BinaryOperator::Or),
            right,
        } => {
            let place = match op {
                BinaryOperator::And => place,
                _ => Place::Alternative,
            };
            membership(left, place)?;
            membership(right, place)
        }
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } if place == Place::Conjunct && member_of(expr).is_some() => operand(member_of(expr)),
        other => match member_of(other) {
            Some((_, negated)) if negated && place != Place::Conjunct => unknown_as_false(),
            None if finds_member(other) => unknown_as_false(),
            found => operand(found),
        },
    }
}

fn unknown_as_false() -> ControlFlow<Error> {
    refuse("IN (SELECT ..) at a place where unknown is not the same as false")
}

fn operand(found: Option<(&Expr, bool)>) -> ControlFlow<Error> {
    match found {
        Some((e, _)) if finds_member(e) => unknown_as_false(),
        _ => ControlFlow::Continue(()),
    }
}

/// The left side of a test for membership in a subquery, and whether it is negated.
fn member_of(e: &Expr) -> Option<(&Expr, bool)> {
    match e {
        Expr::Nested(inner) => member_of(inner),
        Expr::InSubquery { expr, negated, .. } => Some((expr, *negated)),
        Expr::AnyOp { left, right, .. } if is_subquery(right) => Some((left, false)),
        Expr::AllOp { left, right, .. } if is_subquery(right) => Some((left, true)),
        _ => None,
    }
}

/// Whether membership in a subquery is tested in the expression, other than in its subqueries.
fn finds_member(e: &Expr) -> bool {
    struct Find(usize);
    impl Visitor for Find {
        type Break = ();
        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, e: &Expr) -> ControlFlow<()> {
            match self.0 == 0 && member_of(e).is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    e.visit(&mut Find(0)).is_break()
}

fn is_subquery(e: &Expr) -> bool {
    match e {
        Expr::Nested(inner) => is_subquery(inner),
        other => matches!(other, Expr::Subquery(_)),
    }
}
