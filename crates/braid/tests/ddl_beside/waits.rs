//! A transaction has changed a definition and not committed; a statement of another session, which
//! nobody prepared, waits for it. Then the statement goes by the definition of then.

use crate::Pair;
use crate::client::{Answer, Client};

/// What there is before each case.
const TABLES: &str = "drop table if exists t, t2, made; drop sequence if exists s;
    create table t (id int primary key, k int); create unique index t_k on t (k);
    create index t_i on t (k, id); insert into t values (1, 10); create sequence s";

/// How a statement is run.
#[derive(Clone, Copy, Debug)]
enum By {
    /// A Query message, and Parse, Bind, Describe and Execute in one round.
    Both,
    /// A Query message: what is not one statement of one result.
    Query,
    /// COPY FROM STDIN of this line.
    Load(&'static str),
}
use By::{Both, Load, Query};

/// The definitions that are changed in one transaction, the statements that wait for it, one at a
/// time, and what each is answered after the commit.
type Case = (&'static str, &'static [(By, &'static str, &'static str)]);

const CASES: &[Case] = &[
    (
        "alter table t add column c int default 7",
        &[
            (Both, "select * from t", "[id k c] 1|10|7 SELECT 1"),
            (Both, "select c from t where id = 1", "[c] 7 SELECT 1"),
            (
                Both,
                "select sum(a.c) from t a join t b using (id) group by a.k",
                "[sum] 7 SELECT 1",
            ),
            (
                Both,
                "select * from t for update",
                "[id k c] 1|10|7 SELECT 1",
            ),
            (
                Both,
                "insert into t (id, k, c) values (2, 2, 2)",
                "INSERT 0 1",
            ),
            (
                Both,
                "insert into t values (2, 2) returning *",
                "[id k c] 2|2|7 INSERT 0 1",
            ),
            (
                Both,
                "insert into t (id, c) select id + 1, c + 1 from t returning c",
                "[c] 8 INSERT 0 1",
            ),
            (
                Both,
                "update t set c = c + 1 returning *",
                "[id k c] 1|10|8 UPDATE 1",
            ),
            (
                Both,
                "update t set k = 3 from (select c from t) q where q.c = t.c",
                "UPDATE 1",
            ),
            (Both, "delete from t where c = 7", "DELETE 1"),
            (
                Both,
                "with w as (select * from t) select c from w",
                "[c] 7 SELECT 1",
            ),
            (Both, "select (select max(c) from t)", "[max] 7 SELECT 1"),
            (Both, "create table made as select * from t", "SELECT 1"),
            (Query, "copy t to stdout", "1\t10\t7 COPY 1"),
            (Query, "copy t (c) to stdout", "7 COPY 1"),
            (Query, "copy (select c from t) to stdout", "7 COPY 1"),
            (Load("2\t2\t2\n"), "copy t from stdin", "COPY 1"),
            (Load("3\t2\n"), "copy t (c, id) from stdin", "COPY 1"),
            (
                Query,
                "prepare p as select * from t; execute p; deallocate p",
                "[id k c] 1|10|7 PREPARE SELECT 1 DEALLOCATE",
            ),
            (
                Query,
                "begin; declare x cursor for select * from t; fetch all from x; commit",
                "[id k c] 1|10|7 BEGIN DECLARE CURSOR FETCH 1 COMMIT",
            ),
            (Both, "create index made_i on t (c)", "CREATE INDEX"),
            (Both, "alter table t drop column c", "ALTER TABLE"),
            (Both, "alter table t rename column c to d", "ALTER TABLE"),
        ],
    ),
    (
        "alter table t drop column k",
        &[
            (Both, "select * from t", "[id] 1 SELECT 1"),
            (Both, "select k from t", "! 42703"),
            (Both, "select count(*) from t group by k", "! 42703"),
            (Both, "insert into t (id, k) values (2, 2)", "! 42703"),
            (
                Both,
                "insert into t values (2) on conflict (k) do nothing",
                "! 42703",
            ),
            (Both, "update t set k = 1", "! 42703"),
            (Both, "delete from t where k = 1", "! 42703"),
            (Query, "copy t to stdout", "1 COPY 1"),
            (Query, "copy t (k) to stdout", "! 42703"),
            (Load("2\n"), "copy t from stdin", "COPY 1"),
            (Load("2\t2\n"), "copy t (id, k) from stdin", "! 42703"),
            (Both, "create index made_i on t (k)", "! 42703"),
            (Both, "drop index if exists t_i", "DROP INDEX"),
            (Both, "alter table t drop column if exists k", "ALTER TABLE"),
            (Both, "alter table t drop column k", "! 42703"),
        ],
    ),
    (
        "drop index t_k",
        &[
            (
                Both,
                "insert into t values (2, 10) on conflict (k) do nothing",
                "! 42P10",
            ),
            (Both, "insert into t values (2, 10)", "INSERT 0 1"),
            (Both, "select id from t where k = 10", "[id] 1 SELECT 1"),
            (Both, "drop index if exists t_k", "DROP INDEX"),
            (Both, "drop index t_k", "! 42704"),
            (Both, "create unique index t_k on t (k)", "CREATE INDEX"),
            (
                Both,
                "create index if not exists t_k on t (k)",
                "CREATE INDEX",
            ),
        ],
    ),
    (
        "drop index t_k; create unique index t_k on t (k)",
        &[
            (
                Both,
                "insert into t values (2, 10) on conflict (k) do update set k = 11 returning id",
                "[id] 1 INSERT 0 1",
            ),
            (Both, "drop index t_k", "DROP INDEX"),
            (
                Both,
                "create index if not exists t_k on t (k)",
                "CREATE INDEX",
            ),
        ],
    ),
    (
        "alter table t add constraint made_u unique (id, k)",
        &[
            (
                Both,
                "insert into t values (1, 10) on conflict (id, k) do nothing",
                "INSERT 0 0",
            ),
            (
                Both,
                "insert into t values (1, 10) on conflict on constraint made_u do nothing",
                "INSERT 0 0",
            ),
        ],
    ),
    (
        "create unique index made_u on t (id, k)",
        &[(
            Both,
            "insert into t values (1, 10) on conflict (id, k) do nothing",
            "INSERT 0 0",
        )],
    ),
    (
        "drop table t; create table t (id int, name text); insert into t values (5, 'x')",
        &[
            (Both, "select * from t", "[id name] 5|x SELECT 1"),
            (
                Both,
                "select count(*), name from t group by name",
                "[count name] 1|x SELECT 1",
            ),
            (Both, "insert into t values (6, 'y')", "INSERT 0 1"),
            (Both, "insert into t (id, k) values (6, 7)", "! 42703"),
            (
                Both,
                "insert into t values (6, 'y') on conflict (id) do nothing",
                "! 42P10",
            ),
            (
                Both,
                "update t set name = 'z' returning *",
                "[id name] 5|z UPDATE 1",
            ),
            (Both, "delete from t where name = 'x'", "DELETE 1"),
            (Load("7\ty\n"), "copy t from stdin", "COPY 1"),
            (Both, "create table made as select * from t", "SELECT 1"),
            (Both, "truncate t", "TRUNCATE TABLE"),
            (Both, "analyze t", "ANALYZE"),
            (Both, "alter table t drop column name", "ALTER TABLE"),
            (Both, "create index made_i on t (name)", "CREATE INDEX"),
            (Both, "drop table t", "DROP TABLE"),
            (
                Query,
                "begin; lock table t; commit",
                "BEGIN LOCK TABLE COMMIT",
            ),
            (Both, "drop index if exists t_k", "DROP INDEX"),
        ],
    ),
    (
        "drop table t",
        &[
            (Both, "select * from t", "! 42P01"),
            (Both, "select count(*) from t group by k", "! 42P01"),
            (Both, "insert into t values (2, 2)", "! 42P01"),
            (Both, "update t set k = 1", "! 42P01"),
            (Both, "delete from t", "! 42P01"),
            (Query, "copy t to stdout", "! 42P01"),
            (Load("2\t2\n"), "copy t from stdin", "! 42P01"),
            (Both, "create table made as select * from t", "! 42P01"),
            (Both, "drop table if exists t", "DROP TABLE"),
            (Both, "drop table t", "! 42P01"),
            (Both, "drop index if exists t_k", "DROP INDEX"),
            (Both, "drop index t_k", "! 42704"),
            (
                Both,
                "alter table if exists t add column c int",
                "ALTER TABLE",
            ),
            (Both, "alter table t add column c int", "! 42P01"),
            (Both, "truncate t", "! 42P01"),
            (Both, "analyze t", "! 42P01"),
            (Both, "create index made_i on t (k)", "! 42P01"),
            (
                Query,
                "begin; lock table t in access share mode",
                "BEGIN ! 42P01",
            ),
        ],
    ),
    (
        "alter table t rename to t2",
        &[
            (Both, "select * from t", "! 42P01"),
            (Both, "insert into t values (2, 2)", "! 42P01"),
            (Both, "drop table if exists t", "DROP TABLE"),
            (
                Both,
                "alter table if exists t add column c int",
                "ALTER TABLE",
            ),
            (Both, "truncate t", "! 42P01"),
            (Both, "drop index t_k", "DROP INDEX"),
            (Query, "begin; lock table t", "BEGIN ! 42P01"),
        ],
    ),
    (
        "alter table t rename to t2; create table t (z int)",
        &[
            (Both, "select * from t", "[z] SELECT 0"),
            (
                Both,
                "insert into t values (2) returning *",
                "[z] 2 INSERT 0 1",
            ),
            (Both, "drop table t", "DROP TABLE"),
            (Both, "truncate t", "TRUNCATE TABLE"),
            (Both, "alter table t add column y int", "ALTER TABLE"),
        ],
    ),
    (
        "alter table t rename column k to j",
        &[
            (Both, "select * from t", "[id j] 1|10 SELECT 1"),
            (Both, "select j from t", "[j] 10 SELECT 1"),
            (Both, "select k from t", "! 42703"),
            (
                Both,
                "insert into t values (2, 10) on conflict (j) do nothing",
                "INSERT 0 0",
            ),
        ],
    ),
    (
        "truncate t",
        &[
            (Both, "select * from t", "[id k] SELECT 0"),
            (Both, "insert into t values (1, 10)", "INSERT 0 1"),
            (Both, "update t set k = 1", "UPDATE 0"),
            (Query, "copy t to stdout", "COPY 0"),
        ],
    ),
    (
        "drop sequence s",
        &[
            (Both, "drop sequence if exists s", "DROP SEQUENCE"),
            (Both, "drop sequence s", "! 42P01"),
            (Both, "alter sequence if exists s restart", "ALTER SEQUENCE"),
            (Both, "alter sequence s restart", "! 42P01"),
        ],
    ),
    (
        "drop sequence s; create sequence s start 50",
        &[
            (Both, "alter sequence s restart 60", "ALTER SEQUENCE"),
            (Both, "drop sequence s", "DROP SEQUENCE"),
        ],
    ),
    (
        "drop table t; create sequence t",
        &[
            (Both, "drop table t", "! 42809"),
            (Both, "truncate t", "! 42809"),
            (Query, "begin; lock table t", "BEGIN ! 42809"),
        ],
    ),
];

/// Runs a statement that has to wait until the transaction of `one` has ended.
fn waits(pair: &Pair, one: &mut Client, by: By, extended: bool, ddl: &str, sql: &str) -> Answer {
    // Of the case before.
    one.simple("drop sequence t");
    one.run(TABLES);
    one.run("begin");
    one.run(ddl);
    let mut two = pair.connect(2);
    let mut watcher = pair.connect(1);
    std::thread::scope(|s| {
        let waiter = s.spawn(move || match by {
            Load(data) => two.copy_in(sql, data),
            _ if extended => two.unnamed(sql, &[]),
            _ => two.simple(sql),
        });
        pair.until_one_waits(&mut watcher, sql);
        one.run("commit");
        waiter.join().expect("an answer")
    })
}

/// Every statement that had to wait for the table of a transaction goes by the definitions of then,
/// whichever protocol it comes by.
#[test]
fn a_statement_that_waited_goes_by_the_definitions_of_then() {
    let pair = Pair::up("waits");
    let mut one = pair.connect(1);
    one.simple("drop table t");
    let mut wrong = Vec::new();
    for (ddl, statements) in CASES {
        for &(by, sql, expected) in *statements {
            for extended in [false, true] {
                if extended && !matches!(by, Both) {
                    continue;
                }
                let got = waits(&pair, &mut one, by, extended, ddl, sql).summary();
                if got != expected {
                    wrong.push(format!("{ddl}; {sql} (extended: {extended}): {got}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    pair.verify();
}

/// What the transaction has not committed after all is nothing that others go by.
#[test]
fn a_statement_that_waited_for_a_rollback_goes_by_the_definitions_of_before() {
    let pair = Pair::up("rollback");
    let mut one = pair.connect(1);
    for (ddl, sql, expected) in [
        (
            "alter table t add column c int",
            "select * from t",
            "[id k] 1|10 SELECT 1",
        ),
        (
            "alter table t add column c int",
            "insert into t (id, c) values (2, 2)",
            "! 42703",
        ),
        ("drop table t", "select * from t", "[id k] 1|10 SELECT 1"),
        ("drop table t", "drop table if exists t", "DROP TABLE"),
        ("alter table t rename to t2", "truncate t", "TRUNCATE TABLE"),
        ("drop index t_k", "drop index t_k", "DROP INDEX"),
    ] {
        one.run(TABLES);
        one.run("begin");
        one.run(ddl);
        let (mut two, mut watcher) = (pair.connect(2), pair.connect(1));
        let got = std::thread::scope(|s| {
            let waiter = s.spawn(move || two.unnamed(sql, &[]));
            pair.until_one_waits(&mut watcher, sql);
            one.run("rollback");
            waiter.join().expect("an answer")
        });
        assert_eq!(got.summary(), expected, "{ddl}; {sql}");
    }
    pair.verify();
}

/// The time limits of a statement count for the wait of its analysis, and the locks that the
/// analysis has got go with its transaction.
#[test]
fn time_limits_end_the_wait_of_an_analysis() {
    let pair = Pair::up("limits");
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    one.simple("drop table t");
    one.run(TABLES);
    two.prepare("p", "select * from t").done();
    one.run("begin; alter table t add column c int");
    for (setting, sqlstate) in [
        ("lock_timeout", "! 55P03"),
        ("statement_timeout", "! 57014"),
    ] {
        two.run(&format!("set {setting} = '100ms'"));
        assert_eq!(two.simple("select * from t").summary(), sqlstate);
        assert_eq!(two.simple("select c from t").summary(), sqlstate);
        assert_eq!(two.unnamed("select * from t", &[]).summary(), sqlstate);
        assert_eq!(
            two.describe("p").failure.map(|f| f.sqlstate),
            Some(sqlstate[2..].into())
        );
        let prepared = two.prepared("p", &Answer::default(), &[]);
        assert_eq!(prepared.summary(), sqlstate);
        assert_eq!(two.simple("truncate t").summary(), sqlstate);
        two.run(&format!("set {setting} = 0"));
        assert_eq!(two.run("select 1").text(), "1");
    }
    one.run("commit");
    assert_eq!(
        two.run("select * from t").summary(),
        "[id k c] 1|10|NULL SELECT 1"
    );
    one.run("drop table t");
    pair.verify();
}

/// Two indexes of one table are made at the same time: the table has both.
#[test]
fn indexes_that_are_made_at_the_same_time_are_all_kept() {
    let pair = Pair::up("indexes");
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    one.simple("drop table t");
    one.run(TABLES);
    one.run("begin; create unique index made_a on t (k, id)");
    let (mut waiter, mut watcher) = (pair.connect(2), pair.connect(1));
    std::thread::scope(|s| {
        let second = s.spawn(move || waiter.simple("create unique index made_b on t (id, k)"));
        if pair.is_braid() {
            pair.until_one_waits(&mut watcher, "create index");
        }
        one.run("commit");
        let second = second.join().expect("an answer").summary();
        assert_eq!(second, "CREATE INDEX");
    });
    for arbiter in ["(k, id)", "(id, k)"] {
        let sql = format!("insert into t values (1, 10) on conflict {arbiter} do nothing");
        assert_eq!(two.simple(&sql).summary(), "INSERT 0 0");
    }
    pair.verify();
}

/// A definition is changed as it is now, also by a transaction whose snapshot is older.
#[test]
fn definitions_are_newer_than_snapshots() {
    let pair = Pair::up("snapshots");
    let (mut one, mut two) = (pair.connect(1), pair.connect(2));
    one.simple("drop table t");
    one.run(TABLES);
    one.run("create table t2 (i int)");
    one.run("begin isolation level repeatable read; select count(*) from t2");
    two.run("alter table t add column c int");
    one.run("alter table t add column d int; commit");
    assert_eq!(
        two.run("select * from t").summary(),
        "[id k c d] 1|10|NULL|NULL SELECT 1"
    );
    pair.verify();
}
