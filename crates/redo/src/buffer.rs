//! The log buffer's memory: a ring of log blocks addressed by log position.
//!
//! The compiler does not know who may touch which bytes, but the rule is simple:
//! - `[durable, start of the open batch)` belongs to the one thread that leads the flush;
//! - `[start of the open batch, durable + size)` belongs to the holder of the log latch.
//!
//! A closed batch passes from the second range to the first under the log latch. A written batch
//! passes back when the durable position is published.

use crate::batch::LOG_BLOCK;
use std::cell::UnsafeCell;

pub(crate) struct Buffer {
    /// The memory, a log block larger than what is used, for the sake of alignment.
    memory: Box<[UnsafeCell<u8>]>,
    /// Where the first log block starts in the memory.
    start: usize,
}

// SAFETY: the bytes are handed out by position ranges, whose owners the module head names. The
// `unsafe` methods put the duty on their callers.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `bytes`, a multiple of the log block.
    ///
    /// The system gives the memory as zeroes, so a log that writes little never touches most of it.
    /// It is asked for without an alignment: with one, the allocator would touch all of it.
    pub fn new(bytes: usize) -> Buffer {
        assert!(bytes > 0 && bytes.is_multiple_of(LOG_BLOCK));
        let memory = Box::<[UnsafeCell<u8>]>::new_zeroed_slice(bytes + LOG_BLOCK);
        // SAFETY: every value of a byte is valid, zero too.
        let memory = unsafe { memory.assume_init() };
        let start = memory.as_ptr().addr().next_multiple_of(LOG_BLOCK) - memory.as_ptr().addr();
        Buffer { memory, start }
    }

    pub fn size(&self) -> usize {
        self.memory.len() - LOG_BLOCK
    }

    /// Copies `from` to position `pos`.
    ///
    /// # Safety
    /// The caller owns `[pos, pos + from.len())` by the module's rules. The range is no longer than
    /// the buffer.
    pub unsafe fn put(&self, pos: u64, from: &[u8]) {
        debug_assert!(from.len() <= self.size());
        let at = (pos % self.size() as u64) as usize;
        let first = from.len().min(self.size() - at);
        // SAFETY: both ranges lie within `memory` and are owned by the caller. They cannot overlap
        // `from`, which the caller borrows.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), self.base().add(at), first);
            std::ptr::copy_nonoverlapping(from[first..].as_ptr(), self.base(), from.len() - first);
        }
    }

    /// The bytes of `[from, to)` in one or two pieces.
    ///
    /// # Safety
    /// The caller owns the range by the module's rules for as long as it keeps the slices.
    #[expect(
        clippy::mut_from_ref,
        reason = "ownership goes by position range, see the module"
    )]
    pub unsafe fn pieces(&self, from: u64, to: u64) -> [&mut [u8]; 2] {
        let len = (to - from) as usize;
        assert!(len <= self.size());
        let at = (from % self.size() as u64) as usize;
        let first = len.min(self.size() - at);
        // SAFETY: both ranges lie within `memory`, do not overlap each other, and are owned by the
        // caller.
        unsafe {
            [
                std::slice::from_raw_parts_mut(self.base().add(at), first),
                std::slice::from_raw_parts_mut(self.base(), len - first),
            ]
        }
    }

    fn base(&self) -> *mut u8 {
        UnsafeCell::raw_get(self.memory[self.start..].as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap_around() {
        let b = Buffer::new(2 * LOG_BLOCK);
        // SAFETY: one thread, ranges used one after the other.
        unsafe {
            b.put(3 * 4096 + 4000, &[5; 200]);
            let [x, y] = b.pieces(3 * 4096 + 4000, 3 * 4096 + 4200);
            assert_eq!((x.len(), y.len()), (96, 104));
            assert!(x.iter().chain(y.iter()).all(|&v| v == 5));
            assert_eq!(b.pieces(0, 4096)[0].as_ptr() as usize % 4096, 0);
        }
    }
}
