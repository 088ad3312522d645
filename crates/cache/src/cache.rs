//! The buffer cache itself: its parts. The modules above hold what it does, each in a part of `impl
//! Cache`.

use crate::Result;
use crate::advice::Advice;
use crate::dbw::WriterShared;
use crate::frame::{self, Frame, FrameIx};
use crate::gcs::Gcs;
use crate::memory::BlockMemory;
use block::Dba;
use redo::Redo;
use seam::{Condvar, Mutex};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
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

/// The number of latches that guard insertion into and removal from hash chains. Hits do not take
/// them.
const CHAIN_LATCHES: usize = 256;
/// The number of places where readers wait for a block that another session reads.
pub(crate) const IO_SHARDS: usize = 64;
/// The least number of frames. With fewer, a handful of sessions with a few pins each could wait
/// for each other.
pub const MIN_FRAMES: usize = 128;

/// The buffer cache of one instance.
pub struct Cache {
    pub(crate) memory: BlockMemory,
    pub(crate) frames: Box<[Frame]>,
    /// The first frame of each chain, or [`frame::NONE`] if the chain is empty.
    pub(crate) heads: Box<[AtomicU32]>,
    pub(crate) chain_latches: Box<[Latch<()>]>,
    pub(crate) latch_group: LatchGroup,
    /// Frames that hold no block.
    pub(crate) free: Latch<Vec<FrameIx>>,
    pub(crate) hand: AtomicUsize,
    pub(crate) io: Box<[(Mutex<()>, Condvar)]>,
    pub(crate) files: Arc<DataFiles>,
    pub(crate) redo: Arc<Redo>,
    pub(crate) writer: WriterShared,
    pub(crate) gcs: Gcs,
    pub(crate) advice: Advice,
    /// This cache, once it has joined a cluster.
    pub(crate) this: OnceLock<Weak<Cache>>,
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
            // Frames are taken from the end, so low frames come first, and memory is touched in
            // order.
            free: Latch::new(&FREE, (0..count as u32).rev().map(FrameIx).collect()),
            hand: AtomicUsize::new(0),
            io: (0..IO_SHARDS).map(|_| Default::default()).collect(),
            files,
            redo,
            writer: WriterShared::default(),
            gcs: Gcs::default(),
            advice: Advice::new(count),
            this: OnceLock::new(),
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

    pub(crate) fn bucket(&self, dba: Dba) -> usize {
        // Fibonacci hashing: neighbours go to different buckets.
        (dba.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.heads.len() - 1)
    }
    pub(crate) fn chain_latch(&self, bucket: usize) -> &Latch<()> {
        &self.chain_latches[bucket % CHAIN_LATCHES]
    }
    pub(crate) fn frame(&self, ix: FrameIx) -> &Frame {
        &self.frames[ix.0 as usize]
    }
}
