//! Documents as rows of columns: `json_to_record`, `json_populate_recordset` and their kin. The
//! columns are those of a definition list, or those of a type of rows.

use block::value::Datum;
use sqlparser::ast::{self, TableAlias};

use super::Analyzer;
use super::expression::Clause;
use super::from::{Item, rename};
use super::functions::rows_of;
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind, Series};
use super::with::Known;
use crate::bind::{self, TypeNames, Typed, names, parts};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::query::record_function::RecordFunction;
use crate::types::SqlType;
use crate::types::composite::{CompositeType, Field};

/// Name, type and modifier of each column.
type Fields = Vec<(String, SqlType, i32)>;

impl Analyzer<'_> {
    /// Such a function in FROM, and whether its rows are numbered.
    pub(super) fn record_function(
        &self,
        (function, ordinality): (RecordFunction, bool),
        args: &[ast::FunctionArg],
        alias: Option<&TableAlias>,
        scope: &Scope<'_>,
        known: &Known<'_>,
    ) -> Result<Item> {
        let clause = Clause::new(self, scope, known, "functions in FROM");
        let binder = clause.binder();
        let args = clause.plain_args(args)?.into_iter();
        let args = args.map(|e| binder.expr(e)).collect::<Result<Vec<_>>>()?;
        let defined = alias.map_or(Ok(Vec::new()), |a| defined(a, &self.params.names))?;
        let (base, document) = match (function.populate, args.as_slice()) {
            (false, [document]) => (None, document.clone()),
            (true, [base, document]) => (Some(base), document.clone()),
            // It means nothing.
            (true, [base, document, _]) if !function.binary => (Some(base), document.clone()),
            _ => return Err(bind::no_function(function.name(), &args)),
        };
        let wanted = match base {
            Some(base) => binder.row_wanted(function, base)?,
            None => None,
        };
        let (row, declared) = row_of(wanted, &defined)?;
        if let Some(table) = self.dict.table_of_row_type(row.def().oid) {
            self.note_table(table, crate::parse::utility::TableLock::AccessShare);
        }
        let value = binder.populated(function, (row, declared), base.cloned(), document)?;
        let into = scope.file.register();
        let called = alias.map_or(function.name().to_string(), |a| names::ident(&a.name));
        let column = |name: String, value: Typed| Column {
            table: called.clone(),
            name,
            value,
            origin: (0, 0),
            merged: false,
            whole: false,
        };
        let whole = Typed::new(Expr::Column(into), SqlType::Composite(row));
        let fields = binder.fields_of(&whole)?.into_iter().enumerate();
        let columns = fields.map(|(at, field)| {
            let name = defined.get(at).map(|(name, ..)| name.clone());
            column(name.unwrap_or_else(|| row.field_name(at)), field)
        });
        let mut found = Names {
            columns: columns.collect(),
            tables: vec![called.clone()],
            rows: vec![(called.clone(), whole.expr)],
            ..Names::default()
        };
        let mut registers = vec![into];
        let number = ordinality.then(|| scope.file.register());
        if let Some(number) = number {
            registers.push(number);
            let value = Typed::new(Expr::Column(number), SqlType::Int8);
            found.columns.push(column("ordinality".to_string(), value));
        }
        let kind = match function.set {
            true => RelationKind::Series(Series {
                ordinality: number,
                ..rows_of(value, into)
            }),
            false => {
                let number = number.map(|register| (register, Expr::Const(Datum::Int8(1))));
                let row = [(into, value.expr)].into_iter().chain(number);
                RelationKind::Row(row.collect())
            }
        };
        if let Some(alias) = alias {
            rename(&mut found, &without_types(alias))?;
        }
        let relation = Relation {
            alias: called,
            registers,
            kind,
        };
        Ok((From::Relation(relation), found))
    }
}

/// The type of the rows that are wanted by the type of a base, or by the columns that are defined.
fn row_of(
    wanted: Option<(CompositeType, SqlType)>,
    defined: &[(String, SqlType, i32)],
) -> Result<(CompositeType, SqlType)> {
    match (wanted, defined.is_empty()) {
        (Some((row, declared)), true) if !row.is_record() => Ok((row, declared)),
        (_, true) => Err(Error::new(
            "42601",
            "a column definition list is required for functions returning \"record\"",
        )),
        (Some((row, _)), false) if !row.is_record() => Err(Error::new(
            "42601",
            "a column definition list is redundant for a function returning a named composite type",
        )),
        (Some((row, declared)), false) => {
            same_columns(row.fields().unwrap_or_default(), defined)?;
            Ok((row, declared))
        }
        (None, false) => {
            let field = |(name, declared, typmod): &(String, SqlType, i32)| Field {
                name: name.clone(),
                ty: declared.base(),
                typmod: *typmod,
                declared: *declared,
            };
            let row = CompositeType::of_fields(defined.iter().map(field).collect());
            Ok((row, SqlType::Composite(row)))
        }
    }
}

/// Refuses rows of other fields than the columns that are defined.
fn same_columns(fields: &[Field], defined: &[(String, SqlType, i32)]) -> Result<()> {
    let wrong = |detail: String| {
        let message = "function return row and query-specified return row do not match";
        Err(Error::new("42804", message).detail(detail))
    };
    if fields.len() != defined.len() {
        let what = if fields.len() == 1 {
            "attribute"
        } else {
            "attributes"
        };
        return wrong(format!(
            "Returned row contains {} {what}, but query expects {}.",
            fields.len(),
            defined.len()
        ));
    }
    for (at, (field, (_, wanted, _))) in fields.iter().zip(defined).enumerate() {
        if field.declared != *wanted {
            return wrong(format!(
                "Returned type {} at ordinal position {}, but query expects {}.",
                field.declared.name(),
                at + 1,
                wanted.name()
            ));
        }
    }
    Ok(())
}

/// The columns that an alias defines.
pub fn defined(alias: &TableAlias, known: &TypeNames) -> Result<Fields> {
    let mut fields = Vec::new();
    for column in &alias.columns {
        if let Some(ty) = &column.data_type {
            let (ty, typmod) = parts::data_type(ty, known)?;
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
