//! Definitions as PostgreSQL writes them out: indexes, constraints, types.

use std::sync::Arc;

use sqlparser::ast;

use crate::bind::names::quote;
use crate::bind::numbered::Shown;
use crate::dict::{Dict, Index, Table};
use crate::types::SqlType;

/// Object ids of what PostgreSQL gives fixed ones.
pub use crate::dict::path::{INFORMATION_SCHEMA, PG_CATALOG, PUBLIC};
pub const OWNER: u32 = 10;
pub const HEAP_AM: u32 = 2;
pub const DATABASE: u32 = 5;
const DEFAULT_COLLATION: u32 = 100;
pub const C_COLLATION: u32 = 950;

/// A constraint is numbered by its index or, for a check, by table and place, in a range no object id reaches.
const CHECKS_FROM: u32 = 3_000_000_000;

pub fn check_oid(table: u32, at: usize) -> u32 {
    CHECKS_FROM
        .wrapping_add(table.wrapping_mul(64))
        .wrapping_add(at as u32)
}

/// The table and the place of the check of a number.
pub fn check_of(oid: u32) -> Option<(u32, usize)> {
    let place = oid.checked_sub(CHECKS_FROM)?;
    Some((place / 64, (place % 64) as usize))
}

/// The definition of an index, or with `column` (from 1) of one of its columns. `schema` is the name
/// of its table's, if it is to be shown.
pub fn index(
    how: Shown<'_>,
    dict: &Dict,
    schema: Option<&str>,
    table: &Table,
    index: &Index,
    column: usize,
    pretty: bool,
) -> String {
    let key = |at: usize| {
        let k = index.keys[at];
        let mut s = key_text(how, table, index, at, pretty);
        let class = index.class(at);
        if !class.is_empty() {
            s.push(' ');
            s.push_str(&dict.shown_class(class));
        }
        if k.descending {
            s.push_str(" DESC");
        }
        match (k.descending, k.nulls_first) {
            (true, false) => s.push_str(" NULLS LAST"),
            (false, true) => s.push_str(" NULLS FIRST"),
            _ => {}
        }
        s
    };
    if column > 0 {
        let included = || index.included.get(column - 1 - index.keys.len());
        return match column <= index.keys.len() {
            true => key_text(how, table, index, column - 1, pretty),
            false => included().map_or(String::new(), |c| quote(&table.columns[*c].name)),
        };
    }
    let keys: Vec<String> = (0..index.keys.len()).map(key).collect();
    let unique = if index.unique { "UNIQUE " } else { "" };
    let schema = schema.map_or(String::new(), |s| format!("{}.", quote(s)));
    let nulls = match index.nulls_not_distinct {
        true => " NULLS NOT DISTINCT",
        false => "",
    };
    let include = include(table, index);
    let condition = super::definition::predicate(how, table, index, pretty);
    let condition = condition.map_or(String::new(), |c| format!(" WHERE {c}"));
    let with = parameters(&index.options);
    let method = index.method.name();
    format!(
        "CREATE {unique}INDEX {} ON {schema}{} USING {method} ({}){include}{nulls}{with}{condition}",
        quote(&index.name),
        quote(&table.name),
        keys.join(", ")
    )
}

/// WITH and an index's storage parameters; empty, if it has none.
fn parameters(options: &[(String, String)]) -> String {
    let shown = options.iter().map(|(name, value)| {
        // A name need not be in quotes.
        match quote(value) == *value {
            true => format!("{}={value}", quote(name)),
            false => format!("{}='{}'", quote(name), value.replace('\'', "''")),
        }
    });
    let shown: Vec<String> = shown.collect();
    match shown.is_empty() {
        true => String::new(),
        false => format!(" WITH ({})", shown.join(", ")),
    }
}

/// INCLUDE with an index's columns; empty, if it has none.
fn include(table: &Table, index: &Index) -> String {
    let included = index.included.iter();
    let included: Vec<String> = included.map(|c| quote(&table.columns[*c].name)).collect();
    match included.is_empty() {
        true => String::new(),
        false => format!(" INCLUDE ({})", included.join(", ")),
    }
}

/// A column of an index's key, without its order.
fn key_text(how: Shown<'_>, table: &Table, index: &Index, at: usize, pretty: bool) -> String {
    match index.expression(at) {
        Some(e) => match crate::parse::expression(&e.text) {
            // A column in the order of a locale.
            Ok(ast::Expr::Collate { expr, .. }) if matches!(*expr, ast::Expr::Identifier(_)) => {
                e.text.clone()
            }
            _ => super::definition::key(how, table, &e.text, pretty),
        },
        None => quote(&table.columns[index.keys[at].column].name),
    }
}

/// PRIMARY KEY or UNIQUE, as the index behind it has its columns; with the parameters of the index,
/// if they are wanted.
pub fn key_constraint(table: &Table, index: &Index, with_parameters: bool) -> String {
    let columns: Vec<String> = index
        .keys
        .iter()
        .filter_map(|k| table.columns.get(k.column))
        .map(|c| quote(&c.name))
        .collect();
    let kind = match (index.primary, index.nulls_not_distinct) {
        (true, _) => "PRIMARY KEY",
        (false, true) => "UNIQUE NULLS NOT DISTINCT",
        (false, false) => "UNIQUE",
    };
    let mut text = format!("{kind} ({}){}", columns.join(", "), include(table, index));
    if with_parameters {
        text.push_str(&parameters(&index.options));
    }
    if index.deferrable {
        text.push_str(" DEFERRABLE");
    }
    if index.initially_deferred {
        text.push_str(" INITIALLY DEFERRED");
    }
    text
}

/// The constraint of that object id, written out; a check with all its parentheses, unless it is to
/// be pretty.
pub fn constraint(dict: &Dict, oid: u32, pretty: bool) -> Option<String> {
    let of = |t: &Arc<Table>| {
        let key = t
            .indexes
            .iter()
            .find(|i| i.constraint != 0 && i.constraint == oid)
            .map(|i| key_constraint(t, i, false));
        let key = key.or_else(|| {
            let key = t.foreign_keys.iter().find(|k| k.oid == oid)?;
            let parent = dict.table_by_oid(key.parent)?;
            let name = dict.shown(parent.schema, &parent.name);
            Some(crate::exec::foreign::definition(t, (&name, parent), key))
        });
        key.or_else(|| {
            (0..t.checks.len())
                .find(|at| check_oid(t.oid, *at) == oid)
                .map(|at| super::definition::check(Shown::AsNow(dict), t, &t.checks[at], pretty))
        })
    };
    // A check has its number by that of its table, which for great ones is that of several.
    let table = oid.wrapping_sub(CHECKS_FROM) / 64;
    let table = dict.table_of_part(oid).or_else(|| dict.table_by_oid(table));
    table.and_then(of).or_else(|| dict.tables().find_map(of))
}

/// What `format_type` says.
pub fn type_name(oid: u32, typmod: i32) -> Option<String> {
    if oid == 0 {
        return Some("-".to_string());
    }
    if let Some(ty) = SqlType::from_oid(oid) {
        return Some(ty.format(typmod));
    }
    OTHER_TYPES
        .iter()
        .find(|(o, _, _)| *o == oid)
        .map(|(_, _, name)| name.to_string())
}

/// Types that catalogs mention and values cannot have: object id, internal name, name in messages.
pub const OTHER_TYPES: &[(u32, &str, &str)] = &[
    (194, "pg_node_tree", "pg_node_tree"),
    (269, "table_am_handler", "table_am_handler"),
    (325, "index_am_handler", "index_am_handler"),
    (1033, "aclitem", "aclitem"),
    (1034, "_aclitem", "aclitem[]"),
    (5069, "xid8", "xid8"),
    (2275, "cstring", "cstring"),
    (2276, "any", "\"any\""),
    (2279, "trigger", "trigger"),
    (2280, "language_handler", "language_handler"),
    (3500, "anyenum", "anyenum"),
    (2277, "anyarray", "anyarray"),
    (2281, "internal", "internal"),
    (2283, "anyelement", "anyelement"),
    (3831, "anyrange", "anyrange"),
    (4537, "anymultirange", "anymultirange"),
    (2776, "anynonarray", "anynonarray"),
    (5077, "anycompatible", "anycompatible"),
    (5078, "anycompatiblearray", "anycompatiblearray"),
    (5079, "anycompatiblenonarray", "anycompatiblenonarray"),
];

/// The collation of a type; zero if it has none.
pub fn collation(ty: SqlType) -> u32 {
    match ty.element().unwrap_or(ty) {
        SqlType::Text | SqlType::Varchar | SqlType::Char => DEFAULT_COLLATION,
        SqlType::Name => C_COLLATION,
        ty if ty.is_citext() => DEFAULT_COLLATION,
        _ => 0,
    }
}
