//! What the tests of several crates share: see the README for what belongs here and what does not.

pub mod child;
pub mod history;
pub mod ports;
#[cfg(feature = "processes")]
pub mod processes;
pub mod scratch;
pub mod seeds;
pub mod waiting;
pub mod wire;
