//! Inserting a row unless another row has one of its keys: `INSERT ... ON CONFLICT`.
//!
//! The keys are looked up first. The look-up waits for every transaction whose change of a row with
//! such a key is undecided. If no key is taken, the row is inserted. If another transaction takes a
//! key in the meantime, the insertion is undone and the look-up begins again. So at the end either
//! the row is in, or the row in its way is committed or the transaction's own.
//!
//! **Invariant.** The statement waits for the key of an arbiter with nothing of its row in the
//! table: the insertion is undone before the wait, and sessions that came to the key before this
//! one are let pass before it. Two sessions that insert rows with the same two keys, or one that
//! does and one that moves a row's key, would otherwise wait for each other over entries that
//! neither means to keep.

use crate::table::RowKey;
use crate::write::Verdict;
use crate::{Error, Result, Session, TableDef};
use access::heap::Newest;
use block::ids::StampKind;
use block::value::DatumRef;
use block::{RowId, TxnId};
use txn::{Isolation, Place, Snapshot};
use wait::segment::{self, SegmentStat};

/// The outcome of inserting a row unless it meets another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upsert {
    Inserted(RowId),
    /// This row has a key of the new row, and is committed or the transaction's own.
    Conflict(RowId),
}

/// The outcome of one attempt to insert.
enum Attempt {
    Inserted(RowId),
    /// A row with the key of an arbiter is committed, or the transaction's own.
    Taken,
    /// This transaction decides about the key of an arbiter. Who waits for it stands in line there.
    Undecided(TxnId, Place),
}

impl Session {
    /// Inserts the row unless another row has its key in one of the unique indexes `arbiters`.
    /// These are positions in the table's list of indexes. A key that is taken in another unique
    /// index is an error, as usual.
    pub fn insert_unless(
        &mut self,
        table: &TableDef,
        row: &[DatumRef<'_>],
        arbiters: &[usize],
    ) -> Result<Upsert> {
        let done = self.insert_or_find(table, row, arbiters);
        self.txn.leave_key();
        done
    }

    fn insert_or_find(
        &mut self,
        table: &TableDef,
        row: &[DatumRef<'_>],
        arbiters: &[usize],
    ) -> Result<Upsert> {
        let engine = self.engine.clone();
        loop {
            wait::check_cancel().map_err(txn::Error::from)?;
            for &at in arbiters {
                if let Some(key) = table.indexes[at].key_of(table, row)?
                    && let Some(rid) = self.holder(table, at, &key)?
                {
                    return Ok(Upsert::Conflict(rid));
                }
            }
            let before = self.txn.savepoint();
            match self.try_insert(table, row, arbiters)? {
                Attempt::Inserted(rid) => {
                    segment::count(table.object.0, &[(SegmentStat::RowsInserted, 1)]);
                    self.written.add(table.object, 1, 1);
                    return Ok(Upsert::Inserted(rid));
                }
                Attempt::Taken => self.txn.rollback_to(&before, &*engine)?,
                Attempt::Undecided(holder, place) => {
                    self.txn.rollback_to(&before, &*engine)?;
                    self.wait_for_key(holder, place)?;
                }
            }
        }
    }

    /// Inserts the row and its index entries, up to one in an arbiter that cannot be made now.
    fn try_insert(
        &mut self,
        table: &TableDef,
        row: &[DatumRef<'_>],
        arbiters: &[usize],
    ) -> Result<Attempt> {
        let heap = self.engine.heap(table.object, table.header);
        let mut body = Vec::with_capacity(64);
        block::row::encode(row, &mut body);
        let rid = heap.insert(&mut self.txn, &body)?;
        for (at, index) in table.indexes.iter().enumerate() {
            if !index.is_written() {
                continue;
            }
            if !arbiters.contains(&at) {
                let keys = index.keys_of(table, row)?;
                keys.each(|key| self.insert_entry(table, &heap, index, &key, rid))?;
                continue;
            }
            let Some(key) = index.key_of(table, row)? else {
                continue;
            };
            match self.try_entry(table, &heap, index, &key, rid) {
                Ok(None) => {}
                Ok(Some((holder, place))) => return Ok(Attempt::Undecided(holder, place)),
                Err(Error::UniqueViolation { .. }) => return Ok(Attempt::Taken),
                Err(e) => return Err(e),
            }
        }
        Ok(Attempt::Inserted(rid))
    }

    /// The row that has the key in a unique index, once all transactions that are changing that row
    /// have ended.
    fn holder(&mut self, table: &TableDef, at: usize, key: &RowKey) -> Result<Option<RowId>> {
        if key.has_null {
            return Ok(None);
        }
        let index = &table.indexes[at];
        let tree = self.engine.tree(index.object, index.header);
        let heap = self.engine.heap(table.object, table.header);
        loop {
            self.let_pass_at_key(&heap, index, key)?;
            let mut entries = Vec::new();
            tree.lookup(&key.bytes, &mut entries)?;
            let met = entries.len() as u64;
            let rows = entries.into_iter().map(|(rid, _)| rid);
            let verdict = self.judge(table, &heap, index, &key.bytes, rows)?;
            let found = u64::from(matches!(verdict, Verdict::Duplicate(_)));
            segment::count(
                index.object.0,
                &[
                    (SegmentStat::Scans, 1),
                    (SegmentStat::RowsRead, met),
                    (SegmentStat::RowsFetched, found),
                ],
            );
            match verdict {
                Verdict::AllDead => return Ok(None),
                Verdict::Duplicate(rid) => return Ok(Some(rid)),
                Verdict::WaitFor(holder, place) => self.wait_for_key(holder, place)?,
            }
        }
    }

    /// Checks the row `rid`, because of which a statement passes a row over. Under REPEATABLE READ
    /// it must be a row that the transaction sees.
    pub fn check_seen(&mut self, table: &TableDef, rid: RowId, snapshot: &Snapshot) -> Result<()> {
        if self.txn.isolation() == Isolation::ReadCommitted || self.is_own(table, rid)? {
            return Ok(());
        }
        let heap = self.engine.heap(table.object, table.header);
        match heap.fetch_with(snapshot, rid, |_| ())? {
            Some(()) => Ok(()),
            None => Err(Error::Serialization("update")),
        }
    }

    /// Whether the newest version of a row exists and is this transaction's.
    pub fn is_own(&mut self, table: &TableDef, rid: RowId) -> Result<bool> {
        let heap = self.engine.heap(table.object, table.header);
        Ok(match heap.newest(rid)? {
            Newest::Nothing => false,
            Newest::Row { head, .. } => {
                !head.is_deleted()
                    && matches!(head.stamp.kind(), StampKind::Txn(id) if id == self.txn.id())
            }
        })
    }

    /// Whether this transaction was the last to change or delete a row.
    pub fn is_changed_by_own(&mut self, table: &TableDef, rid: RowId) -> Result<bool> {
        let heap = self.engine.heap(table.object, table.header);
        Ok(match heap.newest(rid)? {
            Newest::Nothing => false,
            Newest::Row { head, .. } => {
                matches!(head.stamp.kind(), StampKind::Txn(id) if id == self.txn.id())
            }
        })
    }
}
