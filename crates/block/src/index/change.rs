//! The changes of index blocks, as `apply` makes them at run time and in recovery, and their
//! payloads.
//!
//! Payloads name entries by position: recovery applies a vector to the very version of the block
//! that it was made for.

use super::content::{Content, Cursor, Frame, common, prefix_of, start};
use super::fill::Filler;
use super::*;

/// Inserts one entry, after compaction if need be. `suffix` is the key after the block's prefix.
pub(super) fn put_entry(
    b: &mut BlockBuf,
    at: usize,
    suffix: &[u8],
    payload: Option<u64>,
) -> Result<()> {
    let block = view(b)?;
    let (count, inner) = (block.count(), !block.is_leaf());
    if at > count || suffix.len() > MAX_KEY {
        return Err(BlockError::corrupt(format!(
            "index entry {at} of {} bytes into {count} entries",
            suffix.len()
        )));
    }
    let rest = suffix.get(HEAD..).unwrap_or(&[]);
    let stamped = !inner && payload.is_some();
    let size = 2 + rest.len() + if payload.is_some() { PAYLOAD } else { 0 };
    if block.free() < size + SLOT {
        return Err(BlockError::corrupt(format!(
            "index block {} has no room for {size} bytes",
            b.dba()
        )));
    }
    if block.contiguous() < size + SLOT {
        compact(b)?;
        if view(b)?.contiguous() < size + SLOT {
            return Err(BlockError::corrupt(format!(
                "index block {} counts free bytes that it does not have",
                b.dba()
            )));
        }
    }
    let off = b.u16_at(DATA_LOW_AT) as usize - size;
    b.put_u16(off, suffix.len() as u16 | if stamped { STAMPED } else { 0 });
    b.0[off + 2..off + 2 + rest.len()].copy_from_slice(rest);
    if let Some(p) = payload {
        b.put_u64(off + 2 + rest.len(), p);
    }
    let slots = slots_at(b);
    let slot = slots + SLOT * at;
    b.0.copy_within(slot..slots + SLOT * count, slot + SLOT);
    b.0[slot..slot + HEAD].copy_from_slice(&head_of(suffix).to_be_bytes());
    b.put_u16(slot + HEAD, off as u16);
    b.put_u16(COUNT_AT, count as u16 + 1);
    b.put_u16(DATA_LOW_AT, off as u16);
    Ok(())
}

pub(super) fn view(b: &BlockBuf) -> Result<IndexBlock<'_>> {
    let block = IndexBlock::new(b)
        .ok_or_else(|| BlockError::corrupt(format!("block {} is no index block", b.dba())))?;
    let (data_low, garbage) = (
        b.u16_at(DATA_LOW_AT) as usize,
        b.u16_at(GARBAGE_AT) as usize,
    );
    if data_low > BLOCK_SIZE
        || slots_at(b) < FENCES_AT
        || data_low < slots_at(b) + SLOT * block.count()
        || garbage > BLOCK_SIZE - data_low
    {
        return Err(BlockError::corrupt(format!(
            "index block {}: data begins at {data_low}",
            b.dba()
        )));
    }
    Ok(block)
}

/// Frees the data of entry `at` and closes its slot.
fn take_entry(b: &mut BlockBuf, at: usize) -> Result<()> {
    let block = view(b)?;
    let count = block.count();
    if at >= count {
        return Err(BlockError::corrupt(format!(
            "index entry {at} of {count} is to be removed"
        )));
    }
    let size = block.entry(at).size(!block.is_leaf()) - SLOT;
    let off = block.data_off(at);
    let garbage = b.u16_at(GARBAGE_AT) as usize + size;
    if off + size > BLOCK_SIZE || garbage > BLOCK_SIZE {
        return Err(BlockError::corrupt(format!(
            "index entry {at} lies outside the data area"
        )));
    }
    if off == b.u16_at(DATA_LOW_AT) as usize {
        b.put_u16(DATA_LOW_AT, (off + size) as u16);
    } else {
        b.put_u16(GARBAGE_AT, garbage as u16);
    }
    let slots = slots_at(b);
    let slot = slots + SLOT * at;
    b.0.copy_within(slot + SLOT..slots + SLOT * count, slot);
    b.put_u16(COUNT_AT, count as u16 - 1);
    Ok(())
}

/// The parts of a block's new layout.
struct Layout<'a> {
    low: &'a [u8],
    high: Option<&'a [u8]>,
    right: Dba,
    prefix_len: usize,
    /// The number of entries that stay: `0..keep`.
    keep: usize,
}

fn rebuild(b: &mut BlockBuf, new: Layout<'_>) -> Result<()> {
    let old = b.clone();
    let old = view(&old)?;
    b.body_mut().fill(0);
    let frame = Frame {
        level: old.level(),
        flags: old.block().u16_at(FLAGS_AT),
        right: new.right,
    };
    start(b, frame, new.low, new.high, new.prefix_len)?;
    let mut key = Vec::with_capacity(64);
    let keep = new.keep.min(old.count());
    let mut filler = Filler::new(b, 0, keep)?;
    for i in 0..keep {
        let e = old.entry(i);
        key.clear();
        old.copy_key(i, &mut key);
        // The first separator follows the low fence down.
        let whole = if i == 0 && !old.is_leaf() {
            new.low
        } else {
            &key[..]
        };
        let suffix = whole.get(new.prefix_len..).unwrap_or(&[]);
        filler.put(suffix, (!old.is_leaf() || e.has_stamp).then_some(e.payload))?;
    }
    filler.finish();
    Ok(())
}

pub(super) fn compact(b: &mut BlockBuf) -> Result<()> {
    let prefix_len = view(b)?.prefix_len();
    with_prefix(b, prefix_len)
}

fn with_prefix(b: &mut BlockBuf, prefix_len: usize) -> Result<()> {
    let old = view(b)?;
    let (low, high) = (old.low().to_vec(), old.high().map(<[u8]>::to_vec));
    let (right, keep) = (old.right(), old.count());
    rebuild(
        b,
        Layout {
            low: &low,
            high: high.as_deref(),
            right,
            prefix_len,
            keep,
        },
    )
}

pub fn set_prefix_payload(prefix_len: usize) -> [u8; 2] {
    (prefix_len as u16).to_le_bytes()
}

/// Shortens the prefix of the last block of a level, which gets a key without it.
pub fn apply_set_prefix(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let prefix_len = Cursor(payload).u16()? as usize;
    let old = view(b)?;
    if prefix_len > old.prefix_len() || old.high().is_some() {
        return Err(BlockError::corrupt(format!(
            "the prefix of index block {} cannot be {prefix_len} bytes",
            b.dba()
        )));
    }
    with_prefix(b, prefix_len)
}

/// The payload `position u16 | key after the prefix`, for an inner block followed by `child (8)`.
/// `key` is whole.
pub fn insert_payload(
    out: &mut Vec<u8>,
    block: &IndexBlock<'_>,
    at: usize,
    key: &[u8],
    child: Option<Dba>,
) {
    out.extend_from_slice(&(at as u16).to_le_bytes());
    out.extend_from_slice(key.get(block.prefix_len()..).unwrap_or(&[]));
    if let Some(child) = child {
        out.extend_from_slice(&child.0.to_le_bytes());
    }
}

pub fn apply_insert(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = Cursor(payload);
    let at = r.u16()? as usize;
    if view(b)?.is_leaf() {
        return put_entry(b, at, r.0, None);
    }
    let suffix_len =
        r.0.len()
            .checked_sub(PAYLOAD)
            .ok_or_else(|| BlockError::corrupt("separator without child"))?;
    let suffix = r.bytes(suffix_len)?;
    put_entry(b, at, suffix, Some(r.u64()?))
}

/// The payload `position u16 | stamp (8)` that marks an entry.
pub fn mark_payload(at: usize, stamp: Stamp) -> [u8; 10] {
    let mut out = [0; 10];
    out[..2].copy_from_slice(&(at as u16).to_le_bytes());
    out[2..].copy_from_slice(&stamp.0.to_le_bytes());
    out
}
/// The payload that takes the mark away. The entry keeps the room for a stamp.
pub fn unmark_payload(at: usize) -> [u8; 10] {
    mark_payload(at, Stamp(0))
}

pub fn apply_mark(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = Cursor(payload);
    let (at, stamp) = (r.u16()? as usize, r.u64()?);
    let block = view(b)?;
    if at >= block.count() || !block.is_leaf() {
        return Err(BlockError::corrupt(format!(
            "index entry {at} of {} is to be marked",
            block.count()
        )));
    }
    let e = block.entry(at);
    if e.has_stamp {
        let stamp_at = block.data_off(at) + 2 + e.rest.len();
        return overwrite(b, stamp_at, stamp);
    }
    let mut suffix = Vec::with_capacity(64);
    e.copy_suffix(&mut suffix);
    take_entry(b, at)?;
    put_entry(b, at, &suffix, Some(stamp))
}

/// The payload of positions, u16 each, falling.
pub fn remove_payload(positions: impl IntoIterator<Item = usize>) -> Vec<u8> {
    positions
        .into_iter()
        .flat_map(|at| (at as u16).to_le_bytes())
        .collect()
}

pub fn apply_remove(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = Cursor(payload);
    while !r.0.is_empty() {
        take_entry(b, r.u16()? as usize)?;
    }
    Ok(())
}

/// The payload for the shared half of a split: `entries that stay u16 | right sibling (8) | new
/// high fence`.
pub fn truncate_payload(split: Split, right: Dba, separator: &[u8]) -> Vec<u8> {
    let mut out = (split.at as u16).to_le_bytes().to_vec();
    out.extend_from_slice(&right.0.to_le_bytes());
    out.extend_from_slice(separator);
    out
}

pub fn apply_truncate(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = Cursor(payload);
    let (keep, right) = (r.u16()? as usize, Dba(r.u64()?));
    let low = view(b)?.low().to_vec();
    rebuild(
        b,
        Layout {
            low: &low,
            high: Some(r.0),
            right,
            prefix_len: prefix_of(&low, Some(r.0)),
            keep,
        },
    )
}

/// Lays contents that `Builder` made over a formatted block (`IndexFormat`) or over the root
/// (`IndexReplace`).
pub fn apply_replace(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    Content::parse(payload)?.lay_out(b)
}

pub fn set_right_payload(right: Dba) -> [u8; 8] {
    right.0.to_le_bytes()
}

/// Links a block to the right sibling of its right sibling, which was dead.
pub fn apply_set_right(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    view(b)?;
    let right = Cursor(payload).u64()?;
    b.put_u64(RIGHT_AT, right);
    Ok(())
}

/// The payload `child (8) | new low fence`.
pub fn set_low_payload(low: &[u8], child: Dba) -> Vec<u8> {
    let mut out = child.0.to_le_bytes().to_vec();
    out.extend_from_slice(low);
    out
}

/// Takes over the range of a dead left sibling, and for an inner block the sibling's only child.
pub fn apply_set_low(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = Cursor(payload);
    let child = r.u64()?;
    let low = r.0;
    let old = view(b)?;
    let (inner, old_low) = (!old.is_leaf(), old.low().to_vec());
    let (high, right, keep) = (old.high().map(<[u8]>::to_vec), old.right(), old.count());
    // Without a high fence the entries share at least what their present prefix shares with the new
    // fence.
    let prefix_len = match &high {
        Some(high) => common(low, high),
        None => common(low, old.prefix()),
    };
    rebuild(
        b,
        Layout {
            low,
            high: high.as_deref(),
            right,
            prefix_len,
            keep,
        },
    )?;
    if !inner {
        return Ok(());
    }
    // The old first separator was laid out as the new low fence. It gets the new child, and the old
    // child gets its own separator again.
    let first = view(b)?.entry(0).child();
    take_entry(b, 0)?;
    put_entry(
        b,
        0,
        old_low.get(prefix_len..).unwrap_or(&[]),
        Some(first.0),
    )?;
    put_entry(b, 0, low.get(prefix_len..).unwrap_or(&[]), Some(child))
}

/// Ends a leaf without entries, or an inner block with one (which it keeps for the session that
/// completes this).
pub fn apply_dead(b: &mut BlockBuf, _payload: &[u8]) -> Result<()> {
    let block = view(b)?;
    if block.count() != usize::from(!block.is_leaf()) {
        return Err(BlockError::corrupt(format!(
            "index block {} has {} entries and cannot end",
            b.dba(),
            block.count()
        )));
    }
    b.put_u16(FLAGS_AT, b.u16_at(FLAGS_AT) | FLAG_DEAD);
    Ok(())
}

/// The payload `position u16 | child (8)`.
pub fn set_child_payload(at: usize, child: Dba) -> [u8; 10] {
    mark_payload(at, Stamp(child.0))
}

/// Gives inner entry `at` the child `child`: the old child is dead, and `child` has its range. If
/// `child` has an entry of its own right after, that entry goes.
pub fn apply_set_child(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = Cursor(payload);
    let (at, child) = (r.u16()? as usize, Dba(r.u64()?));
    let block = view(b)?;
    if block.is_leaf() || at >= block.count() {
        return Err(BlockError::corrupt(format!(
            "child {at} of {} cannot be replaced",
            block.count()
        )));
    }
    let has_own = at + 1 < block.count() && block.entry(at + 1).child() == child;
    let child_at = block.data_off(at) + 2 + block.entry(at).rest.len();
    overwrite(b, child_at, child.0)?;
    if has_own {
        take_entry(b, at + 1)
    } else {
        Ok(())
    }
}

/// Replaces the stamp or child of an entry in place.
fn overwrite(b: &mut BlockBuf, at: usize, value: u64) -> Result<()> {
    if at < FENCES_AT || at + PAYLOAD > BLOCK_SIZE {
        return Err(BlockError::corrupt(format!(
            "an entry of index block {} lies outside the data area",
            b.dba()
        )));
    }
    b.put_u64(at, value);
    Ok(())
}
