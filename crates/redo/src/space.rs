//! Room in the log files: from the checkpoint, which keeps old log alive, to the end.
//!
//! There are three marks, from below. From half of the capacity on, a checkpoint is *wanted*.
//! Beyond `capacity - reserve` the log is *full* for threads that ask before they take a latch. The
//! *limit* itself is never passed.
//!
//! The reserve holds one record, with a batch of its own, of every thread that passed the check and
//! has not appended yet, and of the background threads, which do not ask.

use seam::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Space {
    checkpoint: AtomicU64,
    /// The end up to which `wait_for_space` has nothing to do. It is the mark "wanted", which moves
    /// on each time it was reported.
    quiet: AtomicU64,
    capacity: u64,
    reserve: u64,
    lock: Mutex<()>,
    advanced: Condvar,
}

impl Space {
    pub fn new(checkpoint: u64, capacity: u64, reserve: u64) -> Space {
        assert!(2 * reserve <= capacity);
        Space {
            checkpoint: AtomicU64::new(checkpoint),
            quiet: AtomicU64::new(checkpoint + capacity / 2),
            capacity,
            reserve,
            lock: Mutex::new(()),
            advanced: Condvar::new(),
        }
    }

    pub fn checkpoint(&self) -> u64 {
        self.checkpoint.load(Ordering::Acquire)
    }
    /// The position beyond which no record may end, its padding included.
    pub fn limit(&self) -> u64 {
        self.checkpoint() + self.capacity - crate::batch::LOG_BLOCK as u64
    }
    pub fn left(&self, end: u64) -> u64 {
        (self.checkpoint() + self.capacity - self.reserve).saturating_sub(end)
    }
    #[inline]
    pub fn is_short(&self, end: u64) -> bool {
        end > self.quiet.load(Ordering::Relaxed)
    }
    pub fn is_full(&self, end: u64) -> bool {
        self.left(end) == 0
    }

    /// Whether it is time to ask for a checkpoint: once beyond half of the capacity, again at every
    /// further sixteenth, and always when full.
    pub fn wants_checkpoint(&self, end: u64) -> bool {
        let quiet = self.quiet.load(Ordering::Relaxed);
        if end <= quiet {
            return false;
        }
        let next = (end + self.capacity / 16).min(self.checkpoint() + self.capacity - self.reserve);
        self.quiet.fetch_max(next, Ordering::Relaxed);
        true
    }

    pub fn advance(&self, checkpoint: u64) {
        let _lock = self.lock.lock();
        if self.checkpoint.fetch_max(checkpoint, Ordering::AcqRel) < checkpoint {
            self.quiet
                .store(checkpoint + self.capacity / 2, Ordering::Relaxed);
        }
        self.advanced.notify_all();
    }

    /// Waits until the log is no longer full at `end`, or until `give_up` says so.
    pub fn wait(&self, end: u64, give_up: impl Fn() -> bool) {
        let mut lock = self.lock.lock();
        while self.is_full(end) && !give_up() {
            self.advanced.wait(&mut lock);
        }
    }

    pub fn wake_all(&self) {
        let _lock = self.lock.lock();
        self.advanced.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_move_with_the_checkpoint() {
        let s = Space::new(0, 1 << 20, 1 << 16);
        assert!(!s.is_short(1 << 19) && s.is_short((1 << 19) + 1));
        assert!(s.wants_checkpoint((1 << 19) + 1) && !s.wants_checkpoint((1 << 19) + 2));
        assert!(s.is_full((1 << 20) - (1 << 16)) && !s.is_full((1 << 20) - (1 << 16) - 1));
        s.advance(4096);
        assert!(!s.is_full((1 << 20) - (1 << 16)) && !s.is_short(1 << 19));
    }
}
