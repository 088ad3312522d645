//! Numbers of the cluster's protocols, each a type of its own. Block addresses, SCNs and instances come from `block`.

use block::ids::InstanceId;
use std::fmt;

/// Number of a log group (batch) of a redo thread, from 1. Rises for ever within a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupNo(pub u64);

/// Membership epoch: rises with every change of members or masters. Messages carry it (R6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// One life of an instance. A process that died and came back has the same [`InstanceId`] and a higher incarnation;
/// only both together identify it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation(pub u64);

/// Blocks whose part of the global resource directory is rebuilt together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bucket {
    /// Those of a hash value: the unit in which blocks have a master unless somebody took a granule.
    Hash(u16),
    /// Those of a granule, for its master under this term.
    Granule(Granule, Term),
}

/// A range of neighbouring blocks, about an extent of a segment: the unit in which an instance takes over mastership within
/// an epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Granule(pub u64);

/// Who masters a granule, and how often that was decided. Terms of a granule rise within an epoch, and of two instances that
/// take one at the same time the term of one is higher: so there is one master for each term, which its own number names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    pub number: u32,
    pub master: InstanceId,
}

impl Term {
    /// Nobody took it: its blocks have the masters of their hash buckets.
    pub const BY_HASH: Term = Term {
        number: 0,
        master: InstanceId(0),
    };

    pub fn is_by_hash(self) -> bool {
        self == Term::BY_HASH
    }
}

impl Default for Term {
    fn default() -> Term {
        Term::BY_HASH
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}.{}", self.number, self.master.0)
    }
}

/// A request of one instance, numbered per lane; never used twice within an incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestId(pub u64);

/// A service of one request by a block's master. Turns of one block rise: a new master numbers under a higher epoch or term.
/// The order of turns is the order in which ownership moved, which is how a late order is told from a valid one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Turn {
    pub epoch: Epoch,
    /// Of the block's granule; enqueues have none.
    pub term: Term,
    pub number: u64,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{:?}.{}", self.epoch.0, self.term, self.number)
    }
}

/// Ownership generation of a cached block: changes with every change of the mode its holder may use it in, and never
/// comes back. A frame carries it beside the mode; whoever latched the frame compares both.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u64);

/// A local session (or parallel worker) that waits for a block or a lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Waiter(pub u64);

/// An instance in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member {
    pub instance: InstanceId,
    pub incarnation: Incarnation,
}
