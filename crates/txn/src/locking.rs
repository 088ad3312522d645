//! Locks as a session takes them. A transaction notes here what it holds, so that its end gives all
//! of it back.

use crate::cluster::is_over;
use crate::global_enqueues::PICTURE;
use crate::local_enqueues::{Level, LockMode, LockWait, NameClass, Resource, Runs, Want};
use crate::{Error, Result, Transaction, TxnState};
use block::{ObjectId, RowId, TxnId};
use std::time::Instant;

impl Transaction {
    /// Waits until `holder`, whose stamp is on the row, has ended or has undone some of its
    /// changes. Then the caller looks at the row again. The caller must have looked at it since its
    /// last wait, and must hold no latch.
    ///
    /// Sessions that wait for one row are served in order. The first keeps its place until it has
    /// logged a change, waits for another row, or its statement ends. The others stand behind it.
    /// Sessions of several instances are served in the order of their times ([`crate::cluster`]).
    pub fn wait_for_row(&mut self, holder: TxnId, row: RowId, wait: LockWait) -> Result<()> {
        assert!(
            holder != self.id(),
            "invariant: no transaction waits for itself"
        );
        if self.shares(row) {
            return self.wait_out_of_line(holder, row, wait);
        }
        if self.manager.state_now(holder)? != TxnState::Active {
            self.claim_turn(holder, row);
            return Ok(());
        }
        if wait == LockWait::NoWait {
            return Err(Error::LockNotAvailable(Resource::Row(row).to_string()));
        }
        let since = self.stand_in_line(row, wait)?;
        let waited = self.wait_for_txn(holder, (row, since), wait);
        if waited.is_err() {
            self.leave_row();
        }
        waited
    }

    /// Waits as [`Transaction::wait_for_row`] does, beside the row's queue: for a session that has
    /// a lock on the row, for which those in the queue may wait.
    pub(crate) fn wait_out_of_line(
        &mut self,
        holder: TxnId,
        row: RowId,
        wait: LockWait,
    ) -> Result<()> {
        if self.manager.state_now(holder)? != TxnState::Active {
            return Ok(());
        }
        if wait == LockWait::NoWait {
            return Err(Error::LockNotAvailable(Resource::Row(row).to_string()));
        }
        self.wait_for_txn(holder, (row, seam::now()), wait)
    }

    /// The holder, which has ended before this session could wait for it, may be of another
    /// instance whose sessions take the row by turns. They are to let this one pass that has waited
    /// before.
    fn claim_turn(&self, holder: TxnId, row: RowId) {
        let manager = &self.manager;
        if holder.instance() == manager.config.instance {
            return;
        }
        if let Some((_, since)) = self.row.filter(|at| at.0 == row) {
            let looked = self.looked;
            manager
                .cluster
                .want_end(holder, &Want { row, looked, since });
        }
    }

    /// Whether another session is to go first that wants the row: one that stands in the row's
    /// queue here, unless it waits for somebody who shares the row, or one of another instance
    /// whose turn it is. Two loads where no session waits for a row.
    #[inline]
    pub fn is_wanted(&self, row: RowId) -> bool {
        if self.shares(row) {
            return false;
        }
        let manager = &self.manager;
        let head_of = self.row.is_some_and(|at| at.0 == row);
        (manager.enqueues.any_row_queue()
            && !head_of
            && manager.enqueues.wanted_since(row).is_some()
            && !manager.sharers.is_waited_for(row))
            || (manager.cluster.turns.any() && manager.cluster.turns.promised(row).is_some())
    }

    /// Lets sessions pass that go first at the row ([`Transaction::is_wanted`]). The caller is
    /// about to change the row, has not changed it yet, and holds no latch. With
    /// [`LockWait::NoWait`] no session is let pass.
    pub fn let_pass(&mut self, row: RowId, wait: LockWait) -> Result<()> {
        if wait == LockWait::NoWait {
            return Ok(());
        }
        self.stand_in_line(row, wait)?;
        let manager = self.manager.clone();
        while let Some(promise) = manager.cluster.turns.promised(row) {
            let stands = || manager.cluster.turns.promised(row).is_some();
            let waited = manager
                .enqueues
                .wait_for_turn(&self.locker, row, promise, stands, wait);
            if let Err(e) = waited {
                self.leave_row();
                return Err(e);
            }
            manager.expire_turns();
        }
        Ok(())
    }

    /// Takes the first place in the row's queue. Returns since when this session has wanted the
    /// row.
    fn stand_in_line(&mut self, row: RowId, wait: LockWait) -> Result<Instant> {
        if let Some((_, since)) = self.row.filter(|at| at.0 == row) {
            return Ok(since);
        }
        self.leave_row();
        let since = seam::now();
        let (place, level) = (Resource::Row(row), Level::Transaction);
        self.manager
            .enqueues
            .lock(&self.locker, place, LockMode::X, level, wait)?;
        self.manager.enqueues.count_row_place(true);
        self.row = Some((row, since));
        Ok(since)
    }

    fn wait_for_txn(
        &mut self,
        holder: TxnId,
        (row, since): (RowId, Instant),
        wait: LockWait,
    ) -> Result<()> {
        let manager = &self.manager;
        let want = Want {
            row,
            looked: self.looked,
            since,
        };
        let runs = match holder.instance() == manager.config.instance {
            true => Runs::Here(manager.active.owner(holder)),
            false => Runs::Elsewhere,
        };
        manager.turn_taken(row);
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

    /// Lets the next session in the row's queue come forward, of this instance or of another.
    pub(crate) fn leave_row(&mut self) {
        if let Some((row, _)) = self.row.take() {
            if std::mem::take(&mut self.stopped_by_sharers) {
                self.manager.sharers.count_wait(row, false);
            }
            self.manager.enqueues.count_row_place(false);
            self.manager.enqueues.unlock(
                &self.locker,
                Resource::Row(row),
                LockMode::X,
                Level::Transaction,
            );
            self.manager.turn_taken(row);
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
        self.unlock_session();
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
        self.leave_row();
        self.unlock_since(0, 0);
    }
}

fn advisory(key: u64, space: u64, shared: bool) -> (Resource, LockMode) {
    (
        Resource::Name(NameClass::Advisory, key, space),
        if shared { LockMode::S } else { LockMode::X },
    )
}
