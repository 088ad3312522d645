//! Deadlocks over instances, as processes. None is reported where there can be none. A real one
//! names every session of its circle.
//!
//! `BRAID_STORM_STATEMENTS` is the number of statements (6,000 by default), `BRAID_STORM_INSTANCES`
//! that of instances (2 by default). `BRAID_STORM_SEED` replays the choices. The long run:
//! `BRAID_STORM_STATEMENTS=100000 cargo test --release -p braid --test deadlocks`.

use seam::Rng;
use std::sync::atomic::{AtomicU64, Ordering::*};
use testkit::processes::Database;
use testkit::seeds;

const SESSIONS: usize = 8;
/// Rows that sessions lock in the order of their ids.
const ROWS: i64 = 12;
/// Keys that are put, met and moved away.
const KEYS: i64 = 6;

const SMALL: [&str; 4] = ["--buffer-cache", "32MB", "--set", "redo_file_size=32MB"];

const DIVISION_BY_ZERO: &str = "22012";

fn code(e: &postgres::Error) -> &str {
    e.code().map_or("", |c| c.code())
}

/// The state that the sessions of a storm share.
struct Storm {
    /// The number of statements that were answered.
    statements: AtomicU64,
    enough: u64,
    /// The next key that no row has ever had.
    fresh: AtomicU64,
}

/// A session of a storm. Sessions cannot form a circle, for three reasons. A transaction takes the
/// locks that it keeps in the order of the rows' ids. It locks a row that it gives back at once, by
/// a rollback to a savepoint, only while it holds no row with a higher id. And a statement on keys
/// is a transaction of its own: it holds at most one row when it waits, and none when it waits for
/// a key.
struct Session<'a> {
    client: postgres::Client,
    rng: Rng,
    storm: &'a Storm,
}

impl Session<'_> {
    fn run(&mut self, sql: &str) -> Result<(), postgres::Error> {
        self.storm.statements.fetch_add(1, Relaxed);
        self.client.batch_execute(sql)
    }

    fn work(&mut self) -> Result<(), postgres::Error> {
        match self.rng.below(8) {
            0..4 => self.rows(),
            4..6 => self.upsert(),
            _ => self.move_key(),
        }
    }

    /// Locks rows in the order of their ids. Between them it locks some that it gives back.
    fn rows(&mut self) -> Result<(), postgres::Error> {
        self.run("begin")?;
        let mut kept = -1;
        for _ in 0..1 + self.rng.below(3) {
            let above = |rng: &mut Rng| kept + 1 + rng.below((ROWS - kept) as u64) as i64;
            let tried = above(&mut self.rng);
            self.run("savepoint a")?;
            match self.rng.below(3) {
                0 => self.run(&format!("update r set n = n + 1 where id = {tried}"))?,
                1 => self.run(&format!("select n from r where id = {tried} for update"))?,
                _ => {
                    let update = format!(
                        "update r set n = n / case when n >= 0 then 0 else 1 end where id = {tried}"
                    );
                    let failed = self.run(&update);
                    if let Err(e) = failed
                        && code(&e) != DIVISION_BY_ZERO
                    {
                        return Err(e);
                    }
                }
            }
            self.run("rollback to a")?;
            let next = above(&mut self.rng);
            if next >= ROWS {
                break;
            }
            self.run(&format!("update r set n = n + 1 where id = {next}"))?;
            kept = next;
        }
        let end = ["commit", "rollback"][self.rng.below(2) as usize];
        self.run(end)
    }

    fn upsert(&mut self) -> Result<(), postgres::Error> {
        let key = self.rng.below(KEYS as u64);
        let update = match self.rng.below(3) {
            0 => "nothing",
            _ => "update set n = k.n + 1",
        };
        self.run(&format!(
            "insert into k values ({key}, {key}, 0) on conflict (id) do {update}"
        ))
    }

    /// Moves a row away to a key that nobody else wants.
    fn move_key(&mut self) -> Result<(), postgres::Error> {
        let key = self.rng.below(KEYS as u64);
        let to = self.storm.fresh.fetch_add(1, Relaxed);
        self.run(&format!(
            "update k set id = {to}, u = {to} where id = {key}"
        ))
    }
}

/// A session waits for a row or a key, not for the end of the transaction that once had it.
#[test]
fn no_deadlock_is_reported_where_there_can_be_none() {
    let seed = seeds::number("BRAID_STORM_SEED", std::process::id().into());
    let instances = seeds::number("BRAID_STORM_INSTANCES", 2) as u16;
    let enough = seeds::number("BRAID_STORM_STATEMENTS", 6_000);
    println!("BRAID_STORM_SEED={seed} BRAID_STORM_INSTANCES={instances}");
    let database = Database::up("storm", instances, &SMALL);
    let mut client = database.client_when_open(1);
    client
        .batch_execute(&format!(
            "create table r (id bigint primary key, n bigint not null);
             insert into r select i, 0 from generate_series(0, {}) i;
             create table k (id bigint primary key, u bigint unique, n bigint not null)",
            ROWS - 1
        ))
        .expect("tables");
    let storm = Storm {
        statements: AtomicU64::new(0),
        enough,
        fresh: AtomicU64::new(1_000),
    };
    (1..=instances).for_each(|k| drop(database.client_when_open(k)));
    std::thread::scope(|s| {
        for number in 0..SESSIONS {
            let (storm, database) = (&storm, &database);
            s.spawn(move || {
                let mut session = Session {
                    client: database.client(number as u16 % instances + 1),
                    rng: Rng(seed ^ (number as u64 + 1) << 32),
                    storm,
                };
                while storm.statements.load(Relaxed) < storm.enough {
                    if let Err(e) = session.work() {
                        let detail = e.as_db_error().and_then(|e| e.detail());
                        panic!("session {number}: {e:?}\n{}", detail.unwrap_or_default());
                    }
                }
            });
        }
    });
    let statements = storm.statements.load(Relaxed);
    println!("{statements} statements");
    database.verify();
}

/// Two sessions form a circle, first on two instances, then on one. The client whose statement
/// fails, and the log, are told about each session: its instance, what it waits for, and what it
/// runs.
#[test]
fn a_deadlock_names_every_session_of_the_circle() {
    let database = Database::up("ring", 2, &SMALL);
    let mut client = database.client_when_open(1);
    drop(database.client_when_open(2));
    client
        .batch_execute(
            "create table r (id int primary key, n int); insert into r values (1,0),(2,0)",
        )
        .expect("a table");
    for (one, other) in [(1, 2), (1, 1)] {
        let mut a = database.client(one);
        let mut b = database.client(other);
        a.batch_execute("begin; update r set n = 1 where id = 1")
            .expect("free");
        b.batch_execute("begin; update r set n = 2 where id = 2")
            .expect("free");
        let ended = std::thread::scope(|s| {
            let crosswise = [
                (&mut a, "update r set n = 3 where id = 2"),
                (&mut b, "update r set n = 4 where id = 1"),
            ];
            let waits = crosswise.map(|(client, sql)| {
                s.spawn(move || {
                    let done = client.batch_execute(sql);
                    client.batch_execute("rollback").expect("a rollback");
                    done
                })
            });
            waits.map(|w| w.join().expect("no client panics"))
        });
        let victims: Vec<_> = ended.into_iter().filter_map(Result::err).collect();
        assert_eq!(victims.len(), 1, "{victims:?}");
        let error = victims[0].as_db_error().expect("an answer");
        assert_eq!(
            (error.code().code(), error.message()),
            ("40P01", "deadlock detected")
        );
        assert_eq!(error.hint(), Some("See server log for query details."));
        let detail = error.detail().expect("a detail");
        let lines: Vec<&str> = detail.lines().collect();
        assert_eq!(lines.len(), 4, "{detail}");
        for line in &lines[..2] {
            assert!(
                line.contains(" waits for ShareLock on transaction "),
                "{detail}"
            );
            assert!(line.contains("; blocked by process "), "{detail}");
        }
        for statement in [
            "update r set n = 3 where id = 2",
            "update r set n = 4 where id = 1",
        ] {
            assert!(
                lines[2..].iter().any(|l| l.ends_with(statement)),
                "{detail}"
            );
        }
        for instance in [one, other] {
            let there = format!(" of instance {instance} waits");
            assert!(lines[..2].iter().any(|l| l.contains(&there)), "{detail}");
        }
        let log = database.log();
        assert!(lines.iter().all(|l| log.contains(l)), "{detail}\n{log}");
    }
}
