//! A shard: holder and master of one instance put together, with the epoch in which they live.
//!
//! **Invariants**
//! 1. A shard looks at a message only in the epoch in which it was sent (R6). It drops an older
//!    one. A newer one waits with the driver until this instance has entered that epoch too
//!    ([`Shard::admits`]).
//! 2. A change of epoch stops only three kinds of blocks: those whose master changed, those for
//!    which a service was under way, and those that a dead instance owned (20). For each of them
//!    the master collects every member's declaration before it serves again.
//! 3. A frozen bucket opens when, in addition, the blocks named by the dead threads are known.
//! 4. The dead threads are closed when every master has on disk everything that it needed them for
//!    (18).
//! 5. The master of a granule may change within an epoch: [`moves`].
//!
//! This file takes what sessions, cache and network say, and decides who is told. [`epochs`]
//! changes the epoch; [`dead`] deals with what dead threads name.

mod dead;
mod epochs;
mod moves;

use super::holder::{Holder, Part};
use super::master::{FrozenBucket, Master, Rebuilding};
use super::message::{BLOCKS_PER_MESSAGE, Closed, Declaration, Effect, Message, Want};
use super::{Mode, bucket_of};
use crate::ids::{Bucket, Epoch, Generation, Granule, Member, Term, Waiter};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, InstanceId, LogPos, Scn};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};

/// The most buckets that one message asks for. In one step the declaring member goes over all its
/// blocks and puts together what it has of these buckets.
const BUCKETS_PER_STEP: usize = 16;

/// Every possible block address.
const ALL: RangeInclusive<Dba> = Dba(0)..=Dba(u64::MAX);

/// What a change of epoch decides.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    pub epoch: Epoch,
    pub members: BTreeSet<Member>,
    /// The master of each bucket.
    pub masters: Vec<InstanceId>,
    /// The dead members whose redo threads are open.
    pub recovering: BTreeSet<Member>,
    /// The instance that reads those threads.
    pub recoverer: InstanceId,
}

/// What becomes of a message, by its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    Now,
    /// Keep it until this instance has entered the message's epoch.
    Later,
    Never,
}

/// One instance's part of the global cache service, for the blocks of one LMS lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shard {
    me: InstanceId,
    epoch: Epoch,
    members: BTreeSet<Member>,
    recovering: BTreeSet<Member>,
    recoverer: InstanceId,
    /// Whether no redo is being recovered in this epoch; only then granules may be taken.
    quiet: bool,
    /// The members that have not yet told this instance, which has just joined, which granules they
    /// master. Beside each: the granule behind which it goes on.
    untaught: BTreeMap<InstanceId, Option<Granule>>,
    holder: Holder,
    master: Master,
    /// The blocks that dead threads name, for the hash buckets frozen here. None until the
    /// recoverer has named all.
    dead_redo: Option<BTreeMap<u16, Vec<Dba>>>,
    /// The blocks that the recoverer has named so far, whatever their master.
    named: BTreeSet<Dba>,
    of_frozen: BTreeMap<u16, Vec<Dba>>,
    reported: bool,
    /// What the recoverer read in the dead threads; only the recoverer has it. `finished` has the
    /// masters that need the dead threads no more.
    pass_one: Option<BTreeSet<Dba>>,
    finished: BTreeSet<InstanceId>,
    /// The most blocks in one message; fewer in tests.
    part: usize,
    planted: Planted,
}

impl Shard {
    /// A shard outside any cluster. It takes its first [`Plan`] before anything else.
    pub fn new(me: InstanceId) -> Self {
        Shard {
            me,
            epoch: Epoch(0),
            members: BTreeSet::new(),
            quiet: false,
            untaught: BTreeMap::new(),
            recovering: BTreeSet::new(),
            recoverer: me,
            holder: Holder::new(me),
            master: Master::new(),
            dead_redo: None,
            named: BTreeSet::new(),
            of_frozen: BTreeMap::new(),
            reported: false,
            pass_one: None,
            finished: BTreeSet::new(),
            part: BLOCKS_PER_MESSAGE,
            planted: Planted::default(),
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What to do with a message of this epoch.
    pub fn admits(&self, epoch: Epoch) -> Admission {
        match epoch.cmp(&self.epoch) {
            std::cmp::Ordering::Equal => Admission::Now,
            std::cmp::Ordering::Greater => Admission::Later,
            std::cmp::Ordering::Less if self.planted.breaks(Mutation::AdmitOldEpochs) => {
                Admission::Now
            }
            std::cmp::Ordering::Less => Admission::Never,
        }
    }

    /// Adopts a block that this instance has cached while it was alone, without a shard. The call
    /// comes before the first [`Plan`], whose masters hear of the block by declaration.
    pub fn adopt(&mut self, block: Dba) {
        assert_eq!(
            self.epoch,
            Epoch(0),
            "blocks are adopted before the first epoch"
        );
        self.holder.adopt(block);
    }

    /// Takes back [`Shard::adopt`] when the block has left the cache. The call comes before the
    /// first [`Plan`], when there is no master to be told.
    pub fn disown(&mut self, block: Dba) {
        assert_eq!(
            self.epoch,
            Epoch(0),
            "in an epoch a block is evicted, not disowned"
        );
        self.holder.disown(block);
    }

    // ---- local sessions, cache and log ----

    /// A session needs the block in a mode that its frame does not have.
    pub fn request(&mut self, block: Dba, want: Want, waiter: Waiter, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, master, out| {
            h.request(block, want, waiter, master, out)
        });
    }

    /// A session that [`Effect::Run`] woke has latched the block once, or is gone.
    pub fn latched(&mut self, block: Dba, waiter: Waiter, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, master, out| h.latched(block, waiter, master, out));
    }

    /// The block that [`Effect::ReadFromDisk`] or [`Effect::Recover`] asked for is in its frame, in
    /// this version.
    pub fn installed(
        &mut self,
        block: Dba,
        version: Scn,
        generation: Generation,
        out: &mut Vec<Effect>,
    ) {
        self.with_holder(out, |h, master, out| {
            h.installed((block, version), generation, master, out);
        });
    }

    /// The block that [`Effect::ReadFromDisk`] asked for cannot be read, and no session waits for
    /// it here. If the shard lets go of the block, it says so by [`Effect::Discard`]. Otherwise the
    /// read is to be tried again.
    pub fn unreadable(&mut self, block: Dba, generation: Generation, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, master, out| {
            h.unreadable(block, generation, master, out);
        });
    }

    /// The frame is closed as [`Effect::Close`] asked.
    pub fn closed(
        &mut self,
        block: Dba,
        generation: Generation,
        found: Closed,
        out: &mut Vec<Effect>,
    ) {
        self.with_holder(out, |h, master, out| {
            h.closed(block, generation, found, master, out);
        });
    }

    pub fn flushed(&mut self, upto: LogPos, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, master, out| h.flushed(upto, master, out));
    }

    /// This version of a frame is on synced disk.
    pub fn wrote(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, master, out| h.wrote(block, version, master, out));
    }

    /// A copy that [`Effect::ShipCopy`] asked for left with this version.
    pub fn copied(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, _, out| h.copied(block, version, out));
    }

    pub fn evict(&mut self, block: Dba, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, _, out| h.evict(block, out));
    }

    /// The checkpoint cannot pass the past image of this block: the shard has the block written.
    /// The driver repeats the call until `Forget` comes.
    pub fn image_in_the_way(&mut self, block: Dba, out: &mut Vec<Effect>) {
        self.with_holder(out, |h, master, out| h.image_in_the_way(block, master, out));
    }

    /// The version of the past image that is kept of a block, if any. Redo up to this version is
    /// needed here until the image is forgotten (R5).
    pub fn image(&self, block: Dba) -> Option<Scn> {
        self.holder.image(block)
    }

    /// Drives outstanding requests and services again. A timer calls this about once a second: a
    /// message between two instances can be lost with their connection, and a third instance that
    /// waits for its consequence is told by nobody.
    pub fn timer(&mut self, out: &mut Vec<Effect>) {
        self.drive_again(out);
        self.settle(out);
    }

    // ---- messages ----

    /// Takes a message, with the term under which it was sent ([`Shard::term_of`]).
    pub fn message(
        &mut self,
        from: InstanceId,
        term: Term,
        message: Message,
        out: &mut Vec<Effect>,
    ) {
        if self.is_of_this_term(from, term, &message, out) {
            self.dispatch(from, message, out);
        }
        self.settle(out);
    }

    /// Runs a step of the holder, which learns who masters what, then delivers what this instance
    /// said to itself.
    fn with_holder(
        &mut self,
        out: &mut Vec<Effect>,
        step: impl FnOnce(&mut Holder, &dyn Fn(Dba) -> InstanceId, &mut Vec<Effect>),
    ) {
        self.holder_step(out, step);
        self.settle(out);
    }

    fn holder_step(
        &mut self,
        out: &mut Vec<Effect>,
        step: impl FnOnce(&mut Holder, &dyn Fn(Dba) -> InstanceId, &mut Vec<Effect>),
    ) {
        let masters = &self.master.masters;
        let master = |block| masters.master(block);
        step(&mut self.holder, &master, out);
    }

    /// Delivers messages to this instance itself at once, in order. Messages about many blocks are
    /// delivered here only if there are few blocks in all.
    fn settle(&mut self, out: &mut Vec<Effect>) {
        self.deliver_own(out);
        self.report(out);
        self.deliver_own(out);
    }

    fn deliver_own(&mut self, out: &mut Vec<Effect>) {
        let me = self.me;
        let to_me = |e: &Effect| matches!(e, Effect::Send { to, .. } if *to == me);
        let Some(first) = out.iter().position(to_me) else {
            return;
        };
        let many = self.known() > self.part;
        let to_me = |e: &Effect| match e {
            Effect::Send { to, message } => *to == me && !(many && message.is_bulky()),
            _ => false,
        };
        // A delivered message leaves a gap. What stays for the driver moves forward into the gaps;
        // deliveries add to the end.
        let (mut kept, mut at, mut delivered) = (first, first, 0);
        while at < out.len() {
            if to_me(&out[at]) {
                let nothing = Effect::Discard { block: Dba::NONE };
                if let Effect::Send { message, .. } = std::mem::replace(&mut out[at], nothing) {
                    delivered += 1;
                    assert!(
                        delivered < 1000 || delivered < 20 * self.known(),
                        "an instance talks to itself: {message:?}"
                    );
                    self.dispatch(me, message, out);
                }
            } else {
                out.swap(kept, at);
                kept += 1;
            }
            at += 1;
        }
        out.truncate(kept);
    }

    /// The number of things that a step may be about. A step says only a few things about each of
    /// them.
    fn known(&self) -> usize {
        usize::from(self.master.masters.buckets()) + self.master.entries.len() + self.holder.len()
    }

    fn dispatch(&mut self, from: InstanceId, message: Message, out: &mut Vec<Effect>) {
        if self.dispatch_to_master(from, &message, out) {
            return;
        }
        match message {
            Message::Grant { .. } | Message::Block { .. } => {
                self.holder_step(out, |h, m, out| h.granted(from, message, m, out));
            }
            Message::Copy { block, id, clock } => {
                self.holder_step(out, |h, m, out| {
                    h.copy_arrived(from, (block, id, clock), m, out);
                });
            }
            Message::Ship {
                block,
                turn,
                to,
                id,
                mode,
            } => {
                self.holder_step(out, |h, m, out| h.ship((block, turn, to, id, mode), m, out));
            }
            Message::Invalidate { block, turn } => {
                self.holder_step(out, |h, m, out| h.invalidate(block, turn, m, out));
            }
            Message::ReadFor {
                block,
                turn,
                to,
                id,
                snapshot,
            } => {
                self.holder_step(out, |h, m, out| {
                    h.read_for(block, (turn, to, id, snapshot), m, out)
                });
            }
            Message::WriteOrder { block, turn } => {
                self.holder_step(out, |h, m, out| h.write_order(block, turn, m, out));
            }
            Message::Inherit { block, turn, have } => {
                self.holder_step(out, |h, m, out| h.inherit(block, (turn, have), m, out));
            }
            Message::Written { block, version } => self.holder.written(block, version, out),
            Message::Recover { block, turn } => {
                self.holder_step(out, |h, m, out| h.recover(block, turn, m, out));
            }
            Message::DeclareWanted { buckets, blocks } => {
                self.declare(from, &buckets, &blocks, out)
            }
            Message::DeclareMore { bucket, after } => self.declare_more(from, bucket, after, out),
            Message::Declare {
                bucket,
                after,
                blocks,
                more,
            } => self.declared(from, (bucket, after), (blocks, more), out),
            Message::DeclareBlocks { blocks } => self.blocks_declared(from, blocks, out),
            Message::DeadRedo {
                after,
                blocks,
                more,
            } => self.dead_redo(after, (blocks, more), out),
            Message::DeadRedoMore { after } => self.send_dead_redo(from, Some(after), out),
            Message::Moved { .. } => {} // the term says it
            Message::TakenWanted { after } => self.say_taken(from, after, out),
            Message::Taken {
                after,
                granules,
                more,
            } => self.taught(from, after, (granules, more), out),
            Message::RecoveryDone => {
                self.finished.insert(from);
                if self
                    .members
                    .iter()
                    .all(|m| self.finished.contains(&m.instance))
                {
                    self.finished.clear();
                    let dead = std::mem::take(&mut self.recovering);
                    out.push(Effect::CloseThreads { dead });
                }
            }
            _ => unreachable!("the master's messages were dispatched above"),
        }
    }

    fn dispatch_to_master(
        &mut self,
        from: InstanceId,
        message: &Message,
        out: &mut Vec<Effect>,
    ) -> bool {
        let m = &mut self.master;
        match *message {
            Message::Request {
                block,
                id,
                floor,
                want,
                have,
            } => m.request(block, from, (id, floor), (want, have), out),
            Message::Done {
                block,
                id,
                floor,
                turn,
                holds,
                image,
            } => m.done(block, from, (id, floor, turn), (holds, image), out),
            Message::Invalidated { block, turn, image } => {
                m.invalidated(block, from, turn, image, out);
            }
            Message::NotHeld { block, turn } => m.not_held(block, from, turn, self.recoverer, out),
            Message::ReadBack {
                block,
                turn,
                to,
                id,
                snapshot,
            } => m.read_back(block, (from, turn), (to, id, snapshot), out),
            Message::Released { block, turn } => m.released(block, from, turn, out),
            Message::SteppedDown { block, turn } => m.stepped_down(block, from, turn, out),
            Message::Wrote { block, version } => m.wrote(block, version, out),
            Message::WriteWanted { block, version } => m.image_waits(block, from, version, out),
            Message::Inherited { block, turn } => m.inherited(block, turn, out),
            Message::Recovered {
                block,
                turn,
                id,
                served,
                holds,
            } => m.recovered(block, from, (turn, id, served, holds), out),
            _ => return false,
        }
        true
    }

    fn send(&self, to: InstanceId, message: Message, out: &mut Vec<Effect>) {
        out.push(Effect::Send { to, message });
    }

    /// The mode in which the block's copy here may be used. None if there is no copy.
    pub fn mode(&self, block: Dba) -> Option<(Mode, Generation)> {
        self.holder.mode(block)
    }

    /// Whether this master serves everything that came to it.
    pub fn is_whole(&self) -> bool {
        self.master.frozen.is_empty() && self.untaught.is_empty()
    }

    #[cfg(test)]
    pub(super) fn with_granules_of(&mut self, shift: u32) {
        self.master.masters.with_granules_of(shift);
    }

    #[cfg(test)]
    pub(super) fn declare_in_parts_of(&mut self, part: usize) {
        self.part = part;
    }

    #[cfg(test)]
    pub(super) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        self.holder.planted = planted;
        self.master.planted = planted;
    }
}
