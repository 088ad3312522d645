//! What instances say to each other about enqueues, and what a lane asks its driver to do.

use super::{Mode, Modes};
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
    pub value: Option<Value>,
}

/// What an instance says of the mode that it has. The numbers of an instance's statements rise, so
/// a statement that comes late is known by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Statement {
    pub number: u64,
    pub has: Mode,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// Instance to master: an owner waits. With what it uses it is to have `mode`; it uses `own`
    /// already, and goes before the requests that this use excludes. If the request is not
    /// `patient`, the master denies it rather than let it wait for the end of another owner's use.
    /// The sender's requests for the resource below `floor` are over.
    Request {
        resource: Resource,
        id: RequestId,
        floor: RequestId,
        mode: Mode,
        own: Mode,
        patient: bool,
        now: Statement,
    },
    /// Master to instance: the instance has this mode, and `wanted` is as in a recall. Without a
    /// value nobody but perhaps the instance knows the value: the instance reads it from the
    /// dictionary, then says so.
    Grant {
        resource: Resource,
        id: RequestId,
        turn: Turn,
        mode: Mode,
        value: Option<Value>,
        wanted: Modes,
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
    /// Instance to master: the grant of this turn has come.
    Done {
        resource: Resource,
        id: RequestId,
        turn: Turn,
        now: Statement,
    },
    /// Master to holder: owners elsewhere wait for these modes. The holder grants nothing beside
    /// them that was not asked for before, and gives up what excludes them as its owners end. Each
    /// recall takes the place of the one before; an empty one ends it. Unless it is `patient`, the
    /// holder answers at once.
    Recall {
        resource: Resource,
        turn: Turn,
        wanted: Modes,
        patient: bool,
    },
    /// Holder to master: what the holder has left, because of the recall of this turn.
    Recalled {
        resource: Resource,
        turn: Turn,
        now: Statement,
        value: Option<Value>,
    },
    /// Holder to master, on the holder's timer: does this recall still stand? The answer is the
    /// recall that stands instead, or nothing.
    Recalling {
        resource: Resource,
        turn: Turn,
    },
    /// Instance to master: the request `by` of another owner may go before the sender's, because
    /// each would wait for the other.
    Pass {
        resource: Resource,
        id: RequestId,
        by: (InstanceId, RequestId),
    },
    /// Holder to master: the sender has given up by itself all that it had.
    Released {
        resource: Resource,
        now: Statement,
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
            | Message::Pass { resource, .. }
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
