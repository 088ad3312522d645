//! Functions in FROM, and those that give several rows.

use block::value::Datum;
use datafusion::sql::sqlparser::ast::{self, TableAlias};

use super::Analyzer;
use super::expression::Clause;
use super::from::{Item, rename};
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind, Series};
use super::with::Known;
use crate::bind::{Typed, names};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::types::SqlType;
use crate::views;

impl Analyzer<'_> {
    pub(super) fn function(
        &self,
        name: &ast::ObjectName,
        args: &[ast::FunctionArg],
        ordinality: bool,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let q = names::Qualified::new(name)?;
        if let Some(view) = views::find(Some(views::FUNCTIONS), &q.name)
            && !ordinality
            && args.is_empty()
        {
            return self.view(view, &q.name, alias, scope);
        }
        let clause = Clause::new(self, scope, known, "functions in FROM");
        let (relation, value) = match q.name.as_str() {
            "generate_series" => {
                let series = self.series(&clause, args)?;
                let value = Typed::new(Expr::Column(series.into), series.ty);
                (RelationKind::Series(series), value)
            }
            _ => {
                let call = clause.call_of(name, args)?;
                let value = clause.binder().settle(clause.binder().expr(&call)?)?;
                let register = scope.file.register();
                let place = Typed {
                    expr: Expr::Column(register),
                    ..value
                };
                (RelationKind::Row(vec![(register, value.expr)]), place)
            }
        };
        // A function's only column is named as the function is called.
        let called = alias.map_or(q.name.clone(), |a| names::ident(&a.name));
        let column = |name: &str, value: Typed| Column {
            table: called.clone(),
            name: name.to_string(),
            value,
            origin: (0, 0),
            merged: false,
        };
        let mut found = Names {
            columns: vec![column(&called, value.clone())],
            tables: vec![called.clone()],
            ..Names::default()
        };
        let mut registers = match &value.expr {
            Expr::Column(r) => vec![*r],
            _ => Vec::new(),
        };
        let relation = match (relation, ordinality) {
            (RelationKind::Series(mut series), true) => {
                let register = scope.file.register();
                series.ordinality = Some(register);
                registers.push(register);
                let number = Typed::new(Expr::Column(register), SqlType::Int8);
                found.columns.push(column("ordinality", number));
                RelationKind::Series(series)
            }
            (RelationKind::Row(mut row), true) => {
                let register = scope.file.register();
                row.push((register, Expr::Const(Datum::Int8(1))));
                registers.push(register);
                let number = Typed::new(Expr::Column(register), SqlType::Int8);
                found.columns.push(column("ordinality", number));
                RelationKind::Row(row)
            }
            (relation, _) => relation,
        };
        if let Some(alias) = alias {
            rename(&mut found, alias)?;
        }
        let relation = Relation {
            alias: called,
            registers,
            kind: relation,
        };
        Ok((From::Relation(relation), found))
    }

    /// The arguments of `generate_series`, of one type.
    pub fn series(&self, clause: &Clause<'_>, args: &[ast::FunctionArg]) -> Result<Series> {
        let binder = clause.binder();
        let args = clause
            .plain_args(args)?
            .into_iter()
            .map(|e| binder.expr(e))
            .collect::<Result<Vec<_>>>()?;
        let types: Vec<SqlType> = args.iter().map(|a| a.ty).collect();
        let missing = || {
            let types: Vec<&str> = types.iter().map(|t| t.name()).collect();
            Error::new(
                "42883",
                format!("function generate_series({}) does not exist", types.join(", ")),
            )
            .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
        };
        if !(2..=3).contains(&args.len()) {
            return Err(missing());
        }
        let number =
            |t: &SqlType| t.is_integer() || matches!(t, SqlType::Numeric | SqlType::Unknown);
        if !types.iter().all(number) {
            return Err(
                match types
                    .iter()
                    .any(|t| matches!(t, SqlType::Timestamp | SqlType::TimestampTz | SqlType::Date))
                {
                    true => Error::unsupported("generate_series of times"),
                    false => missing(),
                },
            );
        }
        let ty = match () {
            () if types.contains(&SqlType::Numeric) => SqlType::Numeric,
            () if types.contains(&SqlType::Int8) => SqlType::Int8,
            () => SqlType::Int4,
        };
        let mut args = args
            .into_iter()
            .map(|a| Ok(binder.coerce(a, ty, -1, CastContext::Implicit)?.expr))
            .collect::<Result<Vec<_>>>()?
            .into_iter();
        let missing = || Error::internal("a series without its bounds");
        Ok(Series {
            start: args.next().ok_or_else(missing)?,
            stop: args.next().ok_or_else(missing)?,
            step: args.next(),
            ty,
            into: clause.scope.file.register(),
            ordinality: None,
        })
    }
}
