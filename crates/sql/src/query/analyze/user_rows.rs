//! Functions of users in FROM that give rows, and in the select list that give several values.

use sqlparser::ast::TableAlias;

use super::Analyzer;
use super::expression::{Clause, is_set};
use super::from::{Item, rename};
use super::records::{defined, without_types};
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind, Series};
use crate::bind::{self, Called, Typed, names};
use crate::dict::Function;
use crate::dict::function::{Field, RECORD};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::parse::utility::TableLock;
use crate::query::plan::{SeriesOf, UserSeries};
use crate::types::SqlType;
use crate::types::call_types::CallTypes;
use crate::types::composite::CompositeType;

fn series_of(function: &Function, types: Option<CallTypes>) -> SeriesOf {
    SeriesOf::User(UserSeries {
        oid: function.oid,
        types,
        set: function.returns_set,
        strict: function.strict,
        rows: match function.returns_set {
            true => function.rows as u32,
            false => 1,
        },
    })
}

impl Analyzer<'_> {
    pub(super) fn user_rows(
        &self,
        (called, written): (Called, &str),
        ordinality: bool,
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
    ) -> Result<Item> {
        let Called {
            function,
            args,
            types,
        } = called;
        // In the text of a view the function has the name of when it was made.
        let table = alias.map_or(written.to_string(), |a| names::ident(&a.name));
        let fields = self.fields_of(&function, &table, alias)?;
        let mut found = Names {
            tables: vec![table.clone()],
            ..Names::default()
        };
        let single = !function.gives_rows() && !ordinality;
        let mut column = |name: &str, ty: SqlType, typmod: i32| {
            let register = scope.file.register();
            found.columns.push(Column {
                table: table.clone(),
                name: name.to_string(),
                value: Typed {
                    typmod,
                    ..Typed::new(Expr::Column(register), ty)
                },
                origin: (0, 0),
                merged: false,
                whole: single,
            });
            register
        };
        let each = fields
            .iter()
            .map(|(name, ty, typmod)| column(name, ty.base(), *typmod));
        let mut registers: Vec<_> = each.collect();
        let first = registers.first().copied();
        // Of a table without columns there are rows, too.
        let first = first.unwrap_or_else(|| scope.file.register());
        let more = registers.iter().skip(1).copied().collect();
        let ordinality = ordinality.then(|| column("ordinality", SqlType::Int8, -1));
        registers.extend(ordinality);
        if registers.is_empty() {
            registers.push(first);
        }
        let series = Series {
            of: series_of(&function, types),
            args,
            ty: fields.first().map_or(SqlType::Int4, |f| f.1.base()),
            into: first,
            more,
            columns: fields.iter().map(|f| (f.1, f.2)).collect(),
            ordinality,
        };
        if let Some(alias) = alias {
            rename(&mut found, &without_types(alias))?;
        }
        let relation = Relation {
            alias: table,
            registers,
            kind: RelationKind::Series(series),
        };
        Ok((From::Relation(relation), found))
    }

    /// The columns of what a function gives: its own, or those that the alias defines.
    fn fields_of(
        &self,
        function: &Function,
        table: &str,
        alias: Option<&TableAlias>,
    ) -> Result<Vec<Field>> {
        let defined = alias.map_or(Ok(Vec::new()), |a| defined(a, &self.params.names))?;
        if let Some(oid) = function.row_of {
            let table = self.dict.table_by_oid(oid).cloned();
            let missing = || Error::internal("a function gives rows of no table");
            self.note_table(&table.ok_or_else(missing)?, TableLock::AccessShare);
        }
        let own = match function.gives_rows() {
            true => function.columns(self.dict),
            // A function's only column is named as the function is called, or as its output is.
            false => {
                let mut outputs = function.outputs();
                let name = match outputs.next() {
                    Some(output) if !output.name.is_empty() => output.name.clone(),
                    _ => table.to_string(),
                };
                Some(vec![(name, function.result_type(), -1)])
            }
        };
        let wrong = |message: &str| Err(Error::new("42601", message));
        match (own, defined.is_empty()) {
            (Some(own), true) => Ok(own),
            (None, false) => Ok(defined),
            (None, true) => {
                wrong("a column definition list is required for functions returning \"record\"")
            }
            (Some(_), false) if function.result == RECORD && function.row_of.is_none() => {
                wrong("a column definition list is redundant for a function with OUT parameters")
            }
            (Some(_), false) if function.row_of.is_some() => wrong(
                "a column definition list is redundant for a function returning a named composite type",
            ),
            (Some(_), false) => {
                wrong("a column definition list is only allowed for functions returning \"record\"")
            }
        }
    }
}

impl Clause<'_> {
    /// The type of the rows that a function gives as values, and its fields.
    fn rows_as_values(&self, function: &Function) -> Result<(CompositeType, Vec<Field>)> {
        let dict = self.analyzer.dict;
        let known = function.row_type(dict).zip(function.columns(dict));
        known.ok_or_else(|| {
            let what = format!("the rows that {} gives as values", function.name);
            Error::unsupported(what)
        })
    }

    /// A call in an expression of a function that gives several values.
    pub(super) fn user_values(&self, called: Called) -> Result<Typed> {
        let Called {
            function,
            args,
            types,
        } = called;
        let row = match function.gives_rows() {
            true => Some(self.rows_as_values(&function)?),
            false => None,
        };
        let Some(series) = self.series else {
            return Err(Error::new(
                "0A000",
                format!("set-returning functions are not allowed in {}", self.name),
            ));
        };
        if let Some((row, fields)) = row {
            let columns: Vec<(SqlType, i32)> = fields.iter().map(|f| (f.1, f.2)).collect();
            let mut registers = fields.iter().map(|_| self.scope.file.register());
            let into = registers.next();
            let into = into.unwrap_or_else(|| self.scope.file.register());
            let more: Vec<_> = registers.collect();
            let each = [into].into_iter().chain(more.iter().copied());
            let values: Vec<Expr> = each.take(columns.len()).map(Expr::Column).collect();
            // Where the function has given less rows than another beside it, there is none.
            let is_there = self.scope.file.register();
            series.borrow_mut().push(Series {
                of: series_of(&function, types),
                args,
                ty: columns.first().map_or(SqlType::Int4, |(ty, _)| ty.base()),
                into,
                more,
                columns,
                ordinality: Some(is_there),
            });
            let mut value = bind::row_of(row, values);
            value.expr = Expr::Case {
                branches: vec![(is_set(is_there), value.expr)],
                otherwise: None,
            };
            return Ok(value);
        }
        let declared = function.result_type();
        let ty = declared.base();
        let made = Series {
            of: series_of(&function, types),
            args,
            ty,
            into: self.scope.file.register(),
            more: Vec::new(),
            columns: vec![(declared, -1)],
            ordinality: None,
        };
        let value = Typed::new(Expr::Column(made.into), ty);
        series.borrow_mut().push(made);
        Ok(value)
    }
}
