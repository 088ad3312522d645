//! Reads entries: exact lookups, and cursors over ranges in both directions.
//!
//! A cursor copies a batch of entries from one leaf at a time. So no latch is held between calls,
//! and a slow client delays nobody. The cursor remembers its place by key; the address of the next
//! leaf is a hint that the fences confirm. Batches begin small, for `LIMIT 1`, and grow.
//!
//! Whether an entry's row is visible, and has the entry's key, is decided at the row. So
//! delete-marked entries are returned, too.

use block::index::Side;
use block::{Dba, RowId, Stamp};

use super::descend::Target;
use super::{Store, Tree};
use crate::Result;

const FIRST_BATCH: usize = 16;
const MAX_BATCH: usize = 1024;

/// An entry found by a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found<'c> {
    /// The memcomparable column values.
    pub key: &'c [u8],
    pub rid: RowId,
    /// The stamp of the transaction that delete-marked the entry, if one did.
    pub marked: Option<Stamp>,
    keys: &'c [u8],
    /// The entries that the cursor has copied and comes to next.
    following: &'c [(u32, u32, Option<Stamp>)],
}

impl Found<'_> {
    /// The rows of this entry and of those after it that the cursor has copied already.
    pub fn and_next(&self) -> impl Iterator<Item = RowId> + '_ {
        let row = |&(start, end, _): &(u32, u32, Option<Stamp>)| {
            let full = self.keys.get(start as usize..end as usize)?;
            block::index::split_key(full).map(|(_, rid)| rid)
        };
        std::iter::once(self.rid).chain(self.following.iter().filter_map(row))
    }
}

/// The place where a cursor goes on.
#[derive(Clone, Debug)]
enum Next {
    /// Forward: at this key or above. Backward: below this key. None stands for above all keys.
    At(Option<Vec<u8>>),
    Done,
}

/// A scan of the entries with `low <= key < high`, as plain bytes.
#[derive(Clone, Debug)]
pub struct Cursor {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    backward: bool,
    next: Next,
    hint: Option<Dba>,
    batch_size: usize,
    /// The whole keys of the batch, one after the other.
    keys: Vec<u8>,
    entries: Vec<(u32, u32, Option<Stamp>)>,
    pos: usize,
}

impl Cursor {
    /// A cursor over a range. `low` is inclusive, `high` exclusive; None is no bound. Keys of a
    /// prefix of the columns are fine as bounds. For an inclusive upper bound see
    /// [`block::key::after_prefix`].
    pub fn new(low: Vec<u8>, high: Option<Vec<u8>>, backward: bool) -> Cursor {
        let next = Next::At(if backward {
            high.clone()
        } else {
            Some(low.clone())
        });
        let (keys, entries) = (Vec::new(), Vec::new());
        Cursor {
            low,
            high,
            backward,
            next,
            hint: None,
            batch_size: FIRST_BATCH,
            keys,
            entries,
            pos: 0,
        }
    }
}

impl<S: Store> Tree<S> {
    /// The next entry of the scan. None at its end. It is called with no latch held, and none is
    /// held after.
    pub fn next<'c>(&self, cursor: &'c mut Cursor) -> Result<Option<Found<'c>>> {
        while cursor.pos == cursor.entries.len() {
            let Next::At(from) = std::mem::replace(&mut cursor.next, Next::Done) else {
                return Ok(None);
            };
            cursor.keys.clear();
            cursor.entries.clear();
            cursor.pos = 0;
            match cursor.backward {
                false => self.fill_forward(cursor, from.unwrap_or_default())?,
                true => self.fill_backward(cursor, from)?,
            }
            cursor.batch_size = (cursor.batch_size * 4).min(MAX_BATCH);
        }
        let (start, end, marked) = cursor.entries[cursor.pos];
        cursor.pos += 1;
        let full = &cursor.keys[start as usize..end as usize];
        let (key, rid) =
            block::index::split_key(full).ok_or_else(|| self.corrupt("a key has no row id"))?;
        Ok(Some(Found {
            key,
            rid,
            marked,
            keys: &cursor.keys,
            following: &cursor.entries[cursor.pos..],
        }))
    }

    fn fill_forward(&self, c: &mut Cursor, from: Vec<u8>) -> Result<()> {
        if c.high.as_ref().is_some_and(|high| &from >= high) {
            return Ok(());
        }
        let leaf = self.read_leaf(Target::Key(&from), c.hint.take())?;
        let Some(v) = self.view(&leaf, 0) else {
            return Err(self.corrupt("a latched leaf is none"));
        };
        let start = v.search(&from).0;
        let end = match &c.high {
            Some(high) if v.side(high) == Side::Here => v.search(high).0,
            _ => v.count(),
        };
        let stop = end.min(start + c.batch_size);
        for i in start..stop {
            let at = c.keys.len() as u32;
            v.copy_key(i, &mut c.keys);
            c.entries
                .push((at, c.keys.len() as u32, v.entry(i).marked()));
        }
        if stop < end {
            // The least key above the last one.
            let mut key = c.keys[c.entries.last().map_or(0, |e| e.0 as usize)..].to_vec();
            key.push(0);
            (c.next, c.hint) = (Next::At(Some(key)), Some(leaf.dba()));
        } else if end == v.count()
            && let Some(fence) = v.high()
        {
            (c.next, c.hint) = (Next::At(Some(fence.to_vec())), Some(v.right()));
        }
        Ok(())
    }

    fn fill_backward(&self, c: &mut Cursor, below: Option<Vec<u8>>) -> Result<()> {
        if below.as_ref().is_some_and(|key| key <= &c.low) {
            return Ok(());
        }
        let leaf = self.read_leaf(Target::Before(below.as_deref()), c.hint.take())?;
        let Some(v) = self.view(&leaf, 0) else {
            return Err(self.corrupt("a latched leaf is none"));
        };
        let end = below.as_ref().map_or(v.count(), |key| {
            if v.high() == Some(key) {
                v.count()
            } else {
                v.search(key).0
            }
        });
        let start = if v.side(&c.low) == Side::Below {
            0
        } else {
            v.search(&c.low).0
        };
        let stop = start.max(end.saturating_sub(c.batch_size));
        for i in (stop..end).rev() {
            let at = c.keys.len() as u32;
            v.copy_key(i, &mut c.keys);
            c.entries
                .push((at, c.keys.len() as u32, v.entry(i).marked()));
        }
        if stop > start {
            let last = c.keys[c.entries.last().map_or(0, |e| e.0 as usize)..].to_vec();
            (c.next, c.hint) = (Next::At(Some(last)), Some(leaf.dba()));
        } else if start == 0 && v.low() > &c.low[..] {
            c.next = Next::At(Some(v.low().to_vec()));
        }
        Ok(())
    }

    /// Appends the row ids of all entries of exactly `key`, with their marks, to `out`. It is the
    /// fast path of a select by key.
    pub fn lookup(&self, key: &[u8], out: &mut Vec<(RowId, Option<Stamp>)>) -> Result<()> {
        let mut leaf = self.read_leaf(Target::Key(key), None)?;
        let mut from = std::borrow::Cow::Borrowed(key);
        loop {
            let Some(v) = self.view(&leaf, 0) else {
                return Err(self.corrupt("a latched leaf is none"));
            };
            for i in v.search(&from).0..v.count() {
                if !v.key_starts_with(i, key) {
                    return Ok(());
                }
                out.push((v.row_id(i), v.entry(i).marked()));
            }
            // The fence begins with the key only if the key's entries span leaves.
            let Some(fence) = v.high().filter(|high| high.starts_with(key)) else {
                return Ok(());
            };
            from = fence.to_vec().into();
            let hint = v.right();
            drop(leaf);
            leaf = self.read_leaf(Target::Key(&from), Some(hint))?;
        }
    }
}
