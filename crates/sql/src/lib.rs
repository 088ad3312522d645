//! The language: dictionary, binding, direct plans, DML and DDL, COPY, and sessions as the server drives them.
//!
//! **Lanes.** A statement that touches rows of one table, by key or by scan, is compiled once into
//! a *direct plan* over the engine and cached by text across sessions, and so is every write.
//! Whatever else a query may be is analysed as a tree and run by pull operators (`query`).
//! Expression semantics are one implementation (`expr`).
//!
//! **Invariants.**
//! - A [`RowSink`] is called with no latch and no pin held.
//! - A plan is used only after its tables are locked and their definitions found to be those it was made from.
//! - Definitions changed by a transaction are seen by that session alone until its commit is published.

pub mod api;
mod authority;
mod autoanalyze;
mod bind;
mod changes;
pub mod collate;
mod copy;
mod database;
mod ddl;
pub mod dict;
mod error;
mod error_numbers;
mod exec;
mod explain;
mod expr;
mod extensions;
mod large;
mod notify;
mod orders;
pub mod params;
mod parse;
pub mod pgtype;
mod pl;
mod place;
mod plan;
mod plan_cache;
pub mod prepared;
mod presence;
mod query;
mod service;
mod session;
pub mod snapshots;
mod statements;
mod trace;
pub mod types;
mod usage;
mod views;

/// The stack that a session's thread needs. It is only address space until it is used; deep
/// expressions, and functions that call functions, need it.
pub const STACK_BYTES: usize = 16 << 20;

pub use api::{ColumnDesc, Completion, Notice, Params, RowSink, SideMessages, Tag, TxStatus};
pub use autoanalyze::Autoanalyze;
pub use copy::CopyIn;
pub use database::{Database, tables_of};
pub use engine::ReplyGate;
pub use error::{Error, Fields, Result};
pub use notify::{Bell, Notification};
pub use orders::Clients;
pub use parse::backslashes::Reread;
pub use session::of_portals::OfPortal;
pub use session::{ConnectionSettings, Portal, SqlSession, Statement};
pub use snapshots::Snapshots;
pub use types::SqlType;
