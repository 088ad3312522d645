//! What the binder makes of an operator or function of values of given types, for the catalogs,
//! which list what there is.

use sqlparser::ast;

use super::{Binder, ParamTypes, Scope, names};
use crate::parse;
use crate::types::SqlType;

/// The type of what an operator gives, if there is such an operator; a prefix one has no left side.
pub fn operator(name: &str, left: Option<SqlType>, right: SqlType) -> Option<SqlType> {
    let e = written(name, left.is_some())?;
    bound(&e, left.into_iter().chain([right]).collect())
}

/// The type of what a function of PostgreSQL's gives for arguments of these types, if there is such
/// a function.
pub fn function(name: &str, types: Vec<SqlType>) -> Option<SqlType> {
    let arguments: Vec<String> = (1..=types.len()).map(|n| format!("${n}")).collect();
    let called = format!(
        "pg_catalog.{}({})",
        names::quote(name),
        arguments.join(", ")
    );
    bound(&parse::expression(&called).ok()?, types)
}

fn bound(e: &ast::Expr, types: Vec<SqlType>) -> Option<SqlType> {
    let params = ParamTypes {
        types: std::cell::RefCell::new(types.into_iter().map(Some).collect()),
        ..ParamTypes::default()
    };
    let scope = Scope::default();
    let bound = Binder::new(&scope, &params, "SELECT").expr(e).ok()?;
    Some(bound.ty)
}

/// The operator between `$1` and `$2`, or before `$1`.
pub fn written(name: &str, binary: bool) -> Option<ast::Expr> {
    let text = match binary {
        true => format!("$1 {name} $2"),
        false => format!("{name} $1"),
    };
    parse::expression(&text).ok()
}
