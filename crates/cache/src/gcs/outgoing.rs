//! What a step of the shard wants said, said once the state is let go.
//!
//! Sending and waking are calls of the system. Whoever is woken, or answered by another instance on the same machine, looks at the state at once: done under its latch, each would meet a
//! latch whose owner has just lost its CPU to the one that wants it.
//!
//! **Invariants.**
//! - A letter has its bytes with it: the frame that a block was sent from is anybody's once the state is let go.
//! - Two threads may say what they have to say in another order than that of their steps. The shard admits messages in any order (`fusion::gcs` is checked with a network that keeps none);
//!   a session takes no notice of what was meant for an earlier wait of its, nor of less than it has been told already ([`Slot::tell`]).

use super::State;
use super::helper::Job;
use super::session::{How, Slot, Told};
use super::shards::ShardCell;
use crate::Cache;
use block::{BlockBuf, InstanceId};
use interconnect::{Parcel, Route};
use seam::MutexGuard;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

/// Buffers for blocks that a thread keeps for its next letters.
const SPARE_BLOCKS: usize = 4;

#[derive(Default)]
pub(super) struct Outgoing {
    letters: Vec<Letter>,
    /// Of all letters.
    bodies: Vec<u8>,
    told: Vec<(Arc<Slot>, u64, Told, How)>,
    jobs: Vec<Job>,
    spare: Vec<Box<BlockBuf>>,
}

struct Letter {
    to: InstanceId,
    kind: u16,
    epoch: u64,
    body: Range<usize>,
    block: Option<Box<BlockBuf>>,
}

thread_local! {
    /// Empty, with the memory of the last one.
    static LAST: RefCell<Outgoing> = RefCell::default();
}

impl Outgoing {
    /// `body` writes the message.
    pub fn letter(
        &mut self,
        (to, kind, epoch): (InstanceId, u16, u64),
        block: Option<&BlockBuf>,
        body: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bodies.len();
        body(&mut self.bodies);
        let block = block.map(|bytes| {
            let mut copy = self.spare.pop().unwrap_or_else(BlockBuf::zeroed);
            copy.0.copy_from_slice(&bytes.0);
            copy
        });
        self.letters.push(Letter {
            to,
            kind,
            epoch,
            body: start..self.bodies.len(),
            block,
        });
    }

    pub fn tell(&mut self, slot: Arc<Slot>, waiter: u64, told: Told, how: How) {
        self.told.push((slot, waiter, told, how));
    }

    pub fn job(&mut self, job: Job) {
        self.jobs.push(job);
    }

    fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.told.is_empty() && self.jobs.is_empty()
    }

    /// By this shard. Letters first: others work on them while sessions here wake up.
    fn say(&mut self, shard: u8, cache: &Cache) {
        for letter in self.letters.drain(..) {
            let parcel = Parcel {
                route: Route::Hash(u64::from(shard)),
                kind: letter.kind,
                epoch: letter.epoch,
                body: &self.bodies[letter.body],
                block: letter.block.as_deref(),
            };
            cache.post().send(letter.to, parcel);
            self.spare.extend(letter.block);
        }
        self.bodies.clear();
        self.spare.truncate(SPARE_BLOCKS);
        for (slot, waiter, told, how) in self.told.drain(..) {
            slot.tell(waiter, told, how);
        }
        for job in self.jobs.drain(..) {
            // Whoever writes the log just now tells of it, too: nobody needs to be woken for that.
            if !matches!(job, Job::Flush(upto) if cache.redo.want(upto)) {
                cache.gcs.helper.push(job);
            }
        }
    }
}

/// A shard's state, latched. What steps want said is said when it is let go.
pub(super) struct Latched<'a> {
    cache: &'a Cache,
    /// None only while it is being dropped.
    guard: Option<MutexGuard<'a, State>>,
}

impl<'a> Latched<'a> {
    pub fn new(cache: &'a Cache, shard: &'a ShardCell) -> Latched<'a> {
        Latched {
            cache,
            guard: Some(shard.state.lock()),
        }
    }

    /// For a wait that lets it go meanwhile. To be called before any step.
    pub fn guard(&mut self) -> &mut MutexGuard<'a, State> {
        self.guard
            .as_mut()
            .expect("invariant: latched until it is dropped")
    }
}

impl Deref for Latched<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.guard
            .as_ref()
            .expect("invariant: latched until it is dropped")
    }
}

impl DerefMut for Latched<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.guard()
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else {
            return;
        };
        if guard.outgoing.is_empty() {
            return;
        }
        let mut outgoing = std::mem::replace(&mut guard.outgoing, LAST.take());
        let shard = guard.number;
        drop(guard);
        outgoing.say(shard, self.cache);
        LAST.set(outgoing);
    }
}
