//! Instances as processes insert rows under drawn keys, with `kill -9` of the sequence's home in
//! the middle. No statement of the others fails, no value is used twice, and what was acknowledged
//! is there.
//!
//! `BRAID_SEQUENCE_KILLS` is the number of kills (2 by default).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::processes::Database;
use testkit::seeds;
use testkit::waiting::PATIENCE;

const INSTANCES: u16 = 2;
const SESSIONS: usize = 3;
/// A guard whose instances die too often gives up. It is replaced before that.
const DEATHS_PER_GUARD: u64 = 4;

/// The number of values that an instance has given to the other one since its start.
fn served(db: &Database, instance: u16) -> i64 {
    let sql =
        "select value from v$sysstat where name = 'sequence values served to other instances'";
    let row = db.client_when_open(instance).query_one(sql, &[]);
    row.expect("it is up").get(0)
}

#[derive(Default)]
struct Told {
    acknowledged: Mutex<Vec<i64>>,
    commits: AtomicU64,
    /// The instance that is being killed. Only its sessions may fail.
    killed: AtomicU64,
    stop: AtomicBool,
}

impl Told {
    fn work(&self, commits: u64) {
        let until = self.commits.load(SeqCst) + commits;
        let give_up = Instant::now() + PATIENCE;
        while self.commits.load(SeqCst) < until {
            assert!(Instant::now() < give_up, "sessions do not go on");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// Inserts three rows under drawn keys.
fn transaction(client: &mut postgres::Client) -> Result<Vec<i64>, postgres::Error> {
    let mut t = client.transaction()?;
    let mut keys = Vec::new();
    for _ in 0..3 {
        let sql = "insert into t values (nextval('s'), 'x') returning id";
        keys.push(t.query_one(sql, &[])?.get(0));
    }
    t.commit()?;
    Ok(keys)
}

fn session(db: &Database, instance: u16, told: &Told) {
    while !told.stop.load(SeqCst) {
        let mut client = db.client_when_open(instance);
        while !told.stop.load(SeqCst) {
            match transaction(&mut client) {
                Ok(keys) => {
                    told.acknowledged.lock().expect("no panic").extend(keys);
                    told.commits.fetch_add(1, SeqCst);
                }
                Err(e) => {
                    let is_killed = told.killed.load(SeqCst) == u64::from(instance);
                    assert!(
                        is_killed && e.code().is_none(),
                        "instance {instance}: {e:?}"
                    );
                    break;
                }
            }
        }
    }
}

fn kill_homes(options: &str) {
    let small = ["--buffer-cache", "16MB", "--set", "redo_file_size=32MB"];
    let db = Arc::new(Database::up("sequences", INSTANCES, &small));
    db.client_when_open(1)
        .batch_execute(&format!(
            "create sequence s {options}; create table t (id bigint primary key, v text)"
        ))
        .expect("created");
    let told: Arc<Told> = Arc::default();
    let sessions: Vec<_> = (0..SESSIONS * usize::from(INSTANCES))
        .map(|n| {
            let (db, told) = (db.clone(), told.clone());
            let instance = n as u16 % INSTANCES + 1;
            std::thread::spawn(move || session(&db, instance, &told))
        })
        .collect();
    for kill in 0..seeds::number("BRAID_SEQUENCE_KILLS", 2) {
        let before: Vec<i64> = (1..=INSTANCES).map(|k| served(&db, k)).collect();
        told.work(40);
        let served = |k: &u16| served(&db, *k) - before[usize::from(*k) - 1];
        let home = (1..=INSTANCES).max_by_key(served).expect("two are up");
        eprintln!("kill {kill}: instance {home} is home");
        told.killed.store(home.into(), SeqCst);
        db.signal(home, "-9");
        // The work goes on with the survivor first, then with the next life, which the guard
        // starts.
        told.work(30);
        drop(db.client_when_open(home));
        told.work(30);
        told.killed.store(0, SeqCst);
        assert!(
            kill + 1 < DEATHS_PER_GUARD,
            "a guard gives up after so many"
        );
    }
    told.stop.store(true, SeqCst);
    for session in sessions {
        session.join().expect("sessions see no error");
    }
    let acknowledged = told.acknowledged.lock().expect("no panic").clone();
    for instance in 1..=INSTANCES {
        let found = db.client_when_open(instance).query("select id from t", &[]);
        let found = found.expect("rows");
        let there: std::collections::HashSet<i64> = found.iter().map(|r| r.get(0)).collect();
        assert_eq!(there.len(), found.len(), "a key is there twice");
        let lost: Vec<_> = acknowledged.iter().filter(|k| !there.contains(k)).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }
    db.verify();
}

#[test]
fn the_home_of_an_ordered_sequence_is_killed() {
    kill_homes("nocache order");
}

#[test]
fn the_home_of_a_cached_sequence_is_killed() {
    kill_homes("cache 20");
}
