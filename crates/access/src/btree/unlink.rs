//! Empty leaves leave the tree, so that a table whose keys only rise keeps its size.
//!
//! An empty leaf L goes in steps of one record each, its right sibling R taking over its range:
//!
//! 1. L is *dead*: it takes no more entries, whoever gets there goes right.
//! 2. R's low fence becomes L's.
//! 3. The parent's entry of L leads to R, and R's own entry goes.
//! 4. The left neighbour's right link passes over L. Whoever changes the last pointer to L owns it,
//! 5. and puts it on the list of freed blocks with the SCN of that moment. It is reused once that is below the horizon.
//!
//! Steps 1 to 3 happen with parent, L and R latched, L and R only if that needs no waiting; otherwise nothing happens now. A crash
//! between steps leaves a dead block that every search passes through rightly: whoever finds step 2 missing does it
//! ([`repair_if`](Tree::repair_if)), and the next block that goes to its right does the others.
//!
//! An only child cannot go before its parent has: the parent, with one entry, goes by the same steps, and its right
//! sibling takes over the entry with the range. A last child of several stays: one empty leaf for each inner block at most. So does a leaf whose sibling has
//! no room for a longer key prefix; it is tried again when the sibling empties.

use block::index::{
    Builder, FreeBlock, IndexBlock, MetaBlock, meta_pop_payload, meta_push_payload,
    set_child_payload, set_low_payload, set_right_payload,
};
use block::{Dba, Op};

use super::descend::Target;
use super::{Store, Tree};
use crate::Result;

/// Inner levels that one call removes at most; no tree is higher.
const MAX_HEIGHT: u16 = 32;

/// What [`Tree::purge`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Purged {
    pub entries: usize,
    /// Blocks that left the tree.
    pub blocks: usize,
}

impl<S: Store> Tree<S> {
    /// Removes the purgeable entries of the leaf that covers `key`, and the leaf itself if it is empty. For the background worker;
    /// any key of the leaf will do. Called with no latch held.
    pub fn purge(&self, key: &[u8]) -> Result<Purged> {
        self.store.reserve()?;
        let mut leaf = self.write_leaf(key)?;
        let entries = self.purge_marked(&mut leaf)?;
        let Some(v) = self.view(&leaf, 0) else {
            return Ok(Purged { entries, blocks: 0 });
        };
        let (empty, low) = (v.count() == 0, v.low().to_vec());
        drop(leaf);
        let mut blocks = 0;
        if empty && self.unlink(0, &low)? {
            blocks += 1;
        } else if empty && !low.is_empty() {
            // It may have been in the way of its left neighbour, which then had more entries than fit.
            let left = self.read_leaf(Target::Before(Some(&low)), None)?;
            let left_low = self
                .view(&left, 0)
                .filter(|v| v.count() == 0)
                .map(|v| v.low().to_vec());
            drop(left);
            if let Some(left_low) = left_low {
                blocks += usize::from(self.unlink(0, &left_low)?);
            }
        }
        Ok(Purged { entries, blocks })
    }

    /// The same for the leaf at `dba`, as a hint names it; nothing if that is no leaf of this tree any more.
    pub fn purge_block(&self, dba: Dba) -> Result<Purged> {
        let block = self.store.read(dba)?;
        let Some(low) = self
            .view(&block, 0)
            .filter(|v| !v.is_dead())
            .map(|v| v.low().to_vec())
        else {
            return Ok(Purged::default());
        };
        drop(block);
        self.purge(&low)
    }

    /// Takes the block at `level` whose low fence is `low` out of the tree, if it is empty and this needs no waiting for latches.
    fn unlink(&self, level: u16, low: &[u8]) -> Result<bool> {
        if level >= MAX_HEIGHT || self.free_list_is_full()? {
            return Ok(false);
        }
        self.store.reserve()?;
        let Some((mut parent, _)) = self.write_at(Target::Key(low), level + 1)? else {
            return Ok(false);
        };
        let Some(p) = self.view(&parent, level + 1) else {
            return Ok(false);
        };
        if p.count() == 1 && !p.right().is_none() {
            let parent_low = p.low().to_vec();
            drop(parent);
            return Ok(self.unlink(level + 1, &parent_low)? && self.unlink(level, low)?);
        }
        let Some((at, dba)) = p.child_for(low) else {
            return Ok(false);
        };
        let Some(mut block) = self.store.try_write(dba) else {
            return Ok(false);
        };
        let removable = |v: &IndexBlock<'_>| {
            !v.is_dead() && v.low() == low && v.count() == usize::from(level > 0)
        };
        let Some(v) = self.view(&block, level).filter(removable) else {
            return Ok(false);
        };
        let (right, child) = (
            v.right(),
            if level > 0 {
                v.entry(0).child()
            } else {
                Dba::NONE
            },
        );
        if at + 1 >= p.count() || p.entry(at + 1).child() != right {
            return Ok(false);
        }
        let Some(mut sibling) = self.store.try_write(right) else {
            return Ok(false);
        };
        if !self
            .view(&sibling, level)
            .is_some_and(|r| !r.is_dead() && r.fits_with_low(low))
        {
            return Ok(false);
        }
        self.alter(&mut block, Op::IndexDead, &[])?;
        let payload = set_low_payload(low, child);
        self.alter(&mut sibling, Op::IndexSetLow, &payload)?;
        let payload = set_child_payload(at, right);
        self.alter(&mut parent, Op::IndexSetChild, &payload)?;
        drop((parent, block, sibling));
        match low.is_empty() {
            // The parent's was the only pointer.
            true => self.give_back(dba)?,
            false => self.sweep(level, low)?,
        }
        Ok(true)
    }

    /// Passes over dead blocks right of the one that ends at `low`, and frees them.
    fn sweep(&self, level: u16, low: &[u8]) -> Result<()> {
        loop {
            self.store.reserve()?;
            let Some(left) = self.read_at(Target::Before(Some(low)), level)? else {
                return Ok(());
            };
            let Some(right) = self
                .view(&left, level)
                .map(|v| v.right())
                .filter(|r| !r.is_none())
            else {
                return Ok(());
            };
            drop(left);
            let dead = self.store.read(right)?;
            let Some(v) = self.view(&dead, level).filter(|v| v.is_dead()) else {
                return Ok(());
            };
            let (next, dead_low) = (v.right(), v.low().to_vec());
            drop(dead);
            if !self.forget(level, right, next, &dead_low)? || self.free_list_is_full()? {
                return Ok(());
            }
            self.store.reserve()?;
            let Some((mut left, _)) = self.write_at(Target::Before(Some(low)), level)? else {
                return Ok(());
            };
            if self.view(&left, level).is_none_or(|v| v.right() != right) {
                continue;
            }
            self.alter(&mut left, Op::IndexSetRight, &set_right_payload(next))?;
            drop(left);
            self.give_back(right)?;
        }
    }

    /// Steps 2 and 3 for a dead block, where a crash left them out. False if they cannot be done now.
    fn forget(&self, level: u16, dead: Dba, right: Dba, low: &[u8]) -> Result<bool> {
        self.store.reserve()?;
        let Some((mut parent, _)) = self.write_at(Target::Key(low), level + 1)? else {
            return Ok(false);
        };
        let Some(mut sibling) = self.store.try_write(right) else {
            return Ok(false);
        };
        let Some(r) = self.view(&sibling, level) else {
            return Ok(false);
        };
        if r.low() > low {
            if !r.fits_with_low(low) {
                let key = r.low().to_vec();
                drop((parent, sibling));
                self.split(level, &key, |v| v.fits_with_low(low))?;
                return Ok(false);
            }
            let child = {
                let Some(d) = self.store.try_read(dead) else {
                    return Ok(false);
                };
                self.view(&d, level)
                    .filter(|_| level > 0)
                    .map_or(Dba::NONE, |v| v.entry(0).child())
            };
            let payload = set_low_payload(low, child);
            self.alter(&mut sibling, Op::IndexSetLow, &payload)?;
        }
        if let Some((at, child)) = self.view(&parent, level + 1).and_then(|p| p.child_for(low))
            && child == dead
        {
            let payload = set_child_payload(at, right);
            self.alter(&mut parent, Op::IndexSetChild, &payload)?;
        }
        Ok(true)
    }

    /// A search came through the dead block `from` and found that its right sibling does not cover its range: completes that.
    pub(super) fn repair_if(&self, from: Option<Dba>, level: u16) -> Result<()> {
        let Some(dead) = from else { return Ok(()) };
        let block = self.store.read(dead)?;
        let Some(v) = self.view(&block, level).filter(|v| v.is_dead()) else {
            return Ok(());
        };
        let (right, low) = (v.right(), v.low().to_vec());
        drop(block);
        self.forget(level, dead, right, &low).map(|_| ())
    }

    fn free_list_is_full(&self) -> Result<bool> {
        Ok(MetaBlock(&*self.store.read(self.free_list())?).is_full())
    }

    /// Gives back a block from [`alloc`](Self::alloc) that was not needed. It is formatted first, whatever it was: after a restart the
    /// segment gives out what lies behind its last formatted block, and would give this one out a second time.
    pub(super) fn discard(&self, dba: Dba) -> Result<()> {
        self.format(dba, Op::IndexFormat, &Builder::dead())?;
        self.give_back(dba)
    }

    /// Puts a dead block that nothing leads to on the list of freed blocks. When the list is full the block is lost to the tree until
    /// its segment goes; callers look first, so that takes several of them at one moment.
    pub(super) fn give_back(&self, dba: Dba) -> Result<()> {
        self.store.reserve()?;
        let mut list = self.store.write(self.free_list())?;
        if MetaBlock(&list).is_full() {
            return Ok(());
        }
        let payload = meta_push_payload(FreeBlock {
            dba,
            at: self.store.now(),
        });
        self.alter(&mut list, Op::IndexMetaPush, &payload)
    }

    /// A block for a split: a freed one that nobody can be on his way to, or a new one of the segment. Called with no latch held.
    pub(super) fn alloc(&self) -> Result<Dba> {
        let horizon = self.store.horizon();
        let reusable = |b: &block::BlockBuf| {
            let list = MetaBlock(b);
            (list.count() > 0)
                .then(|| list.get(0))
                .filter(|f| f.at < horizon)
                .map(|f| f.dba)
        };
        let candidate = reusable(&*self.store.read(self.free_list())?);
        if candidate.is_some() {
            self.store.reserve()?;
            let mut list = self.store.write(self.free_list())?;
            if let Some(dba) = reusable(&list) {
                self.alter(&mut list, Op::IndexMetaPop, &meta_pop_payload(dba))?;
                return Ok(dba);
            }
        }
        self.store.alloc()
    }
}
