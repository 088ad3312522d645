//! The data files of a database as numbered files of 8 KiB blocks: every read is checked, every
//! write sealed.
//!
//! **Invariant.** A block is handed up only if its checksum, its version and its own address are
//! right (`block::format`).

use crate::lease::{EXTEND_BYTE, Locked};
use crate::{AlignedBuf, Error, File, Result};
use block::{BLOCK_SIZE, BlockBuf, Dba, FileId};
use seam::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use wait::{Event, Stat, WaitResult, Waiter};

/// The time between two tries of a file's lock. Locks of files are tried, not waited for.
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// All data files that are open.
#[derive(Default)]
pub struct DataFiles {
    files: RwLock<BTreeMap<u16, Arc<dyn File>>>,
}

impl DataFiles {
    pub fn new() -> DataFiles {
        DataFiles::default()
    }

    pub fn add(&self, id: FileId, file: Arc<dyn File>) {
        self.files.write().insert(id.0, file);
    }

    pub fn file(&self, id: FileId) -> Result<Arc<dyn File>> {
        self.files
            .read()
            .get(&id.0)
            .cloned()
            .ok_or(Error::NoFile(id.0))
    }

    pub fn ids(&self) -> Vec<FileId> {
        self.files.read().keys().map(|&id| FileId(id)).collect()
    }

    /// Length of a file in blocks.
    pub fn blocks(&self, id: FileId) -> Result<u32> {
        Ok((self.file(id)?.len()? / BLOCK_SIZE as u64) as u32)
    }

    /// Reads and checks one block. Waits under `db file sequential read`.
    pub fn read_block(&self, dba: Dba, into: &mut BlockBuf) -> Result<()> {
        let file = self.file(dba.file())?;
        let p = [u64::from(dba.file().0), u64::from(dba.block()), 1];
        wait::during(Event::DbFileSequentialRead, p, || {
            file.read_at(offset(dba), &mut into.0)
        })?;
        wait::segment::read(1);
        into.check(dba).map_err(|source| Error::Block {
            path: file.path().to_string(),
            source,
        })
    }

    /// Reads contiguous blocks from `first` on in one go, at most `max` of them and only those that
    /// lie in the file. Each is handed to `each` with a verdict of its own. Waits under `db file
    /// scattered read`.
    pub fn read_blocks(
        &self,
        first: Dba,
        max: usize,
        buf: &mut AlignedBuf,
        mut each: impl FnMut(Dba, &BlockBuf, Result<()>),
    ) -> Result<()> {
        let file = self.file(first.file())?;
        let there = (file.len()? / BLOCK_SIZE as u64).saturating_sub(u64::from(first.block()));
        let n = max.min(there as usize);
        if buf.len() < n * BLOCK_SIZE {
            buf.resize(n * BLOCK_SIZE);
        }
        let p = [
            u64::from(first.file().0),
            u64::from(first.block()),
            n as u64,
        ];
        wait::during(Event::DbFileScatteredRead, p, || {
            file.read_at(offset(first), &mut buf[..n * BLOCK_SIZE])
        })?;
        wait::segment::read(n as u64);
        let mut block = BlockBuf::zeroed();
        for (i, bytes) in buf[..n * BLOCK_SIZE].chunks_exact(BLOCK_SIZE).enumerate() {
            let dba = first.plus(i as u32);
            block.0.copy_from_slice(bytes);
            let verdict = block.check(dba).map_err(|source| Error::Block {
                path: file.path().to_string(),
                source,
            });
            each(dba, &block, verdict);
        }
        Ok(())
    }

    /// Writes sealed blocks home, neighbours in one go, without syncing. The homes are sorted by
    /// address. `bytes` has a block for each home, in that order, aligned for direct I/O.
    pub fn write_blocks(&self, homes: &[Dba], bytes: &[u8]) -> Result<()> {
        assert_eq!(
            bytes.len(),
            homes.len() * BLOCK_SIZE,
            "invariant: a home for each block"
        );
        debug_assert!(
            homes.is_sorted(),
            "invariant: blocks are written in order of their addresses"
        );
        let n = homes.len() as u64;
        wait::during(Event::DbFileParallelWrite, [1, n, 0], || {
            let mut bytes = bytes;
            for run in homes.chunk_by(|a, b| a.file() == b.file() && a.plus(1) == *b) {
                let (now, later) = bytes.split_at(run.len() * BLOCK_SIZE);
                self.file(run[0].file())?.write_at(offset(run[0]), now)?;
                bytes = later;
            }
            Ok::<_, Error>(())
        })?;
        wait::stat::add(Stat::PhysicalWrites, n);
        Ok(())
    }

    /// Makes what was written to these files durable.
    pub fn sync(&self, ids: impl IntoIterator<Item = FileId>) -> Result<()> {
        for id in ids {
            let file = self.file(id)?;
            wait::during(Event::DbFileSync, [u64::from(id.0), 0, 0], || file.sync())?;
        }
        Ok(())
    }

    /// Makes a file longer that other instances make longer, too; see
    /// [`extend`](DataFiles::extend). Only one instance does so at a time. Where space is reserved
    /// by writing zeros, or given back because there was not enough, another's part would suffer.
    pub fn extend_shared(&self, id: FileId, blocks: u32) -> Result<()> {
        let file = self.file(id)?;
        let p = [u64::from(id.0), u64::from(blocks), 0];
        let waiter = Waiter::new();
        let _lock = loop {
            match Locked::try_get(file.clone(), EXTEND_BYTE) {
                Ok(Some(lock)) => break Some(lock),
                // A storage that cannot lock is not shared.
                Err(Error::NoLocks { .. }) => break None,
                Err(e) => return Err(e),
                Ok(None) => {
                    let until = Some(seam::now() + LOCK_PAUSE);
                    if waiter.wait(Event::EnqHw, p, until) == WaitResult::Cancelled {
                        return Err(wait::Cancelled.into());
                    }
                }
            }
        };
        self.extend(id, blocks, &mut |_| {})
    }

    /// Makes a file at least `blocks` long, never shorter. The new blocks are zero (unformatted).
    /// Space is reserved, so that later writes do not fail for want of it.
    pub fn extend(&self, id: FileId, blocks: u32, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let file = self.file(id)?;
        wait::during(
            Event::DataFileInit,
            [u64::from(id.0), u64::from(blocks), 0],
            || file.allocate(u64::from(blocks) * BLOCK_SIZE as u64, false, progress),
        )
    }
}

fn offset(dba: Dba) -> u64 {
    u64::from(dba.block()) * BLOCK_SIZE as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileKind, SimStorage, Storage};
    use block::{BlockType, ObjectId};

    #[test]
    fn a_shared_file_is_made_longer_by_one_instance_at_a_time() {
        let s = SimStorage::new();
        s.create("f", FileKind::Data).unwrap();
        let files = DataFiles::new();
        files.add(FileId::DATA, s.open("f", FileKind::Data).unwrap());
        files.extend_shared(FileId::DATA, 8).unwrap();
        let other = s.open("f", FileKind::Data).unwrap();
        let locks = other.locks().unwrap();
        assert!(locks.try_lock(EXTEND_BYTE).unwrap());
        std::thread::scope(|scope| {
            let (done, finished) = std::sync::mpsc::channel();
            let files = &files;
            scope.spawn(move || {
                files.extend_shared(FileId::DATA, 16).unwrap();
                done.send(()).unwrap();
            });
            let early = finished.recv_timeout(Duration::from_millis(100));
            let length = files.blocks(FileId::DATA).unwrap();
            locks.unlock(EXTEND_BYTE).unwrap();
            assert!(early.is_err() && length == 8, "another held the lock");
            finished.recv().unwrap();
        });
        assert_eq!(files.blocks(FileId::DATA).unwrap(), 16);
        // The lock is free again, and nothing gets shorter.
        files.extend_shared(FileId::DATA, 12).unwrap();
        assert_eq!(files.blocks(FileId::DATA).unwrap(), 16);
        assert!(locks.try_lock(EXTEND_BYTE).unwrap());
    }

    #[test]
    fn neighbours_are_written_together_and_blocks_are_checked_on_the_way_in() {
        let s = SimStorage::new();
        let files = DataFiles::new();
        files.add(FileId::DATA, s.create("f", FileKind::Data).unwrap());
        files.extend(FileId::DATA, 8, &mut |_| {}).unwrap();
        assert_eq!(files.blocks(FileId::DATA).unwrap(), 8);
        let dba = |n| Dba::new(FileId::DATA, n);
        let homes = [2, 3, 6].map(dba);
        let mut bytes = AlignedBuf::zeroed(homes.len() * BLOCK_SIZE);
        for (home, bytes) in homes.iter().zip(bytes.chunks_exact_mut(BLOCK_SIZE)) {
            let mut b = BlockBuf::zeroed();
            b.format(*home, ObjectId(1), BlockType::Heap);
            b.seal();
            bytes.copy_from_slice(&b.0);
        }
        let before = s.writes();
        files.write_blocks(&homes, &bytes).unwrap();
        assert_eq!(s.writes() - before, 2, "neighbours go together");
        let mut b = BlockBuf::zeroed();
        files.read_block(dba(3), &mut b).unwrap();
        assert_eq!(b.dba(), dba(3));
        s.flip_bit("f", 3 * BLOCK_SIZE + 999, 3);
        assert!(matches!(
            files.read_block(dba(3), &mut b),
            Err(Error::Block { .. })
        ));
        let mut seen = Vec::new();
        files
            .read_blocks(dba(1), 100, &mut AlignedBuf::default(), |dba, _, r| {
                seen.push((dba.block(), r.is_ok()))
            })
            .unwrap();
        assert_eq!(
            seen,
            [
                (1, true),
                (2, true),
                (3, false),
                (4, true),
                (5, true),
                (6, true),
                (7, true)
            ]
        );
    }
}
