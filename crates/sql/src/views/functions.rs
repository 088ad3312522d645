//! Functions over the catalogs. Arguments are integers (of eight bytes), texts and booleans; a
//! function that PostgreSQL declares strict is not called with NULL.

use block::value::Datum;
use charset::Encoding;

use super::Context;
use super::describe::{self, PG_CATALOG};
use super::relations::view_oid;
use super::value::{quoted_array, text};
use crate::bind::names::quote;
use crate::dict::{PG_CLASS, PG_CONSTRAINT, PG_NAMESPACE, Relation};
use crate::error::{Error, Result};
use crate::session::relation_name as relation_name_of;
use crate::types::SqlType::{self, Bool, Int4, Int8, Oid, Text};

pub struct Function {
    pub name: &'static str,
    /// Fewest and most arguments.
    pub args: (usize, usize),
    pub returns: SqlType,
    pub strict: bool,
    pub call: fn(&Context, &[Datum]) -> Result<Datum>,
}

const fn strict(
    name: &'static str,
    args: (usize, usize),
    returns: SqlType,
    call: fn(&Context, &[Datum]) -> Result<Datum>,
) -> Function {
    Function {
        name,
        args,
        returns,
        strict: true,
        call,
    }
}

const fn lax(
    name: &'static str,
    args: (usize, usize),
    returns: SqlType,
    call: fn(&Context, &[Datum]) -> Result<Datum>,
) -> Function {
    Function {
        name,
        args,
        returns,
        strict: false,
        call,
    }
}

pub const ALL: &[Function] = &[
    strict("pg_get_userbyid", (1, 1), Text, |cx, a| {
        Ok(text(cx.role_name(oid(&a[0]))))
    }),
    strict("pg_table_is_visible", (1, 1), Bool, |cx, a| {
        let number = oid(&a[0]);
        Ok(match relation_of(cx, number) {
            Some((schema, name)) => Datum::Bool(cx.dict.is_visible(schema, &name)),
            None if super::all().any(|v| view_oid(v.name) == Some(number)) => Datum::Bool(true),
            None => Datum::Null,
        })
    }),
    strict("pg_type_is_visible", (1, 1), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("pg_function_is_visible", (1, 1), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("pg_relation_is_publishable", (1, 1), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("pg_get_expr", (2, 3), Text, |_, a| Ok(a[0].clone())),
    strict("pg_get_indexdef", (1, 3), Text, index_def),
    strict("pg_get_constraintdef", (1, 2), Text, |cx, a| {
        Ok(describe::constraint(&cx.dict, oid(&a[0])).map_or(Datum::Null, Datum::Text))
    }),
    strict("pg_get_viewdef", (1, 2), Text, |cx, a| {
        let number = relation_argument(cx, &a[0])?;
        let view = cx.dict.view_by_oid(number);
        let text = view
            .map(|v| super::viewdef::text(&cx.dict, v))
            .transpose()?;
        Ok(text.map_or(Datum::Null, Datum::Text))
    }),
    strict("pg_get_triggerdef", (1, 2), Text, |_, _| Ok(Datum::Null)),
    strict("pg_get_ruledef", (1, 2), Text, |_, _| Ok(Datum::Null)),
    strict("pg_get_functiondef", (1, 1), Text, |_, _| Ok(Datum::Null)),
    strict("pg_get_function_result", (1, 1), Text, |_, _| {
        Ok(text("text"))
    }),
    strict("pg_get_function_arguments", (1, 1), Text, |_, _| {
        Ok(text(""))
    }),
    strict(
        "pg_get_function_identity_arguments",
        (1, 1),
        Text,
        |_, _| Ok(text("")),
    ),
    strict("pg_get_partkeydef", (1, 1), Text, |_, _| Ok(Datum::Null)),
    strict("pg_get_statisticsobjdef_columns", (1, 1), Text, |_, _| {
        Ok(Datum::Null)
    }),
    strict("pg_get_serial_sequence", (2, 2), Text, serial_sequence),
    strict("pg_partition_ancestors", (1, 1), Oid, |_, a| {
        Ok(Datum::Int8(oid(&a[0]).into()))
    }),
    lax(FORMAT_TYPE, (2, 2), Text, format_type),
    strict("obj_description", (1, 2), Text, |cx, a| {
        let catalog = match a.get(1).map(string) {
            None => None,
            Some("pg_class") => Some(PG_CLASS),
            Some("pg_constraint") => Some(PG_CONSTRAINT),
            Some("pg_namespace") => Some(PG_NAMESPACE),
            // Nothing of the other kinds has a comment.
            Some(_) => return Ok(Datum::Null),
        };
        let found = cx.dict.description(oid(&a[0]), catalog, 0);
        Ok(found.map_or(Datum::Null, Datum::Text))
    }),
    strict("shobj_description", (2, 2), Text, |cx, a| {
        let found = match string(&a[1]) {
            "pg_authid" => cx.dict.role_description(oid(&a[0])),
            _ => None,
        };
        Ok(found.map_or(Datum::Null, Datum::Text))
    }),
    strict("col_description", (2, 2), Text, |cx, a| {
        let column = i32::try_from(integer(&a[1])).unwrap_or(0);
        let found = (column > 0).then(|| cx.dict.description(oid(&a[0]), Some(PG_CLASS), column));
        Ok(found.flatten().map_or(Datum::Null, Datum::Text))
    }),
    strict("pg_tablespace_location", (1, 1), Text, |_, _| Ok(text(""))),
    strict("pg_relation_size", (1, 2), Int8, relation_size),
    strict("pg_table_size", (1, 1), Int8, relation_size),
    strict("pg_total_relation_size", (1, 1), Int8, total_size),
    strict("pg_indexes_size", (1, 1), Int8, |cx, a| {
        Ok(Datum::Int8(indexes_size(cx, oid(&a[0]))?))
    }),
    strict("pg_database_size", (1, 1), Int8, database_size),
    strict("pg_size_pretty", (1, 1), Text, |_, a| {
        Ok(text(size_pretty(integer(&a[0]))))
    }),
    strict("pg_encoding_to_char", (1, 1), Text, |_, a| {
        Ok(text(
            Encoding::from_number(integer(&a[0])).map_or("", Encoding::name),
        ))
    }),
    strict("pg_char_to_encoding", (1, 1), Int4, |_, a| {
        let found = Encoding::find(string(&a[0]));
        Ok(Datum::Int4(found.map_or(-1, |e| e.number().into())))
    }),
    strict("array_to_string", (2, 3), Text, array_to_string),
    strict("array_position", (2, 2), Int4, array_position),
    strict("array_upper", (2, 2), Int4, |_, a| {
        Ok(elements(&a[0]).map_or(Datum::Null, |e| Datum::Int4(e.len() as i32)))
    }),
    strict("array_lower", (2, 2), Int4, |_, a| {
        Ok(elements(&a[0]).map_or(Datum::Null, |_| Datum::Int4(1)))
    }),
    lax(ARRAY_CAT, (2, 2), Text, array_cat),
    strict(ARRAY_ELEMENT, (2, 2), Text, array_element),
    strict(ARRAY_HAS, (2, 2), Bool, |_, a| {
        let all = elements(&a[1]).unwrap_or_default();
        Ok(Datum::Bool(all.iter().any(|e| e == string(&a[0]))))
    }),
    strict("current_schemas", (1, 1), Text, |cx, a| {
        let path = cx.dict.path();
        let implicit = a[0] == Datum::Bool(true) && !path.contains(&PG_CATALOG);
        let all = implicit
            .then_some(&PG_CATALOG)
            .into_iter()
            .chain(path.iter());
        let names: Vec<String> = all.map(|s| cx.dict.schema_name(*s).to_string()).collect();
        Ok(quoted_array(&names))
    }),
    lax("pg_my_temp_schema", (0, 0), Oid, |_, _| Ok(Datum::Int8(0))),
    strict("pg_is_other_temp_schema", (1, 1), Bool, |_, _| {
        Ok(Datum::Bool(false))
    }),
    strict("has_table_privilege", (2, 3), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("has_schema_privilege", (2, 3), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("has_database_privilege", (2, 3), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("has_column_privilege", (3, 4), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("has_any_column_privilege", (2, 3), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("has_sequence_privilege", (2, 3), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("has_function_privilege", (2, 3), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("has_tablespace_privilege", (2, 3), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("pg_has_role", (2, 3), Bool, |_, _| Ok(Datum::Bool(true))),
    strict("to_regclass", (1, 1), Text, |cx, a| {
        let found = find_relation(cx, string(&a[0]))?;
        Ok(found.map_or(Datum::Null, |o| text(relation_name(cx, o))))
    }),
    strict("to_regtype", (1, 1), Text, |_, a| {
        Ok(find_type(string(&a[0]))
            .and_then(|o| describe::type_name(o, -1))
            .map_or(Datum::Null, Datum::Text))
    }),
    strict("quote_ident", (1, 1), Text, |_, a| {
        Ok(text(quote(string(&a[0]))))
    }),
    strict("quote_literal", (1, 1), Text, |_, a| {
        Ok(text(format!("'{}'", string(&a[0]).replace('\'', "''"))))
    }),
    strict(REGCLASS_NAME, (1, 1), Text, |cx, a| {
        Ok(text(relation_name(cx, oid(&a[0]))))
    }),
    strict(REGCLASS_OID, (1, 1), Oid, regclass_oid),
    strict(REGTYPE_OID, (1, 1), Oid, regtype_oid),
    strict(REGNAMESPACE_NAME, (1, 1), Text, |cx, a| {
        let number = oid(&a[0]);
        Ok(text(match cx.dict.schema_name(number) {
            "" => number.to_string(),
            name => quote(name),
        }))
    }),
    strict(REGNAMESPACE_OID, (1, 1), Oid, regnamespace_oid),
];

/// What casts to the `reg` types become: the name of a number, or the number of a name.
pub const REGCLASS_NAME: &str = "pg_regclass_name";
pub const REGCLASS_OID: &str = "pg_regclass_oid";
pub const REGTYPE_OID: &str = "pg_regtype_oid";
pub const REGNAMESPACE_NAME: &str = "pg_regnamespace_name";
pub const REGNAMESPACE_OID: &str = "pg_regnamespace_oid";
pub const FORMAT_TYPE: &str = "format_type";
/// What `||` and `= ANY` of arrays in text form become.
pub const ARRAY_CAT: &str = "pg_array_cat";
pub const ARRAY_HAS: &str = "pg_array_has";
/// What a subscript becomes.
pub const ARRAY_ELEMENT: &str = "pg_array_element";

/// A function and its place in [`ALL`].
pub fn find(name: &str) -> Option<(usize, &'static Function)> {
    ALL.iter().enumerate().find(|(_, f)| f.name == name)
}

fn integer(d: &Datum) -> i64 {
    match d {
        Datum::Int8(n) => *n,
        Datum::Int4(n) => (*n).into(),
        Datum::Text(s) => s.parse().unwrap_or(0),
        _ => 0,
    }
}

fn oid(d: &Datum) -> u32 {
    u32::try_from(integer(d)).unwrap_or(0)
}

fn string(d: &Datum) -> &str {
    match d {
        Datum::Text(s) => s,
        _ => "",
    }
}

fn index_def(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (number, column) = (oid(&a[0]), a.get(1).map_or(0, integer));
    let found = cx.dict.tables().find_map(|t| {
        let i = t.indexes.iter().find(|i| i.oid == number)?;
        let schema = cx.dict.schema_name(t.schema);
        let column = usize::try_from(column).unwrap_or(0);
        Some(describe::index(schema, t, i, column))
    });
    Ok(found.map_or(Datum::Null, Datum::Text))
}

fn serial_sequence(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let name = relation_name_of(string(&a[0]))?;
    let table = cx
        .dict
        .table(&name)
        .ok_or_else(|| crate::bind::names::no_relation(&name))?;
    let name = &table.name;
    let column = string(&a[1]);
    let at = table.column(column).ok_or_else(|| {
        Error::new(
            "42703",
            format!("column \"{column}\" of relation \"{name}\" does not exist"),
        )
    })?;
    let sequence = table.columns[at]
        .sequence
        .and_then(|s| cx.dict.sequence_by_oid(s));
    Ok(sequence.map_or(Datum::Null, |s| text(cx.dict.full_name(s.schema, &s.name))))
}

fn format_type(_: &Context, a: &[Datum]) -> Result<Datum> {
    if a[0].is_null() {
        return Ok(Datum::Null);
    }
    let typmod = if a[1].is_null() {
        -1
    } else {
        integer(&a[1]) as i32
    };
    Ok(text(
        describe::type_name(oid(&a[0]), typmod).unwrap_or_else(|| "???".to_string()),
    ))
}

/// The heap or index blocks of a relation; zero for what has none.
fn relation_size(cx: &Context, a: &[Datum]) -> Result<Datum> {
    Ok(Datum::Int8(heap_size(cx, relation_argument(cx, &a[0])?)?))
}

fn total_size(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let number = relation_argument(cx, &a[0])?;
    Ok(Datum::Int8(
        heap_size(cx, number)? + indexes_size(cx, number)?,
    ))
}

/// A relation by number or name.
fn relation_argument(cx: &Context, d: &Datum) -> Result<u32> {
    match d {
        Datum::Text(s) if s.parse::<u32>().is_err() => {
            find_relation(cx, s)?.ok_or_else(|| no_relation(s))
        }
        other => Ok(oid(other)),
    }
}

fn heap_size(cx: &Context, number: u32) -> Result<i64> {
    let blocks = match cx.dict.table_by_oid(number) {
        Some(t) => cx.segment_blocks(t.segment)?,
        None => {
            let index = cx
                .dict
                .tables()
                .flat_map(|t| &t.indexes)
                .find(|i| i.oid == number);
            match index {
                Some(i) => cx.segment_blocks(i.segment)?,
                None => 0,
            }
        }
    };
    Ok((blocks * block::BLOCK_SIZE as u64) as i64)
}

fn indexes_size(cx: &Context, number: u32) -> Result<i64> {
    let Some(t) = cx.dict.table_by_oid(number) else {
        return Ok(0);
    };
    t.indexes.iter().map(|i| heap_size(cx, i.oid)).sum()
}

fn database_size(cx: &Context, _: &[Datum]) -> Result<Datum> {
    let mut size = 0;
    for t in cx.dict.tables() {
        size += heap_size(cx, t.oid)? + indexes_size(cx, t.oid)?;
    }
    Ok(Datum::Int8(size))
}

/// As PostgreSQL rounds it: up to 10,240 of a unit before the next.
fn size_pretty(bytes: i64) -> String {
    const UNITS: [&str; 5] = ["bytes", "kB", "MB", "GB", "TB"];
    let mut size = bytes;
    let mut unit = 0;
    while size.abs() >= 10 * 1024 && unit + 1 < UNITS.len() {
        size = (size + 512) / 1024;
        unit += 1;
    }
    format!("{size} {}", UNITS[unit])
}

/// The elements of an array in text form, without quotes; `None` for an empty one.
fn elements(d: &Datum) -> Option<Vec<String>> {
    let inner = string(d).strip_prefix('{')?.strip_suffix('}')?;
    (!inner.is_empty()).then(|| {
        inner
            .split(',')
            .map(|e| e.trim_matches('"').to_string())
            .collect()
    })
}

/// Arrays count from 1, vectors of the catalogs (`1 2`) from 0.
fn array_element(_: &Context, a: &[Datum]) -> Result<Datum> {
    let (all, first) = match string(&a[0]).starts_with('{') {
        true => (elements(&a[0]).unwrap_or_default(), 1),
        false => {
            let parts = string(&a[0]).split_whitespace().map(str::to_string);
            (parts.collect(), 0)
        }
    };
    let found = integer(&a[1]).checked_sub(first);
    let found = found.and_then(|i| all.get(usize::try_from(i).ok()?));
    Ok(found.map_or(Datum::Null, text))
}

fn array_to_string(_: &Context, a: &[Datum]) -> Result<Datum> {
    Ok(text(
        elements(&a[0]).unwrap_or_default().join(string(&a[1])),
    ))
}

fn array_position(_: &Context, a: &[Datum]) -> Result<Datum> {
    let at = elements(&a[0])
        .unwrap_or_default()
        .iter()
        .position(|e| e == string(&a[1]));
    Ok(at.map_or(Datum::Null, |i| Datum::Int4(i as i32 + 1)))
}

fn array_cat(_: &Context, a: &[Datum]) -> Result<Datum> {
    Ok(match (&a[0], &a[1]) {
        (Datum::Null, other) | (other, Datum::Null) => other.clone(),
        (left, right) => {
            let mut all = elements(left).unwrap_or_default();
            all.extend(elements(right).unwrap_or_default());
            text(format!("{{{}}}", all.join(",")))
        }
    })
}

/// The name of a relation as it may be written in SQL, without schema and quotes.
fn unqualified(name: &str) -> String {
    let last = name
        .strip_prefix("public.")
        .or_else(|| name.strip_prefix("pg_catalog."))
        .unwrap_or(name);
    match last.strip_prefix('"').and_then(|n| n.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => last.to_lowercase(),
    }
}

/// The relation of a name, as it may be written in SQL.
pub fn find_relation(cx: &Context, name: &str) -> Result<Option<u32>> {
    let name = relation_name_of(name)?;
    Ok(match cx.dict.relation(&name) {
        Some(Relation::Table(t)) => Some(t.oid),
        Some(Relation::Sequence(s)) => Some(s.oid),
        Some(Relation::Index(t, at)) => Some(t.indexes[at].oid),
        Some(Relation::View(v)) => Some(v.oid),
        None => super::find(name.schema.as_deref(), &name.name).and_then(|v| view_oid(v.name)),
    })
}

fn no_relation(name: &str) -> Error {
    match relation_name_of(name) {
        Ok(name) => crate::bind::names::no_relation(&name),
        Err(e) => e,
    }
}

/// Schema and name of a relation that users made.
fn relation_of(cx: &Context, number: u32) -> Option<(u32, String)> {
    let dict = &cx.dict;
    if let Some(t) = dict.table_by_oid(number) {
        return Some((t.schema, t.name.clone()));
    }
    if let Some(s) = dict.sequence_by_oid(number) {
        return Some((s.schema, s.name.clone()));
    }
    if let Some(v) = dict.view_by_oid(number) {
        return Some((v.schema, v.name.clone()));
    }
    dict.tables().find_map(|t| {
        let index = t.indexes.iter().find(|i| i.oid == number)?;
        Some((t.schema, index.name.clone()))
    })
}

fn relation_name(cx: &Context, number: u32) -> String {
    if number == 0 {
        return "-".to_string();
    }
    if let Some((schema, name)) = relation_of(cx, number) {
        return cx.dict.shown(schema, &name);
    }
    let view = super::all().find(|v| view_oid(v.name) == Some(number));
    view.map_or(number.to_string(), |v| match v.schema {
        "pg_catalog" => v.name.to_string(),
        schema => format!("{schema}.{}", v.name),
    })
}

fn regclass_oid(cx: &Context, a: &[Datum]) -> Result<Datum> {
    match &a[0] {
        Datum::Text(s) => match s.parse::<u32>() {
            Ok(number) => Ok(Datum::Int8(number.into())),
            Err(_) => find_relation(cx, s)?
                .map(|n| Datum::Int8(n.into()))
                .ok_or_else(|| no_relation(s)),
        },
        other => Ok(Datum::Int8(integer(other))),
    }
}

pub fn find_type(name: &str) -> Option<u32> {
    let name = unqualified(name);
    let plain = SqlType::ALL
        .into_iter()
        .find(|t| t.internal_name() == name || t.name() == name)
        .map(SqlType::oid);
    let other = || {
        describe::OTHER_TYPES
            .iter()
            .find(|(_, n, shown)| *n == name || *shown == name)
            .map(|(o, _, _)| *o)
    };
    plain.or_else(other).or(match name.as_str() {
        "int" => Some(SqlType::Int4.oid()),
        "decimal" => Some(SqlType::Numeric.oid()),
        "char" => Some(SqlType::Char.oid()),
        _ => None,
    })
}

fn regtype_oid(_: &Context, a: &[Datum]) -> Result<Datum> {
    match &a[0] {
        Datum::Text(s) => match s.parse::<u32>() {
            Ok(number) => Ok(Datum::Int8(number.into())),
            Err(_) => match find_type(s) {
                Some(number) => Ok(Datum::Int8(number.into())),
                None => Err(Error::new("42704", format!("type \"{s}\" does not exist"))),
            },
        },
        other => Ok(Datum::Int8(integer(other))),
    }
}

fn regnamespace_oid(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let name = unqualified(string(&a[0]));
    let found = cx.dict.schema(&name).or_else(|| name.parse().ok());
    let found = found.ok_or_else(|| crate::bind::names::no_schema(&name))?;
    Ok(Datum::Int8(found.into()))
}
