//! Rows in a query: those that are written out, compared value by value, and whole rows of FROM.

use sqlparser::ast::{self, BinaryOperator};

use super::expression::{Clause, subquery_in};
use super::scope::Row;
use crate::bind::{self, Typed, is_written_row, names};
use crate::error::{Error, Result};
use crate::expr::{CmpOp, Expr};
use crate::parse::stars;
use crate::types::SqlType;

impl Clause<'_> {
    /// Two rows of values, compared.
    pub(super) fn rows(
        &self,
        left: &[Typed],
        op: &BinaryOperator,
        right: &[Typed],
    ) -> Result<Typed> {
        if left.len() != right.len() {
            return Err(Error::new(
                "42601",
                "unequal number of entries in row expressions",
            ));
        }
        let binder = self.binder();
        let pairs = || left.iter().cloned().zip(right.iter().cloned());
        let compared = |op| {
            pairs()
                .map(|(l, r)| Ok(binder.compare(op, l, r)?.expr))
                .collect::<Result<Vec<_>>>()
        };
        let expr = match bind::comparison(op) {
            Some(CmpOp::Eq) => Expr::And(compared(CmpOp::Eq)?),
            Some(CmpOp::Ne) => Expr::Or(compared(CmpOp::Ne)?),
            Some(order) => {
                refuse_volatile(left.iter().chain(right))?;
                // The first pair that differs decides; only the last may be equal.
                let strict = match order {
                    CmpOp::Lt | CmpOp::Le => CmpOp::Lt,
                    _ => CmpOp::Gt,
                };
                let mut all = compared(strict)?;
                let (equal, last) = (compared(CmpOp::Eq)?, compared(order)?);
                let places = all.len();
                let Some(mut expr) = last.into_iter().next_back() else {
                    return Err(Error::new("0A000", "cannot compare rows of zero length"));
                };
                all.truncate(places.saturating_sub(1));
                for (decides, equal) in all.into_iter().zip(equal).rev() {
                    expr = Expr::Or(vec![decides, Expr::And(vec![equal, expr])]);
                }
                expr
            }
            None => return Err(Error::unsupported(format!("operator {op} between rows"))),
        };
        Ok(Typed::new(expr, SqlType::Bool))
    }

    /// The values of a row that is written out; `None`: it is none.
    pub(super) fn row_of(&self, e: &ast::Expr) -> Result<Option<Vec<Typed>>> {
        self.binder().row_values(e)
    }

    /// The values of a row of VALUES, in which a star stands for all fields.
    pub(super) fn row_values(&self, list: &[ast::Expr]) -> Result<Vec<Typed>> {
        let binder = self.binder();
        let mut values = Vec::with_capacity(list.len());
        for e in list {
            let row = match e {
                ast::Expr::QualifiedWildcard(..) => Some(binder.expr(e)?),
                e => stars::row_of(e).map(|row| binder.expr(&row)).transpose()?,
            };
            match row {
                Some(row) => values.extend(binder.fields_of(&row)?),
                None => values.push(binder.expr(e)?),
            }
        }
        Ok(values)
    }

    pub(super) fn row_in(
        &self,
        e: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
    ) -> Result<Option<Typed>> {
        let Some(left) = self.row_of(e)? else {
            return Ok(None);
        };
        if list.len() > 1 {
            refuse_volatile(left.iter())?;
        }
        let mut any = Vec::with_capacity(list.len());
        for item in list {
            let Some(right) = self.row_of(item)? else {
                return Err(Error::unsupported("IN of a row and what is no row"));
            };
            any.push(self.rows(&left, &BinaryOperator::Eq, &right)?.expr);
        }
        let expr = match any.len() {
            1 => any.remove(0),
            _ => Expr::Or(any),
        };
        let expr = match negated {
            true => Expr::Not(Box::new(expr)),
            false => expr,
        };
        Ok(Some(Typed::new(expr, SqlType::Bool)))
    }

    pub(super) fn row_is_null(&self, e: &ast::Expr, negated: bool) -> Result<Option<Typed>> {
        let values: Vec<Expr> = match (self.whole_row(e)?, self.row_of(e)?) {
            (Some(row), _) => row.columns,
            (None, Some(row)) => {
                let binder = self.binder();
                let values = row.into_iter().map(|v| Ok(binder.settle(v)?.expr));
                values.collect::<Result<_>>()?
            }
            (None, None) => return Ok(None),
        };
        let all = values.into_iter().map(|value| Expr::IsNull {
            expr: Box::new(value),
            negated,
        });
        let expr = Expr::And(all.collect());
        Ok(Some(Typed::new(expr, SqlType::Bool)))
    }

    /// The whole row that a name is, if it is that of a table and no column's.
    pub(super) fn whole_row(&self, e: &ast::Expr) -> Result<Option<Row>> {
        let ast::Expr::Identifier(name) = e else {
            return Ok(None);
        };
        let name = names::ident(name);
        match self.scope.resolve(None, &name) {
            Err(e) if e.sqlstate() == "42703" => self.row_named(&name),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    pub(super) fn row_named(&self, table: &str) -> Result<Option<Row>> {
        let row = self.scope.row(table)?;
        if let Some(row) = &row {
            self.analyzer.note_level(row.depth);
            for origin in &row.origins {
                self.analyzer.note_used(*origin);
                self.analyzer.params.needs.read(origin.0, origin.1);
            }
        }
        Ok(row)
    }

    pub(super) fn row_distinct(
        &self,
        l: &ast::Expr,
        r: &ast::Expr,
        negated: bool,
    ) -> Result<Option<Typed>> {
        if !(is_written_row(l) && is_written_row(r)) {
            return Ok(None);
        }
        let (Some(left), Some(right)) = (self.row_of(l)?, self.row_of(r)?) else {
            return Ok(None);
        };
        if left.len() != right.len() {
            return Err(Error::new(
                "42601",
                "unequal number of entries in row expressions",
            ));
        }
        let binder = self.binder();
        let mut parts = Vec::new();
        for (left, right) in left.into_iter().zip(right) {
            let (left, right) = binder.unify(left, right, "IS DISTINCT FROM")?;
            parts.push(Expr::Distinct {
                left: Box::new(left.expr),
                right: Box::new(right.expr),
                negated,
            });
        }
        let expr = match negated {
            true => Expr::And(parts),
            false => Expr::Or(parts),
        };
        Ok(Some(Typed::new(expr, SqlType::Bool)))
    }

    pub(super) fn binary(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
    ) -> Result<Option<Typed>> {
        if bind::comparison(op).is_none() {
            return Ok(None);
        }
        let (l, r) = (is_written_row(left), is_written_row(right));
        if l && r {
            return match (self.row_of(left)?, self.row_of(right)?) {
                (Some(l), Some(r)) => self.rows(&l, op, &r).map(Some),
                _ => Ok(None),
            };
        }
        match l && subquery_in(right).is_some() {
            true => Err(Error::unsupported("a row compared with that of a subquery")),
            // A row as a value, beside another.
            false => Ok(None),
        }
    }

    /// A whole row as a value; NULL if an outer join has none.
    pub(super) fn row_value(&self, row: Row) -> Result<Typed> {
        let of_table = row
            .origins
            .first()
            .filter(|(table, _)| row.origins.iter().all(|(other, _)| other == table));
        let dict = &self.analyzer.dict;
        let named = of_table.and_then(|(table, _)| dict.row_type_of(*table, &row.fields));
        let fields = row.fields.into_iter().zip(row.columns);
        let fields = fields.map(|((name, ty, typmod), expr)| {
            (
                name,
                Typed {
                    typmod,
                    ..Typed::new(expr, ty)
                },
            )
        });
        let made = match named {
            Some(ty) => bind::row_of(ty, fields.map(|(_, value)| value.expr).collect()),
            None => bind::record(fields.collect())?,
        };
        if let Expr::Const(_) = row.there {
            return Ok(made);
        }
        let is_there = Expr::IsNull {
            expr: Box::new(row.there),
            negated: true,
        };
        let expr = Expr::Case {
            branches: vec![(is_there, made.expr)],
            otherwise: None,
        };
        Ok(Typed { expr, ..made })
    }
}

/// Refuses what would be computed more than once, though it gives something else each time.
fn refuse_volatile<'t>(mut values: impl Iterator<Item = &'t Typed>) -> Result<()> {
    match values.any(|t| t.expr.is_volatile()) {
        true => Err(Error::unsupported(
            "a comparison of rows of volatile values",
        )),
        false => Ok(()),
    }
}
