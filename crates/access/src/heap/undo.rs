//! Puts rows back as they were.

use super::read::decode_undo;
use super::{Heap, UNDO_HEAD, UNDO_INSERT, UNDO_INSERT_MANY, UNDO_UPDATE};
use crate::Result;
use block::heap;
use block::{BlockBuf, Dba, Op, RowId, UndoPtr};
use cache::Change;
use txn::{Transaction, UndoRecord};

/// Whether an undo record is a heap's.
pub fn is_heap_undo(kind: u16) -> bool {
    matches!(
        kind,
        UNDO_INSERT | UNDO_INSERT_MANY | UNDO_UPDATE | UNDO_HEAD
    )
}

/// The block that a heap's undo record is about.
pub fn undo_block(record: &UndoRecord) -> Option<Dba> {
    let (first, _) = record.payload.split_first_chunk::<8>()?;
    let number = u64::from_le_bytes(*first);
    Some(match record.kind {
        UNDO_INSERT_MANY => Dba(number),
        _ => RowId(number).dba(),
    })
}

/// Whether a heap's undo record is about the row.
pub(super) fn is_about(record: &UndoRecord, rid: RowId) -> bool {
    match record.kind {
        UNDO_INSERT => record.payload == rid.0.to_le_bytes(),
        UNDO_INSERT_MANY => {
            let slots = record.payload.get(8..).unwrap_or_default();
            undo_block(record) == Some(rid.dba())
                && slots.chunks_exact(2).any(|s| s == rid.slot().to_le_bytes())
        }
        UNDO_UPDATE | UNDO_HEAD => decode_undo(&record.payload).is_some_and(|(of, ..)| of == rid),
        _ => false,
    }
}

impl Heap {
    /// Undoes what the record, which stands at `at`, tells, and logs where the rollback goes on. It
    /// needs no space that the transaction does not have.
    pub fn undo(&self, txn: &mut Transaction, record: &UndoRecord, at: UndoPtr) -> Result<()> {
        let short = || self.corrupt(RowId(0), format!("undo record {at:?} is cut short"));
        let mut payload = Vec::new();
        let (dba, op) = match record.kind {
            UNDO_INSERT => {
                let bytes: [u8; 8] = record.payload[..].try_into().map_err(|_| short())?;
                let rid = RowId(u64::from_le_bytes(bytes));
                heap::prune_payload(&[rid.slot()], &[], &mut payload);
                (rid.dba(), Op::HeapPrune)
            }
            UNDO_INSERT_MANY => {
                let (dba, slots) = record.payload.split_at_checked(8).ok_or_else(short)?;
                let slots: Vec<u16> = slots
                    .chunks_exact(2)
                    .map(|b| u16::from_le_bytes([b[0], b[1]]))
                    .collect();
                if slots.is_empty() {
                    return Err(short());
                }
                heap::prune_payload(&slots, &[], &mut payload);
                (
                    Dba(u64::from_le_bytes(dba.try_into().expect("eight bytes"))),
                    Op::HeapPrune,
                )
            }
            UNDO_UPDATE | UNDO_HEAD => {
                let (rid, head, body) = decode_undo(&record.payload).ok_or_else(short)?;
                match record.kind {
                    UNDO_UPDATE => heap::row_payload(rid.slot(), head, body, &mut payload),
                    _ => heap::head_payload(rid.slot(), head, &mut payload),
                }
                (
                    rid.dba(),
                    if record.kind == UNDO_UPDATE {
                        Op::HeapOverwrite
                    } else {
                        Op::HeapSetHead
                    },
                )
            }
            kind => {
                return Err(self.corrupt(RowId(0), format!("undo record {at:?} has kind {kind}")));
            }
        };
        txn.reserve_log()?;
        let mut guard = self.cache().write(dba)?;
        self.assert_newest(&guard, &payload, op, txn, at)?;
        let change = Change {
            guard: &mut guard,
            op,
            object: self.object(),
            payload: &payload,
        };
        txn.log_compensation(record.prev, &mut [change]);
        let room = heap::free_bytes(&guard);
        drop(guard);
        if op == Op::HeapPrune {
            self.remember_room(dba, room);
        }
        Ok(())
    }

    /// Checks that the row is as the change left it: everything later has been undone, and nobody
    /// else changes a row with this stamp.
    fn assert_newest(
        &self,
        block: &BlockBuf,
        payload: &[u8],
        op: Op,
        txn: &Transaction,
        at: UndoPtr,
    ) -> Result<()> {
        let slot_at = if op == Op::HeapPrune { 2 } else { 0 };
        let slot = u16::from_le_bytes([payload[slot_at], payload[slot_at + 1]]);
        let row = if block.object() == self.object() {
            heap::row(block, slot)?
        } else {
            None
        };
        match row {
            Some(r) if r.head.stamp == txn.stamp() && r.head.undo == at => Ok(()),
            found => {
                let rid = RowId::new(block.dba(), slot);
                Err(self.corrupt(
                    rid,
                    format!("cannot undo {at:?}: the row is {:?}", found.map(|r| r.head)),
                ))
            }
        }
    }
}
