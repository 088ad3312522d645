//! Empty leaves leave the tree, so that a table whose keys only rise keeps its size.
//!
//! An empty leaf L goes in steps of one record each, its right sibling R taking over its range:
//!
//! 1. L is *dead*: it takes no more entries, and a descent that gets there goes right.
//! 2. R's low fence becomes L's.
//! 3. The parent's entry of L leads to R, and R's own entry goes.
//! 4. The left neighbour's right link passes over L. The session that changes the last pointer to L
//!    owns L,
//! 5. and puts L on the list of freed blocks with the SCN of that moment. L is reused once that SCN
//!    is below the horizon.
//!
//! Steps 1 to 3 happen with parent, L and R latched, L and R only if that needs no waiting. What is
//! missing is brought with nothing latched, and after a few tries the steps are left for later.
//!
//! A crash between steps leaves a dead block that every search passes through rightly. A search
//! that finds step 2 missing does it ([`repair_if`](Tree::repair_if)). The next block to its right
//! that leaves the tree does the others.
//!
//! **What is known of a dead block** that one has read and let go of is nothing: another session
//! may have freed it, and a third have put it to another use. The block still is what it was while
//! the parent's entry leads to it (step 3 is not done) or a live left neighbour links to it (step 4
//! is not done), and while that parent or neighbour is latched it stays so. Steps are done under
//! such a latch only. So nothing rests on the freed block being kept from reuse for as long as a
//! session may be on the way to it: a session that gets there sees by object, level and fences
//! where it is.
//!
//! An only child cannot go before its parent has. A parent with one entry goes by these steps, and
//! its right sibling takes over the entry with the range. A last child of several stays, which
//! makes one empty leaf for each inner block at most. A leaf whose sibling has no room for a longer
//! key prefix stays, too, and is tried again when the sibling empties.

use block::format::BlockType;
use block::index::{
    Builder, FreeBlock, IndexBlock, MetaBlock, meta_pop_payload, meta_push_payload,
    set_child_payload, set_low_payload, set_right_payload,
};
use block::{Dba, Op};

use super::descend::{Missing, Target};
use super::{Spare, Store, Tree};
use crate::Result;

/// The most inner levels that one call removes. No tree is higher.
const MAX_HEIGHT: u16 = 32;
/// The number of blocks that are brought, one after the other, for steps that need several latched.
/// After that the steps are left for later.
const BRING_TRIES: u32 = 8;

/// The outcome of steps that need several blocks latched.
enum Tried {
    Done,
    /// The steps do not apply, or cannot be done as things are.
    Not,
    Missing(Missing),
}

/// The result of [`Tree::purge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Purged {
    pub entries: usize,
    /// The number of blocks that left the tree.
    pub blocks: usize,
}

impl<S: Store> Tree<S> {
    /// Removes the purgeable entries of the leaf that covers `key`, and the leaf itself if it is
    /// empty. The background worker calls it; any key of the leaf will do. It is called with no
    /// latch held.
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
            // The leaf may have been in the way of its left neighbour, which then had more entries
            // than fit.
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

    /// Purges the leaf at `dba`, as a hint names it. Nothing happens if that is no leaf of this
    /// tree any more.
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

    /// Takes the block at `level` whose low fence is `low` out of the tree, if it is empty and its
    /// neighbours can be had.
    fn unlink(&self, level: u16, low: &[u8]) -> Result<bool> {
        if level >= MAX_HEIGHT || self.free_list_is_full()? {
            return Ok(false);
        }
        for _ in 0..BRING_TRIES {
            match self.try_unlink(level, low)? {
                Tried::Done => return Ok(true),
                Tried::Not => return Ok(false),
                Tried::Missing(missing) => self.bring(missing)?,
            }
        }
        Ok(false)
    }

    fn try_unlink(&self, level: u16, low: &[u8]) -> Result<Tried> {
        self.store.reserve()?;
        let Some((mut parent, _)) = self.write_at(Target::Key(low), level + 1)? else {
            return Ok(Tried::Not);
        };
        let Some(p) = self.view(&parent, level + 1) else {
            return Ok(Tried::Not);
        };
        if p.count() == 1 && !p.right().is_none() {
            let parent_low = p.low().to_vec();
            drop(parent);
            let done = self.unlink(level + 1, &parent_low)? && self.unlink(level, low)?;
            return Ok(if done { Tried::Done } else { Tried::Not });
        }
        let Some((at, dba)) = p.child_for(low) else {
            return Ok(Tried::Not);
        };
        let Some(mut block) = self.store.try_write(dba) else {
            return Ok(Tried::Missing(Missing::Exclusive(dba)));
        };
        let removable = |v: &IndexBlock<'_>| {
            !v.is_dead() && v.low() == low && v.count() == usize::from(level > 0)
        };
        let Some(v) = self.view(&block, level).filter(removable) else {
            return Ok(Tried::Not);
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
            return Ok(Tried::Not);
        }
        let Some(mut sibling) = self.store.try_write(right) else {
            return Ok(Tried::Missing(Missing::Exclusive(right)));
        };
        if !self
            .view(&sibling, level)
            .is_some_and(|r| !r.is_dead() && r.fits_with_low(low))
        {
            return Ok(Tried::Not);
        }
        self.alter(&mut block, Op::IndexDead, &[])?;
        let payload = set_low_payload(low, child);
        self.alter(&mut sibling, Op::IndexSetLow, &payload)?;
        let payload = set_child_payload(at, right);
        self.alter(&mut parent, Op::IndexSetChild, &payload)?;
        drop((parent, block, sibling));
        match low.is_empty() {
            // The parent's pointer was the only one.
            true => self.give_back(dba)?,
            false => self.sweep(level, low)?,
        }
        Ok(Tried::Done)
    }

    /// Passes over dead blocks right of the block that ends at `low`, and frees them.
    fn sweep(&self, level: u16, low: &[u8]) -> Result<()> {
        let mut brought = 0;
        while brought < BRING_TRIES {
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
            if !self.forget(level, right, &dead_low)? || self.free_list_is_full()? {
                return Ok(());
            }
            self.store.reserve()?;
            let Some((mut left, _)) = self.write_at(Target::Before(Some(low)), level)? else {
                return Ok(());
            };
            if self.view(&left, level).is_none_or(|v| v.right() != right) {
                continue;
            }
            let Some(dead) = self.store.try_read(right) else {
                drop(left);
                self.bring(Missing::Shared(right))?;
                brought += 1;
                continue;
            };
            let as_read =
                |v: &IndexBlock<'_>| v.is_dead() && v.right() == next && v.low() == dead_low;
            let still = self.view(&dead, level).is_some_and(|v| as_read(&v));
            drop(dead);
            if !still {
                continue;
            }
            self.alter(&mut left, Op::IndexSetRight, &set_right_payload(next))?;
            drop(left);
            self.give_back(right)?;
        }
        Ok(())
    }

    /// Does steps 2 and 3 for a dead block, if a crash left them out. True if they are done, false
    /// if they cannot be done now.
    fn forget(&self, level: u16, dead: Dba, low: &[u8]) -> Result<bool> {
        for _ in 0..BRING_TRIES {
            match self.try_forget(level, dead, low)? {
                Tried::Done => return Ok(true),
                Tried::Not => return Ok(false),
                Tried::Missing(missing) => self.bring(missing)?,
            }
        }
        Ok(false)
    }

    fn try_forget(&self, level: u16, dead: Dba, low: &[u8]) -> Result<Tried> {
        self.store.reserve()?;
        let Some((mut parent, _)) = self.write_at(Target::Key(low), level + 1)? else {
            return Ok(Tried::Not);
        };
        let Some((at, child)) = self.view(&parent, level + 1).and_then(|p| p.child_for(low)) else {
            return Ok(Tried::Not);
        };
        if child != dead {
            // Step 3 comes last.
            return Ok(Tried::Done);
        }
        let (right, grandchild) = {
            let Some(block) = self.store.try_read(dead) else {
                return Ok(Tried::Missing(Missing::Shared(dead)));
            };
            let Some(d) = self
                .view(&block, level)
                .filter(|v| v.is_dead() && v.low() == low)
            else {
                return Ok(Tried::Not);
            };
            let grandchild = if level > 0 {
                d.entry(0).child()
            } else {
                Dba::NONE
            };
            (d.right(), grandchild)
        };
        let Some(mut sibling) = self.store.try_write(right) else {
            return Ok(Tried::Missing(Missing::Exclusive(right)));
        };
        let Some(r) = self.view(&sibling, level) else {
            return Ok(Tried::Not);
        };
        if r.low() > low {
            if !r.fits_with_low(low) {
                let key = r.low().to_vec();
                drop((parent, sibling));
                self.split(level, &key, |v| v.fits_with_low(low))?;
                return Ok(Tried::Not);
            }
            let payload = set_low_payload(low, grandchild);
            self.alter(&mut sibling, Op::IndexSetLow, &payload)?;
        }
        let payload = set_child_payload(at, right);
        self.alter(&mut parent, Op::IndexSetChild, &payload)?;
        Ok(Tried::Done)
    }

    /// Completes what a crash left: a search came through the dead block `from` and found that its
    /// right sibling does not cover its range.
    pub(super) fn repair_if(&self, from: Option<Dba>, level: u16) -> Result<()> {
        let Some(dead) = from else { return Ok(()) };
        let block = self.store.read(dead)?;
        let Some(v) = self.view(&block, level).filter(|v| v.is_dead()) else {
            return Ok(());
        };
        let low = v.low().to_vec();
        drop(block);
        self.forget(level, dead, &low).map(|_| ())
    }

    fn free_list_is_full(&self) -> Result<bool> {
        Ok(MetaBlock(&*self.store.read(self.free_list())?).is_full())
    }

    /// Gives back a block from [`alloc`](Self::alloc) that was not needed. A new one is formatted
    /// first. After a restart the segment gives out what lies behind its last formatted block, and
    /// would give this block out a second time.
    pub(super) fn discard(&self, spare: Spare) -> Result<()> {
        if let Spare::New(dba) = spare {
            self.format(dba, Op::IndexFormat, &Builder::dead())?;
        }
        self.give_back(spare.dba())
    }

    /// Puts a dead block to which nothing leads on the list of freed blocks. If the list is full,
    /// the block is lost to the tree until its segment goes. Callers look first, so that takes
    /// several of them at one moment.
    pub(super) fn give_back(&self, dba: Dba) -> Result<()> {
        self.store.reserve()?;
        let mut list = self.store.write(self.free_list())?;
        // A purging session has no lock on the table: the tree may have been dropped meanwhile, and
        // its space be another's.
        if !self.is_my_list(&list) || MetaBlock(&list).is_full() {
            return Ok(());
        }
        let payload = meta_push_payload(FreeBlock {
            dba,
            at: self.store.now(),
        });
        self.alter(&mut list, Op::IndexMetaPush, &payload)
    }

    fn is_my_list(&self, b: &block::BlockBuf) -> bool {
        b.object() == self.object && b.block_type().is_ok_and(|t| t == BlockType::IndexMeta)
    }

    /// A block for a split: a freed one to which nobody can be on the way, or a new one of the
    /// segment. It is called with no latch held.
    pub(super) fn alloc(&self) -> Result<Spare> {
        let horizon = self.store.horizon();
        let reusable = |b: &block::BlockBuf| {
            let list = MetaBlock(b);
            (self.is_my_list(b) && list.count() > 0)
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
                return Ok(Spare::Used(dba));
            }
        }
        self.store.alloc().map(Spare::New)
    }
}
