//! The second block of an index. It lists blocks that left the tree and wait until nobody can be on
//! the way to them.
//!
//! ```text
//! 32 count u16 | 34 reserved (6), zero
//! 40 entries, 16 bytes each: block address (8) | freed at SCN (8)
//! ```
//!
//! **Invariant.** Entries stand in the order in which they were freed, so the first is the first to
//! be reused. An entry may be reused once its SCN is below the horizon: every descent under way
//! when the block was unlinked had published a snapshot at or below that SCN.

use super::content::Cursor;
use crate::{BLOCK_SIZE, BlockBuf, BlockError, Dba, Result, Scn};

const COUNT_AT: usize = 32;
const ENTRIES_AT: usize = 40;
const ENTRY: usize = 16;
/// The most blocks that wait. Beyond that, empty leaves stay in the tree until some blocks are
/// reused.
pub const MAX_FREE_BLOCKS: usize = (BLOCK_SIZE - ENTRIES_AT) / ENTRY;

/// A block that is out of use since `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeBlock {
    pub dba: Dba,
    pub at: Scn,
}

/// Reads the list of freed blocks.
#[derive(Clone, Copy)]
pub struct MetaBlock<'a>(pub &'a BlockBuf);

impl MetaBlock<'_> {
    pub fn count(&self) -> usize {
        (self.0.u16_at(COUNT_AT) as usize).min(MAX_FREE_BLOCKS)
    }
    pub fn get(&self, i: usize) -> FreeBlock {
        let at = ENTRIES_AT + ENTRY * i;
        FreeBlock {
            dba: Dba(self.0.u64_at(at)),
            at: Scn(self.0.u64_at(at + 8)),
        }
    }
    pub fn is_full(&self) -> bool {
        self.count() == MAX_FREE_BLOCKS
    }
}

pub fn meta_push_payload(free: FreeBlock) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&free.dba.0.to_le_bytes());
    out[8..].copy_from_slice(&free.at.0.to_le_bytes());
    out
}

pub fn apply_meta_push(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let count = MetaBlock(b).count();
    let mut r = Cursor(payload);
    let (dba, scn) = (r.u64()?, r.u64()?);
    if count == MAX_FREE_BLOCKS {
        return Err(BlockError::corrupt(
            "the list of freed index blocks is full",
        ));
    }
    let at = ENTRIES_AT + ENTRY * count;
    b.put_u64(at, dba);
    b.put_u64(at + 8, scn);
    b.put_u16(COUNT_AT, count as u16 + 1);
    Ok(())
}

/// The payload that takes the first entry off the list. It has the entry's address, for a check.
pub fn meta_pop_payload(dba: Dba) -> [u8; 8] {
    dba.0.to_le_bytes()
}

pub fn apply_meta_pop(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let count = MetaBlock(b).count();
    if count == 0 || MetaBlock(b).get(0).dba.0 != Cursor(payload).u64()? {
        return Err(BlockError::corrupt(
            "the first freed index block is another one",
        ));
    }
    b.0.copy_within(ENTRIES_AT + ENTRY..ENTRIES_AT + ENTRY * count, ENTRIES_AT);
    b.0[ENTRIES_AT + ENTRY * (count - 1)..ENTRIES_AT + ENTRY * count].fill(0);
    b.put_u16(COUNT_AT, count as u16 - 1);
    Ok(())
}
