//! Cache Fusion's protocols as pure state machines: a message, a timer or an answer of the local cache goes in, messages
//! and effects come out. No threads, clocks, sockets or files: `interconnect` drives the machines in production, and
//! stateright and a seeded simulation drive the very same code in this crate's tests.
//!
//! The rules, their reasons, the messages and what is modelled are in this crate's README.

pub mod gcs;
pub mod ges;
pub mod ids;
pub mod membership;
mod planted;
pub mod sequences;
#[cfg(test)]
mod testing;
pub mod visibility;

pub use ids::{
    Bucket, Epoch, Generation, Granule, GroupNo, Incarnation, Member, RequestId, Term, Turn, Waiter,
};
