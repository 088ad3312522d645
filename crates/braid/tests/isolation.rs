//! The classic anomalies, by hand, over two or three connections. After Adya's classes as the Hermitage suite arranges them
//! (github.com/ept/hermitage); the histories are written anew. READ COMMITTED must prevent G0, G1a-c, OTV and PMP for writes as PostgreSQL
//! does; REPEATABLE READ (snapshot isolation) must prevent PMP, P4 and G-single too, and does permit G2 (write skew).

mod common;

use common::Instance;
use postgres::{Client, SimpleQueryMessage};
use std::sync::mpsc;
use std::thread;

struct Db {
    instance: Instance,
}

impl Db {
    fn new(name: &str) -> Db {
        let instance = Instance::start(name);
        let db = Db { instance };
        db.connect()
            .batch_execute("create table test (id int primary key, value int)")
            .expect("schema");
        db
    }
    fn connect(&self) -> Client {
        self.instance.client()
    }
    fn reset(&self) {
        self.connect()
            .batch_execute("delete from test; insert into test values (1, 10), (2, 20)")
            .expect("reset");
    }
    fn begin(&self, level: &str) -> Client {
        let mut c = self.connect();
        c.batch_execute(&format!("begin isolation level {level}"))
            .expect("begin");
        c
    }
}

fn rows(c: &mut Client, sql: &str) -> Vec<(i32, i32)> {
    let mut rows: Vec<_> = c
        .simple_query(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
        .iter()
        .filter_map(|m| match m {
            SimpleQueryMessage::Row(r) => Some((
                r.get(0).expect("id").parse().expect("int"),
                r.get(1).expect("value").parse().expect("int"),
            )),
            _ => None,
        })
        .collect();
    rows.sort_unstable();
    rows
}

fn all(c: &mut Client) -> Vec<(i32, i32)> {
    rows(c, "select id, value from test")
}

fn run(c: &mut Client, sql: &str) {
    c.batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

fn code(r: Result<(), postgres::Error>) -> String {
    r.err()
        .and_then(|e| e.code().map(|c| c.code().to_string()))
        .unwrap_or_default()
}

/// Starts `sql` on its own thread, waits until the server shows that it waits for a row, lets `meanwhile` run, and returns
/// the connection and the statement's outcome.
fn blocked(
    db: &Db,
    mut c: Client,
    sql: &'static str,
    meanwhile: impl FnOnce(),
) -> (Client, Result<(), postgres::Error>) {
    let (send, receive) = mpsc::channel();
    let t = thread::spawn(move || {
        let r = c.batch_execute(sql);
        send.send(()).expect("receiver");
        (c, r)
    });
    let mut watcher = db.connect();
    loop {
        let waiting = watcher
            .query(
                "select 1 from v$session_wait where event = 'enq: TX - row lock contention'",
                &[],
            )
            .expect("v$session_wait");
        if !waiting.is_empty() {
            break;
        }
        assert!(receive.try_recv().is_err(), "{sql} did not wait");
        thread::yield_now();
    }
    meanwhile();
    t.join().expect("thread")
}

const RC: &str = "read committed";
const RR: &str = "repeatable read";

#[test]
fn g0_dirty_writes_are_prevented() {
    let db = Db::new("g0");
    for level in [RC, RR] {
        db.reset();
        let (mut a, b) = (db.begin(level), db.begin(level));
        run(&mut a, "update test set value = 11 where id = 1");
        let (mut b, r) = blocked(&db, b, "update test set value = 12 where id = 1", || {
            run(&mut a, "update test set value = 21 where id = 2; commit");
        });
        if level == RR {
            assert_eq!(code(r), "40001");
            continue;
        }
        r.expect("goes on with the newest version");
        run(&mut b, "update test set value = 22 where id = 2; commit");
        assert_eq!(all(&mut db.connect()), [(1, 12), (2, 22)]);
    }
}

#[test]
fn g1a_aborted_reads_are_prevented() {
    let db = Db::new("g1a");
    for level in [RC, RR] {
        db.reset();
        let (mut a, mut b) = (db.begin(level), db.begin(level));
        run(&mut a, "update test set value = 101 where id = 1");
        assert_eq!(all(&mut b), [(1, 10), (2, 20)]);
        run(&mut a, "rollback");
        assert_eq!(all(&mut b), [(1, 10), (2, 20)]);
    }
}

#[test]
fn g1b_intermediate_reads_are_prevented() {
    let db = Db::new("g1b");
    for level in [RC, RR] {
        db.reset();
        let (mut a, mut b) = (db.begin(level), db.begin(level));
        run(&mut a, "update test set value = 101 where id = 1");
        assert_eq!(all(&mut b), [(1, 10), (2, 20)]);
        run(&mut a, "update test set value = 11 where id = 1; commit");
        let seen = all(&mut b);
        assert_eq!(
            seen,
            if level == RC {
                [(1, 11), (2, 20)]
            } else {
                [(1, 10), (2, 20)]
            }
        );
    }
}

#[test]
fn g1c_circular_information_flow_is_prevented() {
    let db = Db::new("g1c");
    for level in [RC, RR] {
        db.reset();
        let (mut a, mut b) = (db.begin(level), db.begin(level));
        run(&mut a, "update test set value = 11 where id = 1");
        run(&mut b, "update test set value = 22 where id = 2");
        assert_eq!(
            rows(&mut a, "select id, value from test where id = 2"),
            [(2, 20)]
        );
        assert_eq!(
            rows(&mut b, "select id, value from test where id = 1"),
            [(1, 10)]
        );
        run(&mut a, "commit");
        run(&mut b, "commit");
    }
}

#[test]
fn otv_observed_transaction_vanishes_is_prevented() {
    let db = Db::new("otv");
    db.reset();
    let (mut a, b, mut c) = (db.begin(RC), db.begin(RC), db.begin(RC));
    run(
        &mut a,
        "update test set value = 11 where id = 1; update test set value = 19 where id = 2",
    );
    let (mut b, r) = blocked(&db, b, "update test set value = 12 where id = 1", || {
        run(&mut a, "commit")
    });
    r.expect("goes on");
    assert_eq!(all(&mut c), [(1, 11), (2, 19)]);
    run(&mut b, "update test set value = 18 where id = 2");
    assert_eq!(all(&mut c), [(1, 11), (2, 19)]);
    run(&mut b, "commit");
    assert_eq!(all(&mut c), [(1, 12), (2, 18)]);
}

#[test]
fn pmp_predicate_many_preceders() {
    let db = Db::new("pmp");
    db.reset();
    let (mut a, mut b) = (db.begin(RR), db.begin(RR));
    assert_eq!(
        rows(&mut a, "select id, value from test where value = 30"),
        []
    );
    run(&mut b, "insert into test values (3, 30); commit");
    assert_eq!(
        rows(&mut a, "select id, value from test where value % 3 = 0"),
        []
    );

    // The write predicate: READ COMMITTED deletes what the newest version of the rows found says, as PostgreSQL does.
    db.reset();
    let (mut a, b) = (db.begin(RC), db.begin(RC));
    run(&mut a, "update test set value = value + 10");
    let (mut b, r) = blocked(&db, b, "delete from test where value = 20", || {
        run(&mut a, "commit")
    });
    r.expect("goes on");
    run(&mut b, "commit");
    assert_eq!(
        all(&mut db.connect()),
        [(1, 20), (2, 30)],
        "the row of value 20 had another value when it was found"
    );

    db.reset();
    let (mut a, b) = (db.begin(RR), db.begin(RR));
    run(&mut a, "update test set value = value + 10");
    let (_, r) = blocked(&db, b, "delete from test where value = 20", || {
        run(&mut a, "commit")
    });
    assert_eq!(code(r), "40001");
}

#[test]
fn p4_lost_update() {
    let db = Db::new("p4");
    db.reset();
    let (mut a, mut b) = (db.begin(RR), db.begin(RR));
    all(&mut a);
    all(&mut b);
    run(&mut a, "update test set value = 11 where id = 1");
    let (_, r) = blocked(&db, b, "update test set value = 11 where id = 1", || {
        run(&mut a, "commit")
    });
    assert_eq!(code(r), "40001");
}

#[test]
fn g_single_read_skew() {
    let db = Db::new("gsingle");
    db.reset();
    let (mut a, mut b) = (db.begin(RR), db.begin(RR));
    assert_eq!(
        rows(&mut a, "select id, value from test where id = 1"),
        [(1, 10)]
    );
    all(&mut b);
    run(
        &mut b,
        "update test set value = 12 where id = 1; update test set value = 18 where id = 2; commit",
    );
    assert_eq!(
        rows(&mut a, "select id, value from test where id = 2"),
        [(2, 20)]
    );
    // A write that rests on the old snapshot is refused.
    assert_eq!(
        code(a.batch_execute("delete from test where value = 20")),
        "40001"
    );
}

#[test]
fn g2_write_skew_is_permitted_by_snapshot_isolation_and_serializable_is_refused() {
    let db = Db::new("g2");
    db.reset();
    let (mut a, mut b) = (db.begin(RR), db.begin(RR));
    all(&mut a);
    all(&mut b);
    run(&mut a, "update test set value = 11 where id = 1; commit");
    run(&mut b, "update test set value = 21 where id = 2; commit");
    assert_eq!(all(&mut db.connect()), [(1, 11), (2, 21)]);
    assert_eq!(
        code(
            db.connect()
                .batch_execute("begin isolation level serializable")
        ),
        "0A000"
    );
}
