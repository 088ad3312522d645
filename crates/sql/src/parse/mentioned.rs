//! The tables that a statement names, found without a dictionary.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, FromTable, ObjectName, SetExpr, Statement, TableFactor, TableObject, TableWithJoins,
};

use super::utility::TableLock;
use crate::bind::names::{self, Qualified};
use crate::error::Result;
use crate::place::Place;

/// The tables that a query, INSERT, UPDATE or DELETE names, with the locks that it takes on them: the
/// one that it writes to first. Names of WITH queries are among them, those of catalogs are not.
pub fn tables(statement: &Statement) -> Vec<(Qualified, TableLock)> {
    let mut tables: Vec<(Qualified, TableLock)> = Vec::new();
    let mut add = |name: &ObjectName, lock| {
        let Ok(name) = Qualified::new(name) else {
            return;
        };
        let of_system = matches!(
            name.schema.as_deref(),
            Some("pg_catalog" | "information_schema")
        );
        if !of_system && !tables.iter().any(|(known, _)| *known == name) {
            tables.push((name, lock));
        }
    };
    if let Some(name) = target(statement) {
        add(name, TableLock::RowExclusive);
    } else if !matches!(statement, Statement::Query(_)) {
        return Vec::new();
    }
    for name in targets_in_with(statement) {
        add(name, TableLock::RowExclusive);
    }
    let _ = ast::visit_relations(statement, |name| {
        add(name, TableLock::AccessShare);
        ControlFlow::<()>::Continue(())
    });
    tables
}

/// Refuses relations whose names begin with the name of another database.
pub fn refuse_other_databases(statement: &Statement, own: &str) -> Result<()> {
    // As in PostgreSQL, definitions do not say where.
    let is_placed = match statement {
        Statement::Query(_) | Statement::CreateTable(_) => true,
        _ => target(statement).is_some(),
    };
    let other = |name: &ObjectName| match names::parts(name).as_deref() {
        Ok([database, schema, relation]) if database != own => {
            let error = names::other_database(&[database, schema, relation]);
            ControlFlow::Break(error.placed(Place::of_name(name).filter(|_| is_placed)))
        }
        _ => ControlFlow::Continue(()),
    };
    let named = match statement {
        Statement::Drop { names, .. } => names.as_slice(),
        Statement::CreateView(view) => std::slice::from_ref(&view.name),
        _ => target(statement).map_or(&[][..], std::slice::from_ref),
    };
    let found = named.iter().try_for_each(other);
    let found = found
        .is_continue()
        .then(|| ast::visit_relations(statement, other));
    match found.unwrap_or_else(|| named.iter().try_for_each(other)) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// What the statements in a WITH write to.
fn targets_in_with(statement: &Statement) -> Vec<&ObjectName> {
    let Statement::Query(q) = statement else {
        return Vec::new();
    };
    let items = q.with.iter().flat_map(|with| &with.cte_tables);
    let written = items.filter_map(|cte| match &*cte.query.body {
        SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s) => target(s),
        _ => None,
    });
    written.collect()
}

/// What an INSERT, UPDATE or DELETE writes to.
fn target(statement: &Statement) -> Option<&ObjectName> {
    match statement {
        Statement::Insert(i) => match &i.table {
            TableObject::TableName(name) => Some(name),
            _ => None,
        },
        Statement::Update(u) => table(&u.table),
        Statement::Delete(d) => match &d.from {
            FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from) => {
                table(from.first()?)
            }
        },
        Statement::Query(q) => match &*q.body {
            SetExpr::Insert(s) | SetExpr::Update(s) | SetExpr::Delete(s) => target(s),
            _ => None,
        },
        _ => None,
    }
}

fn table(from: &TableWithJoins) -> Option<&ObjectName> {
    match &from.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{self, Command};
    use TableLock::{AccessShare, RowExclusive};

    fn is(sql: &str, wanted: &[(&str, TableLock)]) {
        let Ok(Command::Sql(statement)) = parse::statement(sql) else {
            panic!("{sql} is no SQL");
        };
        let wanted: Vec<_> = wanted.iter().map(|(n, l)| (n.to_string(), *l)).collect();
        let found = tables(&statement).into_iter();
        let found: Vec<_> = found.map(|(n, l)| (n.to_string(), l)).collect();
        assert_eq!(found, wanted, "{sql}");
    }

    #[test]
    fn tables_are_found_with_their_locks() {
        is(
            "select * from a, public.\"B\" join (select 1 from c) s on true where exists (select 1 from a)",
            &[
                ("a", AccessShare),
                ("public.B", AccessShare),
                ("c", AccessShare),
            ],
        );
        is(
            "with w as (select * from a) insert into t select * from w on conflict (k) do nothing",
            &[("t", RowExclusive), ("a", AccessShare), ("w", AccessShare)],
        );
        is("insert into t (x) values (1)", &[("t", RowExclusive)]);
        is(
            "with w as (delete from a returning x) select * from w, b",
            &[("a", RowExclusive), ("w", AccessShare), ("b", AccessShare)],
        );
        is(
            "update t set x = a.x from a where a.k = t.k",
            &[("t", RowExclusive), ("a", AccessShare)],
        );
        is(
            "delete from t where x in (select x from a)",
            &[("t", RowExclusive), ("a", AccessShare)],
        );
    }

    #[test]
    fn definitions_and_catalogs_have_none() {
        is("drop table t", &[]);
        is("select * from pg_catalog.pg_class", &[]);
    }
}
