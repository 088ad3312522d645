//! `unnest` of several arrays in FROM: a column of each, as many rows as the longest has elements.

use sqlparser::ast::{self, TableAlias};

use super::Analyzer;
use super::expression::Clause;
use super::from::{Item, rename};
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind, Series};
use super::with::Known;
use crate::bind::{Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::query::plan::SeriesOf;
use crate::types::SqlType;

const NAME: &str = "unnest";

impl Analyzer<'_> {
    pub(super) fn zipped(
        &self,
        args: &[ast::FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let clause = Clause::new(self, scope, known, "functions in FROM");
        let binder = clause.binder();
        let args = clause.plain_args(args)?.into_iter();
        let args = args.map(|e| binder.expr(e)).collect::<Result<Vec<_>>>()?;
        let called = alias.map_or(NAME.to_string(), |a| names::ident(&a.name));
        let mut found = Names {
            tables: vec![called.clone()],
            ..Names::default()
        };
        let mut column = |name: &str, ty: SqlType| {
            let register = scope.file.register();
            found.columns.push(Column {
                table: called.clone(),
                name: name.to_string(),
                value: Typed::new(Expr::Column(register), ty),
                origin: (0, 0),
                merged: false,
                whole: false,
            });
            register
        };
        let mut registers = Vec::with_capacity(args.len());
        for arg in &args {
            let Some(element) = arg.ty.element() else {
                let types: Vec<&str> = args.iter().map(|a| a.ty.name()).collect();
                let message = format!("function {NAME}({}) does not exist", types.join(", "));
                return Err(Error::new("42883", message));
            };
            registers.push(column(NAME, element));
        }
        let ordinality = ordinality.then(|| column("ordinality", SqlType::Int8));
        let (first, more) = match registers.split_first() {
            Some((first, more)) => (*first, more.to_vec()),
            None => return Err(Error::internal("unnest of no array")),
        };
        registers.extend(ordinality);
        let series = Series {
            of: SeriesOf::Zip,
            ty: args[0].ty,
            args: args.into_iter().map(|a| a.expr).collect(),
            into: first,
            more,
            columns: Vec::new(),
            ordinality,
        };
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        let relation = Relation {
            alias: called,
            registers,
            kind: RelationKind::Series(series),
        };
        Ok((From::Relation(relation), found))
    }
}
