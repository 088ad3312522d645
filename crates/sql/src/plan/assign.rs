//! The SET lists of writes: which column is given which value. A row of columns is taken apart; one
//! that is given the row of a query has the fields of a record, which the query gives as a value.

use sqlparser::ast::{
    self, AccessExpr, AssignmentTarget, FunctionArg, FunctionArgExpr, FunctionArguments, Query,
    SelectItem, SetExpr, TableFactor,
};

use super::Planner;
use super::dml::no_column;
use crate::bind::{Binder, Typed, names};
use crate::dict::{Column, Table};
use crate::error::{Error, Result};
use crate::parse::{self, targets};
use crate::place::Place;

/// What a column is given.
#[derive(Clone)]
pub enum Given {
    Value(Box<ast::Expr>),
    /// Elements, slices or keys of the column are given values, one after the other.
    Parts(Vec<Part>),
    /// A column of the row that a query gives: the query's place among those of the list, and the
    /// column's place.
    OfRow(usize, usize),
}

/// A part of a column that is given a value.
#[derive(Clone)]
pub struct Part {
    pub path: Vec<AccessExpr>,
    pub value: ast::Expr,
}

/// The columns of a SET list with what each is given, and the queries that give rows.
pub struct Assigned<'a> {
    pub columns: Vec<(usize, Given)>,
    pub queries: Vec<(&'a Query, usize)>,
}

impl Planner<'_> {
    /// The assignments of a table, each column once.
    pub(super) fn assigned<'a>(
        &self,
        table: &Table,
        list: &'a [ast::Assignment],
    ) -> Result<Assigned<'a>> {
        let mut all = Assigned {
            columns: Vec::new(),
            queries: Vec::new(),
        };
        for a in list {
            let columns = match &a.target {
                AssignmentTarget::ColumnName(name) => {
                    all.add(table, name, Given::Value(Box::new(a.value.clone())))?;
                    continue;
                }
                AssignmentTarget::Tuple(columns) => columns,
            };
            if let ast::Expr::Subquery(query) = &a.value {
                let number = all.queries.len();
                all.queries.push((query, columns.len()));
                for (at, name) in columns.iter().enumerate() {
                    all.add(table, name, Given::OfRow(number, at))?;
                }
                continue;
            }
            let values = row(&a.value)?;
            if values.len() != columns.len() {
                return Err(other_count());
            }
            for (name, value) in columns.iter().zip(values) {
                all.add(table, name, Given::Value(Box::new(value)))?;
            }
        }
        Ok(all)
    }
}

fn cannot_assign(system: &str) -> Error {
    let message = format!("cannot assign to system column \"{system}\"");
    Error::new("0A000", message)
}

impl Assigned<'_> {
    fn add(&mut self, table: &Table, written: &ast::ObjectName, value: Given) -> Result<()> {
        let name = names::parts(written)?.pop().unwrap_or_default();
        let part = targets::taken_apart(&name)?;
        let name = part.as_ref().map_or(name, |(column, _)| column.clone());
        let at = table
            .column(&name)
            .ok_or_else(|| match names::is_system_column(&name) {
                true => cannot_assign(&name).at_name(written),
                false => no_column(&name, &table.name).at_name(written),
            })?;
        let before = self.columns.iter_mut().find(|(seen, _)| *seen == at);
        let value = match (part, value) {
            (None, value) => value,
            (Some((_, path)), Given::Value(value)) => {
                let part = Part {
                    path,
                    value: *value,
                };
                if let Some((_, Given::Parts(parts))) = before {
                    parts.push(part);
                    return Ok(());
                }
                Given::Parts(vec![part])
            }
            (Some(_), _) => {
                return Err(Error::unsupported(
                    "an element that is given what a query gives",
                ));
            }
        };
        if before.is_some() {
            return Err(Error::new(
                "42601",
                format!("multiple assignments to same column \"{name}\""),
            ));
        }
        self.columns.push((at, value));
        Ok(())
    }
}

/// The expressions of a row: `(..)` of several, or `ROW(..)`.
fn row(value: &ast::Expr) -> Result<Vec<ast::Expr>> {
    if let ast::Expr::Tuple(values) = value {
        return Ok(values.clone());
    }
    if let ast::Expr::Function(f) = value
        && let FunctionArguments::List(list) = &f.args
        && names::Qualified::new(&f.name).is_ok_and(|n| n.schema.is_none() && n.name == "row")
    {
        let plain = list.args.iter().map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => Ok(e.clone()),
            other => Err(Error::unsupported(format!("{other} in ROW"))),
        });
        return plain.collect();
    }
    Err(Error::new(
        "0A000",
        "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
    ))
}

pub fn other_count() -> Error {
    Error::new("42601", "number of columns does not match number of values")
}

/// A query that gives a row as a value: a record, or NULL if it has no row. A second row is an
/// error.
pub fn as_record(query: &Query) -> Result<ast::Expr> {
    let template = "(SELECT \"braid$record\" FROM (SELECT 1) AS \"braid$record\")";
    let unexpected = || Error::internal("a template of a query that is none");
    let ast::Expr::Subquery(mut outer) = parse::expression(template)? else {
        return Err(unexpected());
    };
    let SetExpr::Select(select) = &mut *outer.body else {
        return Err(unexpected());
    };
    match select.from.first_mut().map(|t| &mut t.relation) {
        Some(TableFactor::Derived { subquery, .. }) => **subquery = query.clone(),
        _ => return Err(unexpected()),
    }
    Ok(ast::Expr::Subquery(outer))
}

/// A field of the record that a query gives.
#[derive(Clone, Copy)]
pub struct Field<'a> {
    /// The query, and how many columns it has to give.
    pub of: (&'a Query, usize),
    pub at: usize,
}

impl Field<'_> {
    /// Its value as that of a column.
    pub fn assigned(self, binder: &Binder<'_>, record: &Typed, c: &Column) -> Result<Typed> {
        let (query, columns) = self.of;
        let mut fields = binder.fields_of(record)?;
        if fields.len() != columns {
            return Err(other_count().placed(Place::of_subquery(query)));
        }
        let field = fields.swap_remove(self.at);
        let assigned = binder.assign(field, c.ty(), c.typmod, &c.name);
        assigned.map_err(|e| match self.written() {
            Some(value) => e.in_expr(value),
            None => e,
        })
    }

    /// The expression that it has in the query, if that is told without stars.
    fn written(&self) -> Option<&ast::Expr> {
        let SetExpr::Select(select) = &*self.of.0.body else {
            return None;
        };
        let mut expressions = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => {
                    expressions.push(e);
                }
                _ => return None,
            }
        }
        expressions.get(self.at).copied()
    }
}
