//! Instances as processes that insert rows under drawn keys, with `kill -9` of the sequence's home in the middle: no statement of the others fails, no value is used twice, what was acknowledged is there.
//!
//! `BRAID_SEQUENCE_KILLS` kills so often (2 by default).

mod processes;

use processes::{braid, environment, free_ports, succeeds};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const INSTANCES: u16 = 2;
const SESSIONS: usize = 3;
/// Longer than any of this takes on a loaded machine: only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
/// A guard whose instances die too often gives up: before that it is replaced.
const DEATHS_PER_GUARD: u64 = 4;

struct Database {
    dir: PathBuf,
    port: u16,
}

impl Database {
    fn data(&self) -> &str {
        self.dir.to_str().expect("UTF-8")
    }

    fn up(&self) {
        let (port, instances) = (self.port.to_string(), INSTANCES.to_string());
        let small = ["--buffer-cache", "16MB", "--set", "redo_file_size=32MB"];
        let mut args = vec!["up", "--detach", "--instances", &instances];
        args.extend(["--data", self.data(), "--port", &port]);
        args.extend(small);
        succeeds(&args);
    }

    fn try_connect(&self, instance: u16) -> Result<postgres::Client, postgres::Error> {
        let port = self.port + instance - 1;
        let url = format!("postgresql://tester@127.0.0.1:{port}/braid");
        postgres::Client::connect(&url, postgres::NoTls)
    }

    /// Once it is open, again after a crash.
    fn connect(&self, instance: u16) -> postgres::Client {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.try_connect(instance) {
                Ok(client) => return client,
                Err(e) => assert!(Instant::now() < give_up, "instance {instance}: {e}"),
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    fn pid(&self, instance: u16) -> u64 {
        let output = braid(&["status", "--data", self.data(), "--json"]);
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let found = all[usize::from(instance) - 1]["pid"].as_u64();
        found.expect("a pid")
    }

    /// Who gives the other its values, since a moment.
    fn served(&self, instance: u16) -> i64 {
        let sql =
            "select value from v$sysstat where name = 'sequence values served to other instances'";
        let row = self.connect(instance).query_one(sql, &[]);
        row.expect("it is up").get(0)
    }
}

#[derive(Default)]
struct Told {
    acknowledged: Mutex<Vec<i64>>,
    commits: AtomicU64,
    /// The instance that is being killed: only its sessions may fail.
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

/// Three rows under drawn keys.
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
        let mut client = db.connect(instance);
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
    let name = format!("braid-sequences-{}-{}", std::process::id(), options.len());
    let dir = std::env::temp_dir().join(name);
    let port = free_ports(INSTANCES);
    let db = Arc::new(Database { dir, port });
    db.up();
    db.connect(1)
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
    for kill in 0..environment("BRAID_SEQUENCE_KILLS", 2) {
        let before: Vec<i64> = (1..=INSTANCES).map(|k| db.served(k)).collect();
        told.work(40);
        let served = |k: &u16| db.served(*k) - before[usize::from(*k) - 1];
        let home = (1..=INSTANCES).max_by_key(served).expect("two are up");
        eprintln!("kill {kill}: instance {home} is home");
        told.killed.store(home.into(), SeqCst);
        let pid = db.pid(home).to_string();
        let killed = Command::new("kill").args(["-9", &pid]).status();
        assert!(killed.expect("kill runs").success());
        // With the survivor first; then with the next life, which the guard starts.
        told.work(30);
        drop(db.connect(home));
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
        let found = db.connect(instance).query("select id from t", &[]);
        let found = found.expect("rows");
        let there: std::collections::HashSet<i64> = found.iter().map(|r| r.get(0)).collect();
        assert_eq!(there.len(), found.len(), "a key is there twice");
        let lost: Vec<_> = acknowledged.iter().filter(|k| !there.contains(k)).collect();
        assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    }
    succeeds(&["down", "--data", db.data()]);
    succeeds(&["verify", "--data", db.data()]);
    std::fs::remove_dir_all(&db.dir).expect("removed");
}

#[test]
fn the_home_of_an_ordered_sequence_is_killed() {
    kill_homes("nocache order");
}

#[test]
fn the_home_of_a_cached_sequence_is_killed() {
    kill_homes("cache 20");
}
