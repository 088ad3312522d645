//! Views of what Braid does not have: replication, subscriptions, caches of small files, functions
//! that are counted only if `track_functions` says so. They are empty, as PostgreSQL's are where
//! nothing of it is in use.

use super::super::VirtualTable;
use super::super::empty::pg;
use crate::types::SqlType;
use crate::types::SqlType::{
    Bool, Float8, Inet, Int4, Int8, Interval, Name, Oid, PgLsn, Text, TimestampTz, Xid,
};

pub const VIEWS: &[VirtualTable] = &[
    pg(
        "pg_stat_replication",
        &[
            ("pid", Int4),
            ("usesysid", Oid),
            ("usename", Name),
            ("application_name", Text),
            ("client_addr", Inet),
            ("client_hostname", Text),
            ("client_port", Int4),
            ("backend_start", TimestampTz),
            ("backend_xmin", Xid),
            ("state", Text),
            ("sent_lsn", PgLsn),
            ("write_lsn", PgLsn),
            ("flush_lsn", PgLsn),
            ("replay_lsn", PgLsn),
            ("write_lag", Interval),
            ("flush_lag", Interval),
            ("replay_lag", Interval),
            ("sync_priority", Int4),
            ("sync_state", Text),
            ("reply_time", TimestampTz),
        ],
    ),
    pg(
        "pg_stat_wal_receiver",
        &[
            ("pid", Int4),
            ("status", Text),
            ("receive_start_lsn", PgLsn),
            ("receive_start_tli", Int4),
            ("written_lsn", PgLsn),
            ("flushed_lsn", PgLsn),
            ("received_tli", Int4),
            ("last_msg_send_time", TimestampTz),
            ("last_msg_receipt_time", TimestampTz),
            ("latest_end_lsn", PgLsn),
            ("latest_end_time", TimestampTz),
            ("slot_name", Text),
            ("sender_host", Text),
            ("sender_port", Int4),
            ("conninfo", Text),
        ],
    ),
    pg(
        "pg_replication_slots",
        &[
            ("slot_name", Name),
            ("plugin", Name),
            ("slot_type", Text),
            ("datoid", Oid),
            ("database", Name),
            ("temporary", Bool),
            ("active", Bool),
            ("active_pid", Int4),
            ("xmin", Xid),
            ("catalog_xmin", Xid),
            ("restart_lsn", PgLsn),
            ("confirmed_flush_lsn", PgLsn),
            ("wal_status", Text),
            ("safe_wal_size", Int8),
            ("two_phase", Bool),
        ],
    ),
    pg(
        "pg_stat_replication_slots",
        &[
            ("slot_name", Text),
            ("spill_txns", Int8),
            ("spill_count", Int8),
            ("spill_bytes", Int8),
            ("stream_txns", Int8),
            ("stream_count", Int8),
            ("stream_bytes", Int8),
            ("total_txns", Int8),
            ("total_bytes", Int8),
            ("stats_reset", TimestampTz),
        ],
    ),
    pg(
        "pg_replication_origin",
        &[("roident", Oid), ("roname", Text)],
    ),
    pg(
        "pg_replication_origin_status",
        &[
            ("local_id", Oid),
            ("external_id", Text),
            ("remote_lsn", PgLsn),
            ("local_lsn", PgLsn),
        ],
    ),
    pg(
        "pg_stat_subscription",
        &[
            ("subid", Oid),
            ("subname", Name),
            ("pid", Int4),
            ("relid", Oid),
            ("received_lsn", PgLsn),
            ("last_msg_send_time", TimestampTz),
            ("last_msg_receipt_time", TimestampTz),
            ("latest_end_lsn", PgLsn),
            ("latest_end_time", TimestampTz),
        ],
    ),
    pg(
        "pg_stat_subscription_stats",
        &[
            ("subid", Oid),
            ("subname", Name),
            ("apply_error_count", Int8),
            ("sync_error_count", Int8),
            ("stats_reset", TimestampTz),
        ],
    ),
    pg(
        "pg_publication_tables",
        &[
            ("pubname", Name),
            ("schemaname", Name),
            ("tablename", Name),
            ("attnames", SqlType::NAMES),
            ("rowfilter", Text),
        ],
    ),
    pg(
        "pg_stat_slru",
        &[
            ("name", Text),
            ("blks_zeroed", Int8),
            ("blks_hit", Int8),
            ("blks_read", Int8),
            ("blks_written", Int8),
            ("blks_exists", Int8),
            ("flushes", Int8),
            ("truncates", Int8),
            ("stats_reset", TimestampTz),
        ],
    ),
    pg(
        "pg_stat_recovery_prefetch",
        &[
            ("stats_reset", TimestampTz),
            ("prefetch", Int8),
            ("hit", Int8),
            ("skip_init", Int8),
            ("skip_new", Int8),
            ("skip_fpw", Int8),
            ("skip_rep", Int8),
            ("wal_distance", Int4),
            ("block_distance", Int4),
            ("io_depth", Int4),
        ],
    ),
    pg("pg_stat_user_functions", FUNCTIONS),
    pg("pg_stat_xact_user_functions", FUNCTIONS),
    pg(
        "pg_rules",
        &[
            ("schemaname", Name),
            ("tablename", Name),
            ("rulename", Name),
            ("definition", Text),
        ],
    ),
];

const FUNCTIONS: &[(&str, SqlType)] = &[
    ("funcid", Oid),
    ("schemaname", Name),
    ("funcname", Name),
    ("calls", Int8),
    ("total_time", Float8),
    ("self_time", Float8),
];
