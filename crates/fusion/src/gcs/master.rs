//! The master's role: who holds which block of this instance's buckets, and whose turn it is.
//!
//! **Invariants**
//! 1. Requests for one block are served one at a time, in order of arrival; a service ends when its requester says so.
//! 2. Exclusive and shared holders never stand in one entry together (R1).
//! 3. A grant to read from disk is given only if nobody holds the block (R4). That disk is the newest version then follows:
//!    a dirty copy is never let go before it is written, and within a service it is the supplier, who can send it again.
//! 4. A request is remembered until its requester says that it is done (13): `Served`.
//! 5. Readers do not queue: whoever has the current copy at this moment is told to send a copy.

use super::bucket_of;
use super::message::{Declaration, Effect, Message, Mode, Source, Want};
use crate::ids::{Bucket, Epoch, RequestId, Turn};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, InstanceId, Scn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Holding {
    mode: Mode,
    turn: Turn,
    id: RequestId,
    /// It owes the write: it is exclusive, or was the last that was.
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
    /// Shared copies are being taken back; `keeper` still has one, for the requester or as the requester.
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
    /// An invalidated copy was dirty.
    dirty: bool,
    /// The supplier has sent the block: nobody can copy it until it arrives.
    left: bool,
}

/// A block that somebody holds, left a past image of, or waits for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Entry {
    pub(super) holders: BTreeMap<InstanceId, Holding>,
    images: BTreeMap<InstanceId, Scn>,
    queue: VecDeque<Request>,
    service: Option<Service>,
    reads: BTreeSet<Reader>,
    write_wanted: bool,
    /// Declarations still missing. While there are any, nothing is served.
    pub(super) rebuilding: Option<Rebuilding>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Rebuilding {
    pub(super) missing: BTreeSet<InstanceId>,
    pub(super) declared: BTreeMap<InstanceId, Declaration>,
}

/// A bucket that came to this master: declarations by block, and who has not declared yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct FrozenBucket {
    pub(super) missing: BTreeSet<InstanceId>,
    pub(super) declared: BTreeMap<Dba, BTreeMap<InstanceId, Declaration>>,
}

/// Which requests of an instance are done, as far as a late copy of one could still arrive.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Served {
    floor: RequestId,
    done: BTreeSet<RequestId>,
}

/// The directory of this instance's buckets in one lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Master {
    pub(super) entries: BTreeMap<Dba, Entry>,
    served: BTreeMap<InstanceId, Served>,
    pub(super) epoch: Epoch,
    last_turn: u64,
    /// Buckets whose directory is being rebuilt.
    pub(super) frozen: BTreeMap<Bucket, FrozenBucket>,
    pub(super) buckets: u16,
    /// Blocks that dead threads are needed for until they are on disk.
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
            buckets: 1,
            unwritten: BTreeSet::new(),
            planted: Planted::default(),
        }
    }

    /// Nothing is served for this block while its directory entry is being rebuilt.
    fn halted(&self, block: Dba) -> bool {
        self.frozen.contains_key(&bucket_of(block, self.buckets))
            || self
                .entries
                .get(&block)
                .is_some_and(|e| e.rebuilding.is_some())
    }

    fn turn(&mut self) -> Turn {
        self.last_turn += 1;
        Turn {
            epoch: self.epoch,
            number: self.last_turn,
        }
    }

    // ---- requests ----

    pub(super) fn request(
        &mut self,
        block: Dba,
        from: InstanceId,
        (id, floor): (RequestId, RequestId),
        (want, have): (Want, Option<Turn>),
        out: &mut Vec<Effect>,
    ) {
        let halted = self.halted(block);
        let served = self.served.entry(from).or_default();
        served.raise(floor);
        if self.is_done(block, from, id) {
            return;
        }
        let entry = self.entries.entry(block).or_default();
        let in_service = entry
            .service
            .as_ref()
            .is_some_and(|s| (s.request.from, s.request.id) == (from, id));
        if in_service {
            self.drive(block, out);
            return;
        }
        if entry.queue.iter().any(|r| (r.from, r.id) == (from, id)) {
            return;
        }
        if entry.service.is_none() && !halted {
            entry.believe(from, have);
        }
        let parked = halted || entry.reader_is_forwarded();
        if let Want::Read { snapshot } = want
            && parked
        {
            let to = from;
            entry.reads.insert(Reader { to, id, snapshot });
            self.serve_readers(block, out);
            return;
        }
        let mode = want.mode();
        entry.queue.push_back(Request {
            from,
            id,
            mode,
            have,
        });
        self.pump(block, out);
    }

    /// A late copy of a request that was served already (13). Looked at when it arrives and when its turn comes.
    fn is_done(&self, block: Dba, from: InstanceId, id: RequestId) -> bool {
        if self.planted.breaks(Mutation::ForgetRequests) {
            return false;
        }
        let served = self.served.get(&from);
        let done = served.is_some_and(|s| id < s.floor || s.done.contains(&id));
        let holding = self
            .entries
            .get(&block)
            .and_then(|e| e.holders.get(&from))
            .is_some_and(|h| h.id >= id);
        done || holding
    }

    /// Forgets parked requests that were served meanwhile in another way.
    fn drop_done(&mut self, block: Dba) {
        let Some(entry) = self.entries.get(&block) else {
            return;
        };
        let (queue, reads) = (entry.queue.clone(), entry.reads.clone());
        let live = |from, id| !self.is_done(block, from, id);
        let queue = queue.into_iter().filter(|r| live(r.from, r.id)).collect();
        let reads = reads.into_iter().filter(|r| live(r.to, r.id)).collect();
        let entry = self.entries.get_mut(&block).expect("looked up above");
        entry.queue = queue;
        entry.reads = reads;
    }

    /// Sends parked readers to whoever has the block now. They stay parked only while it is between two instances.
    fn serve_readers(&mut self, block: Dba, out: &mut Vec<Effect>) {
        if self.halted(block) {
            return;
        }
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let Some((holder, turn)) = entry.who_can_copy() else {
            return;
        };
        for reader in std::mem::take(&mut entry.reads) {
            let Reader { to, id, snapshot } = reader;
            if to == holder {
                entry.reads.insert(reader); // it has just given the block away itself
                continue;
            }
            let message = Message::ReadFor {
                block,
                turn,
                to,
                id,
                snapshot,
            };
            out.push(Effect::Send {
                to: holder,
                message,
            });
        }
    }

    /// The holder that a reader was sent to has given the block away meanwhile. A late notice, about an ownership before
    /// the one recorded, says nothing about this one.
    pub(super) fn read_back(
        &mut self,
        block: Dba,
        (from, turn): (InstanceId, Turn),
        (to, id, snapshot): (InstanceId, RequestId, Scn),
        out: &mut Vec<Effect>,
    ) {
        let halted = self.halted(block);
        let entry = self.entries.entry(block).or_default();
        entry.reads.insert(Reader { to, id, snapshot });
        let recorded = entry.holders.get(&from).is_some_and(|h| h.turn == turn);
        match &mut entry.service {
            // It comes to its requester at any moment; then the reader is sent there.
            Some(service) => {
                let supplier = from;
                service.left |= recorded && service.phase == (Phase::Shipping { supplier });
                self.serve_readers(block, out);
            }
            None => {
                if recorded && !halted {
                    entry.holders.remove(&from); // its notice that it let go was lost
                }
                self.pump(block, out);
            }
        }
    }

    /// Serves the next request, if none is being served.
    pub(super) fn pump(&mut self, block: Dba, out: &mut Vec<Effect>) {
        self.drop_done(block);
        let halted = self.halted(block);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        if entry.service.is_some() || halted {
            return;
        }
        if !entry.reads.is_empty() {
            if entry.reader_is_forwarded() {
                self.serve_readers(block, out);
            } else {
                entry.queue_readers();
            }
        }
        let entry = self.entries.get_mut(&block).expect("looked up above");
        if std::mem::take(&mut entry.write_wanted) {
            self.write_wanted(block, out);
        }
        let entry = self.entries.get_mut(&block).expect("looked up above");
        let next = if self.planted.breaks(Mutation::ServeTheLatest) {
            entry.queue.pop_back()
        } else {
            entry.queue.pop_front()
        };
        let Some(request) = next else {
            self.tidy(block);
            return;
        };
        entry.believe(request.from, request.have);
        let phase = entry.first_phase(request, self.planted);
        let turn = self.turn();
        let entry = self.entries.get_mut(&block).expect("looked up above");
        entry.service = Some(Service {
            request,
            turn,
            phase,
            dirty: false,
            left: false,
        });
        self.drive(block, out);
    }

    /// Sends the orders of the service's phase, for the first time or again. All receivers take repetitions.
    pub(super) fn drive(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let Some(Service {
            request,
            turn,
            phase,
            ..
        }) = self.entries.get(&block).and_then(|e| e.service.as_ref())
        else {
            return;
        };
        let (turn, id, mode) = (*turn, request.id, request.mode);
        match phase {
            Phase::Invalidating { missing, .. } => {
                for &to in missing {
                    let message = Message::Invalidate { block, turn };
                    out.push(Effect::Send { to, message });
                }
            }
            Phase::Shipping { supplier } => {
                let message = Message::Ship {
                    block,
                    turn,
                    to: request.from,
                    id,
                    mode,
                };
                out.push(Effect::Send {
                    to: *supplier,
                    message,
                });
            }
            &Phase::Granting { source } => {
                let message = Message::Grant {
                    block,
                    id,
                    turn,
                    mode,
                    source,
                };
                out.push(Effect::Send {
                    to: request.from,
                    message,
                });
            }
            Phase::Inheriting => {
                let to = request.from;
                let have = request.have.expect("a holder inherits");
                let message = Message::Inherit { block, turn, have };
                out.push(Effect::Send { to, message });
            }
            Phase::Recovering => {
                let message = Message::Recover { block, turn };
                out.push(Effect::Send {
                    to: request.from,
                    message,
                });
            }
        }
    }

    pub(super) fn invalidated(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        image: Option<Scn>,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let Some(service) = entry.service.as_mut().filter(|s| s.turn == turn) else {
            return;
        };
        let Phase::Invalidating { missing, keeper } = &mut service.phase else {
            return;
        };
        if !missing.remove(&from) {
            return;
        }
        entry.holders.remove(&from);
        if let Some(version) = image {
            service.dirty = true;
            entry.images.insert(from, version);
        }
        if !missing.is_empty() {
            return;
        }
        service.phase = if *keeper == service.request.from {
            let dirty = service.dirty;
            Phase::Granting {
                source: Source::Own { dirty },
            }
        } else {
            Phase::Shipping { supplier: *keeper }
        };
        self.drive(block, out);
        self.serve_readers(block, out);
    }

    /// The supplier has let go meanwhile: the next one, or disk.
    pub(super) fn not_held(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        recoverer: InstanceId,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let Some(service) = entry.service.as_mut().filter(|s| s.turn == turn) else {
            return;
        };
        if service.phase == Phase::Inheriting {
            entry.service = None;
            entry.holders.remove(&from);
            self.inherit(block, recoverer, out);
            return;
        }
        if service.phase != (Phase::Shipping { supplier: from }) {
            return;
        }
        entry.holders.remove(&from);
        let request = service.request;
        let next = entry.holders.keys().find(|&&i| i != request.from).copied();
        let service = entry.service.as_mut().expect("looked up above");
        service.phase = match next {
            Some(supplier) => {
                service.left = false;
                Phase::Shipping { supplier }
            }
            None => {
                assert!(!service.dirty, "the dirty copy is the supplier");
                Phase::Granting {
                    source: Source::Disk,
                }
            }
        };
        if next.is_none() {
            self.disk_is_newest(block, out);
        }
        self.drive(block, out);
        self.serve_readers(block, out);
    }

    /// The requester has what it asked for: the service ends.
    pub(super) fn done(
        &mut self,
        block: Dba,
        from: InstanceId,
        (id, floor, turn): (RequestId, RequestId, Turn),
        (holds, image): (bool, Option<(InstanceId, Scn)>),
        out: &mut Vec<Effect>,
    ) {
        let served = self.served.entry(from).or_default();
        served.raise(floor);
        if id >= served.floor {
            served.done.insert(id);
        }
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let current = |s: &&mut Service| s.turn == turn && s.request.from == from;
        let Some(service) = entry.service.as_mut().filter(current) else {
            return;
        };
        let mode = service.request.mode;
        entry.service = None;
        match mode {
            Mode::Exclusive => entry.holders.clear(),
            Mode::Shared => entry
                .holders
                .values_mut()
                .for_each(|h| h.mode = Mode::Shared),
        }
        if holds {
            let duty = mode == Mode::Exclusive;
            let holding = Holding {
                mode,
                turn,
                id,
                duty,
            };
            entry.holders.insert(from, holding);
        }
        if let Some((supplier, version)) = image {
            entry.images.insert(supplier, version);
        }
        self.pump(block, out);
    }

    // ---- notices of holders ----

    pub(super) fn released(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        if entry.holders.get(&from).is_none_or(|h| h.turn != turn) {
            return;
        }
        let let_go = entry.holders.remove(&from).expect("looked up above");
        if let_go.duty && entry.service.is_none() {
            self.disk_is_newest(block, out); // what is dirty is written before it is let go
        }
        self.tidy(block);
    }

    pub(super) fn stepped_down(
        &mut self,
        block: Dba,
        from: InstanceId,
        turn: Turn,
        out: &mut Vec<Effect>,
    ) {
        let holding = self
            .entries
            .get_mut(&block)
            .and_then(|e| e.holders.get_mut(&from));
        if let Some(holding) = holding.filter(|h| h.turn == turn) {
            holding.mode = Mode::Shared;
            self.pump(block, out);
        }
    }

    /// This version is on disk.
    pub(super) fn wrote(&mut self, block: Dba, version: Scn, out: &mut Vec<Effect>) {
        self.unwritten.remove(&block);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        entry.images.retain(|&to, image| {
            let older = *image <= version;
            if older {
                let message = Message::Written { block, version };
                out.push(Effect::Send { to, message });
            }
            !older
        });
        self.tidy(block);
    }

    /// Nobody owes a write: every past image is superseded by what is on disk.
    fn disk_is_newest(&mut self, block: Dba, out: &mut Vec<Effect>) {
        self.unwritten.remove(&block);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        for (to, version) in std::mem::take(&mut entry.images) {
            let message = Message::Written { block, version };
            out.push(Effect::Send { to, message });
        }
    }

    /// Somebody's checkpoint waits, or a recovery: have the newest version written.
    pub(super) fn write_wanted(&mut self, block: Dba, out: &mut Vec<Effect>) {
        let halted = self.halted(block);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        if entry.service.is_some() || halted {
            entry.write_wanted = true;
            return;
        }
        match entry.holders.iter().find(|(_, h)| h.duty) {
            Some((&to, holding)) => {
                let turn = holding.turn;
                let message = Message::WriteOrder { block, turn };
                out.push(Effect::Send { to, message });
            }
            None => self.disk_is_newest(block, out),
        }
    }

    /// A past image that the directory does not know of (its notice was lost) asks too.
    pub(super) fn image_waits(
        &mut self,
        block: Dba,
        from: InstanceId,
        version: Scn,
        out: &mut Vec<Effect>,
    ) {
        let entry = self.entries.entry(block).or_default();
        let image = entry.images.entry(from).or_insert(version);
        *image = version.max(*image);
        self.write_wanted(block, out);
        self.tidy(block);
    }

    // ---- recovery ----

    /// All declarations of a block are in. `lost`: the dead may have held it, or their redo names it.
    pub(super) fn rebuilt(
        &mut self,
        block: Dba,
        declared: &BTreeMap<InstanceId, Declaration>,
        lost: bool,
        recoverer: InstanceId,
        out: &mut Vec<Effect>,
    ) {
        let entry = self.entries.entry(block).or_default();
        entry.rebuilding = None;
        entry.service = None;
        entry.holders.clear();
        entry.images.clear();
        for (&from, declaration) in declared {
            if let Some(held) = declaration.held {
                let holding = Holding {
                    mode: held.mode,
                    turn: held.turn,
                    id: held.id,
                    duty: held.duty,
                };
                entry.holders.insert(from, holding);
            }
            entry.images.extend(declaration.image.map(|v| (from, v)));
        }
        let owed = lost || !entry.images.is_empty();
        if owed && entry.holders.values().all(|h| !h.duty) {
            self.inherit(block, recoverer, out);
        }
        if lost {
            self.keep_threads_for(block, out);
        }
        self.pump(block, out);
    }

    fn recover(&mut self, block: Dba, executor: InstanceId, out: &mut Vec<Effect>) {
        let turn = self.turn();
        let entry = self.entries.get_mut(&block).expect("being rebuilt");
        entry.service = Some(Service::unasked(executor, None, turn, Phase::Recovering));
        self.drive(block, out);
    }

    /// The first shared holder owes the write from now on (17b); if none is left, the block is recovered.
    fn inherit(&mut self, block: Dba, recoverer: InstanceId, out: &mut Vec<Effect>) {
        if self.planted.breaks(Mutation::NoInheritedDuty) {
            return;
        }
        let turn = self.turn();
        let entry = self.entries.get_mut(&block).expect("being rebuilt");
        let Some((&heir, holding)) = entry.holders.iter().next() else {
            let newest = entry.images.iter().max_by_key(|(_, version)| **version);
            let executor = newest.map_or(recoverer, |(&i, _)| i);
            self.recover(block, executor, out);
            return;
        };
        let have = Some(holding.turn);
        entry.service = Some(Service::unasked(heir, have, turn, Phase::Inheriting));
        self.drive(block, out);
    }

    pub(super) fn inherited(&mut self, block: Dba, turn: Turn, out: &mut Vec<Effect>) {
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let current = |s: &&Service| s.turn == turn && s.phase == Phase::Inheriting;
        let Some(heir) = entry
            .service
            .as_ref()
            .filter(current)
            .map(|s| s.request.from)
        else {
            return;
        };
        entry.service = None;
        if let Some(holding) = entry.holders.get_mut(&heir) {
            holding.duty = true;
        }
        self.pump(block, out);
    }

    /// The dead threads are kept until this block is on disk.
    pub(super) fn keep_threads_for(&mut self, block: Dba, out: &mut Vec<Effect>) {
        if self.entries.contains_key(&block) {
            self.unwritten.insert(block);
            self.write_wanted(block, out);
        }
    }

    pub(super) fn recovered(
        &mut self,
        block: Dba,
        from: InstanceId,
        (turn, id, served, holds): (Turn, RequestId, Option<RequestId>, bool),
        out: &mut Vec<Effect>,
    ) {
        let done = &mut self.served.entry(from).or_default().done;
        done.extend(served);
        let Some(entry) = self.entries.get_mut(&block) else {
            return;
        };
        let current = |s: &&mut Service| s.turn == turn && s.phase == Phase::Recovering;
        if entry.service.as_mut().filter(current).is_none() {
            return;
        }
        entry.service = None;
        if !holds {
            self.disk_is_newest(block, out);
            self.pump(block, out);
            return;
        }
        entry.queue.retain(|r| r.from != from || r.id > id);
        let holding = Holding {
            mode: Mode::Exclusive,
            turn,
            id,
            duty: true,
        };
        entry.holders.insert(from, holding);
        self.pump(block, out);
    }

    /// Removes a dead instance from an entry. True if the entry has to be declared anew.
    pub(super) fn bury(&mut self, block: Dba, living: &BTreeSet<InstanceId>) -> bool {
        let entry = self.entries.get_mut(&block).expect("listed");
        entry.queue.clear(); // driven again by their requesters
        entry.reads.clear();
        let dead_owner = entry
            .holders
            .iter()
            .any(|(i, h)| h.duty && !living.contains(i));
        let anew = entry.service.is_some() || entry.rebuilding.is_some() || dead_owner;
        entry.service = None; // what it was about is declared anew
        if !anew {
            entry.holders.retain(|i, _| living.contains(i));
            entry.images.retain(|i, _| living.contains(i));
            self.tidy(block);
        }
        anew
    }

    pub(super) fn forget_requests_of(&mut self, instance: InstanceId) {
        self.served.remove(&instance);
    }

    pub(super) fn tidy(&mut self, block: Dba) {
        if self.entries.get(&block) == Some(&Entry::default()) {
            self.entries.remove(&block);
        }
    }

    #[cfg(test)]
    pub(super) fn idle(&self) -> bool {
        self.entries
            .values()
            .all(|e| e.service.is_none() && e.queue.is_empty() && e.rebuilding.is_none())
    }
}

impl Entry {
    /// What a requester says of itself is newer than what is recorded, unless a turn took its copy since: the notice
    /// that it let go may have been lost.
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

    /// Who surely has the current version, and can copy it without waiting for anything but its installation.
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

    /// Who owes the write, if anybody, so that a lost transfer of a dirty block can be sent again; otherwise any holder.
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
