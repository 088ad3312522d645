//! Making trees: an empty one, and one filled bottom-up from sorted entries.

use block::index::{Builder, separator};
use block::{Dba, Op};

use super::{Store, Tree};
use crate::Result;

/// Leaves and inner blocks of a tree that is built are filled to this, so that the first inserts do not split every one of them.
const FILL_PERCENT: usize = 90;
pub(super) const FILL_BYTES: usize = block::index::CAPACITY * FILL_PERCENT / 100;

/// The block of a level that is being filled.
struct Level {
    dba: Dba,
    low: Vec<u8>,
    /// Whole keys with children; of leaves without.
    entries: Vec<(Vec<u8>, Option<u64>)>,
    bytes: usize,
}

impl Level {
    fn new(dba: Dba, low: Vec<u8>) -> Level {
        Level {
            dba,
            low,
            entries: Vec::new(),
            bytes: 0,
        }
    }
    /// Bytes that an entry takes at most.
    fn size(key: &[u8]) -> usize {
        16 + key.len()
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

/// Fills an empty tree from entries that come in order. Nobody else uses the tree meanwhile. Every block is logged whole, once.
pub struct BulkBuilder<'t, S> {
    tree: &'t Tree<S>,
    /// From the leaves up. The topmost block becomes the root.
    levels: Vec<Level>,
    last: Vec<u8>,
}

impl<S: Store> Tree<S> {
    /// Formats the tree's first blocks: an empty root and an empty list of freed blocks. The segment is new: nobody knows it.
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

    /// Starts filling this tree, which is empty.
    pub fn build(&self) -> BulkBuilder<'_, S> {
        BulkBuilder {
            tree: self,
            levels: Vec::new(),
            last: Vec::new(),
        }
    }
}

impl<S: Store> BulkBuilder<'_, S> {
    /// Adds an entry by its whole key, column values and row id, which is above all keys before.
    pub fn push(&mut self, full: &[u8]) -> Result<()> {
        self.tree.check_len(full)?;
        if full <= &self.last[..] && !self.levels.is_empty() {
            return Err(self
                .tree
                .corrupt("entries to build an index from are not in order"));
        }
        let bound = match self.levels.is_empty() {
            true => Vec::new(),
            false => separator(&self.last, full).to_vec(),
        };
        self.add(0, bound, full.to_vec(), None)?;
        self.last.clear();
        self.last.extend_from_slice(full);
        Ok(())
    }

    /// Adds an entry to a level. `bound` is a lower bound of it and above all before: the fence, if a new block begins here.
    fn add(
        &mut self,
        level: usize,
        bound: Vec<u8>,
        key: Vec<u8>,
        child: Option<u64>,
    ) -> Result<()> {
        if level == self.levels.len() {
            let dba = self.tree.alloc()?;
            self.levels.push(Level::new(dba, bound.clone()));
        }
        let size = Level::size(&key);
        let current = &self.levels[level];
        let full = current.bytes + size + current.low.len() + bound.len() > FILL_BYTES;
        if full && current.entries.len() > 1 {
            let next = self.tree.alloc()?;
            let old = std::mem::replace(&mut self.levels[level], Level::new(next, bound.clone()));
            let contents = old.contents(level as u16, Some(&bound), next);
            self.tree.format(old.dba, Op::IndexFormat, &contents)?;
            self.add(level + 1, old.low.clone(), old.low, Some(old.dba.0))?;
        }
        let current = &mut self.levels[level];
        current.entries.push((key, child));
        current.bytes += size;
        Ok(())
    }

    /// Writes what is left and the root.
    pub fn finish(mut self) -> Result<()> {
        let mut level = 0;
        while level < self.levels.len() {
            let top = level + 1 == self.levels.len();
            let done =
                std::mem::replace(&mut self.levels[level], Level::new(Dba::NONE, Vec::new()));
            let contents = done.contents(level as u16, None, Dba::NONE);
            if top {
                self.tree.store.reserve()?;
                let mut root = self.tree.store.write(self.tree.root())?;
                self.tree.alter(&mut root, Op::IndexReplace, &contents)?;
                drop(root);
                return self.tree.discard(done.dba);
            }
            self.tree.format(done.dba, Op::IndexFormat, &contents)?;
            self.add(level + 1, done.low.clone(), done.low, Some(done.dba.0))?;
            level += 1;
        }
        Ok(())
    }
}
