//! Operators of extensions: which function of one the types of the operands mean.

use std::sync::Arc;

use sqlparser::ast;

use super::call::conversion_cost;
use super::numbered::number_in;
use super::numbered_operator::{schema_of, symbol_of};
use super::{Binder, Called, Typed, names};
use crate::dict::path::PG_CATALOG;
use crate::dict::{Dict, Function};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::extensions;
use crate::types::SqlType;

/// The functions behind the operators of a symbol that are in a schema, or that the path leads to.
/// In the place of a schema the number of a function may stand.
fn functions_of(dict: &Dict, schema: Option<&str>, symbol: &str) -> Vec<Arc<Function>> {
    let mut found = Vec::new();
    if let Some(number) = schema.and_then(number_in) {
        let function = dict.function_by_oid(number);
        found.extend(function.filter(|f| f.extension.is_some()).cloned());
        return found;
    }
    for operator in extensions::operators(symbol) {
        let Some(extension) = dict.extension(operator.extension) else {
            continue;
        };
        let own = dict.schema_name(extension.schema);
        let is_meant = match schema {
            Some(schema) => schema == own,
            None => extension.schema == PG_CATALOG || dict.path().contains(&extension.schema),
        };
        if !is_meant {
            continue;
        }
        let named = dict.functions_named(Some(own), operator.function);
        found.extend(
            named
                .into_iter()
                .filter(|f| f.extension == Some(extension.oid)),
        );
    }
    found
}

impl Binder<'_> {
    /// `OPERATOR(schema.symbol)`; `None`: it is none of an extension.
    pub(super) fn qualified_operator(
        &self,
        (left, op, right): (&ast::Expr, &ast::BinaryOperator, &ast::Expr),
        path: &[String],
    ) -> Result<Option<Typed>> {
        let [schema, symbol] = path else {
            return Ok(None);
        };
        let schema = schema_of(schema);
        if schema == "pg_catalog" {
            return Ok(None);
        }
        let (l, r) = (self.expr(left)?, self.expr(right)?);
        let Some(function) = self.operator_function(Some(&schema), symbol, &l, &r) else {
            return Err(match self.params.sight.has_schema(&schema) {
                true => no_operator(&l, &format!("{schema}.{symbol}"), &r),
                false => names::no_schema(&schema),
            });
        };
        let names = &self.params.names;
        names.note_operator((left, op, right), function.oid);
        self.operated(function, &l, &r).map(Some)
    }

    /// An operator between two operands that an extension has on the path; `None`: none is meant.
    pub(super) fn extension_operator(
        &self,
        (left, op, right): (&ast::Expr, &ast::BinaryOperator, &ast::Expr),
        (l, r): (&Typed, &Typed),
    ) -> Result<Option<Typed>> {
        let Some(function) = self.operator_function(None, &symbol_of(op), l, r) else {
            return Ok(None);
        };
        let names = &self.params.names;
        names.note_operator((left, op, right), function.oid);
        self.operated(function, l, r).map(Some)
    }

    /// The function of an extension that an operator means.
    pub fn operator_meant(
        &self,
        left: &ast::Expr,
        op: &ast::BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Option<Arc<Function>>> {
        let symbol = symbol_of(op);
        let schema = match op {
            ast::BinaryOperator::PGCustomBinaryOperator(path) => match path.as_slice() {
                [schema, _] => Some(schema_of(schema)),
                _ => None,
            },
            _ => None,
        };
        let dict = self.params.sight.dict();
        if dict.is_none_or(|d| functions_of(d, schema.as_deref(), &symbol).is_empty()) {
            return Ok(None);
        }
        let (l, r) = (self.expr(left)?, self.expr(right)?);
        Ok(self.operator_function(schema.as_deref(), &symbol, &l, &r))
    }

    /// The function behind an operator of an extension, in a schema or on the path, that the types
    /// of the operands mean.
    fn operator_function(
        &self,
        schema: Option<&str>,
        symbol: &str,
        left: &Typed,
        right: &Typed,
    ) -> Option<Arc<Function>> {
        extensions::operators(symbol).next()?;
        let dict = self.params.sight.dict()?;
        let cost = |f: &Arc<Function>| {
            let [l, r] = f.arguments.as_slice() else {
                return None;
            };
            let (l, r) = (l.ty(), r.ty());
            let own = |ty: SqlType| matches!(ty, SqlType::Own(_));
            // Beside a literal both operands are of the one type, where there is such an operator.
            match (left.ty, right.ty) {
                (ty, SqlType::Unknown) | (SqlType::Unknown, ty) if l == ty && r == ty => {
                    return Some(0);
                }
                (left, right) if (own(l) || own(r)) && !own(left) && !own(right) => return None,
                _ => {}
            }
            Some(1 + conversion_cost(left.ty, l)? + conversion_cost(right.ty, r)?)
        };
        let functions = functions_of(dict, schema, symbol).into_iter();
        let fitting = functions.filter_map(|f| Some((cost(&f)?, f)));
        let found = fitting.min_by_key(|(cost, f)| (*cost, f.oid));
        found.map(|(_, function)| function)
    }

    /// The value that the function behind an operator gives.
    fn operated(&self, function: Arc<Function>, left: &Typed, right: &Typed) -> Result<Typed> {
        let mut args = Vec::with_capacity(2);
        for (operand, argument) in [left, right].into_iter().zip(&function.arguments) {
            let operand = operand.clone();
            let operand = self.coerce(operand, argument.ty(), -1, CastContext::Implicit)?;
            args.push(operand.expr);
        }
        self.params.sight.note(&function);
        let called = Called {
            function,
            args,
            types: None,
        };
        match self.inlined(&called) {
            Some(value) => Ok(value),
            None => self.value_of_call(called),
        }
    }
}

fn no_operator(left: &Typed, name: &str, right: &Typed) -> Error {
    let (left, right) = (left.ty.name(), right.ty.name());
    let message = format!("operator does not exist: {left} {name} {right}");
    Error::new("42883", message).hint(
        "No operator matches the given name and argument types. You might need to add explicit \
         type casts.",
    )
}
