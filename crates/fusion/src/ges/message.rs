//! What instances say to each other about enqueues, and what a lane asks its driver to do.

use super::Mode;
use crate::ids::{Epoch, RequestId, Turn};
use block::ids::{InstanceId, TxnId};

/// What is locked: a table, a dictionary object, an advisory key. The driver maps its names to these.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Resource(pub u128);

impl Resource {
    /// Of resources with this bit every member has [`Mode::SubExclusive`] without ever having asked: they are locked weakly all the time and strongly hardly ever.
    pub const IMPLIED: u128 = 1 << 127;

    /// What every member has of this resource as long as nobody has taken it away.
    pub fn implied(self) -> Mode {
        match self.0 & Self::IMPLIED {
            0 => Mode::Null,
            _ => Mode::SubExclusive,
        }
    }
}

/// Who uses a lock on its instance: the instance, and a number of the driver's.
pub type Owner = TxnId;

/// The value block of a resource, for instance the SCN of the dictionary's last change. The version rises with every change.
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
    /// Instance to master, which may believe that it has more than it `has`. Who waits there uses the lock in the mode `own`, and goes before those that this excludes. Who is not `patient` is told `Denied`
    /// rather than wait for somebody's use of the lock to end.
    Request {
        resource: Resource,
        id: RequestId,
        mode: Mode,
        has: Mode,
        own: Mode,
        patient: bool,
    },
    /// Master to instance. Without a value nobody knows it: read it from the dictionary, then say so.
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
    /// Master to instance, on its timer: is this request still waited for? The answer is `Cancel`, or nothing.
    Waits {
        resource: Resource,
        id: RequestId,
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
        patient: bool,
    },
    Recalled {
        resource: Resource,
        turn: Turn,
        mode: Mode,
        value: Option<Value>,
    },
    /// Holder to master, on its timer: does this recall still stand? The answer is `Void`, or nothing.
    Recalling {
        resource: Resource,
        turn: Turn,
    },
    /// Master to holder: nobody wants this recall any more. The answer is `Recalled`, with what the holder has.
    Void {
        resource: Resource,
        turn: Turn,
    },
    /// To a recall that is not patient: it is used.
    Refused {
        resource: Resource,
        turn: Turn,
    },
    /// The sender has given up by itself what it had by this request.
    Released {
        resource: Resource,
        id: RequestId,
    },
    /// The value as read from the dictionary, for a master that lost it.
    ValueRead {
        resource: Resource,
        value: Value,
    },
    /// The declaration behind this resource was lost, or has not been sent yet.
    DeclareWanted {
        after: Option<Resource>,
    },
    /// Locks that the sender keeps of the receiver's resources, in their order: [`super::PART`] of those behind `after`; there are `more`, to be asked for. Who is `fresh` has come in this epoch and uses nothing until it is
    /// welcome.
    Declare {
        epoch: Epoch,
        after: Option<Resource>,
        kept: Vec<Kept>,
        more: bool,
        fresh: bool,
    },
    /// Of these implied resources the receiver has nothing: others have them more strongly. In parts, as declarations.
    Welcome {
        after: Option<Resource>,
        without: Vec<Resource>,
        more: bool,
    },
    /// The rest of the welcome.
    WelcomeWanted {
        after: Resource,
    },
}

impl Message {
    /// The lock that it is about, if it is about one.
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
    /// The owner has the lock. The value is what the last exclusive holder left, or unknown.
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
    /// The implied mode, or the value, may be used no more without [`super::Enqueues::acquire`]. Answer with [`super::Enqueues::closed`], at once.
    Close {
        resource: Resource,
    },
    /// The implied mode may be used again without being asked for.
    Opened {
        resource: Resource,
    },
}
