//! The contents of an index block apart from their place in it: as the payload that formats a
//! block, and laid out.
//!
//! ```text
//! level u16 | flags u16 | right u64
//! | prefix length u16 | low length u16 | high length u16 (ffff: none) | entries u16
//! | low | high | entry ...
//! entry: length u16 (top bit: a stamp follows) | key after the prefix | stamp (8) or child (8)
//! ```

use super::fill::Filler;
use super::*;

const HEADER: usize = 20;

/// Collects the contents of one block, entries in rising order, as the payload of `Op::IndexFormat`
/// and `Op::IndexReplace`.
pub struct Builder {
    out: Vec<u8>,
    prefix_len: usize,
    inner: bool,
    /// The bytes that the contents take in a block's body, slots included.
    used: usize,
}

impl Builder {
    /// Begins the contents of a block. `last` is the key of the last entry that will come, if it is
    /// known; only the last block of a level needs it.
    pub fn new(
        level: u16,
        low: &[u8],
        high: Option<&[u8]>,
        right: Dba,
        last: Option<&[u8]>,
    ) -> Builder {
        let prefix_len = high.or(last).map_or(0, |bound| common(low, bound));
        let mut out = Vec::with_capacity(BLOCK_SIZE);
        out.extend_from_slice(&level.to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(&right.0.to_le_bytes());
        out.extend_from_slice(&(prefix_len as u16).to_le_bytes());
        out.extend_from_slice(&(low.len() as u16).to_le_bytes());
        out.extend_from_slice(&high.map_or(NO_HIGH, |h| h.len() as u16).to_le_bytes());
        out.extend_from_slice(&0u16.to_le_bytes());
        out.extend_from_slice(low);
        out.extend_from_slice(high.unwrap_or(&[]));
        let used = low.len() + high.map_or(0, <[u8]>::len);
        Builder {
            out,
            prefix_len,
            inner: level > 0,
            used,
        }
    }

    /// The contents of a block that is in no tree: dead, and with nothing to its right.
    pub fn dead() -> Vec<u8> {
        let mut out = Builder::new(0, &[], None, Dba::NONE, None).finish();
        out[2..4].copy_from_slice(&FLAG_DEAD.to_le_bytes());
        out
    }

    /// Adds an entry with its whole key. `payload` is the child of an inner entry, or the stamp of
    /// a leaf's entry if that has room for one.
    pub fn push(&mut self, key: &[u8], payload: Option<u64>) {
        debug_assert!(!self.inner || payload.is_some());
        let suffix = &key[self.prefix_len.min(key.len())..];
        let stamped = if !self.inner && payload.is_some() {
            STAMPED
        } else {
            0
        };
        self.out
            .extend_from_slice(&(suffix.len() as u16 | stamped).to_le_bytes());
        self.out.extend_from_slice(suffix);
        self.out.extend_from_slice(
            payload
                .map(u64::to_le_bytes)
                .as_ref()
                .map_or(&[], |p| &p[..]),
        );
        self.used += SLOT
            + 2
            + suffix.len().saturating_sub(HEAD)
            + if payload.is_some() { PAYLOAD } else { 0 };
        let count = u16::from_le_bytes([self.out[HEADER - 2], self.out[HEADER - 1]]) + 1;
        self.out[HEADER - 2..HEADER].copy_from_slice(&count.to_le_bytes());
    }

    /// Copies entries `range` of `block`.
    pub fn push_from(
        &mut self,
        block: &IndexBlock<'_>,
        range: std::ops::Range<usize>,
        key: &mut Vec<u8>,
    ) {
        for i in range {
            key.clear();
            block.copy_key(i, key);
            let e = block.entry(i);
            self.push(key, (self.inner || e.has_stamp).then_some(e.payload));
        }
    }

    pub fn finish(self) -> Vec<u8> {
        debug_assert!(
            self.used <= CAPACITY,
            "invariant: contents of {} bytes fit a block",
            self.used
        );
        self.out
    }
}

/// The contents that were read back from a payload.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    pub level: u16,
    pub flags: u16,
    pub right: Dba,
    pub prefix_len: u16,
    pub low: &'a [u8],
    pub high: Option<&'a [u8]>,
    count: u16,
    entries: &'a [u8],
}

impl<'a> Content<'a> {
    pub fn parse(p: &'a [u8]) -> Result<Content<'a>> {
        let mut r = Cursor(p);
        let (level, flags, right) = (r.u16()?, r.u16()?, Dba(r.u64()?));
        let (prefix_len, low_len, high_len, count) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
        let low = r.bytes(low_len as usize)?;
        let high = if high_len == NO_HIGH {
            None
        } else {
            Some(r.bytes(high_len as usize)?)
        };
        Ok(Content {
            level,
            flags,
            right,
            prefix_len,
            low,
            high,
            count,
            entries: r.0,
        })
    }

    /// Lays the contents out in `b`, which keeps its block header.
    pub fn lay_out(&self, b: &mut BlockBuf) -> Result<()> {
        b.body_mut().fill(0);
        start(
            b,
            Frame {
                level: self.level,
                flags: self.flags,
                right: self.right,
            },
            self.low,
            self.high,
            self.prefix_len as usize,
        )?;
        let mut r = Cursor(self.entries);
        let mut filler = Filler::new(b, 0, self.count as usize)?;
        for _ in 0..self.count {
            let word = r.u16()?;
            let suffix = r.bytes((word & !STAMPED) as usize)?;
            let payload = if word & STAMPED != 0 || self.level > 0 {
                Some(r.u64()?)
            } else {
                None
            };
            filler.put(suffix, payload)?;
        }
        filler.finish();
        match r.0.is_empty() {
            true => Ok(()),
            false => Err(BlockError::corrupt(
                "bytes are left after the last entry of an index block",
            )),
        }
    }
}

/// The parts of a block besides fences and entries.
pub(super) struct Frame {
    pub level: u16,
    pub flags: u16,
    pub right: Dba,
}

/// Writes the header and fences of a block without entries over `b`, whose body is zero.
pub(super) fn start(
    b: &mut BlockBuf,
    frame: Frame,
    low: &[u8],
    high: Option<&[u8]>,
    prefix_len: usize,
) -> Result<()> {
    let high_bytes = high.unwrap_or(&[]);
    if low.len() > MAX_KEY || high_bytes.len() > MAX_KEY || prefix_len > low.len() {
        return Err(BlockError::corrupt(
            "a fence is longer than any key, or shorter than the prefix",
        ));
    }
    let high_at = FENCES_AT + low.len();
    let slots = high_at + high_bytes.len();
    b.0[FENCES_AT..high_at].copy_from_slice(low);
    b.0[high_at..slots].copy_from_slice(high_bytes);
    b.put_u16(LEVEL_AT, frame.level);
    b.put_u16(COUNT_AT, 0);
    b.put_u16(DATA_LOW_AT, BLOCK_SIZE as u16);
    b.put_u16(GARBAGE_AT, 0);
    b.put_u64(RIGHT_AT, frame.right.0);
    b.put_u16(PREFIX_LEN_AT, prefix_len as u16);
    b.put_u16(LOW_LEN_AT, low.len() as u16);
    b.put_u16(HIGH_LEN_AT, high.map_or(NO_HIGH, |h| h.len() as u16));
    b.put_u16(FLAGS_AT, frame.flags);
    b.put_u16(SLOTS_OFF_AT, slots as u16);
    Ok(())
}

/// The length of the prefix that every key between the fences has: `low <= k < high` share what the
/// fences share.
pub(super) fn prefix_of(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |h| common(low, h))
}

pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// The shortest `s` with `left < s <= right`.
pub fn separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    debug_assert!(left < right);
    &right[..(common(left, right) + 1).min(right.len())]
}

/// The division of a full block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split {
    /// The number of entries that stay: `0..at`. The others move to the new right sibling.
    pub at: usize,
}

impl IndexBlock<'_> {
    /// Chooses where to split so that `new`, which is to stand at `pos`, fits afterwards. Returns
    /// the split and the separator.
    ///
    /// Inserts at the very end of the tree leave 90 % in the left block, at its very beginning 10
    /// %, and all others half. Near that target the shortest separator wins; it also keeps a run of
    /// equal column values in one block where it can.
    pub fn split_point(&self, pos: usize, new: &[u8]) -> (Split, Vec<u8>) {
        let n = self.count() + 1;
        let inner = !self.is_leaf();
        let new_size = self.insert_size(new);
        let size = |m: usize| match m.cmp(&pos) {
            std::cmp::Ordering::Less => self.entry(m).size(inner),
            std::cmp::Ordering::Equal => new_size,
            std::cmp::Ordering::Greater => self.entry(m - 1).size(inner),
        };
        let key_into = |m: usize, out: &mut Vec<u8>| {
            out.clear();
            match m.cmp(&pos) {
                std::cmp::Ordering::Less => self.copy_key(m, out),
                std::cmp::Ordering::Equal => out.extend_from_slice(new),
                std::cmp::Ordering::Greater => self.copy_key(m - 1, out),
            }
        };
        let total: usize = (0..n).map(size).sum();
        let percent = match () {
            _ if pos + 1 == n && self.right().is_none() => 90,
            _ if pos == 0 && self.low().is_empty() && !inner => 10,
            _ => 50,
        };
        let (target, window) = (total * percent / 100, total / 16);
        let fences = (self.low().len(), self.high().map_or(0, <[u8]>::len));
        // At boundary b, merged entries 0..b go left. Each side gets at least one entry. Sizes are
        // reckoned with the old, shorter prefix.
        let (mut best, mut sum) = (None, 0);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        key_into(0, &mut left);
        for b in 1..n {
            sum += size(b - 1);
            key_into(b, &mut right);
            let sep = if inner {
                right.len()
            } else {
                (common(&left, &right) + 1).min(right.len())
            };
            // An inner block begins with a separator whose child is there already, and no boundary
            // divides equal keys.
            let allowed = !(inner && b == pos) && left != right;
            let fits = allowed
                && sum + fences.0 + sep <= CAPACITY
                && total - sum + sep + fences.1 <= CAPACITY;
            let distance = sum.abs_diff(target);
            let near = distance <= window;
            let rank = (!fits, !near, if near { sep } else { 0 }, distance);
            if best.is_none_or(|(r, _)| rank < r) {
                best = Some((rank, b));
            }
            std::mem::swap(&mut left, &mut right);
        }
        let b = best.map_or(1, |(_, b)| b);
        key_into(b - 1, &mut left);
        key_into(b, &mut right);
        let sep = if inner {
            right
        } else {
            separator(&left, &right).to_vec()
        };
        (
            Split {
                at: if b <= pos { b } else { b - 1 },
            },
            sep,
        )
    }

    /// The payload that formats the right sibling of this block when it is split.
    pub fn right_half(&self, split: Split, separator: &[u8]) -> Vec<u8> {
        let last = (split.at < self.count()).then(|| self.key(self.count() - 1));
        let mut out = Builder::new(
            self.level(),
            separator,
            self.high(),
            self.right(),
            last.as_deref(),
        );
        out.push_from(self, split.at..self.count(), &mut Vec::new());
        out.finish()
    }

    /// The payload that formats a left half elsewhere, for a root that is split: its address must
    /// stay.
    pub fn left_half(&self, split: Split, separator: &[u8], right: Dba) -> Vec<u8> {
        let mut out = Builder::new(self.level(), self.low(), Some(separator), right, None);
        out.push_from(self, 0..split.at, &mut Vec::new());
        out.finish()
    }
}

/// Reads a payload piece by piece. Every step can find it too short.
pub(super) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self
            .0
            .split_at_checked(n)
            .ok_or_else(|| BlockError::corrupt("the payload of an index change is cut short"))?;
        self.0 = tail;
        Ok(head)
    }
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(
            self.bytes(2)?.try_into().expect("two bytes"),
        ))
    }
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(
            self.bytes(8)?.try_into().expect("eight bytes"),
        ))
    }
}
