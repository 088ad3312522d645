//! The cache among other instances. Drives the global cache service ([`fusion::gcs::Shard`]) with
//! this instance's frames, log and disk.
//!
//! **Alone** an instance never comes here: its blocks are in its frames exclusively, unregistered,
//! and it sends nothing. When others are about to come ([`Cache::reconfigure`]), the instance
//! declares to the new masters what it has cached. From then on every miss is a request.
//!
//! **Invariants.**
//! - A frame's state is its mode, as a number ([`crate::frame`]). A thread that has latched the
//!   frame looks at it once more. Only this module raises and lowers the mode, and lowers it only
//!   under the frame's exclusive latch. So a frame that is latched in a mode keeps it until it is
//!   let go (R7, race 8 of docs/design.md).
//! - All about one block is one shard's ([`shards`]).
//! - Order of latches: frame, then the shard's [`state::State`]. A thread that has the state
//!   latched only tries a frame's latch, and leaves the rest to the thread `lmc0` (R8).
//! - The bytes of a block that arrived are in [`state::State::arrived`] until a session has put
//!   them into a frame: receiving threads never look for a frame.
//! - A frame that was closed for another instance keeps its content, clean or not, until the shard
//!   says what becomes of it. Nobody writes that content meanwhile.
//! - A past image is in [`state::State::images`] before its frame is clean, and the checkpoint
//!   reads frames before images. So the checkpoint never passes an image (R5).
//! - Undo blocks belong to their instance. They never go through the shard. Others get copies
//!   ([`Cache::read_undo`]).
//!
//! **Layers**, from the top; a module imports only from layers below its own: this module, which
//! hears the messages; `helper`; `recovery`, `affinity`, `undo`, `defer`; `ahead`; `session`;
//! `kept`, `admission`; `effects`, by which a shard's step is carried out; `shards`, which latches
//! a shard; `state`, `provenance`; `outgoing`, `jobs`; `slot`, `stay`, `policy`, `dead`,
//! `undo_wanted`, `timing`, `messages`.

mod admission;
mod affinity;
mod ahead;
mod dead;
mod defer;
mod effects;
mod helper;
mod jobs;
pub(crate) mod kept;
mod messages;
mod outgoing;
mod policy;
mod provenance;
mod recovery;
mod session;
mod shards;
mod slot;
mod state;
mod stay;
mod timing;
mod undo;
mod undo_wanted;

pub(crate) use admission::Admission;
pub use ahead::{AHEAD_BLOCKS, AskedAhead};
pub use dead::{ClusterMember, DeadThreads, Reconfiguration, ThreadsClosed};
pub use policy::{Affinity, GranuleRow, PolicyEvent, PolicyRow};
pub(crate) use session::Acquired;
pub(crate) use state::{Gcs, is_private};

use crate::frame::{CLEAN, CLOSED, FrameIx, SHARED};
use crate::{Cache, Error, Result};
use block::{BlockBuf, Dba, InstanceId, Scn};
use fusion::gcs::{Admission as Epochs, Message, Shard};
use fusion::ids::{Epoch, Term};
use interconnect::Post;
use messages::Plain;
use state::{Cause, SHARD, State, TERMED_SHARD, received_ns, shards_of};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use timing::BlockCost;
use wire::{Bad, Reader};

impl Cache {
    /// Sets how other instances are reached, and starts the threads that do what receiving threads
    /// leave. Called once, before [`Cache::reconfigure`]. The number of `shards` is the same for
    /// all members.
    pub fn join_cluster(self: &Arc<Self>, post: Arc<dyn Post>, shards: u8) -> Result<()> {
        let shards = shards_of(post.me(), shards);
        assert!(
            self.gcs.post.set(post).is_ok() && self.gcs.shards.set(shards).is_ok(),
            "invariant: a cache joins a cluster once"
        );
        self.this.get_or_init(|| Arc::downgrade(self));
        helper::start(self)
    }

    /// Ends what [`Cache::join_cluster`] started.
    pub fn leave_cluster(&self) {
        self.gcs.helper.stop();
    }

    /// Tells the shards what this instance has cached alone, to be declared in the first epoch.
    fn register_everything(&self) {
        self.gcs.clustered.store(true, SeqCst);
        // A thread that loads without the shard looked at the flag before. It needs no more than
        // the disk to go on.
        while self.gcs.lone_loads.load(SeqCst) > 0 {
            seam::thread::yield_now();
        }
        for frame in &self.frames {
            frame.latch.lock_shared(&self.latch_group);
            let dba = frame.dba();
            if frame.state.load(Acquire) >= SHARED && !is_private(dba) {
                self.with_state(dba, |s| s.shard.adopt(dba));
            }
            // SAFETY: latched above.
            unsafe { frame.latch.unlock_shared() }
        }
    }

    /// Takes in a message of kind [`interconnect::kinds::CACHE`]. Never waits. After an error the
    /// connection must be closed: these are no bytes of ours.
    pub fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> Result<()> {
        let bad = |why: Bad| Error::BadMessage {
            from,
            kind,
            why: Box::new(why),
        };
        if kind >= SHARD {
            return self.shard_message((from, epoch), kind, body, block);
        }
        match Plain::decode(kind, body).map_err(bad)? {
            Plain::UndoWanted { block, id } => self.undo_wanted(from, block, id).map_err(bad),
            Plain::UndoCopy {
                block: dba,
                id,
                cost,
            } => {
                self.undo_arrived((from, epoch), (dba, id, cost), block);
                Ok(())
            }
            Plain::Offer {
                granule,
                term,
                requests,
                of_target,
            } => self.offered((from, epoch), (granule, term), (requests, of_target)),
        }
    }

    /// Takes in a message of a shard.
    fn shard_message(
        &self,
        (from, epoch): (InstanceId, u64),
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> Result<()> {
        let bad = |why: Bad| Error::BadMessage {
            from,
            kind,
            why: Box::new(why),
        };
        let mut r = Reader::new(body);
        let (first, term) = match kind {
            TERMED_SHARD.. => (TERMED_SHARD, r.get().map_err(bad)?),
            _ => (SHARD, Term::BY_HASH),
        };
        let (message, spent) = messages::decode(r).map_err(bad)?;
        let carries = matches!(message, Message::Block { .. } | Message::Copy { .. });
        if carries != block.is_some() {
            return Err(bad(Bad::because(
                "a block is missing, or has no place here",
            )));
        }
        let number = kind - first;
        let of_shard = |dba| u16::from(self.shard_number(dba)) == number;
        if !message.block().is_none_or(of_shard) {
            return Err(bad(Bad::because("it is about a block of another shard")));
        }
        let shard = self.shard(number)?;
        let mut s = shard.ok_or_else(|| bad(Bad::because("there is no such shard")))?;
        self.admit(&mut s, (from, epoch, term), (message, spent), block);
        Ok(())
    }

    fn admit(
        &self,
        s: &mut State,
        (from, epoch, term): (InstanceId, u64, Term),
        (message, spent): (Message, Option<BlockCost>),
        block: Option<&BlockBuf>,
    ) {
        match s.shard.admits(Epoch(epoch)) {
            Epochs::Never => {}
            Epochs::Later => {
                let block = block.map(|b| Box::new(b.clone()));
                s.later.push(((from, epoch, term), message, block));
            }
            Epochs::Now => {
                if let Message::Request { block, .. } = message {
                    s.count_use(block, from);
                }
                let received_ns = received_ns();
                s.timing.arrived(from, &message, spent, received_ns);
                let cause = Cause {
                    from: Some(from),
                    block,
                    spent,
                    received_ns,
                };
                self.step(s, cause, |shard, out| {
                    shard.message(from, term, message, out)
                });
            }
        }
    }

    /// Asks again for what may have been lost, after the connection to `peer` broke and came back.
    pub fn reconnected(&self, peer: InstanceId) {
        self.each_shard(|s| {
            self.step(s, Cause::default(), |shard, out| {
                shard.reconnected(peer, out)
            });
            self.ask_undo_again(s, Some(peer));
        });
    }

    /// Drives again what may have been lost. Called about once a second.
    pub fn tick(&self) {
        self.each_shard(|s| {
            self.step(s, Cause::default(), Shard::timer);
            self.ask_undo_again(s, None);
            self.start_recoveries(s);
            self.read_unattended(s);
        });
        self.follow_policy();
    }

    /// The number of past images kept here. A clean leave waits until there are none. This call
    /// asks for their writing.
    pub fn past_images(&self) -> usize {
        let mut n = 0;
        self.each_shard(|s| {
            let images: Vec<Dba> = s.images.keys().copied().collect();
            n += images.len();
            for dba in images {
                self.step(s, Cause::default(), |shard, out| {
                    shard.image_in_the_way(dba, out)
                });
            }
        });
        n
    }

    /// Lets go of every clean block, so that this instance can leave. Returns how many blocks it
    /// could not let go of yet.
    pub fn release_everything(&self) -> usize {
        // Perhaps no other instance is left, and so nothing calls `tick`.
        self.each_shard(|s| self.read_unattended(s));
        let mut left = 0;
        for (i, frame) in self.frames.iter().enumerate() {
            frame.latch.lock_exclusive(&self.latch_group);
            let dba = frame.dba();
            if frame.state.load(Acquire) >= CLOSED && !is_private(dba) {
                let clean = !frame.is_dirty() && frame.pins.load(Acquire) == 0;
                left += usize::from(!clean || !self.let_go(FrameIx(i as u32), dba));
            }
            // SAFETY: latched above.
            unsafe { frame.latch.unlock_exclusive() }
        }
        left
    }

    /// The position of the oldest redo that past images need, or [`CLEAN`]. It must be read after
    /// the frames'.
    pub(crate) fn oldest_image(&self) -> u64 {
        let mut oldest = CLEAN;
        if self.is_clustered() {
            self.each_shard(|s| {
                let of_shard = s.images.values().map(|i| i.first_dirty).min();
                oldest = oldest.min(of_shard.unwrap_or(CLEAN));
            });
        }
        oldest
    }

    /// A number that changes whenever the copies that another instance has made become worthless,
    /// because that instance is gone. Such copies may show what it had changed and lost. They may
    /// also point to undo that it lost with it or that its next life has written anew.
    ///
    /// A caller that has read a copy and goes on to look at undo compares the number before and
    /// after. If the two differ, it starts over (R3).
    #[inline]
    pub fn copies_lost(&self) -> u64 {
        self.gcs.copies_lost.load(SeqCst)
    }

    /// Asks for the writing of the images whose redo begins before `upto`, so that the checkpoint
    /// can pass it.
    pub(crate) fn want_images_written(&self, upto: u64) {
        if !self.is_clustered() {
            return;
        }
        self.each_shard(|s| {
            let old = s.images.iter().filter(|(_, i)| i.first_dirty < upto);
            for dba in old.map(|(&dba, _)| dba).collect::<Vec<_>>() {
                self.step(s, Cause::default(), |shard, out| {
                    shard.image_in_the_way(dba, out)
                });
            }
        });
    }

    /// Tells the shards which blocks `dbw0` has written, with the versions that are on synced disk
    /// now.
    pub(crate) fn blocks_written(&self, written: impl Iterator<Item = (Dba, Scn)>) {
        if !self.is_clustered() {
            return;
        }
        let mut of_shards = vec![Vec::new(); self.shards().len()];
        for (dba, version) in written.filter(|(dba, _)| !is_private(*dba)) {
            of_shards[usize::from(self.shard_number(dba))].push((dba, version));
        }
        self.each_shard(|s| {
            for &(dba, version) in &of_shards[usize::from(s.number)] {
                self.step(s, Cause::default(), |shard, out| {
                    shard.wrote(dba, version, out)
                });
            }
        });
        self.no_write_in_flight();
    }

    /// Looks again at the frames that must be closed once no write of them is in flight.
    pub(crate) fn no_write_in_flight(&self) {
        self.gcs.helper.look_again();
    }

    /// Whether the frame may be given to another block. The caller has latched it exclusively and
    /// found it clean and without pins.
    pub(crate) fn let_go(&self, ix: FrameIx, dba: Dba) -> bool {
        if is_private(dba) || !self.is_clustered() {
            return true;
        }
        let s = &mut *self.state(dba);
        if s.members.is_empty() {
            // Others are about to come. This shard is not in their epoch yet, so it has no masters
            // to tell.
            s.shard.disown(dba);
            return true;
        }
        if s.shard.mode(dba).is_some() {
            s.evicting = Some((dba, ix));
            self.step(s, Cause::default(), |shard, out| shard.evict(dba, out));
            s.evicting = None;
        }
        s.shard.mode(dba).is_none()
    }
}
