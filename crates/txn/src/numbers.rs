//! Transaction numbers. They are drawn from ranges that the control file holds as possibly used, so
//! none is ever drawn twice (race 23 of docs/design.md).

use crate::Result;
use crate::status::{CHUNK, StatusArray};
use block::ThreadId;
use seam::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::ControlFile;

/// Numbers reserved at a time: two seconds' worth at 8,000 transactions a second, and 128 KiB of
/// status words that a restart leaves behind.
const RANGE: u64 = 16 * CHUNK;

pub(crate) struct Numbers {
    thread: ThreadId,
    control: Arc<ControlFile>,
    next: AtomicU64,
    /// Numbers below this may be drawn.
    reserved: AtomicU64,
    reserving: Mutex<()>,
}

impl Numbers {
    /// Numbers below `used` may have been drawn. Draws begin above it, in a chunk of their own.
    pub(crate) fn new(thread: ThreadId, control: Arc<ControlFile>, used: u64) -> Numbers {
        let start = used.max(1).next_multiple_of(CHUNK);
        Numbers {
            thread,
            control,
            next: AtomicU64::new(start),
            reserved: AtomicU64::new(0),
            reserving: Mutex::new(()),
        }
    }

    /// The lowest number that is not drawn yet.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Draws a number. Writes the control file once in a range, unless [`Numbers::reserve_ahead`]
    /// did.
    ///
    /// `cover` is called with a number of chunks and makes the status file have space for them.
    /// Otherwise a checkpoint could find no space and not go on, and the log would fill up.
    pub(crate) fn draw(
        &self,
        words: &StatusArray,
        cover: impl Fn(u64) -> Result<()>,
    ) -> Result<u64> {
        loop {
            // The number is reserved before it is drawn. Otherwise a number whose reservation fails
            // would be lost, and its status word with it.
            let number = self.next.load(Ordering::Acquire);
            if number >= self.reserved.load(Ordering::Acquire) {
                self.reserve(number + 1, words, &cover)?;
            } else if self
                .next
                .compare_exchange(number, number + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Ok(number);
            }
        }
    }

    /// Reserves a further range when half of the present one is drawn. For a background worker.
    pub(crate) fn reserve_ahead(
        &self,
        words: &StatusArray,
        cover: impl Fn(u64) -> Result<()>,
    ) -> Result<()> {
        self.reserve(self.next() + RANGE / 2, words, &cover)
    }

    fn reserve(
        &self,
        wanted: u64,
        words: &StatusArray,
        cover: &impl Fn(u64) -> Result<()>,
    ) -> Result<()> {
        let _one = self.reserving.lock();
        if wanted <= self.reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        let to = wanted.max(self.next()) + RANGE;
        cover(to / CHUNK + 1)?;
        self.control.update(|c| {
            let thread = c
                .thread_mut(self.thread)
                .expect("invariant: an open thread is in the control file");
            thread.txn_reserved = to;
        })?;
        // Every number that can be drawn has its status word.
        (self.next() / CHUNK..=to / CHUNK).for_each(|chunk| words.with_chunk(chunk, |_| ()));
        self.reserved.store(to, Ordering::Release);
        Ok(())
    }
}
