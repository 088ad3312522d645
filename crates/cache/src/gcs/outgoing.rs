//! What a step of the shard wants said. It is said once the state is let go.
//!
//! Sending and waking are system calls. A session that is woken looks at the state at once, and so
//! does one that another instance on the same machine answers. If these calls were made under the
//! state's latch, each of these sessions would meet a latch whose owner has just lost its CPU to
//! it.
//!
//! **Invariants.**
//! - A letter has its bytes with it: once the state is let go, the frame that a block was sent from
//!   may be anybody's.
//! - Two threads may say what they have to say in another order than that of their steps. The shard
//!   admits messages in any order (`fusion::gcs` is checked with a network that keeps none). A
//!   session ignores what was meant for an earlier wait of its own, and news that says less than it
//!   has been told already ([`Slot::tell`]).

use super::jobs::{Job, Jobs};
use super::slot::{How, Slot, Told};
use block::{BlockBuf, InstanceId};
use interconnect::{Parcel, Post, Route};
use redo::Redo;
use std::ops::Range;
use std::sync::Arc;

/// The number of block buffers that a thread keeps for its next letters.
const SPARE_BLOCKS: usize = 4;

#[derive(Default)]
pub(super) struct Outgoing {
    letters: Vec<Letter>,
    /// The bytes of all letters.
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

impl Outgoing {
    /// Adds a letter. `body` writes the message.
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

    pub fn is_empty(&self) -> bool {
        self.letters.is_empty() && self.told.is_empty() && self.jobs.is_empty()
    }

    /// Says everything, for this shard. Letters come first: others work on them while sessions here
    /// wake up.
    pub fn say(&mut self, shard: u8, post: &dyn Post, redo: &Redo, helper: &Jobs) {
        for letter in self.letters.drain(..) {
            let parcel = Parcel {
                route: Route::Hash(u64::from(shard)),
                kind: letter.kind,
                epoch: letter.epoch,
                body: &self.bodies[letter.body],
                block: letter.block.as_deref(),
            };
            post.send(letter.to, parcel);
            self.spare.extend(letter.block);
        }
        self.bodies.clear();
        self.spare.truncate(SPARE_BLOCKS);
        for (slot, waiter, told, how) in self.told.drain(..) {
            slot.tell(waiter, told, how);
        }
        for job in self.jobs.drain(..) {
            // The thread that is writing the log just now tells of it, too. So nobody needs to be
            // woken for that.
            if !matches!(job, Job::Flush(upto) if redo.want(upto)) {
                helper.push(job);
            }
        }
    }
}
