//! What clients ask the catalogs with: functions over them, and operators by their schema.

use sqlparser::ast::{self, AccessExpr, BinaryOperator};

use super::{Binder, Typed, element_of, names};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::SessionFunc;
use crate::expr::{Expr, Func};
use crate::types::{Element, SqlType};
use crate::views::functions;

impl Binder<'_> {
    /// A call of a function over the catalogs, which takes integers, booleans and texts.
    pub(super) fn catalog_call(&self, name: &str, args: Vec<Typed>) -> Result<Typed> {
        let missing = |args: &[Typed]| {
            let types: Vec<&str> = args.iter().map(|a| a.ty.name()).collect();
            Error::new("42883", format!("function {name}({}) does not exist", types.join(", ")))
                .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
        };
        let Some((at, function)) = functions::find(name) else {
            return Err(missing(&args));
        };
        let (least, most) = function.args;
        if !(least..=most).contains(&args.len()) {
            return Err(missing(&args));
        }
        let args = args.into_iter().map(|a| {
            let to = match a.ty {
                SqlType::Bool | SqlType::Oid | SqlType::Xid | SqlType::Reg(_) => return Ok(a.expr),
                ty if ty.is_integer() => SqlType::Int8,
                _ => SqlType::Text,
            };
            Ok(self.coerce(a, to, -1, CastContext::Explicit)?.expr)
        });
        let args = args.collect::<Result<_>>()?;
        let call = Expr::Call(Func::Session(SessionFunc::Catalog(at)), args);
        Ok(Typed::new(call, function.returns))
    }

    /// `x = ANY (array)` and the like, of an array that is not written out.
    pub fn in_array(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed> {
        let mut array = self.expr(right)?;
        let Some(op) = super::comparison(op) else {
            return self.of_each(left, op, array, all);
        };
        // Bound once: a nest of these would take time exponential in its depth otherwise.
        let left = self.expr(left)?;
        if array.ty == SqlType::Unknown {
            // One of what is on the left.
            let element = match left.ty {
                ty if ty.is_string() || ty == SqlType::Unknown => SqlType::Text,
                ty => ty,
            };
            if let Some(element) = Element::of(element) {
                array = self.coerce(array, SqlType::Array(element), -1, CastContext::Implicit)?;
            }
        }
        match element_of(array.ty) {
            Some(element) => self.quantified(left, op, array, element, all),
            None => Err(Error::new(
                "42809",
                "op ANY/ALL (array) requires array on right side",
            )),
        }
    }

    /// An element or a slice of an array.
    pub(super) fn element(&self, array: &ast::Expr, path: &[AccessExpr]) -> Result<Typed> {
        // `t.c[1]`: the name goes on.
        if let (
            ast::Expr::Identifier(table),
            [AccessExpr::Dot(ast::Expr::Identifier(c)), rest @ ..],
        ) = (array, path)
        {
            let column = ast::Expr::CompoundIdentifier(vec![table.clone(), c.clone()]);
            return match rest {
                [] => self.expr(&column),
                rest => self.element(&column, rest),
            };
        }
        let value = self.settle(self.expr(array)?)?;
        if let (SqlType::Expanded, [AccessExpr::Dot(ast::Expr::Identifier(field))]) =
            (value.ty, path)
        {
            return self.field(value, &names::ident(field));
        }
        self.part(value, path)
    }
}

/// The operator that `OPERATOR(pg_catalog.name)` names.
pub fn custom_operator(path: &[String]) -> Result<BinaryOperator> {
    let name = path.last().map(String::as_str).unwrap_or_default();
    Ok(match name {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "~~*" => BinaryOperator::PGILikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "!~~*" => BinaryOperator::PGNotILikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        ">" => BinaryOperator::Gt,
        "<=" => BinaryOperator::LtEq,
        ">=" => BinaryOperator::GtEq,
        "+" => BinaryOperator::Plus,
        "-" => BinaryOperator::Minus,
        "*" => BinaryOperator::Multiply,
        "/" => BinaryOperator::Divide,
        "%" => BinaryOperator::Modulo,
        "||" => BinaryOperator::StringConcat,
        "->" => BinaryOperator::Arrow,
        "->>" => BinaryOperator::LongArrow,
        "#>" => BinaryOperator::HashArrow,
        "#>>" => BinaryOperator::HashLongArrow,
        "@>" => BinaryOperator::AtArrow,
        "<@" => BinaryOperator::ArrowAt,
        "?" => BinaryOperator::Question,
        "?|" => BinaryOperator::QuestionPipe,
        "?&" => BinaryOperator::QuestionAnd,
        "#-" => BinaryOperator::HashMinus,
        "^@" => BinaryOperator::PGStartsWith,
        other => return Err(Error::unsupported(format!("operator {other}"))),
    })
}
