//! Bringing blocks into frames: from disk, or by a request to other instances.

use crate::frame::EXCLUSIVE;
use crate::frames::Claim;
use crate::gcs::{Acquired, Admission, is_private};
use crate::held::assert_none_held;
use crate::{Cache, Result};
use block::Dba;
use fusion::gcs::Want;
use storage::AlignedBuf;
use wait::{Stat, stat};

/// Blocks that are read at once ahead of a scan: 1 MiB.
pub(crate) const PREFETCH_BLOCKS: u32 = 128;

impl Cache {
    /// Gets the block into a frame in the mode that serves `want`. This reads the block, waits for
    /// the session that reads it, or asks another instance for it. The block may be gone again when
    /// this returns, unless an admission comes with it. A reader as of a snapshot may get a copy
    /// instead.
    #[track_caller]
    pub(crate) fn bring(&self, dba: Dba, want: Want) -> Result<Brought<'_>> {
        assert_none_held("a block is read");
        let alone = match is_private(dba) {
            true => None,
            false => match self.lone_load() {
                Some(load) => Some(load),
                None => return self.acquire(dba, want, false).map(Brought::By),
            },
        };
        match self.claim(dba)? {
            Claim::There(ix) => self.await_loaded(ix, dba),
            Claim::Ours(ix) => {
                // SAFETY: the frame is LOADING and this thread's: nobody else looks at the
                // contents.
                let result = self
                    .files
                    .read_block(dba, unsafe { &mut *self.memory.block(ix.0 as usize) });
                self.loaded(ix, dba, result.is_ok().then_some(EXCLUSIVE));
                result?;
            }
        }
        drop(alone);
        Ok(Brought::Perhaps)
    }

    /// Reads those of the `n` contiguous blocks from `first` on that are not cached, in one go.
    /// This is a hint: an error is left to the session that reads the block itself.
    pub fn prefetch(&self, first: Dba, n: u32) {
        assert_none_held("blocks are read ahead");
        // Among instances each block must be asked for by itself.
        let Some(_alone) = self.lone_load() else {
            return;
        };
        let n = n.min(PREFETCH_BLOCKS);
        let mut at = 0;
        while at < n {
            let missing = |i: &u32| self.find(first.plus(*i)).is_none();
            let Some(from) = (at..n).find(missing) else {
                return;
            };
            let to = (from..n).find(|i| !missing(i)).unwrap_or(n);
            self.read_run(first.plus(from), to - from);
            at = to;
        }
    }

    fn read_run(&self, first: Dba, n: u32) {
        let mut ours = Vec::new();
        for i in 0..n {
            // The runs of scans must not starve others of frames, so a run stops at the first frame
            // that cannot be had at once.
            let Some(victim) = self.try_victim() else {
                break;
            };
            match self.link(victim, first.plus(i)) {
                Claim::Ours(ix) => ours.push(ix),
                Claim::There(_) => break,
            }
        }
        if ours.is_empty() {
            return;
        }
        let mut buf = AlignedBuf::default();
        let mut done = 0;
        let result = self
            .files
            .read_blocks(first, ours.len(), &mut buf, |dba, block, verdict| {
                let ix = ours[done];
                done += 1;
                // SAFETY: the frame is LOADING and this thread's.
                unsafe { &mut *self.memory.block(ix.0 as usize) }
                    .0
                    .copy_from_slice(&block.0);
                self.loaded(ix, dba, verdict.is_ok().then_some(EXCLUSIVE));
            });
        stat::add(Stat::PrefetchedBlocks, done as u64);
        debug_assert!(result.is_err() || done <= ours.len());
        for (i, ix) in ours.iter().enumerate().skip(done) {
            self.loaded(*ix, first.plus(i as u32), None);
        }
    }
}

/// The result of [`Cache::bring`].
pub(crate) enum Brought<'a> {
    /// The block is in a frame, or was a moment ago.
    Perhaps,
    By(Acquired<'a>),
}

impl<'a> Brought<'a> {
    /// The right to latch the block, if it had to be asked for. Only for requests for the current
    /// block.
    pub(crate) fn current(self) -> Option<Admission<'a>> {
        match self {
            Brought::Perhaps => None,
            Brought::By(Acquired::Here(admission)) => Some(admission),
            Brought::By(Acquired::Copy(_)) => {
                unreachable!("invariant: only readers as of a snapshot get copies")
            }
        }
    }
}
