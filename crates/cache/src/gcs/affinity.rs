//! Affinity: a granule of blocks that one instance uses mostly is mastered there, so that a miss on
//! its own blocks costs no message. It follows Oracle's dynamic remastering, whose views this
//! module feeds (`v$gcspfmaster_info`, `v$policy_history`). Oracle's unit is an object. Here it is
//! a range of addresses, because two instances may each use their own half of one table.
//!
//! A block's master counts the requests of each instance. It sees every cache miss and no cache
//! hit. Of a granule that nobody took, each master sees the part that is its own by hash. That is a
//! sample of everybody's requests, so the instance that asks most finds that out by itself. Of a
//! granule that was taken, its master sees everything, and it offers the granule to the instance
//! that asks most. What an instance adds to a segment it masters from the beginning.
//!
//! **Invariants.**
//! - Nothing here is needed for correctness. The shard knows who masters what, and moves it
//!   ([`fusion::gcs`]). What is counted is forgotten after each window.
//! - Nothing here waits for more than a latch. The policy is followed on `lmon`'s ticks.
//! - The latch of [`super::policy::Policy`] may be taken with a shard's state latched, never the
//!   other way round.

use super::messages::Plain;
use super::policy::{Affinity, GranuleRow, PolicyEvent, PolicyRow, Users};
use super::state::{Cause, State};
use crate::frame::SHARED;
use crate::{Cache, Result};
use block::{Dba, InstanceId, ObjectId};
use fusion::gcs::GRANULE_BLOCKS;
use fusion::ids::{Granule, Term};
use interconnect::{Parcel, Route};
use seam::HashMap;
use std::sync::atomic::Ordering::*;
use wait::{Stat, stat};

/// The windows that a granule stays with a master before it is offered to another. So a granule
/// whose users change by the minute is not carried after them.
const REST_WINDOWS: u32 = 3;
/// The granules counted for each shard in a window. When there are more, the busiest are known
/// anyhow.
const MAX_COUNTED: usize = 1 << 16;
impl State {
    /// Counts a request of an instance to this master for a block.
    pub(super) fn count_use(&mut self, dba: Dba, by: InstanceId) {
        let granule = self.shard.granule_of(dba);
        if self.uses.0.len() >= MAX_COUNTED && !self.uses.0.contains_key(&granule) {
            return;
        }
        let users = self.uses.0.entry(granule).or_default();
        match users.iter_mut().find(|(i, _)| *i == by) {
            Some((_, n)) => *n = n.saturating_add(1),
            None => users.push((by, 1)),
        }
    }

    /// Counts a miss of a session of this instance. `joined` says that another session has asked
    /// already.
    pub(super) fn count_own_use(&mut self, dba: Dba, joined: bool) {
        if joined {
            return;
        }
        if self.master(dba) == self.me {
            stat::add(Stat::GcOwnRequests, 1);
            self.count_use(dba, self.me);
        } else {
            stat::add(Stat::GcRemoteRequests, 1);
        }
    }
}

/// What a window showed of a granule: the number of requests, and the instance that made most of
/// them.
struct Usage {
    granule: Granule,
    requests: u32,
    most: (InstanceId, u32),
}

impl Cache {
    /// Sets when granules are moved.
    pub fn set_affinity(&self, settings: Affinity) {
        self.gcs.policy.lock().settings = settings;
    }

    /// Makes this instance the master of the granule that a block is in. Returns false if that
    /// cannot be begun now, or is so already.
    pub fn remaster(&self, dba: Dba) -> bool {
        !self.shards().is_empty() && self.take(dba, self.object_near(dba), None)
    }

    /// Makes this instance the master of a run of blocks that it alone is about to fill: of the
    /// granules of which at least half is in the run. It then asks nobody for a block of them.
    /// Otherwise each block would be a round trip.
    ///
    /// This is a hint, which costs each member a message for each granule and shard. Blocks that
    /// cannot be taken now are asked for one by one. Nothing is taken if granules are not to be
    /// moved.
    pub fn master_run(&self, object: ObjectId, first: Dba, blocks: u32) {
        if self.shards().is_empty() || self.gcs.policy.lock().settings.window.is_zero() {
            return;
        }
        let (from, to) = (first.block(), first.block() + blocks);
        for granule in from / GRANULE_BLOCKS..=(to - 1) / GRANULE_BLOCKS {
            let begins = granule * GRANULE_BLOCKS;
            let of_it = to.min(begins + GRANULE_BLOCKS) - from.max(begins);
            if of_it * 2 >= GRANULE_BLOCKS {
                self.take(Dba::new(first.file(), begins), Some(object), None);
            }
        }
    }

    fn take(&self, dba: Dba, object: Option<ObjectId>, why: Option<(u32, u32)>) -> bool {
        let mut taken = false;
        self.each_shard(|s| {
            let granule = s.shard.granule_of(dba);
            let mut takes = false;
            self.step(s, Cause::default(), |shard, out| {
                takes = shard.take(granule, out);
            });
            // The granule is not served yet, which takes others' answers. So the reason is noted in
            // time. Nothing is noted of a granule that is not taken, as on a lone instance.
            if takes && s.number == 0 {
                let mut policy = self.gcs.policy.lock();
                let moves = policy.moves.entry(granule).or_default();
                (moves.object, moves.reason) = (object, why);
            }
            taken |= takes;
        });
        if taken {
            stat::add(Stat::GcRemasters, 1);
        }
        taken
    }

    /// The object of any block of the granule that happens to be in the cache.
    fn object_near(&self, dba: Dba) -> Option<ObjectId> {
        let mut blocks = None;
        self.with_state(dba, |s| {
            blocks = Some(s.shard.blocks_of(s.shard.granule_of(dba)))
        });
        let (first, last) = blocks?.into_inner();
        (first.0..=last.0).map(Dba).find_map(|dba| {
            let ix = self.find(dba)?;
            let frame = self.frame(ix);
            if !frame.latch.try_lock_shared() {
                return None;
            }
            let is_here = frame.dba() == dba && frame.state.load(Acquire) >= SHARED;
            // SAFETY: latched.
            let object = unsafe { &*self.memory.block(ix.0 as usize) }.object();
            // SAFETY: latched above.
            unsafe { frame.latch.unlock_shared() }
            (is_here && object != ObjectId::NONE).then_some(object)
        })
    }

    /// Moves granules, when a window is over, that it has shown to be mastered elsewhere than they
    /// are used. Called on every tick.
    pub(super) fn follow_policy(&self) {
        let now = seam::now();
        let settings = {
            let mut policy = self.gcs.policy.lock();
            let began = *policy.window_began.get_or_insert(now);
            if now - began < policy.settings.window {
                return;
            }
            policy.window_began = Some(now);
            policy.settings
        };
        let mut users: HashMap<Granule, Users> = HashMap::default();
        let mut members = 0;
        self.each_shard(|s| {
            members = s.members.len() as u32;
            for (granule, of_shard) in std::mem::take(&mut s.uses.0) {
                let all = users.entry(granule).or_default();
                for (by, n) in of_shard {
                    match all.iter_mut().find(|(i, _)| *i == by) {
                        Some((_, sum)) => *sum = sum.saturating_add(n),
                        None => all.push((by, n)),
                    }
                }
            }
        });
        if settings.window.is_zero() || members < 2 {
            return;
        }
        let mut busy: Vec<Usage> = users
            .into_iter()
            .filter_map(|(granule, users)| {
                let sum = |sum: u32, (_, n): &(InstanceId, u32)| sum.saturating_add(*n);
                let most = *users.iter().max_by_key(|(i, n)| (*n, i.0))?;
                let requests = users.iter().fold(0, sum);
                let mostly =
                    u64::from(most.1) * 100 >= u64::from(settings.percent) * u64::from(requests);
                mostly.then_some(Usage {
                    granule,
                    requests,
                    most,
                })
            })
            .collect();
        // The busiest come first. The order is the same in every run of a simulation.
        busy.sort_by_key(|u| (std::cmp::Reverse(u.requests), u.granule));
        for usage in busy {
            self.settle_master(&usage, (settings, members));
        }
    }

    fn settle_master(&self, usage: &Usage, (settings, members): (Affinity, u32)) {
        let (me, term, first) = {
            let Ok(Some(s)) = self.shard(0) else { return };
            let first = *s.shard.blocks_of(usage.granule).start();
            (s.me, s.shard.term(usage.granule), first)
        };
        let (target, of_target) = usage.most;
        // If the granule is mastered by hash, this master has seen a part.
        let seen = match term.is_by_hash() {
            true => usage.requests.saturating_mul(members),
            false => usage.requests,
        };
        if seen < settings.minimum {
            return;
        }
        let event = match term.is_by_hash() {
            true if target == me => PolicyEvent::Take,
            false if term.master == me && target != me && !self.rests(usage.granule, settings) => {
                PolicyEvent::Offer
            }
            _ => return,
        };
        let done = match event {
            PolicyEvent::Take => {
                let why = (usage.requests, of_target);
                self.take(first, self.object_near(first), Some(why))
            }
            _ => self.offer(target, usage, term),
        };
        if done {
            let object = self.object_near(first);
            self.gcs.policy.lock().say(PolicyRow {
                at: seam::wall_clock(),
                event,
                first,
                object,
                target,
                requests: usage.requests,
                of_target,
                frozen: None,
            });
        }
    }

    /// Whether the granule has come a short while ago.
    fn rests(&self, granule: Granule, settings: Affinity) -> bool {
        let since = self
            .gcs
            .policy
            .lock()
            .moves
            .get(&granule)
            .and_then(|m| m.since);
        since.is_some_and(|since| seam::elapsed(since) < settings.window * REST_WINDOWS)
    }

    /// Tells another instance that it should take a granule. The message may be lost: it is said
    /// again after the next window.
    fn offer(&self, to: InstanceId, usage: &Usage, term: Term) -> bool {
        let mut epoch = None;
        self.each_shard(|s| {
            if s.members.contains(&to) {
                epoch = Some(s.shard.epoch().0);
            }
        });
        let Some(epoch) = epoch else { return false };
        let message = Plain::Offer {
            granule: usage.granule,
            term,
            requests: usage.requests,
            of_target: usage.most.1,
        };
        let mut body = Vec::new();
        message.encode(&mut body);
        let parcel = Parcel {
            route: Route::Hash(0),
            kind: message.kind(),
            epoch,
            body: &body,
            block: None,
        };
        self.post().send(to, parcel);
        true
    }

    /// Takes an offer: another instance says that this one should master what that one does. `why`
    /// has the requests for it in the last window, of all instances and of this one.
    pub(super) fn offered(
        &self,
        (from, epoch): (InstanceId, u64),
        (granule, term): (Granule, Term),
        why: (u32, u32),
    ) -> Result<()> {
        let s = self.shard(0)?;
        let s = s.expect("invariant: an instance in a cluster has a first shard");
        // Not if the granule has gone elsewhere since, or the members have changed.
        let is_so = s.shard.epoch().0 == epoch && s.shard.term(granule) == term;
        let first = *s.shard.blocks_of(granule).start();
        drop(s);
        if is_so && term.master == from {
            self.take(first, self.object_near(first), Some(why));
        }
        Ok(())
    }

    /// Notes that a granule has another master.
    pub(super) fn master_moved(&self, s: &mut State, granule: Granule, (from, to): (Term, Term)) {
        if !to.is_by_hash() {
            let blocks = s.shard.blocks_of(granule);
            let of_it = s.waiting.values_mut().filter(|w| blocks.contains(&w.dba));
            of_it.for_each(|w| w.remastered = true);
        }
        if s.number != 0 {
            return;
        }
        let mut policy = self.gcs.policy.lock();
        if to.is_by_hash() {
            policy.moves.remove(&granule);
            return;
        }
        let moves = policy.moves.entry(granule).or_default();
        moves.previous = (!from.is_by_hash()).then_some(from.master);
        moves.count += 1;
        moves.at = Some(seam::wall_clock());
        moves.since = Some(seam::now());
        if to.master != s.me {
            (moves.reason, moves.object) = (None, None);
        }
    }

    /// Notes that this instance now serves a granule that it took.
    pub(super) fn granule_opened(&self, s: &mut State, granule: Granule) {
        if s.number != 0 || s.shard.term(granule).master != s.me {
            return;
        }
        let first = *s.shard.blocks_of(granule).start();
        let mut policy = self.gcs.policy.lock();
        let moves = policy.moves.entry(granule).or_default().clone();
        let (requests, of_target) = moves.reason.unwrap_or_default();
        policy.say(PolicyRow {
            at: seam::wall_clock(),
            event: PolicyEvent::Opened,
            first,
            object: moves.object,
            target: s.me,
            requests,
            of_target,
            frozen: moves.since.map(seam::elapsed),
        });
    }

    /// What the policy has decided, and what came of it, with the newest last.
    pub fn policy_history(&self) -> Vec<PolicyRow> {
        self.gcs.policy.lock().history.iter().cloned().collect()
    }

    /// The granules that some instance took, as far as this instance has heard, by address.
    pub fn granules_taken(&self) -> Vec<GranuleRow> {
        let Ok(Some(s)) = self.shard(0) else {
            return Vec::new();
        };
        let taken: Vec<_> = s.shard.taken().iter().map(|(&g, &t)| (g, t)).collect();
        let blocks = |g| s.shard.blocks_of(g).into_inner();
        let taken: Vec<_> = taken.into_iter().map(|(g, t)| (g, t, blocks(g))).collect();
        drop(s);
        let policy = self.gcs.policy.lock();
        let row = |(granule, term, (first, last)): (Granule, Term, (Dba, Dba))| {
            let moves = policy.moves.get(&granule).cloned().unwrap_or_default();
            GranuleRow {
                first,
                blocks: (last.0 - first.0 + 1) as u32,
                object: moves.object,
                master: term.master,
                previous: moves.previous,
                moves: moves.count,
                moved: moves.at,
                reason: moves.reason,
            }
        };
        taken.into_iter().map(row).collect()
    }
}
