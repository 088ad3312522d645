//! What tells where time goes, over two instances: statistics by statement and the time model.

mod missing;
mod shares;
mod timelines;

use postgres::Client;
use testkit::processes::{self, Database};
use testkit::waiting;

fn up(name: &str, instances: u16) -> Database {
    let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("performance-{name}"), instances, &small)
}

fn run(client: &mut Client, sql: &str) {
    client
        .batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e:?}"));
}

fn value(client: &mut Client, sql: &str) -> String {
    processes::rows(client, sql).concat()
}

fn number(client: &mut Client, sql: &str) -> f64 {
    let text = value(client, sql);
    text.parse()
        .unwrap_or_else(|e| panic!("{sql}: {text}: {e}"))
}

#[test]
fn statements_are_counted_with_what_they_took() {
    let db = up("statements", 2);
    let mut one = db.client(1);
    run(&mut one, "create table t(a int primary key, b text)");
    let insert = "insert into t select g, 'x' from generate_series(1, $1::int) g";
    one.execute(insert, &[&500i32]).unwrap();
    let select = one.prepare("select b from t where a = $1").unwrap();
    for key in 1..=20i32 {
        one.query(&select, &[&key]).unwrap();
    }
    one.query("select 1/(a - 1) from t where a = 1", &[])
        .unwrap_err();
    let of = |text: &str, columns: &str| {
        format!(
            "select {columns} from v$sql where sql_text = '{}'",
            text.replace('\'', "''")
        )
    };
    let counted = "executions || ' ' || rows_processed || ' ' || failures || ' ' || parse_calls";
    assert_eq!(value(&mut one, &of(insert, counted)), "1 500 0 1");
    let selected = value(&mut one, &of("select b from t where a = $1", counted));
    assert_eq!(selected, "20 20 0 1");
    let failed = value(
        &mut one,
        &of("select 1/(a - 1) from t where a = 1", counted),
    );
    assert_eq!(failed, "1 0 1 1");
    // The commit is the insert's, and so is the redo. Who commits writes the log itself at times.
    let commit = "commit_wait_time + other_wait_time > 0 and redo_size > 500 and buffer_gets > 0";
    assert_eq!(value(&mut one, &of(insert, commit)), "t");
    // A plan's steps are kept under the statement's id.
    let plan = "select p.operation from v$sql_plan p join v$sql s using (sql_id, plan_hash_value) \
                where s.sql_text = 'select b from t where a = $1' and p.id = 0";
    assert!(
        value(&mut one, plan).starts_with("Index Scan"),
        "{}",
        value(&mut one, plan)
    );
    // DDL empties the plan cache, and the statistics go on.
    run(&mut one, "create table other(a int)");
    one.query(&select, &[&3i32]).unwrap();
    let again = value(&mut one, &of("select b from t where a = $1", "executions"));
    assert_eq!(again, "21");

    // The blocks come from the other instance: cluster time is the statement's there.
    let mut two = db.client(2);
    two.query("select count(*) from t where b = 'x'", &[])
        .unwrap();
    let remote = "select cluster_wait_time > 0 and gc_blocks_received > 0 from gv$sql \
                  where inst_id = 2 and sql_text like 'select count(*) from t where b%'";
    assert_eq!(value(&mut one, remote), "t");
    assert_eq!(
        value(&mut one, "select sum(version_count) > 5 from v$sqlarea"),
        "t"
    );

    run(&mut one, "select 5 + 1; select 7 + 1");
    let calls =
        "select query || ' ' || calls from pg_stat_statements where query like 'select $1 +%'";
    assert_eq!(value(&mut one, calls), "select $1 + $2 2");
    run(&mut one, "select pg_stat_statements_reset()");
    let left = "select count(*) from pg_stat_statements where query like 'insert%'";
    assert_eq!(value(&mut one, left), "0");
    db.verify();
}

/// Elapsed time is the sum of its parts, for each statement exactly; DB time is that of the
/// statements and of what is between them, and what nobody named is little of it.
#[test]
fn time_adds_up() {
    for sessions in [1, 40] {
        let db = up(&format!("sums-{sessions}"), 1);
        let mut control = db.client(1);
        run(&mut control, "create table t(a int primary key, n int)");
        run(
            &mut control,
            "insert into t select g, 0 from generate_series(1, 40) g",
        );
        let workers: Vec<_> = (0..sessions)
            .map(|n| {
                let mut client = db.client(1);
                std::thread::spawn(move || {
                    for i in 0..400 / sessions {
                        let key = (n + i) % 40 + 1;
                        run(
                            &mut client,
                            &format!("update t set n = n + 1 where a = {key}"),
                        );
                        run(&mut client, "select count(*), sum(a) from t");
                    }
                    client
                })
            })
            .collect();
        let clients: Vec<Client> = workers.into_iter().map(|w| w.join().unwrap()).collect();
        each_session_adds_up(&mut control, sessions);
        let off = "select count(*) from v$sql where abs(elapsed_time - (cpu_time + runnable_time \
                   + application_wait_time + concurrency_wait_time + cluster_wait_time \
                   + user_io_wait_time + commit_wait_time + network_wait_time + other_wait_time)) \
                   > 12 + elapsed_time / 50";
        assert_eq!(value(&mut control, off), "0");
        drop(clients);
        let others = "select count(*) from v$session where type = 'USER'";
        waiting::until("the sessions have ended", || {
            value(&mut control, others) == "1"
        });
        let time = |name: &str, client: &mut Client| {
            number(
                client,
                &format!("select value from v$sys_time_model where stat_name = '{name}'"),
            )
        };
        let db_time = time("DB time", &mut control);
        let sum = [
            "CPU outside of waits",
            "non-idle wait time",
            "run queue time",
        ]
        .iter()
        .map(|name| time(name, &mut control))
        .sum::<f64>();
        let unnamed = time("unaccounted time", &mut control);
        println!("{sessions} sessions: DB time {db_time} us, parts {sum}, unaccounted {unnamed}");
        // What was read later has the time of the readings between.
        assert!((sum + unnamed - db_time).abs() < db_time / 50.0 + 50_000.0);
        assert!(unnamed < db_time / 50.0, "{unnamed} of {db_time} us");
        let statements = number(&mut control, "select sum(elapsed_time) from v$sql");
        assert!(statements < db_time + 50_000.0, "{statements} of {db_time}");
        let executed = time("sql execute elapsed time", &mut control);
        assert!((executed - statements).abs() < statements / 50.0 + 50_000.0);
        assert!(
            number(
                &mut control,
                "select value from v$osstat where stat_name = 'NUM_CPUS'"
            ) >= 1.0
        );
        db.verify();
    }
}

/// Each session by itself has a time model that adds up. What it waited for a processor is read by
/// another clock than its waits, on a busy machine a turn of the scheduler apart.
fn each_session_adds_up(control: &mut Client, sessions: i32) {
    let part = |name: &str| format!("sum(value) filter (where stat_name = '{name}')");
    let sql = format!(
        "select count(*), count(*) filter (where abs(db - parts) > db / 50 + 5000), \
         count(*) filter (where unnamed > db / 50 + 20000) from (select sid, {} as db, \
         {} + {} + {} + {} as parts, {} as unnamed from v$sess_time_model \
         where sid in (select sid from v$session where type = 'USER' \
         and pid <> pg_backend_pid()) group by sid) s",
        part("DB time"),
        part("CPU outside of waits"),
        part("non-idle wait time"),
        part("run queue time"),
        part("unaccounted time"),
        part("unaccounted time"),
    );
    assert_eq!(value(control, &sql), format!("{sessions}|0|0"));
}

fn braid_of(db: &Database, command: &str, more: &[&str]) -> std::process::Output {
    let data = db.data();
    let mut args = vec![command, "--data", &data, "--user", "tester"];
    args.extend(more);
    processes::braid(&args)
}

fn told(db: &Database, command: &str, more: &[&str]) -> String {
    let output = braid_of(db, command, more);
    assert!(output.status.success(), "{}", processes::said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(db: &Database, command: &str, more: &[&str]) -> String {
    let output = braid_of(db, command, more);
    assert!(!output.status.success(), "{}", processes::said(&output));
    processes::said(&output)
}

#[test]
fn snapshots_of_all_instances_become_reports() {
    let db = up("snapshots", 2);
    let (mut one, mut two) = (db.client(1), db.client(2));
    assert!(refused(&db, "report", &[]).contains("there are no snapshots yet"));
    assert_eq!(value(&mut one, "select create_snapshot()"), "1");
    assert!(refused(&db, "report", &[]).contains("there is no snapshot before 1"));
    run(&mut one, "create table t(a int primary key, n int)");
    run(
        &mut one,
        "insert into t select g, 0 from generate_series(1, 200) g",
    );
    for _ in 0..20 {
        run(&mut two, "update t set n = n + 1 where a = 7");
        run(&mut one, "update t set n = n + 1 where a = 7");
    }
    assert_eq!(value(&mut two, "select create_snapshot()"), "2");
    // Both have the rows of both instances, and one SCN.
    for snap in [1, 2] {
        let rows = format!(
            "select count(distinct inst_id) || ' ' || count(*) / 2 from perfstat.sysstat \
             where snap_id = {snap}"
        );
        let names = value(&mut one, "select '2 ' || count(*) from v$sysstat");
        assert_eq!(value(&mut one, &rows), names);
    }
    let kept = "select sum(s.executions) from perfstat.sqlstats s join perfstat.sqltext t using (sql_id) \
                where s.snap_id = 2 and t.sql_text = 'update t set n = n + 1 where a = $1'";
    assert_eq!(value(&mut one, kept), "40");

    let listed = told(&db, "report", &["--list"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let report = told(&db, "report", &[]);
    for part in [
        "Instances: 1, 2",
        "Top Timed Events by DB Time",
        "Avg global cache current block receive time (ms):",
        "Global Cache Transfers by Pair, in Parts",
        "update t set n = n + 1 where a = $1",
    ] {
        assert!(report.contains(part), "{part} is not in {report}");
    }
    // The same from SQL, for superusers.
    assert_eq!(
        value(&mut one, "select workload_report(1, 2)").trim_end(),
        report.trim_end()
    );
    let shown = value(&mut two, "select workload_report(null, null, 2, 'html')");
    assert!(shown.starts_with("<!DOCTYPE html>"), "{shown}");
    for (call, state) in [
        ("workload_report(1, 9)", "22023"),
        ("workload_report(1, 2, 7)", "22023"),
        ("workload_report(1, 2, 1, 'pdf')", "22023"),
    ] {
        let error = one.batch_execute(&format!("select {call}")).unwrap_err();
        assert_eq!(error.code().map(|c| c.code()), Some(state), "{call}");
    }
    run(&mut one, "create role guest; set role guest");
    let error = one.batch_execute("select workload_report()").unwrap_err();
    assert_eq!(error.code().map(|c| c.code()), Some("42501"));
    run(&mut one, "reset role");
    let own = told(&db, "report", &["--instance", "2"]);
    assert!(own.contains("Instances: 2\n"), "{own}");
    let page = told(&db, "report", &["--format", "html"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg"));

    // An instance that is gone is said to be left out.
    drop(two);
    processes::succeeds(&["stop", "2", "--data", &db.data()]);
    assert_eq!(value(&mut one, "select create_snapshot()"), "3");
    let report = told(&db, "report", &["--from", "2", "--to", "3"]);
    assert!(
        report.contains("instance 2 was not there at the end"),
        "{report}"
    );
    let why = refused(
        &db,
        "report",
        &["--from", "2", "--to", "3", "--instance", "2"],
    );
    assert!(why.contains("instance 2 has no whole span"), "{why}");
    let changed = told(
        &db,
        "report",
        &["--from", "1", "--to", "2", "--diff", "2,3"],
    );
    assert!(changed.contains("Workload comparison"), "{changed}");
    assert!(refused(&db, "report", &["--from", "9", "--to", "10"]).contains("no snapshot 9"));
    // A former format is no table of wrong numbers.
    run(&mut one, "update perfstat.snapshot set format = 0");
    assert!(refused(&db, "report", &[]).contains("has format 0"));
    run(&mut one, "update perfstat.snapshot set format = 99");
    let error = one.batch_execute("select create_snapshot()").unwrap_err();
    assert_eq!(error.code().map(|c| c.code()), Some("55000"));
    db.verify();
}

/// What is older than the retention goes when the next snapshot is taken; `m000` takes one in each
/// interval, however many instances there are.
#[test]
fn snapshots_are_taken_and_removed_without_being_asked() {
    let db = up("interval", 2);
    let mut one = db.client(1);
    value(&mut one, "select create_snapshot()");
    run(
        &mut one,
        "update perfstat.snapshot set snap_time = snap_time - interval '9 days'",
    );
    run(&mut one, "alter system set snapshot_interval = '2s'");
    let mut two = db.client(2);
    run(&mut two, "alter system set snapshot_interval = '2s'");
    let count = "select count(*) from perfstat.snapshot";
    waiting::until("three snapshots were taken", || {
        number(&mut one, count) >= 3.0
    });
    assert_eq!(
        value(
            &mut one,
            "select count(*) from perfstat.sysstat where snap_id = 1"
        ),
        "0"
    );
    let near = "select count(*) from perfstat.snapshot a join perfstat.snapshot b \
                on b.snap_id = a.snap_id + 1 and b.snap_time - a.snap_time < interval '1 second'";
    assert_eq!(value(&mut one, near), "0");
    db.verify();
}

#[test]
fn the_doctor_names_who_holds_the_rows() {
    let db = up("doctor", 2);
    let mut holder = db.client(1);
    run(
        &mut holder,
        "create table t(a int primary key, n int); insert into t values (1, 0)",
    );
    run(&mut holder, "begin; update t set n = 1 where a = 1");
    let mut waiter = db.client(2);
    let waits = std::thread::spawn(move || {
        run(&mut waiter, "update t set n = 2 where a = 1");
    });
    let mut control = db.client(2);
    let blocked = "select count(*) from v$session where event = 'enq: TX - row lock contention'";
    waiting::until("the other session waits", || {
        value(&mut control, blocked) == "1"
    });
    let found = told(&db, "doctor", &["--seconds", "3"]);
    let first = found
        .lines()
        .find(|l| l.starts_with("1 "))
        .unwrap_or_else(|| panic!("{found}"));
    assert!(
        first.contains("A session idle in its transaction holds rows"),
        "{found}"
    );
    let chain = found.split("Lock Chains").nth(1).unwrap();
    assert!(
        chain.contains("\n1: ") && chain.contains("\n  2: "),
        "{found}"
    );
    let seen = told(&db, "ash", &["--minutes", "5"]);
    assert!(seen.contains("enq: TX - row lock contention"), "{seen}");
    assert!(seen.contains("instance 2 - instance 1"), "{seen}");
    let steps = told(&db, "ash", &["--minutes", "5", "--by", "plan-step"]);
    assert!(steps.contains("0: Update on t"), "{steps}");
    // Snapshots of a former format, whose samples have no steps, hide nothing that is in memory.
    let mut other = db.client(1);
    value(&mut other, "select create_snapshot()");
    run(&mut other, "update perfstat.snapshot set format = 3");
    let dropped = "alter table perfstat.ash drop column sql_plan_hash_value, \
                   drop column sql_plan_line_id, drop column sql_plan_operation";
    run(&mut other, dropped);
    let seen = told(&db, "ash", &["--minutes", "5"]);
    assert!(seen.contains("enq: TX - row lock contention"), "{seen}");
    assert!(seen.contains("perfstat have format 3"), "{seen}");
    run(&mut holder, "commit");
    waits.join().unwrap();
    assert!(refused(&db, "ash", &["--by", "nonsense"]).contains("not by nonsense"));
    let none = ["--from", "2020-01-01", "--to", "2020-01-02"];
    assert!(refused(&db, "ash", &none).contains("no session was seen active"));
    db.verify();
}

#[test]
fn metrics_are_there_if_they_are_wanted() {
    use std::io::{Read, Write};
    let port = testkit::ports::free_port();
    let port_set = format!("metrics_port={port}");
    let more = [
        "--buffer-cache",
        "64MB",
        "--set",
        "redo_file_size=32MB",
        "--set",
        &port_set,
    ];
    let db = Database::up("performance-metrics", 1, &more);
    let mut one = db.client(1);
    run(&mut one, "create table t(a int)");
    let scrape = || {
        let mut scraper = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        answer
    };
    // The session has answered, and may not have come to wait for its client yet.
    let is_idle = |answer: &String| answer.contains("braid_sessions{state=\"idle\"} 1\n");
    let begun = std::time::Instant::now();
    let mut answer = scrape();
    while !is_idle(&answer) && begun.elapsed() < std::time::Duration::from_secs(20) {
        answer = scrape();
    }
    let commits = answer
        .lines()
        .find(|l| l.starts_with("braid_stat_total{name=\"user commits\"} "));
    let commits = commits
        .and_then(|l| l.rsplit(' ').next())
        .unwrap_or_default();
    assert!(commits.parse::<u64>().is_ok_and(|n| n > 0), "{answer}");
    assert!(is_idle(&answer), "{answer}");
}

/// What was done with a table's blocks is told by table, on each instance, and its waits are the
/// history's, too; the cache's advice is of the same work.
#[test]
fn segments_have_what_was_done_with_them() {
    let db = up("segments", 2);
    let (mut one, mut two) = (db.client(1), db.client(2));
    run(
        &mut one,
        "create table counted(a int primary key, n int); \
         insert into counted select g, 0 from generate_series(1, 2000) g",
    );
    let of = |instance: u16, object: &str, statistic: &str| {
        format!(
            "select coalesce(sum(value), 0) from gv$segment_statistics where inst_id = {instance} \
             and owner = 'public' and object_name = '{object}' and statistic_name = '{statistic}'"
        )
    };
    let before = number(&mut one, &of(1, "counted", "logical reads"));
    run(&mut one, "select count(*), sum(n) from counted");
    assert!(number(&mut one, &of(1, "counted", "logical reads")) >= before + 5.0);
    assert!(number(&mut one, &of(1, "counted", "db block changes")) > 0.0);
    assert!(number(&mut one, &of(1, "counted_pkey", "logical reads")) > 0.0);
    // The other instance got its blocks from this one.
    run(&mut two, "update counted set n = n + 1 where a = 7");
    assert!(number(&mut one, &of(2, "counted", "gc waits")) > 0.0);
    let came = number(&mut one, &of(2, "counted", "gc current blocks received"));
    assert!(came > 0.0, "{came}");
    // What a session has counted stays when it has gone.
    let at_two = number(&mut one, &of(2, "counted", "logical reads"));
    drop(two);
    let others = "select count(*) from gv$session where inst_id = 2 and type = 'USER'";
    waiting::until("the session has ended", || value(&mut one, others) == "0");
    assert!(number(&mut one, &of(2, "counted", "logical reads")) >= at_two);

    run(&mut one, "begin; update counted set n = 1 where a = 1");
    let mut waiter = db.client(2);
    let waits =
        std::thread::spawn(move || run(&mut waiter, "update counted set n = 2 where a = 1"));
    let seen = "select count(*) from gv$active_session_history where inst_id = 2 and event \
                = 'enq: TX - row lock contention' and object_name = 'counted'";
    // The holder is idle, so another session looks.
    let mut control = db.client(1);
    waiting::until("the wait was sampled with its table", || {
        number(&mut control, seen) > 0.0
    });
    let seen = told(&db, "ash", &["--minutes", "5", "--by", "object,blocker"]);
    let chain = seen.split("Lock Chains").nth(1).expect("chains");
    assert!(
        chain.contains("(idle)") && chain.contains(" > 1: "),
        "{seen}"
    );
    assert!(seen.contains("row lock contention - counted"), "{seen}");
    run(&mut one, "commit");
    waits.join().unwrap();
    assert!(number(&mut one, &of(2, "counted", "row lock waits")) > 0.0);
    let counted = "select count(*) from gv$sysstat where inst_id = 2 and value > 0 \
                   and name in ('enqueue requests', 'enqueue waits')";
    assert_eq!(value(&mut one, counted), "2");

    let rising = "select count(*) from (select estd_physical_reads - lead(estd_physical_reads) \
                  over (order by size_factor) as less from v$db_cache_advice) a where less < 0";
    assert_eq!(value(&mut one, rising), "0");
    assert_eq!(
        value(&mut one, "select count(*) from v$db_cache_advice"),
        "20"
    );
    db.verify();
}

/// How far an index build is, while it lasts; and what a plan's steps gave.
#[test]
fn long_work_and_plans_tell_what_was_done() {
    let db = up("longops", 1);
    let mut one = db.client(1);
    run(
        &mut one,
        "create table long(a int, filler text); \
         insert into long select g, repeat('x', 300) from generate_series(1, 40000) g",
    );
    let mut other = db.client(1);
    let builds = std::thread::spawn(move || {
        for _ in 0..20 {
            run(
                &mut other,
                "create index on long(filler, a); drop index long_filler_a_idx",
            );
        }
    });
    for (what, target) in [("Table Scan", "long"), ("Index Build", "long_filler_a_idx")] {
        let sql = format!(
            "select count(*) from v$session_longops where opname = '{what}' and target = '{target}' \
             and totalwork > 0 and sofar <= totalwork and units in ('Blocks', 'Entries')"
        );
        waiting::until(what, || number(&mut one, &sql) > 0.0);
    }
    builds.join().unwrap();

    let select = one
        .prepare("select count(*) from long where a < $1")
        .unwrap();
    for _ in 0..3 {
        one.query(&select, &[&101i32]).unwrap();
    }
    let measured = "select count(*), max(p.last_output_rows), max(p.last_buffer_gets) > 1000, \
                    max(p.last_starts) from v$sql_plan p join v$sql s using (sql_id, plan_hash_value) \
                    where s.sql_text = 'select count(*) from long where a < $1' \
                    and p.last_measured is not null";
    // The scan gives the rows that its condition leaves; measured is what takes less than 100 ms.
    let found = value(&mut one, measured);
    let short = "select elapsed_time / executions < 80000 from v$sql \
                 where sql_text = 'select count(*) from long where a < $1'";
    if value(&mut one, short) == "t" {
        assert!(found.contains("|t|1") && !found.starts_with('0'), "{found}");
    }
    let point = one
        .prepare("select filler from long where a = $1 limit 1")
        .unwrap();
    for _ in 0..70 {
        one.query(&point, &[&1i32]).unwrap();
    }
    db.verify();
}

/// A FETCH goes on with the query of its cursor: what was seen of it is in the steps of that plan.
#[test]
fn what_is_fetched_later_has_the_steps_of_its_query() {
    let db = up("fetched", 1);
    let (mut one, mut other) = (db.client(1), db.client(1));
    let cursor = "declare c cursor for select sum(a.i) over (order by b.i) \
                  from generate_series(1, 3000) a (i), generate_series(1, 3000) b (i)";
    run(&mut one, &format!("begin; {cursor}"));
    let seen = "select count(*) from v$active_session_history \
                where sql_text = 'fetch all from c' and sql_plan_operation is not null \
                and sql_plan_hash_value in (select plan_hash_value from v$sql_plan \
                where operation = 'WindowAgg')";
    let cancel = one.cancel_token();
    let fetches = std::thread::spawn(move || one.batch_execute("fetch all from c"));
    waiting::until("a step of the cursor's query was seen", || {
        number(&mut other, seen) > 0.0
    });
    cancel.cancel_query(postgres::NoTls).unwrap();
    fetches.join().unwrap().unwrap_err();
    db.verify();
}
