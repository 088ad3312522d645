//! Words of the grammar where a name is wanted: PostgreSQL takes those of two of its four classes
//! for names of tables and columns, the parser takes any.

use std::ops::ControlFlow;

use sqlparser::ast::{self, Visit, Visitor};

use super::{near, tokens};
use crate::error::Error;
use crate::views::keywords::{Class, class};

/// Refuses the first name of a statement that is a word of the grammar.
pub fn refuse(statement: &ast::Statement, sql: &str) -> Result<(), Error> {
    let found = match statement.visit(&mut Names) {
        ControlFlow::Break(name) => Some(name),
        ControlFlow::Continue(()) => defined(statement),
    };
    match found {
        None => Ok(()),
        Some(name) if name.span.start.line == 0 => {
            let message = format!("syntax error at or near \"{}\"", name.value);
            Err(Error::new("42601", message))
        }
        Some(name) => {
            let byte = tokens::offset(sql, name.span.start);
            Err(near(&name.value, sql, byte))
        }
    }
}

/// Whether a name of a table or a column cannot be this word without quotes.
fn is_reserved(name: &ast::Ident) -> bool {
    name.quote_style.is_none()
        && matches!(
            class(&name.value),
            Some(Class::Reserved | Class::FunctionOrType)
        )
}

/// Words that are values, or stand for one.
fn is_value(name: &ast::Ident) -> bool {
    [
        "current_catalog",
        "current_date",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "default",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    ]
    .iter()
    .any(|value| name.value.eq_ignore_ascii_case(value))
}

fn first(name: &ast::ObjectName) -> Option<&ast::Ident> {
    name.0.first().and_then(ast::ObjectNamePart::as_ident)
}

fn refused<'n>(mut names: impl Iterator<Item = &'n ast::Ident>) -> ControlFlow<ast::Ident> {
    match names.find(|name| is_reserved(name)) {
        Some(name) => ControlFlow::Break(name.clone()),
        None => ControlFlow::Continue(()),
    }
}

/// The names that a statement gives to what it defines, or writes to.
fn defined(statement: &ast::Statement) -> Option<ast::Ident> {
    let found = match statement {
        ast::Statement::CreateTable(c) => {
            let columns = c.columns.iter().map(|c| &c.name);
            refused(first(&c.name).into_iter().chain(columns))
        }
        ast::Statement::CreateIndex(c) => refused(c.name.iter().filter_map(first)),
        ast::Statement::Insert(i) => {
            let alias = i.table_alias.as_ref().map(|a| &a.alias);
            let columns = i.columns.iter().filter_map(first);
            refused(columns.chain(alias))
        }
        _ => ControlFlow::Continue(()),
    };
    found.break_value()
}

struct Names;

impl Visitor for Names {
    type Break = ast::Ident;

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<ast::Ident> {
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        refused(with.map(|cte| &cte.alias.name))
    }

    /// Functions in FROM come here too, and may have names that tables may not.
    fn pre_visit_relation(&mut self, relation: &ast::ObjectName) -> ControlFlow<ast::Ident> {
        match first(relation) {
            Some(name)
                if name.quote_style.is_none()
                    && class(&name.value) == Some(Class::Reserved)
                    && !is_value(name) =>
            {
                ControlFlow::Break(name.clone())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, item: &ast::TableFactor) -> ControlFlow<ast::Ident> {
        match item {
            ast::TableFactor::Table { alias, .. } | ast::TableFactor::Derived { alias, .. } => {
                refused(alias.iter().map(|alias| &alias.name))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, e: &ast::Expr) -> ControlFlow<ast::Ident> {
        match e {
            ast::Expr::Identifier(name) if !is_value(name) => refused(std::iter::once(name)),
            ast::Expr::CompoundIdentifier(path) => refused(path.iter().take(1)),
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::statement;

    fn position(sql: &str) -> Option<u32> {
        let error = statement(sql).expect_err(sql);
        assert_eq!(error.sqlstate(), "42601", "{sql}: {error}");
        error.fields().position
    }

    #[test]
    fn words_of_the_grammar_are_no_names() {
        assert_eq!(position("create table order (a int)"), Some(14));
        assert_eq!(position("create table t (a int, select int)"), Some(24));
        assert_eq!(position("create table t (left int)"), Some(17));
        assert_eq!(position("select 1 as a from t as user"), Some(25));
        assert_eq!(position("insert into t (a, end) values (1, 2)"), Some(19));
        assert_eq!(position("with all as (select 1) select 1"), Some(6));
    }

    #[test]
    fn other_words_are_names() {
        for sql in [
            "create table t (\"select\" int, name text, values int, int int)",
            "select current_date, user, 1 as select, t.order from t",
            "insert into t values (default)",
            "select * from left('abc', 1)",
            "select a.year, year from t as a",
        ] {
            statement(sql).expect(sql);
        }
    }
}
