//! The locks that this instance keeps, and the owners that use them.
//!
//! **Invariants**
//! 1. The owners' modes are pairwise compatible and covered by the kept mode.
//! 2. A kept lock stays until it is recalled: an owner that comes again sends nothing.
//! 3. From the recall on no owner is granted anything here until the recall is answered, so that what recalled it does not starve.
//! 4. Owners are served in order of arrival; an owner that converts goes before those that hold nothing.

use super::message::{Effect, Kept, Message, Owner, Resource, Value};
use super::{MasterOf, Mode};
use crate::ids::{RequestId, Turn};
use crate::planted::{Mutation, Planted};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Waiting {
    owner: Owner,
    mode: Mode,
    /// Tells this wait from every other one of the owner.
    wait: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Lock {
    mode: Mode,
    turn: Turn,
    id: RequestId,
    value: Option<Value>,
    users: BTreeMap<Owner, Mode>,
    waiting: VecDeque<Waiting>,
    wanted: Option<(RequestId, Mode)>,
    recall: Option<(Turn, Mode)>,
}

/// This instance's locks of one lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Locks {
    locks: BTreeMap<Resource, Lock>,
    last_id: u64,
    last_wait: u64,
    pub(super) planted: Planted,
}

impl Locks {
    pub(super) fn acquire(
        &mut self,
        resource: Resource,
        owner: Owner,
        mode: Mode,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let wait = self.next_wait();
        let waiting = Waiting { owner, mode, wait };
        let lock = self.locks.entry(resource).or_default();
        if lock.users.contains_key(&owner) {
            lock.waiting.push_front(waiting);
        } else {
            lock.waiting.push_back(waiting);
        }
        self.advance(resource, master, out);
    }

    /// The owner is through with the lock, or does not wait for it any more. The instance keeps it.
    pub(super) fn release(
        &mut self,
        resource: Resource,
        owner: Owner,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if let Some(lock) = self.locks.get_mut(&resource) {
            lock.users.remove(&owner);
            lock.waiting.retain(|w| w.owner != owner);
            self.advance(resource, master, out);
        }
    }

    /// An exclusive owner changed what the value stands for.
    pub(super) fn set_value(&mut self, resource: Resource, owner: Owner, data: u64) {
        let lock = self.locks.get_mut(&resource).expect("held by its owner");
        assert_eq!(lock.users.get(&owner), Some(&Mode::Exclusive));
        let version = lock.value.map_or(0, |v| v.version) + 1;
        lock.value = Some(Value { version, data });
    }

    /// The value of a lock whose value nobody knew was read from the dictionary.
    pub(super) fn value_read(
        &mut self,
        resource: Resource,
        value: Value,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if let Some(lock) = self.locks.get_mut(&resource)
            && lock.value.is_none()
        {
            lock.value = Some(value);
            let to = master(resource);
            let message = Message::ValueRead { resource, value };
            out.push(Effect::Send { to, message });
        }
    }

    fn advance(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        self.serve(resource, master, out);
        let unused = |l: &Lock| {
            let idle = l.users.is_empty() && l.waiting.is_empty();
            idle && l.mode == Mode::Null && l.wanted.is_none() && l.recall.is_none()
        };
        if self.locks.get(&resource).is_some_and(unused) {
            self.locks.remove(&resource);
        }
    }

    fn serve(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        self.answer_recall(resource, master, out);
        let lock = self.locks.get_mut(&resource).expect("the caller has it");
        if lock.recall.is_some() && !self.planted.breaks(Mutation::GrantDuringRecall) {
            return;
        }
        while let Some(&Waiting { owner, mode, .. }) = lock.waiting.front() {
            let own = lock.users.get(&owner).copied().unwrap_or_default();
            let target = own.join(mode);
            let mut others = lock.users.iter().filter(|(o, _)| **o != owner);
            if !lock.mode.covers(target) {
                self.want(resource, target, master, out);
                return;
            }
            if !others.all(|(_, m)| m.compatible(target)) {
                return;
            }
            lock.users.insert(owner, target);
            lock.waiting.pop_front();
            let value = lock.value;
            out.push(Effect::Granted {
                resource,
                owner,
                value,
            });
        }
    }

    fn want(&mut self, resource: Resource, target: Mode, master: MasterOf, out: &mut Vec<Effect>) {
        let lock = self.locks.get_mut(&resource).expect("the caller has it");
        if lock.wanted.is_some() {
            return;
        }
        self.last_id += 1;
        lock.wanted = Some((RequestId(self.last_id), lock.mode.join(target)));
        self.ask(resource, master, out);
    }

    fn ask(&self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        if let Some((id, mode)) = self.locks[&resource].wanted {
            let to = master(resource);
            let message = Message::Request { resource, id, mode };
            out.push(Effect::Send { to, message });
        }
    }

    pub(super) fn ask_again(&self, master: MasterOf, out: &mut Vec<Effect>) {
        for &resource in self.locks.keys() {
            self.ask(resource, master, out);
        }
    }

    pub(super) fn granted(
        &mut self,
        resource: Resource,
        (id, turn): (RequestId, Turn),
        (mode, value): (Mode, Option<Value>),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.locks.entry(resource).or_default();
        if lock.wanted.is_some_and(|(wanted, _)| wanted == id) {
            lock.wanted = None;
            lock.mode = mode;
            lock.turn = turn;
            lock.id = id;
            lock.value = value.max(lock.value);
        }
        let holds = lock.turn == turn;
        let to = master(resource);
        let message = Message::Done {
            resource,
            id,
            turn,
            holds,
        };
        out.push(Effect::Send { to, message });
        self.advance(resource, master, out);
    }

    pub(super) fn recall(
        &mut self,
        resource: Resource,
        turn: Turn,
        keep: Mode,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.locks.entry(resource).or_default();
        if turn > lock.turn {
            lock.recall = Some((turn, keep));
            self.advance(resource, master, out);
        }
    }

    /// Gives up what is recalled, once no owner uses more than may be kept.
    fn answer_recall(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        let lock = self.locks.get_mut(&resource).expect("the caller has it");
        let Some((turn, keep)) = lock.recall else {
            return;
        };
        let ready = lock.users.values().all(|m| keep.covers(*m));
        if !ready && !self.planted.breaks(Mutation::RecallFromUsers) {
            return;
        }
        lock.recall = None;
        if !keep.covers(lock.mode) {
            lock.mode = keep;
        }
        let (mode, value) = (lock.mode, lock.value);
        if mode == Mode::Null {
            lock.value = None; // from now on others may change it
        }
        let to = master(resource);
        let message = Message::Recalled {
            resource,
            turn,
            mode,
            value,
        };
        out.push(Effect::Send { to, message });
    }

    /// A new epoch: recalls under way are void, what is kept is declared to the masters.
    pub(super) fn new_epoch(&mut self) {
        for lock in self.locks.values_mut() {
            lock.recall = None;
        }
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = Kept> + '_ {
        let held = self.locks.iter().filter(|(_, l)| l.mode != Mode::Null);
        held.map(|(&resource, lock)| Kept {
            resource,
            mode: lock.mode,
            turn: lock.turn,
            id: lock.id,
            value: lock.value,
        })
    }

    /// Values that may have been changed by a dead holder are unknown from now on. Declared by the master with the next
    /// grant; here it concerns only what this instance keeps, which no exclusive holder can have stood beside.
    pub(super) fn resume(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        self.ask_again(master, out);
        let resources: Vec<Resource> = self.locks.keys().copied().collect();
        for resource in resources {
            self.advance(resource, master, out);
        }
    }

    pub(super) fn next_wait(&mut self) -> u64 {
        self.last_wait += 1;
        self.last_wait
    }

    /// What an owner waits for here, if for anything: the resource, the wait's number, the owners of this instance that
    /// stand in its way, and whether the instance as a whole waits at the master.
    pub(super) fn wait_of(&self, waiter: Owner) -> Option<(Resource, u64, Vec<Owner>, bool)> {
        let position = |l: &Lock| l.waiting.iter().position(|w| w.owner == waiter);
        let mut all = self.locks.iter();
        let (&resource, lock, at) = all.find_map(|(r, l)| position(l).map(|at| (r, l, at)))?;
        let own = lock.users.get(&waiter).copied().unwrap_or_default();
        let target = own.join(lock.waiting[at].mode);
        let users = lock
            .users
            .iter()
            .filter(|(o, m)| **o != waiter && !m.compatible(target));
        let ahead = lock.waiting.iter().take(at).map(|w| w.owner);
        let blockers = users.map(|(&o, _)| o).chain(ahead).collect();
        let wait = lock.waiting[at].wait;
        Some((resource, wait, blockers, lock.wanted.is_some()))
    }

    /// The owners behind this instance's part of a lock that stand against `mode`: those that use it, or, for a request that
    /// stands ahead at the master, those that wait for it.
    pub(super) fn owners_against(&self, resource: Resource, mode: Mode, ahead: bool) -> Vec<Owner> {
        let lock = self.locks.get(&resource);
        let users = lock
            .into_iter()
            .flat_map(|l| l.users.iter().map(|(&o, &m)| (o, m)));
        let waiting = lock
            .into_iter()
            .flat_map(|l| l.waiting.iter().map(|w| (w.owner, w.mode)));
        let waiting = waiting.filter(|_| ahead);
        let against = users.chain(waiting).filter(|(_, m)| !m.compatible(mode));
        against.map(|(o, _)| o).collect()
    }
}
