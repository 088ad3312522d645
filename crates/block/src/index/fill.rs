//! Puts entries into consecutive positions of an index block in one pass, and makes the change that
//! inserts such runs.

use super::change::{compact, view};
use super::content::Cursor;
use super::*;

/// Fills positions whose slots have been moved aside. If it is dropped before
/// [`finish`](Filler::finish), after an error, it leaves a block that makes no sense.
pub(super) struct Filler<'b> {
    b: &'b mut BlockBuf,
    inner: bool,
    /// The place of the next slot, and the end of all slots.
    slot: usize,
    slots_end: usize,
    data_low: usize,
    count: usize,
}

impl<'b> Filler<'b> {
    /// Makes way for the slots of `n` entries at position `at`.
    pub(super) fn new(b: &'b mut BlockBuf, at: usize, n: usize) -> Result<Filler<'b>> {
        let block = view(b)?;
        let (count, inner) = (block.count(), !block.is_leaf());
        if at > count || block.contiguous() < n * SLOT {
            return Err(BlockError::corrupt(format!(
                "{n} entries at {at} into the {count} of index block {}",
                b.dba()
            )));
        }
        let (slot, end) = (slots_at(b) + SLOT * at, slots_at(b) + SLOT * count);
        b.0.copy_within(slot..end, slot + SLOT * n);
        let data_low = b.u16_at(DATA_LOW_AT) as usize;
        Ok(Filler {
            b,
            inner,
            slot,
            slots_end: end + SLOT * n,
            data_low,
            count: count + n,
        })
    }

    /// Puts the next entry in, by its key after the block's prefix.
    #[inline]
    pub(super) fn put(&mut self, suffix: &[u8], payload: Option<u64>) -> Result<()> {
        let rest = suffix.get(HEAD..).unwrap_or(&[]);
        let size = 2 + rest.len() + if payload.is_some() { PAYLOAD } else { 0 };
        let off = self.data_low.checked_sub(size);
        let Some(off) = off.filter(|o| *o >= self.slots_end && suffix.len() <= MAX_KEY) else {
            return Err(BlockError::corrupt(format!(
                "index block {} has no room for {size} bytes",
                self.b.dba()
            )));
        };
        let stamped = !self.inner && payload.is_some();
        self.b
            .put_u16(off, suffix.len() as u16 | if stamped { STAMPED } else { 0 });
        self.b.0[off + 2..off + 2 + rest.len()].copy_from_slice(rest);
        if let Some(p) = payload {
            self.b.put_u64(off + 2 + rest.len(), p);
        }
        self.b.0[self.slot..self.slot + HEAD].copy_from_slice(&head_of(suffix).to_be_bytes());
        self.b.put_u16(self.slot + HEAD, off as u16);
        self.slot += SLOT;
        self.data_low = off;
        Ok(())
    }

    /// Ends the filling: all positions are filled.
    pub(super) fn finish(self) {
        self.b.put_u16(COUNT_AT, self.count as u16);
        self.b.put_u16(DATA_LOW_AT, self.data_low as u16);
    }
}

/// The payload of `Op::IndexInsertRuns`: entries of one leaf, with those that follow each other
/// together. It is `(position u16 | entries u16 | (length u16 | key after the prefix) ...) ...`. A
/// position is that after the runs before are in.
#[derive(Default)]
pub struct InsertRuns {
    pub payload: Vec<u8>,
    pub count: usize,
    used: usize,
    /// The run under way: its position in the block as it is now. `entries_at`: where the run's
    /// number of entries stands.
    position: usize,
    entries_at: usize,
}

impl InsertRuns {
    pub fn clear(&mut self) {
        self.payload.clear();
        (self.count, self.used) = (0, 0);
    }

    /// The bytes that the entries take in the block.
    pub fn bytes(&self) -> usize {
        self.used
    }

    /// Adds `key`, which is greater than all added before and has position `at` in `block` as it is
    /// now. False if it would not fit.
    pub fn push(&mut self, block: &IndexBlock<'_>, at: usize, key: &[u8]) -> bool {
        let size = block.insert_size(key);
        if self.used + size > block.free() || !key.starts_with(block.prefix()) {
            return false;
        }
        if self.count == 0 || at != self.position {
            self.position = at;
            let position = (at + self.count) as u16;
            self.payload.extend_from_slice(&position.to_le_bytes());
            self.entries_at = self.payload.len();
            self.payload.extend_from_slice(&[0; 2]);
        }
        let entries = &mut self.payload[self.entries_at..self.entries_at + 2];
        let n = u16::from_le_bytes([entries[0], entries[1]]) + 1;
        entries.copy_from_slice(&n.to_le_bytes());
        let suffix = key.get(block.prefix_len()..).unwrap_or(&[]);
        self.payload
            .extend_from_slice(&(suffix.len() as u16).to_le_bytes());
        self.payload.extend_from_slice(suffix);
        self.count += 1;
        self.used += size;
        true
    }
}

pub fn apply_insert_runs(b: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let mut r = Cursor(payload);
    while !r.0.is_empty() {
        let (at, n) = (r.u16()? as usize, r.u16()? as usize);
        let mut ahead = Cursor(r.0);
        let mut size = 0;
        for _ in 0..n {
            let len = ahead.u16()? as usize;
            ahead.bytes(len)?;
            size += SLOT + 2 + len.saturating_sub(HEAD);
        }
        if view(b)?.contiguous() < size {
            compact(b)?;
        }
        let mut filler = Filler::new(b, at, n)?;
        for _ in 0..n {
            let len = r.u16()? as usize;
            filler.put(r.bytes(len)?, None)?;
        }
        filler.finish();
    }
    Ok(())
}
