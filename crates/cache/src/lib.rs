//! The buffer cache: 8 KiB blocks in frames, which are found without locks, latched, changed
//! through redo, and written back by `dbw0`.
//!
//! **Owns** the memory of the buffers, which block is in which frame, which frames are dirty, and
//! the thread's checkpoint position. It knows only the header of a block. `block::apply` changes
//! the rest.
//!
//! **Layers**, from the top; a module imports only from layers below its own.
//!
//! | layer | modules |
//! |---|---|
//! | changes, writing back, letting go | `change`, `dbw`, `retire` |
//! | a block for the caller: read, write, pin | `fresh`, `access`, `load` |
//! | the driver of the global cache service | `gcs`, which has layers of its own |
//! | pins and latches as values; which block is in which frame | `guard`, `frames` |
//! | the right to latch a block once | `gcs::kept`, `gcs::admission` |
//! | steps of the service's shards, and their state | `gcs::effects`, `gcs::shards`; `gcs::state` |
//! | what the cache is made of | `cache`; `dbw::shared`, `frame`, `memory`, `held`, `error` |
//!
//! **Invariants.**
//! - A block is in one frame at most. A frame's contents are read under its latch held shared or
//!   exclusively, and changed under it held exclusively. A thread that has latched a frame checks
//!   that it still holds the block it came for.
//! - A frame that is pinned, latched or dirty is not given to another block.
//! - *Mark, then log*: a frame's first-dirty position is set before the record that changes it is
//!   appended, to a position at or below the record's ([`Cache::change`]). A checkpoint reads the
//!   log's end first and the first-dirty positions after, so it cannot miss a record that it
//!   passes.
//! - *Write-ahead*: a block is written only when redo is durable beyond its last change.
//! - A thread that holds a frame latch never waits for disk, log space or another session (R7). The
//!   number of latches held is counted per thread and asserted.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod access;
mod advice;
mod cache;
mod change;
mod dbw;
mod error;
mod frame;
mod frames;
mod fresh;
mod gcs;
mod guard;
mod held;
mod load;
mod memory;
mod retire;

pub use advice::AdviceRow;
pub use cache::{Cache, MIN_FRAMES};
pub use change::{Change, RecordHeader};
pub use dbw::{CheckpointClient, Writer, WriterConfig};
pub use error::{Error, Result};
pub use fusion::gcs::GRANULE_BLOCKS;
pub use gcs::kept::give_back as give_back_kept;
pub use gcs::{
    AHEAD_BLOCKS, Affinity, AskedAhead, ClusterMember, DeadThreads, GranuleRow, PolicyEvent,
    PolicyRow, Reconfiguration, ThreadsClosed,
};
pub use guard::{Pin, ReadGuard, WriteGuard};
pub use held::latches_held;
