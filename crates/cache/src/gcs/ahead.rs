//! Several blocks asked for at once, for a reader that knows which it needs next: one wait instead
//! of one for each block.
//!
//! **Owns** the copies that other instances have made for one reader ([`AskedAhead`]). What may be
//! cached comes into frames, as for a reader of one block.
//!
//! **Invariants.**
//! - A session keeps no right to a block while it waits for others (R7). A block that is here is
//!   put into a frame, and may go again before it is read; then it is asked for by itself. A block
//!   that is to be read from disk is read before the session waits on.
//! - A copy is good for the snapshot that it was asked with, and only while its maker is known to
//!   live: as many copies are lost as when it was asked for.

use super::admission::Admission;
use super::kept;
use super::session::Fill;
use super::slot::{Slot, Told};
use crate::frame::{EXCLUSIVE, SHARED};
use crate::held::assert_none_held;
use crate::{Cache, Result};
use block::{BlockBuf, Dba, Scn};
use fusion::gcs::Want;
use seam::HashMap;
use std::sync::Arc;
use wait::{Event, Stat, stat};

/// The most blocks that are asked for at once: copies of them take 512 KiB of the reader's memory.
pub const AHEAD_BLOCKS: usize = 64;

/// Copies that were made for a reader before it came to them. Only one statement's scan uses them.
#[derive(Clone, Default)]
pub struct AskedAhead {
    snapshot: Scn,
    /// [`Cache::copies_lost`] before the copies were asked for.
    lost: u64,
    copies: Vec<(Dba, Arc<BlockBuf>)>,
}

impl AskedAhead {
    /// The copy of a block, if it is still good for the snapshot.
    pub(crate) fn copy(&self, cache: &Cache, dba: Dba, snapshot: Scn) -> Option<Arc<BlockBuf>> {
        let (_, copy) = self.copies.iter().find(|(of, _)| *of == dba)?;
        let good = self.snapshot == snapshot && self.lost == cache.copies_lost();
        good.then(|| copy.clone())
    }
}

impl Cache {
    /// Gets those of the blocks that are not here, the first [`AHEAD_BLOCKS`] of them, all at once:
    /// into frames, or as copies into `ahead`, whose copies of before are dropped. This is a hint:
    /// a block that cannot be read is left to the session that reads it. Does nothing on a lone
    /// instance.
    ///
    /// May wait, but for no log flush (R3): the caller must hold no latch.
    pub fn ask_ahead(&self, blocks: &[Dba], snapshot: Scn, ahead: &mut AskedAhead) -> Result<()> {
        assert_none_held("blocks of other instances are waited for");
        ahead.copies.clear();
        if !self.is_clustered() {
            return Ok(());
        }
        let missing = self.missing(blocks, SHARED);
        (ahead.snapshot, ahead.lost) = (snapshot, self.copies_lost());
        self.await_all(&missing, Want::Read { snapshot }, &mut ahead.copies)
    }

    /// Like [`Cache::ask_ahead`], for a caller that is about to change the blocks. They come
    /// exclusively, and may leave again before they are changed.
    ///
    /// May wait, also for a log flush: the caller must hold no latch.
    pub fn ask_ahead_to_change(&self, blocks: &[Dba]) -> Result<()> {
        assert_none_held("blocks of other instances are waited for");
        if !self.is_clustered() {
            return Ok(());
        }
        let missing = self.missing(blocks, EXCLUSIVE);
        self.await_all(&missing, Want::Exclusive, &mut Vec::new())
    }

    /// The first [`AHEAD_BLOCKS`] of the blocks that are not here in this mode. Of one alone
    /// nothing is said: it is asked for when it is used.
    fn missing(&self, blocks: &[Dba], mode: u8) -> Vec<Dba> {
        let is_missing = |dba: &Dba| match self.find(*dba) {
            Some(ix) => !self.holds(ix, *dba, mode),
            None => true,
        };
        let mut missing: Vec<Dba> = blocks.iter().copied().filter(is_missing).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.truncate(AHEAD_BLOCKS);
        if missing.len() < 2 {
            missing.clear();
        }
        missing
    }

    fn await_all(
        &self,
        blocks: &[Dba],
        want: Want,
        copies: &mut Vec<(Dba, Arc<BlockBuf>)>,
    ) -> Result<()> {
        kept::give_back();
        if blocks.is_empty() {
            return Ok(());
        }
        let slot = Arc::new(Slot::default());
        let mut waits = HashMap::default();
        let mut first = None;
        for &dba in blocks {
            let (waiter, asked) = self.ask(dba, want, &slot);
            first.get_or_insert(asked);
            waits.insert(waiter, dba);
        }
        let (Some(mut asked), Some(from)) = (first, blocks.first()) else {
            return Ok(());
        };
        stat::add(Stat::GcBlocksAskedAhead, blocks.len() as u64);
        let p = [
            u64::from(from.file().0),
            u64::from(from.block()),
            blocks.len() as u64,
        ];
        let event = Event::GcMultiBlockRequest;
        let session = wait::session::current_cancellable();
        let mut cancelled = false;
        let mut failed = None;
        while !waits.is_empty() {
            let cancellable = session.as_deref().filter(|_| !cancelled);
            let news = slot.wait_for_any(event, p, asked, cancellable);
            if news.is_empty() {
                cancelled = true;
                // Those that are about to be told are waited for.
                waits.retain(|&waiter, dba| {
                    let withdrawn = self.withdraw(*dba, waiter);
                    if withdrawn {
                        slot.end(waiter);
                    }
                    !withdrawn
                });
                continue;
            }
            let mut to_read = Vec::new();
            for (waiter, told) in news {
                let Some(&dba) = waits.get(&waiter) else {
                    continue;
                };
                match told {
                    Told::Copy(copy) => {
                        stat::add(Stat::GcCrBlocksReceived, 1);
                        copies.push((dba, copy));
                        waits.remove(&waiter);
                    }
                    Told::Run => {
                        waits.remove(&waiter);
                        let _until_it_has_a_frame = Admission {
                            cache: self,
                            dba,
                            waiter,
                        };
                        // Nobody else is to wait for what this session waits for no more.
                        failed = self.settle(dba).err().or(failed);
                    }
                    Told::Read => to_read.push((waiter, dba)),
                    Told::GiveUp => {}
                }
            }
            for (waiter, dba) in to_read {
                if self.read_granted(dba, Fill::Disk).is_err() {
                    self.give_up(dba, waiter);
                    slot.end(waiter);
                    waits.remove(&waiter);
                }
            }
            asked.at_ns = wait::timestamp_ns();
        }
        match failed {
            Some(e) => Err(e),
            None if cancelled => Err(wait::Cancelled.into()),
            None => Ok(()),
        }
    }
}
