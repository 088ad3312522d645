//! Rewriting of whole queries, mostly for the catalogs: LATERAL without FROM, catalogs that are always empty, scalar
//! subqueries over catalogs that depend on the query around them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArguments, GroupByExpr, Join, JoinConstraint, JoinOperator, Query, Select,
    SelectItem, SetExpr, TableFactor, TableWithJoins,
};

use super::build::{call, cast, null, string};
use super::functions::{SERIES_BOUND, SINGLE_VALUE};
use super::gate;
use super::rewrite::strip_schema;
use crate::bind::names;
use crate::plan::finds_call;
use crate::views::{self, VirtualTable};

/// Rewrites one query; those inside it get their turn.
pub fn simplify(query: &mut Query) {
    if let SetExpr::Select(select) = &mut *query.body {
        inline_lateral(select, query.order_by.as_mut());
    }
    if simplify_body(&mut query.body) {
        query.order_by = None;
    }
}

/// Whether the body is one SELECT that gives no rows.
fn simplify_body(body: &mut SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => {
            if has_no_rows(select) {
                return empty(select);
            }
            join_subqueries(select);
            false
        }
        SetExpr::SetOperation { left, right, .. } => {
            simplify_body(left);
            simplify_body(right);
            false
        }
        _ => false,
    }
}

/// The virtual table that a FROM item names.
fn view_of(factor: &TableFactor) -> Option<&'static VirtualTable> {
    let TableFactor::Table {
        name, args: None, ..
    } = factor
    else {
        return None;
    };
    let name = names::Qualified::new(name).ok()?;
    views::find(name.schema.as_deref(), &name.name)
}

fn is_empty_catalog(factor: &TableFactor) -> bool {
    view_of(factor).is_some_and(views::is_always_empty)
}

fn is_inner(join: &Join) -> bool {
    matches!(
        join.join_operator,
        JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
    )
}

/// Whether an always empty catalog is joined so that nothing can come out; and nothing is aggregated, which gives a row
/// even of nothing.
fn has_no_rows(select: &Select) -> bool {
    let empty = |t: &TableWithJoins| {
        is_empty_catalog(&t.relation)
            || t.joins
                .iter()
                .any(|j| is_inner(j) && is_empty_catalog(&j.relation))
    };
    let plain_group =
        matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    select.from.iter().any(empty)
        && plain_group
        && select.having.is_none()
        && !select.projection.iter().any(aggregates)
}

/// Whether an item aggregates the rows of its own query; what the subqueries in it do is their affair.
fn aggregates(item: &SelectItem) -> bool {
    let (SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) = item else {
        return false;
    };
    finds_call(e, &|f| f.over.is_none() && is_aggregate(f))
}

fn is_aggregate(f: &ast::Function) -> bool {
    names::Qualified::new(&f.name).is_ok_and(|n| {
        crate::bind::is_aggregate(&n.name)
            || gate::AGGREGATES.contains(&n.name.as_str())
            || gate::FLOAT_AGGREGATES.contains(&n.name.as_str())
            || n.name == SINGLE_VALUE
    })
}

/// Makes a scalar subquery fail if it gives several rows, which DataFusion would not notice, and one that depends on the
/// query around it an aggregate, which is what DataFusion can take apart.
pub fn single_valued(q: &mut Query) {
    let SetExpr::Select(select) = &mut *q.body else {
        return wrap_single(q);
    };
    let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
        || select.having.is_some();
    if !grouped && q.limit_clause.is_none() && select.projection.iter().any(aggregates) {
        // An aggregate without groups is one row.
        return;
    }
    if !grouped && select.from.is_empty() && select.selection.is_none() {
        return;
    }
    if grouped || q.limit_clause.is_some() || q.with.is_some() || select.distinct.is_some() {
        return wrap_single(q);
    }
    if let [SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }] =
        select.projection.as_mut_slice()
    {
        if contains_window(e) {
            return wrap_single(q);
        }
        *e = call(SINGLE_VALUE, vec![std::mem::replace(e, null())]);
        q.order_by = None;
    }
}

fn contains_window(e: &Expr) -> bool {
    finds_call(e, &|f| f.over.is_some())
}

/// The one value of a query of any kind, as an aggregate over it. One that cannot give several rows stays as it is.
fn wrap_single(q: &mut Query) {
    if let Some(ast::LimitClause::LimitOffset {
        limit: Some(Expr::Value(v)),
        ..
    }) = &q.limit_clause
        && matches!(&v.value, ast::Value::Number(n, _) if n == "0" || n == "1")
    {
        return;
    }
    let column = ast::Ident::with_quote('"', "single value");
    let item = call(SINGLE_VALUE, vec![Expr::Identifier(column.clone())]);
    let alias = ast::TableAlias {
        explicit: true,
        name: ast::Ident::with_quote('"', "single row"),
        columns: vec![ast::TableAliasColumnDef {
            name: column,
            data_type: None,
        }],
        at: None,
    };
    let relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(q.clone()),
        alias: Some(alias),
        sample: None,
    };
    if let Some(outer) = select_from(SelectItem::UnnamedExpr(item), relation) {
        *q = outer;
    }
}

/// `SELECT 1` over a query, which gets a name, as its columns do.
pub fn select_over(query: Query, name: &str, columns: Vec<ast::Ident>) -> Option<Query> {
    let columns = columns.into_iter().map(|name| ast::TableAliasColumnDef {
        name,
        data_type: None,
    });
    let relation = TableFactor::Derived {
        lateral: false,
        subquery: Box::new(query),
        alias: Some(ast::TableAlias {
            explicit: true,
            name: ast::Ident::with_quote('"', name),
            columns: columns.collect(),
            at: None,
        }),
        sample: None,
    };
    let one = Expr::Value(ast::Value::Number("1".to_string(), false).into());
    select_from(SelectItem::UnnamedExpr(one), relation)
}

/// A query of one item over one relation. It is parsed, because a whole SELECT has dozens of parts to be left out.
fn select_from(item: SelectItem, relation: TableFactor) -> Option<Query> {
    let Ok(crate::parse::Command::Sql(shape)) = crate::parse::statement("select 1 from x") else {
        return None;
    };
    let ast::Statement::Query(mut outer) = *shape else {
        return None;
    };
    if let SetExpr::Select(select) = &mut *outer.body {
        select.projection = vec![item];
        select.from.first_mut()?.relation = relation;
    }
    Some(*outer)
}

/// Functions in FROM that DataFusion plans as tables.
const TABLE_FUNCTIONS: &[&str] = &["generate_series", "range", "unnest"];

/// A function in FROM that gives one value becomes the query of this value; one that gives the rows of a catalog becomes the catalog.
pub fn function_in_from(factor: &mut TableFactor) {
    let (name, args, alias) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(args),
            with_ordinality: false,
            ..
        } => (name, &args.args, alias),
        TableFactor::Function {
            lateral: false,
            name,
            args,
            with_ordinality: false,
            alias,
        } => (name, &*args, alias),
        _ => return,
    };
    let Ok(function) = names::Qualified::new(name) else {
        return;
    };
    if TABLE_FUNCTIONS.contains(&function.name.as_str()) {
        return;
    }
    let quoted = |name: &str| ast::Ident::with_quote('"', name);
    let shown = alias.take().unwrap_or_else(|| ast::TableAlias {
        explicit: true,
        name: quoted(&function.name),
        columns: Vec::new(),
        at: None,
    });
    if crate::views::find(Some(crate::views::FUNCTIONS), &function.name).is_some()
        && args.is_empty()
    {
        let path = [crate::views::FUNCTIONS, &function.name].map(quoted);
        if let Some(mut table) = table_named(ast::ObjectName::from(path.to_vec())) {
            if let TableFactor::Table { alias, .. } = &mut table {
                *alias = Some(shown);
            }
            *factor = table;
        }
        return;
    }
    let item = SelectItem::ExprWithAlias {
        expr: call_of(name, args),
        alias: quoted(&names::ident(&shown.name)),
    };
    if let Some(query) = select_alone(item) {
        *factor = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(query),
            alias: Some(shown),
            sample: None,
        };
    }
}

/// A call with the arguments of a function in FROM.
pub fn call_of(name: &ast::ObjectName, args: &[ast::FunctionArg]) -> Expr {
    let mut e = call("", Vec::new());
    if let Expr::Function(f) = &mut e {
        f.name = name.clone();
        if let ast::FunctionArguments::List(list) = &mut f.args {
            list.args = args.to_vec();
        }
    }
    e
}

fn table_named(name: ast::ObjectName) -> Option<TableFactor> {
    let query = select_from(
        SelectItem::Wildcard(Default::default()),
        TableFactor::Table {
            name,
            alias: None,
            args: None,
            with_hints: Vec::new(),
            version: None,
            with_ordinality: false,
            partitions: Vec::new(),
            json_path: None,
            sample: None,
            index_hints: Vec::new(),
        },
    )?;
    match *query.body {
        SetExpr::Select(mut select) => Some(select.from.pop()?.relation),
        _ => None,
    }
}

/// `select item`
fn select_alone(item: SelectItem) -> Option<Query> {
    let Ok(crate::parse::Command::Sql(shape)) = crate::parse::statement("select 1") else {
        return None;
    };
    let ast::Statement::Query(mut outer) = *shape else {
        return None;
    };
    if let SetExpr::Select(select) = &mut *outer.body {
        select.projection = vec![item];
    }
    Some(*outer)
}

/// The name of a series inside what [`integer_series`] makes of it.
const SERIES: &str = "series of bigint";

/// `generate_series` of integers, which DataFusion has for bigint: its arguments become such, and if they are all
/// integer literals its values become integers again.
pub fn integer_series(factor: &mut TableFactor) {
    let (name, args, alias) = match factor {
        TableFactor::Table {
            name,
            alias,
            args: Some(args),
            ..
        } => (name, &mut args.args, alias),
        TableFactor::Function {
            name, alias, args, ..
        } => (name, args, alias),
        _ => return,
    };
    let known = names::Qualified::new(name).is_ok_and(|n| n.name == "generate_series");
    let inside = alias.as_ref().is_some_and(|a| a.name.value == SERIES);
    if !known || inside {
        return;
    }
    let mut narrow = true;
    for arg in args.iter_mut() {
        if let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) = arg {
            narrow &= e.to_string().parse::<i32>().is_ok();
            *e = call(SERIES_BOUND, vec![std::mem::replace(e, null())]);
        }
    }
    if !narrow {
        return;
    }
    let column = |name: &str| ast::TableAliasColumnDef {
        name: ast::Ident::with_quote('"', name),
        data_type: None,
    };
    let outside = alias.take();
    let shown = outside
        .as_ref()
        .map_or("generate_series".to_string(), |a| names::ident(&a.name));
    *alias = Some(ast::TableAlias {
        explicit: true,
        name: ast::Ident::with_quote('"', SERIES),
        columns: vec![column("value")],
        at: None,
    });
    let mut outside = outside.unwrap_or_else(|| ast::TableAlias {
        explicit: true,
        name: ast::Ident::with_quote('"', &shown),
        columns: Vec::new(),
        at: None,
    });
    if outside.columns.is_empty() {
        outside.columns.push(column(&shown));
    }
    let value = Expr::Identifier(ast::Ident::with_quote('"', "value"));
    let item = SelectItem::UnnamedExpr(cast(value, ast::DataType::Int(None)));
    if let Some(query) = select_from(item, factor.clone()) {
        *factor = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(query),
            alias: Some(outside),
            sample: None,
        };
    }
}

/// EXISTS where no semijoin can be made of it, in a select list: whether the count of its rows is positive.
pub fn counted_exists(q: &Query, negated: bool) -> Option<Expr> {
    let SetExpr::Select(select) = &*q.body else {
        return None;
    };
    let plain_group =
        matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    if !plain_group
        || select.having.is_some()
        || q.limit_clause.is_some()
        || select.projection.iter().any(aggregates)
    {
        return None;
    }
    let mut counted = q.clone();
    if let SetExpr::Select(select) = &mut *counted.body {
        let count = call(
            "count",
            vec![Expr::Value(
                ast::Value::Number("1".to_string(), false).into(),
            )],
        );
        select.projection = vec![SelectItem::UnnamedExpr(count)];
        select.distinct = None;
        counted.order_by = None;
    }
    let zero = || Expr::Value(ast::Value::Number("0".to_string(), false).into());
    Some(Expr::BinaryOp {
        left: Box::new(call(
            "coalesce",
            vec![Expr::Subquery(Box::new(counted)), zero()],
        )),
        op: if negated {
            ast::BinaryOperator::Eq
        } else {
            ast::BinaryOperator::Gt
        },
        right: Box::new(zero()),
    })
}

/// Makes the SELECT one of the same columns without rows; false if it cannot be told what its columns are.
fn empty(select: &mut Select) -> bool {
    let items = select.projection.iter().map(|item| {
        let name = match item {
            SelectItem::UnnamedExpr(e) => crate::plan::column_name(e),
            SelectItem::ExprWithAlias { alias, .. } => names::ident(alias),
            _ => return None,
        };
        Some(SelectItem::ExprWithAlias {
            expr: cast(null(), ast::DataType::Text),
            alias: ast::Ident::with_quote('"', name),
        })
    });
    let Some(items) = items.collect::<Option<Vec<_>>>() else {
        return false;
    };
    select.projection = items;
    select.from.clear();
    select.distinct = None;
    select.selection = Some(Expr::Value(ast::Value::Boolean(false).into()));
    true
}

/// `CROSS JOIN LATERAL (SELECT e) AS o(n)` is a name for an expression: it is put where the name is used.
fn inline_lateral(select: &mut Select, order: Option<&mut ast::OrderBy>) {
    let mut named: Vec<(String, String, Expr)> = Vec::new();
    for t in &mut select.from {
        t.joins.retain(|j| match lateral_expressions(&j.relation) {
            Some(mut list) if is_inner(j) => {
                named.append(&mut list);
                false
            }
            _ => true,
        });
    }
    if named.is_empty() {
        return;
    }
    let mut replace = |e: &mut Expr| {
        if let Expr::CompoundIdentifier(path) = e
            && let [table, column] = path.as_slice()
            && let Some((_, _, with)) = named
                .iter()
                .find(|(t, c, _)| *t == names::ident(table) && *c == names::ident(column))
        {
            *e = Expr::Nested(Box::new(with.clone()));
        }
        ControlFlow::<()>::Continue(())
    };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(e) = item
            && let Expr::CompoundIdentifier(path) = e
            && let Some(last) = path.last().cloned()
        {
            *item = SelectItem::ExprWithAlias {
                expr: e.clone(),
                alias: last,
            };
        }
    }
    let _ = ast::visit_expressions_mut(select, &mut replace);
    if let Some(order) = order {
        let _ = ast::visit_expressions_mut(order, &mut replace);
    }
}

/// Table, column and expression of each column of a lateral subquery that reads nothing.
fn lateral_expressions(factor: &TableFactor) -> Option<Vec<(String, String, Expr)>> {
    let TableFactor::Derived {
        lateral: true,
        subquery,
        alias: Some(alias),
        ..
    } = factor
    else {
        return None;
    };
    let SetExpr::Select(select) = &*subquery.body else {
        return None;
    };
    if !select.from.is_empty() || select.selection.is_some() || subquery.limit_clause.is_some() {
        return None;
    }
    let table = names::ident(&alias.name);
    let mut list = Vec::new();
    for (at, item) in select.projection.iter().enumerate() {
        let (e, own) = match item {
            SelectItem::UnnamedExpr(e) => (e, crate::plan::column_name(e)),
            SelectItem::ExprWithAlias { expr, alias } => (expr, names::ident(alias)),
            _ => return None,
        };
        let column = alias.columns.get(at).map_or(own, |c| names::ident(&c.name));
        list.push((table.clone(), column, e.clone()));
    }
    Some(list)
}

/// A scalar subquery over catalogs, in the select list of a query that is not grouped, becomes an outer join: the
/// conditions by which psql's depend on the query around them are more than DataFusion can take apart. Such subqueries
/// look up by key, so the join adds no rows.
fn join_subqueries(select: &mut Select) {
    let plain_group =
        matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    if !plain_group
        || !select.from.iter().all(|t| view_of(&t.relation).is_some())
        || select.projection.iter().any(aggregates)
    {
        return;
    }
    let mut taken = aliases(&select.from);
    let mut joins = Vec::new();
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) = item else {
            continue;
        };
        let Expr::Subquery(q) = e else { continue };
        let Some((value, join)) = as_join(q, &mut taken) else {
            continue;
        };
        *e = value;
        joins.push(join);
    }
    if let Some(last) = select.from.last_mut() {
        last.joins.append(&mut joins);
    }
}

fn aliases(from: &[TableWithJoins]) -> Vec<String> {
    let name = |f: &TableFactor| match f {
        TableFactor::Table { alias: Some(a), .. } | TableFactor::Derived { alias: Some(a), .. } => {
            Some(names::ident(&a.name))
        }
        TableFactor::Table { name, .. } => names::Qualified::new(name).ok().map(|n| n.name),
        _ => None,
    };
    from.iter()
        .flat_map(|t| {
            std::iter::once(name(&t.relation)).chain(t.joins.iter().map(|j| name(&j.relation)))
        })
        .flatten()
        .collect()
}

fn as_join(q: &Query, taken: &mut Vec<String>) -> Option<(Expr, Join)> {
    let SetExpr::Select(s) = &*q.body else {
        return None;
    };
    let plain = q.limit_clause.is_none()
        && q.order_by.is_none()
        && q.with.is_none()
        && s.distinct.is_none()
        && s.having.is_none();
    let catalogs = s
        .from
        .iter()
        .all(|t| t.joins.is_empty() && view_of(&t.relation).is_some());
    let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        s.projection.as_slice()
    else {
        return None;
    };
    let own = aliases(&s.from);
    if !plain
        || !catalogs
        || s.from.is_empty()
        || aggregates(&s.projection[0])
        || own.iter().any(|a| taken.contains(a))
    {
        return None;
    }
    let condition = s.selection.clone()?;
    taken.extend(own);
    let mut inner = s.from.iter().map(|t| t.relation.clone());
    let first = inner.next()?;
    let cross = |relation| Join {
        relation,
        global: false,
        join_operator: JoinOperator::CrossJoin(JoinConstraint::None),
    };
    let rest: Vec<Join> = inner.map(cross).collect();
    let relation = match rest.is_empty() {
        true => first,
        false => TableFactor::NestedJoin {
            table_with_joins: Box::new(TableWithJoins {
                relation: first,
                joins: rest,
            }),
            alias: None,
        },
    };
    Some((
        value.clone(),
        Join {
            relation,
            global: false,
            join_operator: JoinOperator::LeftOuter(JoinConstraint::On(condition)),
        },
    ))
}

/// ARRAY(SELECT ..) in text form. Of a query that gives no rows it is `{}`; the options of a TOAST table are such, as no
/// table has one.
pub fn array_of(q: &Query) -> Expr {
    let SetExpr::Select(select) = &*q.body else {
        return null();
    };
    let of_options = select.from.iter().any(|t| match &t.relation {
        TableFactor::Table {
            name,
            args: Some(_),
            ..
        }
        | TableFactor::Function { name, .. } => {
            let mut name = name.clone();
            strip_schema(&mut name);
            name.to_string() == "unnest"
        }
        _ => false,
    });
    let no_rows = matches!(&select.selection, Some(Expr::Value(v)) if v.value == ast::Value::Boolean(false))
        && select.from.is_empty();
    if of_options || no_rows {
        return string("{}");
    }
    let mut inner = q.clone();
    if let SetExpr::Select(s) = &mut *inner.body
        && let [SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }] =
            s.projection.as_mut_slice()
    {
        let text = cast(e.clone(), ast::DataType::Text);
        *e = call(
            "concat",
            vec![
                string("{"),
                call("string_agg", vec![text, string(",")]),
                string("}"),
            ],
        );
        inner.order_by = None;
    }
    call(
        "coalesce",
        vec![Expr::Subquery(Box::new(inner)), string("{}")],
    )
}

/// Whether an operand of `||` is an array, in whatever form.
pub fn is_array(e: &Expr) -> bool {
    match e {
        Expr::Function(f) => matches!(f.args, FunctionArguments::Subquery(_)),
        Expr::Array(_) => true,
        _ => false,
    }
}
