//! Heap blocks: rows in slots.
//!
//! ```text
//! 32: slots u16 | lowest row byte u16 | free bytes in the row area u16 | free slots u16
//! 40: slot 0: offset u16, allocated u16 | slot 1 | ...  free  ... | rows, growing down from the
//! end
//! row: flags u8 | sharers u8 | body length u16 | stamp u64 | undo pointer u64 | body
//! ```
//!
//! Offsets count from the start of the block. A slot with offset 0 is free. *Free bytes* are those
//! below the lowest row and the holes between rows; the slot directory's growth comes out of them.
//! The header's last four bytes are the block's *marks*: how often it was said of one of its rows
//! who may share it.
//!
//! A row's *sharers* tell which instances may have sessions that share a lock on the row; what the
//! bits mean is the lock manager's. They are no part of the row's head: a change of the row, and a
//! rollback, leave them as they are.
//!
//! **Invariants.**
//! - A row keeps what is allocated to it until a [`Op::HeapPrune`](crate::Op::HeapPrune) that was
//!   decided after the row's last change was committed. A body that shrinks can grow back, so
//!   rollback needs no space that somebody else could take (race 23b of docs/design.md).
//! - Every row has room for the body of a chained row, so any row can be moved away from where it
//!   lies.
//! - What a vector does depends on the vector and the block's layout only, and hints change no
//!   layout. So replay gives the same layout.

use crate::{BLOCK_SIZE, BlockBuf, BlockError, HEADER_SIZE, Result, RowId, Stamp, UndoPtr};

const MARKS_AT: usize = HEADER_SIZE - 4;
const SLOTS_AT: usize = HEADER_SIZE;
const LOW_AT: usize = HEADER_SIZE + 2;
const FREE_AT: usize = HEADER_SIZE + 4;
const FREE_SLOTS_AT: usize = HEADER_SIZE + 6;
const DIRECTORY: usize = HEADER_SIZE + 8;
const SLOT: usize = 4;
pub const ROW_HEADER: usize = 20;

/// The row was deleted by its stamp's transaction.
pub const DELETED: u8 = 1;
/// The row is a piece of a row whose slot is elsewhere. Scans pass it by.
pub const PIECE: u8 = 2;
/// The body is a [`Chain`]: the row's bytes are in pieces.
pub const CHAINED: u8 = 4;
/// As long as the stamp's transaction is active, it has the row locked in a way that lets others
/// have a key share: what it has changed is no key, if anything.
pub const NO_KEY: u8 = 8;
const ALL_FLAGS: u8 = DELETED | PIECE | CHAINED | NO_KEY;

/// The bytes of a chained row's body, which tells where the row's bytes are: `length u32 | first
/// piece u64`. A piece's body starts with the row id of the next piece, zero for none.
pub const CHAIN_BODY: usize = 12;
/// The bytes of a piece's body besides what the piece carries.
pub const PIECE_HEADER: usize = 8;
const MIN_ALLOCATION: usize = ROW_HEADER + CHAIN_BODY;
/// The longest body: alone in an empty block, less a little so that a table of such rows can be
/// updated in place by a few bytes.
pub const MAX_BODY: usize = BLOCK_SIZE - DIRECTORY - SLOT - ROW_HEADER;
/// The length from which on bodies are chained: an undo record must take the body with its header.
pub const MAX_INLINE_BODY: usize = 7800;

const _: () =
    assert!(MAX_INLINE_BODY + 64 < crate::undo::UNDO_MAX_PAYLOAD && MAX_INLINE_BODY <= MAX_BODY);
/// The most slots that a block can have.
pub const MAX_SLOTS: u16 = ((BLOCK_SIZE - DIRECTORY) / (SLOT + MIN_ALLOCATION)) as u16;

/// A row's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowHead {
    pub flags: u8,
    pub stamp: Stamp,
    pub undo: UndoPtr,
}

impl RowHead {
    pub fn is_deleted(self) -> bool {
        self.flags & DELETED != 0
    }
    pub fn is_piece(self) -> bool {
        self.flags & PIECE != 0
    }
    pub fn is_chained(self) -> bool {
        self.flags & CHAINED != 0
    }
    pub fn is_no_key(self) -> bool {
        self.flags & NO_KEY != 0
    }
    /// The flags that say what the version is, and nothing of its lock.
    pub fn version(self) -> u8 {
        self.flags & !NO_KEY
    }

    fn put(self, out: &mut Vec<u8>) {
        out.push(self.flags);
        out.extend_from_slice(&self.stamp.0.to_le_bytes());
        out.extend_from_slice(&self.undo.0.to_le_bytes());
    }
    fn take(r: &mut &[u8]) -> Result<RowHead> {
        let head = take(r, 17)?;
        if head[0] & !ALL_FLAGS != 0 {
            return Err(BlockError::corrupt("row flags are not known"));
        }
        Ok(RowHead {
            flags: head[0],
            stamp: Stamp(u64::from_le_bytes(
                head[1..9].try_into().expect("eight bytes"),
            )),
            undo: UndoPtr(u64::from_le_bytes(
                head[9..17].try_into().expect("eight bytes"),
            )),
        })
    }
}

/// The body of a chained row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    /// The bytes of the whole row.
    pub len: u32,
    pub first: RowId,
}

impl Chain {
    pub fn encode(self) -> [u8; CHAIN_BODY] {
        let mut b = [0; CHAIN_BODY];
        b[..4].copy_from_slice(&self.len.to_le_bytes());
        b[4..].copy_from_slice(&self.first.0.to_le_bytes());
        b
    }
    pub fn decode(body: &[u8]) -> Result<Chain> {
        let b: &[u8; CHAIN_BODY] = body
            .try_into()
            .map_err(|_| BlockError::corrupt("chained row has a body of another length"))?;
        Ok(Chain {
            len: u32::from_le_bytes(b[..4].try_into().expect("four bytes")),
            first: RowId(u64::from_le_bytes(b[4..].try_into().expect("eight bytes"))),
        })
    }
}

/// A row in a block.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    pub head: RowHead,
    pub body: &'a [u8],
}

/// The number of slots, free ones included. In a damaged block it is no more than there is room
/// for; `verify` finds the bytes that do not add up.
#[inline]
pub fn slots(block: &BlockBuf) -> u16 {
    block
        .u16_at(SLOTS_AT)
        .min(((BLOCK_SIZE - DIRECTORY) / SLOT) as u16)
}

/// The row in a slot. None if the slot is free or does not exist.
// Inlined always: a scan asks for each row of a block, and an answer given through memory takes
// longer than the row.
#[inline(always)]
pub fn row(block: &BlockBuf, slot: u16) -> Result<Option<RowView<'_>>> {
    if slot >= slots(block) {
        return Ok(None);
    }
    let (offset, allocated) = directory(block, slot)?;
    if offset == 0 {
        return Ok(None);
    }
    let len = block.u16_at(offset + 2) as usize;
    if ROW_HEADER + len > allocated {
        return Err(longer_than_allocated(slot));
    }
    let head = RowHead {
        flags: block.0[offset],
        stamp: Stamp(block.u64_at(offset + 4)),
        undo: UndoPtr(block.u64_at(offset + 12)),
    };
    Ok(Some(RowView {
        head,
        body: &block.0[offset + ROW_HEADER..offset + ROW_HEADER + len],
    }))
}

#[inline(always)]
fn directory(block: &BlockBuf, slot: u16) -> Result<(usize, usize)> {
    let at = DIRECTORY + slot as usize * SLOT;
    if at + SLOT > BLOCK_SIZE {
        return Err(directory_too_long());
    }
    let (offset, allocated) = (block.u16_at(at) as usize, block.u16_at(at + 2) as usize);
    if offset != 0
        && (offset < DIRECTORY || allocated < ROW_HEADER || offset + allocated > BLOCK_SIZE)
    {
        return Err(points_outside(slot));
    }
    Ok((offset, allocated))
}

#[cold]
fn longer_than_allocated(slot: u16) -> BlockError {
    BlockError::corrupt(format!("row {slot} is longer than its allocation"))
}

#[cold]
fn directory_too_long() -> BlockError {
    BlockError::corrupt("slot directory runs over the block")
}

#[cold]
fn points_outside(slot: u16) -> BlockError {
    BlockError::corrupt(format!("slot {slot} points out of the block"))
}

/// The sharers of the row in a slot. Zero if the slot is free.
#[inline]
pub fn sharers(block: &BlockBuf, slot: u16) -> u8 {
    match slot < slots(block) {
        true => directory(block, slot).map_or(0, |(offset, _)| match offset {
            0 => 0,
            offset => block.0[offset + 1],
        }),
        false => 0,
    }
}

/// How often the sharers of a row in this block were set. It wraps.
pub fn marks(block: &BlockBuf) -> u32 {
    block.u32_at(MARKS_AT)
}

/// The bytes that rows can still get, the slot directory not counted.
pub fn free_bytes(block: &BlockBuf) -> usize {
    block.u16_at(FREE_AT) as usize
}

fn allocation(body: usize) -> usize {
    (ROW_HEADER + body).max(MIN_ALLOCATION)
}

/// The bytes that a new row with a body of `len` bytes takes in a free slot.
pub fn needs_in_slot(len: usize) -> usize {
    allocation(len)
}

/// The bytes that a new row with a body of `len` bytes takes in a fresh slot.
pub fn needs(len: usize) -> usize {
    allocation(len) + SLOT
}

/// Whether a new row with a body of `len` bytes fits.
pub fn fits(block: &BlockBuf, len: usize) -> bool {
    let slot = if block.u16_at(FREE_SLOTS_AT) > 0 {
        0
    } else {
        SLOT
    };
    allocation(len) + slot <= free_bytes(block)
}

/// The slot that the next new row gets.
pub fn next_slot(block: &BlockBuf) -> u16 {
    let n = slots(block);
    if block.u16_at(FREE_SLOTS_AT) == 0 {
        return n;
    }
    (0..n)
        .find(|&s| block.u16_at(DIRECTORY + s as usize * SLOT) == 0)
        .unwrap_or(n)
}

/// The free slots, in order. New rows of a bulk insert take them before fresh ones.
pub fn free_slots(block: &BlockBuf) -> impl Iterator<Item = u16> + '_ {
    (0..slots(block))
        .filter(|&s| block.u16_at(DIRECTORY + s as usize * SLOT) == 0)
        .take(block.u16_at(FREE_SLOTS_AT) as usize)
}

/// Whether the row in `slot` can get a body of `len` bytes in this block.
pub fn can_overwrite(block: &BlockBuf, slot: u16, len: usize) -> bool {
    match directory(block, slot) {
        Ok((offset, allocated)) if offset != 0 => {
            allocation(len) <= allocated || allocation(len) <= free_bytes(block) + allocated
        }
        _ => false,
    }
}

/// The bytes that trimming the row to its body would free.
pub fn slack(block: &BlockBuf, slot: u16) -> usize {
    match (directory(block, slot), row(block, slot)) {
        (Ok((_, allocated)), Ok(Some(r))) => allocated.saturating_sub(allocation(r.body.len())),
        _ => 0,
    }
}

/// Replaces a stamp by the commit SCN of its transaction: an unlogged hint.
pub fn clean_out(block: &mut BlockBuf, slot: u16, stamp: Stamp) {
    if let Ok((offset, _)) = directory(block, slot)
        && offset != 0
    {
        block.put_u64(offset + 4, stamp.0);
    }
}

// Payloads of the operations.

/// The payload of `HeapInsert` and `HeapOverwrite`: a row into a slot.
pub fn row_payload(slot: u16, head: RowHead, body: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&slot.to_le_bytes());
    head.put(out);
    out.extend_from_slice(body);
}

/// The payload of `HeapInsertMany`: rows with one head into slots. `rows` are `(slot, body)`.
pub fn many_payload<'a>(
    head: RowHead,
    rows: impl Iterator<Item = (u16, &'a [u8])>,
    out: &mut Vec<u8>,
) {
    head.put(out);
    for (slot, body) in rows {
        out.extend_from_slice(&slot.to_le_bytes());
        out.extend_from_slice(&(body.len() as u16).to_le_bytes());
        out.extend_from_slice(body);
    }
}

/// The payload of `HeapSetHead`: another head, the old body.
pub fn head_payload(slot: u16, head: RowHead, out: &mut Vec<u8>) {
    out.extend_from_slice(&slot.to_le_bytes());
    head.put(out);
}

/// The payload of `HeapSetSharers`: other sharers of a row.
pub fn sharers_payload(slot: u16, sharers: u8) -> [u8; 3] {
    let [low, high] = slot.to_le_bytes();
    [low, high, sharers]
}

/// The payload of `HeapPrune`: slots whose rows are gone for good, and slots whose rows keep only
/// what they need.
pub fn prune_payload(free: &[u16], trim: &[u16], out: &mut Vec<u8>) {
    out.extend_from_slice(&(free.len() as u16).to_le_bytes());
    for slot in free.iter().chain(trim) {
        out.extend_from_slice(&slot.to_le_bytes());
    }
}

fn take<'a>(r: &mut &'a [u8], n: usize) -> Result<&'a [u8]> {
    let (head, tail) = r
        .split_at_checked(n)
        .ok_or_else(|| BlockError::corrupt("heap payload is cut short"))?;
    *r = tail;
    Ok(head)
}

fn take_u16(r: &mut &[u8]) -> Result<u16> {
    take(r, 2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

pub(crate) fn apply_format(block: &mut BlockBuf) -> Result<()> {
    block.put_u16(LOW_AT, BLOCK_SIZE as u16);
    block.put_u16(FREE_AT, (BLOCK_SIZE - DIRECTORY) as u16);
    Ok(())
}

pub(crate) fn apply_insert(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = payload;
    let slot = take_u16(&mut r)?;
    let head = RowHead::take(&mut r)?;
    insert(block, slot, head, r)
}

pub(crate) fn apply_insert_many(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = payload;
    let head = RowHead::take(&mut r)?;
    while !r.is_empty() {
        let slot = take_u16(&mut r)?;
        let len = take_u16(&mut r)? as usize;
        insert(block, slot, head, take(&mut r, len)?)?;
    }
    Ok(())
}

fn insert(block: &mut BlockBuf, slot: u16, head: RowHead, body: &[u8]) -> Result<()> {
    let n = slots(block);
    if slot > n || !fits(block, body.len()) {
        return Err(BlockError::corrupt(format!(
            "no room for row {slot} of {} bytes",
            body.len()
        )));
    }
    if slot == n {
        grow_directory(block)?;
    } else if directory(block, slot)?.0 != 0 {
        return Err(BlockError::corrupt(format!("slot {slot} is taken")));
    } else {
        block.put_u16(FREE_SLOTS_AT, block.u16_at(FREE_SLOTS_AT) - 1);
    }
    place(block, slot, allocation(body.len()))?;
    write_row(block, slot, (head, 0), body)
}

/// Adds one slot, free and not counted as such.
fn grow_directory(block: &mut BlockBuf) -> Result<()> {
    let n = slots(block) as usize;
    let end = DIRECTORY + (n + 1) * SLOT;
    if end > block.u16_at(LOW_AT) as usize {
        compact(block)?;
    }
    if end > block.u16_at(LOW_AT) as usize {
        return Err(BlockError::corrupt("no room for another slot"));
    }
    block.put_u16(SLOTS_AT, n as u16 + 1);
    block.put_u32(DIRECTORY + n * SLOT, 0);
    block.put_u16(FREE_AT, (free_bytes(block) - SLOT) as u16);
    Ok(())
}

/// Gives a slot without a row `size` bytes.
fn place(block: &mut BlockBuf, slot: u16, size: usize) -> Result<()> {
    let directory_end = DIRECTORY + slots(block) as usize * SLOT;
    if directory_end + size > block.u16_at(LOW_AT) as usize {
        compact(block)?;
    }
    let low = block.u16_at(LOW_AT) as usize;
    let Some(offset) = low.checked_sub(size).filter(|&o| o >= directory_end) else {
        return Err(BlockError::corrupt(format!("no room for {size} bytes")));
    };
    block.put_u16(LOW_AT, offset as u16);
    block.put_u16(FREE_AT, (free_bytes(block) - size) as u16);
    let at = DIRECTORY + slot as usize * SLOT;
    block.put_u16(at, offset as u16);
    block.put_u16(at + 2, size as u16);
    Ok(())
}

fn write_row(
    block: &mut BlockBuf,
    slot: u16,
    (head, sharers): (RowHead, u8),
    body: &[u8],
) -> Result<()> {
    let (offset, _) = directory(block, slot)?;
    write_head(block, offset, head);
    block.0[offset + 1] = sharers;
    block.put_u16(offset + 2, body.len() as u16);
    block.0[offset + ROW_HEADER..offset + ROW_HEADER + body.len()].copy_from_slice(body);
    Ok(())
}

fn write_head(block: &mut BlockBuf, offset: usize, head: RowHead) {
    block.0[offset] = head.flags;
    block.put_u64(offset + 4, head.stamp.0);
    block.put_u64(offset + 12, head.undo.0);
}

/// Moves the rows together at the end of the block, in the order in which they lie.
fn compact(block: &mut BlockBuf) -> Result<()> {
    let mut rows = Vec::with_capacity(slots(block) as usize);
    for slot in 0..slots(block) {
        let (offset, allocated) = directory(block, slot)?;
        if offset != 0 {
            rows.push((offset, allocated, slot));
        }
    }
    rows.sort_unstable_by(|a, b| b.cmp(a));
    let mut low = BLOCK_SIZE;
    for (offset, allocated, slot) in rows {
        low = low
            .checked_sub(allocated)
            .ok_or_else(|| BlockError::corrupt("rows take more than the block"))?;
        if low < offset {
            return Err(BlockError::corrupt("rows overlap"));
        }
        block.0.copy_within(offset..offset + allocated, low);
        block.put_u16(DIRECTORY + slot as usize * SLOT, low as u16);
    }
    block.put_u16(LOW_AT, low as u16);
    Ok(())
}

pub(crate) fn apply_overwrite(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = payload;
    let slot = take_u16(&mut r)?;
    let head = RowHead::take(&mut r)?;
    let sharers = block.0[existing(block, slot)? + 1];
    if !can_overwrite(block, slot, r.len()) {
        return Err(BlockError::corrupt(format!(
            "no room for row {slot} to have {} bytes",
            r.len()
        )));
    }
    let (_, allocated) = directory(block, slot)?;
    if allocation(r.len()) > allocated {
        release(block, slot)?;
        place(block, slot, allocation(r.len()))?;
    }
    write_row(block, slot, (head, sharers), r)
}

pub(crate) fn apply_set_head(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = payload;
    let slot = take_u16(&mut r)?;
    let head = RowHead::take(&mut r)?;
    let offset = existing(block, slot)?;
    write_head(block, offset, head);
    Ok(())
}

pub(crate) fn apply_set_sharers(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = payload;
    let slot = take_u16(&mut r)?;
    let [sharers] = r else {
        return Err(BlockError::corrupt("sharers of a row are one byte"));
    };
    let offset = existing(block, slot)?;
    block.0[offset + 1] = *sharers;
    block.put_u32(MARKS_AT, marks(block).wrapping_add(1));
    Ok(())
}

pub(crate) fn apply_prune(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = payload;
    let freed = take_u16(&mut r)?;
    for i in 0.. {
        if r.is_empty() {
            break;
        }
        let slot = take_u16(&mut r)?;
        existing(block, slot)?;
        if i < freed {
            release(block, slot)?;
            block.put_u16(FREE_SLOTS_AT, block.u16_at(FREE_SLOTS_AT) + 1);
        } else {
            trim(block, slot)?;
        }
    }
    Ok(())
}

fn existing(block: &BlockBuf, slot: u16) -> Result<usize> {
    if slot < slots(block) {
        let (offset, _) = directory(block, slot)?;
        if offset != 0 {
            return Ok(offset);
        }
    }
    Err(BlockError::corrupt(format!("slot {slot} has no row")))
}

/// Takes the slot's bytes from it.
fn release(block: &mut BlockBuf, slot: u16) -> Result<()> {
    let (offset, allocated) = directory(block, slot)?;
    block.put_u32(DIRECTORY + slot as usize * SLOT, 0);
    block.put_u16(FREE_AT, (free_bytes(block) + allocated) as u16);
    if offset == block.u16_at(LOW_AT) as usize {
        block.put_u16(LOW_AT, (offset + allocated) as u16);
    }
    Ok(())
}

fn trim(block: &mut BlockBuf, slot: u16) -> Result<()> {
    let excess = slack(block, slot);
    let at = DIRECTORY + slot as usize * SLOT;
    block.put_u16(at + 2, block.u16_at(at + 2) - excess as u16);
    block.put_u16(FREE_AT, (free_bytes(block) + excess) as u16);
    Ok(())
}

/// Everything wrong with a block's layout, in words.
pub fn verify(block: &BlockBuf) -> Vec<String> {
    let mut problems = Vec::new();
    let mut spans = Vec::new();
    let mut free_slots = 0;
    for slot in 0..slots(block) {
        match directory(block, slot) {
            Err(e) => problems.push(e.to_string()),
            Ok((0, _)) => free_slots += 1,
            Ok((offset, allocated)) => {
                spans.push((offset, allocated, slot));
                if let Err(e) = row(block, slot) {
                    problems.push(e.to_string());
                }
            }
        }
    }
    spans.sort_unstable();
    for w in spans.windows(2) {
        if w[0].0 + w[0].1 > w[1].0 {
            problems.push(format!("rows {} and {} overlap", w[0].2, w[1].2));
        }
    }
    let used: usize =
        spans.iter().map(|s| s.1).sum::<usize>() + DIRECTORY + slots(block) as usize * SLOT;
    if used + free_bytes(block) != BLOCK_SIZE {
        problems.push(format!(
            "{used} bytes are used and {} free",
            free_bytes(block)
        ));
    }
    if free_slots != block.u16_at(FREE_SLOTS_AT) {
        problems.push(format!(
            "{free_slots} slots are free, {} counted",
            block.u16_at(FREE_SLOTS_AT)
        ));
    }
    if spans
        .first()
        .is_some_and(|s| s.0 < block.u16_at(LOW_AT) as usize)
    {
        problems.push("a row lies below the lowest row byte".to_string());
    }
    problems
}

#[cfg(test)]
mod tests;
