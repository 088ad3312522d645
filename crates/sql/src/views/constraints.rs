//! What hangs on relations in the catalogs: indexes, constraints, sequences, and what is dropped with what.

use super::Source::Here;
use super::describe::{self, PUBLIC};
use super::relations::PG_CLASS;
use super::value::{NULL, array, bool, int2, int4, int8, oid, optional, text};
use super::{Context, Rows, VirtualTable};
use crate::dict::{Index, Sequence, Table};
use crate::error::Result;
use crate::types::SqlType::{Bool, Int2, Int4, Int8, Name, Oid, Text};
use block::value::Datum;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_index",
        columns: &[
            ("indexrelid", Oid),
            ("indrelid", Oid),
            ("indnatts", Int2),
            ("indnkeyatts", Int2),
            ("indisunique", Bool),
            ("indnullsnotdistinct", Bool),
            ("indisprimary", Bool),
            ("indisexclusion", Bool),
            ("indimmediate", Bool),
            ("indisclustered", Bool),
            ("indisvalid", Bool),
            ("indcheckxmin", Bool),
            ("indisready", Bool),
            ("indislive", Bool),
            ("indisreplident", Bool),
            ("indkey", Text),
            ("indcollation", Text),
            ("indclass", Text),
            ("indoption", Text),
            ("indexprs", Text),
            ("indpred", Text),
        ],
        rows: Here(indexes),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_constraint",
        columns: &[
            ("oid", Oid),
            ("conname", Name),
            ("connamespace", Oid),
            ("contype", Text),
            ("condeferrable", Bool),
            ("condeferred", Bool),
            ("convalidated", Bool),
            ("conrelid", Oid),
            ("contypid", Oid),
            ("conindid", Oid),
            ("conparentid", Oid),
            ("confrelid", Oid),
            ("confupdtype", Text),
            ("confdeltype", Text),
            ("confmatchtype", Text),
            ("conislocal", Bool),
            ("coninhcount", Int2),
            ("connoinherit", Bool),
            ("conkey", Text),
            ("confkey", Text),
            ("conbin", Text),
        ],
        rows: Here(constraints),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_sequence",
        columns: &[
            ("seqrelid", Oid),
            ("seqtypid", Oid),
            ("seqstart", Int8),
            ("seqincrement", Int8),
            ("seqmax", Int8),
            ("seqmin", Int8),
            ("seqcache", Int8),
            ("seqcycle", Bool),
        ],
        rows: Here(sequences),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_depend",
        columns: &[
            ("classid", Oid),
            ("objid", Oid),
            ("objsubid", Int4),
            ("refclassid", Oid),
            ("refobjid", Oid),
            ("refobjsubid", Int4),
            ("deptype", Text),
        ],
        rows: Here(dependencies),
    },
];

fn indexes(cx: &Context) -> Result<Rows> {
    let row = |t: &Table, i: &Index| {
        let words = |f: &dyn Fn(&crate::dict::IndexKey) -> String| {
            text(i.keys.iter().map(f).collect::<Vec<_>>().join(" "))
        };
        vec![
            oid(i.oid),
            oid(t.oid),
            int2(i.keys.len()),
            int2(i.keys.len()),
            bool(i.unique),
            bool(false),
            bool(i.primary),
            bool(false),
            bool(true),
            bool(false),
            bool(true),
            bool(false),
            bool(true),
            bool(true),
            bool(false),
            words(&|k| (k.column + 1).to_string()),
            words(&|_| "0".to_string()),
            words(&|_| "0".to_string()),
            words(&|k| (u8::from(k.descending) | u8::from(k.nulls_first) << 1).to_string()),
            NULL,
            NULL,
        ]
    };
    Ok(cx
        .dict
        .tables()
        .flat_map(|t| t.indexes.iter().map(move |i| row(t, i)))
        .collect())
}

fn constraints(cx: &Context) -> Result<Rows> {
    let row = |number: u32,
               name: &str,
               kind: &str,
               table: u32,
               index: u32,
               columns: Datum,
               text_: Option<&str>| {
        vec![
            oid(number),
            text(name),
            oid(PUBLIC),
            text(kind),
            bool(false),
            bool(false),
            bool(true),
            oid(table),
            oid(0),
            oid(index),
            oid(0),
            oid(0),
            text(" "),
            text(" "),
            text(" "),
            bool(true),
            int2(0),
            bool(true),
            columns,
            NULL,
            optional(text_),
        ]
    };
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        for i in t.indexes.iter().filter(|i| i.constraint != 0) {
            let kind = if i.primary { "p" } else { "u" };
            rows.push(row(
                i.constraint,
                &i.name,
                kind,
                t.oid,
                i.oid,
                array(i.keys.iter().map(|k| k.column + 1)),
                None,
            ));
        }
        for (at, c) in t.checks.iter().enumerate() {
            rows.push(row(
                describe::check_oid(t.oid, at),
                &c.name,
                "c",
                t.oid,
                0,
                NULL,
                Some(&c.text),
            ));
        }
    }
    for t in cx.dict.tables() {
        for k in &t.foreign_keys {
            rows.push(vec![
                oid(k.oid),
                text(k.name.clone()),
                oid(PUBLIC),
                text("f"),
                bool(k.deferrable),
                bool(k.initially_deferred),
                bool(k.validated),
                oid(t.oid),
                oid(0),
                oid(k.index),
                oid(0),
                oid(k.parent),
                text(k.on_update.letter()),
                text(k.on_delete.letter()),
                text(if k.full { "f" } else { "s" }),
                bool(true),
                int2(0),
                bool(true),
                array(k.columns.iter().map(|c| c + 1)),
                array(k.parent_columns.iter().map(|c| c + 1)),
                NULL,
            ]);
        }
    }
    Ok(rows)
}

fn sequences(cx: &Context) -> Result<Rows> {
    let row = |s: &std::sync::Arc<Sequence>| {
        vec![
            oid(s.oid),
            oid(s.type_oid),
            int8(s.start),
            int8(s.increment),
            int8(s.max),
            int8(s.min),
            int8(s.cache),
            bool(s.cycle),
        ]
    };
    Ok(cx.dict.sequences().map(row).collect())
}

/// What drops with what: indexes with their tables, sequences with the columns that own them.
fn dependencies(cx: &Context) -> Result<Rows> {
    let row = |object: u32, table: u32, column: usize, kind: &str| {
        vec![
            oid(PG_CLASS),
            oid(object),
            int4(0),
            oid(PG_CLASS),
            oid(table),
            int4(column),
            text(kind),
        ]
    };
    let mut rows = Rows::new();
    for t in cx.dict.tables() {
        rows.extend(t.indexes.iter().map(|i| {
            row(
                i.oid,
                t.oid,
                i.keys.first().map_or(0, |k| k.column + 1),
                "a",
            )
        }));
    }
    for s in cx.dict.sequences() {
        if let Some((table, column)) = s.owner {
            let identity = cx
                .dict
                .table_by_oid(table)
                .and_then(|t| t.columns.get(column)?.identity);
            rows.push(row(
                s.oid,
                table,
                column + 1,
                if identity.is_some() { "i" } else { "a" },
            ));
        }
    }
    Ok(rows)
}
