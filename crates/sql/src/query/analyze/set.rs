//! VALUES and set operations.

use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier};

use super::Analyzer;
use super::expression::Clause;
use super::scope::Scope;
use super::tree::{Body, Level, Output};
use super::with::Known;
use crate::bind::{self, Typed, chosen_type};
use crate::collate::Derived;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::query::plan::SetKind;
use crate::types::SqlType;

impl Analyzer<'_> {
    /// What a set operation works on: a query without clauses of its own.
    pub fn operand(&self, e: &SetExpr, scope: &Scope<'_>, known: &Known<'_>) -> Result<Level> {
        match e {
            SetExpr::Values(values) => self.values(values, scope, known),
            SetExpr::SetOperation {
                left,
                op,
                set_quantifier,
                right,
            } => {
                let all = match set_quantifier {
                    SetQuantifier::All => true,
                    SetQuantifier::None | SetQuantifier::Distinct => false,
                    other => return Err(Error::unsupported(format!("{op} {other}"))),
                };
                let kind = match op {
                    SetOperator::Union => SetKind::Union,
                    SetOperator::Intersect => SetKind::Intersect,
                    SetOperator::Except | SetOperator::Minus => SetKind::Except,
                };
                refuse_locks(left)?;
                refuse_locks(right)?;
                let left = self.operand(left, scope, known)?;
                let right = self.operand(right, scope, known)?;
                self.set_operation(kind, all, left, right, scope, known)
            }
            SetExpr::Query(q) => self.query(q, scope, known),
            SetExpr::Select(_) => self.query(&query_of(e), scope, known),
            SetExpr::Table(t) => self.query(&table_query(t)?, scope, known),
            _ => Err(Error::unsupported("a statement that writes within a query")),
        }
    }

    fn values(&self, values: &ast::Values, scope: &Scope<'_>, known: &Known<'_>) -> Result<Level> {
        let outside = values_scope(scope);
        let clause = Clause::new(self, &outside, known, "VALUES");
        let binder = clause.binder();
        let mut rows: Vec<Vec<Typed>> = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            let row = clause.row_values(&row.content)?;
            if rows.first().is_some_and(|first| first.len() != row.len()) {
                return Err(Error::new(
                    "42601",
                    "VALUES lists must all be the same length",
                ));
            }
            rows.push(row);
        }
        let width = rows.first().map_or(0, Vec::len);
        let mut outputs = Vec::new();
        let into = scope.file.registers(width);
        for (at, register) in into.iter().enumerate() {
            let types: Vec<SqlType> = rows.iter().map(|r| r[at].ty).collect();
            let ty = match chosen_type(&types, "VALUES")? {
                SqlType::Unknown => SqlType::Text,
                ty => ty,
            };
            let parts = rows.iter().map(|r| r[at].collation);
            let collation = parts
                .into_iter()
                .try_fold(Derived::default(), Derived::and)?;
            if ty.is_string() {
                collation.agreed()?;
            }
            let first = rows.first().map_or(-1, |r| r[at].typmod);
            let alike = rows.iter().all(|r| r[at].ty == ty && r[at].typmod == first);
            let typmod = if alike { first } else { -1 };
            for row in &mut rows {
                let value = row[at].clone();
                row[at] = binder.coerce(value, ty, typmod, CastContext::Implicit)?;
            }
            outputs.push(Output {
                name: format!("column{}", at + 1),
                value: Typed {
                    expr: Expr::Column(*register),
                    ty,
                    typmod,
                    collation: collation.of_column(),
                },
                origin: (0, 0),
            });
        }
        let rows = rows
            .into_iter()
            .map(|row| row.into_iter().map(|t| t.expr).collect())
            .collect();
        Ok(plain(Body::Values { rows, into }, outputs))
    }

    pub fn set_operation(
        &self,
        kind: SetKind,
        all: bool,
        left: Level,
        right: Level,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Level> {
        let name = match kind {
            SetKind::Union => "UNION",
            SetKind::Intersect => "INTERSECT",
            SetKind::Except => "EXCEPT",
        };
        if left.outputs.len() != right.outputs.len() {
            return Err(Error::new(
                "42601",
                format!("each {name} query must have the same number of columns"),
            ));
        }
        let clause = Clause::new(self, scope, known, "UNION");
        let binder = clause.binder();
        let into = scope.file.registers(left.outputs.len());
        let (mut outputs, mut padded) = (Vec::new(), Vec::new());
        let (mut left_columns, mut right_columns) = (Vec::new(), Vec::new());
        for ((l, r), register) in left.outputs.iter().zip(&right.outputs).zip(&into) {
            let ty = match chosen_type(&[l.value.ty, r.value.ty], name)? {
                SqlType::Unknown => SqlType::Text,
                ty => ty,
            };
            if !all || kind != SetKind::Union {
                bind::check_comparable(ty, "equality")?;
            }
            let collation = l.value.collation.and(r.value.collation)?;
            // All rows may be of several collations as long as nobody compares them.
            if ty.is_string() && !(all && kind == SetKind::Union) {
                collation.agreed()?;
            }
            let alike = l.value.ty == r.value.ty && l.value.typmod == r.value.typmod;
            if ty == SqlType::Char && !alike {
                padded.push(outputs.len());
            }
            let typmod = if alike { l.value.typmod } else { -1 };
            let side = |t: &Typed| {
                let value = binder.coerce(t.clone(), ty, typmod, CastContext::Implicit);
                value.map(|t| t.expr)
            };
            left_columns.push(side(&l.value)?);
            right_columns.push(side(&r.value)?);
            outputs.push(Output {
                name: l.name.clone(),
                value: Typed {
                    expr: Expr::Column(*register),
                    ty,
                    typmod,
                    collation: collation.of_column(),
                },
                origin: (0, 0),
            });
        }
        let body = Body::Set {
            kind,
            all,
            left: Box::new(left),
            left_columns,
            right: Box::new(right),
            right_columns,
            padded,
            into,
        };
        Ok(plain(body, outputs))
    }
}

/// Refuses FOR UPDATE and its kin on a side of a set operation, as PostgreSQL does.
fn refuse_locks(mut side: &SetExpr) -> Result<()> {
    while let SetExpr::Query(q) = side {
        no_locks(&q.locks)?;
        side = &q.body;
    }
    Ok(())
}

/// Refuses FOR UPDATE and its kin of a set operation.
pub fn no_locks(locks: &[ast::LockClause]) -> Result<()> {
    match locks.first() {
        Some(clause) => Err(Error::new(
            "0A000",
            format!(
                "{} is not allowed with UNION/INTERSECT/EXCEPT",
                crate::plan::locking::kind(clause)
            ),
        )),
        None => Ok(()),
    }
}

/// VALUES sees what is around the level, and in FROM, what stands before a LATERAL one.
fn values_scope<'s>(scope: &'s Scope<'s>) -> Scope<'s> {
    Scope::new(Some(scope), &scope.file)
}

fn plain(body: Body, outputs: Vec<Output>) -> Level {
    Level {
        body,
        outputs,
        order: Vec::new(),
        limit: None,
        offset: None,
        with_ties: false,
        locks: Vec::new(),
        shared: Vec::new(),
    }
}

/// A query of nothing but its body.
pub fn query_of(body: &SetExpr) -> ast::Query {
    ast::Query {
        with: None,
        body: Box::new(body.clone()),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// `TABLE t` is `SELECT * FROM t`.
fn table_query(t: &ast::Table) -> Result<ast::Query> {
    let name = match (&t.schema_name, &t.table_name) {
        (Some(schema), Some(table)) => format!(
            "{}.{}",
            crate::bind::names::quote(schema),
            crate::bind::names::quote(table)
        ),
        (None, Some(table)) => crate::bind::names::quote(table),
        _ => return Err(Error::new("42601", "TABLE without a name")),
    };
    match crate::parse::statement(&format!("SELECT * FROM {name}"))? {
        crate::parse::Command::Sql(s) => match *s {
            ast::Statement::Query(q) => Ok(*q),
            _ => Err(Error::internal("a SELECT that is no query")),
        },
        _ => Err(Error::internal("a SELECT that is no statement")),
    }
}
