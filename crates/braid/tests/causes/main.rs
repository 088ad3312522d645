//! Causes of slowness, planted on real instances: each must be the doctor's first finding, with its
//! instance and its object or statement, and a healthy load must have none.
//! `crates/workload/tests/doctor` has each rule's other cases.

mod load;
mod machine;

use std::time::{Duration, Instant};

use load::{Load, SECONDS, expect, findings, is_busy, run};
use postgres::Client;
use testkit::processes::{self, Database};
use testkit::waiting;

fn up(name: &str, instances: u16, more: &[&str]) -> Database {
    let mut options = vec!["--set", "redo_file_size=32MB", "--set", "autovacuum=off"];
    options.extend(more);
    if !more.contains(&"--buffer-cache") {
        options.extend(["--buffer-cache", "64MB"]);
    }
    Database::up(&format!("causes-{name}"), instances, &options)
}

/// Work that leaves everybody time: a short statement, then a pause.
fn calm(sql: &'static str) -> impl FnMut(&mut Client, i64) + Send + 'static {
    move |client, round| {
        let key = (round % 100) as i32;
        client.execute(sql, &[&key]).expect(sql);
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_healthy_load_has_none() {
    let db = up("healthy", 2, &[]);
    let mut one = db.client(1);
    for k in 1..=2 {
        run(
            &mut one,
            &format!(
                "create table t{k}(a int primary key, n int); \
                 insert into t{k} select g, 0 from generate_series(0, 99) g"
            ),
        );
    }
    let mut load = Load::default();
    load.client(db.client(1), calm("update t1 set n = n + 1 where a = $1"));
    load.client(db.client(2), calm("update t2 set n = n + 1 where a = $1"));
    load.client(db.client(1), calm("select n from t1 where a = $1"));
    load.client(db.client(2), calm("select n from t2 where a = $1"));
    // The blocks have to come to their instances first.
    std::thread::park_timeout(Duration::from_secs(2));
    let (found, said) = findings(&db, "");
    drop(load);
    assert!(found.is_empty(), "{said}");
    db.verify();
}

/// Causes in how the instances share their work, one after the other on one database.
#[test]
fn what_instances_do_to_each_other() {
    let db = up("shared", 2, &[]);
    hot_small_table(&db);
    right_hand_growth(&db);
    sequence_without_cache(&db);
    row_lock_chain(&db);
    idle_in_transaction(&db);
    db.verify();
}

fn hot_small_table(db: &Database) {
    run(
        &mut db.client(1),
        "create table small(a int primary key, n int); \
         insert into small select g, 0 from generate_series(1, 8) g",
    );
    let mut load = Load::default();
    for n in 0..4 {
        load.client(db.client(n % 2 + 1), move |client, _| {
            let sql = "update small set n = n + 1 where a = $1";
            client.execute(sql, &[&i32::from(n)]).expect(sql);
        });
    }
    let title = "Instances change the same few blocks of a table";
    expect(db, title, "", "small");
}

fn right_hand_growth(db: &Database) {
    let table = "create table journal(at bigint primary key, n bigint)";
    run(&mut db.client(1), table);
    let began = Instant::now();
    let mut load = Load::default();
    for n in 0..4 {
        load.client(db.client(n % 2 + 1), move |client, round| {
            let now = began.elapsed().as_micros() as i64 * 4 + i64::from(n);
            let sql = "insert into journal values ($1, $2)";
            client.execute(sql, &[&now, &round]).expect(sql);
        });
    }
    let title = "Instances insert into the same leaf blocks of an index";
    expect(db, title, "", "journal_pkey");
}

fn sequence_without_cache(db: &Database) {
    run(&mut db.client(1), "create sequence numbers cache 1");
    let mut load = Load::default();
    for n in 0..4 {
        load.client(db.client(n % 2 + 1), |client, _| {
            let sql = "select nextval('numbers')";
            client.execute(sql, &[]).expect(sql);
        });
    }
    let title = "A sequence without a cache, or with ORDER, is drawn from";
    expect(db, title, "", "nextval('numbers')");
}

/// Makes a table of rows that sessions lock.
fn locked(db: &Database, name: &str) {
    let sql = format!(
        "create table {name}(a int primary key, n int); \
         insert into {name} select g, 0 from generate_series(1, 2) g"
    );
    run(&mut db.client(1), &sql);
}

/// Waits until so many sessions of all instances wait for rows.
fn wait_for_waiters(db: &Database, n: u32) {
    let mut control = db.client(1);
    let sql = "select count(*) from gv$session where event = 'enq: TX - row lock contention'";
    waiting::until("sessions wait for rows", || {
        processes::rows(&mut control, sql) == [n.to_string()]
    });
}

fn number_of(client: &mut Client) -> String {
    let sql = "select sid from v$session where pid = pg_backend_pid()";
    processes::rows(client, sql).concat()
}

/// Instance 1's session works with a row; one of instance 2 waits for it, and another one of
/// instance 1 for that.
fn row_lock_chain(db: &Database) {
    locked(db, "chain");
    let (mut first, mut second, mut third) = (db.client(1), db.client(2), db.client(1));
    run(&mut first, "begin; update chain set n = 1 where a = 1");
    run(&mut second, "begin; update chain set n = 1 where a = 2");
    let holder = format!("session {},", number_of(&mut first));
    let canceller = first.cancel_token();
    let works = std::thread::spawn(move || first.batch_execute("select pg_sleep(600)"));
    let waits = std::thread::spawn(move || {
        run(&mut second, "update chain set n = 2 where a = 1");
        run(&mut second, "commit");
    });
    wait_for_waiters(db, 1);
    let waits_behind = std::thread::spawn(move || {
        run(&mut third, "update chain set n = 2 where a = 2");
    });
    wait_for_waiters(db, 2);
    let title = "Sessions wait for rows that others have locked";
    expect(db, title, "1", &holder);
    canceller.cancel_query(postgres::NoTls).expect("cancelled");
    // Its thread ends the connection and with it the transaction.
    assert!(works.join().expect("ended").is_err());
    for thread in [waits, waits_behind] {
        thread.join().expect("it went on");
    }
}

fn idle_in_transaction(db: &Database) {
    locked(db, "forgotten");
    let (mut holder, mut waiter) = (db.client(2), db.client(1));
    let number = format!("session {},", number_of(&mut holder));
    run(&mut holder, "begin; update forgotten set n = 1 where a = 1");
    let waits = std::thread::spawn(move || {
        run(&mut waiter, "update forgotten set n = 2 where a = 1");
    });
    wait_for_waiters(db, 1);
    let title = "A session idle in its transaction holds rows";
    expect(db, title, "2", &number);
    run(&mut holder, "rollback");
    waits.join().expect("it went on");
}

/// Causes in what clients ask, and how.
#[test]
fn what_clients_do() {
    let db = up("clients", 2, &[]);
    missing_index(&db);
    old_snapshot(&db);
    disconnect_storm(&db);
    small_fetches(&db);
    db.verify();
}

fn missing_index(db: &Database) {
    run(
        &mut db.client(2),
        "create table big(a int primary key, c int, filler text); insert into big \
         select g, g, repeat('x', 1200) from generate_series(1, 6000) g",
    );
    let mut load = Load::default();
    load.client(db.client(2), |client, round| {
        let sql = "select a from big where c = $1";
        let key = (round % 6000) as i32;
        client.query(sql, &[&key]).expect(sql);
    });
    let title = "A statement looks at many blocks for a row: an index may be missing";
    expect(db, title, "", "select a from big where c = $1");
}

/// A transaction of instance 1 goes on to read rows as they were before thousands of changes.
fn old_snapshot(db: &Database) {
    let mut writer = db.client(1);
    run(
        &mut writer,
        "create table versions(a int primary key, n int); \
         insert into versions select g, 0 from generate_series(1, 10) g",
    );
    let mut reader = db.client(1);
    let holder = format!("session {},", number_of(&mut reader));
    run(
        &mut reader,
        "begin isolation level repeatable read; select count(*) from versions",
    );
    for _ in 0..300 {
        run(&mut writer, "update versions set n = n + 1");
    }
    let since = Instant::now();
    let long: u64 = SECONDS.parse().expect("seconds");
    let mut load = Load::default();
    load.client(reader, |client, _| {
        let sql = "select sum(n) from versions";
        client.query_one(sql, &[]).expect(sql);
    });
    waiting::until("the snapshot is old", || {
        since.elapsed() > Duration::from_secs(long)
    });
    let title = "Versions of long ago are read, and their undo is kept";
    expect(db, title, "1", &holder);
}

fn disconnect_storm(db: &Database) {
    let mut load = Load::default();
    for n in 0..6 {
        let port = db.port(n % 2 + 1);
        load.thread(move |_| {
            let mut client = processes::client(port);
            run(&mut client, "select 1");
        });
    }
    expect(db, "Clients connect and disconnect all the time", "", "");
}

/// A client of instance 2 that is ten milliseconds away takes ten rows at a time.
fn small_fetches(db: &Database) {
    run(
        &mut db.client(1),
        "create table far(a int); insert into far select generate_series(1, 100000)",
    );
    let line = machine::Line::to(db.port(2), Duration::from_millis(10));
    let mut load = Load::default();
    load.client(processes::client(line.port), |client, _| {
        let mut transaction = client.transaction().expect("begin");
        let portal = transaction.bind("select a from far", &[]).expect("bind");
        for _ in 0..50 {
            let rows = transaction.query_portal(&portal, 10).expect("rows");
            assert_eq!(rows.len(), 10);
        }
    });
    let title = "Results are fetched in small pieces over a long line";
    expect(db, title, "2", "select a from far");
}

/// Results are large, and the line takes longer than the small buffers of the kernel can hide.
#[test]
fn limits_of_the_kernel() {
    let limits = ["net.ipv4.tcp_wmem=4096 16384 65536"];
    let Some(_network) = machine::OwnNetwork::enter(&limits) else {
        return;
    };
    let db = up("kernel", 2, &[]);
    run(
        &mut db.client(1),
        "create table results(a int, filler text); \
         insert into results select g, repeat('x', 1000) from generate_series(1, 5000) g",
    );
    let line = machine::Line::to(db.port(2), Duration::from_millis(10));
    let mut load = Load::default();
    load.client(processes::client(line.port), |client, _| {
        let sql = "select * from results";
        assert_eq!(client.query(sql, &[]).expect(sql).len(), 5000);
    });
    let title = "A limit of the kernel keeps TCP from filling the line";
    expect(&db, title, "2", "net.ipv4.tcp_wmem");
    drop(load);
    db.verify();
}

#[test]
fn a_cache_that_is_too_small() {
    let db = up("cache", 2, &["--buffer-cache", "16MB"]);
    run(
        &mut db.client(2),
        "create table wide(a int primary key, filler text); \
         insert into wide select g, repeat('x', 1800) from generate_series(1, 24000) g; checkpoint",
    );
    let mut load = Load::default();
    load.client(db.client(2), |client, round| {
        let sql = "select filler from wide where a = $1";
        let key = (round * 7919 % 24_000 + 1) as i32;
        client.query_one(sql, &[&key]).expect(sql);
    });
    let title = "The buffer cache is too small for what is read";
    expect(&db, title, "2", "select filler from wide");
    drop(load);
    db.verify();
}

/// Clients that change rows of several tables on both instances: their blocks travel, and no object
/// stands out.
fn travelling(db: &Database) -> Load {
    let mut one = db.client(1);
    for t in 0..4 {
        run(
            &mut one,
            &format!(
                "create table travels{t}(a int primary key, n int); \
                 insert into travels{t} select g, 0 from generate_series(1, 8) g"
            ),
        );
    }
    let mut load = Load::default();
    for k in 1..=2u16 {
        load.client(db.client(k), move |client, round| {
            let sql = format!("update travels{} set n = n + 1 where a = $1", round % 4);
            client.execute(&sql, &[&i32::from(k)]).expect("updated");
        });
    }
    load
}

#[test]
fn a_slow_log_disk() {
    let db = up("slow-log", 2, &[]);
    let log = std::path::Path::new(&db.data()).join("redo");
    let Some(_slow) = machine::SlowWrites::of(db.pid(2), &log, "thread2_", "50000") else {
        return;
    };
    let load = travelling(&db);
    expect(&db, "The log disk is slow", "2", "");
    drop(load);
    drop(_slow);
    db.verify();
}

/// Has instance 2 go on with other settings than instance 1.
fn again_with(db: &Database, settings: &[&str]) {
    let data = db.data();
    processes::succeeds(&["stop", "2", "--data", &data]);
    processes::succeeds(&[&["start", "2", "--data", &data], settings].concat());
}

#[test]
fn threads_that_serve_blocks_without_a_processor() {
    let ordinary = ["--set", "background_priority=ordinary"];
    let db = up("lms", 2, &ordinary);
    again_with(&db, &[&ordinary[..], &["--set", "lms_cpus=0"]].concat());
    let mut two = db.client_when_open(2);
    let threads = processes::rows(
        &mut two,
        "select spid from v$process where pname like 'lms%'",
    );
    let _hogs = machine::Hogs::beside(&threads, 4);
    let load = travelling(&db);
    let title = "The threads that serve blocks to other instances get no processor";
    expect(&db, title, "2", "LMS");
    drop(load);
}

/// All sessions of a service are at an instance with one processor; another one idles.
#[test]
fn a_service_at_one_instance_alone() {
    if is_busy() || std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        println!("not tried: no processor is idle here");
        return;
    }
    let db = up("service", 2, &["--set", "instance_cpus=0"]);
    again_with(&db, &["--set", "instance_cpus=1"]);
    let data = db.data();
    processes::succeeds(&[
        "service",
        "add",
        "orders",
        "--preferred",
        "1",
        "--data",
        &data,
    ]);
    run(
        &mut db.client(1),
        "create table heavy(a int); insert into heavy select generate_series(1, 20000)",
    );
    let mut load = Load::default();
    for _ in 0..4 {
        let mut config = processes::config(db.port(1));
        let client = config
            .dbname("orders")
            .connect(postgres::NoTls)
            .expect("orders");
        load.client(client, |client, round| {
            let sql = "select count(*) from heavy where a % 7 = $1";
            client.query_one(sql, &[&((round % 7) as i32)]).expect(sql);
        });
    }
    let title = "A service's sessions crowd one instance while another has room";
    expect(&db, title, "1", "orders");
    drop(load);
    db.verify();
}
