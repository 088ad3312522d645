//! Refuses what DataFusion would take and do otherwise than PostgreSQL.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, SetExpr, TableFactor, Visit, Visitor};

use crate::bind::names;
use crate::error::{Error, Result};

/// Functions that exist in DataFusion with other meanings: patterns of another language, other units, other results.
const DIFFERENT: &[&str] = &[
    "to_char",
    "to_date",
    "to_timestamp",
    "to_number",
    "now_utc",
    "date_bin",
    "array_agg",
    "random",
    "uuid",
    "setval",
    "nextval",
    "currval",
    "lastval",
    "pg_advisory_lock",
    "pg_try_advisory_lock",
    "set_config",
    "pg_cancel_backend",
    "pg_terminate_backend",
    "pg_sleep",
    "log",
];

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
            Expr::Function(f) => match names::Qualified::new(&f.name) {
                Ok(n) if DIFFERENT.contains(&n.name.as_str()) => {
                    refuse(format!("function {} in a query of this kind", n.name))
                }
                _ => ControlFlow::Continue(()),
            },
            _ => ControlFlow::Continue(()),
        }
    }
}
