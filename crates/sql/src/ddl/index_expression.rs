//! What CREATE INDEX takes as an expression or as a condition, and the text that is kept of it.
//!
//! Only what is immutable may be a key: the engine computes keys without a session, again and again,
//! and on every instance.

use sqlparser::ast::{self, Expr as Syntax};

use crate::bind::{ParamTypes, Scope, names};
use crate::dict::computed::{EXPRESSIONS, PREDICATES, bind_expression, bind_predicate};
use crate::dict::{IndexExpression, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::func::Func;
use crate::types::{SqlType, storage_type};
use crate::views::procedures::{self, Immutable};

/// An expression as a column of an index, and its type.
pub fn expression(table: &Table, e: &Syntax) -> Result<(IndexExpression, SqlType)> {
    refuse_parts(e, EXPRESSIONS)?;
    let text = e.to_string();
    let params = ParamTypes::default();
    let scope = Scope::of_table(table, &table.name);
    let bound = bind_expression(&scope, &params, &text)?;
    refuse_parameters(params)?;
    storage_type(bound.ty)?;
    if !is_immutable(table, e, &bound.expr, &|_| false)? {
        return Err(not_immutable("index expression"));
    }
    let name = match crate::plan::column_name(e) {
        name if name == "?column?" => "expr".to_string(),
        name => name,
    };
    Ok((IndexExpression { text, name }, bound.ty))
}

/// The condition of a partial index; its text.
pub fn predicate(table: &Table, e: &Syntax) -> Result<String> {
    let e = inner(e);
    refuse_parts(e, PREDICATES)?;
    let text = e.to_string();
    let params = ParamTypes::default();
    let scope = Scope::of_table(table, &table.name);
    let bound = bind_predicate(&scope, &params, &text)?;
    refuse_parameters(params)?;
    match is_immutable(table, e, &bound, &|_| false)? {
        true => Ok(text),
        false => Err(not_immutable("index predicate")),
    }
}

fn not_immutable(what: &str) -> Error {
    let message = format!("functions in {what} must be marked IMMUTABLE");
    Error::new("42P17", message)
}

/// Without the parentheses around it.
pub fn inner(mut e: &Syntax) -> &Syntax {
    while let Syntax::Nested(nested) = e {
        e = nested;
    }
    e
}

fn refuse_parameters(params: ParamTypes) -> Result<()> {
    match params.finish().is_empty() {
        true => Ok(()),
        false => Err(Error::new("42P02", "there is no parameter $1")),
    }
}

/// Refuses queries and windows; the binder refuses aggregates.
pub(super) fn refuse_parts(e: &Syntax, clause: &str) -> Result<()> {
    let found = ast::visit_expressions(e, |e| {
        use std::ops::ControlFlow::{Break, Continue};
        match e {
            Syntax::Subquery(_) | Syntax::Exists { .. } | Syntax::InSubquery { .. } => {
                let clause = clause.trim_end_matches('s');
                let message = format!("cannot use subquery in {clause}");
                Break(Error::new("0A000", message))
            }
            Syntax::Function(f) if f.over.is_some() => {
                let message = format!("window functions are not allowed in {clause}");
                Break(Error::new("42P20", message))
            }
            _ => Continue(()),
        }
    });
    match found {
        std::ops::ControlFlow::Break(e) => Err(e),
        std::ops::ControlFlow::Continue(()) => Ok(()),
    }
}

/// Whether an expression has one value for each row, in every session and for ever. `of_user`: what
/// is taken of functions of users, by object id.
pub(super) fn is_immutable(
    table: &Table,
    e: &Syntax,
    bound: &Expr,
    of_user: &dyn Fn(u32) -> bool,
) -> Result<bool> {
    let mut immutable = true;
    let _ = ast::visit_expressions(e, |e| {
        if let Syntax::Function(f) = e
            && let Ok(name) = names::Qualified::new(&f.name)
        {
            let count = match &f.args {
                ast::FunctionArguments::List(list) => list.args.len(),
                _ => 0,
            };
            immutable &= procedures::immutable(&name.name, count) != Immutable::Never;
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    // What is made of a time with time zone depends on the session's zone, unless it is compared.
    let (mut zoned, mut made) = (false, false);
    bound.visit(&mut |e| match e {
        Expr::Column(at) => {
            let ty = table.columns[*at].ty();
            zoned |= ty.element().unwrap_or(ty) == SqlType::TimestampTz;
        }
        Expr::Call(func, _) => {
            immutable &= match func {
                Func::User(f) => of_user(f.oid),
                func => func.is_immutable(),
            };
            made = true;
        }
        Expr::Arith(..) => made = true,
        Expr::Cast(cast, _) => {
            immutable &= keeps(cast.from, cast.to);
            made |= cast.from == SqlType::TimestampTz;
        }
        Expr::Subquery { .. } | Expr::Param(_) => immutable = false,
        _ => {}
    });
    Ok(immutable && !(zoned && made))
}

/// Whether a conversion is the same in every session: dates and times as texts depend on settings,
/// as do the names of objects.
fn keeps(from: SqlType, to: SqlType) -> bool {
    let element = |t: SqlType| t.element().unwrap_or(t);
    let (from, to) = (element(from), element(to));
    let dated = |t: SqlType| {
        matches!(
            t,
            SqlType::Date
                | SqlType::Timestamp
                | SqlType::TimestampTz
                | SqlType::Interval
                | SqlType::Reg(_)
        )
    };
    let zoned = |t: SqlType| t == SqlType::TimestampTz;
    let as_text = from.is_string() && dated(to) || dated(from) && to.is_string();
    !(as_text || from != to && (zoned(from) || zoned(to)))
}
