//! How the protocols of the layers above (`cache`, `txn`, `engine`) send: one-way messages by kind.
//! The protocols know nothing of connections.

use crate::memory::SharedMemory;
use block::{BlockBuf, InstanceId};
use std::sync::Arc;

/// The kinds of messages, divided among the layers. A receiver hands a message to the layer of its
/// kind.
pub mod kinds {
    use std::ops::RangeInclusive;
    /// The buffer cache: blocks.
    pub const CACHE: RangeInclusive<u16> = 1..=99;
    /// Transactions: commits, status, horizon, waits.
    pub const TXN: RangeInclusive<u16> = 100..=199;
    /// The instance: membership, dictionary, table locks, sequences.
    pub const ENGINE: RangeInclusive<u16> = 200..=299;
}

/// The lane on which a message goes. Messages to one peer on one lane stay in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The control lane, beside the lanes of blocks: never behind a block.
    Control,
    /// The LMS lane of this hash: everything about one block.
    Hash(u64),
}

/// One message to another instance.
#[derive(Clone, Copy)]
pub struct Parcel<'a> {
    pub route: Route,
    pub kind: u16,
    /// The epoch of the protocol that sends the message (R6).
    pub epoch: u64,
    pub body: &'a [u8],
    pub block: Option<&'a BlockBuf>,
}

/// Sends messages to other instances. The instance implements it over an [`crate::Interconnect`],
/// and tests in memory.
pub trait Post: Send + Sync {
    fn me(&self) -> InstanceId;

    /// Sends a message, or queues it. It never waits (R8), so it may be called under latches.
    ///
    /// A message that cannot be sent, or is lost with its connection, is lost. The protocol drives
    /// its requests again when it is told of the reconnection, and on its timer. In front of the
    /// message goes the evidence about group commits that its content may rest on, taken at the
    /// moment of sending.
    fn send(&self, to: InstanceId, parcel: Parcel<'_>);

    /// Memory that other instances may share with this one. None if there is none, or it is not
    /// wanted.
    fn memory(&self) -> Option<Arc<dyn SharedMemory>> {
        None
    }
}
