//! What clients ask the catalogs with, beyond SQL's own types: `regclass` and its kin, functions
//! over the catalogs, and their columns of arrays, which are texts here.
//!
//! A value of a `reg` type is the number of an object where a number is wanted, and its name
//! elsewhere: what a cast to such a type became is known by the function that it became.

use sqlparser::ast::{
    self, AccessExpr, ArrayElemTypeDef, BinaryOperator, DataType, FunctionArguments,
    ObjectNamePart, Subscript,
};

use super::{Binder, Typed, element_of, names, parts};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::SessionFunc;
use crate::expr::{Expr, Func};
use crate::types::SqlType;
use crate::views::functions::{
    self, ARRAY_CAT, ARRAY_ELEMENT, ARRAY_HAS, FORMAT_TYPE, REGCLASS_NAME, REGCLASS_OID,
    REGNAMESPACE_NAME, REGNAMESPACE_OID, REGTYPE_OID,
};

/// The name of a type that is not one of SQL's own.
fn custom_type(t: &DataType) -> Option<String> {
    match t {
        DataType::Custom(name, _) => match name.0.last() {
            Some(ObjectNamePart::Identifier(i)) => Some(names::ident(i)),
            _ => None,
        },
        DataType::Regclass => Some("regclass".to_string()),
        _ => None,
    }
}

/// The function and its arguments, if an expression is a call of one over the catalogs.
fn called(e: &Expr) -> Option<(&'static str, &[Expr])> {
    match e {
        Expr::Call(Func::Session(SessionFunc::Catalog(at)), args) => {
            Some((functions::ALL.get(*at)?.name, args))
        }
        _ => None,
    }
}

/// The number behind what a cast to a `reg` type became.
fn number_of(e: &Expr) -> Option<Typed> {
    let expr = match called(e)? {
        (REGCLASS_OID | REGTYPE_OID | REGNAMESPACE_OID, _) => e.clone(),
        (REGCLASS_NAME | REGNAMESPACE_NAME, [number, ..]) => number.clone(),
        _ => return None,
    };
    Some(Typed::new(expr, SqlType::Oid))
}

impl Binder<'_> {
    /// A cast to or from a type of the catalogs, or to an array of some type.
    pub(super) fn catalog_cast(&self, e: &ast::Expr, to: &DataType) -> Result<Option<Typed>> {
        if let DataType::Array(ArrayElemTypeDef::SquareBracket(..)) = to {
            return self.cast_to_array(e, to);
        }
        let name = custom_type(to);
        let (of_name, of_number): (&str, &str) = match name.as_deref() {
            Some("regclass") => (REGCLASS_OID, REGCLASS_NAME),
            Some("regtype") => (REGTYPE_OID, FORMAT_TYPE),
            Some("regnamespace") => (REGNAMESPACE_OID, REGNAMESPACE_NAME),
            Some(
                "regproc" | "regprocedure" | "regoper" | "regoperator" | "regrole" | "char"
                | "cstring" | "int2vector" | "oidvector" | "aclitem",
            ) => {
                let inner = self.expr(e)?;
                let text = self.coerce(inner, SqlType::Text, -1, CastContext::Explicit)?;
                return Ok(Some(text));
            }
            Some("xid" | "cid") => {
                let inner = self.expr(e)?;
                let number = self.coerce(inner, SqlType::Oid, -1, CastContext::Explicit)?;
                return Ok(Some(number));
            }
            _ => return self.cast_of_catalog(e, to),
        };
        let inner = self.settle(self.expr(e)?)?;
        if inner.ty.is_string() {
            return self.catalog_call(of_name, vec![inner]).map(Some);
        }
        let mut args = vec![number_of(&inner.expr).unwrap_or(inner)];
        if of_number == FORMAT_TYPE {
            let null = Typed::literal(block::value::Datum::Null, SqlType::Int8);
            args.push(null);
        }
        self.catalog_call(of_number, args).map(Some)
    }

    /// To an array of one of SQL's own types, as other casts are; `None`. To one of another type
    /// texts, which catalogs have for arrays, are passed on.
    fn cast_to_array(&self, e: &ast::Expr, to: &DataType) -> Result<Option<Typed>> {
        let known = parts::data_type(to).is_ok();
        if known && matches!(e, ast::Expr::Array(_)) {
            return Ok(None);
        }
        let inner = self.expr(e)?;
        if known {
            let (ty, typmod) = parts::data_type(to)?;
            return self
                .coerce(inner, ty, typmod, CastContext::Explicit)
                .map(Some);
        }
        let inner = self.settle(inner)?;
        match inner.ty.is_string() {
            true => Ok(Some(inner)),
            false => Err(Error::unsupported(format!("a cast to {to}"))),
        }
    }

    /// A cast to one of SQL's own types of what is a cast itself, maybe to a `reg` type.
    fn cast_of_catalog(&self, e: &ast::Expr, to: &DataType) -> Result<Option<Typed>> {
        let is_cast = |e: &ast::Expr| matches!(e, ast::Expr::Cast { .. } | ast::Expr::Nested(_));
        if !is_cast(e) {
            return Ok(None);
        }
        // Bound once, and never again by the caller: casts nest deeply.
        let inner = self.expr(e)?;
        let (ty, typmod) = parts::data_type(to)?;
        let value = match number_of(&inner.expr) {
            None => inner,
            Some(_) if ty.is_string() => self.named(inner)?,
            Some(number) => number,
        };
        self.coerce(value, ty, typmod, CastContext::Explicit)
            .map(Some)
    }

    /// A value of a `reg` type as its name; any other as it is.
    pub fn named(&self, value: Typed) -> Result<Typed> {
        let of_number = match called(&value.expr) {
            Some((REGCLASS_OID, _)) => REGCLASS_NAME,
            Some((REGNAMESPACE_OID, _)) => REGNAMESPACE_NAME,
            Some((REGTYPE_OID, _)) => FORMAT_TYPE,
            _ => return Ok(value),
        };
        let mut args = vec![value];
        if of_number == FORMAT_TYPE {
            args.push(Typed::literal(block::value::Datum::Null, SqlType::Int8));
        }
        self.catalog_call(of_number, args)
    }

    /// What a function of text is given: of a name that was cast to `regclass` the name.
    pub(super) fn name_as_argument(&self, value: Typed) -> Typed {
        match called(&value.expr) {
            Some((REGCLASS_OID, [name])) => Typed::new(name.clone(), SqlType::Text),
            _ => value,
        }
    }

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
                SqlType::Bool | SqlType::Oid => return Ok(a.expr),
                ty if ty.is_integer() => SqlType::Int8,
                _ => SqlType::Text,
            };
            Ok(self.coerce(a, to, -1, CastContext::Explicit)?.expr)
        });
        let args = args.collect::<Result<_>>()?;
        let call = Expr::Call(Func::Session(SessionFunc::Catalog(at)), args);
        Ok(Typed::new(call, function.returns))
    }

    /// `x = ANY (array)` or `x <> ALL (array)` of an array that is a column of a catalog, or comes
    /// from a function.
    pub fn in_array(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Typed> {
        let array = self.expr(right)?;
        if let (Some(element), Some(op)) = (element_of(array.ty), super::comparison(op)) {
            return self.quantified(self.expr(left)?, op, array, element, all);
        }
        let negated = match (op, all) {
            (BinaryOperator::Eq, false) => false,
            (BinaryOperator::NotEq, true) => true,
            _ => {
                return Err(Error::unsupported(
                    "ANY and ALL of an array but with = and <>",
                ));
            }
        };
        let array = self.settle(array)?;
        if !array.ty.is_string() {
            return Err(Error::new(
                "42809",
                "op ANY/ALL (array) requires array on right side",
            ));
        }
        let left = self.expr(left)?;
        let left = self.coerce(left, SqlType::Text, -1, CastContext::Explicit)?;
        let has = self.catalog_call(ARRAY_HAS, vec![left, array])?;
        Ok(match negated {
            true => Typed::new(Expr::Not(Box::new(has.expr)), SqlType::Bool),
            false => has,
        })
    }

    /// An element of an array in text form. What it is compared with says of what type it is.
    pub(super) fn element(&self, array: &ast::Expr, path: &[AccessExpr]) -> Result<Typed> {
        let value = self.settle(self.expr(array)?)?;
        if !value.ty.is_string() {
            return self.subscripted(value, path);
        }
        let [AccessExpr::Subscript(Subscript::Index { index })] = path else {
            return Err(Error::unsupported("fields and slices of values"));
        };
        let index = self.coerce(
            self.expr(index)?,
            SqlType::Int4,
            -1,
            CastContext::Assignment,
        )?;
        let found = self.catalog_call(ARRAY_ELEMENT, vec![value, index])?;
        Ok(Typed::new(found.expr, SqlType::Unknown))
    }

    /// `||` of arrays.
    pub(super) fn array_concat(&self, left: Typed, right: Typed) -> Result<Typed> {
        self.catalog_call(ARRAY_CAT, vec![left, right])
    }
}

/// Whether an operand of `||` is an array, in whatever form.
pub fn is_array(e: &ast::Expr) -> bool {
    match e {
        ast::Expr::Function(f) => matches!(f.args, FunctionArguments::Subquery(_)),
        ast::Expr::Array(_) => true,
        ast::Expr::Nested(inner) => is_array(inner),
        _ => false,
    }
}

/// The operator that `OPERATOR(schema.name)` names.
pub fn custom_operator(path: &[String]) -> Result<BinaryOperator> {
    let name = path.last().map(String::as_str).unwrap_or_default();
    if let [schema, _] = path
        && !schema.eq_ignore_ascii_case("pg_catalog")
    {
        return Err(Error::new(
            "3F000",
            format!("schema \"{schema}\" does not exist"),
        ));
    }
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
        other => return Err(Error::unsupported(format!("operator {other}"))),
    })
}
