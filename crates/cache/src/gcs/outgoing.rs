//! What a step of the shard wants said. It is said once the state is let go.
//!
//! Sending and waking are system calls. A session that is woken looks at the state at once, and so
//! does one that another instance on the same machine answers. If these calls were made under the
//! state's latch, each of these sessions would meet a latch whose owner has just lost its CPU to
//! it.
//!
//! A thread that takes several steps one after the other holds its letters meanwhile, and sends them
//! with one system call: a receiving thread that has read several messages, and a reader that asks
//! for several blocks.
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
use interconnect::{BATCH_FRAMES, Parcel, Post, Route};
use redo::Redo;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

/// The number of block buffers that a thread keeps for its next letters.
const SPARE_BLOCKS: usize = 4;

thread_local! {
    /// Whether this thread's letters wait for each other.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
    static HELD: RefCell<Outgoing> = RefCell::default();
}

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
    shard: u8,
    kind: u16,
    epoch: u64,
    body: Range<usize>,
    block: Option<Box<BlockBuf>>,
}

impl Letter {
    fn parcel<'a>(&'a self, bodies: &'a [u8]) -> (InstanceId, Parcel<'a>) {
        let parcel = Parcel {
            route: Route::Hash(u64::from(self.shard)),
            kind: self.kind,
            epoch: self.epoch,
            body: &bodies[self.body.clone()],
            block: self.block.as_deref(),
        };
        (self.to, parcel)
    }
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
            shard: 0, // until it is said
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
    /// wake up. A thread that holds letters leaves them to [`send_held`].
    pub fn say(&mut self, shard: u8, post: &dyn Post, redo: &Redo, helper: &Jobs) {
        self.letters.iter_mut().for_each(|l| l.shard = shard);
        if HOLDS.get() {
            let held = HELD.with_borrow_mut(|held| {
                held.append(self);
                held.letters.len()
            });
            if held >= BATCH_FRAMES {
                send_held(post);
            }
        } else {
            self.send(post);
            self.spare.truncate(SPARE_BLOCKS);
        }
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

    /// Takes over another's letters, and gives it memory for the next ones.
    fn append(&mut self, other: &mut Outgoing) {
        let at = self.bodies.len();
        self.bodies.append(&mut other.bodies);
        self.letters.extend(other.letters.drain(..).map(|mut l| {
            l.body = l.body.start + at..l.body.end + at;
            l
        }));
        let missing = SPARE_BLOCKS.saturating_sub(other.spare.len());
        let spare = self.spare.len().saturating_sub(missing);
        other.spare.extend(self.spare.drain(spare..));
    }

    /// Sends the letters. Those of one receiver and one shard stay in order.
    fn send(&mut self, post: &dyn Post) {
        self.letters.sort_by_key(|l| (l.to, l.shard));
        match &self.letters[..] {
            [] => return,
            [letter] => {
                let (to, parcel) = letter.parcel(&self.bodies);
                post.send(to, parcel);
            }
            letters => {
                let parcels = letters.iter().map(|l| l.parcel(&self.bodies));
                post.send_together(&parcels.collect::<Vec<_>>());
            }
        }
        let sent = self.letters.drain(..);
        self.spare.extend(sent.filter_map(|l| l.block));
        self.bodies.clear();
    }
}

/// From now on the letters of this thread's steps wait for each other, up to as many as one system
/// call takes. The thread must not wait before it calls [`end_holding`] or [`send_held`]: others
/// may wait for its letters.
pub(super) fn begin_holding() {
    HOLDS.set(true);
}

/// Sends the letters that this thread holds.
pub(super) fn send_held(post: &dyn Post) {
    let mut held = HELD.take();
    held.send(post);
    held.spare.truncate(BATCH_FRAMES);
    HELD.set(held);
}

pub(super) fn end_holding(post: &dyn Post) {
    HOLDS.set(false);
    send_held(post);
}
