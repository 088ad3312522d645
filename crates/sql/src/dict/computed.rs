//! Indexes on expressions, and of the rows that meet a condition: their keys as the engine asks for
//! them, and as plans look for them in statements.
//!
//! **Invariant.** The expressions are immutable ([`crate::ddl`] refuses others), so that they need
//! no session, and every instance computes the same key for a row.

use block::value::{ColType, Datum, DatumRef};
use engine::{ComputeError, ComputedKey};
use serde::{Deserialize, Serialize};
use sqlparser::ast;

use super::{Index, Table};
use crate::bind::{Binder, ParamTypes, Scope, Typed, collation};
use crate::error::{Error, Result};
use crate::expr::func::NoCalls;
use crate::expr::{Env, Expr};
use crate::types::{SqlType, storage_type};

/// The clauses in messages.
pub const EXPRESSIONS: &str = "index expressions";
pub const PREDICATES: &str = "index predicates";

/// An expression of an index, as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexExpression {
    /// Its SQL text.
    pub text: String,
    /// With the texts of functions that users made in the place of their calls, as they were when
    /// the index was made; `None`: it calls none.
    #[serde(default)]
    pub inlined: Option<String>,
    /// What the index has as the name of its column: `lower`, `expr`.
    pub name: String,
}

/// The keys of an index, bound to the columns of its table.
#[derive(Debug)]
pub struct IndexKeys {
    /// Of each column of the key.
    pub keys: Vec<Typed>,
    pub predicate: Option<Expr>,
    types: Vec<ColType>,
    used: Vec<bool>,
}

impl IndexKeys {
    /// `None`: the keys are columns, and all rows have one.
    pub fn bind(table: &Table, index: &Index) -> Result<Option<IndexKeys>> {
        let plain = index.expressions.is_empty() && index.predicate.is_none();
        if plain && index.method.is_ordered() {
            return Ok(None);
        }
        let params = ParamTypes::default();
        let scope = Scope::of_table(table, &table.name);
        let mut expressions = index.expressions.iter();
        let mut keys = Vec::with_capacity(index.keys.len());
        for key in &index.keys {
            keys.push(match key.is_expression() {
                false => {
                    let column = &table.columns[key.column];
                    let mut typed = Typed::new(Expr::Column(key.column), column.ty());
                    typed.typmod = column.typmod;
                    typed
                }
                true => {
                    let e = expressions.next();
                    let e = e.ok_or_else(|| Error::internal("an index without its expression"))?;
                    bind_expression(&scope, &params, e.inlined.as_ref().unwrap_or(&e.text))?
                }
            });
        }
        let predicate = match &index.predicate {
            None => None,
            Some(text) => {
                let text = index.inlined.as_ref().unwrap_or(text);
                Some(bind_predicate(&scope, &params, text)?)
            }
        };
        let types = keys.iter().map(|k| storage_type(k.ty));
        let types = types.collect::<Result<_>>()?;
        let mut used = vec![false; table.columns.len()];
        for e in keys.iter().map(|k| &k.expr).chain(&predicate) {
            e.visit(&mut |e| {
                if let Expr::Column(at) = e {
                    used[*at] = true;
                }
            });
        }
        Ok(Some(IndexKeys {
            keys,
            predicate,
            types,
            used,
        }))
    }

    /// The key of a row, if the index has the row.
    pub fn of(&self, row: &[DatumRef<'_>]) -> Result<Option<Vec<Datum>>> {
        let env = Env { row, params: &[] };
        let mut calls = NoCalls::default();
        if let Some(predicate) = &self.predicate
            && predicate.test(&env, &mut calls)? != Some(true)
        {
            return Ok(None);
        }
        let mut key = Vec::with_capacity(self.keys.len());
        for k in &self.keys {
            key.push(k.expr.eval(&env, &mut calls)?.into_datum());
        }
        Ok(Some(key))
    }
}

/// An expression over the columns of a table. What has no type of its own is text.
pub fn bind_expression(scope: &Scope, params: &ParamTypes, text: &str) -> Result<Typed> {
    let binder = Binder::new(scope, params, EXPRESSIONS);
    let e = crate::parse::expression(text)?;
    let mut typed = binder.expr(&e)?;
    if typed.ty == SqlType::Unknown {
        typed.ty = SqlType::Text;
    }
    // Strings in another order than that of their bytes are kept as what compares as bytes.
    if let Some(by) = collation::of_order(typed.ty, typed.collation)?
        && matches!(e, ast::Expr::Collate { .. })
    {
        typed = Typed::new(collation::key_of(typed.expr, by), SqlType::Bytea);
    }
    Ok(typed)
}

pub fn bind_predicate(scope: &Scope, params: &ParamTypes, text: &str) -> Result<Expr> {
    let binder = Binder::new(scope, params, PREDICATES);
    let typed = binder.expr(&crate::parse::expression(text)?)?;
    binder.boolean(typed, "WHERE")
}

impl ComputedKey for IndexKeys {
    fn types(&self) -> &[ColType] {
        &self.types
    }

    fn key(&self, row: &[DatumRef<'_>]) -> std::result::Result<Option<Vec<Datum>>, ComputeError> {
        self.of(row).map_err(|e| Box::new(e) as ComputeError)
    }

    fn uses(&self, column: usize) -> bool {
        self.used.get(column).copied().unwrap_or_default()
    }
}
