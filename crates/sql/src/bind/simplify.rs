//! What an expression is whatever the row is: PostgreSQL's `eval_const_expressions`, as far as
//! clients see it. `x / 0 = NULL` is NULL, and no division is tried.
//!
//! **Invariant.** An error that PostgreSQL meets while it plans stays an error: what is constant
//! and could not be computed is kept, with all around it.

use block::value::Datum;

use crate::expr::Expr;

const NULL: Expr = Expr::Const(Datum::Null);

/// The expression, given that its operands are simplified already.
pub fn simplified(expr: Expr) -> Expr {
    match expr {
        Expr::And(list) => shortened(list, false),
        Expr::Or(list) => shortened(list, true),
        Expr::NullIf(a, b) if (is_null(&a) || is_null(&b)) && !fails(&a) && !fails(&b) => *a,
        e if is_null_for_all_rows(&e) => NULL,
        e => e,
    }
}

/// AND or OR without what decides nothing; a constant, if one of its terms decides it. Terms that
/// stand before that one are computed by PostgreSQL's planner, if they are constant.
fn shortened(list: Vec<Expr>, decides: bool) -> Expr {
    let mut rest = Vec::with_capacity(list.len());
    let mut terms = list.into_iter();
    for term in terms.by_ref() {
        match term {
            Expr::Const(Datum::Bool(b)) if b == decides => return Expr::Const(Datum::Bool(b)),
            Expr::Const(Datum::Bool(_)) => {}
            term if fails(&term) => {
                rest.push(term);
                break;
            }
            term => rest.push(term),
        }
    }
    rest.extend(terms);
    match (rest.len(), decides) {
        (0, _) => Expr::Const(Datum::Bool(!decides)),
        (1, _) => rest.swap_remove(0),
        (_, false) => Expr::And(rest),
        (_, true) => Expr::Or(rest),
    }
}

/// Whether an operand that is NULL decides it.
fn is_null_for_all_rows(e: &Expr) -> bool {
    let none_fails = |operands: &[&Expr]| !operands.iter().any(|o| fails(o));
    let strict = |operands: &[&Expr]| operands.iter().any(|o| is_null(o)) && none_fails(operands);
    match e {
        Expr::Compare(_, a, b) | Expr::Arith(_, _, a, b) | Expr::Concat(a, b) => strict(&[a, b]),
        Expr::Like { expr, pattern, .. } => strict(&[expr, pattern]),
        Expr::Quantified(q) => is_null(&q.array) && !fails(&q.left),
        Expr::Not(e) | Expr::Negate(e) | Expr::Cast(_, e) => is_null(e),
        Expr::InList { expr, list, .. } => {
            let decided = is_null(expr) || matches!(list.as_slice(), [only] if is_null(only));
            decided && !fails(expr) && none_fails(&list.iter().collect::<Vec<_>>())
        }
        Expr::Call(func, args) => func.is_strict() && strict(&args.iter().collect::<Vec<_>>()),
        _ => false,
    }
}

fn is_null(e: &Expr) -> bool {
    matches!(e, Expr::Const(Datum::Null))
}

/// Whether a part of it needs no row and is not computed yet, so that it may be an error.
fn fails(e: &Expr) -> bool {
    let mut fails = false;
    e.visit(&mut |e| fails |= !matches!(e, Expr::Const(_)) && e.is_constant());
    fails
}
