//! Documents as rows of columns: `json_to_record`, `json_populate_recordset` and their kin. The
//! columns are those of a definition list, or those of a type of rows.

use block::value::Datum;
use sqlparser::ast::{self, TableAlias};

use super::Analyzer;
use super::expression::Clause;
use super::from::{Item, rename};
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind, Series};
use super::with::Known;
use crate::bind::{TypeNames, Typed, names, parts};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::query::plan::{JsonSeries, SeriesOf};
use crate::query::record_function::RecordFunction;
use crate::types::SqlType;

/// Name, type and modifier of each column.
type Fields = Vec<(String, SqlType, i32)>;

impl Analyzer<'_> {
    /// Such a function in FROM.
    pub(super) fn record_function(
        &self,
        function: RecordFunction,
        args: &[ast::FunctionArg],
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let clause = Clause::new(self, scope, known, "functions in FROM");
        let args = clause.plain_args(args)?;
        let defined = alias.map_or(Ok(Vec::new()), |a| defined(a, &self.params.names))?;
        let mut of_base = None;
        let (fields, document) = match (function.populate, args.as_slice()) {
            (false, _) if defined.is_empty() => {
                return Err(Error::new(
                    "42601",
                    "a column definition list is required for functions returning \"record\"",
                ));
            }
            (false, [document]) => (defined, *document),
            (true, [base, document]) if defined.is_empty() => {
                let (fields, given) = self.base(&clause, base)?;
                of_base = given;
                (fields, *document)
            }
            (true, [_, _]) => {
                return Err(Error::new(
                    "42601",
                    "a column definition list is only allowed for functions returning \"record\"",
                ));
            }
            _ => {
                return Err(Error::unsupported(format!(
                    "this form of {}",
                    function.name()
                )));
            }
        };
        let binder = clause.binder();
        let ty = match function.binary {
            true => SqlType::Jsonb,
            false => SqlType::Json,
        };
        let bound = binder.expr(document)?;
        if bound.ty != ty && bound.ty != SqlType::Unknown {
            let message = format!(
                "function {}({}) does not exist",
                function.name(),
                bound.ty.name()
            );
            return Err(Error::new("42883", message));
        }
        let document = binder.coerce(bound, ty, -1, CastContext::Implicit)?;
        let series = Series {
            of: SeriesOf::Json(JsonSeries::Record(function)),
            args: vec![document.expr],
            ty,
            into: scope.file.register(),
            more: Vec::new(),
            columns: Vec::new(),
            ordinality: None,
        };
        let mut row = Typed::new(Expr::Column(series.into), ty);
        if let Some(base) = of_base {
            row = binder.over_base(base, row)?;
        }
        let called = alias.map_or(function.name().to_string(), |a| names::ident(&a.name));
        let mut found = Names {
            tables: vec![called.clone()],
            ..Names::default()
        };
        for (name, ty, typmod) in fields {
            found.columns.push(Column {
                table: called.clone(),
                value: binder.json_member(row.clone(), &name, ty, typmod)?,
                name,
                origin: (0, 0),
                merged: false,
                whole: false,
            });
        }
        if let Some(alias) = alias {
            rename(&mut found, &without_types(alias))?;
        }
        let relation = Relation {
            alias: called,
            registers: vec![series.into],
            kind: RelationKind::Series(series),
        };
        Ok((From::Relation(relation), found))
    }

    /// The columns of the type of a base, and the base if it may be another than NULL.
    fn base(&self, clause: &Clause<'_>, base: &ast::Expr) -> Result<(Fields, Option<Typed>)> {
        let base = clause.binder().expr(base)?;
        let SqlType::Composite(ty) = base.ty else {
            let message = "first argument of json_populate_record must be a row type";
            return Err(Error::new("42804", message));
        };
        let fields = ty.fields().ok_or_else(|| {
            Error::new(
                "0A000",
                "could not determine row type for result of json_populate_record",
            )
        })?;
        let fields = fields.iter().map(|f| (f.name.clone(), f.ty, f.typmod));
        if let Some(table) = self.dict.table_of_row_type(ty.def().oid) {
            self.note_table(table, crate::parse::utility::TableLock::AccessShare);
        }
        let is_null = matches!(base.expr, Expr::Const(Datum::Null));
        Ok((fields.collect(), (!is_null).then_some(base)))
    }
}

/// The columns that an alias defines.
pub fn defined(alias: &TableAlias, known: &TypeNames) -> Result<Fields> {
    let mut fields = Vec::new();
    for column in &alias.columns {
        if let Some(ty) = &column.data_type {
            let (ty, typmod) = parts::data_type(ty, known)?;
            if ty.is_domain() {
                return Err(Error::unsupported("a column definition list with domains"));
            }
            fields.push((names::ident(&column.name), ty, typmod));
        }
    }
    match fields.len() == alias.columns.len() || fields.is_empty() {
        true => Ok(fields),
        false => Err(Error::new(
            "42601",
            "syntax error in a column definition list",
        )),
    }
}

pub fn without_types(alias: &TableAlias) -> TableAlias {
    let mut alias = alias.clone();
    for column in &mut alias.columns {
        column.data_type = None;
    }
    alias
}
