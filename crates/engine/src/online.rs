//! Indexes that are made while rows change (`CREATE INDEX CONCURRENTLY`).
//!
//! The caller makes the index known first, as a partial one ([`IndexStage::Partial`]), and waits
//! for the transactions that do not know it ([`Session::table_users`]). Then
//! [`Session::supply_index`] makes the entries of the rows that a snapshot sees, and when no older
//! snapshot is left ([`Session::is_oldest`]), the caller makes the index known as a whole one.
//!
//! **Invariants.**
//! - A row version that the snapshot sees and that is replaced or deleted has its entry, marked:
//!   whoever marks an entry that is missing makes it ([`Session::mark_entries`]). The horizon stays
//!   below the snapshot, so no mark that is made meanwhile is purged.
//! - What is supplied is not undone with a transaction: it is the entry of a committed version,
//!   which is the row's again if the transaction that replaced it rolls back. The entry of a
//!   version that only the replacing transaction has seen is undone with it.
//! - Of two rows with a key of a unique index, one was written by who knows the index, or both are
//!   supplied. Whoever comes second to the tree sees the entry of the first: a writer checks as
//!   ever, and the supplier looks after it has made its entry.
//!
//! Why that is enough is in docs/decisions/0095-indexes-beside-writers.md.
//!
//! [`IndexStage::Partial`]: crate::IndexStage::Partial

use std::time::Instant;

use crate::ddl::index_build;
use crate::table::{RowKey, RowKeys};
use crate::{Engine, Error, IndexDef, IndexStage, LockMode, Result, Session, TableDef, TableUser};
use access::heap::Heap;
use block::index::{ROW_ID_LEN, split_key};
use block::{ObjectId, RowId, Scn, TxnId};
use txn::Snapshot;
use wait::{Event, WaitResult, Waiter};

/// Entries supplied between two looks at whether the statement is cancelled.
const CANCEL_CHECK_KEYS: u64 = 1_000;

impl Engine {
    /// The transactions of this instance that hold a table in a mode that `mode` excludes. Those
    /// that do not know what was committed to the dictionary before are among them.
    pub fn table_users(&self, object: ObjectId, mode: LockMode) -> Vec<TableUser> {
        self.txns.table_users(object, mode.enqueue())
    }

    /// Takes in the time at which another instance looked: what was committed there by then is
    /// below every snapshot that is taken here from now on.
    pub fn not_before(&self, scn: Scn) -> Result<()> {
        Ok(self.redo.clock().lift(scn)?)
    }
}

impl Session {
    /// Until when the session waits for a lock that it asks for now; `None`: for ever.
    pub fn lock_deadline(&self) -> Option<Instant> {
        match self.lock_wait() {
            txn::LockWait::Until(at) => Some(at),
            txn::LockWait::Forever | txn::LockWait::NoWait => None,
        }
    }

    /// Waits until a time, as for a lock on the table, between two looks at who uses it.
    pub fn pause_for_table(&self, object: ObjectId, until: Instant) -> Result<()> {
        let p = [0, u64::from(object.0), 0];
        match Waiter::new().wait(Event::EnqTm, p, Some(until)) {
            WaitResult::Cancelled => Err(txn::Error::Cancelled(wait::Cancelled).into()),
            WaitResult::Signalled | WaitResult::TimedOut => Ok(()),
        }
    }

    /// Whether no snapshot of any instance is older than this SCN, or ever will be.
    pub fn is_oldest(&self, scn: Scn) -> bool {
        self.engine.txns.horizon() >= scn
    }

    /// Makes the entries of a partial index that are missing: those of the rows that there are now.
    /// Everybody who writes to the table knows the index. Returns the SCN from which on snapshots
    /// may use it, once it is whole.
    pub fn supply_index(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        memory_bytes: usize,
    ) -> Result<Scn> {
        let snapshot = self.newest_snapshot()?;
        let (mut sorted, count) = self.sorted_keys(table, index, &snapshot, memory_bytes)?;
        let work = index_build(index, count);
        let tree = self.engine.tree(index.object, index.header);
        let mut done = 0u64;
        while let Some((full, checked)) = sorted.next_record()? {
            let (_, rid) =
                split_key(full).ok_or_else(|| Error::Corrupt("a key has no row id".to_string()))?;
            let key = RowKey {
                bytes: full[..full.len() - ROW_ID_LEN].to_vec(),
                has_null: checked != [1],
            };
            tree.supply(&key.bytes, rid)?;
            if !key.has_null && self.is_shared_key(table, index, &key)? {
                return Err(Error::UniqueViolation {
                    index: index.name.clone(),
                    table: table.object,
                    index_object: index.object,
                    row: Some(rid),
                });
            }
            done += 1;
            if done.is_multiple_of(CANCEL_CHECK_KEYS) {
                work.set(done);
                wait::check_cancel().map_err(txn::Error::from)?;
            }
        }
        work.set(done);
        Ok(snapshot.scn)
    }

    /// Whether several rows have a key, once those who are changing them have ended.
    fn is_shared_key(&mut self, table: &TableDef, index: &IndexDef, key: &RowKey) -> Result<bool> {
        let mut entries = Vec::new();
        let tree = self.engine.tree(index.object, index.header);
        tree.lookup(&key.bytes, &mut entries)?;
        if entries.len() < 2 {
            return Ok(false);
        }
        let several = self.several(table, index, key);
        self.txn.leave_key();
        several
    }

    /// Marks the entries of a version that this transaction has replaced or deleted.
    pub(crate) fn mark_entries(
        &mut self,
        table: &TableDef,
        heap: &Heap,
        index: &IndexDef,
        keys: RowKeys,
        rid: RowId,
    ) -> Result<()> {
        let tree = self.engine.tree(index.object, index.header);
        let is_whole = index.rules.stage == IndexStage::Whole;
        // The transaction has the row, whose committed version stays the same meanwhile.
        let mut committed = None;
        keys.each(|RowKey { bytes: key, .. }| {
            if is_whole {
                tree.mark(&mut self.txn, &key, rid)?;
                return Ok(());
            }
            if tree.mark_if_there(&mut self.txn, &key, rid)?.is_some() {
                return Ok(());
            }
            let committed = match &committed {
                Some(keys) => keys,
                None => committed.insert(self.committed_keys(table, heap, index, rid)?),
            };
            match committed.has(&key) {
                true => tree.supply(&key, rid)?,
                false => {
                    tree.insert(&mut self.txn, &key, rid)?;
                }
            }
            tree.mark(&mut self.txn, &key, rid)?;
            Ok(())
        })
    }

    /// The keys of a row without this transaction's changes. What it has replaced is kept in its
    /// undo.
    fn committed_keys(
        &self,
        table: &TableDef,
        heap: &Heap,
        index: &IndexDef,
        rid: RowId,
    ) -> Result<RowKeys> {
        let committed = Snapshot {
            scn: self.engine.scn(),
            own: TxnId::NONE,
            own_limit: 0,
        };
        match heap.fetch_with(&committed, rid, <[u8]>::to_vec)? {
            Some(row) => index.keys_of_stored(table, &row),
            None => Ok(RowKeys::One(None)),
        }
    }
}
