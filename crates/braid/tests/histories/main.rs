//! Histories of transactions on several instances, as processes, under faults.
//!
//! The faults are: `kill -9` of one, two or all, also while others recover, start or stop;
//! processes that are stopped, for a while or until the others have them ended; instances that
//! leave and come back; and connections between instances that are slow, stand still in one
//! direction or both, and break, for a while or until one of two has to go.
//!
//! Sessions append to lists ([`lists`]) and move money ([`bank`]), at READ COMMITTED and REPEATABLE
//! READ, in half of the runs while others change definitions ([`definitions`]). In a third of the
//! runs masters of blocks follow their users by the second, and tellers move from part to part of
//! the accounts.
//!
//! The test checks these:
//!
//! - Nothing is lost, nothing is there twice, and sums are kept in every snapshot.
//! - No isolation level is broken, and nobody sees less than was acknowledged before ([`history`]).
//! - No statement fails except for conflicts.
//! - No client loses its connection to an instance to which nothing happened, and no instance ends
//!   by itself.
//! - When the faults end, everybody goes on, and `braid verify` finds nothing.
//!
//! `BRAID_HISTORY_SECONDS` (15 by default) is the length of a run, and `BRAID_HISTORY_SEED` makes
//! the same choices again. `BRAID_HISTORY_INSTANCES` (3) and `BRAID_HISTORY_SESSIONS` (3 on each,
//! and 2 of the bank) are numbers. `BRAID_TEST_PROGRAM` is a `braid` other than the one just built:
//! a campaign goes on with copies of both programs while others are built.

mod bank;
mod cluster;
mod definitions;
mod harm;
mod lists;
mod proxy;
mod work;

use bank::{Bank, Transfer};
use cluster::{Cluster, PATIENCE};
use definitions::Definitions;
use lists::Lists;
use seam::Rng;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use testkit::history::{self, Outcome, Txn};
use testkit::processes::succeeds;
use testkit::scratch::Scratch;
use testkit::seeds;
use work::{Work, session};

/// Sessions on each instance that move money.
const TELLERS: u16 = 2;

/// The sessions at work. Each returns at its end what it has done.
struct Sessions {
    lists: Vec<JoinHandle<Vec<Txn>>>,
    bank: Vec<JoinHandle<Vec<Transfer>>>,
    /// In some runs there is one on each instance.
    definitions: Vec<JoinHandle<()>>,
}

impl Sessions {
    fn start(work: &Arc<Work>, on_each: u16, seed: u64) -> Sessions {
        let instances = work.cluster.instances;
        let seed = |n: usize| seed.wrapping_mul(1000) + n as u64;
        let of_lists = usize::from(on_each * instances);
        let lists = (0..of_lists)
            .map(|n| {
                let (work, k) = (work.clone(), 1 + n as u16 % instances);
                let mut lists = Lists::new(seed(n));
                std::thread::spawn(move || {
                    session(&work, k, n, &mut lists);
                    lists.done
                })
            })
            .collect();
        let bank = (of_lists..of_lists + usize::from(TELLERS * instances))
            .map(|n| {
                let (work, k) = (work.clone(), 1 + n as u16 % instances);
                let mut bank = Bank::new(seed(n));
                std::thread::spawn(move || {
                    session(&work, k, n, &mut bank);
                    bank.done
                })
            })
            .collect();
        let before = of_lists + usize::from(TELLERS * instances);
        let definitions = (before..work.sessions())
            .map(|n| {
                let (work, k) = (work.clone(), 1 + n as u16 % instances);
                let mut definitions = Definitions::new(seed(n));
                std::thread::spawn(move || session(&work, k, n, &mut definitions))
            })
            .collect();
        Sessions {
            lists,
            bank,
            definitions,
        }
    }

    fn have_ended(&self) -> bool {
        self.lists.iter().all(JoinHandle::is_finished)
            && self.bank.iter().all(JoinHandle::is_finished)
            && self.definitions.iter().all(JoinHandle::is_finished)
    }
}

/// Ends all processes, however a test ends.
struct Ends(Arc<Work>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.cluster.kill();
    }
}

/// Waits until something is so. If that takes too long, or a finding comes up, prints where
/// everybody stands, and fails the test.
fn until(work: &Work, what: &str, patience: Duration, mut f: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !f() {
        if Instant::now() > deadline {
            work.find(format!("in vain waited for: {what}"));
        }
        fail_if_anything(work);
        std::thread::park_timeout(Duration::from_millis(100));
    }
    fail_if_anything(work);
}

fn fail_if_anything(work: &Work) {
    let found = work.findings().clone();
    if !found.is_empty() {
        let log = work.cluster.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(60)..].join("\n");
        let sessions = work.cluster.sessions();
        panic!(
            "{} findings, first {:#?}\n{sessions}\nthe log ends with:\n{last}",
            found.len(),
            &found[..found.len().min(10)]
        );
    }
}

/// Messages of instances that none should have logged.
fn complaints(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let before = &lines[n.saturating_sub(12)..n];
        let ordered = |l: &&str| l.contains("ordered the end");
        let by_itself =
            line.contains(" died (") && !line.contains("signal: 9") && !before.iter().any(ordered);
        if by_itself || line.contains(" did not start (") || line.contains("panicked") {
            let context = lines[n.saturating_sub(6)..(n + 3).min(lines.len())].join("\n");
            found.push(format!("an instance ended by itself:\n{context}"));
        }
    }
    found
}

/// Waits until everybody goes on after the faults.
fn recover(work: &Work) {
    until(work, "all instances are open", *PATIENCE, || {
        harm::mend(work)
    });
    let before = work.committed();
    until(work, "every session goes on", *PATIENCE, || {
        let now = work.committed();
        before.iter().zip(&now).all(|(before, now)| now > before)
    });
}

fn check(work: &Work, txns: &[Txn], transfers: &[Transfer]) {
    let instances = work.cluster.instances;
    let ends: Vec<_> = (1..=instances)
        .map(|k| lists::read_all(&mut work.cluster.connect(k)))
        .collect();
    if ends.windows(2).any(|two| two[0] != two[1]) {
        work.find("the instances' lists differ".to_string());
    }
    history::check(txns, &ends[0])
        .into_iter()
        .for_each(|f| work.find(f));
    for k in 1..=instances {
        bank::check(&mut work.cluster.connect(k), transfers)
            .into_iter()
            .for_each(|f| work.find(format!("seen by instance {k}: {f}")));
    }
    fail_if_anything(work);
}

#[test]
fn histories_keep_what_their_isolation_levels_promise() {
    let seed = seeds::number("BRAID_HISTORY_SEED", std::process::id().into());
    let seconds = seeds::number("BRAID_HISTORY_SECONDS", 15);
    let instances = seeds::number("BRAID_HISTORY_INSTANCES", 3) as u16;
    let sessions = seeds::number("BRAID_HISTORY_SESSIONS", 3) as u16;
    println!(
        "BRAID_HISTORY_SEED={seed} BRAID_HISTORY_SECONDS={seconds} BRAID_HISTORY_INSTANCES={instances}"
    );
    let dir = Scratch::new("history");
    println!("{}", dir.display());
    let mut rng = Rng(seed);
    let cluster = Cluster::up(dir, instances, &mut rng);
    let changes = rng.below(2) == 0;
    println!("definitions change: {changes}");
    let mut client = cluster.connect(1);
    lists::create(&mut client);
    bank::create(&mut client);
    drop(client);
    let all = usize::from(instances * (sessions + TELLERS + u16::from(changes)));
    let work = Arc::new(Work::new(cluster, all));
    let _ends = Ends(work.clone());
    let working = Sessions::start(&work, sessions, seed);
    let over = Instant::now() + Duration::from_secs(seconds);
    let enough = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let harmful = {
        let (work, enough) = (work.clone(), enough.clone());
        std::thread::spawn(move || harm::harm(&work, &enough, seed))
    };
    until(
        &work,
        "the time is over",
        Duration::from_secs(seconds) + *PATIENCE,
        || {
            let late = work.standing_still();
            if !late.is_empty() {
                work.find(format!("sessions {late:?} stand still"));
            }
            Instant::now() > over
        },
    );
    enough.store(true, SeqCst);
    until(&work, "the last fault", *PATIENCE, || harmful.is_finished());
    let counts = harmful.join().expect("faults");
    recover(&work);
    work.stop.store(true, SeqCst);
    until(&work, "the sessions end", *PATIENCE, || {
        working.have_ended()
    });
    let ended = |e: JoinHandle<Vec<Txn>>| e.join().expect("a session");
    let txns: Vec<Txn> = working.lists.into_iter().flat_map(ended).collect();
    let ended = |e: JoinHandle<Vec<Transfer>>| e.join().expect("a session");
    let transfers: Vec<Transfer> = working.bank.into_iter().flat_map(ended).collect();
    let committed = work.committed();
    let unknown = |o: &Outcome| *o == Outcome::Unknown;
    println!(
        "{} transactions of lists, {} of them unknown, {} transfers, {} committed in all; {counts:?}",
        txns.len(),
        txns.iter().filter(|t| unknown(&t.outcome)).count(),
        transfers.len(),
        committed.iter().sum::<u64>(),
    );
    check(&work, &txns, &transfers);
    println!(
        "{} granules remastered since the last starts",
        work.cluster.remastered()
    );
    succeeds(&["down", "--data", &work.cluster.data()]);
    let said = complaints(&work.cluster.log());
    assert!(said.is_empty(), "{}", said.join("\n\n"));
    succeeds(&["verify", "--data", &work.cluster.data()]);
}
