//! The state of the cache among other instances: [`Gcs`], and for each shard a [`State`] under a
//! latch of its own.
//!
//! Only the modules of this folder touch a `State`, each its own part. All of them go through
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

/// The number of buckets of the directory.
pub(super) const BUCKETS: u16 = 256;

/// The kind of the messages of the first shard, within [`interconnect::kinds::CACHE`]. The kinds of
/// the other shards come after it, and those of [`super::messages::Plain`] before it.
pub(super) const SHARD: u16 = 10;
/// The first kind of shard messages with a term in front. Such a message is about a block of a
/// granule that an instance took.
pub(super) const TERMED_SHARD: u16 = 50;

/// The part of the cache that knows of other instances.
#[derive(Default)]
pub(crate) struct Gcs {
    /// Whether misses are requests. Once set it stays set.
    pub(super) clustered: AtomicBool,
    /// The number of loads under way that have seen `clustered` false.
    pub(super) lone_loads: AtomicUsize,
    pub(super) post: OnceLock<Arc<dyn Post>>,
    /// The shards. `None` before the instance joins.
    pub(super) shards: OnceLock<Box<[ShardCell]>>,
    pub(super) helper: Arc<Jobs>,
    /// The listener that is told that dead threads are needed no more.
    pub(super) closed: OnceLock<ThreadsClosed>,
    pub(super) closing: Mutex<Closing>,
    /// How often a member has gone; see [`Cache::copies_lost`].
    pub(super) copies_lost: AtomicU64,
    pub(super) policy: Mutex<Policy>,
    /// See [`Cache::defer`].
    pub(super) defer_us: AtomicU64,
}

/// A shard; see the module.
pub(super) struct State {
    pub(super) me: InstanceId,
    pub(super) number: u8,
    pub(super) shard: Shard,
    pub(super) members: Vec<InstanceId>,
    /// The instances that have asked for blocks of each granule.
    pub(super) uses: Uses,
    pub(super) dead: Dead,
    /// Sessions that wait, by the numbers under which the shard knows them.
    pub(super) waiting: HashMap<u64, Waiting>,
    pub(super) last_waiter: u64,
    /// Blocks granted from disk, or to be brought back, that are in no frame yet.
    pub(super) to_read: HashMap<Dba, ToRead>,
    pub(super) arrived: HashMap<Dba, Arrived>,
    pub(super) wanted: Stays,
    pub(super) images: HashMap<Dba, Image>,
    /// Messages of an epoch that this instance has not entered yet.
    pub(super) later: Vec<Later>,
    /// The frame whose block is being evicted. Its evictor has it latched.
    pub(super) evicting: Option<(Dba, FrameIx)>,
    pub(super) undo: UndoWanted,
    pub(super) timing: Timing,
    /// The instance that the last message went to.
    pub(super) last_sent_to: Option<InstanceId>,
    /// A list that is kept, so that a step allocates nothing.
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
    /// Whether the block is to be brought back.
    pub(super) recovery: bool,
    /// How often background threads could not read the block. No session gets these errors, so they
    /// are logged.
    pub(super) failures: u32,
    /// Whether the block's owner has died meanwhile. If so, the block is dirty from the moment at
    /// which it is here (17b).
    pub(super) owed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// The session that waits under this number.
    Waiter(u64),
    /// The threads that bring blocks back, or read them for others.
    Background,
}

/// A block that was received.
pub(super) struct Arrived {
    pub(super) block: Box<BlockBuf>,
    /// The state that its frame will have.
    pub(super) state: u8,
    pub(super) dirty: bool,
}

/// A past image: what is kept of a block that was given away dirty.
pub(super) struct Image {
    pub(super) block: Box<BlockBuf>,
    pub(super) version: Scn,
    /// The position that the checkpoint may not pass, or [`CLEAN`].
    pub(super) first_dirty: u64,
}

/// The message, if any, that causes a step.
#[derive(Default)]
pub(super) struct Cause<'a> {
    /// The instance that a message came from, and the block that came with it.
    pub(super) from: Option<InstanceId>,
    pub(super) block: Option<&'a BlockBuf>,
    /// What its sender said behind the message about time, and when the message was read.
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

    /// Whether a block that is held is in its frame. Otherwise the frame may have what the block
    /// was when it was last here.
    pub(super) fn is_in_its_frame(&self, dba: Dba) -> bool {
        !self.arrived.contains_key(&dba) && !self.to_read.contains_key(&dba)
    }

    /// The instance that masters a block.
    pub(super) fn master(&self, dba: Dba) -> InstanceId {
        self.shard.master_of(dba)
    }
}

/// The master of a bucket. All members find the same one without a message. When members go or
/// come, only the buckets of those that go move, or a share for those that come. Each instance has
/// a weight of its own for each bucket, and the heaviest masters it (rendezvous hashing).
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

/// Whether a block is its instance's own, so that others only get copies of it.
pub(crate) fn is_private(dba: Dba) -> bool {
    dba.file().is_undo()
}

/// The most shards. The interconnect has no more lanes for blocks.
const MAX_SHARDS: u8 = 32;

pub(super) struct ShardCell {
    pub state: Mutex<State>,
    /// Signalled when the shard has entered an epoch.
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

/// For each dead member, how many shards have said that its thread is needed no more.
#[derive(Default)]
pub(super) struct Closing {
    epoch: u64,
    said: HashMap<ClusterMember, usize>,
}

impl Closing {
    /// Notes that one more shard has no need of these members. Returns those that no shard needs.
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
        // Another instance has died meanwhile, so all shards have both before them again.
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(5, vec![a], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), []);
        assert_eq!(closing.one_more(6, vec![a, b], 3), [a, b]);
    }
}
