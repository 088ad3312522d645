//! Views of the system that are queries, as `information_schema` has them, in FROM.

use sqlparser::ast::{self, Ident, TableAlias};

use super::Analyzer;
use super::from::{Item, rename};
use super::scope::{Column, Scope};
use super::with::Known;
use crate::bind::{Binder, Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::parse::{self, Command};
use crate::views::VirtualTable;

impl Analyzer<'_> {
    /// A view of the system as a subquery. Its query gives columns by their names; those that it
    /// does not give are NULL.
    pub(super) fn system_view(
        &self,
        view: &'static VirtualTable,
        text: &str,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        nullable: bool,
    ) -> Result<Item> {
        let broken = || Error::internal(format!("the query of {} is none", view.name));
        let Command::Sql(statement) = parse::statement(text)? else {
            return Err(broken());
        };
        let ast::Statement::Query(query) = *statement else {
            return Err(broken());
        };
        self.nested.set(self.nested.get() + 1);
        // Places in its text are none in the statement's.
        let known = Known::of_statement(&[]);
        let level = self.unnoted(|| self.query(&query, &scope.beside(), &known));
        self.nested.set(self.nested.get() - 1);
        let mut level = level?;
        self.settle(&mut level)?;
        let called = alias.map_or_else(|| view.name.to_string(), |a| names::ident(&a.name));
        let own = TableAlias {
            explicit: true,
            name: Ident::with_quote('"', called),
            columns: Vec::new(),
            at: None,
        };
        let (from, mut found) = self.level_in_from(level, (Some(&own), false), scope, nullable)?;
        let empty = crate::bind::Scope::default();
        let binder = Binder::new(&empty, self.params, "SELECT");
        let column = |(name, ty): &(&'static str, crate::types::SqlType)| {
            let given = found.columns.iter().find(|c| c.name == *name);
            let value = match given {
                Some(given) => {
                    binder.coerce(given.value.clone(), *ty, -1, CastContext::Explicit)?
                }
                None => Typed::new(Expr::Const(block::value::Datum::Null), *ty),
            };
            Ok(Column {
                table: found.tables[0].clone(),
                name: name.to_string(),
                value,
                origin: (0, 0),
                merged: false,
                whole: false,
            })
        };
        let columns = view
            .columns
            .iter()
            .map(column)
            .collect::<Result<Vec<_>>>()?;
        found.columns = columns;
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        Ok((from, found))
    }
}
