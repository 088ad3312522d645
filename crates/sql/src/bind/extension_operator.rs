//! Operators of extensions: which function of one the types of the operands mean.

use std::sync::Arc;

use sqlparser::ast;

use super::call::conversion_cost;
use super::{Binder, Called, Typed};
use crate::dict::path::PG_CATALOG;
use crate::dict::{Dict, Function};
use crate::error::Result;
use crate::expr::cast::CastContext;
use crate::extensions;
use crate::types::SqlType;

/// The functions behind the operators of a symbol that are in a schema, or that the path leads to.
fn functions_of(dict: &Dict, schema: Option<&str>, symbol: &str) -> Vec<Arc<Function>> {
    let mut found = Vec::new();
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
    /// `OPERATOR(schema.symbol)` of an extension; `None`: none is meant.
    pub(super) fn qualified_operator(
        &self,
        left: &ast::Expr,
        path: &[String],
        right: &ast::Expr,
    ) -> Result<Option<Typed>> {
        let [schema, symbol] = path else {
            return Ok(None);
        };
        if schema == "pg_catalog" || extensions::operators(symbol).next().is_none() {
            return Ok(None);
        }
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        self.extension_operator(Some(schema), symbol, &left, &right)
    }

    /// An operator between two operands that an extension has, in a schema or on the path; `None`:
    /// none is meant.
    pub(super) fn extension_operator(
        &self,
        schema: Option<&str>,
        symbol: &str,
        left: &Typed,
        right: &Typed,
    ) -> Result<Option<Typed>> {
        if extensions::operators(symbol).next().is_none() {
            return Ok(None);
        }
        let Some(dict) = self.params.sight.dict() else {
            return Ok(None);
        };
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
        let Some((_, function)) = fitting.min_by_key(|(cost, f)| (*cost, f.oid)) else {
            return Ok(None);
        };
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
            Some(value) => Ok(Some(value)),
            None => self.value_of_call(called).map(Some),
        }
    }
}
