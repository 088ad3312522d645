//! How the protocols of the layers above (`cache`, `txn`, `engine`) send: one-way messages by kind, without knowing of connections.

use crate::memory::SharedMemory;
use block::{BlockBuf, InstanceId};
use std::sync::Arc;

/// Kinds are divided among the layers: whoever receives hands a message to the layer of its kind.
pub mod kinds {
    use std::ops::RangeInclusive;
    /// The buffer cache: blocks.
    pub const CACHE: RangeInclusive<u16> = 1..=99;
    /// Transactions: commits, status, horizon, waits.
    pub const TXN: RangeInclusive<u16> = 100..=199;
    /// The instance: membership, dictionary, locks of tables, sequences.
    pub const ENGINE: RangeInclusive<u16> = 200..=299;
}

/// On which lane a message goes. Messages to one peer on one lane stay in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Beside the blocks, never behind them.
    Control,
    /// The LMS lane of this hash: everything about one block.
    Hash(u64),
}

/// One message.
#[derive(Clone, Copy)]
pub struct Parcel<'a> {
    pub route: Route,
    pub kind: u16,
    /// Of the protocol that sends it (R6).
    pub epoch: u64,
    pub body: &'a [u8],
    pub block: Option<&'a BlockBuf>,
}

/// Sends messages to other instances. Implemented over an [`crate::Interconnect`] by the instance, and in memory by tests.
pub trait Post: Send + Sync {
    fn me(&self) -> InstanceId;

    /// Sends, or queues; never waits (R8), so it may be called under latches. What cannot be sent, or is lost with its connection, is lost: the protocol drives
    /// its requests again when it is told of the reconnection, and on its timer. In front of the message goes the evidence about group commits that its content may rest on, taken now.
    fn send(&self, to: InstanceId, parcel: Parcel<'_>);

    /// Memory that other instances may share with this one; `None` if there is none, or it is not wanted.
    fn memory(&self) -> Option<Arc<dyn SharedMemory>> {
        None
    }
}
