//! Expressions as [`super::rewrite`] builds them: literals with PostgreSQL's types, comparisons for BETWEEN and IN, calls.

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, ObjectName, Value,
};

use std::ops::ControlFlow;

use super::{bound, choices};
use crate::types::SqlType;

/// An integer literal with PostgreSQL's type for it; `None` if DataFusion gives it the right one.
pub fn number(n: &str) -> Option<Expr> {
    let literal = || Expr::Value(Value::Number(n.to_string(), false).into());
    if n.parse::<i32>().is_ok() {
        return Some(cast(literal(), DataType::Int(None)));
    }
    // Beyond bigint: DataFusion would take it for an unsigned one, or a float.
    let is_integer = n.bytes().all(|b| b.is_ascii_digit());
    (is_integer && n.parse::<i64>().is_err())
        .then(|| call(&bound::cast_name(SqlType::Numeric, -1), vec![string(n)]))
}

/// A minus sign belongs to the literal that it precedes.
pub fn negated(operand: Expr) -> Expr {
    let minus = |e: Expr| Expr::UnaryOp {
        op: ast::UnaryOperator::Minus,
        expr: Box::new(e),
    };
    match operand {
        Expr::Value(v) if matches!(v.value, Value::Number(..)) => {
            let literal = minus(Expr::Value(v.clone()));
            match &v.value {
                Value::Number(n, _) if format!("-{n}").parse::<i32>().is_ok() => {
                    cast(literal, DataType::Int(None))
                }
                _ => literal,
            }
        }
        Expr::Cast {
            expr,
            data_type: data_type @ DataType::Int(None),
            ..
        } if matches!(&*expr, Expr::Value(v) if matches!(v.value, Value::Number(..))) => {
            cast(minus(*expr), data_type)
        }
        other => call(bound::NEGATE, vec![other]),
    }
}

pub fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

pub fn not(e: Expr) -> Expr {
    Expr::UnaryOp {
        op: ast::UnaryOperator::Not,
        expr: Box::new(Expr::Nested(Box::new(e))),
    }
}

/// BETWEEN as two comparisons, whose operands find their types as those of any other.
pub fn between(e: &Expr, negated: bool, low: &Expr, high: &Expr) -> Expr {
    let both = binary(
        binary(e.clone(), BinaryOperator::GtEq, low.clone()),
        BinaryOperator::And,
        binary(e.clone(), BinaryOperator::LtEq, high.clone()),
    );
    let both = Expr::Nested(Box::new(both));
    if negated { not(both) } else { both }
}

/// Literals of one kind from which on a list stays one: as many comparisons take long to plan. The types of its sides are settled in
/// [`super::operators`], as those of a comparison are.
pub const LONG_LIST: usize = 16;

pub fn is_long(list: &[Expr]) -> bool {
    fn is_number(e: &Expr) -> bool {
        match e {
            Expr::Value(v) => {
                matches!(&v.value, Value::Number(n, _) if n.bytes().all(|b| b.is_ascii_digit()))
            }
            Expr::Cast {
                expr,
                data_type: DataType::Int(None),
                ..
            }
            | Expr::UnaryOp {
                op: ast::UnaryOperator::Minus,
                expr,
            } => is_number(expr),
            _ => false,
        }
    }
    // A value that has been given a type: all by the same function.
    let typed = |e: &Expr| match e {
        Expr::Function(f) => Some(f.name.clone()),
        _ => None,
    };
    let first = list.first().and_then(typed);
    list.len() >= LONG_LIST
        && (list.iter().all(is_number)
            || list.iter().all(is_string)
            || first.as_ref().is_some_and(is_cast)
                && list
                    .iter()
                    .all(|e| typed(e) == first && is_cast_of_string(e)))
}

pub fn is_cast(name: &ObjectName) -> bool {
    name.to_string().starts_with(bound::CAST)
}

pub fn is_cast_of_string(e: &Expr) -> bool {
    let Expr::Function(Function {
        args: FunctionArguments::List(list),
        ..
    }) = e
    else {
        return false;
    };
    matches!(list.args.as_slice(), [FunctionArg::Unnamed(FunctionArgExpr::Expr(e))] if is_string(e))
}

/// CASE as the function whose type is known: an operand becomes comparisons, which find their types as any other.
pub fn case(
    operand: Option<Box<Expr>>,
    conditions: Vec<ast::CaseWhen>,
    otherwise: Option<Box<Expr>>,
) -> Expr {
    let mut args = Vec::with_capacity(2 * conditions.len() + 1);
    for ast::CaseWhen { condition, result } in conditions {
        args.push(match &operand {
            Some(o) => Expr::Nested(Box::new(binary(
                (**o).clone(),
                BinaryOperator::Eq,
                condition,
            ))),
            None => condition,
        });
        args.push(result);
    }
    args.extend(otherwise.map(|e| *e));
    call(choices::CASE, args)
}

/// Whether some expression in one is of a kind.
fn any_in(e: &Expr, f: impl Fn(&Expr) -> bool) -> bool {
    let found = ast::visit_expressions(e, |e| match f(e) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Whether it is the list's affair as which type such values are compared: there are several, and decimals among them.
fn are_of_one_type(own: &Expr, values: &[Expr]) -> bool {
    let is_open =
        |e: &Expr| matches!(e, Expr::Value(v) if matches!(v.value, Value::Placeholder(_)));
    let is_decimal = |e: &Expr| matches!(e, Expr::Value(v) if matches!(&v.value, Value::Number(n, _) if n.bytes().any(|b| !b.is_ascii_digit())));
    values.len() > 1
        && !is_open(own)
        && !is_string(own)
        && !values.iter().any(is_open)
        && values.iter().any(|e| any_in(e, is_decimal))
}

/// IN as comparisons, halved again and again so that a long list nests no deeper than a short one.
pub fn in_list(e: &Expr, list: &[Expr], negated: bool) -> Expr {
    fn any(e: &Expr, list: &[Expr]) -> Expr {
        match list {
            [one] => binary(e.clone(), BinaryOperator::Eq, one.clone()),
            _ => {
                let (left, right) = list.split_at(list.len() / 2);
                binary(any(e, left), BinaryOperator::Or, any(e, right))
            }
        }
    }
    let of_rows = |e: &Expr| {
        any_in(e, |e| {
            matches!(
                e,
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_)
            )
        })
    };
    let (others, values): (Vec<Expr>, Vec<Expr>) = list.iter().cloned().partition(of_rows);
    let found = match are_of_one_type(e, &values) {
        true => {
            let args = std::iter::once(e.clone()).chain(values).collect();
            let found = call(choices::IN, args);
            match others.is_empty() {
                true => found,
                false => binary(found, BinaryOperator::Or, any(e, &others)),
            }
        }
        false => any(e, list),
    };
    let found = Expr::Nested(Box::new(found));
    if negated { not(found) } else { found }
}

pub fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

pub fn string(s: impl Into<String>) -> Expr {
    Expr::Value(Value::SingleQuotedString(s.into()).into())
}

pub fn cast(e: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(e),
        data_type,
        array: false,
        format: None,
    }
}

pub fn is_string(e: &Expr) -> bool {
    matches!(e, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)))
}

pub fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args
        .into_iter()
        .map(|a| FunctionArg::Unnamed(FunctionArgExpr::Expr(a)))
        .collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// A value of a type as it is written in SQL for DataFusion. A numeric keeps the digits that it has.
pub fn typed(text: Option<String>, ty: SqlType) -> Expr {
    if ty == SqlType::Numeric
        && let Some(text) = &text
        && text.bytes().any(|b| b == b'.')
    {
        let (minus, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.as_str()),
        };
        let literal = Expr::Value(Value::Number(digits.to_string(), false).into());
        return if minus { negated(literal) } else { literal };
    }
    call(
        &bound::cast_name(ty, -1),
        vec![text.map_or_else(null, string)],
    )
}
