//! Functions in SQL that are one expression: a call becomes that expression, as PostgreSQL's
//! `inline_function` does it, so that conditions in it lead to indexes and no body is run.
//!
//! **Invariants.**
//! - A call that became an expression has the value and asks for the rights that it would have if
//!   its body were run. Its errors have no context, as in PostgreSQL.
//! - Whatever cannot be bound here stays a call. Running it tells what is wrong with it.
//! - A plan has noted each function whose text is in it, so that it is not used after one of them
//!   was replaced.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use block::value::Datum;
use plpgsql::Conflict;
use sqlparser::ast;

use super::sight::{Variable, Variables};
use super::user_call::Called;
use super::{Binder, ParamTypes, Scope, Typed};
use crate::collate;
use crate::dict::Function;
use crate::dict::function::{Language, Volatility};
use crate::error::Result;
use crate::expr::cast::CastContext;
use crate::expr::{Expr, Func};
use crate::parse::{self, Command};
use crate::types::SqlType;

/// Functions within functions.
const MAX_DEPTH: usize = 16;
/// Calls of a statement that become expressions, so that functions which call others twice, and so
/// on, do not grow without end.
const MAX_CALLS: u32 = 256;
/// An argument with more parts than this is not computed twice.
const MAX_PARTS: usize = 20;

/// What the calls of a statement may still become.
#[derive(Clone, Debug)]
pub(super) struct Inlining {
    /// The functions in whose text the call stands.
    within: Vec<u32>,
    left: Rc<Cell<u32>>,
}

impl Default for Inlining {
    fn default() -> Inlining {
        Inlining {
            within: Vec::new(),
            left: Rc::new(Cell::new(MAX_CALLS)),
        }
    }
}

impl Inlining {
    /// Every call stays one.
    pub(super) fn none() -> Inlining {
        Inlining {
            within: Vec::new(),
            left: Rc::default(),
        }
    }

    /// What calls in the text of a function may become; `None`: a call of it stays one.
    fn in_text_of(&self, function: u32) -> Option<Inlining> {
        let left = self.left.get().checked_sub(1)?;
        if self.within.contains(&function) || self.within.len() >= MAX_DEPTH {
            return None;
        }
        self.left.set(left);
        let mut within = self.within.clone();
        within.push(function);
        Some(Inlining {
            within,
            left: self.left.clone(),
        })
    }
}

/// The arguments of a function, as its text sees them.
#[derive(Debug)]
struct Arguments(Arc<Function>);

impl Variables for Arguments {
    fn find(&self, path: &[String]) -> Result<Option<Variable>> {
        let found = argument(&self.0, path);
        Ok(found.map(|number| Variable {
            number,
            ty: self.0.arguments[number].ty().base(),
            typmod: -1,
        }))
    }

    fn conflict(&self) -> Conflict {
        Conflict::Column
    }
}

/// The argument that a name in the text of a function means: `x`, `f.x`, `$1`.
pub fn argument(function: &Function, path: &[String]) -> Option<usize> {
    let name = match path {
        [name] => name,
        [of, name] if *of == function.name => name,
        _ => return None,
    };
    let count = function.arguments.len();
    if let Some(number) = name.strip_prefix('$') {
        let number: usize = number.parse().ok()?;
        return number.checked_sub(1).filter(|at| *at < count);
    }
    let mut arguments = function.arguments.iter();
    arguments.rposition(|a| a.name == *name)
}

/// The expression that a function is, as its text has it. `None`: it is more than that.
pub fn expression_of(function: &Function) -> Option<ast::Expr> {
    let result = function.result_type();
    let is_value = !function.returns_set
        && !function.gives_rows()
        && !function.is_trigger()
        && result != SqlType::Void
        && !result.is_domain();
    let is_plain = function.language == Language::Sql
        && !function.procedure
        && !function.security_definer
        && function.settings.is_empty()
        && !function
            .arguments
            .iter()
            .any(|a| matches!(a.ty().base(), SqlType::Composite(_)));
    if !is_value || !is_plain {
        return None;
    }
    let texts = parse::split(&function.body);
    let [text] = texts.as_slice() else {
        return None;
    };
    let Ok(Command::Sql(statement)) = parse::statement(text) else {
        return None;
    };
    let ast::Statement::Query(query) = *statement else {
        return None;
    };
    let ast::SetExpr::Select(select) = &*query.body else {
        return None;
    };
    let [item] = select.projection.as_slice() else {
        return None;
    };
    let (ast::SelectItem::UnnamedExpr(e) | ast::SelectItem::ExprWithAlias { expr: e, .. }) = item
    else {
        return None;
    };
    // Any other clause would be written out, too.
    (query.to_string() == format!("SELECT {item}")).then(|| e.clone())
}

/// Whether a value is NULL wherever one of the arguments is, all of which it uses.
pub fn is_strict(e: &Expr, arguments: usize) -> bool {
    (0..arguments).all(|argument| is_null_with(e, argument))
}

fn is_null_with(e: &Expr, argument: usize) -> bool {
    match e {
        Expr::Param(n) => *n == argument,
        Expr::Not(e) | Expr::Negate(e) | Expr::Cast(_, e) => is_null_with(e, argument),
        Expr::Arith(_, _, l, r) | Expr::Compare(_, l, r) | Expr::Concat(l, r) => {
            is_null_with(l, argument) || is_null_with(r, argument)
        }
        Expr::Call(func, args) => {
            func.is_strict() && args.iter().any(|e| is_null_with(e, argument))
        }
        _ => false,
    }
}

/// NULL if an argument is, else the value.
fn guarded(e: Expr, arguments: usize) -> Expr {
    let is_null = |n| Expr::IsNull {
        expr: Box::new(Expr::Param(n)),
        negated: false,
    };
    let mut any: Vec<Expr> = (0..arguments).map(is_null).collect();
    let condition = match any.len() {
        1 => any.swap_remove(0),
        _ => Expr::Or(any),
    };
    Expr::Case {
        branches: vec![(condition, Expr::Const(Datum::Null))],
        otherwise: Some(Box::new(e)),
    }
}

impl Binder<'_> {
    /// A call as the expression that its function is; `None`: it stays a call.
    pub(super) fn inlined(&self, called: &Called) -> Option<Typed> {
        let function = &called.function;
        let is_null = |e: &Expr| matches!(e, Expr::Const(Datum::Null));
        if function.strict && called.args.iter().any(is_null) {
            return None;
        }
        let text = expression_of(function)?;
        let inlining = self.params.sight.inlining.in_text_of(function.oid)?;
        let mut own = self.seeing_arguments(function);
        own.sight.inlining = inlining;
        let value = self.text_of(function, &text, &own)?;
        let value = match function.strict && !is_strict(&value, called.args.len()) {
            true => guarded(value, called.args.len()),
            false => value,
        };
        if value.is_volatile() && function.volatility != Volatility::Volatile {
            return None;
        }
        let mut uses = vec![0; called.args.len()];
        value.visit(&mut |e| {
            if let Expr::Param(n) = e {
                uses[*n] += 1;
            }
        });
        // What is not used may fail all the same.
        let fits = |uses: usize, arg: &Expr| match uses {
            0 => matches!(arg, Expr::Const(_) | Expr::Column(_) | Expr::Param(_)),
            1 => true,
            _ => is_cheap(arg),
        };
        let mut each = uses.iter().zip(&called.args);
        if !each.all(|(uses, arg)| fits(*uses, arg)) {
            return None;
        }
        let mut value = value;
        value.replace(&mut |e| match e {
            Expr::Param(n) => Some(called.args[*n].clone()),
            _ => None,
        });
        self.params.note_called(&own);
        // The names of schemas in the text, as if the caller had written them.
        for schema in own.needs.noted().schemas {
            self.params.needs.schema(schema);
        }
        Some(Typed::new(value, function.result_type()))
    }

    /// The text over the arguments, which are parameters of it.
    fn text_of(&self, function: &Function, text: &ast::Expr, own: &ParamTypes) -> Option<Expr> {
        let scope = Scope::default();
        let binder = Binder::new(&scope, own, self.clause);
        let result = function.result_type();
        let bound = collate::apart(|| binder.expr(text)).ok()?;
        let value = binder.coerce(bound, result, -1, CastContext::Assignment);
        let value = value.ok()?.expr;
        let mut asks = false;
        value.visit(&mut |e| asks |= matches!(e, Expr::Subquery { .. }));
        if asks {
            return None;
        }
        Some(value)
    }

    /// The text of a function over its arguments, which are parameters of it. `None`: it cannot be
    /// bound.
    pub fn over_arguments(&self, function: &Arc<Function>, text: &ast::Expr) -> Option<Expr> {
        self.text_of(function, text, &self.seeing_arguments(function))
    }

    fn seeing_arguments(&self, function: &Arc<Function>) -> ParamTypes {
        let arguments = Rc::new(Arguments(function.clone()));
        self.params.of_definition().with_variables(arguments)
    }
}

/// Whether a value may be computed more than once.
fn is_cheap(e: &Expr) -> bool {
    let (mut parts, mut dear) = (0, e.is_volatile());
    e.visit(&mut |e| {
        parts += 1;
        dear |= matches!(e, Expr::Subquery { .. } | Expr::Call(Func::User(_), _));
    });
    parts <= MAX_PARTS && !dear
}
