//! Subqueries within expressions: a file of their own, inputs from the registers around them.

use sqlparser::ast::{self, BinaryOperator};

use super::expression::{Clause, subquery_in};
use super::inner_file;
use super::scope::{Scope, Within};
use super::tree::{Kind, Subquery};
use crate::bind::{self, Typed};
use crate::collate::{self, Derived};
use crate::error::{Error, Result};
use crate::expr::{CmpOp, Expr};
use crate::parse::{self, Command};
use crate::place::Place;
use crate::query::plan::Hashed;
use crate::types::SqlType;

impl Clause<'_> {
    /// Analyses a query in a file of its own. `kind` says what is asked of its columns: it is given
    /// the values that the file has of what is compared with them.
    fn subquery(
        &self,
        q: &ast::Query,
        compared: &[Typed],
        kind: impl FnOnce(&mut super::tree::Level, &[Typed]) -> Result<(Kind, SqlType, i32)>,
    ) -> Result<Typed> {
        let file = inner_file(self.scope);
        let inside = Scope {
            within: Some(Within {
                clause: self.name,
                groups: self.groups,
            }),
            ..Scope::new(Some(self.scope), &file)
        };
        let inputs: Vec<Typed> = compared
            .iter()
            .map(|t| {
                // A literal or parameter takes its type from what it is compared with.
                let expr = match &t.expr {
                    Expr::Const(_) | Expr::Param(_) => t.expr.clone(),
                    e => Expr::Column(file.input(e.clone())),
                };
                Typed {
                    expr,
                    ty: t.ty,
                    typmod: t.typmod,
                    collation: t.collation,
                }
            })
            .collect();
        let (kind, ty, typmod, collation, level) = collate::apart(|| {
            let mut level = self.analyzer.query(q, &inside, self.known)?;
            let (kind, ty, typmod) = kind(&mut level, &inputs)?;
            let first = level.outputs.first();
            let collation = first.map_or_else(Derived::default, |o| o.value.collation);
            Ok((kind, ty, typmod, collation.of_column(), level))
        })?;
        let (outer, registers): (Vec<Expr>, Vec<_>) = file.inputs().into_iter().unzip();
        let mut all = self.analyzer.subqueries.borrow_mut();
        let number = all.len();
        all.push(Some(Subquery {
            level,
            kind,
            inputs: registers,
            width: file.width(),
        }));
        Ok(Typed {
            expr: Expr::Subquery {
                number,
                inputs: outer,
            },
            ty,
            typmod,
            collation,
        })
    }

    pub(super) fn scalar(&self, q: &ast::Query) -> Result<Typed> {
        self.subquery(q, &[], |level, _| {
            if level.outputs.len() != 1 {
                return Err(Error::new("42601", "subquery must return only one column"));
            }
            self.analyzer.settle(level)?;
            let value = &level.outputs[0].value;
            Ok((Kind::Scalar, value.ty, value.typmod))
        })
    }

    pub(super) fn exists(&self, q: &ast::Query, negated: bool) -> Result<Typed> {
        let found = self.subquery(q, &[], |_, _| Ok((Kind::Exists, SqlType::Bool, -1)))?;
        Ok(not_if(negated, found))
    }

    pub(super) fn in_subquery(
        &self,
        left: &[Typed],
        q: &ast::Query,
        negated: bool,
        place: Option<Place>,
    ) -> Result<Typed> {
        let found = self.compared(left, &BinaryOperator::Eq, q, (false, place))?;
        Ok(not_if(negated, found))
    }

    /// `ARRAY(SELECT ..)`.
    pub(super) fn array_of(&self, q: &ast::Query) -> Result<Typed> {
        // Its columns are qualified: the place of a bare name is noted in views, and these have
        // none.
        let template = "select coalesce(array_agg(a.e), '{}') from (select 1) as a(e)";
        let unexpected = || Error::internal("a SELECT that is none");
        let Command::Sql(statement) = parse::statement(template)? else {
            return Err(unexpected());
        };
        let ast::Statement::Query(mut query) = *statement else {
            return Err(unexpected());
        };
        let ast::SetExpr::Select(select) = &mut *query.body else {
            return Err(unexpected());
        };
        match select.from.first_mut().map(|t| &mut t.relation) {
            Some(ast::TableFactor::Derived { subquery, .. }) => **subquery = q.clone(),
            _ => return Err(unexpected()),
        }
        self.scalar(&query)
    }

    /// `left op ANY (query)`, or ALL.
    pub(super) fn quantified(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
    ) -> Result<Option<Typed>> {
        let Some(q) = subquery_in(right) else {
            return self.binder().in_array(left, op, right, all).map(Some);
        };
        let place = Place::of_operator_after(left);
        let left = match self.row_of(left)? {
            Some(row) => row,
            None => vec![self.binder().expr(left)?],
        };
        self.compared(&left, op, q, (all, place)).map(Some)
    }

    fn compared(
        &self,
        left: &[Typed],
        op: &BinaryOperator,
        q: &ast::Query,
        (all, place): (bool, Option<Place>),
    ) -> Result<Typed> {
        let Some(op) = bind::comparison(op) else {
            return self.operated(left, op, q, (all, place));
        };
        self.subquery(q, left, |level, inputs| {
            check_width(inputs.len(), level.outputs.len(), place)?;
            let binder = self.binder();
            let mut tests = Vec::new();
            for (input, output) in inputs.iter().zip(&level.outputs) {
                let right = binder.settle(output.value.clone())?;
                tests.push(binder.compare(op, input.clone(), right)?.expr);
            }
            if tests.len() > 1 && !matches!(op, CmpOp::Eq | CmpOp::Ne) {
                return Err(Error::unsupported("an order of rows with ANY or ALL"));
            }
            let hashed = match (op, all) {
                (CmpOp::Eq, false) | (CmpOp::Ne, true) => hashed(&tests),
                _ => None,
            };
            let test = match (tests.len(), op) {
                (1, _) => tests.remove(0),
                (_, CmpOp::Ne) => Expr::Or(tests),
                _ => Expr::And(tests),
            };
            Ok((Kind::Compared { test, all, hashed }, SqlType::Bool, -1))
        })
    }

    /// ANY and ALL of a subquery by an operator that is no comparison.
    fn operated(
        &self,
        left: &[Typed],
        op: &BinaryOperator,
        q: &ast::Query,
        (all, place): (bool, Option<Place>),
    ) -> Result<Typed> {
        self.subquery(q, left, |level, inputs| {
            check_width(inputs.len(), level.outputs.len(), place)?;
            let binder = self.binder();
            let ([input], [output]) = (inputs, level.outputs.as_slice()) else {
                let what = format!("{op} ANY or ALL of rows of a subquery");
                return Err(Error::unsupported(what));
            };
            let right = binder.settle(output.value.clone())?;
            let test = binder.operated_values(op, input.clone(), right)?;
            if test.ty != SqlType::Bool {
                let of = test.ty.name();
                let message =
                    format!("row comparison operator must yield type boolean, not type {of}");
                return Err(Error::new("42804", message));
            }
            let test = test.expr;
            let hashed = None;
            Ok((Kind::Compared { test, all, hashed }, SqlType::Bool, -1))
        })
    }
}

/// A subquery has as many columns as there are values before it.
fn check_width(inputs: usize, outputs: usize, place: Option<Place>) -> Result<()> {
    let message = match outputs.cmp(&inputs) {
        std::cmp::Ordering::Less => "subquery has too few columns",
        std::cmp::Ordering::Greater => "subquery has too many columns",
        std::cmp::Ordering::Equal => return Ok(()),
    };
    Err(Error::new("42601", message).placed(place))
}

/// Pairs of what is compared, if each test is of an input alone with an expression of the row:
/// input's register for now, to be made its place.
fn hashed(tests: &[Expr]) -> Option<Hashed> {
    let mut found = Hashed {
        inputs: Vec::new(),
        rows: Vec::new(),
    };
    for test in tests {
        let Expr::Compare(CmpOp::Eq | CmpOp::Ne, left, right) = test else {
            return None;
        };
        let Expr::Column(register) = **left else {
            return None;
        };
        found.inputs.push(register);
        found.rows.push((**right).clone());
    }
    Some(found)
}

fn not_if(negated: bool, t: Typed) -> Typed {
    match negated {
        true => Typed::new(Expr::Not(Box::new(t.expr)), SqlType::Bool),
        false => t,
    }
}
