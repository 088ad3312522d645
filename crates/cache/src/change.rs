//! The mini-transaction: one redo record and the change that it describes.

use crate::held::assert_none_held;
use crate::{Cache, Result, WriteGuard};
use block::record::{MAX_RECORD, RecordWriter};
use block::{ObjectId, Op, Scn, TxnId, UndoPtr, apply};
use redo::{Appended, GroupList};
use std::cell::RefCell;

thread_local! {
    /// The buffer in which records are put together. It is kept, so a change allocates nothing.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(MAX_RECORD));
}

/// The transaction of a record, and its undo head. Both are none for structure changes.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeader {
    pub txn: TxnId,
    /// The transaction's newest undo record once this one is applied.
    pub undo_head: UndoPtr,
}

impl RecordHeader {
    pub const NONE: RecordHeader = RecordHeader {
        txn: TxnId::NONE,
        undo_head: UndoPtr::NONE,
    };
}

/// One block's part in a record.
pub struct Change<'g, 'c> {
    pub guard: &'g mut WriteGuard<'c>,
    pub op: Op,
    /// The object that the block belongs to. A block that `op` does not format must belong to it
    /// already.
    pub object: ObjectId,
    pub payload: &'g [u8],
}

impl Cache {
    /// Waits until the log has room. An operation that logs calls this before its first latch.
    pub fn reserve(&self) -> Result<()> {
        assert_none_held("log space is waited for");
        Ok(self.redo.wait_for_space()?)
    }

    /// Like `reserve`, for a thread that must not wait. Returns false if it would have to.
    pub fn try_reserve(&self) -> bool {
        self.redo.has_space()
    }

    /// Logs one record and applies it: all of it, or nothing if a crash comes before the record is
    /// durable. Never waits. `under_latch` runs under the log latch, so all that it publishes is in
    /// step with the record's position.
    ///
    /// Recovery and checkpoints rest on the order. The frames are marked dirty at the log's present
    /// end. The record is appended at or after it. The vectors are applied, and the blocks get the
    /// record's SCN. All this happens under the exclusive latches that the guards hold.
    ///
    /// If a vector cannot be applied, the process ends: the caller has built a change that its
    /// block does not admit, and the record is in the log already.
    pub fn change(
        &self,
        header: RecordHeader,
        changes: &mut [Change<'_, '_>],
        under_latch: impl FnOnce(Appended, &mut GroupList),
    ) -> Appended {
        self.change_with(header, changes, &mut [], under_latch)
    }

    /// Like [`Cache::change`], for changes from two places: a row's, and its undo's, whose guards
    /// live for different times.
    pub fn change_with(
        &self,
        header: RecordHeader,
        changes: &mut [Change<'_, '_>],
        more: &mut [Change<'_, '_>],
        under_latch: impl FnOnce(Appended, &mut GroupList),
    ) -> Appended {
        self.prepare(changes);
        self.prepare(more);
        let all_or_nothing = AllOrNothing;
        let appended = SCRATCH.with_borrow_mut(|record| {
            record.clear();
            let mut w = RecordWriter::new(record, header.txn, header.undo_head);
            encode(changes, &mut w);
            encode(more, &mut w);
            w.finish();
            self.redo.append(record, under_latch)
        });
        wait::segment::changed((changes.len() + more.len()) as u64);
        self.finish(changes, appended);
        self.finish(more, appended);
        std::mem::forget(all_or_nothing);
        appended
    }

    fn prepare(&self, changes: &[Change<'_, '_>]) {
        for (i, c) in changes.iter().enumerate() {
            debug_assert!(
                changes[..i]
                    .iter()
                    .all(|o| o.guard.address() != c.guard.address()),
                "invariant: a record has one vector a block"
            );
            self.mark_dirty(c.guard.ix());
        }
    }

    fn finish(&self, changes: &mut [Change<'_, '_>], appended: Appended) {
        for c in changes {
            apply_one(c, appended.scn);
            self.changed(c.guard.ix(), appended.end.0);
        }
    }

    /// Logs a record that changes no block.
    pub fn mark(
        &self,
        header: RecordHeader,
        op: Op,
        payload: &[u8],
        under_latch: impl FnOnce(Appended, &mut GroupList),
    ) -> Appended {
        SCRATCH.with_borrow_mut(|record| {
            record.clear();
            let mut w = RecordWriter::new(record, header.txn, header.undo_head);
            w.marker(op, payload);
            w.finish();
            self.redo.append(record, under_latch)
        })
    }
}

/// Lives from before a record is appended until its changes are in their blocks. A panic in between
/// would leave blocks that lack what the log has, under latches that unwinding lets go. The next
/// change of such a block, or its way to the disk, would make it damage for good. So the process
/// ends before anybody sees it.
struct AllOrNothing;

impl Drop for AllOrNothing {
    fn drop(&mut self) {
        wait::thread::abort("a change is in the redo log and not in its blocks");
    }
}

fn encode(changes: &[Change<'_, '_>], w: &mut RecordWriter<'_>) {
    for c in changes {
        let before = match c.op.formats() {
            Some(_) => None,
            None => {
                assert!(
                    c.guard.dba() == c.guard.address(),
                    "invariant: {:?} meets a formatted block at {}",
                    c.op,
                    c.guard.address()
                );
                assert!(
                    c.guard.object() == c.object,
                    "invariant: {} belongs to {:?}, not {:?}",
                    c.guard.dba(),
                    c.guard.object(),
                    c.object
                );
                Some(c.guard.scn())
            }
        };
        w.vector(c.guard.address(), c.object, c.op, before, c.payload);
    }
}

fn apply_one(c: &mut Change<'_, '_>, scn: Scn) {
    let dba = c.guard.address();
    let block = c.guard.contents();
    assert!(block.scn() < scn, "invariant: the SCN of block {dba} rises");
    if let Some(kind) = c.op.formats() {
        block.format(dba, c.object, kind);
    }
    if let Err(e) = apply(c.op, block, c.payload) {
        panic!(
            "invariant: a logged change can be applied: {:?} on block {dba}: {e}",
            c.op
        );
    }
    block.set_scn(scn);
}
