//! Comparisons of rows as comparisons of their columns.

use sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};

use super::arrays::{binary, joined};
use crate::error::{Error, Result};

/// Columns of rows that are compared by their order: each is a level of the tree.
const MAX_ORDERED: usize = 32;

/// A comparison of rows, a test of one for nulls, and `IN` with a list of them; `None` for all else.
pub fn by_column(e: &Expr) -> Result<Option<Expr>> {
    Ok(Some(match e {
        // Its rows are spans of time.
        Expr::BinaryOp {
            op: BinaryOperator::Overlaps,
            ..
        } => return Ok(None),
        Expr::BinaryOp { left, op, right } => {
            let Some((left, right)) = rows(left, right)? else {
                return Ok(None);
            };
            match op {
                BinaryOperator::Eq => equal(left, right),
                BinaryOperator::NotEq => not(equal(left, right)),
                // What is no column or value must not be written twice: the tree lane compares it.
                _ if !left.iter().chain(right).all(is_simple) => return Ok(None),
                _ => ordered(left, op, right)?,
            }
        }
        Expr::IsDistinctFrom(left, right) => match rows(left, right)? {
            Some((left, right)) => not(same(left, right)),
            None => return Ok(None),
        },
        Expr::IsNotDistinctFrom(left, right) => match rows(left, right)? {
            Some((left, right)) => same(left, right),
            None => return Ok(None),
        },
        Expr::IsNull(e) => match row(e) {
            Some(columns) => all(columns.iter().map(|c| Expr::IsNull(nested(c)))),
            None => return Ok(None),
        },
        Expr::IsNotNull(e) => match row(e) {
            Some(columns) => all(columns.iter().map(|c| Expr::IsNotNull(nested(c)))),
            None => return Ok(None),
        },
        Expr::Between { expr, .. } if row(expr).is_some() => {
            return Err(Error::unsupported("BETWEEN of rows"));
        }
        Expr::InList {
            expr,
            list,
            negated,
        } => {
            let Some(left) = row(expr) else {
                return Ok(None);
            };
            // Each of them is written once for each row of the list.
            if !left.iter().all(is_simple) {
                return Ok(None);
            }
            let item = |item| match row(item) {
                Some(right) => same_length(left, right).map(|()| equal(left, right)),
                None => Err(Error::unsupported("a row and something else in IN")),
            };
            let found = list.iter().map(item).collect::<Result<Vec<_>>>()?;
            let found = joined(found, &BinaryOperator::Or);
            if *negated { not(found) } else { found }
        }
        _ => return Ok(None),
    }))
}

fn row(e: &Expr) -> Option<&[Expr]> {
    match e {
        Expr::Tuple(columns) => Some(columns),
        Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

/// Both sides, if they are rows.
fn rows<'e>(left: &'e Expr, right: &'e Expr) -> Result<Option<(&'e [Expr], &'e [Expr])>> {
    let (Some(left), Some(right)) = (row(left), row(right)) else {
        return Ok(None);
    };
    same_length(left, right)?;
    Ok(Some((left, right)))
}

fn same_length(left: &[Expr], right: &[Expr]) -> Result<()> {
    match left.len() == right.len() {
        true => Ok(()),
        false => Err(Error::new(
            "42601",
            "unequal number of entries in row expressions",
        )),
    }
}

/// What may be written more than once.
fn is_simple(e: &Expr) -> bool {
    match e {
        Expr::Identifier(_)
        | Expr::CompoundIdentifier(_)
        | Expr::Value(_)
        | Expr::TypedString(_) => true,
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => is_simple(inner),
        Expr::UnaryOp { op, expr } => {
            matches!(op, UnaryOperator::Minus | UnaryOperator::Plus) && is_simple(expr)
        }
        _ => false,
    }
}

fn nested(e: &Expr) -> Box<Expr> {
    Box::new(Expr::Nested(Box::new(e.clone())))
}

fn all(terms: impl Iterator<Item = Expr>) -> Expr {
    joined(terms.collect(), &BinaryOperator::And)
}

fn compared(left: &Expr, op: BinaryOperator, right: &Expr) -> Expr {
    Expr::BinaryOp {
        left: nested(left),
        op,
        right: nested(right),
    }
}

fn equal(left: &[Expr], right: &[Expr]) -> Expr {
    let columns = left.iter().zip(right);
    all(columns.map(|(l, r)| compared(l, BinaryOperator::Eq, r)))
}

fn same(left: &[Expr], right: &[Expr]) -> Expr {
    let columns = left.iter().zip(right);
    all(columns.map(|(l, r)| Expr::IsNotDistinctFrom(nested(l), nested(r))))
}

/// `(a, b) < (c, d)` as `a <= c AND (a < c OR a = c AND b < d)`: the first columns that differ decide, or that are null. What stands first is for an index on `a`.
fn ordered(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Expr> {
    let (strictly, weakly) = match op {
        BinaryOperator::Lt | BinaryOperator::LtEq => (BinaryOperator::Lt, BinaryOperator::LtEq),
        BinaryOperator::Gt | BinaryOperator::GtEq => (BinaryOperator::Gt, BinaryOperator::GtEq),
        _ => return Err(Error::unsupported(format!("operator {op} of rows"))),
    };
    if left.len() > MAX_ORDERED {
        return Err(Error::unsupported(format!(
            "comparing the order of rows of more than {MAX_ORDERED} columns"
        )));
    }
    let mut columns = left.iter().zip(right).rev();
    let Some((l, r)) = columns.next() else {
        return Err(Error::unsupported("comparing empty rows"));
    };
    let mut found = compared(l, op.clone(), r);
    for (l, r) in columns {
        let goes_on = binary(
            compared(l, BinaryOperator::Eq, r),
            BinaryOperator::And,
            found,
        );
        found = Expr::Nested(Box::new(binary(
            compared(l, strictly.clone(), r),
            BinaryOperator::Or,
            goes_on,
        )));
    }
    let first = compared(&left[0], weakly, &right[0]);
    let both = binary(first, BinaryOperator::And, found);
    Ok(Expr::Nested(Box::new(both)))
}

fn not(e: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(Expr::Nested(Box::new(e))),
    }
}
