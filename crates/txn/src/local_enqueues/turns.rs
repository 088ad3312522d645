//! The part that the lock table has in turns at rows ([`crate::cluster`]): which sessions want a
//! row, and sessions that let another instance's session pass.

use super::locks::Resource;
use super::{Enqueues, LockMode, LockWait, Locker, wake_after};
use crate::{Error, Result};
use block::{InstanceId, RowId};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Enqueues {
    /// Waits of sessions until another instance's transaction, which is first in line for it, takes
    /// the row, or until its time is over. `stands` must say false once either is published, which
    /// comes before [`Enqueues::end_turn`].
    pub(crate) fn wait_for_turn(
        &self,
        locker: &Locker,
        row: RowId,
        (of, until): (InstanceId, Instant),
        stands: impl Fn() -> bool,
        wait: LockWait,
    ) -> Result<()> {
        let r = Resource::Turn(row);
        let mut t = self.tables.lock();
        if !stands() {
            return Ok(());
        }
        t.locks.await_turn(locker.id, r);
        drop(t);
        let (deadline, own) = match wait {
            LockWait::Until(at) if at < until => (at, true),
            _ => (until, false),
        };
        let deadline = LockWait::Until(deadline);
        match self.wait(locker, r, LockMode::X, deadline, Some(of)) {
            Err(Error::LockTimeout) if !own => Ok(()),
            waited => waited,
        }
    }

    /// Lets the sessions go that let another instance's session pass at the row.
    pub(crate) fn end_turn(&self, row: RowId) {
        let mut t = self.tables.lock();
        let mut wake = Vec::new();
        t.locks.let_go(Resource::Turn(row), &mut wake);
        wake_after(t, wake);
    }

    /// Whether any row has a queue.
    #[inline]
    pub(crate) fn any_row_queue(&self) -> bool {
        self.row_places.load(Ordering::Relaxed) != 0
    }

    /// A session takes the first place of a row's queue, or gives it back.
    pub(crate) fn count_row_place(&self, taken: bool) {
        match taken {
            true => self.row_places.fetch_add(1, Ordering::SeqCst),
            false => self.row_places.fetch_sub(1, Ordering::SeqCst),
        };
    }

    /// Since when the session at the head of a row's queue has wanted the row; `None` if there is
    /// none.
    pub(crate) fn wanted_since(&self, row: RowId) -> Option<Instant> {
        self.tables.lock().locks.held_since(Resource::Row(row))
    }
}
