//! Calls of the functions behind operators: `int4pl(1, 2)` is `1 + 2`.

use sqlparser::ast::{self, Value};

use super::call::conversion_cost;
use super::{Binder, Groups, Typed, element_of, probe};
use crate::error::Result;
use crate::expr::cast::CastContext;
use crate::expr::func::overloads;
use crate::types::SqlType;
use crate::views::built_in::operators::{self, Operator};
use crate::views::functions;

/// Whether a function is known by the operator that it is behind, and no other way.
pub(super) fn is_behind_operator(name: &str) -> bool {
    let taken = !overloads(name).is_empty() || functions::find(name).is_some();
    !taken && operators::KNOWN.iter().any(|o| o.function_name == name)
}

impl Binder<'_> {
    /// The call of a function that [`is_behind_operator`], as its operator; `None`: there is none
    /// for such arguments.
    pub(super) fn operator_call(&self, name: &str, args: Vec<Typed>) -> Result<Option<Typed>> {
        let types: Vec<SqlType> = args.iter().map(|arg| arg.ty).collect();
        let candidates = (operators::KNOWN.iter()).filter(|o| o.function_name == name);
        let costs = candidates.filter_map(|o| Some((cost(o, &types)?, o)));
        let Some((_, chosen)) = costs.min_by_key(|(cost, _)| *cost) else {
            return Ok(None);
        };
        let Some(operator) = probe::written(chosen.name, chosen.left != 0) else {
            return Ok(None);
        };
        let sides = args.into_iter().zip(wanted(chosen));
        let sides = sides.map(|(arg, number)| match SqlType::from_oid(number) {
            Some(to) if to != arg.ty => self.coerce(arg, to, -1, CastContext::Explicit),
            _ => Ok(arg),
        });
        let operands = Operands(sides.collect::<Result<_>>()?);
        let binder = Binder {
            groups: Some(&operands),
            ..Binder::new(self.scope, self.params, self.clause)
        };
        binder.expr(&operator).map(Some)
    }
}

/// What `$1` and `$2` of an operator stand for, bound already: bound anew with each call around
/// it, a nest of calls would take time exponential in its depth.
pub(super) struct Operands(pub(super) Vec<Typed>);

impl Groups for Operands {
    fn lookup(&self, e: &ast::Expr) -> Result<Option<Typed>> {
        let ast::Expr::Value(value) = e else {
            return Ok(None);
        };
        let Value::Placeholder(name) = &value.value else {
            return Ok(None);
        };
        Ok(match name.as_str() {
            "$1" => self.0.first().cloned(),
            "$2" => self.0.get(1).cloned(),
            _ => None,
        })
    }

    fn whole_row(&self, _table: &str) -> Result<Option<Typed>> {
        Ok(None)
    }
}

/// The numbers of the types of the sides that there are.
fn wanted(o: &Operator) -> Vec<u32> {
    [o.left, o.right].into_iter().filter(|t| *t != 0).collect()
}

/// How far values are from what an operator takes; `None`: it takes others.
fn cost(o: &Operator, types: &[SqlType]) -> Option<usize> {
    let wanted = wanted(o);
    if wanted.len() != types.len() {
        return None;
    }
    let each = types.iter().zip(wanted);
    each.map(|(ty, number)| match SqlType::from_oid(number) {
        Some(to) => conversion_cost(*ty, to),
        None if is_any_array(number) => element_of(*ty).map(|_| 1),
        None => Some(1),
    })
    .sum()
}

fn is_any_array(number: u32) -> bool {
    matches!(number, 2277 | 5078)
}
