//! What can go wrong in this crate.

use block::{LogPos, Scn};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A log write failed on every member. The instance must stop: nothing can be committed any
    /// more.
    #[error("the redo log could not be written: {0}")]
    WriteFailed(String),
    #[error(transparent)]
    Storage(#[from] storage::Error),
    /// The log is damaged: a later valid batch says that this position was durable once, yet what
    /// stands there cannot be read.
    #[error("redo thread {thread} is damaged at position {}: {what}", pos.0)]
    Damaged {
        thread: u16,
        pos: LogPos,
        what: String,
    },
    /// The log files are not those that the control file describes.
    #[error("redo log files of thread {thread}: {what}")]
    Files { thread: u16, what: String },
    /// A block has neither what a change rests on nor what the change makes.
    #[error("redo thread {thread} at position {}: the change does not fit block {dba}: {what}", pos.0)]
    Replay {
        thread: u16,
        pos: LogPos,
        dba: block::Dba,
        what: String,
    },
    /// A message or file carries an SCN that no healthy clock can have reached.
    #[error("SCN {} is implausible: this clock stands at {}", to.0, now.0)]
    ImplausibleScn { now: Scn, to: Scn },
    /// The clock would pass the ceiling that the control file holds; raise that first.
    #[error("SCN {} lies above the clock's durable ceiling {}", to.0, ceiling.0)]
    AboveCeiling { to: Scn, ceiling: Scn },
}
