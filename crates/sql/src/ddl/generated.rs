//! Generated columns: which expressions they may have, and what of ALTER TABLE is about them.
//!
//! **Invariant.** An expression names columns of its row that are not generated, and is immutable:
//! every instance computes the same value, whenever the row is written.

use sqlparser::ast::{self, AlterColumnOperation};

use super::index_expression::{is_immutable, refuse_parts};
use crate::bind::{Binder, ParamTypes, Scope, names};
use crate::dict::{Column, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse;
use crate::parse::forms::no_expression;
use crate::parse::identity::is_change;
use crate::session::Core;

/// The clause in messages.
pub const EXPRESSION: &str = "column generation expressions";

/// Checks the expressions of the generated columns of a table.
pub fn check(core: &Core, table: &Table) -> Result<()> {
    for (at, c) in table.live_columns().filter(|(_, c)| c.generated) {
        let Some(text) = &c.default else { continue };
        check_one(core, table, at, text)?;
    }
    Ok(())
}

fn check_one(core: &Core, table: &Table, at: usize, text: &str) -> Result<()> {
    let dict = core.dict();
    let e = parse::expression(text)?;
    refuse_parts(&e, EXPRESSION)?;
    refuse_system(&e)?;
    let params = ParamTypes::none(&dict).keeping_calls();
    let scope = Scope::of_table(table, &table.name);
    let binder = Binder::new(&scope, &params, EXPRESSION);
    let c = &table.columns[at];
    let bound = binder.expr(&e)?;
    let mut wrong = None;
    bound.expr.visit(&mut |e| {
        if let Expr::Column(used) = e
            && table.columns[*used].generated
        {
            wrong = Some(*used);
        }
    });
    if let Some(used) = wrong {
        let name = &table.columns[used].name;
        let message =
            format!("cannot use generated column \"{name}\" in column generation expression");
        return Err(Error::new("42P17", message)
            .detail("A generated column cannot reference another generated column."));
    }
    let from = bound.ty;
    let assigned = binder.assign(bound, c.ty(), c.typmod, &c.name);
    let assigned = assigned.map_err(|e| match e.sqlstate() {
        "42804" => Error::new(
            "42804",
            format!(
                "column \"{}\" is of type {} but default expression is of type {}",
                c.name,
                c.ty().name(),
                from.name()
            ),
        )
        .hint("You will need to rewrite or cast the expression."),
        _ => e,
    })?;
    match is_immutable(&dict, table, &e, &assigned.expr) {
        true => Ok(()),
        false => Err(Error::new(
            "42P17",
            "generation expression is not immutable",
        )),
    }
}

fn refuse_system(e: &ast::Expr) -> Result<()> {
    let mut found = None;
    let _ = ast::visit_expressions(e, |e| {
        if let ast::Expr::Identifier(name) = e {
            let name = names::ident(name);
            if names::is_system_column(&name) && name != "tableoid" {
                found = Some(name);
            }
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    match found {
        None => Ok(()),
        Some(name) => {
            let message =
                format!("cannot use system column \"{name}\" in column generation expression");
            Err(Error::new("42P10", message))
        }
    }
}

/// Makes a column from its syntax a generated one.
pub fn of_syntax(table: &Table, column: &mut Column, e: &ast::Expr) -> Result<()> {
    let both = |what: &str| {
        let (name, table) = (&column.name, &table.name);
        let message = match what {
            "" => format!(
                "multiple generation clauses specified for column \"{name}\" of table \"{table}\""
            ),
            _ => format!(
                "both {what} and generation expression specified for column \"{name}\" of table \
                 \"{table}\""
            ),
        };
        Err(Error::new("42601", message))
    };
    if column.generated {
        return both("");
    }
    if column.identity.is_some() {
        return both("identity");
    }
    if column.default.is_some() {
        return both("default");
    }
    column.generated = true;
    column.default = Some(e.to_string());
    Ok(())
}

/// Refuses a default beside a generation expression.
pub fn refuse_both(table: &Table, column: &Column, what: &str) -> Result<()> {
    if !column.generated {
        return Ok(());
    }
    let (name, table) = (&column.name, &table.name);
    let message = format!(
        "both {what} and generation expression specified for column \"{name}\" of table \"{table}\""
    );
    Err(Error::new("42601", message))
}

/// The generated columns of a table that are made of a column.
pub fn made_of(table: &Table, at: usize) -> Result<Vec<usize>> {
    let mut found = Vec::new();
    for (made, c) in table.live_columns().filter(|(_, c)| c.generated) {
        if let Some(text) = &c.default
            && super::alter::mentions(text, &table.columns[at].name)?
        {
            found.push(made);
        }
    }
    Ok(found)
}

/// Refuses what ALTER COLUMN does not do to a generated column.
pub fn refuse_change(table: &Table, at: usize, op: &AlterColumnOperation) -> Result<()> {
    let c = &table.columns[at];
    let message = || {
        let (name, table) = (&c.name, &table.name);
        format!("column \"{name}\" of relation \"{table}\" is a generated column")
    };
    match op {
        AlterColumnOperation::SetDefault { value }
            if c.generated && no_expression(value).is_none() && !is_change(value) =>
        {
            Err(Error::new("42601", message()))
        }
        AlterColumnOperation::DropDefault if c.generated => Err(Error::new("42601", message())
            .hint("Use ALTER TABLE ... ALTER COLUMN ... DROP EXPRESSION instead.")),
        AlterColumnOperation::SetDataType { .. } => match made_of(table, at)?.first() {
            None => Ok(()),
            Some(made) => {
                let (name, made) = (&c.name, &table.columns[*made].name);
                let message = "cannot alter type of a column used by a generated column";
                Err(Error::new("0A000", message).detail(format!(
                    "Column \"{name}\" is used by generated column \"{made}\"."
                )))
            }
        },
        _ => Ok(()),
    }
}

/// DROP EXPRESSION: the values stay as they are.
pub fn drop_expression(
    core: &mut Core,
    table: &mut Table,
    at: usize,
    if_exists: bool,
) -> Result<()> {
    let c = &mut table.columns[at];
    if !c.generated {
        let (name, table) = (&c.name, &table.name);
        let message =
            format!("column \"{name}\" of relation \"{table}\" is not a stored generated column");
        if !if_exists {
            return Err(Error::new("55000", message));
        }
        core.notice("NOTICE", "00000", format!("{message}, skipping"));
        return Ok(());
    }
    (c.generated, c.default) = (false, None);
    Ok(())
}
