//! The state of the cache among other instances: [`Gcs`], and of each shard a [`State`] under a
//! latch of its own.
//!
//! The modules of this folder alone touch a `State`, each what it is about, and all of them through
//! [`super::shards`], which latches it.

use super::dead::{ClusterMember, Dead, ThreadsClosed};
use super::jobs::Jobs;
use super::outgoing::Outgoing;
use super::policy::{Policy, Uses};
use super::slot::Waiting;
use super::stay::Stays;
use super::timing::{BlockCost, Timing};
use super::undo_wanted::UndoWanted;
use crate::frame::{EXCLUSIVE, FrameIx, SHARED};
use block::{BlockBuf, Dba, InstanceId, Scn};
use fusion::gcs::{Effect, Message, Mode, Shard};
use fusion::ids::{Generation, Term};
use interconnect::Post;
use seam::{Condvar, HashMap, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

/// Buckets of the directory.
pub(super) const BUCKETS: u16 = 256;

/// Kind of the messages of the first shard, within [`interconnect::kinds::CACHE`]; those of the
/// other shards come after it. Below it are the kinds of [`super::messages::Plain`].
pub(super) const SHARD: u16 = 10;
/// The first kind of shard messages with a term in front: about a block of a granule that somebody
/// took.
pub(super) const TERMED_SHARD: u16 = 50;

/// The cache's part that knows of other instances.
#[derive(Default)]
pub(crate) struct Gcs {
    /// Whether misses are requests. Never falls.
    pub(super) clustered: AtomicBool,
    /// Loads under way of those who have seen it false.
    pub(super) lone_loads: AtomicUsize,
    pub(super) post: OnceLock<Arc<dyn Post>>,
    /// None before it joins.
    pub(super) shards: OnceLock<Box<[ShardCell]>>,
    pub(super) helper: Arc<Jobs>,
    /// The listener that is told that dead threads are needed no more.
    pub(super) closed: OnceLock<ThreadsClosed>,
    pub(super) closing: Mutex<Closing>,
    /// How often a member was gone: see [`Cache::copies_lost`].
    pub(super) copies_lost: AtomicU64,
    pub(super) policy: Mutex<Policy>,
    /// See [`Cache::defer`].
    pub(super) defer_us: AtomicU64,
}

/// A shard. See the module.
pub(super) struct State {
    pub(super) me: InstanceId,
    pub(super) number: u8,
    pub(super) shard: Shard,
    pub(super) members: Vec<InstanceId>,
    /// The instances that have asked for blocks of each granule.
    pub(super) uses: Uses,
    pub(super) dead: Dead,
    /// Sessions that wait, by the number that the shard knows them by.
    pub(super) waiting: HashMap<u64, Waiting>,
    pub(super) last_waiter: u64,
    /// Blocks granted from disk, or to be brought back, that are in no frame yet.
    pub(super) to_read: HashMap<Dba, ToRead>,
    pub(super) arrived: HashMap<Dba, Arrived>,
    pub(super) wanted: Stays,
    pub(super) images: HashMap<Dba, Image>,
    /// Messages of an epoch that this instance has not entered.
    pub(super) later: Vec<Later>,
    /// The frame that its evictor has latched.
    pub(super) evicting: Option<(Dba, FrameIx)>,
    pub(super) undo: UndoWanted,
    pub(super) timing: Timing,
    /// The instance that the last message went to.
    pub(super) last_sent_to: Option<InstanceId>,
    /// Kept so that a step allocates nothing.
    pub(super) scratch: Vec<Effect>,
    pub(super) outgoing: Outgoing,
}

/// Sender, epoch and term of a message, and the block that came with it.
pub(super) type Later = ((InstanceId, u64, Term), Message, Option<Box<BlockBuf>>);

pub(super) struct ToRead {
    pub(super) mode: Mode,
    pub(super) generation: Generation,
    /// The reader of the block, if anybody reads it yet.
    pub(super) claimed: Option<Reader>,
    /// The block is to be brought back.
    pub(super) recovery: bool,
    /// How often background threads could not read it: no session gets these errors, so they are
    /// said.
    pub(super) failures: u32,
    /// The block's owner has died meanwhile: the block is dirty from the moment on at which it is
    /// here (17b).
    pub(super) owed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// The session that waits under this number.
    Waiter(u64),
    /// Those who bring blocks back, or read them for others.
    Background,
}

/// A block that was received.
pub(super) struct Arrived {
    pub(super) block: Box<BlockBuf>,
    /// State that its frame will have.
    pub(super) state: u8,
    pub(super) dirty: bool,
}

/// What is kept of a block that was given away dirty.
pub(super) struct Image {
    pub(super) block: Box<BlockBuf>,
    pub(super) version: Scn,
    /// Position that the checkpoint may not pass, or [`CLEAN`].
    pub(super) first_dirty: u64,
}

/// What a step is about, besides the state.
#[derive(Default)]
pub(super) struct Cause<'a> {
    /// The instance that a message came from, and the block that came with it.
    pub(super) from: Option<InstanceId>,
    pub(super) block: Option<&'a BlockBuf>,
    /// What was said behind it, and when it was read.
    pub(super) spent: Option<BlockCost>,
    pub(super) received_ns: u64,
}

pub(super) fn state_of(mode: Mode) -> u8 {
    match mode {
        Mode::Shared => SHARED,
        Mode::Exclusive => EXCLUSIVE,
    }
}

impl State {
    pub(super) fn new(me: InstanceId, number: u8) -> State {
        State {
            me,
            number,
            shard: Shard::new(me),
            members: Vec::new(),
            uses: Uses::default(),
            dead: Dead::default(),
            waiting: HashMap::default(),
            last_waiter: 0,
            to_read: HashMap::default(),
            arrived: HashMap::default(),
            wanted: Stays::default(),
            images: HashMap::default(),
            later: Vec::new(),
            evicting: None,
            undo: UndoWanted::default(),
            timing: Timing::default(),
            last_sent_to: None,
            scratch: Vec::new(),
            outgoing: Outgoing::default(),
        }
    }

    /// Of a block that is held: whether its frame has it, and not what the block was when it was
    /// last here.
    pub(super) fn is_in_its_frame(&self, dba: Dba) -> bool {
        !self.arrived.contains_key(&dba) && !self.to_read.contains_key(&dba)
    }

    /// Which instance masters a block.
    pub(super) fn master(&self, dba: Dba) -> InstanceId {
        self.shard.master_of(dba)
    }
}

/// The master of a bucket. It is the same for all members without a word between them, and only the
/// buckets of those who go, or a share for those who come, move: each instance has a weight of its
/// own for each bucket, and the heaviest masters it (rendezvous hashing).
pub(super) fn master_of(members: &[InstanceId], bucket: u16) -> InstanceId {
    let weight = |i: &InstanceId| {
        // The finalizer of splitmix64.
        let z = (u64::from(bucket) << 16 | u64::from(i.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let heaviest = members.iter().max_by_key(|i| (weight(i), i.0));
    *heaviest.expect("invariant: an epoch has members")
}

/// When the message that this thread handles was read; now, if it handles none.
pub(super) fn received_ns() -> u64 {
    interconnect::handled_message_received_ns().unwrap_or_else(interconnect::now_ns)
}

/// Whether a block is its instance's own, of which others only get copies.
pub(crate) fn is_private(dba: Dba) -> bool {
    dba.file().is_undo()
}

/// As many as the interconnect may have for blocks.
const MAX_SHARDS: u8 = 32;

pub(super) struct ShardCell {
    pub state: Mutex<State>,
    /// There is a plan.
    pub entered: Condvar,
}

pub(super) fn shards_of(me: InstanceId, shards: u8) -> Box<[ShardCell]> {
    assert!(
        (1..=MAX_SHARDS).contains(&shards),
        "invariant: 1 to {MAX_SHARDS} shards"
    );
    let cell = |number| ShardCell {
        state: Mutex::new(State::new(me, number)),
        entered: Condvar::new(),
    };
    (0..shards).map(cell).collect()
}

/// How many shards have said of whom that its thread is needed no more.
#[derive(Default)]
pub(super) struct Closing {
    epoch: u64,
    said: HashMap<ClusterMember, usize>,
}

impl Closing {
    /// One more shard has no need of these. Returns whom no shard needs.
    pub fn one_more(
        &mut self,
        epoch: u64,
        dead: Vec<ClusterMember>,
        shards: usize,
    ) -> Vec<ClusterMember> {
        if self.epoch < epoch {
            *self = Closing {
                epoch,
                ..Closing::default()
            };
        }
        if self.epoch > epoch {
            return Vec::new(); // The shard is about to enter the next one, and says it again there.
        }
        let mut said_by_all = dead;
        said_by_all.retain(|member| {
            let said = self.said.entry(*member).or_default();
            *said += 1;
            *said == shards
        });
        said_by_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_closed_when_all_shards_have_said_so_in_one_epoch() {
        let (a, b) = ((InstanceId(1), 7), (InstanceId(2), 7));
        let mut closing = Closing::default();
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        // Another has died meanwhile: all shards have both before them again.
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), [a, b]);
    }
}
