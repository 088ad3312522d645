//! Statistics of tables on two instances as processes: tables are analyzed without being asked, and
//! what one instance has found the other goes by.

use testkit::processes::{Database, rows};
use testkit::waiting;

fn until(client: &mut postgres::Client, sql: &str, wanted: &[&str]) {
    waiting::answer(
        || match rows(client, sql) {
            found if found == wanted => Ok(found),
            found => Err(found),
        },
        |found| format!("{sql}: {found:?} and not {wanted:?}"),
    );
}

const TABLE: &str = "create table orders (id int primary key, state text); \
    insert into orders select n, case when n % 100 = 0 then 'open' else 'done' end \
    from generate_series(1, 20000) n; \
    create index orders_state on orders (state)";
const STATISTICS: &str = "select attname, n_distinct, most_common_vals from pg_stats \
    where tablename = 'orders' and attname = 'state'";

fn up(name: &str, more: &[&str]) -> Database {
    let small = ["--buffer-cache", "64MB", "--set", "redo_file_size=32MB"];
    Database::up(name, 2, &[&small, more].concat())
}

#[test]
fn a_table_is_analyzed_when_enough_of_it_has_changed() {
    let database = up("autoanalyze", &["--set", "autovacuum_naptime=1s"]);
    let (mut first, mut second) = (database.client(1), database.client(2));
    first.batch_execute(TABLE).unwrap();
    let found = ["state|2|{done,open}"];
    until(&mut first, STATISTICS, &found);
    until(&mut second, STATISTICS, &found);
    // The second instance's own changes count there.
    second
        .batch_execute("update orders set state = 'shut' where id <= 19000")
        .unwrap();
    let found = ["state|3|{shut,done,open}"];
    until(&mut second, STATISTICS, &found);
    until(&mut first, STATISTICS, &found);
}

/// A prepared statement is planned anew by what another instance has found of its table.
#[test]
fn plans_follow_what_another_instance_has_found() {
    let database = up("analyze-elsewhere", &["--set", "autovacuum=off"]);
    let (mut first, mut second) = (database.client(1), database.client(2));
    first.batch_execute(TABLE).unwrap();
    let explain = "explain select * from orders where state = 'done'";
    second
        .batch_execute("prepare q as select count(*) from orders where state = 'done'")
        .unwrap();
    assert_eq!(rows(&mut second, "execute q"), ["19800"]);
    let known = |plan: &[String]| plan.iter().any(|l| l.contains("(rows=19800)"));
    assert!(
        !known(&rows(&mut second, explain)),
        "nobody has analyzed it"
    );
    first.batch_execute("analyze orders").unwrap();
    waiting::answer(
        || {
            let plan = rows(&mut second, explain);
            if known(&plan) { Ok(()) } else { Err(plan) }
        },
        |plan| format!("the second instance does not know that 99 rows of 100 are done: {plan:?}"),
    );
    assert_eq!(rows(&mut second, "execute q"), ["19800"]);
}
