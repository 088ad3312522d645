//! The memory of the buffers: one anonymous mapping, in huge pages if the kernel gives them. It is
//! touched only as frames are used.

use crate::{Error, Result};
use block::{BLOCK_SIZE, BlockBuf};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

pub(crate) struct BlockMemory {
    base: NonNull<BlockBuf>,
    count: usize,
}

// SAFETY: the mapping is plain memory. The frames' latches decide who may touch which block when.
unsafe impl Send for BlockMemory {}
// SAFETY: as above.
unsafe impl Sync for BlockMemory {}

impl BlockMemory {
    pub(crate) fn new(count: usize) -> Result<BlockMemory> {
        let bytes = count * BLOCK_SIZE;
        let failed = |e: rustix::io::Errno| Error::Memory {
            bytes,
            source: e.into(),
        };
        // SAFETY: a new private mapping at an address the kernel chooses overlaps nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .map_err(failed)?;
        // SAFETY: the range is the mapping just made. Refusal costs speed only.
        let _ = unsafe { madvise(base, bytes, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast::<BlockBuf>())
            .ok_or_else(|| failed(rustix::io::Errno::NOMEM))?;
        Ok(BlockMemory { base, count })
    }

    /// The block of frame `at`. The caller must know whether it may be read or written.
    pub(crate) fn block(&self, at: usize) -> *mut BlockBuf {
        assert!(at < self.count);
        // SAFETY: within the mapping, which is page aligned as `BlockBuf` needs, and zero bytes are
        // a valid block.
        unsafe { self.base.as_ptr().add(at) }
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it when the cache is
        // dropped.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.count * BLOCK_SIZE) };
    }
}
