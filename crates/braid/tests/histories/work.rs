//! The state that all sessions of a run share, and what may happen to one of them.

use crate::cluster::{Cluster, PATIENCE};
use postgres::Client;
use seam::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use testkit::history::Outcome;

/// How long after harm to an instance its sessions may still find out about it.
const AFTERMATH: Duration = Duration::from_secs(15);

pub struct Work {
    pub cluster: Cluster,
    pub began: Instant,
    token: AtomicU64,
    pub stop: AtomicBool,
    /// Findings: whatever is wrong, in words.
    findings: Mutex<Vec<String>>,
    /// For each instance the spans of time, in microseconds, in which something happened to it that
    /// may have ended it.
    harmed: Mutex<Vec<(u16, u64, u64)>>,
    /// For each session the time of its last answer, and how many transactions it has committed.
    alive: Vec<(AtomicU64, AtomicU64)>,
}

/// What ended a transaction early.
pub struct Failed {
    error: postgres::Error,
    /// Whether the transaction may have committed nevertheless.
    committing: bool,
}

impl Failed {
    fn why(&self) -> String {
        match self.error.as_db_error() {
            Some(e) => format!("{} {}", e.code().code(), e.message()),
            None => self.error.to_string(),
        }
    }
}

impl From<postgres::Error> for Failed {
    fn from(error: postgres::Error) -> Failed {
        Failed {
            error,
            committing: false,
        }
    }
}

/// A client's transactions, of one kind.
pub trait Worker {
    /// The client has a new connection.
    fn connected(&mut self, client: &mut Client) -> Result<(), postgres::Error>;
    /// Does one transaction. `client` runs it, and `self` remembers what was done. An error says
    /// that the connection is gone.
    fn transaction(&mut self, client: &mut Client, s: &Seat<'_>) -> Result<(), Lost>;
}

pub struct Lost;

impl Work {
    pub fn new(cluster: Cluster, sessions: usize) -> Work {
        Work {
            cluster,
            began: Instant::now(),
            token: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            findings: Mutex::default(),
            harmed: Mutex::default(),
            alive: (0..sessions).map(|_| Default::default()).collect(),
        }
    }

    pub fn now(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    pub fn token(&self) -> u64 {
        self.token.fetch_add(1, Relaxed)
    }

    pub fn findings(&self) -> MutexGuard<'_, Vec<String>> {
        self.findings.lock().expect("no thread has panicked")
    }

    pub fn find(&self, what: String) {
        let ms = self.now() / 1000;
        self.findings().push(format!("at {ms} ms: {what}"));
        self.stop.store(true, SeqCst);
    }

    fn harmed(&self) -> MutexGuard<'_, Vec<(u16, u64, u64)>> {
        self.harmed.lock().expect("no thread has panicked")
    }

    /// From now on an instance may end. `end_of_harm` says until when.
    pub fn begin_harm(&self, k: u16) {
        let now = self.now();
        self.harmed().push((k, now, u64::MAX));
    }

    pub fn end_harm(&self, k: u16) {
        let until = self.now() + AFTERMATH.as_micros() as u64;
        let mut harmed = self.harmed();
        harmed
            .iter_mut()
            .filter(|h| h.0 == k && h.2 == u64::MAX)
            .for_each(|h| h.2 = until);
    }

    /// Whether a connection to an instance may have been lost between two times.
    fn may_be_lost(&self, k: u16, from: u64, to: u64) -> bool {
        let mut harmed = self.harmed().clone().into_iter();
        harmed.any(|(of, begin, end)| of == k && begin <= to && end >= from)
    }

    pub fn sessions(&self) -> usize {
        self.alive.len()
    }

    /// The number of transactions that each session has committed.
    pub fn committed(&self) -> Vec<u64> {
        self.alive.iter().map(|a| a.1.load(SeqCst)).collect()
    }

    /// Sessions that have had no answer for too long.
    pub fn standing_still(&self) -> Vec<usize> {
        let since = |a: &(AtomicU64, AtomicU64)| a.0.load(SeqCst);
        let late = self.now().saturating_sub(PATIENCE.as_micros() as u64);
        (0..self.alive.len())
            .filter(|&n| since(&self.alive[n]) < late)
            .collect()
    }
}

/// The place of a session in a run.
pub struct Seat<'a> {
    pub work: &'a Work,
    pub k: u16,
    number: usize,
    connected: u64,
}

impl Seat<'_> {
    /// Judges how a transaction ended. A failure that no client should see is a finding.
    pub fn judge(&self, done: Result<bool, Failed>) -> (Outcome, Result<(), Lost>) {
        let work = self.work;
        work.alive[self.number].0.store(work.now(), SeqCst);
        let failed = match done {
            Ok(true) => {
                work.alive[self.number].1.fetch_add(1, SeqCst);
                return (Outcome::Committed(work.now()), Ok(()));
            }
            Ok(false) => return (Outcome::RolledBack, Ok(())),
            Err(failed) => failed,
        };
        let code = failed.error.code().map(|c| c.code().to_string());
        match code.as_deref() {
            // Serialization failures and deadlocks.
            Some("40001" | "40P01") => return (Outcome::RolledBack, Ok(())),
            // The instance is stopping.
            None | Some("57P01" | "57P02" | "57P03") => {
                let (from, to) = (self.connected, work.now());
                if !work.may_be_lost(self.k, from, to) {
                    work.find(format!(
                        "instance {}, to which nothing had happened, lost a client: {}",
                        self.k,
                        failed.why()
                    ));
                }
            }
            Some(_) => work.find(format!(
                "a statement of instance {} failed: {}",
                self.k,
                failed.why()
            )),
        }
        match failed.committing {
            true => (Outcome::Unknown, Err(Lost)),
            false => (Outcome::RolledBack, Err(Lost)),
        }
    }
}

/// Ends a transaction; `keep` commits it. True if it has committed.
pub fn finish(t: postgres::Transaction<'_>, keep: bool) -> Result<bool, Failed> {
    if !keep {
        return Ok(t.rollback().map(|()| false)?);
    }
    let committing = |error| Failed {
        error,
        committing: true,
    };
    t.commit().map(|()| true).map_err(committing)
}

/// Runs a session that comes back when its connection is lost, until all is over.
pub fn session(work: &Work, k: u16, number: usize, worker: &mut impl Worker) {
    while !work.stop.load(SeqCst) {
        let connected = work.now();
        let ready = work.cluster.try_connect(k).and_then(|mut c| {
            worker.connected(&mut c)?;
            Ok(c)
        });
        let Ok(mut connection) = ready else {
            std::thread::park_timeout(Duration::from_millis(50));
            continue;
        };
        let seat = Seat {
            work,
            k,
            number,
            connected,
        };
        let mut usable = true;
        while usable && !work.stop.load(SeqCst) {
            usable = worker.transaction(&mut connection, &seat).is_ok();
        }
    }
}

/// Two different numbers below a limit. They are in order three times out of four: some deadlocks
/// are wanted.
pub fn two_below(rng: &mut Rng, n: u64) -> (i64, i64) {
    let a = rng.below(n);
    let b = (a + 1 + rng.below(n - 1)) % n;
    match rng.below(4) {
        0 => (a as i64, b as i64),
        _ => (a.min(b) as i64, a.max(b) as i64),
    }
}
