//! NATURAL JOIN and USING, written out: the join gets its condition, and the columns that it merges become what they stand for wherever they are named, as
//! PostgreSQL has it: one column, before all others in `*`, that is the left one, or the right one of a right join, or whichever there is of a full one.
//!
//! This needs the names of all columns in FROM. Where they cannot be told from the syntax and the dictionary, the query stays as it is.

use std::collections::HashSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    self, BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use crate::bind::{common_type, names};
use crate::dict::{Dict, Relation};
use crate::error::{Error, Result};
use crate::parse;
use crate::plan::column_name;
use crate::query::WithItem;
use crate::types::SqlType;
use crate::views;

/// Writes out the joins of a query and of those in it.
pub fn write_out(query: &mut Query, dict: &Dict) -> Result<()> {
    let mut writer = Writer {
        names: Names {
            dict,
            ctes: Vec::new(),
        },
        failed: None,
    };
    let _ = VisitMut::visit(query, &mut writer);
    writer.failed.map_or(Ok(()), Err)
}

/// The names of the columns that a FROM clause brings, if they can be told.
pub fn from_names(
    from: &[TableWithJoins],
    with: Option<&ast::With>,
    items: &[WithItem],
    dict: &Dict,
) -> Result<Option<Vec<String>>> {
    let items = items.iter().map(|i| (i.name.clone(), i.column_names()));
    let mut names = Names {
        dict,
        ctes: vec![items.collect()],
    };
    names.enter_with(with);
    let columns = names.of_from(from)?;
    Ok(columns.map(|all| all.into_iter().map(|c| c.name).collect()))
}

struct Writer<'d> {
    names: Names<'d>,
    failed: Option<Error>,
}

impl VisitorMut for Writer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.names.enter(query);
        match self.names.write_query(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                self.failed = Some(e);
                ControlFlow::Break(())
            }
        }
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.names.ctes.pop();
        ControlFlow::Continue(())
    }
}

/// A column that comes out of FROM.
#[derive(Clone)]
struct Column {
    name: String,
    /// What it is in words of the tables.
    is: Expr,
    merged: bool,
    /// If the dictionary says.
    ty: Option<SqlType>,
}

/// The names of columns of tables and queries.
struct Names<'d> {
    dict: &'d Dict,
    /// Queries of WITH that are in sight, outer ones first, each with its columns if they are known.
    ctes: Vec<Vec<(String, Option<Vec<String>>)>>,
}

impl Names<'_> {
    fn enter(&mut self, query: &Query) {
        self.enter_with(query.with.as_ref());
    }

    /// Brings the queries of WITH into sight.
    fn enter_with(&mut self, with: Option<&ast::With>) {
        self.ctes.push(Vec::new());
        let ctes = with.iter().flat_map(|w| &w.cte_tables);
        for cte in ctes {
            let columns = renamed(self.of_query(&cte.query), &cte.alias.columns);
            let name = names::ident(&cte.alias.name);
            if let Some(scope) = self.ctes.last_mut() {
                scope.push((name, columns));
            }
        }
    }

    /// The names of a query's columns.
    fn of_query(&mut self, query: &Query) -> Option<Vec<String>> {
        self.enter(query);
        let names = self.of_body(&query.body);
        self.ctes.pop();
        names
    }

    fn of_body(&mut self, body: &SetExpr) -> Option<Vec<String>> {
        match body {
            SetExpr::Select(select) => self.of_select(select),
            SetExpr::Query(query) => self.of_query(query),
            SetExpr::SetOperation { left, .. } => self.of_body(left),
            SetExpr::Values(values) => {
                let width = values.rows.first()?.content.len();
                Some((1..=width).map(|i| format!("column{i}")).collect())
            }
            _ => None,
        }
    }

    fn of_select(&mut self, select: &Select) -> Option<Vec<String>> {
        let mut all = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(e) => all.push(column_name(e)),
                SelectItem::ExprWithAlias { alias, .. } => all.push(names::ident(alias)),
                SelectItem::Wildcard(_) => {
                    let columns = self.of_from(&select.from).ok()??;
                    all.extend(columns.into_iter().map(|c| c.name));
                }
                _ => return None,
            }
        }
        Some(all)
    }

    /// The columns of a FROM clause, in the order of `*`; `None` if some are not known.
    fn of_from(&mut self, from: &[TableWithJoins]) -> Result<Option<Vec<Column>>> {
        let mut all = Vec::new();
        for tables in from {
            match self.of_joins(&mut tables.clone())? {
                Some(columns) => all.extend(columns),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// The columns of tables joined, whose conditions are written out on the way.
    fn of_joins(&mut self, tables: &mut TableWithJoins) -> Result<Option<Vec<Column>>> {
        let Some(mut left) = self.of_factor(&mut tables.relation)? else {
            return Ok(None);
        };
        for join in &mut tables.joins {
            let Some(right) = self.of_factor(&mut join.relation)? else {
                return Ok(None);
            };
            match merge(join, left, right)? {
                Some(columns) => left = columns,
                None => return Ok(None),
            }
        }
        Ok(Some(left))
    }

    fn of_factor(&mut self, factor: &mut TableFactor) -> Result<Option<Vec<Column>>> {
        let (table, columns) = match factor {
            TableFactor::NestedJoin {
                table_with_joins,
                alias: None,
            } => return self.of_joins(table_with_joins),
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let qualified = names::Qualified::new(name)?;
                let table = match alias {
                    Some(a) => a.name.clone(),
                    None => Ident::with_quote('"', qualified.name.clone()),
                };
                let Some(columns) = self.of_table(&qualified) else {
                    return Ok(None);
                };
                let given = alias.iter().flat_map(|a| &a.columns).map(|c| &c.name);
                (table, with_names(columns, given))
            }
            // A join with a name hides the names of its tables.
            TableFactor::NestedJoin {
                table_with_joins,
                alias: Some(alias),
            } => {
                let Some(columns) = self.of_joins(&mut table_with_joins.clone())? else {
                    return Ok(None);
                };
                let columns = columns.into_iter().map(|c| (c.name, c.ty)).collect();
                let given = alias.columns.iter().map(|c| &c.name);
                (alias.name.clone(), with_names(columns, given))
            }
            // A series is a table of one column.
            TableFactor::Table {
                name,
                alias,
                with_ordinality: false,
                ..
            }
            | TableFactor::Function {
                name,
                alias,
                with_ordinality: false,
                ..
            } if names::Qualified::new(name)?.name == "generate_series" => {
                let function = Ident::new("generate_series");
                let table = alias.as_ref().map_or(function, |a| a.name.clone());
                let given = alias.iter().flat_map(|a| &a.columns).map(|c| &c.name);
                let column = vec![(names::ident(&table), None)];
                (table, with_names(column, given))
            }
            TableFactor::Derived {
                subquery,
                alias: Some(alias),
                ..
            } => {
                let Some(columns) = self.of_query(subquery) else {
                    return Ok(None);
                };
                let columns = columns.into_iter().map(|c| (c, None)).collect();
                let given = alias.columns.iter().map(|c| &c.name);
                (alias.name.clone(), with_names(columns, given))
            }
            _ => return Ok(None),
        };
        let column = |(name, ty): (String, Option<SqlType>)| Column {
            is: Expr::CompoundIdentifier(vec![table.clone(), Ident::with_quote('"', name.clone())]),
            name,
            merged: false,
            ty,
        };
        Ok(Some(columns.into_iter().map(column).collect()))
    }

    fn of_table(&self, name: &names::Qualified) -> Option<Vec<(String, Option<SqlType>)>> {
        if name.schema.is_none() {
            let mut ctes = self.ctes.iter().rev().flat_map(|scope| scope.iter().rev());
            if let Some((_, columns)) = ctes.find(|(cte, _)| *cte == name.name) {
                let columns = columns.clone()?;
                return Some(columns.into_iter().map(|c| (c, None)).collect());
            }
        }
        if let Some(Relation::View(view)) = self.dict.relation(name) {
            let columns = view.columns.iter();
            return Some(columns.map(|c| (c.name.clone(), Some(c.ty()))).collect());
        }
        if let Some(table) = self.dict.table(name) {
            let columns = table.live_columns();
            return Some(
                columns
                    .map(|(_, c)| (c.name.clone(), Some(c.ty())))
                    .collect(),
            );
        }
        let view = views::find(name.schema.as_deref(), &name.name)?;
        let columns = view.columns.iter();
        Some(
            columns
                .map(|(name, ty)| (name.to_string(), Some(*ty)))
                .collect(),
        )
    }

    /// Writes out the joins of a query itself.
    fn write_query(&mut self, query: &mut Query) -> Result<()> {
        let single = matches!(&*query.body, SetExpr::Select(_));
        let mut merged = Vec::new();
        self.write_body(&mut query.body, &mut merged)?;
        if !single || merged.is_empty() {
            return Ok(());
        }
        let SetExpr::Select(select) = &*query.body else {
            return Ok(());
        };
        let shown: HashSet<String> = select
            .projection
            .iter()
            .filter_map(|item| match item {
                SelectItem::UnnamedExpr(e) => Some(column_name(e)),
                SelectItem::ExprWithAlias { alias, .. } => Some(names::ident(alias)),
                _ => None,
            })
            .collect();
        if let Some(order) = &mut query.order_by
            && let ast::OrderByKind::Expressions(keys) = &mut order.kind
        {
            for key in keys {
                // The name of an output column is that first.
                let output =
                    matches!(&key.expr, Expr::Identifier(i) if shown.contains(&names::ident(i)));
                if !output {
                    self.replace(&mut key.expr, &merged);
                }
            }
        }
        Ok(())
    }

    fn write_body(&mut self, body: &mut SetExpr, merged: &mut Vec<Column>) -> Result<()> {
        match body {
            SetExpr::Select(select) => *merged = self.write_select(select)?,
            SetExpr::SetOperation { left, right, .. } => {
                self.write_body(left, merged)?;
                self.write_body(right, merged)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes out the joins of a SELECT; returns the columns that they merge.
    fn write_select(&mut self, select: &mut Select) -> Result<Vec<Column>> {
        // A join with a name is the tree lane's.
        if !select.from.iter().any(merges) || select.from.iter().any(is_named_join) {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        let mut from = select.from.clone();
        for tables in &mut from {
            match self.of_joins(tables)? {
                Some(columns) => all.extend(columns),
                None => return Ok(Vec::new()),
            }
        }
        select.from = from;
        let named = |c: &&Column| all.iter().filter(|o| o.name == c.name).count() == 1;
        let merged: Vec<Column> = all
            .iter()
            .filter(|c| c.merged)
            .filter(named)
            .cloned()
            .collect();
        let mut items = Vec::with_capacity(select.projection.len());
        for item in std::mem::take(&mut select.projection) {
            match item {
                SelectItem::Wildcard(options) if options == Default::default() => {
                    items.extend(all.iter().map(Column::item));
                }
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                    let column = merged.iter().find(|c| c.name == names::ident(&name));
                    items.push(match column {
                        Some(c) => c.item(),
                        None => SelectItem::UnnamedExpr(Expr::Identifier(name)),
                    });
                }
                other => items.push(other),
            }
        }
        select.projection = items;
        self.replace(select, &merged);
        Ok(merged)
    }

    /// Puts what they are for merged columns.
    fn replace(&mut self, what: &mut impl VisitMut, merged: &[Column]) {
        let mut replace = Replace {
            names: self,
            merged,
            inside: Vec::new(),
        };
        let _ = VisitMut::visit(what, &mut replace);
    }
}

impl Column {
    fn item(&self) -> SelectItem {
        SelectItem::ExprWithAlias {
            expr: self.is.clone(),
            alias: Ident::with_quote('"', self.name.clone()),
        }
    }
}

struct Replace<'r, 'd> {
    names: &'r mut Names<'d>,
    merged: &'r [Column],
    /// The columns of the queries around the place that are in the clause; `None`: not known, so anything may be theirs.
    inside: Vec<Option<HashSet<String>>>,
}

impl VisitorMut for Replace<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.names.enter(query);
        let columns = match &*query.body {
            SetExpr::Select(select) => self.names.of_from(&select.from).ok().flatten(),
            _ => None,
        };
        let columns = columns.map(|c| c.into_iter().map(|c| c.name).collect());
        self.inside.push(columns);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.names.ctes.pop();
        self.inside.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        let Expr::Identifier(name) = e else {
            return ControlFlow::Continue(());
        };
        let name = names::ident(name);
        let outer = |c: &Option<HashSet<String>>| c.as_ref().is_some_and(|c| !c.contains(&name));
        if self.inside.iter().all(outer)
            && let Some(column) = self.merged.iter().find(|c| c.name == name)
        {
            *e = column.is.clone();
        }
        ControlFlow::Continue(())
    }
}

/// Whether a join among the tables merges columns.
fn merges(tables: &TableWithJoins) -> bool {
    let nested = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { table_with_joins, alias: None } if merges(table_with_joins));
    nested(&tables.relation)
        || tables.joins.iter().any(|j| {
            nested(&j.relation)
                || matches!(
                    constraint(&j.join_operator),
                    Some(JoinConstraint::Using(_) | JoinConstraint::Natural)
                )
        })
}

/// Whether a join among the tables has a name for the columns that it merges.
fn is_named_join(tables: &TableWithJoins) -> bool {
    let nested = |factor: &TableFactor| matches!(factor, TableFactor::NestedJoin { table_with_joins, .. } if is_named_join(table_with_joins));
    let named = |c: Option<&JoinConstraint>| match c {
        Some(JoinConstraint::Using(columns)) => columns
            .iter()
            .filter_map(|c| names::Qualified::new(c).ok())
            .any(|c| parse::forms::join_name(&c.name).is_some()),
        _ => false,
    };
    nested(&tables.relation)
        || tables
            .joins
            .iter()
            .any(|j| nested(&j.relation) || named(constraint(&j.join_operator)))
}

fn constraint(operator: &JoinOperator) -> Option<&JoinConstraint> {
    match operator {
        JoinOperator::Join(c)
        | JoinOperator::Inner(c)
        | JoinOperator::Left(c)
        | JoinOperator::LeftOuter(c)
        | JoinOperator::Right(c)
        | JoinOperator::RightOuter(c)
        | JoinOperator::FullOuter(c)
        | JoinOperator::CrossJoin(c) => Some(c),
        _ => None,
    }
}

/// Which sides of a join have a row in every row of it.
fn sides(operator: &JoinOperator) -> Option<(bool, bool)> {
    Some(match operator {
        JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => (true, true),
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (true, false),
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (false, true),
        JoinOperator::FullOuter(_) => (false, false),
        _ => return None,
    })
}

fn with_condition(operator: &JoinOperator, c: JoinConstraint) -> JoinOperator {
    match operator {
        JoinOperator::Join(_) => JoinOperator::Join(c),
        JoinOperator::Left(_) => JoinOperator::Left(c),
        JoinOperator::LeftOuter(_) => JoinOperator::LeftOuter(c),
        JoinOperator::Right(_) => JoinOperator::Right(c),
        JoinOperator::RightOuter(_) => JoinOperator::RightOuter(c),
        JoinOperator::FullOuter(_) => JoinOperator::FullOuter(c),
        JoinOperator::CrossJoin(_) => JoinOperator::CrossJoin(c),
        _ => JoinOperator::Inner(c),
    }
}

/// The columns of a join, whose condition is written out.
fn merge(
    join: &mut Join,
    mut left: Vec<Column>,
    mut right: Vec<Column>,
) -> Result<Option<Vec<Column>>> {
    let (Some(present), Some(constraint)) =
        (sides(&join.join_operator), constraint(&join.join_operator))
    else {
        return Ok(None);
    };
    let shared: Vec<String> = match constraint {
        JoinConstraint::Using(columns) => columns
            .iter()
            .map(|c| Ok(names::Qualified::new(c)?.name))
            .collect::<Result<_>>()?,
        JoinConstraint::Natural => left
            .iter()
            .filter(|l| right.iter().any(|r| r.name == l.name))
            .map(|l| l.name.clone())
            .collect(),
        JoinConstraint::On(_) | JoinConstraint::None => {
            left.append(&mut right);
            return Ok(Some(left));
        }
    };
    let mut columns = Vec::new();
    let mut condition: Option<Expr> = None;
    for name in shared {
        let (l, r) = (
            take(&mut left, &name, "left")?,
            take(&mut right, &name, "right")?,
        );
        let equal = binary(l.is.clone(), BinaryOperator::Eq, r.is.clone());
        condition = Some(match condition {
            None => equal,
            Some(before) => binary(before, BinaryOperator::And, equal),
        });
        columns.push(one_of(l, r, present)?);
    }
    let condition = match condition {
        Some(e) => e,
        // Nothing in common: all with all.
        None => Expr::Value(ast::Value::Boolean(true).into()),
    };
    join.join_operator = with_condition(&join.join_operator, JoinConstraint::On(condition));
    columns.append(&mut left);
    columns.append(&mut right);
    Ok(Some(columns))
}

/// Takes the one column of that name.
fn take(columns: &mut Vec<Column>, name: &str, side: &str) -> Result<Column> {
    let Some(at) = columns.iter().position(|c| c.name == name) else {
        let message =
            format!("column \"{name}\" specified in USING clause does not exist in {side} table");
        return Err(Error::new("42703", message));
    };
    let column = columns.remove(at);
    if columns.iter().any(|c| c.name == name) {
        let message =
            format!("common column name \"{name}\" appears more than once in {side} table");
        return Err(Error::new("42702", message));
    }
    Ok(column)
}

/// The column that two are merged to, of the type in which they meet.
fn one_of(left: Column, right: Column, present: (bool, bool)) -> Result<Column> {
    let (name, types) = (left.name.clone(), (left.ty, right.ty));
    let common = match types {
        (Some(l), Some(r)) if l != r => Some(common_type(&[l, r], "JOIN/USING")?),
        _ => None,
    };
    let ty = common.or(left.ty);
    let is = match present {
        (true, _) => left.is,
        (false, true) => right.is,
        (false, false) => {
            let mut both = parse::expression("coalesce(null, null)")?;
            let mut sides = [left.is, right.is].into_iter();
            let _ = ast::visit_expressions_mut(&mut both, |e| {
                if matches!(e, Expr::Value(_))
                    && let Some(side) = sides.next()
                {
                    *e = side;
                }
                ControlFlow::<()>::Continue(())
            });
            both
        }
    };
    let is = match common {
        None => is,
        Some(ty) => {
            let mut cast = parse::expression(&format!("cast(null as {})", ty.name()))?;
            if let Expr::Cast { expr, .. } = &mut cast {
                **expr = is;
            }
            cast
        }
    };
    Ok(Column {
        name,
        is,
        merged: true,
        ty,
    })
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

/// Columns with the names that an alias gives to the first of them.
fn with_names<'n>(
    mut columns: Vec<(String, Option<SqlType>)>,
    given: impl Iterator<Item = &'n Ident>,
) -> Vec<(String, Option<SqlType>)> {
    for (column, name) in columns.iter_mut().zip(given) {
        column.0 = names::ident(name);
    }
    columns
}

fn renamed(
    columns: Option<Vec<String>>,
    given: &[ast::TableAliasColumnDef],
) -> Option<Vec<String>> {
    let mut columns = columns?;
    for (column, alias) in columns.iter_mut().zip(given) {
        *column = names::ident(&alias.name);
    }
    Some(columns)
}
