//! Functions in FROM, and those that give several rows.

use block::value::Datum;
use sqlparser::ast::{self, TableAlias};

use super::Analyzer;
use super::answers;
use super::expression::Clause;
use super::from::{Item, rename};
use super::records::{defined, without_types};
use super::scope::{Column, Names, Scope};
use super::tree::{From, Relation, RelationKind, Series};
use super::with::Known;
use crate::bind::{self, Typed, call_of, common_type, names, parts};
use crate::error::{Error, Result};
use crate::expr::Expr;
use crate::expr::cast::CastContext;
use crate::expr::{func, matches};
use crate::parse::{arrays, forms};
use crate::query::plan::{JsonSeries, Register, SeriesOf};
use crate::query::record_function::of_record;
use crate::types::SqlType;
use crate::views;

/// The function of information_schema by which drivers read the columns of an index.
const EXPAND_ARRAY: &str = "_pg_expandarray";

/// The function by which pg_dump reads the options of foreign tables and servers.
const OPTIONS: &str = "pg_options_to_table";

/// How the array is taken apart that a function of several rows makes at once.
fn array_of(name: &str) -> Option<SeriesOf> {
    Some(match name {
        "regexp_matches" => SeriesOf::Rows,
        "regexp_split_to_table" | "string_to_table" | "pg_listening_channels" => SeriesOf::Elements,
        _ => return None,
    })
}

/// Whether a function gives several rows.
pub fn is_series(name: &str) -> bool {
    let plain = [
        "generate_series",
        "unnest",
        "generate_subscripts",
        EXPAND_ARRAY,
        OPTIONS,
        ACL_ITEMS,
    ];
    let is_set = of_record(name).is_some_and(|function| function.set);
    plain.contains(&name) || array_of(name).is_some() || of_json(name).is_some() || is_set
}

/// A function that gives the parts of a document, and whether that is jsonb.
fn of_json(name: &str) -> Option<(JsonSeries, bool)> {
    let (name, binary) = match name.strip_prefix("json_") {
        Some(name) => (name, false),
        None => (name.strip_prefix("jsonb_")?, true),
    };
    let of = match name {
        "each" => JsonSeries::Each { text: false },
        "each_text" => JsonSeries::Each { text: true },
        "array_elements" => JsonSeries::Elements { text: false },
        "array_elements_text" => JsonSeries::Elements { text: true },
        "object_keys" => JsonSeries::Keys,
        "path_query" | "path_query_tz" if binary => JsonSeries::Elements { text: false },
        _ => return None,
    };
    Some((of, binary))
}

/// The function that takes arrays of privileges apart.
const ACL_ITEMS: &str = "aclexplode";

/// A function that gives what a path leads to.
fn is_path_query(name: &str) -> bool {
    matches!(name, "jsonb_path_query" | "jsonb_path_query_tz")
}

/// Whether what a function gives are rows of several columns.
pub fn gives_rows(name: &str) -> bool {
    several_columns(name).is_some()
}

/// Of a function whose rows have several columns, what the first is called, and names and types of
/// the others.
pub(super) fn several_columns(name: &str) -> Option<(&'static str, Vec<(&'static str, SqlType)>)> {
    match name {
        OPTIONS => return Some(("option_name", vec![("option_value", SqlType::Text)])),
        ACL_ITEMS => {
            let others = vec![
                ("grantee", SqlType::Oid),
                ("privilege_type", SqlType::Text),
                ("is_grantable", SqlType::Bool),
            ];
            return Some(("grantor", others));
        }
        _ => {}
    }
    match of_json(name)? {
        (JsonSeries::Each { text }, binary) => {
            Some(("key", vec![("value", part_type(text, binary))]))
        }
        _ => None,
    }
}

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
        if let Some(text) = answers::query_of(&q, args.len())
            && !ordinality
        {
            return self.answer(text, &q.name, args, alias, scope, known);
        }
        if q.name == forms::ROWS_FROM {
            return self.side_by_side(args, ordinality, alias, scope, known);
        }
        if q.name == "unnest" && args.len() > 1 {
            return self.zipped(args, ordinality, alias, scope, known);
        }
        if let Some(function) = of_record(&q.name) {
            let called = (function, ordinality);
            return self.record_function(called, args, alias, scope, known);
        }
        let clause = Clause::new(self, scope, known, "functions in FROM");
        if let ast::Expr::Function(f) = call_of(name, args)
            && let Some(called) = clause.binder().user_rows(&q, &f)?
        {
            return self.user_rows((called, &q.name), ordinality, alias, scope);
        }
        let (mut relation, value) = match q.name.as_str() {
            EXPAND_ARRAY => {
                return Err(Error::unsupported(format!("{EXPAND_ARRAY} in FROM")));
            }
            function if is_series(function) => {
                let series = self.series(&clause, function, args)?;
                let value = Typed::new(Expr::Column(series.into), series.ty);
                (RelationKind::Series(series), value)
            }
            _ => {
                let call = call_of(name, args);
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
            whole: false,
        };
        let first = match of_json(&q.name).filter(|_| !is_path_query(&q.name)) {
            Some((JsonSeries::Elements { .. }, _)) => "value",
            _ => several_columns(&q.name).map_or(called.as_str(), |(first, _)| first),
        };
        let mut found = Names {
            columns: vec![Column {
                whole: !ordinality && !gives_rows(&q.name),
                ..column(first, value.clone())
            }],
            tables: vec![called.clone()],
            ..Names::default()
        };
        let is_row = matches!(value.ty, SqlType::Composite(_));
        if is_row {
            found.columns = self
                .fields_in_from(&value, alias)?
                .into_iter()
                .map(|(name, value)| column(&name, value))
                .collect();
            found.rows = vec![(called.clone(), value.expr.clone())];
        }
        let mut registers = match &value.expr {
            Expr::Column(r) => vec![*r],
            _ => Vec::new(),
        };
        if let (RelationKind::Series(series), Some((_, others))) =
            (&mut relation, several_columns(&q.name))
        {
            for (name, ty) in others {
                let register = scope.file.register();
                series.more.push(register);
                registers.push(register);
                let value = Typed::new(Expr::Column(register), ty);
                found.columns.push(column(name, value));
            }
        }
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
            let alias = if is_row { &without_types(alias) } else { alias };
            rename(&mut found, alias)?;
        }
        let relation = Relation {
            alias: called,
            registers,
            kind: relation,
        };
        Ok((From::Relation(relation), found))
    }

    /// A call of `generate_series` or `unnest`; its arguments are of one type.
    pub fn series(
        &self,
        clause: &Clause<'_>,
        name: &str,
        args: &[ast::FunctionArg],
    ) -> Result<Series> {
        if is_path_query(name) {
            let binder = clause.binder();
            // Its rows are the elements of an array.
            let items = binder.path_arguments(args)?;
            let all = match name.ends_with("_tz") {
                true => "jsonb_path_query_array_tz",
                false => "jsonb_path_query_array",
            };
            let items = binder.call(all, items)?;
            return Ok(Series {
                of: SeriesOf::Json(JsonSeries::Elements { text: false }),
                args: vec![items.expr],
                ty: SqlType::Jsonb,
                into: clause.scope.file.register(),
                more: Vec::new(),
                columns: Vec::new(),
                ordinality: None,
            });
        }
        if let Some(function) = of_record(name) {
            let args = clause.plain_args(args)?.into_iter();
            let binder = clause.binder();
            let args = args.map(|e| binder.expr(e)).collect::<Result<Vec<_>>>()?;
            let rows = binder.populate_call(function, &args)?;
            return Ok(rows_of(rows, clause.scope.file.register()));
        }
        if let Some((of, binary)) = of_json(name) {
            return self.json_series(clause, name, args, of, binary);
        }
        let binder = clause.binder();
        let mut written = clause.plain_args(args)?;
        let mut element = SqlType::Text;
        let mut listed = None;
        if let ("unnest", [array]) = (name, written.as_slice()) {
            if let ast::Expr::Cast { data_type, .. } = array
                && let Some(of) = arrays::element(data_type)
            {
                element = parts::data_type(of, &self.params.names)?.0.base();
            }
            listed = arrays::items(array)?;
        }
        if let Some(items) = &listed {
            written = items.iter().collect();
        }
        let args = written
            .into_iter()
            .map(|e| binder.expr(e))
            .collect::<Result<Vec<_>>>()?;
        if let Some(of) = array_of(name) {
            let array = match name {
                "string_to_table" => binder.call("string_to_array", args)?,
                "pg_listening_channels" => {
                    binder.call_one_of(name, &func::listening_channels(), args)?
                }
                "regexp_matches" => binder.call_one_of(name, &matches::all_at_once(), args)?,
                _ => {
                    let split = matches::overloads("regexp_split_to_array");
                    binder.call_one_of(name, &split, args)?
                }
            };
            let ty = match of {
                SeriesOf::Rows => array.ty,
                _ => array.ty.element().unwrap_or(array.ty),
            };
            return Ok(Series {
                of,
                args: vec![array.expr],
                ty,
                into: clause.scope.file.register(),
                more: Vec::new(),
                columns: Vec::new(),
                ordinality: None,
            });
        }
        let types: Vec<SqlType> = args.iter().map(|a| a.ty).collect();
        let missing = || no_function(name, &types);
        let number =
            |t: &SqlType| t.is_integer() || matches!(t, SqlType::Numeric | SqlType::Unknown);
        let time = |t: &SqlType| {
            use SqlType::{Date, Timestamp, TimestampTz, Unknown};
            matches!(t, Date | Timestamp | TimestampTz | Unknown)
        };
        let of_times = |types: &[SqlType]| {
            types.iter().all(time) && types.iter().any(|t| *t != SqlType::Unknown)
        };
        let (of, ty) = match (name, types.len(), types.last()) {
            ("unnest", 0, _) if listed.is_some() => (SeriesOf::List, element),
            ("unnest", _, _) if listed.is_some() => (SeriesOf::List, common_type(&types, "ARRAY")?),
            ("unnest", 1, Some(SqlType::Multirange(of))) => {
                (SeriesOf::Elements, SqlType::Range(*of))
            }
            ("unnest", 1, Some(of)) if let Some(of) = of.element() => (SeriesOf::Elements, of),
            ("unnest", 1, _) if types[0].is_string() => (SeriesOf::Elements, element),
            ("unnest", 1, _) => return Err(Error::unsupported("unnest of this array")),
            // Of dates, PostgreSQL takes the function of timestamps with time zone.
            ("generate_series", 3, Some(SqlType::Interval | SqlType::Unknown))
                if of_times(&types[..2]) =>
            {
                match types.contains(&SqlType::Timestamp) {
                    true => (SeriesOf::Times, SqlType::Timestamp),
                    false => (SeriesOf::Times, SqlType::TimestampTz),
                }
            }
            (EXPAND_ARRAY, 1, Some(SqlType::Int2Vector | SqlType::Array(_)))
                if matches!(types[0].element(), Some(SqlType::Int2 | SqlType::Int4)) =>
            {
                (SeriesOf::Expanded, SqlType::Expanded)
            }
            (EXPAND_ARRAY, 1, _) => {
                let message = format!("{EXPAND_ARRAY} of {}", types[0].name());
                return Err(Error::unsupported(message));
            }
            (OPTIONS, 1, Some(ty)) if matches!(*ty, SqlType::TEXTS | SqlType::Unknown) => {
                (SeriesOf::Options, SqlType::Text)
            }
            (ACL_ITEMS, 1, Some(ty)) if matches!(*ty, SqlType::TEXTS | SqlType::Unknown) => {
                (SeriesOf::AclItems, SqlType::Oid)
            }
            ("generate_subscripts", 2 | 3, _) if types[0].element().is_some() => {
                (SeriesOf::Subscripts, SqlType::Int4)
            }
            ("generate_series", 2 | 3, _) if types.iter().all(number) => {
                let ty = match () {
                    () if types.contains(&SqlType::Numeric) => SqlType::Numeric,
                    () if types.contains(&SqlType::Int8) => SqlType::Int8,
                    () => SqlType::Int4,
                };
                (SeriesOf::Numbers, ty)
            }
            _ => return Err(missing()),
        };
        // An array in text form stays one.
        let to = match of {
            SeriesOf::Elements if matches!(types[0], SqlType::Multirange(_)) => types[0],
            SeriesOf::Elements if bind::element_of(types[0]).is_some() => types[0],
            SeriesOf::Elements => SqlType::Text,
            _ => ty,
        };
        let args = args.into_iter().enumerate().map(|(at, a)| {
            let to = match (of, at) {
                (SeriesOf::Times, 2) => SqlType::Interval,
                (SeriesOf::Options | SeriesOf::AclItems, _) => SqlType::TEXTS,
                (SeriesOf::Subscripts | SeriesOf::Expanded, 0) => types[0],
                (SeriesOf::Subscripts, 2) => SqlType::Bool,
                _ => to,
            };
            Ok(binder.coerce(a, to, -1, CastContext::Implicit)?.expr)
        });
        let args = args.collect::<Result<Vec<_>>>()?;
        Ok(Series {
            of,
            args,
            ty,
            into: clause.scope.file.register(),
            more: Vec::new(),
            columns: Vec::new(),
            ordinality: None,
        })
    }

    /// The columns that a row is in FROM. What a record has, a definition list says.
    fn fields_in_from(
        &self,
        row: &Typed,
        alias: Option<&TableAlias>,
    ) -> Result<Vec<(String, Typed)>> {
        let empty = bind::Scope::default();
        let binder = bind::Binder::new(&empty, self.params, "functions in FROM");
        let fields = binder.fields_of(row)?;
        let defined = alias.map_or(Ok(Vec::new()), |a| defined(a, &self.params.names))?;
        let is_record = matches!(row.ty, SqlType::Composite(c) if c.is_record());
        match (is_record, defined.is_empty()) {
            (true, true) => Err(Error::new(
                "42601",
                "a column definition list is required for functions returning \"record\"",
            )),
            (false, false) => Err(Error::new(
                "42601",
                "a column definition list is redundant for a function returning a named \
                 composite type",
            )),
            (false, true) => {
                let named = fields.into_iter().enumerate();
                Ok(named
                    .map(|(at, f)| (bind::field_name(row, at), f))
                    .collect())
            }
            (true, false) => {
                let fits = defined.len() == fields.len()
                    && defined
                        .iter()
                        .zip(&fields)
                        .all(|((_, ty, _), f)| *ty == f.ty);
                if !fits {
                    let message = "function return row and query-specified return row do not match";
                    return Err(Error::new("42804", message));
                }
                let names = defined.into_iter().map(|(name, ..)| name);
                Ok(names.zip(fields).collect())
            }
        }
    }

    fn json_series(
        &self,
        clause: &Clause<'_>,
        name: &str,
        args: &[ast::FunctionArg],
        of: JsonSeries,
        binary: bool,
    ) -> Result<Series> {
        let binder = clause.binder();
        let document = if binary {
            SqlType::Jsonb
        } else {
            SqlType::Json
        };
        let args = clause.plain_args(args)?.into_iter();
        let args = args.map(|e| binder.expr(e)).collect::<Result<Vec<_>>>()?;
        let arg = match <[Typed; 1]>::try_from(args) {
            Ok([arg]) if arg.ty == document || arg.ty == SqlType::Unknown => arg,
            Ok([arg]) => return Err(no_function(name, &[arg.ty])),
            Err(args) => {
                return Err(no_function(
                    name,
                    &args.iter().map(|a| a.ty).collect::<Vec<_>>(),
                ));
            }
        };
        let ty = match of {
            JsonSeries::Elements { text } => part_type(text, binary),
            JsonSeries::Each { .. } | JsonSeries::Keys => SqlType::Text,
        };
        let arg = binder.coerce(arg, document, -1, CastContext::Implicit)?;
        Ok(Series {
            of: SeriesOf::Json(of),
            args: vec![arg.expr],
            ty,
            into: clause.scope.file.register(),
            more: Vec::new(),
            columns: Vec::new(),
            ordinality: None,
        })
    }
}

/// The elements of an array.
pub(super) fn rows_of(array: Typed, into: Register) -> Series {
    Series {
        of: SeriesOf::Elements,
        ty: array.ty.element().unwrap_or(array.ty),
        args: vec![array.expr],
        into,
        more: Vec::new(),
        columns: Vec::new(),
        ordinality: None,
    }
}

fn part_type(text: bool, binary: bool) -> SqlType {
    match (text, binary) {
        (true, _) => SqlType::Text,
        (false, true) => SqlType::Jsonb,
        (false, false) => SqlType::Json,
    }
}

fn no_function(name: &str, types: &[SqlType]) -> Error {
    let types: Vec<&str> = types.iter().map(|t| t.name()).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    Error::new("42883", message).hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
