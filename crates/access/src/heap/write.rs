//! Changes rows: update, delete, lock against others.

use super::current::{Current, Next, Settled};
use super::read::encode_undo;
use super::share::Passing;
use super::{Heap, UNDO_HEAD, UNDO_ROW, UNDO_UPDATE, WORTHWHILE_SLACK};
use crate::Result;
use block::heap::{self, Chain, MAX_INLINE_BODY, NO_KEY, RowHead};
use block::{Op, RowId, TxnId};
use cache::{Change, WriteGuard};
use txn::{RowLock, Snapshot, Transaction, Undo};

/// The outcome of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    Done,
    /// A transaction that may still roll back has changed or locked the row. Wait for it and
    /// try again.
    Busy(TxnId),
    /// A transaction shares the row in a way that excludes this. Wait for it and try again.
    Shared {
        holder: TxnId,
        /// Whether the transaction that asks has its own stamp on the row.
        has_row: bool,
    },
    /// A version is committed that the snapshot does not see.
    Changed,
    /// The row is deleted.
    Gone,
    /// The statement that asks has already changed the row.
    Repeated,
}

/// What is to become of a row.
enum Action<'a> {
    Replace {
        flags: u8,
        body: &'a [u8],
        lock: RowLock,
    },
    Delete,
    Lock(RowLock),
}

impl Action<'_> {
    /// The lock that it takes.
    fn lock(&self) -> RowLock {
        match *self {
            Action::Replace { lock, .. } | Action::Lock(lock) => lock,
            Action::Delete => RowLock::Update,
        }
    }
}

/// The lock that a transaction has whose stamp is in the head.
fn lock_of(head: RowHead) -> RowLock {
    match head.is_no_key() {
        true => RowLock::NoKeyUpdate,
        false => RowLock::Update,
    }
}

impl Heap {
    /// Replaces the row's version that `snap` sees by `body`. The row's key, which others may hold
    /// fast, stays as it is if `lock` is [`RowLock::NoKeyUpdate`].
    pub fn update(
        &self,
        txn: &mut Transaction,
        snap: &Snapshot,
        rid: RowId,
        body: &[u8],
        lock: RowLock,
    ) -> Result<WriteOutcome> {
        if body.len() <= MAX_INLINE_BODY {
            let flags = 0;
            let action = Action::Replace { flags, body, lock };
            let fitted = self.change(txn, snap, rid, &action)?;
            if let Some(outcome) = fitted {
                return Ok(outcome);
            }
        }
        // The new piece is written first, then the pointer to it.
        let chain = self.write_pieces(txn, body)?;
        let action = Action::Replace {
            flags: heap::CHAINED,
            body: &chain.encode(),
            lock,
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
    pub fn lock(
        &self,
        txn: &mut Transaction,
        snap: &Snapshot,
        rid: RowId,
        lock: RowLock,
    ) -> Result<WriteOutcome> {
        if lock.is_shared() {
            return self.share(txn, snap, rid, lock);
        }
        let outcome = self.change(txn, snap, rid, &Action::Lock(lock))?;
        Ok(outcome.expect("invariant: a lock needs no room"))
    }

    /// Changes a row. None if the new body does not fit the block. What must be looked up in undo
    /// is looked up without the latch. `vouched` says how often the block was marked when other
    /// instances said that nobody shares the row.
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
        let mut settled = Settled::Nothing;
        let lock = action.lock();
        let mut vouched = None;
        txn.ensure_id()?;
        if !keeps_body {
            undo_len += self.body_len(rid)?;
        }
        loop {
            let slot = txn.prepare_undo(undo_len)?;
            let mut guard = self.cache().write(rid.dba())?;
            let old = match self.current(&guard, txn, snap, (rid, lock), settled)? {
                Current::Ours(head) => head,
                other => {
                    drop(guard);
                    match self.look_up(snap, rid, other)? {
                        Next::Outcome(outcome) => return Ok(Some(outcome)),
                        Next::Again => {}
                        Next::Settled(found) => settled = found,
                    }
                    continue;
                }
            };
            let has = (old.stamp == txn.stamp()).then(|| lock_of(old));
            if matches!(action, Action::Lock(_)) && has >= Some(lock) {
                return Ok(Some(WriteOutcome::Done));
            }
            let shared = heap::sharers(&guard, rid.slot()) & lock.excluded_by() != 0;
            if shared && has < Some(lock) {
                match self.pass_sharers(txn, guard, (rid, lock), &mut vouched)? {
                    Passing::Free(latched) => guard = latched,
                    Passing::Again => continue,
                    Passing::Held(holder) => {
                        let has_row = has.is_some();
                        return Ok(Some(WriteOutcome::Shared { holder, has_row }));
                    }
                }
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
            let old_chain = (old.is_chained() && !matches!(action, Action::Lock(_)))
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
        let weak = action.lock() == RowLock::NoKeyUpdate && (old.stamp != stamp || old.is_no_key());
        let no_key = if weak { NO_KEY } else { 0 };
        let (op, kind) = match *action {
            Action::Replace { flags, body, .. } => {
                heap::row_payload(
                    rid.slot(),
                    RowHead {
                        flags: flags | no_key,
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
                    flags: old.version() | heap::DELETED,
                    stamp,
                    undo: ptr,
                };
                heap::head_payload(rid.slot(), head, &mut payload);
                (Op::HeapSetHead, UNDO_HEAD)
            }
            Action::Lock(_) => {
                heap::head_payload(
                    rid.slot(),
                    RowHead {
                        flags: old.version() | no_key,
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
}
