//! The wait interface: the one function through which everything waits, latches that count,
//! statistics, and the registry of who is connected.
//!
//! **Owns** the registry of sessions (user connections and background threads alike), the counters
//! of each, the registry of latches, and the ring of active session history. Every other crate
//! reports here; nothing here knows of blocks or SQL.
//!
//! **Invariants.**
//! - A counter of a session is written by the session's own thread only, with plain relaxed stores.
//!   Readers need no latch and may see a value a moment old. So counting shares no cache line
//!   between sessions.
//! - When a session ends, its counters are added to the instance's, under the registry's latch. So
//!   instance totals never fall.
//! - Code that can block does so inside [`during`] or a [`Waiter`], or in the slow path of a latch
//!   of this crate.

// The lint for types is not on here: sessions, sums and the ring are common to the processes of a
// simulation, so their locks are real ones, held during no call of the seam.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod account;
pub mod activity;
mod ash;
mod counters;
mod event;
pub mod histogram;
mod latch;
pub mod longop;
pub mod metric;
pub mod pid;
pub mod priority;
pub mod remote;
pub mod segment;
pub mod session;
pub mod stat;
mod state;
mod step;
pub mod thread;
pub mod time_model;
pub mod timeline;
pub mod trace;
pub mod views;
mod waiter;
mod waits;

pub use account::{Mark, Spent};
pub use ash::{AshRow, AshSampler};
pub use event::{Class, Event};
pub use latch::{Latch, LatchClass, LatchGroup, LatchGuard, RawRwLatch, RwLatch};
pub use session::Cancelled;
pub use session::check_cancel;
pub use stat::Stat;
pub use step::{InPlan, PlanSteps, StepPlace};
pub use views::*;
pub use waiter::{WaitResult, Waiter};
pub use waits::{
    before_next_wait, during, during_as, during_both, during_remote, set_enabled, timestamp_ns,
    wall_clock_of,
};
