//! The master's role: who holds which block of this instance's buckets, and whose turn it is.
//!
//! **Invariants**
//! 1. Requests for one block are served one at a time, in order of arrival; a service ends when its
//!    requester says so.
//! 2. Exclusive and shared holders never stand in one entry together (R1).
//! 3. A grant to read from disk is given only if nobody holds the block (R4). The disk's version is
//!    then the newest: a dirty copy is never let go before it is written, and within a service the
//!    supplier has it and can send it again.
//! 4. A request is remembered until its requester says that it is done (13): `Served`.
//! 5. Readers do not queue: the holder that has the current copy now is told to send a copy.

mod recovery;
mod requests;

use super::masters::Masters;
use super::message::{Declaration, DeclaredHold, Effect, Message, Mode, Source, Want};
use crate::ids::{Bucket, Epoch, RequestId, Turn};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, InstanceId, Scn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Holding {
    mode: Mode,
    turn: Turn,
    id: RequestId,
    /// Whether this holder owes the write: it is the exclusive holder, or was the last exclusive
    /// one.
    duty: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Request {
    from: InstanceId,
    id: RequestId,
    mode: Mode,
    have: Option<Turn>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Reader {
    to: InstanceId,
    id: RequestId,
    snapshot: Scn,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// Shared copies are being taken back. `keeper` still has one, either for the requester or
    /// because it is the requester.
    Invalidating {
        missing: BTreeSet<InstanceId>,
        keeper: InstanceId,
    },
    Shipping {
        supplier: InstanceId,
    },
    Granting {
        source: Source,
    },
    /// A survivor brings the newest version back.
    Recovering,
    /// A shared holder takes over a dead owner's duty to write.
    Inheriting,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Service {
    request: Request,
    turn: Turn,
    phase: Phase,
    /// Whether an invalidated copy was dirty.
    dirty: bool,
    /// Whether the supplier has sent the block. If so, nobody can copy the block until it arrives.
    left: bool,
}

/// The directory entry of a block that an instance holds, left a past image of, or waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Entry {
    pub(super) holders: BTreeMap<InstanceId, Holding>,
    images: BTreeMap<InstanceId, Scn>,
    queue: VecDeque<Request>,
    service: Option<Service>,
    reads: BTreeSet<Reader>,
    write_wanted: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Rebuilding {
    pub(super) missing: BTreeSet<InstanceId>,
    pub(super) declared: BTreeMap<InstanceId, Declaration>,
}

/// A bucket that came to this master: declarations by block, and the members whose declarations are
/// incomplete.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct FrozenBucket {
    /// The block behind which each member's declaration goes on. None if nothing of that
    /// declaration is here.
    pub(super) missing: BTreeMap<InstanceId, Option<Dba>>,
    pub(super) declared: BTreeMap<Dba, BTreeMap<InstanceId, Declaration>>,
    /// Blocks that somebody has asked for meanwhile.
    pub(super) asked: BTreeSet<Dba>,
}

/// Which requests of an instance are done, as far as a late copy of one can still arrive.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Served {
    floor: RequestId,
    done: BTreeSet<RequestId>,
}

/// The directory of this instance's buckets in one shard.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Master {
    pub(super) entries: BTreeMap<Dba, Entry>,
    served: BTreeMap<InstanceId, Served>,
    pub(super) epoch: Epoch,
    last_turn: u64,
    /// Buckets whose directory is being rebuilt.
    pub(super) frozen: BTreeMap<Bucket, FrozenBucket>,
    /// Single blocks with missing declarations. They are not served.
    pub(super) rebuilding: BTreeMap<Dba, Rebuilding>,
    pub(super) masters: Masters,
    /// Blocks for which dead threads are kept until the blocks are on disk.
    pub(super) unwritten: BTreeSet<Dba>,
    pub(crate) planted: Planted,
}

impl Master {
    pub(super) fn new() -> Self {
        Master {
            entries: BTreeMap::new(),
            served: BTreeMap::new(),
            epoch: Epoch(0),
            last_turn: 0,
            frozen: BTreeMap::new(),
            rebuilding: BTreeMap::new(),
            masters: Masters::new(),
            unwritten: BTreeSet::new(),
            planted: Planted::default(),
        }
    }

    /// Whether the block is not served because its directory entry is being rebuilt.
    fn halted(&self, block: Dba) -> bool {
        let rebuilding = || self.rebuilding.contains_key(&block);
        self.is_frozen(block) || !self.rebuilding.is_empty() && rebuilding()
    }

    /// Whether the block is in a bucket that is being rebuilt.
    pub(super) fn is_frozen(&self, block: Dba) -> bool {
        let frozen = |b: &Bucket| self.frozen.contains_key(b);
        !self.frozen.is_empty()
            && self
                .masters
                .rebuilt_with(block)
                .iter()
                .flatten()
                .any(frozen)
    }

    /// Forgets all about these blocks, because they have another master.
    pub(super) fn forget_blocks(&mut self, blocks: &RangeInclusive<Dba>) {
        let of = |map: &BTreeMap<Dba, Entry>| map.range(blocks.clone()).map(|(&b, _)| b).collect();
        let known: Vec<Dba> = of(&self.entries);
        for block in known {
            self.entries.remove(&block);
        }
        self.rebuilding.retain(|block, _| !blocks.contains(block));
        self.unwritten.retain(|block| !blocks.contains(block));
    }

    /// The blocks that are being served.
    pub(super) fn in_service(&self) -> Vec<Dba> {
        let served = self.entries.iter().filter(|(_, e)| e.service.is_some());
        served.map(|(&block, _)| block).collect()
    }

    /// The block's entry, for a task that waits until the block is halted no more.
    fn entry_for_later(&mut self, block: Dba) -> &mut Entry {
        if !self.frozen.is_empty() {
            for bucket in self.masters.rebuilt_with(block).iter().flatten() {
                if let Some(frozen) = self.frozen.get_mut(bucket) {
                    frozen.asked.insert(block);
                }
            }
        }
        self.entries.entry(block).or_default()
    }

    fn turn(&mut self, block: Dba) -> Turn {
        self.last_turn += 1;
        Turn {
            epoch: self.epoch,
            term: self.masters.term_of_block(block),
            number: self.last_turn,
        }
    }
}

impl Entry {
    /// Believes what a requester says of its own copy: it is newer than what is recorded, because
    /// the notice that the requester let go may have been lost. It is not newer if a turn has taken
    /// the copy since.
    fn believe(&mut self, from: InstanceId, have: Option<Turn>) {
        if self
            .holders
            .get(&from)
            .is_some_and(|h| Some(h.turn) != have)
        {
            self.holders.remove(&from);
        }
    }

    fn exclusive(&self) -> Option<InstanceId> {
        let mut exclusive = self
            .holders
            .iter()
            .filter(|(_, h)| h.mode == Mode::Exclusive);
        exclusive.next().map(|(&i, _)| i)
    }

    /// Whether a reader gets a copy instead of a turn of its own.
    fn reader_is_forwarded(&self) -> bool {
        self.service.is_some() || self.exclusive().is_some()
    }

    /// The holder that surely has the current version and can copy it without waiting for anything
    /// but its installation.
    fn who_can_copy(&self) -> Option<(InstanceId, Turn)> {
        let holder = match &self.service {
            None => self.exclusive(),
            Some(service) => match service.phase {
                Phase::Invalidating { keeper, .. } => Some(keeper),
                Phase::Shipping { supplier } => (!service.left).then_some(supplier),
                Phase::Granting { .. } | Phase::Recovering | Phase::Inheriting => None,
            },
        }?;
        Some((holder, self.holders.get(&holder)?.turn))
    }

    fn queue_readers(&mut self) {
        for Reader { to, id, .. } in std::mem::take(&mut self.reads) {
            self.queue.push_back(Request {
                from: to,
                id,
                mode: Mode::Shared,
                have: None,
            });
        }
    }

    fn first_phase(&self, request: Request, planted: Planted) -> Phase {
        let from = request.from;
        let others: BTreeSet<InstanceId> = self
            .holders
            .keys()
            .copied()
            .filter(|&i| i != from)
            .collect();
        let own = self.holders.get(&from);
        let granting = |source| Phase::Granting { source };
        let own_source = Source::Own { dirty: false };
        if own.is_some_and(|h| h.mode >= request.mode) {
            return granting(own_source);
        }
        let skip = planted.breaks(Mutation::NoInvalidation);
        match request.mode {
            Mode::Shared if planted.breaks(Mutation::GrantDiskBesideExclusive) => {
                granting(Source::Disk)
            }
            Mode::Shared => match self.supplier(from) {
                Some(supplier) => Phase::Shipping { supplier },
                None => granting(Source::Disk),
            },
            Mode::Exclusive if own.is_some() && (others.is_empty() || skip) => granting(own_source),
            Mode::Exclusive => {
                let keeper = if own.is_some() {
                    Some(from)
                } else {
                    self.supplier(from)
                };
                let Some(keeper) = keeper else {
                    return granting(Source::Disk);
                };
                let mut missing = others;
                missing.remove(&keeper);
                if missing.is_empty() || skip {
                    Phase::Shipping { supplier: keeper }
                } else {
                    Phase::Invalidating { missing, keeper }
                }
            }
        }
    }

    /// The holder that owes the write, if there is one, so that a lost transfer of a dirty block
    /// can be sent again. Otherwise any holder.
    fn supplier(&self, except: InstanceId) -> Option<InstanceId> {
        let others = || self.holders.iter().filter(|&(&i, _)| i != except);
        others()
            .find(|(_, h)| h.duty)
            .or_else(|| others().next())
            .map(|(&i, _)| i)
    }
}

impl Service {
    /// A service that no session asked for: part of a recovery.
    fn unasked(from: InstanceId, have: Option<Turn>, turn: Turn, phase: Phase) -> Self {
        Service {
            request: Request {
                from,
                id: RequestId(0),
                mode: Mode::Exclusive,
                have,
            },
            turn,
            phase,
            dirty: false,
            left: false,
        }
    }
}

impl Served {
    fn raise(&mut self, floor: RequestId) {
        self.floor = self.floor.max(floor);
        self.done = self.done.split_off(&self.floor);
    }
}
