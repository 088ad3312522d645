//! Cache Fusion's protocols as pure state machines. A message, a timer or an answer of the local
//! cache goes in; messages and effects come out.
//!
//! The machines know no threads, clocks, sockets or files. `interconnect` drives them in
//! production. Stateright and a seeded simulation drive the very same code in this crate's tests.
//!
//! This crate's README has the rules, their reasons, the messages and what is modelled.

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
