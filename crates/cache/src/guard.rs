//! Pins and latches as values.

use crate::frame::{CLEAN, EXCLUSIVE, FrameIx, SHARED};
use crate::gcs::{Acquired, Admission, kept};
use crate::load::Brought;
use crate::{Cache, Result};
use block::{BlockBuf, Dba, Scn};
use fusion::gcs::Want;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use wait::{Stat, stat};

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Frame latches this thread holds.
pub fn latches_held() -> u32 {
    HELD.get()
}

/// Rule R7: to be called by whatever may wait.
#[track_caller]
pub(crate) fn assert_none_held(what: &str) {
    assert!(
        HELD.get() == 0,
        "invariant R7: {what} with {} frame latches held",
        HELD.get()
    );
}

/// Guards must be dropped by the thread that made them: they are not `Send`.
type NotSend = PhantomData<*const ()>;

/// A block latched shared, or a copy that another instance made.
pub struct ReadGuard<'a> {
    cache: &'a Cache,
    /// The frame's memory, or the copy's.
    block: NonNull<BlockBuf>,
    source: Source<'a>,
    _here: NotSend,
}

enum Source<'a> {
    Frame {
        ix: FrameIx,
        /// Ends after the latch.
        _admission: Option<Admission<'a>>,
    },
    Copy {
        _keeps: Arc<BlockBuf>,
    },
}

/// A block latched exclusively. Its contents are changed by [`Cache::change`] and [`WriteGuard::hint`] only.
pub struct WriteGuard<'a> {
    cache: &'a Cache,
    ix: FrameIx,
    /// Ends after the latch.
    admission: Option<Admission<'a>>,
    _here: NotSend,
}

impl<'a> ReadGuard<'a> {
    /// The caller has latched the frame shared and found the right block in it.
    pub(crate) fn of_latched(
        cache: &'a Cache,
        ix: FrameIx,
        admission: Option<Admission<'a>>,
    ) -> ReadGuard<'a> {
        HELD.set(HELD.get() + 1);
        stat::add(Stat::ConsistentGets, 1);
        ReadGuard {
            cache,
            block: NonNull::new(cache.memory.block(ix.0 as usize))
                .expect("invariant: no block is at address zero"),
            source: Source::Frame {
                ix,
                _admission: admission,
            },
            _here: PhantomData,
        }
    }

    /// Holds no latch.
    pub(crate) fn of_copy(cache: &'a Cache, copy: Arc<BlockBuf>) -> ReadGuard<'a> {
        stat::add(Stat::ConsistentGets, 1);
        ReadGuard {
            cache,
            block: NonNull::from(&*copy),
            source: Source::Copy { _keeps: copy },
            _here: PhantomData,
        }
    }

    /// Whether this is a copy: of its clock, not current.
    pub fn is_copy(&self) -> bool {
        matches!(self.source, Source::Copy { .. })
    }
}

impl Deref for ReadGuard<'_> {
    type Target = BlockBuf;
    #[inline]
    fn deref(&self) -> &BlockBuf {
        // SAFETY: the latch is held shared, so nobody writes, and the memory lives as long as the cache; or it is the copy's, kept by this guard.
        unsafe { self.block.as_ref() }
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        if let Source::Frame { ix, .. } = self.source {
            HELD.set(HELD.get() - 1);
            // SAFETY: this guard holds the latch shared.
            unsafe { self.cache.frame(ix).latch.unlock_shared() }
        }
    }
}

impl<'a> WriteGuard<'a> {
    /// The caller has latched the frame exclusively and found the right block in it.
    pub(crate) fn of_latched(
        cache: &'a Cache,
        ix: FrameIx,
        admission: Option<Admission<'a>>,
    ) -> WriteGuard<'a> {
        HELD.set(HELD.get() + 1);
        stat::add(Stat::DbBlockGets, 1);
        WriteGuard {
            cache,
            ix,
            admission,
            _here: PhantomData,
        }
    }

    /// The address of the frame's block, which a block not formatted yet does not have in its header.
    pub fn address(&self) -> Dba {
        self.cache.frame(self.ix).dba()
    }

    pub(crate) fn ix(&self) -> FrameIx {
        self.ix
    }

    /// The contents, for those who log or have logged the change.
    pub(crate) fn contents(&mut self) -> &mut BlockBuf {
        // SAFETY: the latch is held exclusively and `self` is borrowed exclusively; the memory lives as long as the cache.
        unsafe { &mut *self.cache.memory.block(self.ix.0 as usize) }
    }

    /// Makes an unlogged change that alters neither SCN nor meaning (cleanout, fill levels). It may be lost in a crash, and it is never written before redo
    /// that is in the log now.
    pub fn hint(&mut self, f: impl FnOnce(&mut BlockBuf)) {
        self.cache.mark_dirty(self.ix);
        f(self.contents());
        // When all die together no snapshot is left that could tell.
        if self.cache.is_clustered() {
            self.cache.frame(self.ix).stamped.store(true, Release);
        }
        self.cache.changed(self.ix, self.cache.redo.end().0);
    }
}

impl WriteGuard<'_> {
    /// Replays a change in recovery: `f` applies the vector of a record that stands at `record`, and tells whether it changed the block. The block counts as
    /// dirty since that record, so no checkpoint passes it before the block is written.
    pub fn replay<E>(
        &mut self,
        record: block::LogPos,
        f: impl FnOnce(&mut BlockBuf) -> std::result::Result<bool, E>,
    ) -> std::result::Result<bool, E> {
        let changed = f(self.contents())?;
        if changed {
            let frame = self.cache.frame(self.ix);
            frame.first_dirty.fetch_min(record.0, SeqCst);
            frame.since_copy.fetch_min(record.0, SeqCst);
        }
        Ok(changed)
    }
}

impl Deref for WriteGuard<'_> {
    type Target = BlockBuf;
    #[inline]
    fn deref(&self) -> &BlockBuf {
        // SAFETY: the latch is held exclusively; changes need `&mut self`.
        unsafe { &*self.cache.memory.block(self.ix.0 as usize) }
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        // SAFETY: this guard holds the latch exclusively.
        unsafe { self.cache.frame(self.ix).latch.unlock_exclusive() }
        // Only now can it be recalled, by this very call.
        drop(self.admission.take());
        kept::give_back_of(|| self.cache.frame(self.ix).dba());
    }
}

impl Cache {
    /// Before a change, under the exclusive latch: the block will have a change that is not on disk, logged at or after the log's present end.
    pub(crate) fn mark_dirty(&self, ix: FrameIx) {
        let frame = self.frame(ix);
        if frame.since_copy.load(Relaxed) == CLEAN {
            let end = self.redo.end().0;
            frame.since_copy.store(end, Relaxed);
            frame.first_dirty.fetch_min(end, SeqCst);
        }
    }

    /// After a change, under the exclusive latch. `position`: what must be durable before the block is written.
    pub(crate) fn changed(&self, ix: FrameIx, position: u64) {
        self.frame(ix).changed(position);
    }
}

/// A block kept in its frame. Holds no latch; may be kept for long, but every pin is a frame less for others.
pub struct Pin {
    cache: Arc<Cache>,
    ix: FrameIx,
}

impl Pin {
    /// The caller has counted the pin.
    pub(crate) fn of_counted(cache: Arc<Cache>, ix: FrameIx) -> Pin {
        Pin { cache, ix }
    }

    pub fn dba(&self) -> Dba {
        self.cache.frame(self.ix).dba()
    }

    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_> {
        self.cache
            .frame(self.ix)
            .latch
            .lock_shared(&self.cache.latch_group);
        ReadGuard::of_latched(&self.cache, self.ix, None)
    }

    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_> {
        self.cache
            .frame(self.ix)
            .latch
            .lock_exclusive(&self.cache.latch_group);
        WriteGuard::of_latched(&self.cache, self.ix, None)
    }

    pub fn try_write(&self) -> Option<WriteGuard<'_>> {
        self.cache
            .frame(self.ix)
            .latch
            .try_lock_exclusive()
            .then(|| WriteGuard::of_latched(&self.cache, self.ix, None))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let before = self.cache.frame(self.ix).pins.fetch_sub(1, Release);
        debug_assert!(before > 0, "invariant: a pin is dropped once");
    }
}

impl Cache {
    /// The current block latched shared; gets it from disk or another instance if it is in no frame. May wait: to be called with no latch held unless the block is
    /// known to be cached and this instance alone.
    #[track_caller]
    pub fn read(&self, dba: Dba) -> Result<ReadGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission = None;
        loop {
            match self.try_latch_shared(dba, SHARED, admission) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            admission = self.bring(dba, Want::Shared)?.current();
        }
    }

    /// The same for who is about to change the block: this instance has it exclusively, and a block that was asked for stays until the thread has had it latched exclusively, waits for
    /// anything, or looks at another one.
    #[track_caller]
    pub fn read_to_change(&self, dba: Dba) -> Result<ReadGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission: Option<Admission<'_>> = None;
        loop {
            if let Ok(guard) = self.try_latch_shared(dba, EXCLUSIVE, None) {
                admission.into_iter().for_each(kept::keep);
                return Ok(guard);
            }
            drop(admission);
            admission = self.bring(dba, Want::Exclusive)?.current();
        }
    }

    /// The block as a snapshot needs it: current, or a copy that another instance made when its clock had reached the snapshot. Nothing may be changed on the strength of it. May
    /// wait, but for no log flush (R3): to be called with no latch held.
    #[track_caller]
    pub fn read_as_of(&self, dba: Dba, snapshot: Scn) -> Result<ReadGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission = None;
        loop {
            match self.try_latch_shared(dba, SHARED, admission) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            admission = match self.bring(dba, Want::Read { snapshot })? {
                Brought::By(Acquired::Copy(copy)) => return Ok(ReadGuard::of_copy(self, copy)),
                other => other.current(),
            };
        }
    }

    /// Waits for the latch only. Gives the admission back if the block is not here in this mode, which is this instance's and may be stronger than the latch.
    #[track_caller]
    #[inline]
    fn try_latch_shared<'a>(
        &'a self,
        dba: Dba,
        mode: u8,
        admission: Option<Admission<'a>>,
    ) -> std::result::Result<ReadGuard<'a>, Option<Admission<'a>>> {
        let Some(ix) = self.find(dba) else {
            return Err(admission);
        };
        let frame = self.frame(ix);
        frame.latch.lock_shared(&self.latch_group);
        if self.holds(ix, dba, mode) {
            frame.touch();
            return Ok(ReadGuard::of_latched(self, ix, admission));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_shared() }
        Err(admission)
    }

    /// The same, exclusively.
    #[track_caller]
    #[inline]
    pub(crate) fn try_latch_exclusive<'a>(
        &'a self,
        dba: Dba,
        admission: Option<Admission<'a>>,
    ) -> std::result::Result<WriteGuard<'a>, Option<Admission<'a>>> {
        let Some(ix) = self.find(dba) else {
            return Err(admission);
        };
        let frame = self.frame(ix);
        frame.latch.lock_exclusive(&self.latch_group);
        if self.holds(ix, dba, EXCLUSIVE) {
            frame.touch();
            return Ok(WriteGuard::of_latched(self, ix, admission));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_exclusive() }
        Err(admission)
    }

    /// The current block latched exclusively; otherwise as [`Cache::read`].
    #[track_caller]
    pub fn write(&self, dba: Dba) -> Result<WriteGuard<'_>> {
        kept::give_back_unless(dba);
        let mut admission = None;
        loop {
            match self.try_latch_exclusive(dba, admission) {
                Ok(guard) => return Ok(guard),
                Err(unused) => drop(unused),
            }
            admission = self.bring(dba, Want::Exclusive)?.current();
        }
    }

    /// Only if the block is here in this mode and its latch free. Never waits.
    pub fn try_read(&self, dba: Dba) -> Option<ReadGuard<'_>> {
        let ix = self.find(dba)?;
        let frame = self.frame(ix);
        if !frame.latch.try_lock_shared() {
            return None;
        }
        if self.holds(ix, dba, SHARED) {
            frame.touch();
            return Some(ReadGuard::of_latched(self, ix, None));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_shared() }
        None
    }

    /// Only if the block is here in this mode and its latch free. Never waits.
    pub fn try_write(&self, dba: Dba) -> Option<WriteGuard<'_>> {
        let ix = self.find(dba)?;
        let frame = self.frame(ix);
        if !frame.latch.try_lock_exclusive() {
            return None;
        }
        if self.holds(ix, dba, EXCLUSIVE) {
            frame.touch();
            return Some(WriteGuard::of_latched(self, ix, None));
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_exclusive() }
        None
    }

    /// Keeps the block in its frame, for blocks that no other instance wants: its mode is not kept. Gets it if it is in none. May wait.
    #[track_caller]
    pub fn pin(self: &Arc<Self>, dba: Dba) -> Result<Pin> {
        loop {
            if let Some(pin) = self.try_pin(dba) {
                return Ok(pin);
            }
            self.bring(dba, Want::Shared)?;
        }
    }

    /// Only if the block is cached. Waits for nothing but a latch.
    pub fn try_pin(self: &Arc<Self>, dba: Dba) -> Option<Pin> {
        let ix = self.find(dba)?;
        let frame = self.frame(ix);
        frame.latch.lock_shared(&self.latch_group);
        let here = self.holds(ix, dba, SHARED);
        if here {
            frame.pins.fetch_add(1, Relaxed);
            frame.touch();
        }
        // SAFETY: just latched.
        unsafe { frame.latch.unlock_shared() }
        here.then(|| Pin::of_counted(self.clone(), ix))
    }
}
