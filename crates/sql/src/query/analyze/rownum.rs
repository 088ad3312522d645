//! Oracle's `ROWNUM` as a condition of WHERE: how many rows there are before anything orders or
//! groups them.
//!
//! **Invariant.** A name `rownum` is this only if no column or variable in sight has it, and it is
//! not quoted.

use sqlparser::ast::{self, BinaryOperator, GroupByExpr, Query};

use super::Analyzer;
use super::expression::Clause;
use super::scope::Scope;
use crate::bind::names;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::types::SqlType;

/// A WHERE without its conditions of ROWNUM, and the expressions that limit it.
#[derive(Default)]
pub struct Taken {
    pub rest: Option<ast::Expr>,
    limits: Vec<ast::Expr>,
}

impl Analyzer<'_> {
    /// Takes the conditions of ROWNUM out of a WHERE; `None`: there are none.
    pub fn rownum_of(&self, selection: &ast::Expr, scope: &Scope<'_>) -> Result<Option<Taken>> {
        let mut parts = Vec::new();
        conjuncts(selection, &mut parts);
        if !parts.iter().any(|part| sides(part).is_some()) {
            return Ok(None);
        }
        let path = ["rownum".to_string()];
        let is_none = matches!(scope.resolve(None, "rownum"), Err(e) if e.sqlstate() == "42703");
        if !is_none || self.params.sees_variable(&path)? {
            return Ok(None);
        }
        let mut taken = Taken::default();
        for part in parts {
            match sides(part) {
                Some((op, bound)) => taken.limits.push(limit(&op, bound)?),
                None => {
                    let rest = taken.rest.take();
                    taken.rest = Some(match rest {
                        None => part.clone(),
                        Some(rest) => ast::Expr::BinaryOp {
                            left: Box::new(rest),
                            op: BinaryOperator::And,
                            right: Box::new(part.clone()),
                        },
                    });
                }
            }
        }
        Ok(Some(taken))
    }

    /// The limit of a level. `is_plain`: nothing orders or groups its rows, or computes over them.
    pub fn rownum_limit(
        &self,
        taken: &Taken,
        clause: &Clause<'_>,
        is_plain: bool,
    ) -> Result<Option<Expr>> {
        if taken.limits.is_empty() {
            return Ok(None);
        }
        if !is_plain {
            return Err(Error::unsupported(
                "ROWNUM beside ORDER BY, DISTINCT, LIMIT, groups, aggregates or windows",
            )
            .hint("Write the query in parentheses in FROM, and ROWNUM around it or within it."));
        }
        let binder = clause.binder();
        let bound = taken
            .limits
            .iter()
            .map(|e| binder.coerce(binder.expr(e)?, SqlType::Int8, -1, CastContext::Explicit));
        let bound = bound.collect::<Result<Vec<_>>>()?;
        binder.call("least", bound).map(|least| Some(least.expr))
    }
}

/// Whether nothing but conditions and results is in a query.
pub fn is_plain(s: &ast::Select, q: &Query) -> bool {
    let groups = !matches!(&s.group_by, GroupByExpr::Expressions(list, _) if list.is_empty());
    let ordered = q.order_by.is_some() || q.limit_clause.is_some() || q.fetch.is_some();
    !groups && !ordered && s.distinct.is_none() && s.having.is_none()
}

fn conjuncts<'e>(e: &'e ast::Expr, parts: &mut Vec<&'e ast::Expr>) {
    match e {
        ast::Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            conjuncts(left, parts);
            conjuncts(right, parts);
        }
        ast::Expr::Nested(inner) => conjuncts(inner, parts),
        other => parts.push(other),
    }
}

/// A comparison of ROWNUM with something, as if ROWNUM stood on the left.
fn sides(e: &ast::Expr) -> Option<(BinaryOperator, &ast::Expr)> {
    let ast::Expr::BinaryOp { left, op, right } = e else {
        return None;
    };
    let is_rownum = |e: &ast::Expr| {
        matches!(e, ast::Expr::Identifier(i)
            if i.quote_style.is_none() && names::ident(i) == "rownum")
    };
    if is_rownum(left) {
        return Some((op.clone(), right));
    }
    let turned = match op {
        BinaryOperator::Lt => BinaryOperator::Gt,
        BinaryOperator::LtEq => BinaryOperator::GtEq,
        BinaryOperator::Gt => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::LtEq,
        other => other.clone(),
    };
    is_rownum(right).then_some((turned, left))
}

/// The number of rows that a comparison leaves. The first row has number 1; without it there is no
/// second one.
fn limit(op: &BinaryOperator, bound: &ast::Expr) -> Result<ast::Expr> {
    let written = match op {
        BinaryOperator::LtEq => format!("greatest(floor({bound}), 0)"),
        BinaryOperator::Lt => format!("greatest(ceil({bound}) - 1, 0)"),
        BinaryOperator::Eq => format!("case when {bound} = 1 then 1 else 0 end"),
        _ => {
            return Err(Error::unsupported(format!("ROWNUM {op} {bound}"))
                .hint("There are ROWNUM <= n, ROWNUM < n and ROWNUM = 1."));
        }
    };
    crate::parse::expression(&written)
}
