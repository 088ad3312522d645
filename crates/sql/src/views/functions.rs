//! Functions over the catalogs. Arguments are integers (of eight bytes), texts and booleans; a
//! function that PostgreSQL declares strict is not called with NULL.

use std::collections::HashMap;
use std::sync::LazyLock;

use block::value::Datum;
use charset::Encoding;

use super::Context;
use super::describe::{self, PG_CATALOG};
use super::standard::facets::Facets;
use super::value::{optional, text, texts};
use super::{objects, privileges, procedures, updatable, user_functions};
use crate::bind::numbered::Shown;
use crate::dict::{
    PG_CLASS, PG_CONSTRAINT, PG_EXTENSION, PG_NAMESPACE, PG_POLICY, PG_PROC, PG_TRIGGER, PG_TYPE,
    Relation,
};
use crate::error::{Error, Result};
use crate::types::Reg::{
    self as Kind, Class, Namespace, Oper, Operator, Proc, Procedure, Role, Type,
};
use crate::types::SqlType::{self, Bool, Int4, Int8, Name, Oid, Reg, Text};

pub struct Function {
    pub name: &'static str,
    /// Fewest and most arguments.
    pub args: (usize, usize),
    pub returns: SqlType,
    pub strict: bool,
    pub call: fn(&Context, &[Datum]) -> Result<Datum>,
}

pub(super) const fn strict(
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

pub(super) const fn lax(
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

fn visible(_: &Context, _: &[Datum]) -> Result<Datum> {
    Ok(Datum::Bool(true))
}

const OVER_CATALOGS: &[Function] = &[
    strict(
        "pg_stat_statements_reset",
        (0, 0),
        SqlType::Void,
        super::statements::reset,
    ),
    strict("create_snapshot", (0, 0), Int8, |cx, _| {
        if !cx.authority.superuser {
            let message = "permission denied for function create_snapshot";
            return Err(Error::new("42501", message));
        }
        Ok(Datum::Int8(crate::snapshots::take_beside(&cx.database)?))
    }),
    lax(
        "workload_report",
        (0, 4),
        Text,
        crate::snapshots::workload_report,
    ),
    strict("pg_get_userbyid", (1, 1), Name, |cx, a| {
        Ok(text(cx.role_name(oid(&a[0]))))
    }),
    strict("pg_table_is_visible", (1, 1), Bool, |cx, a| {
        let number = oid(&a[0]);
        Ok(match objects::relation_of(&cx.dict, number) {
            Some((schema, name)) => Datum::Bool(cx.dict.is_visible(schema, &name)),
            None if objects::is_relation(&cx.dict, number) => {
                let name = objects::name(&cx.dict, Class, number);
                Datum::Bool(!name.contains('.'))
            }
            None => Datum::Null,
        })
    }),
    // All that there are of these are in pg_catalog.
    strict("pg_collation_is_visible", (1, 1), Bool, visible),
    strict("pg_conversion_is_visible", (1, 1), Bool, visible),
    strict("pg_opclass_is_visible", (1, 1), Bool, visible),
    strict("pg_opfamily_is_visible", (1, 1), Bool, visible),
    strict("pg_operator_is_visible", (1, 1), Bool, visible),
    strict("pg_statistics_obj_is_visible", (1, 1), Bool, visible),
    strict("pg_ts_config_is_visible", (1, 1), Bool, visible),
    strict("pg_ts_dict_is_visible", (1, 1), Bool, visible),
    strict("pg_ts_parser_is_visible", (1, 1), Bool, visible),
    strict("pg_ts_template_is_visible", (1, 1), Bool, visible),
    strict("getdatabaseencoding", (0, 0), Name, |_, _| Ok(text("UTF8"))),
    strict("pg_type_is_visible", (1, 1), Bool, |cx, a| {
        let made = cx.dict.user_type_by_oid(oid(&a[0]));
        Ok(Datum::Bool(made.is_none_or(|t| cx.dict.is_type_visible(t))))
    }),
    strict("pg_function_is_visible", (1, 1), Bool, |cx, a| {
        let own = cx.dict.function_by_oid(oid(&a[0]));
        let visible = own.is_none_or(|f| user_functions::is_visible(&cx.dict, f));
        Ok(Datum::Bool(visible))
    }),
    strict("pg_relation_is_publishable", (1, 1), Bool, |_, _| {
        Ok(Datum::Bool(true))
    }),
    strict("pg_get_expr", (2, 3), Text, |_, a| Ok(a[0].clone())),
    strict("pg_get_indexdef", (1, 3), Text, index_def),
    strict("pg_get_constraintdef", (1, 2), Text, |cx, a| {
        let pretty = matches!(a.get(1), Some(Datum::Bool(true)));
        let found = describe::constraint(&cx.dict, oid(&a[0]), pretty);
        let found = found.or_else(|| super::domains::constraint(&cx.dict, oid(&a[0]), pretty));
        Ok(optional(found))
    }),
    strict("pg_get_viewdef", (1, 2), Text, |cx, a| {
        let number = relation_argument(cx, &a[0])?;
        let made = || cx.dict.table_by_oid(number)?.as_view();
        let text = match cx.dict.view_by_oid(number) {
            Some(view) => Some(super::viewdef::text(&cx.dict, view)?),
            None => made()
                .map(|view| super::viewdef::text(&cx.dict, &view))
                .transpose()?,
        };
        Ok(text.map_or(Datum::Null, Datum::Text))
    }),
    strict("pg_large_object_acl", (1, 1), SqlType::TEXTS, |cx, a| {
        let Datum::Text(items) = &a[0] else {
            return Err(Error::internal("privileges that are no text"));
        };
        Ok(super::acl::shown(cx, &crate::large::decoded(items)?))
    }),
    strict("acldefault", (2, 2), SqlType::TEXTS, super::acl::default),
    strict("pg_get_triggerdef", (1, 2), Text, |cx, a| {
        let pretty = a.get(1) == Some(&Datum::Bool(true));
        let found = super::triggers::definition(&cx.dict, oid(&a[0]), pretty);
        Ok(optional(found))
    }),
    strict("pg_relation_is_updatable", (2, 2), Int4, |cx, a| {
        let triggers = a[1] == Datum::Bool(true);
        let events = updatable::events(&cx.dict, oid(&a[0]), triggers, None)?;
        Ok(Datum::Int4(events))
    }),
    strict("pg_column_is_updatable", (3, 3), Bool, |cx, a| {
        let number = i16::try_from(integer(&a[1])).unwrap_or(0);
        let (columns, triggers) = ([number].into(), a[2] == Datum::Bool(true));
        let events = updatable::events(&cx.dict, oid(&a[0]), triggers, Some(&columns))?;
        let both = updatable::UPDATE | updatable::DELETE;
        Ok(Datum::Bool(number > 0 && events & both == both))
    }),
    strict("pg_get_ruledef", (1, 2), Text, |_, _| Ok(Datum::Null)),
    strict(
        "pg_get_functiondef",
        (1, 1),
        Text,
        |cx, a| match user_functions::definition(&cx.dict, oid(&a[0])) {
            Some(definition) => Ok(Datum::Text(definition)),
            None if procedures::result(oid(&a[0])).is_none() => Ok(Datum::Null),
            None => Err(Error::unsupported("the definition of a built-in function")),
        },
    ),
    strict("pg_get_function_result", (1, 1), Text, |cx, a| {
        let own = user_functions::result(&cx.dict, oid(&a[0]));
        Ok(optional(own.or_else(|| procedures::result(oid(&a[0])))))
    }),
    strict("pg_get_function_arguments", (1, 1), Text, |cx, a| {
        let own = user_functions::arguments(&cx.dict, oid(&a[0]), true);
        let found = own.or_else(|| procedures::arguments(oid(&a[0]), true));
        Ok(optional(found))
    }),
    strict(
        "pg_get_function_identity_arguments",
        (1, 1),
        Text,
        |cx, a| {
            let own = user_functions::arguments(&cx.dict, oid(&a[0]), false);
            let found = own.or_else(|| procedures::arguments(oid(&a[0]), false));
            Ok(optional(found))
        },
    ),
    // No body is kept as parsed.
    strict("pg_get_function_sqlbody", (1, 1), Text, |_, _| {
        Ok(Datum::Null)
    }),
    strict("pg_get_function_arg_default", (2, 2), Text, |cx, a| {
        let at = usize::try_from(integer(&a[1])).unwrap_or(0);
        let found = user_functions::argument_default(&cx.dict, oid(&a[0]), at);
        Ok(optional(found))
    }),
    strict("_pg_char_max_length", (2, 2), Int4, |_, a| {
        facet(a, Facets::max_length)
    }),
    strict("_pg_char_octet_length", (2, 2), Int4, |_, a| {
        facet(a, Facets::octet_length)
    }),
    strict("_pg_numeric_precision", (2, 2), Int4, |_, a| {
        facet(a, Facets::precision)
    }),
    strict("_pg_numeric_precision_radix", (2, 2), Int4, |_, a| {
        facet(a, Facets::radix)
    }),
    strict("_pg_numeric_scale", (2, 2), Int4, |_, a| {
        facet(a, Facets::scale)
    }),
    strict("_pg_datetime_precision", (2, 2), Int4, |_, a| {
        facet(a, Facets::time_precision)
    }),
    strict("_pg_interval_type", (2, 2), Text, |_, a| {
        Ok(optional(facets_of(a).interval()))
    }),
    strict("pg_get_partkeydef", (1, 1), Text, |_, _| Ok(Datum::Null)),
    strict("pg_get_statisticsobjdef_columns", (1, 1), Text, |_, _| {
        Ok(Datum::Null)
    }),
    strict("pg_get_serial_sequence", (2, 2), Text, serial_sequence),
    strict("pg_sequence_last_value", (1, 1), Int8, |cx, a| {
        super::sequence::last_value_of(cx, relation_argument(cx, &a[0])?)
    }),
    strict("oidvectortypes", (1, 1), Text, |cx, a| {
        let numbers = string(&a[0]).split_whitespace();
        let names = numbers.map(|n| type_called(cx, n.parse().unwrap_or(0), -1));
        Ok(text(names.collect::<Vec<_>>().join(", ")))
    }),
    strict("pg_partition_ancestors", (1, 1), Oid, |_, a| {
        Ok(Datum::Int8(oid(&a[0]).into()))
    }),
    lax("format_type", (2, 2), Text, format_type),
    strict("pg_describe_object", (3, 3), Text, |cx, a| {
        let part = i32::try_from(integer(&a[2])).unwrap_or(-1);
        super::described::of_object(cx, oid(&a[0]), oid(&a[1]), part)
    }),
    strict("obj_description", (1, 2), Text, |cx, a| {
        let catalog = match a.get(1).map(string) {
            None => None,
            Some("pg_class") => Some(PG_CLASS),
            Some("pg_constraint") => Some(PG_CONSTRAINT),
            Some("pg_namespace") => Some(PG_NAMESPACE),
            Some("pg_type") => Some(PG_TYPE),
            Some("pg_proc") => Some(PG_PROC),
            Some("pg_trigger") => Some(PG_TRIGGER),
            Some("pg_operator") => {
                let comment = super::built_in::operators::comment(oid(&a[0]));
                return Ok(optional(comment));
            }
            Some("pg_policy") => Some(PG_POLICY),
            Some("pg_extension") => Some(PG_EXTENSION),
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
    // Entries are made at once: none are pending.
    strict("gin_clean_pending_list", (1, 1), Int8, |cx, a| {
        let number = relation_argument(cx, &a[0])?;
        let table = cx.dict.table_of_part(number);
        let index = table.and_then(|t| t.indexes.iter().find(|i| i.oid == number));
        match index.map(|i| i.method.name()) {
            Some("gin") => Ok(Datum::Int8(0)),
            found => {
                let kind = if found.is_some() { "a GIN" } else { "an" };
                let name = objects::name(&cx.dict, Class, number);
                let message = format!("\"{name}\" is not {kind} index");
                Err(Error::new("42809", message))
            }
        }
    }),
    strict("pg_indexes_size", (1, 1), Int8, |cx, a| {
        Ok(Datum::Int8(indexes_size(cx, oid(&a[0]))?))
    }),
    strict("pg_database_size", (1, 1), Int8, database_size),
    strict("pg_encoding_to_char", (1, 1), Name, |_, a| {
        Ok(text(
            Encoding::from_number(integer(&a[0])).map_or("", Encoding::name),
        ))
    }),
    strict("pg_char_to_encoding", (1, 1), Int4, |_, a| {
        let found = Encoding::find(string(&a[0]));
        Ok(Datum::Int4(found.map_or(-1, |e| e.number().into())))
    }),
    strict("current_schemas", (1, 1), SqlType::NAMES, |cx, a| {
        let path = cx.dict.path();
        let every = a[0] == Datum::Bool(true);
        let implicit = every && !path.contains(&PG_CATALOG);
        // Temporary relations are found before those of the catalogs.
        let (temporary, named): (Vec<u32>, Vec<u32>) =
            path.iter().partition(|s| Some(**s) == cx.implicit);
        let temporary = temporary.iter().filter(|_| every);
        let catalog = implicit.then_some(&PG_CATALOG).into_iter();
        let all = temporary.chain(catalog).chain(named.iter());
        Ok(texts(all.map(|s| cx.dict.schema_name(*s).to_string())))
    }),
    lax("pg_my_temp_schema", (0, 0), Oid, |cx, _| {
        let own = cx.dict.path().iter().find(|s| cx.dict.is_temporary(**s));
        Ok(Datum::Int8(own.copied().unwrap_or(0).into()))
    }),
    strict("pg_is_other_temp_schema", (1, 1), Bool, |cx, a| {
        let schema = u32::try_from(integer(&a[0])).unwrap_or(0);
        let other = cx.dict.is_temporary(schema) && !cx.dict.path().contains(&schema);
        Ok(Datum::Bool(other))
    }),
    strict("has_table_privilege", (2, 3), Bool, privileges::of_table),
    strict("row_security_active", (1, 1), Bool, |cx, a| {
        let number = relation_argument(cx, &a[0])?;
        let table = cx.dict.table_by_oid(number);
        Ok(Datum::Bool(table.is_some_and(|t| cx.hides_rows(t))))
    }),
    strict("has_schema_privilege", (2, 3), Bool, privileges::of_schema),
    strict(
        "has_database_privilege",
        (2, 3),
        Bool,
        privileges::of_database,
    ),
    strict("has_column_privilege", (3, 4), Bool, privileges::of_column),
    strict(
        "has_any_column_privilege",
        (2, 3),
        Bool,
        privileges::of_any_column,
    ),
    strict(
        "has_sequence_privilege",
        (2, 3),
        Bool,
        privileges::of_sequence,
    ),
    strict(
        "has_function_privilege",
        (2, 3),
        Bool,
        privileges::of_function,
    ),
    strict(
        "has_tablespace_privilege",
        (2, 3),
        Bool,
        privileges::of_tablespace,
    ),
    strict("has_type_privilege", (2, 3), Bool, privileges::of_type),
    strict(
        "has_language_privilege",
        (2, 3),
        Bool,
        privileges::of_language,
    ),
    strict("has_server_privilege", (2, 3), Bool, |cx, a| {
        privileges::of_none(cx, a, "server")
    }),
    strict(
        "has_foreign_data_wrapper_privilege",
        (2, 3),
        Bool,
        |cx, a| privileges::of_none(cx, a, "foreign-data wrapper"),
    ),
    strict(
        "has_parameter_privilege",
        (2, 3),
        Bool,
        privileges::of_parameter,
    ),
    strict("makeaclitem", (4, 4), Text, privileges::item),
    strict("pg_has_role", (2, 3), Bool, privileges::of_role),
    strict("to_regclass", (1, 1), Reg(Class), |cx, a| {
        to_reg(cx, Class, a)
    }),
    strict("to_regtype", (1, 1), Reg(Type), |cx, a| to_reg(cx, Type, a)),
    strict("to_regproc", (1, 1), Reg(Proc), |cx, a| to_reg(cx, Proc, a)),
    strict("to_regprocedure", (1, 1), Reg(Procedure), |cx, a| {
        to_reg(cx, Procedure, a)
    }),
    strict("to_regoper", (1, 1), Reg(Oper), |cx, a| to_reg(cx, Oper, a)),
    strict("to_regoperator", (1, 1), Reg(Operator), |cx, a| {
        to_reg(cx, Operator, a)
    }),
    strict("to_regnamespace", (1, 1), Reg(Namespace), |cx, a| {
        to_reg(cx, Namespace, a)
    }),
    strict("to_regrole", (1, 1), Reg(Role), |cx, a| to_reg(cx, Role, a)),
];

/// The type of a number and a modifier.
fn facets_of(a: &[Datum]) -> Facets {
    Facets {
        number: oid(&a[0]),
        typmod: i32::try_from(integer(&a[1])).unwrap_or(-1),
    }
}

fn facet(a: &[Datum], of: fn(Facets) -> Option<i32>) -> Result<Datum> {
    Ok(of(facets_of(a)).map_or(Datum::Null, Datum::Int4))
}

/// All functions over the catalogs and the statistics; plans have their places.
static ALL: LazyLock<Vec<&'static Function>> = LazyLock::new(|| {
    let lists = [
        OVER_CATALOGS,
        super::inspect::ALL,
        super::pg_stat::functions::ALL,
    ];
    lists.into_iter().flatten().collect()
});

/// A function and its place among all.
pub fn find(name: &str) -> Option<(usize, &'static Function)> {
    static PLACES: LazyLock<HashMap<&str, usize>> = LazyLock::new(|| {
        let places = ALL.iter().enumerate();
        places.map(|(at, f)| (f.name, at)).collect()
    });
    let at = *PLACES.get(name)?;
    Some((at, ALL[at]))
}

/// The names of all.
#[cfg(test)]
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|f| f.name)
}

/// The function at a place.
pub fn at(place: usize) -> Option<&'static Function> {
    ALL.get(place).copied()
}

pub(crate) fn integer(d: &Datum) -> i64 {
    match d {
        Datum::Int8(n) => *n,
        Datum::Int4(n) => (*n).into(),
        Datum::Text(s) => s.parse().unwrap_or(0),
        _ => 0,
    }
}

pub(super) fn oid(d: &Datum) -> u32 {
    u32::try_from(integer(d)).unwrap_or(0)
}

pub(super) fn string(d: &Datum) -> &str {
    match d {
        Datum::Text(s) => s,
        _ => "",
    }
}

fn index_def(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let (number, column) = (oid(&a[0]), a.get(1).map_or(0, integer));
    let found = cx.dict.table_of_part(number).and_then(|t| {
        let i = t.indexes.iter().find(|i| i.oid == number)?;
        // A pretty definition has the schema only if it is not searched.
        let pretty = a.get(2) == Some(&Datum::Bool(true));
        let schema = match pretty && cx.dict.is_visible(t.schema, &t.name) {
            true => None,
            false => Some(cx.dict.schema_name(t.schema)),
        };
        let column = usize::try_from(column).unwrap_or(0);
        Some(describe::index(
            Shown::AsNow(&cx.dict),
            &cx.dict,
            schema,
            t,
            i,
            column,
            pretty,
        ))
    });
    Ok(found.map_or(Datum::Null, Datum::Text))
}

fn serial_sequence(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let name = crate::session::relation_name(string(&a[0]))?;
    let column = string(&a[1]);
    let no_column = |name: &str| {
        let message = format!("column \"{column}\" of relation \"{name}\" does not exist");
        Error::new("42703", message)
    };
    let table = match cx.dict.relation(&name) {
        Some(Relation::Table(table)) => table,
        Some(Relation::View(view)) if view.column(column).is_some() => return Ok(Datum::Null),
        Some(Relation::View(view)) => return Err(no_column(&view.name)),
        _ => return Err(crate::bind::names::no_relation(&name)),
    };
    let at = table.column(column).ok_or_else(|| no_column(&table.name))?;
    let sequence = table.columns[at]
        .sequence
        .and_then(|s| cx.dict.sequence_by_oid(s));
    Ok(sequence.map_or(Datum::Null, |s| text(cx.dict.full_name(s.schema, &s.name))))
}

fn format_type(cx: &Context, a: &[Datum]) -> Result<Datum> {
    if a[0].is_null() {
        return Ok(Datum::Null);
    }
    let typmod = if a[1].is_null() {
        -1
    } else {
        integer(&a[1]) as i32
    };
    Ok(text(type_called(cx, oid(&a[0]), typmod)))
}

/// A type by its number, as SQL writes it.
fn type_called(cx: &Context, number: u32, typmod: i32) -> String {
    describe::type_name(number, typmod)
        .or_else(|| cx.dict.user_type_name(number))
        .unwrap_or_else(|| "???".to_string())
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
pub(super) fn relation_argument(cx: &Context, d: &Datum) -> Result<u32> {
    match d {
        Datum::Text(s) if s.parse::<u32>().is_err() => {
            objects::find(&cx.dict, &cx.database_name, Class, s)
        }
        other => Ok(oid(other)),
    }
}

fn heap_size(cx: &Context, number: u32) -> Result<i64> {
    let blocks = match cx.dict.table_by_oid(number) {
        Some(t) => cx.segment_blocks(t.segment)?,
        None => {
            let table = cx.dict.table_of_part(number);
            let index = table.and_then(|t| t.indexes.iter().find(|i| i.oid == number));
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

pub(super) fn database_size(cx: &Context, _: &[Datum]) -> Result<Datum> {
    let mut size = 0;
    for t in cx.dict.tables() {
        size += heap_size(cx, t.oid)? + indexes_size(cx, t.oid)?;
    }
    Ok(Datum::Int8(size))
}

/// As PostgreSQL rounds it: up to 10,240 of a unit before the next.
/// The object of a name, NULL if there is none.
fn to_reg(cx: &Context, kind: Kind, a: &[Datum]) -> Result<Datum> {
    let found = objects::find_if_any(&cx.dict, &cx.database_name, kind, string(&a[0]))?;
    Ok(found.map_or(Datum::Null, |number| Datum::Int8(number.into())))
}
