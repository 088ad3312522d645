//! Locks as a session takes them. A transaction notes here what it holds, so that its end gives all
//! of it back.

use crate::cluster::is_over;
use crate::global_enqueues::PICTURE;
use crate::local_enqueues::{Level, LockMode, LockWait, NameClass, Resource, Runs, Want};
use crate::{Error, Place, Result, Transaction, TxnState};
use block::{ObjectId, RowId, TxnId};
use std::time::Instant;

impl Transaction {
    /// Waits until `holder`, whose stamp is on the row, has ended or has undone some of its
    /// changes. Then the caller looks at the row again. The caller must have looked at it since its
    /// last wait, and must hold no latch.
    ///
    /// Sessions that wait for one row are served in order. The first keeps its place until it has
    /// logged a change, waits for another row or key, or its statement ends. The others stand
    /// behind it. Sessions of several instances are served in the order of their times
    /// ([`crate::cluster`]).
    pub fn wait_for_row(&mut self, holder: TxnId, row: RowId, wait: LockWait) -> Result<()> {
        match self.shares(row) {
            true => self.wait_out_of_line(holder, row, wait),
            false => self.wait_in_line(holder, Place::Row(row), wait),
        }
    }

    /// Waits, as [`Transaction::wait_for_row`] does, for the transaction that decides whether a key
    /// is free. Whatever row has the key, sessions that wait for it stand in one line. The first
    /// keeps its place until [`Transaction::leave_key`], until it waits for another row or key, or
    /// its statement ends.
    pub fn wait_for_key(&mut self, holder: TxnId, key: Place, wait: LockWait) -> Result<()> {
        self.wait_in_line(holder, key, wait)
    }

    fn wait_in_line(&mut self, holder: TxnId, place: Place, wait: LockWait) -> Result<()> {
        assert!(
            holder != self.id(),
            "invariant: no transaction waits for itself"
        );
        let ended = self.manager.state_now(holder)? != TxnState::Active;
        let of_another = holder.instance() != self.manager.config.instance;
        if ended && !of_another {
            return Ok(());
        }
        if wait == LockWait::NoWait {
            return match ended {
                true => Ok(()),
                false => Err(Error::LockNotAvailable(Resource::Place(place).to_string())),
            };
        }
        let since = self.stand_in_line(place, wait)?;
        if ended {
            self.claim_turn(holder, (place, since));
            return Ok(());
        }
        let waited = self.wait_for_txn(holder, (place, since), wait);
        if waited.is_err() {
            self.leave_place();
        }
        waited
    }

    /// Waits as [`Transaction::wait_for_row`] does, beside the row's line: for a session that has a
    /// lock on the row, for which those in the line may wait.
    pub(crate) fn wait_out_of_line(
        &mut self,
        holder: TxnId,
        row: RowId,
        wait: LockWait,
    ) -> Result<()> {
        assert!(
            holder != self.id(),
            "invariant: no transaction waits for itself"
        );
        if self.manager.state_now(holder)? != TxnState::Active {
            return Ok(());
        }
        let place = Place::Row(row);
        if wait == LockWait::NoWait {
            return Err(Error::LockNotAvailable(Resource::Place(place).to_string()));
        }
        self.wait_for_txn(holder, (place, seam::now()), wait)
    }

    /// The holder, of another instance, has ended before this session could wait for it. If
    /// sessions there take the row or key by turns, each is over before this session can ask for
    /// the next. They are to let this one pass.
    fn claim_turn(&self, holder: TxnId, (place, since): (Place, Instant)) {
        let want = Want {
            place,
            looked: self.looked,
            since,
        };
        self.manager.cluster.want_end(holder, &want);
    }

    /// Whether another session is to go first that wants the row: one that stands in the row's line
    /// here, unless it waits for somebody who shares the row, or one of another instance whose turn
    /// it is. Two loads where no session waits for a row.
    #[inline]
    pub fn is_wanted(&self, row: RowId) -> bool {
        if self.shares(row) {
            return false;
        }
        let manager = &self.manager;
        (manager.enqueues.any_row_line()
            && self.is_line_of_others(Place::Row(row))
            && !manager.sharers.is_waited_for(row))
            || self.is_promised(Place::Row(row))
    }

    /// Whether another session may be to go first at some key. Two loads; no key need be looked at
    /// if it says no.
    #[inline]
    pub fn any_key_is_wanted(&self) -> bool {
        self.manager.enqueues.any_key_line() || self.manager.cluster.turns.any()
    }

    /// Whether another session is to go first that wants the key: one that stands in the key's line
    /// here, or one of another instance whose turn it is.
    pub fn is_key_wanted(&self, key: Place) -> bool {
        self.is_line_of_others(key) || self.is_promised(key)
    }

    fn is_line_of_others(&self, place: Place) -> bool {
        let head_of = self.place.is_some_and(|at| at.0 == place);
        !head_of && self.manager.enqueues.wanted_since(place).is_some()
    }

    fn is_promised(&self, place: Place) -> bool {
        let turns = &self.manager.cluster.turns;
        turns.any() && turns.promised(place).is_some()
    }

    /// Lets sessions pass that go first at the row ([`Transaction::is_wanted`]) or key
    /// ([`Transaction::is_key_wanted`]). The caller is about to change the row or to put the key,
    /// has not changed the row yet, or has no row with the key, and holds no latch. With
    /// [`LockWait::NoWait`] no session is let pass.
    pub fn let_pass(&mut self, place: Place, wait: LockWait) -> Result<()> {
        if wait == LockWait::NoWait {
            return Ok(());
        }
        self.stand_in_line(place, wait)?;
        let manager = self.manager.clone();
        while let Some(promise) = manager.cluster.turns.promised(place) {
            let stands = || manager.cluster.turns.promised(place).is_some();
            let waited = manager
                .enqueues
                .wait_for_turn(&self.locker, place, promise, stands, wait);
            if let Err(e) = waited {
                self.leave_place();
                return Err(e);
            }
            manager.expire_turns();
        }
        Ok(())
    }

    /// Takes the first place in the line. Returns since when this session has wanted what it is
    /// for.
    fn stand_in_line(&mut self, place: Place, wait: LockWait) -> Result<Instant> {
        if let Some((_, since)) = self.place.filter(|at| at.0 == place) {
            return Ok(since);
        }
        self.leave_place();
        let since = seam::now();
        let (line, level) = (Resource::Place(place), Level::Transaction);
        self.manager
            .enqueues
            .lock(&self.locker, line, LockMode::X, level, wait)?;
        self.manager.enqueues.count_place(place, true);
        self.place = Some((place, since));
        Ok(since)
    }

    fn wait_for_txn(
        &mut self,
        holder: TxnId,
        (place, since): (Place, Instant),
        wait: LockWait,
    ) -> Result<()> {
        let manager = &self.manager;
        let want = Want {
            place,
            looked: self.looked,
            since,
        };
        let runs = match holder.instance() == manager.config.instance {
            true => Runs::Here(manager.active.owner(holder)),
            false => Runs::Elsewhere,
        };
        manager.turn_taken(place);
        let waited = manager.enqueues.wait_for_txn(
            &self.locker,
            (holder, want),
            runs,
            || {
                !is_over(manager.state(holder))
                    && !manager.active.has_undone_since(holder, want.looked)
            },
            || {
                if runs == Runs::Elsewhere {
                    manager.cluster.want_end(holder, &want);
                }
            },
            wait,
        );
        self.looked = manager.clock.now();
        waited
    }

    /// Lets the next session in the line come forward, of this instance or of another.
    pub(crate) fn leave_place(&mut self) {
        let Some((place, _)) = self.place.take() else {
            return;
        };
        let manager = &self.manager;
        if let Place::Row(row) = place
            && std::mem::take(&mut self.stopped_by_sharers)
        {
            manager.sharers.count_wait(row, false);
        }
        let (line, level) = (Resource::Place(place), Level::Transaction);
        manager.enqueues.count_place(place, false);
        manager
            .enqueues
            .unlock(&self.locker, line, LockMode::X, level);
        manager.turn_taken(place);
    }

    /// Leaves the line if it is a row's: a record says from now on that the row is this
    /// transaction's.
    pub(crate) fn leave_row(&mut self) {
        if let Some((Place::Row(_), _)) = self.place {
            self.leave_place();
        }
    }

    /// Leaves the line if it is a key's. The caller has put the key, or will not put it. May be
    /// called under latches.
    #[inline]
    pub fn leave_key(&mut self) {
        if let Some((Place::Key { .. }, _)) = self.place {
            self.leave_place();
        }
    }

    /// Locks a table until the transaction ends, or until a rollback to a savepoint set before.
    /// `SS` and `SX` normally cost a store and a fence.
    pub fn lock_table(&mut self, object: ObjectId, mode: LockMode, wait: LockWait) -> Result<()> {
        if self
            .tables
            .iter()
            .any(|(o, held)| *o == object && held.covers(mode))
        {
            return Ok(());
        }
        let enqueues = &self.manager.enqueues;
        if !mode.is_weak() || !enqueues.try_fast(&self.locker, object, mode) {
            let of_transaction = (mode, Level::Transaction);
            let ges = &self.manager.ges;
            ges.take(&self.locker, Resource::Table(object), of_transaction, wait)?;
        }
        self.tables.push((object, mode));
        Ok(())
    }

    /// Locks a name until the transaction ends: `S` shared, `X` exclusive.
    pub fn lock_name(
        &mut self,
        class: NameClass,
        a: u64,
        b: u64,
        mode: LockMode,
        wait: LockWait,
    ) -> Result<()> {
        let r = Resource::Name(class, a, b);
        if self
            .names
            .iter()
            .any(|(n, held)| *n == r && held.covers(mode))
        {
            return Ok(());
        }
        self.lock(r, mode, Level::Transaction, wait)?;
        self.names.push((r, mode));
        Ok(())
    }

    /// Locks `r` against the sessions of all instances.
    fn lock(&mut self, r: Resource, mode: LockMode, level: Level, wait: LockWait) -> Result<()> {
        let ges = &self.manager.ges;
        ges.take(&self.locker, r, (mode, level), wait)
    }

    fn unlock(&self, r: Resource, mode: LockMode, level: Level) -> bool {
        let held = self.manager.enqueues.unlock(&self.locker, r, mode, level);
        self.manager.ges.lower(&self.locker, r);
        held
    }

    /// Prepares the commit of a transaction that has changed the dictionary. Until the commit is
    /// published nobody reads a picture of the dictionary. After that every picture is stale.
    pub fn dictionary_changes(&mut self) -> Result<()> {
        if !self.manager.cluster.is_joined() {
            return Ok(());
        }
        self.lock(PICTURE, LockMode::X, Level::Transaction, LockWait::Forever)?;
        self.names.push((PICTURE, LockMode::X));
        let ges = &self.manager.ges;
        ges.dictionary_changes(&self.locker, &self.manager.clock);
        Ok(())
    }

    /// Takes an advisory lock. Returns `false` if the lock is not free and `wait` is
    /// [`LockWait::NoWait`]. Locks of the session are counted and outlive transactions. Keys of
    /// different `space`s are different locks.
    pub fn advisory_lock(
        &mut self,
        key: u64,
        space: u64,
        shared: bool,
        level: Level,
        wait: LockWait,
    ) -> Result<bool> {
        let (r, mode) = advisory(key, space, shared);
        match self.lock(r, mode, level, wait) {
            Ok(()) => {}
            Err(Error::LockNotAvailable(_)) if wait == LockWait::NoWait => return Ok(false),
            Err(e) => return Err(e),
        }
        match level {
            Level::Transaction => self.names.push((r, mode)),
            Level::Session => self.session_names.push((r, mode)),
        }
        Ok(true)
    }

    /// Gives one advisory lock of the session back. Returns `false` if the session does not hold
    /// it.
    pub fn advisory_unlock(&mut self, key: u64, space: u64, shared: bool) -> bool {
        let lock = advisory(key, space, shared);
        match self.session_names.iter().position(|held| *held == lock) {
            Some(at) => {
                let (r, mode) = self.session_names.swap_remove(at);
                self.unlock(r, mode, Level::Session)
            }
            None => false,
        }
    }

    /// Gives all advisory locks of the session back.
    pub fn advisory_unlock_all(&mut self) {
        let is_advisory = |r: &Resource| matches!(r, Resource::Name(NameClass::Advisory, ..));
        let all = std::mem::take(&mut self.session_names);
        let (advisory, kept) = all.into_iter().partition(|(r, _)| is_advisory(r));
        self.session_names = kept;
        let advisory: Vec<(Resource, LockMode)> = advisory;
        for (r, mode) in advisory {
            self.unlock(r, mode, Level::Session);
        }
    }

    /// Holds an object until the session ends, in whichever way: when its instance dies, too.
    /// Returns `false` if another session holds it.
    pub fn hold_object(&mut self, object: u64) -> Result<bool> {
        // Names have 0 there, the dictionary as a whole 1, and definitions 2.
        const HELD: u64 = 3;
        let held = (
            Resource::Name(NameClass::Dictionary, object, HELD),
            LockMode::X,
        );
        match self.lock(held.0, held.1, Level::Session, LockWait::NoWait) {
            Ok(()) => {
                self.session_names.push(held);
                Ok(true)
            }
            Err(Error::LockNotAvailable(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn unlock_session(&mut self) {
        for (r, mode) in std::mem::take(&mut self.session_names) {
            self.unlock(r, mode, Level::Session);
        }
    }

    /// Gives back the transaction's locks, newest first, except its first `tables` table locks and
    /// its first `names` name locks.
    pub(crate) fn unlock_since(&mut self, tables: usize, names: usize) {
        while self.tables.len() > tables {
            let (object, mode) = self.tables.pop().expect("there is one");
            let enqueues = &self.manager.enqueues;
            if enqueues.unlock_table(&self.locker, object, mode) {
                self.manager
                    .ges
                    .lower(&self.locker, Resource::Table(object));
            }
        }
        while self.names.len() > names {
            let (r, mode) = self.names.pop().expect("there is one");
            self.unlock(r, mode, Level::Transaction);
        }
    }

    /// How many table locks the transaction holds: a mark for [`Transaction::unlock_table`].
    pub fn table_locks(&self) -> usize {
        self.tables.len()
    }

    /// Gives back the locks on one table that were taken after the mark. Only for a table under
    /// whose lock nothing was read or written, and with no savepoint set since the mark.
    pub fn unlock_table(&mut self, object: ObjectId, mark: usize) {
        for at in (mark..self.tables.len()).rev() {
            if self.tables[at].0 != object {
                continue;
            }
            let (object, mode) = self.tables.remove(at);
            let enqueues = &self.manager.enqueues;
            if enqueues.unlock_table(&self.locker, object, mode) {
                self.manager
                    .ges
                    .lower(&self.locker, Resource::Table(object));
            }
        }
    }

    pub(crate) fn unlock_transaction(&mut self) {
        self.leave_place();
        self.unlock_since(0, 0);
    }
}

fn advisory(key: u64, space: u64, shared: bool) -> (Resource, LockMode) {
    (
        Resource::Name(NameClass::Advisory, key, space),
        if shared { LockMode::S } else { LockMode::X },
    )
}
