//! Statements with what they took: `v$sql` and its kin, and `pg_stat_statements`, fed from one
//! store.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::value::Datum;
use wait::{Class, Stat};

use super::Source::Here;
use super::value::{NULL, int4, int8, oid, optional, text};
use super::{Context, Rows, VirtualTable, describe};
use crate::error::{Error, Result};
use crate::explain::PlanStep;
use crate::statements::{ActualStep, Entry, Totals, normalized, signature};
use crate::types::SqlType::{self, Bool, Float8, Int4, Int8, Numeric, Oid, Text, TimestampTz};

/// Columns of what was counted, which three views share.
macro_rules! counted {
    ($($first:expr),*) => {
        &[
            $($first,)*
            ("executions", Int8),
            ("failures", Int8),
            ("fetches", Int8),
            ("parse_calls", Int8),
            ("loads", Int8),
            ("rows_processed", Int8),
            ("elapsed_time", Int8),
            ("cpu_time", Int8),
            ("runnable_time", Int8),
            ("application_wait_time", Int8),
            ("concurrency_wait_time", Int8),
            ("cluster_wait_time", Int8),
            ("user_io_wait_time", Int8),
            ("commit_wait_time", Int8),
            ("network_wait_time", Int8),
            ("other_wait_time", Int8),
            ("buffer_gets", Int8),
            ("disk_reads", Int8),
            ("db_block_changes", Int8),
            ("redo_size", Int8),
            ("gc_blocks_received", Int8),
            ("min_elapsed_time", Int8),
            ("max_elapsed_time", Int8),
            ("first_load_time", TimestampTz),
            ("last_active_time", TimestampTz),
        ]
    };
}

pub const VIEWS: &[VirtualTable] = &[
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sql",
        columns: counted!(
            ("sql_text", Text),
            ("plan", Text),
            ("sql_id", Text),
            ("plan_hash_value", Int8),
            ("force_matching_signature", Int8),
            ("command_type", Int4),
            ("parsing_user_id", Oid),
            ("parsing_schema_name", Text)
        ),
        rows: Here(each),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sqlarea",
        columns: counted!(
            ("sql_text", Text),
            ("sql_id", Text),
            ("version_count", Int8)
        ),
        rows: Here(by_text),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sqlstats",
        columns: counted!(
            ("sql_text", Text),
            ("sql_id", Text),
            ("plan_hash_value", Int8)
        ),
        rows: Here(by_plan),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sql_plan",
        columns: &[
            ("sql_id", Text),
            ("plan_hash_value", Int8),
            ("id", Int4),
            ("depth", Int4),
            ("operation", Text),
            ("last_starts", Int8),
            ("last_output_rows", Int8),
            ("last_buffer_gets", Int8),
            ("last_disk_reads", Int8),
            ("last_measured", TimestampTz),
            ("parent_id", Int4),
            ("node_type", Text),
            ("object_name", Text),
            ("index_name", Text),
            ("cardinality", Int8),
        ],
        rows: Here(plans),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sql_plan_statistics_all",
        columns: &[
            ("sql_id", Text),
            ("plan_hash_value", Int8),
            ("id", Int4),
            ("depth", Int4),
            ("operation", Text),
            ("parent_id", Int4),
            ("node_type", Text),
            ("object_name", Text),
            ("index_name", Text),
            ("cardinality", Int8),
            ("executions", Int8),
            ("starts", Int8),
            ("output_rows", Int8),
            ("buffer_gets", Int8),
            ("disk_reads", Int8),
            ("last_starts", Int8),
            ("last_output_rows", Int8),
            ("last_buffer_gets", Int8),
            ("last_disk_reads", Int8),
            ("last_measured", TimestampTz),
        ],
        rows: Here(plan_statistics),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "v$sqlstats_plan_hash",
        columns: counted!(
            ("sql_text", Text),
            ("sql_id", Text),
            ("plan_hash_value", Int8)
        ),
        rows: Here(by_plan),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_statements",
        columns: PG_STAT_STATEMENTS,
        rows: Here(pg_stat_statements),
    },
    VirtualTable {
        schema: "pg_catalog",
        name: "pg_stat_statements_info",
        columns: &[("dealloc", Int8), ("stats_reset", TimestampTz)],
        rows: Here(pg_stat_statements_info),
    },
];

/// The columns of version 1.10.
const PG_STAT_STATEMENTS: &[(&str, SqlType)] = &[
    ("userid", Oid),
    ("dbid", Oid),
    ("toplevel", Bool),
    ("queryid", Int8),
    ("query", Text),
    ("plans", Int8),
    ("total_plan_time", Float8),
    ("min_plan_time", Float8),
    ("max_plan_time", Float8),
    ("mean_plan_time", Float8),
    ("stddev_plan_time", Float8),
    ("calls", Int8),
    ("total_exec_time", Float8),
    ("min_exec_time", Float8),
    ("max_exec_time", Float8),
    ("mean_exec_time", Float8),
    ("stddev_exec_time", Float8),
    ("rows", Int8),
    ("shared_blks_hit", Int8),
    ("shared_blks_read", Int8),
    ("shared_blks_dirtied", Int8),
    ("shared_blks_written", Int8),
    ("local_blks_hit", Int8),
    ("local_blks_read", Int8),
    ("local_blks_dirtied", Int8),
    ("local_blks_written", Int8),
    ("temp_blks_read", Int8),
    ("temp_blks_written", Int8),
    ("blk_read_time", Float8),
    ("blk_write_time", Float8),
    ("temp_blk_read_time", Float8),
    ("temp_blk_write_time", Float8),
    ("wal_records", Int8),
    ("wal_fpi", Int8),
    ("wal_bytes", Numeric),
    ("jit_functions", Int8),
    ("jit_generation_time", Float8),
    ("jit_inlining_count", Int8),
    ("jit_inlining_time", Float8),
    ("jit_optimization_count", Int8),
    ("jit_optimization_time", Float8),
    ("jit_emission_count", Int8),
    ("jit_emission_time", Float8),
];

/// Entries that a view shows as one.
struct Sum {
    first: Arc<Entry>,
    totals: Totals,
    entries: u64,
    first_load: i64,
    last_active: i64,
}

/// The entries by key, those of one key added up.
fn sums<K: Ord>(cx: &Context, key: impl Fn(&Entry) -> K) -> BTreeMap<K, Sum> {
    let mut sums: BTreeMap<K, Sum> = BTreeMap::new();
    for entry in cx.database.statements.all() {
        let sum = sums.entry(key(&entry)).or_insert_with(|| Sum {
            first: entry.clone(),
            totals: Totals::default(),
            entries: 0,
            first_load: entry.first_load,
            last_active: entry.last_active(),
        });
        sum.totals.add(&entry.totals());
        sum.entries += 1;
        sum.first_load = sum.first_load.min(entry.first_load);
        sum.last_active = sum.last_active.max(entry.last_active());
    }
    sums
}

/// The columns of [`counted`].
fn counted(sum: &Sum) -> impl Iterator<Item = Datum> {
    let t = &sum.totals;
    let us = |ns: u64| int8(ns / 1000);
    let waited = |class| us(t.spent.waited_ns(class));
    let rest = [
        Class::SystemIo,
        Class::Configuration,
        Class::Scheduler,
        Class::Other,
    ];
    let received =
        t.spent.stat(Stat::GcCrBlocksReceived) + t.spent.stat(Stat::GcCurrentBlocksReceived);
    [
        int8(t.executions),
        int8(t.failures),
        int8(t.fetches),
        int8(t.parses),
        int8(t.hard_parses),
        int8(t.rows),
        us(t.spent.elapsed_ns),
        us(t.spent.cpu_ns),
        us(t.spent.runnable_ns),
        waited(Class::Application),
        waited(Class::Concurrency),
        waited(Class::Cluster),
        waited(Class::UserIo),
        waited(Class::Commit),
        waited(Class::Network),
        us(rest.iter().map(|c| t.spent.waited_ns(*c)).sum()),
        int8(t.spent.gets()),
        int8(t.spent.stat(Stat::PhysicalReads)),
        int8(t.spent.stat(Stat::DbBlockChanges)),
        int8(t.spent.stat(Stat::RedoSize)),
        int8(received),
        us(t.min_ns),
        us(t.max_ns),
        Datum::TimestampTz(sum.first_load),
        Datum::TimestampTz(sum.last_active),
    ]
    .into_iter()
}

fn each(cx: &Context) -> Result<Rows> {
    let key = |e: &Entry| (e.key.sql_id.to_string(), e.key.plan_hash, e.key.role);
    let row = |sum: Sum| {
        let e = &sum.first;
        let role = e.key.role;
        let mut row = vec![
            cx.shown_statement(role, Some(&e.text)),
            text(e.kind),
            text(e.key.sql_id.to_string()),
            int8(e.key.plan_hash),
            Datum::Int8(signature(&normalized(&e.text))),
            int4(e.command),
            oid(role),
            text(cx.role_name(role)),
        ];
        row.extend(counted(&sum));
        row
    };
    Ok(sums(cx, key).into_values().map(row).collect())
}

/// The text of a sum, for those who may see that of each entry.
fn shown(cx: &Context, sum: &Sum) -> Datum {
    cx.shown_statement(sum.first.key.role, Some(&sum.first.text))
}

fn by_text(cx: &Context) -> Result<Rows> {
    // Of several roles one may be shown it and another not.
    let key = |e: &Entry| {
        (
            e.key.sql_id.to_string(),
            !cx.authority.has_rights_of(&cx.dict, e.key.role),
        )
    };
    let row = |sum: Sum| {
        let id = sum.first.key.sql_id.to_string();
        let mut row = vec![shown(cx, &sum), text(id), int8(sum.entries)];
        row.extend(counted(&sum));
        row
    };
    Ok(sums(cx, key).into_values().map(row).collect())
}

fn by_plan(cx: &Context) -> Result<Rows> {
    let key = |e: &Entry| {
        let is_hidden = !cx.authority.has_rights_of(&cx.dict, e.key.role);
        (e.key.sql_id.to_string(), e.key.plan_hash, is_hidden)
    };
    let row = |sum: Sum| {
        let k = sum.first.key;
        let id = text(k.sql_id.to_string());
        let mut row = vec![shown(cx, &sum), id, int8(k.plan_hash)];
        row.extend(counted(&sum));
        row
    };
    Ok(sums(cx, key).into_values().map(row).collect())
}

/// The plans that may be shown, by statement and number.
fn shown_plans(cx: &Context) -> impl Iterator<Item = ((String, u32), Sum)> {
    let key = |e: &Entry| (e.key.sql_id.to_string(), e.key.plan_hash);
    let shown = |(_, sum): &(_, Sum)| cx.authority.has_rights_of(&cx.dict, sum.first.key.role);
    sums(cx, key).into_iter().filter(shown)
}

/// What a step gave in one execution, or in several.
fn gave(step: Option<&ActualStep>) -> [Datum; 4] {
    step.map_or([NULL; 4], |s| {
        [int8(s.starts), int8(s.rows), int8(s.gets), int8(s.reads)]
    })
}

/// What is known of a step without running it: the operation by itself, the step above, the table
/// and index, the rows expected.
fn expected(step: Option<&PlanStep>) -> [Datum; 5] {
    step.map_or([NULL; 5], |s| {
        [
            s.parent.map_or(NULL, int4),
            text(s.operation),
            optional(s.object.clone()),
            optional(s.index.clone()),
            s.rows.map_or(NULL, |rows| Datum::Int8(rows.round() as i64)),
        ]
    })
}

/// The lines of plans. Lines that are no steps say more of the step above them.
fn plans(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for ((sql_id, hash), sum) in shown_plans(cx) {
        let plan = sum.first.plan();
        let measured = sum.first.measured();
        for (at, line) in plan.lines.lines().enumerate() {
            let step = line.trim_start();
            let mut row = vec![
                text(sql_id.clone()),
                int8(hash),
                int4(at),
                int4((line.len() - step.len()) / 2),
                text(step),
            ];
            let number = plan.steps.iter().position(|s| s.line as usize == at);
            let last = measured.as_ref().zip(number);
            let last = last.and_then(|(m, n)| Some((m.last.at, m.last.steps.get(n)?)));
            row.extend(gave(last.map(|(_, step)| step)));
            row.push(last.map_or(NULL, |(at, _)| Datum::TimestampTz(at)));
            row.extend(expected(number.map(|n| &plan.steps[n])));
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The steps of plans, with what was expected of them and what they gave.
fn plan_statistics(cx: &Context) -> Result<Rows> {
    let mut rows = Rows::new();
    for ((sql_id, hash), sum) in shown_plans(cx) {
        let plan = sum.first.plan();
        let measured = sum.first.measured();
        for (number, step) in plan.steps.iter().enumerate() {
            let of = |steps: &Vec<ActualStep>| steps.get(number).copied();
            let last = measured.as_ref().and_then(|m| of(&m.last.steps));
            let all = measured.as_ref().and_then(|m| of(&m.sums));
            let mut row = vec![
                text(sql_id.clone()),
                int8(hash),
                int4(step.line),
                int4(step.depth),
                text(step.label.clone()),
            ];
            row.extend(expected(Some(step)));
            row.push(measured.as_ref().map_or(NULL, |m| int8(m.executions)));
            row.extend(gave(all.as_ref()));
            row.extend(gave(last.as_ref()));
            row.push(
                measured
                    .as_ref()
                    .map_or(NULL, |m| Datum::TimestampTz(m.last.at)),
            );
            rows.push(row);
        }
    }
    Ok(rows)
}

fn pg_stat_statements(cx: &Context) -> Result<Rows> {
    let plain = |e: &Entry| match e.kind {
        // PostgreSQL leaves the literals of these alone.
        "utility" | "definition" => e.text.to_string(),
        _ => normalized(&e.text),
    };
    let row = |((role, query), sum): ((u32, String), Sum)| {
        let t = &sum.totals;
        let calls = t.executions.max(1) as f64;
        let ms = |ns: u64| Datum::Float8(ns as f64 / 1e6);
        let total = t.spent.elapsed_ns as f64 / 1e6;
        let mean = total / calls;
        let variance = (t.sum_of_squares / calls - mean * mean).max(0.0);
        let none = || Datum::Float8(0.0);
        let redo = i64::try_from(t.spent.stat(Stat::RedoSize)).unwrap_or(i64::MAX);
        let reads = t.spent.stat(Stat::PhysicalReads);
        let id = match cx.authority.has_rights_of(&cx.dict, role) {
            true => Datum::Int8(signature(&query)),
            false => NULL,
        };
        let mut row = vec![
            oid(role),
            oid(describe::DATABASE),
            Datum::Bool(true),
            id,
            cx.shown_statement(role, Some(&query)),
            int8(0),
        ];
        row.extend(std::iter::repeat_with(none).take(5));
        row.extend([
            int8(t.executions),
            Datum::Float8(total),
            ms(t.min_ns),
            ms(t.max_ns),
            Datum::Float8(mean),
            Datum::Float8(variance.sqrt()),
            int8(t.rows),
            int8(t.spent.gets().saturating_sub(reads)),
            int8(reads),
            int8(t.spent.stat(Stat::DbBlockChanges)),
        ]);
        // Blocks written by statements, and of temporary tables: sessions write none.
        row.extend((0..7).map(|_| int8(0)));
        row.push(ms(t.spent.waited_ns(Class::UserIo)));
        row.extend(std::iter::repeat_with(none).take(3));
        row.extend([int8(t.spent.stat(Stat::RedoEntries)), int8(0)]);
        row.push(Datum::Numeric(redo.into()));
        row.push(int8(0));
        row.push(none());
        for _ in 0..3 {
            row.extend([int8(0), none()]);
        }
        row
    };
    let key = |e: &Entry| (e.key.role, plain(e));
    // PostgreSQL shows no statement that has not run yet.
    let ran = |(_, sum): &(_, Sum)| sum.totals.fetches > 0;
    Ok(sums(cx, key).into_iter().filter(ran).map(row).collect())
}

fn pg_stat_statements_info(cx: &Context) -> Result<Rows> {
    let statements = &cx.database.statements;
    Ok(vec![vec![
        int8(statements.evicted()),
        Datum::TimestampTz(statements.since()),
    ]])
}

/// `pg_stat_statements_reset()`: the statistics of this instance begin anew.
pub fn reset(cx: &Context, _: &[Datum]) -> Result<Datum> {
    if !cx.authority.superuser {
        let message = "permission denied for function pg_stat_statements_reset";
        return Err(Error::new("42501", message));
    }
    cx.database.statements.reset();
    Ok(Datum::Text(String::new()))
}
