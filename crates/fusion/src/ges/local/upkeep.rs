//! What the driver, the timer and a new epoch ask of the locks of this instance.

use super::lock::{Lock, Waiting, may_go};
use super::{Locks, MAX_IDLE};
use crate::ges::{Effect, Kept, MasterOf, Message, Mode, Owner, Resource, Value};
use crate::ids::RequestId;
use crate::planted::Mutation;
use std::ops::Bound;

impl Locks {
    /// Takes the driver's answer to a closing: nobody uses the implied mode by himself any more,
    /// and `used` names those that still use it.
    pub(in crate::ges) fn closed(
        &mut self,
        resource: Resource,
        used: &[(Owner, Mode)],
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        let planted = self.planted;
        let lock = self.entry(resource);
        lock.closed = true;
        for &(owner, mode) in used {
            let has = lock.users.entry(owner).or_default();
            let joined = has.join(mode);
            assert!(lock.mode.covers(joined), "what is used was granted");
            *has = joined;
        }
        if !planted.breaks(Mutation::ConvertersQueue) {
            self.place_the_named(resource, used, master, out);
        }
        let lock = self.entry(resource);
        super::serve(resource, lock, out);
        self.answer_recall(resource, master, out);
        // The driver may have closed an implied resource for an owner that is about to ask.
        if resource.implied() == Mode::Null {
            self.advance(resource, master, out);
        }
    }

    /// Puts waiters that were named as users where they belong: before those that wait for their
    /// end.
    fn place_the_named(
        &mut self,
        resource: Resource,
        used: &[(Owner, Mode)],
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        for &(owner, _) in used {
            let lock = self.entry(resource);
            let Some(at) = lock.waiting.iter().position(|w| w.owner == owner) else {
                continue;
            };
            let (own, this) = (lock.own(owner), lock.waiting[at]);
            let mut ahead = lock.waiting.iter().take(at).filter(|w| w.admitted);
            let passes = ahead.any(|w| !w.mode.compatible(own));
            if this.admitted && passes {
                lock.waiting.remove(at);
                lock.admit(this);
            } else if !this.admitted {
                self.ask(resource, this, master, out); // its request says that it uses less
            }
        }
    }

    /// Notes that an exclusive owner changed what the value stands for. `data` rises with the
    /// changes.
    pub(in crate::ges) fn set_value(
        &mut self,
        resource: Resource,
        owner: Owner,
        data: u64,
    ) -> Value {
        let lock = self.locks.get_mut(&resource).expect("held by its owner");
        assert_eq!(lock.users.get(&owner), Some(&Mode::Exclusive));
        let version = data.max(lock.value.map_or(0, |v| v.version) + 1);
        *lock.value.insert(Value { version, data })
    }

    /// Takes the value of a lock that an owner read from the dictionary, because nobody knew the
    /// value.
    pub(in crate::ges) fn value_read(
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

    /// Asks for implied modes that are gone and would have been used since the last time. The
    /// requests are not patient, so a strong user elsewhere is not disturbed.
    pub(in crate::ges) fn reopen(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        let mut asked = Vec::new();
        let mut last_id = self.last_id;
        for (&resource, lock) in &mut self.locks {
            if lock.wants_implied(resource.implied()) {
                last_id += 1;
                lock.reopening = Some(RequestId(last_id));
                asked.push(resource);
            }
        }
        self.last_id = last_id;
        for resource in asked {
            self.ask_for_implied(resource, master, out);
        }
    }

    fn ask_for_implied(&mut self, resource: Resource, master: MasterOf, out: &mut Vec<Effect>) {
        let Some(id) = self.locks.get(&resource).and_then(|l| l.reopening) else {
            return;
        };
        let asked = self.locks[&resource].waiting.iter().filter(|w| !w.admitted);
        let floor = asked.map(|w| w.id).chain([id]).min().expect("there is id");
        let now = self.statement(resource);
        let to = master(resource);
        let message = Message::Request {
            resource,
            id,
            floor,
            mode: resource.implied(),
            own: Mode::Null,
            patient: false,
            now,
        };
        out.push(Effect::Send { to, message });
    }

    /// Says again what may have been lost.
    pub(in crate::ges) fn ask_again(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        let resources: Vec<Resource> = self.locks.keys().copied().collect();
        for resource in resources {
            let lock = &self.locks[&resource];
            if let Some(wants) = lock.wants {
                let turn = wants.turn;
                let to = master(resource);
                let message = Message::Recalling { resource, turn };
                out.push(Effect::Send { to, message });
            }
            let waiting: Vec<Waiting> = lock.waiting.clone();
            for asked in waiting.into_iter().filter(|w| !w.admitted) {
                self.ask(resource, asked, master, out);
            }
            self.ask_for_implied(resource, master, out);
        }
    }

    /// Excludes the implied mode of a resource that the master gave to others before this instance
    /// joined.
    pub(in crate::ges) fn exclude(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        self.entry(resource).mode = Mode::Null;
        out.push(Effect::Close { resource });
    }

    /// Enters a new epoch: recalls under way are void, and what is kept is declared to the masters.
    pub(in crate::ges) fn new_epoch(&mut self, out: &mut Vec<Effect>) {
        self.locks.retain(|&resource, lock| {
            lock.wants = None;
            lock.open(resource, out);
            // Grants of the old epoch do not come any more.
            !(lock.is_idle() && !lock.closed && lock.mode == resource.implied())
        });
    }

    /// The kept locks behind `after`, in the order of their resources.
    pub(in crate::ges) fn kept(&self, after: Option<Resource>) -> impl Iterator<Item = Kept> + '_ {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let locks = self.locks.range((from, Bound::Unbounded));
        let held = locks.filter(|(r, l)| l.mode != r.implied());
        held.map(|(&resource, lock)| Kept {
            resource,
            mode: lock.mode,
            value: lock.value,
        })
    }

    /// Asks again for what was asked for, and serves every owner that can be served.
    pub(in crate::ges) fn resume(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
        self.ask_again(master, out);
        let resources: Vec<Resource> = self.locks.keys().copied().collect();
        for resource in resources {
            self.advance(resource, master, out);
        }
    }

    /// Gives up half of the locks that nobody uses, if there are too many. Locks with a known value
    /// stay.
    pub(in crate::ges) fn shed(&mut self, master: MasterOf, out: &mut Vec<Effect>) {
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
    pub(in crate::ges) fn give_up(
        &mut self,
        resource: Resource,
        master: MasterOf,
        out: &mut Vec<Effect>,
    ) {
        if self
            .locks
            .get(&resource)
            .is_some_and(|l| may_go(resource, l))
        {
            self.locks.remove(&resource);
            let now = self.statement(resource);
            let to = master(resource);
            let message = Message::Released { resource, now };
            out.push(Effect::Send { to, message });
        }
    }

    /// Forgets a lock that nobody uses: its object is gone, or no other instance is there.
    pub(in crate::ges) fn forget(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        if let Some(lock) = self.locks.get(&resource).filter(|l| l.is_idle()) {
            if lock.closed && resource.implied() != Mode::Null {
                out.push(Effect::Opened { resource });
            }
            self.locks.remove(&resource);
        }
    }

    /// Whether a request elsewhere has recalled the lock.
    pub(in crate::ges) fn is_recalled(&self, resource: Resource) -> bool {
        let lock = self.locks.get(&resource);
        lock.is_some_and(|l| l.wants.is_some())
    }

    pub(in crate::ges) fn value_of(&self, resource: Resource) -> Option<Value> {
        self.locks.get(&resource)?.value
    }
}
