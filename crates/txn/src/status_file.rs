//! The status file. Chunk c of the status array is block c + 1. Checkpoints write the file, and a
//! start reads it.
//!
//! **Invariants.**
//! - The file has space for a chunk before a number in it is drawn. So a checkpoint never finds the
//!   disk full.
//! - A thread's checkpoint passes a commit record only after the word of its transaction is in this
//!   file.
//! - Words that are not final are written as zero. Recovery decides about them.
//! - Blocks are written through a double-write file of their own, because a torn one would lose
//!   commits that redo no longer has.

use crate::status::{CHUNK, Chunk, Status, StatusArray};
use crate::{Error, Result};
use block::{BlockBuf, BlockType, Dba, FileId, HEADER_SIZE, InstanceId, ObjectId, Scn};
use std::sync::Arc;
use storage::{AlignedBuf, DataFiles, DoubleWrite};

/// Blocks in one write: a megabyte.
const BATCH: usize = 128;
/// Blocks in one read at the start.
const READ: u64 = 64;
/// Blocks by which the file grows.
const GROWTH: u32 = 64;

/// The writer of the status file; there is one at a time.
pub(crate) struct StatusFile {
    file: FileId,
    files: Arc<DataFiles>,
    double_write: DoubleWrite,
}

impl StatusFile {
    pub(crate) fn new(
        instance: InstanceId,
        files: Arc<DataFiles>,
        double_write: DoubleWrite,
    ) -> StatusFile {
        StatusFile {
            file: FileId::status(instance),
            files,
            double_write,
        }
    }

    fn dba(&self, chunk: u64) -> Dba {
        dba_of(self.file, chunk)
    }

    /// Reads those chunks from the array's first one up to `end` that are in the file.
    pub(crate) fn load(&self, words: &StatusArray, end: u64) -> Result<()> {
        load(&self.files, self.file, words, end)
    }

    /// Writes the chunks that changed since they were last written. They are durable when it
    /// returns.
    pub(crate) fn persist(&mut self, words: &StatusArray, scn: Scn) -> Result<()> {
        let mut changed = Vec::new();
        words.each_chunk(|number, chunk| {
            if chunk.take_changed() {
                changed.push(number);
            }
            Ok::<(), Error>(())
        })?;
        for part in changed.chunks(BATCH) {
            let written = self.write(words, part, scn);
            if written.is_err() {
                // The next checkpoint tries again with all of these chunks, also those of earlier
                // parts.
                changed
                    .iter()
                    .for_each(|&c| words.with_chunk(c, Chunk::set_changed));
                return written;
            }
        }
        Ok(())
    }

    fn write(&mut self, words: &StatusArray, chunks: &[u64], scn: Scn) -> Result<()> {
        let mut blocks: Vec<(Dba, Box<BlockBuf>)> = chunks
            .iter()
            .map(|&c| {
                (
                    self.dba(c),
                    words.with_chunk(c, |chunk| build(self.dba(c), chunk, scn)),
                )
            })
            .collect();
        self.cover(chunks.last().map_or(0, |last| last + 1))?;
        Ok(self.double_write.write(&self.files, &mut blocks)?)
    }

    /// Makes room for the first `chunks` chunks.
    pub(crate) fn cover(&self, chunks: u64) -> Result<()> {
        let end = self.dba(chunks).block();
        if end > self.files.blocks(self.file)? {
            self.files
                .extend(self.file, end.next_multiple_of(GROWTH), &mut |_| {})?;
        }
        Ok(())
    }

    /// Gives back the space of the chunks in `from..to`.
    pub(crate) fn punch(&self, from: u64, to: u64) -> Result<()> {
        let there = u64::from(self.files.blocks(self.file)?);
        let (from, to) = ((from + 1).min(there), (to + 1).min(there));
        if from < to {
            let size = block::BLOCK_SIZE as u64;
            self.files
                .file(self.file)?
                .punch(from * size, (to - from) * size)?;
        }
        Ok(())
    }
}

/// Reads an instance's words into an array that nobody else uses, or into this instance's own
/// array.
///
/// The file of an instance that is down is read as it is: the life that closed it, or recovered it,
/// restored it and wrote it whole.
pub(crate) fn load(files: &DataFiles, file: FileId, words: &StatusArray, end: u64) -> Result<()> {
    let there = u64::from(files.blocks(file)?).saturating_sub(1);
    let mut buf = AlignedBuf::default();
    let mut at = words.low_chunk();
    while at < end.min(there) {
        let n = READ.min(end.min(there) - at);
        let mut failed = None;
        files.read_blocks(
            dba_of(file, at),
            n as usize,
            &mut buf,
            |dba, block, verdict| {
                let chunk = u64::from(dba.block()) - 1;
                let loaded = verdict
                    .map_err(Error::from)
                    .and_then(|()| load_chunk(words, chunk, block));
                failed = failed.take().or(loaded.err());
            },
        )?;
        match failed {
            Some(e) => return Err(e),
            None => at += n,
        }
    }
    Ok(())
}

fn dba_of(file: FileId, chunk: u64) -> Dba {
    let block = u32::try_from(chunk + 1)
        .expect("invariant: 4,000,000,000,000 transactions fit a status file");
    Dba::new(file, block)
}

fn build(dba: Dba, chunk: &Chunk, scn: Scn) -> Box<BlockBuf> {
    let mut block = BlockBuf::zeroed();
    block.format(dba, ObjectId::NONE, BlockType::Status);
    block.set_scn(scn);
    for (i, status) in chunk.words().enumerate() {
        let word = match status {
            Status::Active | Status::Committing(_) => 0,
            Status::Committed(_) | Status::Aborted(_) => status.pack(),
        };
        block.put_u64(HEADER_SIZE + 8 * i, word);
    }
    block
}

fn load_chunk(words: &StatusArray, chunk: u64, block: &BlockBuf) -> Result<()> {
    if block.is_unformatted() {
        return Ok(());
    }
    if block.block_type()? != BlockType::Status {
        return Err(Error::Corrupt(format!(
            "block {} is not a status block",
            block.dba()
        )));
    }
    words.with_chunk(chunk, |_| ());
    for i in 0..CHUNK {
        let word = block.u64_at(HEADER_SIZE + 8 * i as usize);
        match Status::unpack(word) {
            Status::Active => {}
            Status::Committing(_) => {
                return Err(Error::Corrupt(format!(
                    "status block {} has a word {word:#x}",
                    block.dba()
                )));
            }
            status => words.set(chunk * CHUNK + i, status),
        }
    }
    words.with_chunk(chunk, Chunk::take_changed);
    Ok(())
}
