//! The body of a trigger in Oracle's form, which stands where PostgreSQL has EXECUTE FUNCTION.
//!
//! `pg_get_triggerdef` writes such a body in quotes behind DO, so that clients which cut statements
//! at semicolons, such as psql, keep it whole.

use std::ops::ControlFlow;

use sqlparser::ast::{self, Expr, Ident};
use sqlparser::tokenizer::Token;

use super::tokens::Words;
use crate::bind::names;
use crate::error::{Error, Result};

/// The names of the rows that a body has behind colons.
#[derive(Debug)]
pub struct RowNames {
    pub new: String,
    pub old: String,
}

impl Default for RowNames {
    fn default() -> RowNames {
        RowNames {
            new: "new".to_string(),
            old: "old".to_string(),
        }
    }
}

/// The body, if it comes next: to the end of the statement, with NEW and OLD as names of the rows.
pub fn body(w: &mut Words<'_>, rows: &RowNames) -> Result<Option<String>> {
    let text = if w.accept("do") {
        if w.accept("language") && w.name_or_string()?.to_lowercase() != "plsql" {
            return Err(Error::unsupported(
                "the body of a trigger in another language than plsql",
            ));
        }
        let text = w.string()?;
        return renamed(&text, rows).map(Some);
    } else if w.precedes("declare") || w.precedes("begin") || w.peek() == Some(&Token::ShiftLeft) {
        w.rest()
    } else if w.precedes("call") {
        return Err(Error::unsupported("CALL as the body of a trigger"));
    } else {
        return Ok(None);
    };
    renamed(text, rows).map(Some)
}

/// A body with NEW and OLD for the names that the rows have in it.
fn renamed(text: &str, rows: &RowNames) -> Result<String> {
    let syntax = |e: plpgsql::Error| Error::new(e.sqlstate, e.message).in_statement(text);
    plpgsql::rows_renamed(text, &rows.new, &rows.old).map_err(syntax)
}

/// A condition in which the rows have these names, with NEW and OLD for them.
pub fn condition(text: &str, rows: &RowNames) -> Result<String> {
    let mut e = super::whole_expression(text)?;
    let _ = ast::visit_expressions_mut(&mut e, |e| {
        if let Expr::CompoundIdentifier(path) = e
            && let Some(row) = path.first_mut()
        {
            match names::ident(row) {
                name if name == rows.new => *row = Ident::new("new"),
                name if name == rows.old => *row = Ident::new("old"),
                _ => {}
            }
        }
        ControlFlow::<()>::Continue(())
    });
    Ok(e.to_string())
}
