//! Rows whose bytes are in pieces elsewhere: too long for a block, or grown out of theirs.

use super::{Heap, UNDO_HEAD, UNDO_ROW};
use crate::Result;
use crate::heap::read::encode_undo;
use block::heap::{self, Chain, MAX_INLINE_BODY, PIECE, PIECE_HEADER, RowHead};
use block::{Op, RowId};
use cache::Change;
use txn::{Transaction, Undo};

/// The most bytes of a row in one piece.
const PIECE_BYTES: usize = MAX_INLINE_BODY - PIECE_HEADER;

impl Heap {
    /// Writes the pieces of a row, the last first, so that each knows the address of the next.
    pub(super) fn write_pieces(&self, txn: &mut Transaction, row: &[u8]) -> Result<Chain> {
        let mut next = RowId(0);
        let mut body = Vec::with_capacity(MAX_INLINE_BODY);
        for chunk in row.chunks(PIECE_BYTES).rev() {
            body.clear();
            body.extend_from_slice(&next.0.to_le_bytes());
            body.extend_from_slice(chunk);
            next = self.insert_row(txn, PIECE, &body)?;
        }
        Ok(Chain {
            len: row.len() as u32,
            first: next,
        })
    }

    /// Appends the bytes of a chained row; `chain` is its body.
    pub(super) fn read_pieces(&self, rid: RowId, chain: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.each_piece(rid, chain, &mut |_, bytes| out.extend_from_slice(bytes))
    }

    /// Gives each piece of a chained row to `each`, in order, under the latch of the piece's block.
    /// It is an error if not all pieces are there, or if they are more than the row.
    pub(super) fn each_piece(
        &self,
        rid: RowId,
        chain: &[u8],
        each: &mut dyn FnMut(RowId, &[u8]),
    ) -> Result<()> {
        let chain = Chain::decode(chain)?;
        let (mut have, wanted) = (0, chain.len as usize);
        let mut at = chain.first;
        while at.0 != 0 {
            let block = self.cache().read(at.dba())?;
            let piece = match heap::row(&block, at.slot())? {
                Some(p)
                    if block.object() == self.object()
                        && p.head.is_piece()
                        && p.body.len() >= PIECE_HEADER =>
                {
                    p
                }
                _ => return Err(self.corrupt(rid, format!("piece {at:?} is not there"))),
            };
            let (next, bytes) = piece.body.split_at(PIECE_HEADER);
            have += bytes.len();
            if have > wanted || bytes.is_empty() && wanted > 0 {
                return Err(self.corrupt(rid, "its pieces are more than the row"));
            }
            each(at, bytes);
            at = RowId(u64::from_le_bytes(next.try_into().expect("eight bytes")));
        }
        match have == wanted {
            true => Ok(()),
            false => Err(self.corrupt(rid, format!("its pieces have {have} of {wanted} bytes"))),
        }
    }

    /// Delete-marks the pieces of a row that has another version now, or none.
    pub(super) fn delete_pieces(
        &self,
        txn: &mut Transaction,
        rid: RowId,
        chain: Chain,
    ) -> Result<()> {
        let mut at = chain.first;
        while at.0 != 0 {
            let slot = txn.prepare_undo(UNDO_ROW)?;
            let mut guard = self.cache().write(at.dba())?;
            let (old, next) = match heap::row(&guard, at.slot())? {
                Some(p)
                    if guard.object() == self.object()
                        && p.head.is_piece()
                        && p.body.len() >= PIECE_HEADER =>
                {
                    (
                        p.head,
                        RowId(u64::from_le_bytes(
                            p.body[..PIECE_HEADER].try_into().expect("eight bytes"),
                        )),
                    )
                }
                _ => return Err(self.corrupt(rid, format!("piece {at:?} is not there"))),
            };
            let head = RowHead {
                flags: old.flags | heap::DELETED,
                stamp: txn.stamp(),
                undo: slot.ptr(),
            };
            let mut payload = Vec::new();
            heap::head_payload(at.slot(), head, &mut payload);
            let undo = Undo {
                kind: UNDO_HEAD,
                object: self.object(),
                payload: &encode_undo(at, old, &[]),
            };
            let change = Change {
                guard: &mut guard,
                op: Op::HeapSetHead,
                object: self.object(),
                payload: &payload,
            };
            txn.log(slot, &undo, &mut [change]);
            drop(guard);
            self.note_dead(txn, at.dba());
            at = next;
        }
        Ok(())
    }
}
