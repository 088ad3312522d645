//! The global enqueue service of one lane: locks in six modes, kept by instances, with value blocks.
//!
//! [`Locks`] are what this instance keeps and the owners that use it; [`Directory`] is the master's side. They work as
//! holder and master do in `gcs`. Table locks, dictionary locks and advisory locks are resources here; what a resource
//! stands for is the driver's business.

mod deadlock;
mod directory;
mod local;
mod message;
mod mode;
#[cfg(test)]
mod tests;

pub use deadlock::{Edge, Probe, Step};
pub use directory::Directory;
pub use local::Locks;
pub use message::{Effect, Kept, Message, Owner, Resource, Value};
pub use mode::Mode;

use crate::ids::{Epoch, Member};
use block::ids::{InstanceId, TxnId};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Owners here that wait for the end of a transaction, with the number of the wait.
    txn_waits: BTreeMap<Owner, (TxnId, u64)>,
    /// Transactions of this instance that are waited for, and by whom.
    waited_for: BTreeMap<TxnId, BTreeSet<InstanceId>>,
    /// Owners here that the newest deadlock walk of each origin has visited.
    visited: BTreeMap<Owner, (u64, BTreeSet<Owner>)>,
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
            txn_waits: BTreeMap::new(),
            waited_for: BTreeMap::new(),
            visited: BTreeMap::new(),
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
        self.repeat_txn_waits(out);
        self.visited.clear(); // walks take milliseconds
        for &to in self.directory.missing() {
            let message = Message::DeclareWanted;
            out.push(Effect::Send { to, message });
        }
        self.settle(out);
    }

    /// The owner waits for the end of a transaction, here or elsewhere (a row lock). [`Effect::TxnOver`] answers.
    pub fn wait_for_txn(&mut self, waiter: Owner, txn: TxnId, out: &mut Vec<Effect>) {
        let wait = self.locks.next_wait();
        self.txn_waits.insert(waiter, (txn, wait));
        let to = txn.instance();
        let message = Message::TxnWait { txn };
        out.push(Effect::Send { to, message });
        self.settle(out);
    }

    /// The owner waits for its transaction no more (timeout, cancel, deadlock victim).
    pub fn give_up_txn_wait(&mut self, waiter: Owner) {
        self.txn_waits.remove(&waiter);
    }

    /// A transaction of this instance that [`Effect::TxnWaitedFor`] named is over.
    pub fn txn_ended(&mut self, txn: TxnId, out: &mut Vec<Effect>) {
        for to in self.waited_for.remove(&txn).unwrap_or_default() {
            let message = Message::TxnEnded { txn };
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
        let living: BTreeSet<InstanceId> = self.members.iter().map(|m| m.instance).collect();
        for waiting in self.waited_for.values_mut() {
            waiting.retain(|i| living.contains(i));
        }
        self.repeat_txn_waits(out);
        self.with_locks(out, |l, m, out| l.resume(m, out));
    }

    fn repeat_txn_waits(&self, out: &mut Vec<Effect>) {
        for &(txn, _) in self.txn_waits.values() {
            let to = txn.instance();
            let message = Message::TxnWait { txn };
            out.push(Effect::Send { to, message });
        }
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
        let Some(message) = self.dispatch_waits(from, message, out) else {
            return;
        };
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
            _ => unreachable!("answered above"),
        }
    }

    /// Waits for transactions and walks; gives back what is none of these.
    fn dispatch_waits(
        &mut self,
        from: InstanceId,
        message: Message,
        out: &mut Vec<Effect>,
    ) -> Option<Message> {
        match message {
            Message::DeclareWanted => {
                let message = self.declaration_for(from);
                out.push(Effect::Send { to: from, message });
            }
            Message::TxnWait { txn } => {
                self.waited_for.entry(txn).or_default().insert(from);
                out.push(Effect::TxnWaitedFor { txn });
            }
            Message::TxnEnded { txn } => {
                let over = self.txn_waits.iter().filter(|(_, w)| w.0 == txn);
                let over: Vec<Owner> = over.map(|(&o, _)| o).collect();
                for waiter in over {
                    self.txn_waits.remove(&waiter);
                    out.push(Effect::TxnOver { waiter, txn });
                }
            }
            Message::Walk(probe) => self.walk(probe, out),
            Message::Victim { owner, wait } => {
                if self.wait_number(owner) == Some(wait) {
                    out.push(Effect::Deadlock { owner });
                }
            }
            other => return Some(other),
        }
        None
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
