//! Temporary tables on two instances: a session's own, whatever others are called, and gone with
//! the session, also when its instance dies.

use testkit::processes::{Database, rows};
use testkit::waiting;

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    let options = [&small[..], &["--set", "autovacuum_naptime=1s"]].concat();
    Database::up(&format!("temporary-{name}"), 2, &options)
}

const SCHEMAS: &str = "select count(*) from pg_namespace where nspname like 'pg\\_temp\\_%'";
const LEFT: &str = "select count(*) from pg_class where relpersistence = 't'";

fn until_none_is_left(client: &mut postgres::Client) {
    waiting::answer(
        || match (rows(client, SCHEMAS), rows(client, LEFT)) {
            (schemas, left) if schemas == ["0"] && left == ["0"] => Ok(()),
            found => Err(found),
        },
        |found| format!("temporary relations are left: {found:?}"),
    );
}

/// Two sessions of two instances have a table of one name, each its own, beside a permanent one.
#[test]
fn each_session_has_its_own() {
    let database = up("own");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute("create table t (v text); insert into t values ('permanent')")
        .unwrap();
    for (client, v) in [(&mut one, "one"), (&mut two, "two")] {
        client
            .batch_execute(&format!(
                "create temp table t (id serial primary key, v text); insert into t (v) values ('{v}')"
            ))
            .unwrap();
    }
    assert_eq!(rows(&mut one, "select v from t"), ["one"]);
    assert_eq!(rows(&mut two, "select v from t"), ["two"]);
    assert_eq!(rows(&mut two, "select v from public.t"), ["permanent"]);
    let schema = rows(
        &mut one,
        "select nspname from pg_namespace where oid = pg_my_temp_schema()",
    );
    let strange = format!("select v from {}.t", schema[0]);
    assert_eq!(rows(&mut one, &strange), ["one"]);
    let hidden = two.query(&strange, &[]).unwrap_err();
    assert_eq!(hidden.code().map(|c| c.code()), Some("42P01"), "{hidden}");
    drop(one);
    waiting::answer(
        || match rows(&mut two, SCHEMAS) {
            found if found == ["1"] => Ok(()),
            found => Err(found),
        },
        |found| format!("the schema of the session that has ended is left: {found:?}"),
    );
    assert_eq!(rows(&mut two, "select v from t"), ["two"]);
    drop(two);
    until_none_is_left(&mut database.client(1));
    database.verify();
}

/// An instance dies with temporary tables, filled and in a transaction; the other one drops them.
#[test]
fn those_of_a_dead_instance_go() {
    let database = up("death");
    let (mut one, mut two) = (database.client(1), database.client(2));
    two.batch_execute(
        "create temp table filled as select n, repeat('x', 100) as s from generate_series(1, 5000) n;
         create index on filled (n)",
    )
    .unwrap();
    two.batch_execute("begin; create temp table open (v int); insert into open values (1)")
        .unwrap();
    assert_eq!(rows(&mut one, SCHEMAS), ["1"]);
    database.signal(2, "-KILL");
    until_none_is_left(&mut one);
    one.batch_execute("create temp table filled (n int); insert into filled values (7)")
        .unwrap();
    assert_eq!(rows(&mut one, "select n from filled"), ["7"]);
    drop(one);
    database.verify();
}
