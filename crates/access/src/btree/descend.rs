//! Finds the block of a level that a key belongs to.

use block::index::{IndexBlock, Side};
use block::{BlockBuf, Dba};

use super::{Store, Tree};
use crate::{Error, Result};

/// The number of restarts after which a descent takes the tree for damaged. Each concurrent change
/// sends it back once.
const MAX_RESTARTS: u32 = 10_000;

/// The target of a descent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'k> {
    /// The block that covers the key.
    Key(&'k [u8]),
    /// The block that covers the greatest key below this one. None stands for above every key.
    Before(Option<&'k [u8]>),
}

/// A split whose separator was missing in the parent.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub level: u16,
    pub separator: Vec<u8>,
    pub child: Dba,
}

impl Target<'_> {
    fn side(&self, block: &IndexBlock<'_>) -> Side {
        match *self {
            Target::Key(key) => block.side(key),
            Target::Before(None) if block.right().is_none() => Side::Here,
            Target::Before(None) => Side::Right,
            Target::Before(Some(key)) if key <= block.low() => Side::Below,
            Target::Before(Some(key)) if block.high().is_some_and(|high| key > high) => Side::Right,
            Target::Before(Some(_)) => Side::Here,
        }
    }
    fn child(&self, block: &IndexBlock<'_>) -> Option<Dba> {
        match *self {
            Target::Key(key) => block.child_for(key),
            Target::Before(key) => block.child_before(key),
        }
        .map(|(_, child)| child)
    }
}

/// A block that could not be latched with others held, because its latch or its mode was missing.
/// It has to be brought with everything let go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Missing {
    Shared(Dba),
    Exclusive(Dba),
}

/// The place of a latched block relative to a target.
pub(super) enum Place {
    Here,
    /// Go to the right sibling. With it comes the split that made that necessary, unless the block
    /// left behind is dead.
    Right(Dba, Option<Pending>),
    /// The way here was stale.
    Stale,
}

impl<S: Store> Tree<S> {
    /// The block, if it is one of this tree's at `level`.
    pub(super) fn view<'b>(&self, b: &'b BlockBuf, level: u16) -> Option<IndexBlock<'b>> {
        IndexBlock::new(b).filter(|v| b.object() == self.object && v.level() == level)
    }

    pub(super) fn place(&self, b: &BlockBuf, level: u16, target: Target<'_>) -> Place {
        let Some(v) = self.view(b, level) else {
            return Place::Stale;
        };
        match target.side(&v) {
            Side::Below => Place::Stale,
            _ if v.is_dead() => Place::Right(v.right(), None),
            Side::Here => Place::Here,
            Side::Right => {
                let separator = v.high().unwrap_or(&[]).to_vec();
                Place::Right(
                    v.right(),
                    Some(Pending {
                        level,
                        separator,
                        child: v.right(),
                    }),
                )
            }
        }
    }

    /// The address of the block at `level` for `target`, as of a moment ago, and a split found
    /// incomplete on that level. None if the tree is not that high.
    fn find(&self, target: Target<'_>, level: u16) -> Result<Option<Dba>> {
        'restart: for _ in 0..MAX_RESTARTS {
            let mut guard = self.store.read(self.root())?;
            let Some(mut at) = IndexBlock::new(&guard).map(|v| v.level()) else {
                return Err(self.corrupt("the root is no index block"));
            };
            if at < level {
                return Ok(None);
            }
            let mut dba = self.root();
            let mut from_dead = None;
            while at > level {
                let next = match self.place(&guard, at, target) {
                    Place::Here => {
                        at -= 1;
                        from_dead = None;
                        self.view(&guard, at + 1).and_then(|v| target.child(&v))
                    }
                    Place::Right(next, pending) => {
                        from_dead = pending.is_none().then_some(dba);
                        Some(next)
                    }
                    Place::Stale => {
                        drop(guard);
                        self.repair_if(from_dead, at)?;
                        continue 'restart;
                    }
                };
                let Some(next) = next.filter(|n| !n.is_none()) else {
                    continue 'restart;
                };
                drop(guard);
                dba = next;
                if at == level {
                    return Ok(Some(dba));
                }
                guard = self.store.read(dba)?;
            }
            return Ok(Some(dba));
        }
        Err(self.corrupt("a descent does not come to an end"))
    }

    /// Latches the block at `level` for `target` with `latch`. It moves right and starts over as
    /// need be. None if the tree is not that high.
    fn latched<'s, G: std::ops::Deref<Target = BlockBuf> + 's>(
        &'s self,
        target: Target<'_>,
        level: u16,
        hint: Option<Dba>,
        latch: impl Fn(&'s S, Dba) -> Result<G>,
    ) -> Result<Option<(G, Option<Pending>)>> {
        let mut start = hint;
        for _ in 0..MAX_RESTARTS {
            let mut dba = match start.take() {
                Some(dba) => dba,
                None => match self.find(target, level)? {
                    Some(dba) => dba,
                    None => return Ok(None),
                },
            };
            let (mut pending, mut from_dead) = (None, None);
            loop {
                let guard = latch(&self.store, dba)?;
                match self.place(&guard, level, target) {
                    Place::Here => return Ok(Some((guard, pending))),
                    Place::Right(next, split) if !next.is_none() => {
                        from_dead = split.is_none().then_some(dba);
                        pending = split.or(pending);
                        dba = next;
                    }
                    _ => {
                        drop(guard);
                        self.repair_if(from_dead, level)?;
                        break;
                    }
                }
            }
        }
        Err(self.corrupt("a descent does not come to an end"))
    }

    pub(super) fn read_at(&self, target: Target<'_>, level: u16) -> Result<Option<S::Read<'_>>> {
        Ok(self
            .latched(target, level, None, |s, dba| s.read(dba))?
            .map(|(guard, _)| guard))
    }

    /// The leaf for `target`, latched shared. It tries `hint` first.
    pub(super) fn read_leaf(&self, target: Target<'_>, hint: Option<Dba>) -> Result<S::Read<'_>> {
        match self.latched(target, 0, hint, |s, dba| s.read(dba))? {
            Some((guard, _)) => Ok(guard),
            None => Err(self.corrupt("the tree has no leaves")),
        }
    }

    /// The block at `level` for `target`, latched exclusively, and a split on the way there that
    /// was incomplete.
    pub(super) fn write_at(
        &self,
        target: Target<'_>,
        level: u16,
    ) -> Result<Option<(S::Write<'_>, Option<Pending>)>> {
        self.latched(target, level, None, |s, dba| s.write(dba))
    }

    /// The leaf for `key`, latched exclusively. A split that is found incomplete is completed.
    pub(super) fn write_leaf(&self, key: &[u8]) -> Result<S::Write<'_>> {
        self.leaf(key, |s, dba| s.write(dba))
    }

    /// The leaf for `key`, latched by `latch`. A split that is found incomplete is completed.
    pub(super) fn leaf<'s, G: std::ops::Deref<Target = BlockBuf> + 's>(
        &'s self,
        key: &[u8],
        latch: impl Fn(&'s S, Dba) -> Result<G>,
    ) -> Result<G> {
        let mut completed = false;
        loop {
            let Some((guard, pending)) = self.latched(Target::Key(key), 0, None, &latch)? else {
                return Err(self.corrupt("the tree has no leaves"));
            };
            match pending {
                Some(pending) if !completed => {
                    drop(guard);
                    match self.complete(&pending) {
                        // The tree does without the separator: a session that undoes or deletes
                        // needs no space, and may make some.
                        Ok(()) | Err(Error::DiskFull(_)) => completed = true,
                        Err(e) => return Err(e),
                    }
                }
                _ => return Ok(guard),
            }
        }
    }

    /// Waits until the block is in this instance in the mode that a try lacked. The block may be
    /// gone again when this returns.
    pub(super) fn bring(&self, missing: Missing) -> Result<()> {
        match missing {
            Missing::Shared(dba) => drop(self.store.read(dba)?),
            Missing::Exclusive(dba) => drop(self.store.write(dba)?),
        }
        Ok(())
    }

    pub(super) fn corrupt(&self, what: &str) -> Error {
        Error::IndexCorrupt {
            object: self.object,
            what: what.to_string(),
        }
    }
}
