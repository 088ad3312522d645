//! Sessions of two instances that work without a pause, beside what a test does meanwhile; instance
//! 2 may be killed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use super::Database;
use crate::waiting::PATIENCE;

/// How many sessions there are, of instance 1 and 2 in turn.
pub const WORKERS: u64 = 4;

/// What the sessions have done so far.
pub struct Storm<'s> {
    counts: &'s Counts,
    workers: Vec<ScopedJoinHandle<'s, ()>>,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    done: AtomicU64,
    refused: AtomicU64,
}

impl Storm<'_> {
    /// Waits until the sessions have done so many steps more.
    #[track_caller]
    pub fn more(&self, by: u64) {
        let done = &self.counts.done;
        let (until, give_up) = (done.load(SeqCst) + by, Instant::now() + PATIENCE);
        while done.load(SeqCst) < until {
            assert!(Instant::now() < give_up, "the sessions stand still");
            assert!(
                !self.workers.iter().any(|w| w.is_finished()),
                "a session has failed"
            );
            std::thread::yield_now();
        }
    }
}

/// Runs the steps of each session until `meanwhile` has ended. `session` gives the step of the
/// session of a number. A step may be refused with one of the SQLSTATEs `known`; its transaction is
/// rolled back then. Returns how many steps were done, and how many refused.
pub fn storm<F>(
    database: &Database,
    known: &[&str],
    session: impl Fn(u64) -> F + Sync,
    meanwhile: impl FnOnce(&Storm<'_>),
) -> (u64, u64)
where
    F: FnMut(&mut postgres::Client) -> Result<(), postgres::Error>,
{
    let counts = Counts::default();
    std::thread::scope(|s| {
        let (counts, session) = (&counts, &session);
        let worker =
            |n: u64| s.spawn(move || work(database, 1 + (n % 2) as u16, known, session(n), counts));
        let storm = Storm {
            counts,
            workers: (0..WORKERS).map(worker).collect(),
        };
        // Whatever `meanwhile` comes to, the sessions have to end.
        let ends = Ends(&counts.stop);
        meanwhile(&storm);
        drop(ends);
    });
    (counts.done.load(SeqCst), counts.refused.load(SeqCst))
}

struct Ends<'s>(&'s AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn work(
    database: &Database,
    instance: u16,
    known: &[&str],
    mut step: impl FnMut(&mut postgres::Client) -> Result<(), postgres::Error>,
    counts: &Counts,
) {
    let mut c = database.client(instance);
    while !counts.stop.load(SeqCst) {
        let Err(e) = step(&mut c) else {
            counts.done.fetch_add(1, SeqCst);
            continue;
        };
        if !c.is_closed() {
            let code = e.code().map_or("none", |c| c.code());
            assert!(known.contains(&code), "{e:?}");
            counts.refused.fetch_add(1, SeqCst);
        }
        // The transaction, if the step had one.
        if c.is_closed() || c.batch_execute("rollback").is_err() {
            assert_eq!(instance, 2, "only instance 2 is killed: {e:?}");
            c = database.client_when_open(instance);
        }
    }
}
