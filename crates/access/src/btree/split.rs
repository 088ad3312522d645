//! Splits: a full block's upper part moves into a fresh right sibling, then the separator goes into
//! the parent.

use block::index::{
    Builder, IndexBlock, Room, Split, insert_payload, set_prefix_payload, truncate_payload,
};
use block::{Dba, Op};

use super::descend::{Pending, Target};
use super::{Spare, Step, Store, Tree};
use crate::Result;

/// How often a separator is tried. After that the split stays incomplete until a writer moves right
/// there again.
const SEPARATOR_TRIES: u32 = 8;

impl<S: Store> Tree<S> {
    /// Splits the block at `level` that covers `key`, unless it is `enough` already. An entry of
    /// `key` then fits, or comes closer to fitting: the caller tries again.
    pub(super) fn split(
        &self,
        level: u16,
        key: &[u8],
        enough: impl Fn(&IndexBlock<'_>) -> bool,
    ) -> Result<()> {
        let mut spare = Vec::new();
        loop {
            let is_root = self.root_level()? == level;
            while spare.len() < if is_root { 2 } else { 1 } {
                spare.push(self.alloc()?);
            }
            let (used, taken) = match is_root {
                true => (
                    self.split_root(level, key, &enough, [spare[0], spare[1]])?,
                    2,
                ),
                false => (self.split_block(level, key, &enough, spare[0])?, 1),
            };
            let left_over = match used {
                Used::Yes => &spare[taken..],
                Used::NotNeeded => &spare[..],
                Used::TryAgain => continue,
            };
            return left_over.iter().try_for_each(|&spare| self.discard(spare));
        }
    }

    fn root_level(&self) -> Result<u16> {
        let guard = self.store.read(self.root())?;
        IndexBlock::new(&guard)
            .map(|v| v.level())
            .ok_or_else(|| self.corrupt("the root is no index block"))
    }

    fn split_block(
        &self,
        level: u16,
        key: &[u8],
        enough: &impl Fn(&IndexBlock<'_>) -> bool,
        sibling: Spare,
    ) -> Result<Used> {
        let fresh = self.store.fresh(sibling)?;
        self.store.reserve()?;
        let Some((left, _)) = self.write_at(Target::Key(key), level)? else {
            return Ok(Used::TryAgain);
        };
        if left.dba() == self.root() {
            return Ok(Used::TryAgain);
        }
        let Some(v) = self.view(&left, level) else {
            return Ok(Used::TryAgain);
        };
        if enough(&v) {
            return Ok(Used::NotNeeded);
        }
        let parts = v.split_point(v.search(key).0, key);
        Ok(
            match self.move_right(left, &fresh, sibling.dba(), level, parts)? {
                true => Used::Yes,
                false => Used::TryAgain,
            },
        )
    }

    /// Moves a latched block's entries from the split on to `sibling`. False if the sibling is
    /// busy; then nothing has happened.
    pub(super) fn move_right<'s>(
        &'s self,
        mut left: S::Write<'s>,
        fresh: &S::Fresh<'s>,
        sibling: Dba,
        level: u16,
        (split, separator): (Split, Vec<u8>),
    ) -> Result<bool> {
        let Some(v) = self.view(&left, level) else {
            return Ok(false);
        };
        let (upper, lower) = (
            v.right_half(split, &separator),
            truncate_payload(split, sibling, &separator),
        );
        let Some(mut right) = self.store.try_latch(fresh) else {
            return Ok(false);
        };
        self.store.change(&mut [
            Step {
                guard: &mut left,
                op: Op::IndexTruncate,
                payload: &lower,
            },
            Step {
                guard: &mut right,
                op: Op::IndexFormat,
                payload: &upper,
            },
        ])?;
        drop((left, right));
        self.complete(&Pending {
            level,
            separator,
            child: sibling,
        })?;
        Ok(true)
    }

    /// Splits the root, which keeps its address: its halves go into two fresh blocks below it.
    fn split_root(
        &self,
        level: u16,
        key: &[u8],
        enough: &impl Fn(&IndexBlock<'_>) -> bool,
        spare: [Spare; 2],
    ) -> Result<Used> {
        let [lower_fresh, upper_fresh] = [self.store.fresh(spare[0])?, self.store.fresh(spare[1])?];
        let at = spare.map(Spare::dba);
        self.store.reserve()?;
        let mut root = self.store.write(self.root())?;
        let Some(v) = self.view(&root, level) else {
            return Ok(Used::TryAgain);
        };
        if enough(&v) {
            return Ok(Used::NotNeeded);
        }
        let (split, separator) = v.split_point(v.search(key).0, key);
        let (lower, upper) = (
            v.left_half(split, &separator, at[1]),
            v.right_half(split, &separator),
        );
        let mut top = Builder::new(level + 1, &[], None, Dba::NONE, None);
        top.push(&[], Some(at[0].0));
        top.push(&separator, Some(at[1].0));
        let top = top.finish();
        let (Some(mut left), Some(mut right)) = (
            self.store.try_latch(&lower_fresh),
            self.store.try_latch(&upper_fresh),
        ) else {
            return Ok(Used::TryAgain);
        };
        self.store.change(&mut [
            Step {
                guard: &mut root,
                op: Op::IndexReplace,
                payload: &top,
            },
            Step {
                guard: &mut left,
                op: Op::IndexFormat,
                payload: &lower,
            },
            Step {
                guard: &mut right,
                op: Op::IndexFormat,
                payload: &upper,
            },
        ])?;
        Ok(Used::Yes)
    }

    /// Puts the separator of a split into the parent. With the parent latched it does not wait for
    /// a block: if that is busy again and again, it gives up, which does no harm.
    pub(super) fn complete(&self, pending: &Pending) -> Result<()> {
        let level = pending.level + 1;
        for _ in 0..SEPARATOR_TRIES {
            self.store.reserve()?;
            let Some((mut parent, above)) =
                self.write_at(Target::Key(&pending.separator), level)?
            else {
                return Ok(());
            };
            if let Some(above) = above {
                drop(parent);
                self.complete(&above)?;
                continue;
            }
            let Some(v) = self.view(&parent, level) else {
                continue;
            };
            let (at, equal) = v.search(&pending.separator);
            if equal {
                return Ok(());
            }
            // The child may have died since. It cannot be freed while this holds the block that
            // would lead to it: a session that frees it comes here.
            let Some(child) = self.store.try_read(pending.child) else {
                drop(parent);
                drop(self.store.read(pending.child)?);
                continue;
            };
            let valid = self
                .view(&child, pending.level)
                .is_some_and(|c| !c.is_dead() && c.low() == pending.separator);
            drop(child);
            if !valid {
                return Ok(());
            }
            if v.room_for(&pending.separator) == Room::Full {
                drop(parent);
                self.split(level, &pending.separator, |v| {
                    v.room_for(&pending.separator) != Room::Full
                })?;
                continue;
            }
            self.shorten_prefix(&mut parent, level, &pending.separator)?;
            let mut payload = Vec::with_capacity(64);
            if let Some(v) = self.view(&parent, level) {
                insert_payload(
                    &mut payload,
                    &v,
                    at,
                    &pending.separator,
                    Some(pending.child),
                );
            }
            return self.alter(&mut parent, Op::IndexInsert, &payload);
        }
        Ok(())
    }

    /// Makes the block's prefix one that `key` has. There is room for that, as `room_for` said.
    pub(super) fn shorten_prefix(
        &self,
        guard: &mut S::Write<'_>,
        level: u16,
        key: &[u8],
    ) -> Result<()> {
        let room = self.view(guard, level).map(|v| v.room_for(key));
        let Some(Room::AfterPrefix(len)) = room else {
            return Ok(());
        };
        self.alter(guard, Op::IndexSetPrefix, &set_prefix_payload(len))
    }
}

/// The fate of the fresh blocks of a split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Used {
    Yes,
    NotNeeded,
    /// The root grew meanwhile, or a fresh block was busy because its former readers may not be
    /// done with it.
    TryAgain,
}
