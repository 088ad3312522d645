//! Sessions of two instances that stand in line for a row or a unique key, beside what breaks the
//! line up: the death of the instance whose session has it, the death of an instance that waits,
//! and CREATE UNIQUE INDEX. Nobody waits for ever, the others keep their order, and there is no
//! deadlock (40P01), as nobody wants two things.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::processes::Database;
use testkit::waiting::until;

/// Far longer than any wait here, so that a wait for ever is an error and no hang.
const PATIENCE: &str = "set lock_timeout = '60s'";

const SMALL: [&str; 2] = ["--buffer-cache", "64MB"];

/// What the sessions want.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Row,
    /// A key, which is free again when the transaction that has it ends.
    Key,
    /// A key whose row stays. Sessions that waited for the key go on to the row, in no order.
    Upsert,
}

impl Wanted {
    /// The table with what is wanted, and another one that says who had it.
    fn make(self, client: &mut postgres::Client) {
        let made = "drop table if exists had; drop table if exists line; create table line (k int \
                    primary key, s text); create table had (n bigserial, mark text)";
        client.batch_execute(made).expect("the tables are made");
        if self == Wanted::Row {
            let row = "insert into line values (1, '')";
            client.batch_execute(row).expect("a row");
        }
    }

    /// Begins a transaction and takes it.
    fn hold(self, mark: char) -> String {
        let take = match self {
            Wanted::Row => "update line set s = 'h' where k = 1".to_string(),
            Wanted::Key => format!("insert into line values (1, '{mark}')"),
            Wanted::Upsert => format!(
                "insert into line values (1, '{mark}') on conflict (k) do update set s = line.s || \
                 '{mark}'"
            ),
        };
        format!("begin; {take}")
    }

    /// Says who has had it, and ends the transaction.
    fn let_go(self, mark: char) -> String {
        let free = match self {
            Wanted::Key => "delete from line where k = 1;",
            Wanted::Row | Wanted::Upsert => "",
        };
        format!("insert into had (mark) values ('{mark}'); {free} commit")
    }

    fn take(self, mark: char) -> String {
        format!("{}; {}", self.hold(mark), self.let_go(mark))
    }
}

/// The marks of those who had it, in the order in which they did if all were sessions of one
/// instance.
fn marks(client: &mut postgres::Client) -> String {
    let asked = "select string_agg(mark, '' order by n) from had";
    let marks: Option<String> = client.query_one(asked, &[]).expect("the marks").get(0);
    marks.unwrap_or_default()
}

fn session(database: &Database, instance: u16) -> postgres::Client {
    let mut client = database.client(instance);
    client.batch_execute(PATIENCE).expect("set");
    client
}

type Running = JoinHandle<Result<(), postgres::Error>>;

/// Runs a statement on a session of its own.
fn run(database: &Database, instance: u16, sql: String) -> Running {
    let mut client = session(database, instance);
    std::thread::spawn(move || client.batch_execute(&sql))
}

/// Waits until so many sessions of all instances wait for a lock whose event begins like this.
fn until_waiting(looker: &mut postgres::Client, event: &str, sessions: i64) {
    let asked = format!("select count(*) from pg_stat_activity where wait_event like '{event}%'");
    until("the sessions wait", || {
        let waiting: i64 = looker.query_one(&asked, &[]).expect("the waits").get(0);
        waiting >= sessions
    });
}

/// Starts sessions that want it, each once the one before stands in line.
fn line_up(
    database: &Database,
    looker: &mut postgres::Client,
    wanted: Wanted,
    line: &[(u16, char)],
) -> Vec<(char, Running)> {
    let mut running = Vec::new();
    for (before, (instance, mark)) in (1..).zip(line) {
        running.push((*mark, run(database, *instance, wanted.take(*mark))));
        until_waiting(looker, "enq: TX", before);
    }
    running
}

/// The holder dies with its instance, and so do sessions in the middle of the line.
#[test]
fn the_line_goes_on_when_the_instance_that_has_it_dies() {
    for wanted in [Wanted::Row, Wanted::Key] {
        let options = [&SMALL[..], &["--no-restart"]].concat();
        let database = Database::up("lines-holder", 2, &options);
        let mut looker = database.client(2);
        wanted.make(&mut looker);
        let mut holder = session(&database, 1);
        holder.batch_execute(&wanted.hold('h')).expect("it is free");
        let line = [(2, 'a'), (1, 'x'), (2, 'b'), (1, 'y'), (2, 'c')];
        let running = line_up(&database, &mut looker, wanted, &line);
        database.signal(1, "-KILL");
        for (mark, session) in running {
            let done = session.join().expect("no panic");
            match mark {
                'x' | 'y' => assert!(done.is_err(), "{wanted:?}: {mark} died"),
                _ => done.unwrap_or_else(|e| panic!("{wanted:?}: {mark}: {e:?}")),
            }
        }
        assert_eq!(marks(&mut looker), "abc", "{wanted:?}");
        drop((looker, holder));
        database.verify();
    }
}

#[test]
fn the_line_goes_on_without_the_sessions_of_an_instance_that_dies() {
    for wanted in [Wanted::Row, Wanted::Key] {
        let options = [&SMALL[..], &["--no-restart"]].concat();
        let database = Database::up("lines-waiter", 2, &options);
        let mut looker = database.client(1);
        wanted.make(&mut looker);
        let mut holder = session(&database, 1);
        holder.batch_execute(&wanted.hold('h')).expect("it is free");
        let line = [(2, 'x'), (1, 'a'), (2, 'y'), (1, 'b'), (1, 'c')];
        let running = line_up(&database, &mut looker, wanted, &line);
        database.signal(2, "-KILL");
        let mut left = Vec::new();
        for (mark, session) in running {
            match mark {
                'x' | 'y' => assert!(session.join().expect("no panic").is_err(), "{mark} died"),
                _ => left.push((mark, session)),
            }
        }
        holder
            .batch_execute(&wanted.let_go('h'))
            .expect("it goes on");
        for (mark, session) in left {
            let done = session.join().expect("no panic");
            done.unwrap_or_else(|e| panic!("{wanted:?}: {mark}: {e:?}"));
        }
        assert_eq!(marks(&mut looker), "habc", "{wanted:?}");
        drop((looker, holder));
        database.verify();
    }
}

/// Of plain INSERTs the first in line has the key once its holder is dead, and the others are told
/// that it is taken.
#[test]
fn a_key_of_the_dead_is_had_by_the_first_in_line_alone() {
    let options = [&SMALL[..], &["--no-restart"]].concat();
    let database = Database::up("lines-insert", 2, &options);
    let mut looker = database.client(2);
    Wanted::Key.make(&mut looker);
    let mut holder = session(&database, 1);
    let put = |mark: char| format!("insert into line values (1, '{mark}')");
    holder
        .batch_execute(&Wanted::Key.hold('h'))
        .expect("it is free");
    let mut running = Vec::new();
    for (before, mark) in (1..).zip(['a', 'b', 'c']) {
        running.push(run(&database, 2, put(mark)));
        until_waiting(&mut looker, "enq: TX", before);
    }
    database.signal(1, "-KILL");
    let done = running.into_iter().map(|r| r.join().expect("no panic"));
    let codes: Vec<String> = done
        .map(|done| match done {
            Ok(()) => "had".to_string(),
            Err(e) => e.code().map_or("gone", |c| c.code()).to_string(),
        })
        .collect();
    assert_eq!(codes, ["had", "23505", "23505"]);
    let had = looker.query_one("select s from line", &[]).expect("a row");
    assert_eq!(had.get::<_, String>(0), "a");
    drop((looker, holder));
    database.verify();
}

/// Sessions of both instances take turns at one row or key until one instance dies, at whatever
/// moment, also with a turn promised to it. The others' next statements all end well and soon.
#[test]
fn turns_of_an_instance_that_dies_keep_nobody() {
    const ROUNDS: u64 = 4;
    const SESSIONS: u64 = 3;
    /// A death is noticed in milliseconds, and what the dead had is free within about a second.
    const SOON: Duration = Duration::from_secs(30);
    for wanted in [Wanted::Row, Wanted::Key, Wanted::Upsert] {
        let database = Database::up("lines-turns", 2, &SMALL);
        wanted.make(&mut database.client(1));
        let known = AtomicU64::new(0);
        for round in 0..ROUNDS {
            let dies = (round % 2) as u16 + 1;
            let lives = 3 - dies;
            let (is_over, turns_after) = (AtomicBool::new(false), AtomicU64::new(0));
            let turns = AtomicU64::new(0);
            let (database, known) = (&database, &known);
            std::thread::scope(|scope| {
                for instance in [dies, lives] {
                    for _ in 0..SESSIONS {
                        let mut client = session(database, instance);
                        let (is_over, turns_after, turns) = (&is_over, &turns_after, &turns);
                        scope.spawn(move || {
                            while !is_over.load(SeqCst) {
                                let began = Instant::now();
                                let done = client.batch_execute(&wanted.take('.'));
                                match done {
                                    Ok(()) => known.fetch_add(1, SeqCst),
                                    Err(_) if instance == dies => return,
                                    Err(e) => panic!("{wanted:?}: {e:?}"),
                                };
                                let took = began.elapsed();
                                assert!(took < SOON, "{wanted:?}: a turn took {took:?}");
                                turns.fetch_add(1, SeqCst);
                                if instance == lives {
                                    turns_after.fetch_add(1, SeqCst);
                                }
                            }
                        });
                    }
                }
                until("turns are taken", || turns.load(SeqCst) > 60 + round * 17);
                database.signal(dies, "-KILL");
                turns_after.store(0, SeqCst);
                until("the others go on", || turns_after.load(SeqCst) > 60);
                is_over.store(true, SeqCst);
            });
            // The guard starts the dead instance again.
            let mut client = database.client_when_open(dies);
            let marks = marks(&mut client).len() as u64;
            let known = known.load(SeqCst);
            // A commit whose answer the death has cut off may be there.
            let unknown = SESSIONS * (round + 1);
            assert!(
                (known..=known + unknown).contains(&marks),
                "{known} {marks}"
            );
        }
        database.verify();
    }
}

/// An index that waits for sessions in line lets them have their turns; who comes later waits for
/// the index, on both instances.
#[test]
fn an_index_is_made_between_those_in_line_and_those_who_come_later() {
    let database = Database::up("lines-index", 2, &SMALL);
    let mut looker = database.client(2);
    let wanted = Wanted::Upsert;
    for (end, count) in [("commit", 3), ("rollback", 2)] {
        wanted.make(&mut looker);
        let mut holder = session(&database, 1);
        holder.batch_execute(&wanted.hold('h')).expect("it is free");
        let line = line_up(&database, &mut looker, wanted, &[(2, 'a'), (1, 'b')]);
        let made = run(
            &database,
            2,
            "create unique index line_s on line (s)".into(),
        );
        until_waiting(&mut looker, "enq: TM", 1);
        let mut later = Vec::new();
        for (before, (instance, mark)) in (2..).zip([(1, 'c'), (2, 'd')]) {
            later.push(run(&database, instance, wanted.take(mark)));
            until_waiting(&mut looker, "enq: TM", before);
        }
        holder.batch_execute(end).expect("it ends");
        for (mark, session) in line {
            let done = session.join().expect("no panic");
            done.unwrap_or_else(|e| panic!("{end}: {mark}: {e:?}"));
        }
        made.join().expect("no panic").expect("the index is made");
        for session in later {
            session.join().expect("no panic").expect("it goes on");
        }
        let marks: String = looker
            .query_one("select s from line", &[])
            .expect("the row")
            .get(0);
        let (first, last) = marks.split_at(count);
        assert!(first.contains('a') && first.contains('b'), "{end}: {marks}");
        assert!(["cd", "dc"].contains(&last), "{end}: {marks}");
        for instance in [1, 2] {
            let twice = format!("insert into line values (2, '{marks}')");
            let refused = session(&database, instance).batch_execute(&twice);
            let refused = refused.expect_err("the index is unique");
            let refused = refused.as_db_error().expect("the server says so");
            assert_eq!(refused.code().code(), "23505", "{refused:?}");
            assert_eq!(refused.constraint(), Some("line_s"), "{refused:?}");
        }
    }
    drop(looker);
    database.verify();
}

/// Sessions of both instances put keys, commit and roll back, while unique indexes come and go. A
/// text goes with one key alone: no two sessions wait for each other, and no index is in the way.
#[test]
fn unique_indexes_come_and_go_beside_sessions_that_wait_for_keys() {
    const ROUNDS: usize = 16;
    let database = Database::up("lines-storm", 2, &SMALL);
    let mut owner = session(&database, 1);
    Wanted::Upsert.make(&mut owner);
    let is_over = AtomicBool::new(false);
    let ended = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..6u64 {
            let mut client = session(&database, (number % 2) as u16 + 1);
            let (is_over, ended) = (&is_over, &ended);
            scope.spawn(move || {
                for turn in number.. {
                    if is_over.load(SeqCst) {
                        return;
                    }
                    let (key, version) = (turn % 3, turn % 5);
                    let put = format!(
                        "begin; insert into line values ({key}, '{key}.{version}') on conflict (k) \
                         do update set s = excluded.s; {}",
                        if turn % 4 == 3 { "rollback" } else { "commit" }
                    );
                    client.batch_execute(&put).expect("it ends");
                    ended.fetch_add(1, SeqCst);
                }
            });
        }
        for round in 0..ROUNDS {
            let before = ended.load(SeqCst);
            let mut other = session(&database, (round % 2) as u16 + 1);
            // Every other time two rows that nobody waits for have one text.
            let is_refused = round % 4 >= 2;
            if is_refused {
                let twins = "insert into line values (10, 'twin'), (11, 'twin')";
                owner.batch_execute(twins).expect("there is no index");
            }
            let made = other.batch_execute("create unique index line_s on line (s)");
            if is_refused {
                let e = made.expect_err("two rows have one text");
                assert_eq!(e.code().map(|c| c.code()), Some("23505"), "{e:?}");
                owner
                    .batch_execute("delete from line where k >= 10")
                    .expect("deleted");
            } else {
                made.unwrap_or_else(|e| panic!("round {round}: {e:?}"));
                until("sessions meet at the index", || {
                    ended.load(SeqCst) > before + 20
                });
                owner.batch_execute("drop index line_s").expect("dropped");
            }
            let before = ended.load(SeqCst);
            until("sessions go on", || ended.load(SeqCst) > before + 5);
        }
        is_over.store(true, SeqCst);
    });
    drop(owner);
    database.verify();
}
