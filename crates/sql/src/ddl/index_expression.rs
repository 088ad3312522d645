//! What CREATE INDEX takes as an expression or as a condition, and the text that is kept of it.
//!
//! Only what is immutable may be a key: the engine computes keys without a session, again and
//! again, and on every instance. So of a function that a user made its text is kept, as it is when
//! the index is made ([`super::index_function`]).

use block::value::Datum;
use sqlparser::ast::{self, Expr as Syntax};

use super::alter::unqualified;
use super::index_function;
use crate::bind::{ParamTypes, Scope, names, pinned_type};
use crate::dict::computed::{EXPRESSIONS, PREDICATES, bind_expression, bind_predicate};
use crate::dict::function::Volatility;
use crate::dict::{Dict, Index, IndexExpression, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::func::{Func, PureFunc};
use crate::parse;
use crate::types::{SqlType, storage_type};
use crate::views::procedures::{self, Immutable};

/// An expression as a column of an index, and its type.
pub fn expression(dict: &Dict, table: &Table, e: &Syntax) -> Result<(IndexExpression, SqlType)> {
    refuse_parts(e, EXPRESSIONS)?;
    let text = e.to_string();
    let params = ParamTypes::none(dict).keeping_calls();
    let scope = Scope::of_table(table, &table.name);
    let bound = bind_expression(&scope, &params, &text)?;
    let calls = !params.sight.called().is_empty();
    refuse_casts(&params)?;
    refuse_parameters(params)?;
    storage_type(bound.ty)?;
    // PostgreSQL looks at what the texts of functions say, too.
    let as_planned = || {
        let params = ParamTypes::none(dict);
        let planned = bind_expression(&scope, &params, &text);
        planned.is_ok_and(|planned| is_immutable(dict, table, e, &planned.expr))
    };
    let immutable = is_immutable(dict, table, e, &bound.expr) || calls && as_planned();
    if !immutable {
        return Err(not_immutable("index expression"));
    }
    let inlined = standing(dict, table, e, calls, EXPRESSIONS)?;
    let name = match crate::plan::column_name(e) {
        name if name == "?column?" => "expr".to_string(),
        name => name,
    };
    let expression = IndexExpression {
        text: unqualified(e).to_string(),
        inlined,
        name,
    };
    Ok((expression, bound.ty))
}

/// The condition of a partial index, and the same with the texts of functions and with numbers for
/// the types of users, if it has any.
pub struct Predicate {
    pub text: String,
    pub inlined: Option<String>,
}

/// What CREATE INDEX says of the rows that the index has.
pub fn predicate(dict: &Dict, table: &Table, e: &Syntax) -> Result<Predicate> {
    let e = inner(e);
    refuse_parts(e, PREDICATES)?;
    let text = e.to_string();
    let params = ParamTypes::none(dict).keeping_calls();
    let scope = Scope::of_table(table, &table.name);
    let bound = bind_predicate(&scope, &params, &text)?;
    let calls = !params.sight.called().is_empty();
    refuse_casts(&params)?;
    refuse_parameters(params)?;
    let as_planned = || {
        let params = ParamTypes::none(dict);
        let planned = bind_predicate(&scope, &params, &text);
        planned.is_ok_and(|planned| is_immutable(dict, table, e, &planned))
    };
    let immutable = is_immutable(dict, table, e, &bound) || calls && as_planned();
    if !immutable {
        return Err(not_immutable("index predicate"));
    }
    let inlined = standing(dict, table, e, calls, PREDICATES)?;
    let text = unqualified(e).to_string();
    Ok(Predicate { text, inlined })
}

/// The text that needs no dictionary, if that is another one. `calls`: of functions of users.
fn standing(
    dict: &Dict,
    table: &Table,
    e: &Syntax,
    calls: bool,
    clause: &'static str,
) -> Result<Option<String>> {
    if calls {
        return index_function::inlined(dict, table, e, clause).map(Some);
    }
    let mut e = e.clone();
    let has_types = pinned_type::pin(&mut e, dict, table)?;
    Ok(has_types.then(|| e.to_string()))
}

/// The texts of functions as they are now, for the columns that the table has now.
pub fn renew(dict: &Dict, table: &Table, index: &mut Index) -> Result<()> {
    for e in index.expressions.iter_mut().filter(|e| e.inlined.is_some()) {
        let (now, _) = expression(dict, table, &parse::expression(&e.text)?)?;
        e.inlined = now.inlined;
    }
    if let (Some(text), Some(_)) = (&index.predicate, &index.inlined) {
        index.inlined = predicate(dict, table, &parse::expression(text)?)?.inlined;
    }
    Ok(())
}

/// Keys are computed without a dictionary, which has the casts of users.
fn refuse_casts(params: &ParamTypes) -> Result<()> {
    match params.sight.uses_casts() {
        true => Err(Error::unsupported("casts of users in an index")),
        false => Ok(()),
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
pub fn refuse_parts(e: &Syntax, clause: &str) -> Result<()> {
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

/// Whether an expression has one value for each row, in every session and for ever. Of a function
/// that a user made it is what the user says.
pub(super) fn is_immutable(dict: &Dict, table: &Table, e: &Syntax, bound: &Expr) -> bool {
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
    immutable && is_bound_immutable(dict, table, bound)
}

pub(super) fn is_bound_immutable(dict: &Dict, table: &Table, bound: &Expr) -> bool {
    let zoned_column = |at: usize| {
        let ty = table.columns[at].ty();
        ty.element().unwrap_or(ty) == SqlType::TimestampTz
    };
    let of_user = |oid: u32| {
        let function = dict.function_by_oid(oid);
        function.is_some_and(|f| f.volatility == Volatility::Immutable)
    };
    let mut immutable = true;
    // What a user's function makes of its arguments is its own affair.
    let mut rest = bound.clone();
    rest.replace(&mut |e| match e {
        Expr::Call(Func::User(f), args) => {
            immutable &= of_user(f.oid) && args.iter().all(|a| is_bound_immutable(dict, table, a));
            Some(Expr::Const(Datum::Null))
        }
        // The time of a zone that is named is the same in every session.
        Expr::Call(Func::Pure(PureFunc::AtZone), args) => match args.as_slice() {
            [Expr::Const(_), Expr::Column(at)] if zoned_column(*at) => {
                Some(Expr::Const(Datum::Null))
            }
            _ => None,
        },
        _ => None,
    });
    // What is made of a time with time zone depends on the session's zone, unless it is compared.
    let of_zoned = |e: &Expr| {
        let mut zoned = false;
        e.visit(&mut |e| zoned |= matches!(e, Expr::Column(at) if zoned_column(*at)));
        zoned
    };
    rest.visit(&mut |e| match e {
        Expr::Call(func, _) => {
            immutable &= func.is_immutable();
            let compares = matches!(func, Func::Pure(PureFunc::Greatest | PureFunc::Least));
            immutable &= compares || !of_zoned(e);
        }
        Expr::Arith(..) => immutable &= !of_zoned(e),
        Expr::Cast(cast, _) => {
            immutable &= keeps(cast.from, cast.to);
            immutable &= cast.from != SqlType::TimestampTz || !of_zoned(e);
        }
        Expr::Subquery { .. } | Expr::Param(_) => immutable = false,
        _ => {}
    });
    immutable
}

/// Whether a conversion is the same in every session and for ever: dates and times as texts depend
/// on settings, and the names of objects and the labels of enums can change.
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
                | SqlType::Enum(_)
                | SqlType::Composite(_)
                | SqlType::Range(_)
                | SqlType::Multirange(_)
        )
    };
    let zoned = |t: SqlType| t == SqlType::TimestampTz;
    let as_text = from.is_string() && dated(to) || dated(from) && to.is_string();
    !(as_text || from != to && (zoned(from) || zoned(to)))
}
