//! Deferrable unique keys over instances: no two rows have a key once all have committed.
//!
//! `BRAID_KEYS_SEED` replays the choices.

use seam::Rng;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use testkit::processes::Database;
use testkit::seeds;

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("deferrable-{name}"), 2, &small)
}

fn code(e: &postgres::Error) -> &str {
    e.code().map_or("none", |c| c.code())
}

/// Two instances insert one key, in transactions that are open at once: neither waits before its
/// check. The check waits for the other transaction, and refuses the key if that has committed.
#[test]
fn a_deferred_check_waits_for_the_other_instance() {
    let database = up("waits");
    let (mut a, mut b) = (database.client(1), database.client(2));
    a.batch_execute("create table u (id int primary key deferrable initially deferred, v text)")
        .expect("a table");
    a.batch_execute("begin; insert into u values (1, 'a')")
        .expect("the first");
    // Outside of the transaction, whose end would take it back.
    b.batch_execute("set lock_timeout = '50ms'").expect("set");
    b.batch_execute("begin; insert into u values (1, 'b')")
        .expect("no wait");
    let refused = b
        .batch_execute("set constraints u_id_key, u_pkey immediate")
        .expect_err("no such constraint");
    assert_eq!(code(&refused), "42704");
    b.batch_execute("rollback; begin; insert into u values (1, 'b')")
        .expect("again");
    let refused = b
        .batch_execute("set constraints u_pkey immediate")
        .expect_err("it waits");
    assert_eq!(code(&refused), "55P03");
    b.batch_execute("rollback; begin; insert into u values (1, 'b')")
        .expect("again");
    a.batch_execute("commit").expect("nobody else has it");
    let refused = b.batch_execute("commit").expect_err("it is taken");
    assert_eq!(code(&refused), "23505");
    // A row that goes makes room, whichever instance has it.
    b.batch_execute(
        "begin; insert into u values (1, 'b'), (2, 'b'); delete from u where v = 'a'; commit",
    )
    .expect("one is left");
    // The check waits for a deletion that is undecided.
    a.batch_execute("begin; delete from u where id = 1")
        .expect("deleted");
    b.batch_execute("begin; insert into u values (1, 'c')")
        .expect("no wait");
    let refused = b.batch_execute("commit").expect_err("it waits");
    assert_eq!(code(&refused), "55P03");
    a.batch_execute("commit").expect("deleted");
    b.batch_execute("insert into u values (1, 'c')")
        .expect("there is room");
    let rows = b.query("select v from u where id = 1", &[]).expect("rows");
    assert_eq!(rows.len(), 1);
    database.verify();
}

const IDS: u64 = 12;

fn step(c: &mut postgres::Client, rng: &mut Rng) -> Result<(), postgres::Error> {
    let (p, q) = (rng.below(IDS), rng.below(IDS));
    match rng.below(6) {
        0 => c.batch_execute("update u set id = (id + 1) % 12, now = (now + 1) % 12"),
        1 => c.batch_execute(&format!(
            "begin; update u set id = case id when {p} then {q} else {p} end
                 where id in ({p}, {q}); commit"
        )),
        2 => c.batch_execute(&format!("insert into u values ({p}, {q})")),
        3 => c.batch_execute(&format!("delete from u where id = {p}")),
        4 => c.batch_execute(&format!(
            "begin; insert into u values ({p}, {q}); savepoint s;
             insert into u values ({p}, {p}); rollback to s;
             delete from u where id = {p} and now <> {q}; commit"
        )),
        _ => c.batch_execute(&format!("update u set now = {q} where id = {p}")),
    }
}

/// Sessions of both instances insert, delete and exchange keys that are checked at the end of the
/// transaction, and keys that are checked at the end of the statement.
#[test]
fn no_key_twice_after_a_storm() {
    const STEPS: u64 = 200;
    let seed = seeds::seed("BRAID_KEYS_SEED");
    let database = up("storm");
    database
        .client(1)
        .batch_execute(
            "create table u (id int primary key deferrable initially deferred,
                 now int unique deferrable);
             insert into u select n, n from generate_series(0, 7) n",
        )
        .expect("a table");
    let (done, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|s| {
        for n in 0..4u64 {
            let (database, done, refused) = (&database, &done, &refused);
            s.spawn(move || {
                let mut rng = Rng(seed.wrapping_mul(1000) + n);
                let mut c = database.client(1 + n as u16 % 2);
                while done.load(SeqCst) < STEPS {
                    let Err(e) = step(&mut c, &mut rng) else {
                        done.fetch_add(1, SeqCst);
                        continue;
                    };
                    let known = ["23505", "40P01", "40001"];
                    assert!(known.contains(&code(&e)), "{e:?}, seed {seed}");
                    refused.fetch_add(1, SeqCst);
                    c.batch_execute("rollback").expect("rolled back");
                }
            });
        }
    });
    assert!(refused.load(SeqCst) > 0, "nothing has met");
    for instance in [1, 2] {
        let mut c = database.client(instance);
        for column in ["id", "now"] {
            let sql = format!("select count(*) - count(distinct {column}) from u");
            let twice: i64 = c.query_one(&sql, &[]).expect("a count").get(0);
            assert_eq!(twice, 0, "{column} on instance {instance}, seed {seed}");
        }
    }
    database.verify();
}
