//! Statements that take too long, wait too long for a lock, or are cancelled: in every place where
//! a statement can be long, over real connections. Nothing here depends on the speed of the
//! machine, except that it must not finish these statements within the timeout.

use postgres::{Client, NoTls};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::processes::Instance;

/// How soon a statement must have noticed, on a machine that has much else to do.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

const ROWS: i64 = 200_000;

/// Statements that run for minutes if nothing stops them.
const LONG: &[&str] = &[
    "select pg_sleep(1000)",
    // A series, its aggregate, a sort that keeps little of much, a write.
    "select count(*) from generate_series(1, 100000000000)",
    "select count(*) from generate_series(1, 9000000000000000000, 4096)",
    "select g from generate_series(1, 100000000000) g order by g % 7 limit 1",
    "insert into sink select g from generate_series(1, 100000000000) g",
    // Many pairs of rows, each of which is refused.
    "select count(*) from big a join big b on b.grp = a.grp where a.id + b.id < 0 and a.pad <> b.pad",
    // Products, with a sort.
    "select count(*) from big a, big b where a.id + b.id = -1 and a.pad <= b.pad",
    "select sum(x) from (select a.id * b.id as x from big a, big b order by a.pad, b.pad) s",
    // These read hardly anything, but multiply what they read.
    "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b",
    "with recursive t(n) as (select 1 union all select n + 1 - n from t) select count(*) from t",
    "copy (select a.id from big a, big b, big c where a.id + b.id + c.id = -1) to stdout",
];

fn code(e: &postgres::Error) -> (String, String) {
    let db = e
        .as_db_error()
        .unwrap_or_else(|| panic!("an error of the server, not {e}"));
    (db.code().code().to_string(), db.message().to_string())
}

/// Runs a statement to its end.
fn run(client: &mut Client, sql: &str) -> Result<(), postgres::Error> {
    if !sql.starts_with("copy") {
        return client.simple_query(sql).map(drop);
    }
    let read = std::io::copy(&mut client.copy_out(sql)?, &mut std::io::sink());
    read.map(drop).map_err(|e| {
        let inner = e.into_inner().expect("an error of the server");
        *inner.downcast().expect("of the server")
    })
}

fn expect(client: &mut Client, sql: &str, sqlstate: &str, message: &str) {
    let started = Instant::now();
    let e = run(client, sql).expect_err(&format!("{sql} finished"));
    assert_eq!(
        code(&e),
        (sqlstate.to_string(), message.to_string()),
        "{sql}"
    );
    assert!(
        started.elapsed() < NOTICED_WITHIN,
        "{sql} took {:?}",
        started.elapsed()
    );
    client
        .simple_query("rollback; select 1")
        .expect("the session goes on");
}

fn prepare(client: &mut Client) {
    client
        .batch_execute(
            "create table big (id bigint primary key, grp int, pad text);
             create index big_grp on big (grp);
             create table sink (id bigint);
             create table account (id int primary key, balance int);
             insert into account values (1, 0), (2, 0)",
        )
        .unwrap();
    let insert =
        format!("insert into big select g, 1, 'row ' || g from generate_series(1, {ROWS}) g");
    client.batch_execute(&insert).unwrap();
}

#[test]
fn statement_timeout_and_cancel_reach_every_long_statement() {
    let instance = Instance::start("timeouts");
    let mut client = instance.client();
    prepare(&mut client);
    client
        .batch_execute("set statement_timeout = '100ms'")
        .unwrap();
    for sql in LONG {
        let message = "canceling statement due to statement timeout";
        expect(&mut client, sql, "57014", message);
    }
    client.batch_execute("set statement_timeout = 0").unwrap();
    for sql in LONG {
        let token = client.cancel_token();
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            // The cancel is sent again and again, since the first may come before the statement. A
            // cancel that meets an idle session does nothing.
            s.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    token.cancel_query(NoTls).unwrap();
                }
            });
            let e = run(&mut client, sql).expect_err("it was cancelled");
            done.store(true, Ordering::Release);
            let message = "canceling statement due to user request".to_string();
            assert_eq!(code(&e), ("57014".to_string(), message), "{sql}");
        });
        client
            .simple_query("select 1")
            .expect("the session goes on");
    }
}

/// Sends data whose end does not come for a second.
fn copy_for_a_second(client: &mut Client) -> Result<u64, postgres::Error> {
    let mut copy = client.copy_in("copy sink from stdin")?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(1) {
        if let Err(e) = copy.write_all(&b"1\n".repeat(4000)) {
            let inner = e.into_inner().expect("an error of the server");
            return Err(*inner.downcast().expect("of the server"));
        }
    }
    copy.finish()
}

#[test]
fn statement_timeout_ends_a_copy_from() {
    let instance = Instance::start("timeouts-copy");
    let mut client = instance.client();
    prepare(&mut client);
    client
        .batch_execute("set statement_timeout = '300ms'")
        .unwrap();
    let e = copy_for_a_second(&mut client).expect_err("the time is over");
    let message = "canceling statement due to statement timeout".to_string();
    assert_eq!(code(&e), ("57014".to_string(), message));
    let row = client.query_one("select count(*) from sink", &[]).unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}

#[test]
fn locks_are_waited_for_so_long() {
    let instance = Instance::start("timeouts-locks");
    let (mut holder, mut waiter) = (instance.client(), instance.client());
    prepare(&mut holder);
    holder
        .batch_execute(
            "begin;
             update account set balance = 1 where id = 1;
             insert into account values (3, 0);
             select pg_advisory_lock(7)",
        )
        .unwrap();
    let waits = [
        "update account set balance = 2 where id = 1",
        "delete from account where id = 1",
        "select * from account where id = 1 for update",
        "insert into account values (3, 1)",
        "truncate account",
        "alter table account add column c int",
        "select pg_advisory_lock(7)",
    ];
    waiter.batch_execute("set lock_timeout = '50ms'").unwrap();
    for sql in waits {
        let message = "canceling statement due to lock timeout";
        expect(&mut waiter, sql, "55P03", message);
    }
    // The shorter of the two timeouts counts.
    waiter
        .batch_execute("set lock_timeout = '1h'; set statement_timeout = '50ms'")
        .unwrap();
    for sql in waits {
        let message = "canceling statement due to statement timeout";
        expect(&mut waiter, sql, "57014", message);
    }
    expect(
        &mut waiter,
        "select * from account where id = 1 for update nowait",
        "55P03",
        "could not obtain lock on row in relation \"account\"",
    );
    expect(
        &mut waiter,
        "begin; lock table account in share mode nowait",
        "55P03",
        "could not obtain lock on relation \"account\"",
    );
    holder.batch_execute("commit").unwrap();
    waiter.batch_execute("set statement_timeout = 0").unwrap();
    waiter.batch_execute(waits[0]).unwrap();
}

#[test]
fn idle_sessions_end() {
    let instance = Instance::start("timeouts-idle");
    let (mut idle, mut waiter) = (instance.client(), instance.client());
    prepare(&mut waiter);
    idle.batch_execute(
        "set idle_in_transaction_session_timeout = '100ms';
         begin; update account set balance = 9 where id = 1",
    )
    .unwrap();
    // Waits until the other session has ended, and its transaction with it.
    waiter
        .batch_execute("update account set balance = balance + 1 where id = 1")
        .unwrap();
    let row = waiter
        .query_one("select balance from account where id = 1", &[])
        .unwrap();
    assert_eq!(row.get::<_, i32>(0), 1);
    assert!(idle.batch_execute("commit").is_err());

    let mut idle = instance.client();
    idle.batch_execute("select pg_advisory_lock(5); set idle_session_timeout = '100ms'")
        .unwrap();
    waiter.batch_execute("select pg_advisory_lock(5)").unwrap();
    assert!(idle.batch_execute("select 1").is_err());
}
