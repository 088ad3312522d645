//! Index blocks: the leaves and inner blocks of a B-link tree.
//!
//! ```text
//!  32 level u16 | 34 count u16 | 36 data low u16 | 38 garbage u16
//!  40 right link (8)
//!  48 prefix length u16 | 50 low length u16 | 52 high length u16 (ffff: none) | 54 flags u16
//!  56 offset of the slots u16 | 58 reserved (6), zero
//!  64 low fence | high fence
//!  .. slots, 6 bytes each, growing up: head (4 bytes of the key after the prefix) | offset u16
//!  .. free ..
//!  data low: entries, growing down from the end of the block
//! ```
//!
//! An entry's key stands in three places. The *prefix* is common to all entries and is taken from
//! the low fence. The *head* is in the slot, padded with zeros. The rest is in the data area:
//!
//! ```text
//!  length u16 (of prefix-less key; top bit: a stamp follows) | rest of key
//!  | stamp (8) or child address (8)
//! ```
//!
//! A leaf's key is the memcomparable column values followed by the row id, big-endian. So keys are
//! unique and compare as plain bytes. An inner entry's key is a separator: a lower bound of all
//! keys of its child.
//!
//! **Invariants.**
//! - Keys rise strictly. Every key `k` of the block has `low <= k`, and `k < high` if there is a
//!   high fence.
//! - With a high fence the prefix is what both fences share, and every key that may ever come has
//!   it. The last block of a level guesses a prefix from its entries; a key without that prefix
//!   shortens it first (`Op::IndexSetPrefix`).
//! - An inner block's first separator equals the block's low fence. A search treats it as a bound
//!   that nothing is below.
//! - `data low >= end of slots`; `garbage` counts the bytes of the data area that no slot uses.
//! - Room for a stamp, once given to an entry, stays with the entry until it is removed. So the
//!   undo of a revival needs no space that somebody else could have taken. A stamp of zero is no
//!   stamp: the entry is not marked.
//! - A dead block takes no entries. Its range, and if it is an inner block its only child, belong
//!   to the block its right link leads to. Its fences and links never change again.

mod change;
mod content;
mod fill;
mod meta;
#[cfg(test)]
mod tests;

pub use change::{
    apply_dead, apply_insert, apply_mark, apply_remove, apply_replace, apply_set_child,
    apply_set_low, apply_set_prefix, apply_set_right, apply_truncate, insert_payload, mark_payload,
    remove_payload, set_child_payload, set_low_payload, set_prefix_payload, set_right_payload,
    truncate_payload, unmark_payload,
};
pub use content::{Builder, Content, Split, separator};
pub use fill::{InsertRuns, apply_insert_runs};
pub use meta::{
    FreeBlock, MAX_FREE_BLOCKS, MetaBlock, apply_meta_pop, apply_meta_push, meta_pop_payload,
    meta_push_payload,
};

use crate::{BLOCK_SIZE, BlockBuf, BlockError, BlockType, Dba, Result, RowId, Stamp};

/// The most bytes of a key with its row id. Three entries of this size and two such fences fit a
/// block, so one split always makes room for one more entry (see `content::split_point`).
pub const MAX_KEY: usize = 1536;
/// The bytes of a row id at the end of a leaf's key.
pub const ROW_ID_LEN: usize = 8;
/// The bytes of entries and slots that a leaf without fences can hold.
pub const CAPACITY: usize = BLOCK_SIZE - FENCES_AT;

pub(crate) const LEVEL_AT: usize = 32;
pub(crate) const COUNT_AT: usize = 34;
pub(crate) const DATA_LOW_AT: usize = 36;
pub(crate) const GARBAGE_AT: usize = 38;
pub(crate) const RIGHT_AT: usize = 40;
pub(crate) const PREFIX_LEN_AT: usize = 48;
pub(crate) const LOW_LEN_AT: usize = 50;
pub(crate) const HIGH_LEN_AT: usize = 52;
pub(crate) const FLAGS_AT: usize = 54;
pub(crate) const SLOTS_OFF_AT: usize = 56;
/// The byte where the fences begin: right behind the header, which a search has read already.
pub(crate) const FENCES_AT: usize = 64;
pub(crate) const SLOT: usize = 6;
pub(crate) const HEAD: usize = 4;
pub(crate) const NO_HIGH: u16 = u16::MAX;
pub(crate) const FLAG_DEAD: u16 = 1;
pub(crate) const STAMPED: u16 = 1 << 15;
pub(crate) const PAYLOAD: usize = 8;

#[inline]
pub(crate) fn slots_at(b: &BlockBuf) -> usize {
    b.u16_at(SLOTS_OFF_AT) as usize
}

/// Where a key lies relative to a block's fences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Below the low fence: the way here was stale. Start over at the root.
    Below,
    Here,
    /// At or above the high fence: follow the right link.
    Right,
}

/// Whether an entry can be inserted into a block as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Fits,
    /// The entry fits once the block's prefix has been shortened to this length.
    AfterPrefix(usize),
    /// The block has to be split (or purged) first.
    Full,
}

/// An entry, taken apart.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    head: [u8; HEAD],
    rest: &'a [u8],
    len: usize,
    has_stamp: bool,
    payload: u64,
}

impl Entry<'_> {
    /// The marker's stamp. None if the entry is not delete-marked.
    #[inline]
    pub fn marked(&self) -> Option<Stamp> {
        (self.has_stamp && self.payload != 0).then_some(Stamp(self.payload))
    }
    pub fn has_stamp_room(&self) -> bool {
        self.has_stamp
    }
    /// The child of an inner entry.
    pub fn child(&self) -> Dba {
        Dba(self.payload)
    }
    /// Whether the key begins with `prefix`. Both are without the block's prefix.
    #[inline]
    pub fn starts_with(&self, prefix: &[u8]) -> bool {
        if prefix.len() > self.len {
            return false;
        }
        let (head, rest) = prefix.split_at(prefix.len().min(HEAD));
        self.head.starts_with(head) && self.rest.starts_with(rest)
    }
    fn copy_suffix(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head[..self.len.min(HEAD)]);
        out.extend_from_slice(self.rest);
    }
    /// The bytes that the entry takes, slot included.
    pub fn size(&self, inner: bool) -> usize {
        SLOT + 2 + self.rest.len() + if inner || self.has_stamp { PAYLOAD } else { 0 }
    }
}

/// A reader of an index block. Offsets found in the block are checked where they are used: damage
/// shows as an empty key, never as a panic, and [`IndexBlock::check`] tells about it.
#[derive(Clone, Copy)]
pub struct IndexBlock<'a> {
    b: &'a BlockBuf,
}

impl<'a> IndexBlock<'a> {
    /// A reader of the block. None if it is no index block.
    #[inline]
    pub fn new(b: &'a BlockBuf) -> Option<IndexBlock<'a>> {
        let usable = b.block_type() == Ok(BlockType::Index)
            && slots_at(b) + SLOT * b.u16_at(COUNT_AT) as usize <= BLOCK_SIZE
            && b.u16_at(PREFIX_LEN_AT) <= b.u16_at(LOW_LEN_AT);
        usable.then_some(IndexBlock { b })
    }

    pub fn block(&self) -> &'a BlockBuf {
        self.b
    }
    /// The level of the block: 0 for a leaf.
    #[inline]
    pub fn level(&self) -> u16 {
        self.b.u16_at(LEVEL_AT)
    }
    pub fn is_leaf(&self) -> bool {
        self.level() == 0
    }
    #[inline]
    pub fn count(&self) -> usize {
        self.b.u16_at(COUNT_AT) as usize
    }
    /// The right sibling, or none.
    #[inline]
    pub fn right(&self) -> Dba {
        Dba(self.b.u64_at(RIGHT_AT))
    }
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.b.u16_at(FLAGS_AT) & FLAG_DEAD != 0
    }
    #[inline]
    pub fn low(&self) -> &'a [u8] {
        self.bytes(FENCES_AT, self.b.u16_at(LOW_LEN_AT) as usize)
    }
    /// The high fence. None if the range has no upper bound.
    #[inline]
    pub fn high(&self) -> Option<&'a [u8]> {
        let len = self.b.u16_at(HIGH_LEN_AT);
        (len != NO_HIGH)
            .then(|| self.bytes(FENCES_AT + self.b.u16_at(LOW_LEN_AT) as usize, len as usize))
    }
    #[inline]
    pub fn prefix(&self) -> &'a [u8] {
        self.bytes(FENCES_AT, self.prefix_len())
    }
    pub(crate) fn prefix_len(&self) -> usize {
        self.b.u16_at(PREFIX_LEN_AT) as usize
    }
    #[inline]
    fn bytes(&self, at: usize, len: usize) -> &'a [u8] {
        self.b.0.get(at..at + len).unwrap_or(&[])
    }

    #[inline]
    pub fn side(&self, key: &[u8]) -> Side {
        if key < self.low() {
            return Side::Below;
        }
        match self.high() {
            Some(high) if key >= high => Side::Right,
            _ => Side::Here,
        }
    }

    #[inline]
    fn slot_head(&self, i: usize) -> u32 {
        let at = slots_at(self.b) + SLOT * i;
        u32::from_be_bytes([
            self.b.0[at],
            self.b.0[at + 1],
            self.b.0[at + 2],
            self.b.0[at + 3],
        ])
    }

    /// The entry at position `i`, which is less than `count`.
    #[inline]
    pub fn entry(&self, i: usize) -> Entry<'a> {
        let at = slots_at(self.b) + SLOT * i;
        let head = self.slot_head(i).to_be_bytes();
        let off = self.b.u16_at(at + HEAD) as usize;
        let word = self.bytes(off, 2).try_into().map_or(0, u16::from_le_bytes);
        let len = (word & !STAMPED) as usize;
        let rest = self.bytes(off + 2, len.saturating_sub(HEAD));
        let payload_at = off + 2 + rest.len();
        let has_stamp = word & STAMPED != 0;
        let payload = match has_stamp || !self.is_leaf() {
            true => self
                .bytes(payload_at, PAYLOAD)
                .try_into()
                .map_or(0, u64::from_le_bytes),
            false => 0,
        };
        Entry {
            head,
            rest,
            len,
            has_stamp,
            payload,
        }
    }

    #[inline]
    pub(crate) fn data_off(&self, i: usize) -> usize {
        self.b.u16_at(slots_at(self.b) + SLOT * i + HEAD) as usize
    }

    /// Appends the whole key of entry `i` to `out`.
    pub fn copy_key(&self, i: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix());
        self.entry(i).copy_suffix(out);
    }
    /// The row id at the end of a leaf's key.
    #[inline]
    pub fn row_id(&self, i: usize) -> RowId {
        let e = self.entry(i);
        if let Some(tail) = e.rest.last_chunk::<ROW_ID_LEN>() {
            return RowId(u64::from_be_bytes(*tail));
        }
        // Part of the row id stands in the head, or even in the block's prefix.
        split_key(&self.key(i)).map_or(RowId(0), |(_, rid)| rid)
    }
    /// Whether the key of entry `i` begins with `columns`.
    #[inline]
    pub fn key_starts_with(&self, i: usize, columns: &[u8]) -> bool {
        match columns.strip_prefix(self.prefix()) {
            Some(suffix) => self.entry(i).starts_with(suffix),
            None => self.prefix().starts_with(columns),
        }
    }
    pub fn key(&self, i: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.copy_key(i, &mut out);
        out
    }

    /// The position of the first entry at or above `key`, and whether that entry equals `key`. The
    /// key lies within the fences (or is the high fence).
    #[inline]
    pub fn search(&self, key: &[u8]) -> (usize, bool) {
        // Between two fences every key has the prefix that they share. In the last block of a level
        // a key without the guessed prefix is above every entry.
        let suffix = match self.b.u16_at(HIGH_LEN_AT) {
            NO_HIGH => match key.strip_prefix(self.prefix()) {
                Some(suffix) => suffix,
                None => return (self.count(), false),
            },
            _ => key.get(self.prefix_len()..).unwrap_or(&[]),
        };
        let head = head_of(suffix);
        let below = |i: usize| match self.slot_head(i).cmp(&head) {
            std::cmp::Ordering::Equal => self.compare_rest(i, suffix).is_lt(),
            other => other.is_lt(),
        };
        let (mut lo, mut hi) = self.guess(head, below);
        while lo < hi {
            let mid = (lo + hi) / 2;
            if below(mid) { lo = mid + 1 } else { hi = mid }
        }
        let equal = lo < self.count()
            && self.slot_head(lo) == head
            && self.compare_rest(lo, suffix).is_eq();
        (lo, equal)
    }

    /// Narrows a search by where `head` lies between the first and the last head. Keys are mostly
    /// spread evenly, and each probe of a binary search costs a memory access of its own. If they
    /// are not spread evenly, the range doubles from the guess.
    #[inline]
    fn guess(&self, head: u32, below: impl Fn(usize) -> bool) -> (usize, usize) {
        let n = self.count();
        if n < 32 {
            return (0, n);
        }
        let (first, last) = (self.slot_head(0), self.slot_head(n - 1));
        if head <= first || head >= last {
            return (0, n);
        }
        let at = ((head - first) as u64 * (n - 1) as u64 / (last - first) as u64) as usize;
        let mut step = 4;
        if below(at) {
            let mut lo = at + 1;
            while lo + step < n && below(lo + step) {
                (lo, step) = (lo + step + 1, step * 4);
            }
            (lo, (lo + step).min(n))
        } else {
            let mut hi = at;
            while hi > step && !below(hi - step) {
                (hi, step) = (hi - step, step * 4);
            }
            (hi.saturating_sub(step), hi)
        }
    }

    /// Compares entry `i`, whose head equals that of `suffix`, with `suffix`.
    #[inline]
    fn compare_rest(&self, i: usize, suffix: &[u8]) -> std::cmp::Ordering {
        let off = self.data_off(i);
        let word = self.bytes(off, 2).try_into().map_or(0, u16::from_le_bytes);
        let len = (word & !STAMPED) as usize;
        let rest = self.bytes(off + 2, len.saturating_sub(HEAD));
        rest.cmp(suffix.get(HEAD..).unwrap_or(&[]))
            .then(len.cmp(&suffix.len()))
    }

    /// The entry of an inner block under which `key` is to be found, and its child. None in a block
    /// without entries.
    #[inline]
    pub fn child_for(&self, key: &[u8]) -> Option<(usize, Dba)> {
        if self.count() == 0 {
            return None;
        }
        let (at, equal) = self.search(key);
        let i = if equal { at } else { at.saturating_sub(1) };
        Some((i, self.entry(i).child()))
    }

    /// The child under which the greatest key *below* `key` is to be found. Without a key: the
    /// child of the greatest key of all.
    pub fn child_before(&self, key: Option<&[u8]>) -> Option<(usize, Dba)> {
        if self.count() == 0 {
            return None;
        }
        let i = key
            .map_or(self.count(), |k| self.search(k).0)
            .saturating_sub(1);
        Some((i, self.entry(i).child()))
    }

    /// The bytes between the slots and the data.
    pub(crate) fn contiguous(&self) -> usize {
        (self.b.u16_at(DATA_LOW_AT) as usize).saturating_sub(slots_at(self.b) + SLOT * self.count())
    }
    /// The bytes that entries can still take, after compaction.
    pub fn free(&self) -> usize {
        self.contiguous() + self.b.u16_at(GARBAGE_AT) as usize
    }
    /// The bytes that an entry of `key` (whole, within the fences) would take, slot included.
    pub fn insert_size(&self, key: &[u8]) -> usize {
        let suffix = key.len().saturating_sub(self.prefix_len());
        SLOT + 2 + suffix.saturating_sub(HEAD) + if self.is_leaf() { 0 } else { PAYLOAD }
    }

    /// Whether an entry of `key` (whole, within the fences) can be inserted.
    pub fn room_for(&self, key: &[u8]) -> Room {
        let shared = content::common(self.prefix(), key);
        let growth = self.count() * (self.prefix_len() - shared);
        let suffix = key.len() - shared;
        let size =
            SLOT + 2 + suffix.saturating_sub(HEAD) + if self.is_leaf() { 0 } else { PAYLOAD };
        match growth {
            _ if growth + size > self.free() => Room::Full,
            0 if shared == self.prefix_len() => Room::Fits,
            _ => Room::AfterPrefix(shared),
        }
    }

    /// The bytes that the entries would take in a block with a prefix of that length, slots
    /// included.
    pub fn entries_size(&self, entries: std::ops::Range<usize>, prefix_len: usize) -> usize {
        let size = |i| {
            let e = self.entry(i);
            let suffix = (e.len + self.prefix_len()).saturating_sub(prefix_len);
            let payload = !self.is_leaf() || e.has_stamp;
            entry_size(suffix) + if payload { PAYLOAD } else { 0 }
        };
        entries.map(size).sum()
    }

    /// Whether the block could take over the range of a left sibling that begins at `low`.
    pub fn fits_with_low(&self, low: &[u8]) -> bool {
        let shared = self
            .high()
            .map_or(content::common(low, self.prefix()), |high| {
                content::common(low, high)
            });
        let growth = self.count() * self.prefix_len().saturating_sub(shared) + low.len();
        let entry = if self.is_leaf() {
            0
        } else {
            SLOT + 2 + PAYLOAD + low.len() + self.low().len()
        };
        growth + entry <= self.free() + self.low().len()
    }

    /// Checks everything that must hold within one block. The error says what does not hold.
    pub fn check(&self) -> Result<()> {
        let bad = |what: String| {
            Err(BlockError::corrupt(format!(
                "index block {}: {what}",
                self.b.dba()
            )))
        };
        let (low, high) = (self.low(), self.high());
        if low.len() != self.b.u16_at(LOW_LEN_AT) as usize {
            return bad("low fence lies outside the block".into());
        }
        if high.is_some_and(|h| h.len() != self.b.u16_at(HIGH_LEN_AT) as usize || h <= low) {
            return bad("high fence is not above the low one".into());
        }
        if high.is_some_and(|h| content::common(low, h) != self.prefix_len()) {
            return bad("the prefix is not what the fences share".into());
        }
        if high.is_none() != self.right().is_none() && !self.is_dead() {
            return bad("right link and high fence do not agree".into());
        }
        if slots_at(self.b) != FENCES_AT + low.len() + high.map_or(0, <[u8]>::len) {
            return bad("slots do not follow the fences".into());
        }
        let data_low = self.b.u16_at(DATA_LOW_AT) as usize;
        if data_low < slots_at(self.b) + SLOT * self.count() || data_low > BLOCK_SIZE {
            return bad(format!(
                "data begins at {data_low}, within the slots or past the end"
            ));
        }
        let mut used = 0;
        let (mut last, mut key) = (Vec::new(), Vec::new());
        for i in 0..self.count() {
            let e = self.entry(i);
            let off = self.data_off(i);
            if off < data_low
                || off + e.size(!self.is_leaf()) - SLOT > BLOCK_SIZE
                || e.rest.len() != e.len.saturating_sub(HEAD)
            {
                return bad(format!("entry {i} lies outside the data area"));
            }
            used += e.size(!self.is_leaf()) - SLOT;
            key.clear();
            self.copy_key(i, &mut key);
            if i > 0 && key <= last {
                return bad(format!("entry {i} is not above the one before"));
            }
            if self.side(&key) != Side::Here {
                return bad(format!("entry {i} lies outside the fences"));
            }
            if self.is_leaf() && key.len() < ROW_ID_LEN {
                return bad(format!("entry {i} has no row id"));
            }
            if !self.is_leaf() && (e.child().is_none() || e.has_stamp) {
                return bad(format!("inner entry {i} has no child"));
            }
            std::mem::swap(&mut last, &mut key);
        }
        if used + self.b.u16_at(GARBAGE_AT) as usize != BLOCK_SIZE - data_low {
            return bad(format!(
                "{used} bytes used and {} free do not fill the data area",
                self.b.u16_at(GARBAGE_AT)
            ));
        }
        if !self.is_leaf() && self.count() > 0 && self.key(0) != low {
            return bad("the first separator is not the low fence".into());
        }
        if self.is_dead() && self.count() != usize::from(!self.is_leaf()) {
            return bad(format!("a dead block has {} entries", self.count()));
        }
        Ok(())
    }
}

/// The first four bytes of a prefix-less key as a number that compares as the bytes do.
#[inline]
pub(crate) fn head_of(suffix: &[u8]) -> u32 {
    let mut head = [0; HEAD];
    let n = suffix.len().min(HEAD);
    head[..n].copy_from_slice(&suffix[..n]);
    u32::from_be_bytes(head)
}

/// The bytes that a leaf's entry takes without a stamp, slot included, if its key has `suffix`
/// bytes after the prefix.
#[inline]
pub fn entry_size(suffix: usize) -> usize {
    SLOT + 2 + suffix.saturating_sub(HEAD)
}

/// Splits a leaf's key into column values and row id.
pub fn split_key(full: &[u8]) -> Option<(&[u8], RowId)> {
    let at = full.len().checked_sub(ROW_ID_LEN)?;
    let rid = u64::from_be_bytes(full[at..].try_into().ok()?);
    Some((&full[..at], RowId(rid)))
}

/// Appends `rid` to a key's column values.
pub fn push_row_id(key: &mut Vec<u8>, rid: RowId) {
    key.extend_from_slice(&rid.0.to_be_bytes());
}
