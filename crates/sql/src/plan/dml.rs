//! Direct plans of INSERT, UPDATE and DELETE.

use std::sync::Arc;

use block::value::Datum;
use datafusion::sql::sqlparser::ast::{
    self, AssignmentTarget, Delete, FromTable, Insert, SelectItem, SetExpr, TableFactor,
    TableObject, TableWithJoins, Update,
};

use super::path::conjuncts;
use super::{Output, Planner, SelectPlan, TableAccess};
use crate::bind::{Binder, Scope, Typed, names};
use crate::dict::{Column, Identity, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::func::{Func, SessionFunc};
use crate::parse;
use crate::types::SqlType;

/// What every new version of a row must meet.
#[derive(Clone, Debug, Default)]
pub struct RowRules {
    /// Columns that must not be NULL.
    pub not_null: Vec<usize>,
    /// Name and condition over the new row.
    pub checks: Vec<(String, Expr)>,
}

#[derive(Clone, Debug)]
pub struct InsertPlan {
    pub table: Arc<Table>,
    pub source: InsertSource,
    pub rules: RowRules,
    /// Over the new row.
    pub returning: Option<Vec<Expr>>,
}

#[derive(Clone, Debug)]
pub enum InsertSource {
    /// Each row's values for all columns.
    Rows(Vec<Vec<Expr>>),
    /// The query's rows, and the values for all columns over them.
    Query(Box<SelectPlan>, Vec<Expr>),
}

#[derive(Clone, Debug)]
pub struct UpdatePlan {
    pub access: TableAccess,
    /// The whole condition, for rows that changed since they were found.
    pub condition: Option<Expr>,
    /// Column and its new value over the old row.
    pub set: Vec<(usize, Expr)>,
    pub rules: RowRules,
    pub returning: Option<Vec<Expr>>,
}

#[derive(Clone, Debug)]
pub struct DeletePlan {
    pub access: TableAccess,
    pub condition: Option<Expr>,
    pub returning: Option<Vec<Expr>>,
}

impl Planner<'_> {
    pub fn insert(&self, i: &Insert) -> Result<(InsertPlan, Option<Output>)> {
        if i.on.is_some()
            || i.overwrite
            || i.replace_into
            || i.or.is_some()
            || i.ignore
            || !i.assignments.is_empty()
        {
            return Err(Error::unsupported("this form of INSERT"));
        }
        let TableObject::TableName(name) = &i.table else {
            return Err(Error::unsupported("INSERT into a function"));
        };
        let table = self.target(name)?;
        let columns = target_columns(&table, &i.columns)?;
        let source = match &i.source {
            None => InsertSource::Rows(vec![self.full_row(&table, Vec::new())?]),
            Some(q) => match &*q.body {
                SetExpr::Values(v)
                    if q.order_by.is_none() && q.limit_clause.is_none() && q.with.is_none() =>
                {
                    let rows = v.rows.iter().map(|r| {
                        self.insert_row(&table, &columns, i.columns.is_empty(), &r.content)
                    });
                    InsertSource::Rows(rows.collect::<Result<_>>()?)
                }
                _ => self.insert_query(&table, &columns, i.columns.is_empty(), q)?,
            },
        };
        let alias = i
            .table_alias
            .as_ref()
            .map_or(table.name.clone(), |a| names::ident(&a.alias));
        let returning = self.returning(&table, &alias, i.returning.as_deref())?;
        let rules = self.rules(&table)?;
        Ok((
            InsertPlan {
                table,
                source,
                rules,
                returning: returning.as_ref().map(|o| o.exprs.clone()),
            },
            returning,
        ))
    }

    fn target(&self, name: &ast::ObjectName) -> Result<Arc<Table>> {
        let name = names::public(name)?;
        self.dict
            .table(&name)
            .cloned()
            .ok_or_else(|| names::no_relation(&name))
    }

    fn insert_row(
        &self,
        table: &Table,
        columns: &[usize],
        implicit: bool,
        values: &[ast::Expr],
    ) -> Result<Vec<Expr>> {
        check_count(columns.len(), values.len(), implicit)?;
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "VALUES");
        let mut given = Vec::with_capacity(values.len());
        for (value, &column) in values.iter().zip(columns) {
            let c = &table.columns[column];
            if is_default(value) {
                given.push((column, self.default(c)?));
                continue;
            }
            refuse_identity(c)?;
            given.push((
                column,
                binder
                    .assign(binder.expr(value)?, c.ty(), c.typmod, &c.name)?
                    .expr,
            ));
        }
        self.full_row(table, given)
    }

    /// Values for all columns: the given ones, and defaults for the others.
    fn full_row(&self, table: &Table, mut given: Vec<(usize, Expr)>) -> Result<Vec<Expr>> {
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
        columns: &[usize],
        implicit: bool,
        q: &ast::Query,
    ) -> Result<InsertSource> {
        let (plan, output) = self.query(q)?;
        check_count(columns.len(), output.columns.len(), implicit)?;
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "SELECT");
        let mut given = Vec::new();
        for (i, (desc, &column)) in output.columns.iter().zip(columns).enumerate() {
            let c = &table.columns[column];
            refuse_identity(c)?;
            let value = Typed {
                expr: Expr::Column(i),
                ty: desc.ty,
                typmod: desc.typmod,
            };
            given.push((
                column,
                binder.assign(value, c.ty(), c.typmod, &c.name)?.expr,
            ));
        }
        let row = self.full_row(table, given)?;
        Ok(InsertSource::Query(Box::new(plan), row))
    }

    /// The value of a column that is not given.
    pub fn default(&self, c: &Column) -> Result<Expr> {
        if c.dropped {
            return Ok(Expr::Const(Datum::Null));
        }
        if let (Some(_), Some(sequence)) = (c.identity, c.sequence) {
            return self.next_value(sequence, c);
        }
        let Some(text) = &c.default else {
            return Ok(Expr::Const(Datum::Null));
        };
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "DEFAULT");
        let e = parse::expression(text)?;
        Ok(binder
            .assign(binder.expr(&e)?, c.ty(), c.typmod, &c.name)?
            .expr)
    }

    fn next_value(&self, sequence: u32, c: &Column) -> Result<Expr> {
        let s = self
            .dict
            .sequence_by_oid(sequence)
            .ok_or_else(|| Error::internal(format!("sequence {sequence} is gone")))?;
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "DEFAULT");
        let draw = Expr::Call(
            Func::Session(SessionFunc::NextVal),
            vec![Expr::Const(Datum::Text(names::quote(&s.name)))],
        );
        Ok(binder
            .assign(Typed::new(draw, SqlType::Int8), c.ty(), c.typmod, &c.name)?
            .expr)
    }

    pub fn rules(&self, table: &Table) -> Result<RowRules> {
        let not_null = table
            .live_columns()
            .filter(|(_, c)| c.not_null)
            .map(|(i, _)| i)
            .collect();
        let scope = Scope::of_table(table, &table.name);
        let binder = Binder::new(&scope, self.params, "CHECK");
        let mut checks = Vec::new();
        for check in &table.checks {
            checks.push((
                check.name.clone(),
                binder.condition(&parse::expression(&check.text)?)?,
            ));
        }
        Ok(RowRules { not_null, checks })
    }

    fn returning(
        &self,
        table: &Table,
        alias: &str,
        items: Option<&[SelectItem]>,
    ) -> Result<Option<Output>> {
        items
            .map(|items| self.projection(&Scope::of_table(table, alias), items))
            .transpose()
    }

    pub fn update(&self, u: &Update) -> Result<(UpdatePlan, Option<Output>)> {
        if u.from.is_some() || u.or.is_some() || !u.order_by.is_empty() || u.limit.is_some() {
            return Err(Error::unsupported("UPDATE ... FROM"));
        }
        let (table, alias) = self.written_table(&u.table)?;
        let scope = Scope::of_table(&table, &alias);
        let mut set: Vec<(usize, Expr)> = Vec::new();
        let binder = Binder::new(&scope, self.params, "UPDATE");
        for a in &u.assignments {
            let AssignmentTarget::ColumnName(name) = &a.target else {
                return Err(Error::unsupported("SET (columns) = ..."));
            };
            let name = names::parts(name)?.pop().unwrap_or_default();
            let at = table
                .column(&name)
                .ok_or_else(|| no_column(&name, &table.name))?;
            let c = &table.columns[at];
            if set.iter().any(|(seen, _)| *seen == at) {
                return Err(Error::new(
                    "42601",
                    format!("multiple assignments to same column \"{name}\""),
                ));
            }
            let value = if is_default(&a.value) {
                self.default(c)?
            } else {
                if c.identity == Some(Identity::Always) {
                    return Err(Error::new(
                        "428C9",
                        format!("column \"{name}\" can only be updated to DEFAULT"),
                    )
                    .detail(format!(
                        "Column \"{name}\" is an identity column defined as GENERATED ALWAYS."
                    )));
                }
                binder
                    .assign(binder.expr(&a.value)?, c.ty(), c.typmod, &c.name)?
                    .expr
            };
            set.push((at, value));
        }
        let (access, condition) = self.found_rows(&table, &scope, u.selection.as_ref())?;
        let returning = self.returning(&table, &alias, u.returning.as_deref())?;
        let rules = self.rules(&table)?;
        Ok((
            UpdatePlan {
                access,
                condition,
                set,
                rules,
                returning: returning.as_ref().map(|o| o.exprs.clone()),
            },
            returning,
        ))
    }

    pub fn delete(&self, d: &Delete) -> Result<(DeletePlan, Option<Output>)> {
        if d.using.is_some() || !d.tables.is_empty() || !d.order_by.is_empty() || d.limit.is_some()
        {
            return Err(Error::unsupported("DELETE ... USING"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &d.from;
        let [from] = from.as_slice() else {
            return Err(Error::unsupported("DELETE from several tables"));
        };
        let (table, alias) = self.written_table(from)?;
        let scope = Scope::of_table(&table, &alias);
        let (access, condition) = self.found_rows(&table, &scope, d.selection.as_ref())?;
        let returning = self.returning(&table, &alias, d.returning.as_deref())?;
        Ok((
            DeletePlan {
                access,
                condition,
                returning: returning.as_ref().map(|o| o.exprs.clone()),
            },
            returning,
        ))
    }

    fn written_table(&self, t: &TableWithJoins) -> Result<(Arc<Table>, String)> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = &t.relation
        else {
            return Err(Error::unsupported("this target of a write"));
        };
        if !t.joins.is_empty() {
            return Err(Error::unsupported("a join as target of a write"));
        }
        let table = self.target(name)?;
        let alias = alias
            .as_ref()
            .map_or(table.name.clone(), |a| names::ident(&a.name));
        Ok((table, alias))
    }

    /// How the rows to be written are found: whole rows, since a new version is made from the old one.
    fn found_rows(
        &self,
        table: &Arc<Table>,
        scope: &Scope,
        selection: Option<&ast::Expr>,
    ) -> Result<(TableAccess, Option<Expr>)> {
        let binder = Binder::new(scope, self.params, "WHERE");
        let condition = selection.map(|w| binder.condition(w)).transpose()?;
        let (mut access, _) = self.access(table, 0, conjuncts(condition.clone()), &[], false);
        access.needed = table.columns.len();
        Ok((access, condition))
    }
}

fn is_default(e: &ast::Expr) -> bool {
    matches!(e, ast::Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
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

pub fn no_column(name: &str, table: &str) -> Error {
    Error::new(
        "42703",
        format!("column \"{name}\" of relation \"{table}\" does not exist"),
    )
}

/// The columns that values are for, in order.
pub fn target_columns(table: &Table, given: &[ast::ObjectName]) -> Result<Vec<usize>> {
    if given.is_empty() {
        return Ok(table.live_columns().map(|(i, _)| i).collect());
    }
    let mut columns: Vec<usize> = Vec::with_capacity(given.len());
    for name in given {
        let name = names::parts(name)?.pop().unwrap_or_default();
        let at = table
            .column(&name)
            .ok_or_else(|| no_column(&name, &table.name))?;
        if columns.contains(&at) {
            return Err(Error::new(
                "42701",
                format!("column \"{name}\" specified more than once"),
            ));
        }
        columns.push(at);
    }
    Ok(columns)
}

fn check_count(columns: usize, values: usize, implicit: bool) -> Result<()> {
    if values > columns {
        return Err(Error::new(
            "42601",
            "INSERT has more expressions than target columns",
        ));
    }
    if values < columns && !implicit {
        return Err(Error::new(
            "42601",
            "INSERT has more target columns than expressions",
        ));
    }
    Ok(())
}
