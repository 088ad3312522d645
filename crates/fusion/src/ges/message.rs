//! What instances say to each other about enqueues, and what a lane asks its driver to do.

use super::Mode;
use super::deadlock::Probe;
use crate::ids::{Epoch, RequestId, Turn};
use block::ids::{InstanceId, TxnId};

/// What is locked: a table, a dictionary object, an advisory key. The driver maps its names to these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Resource(pub u64);

/// Who uses a lock on its instance. A statement without a transaction has a number of its own there.
pub type Owner = TxnId;

/// The value block of a resource, for instance the SCN of a table's last DDL. The version rises with every change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value {
    pub version: u64,
    pub data: u64,
}

/// A lock that an instance keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Kept {
    pub resource: Resource,
    pub mode: Mode,
    pub turn: Turn,
    pub id: RequestId,
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// Instance to master.
    Request {
        resource: Resource,
        id: RequestId,
        mode: Mode,
    },
    /// Master to instance. Without a value nobody knows it: read it from the dictionary, then say so.
    Grant {
        resource: Resource,
        id: RequestId,
        turn: Turn,
        mode: Mode,
        value: Option<Value>,
    },
    /// The service is over; `holds`: this grant is the one in force.
    Done {
        resource: Resource,
        id: RequestId,
        turn: Turn,
        holds: bool,
    },
    /// Master to holder: give up what is beyond `keep`.
    Recall {
        resource: Resource,
        turn: Turn,
        keep: Mode,
    },
    Recalled {
        resource: Resource,
        turn: Turn,
        mode: Mode,
        value: Option<Value>,
    },
    /// The value as read from the dictionary, for a master that lost it.
    ValueRead {
        resource: Resource,
        value: Value,
    },
    /// A step of a deadlock walk.
    Walk(Probe),
    /// A cycle was walked twice: whoever waits under this number is its victim.
    Victim {
        owner: Owner,
        wait: u64,
    },
    /// Somebody at the sender waits for the end of this transaction of the receiver.
    TxnWait {
        txn: TxnId,
    },
    TxnEnded {
        txn: TxnId,
    },
    /// The declaration was lost: once more.
    DeclareWanted,
    /// All locks that the sender keeps of the receiver's resources.
    Declare {
        epoch: Epoch,
        kept: Vec<Kept>,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    Send {
        to: InstanceId,
        message: Message,
    },
    /// The owner has the lock. The value is what the last exclusive holder left, or unknown.
    Granted {
        resource: Resource,
        owner: Owner,
        value: Option<Value>,
    },
    /// Call `txn_ended` when this transaction ends; at once if it has.
    TxnWaitedFor {
        txn: TxnId,
    },
    /// The transaction that the owner waited for is over.
    TxnOver {
        waiter: Owner,
        txn: TxnId,
    },
    /// This owner's wait closes a cycle (40P01). It lets go of its wait first.
    Deadlock {
        owner: Owner,
    },
}
