//! Which blocks an instance has ever brought home. This tells a block that a disk has turned into
//! zeros from one that nobody has written yet, which is zeros as well.
//!
//! ```text
//! page n, one sector: CRC32C of the rest u32 | n u32
//! | a bit for each of the blocks n * PAGE_BLOCKS.. of the data file that all instances write
//! ```
//!
//! **Invariants.**
//! - A bit is durable before its block is at home. If a crash comes between, redo has the vector
//!   that formats the block, and recovery brings the block home.
//! - A bit that is set stays: no block of that file goes back to zeros. A page that a crash has
//!   torn counts as empty; its bits come again as its blocks are written.

use crate::{AlignedBuf, File, Result, SECTOR};
use block::{BlockBuf, Dba, FileId};
use std::collections::BTreeSet;

const HEADER: usize = 8;
/// The number of blocks of a page: almost 256 MiB of the data file.
pub(crate) const PAGE_BLOCKS: u32 = ((SECTOR - HEADER) * 8) as u32;

fn is_kept(dba: Dba) -> bool {
    dba.file() == FileId::DATA
}

/// The place of a block's bit: page, byte in the page, bit in the byte.
fn place(dba: Dba) -> (usize, usize, u8) {
    let (page, bit) = (dba.block() / PAGE_BLOCKS, dba.block() % PAGE_BLOCKS);
    (page as usize, HEADER + bit as usize / 8, 1 << (bit % 8))
}

/// The pages at the end of an instance's double-write file, from `at` on.
pub(crate) struct Pages {
    at: u64,
    pages: AlignedBuf,
    /// The pages with bits that the file may not have.
    changed: BTreeSet<usize>,
}

impl Pages {
    pub fn read(file: &dyn File, at: u64) -> Result<Pages> {
        let mut pages = AlignedBuf::zeroed(file.len()?.saturating_sub(at) as usize);
        if !pages.is_empty() {
            file.read_at(at, &mut pages)?;
        }
        for (n, page) in pages.chunks_exact_mut(SECTOR).enumerate() {
            let crc = crc32c::crc32c(&page[4..]).to_le_bytes();
            if page[..4] != crc || page[4..8] != (n as u32).to_le_bytes() {
                page.fill(0);
            }
        }
        Ok(Pages {
            at,
            pages,
            changed: BTreeSet::new(),
        })
    }

    /// Notes that these blocks are about to go home.
    pub fn note<'b>(&mut self, blocks: impl Iterator<Item = (Dba, &'b BlockBuf)>) {
        for (dba, _) in blocks.filter(|(dba, b)| is_kept(*dba) && !b.is_unformatted()) {
            let (page, byte, bit) = place(dba);
            if self.pages.len() < (page + 1) * SECTOR {
                self.pages.resize((page + 1) * SECTOR);
            }
            let byte = &mut self.pages[page * SECTOR + byte];
            if *byte & bit == 0 {
                *byte |= bit;
                self.changed.insert(page);
            }
        }
    }

    /// Writes the pages that have changed. They are durable once the file is synced.
    pub fn write(&mut self, file: &dyn File) -> Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let end = self.at + self.pages.len() as u64;
        if file.len()? < end {
            file.allocate(end, false, &mut |_| {})?;
        }
        for &n in &self.changed {
            let page = &mut self.pages[n * SECTOR..(n + 1) * SECTOR];
            page[4..8].copy_from_slice(&(n as u32).to_le_bytes());
            let crc = crc32c::crc32c(&page[4..]);
            page[..4].copy_from_slice(&crc.to_le_bytes());
            file.write_at(self.at + (n * SECTOR) as u64, page)?;
        }
        Ok(())
    }

    pub fn synced(&mut self) {
        self.changed.clear();
    }
}

/// The blocks that any of several instances has brought home.
#[derive(Default)]
pub struct Written(Vec<u8>);

impl Written {
    pub(crate) fn add(&mut self, of: &Pages) {
        if self.0.len() < of.pages.len() {
            self.0.resize(of.pages.len(), 0);
        }
        for (all, more) in self.0.iter_mut().zip(of.pages.iter()) {
            *all |= more;
        }
    }

    pub fn contains(&self, dba: Dba) -> bool {
        let (page, byte, bit) = place(dba);
        is_kept(dba) && (self.0.get(page * SECTOR + byte)).is_some_and(|b| b & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKind, SimStorage, Storage};
    use block::{BlockType, ObjectId};

    const AT: u64 = 3 * SECTOR as u64;
    /// A block of the third page.
    const FAR: u32 = PAGE_BLOCKS * 2 + 7;

    fn known(s: &SimStorage) -> [bool; 5] {
        let mut all = Written::default();
        all.add(&Pages::read(&*s.open("f", FileKind::Data).unwrap(), AT).unwrap());
        [1, 2, 3, FAR, FAR + 1].map(|n| all.contains(Dba::new(FileId::DATA, n)))
    }

    /// Runs one more life of the instance, in which these blocks go home.
    fn live(s: &SimStorage, blocks: &[(Dba, Box<BlockBuf>)]) {
        let file = s.open("f", FileKind::Data).unwrap();
        let mut pages = Pages::read(&*file, AT).unwrap();
        pages.note(blocks.iter().map(|(dba, b)| (*dba, &**b)));
        pages.write(&*file).unwrap();
        file.sync().unwrap();
        pages.synced();
        let writes = s.writes();
        pages.note(blocks.iter().map(|(dba, b)| (*dba, &**b)));
        pages.write(&*file).unwrap();
        assert_eq!(s.writes(), writes, "what is known is not written again");
    }

    fn block(n: u32) -> (Dba, Box<BlockBuf>) {
        let (dba, mut b) = (Dba::new(FileId::DATA, n), BlockBuf::zeroed());
        b.format(dba, ObjectId(1), BlockType::Heap);
        (dba, b)
    }

    /// The blocks brought home stay known over several lives of the instance, with pages that the
    /// file had no room for, and one that was torn.
    #[test]
    fn what_was_brought_home_is_known_for_ever() {
        let s = SimStorage::new();
        s.create("f", FileKind::Data).unwrap();
        assert_eq!(known(&s), [false; 5]);
        let zeros = (Dba::new(FileId::DATA, 1), BlockBuf::zeroed());
        let (instance, mut undo) = (block::InstanceId(1), block(3));
        undo.0 = Dba::new(FileId::undo(instance), 3);
        live(&s, &[zeros, undo, block(2)]);
        live(&s, &[block(FAR)]);
        assert_eq!(known(&s), [false, true, false, true, false]);
        s.overwrite("f", AT as usize + 100, &[1; 50]);
        assert_eq!(known(&s), [false, false, false, true, false]);
        live(&s, &[block(3)]);
        assert_eq!(known(&s), [false, false, true, true, false]);
    }
}
