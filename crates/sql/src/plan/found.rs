//! SELECT .. FOR UPDATE of rows that a query of the general lane finds: it gives, beside its own columns, the ids of the rows that are to be locked.
//!
//! Which queries may lock rows is decided here for both lanes, in PostgreSQL's words.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    self, Distinct, GroupByExpr, Ident, JoinOperator, Query, Select, SelectItem, SetExpr,
    TableAlias, TableFactor, TableWithJoins,
};

use super::Feed;
use super::locking::{Clause, Wanted, kind};
use super::supply::General;
use super::{Planner, finds_call};
use crate::api::ColumnDesc;
use crate::bind::{is_aggregate, names};
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::olap;
use crate::views;

/// Such a query.
pub struct FoundRows {
    /// Gives all rows in order, with the ids of their parts.
    pub query: Feed,
    /// The places of its own columns in what the query gives.
    pub columns: Vec<usize>,
    /// In the order in which they are locked.
    pub locks: Vec<FoundLock>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
}

/// A table of which rows are locked.
pub struct FoundLock {
    pub table: Arc<Table>,
    /// The place of the row's id in what the query gives.
    pub id: usize,
    pub how: Wanted,
}

/// An item of FROM.
struct Item<'q> {
    /// The name that it has here.
    alias: String,
    of: Of<'q>,
    /// It stands on a side of an outer join that may be NULL.
    nullable: bool,
}

enum Of<'q> {
    Table(Arc<Table>, &'q mut TableFactor),
    /// All of whose tables' rows are meant: it locks them itself, as in PostgreSQL.
    Subquery(&'q mut Query),
    /// What `FOR UPDATE OF` cannot name, and without `OF` means nothing to.
    Rowless(&'static str),
    /// What it would lock rows of in PostgreSQL.
    Unknown(&'static str),
}

/// Refuses FOR UPDATE and its kin where a row of the answer is not one of each table.
pub fn check_lockable(q: &Query) -> Result<()> {
    let Some(lock) = q.locks.first() else {
        return Ok(());
    };
    let kind = kind(lock);
    let refused = |what: &str| Err(Error::new("0A000", format!("{kind} {what}")));
    let select = match &*q.body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { .. } => {
            return refused("is not allowed with UNION/INTERSECT/EXCEPT");
        }
        SetExpr::Values(_) => return refused("cannot be applied to VALUES"),
        _ => return Ok(()),
    };
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    };
    let aggregate = |f: &ast::Function| f.over.is_none() && is_aggregate_call(f);
    let series = |f: &ast::Function| is_one_of(f, &["generate_series", "unnest"]);
    match select {
        s if !matches!(s.distinct, None | Some(Distinct::All)) => {
            refused("is not allowed with DISTINCT clause")
        }
        _ if grouped => refused("is not allowed with GROUP BY clause"),
        s if s.having.is_some() => refused("is not allowed with HAVING clause"),
        s if calls(s, q, &aggregate) => refused("is not allowed with aggregate functions"),
        s if calls(s, q, &|f| f.over.is_some()) => refused("is not allowed with window functions"),
        s if calls(s, q, &series) => {
            refused("is not allowed with set-returning functions in the target list")
        }
        _ => Ok(()),
    }
}

fn is_one_of(f: &ast::Function, of: &[&str]) -> bool {
    names::Qualified::new(&f.name).is_ok_and(|n| of.contains(&n.name.as_str()))
}

fn is_aggregate_call(f: &ast::Function) -> bool {
    names::Qualified::new(&f.name)
        .is_ok_and(|n| is_aggregate(&n.name) || olap::is_general_aggregate(&n.name))
}

/// Whether the select list, or what the answer is ordered by, calls such a function.
fn calls(select: &Select, q: &Query, wanted: &dyn Fn(&ast::Function) -> bool) -> bool {
    let listed = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => Some(e),
        _ => None,
    });
    let ordered = q.order_by.iter().flat_map(|o| match &o.kind {
        ast::OrderByKind::Expressions(keys) => keys.as_slice(),
        ast::OrderByKind::All(_) => &[],
    });
    listed
        .chain(ordered.map(|k| &k.expr))
        .any(|e| finds_call(e, wanted))
}

impl Planner<'_> {
    /// Plans a query whose rows are locked, and which has no direct plan.
    pub fn rows_to_lock(
        &self,
        q: &Query,
        general: &General<'_>,
    ) -> Result<(FoundRows, Vec<ColumnDesc>)> {
        check_lockable(q)?;
        let (limit, offset) = self.limits(q)?;
        let mut query = q.clone();
        query.limit_clause = None;
        let clauses = std::mem::take(&mut query.locks);
        let ctes = query.with.iter().flat_map(|w| &w.cte_tables);
        let ctes: Vec<String> = ctes.map(|c| names::ident(&c.alias.name)).collect();
        let SetExpr::Select(select) = &mut *query.body else {
            return Err(Error::unsupported("FOR UPDATE of a query in parentheses"));
        };
        let mut items = Vec::new();
        for from in &mut select.from {
            self.joined(from, &ctes, &mut items)?;
        }
        let wanted = wanted(&clauses, &items)?;
        let mut locked = Vec::new();
        for (mut item, how) in items.into_iter().zip(wanted) {
            if let (Of::Subquery(subquery), Some(how)) = (&mut item.of, how) {
                subquery.locks.push(how.clause());
                check_lockable(subquery)?;
            }
            if let (Of::Table(table, factor), Some(how)) = (item.of, how) {
                with_row_ids(factor, &table, &item.alias);
                let id = Ident::with_quote('"', format!("{} {}", olap::ROW_ID, locked.len()));
                let path = [item.alias.as_str(), olap::ROW_ID].map(|n| Ident::with_quote('"', n));
                select.projection.push(SelectItem::ExprWithAlias {
                    expr: ast::Expr::CompoundIdentifier(path.into()),
                    alias: id,
                });
                locked.push((table, how));
            }
        }
        let (query, given) = general(&query)?;
        let own = given.len() - locked.len();
        // `*` brings the ids, too.
        let columns: Vec<usize> = (0..own)
            .filter(|at| given[*at].name != olap::ROW_ID)
            .collect();
        let shown = columns.iter().map(|at| given[*at].clone()).collect();
        let lock = |(at, (table, how))| FoundLock {
            table,
            id: own + at,
            how,
        };
        let found = FoundRows {
            query,
            columns,
            locks: locked.into_iter().enumerate().map(lock).collect(),
            limit,
            offset,
        };
        Ok((found, shown))
    }

    /// The items of a part of FROM, in order.
    fn joined<'q>(
        &self,
        from: &'q mut TableWithJoins,
        ctes: &[String],
        items: &mut Vec<Item<'q>>,
    ) -> Result<()> {
        let first = items.len();
        self.item(&mut from.relation, ctes, items)?;
        for join in &mut from.joins {
            let (left, right) = match &join.join_operator {
                JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
                JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
                JoinOperator::FullOuter(_) => (true, true),
                _ => (false, false),
            };
            let split = items.len();
            self.item(&mut join.relation, ctes, items)?;
            items[first..split]
                .iter_mut()
                .for_each(|i| i.nullable |= left);
            items[split..].iter_mut().for_each(|i| i.nullable |= right);
        }
        Ok(())
    }

    fn item<'q>(
        &self,
        factor: &'q mut TableFactor,
        ctes: &[String],
        items: &mut Vec<Item<'q>>,
    ) -> Result<()> {
        if let TableFactor::NestedJoin {
            table_with_joins,
            alias: None,
        } = factor
        {
            return self.joined(table_with_joins, ctes, items);
        }
        let named = |a: &Option<TableAlias>| a.as_ref().map(|a| names::ident(&a.name));
        let (alias, of) = match factor {
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => {
                let q = names::Qualified::new(name)?;
                let alias = named(alias).unwrap_or_else(|| q.name.clone());
                let table = self.dict.table(&q.name).filter(|_| q.in_public());
                let of = match table {
                    _ if q.schema.is_none() && ctes.contains(&q.name) => {
                        Of::Rowless("a WITH query")
                    }
                    Some(table) => Of::Table(table.clone(), factor),
                    None if views::find(q.schema.as_deref(), &q.name).is_none() => {
                        return Err(names::no_relation(&q.name));
                    }
                    None => Of::Unknown("catalogs and views"),
                };
                (alias, of)
            }
            TableFactor::NestedJoin { alias, .. } => {
                (named(alias).unwrap_or_default(), Of::Rowless("a join"))
            }
            TableFactor::Derived {
                alias, subquery, ..
            } => {
                let of = match &*subquery.body {
                    SetExpr::Values(_) => Of::Rowless("VALUES"),
                    _ => Of::Subquery(subquery),
                };
                (named(alias).unwrap_or_default(), of)
            }
            TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                let alias = named(alias).unwrap_or(names::Qualified::new(name)?.name);
                (alias, Of::Rowless("a function"))
            }
            TableFactor::UNNEST { alias, .. } | TableFactor::TableFunction { alias, .. } => {
                (named(alias).unwrap_or_default(), Of::Rowless("a function"))
            }
            _ => (String::new(), Of::Unknown("this item of FROM")),
        };
        items.push(Item {
            alias,
            of,
            nullable: false,
        });
        Ok(())
    }
}

/// How each item's rows are to be locked.
fn wanted(clauses: &[ast::LockClause], items: &[Item<'_>]) -> Result<Vec<Option<Wanted>>> {
    let mut wanted: Vec<Option<Wanted>> = vec![None; items.len()];
    for clause in clauses {
        let kind = kind(clause);
        let Clause {
            wanted: how,
            of: named,
        } = Clause::new(clause)?;
        let mut found = false;
        for (item, wanted) in items.iter().zip(&mut wanted) {
            if named.as_ref().is_some_and(|n| n.name != item.alias) {
                continue;
            }
            found = true;
            match &item.of {
                Of::Table(..) | Of::Subquery(_) if item.nullable => {
                    let message =
                        format!("{kind} cannot be applied to the nullable side of an outer join");
                    return Err(Error::new("0A000", message));
                }
                Of::Table(..) | Of::Subquery(_) => *wanted = Some(how.beside(*wanted)),
                Of::Rowless(_) if named.is_none() => {}
                Of::Rowless("VALUES") => {}
                Of::Rowless(what) => {
                    return Err(Error::new(
                        "0A000",
                        format!("{kind} cannot be applied to {what}"),
                    ));
                }
                Of::Unknown(what) => {
                    return Err(
                        Error::unsupported(format!("{kind} of {what}")).hint(format!(
                            "Name the tables whose rows are meant: {kind} OF ..."
                        )),
                    );
                }
            }
        }
        if let Some(name) = named.filter(|_| !found) {
            let message = format!(
                "relation \"{}\" in {kind} clause not found in FROM clause",
                name.name
            );
            return Err(Error::new("42P01", message));
        }
    }
    Ok(wanted)
}

/// The table as the general lane gives it with its rows' ids.
fn with_row_ids(factor: &mut TableFactor, table: &Table, known_as: &str) {
    let TableFactor::Table { name, alias, .. } = factor else {
        return;
    };
    let quoted = |name: &str| Ident::with_quote('"', name);
    *name = vec![quoted(olap::WITH_ROW_IDS), quoted(&table.name)].into();
    alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: quoted(known_as),
        columns: Vec::new(),
        at: None,
    });
}
