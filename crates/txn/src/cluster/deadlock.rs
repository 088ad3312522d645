//! Deadlocks over several instances.
//!
//! A session that has waited for a while and finds no circle among the waits of its own instance
//! sends a *walk* along every wait that it reaches and that leads to other instances. A wait for
//! another instance's transaction leads the walk to that transaction's session. A wait for a lock
//! that others have leads it to the lock's master, from there to the instances in the way, and on
//! each to the sessions that use what the instance keeps ([`crate::global_enqueues`]). Each
//! instance carries a walk on over the waits there.
//!
//! When the walk is back at the session where it began, its path is a circle that may never have
//! existed at one time. So a *check* goes round once more. It must find every wait under the number
//! that it had, leading to the same next wait. As a wait keeps its number for as long as it lasts,
//! all of them existed at once when the first round was over (race 26 of docs/design.md).
//!
//! A session that merely stands ahead of another in the queue of a lock could let it pass. If the
//! circle has such a wait, it is broken like that, as in PostgreSQL, and nobody gives up. A wait
//! that has passed another is not passed back, so this comes to an end. Should the same circle
//! still come back [`MAX_PASSES`] times, it has a victim.
//!
//! Otherwise the wait with the highest number is the victim, whichever session began the walk. So
//! two sessions that walk the same circle choose the same victim.
//!
//! **Limits.** A walk visits a session once. Lost messages cost time only, because a session that
//! still waits walks again.

use super::Letter;
use super::messages::TxnMessage;
use crate::global_enqueues::{Global, Lock};
use crate::local_enqueues::{Exit, Hop, LockerId, Wait};
use crate::manager::TxnManager;
use crate::ring::{MAX_TOLD, Ring, Waiting};
use crate::{Error, Result};
use block::{InstanceId, TxnId};
use fusion::RequestId;
use fusion::ges::{Against, Mode};
use seam::Mutex;
use seam::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use wire::{Bad, Own, Reader, Short, Wire, Writer, fields};

/// The most waits on a path. An instance has no more sessions.
pub(super) const MAX_PATH: usize = 10_000;
/// How often a circle is found before rearranging the queue counts as in vain. All its sessions may
/// find it at once, and again before the master has heard of the first time.
const MAX_PASSES: u32 = 50;
/// The most pairs that are remembered of sessions of which one was let pass the other.
const MAX_PAIRS: usize = 1_000;

/// A step of a path: a session in its wait of this number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Step {
    pub(super) serial: u64,
    pub(super) instance: InstanceId,
    pub(super) locker: LockerId,
}

type Visits = HashMap<(InstanceId, LockerId), (u64, HashSet<LockerId>)>;

/// What this instance remembers of walks.
#[derive(Default)]
pub(crate) struct Walks {
    last: AtomicU64,
    /// For each session where a walk began, the number of its newest walk and the sessions here
    /// that it visited. Forgotten with every tick.
    visited: Mutex<Visits>,
    /// How often a wait was let pass another, by a circle that was found here.
    passed: Mutex<HashMap<(Step, Step), u32>>,
}

impl Walks {
    pub(crate) fn forget(&self) {
        self.visited.lock().clear();
    }

    /// Whether letting the first wait pass the second is worth another try.
    fn may_pass(&self, by: Step, ahead: Step) -> bool {
        let mut passed = self.passed.lock();
        if passed.len() >= MAX_PAIRS && !passed.contains_key(&(by, ahead)) {
            passed.clear(); // most of these waits are over, and the others are counted again
        }
        let tries = passed.entry((by, ahead)).or_default();
        *tries += 1;
        *tries <= MAX_PASSES
    }
}

#[derive(Clone)]
struct Walk {
    number: u64,
    path: Vec<Step>,
}

/// A wait of a path for a lock whose queue the next one's session only stands ahead in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Passing {
    /// The index of the wait in the path.
    pub(super) at: u16,
    pub(super) lock: Global,
    /// The request of the wait at the lock's master, if it has one there.
    pub(super) request: RequestId,
}

fields! { impl Passing { at, lock as Lock, request } }

/// A path that is gone once more.
#[derive(Clone)]
pub(crate) struct Check {
    path: Vec<Step>,
    /// The wait of the path that is looked at next; the waits before it stood.
    at: usize,
    /// The first of those waits that could pass the next one.
    passing: Option<Passing>,
    /// Those waits, at most [`MAX_TOLD`] of them.
    told: Vec<Waiting>,
}

impl Check {
    pub(crate) fn new(
        path: Vec<Step>,
        at: usize,
        passing: Option<Passing>,
        told: Vec<Waiting>,
    ) -> Check {
        Check {
            path,
            at,
            passing,
            told,
        }
    }

    /// A path is gone from its beginning.
    fn of(path: Vec<Step>) -> Check {
        Check::new(path, 0, None, Vec::new())
    }

    /// The wait that the one looked at leads to.
    fn next(&self) -> Step {
        *self.path.get(self.at + 1).unwrap_or(&self.path[0])
    }

    /// Goes on over a wait for a lock if the next session is among these, each of which may only
    /// stand ahead. Returns whether it is.
    fn goes_on(
        &mut self,
        blockers: &[(LockerId, bool)],
        (lock, request): (Global, RequestId),
    ) -> bool {
        let next = self.next().locker;
        let mut ways = blockers.iter().filter(|b| b.0 == next).map(|b| b.1);
        let Some(first) = ways.next() else {
            return false;
        };
        if first && ways.all(|ahead| ahead) && self.passing.is_none() {
            let at = self.at as u16;
            self.passing = Some(Passing { at, lock, request });
        }
        self.at += 1;
        true
    }
}

/// Where a walk or check stands that follows a wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// At the master, which names the instances in the way of this request.
    Master(RequestId),
    /// At an instance in the way of this request, which names its sessions in the way.
    Holder(RequestId, Against),
}

/// The bytes of a stage: a tag, the request, a mode and the request in the way. Mode and request
/// are empty where the stage says nothing of them.
impl Wire for Stage {
    fn put(&self, w: &mut Writer<'_>) {
        let none = RequestId(0);
        let (tag, of, mode, ahead): (u8, _, _, _) = match *self {
            Stage::Master(of) => (0, of, Mode::Null, none),
            Stage::Holder(of, Against::Use(mode)) => (1, of, mode, none),
            Stage::Holder(of, Against::Ahead { id, soft: true }) => (2, of, Mode::Null, id),
            Stage::Holder(of, Against::Ahead { id, soft: false }) => (3, of, Mode::Null, id),
        };
        w.put(&tag);
        w.put(&of);
        w.put(&mode);
        w.put(&ahead);
    }
    fn get(r: &mut Reader<'_>) -> std::result::Result<Stage, Bad> {
        match (r.get::<u8>()?, r.get()?, r.get()?, r.get()?) {
            (0, of, Mode::Null, RequestId(0)) => Ok(Stage::Master(of)),
            (1, of, mode, RequestId(0)) => Ok(Stage::Holder(of, Against::Use(mode))),
            (tag @ (2 | 3), of, Mode::Null, id) => {
                let soft = tag == 2;
                Ok(Stage::Holder(of, Against::Ahead { id, soft }))
            }
            _ => Err(r.bad("a walk is at an unknown stage")),
        }
    }
}

fields! { impl Step { instance, locker, serial } }

/// The bytes of a path. It has at least one step, and at most [`MAX_PATH`].
pub(super) type Path = Short<Own, 1, MAX_PATH>;

impl Wire for LockerId {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(&self.0);
    }
    fn get(r: &mut Reader<'_>) -> std::result::Result<LockerId, Bad> {
        r.get().map(LockerId)
    }
}

impl TxnManager {
    /// Begins a walk for a session of this instance that has waited for a while. There is no circle
    /// among the waits of this instance.
    pub(crate) fn suspect(&self, locker: LockerId) {
        let walks = &self.cluster.walks;
        let walk = Walk {
            number: walks.last.fetch_add(1, Ordering::Relaxed) + 1,
            path: Vec::new(),
        };
        self.walk_on(walk, locker, locker);
    }

    /// Takes a walk that follows a wait of another instance for a transaction of this one.
    pub(crate) fn walk_arrived(
        &self,
        from: InstanceId,
        (number, txn): (u64, TxnId),
        path: Vec<Step>,
    ) {
        // A transaction that has ended, or has undone changes since and told so, is not waited for.
        if let Some(owner) = self.active.owner(txn)
            && self.cluster.is_to_be_told(txn, from)
        {
            self.walk_comes_to(Walk { number, path }, owner);
        }
    }

    /// Takes a walk that follows a wait for a lock.
    pub(crate) fn lock_walk_arrived(
        &self,
        number: u64,
        (lock, stage): (Global, Stage),
        path: Vec<Step>,
    ) {
        self.walk_lock(Walk { number, path }, lock, stage);
    }

    /// Carries a walk on over the wait at the end of its path, which is for a lock.
    fn walk_lock(&self, walk: Walk, lock: Global, stage: Stage) {
        let waiter = walk.path.last().expect("invariant: a walk has a path");
        match stage {
            Stage::Master(of) => {
                let request = (waiter.instance, of);
                for (to, against) in self.ges.instances_against(lock, request) {
                    self.send_walk(to, walk.clone(), (lock, Stage::Holder(of, against)));
                }
            }
            Stage::Holder(_, against) => {
                for (blocker, _) in self.ges.owners_against(lock, against) {
                    self.walk_comes_to(walk.clone(), blocker);
                }
            }
        }
    }

    fn send_walk(&self, to: InstanceId, walk: Walk, (lock, stage): (Global, Stage)) {
        if to == self.config.instance {
            return self.walk_lock(walk, lock, stage);
        }
        let message = TxnMessage::LockWalk {
            number: walk.number,
            lock,
            stage,
            path: walk.path.into(),
        };
        self.cluster.send(Letter::new(to, &message));
    }

    /// Carries a walk on to a session of this instance, for which the last wait of the path waits.
    fn walk_comes_to(&self, walk: Walk, session: LockerId) {
        let origin = walk.path[0];
        if (origin.instance, origin.locker) == (self.config.instance, session) {
            self.check(Check::of(walk.path));
        } else {
            self.walk_on(walk, session, origin.locker);
        }
    }

    /// Carries a walk on over the waits that lead on from a session of this instance.
    fn walk_on(&self, walk: Walk, from: LockerId, origin: LockerId) {
        let me = self.config.instance;
        let of = walk.path.first().map_or(me, |o| o.instance);
        let reach = {
            let mut visited = self.cluster.walks.visited.lock();
            let visits = visited.entry((of, origin)).or_default();
            if visits.0 != walk.number {
                *visits = (walk.number, HashSet::default());
            }
            let target = (of == me && !walk.path.is_empty()).then_some(origin);
            self.enqueues.reach(from, target, me, &mut visits.1)
        };
        let longer = |hops: &[Hop]| {
            let step = |h: &Hop| Step {
                serial: h.serial,
                instance: me,
                locker: h.locker,
            };
            let mut path = walk.path.clone();
            path.extend(hops.iter().map(step));
            path
        };
        if let Some(hops) = reach.back {
            let path = longer(&hops);
            if path.len() <= MAX_PATH {
                self.check(Check::of(path));
            }
            return;
        }
        for (hops, exit) in reach.exits {
            let (number, path) = (walk.number, longer(&hops));
            if path.len() > MAX_PATH {
                continue;
            }
            match exit {
                Exit::Txn(txn) => {
                    let path = path.into();
                    let message = TxnMessage::Walk { number, txn, path };
                    self.cluster.send(Letter::new(txn.instance(), &message));
                }
                Exit::Lock(lock) => self.walk_from(Walk { number, path }, lock),
            }
        }
    }

    /// Carries a walk on from the last session of its path, which is of this instance and waits for
    /// a lock.
    fn walk_from(&self, walk: Walk, lock: Global) {
        let waiter = walk.path.last().expect("invariant: a walk has a path");
        let (here, master) = self.ges.blockers(lock, waiter.locker);
        for (blocker, _) in here {
            self.walk_comes_to(walk.clone(), blocker);
        }
        if let Some((master, request)) = master {
            self.send_walk(master, walk, (lock, Stage::Master(request)));
        }
    }

    /// Takes a check that follows a wait for the transaction `via` of this instance.
    pub(crate) fn check_arrived(&self, from: InstanceId, check: Check, via: TxnId) -> Result<()> {
        let (at, path) = (check.at, &check.path);
        let next = path.get(at).or((at == path.len()).then_some(&path[0]));
        let Some(next) = next.filter(|n| n.instance == self.config.instance) else {
            return Err(Error::bad_message(
                from,
                "a deadlock check does not follow its path",
            ));
        };
        if self.active.owner(via) == Some(next.locker) && self.cluster.is_to_be_told(via, from) {
            self.check(check);
        }
        Ok(())
    }

    /// Walks the second round on as far as the path stays on this instance. If any wait has
    /// changed, the check ends here.
    fn check(&self, mut check: Check) {
        let me = self.config.instance;
        while let Some(step) = check.path.get(check.at).filter(|s| s.instance == me) {
            let next = check.next();
            let hop = Hop {
                locker: step.locker,
                serial: step.serial,
            };
            let here = (next.instance == me).then_some(next.locker);
            let Some(waits) = self.enqueues.still_waits(hop, here, me) else {
                return;
            };
            if check.told.len() < MAX_TOLD {
                let Some(told) = self.enqueues.tell(hop) else {
                    return;
                };
                check.told.push(told);
            }
            match waits {
                Wait::Here => check.at += 1,
                // The last step may wait for another instance's transaction and so lead back here.
                Wait::Elsewhere(Exit::Txn(txn)) => {
                    if txn.instance() == next.instance {
                        let message = TxnMessage::Check {
                            at: check.at as u16 + 1,
                            via: txn,
                            path: check.path.into(),
                            passing: check.passing,
                            told: check.told.into(),
                        };
                        self.cluster.send(Letter::new(txn.instance(), &message));
                    }
                    return;
                }
                Wait::Elsewhere(Exit::Lock(lock)) => {
                    let (blockers, master) = self.ges.blockers(lock, hop.locker);
                    let request = master.map_or(RequestId(0), |(_, id)| id);
                    if here.is_some() && check.goes_on(&blockers, (lock, request)) {
                        continue;
                    }
                    if let Some((master, request)) = master {
                        self.send_check(master, check, (lock, Stage::Master(request)));
                    }
                    return;
                }
            }
        }
        if check.at == check.path.len() {
            self.found(check);
        }
    }

    fn send_check(&self, to: InstanceId, check: Check, (lock, stage): (Global, Stage)) {
        if to == self.config.instance {
            return self.check_lock(check, (lock, stage));
        }
        let message = TxnMessage::LockCheck {
            at: check.at as u16,
            lock,
            stage,
            path: check.path.into(),
            passing: check.passing,
            told: check.told.into(),
        };
        self.cluster.send(Letter::new(to, &message));
    }

    /// Takes a check that follows a wait for a lock. The wait is at `at` of the path.
    pub(crate) fn lock_check_arrived(
        &self,
        from: InstanceId,
        check: Check,
        on: (Global, Stage),
    ) -> Result<()> {
        if check.at >= check.path.len() {
            return Err(Error::bad_message(
                from,
                "a deadlock check does not follow its path",
            ));
        }
        self.check_lock(check, on);
        Ok(())
    }

    /// The wait at `at` of the path is for a lock: does it still lead to the next one?
    fn check_lock(&self, mut check: Check, (lock, stage): (Global, Stage)) {
        let next = check.next();
        match stage {
            Stage::Master(of) => {
                let request = (check.path[check.at].instance, of);
                let against = self.ges.instances_against(lock, request);
                for (to, against) in against.into_iter().filter(|a| a.0 == next.instance) {
                    let stage = Stage::Holder(of, against);
                    self.send_check(to, check.clone(), (lock, stage));
                }
            }
            Stage::Holder(of, against) => {
                let blockers = self.ges.owners_against(lock, against);
                let is_here = next.instance == self.config.instance;
                if is_here && check.goes_on(&blockers, (lock, of)) {
                    self.check(check);
                }
            }
        }
    }

    /// Breaks a circle that was walked twice: lets one session pass another, or chooses a victim.
    fn found(&self, check: Check) {
        let (path, told) = (check.path, check.told);
        if let Some(Passing { at, lock, request }) = check.passing
            && let Some(by) = path.get(usize::from(at))
        {
            let ahead = path.get(usize::from(at) + 1).unwrap_or(&path[0]);
            if !self.cluster.walks.may_pass(*by, *ahead) {
                tracing::error!(
                    "a queue of locks was rearranged in vain; the deadlock has a victim"
                );
                return self.choose_victim(path, told);
            }
            let (locker, serial) = (ahead.locker, ahead.serial);
            if ahead.instance == self.config.instance {
                return self.let_pass(Hop { locker, serial }, (lock, *by, request));
            }
            let message = TxnMessage::LetPass {
                locker,
                serial,
                by: *by,
                lock,
                request,
            };
            return self.cluster.send(Letter::new(ahead.instance, &message));
        }
        self.choose_victim(path, told);
    }

    fn choose_victim(&self, path: Vec<Step>, told: Vec<Waiting>) {
        let victim = path.iter().max().expect("a circle has waits");
        if victim.instance == self.config.instance {
            self.doom(victim.locker, victim.serial, Ring::new(told, path.len()));
        } else {
            let message = TxnMessage::Victim {
                locker: victim.locker,
                serial: victim.serial,
                waits: path.len() as u64,
                told: told.into(),
            };
            self.cluster.send(Letter::new(victim.instance, &message));
        }
    }

    /// Lets another session pass a session of this instance in the queue of a lock, if this one
    /// still is in its wait of that number.
    pub(crate) fn let_pass(&self, ahead: Hop, (lock, by, request): (Global, Step, RequestId)) {
        if self.enqueues.is_in(ahead) {
            let by = (by.instance, by.locker, request);
            self.ges.let_pass(lock, ahead.locker, by);
            tracing::info!("a deadlock was avoided by rearranging the queue of a lock");
        }
    }

    /// Makes the session give up, if it still is in its wait of that number.
    pub(crate) fn doom(&self, locker: LockerId, serial: u64, ring: Ring) {
        self.enqueues.doom(Hop { locker, serial }, ring);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A circle that comes back for ever is given up in the end, and other circles are not
    /// affected.
    #[test]
    fn rearranging_in_vain_ends() {
        let walks = Walks::default();
        let step = |serial| Step {
            serial,
            instance: InstanceId(1),
            locker: LockerId(1),
        };
        for _ in 0..MAX_PASSES {
            assert!(walks.may_pass(step(1), step(2)));
        }
        assert!(!walks.may_pass(step(1), step(2)));
        assert!(walks.may_pass(step(2), step(1)));
        for n in 0..2 * MAX_PAIRS as u64 {
            assert!(walks.may_pass(step(3), step(n)));
        }
        assert!(walks.passed.lock().len() <= MAX_PAIRS);
    }
}
