//! The definition of a view, written out: its stored text with the names that relations have now.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, GroupByExpr, Ident, LimitClause, ObjectName, Query, Select, SelectItem, SetExpr,
    Statement, TableAlias, TableAliasColumnDef, TableFactor,
};

use crate::bind::{names, numbered};
use crate::dict::view::SOURCES;
use crate::dict::{Dict, Source, View};
use crate::error::{Error, Result};
use crate::parse::{self, Command, exclude, forms, search};

/// The query of a view, as `pg_get_viewdef` gives it.
pub fn text(dict: &Dict, view: &View) -> Result<String> {
    let damaged = || Error::internal(format!("the query of the view {} is none", view.name));
    let Command::Sql(statement) = parse::statement(&view.query)? else {
        return Err(damaged());
    };
    let Statement::Query(mut query) = *statement else {
        return Err(damaged());
    };
    name_outputs(&mut query.body, view);
    name_relations(dict, &view.sources, &mut *query)?;
    let text = forms::in_words(&format!("{};", laid_out(&query)));
    search::in_words(&exclude::in_words(&text))
}

/// Gives the relations of a stored text the names that they have now.
pub fn name_relations(
    dict: &Dict,
    sources: &[Source],
    tree: &mut impl ast::VisitMut,
) -> Result<()> {
    let mut naming = Naming { dict, sources };
    numbered::as_now(dict, tree);
    match ast::VisitMut::visit(tree, &mut naming) {
        ControlFlow::Break(e) => Err(e),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// The first SELECT gives the columns their names: those that the view has by now.
fn name_outputs(body: &mut SetExpr, view: &View) {
    match body {
        SetExpr::SetOperation { left, .. } => name_outputs(left, view),
        SetExpr::Query(query) => name_outputs(&mut query.body, view),
        SetExpr::Select(select) if select.projection.len() == view.columns.len() => {
            for (item, column) in select.projection.iter_mut().zip(&view.columns) {
                let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item
                else {
                    continue;
                };
                let expr = expr.clone();
                *item = match crate::plan::column_name(&expr) == column.name
                    && matches!(
                        expr,
                        ast::Expr::CompoundIdentifier(_) | ast::Expr::Identifier(_)
                    ) {
                    true => SelectItem::UnnamedExpr(expr),
                    false => SelectItem::ExprWithAlias {
                        expr,
                        alias: plain(&column.name),
                    },
                };
            }
        }
        _ => {}
    }
}

/// An identifier, quoted only if it must be.
pub fn plain(name: &str) -> Ident {
    match names::quote(name) == name && !super::needs_quotes(name) {
        true => Ident::new(name),
        false => Ident::with_quote('"', name),
    }
}

/// A column's name in the view's text, and its name now.
type Renamed = (String, String);

struct Naming<'d> {
    dict: &'d Dict,
    /// What the text reads.
    sources: &'d [Source],
}

impl ast::VisitorMut for Naming<'_> {
    type Break = Error;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let TableFactor::Table { name, alias, .. } = factor {
            if let Err(e) = self.relation(name, alias) {
                return ControlFlow::Break(e);
            }
            if let Some(alias) = alias {
                alias.name = plain(&names::ident(&alias.name));
            }
        }
        if let TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::NestedJoin { alias, .. } = factor
            && let Some(alias) = alias
        {
            alias.explicit = false;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, e: &mut ast::Expr) -> ControlFlow<Error> {
        match e {
            ast::Expr::Identifier(i) => *i = plain(&names::ident(i)),
            ast::Expr::CompoundIdentifier(path) => {
                path.iter_mut().for_each(|i| *i = plain(&names::ident(i)));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Naming<'_> {
    fn relation(&self, name: &mut ObjectName, alias: &mut Option<TableAlias>) -> Result<()> {
        let stored = names::Qualified::new(name)?;
        let system = stored.schema.as_deref() == Some("pg_catalog");
        if system
            && alias
                .as_ref()
                .is_some_and(|a| names::ident(&a.name) == stored.name)
        {
            *name = vec![plain(&stored.name)].into();
            *alias = None;
        }
        if stored.schema.as_deref() != Some(SOURCES) {
            return Ok(());
        }
        let at = stored
            .name
            .split_once('.')
            .and_then(|(_, at)| at.parse::<usize>().ok());
        let source = at.and_then(|at| self.sources.get(at));
        let source = source.ok_or_else(|| Error::internal("a relation of a view is gone"))?;
        let (schema, now, columns) = self.as_it_is(source)?;
        *name = match self.dict.is_visible(schema, &now) {
            true => vec![plain(&now)],
            false => vec![plain(self.dict.schema_name(schema)), plain(&now)],
        }
        .into();
        let Some(given) = alias else {
            return Ok(());
        };
        let renamed = columns.iter().any(|(was, is)| was != is);
        if renamed && given.columns.is_empty() {
            let column = |(was, _): &Renamed| TableAliasColumnDef {
                name: plain(was),
                data_type: None,
            };
            given.columns = columns.iter().map(column).collect();
        }
        if given.columns.is_empty() && names::ident(&given.name) == now {
            *alias = None;
        }
        Ok(())
    }

    /// Schema, name and columns of a relation now, these beside the names that the view has for
    /// them.
    fn as_it_is(&self, source: &Source) -> Result<(u32, String, Vec<Renamed>)> {
        let named = |number: i16| {
            let known = source.columns.iter().find(|(n, _)| *n == number);
            known.map(|(_, name)| name.clone())
        };
        if let Some(t) = self.dict.table_by_oid(source.oid) {
            let columns = t.live_columns();
            let columns =
                columns.filter_map(|(at, c)| Some((named(at as i16 + 1)?, c.name.clone())));
            return Ok((t.schema, t.name.clone(), columns.collect()));
        }
        if let Some(v) = self.dict.view_by_oid(source.oid) {
            let columns = v.columns.iter().enumerate();
            let columns =
                columns.filter_map(|(at, c)| Some((named(at as i16 + 1)?, c.name.clone())));
            return Ok((v.schema, v.name.clone(), columns.collect()));
        }
        Err(Error::internal("a relation of a view is gone"))
    }
}

/// A query in lines, as PostgreSQL sets them; what is not a plain SELECT, in one.
fn laid_out(query: &Query) -> String {
    let SetExpr::Select(select) = &*query.body else {
        return format!(" {query}");
    };
    let lined = query.with.is_none()
        && query.fetch.is_none()
        && query.locks.is_empty()
        && select.named_window.is_empty()
        && select.distinct.is_none();
    let limit = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset {
            limit,
            offset,
            limit_by,
        }) if limit_by.is_empty() => Some((limit, offset)),
        Some(_) => return format!(" {query}"),
    };
    if !lined {
        return format!(" {query}");
    }
    let mut text = select_lines(select);
    if let Some(order) = &query.order_by {
        text.push_str(&format!("\n  {order}"));
    }
    if let Some((limit, offset)) = limit {
        if let Some(offset) = offset {
            text.push_str(&format!("\n {offset}"));
        }
        if let Some(limit) = limit {
            text.push_str(&format!("\n LIMIT {limit}"));
        }
    }
    text
}

/// A relation, and a line for each of its joins.
fn joined(from: &ast::TableWithJoins) -> String {
    let mut text = spaced(from.relation.to_string());
    for join in &from.joins {
        let join = spaced(join.to_string());
        text.push_str(&format!("\n     {}", join.trim()));
    }
    text
}

/// As PostgreSQL writes USING: with a blank behind it, and the alias of the join, which the parser
/// is given as one more column, behind its columns.
fn spaced(text: String) -> String {
    let mut rest = text.replace(" USING(", " USING (");
    while let Some((before, after)) = rest.split_once(", \"as ")
        && let Some((alias, after)) = after.split_once("\")")
    {
        rest = format!("{before}) AS {alias}{after}");
    }
    rest
}

fn select_lines(select: &Select) -> String {
    let items: Vec<String> = select.projection.iter().map(|i| i.to_string()).collect();
    let mut text = format!(" SELECT {}", items.join(",\n    "));
    let from: Vec<String> = select.from.iter().map(joined).collect();
    if !from.is_empty() {
        text.push_str(&format!("\n   FROM {}", from.join(",\n    ")));
    }
    if let Some(condition) = &select.selection {
        text.push_str(&format!("\n  WHERE {condition}"));
    }
    match &select.group_by {
        GroupByExpr::Expressions(keys, modifiers) if modifiers.is_empty() && keys.is_empty() => {}
        group => text.push_str(&format!("\n  {group}")),
    }
    if let Some(having) = &select.having {
        text.push_str(&format!("\n HAVING {having}"));
    }
    text
}
