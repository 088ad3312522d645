//! `pg_stat_database`, `pg_stat_bgwriter`, `pg_stat_wal` and their kin: what is counted of the
//! database as a whole.

use block::value::Datum;

use super::super::Source::{Here, Query};
use super::super::describe::DATABASE;
use super::super::usage::{self, Sums};
use super::super::value::{NULL, int4, int8, oid, text};
use super::super::{Context, Rows, VirtualTable};
use crate::error::Result;
use crate::types::SqlType::{Bool, Float8, Int4, Int8, Name, Numeric, Oid, Text, TimestampTz};
use crate::usage::Group;

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_database",
        columns: &[
            ("datid", Oid),
            ("datname", Name),
            ("numbackends", Int4),
            ("xact_commit", Int8),
            ("xact_rollback", Int8),
            ("blks_read", Int8),
            ("blks_hit", Int8),
            ("tup_returned", Int8),
            ("tup_fetched", Int8),
            ("tup_inserted", Int8),
            ("tup_updated", Int8),
            ("tup_deleted", Int8),
            ("conflicts", Int8),
            ("temp_files", Int8),
            ("temp_bytes", Int8),
            ("deadlocks", Int8),
            ("checksum_failures", Int8),
            ("checksum_last_failure", TimestampTz),
            ("blk_read_time", Float8),
            ("blk_write_time", Float8),
            ("session_time", Float8),
            ("active_time", Float8),
            ("idle_in_transaction_time", Float8),
            ("sessions", Int8),
            ("sessions_abandoned", Int8),
            ("sessions_fatal", Int8),
            ("sessions_killed", Int8),
            ("stats_reset", TimestampTz),
        ],
        rows: Here(database),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_database_conflicts",
        columns: &[
            ("datid", Oid),
            ("datname", Name),
            ("confl_tablespace", Int8),
            ("confl_lock", Int8),
            ("confl_snapshot", Int8),
            ("confl_bufferpin", Int8),
            ("confl_deadlock", Int8),
        ],
        // These are of a standby.
        rows: Here(|cx| {
            let mut row = vec![oid(DATABASE), text(cx.database_name.clone())];
            row.extend([0; 5].map(Datum::Int8));
            Ok(vec![row])
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_bgwriter",
        columns: &[
            ("checkpoints_timed", Int8),
            ("checkpoints_req", Int8),
            ("checkpoint_write_time", Float8),
            ("checkpoint_sync_time", Float8),
            ("buffers_checkpoint", Int8),
            ("buffers_clean", Int8),
            ("maxwritten_clean", Int8),
            ("buffers_backend", Int8),
            ("buffers_backend_fsync", Int8),
            ("buffers_alloc", Int8),
            ("stats_reset", TimestampTz),
        ],
        rows: Here(writer),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_wal",
        columns: &[
            ("wal_records", Int8),
            ("wal_fpi", Int8),
            ("wal_bytes", Numeric),
            ("wal_buffers_full", Int8),
            ("wal_write", Int8),
            ("wal_sync", Int8),
            ("wal_write_time", Float8),
            ("wal_sync_time", Float8),
            ("stats_reset", TimestampTz),
        ],
        rows: Here(redo),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_archiver",
        columns: &[
            ("archived_count", Int8),
            ("last_archived_wal", Text),
            ("last_archived_time", TimestampTz),
            ("failed_count", Int8),
            ("last_failed_wal", Text),
            ("last_failed_time", TimestampTz),
            ("stats_reset", TimestampTz),
        ],
        // There is no archive.
        rows: Here(|cx| {
            let since = Datum::TimestampTz(cx.database.started_micros());
            let nothing = [int8(0), NULL, NULL];
            let row = nothing.iter().chain(&nothing).cloned().chain([since]);
            Ok(vec![row.collect()])
        }),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_gssapi",
        columns: &[
            ("pid", Int4),
            ("gss_authenticated", Bool),
            ("principal", Text),
            ("encrypted", Bool),
        ],
        rows: Query(
            "select pid, false as gss_authenticated, null::text as principal, \
             false as encrypted from pg_catalog.pg_stat_activity \
             where client_port is not null",
        ),
    },
];

fn milliseconds(micros: i64) -> Datum {
    Datum::Float8(micros as f64 / 1000.0)
}

fn database(cx: &Context) -> Result<Rows> {
    let sums = usage::sums(cx, Group::Database)?;
    let count = |name| Datum::Int8(sums.of(name));
    Ok(vec![vec![
        oid(DATABASE),
        text(cx.database_name.clone()),
        int4(sums.backends),
        count("commits"),
        count("rollbacks"),
        count("blocks_read"),
        count("blocks_hit"),
        count("rows_returned"),
        count("rows_fetched"),
        count("rows_inserted"),
        count("rows_updated"),
        count("rows_deleted"),
        int8(0),
        count("temp_files"),
        count("temp_bytes"),
        count("deadlocks"),
        NULL,
        NULL,
        milliseconds(sums.of("read_time")),
        milliseconds(0),
        milliseconds(sums.of("session_time")),
        milliseconds(sums.of("active_time")),
        milliseconds(0),
        count("logons"),
        int8(0),
        int8(0),
        int8(0),
        since(&sums),
    ]])
}

fn since(sums: &Sums) -> Datum {
    Datum::TimestampTz(sums.since)
}

/// Writing moves the checkpoint on all the time: there are no checkpoints to count.
fn writer(cx: &Context) -> Result<Rows> {
    let sums = usage::sums(cx, Group::Writer)?;
    let of_checkpoints = sums.of("checkpoint_blocks");
    let others = sums.of("blocks_written").saturating_sub(of_checkpoints);
    Ok(vec![vec![
        int8(0),
        int8(0),
        milliseconds(0),
        milliseconds(0),
        Datum::Int8(of_checkpoints),
        Datum::Int8(others.max(0)),
        int8(0),
        int8(0),
        int8(0),
        Datum::Int8(sums.of("blocks_allocated")),
        since(&sums),
    ]])
}

fn redo(cx: &Context) -> Result<Rows> {
    let sums = usage::sums(cx, Group::Redo)?;
    let count = |name| Datum::Int8(sums.of(name));
    Ok(vec![vec![
        count("redo_records"),
        int8(0),
        Datum::Numeric(sums.of("redo_bytes").into()),
        count("redo_buffer_full"),
        count("redo_writes"),
        // A write returns when it is durable.
        count("redo_writes"),
        milliseconds(sums.of("redo_write_time")),
        milliseconds(0),
        since(&sums),
    ]])
}
