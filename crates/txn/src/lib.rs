//! Transactions: identity and status, undo, snapshots and the horizon, locks. See `README.md` for
//! the rules and their reasons.
//!
//! **Owns** the undo and status files of its instance, the lock table, and the registry of
//! snapshots.
//!
//! **Invariants.**
//! - A verdict is final: "committed at e" is said only after the commit record is durable, and a
//!   transaction said to be active to a snapshot x commits above x ([`visibility`]). So no reader
//!   waits for the log.
//! - No version that a registered snapshot may need is below the horizon ([`horizon`]), whenever
//!   the session is descheduled.
//! - Undo of active transactions is never overwritten; undo of snapshots is, oldest first, at the
//!   cap only ([`undo_space`]).
//! - Nobody waits for a lock with a frame latch held; every wait ends by grant, deadline,
//!   cancellation or as a deadlock's victim.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod active;
mod cluster;
mod error;
mod global_enqueues;
mod horizon;
mod local_enqueues;
mod locking;
mod manager;
mod members;
mod numbers;
mod place;
mod purge;
mod recovery;
mod ring;
mod sharers;
mod status;
mod status_file;
mod timing;
mod transaction;
mod undo_space;
mod visibility;

pub use block::undo::UNDO_MAX_PAYLOAD;
pub use error::{Error, HandlerError, Result};
pub use local_enqueues::{Level, LockMode, LockRow, LockWait, NameClass, Resource, TableUser};
pub use manager::{TransactionRow, TxnConfig, TxnManager, TxnStatistics, UndoRecord};
pub use members::Departed;
pub use place::Place;
pub use purge::PurgeHint;
pub use recovery::TxnRecovery;
pub use ring::Ring;
pub use sharers::{MOST_HELD, RowLock};
pub use transaction::{
    HeldSnapshot, Isolation, Savepoint, Transaction, Undo, UndoHandler, UndoSlot,
};
pub use undo_space::UndoUsage;
pub use visibility::{Snapshot, TxnState, Verdict};
