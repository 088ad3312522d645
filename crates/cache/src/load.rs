//! Which block is in which frame: look-up, reading from disk, and finding a frame to read into.

use crate::frame::{CLEAN, CLOSED, EMPTY, EXCLUSIVE, FrameIx, LOADING, NONE};
use crate::gcs::{Acquired, Admission, is_private, kept};
use crate::guard::assert_none_held;
use crate::{Cache, IO_SHARDS, Pin, Result, WriteGuard};
use block::Dba;
use fusion::gcs::Want;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use storage::AlignedBuf;
use wait::{Event, Stat, stat};

/// A chain longer than this is being changed under the reader, or unlucky; the latched look-up decides.
const OPTIMISTIC_STEPS: usize = 32;
/// Blocks read at once ahead of a scan: 1 MiB.
pub(crate) const PREFETCH_BLOCKS: u32 = 128;

impl Cache {
    /// The frame that holds `dba`, perhaps. Takes no latch: the caller latches the frame and checks.
    #[inline]
    pub(crate) fn find(&self, dba: Dba) -> Option<FrameIx> {
        self.walk(self.bucket(dba), dba, OPTIMISTIC_STEPS)
    }

    pub(crate) fn walk(&self, bucket: usize, dba: Dba, steps: usize) -> Option<FrameIx> {
        let mut at = self.heads[bucket].load(Acquire);
        for _ in 0..steps {
            if at == NONE {
                return None;
            }
            let frame = &self.frames[at as usize];
            if frame.dba() == dba {
                return Some(FrameIx(at));
            }
            at = frame.next.load(Acquire);
        }
        None
    }

    /// Under the frame's latch: whether it holds the block, whole, in this mode ([`SHARED`], [`EXCLUSIVE`]) or a stronger one.
    #[inline]
    pub(crate) fn holds(&self, ix: FrameIx, dba: Dba, mode: u8) -> bool {
        let frame = self.frame(ix);
        frame.dba() == dba && frame.state.load(Acquire) >= mode
    }

    /// Gets the block into a frame in the mode that serves `want`, by reading it, waiting for whoever reads it, or asking for it. It may be gone again when this
    /// returns, unless an admission comes with it. A reader as of a snapshot may get a copy instead.
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
                // SAFETY: the frame is LOADING and this thread's: nobody else looks at the contents.
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

    /// A block that the caller is about to format: in a frame without having been read, zeroed unless it was cached already. Among instances it is this one's alone
    /// until somebody else asks for it, which nobody does before it is linked to something.
    #[track_caller]
    pub fn pin_new(self: &Arc<Self>, dba: Dba) -> Result<Pin> {
        assert_none_held("a frame is taken");
        loop {
            let alone = match is_private(dba) {
                true => None,
                false => match self.lone_load() {
                    Some(load) => Some(load),
                    None => {
                        let admission = self.acquire(dba, Want::Exclusive, true)?;
                        let pin = self.try_pin(dba);
                        drop(admission);
                        match pin {
                            Some(pin) => return Ok(pin),
                            None => continue,
                        }
                    }
                },
            };
            match self.claim(dba)? {
                Claim::Ours(ix) => {
                    // SAFETY: the frame is LOADING and this thread's.
                    unsafe { &mut *self.memory.block(ix.0 as usize) }.0.fill(0);
                    self.frame(ix).pins.fetch_add(1, Relaxed);
                    self.loaded(ix, dba, Some(EXCLUSIVE));
                    return Ok(Pin::of_counted(self.clone(), ix));
                }
                Claim::There(ix) => {
                    self.await_loaded(ix, dba);
                    if let Some(pin) = self.try_pin(dba) {
                        return Ok(pin);
                    }
                }
            }
            drop(alone);
        }
    }

    /// The same, latched exclusively. Others may come here all the same: who scans an extent that is another instance's to fill, or follows a stale pointer. The mode can be
    /// theirs again before the latch is had; then it is asked for anew. What the mode comes with lifts the clock above the block's last change, for a format
    /// vector is applied where the block's SCN is lower.
    #[track_caller]
    pub fn write_new(self: &Arc<Self>, dba: Dba) -> Result<WriteGuard<'_>> {
        let (mut admission, mut _pin) = (None, None);
        loop {
            match self.try_latch_exclusive(dba, admission.take()) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            if is_private(dba) || !self.is_clustered() {
                _pin = Some(self.pin_new(dba)?);
                continue;
            }
            admission = Brought::By(self.acquire(dba, Want::Exclusive, true)?).current();
        }
    }

    /// Reads those of the `n` contiguous blocks from `first` on that are not cached, in one go. A hint: errors are left for whoever reads the
    /// block itself.
    pub fn prefetch(&self, first: Dba, n: u32) {
        assert_none_held("blocks are read ahead");
        // Among instances each block is asked for by itself.
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
            // Other runs of other scans must not starve the frames: stop at the first that cannot be had at once.
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

    /// Finds the block's frame, or makes one of a victim, linked and LOADING.
    pub(crate) fn claim(&self, dba: Dba) -> Result<Claim> {
        kept::give_back();
        if let Some(ix) = self.find(dba) {
            return Ok(Claim::There(ix));
        }
        let victim = self.victim(dba)?;
        Ok(self.link(victim, dba))
    }

    fn link(&self, victim: FrameIx, dba: Dba) -> Claim {
        let bucket = self.bucket(dba);
        let chain = self.chain_latch(bucket).lock();
        if let Some(ix) = self.walk(bucket, dba, usize::MAX) {
            drop(chain);
            self.free.lock().push(victim);
            return Claim::There(ix);
        }
        let frame = self.frame(victim);
        debug_assert!(frame.state.load(Relaxed) == EMPTY && !frame.is_dirty());
        frame.state.store(LOADING, Release);
        frame.set_dba(dba);
        frame.next.store(self.heads[bucket].load(Relaxed), Release);
        self.heads[bucket].store(victim.0, Release);
        Claim::Ours(victim)
    }

    /// The loader is done: the block is there in this mode or, with none, the frame is free again.
    pub(crate) fn loaded(&self, ix: FrameIx, dba: Dba, mode: Option<u8>) {
        let frame = self.frame(ix);
        if let Some(mode) = mode {
            frame.touch();
            frame.state.store(mode, Release);
        } else {
            self.unlink(ix, dba);
            self.free.lock().push(ix);
        }
        let (mutex, condvar) = &self.io[ix.0 as usize % IO_SHARDS];
        drop(mutex.lock());
        condvar.notify_all();
    }

    pub(crate) fn await_loaded(&self, ix: FrameIx, dba: Dba) {
        let frame = self.frame(ix);
        let loading = || frame.dba() == dba && frame.state.load(Acquire) == LOADING;
        if !loading() {
            return;
        }
        let p = [u64::from(dba.file().0), u64::from(dba.block()), 0];
        wait::during(Event::ReadByOtherSession, p, || {
            let (mutex, condvar) = &self.io[ix.0 as usize % IO_SHARDS];
            let mut guard = mutex.lock();
            while loading() {
                condvar.wait(&mut guard);
            }
        });
    }

    /// Takes the frame out of its chain. It is this thread's: LOADING by it, or latched exclusively without pins.
    fn unlink(&self, ix: FrameIx, dba: Dba) {
        let bucket = self.bucket(dba);
        let _chain = self.chain_latch(bucket).lock();
        let frame = self.frame(ix);
        let next = frame.next.load(Relaxed);
        let mut at = self.heads[bucket].load(Relaxed);
        if at == ix.0 {
            self.heads[bucket].store(next, Release);
        } else {
            while self.frames[at as usize].next.load(Relaxed) != ix.0 {
                at = self.frames[at as usize].next.load(Relaxed);
                assert!(
                    at != NONE,
                    "invariant: a frame with a block is in the block's chain"
                );
            }
            self.frames[at as usize].next.store(next, Release);
        }
        frame.set_dba(Dba::NONE);
        frame.state.store(EMPTY, Release);
    }

    /// A frame that holds no block and belongs to the caller. Waits for `dbw0` if all are dirty or in use.
    fn victim(&self, dba: Dba) -> Result<FrameIx> {
        loop {
            let seen = self.writer.cleaned();
            if let Some(ix) = self.try_victim() {
                return Ok(ix);
            }
            let p = [u64::from(dba.file().0), u64::from(dba.block()), 0];
            wait::during(Event::FreeBuffer, p, || {
                self.writer.await_clean_frames(seen)
            })?;
        }
    }

    fn try_victim(&self) -> Option<FrameIx> {
        stat::add(Stat::FreeBufferRequested, 1);
        if let Some(ix) = self.free.lock().pop() {
            return Some(ix);
        }
        let n = self.frames.len();
        // Every frame may need as many passes as it was used; with one more, whatever is not pinned or dirty has been taken.
        for tried in 0..7 * n {
            let ix = FrameIx((self.hand.fetch_add(1, Relaxed) % n) as u32);
            if self.evict(ix) {
                return Some(ix);
            }
            if tried == n / 8 {
                self.writer.want_clean_frames();
            }
        }
        None
    }

    fn evict(&self, ix: FrameIx) -> bool {
        let frame = self.frame(ix);
        let usable = || {
            frame.state.load(Acquire) >= CLOSED
                && frame.pins.load(Acquire) == 0
                && !frame.is_dirty()
        };
        if !usable() || !frame.age() || !frame.latch.try_lock_exclusive() {
            return false;
        }
        // Pins are counted and blocks dirtied under the latch: what holds now holds until it is let go.
        let taken = usable() && self.empty(ix);
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_exclusive() }
        taken
    }

    /// Takes the block out of a frame that is latched exclusively, clean and not pinned. Then the frame is the caller's. False if the block cannot be let go now.
    pub(crate) fn empty(&self, ix: FrameIx) -> bool {
        let frame = self.frame(ix);
        debug_assert!(frame.pins.load(Relaxed) == 0 && !frame.is_dirty());
        let gone = self.let_go(ix, frame.dba());
        if gone {
            debug_assert_eq!(frame.first_dirty.load(Relaxed), CLEAN);
            self.unlink(ix, frame.dba());
            frame.last_change.store(0, Relaxed);
        }
        gone
    }
}

/// What [`Cache::bring`] brought.
pub(crate) enum Brought<'a> {
    /// The block is in a frame, or was a moment ago.
    Perhaps,
    By(Acquired<'a>),
}

impl<'a> Brought<'a> {
    /// Of a request for the current block: the right to latch it, if it was asked for.
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

pub(crate) enum Claim {
    /// Another session has it in a frame, or is reading it.
    There(FrameIx),
    /// Linked and LOADING, to be filled by the caller.
    Ours(FrameIx),
}
