//! The state of each frame.

use block::Dba;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use wait::RawRwLatch;

/// Number of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameIx(pub u32);

/// End of a hash chain.
pub(crate) const NONE: u32 = u32::MAX;
/// First-dirty position of a frame that is clean.
pub(crate) const CLEAN: u64 = u64::MAX;
/// The highest use count. A frame found more often than this since the hand passed is not kept
/// longer for it.
const MAX_USAGE: u8 = 5;

/// The frame holds no block.
pub(crate) const EMPTY: u8 = 0;
/// A session reads the block from disk into the frame. Only that session touches the contents.
pub(crate) const LOADING: u8 = 1;
/// The frame holds what was the block `dba`, which this instance may not use now: another wants it
/// or has it.
pub(crate) const CLOSED: u8 = 2;
/// The frame holds the block `dba`, to be read.
pub(crate) const SHARED: u8 = 3;
/// The frame holds the block `dba`, to be read and changed. On a lone instance every block is so.
pub(crate) const EXCLUSIVE: u8 = 4;

/// One frame, on a cache line of its own.
#[repr(align(64))]
pub(crate) struct Frame {
    /// Guards the block's contents, `last_change`, and `first_dirty` and `since_copy` against
    /// `dbw0`.
    pub latch: RawRwLatch,
    /// The block's address. It changes only while no other thread can hold the latch or a pin: when
    /// a victim is taken, under its latch and its chain's.
    dba: AtomicU64,
    /// The next frame in the hash chain. Written under the chain's latch.
    pub next: AtomicU32,
    /// The number of sessions that keep the block in the frame. Counted up under the latch or by
    /// the loader.
    pub pins: AtomicU32,
    pub state: AtomicU8,
    usage: AtomicU8,
    /// Whether `dbw0` has copied the block and not finished writing the copy. Set under the shared
    /// latch.
    pub writing: AtomicBool,
    /// Whether the block's rows may show when groups took effect of which no durable header tells
    /// yet. If so, such a header must be durable before the block is written.
    pub stamped: AtomicBool,
    /// One more than the number of changes, as far as that fits, while changes are counted
    /// (`gcs::defer`). A hint.
    changes: AtomicU8,
    /// A position at or below that of the oldest change that is not on disk, or [`CLEAN`].
    pub first_dirty: AtomicU64,
    /// Redo must be durable up to here before the block is written.
    pub last_change: AtomicU64,
    /// A position at or below that of the oldest change since `dbw0` last copied the block, or
    /// [`CLEAN`]. The block is dirty from there on once that copy is on disk. The log's end at the
    /// time of the copy would not do: recovery replays records from before it.
    pub since_copy: AtomicU64,
}

const _: () = assert!(size_of::<Frame>() == 64);

impl Frame {
    pub fn new() -> Frame {
        Frame {
            latch: RawRwLatch::new(),
            dba: AtomicU64::new(0),
            next: AtomicU32::new(NONE),
            pins: AtomicU32::new(0),
            state: AtomicU8::new(EMPTY),
            usage: AtomicU8::new(0),
            writing: AtomicBool::new(false),
            stamped: AtomicBool::new(false),
            changes: AtomicU8::new(0),
            first_dirty: AtomicU64::new(CLEAN),
            last_change: AtomicU64::new(0),
            since_copy: AtomicU64::new(CLEAN),
        }
    }

    pub fn dba(&self) -> Dba {
        Dba(self.dba.load(Acquire))
    }
    pub fn set_dba(&self, dba: Dba) {
        self.dba.store(dba.0, Release);
        self.count_no_changes();
    }
    pub fn is_dirty(&self) -> bool {
        self.first_dirty.load(Acquire) != CLEAN
    }

    /// Notes a change whose redo ends at `position`. The caller holds the latch exclusively.
    #[inline]
    pub fn changed(&self, position: u64) {
        self.last_change.fetch_max(position, Relaxed);
        let counted = self.changes.load(Relaxed);
        if counted > 0 {
            self.changes.store(counted.saturating_add(1), Relaxed);
        }
    }
    /// Returns the number of changes since the last call, and counts from now on. Takes no latch: a
    /// change that is just being made may be counted or not.
    pub fn count_changes(&self) -> u32 {
        self.changes.swap(1, Relaxed).saturating_sub(1).into()
    }
    pub fn count_no_changes(&self) {
        self.changes.store(0, Relaxed);
    }

    /// Notes that the block was used. Writes only if that changes something, so that a hot block's
    /// line stays shared among readers.
    #[inline]
    pub fn touch(&self) {
        let usage = self.usage.load(Relaxed);
        if usage < MAX_USAGE {
            self.usage.store(usage + 1, Relaxed);
        }
    }
    /// Makes this frame the first that the hand takes.
    pub fn forget_usage(&self) {
        self.usage.store(0, Relaxed);
    }
    /// Ages the frame as the hand passes. Returns true if the frame was not used often enough since
    /// the hand last passed to stay.
    pub fn age(&self) -> bool {
        let usage = self.usage.load(Relaxed);
        if usage > 0 {
            self.usage.store(usage - 1, Relaxed);
        }
        usage == 0
    }
}
