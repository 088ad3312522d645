//! `(start, end) OVERLAPS (start, end)`, whose ends may be intervals from the start.

use sqlparser::ast;

use super::coerce::fold;
use super::{Binder, Typed};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::{ArithOp, Expr, Func};
use crate::types::SqlType;

/// The types of points in time that spans may have, the preferred one first.
const POINTS: [SqlType; 3] = [SqlType::TimestampTz, SqlType::Timestamp, SqlType::Time];

/// The values of a row that is written out.
fn written(row: &ast::Expr) -> Vec<&ast::Expr> {
    match row {
        ast::Expr::Tuple(values) => values.iter().collect(),
        ast::Expr::Nested(inner) => written(inner),
        ast::Expr::Function(f) => {
            let args = super::row_constructor(f).unwrap_or_default().iter();
            let values = args.filter_map(|arg| match arg {
                ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)) => Some(e),
                _ => None,
            });
            values.collect()
        }
        _ => Vec::new(),
    }
}

impl Binder<'_> {
    pub(super) fn overlaps(&self, left: &ast::Expr, right: &ast::Expr) -> Result<Typed> {
        let ends = |row: &ast::Expr, side: &str| match written(row).as_slice() {
            [start, end] => [start, end].into_iter().map(|e| self.expr(e)).collect(),
            _ => {
                let message =
                    format!("wrong number of parameters on {side} side of OVERLAPS expression");
                Err(Error::new("42601", message))
            }
        };
        let mut args: Vec<Typed> = ends(left, "left")?;
        args.extend(ends(right, "right")?);
        self.overlapping(args)
    }

    /// The function `overlaps` of two starts, each with its end.
    pub(super) fn overlapping(&self, args: Vec<Typed>) -> Result<Typed> {
        let cost = |point: SqlType| {
            let mut sum = 0;
            for (at, arg) in args.iter().enumerate() {
                sum += match super::call::conversion_cost(arg.ty, point) {
                    Some(cost) => cost,
                    None if at % 2 == 1 && arg.ty == SqlType::Interval => 0,
                    None => return None,
                };
            }
            Some(sum)
        };
        let fitting = POINTS.into_iter().filter_map(|p| Some((cost(p)?, p)));
        let point = match fitting.min_by_key(|(cost, _)| *cost) {
            Some((_, point)) if args.len() == 4 => point,
            _ => {
                let types: Vec<&str> = args.iter().map(|a| a.ty.name()).collect();
                let message = format!(
                    "function pg_catalog.overlaps({}) does not exist",
                    types.join(", ")
                );
                return Err(Error::new("42883", message).hint(
                    "No function matches the given name and argument types. You might need to \
                     add explicit type casts.",
                ));
            }
        };
        let mut ends: Vec<Typed> = Vec::with_capacity(4);
        for (at, arg) in args.into_iter().enumerate() {
            let end = match (at % 2, arg.ty, ends.last()) {
                (1, SqlType::Interval, Some(start)) => {
                    self.arith(ArithOp::Add, start.clone(), arg)?
                }
                _ => self.coerce(arg, point, -1, CastContext::Implicit)?,
            };
            ends.push(end);
        }
        let ends = ends.into_iter().map(|e| e.expr).collect();
        let call = Expr::Call(Func::Pure(PureFunc::Overlaps), ends);
        Ok(Typed::new(fold(call)?, SqlType::Bool))
    }
}
