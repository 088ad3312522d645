//! Whether a row is what a session takes it for that wants to change or to lock it.
//!
//! What the latched block shows may not be enough: then undo is read, or another instance asked,
//! without the latch, and the block is looked at again.

use super::write::WriteOutcome;
use super::{Heap, UNDO_HEAD, UNDO_UPDATE};
use crate::Result;
use block::heap::{self, RowHead};
use block::ids::StampKind;
use block::{BlockBuf, RowId, TxnId, UndoPtr};
use txn::{RowLock, Snapshot, Transaction, TxnState, Verdict};

/// Whether the row in hand may be changed or locked.
pub(super) enum Current {
    Ours(RowHead),
    /// The stamp is the transaction's own. The undo record tells whether this statement made the
    /// change.
    AskUndo(RowHead),
    /// The stamp is committed above the snapshot. The undo records tell whether that was more than
    /// a lock.
    AskLocks(RowHead),
    /// The stamp is of a transaction that goes on beside the lock. The undo records tell what is
    /// beneath its changes.
    AskBeneath(RowHead),
    /// A transaction of another instance has the row. Its status must be learnt first.
    AskStatus(TxnId),
    No(WriteOutcome),
}

/// How to go on after what the block did not show has been looked up.
pub(super) enum Next {
    Outcome(WriteOutcome),
    Again,
    Settled(Settled),
}

/// What has been found out about a version, which its newest undo record tells from others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Nothing,
    /// The snapshot sees it.
    Seen(UndoPtr),
    /// The snapshot's is beneath it, as long as its transaction has not ended.
    Beneath(UndoPtr),
}

impl Heap {
    /// Looks up what the block did not show. No latch is held.
    pub(super) fn look_up(&self, snap: &Snapshot, rid: RowId, current: Current) -> Result<Next> {
        Ok(match current {
            Current::No(outcome) => Next::Outcome(outcome),
            Current::AskStatus(holder) => {
                self.txns.learn(holder, snap.scn)?;
                Next::Again
            }
            Current::AskUndo(head) => match self.changed_by_statement(snap, rid, head)? {
                true => Next::Outcome(WriteOutcome::Repeated),
                false => Next::Settled(Settled::Seen(head.undo)),
            },
            Current::AskLocks(head) => match self.only_locked_since(snap, rid, head)? {
                true => Next::Settled(Settled::Seen(head.undo)),
                false => Next::Outcome(WriteOutcome::Changed),
            },
            Current::AskBeneath(head) => self.beneath(snap, rid, head)?,
            Current::Ours(head) => Next::Settled(Settled::Seen(head.undo)),
        })
    }

    /// Whether the row may be locked so, and changed. The block is latched. `settled`: what
    /// has been found out already.
    pub(super) fn current(
        &self,
        block: &BlockBuf,
        txn: &Transaction,
        snap: &Snapshot,
        (rid, lock): (RowId, RowLock),
        settled: Settled,
    ) -> Result<Current> {
        let row = match block.object() == self.object() {
            true => heap::row(block, rid.slot())?,
            false => None,
        };
        let Some(row) = row.filter(|r| !r.head.is_piece()) else {
            return Ok(Current::No(WriteOutcome::Gone));
        };
        let head = row.head;
        if head.stamp == txn.stamp() {
            return Ok(match settled == Settled::Seen(head.undo) {
                true if head.is_deleted() => Current::No(WriteOutcome::Gone),
                true => Current::Ours(head),
                false => Current::AskUndo(head),
            });
        }
        match self.txns.verdict(head.stamp, snap) {
            Verdict::Visible => {
                return Ok(match head.is_deleted() {
                    true => Current::No(WriteOutcome::Gone),
                    false => Current::Ours(head),
                });
            }
            Verdict::Ask(holder) => return Ok(Current::AskStatus(holder)),
            Verdict::Invisible | Verdict::OwnCheckUndo => {}
        }
        let holder = match head.stamp.kind() {
            StampKind::Txn(id) => Some((id, self.txns.state(id))),
            StampKind::Committed(_) => None,
        };
        Ok(match holder {
            Some((id, TxnState::Unknown)) => Current::AskStatus(id),
            // That another instance's transaction is active may be old news: the session that waits
            // for it asks.
            Some((id, TxnState::Active | TxnState::Aborted)) => {
                match lock == RowLock::KeyShare && head.is_no_key() {
                    true if settled == Settled::Beneath(head.undo) => Current::Ours(head),
                    true => Current::AskBeneath(head),
                    false => Current::No(WriteOutcome::Busy(id)),
                }
            }
            _ if head.is_deleted() => Current::No(WriteOutcome::Gone),
            _ if settled == Settled::Seen(head.undo) => Current::Ours(head),
            _ => Current::AskLocks(head),
        })
    }

    /// Whether the snapshot sees the version that `head` belongs to, with nothing but locks put on
    /// it and let go since.
    fn only_locked_since(&self, snap: &Snapshot, rid: RowId, mut head: RowHead) -> Result<bool> {
        loop {
            let record = match self.txns.undo_record(head.undo) {
                // The answer is not known any more. "Changed" makes the row's reader look again.
                Err(txn::Error::SnapshotTooOld(_)) => return Ok(false),
                other => other?,
            };
            if record.kind != UNDO_HEAD {
                return Ok(false);
            }
            let old = super::read::decode_undo(&record.payload)
                .filter(|(of, ..)| *of == rid)
                .ok_or_else(|| self.corrupt(rid, "its undo record is another's or cut short"))?
                .1;
            if old.version() != head.version() {
                return Ok(false);
            }
            match self.txns.verdict(old.stamp, snap) {
                Verdict::Visible => return Ok(true),
                Verdict::Invisible => head = old,
                Verdict::OwnCheckUndo => return Ok(false),
                // Once that is learnt, the undo record is looked at once more.
                Verdict::Ask(txn) => drop(self.txns.learn(txn, snap.scn)?),
            }
        }
    }

    /// Whether the snapshot sees what is beneath the changes of the transaction whose stamp is in
    /// `head`, and that leaves the row's key alone.
    fn beneath(&self, snap: &Snapshot, rid: RowId, head: RowHead) -> Result<Next> {
        let mut old = head;
        while old.stamp == head.stamp {
            let record = match self.txns.undo_record(old.undo) {
                // The transaction has ended: the row shows something else now.
                Err(txn::Error::SnapshotTooOld(_)) => return Ok(Next::Again),
                other => other?,
            };
            let decoded = super::read::decode_undo(&record.payload)
                .filter(|(of, ..)| *of == rid && matches!(record.kind, UNDO_HEAD | UNDO_UPDATE));
            old = decoded
                .ok_or_else(|| self.corrupt(rid, "its undo record is another's or cut short"))?
                .1;
        }
        loop {
            return Ok(match self.txns.verdict(old.stamp, snap) {
                Verdict::Visible if old.is_deleted() => Next::Outcome(WriteOutcome::Gone),
                Verdict::Visible => Next::Settled(Settled::Beneath(head.undo)),
                Verdict::Ask(txn) => {
                    self.txns.learn(txn, snap.scn)?;
                    continue;
                }
                Verdict::Invisible if self.only_locked_since(snap, rid, old)? => {
                    Next::Settled(Settled::Beneath(head.undo))
                }
                Verdict::Invisible | Verdict::OwnCheckUndo => Next::Outcome(WriteOutcome::Changed),
            });
        }
    }

    /// Whether the statement that asks made the transaction's own version. A lock makes no version:
    /// what it was put on was checked then.
    fn changed_by_statement(&self, snap: &Snapshot, rid: RowId, head: RowHead) -> Result<bool> {
        let record = self.txns.undo_record(head.undo)?;
        if record.undo_no < snap.own_limit {
            return Ok(false);
        }
        if record.kind != UNDO_HEAD {
            return Ok(true);
        }
        let (_, old, _) = super::read::decode_undo(&record.payload)
            .ok_or_else(|| self.corrupt(rid, "its undo record is cut short"))?;
        Ok(old.version() != head.version())
    }
}
