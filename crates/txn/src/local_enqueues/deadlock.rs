//! Finding circles of sessions that wait for each other.
//!
//! A session that has waited for [`FIRST_CHECK`] looks for a circle through itself. If it finds
//! one, it looks again after [`SECOND_WALK`]. The circle is real only if both walks went over the
//! same waits: each wait has a serial of its own. Then the session that looked is the victim.
//!
//! A circle may never have existed, if the walk saw an edge that was about to go. Such a circle is
//! gone by the second walk. A victim that gives up takes its wait out of the graph under the same
//! latch, so a circle has one victim.

use super::locks::{Blocker, LockTable, LockerId, Resource};
use seam::HashSet;
use std::time::Duration;

/// A wait that is shorter than this is not looked at. Nearly all are shorter.
pub(super) const FIRST_CHECK: Duration = Duration::from_millis(200);
/// The time between the two walks over one circle.
pub(super) const SECOND_WALK: Duration = Duration::from_millis(20);
/// The time between later looks of one wait. A circle is closed by its newest wait, whose own first
/// look finds it. Later looks are for an edge that changed between two walks.
pub(super) const LATER_CHECKS: Duration = Duration::from_millis(600);

/// One wait in a circle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub(super) waiter: LockerId,
    serial: u64,
    pub(super) resource: Resource,
}

/// A circle of waits that leads from `start` back to it, if there is one that `start` would break
/// by giving up.
///
/// If a waiter merely stands behind `start` in a queue, and a holder keeps it waiting as well, it
/// would not get on if `start` gave up. So `start` does not. If the holder lets go and the circle
/// is still there, a later look finds it.
pub(super) fn circle(table: &LockTable, start: LockerId) -> Option<Vec<Edge>> {
    let mut seen = HashSet::from_iter([start]);
    let mut path: Vec<(Edge, Vec<Blocker>, bool)> = Vec::new();
    let enter = |path: &mut Vec<(Edge, Vec<Blocker>, bool)>, waiter: LockerId| {
        let mut blockers = Vec::new();
        if let Some((resource, serial)) = table.blockers(waiter, start, &mut blockers) {
            let held_up = blockers.iter().any(|b| b.directly);
            path.push((
                Edge {
                    waiter,
                    serial,
                    resource,
                },
                blockers,
                held_up,
            ));
        }
    };
    enter(&mut path, start);
    while let Some((_, blockers, held_up)) = path.last_mut() {
        let held_up = *held_up;
        match blockers.pop() {
            Some(b) if b.locker == start && (b.directly || !held_up) => {
                return Some(path.into_iter().map(|(edge, ..)| edge).collect());
            }
            Some(b) if seen.insert(b.locker) => enter(&mut path, b.locker),
            Some(_) => {}
            None => {
                path.pop();
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::locks::{Level, NameClass, Want};
    use super::super::mode::LockMode::*;
    use super::*;
    use crate::Place;
    use block::{InstanceId, RowId, Scn, TxnId};

    fn name(n: u64) -> Resource {
        Resource::Name(NameClass::Advisory, n, 0)
    }

    #[test]
    fn three_sessions_in_a_circle_and_one_beside() {
        let mut t = LockTable::default();
        let l = LockerId;
        for n in 0..3 {
            t.ask(l(n), name(n as u64), X, Level::Transaction, true);
        }
        t.ask(l(0), name(1), X, Level::Transaction, true);
        t.ask(l(1), name(2), S, Level::Transaction, true);
        t.ask(l(9), name(0), X, Level::Transaction, true);
        assert_eq!(circle(&t, l(0)), None);
        t.ask(l(2), name(0), X, Level::Transaction, true);
        let waiters =
            |start| circle(&t, l(start)).map(|c| c.iter().map(|e| e.waiter.0).collect::<Vec<_>>());
        assert_eq!(waiters(0), Some(vec![0, 1, 2]));
        assert_eq!(waiters(1), Some(vec![1, 2, 0]));
        assert_eq!(
            waiters(9),
            None,
            "session 2 stands behind 9, but 9 giving up would not help it"
        );
    }

    #[test]
    fn a_circle_over_a_transaction_and_a_place() {
        let mut t = LockTable::default();
        let (a, b) = (LockerId(1), LockerId(2));
        let txn = TxnId::new(InstanceId(1), 5);
        t.ask(a, name(1), X, Level::Transaction, true);
        t.ask(b, name(2), X, Level::Transaction, true);
        let want = Want {
            place: Place::Row(RowId(1)),
            looked: Scn::ZERO,
            since: seam::now(),
        };
        assert_eq!(circle(&t, a), None);
        t.ask(a, name(2), X, Level::Transaction, true);
        assert_eq!(circle(&t, a), None);
        t.await_txn(b, (txn, want), Some(a));
        assert!(circle(&t, a).is_some());
    }
}
