//! The interconnect: framed, authenticated connections between the instances of a cluster, and the
//! threads that receive from them.
//!
//! **Owns** the sockets between instances, their threads, the newest group commits heard of, and
//! the requests that sessions wait for. `lms0:2` receives lane 0 from instance 2, `lmd0:2` its
//! control lane; `lmon` sends heartbeats, `lmw0` goes on with sends that found a socket full,
//! `lmln` accepts. The [`Service`] behind the interconnect knows what the messages mean; payloads
//! are opaque here.
//!
//! **Invariants**, with their reasons in `README.md`.
//! - Sends never block, whoever sends (R8). A handler never waits; this is asserted for what this
//!   crate offers to wait for.
//! - In one lane messages of one life of a connection arrive in order, each at most once. What was
//!   sent before a connection was lost may be lost; the service is told.
//! - A message is for one life of an instance (number and incarnation), and never reaches another
//!   life.
//! - Before a message is handled, the clock is lifted and the group commits that the message rests
//!   on are known.
//! - A connector that has not proved the cluster secret is told nothing, and nothing is accepted
//!   from it.
//! - Evidence about a peer is counted in what was read from it. Nothing here decides that a peer is
//!   dead.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod auth;
mod bell;
mod board;
mod calls;
pub mod certs;
mod error;
mod faults;
mod flusher;
mod frame;
mod handshake;
#[cfg(test)]
mod hostile_tests;
mod interconnect;
mod link;
mod liveness;
pub mod memory;
pub mod memory_ring;
mod mesh;
mod outbox;
mod post;
mod receive;
mod service;
mod socket;
mod stream;
mod tls;
mod unread;

pub use auth::Secret;
pub use board::CommitBoard;
pub use calls::{CREDITS, Credit, Provenance, Reply, handled_message_received_ns};
pub use error::{Error, Result};
pub use faults::Fault;
pub use frame::{
    Cluster, CommitNote, FrameError, HEADER_BYTES, Header, KIND_RESERVED, Lane, MAX_PAYLOAD_BYTES,
    Member, Role, ServiceTimes,
};
pub use interconnect::{
    Ask, Bound, Config, Interconnect, LinkReport, PeerAddress, ThreadReport, ViewOf,
};
pub use liveness::{Evidence, Seen};
pub use outbox::{Body, Message, QUEUE_MAX_BYTES};
pub use post::{Parcel, Post, Route, kinds};
pub use service::{Arrival, Block, Clock, Landing, LinkChange, ReplyTo, Served, Service};

/// This machine's monotonic clock in nanoseconds: the clock of `sent_ns`, `received_ns` and all
/// other values of this crate that have such names.
pub fn now_ns() -> u64 {
    if let Some(simulated) = seam::simulated_ns() {
        return simulated;
    }
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
