//! `SELECT .. INTO table`: the CREATE TABLE AS that PostgreSQL takes it for.

use sqlparser::ast::{self, SetExpr, Statement};

use super::Command;
use crate::error::{Error, Result};

/// Makes a CREATE TABLE AS of a SELECT INTO.
pub fn write_out(statement: &mut Statement) -> Result<()> {
    if let Statement::Query(query) = statement
        && let Some(into) = first_select(&mut query.body).and_then(|s| s.into.take())
    {
        let mut created = template()?;
        created.name = into.name;
        created.temporary = into.temporary;
        created.transient = into.unlogged;
        created.query = Some(query.clone());
        *statement = Statement::CreateTable(created);
    }
    Ok(())
}

fn first_select(mut body: &mut SetExpr) -> Option<&mut ast::Select> {
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Query(query) => body = &mut query.body,
            _ => return None,
        }
    }
}

/// It is parsed, because its syntax has dozens of parts to be left out.
fn template() -> Result<ast::CreateTable> {
    match super::statement("create table x as select 1")? {
        Command::Sql(statement) => match *statement {
            Statement::CreateTable(c) => Ok(c),
            _ => Err(Error::internal("a CREATE TABLE AS that is none")),
        },
        _ => Err(Error::internal("a CREATE TABLE AS that is no statement")),
    }
}

/// Refuses an INTO that is not the statement's own.
pub fn refuse(query: &ast::Query) -> Result<()> {
    match misplaced(&query.body, true) {
        Some(message) => Err(Error::new("42601", message)),
        None => Ok(()),
    }
}

/// What PostgreSQL says of an INTO in a query that may have none.
fn misplaced(body: &SetExpr, first: bool) -> Option<&'static str> {
    match body {
        SetExpr::Select(select) => select.into.as_ref().map(|_| match first {
            true => "SELECT ... INTO is not allowed here",
            false => "INTO is only allowed on first SELECT of UNION/INTERSECT/EXCEPT",
        }),
        SetExpr::SetOperation { left, right, .. } => {
            misplaced(left, first).or_else(|| misplaced(right, false))
        }
        _ => None,
    }
}
