//! Hypothetical-set aggregates: where a row would stand among the rows of a group, as `rank(a)
//! within group (order by b)`. Each is written out in counts of the rows that come before it, which
//! need no order.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, BinaryOperator, DuplicateTreatment, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, Ident, OrderByExpr, Value, ValueWithSpan, Visit, Visitor,
};
use sqlparser::tokenizer::Span;

use crate::error::{Error, Result};

/// Whether WITHIN GROUP may follow a function that is a window function otherwise.
pub fn is_hypothetical(name: &str) -> bool {
    matches!(name, "rank" | "dense_rank" | "percent_rank" | "cume_dist")
}

/// The call in terms of `count`.
pub fn written_out(name: &str, f: &ast::Function) -> Result<Expr> {
    let FunctionArguments::List(list) = &f.args else {
        return Err(Error::unsupported(format!("{f}")));
    };
    if list.duplicate_treatment.is_some() {
        return Err(Error::new("42601", "cannot use DISTINCT with WITHIN GROUP"));
    }
    if f.over.is_some() {
        let message = format!("OVER is not supported for ordered-set aggregate {name}");
        return Err(Error::new("0A000", message));
    }
    let row = list.args.iter().map(direct).collect::<Result<Vec<_>>>()?;
    let keys = &f.within_group;
    if row.len() != keys.len() {
        return Err(Error::internal("a hypothetical row of another length"));
    }
    let filter = f.filter.as_deref();
    let before = || count(None, and(filter.cloned(), comes_first(keys, &row, false)));
    let all = || count(None, filter.cloned());
    Ok(match name {
        "rank" => sum(before(), one("1")),
        "dense_rank" => {
            let condition = and(filter.cloned(), comes_first(keys, &row, false));
            let [key] = keys.as_slice() else {
                // A row of several keys is never NULL.
                let rows = Expr::Tuple(keys.iter().map(|k| k.expr.clone()).collect());
                return Ok(sum(count(Some(&rows), condition), one("1")));
            };
            let values = count(Some(&key.expr), condition.clone());
            // NULLs are one value more, which is not counted.
            let nulls = count(
                None,
                and(condition, Expr::IsNull(Box::new(key.expr.clone()))),
            );
            sum(sum(values, least(nulls)), one("1"))
        }
        "percent_rank" => {
            let share = divided(before(), null_if_zero(all()));
            call("coalesce", vec![share, float(one("0"))])
        }
        _ => {
            let not_behind = count(None, and(filter.cloned(), comes_first(keys, &row, true)));
            divided(sum(not_behind, one("1")), sum(all(), one("1")))
        }
    })
}

/// A direct argument, which must be the same for all rows of a group.
fn direct(arg: &FunctionArg) -> Result<&Expr> {
    struct Varies;
    impl Visitor for Varies {
        type Break = ();
        fn pre_visit_query(&mut self, _: &ast::Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
        fn pre_visit_expr(&mut self, e: &Expr) -> ControlFlow<()> {
            match e {
                Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Function(_) => {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => match e.visit(&mut Varies) {
            ControlFlow::Continue(()) => Ok(e),
            ControlFlow::Break(()) => Err(Error::unsupported(
                "direct arguments of WITHIN GROUP that are no constants",
            )),
        },
        other => Err(Error::unsupported(format!("argument {other}"))),
    }
}

/// Whether a row of the group comes before the hypothetical one in the order of the keys; or is
/// equal to it, if that counts.
fn comes_first(keys: &[OrderByExpr], row: &[&Expr], or_equal: bool) -> Expr {
    let mut found = boolean(or_equal);
    for (key, value) in keys.iter().zip(row).rev() {
        let (key_expr, value) = (Box::new(key.expr.clone()), Box::new((*value).clone()));
        let descending = key.options.asc == Some(false);
        let nulls_first = key.options.nulls_first.unwrap_or(descending);
        let op = match descending {
            true => BinaryOperator::Gt,
            false => BinaryOperator::Lt,
        };
        let less = binary((*key_expr).clone(), op, (*value).clone());
        let (null, other) = match nulls_first {
            true => (key_expr.clone(), value.clone()),
            false => (value.clone(), key_expr.clone()),
        };
        let by_null = binary(
            Expr::IsNull(null),
            BinaryOperator::And,
            Expr::IsNotNull(other),
        );
        let equal = Expr::Nested(Box::new(Expr::IsNotDistinctFrom(key_expr, value)));
        let later = binary(equal, BinaryOperator::And, found);
        let now = binary(less, BinaryOperator::Or, by_null);
        found = binary(now, BinaryOperator::Or, later);
    }
    found
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }))
}

fn and(left: Option<Expr>, right: Expr) -> Option<Expr> {
    Some(match left {
        Some(left) => binary(left, BinaryOperator::And, right),
        None => right,
    })
}

fn sum(left: Expr, right: Expr) -> Expr {
    binary(left, BinaryOperator::Plus, right)
}

fn divided(left: Expr, right: Expr) -> Expr {
    binary(float(left), BinaryOperator::Divide, float(right))
}

fn float(e: Expr) -> Expr {
    Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(e),
        data_type: ast::DataType::DoublePrecision,
        array: false,
        format: None,
    }
}

fn value(value: Value) -> Expr {
    Expr::Value(ValueWithSpan {
        value,
        span: Span::empty(),
    })
}

fn one(digits: &str) -> Expr {
    value(Value::Number(digits.to_string(), false))
}

fn boolean(truth: bool) -> Expr {
    value(Value::Boolean(truth))
}

fn least(e: Expr) -> Expr {
    call("least", vec![e, one("1")])
}

fn null_if_zero(e: Expr) -> Expr {
    call("nullif", vec![e, one("0")])
}

fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args
        .into_iter()
        .map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e)));
    function(name, args.collect(), None, None)
}

/// `count(*)`, or that of the different values of an expression.
fn count(distinct: Option<&Expr>, filter: Option<Expr>) -> Expr {
    match distinct {
        Some(e) => {
            let arg = FunctionArg::Unnamed(FunctionArgExpr::Expr(e.clone()));
            function(
                "count",
                vec![arg],
                Some(DuplicateTreatment::Distinct),
                filter,
            )
        }
        None => {
            let star = FunctionArg::Unnamed(FunctionArgExpr::Wildcard);
            function("count", vec![star], None, filter)
        }
    }
}

fn function(
    name: &str,
    args: Vec<FunctionArg>,
    duplicate_treatment: Option<DuplicateTreatment>,
    filter: Option<Expr>,
) -> Expr {
    Expr::Function(ast::Function {
        name: ast::ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(ast::FunctionArgumentList {
            duplicate_treatment,
            args,
            clauses: Vec::new(),
        }),
        filter: filter.map(Box::new),
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}
