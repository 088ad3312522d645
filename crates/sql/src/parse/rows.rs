//! Comparisons of rows as comparisons of their columns.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

use super::arrays::{binary, joined};

/// `(a, b) = (c, d)`, `<>`, and `IN` with a list of rows; `None` for all else.
pub fn by_column(e: &Expr) -> Option<Expr> {
    match e {
        Expr::BinaryOp {
            left,
            op: op @ (BinaryOperator::Eq | BinaryOperator::NotEq),
            right,
        } => {
            let same = equal(row(left)?, row(right)?)?;
            Some(match op {
                BinaryOperator::Eq => same,
                _ => not(same),
            })
        }
        Expr::InList {
            expr,
            list,
            negated,
        } => {
            let left = row(expr)?;
            // Each of them is written once for each row of the list.
            if !left.iter().all(super::arrays::is_small) {
                return None;
            }
            let rows = list.iter().map(|item| equal(left, row(item)?));
            let found = joined(rows.collect::<Option<Vec<_>>>()?, &BinaryOperator::Or);
            Some(if *negated { not(found) } else { found })
        }
        _ => None,
    }
}

fn row(e: &Expr) -> Option<&[Expr]> {
    match e {
        Expr::Tuple(columns) => Some(columns),
        _ => None,
    }
}

fn equal(left: &[Expr], right: &[Expr]) -> Option<Expr> {
    if left.len() != right.len() || left.is_empty() {
        return None;
    }
    let nested = |e: &Expr| Expr::Nested(Box::new(e.clone()));
    let columns = left.iter().zip(right);
    let terms = columns.map(|(l, r)| binary(nested(l), BinaryOperator::Eq, nested(r)));
    Some(joined(terms.collect(), &BinaryOperator::And))
}

fn not(e: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(Expr::Nested(Box::new(e))),
    }
}
