//! The SET lists of writes: which column is given which value. A row of columns is taken apart; one
//! that is given the row of a query reads it from a LATERAL subquery in FROM.

use sqlparser::ast::{
    self, AccessExpr, AssignmentTarget, FunctionArg, FunctionArgExpr, FunctionArguments,
    JoinOperator, Query, SelectItem, SetExpr, TableFactor, TableWithJoins,
};

use super::Planner;
use super::dml::no_column;
use crate::bind::names;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::parse::{self, Command, targets};

/// The column, before those of an assigned query, that numbers its rows. No user can name it.
pub const ROW_NUMBER: &str = "braid$number";

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

/// What a query that gives a row is called in FROM.
pub fn alias_of(number: usize) -> String {
    format!("braid$assigned{number}")
}

/// A query that gives a row, as an item of FROM that has a row also if the query has none. Its rows
/// are numbered, so that the write notices a second one. The columns that are asked for have names
/// of their own, which those of the target and of FROM are not ambiguous with.
pub fn in_from(query: &Query, number: usize, columns: usize) -> Result<TableWithJoins> {
    if written_width(query).is_some_and(|given| given != columns) {
        return Err(other_count());
    }
    let names = (0..columns).map(|at| format!("\"braid$value{at}\""));
    let names = names.collect::<Vec<_>>().join(", ");
    let template = format!(
        "SELECT 1 FROM (SELECT 1) AS \"braid$one{number}\" LEFT JOIN LATERAL (SELECT \
         row_number() OVER () AS \"{ROW_NUMBER}\", q.* FROM (SELECT 1) AS q({names})) AS \"{}\" ON true",
        alias_of(number)
    );
    let unexpected = || Error::internal("a template of a query that is none");
    let Command::Sql(statement) = parse::statement(&template)? else {
        return Err(unexpected());
    };
    let ast::Statement::Query(mut outer) = *statement else {
        return Err(unexpected());
    };
    let mut item = first_of_from(&mut outer).ok_or_else(unexpected)?;
    let join = item.joins.first_mut().ok_or_else(unexpected)?;
    if !matches!(
        join.join_operator,
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_)
    ) {
        return Err(unexpected());
    }
    let TableFactor::Derived {
        subquery: numbered, ..
    } = &mut join.relation
    else {
        return Err(unexpected());
    };
    let SetExpr::Select(select) = &mut *numbered.body else {
        return Err(unexpected());
    };
    match select.from.first_mut().map(|t| &mut t.relation) {
        Some(TableFactor::Derived { subquery, .. }) => **subquery = query.clone(),
        _ => return Err(unexpected()),
    }
    Ok(item)
}

/// How many columns a query gives, if that is told without its stars.
fn written_width(query: &Query) -> Option<usize> {
    match &*query.body {
        SetExpr::Select(select) => {
            let is_one = |item: &SelectItem| {
                matches!(
                    item,
                    SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }
                )
            };
            let all = &select.projection;
            all.iter().all(is_one).then_some(all.len())
        }
        _ => None,
    }
}

fn first_of_from(query: &mut Query) -> Option<TableWithJoins> {
    match &mut *query.body {
        SetExpr::Select(select) => select.from.pop(),
        _ => None,
    }
}
