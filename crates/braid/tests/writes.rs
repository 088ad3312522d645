//! Writes of several sessions to the same rows: INSERT ... ON CONFLICT, and UPDATE ... FROM, whose
//! rows a query finds.

use seam::Rng;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use testkit::processes::Instance;
use testkit::seeds;

const CLIENTS: u64 = 4;
const ROUNDS: u64 = 60;
const KEYS: u64 = 3;

/// Runs `statement` in all clients at once, with keys for `$1`. Returns how many rows were changed.
fn storm(instance: &Instance, statement: &str) -> u64 {
    let seed = seeds::seed("BRAID_SEED");
    let changed = AtomicU64::new(0);
    std::thread::scope(|s| {
        for n in 0..CLIENTS {
            let changed = &changed;
            s.spawn(move || {
                let mut rng = Rng(seed + n);
                let mut client = instance.client();
                for _ in 0..ROUNDS {
                    let key = rng.below(KEYS).to_string();
                    let done = client.execute(&statement.replace("$1", &key), &[]);
                    changed.fetch_add(done.unwrap(), Relaxed);
                }
            });
        }
    });
    changed.into_inner()
}

#[test]
fn every_upsert_counts() {
    let instance = Instance::start("upsert");
    let mut client = instance.client();
    client
        .batch_execute(
            "create table counter (k int primary key, n int not null, extra int unique);
             create table once (k int primary key)",
        )
        .unwrap();
    let upsert = "insert into counter values ($1, 1, $1 + 100) \
                  on conflict (k) do update set n = counter.n + excluded.n";
    assert_eq!(storm(&instance, upsert), CLIENTS * ROUNDS);
    let row = client
        .query_one("select sum(n), count(*) from counter", &[])
        .unwrap();
    assert_eq!(row.get::<_, i64>(0) as u64, CLIENTS * ROUNDS);
    assert!(row.get::<_, i64>(1) as u64 <= KEYS);

    let inserted = storm(
        &instance,
        "insert into once values ($1) on conflict do nothing",
    );
    let row = client.query_one("select count(*) from once", &[]).unwrap();
    assert_eq!(row.get::<_, i64>(0) as u64, inserted);

    // Rows go away and come back while other sessions meet them.
    let delete = std::thread::scope(|s| {
        let deleted = s.spawn(|| storm(&instance, "delete from once where k = $1"));
        let inserted = storm(
            &instance,
            "insert into once values ($1) on conflict (k) do nothing",
        );
        (inserted, deleted.join().unwrap())
    });
    let row = client.query_one("select count(*) from once", &[]).unwrap();
    assert_eq!(inserted + delete.0 - delete.1, row.get::<_, i64>(0) as u64);
    let mut instance = instance;
    drop(client);
    instance.stop();
    instance.verify();
}

#[test]
fn no_update_from_is_lost() {
    let instance = Instance::start("update-from");
    let mut client = instance.client();
    client
        .batch_execute(
            "create table counter (k int primary key, n int not null);
             insert into counter values (0, 0), (1, 0), (2, 0);
             create table step (k int, by int);
             insert into step values (0, 1), (1, 1), (2, 1)",
        )
        .unwrap();
    let update = "update counter c set n = n + s.by from step s where s.k = c.k and c.k = $1";
    assert_eq!(storm(&instance, update), CLIENTS * ROUNDS);
    let row = client.query_one("select sum(n) from counter", &[]).unwrap();
    assert_eq!(row.get::<_, i64>(0) as u64, CLIENTS * ROUNDS);
}

#[test]
fn repeatable_read_refuses_to_meet_what_it_does_not_see() {
    let instance = Instance::start("upsert-rr");
    let (mut a, mut b) = (instance.client(), instance.client());
    a.batch_execute("create table kv (k int primary key, n int)")
        .unwrap();
    for statement in [
        "insert into kv values (1, 1) on conflict (k) do nothing",
        "insert into kv values (1, 1) on conflict (k) do update set n = 2",
    ] {
        b.batch_execute("begin isolation level repeatable read; select count(*) from kv")
            .unwrap();
        a.batch_execute("insert into kv values (1, 0)").unwrap();
        let e = b.batch_execute(statement).expect_err(statement);
        assert_eq!(
            e.code().map(|c| c.code()),
            Some("40001"),
            "{statement}: {e}"
        );
        b.batch_execute("rollback").unwrap();
        a.batch_execute("delete from kv").unwrap();
    }
}
