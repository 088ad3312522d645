//! What instances say to each other about enqueues, and what a lane asks its driver to do.

use super::Mode;
use crate::ids::{Epoch, RequestId, Turn};
use block::ids::{InstanceId, TxnId};

/// What is locked: a table, a dictionary object, an advisory key. The driver maps its names to
/// these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Resource(pub u128);

impl Resource {
    /// The bit of implied resources. Of such a resource every member has [`Mode::SubExclusive`]
    /// without ever having asked: it is locked weakly all the time and strongly hardly ever.
    pub const IMPLIED: u128 = 1 << 127;

    /// What every member has of this resource as long as nobody has taken it away.
    pub fn implied(self) -> Mode {
        match self.0 & Self::IMPLIED {
            0 => Mode::Null,
            _ => Mode::SubExclusive,
        }
    }
}

/// The user of a lock: an instance, and a number that the driver gives.
pub type Owner = TxnId;

/// The value block of a resource, for instance the SCN of the dictionary's last change. The version
/// rises with every change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value {
    pub version: u64,
    pub data: u64,
}

/// A lock that an instance keeps in another mode than the implied one.
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
    /// Instance to master, which may believe that the instance has more than it `has`. The owner
    /// that waits there uses the lock in the mode `own`, and goes before the requests that this use
    /// excludes. If the request is not `patient`, the master denies it rather than let it wait for
    /// the end of another owner's use.
    Request {
        resource: Resource,
        id: RequestId,
        mode: Mode,
        has: Mode,
        own: Mode,
        patient: bool,
    },
    /// Master to instance. Without a value nobody knows the value: the instance reads it from the
    /// dictionary, then says so.
    Grant {
        resource: Resource,
        id: RequestId,
        turn: Turn,
        mode: Mode,
        value: Option<Value>,
    },
    Denied {
        resource: Resource,
        id: RequestId,
    },
    /// Instance to master: nobody waits for this request any more.
    Cancel {
        resource: Resource,
        id: RequestId,
    },
    /// Master to instance, on the master's timer: is this request still waited for? The answer is
    /// `Cancel`, `Done` if it was granted, or nothing.
    Waits {
        resource: Resource,
        id: RequestId,
    },
    /// Instance to master: the service is over. `holds`: this grant is the one in force.
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
        patient: bool,
    },
    Recalled {
        resource: Resource,
        turn: Turn,
        mode: Mode,
        value: Option<Value>,
    },
    /// Holder to master, on the holder's timer: does this recall still stand? The answer is `Void`,
    /// or nothing.
    Recalling {
        resource: Resource,
        turn: Turn,
    },
    /// Master to holder: no requester wants this recall any more. The answer is `Recalled`, with
    /// what the holder has.
    Void {
        resource: Resource,
        turn: Turn,
    },
    /// Holder to master, to an impatient recall: an owner uses the lock.
    Refused {
        resource: Resource,
        turn: Turn,
    },
    /// Holder to master: the sender has given up by itself what this request granted it.
    Released {
        resource: Resource,
        id: RequestId,
    },
    /// Instance to master: the value as read from the dictionary, for a master that lost it.
    ValueRead {
        resource: Resource,
        value: Value,
    },
    /// Master to member: send the declaration behind this resource. It was lost, or has not been
    /// sent yet.
    DeclareWanted {
        after: Option<Resource>,
    },
    /// Member to master: the locks that the sender keeps of the receiver's resources, in their
    /// order. A message has [`super::PART`] of those behind `after`; if there are `more`, the
    /// master asks for them. A `fresh` sender has joined in this epoch and uses nothing until it is
    /// welcome.
    Declare {
        epoch: Epoch,
        after: Option<Resource>,
        kept: Vec<Kept>,
        more: bool,
        fresh: bool,
    },
    /// Master to joiner: the receiver has nothing of these implied resources, because others have
    /// them more strongly. The list comes in parts, as declarations do.
    Welcome {
        after: Option<Resource>,
        without: Vec<Resource>,
        more: bool,
    },
    /// Joiner to master: send the rest of the welcome.
    WelcomeWanted {
        after: Resource,
    },
}

impl Message {
    /// The resource that the message is about, if it is about one.
    pub fn resource(&self) -> Option<Resource> {
        match self {
            Message::Request { resource, .. }
            | Message::Grant { resource, .. }
            | Message::Denied { resource, .. }
            | Message::Cancel { resource, .. }
            | Message::Waits { resource, .. }
            | Message::Done { resource, .. }
            | Message::Recall { resource, .. }
            | Message::Recalled { resource, .. }
            | Message::Recalling { resource, .. }
            | Message::Void { resource, .. }
            | Message::Refused { resource, .. }
            | Message::Released { resource, .. }
            | Message::ValueRead { resource, .. } => Some(*resource),
            Message::DeclareWanted { .. }
            | Message::Declare { .. }
            | Message::Welcome { .. }
            | Message::WelcomeWanted { .. } => None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    Send {
        to: InstanceId,
        message: Message,
    },
    /// The owner has the lock. The value is what the last exclusive holder left; None if it is
    /// unknown.
    Granted {
        resource: Resource,
        owner: Owner,
        value: Option<Value>,
    },
    /// The owner, which was not patient, does not get the lock.
    Denied {
        resource: Resource,
        owner: Owner,
    },
    /// Use the implied mode, or the value, no more without [`super::Enqueues::acquire`]. Answer
    /// with [`super::Enqueues::closed`], at once.
    Close {
        resource: Resource,
    },
    /// The implied mode may be used again without being asked for.
    Opened {
        resource: Resource,
    },
}
