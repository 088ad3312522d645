//! TABLESAMPLE: a table of FROM of which only a part is read.

use sqlparser::ast::{self, TableSampleKind, TableSampleMethod, TableSampleSeedModifier};

use super::Analyzer;
use super::expression::Clause;
use super::from::Item;
use super::scope::Scope;
use super::tree::{From, RelationKind};
use super::with::Known;
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::query::plan::Sample;
use crate::types::SqlType;

impl Analyzer<'_> {
    /// The item of a table, with its sample.
    pub(super) fn sampled(
        &self,
        sample: &TableSampleKind,
        (mut from, names): Item,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let (TableSampleKind::BeforeTableAlias(clause) | TableSampleKind::AfterTableAlias(clause)) =
            sample;
        let From::Relation(relation) = &mut from else {
            return Err(not_a_table());
        };
        let RelationKind::Table { sample, .. } = &mut relation.kind else {
            return Err(not_a_table());
        };
        let blocks = match clause.name {
            Some(TableSampleMethod::System) => true,
            Some(TableSampleMethod::Bernoulli) => false,
            _ => return Err(Error::unsupported(format!("{clause}"))),
        };
        let percent = match &clause.quantity {
            Some(quantity) if quantity.parenthesized && quantity.unit.is_none() => &quantity.value,
            _ => return Err(Error::unsupported(format!("{clause}"))),
        };
        if clause.bucket.is_some() || clause.offset.is_some() {
            return Err(Error::unsupported(format!("{clause}")));
        }
        let seed = match &clause.seed {
            Some(seed) if seed.modifier != TableSampleSeedModifier::Repeatable => {
                return Err(Error::unsupported(format!("{clause}")));
            }
            Some(seed) => {
                let value = ast::Expr::Value(seed.value.clone());
                Some(self.float(&value, scope, known)?)
            }
            None => None,
        };
        *sample = Some(Sample {
            blocks,
            percent: self.float(percent, scope, known)?,
            seed,
        });
        Ok((from, names))
    }

    fn float(&self, e: &ast::Expr, scope: &Scope<'_>, known: &Known<'_>) -> Result<Expr> {
        let clause = Clause::new(self, scope, known, "functions in FROM");
        let binder = clause.binder();
        let value = binder.expr(e)?;
        Ok(binder
            .coerce(value, SqlType::Float8, -1, CastContext::Assignment)?
            .expr)
    }
}

fn not_a_table() -> Error {
    let what = "TABLESAMPLE clause can only be applied to tables and materialized views";
    Error::new("0A000", what)
}
