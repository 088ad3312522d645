//! The global enqueue service: locks in nine modes, kept by instances, with value blocks.
//!
//! [`Locks`] are the locks that this instance keeps, and the owners that use them. [`Directory`] is
//! the master's side. The two work as holder and master do in `gcs`.
//!
//! Table locks, dictionary locks and advisory locks are resources here. The driver decides what a
//! resource stands for. The driver's walk finds deadlocks; it asks this service who stands in the
//! way of whom.

mod directory;
mod local;
mod message;
mod mode;
#[cfg(test)]
mod tests;

pub use directory::Directory;
use directory::Request;
pub use local::Locks;
pub use message::{Effect, Kept, Message, Owner, Resource, Statement, Value};
pub use mode::{Mode, Modes};

use crate::ids::{Epoch, Member, RequestId};
use block::ids::InstanceId;
use std::collections::{BTreeMap, BTreeSet};

/// The most locks in one message: 60 KiB as `txn` sends them. An instance may keep any number.
pub const PART: usize = 1024;

type MasterOf<'a> = &'a dyn Fn(Resource) -> InstanceId;

/// Owners that a waiter waits for, and whether each merely stands ahead of it in the queue.
pub type Blockers = Vec<(Owner, bool)>;

/// An epoch of the service.
#[derive(Clone, Debug)]
pub struct Plan {
    pub epoch: Epoch,
    pub members: BTreeSet<Member>,
    /// The masters, by the hash of resources.
    pub masters: Vec<InstanceId>,
    /// Whether an instance is dead and it is not decided yet when its last commits took effect.
    /// Then nothing is granted between instances: an owner that got what the dead had locked might
    /// take a snapshot below such a commit, and not see the change that the lock was for.
    pub in_doubt: bool,
}

/// How an instance stands in an owner's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Against {
    /// Owners of the instance use the lock and exclude this mode.
    Use(Mode),
    /// This request of the instance stands ahead. If it is `soft` it can be passed; otherwise it
    /// has passed others already.
    Ahead { id: RequestId, soft: bool },
}

/// One instance's part of the service.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Enqueues {
    me: InstanceId,
    epoch: Epoch,
    members: BTreeSet<Member>,
    masters: Vec<InstanceId>,
    locks: Locks,
    directory: Directory,
    /// Whether this instance uses nothing yet, because others may have taken away what it would
    /// have by implication.
    fresh: bool,
    /// The masters that have not said all that this instance lacks, each with the resource up to
    /// which it has. Empty unless fresh.
    unwelcome: BTreeMap<InstanceId, Option<Resource>>,
    /// The most locks in one message: [`PART`], fewer in tests.
    part: usize,
}

impl Enqueues {
    /// The service of an instance that is alone, and fresh. Before anything is acquired it needs
    /// [`Enqueues::establish`], or members and their welcome.
    pub fn new(me: InstanceId) -> Self {
        Enqueues {
            me,
            epoch: Epoch(0),
            members: BTreeSet::new(),
            masters: vec![me],
            locks: Locks::default(),
            directory: Directory::alone(me),
            fresh: true,
            unwelcome: BTreeMap::new(),
            part: PART,
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Gives this instance everything, because no other is there.
    pub fn establish(&mut self) {
        assert!(self.is_alone(), "only a lone instance needs no welcome");
        self.fresh = false;
    }

    /// Whether this instance knows what it lacks, and may use the rest.
    pub fn is_established(&self) -> bool {
        !self.fresh
    }

    pub fn is_alone(&self) -> bool {
        self.masters == [self.me]
    }

    /// Acquires a lock for an owner, or a stronger mode of a lock that the owner has.
    /// [`Effect::Granted`] answers, perhaps at once. An owner that is not `patient` may be told
    /// [`Effect::Denied`].
    pub fn acquire(
        &mut self,
        resource: Resource,
        (owner, mode, patient): (Owner, Mode, bool),
        out: &mut Vec<Effect>,
    ) {
        self.with_locks(out, |l, m, out| {
            l.acquire(resource, (owner, mode, patient), m, out);
        });
    }

    /// Releases the lock of an owner that needs it no more, or that waits for it no more (timeout,
    /// deadlock victim).
    pub fn release(&mut self, resource: Resource, owner: Owner, out: &mut Vec<Effect>) {
        self.with_locks(out, |l, m, out| {
            l.lower(resource, (owner, Mode::Null), m, out)
        });
        self.forget_if_alone(resource, out);
    }

    /// Lowers what an owner has to this mode, because it needs no more. The owner waits for nothing
    /// more.
    pub fn lower(
        &mut self,
        resource: Resource,
        (owner, mode): (Owner, Mode),
        out: &mut Vec<Effect>,
    ) {
        self.with_locks(out, |l, m, out| l.lower(resource, (owner, mode), m, out));
        self.forget_if_alone(resource, out);
    }

    /// Takes the answer to [`Effect::Close`]: nobody uses the implied mode by himself from now on,
    /// and the owners in `used` still use it. The driver may also call this unasked, to name users.
    pub fn closed(&mut self, resource: Resource, used: &[(Owner, Mode)], out: &mut Vec<Effect>) {
        self.with_locks(out, |l, m, out| l.closed(resource, used, m, out));
    }

    /// Notes that an exclusive owner changed what the value stands for. DDL calls this after its
    /// commit is published. `data` rises with the changes.
    pub fn set_value(&mut self, resource: Resource, owner: Owner, data: u64) -> Value {
        self.locks.set_value(resource, owner, data)
    }

    /// Takes the value that nobody knew, as an owner of the lock read it from the dictionary.
    pub fn value_read(&mut self, resource: Resource, value: Value, out: &mut Vec<Effect>) {
        self.with_locks(out, |l, m, out| l.value_read(resource, value, m, out));
    }

    /// The value of a lock that is used here, as far as it is known.
    pub fn value_of(&self, resource: Resource) -> Option<Value> {
        self.locks.value_of(resource)
    }

    /// Whether an owner here keeps other instances waiting.
    pub fn is_recalled(&self, resource: Resource) -> bool {
        self.locks.is_recalled(resource)
    }

    /// Forgets a resource. What it stood for is gone, and never comes back.
    pub fn forget(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        self.locks.forget(resource, out);
        self.directory.forget(resource);
    }

    /// Forgets the lock if this instance is alone and the lock has no value: it costs nothing to
    /// take it again.
    fn forget_if_alone(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        if self.is_alone() && self.locks.value_of(resource).is_none() {
            self.forget(resource, out);
        }
    }

    /// Drives requests and services again. A timer calls this, and a reconnection.
    pub fn timer(&mut self, out: &mut Vec<Effect>) {
        self.directory.drive_all(out);
        self.with_locks(out, |l, m, out| {
            l.ask_again(m, out);
            l.reopen(m, out);
            l.shed(m, out);
        });
        for (&to, &after) in &self.unwelcome {
            let message = match after {
                None => self.declaration_for(to, None),
                Some(after) => Message::WelcomeWanted { after },
            };
            out.push(Effect::Send { to, message });
        }
        for (&to, &after) in self.directory.missing() {
            let message = Message::DeclareWanted { after };
            out.push(Effect::Send { to, message });
        }
        self.settle(out);
    }

    pub fn message(&mut self, from: InstanceId, message: Message, out: &mut Vec<Effect>) {
        self.dispatch(from, message, out);
        self.settle(out);
    }

    /// Enters a new epoch. Cached locks go on being used. New grants between instances wait for one
    /// round of declarations, and for an epoch in which nothing is in doubt.
    pub fn reconfigure(&mut self, plan: Plan, out: &mut Vec<Effect>) {
        assert!(plan.epoch > self.epoch, "epochs rise");
        self.epoch = plan.epoch;
        self.members = plan.members;
        self.masters = plan.masters;
        let living: BTreeSet<InstanceId> = self.members.iter().map(|m| m.instance).collect();
        if self.fresh {
            self.unwelcome = living.iter().map(|&k| (k, None)).collect();
        }
        let (me, masters) = (self.me, &self.masters);
        self.directory
            .new_epoch(plan.epoch, living, |r| masters[at(r, masters)] == me);
        self.directory.in_doubt = plan.in_doubt;
        self.locks.new_epoch(out);
        for to in self.members.iter().map(|m| m.instance) {
            let message = self.declaration_for(to, None);
            out.push(Effect::Send { to, message });
        }
        self.with_locks(out, |l, m, out| l.resume(m, out));
    }

    /// What stands in the way of an owner that waits here: owners of this instance, each with
    /// whether it only stands ahead and could let this one pass; and the master with the owner's
    /// request there, if the owner waits for others.
    pub fn blockers(
        &self,
        resource: Resource,
        waiter: Owner,
    ) -> (Blockers, Option<(InstanceId, RequestId)>) {
        let (here, asked) = self.locks.blockers(resource, waiter).unwrap_or_default();
        let master = self.masters[at(resource, &self.masters)];
        (here, asked.map(|id| (master, id)))
    }

    /// At a resource's master: the instances that stand in the way of this request. With each comes
    /// what to ask for at [`Enqueues::owners_against`] there.
    pub fn instances_against(
        &self,
        resource: Resource,
        request: (InstanceId, RequestId),
    ) -> Vec<(InstanceId, Against)> {
        self.directory.blockers(resource, request)
    }

    /// The owners here that stand in the way as `against` says, each with whether it only stands
    /// ahead and could let the request pass.
    pub fn owners_against(&self, resource: Resource, against: Against) -> Vec<(Owner, bool)> {
        self.locks.owners_against(resource, against)
    }

    /// Lets a waiter pass `owner` of this instance, which stands ahead of it and waits for it by a
    /// circle. `by` is the waiter, with its request if it waits for others.
    pub fn let_pass(
        &mut self,
        resource: Resource,
        owner: Owner,
        by: (Owner, RequestId),
        out: &mut Vec<Effect>,
    ) {
        self.with_locks(out, |l, m, out| l.let_pass(resource, owner, by, m, out));
    }

    fn declaration_for(&self, master: InstanceId, after: Option<Resource>) -> Message {
        let his = |k: &Kept| self.masters[at(k.resource, &self.masters)] == master;
        let (kept, more) = part_of(self.locks.kept(after).filter(his), self.part);
        Message::Declare {
            epoch: self.epoch,
            after,
            kept,
            more,
            fresh: self.fresh,
        }
    }

    /// Takes a part of what a master says this instance lacks.
    fn welcomed(
        &mut self,
        from: InstanceId,
        (after, without, more): (Option<Resource>, Vec<Resource>, bool),
        out: &mut Vec<Effect>,
    ) {
        // Otherwise the part comes again, or it was asked for twice.
        if !self.fresh || self.unwelcome.get(&from) != Some(&after) {
            return;
        }
        let last = without.last().copied();
        without.into_iter().for_each(|r| self.locks.exclude(r, out));
        if let Some(after) = last.filter(|_| more) {
            self.unwelcome.insert(from, Some(after));
            let message = Message::WelcomeWanted { after };
            out.push(Effect::Send { to: from, message });
            return;
        }
        self.unwelcome.remove(&from);
        self.fresh = !self.unwelcome.is_empty();
    }

    fn with_locks(
        &mut self,
        out: &mut Vec<Effect>,
        step: impl FnOnce(&mut Locks, MasterOf, &mut Vec<Effect>),
    ) {
        let masters = &self.masters;
        let master = |resource| masters[at(resource, masters)];
        step(&mut self.locks, &master, out);
        self.settle(out);
    }

    /// Delivers what this instance said to itself at once, in order.
    fn settle(&mut self, out: &mut Vec<Effect>) {
        let me = self.me;
        let to_me = |e: &Effect| matches!(e, Effect::Send { to, .. } if *to == me);
        while let Some(at) = out.iter().position(to_me) {
            if let Effect::Send { message, .. } = out.remove(at) {
                self.dispatch(me, message, out);
            }
        }
    }

    fn dispatch(&mut self, from: InstanceId, message: Message, out: &mut Vec<Effect>) {
        let masters = &self.masters;
        let master = |resource| masters[at(resource, masters)];
        let (d, l) = (&mut self.directory, &mut self.locks);
        match message {
            Message::Request {
                resource,
                id,
                floor,
                mode,
                own,
                patient,
                now,
            } => {
                let request = Request {
                    from,
                    id,
                    mode,
                    own,
                    patient,
                };
                d.request(resource, (request, floor), now, out);
            }
            Message::Done {
                resource,
                id,
                turn,
                now,
            } => d.done(resource, (from, id, turn), now, out),
            Message::Recalled {
                resource,
                turn,
                now,
                value,
            } => d.recalled(resource, (from, turn), (now, value), out),
            Message::Cancel { resource, id } => d.cancel(resource, (from, id), out),
            Message::Waits { resource, id } => l.waits(resource, id, &master, out),
            Message::Recalling { resource, turn } => d.recalling(resource, (from, turn), out),
            Message::Pass { resource, id, by } => d.pass(resource, (from, id), by, out),
            Message::Released { resource, now } => d.released(resource, (from, now), out),
            Message::ValueRead { resource, value } => d.value_read(resource, value),
            Message::Declare {
                epoch,
                after,
                kept,
                more,
                fresh,
            } => {
                assert_eq!(epoch, self.epoch, "the driver admits messages by epoch");
                d.declared(from, (after, kept, more), fresh, out);
            }
            Message::Grant {
                resource,
                id,
                turn,
                mode,
                value,
                wanted,
            } => l.granted(resource, (id, turn), (mode, value, wanted), &master, out),
            Message::Denied { resource, id } => l.denied(resource, id, &master, out),
            Message::Recall {
                resource,
                turn,
                wanted,
                patient,
            } => l.recall(resource, (turn, wanted, patient), &master, out),
            Message::DeclareWanted { after } => {
                let message = self.declaration_for(from, after);
                out.push(Effect::Send { to: from, message });
            }
            Message::Welcome {
                after,
                without,
                more,
            } => self.welcomed(from, (after, without, more), out),
            Message::WelcomeWanted { after } => d.welcome_wanted(from, after, out),
        }
    }

    #[cfg(test)]
    fn speak_in_parts_of(&mut self, part: usize) {
        self.part = part;
        self.directory.part = part;
    }

    #[cfg(test)]
    fn plant(&mut self, planted: crate::planted::Planted) {
        self.locks.planted = planted;
        self.directory.planted = planted;
    }
}

/// The first `part` items, and whether there are more.
fn part_of<T>(mut all: impl Iterator<Item = T>, part: usize) -> (Vec<T>, bool) {
    let first = all.by_ref().take(part).collect();
    (first, all.next().is_some())
}

fn at(resource: Resource, masters: &[InstanceId]) -> usize {
    // Resources may differ in a few bits only.
    let mixed = (resource.0 ^ resource.0 >> 64) as u64;
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 32) % masters.len() as u64) as usize
}
