//! Direct plans of SELECT and VALUES: no table, one table, or two joined by index.

use block::value::{Datum, DatumRef};
use sqlparser::ast::{self, Distinct, GroupByExpr, LimitClause, Query, Select, SetExpr};

use super::from::Item;
use super::lockable::check_lockable;
use super::locking::{Clause, Wanted, kind};
use super::output::sort_keys;
use super::path::{Path, Wish, conjoin, conjuncts};
use super::{Aggregate, Output, Planner, TableAccess};
use crate::bind::{Binder, Scope, Typed, common_type};
use crate::collate::Collation;
use crate::error::{Error, Result};
use crate::exec::profile::StepKey;
use crate::expr::cast::CastContext;
use crate::expr::{Calls, Env, Expr, Val};
use crate::types::SqlType;

#[derive(Clone, Debug)]
pub struct SelectPlan {
    pub source: Source,
    /// Over the combined row, after what the accesses check themselves.
    pub filter: Option<Expr>,
    pub aggregate: Option<Aggregate>,
    /// Empty if rows come in order, or in any.
    pub order: Vec<SortKey>,
    pub output: Vec<Expr>,
    pub limit: Option<Expr>,
    pub offset: Option<Expr>,
    /// Tables of the source whose rows are locked, in the order in which that is done.
    pub locks: Vec<LockedTable>,
    /// With `locks`: the whole condition, for rows that changed since they were found.
    pub condition: Option<Expr>,
}

impl SelectPlan {
    /// The step that gives rows which are computed as a whole.
    pub fn computed_by(&self) -> StepKey {
        match &self.aggregate {
            Some(aggregate) if self.order.is_empty() => StepKey::of(aggregate),
            _ => StepKey::of(&self.order),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Source {
    /// One row without columns.
    One,
    Values(Vec<Vec<Expr>>),
    /// generate_series(start, stop, step) of integers.
    Series {
        start: Expr,
        stop: Expr,
        step: Expr,
        ty: SqlType,
    },
    Table(Box<TableAccess>),
    /// For each row of `outer`, the rows of `inner` by its path, which may use outer columns. `left`: an outer row
    /// without a partner comes once, with NULLs.
    Loop {
        outer: Box<TableAccess>,
        inner: Box<TableAccess>,
        left: bool,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct SortKey {
    pub expr: Expr,
    pub descending: bool,
    pub nulls_first: bool,
    /// Strings are in the order of this collation; `None`: in that of their bytes.
    pub by: Option<Collation>,
}

impl SortKey {
    /// What a row is sorted by: its value compares as bytes.
    pub fn eval<'a>(&'a self, env: &Env<'a>, calls: &mut dyn Calls) -> Result<Val<'a>> {
        let value = self.expr.eval(env, calls)?;
        match (self.by, value.get()) {
            (Some(by), DatumRef::Text(text)) => Ok(Val::Own(Datum::Bytea(by.key(text)?))),
            _ => Ok(value),
        }
    }
}

/// FOR UPDATE and its kin of one table of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedTable {
    /// 0: the only or the outer table, 1: the inner one.
    pub place: usize,
    pub how: Wanted,
}

/// What to do about a row that another transaction has locked. Of several that are asked for of one table, the last here counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockRows {
    Wait,
    SkipLocked,
    NoWait,
}

impl Planner<'_> {
    pub fn query(&self, q: &Query) -> Result<(SelectPlan, Output)> {
        check_lockable(q)?;
        if q.with.is_some()
            || !self.items.is_empty()
            || q.fetch.is_some()
            || q.for_clause.is_some()
            || !q.pipe_operators.is_empty()
        {
            return Err(Error::unsupported("this form of query in a direct plan"));
        }
        match &*q.body {
            SetExpr::Select(s) => self.select(q, s),
            SetExpr::Values(v) if q.order_by.is_none() && q.locks.is_empty() => {
                let rows = v
                    .rows
                    .iter()
                    .map(|r| r.content.as_slice())
                    .collect::<Vec<_>>();
                let (plan, output) = self.values(&rows)?;
                self.with_limit(plan, output, q)
            }
            SetExpr::Query(inner)
                if q.order_by.is_none() && q.limit_clause.is_none() && q.locks.is_empty() =>
            {
                self.query(inner)
            }
            _ => Err(Error::unsupported("this form of query in a direct plan")),
        }
    }

    fn with_limit(
        &self,
        mut plan: SelectPlan,
        output: Output,
        q: &Query,
    ) -> Result<(SelectPlan, Output)> {
        (plan.limit, plan.offset) = self.limits(q)?;
        Ok((plan, output))
    }

    fn values(&self, rows: &[&[ast::Expr]]) -> Result<(SelectPlan, Output)> {
        let scope = Scope::default();
        let binder = Binder::new(&scope, self.params, "VALUES");
        let width = rows.first().map_or(0, |r| r.len());
        let mut bound = Vec::with_capacity(rows.len());
        for row in rows {
            if row.len() != width {
                return Err(Error::new(
                    "42601",
                    "VALUES lists must all be the same length",
                ));
            }
            bound.push(
                row.iter()
                    .map(|e| binder.expr(e))
                    .collect::<Result<Vec<_>>>()?,
            );
        }
        let mut output = Output {
            columns: Vec::new(),
            exprs: Vec::new(),
        };
        let mut types = Vec::new();
        for i in 0..width {
            let ty = common_type(&bound.iter().map(|r| r[i].ty).collect::<Vec<_>>(), "VALUES")?;
            types.push(ty);
            output.push(
                format!("column{}", i + 1),
                Typed::new(Expr::Column(i), ty),
                None,
            );
        }
        let rows = bound
            .into_iter()
            .map(|row| {
                row.into_iter()
                    .zip(&types)
                    .map(|(t, ty)| Ok(binder.coerce(t, *ty, -1, CastContext::Implicit)?.expr))
                    .collect()
            })
            .collect::<Result<Vec<Vec<Expr>>>>()?;
        let plan = SelectPlan {
            source: Source::Values(rows),
            filter: None,
            aggregate: None,
            order: Vec::new(),
            output: output.exprs.clone(),
            limit: None,
            offset: None,
            locks: Vec::new(),
            condition: None,
        };
        Ok((plan, output))
    }

    fn select(&self, q: &Query, s: &Select) -> Result<(SelectPlan, Output)> {
        refuse_unknown_clauses(s)?;
        let (items, scope, join_terms, left) = self.from_clause(&s.from)?;
        let binder = Binder::new(&scope, self.params, "WHERE");
        let mut terms = conjuncts(
            s.selection
                .as_ref()
                .map(|w| binder.condition(w))
                .transpose()?,
        );
        let grouping = self.grouping(&scope, s, q)?;
        let (output, aggregate, order, having) = match grouping {
            Some(g) => (g.output, Some(g.aggregate), g.order, g.having),
            None => {
                let output = self.projection(&scope, &s.projection)?;
                let order = self.order(&scope, q, &output)?;
                (output, None, order, None)
            }
        };
        let (limit, offset) = self.limits(q)?;
        let locks = row_locks(q, &items, left)?;
        let condition = if locks.is_empty() {
            None
        } else {
            conjoin(terms.iter().chain(&join_terms).cloned().collect())
        };
        let on = match left {
            true => join_terms,
            false => {
                terms.extend(join_terms);
                Vec::new()
            }
        };
        let mut aggregate = aggregate;
        // Groups are put in order and counted when they are made. Of one table an index may have the least or the greatest value at its end.
        let first = aggregate.as_ref().filter(|_| items.len() == 1);
        let first: Vec<SortKey> = first.and_then(Aggregate::first_in).into_iter().collect();
        let (wanted_order, most): (&[SortKey], _) = match aggregate {
            Some(_) => (&first, None),
            None => (&order, most_rows(limit.as_ref(), offset.as_ref())),
        };
        let wish = Wish {
            order: wanted_order,
            limited: most.is_some(),
            batched: aggregate.is_some(),
        };
        let (mut source, filter, ordered) = self.source(items, terms, on, left, wish, most)?;
        let by_order = ordered && !first.is_empty();
        if aggregate.is_some() && reads_all(&source) && !by_order {
            return Err(Error::unsupported(
                "aggregates of a whole table in a direct plan",
            ));
        }
        if let Source::Table(access) = &source
            && locks.is_empty()
            && self.is_better_apart(access, 0.0)
        {
            return Err(Error::unsupported(
                "a table by several indexes in a direct plan",
            ));
        }
        let order = if ordered && aggregate.is_none() {
            Vec::new()
        } else {
            order
        };
        let sorted = !order.is_empty() && aggregate.is_none();
        if sorted && output.exprs.iter().any(Expr::is_volatile) {
            // Here a row is computed before it is sorted, though LIMIT may leave it out, and once
            // more for its key.
            return Err(Error::unsupported(
                "volatile results of sorted rows in a direct plan",
            ));
        }
        if let Some(a) = &mut aggregate {
            a.having = having;
            a.first = ordered && !first.is_empty();
        }
        let mut used: Vec<&Expr> = filter.iter().collect();
        match &aggregate {
            Some(a) => used.extend(a.input_exprs()),
            None => used.extend(output.exprs.iter().chain(order.iter().map(|k| &k.expr))),
        }
        let mut needed = used.iter().map(|e| e.columns_needed()).max().unwrap_or(0);
        if !locks.is_empty() {
            // A row that has changed is judged by the whole condition, which may use any of them.
            needed = source.width();
        }
        source.decode(needed);
        let plan = SelectPlan {
            source,
            filter,
            aggregate,
            order,
            output: output.exprs.clone(),
            limit,
            offset,
            locks,
            condition,
        };
        Ok((plan, output))
    }

    fn order(&self, scope: &Scope, q: &Query, output: &Output) -> Result<Vec<SortKey>> {
        let binder = Binder::new(scope, self.params, "ORDER BY");
        sort_keys(q, output, |e| binder.settle(binder.expr(e)?))
    }

    pub(super) fn limits(&self, q: &Query) -> Result<(Option<Expr>, Option<Expr>)> {
        let scope = Scope::default();
        let bind = |e: &ast::Expr, clause: &'static str| {
            let binder = Binder::new(&scope, self.params, clause);
            Ok::<_, Error>(
                binder
                    .coerce(binder.expr(e)?, SqlType::Int8, -1, CastContext::Assignment)?
                    .expr,
            )
        };
        match &q.limit_clause {
            None => Ok((None, None)),
            Some(LimitClause::LimitOffset {
                limit,
                offset,
                limit_by,
            }) if limit_by.is_empty() => {
                let limit = limit.as_ref().map(|e| bind(e, "LIMIT")).transpose()?;
                let offset = offset
                    .as_ref()
                    .map(|o| bind(&o.value, "OFFSET"))
                    .transpose()?;
                Ok((limit, offset))
            }
            Some(other) => Err(Error::unsupported(format!("{other}"))),
        }
    }
}

/// Whether a table is read as a whole.
fn reads_all(source: &Source) -> bool {
    let full = |a: &&TableAccess| matches!(a.path, Path::Full);
    source.accesses().iter().any(full)
}

/// How many rows LIMIT and OFFSET let a query look at; infinitely many if only the execution knows. `None` without LIMIT.
fn most_rows(limit: Option<&Expr>, offset: Option<&Expr>) -> Option<f64> {
    let rows = |count: &Expr| match count {
        Expr::Const(Datum::Int8(n)) => *n as f64,
        _ => f64::INFINITY,
    };
    Some(rows(limit?) + offset.map_or(0.0, rows))
}

/// The tables that FOR UPDATE and its kin name, or else all, in the order of FROM.
fn row_locks(q: &Query, items: &[Item], left: bool) -> Result<Vec<LockedTable>> {
    let mut wanted: Vec<Option<Wanted>> = vec![None; items.len()];
    for clause in &q.locks {
        let kind = kind(clause);
        let Clause {
            wanted: how,
            of: named,
        } = Clause::new(clause)?;
        let mut found = false;
        for (place, item) in items.iter().enumerate() {
            let Item::Table(_, alias) = item else {
                continue;
            };
            if named.as_ref().is_some_and(|n| n.name != *alias) {
                continue;
            }
            found = true;
            if left && place > 0 {
                let message =
                    format!("{kind} cannot be applied to the nullable side of an outer join");
                return Err(Error::new("0A000", message));
            }
            wanted[place] = Some(how.beside(wanted[place]));
        }
        if let Some(name) = named.filter(|_| !found) {
            let message = format!(
                "relation \"{}\" in {kind} clause not found in FROM clause",
                name.name
            );
            return Err(Error::new("42P01", message));
        }
    }
    let locks = wanted.into_iter().enumerate();
    Ok(locks
        .filter_map(|(place, how)| Some(LockedTable { place, how: how? }))
        .collect())
}

fn refuse_unknown_clauses(s: &Select) -> Result<()> {
    let plain_group =
        matches!(&s.group_by, GroupByExpr::Expressions(_, modifiers) if modifiers.is_empty());
    let known = matches!(s.distinct, None | Some(Distinct::All))
        && s.top.is_none()
        && s.exclude.is_none()
        && s.into.is_none()
        && s.lateral_views.is_empty()
        && s.prewhere.is_none()
        && s.connect_by.is_empty()
        && plain_group
        && s.cluster_by.is_empty()
        && s.distribute_by.is_empty()
        && s.sort_by.is_empty()
        && s.named_window.is_empty()
        && s.qualify.is_none()
        && s.value_table_mode.is_none()
        && s.select_modifiers.is_none();
    if known {
        Ok(())
    } else {
        Err(Error::unsupported("this form of SELECT in a direct plan"))
    }
}
