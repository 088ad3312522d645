//! The global cache service of one LMS lane: which instance may use which block how.
//!
//! A [`Shard`] is one instance's part of the service for the blocks of its buckets. [`Holder`]
//! keeps what this instance holds and asks for. [`Master`] keeps the directory of the buckets that
//! this instance masters. Both speak only in messages, also with each other. The README lists the
//! rules R1-R8 and the place where each is kept.

mod holder;
mod master;
mod masters;
mod message;
#[cfg(test)]
mod pauses;
#[cfg(test)]
mod scenarios;
mod shard;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

pub use holder::{Holder, STEP_DOWN_AFTER_COPIES};
pub use master::Master;
pub use masters::{GRANULE_BLOCKS, GRANULE_SHIFT};
pub use message::{
    BLOCKS_PER_MESSAGE, Closed, Declaration, DeclaredHold, Effect, Message, Mode, Source, Want,
};
pub use shard::{Admission, Plan, Shard};

use block::ids::Dba;

/// The hash bucket of a block, out of `buckets`. Neighbouring blocks fall into different buckets.
pub fn bucket_of(block: Dba, buckets: u16) -> u16 {
    let hash = block.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (hash % u64::from(buckets)) as u16
}
