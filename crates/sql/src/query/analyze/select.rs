//! SELECT, and what stands around every level: ORDER BY, LIMIT, row locks.

use std::cell::RefCell;

use sqlparser::ast::{
    self, Distinct, LimitClause, OrderByKind, Query, SelectItemQualifiedWildcardKind, SetExpr,
};

use sqlparser::tokenizer::Span;

use super::Analyzer;
use super::expression::Clause;
use super::group::{Groups, Keys};
use super::rownum;
use super::scope::Scope;
use super::tree::{Body, DistinctRows, From, Level, Output, Relation, RelationKind, Select};
use super::with::Known;
use crate::bind::{self, Typed, collation, names};
use crate::collate::Collation;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::parse::stars;
use crate::plan::lockable::check_lockable;
use crate::plan::path::conjuncts;
use crate::plan::returning::is_over_written;
use crate::plan::supply;
use crate::plan::{SortKey, column_name, position, within_parentheses};
use crate::types::SqlType;

impl Analyzer<'_> {
    /// A query with everything that belongs to it.
    pub fn query(&self, q: &Query, scope: &Scope<'_>, known: &Known<'_>) -> Result<Level> {
        check_lockable(q)?;
        refuse_foreign(q)?;
        let mut with = Known::inside(known);
        let shared = self.with_clause(q, &mut with, scope)?;
        let mut level = match &*q.body {
            SetExpr::Select(s) => self.select(s, q, scope, &with)?,
            body => {
                match body {
                    SetExpr::Values(_) if !q.locks.is_empty() => {
                        return Err(Error::unsupported("row locks of VALUES"));
                    }
                    _ => super::set::no_locks(&q.locks)?,
                }
                let mut level = self.operand(body, scope, &with)?;
                self.order_by_output(q, &mut level)?;
                level
            }
        };
        level.shared.extend(shared);
        if !has_no_limit(q) {
            self.limits(q, scope, &with, &mut level)?;
        }
        Ok(level)
    }

    /// ORDER BY of what is no SELECT: by columns of the result.
    fn order_by_output(&self, q: &Query, level: &mut Level) -> Result<()> {
        for item in order_items(q)? {
            let name = match within_parentheses(&item.expr) {
                ast::Expr::Identifier(i) => {
                    let name = names::ident(i);
                    level.outputs.iter().position(|o| o.name == name)
                }
                e => position(e, level.outputs.len(), "ORDER BY")?,
            };
            let Some(at) = name else {
                return Err(match &item.expr {
                    ast::Expr::Identifier(i) => Error::new(
                        "42703",
                        format!("column \"{}\" does not exist", names::ident(i)),
                    ),
                    _ => Error::new("0A000", "invalid UNION/INTERSECT/EXCEPT ORDER BY clause")
                        .hint("Add the expression/function to every SELECT, or move the UNION into a FROM clause."),
                });
            };
            let descending = item.options.asc == Some(false);
            level.order.push(SortKey {
                expr: level.outputs[at].value.expr.clone(),
                descending,
                nulls_first: item.options.nulls_first.unwrap_or(descending),
                by: by_of(&level.outputs[at].value)?,
            });
        }
        Ok(())
    }

    fn limits(
        &self,
        q: &Query,
        scope: &Scope<'_>,
        known: &Known<'_>,
        level: &mut Level,
    ) -> Result<()> {
        let outside = Scope::new(Some(scope), &scope.file);
        let bind = |e: &ast::Expr, name: &'static str| {
            let clause = Clause::new(self, &outside, known, name);
            let binder = clause.binder();
            let value = binder.coerce(binder.expr(e)?, SqlType::Int8, -1, CastContext::Assignment);
            let value = value.map_err(|e| match e.sqlstate() {
                "42846" => Error::new("42804", format!("argument of {name} must be type bigint")),
                _ => e,
            })?;
            let own = super::group::own_registers(scope);
            let mut variables = false;
            value
                .expr
                .visit(&mut |e| variables |= matches!(e, Expr::Column(r) if own.contains(r)));
            match variables {
                true => Err(Error::new(
                    "42P10",
                    format!("argument of {name} must not contain variables"),
                )),
                false => Ok(value.expr),
            }
        };
        match &q.limit_clause {
            None => {}
            Some(LimitClause::LimitOffset {
                limit,
                offset,
                limit_by,
            }) if limit_by.is_empty() => {
                level.limit = limit.as_ref().map(|e| bind(e, "LIMIT")).transpose()?;
                let offset = offset.as_ref().map(|o| bind(&o.value, "OFFSET"));
                level.offset = offset.transpose()?;
            }
            Some(other) => return Err(Error::unsupported(format!("{other}"))),
        }
        if let Some(fetch) = &q.fetch {
            if fetch.percent {
                return Err(Error::unsupported("FETCH .. PERCENT"));
            }
            if level.limit.is_some() {
                return Err(Error::new("42601", "multiple LIMIT clauses not allowed"));
            }
            level.limit = Some(match &fetch.quantity {
                Some(e) => bind(e, "LIMIT")?,
                None => Expr::Const(block::value::Datum::Int8(1)),
            });
            level.with_ties = fetch.with_ties;
            let is_null = |e: &ast::Expr| match within_parentheses(e) {
                ast::Expr::Value(v) => v.value == ast::Value::Null,
                _ => false,
            };
            if fetch.with_ties && fetch.quantity.as_ref().is_some_and(is_null) {
                let message = "row count cannot be null in FETCH FIRST ... WITH TIES clause";
                return Err(Error::new("2201W", message));
            }
            if fetch.with_ties && level.order.is_empty() {
                return Err(Error::new(
                    "42601",
                    "WITH TIES cannot be specified without ORDER BY clause",
                ));
            }
        }
        Ok(())
    }

    fn select(
        &self,
        s: &ast::Select,
        q: &Query,
        outer: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Level> {
        refuse_foreign_clauses(s)?;
        let scope = Scope {
            apart: super::keys::has_sets(&s.group_by),
            ..Scope::new(Some(outer), &outer.file)
        };
        self.select_in(s, q, scope, known)
    }

    fn select_in(
        &self,
        s: &ast::Select,
        q: &Query,
        mut scope: Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Level> {
        let from = self.relations(&s.from, &mut scope, known)?;
        let scope = &scope;
        let mut select = Select {
            from,
            ..Select::default()
        };
        let taken = match &s.selection {
            Some(e) => self.rownum_of(e, scope)?,
            None => None,
        };
        let selection = taken
            .as_ref()
            .map_or(s.selection.as_ref(), |t| t.rest.as_ref());
        if let Some(e) = selection {
            let clause = Clause::new(self, scope, known, "WHERE");
            select.conditions = conjuncts(Some(clause.binder().condition(e)?));
        }
        let (groups, series) = (Groups::default(), RefCell::new(Vec::new()));
        let clause = |name| Clause::new(self, scope, known, name).grouped(&groups);
        clause("WINDOW").define_windows(&s.named_window)?;
        let mut outputs = Vec::new();
        let targets = match is_over_written(s) {
            true => Clause::new(self, scope, known, "RETURNING"),
            false => clause("SELECT").with_series(&series),
        };
        for item in &s.projection {
            self.target(item, &targets, &mut outputs)?;
        }
        let mut keys = self.keys(&s.group_by, scope, known, &groups, &outputs)?;
        let mut having = s
            .having
            .as_ref()
            .map(|e| clause("HAVING").binder().condition(e))
            .transpose()?;
        let by = clause("ORDER BY").with_series(&series);
        let mut order = self.order(q, &by, &outputs)?;
        let mut on = match &s.distinct {
            Some(Distinct::On(list)) => self.distinct_on(list, &by, &outputs)?,
            _ => Vec::new(),
        };
        if !groups.aggregates.borrow().is_empty() && select.from.iter().any(is_own_recursion) {
            return Err(Error::new(
                "42P19",
                "aggregate functions are not allowed in a recursive query's recursive term",
            ));
        }
        let mut windows = groups.windows.take();
        let mut made: Vec<super::tree::Series> = series.take();
        self.keyed_series(&keys, &mut made, &mut select.from)?;
        let grouped =
            !keys.is_empty() || having.is_some() || !groups.aggregates.borrow().is_empty();
        if grouped {
            let results = outputs.iter_mut().map(|o| &mut o.value.expr);
            let others = having
                .iter_mut()
                .chain(order.iter_mut().map(|(k, _)| &mut k.expr))
                .chain(on.iter_mut().map(|(e, _)| e))
                .chain(windows.iter_mut().flat_map(window_exprs))
                .chain(made.iter_mut().flat_map(series_exprs));
            let keys = std::mem::take(&mut keys);
            let group = keys.over_groups(&groups, scope, results, others);
            let group = group.map_err(|e| e.in_select(s, q.order_by.as_ref()))?;
            select.group = Some(group);
        } else if !groups.grouping.borrow().is_empty() {
            return Err(Error::new(
                "42803",
                "arguments to GROUPING must be grouping expressions of the associated query level",
            ));
        }
        let is_plain = rownum::is_plain(s, q) && select.group.is_none() && windows.is_empty();
        let limit = match &taken {
            Some(taken) => {
                let outside = Scope::new(scope.parent, &scope.file);
                let clause = Clause::new(self, &outside, known, "WHERE");
                self.rownum_limit(taken, &clause, is_plain && made.is_empty())?
            }
            None => None,
        };
        // What names a result is that result, also where another is the same expression.
        let named = |e: Expr, at: Option<usize>| at.map_or(e, |at| outputs[at].value.expr.clone());
        let on = on.into_iter().map(|(e, at)| named(e, at)).collect();
        let mut order: Vec<SortKey> = order
            .into_iter()
            .map(|(key, at)| SortKey {
                expr: named(key.expr, at),
                ..key
            })
            .collect();
        select.having = having;
        select.windows = windows;
        select.series = made;
        self.compute(&mut select, scope, &mut outputs, &mut order, s, on)?;
        let locks = self.row_locks(q, &mut select.from, scope)?;
        Ok(Level {
            body: Body::Select(Box::new(select)),
            outputs,
            order,
            limit,
            offset: None,
            with_ties: false,
            locks,
            shared: Vec::new(),
        })
    }

    /// A function of the select list that gives several rows and is a key of groups gives them
    /// before there are groups: as one in FROM, behind all that it may name.
    fn keyed_series(
        &self,
        keys: &Keys,
        made: &mut Vec<super::tree::Series>,
        from: &mut Vec<From>,
    ) -> Result<()> {
        let (keyed, rest): (Vec<_>, Vec<_>) = std::mem::take(made)
            .into_iter()
            .partition(|s| s.registers().any(|r| keys.uses(r)));
        *made = rest;
        if keyed.len() > 1 {
            let what = "several functions of several rows as keys of groups";
            return Err(Error::unsupported(what));
        }
        from.extend(keyed.into_iter().map(|series| {
            From::Relation(Relation {
                alias: String::new(),
                registers: series.registers().collect(),
                kind: RelationKind::Series(series),
            })
        }));
        Ok(())
    }

    /// What must have a register of its own: what is computed once and used twice, or compared by
    /// DISTINCT.
    fn compute(
        &self,
        select: &mut Select,
        scope: &Scope<'_>,
        outputs: &mut [Output],
        order: &mut [SortKey],
        s: &ast::Select,
        on: Vec<Expr>,
    ) -> Result<()> {
        let distinct = matches!(s.distinct, Some(Distinct::Distinct));
        let is_on = matches!(s.distinct, Some(Distinct::On(_)));
        for output in outputs.iter_mut() {
            let e = &output.value.expr;
            let used = order.iter().any(|k| k.expr == *e) || on.contains(e);
            if matches!(e, Expr::Column(_)) || !(distinct || used) {
                continue;
            }
            let register = scope.file.register();
            let place = Expr::Column(register);
            for key in order.iter_mut().filter(|k| k.expr == *e) {
                key.expr = place.clone();
            }
            let e = std::mem::replace(&mut output.value.expr, place);
            select.columns.push((register, e));
        }
        if distinct {
            for output in outputs.iter() {
                bind::check_comparable(output.value.ty, "equality")?;
            }
            let shown: Vec<Expr> = outputs.iter().map(|o| o.value.expr.clone()).collect();
            // Padding makes no difference.
            let keys = outputs.iter().map(|o| match o.value.ty {
                SqlType::Char => Expr::unpadded(o.value.expr.clone()),
                _ => o.value.expr.clone(),
            });
            let keys: Vec<Expr> = keys.collect();
            if !order.iter().all(|k| shown.contains(&k.expr)) {
                return Err(Error::new(
                    "42P10",
                    "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                ));
            }
            select.distinct = Some(DistinctRows { keys, on: false });
        }
        if is_on {
            // Keys that are results have become registers.
            let keys: Vec<Expr> = on
                .into_iter()
                .map(|e| {
                    let computed = select.columns.iter().find(|(_, known)| *known == e);
                    computed.map_or(e, |(r, _)| Expr::Column(*r))
                })
                .collect();
            let first = order.iter().take(keys.len());
            if !first.clone().all(|k| keys.contains(&k.expr)) {
                return Err(Error::new(
                    "42P10",
                    "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                ));
            }
            select.distinct = Some(DistinctRows { keys, on: true });
        }
        Ok(())
    }

    fn target(
        &self,
        item: &ast::SelectItem,
        clause: &Clause<'_>,
        outputs: &mut Vec<Output>,
    ) -> Result<()> {
        let binder = clause.binder();
        let mut push = |name: String, value: Typed| {
            let mut origin = (0, 0);
            if let Expr::Column(_) = value.expr {
                let column = clause.scope.columns.iter();
                let column = column.filter(|c| c.value.expr == value.expr);
                origin = column.map(|c| c.origin).next().unwrap_or_default();
            }
            outputs.push(Output {
                name,
                value,
                origin,
            });
        };
        match item {
            ast::SelectItem::UnnamedExpr(e) if let Some(row) = stars::row_of(e) => {
                let row = binder.expr(&row)?;
                for (at, field) in binder.fields_of(&row)?.into_iter().enumerate() {
                    push(bind::field_name(&row, at), field);
                }
            }
            ast::SelectItem::UnnamedExpr(e) => push(column_name(e), binder.expr(e)?),
            ast::SelectItem::ExprWithAlias { expr, alias } => {
                push(names::ident(alias), binder.expr(expr)?);
            }
            ast::SelectItem::Wildcard(options) if is_plain_star(options) => {
                if clause.scope.tables.is_empty() {
                    return Err(Error::new(
                        "42601",
                        "SELECT * with no tables specified is not valid",
                    ));
                }
                let shown = || clause.scope.columns.iter().filter(|c| !c.merged);
                self.note_star(options.wildcard_token.0.span, shown());
                for c in shown() {
                    self.note_used(c.origin);
                    push(c.name.clone(), c.value.clone());
                }
            }
            ast::SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                options,
            ) if is_plain_star(options) => {
                let table = names::Qualified::new(name)?.name;
                if table == supply::BESIDE {
                    let target = super::merge::target_in(clause.scope);
                    let own = |c: &&super::scope::Column| Some(&c.table) != target.as_ref();
                    for c in clause.scope.columns.iter().filter(own) {
                        self.beside.borrow_mut().push(super::Beside {
                            table: c.table.clone(),
                            name: c.name.clone(),
                            merged: c.merged,
                        });
                        push(c.name.clone(), c.value.clone());
                    }
                    return Ok(());
                }
                self.star_of(&table, (name, options), clause, &mut push)?;
            }
            other => return Err(Error::unsupported(format!("select item {other}"))),
        }
        Ok(())
    }

    /// The object id of the relation that a name with its schema means, if several of that name are
    /// in sight.
    fn one_of_several(
        &self,
        scope: &Scope<'_>,
        table: &str,
        name: &ast::ObjectName,
    ) -> Result<Option<u32>> {
        if scope.count(table) == 1 {
            return Ok(None);
        }
        let q = names::Qualified::new(name)?;
        if q.schema.is_none() {
            let message = format!("table reference \"{table}\" is ambiguous");
            return Err(Error::new("42P09", message).at_name(name));
        }
        let oid = self.dict.relation(&q).map(|r| r.lock_oid());
        let there = oid.filter(|oid| scope.bare.iter().any(|(t, o)| t == table && o == oid));
        there.map(Some).ok_or_else(|| names::in_no_schema(table))
    }

    /// `table.*`, of this level or of one around it.
    fn star_of(
        &self,
        table: &str,
        (name, options): (&ast::ObjectName, &ast::WildcardAdditionalOptions),
        clause: &Clause<'_>,
        push: &mut dyn FnMut(String, Typed),
    ) -> Result<()> {
        let mut at = Some(clause.scope);
        while let Some(scope) = at {
            if scope.has_table(table) {
                let of = self.one_of_several(scope, table, name)?;
                let shown = || {
                    let named = scope.columns.iter().filter(|c| c.table == table);
                    named.filter(|c| of.is_none_or(|oid| c.origin.0 == oid))
                };
                if let Some(ast::ObjectNamePart::Identifier(first)) = name.0.first() {
                    let end = options.wildcard_token.0.span.end;
                    self.note_star(Span::new(first.span.start, end), shown());
                }
                for c in shown() {
                    self.note_used(c.origin);
                    let mut value = c.value.clone();
                    value.expr = clause.scope.file.import(&scope.file, value.expr)?;
                    push(c.name.clone(), value);
                }
                return Ok(());
            }
            at = scope.parent;
        }
        // A variable of a body, or nothing.
        let binder = clause.binder();
        let row = binder.star_argument(name)?;
        for (at, field) in binder.fields_of(&row)?.into_iter().enumerate() {
            push(bind::field_name(&row, at), field);
        }
        Ok(())
    }

    /// The keys, each with the result that it is.
    fn order(
        &self,
        q: &Query,
        clause: &Clause<'_>,
        outputs: &[Output],
    ) -> Result<Vec<(SortKey, Option<usize>)>> {
        let mut keys = Vec::new();
        for item in order_items(q)? {
            let descending = item.options.asc == Some(false);
            let (value, at) = self.output_or(&item.expr, clause, outputs, "ORDER BY")?;
            let key = SortKey {
                by: by_of(&value)?,
                expr: value.expr,
                descending,
                nulls_first: item.options.nulls_first.unwrap_or(descending),
            };
            keys.push((key, at));
        }
        Ok(keys)
    }

    /// A result column by name or number, or an expression of the input; and which result it is.
    fn output_or(
        &self,
        e: &ast::Expr,
        clause: &Clause<'_>,
        outputs: &[Output],
        name: &str,
    ) -> Result<(Typed, Option<usize>)> {
        let at = match within_parentheses(e) {
            ast::Expr::Identifier(i) => {
                let wanted = names::ident(i);
                let mut named = outputs.iter().enumerate().filter(|(_, o)| o.name == wanted);
                match (named.next(), named.next()) {
                    (Some((_, a)), Some((_, b))) if a.value.expr != b.value.expr => {
                        return Err(Error::new(
                            "42702",
                            format!("{name} \"{wanted}\" is ambiguous"),
                        ));
                    }
                    (first, _) => first.map(|(at, _)| at),
                }
            }
            e => position(e, outputs.len(), name)?,
        };
        if let Some(at) = at {
            bind::check_comparable(outputs[at].value.ty, "ordering")?;
            return Ok((outputs[at].value.clone(), Some(at)));
        }
        let binder = clause.binder();
        let value = binder.settle(binder.expr(e)?)?;
        bind::check_comparable(value.ty, "ordering")?;
        let at = outputs.iter().position(|o| o.value.expr == value.expr);
        Ok((value, at))
    }

    fn distinct_on(
        &self,
        list: &[ast::Expr],
        clause: &Clause<'_>,
        outputs: &[Output],
    ) -> Result<Vec<(Expr, Option<usize>)>> {
        list.iter()
            .map(|e| {
                let (value, at) = self.output_or(e, clause, outputs, "DISTINCT ON")?;
                Ok((value.expr, at))
            })
            .collect()
    }
}

/// The collation by which a value is sorted, if that is not the order of its bytes.
fn by_of(value: &Typed) -> Result<Option<Collation>> {
    collation::of_sort(value.ty, value.collation)
}

/// Whether an item of FROM, not counting what subqueries have, is the recursive query that the
/// level is part of.
fn is_own_recursion(item: &super::tree::From) -> bool {
    use super::tree::{From, RelationKind::Shared};
    match item {
        From::Relation(relation) => {
            matches!(relation.kind, Shared { last_round, .. } if last_round)
        }
        From::Join { left, right, .. } => is_own_recursion(left) || is_own_recursion(right),
        From::Merged { .. } => false,
    }
}

fn window_exprs(w: &mut super::tree::Windows) -> impl Iterator<Item = &mut Expr> {
    let calls = w.calls.iter_mut();
    w.partition
        .iter_mut()
        .chain(w.order.iter_mut().map(|k| &mut k.expr))
        .chain(calls.flat_map(|c| c.args.iter_mut().chain(&mut c.filter)))
}

fn series_exprs(s: &mut super::tree::Series) -> impl Iterator<Item = &mut Expr> {
    s.args.iter_mut()
}

fn order_items(q: &Query) -> Result<&[ast::OrderByExpr]> {
    match &q.order_by {
        None => Ok(&[]),
        Some(order) if order.interpolate.is_some() => Err(Error::unsupported("INTERPOLATE")),
        Some(order) => match &order.kind {
            OrderByKind::Expressions(list) => Ok(list),
            OrderByKind::All(_) => Err(Error::unsupported("ORDER BY ALL")),
        },
    }
}

fn has_no_limit(q: &Query) -> bool {
    q.limit_clause.is_none() && q.fetch.is_none()
}

fn is_plain_star(options: &ast::WildcardAdditionalOptions) -> bool {
    options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_ilike.is_none()
}

/// Refuses clauses around a query that PostgreSQL does not have.
fn refuse_foreign(q: &Query) -> Result<()> {
    if q.for_clause.is_some()
        || q.settings.is_some()
        || q.format_clause.is_some()
        || !q.pipe_operators.is_empty()
    {
        return Err(Error::unsupported("this form of query"));
    }
    Ok(())
}

/// Refuses clauses of SELECT that PostgreSQL does not have, or that are not supported.
fn refuse_foreign_clauses(s: &ast::Select) -> Result<()> {
    if !s.connect_by.is_empty() {
        return Err(Error::unsupported("CONNECT BY").hint("Use WITH RECURSIVE."));
    }
    let foreign = !s.optimizer_hints.is_empty()
        || s.select_modifiers.is_some()
        || s.top.is_some()
        || s.exclude.is_some()
        || !s.lateral_views.is_empty()
        || s.prewhere.is_some()
        || !s.connect_by.is_empty()
        || !s.cluster_by.is_empty()
        || !s.distribute_by.is_empty()
        || !s.sort_by.is_empty()
        || s.qualify.is_some()
        || s.value_table_mode.is_some();
    if foreign {
        return Err(Error::unsupported("this form of SELECT"));
    }
    match &s.into {
        Some(_) => Err(Error::new("42601", "SELECT ... INTO is not allowed here")),
        None => Ok(()),
    }
}
