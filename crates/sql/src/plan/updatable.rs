//! Which views can be written to, and as what: PostgreSQL's rules of automatically updatable views.

use sqlparser::ast::{self, GroupByExpr, SelectItem, SetExpr, TableFactor, TableWithJoins};

use super::finds_call;
use crate::bind::{is_aggregate, names};
use crate::dict::view::SOURCES;
use crate::dict::{Dict, View};
use crate::error::{Error, Result};
use crate::parse::{self, Command};
use crate::query::aggregate;
use crate::query::analyze::functions::is_series;

/// Why a view or a column of one is not written to, in the words of PostgreSQL's details.
pub type Reason = &'static str;

/// The single relation that a view selects from, and what it makes of it.
pub struct Shape {
    /// Its place among the view's sources.
    pub source: usize,
    pub alias: String,
    /// The names that the alias gives to the first columns.
    pub renamed: Vec<String>,
    pub items: Vec<ast::Expr>,
    pub condition: Option<ast::Expr>,
}

impl Shape {
    /// What a view's query is; the reason, if nobody can write through it.
    pub fn of(dict: &Dict, view: &View) -> Result<std::result::Result<Shape, Reason>> {
        Ok(shape(dict, query_of(view)?))
    }

    /// The column of the relation below that a column of the view is.
    pub fn column(&self, at: usize, columns: &[(i16, String)]) -> std::result::Result<i16, Reason> {
        const NO_COLUMN: Reason =
            "View columns that are not columns of their base relation are not updatable.";
        let name = match self.items.get(at).map(super::within_parentheses) {
            Some(ast::Expr::CompoundIdentifier(path)) => match path.as_slice() {
                [table, name] if names::ident(table) == self.alias => names::ident(name),
                _ => return Err(NO_COLUMN),
            },
            Some(ast::Expr::Identifier(name)) => names::ident(name),
            _ => return Err(NO_COLUMN),
        };
        let given = self.names(columns).position(|n| n == name);
        match given {
            Some(place) => Ok(columns[place].0),
            None if names::is_system_column(&name) => {
                Err("View columns that refer to system columns are not updatable.")
            }
            None if name == self.alias => {
                Err("View columns that return whole-row references are not updatable.")
            }
            None => Err(NO_COLUMN),
        }
    }

    /// What the view calls the columns of the relation below.
    pub fn names<'s>(&'s self, columns: &'s [(i16, String)]) -> impl Iterator<Item = &'s str> {
        let given = self.renamed.iter().map(String::as_str);
        let rest = columns.iter().skip(self.renamed.len());
        given.chain(rest.map(|(_, name)| name.as_str()))
    }

    /// Whether there is a column that can be written to.
    pub fn has_updatable(&self, columns: &[(i16, String)]) -> bool {
        (0..self.items.len()).any(|at| self.column(at, columns).is_ok())
    }
}

pub const NO_RELATION: Reason =
    "Views that do not select from a single table or view are not automatically updatable.";

pub const NO_UPDATABLE_COLUMNS: Reason =
    "Views that have no updatable columns are not automatically updatable.";

/// The query of a view.
pub fn query_of(view: &View) -> Result<ast::Query> {
    match parse::statement(&view.query)? {
        Command::Sql(statement) => match *statement {
            ast::Statement::Query(query) => Ok(*query),
            _ => Err(Error::internal("the query of a view that is none")),
        },
        _ => Err(Error::internal("the query of a view that is none")),
    }
}

fn shape(dict: &Dict, mut query: ast::Query) -> std::result::Result<Shape, Reason> {
    let mut body = *query.body;
    while let SetExpr::Query(inner) = body {
        query.order_by = None;
        query.limit_clause = query.limit_clause.or(inner.limit_clause);
        query.with = query.with.or(inner.with);
        body = *inner.body;
    }
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { .. } => {
            return Err(
                "Views containing UNION, INTERSECT, or EXCEPT are not automatically updatable.",
            );
        }
        _ => return Err(NO_RELATION),
    };
    let items: Vec<ast::Expr> = select.projection.iter().filter_map(expression).collect();
    let ordered = query.order_by.iter().flat_map(|o| match &o.kind {
        ast::OrderByKind::Expressions(keys) => keys.as_slice(),
        ast::OrderByKind::All(_) => &[],
    });
    let computed = || items.iter().chain(ordered.clone().map(|key| &key.expr));
    let calls = |wanted: &dyn Fn(&ast::Function) -> bool| computed().any(|e| finds_call(e, wanted));
    let grouped = !matches!(&select.group_by,
        GroupByExpr::Expressions(keys, modifiers) if keys.is_empty() && modifiers.is_empty());
    let reason = match () {
        () if !matches!(select.distinct, None | Some(ast::Distinct::All)) => {
            "Views containing DISTINCT are not automatically updatable."
        }
        () if grouped => "Views containing GROUP BY are not automatically updatable.",
        () if select.having.is_some() => "Views containing HAVING are not automatically updatable.",
        () if query.with.is_some() => "Views containing WITH are not automatically updatable.",
        () if query.limit_clause.is_some() || query.fetch.is_some() => {
            "Views containing LIMIT or OFFSET are not automatically updatable."
        }
        () if calls(&is_aggregate_call) => {
            "Views that return aggregate functions are not automatically updatable."
        }
        () if calls(&|f| f.over.is_some()) => {
            "Views that return window functions are not automatically updatable."
        }
        () if calls(&|f| gives_set(dict, f)) => {
            "Views that return set-returning functions are not automatically updatable."
        }
        () => "",
    };
    if !reason.is_empty() {
        return Err(reason);
    }
    let [TableWithJoins { relation, joins }] = select.from.as_slice() else {
        return Err(NO_RELATION);
    };
    let TableFactor::Table {
        name,
        alias,
        args: None,
        sample,
        ..
    } = relation
    else {
        return Err(NO_RELATION);
    };
    let source = match names::Qualified::new(name) {
        Ok(q) if q.schema.as_deref() == Some(SOURCES) && joins.is_empty() => {
            let at = q.name.split_once('.').map(|(_, at)| at.parse().ok());
            at.flatten().ok_or(NO_RELATION)?
        }
        _ => return Err(NO_RELATION),
    };
    if sample.is_some() {
        return Err("Views containing TABLESAMPLE are not automatically updatable.");
    }
    let alias = alias.as_ref().ok_or(NO_RELATION)?;
    Ok(Shape {
        source,
        alias: names::ident(&alias.name),
        renamed: alias
            .columns
            .iter()
            .map(|c| names::ident(&c.name))
            .collect(),
        items,
        condition: select.selection.clone(),
    })
}

fn expression(item: &SelectItem) -> Option<ast::Expr> {
    match item {
        SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => Some(e.clone()),
        _ => None,
    }
}

fn is_aggregate_call(f: &ast::Function) -> bool {
    f.over.is_none()
        && names::Qualified::new(&f.name)
            .is_ok_and(|n| is_aggregate(&n.name) || aggregate::is_aggregate(&n.name))
}

/// Whether a call gives several rows.
fn gives_set(dict: &Dict, f: &ast::Function) -> bool {
    let Ok(name) = names::Qualified::new(&f.name) else {
        return false;
    };
    let users = dict.functions_meant(&name);
    users.iter().any(|f| f.returns_set) || is_series(&name.name)
}
