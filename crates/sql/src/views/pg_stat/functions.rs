//! Functions over the statistics: `pg_stat_reset` and its kin, and those of `pg_stat_get_...` that
//! ask about one relation.

use std::collections::HashMap;
use std::sync::Arc;

use block::value::Datum;
use wait::segment::SegmentStat::{
    LogicalReads, RowsDeleted, RowsFetched, RowsInserted, RowsRead, RowsUpdated, Scans,
};

use super::super::Context;
use super::super::functions::{Function, lax, oid, strict, string};
use super::super::usage::{self, Object};
use super::super::value::int8;
use super::tables::live_rows;
use crate::error::{Error, Result};
use crate::types::SqlType::{Int8, TimestampTz, Void};
use crate::usage::{Group, Reset};

/// A function that gives a count of the relation that its argument names.
macro_rules! count {
    ($name:literal, $of:ident => $value:expr) => {
        strict($name, (1, 1), Int8, |cx, a| {
            let $of = cx.usage_of(oid(&a[0]))?;
            Ok(Datum::Int8($value))
        })
    };
}

/// A function that gives what is known of the analyses of a table.
macro_rules! analyses {
    ($name:literal, $type:ident, $s:ident => $value:expr) => {
        strict($name, (1, 1), $type, |cx, a| {
            Ok(match cx.dict.stats(oid(&a[0])) {
                Some($s) => $value,
                None => never(&$type),
            })
        })
    };
}

fn never(ty: &crate::types::SqlType) -> Datum {
    match ty {
        Int8 => Datum::Int8(0),
        _ => Datum::Null,
    }
}

pub const ALL: &[Function] = &[
    strict("pg_stat_reset", (0, 0), Void, |cx, _| {
        reset(cx, "pg_stat_reset", &Reset::Group(Group::Database))
    }),
    strict("pg_stat_reset_shared", (1, 1), Void, reset_shared),
    strict(
        "pg_stat_reset_single_table_counters",
        (1, 1),
        Void,
        |cx, a| {
            let reset_of = Reset::Objects(objects_of(cx, oid(&a[0])));
            reset(cx, "pg_stat_reset_single_table_counters", &reset_of)
        },
    ),
    // What a session has counted is seen by all at once.
    lax("pg_stat_clear_snapshot", (0, 0), Void, |_, _| Ok(nothing())),
    lax("pg_stat_force_next_flush", (0, 0), Void, |_, _| {
        Ok(nothing())
    }),
    lax(
        "pg_stat_get_snapshot_timestamp",
        (0, 0),
        TimestampTz,
        |_, _| Ok(Datum::Null),
    ),
    count!("pg_stat_get_numscans", c => c.of(Scans)),
    count!("pg_stat_get_tuples_returned", c => c.of(RowsRead)),
    count!("pg_stat_get_tuples_fetched", c => c.of(RowsFetched)),
    count!("pg_stat_get_tuples_inserted", c => c.of(RowsInserted)),
    count!("pg_stat_get_tuples_updated", c => c.of(RowsUpdated)),
    count!("pg_stat_get_tuples_deleted", c => c.of(RowsDeleted)),
    count!("pg_stat_get_tuples_hot_updated", _c => 0),
    strict("pg_stat_get_live_tuples", (1, 1), Int8, |cx, a| {
        let number = oid(&a[0]);
        let counted = cx.usage_of(number)?;
        let table = cx.dict.table_by_oid(number);
        Ok(Datum::Int8(table.map_or(0, |t| live_rows(cx, t, &counted))))
    }),
    count!("pg_stat_get_dead_tuples", _c => 0),
    count!("pg_stat_get_mod_since_analyze", c => c.rows_changed()),
    count!("pg_stat_get_ins_since_vacuum", c => c.of(RowsInserted)),
    count!("pg_stat_get_blocks_fetched", c => c.of(LogicalReads)),
    count!("pg_stat_get_blocks_hit", c => c.hits()),
    strict(
        "pg_stat_get_last_vacuum_time",
        (1, 1),
        TimestampTz,
        |_, _| Ok(Datum::Null),
    ),
    strict(
        "pg_stat_get_last_autovacuum_time",
        (1, 1),
        TimestampTz,
        |_, _| Ok(Datum::Null),
    ),
    count!("pg_stat_get_vacuum_count", _c => 0),
    count!("pg_stat_get_autovacuum_count", _c => 0),
    analyses!("pg_stat_get_last_analyze_time", TimestampTz, s => s.by_command.when()),
    analyses!("pg_stat_get_last_autoanalyze_time", TimestampTz, s => s.by_itself.when()),
    analyses!("pg_stat_get_analyze_count", Int8, s => int8(s.by_command.count)),
    analyses!("pg_stat_get_autoanalyze_count", Int8, s => int8(s.by_itself.count)),
];

/// What a function without a result gives.
fn nothing() -> Datum {
    Datum::Text(String::new())
}

/// Resets on all instances, for a superuser.
fn reset(cx: &Context, function: &str, what: &Reset) -> Result<Datum> {
    if !cx.authority.superuser {
        let message = format!("permission denied for function {function}");
        return Err(Error::new("42501", message));
    }
    for silent in what.everywhere(&cx.database)? {
        cx.warn(silent);
    }
    cx.forget_usage();
    Ok(nothing())
}

fn reset_shared(cx: &Context, a: &[Datum]) -> Result<Datum> {
    let group = match string(&a[0]) {
        "bgwriter" => Some(Group::Writer),
        "wal" => Some(Group::Redo),
        // Nothing is counted of these.
        "archiver" | "recovery_prefetch" => None,
        other => {
            let message = format!("unrecognized reset target: \"{other}\"");
            let hint =
                "Target must be \"archiver\", \"bgwriter\", \"recovery_prefetch\", or \"wal\".";
            return Err(Error::new("22023", message).hint(hint));
        }
    };
    let what = group.map_or(Reset::Objects(Vec::new()), Reset::Group);
    reset(cx, "pg_stat_reset_shared", &what)
}

/// The object of a relation, as it is counted for.
fn objects_of(cx: &Context, relation: u32) -> Vec<u32> {
    if let Some(t) = cx.dict.table_by_oid(relation) {
        return vec![t.segment];
    }
    if let Some(s) = cx.dict.sequence_by_oid(relation) {
        return vec![s.engine().object.0];
    }
    let table = cx.dict.table_of_part(relation);
    let index = table.and_then(|t| t.indexes.iter().find(|i| i.oid == relation));
    index.map(|i| i.segment).into_iter().collect()
}

impl Context {
    /// What all instances have counted of a relation. They are asked once for a statement.
    fn usage_of(&self, relation: u32) -> Result<Object> {
        let known = self.usage.lock().clone();
        let all: Arc<HashMap<u32, Object>> = match known {
            Some(all) => all,
            None => {
                let all = Arc::new(usage::objects(self)?);
                self.usage.lock().insert(all).clone()
            }
        };
        Ok(all.get(&relation).cloned().unwrap_or_default())
    }

    fn forget_usage(&self) {
        *self.usage.lock() = None;
    }
}
