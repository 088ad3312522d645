//! PostgreSQL's wire protocol: connections, sessions, simple and extended queries, COPY, cancel.
//!
//! Each session has one thread and one blocking socket. A message is decoded where it arrived, and
//! a row is encoded where it is sent from. A measurement decided this structure (README). `sql`
//! knows what a statement means.
//!
//! **Invariants.**
//! - Nothing here holds a latch, so a slow client holds up no other session.
//! - Bytes from a client never panic, and never take memory before they have arrived.
//! - A session that panics ends the instance.

mod arrival;
mod authenticate;
mod backend;
mod bell;
mod client;
mod connection;
mod door;
mod extended;
mod failures;
mod guesses;
mod listener;
mod listening;
mod message;
mod network;
mod options;
mod pmon;
mod poll;
mod registry;
mod reread;
mod rules;
mod session;
mod sink;
mod startup;
#[cfg(test)]
mod testing;
pub mod tls;

pub use door::{Caller, Door, Proof, Visit};
pub use listener::{Bound, SPARE_CONNECTIONS, Server, ServerConfig, ServerError};
pub use message::MAX_MESSAGE_BYTES;
pub use network::Network;
pub use rules::Rules;
