//! Calls of the functions behind operators: `int4pl(1, 2)` is `1 + 2`.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments};

use super::call::conversion_cost;
use super::{Binder, Typed, element_of, probe};
use crate::error::Result;
use crate::expr::func::overloads;
use crate::parse;
use crate::types::SqlType;
use crate::views::built_in::operators::{self, Operator};
use crate::views::functions;

impl Binder<'_> {
    /// The call as its operator, if a function of that name is behind one and no other has the
    /// name.
    pub(super) fn operator_call(&self, name: &str, f: &ast::Function) -> Result<Option<Typed>> {
        let behind = |o: &&Operator| o.function_name == name;
        let taken = !overloads(name).is_empty() || functions::find(name).is_some();
        if taken || !operators::KNOWN.iter().any(|o| behind(&o)) {
            return Ok(None);
        }
        let Some(args) = plain_arguments(f) else {
            return Ok(None);
        };
        let types = args.iter().map(|a| Ok(self.expr(a)?.ty));
        let types = types.collect::<Result<Vec<SqlType>>>()?;
        let candidates = operators::KNOWN.iter().filter(behind);
        let costs = candidates.filter_map(|o| Some((cost(o, &types)?, o)));
        let Some((_, chosen)) = costs.min_by_key(|(cost, _)| *cost) else {
            return Ok(None);
        };
        let wanted = wanted(chosen);
        let sides = args.iter().zip(&types).zip(wanted);
        let sides = sides
            .map(|((arg, ty), number)| side(arg, *ty, number))
            .collect::<Result<Vec<_>>>()?;
        match operation(chosen, sides) {
            Some(e) => self.expr(&e).map(Some),
            None => Ok(None),
        }
    }
}

fn plain_arguments(f: &ast::Function) -> Option<Vec<&ast::Expr>> {
    let FunctionArguments::List(list) = &f.args else {
        return None;
    };
    let plain = list.duplicate_treatment.is_none() && list.clauses.is_empty();
    let argument = |a| match a {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref e)) => Some(e),
        _ => None,
    };
    let args = list.args.iter().map(argument).collect::<Option<Vec<_>>>();
    args.filter(|_| plain)
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

/// An argument as a side of the operator, of the type that it takes there.
fn side(arg: &ast::Expr, ty: SqlType, number: u32) -> Result<ast::Expr> {
    let nested = ast::Expr::Nested(Box::new(arg.clone()));
    Ok(match SqlType::from_oid(number) {
        Some(to) if to != ty => ast::Expr::Cast {
            kind: ast::CastKind::DoubleColon,
            expr: Box::new(nested),
            data_type: parse::data_type(to.name())?,
            array: false,
            format: None,
        },
        _ => nested,
    })
}

/// The operator between its sides.
fn operation(o: &Operator, mut sides: Vec<ast::Expr>) -> Option<ast::Expr> {
    let right = Box::new(sides.pop()?);
    match (
        probe::written(o.name, o.left != 0)?,
        sides.pop().map(Box::new),
    ) {
        (ast::Expr::BinaryOp { op, .. }, Some(left)) => {
            Some(ast::Expr::BinaryOp { left, op, right })
        }
        (ast::Expr::UnaryOp { op, .. }, None) => Some(ast::Expr::UnaryOp { op, expr: right }),
        _ => None,
    }
}
