//! Calls whose last argument is VARIADIC: an array of the last arguments.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::coerce::fold;
use super::names::Qualified;
use super::{Binder, Typed, element_of};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::json::JsonFunc;
use crate::expr::ranges::RangeFunc;
use crate::expr::variadic::Spread;
use crate::expr::{Expr, Func};
use crate::parse::variadic::VARIADIC;
use crate::types::SqlType;
use crate::types::ranges::RangeOf;

/// The array of a call whose last argument is VARIADIC, and the arguments before it.
fn variadic(f: &ast::Function) -> Option<(&[FunctionArg], &ast::Expr)> {
    let FunctionArguments::List(list) = &f.args else {
        return None;
    };
    match list.args.split_last() {
        Some((
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(e),
                ..
            },
            before,
        )) if name.value == VARIADIC => Some((before, e)),
        _ => None,
    }
}

impl Binder<'_> {
    /// A call of one of the functions of PostgreSQL that take any number of arguments; `None`: no
    /// argument is VARIADIC.
    pub(super) fn variadic_call(&self, name: &str, f: &ast::Function) -> Result<Option<Typed>> {
        let Some((before, array)) = variadic(f) else {
            return Ok(None);
        };
        let mut args = before
            .iter()
            .map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => self.expr(e),
                other => Err(Error::unsupported(format!("{other} beside VARIADIC"))),
            })
            .collect::<Result<Vec<_>>>()?;
        let array = self.expr(array)?;
        let missing = |args: &[Typed]| {
            let types = args.iter().map(|a| a.ty.name()).chain([array.ty.name()]);
            let types: Vec<&str> = types.collect();
            let message = format!("function {name}({}) does not exist", types.join(", "));
            Error::new("42883", message).hint(
                "No function matches the given name and argument types. You might need to add \
                 explicit type casts.",
            )
        };
        if let Some(found) = self.extract_path(name, &args, &array)? {
            return Ok(Some(found));
        }
        let spread = match Spread::of(name) {
            Some(spread) if spread.fixed() == args.len() => spread,
            _ => return Err(missing(&args)),
        };
        let Some(element) = element_of(array.ty) else {
            let message = "VARIADIC argument must be an array";
            return Err(Error::new("42804", message));
        };
        for arg in &mut args {
            *arg = self.coerce(arg.clone(), SqlType::Text, -1, CastContext::Assignment)?;
        }
        let func = Func::Pure(PureFunc::Spread(spread, element.ty()));
        let args = args.into_iter().map(|a| a.expr).chain([array.expr]);
        let call = fold(Expr::Call(func, args.collect()))?;
        Ok(Some(Typed::new(call, spread.result())))
    }

    /// A multirange of an array of ranges; `None`: the call is of something else.
    pub(super) fn variadic_range(
        &self,
        name: &Qualified,
        f: &ast::Function,
    ) -> Result<Option<Typed>> {
        let Some(([], array)) = variadic(f) else {
            return Ok(None);
        };
        let plain = name.schema.as_deref().is_none_or(|s| s == "pg_catalog");
        let built_in = plain.then(|| RangeOf::multirange_named(&name.name));
        let own = || match self.own_range(name)? {
            SqlType::Multirange(of) => Some(of),
            _ => None,
        };
        let Some(of) = built_in.flatten().or_else(own) else {
            return Ok(None);
        };
        let array = self.expr(array)?;
        if SqlType::Range(of).array() != Some(array.ty) {
            return Ok(None);
        }
        if of.own().is_some() {
            self.params.names.note(&f.name, of.multirange_oids()[0])?;
        }
        let func = Func::Pure(PureFunc::Range(RangeFunc::MakeMultirange, of));
        let made = fold(Expr::Call(func, vec![array.expr]))?;
        Ok(Some(Typed::new(made, SqlType::Multirange(of))))
    }

    /// `json_extract_path(document, variadic path)`, which is `#>`.
    fn extract_path(&self, name: &str, args: &[Typed], path: &Typed) -> Result<Option<Typed>> {
        let (json, text) = match name {
            "json_extract_path" => (SqlType::Json, false),
            "json_extract_path_text" => (SqlType::Json, true),
            "jsonb_extract_path" => (SqlType::Jsonb, false),
            "jsonb_extract_path_text" => (SqlType::Jsonb, true),
            _ => return Ok(None),
        };
        let [document] = args else {
            return Ok(None);
        };
        let document = self.coerce(document.clone(), json, -1, CastContext::Implicit)?;
        let path = self.coerce(path.clone(), SqlType::TEXTS, -1, CastContext::Implicit)?;
        let func = Func::Pure(PureFunc::Json(JsonFunc::Path { text }));
        let call = fold(Expr::Call(func, vec![document.expr, path.expr]))?;
        Ok(Some(Typed::new(
            call,
            if text { SqlType::Text } else { json },
        )))
    }
}
