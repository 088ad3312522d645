//! Direct plans of INSERT.

use std::sync::Arc;

use block::value::Datum;
use sqlparser::ast::{self, Insert, OnInsert, SetExpr, TableObject};

use super::conflict::Conflict;
use super::dml::{RowRules, is_default, no_column, no_default_of_part};
use super::supply::{Feed, FeedPlanner, is_left_to_tree, one_row};
use super::through::Written;
use super::{Output, Planner, SelectPlan};
use crate::api::ColumnDesc;
use crate::bind::{Binder, Scope, Typed, names};
use crate::dict::acl::Privileges;
use crate::dict::trigger::Op;
use crate::dict::{Column, Identity, Table, View};
use crate::error::{Error, Result};
use crate::exec::profile::StepKey;
use crate::exec::returning::Returning;
use crate::expr::Expr;
use crate::parse::{Overriding, targets};
use crate::place::Place;

#[derive(Debug)]
pub struct InsertPlan {
    pub table: Arc<Table>,
    pub conflict: Option<Conflict>,
    pub source: InsertSource,
    pub rules: RowRules,
    /// Over the new row.
    pub returning: Option<Returning>,
    /// Those that it is inserted through.
    pub views: Vec<Arc<View>>,
}

impl InsertPlan {
    /// The step that writes.
    pub fn step(&self) -> StepKey {
        StepKey::of(&self.table)
    }
}

#[derive(Debug)]
pub enum InsertSource {
    /// Each row's values for all columns.
    Rows(Vec<Vec<Expr>>),
    /// The query's rows, and the values for all columns over them.
    Query(Box<SelectPlan>, Vec<Expr>),
    /// The same from the tree lane; for each of its rows one or several, as there are lists of
    /// values.
    Fed(Feed, Vec<Vec<Expr>>),
}

impl Planner<'_> {
    /// `with` stood before the statement.
    pub fn insert(
        &self,
        i: &Insert,
        with: Option<ast::With>,
        feed: &FeedPlanner<'_>,
    ) -> Result<(InsertPlan, Option<Output>)> {
        if i.overwrite || i.replace_into || i.or.is_some() || i.ignore || !i.assignments.is_empty()
        {
            return Err(Error::unsupported("this form of INSERT"));
        }
        let TableObject::TableName(name) = &i.table else {
            return Err(Error::unsupported("INSERT into a function"));
        };
        let alias = i.table_alias.as_ref().map(|a| names::ident(&a.alias));
        let written = self.target(name, alias, Op::Insert)?;
        let table = written.shown.clone();
        let target = Target {
            columns: target_columns(&table, &i.columns)?,
            paths: target_paths(&i.columns)?,
            implicit: i.columns.is_empty(),
            overriding: Overriding::of(i),
        };
        let needs = &self.params.needs;
        needs.relation(table.oid, Privileges::INSERT);
        if !target.implicit {
            needs.inserted(table.oid, target.columns.iter().copied());
        }
        let (source, given) = match &i.source {
            None => {
                let row = self.full_row(&table, Vec::new())?;
                (InsertSource::Rows(vec![row]), Vec::new())
            }
            Some(q) => match &*q.body {
                SetExpr::Values(v)
                    if q.order_by.is_none()
                        && q.limit_clause.is_none()
                        && q.with.is_none()
                        && with.is_none() =>
                {
                    let mut supplied = Vec::new();
                    let mut rows = Vec::with_capacity(v.rows.len());
                    let width = v.rows.first().map_or(0, |r| r.content.len());
                    if v.rows.iter().any(|r| r.content.len() != width) {
                        return Err(Error::new(
                            "42601",
                            "VALUES lists must all be the same length",
                        ));
                    }
                    let given = target.columns.iter().take(width).copied();
                    needs.inserted(table.oid, given);
                    for r in &v.rows {
                        rows.push(self.insert_row(&table, &target, &r.content, &mut supplied)?);
                    }
                    let source = match supplied.is_empty() {
                        true => InsertSource::Rows(rows),
                        false => self.supplied_rows(&table, &target, rows, &supplied, feed)?,
                    };
                    (source, target.columns.iter().take(width).copied().collect())
                }
                _ => {
                    let mut q = q.clone();
                    if with.is_some() {
                        if q.with.is_some() {
                            return Err(Error::unsupported("WITH before and in an INSERT"));
                        }
                        q.with = with;
                    }
                    self.insert_query(&table, &target, &q, feed)?
                }
            },
        };
        written.note_needs(self.params, Privileges::INSERT, &given);
        let source = self.lowered_source(&written, source, &given)?;
        let returning = self.returning(&written, i.returning.as_deref(), true)?;
        let rules = match written.is_instead() {
            true => RowRules::default(),
            false if written.is_view() => self.rules(written.table())?,
            false => self.rules(written.table())?.given_columns(&given),
        };
        let conflict = match &i.on {
            None => None,
            Some(OnInsert::OnConflict(on)) => Some(self.conflict(&written, on, feed)?),
            Some(other) => return Err(Error::unsupported(format!("INSERT ...{other}"))),
        };
        let table_width = written.table().columns.len();
        Ok((
            InsertPlan {
                conflict,
                table: written.table().clone(),
                source,
                rules: written.rules(rules)?,
                returning: returning.as_ref().map(|o| o.of_rows(table_width)),
                views: written.views(),
            },
            returning,
        ))
    }

    /// The rows of an INSERT as those of the table that is written.
    fn lowered_source(
        &self,
        written: &Written,
        source: InsertSource,
        given: &[usize],
    ) -> Result<InsertSource> {
        written.targets(Op::Insert, given)?;
        let default = |c: &Column| self.default(c);
        let row = |row: Vec<Expr>| written.row(row, given, &default);
        let rows = |rows: Vec<Vec<Expr>>| rows.into_iter().map(row).collect::<Result<Vec<_>>>();
        Ok(match source {
            InsertSource::Rows(all) => InsertSource::Rows(rows(all)?),
            InsertSource::Query(query, values) => InsertSource::Query(query, row(values)?),
            InsertSource::Fed(query, all) => InsertSource::Fed(query, rows(all)?),
        })
    }

    fn insert_row(
        &self,
        table: &Table,
        target: &Target,
        values: &[ast::Expr],
        supplied: &mut Vec<Supplied>,
    ) -> Result<Vec<Expr>> {
        target.check_count(values.len()).map_err(|e| {
            let extra = values.get(target.columns.len());
            e.placed(extra.and_then(Place::of_expr))
        })?;
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "VALUES");
        let mut given = Vec::with_capacity(values.len());
        for (place, (value, &column)) in values.iter().zip(&target.columns).enumerate() {
            let c = &table.columns[column];
            let path = target.path(place);
            if is_default(value) && !path.is_empty() {
                return Err(no_default_of_part(c.ty()));
            }
            if is_default(value) || target.is_overridden(c)? {
                given.push((column, self.default(c)?));
                continue;
            }
            let value = match binder.expr(value) {
                Ok(bound) => {
                    let assigned = target.assign(&binder, &mut given, (place, c), bound);
                    assigned.map_err(|e| e.in_expr(value))?;
                    continue;
                }
                // Subqueries, above all. Its place is settled once the query is planned.
                Err(e) if is_left_to_tree(&e) => {
                    if !path.is_empty() {
                        return Err(Error::unsupported("an element that is given a subquery"));
                    }
                    supplied.push(Supplied {
                        value: value.clone(),
                        column,
                    });
                    Expr::Column(supplied.len() - 1)
                }
                Err(e) => return Err(e),
            };
            given.push((column, value));
        }
        self.full_row(table, given)
    }

    /// Rows of values of which the tree lane computes some, all of them as the one row of one
    /// query.
    fn supplied_rows(
        &self,
        table: &Table,
        target: &Target,
        mut rows: Vec<Vec<Expr>>,
        supplied: &[Supplied],
        feed: &FeedPlanner<'_>,
    ) -> Result<InsertSource> {
        let query = one_row(supplied.iter().map(|s| s.value.clone()))?;
        let (query, given) = feed.feed(&query)?;
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "VALUES");
        for row in &mut rows {
            for &column in &target.columns {
                let Expr::Column(at) = row[column] else {
                    continue;
                };
                if supplied[at].column != column {
                    return Err(Error::internal("a value of another column"));
                }
                let (c, desc) = (&table.columns[column], &given[at]);
                let value = Typed {
                    expr: Expr::Column(at),
                    ty: desc.ty,
                    typmod: desc.typmod,
                    collation: desc.collation,
                };
                row[column] = binder.assign(value, c.ty(), c.typmod, &c.name)?.expr;
            }
        }
        Ok(InsertSource::Fed(query, rows))
    }

    /// Values for all columns: the given ones, and defaults for the others.
    pub(super) fn full_row(
        &self,
        table: &Table,
        mut given: Vec<(usize, Expr)>,
    ) -> Result<Vec<Expr>> {
        let mut row = Vec::with_capacity(table.columns.len());
        for (at, c) in table.columns.iter().enumerate() {
            row.push(match given.iter().position(|(column, _)| *column == at) {
                Some(i) => given.swap_remove(i).1,
                None => self.default(c)?,
            });
        }
        Ok(row)
    }

    fn insert_query(
        &self,
        table: &Table,
        target: &Target,
        q: &ast::Query,
        feed: &FeedPlanner<'_>,
    ) -> Result<(InsertSource, Vec<usize>)> {
        // A literal without a type takes that of the column it goes to, which a direct plan does not
        // know. But only a direct plan locks rows here.
        let untyped = match has_untyped_literal(q) {
            true => match feed.feed(q) {
                Err(e) if is_left_to_tree(&e) => None,
                planned => Some(planned?),
            },
            false => None,
        };
        let direct = match untyped {
            Some((query, columns)) => {
                return self.insert_given(table, target, (Err(query), columns));
            }
            None => self.query(q),
        };
        let given = match direct {
            Ok((plan, output)) => (Ok(plan), output.columns),
            Err(e) if is_left_to_tree(&e) => {
                let (query, columns) = feed.feed(q)?;
                (Err(query), columns)
            }
            Err(e) => return Err(e),
        };
        self.insert_given(table, target, given)
    }

    /// The rows of a query, direct or not, as values for all columns; and those that it gives.
    fn insert_given(
        &self,
        table: &Table,
        target: &Target,
        (query, given_columns): (std::result::Result<SelectPlan, Feed>, Vec<ColumnDesc>),
    ) -> Result<(InsertSource, Vec<usize>)> {
        target.check_count(given_columns.len())?;
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "SELECT");
        let mut given = Vec::new();
        let columns = target.columns.iter().take(given_columns.len()).copied();
        self.params.needs.inserted(table.oid, columns);
        for (i, (desc, &column)) in given_columns.iter().zip(&target.columns).enumerate() {
            let c = &table.columns[column];
            if target.is_overridden(c)? {
                given.push((column, self.default(c)?));
                continue;
            }
            let value = Typed {
                expr: Expr::Column(i),
                ty: desc.ty,
                typmod: desc.typmod,
                collation: desc.collation,
            };
            target.assign(&binder, &mut given, (i, c), value)?;
        }
        let row = self.full_row(table, given)?;
        let source = match query {
            Ok(plan) => InsertSource::Query(Box::new(plan), row),
            Err(query) => InsertSource::Fed(query, vec![row]),
        };
        let columns = target.columns.iter().take(given_columns.len());
        Ok((source, columns.copied().collect()))
    }
}

/// Whether a column of a SELECT is nothing but a string, NULL or a parameter.
fn has_untyped_literal(q: &ast::Query) -> bool {
    fn is_untyped(e: &ast::Expr) -> bool {
        match e {
            ast::Expr::Nested(inner) => is_untyped(inner),
            ast::Expr::Value(v) => matches!(
                v.value,
                ast::Value::SingleQuotedString(_) | ast::Value::Null | ast::Value::Placeholder(_)
            ),
            _ => false,
        }
    }
    let SetExpr::Select(select) = &*q.body else {
        return false;
    };
    select.projection.iter().any(|item| match item {
        ast::SelectItem::UnnamedExpr(e) | ast::SelectItem::ExprWithAlias { expr: e, .. } => {
            is_untyped(e)
        }
        _ => false,
    })
}

/// A value of an INSERT that the tree lane computes.
struct Supplied {
    value: ast::Expr,
    column: usize,
}

/// What an INSERT gives values for.
pub(super) struct Target {
    /// Columns, in the order of the values.
    pub columns: Vec<usize>,
    /// The subscripts behind them.
    pub paths: Vec<Vec<ast::AccessExpr>>,
    /// They are not named: there may be fewer values.
    pub implicit: bool,
    pub overriding: Option<Overriding>,
}

impl Target {
    /// The subscripts behind a column, by its place in the list.
    pub fn path(&self, place: usize) -> &[ast::AccessExpr] {
        self.paths.get(place).map_or(&[], Vec::as_slice)
    }

    /// Gives a column its value, or parts of it one after the other.
    pub fn assign(
        &self,
        binder: &Binder<'_>,
        given: &mut Vec<(usize, Expr)>,
        (place, c): (usize, &Column),
        value: Typed,
    ) -> Result<()> {
        let column = self.columns[place];
        let path = self.path(place);
        if path.is_empty() {
            let value = binder.assign(value, c.ty(), c.typmod, &c.name)?;
            given.push((column, value.expr));
            return Ok(());
        }
        let before = given.iter().position(|(at, _)| *at == column);
        let base = Typed {
            expr: match before {
                Some(i) => given.swap_remove(i).1,
                None => Expr::Const(Datum::Null),
            },
            ty: c.ty(),
            typmod: c.typmod,
            collation: Default::default(),
        };
        let made = binder.assign_part(base, path, value, &c.name)?;
        given.push((column, made.expr));
        Ok(())
    }

    pub fn check_count(&self, values: usize) -> Result<()> {
        if values > self.columns.len() {
            return Err(Error::new(
                "42601",
                "INSERT has more expressions than target columns",
            ));
        }
        if values < self.columns.len() && !self.implicit {
            return Err(Error::new(
                "42601",
                "INSERT has more target columns than expressions",
            ));
        }
        Ok(())
    }

    /// Whether the value given for a column does not count.
    pub fn is_overridden(&self, c: &Column) -> Result<bool> {
        if c.generated {
            let name = &c.name;
            let message = format!("cannot insert a non-DEFAULT value into column \"{name}\"");
            let detail = format!("Column \"{name}\" is a generated column.");
            return Err(Error::new("428C9", message).detail(detail));
        }
        match (self.overriding, c.identity) {
            (Some(Overriding::User), Some(_)) => Ok(true),
            (Some(Overriding::System), _) => Ok(false),
            _ => refuse_identity(c).map(|()| false),
        }
    }
}

fn refuse_identity(c: &Column) -> Result<()> {
    if c.identity == Some(Identity::Always) {
        return Err(Error::new(
            "428C9",
            format!(
                "cannot insert a non-DEFAULT value into column \"{}\"",
                c.name
            ),
        )
        .detail(format!(
            "Column \"{}\" is an identity column defined as GENERATED ALWAYS.",
            c.name
        ))
        .hint("Use OVERRIDING SYSTEM VALUE to override."));
    }
    Ok(())
}

/// The columns that values are for, in order.
pub fn target_columns(table: &Table, given: &[ast::ObjectName]) -> Result<Vec<usize>> {
    if given.is_empty() {
        return Ok(table.live_columns().map(|(i, _)| i).collect());
    }
    let mut columns: Vec<usize> = Vec::with_capacity(given.len());
    let mut is_part = Vec::with_capacity(given.len());
    for written in given {
        let name = names::parts(written)?.pop().unwrap_or_default();
        let part = targets::taken_apart(&name)?;
        let name = part.as_ref().map_or(name, |(column, _)| column.clone());
        let at = table
            .column(&name)
            .ok_or_else(|| no_column(&name, &table.name).at_name(written))?;
        let before = columns.iter().position(|c| *c == at);
        let both_parts = before.is_some_and(|b| is_part[b]) && part.is_some();
        is_part.push(part.is_some());
        if before.is_some() && !both_parts {
            return Err(Error::new(
                "42701",
                format!("column \"{name}\" specified more than once"),
            )
            .at_name(written));
        }
        columns.push(at);
    }
    Ok(columns)
}

/// The subscripts behind each column of a list.
pub fn target_paths(given: &[ast::ObjectName]) -> Result<Vec<Vec<ast::AccessExpr>>> {
    let path = |written: &ast::ObjectName| {
        let name = names::parts(written)?.pop().unwrap_or_default();
        let part = targets::taken_apart(&name)?;
        Ok(part.map_or(Vec::new(), |(_, path)| path))
    };
    given.iter().map(path).collect()
}
