//! Histories of transactions on several instances, as processes, under faults: `kill -9` of one and of two at once, processes that are stopped for a while, instances that leave and come back, connections between
//! instances that are slow, stand still and break. Afterwards nothing is lost, nothing is there twice, no isolation level is broken ([`checker`]), and `braid verify` finds nothing.
//!
//! `BRAID_HISTORY_SECONDS` (15 by default) is how long it goes, `BRAID_HISTORY_SEED` makes the same choices again, `BRAID_HISTORY_INSTANCES` (3) and `BRAID_HISTORY_SESSIONS` (3 on each) are how many.

mod checker;
#[path = "../processes/mod.rs"]
mod processes;
mod proxy;

use checker::{Op, Outcome, Txn};
use postgres::{Client, IsolationLevel, NoTls};
use processes::{Rng, braid, environment, free_ports, succeeds};
use proxy::Proxy;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

const LISTS: u64 = 6;
/// Longer than any of this takes on a loaded machine: only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(120);
/// A guard leaves an instance down that dies five times within two minutes.
const BETWEEN_DEATHS: Duration = Duration::from_secs(30);

struct Cluster {
    dir: PathBuf,
    instances: u16,
    port: u16,
    /// What others reach each instance through.
    proxies: Vec<Proxy>,
}

impl Cluster {
    fn up(dir: PathBuf, instances: u16) -> Cluster {
        let (port, inner) = (free_ports(instances), free_ports(instances));
        let proxies: Vec<Proxy> = (0..instances).map(|k| Proxy::to(inner + k)).collect();
        let peers: Vec<String> = (1..)
            .zip(&proxies)
            .map(|(k, p)| format!("{k}=127.0.0.1:{}", p.port))
            .collect();
        let c = Cluster {
            dir,
            instances,
            port,
            proxies,
        };
        let (data, n) = (c.data(), instances.to_string());
        let (port, inner, peers) = (port.to_string(), inner.to_string(), peers.join(","));
        let mut args = vec!["up", "--detach", "--data", &data, "--instances", &n];
        args.extend([
            "--port",
            &port,
            "--interconnect-port",
            &inner,
            "--peers",
            &peers,
        ]);
        args.extend(["--buffer-cache", "16MB", "--set", "redo_file_size=32MB"]);
        succeeds(&args);
        c
    }

    fn data(&self) -> String {
        self.dir.join("data").to_str().expect("UTF-8").to_string()
    }

    fn try_connect(&self, k: u16) -> Result<Client, postgres::Error> {
        let port = self.port + k - 1;
        Client::connect(
            &format!("postgresql://tester@127.0.0.1:{port}/braid"),
            NoTls,
        )
    }

    fn connect(&self, k: u16) -> Client {
        let give_up = Instant::now() + PATIENCE;
        loop {
            match self.try_connect(k) {
                Ok(client) => return client,
                Err(e) => assert!(Instant::now() < give_up, "instance {k}: {e}"),
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    fn pid(&self, k: u16) -> Option<u64> {
        let output = braid(&["status", "--data", &self.data(), "--json"]);
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let open = |s: &&serde_json::Value| s["id"] == k && s["state"] == "open";
        all.as_array()?.iter().find(open)?["pid"].as_u64()
    }

    fn signal(&self, which: &str, k: u16) {
        if let Some(pid) = self.pid(k) {
            let sent = Command::new("kill")
                .args([which, &pid.to_string()])
                .status();
            // It may have ended by itself meanwhile.
            sent.expect("kill runs");
        }
    }
}

/// What all sessions share.
struct Work {
    cluster: Cluster,
    began: Instant,
    token: AtomicU64,
    stop: AtomicBool,
}

impl Work {
    fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}

fn parse(text: &str) -> Vec<u64> {
    let tokens = text.split_terminator(',');
    tokens.map(|t| t.parse().expect("a token")).collect()
}

/// One transaction; `ops` is what became of its statements. True if it can have committed though there is an error.
fn transaction(
    client: &mut Client,
    txn: &mut Txn,
    rng: &mut Rng,
    work: &Work,
) -> Result<(), (bool, postgres::Error)> {
    let level = match txn.repeatable {
        true => IsolationLevel::RepeatableRead,
        false => IsolationLevel::ReadCommitted,
    };
    let before = |e| (false, e);
    let mut t = client
        .build_transaction()
        .isolation_level(level)
        .start()
        .map_err(before)?;
    let mut snapshot = None;
    // In the order of the lists, mostly: some deadlocks are wanted, too.
    let mut lists: Vec<i64> = (0..1 + rng.below(4))
        .map(|_| rng.below(LISTS) as i64)
        .collect();
    if rng.below(4) > 0 {
        lists.sort_unstable();
    }
    for list in lists {
        let began = work.now();
        let began = match txn.repeatable {
            true => *snapshot.get_or_insert(began),
            false => began,
        };
        if rng.below(2) == 0 {
            let row = t
                .query_one("select v from list where k = $1", &[&list])
                .map_err(before)?;
            txn.ops.push(Op::Read(list, parse(row.get(0)), began));
        } else {
            let token = work.token.fetch_add(1, Relaxed);
            // Whatever comes of it: if it is never found it was not done.
            txn.ops.push(Op::Append(list, token));
            let text = format!("{token},");
            t.execute(
                "update list set v = v || $2::text where k = $1",
                &[&list, &text],
            )
            .map_err(before)?;
        }
    }
    if rng.below(8) == 0 {
        return t.rollback().map_err(before);
    }
    t.commit().map_err(|e| (true, e))?;
    txn.outcome = Outcome::Committed(work.now());
    Ok(())
}

/// Errors that a client has to expect of a living instance.
fn is_expected(code: &postgres::error::SqlState) -> bool {
    ["40001", "40P01"].contains(&code.code())
}

fn session(work: &Work, k: u16, seed: u64) -> Vec<Txn> {
    let mut rng = Rng::new(seed);
    let mut done = Vec::new();
    while !work.stop.load(SeqCst) {
        let Ok(mut client) = work.cluster.try_connect(k) else {
            std::thread::park_timeout(Duration::from_millis(50));
            continue;
        };
        while !work.stop.load(SeqCst) {
            let mut txn = Txn {
                repeatable: rng.below(2) == 0,
                ops: Vec::new(),
                outcome: Outcome::RolledBack,
            };
            let result = transaction(&mut client, &mut txn, &mut rng, work);
            let lost = match &result {
                Ok(()) => false,
                Err((committing, e)) => match e.code() {
                    Some(code) if is_expected(code) => false,
                    // The instance is stopping, or gone.
                    Some(code) if code.code().starts_with("57P") => {
                        txn.outcome = if *committing {
                            Outcome::Unknown
                        } else {
                            txn.outcome
                        };
                        true
                    }
                    Some(_) => panic!("instance {k}: {e}"),
                    None => {
                        txn.outcome = if *committing {
                            Outcome::Unknown
                        } else {
                            txn.outcome
                        };
                        true
                    }
                },
            };
            done.push(txn);
            if lost {
                break;
            }
        }
    }
    done
}

/// Does harm until it is told to stop; says what.
fn harm(work: &Work, seed: u64) -> BTreeMap<&'static str, u64> {
    let mut rng = Rng::new(seed);
    let c = &work.cluster;
    let n = u64::from(c.instances);
    let mut died: BTreeMap<u16, Instant> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    while !work.stop.load(SeqCst) {
        let pause = 500 + rng.below(2500);
        std::thread::park_timeout(Duration::from_millis(pause));
        let k = 1 + rng.below(n) as u16;
        let other = 1 + (u64::from(k) % n) as u16;
        let rested = |k: &u16| died.get(k).is_none_or(|at| at.elapsed() > BETWEEN_DEATHS);
        let what = match rng.below(6) {
            0 | 1 if rested(&k) => {
                c.signal("-9", k);
                died.insert(k, Instant::now());
                "killed"
            }
            2 if rested(&k) && rested(&other) && c.instances > 2 => {
                c.signal("-9", k);
                c.signal("-9", other);
                died.extend([(k, Instant::now()), (other, Instant::now())]);
                "two killed"
            }
            3 => {
                c.signal("-STOP", k);
                std::thread::park_timeout(Duration::from_millis(100 + rng.below(2000)));
                c.signal("-CONT", k);
                "stopped for a while"
            }
            4 => {
                let (data, k) = (c.data(), k.to_string());
                // Refused if it is not up just now.
                if braid(&["stop", &k, "--data", &data]).status.success() {
                    braid(&["start", &k, "--data", &data]);
                }
                "left and came back"
            }
            _ => {
                let proxy = &c.proxies[usize::from(k) - 1];
                let (fault, what) = match rng.below(3) {
                    0 => (proxy::Fault::Delay, "slow connections"),
                    1 => (proxy::Fault::Stall, "stalled connections"),
                    _ => (proxy::Fault::Break, "broken connections"),
                };
                proxy.set(fault);
                std::thread::park_timeout(Duration::from_millis(100 + rng.below(1500)));
                proxy.set(proxy::Fault::None);
                what
            }
        };
        *counts.entry(what).or_default() += 1;
    }
    (1..=c.instances).for_each(|k| c.signal("-CONT", k));
    counts
}

#[test]
fn histories_keep_what_their_isolation_levels_promise() {
    let seed = environment("BRAID_HISTORY_SEED", std::process::id().into());
    let seconds = environment("BRAID_HISTORY_SECONDS", 15);
    let instances = environment("BRAID_HISTORY_INSTANCES", 3) as u16;
    let sessions = environment("BRAID_HISTORY_SESSIONS", 3) as u16;
    println!(
        "BRAID_HISTORY_SEED={seed} BRAID_HISTORY_SECONDS={seconds} BRAID_HISTORY_INSTANCES={instances}"
    );
    let dir =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("directory");
    let work = Arc::new(Work {
        cluster: Cluster::up(dir.clone(), instances),
        began: Instant::now(),
        token: AtomicU64::new(1),
        stop: AtomicBool::new(false),
    });
    let mut client = work.cluster.connect(1);
    client
        .batch_execute("create table list (k bigint primary key, v text not null)")
        .expect("a table");
    for k in 0..LISTS as i64 {
        client
            .execute("insert into list values ($1, '')", &[&k])
            .expect("a list");
    }
    drop(client);
    let of_harm = work.clone();
    let harmful = std::thread::spawn(move || harm(&of_harm, seed));
    let working: Vec<_> = (0..sessions * instances)
        .map(|n| {
            let work = work.clone();
            std::thread::spawn(move || {
                session(&work, 1 + n % instances, seed * 1000 + u64::from(n))
            })
        })
        .collect();
    std::thread::park_timeout(Duration::from_secs(seconds));
    work.stop.store(true, SeqCst);
    let counts = harmful.join().expect("faults");
    let ended: Vec<_> = working.into_iter().map(|s| s.join()).collect();
    let txns: Vec<Txn> = ended
        .into_iter()
        .flat_map(|e| e.expect("a session"))
        .collect();

    let mut ends = Vec::new();
    for k in 1..=instances {
        let rows = work
            .cluster
            .connect(k)
            .query("select k, v from list", &[])
            .expect("lists");
        let lists: BTreeMap<i64, Vec<u64>> =
            rows.iter().map(|r| (r.get(0), parse(r.get(1)))).collect();
        ends.push(lists);
    }
    assert!(
        ends.windows(2).all(|two| two[0] == two[1]),
        "instances differ"
    );
    let committed = txns
        .iter()
        .filter(|t| matches!(t.outcome, Outcome::Committed(_)))
        .count();
    let unknown = txns
        .iter()
        .filter(|t| t.outcome == Outcome::Unknown)
        .count();
    println!(
        "{} transactions, {committed} acknowledged, {unknown} unknown; {counts:?}",
        txns.len()
    );
    let found = checker::check(&txns, &ends[0]);
    assert!(
        found.is_empty(),
        "BRAID_HISTORY_SEED={seed}: {} findings, first {:#?}",
        found.len(),
        &found[..found.len().min(10)]
    );
    assert!(committed > 0);
    succeeds(&["down", "--data", &work.cluster.data()]);
    succeeds(&["verify", "--data", &work.cluster.data()]);
    std::fs::remove_dir_all(&dir).expect("removed");
}
