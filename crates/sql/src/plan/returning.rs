//! RETURNING with subqueries, written out: the write becomes an item of WITH that returns its rows
//! whole, and a query over that item gives what RETURNING asks for.
//!
//! So a subquery sees the snapshot of the statement, as in PostgreSQL, and the rows keep their
//! order. PostgreSQL evaluates RETURNING between one changed row and the next; only functions with
//! effects of their own can tell.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, FromTable, Ident, Query, SelectItem, SetExpr, TableFactor, TableObject, Visit, Visitor,
    With,
};

use crate::bind::names;
use crate::error::{Error, Result};
use crate::parse::{self, Command};

/// Name of the item that is the write. No user can have one of that name.
const WRITTEN: &str = "braid$written";

/// The statement as a query, if it is a write whose RETURNING has subqueries. The last item of the
/// query's WITH is then the write.
pub fn unfold(statement: &ast::Statement) -> Result<Option<Query>> {
    let (write, with) = match statement {
        ast::Statement::Query(q) => match &*q.body {
            SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s) => (s, &q.with),
            _ => return Ok(None),
        },
        write => (write, &None),
    };
    let Some((written, mut query)) = taken_apart(write, WRITTEN)? else {
        return Ok(None);
    };
    let item = item(written, WRITTEN)?;
    match (&mut query.with, with) {
        (Some(own), Some(with)) => {
            own.recursive = with.recursive;
            own.cte_tables = with.cte_tables.clone();
            own.cte_tables.push(item);
        }
        (Some(own), None) => own.cte_tables = vec![item],
        (None, _) => return Err(unexpected()),
    }
    Ok(Some(query))
}

/// The same for the items of a WITH: each such write becomes two items. `None`: there is none.
pub fn unfold_items(with: &With) -> Result<Option<With>> {
    let mut items = Vec::new();
    let mut any = false;
    for cte in &with.cte_tables {
        let name = format!("{WRITTEN} {}", cte.alias.name.value);
        let parts = match &*cte.query.body {
            SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s)
                if cte.query.with.is_none() =>
            {
                taken_apart(s, &name)?
            }
            _ => None,
        };
        let mut cte = cte.clone();
        if let Some((written, mut query)) = parts {
            any = true;
            items.push(item(written, &name)?);
            query.with = None;
            *cte.query = query;
        }
        items.push(cte);
    }
    Ok(any.then(|| With {
        cte_tables: items,
        ..with.clone()
    }))
}

/// Whether a SELECT is the query over what a write returns, so that its list is a RETURNING.
pub fn is_over_written(select: &ast::Select) -> bool {
    match select.from.as_slice() {
        [from] => match &from.relation {
            TableFactor::Table { name, .. } => match name.0.as_slice() {
                [part] => part
                    .as_ident()
                    .is_some_and(|i| i.value.starts_with(WRITTEN)),
                _ => false,
            },
            _ => false,
        },
        _ => false,
    }
}

/// The write with `RETURNING *`, and the query over what it gives, if its RETURNING has subqueries.
fn taken_apart(write: &ast::Statement, name: &str) -> Result<Option<(ast::Statement, Query)>> {
    let mut write = write.clone();
    let (alias, several, returning) = match &mut write {
        ast::Statement::Insert(i) => {
            let alias = i.table_alias.as_ref().map(|a| a.alias.clone());
            let alias = match (&i.table, alias) {
                (_, Some(alias)) => Some(alias),
                (TableObject::TableName(name), None) => last(name),
                _ => None,
            };
            (alias, false, &mut i.returning)
        }
        ast::Statement::Update(u) => {
            let alias = alias_of(&u.table.relation);
            (alias, u.from.is_some(), &mut u.returning)
        }
        ast::Statement::Delete(d) => {
            let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &d.from;
            let alias = from.first().and_then(|t| alias_of(&t.relation));
            (alias, d.using.is_some(), &mut d.returning)
        }
        _ => return Ok(None),
    };
    let Some(items) = returning.as_mut().filter(|items| has_query(*items)) else {
        return Ok(None);
    };
    // Their queries are run for each row, with what it was joined with.
    if several {
        return Ok(None);
    }
    let (_, mut query) = template(name)?;
    let SetExpr::Select(select) = &mut *query.body else {
        return Err(unexpected());
    };
    let star = std::mem::replace(&mut select.projection, items.clone());
    *items = star;
    if let Some(TableFactor::Table { alias: given, .. }) =
        select.from.first_mut().map(|from| &mut from.relation)
        && let (Some(given), Some(alias)) = (given, alias)
    {
        given.name = alias;
    }
    Ok(Some((write, query)))
}

/// The item of WITH that is a write.
fn item(write: ast::Statement, name: &str) -> Result<ast::Cte> {
    let (mut cte, _) = template(name)?;
    let body = match &write {
        ast::Statement::Insert(_) => SetExpr::Insert(write),
        ast::Statement::Update(_) => SetExpr::Update(write),
        _ => SetExpr::Delete(write),
    };
    *cte.query.body = body;
    Ok(cte)
}

/// An item of WITH, and a query of all that it gives.
fn template(name: &str) -> Result<(ast::Cte, Query)> {
    let name = names::quote(name);
    let text = format!("WITH {name} AS (SELECT 1) SELECT * FROM {name} AS t");
    let Command::Sql(statement) = parse::statement(&text)? else {
        return Err(unexpected());
    };
    let ast::Statement::Query(mut query) = *statement else {
        return Err(unexpected());
    };
    let items = query.with.as_mut().map(|with| &mut with.cte_tables);
    let item = items.and_then(|items| items.pop());
    Ok((item.ok_or_else(unexpected)?, *query))
}

fn unexpected() -> Error {
    Error::internal("a template of RETURNING's query that is none")
}

fn alias_of(table: &TableFactor) -> Option<Ident> {
    match table {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(alias.name.clone()),
            None => last(name),
        },
        _ => None,
    }
}

fn last(name: &ast::ObjectName) -> Option<Ident> {
    name.0.last().and_then(|part| part.as_ident()).cloned()
}

/// Whether a write has queries that are run for each of its rows, which see the items of its WITH
/// as the rest of it does: in DO UPDATE, or in RETURNING of several tables.
pub fn has_queries_of_rows(statement: &SetExpr) -> bool {
    let in_items = |items: &Option<Vec<SelectItem>>| items.as_ref().is_some_and(has_query);
    match statement {
        SetExpr::Insert(ast::Statement::Insert(i)) => i.on.as_ref().is_some_and(has_query),
        SetExpr::Update(ast::Statement::Update(u)) => u.from.is_some() && in_items(&u.returning),
        SetExpr::Delete(ast::Statement::Delete(d)) => d.using.is_some() && in_items(&d.returning),
        _ => false,
    }
}

/// Whether a query stands in a part of a statement.
pub fn has_query(part: &impl Visit) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    part.visit(&mut Finder).is_break()
}
