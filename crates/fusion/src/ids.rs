//! Numbers of the cluster's protocols, each a type of its own. Block addresses, SCNs and instances
//! come from `block`.

use block::ids::InstanceId;
use std::fmt;

/// The number of a log group (batch) of a redo thread, from 1. It rises for ever within a thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupNo(pub u64);

/// A membership epoch. It rises with every change of members or masters. Messages carry it (R6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// One life of an instance. A process that died and came back has its old [`InstanceId`] and a
/// higher incarnation; only both together identify it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Incarnation(pub u64);

/// Blocks whose part of the global resource directory is rebuilt together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bucket {
    /// The blocks of one hash value. A block's hash bucket decides its master unless an instance
    /// took the block's granule.
    Hash(u16),
    /// The blocks of a granule, for the granule's master under this term.
    Granule(Granule, Term),
}

/// A range of neighbouring blocks, about one extent of a segment. It is the unit in which an
/// instance takes over mastership within an epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Granule(pub u64);

/// The master of a granule, with a number that counts the decisions.
///
/// The terms of a granule rise within an epoch. If two instances take a granule at the same time,
/// one of the two terms is higher. So each term has one master, which the term names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term {
    pub number: u32,
    pub master: InstanceId,
}

impl Term {
    /// The term of a granule that no instance took: its blocks have the masters of their hash
    /// buckets.
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

/// A request of one instance, numbered per shard; never used twice within an incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RequestId(pub u64);

/// One service of a request by a block's master. The turns of one block rise: a new master numbers
/// its turns under a higher epoch or term.
///
/// The order of turns is the order in which ownership moved. That order tells a late order from a
/// valid one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Turn {
    pub epoch: Epoch,
    /// The term of the block's granule. Enqueues have no term.
    pub term: Term,
    pub number: u64,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{:?}.{}", self.epoch.0, self.term, self.number)
    }
}

/// The ownership generation of a cached block. It changes with every change of the mode in which
/// its holder may use the block, and a value never comes back.
///
/// A frame carries the generation beside the mode. A session that has latched the frame compares
/// both.
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
