//! The directory of the locks whose resources this instance masters. It works like the directory of
//! blocks, but a resource may have several requests under way at once ([`entry`]).

mod entry;

use super::message::{Effect, Kept, Message, Resource, Statement, Value};
use super::{Against, Mode, Modes, PART, part_of};
use crate::ids::{Epoch, RequestId, Term, Turn};
use crate::planted::{Mutation, Planted};
use block::ids::InstanceId;
pub(super) use entry::Request;
use entry::{Arrival, Entry, Place};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

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
    /// The newest statement of each instance that was heard about a resource that is forgotten.
    /// About a resource that is new, older ones say nothing.
    forgotten: BTreeMap<InstanceId, u64>,
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
            forgotten: BTreeMap::new(),
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
        let entry = self.entries.entry(resource);
        entry.or_insert_with(|| {
            let holders = self.members.iter().filter_map(implied).collect();
            Entry::of(holders, self.forgotten.clone())
        })
    }

    pub(super) fn request(
        &mut self,
        resource: Resource,
        (request, floor): (Request, RequestId),
        now: Statement,
        out: &mut Vec<Effect>,
    ) {
        let planted = self.planted;
        let declared = !self.missing.contains_key(&request.from);
        let entry = self.entry(resource);
        if declared {
            // The answer to a recall may be lost, or late.
            entry.says(request.from, now, None);
        }
        match entry.arrival(&request, floor) {
            Arrival::New => entry.insert(request, planted),
            Arrival::Known => entry.said_again(&request, planted),
            Arrival::Denied => {
                let (to, id) = (request.from, request.id);
                let message = Message::Denied { resource, id };
                out.push(Effect::Send { to, message });
            }
        }
        self.advance(resource, out);
    }

    /// Whether it is known what every instance has, the dead included.
    fn may_grant(&self) -> bool {
        let in_doubt = self.in_doubt && !self.planted.breaks(Mutation::GrantInDoubt);
        self.missing.is_empty() && !in_doubt
    }

    /// Serves whom it can, and tells holders what is wanted.
    fn advance(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        if !self.may_grant() {
            return;
        }
        let (epoch, last_turn) = (self.epoch, &mut self.last_turn);
        let mut turn = || {
            *last_turn += 1;
            Turn {
                epoch,
                term: Term::BY_HASH,
                number: *last_turn,
            }
        };
        if let Some(entry) = self.entries.get_mut(&resource) {
            entry.serve(resource, &mut turn, out);
            let first_only = self.planted.breaks(Mutation::QueueUntold);
            entry.recall(resource, first_only, &mut turn, out);
        }
        self.tidy(resource);
    }

    pub(super) fn drive_all(&mut self, out: &mut Vec<Effect>) {
        for (&resource, entry) in &self.entries {
            entry.drive(resource, out);
        }
    }

    /// Takes back a request that nobody waits for any more. A grant under way is answered.
    pub(super) fn cancel(
        &mut self,
        resource: Resource,
        (from, id): (InstanceId, RequestId),
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        let waits = |at: &usize| entry.queue[*at].grant.is_none();
        if let Some(at) = entry.position(from, id).filter(waits) {
            entry.end(at, false);
        }
        self.advance(resource, out);
    }

    /// Lets the request `by` pass the request of `from`.
    pub(super) fn pass(
        &mut self,
        resource: Resource,
        of: (InstanceId, RequestId),
        by: (InstanceId, RequestId),
        out: &mut Vec<Effect>,
    ) {
        if let Some(entry) = self.entries.get_mut(&resource) {
            entry.pass(of, by);
        }
        self.advance(resource, out);
    }

    /// Answers a holder that asks whether a recall still stands.
    pub(super) fn recalling(
        &mut self,
        resource: Resource,
        (from, turn): (InstanceId, Turn),
        out: &mut Vec<Effect>,
    ) {
        let entry = self.entries.get(&resource);
        let told = entry.and_then(|e| e.told.get(&from)).map(|t| t.turn);
        match (entry, told) {
            (_, Some(told)) if told == turn => {}
            (Some(entry), Some(_)) if !entry.is_granted(from) => {
                entry.recall_again(resource, from, out);
            }
            (Some(_), Some(_)) => {}
            _ => {
                self.last_turn += 1;
                let turn = Turn {
                    number: self.last_turn,
                    ..turn
                };
                let message = Message::Recall {
                    resource,
                    turn,
                    wanted: Modes::default(),
                    patient: true,
                };
                out.push(Effect::Send { to: from, message });
            }
        }
    }

    pub(super) fn recalled(
        &mut self,
        resource: Resource,
        (from, turn): (InstanceId, Turn),
        (now, value): (Statement, Option<Value>),
        out: &mut Vec<Effect>,
    ) {
        if let Some(entry) = self.entries.get_mut(&resource) {
            entry.says(from, now, value);
            entry.answered(from, turn);
        }
        self.advance(resource, out);
    }

    /// Notes that a holder has given up by itself what it had.
    pub(super) fn released(
        &mut self,
        resource: Resource,
        (from, now): (InstanceId, Statement),
        out: &mut Vec<Effect>,
    ) {
        if let Some(entry) = self.entries.get_mut(&resource) {
            entry.says(from, now, None);
        }
        self.advance(resource, out);
    }

    pub(super) fn done(
        &mut self,
        resource: Resource,
        (from, id, turn): (InstanceId, RequestId, Turn),
        now: Statement,
        out: &mut Vec<Effect>,
    ) {
        let Some(entry) = self.entries.get_mut(&resource) else {
            return;
        };
        let this = |p: &Place| p.grant.is_some_and(|g| g.0 == turn);
        let Some(at) = entry
            .position(from, id)
            .filter(|at| this(&entry.queue[*at]))
        else {
            return;
        };
        entry.says(from, now, None);
        entry.end(at, false);
        self.advance(resource, out);
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
            |e: &Entry| usual(e) && e.queue.is_empty() && e.told.is_empty() && e.value.is_none();
        if self.entries.get(&resource).is_some_and(unused) {
            self.remove(resource);
        }
    }

    /// Forgets a resource that nobody waits for: its object is gone, or nobody else is there.
    pub(super) fn forget(&mut self, resource: Resource) {
        if (self.entries.get(&resource)).is_some_and(|e| e.queue.is_empty()) {
            self.remove(resource);
        }
    }

    fn remove(&mut self, resource: Resource) {
        for (from, number) in self
            .entries
            .remove(&resource)
            .into_iter()
            .flat_map(|e| e.heard)
        {
            let known = self.forgotten.entry(from).or_default();
            *known = number.max(*known);
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
        mastered: impl Fn(Resource) -> bool,
    ) {
        // This includes a living exclusive holder: its answer to a recall, with the value in it,
        // may be among the dropped messages. If it still has the lock, it declares the value.
        let writes = |e: &Entry| {
            let asked = e.queue.iter().map(|p| p.request.mode);
            let mut modes = e.holders.values().copied().chain(asked);
            modes.any(|m| m == Mode::Exclusive)
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
            entry.begin_epoch(match resource.implied() {
                Mode::Null => BTreeMap::new(),
                _ => everybody(resource),
            });
            mastered(resource)
        });
        self.epoch = epoch;
        self.forgotten.clear();
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
        }
        for lock in kept {
            let entry = self.entry(lock.resource);
            match lock.mode {
                Mode::Null => entry.holders.remove(&from),
                mode => entry.holders.insert(from, mode),
            };
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
            self.advance(resource, out);
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

    /// Which instances stand against this request, and how: by the mode that they exclude, or by a
    /// request of their own that is ahead.
    pub(super) fn blockers(
        &self,
        resource: Resource,
        (from, id): (InstanceId, RequestId),
    ) -> Vec<(InstanceId, Against)> {
        let entry = self.entries.get(&resource);
        entry.map_or_else(Vec::new, |e| e.blockers(from, id))
    }
}
