//! Torn-write protection: blocks go first to a file of their own, durably, and only then home.
//!
//! ```text
//! sector 0: magic u64 | count u32 | reserved u32 | count x block address u64
//!           | CRC32C of all before u32
//! from sector 1 on: the blocks, in the order of the addresses
//! after the room for 509 blocks: which blocks this instance has ever brought home (`written.rs`)
//! ```
//!
//! **Invariant.** Between the sync of this file and the sync of the homes, each block of the batch
//! is whole in one of the two places.
//!
//! At the next start, torn homes are restored from here ([`DoubleWrite::restore`]). A batch whose
//! own header or block is torn was never begun at home. If writing a batch home has failed (a full
//! disk), the batch is brought home before this file takes another.
//!
//! (The idea is InnoDB's doublewrite buffer. Full images in the redo would cost 8 KiB per
//! transaction on scattered updates.)

use crate::written::Pages;
use crate::{AlignedBuf, DataFiles, Error, File, FileKind, Result, SECTOR, Storage, Written};
use block::{BLOCK_SIZE, BlockBuf, Dba, FileId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wait::Event;

const MAGIC: u64 = u64::from_le_bytes(*b"BRAIDDW1");
const HEADER: usize = 16;

/// The most blocks in one batch: their addresses and the checksum fit the header's sector.
pub const BATCH_BLOCKS: usize = (SECTOR - HEADER - 4) / 8;
/// The byte where the pages of [`Pages`] begin.
const PAGES_AT: usize = SECTOR + BATCH_BLOCKS * BLOCK_SIZE;

/// An instance's double-write file. It takes one batch at a time: `dbw0` alone uses it.
pub struct DoubleWrite {
    file: Arc<dyn File>,
    /// The header and the blocks of the batch that is in the file, or is being written to it.
    buf: AlignedBuf,
    /// Homes of the batch in the file that may be torn: writing them began and failed.
    unfinished: Vec<Dba>,
    /// The blocks that have been brought home so far. It is read when the first batch comes.
    brought: Option<Pages>,
}

/// What a start found in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Blocks whose home was torn and has been written again.
    pub blocks: Vec<Dba>,
}

impl DoubleWrite {
    pub fn create(storage: &dyn Storage, name: &str) -> Result<DoubleWrite> {
        let file = storage.create(name, FileKind::Data)?;
        file.allocate((PAGES_AT + SECTOR) as u64, true, &mut |_| {})?;
        Ok(DoubleWrite::of(file))
    }

    pub fn open(storage: &dyn Storage, name: &str) -> Result<DoubleWrite> {
        Ok(DoubleWrite::of(storage.open(name, FileKind::Data)?))
    }

    fn of(file: Arc<dyn File>) -> DoubleWrite {
        DoubleWrite {
            file,
            buf: AlignedBuf::default(),
            unfinished: Vec::new(),
            brought: None,
        }
    }

    /// Adds the blocks that were ever brought home from here.
    pub fn written(&self, all: &mut Written) -> Result<()> {
        all.add(&Pages::read(&*self.file, PAGES_AT as u64)?);
        Ok(())
    }

    /// Writes the blocks here, syncs, writes them home, syncs. The blocks are sorted by address,
    /// and are at most [`BATCH_BLOCKS`]. They are durable when this returns. After an error nothing
    /// is known about the homes except that they can be restored, or written again.
    pub fn write(&mut self, files: &DataFiles, blocks: &mut [(Dba, Box<BlockBuf>)]) -> Result<()> {
        assert!(
            blocks.len() <= BATCH_BLOCKS,
            "invariant: a double-write batch has at most {BATCH_BLOCKS} blocks"
        );
        if blocks.is_empty() {
            return Ok(());
        }
        self.finish(files)?;
        self.fill(blocks);
        let len = SECTOR + blocks.len() * BLOCK_SIZE;
        let brought = match self.brought.take() {
            Some(pages) => pages,
            None => Pages::read(&*self.file, PAGES_AT as u64)?,
        };
        let brought = self.brought.insert(brought);
        brought.note(blocks.iter().map(|(dba, b)| (*dba, &**b)));
        wait::during(Event::DoubleWriteSync, [blocks.len() as u64, 0, 0], || {
            brought.write(&*self.file)?;
            self.file.write_at(0, &self.buf[..len])?;
            self.file.sync()
        })?;
        brought.synced();
        self.unfinished = blocks.iter().map(|(dba, _)| *dba).collect();
        self.bring_home(files)?;
        self.unfinished.clear();
        Ok(())
    }

    /// Whether a batch's homes may have been written and are not durable there. Until
    /// [`DoubleWrite::finish`] nobody else may write these blocks.
    pub fn is_unfinished(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Brings the batch home whose writing there failed. Nobody else has written these blocks, so
    /// no newer version of them is at home.
    pub fn finish(&mut self, files: &DataFiles) -> Result<()> {
        if self.unfinished.is_empty() {
            return Ok(());
        }
        self.bring_home(files)?;
        self.unfinished.clear();
        Ok(())
    }

    fn bring_home(&self, files: &DataFiles) -> Result<()> {
        let homes = &self.unfinished;
        let end = SECTOR + homes.len() * BLOCK_SIZE;
        files.write_blocks(homes, &self.buf[SECTOR..end])?;
        let touched: BTreeSet<FileId> = homes.iter().map(|dba| dba.file()).collect();
        files.sync(touched)
    }

    fn fill(&mut self, blocks: &mut [(Dba, Box<BlockBuf>)]) {
        let len = SECTOR + blocks.len() * BLOCK_SIZE;
        if self.buf.len() < len {
            self.buf.resize(len);
        }
        let header = &mut self.buf[..SECTOR];
        header.fill(0);
        header[..8].copy_from_slice(&MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&(blocks.len() as u32).to_le_bytes());
        for (i, (dba, _)) in blocks.iter().enumerate() {
            header[HEADER + i * 8..HEADER + i * 8 + 8].copy_from_slice(&dba.0.to_le_bytes());
        }
        let end = HEADER + blocks.len() * 8;
        let crc = crc32(&header[..end]);
        header[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        for (i, (dba, b)) in blocks.iter_mut().enumerate() {
            assert!(
                b.is_unformatted() || b.dba() == *dba,
                "invariant: block {} is not written to {dba}",
                b.dba()
            );
            if !b.is_unformatted() {
                b.seal();
            }
            let at = SECTOR + i * BLOCK_SIZE;
            self.buf[at..at + BLOCK_SIZE].copy_from_slice(&b.0);
        }
    }

    /// Restores homes that the last batch left torn. It runs at a start, before anything else reads
    /// blocks. Whole homes are left alone: they hold this version or, if the batch is an old one, a
    /// later version.
    pub fn restore(&mut self, files: &DataFiles) -> Result<Restored> {
        restore_all(&[self], files, |_| true)
    }

    /// Adds the whole copies of torn homes, unless a newer copy is known.
    fn torn_homes(
        &self,
        files: &DataFiles,
        of: &impl Fn(Dba) -> bool,
        found: &mut BTreeMap<Dba, Box<BlockBuf>>,
    ) -> Result<()> {
        let mut header = AlignedBuf::zeroed(SECTOR);
        self.file.read_at(0, &mut header)?;
        let Some(homes) = parse(&header) else {
            return Ok(());
        };
        let mut copy = AlignedBuf::zeroed(BLOCK_SIZE);
        let mut block = BlockBuf::zeroed();
        let mut home = BlockBuf::zeroed();
        for (i, dba) in homes.into_iter().enumerate().filter(|(_, dba)| of(*dba)) {
            match files.read_block(dba, &mut home) {
                Ok(()) => continue,
                Err(Error::Block { .. }) => {}
                Err(e) => return Err(e),
            }
            self.file
                .read_at((SECTOR + i * BLOCK_SIZE) as u64, &mut copy)?;
            block.0.copy_from_slice(&copy);
            // A torn copy means that the batch never went home. So something else damaged the home,
            // and it is left to be reported.
            if block.check(dba).is_ok() && found.get(&dba).is_none_or(|b| b.scn() < block.scn()) {
                found.insert(dba, block.clone());
            }
        }
        Ok(())
    }
}

/// Restores torn homes from the files of several instances that have died, as
/// [`DoubleWrite::restore`] does from one.
///
/// Only the instance that wrote a block last can have torn it. An older copy may be in the file of
/// another instance that wrote the block before, so the copy with the highest SCN is taken. `of`
/// selects the blocks to restore: those that no living instance may be writing.
pub fn restore_all(
    from: &[&mut DoubleWrite],
    files: &DataFiles,
    of: impl Fn(Dba) -> bool,
) -> Result<Restored> {
    let mut found = BTreeMap::new();
    for double_write in from {
        double_write.torn_homes(files, &of, &mut found)?;
    }
    let mut restored = Restored::default();
    for (dba, block) in found {
        files.write_blocks(&[dba], &block.0)?;
        files.sync([dba.file()])?;
        restored.blocks.push(dba);
    }
    Ok(restored)
}

/// The last batches of instances that have died, for survivors. A survivor meets a torn home only
/// when it brings that block back, and restores it by writing it anew.
#[derive(Default)]
pub struct TornHomes(BTreeMap<Dba, Box<BlockBuf>>);

impl TornHomes {
    /// Reads all whole copies, and keeps the newest of each block: at most [`BATCH_BLOCKS`] of each
    /// file.
    pub fn read(from: &[&DoubleWrite]) -> Result<TornHomes> {
        let mut found: BTreeMap<Dba, Box<BlockBuf>> = BTreeMap::new();
        for double_write in from {
            let mut buf = AlignedBuf::zeroed(SECTOR);
            double_write.file.read_at(0, &mut buf)?;
            let Some(homes) = parse(&buf) else {
                continue;
            };
            let mut copies = AlignedBuf::zeroed(homes.len() * BLOCK_SIZE);
            double_write.file.read_at(SECTOR as u64, &mut copies)?;
            for (dba, copy) in homes.into_iter().zip(copies.chunks_exact(BLOCK_SIZE)) {
                let mut block = BlockBuf::zeroed();
                block.0.copy_from_slice(copy);
                // A block whose copy is torn never went home.
                if block.check(dba).is_ok() && found.get(&dba).is_none_or(|b| b.scn() < block.scn())
                {
                    found.insert(dba, block);
                }
            }
        }
        Ok(TornHomes(found))
    }

    /// The addresses of the blocks that may be torn.
    pub fn blocks(&self) -> impl Iterator<Item = Dba> + '_ {
        self.0.keys().copied()
    }

    /// The copy to read instead of a torn home.
    pub fn copy_of(&self, dba: Dba) -> Option<&BlockBuf> {
        self.0.get(&dba).map(|b| &**b)
    }
}

/// The addresses in a header. None if the header is torn or was never written.
fn parse(header: &[u8]) -> Option<Vec<Dba>> {
    let count = u32::from_le_bytes(header[8..12].try_into().ok()?) as usize;
    if header[..8] != MAGIC.to_le_bytes() || count > BATCH_BLOCKS {
        return None;
    }
    let end = HEADER + count * 8;
    let crc = u32::from_le_bytes(header[end..end + 4].try_into().ok()?);
    (crc == crc32(&header[..end])).then(|| {
        header[HEADER..end]
            .chunks_exact(8)
            .map(|b| Dba(u64::from_le_bytes(b.try_into().expect("eight bytes"))))
            .collect()
    })
}

fn crc32(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Faults, SimStorage};
    use block::{BlockType, ObjectId, Scn};

    fn block(dba: Dba, version: u64) -> (Dba, Box<BlockBuf>) {
        let mut b = BlockBuf::zeroed();
        b.format(dba, ObjectId(1), BlockType::Heap);
        b.set_scn(Scn(version));
        b.body_mut().fill(version as u8);
        (dba, b)
    }

    fn open(s: &SimStorage) -> (DataFiles, DoubleWrite) {
        let files = DataFiles::new();
        files.add(FileId::DATA, s.open("f", FileKind::Data).unwrap());
        let dw = DoubleWrite::open(s, "dw").unwrap();
        (files, dw)
    }

    /// Pins the diagram at the head of this file.
    #[test]
    fn the_format_is_pinned() {
        let s = SimStorage::new();
        let f = s.create("f", FileKind::Data).unwrap();
        f.allocate(8 * BLOCK_SIZE as u64, false, &mut |_| {})
            .unwrap();
        DoubleWrite::create(&s, "dw").unwrap();
        let (files, mut dw) = open(&s);
        let homes = [2, 5].map(|n| Dba::new(FileId::DATA, n));
        dw.write(&files, &mut homes.map(|dba| block(dba, 9)))
            .unwrap();
        let (dw, f) = (s.contents("dw").unwrap(), s.contents("f").unwrap());
        assert_eq!(&dw[..8], b"BRAIDDW1");
        assert_eq!(dw[8..16], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(dw[16..24], homes[0].0.to_le_bytes());
        assert_eq!(dw[24..32], homes[1].0.to_le_bytes());
        assert_eq!(dw[32..36], crc32(&dw[..32]).to_le_bytes());
        for (i, home) in [2, 5].into_iter().enumerate() {
            let copy = &dw[4096 + i * BLOCK_SIZE..][..BLOCK_SIZE];
            assert_eq!(copy, &f[home * BLOCK_SIZE..][..BLOCK_SIZE]);
        }
        let page = &dw[4096 + 509 * BLOCK_SIZE..];
        assert_eq!(page.len(), 4096);
        assert_eq!(page[..4], crc32(&page[4..]).to_le_bytes());
        assert_eq!(page[4..10], [0, 0, 0, 0, 0b10_0100, 0]);
    }

    /// Crashes at every write: a block that is at home is known to be at home.
    #[test]
    fn a_block_at_home_is_known_to_be_there_after_a_crash_at_any_write() {
        let (mut homes, mut absent) = (0, 0);
        for seed in 0..8 {
            for crash_at in 1..=6 {
                let s = SimStorage::new();
                s.create("f", FileKind::Data)
                    .unwrap()
                    .allocate(8 * BLOCK_SIZE as u64, false, &mut |_| {})
                    .unwrap();
                DoubleWrite::create(&s, "dw").unwrap();
                let (files, mut dw) = open(&s);
                s.set_faults(Faults {
                    crash_at_write: Some(s.writes() + crash_at),
                    ..Faults::default()
                });
                for n in [1, 4] {
                    let dba = Dba::new(FileId::DATA, n);
                    if dw.write(&files, &mut [block(dba, 1)]).is_err() {
                        break;
                    }
                }
                let (files, dw) = open(&s.after_crash(seed));
                let mut all = Written::default();
                dw.written(&mut all).unwrap();
                for dba in [1, 4].map(|n| Dba::new(FileId::DATA, n)) {
                    let mut b = BlockBuf::zeroed();
                    let torn = files.read_block(dba, &mut b).is_err();
                    if torn || !b.is_unformatted() {
                        homes += 1;
                        assert!(all.contains(dba), "seed {seed}, crash at {crash_at}");
                    } else {
                        absent += 1;
                    }
                }
            }
        }
        assert!(homes > 20 && absent > 20, "{homes} {absent}");
    }

    /// A batch that was not brought home is brought there before the next batch.
    ///
    /// A failed home write (here with an error that goes away; on a copy-on-write filesystem, for
    /// want of space) may have torn the block. If the next batch overwrote the only whole copy, a
    /// crash would lose the block.
    #[test]
    fn a_batch_that_did_not_come_home_is_brought_there_before_the_next() {
        let mut torn = 0;
        for seed in 0..40 {
            let s = SimStorage::new();
            s.create("f", FileKind::Data)
                .unwrap()
                .allocate(8 * BLOCK_SIZE as u64, false, &mut |_| {})
                .unwrap();
            DoubleWrite::create(&s, "dw").unwrap();
            let (files, mut dw) = open(&s);
            let (one, other) = (Dba::new(FileId::DATA, 1), Dba::new(FileId::DATA, 5));
            dw.write(&files, &mut [block(one, 1), block(other, 1)])
                .unwrap();
            // The double-write file takes the batch. Of the two homes the first is written, the
            // second is not.
            s.set_faults(Faults {
                fail_from_write: Some(s.writes() + 3),
                fail_writes: 1,
                ..Faults::default()
            });
            dw.write(&files, &mut [block(one, 2), block(other, 2)])
                .unwrap_err();
            // The power fails in the middle of the next batch, which does not have the block.
            s.set_faults(Faults {
                crash_at_write: Some(s.writes() + 1 + seed % 4),
                ..Faults::default()
            });
            dw.write(&files, &mut [block(other, 3)]).unwrap_err();
            let (files, mut dw) = open(&s.after_crash(seed));
            torn += dw.restore(&files).unwrap().blocks.len();
            let mut b = BlockBuf::zeroed();
            for dba in [one, other] {
                files
                    .read_block(dba, &mut b)
                    .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
        }
        assert!(torn > 0, "no block was torn in all the rounds");
    }

    /// Two instances have written a block one after the other. Each has a copy of its own version,
    /// and the second version was torn at home. The older copy, which is whole as well, must not be
    /// taken, whichever file is looked at first.
    #[test]
    fn of_two_copies_the_newer_is_restored() {
        let mut torn = 0;
        for seed in 0..40 {
            let s = SimStorage::new();
            s.create("f", FileKind::Data)
                .unwrap()
                .allocate(8 * BLOCK_SIZE as u64, false, &mut |_| {})
                .unwrap();
            DoubleWrite::create(&s, "dw").unwrap();
            let mut second = DoubleWrite::create(&s, "dw2").unwrap();
            let (files, mut first) = open(&s);
            let dba = Dba::new(FileId::DATA, 3);
            first.write(&files, &mut [block(dba, 1)]).unwrap();
            // The third write of this batch is that of the home. The page of brought-home blocks
            // comes first, because this file has none yet.
            s.set_faults(Faults {
                crash_at_write: Some(s.writes() + 3),
                ..Faults::default()
            });
            second.write(&files, &mut [block(dba, 2)]).unwrap_err();
            let s = s.after_crash(seed);
            let (files, mut first) = open(&s);
            let mut second = DoubleWrite::open(&s, "dw2").unwrap();
            let restored = match seed % 2 {
                0 => restore_all(&[&mut first, &mut second], &files, |_| true),
                _ => restore_all(&[&mut second, &mut first], &files, |_| true),
            };
            let mut b = BlockBuf::zeroed();
            files.read_block(dba, &mut b).unwrap();
            if !restored.unwrap().blocks.is_empty() {
                torn += 1;
                assert_eq!(b.scn().0, 2, "seed {seed}");
            }
        }
        assert!(torn > 0, "no block was torn in all the rounds");
    }

    /// Crashes at every write of three batches over one set of blocks. Each block must then be
    /// whole, of the last synced version or the next.
    #[test]
    fn every_block_is_whole_after_a_crash_at_any_write() {
        for seed in 0..20 {
            for crash_at in 1.. {
                let s = SimStorage::new();
                s.create("f", FileKind::Data)
                    .unwrap()
                    .allocate(8 * BLOCK_SIZE as u64, false, &mut |_| {})
                    .unwrap();
                DoubleWrite::create(&s, "dw").unwrap();
                let (files, mut dw) = open(&s);
                s.set_faults(Faults {
                    crash_at_write: Some(s.writes() + crash_at),
                    ..Faults::default()
                });
                let dbas = [1, 2, 5].map(|n| Dba::new(FileId::DATA, n));
                let done = (1..=3)
                    .take_while(|&v| dw.write(&files, &mut dbas.map(|d| block(d, v))).is_ok())
                    .count() as u64;
                if done == 3 {
                    break;
                }
                let (files, mut dw) = open(&s.after_crash(seed));
                dw.restore(&files).unwrap();
                let mut b = BlockBuf::zeroed();
                for dba in dbas {
                    files
                        .read_block(dba, &mut b)
                        .unwrap_or_else(|e| panic!("seed {seed}, crash at {crash_at}: {e}"));
                    let found = b.scn().0;
                    assert!(
                        found == done || found == done + 1,
                        "seed {seed}, crash at {crash_at}: {found} after {done}"
                    );
                }
                assert_eq!(
                    dw.restore(&files).unwrap(),
                    Restored::default(),
                    "restoring twice finds nothing to do"
                );
            }
        }
    }
}
