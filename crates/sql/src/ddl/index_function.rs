//! Functions of users in the expressions and conditions of indexes: the texts of the functions are
//! put in the place of their calls, and kept with the index.
//!
//! The engine computes keys without a session, so it cannot run a function; and a key must stay what
//! it is for ever, so another text that the function gets later must not reach it. A statement that
//! calls the function looks for the text of now (`bind::inline`): while the function is what it was,
//! that is the index's, and afterwards the index serves no such statement any more.

use sqlparser::ast::{self, Expr as Syntax};

use super::index_expression::refuse_parts;
use crate::bind::inline::{argument, expression_of, is_strict};
use crate::bind::{Binder, ParamTypes, Scope, Typed, names};
use crate::dict::function::Mode;
use crate::dict::{Dict, Function, Table};
use crate::error::{Error, Result};
use crate::expr::{Expr, Func};
use crate::parse;
use crate::types::SqlType;

/// Functions within functions.
const MAX_DEPTH: usize = 16;
/// Of the whole.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// An expression over the columns of a table without the calls of functions that users made.
/// `clause` as in messages.
pub fn inlined(dict: &Dict, table: &Table, e: &Syntax, clause: &'static str) -> Result<String> {
    let mut e = e.clone();
    let params = ParamTypes::none(dict).keeping_calls();
    let scope = Scope::of_table(table, &table.name);
    let binder = Binder::new(&scope, &params, clause);
    expand(&binder, &mut e, 0)?;
    refuse_parts(&e, clause)?;
    let bare = ParamTypes::default();
    let bound = Binder::new(&scope, &bare, clause).expr(&e)?;
    refuse_session(&bound.expr)?;
    Ok(e.to_string())
}

/// Puts texts in the place of calls, the innermost first.
fn expand(binder: &Binder<'_>, e: &mut Syntax, depth: usize) -> Result<()> {
    let visited = ast::visit_expressions_mut(e, |e| {
        use std::ops::ControlFlow::{Break, Continue};
        let Syntax::Function(call) = e else {
            return Continue(());
        };
        match text_of_call(binder, call, depth) {
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
fn text_of_call(binder: &Binder<'_>, call: &ast::Function, depth: usize) -> Result<Option<Syntax>> {
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
    if depth >= MAX_DEPTH {
        let what = format!("function {name} in {clause}, with so many functions within it");
        return Err(Error::unsupported(what));
    }
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
    expand(binder, &mut text, depth + 1)?;
    if text.to_string().len() > MAX_TEXT_BYTES {
        let message = format!("{clause} with the texts of their functions are too long");
        return Err(Error::new("54001", message));
    }
    let given = binder.expr(&text)?;
    converted(nested(text), &given, function.result_type()).map(Some)
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
    parse::expression(&format!("CAST({e} AS {})", to.name()))
}

/// Refuses what asks the session, which a function that is said to be immutable may do all the same.
fn refuse_session(e: &Expr) -> Result<()> {
    let mut asks = false;
    e.visit(&mut |e| {
        asks |= match e {
            Expr::Call(func, _) => matches!(func, Func::Session(_) | Func::User(_)),
            Expr::Cast(cast, _) => [cast.from, cast.to].iter().any(is_name),
            Expr::Param(_) | Expr::Subquery { .. } => true,
            _ => false,
        }
    });
    match asks {
        true => Err(Error::unsupported(
            "a function that asks the session in an index",
        )),
        false => Ok(()),
    }
}

/// Whether values are names of objects.
fn is_name(ty: &SqlType) -> bool {
    let is_reg = |ty| matches!(ty, SqlType::Reg(_));
    is_reg(ty.element().unwrap_or(*ty))
}
