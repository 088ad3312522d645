//! Redo: the SCN clock, the log buffer, group commit, and reading redo threads back. See
//! `README.md` for the format and the rules.
//!
//! **Invariants**
//! - SCNs are drawn under the log latch: within a thread they rise with the position.
//! - A batch is issued only when the batch [`block::LAST_GROUPS`] before it is durable. So a crash
//!   can tear at most so many batches.
//! - Batches become durable in order, and their groups take effect in that order.
//! - [`GroupSink::group_durable`] is called exactly once per batch, in order, after the batch is
//!   durable and before any thread that waits for it goes on.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod apply;
mod batch;
mod buffer;
mod clock;
mod dead;
mod error;
mod files;
mod flush;
mod gather;
mod interface;
mod lgwr;
mod log;
mod merge;
mod reader;
mod space;
mod tail;
mod write;

pub use apply::apply_vector;
pub use batch::{
    BATCH_HEADER, BatchHeader, BatchNo, GroupEvidence, LOG_BLOCK, MAX_BATCH, MAX_EVIDENCE,
    ThreadIdentity,
};
pub use clock::{CeilingHook, Clock};
pub use dead::DeadRedo;
pub use error::{Error, Result};
pub use files::{Geometry, LogFiles};
pub use flush::{CommitWaiter, Known};
pub use interface::{
    Appended, GroupList, GroupSink, LogEvents, RedoConfig, RestartPoint, WantSink,
};
pub use lgwr::LogWriter;
pub use log::Redo;
pub use merge::{Merge, Merged};
pub use reader::{Batch, DAMAGE_WINDOW, RedoReader, Repair, ThreadEnd};
