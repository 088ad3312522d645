//! The locks that this instance keeps, and the owners that use them.
//!
//! **Invariants**
//! 1. The owners' modes are pairwise compatible and covered by the kept mode. The kept mode covers
//!    what admitted waiters wait for, too.
//! 2. A kept lock stays until it is recalled: an owner that comes again sends nothing.
//! 3. An owner is granted nothing past a waiter that came before and that it excludes, wherever
//!    that waiter is. Exempt are the waiters that wait for the end of what the owner uses.
//!    If the kept mode allows what an owner wants, and neither a recall nor a request of this
//!    instance stops it, it is admitted at once. Otherwise it has a request at the master.
//! 4. A recall is answered as far as users and admitted waiters allow.
//! 5. While an implied resource is open, its users are not known here. A recall is answered only
//!    after the driver has closed the resource and named the users. A named user waits for nothing
//!    that it uses. After a strong lock elsewhere, weak owners may use the entry without the
//!    implied mode. An instance that lacks the implied mode and has such users asks for it with
//!    each tick until it has it again.
//! 6. An entry that was granted once stays, also with the implied mode: its turn tells a repeated
//!    grant that is in force from one that is not.

mod lock;
mod upkeep;

use super::message::{Effect, Message, Owner, Resource, Statement, Value};
use super::{Against, MasterOf, Mode, Modes};
use crate::ids::{RequestId, Turn};
use crate::planted::{Mutation, Planted};
use lock::{Lock, Waiting};
use std::collections::BTreeMap;

/// The most locks kept that nobody uses. Beyond it the instance gives up half of them. They take
/// about a megabyte here and at the masters.
pub(super) const MAX_IDLE: usize = 10_000;

/// The locks of this instance in one lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Locks {
    locks: BTreeMap<Resource, Lock>,
    last_id: u64,
    /// The number of the last statement.
    last_number: u64,
    pub(super) planted: Planted,
}

impl Locks {
    fn entry(&mut self, resource: Resource) -> &mut Lock {
        self.locks
            .entry(resource)
            .or_insert_with(|| Lock::of(resource))
    }

    fn next_id(&mut self) -> RequestId {
        self.last_id += 1;
        RequestId(self.last_id)
    }

    /// What this instance says now of the mode that it has.
    fn statement(&mut self, resource: Resource) -> Statement {
        self.last_number += 1;
        let lock = self.locks.get(&resource);
        Statement {
            number: self.last_number,
            has: lock.map_or(resource.implied(), |l| l.mode),
        }
    }

    pub(super) fn acquire(
        &mut self,
        resource: Resource,
        (owner, mode, patient): (Owner, Mode, bool),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let planted = self.planted;
        let lock = self.entry(resource);
        let own = lock.own(owner);
        // This holds also under a recall: the driver may have named an owner that was about to ask.
        if own.covers(mode) && mode != Mode::Null {
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
            mode: own.join(mode),
            patient,
            id: RequestId::default(),
            admitted: false,
            moved: false,
        };
        let stopped = match planted.breaks(Mutation::ConvertersQueue) {
            true => lock.is_stopped(Mode::Null, waiting.mode),
            false => lock.is_stopped(own, waiting.mode),
        };
        let stopped = stopped && !planted.breaks(Mutation::GrantDuringRecall);
        let used = || lock.users_against(owner, waiting.mode).next().is_some();
        if !stopped && lock.mode.covers(waiting.mode) {
            lock.admit(waiting);
        } else if !patient && (stopped || used()) {
            out.push(Effect::Denied { resource, owner });
        } else {
            self.stand_in_line(resource, waiting, master, out);
        }
        self.advance(resource, master, out);
    }

    /// Asks the master for a waiter's place among those of all instances.
    fn stand_in_line(
        &mut self,
        resource: Resource,
        waiting: Waiting,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let id = self.next_id();
        let admitted = false;
        let asked = Waiting {
            id,
            admitted,
            ..waiting
        };
        self.entry(resource).waiting.push(asked);
        self.ask(resource, asked, master, out);
    }

    fn ask(
        &mut self,
        resource: Resource,
        waiting: Waiting,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let now = self.statement(resource);
        let lock = &self.locks[&resource];
        let asked = lock.waiting.iter().filter(|w| !w.admitted).map(|w| w.id);
        let floor = asked.chain(lock.reopening).chain([waiting.id]).min();
        let message = Message::Request {
            resource,
            id: waiting.id,
            floor: floor.expect("there is this one"),
            mode: waiting.mode,
            own: lock.own(waiting.owner),
            patient: waiting.patient,
            now,
        };
        let to = master(resource);
        out.push(Effect::Send { to, message });
    }

    /// Lowers what an owner has to `mode`, because it needs no more. The owner waits for nothing
    /// more. The instance keeps the lock.
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
        let gone = lock.waiting.extract_if(.., |w| w.owner == owner);
        let asked = gone.filter(|w| !w.admitted).map(|w| w.id);
        for id in asked.collect::<Vec<_>>() {
            let to = master(resource);
            let message = Message::Cancel { resource, id };
            out.push(Effect::Send { to, message });
        }
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
        self.advance(resource, master, out);
    }

    /// Answers the master's question whether a request is still waited for.
    pub(super) fn waits(
        &mut self,
        resource: Resource,
        id: RequestId,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.locks.get(&resource);
        let asked = |w: &Waiting| w.id == id && !w.admitted;
        let message = match lock {
            Some(l) if l.reopening == Some(id) || l.waiting.iter().any(asked) => return,
            // The request was granted, and `Done` is under way. If the master took it for given up,
            // it would forget what is held.
            Some(&Lock { turn, id: last, .. }) if last == id => Message::Done {
                resource,
                id,
                turn,
                now: self.statement(resource),
            },
            _ => Message::Cancel { resource, id },
        };
        let to = master(resource);
        out.push(Effect::Send { to, message });
    }

    fn advance(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        let Some(lock) = self.locks.get_mut(&resource) else {
            return;
        };
        serve(resource, lock, out);
        self.answer_recall(resource, master, out);
        if let Some(lock) = self.locks.get_mut(&resource) {
            lock.open(resource, out);
        }
        self.tidy(resource);
    }

    fn tidy(&mut self, resource: Resource) {
        let untouched =
            |l: &Lock| l.mode == resource.implied() && (l.mode == Mode::Null || l.turn.number == 0);
        let may_go = |l: &Lock| l.is_idle() && !l.closed && untouched(l);
        if self.locks.get(&resource).is_some_and(may_go) {
            self.locks.remove(&resource);
        }
    }

    /// Gives up what is wanted elsewhere, as far as nobody here needs it.
    fn answer_recall(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        let lock = self.locks.get_mut(&resource).expect("the caller has it");
        // Otherwise the driver is about to name those that use the lock.
        let known = lock.closed || !lock.is_shut(resource);
        let Some(wants) = lock.wants.filter(|_| known) else {
            return;
        };
        let needed = lock.needed(self.planted);
        let keep = match lock.closed {
            true => lock.keeps(wants.modes, needed),
            // Owners may use the implied mode by themselves.
            false => lock.keeps(wants.modes, needed.join(resource.implied())),
        };
        let unasked = wants.patient || wants.answered;
        if keep == lock.mode && unasked {
            return;
        }
        lock.mode = keep;
        let value = lock.value;
        if keep == Mode::Null {
            lock.value = None; // from now on others may change it
        }
        let modes = wants.modes.excluding(keep);
        lock.wants = (!modes.is_empty()).then_some(lock::Wants {
            modes,
            answered: true,
            ..wants
        });
        self.say(resource, (wants.turn, value), master, out);
    }

    /// Says because of a recall what this instance has.
    fn say(
        &mut self,
        resource: Resource,
        (turn, value): (Turn, Option<Value>),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let now = self.statement(resource);
        let message = Message::Recalled {
            resource,
            turn,
            now,
            value,
        };
        let to = master(resource);
        out.push(Effect::Send { to, message });
    }

    pub(super) fn granted(
        &mut self,
        resource: Resource,
        (id, turn): (RequestId, Turn),
        (mode, value, wanted): (Mode, Option<Value>, Modes),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.entry(resource);
        let asked = |w: &Waiting| w.id == id && !w.admitted;
        let waiting = lock.waiting.iter().position(asked);
        if waiting.is_some() || lock.reopening == Some(id) {
            lock.mode = mode;
            lock.turn = turn;
            lock.id = id;
            lock.value = value.max(lock.value);
            lock.reopening = lock.reopening.filter(|r| *r != id);
            if let Some(waiting) = waiting.map(|at| lock.waiting.remove(at)) {
                lock.admit(waiting);
            }
        }
        // What is wanted elsewhere holds also if nobody waits for the grant any more.
        if turn > lock.heard && lock.want(resource, (turn, wanted), true) {
            out.push(Effect::Close { resource });
        }
        let now = self.statement(resource);
        let message = Message::Done {
            resource,
            id,
            turn,
            now,
        };
        let to = master(resource);
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
        lock.reopening = lock.reopening.filter(|r| *r != id);
        let asked = |w: &mut Waiting| w.id == id && !w.admitted;
        for w in lock.waiting.extract_if(.., asked) {
            let owner = w.owner;
            out.push(Effect::Denied { resource, owner });
        }
        self.advance(resource, master, out);
    }

    pub(super) fn recall(
        &mut self,
        resource: Resource,
        (turn, wanted, patient): (Turn, Modes, bool),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let lock = self.entry(resource);
        if turn < lock.heard {
            return;
        }
        // It may be said again, because the answer was lost. Or the instance has less than its
        // master believes.
        let again = turn == lock.heard && !wanted.is_empty();
        let tells = again || wanted.excluding(lock.mode) != wanted;
        if !again && lock.want(resource, (turn, wanted), patient) {
            out.push(Effect::Close { resource });
        }
        if tells && (lock.closed || lock.wants.is_none()) {
            let value = lock.value;
            self.say(resource, (turn, value), master, out);
        }
        self.advance(resource, master, out);
    }

    /// What stands in the way of an owner that waits here: owners of this instance, each with
    /// whether it merely stands ahead in the queue and could let this one pass; and the request at
    /// the master, if there is one.
    pub(super) fn blockers(
        &self,
        resource: Resource,
        waiter: Owner,
    ) -> Option<(super::Blockers, Option<RequestId>)> {
        let lock = self.locks.get(&resource)?;
        let at = lock.waiting.iter().position(|w| w.owner == waiter)?;
        let this = lock.waiting[at];
        let mut blockers: Vec<(Owner, bool)> = Vec::new();
        blockers.extend(lock.users_against(waiter, this.mode).map(|o| (o, false)));
        let ahead = lock.waiting.iter().take(at).filter(|w| w.admitted);
        let ahead = ahead.filter(|w| !w.mode.compatible(this.mode));
        blockers.extend(ahead.map(|w| (w.owner, !w.moved)));
        Some((blockers, Some(this.id).filter(|_| !this.admitted)))
    }

    /// The owners of this instance that stand against a request in the given way, each with whether
    /// it merely stands ahead and could let the request pass.
    pub(super) fn owners_against(
        &self,
        resource: Resource,
        against: Against,
    ) -> Vec<(Owner, bool)> {
        let Some(lock) = self.locks.get(&resource) else {
            return Vec::new();
        };
        match against {
            Against::Use(mode) => {
                let users = lock.users.iter().filter(|(_, m)| !m.compatible(mode));
                let admitted = lock.waiting.iter().filter(|w| w.admitted);
                let admitted = admitted.filter(|w| !w.mode.compatible(mode));
                let users = users.map(|(&o, _)| (o, false));
                users.chain(admitted.map(|w| (w.owner, !w.moved))).collect()
            }
            Against::Ahead { id, soft } => {
                let this = lock.waiting.iter().filter(|w| w.id == id);
                this.map(|w| (w.owner, soft)).collect()
            }
        }
    }

    /// Lets a waiter pass `owner`, which stands ahead of it in the queue: each would wait for the
    /// other. `by` is the waiter, with its request if it has one at the master.
    pub(super) fn let_pass(
        &mut self,
        resource: Resource,
        owner: Owner,
        (by, request): (Owner, RequestId),
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let Some(lock) = self.locks.get_mut(&resource) else {
            return;
        };
        let Some(at) = lock.waiting.iter().position(|w| w.owner == owner) else {
            return;
        };
        let this = lock.waiting[at];
        let is_by = |w: &Waiting| w.owner == by && w.admitted;
        if !this.admitted {
            // Its place is the master's to change, also if it has stood back here before.
            let message = Message::Pass {
                resource,
                id: this.id,
                by: (by.instance(), request),
            };
            let to = master(resource);
            out.push(Effect::Send { to, message });
        } else if this.moved {
            return;
        } else if let Some(other) = lock.waiting.iter().position(is_by) {
            if at < other {
                let mut passes = lock.waiting.remove(other);
                passes.moved = true;
                lock.waiting.insert(at, passes);
            }
        } else {
            // It gives its place up, and stands behind the other at the master.
            let mut stands_back = lock.waiting.remove(at);
            stands_back.moved = true;
            self.stand_in_line(resource, stands_back, master, out);
        }
        self.advance(resource, master, out);
    }
}

/// Grants the lock to admitted waiters, in order. Those without patience do not wait for owners of
/// this instance.
fn serve(resource: Resource, lock: &mut Lock, out: &mut Vec<Effect>) {
    let mut at = 0;
    while let Some(&waiting) = lock.waiting.get(at).filter(|w| w.admitted) {
        let owner = waiting.owner;
        let target = lock.own(owner).join(waiting.mode);
        let mut ahead = lock.waiting.iter().take(at);
        let in_turn = ahead.all(|w| w.mode.compatible(target));
        if in_turn && lock.users_against(owner, target).next().is_none() {
            lock.waiting.remove(at);
            lock.users.insert(owner, target);
            let implied = resource.implied();
            lock.detour |= implied.covers(target) && !lock.mode.covers(implied);
            let value = lock.value;
            out.push(Effect::Granted {
                resource,
                owner,
                value,
            });
        } else if waiting.patient {
            at += 1;
        } else {
            lock.waiting.remove(at);
            out.push(Effect::Denied { resource, owner });
        }
    }
}
