//! Blocks that stay a moment where several sessions wanted them, before they are given away again.
//! After Oracle's `_gc_defer_time`.
//!
//! A block that sessions of all instances change would do nothing but travel: whenever it comes,
//! each of those who waited for it changes it once, and it leaves, with a log write and two
//! journeys during which nobody can use it. While it stays, they commit and come back to it. What
//! that brings, and what it costs whoever waits elsewhere, is in `bench/README.md`.
//!
//! **Owns** when blocks came that several sessions waited for, and for how long blocks stay.
//!
//! **Invariants**
//! 1. What is deferred is the closing of a frame that the shard has asked for, and on which it does
//!    not count at any particular time: until then sessions latch the frame as before. It is asked
//!    for no more if the block has another generation.
//! 2. Each time a block comes it stays once, no longer than [`Cache::defer`] says from its coming
//!    on: so whoever waits for it waits so much longer at most, however busy it is here (and until
//!    `lmc0`, which closes it then, has the latches that it waits for before).
//! 3. It does not stay for a single session, nor once it has not been changed between two looks,
//!    which are several times as far apart as its changes.

use super::jobs::Job;
use super::state::State;
use super::stay::{SHORTEST_LOOK, Stay};
use crate::Cache;
use crate::frame::Frame;
use block::Dba;
use fusion::gcs::Mode;
use fusion::ids::Generation;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use wait::{Stat, stat};

/// Sessions that wait for a block when it comes, from which on it stays.
const USERS: usize = 2;
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

    /// The shard asks for the closing of a frame whose block came then
    /// ([`super::stay::Stays::goes`]). Whether that is put off.
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
        let (true, Some(frame)) = (now < until, self.frame_to_look_at(dba)) else {
            return false;
        };
        stat::add(Stat::GcBlocksDeferred, 1);
        frame.count_changes();
        let next_look = until.min(now + SHORTEST_LOOK);
        s.outgoing.job(Job::Stay(Stay {
            dba,
            keep,
            generation,
            since: now,
            until,
            changes: 0,
            next_look,
        }));
        true
    }

    /// Closes what has stayed long enough.
    pub(super) fn look_at(&self, mut stay: Stay) {
        let now = seam::now();
        if let Some(frame) = self.frame_to_look_at(stay.dba) {
            let changes = frame.count_changes();
            if changes > 0 && now < stay.until {
                stay.changes += changes;
                stay.next_look = stay.until.min(now + stay.look(now));
                self.gcs.helper.push(Job::Stay(stay));
                return;
            }
            frame.count_no_changes();
        }
        self.close_later(stay.dba, stay.keep, stay.generation);
    }

    /// Not latched: for hints.
    fn frame_to_look_at(&self, dba: Dba) -> Option<&Frame> {
        self.frame_of(dba).map(|ix| self.frame(ix))
    }
}
