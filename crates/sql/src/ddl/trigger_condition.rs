//! The columns that the condition of a trigger names: those of OLD and NEW. A name alone is that of
//! a row there.

use sqlparser::ast;

use crate::bind::names;
use crate::error::Result;
use crate::parse;

fn columns(e: &mut ast::Expr, each: &mut dyn FnMut(&mut ast::Ident)) {
    let _ = ast::visit_expressions_mut(e, |e| {
        if let ast::Expr::CompoundIdentifier(path) = e
            && let Some(name) = path.last_mut()
        {
            each(name);
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
}

/// Whether the text of a condition names a column.
pub fn names_column(text: &str, column: &str) -> Result<bool> {
    let mut found = false;
    columns(&mut parse::expression(text)?, &mut |name| {
        found |= names::ident(name) == column;
    });
    Ok(found)
}

/// The text of a condition with another name for a column.
pub fn renamed(text: &str, from: &str, to: &str) -> Result<String> {
    let mut e = parse::expression(text)?;
    columns(&mut e, &mut |name| {
        if names::ident(name) == from {
            *name = ast::Ident::with_quote('"', to);
        }
    });
    Ok(e.to_string())
}
