//! Makes trees: an empty one, and one filled bottom-up from sorted entries.

use block::index::{Builder, CAPACITY, entry_size, separator};
use block::{Dba, Op};

use super::undo::shared_len;
use super::{Spare, Store, Tree};
use crate::Result;

/// How full the leaves and inner blocks of a built tree are, so that the first inserts do not split
/// every one of them.
const FILL_PERCENT: usize = 90;
pub(super) const FILL_BYTES: usize = CAPACITY * FILL_PERCENT / 100;

/// The block of a level that is being filled.
struct Level {
    dba: Dba,
    is_leaf: bool,
    low: Vec<u8>,
    /// Whole keys, with children on an inner level, without on the leaves' level.
    entries: Vec<(Vec<u8>, Option<u64>)>,
    /// The length that the entries share with the low fence, and the entries' bytes with this
    /// prefix.
    prefix: usize,
    bytes: usize,
}

impl Level {
    fn new(dba: Dba, is_leaf: bool, low: Vec<u8>) -> Level {
        Level {
            dba,
            is_leaf,
            low,
            entries: Vec::new(),
            prefix: usize::MAX,
            bytes: 0,
        }
    }
    fn entry_bytes(&self, key: &[u8], prefix: usize) -> usize {
        let child = if self.is_leaf { 0 } else { size_of::<u64>() };
        child + entry_size(key.len().saturating_sub(prefix))
    }
    fn bytes_of(&self, entries: usize, prefix: usize) -> usize {
        let keys = self.entries[..entries].iter();
        keys.map(|(key, _)| self.entry_bytes(key, prefix)).sum()
    }
    /// Whether `key`, which comes next, belongs into another block.
    fn is_full(&self, key: &[u8]) -> bool {
        let prefix = shared_len(&self.low, key);
        let bytes = match prefix == self.prefix {
            true => self.bytes,
            false => self.bytes_of(self.entries.len(), prefix),
        };
        // A high fence is no longer than the key that comes after it.
        let size = self.low.len() + key.len() + bytes + self.entry_bytes(key, prefix);
        size > FILL_BYTES && self.entries.len() > 1
    }
    fn take(&mut self, key: Vec<u8>, child: Option<u64>) {
        let prefix = shared_len(&self.low, &key);
        if prefix != self.prefix {
            self.bytes = self.bytes_of(self.entries.len(), prefix);
            self.prefix = prefix;
        }
        self.bytes += self.entry_bytes(&key, prefix);
        self.entries.push((key, child));
    }
    /// How many entries stay here when `next` goes into another block, and the fence between. The
    /// fence may leave the block a shorter prefix; then some of the last entries go, too.
    fn end(&self, next: &[u8]) -> (usize, Vec<u8>) {
        let mut keep = self.entries.len();
        loop {
            let after = self.entries.get(keep).map_or(next, |(key, _)| key);
            let high = match self.is_leaf {
                true => separator(&self.entries[keep - 1].0, after),
                false => after,
            };
            let bytes = self.bytes_of(keep, shared_len(&self.low, high));
            let size = self.low.len() + high.len() + bytes;
            if size <= CAPACITY || keep == 1 {
                return (keep, high.to_vec());
            }
            keep -= ((size - CAPACITY) * keep / bytes).clamp(1, keep - 1);
        }
    }
    fn contents(&self, level: u16, high: Option<&[u8]>, right: Dba) -> Vec<u8> {
        let last = self.entries.last().map(|(key, _)| &key[..]);
        let mut out = Builder::new(level, &self.low, high, right, last);
        self.entries
            .iter()
            .for_each(|(key, child)| out.push(key, *child));
        out.finish()
    }
}

/// Fills an empty tree from entries that come in order. Nobody else uses the tree meanwhile. Every
/// block is logged whole, once.
pub struct BulkBuilder<'t, S> {
    tree: &'t Tree<S>,
    /// The levels from the leaves up. The topmost block becomes the root.
    levels: Vec<Level>,
}

impl<S: Store> Tree<S> {
    /// Formats the tree's first blocks: an empty root and an empty list of freed blocks. The
    /// segment is new, and nobody knows it.
    pub fn create(&self) -> Result<()> {
        let root = Builder::new(0, &[], None, Dba::NONE, None).finish();
        self.format(self.root(), Op::IndexFormat, &root)?;
        self.format(self.free_list(), Op::IndexMetaFormat, &[])
    }

    pub(super) fn format(&self, dba: Dba, op: Op, payload: &[u8]) -> Result<()> {
        self.store.reserve()?;
        let mut guard = self.store.write_new(dba)?;
        self.alter(&mut guard, op, payload)
    }

    /// Begins to fill this tree, which is empty.
    pub fn build(&self) -> BulkBuilder<'_, S> {
        BulkBuilder {
            tree: self,
            levels: Vec::new(),
        }
    }
}

impl<S: Store> BulkBuilder<'_, S> {
    /// Adds an entry by its whole key: column values and row id. It is above all keys before.
    pub fn push(&mut self, full: &[u8]) -> Result<()> {
        self.tree.check_len(full)?;
        let leaf = self.levels.first();
        let last = leaf.and_then(|leaf| leaf.entries.last());
        if last.is_some_and(|(last, _)| full <= &last[..]) {
            return Err(self
                .tree
                .corrupt("entries to build an index from are not in order"));
        }
        self.add(0, full.to_vec(), None)
    }

    /// Adds an entry to a level.
    fn add(&mut self, level: usize, key: Vec<u8>, child: Option<u64>) -> Result<()> {
        if level == self.levels.len() {
            let low = if level == 0 { Vec::new() } else { key.clone() };
            let dba = self.tree.alloc()?.dba();
            self.levels.push(Level::new(dba, level == 0, low));
        }
        while self.levels[level].is_full(&key) {
            self.close(level, &key)?;
        }
        self.levels[level].take(key, child);
        Ok(())
    }

    /// Writes a level's block and goes on in another one, which begins with `next`.
    fn close(&mut self, level: usize, next: &[u8]) -> Result<()> {
        let right = self.tree.alloc()?.dba();
        let current = &mut self.levels[level];
        let (keep, high) = current.end(next);
        let successor = Level::new(right, level == 0, high.clone());
        let mut done = std::mem::replace(current, successor);
        for (key, child) in done.entries.split_off(keep) {
            current.take(key, child);
        }
        let contents = done.contents(level as u16, Some(&high), right);
        self.tree.format(done.dba, Op::IndexFormat, &contents)?;
        self.add(level + 1, done.low, Some(done.dba.0))
    }

    /// Writes what is left and the root.
    pub fn finish(mut self) -> Result<()> {
        let mut level = 0;
        while level < self.levels.len() {
            let top = level + 1 == self.levels.len();
            let nothing = Level::new(Dba::NONE, level == 0, Vec::new());
            let done = std::mem::replace(&mut self.levels[level], nothing);
            let contents = done.contents(level as u16, None, Dba::NONE);
            if top {
                self.tree.store.reserve()?;
                let mut root = self.tree.store.write(self.tree.root())?;
                self.tree.alter(&mut root, Op::IndexReplace, &contents)?;
                drop(root);
                return self.tree.discard(Spare::New(done.dba));
            }
            self.tree.format(done.dba, Op::IndexFormat, &contents)?;
            self.add(level + 1, done.low, Some(done.dba.0))?;
            level += 1;
        }
        Ok(())
    }
}
