//! Blocks that stay a moment where several sessions wanted them, before they are given away again. After Oracle's `_gc_defer_time`.
//!
//! A block that sessions of all instances change would do nothing but travel: whenever it comes, each of those who waited for it changes it once, and it leaves, with a log write and two journeys during which nobody
//! can use it. While it stays, they commit and come back to it. What that brings, and what it costs whoever waits elsewhere, is in `bench/README.md`.
//!
//! **Owns** when blocks came that several sessions waited for, and for how long blocks stay.
//!
//! **Invariants**
//! 1. What is deferred is the closing of a frame that the lane has asked for, and on which it does not count at any particular time: until then sessions latch the frame as before. It is asked for no more if the
//!    block has another generation.
//! 2. Each time a block comes it stays once, no longer than [`Cache::defer`] says from its coming on: so whoever waits for it waits so much longer at most, however busy it is here (and until `lmc0`, which closes it then, has the latches that it waits for before).
//! 3. It does not stay for a single session, nor once it has not been changed between two looks.

use super::State;
use super::helper::Job;
use crate::Cache;
use block::Dba;
use fusion::gcs::Mode;
use fusion::ids::Generation;
use seam::HashMap;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use wait::{Stat, stat};

/// Sessions that wait for a block when it comes, from which on it stays.
const USERS: usize = 2;
/// From one look at what stays to the next: within that time a session that changed it has committed and is back, if its client is quick.
const LOOK: Duration = Duration::from_micros(300);

/// When blocks came for which several sessions waited.
#[derive(Default)]
pub(super) struct Wanted(HashMap<Dba, Instant>);

impl Wanted {
    /// Its closing is asked for. When it came, if it is to stay.
    pub fn goes(&mut self, dba: Dba) -> Option<Instant> {
        self.0.remove(&dba)
    }
}

/// A frame to be closed, but not yet.
pub(super) struct Stay {
    pub dba: Dba,
    pub keep: Option<Mode>,
    pub generation: Generation,
    /// It leaves then, whatever is done with it.
    until: Instant,
    /// Its last change at the last look.
    seen: u64,
    pub next_look: Instant,
}

impl Cache {
    /// For how long a block that several sessions waited for may stay after it has come.
    pub fn defer(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.gcs.defer_us.store(micros, Relaxed);
    }

    fn defer_time(&self) -> Duration {
        Duration::from_micros(self.gcs.defer_us.load(Relaxed))
    }

    /// A block has come to be changed here.
    pub(super) fn note_its_coming(&self, s: &mut State, dba: Dba) {
        let users = || s.waiting.values().filter(|w| w.dba == dba).count();
        let stays = !self.defer_time().is_zero() && users() >= USERS;
        match stays {
            true => s.wanted.0.insert(dba, seam::now()),
            false => s.wanted.0.remove(&dba),
        };
    }

    /// The lane asks for the closing of a frame whose block came then ([`Wanted::goes`]). Whether that is put off.
    pub(super) fn stays(
        &self,
        s: &mut State,
        came: Option<Instant>,
        (dba, keep, generation): (Dba, Option<Mode>, Generation),
    ) -> bool {
        let Some(came) = came else {
            return false;
        };
        let (now, until) = (seam::now(), came + self.defer_time());
        let (true, Some(seen)) = (now < until, self.last_change(dba)) else {
            return false;
        };
        stat::add(Stat::GcBlocksDeferred, 1);
        let next_look = until.min(now + LOOK);
        s.outgoing.job(Job::Stay(Stay {
            dba,
            keep,
            generation,
            until,
            seen,
            next_look,
        }));
        true
    }

    /// Closes what has stayed long enough.
    pub(super) fn look_at(&self, mut stay: Stay) {
        let now = seam::now();
        match self.last_change(stay.dba) {
            Some(change) if now < stay.until && change != stay.seen => {
                stay.seen = change;
                stay.next_look = stay.until.min(now + LOOK);
                self.gcs.helper.push(Job::Stay(stay));
            }
            _ => self.close_later(stay.dba, stay.keep, stay.generation),
        }
    }

    /// Not latched: a hint.
    fn last_change(&self, dba: Dba) -> Option<u64> {
        let ix = self.frame_of(dba)?;
        Some(self.frame(ix).last_change.load(Relaxed))
    }
}
