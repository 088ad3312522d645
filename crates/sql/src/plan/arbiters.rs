//! Which unique indexes decide what meets a row of INSERT .. ON CONFLICT.

use sqlparser::ast::{ConflictTarget, Ident};

use super::indexed::implies;
use super::path::conjuncts;
use crate::bind::{ParamTypes, Scope, names};
use crate::dict::computed::{bind_expression, bind_predicate};
use crate::dict::{Dict, Index, Table};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::Arbiter;

/// Positions in the table's list of indexes. `alias` is what the statement calls the table.
pub fn arbiters(
    dict: &Dict,
    (table, alias): (&Table, &str),
    target: Option<&ConflictTarget>,
) -> Result<Vec<usize>> {
    let decides = |i: &Index| i.unique && i.is_valid();
    let unique = || (0..table.indexes.len()).filter(|&i| decides(&table.indexes[i]));
    let found: Vec<usize> = match target {
        None => unique().collect(),
        Some(ConflictTarget::Columns(parts)) => {
            let wanted = Wanted::read(dict, (table, alias), parts)?;
            unique()
                .filter(|i| wanted.fits(&table.indexes[*i]))
                .collect()
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let name = names::Qualified::new(name)?.name;
            let named = |i: &usize| {
                let index = &table.indexes[*i];
                index.name == name && index.constraint != 0
            };
            let found: Vec<usize> = unique().filter(named).collect();
            if found.is_empty() {
                let table = &table.name;
                let message = format!("constraint \"{name}\" for table \"{table}\" does not exist");
                return Err(Error::new("42704", message));
            }
            found
        }
    };
    if found.is_empty() && target.is_some() {
        return Err(Error::new(
            "42P10",
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        ));
    }
    if found.iter().any(|i| table.indexes[*i].deferrable) {
        let message = "ON CONFLICT does not support deferrable unique constraints/exclusion \
                       constraints as arbiters";
        return Err(Error::new("55000", message).table(&table.name));
    }
    Ok(found)
}

/// What an index has to be to decide.
#[derive(Default)]
struct Wanted {
    columns: Vec<usize>,
    expressions: Vec<Expr>,
    conditions: Vec<Expr>,
}

impl Wanted {
    fn read(dict: &Dict, (table, alias): (&Table, &str), parts: &[Ident]) -> Result<Wanted> {
        let params = ParamTypes::none(dict);
        let scope = Scope::of_table(table, alias);
        let mut wanted = Wanted::default();
        for part in parts {
            match Arbiter::of(part) {
                Arbiter::Column(name) => {
                    let name = names::ident(name);
                    wanted.columns.push(table.column(&name).ok_or_else(|| {
                        Error::new("42703", format!("column \"{name}\" does not exist"))
                    })?);
                }
                Arbiter::Expression(text) => match bind_expression(&scope, &params, text)?.expr {
                    Expr::Column(at) => wanted.columns.push(at),
                    e => wanted.expressions.push(e),
                },
                Arbiter::Condition(text) => {
                    let condition = bind_predicate(&scope, &params, text)?;
                    wanted.conditions = conjuncts(Some(condition));
                }
            }
        }
        Ok(wanted)
    }

    fn fits(&self, index: &Index) -> bool {
        let columns = || index.keys.iter().filter(|k| !k.is_expression());
        let columns_fit = columns().all(|k| self.columns.contains(&k.column))
            && self
                .columns
                .iter()
                .all(|c| columns().any(|k| k.column == *c));
        let Some(bound) = &index.bound else {
            return columns_fit && self.expressions.is_empty();
        };
        let keys = index.keys.iter().zip(&bound.keys);
        let own: Vec<&Expr> = keys
            .filter(|(k, _)| k.is_expression())
            .map(|(_, typed)| &typed.expr)
            .collect();
        let met = |p: &Expr| implies(&self.conditions, p);
        columns_fit
            && own.iter().all(|e| self.expressions.contains(*e))
            && self.expressions.iter().all(|e| own.contains(&e))
            && bound.predicate.as_ref().is_none_or(met)
    }
}
