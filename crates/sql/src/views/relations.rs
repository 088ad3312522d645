//! Catalogs of relations: tables, indexes, sequences and views, their columns and defaults.

use block::value::Datum;

use super::Source::Here;
use super::describe::{self, HEAP_AM, OWNER, PG_CATALOG, PUBLIC};
use super::numbers::view_oid;
use super::value::{NULL, bool, int2, int4, oid, text, texts};
use super::{Context, Rows, VirtualTable, types};
use crate::ddl::sequence::default_of;
use crate::dict::{Identity, Table};
use crate::error::Result;
use crate::types::SqlType::{self, Bool, Float4, Int2, Int4, InternalChar, Name, Oid, Text};

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_class",
        columns: &[
            ("oid", Oid),
            ("relname", Name),
            ("relnamespace", Oid),
            ("reltype", Oid),
            ("reloftype", Oid),
            ("relowner", Oid),
            ("relam", Oid),
            ("relfilenode", Oid),
            ("reltablespace", Oid),
            ("relpages", Int4),
            ("reltuples", Float4),
            ("relallvisible", Int4),
            ("reltoastrelid", Oid),
            ("relhasindex", Bool),
            ("relisshared", Bool),
            ("relpersistence", InternalChar),
            ("relkind", InternalChar),
            ("relnatts", Int2),
            ("relchecks", Int2),
            ("relhasrules", Bool),
            ("relhastriggers", Bool),
            ("relhassubclass", Bool),
            ("relrowsecurity", Bool),
            ("relforcerowsecurity", Bool),
            ("relispopulated", Bool),
            ("relreplident", InternalChar),
            ("relispartition", Bool),
            ("relrewrite", Oid),
            ("relfrozenxid", SqlType::Xid),
            ("relminmxid", SqlType::Xid),
            ("relacl", SqlType::TEXTS),
            ("reloptions", SqlType::TEXTS),
            ("relpartbound", Text),
        ],
        rows: Here(classes),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_attribute",
        columns: &[
            ("attrelid", Oid),
            ("attname", Name),
            ("atttypid", Oid),
            ("attlen", Int2),
            ("attnum", Int2),
            ("attcacheoff", Int4),
            ("atttypmod", Int4),
            ("attndims", Int2),
            ("attbyval", Bool),
            ("attalign", InternalChar),
            ("attstorage", InternalChar),
            ("attcompression", InternalChar),
            ("attnotnull", Bool),
            ("atthasdef", Bool),
            ("atthasmissing", Bool),
            ("attidentity", InternalChar),
            ("attgenerated", InternalChar),
            ("attisdropped", Bool),
            ("attislocal", Bool),
            ("attinhcount", Int2),
            ("attcollation", Oid),
            ("attstattarget", Int4),
            ("attacl", SqlType::TEXTS),
            ("attoptions", SqlType::TEXTS),
            ("attfdwoptions", SqlType::TEXTS),
            ("attmissingval", SqlType::TEXTS),
        ],
        rows: Here(attributes),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_attrdef",
        columns: &[
            ("oid", Oid),
            ("adrelid", Oid),
            ("adnum", Int2),
            ("adbin", Text),
        ],
        rows: Here(defaults),
    },
];

/// A row of pg_class; what most relations have in common is filled in.
struct Class<'a> {
    oid: u32,
    name: &'a str,
    owner: u32,
    namespace: u32,
    am: u32,
    kind: &'static str,
    columns: usize,
    checks: usize,
    has_index: bool,
    has_triggers: bool,
    has_rules: bool,
    populated: bool,
    tuples: f32,
    pages: i32,
    options: Datum,
    /// The type of its rows, as far as it has a number.
    row_type: u32,
    persistence: &'static str,
    /// Whether row-level security is on, and for the owner too.
    row_security: [bool; 2],
}

impl Class<'_> {
    fn row(self) -> Vec<Datum> {
        let replica = if matches!(self.kind, "r" | "m") {
            "d"
        } else {
            "n"
        };
        vec![
            oid(self.oid),
            text(self.name),
            oid(self.namespace),
            oid(self.row_type),
            oid(0),
            oid(self.owner),
            oid(self.am),
            oid(self.oid),
            oid(0),
            int4(self.pages),
            Datum::Float4(self.tuples),
            int4(0),
            oid(0),
            bool(self.has_index),
            bool(false),
            text(self.persistence),
            text(self.kind),
            int2(self.columns),
            int2(self.checks),
            bool(self.has_rules),
            bool(self.has_triggers),
            bool(false),
            bool(self.row_security[0]),
            bool(self.row_security[1]),
            bool(self.populated),
            text(replica),
            bool(false),
            oid(0),
            // No version is frozen here.
            oid(0),
            oid(0),
            NULL,
            self.options,
            NULL,
        ]
    }
}

fn classes(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for t in cx.tables() {
        rows.push(table_class(cx, t).row());
        for i in &t.indexes {
            let class = Class {
                oid: i.oid,
                name: &i.name,
                owner: t.owner,
                namespace: t.schema,
                am: i.method.oid(),
                kind: "i",
                columns: i.keys.len() + i.included.len(),
                persistence: persistence(cx, t.schema, t.unlogged),
                options: options(&i.options),
                ..plain()
            };
            rows.push(class.row());
        }
    }
    for s in cx.sequences() {
        let table = s.owner.and_then(|(table, _)| cx.dict.table_by_oid(table));
        let unlogged = s.unlogged.or(table.map(|t| t.unlogged)).unwrap_or(false);
        rows.push(
            Class {
                oid: s.oid,
                name: &s.name,
                owner: s.role,
                namespace: s.schema,
                kind: "S",
                columns: 3,
                tuples: 1.0,
                pages: 1,
                persistence: persistence(cx, s.schema, unlogged),
                ..plain()
            }
            .row(),
        );
    }
    for v in cx.views() {
        let class = Class {
            oid: v.oid,
            name: &v.name,
            owner: v.owner,
            namespace: v.schema,
            kind: "v",
            columns: v.columns.len(),
            has_rules: true,
            has_triggers: !v.triggers.is_empty(),
            options: options(&v.options),
            persistence: persistence(cx, v.schema, false),
            ..plain()
        };
        rows.push(class.row());
    }
    for t in cx.dict.user_types() {
        let Some(composite) = &t.composite else {
            continue;
        };
        let class = Class {
            oid: composite.relation,
            name: &t.name,
            owner: t.owner,
            namespace: t.schema,
            kind: "c",
            columns: composite.attributes.len(),
            row_type: t.oid,
            tuples: 0.0,
            ..plain()
        };
        rows.push(class.row());
    }
    for v in cx.virtual_tables() {
        let class = Class {
            oid: view_oid(v.schema, v.name).unwrap_or(0),
            name: v.name,
            namespace: match namespace_of(v.schema) {
                PUBLIC if !cx.dict.has_public() => PG_CATALOG,
                namespace => namespace,
            },
            kind: "v",
            columns: v.columns.len(),
            ..plain()
        };
        rows.push(class.row());
    }
    super::acl::fill(cx, &mut rows, RELACL);
    Ok(rows)
}

/// The place of `relacl` in `pg_class`, and those of `attnum` and `attacl` in `pg_attribute`.
pub(super) const RELACL: usize = 30;
pub(super) const ATTNUM: usize = 4;
pub(super) const ATTACL: usize = 22;

/// Of pg_class: temporary, unlogged, or permanent.
fn persistence(cx: &Context, schema: u32, unlogged: bool) -> &'static str {
    match cx.dict.is_temporary(schema) {
        true => "t",
        false if unlogged => "u",
        false => "p",
    }
}

fn plain<'a>() -> Class<'a> {
    Class {
        persistence: "p",
        oid: 0,
        name: "",
        owner: OWNER,
        namespace: PUBLIC,
        am: 0,
        kind: "r",
        columns: 0,
        checks: 0,
        has_index: false,
        has_triggers: false,
        has_rules: false,
        populated: true,
        tuples: -1.0,
        pages: 0,
        options: NULL,
        row_type: 0,
        row_security: [false; 2],
    }
}

fn options(list: &[(String, String)]) -> Datum {
    match list.is_empty() {
        true => NULL,
        false => texts(list.iter().map(|(k, v)| format!("{k}={v}"))),
    }
}

fn table_class<'a>(cx: &Context, t: &'a Table) -> Class<'a> {
    let stats = cx.dict.stats(t.oid);
    Class {
        oid: t.oid,
        name: &t.name,
        owner: t.owner,
        namespace: t.schema,
        am: HEAP_AM,
        kind: if t.materialized.is_some() { "m" } else { "r" },
        has_rules: t.materialized.is_some(),
        populated: t.materialized.as_ref().is_none_or(|m| m.populated),
        columns: t.columns.len(),
        checks: t.checks.len(),
        has_index: !t.indexes.is_empty(),
        // In PostgreSQL triggers serve foreign keys, on both sides; psql looks for these only then.
        has_triggers: !t.triggers.is_empty()
            || !t.foreign_keys.is_empty()
            || !cx.dict.referencing(t.oid).is_empty(),
        tuples: stats.map_or(-1.0, |s| s.rows as f32),
        pages: stats.map_or(0, |s| s.blocks as i32),
        options: options(&t.options),
        row_type: t.row_type[0],
        persistence: persistence(cx, t.schema, t.unlogged),
        row_security: [t.row_security, t.force_row_security],
    }
}

pub fn namespace_of(schema: &str) -> u32 {
    match schema {
        "pg_catalog" => PG_CATALOG,
        "information_schema" => describe::INFORMATION_SCHEMA,
        _ => PUBLIC,
    }
}

/// A column that gets its values from a statement.
const NOT_MADE: (&str, &str) = ("", "");

/// A column of pg_attribute.
struct Attribute<'a> {
    relation: u32,
    name: &'a str,
    ty: crate::SqlType,
    typmod: i32,
    number: usize,
    not_null: bool,
    has_default: bool,
    /// How it is made: of pg_attribute's identity and generated.
    made: (&'static str, &'static str),
    dropped: bool,
}

impl Attribute<'_> {
    fn row(self) -> Vec<Datum> {
        let base = self.ty.base();
        let collation = describe::collation(base);
        let by_value = matches!(self.ty.typlen(), 1 | 2 | 4 | 8);
        vec![
            oid(self.relation),
            text(self.name),
            oid(if self.dropped { 0 } else { self.ty.oid() }),
            int2(self.ty.typlen()),
            int2(self.number),
            int4(-1),
            int4(self.typmod),
            int2(i16::from(matches!(self.ty, crate::SqlType::Array(_)))),
            bool(by_value),
            text(types::align(base)),
            text(types::storage(base)),
            text(""),
            bool(self.not_null),
            bool(self.has_default),
            bool(false),
            text(self.made.0),
            text(self.made.1),
            bool(self.dropped),
            bool(true),
            int2(0),
            oid(collation),
            int4(-1),
            NULL,
            NULL,
            NULL,
            NULL,
        ]
    }
}

/// The places of `attstorage`, `attcollation`, `attstattarget` and `attoptions`.
const STORAGE: usize = 10;
const COLLATION: usize = 20;
const STATISTICS: usize = 21;
const OPTIONS: usize = 23;

/// A domain has the modifier, and its column none.
fn catalog_typmod(c: &crate::dict::Column) -> i32 {
    match c.declared().is_domain() {
        true => -1,
        false => c.typmod,
    }
}

fn attributes(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for t in cx.tables() {
        for (at, c) in t.columns.iter().enumerate() {
            let identity = match c.identity {
                None => "",
                Some(Identity::Always) => "a",
                Some(Identity::ByDefault) => "d",
            };
            let has_default = c.identity.is_none() && (c.default.is_some() || c.sequence.is_some());
            let mut row = attribute(
                t.oid,
                &c.name,
                c.declared(),
                catalog_typmod(c),
                at,
                c.not_null,
                has_default,
                (identity, if c.generated { "s" } else { "" }),
                c.dropped,
            );
            if let Some(collation) = c.collation {
                row[COLLATION] = oid(collation);
            }
            if let Some(letter) = c.storing.storage {
                row[STORAGE] = text(letter.to_string());
            }
            if let Some(target) = c.storing.statistics {
                row[STATISTICS] = int4(i32::from(target));
            }
            row[OPTIONS] = options(&c.storing.options);
            rows.push(row);
        }
        for i in &t.indexes {
            let names = crate::ddl::index_columns(t, i);
            for (at, name) in names.iter().enumerate() {
                let (ty, typmod) = match (at.checked_sub(i.keys.len()), &i.bound) {
                    (Some(after), _) => {
                        let c = &t.columns[i.included[after]];
                        (c.ty(), c.typmod)
                    }
                    (None, Some(bound)) => (i.type_of(t, at), bound.keys[at].typmod),
                    (None, None) => (i.type_of(t, at), t.columns[i.keys[at].column].typmod),
                };
                rows.push(attribute(
                    i.oid, name, ty, typmod, at, false, false, NOT_MADE, false,
                ));
            }
        }
    }
    for v in cx.views() {
        for (at, c) in v.columns.iter().enumerate() {
            rows.push(attribute(
                v.oid,
                &c.name,
                c.ty(),
                c.typmod,
                at,
                false,
                c.default.is_some(),
                NOT_MADE,
                false,
            ));
        }
    }
    for t in cx.dict.user_types() {
        if let Some(c) = &t.composite {
            for (at, a) in c.attributes.iter().enumerate() {
                let ty = cx.dict.type_of(a.type_oid).unwrap_or(SqlType::Unknown);
                rows.push(attribute(
                    c.relation,
                    &a.name,
                    ty,
                    if ty.is_domain() { -1 } else { a.typmod },
                    at,
                    false,
                    false,
                    ("", ""),
                    false,
                ));
            }
        }
    }
    for v in cx.virtual_tables() {
        for (at, (name, ty)) in v.columns.iter().enumerate() {
            rows.push(attribute(
                view_oid(v.schema, v.name).unwrap_or(0),
                name,
                *ty,
                -1,
                at,
                false,
                false,
                NOT_MADE,
                false,
            ));
        }
    }
    super::acl::fill_columns(cx, &mut rows, ATTNUM, ATTACL);
    Ok(rows)
}

#[allow(clippy::too_many_arguments)]
fn attribute(
    relation: u32,
    name: &str,
    ty: crate::SqlType,
    typmod: i32,
    at: usize,
    not_null: bool,
    has_default: bool,
    made: (&'static str, &'static str),
    dropped: bool,
) -> Vec<Datum> {
    Attribute {
        relation,
        name,
        ty,
        typmod,
        number: at + 1,
        not_null,
        has_default,
        made,
        dropped,
    }
    .row()
}

/// A default has a number by its table and column.
pub fn default_oid(table: u32, at: usize) -> u32 {
    table.wrapping_mul(64).wrapping_add(at as u32)
}

/// The relation and the place of the column whose default has a number.
pub fn default_of_oid(oid: u32) -> (u32, usize) {
    (oid / 64, (oid % 64) as usize)
}

fn defaults(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for t in cx.tables() {
        for (at, c) in t.live_columns().filter(|(_, c)| c.identity.is_none()) {
            let expr = default_of(&cx.dict, t, c)?;
            if let Some(expr) = expr {
                let number = default_oid(t.oid, at);
                rows.push(vec![oid(number), oid(t.oid), int2(at + 1), text(expr)]);
            }
        }
    }
    for v in cx.views() {
        let shown = v.as_table();
        for (at, c) in shown.columns.iter().enumerate() {
            if let Some(expr) = default_of(&cx.dict, &shown, c)? {
                let number = default_oid(v.oid, at);
                rows.push(vec![oid(number), oid(v.oid), int2(at + 1), text(expr)]);
            }
        }
    }
    Ok(rows)
}
