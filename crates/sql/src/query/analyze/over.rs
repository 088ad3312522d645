//! Queries over a row that another step has: the row that ON CONFLICT meets beside the one that was
//! to be inserted, or one that a write returns. Its columns are names of a level around the query,
//! as those of the row around a subquery are, and their registers are set before it runs.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use sqlparser::ast;

use super::joins::THERE;
use super::scope::{Column, File, Scope, Within};
use super::{Analyzer, with};
use crate::bind::{self, ParamTypes, Typed};
use crate::error::Result;
use crate::expr::Expr;
use crate::query::optimize::{self, uses};
use crate::query::plan::{Plan, Register};
use crate::session::Core;

/// A query over a row.
#[derive(Clone, Debug)]
pub struct OverRow {
    pub plan: Arc<Plan>,
    /// What it reads of the row: where each value goes, and the value, over the row.
    pub inputs: Vec<(Register, Expr)>,
}

/// What a query sees of a row.
#[derive(Clone, Copy)]
pub struct Row<'r> {
    pub scope: &'r bind::Scope,
    /// The tables whose whole rows can be named, because they are never missing.
    pub whole: &'r [&'r str],
    /// The clause of the statement that the query stands in.
    pub clause: &'static str,
}

/// A column that a query of a write has from FROM, beside those of the target.
#[derive(Debug)]
pub struct Beside {
    /// Alias of its relation; empty for what USING merged.
    pub table: String,
    pub name: String,
    /// Merged by USING: found with its table's name only.
    pub merged: bool,
}

/// Plans a query for another step, over a row. `items` are those of the statement's WITH that it
/// may name.
pub fn plan_over(
    core: &Core,
    q: &ast::Query,
    params: &ParamTypes,
    row: Row<'_>,
    items: &[with::WithItem],
) -> Result<OverRow> {
    let dict = core.dict();
    let analyzer = Analyzer::new(&dict, params);
    let file = File::new(None);
    let (around, registers) = scope_of(row, &file);
    let inside = Scope {
        within: Some(Within {
            clause: row.clause,
            groups: None,
        }),
        ..Scope::new(Some(&around), &file)
    };
    let level = analyzer.query(q, &inside, &with::Known::of_statement(items))?;
    let mut read = HashSet::new();
    uses::of_level(&level, &mut read);
    let base = params.count();
    let inputs = registers
        .iter()
        .zip(row.scope.columns.iter().chain(&row.scope.system));
    let inputs = inputs
        .filter(|(register, _)| read.contains(register))
        .map(|(register, column)| (base + register, Expr::Column(column.slot)))
        .collect();
    let plan = optimize::plan(core, analyzer, &file, level)?;
    Ok(OverRow {
        plan: Arc::new(plan),
        inputs,
    })
}

/// The names of a row as a level of their own, and the register of each column.
fn scope_of(row: Row<'_>, file: &Rc<File>) -> (Scope<'static>, Vec<Register>) {
    let mut scope = Scope::new(None, file);
    let mut registers = Vec::new();
    let mut named = |c: &bind::ScopeColumn| {
        let register = file.register();
        registers.push(register);
        Column {
            table: c.table.clone(),
            name: c.name.clone(),
            value: Typed {
                expr: Expr::Column(register),
                ty: c.ty,
                typmod: c.typmod,
                collation: c.collation,
            },
            origin: (c.table_oid, c.attnum),
            merged: c.hidden,
            whole: false,
        }
    };
    scope.columns = row.scope.columns.iter().map(&mut named).collect();
    scope.system = row.scope.system.iter().map(&mut named).collect();
    for column in &scope.columns {
        if !column.table.is_empty() && !scope.tables.contains(&column.table) {
            scope.tables.push(column.table.clone());
            if row.whole.contains(&column.table.as_str()) {
                scope.rows.push((column.table.clone(), Expr::Const(THERE)));
            }
        }
    }
    (scope, registers)
}
