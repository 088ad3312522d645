//! Views that are written to on two instances: what one instance says of a view, the next statement
//! of the other goes by.

use testkit::processes::{Database, rows};

fn up(name: &str) -> Database {
    let small = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];
    Database::up(&format!("views-written-{name}"), 2, &small)
}

fn refused(client: &mut postgres::Client, sql: &str) -> String {
    let e = client.batch_execute(sql).unwrap_err();
    e.code()
        .map_or(e.to_string(), |code| code.code().to_string())
}

/// A prepared write through a view follows each change of the view on the other instance.
#[test]
fn a_write_goes_by_the_view_as_it_is() {
    let database = up("changes");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create table t (a int primary key, b text default 'table');
         create view v as select a, b from t where a > 0",
    )
    .unwrap();
    let insert = two.prepare("insert into v (a) values ($1)").unwrap();
    two.execute(&insert, &[&1]).unwrap();
    two.execute(&insert, &[&-1]).unwrap();
    one.batch_execute(
        "alter view v alter b set default 'view'; alter view v set (check_option = local)",
    )
    .unwrap();
    two.execute(&insert, &[&2]).unwrap();
    let e = two.execute(&insert, &[&-2]).unwrap_err();
    assert_eq!(e.code().map(|c| c.code()), Some("44000"), "{e}");
    one.batch_execute("create or replace view v as select a, b from t where a > 10")
        .unwrap();
    // The check option went with the view that was replaced.
    two.execute(&insert, &[&3]).unwrap();
    assert_eq!(two.execute("update v set b = 'seen'", &[]).unwrap(), 0);
    assert_eq!(
        rows(&mut one, "select a || b from t order by a"),
        ["-1table", "1table", "2view", "3view"]
    );
    one.batch_execute("create or replace view v as select distinct a, b from t")
        .unwrap();
    assert_eq!(refused(&mut two, "insert into v values (4)"), "55000");
    database.verify();
}

/// A trigger that one instance makes does the write of the other.
#[test]
fn a_trigger_of_one_instance_does_the_write_of_the_other() {
    let database = up("triggers");
    let (mut one, mut two) = (database.client(1), database.client(2));
    one.batch_execute(
        "create table t (a int primary key, n int);
         create view v as select a, sum(n) as n from t group by a;
         create function add() returns trigger language plpgsql as $$
           begin
             insert into t values (new.a, new.n) on conflict (a) do update set n = t.n + new.n;
             return new;
           end $$",
    )
    .unwrap();
    assert_eq!(refused(&mut two, "insert into v values (1, 5)"), "55000");
    one.batch_execute(
        "create trigger add instead of insert on v for each row execute function add()",
    )
    .unwrap();
    for client in [&mut two, &mut one] {
        client
            .batch_execute("insert into v values (1, 5), (2, 7)")
            .unwrap();
    }
    assert_eq!(
        rows(&mut one, "select a || ' ' || n from v order by 1"),
        ["1 10", "2 14"]
    );
    two.batch_execute("drop trigger add on v").unwrap();
    assert_eq!(refused(&mut one, "insert into v values (1, 5)"), "55000");
    database.verify();
}
