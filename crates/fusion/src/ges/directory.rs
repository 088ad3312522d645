//! The directory of the locks whose resources this instance masters. Works like the one of blocks: one service per
//! resource at a time, told by its turn, over when the requester says so.

use super::Mode;
use super::message::{Effect, Kept, Message, Resource, Value};
use crate::ids::{Epoch, RequestId, Turn};
use crate::planted::{Mutation, Planted};
use block::ids::InstanceId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Request {
    from: InstanceId,
    id: RequestId,
    mode: Mode,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Service {
    request: Request,
    turn: Turn,
    /// Holders that have not answered their recall.
    missing: BTreeSet<InstanceId>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Entry {
    holders: BTreeMap<InstanceId, Mode>,
    /// The last request of each instance that was served.
    served: BTreeMap<InstanceId, RequestId>,
    queue: VecDeque<Request>,
    service: Option<Service>,
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Directory {
    entries: BTreeMap<Resource, Entry>,
    epoch: Epoch,
    last_turn: u64,
    /// Who has not declared what it keeps; nothing is granted until all have.
    missing: BTreeSet<InstanceId>,
    pub(super) planted: Planted,
}

impl Directory {
    pub(super) fn request(
        &mut self,
        resource: Resource,
        (from, id, mode): (InstanceId, RequestId, Mode),
        out: &mut Vec<Effect>,
    ) {
        let entry = self.entries.entry(resource).or_default();
        if entry.served.get(&from).is_some_and(|last| *last >= id) {
            return; // a late copy
        }
        let known = |r: &Request| (r.from, r.id) == (from, id);
        if entry.service.as_ref().is_some_and(|s| known(&s.request)) {
            self.drive(resource, out);
        } else if !entry.queue.iter().any(known) {
            entry.queue.push_back(Request { from, id, mode });
            self.pump(resource, out);
        }
    }

    fn pump(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        if !self.missing.is_empty() {
            return;
        }
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        if entry.service.is_some() {
            return;
        }
        let Some(request) = entry.queue.pop_front() else {
            return;
        };
        if entry
            .served
            .get(&request.from)
            .is_some_and(|last| *last >= request.id)
        {
            self.pump(resource, out);
            return;
        }
        self.last_turn += 1;
        let against = |(i, m): (&InstanceId, &Mode)| {
            (*i != request.from && !m.compatible(request.mode)).then_some(*i)
        };
        entry.service = Some(Service {
            request,
            turn: Turn {
                epoch: self.epoch,
                number: self.last_turn,
            },
            missing: entry.holders.iter().filter_map(against).collect(),
        });
        self.drive(resource, out);
    }

    /// Sends recalls, or the grant, for the first time or again.
    pub(super) fn drive(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        let Some(entry) = self.entries.get(&resource) else {
            return;
        };
        let Some(service) = &entry.service else {
            return;
        };
        let (request, turn) = (service.request, service.turn);
        for &to in &service.missing {
            let keep = entry.holders[&to].keep_beside(request.mode);
            let message = Message::Recall {
                resource,
                turn,
                keep,
            };
            out.push(Effect::Send { to, message });
        }
        if service.missing.is_empty() {
            let message = Message::Grant {
                resource,
                id: request.id,
                turn,
                mode: request.mode,
                value: entry.value,
            };
            let to = request.from;
            out.push(Effect::Send { to, message });
        }
    }

    pub(super) fn drive_all(&mut self, out: &mut Vec<Effect>) {
        let resources: Vec<Resource> = self.entries.keys().copied().collect();
        for resource in resources {
            self.drive(resource, out);
        }
    }

    pub(super) fn recalled(
        &mut self,
        resource: Resource,
        (from, turn): (InstanceId, Turn),
        (mode, value): (Mode, Option<Value>),
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        let Some(service) = entry.service.as_mut().filter(|s| s.turn == turn) else {
            return;
        };
        if !service.missing.remove(&from) {
            return;
        }
        if entry.holders.get(&from) == Some(&Mode::Exclusive) && value.is_none() {
            entry.value = None; // a repeated answer: the first one, which had the value, was lost
        }
        if mode == Mode::Null {
            entry.holders.remove(&from);
        } else {
            entry.holders.insert(from, mode);
        }
        entry.value = entry.value.max(value);
        if service.missing.is_empty() {
            self.drive(resource, out);
        }
    }

    pub(super) fn done(
        &mut self,
        resource: Resource,
        (from, id, turn): (InstanceId, RequestId, Turn),
        holds: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        let Some(service) = entry.service.as_ref().filter(|s| s.turn == turn) else {
            return;
        };
        if holds {
            entry.holders.insert(from, service.request.mode);
        }
        entry.served.insert(from, id);
        entry.service = None;
        self.pump(resource, out);
        self.tidy(resource);
    }

    /// Forgets a resource that nobody keeps or waits for, and that has no value.
    fn tidy(&mut self, resource: Resource) {
        let unused = |e: &Entry| {
            e.holders.is_empty() && e.queue.is_empty() && e.service.is_none() && e.value.is_none()
        };
        if self.entries.get(&resource).is_some_and(unused) {
            self.entries.remove(&resource);
        }
    }

    /// Members whose declarations are missing.
    pub(super) fn missing(&self) -> &BTreeSet<InstanceId> {
        &self.missing
    }

    pub(super) fn value_read(&mut self, resource: Resource, value: Value) {
        if let Some(entry) = self.entries.get_mut(&resource) {
            entry.value = entry.value.max(Some(value));
        }
    }

    /// A new epoch: what is kept is declared by everybody. A value that a dead instance may have changed is unknown from now
    /// on, unless a survivor keeps the lock: then no exclusive holder can have stood beside it.
    pub(super) fn new_epoch(
        &mut self,
        epoch: Epoch,
        members: BTreeSet<InstanceId>,
        dead: &BTreeSet<InstanceId>,
        mastered: impl Fn(Resource) -> bool,
    ) {
        // Also with a living holder: its answer to a recall, with the value in it, may be among the dropped messages. If
        // it has the lock still, it declares the value.
        let writes = |e: &Entry| {
            let served = e.service.iter().map(|s| s.request.mode);
            e.holders
                .values()
                .copied()
                .chain(served)
                .any(|m| m == Mode::Exclusive)
        };
        let unfinished = !self.missing.is_empty();
        let keep_doubts = self.planted.breaks(Mutation::ValueOutlivesWriter);
        self.entries.retain(|&resource, entry| {
            let doubtful = writes(entry);
            if (doubtful || unfinished) && !keep_doubts {
                entry.value = None;
            }
            entry.served.retain(|i, _| !dead.contains(i)); // its next life counts from the beginning
            entry.holders.clear();
            entry.queue.clear();
            entry.service = None;
            mastered(resource)
        });
        self.epoch = epoch;
        self.missing = members;
    }

    pub(super) fn declared(&mut self, from: InstanceId, kept: Vec<Kept>, out: &mut Vec<Effect>) {
        if !self.missing.remove(&from) {
            return;
        }
        for lock in kept {
            let entry = self.entries.entry(lock.resource).or_default();
            entry.holders.insert(from, lock.mode);
            entry.served.insert(from, lock.id);
            // Whoever keeps a lock knows its value: no exclusive holder can have stood beside it.
            entry.value = entry.value.max(lock.value);
        }
        if self.missing.is_empty() {
            let resources: Vec<Resource> = self.entries.keys().copied().collect();
            for resource in resources {
                self.pump(resource, out);
            }
        }
    }

    /// Which instances stand against the request of `from`, the mode they stand against, and whether it is their own
    /// request, ahead of this one, that does.
    pub(super) fn blockers(
        &self,
        resource: Resource,
        from: InstanceId,
    ) -> Vec<(InstanceId, Mode, bool)> {
        let Some(entry) = self.entries.get(&resource) else {
            return Vec::new();
        };
        let service = entry.service.iter().map(|s| &s.request);
        let all: Vec<&Request> = service.chain(&entry.queue).collect();
        let Some(at) = all.iter().position(|r| r.from == from) else {
            return Vec::new();
        };
        let mode = all[at].mode;
        let against = |(i, m): &(&InstanceId, &Mode)| **i != from && !m.compatible(mode);
        let holders = entry.holders.iter().filter(against);
        let ahead = all[..at].iter().map(|r| (r.from, mode, true));
        holders
            .map(|(&i, _)| (i, mode, false))
            .chain(ahead)
            .collect()
    }
}
