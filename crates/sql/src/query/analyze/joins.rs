//! Kinds of joins, and the names of columns that both sides have.

use std::collections::HashSet;

use block::value::Datum;
use sqlparser::ast::{JoinConstraint, JoinOperator};

use super::scope::{Column, Names};
use super::tree::{From, JoinKind, RelationKind};
use crate::bind::Typed;
use crate::error::{Error, Result};
use crate::expr::{CmpOp, Expr};
use crate::query::plan::Register;

/// The kind of a join, whether its sides are to be exchanged, and its condition.
pub(super) fn kind_of(operator: &JoinOperator) -> Result<(JoinKind, bool, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(c) | JoinOperator::Inner(c) => (JoinKind::Inner, false, c),
        JoinOperator::CrossJoin(c) => (JoinKind::Inner, false, c),
        JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (JoinKind::Left, false, c),
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (JoinKind::Left, true, c),
        JoinOperator::FullOuter(c) => (JoinKind::Full, false, c),
        _ => return Err(Error::unsupported("this kind of JOIN")),
    })
}

/// Names that both sides of a NATURAL JOIN have.
pub(super) fn common(left: &Names, right: &Names) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for c in left.columns.iter().filter(|c| !c.merged) {
        let there = right.columns.iter().any(|r| !r.merged && r.name == c.name);
        if there && !found.contains(&c.name) {
            found.push(c.name.clone());
        }
    }
    found
}

pub(super) fn one_of(names: &Names, name: &str, side: &str) -> Result<Typed> {
    let mut found = names.columns.iter().filter(|c| !c.merged && c.name == name);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.value.clone()),
        (None, _) => Err(Error::new(
            "42703",
            format!("column \"{name}\" specified in USING clause does not exist in {side} table"),
        )),
        (Some(_), Some(_)) => Err(Error::new(
            "42702",
            format!("common column name \"{name}\" appears more than once in {side} table"),
        )),
    }
}

/// The registers that the columns of an item of FROM have.
pub(super) fn registers_of(names: &Names) -> HashSet<Register> {
    let mut found = HashSet::new();
    for c in &names.columns {
        c.value.expr.visit(&mut |e| {
            if let Expr::Column(r) = e {
                found.insert(*r);
            }
        });
    }
    found
}

/// A FULL JOIN needs an equality of its sides among its conditions, or none that is of rows, as in
/// PostgreSQL.
pub(super) fn check_full(on: &[Expr], [left, right]: &[HashSet<Register>; 2]) -> Result<()> {
    let of = |e: &Expr, side: &HashSet<Register>, other: &HashSet<Register>| {
        let (mut any, mut others) = (false, false);
        e.visit(&mut |e| {
            if let Expr::Column(r) = e {
                any |= side.contains(r);
                others |= other.contains(r);
            }
        });
        any && !others
    };
    let is_equality = |e: &Expr| match e {
        Expr::Compare(CmpOp::Eq, a, b) => {
            of(a, left, right) && of(b, right, left) || of(a, right, left) && of(b, left, right)
        }
        _ => false,
    };
    let constant = |e: &Expr| matches!(e, Expr::Const(_));
    match on.iter().all(constant) || on.iter().any(is_equality) {
        true => Ok(()),
        false => Err(Error::new(
            "0A000",
            "FULL JOIN is only supported with merge-joinable or hash-joinable join conditions",
        )),
    }
}

/// Gives the columns that a join merges, the first so many, the join's own name, too.
pub(super) fn name_join(alias: &str, merged: usize, both: &mut Names) -> Result<()> {
    if both.tables.iter().any(|t| t == alias) {
        return Err(Error::new(
            "42712",
            format!("table name \"{alias}\" specified more than once"),
        ));
    }
    both.tables.push(alias.to_string());
    both.rows.push((alias.to_string(), Expr::Const(THERE)));
    let named = both.columns[..merged].iter().map(|c| Column {
        table: alias.to_string(),
        merged: true,
        whole: false,
        ..c.clone()
    });
    let named: Vec<Column> = named.collect();
    both.columns.extend(named);
    Ok(())
}

/// What is not NULL in a row that is there.
pub const THERE: Datum = Datum::Int8(1);

/// An item's name with what says that it has a row: always, unless an outer join may lack it.
pub fn whole_row(found: &Names, nullable: bool) -> Option<(String, Expr)> {
    (!nullable).then(|| (found.tables[0].clone(), Expr::Const(THERE)))
}

/// A row id that each row of an item has.
pub fn row_id_of(item: &From) -> Option<Register> {
    match item {
        From::Relation(relation) => match relation.kind {
            RelationKind::Table { row_id, .. } => row_id,
            _ => None,
        },
        From::Merged { items, .. } => items.iter().find_map(row_id_of),
        From::Join {
            kind: JoinKind::Inner,
            left,
            right,
            ..
        } => row_id_of(left).or_else(|| row_id_of(right)),
        From::Join {
            kind: JoinKind::Left,
            left,
            ..
        } => row_id_of(left),
        From::Join {
            kind: JoinKind::Full,
            ..
        } => None,
    }
}
