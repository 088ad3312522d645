//! The waits of this instance as part of circles over several instances ([`crate::cluster`]).

use super::locks::{LockerId, Resource, Want};
use super::{Enqueues, Tables};
use crate::global_enqueues::Global;
use crate::ring::{Ring, Waiting};
use block::{InstanceId, TxnId};
use seam::HashSet;
use std::sync::atomic::Ordering;
use wait::Stat;

/// Called for a session that has waited for a while and is in no circle of this instance alone. No
/// latch is held during the call.
pub(crate) type Suspicion = Box<dyn Fn(LockerId) + Send + Sync>;

/// No session: lockers are numbered from 1. Walks over several instances follow the holders. A
/// session that only stands ahead in a queue waits for the same holders.
const NOBODY: LockerId = LockerId(0);

/// A session that waits, with the serial of its wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hop {
    pub(crate) locker: LockerId,
    pub(crate) serial: u64,
}

/// The wait over which a path leaves this lock table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// A wait for a transaction of another instance.
    Txn(TxnId),
    /// A wait for a lock that other instances have.
    Lock(Global),
}

/// Where one wait leads: to a session of this instance, or out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Here,
    Elsewhere(Exit),
}

/// Where the waits lead that begin with one session's.
#[derive(Default)]
pub(crate) struct Reach {
    /// Paths that go on elsewhere.
    pub(crate) exits: Vec<(Vec<Hop>, Exit)>,
    /// A path to the session that was looked for.
    pub(crate) back: Option<Vec<Hop>>,
}

impl Enqueues {
    pub(crate) fn on_suspicion(&self, suspicion: Suspicion) {
        assert!(
            self.suspicion.set(suspicion).is_ok(),
            "invariant: an instance joins once"
        );
    }

    /// Waits for transactions of other instances than `me`.
    pub(crate) fn awaited_elsewhere(&self, me: InstanceId) -> Vec<(TxnId, Want)> {
        if self.txn_waiters.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let t = self.tables.lock();
        let mut awaited = Vec::new();
        for (r, lock) in &t.locks.locks {
            if let Resource::Txn(txn) = r
                && txn.instance() != me
            {
                let wants = lock.queue.iter().filter_map(|q| q.want);
                awaited.extend(wants.map(|want| (*txn, want)));
            }
        }
        awaited
    }

    /// Follows the waits from the session `from` on, over sessions that are not in `visited`. Stops
    /// at `target`.
    pub(crate) fn reach(
        &self,
        from: LockerId,
        target: Option<LockerId>,
        me: InstanceId,
        visited: &mut HashSet<LockerId>,
    ) -> Reach {
        let t = self.tables.lock();
        let mut reach = Reach::default();
        let mut path: Vec<Hop> = Vec::new();
        let mut ways: Vec<Vec<LockerId>> = vec![vec![from]];
        while let Some(open) = ways.last_mut() {
            let Some(next) = open.pop() else {
                ways.pop();
                path.pop();
                continue;
            };
            if Some(next) == target {
                reach.back = Some(path);
                return reach;
            }
            if !visited.insert(next) {
                continue;
            }
            let mut blockers = Vec::new();
            let Some((resource, serial)) = t.locks.blockers(next, NOBODY, &mut blockers) else {
                continue;
            };
            path.push(Hop {
                locker: next,
                serial,
            });
            if let Some(exit) = exit(resource, me) {
                reach.exits.push((path.clone(), exit));
            }
            ways.push(blockers.into_iter().map(|b| b.locker).collect());
        }
        reach
    }

    /// Where the session's wait leads, if its serial is still that of `hop`. `None` if it is
    /// another wait, or if it does not lead to `next`.
    pub(crate) fn still_waits(
        &self,
        hop: Hop,
        next: Option<LockerId>,
        me: InstanceId,
    ) -> Option<Wait> {
        let t = self.tables.lock();
        let mut blockers = Vec::new();
        let (resource, serial) = t.locks.blockers(hop.locker, NOBODY, &mut blockers)?;
        if serial != hop.serial {
            return None;
        }
        if let Some(exit) = exit(resource, me) {
            return Some(Wait::Elsewhere(exit));
        }
        let leads = |to| blockers.iter().any(|b| b.locker == to);
        next.is_some_and(leads).then_some(Wait::Here)
    }

    /// That wait, as a client is told. `None` if it is over.
    pub(crate) fn tell(&self, hop: Hop) -> Option<Waiting> {
        let t = self.tables.lock();
        let same = t.is_in(hop);
        same.then(|| t.waiting(hop.locker, self.me))?
    }

    /// Whether the session is in that very wait.
    pub(crate) fn is_in(&self, hop: Hop) -> bool {
        self.tables.lock().is_in(hop)
    }

    /// Makes the victim give up because of this circle, if it is still in that wait.
    pub(crate) fn doom(&self, victim: Hop, ring: Ring) {
        let mut t = self.tables.lock();
        if !t.is_in(victim) {
            return;
        }
        t.doomed.insert(victim.locker.0, (victim.serial, ring));
        super::wake_after(t, vec![victim.locker]);
    }
}

fn exit(resource: Resource, me: InstanceId) -> Option<Exit> {
    match resource {
        Resource::Txn(txn) if txn.instance() != me => Some(Exit::Txn(txn)),
        Resource::Global(g) => Some(Exit::Lock(g)),
        _ => None,
    }
}

impl Tables {
    /// Whether the session is in that very wait.
    fn is_in(&self, hop: Hop) -> bool {
        let request = self.locks.request_of(hop.locker);
        request.is_some_and(|(_, r)| r.serial == hop.serial)
    }

    /// The circle because of which the session must give up its wait, if so.
    pub(super) fn take_doom(&mut self, locker: LockerId) -> Option<Ring> {
        let (serial, ring) = self.doomed.remove(&locker.0)?;
        let same = self.is_in(Hop { locker, serial });
        if same {
            wait::stat::add(Stat::Deadlocks, 1);
        }
        same.then_some(ring)
    }
}
