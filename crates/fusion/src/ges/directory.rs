//! The directory of the locks whose resources this instance masters. It works like the directory of
//! blocks. Each resource has one service at a time, which its turn names. The service is over when
//! the requester says so.
//!
//! **Invariant.** Requests are served in order of arrival, with one exception, as in PostgreSQL's
//! queue. A request whose owner already uses the lock goes before the requests that this use
//! excludes, because those wait for the use's end. If it arrives while one of those is being
//! served, that one is put off.

mod service;

use super::message::{Effect, Kept, Message, Resource, Value};
use super::{Against, Mode, PART, part_of};
use crate::ids::{Epoch, RequestId, Term, Turn};
use crate::planted::{Mutation, Planted};
use block::ids::InstanceId;
pub(super) use service::Request;
use service::{Service, Stage};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Entry {
    holders: BTreeMap<InstanceId, Mode>,
    /// The last served request of each instance.
    served: BTreeMap<InstanceId, RequestId>,
    /// The last denied request of each instance.
    denied: BTreeMap<InstanceId, RequestId>,
    queue: VecDeque<Request>,
    service: Option<Service>,
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Directory {
    entries: BTreeMap<Resource, Entry>,
    epoch: Epoch,
    last_turn: u64,
    members: BTreeSet<InstanceId>,
    /// The members that have not declared all that they keep, each with the resource up to which it
    /// has declared. Nothing is granted until all have declared all.
    missing: BTreeMap<InstanceId, Option<Resource>>,
    /// The most locks in one message: [`super::PART`], fewer in tests.
    pub(super) part: usize,
    /// Whether nothing is granted in this epoch because of a death ([`super::Plan::in_doubt`]).
    pub(super) in_doubt: bool,
    /// Members that joined in this epoch.
    fresh: BTreeSet<InstanceId>,
    pub(super) planted: Planted,
}

impl Directory {
    /// The directory of an instance that is alone.
    pub(super) fn alone(me: InstanceId) -> Directory {
        Directory {
            entries: BTreeMap::new(),
            epoch: Epoch(0),
            last_turn: 0,
            members: [me].into(),
            missing: BTreeMap::new(),
            part: PART,
            in_doubt: false,
            fresh: BTreeSet::new(),
            planted: Planted::default(),
        }
    }

    fn entry(&mut self, resource: Resource) -> &mut Entry {
        let implied = |&i: &InstanceId| match resource.implied() {
            Mode::Null => None,
            mode => Some((i, mode)),
        };
        self.entries.entry(resource).or_insert_with(|| Entry {
            holders: self.members.iter().filter_map(implied).collect(),
            ..Entry::default()
        })
    }

    pub(super) fn request(
        &mut self,
        resource: Resource,
        request: Request,
        has: Mode,
        out: &mut Vec<Effect>,
    ) {
        let Request { from, id, .. } = request;
        let in_turn = self.planted.breaks(Mutation::ConvertersQueue);
        let entry = self.entry(resource);
        if entry.served.get(&from).is_some_and(|last| *last >= id) {
            if entry.denied.get(&from) == Some(&id) {
                let message = Message::Denied { resource, id };
                out.push(Effect::Send { to: from, message });
            }
            return; // a late copy
        }
        entry.has_no_more(from, has);
        let known = |r: &Request| (r.from, r.id) == (from, id);
        if entry.service.as_ref().is_some_and(|s| known(&s.request)) {
            self.drive(resource, out);
        } else if !entry.queue.iter().any(known) {
            if !in_turn && entry.put_off_for(&request) {
                return self.drive(resource, out);
            }
            if !request.patient && entry.service.as_ref().is_some_and(Service::may_take_long) {
                deny(resource, entry, request, out);
                return;
            }
            let behind = |r: &Request| request.goes_before(r) && !in_turn;
            let place = entry.queue.iter().position(behind);
            let place = place.unwrap_or(entry.queue.len());
            entry.queue.insert(place, request);
            self.pump(resource, out);
        }
    }

    /// Whether it is known what every instance has, the dead included.
    fn may_grant(&self) -> bool {
        let in_doubt = self.in_doubt && !self.planted.breaks(Mutation::GrantInDoubt);
        self.missing.is_empty() && !in_doubt
    }

    fn pump(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        if !self.may_grant() {
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
        let service = Service {
            request,
            turn: Turn {
                epoch: self.epoch,
                term: Term::BY_HASH,
                number: self.last_turn,
            },
            missing: entry.holders.iter().filter_map(against).collect(),
            stage: Stage::Runs,
        };
        if service.may_take_long() {
            let (stay, go) = entry.queue.drain(..).partition(|r| r.patient);
            entry.queue = stay;
            let go: VecDeque<Request> = go;
            go.into_iter().for_each(|r| deny(resource, entry, r, out));
        }
        entry.service = Some(service);
        self.drive(resource, out);
    }

    /// Sends the service's recalls, or its grant, for the first time or again.
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
            let message = match service.stage {
                Stage::Cancelled | Stage::PutOff => Message::Void { resource, turn },
                Stage::Runs => Message::Recall {
                    resource,
                    turn,
                    keep,
                    patient: request.patient,
                },
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
        for (&resource, entry) in &self.entries {
            if let Some(service) = &entry.service {
                let Request { from, id, .. } = service.request;
                let message = Message::Waits { resource, id };
                out.push(Effect::Send { to: from, message });
            }
        }
    }

    /// Takes back a request that nobody waits for any more.
    pub(super) fn cancel(
        &mut self,
        resource: Resource,
        (from, id): (InstanceId, RequestId),
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        let same = |r: &Request| (r.from, r.id) == (from, id);
        entry.queue.retain(|r| !same(r));
        if let Some(service) = entry.service.as_mut().filter(|s| same(&s.request)) {
            service.stage = Stage::Cancelled;
            self.answered(resource, out);
        }
        self.tidy(resource);
    }

    /// Goes on with a service. Perhaps no holder's answer is missing any more.
    fn answered(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        if let Some(entry) = self.entries.get_mut(&resource)
            && let Some(service) = entry
                .service
                .take_if(|s| s.stage != Stage::Runs && s.missing.is_empty())
        {
            if service.stage == Stage::Cancelled {
                let Request { from, id, .. } = service.request;
                entry.served.insert(from, id);
            }
            self.pump(resource, out);
            self.tidy(resource);
        } else {
            self.drive(resource, out);
        }
    }

    /// Answers a holder that asks whether a recall still stands.
    pub(super) fn recalling(
        &self,
        resource: Resource,
        (from, turn): (InstanceId, Turn),
        out: &mut Vec<Effect>,
    ) {
        let entry = self.entries.get(&resource);
        let service = entry.and_then(|e| e.service.as_ref());
        if !service.is_some_and(|s| s.turn == turn && s.stage == Stage::Runs) {
            let message = Message::Void { resource, turn };
            out.push(Effect::Send { to: from, message });
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
        let done = service.missing.is_empty();
        entry.holds(from, mode, value);
        if done {
            self.answered(resource, out);
        }
    }

    /// Takes the answer of a holder that uses what a requester without patience wants.
    pub(super) fn refused(
        &mut self,
        resource: Resource,
        (from, turn): (InstanceId, Turn),
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        let asked = |s: &Service| s.turn == turn && s.missing.contains(&from) && !s.request.patient;
        let Some(service) = entry.service.take_if(|s| asked(s)) else {
            return;
        };
        deny(resource, entry, service.request, out);
        self.pump(resource, out);
        self.tidy(resource);
    }

    /// Notes that a holder has given up by itself what request `id` granted it.
    pub(super) fn released(
        &mut self,
        resource: Resource,
        (from, id): (InstanceId, RequestId),
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        // Otherwise the instance has asked again since, and was served.
        if entry.served.get(&from) != Some(&id) || !entry.holders.contains_key(&from) {
            return;
        }
        entry.holds(from, Mode::Null, None);
        if let Some(service) = &mut entry.service
            && service.missing.remove(&from)
            && service.missing.is_empty()
        {
            self.answered(resource, out);
        }
        self.tidy(resource);
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

    /// Forgets a resource that nobody waits for, that has no value, and of which every member has
    /// the implied mode.
    fn tidy(&mut self, resource: Resource) {
        let implied = resource.implied();
        let members = match implied {
            Mode::Null => 0,
            _ => self.members.len(),
        };
        let usual =
            |e: &Entry| e.holders.len() == members && e.holders.values().all(|m| *m == implied);
        let unused =
            |e: &Entry| usual(e) && e.queue.is_empty() && e.service.is_none() && e.value.is_none();
        if self.entries.get(&resource).is_some_and(unused) {
            self.entries.remove(&resource);
        }
    }

    /// Forgets a resource that nobody waits for: its object is gone, or nobody else is there.
    pub(super) fn forget(&mut self, resource: Resource) {
        let still = |e: &Entry| e.queue.is_empty() && e.service.is_none();
        if self.entries.get(&resource).is_some_and(still) {
            self.entries.remove(&resource);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The members whose declarations are missing, each with the resource from which on they are.
    pub(super) fn missing(&self) -> &BTreeMap<InstanceId, Option<Resource>> {
        &self.missing
    }

    pub(super) fn value_read(&mut self, resource: Resource, value: Value) {
        if let Some(entry) = self.entries.get_mut(&resource) {
            entry.value = entry.value.max(Some(value));
        }
    }

    /// Enters a new epoch, in which every member declares what it keeps.
    ///
    /// A value that a dead instance may have changed is unknown from now on. A survivor that keeps
    /// the lock restores it by its declaration: no exclusive holder can have stood beside that
    /// survivor.
    pub(super) fn new_epoch(
        &mut self,
        epoch: Epoch,
        members: BTreeSet<InstanceId>,
        dead: &BTreeSet<InstanceId>,
        mastered: impl Fn(Resource) -> bool,
    ) {
        // This includes a living exclusive holder: its answer to a recall, with the value in it,
        // may be among the dropped messages. If it still has the lock, it declares the value.
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
        self.members = members.clone();
        let everybody = |resource: Resource| -> BTreeMap<InstanceId, Mode> {
            let has = |&i: &InstanceId| (i, resource.implied());
            members.iter().map(has).collect()
        };
        self.entries.retain(|&resource, entry| {
            let doubtful = writes(entry);
            if (doubtful || unfinished) && !keep_doubts {
                entry.value = None;
            }
            entry.served.retain(|i, _| !dead.contains(i)); // its next life counts anew
            entry.denied.retain(|i, _| !dead.contains(i));
            entry.holders.clear();
            if resource.implied() != Mode::Null {
                entry.holders = everybody(resource);
            }
            entry.queue.clear();
            entry.service = None;
            mastered(resource)
        });
        self.epoch = epoch;
        self.missing = members.into_iter().map(|k| (k, None)).collect();
        self.fresh.clear();
    }

    pub(super) fn declared(
        &mut self,
        from: InstanceId,
        (after, kept, more): (Option<Resource>, Vec<Kept>, bool),
        fresh: bool,
        out: &mut Vec<Effect>,
    ) {
        match self.missing.get(&from) {
            Some(reached) if *reached == after => {}
            // This part is known already.
            Some(_) => return,
            None => {
                if fresh && self.may_grant() {
                    self.welcome(from, None, out);
                }
                return;
            }
        }
        let last = kept.last().map(|k| k.resource).filter(|_| more);
        if fresh && after.is_none() {
            self.fresh.insert(from);
            // A joiner counts from the beginning, also if it came back within one epoch.
            for entry in self.entries.values_mut() {
                entry.served.remove(&from);
                entry.denied.remove(&from);
            }
        }
        for lock in kept {
            let entry = self.entry(lock.resource);
            match lock.mode {
                Mode::Null => entry.holders.remove(&from),
                mode => entry.holders.insert(from, mode),
            };
            entry.served.insert(from, lock.id);
            // An instance that keeps a lock knows its value: no exclusive holder can have stood
            // beside it.
            entry.value = entry.value.max(lock.value);
        }
        if last.is_some() {
            self.missing.insert(from, last);
            let message = Message::DeclareWanted { after: last };
            out.push(Effect::Send { to: from, message });
            return;
        }
        self.missing.remove(&from);
        if !self.may_grant() {
            return;
        }
        for fresh in std::mem::take(&mut self.fresh) {
            self.make_room(fresh);
            self.welcome(fresh, None, out);
        }
        let resources: Vec<Resource> = self.entries.keys().copied().collect();
        for resource in resources {
            self.pump(resource, out);
            self.tidy(resource);
        }
    }

    /// Takes the implied mode of a resource from a joiner if others have the resource so strongly
    /// that the mode does not fit beside it.
    fn make_room(&mut self, fresh: InstanceId) {
        if self.planted.breaks(Mutation::NewcomersTakeAll) {
            return;
        }
        for (resource, entry) in &mut self.entries {
            let others = entry.holders.iter().filter(|(i, _)| **i != fresh);
            let fits = others.map(|(_, m)| m.compatible(resource.implied()));
            if !fits.into_iter().all(|fits| fits) {
                entry.holders.remove(&fresh);
            }
        }
    }

    fn welcome(&mut self, fresh: InstanceId, after: Option<Resource>, out: &mut Vec<Effect>) {
        let lacks = |(r, e): &(&Resource, &Entry)| {
            r.implied() != Mode::Null && !e.holders.contains_key(&fresh)
        };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range((from, Bound::Unbounded));
        let (without, more) = part_of(entries.filter(lacks).map(|(r, _)| *r), self.part);
        let message = Message::Welcome {
            after,
            without,
            more,
        };
        out.push(Effect::Send { to: fresh, message });
    }

    /// Sends a joiner that knows what it lacks up to `after` the next part of its welcome.
    pub(super) fn welcome_wanted(
        &mut self,
        from: InstanceId,
        after: Resource,
        out: &mut Vec<Effect>,
    ) {
        if self.may_grant() {
            self.welcome(from, Some(after), out);
        }
    }

    /// Which instances stand against the request of `from`, and how: by the mode that they exclude,
    /// or by a request of their own that is ahead. If `from` has not asked but is recalled from, it
    /// stands back for the request that is served.
    pub(super) fn blockers(
        &self,
        resource: Resource,
        from: InstanceId,
    ) -> Vec<(InstanceId, Against)> {
        let Some(entry) = self.entries.get(&resource) else {
            return Vec::new();
        };
        let service = entry.service.iter().filter(|s| s.stage != Stage::PutOff);
        let service = service.map(|s| &s.request);
        let all: Vec<&Request> = service.chain(&entry.queue).collect();
        let Some(at) = all.iter().position(|r| r.from == from) else {
            let recalls = entry.service.iter().filter(|s| s.missing.contains(&from));
            return recalls
                .map(|s| (s.request.from, Against::Ahead(s.request.id)))
                .collect();
        };
        let mode = all[at].mode;
        let against = |(i, m): &(&InstanceId, &Mode)| **i != from && !m.compatible(mode);
        let holders = entry.holders.iter().filter(against);
        let ahead = all[..at].iter().map(|r| (r.from, Against::Ahead(r.id)));
        holders
            .map(|(&i, _)| (i, Against::Use(mode)))
            .chain(ahead)
            .collect()
    }
}

impl Entry {
    /// Puts off the request that is being served if it waits for the end of this request's owner.
    /// It then waits behind this one. Returns whether it was put off.
    fn put_off_for(&mut self, request: &Request) -> bool {
        let waits = |s: &&mut Service| {
            let runs = s.stage == Stage::Runs && s.missing.contains(&request.from);
            runs && request.goes_before(&s.request)
        };
        let Some(service) = self.service.as_mut().filter(waits) else {
            return false;
        };
        service.stage = Stage::PutOff;
        self.queue.push_front(service.request);
        self.queue.push_front(*request);
        true
    }

    /// Takes note of what a requester says it has, if the master believes that it has the lock
    /// exclusively.
    ///
    /// The requester may have answered a recall that was over already. That answer, perhaps with a
    /// value in it, was not looked at. What is believed of other modes may be too much, which only
    /// costs a recall. A late copy must not correct it: its request may be forgotten, with an entry
    /// that was not needed any more.
    fn has_no_more(&mut self, from: InstanceId, has: Mode) {
        let awaited = |s: &Service| s.missing.contains(&from) || s.request.from == from;
        let believed = self.holders.get(&from).copied().unwrap_or_default();
        if believed == Mode::Exclusive
            && has != Mode::Exclusive
            && !self.service.as_ref().is_some_and(awaited)
        {
            self.holds(from, has, None);
        }
    }

    /// Records what a holder has from now on, as it has said.
    fn holds(&mut self, holder: InstanceId, mode: Mode, value: Option<Value>) {
        if self.holders.get(&holder) == Some(&Mode::Exclusive) && value.is_none() {
            self.value = None; // the first answer, with the value, was lost
        }
        match mode {
            Mode::Null => self.holders.remove(&holder),
            mode => self.holders.insert(holder, mode),
        };
        self.value = self.value.max(value);
    }
}

fn deny(resource: Resource, entry: &mut Entry, request: Request, out: &mut Vec<Effect>) {
    let Request { from, id, .. } = request;
    entry.served.insert(from, id);
    entry.denied.insert(from, id);
    let message = Message::Denied { resource, id };
    out.push(Effect::Send { to: from, message });
}
