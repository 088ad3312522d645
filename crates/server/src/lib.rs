//! PostgreSQL's wire protocol: connections, sessions, simple and extended queries, COPY, cancel.
//!
//! One thread and one blocking socket per session; a message is decoded where it arrived and a row
//! is encoded where it is sent from. The structure is what a measurement asked for (see
//! `connection`). What a statement means is `sql`'s business.
//!
//! **Invariants.** Nothing here holds a latch, so a slow client holds up nobody. Bytes from a
//! client never panic and never take memory before they have arrived. A session that panics ends
//! the instance.

mod backend;
mod connection;
mod extended;
mod listener;
mod message;
mod network;
mod options;
mod poll;
mod registry;
mod session;
mod sink;
mod startup;
#[cfg(test)]
mod testing;

pub use listener::{Bound, SPARE_CONNECTIONS, Server, ServerConfig, ServerError};
pub use message::MAX_MESSAGE_BYTES;
pub use network::Network;
