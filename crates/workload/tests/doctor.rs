//! The doctor finds each planted cause first, with its instance, and nothing in a healthy load.

use std::collections::BTreeMap;

use workload::doctor::{Cause, Finding, findings};
use workload::{FORMAT, Snapshot, Span, Table, doctor, html, report, text};

/// Counters of two instances over 100 seconds, in which two sessions were at work on average.
struct Load {
    /// By instance and name.
    times: BTreeMap<(&'static str, &'static str), f64>,
    stats: BTreeMap<&'static str, f64>,
    /// By instance and event: class, waits, seconds.
    events: BTreeMap<(&'static str, &'static str), (&'static str, f64, f64)>,
    /// Asking and serving instance, event, part: waits, seconds.
    remote: Vec<(
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        f64,
        f64,
    )>,
    /// Object, kind, current blocks, seconds.
    transfers: Vec<(&'static str, &'static str, f64, f64)>,
    /// Instance, number, status, event, seconds in wait, blocking instance and session.
    sessions: Vec<[&'static str; 7]>,
    /// Id, text, and executions, gets, rows, seconds.
    statements: Vec<(&'static str, &'static str, f64, f64, f64, f64)>,
    /// Statements' fetches, by id.
    fetches: BTreeMap<&'static str, f64>,
    /// By instance, what `v$osstat` says at the end.
    machine: BTreeMap<(&'static str, &'static str), f64>,
    /// By instance and thread: seconds on a processor, and runnable without one.
    threads: Vec<(&'static str, &'static str, f64, f64)>,
    /// Instance, service, sessions.
    services: Vec<[&'static str; 3]>,
    /// How long ago the transaction of each of `sessions` began.
    transaction_seconds: &'static str,
}

const INSTANCES: [&str; 2] = ["1", "2"];

fn healthy() -> Load {
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
        services: vec![["1", "braid", "8"], ["2", "braid", "8"]],
        transaction_seconds: "",
    };
    for k in INSTANCES {
        for (name, value) in [
            ("IDLE_TIME", 5000.0),
            ("BUSY_TIME", 15_000.0),
            ("IOWAIT_TIME", 0.0),
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
                &["inst_id", "status", "startup_time"],
                INSTANCES.map(|k| vec![s(k), s("OPEN"), s("then")]).into(),
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
                ],
                (self.events.iter())
                    .map(|((k, e), (c, w, t))| vec![s(k), s(e), s(c), n(*w), micros(t * share)])
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
                n(*executions),
                n(*rows),
                micros(seconds * share),
            ];
            row.extend(std::iter::repeat_n(s("0"), 7));
            let fetches = self.fetches.get(id).copied().unwrap_or(*executions);
            row.extend([n(*gets), s("0"), s("0"), n(fetches)]);
            row
        };
        tables.extend([
            table(
                "sqlstats",
                &[
                    "inst_id",
                    "sql_id",
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
                ],
                self.statements.iter().map(statement).collect(),
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
                &["inst_id", "pname", "cpu_used_micro", "runnable_micro"],
                (self.threads.iter())
                    .map(|(k, name, cpu, runnable)| {
                        let of = |seconds: &f64| micros(seconds * share);
                        vec![s(k), s(name), of(cpu), of(runnable)]
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

    fn span(&self) -> Span {
        Span::new(self.snapshot(1, 0.0), self.snapshot(2, 1.0), None).unwrap()
    }

    fn findings(&self) -> Vec<Finding> {
        findings(&self.span()).unwrap()
    }

    fn first(&self) -> (Cause, Option<String>, Option<String>) {
        let found = self.findings();
        let first = found.first().unwrap_or_else(|| panic!("nothing was found"));
        assert!(!first.evidence.is_empty() && !first.remedy.is_empty());
        (first.cause, first.instance.clone(), first.subject.clone())
    }
}

#[test]
fn a_healthy_load_has_no_finding() {
    assert!(
        healthy().findings().is_empty(),
        "{:?}",
        healthy().findings()
    );
    let mut asleep = healthy();
    for seconds in asleep.times.values_mut() {
        *seconds /= 1000.0;
    }
    asleep
        .events
        .insert(("1", "log file sync"), ("Commit", 10.0, 0.9));
    asleep
        .events
        .insert(("1", "log file parallel write"), ("System I/O", 10.0, 0.9));
    assert!(asleep.findings().is_empty(), "nobody works");
}

#[test]
fn a_slow_log_disk_is_that_of_its_instance_also_if_the_others_wait() {
    let mut load = healthy();
    load.events.insert(
        ("2", "log file parallel write"),
        ("System I/O", 3000.0, 40.0),
    );
    load.events
        .insert(("2", "log file sync"), ("Commit", 3000.0, 40.0));
    load.remote
        .push(("1", "2", "gc cr block busy", "log flush", 2000.0, 30.0));
    assert_eq!(load.first(), (Cause::SlowLog, Some("2".to_string()), None));
    assert!((load.findings()[0].seconds - 71.0).abs() < 0.01);
}

#[test]
fn who_holds_rows_is_told_and_whether_it_is_idle() {
    let mut load = healthy();
    load.events.insert(
        ("2", "enq: TX - row lock contention"),
        ("Application", 30.0, 50.0),
    );
    load.sessions = vec![
        ["1", "7", "ACTIVE", "db file sequential read", "0", "", ""],
        [
            "2",
            "9",
            "ACTIVE",
            "enq: TX - row lock contention",
            "12",
            "1",
            "7",
        ],
        [
            "2",
            "10",
            "ACTIVE",
            "enq: TX - row lock contention",
            "500",
            "2",
            "9",
        ],
    ];
    let (cause, instance, _) = load.first();
    assert_eq!((cause, instance.as_deref()), (Cause::RowLocks, Some("1")));
    // What ended, and the waits under way as far as they are of the span.
    assert_eq!(load.findings()[0].seconds, 50.0 + 12.0 + 100.0);
    let chains = doctor::chains(&load.span()).unwrap();
    let shown: Vec<&str> = chains.rows.iter().map(|r| r[0].as_str()).collect();
    assert_eq!(shown, ["1: 7", "  2: 9", "    2: 10"]);
    load.sessions[0][2] = "INACTIVE";
    let (cause, instance, subject) = load.first();
    assert_eq!(
        (cause, instance.as_deref()),
        (Cause::IdleInTransaction, Some("1"))
    );
    assert!(subject.unwrap().contains("session 7"));
}

#[test]
fn blocks_that_go_to_and_fro_name_their_object() {
    for (kind, cause) in [("r", Cause::HotTable), ("i", Cause::HotIndex)] {
        let mut load = healthy();
        load.transfers.push(("hot", kind, 90_000.0, 80.0));
        load.stats.insert("leaf node splits", 500.0);
        assert_eq!(load.first(), (cause, None, Some("hot".to_string())));
    }
}

#[test]
fn a_sequence_without_a_cache_is_found() {
    let mut load = healthy();
    load.events
        .insert(("1", "enq: SV - contention"), ("Cluster", 9000.0, 60.0));
    load.stats.insert("sequence marks written", 9000.0);
    assert_eq!(load.first().0, Cause::Sequence);
    // Waits alone, of a sequence that is drawn from as it should be, are another thing.
    load.stats.insert("sequence marks written", 9.0);
    assert!(load.findings().iter().all(|f| f.cause != Cause::Sequence));
}

#[test]
fn reads_from_disk_speak_for_a_larger_cache() {
    let mut load = healthy();
    load.events.insert(
        ("2", "db file sequential read"),
        ("User I/O", 90_000.0, 90.0),
    );
    load.stats.insert("physical reads", 90_000.0);
    let (cause, instance, _) = load.first();
    assert_eq!((cause, instance.as_deref()), (Cause::SmallCache, Some("2")));
}

#[test]
fn clients_that_come_and_go_and_those_that_plan_anew_are_found() {
    let mut load = healthy();
    load.stats.insert("logons cumulative", 20_000.0);
    load.times.insert(("1", "sql execute elapsed time"), 30.0);
    assert_eq!(load.first().0, Cause::Disconnects);
    let mut load = healthy();
    load.stats.insert("parse count (hard)", 50_000.0);
    load.times.insert(("1", "hard parse elapsed time"), 50.0);
    assert_eq!(load.first().0, Cause::HardParses);
}

#[test]
fn processors_that_are_missing_and_indexes_too() {
    let mut load = healthy();
    load.times.insert(("1", "run queue time"), 70.0);
    assert_eq!(load.first().0, Cause::NoProcessor);
    let mut load = healthy();
    load.statements.push((
        "id2",
        "select * from big where c = $1",
        100.0,
        900_000.0,
        100.0,
        90.0,
    ));
    let (cause, _, subject) = load.first();
    assert_eq!(cause, Cause::ManyGets);
    assert!(subject.unwrap().starts_with("id2: select * from big"));
}

#[test]
fn threads_that_serve_blocks_without_a_processor_are_those_of_their_instance() {
    let mut load = healthy();
    load.threads[1] = ("2", "lms0", 3.0, 70.0);
    load.remote.extend([
        (
            "1",
            "2",
            "gc current block congested",
            "total",
            4000.0,
            90.0,
        ),
        (
            "1",
            "2",
            "gc current block congested",
            "queue",
            4000.0,
            80.0,
        ),
    ]);
    // One object's blocks are what was asked for: the object is not the cause.
    load.transfers.push(("hot", "r", 4000.0, 90.0));
    let (cause, instance, _) = load.first();
    assert_eq!((cause, instance.as_deref()), (Cause::StarvedLms, Some("2")));
    // A queue behind others' requests is none of LMS.
    load.threads[1] = ("2", "lms0", 3.0, 1.0);
    assert_eq!(load.first().0, Cause::HotTable);
}

#[test]
fn a_service_that_crowds_one_instance_is_told_where_there_is_room() {
    let mut load = healthy();
    load.times.insert(("1", "DB time"), 400.0);
    load.times.insert(("1", "run queue time"), 250.0);
    load.times.insert(("2", "DB time"), 10.0);
    load.services = vec![["1", "braid", "1"], ["1", "orders", "16"]];
    let (cause, instance, subject) = load.first();
    assert_eq!(
        (cause, instance.as_deref()),
        (Cause::SkewedService, Some("1"))
    );
    assert_eq!(subject.as_deref(), Some("service orders"));
    assert!(load.findings()[0].remedy.contains("instance 2"));
    // Where the other one's machine is as busy, its processors would not help.
    load.machine.insert(("2", "IDLE_TIME"), 100.0);
    assert_eq!(load.first().0, Cause::NoProcessor);
}

#[test]
fn a_kernels_limit_is_named_where_sends_wait_for_it() {
    let mut load = healthy();
    load.events.insert(
        ("2", "SQL*Net more data to client"),
        ("Network", 5000.0, 60.0),
    );
    assert!(load.findings().is_empty(), "the limit is the usual one");
    load.machine.insert(("2", "TCP_SEND_SIZE_MAX"), 131_072.0);
    let (cause, instance, subject) = load.first();
    assert_eq!((cause, instance.as_deref()), (Cause::TcpLimits, Some("2")));
    assert_eq!(subject.as_deref(), Some("net.ipv4.tcp_wmem"));
    assert!(load.findings()[0].evidence.contains("4.4 MB a second"));
}

#[test]
fn small_fetches_over_a_long_line_are_found_though_the_sessions_are_idle() {
    let mut load = healthy();
    for seconds in load.times.values_mut() {
        *seconds /= 1000.0;
    }
    load.statements
        .push(("id3", "select * from big", 2.0, 900.0, 30_000.0, 0.1));
    load.fetches.insert("id3", 3000.0);
    load.stats.insert("fetches of the rest of a result", 2998.0);
    let waited = "time between fetches of a result (nanoseconds)";
    load.stats.insert(waited, 90e9);
    let (cause, instance, subject) = load.first();
    assert_eq!(
        (cause, instance.as_deref()),
        (Cause::SmallFetches, Some("1"))
    );
    assert!(subject.unwrap().starts_with("id3: select * from big"));
    assert!(load.findings()[0].evidence.contains("gives 10.0 rows"));
    // A client that is near.
    load.stats.insert(waited, 0.3e9);
    assert!(load.findings().is_empty());
}

#[test]
fn versions_of_long_ago_name_the_session_that_reads_them() {
    let mut load = healthy();
    load.sessions = vec![["2", "7", "ACTIVE", "", "0", "", ""]];
    load.transaction_seconds = "3000";
    load.stats.insert("consistent changes", 9_000_000.0);
    let (cause, instance, subject) = load.first();
    assert_eq!(
        (cause, instance.as_deref()),
        (Cause::OldSnapshot, Some("2"))
    );
    assert!(subject.unwrap().contains("session 7"));
    // Versions of a moment ago are everybody's.
    load.transaction_seconds = "3";
    assert!(load.findings().is_empty());
}

/// Every table has its sentence, and the head says which span it is.
#[test]
fn the_whole_report_is_text_and_html() {
    let document = report(&healthy().span()).unwrap();
    assert!(document.sections.len() > 20);
    for s in &document.sections {
        assert!(
            s.reading.ends_with(['.', '!']),
            "{}: {}",
            s.title,
            s.reading
        );
    }
    let shown = text(&document);
    for part in [
        "Load Profile",
        "Top Timed Events by DB Time",
        "Workload Characteristics",
        "SQL ordered by Gets",
        "snapshot 1, SCN 1",
        "Segments by Row Lock Waits",
        "Est Read Factor",
        "log.rs:7",
        "(nothing in this span)",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let page = html(&document);
    assert!(page.contains("<svg") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("<section").count(), document.sections.len());
    let changed = workload::diff(&healthy().span(), &healthy().span()).unwrap();
    assert!(
        changed.sections.iter().all(|s| s.rows.is_empty()),
        "nothing has changed"
    );
}
