//! The classic anomalies, by hand, over two or three connections. They follow Adya's classes as the
//! Hermitage suite arranges them (github.com/ept/hermitage); the histories are written anew. READ
//! COMMITTED must prevent G0, G1a-c, OTV and PMP for writes, as PostgreSQL does. REPEATABLE READ
//! (snapshot isolation) must also prevent PMP, P4 and G-single, and does permit G2 (write skew).

use postgres::{Client, SimpleQueryMessage};
use std::sync::mpsc;
use std::thread;
use testkit::processes::Instance;

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

/// Starts `sql` on its own thread, waits until the server shows that it waits for a row, and runs
/// `meanwhile`. Returns the connection and the statement's outcome.
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

    // The write predicate: READ COMMITTED deletes by the newest version of the rows found, as
    // PostgreSQL does.
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

/// A suspended portal reads by its own snapshot, whatever its transaction does in between. The
/// snapshot has a registration of its own. If it were in the transaction's one place, the next
/// statement would take that place, and a rollback to a savepoint would clear it. Then the horizon
/// would pass the snapshot, and the rows that the portal had still to read would be purged.
#[test]
fn a_suspended_portal_keeps_its_snapshot() {
    let db = Db::new("portal");
    let mut watcher = db.connect();
    let mut statistic = |name: &str| -> i64 {
        let sql = "select value from v$undostat where statistic = $1";
        watcher.query_one(sql, &[&name]).expect(name).get(0)
    };
    for (level, between) in [
        (RC, "select count(*) from test where id > 5"),
        (
            RC,
            "savepoint s; update test set value = 0 where id = 3; rollback to s",
        ),
        (RR, "savepoint s; select 1; rollback to s"),
    ] {
        for declared in [false, true] {
            let what = format!("{level}, {between}, declared: {declared}");
            let mut writer = db.connect();
            run(
                &mut writer,
                "delete from test; insert into test select g, g from generate_series(1, 500) g",
            );
            let mut reader = db.connect();
            let mut txn = reader.transaction().expect("begin");
            txn.batch_execute(&format!("set transaction isolation level {level}"))
                .expect("level");
            let portal = match declared {
                false => Some(txn.bind("select value from test", &[]).expect("bind")),
                true => {
                    txn.batch_execute("declare c cursor for select value from test")
                        .expect("declare");
                    None
                }
            };
            let mut seen: Vec<i32> = Vec::new();
            let mut fetch = |txn: &mut postgres::Transaction<'_>, n: i32| {
                let rows = match &portal {
                    Some(portal) => txn.query_portal(portal, n),
                    None if n == 0 => txn.query("fetch all from c", &[]),
                    None => txn.query("fetch 1 from c", &[]),
                };
                seen.extend(rows.expect("rows").iter().map(|r| r.get::<_, i32>(0)));
            };
            fetch(&mut txn, 1);
            // Waits until only the reader and this session have a snapshot. If the reader's
            // transaction keeps its own, that is one more, and a declared cursor keeps the one that
            // it began with, in case that it goes back.
            let registered = 2 + i64::from(level == RR) + i64::from(declared);
            while statistic("registered snapshots") > registered {
                std::thread::yield_now();
            }
            let before = statistic("horizon (SCN)");
            run(&mut writer, "update test set value = -1; delete from test");
            txn.batch_execute(between).expect(between);
            run(&mut writer, "insert into test values (1000, 1000)");
            assert_eq!(
                statistic("horizon (SCN)"),
                before,
                "{what}: the horizon stays"
            );
            fetch(&mut txn, 0);
            seen.sort_unstable();
            assert_eq!(seen, (1..=500).collect::<Vec<_>>(), "{what}");
            // The rest of the transaction sees what has been committed since, or not, by its level.
            let now = txn
                .query("select value from test", &[])
                .expect("rows")
                .len();
            assert_eq!(now, if level == RC { 1 } else { 500 }, "{what}");
            txn.commit().expect("commit");
            assert!(
                statistic("horizon (SCN)") > before,
                "{what}: nothing is held any more"
            );
        }
    }
}

/// A portal ends with its transaction, also if the client goes on in the same packet.
#[test]
fn a_portal_does_not_outlive_its_transaction() {
    let db = Db::new("portalend");
    db.reset();
    let mut c = db.connect();
    let mut txn = c.transaction().expect("begin");
    let portal = txn.bind("select value from test", &[]).expect("bind");
    assert_eq!(txn.query_portal(&portal, 1).expect("row").len(), 1);
    txn.batch_execute("rollback; begin")
        .expect("another transaction");
    let e = txn
        .query_portal(&portal, 1)
        .expect_err("the portal is gone");
    assert_eq!(e.code().map(|c| c.code()), Some("34000"));
}

/// A portal begun after a savepoint ends with a rollback to it, because what it reads may be gone.
/// A portal begun before goes on.
#[test]
fn a_rollback_to_a_savepoint_ends_younger_portals_only() {
    let db = Db::new("portalsavepoint");
    db.reset();
    let mut c = db.connect();
    let mut txn = c.transaction().expect("begin");
    let older = txn.bind("select id from test", &[]).expect("bind");
    assert_eq!(txn.query_portal(&older, 1).expect("row").len(), 1);
    for round in 0..2 {
        let again = if round == 0 {
            "savepoint s"
        } else {
            "select 1"
        };
        txn.batch_execute(&format!(
            "{again}; create table young (id int); insert into young values (1), (2); \
             declare young cursor for select id from young"
        ))
        .expect("a table");
        let younger = txn.bind("select id from young", &[]).expect("bind");
        assert_eq!(txn.query_portal(&younger, 1).expect("row").len(), 1);
        txn.batch_execute("rollback to s").expect("rollback");
        for sql in ["fetch 1 from young", ""] {
            let e = match sql {
                "" => txn
                    .query_portal(&younger, 1)
                    .expect_err("the portal is gone"),
                sql => txn.query(sql, &[]).expect_err("the cursor is gone"),
            };
            assert_eq!(
                e.code().map(|c| c.code()),
                Some("34000"),
                "round {round}: {e}"
            );
            txn.batch_execute("rollback to s").expect("rollback");
        }
    }
    assert_eq!(txn.query_portal(&older, 1).expect("row").len(), 1);
}

/// Each lock excludes the strongest, and those that exclude others of their kind exclude it.
#[test]
fn row_locks_by_all_their_names() {
    let db = Db::new("rowlocks");
    db.reset();
    for strength in ["update", "no key update", "share", "key share"] {
        let (mut a, mut b) = (db.begin(RC), db.begin(RC));
        run(
            &mut a,
            &format!("select * from test where id = 1 for {strength}"),
        );
        let refused = b.batch_execute("select * from test where id = 1 for update nowait");
        assert_eq!(code(refused), "55P03", "for {strength}");
        let mut c = db.begin(RC);
        let free = format!("select * from test for {strength} skip locked");
        let shared = strength.contains("share");
        let wanted: &[_] = if shared {
            &[(1, 10), (2, 20)]
        } else {
            &[(2, 20)]
        };
        assert_eq!(rows(&mut c, &free), wanted, "for {strength}");
    }
}

/// The table and its rows come with the transaction, and go with it.
#[test]
fn a_table_made_of_a_query() {
    let db = Db::new("tableas");
    db.reset();
    let mut c = db.connect();
    run(&mut c, "begin; create table gone as select * from test");
    assert_eq!(rows(&mut c, "select * from gone"), [(1, 10), (2, 20)]);
    run(&mut c, "rollback");
    assert_eq!(code(c.batch_execute("select * from gone")), "42P01");
    let made = c
        .execute(
            "create table copies as select a.id, a.value * 2 as double, 'x' as text, a.value::numeric(9,2) as n \
             from test a join test b on a.id <> b.id",
            &[],
        )
        .expect("a table");
    assert_eq!(made, 2);
    let all = rows(&mut c, "select id, double from copies");
    assert_eq!(all, [(1, 20), (2, 40)]);
    let n: String = c
        .query_one("select n::text || text from copies where id = 2", &[])
        .expect("a row")
        .get(0);
    assert_eq!(n, "20.00x");
    run(
        &mut c,
        "create table if not exists copies as select 1 as other",
    );
    assert_eq!(
        code(c.batch_execute("create table copies as select 1")),
        "42P07"
    );
    assert_eq!(
        code(c.batch_execute("create table twice as select 1 as a, 2 as a")),
        "42701"
    );
    run(
        &mut c,
        "create table none as select * from test where false",
    );
    assert!(all_of(&mut c, "none").is_empty());
}

fn all_of(c: &mut Client, table: &str) -> Vec<(i32, i32)> {
    rows(c, &format!("select id, value from {table}"))
}
