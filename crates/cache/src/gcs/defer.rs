//! Blocks that several sessions wanted stay a moment before they are given away again. This follows
//! Oracle's `_gc_defer_time`.
//!
//! A block that sessions of all instances change would do nothing but travel. Whenever it comes,
//! each session that waited for it changes it once. Then it leaves, with a log write and two
//! journeys during which nobody can use it. While the block stays, these sessions commit and come
//! back to it. What that brings, and what it costs sessions that wait elsewhere, is in
//! `docs/benchmarks.md`.
//!
//! **Owns** the times when blocks came that several sessions waited for, and for how long blocks
//! stay.
//!
//! **Invariants**
//! 1. The shard may ask for a frame to be closed; this module delays that. The shard never relies
//!    on when it happens: until then sessions latch the frame as before. If the block has another
//!    generation by then, the closing is no longer asked for.
//! 2. Each time a block comes it stays once, no longer than [`Cache::defer`] says from its coming
//!    on. So an instance that waits for it waits only so much longer, however busy the block is
//!    here. Added to that is the time until `lmc0`, which closes the frame then, has the latches
//!    that it waits for before.
//! 3. A block does not stay for a single session. It leaves once it has not been changed between
//!    two looks, which are several times as far apart as its changes.

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

/// A block stays if at least this many sessions wait for it when it comes.
const USERS: usize = 2;
impl Cache {
    /// Sets how long a block that several sessions waited for may stay after it has come.
    pub fn defer(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.gcs.defer_us.store(micros, Relaxed);
    }

    fn defer_time(&self) -> Duration {
        Duration::from_micros(self.gcs.defer_us.load(Relaxed))
    }

    /// Notes that a block has come to be changed here.
    pub(super) fn note_its_coming(&self, s: &mut State, dba: Dba) {
        let users = || s.waiting.values().filter(|w| w.dba == dba).count();
        let stays = !self.defer_time().is_zero() && users() >= USERS;
        match stays {
            true => s.wanted.0.insert(dba, seam::now()),
            false => s.wanted.0.remove(&dba),
        };
    }

    /// Puts off the closing of a frame, which the shard asks for, if its block is to stay. `came`
    /// is when the block came ([`super::stay::Stays::goes`]). Returns whether the closing is put
    /// off.
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

    /// Closes a frame that has stayed long enough, or puts its closing off until the next look.
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

    /// The block's frame without a latch, for hints.
    fn frame_to_look_at(&self, dba: Dba) -> Option<&Frame> {
        self.frame_of(dba).map(|ix| self.frame(ix))
    }
}
