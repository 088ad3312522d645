//! Which rows `SELECT .. FOR UPDATE` locks, and how it gives them, over several connections.
//!
//! `BRAID_ROW_LOCKS_PORT=5432 cargo test -p braid --test row_locks` runs the same histories against
//! PostgreSQL, as user postgres.

use postgres::{Client, Config, NoTls, SimpleQueryMessage};
use testkit::processes::Instance;

struct Db {
    /// `None` if the server is another program.
    instance: Option<Instance>,
    port: u16,
}

impl Db {
    fn new(name: &str) -> Db {
        let db = match std::env::var("BRAID_ROW_LOCKS_PORT") {
            Ok(port) => Db {
                instance: None,
                port: port.parse().expect("a port"),
            },
            Err(_) => Db {
                port: 0,
                instance: Some(Instance::start(name)),
            },
        };
        let mut c = db.connect();
        for table in ["job", "owner"] {
            run(&mut c, &format!("drop table if exists {name}_{table}"));
        }
        run(
            &mut c,
            &format!(
                "create table {name}_job (id int primary key, rank int, owner int, note text);
                 create table {name}_owner (id int primary key, name text);
                 insert into {name}_job values (1, 40, 7, 'a'), (2, 30, 7, 'b'), (3, 20, 8, 'c'), (4, 10, 8, 'd'), (5, 50, null, 'e');
                 insert into {name}_owner values (7, 'x'), (8, 'y')"
            ),
        );
        db
    }

    fn connect(&self) -> Client {
        match &self.instance {
            Some(instance) => instance.client(),
            None => Config::new()
                .host("127.0.0.1")
                .port(self.port)
                .user("postgres")
                .dbname("postgres")
                .connect(NoTls)
                .expect("a connection"),
        }
    }

    fn begin(&self) -> Client {
        let mut c = self.connect();
        run(&mut c, "begin");
        c
    }

    /// The ids of jobs that nobody has locked.
    fn free(&self, name: &str) -> String {
        ids(
            &mut self.connect(),
            &format!("select id from {name}_job order by id for update skip locked"),
        )
    }

    /// Runs `sql` on its own thread, waits until the server shows that it waits for a row, and runs
    /// `meanwhile`. Returns the connection and the outcome.
    fn blocked(&self, mut c: Client, sql: String, meanwhile: impl FnOnce()) -> (Client, String) {
        let asked = sql.clone();
        let running = std::thread::spawn(move || {
            let found = outcome(&mut c, &sql);
            (c, found)
        });
        let mut watcher = self.connect();
        let waiting = match &self.instance {
            Some(_) => "select 1 from v$session_wait where event = 'enq: TX - row lock contention'",
            None => "select 1 from pg_locks where not granted",
        };
        while watcher.query(waiting, &[]).expect("the waits").is_empty() {
            assert!(!running.is_finished(), "{asked} did not wait");
            std::thread::yield_now();
        }
        meanwhile();
        running.join().expect("the statement")
    }
}

fn run(c: &mut Client, sql: &str) {
    c.batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// The rows, or the SQLSTATE of the error.
fn outcome(c: &mut Client, sql: &str) -> String {
    match c.simple_query(sql) {
        Ok(answer) => shown(&answer),
        Err(e) => match e.code() {
            Some(code) => code.code().to_string(),
            None => panic!("{sql}: {e}"),
        },
    }
}

/// The rows in the order in which they came, with columns beside each other.
fn ids(c: &mut Client, sql: &str) -> String {
    shown(&c.simple_query(sql).unwrap_or_else(|e| panic!("{sql}: {e}")))
}

fn shown(answer: &[SimpleQueryMessage]) -> String {
    let rows = answer.iter().filter_map(|m| match m {
        SimpleQueryMessage::Row(r) => {
            let values: Vec<&str> = (0..r.len()).map(|i| r.get(i).unwrap_or("-")).collect();
            Some(values.join("."))
        }
        _ => None,
    });
    rows.collect::<Vec<_>>().join(" ")
}

#[test]
fn only_the_rows_that_are_returned_are_locked() {
    let db = Db::new("returned");
    let mut a = db.begin();
    let by_rank = "select id, note from returned_job order by rank limit 2 for update";
    assert_eq!(ids(&mut a, by_rank), "4.d 3.c");
    assert_eq!(db.free("returned"), "1 2 5");
    // The lock of a row that OFFSET passes over stands.
    let mut b = db.begin();
    let skipping =
        "select id from returned_job order by rank limit 1 offset 1 for update skip locked";
    assert_eq!(ids(&mut b, skipping), "1");
    assert_eq!(db.free("returned"), "5");
    run(&mut a, "rollback");
    assert_eq!(db.free("returned"), "3 4 5");
    run(&mut b, "commit");
    // Of a cursor, only the rows that were fetched are locked.
    let mut c = db.begin();
    run(
        &mut c,
        "declare q cursor for select id from returned_job order by rank desc for no key update",
    );
    assert_eq!(ids(&mut c, "fetch 2 from q"), "5 1");
    assert_eq!(db.free("returned"), "2 3 4");
    assert_eq!(ids(&mut c, "fetch 1 from q"), "2");
    assert_eq!(db.free("returned"), "3 4");
}

#[test]
fn two_take_turns_at_a_queue() {
    let db = Db::new("queue");
    let next =
        "select id from queue_job where rank > 10 order by rank limit 1 for update skip locked";
    let (mut a, mut b) = (db.begin(), db.begin());
    assert_eq!(ids(&mut a, next), "3");
    assert_eq!(ids(&mut b, next), "2");
    run(&mut a, "delete from queue_job where id = 3; commit");
    run(&mut b, "rollback");
    assert_eq!(ids(&mut db.begin(), next), "2");
}

#[test]
fn a_row_that_changed_is_judged_again_at_its_old_place() {
    let db = Db::new("changed");
    let (mut a, b) = (db.begin(), db.begin());
    run(
        &mut a,
        "update changed_job set rank = 99, note = 'late' where id = 4;
         update changed_job set rank = -1 where id = 3;
         delete from changed_job where id = 2",
    );
    let sql =
        "select id, rank, note from changed_job where rank > 0 order by rank limit 3 for update";
    let (mut b, found) = db.blocked(b, sql.to_string(), || run(&mut a, "commit"));
    // Row 3 is no longer asked for, row 2 is gone, and others come instead. Rows that were looked
    // at again stay locked.
    assert_eq!(found, "4.99.late 1.40.a 5.50.e");
    assert_eq!(db.free("changed"), "");
    run(&mut b, "commit");
}

#[test]
fn of_a_join_the_tables_that_are_named() {
    let db = Db::new("joined");
    let owners = |db: &Db| {
        let sql = "select id from joined_owner order by id for update skip locked";
        ids(&mut db.connect(), sql)
    };
    let join = "select j.id, o.name from joined_owner o join joined_job j on j.owner = o.id where o.id = 7 order by j.rank";
    let mut a = db.begin();
    assert_eq!(ids(&mut a, &format!("{join} for update of j")), "2.x 1.x");
    assert_eq!(db.free("joined"), "3 4 5");
    assert_eq!(owners(&db), "7 8");
    run(&mut a, "rollback; begin");
    assert_eq!(ids(&mut a, &format!("{join} limit 1 for update")), "2.x");
    assert_eq!(db.free("joined"), "1 3 4 5");
    assert_eq!(owners(&db), "8");
    run(&mut a, "rollback; begin");
    assert_eq!(
        ids(&mut a, &format!("{join} for share of o, j nowait")),
        "2.x 1.x"
    );
    let refused = db
        .connect()
        .batch_execute("select * from joined_owner for update nowait");
    let refused = refused.expect_err("a lock");
    assert_eq!(refused.code().expect("a code").code(), "55P03");
    run(&mut a, "rollback; begin");
    // The owner has changed, so the join is judged again.
    run(
        &mut a,
        "update joined_owner set name = 'new' where id = 7; update joined_job set owner = 8 where id = 1",
    );
    let (_, found) = db.blocked(db.begin(), format!("{join} for update"), || {
        run(&mut a, "commit");
    });
    assert_eq!(found, "2.new");
    // The side that may be missing has no row to lock.
    let left =
        "select j.id from joined_job j left join joined_owner o on o.id = j.owner where j.id = 5";
    let mut c = db.begin();
    assert_eq!(ids(&mut c, &format!("{left} for update of j")), "5");
    let refused = c
        .batch_execute(&format!("{left} for update"))
        .expect_err("both sides");
    assert_eq!(refused.code().expect("a code").code(), "0A000");
}

/// Rows that the tree lane finds are locked: rows of several tables, found by functions and
/// subqueries that only it has.
#[test]
fn of_any_query_whose_rows_are_those_of_its_tables() {
    let db = Db::new("general");
    let mut a = db.begin();
    let three = "select j.*, initcap(o.name) as \"Owner\", k.id as next from general_job j
                 join general_owner o on o.id = j.owner join general_job k on k.id = j.id + 1
                 where initcap(o.name) = 'X' order by j.rank";
    let locked = format!("{three} limit 1 for update of j, o");
    assert_eq!(ids(&mut a, &locked), "2.30.7.b.X.3");
    // Rows that LIMIT leaves out are not locked, nor are tables that are not named.
    assert_eq!(db.free("general"), "1 3 4 5");
    run(&mut a, "rollback; begin");
    let skipping = format!("{three} offset 1 for update skip locked");
    let mut b = db.begin();
    assert_eq!(
        ids(
            &mut b,
            "select 1 from general_owner where id = 7 for update"
        ),
        "1"
    );
    assert_eq!(ids(&mut a, &skipping), "");
    run(&mut b, "rollback");
    assert_eq!(ids(&mut a, &skipping), "1.40.7.a.X.2");
    assert_eq!(db.free("general"), "4 5");
    run(&mut a, "rollback; begin");
    // There are subqueries, whose rows are not locked, and USING.
    let above = "select id from general_job where rank > (select avg(rank) from general_job) and owner in (select id from general_owner) for no key update";
    assert_eq!(ids(&mut a, above), "1");
    let used = "with w as (select 7 as owner) select * from general_job join w using (owner), generate_series(1, 1) g where initcap(note) = 'B' for update";
    assert_eq!(ids(&mut a, used), "7.2.30.b.1");
    assert_eq!(db.free("general"), "3 4 5");
    let refused = db
        .connect()
        .batch_execute("select initcap(note) from general_job order by id for update nowait")
        .expect_err("a lock");
    let refused = refused.as_db_error().expect("an answer");
    assert_eq!(refused.code().code(), "55P03");
    assert_eq!(
        refused.message(),
        "could not obtain lock on row in relation \"general_job\""
    );
    // The row is found again after it has changed.
    run(
        &mut a,
        "update general_job set note = 'moved' where id = 2; delete from general_job where id = 1",
    );
    let sql = "select initcap(note) from general_job where owner = 7 order by rank for update";
    let (_, found) = db.blocked(db.begin(), sql.to_string(), || run(&mut a, "commit"));
    assert_eq!(found, "Moved");
}

#[test]
fn not_where_a_row_is_made_of_several() {
    let db = Db::new("several");
    let mut c = db.connect();
    let job = "several_job";
    let cases = [
        (
            "select count(*) from @",
            "is not allowed with aggregate functions",
        ),
        (
            "select distinct initcap(note) from @",
            "is not allowed with DISTINCT clause",
        ),
        (
            "select owner from @ group by owner",
            "is not allowed with GROUP BY clause",
        ),
        (
            "select 1 from @ having true",
            "is not allowed with HAVING clause",
        ),
        (
            "select rank() over (order by rank) from @",
            "is not allowed with window functions",
        ),
        (
            "select generate_series(1, 2) from @",
            "is not allowed with set-returning functions in the target list",
        ),
        (
            "select id from @ union select id from @",
            "is not allowed with UNION/INTERSECT/EXCEPT",
        ),
        ("values (1)", "cannot be applied to VALUES"),
        (
            "select initcap(a.note) from @ a full join @ b on a.id = b.owner",
            "cannot be applied to the nullable side of an outer join",
        ),
    ];
    for (query, why) in cases {
        let sql = format!("{} for update", query.replace('@', job));
        let refused = c.batch_execute(&sql).expect_err(&sql);
        let refused = refused.as_db_error().expect("an answer");
        assert_eq!(refused.code().code(), "0A000", "{sql}");
        assert_eq!(refused.message(), format!("FOR UPDATE {why}"), "{sql}");
    }
    let of = [
        (
            "select initcap(note) from @, generate_series(1, 2) g for share of g",
            "FOR SHARE cannot be applied to a function",
        ),
        (
            "with w as (select 1) select initcap(note) from @, w for update of w",
            "FOR UPDATE cannot be applied to a WITH query",
        ),
    ];
    for (query, why) in of {
        let sql = query.replace('@', job);
        let refused = c.batch_execute(&sql).expect_err(&sql);
        let refused = refused.as_db_error().expect("an answer");
        assert_eq!((refused.code().code(), refused.message()), ("0A000", why));
    }
    let sql = "select initcap(note) from several_job for update of nobody";
    let refused = c.batch_execute(sql).expect_err(sql);
    assert_eq!(refused.code().expect("a code").code(), "42P01");
}

/// An error ends what the transaction holds, though the session hears of its end later.
#[test]
fn an_error_gives_locks_back_at_once() {
    let db = Db::new("failed");
    let fails = |c: &mut Client| {
        let refused = c.batch_execute("select 1 / 0").expect_err("an error");
        assert_eq!(refused.code().expect("a code").code(), "22012");
        let refused = c
            .batch_execute("select 1")
            .expect_err("an aborted transaction");
        assert_eq!(refused.code().expect("a code").code(), "25P02");
    };
    let whole = "begin; lock table failed_job in access exclusive mode nowait; rollback";
    let mut a = db.begin();
    run(
        &mut a,
        "update failed_job set note = 'z'; select id from failed_owner for update",
    );
    assert!(db.connect().batch_execute(whole).is_err());
    fails(&mut a);
    assert_eq!(db.free("failed"), "1 2 3 4 5");
    run(&mut db.connect(), whole);
    run(&mut a, "commit");
    assert_eq!(
        ids(&mut a, "select note from failed_job order by id"),
        "a b c d e"
    );
    // Rows locked before the last savepoint stay locked. Rows locked after it do not.
    let mut a = db.begin();
    run(
        &mut a,
        "delete from failed_job where id = 1; savepoint one; delete from failed_job where id = 2;
         savepoint two; delete from failed_job where id = 3; lock table failed_owner in exclusive mode",
    );
    fails(&mut a);
    assert_eq!(db.free("failed"), "3 4 5");
    run(
        &mut db.connect(),
        "begin; lock table failed_owner in exclusive mode nowait; rollback",
    );
    run(
        &mut a,
        "rollback to two; delete from failed_job where id = 4",
    );
    assert_eq!(db.free("failed"), "3 5");
    fails(&mut a);
    run(&mut a, "rollback to one");
    assert_eq!(db.free("failed"), "2 3 4 5");
    run(&mut a, "release one; commit");
    assert_eq!(
        ids(&mut a, "select id from failed_job order by id"),
        "2 3 4 5"
    );
}

/// A statement whose WITH writes: rows that it reads FOR UPDATE are locked, and a row that another
/// session has changed makes all of it begin again, with what its parts have written undone.
#[test]
fn a_statement_whose_with_writes_locks_and_begins_again() {
    let name = "row_locks_with";
    let db = Db::new(name);
    let mut c = db.begin();
    let locks = format!(
        "with added as (insert into {name}_owner values (9, 'z') returning id)
         select j.id, a.id from {name}_job j, added a where j.id = 1 for update of j"
    );
    assert_eq!(ids(&mut c, &locks), "1.9");
    assert_eq!(db.free(name), "2 3 4 5");
    run(&mut c, "commit");

    let mut holder = db.begin();
    run(
        &mut holder,
        &format!("update {name}_job set rank = rank + 1 where id = 2"),
    );
    let moved = format!(
        "with noted as (insert into {name}_owner select 100 + rank, 'rank' from {name}_job
                        where id = 2 returning id),
              moved as (update {name}_job j set rank = j.rank + 100 from noted
                        where j.id = 2 returning j.rank)
         select noted.id, moved.rank from noted, moved"
    );
    let (mut c, found) = db.blocked(db.connect(), moved, || run(&mut holder, "commit"));
    // PostgreSQL judges the changed row alone, and keeps what the other part had read before.
    let noted = match db.instance {
        Some(_) => 131,
        None => 130,
    };
    assert_eq!(found, format!("{noted}.131"));
    let written = format!("select id from {name}_owner where name = 'rank'");
    assert_eq!(ids(&mut c, &written), noted.to_string());
}

#[test]
fn a_merge_judges_anew_what_has_changed_under_it() {
    let db = Db::new("merged");
    let merge = "merge into merged_job j using (values (1, 'm'), (2, 'n')) s(id, note) on j.id = s.id \
         when matched and j.rank > 35 then update set rank = j.rank + 100, note = j.note || s.note \
         when matched then update set note = 'low' \
         when not matched then insert values (s.id, 0, null, s.note)";
    let after = |a_does: &str| {
        let (mut a, b) = (db.begin(), db.begin());
        run(&mut a, a_does);
        let (mut b, found) = db.blocked(b, merge.to_string(), || run(&mut a, "commit"));
        assert_eq!(found, "", "{a_does}");
        let rows = ids(
            &mut b,
            "select id, rank, note from merged_job where id < 3 order by id",
        );
        run(&mut b, "rollback");
        rows
    };
    // Another value of the row, which its first condition still holds for.
    let changed = after("update merged_job set rank = 41, note = 'z' where id = 1");
    assert_eq!(changed, "1.141.zm 2.30.low");
    // One that another WHEN clause takes.
    let other = after("update merged_job set rank = 50 where id = 2");
    assert_eq!(other, "1.141.zm 2.150.bn");
    // A row that is gone has no match any more, and neither has one with another key.
    assert_eq!(
        after("delete from merged_job where id = 2"),
        "1.141.zm 2.0.n"
    );
    let moved = after("update merged_job set id = 20 where id = 1");
    assert_eq!(moved, "1.0.m 2.0.n");
    // What another has inserted meanwhile was no match, and is in the way.
    let (mut a, b) = (db.begin(), db.begin());
    run(
        &mut a,
        "insert into merged_job values (2, 1, null, 'first')",
    );
    let (_, found) = db.blocked(b, merge.to_string(), || run(&mut a, "commit"));
    assert_eq!(found, "23505");
    // What was rolled back was never there.
    let (mut a, b) = (db.begin(), db.begin());
    run(
        &mut a,
        "update merged_job set rank = 1000, id = 30 where id = 2",
    );
    let (mut b, found) = db.blocked(b, merge.to_string(), || run(&mut a, "rollback"));
    assert_eq!(found, "");
    let rows = ids(
        &mut b,
        "select id, note from merged_job where id < 3 order by id",
    );
    assert_eq!(rows, "1.m 2.low");
}
