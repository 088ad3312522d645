//! Table locks over real connections: which modes exclude each other, and which modes statements
//! take, on one instance and over two.
//!
//! `BRAID_TABLE_LOCKS_PORT=5432 cargo test -p braid --test table_locks` runs the same against
//! PostgreSQL, as user postgres.

use postgres::{Client, Config, NoTls};
use testkit::processes::Database;

/// PostgreSQL's table "Conflicting Lock Modes", row by row.
const MATRIX: [(&str, &str); 8] = [
    ("access share", "_______x"),
    ("row share", "______xx"),
    ("row exclusive", "____xxxx"),
    ("share update exclusive", "___xxxxx"),
    ("share", "__xx_xxx"),
    ("share row exclusive", "__xxxxxx"),
    ("exclusive", "_xxxxxxx"),
    ("access exclusive", "xxxxxxxx"),
];

/// Statements in a transaction block, and the mode in which they lock the table.
const STATEMENTS: [(&str, &str); 14] = [
    ("select * from t", "access share"),
    ("select count(*), max(v) from t", "access share"),
    ("copy t to stdout", "access share"),
    ("select * from t for update", "row share"),
    ("select * from t where id = 1 for key share", "row share"),
    ("insert into t values (7, 7)", "row exclusive"),
    ("update t set v = 1 where id = 1", "row exclusive"),
    ("delete from t where id = 1", "row exclusive"),
    ("analyze t", "share update exclusive"),
    ("create index on t (v)", "share"),
    ("alter table t add column w int", "access exclusive"),
    ("truncate t", "access exclusive"),
    ("drop index t_v", "access exclusive"),
    ("drop table t", "access exclusive"),
];

/// Two instances of Braid, or another server that stands for both.
struct Servers {
    database: Option<Database>,
    port: u16,
}

impl Servers {
    fn up(name: &str) -> Servers {
        let servers = match std::env::var("BRAID_TABLE_LOCKS_PORT") {
            Ok(port) => Servers {
                database: None,
                port: port.parse().expect("a port"),
            },
            Err(_) => Servers {
                database: Some(Database::up(name, 2, &[])),
                port: 0,
            },
        };
        let mut c = servers.connect(1);
        run(
            &mut c,
            "drop table if exists t; create table t (id int primary key, v int);
             insert into t values (1, 1), (2, 2); create index t_v on t (v)",
        );
        servers
    }

    fn connect(&self, instance: u16) -> Client {
        match &self.database {
            Some(database) => database.client(instance),
            None => Config::new()
                .host("127.0.0.1")
                .port(self.port)
                .user("postgres")
                .dbname("postgres")
                .connect(NoTls)
                .expect("a connection"),
        }
    }
}

fn run(c: &mut Client, sql: &str) {
    c.batch_execute(sql)
        .unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// Whether the statement gets its lock: 55P03 says that it does not.
fn gets(c: &mut Client, sql: &str) -> bool {
    match c.batch_execute(sql) {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.code().map(|c| c.code()), Some("55P03"), "{sql}: {e}");
            false
        }
    }
}

fn conflict(held: &str, wanted: &str) -> bool {
    let at = |mode| MATRIX.iter().position(|(m, _)| *m == mode).expect("a mode");
    MATRIX[at(held)].1.as_bytes()[at(wanted)] == b'x'
}

/// Checks the lock that one session has against all modes, asked for without waiting by the other.
fn check(held: &str, other: &mut Client, context: &str) {
    for (wanted, _) in MATRIX {
        run(other, "begin");
        let free = gets(other, &format!("lock table t in {wanted} mode nowait"));
        assert_eq!(free, !conflict(held, wanted), "{context}, then {wanted}");
        run(other, "rollback");
    }
}

const PLACES: [(u16, u16); 3] = [(1, 1), (1, 2), (2, 1)];

#[test]
fn modes_exclude_each_other_as_in_postgresql_on_one_instance_and_over_two() {
    let servers = Servers::up("modes");
    for (a, b) in PLACES {
        let (mut one, mut two) = (servers.connect(a), servers.connect(b));
        for (held, _) in MATRIX {
            run(&mut one, &format!("begin; lock table t in {held} mode"));
            check(held, &mut two, &format!("{held} on {a}, asked on {b}"));
            run(&mut one, "commit");
        }
    }
}

#[test]
fn statements_take_the_modes_that_they_take_in_postgresql() {
    let servers = Servers::up("taken");
    for (a, b) in PLACES {
        let (mut one, mut two) = (servers.connect(a), servers.connect(b));
        for (statement, mode) in STATEMENTS {
            run(&mut one, "begin");
            match statement.starts_with("copy") {
                true => drop(one.copy_out(statement).expect("the copy")),
                false => run(&mut one, statement),
            }
            check(mode, &mut two, &format!("{statement} on {a}, asked on {b}"));
            run(&mut one, "rollback");
        }
        // VACUUM is no part of a transaction block.
        run(&mut two, "set lock_timeout = '200ms'");
        for (statement, mode) in [
            ("vacuum t", "share update exclusive"),
            ("vacuum (full false, analyze) t", "share update exclusive"),
            ("vacuum full t", "access exclusive"),
            ("vacuum (full) t", "access exclusive"),
        ] {
            for (held, _) in MATRIX {
                run(&mut one, &format!("begin; lock table t in {held} mode"));
                let free = gets(&mut two, statement);
                let context = format!("{held} on {a}, then {statement} on {b}");
                assert_eq!(free, !conflict(held, mode), "{context}");
                run(&mut one, "commit");
            }
        }
    }
}

/// An instance hears of the TRUNCATE of another one as of a segment that is gone, which had the
/// number of the table. It took that for the end of the table, and forgot who had the lock.
#[test]
fn a_table_that_was_emptied_keeps_its_lock() {
    let servers = Servers::up("emptied");
    let [mut one, mut two] = [1, 2].map(|instance| servers.connect(instance));
    run(&mut one, "create table beside (id int)");
    // Of some of these tables one instance is the master, and of some the other.
    for n in 0..12 {
        run(&mut one, &format!("create table e{n} (id int)"));
        run(&mut two, &format!("insert into e{n} values (1)"));
        run(&mut one, &format!("truncate e{n}"));
        // Its instance looks at the dictionary again.
        run(&mut two, "insert into beside values (1)");
        run(&mut one, &format!("begin; lock table e{n} in share mode"));
        run(&mut two, "begin");
        let lock = format!("lock table e{n} in row exclusive mode nowait");
        assert!(!gets(&mut two, &lock), "e{n} is locked twice");
        run(&mut two, "rollback");
        run(&mut one, "commit");
    }
}

/// Waits until so many sessions of all instances wait for a lock.
fn until_waiting(servers: &Servers, n: i64) {
    let mut c = servers.connect(1);
    let sql = match servers.database {
        Some(_) => "select count(*) from gv$lock where request > 0",
        None => "select count(*) from pg_locks where not granted",
    };
    testkit::waiting::until("sessions wait", || {
        c.query_one(sql, &[]).expect(sql).get::<_, i64>(0) == n
    });
}

/// Runs statements that wait, beside the test.
fn beside<'s>(
    s: &'s std::thread::Scope<'s, '_>,
    mut c: Client,
    sql: &'static str,
) -> std::thread::ScopedJoinHandle<'s, Client> {
    s.spawn(move || {
        run(&mut c, sql);
        c
    })
}

/// A session waits for a writer of its own instance. No later session gets what excludes it, on
/// whatever instance; readers do, and so does the writer itself.
#[test]
fn a_lock_is_not_taken_past_a_session_that_waits_for_one_that_excludes_it() {
    let servers = Servers::up("queues");
    for (writer, waiter, late) in [(1, 1, 2), (2, 2, 1), (1, 2, 1), (1, 2, 2)] {
        let context = format!("writer on {writer}, waiter on {waiter}, late one on {late}");
        let (mut one, mut three) = (servers.connect(writer), servers.connect(late));
        run(&mut one, "begin; update t set v = v + 1 where id = 1");
        std::thread::scope(|s| {
            let two = servers.connect(waiter);
            let two = beside(s, two, "begin; lock table t in share mode");
            until_waiting(&servers, 1);
            run(&mut three, "begin");
            let free = gets(&mut three, "lock table t in row exclusive mode nowait");
            assert!(!free, "{context}");
            run(&mut three, "rollback; begin; select * from t");
            run(&mut three, "select * from t for update skip locked; commit");
            run(&mut one, "lock table t in share update exclusive mode");
            run(&mut one, "commit");
            let mut two = two.join().expect("it has the lock");
            run(&mut two, "commit");
            run(&mut three, "update t set v = v + 1 where id = 1");
        });
    }
}

/// Writers and owners of the whole table come on two instances by turns, and get it by turns.
#[test]
fn sessions_of_two_instances_get_a_table_in_the_order_in_which_they_came() {
    let servers = Servers::up("order");
    let mut one = servers.connect(1);
    run(
        &mut one,
        "drop table if exists came; create table came (n int, who int);
         begin; lock table t in access exclusive mode",
    );
    const MODES: [&str; 6] = [
        "access exclusive",
        "row exclusive",
        "share",
        "exclusive",
        "share update exclusive",
        "access exclusive",
    ];
    std::thread::scope(|s| {
        for (n, mode) in MODES.into_iter().enumerate() {
            let mut c = servers.connect(if n % 2 == 0 { 2 } else { 1 });
            s.spawn(move || {
                run(&mut c, &format!("begin; lock table t in {mode} mode"));
                run(
                    &mut c,
                    &format!("insert into came select count(*), {n} from came"),
                );
                run(&mut c, "commit");
            });
            until_waiting(&servers, n as i64 + 1);
        }
        run(&mut one, "commit");
    });
    let came = one.query("select who from came order by n", &[]);
    let came: Vec<i32> = came.expect("the order").iter().map(|r| r.get(0)).collect();
    assert_eq!(came, [0, 1, 2, 3, 4, 5]);
}

/// PostgreSQL's isolation spec deadlock-soft. Two sessions wait for each other only because each
/// stands behind a third one in a queue. One of them is let pass.
#[test]
fn a_circle_over_places_in_queues_is_no_deadlock() {
    let servers = Servers::up("soft");
    let mut c = servers.connect(1);
    run(&mut c, "drop table if exists u; create table u (id int)");
    for [d1, d2, e1, e2] in [[1, 1, 1, 1], [1, 2, 1, 2], [1, 2, 2, 1], [1, 1, 2, 2]] {
        let (mut one, mut two) = (servers.connect(d1), servers.connect(d2));
        run(&mut one, "begin; lock table t in access share mode");
        run(&mut two, "begin; lock table u in access share mode");
        std::thread::scope(|s| {
            let others = [
                (e1, "begin; lock table t in access exclusive mode; commit"),
                (e2, "begin; lock table u in access exclusive mode; commit"),
            ];
            for (n, (k, sql)) in others.into_iter().enumerate() {
                beside(s, servers.connect(k), sql);
                until_waiting(&servers, n as i64 + 1);
            }
            beside(s, one, "lock table u in access share mode; commit");
            beside(s, two, "lock table t in access share mode; commit");
        });
    }
}
