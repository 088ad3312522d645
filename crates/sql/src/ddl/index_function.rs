//! Functions of users in the expressions and conditions of indexes: the texts of the functions are
//! put in the place of their calls, and kept with the index.
//!
//! The engine computes keys without a session, so it cannot run a function; and a key must stay
//! what it is for ever, so another text that the function gets later must not reach it. A statement
//! that calls the function looks for the text of now (`bind::inline`): while the function is what
//! it was, that is the index's, and afterwards the index serves no such statement any more.
//!
//! **Invariant.** The texts are immutable themselves, whatever is said of their functions: keys are
//! computed with no settings, and statements with those of their session.

use sqlparser::ast::{self, Expr as Syntax};

use super::index_expression::{is_bound_immutable, refuse_parts};
use crate::bind::inline::{argument, expression_of, is_strict};
use crate::bind::numbered_operator::symbol_of;
use crate::bind::{Binder, ParamTypes, Scope, Typed, names, pinned_type};
use crate::dict::function::Mode;
use crate::dict::{Dict, Function, Table};
use crate::error::{Error, Result};
use crate::parse;
use crate::types::SqlType;

/// Calls that become texts, those within texts too.
const MAX_CALLS: usize = 256;
/// Of the whole.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// An expression over the columns of a table without the calls of functions that users made.
/// `clause` as in messages.
pub fn inlined(dict: &Dict, table: &Table, e: &Syntax, clause: &'static str) -> Result<String> {
    let mut e = e.clone();
    let params = ParamTypes::none(dict).keeping_calls();
    let scope = Scope::of_table(table, &table.name);
    let binder = Binder::new(&scope, &params, clause);
    let mut left = MAX_CALLS;
    expand(&binder, &mut e, &mut left)?;
    refuse_parts(&e, clause)?;
    pinned_type::pin(&mut e, dict, table)?;
    let bare = ParamTypes::of_columns(table);
    let bound = Binder::new(&scope, &bare, clause).expr(&e)?;
    match is_bound_immutable(dict, table, &bound.expr) {
        true => Ok(e.to_string()),
        false => Err(Error::unsupported(format!(
            "a function in {clause} whose text depends on the session"
        ))),
    }
}

/// Puts texts in the place of calls, the innermost first.
fn expand(binder: &Binder<'_>, e: &mut Syntax, left: &mut usize) -> Result<()> {
    let visited = ast::visit_expressions_mut(e, |e| {
        use std::ops::ControlFlow::{Break, Continue};
        if let Syntax::BinaryOp { left, op, right } = e
            && let Ok(Some(_)) = binder.operator_meant(left, op, right)
        {
            let (symbol, clause) = (symbol_of(op), binder.clause);
            let what = format!("operator {symbol} of an extension in {clause}");
            return Break(Error::unsupported(what));
        }
        let Syntax::Function(call) = e else {
            return Continue(());
        };
        match text_of_call(binder, call, left) {
            Ok(None) => Continue(()),
            Ok(Some(text)) => {
                *e = text;
                Continue(())
            }
            Err(e) => Break(e),
        }
    });
    match visited {
        std::ops::ControlFlow::Break(e) => Err(e),
        std::ops::ControlFlow::Continue(()) => Ok(()),
    }
}

/// What a call stands for; `None`: no function of users is meant.
fn text_of_call(
    binder: &Binder<'_>,
    call: &ast::Function,
    left: &mut usize,
) -> Result<Option<Syntax>> {
    wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    let Some(function) = binder.function_meant(call)? else {
        return Ok(None);
    };
    let clause = binder.clause;
    let name = &function.name;
    let text = expression_of(&function).ok_or_else(|| {
        Error::unsupported(format!(
            "function {name} in {clause}, as it is not a single expression in SQL"
        ))
    })?;
    let args = plain_arguments(call, &function)?.ok_or_else(|| {
        Error::unsupported(format!(
            "a call of function {name} in {clause} with named or VARIADIC arguments"
        ))
    })?;
    *left = left.checked_sub(1).ok_or_else(|| {
        let what = format!("more than {MAX_CALLS} calls of functions of users in {clause}");
        Error::unsupported(what)
    })?;
    let mut values = Vec::with_capacity(args.len());
    for (arg, wanted) in args.into_iter().zip(&function.arguments) {
        let given = binder.expr(&arg)?;
        values.push(converted(arg, &given, wanted.ty())?);
    }
    let mut text = match function.strict && !is_strict_text(binder, &function, &text) {
        true => guarded(text, function.arguments.len())?,
        false => text,
    };
    put_arguments(&mut text, &function, &values);
    check_length(&text, clause)?;
    expand(binder, &mut text, left)?;
    check_length(&text, clause)?;
    let given = binder.expr(&text)?;
    converted(nested(text), &given, function.result_type()).map(Some)
}

fn check_length(text: &Syntax, clause: &str) -> Result<()> {
    match text.to_string().len() <= MAX_TEXT_BYTES {
        true => Ok(()),
        false => {
            let message = format!("{clause} with the texts of their functions are too long");
            Err(Error::new("54001", message))
        }
    }
}

/// The arguments of a call that gives each one by its place, with the defaults of the rest. `None`:
/// it is another kind of call.
fn plain_arguments(call: &ast::Function, function: &Function) -> Result<Option<Vec<Syntax>>> {
    let list: &[ast::FunctionArg] = match &call.args {
        ast::FunctionArguments::None => &[],
        ast::FunctionArguments::List(list) => &list.args,
        ast::FunctionArguments::Subquery(_) => return Ok(None),
    };
    let spreads = function.parameters.iter().any(|p| p.mode == Mode::Variadic);
    if spreads || list.len() > function.arguments.len() {
        return Ok(None);
    }
    let mut args = Vec::with_capacity(function.arguments.len());
    for arg in list {
        match arg {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => args.push(e.clone()),
            _ => return Ok(None),
        }
    }
    for argument in &function.arguments[list.len()..] {
        match &argument.default {
            Some(text) => args.push(parse::expression(text)?),
            None => return Ok(None),
        }
    }
    Ok(Some(args))
}

/// Whether the text is NULL wherever an argument is.
fn is_strict_text(binder: &Binder<'_>, function: &std::sync::Arc<Function>, text: &Syntax) -> bool {
    let value = binder.over_arguments(function, text);
    value.is_some_and(|e| is_strict(&e, function.arguments.len()))
}

/// NULL if an argument is, else the text.
fn guarded(text: Syntax, arguments: usize) -> Result<Syntax> {
    let each: Vec<String> = (1..=arguments).map(|n| format!("${n} IS NULL")).collect();
    let condition = each.join(" OR ");
    parse::expression(&format!(
        "CASE WHEN {condition} THEN NULL ELSE ({text}) END"
    ))
}

/// Puts the arguments in the place of their names.
fn put_arguments(text: &mut Syntax, function: &Function, values: &[Syntax]) {
    let _ = ast::visit_expressions_mut(text, |e| {
        let path = match e {
            Syntax::Identifier(name) => vec![names::ident(name)],
            Syntax::CompoundIdentifier(path) => path.iter().map(names::ident).collect(),
            Syntax::Value(value) => match &value.value {
                ast::Value::Placeholder(name) => vec![name.clone()],
                _ => return std::ops::ControlFlow::Continue(()),
            },
            _ => return std::ops::ControlFlow::Continue(()),
        };
        if let Some(at) = argument(function, &path) {
            *e = values[at].clone();
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
}

fn nested(e: Syntax) -> Syntax {
    match e {
        Syntax::Nested(_) | Syntax::Identifier(_) | Syntax::Function(_) => e,
        e => Syntax::Nested(Box::new(e)),
    }
}

/// A value as one of another type.
fn converted(e: Syntax, given: &Typed, to: SqlType) -> Result<Syntax> {
    if given.ty == to {
        return Ok(nested(e));
    }
    let ty = match to.element().unwrap_or(to) {
        // By its name in the standard it would have one character.
        SqlType::Char => "bpchar",
        SqlType::Bit => return Err(Error::unsupported("a function of type bit in an index")),
        element => element.name(),
    };
    let array = if to.element().is_some() { "[]" } else { "" };
    parse::expression(&format!("CAST({e} AS {ty}{array})"))
}
