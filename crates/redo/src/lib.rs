//! Redo: the SCN clock, the log buffer, group commit, and reading redo threads back. See `README.md` for the format
//! and the rules.
//!
//! **Invariants**
//! - SCNs are drawn under the log latch: within a thread they rise with the position.
//! - A batch is issued only when the one before it is durable, so at most one batch can be torn by a crash.
//! - [`GroupSink::group_durable`] is called exactly once per batch, in order, after the batch is durable and before anybody who
//!   waits for it goes on.

mod clock;
mod error;
mod log;

pub use clock::{CeilingHook, Clock};
pub use error::{Error, Result};
pub use log::{Appended, BatchNo, GroupList, GroupSink, Redo, RestartPoint};
