//! Undo blocks: what a transaction changed. It is kept to be put back, and to show older snapshots
//! the row as it was.
//!
//! ```text
//! body:   sequence u16 | records u16 | end of records u16 | reserved u16 (zero)
//!         | record 0 | record 1 | ...  free  ... | offset of record 1 u16 | offset of record 0 u16
//! record: transaction u64 | previous of the transaction u64 | undo number u32 | object u32
//!         | kind u16 | payload length u16 | payload
//! ```
//!
//! Offsets count from the start of the body. Records are only ever added; formatting a block anew
//! empties it.
//!
//! **Invariants.** Every use of a block has another *sequence* than the use before it. So a pointer
//! ([`UndoPtr`]) left over from an earlier use is noticed: its reader's snapshot is too old. A
//! record's address is known before it is written, because one session at a time adds to a block.
//! The layer that wrote a record knows what its payload means (`kind`).

use crate::{
    BLOCK_SIZE, BlockBuf, BlockError, BlockType, HEADER_SIZE, ObjectId, Result, TxnId, UndoPtr,
};

const BODY: usize = BLOCK_SIZE - HEADER_SIZE;
const SEQUENCE_AT: usize = HEADER_SIZE;
const COUNT_AT: usize = HEADER_SIZE + 2;
const END_AT: usize = HEADER_SIZE + 4;
const FIRST_RECORD: usize = 8;
const SLOT: usize = 2;
/// The bytes of an undo record besides its payload.
pub const UNDO_RECORD_HEADER: usize = 28;
/// The longest payload: an empty block less its body header, one record header and one slot.
pub const UNDO_MAX_PAYLOAD: usize = BODY - FIRST_RECORD - UNDO_RECORD_HEADER - SLOT;

const _: () = assert!(UNDO_MAX_PAYLOAD == 8122);
// Every record of a full block must have a slot number that fits an undo pointer.
const _: () =
    assert!((BODY - FIRST_RECORD) / (UNDO_RECORD_HEADER + SLOT) <= UndoPtr::MAX_SLOT as usize);

/// An undo record, borrowed from its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoView<'a> {
    /// The transaction that made the change.
    pub txn: TxnId,
    /// The transaction's undo record before this one.
    pub prev: UndoPtr,
    /// Rises with each undo record of the transaction. It tells statements and savepoints apart.
    pub undo_no: u32,
    pub object: ObjectId,
    /// What was done, and so what the payload is. The numbers are the access layer's.
    pub kind: u16,
    pub payload: &'a [u8],
}

impl<'a> UndoView<'a> {
    /// Appends the record's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(
            self.payload.len() <= UNDO_MAX_PAYLOAD,
            "invariant: an undo payload is at most {UNDO_MAX_PAYLOAD} bytes, this one has {}",
            self.payload.len()
        );
        out.extend_from_slice(&self.txn.0.to_le_bytes());
        out.extend_from_slice(&self.prev.0.to_le_bytes());
        out.extend_from_slice(&self.undo_no.to_le_bytes());
        out.extend_from_slice(&self.object.0.to_le_bytes());
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&(self.payload.len() as u16).to_le_bytes());
        out.extend_from_slice(self.payload);
    }

    /// Reads the record at the start of `bytes`.
    pub fn decode(bytes: &'a [u8]) -> Result<UndoView<'a>> {
        let Some((head, rest)) = bytes.split_at_checked(UNDO_RECORD_HEADER) else {
            return Err(BlockError::corrupt("undo record is cut short"));
        };
        let u64_at =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let u32_at =
            |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let u16_at = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let payload = rest
            .get(..u16_at(26) as usize)
            .ok_or_else(|| BlockError::corrupt("undo payload is cut short"))?;
        Ok(UndoView {
            txn: TxnId(u64_at(0)),
            prev: UndoPtr(u64_at(8)),
            undo_no: u32_at(16),
            object: ObjectId(u32_at(20)),
            kind: u16_at(24),
            payload,
        })
    }
}

/// Payload of the vector that formats an undo block for a new use.
pub fn format_payload(sequence: u16) -> [u8; 2] {
    sequence.to_le_bytes()
}

/// Starts the payload of the vector that adds a record at `ptr`. The encoded record follows.
pub fn append_payload(ptr: UndoPtr, record: &UndoView<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&ptr.sequence().to_le_bytes());
    out.extend_from_slice(&ptr.slot().to_le_bytes());
    record.encode(out);
}

/// The sequence of the block's present use. None if this is not a formatted undo block.
pub fn sequence(block: &BlockBuf) -> Option<u16> {
    matches!(block.block_type(), Ok(BlockType::Undo)).then(|| block.u16_at(SEQUENCE_AT))
}

/// The number of records, which is also the slot of the next one.
pub fn count(block: &BlockBuf) -> u16 {
    block.u16_at(COUNT_AT)
}

/// The longest payload that one more record may have. None if not even an empty one fits.
pub fn room(block: &BlockBuf) -> Option<usize> {
    let used = block.u16_at(END_AT) as usize + count(block) as usize * SLOT;
    BODY.checked_sub(used + UNDO_RECORD_HEADER + SLOT)
}

/// The result of following an undo pointer.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<'a> {
    Record(UndoView<'a>),
    /// The block is in another use by now, and the record is gone.
    Reused,
}

/// The record that `ptr` names in `block`. The caller has checked the block's address.
pub fn get(block: &BlockBuf, ptr: UndoPtr) -> Result<Found<'_>> {
    if sequence(block) != Some(ptr.sequence()) {
        return Ok(Found::Reused);
    }
    if ptr.slot() >= count(block) {
        return Err(BlockError::corrupt(format!(
            "undo block has {} records: {ptr:?} is none",
            count(block)
        )));
    }
    let offset = slot_offset(block, ptr.slot())?;
    UndoView::decode(&block.body()[offset..]).map(Found::Record)
}

fn slot_at(slot: u16) -> usize {
    BLOCK_SIZE - (slot as usize + 1) * SLOT
}

fn slot_offset(block: &BlockBuf, slot: u16) -> Result<usize> {
    let offset = block.u16_at(slot_at(slot)) as usize;
    match (FIRST_RECORD..BODY).contains(&offset) {
        true => Ok(offset),
        false => Err(BlockError::corrupt(format!(
            "undo slot {slot} points outside its block"
        ))),
    }
}

pub(crate) fn apply_format(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let Ok(sequence) = payload.try_into().map(u16::from_le_bytes) else {
        return Err(BlockError::corrupt(
            "payload of an undo format is not two bytes",
        ));
    };
    block.put_u16(SEQUENCE_AT, sequence);
    block.put_u16(COUNT_AT, 0);
    block.put_u16(END_AT, FIRST_RECORD as u16);
    Ok(())
}

pub(crate) fn apply_append(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let Some((head, record)) = payload.split_at_checked(4) else {
        return Err(BlockError::corrupt(
            "payload of an undo append is cut short",
        ));
    };
    let (wanted, slot) = (
        u16::from_le_bytes([head[0], head[1]]),
        u16::from_le_bytes([head[2], head[3]]),
    );
    if sequence(block) != Some(wanted) || slot != count(block) {
        return Err(BlockError::corrupt(format!(
            "undo append for sequence {wanted} slot {slot} meets sequence {:?} with {} records",
            sequence(block),
            count(block)
        )));
    }
    let len = UNDO_RECORD_HEADER + UndoView::decode(record)?.payload.len();
    if len != record.len() || room(block).is_none_or(|room| room + UNDO_RECORD_HEADER < len) {
        return Err(BlockError::corrupt(format!(
            "undo record of {len} bytes does not fit its vector or its block"
        )));
    }
    let end = block.u16_at(END_AT) as usize;
    block.body_mut()[end..end + len].copy_from_slice(record);
    block.put_u16(slot_at(slot), end as u16);
    block.put_u16(COUNT_AT, slot + 1);
    block.put_u16(END_AT, (end + len) as u16);
    Ok(())
}

/// Checks a whole undo block, for `verify`.
pub fn check(block: &BlockBuf) -> Result<()> {
    let mut end = FIRST_RECORD;
    for slot in 0..count(block) {
        if slot > UndoPtr::MAX_SLOT || slot_offset(block, slot)? != end {
            return Err(BlockError::corrupt(format!(
                "undo slot {slot} does not follow the one before it"
            )));
        }
        end += UNDO_RECORD_HEADER + UndoView::decode(&block.body()[end..])?.payload.len();
    }
    match end == block.u16_at(END_AT) as usize && end + count(block) as usize * SLOT <= BODY {
        true => Ok(()),
        false => Err(BlockError::corrupt(
            "undo records do not end where the block says",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dba, FileId, InstanceId, Op, apply};
    use proptest::prelude::*;

    fn fresh(sequence: u16) -> (Box<BlockBuf>, Dba) {
        let dba = Dba::new(FileId::undo(InstanceId(1)), 9);
        let mut block = BlockBuf::zeroed();
        block.format(dba, ObjectId::NONE, BlockType::Undo);
        apply(Op::UndoFormat, &mut block, &format_payload(sequence)).unwrap();
        (block, dba)
    }

    fn view(no: u32, payload: &[u8]) -> UndoView<'_> {
        let txn = TxnId::new(InstanceId(1), 77);
        UndoView {
            txn,
            prev: UndoPtr(no as u64),
            undo_no: no,
            object: ObjectId(5),
            kind: 3,
            payload,
        }
    }

    fn add(block: &mut BlockBuf, dba: Dba, no: u32, payload: &[u8]) -> UndoPtr {
        let ptr = UndoPtr::new(dba, count(block), sequence(block).unwrap());
        let mut bytes = Vec::new();
        append_payload(ptr, &view(no, payload), &mut bytes);
        apply(Op::UndoAppend, block, &bytes).unwrap();
        ptr
    }

    #[test]
    fn the_largest_payload_fills_a_block() {
        let (mut block, dba) = fresh(7);
        assert_eq!(room(&block), Some(UNDO_MAX_PAYLOAD));
        let payload = vec![9; UNDO_MAX_PAYLOAD];
        let ptr = add(&mut block, dba, 1, &payload);
        assert_eq!(get(&block, ptr), Ok(Found::Record(view(1, &payload))));
        assert_eq!(room(&block), None);
        check(&block).unwrap();
    }

    #[test]
    fn a_pointer_from_an_earlier_use_is_noticed() {
        let (mut block, dba) = fresh(7);
        let ptr = add(&mut block, dba, 1, b"old");
        apply(Op::UndoFormat, &mut block, &format_payload(8)).unwrap();
        add(&mut block, dba, 2, b"new");
        assert_eq!(get(&block, ptr), Ok(Found::Reused));
    }

    #[test]
    fn the_format_is_pinned() {
        let (mut block, dba) = fresh(0x0102);
        add(&mut block, dba, 0x0a0b, b"xy");
        assert_eq!(&block.body()[..8], &[0x02, 0x01, 1, 0, 38, 0, 0, 0]);
        assert_eq!(
            &block.body()[8 + 16..8 + 30],
            &[0x0b, 0x0a, 0, 0, 5, 0, 0, 0, 3, 0, 2, 0, b'x', b'y']
        );
        assert_eq!(&block.0[BLOCK_SIZE - 2..], &[8, 0]);
    }

    proptest! {
        #[test]
        fn what_is_added_reads_back(sizes in proptest::collection::vec(0usize..600, 1..400)) {
            let (mut block, dba) = fresh(1);
            let mut kept = Vec::new();
            for (no, size) in sizes.into_iter().enumerate() {
                let payload = vec![no as u8; size];
                match room(&block) {
                    Some(room) if room >= size => kept.push((add(&mut block, dba, no as u32, &payload), no, payload)),
                    _ => {
                        let mut bytes = Vec::new();
                        let ptr = UndoPtr::new(dba, count(&block), 1);
                        append_payload(ptr, &view(no as u32, &payload), &mut bytes);
                        prop_assert!(apply(Op::UndoAppend, &mut block, &bytes).is_err());
                    }
                }
            }
            check(&block).unwrap();
            for (ptr, no, payload) in &kept {
                prop_assert_eq!(get(&block, *ptr), Ok(Found::Record(view(*no as u32, payload))));
            }
        }

        #[test]
        fn damaged_blocks_and_payloads_do_not_panic(seed in proptest::collection::vec(any::<(u16, u8)>(), 1..20), payload in proptest::collection::vec(any::<u8>(), 0..80)) {
            let (mut block, dba) = fresh(1);
            for no in 0..5 {
                add(&mut block, dba, no, b"some payload");
            }
            for (at, v) in seed {
                let at = HEADER_SIZE + at as usize % BODY;
                block.0[at] = v;
            }
            let _ = check(&block);
            for slot in 0..8 {
                let _ = get(&block, UndoPtr::new(dba, slot, 1));
            }
            let _ = apply(Op::UndoAppend, &mut block, &payload);
        }
    }
}
