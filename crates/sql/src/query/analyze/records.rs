//! Documents as rows of columns: `json_to_record`, `json_populate_recordset` and their kin. The
//! columns are those of a definition list, or those of a table.

use sqlparser::ast::{self, TableAlias};

use super::Analyzer;
use super::expression::Clause;
use super::from::{Item, rename};
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind, Series};
use super::with::Known;
use crate::bind::{TypeNames, Typed, names, parts};
use crate::dict;
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
        let (fields, document) = match (function.populate, args.as_slice()) {
            (false, _) if defined.is_empty() => {
                return Err(Error::new(
                    "42601",
                    "a column definition list is required for functions returning \"record\"",
                ));
            }
            (false, [document]) => (defined, *document),
            (true, [base, document]) if defined.is_empty() => {
                (self.fields_of_base(base)?, *document)
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
            ordinality: None,
        };
        let row = Typed::new(Expr::Column(series.into), ty);
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

    /// The columns of the table whose row type NULL is cast to.
    fn fields_of_base(&self, base: &ast::Expr) -> Result<Fields> {
        let refused = || Error::unsupported("a base that is not NULL of a table's type");
        let ast::Expr::Cast {
            expr, data_type, ..
        } = base
        else {
            return Err(refused());
        };
        let is_null = matches!(&**expr, ast::Expr::Value(v) if v.value == ast::Value::Null);
        let (ast::DataType::Custom(name, modifiers), true) = (data_type, is_null) else {
            return Err(refused());
        };
        let table = match self.dict.relation(&names::Qualified::new(name)?) {
            Some(dict::Relation::Table(table)) if modifiers.is_empty() => table,
            _ => {
                let message = format!("type \"{name}\" does not exist");
                return Err(Error::new("42704", message));
            }
        };
        self.note_table(&table, crate::parse::utility::TableLock::AccessShare);
        let columns = table.live_columns();
        let columns = columns.map(|(_, c)| (c.name.clone(), c.ty(), c.typmod));
        Ok(columns.collect())
    }
}

/// The columns that an alias defines.
fn defined(alias: &TableAlias, known: &TypeNames) -> Result<Fields> {
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

fn without_types(alias: &TableAlias) -> TableAlias {
    let mut alias = alias.clone();
    for column in &mut alias.columns {
        column.data_type = None;
    }
    alias
}
