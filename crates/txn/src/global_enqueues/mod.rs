//! Enqueues among instances. Drives [`fusion::ges`].
//!
//! The machine has the queues of tables and names, for the sessions of this instance as well as for
//! the others'. What it has granted is noted in this instance's lock table, which knows of each
//! session what it holds.
//!
//! Weak table locks are the exception: every instance has them by implication. A session takes them
//! by the fast path of [`crate::local_enqueues`] and sends no message. The first strong lock
//! anywhere closes the fast path of that table, names the sessions that use it, and waits for them.
//! A weak locker that comes after that asks here. The first that wants `SX` opens the fast path
//! again. Where all only read ([`LockMode::SS`]) the next tick opens it.
//!
//! **Owns** the machine, under one latch, and the owners that wait for it.
//!
//! **Invariants.**
//! - What the machine asks of the lock table is done before the machine's latch is let go. So a
//!   user that a recall has found cannot let go unnoticed. Hence this latch comes before the lock
//!   table's: nobody calls here with that one held.
//! - Messages leave with the latch free. Their order does not matter: the protocol is checked with
//!   a network that reorders.
//! - Each message is of the epoch in which the machine said it, even if another epoch has begun
//!   when it leaves (R6). Otherwise a former master's grant, sent as one of the new epoch, would
//!   stand beside the new master's.
//! - An instance that joins uses nothing here before it is told what the others have
//!   ([`GlobalEnqueues::wait_established`]).

mod dictionary;
mod messages;
mod names;
mod timing;

use crate::cluster::messages::TxnMessage;
use crate::cluster::{Cluster, Letter};
use crate::local_enqueues::{Enqueues, Locker, LockerId};
use crate::timing::AnswerCost;
use crate::{Error, Level, LockMode, LockWait, Resource, Result};
use block::{InstanceId, ObjectId, TxnId};
use dictionary::Picture;
use fusion::ges::{Against, Effect, Message, Mode, Owner, Plan};
use fusion::{Epoch, Incarnation, Member, RequestId};
use seam::HashMap;
use seam::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use timing::Timing;
use wait::Event;

pub(crate) use dictionary::PICTURE;
pub(crate) use messages::{Lock, Timed, TimedMessages};
pub(crate) use names::{global, local};

/// A lock among instances.
pub(crate) type Global = fusion::ges::Resource;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Granted,
    Denied,
}

struct State {
    machine: fusion::ges::Enqueues,
    /// Tables whose fast path is closed here.
    closed: BTreeSet<ObjectId>,
    /// Sessions that wait for the machine, with the outcome once the machine has said it.
    waiting: HashMap<LockerId, Option<Outcome>>,
    out: Vec<Effect>,
    timing: Timing,
}

/// Messages that the machine wants sent.
struct Letters {
    /// The cluster's epoch in which the machine said them.
    epoch: u64,
    messages: Vec<(InstanceId, Message, Option<AnswerCost>)>,
}

/// Sessions that a waiter waits for, and whether each merely stands ahead of it in the queue.
type Blockers = Vec<(LockerId, bool)>;

/// The enqueues among instances; see the module.
pub(crate) struct GlobalEnqueues {
    me: InstanceId,
    cluster: Arc<Cluster>,
    enqueues: Arc<Enqueues>,
    state: Mutex<State>,
    /// Signalled when `state` says that this instance has become established.
    established: Condvar,
    picture: Picture,
}

impl GlobalEnqueues {
    pub(crate) fn new(
        me: InstanceId,
        cluster: Arc<Cluster>,
        enqueues: Arc<Enqueues>,
    ) -> GlobalEnqueues {
        GlobalEnqueues {
            me,
            cluster,
            enqueues,
            state: Mutex::new(State {
                machine: fusion::ges::Enqueues::new(me),
                closed: BTreeSet::new(),
                waiting: HashMap::default(),
                out: Vec::new(),
                timing: Timing::default(),
            }),
            established: Condvar::new(),
            picture: Picture::default(),
        }
    }

    fn owner(&self, locker: LockerId) -> Owner {
        TxnId::new(self.me, u64::from(locker.0))
    }

    // ---- for this instance's sessions ----

    /// Takes a lock against the sessions of all instances.
    pub(crate) fn take(
        &self,
        locker: &Locker,
        r: Resource,
        (mode, level): (LockMode, Level),
        wait: LockWait,
    ) -> Result<()> {
        let resource = global(r).expect("invariant: what is locked here has a number");
        let taken = self.acquire(locker, (r, resource), mode, wait);
        match taken {
            Ok(()) => self.enqueues.adopt(locker, r, mode, level),
            Err(_) => self.lower(locker, r),
        }
        taken
    }

    fn acquire(
        &self,
        locker: &Locker,
        (r, resource): (Resource, Global),
        mode: LockMode,
        wait: LockWait,
    ) -> Result<()> {
        let owner = self.owner(locker.id);
        let patient = wait != LockWait::NoWait;
        let asked = {
            let mut s = self.state.lock();
            if matches!(r, Resource::Table(_)) && mode.is_strong() {
                self.close(&mut s, resource);
            }
            s.waiting.insert(locker.id, None);
            let State { machine, out, .. } = &mut *s;
            machine.acquire(resource, (owner, mode.into(), patient), out);
            let letters = self.carry_out(&mut s);
            if let Some(outcome) = s.waiting[&locker.id] {
                s.waiting.remove(&locker.id);
                drop(s);
                self.send(letters);
                return self.outcome(outcome, r);
            }
            self.enqueues.await_global(locker, resource, mode);
            let (_, asked) = s.machine.blockers(resource, owner);
            drop(s);
            self.send(letters);
            asked.map(|(master, _)| master).filter(|m| *m != self.me)
        };
        // A session that does not wait for the lock waits for the answer all the same.
        let wait = match wait {
            LockWait::NoWait => LockWait::Forever,
            wait => wait,
        };
        let waited = self
            .enqueues
            .wait_global(locker, resource, mode, wait, asked);
        let outcome = self.state.lock().waiting.remove(&locker.id).flatten();
        waited?;
        self.outcome(
            outcome.expect("invariant: a session that is let go was told why"),
            r,
        )
    }

    fn outcome(&self, outcome: Outcome, r: Resource) -> Result<()> {
        match outcome {
            Outcome::Granted => Ok(()),
            Outcome::Denied => Err(Error::LockNotAvailable(r.to_string())),
        }
    }

    /// Lowers what the session needs of a lock to what the lock table says it holds, and ends its
    /// wait for more.
    pub(crate) fn lower(&self, locker: &Locker, r: Resource) {
        let Some(resource) = global(r) else {
            return;
        };
        let owner = self.owner(locker.id);
        let held = self.enqueues.held(locker, r);
        self.step(|machine, out| machine.lower(resource, (owner, held.into()), out));
    }

    /// Forgets the lock of an object that is gone for good.
    pub(crate) fn forget(&self, object: ObjectId) {
        if let Some(resource) = global(Resource::Table(object)) {
            self.step(|machine, out| machine.forget(resource, out));
        }
    }

    // ---- steps of the machine ----

    fn step<R>(&self, f: impl FnOnce(&mut fusion::ges::Enqueues, &mut Vec<Effect>) -> R) -> R {
        self.step_about(None, |s| f(&mut s.machine, &mut s.out))
    }

    /// Makes a step of the machine, because of a message about this lock.
    fn step_about<R>(&self, resource: Option<Global>, f: impl FnOnce(&mut State) -> R) -> R {
        let mut s = self.state.lock();
        let result = f(&mut s);
        let letters = self.carry_out(&mut s);
        if let Some(resource) = resource {
            let used = s.machine.is_recalled(resource);
            s.timing.step_is_over(resource, used);
        }
        let established = s.machine.is_established();
        drop(s);
        self.send(letters);
        if established {
            self.established.notify_all();
        }
        result
    }

    /// Does all that the machine asks for, except that it returns the messages.
    fn carry_out(&self, s: &mut MutexGuard<'_, State>) -> Letters {
        let mut messages = Vec::new();
        loop {
            let effects = std::mem::take(&mut s.out);
            if effects.is_empty() {
                // In its first epoch the machine talks to nobody.
                let epoch = s.machine.epoch().0.saturating_sub(own_epoch(0).0);
                return Letters { epoch, messages };
            }
            for effect in effects {
                match effect {
                    Effect::Send { to, message } => {
                        let spent = s.timing.leaving(self.me, to, &message);
                        messages.push((to, message, spent));
                    }
                    Effect::Granted {
                        resource, owner, ..
                    } => self.told(s, owner, resource, Outcome::Granted),
                    Effect::Denied { resource, owner } => {
                        self.told(s, owner, resource, Outcome::Denied);
                    }
                    Effect::Close { resource } => self.close(s, resource),
                    Effect::Opened { resource } => {
                        if let Some(Resource::Table(object)) = local(resource)
                            && s.closed.remove(&object)
                        {
                            self.enqueues.open_table(object);
                        }
                    }
                }
            }
        }
    }

    fn told(
        &self,
        s: &mut MutexGuard<'_, State>,
        owner: Owner,
        resource: Global,
        outcome: Outcome,
    ) {
        let locker = locker(owner);
        if let Some(told) = s.waiting.get_mut(&locker) {
            *told = Some(outcome);
            let how = s.timing.answer();
            self.enqueues.end_global(locker, resource, how);
        }
    }

    fn close(&self, s: &mut MutexGuard<'_, State>, resource: Global) {
        let mut used = Vec::new();
        match local(resource) {
            Some(Resource::Table(object)) if s.closed.insert(object) => {
                let users = self.enqueues.close_table(object);
                used.extend(
                    users
                        .into_iter()
                        .map(|(locker, mode)| (self.owner(locker), Mode::from(mode))),
                );
            }
            Some(r) if r == PICTURE => self.picture.is_stale(),
            _ => {}
        }
        let State { machine, out, .. } = &mut **s;
        machine.closed(resource, &used, out);
    }

    fn send(&self, letters: Letters) {
        for (to, message, spent) in letters.messages {
            let letter = Letter::new(to, &TxnMessage::Ges((message, spent)));
            self.cluster.send_in_epoch(letter, letters.epoch);
        }
    }

    // ---- messages and members ----

    /// Handles a message of a member, which stood behind its header.
    pub(crate) fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        (message, spent): Timed,
    ) -> Result<()> {
        self.step_about(message.resource(), |s| {
            if s.machine.epoch() != own_epoch(epoch) {
                return Ok(()); // it is said again in the epoch that both are in
            }
            if matches!(&message, Message::Declare { epoch, .. } if *epoch != s.machine.epoch()) {
                let why = "it declares for another epoch than its own";
                return Err(Error::bad_message(from, why));
            }
            if let Some(resource) = message.resource() {
                let used = s.machine.is_recalled(resource);
                s.timing.arrived(from, &message, spent, used);
            }
            s.machine.message(from, message, &mut s.out);
            Ok(())
        })
    }

    /// Enters an epoch. `in_doubt` is [`Plan::in_doubt`].
    pub(crate) fn members_changed(
        &self,
        epoch: u64,
        members: &BTreeSet<InstanceId>,
        in_doubt: bool,
    ) {
        let all = members.iter().map(|&instance| Member {
            instance,
            incarnation: Incarnation(0), // an instance that joins says so itself
        });
        let plan = Plan {
            epoch: own_epoch(epoch),
            members: all.collect(),
            masters: members.iter().copied().collect(),
            in_doubt,
        };
        self.step_about(None, |s| {
            s.timing.forget();
            s.machine.reconfigure(plan, &mut s.out);
        });
    }

    /// Repeats everything that may have been lost.
    pub(crate) fn tick(&self) {
        self.step(|machine, out| machine.timer(out));
    }

    /// Returns once this instance knows which of the implied locks the others have taken away. It
    /// is called before the first session. Returns false if that is not known at `until`. An
    /// instance that has always been alone has everything.
    pub(crate) fn wait_established(&self, until: Instant) -> bool {
        let mut s = self.state.lock();
        if s.machine.is_alone() {
            s.machine.establish();
        }
        while !s.machine.is_established() {
            let late = wait::during(Event::GcDirectoryFrozen, [0; 3], || {
                self.established.wait_until(&mut s, until).timed_out()
            });
            if late {
                return s.machine.is_established();
            }
        }
        true
    }

    // ---- blockers, for the walk ----

    /// The sessions of this instance for which `waiter` waits, each with whether it only stands
    /// ahead; and the master with the session's request, if it may know of others on other
    /// instances.
    pub(crate) fn blockers(
        &self,
        resource: Global,
        waiter: LockerId,
    ) -> (Blockers, Option<(InstanceId, RequestId)>) {
        let s = self.state.lock();
        let (here, master) = s.machine.blockers(resource, self.owner(waiter));
        (lockers(here), master)
    }

    /// The instances that are in the way of a request, as their master knows.
    pub(crate) fn instances_against(
        &self,
        resource: Global,
        request: (InstanceId, RequestId),
    ) -> Vec<(InstanceId, Against)> {
        let s = self.state.lock();
        s.machine.instances_against(resource, request)
    }

    /// The sessions of this instance that are in the way, after the master has named it, each with
    /// whether it only stands ahead.
    pub(crate) fn owners_against(
        &self,
        resource: Global,
        against: Against,
    ) -> Vec<(LockerId, bool)> {
        let s = self.state.lock();
        lockers(s.machine.owners_against(resource, against))
    }

    /// Lets a session of any instance pass a session of this one, which stands ahead of it.
    pub(crate) fn let_pass(
        &self,
        resource: Global,
        ahead: LockerId,
        by: (InstanceId, LockerId, RequestId),
    ) {
        let (instance, waiter, request) = by;
        let by = (TxnId::new(instance, u64::from(waiter.0)), request);
        let ahead = self.owner(ahead);
        self.step(|machine, out| machine.let_pass(resource, ahead, by, out));
    }
}

fn lockers(owners: Vec<(Owner, bool)>) -> Vec<(LockerId, bool)> {
    let of = |(owner, ahead)| (locker(owner), ahead);
    owners.into_iter().map(of).collect()
}

/// The machine's epoch for an epoch of the cluster. It is one higher, because the machine begins in
/// an epoch of its own.
fn own_epoch(epoch: u64) -> Epoch {
    Epoch(epoch + 1)
}

fn locker(owner: Owner) -> LockerId {
    // Owners of this instance are made of lockers' ids. They do not occur in the messages of
    // others.
    LockerId(owner.number() as u32)
}

impl From<LockMode> for Mode {
    fn from(mode: LockMode) -> Mode {
        match mode {
            LockMode::Null => Mode::Null,
            LockMode::AS => Mode::AccessShared,
            LockMode::SS => Mode::SubShared,
            LockMode::SX => Mode::SubExclusive,
            LockMode::SUX => Mode::SharedUpdateExclusive,
            LockMode::S => Mode::Shared,
            LockMode::SSX => Mode::SharedSubExclusive,
            LockMode::EX => Mode::WriteExclusive,
            LockMode::X => Mode::Exclusive,
        }
    }
}
