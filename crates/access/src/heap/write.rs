//! Changes rows: update, delete, lock.

use super::read::encode_undo;
use super::{Heap, UNDO_HEAD, UNDO_ROW, UNDO_UPDATE, WORTHWHILE_SLACK};
use crate::Result;
use block::heap::{self, Chain, MAX_INLINE_BODY, RowHead};
use block::ids::StampKind;
use block::{BlockBuf, Op, RowId, TxnId, UndoPtr};
use cache::{Change, WriteGuard};
use txn::{Snapshot, Transaction, TxnState, Undo, Verdict};

/// The outcome of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    Done,
    /// A transaction that may still roll back has changed or locked the row. Wait for it and
    /// try again.
    Busy(TxnId),
    /// A version is committed that the snapshot does not see.
    Changed,
    /// The row is deleted.
    Gone,
    /// The statement that asks has already changed the row.
    Repeated,
}

/// Whether the row in hand may be changed.
enum Current {
    Ours(RowHead),
    /// The stamp is the transaction's own. The undo record tells whether this statement made the
    /// change.
    AskUndo(RowHead),
    /// The stamp is committed above the snapshot. The undo records tell whether that was more than
    /// a lock.
    AskLocks(RowHead),
    /// A transaction of another instance has the row. Its status must be learnt first.
    AskStatus(TxnId),
    No(WriteOutcome),
}

/// What is to become of a row.
enum Action<'a> {
    Replace { flags: u8, body: &'a [u8] },
    Delete,
    Lock,
}

impl Heap {
    /// Replaces the row's version that `snap` sees by `body`.
    pub fn update(
        &self,
        txn: &mut Transaction,
        snap: &Snapshot,
        rid: RowId,
        body: &[u8],
    ) -> Result<WriteOutcome> {
        if body.len() <= MAX_INLINE_BODY {
            let fitted = self.change(txn, snap, rid, &Action::Replace { flags: 0, body })?;
            if let Some(outcome) = fitted {
                return Ok(outcome);
            }
        }
        // The new piece is written first, then the pointer to it.
        let chain = self.write_pieces(txn, body)?;
        let action = Action::Replace {
            flags: heap::CHAINED,
            body: &chain.encode(),
        };
        let outcome = self.change(txn, snap, rid, &action)?;
        if outcome != Some(WriteOutcome::Done) {
            self.delete_pieces(txn, rid, chain)?;
        }
        outcome.ok_or_else(|| self.corrupt(rid, "it has no room for a pointer to its pieces"))
    }

    pub fn delete(
        &self,
        txn: &mut Transaction,
        snap: &Snapshot,
        rid: RowId,
    ) -> Result<WriteOutcome> {
        let outcome = self.change(txn, snap, rid, &Action::Delete)?;
        Ok(outcome.expect("invariant: a delete mark needs no room"))
    }

    /// Locks the row for the transaction, if the row's version is the one that `snap` sees.
    pub fn lock(&self, txn: &mut Transaction, snap: &Snapshot, rid: RowId) -> Result<WriteOutcome> {
        let outcome = self.change(txn, snap, rid, &Action::Lock)?;
        Ok(outcome.expect("invariant: a lock needs no room"))
    }

    /// Changes a row. None if the new body does not fit the block. What must be looked up in undo
    /// is looked up without the latch. `settled` is the newest undo record of the version that was
    /// found to be the snapshot's.
    fn change(
        &self,
        txn: &mut Transaction,
        snap: &Snapshot,
        rid: RowId,
        action: &Action<'_>,
    ) -> Result<Option<WriteOutcome>> {
        let keeps_body = !matches!(action, Action::Replace { .. });
        let mut undo_len = UNDO_ROW;
        let mut pruned = false;
        let mut settled = UndoPtr::NONE;
        txn.ensure_id()?;
        if !keeps_body {
            undo_len += self.body_len(rid)?;
        }
        loop {
            let slot = txn.prepare_undo(undo_len)?;
            let mut guard = self.cache().write(rid.dba())?;
            let old = match self.current(&guard, txn, snap, rid, settled)? {
                Current::No(outcome) => return Ok(Some(outcome)),
                Current::AskStatus(holder) => {
                    drop(guard);
                    self.txns.learn(holder, snap.scn)?;
                    continue;
                }
                Current::AskUndo(head) => {
                    drop(guard);
                    if self.changed_by_statement(snap, rid, head)? {
                        return Ok(Some(WriteOutcome::Repeated));
                    }
                    settled = head.undo;
                    continue;
                }
                Current::AskLocks(head) => {
                    drop(guard);
                    if !self.only_locked_since(snap, rid, head)? {
                        return Ok(Some(WriteOutcome::Changed));
                    }
                    settled = head.undo;
                    continue;
                }
                Current::Ours(head) => head,
            };
            let own_already = old.stamp == txn.stamp();
            if matches!(action, Action::Lock) && own_already {
                return Ok(Some(WriteOutcome::Done));
            }
            let body = heap::row(&guard, rid.slot())?.map_or(&[][..], |r| r.body);
            if !keeps_body && UNDO_ROW + body.len() > undo_len {
                undo_len = UNDO_ROW + body.len();
                continue;
            }
            if let Action::Replace { body, .. } = action
                && !heap::can_overwrite(&guard, rid.slot(), body.len())
            {
                drop(guard);
                if pruned {
                    return Ok(None);
                }
                pruned = true;
                self.prune(rid.dba())?;
                continue;
            }
            let old_chain = (old.is_chained() && !matches!(action, Action::Lock))
                .then(|| Chain::decode(body))
                .transpose()?;
            let undo = encode_undo(rid, old, if keeps_body { &[] } else { body });
            self.log(txn, slot, &mut guard, rid, old, action, &undo)?;
            let leaves_room = matches!(action, Action::Delete)
                || heap::slack(&guard, rid.slot()) >= WORTHWHILE_SLACK;
            drop(guard);
            if let Some(chain) = old_chain {
                self.delete_pieces(txn, rid, chain)?;
            }
            if leaves_room {
                self.note_dead(txn, rid.dba());
            }
            return Ok(Some(WriteOutcome::Done));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one record")]
    fn log(
        &self,
        txn: &mut Transaction,
        slot: txn::UndoSlot,
        guard: &mut WriteGuard<'_>,
        rid: RowId,
        old: RowHead,
        action: &Action<'_>,
        undo: &[u8],
    ) -> Result<()> {
        let (stamp, ptr) = (txn.stamp(), slot.ptr());
        let mut payload = Vec::new();
        let (op, kind) = match *action {
            Action::Replace { flags, body } => {
                heap::row_payload(
                    rid.slot(),
                    RowHead {
                        flags,
                        stamp,
                        undo: ptr,
                    },
                    body,
                    &mut payload,
                );
                (Op::HeapOverwrite, UNDO_UPDATE)
            }
            Action::Delete => {
                let head = RowHead {
                    flags: old.flags | heap::DELETED,
                    stamp,
                    undo: ptr,
                };
                heap::head_payload(rid.slot(), head, &mut payload);
                (Op::HeapSetHead, UNDO_HEAD)
            }
            Action::Lock => {
                heap::head_payload(
                    rid.slot(),
                    RowHead {
                        flags: old.flags,
                        stamp,
                        undo: ptr,
                    },
                    &mut payload,
                );
                (Op::HeapSetHead, UNDO_HEAD)
            }
        };
        let change = Change {
            guard,
            op,
            object: self.object(),
            payload: &payload,
        };
        txn.log(
            slot,
            &Undo {
                kind,
                object: self.object(),
                payload: undo,
            },
            &mut [change],
        );
        Ok(())
    }

    /// The length of the row's body now. Zero if there is none.
    fn body_len(&self, rid: RowId) -> Result<usize> {
        let block = self.cache().read_to_change(rid.dba())?;
        match block.object() == self.object() {
            true => Ok(heap::row(&block, rid.slot())?.map_or(0, |r| r.body.len())),
            false => Ok(0),
        }
    }

    /// Whether the row may be changed. The block is latched. `settled`: the undo record of an own
    /// version that has been looked at already.
    fn current(
        &self,
        block: &BlockBuf,
        txn: &Transaction,
        snap: &Snapshot,
        rid: RowId,
        settled: UndoPtr,
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
            return Ok(match head.undo == settled {
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
            Some((id, TxnState::Active | TxnState::Aborted)) => Current::No(WriteOutcome::Busy(id)),
            _ if head.is_deleted() => Current::No(WriteOutcome::Gone),
            _ if head.undo == settled => Current::Ours(head),
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
            if old.flags != head.flags {
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
        Ok(old.flags != head.flags)
    }
}
