//! Users of a table: for definitions that wait for transactions instead of standing in a queue.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use block::ObjectId;

use super::locks::LockerId;
use super::{Enqueues, LockMode, Resource};

/// A transaction that holds a lock on a table, as long as it does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TableUser {
    /// The session's number in the lock table of its instance.
    pub locker: u32,
    /// Which of the session's transactions.
    pub serial: u64,
}

impl Enqueues {
    /// The transactions of this instance that hold a table in a mode that `mode` excludes.
    ///
    /// A session stores its lock, fences, and then looks whether the dictionary has changed. Who
    /// asks has changed it, fences here, and then looks at the locks. One of the fences comes
    /// first: so a session that is not among the users knows of the change.
    pub(crate) fn table_users(&self, object: ObjectId, mode: LockMode) -> Vec<TableUser> {
        fence(Ordering::SeqCst);
        let t = self.tables.lock();
        let listed = t.locks.locks.get(&Resource::Table(object));
        let listed = listed.into_iter().flat_map(|l| &l.holders);
        let listed = listed.filter(|h| h.modes().any(|m| m.conflicts(mode)));
        let mut lockers: Vec<LockerId> = listed.map(|h| h.locker).collect();
        let is_meant = |slot: &AtomicU64| {
            let word = slot.load(Ordering::SeqCst);
            word != 0
                && word >> 8 == u64::from(object.0)
                && LockMode::from_bits(word as u8).conflicts(mode)
        };
        let fast = t.lockers.values().filter(|l| l.fast.iter().any(is_meant));
        lockers.extend(fast.map(|l| l.id));
        let user = |id: LockerId| {
            let locker = t.lockers.get(&id.0)?;
            Some(TableUser {
                locker: id.0,
                serial: locker.transactions.load(Ordering::SeqCst),
            })
        };
        lockers.into_iter().filter_map(user).collect()
    }
}
