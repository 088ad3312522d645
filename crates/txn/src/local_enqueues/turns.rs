//! The part that the lock table has in turns at rows and keys ([`crate::cluster`]): which sessions
//! stand in line there, and sessions that let another instance's session pass.

use super::locks::Resource;
use super::{Enqueues, LockMode, LockWait, Locker, wake_after};
use crate::{Error, Place, Result};
use block::InstanceId;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

impl Enqueues {
    /// Waits of sessions until another instance's transaction, which is first in line there, takes
    /// the row or key, or until its time is over. `stands` must say false once either is published,
    /// which comes before [`Enqueues::end_turn`].
    pub(crate) fn wait_for_turn(
        &self,
        locker: &Locker,
        place: Place,
        (of, until): (InstanceId, Instant),
        stands: impl Fn() -> bool,
        wait: LockWait,
    ) -> Result<()> {
        let r = Resource::Turn(place);
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

    /// Lets the sessions go that let another instance's session pass at the place.
    pub(crate) fn end_turn(&self, place: Place) {
        let mut t = self.tables.lock();
        let mut wake = Vec::new();
        t.locks.let_go(Resource::Turn(place), &mut wake);
        wake_after(t, wake);
    }

    /// Whether any row has a line.
    #[inline]
    pub(crate) fn any_row_line(&self) -> bool {
        self.row_places.load(Ordering::Relaxed) != 0
    }

    /// Whether any key has a line.
    #[inline]
    pub(crate) fn any_key_line(&self) -> bool {
        self.key_places.load(Ordering::Relaxed) != 0
    }

    fn places(&self, like: Place) -> &AtomicUsize {
        match like {
            Place::Row(_) => &self.row_places,
            Place::Key { .. } => &self.key_places,
        }
    }

    /// A session takes the first place of a line, or gives it back.
    pub(crate) fn count_place(&self, place: Place, taken: bool) {
        match taken {
            true => self.places(place).fetch_add(1, Ordering::SeqCst),
            false => self.places(place).fetch_sub(1, Ordering::SeqCst),
        };
    }

    /// Since when the session at the head of a line has stood there; `None` if there is none.
    pub(crate) fn wanted_since(&self, place: Place) -> Option<Instant> {
        self.tables.lock().locks.held_since(Resource::Place(place))
    }
}
