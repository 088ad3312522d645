//! The locks that this instance keeps, and the owners that use them.
//!
//! **Invariants**
//! 1. The owners' modes are pairwise compatible and covered by the kept mode.
//! 2. A kept lock stays until it is recalled: an owner that comes again sends nothing.
//! 3. From a recall on no owner is granted anything here until the recall is answered, so that the
//!    recalling request does not starve. Exempt are the owners whose end the recall waits for: they
//!    go on.
//! 4. Owners are served in order of arrival. An owner that converts goes before owners that hold
//!    nothing.
//! 5. While an implied resource is open, its users are not known here. A recall is answered only
//!    after the driver has closed the resource and named the users. A named user waits for nothing
//!    that it uses. After a strong lock elsewhere, weak owners may use the entry without the
//!    implied mode. An instance that lacks the implied mode and has such users asks for it with
//!    each tick until it has it again.
//! 6. An entry that was granted once stays, also with the implied mode: its turn tells a repeated
//!    grant that is in force from one that is not.

mod lock;

use super::message::{Effect, Kept, Message, Owner, Resource, Value};
use super::{Against, MasterOf, Mode};
use crate::ids::{RequestId, Turn};
use crate::planted::{Mutation, Planted};
use lock::{Lock, Recall, Waiting, Wanted, may_go, opened};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The most locks kept that nobody uses. Beyond it the instance gives up half of them. They take
/// about a megabyte here and at the masters.
pub(super) const MAX_IDLE: usize = 10_000;

/// The locks of this instance in one lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Locks {
    locks: BTreeMap<Resource, Lock>,
    last_id: u64,
    pub(super) planted: Planted,
}

impl Locks {
    fn entry(&mut self, resource: Resource) -> &mut Lock {
        self.locks
            .entry(resource)
            .or_insert_with(|| Lock::of(resource))
    }

    pub(super) fn acquire(
        &mut self,
        resource: Resource,
        (owner, mode, patient): (Owner, Mode, bool),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.entry(resource);
        // This holds also under a recall: the driver may have named an owner that was about to ask.
        if (lock.users.get(&owner)).is_some_and(|used| used.covers(mode)) {
            let value = lock.value;
            out.push(Effect::Granted {
                resource,
                owner,
                value,
            });
            return;
        }
        let waiting = Waiting {
            owner,
            mode,
            patient,
        };
        if lock.users.contains_key(&owner) {
            lock.waiting.push_front(waiting);
        } else {
            lock.waiting.push_back(waiting);
        }
        self.advance(resource, master, out);
    }

    /// Releases the lock of an owner that is through with it, or that does not wait for it any
    /// more. The instance keeps the lock.
    pub(super) fn release(
        &mut self,
        resource: Resource,
        owner: Owner,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        self.lower(resource, (owner, Mode::Null), master, out);
    }

    /// Lowers what an owner has to `mode`, because it needs no more. The owner waits for nothing
    /// more.
    pub(super) fn lower(
        &mut self,
        resource: Resource,
        (owner, mode): (Owner, Mode),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Some(lock) = self.locks.get_mut(&resource) else {
            return;
        };
        let waiters = lock.waiting.len();
        lock.waiting.retain(|w| w.owner != owner);
        let gave_up = lock.waiting.len() < waiters;
        match lock.users.get_mut(&owner) {
            // What the owner uses by implication beside that need not be known.
            Some(used) if mode != Mode::Null => {
                if used.covers(mode) {
                    *used = mode;
                }
            }
            _ => {
                lock.users.remove(&owner);
            }
        }
        if gave_up {
            self.cancel(resource, master, out);
        }
        self.advance(resource, master, out);
    }

    /// Takes back a request that the present waiters would not make: it would keep others waiting
    /// for nobody.
    fn cancel(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        let lock = self.entry(resource);
        let Some(wanted) = lock.wanted else {
            return;
        };
        let heir = lock.waiting.front().filter(|w| {
            let own = lock.own(w.owner);
            let needed = lock.mode.join(own.join(w.mode));
            (needed, own, w.patient) == (wanted.mode, wanted.own, wanted.patient)
        });
        let id = wanted.id;
        lock.wanted = heir.map(|w| Wanted {
            owner: Some(w.owner),
            ..wanted
        });
        if lock.wanted.is_none() {
            let to = master(resource);
            let message = Message::Cancel { resource, id };
            out.push(Effect::Send { to, message });
        }
    }

    /// Answers the master's question whether a request is still waited for.
    pub(super) fn waits(
        &self,
        resource: Resource,
        id: RequestId,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.locks.get(&resource);
        let to = master(resource);
        let message = match lock {
            Some(l) if l.wanted.is_some_and(|w| w.id == id) => return,
            // The request was granted, and `Done` is under way. If the master took it for given up,
            // it would forget what is held.
            Some(&Lock { turn, id: last, .. }) if last == id => Message::Done {
                resource,
                id,
                turn,
                holds: true,
            },
            _ => Message::Cancel { resource, id },
        };
        out.push(Effect::Send { to, message });
    }

    /// Takes back a recall that no requester wants any more.
    pub(super) fn void(
        &mut self,
        resource: Resource,
        turn: Turn,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.entry(resource);
        if turn > lock.turn {
            lock.voided = lock.voided.max(turn);
            if lock.recall.take_if(|r| r.turn == turn).is_some() {
                opened(resource, lock, out);
            }
            // This is what is left, whether the recall was answered or not.
            let (mode, value) = (lock.mode, lock.value);
            let to = master(resource);
            let message = Message::Recalled {
                resource,
                turn,
                mode,
                value,
            };
            out.push(Effect::Send { to, message });
        }
        self.advance(resource, master, out);
    }

    /// Takes the driver's answer to a closing: nobody uses the implied mode by himself any more,
    /// and `used` names those that still use it.
    pub(super) fn closed(
        &mut self,
        resource: Resource,
        used: &[(Owner, Mode)],
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let planted = self.planted;
        let lock = self.entry(resource);
        for &(owner, mode) in used {
            let has = lock.users.entry(owner).or_default();
            let joined = has.join(mode);
            assert!(lock.mode.covers(joined), "what is used was granted");
            *has = joined;
        }
        if !planted.breaks(Mutation::ConvertersQueue) {
            lock.grant_the_named(resource, out);
            lock.converters_first();
        }
        if let Some(recall) = &mut lock.recall {
            recall.closed = true;
        }
        self.advance(resource, master, out);
    }

    /// Notes that an exclusive owner changed what the value stands for. `data` rises with the
    /// changes.
    pub(super) fn set_value(&mut self, resource: Resource, owner: Owner, data: u64) -> Value {
        let lock = self.locks.get_mut(&resource).expect("held by its owner");
        assert_eq!(lock.users.get(&owner), Some(&Mode::Exclusive));
        let version = data.max(lock.value.map_or(0, |v| v.version) + 1);
        *lock.value.insert(Value { version, data })
    }

    /// Takes the value of a lock that an owner read from the dictionary, because nobody knew the
    /// value.
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
        self.turn_away(resource, out);
        self.tidy(resource);
    }

    fn tidy(&mut self, resource: Resource) {
        let untouched =
            |l: &Lock| l.mode == resource.implied() && (l.mode == Mode::Null || l.turn.number == 0);
        if (self.locks.get(&resource)).is_some_and(|l| l.is_idle() && untouched(l)) {
            self.locks.remove(&resource);
        }
    }

    fn serve(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        self.answer_recall(resource, master, out);
        let planted = self.planted;
        let lock = self.locks.get_mut(&resource).expect("the caller has it");
        while let Some(&waiting) = lock.waiting.front() {
            let Waiting { owner, mode, .. } = waiting;
            let stopped = match planted.breaks(Mutation::ConvertersQueue) {
                true => lock.recall.is_some(),
                false => lock.is_stopped(owner),
            };
            if stopped && !planted.breaks(Mutation::GrantDuringRecall) {
                return;
            }
            let target = lock.own(owner).join(mode);
            let mut others = lock.users.iter().filter(|(o, _)| **o != owner);
            if !lock.mode.covers(target) {
                self.want(resource, waiting, master, out);
                return;
            }
            if !others.all(|(_, m)| m.compatible(target)) {
                return;
            }
            lock.users.insert(owner, target);
            lock.waiting.pop_front();
            let implied = resource.implied();
            lock.detour |= implied.covers(target) && !lock.mode.covers(implied);
            let value = lock.value;
            out.push(Effect::Granted {
                resource,
                owner,
                value,
            });
        }
    }

    /// Denies impatient owners that would wait for another owner's use of the lock, here or, as far
    /// as it is known here, elsewhere.
    fn turn_away(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        let Some(lock) = self.locks.get_mut(&resource) else {
            return;
        };
        let asks_for_them = lock.wanted.filter(|w| !w.patient).and_then(|w| w.owner);
        if asks_for_them.is_some_and(|owner| !lock.is_stopped(owner)) {
            return; // the master's answer says more
        }
        lock.waiting.retain(|w| {
            if !w.patient {
                let owner = w.owner;
                out.push(Effect::Denied { resource, owner });
            }
            w.patient
        });
    }

    fn want(
        &mut self,
        resource: Resource,
        waiting: Waiting,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Waiting {
            owner,
            mode,
            patient,
        } = waiting;
        let lock = self.locks.get_mut(&resource).expect("the caller has it");
        let own = lock.own(owner);
        if let Some(wanted) = lock.wanted {
            if wanted.owner.is_some() && wanted.own.covers(own) {
                return;
            }
            // The request was made for an owner that uses nothing, or was not known to use so much.
            // So it may stand behind a request that waits for the end of this use. Or it was made
            // for nobody, and its denial would tell this owner nothing.
            let to = master(resource);
            let id = wanted.id;
            let message = Message::Cancel { resource, id };
            out.push(Effect::Send { to, message });
        }
        self.last_id += 1;
        lock.wanted = Some(Wanted {
            id: RequestId(self.last_id),
            owner: Some(owner),
            mode: lock.mode.join(own.join(mode)),
            own,
            patient,
        });
        self.ask(resource, master, out);
    }

    /// Asks for implied modes that are gone and would have been used since the last time. The
    /// requests are not patient, so a strong user elsewhere is not disturbed.
    pub(super) fn reopen(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        let mut asked = Vec::new();
        for (&resource, lock) in &mut self.locks {
            if lock.wants_implied(resource.implied()) {
                self.last_id += 1;
                lock.wanted = Some(Wanted {
                    id: RequestId(self.last_id),
                    owner: None,
                    mode: resource.implied(),
                    own: Mode::Null,
                    patient: false,
                });
                asked.push(resource);
            }
        }
        for resource in asked {
            self.ask(resource, master, out);
        }
    }

    fn ask(&self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        let lock = &self.locks[&resource];
        if let Some(Wanted {
            id,
            mode,
            own,
            patient,
            ..
        }) = lock.wanted
        {
            let to = master(resource);
            let message = Message::Request {
                resource,
                id,
                mode,
                has: lock.mode,
                own,
                patient,
            };
            out.push(Effect::Send { to, message });
        }
    }

    pub(super) fn ask_again(&self, master: MasterOf, out: &mut Vec<Effect>) {
        for (&resource, lock) in &self.locks {
            self.ask(resource, master, out);
            if let Some(Recall { turn, .. }) = lock.recall {
                let to = master(resource);
                let message = Message::Recalling { resource, turn };
                out.push(Effect::Send { to, message });
            }
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
        let lock = self.entry(resource);
        if lock.wanted.is_some_and(|w| w.id == id) {
            lock.wanted = None;
            lock.mode = mode;
            lock.turn = turn;
            lock.id = id;
            lock.value = value.max(lock.value);
            opened(resource, lock, out);
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

    pub(super) fn denied(
        &mut self,
        resource: Resource,
        id: RequestId,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Some(lock) = self.locks.get_mut(&resource) else {
            return;
        };
        if lock.wanted.is_some_and(|w| w.id == id) {
            lock.wanted = None;
            self.turn_away(resource, out);
            self.advance(resource, master, out);
        }
    }

    pub(super) fn recall(
        &mut self,
        resource: Resource,
        (turn, keep, patient): (Turn, Mode, bool),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.entry(resource);
        let is_over = turn <= lock.turn.max(lock.voided);
        if is_over || lock.recall.is_some_and(|r| r.turn > turn) {
            return;
        }
        let closed = lock.recall.is_some_and(|r| r.closed);
        lock.recall = Some(Recall {
            turn,
            keep,
            patient,
            closed,
        });
        match closed {
            false => out.push(Effect::Close { resource }),
            true => self.advance(resource, master, out),
        }
    }

    /// Gives up what is recalled, once no owner uses more than may be kept.
    fn answer_recall(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        let lock = self.locks.get_mut(&resource).expect("the caller has it");
        let Some(recall) = lock.recall.filter(|r| r.closed) else {
            return;
        };
        let (turn, keep) = (recall.turn, recall.keep);
        let ready = lock.users.values().all(|m| keep.covers(*m));
        let ready = ready || self.planted.breaks(Mutation::RecallFromUsers);
        if !ready && recall.patient {
            return;
        }
        lock.recall = None;
        let message = if ready {
            lock.mode = lock.mode.meet(keep); // a late recall takes nothing back
            let (mode, value) = (lock.mode, lock.value);
            if mode == Mode::Null {
                lock.value = None; // from now on others may change it
            }
            Message::Recalled {
                resource,
                turn,
                mode,
                value,
            }
        } else {
            Message::Refused { resource, turn }
        };
        opened(resource, lock, out);
        let to = master(resource);
        out.push(Effect::Send { to, message });
    }

    /// Excludes the implied mode of a resource that the master gave to others before this instance
    /// joined.
    pub(super) fn exclude(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        self.entry(resource).mode = Mode::Null;
        out.push(Effect::Close { resource });
    }

    /// Enters a new epoch: recalls under way are void, and what is kept is declared to the masters.
    pub(super) fn new_epoch(&mut self, out: &mut Vec<Effect>) {
        self.locks.retain(|&resource, lock| {
            if lock.recall.take().is_some() {
                opened(resource, lock, out);
            }
            // Grants of the old epoch do not come any more.
            !(lock.is_idle() && lock.mode == resource.implied())
        });
    }

    /// The kept locks behind `after`, in the order of their resources.
    pub(super) fn kept(&self, after: Option<Resource>) -> impl Iterator<Item = Kept> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let locks = self.locks.range((from, Bound::Unbounded));
        let held = locks.filter(|(r, l)| l.mode != r.implied());
        held.map(|(&resource, lock)| Kept {
            resource,
            mode: lock.mode,
            turn: lock.turn,
            id: lock.id,
            value: lock.value,
        })
    }

    /// Asks again for what was asked for, and serves every owner that can be served.
    pub(super) fn resume(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        self.ask_again(master, out);
        let resources: Vec<Resource> = self.locks.keys().copied().collect();
        for resource in resources {
            self.advance(resource, master, out);
        }
    }

    /// Gives up half of the locks that nobody uses, if there are too many. Locks with a known value
    /// stay.
    pub(super) fn shed(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        let idle = |(r, l): &(&Resource, &Lock)| may_go(**r, l);
        let all: Vec<Resource> = self.locks.iter().filter(idle).map(|(r, _)| *r).collect();
        if all.len() <= MAX_IDLE {
            return;
        }
        for resource in all.into_iter().step_by(2) {
            self.give_up(resource, master, out);
        }
    }

    /// Gives up a lock that nobody uses, without a recall.
    pub(super) fn give_up(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        if let Some(lock) = self.locks.get(&resource).filter(|l| may_go(resource, l)) {
            let id = lock.id;
            self.locks.remove(&resource);
            let to = master(resource);
            let message = Message::Released { resource, id };
            out.push(Effect::Send { to, message });
        }
    }

    /// Forgets a lock that nobody uses: its object is gone, or no other instance is there.
    pub(super) fn forget(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        if self.locks.get(&resource).is_some_and(Lock::is_idle) {
            self.locks.remove(&resource);
            opened(resource, &Lock::of(resource), out);
        }
    }

    /// Whether a request elsewhere has recalled the lock.
    pub(super) fn is_recalled(&self, resource: Resource) -> bool {
        self.locks
            .get(&resource)
            .is_some_and(|l| l.recall.is_some())
    }

    pub(super) fn value_of(&self, resource: Resource) -> Option<Value> {
        self.locks.get(&resource)?.value
    }

    /// What stands in the way of an owner that waits here: owners of this instance, and whether the
    /// master knows of others.
    pub(super) fn blockers(&self, resource: Resource, waiter: Owner) -> Option<(Vec<Owner>, bool)> {
        let lock = self.locks.get(&resource)?;
        let at = lock.waiting.iter().position(|w| w.owner == waiter)?;
        let target = lock.own(waiter).join(lock.waiting[at].mode);
        let users = lock
            .users
            .iter()
            .filter(|(o, m)| **o != waiter && !m.compatible(target));
        let ahead = lock.waiting.iter().take(at).map(|w| w.owner);
        let blockers = users.map(|(&o, _)| o).chain(ahead).collect();
        // An owner that has the lock and wants no more than the instance has waits for nobody
        // elsewhere.
        let only_here = lock.users.contains_key(&waiter) && lock.mode.covers(target);
        let asked = lock.wanted.is_some() && !only_here;
        Some((blockers, asked || lock.is_stopped(waiter)))
    }

    /// The owners of this instance that stand against a request in the given way.
    pub(super) fn owners_against(&self, resource: Resource, against: Against) -> Vec<Owner> {
        let Some(lock) = self.locks.get(&resource) else {
            return Vec::new();
        };
        match against {
            Against::Use(mode) => {
                let users = lock.users.iter().filter(|(_, m)| !m.compatible(mode));
                users.map(|(&o, _)| o).collect()
            }
            // A later request of this instance does not count: it may stand behind the instance
            // that asks.
            Against::Ahead(id) => {
                let this = lock.wanted.filter(|w| w.id == id);
                this.and_then(|w| w.owner).into_iter().collect()
            }
        }
    }
}
