//! Finding deadlocks across instances: a walk along who waits for whom.
//!
//! A walk starts at an owner that has waited for a while. It goes from waiter to blocker: on the waiter's instance to the
//! owners in its way there, through the lock's master to the instances in its way, and on each of those to the owners
//! behind the kept lock (26, 23e). Coming back to where it started it has found a cycle. Nothing stands still meanwhile,
//! so the edges of one walk may never have existed at one time: a cycle counts only if a second walk finds the same one,
//! each wait under the same number. The first walk visits an owner once (walking all paths would take time exponential in
//! the number of waiters), the second follows the first's cycle only. Then the youngest owner in it is the victim; everybody who walks it chooses the same.

use super::message::{Effect, Message, Owner, Resource};
use super::{Enqueues, Mode, at};
use block::ids::InstanceId;
use std::collections::BTreeSet;

/// A walk is given up beyond so many edges: it visits an owner once, and an instance has no more sessions than this.
const MAX_PATH: usize = 10_000;

/// `waiter`, in its wait of this number, waits for `blocker`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Edge {
    pub waiter: Owner,
    pub wait: u64,
    pub blocker: Owner,
}

/// Where a walk goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Step {
    /// At the owner's instance: what does it wait for?
    Owner(Owner),
    /// At the resource's master: who stands against the instance of `waiter`?
    Master {
        resource: Resource,
        waiter: Owner,
        wait: u64,
    },
    /// At an instance that stands in the way: which of its owners?
    Holder {
        resource: Resource,
        mode: Mode,
        ahead: bool,
        waiter: Owner,
        wait: u64,
    },
}

/// A walk under way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Probe {
    origin: Owner,
    /// Tells the walks of one origin apart.
    walk: u64,
    path: Vec<Edge>,
    /// The cycle that the first walk found.
    first: Option<Vec<Edge>>,
    step: Step,
}

impl Enqueues {
    /// An owner of this instance has waited for a while (half a second, say): is it part of a deadlock?
    pub fn suspect(&mut self, owner: Owner, out: &mut Vec<Effect>) {
        let walk = self.locks.next_wait();
        self.walk(Probe::from(owner, walk, None), out);
        self.settle(out);
    }

    /// The number under which an owner waits here.
    pub(super) fn wait_number(&self, owner: Owner) -> Option<u64> {
        let for_txn = self.txn_waits.get(&owner).map(|w| w.1);
        for_txn.or_else(|| self.locks.wait_of(owner).map(|w| w.1))
    }

    pub(super) fn walk(&mut self, probe: Probe, out: &mut Vec<Effect>) {
        if probe.path.len() > MAX_PATH {
            return;
        }
        match probe.step {
            Step::Owner(owner) if owner == probe.origin && !probe.path.is_empty() => {
                self.cycle(probe, out);
            }
            Step::Owner(owner) => {
                if probe.first.is_some() || self.first_visit(owner, &probe) {
                    self.visit(owner, &probe, out);
                }
            }
            Step::Master {
                resource,
                waiter,
                wait,
            } => {
                for (to, mode, ahead) in self.directory.blockers(resource, waiter.instance()) {
                    let step = Step::Holder {
                        resource,
                        mode,
                        ahead,
                        waiter,
                        wait,
                    };
                    probe.go_on(to, step, out);
                }
            }
            Step::Holder {
                resource,
                mode,
                ahead,
                waiter,
                wait,
            } => {
                for blocker in self.locks.owners_against(resource, mode, ahead) {
                    probe.follow(waiter, wait, blocker, out);
                }
            }
        }
    }

    /// Whether this walk comes to this owner for the first time. Remembered until the next walk of the same origin, or
    /// the timer.
    fn first_visit(&mut self, owner: Owner, probe: &Probe) -> bool {
        let visits = self.visited.entry(probe.origin).or_default();
        if visits.0 != probe.walk {
            *visits = (probe.walk, BTreeSet::new());
        }
        visits.1.insert(owner)
    }

    fn visit(&self, owner: Owner, probe: &Probe, out: &mut Vec<Effect>) {
        if let Some(&(txn, wait)) = self.txn_waits.get(&owner) {
            probe.follow(owner, wait, txn, out);
        }
        let Some((resource, wait, blockers, at_master)) = self.locks.wait_of(owner) else {
            return;
        };
        for blocker in blockers {
            probe.follow(owner, wait, blocker, out);
        }
        if at_master {
            let to = self.masters[at(resource, &self.masters)];
            let waiter = owner;
            let step = Step::Master {
                resource,
                waiter,
                wait,
            };
            probe.go_on(to, step, out);
        }
    }

    /// Back where it started: once more, or the second time.
    fn cycle(&mut self, probe: Probe, out: &mut Vec<Effect>) {
        match probe.first {
            None => self.walk(Probe::from(probe.origin, probe.walk, Some(probe.path)), out),
            Some(first) if first == probe.path => {
                let youngest = first.iter().max_by_key(|e| (e.waiter.number(), e.waiter));
                let &Edge { waiter, wait, .. } = youngest.expect("a cycle has edges");
                let message = Message::Victim {
                    owner: waiter,
                    wait,
                };
                let to = waiter.instance();
                out.push(Effect::Send { to, message });
            }
            Some(_) => unreachable!("the second walk keeps to the path of the first"),
        }
    }
}

impl Probe {
    fn from(origin: Owner, walk: u64, first: Option<Vec<Edge>>) -> Self {
        Probe {
            origin,
            walk,
            path: Vec::new(),
            first,
            step: Step::Owner(origin),
        }
    }

    #[cfg(test)]
    pub(super) fn is_second(&self) -> bool {
        self.first.is_some()
    }

    fn go_on(&self, to: InstanceId, step: Step, out: &mut Vec<Effect>) {
        let mut probe = self.clone();
        probe.step = step;
        let message = Message::Walk(probe);
        out.push(Effect::Send { to, message });
    }

    /// Along one edge; the second walk only along those of the first.
    fn follow(&self, waiter: Owner, wait: u64, blocker: Owner, out: &mut Vec<Effect>) {
        let edge = Edge {
            waiter,
            wait,
            blocker,
        };
        let known = |first: &Vec<Edge>| first.get(self.path.len()) == Some(&edge);
        if self.first.as_ref().is_none_or(known) {
            let mut probe = self.clone();
            probe.path.push(edge);
            probe.go_on(blocker.instance(), Step::Owner(blocker), out);
        }
    }
}
