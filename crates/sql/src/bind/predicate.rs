//! Conditions and CASE.

use datafusion::sql::sqlparser::ast::{self, CaseWhen, Value};

use super::{Binder, Typed, common_type};
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::{CmpOp, Expr};
use crate::types::SqlType;

impl Binder<'_> {
    pub(super) fn is_null(&self, e: &ast::Expr, negated: bool) -> Result<Typed> {
        let operand = self.settle(self.expr(e)?)?;
        Ok(Typed::new(
            Expr::IsNull {
                expr: Box::new(operand.expr),
                negated,
            },
            SqlType::Bool,
        ))
    }

    pub(super) fn is_bool(
        &self,
        e: &ast::Expr,
        value: Option<bool>,
        negated: bool,
    ) -> Result<Typed> {
        let operand = self.boolean(self.expr(e)?, "IS")?;
        Ok(Typed::new(
            Expr::IsBool {
                expr: Box::new(operand),
                value,
                negated,
            },
            SqlType::Bool,
        ))
    }

    pub(super) fn distinct(
        &self,
        left: &ast::Expr,
        right: &ast::Expr,
        negated: bool,
    ) -> Result<Typed> {
        let (left, right) = self.unify(self.expr(left)?, self.expr(right)?, "IS DISTINCT FROM")?;
        Ok(Typed::new(
            Expr::Distinct {
                left: Box::new(left.expr),
                right: Box::new(right.expr),
                negated,
            },
            SqlType::Bool,
        ))
    }

    pub(super) fn in_list(
        &self,
        e: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
    ) -> Result<Typed> {
        let operand = self.expr(e)?;
        let items = list
            .iter()
            .map(|i| self.expr(i))
            .collect::<Result<Vec<_>>>()?;
        let all_integers = operand.ty.is_integer() && items.iter().all(|i| i.ty.is_integer());
        if all_integers {
            let list = items.into_iter().map(|i| i.expr).collect();
            return Ok(Typed::new(
                Expr::in_list(operand.expr, list, negated),
                SqlType::Bool,
            ));
        }
        let of_operand = operand.ty;
        let items = items
            .into_iter()
            .map(|i| match of_operand == SqlType::Char && i.ty.is_string() {
                // Unlike beside an operator, a text among others is of the operand's type.
                true => {
                    let padded = self.coerce(i, SqlType::Char, -1, CastContext::Implicit)?;
                    self.unpadded(padded, of_operand)
                }
                false => self.unpadded(i, of_operand),
            })
            .collect::<Result<Vec<_>>>()?;
        let operand = self.unpadded(operand, SqlType::Text)?;
        let mut types = vec![operand.ty];
        types.extend(items.iter().map(|i| i.ty));
        let ty = common_type(&types, "IN")?;
        let operand = self.compared(operand, ty)?;
        let list = items
            .into_iter()
            .map(|i| Ok(self.compared(i, ty)?.expr))
            .collect::<Result<_>>()?;
        Ok(Typed::new(
            Expr::in_list(operand.expr, list, negated),
            SqlType::Bool,
        ))
    }

    pub(super) fn between(
        &self,
        e: &ast::Expr,
        negated: bool,
        low: &ast::Expr,
        high: &ast::Expr,
    ) -> Result<Typed> {
        let operand = self.expr(e)?;
        let (low_op, high_op) = if negated {
            (CmpOp::Lt, CmpOp::Gt)
        } else {
            (CmpOp::Ge, CmpOp::Le)
        };
        let low = self.compare(low_op, operand.clone(), self.expr(low)?)?.expr;
        let high = self.compare(high_op, operand, self.expr(high)?)?.expr;
        let both = vec![low, high];
        Ok(Typed::new(
            if negated {
                Expr::Or(both)
            } else {
                Expr::And(both)
            },
            SqlType::Bool,
        ))
    }

    pub(super) fn like(
        &self,
        e: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&Value>,
        fold_case: bool,
        negated: bool,
    ) -> Result<Typed> {
        let as_text = |e: &ast::Expr| -> Result<Expr> {
            let t = self.expr(e)?;
            if !t.ty.is_string() {
                return Err(Error::new(
                    "42883",
                    format!("operator does not exist: {} ~~ text", t.ty.name()),
                ));
            }
            // A blank-padded string is matched with its padding.
            if t.ty == SqlType::Char {
                return Ok(t.expr);
            }
            Ok(self
                .coerce(t, SqlType::Text, -1, CastContext::Implicit)?
                .expr)
        };
        let escape = match escape {
            None => Some('\\'),
            Some(Value::SingleQuotedString(s)) => {
                let mut chars = s.chars();
                match (chars.next(), chars.next()) {
                    (c, None) => c,
                    _ => {
                        return Err(Error::new("22025", "invalid escape string")
                            .hint("Escape string must be empty or one character."));
                    }
                }
            }
            Some(other) => return Err(Error::unsupported(format!("ESCAPE {other}"))),
        };
        let (expr, pattern) = (Box::new(as_text(e)?), Box::new(as_text(pattern)?));
        Ok(Typed::new(
            Expr::Like {
                expr,
                pattern,
                escape,
                fold_case,
                negated,
            },
            SqlType::Bool,
        ))
    }

    pub(super) fn case(
        &self,
        operand: Option<&ast::Expr>,
        whens: &[CaseWhen],
        otherwise: Option<&ast::Expr>,
    ) -> Result<Typed> {
        let mut conditions = Vec::with_capacity(whens.len());
        let mut results = Vec::with_capacity(whens.len() + 1);
        for when in whens {
            conditions.push(match operand {
                Some(o) => {
                    self.compare(CmpOp::Eq, self.expr(o)?, self.expr(&when.condition)?)?
                        .expr
                }
                None => self.boolean(self.expr(&when.condition)?, "CASE/WHEN")?,
            });
            results.push(self.expr(&when.result)?);
        }
        if let Some(e) = otherwise {
            results.push(self.expr(e)?);
        }
        let ty = common_type(&results.iter().map(|r| r.ty).collect::<Vec<_>>(), "CASE")?;
        let mut results = results
            .into_iter()
            .map(|r| Ok(self.coerce(r, ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<Vec<_>>>()?;
        let otherwise = if otherwise.is_some() {
            results.pop().map(Box::new)
        } else {
            None
        };
        let branches = conditions.into_iter().zip(results).collect();
        Ok(Typed::new(
            Expr::Case {
                branches,
                otherwise,
            },
            ty,
        ))
    }
}
