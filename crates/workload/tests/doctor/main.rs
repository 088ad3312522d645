//! The doctor finds each planted cause first, with its instance, and nothing in a healthy load.

mod figures;

use figures::{Plan, healthy};
use workload::doctor::{self, Cause};
use workload::{html, report, text};

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

/// A session that finds nobody writing the log does it itself, and waits for no other.
#[test]
fn a_slow_log_disk_is_found_if_sessions_write_it_themselves() {
    let mut load = healthy();
    load.events.remove(&("2", "log file sync"));
    load.events
        .insert(("2", "log file parallel write"), ("Commit", 1000.0, 45.0));
    assert_eq!(load.first(), (Cause::SlowLog, Some("2".to_string()), None));
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

/// Nothing that such threads were asked for has come, and no time without a processor is counted
/// before they get one.
#[test]
fn threads_that_never_get_a_processor_are_found_too() {
    let mut load = healthy();
    load.threads[1] = ("2", "lms0", 0.0, 0.0);
    load.under_way.push(("2", "1", 1.0));
    // Little to do, a thread is runnable when it is looked at, and served what it was asked for.
    load.runnable.push(("2", "lms0"));
    load.remote
        .push(("1", "2", "gc current block 2-way", "queue", 5000.0, 60.0));
    assert!(load.findings().iter().all(|f| f.cause != Cause::StarvedLms));
    load.runnable.clear();
    load.under_way.push(("1", "2", 50.0));
    // Asleep, they are not at fault: nothing has reached them.
    assert!(load.findings().iter().all(|f| f.cause != Cause::StarvedLms));
    load.runnable.push(("2", "lms0"));
    let (cause, instance, _) = load.first();
    assert_eq!((cause, instance.as_deref()), (Cause::StarvedLms, Some("2")));
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

/// A plan that was not there before is judged by the one that was.
#[test]
fn a_plan_that_became_slower_is_named_with_both() {
    let mut load = healthy();
    load.plans = vec![
        Plan {
            sql_id: "id9",
            hash: "77",
            before: [1000.0, 1.0],
            within: [0.0, 0.0],
            made: 10.0,
        },
        Plan {
            sql_id: "id9",
            hash: "78",
            before: [0.0, 0.0],
            within: [1000.0, 90.0],
            made: 1010.0,
        },
    ];
    let (cause, _, subject) = load.first();
    assert_eq!(cause, Cause::PlanChange);
    assert!(subject.unwrap().starts_with("id9: "));
    let found = load.findings();
    assert!((found[0].seconds - 89.0).abs() < 0.1, "{found:?}");
    assert!(
        found[0]
            .evidence
            .contains("plan 77 an execution took 1.000 ms, by plan 78 it takes 90.000 ms")
    );
    // Another plan that is not slower, and one of which too few executions are known.
    load.plans[1].within = [1000.0, 1.5];
    assert!(load.findings().is_empty());
    load.plans[1].within = [3.0, 90.0];
    assert!(load.findings().is_empty());
    // One that is old: the snapshot before did not have it, as it had not run for a while.
    load.plans[1].within = [1000.0, 90.0];
    assert!(!load.findings().is_empty());
    load.plans[1].made = 900.0;
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
    let rows = |title: &str| {
        let section = document.sections.iter().find(|s| s.title == title);
        let rows = &section.unwrap_or_else(|| panic!("no {title}")).rows;
        rows.iter().map(|r| r.join("|")).collect::<Vec<_>>()
    };
    let processor = "0|25.0|0.0|0.0|75.0";
    let each = ["1", "2"].map(|k| format!("{k}|{processor}"));
    assert_eq!(rows("Host CPU by Processor"), each);
    // What background threads wait for is no part of DB time.
    let of_log = |title: &str| {
        let rows = rows(title).into_iter();
        rows.filter(|r| r.starts_with("log file "))
            .collect::<Vec<_>>()
    };
    let (users, background) = (
        of_log("Top Timed Events by DB Time"),
        of_log("Background Wait Events"),
    );
    assert!(users.len() == 1 && users[0].starts_with("log file sync|40,000|50.00"));
    assert_eq!(background.len(), 1);
    assert!(background[0].starts_with("log file parallel write|30,000|36.00"));
    let shown = text(&document);
    for part in [
        "Load Profile",
        "Top Timed Events by DB Time",
        "Workload Characteristics",
        "SQL ordered by Gets",
        "Top SQL with Top Row Sources",
        "Seq Scan on t",
        "between steps",
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
