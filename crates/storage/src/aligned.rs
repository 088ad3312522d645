//! Memory fit for direct I/O.

use crate::SECTOR;
use std::ops::{Deref, DerefMut};

#[repr(C, align(4096))]
#[derive(Clone)]
struct Sector([u8; SECTOR]);

const _: () = assert!(size_of::<Sector>() == SECTOR && align_of::<Sector>() == SECTOR);

/// A growable buffer of whole, aligned sectors.
#[derive(Clone, Default)]
pub struct AlignedBuf {
    sectors: Vec<Sector>,
}

impl AlignedBuf {
    /// A buffer of `len` zeros; `len` is a multiple of [`SECTOR`].
    pub fn zeroed(len: usize) -> AlignedBuf {
        assert!(len.is_multiple_of(SECTOR));
        AlignedBuf {
            sectors: vec![Sector([0; SECTOR]); len / SECTOR],
        }
    }

    /// Grows or shrinks to `len` bytes, a multiple of [`SECTOR`]. New bytes are zero.
    pub fn resize(&mut self, len: usize) {
        assert!(len.is_multiple_of(SECTOR));
        self.sectors.resize(len / SECTOR, Sector([0; SECTOR]));
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: sectors are contiguous arrays of bytes without padding (asserted above). Any
        // bytes are valid.
        unsafe {
            std::slice::from_raw_parts(self.sectors.as_ptr().cast(), self.sectors.len() * SECTOR)
        }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.sectors.as_mut_ptr().cast(),
                self.sectors.len() * SECTOR,
            )
        }
    }
}
