//! Prepared statements beside definitions that change: they are analysed again, keep what the
//! client knows of their result, and fail with what drivers go by.

use crate::Pair;
use crate::client::{Answer, Client};

/// Fails with this SQLSTATE, and with this field R, if drivers go by it.
#[track_caller]
fn fails(answer: Answer, sqlstate: &str, routine: &str) {
    let failure = answer
        .failure
        .unwrap_or_else(|| panic!("no error, but {:?}", answer.tags));
    assert_eq!(failure.sqlstate, sqlstate, "{}", failure.message);
    if !routine.is_empty() {
        assert_eq!(failure.routine, routine, "{}", failure.message);
    }
}

fn table(pair: &Pair) -> (Client, Client) {
    let (mut one, two) = (pair.connect(1), pair.connect(2));
    one.simple("drop table t");
    one.run("create table t (id int primary key, k int); insert into t values (1, 10)");
    (one, two)
}

/// A result that changes is refused by Bind, Describe and EXECUTE, in the words by which drivers
/// recognise it, until the statement is prepared again. One that stays is not.
#[test]
fn a_prepared_statement_keeps_its_result() {
    const STALE: (&str, &str) = ("0A000", "RevalidateCachedQuery");
    let pair = Pair::up("result");
    let (mut one, mut two) = table(&pair);
    let all = two.prepare("all", "select * from t").done();
    let sum = two
        .prepare("sum", "select sum(k) from t group by id")
        .done();
    let insert = two
        .prepare("insert", "insert into t values ($1, $2)")
        .done();
    two.run("prepare sql as select * from t");
    one.run("alter table t add column c int default 7");
    fails(two.prepared("all", &all, &[]), STALE.0, STALE.1);
    fails(two.describe("all"), STALE.0, STALE.1);
    fails(two.simple("execute sql"), STALE.0, STALE.1);
    // Once more: it is not forgotten that the client knows another result.
    fails(two.prepared("all", &all, &[]), STALE.0, STALE.1);
    assert_eq!(two.prepared("sum", &sum, &[]).done().text(), "10");
    two.prepared("insert", &insert, &["2", "20"]).done();
    let again = two.prepare("all", "select * from t").done();
    assert_eq!(
        two.prepared("all", &again, &[]).done().text(),
        "1|10|7\n2|20|7"
    );
    two.run("deallocate sql; prepare sql as select * from t");
    assert_eq!(two.run("execute sql").text(), "1|10|7\n2|20|7");

    // The table is another one with the same columns.
    one.run("drop table t; create table t (id int, k int, c int); insert into t values (5, 6, 7)");
    assert_eq!(two.prepared("all", &again, &[]).done().text(), "5|6|7");
    assert_eq!(two.run("execute sql").text(), "5|6|7");
    // It is missing, and comes back.
    one.run("alter table t rename to t2");
    fails(two.prepared("all", &again, &[]), "42P01", "");
    one.run("alter table t2 rename to t");
    assert_eq!(two.prepared("all", &again, &[]).done().text(), "5|6|7");
    // Another type under the same name.
    one.run("drop table t; create table t (id int, k int, c bigint)");
    fails(two.prepared("all", &again, &[]), STALE.0, STALE.1);
    pair.verify();
}

/// A prepared statement whose table is being changed waits, and then goes by the change.
#[test]
fn a_prepared_statement_waits_for_the_change_of_its_table() {
    let pair = Pair::up("prepared-waits");
    let (mut one, mut two) = table(&pair);
    let all = two.prepare("all", "select * from t").done();
    let ids = two.prepare("ids", "select id from t").done();
    let upsert = "insert into t values (1, 11) on conflict (id) do update set k = excluded.k";
    let upsert = two.prepare("upsert", upsert).done();
    let mut watcher = pair.connect(1);
    let mut waits = |ddl: &str, name: &str, told: &Answer| {
        one.run("begin");
        one.run(ddl);
        std::thread::scope(|s| {
            let waiter = s.spawn(|| two.prepared(name, told, &[]));
            pair.until_one_waits(&mut watcher, name);
            one.run("commit");
            waiter.join().expect("an answer")
        })
    };
    fails(
        waits("alter table t add column c int", "all", &all),
        "0A000",
        "RevalidateCachedQuery",
    );
    let dropped = waits("alter table t drop column c", "all", &all);
    assert_eq!(dropped.done().text(), "1|10");
    let added = waits("alter table t add column c int", "ids", &ids);
    assert_eq!(added.done().text(), "1");
    let truncated = waits("truncate t", "upsert", &upsert);
    assert_eq!(truncated.done().tags, ["INSERT 0 1"]);
    let dropped = waits("alter table t drop constraint t_pkey", "upsert", &upsert);
    assert_eq!(dropped.summary(), "! 42P10");
    pair.verify();
}

/// Drivers prepare a statement again when the server does not know it.
#[test]
fn an_unknown_prepared_statement_is_told_as_postgresql_tells_it() {
    let pair = Pair::up("unknown");
    let mut client = pair.connect(1);
    let unknown = ("26000", "FetchPreparedStatement");
    let told = Answer::default();
    fails(client.prepared("nosuch", &told, &[]), unknown.0, unknown.1);
    fails(client.describe("nosuch"), unknown.0, unknown.1);
    fails(client.simple("execute nosuch"), unknown.0, unknown.1);
    fails(client.simple("deallocate nosuch"), unknown.0, unknown.1);
    // Of the unnamed statement drivers know themselves.
    let unnamed = client.prepared("", &told, &[]).failure.expect("an error");
    assert_eq!(unnamed.sqlstate, "26000");
}

/// In a failed transaction nothing is analysed: no lock is waited for, and no other error comes up.
#[test]
fn a_failed_transaction_analyses_nothing() {
    let pair = Pair::up("failed");
    let (mut one, mut two) = table(&pair);
    let all = two.prepare("all", "select * from t").done();
    two.prepare("commit", "commit").done();
    two.run("begin");
    two.simple("select 1 / 0");
    one.run("begin; alter table t add column c int");
    for sql in [
        "select * from t",
        "select * from nosuch",
        "fetch 1 from nosuch",
        "execute x",
    ] {
        assert_eq!(two.simple(sql).summary(), "! 25P02", "{sql}");
        assert_eq!(two.unnamed(sql, &[]).summary(), "! 25P02", "{sql}");
    }
    fails(two.describe("all"), "25P02", "");
    fails(two.prepared("all", &all, &[]), "25P02", "");
    one.run("commit");
    let ended = two.prepared("commit", &Answer::default(), &[]);
    assert_eq!(ended.summary(), "ROLLBACK");
    assert_eq!(two.run("select count(*) from t").text(), "1");
    pair.verify();
}

/// The locks of a Parse are its transaction's; a BEGIN in the same message keeps them, and sets its
/// modes before the first snapshot only.
#[test]
fn begin_in_an_implicit_transaction_has_its_modes() {
    let pair = Pair::up("modes");
    let (mut one, mut two) = table(&pair);
    let late = two.simple("select count(*) from t; begin isolation level repeatable read");
    assert_eq!(late.failure.expect("it is late").sqlstate, "25001");
    assert_eq!(
        two.run("show transaction_isolation").text(),
        "read committed"
    );
    two.run("set extra_float_digits = 1; begin isolation level repeatable read");
    assert_eq!(
        two.run("show transaction_isolation").text(),
        "repeatable read"
    );
    two.run("commit");
    two.run("select 1; begin read only");
    assert_eq!(
        two.simple("insert into t values (9, 9)").summary(),
        "! 25006"
    );
    two.run("rollback");
    one.run("drop table t");
    pair.verify();
}
