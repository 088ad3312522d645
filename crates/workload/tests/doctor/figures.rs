//! Figures of two instances as snapshots have them, for tests to plant causes in.

use std::collections::BTreeMap;

use workload::doctor::{Cause, Finding, findings};
use workload::{FORMAT, Snapshot, Span, Table};

/// What a plan of a statement took.
pub struct Plan {
    pub sql_id: &'static str,
    pub hash: &'static str,
    /// Executions and seconds before the span.
    pub before: [f64; 2],
    /// Executions and seconds within it.
    pub within: [f64; 2],
    /// The second when it was made. The span begins at second 1000.
    pub made: f64,
}

/// Counters of two instances over 100 seconds, in which two sessions were at work on average.
pub struct Load {
    /// By instance and name.
    pub times: BTreeMap<(&'static str, &'static str), f64>,
    pub stats: BTreeMap<&'static str, f64>,
    /// By instance and event: class, waits, seconds.
    pub events: BTreeMap<(&'static str, &'static str), (&'static str, f64, f64)>,
    /// Asking and serving instance, event, part: waits, seconds.
    pub remote: Vec<(
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        f64,
        f64,
    )>,
    /// Object, kind, current blocks, seconds.
    pub transfers: Vec<(&'static str, &'static str, f64, f64)>,
    /// Instance, number, status, event, seconds in wait, blocking instance and session.
    pub sessions: Vec<[&'static str; 7]>,
    /// Id, text, and executions, gets, rows, seconds.
    pub statements: Vec<(&'static str, &'static str, f64, f64, f64, f64)>,
    /// Further plans of statements.
    pub plans: Vec<Plan>,
    /// Statements' fetches, by id.
    pub fetches: BTreeMap<&'static str, f64>,
    /// By instance, what `v$osstat` says at the end.
    pub machine: BTreeMap<(&'static str, &'static str), f64>,
    /// By instance and thread: seconds on a processor, and runnable without one.
    pub threads: Vec<(&'static str, &'static str, f64, f64)>,
    /// Those that are runnable when the span ends: instance and name.
    pub runnable: Vec<(&'static str, &'static str)>,
    /// Waits under way when the span ends: who waits, for whom, seconds.
    pub under_way: Vec<(&'static str, &'static str, f64)>,
    /// Instance, service, sessions.
    pub services: Vec<[&'static str; 3]>,
    /// How long ago the transaction of each of `sessions` began.
    pub transaction_seconds: &'static str,
}

const INSTANCES: [&str; 2] = ["1", "2"];

pub fn healthy() -> Load {
    let mut load = Load {
        times: BTreeMap::new(),
        stats: BTreeMap::new(),
        events: BTreeMap::new(),
        remote: vec![
            ("1", "2", "gc current block 2-way", "total", 10_000.0, 4.0),
            ("1", "2", "gc current block 2-way", "log flush", 500.0, 1.0),
        ],
        transfers: vec![("a", "r", 5000.0, 2.0), ("b", "r", 5000.0, 2.0)],
        sessions: Vec::new(),
        statements: vec![(
            "id1",
            "select b from t where a = $1",
            90_000.0,
            400_000.0,
            90_000.0,
            60.0,
        )],
        fetches: BTreeMap::new(),
        machine: BTreeMap::new(),
        threads: vec![("1", "lms0", 4.0, 0.5), ("2", "lms0", 4.0, 0.5)],
        runnable: Vec::new(),
        under_way: Vec::new(),
        services: vec![["1", "braid", "8"], ["2", "braid", "8"]],
        plans: Vec::new(),
        transaction_seconds: "",
    };
    for k in INSTANCES {
        for (name, value) in [
            ("IDLE_TIME", 5000.0),
            ("BUSY_TIME", 15_000.0),
            ("IOWAIT_TIME", 0.0),
            ("USER_TIME_CPU0", 100.0),
            ("IDLE_TIME_CPU0", 300.0),
            ("TCP_SEND_SIZE_MAX", (4 << 20) as f64),
        ] {
            load.machine.insert((k, name), value);
        }
        for (name, seconds) in [
            ("DB time", 100.0),
            ("DB CPU", 60.0),
            ("run queue time", 5.0),
            ("parse time elapsed", 2.0),
            ("hard parse elapsed time", 1.0),
            ("sql execute elapsed time", 95.0),
            ("unaccounted time", 0.5),
        ] {
            load.times.insert((k, name), seconds);
        }
        for (event, of) in [
            ("log file sync", ("Commit", 20_000.0, 25.0)),
            ("log file parallel write", ("System I/O", 15_000.0, 18.0)),
            ("db file sequential read", ("User I/O", 1000.0, 1.0)),
            ("SQL*Net message from client", ("Idle", 100_000.0, 900.0)),
        ] {
            load.events.insert((k, event), of);
        }
    }
    for (name, value) in [
        ("user commits", 40_000.0),
        ("execute count", 200_000.0),
        ("consistent gets", 800_000.0),
        ("db block gets", 200_000.0),
        ("physical reads", 2000.0),
        ("logons cumulative", 10.0),
        ("parse count (hard)", 100.0),
        ("sequence draws", 10_000.0),
        ("sequence marks written", 20.0),
        ("sequence values asked of other instances", 10.0),
        ("leaf node splits", 0.0),
    ] {
        load.stats.insert(name, value);
    }
    load
}

fn micros(seconds: f64) -> String {
    format!("{:.0}", seconds * 1e6)
}

fn table(name: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
    let rows: Vec<Vec<&str>> = rows
        .iter()
        .map(|r| r.iter().map(String::as_str).collect())
        .collect();
    let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
    Table::new(name, columns, &rows)
}

impl Load {
    /// The end of the span; `share` 0 gives its begin.
    fn snapshot(&self, id: i64, share: f64) -> Snapshot {
        let s = |text: &str| text.to_string();
        let n = |value: f64| (value * share).to_string();
        let mut tables = vec![
            table(
                "instance",
                &[
                    "inst_id",
                    "status",
                    "startup_time",
                    "uptime_micro",
                    "host_seconds",
                ],
                INSTANCES
                    .map(|k| {
                        let seconds = 1000.0 + 100.0 * share;
                        let (up, clock) = (micros(seconds), seconds.to_string());
                        vec![s(k), s("OPEN"), s("then"), up, clock]
                    })
                    .into(),
            ),
            table(
                "time_model",
                &["inst_id", "stat_name", "value"],
                self.times
                    .iter()
                    .map(|((k, name), v)| vec![s(k), s(name), micros(v * share)])
                    .collect(),
            ),
            table(
                "sysstat",
                &["inst_id", "name", "value"],
                self.stats
                    .iter()
                    .map(|(name, v)| vec![s("1"), s(name), n(*v)])
                    .collect(),
            ),
            table(
                "system_event",
                &[
                    "inst_id",
                    "event",
                    "wait_class",
                    "total_waits",
                    "time_waited_micro",
                    "total_waits_fg",
                    "time_waited_micro_fg",
                ],
                (self.events.iter())
                    .map(|((k, e), (c, w, t))| {
                        let users = if *c == "System I/O" { 0.0 } else { 1.0 };
                        let time = |of: f64| micros(t * of * share);
                        vec![
                            s(k),
                            s(e),
                            s(c),
                            n(*w),
                            time(1.0),
                            n(w * users),
                            time(users),
                        ]
                    })
                    .collect(),
            ),
            table(
                "gc_latency",
                &[
                    "inst_id",
                    "instance",
                    "event",
                    "part",
                    "waits",
                    "time_waited_micro",
                ],
                (self.remote.iter())
                    .map(|(a, b, e, p, w, t)| {
                        vec![s(a), s(b), s(e), s(p), n(*w), micros(t * share)]
                    })
                    .collect(),
            ),
            table(
                "gc_transfers",
                &[
                    "inst_id",
                    "object_name",
                    "relkind",
                    "current_blocks",
                    "cr_blocks",
                    "busy",
                    "time_micro",
                    "flush_micro",
                ],
                (self.transfers.iter())
                    .map(|(o, k, c, t)| {
                        vec![
                            s("1"),
                            s(o),
                            s(k),
                            n(*c),
                            s("0"),
                            s("0"),
                            micros(t * share),
                            s("0"),
                        ]
                    })
                    .collect(),
            ),
        ];
        let statement = |(id, _, executions, gets, rows, seconds): &(_, _, f64, f64, f64, f64)| {
            let id: &&str = id;
            let mut row = vec![
                s("1"),
                s(id),
                s("1"),
                n(*executions),
                n(*rows),
                micros(seconds * share),
            ];
            row.extend(std::iter::repeat_n(s("0"), 7));
            let fetches = self.fetches.get(id).copied().unwrap_or(*executions);
            row.extend([n(*gets), s("0"), s("0"), n(fetches), s("10")]);
            row
        };
        let plan = |plan: &Plan| {
            let now = |at: usize| plan.before[at] + plan.within[at] * share;
            let count = |value: f64| format!("{value:.0}");
            let mut row = vec![
                s("1"),
                s(plan.sql_id),
                s(plan.hash),
                count(now(0)),
                s("0"),
                count(now(1) * 1e6),
            ];
            row.extend(std::iter::repeat_n(s("0"), 11));
            row.push(plan.made.to_string());
            row
        };
        tables.extend([
            table(
                "sqlstats",
                &[
                    "inst_id",
                    "sql_id",
                    "plan_hash_value",
                    "executions",
                    "rows_processed",
                    "elapsed_time",
                    "cpu_time",
                    "runnable_time",
                    "application_wait_time",
                    "concurrency_wait_time",
                    "cluster_wait_time",
                    "user_io_wait_time",
                    "commit_wait_time",
                    "buffer_gets",
                    "disk_reads",
                    "loads",
                    "fetches",
                    "first_load",
                ],
                (self.statements.iter().map(statement))
                    .chain(self.plans.iter().map(plan))
                    .collect(),
            ),
            table(
                "sqltext",
                &["sql_id", "sql_text"],
                self.statements
                    .iter()
                    .map(|(id, text, ..)| vec![s(id), s(text)])
                    .collect(),
            ),
            table(
                "row_sources",
                &[
                    "inst_id",
                    "sql_id",
                    "sql_plan_hash_value",
                    "sql_plan_line_id",
                    "sql_plan_operation",
                    "event",
                    "seconds",
                ],
                vec![
                    ["1", "s1", "77", "2", "Seq Scan on t", "", "30"]
                        .map(s)
                        .into(),
                    [
                        "2",
                        "s1",
                        "77",
                        "2",
                        "Seq Scan on t",
                        "db file sequential read",
                        "60",
                    ]
                    .map(s)
                    .into(),
                    ["1", "s1", "77", "", "", "log file sync", "10"]
                        .map(s)
                        .into(),
                ],
            ),
            table(
                "session",
                &[
                    "inst_id",
                    "sid",
                    "status",
                    "event",
                    "seconds_in_wait",
                    "blocking_instance",
                    "blocking_session",
                    "program",
                    "sql_text",
                    "transaction_seconds",
                ],
                (self.sessions.iter())
                    .map(|r| {
                        r.iter()
                            .map(|c| s(c))
                            .chain([s("app"), s("update t"), s(self.transaction_seconds)])
                            .collect()
                    })
                    .collect(),
            ),
            table(
                "osstat",
                &["inst_id", "stat_name", "value"],
                (self.machine.iter())
                    .map(|((k, name), value)| match name.ends_with("_MAX") {
                        true => vec![s(k), s(name), value.to_string()],
                        false => vec![s(k), s(name), n(*value)],
                    })
                    .collect(),
            ),
            table(
                "process",
                &[
                    "inst_id",
                    "pname",
                    "cpu_used_micro",
                    "runnable_micro",
                    "runnable",
                ],
                (self.threads.iter())
                    .map(|(k, name, cpu, runnable)| {
                        let of = |seconds: &f64| micros(seconds * share);
                        let is_one = self.runnable.contains(&(*k, *name));
                        vec![
                            s(k),
                            s(name),
                            of(cpu),
                            of(runnable),
                            n(f64::from(u8::from(is_one))),
                        ]
                    })
                    .collect(),
            ),
            table(
                "remote_wait",
                &[
                    "inst_id",
                    "remote_instance",
                    "event",
                    "sessions",
                    "time_waited_micro",
                ],
                (self.under_way.iter())
                    .map(|(waits, serves, seconds)| {
                        let event = s("gc current request");
                        vec![s(waits), s(serves), event, s("1"), micros(*seconds)]
                    })
                    .collect(),
            ),
            table(
                "service",
                &["inst_id", "service_name", "sessions"],
                (self.services.iter()).map(|r| r.map(s).to_vec()).collect(),
            ),
            table(
                "event_histogram",
                &[
                    "inst_id",
                    "event",
                    "wait_class",
                    "wait_time_below_micro",
                    "wait_count",
                ],
                vec![vec![
                    s("1"),
                    s("log file sync"),
                    s("Commit"),
                    s("2048"),
                    n(7.0),
                ]],
            ),
            table(
                "latch",
                &[
                    "inst_id",
                    "name",
                    "gets",
                    "misses",
                    "sleeps",
                    "wait_time_micro",
                ],
                Vec::new(),
            ),
            table(
                "latch_children",
                &[
                    "inst_id",
                    "name",
                    "child",
                    "misses",
                    "sleeps",
                    "wait_time_micro",
                ],
                vec![vec![
                    s("1"),
                    s("redo allocation"),
                    s("2"),
                    n(30.0),
                    n(7.0),
                    n(4000.0),
                ]],
            ),
            table(
                "latch_misses",
                &["inst_id", "parent_name", "location", "sleep_count"],
                vec![vec![s("1"), s("redo allocation"), s("log.rs:7"), n(7.0)]],
            ),
            table(
                "cache_advice",
                &[
                    "inst_id",
                    "size_for_estimate",
                    "size_factor",
                    "buffers_for_estimate",
                    "estd_physical_reads",
                ],
                [("0.5", 900.0), ("1", 300.0), ("2", 150.0)]
                    .map(|(factor, reads)| vec![s("1"), s("256"), s(factor), s("32768"), n(reads)])
                    .into(),
            ),
            table(
                "segment",
                &[
                    "inst_id",
                    "owner",
                    "object_name",
                    "object_type",
                    "logical_reads",
                    "physical_reads",
                    "read_micro",
                    "block_changes",
                    "buffer_busy_waits",
                    "buffer_busy_micro",
                    "row_lock_waits",
                    "row_lock_micro",
                    "gc_waits",
                    "gc_micro",
                ],
                vec![
                    ["1", "public", "t", "TABLE"]
                        .map(s)
                        .into_iter()
                        .chain((1..=10).map(|i| n(f64::from(i) * 1000.0)))
                        .collect(),
                ],
            ),
            table(
                "rowcache",
                &["inst_id", "parameter", "gets", "getmisses"],
                Vec::new(),
            ),
            table("undostat", &["inst_id", "statistic", "value"], Vec::new()),
            table(
                "parameter",
                &["inst_id", "name", "display_value"],
                Vec::new(),
            ),
        ]);
        Snapshot {
            id,
            format: FORMAT,
            time: format!("t{id}"),
            seconds: 1000.0 + 100.0 * share,
            scn: id.to_string(),
            missing: String::new(),
            tables: tables.into_iter().map(|t| (t.name.clone(), t)).collect(),
        }
    }

    pub fn span(&self) -> Span {
        Span::new(self.snapshot(1, 0.0), self.snapshot(2, 1.0), None).unwrap()
    }

    pub fn findings(&self) -> Vec<Finding> {
        findings(&self.span()).unwrap()
    }

    pub fn first(&self) -> (Cause, Option<String>, Option<String>) {
        let found = self.findings();
        let first = found.first().unwrap_or_else(|| panic!("nothing was found"));
        assert!(!first.evidence.is_empty() && !first.remedy.is_empty());
        (first.cause, first.instance.clone(), first.subject.clone())
    }
}
