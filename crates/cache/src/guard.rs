//! Pins and latches as values.

use crate::frame::{CLEAN, FrameIx};
use crate::gcs::{Admission, kept};
use crate::{Cache, held};
use block::{BlockBuf, Dba};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use wait::{Stat, segment};

/// Makes guards not `Send`: the thread that made a guard must drop it.
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

/// A block latched exclusively. Its contents are changed by [`Cache::change`] and
/// [`WriteGuard::hint`] only.
pub struct WriteGuard<'a> {
    cache: &'a Cache,
    ix: FrameIx,
    /// Ends after the latch.
    admission: Option<Admission<'a>>,
    _here: NotSend,
}

impl<'a> ReadGuard<'a> {
    /// A guard for a frame that the caller has latched shared, with the right block in it.
    pub(crate) fn of_latched(
        cache: &'a Cache,
        ix: FrameIx,
        admission: Option<Admission<'a>>,
    ) -> ReadGuard<'a> {
        held::count();
        segment::got(Stat::ConsistentGets);
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

    /// A guard for a copy, which holds no latch.
    pub(crate) fn of_copy(cache: &'a Cache, copy: Arc<BlockBuf>) -> ReadGuard<'a> {
        segment::got(Stat::ConsistentGets);
        ReadGuard {
            cache,
            block: NonNull::from(&*copy),
            source: Source::Copy { _keeps: copy },
            _here: PhantomData,
        }
    }

    /// Whether this is a copy, which is as of its maker's clock and not current.
    pub fn is_copy(&self) -> bool {
        matches!(self.source, Source::Copy { .. })
    }
}

impl Deref for ReadGuard<'_> {
    type Target = BlockBuf;
    #[inline]
    fn deref(&self) -> &BlockBuf {
        // SAFETY: the latch is held shared, so nobody writes, and the memory lives as long as the
        // cache; or it is the copy's, kept by this guard.
        unsafe { self.block.as_ref() }
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        if let Source::Frame { ix, .. } = self.source {
            held::uncount();
            // SAFETY: this guard holds the latch shared.
            unsafe { self.cache.frame(ix).latch.unlock_shared() }
        }
    }
}

impl<'a> WriteGuard<'a> {
    /// A guard for a frame that the caller has latched exclusively, with the right block in it.
    pub(crate) fn of_latched(
        cache: &'a Cache,
        ix: FrameIx,
        admission: Option<Admission<'a>>,
    ) -> WriteGuard<'a> {
        held::count();
        segment::got(Stat::DbBlockGets);
        WriteGuard {
            cache,
            ix,
            admission,
            _here: PhantomData,
        }
    }

    /// The address of the frame's block. A block that is not formatted yet does not have it in its
    /// header.
    pub fn address(&self) -> Dba {
        self.cache.frame(self.ix).dba()
    }

    pub(crate) fn ix(&self) -> FrameIx {
        self.ix
    }

    /// The contents, for code that logs the change or has logged it.
    pub(crate) fn contents(&mut self) -> &mut BlockBuf {
        // SAFETY: the latch is held exclusively and `self` is borrowed exclusively; the memory
        // lives as long as the cache.
        unsafe { &mut *self.cache.memory.block(self.ix.0 as usize) }
    }

    /// Makes an unlogged change that alters neither SCN nor meaning (cleanout, fill levels). It may
    /// be lost in a crash. It is never written before the redo that is in the log now.
    pub fn hint(&mut self, f: impl FnOnce(&mut BlockBuf)) {
        self.cache.mark_dirty(self.ix);
        f(self.contents());
        // On a lone instance this need not be known: if all die together, no snapshot is left that
        // could tell.
        if self.cache.is_clustered() {
            self.cache.frame(self.ix).stamped.store(true, Release);
        }
        self.cache.changed(self.ix, self.cache.redo.end().0);
    }
}

impl WriteGuard<'_> {
    /// Replays a change in recovery. `f` applies the vector of a record that stands at `record`,
    /// and tells whether it changed the block. The block counts as dirty since that record, so no
    /// checkpoint passes the record before the block is written.
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
        held::uncount();
        // SAFETY: this guard holds the latch exclusively.
        unsafe { self.cache.frame(self.ix).latch.unlock_exclusive() }
        // The block can be recalled only now, by this very call.
        drop(self.admission.take());
        kept::give_back_of(|| self.cache.frame(self.ix).dba());
    }
}

impl Cache {
    /// Marks a block dirty before a change. The change will be logged at or after the log's present
    /// end. The caller holds the latch exclusively.
    pub(crate) fn mark_dirty(&self, ix: FrameIx) {
        let frame = self.frame(ix);
        if frame.since_copy.load(Relaxed) == CLEAN {
            let end = self.redo.end().0;
            frame.since_copy.store(end, Relaxed);
            frame.first_dirty.fetch_min(end, SeqCst);
        }
    }

    /// Notes a change. Redo must be durable up to `position` before the block is written. The
    /// caller holds the latch exclusively.
    pub(crate) fn changed(&self, ix: FrameIx, position: u64) {
        self.frame(ix).changed(position);
    }
}

/// A block kept in its frame. A pin holds no latch. It may be kept for long, but every pin is a
/// frame less for others.
pub struct Pin {
    cache: Arc<Cache>,
    ix: FrameIx,
}

impl Pin {
    /// A pin that the caller has counted.
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
