//! Direct plans of SELECT and VALUES: no table, one table, or two joined by index.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    self, Distinct, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, LockType, NonBlock, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
};

use super::path::{Path, conjoin, conjuncts};
use super::{Aggregate, Output, Planner, TableAccess};
use crate::bind::{Binder, Scope, ScopeColumn, Typed, common_type, names};
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
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
    pub lock: Option<LockRows>,
    /// With `lock`: the whole condition, for rows that changed since they were found.
    pub condition: Option<Expr>,
}

#[derive(Clone, Debug)]
pub enum Source {
    /// One row without columns.
    One,
    Values(Vec<Vec<Expr>>),
    /// generate_series(start, stop, step) of integers.
    Series { start: Expr, stop: Expr, step: Expr, ty: SqlType },
    Table(TableAccess),
    /// For each row of `outer`, the rows of `inner` by its path, which may use outer columns. `left`: an outer row
    /// without a partner comes once, with NULLs.
    Loop { outer: TableAccess, inner: TableAccess, left: bool },
}

#[derive(Clone, Debug)]
pub struct SortKey {
    pub expr: Expr,
    pub descending: bool,
    pub nulls_first: bool,
}

/// FOR UPDATE / FOR SHARE of the one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockRows {
    Wait,
    NoWait,
    SkipLocked,
}

/// Loops read the inner table once per outer row: only a lookup by key, and only if the outer side is expected to be
/// small, or both are tiny.
const MAX_LOOP_OUTER_ROWS: f64 = 20_000.0;
const MAX_LOOP_PAIRS: f64 = 20_000.0;

/// One FROM item.
enum Item {
    Table(Arc<Table>),
    Source(Source),
}

impl Planner<'_> {
    pub fn query(&self, q: &Query) -> Result<(SelectPlan, Output)> {
        if q.with.is_some() || q.fetch.is_some() || q.for_clause.is_some() || !q.pipe_operators.is_empty() {
            return Err(Error::unsupported("this form of query in a direct plan"));
        }
        match &*q.body {
            SetExpr::Select(s) => self.select(q, s),
            SetExpr::Values(v) if q.order_by.is_none() && q.locks.is_empty() => {
                let rows = v.rows.iter().map(|r| r.content.as_slice()).collect::<Vec<_>>();
                let (plan, output) = self.values(&rows)?;
                self.with_limit(plan, output, q)
            }
            SetExpr::Query(inner) if q.order_by.is_none() && q.limit_clause.is_none() && q.locks.is_empty() => self.query(inner),
            _ => Err(Error::unsupported("this form of query in a direct plan")),
        }
    }

    fn with_limit(&self, mut plan: SelectPlan, output: Output, q: &Query) -> Result<(SelectPlan, Output)> {
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
                return Err(Error::new("42601", "VALUES lists must all be the same length"));
            }
            bound.push(row.iter().map(|e| binder.expr(e)).collect::<Result<Vec<_>>>()?);
        }
        let mut output = Output { columns: Vec::new(), exprs: Vec::new() };
        let mut types = Vec::new();
        for i in 0..width {
            let ty = common_type(&bound.iter().map(|r| r[i].ty).collect::<Vec<_>>(), "VALUES")?;
            types.push(ty);
            output.push(format!("column{}", i + 1), Typed::new(Expr::Column(i), ty), None);
        }
        let rows = bound
            .into_iter()
            .map(|row| row.into_iter().zip(&types).map(|(t, ty)| Ok(binder.coerce(t, *ty, -1, CastContext::Implicit)?.expr)).collect())
            .collect::<Result<Vec<Vec<Expr>>>>()?;
        let plan = SelectPlan {
            source: Source::Values(rows),
            filter: None,
            aggregate: None,
            order: Vec::new(),
            output: output.exprs.clone(),
            limit: None,
            offset: None,
            lock: None,
            condition: None,
        };
        Ok((plan, output))
    }

    fn select(&self, q: &Query, s: &Select) -> Result<(SelectPlan, Output)> {
        refuse_unknown_clauses(s)?;
        let (items, scope, join_terms, left) = self.from(&s.from)?;
        let binder = Binder::new(&scope, self.params, "WHERE");
        let mut terms = conjuncts(s.selection.as_ref().map(|w| binder.condition(w)).transpose()?);
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
        let lock = lock_clause(q, aggregate.is_some(), items.len())?;
        if !left {
            terms.extend(join_terms.iter().cloned());
        }
        let condition = if lock.is_some() { conjoin(terms.clone()) } else { None };
        let wanted_order: &[SortKey] = if aggregate.is_some() { &[] } else { &order };
        let (mut source, filter, ordered) = self.source(items, terms, if left { join_terms } else { Vec::new() }, left, wanted_order, limit.is_some())?;
        let order = if ordered && aggregate.is_none() { Vec::new() } else { order };
        let mut aggregate = aggregate;
        if let Some(a) = &mut aggregate {
            a.having = having;
        }
        let mut used: Vec<&Expr> = filter.iter().collect();
        match &aggregate {
            Some(a) => used.extend(a.input_exprs()),
            None => used.extend(output.exprs.iter().chain(order.iter().map(|k| &k.expr))),
        }
        let needed = used.iter().map(|e| e.columns_needed()).max().unwrap_or(0);
        source.decode(needed);
        let plan = SelectPlan { source, filter, aggregate, order, output: output.exprs.clone(), limit, offset, lock, condition };
        Ok((plan, output))
    }

    /// The FROM clause: items, the columns they bring, the join's conditions, and whether it is a left join.
    fn from(&self, from: &[ast::TableWithJoins]) -> Result<(Vec<Item>, Scope, Vec<Expr>, bool)> {
        let mut items = Vec::new();
        let mut scope = Scope::default();
        let mut width = 0;
        let mut joins = Vec::new();
        let mut left = false;
        for twj in from {
            self.from_item(&twj.relation, &mut items, &mut scope, &mut width)?;
            for join in &twj.joins {
                self.from_item(&join.relation, &mut items, &mut scope, &mut width)?;
                let constraint = match &join.join_operator {
                    JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::CrossJoin(c) => c,
                    JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => {
                        left = true;
                        c
                    }
                    _ => return Err(Error::unsupported("this join in a direct plan")),
                };
                match constraint {
                    JoinConstraint::None => {}
                    JoinConstraint::On(e) => {
                        let binder = Binder::new(&scope, self.params, "JOIN/ON");
                        joins.extend(conjuncts(Some(binder.condition(e)?)));
                    }
                    _ => return Err(Error::unsupported("USING in a direct plan")),
                }
            }
        }
        if items.len() > 2 || items.len() == 2 && items.iter().any(|i| matches!(i, Item::Source(_))) {
            return Err(Error::unsupported("this many FROM items in a direct plan"));
        }
        Ok((items, scope, joins, left))
    }

    fn from_item(&self, factor: &TableFactor, items: &mut Vec<Item>, scope: &mut Scope, width: &mut usize) -> Result<()> {
        match factor {
            TableFactor::Table { name, alias, args: None, version: None, with_ordinality: false, sample: None, .. } => {
                let table = self.known_table(name)?;
                let alias = match alias {
                    Some(a) if a.columns.is_empty() => names::ident(&a.name),
                    Some(_) => return Err(Error::unsupported("column aliases in a direct plan")),
                    None => table.name.clone(),
                };
                if scope.has_table(&alias) {
                    return Err(Error::new("42712", format!("table name \"{alias}\" specified more than once")));
                }
                scope.add_table(&table, &alias, *width);
                *width += table.columns.len();
                items.push(Item::Table(table));
                Ok(())
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, sample: None, .. } => {
                self.series(name, &args.args, alias.as_ref(), items, scope, width)
            }
            TableFactor::Function { lateral: false, name, args, with_ordinality: false, alias } => {
                self.series(name, args, alias.as_ref(), items, scope, width)
            }
            _ => Err(Error::unsupported("this FROM item in a direct plan")),
        }
    }

    /// A user's table; anything else may be a catalog or a view, which the general lane knows.
    fn known_table(&self, name: &ast::ObjectName) -> Result<Arc<Table>> {
        let q = names::Qualified::new(name)?;
        let table = if q.in_public() { self.dict.table(&q.name) } else { None };
        table.cloned().ok_or_else(|| Error::unsupported("relation of the general lane"))
    }

    fn series(
        &self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        alias: Option<&ast::TableAlias>,
        items: &mut Vec<Item>,
        scope: &mut Scope,
        width: &mut usize,
    ) -> Result<()> {
        if names::Qualified::new(name)?.name != "generate_series" || !(2..=3).contains(&args.len()) {
            return Err(Error::unsupported(format!("function {name} in FROM")));
        }
        let none = Scope::default();
        let binder = Binder::new(&none, self.params, "FROM");
        let mut bound = Vec::new();
        for a in args {
            match a {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => bound.push(binder.expr(e)?),
                _ => return Err(Error::unsupported(format!("arguments of {name}"))),
            }
        }
        let ty = common_type(&bound.iter().map(|b| b.ty).collect::<Vec<_>>(), "generate_series")?;
        let ty = if ty == SqlType::Text { SqlType::Int4 } else { ty };
        if !matches!(ty, SqlType::Int4 | SqlType::Int8) {
            return Err(Error::unsupported(format!("generate_series of {}", ty.name())));
        }
        let mut exprs = bound.into_iter().map(|b| Ok(binder.coerce(b, ty, -1, CastContext::Implicit)?.expr)).collect::<Result<Vec<_>>>()?;
        let step = if exprs.len() == 3 { exprs.pop() } else { None };
        let (Some(stop), Some(start)) = (exprs.pop(), exprs.pop()) else { return Err(Error::internal("series without bounds")) };
        let table = alias.map_or("generate_series".to_string(), |a| names::ident(&a.name));
        let column = alias.and_then(|a| a.columns.first()).map_or(table.clone(), |c| names::ident(&c.name));
        scope.columns.push(ScopeColumn { table, name: column, ty, typmod: -1, slot: *width, table_oid: 0, attnum: 0, hidden: false });
        *width += 1;
        let step = step.unwrap_or(Expr::Const(block::value::Datum::Int8(1)));
        items.push(Item::Source(Source::Series { start, stop, step, ty }));
        Ok(())
    }

    /// Access paths for the items. Returns the source, the filter left for the combined row, and whether rows come in
    /// the wanted order.
    fn source(&self, mut items: Vec<Item>, terms: Vec<Expr>, on: Vec<Expr>, left: bool, order: &[SortKey], limited: bool) -> Result<(Source, Option<Expr>, bool)> {
        let last = items.pop();
        match (items.pop(), last) {
            (None, None) => Ok((Source::One, conjoin(terms), order.is_empty())),
            (None, Some(Item::Source(s))) => Ok((s, conjoin(terms), order.is_empty())),
            (None, Some(Item::Table(t))) => {
                let (access, ordered) = self.access(&t, 0, terms, order, limited);
                Ok((Source::Table(access), None, ordered))
            }
            (Some(Item::Table(a)), Some(Item::Table(b))) => self.join(&a, &b, terms, on, left, order, limited),
            _ => Err(Error::unsupported("this join in a direct plan")),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn join(&self, a: &Arc<Table>, b: &Arc<Table>, terms: Vec<Expr>, on: Vec<Expr>, left: bool, order: &[SortKey], limited: bool) -> Result<(Source, Option<Expr>, bool)> {
        let split = a.columns.len();
        let (outer_terms, rest): (Vec<Expr>, Vec<Expr>) = terms.into_iter().partition(|t| t.columns_needed() <= split && !t.is_volatile());
        // Conditions of WHERE on the inner side of a left join apply after NULLs were filled in.
        let (inner_terms, filter) = if left { (on, rest) } else { (rest, Vec::new()) };
        let (outer, ordered) = self.access(a, 0, outer_terms, order, limited);
        let (inner, _) = self.access(b, split, inner_terms, &[], false);
        let by_key = matches!(inner.path, Path::Index { .. });
        let pairs = outer.rows * inner.rows;
        if !(by_key && outer.rows <= MAX_LOOP_OUTER_ROWS) && pairs > MAX_LOOP_PAIRS {
            return Err(Error::unsupported("a join of this size in a direct plan"));
        }
        Ok((Source::Loop { outer, inner, left }, conjoin(filter), ordered))
    }

    pub fn projection(&self, scope: &Scope, items: &[SelectItem]) -> Result<Output> {
        let binder = Binder::new(scope, self.params, "SELECT");
        let mut output = Output { columns: Vec::new(), exprs: Vec::new() };
        for item in items {
            match item {
                SelectItem::UnnamedExpr(e) => {
                    let value = binder.settle(binder.expr(e)?)?;
                    let origin = origin(scope, &value.expr);
                    output.push(column_name(e), value, origin);
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let value = binder.settle(binder.expr(expr)?)?;
                    let origin = origin(scope, &value.expr);
                    output.push(names::ident(alias), value, origin);
                }
                SelectItem::Wildcard(_) => star(scope, None, &mut output)?,
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    star(scope, Some(&names::Qualified::new(name)?.name), &mut output)?;
                }
                other => return Err(Error::unsupported(format!("select item {other}"))),
            }
        }
        Ok(output)
    }

    fn order(&self, scope: &Scope, q: &Query, output: &Output) -> Result<Vec<SortKey>> {
        let binder = Binder::new(scope, self.params, "ORDER BY");
        sort_keys(q, output, |e| Ok(binder.settle(binder.expr(e)?)?.expr))
    }

    fn limits(&self, q: &Query) -> Result<(Option<Expr>, Option<Expr>)> {
        let scope = Scope::default();
        let bind = |e: &ast::Expr, clause: &'static str| {
            let binder = Binder::new(&scope, self.params, clause);
            Ok::<_, Error>(binder.coerce(binder.expr(e)?, SqlType::Int8, -1, CastContext::Implicit)?.expr)
        };
        match &q.limit_clause {
            None => Ok((None, None)),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                let limit = limit.as_ref().map(|e| bind(e, "LIMIT")).transpose()?;
                let offset = offset.as_ref().map(|o| bind(&o.value, "OFFSET")).transpose()?;
                Ok((limit, offset))
            }
            Some(other) => Err(Error::unsupported(format!("{other}"))),
        }
    }
}

impl Source {
    /// Settles how many columns of each table must be decoded, given what the rest of the plan uses.
    fn decode(&mut self, needed: usize) {
        match self {
            Source::Table(t) => t.decode(needed),
            Source::Loop { outer, inner, .. } => {
                let keys = inner.key_columns();
                outer.decode(needed.max(keys).max(inner.filter.as_ref().map_or(0, Expr::columns_needed)));
                inner.decode(needed);
            }
            _ => {}
        }
    }

    pub fn tables(&self) -> Vec<&Arc<Table>> {
        match self {
            Source::Table(t) => vec![&t.table],
            Source::Loop { outer, inner, .. } => vec![&outer.table, &inner.table],
            _ => Vec::new(),
        }
    }
}

impl TableAccess {
    pub fn decode(&mut self, needed: usize) {
        let own = self.filter.as_ref().map_or(0, Expr::columns_needed);
        self.needed = needed.max(own).saturating_sub(self.offset).min(self.table.columns.len());
    }

    /// Columns of the combined row that the path's keys use.
    fn key_columns(&self) -> usize {
        let Path::Index { equal, any_of, low, high, .. } = &self.path else { return 0 };
        let bounds = low.iter().chain(high).map(|b| &b.value);
        equal.iter().chain(any_of).chain(bounds).map(Expr::columns_needed).max().unwrap_or(0)
    }
}

/// ORDER BY: an output column by name or number, or an expression bound by `bind`.
pub fn sort_keys(q: &Query, output: &Output, bind: impl Fn(&ast::Expr) -> Result<Expr>) -> Result<Vec<SortKey>> {
    let Some(order) = &q.order_by else { return Ok(Vec::new()) };
    let OrderByKind::Expressions(list) = &order.kind else { return Err(Error::unsupported("ORDER BY ALL")) };
    let mut keys = Vec::with_capacity(list.len());
    for item in list {
        let expr = match output_column(&item.expr, output)? {
            Some(i) => output.exprs[i].clone(),
            None => bind(&item.expr)?,
        };
        let descending = item.options.asc == Some(false);
        keys.push(SortKey { expr, descending, nulls_first: item.options.nulls_first.unwrap_or(descending) });
    }
    Ok(keys)
}

pub fn output_column(e: &ast::Expr, output: &Output) -> Result<Option<usize>> {
    match e {
        ast::Expr::Identifier(i) => {
            let name = names::ident(i);
            Ok(output.columns.iter().position(|c| c.name == name))
        }
        ast::Expr::Value(v) => match &v.value {
            ast::Value::Number(n, _) => match n.parse::<usize>() {
                Ok(n) if (1..=output.columns.len()).contains(&n) => Ok(Some(n - 1)),
                _ => Err(Error::new("42P10", format!("ORDER BY position {n} is not in select list"))),
            },
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

fn star(scope: &Scope, table: Option<&str>, output: &mut Output) -> Result<()> {
    if table.is_some_and(|t| !scope.has_table(t)) {
        let t = table.unwrap_or_default();
        return Err(Error::new("42P01", format!("missing FROM-clause entry for table \"{t}\"")));
    }
    if scope.columns.is_empty() && table.is_none() {
        return Err(Error::new("42601", "SELECT * with no tables specified is not valid"));
    }
    for c in scope.columns.iter().filter(|c| !c.hidden && table.is_none_or(|t| t == c.table)) {
        let value = Typed { expr: Expr::Column(c.slot), ty: c.ty, typmod: c.typmod };
        output.push(c.name.clone(), value, Some((c.table_oid, c.attnum)));
    }
    Ok(())
}

fn origin(scope: &Scope, e: &Expr) -> Option<(u32, i16)> {
    let Expr::Column(slot) = e else { return None };
    scope.columns.iter().find(|c| c.slot == *slot).map(|c| (c.table_oid, c.attnum))
}

/// The name PostgreSQL gives an output column that has none.
pub fn column_name(e: &ast::Expr) -> String {
    match e {
        ast::Expr::Identifier(i) => names::ident(i),
        ast::Expr::CompoundIdentifier(path) => path.last().map_or(String::new(), names::ident),
        ast::Expr::Function(f) => names::Qualified::new(&f.name).map_or("?column?".to_string(), |q| q.name),
        ast::Expr::Nested(e) => column_name(e),
        ast::Expr::Cast { expr, data_type, .. } => match column_name(expr).as_str() {
            "?column?" => crate::bind::parts::data_type(data_type).map_or("?column?".to_string(), |(t, _)| short_type_name(t).to_string()),
            name => name.to_string(),
        },
        ast::Expr::Case { else_result, .. } => match else_result.as_deref().map(column_name) {
            Some(name) if name != "?column?" => name,
            _ => "case".to_string(),
        },
        ast::Expr::Value(v) if matches!(v.value, ast::Value::Boolean(_)) => "bool".to_string(),
        ast::Expr::Substring { .. } => "substring".to_string(),
        ast::Expr::Trim { trim_where: Some(ast::TrimWhereField::Leading), .. } => "ltrim".to_string(),
        ast::Expr::Trim { trim_where: Some(ast::TrimWhereField::Trailing), .. } => "rtrim".to_string(),
        ast::Expr::Trim { .. } => "btrim".to_string(),
        ast::Expr::Position { .. } => "position".to_string(),
        ast::Expr::Ceil { .. } => "ceil".to_string(),
        ast::Expr::Floor { .. } => "floor".to_string(),
        ast::Expr::Exists { .. } => "exists".to_string(),
        ast::Expr::TypedString(t) => {
            crate::bind::parts::data_type(&t.data_type).map_or("?column?".to_string(), |(t, _)| short_type_name(t).to_string())
        }
        _ => "?column?".to_string(),
    }
}

/// The internal type name, which names columns made by casts.
fn short_type_name(ty: SqlType) -> &'static str {
    match ty {
        SqlType::Bool => "bool",
        SqlType::Int2 => "int2",
        SqlType::Int4 => "int4",
        SqlType::Int8 => "int8",
        SqlType::Float4 => "float4",
        SqlType::Float8 => "float8",
        SqlType::Varchar => "varchar",
        SqlType::Char => "bpchar",
        SqlType::Timestamp => "timestamp",
        SqlType::TimestampTz => "timestamptz",
        other => other.name(),
    }
}

fn lock_clause(q: &Query, aggregated: bool, items: usize) -> Result<Option<LockRows>> {
    let Some(lock) = q.locks.first() else { return Ok(None) };
    if q.locks.len() > 1 || items != 1 {
        return Err(Error::unsupported("FOR UPDATE of more than one table"));
    }
    if aggregated {
        let kind = if matches!(lock.lock_type, LockType::Update) { "UPDATE" } else { "SHARE" };
        return Err(Error::new("0A000", format!("FOR {kind} is not allowed with aggregate functions")));
    }
    // Row locks have one mode: FOR SHARE locks as FOR UPDATE does, which is stronger, never weaker.
    Ok(Some(match lock.nonblock {
        None => LockRows::Wait,
        Some(NonBlock::Nowait) => LockRows::NoWait,
        Some(NonBlock::SkipLocked) => LockRows::SkipLocked,
    }))
}

fn refuse_unknown_clauses(s: &Select) -> Result<()> {
    let plain_group = matches!(&s.group_by, GroupByExpr::Expressions(_, modifiers) if modifiers.is_empty());
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
    if known { Ok(()) } else { Err(Error::unsupported("this form of SELECT in a direct plan")) }
}
