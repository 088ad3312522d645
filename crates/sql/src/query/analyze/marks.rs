//! SEARCH and CYCLE of a recursive query: it is rewritten to compute their columns, as PostgreSQL's
//! rewriteSearchCycle.c does.
//!
//! The part that does not recur gives the first value of each column. The one that does is a
//! subquery, which gives besides what it gives the columns of the row that it went on from. What a
//! row has seen is an array of records; a row whose record is in it already is a cycle.

use sqlparser::ast::{self, Ident, SelectItem, SetExpr, TableFactor, TableWithJoins};

use super::Analyzer;
use super::tree::Output;
use crate::bind::{self, Binder, ParamTypes, names};
use crate::error::{Error, Result};
use crate::parse::search::Marks;
use crate::parse::{self, Command};
use crate::types::SqlType;

/// Refuses marks of a query that does not recur.
pub(super) fn refuse(cte: &ast::Cte) -> Result<()> {
    match Marks::of(cte)? {
        None => Ok(()),
        Some(_) => {
            let place = crate::place::Place::of_span(cte.alias.name.span);
            Err(Error::new("42601", "WITH query is not recursive").placed(place))
        }
    }
}

/// Refuses sides of the UNION that are no SELECT.
pub(super) fn check_sides(left: &SetExpr, right: &SetExpr) -> Result<()> {
    let wrong = |state, side: &str| {
        let message =
            format!("with a SEARCH or CYCLE clause, the {side} side of the UNION must be a SELECT");
        Err(Error::new(state, message))
    };
    if is_operation(left) {
        return wrong("0A000", "left");
    }
    match is_operation(right) {
        true => wrong("42601", "right"),
        false => Ok(()),
    }
}

fn is_operation(side: &SetExpr) -> bool {
    match side {
        SetExpr::SetOperation { .. } => true,
        SetExpr::Query(q) => {
            let plain = q.with.is_none() && q.order_by.is_none();
            plain && q.limit_clause.is_none() && q.fetch.is_none() && is_operation(&q.body)
        }
        _ => false,
    }
}

/// How deep queries with such clauses may stand within each other: each is analysed twice, and what
/// is within it as often again.
const MAX_NESTED: usize = 5;

/// How many queries with such clauses stand within each other in a query.
fn nested(query: &ast::Query) -> usize {
    struct Depth {
        now: usize,
        most: usize,
    }
    impl ast::Visitor for Depth {
        type Break = ();

        fn pre_visit_query(&mut self, query: &ast::Query) -> std::ops::ControlFlow<()> {
            self.now += usize::from(has_marks(query));
            self.most = self.most.max(self.now);
            std::ops::ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, query: &ast::Query) -> std::ops::ControlFlow<()> {
            self.now -= usize::from(has_marks(query));
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut depth = Depth { now: 0, most: 0 };
    let _ = ast::Visit::visit(query, &mut depth);
    depth.most
}

fn has_marks(query: &ast::Query) -> bool {
    let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
    ctes.into_iter().any(|cte| cte.from.is_some())
}

impl Analyzer<'_> {
    /// Refuses SEARCH and CYCLE of a query that has them in it too deep.
    pub(super) fn check_marks_depth(&self, query: &ast::Query) -> Result<()> {
        match nested(query) < MAX_NESTED {
            true => Ok(()),
            false => Err(Error::new(
                "54001",
                format!("SEARCH and CYCLE within each other more than {MAX_NESTED} deep"),
            )),
        }
    }

    /// Does something with the tree of a part that is analysed again afterwards.
    pub(super) fn probed<T>(&self, probe: impl FnOnce() -> Result<T>) -> Result<T> {
        let subqueries = self.subqueries.borrow().len();
        let shared = self.shared.borrow().len();
        let found = probe();
        for made in self.subqueries.borrow_mut().iter_mut().skip(subqueries) {
            *made = None;
        }
        for made in self.shared.borrow_mut().iter_mut().skip(shared) {
            *made = None;
        }
        found
    }

    /// Does something of which a view's text has nothing.
    pub(super) fn unnoted<T>(&self, analyse: impl FnOnce() -> T) -> T {
        let notes = self.notes.take();
        let names = self.params.names.note_in(None);
        let found = analyse();
        self.params.names.note_in(names);
        self.notes.replace(notes);
        found
    }
}

/// The clauses of a query whose columns are known.
pub(super) struct Marked<'m> {
    marks: &'m Marks,
    /// The columns of the query without them.
    columns: Vec<String>,
}

impl<'m> Marked<'m> {
    pub(super) fn new(
        marks: &'m Marks,
        columns: &[Output],
        params: &ParamTypes,
    ) -> Result<Marked<'m>> {
        let columns: Vec<String> = columns.iter().map(|c| c.name.clone()).collect();
        check_values(marks, params)?;
        check_names(marks, &columns)?;
        Ok(Marked { marks, columns })
    }

    /// How many columns they add.
    pub(super) fn added(&self) -> usize {
        self.added_names().len()
    }

    fn added_names(&self) -> Vec<&str> {
        let search = self.marks.search.iter().map(|s| s.sequence.as_str());
        let cycle = self.marks.cycle.iter();
        let cycle = cycle.flat_map(|c| [c.mark.as_str(), c.path.as_str()]);
        search.chain(cycle).collect()
    }

    /// The part that does not recur.
    pub(super) fn first(&self, left: &SetExpr) -> Result<SetExpr> {
        let plain = |column: &str| names::quote(column);
        let mut items: Vec<String> = self.columns.iter().map(|c| plain(c)).collect();
        if let Some(search) = &self.marks.search {
            let row = joined(&search.columns, &plain);
            let first = match search.breadth {
                true => format!("ROW(0::int8, {row})"),
                false => format!("ARRAY[ROW({row})]"),
            };
            items.push(named(&first, &search.sequence));
        }
        if let Some(cycle) = &self.marks.cycle {
            let (value, default) = values(cycle);
            let mark = format!("CASE WHEN true THEN {default} ELSE {value} END");
            items.push(named(&mark, &cycle.mark));
            let row = joined(&cycle.columns, &plain);
            items.push(named(&format!("ARRAY[ROW({row})]"), &cycle.path));
        }
        let from: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let query = subquery_of(left)?;
        selected(&items, "*TLOCRN*", &from, "", query)
    }

    /// The part that recurs; `given` are its own columns, and `wanted` those that it adds to.
    pub(super) fn again(
        &self,
        name: &str,
        right: &SetExpr,
        given: &[Output],
        wanted: &[Output],
    ) -> Result<SetExpr> {
        let mut query = subquery_of(right)?;
        let added = self.added_names();
        let missing = || {
            let message = format!(
                "with a SEARCH or CYCLE clause, the recursive reference to WITH query \"{name}\" \
                 must be at the top level of its right-hand SELECT"
            );
            Error::new("0A000", message)
        };
        let hides = |cte: &ast::Cte| names::ident(&cte.alias.name) == name;
        if query
            .with
            .iter()
            .any(|with| with.cte_tables.iter().any(hides))
        {
            return Err(missing());
        }
        let select = select_of(&mut query).ok_or_else(missing)?;
        let alias = select.from.iter().find_map(|item| alias_in(item, name));
        let alias = alias.ok_or_else(missing)?;
        for column in &added {
            let path = vec![quoted(&alias), quoted(column)];
            let e = ast::Expr::CompoundIdentifier(path);
            select.projection.push(SelectItem::UnnamedExpr(e));
        }
        let value_of = |column: &str| {
            let written = names::quote(column);
            let at = self.columns.iter().position(|c| c == column);
            match at.and_then(|at| Some((given.get(at)?, wanted.get(at)?))) {
                Some((g, w)) if g.value.ty != w.value.ty || g.value.typmod != w.value.typmod => {
                    let ty = w.value.ty.format(w.value.typmod);
                    format!("CAST({written} AS {ty})")
                }
                _ => written,
            }
        };
        let mut items: Vec<String> = self.columns.iter().map(|c| names::quote(c)).collect();
        let mut condition = String::new();
        if let Some(search) = &self.marks.search {
            let row = joined(&search.columns, &value_of);
            let before = names::quote(&search.sequence);
            let next = match search.breadth {
                true => format!("ROW(({before}).f1 + 1, {row})"),
                false => format!("{before} || ARRAY[ROW({row})]"),
            };
            items.push(named(&next, &search.sequence));
        }
        if let Some(cycle) = &self.marks.cycle {
            let (value, default) = values(cycle);
            let row = format!("ROW({})", joined(&cycle.columns, &value_of));
            let path = names::quote(&cycle.path);
            let mark = format!("CASE WHEN {row} = ANY ({path}) THEN {value} ELSE {default} END");
            items.push(named(&mark, &cycle.mark));
            items.push(named(&format!("{path} || ARRAY[{row}]"), &cycle.path));
            condition = format!(" WHERE {} <> {value}", names::quote(&cycle.mark));
        }
        let from: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let from = [from, added].concat();
        selected(&items, "*TROCRN*", &from, &condition, query)
    }
}

fn values(cycle: &parse::search::Cycle) -> (&str, &str) {
    match &cycle.values {
        Some((value, default)) => (value, default),
        None => ("true", "false"),
    }
}

/// The values of the mark must have a type in common, and one that can be compared.
fn check_values(marks: &Marks, params: &ParamTypes) -> Result<()> {
    let Some(cycle) = &marks.cycle else {
        return Ok(());
    };
    let scope = bind::Scope::default();
    let binder = Binder::new(&scope, params, "CYCLE");
    let (value, default) = values(cycle);
    let mut types = Vec::new();
    for text in [value, default] {
        let bound = parse::expression(text).and_then(|e| match is_constant(&e) {
            true => binder.expr(&e),
            false => Err(Error::new(
                "42601",
                format!("syntax error at or near \"{text}\""),
            )),
        });
        types.push(bound.map_err(Error::without_place)?.ty);
    }
    match bind::chosen_type(&types, "CYCLE")? {
        SqlType::Json => Err(Error::new(
            "42883",
            "could not identify an equality operator for type json",
        )),
        _ => Ok(()),
    }
}

/// Whether an expression is what PostgreSQL's grammar has as a constant.
fn is_constant(e: &ast::Expr) -> bool {
    match e {
        ast::Expr::Value(v) => !matches!(v.value, ast::Value::Placeholder(_)),
        ast::Expr::TypedString(_) | ast::Expr::Interval(_) => true,
        _ => false,
    }
}

fn check_names(marks: &Marks, columns: &[String]) -> Result<()> {
    let listed = |kind: &str, list: &[String]| {
        for (at, column) in list.iter().enumerate() {
            if !columns.contains(column) {
                let message = format!("{kind} column \"{column}\" not in WITH query column list");
                return Err(Error::new("42601", message));
            }
            if list[..at].contains(column) {
                let message = format!("{kind} column \"{column}\" specified more than once");
                return Err(Error::new("42701", message));
            }
        }
        Ok(())
    };
    let used = |what: &str, name: &String| match columns.contains(name) {
        true => Err(Error::new(
            "42601",
            format!("{what} column name \"{name}\" already used in WITH query column list"),
        )),
        false => Ok(()),
    };
    let same = |what: &str, a: &str, b: &str| match a == b {
        true => Err(Error::new("42601", format!("{what} are the same"))),
        false => Ok(()),
    };
    if let Some(search) = &marks.search {
        let checked = listed("search", &search.columns)
            .and_then(|()| used("search sequence", &search.sequence));
        checked.map_err(|e| e.placed(search.place()))?;
    }
    if let Some(cycle) = &marks.cycle {
        let names = "cycle mark column name and cycle path column name";
        let checked = listed("cycle", &cycle.columns)
            .and_then(|()| used("cycle mark", &cycle.mark))
            .and_then(|()| used("cycle path", &cycle.path))
            .and_then(|()| same(names, &cycle.mark, &cycle.path));
        checked.map_err(|e| e.placed(cycle.place()))?;
    }
    if let (Some(search), Some(cycle)) = (&marks.search, &marks.cycle) {
        let with =
            |column: &str| format!("search sequence column name and cycle {column} column name");
        let checked = same(&with("mark"), &search.sequence, &cycle.mark)
            .and_then(|()| same(&with("path"), &search.sequence, &cycle.path));
        checked.map_err(|e| e.placed(search.place()))?;
    }
    Ok(())
}

fn joined(columns: &[String], value: &dyn Fn(&str) -> String) -> String {
    let values = columns.iter().map(|c| value(c));
    values.collect::<Vec<_>>().join(", ")
}

fn named(value: &str, name: &str) -> String {
    format!("{value} AS {}", names::quote(name))
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// `SELECT items FROM (query) AS alias (columns) condition`.
fn selected(
    items: &[String],
    alias: &str,
    columns: &[&str],
    condition: &str,
    query: ast::Query,
) -> Result<SetExpr> {
    let columns: Vec<String> = columns.iter().map(|c| names::quote(c)).collect();
    let text = format!(
        "SELECT {} FROM (SELECT 1) AS \"{alias}\" ({}){condition}",
        items.join(", "),
        columns.join(", ")
    );
    let mut outer = query_of(&text)?;
    let select = select_of(&mut outer);
    match select
        .and_then(|s| s.from.first_mut())
        .map(|t| &mut t.relation)
    {
        Some(TableFactor::Derived { subquery, .. }) => **subquery = query,
        _ => return Err(unexpected()),
    }
    Ok(*outer.body)
}

/// A side of the UNION as a query of its own.
fn subquery_of(side: &SetExpr) -> Result<ast::Query> {
    if let SetExpr::Query(query) = side {
        return Ok((**query).clone());
    }
    let mut query = query_of("SELECT 1")?;
    *query.body = side.clone();
    Ok(query)
}

fn select_of(query: &mut ast::Query) -> Option<&mut ast::Select> {
    match &mut *query.body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(inner) => select_of(inner),
        _ => None,
    }
}

fn query_of(text: &str) -> Result<ast::Query> {
    match parse::statement(text)? {
        Command::Sql(s) => match *s {
            ast::Statement::Query(q) => Ok(*q),
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

fn unexpected() -> Error {
    Error::internal("a template of a recursive query that is none")
}

/// What an item of FROM calls a WITH query that it names.
fn alias_in(item: &TableWithJoins, name: &str) -> Option<String> {
    let factors = std::iter::once(&item.relation).chain(item.joins.iter().map(|j| &j.relation));
    factors.into_iter().find_map(|factor| match factor {
        TableFactor::Table {
            name: relation,
            alias,
            args: None,
            ..
        } => {
            let q = names::Qualified::new(relation).ok()?;
            let own = q.schema.is_none() && q.name == name;
            let alias = alias.as_ref().map(|a| names::ident(&a.name));
            own.then(|| alias.unwrap_or(q.name))
        }
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => alias_in(table_with_joins, name),
        _ => None,
    })
}
