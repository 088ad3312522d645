//! Schemas and views on two instances: what one defines the other's next statement sees, and what
//! depends on something is never left without it.

use postgres::Client;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use testkit::processes::Database;

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("dependences-{name}"), 2, &small)
}

fn code(e: &postgres::Error) -> &str {
    e.code().map_or("none", |c| c.code())
}

fn value(client: &mut Client, sql: &str) -> i64 {
    let row = client.query_one(sql, &[]).expect(sql);
    row.get(0)
}

/// Statements that are prepared on the other instance, and look a name up by a path, find what
/// comes first on it now.
#[test]
fn what_one_instance_defines_the_other_looks_up() {
    let database = up("path");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create schema a; create schema b;
         create table b.t (v bigint); insert into b.t values (2);
         create view b.w as select v * 10 as v from b.t",
    )
    .unwrap();
    two.batch_execute("set search_path to a, b").unwrap();
    let (t, w) = (
        two.prepare("select v from t").unwrap(),
        two.prepare("select v from w").unwrap(),
    );
    let of = |two: &mut Client, statement| -> i64 { two.query_one(statement, &[]).unwrap().get(0) };
    assert_eq!((of(&mut two, &t), of(&mut two, &w)), (2, 20));
    // A table of the name before it on the path, and another query of the view.
    one.batch_execute(
        "create table a.t (v bigint); insert into a.t values (1);
         create or replace view b.w as select v + 100 as v from b.t",
    )
    .unwrap();
    assert_eq!((of(&mut two, &t), of(&mut two, &w)), (1, 102));
    one.batch_execute("drop table a.t; alter table b.t rename to t2; alter schema b rename to c")
        .unwrap();
    let gone = two.query(&t, &[]).unwrap_err();
    assert_eq!(code(&gone), "42P01", "{gone}");
    assert_eq!(value(&mut two, "select v from c.w"), 102);
    two.batch_execute("set search_path to c").unwrap();
    assert_eq!(value(&mut two, "select v from w"), 102);
    let needed = two.batch_execute("drop table t2").unwrap_err();
    assert_eq!(code(&needed), "2BP01", "{needed}");
    two.batch_execute("drop schema c cascade").unwrap();
    let gone = one.batch_execute("select * from c.w").unwrap_err();
    assert_eq!(code(&gone), "42P01", "{gone}");
    database.verify();
}

/// What one instance does to an enum, the next statement on the other one knows: also one that was
/// prepared with the labels of before.
#[test]
fn labels_that_one_instance_adds_the_other_reads_and_writes() {
    let database = up("labels");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create type mood as enum ('sad', 'happy');
         create table t (id int primary key, m mood); create index on t (m);
         insert into t values (1, 'sad'), (2, 'happy')",
    )
    .unwrap();
    let texts = |client: &mut Client, statement: &postgres::Statement| -> Vec<String> {
        let rows = client.query(statement, &[]).unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let all = two.prepare("select m::text from t order by t.m").unwrap();
    let above = two.prepare("select m::text from t where m > 'sad' order by t.m");
    let above = above.unwrap();
    let insert = two.prepare("insert into t values ($1, ($2::text)::mood)");
    let insert = insert.unwrap();
    assert_eq!(texts(&mut two, &all), ["sad", "happy"]);
    one.batch_execute(
        "alter type mood add value 'fine' before 'happy';
         alter type mood add value 'angry' before 'sad';
         insert into t values (3, 'fine'), (4, 'angry')",
    )
    .unwrap();
    assert_eq!(texts(&mut two, &all), ["angry", "sad", "fine", "happy"]);
    assert_eq!(texts(&mut two, &above), ["fine", "happy"]);
    one.batch_execute("alter type mood rename value 'fine' to 'so so'")
        .unwrap();
    assert_eq!(two.execute(&insert, &[&5i32, &"so so"]).unwrap(), 1);
    let old = two.execute(&insert, &[&6i32, &"fine"]).unwrap_err();
    assert_eq!(code(&old), "22P02", "{old}");
    let labels = "select count(*) from pg_enum where enumtypid = 'mood'::regtype";
    assert_eq!((value(&mut one, labels), value(&mut two, labels)), (4, 4));
    // A type goes on neither while the other has a column of it.
    let needed = two.batch_execute("drop type mood").unwrap_err();
    assert_eq!(code(&needed), "2BP01", "{needed}");
    two.batch_execute("drop type mood cascade").unwrap();
    assert_eq!(value(&mut one, "select sum(id) from t"), 15);
    let gone = one.batch_execute("select m from t").unwrap_err();
    assert_eq!(code(&gone), "42703", "{gone}");
    let gone = one.batch_execute("create table u (m mood)").unwrap_err();
    assert_eq!(code(&gone), "42704", "{gone}");
    database.verify();
}

/// One instance makes views and tables while the other drops what they need. Each of them either
/// has what it needs, or is not there.
#[test]
fn nothing_is_left_without_what_it_depends_on() {
    const ROUNDS: usize = 25;
    let database = up("race");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute("create table counts (n int)").unwrap();
    let (made, lost) = (AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..ROUNDS {
        one.batch_execute(
            "create schema s; create table base (v bigint); insert into base values (1)",
        )
        .unwrap();
        let go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (go, made, lost, one) = (&go, &made, &lost, &mut one);
            let database = &database;
            let maker = scope.spawn(move || {
                let mut c = database.client(2);
                while !go.load(SeqCst) {
                    std::thread::yield_now();
                }
                for sql in [
                    "create view needs as select v from base",
                    "create table s.inside (v bigint)",
                ] {
                    match c.batch_execute(sql) {
                        Ok(()) => made.fetch_add(1, SeqCst),
                        Err(e) => {
                            let expected = ["42P01", "3F000"].contains(&code(&e));
                            assert!(expected, "round {round}: {sql}: {e}");
                            lost.fetch_add(1, SeqCst)
                        }
                    };
                }
            });
            go.store(true, SeqCst);
            for sql in ["drop table base", "drop schema s"] {
                if let Err(e) = one.batch_execute(sql) {
                    assert_eq!(code(&e), "2BP01", "round {round}: {sql}: {e}");
                }
            }
            maker.join().expect("the maker");
        });
        // Both instances see the same, and what is there can be read.
        for client in [&mut one, &mut two] {
            let is = |client: &mut Client, name: &str| {
                let sql = format!("select count(*) from pg_class where relname = '{name}'");
                value(client, &sql) == 1
            };
            if is(client, "needs") {
                assert!(
                    is(client, "base"),
                    "round {round}: a view without its table"
                );
                assert_eq!(value(client, "select v from needs"), 1);
            }
            let schemas = "select count(*) from pg_namespace where nspname = 's'";
            if is(client, "inside") {
                assert_eq!(
                    value(client, schemas),
                    1,
                    "round {round}: a table without its schema"
                );
                client.batch_execute("select * from s.inside").unwrap();
            }
            let dangling = "select count(*) from pg_depend d where d.refclassid = 1259
                and not exists (select 1 from pg_class c where c.oid = d.refobjid)";
            assert_eq!(value(client, dangling), 0, "round {round}");
        }
        two.batch_execute("drop table if exists base cascade; drop schema if exists s cascade")
            .unwrap();
    }
    let (made, lost) = (made.load(SeqCst), lost.load(SeqCst));
    assert_eq!(made + lost, 2 * ROUNDS as u64);
    database.verify();
}

/// What depends on something that is dropped is named, and dropped with it, in PostgreSQL's words.
#[test]
fn drops_name_what_depends() {
    let database = up("words");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create schema s; create table s.t (a int); create table t (a int, b int);
         create view s.v as select a from t; create view w as select a from s.v;
         create view x as select b from t; create sequence q;
         create table d (i int default nextval('q'))",
    )
    .unwrap();
    let words = |e: postgres::Error| {
        let e = e.as_db_error().expect("of the server").clone();
        let hint = e.hint().unwrap_or("").to_string();
        assert_eq!(
            hint,
            "Use DROP ... CASCADE to drop the dependent objects too."
        );
        format!("{}\n{}", e.message(), e.detail().unwrap_or(""))
    };
    let refused = |client: &mut Client, sql: &str| words(client.batch_execute(sql).unwrap_err());
    assert_eq!(
        refused(&mut two, "drop table t"),
        "cannot drop table t because other objects depend on it\n\
         view s.v depends on table t\nview w depends on view s.v\nview x depends on table t"
    );
    assert_eq!(
        refused(&mut two, "alter table t drop column a"),
        "cannot drop column a of table t because other objects depend on it\n\
         view s.v depends on column a of table t\nview w depends on view s.v"
    );
    assert_eq!(
        refused(&mut two, "drop schema s"),
        "cannot drop schema s because other objects depend on it\n\
         table s.t depends on schema s\nview s.v depends on schema s\nview w depends on view s.v"
    );
    assert_eq!(
        refused(&mut two, "drop sequence q"),
        "cannot drop sequence q because other objects depend on it\n\
         default value for column i of table d depends on sequence q"
    );
    assert_eq!(
        refused(&mut two, "drop view s.v, x"),
        "cannot drop desired object(s) because other objects depend on them\n\
         view w depends on view s.v"
    );
    two.batch_execute("drop sequence q cascade; drop table t cascade")
        .unwrap();
    let left = "select count(*) from pg_class where relname in ('v', 'w', 'x', 'q')";
    assert_eq!(value(&mut one, left), 0);
    one.batch_execute("insert into d default values").unwrap();
    assert_eq!(value(&mut one, "select count(*) from d where i is null"), 1);
    one.batch_execute("drop schema s cascade").unwrap();
    database.verify();
}

/// The type that an uncommitted column has stays until the end of that transaction.
#[test]
fn a_type_that_a_column_is_about_to_have_cannot_be_dropped() {
    let database = up("type-of-a-column");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create type mood as enum ('sad', 'happy');
         create table t (id int primary key, m text); insert into t values (1, 'sad')",
    )
    .unwrap();
    two.batch_execute("set lock_timeout = '200ms'").unwrap();
    let drop_waits = |two: &mut Client| {
        let refused = two.batch_execute("drop type mood cascade").unwrap_err();
        assert_eq!(code(&refused), "55P03", "{refused}");
    };
    one.batch_execute("begin; alter table t alter column m type mood using m::mood")
        .unwrap();
    drop_waits(&mut two);
    one.batch_execute("rollback; begin; alter table t add column n mood")
        .unwrap();
    drop_waits(&mut two);
    one.batch_execute("rollback; begin; create table u (m mood)")
        .unwrap();
    drop_waits(&mut two);
    one.batch_execute("commit").unwrap();
    two.batch_execute("drop type mood cascade").unwrap();
    let left = "select count(*) from pg_attribute where attrelid = 'u'::regclass and attname = 'm'";
    assert_eq!(value(&mut one, left), 0);
    database.verify();
}
