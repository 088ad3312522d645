//! Aliases that are also names of columns. DataFusion takes `b.a` in a subquery for a field of the column `b`, if the subquery's tables have one, before it looks
//! for a table `b` around the subquery; PostgreSQL always means the table. There are no columns with fields here, so such tables get another alias,
//! in the whole statement: a name means the same tables as before, for all that have it are renamed alike.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, Expr, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, Query, SelectItem,
    SelectItemQualifiedWildcardKind, TableAlias, TableFactor, VisitMut, VisitorMut,
};

use crate::bind::names;
use crate::dict::Dict;
use crate::views;

/// Renames the aliases that could be mistaken for columns. A query without queries in it stays as it is.
pub fn write_out(query: &mut Query, dict: &Dict) {
    let mut seen = Seen {
        dict,
        queries: 0,
        columns: HashSet::new(),
        tables: HashSet::new(),
        functions: HashSet::new(),
    };
    let _ = VisitMut::visit(query, &mut seen);
    let Seen {
        queries,
        columns,
        tables,
        functions,
        ..
    } = seen;
    if queries < 2 {
        return;
    }
    let mistaken = tables.intersection(&columns);
    // The alias of a function names its column as well.
    let mistaken = mistaken.filter(|name| !functions.contains(*name));
    let renamed: Vec<(String, Ident)> = mistaken
        .map(|name| {
            let mut other = format!("{name}_");
            while columns.contains(&other) || tables.contains(&other) || functions.contains(&other)
            {
                other.push('_');
            }
            (name.clone(), Ident::with_quote('"', other))
        })
        .collect();
    if !renamed.is_empty() {
        let _ = VisitMut::visit(query, &mut Renamer { renamed });
    }
}

/// What a statement names.
struct Seen<'d> {
    dict: &'d Dict,
    queries: usize,
    columns: HashSet<String>,
    tables: HashSet<String>,
    functions: HashSet<String>,
}

impl Seen<'_> {
    fn alias(&mut self, alias: &TableAlias) {
        let columns = alias.columns.iter().map(|c| names::ident(&c.name));
        self.columns.extend(columns);
    }
    fn columns_of(&mut self, name: &names::Qualified) {
        if let Some(table) = self.dict.table(&name.name) {
            let columns = table.live_columns().map(|(_, c)| c.name.clone());
            self.columns.extend(columns);
        }
        if let Some(view) = views::find(name.schema.as_deref(), &name.name) {
            let columns = view.columns.iter().map(|(name, _)| name.to_string());
            self.columns.extend(columns);
        }
    }
}

impl VisitorMut for Seen<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        let ctes = query.with.iter().flat_map(|w| &w.cte_tables);
        ctes.for_each(|cte| self.alias(&cte.alias));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item {
                self.columns.insert(names::ident(alias));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table {
            name, args: None, ..
        } = factor
            && let Ok(name) = names::Qualified::new(name)
        {
            self.columns_of(&name);
        }
        let Some((name, alias)) = named(factor) else {
            if let Some(name) = function(factor) {
                self.functions.insert(name);
            }
            return ControlFlow::Continue(());
        };
        if let Some(alias) = alias {
            self.alias(alias);
        }
        self.tables.insert(name);
        ControlFlow::Continue(())
    }
}

/// The name by which a table or a query in FROM is known, and the alias, if it is that.
fn named(factor: &mut TableFactor) -> Option<(String, &mut Option<TableAlias>)> {
    match factor {
        TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } => {
            let known = match alias {
                Some(a) => names::ident(&a.name),
                None => names::Qualified::new(name).ok()?.name,
            };
            Some((known, alias))
        }
        TableFactor::Derived { alias, .. } => Some((names::ident(&alias.as_ref()?.name), alias)),
        _ => None,
    }
}

/// The same of a function.
fn function(factor: &TableFactor) -> Option<String> {
    let (TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. }) =
        factor
    else {
        return None;
    };
    match alias {
        Some(a) => Some(names::ident(&a.name)),
        None => Some(names::Qualified::new(name).ok()?.name),
    }
}

struct Renamer {
    renamed: Vec<(String, Ident)>,
}

impl Renamer {
    fn other(&self, name: &str) -> Option<Ident> {
        let found = self.renamed.iter().find(|(old, _)| old == name);
        found.map(|(_, new)| new.clone())
    }

    /// `b`, or `public.b`.
    fn object(&self, name: &mut ObjectName) {
        if let Ok(known) = names::Qualified::new(name)
            && let Some(other) = self.other(&known.name)
        {
            name.0 = vec![ObjectNamePart::Identifier(other)];
        }
    }
}

impl VisitorMut for Renamer {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let of = query.locks.iter_mut().filter_map(|l| l.of.as_mut());
        of.for_each(|name| self.object(name));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut ast::Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) = item
            {
                self.object(name);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some((name, alias)) = named(factor)
            && let Some(other) = self.other(&name)
        {
            match alias {
                Some(alias) => alias.name = other,
                None => {
                    *alias = Some(TableAlias {
                        explicit: true,
                        name: other,
                        columns: Vec::new(),
                        at: None,
                    });
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, e: &mut Expr) -> ControlFlow<()> {
        match e {
            Expr::CompoundIdentifier(parts) if (2..=3).contains(&parts.len()) => {
                let table = parts.len() - 2;
                if let Some(other) = self.other(&names::ident(&parts[table])) {
                    parts.splice(..=table, [other]);
                }
            }
            Expr::Function(f) => {
                if let ast::FunctionArguments::List(list) = &mut f.args {
                    for arg in &mut list.args {
                        if let ast::FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) =
                            arg
                        {
                            self.object(name);
                        }
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
