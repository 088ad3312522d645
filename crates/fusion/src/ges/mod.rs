//! The global enqueue service of one lane: locks in six modes, kept by instances, with value blocks.
//!
//! [`Locks`] are what this instance keeps and the owners that use it; [`Directory`] is the master's side. They work as
//! holder and master do in `gcs`. Table locks, dictionary locks and advisory locks are resources here; what a resource
//! stands for is the driver's business.

mod directory;
mod local;
mod message;
mod mode;
#[cfg(test)]
mod tests;

pub use directory::Directory;
pub use local::Locks;
pub use message::{Effect, Kept, Message, Owner, Resource, Value};
pub use mode::Mode;

use crate::ids::{Epoch, Member};
use block::ids::InstanceId;
use std::collections::BTreeSet;

type MasterOf<'a> = &'a dyn Fn(Resource) -> InstanceId;

/// One instance's part of the service, for the resources of one lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Enqueues {
    me: InstanceId,
    epoch: Epoch,
    members: BTreeSet<Member>,
    masters: Vec<InstanceId>,
    locks: Locks,
    directory: Directory,
}

impl Enqueues {
    /// Outside any cluster: to be given its members before anything else.
    pub fn new(me: InstanceId) -> Self {
        Enqueues {
            me,
            epoch: Epoch(0),
            members: BTreeSet::new(),
            masters: Vec::new(),
            locks: Locks::default(),
            directory: Directory::default(),
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// An owner wants a lock, or a stronger mode of one it has. [`Effect::Granted`] answers, perhaps at once.
    pub fn acquire(&mut self, resource: Resource, owner: Owner, mode: Mode, out: &mut Vec<Effect>) {
        self.with_locks(out, |l, m, out| l.acquire(resource, owner, mode, m, out));
    }

    /// The owner needs the lock no more, or waits for it no more (timeout, deadlock victim).
    pub fn release(&mut self, resource: Resource, owner: Owner, out: &mut Vec<Effect>) {
        self.with_locks(out, |l, m, out| l.release(resource, owner, m, out));
    }

    /// An exclusive owner changed what the value stands for. DDL calls it after its commit is published.
    pub fn set_value(&mut self, resource: Resource, owner: Owner, data: u64) {
        self.locks.set_value(resource, owner, data);
    }

    /// The value that nobody knew was read from the dictionary, by an owner of the lock.
    pub fn value_read(&mut self, resource: Resource, value: Value, out: &mut Vec<Effect>) {
        self.with_locks(out, |l, m, out| l.value_read(resource, value, m, out));
    }

    /// Drives requests and services again, for a timer and after a reconnection.
    pub fn timer(&mut self, out: &mut Vec<Effect>) {
        self.directory.drive_all(out);
        self.with_locks(out, |l, m, out| l.ask_again(m, out));
        for &to in self.directory.missing() {
            let message = Message::DeclareWanted;
            out.push(Effect::Send { to, message });
        }
        self.settle(out);
    }

    pub fn message(&mut self, from: InstanceId, message: Message, out: &mut Vec<Effect>) {
        self.dispatch(from, message, out);
        self.settle(out);
    }

    /// Enters a new epoch. Cached locks go on being used; new grants between instances wait for one round of declarations.
    pub fn reconfigure(
        &mut self,
        epoch: Epoch,
        members: BTreeSet<Member>,
        masters: Vec<InstanceId>,
        out: &mut Vec<Effect>,
    ) {
        assert!(epoch > self.epoch, "epochs rise");
        let gone = self.members.difference(&members);
        let dead: BTreeSet<InstanceId> = gone.map(|m| m.instance).collect();
        self.epoch = epoch;
        self.members = members;
        self.masters = masters;
        let living = self.members.iter().map(|m| m.instance).collect();
        let (me, masters) = (self.me, &self.masters);
        self.directory
            .new_epoch(epoch, living, &dead, |r| masters[at(r, masters)] == me);
        self.locks.new_epoch();
        for to in self.members.iter().map(|m| m.instance) {
            let message = self.declaration_for(to);
            out.push(Effect::Send { to, message });
        }
        self.with_locks(out, |l, m, out| l.resume(m, out));
    }

    fn declaration_for(&self, master: InstanceId) -> Message {
        let his = |k: &Kept| self.masters[at(k.resource, &self.masters)] == master;
        Message::Declare {
            epoch: self.epoch,
            kept: self.locks.kept().filter(his).collect(),
        }
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
        if message == Message::DeclareWanted {
            let message = self.declaration_for(from);
            out.push(Effect::Send { to: from, message });
            return;
        }
        let d = &mut self.directory;
        let masters = &self.masters;
        let master = |resource| masters[at(resource, masters)];
        match message {
            Message::Request { resource, id, mode } => d.request(resource, (from, id, mode), out),
            Message::Done {
                resource,
                id,
                turn,
                holds,
            } => d.done(resource, (from, id, turn), holds, out),
            Message::Recalled {
                resource,
                turn,
                mode,
                value,
            } => d.recalled(resource, (from, turn), (mode, value), out),
            Message::ValueRead { resource, value } => d.value_read(resource, value),
            Message::Declare { epoch, kept } => {
                assert_eq!(epoch, self.epoch, "the driver admits messages by epoch");
                d.declared(from, kept, out);
            }
            Message::Grant {
                resource,
                id,
                turn,
                mode,
                value,
            } => self
                .locks
                .granted(resource, (id, turn), (mode, value), &master, out),
            Message::Recall {
                resource,
                turn,
                keep,
            } => self.locks.recall(resource, turn, keep, &master, out),
            Message::DeclareWanted => unreachable!("answered above"),
        }
    }

    #[cfg(test)]
    fn plant(&mut self, planted: crate::planted::Planted) {
        self.locks.planted = planted;
        self.directory.planted = planted;
    }
}

fn at(resource: Resource, masters: &[InstanceId]) -> usize {
    (resource.0 % masters.len() as u64) as usize
}
