//! RETURNING of writes that a query feeds: the columns that it names of tables beside the target,
//! which the query gives, and its subqueries, which are run for each row that is written.

use std::ops::ControlFlow;

use sqlparser::ast::{self, SelectItem, SelectItemQualifiedWildcardKind};

use super::returning::has_query;
use super::supply::{Fed, FeedPlanner, Supply, one_row};
use super::{Output, Planner, column_name, merge};
use crate::bind::{ScopeColumn, Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::stars;
use crate::query::OverRow;
use crate::query::analyze::over::Row;

/// A star of RETURNING.
pub(super) struct Star {
    pub item: SelectItem,
    /// It begins with the target's columns.
    of_all: bool,
}

/// What the query calls the column before those of a star.
pub(super) fn star_mark(number: usize) -> String {
    format!("braid$star{number}")
}

impl Planner<'_> {
    /// What RETURNING gives, the columns that its stars bring from FROM included.
    pub(super) fn returned(
        &self,
        supply: &mut Supply<'_>,
        fed: &Fed,
        items: &[SelectItem],
        feed: &FeedPlanner<'_>,
    ) -> Result<(Output, Option<OverRow>)> {
        let given = &fed.columns;
        let queried = self.queried(supply, fed, items, feed)?;
        let after = supply.table.columns.len() + given.len();
        let mut values = queried
            .iter()
            .flat_map(|over| &over.plan.columns)
            .enumerate();
        if !supply.written.is_view() {
            let values = queried.as_ref().map_or(0, |over| over.plan.columns.len());
            let alias = supply.alias.clone();
            supply.scope.add_system(&alias, after + values, false);
        }
        let mut all = Output {
            columns: Vec::new(),
            exprs: Vec::new(),
        };
        let width = supply.table.columns.len();
        let own = supply.written.scope();
        let mut number = 0;
        for item in items {
            if let Some((name, _)) = queried_item(item)? {
                let (at, desc) = values
                    .next()
                    .ok_or_else(|| Error::internal("a value of RETURNING that no query gives"))?;
                let value = Typed {
                    expr: Expr::Column(after + at),
                    ty: desc.ty,
                    typmod: desc.typmod,
                    collation: desc.collation,
                };
                all.push(name, value, None);
                continue;
            }
            let Some(star) = supply.star(item) else {
                all.append(self.projection(&supply.scope, std::slice::from_ref(item))?);
                continue;
            };
            let mark = |n: usize| given.iter().position(|d| d.name == star_mark(n));
            let begin = mark(number)
                .ok_or_else(|| Error::internal("a star of RETURNING that the query has not"))?;
            let end = mark(number + 1).unwrap_or(given.len() - fed.beside.len());
            number += 1;
            let mut skipped = 1;
            if star.of_all {
                all.append(self.projection(&own, std::slice::from_ref(item))?);
                // The target's columns in the query, and its row id.
                skipped += supply.table.live_columns().count() + 1;
            }
            for (at, desc) in given.iter().enumerate().take(end).skip(begin + skipped) {
                let value = Typed {
                    expr: Expr::Column(width + at),
                    ty: desc.ty,
                    typmod: desc.typmod,
                    collation: desc.collation,
                };
                let origin = (desc.table_oid != 0).then_some((desc.table_oid, desc.attnum));
                all.push(desc.name.clone(), value, origin);
            }
        }
        Ok((all, queried))
    }

    /// The query of the items that have queries, if there are any. It sees the row that is
    /// written, and all that FROM has beside it.
    fn queried(
        &self,
        supply: &Supply<'_>,
        fed: &Fed,
        items: &[SelectItem],
        feed: &FeedPlanner<'_>,
    ) -> Result<Option<OverRow>> {
        let mut calls = Vec::new();
        for item in items {
            if let Some((_, value)) = queried_item(item)? {
                calls.push(merge::call(merge::Part::Returning, value)?);
            }
        }
        if calls.is_empty() {
            return Ok(None);
        }
        let mut scope = supply.written.scope();
        let after = supply.table.columns.len() + fed.columns.len();
        let begin = fed.columns.len() - fed.beside.len();
        let columns = fed.columns.iter().enumerate().skip(begin);
        for ((at, desc), column) in columns.zip(&fed.beside) {
            scope.columns.push(ScopeColumn {
                table: column.table.clone(),
                name: column.name.clone(),
                ty: desc.ty,
                typmod: desc.typmod,
                collation: desc.collation,
                slot: supply.table.columns.len() + at,
                table_oid: desc.table_oid,
                attnum: desc.attnum,
                hidden: column.merged,
            });
        }
        if !supply.written.is_view() {
            scope.add_system(&supply.alias, after, false);
        }
        let row = Row {
            scope: &scope,
            whole: &[&supply.alias],
            clause: merge::Part::Returning.clause(),
        };
        let mut over = feed.over(&one_row(calls.into_iter())?, row)?;
        for (_, value) in &mut over.inputs {
            *value = supply.written.lower(value.clone())?;
        }
        Ok(Some(over))
    }
}

/// An item of RETURNING that has queries, and what its column is called.
fn queried_item(item: &SelectItem) -> Result<Option<(String, &ast::Expr)>> {
    let (name, value) = match item {
        SelectItem::UnnamedExpr(e) => (column_name(e), e),
        SelectItem::ExprWithAlias { expr, alias } => (names::ident(alias), expr),
        _ => return Ok(None),
    };
    if !has_query(value) {
        return Ok(None);
    }
    if stars::row_of(value).is_some() {
        let what = "all fields of a query's row in RETURNING of several tables";
        return Err(Error::unsupported(what));
    }
    Ok(Some((name, value)))
}

/// A column of another table that RETURNING names, and its place among what the query gives.
pub(super) struct Extra {
    pub table: String,
    pub name: String,
    pub item: usize,
}

impl Supply<'_> {
    /// An item of RETURNING as a star that brings columns of FROM.
    fn star(&self, item: &SelectItem) -> Option<Star> {
        let of_all = match item {
            SelectItem::Wildcard(_) => true,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let table = names::parts(name).ok().and_then(|mut parts| parts.pop());
                if table.as_deref() == Some(&self.alias) {
                    return None;
                }
                false
            }
            _ => return None,
        };
        (!self.from.is_empty()).then(|| Star {
            item: item.clone(),
            of_all,
        })
    }

    /// What RETURNING names that is not the target's.
    pub(super) fn extras(&mut self, returning: Option<&[SelectItem]>) -> Result<Vec<Extra>> {
        let mut extras = Vec::new();
        let items = returning.unwrap_or_default();
        self.stars = items.iter().filter_map(|item| self.star(item)).collect();
        let mut named: Vec<ast::Expr> = Vec::new();
        let (mut plain, mut queried) = (Vec::new(), false);
        for item in items {
            match queried_item(item)? {
                Some(_) => queried = true,
                None => plain.push(item.clone()),
            }
        }
        self.queried = queried;
        let _ = ast::visit_expressions(&plain, |e| {
            if matches!(
                e,
                ast::Expr::Identifier(_) | ast::Expr::CompoundIdentifier(_)
            ) {
                named.push(e.clone());
            }
            ControlFlow::<()>::Continue(())
        });
        for e in named {
            self.unambiguous(&e)?;
            let (table, name) = match &e {
                ast::Expr::CompoundIdentifier(path) => match path.as_slice() {
                    [table, name] => (names::ident(table), names::ident(name)),
                    _ => continue,
                },
                ast::Expr::Identifier(name) => (String::new(), names::ident(name)),
                _ => continue,
            };
            let has = self.table.column(&name).is_some() || names::is_system_column(&name);
            let own = table == self.alias || table.is_empty() && has;
            let known = |x: &Extra| x.table == table && x.name == name;
            if !own && !extras.iter().any(known) {
                let item = self.item(e);
                extras.push(Extra { table, name, item });
            }
        }
        Ok(extras)
    }
}
