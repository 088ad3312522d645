//! The 8 KiB block and its header.
//!
//! ```text
//!  0        1        2                 4                        8
//! +--------+--------+-----------------+------------------------+
//! |version | type   | flags           | CRC32C                 |
//! +--------+--------+-----------------+------------------------+
//! | block address (8)                                          |
//! +------------------------------------------------------------+
//! | SCN of the last change (8)                                 |
//! +---------------------------------+--------------------------+
//! | object id (4)                   | the type's own (4)       |
//! +---------------------------------+--------------------------+
//! | body (8160) ...                                            |
//! ```
//!
//! **Invariants.** The CRC covers the whole block with the CRC field taken as zero. It is set just
//! before a write and checked just after a read, never in between. The address in the header is the
//! address the block is stored at. A block of zeros is *unformatted*: it is valid, and belongs to
//! nobody.

use crate::{BlockError, Dba, ObjectId, Result, Scn};

pub const BLOCK_SIZE: usize = 8192;
pub const HEADER_SIZE: usize = 32;
/// The version of the block format that this program writes. A reader refuses any other.
pub const FORMAT_VERSION: u8 = 1;

const TYPE_AT: usize = 1;
const FLAGS_AT: usize = 2;
const CRC_AT: usize = 4;
const DBA_AT: usize = 8;
const SCN_AT: usize = 16;
const OBJECT_AT: usize = 24;

/// The type of a block's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockType {
    Unformatted = 0,
    FileHeader = 1,
    SpaceMap = 2,
    SegmentHeader = 3,
    ExtentMap = 4,
    Heap = 5,
    Index = 6,
    Undo = 7,
    Status = 8,
    Sequence = 9,
    IndexMeta = 10,
}

impl BlockType {
    pub fn from_u8(v: u8) -> Result<BlockType> {
        use BlockType::*;
        Ok(match v {
            0 => Unformatted,
            1 => FileHeader,
            2 => SpaceMap,
            3 => SegmentHeader,
            4 => ExtentMap,
            5 => Heap,
            6 => Index,
            7 => Undo,
            8 => Status,
            9 => Sequence,
            10 => IndexMeta,
            _ => return Err(BlockError::corrupt(format!("block type {v} is not known"))),
        })
    }
}

/// One block's bytes, aligned for direct I/O.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct BlockBuf(pub [u8; BLOCK_SIZE]);

const _: () = assert!(size_of::<BlockBuf>() == BLOCK_SIZE && align_of::<BlockBuf>() == 4096);

impl BlockBuf {
    pub fn zeroed() -> Box<BlockBuf> {
        Box::new(BlockBuf([0; BLOCK_SIZE]))
    }

    pub fn block_type(&self) -> Result<BlockType> {
        BlockType::from_u8(self.0[TYPE_AT])
    }
    /// Whether the block was never formatted: all header bytes are zero.
    pub fn is_unformatted(&self) -> bool {
        self.0[..HEADER_SIZE].iter().all(|&b| b == 0)
    }
    pub fn dba(&self) -> Dba {
        Dba(self.u64_at(DBA_AT))
    }
    pub fn scn(&self) -> Scn {
        Scn(self.u64_at(SCN_AT))
    }
    pub fn set_scn(&mut self, scn: Scn) {
        self.put_u64(SCN_AT, scn.0);
    }
    pub fn object(&self) -> ObjectId {
        ObjectId(self.u32_at(OBJECT_AT))
    }
    pub fn flags(&self) -> u16 {
        self.u16_at(FLAGS_AT)
    }
    pub fn set_flags(&mut self, flags: u16) {
        self.put_u16(FLAGS_AT, flags);
    }
    pub fn body(&self) -> &[u8] {
        &self.0[HEADER_SIZE..]
    }
    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.0[HEADER_SIZE..]
    }

    /// Zeroes the block and writes a header. The SCN stays zero: the code that applies the format
    /// vector sets it.
    pub fn format(&mut self, dba: Dba, object: ObjectId, kind: BlockType) {
        self.0.fill(0);
        self.0[0] = FORMAT_VERSION;
        self.0[TYPE_AT] = kind as u8;
        self.put_u64(DBA_AT, dba.0);
        self.put_u32(OBJECT_AT, object.0);
    }

    /// Sets the checksum, as the last thing before a write.
    pub fn seal(&mut self) {
        let crc = self.checksum();
        self.put_u32(CRC_AT, crc);
    }

    /// Checks what was read at `dba`, as the first thing after a read. A block of zeros passes.
    pub fn check(&self, dba: Dba) -> Result<()> {
        if self.is_unformatted() {
            return match self.0.iter().all(|&b| b == 0) {
                true => Ok(()),
                false => Err(BlockError::corrupt(format!(
                    "block {dba}: header is zero but the body is not"
                ))),
            };
        }
        let (found, computed) = (self.u32_at(CRC_AT), self.checksum());
        if found != computed {
            return Err(BlockError::Checksum {
                dba,
                found,
                computed,
            });
        }
        if self.0[0] != FORMAT_VERSION {
            return Err(BlockError::Version(self.0[0]));
        }
        if self.dba() != dba {
            return Err(BlockError::Misdirected {
                dba,
                found: self.dba(),
            });
        }
        self.block_type().map(|_| ())
    }

    fn checksum(&self) -> u32 {
        let crc = crc32c::crc32c(&self.0[..CRC_AT]);
        let crc = crc32c::crc32c_append(crc, &[0; 4]);
        crc32c::crc32c_append(crc, &self.0[CRC_AT + 4..])
    }

    #[inline]
    pub fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }
    #[inline]
    pub fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }
    #[inline]
    pub fn u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }
    pub fn put_u16(&mut self, at: usize, v: u16) {
        self.0[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }
    pub fn put_u32(&mut self, at: usize, v: u32) {
        self.0[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
    pub fn put_u64(&mut self, at: usize, v: u64) {
        self.0[at..at + 8].copy_from_slice(&v.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;

    #[test]
    fn a_sealed_block_passes_and_any_flipped_bit_fails() {
        let dba = Dba::new(FileId(1), 7);
        let mut b = BlockBuf::zeroed();
        b.format(dba, ObjectId(42), BlockType::Heap);
        b.set_scn(Scn(99));
        b.body_mut()[100] = 5;
        b.seal();
        assert_eq!(b.check(dba), Ok(()));
        for at in (0..BLOCK_SIZE).step_by(61) {
            b.0[at] ^= 0x10;
            assert!(b.check(dba).is_err(), "flip at {at} passed");
            b.0[at] ^= 0x10;
        }
    }

    #[test]
    fn a_block_stored_at_another_address_is_noticed() {
        let mut b = BlockBuf::zeroed();
        b.format(Dba::new(FileId(1), 7), ObjectId(42), BlockType::Heap);
        b.seal();
        let elsewhere = Dba::new(FileId(1), 8);
        assert!(matches!(
            b.check(elsewhere),
            Err(BlockError::Misdirected { .. })
        ));
    }

    #[test]
    fn zeros_are_an_unformatted_block() {
        let b = BlockBuf::zeroed();
        assert_eq!(b.check(Dba::new(FileId(1), 3)), Ok(()));
        assert!(b.is_unformatted());
    }
}
