//! Definitions change on one instance while others work with them. They have plans that are kept,
//! and rows that are on their way to a client.

use postgres::Client;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use testkit::processes::{Database, storm};

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("definitions-{name}"), 2, &small)
}

fn code(e: &postgres::Error) -> &str {
    e.code().map_or("none", |c| c.code())
}

/// The schema `public` is dropped on one instance and made on the other, as applications do that
/// begin anew, while sessions of both have it on their path and have plans of its tables.
#[test]
fn the_schema_public_is_dropped_and_made_on_any_instance() {
    let database = up("public");
    let (mut one, mut two) = (database.client(1), database.client(2));
    for round in 0..5 {
        let (first, second) = match round % 2 {
            0 => (&mut one, &mut two),
            _ => (&mut two, &mut one),
        };
        first
            .batch_execute("create table t (a int primary key); insert into t values (1)")
            .expect("a table");
        let select = second.prepare("select a from t").expect("prepared");
        assert_eq!(second.query(&select, &[]).expect("rows").len(), 1);
        first
            .batch_execute("drop schema public cascade")
            .expect("no schema");
        let e = second.query(&select, &[]).expect_err("no table");
        assert_eq!(code(&e), "42P01");
        let e = second
            .batch_execute("create table t (a int)")
            .expect_err("nowhere");
        assert_eq!(code(&e), "3F000");
        second
            .batch_execute("create schema public")
            .expect("a schema");
        let e = first.batch_execute("create schema public").expect_err("it");
        assert_eq!(code(&e), "42P06");
    }
}

/// A table that is made in `public` keeps the schema from being dropped until its transaction ends.
#[test]
fn a_schema_with_a_table_on_its_way_is_not_dropped() {
    let database = up("on-its-way");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute("begin; create table t (a int)")
        .expect("a table");
    two.batch_execute("set lock_timeout = '200ms'")
        .expect("a limit");
    let e = two.batch_execute("drop schema public").expect_err("held");
    assert_eq!(code(&e), "55P03");
    one.batch_execute("commit").expect("a commit");
    let e = two
        .batch_execute("drop schema public")
        .expect_err("a table");
    assert_eq!(code(&e), "2BP01");
}

/// A function that a check calls gets another name and another schema on one instance: sessions of
/// the other use the check on, and see it with the name of now.
#[test]
fn what_definitions_call_is_renamed_on_another_instance() {
    let database = up("renamed");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create schema app;
         create function app.ok(int) returns boolean language sql immutable as 'select $1 > 0';
         create type app.mood as enum ('sad', 'glad');
         set search_path = app, public;
         create table public.t (a int check (ok(a)), m mood default 'glad'::mood)",
    )
    .expect("a table");
    let insert = two
        .prepare("insert into t (a) values ($1)")
        .expect("prepared");
    let refused = |c: &mut Client, a: i32| {
        let e = c.execute(&insert, &[&a]).expect_err("a check");
        assert_eq!(code(&e), "23514");
    };
    let definition =
        "select pg_get_constraintdef(oid) from pg_constraint where conname = 't_a_check'";
    let shown =
        |c: &mut Client| -> String { c.query_one(definition, &[]).expect("a definition").get(0) };
    two.execute(&insert, &[&1]).expect("a row");
    refused(&mut two, -1);
    assert_eq!(shown(&mut two), "CHECK (app.ok(a))");
    one.batch_execute("alter function ok(int) rename to fine; alter type mood rename to humour")
        .expect("new names");
    two.execute(&insert, &[&2]).expect("a row");
    refused(&mut two, -2);
    assert_eq!(shown(&mut two), "CHECK (app.fine(a))");
    one.batch_execute("alter function fine(int) set schema public")
        .expect("a schema");
    two.execute(&insert, &[&3]).expect("a row");
    refused(&mut two, -3);
    assert_eq!(shown(&mut two), "CHECK (fine(a))");
    let e = one
        .batch_execute("drop function public.fine(int)")
        .expect_err("a dependent");
    assert_eq!(code(&e), "2BP01");
    two.batch_execute("alter table t drop constraint t_a_check")
        .expect("no check");
    one.batch_execute("drop function public.fine(int)")
        .expect("nothing depends");
    two.execute(&insert, &[&-4]).expect("a row");
}

/// 23e. Sessions on both instances insert, update and delete by statements that they have prepared
/// once. Meanwhile instance 2 makes an index and drops it again. Each index has every row, from the
/// first statement after it was made. The one that is left agrees with the table in the end.
#[test]
fn c23e_a_kept_plan_learns_of_an_index_made_on_another_instance() {
    const ROUNDS: usize = 4;
    let database = up("plans");
    database
        .client(1)
        .batch_execute("create table t (id bigint primary key, v bigint not null)")
        .expect("a table");
    let session = |n: u64| {
        let mut kept = None;
        let mut id = n as i64 * 1_000_000;
        move |c: &mut postgres::Client| {
            if kept.is_none() {
                kept = Some((
                    c.prepare("insert into t values ($1, $2)")?,
                    c.prepare("update t set v = v + 1 where id = $1")?,
                    c.prepare("delete from t where id = $1")?,
                ));
            }
            let (insert, update, delete) = kept.as_ref().expect("prepared above");
            id += 1;
            c.execute(insert, &[&id, &(id * 10)])?;
            c.execute(update, &[&id])?;
            if id % 3 == 0 {
                c.execute(delete, &[&id])?;
            }
            Ok(())
        }
    };
    storm(&database, &[], session, |storm| {
        let mut ddl = database.client(2);
        let mut reader = database.client(1);
        for round in 0..ROUNDS {
            storm.more(50);
            ddl.batch_execute("create index tv on t (v)")
                .expect("an index");
            storm.more(50);
            // Rows are read through the index and without it, in one snapshot.
            let sql = "select (select count(*) from t where v between 0 and 9000000000), (select count(*) from t)";
            let row = reader.query_one(sql, &[]).expect("counts");
            let counts: (i64, i64) = (row.get(0), row.get(1));
            assert_eq!(counts.0, counts.1, "round {round}");
            if round + 1 < ROUNDS {
                ddl.batch_execute("drop index tv").expect("dropped");
            }
        }
    });
    database.verify();
}

/// 23e. A client of instance 1 has got some rows of a table, and the others are still to come. Then
/// instance 2 wants to drop the table, and has to wait. The rows that come are all of the table's,
/// though a table that will take up its space is waiting to be filled.
#[test]
fn c23e_a_table_that_is_being_read_is_not_dropped_on_another_instance() {
    const ROWS: i64 = 4000;
    let database = up("readers");
    let mut a = database.client(1);
    a.batch_execute(&format!(
        "create table old (id bigint primary key, pad text);
         insert into old select g, repeat('o', 500) from generate_series(1, {ROWS}) as t(g)"
    ))
    .expect("a table");
    // The table is read by a direct plan, and by the tree lane.
    for sql in [
        "select id, pad from old",
        "select id, upper(pad) from old where pad like 'o%'",
    ] {
        let mut t = a.transaction().expect("begin");
        let portal = t.bind(sql, &[]).expect("a portal");
        let mut rows = t.query_portal(&portal, 10).expect("first rows");
        let mut b = database.client(2);
        let refused = b
            .batch_execute("set lock_timeout = '200ms'; drop table old")
            .expect_err("it is read");
        assert_eq!(code(&refused), "55P03", "{refused}");
        let dropped = AtomicBool::new(false);
        std::thread::scope(|s| {
            let (database, dropped) = (&database, &dropped);
            let dropping = s.spawn(move || {
                let mut b = database.client(2);
                b.batch_execute("drop table old").expect("dropped");
                dropped.store(true, SeqCst);
                b.batch_execute(&format!(
                    "create table new (id bigint primary key, pad text);
                     insert into new select g, repeat('n', 500) from generate_series(1, {ROWS}) as t(g)"
                ))
                .expect("another table");
            });
            rows.extend(t.query_portal(&portal, 0).expect("the other rows"));
            assert!(!dropped.load(SeqCst), "its rows are still on their way");
            t.commit().expect("commit");
            dropping.join().expect("dropped");
        });
        assert_eq!(rows.len(), ROWS as usize);
        let of_old = |r: &postgres::Row| r.get::<_, &str>(1).to_lowercase() == "o".repeat(500);
        assert!(rows.iter().all(of_old));
        let gone = a.query(sql, &[]).expect_err("it is gone");
        assert_eq!(code(&gone), "42P01", "{gone}");
        a.batch_execute("alter table new rename to old; update old set pad = repeat('o', 500)")
            .expect("another one to be dropped");
    }
    database.verify();
}

/// 23e. A transaction that has changed the dictionary itself also learns of what others change. If
/// it used its own picture for all tables, it would write no entry into an index made meanwhile,
/// and would write into a segment that was given up.
#[test]
fn c23e_who_has_defined_something_learns_of_others_definitions() {
    let database = up("own-picture");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute("create table u (id int primary key, k int)")
        .unwrap();
    one.batch_execute("begin; create table x (i int)").unwrap();
    two.batch_execute("create unique index u_k on u (k)")
        .unwrap();
    one.batch_execute("insert into u values (1, 7); commit")
        .unwrap();
    let twice = two.batch_execute("insert into u values (2, 7)");
    assert_eq!(code(&twice.unwrap_err()), "23505");

    one.batch_execute("begin; create table y (i int)").unwrap();
    two.batch_execute("truncate u").unwrap();
    one.batch_execute("insert into u values (3, 9); commit")
        .unwrap();
    let rows = two.query("select id from u", &[]).unwrap();
    assert_eq!(rows.len(), 1, "what was acknowledged is there");

    one.batch_execute("begin; create table z (i int)").unwrap();
    two.batch_execute("create table w (i int)").unwrap();
    let taken = one.batch_execute("create table w (i text)");
    assert_eq!(code(&taken.unwrap_err()), "42P07");
    one.batch_execute("rollback").unwrap();
    database.verify();
}

/// Definitions are checked against the rows as they are now, not as a transaction's snapshot has
/// them. An older snapshot does not read through an index that lacks what it sees.
#[test]
fn definitions_and_old_snapshots() {
    let database = up("old-snapshots");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create table t (id int primary key, k int); insert into t select g, g from generate_series(1, 2000) g;
         create table other (i int)",
    )
    .unwrap();
    let old = "begin isolation level repeatable read; select count(*) from other";
    let id = |client: &mut Client, k: i32| -> Vec<i32> {
        let rows = client
            .query("select id from t where k = $1", &[&k])
            .unwrap();
        rows.iter().map(|r| r.get(0)).collect()
    };

    // The index is built by a transaction that does not see what was inserted and changed since.
    one.batch_execute(old).unwrap();
    two.batch_execute("insert into t values (5000, 5000); update t set k = 6000 where id = 6")
        .unwrap();
    one.batch_execute("create index t_k on t (k); commit")
        .unwrap();
    assert_eq!(
        (id(&mut two, 5000), id(&mut two, 6000)),
        (vec![5000], vec![6])
    );

    // The index is checked, and written to.
    one.batch_execute(old).unwrap();
    two.batch_execute("update t set k = -1 where id = 7")
        .unwrap();
    let checked = one.batch_execute("alter table t add check (k >= 0)");
    assert_eq!(code(&checked.unwrap_err()), "23514");
    one.batch_execute("rollback").unwrap();
    one.batch_execute(old).unwrap();
    two.batch_execute("update t set k = 8000 where id = 8")
        .unwrap();
    one.batch_execute("alter table t add column r float8 default random(); commit")
        .unwrap();
    assert_eq!(id(&mut one, 8000), [8]);

    // The index is used by a transaction from before it.
    two.batch_execute("drop index t_k").unwrap();
    one.batch_execute(old).unwrap();
    two.batch_execute("update t set k = 9000 where id = 9; create index t_k on t (k)")
        .unwrap();
    let read = one.query("select id from t where k = 9", &[]);
    match read {
        Ok(rows) => assert_eq!(rows.len(), 1, "it was so when the transaction began"),
        Err(e) => assert_eq!(code(&e), "40001"),
    }
    one.batch_execute("rollback").unwrap();
    assert_eq!((id(&mut one, 9), id(&mut one, 9000)), (vec![], vec![9]));
    database.verify();
}

/// A function is made, replaced and dropped on instance 1. A session of instance 2 that has
/// prepared its call once has each state with its next statement; and what it writes within the
/// call, instance 1 sees.
#[test]
fn a_function_of_one_instance_is_called_on_another_as_it_is_then() {
    let database = up("functions");
    let mut here = database.client(1);
    let mut there = database.client(2);
    here.batch_execute(
        "create table t (id int primary key, v int);
         create function f(k int) returns int language plpgsql as $$
         begin
           begin
             insert into t values (k, 1);
           exception when unique_violation then
             update t set v = v + 1 where id = k;
           end;
           return (select v from t where id = k);
         end $$",
    )
    .expect("a function");
    let call = there.prepare("select f($1)").expect("its call");
    let answer = |client: &mut Client, k: i32| -> Result<i32, postgres::Error> {
        client.query_one(&call, &[&k]).map(|row| row.get(0))
    };
    assert_eq!(answer(&mut there, 1).expect("inserted"), 1);
    assert_eq!(answer(&mut there, 1).expect("updated"), 2);
    let seen = here.query_one("select v from t where id = 1", &[]);
    assert_eq!(seen.expect("a row").get::<_, i32>(0), 2);
    here.batch_execute(
        "create or replace function f(k int) returns int language sql as 'select -k'",
    )
    .expect("another one");
    assert_eq!(answer(&mut there, 5).expect("replaced"), -5);
    here.batch_execute("drop function f(int)").expect("dropped");
    let gone = answer(&mut there, 5).expect_err("dropped");
    assert_eq!(code(&gone), "42883");
    here.batch_execute("create function f(k int) returns int language sql as 'select k + 1'")
        .expect("made again");
    assert_eq!(answer(&mut there, 5).expect("made again"), 6);
}

/// Rows of a table are given by a function of one instance on another, with the columns that the
/// table has by then; a procedure called there with a parameter ends transactions, and instance 1
/// sees what it has committed before it fails.
#[test]
fn sets_and_procedures_of_one_instance_run_on_another() {
    let database = up("sets");
    let mut here = database.client(1);
    let mut there = database.client(2);
    here.batch_execute(
        "create table t (id int primary key, v int);
         insert into t values (1, 10), (2, 20);
         create function all_of(low int) returns setof t language sql as
           'select * from t where id >= low order by id';
         create procedure fill(n int, inout made int) language plpgsql as $$
         begin
           for i in 1..n loop
             insert into t values (100 + i, i);
             made := made + 1;
             if i % 2 = 0 then commit; end if;
           end loop;
           perform 1 / (made - 5);
         end $$",
    )
    .expect("definitions");
    let rows = there.query("select * from all_of($1)", &[&2]);
    let rows = rows.expect("its rows");
    assert_eq!((rows.len(), rows[0].get::<_, i32>(1)), (1, 20));
    here.batch_execute("alter table t add column w text default 'new'")
        .expect("a column more");
    let row = there.query_one("select * from all_of($1)", &[&2]);
    assert_eq!(row.expect("a row").get::<_, String>(2), "new");
    let made = there.query_one("call fill($1, $2)", &[&2, &0]);
    assert_eq!(made.expect("called").get::<_, i32>(0), 2);
    here.batch_execute("delete from t where id > 100")
        .expect("begin anew");
    let failed = there.query("call fill(5, 0)", &[]).expect_err("1 / 0");
    assert_eq!(code(&failed), "22012");
    let kept = here.query_one("select count(*), max(id) from t where id > 100", &[]);
    let kept = kept.expect("what was committed");
    assert_eq!((kept.get::<_, i64>(0), kept.get::<_, i32>(1)), (4, 104));
    let refused = there.batch_execute("begin; delete from t where id > 100; call fill(2, 0)");
    assert_eq!(code(&refused.expect_err("in a block")), "2D000");
}

/// A statement that a client of instance 1 has prepared gives the rows that the policies of the
/// moment let its role see: also once instance 2 has made another policy, has made the role a
/// member of the one that a policy is for, or has turned row-level security off.
#[test]
fn a_kept_plan_has_the_policies_that_another_instance_made() {
    let database = up("policies");
    let mut here = database.client(1);
    here.batch_execute(
        "create role ann;
         create role readers;
         create table docs (id int primary key, who text not null);
         insert into docs values (1, 'ann'), (2, 'bob'), (3, 'eve');
         grant select on docs to ann;
         alter table docs enable row level security;
         create policy own on docs using (who = current_user);
         create policy reading on docs to readers using (id < 3);
         set role ann",
    )
    .expect("a table with policies");
    let seen = here
        .prepare("select id from docs order by id")
        .expect("a plan");
    let mut there = database.client(2);
    let steps: [(&str, &[i32]); 7] = [
        ("select 1", &[1]),
        ("grant readers to ann", &[1, 2]),
        (
            "create policy even on docs as restrictive using (id % 2 = 0)",
            &[2],
        ),
        ("alter policy even on docs to readers using (id = 1)", &[1]),
        ("revoke readers from ann", &[1]),
        ("alter table docs disable row level security", &[1, 2, 3]),
        (
            "alter table docs enable row level security; drop policy own on docs",
            &[],
        ),
    ];
    for (change, wanted) in steps {
        there.batch_execute(change).expect(change);
        let rows = here.query(&seen, &[]).expect("rows");
        let ids: Vec<i32> = rows.iter().map(|r| r.get(0)).collect();
        assert_eq!(ids, wanted, "after {change}");
    }
}
