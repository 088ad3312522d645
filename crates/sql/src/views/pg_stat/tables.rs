//! `pg_stat_user_tables` and its kin: scans, rows and blocks of tables, indexes and sequences.
//!
//! The catalogs are no tables here: of the system are the tables of large objects alone.

use std::collections::HashMap;
use std::sync::Arc;

use block::value::Datum;
use wait::segment::SegmentStat::{
    self, PhysicalReads, RowsDeleted, RowsFetched, RowsInserted, RowsRead, RowsUpdated, Scans,
};

use super::super::Source::Here;
use super::super::usage::{self, Object};
use super::super::value::{NULL, int8, oid, text};
use super::super::{Context, Rows, VirtualTable};
use crate::dict::{Index, Table};
use crate::error::Result;
use crate::types::SqlType::{self, Int8, Name, Oid, TimestampTz};

type Columns = &'static [(&'static str, SqlType)];

const TABLES: Columns = &[
    ("relid", Oid),
    ("schemaname", Name),
    ("relname", Name),
    ("seq_scan", Int8),
    ("seq_tup_read", Int8),
    ("idx_scan", Int8),
    ("idx_tup_fetch", Int8),
    ("n_tup_ins", Int8),
    ("n_tup_upd", Int8),
    ("n_tup_del", Int8),
    ("n_tup_hot_upd", Int8),
    ("n_live_tup", Int8),
    ("n_dead_tup", Int8),
    ("n_mod_since_analyze", Int8),
    ("n_ins_since_vacuum", Int8),
    ("last_vacuum", TimestampTz),
    ("last_autovacuum", TimestampTz),
    ("last_analyze", TimestampTz),
    ("last_autoanalyze", TimestampTz),
    ("vacuum_count", Int8),
    ("autovacuum_count", Int8),
    ("analyze_count", Int8),
    ("autoanalyze_count", Int8),
];

const INDEXES: Columns = &[
    ("relid", Oid),
    ("indexrelid", Oid),
    ("schemaname", Name),
    ("relname", Name),
    ("indexrelname", Name),
    ("idx_scan", Int8),
    ("idx_tup_read", Int8),
    ("idx_tup_fetch", Int8),
];

const TABLES_IO: Columns = &[
    ("relid", Oid),
    ("schemaname", Name),
    ("relname", Name),
    ("heap_blks_read", Int8),
    ("heap_blks_hit", Int8),
    ("idx_blks_read", Int8),
    ("idx_blks_hit", Int8),
    ("toast_blks_read", Int8),
    ("toast_blks_hit", Int8),
    ("tidx_blks_read", Int8),
    ("tidx_blks_hit", Int8),
];

const INDEXES_IO: Columns = &[
    ("relid", Oid),
    ("indexrelid", Oid),
    ("schemaname", Name),
    ("relname", Name),
    ("indexrelname", Name),
    ("idx_blks_read", Int8),
    ("idx_blks_hit", Int8),
];

const SEQUENCES_IO: Columns = &[
    ("relid", Oid),
    ("schemaname", Name),
    ("relname", Name),
    ("blks_read", Int8),
    ("blks_hit", Int8),
];

const fn view(
    name: &'static str,
    columns: Columns,
    rows: fn(&Context) -> Result<Rows>,
) -> VirtualTable {
    VirtualTable {
        schema: "pg_catalog",
        name,
        columns,
        rows: Here(rows),
    }
}

/// The rows of the views of system tables.
fn none(_: &Context) -> Result<Rows> {
    Ok(Rows::new())
}

pub const VIEWS: &[VirtualTable] = &[
    view("pg_stat_all_tables", TABLES, tables),
    view("pg_stat_user_tables", TABLES, |cx| {
        of_users(tables(cx)?, TABLE_SCHEMA)
    }),
    view("pg_stat_sys_tables", TABLES, |cx| {
        of_system(tables(cx)?, TABLE_SCHEMA)
    }),
    view("pg_stat_all_indexes", INDEXES, indexes),
    view("pg_stat_user_indexes", INDEXES, |cx| {
        of_users(indexes(cx)?, INDEX_SCHEMA)
    }),
    view("pg_stat_sys_indexes", INDEXES, |cx| {
        of_system(indexes(cx)?, INDEX_SCHEMA)
    }),
    view("pg_statio_all_tables", TABLES_IO, tables_io),
    view("pg_statio_user_tables", TABLES_IO, |cx| {
        of_users(tables_io(cx)?, TABLE_SCHEMA)
    }),
    view("pg_statio_sys_tables", TABLES_IO, |cx| {
        of_system(tables_io(cx)?, TABLE_SCHEMA)
    }),
    view("pg_statio_all_indexes", INDEXES_IO, indexes_io),
    view("pg_statio_user_indexes", INDEXES_IO, |cx| {
        of_users(indexes_io(cx)?, INDEX_SCHEMA)
    }),
    view("pg_statio_sys_indexes", INDEXES_IO, |cx| {
        of_system(indexes_io(cx)?, INDEX_SCHEMA)
    }),
    view("pg_statio_all_sequences", SEQUENCES_IO, sequences_io),
    view("pg_statio_user_sequences", SEQUENCES_IO, sequences_io),
    view("pg_statio_sys_sequences", SEQUENCES_IO, none),
];

/// The column of the schema in a row of a table, and in one of an index.
const TABLE_SCHEMA: usize = 1;
const INDEX_SCHEMA: usize = 2;

fn is_of_system(row: &[Datum], schema: usize) -> bool {
    matches!(row.get(schema), Some(Datum::Text(name)) if name == "pg_catalog")
}

fn of_users(mut rows: Rows, schema: usize) -> Result<Rows> {
    rows.retain(|row| !is_of_system(row, schema));
    Ok(rows)
}

fn of_system(mut rows: Rows, schema: usize) -> Result<Rows> {
    rows.retain(|row| is_of_system(row, schema));
    Ok(rows)
}

/// What all instances have counted.
struct Counted(HashMap<u32, Object>);

impl Counted {
    fn new(cx: &Context) -> Result<Counted> {
        Ok(Counted(usage::objects(cx)?))
    }

    fn of(&self, relation: u32) -> Object {
        self.0.get(&relation).cloned().unwrap_or_default()
    }

    /// A sum over a table's indexes; NULL if there is none.
    fn of_indexes(&self, t: &Table, count: impl Fn(&Object) -> i64) -> Datum {
        match t.indexes.is_empty() {
            true => NULL,
            false => Datum::Int8(t.indexes.iter().map(|i| count(&self.of(i.oid))).sum()),
        }
    }
}

/// The rows that a table has: as many as the last analysis found, and what came and went since on
/// the instances that are up.
pub(super) fn live_rows(cx: &Context, t: &Table, counted: &Object) -> i64 {
    let stats = cx.dict.stats(t.oid);
    let found = stats.map_or(0, |s| s.rows_in(t.segment) as i64);
    found.saturating_add(counted.new_rows()).max(0)
}

fn tables(cx: &Context) -> Result<Rows> {
    let counted = Counted::new(cx)?;
    let row = |t: &Arc<Table>| {
        let own = counted.of(t.oid);
        let number = |stat: SegmentStat| Datum::Int8(own.of(stat));
        let stats = cx.dict.stats(t.oid);
        let done = stats.map_or_else(Default::default, |s| [s.by_command, s.by_itself]);
        let [by_command, by_itself] = done;
        vec![
            oid(t.oid),
            text(cx.dict.schema_name(t.schema)),
            text(&*t.name),
            number(Scans),
            number(RowsRead),
            counted.of_indexes(t, |i| i.of(Scans)),
            counted.of_indexes(t, |i| i.of(RowsFetched)),
            number(RowsInserted),
            number(RowsUpdated),
            number(RowsDeleted),
            int8(0),
            Datum::Int8(live_rows(cx, t, &own)),
            int8(0),
            Datum::Int8(own.rows_changed()),
            // There is no vacuum since which to count.
            number(RowsInserted),
            NULL,
            NULL,
            by_command.when(),
            by_itself.when(),
            int8(0),
            int8(0),
            int8(by_command.count),
            int8(by_itself.count),
        ]
    };
    Ok(cx.tables().map(row).collect())
}

/// Makes a row for each index.
fn each_index(cx: &Context, mut counts: impl FnMut(&Index) -> Vec<Datum>) -> Rows {
    let mut rows = Rows::new();
    for t in cx.tables() {
        for i in &t.indexes {
            let mut row = vec![
                oid(t.oid),
                oid(i.oid),
                text(cx.dict.schema_name(t.schema)),
                text(&*t.name),
                text(&*i.name),
            ];
            row.extend(counts(i));
            rows.push(row);
        }
    }
    rows
}

fn indexes(cx: &Context) -> Result<Rows> {
    let counted = Counted::new(cx)?;
    Ok(each_index(cx, |i| {
        let own = counted.of(i.oid);
        let numbers = [Scans, RowsRead, RowsFetched];
        numbers.map(|stat| Datum::Int8(own.of(stat))).to_vec()
    }))
}

/// Blocks that were read from disk, and those that were in the cache.
fn blocks(own: &Object) -> [Datum; 2] {
    [own.of(PhysicalReads), own.hits()].map(Datum::Int8)
}

fn tables_io(cx: &Context) -> Result<Rows> {
    let counted = Counted::new(cx)?;
    let row = |t: &Arc<Table>| {
        let mut row = vec![
            oid(t.oid),
            text(cx.dict.schema_name(t.schema)),
            text(&*t.name),
        ];
        row.extend(blocks(&counted.of(t.oid)));
        row.push(counted.of_indexes(t, |i| i.of(PhysicalReads)));
        row.push(counted.of_indexes(t, Object::hits));
        // Long values are in the table's own blocks.
        row.extend([NULL, NULL, NULL, NULL]);
        row
    };
    Ok(cx.tables().map(row).collect())
}

fn indexes_io(cx: &Context) -> Result<Rows> {
    let counted = Counted::new(cx)?;
    Ok(each_index(cx, |i| blocks(&counted.of(i.oid)).to_vec()))
}

fn sequences_io(cx: &Context) -> Result<Rows> {
    let counted = Counted::new(cx)?;
    let row = |s: &Arc<crate::dict::Sequence>| {
        let mut row = vec![
            oid(s.oid),
            text(cx.dict.schema_name(s.schema)),
            text(&*s.name),
        ];
        row.extend(blocks(&counted.of(s.oid)));
        row
    };
    Ok(cx.dict.sequences().map(row).collect())
}
