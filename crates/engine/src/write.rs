//! Changing rows, with their index entries.
//!
//! The order is fixed: first the row's version, then marks on the entries that it no longer has,
//! then the new entries. All of that is within the transaction. So a reader that sees the version
//! sees the entries.

use crate::session::LockWait;
use crate::table::{RowKey, decode};
use crate::{Error, IndexDef, Result, Session, TableDef};
use access::btree::{Conflicts, IndexOutcome};
use access::heap::{self, Heap, Newest};
use block::value::DatumRef;
use block::{RowId, TxnId, ids::StampKind};
use std::sync::Arc;
use txn::{Isolation, Place, RowLock, Snapshot, TxnState};
use wait::segment::{self, SegmentStat};

/// The outcome of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    Done,
    /// Under READ COMMITTED: another version has been committed since the snapshot. The caller
    /// locks the row and looks at it again.
    Changed,
    /// The row is deleted, or this statement has changed it already.
    Gone,
}

/// The outcome of locking a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// The version that the snapshot sees is locked.
    Locked,
    /// A newer version is locked, and the caller has been given it.
    Changed,
    Gone,
    /// The row belongs to another transaction, and the caller does not wait.
    Skipped,
}

/// The result of a unique check: what the rows of a key are.
pub(crate) enum Verdict {
    AllDead,
    Duplicate(RowId),
    /// This transaction decides. Who waits for it stands in line there.
    WaitFor(TxnId, Place),
}

impl Session {
    pub fn insert(&mut self, table: &TableDef, row: &[DatumRef<'_>]) -> Result<RowId> {
        self.insert_counting(table, row, 1)
    }

    /// Inserts a row that the table has had in blocks that it gives up: the table has it, and no
    /// row was inserted.
    pub fn insert_moved(&mut self, table: &TableDef, row: &[DatumRef<'_>]) -> Result<RowId> {
        self.insert_counting(table, row, 0)
    }

    fn insert_counting(
        &mut self,
        table: &TableDef,
        row: &[DatumRef<'_>],
        inserted: u64,
    ) -> Result<RowId> {
        let heap = self.engine.heap(table.object, table.header);
        let mut body = Vec::with_capacity(64);
        block::row::encode(row, &mut body);
        let rid = heap.insert(&mut self.txn, &body)?;
        segment::count(table.object.0, &[(SegmentStat::RowsInserted, inserted)]);
        self.written.add(table.object, 1, inserted);
        for index in table.written() {
            let keys = index.keys_of(table, row)?;
            keys.each(|key| self.insert_entry(table, &heap, index, &key, rid))?;
        }
        Ok(rid)
    }

    pub(crate) fn insert_entry(
        &mut self,
        table: &TableDef,
        heap: &Heap,
        index: &IndexDef,
        key: &RowKey,
        rid: RowId,
    ) -> Result<()> {
        let made = self.make_entry(table, heap, index, key, rid);
        self.txn.leave_key();
        made
    }

    fn make_entry(
        &mut self,
        table: &TableDef,
        heap: &Heap,
        index: &IndexDef,
        key: &RowKey,
        rid: RowId,
    ) -> Result<()> {
        loop {
            self.let_pass_at_key(heap, index, key)?;
            match self.try_entry(table, heap, index, key, rid)? {
                None => return Ok(()),
                Some((holder, place)) => self.wait_for_key(holder, place)?,
            }
        }
    }

    /// Waits for the transaction that decides about a key, in the line of [`Verdict::WaitFor`].
    pub(crate) fn wait_for_key(&mut self, holder: TxnId, place: Place) -> Result<()> {
        let wait = self.lock_wait();
        match place {
            Place::Row(row) => self.txn.wait_for_row(holder, row, wait)?,
            Place::Key { .. } => self.txn.wait_for_key(holder, place, wait)?,
        }
        Ok(())
    }

    /// Lets sessions pass that came to the key before this one, unless a row with it is this
    /// transaction's already: then they wait for it.
    pub(crate) fn let_pass_at_key(
        &mut self,
        heap: &Heap,
        index: &IndexDef,
        key: &RowKey,
    ) -> Result<()> {
        if !index.checks_at_once() || key.has_null || !self.txn.any_key_is_wanted() {
            return Ok(());
        }
        let place = Place::of_key(index.object, &key.bytes);
        if !self.txn.is_key_wanted(place) {
            return Ok(());
        }
        let mut entries = Vec::new();
        let tree = self.engine.tree(index.object, index.header);
        tree.lookup(&key.bytes, &mut entries)?;
        for (rid, _) in entries {
            if self.has_changed(heap, rid)? {
                return Ok(());
            }
        }
        Ok(self.txn.let_pass(place, self.lock_wait())?)
    }

    /// Whether the newest version of a row is this transaction's.
    fn has_changed(&self, heap: &Heap, rid: RowId) -> Result<bool> {
        Ok(match heap.newest(rid)? {
            Newest::Row { head, .. } => {
                matches!(head.stamp.kind(), StampKind::Txn(id) if id == self.txn.id())
            }
            Newest::Nothing => false,
        })
    }

    /// Makes an index entry. If another row with its key is undecided, makes none and returns the
    /// transaction that decides, and where to stand in line.
    pub(crate) fn try_entry(
        &mut self,
        table: &TableDef,
        heap: &Heap,
        index: &IndexDef,
        key: &RowKey,
        rid: RowId,
    ) -> Result<Option<(TxnId, Place)>> {
        let tree = self.engine.tree(index.object, index.header);
        if !index.checks_at_once() || key.has_null {
            tree.insert(&mut self.txn, &key.bytes, rid)?;
            return Ok(None);
        }
        let mut vouched: Option<Conflicts> = None;
        loop {
            let outcome = tree.insert_unique(&mut self.txn, &key.bytes, rid, vouched.as_ref())?;
            let IndexOutcome::Check(conflicts) = outcome else {
                return Ok(None);
            };
            vouched = match self.judge(table, heap, index, &key.bytes, conflicts.row_ids())? {
                Verdict::AllDead => Some(conflicts),
                Verdict::Duplicate(_) => {
                    return Err(Error::UniqueViolation {
                        index: index.name.clone(),
                        table: table.object,
                        index_object: index.object,
                        row: Some(rid),
                    });
                }
                Verdict::WaitFor(holder, place) => return Ok(Some((holder, place))),
            };
        }
    }

    /// Learns from the rows what the entries in the way of a key are. It looks at every row as it
    /// is now, whatever the snapshot.
    pub(crate) fn judge(
        &mut self,
        table: &TableDef,
        heap: &Heap,
        index: &IndexDef,
        key: &[u8],
        rows: impl Iterator<Item = RowId>,
    ) -> Result<Verdict> {
        self.saw_newest = true;
        for rid in rows {
            let mut row = heap.newest(rid)?;
            while let Newest::Row { head, body } = &row {
                let changed_by = match head.stamp.kind() {
                    StampKind::Txn(id) if id != self.txn.id() => Some(id),
                    StampKind::Txn(_) | StampKind::Committed(_) => None,
                };
                if let Some(id) = changed_by {
                    if !matches!(self.engine.txns.state_now(id)?, TxnState::Committed(_)) {
                        // A change that leaves keys alone leaves the key with the row, however its
                        // transaction ends: those who wait want the row.
                        let place = match head.is_no_key() {
                            true => Place::Row(rid),
                            false => Place::of_key(index.object, key),
                        };
                        return Ok(Verdict::WaitFor(id, place));
                    }
                    // Between the two looks the other transaction may have rolled back, to a
                    // savepoint, what the row showed, and committed the rest.
                    let again = heap.newest(rid)?;
                    if !matches!(&again, Newest::Row { head: now, .. } if now == head) {
                        row = again;
                        continue;
                    }
                }
                if !head.is_deleted() && index.matches(table, body, key, &mut self.scratch)? {
                    return Ok(Verdict::Duplicate(rid));
                }
                break;
            }
        }
        Ok(Verdict::AllDead)
    }

    /// Replaces the version of the row that `snapshot` sees. If that is `None`, the transaction has
    /// locked the row, and replaces whatever version it has.
    pub fn update(
        &mut self,
        table: &TableDef,
        rid: RowId,
        row: &[DatumRef<'_>],
        snapshot: Option<&Snapshot>,
    ) -> Result<WriteOutcome> {
        let heap = self.engine.heap(table.object, table.header);
        let Some(old) = self.old_version(&heap, rid, snapshot)? else {
            return Ok(WriteOutcome::Gone);
        };
        let mut body = Vec::with_capacity(old.len() + 16);
        block::row::encode(row, &mut body);
        let lock = match table.changes_key(&old, row)? {
            true => RowLock::Update,
            false => RowLock::NoKeyUpdate,
        };
        let outcome = self.write(&heap, rid, snapshot, |heap, txn, snap| {
            heap.update(txn, snap, rid, &body, lock)
        })?;
        if outcome != WriteOutcome::Done {
            return Ok(outcome);
        }
        segment::count(table.object.0, &[(SegmentStat::RowsUpdated, 1)]);
        self.written.add(table.object, 0, 1);
        for index in table.written() {
            let (lost, gained) = index.changed_keys(table, &old, row)?;
            self.mark_entries(table, &heap, index, lost, rid)?;
            gained.each(|key| self.insert_entry(table, &heap, index, &key, rid))?;
        }
        Ok(WriteOutcome::Done)
    }

    pub fn delete(
        &mut self,
        table: &TableDef,
        rid: RowId,
        snapshot: Option<&Snapshot>,
    ) -> Result<WriteOutcome> {
        let heap = self.engine.heap(table.object, table.header);
        let Some(old) = self.old_version(&heap, rid, snapshot)? else {
            return Ok(WriteOutcome::Gone);
        };
        let outcome = self.write(&heap, rid, snapshot, |heap, txn, snap| {
            heap.delete(txn, snap, rid)
        })?;
        if outcome != WriteOutcome::Done {
            return Ok(outcome);
        }
        segment::count(table.object.0, &[(SegmentStat::RowsDeleted, 1)]);
        self.written.add(table.object, -1, 1);
        let values = decode(table, &old)?;
        for index in table.written() {
            let keys = index.keys_of(table, &values)?;
            self.mark_entries(table, &heap, index, keys, rid)?;
        }
        Ok(WriteOutcome::Done)
    }

    /// The bytes of the version that is to be replaced.
    fn old_version(
        &mut self,
        heap: &Heap,
        rid: RowId,
        snapshot: Option<&Snapshot>,
    ) -> Result<Option<Vec<u8>>> {
        match snapshot {
            Some(snapshot) => {
                let found = heap.fetch_to_change(snapshot, rid, false, <[u8]>::to_vec)?;
                Ok(found.settled())
            }
            None => {
                let mut row = Vec::new();
                Ok(heap.fetch_current(rid, &mut row)?.then_some(row))
            }
        }
    }

    /// A snapshot that sees everything committed by now. It serves to look at newest versions only:
    /// it is not registered, so no undo may be read through it.
    fn newest(&mut self) -> Snapshot {
        self.saw_newest = true;
        Snapshot {
            scn: self.engine.scn(),
            own: self.txn.id(),
            own_limit: u32::MAX,
        }
    }

    /// Lets sessions pass that came to the row before this one, unless the row is this
    /// transaction's already: then they wait for it.
    fn let_pass(&mut self, heap: &Heap, rid: RowId) -> Result<()> {
        if !self.txn.is_wanted(rid) {
            return Ok(());
        }
        match self.has_changed(heap, rid)? {
            true => Ok(()),
            false => Ok(self.txn.let_pass(Place::Row(rid), self.lock_wait())?),
        }
    }

    /// Tries a change until no other transaction has the row.
    fn write(
        &mut self,
        heap: &Arc<Heap>,
        rid: RowId,
        snapshot: Option<&Snapshot>,
        mut change: impl FnMut(
            &Heap,
            &mut txn::Transaction,
            &Snapshot,
        ) -> access::Result<heap::WriteOutcome>,
    ) -> Result<WriteOutcome> {
        loop {
            let snap = match snapshot {
                Some(s) => Snapshot {
                    own: self.txn.ensure_id()?,
                    ..*s
                },
                None => self.newest(),
            };
            self.let_pass(heap, rid)?;
            match change(heap, &mut self.txn, &snap)? {
                heap::WriteOutcome::Done => return Ok(WriteOutcome::Done),
                heap::WriteOutcome::Busy(holder) => {
                    wait::stat::add(wait::Stat::RowLockWaits, 1);
                    self.txn.wait_for_row(holder, rid, self.lock_wait())?;
                }
                heap::WriteOutcome::Shared { holder, has_row } => {
                    wait::stat::add(wait::Stat::RowLockWaits, 1);
                    let wait = self.lock_wait();
                    self.txn.wait_for_sharer(holder, rid, has_row, wait)?;
                }
                heap::WriteOutcome::Repeated => return Ok(WriteOutcome::Gone),
                heap::WriteOutcome::Changed => return self.refuse("update", WriteOutcome::Changed),
                heap::WriteOutcome::Gone => return self.refuse("delete", WriteOutcome::Gone),
            }
        }
    }

    /// The outcome for a row that is not as the transaction's snapshot sees it: an error, unless
    /// each statement has a snapshot of its own.
    fn refuse<T>(&mut self, what: &'static str, outcome: T) -> Result<T> {
        self.saw_newest = true;
        match self.txn.isolation() {
            Isolation::RepeatableRead => Err(Error::Serialization(what)),
            Isolation::ReadCommitted => Ok(outcome),
        }
    }

    /// Locks a row for the transaction. `row` gets the newest version if that is not the one
    /// `snapshot` sees.
    ///
    /// A session that shares a row lets nobody pass: as in PostgreSQL it waits for those who have
    /// the row only, not for those who wait for it.
    pub fn lock_row(
        &mut self,
        table: &TableDef,
        rid: RowId,
        snapshot: &Snapshot,
        (lock, wait): (RowLock, LockWait),
        row: &mut Vec<u8>,
    ) -> Result<LockOutcome> {
        let heap = self.engine.heap(table.object, table.header);
        let mut changed = false;
        loop {
            let snap = match changed {
                false => Snapshot {
                    own: self.txn.ensure_id()?,
                    ..*snapshot
                },
                true => self.newest(),
            };
            if wait == LockWait::Wait && !lock.is_shared() {
                self.let_pass(&heap, rid)?;
            }
            match heap.lock(&mut self.txn, &snap, rid, lock)? {
                heap::WriteOutcome::Done if !changed => return Ok(LockOutcome::Locked),
                heap::WriteOutcome::Done => {
                    wait::stat::add(wait::Stat::StatementRestarts, 1);
                    // Beside a key share another transaction may be about to change the row.
                    let found = match lock {
                        RowLock::KeyShare => self.fetch_version(table, rid, &snap, row)?,
                        _ => heap.fetch_current(rid, row)?,
                    };
                    return Ok(match found {
                        true => LockOutcome::Changed,
                        false => LockOutcome::Gone,
                    });
                }
                heap::WriteOutcome::Busy(holder) => match wait {
                    LockWait::Wait => {
                        wait::stat::add(wait::Stat::RowLockWaits, 1);
                        self.txn.wait_for_row(holder, rid, self.lock_wait())?;
                    }
                    // Another instance's transaction may have ended since this one last heard of
                    // it.
                    LockWait::NoWait | LockWait::SkipLocked
                        if self.engine.txns.state_now(holder)? != TxnState::Active => {}
                    LockWait::NoWait => return Err(Error::LockNotAvailable),
                    LockWait::SkipLocked => return Ok(LockOutcome::Skipped),
                },
                heap::WriteOutcome::Shared { holder, has_row } => match wait {
                    LockWait::Wait => {
                        wait::stat::add(wait::Stat::RowLockWaits, 1);
                        let wait = self.lock_wait();
                        self.txn.wait_for_sharer(holder, rid, has_row, wait)?;
                    }
                    LockWait::NoWait => return Err(Error::LockNotAvailable),
                    LockWait::SkipLocked => return Ok(LockOutcome::Skipped),
                },
                heap::WriteOutcome::Changed => changed = self.refuse("update", true)?,
                heap::WriteOutcome::Gone | heap::WriteOutcome::Repeated => {
                    return self.refuse("delete", LockOutcome::Gone);
                }
            }
        }
    }

    /// Reads the version of a row that the snapshot sees. False if it sees none.
    pub fn fetch_version(
        &mut self,
        table: &TableDef,
        rid: RowId,
        snapshot: &Snapshot,
        row: &mut Vec<u8>,
    ) -> Result<bool> {
        let heap = self.engine.heap(table.object, table.header);
        let copied = heap.fetch_with(snapshot, rid, |bytes| {
            row.clear();
            row.extend_from_slice(bytes);
        })?;
        Ok(copied.is_some())
    }

    /// Reads the newest version of a row that the transaction has locked.
    pub fn fetch_current(
        &mut self,
        table: &TableDef,
        rid: RowId,
        row: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(self
            .engine
            .heap(table.object, table.header)
            .fetch_current(rid, row)?)
    }
}
