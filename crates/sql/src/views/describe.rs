//! Definitions as PostgreSQL writes them out: indexes, constraints, types.

use crate::bind::names::quote;
use crate::dict::{Check, Dict, Index, Table};
use crate::types::SqlType;

/// Object ids of what PostgreSQL gives fixed ones.
pub const PG_CATALOG: u32 = 11;
pub const PUBLIC: u32 = 2200;
pub const INFORMATION_SCHEMA: u32 = 13_000;
pub const OWNER: u32 = 10;
pub const HEAP_AM: u32 = 2;
pub const BTREE_AM: u32 = 403;
pub const DATABASE: u32 = 5;
pub const DEFAULT_COLLATION: u32 = 100;

/// A constraint is numbered by its index or, for a check, by table and place, in a range no object id reaches.
const CHECKS_FROM: u32 = 3_000_000_000;

pub fn check_oid(table: u32, at: usize) -> u32 {
    CHECKS_FROM
        .wrapping_add(table.wrapping_mul(64))
        .wrapping_add(at as u32)
}

/// The definition of an index, or with `column` (from 1) of one of its columns.
pub fn index(table: &Table, index: &Index, column: usize) -> String {
    let key = |at: usize| {
        let k = index.keys[at];
        let mut s = table
            .columns
            .get(k.column)
            .map_or(String::new(), |c| quote(&c.name));
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
        return index
            .keys
            .get(column - 1)
            .and_then(|k| table.columns.get(k.column))
            .map_or(String::new(), |c| quote(&c.name));
    }
    let keys: Vec<String> = (0..index.keys.len()).map(key).collect();
    let unique = if index.unique { "UNIQUE " } else { "" };
    format!(
        "CREATE {unique}INDEX {} ON public.{} USING btree ({})",
        quote(&index.name),
        quote(&table.name),
        keys.join(", ")
    )
}

/// PRIMARY KEY or UNIQUE, as the index behind it has its columns.
pub fn key_constraint(table: &Table, index: &Index) -> String {
    let columns: Vec<String> = index
        .keys
        .iter()
        .filter_map(|k| table.columns.get(k.column))
        .map(|c| quote(&c.name))
        .collect();
    let kind = if index.primary {
        "PRIMARY KEY"
    } else {
        "UNIQUE"
    };
    format!("{kind} ({})", columns.join(", "))
}

pub fn check(check: &Check) -> String {
    format!("CHECK ({})", check.text)
}

/// The constraint of that object id, written out.
pub fn constraint(dict: &Dict, oid: u32) -> Option<String> {
    dict.tables().find_map(|t| {
        let key = t
            .indexes
            .iter()
            .find(|i| i.constraint != 0 && i.constraint == oid)
            .map(|i| key_constraint(t, i));
        key.or_else(|| {
            (0..t.checks.len())
                .find(|at| check_oid(t.oid, *at) == oid)
                .map(|at| check(&t.checks[at]))
        })
    })
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
    (18, "char", "\"char\""),
    (22, "int2vector", "int2vector"),
    (24, "regproc", "regproc"),
    (30, "oidvector", "oidvector"),
    (199, "_json", "json[]"),
    (1000, "_bool", "boolean[]"),
    (1001, "_bytea", "bytea[]"),
    (1003, "_name", "name[]"),
    (1005, "_int2", "smallint[]"),
    (1007, "_int4", "integer[]"),
    (1009, "_text", "text[]"),
    (1014, "_bpchar", "character[]"),
    (1015, "_varchar", "character varying[]"),
    (1016, "_int8", "bigint[]"),
    (1021, "_float4", "real[]"),
    (1022, "_float8", "double precision[]"),
    (1028, "_oid", "oid[]"),
    (1115, "_timestamp", "timestamp without time zone[]"),
    (1182, "_date", "date[]"),
    (1183, "_time", "time without time zone[]"),
    (1185, "_timestamptz", "timestamp with time zone[]"),
    (1187, "_interval", "interval[]"),
    (1231, "_numeric", "numeric[]"),
    (2205, "regclass", "regclass"),
    (2206, "regtype", "regtype"),
    (2951, "_uuid", "uuid[]"),
    (3807, "_jsonb", "jsonb[]"),
    (4089, "regnamespace", "regnamespace"),
];

/// The object id of the array type over a type; zero if there is none.
pub fn array_of(ty: SqlType) -> u32 {
    let name = format!("_{}", ty.internal_name());
    OTHER_TYPES
        .iter()
        .find(|(_, n, _)| *n == name)
        .map_or(0, |(oid, _, _)| *oid)
}
