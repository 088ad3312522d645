//! The buffer cache: 8 KiB blocks in frames, found without locks, latched, changed through redo, and written back by `dbw0`.
//!
//! **Owns** the memory of the buffers, which block is in which frame, what is dirty, and the thread's checkpoint position. Knows of a
//! block's contents its header only; `block::apply` changes the rest.
//!
//! **Invariants.**
//! - A block is in one frame at most. A frame's contents are read under its latch held shared or exclusively and changed under it held exclusively; whoever
//!   has latched a frame checks that it still holds the block it came for.
//! - A frame that is pinned, latched or dirty is not given to another block.
//! - *Mark, then log*: a frame's first-dirty position is set before the record that changes it is appended, to a position at or below the record's
//!   ([`Cache::change`]). A checkpoint reads the log's end first and the first-dirty positions after, so it cannot miss a record it passes.
//! - *Write-ahead*: a block is written only when redo is durable beyond its last change.
//! - A thread that holds a frame latch never waits for disk, log space or another session (R7); the count of latches held is kept per thread
//!   and asserted.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod change;
mod dbw;
mod error;
mod frame;
mod gcs;
mod guard;
mod load;
mod memory;
mod retire;

pub use change::{Change, RecordHeader};
pub use dbw::{CheckpointClient, Writer, WriterConfig};
pub use error::{Error, Result};
pub use fusion::gcs::GRANULE_BLOCKS;
pub use gcs::kept::give_back as give_back_kept;
pub use gcs::{
    Affinity, ClusterMember, DeadThreads, GranuleRow, PolicyEvent, PolicyRow, Reconfiguration,
    ThreadsClosed,
};
pub use guard::{Pin, ReadGuard, WriteGuard, latches_held};

use block::Dba;
use frame::{Frame, FrameIx};
use memory::BlockMemory;
use redo::Redo;
use seam::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use storage::DataFiles;
use wait::{Event, Latch, LatchClass, LatchGroup};

static CHAINS: LatchClass = LatchClass {
    name: "cache buffers chains",
    event: Event::LatchCacheChains,
};
static BUFFER: LatchClass = LatchClass {
    name: "buffer",
    event: Event::BufferBusy,
};
static FREE: LatchClass = LatchClass {
    name: "cache buffers lru chain",
    event: Event::LatchLru,
};

/// Children of the latch that guards insertion into and removal from hash chains. Hits do not take it.
const CHAIN_LATCHES: usize = 256;
/// Places where readers wait for a block that another session reads.
const IO_SHARDS: usize = 64;
/// Fewer frames than this would let a handful of sessions, each with a few pins, wait for each other.
pub const MIN_FRAMES: usize = 128;

/// The buffer cache of one instance.
pub struct Cache {
    memory: BlockMemory,
    frames: Box<[Frame]>,
    /// First frame of each chain, [`frame::NONE`] if empty.
    heads: Box<[AtomicU32]>,
    chain_latches: Box<[Latch<()>]>,
    latch_group: LatchGroup,
    /// Frames that hold no block.
    free: Latch<Vec<FrameIx>>,
    hand: AtomicUsize,
    io: Box<[(Mutex<()>, Condvar)]>,
    files: Arc<DataFiles>,
    redo: Arc<Redo>,
    writer: dbw::Shared,
    gcs: gcs::Gcs,
}

impl Cache {
    /// A cache of `bytes` of buffers, at least [`MIN_FRAMES`] blocks, rounded down to whole blocks.
    pub fn new(bytes: u64, files: Arc<DataFiles>, redo: Arc<Redo>) -> Result<Arc<Cache>> {
        let count =
            ((bytes / block::BLOCK_SIZE as u64) as usize).clamp(MIN_FRAMES, u32::MAX as usize / 2);
        let buckets = (count * 2).next_power_of_two();
        Ok(Arc::new(Cache {
            memory: BlockMemory::new(count)?,
            frames: (0..count).map(|_| Frame::new()).collect(),
            heads: (0..buckets).map(|_| AtomicU32::new(frame::NONE)).collect(),
            chain_latches: (0..CHAIN_LATCHES)
                .map(|_| Latch::new(&CHAINS, ()))
                .collect(),
            latch_group: LatchGroup::new(&BUFFER),
            // Taken from the end: low frames first, so that memory is touched in order.
            free: Latch::new(&FREE, (0..count as u32).rev().map(FrameIx).collect()),
            hand: AtomicUsize::new(0),
            io: (0..IO_SHARDS).map(|_| Default::default()).collect(),
            files,
            redo,
            writer: dbw::Shared::default(),
            gcs: gcs::Gcs::default(),
        }))
    }

    pub fn files(&self) -> &Arc<DataFiles> {
        &self.files
    }
    pub fn redo(&self) -> &Arc<Redo> {
        &self.redo
    }
    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    fn bucket(&self, dba: Dba) -> usize {
        // Fibonacci hashing: neighbours go to different buckets.
        (dba.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.heads.len() - 1)
    }
    fn chain_latch(&self, bucket: usize) -> &Latch<()> {
        &self.chain_latches[bucket % CHAIN_LATCHES]
    }
    fn frame(&self, ix: FrameIx) -> &Frame {
        &self.frames[ix.0 as usize]
    }
}
