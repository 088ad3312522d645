//! Views of sessions and locks, and instances that do not answer.

use super::{SOON, connect, run, up};
use std::time::Instant;
use testkit::waiting;
use testkit::wire;

/// The columns of PostgreSQL 15, and one more.
const ACTIVITY: &str = "datid datname pid leader_pid usesysid usename application_name client_addr \
    client_hostname client_port backend_start xact_start query_start state_change wait_event_type \
    wait_event state backend_xid backend_xmin query_id query backend_type inst_id";
const LOCKS: &str = "locktype database relation page tuple virtualxid transactionid classid objid \
    objsubid virtualtransaction pid mode granted fastpath waitstart inst_id";

#[test]
fn views_show_sessions_and_locks_of_both_instances() {
    let pair = up("views");
    let mut one = connect(pair.port(1), "one");
    let mut two = connect(pair.port(2), "two");
    for (view, columns) in [("pg_stat_activity", ACTIVITY), ("pg_locks", LOCKS)] {
        let described = one
            .client
            .prepare(&format!("select * from {view}"))
            .expect(view);
        let names: Vec<&str> = described.columns().iter().map(|c| c.name()).collect();
        assert_eq!(names, columns.split_whitespace().collect::<Vec<_>>());
    }
    one.run("create table t (id int primary key, v int); insert into t values (1, 0)");
    let state = |of: &str| {
        format!(
            "select datname, usename, client_addr, client_port > 0, state, xact_start is not null, query_start <= now(), inst_id, query from pg_stat_activity where application_name = '{of}'"
        )
    };
    two.run("select 7");
    assert_eq!(
        one.one(&state("two")),
        "braid|tester|127.0.0.1|t|idle|f|t|2|select 7"
    );
    two.run("begin; select 8");
    assert_eq!(
        one.one(&state("two")),
        "braid|tester|127.0.0.1|t|idle in transaction|t|t|2|select 8"
    );
    two.error("select 1/0");
    assert_eq!(
        one.one(&state("two")),
        "braid|tester|127.0.0.1|t|idle in transaction (aborted)|t|t|2|select 1/0"
    );
    two.run("rollback");
    let background = "select count(distinct inst_id) from pg_stat_activity where backend_type = 'lgwr' and state is null";
    assert_eq!(one.one(background), "2");

    // Two waits for a row of the other instance, one behind the other.
    one.run("begin; update t set v = 1");
    let (holder, first) = (
        one.pid(),
        run(pair.port(2), "first", "", "update t set v = 2"),
    );
    let mut look = connect(pair.port(1), "look");
    let waits = |pid: i32| {
        format!(
            "select wait_event, state from pg_stat_activity where pid = {pid} and wait_event_type = 'Lock'"
        )
    };
    let event = "enq: TX - row lock contention|active";
    waiting::until("the first waits", || {
        look.rows(&waits(first.pid)) == [event]
    });
    let blocking = |pid: i32| format!("select pg_blocking_pids({pid})");
    for client in [&mut look, &mut two] {
        assert_eq!(client.one(&blocking(first.pid)), format!("{{{holder}}}"));
        assert_eq!(client.one(&blocking(holder)), "{}");
        assert_eq!(client.one(&blocking(1)), "{}");
        // It is an array, of which a monitor takes the elements.
        let elements = format!(
            "select b, b + 1 from unnest(pg_blocking_pids({})) b",
            first.pid
        );
        assert_eq!(client.rows(&elements), [format!("{holder}|{}", holder + 1)]);
        let count = format!(
            "select pid from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0 and {holder} = any (pg_blocking_pids(pid))"
        );
        assert_eq!(client.rows(&count), [first.pid.to_string()]);
        let rows = client.rows("select locktype, mode, granted, pid, waitstart is null, inst_id from pg_locks where transactionid in (select transactionid from pg_locks where not granted) order by granted");
        assert_eq!(
            rows,
            [
                format!("transactionid|ShareLock|f|{}|f|2", first.pid),
                format!("transactionid|ExclusiveLock|t|{holder}|t|1"),
            ]
        );
    }
    let table = format!(
        "select distinct l.pid, l.granted, l.inst_id from pg_locks l join pg_class c on c.oid = l.relation where c.relname = 't' and l.pid = {holder}"
    );
    assert_eq!(two.rows(&table), [format!("{holder}|t|1")]);
    let second = run(pair.port(2), "second", "", "update t set v = 3");
    waiting::until("the second waits", || {
        look.rows(&waits(second.pid)) == [event]
    });
    let blocked_by = look.one(&blocking(second.pid));
    assert!(
        [format!("{{{}}}", first.pid), format!("{{{holder}}}")].contains(&blocked_by),
        "{blocked_by}"
    );
    // For each row of a view, as monitors ask it.
    let all = "select pid, pg_blocking_pids(pid) from pg_stat_activity where wait_event like 'enq: TX%' order by 1";
    assert_eq!(look.rows(all).len(), 2);
    one.run("commit");
    first.join().0.expect("it goes on");
    second.join().0.expect("it goes on");

    // Tables and advisory locks.
    two.run("begin; lock table t in access exclusive mode; select pg_advisory_lock(-7)");
    let (pid, waiter) = (
        two.pid(),
        run(pair.port(1), "waiter", "", "select * from t"),
    );
    waiting::until("a table is waited for", || {
        look.one(&blocking(waiter.pid)) == format!("{{{pid}}}")
    });
    let advisory = run(pair.port(1), "advisory", "", "select pg_advisory_lock(-7)");
    waiting::until("an advisory lock is waited for", || {
        look.one(&blocking(advisory.pid)) == format!("{{{pid}}}")
    });
    let rows = look.rows("select classid, objid, objsubid, pid, granted, mode from pg_locks where locktype = 'advisory' order by granted");
    assert_eq!(
        rows,
        [
            format!("4294967295|4294967289|1|{}|f|ExclusiveLock", advisory.pid),
            format!("4294967295|4294967289|1|{pid}|t|ExclusiveLock"),
        ]
    );
    two.run("select pg_advisory_unlock(-7); commit");
    waiter.join().0.expect("it goes on");
    advisory.join().0.expect("it goes on");
    for client in [&one, &two, &look] {
        assert_eq!(client.said(), [""; 0]);
    }
}

#[test]
fn an_instance_that_hangs_or_dies_is_missing_and_not_waited_for() {
    let pair = up("hangs");
    let (mut one, mut two) = (connect(pair.port(1), "one"), connect(pair.port(2), "two"));
    let pid = two.pid();
    waiting::until("it is seen", || one.is_there(pid));
    one.run("set gv_view_timeout = 300");
    one.said();
    pair.signal(2, "-STOP");
    let asked = Instant::now();
    let rows = one.rows("select distinct inst_id from pg_stat_activity");
    let found = one.one(&format!("select pg_terminate_backend({pid})"));
    let blocking = one.one(&format!("select pg_blocking_pids({pid})"));
    let killed = one.error("alter system kill session '5,5,@2'");
    let mut key = pid.to_be_bytes().to_vec();
    key.extend([1, 2, 3, 4]);
    wire::Client::cancel(pair.port(1), &key);
    let took = asked.elapsed();
    pair.signal(2, "-CONT");
    assert_eq!(
        (rows, found.as_str(), blocking.as_str()),
        (vec!["1".to_string()], "f", "{}")
    );
    assert!(took < SOON, "{took:?}");
    assert_eq!(killed.1, "58000");
    let silent = "it did not answer within 300 ms";
    assert_eq!(
        one.said(),
        [
            format!(
                "WARNING 01000: the rows of instance 2 are missing from pg_stat_activity: {silent}"
            ),
            format!("WARNING 01000: could not send signal to process {pid}: {silent}"),
            // It is not waited for so long again.
            "WARNING 01000: the rows of instance 2 are missing from gv$lock: it did not answer \
             within 250 ms"
                .to_string(),
        ]
    );
    // The order that nobody waited for any more may have been carried out, or not.
    drop(two);
    pair.signal(2, "-9");
    let asked = Instant::now();
    one.rows("select * from pg_stat_activity");
    one.one(&format!("select pg_terminate_backend({pid})"));
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}
