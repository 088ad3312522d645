//! Conditions and CASE.

use std::cell::Cell;

use block::value::Datum;
use sqlparser::ast::{self, CaseWhen, Value};

use super::array::no_operator;
use super::call::check_determined;
use super::coerce::{common_padding, fold};
use super::json::check_compared;
use super::{Binder, Typed, chosen_type, common_type, is_written_row};
use crate::collate::Derived;
use crate::error::{Error, Result};
use crate::expr::cast::CastContext;
use crate::expr::func::PureFunc;
use crate::expr::{CmpOp, Expr, Func};
use crate::types::SqlType;

/// Two rows that are written out are compared value by value, which the tree lane does.
pub(super) fn refuse_rows(left: &ast::Expr, right: &ast::Expr) -> Result<()> {
    match is_written_row(left) && is_written_row(right) {
        true => Err(Error::unsupported("a comparison of rows here")),
        false => Ok(()),
    }
}

impl Binder<'_> {
    pub(super) fn is_null(&self, e: &ast::Expr, negated: bool) -> Result<Typed> {
        if is_written_row(e) {
            return Err(Error::unsupported("a row tested for NULL here"));
        }
        let operand = self.expr(e)?;
        check_determined(&operand)?;
        let operand = self.settle(operand)?;
        if let SqlType::Composite(_) = operand.ty {
            return self.row_is_null(operand, negated);
        }
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

    /// `IS NORMALIZED` of a text, in a form of Unicode.
    pub(super) fn is_normalized(
        &self,
        e: &ast::Expr,
        form: Option<&ast::NormalizationForm>,
        negated: bool,
    ) -> Result<Typed> {
        let mut args = vec![self.expr(e)?];
        let form = form.map(|f| Datum::Text(f.to_string()));
        args.extend(form.map(|f| Typed::literal(f, SqlType::Text)));
        let found = self.call("is_normalized", args)?;
        Ok(match negated {
            true => Typed::new(Expr::Not(Box::new(found.expr)), SqlType::Bool),
            false => found,
        })
    }

    pub(super) fn distinct(
        &self,
        left: &ast::Expr,
        right: &ast::Expr,
        negated: bool,
    ) -> Result<Typed> {
        refuse_rows(left, right)?;
        let (left, right) = (self.expr(left)?, self.expr(right)?);
        let (lt, rt) = (left.ty, right.ty);
        let (left, right) = (self.unpadded(left, rt)?, self.unpadded(right, lt)?);
        let (left, right) = self.unify(left, right, "IS DISTINCT FROM")?;
        check_compared(left.ty, "=")?;
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
        if is_written_row(e) {
            return Err(Error::unsupported("IN of a row here"));
        }
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
        if let Some(found) = self.in_parts(&operand, &items, negated)? {
            return Ok(found);
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
        let Ok(ty) = common_type(&types, "IN") else {
            // Without a type for all, each is compared by itself, or is not comparable.
            let each = items.into_iter().map(|item| {
                let equal = self.compare(CmpOp::Eq, operand.clone(), item);
                equal.map(|t| t.expr)
            });
            let any = Expr::Or(each.collect::<Result<_>>()?);
            let expr = match negated {
                true => Expr::Not(Box::new(any)),
                false => any,
            };
            return Ok(Typed::new(expr, SqlType::Bool));
        };
        check_compared(ty, if negated { "<>" } else { "=" })?;
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

    /// IN of which PostgreSQL compares some members for themselves: those that depend on the row, beside others of other types, or to which a
    /// literal is compared that takes its type from each.
    fn in_parts(&self, operand: &Typed, items: &[Typed], negated: bool) -> Result<Option<Typed>> {
        let is_own = |t: &Typed| {
            let mut column = false;
            t.expr
                .visit(&mut |e| column |= matches!(e, Expr::Column(_)));
            column
        };
        let (own, together): (Vec<&Typed>, Vec<&Typed>) = items.iter().partition(|i| is_own(i));
        let by_itself = |t: &Typed| match (operand.ty, t.ty) {
            (SqlType::Unknown, SqlType::Char) => true,
            (a, b) => {
                a != b && a.is_number() && b.is_number() && !(a.is_integer() && b.is_integer())
            }
        };
        // One value alone is compared as by an operator, too.
        let single = together.len() == 1 && by_itself(together[0]);
        if !single && !own.iter().any(|i| by_itself(i)) {
            return Ok(None);
        }
        let mut parts = Vec::new();
        let (own, together) = match together.len() {
            1 => (items.iter().collect(), Vec::new()),
            _ => (own, together),
        };
        if !together.is_empty() {
            let mut types = vec![operand.ty];
            types.extend(together.iter().map(|i| i.ty));
            let ty = common_type(&types, "IN")?;
            let list = together
                .into_iter()
                .map(|i| Ok(self.compared(i.clone(), ty)?.expr))
                .collect::<Result<_>>()?;
            let operand = self.compared(operand.clone(), ty)?.expr;
            parts.push(Expr::in_list(operand, list, false));
        }
        for item in own {
            parts.push(self.compare(CmpOp::Eq, operand.clone(), item.clone())?.expr);
        }
        let found = Expr::Or(parts);
        Ok(Some(Typed::new(
            match negated {
                true => Expr::Not(Box::new(found)),
                false => found,
            },
            SqlType::Bool,
        )))
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

    /// `~` and its kin.
    pub(super) fn regex(
        &self,
        e: &ast::Expr,
        pattern: &ast::Expr,
        fold_case: bool,
        negated: bool,
    ) -> Result<Typed> {
        let folds = Cell::new(false);
        let as_text = |t: Typed, is_pattern: bool| -> Result<Expr> {
            folds.set(folds.get() || t.ty.is_citext() && !is_pattern);
            let t = self.coerce(t, SqlType::Text, -1, CastContext::Implicit)?;
            Ok(t.expr)
        };
        let (value, pattern) = (self.expr(e)?, self.expr(pattern)?);
        let symbol = match (fold_case, negated) {
            (false, false) => "~",
            (true, false) => "~*",
            (false, true) => "!~",
            (true, true) => "!~*",
        };
        check_texts(&value, symbol, &pattern)?;
        let args = vec![as_text(value, false)?, as_text(pattern, true)?];
        let func = match fold_case || folds.get() {
            true => PureFunc::RegexFolded,
            false => PureFunc::Regex,
        };
        let found = fold(Expr::Call(Func::Pure(func), args))?;
        let expr = match negated {
            true => Expr::Not(Box::new(found)),
            false => found,
        };
        Ok(Typed::new(expr, SqlType::Bool))
    }

    pub(super) fn similar_to(
        &self,
        e: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ast::ValueWithSpan>,
        negated: bool,
    ) -> Result<Typed> {
        let escape = escape.map(|value| ast::Expr::Value(value.clone()));
        let args = std::iter::once(pattern.clone()).chain(escape);
        let args: Vec<_> = args
            .map(|e| ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(e)))
            .collect();
        let name = ast::ObjectName::from(vec![ast::Ident::new("similar_to_escape")]);
        self.regex(e, &super::call_of(&name, &args), false, negated)
    }

    pub(super) fn like(
        &self,
        e: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&Value>,
        fold_case: bool,
        negated: bool,
    ) -> Result<Typed> {
        let folds = Cell::new(fold_case);
        let (value, pattern) = (self.expr(e)?, self.expr(pattern)?);
        let symbol = match (fold_case, negated) {
            (false, false) => "~~",
            (true, false) => "~~*",
            (false, true) => "!~~",
            (true, true) => "!~~*",
        };
        check_texts(&value, symbol, &pattern)?;
        let as_text = |t: Typed, is_pattern: bool| -> Result<Expr> {
            folds.set(folds.get() || t.ty.is_citext() && !is_pattern);
            // A blank-padded string is matched with its padding, which a pattern loses.
            if t.ty == SqlType::Char && !is_pattern {
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
        let expr = Box::new(as_text(value, false)?);
        let pattern = Box::new(as_text(pattern, true)?);
        Ok(Typed::new(
            Expr::Like {
                expr,
                pattern,
                escape,
                fold_case: folds.get(),
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
                None => {
                    let condition = self.boolean(self.expr(&when.condition)?, "CASE/WHEN");
                    condition.map_err(|e| e.in_expr(&when.condition))?
                }
            });
            results.push(self.expr(&when.result)?);
        }
        if let Some(e) = otherwise {
            results.push(self.expr(e)?);
        }
        // What else there is decides first.
        let mut types: Vec<SqlType> = results.iter().map(|r| r.ty).collect();
        if otherwise.is_some() {
            types.rotate_right(1);
        }
        let ty = chosen_type(&types, "CASE")?;
        let typmod = common_padding(&results);
        let collation = results
            .iter()
            .filter(|r| r.has_collation())
            .try_fold(Derived::default(), |all, r| all.and(r.collation))?;
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
        Ok(Typed {
            expr: Expr::Case {
                branches,
                otherwise,
            },
            ty,
            typmod,
            collation,
        })
    }
}

/// Refuses what an operator of patterns does not take.
fn check_texts(value: &Typed, symbol: &str, pattern: &Typed) -> Result<()> {
    let takes = |t: &Typed| is_text(t.ty) || t.ty.is_citext() || t.ty == SqlType::Unknown;
    match takes(value) && takes(pattern) {
        true => Ok(()),
        false => Err(no_operator(value.ty, symbol, pattern.ty)),
    }
}

/// Whether an operator of patterns takes the type: it is a string's, or becomes one by itself.
fn is_text(ty: SqlType) -> bool {
    ty.is_string() || ty == SqlType::InternalChar
}
