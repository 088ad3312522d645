//! CREATE TABLE AS: a table with the columns of a query, filled with its rows, in one transaction.

use std::ops::ControlFlow;
use std::sync::Arc;

use block::value::Datum;
use sqlparser::ast::{self, CreateTable, Query, SetExpr, TableObject};

use super::table;
use crate::api::{ColumnDesc, Tag};
use crate::bind::{self, names};
use crate::error::{Error, Result};
use crate::exec::{dml, with};
use crate::parse::create_as::is_without_data;
use crate::parse::{self, Command};
use crate::session::{Core, Keep, Kind};
use crate::types::SqlType;

/// The parameters of a definition: their types and values.
#[derive(Clone, Copy, Default)]
pub struct Values<'v> {
    pub types: &'v [SqlType],
    pub values: &'v [Datum],
}

pub fn create(core: &mut Core, c: &CreateTable, query: &Query, given: Values<'_>) -> Result<Tag> {
    if !c.constraints.is_empty() {
        return Err(Error::unsupported("CREATE TABLE AS with constraints"));
    }
    if parse::create_as::executed(query).is_some() {
        return Err(Error::unsupported("CREATE TABLE AS EXECUTE in a function"));
    }
    if given.types.is_empty() && has_parameters(query) {
        let what = "CREATE TABLE AS with parameters in a function";
        return Err(Error::unsupported(what));
    }
    // The tables that are read are locked before the new name is claimed.
    let read = ast::Statement::Query(Box::new(query.clone()));
    let analysed = core.analyse_part(&read, given.types, true)?;
    let mut columns = analysed.1.unwrap_or_default();
    if c.columns.len() > columns.len() {
        return Err(Error::new("42601", "too many column names were specified"));
    }
    for (column, given) in columns.iter_mut().zip(&c.columns) {
        column.name = names::ident(&given.name);
    }
    let name = super::name_of(&c.name)?;
    let schema = core.claim_place(&name, c.temporary)?;
    let name = name.name;
    if c.if_not_exists && core.dict().is_taken(schema, &name) {
        let message = format!("relation \"{name}\" already exists, skipping");
        core.notice("NOTICE", "42P07", message);
        return Ok(Tag::Plain("CREATE TABLE AS"));
    }
    table::create(core, &definition(c, &columns)?)?;
    if is_without_data(c) {
        return Ok(Tag::Plain("CREATE TABLE AS"));
    }
    // Who may read was asked above. The rows are put there by who has made the table, whatever
    // default privileges leave to its owner.
    let (kind, ..) = core.analyse_part(&insertion(c, query)?, given.types, false)?;
    let rows = match &kind {
        Kind::Insert(plan) => {
            let snapshot = core.engine.snapshot()?;
            dml::insert(plan, core, given.values, snapshot, &mut Keep::default())?
        }
        // Its WITH has parts that write.
        Kind::With(plan) => with::run(plan, core, given.values, &mut Keep::default())?,
        _ => return Err(Error::internal("an INSERT that is none")),
    };
    if let Some(profile) = &mut core.profile {
        profile.filling = Some(Arc::new(kind));
    }
    Ok(Tag::Rows("SELECT", rows))
}

pub fn has_parameters(query: &Query) -> bool {
    let found = ast::visit_expressions(query, |e| match e {
        ast::Expr::Value(v) if matches!(v.value, ast::Value::Placeholder(_)) => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// The statement that makes the table.
fn definition(c: &CreateTable, columns: &[ColumnDesc]) -> Result<CreateTable> {
    let mut table = table_of(&c.name, columns)?;
    table.temporary = c.temporary;
    table.transient = c.transient;
    table.on_commit = c.on_commit;
    table.table_options = c.table_options.clone();
    Ok(table)
}

/// The statement that makes a table of these columns; it is parsed, because its syntax has dozens
/// of parts to be left out.
pub fn table_of(name: &ast::ObjectName, columns: &[ColumnDesc]) -> Result<CreateTable> {
    let column = |d: &ColumnDesc| {
        let ty = match d.ty {
            SqlType::Unknown => SqlType::Text,
            ty => ty,
        };
        let name = d.name.replace('"', "\"\"");
        let collation = match bind::collation::check_collatable(ty) {
            Ok(()) => d.collation.stored(&d.name, ty.name())?,
            Err(_) => None,
        };
        let by = collation.map(|c| format!(" collate pg_catalog.\"{}\"", c.name()));
        let ty = ty.format(d.typmod);
        Ok(format!("\"{name}\" {ty}{}", by.unwrap_or_default()))
    };
    let columns: Vec<String> = columns.iter().map(column).collect::<Result<_>>()?;
    let text = format!("create table x ({})", columns.join(", "));
    match parse::statement(&text)? {
        Command::Sql(statement) => match *statement {
            ast::Statement::CreateTable(mut table) => {
                table.name = name.clone();
                Ok(table)
            }
            _ => Err(Error::internal("a table's definition that is none")),
        },
        _ => Err(Error::internal("a table's definition that is none")),
    }
}

fn insertion(c: &CreateTable, query: &Query) -> Result<ast::Statement> {
    let Command::Sql(statement) = parse::statement("insert into x select 1")? else {
        return Err(Error::internal("an INSERT that is none"));
    };
    let ast::Statement::Insert(mut insert) = *statement else {
        return Err(Error::internal("an INSERT that is none"));
    };
    insert.table = TableObject::TableName(c.name.clone());
    let mut query = query.clone();
    let with = query.with.take();
    insert.source = Some(Box::new(query.clone()));
    // WITH stands before the INSERT: there its parts may write.
    query.body = Box::new(SetExpr::Insert(ast::Statement::Insert(insert)));
    (query.with, query.order_by, query.limit_clause, query.fetch) = (with, None, None, None);
    query.locks.clear();
    Ok(ast::Statement::Query(Box::new(query)))
}
