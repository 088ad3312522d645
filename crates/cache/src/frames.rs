//! Which block is in which frame: looking a block up, finding a frame to read into, and taking a
//! block out of its frame.

use crate::Cache;
use crate::Result;
use crate::cache::IO_SHARDS;
use crate::frame::{CLEAN, CLOSED, EMPTY, FrameIx, LOADING, NONE};
use crate::gcs::kept;
use block::Dba;
use std::sync::atomic::Ordering::*;
use wait::{Event, Stat, stat};

/// The most frames of a chain that a look-up without a latch follows. A longer chain is being
/// changed under the reader, or unlucky, and the latched look-up decides.
const OPTIMISTIC_STEPS: usize = 32;
impl Cache {
    /// The frame that may hold `dba`. Takes no latch: the caller latches the frame and checks.
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

    /// Whether the frame holds the block, whole, in this mode ([`SHARED`], [`EXCLUSIVE`]) or a
    /// stronger one. The caller has the frame latched.
    #[inline]
    pub(crate) fn holds(&self, ix: FrameIx, dba: Dba, mode: u8) -> bool {
        let frame = self.frame(ix);
        frame.dba() == dba && frame.state.load(Acquire) >= mode
    }

    /// Finds the block's frame, or links a victim as a LOADING frame of the block.
    pub(crate) fn claim(&self, dba: Dba) -> Result<Claim> {
        kept::give_back();
        if let Some(ix) = self.find(dba) {
            return Ok(Claim::There(ix));
        }
        let victim = self.victim(dba)?;
        Ok(self.link(victim, dba))
    }

    pub(crate) fn link(&self, victim: FrameIx, dba: Dba) -> Claim {
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

    /// Ends the loading of a frame. With a mode the block is there in this mode. Without one the
    /// frame is free again.
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

    /// Takes the frame out of its chain. The frame must be this thread's: LOADING by it, or latched
    /// exclusively without pins.
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

    /// Gives the caller a frame that holds no block. Waits for `dbw0` if all frames are dirty or in
    /// use.
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

    pub(crate) fn try_victim(&self) -> Option<FrameIx> {
        stat::add(Stat::FreeBufferRequested, 1);
        if let Some(ix) = self.free.lock().pop() {
            return Some(ix);
        }
        let n = self.frames.len();
        // Every frame may need as many passes as it was used. One pass more has taken every frame
        // that is not pinned or dirty.
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
        // Pins are counted and blocks dirtied under the latch, so what is true now stays true until
        // the latch is let go.
        let taken = usable() && self.empty(ix);
        // SAFETY: latched above.
        unsafe { frame.latch.unlock_exclusive() }
        taken
    }

    /// Takes the block out of a frame that is latched exclusively, clean and not pinned. Then the
    /// frame is the caller's. Returns false if the block cannot be let go now.
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

/// The frame that [`Cache::claim`] found or made.
pub(crate) enum Claim {
    /// The block is in a frame already, or another session is reading it.
    There(FrameIx),
    /// The frame is linked and LOADING. The caller must fill it.
    Ours(FrameIx),
}
