//! `pg_stat_progress_...`: how far long work is, of what `gv$session_longops` has under way on any
//! instance. What Braid does not do, or does at once, has no rows.
//!
//! What the work belongs to is read from its statement, which a role sees of sessions that it may
//! watch alone.

use super::super::Source::Query;
use super::super::VirtualTable;
use super::super::empty::pg;
use crate::types::SqlType::{self, Int4, Int8, Name, Oid, Text};

const fn query(
    name: &'static str,
    columns: &'static [(&'static str, SqlType)],
    text: &'static str,
) -> VirtualTable {
    VirtualTable {
        schema: "pg_catalog",
        name,
        columns,
        rows: Query(text),
    }
}

/// The columns by which a query on `gv$session_longops` and `pg_database` begins.
macro_rules! of_work {
    ($rest:literal, $condition:literal) => {
        concat!(
            "select w.inst_id * 10000000 + w.sid as pid, d.oid as datid, d.datname, ",
            $rest,
            " from pg_catalog.gv$session_longops w, pg_catalog.pg_database d \
             where d.datname = pg_catalog.current_database() and w.status = 'RUNNING' and ",
            $condition
        )
    };
}

pub const VIEWS: &[VirtualTable] = &[
    query(
        "pg_stat_progress_create_index",
        &[
            ("pid", Int4),
            ("datid", Oid),
            ("datname", Name),
            ("relid", Oid),
            ("index_relid", Oid),
            ("command", Text),
            ("phase", Text),
            ("lockers_total", Int8),
            ("lockers_done", Int8),
            ("current_locker_pid", Int8),
            ("blocks_total", Int8),
            ("blocks_done", Int8),
            ("tuples_total", Int8),
            ("tuples_done", Int8),
            ("partitions_total", Int8),
            ("partitions_done", Int8),
        ],
        of_work!(
            "0::oid as relid, 0::oid as index_relid, \
             case when w.sql_text ~* '^\\s*reindex' then 'REINDEX' else 'CREATE INDEX' end \
             || case when w.sql_text ~* '\\mconcurrently\\M' then ' CONCURRENTLY' else '' end \
             as command, 'building index: loading tuples in tree' as phase, \
             0::bigint as lockers_total, 0::bigint as lockers_done, \
             0::bigint as current_locker_pid, 0::bigint as blocks_total, \
             0::bigint as blocks_done, coalesce(w.totalwork, 0) as tuples_total, \
             w.sofar as tuples_done, 0::bigint as partitions_total, \
             0::bigint as partitions_done",
            "w.opname = 'Index Build'"
        ),
    ),
    query(
        "pg_stat_progress_copy",
        &[
            ("pid", Int4),
            ("datid", Oid),
            ("datname", Name),
            ("relid", Oid),
            ("command", Text),
            ("type", Text),
            ("bytes_processed", Int8),
            ("bytes_total", Int8),
            ("tuples_processed", Int8),
            ("tuples_excluded", Int8),
        ],
        of_work!(
            "w.object_id::oid as relid, 'COPY FROM' as command, 'PIPE' as type, \
             0::bigint as bytes_processed, 0::bigint as bytes_total, \
             w.sofar as tuples_processed, 0::bigint as tuples_excluded",
            "w.opname = 'Copy'"
        ),
    ),
    query(
        "pg_stat_progress_analyze",
        &[
            ("pid", Int4),
            ("datid", Oid),
            ("datname", Name),
            ("relid", Oid),
            ("phase", Text),
            ("sample_blks_total", Int8),
            ("sample_blks_scanned", Int8),
            ("ext_stats_total", Int8),
            ("ext_stats_computed", Int8),
            ("child_tables_total", Int8),
            ("child_tables_done", Int8),
            ("current_child_table_relid", Oid),
        ],
        of_work!(
            "w.object_id::oid as relid, 'acquiring sample rows' as phase, \
             coalesce(w.totalwork, 0) as sample_blks_total, w.sofar as sample_blks_scanned, \
             0::bigint as ext_stats_total, 0::bigint as ext_stats_computed, \
             0::bigint as child_tables_total, 0::bigint as child_tables_done, \
             0::oid as current_child_table_relid",
            "w.opname = 'Table Analysis'"
        ),
    ),
    pg(
        "pg_stat_progress_vacuum",
        &[
            ("pid", Int4),
            ("datid", Oid),
            ("datname", Name),
            ("relid", Oid),
            ("phase", Text),
            ("heap_blks_total", Int8),
            ("heap_blks_scanned", Int8),
            ("heap_blks_vacuumed", Int8),
            ("index_vacuum_count", Int8),
            ("max_dead_tuples", Int8),
            ("num_dead_tuples", Int8),
        ],
    ),
    pg(
        "pg_stat_progress_cluster",
        &[
            ("pid", Int4),
            ("datid", Oid),
            ("datname", Name),
            ("relid", Oid),
            ("command", Text),
            ("phase", Text),
            ("cluster_index_relid", Oid),
            ("heap_tuples_scanned", Int8),
            ("heap_tuples_written", Int8),
            ("heap_blks_total", Int8),
            ("heap_blks_scanned", Int8),
            ("index_rebuild_count", Int8),
        ],
    ),
    pg(
        "pg_stat_progress_basebackup",
        &[
            ("pid", Int4),
            ("phase", Text),
            ("backup_total", Int8),
            ("backup_streamed", Int8),
            ("tablespaces_total", Int8),
            ("tablespaces_streamed", Int8),
        ],
    ),
];
