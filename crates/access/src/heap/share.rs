//! Locks on rows that several transactions share, and those who must wait for them
//! (`txn::sharers`).

use super::Heap;
use super::current::{Current, Next, Settled};
use super::write::WriteOutcome;
use crate::Result;
use block::heap;
use block::{Op, RowId, TxnId};
use cache::{Change, RecordHeader, WriteGuard};
use txn::{RowLock, Snapshot, Transaction};

/// Whether a session may pass those who share a row.
pub(super) enum Passing<'g> {
    /// The locker may go on, as long as it has the block latched.
    Free(WriteGuard<'g>),
    /// The locker must look at the row again.
    Again,
    Held(TxnId),
}

impl Heap {
    /// Shares the row, if the row's version is the one that `snap` sees. The block is changed only
    /// if the row lacks the mark of this instance; and it is not asked for exclusively if the row
    /// should have it.
    pub(super) fn share(
        &self,
        txn: &mut Transaction,
        snap: &Snapshot,
        rid: RowId,
        lock: RowLock,
    ) -> Result<WriteOutcome> {
        txn.ensure_id()?;
        let mut settled = Settled::Nothing;
        let mut mark = !txn.may_share_unmarked(rid, lock);
        loop {
            let current = match mark {
                true => self.share_marking(txn, snap, (rid, lock), settled)?,
                false => {
                    let block = self.cache().read(rid.dba())?;
                    match self.current(&block, txn, snap, (rid, lock), settled)? {
                        Current::Ours(head) if head.stamp == txn.stamp() => None,
                        Current::Ours(_) => {
                            let marks = heap::sharers(&block, rid.slot());
                            if !txn.share(rid, lock, marks, false)? {
                                mark = true;
                                continue;
                            }
                            None
                        }
                        other => Some(other),
                    }
                }
            };
            let Some(current) = current else {
                return Ok(WriteOutcome::Done);
            };
            match self.look_up(snap, rid, current)? {
                Next::Outcome(outcome) => return Ok(outcome),
                Next::Again => {}
                Next::Settled(found) => settled = found,
            }
        }
    }

    /// Shares the row, and marks it if need be. `None` if that is done.
    fn share_marking(
        &self,
        txn: &mut Transaction,
        snap: &Snapshot,
        (rid, lock): (RowId, RowLock),
        settled: Settled,
    ) -> Result<Option<Current>> {
        self.cache().reserve()?;
        let mut guard = self.cache().write(rid.dba())?;
        match self.current(&guard, txn, snap, (rid, lock), settled)? {
            Current::Ours(head) if head.stamp == txn.stamp() => return Ok(None),
            Current::Ours(_) => {}
            other => return Ok(Some(other)),
        }
        let marks = heap::sharers(&guard, rid.slot());
        if txn.share(rid, lock, marks, false)? {
            return Ok(None);
        }
        let marks = txn.marked(marks, lock);
        self.set_sharers(&mut guard, rid, marks);
        let shared = txn.share(rid, lock, marks, true)?;
        assert!(
            shared,
            "invariant: a row that was just marked can be shared"
        );
        Ok(None)
    }

    /// Whether a session that wants to lock the row passes those who share it. The row, whose block
    /// is latched, has marks that say that there may be some. `vouched`: how often the block was
    /// marked when other instances last said that there are none.
    pub(super) fn pass_sharers<'g>(
        &'g self,
        txn: &Transaction,
        guard: WriteGuard<'g>,
        (rid, lock): (RowId, RowLock),
        vouched: &mut Option<u32>,
    ) -> Result<Passing<'g>> {
        let (marks, count) = (heap::sharers(&guard, rid.slot()), heap::marks(&guard));
        if let (Some(holder), _) = txn.sharer_here(rid, lock) {
            return Ok(Passing::Held(holder));
        }
        let ask = txn.must_ask_sharers(lock, marks) && *vouched != Some(count);
        if !ask && vouched.is_some() {
            return Ok(Passing::Free(guard));
        }
        drop(guard);
        let mut open = 0;
        if ask {
            let (holder, elsewhere) = txn.sharer_elsewhere(rid, lock, marks)?;
            if let Some(holder) = holder {
                return Ok(Passing::Held(holder));
            }
            open = elsewhere;
        }
        *vouched = self.unmark(txn, (rid, lock), (count, open))?.or(*vouched);
        Ok(Passing::Again)
    }

    /// Takes marks off a row that mean nothing any more, if the block was marked so often and no
    /// more. `open`: the marks that other instances have said mean something. Returns how often the
    /// block is marked then.
    fn unmark(
        &self,
        txn: &Transaction,
        (rid, lock): (RowId, RowLock),
        (count, open): (u32, u8),
    ) -> Result<Option<u32>> {
        self.cache().reserve()?;
        let mut guard = self.cache().write(rid.dba())?;
        let is_row = guard.object() == self.object() && heap::row(&guard, rid.slot())?.is_some();
        if !is_row || heap::marks(&guard) != count {
            return Ok(None);
        }
        let marks = heap::sharers(&guard, rid.slot());
        let here = txn.sharer_here(rid, lock).1;
        let left = marks & (!lock.excluded_by() | open | here);
        if left != marks {
            self.set_sharers(&mut guard, rid, left);
        }
        Ok(Some(heap::marks(&guard)))
    }

    fn set_sharers(&self, guard: &mut WriteGuard<'_>, rid: RowId, sharers: u8) {
        let change = Change {
            guard,
            op: Op::HeapSetSharers,
            object: self.object(),
            payload: &heap::sharers_payload(rid.slot(), sharers),
        };
        self.cache()
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
    }
}
