//! Records kept in the order in which they come, and read from any place as often as wanted: in
//! memory as far as it is allowed, beyond that in a temporary file.
//!
//! ```text
//! stream: (length u32 | record) ...
//! ```
//!
//! The front of the stream is in the file, up to a sector's end; the rest is in memory. So a
//! record's place in the stream stays what it is when the stream moves to the file, and records can
//! be appended while others are read.
//!
//! **Invariant.** What is in the file is not written again before the stream is cleared.

use crate::temp::{TempFile, TempSpace, temp_parameters};
use crate::{Error, Result};
use std::sync::Arc;
use storage::{AlignedBuf, SECTOR};
use wait::Event;

/// What gathers in memory behind the file before it is written.
const WRITE_BYTES: usize = 256 << 10;
/// What is read at once by a reader that goes from record to record, and by one that jumps.
const READ_AHEAD: usize = 128 << 10;
const READ_NEAR: usize = 2 * SECTOR;
const LENGTH: usize = 4;

pub struct Records {
    space: Arc<TempSpace>,
    /// Bytes of memory that the stream may take before it goes to a file.
    memory: usize,
    /// The stream behind what is in the file.
    tail: Vec<u8>,
    file: Option<TempFile>,
    /// How much of the stream is in the file: whole sectors.
    written: u64,
    count: u64,
    /// How often the stream was cleared, so that readers forget what they read before.
    life: u64,
}

/// What one reader of [`Records`] keeps between two records.
#[derive(Default)]
pub struct RecordReader {
    window: AlignedBuf,
    /// Where in the stream the window begins, and how much of it is filled.
    start: u64,
    filled: usize,
    life: u64,
    record: Vec<u8>,
}

impl Records {
    pub(crate) fn new(space: Arc<TempSpace>, memory: usize) -> Records {
        Records {
            space,
            memory,
            tail: Vec::new(),
            file: None,
            written: 0,
            count: 0,
            life: 0,
        }
    }

    /// The number of records.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.tail.len()
    }

    /// Where the stream ends: the place of the record that is appended next.
    pub fn end(&self) -> u64 {
        self.written + self.tail.len() as u64
    }

    /// Removes all records.
    pub fn clear(&mut self) {
        self.tail.clear();
        self.file = None;
        self.written = 0;
        self.count = 0;
        self.life += 1;
    }

    /// Appends the record that the function appends to what it is given. Returns its place.
    pub fn push(&mut self, record: impl FnOnce(&mut Vec<u8>)) -> Result<u64> {
        let (place, from) = (self.end(), self.tail.len());
        self.tail.extend_from_slice(&[0; LENGTH]);
        record(&mut self.tail);
        let Ok(length) = u32::try_from(self.tail.len() - from - LENGTH) else {
            self.tail.truncate(from);
            return Err(Error::RecordTooLong);
        };
        self.tail[from..from + LENGTH].copy_from_slice(&length.to_le_bytes());
        self.count += 1;
        let most = match self.file {
            None => self.memory,
            Some(_) => WRITE_BYTES,
        };
        if self.tail.len() > most {
            self.write()?;
        }
        Ok(place)
    }

    /// Writes the whole sectors of what is in memory.
    fn write(&mut self) -> Result<()> {
        let whole = self.tail.len() / SECTOR * SECTOR;
        if whole == 0 {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.space.create()?),
        };
        let mut buffer = AlignedBuf::zeroed(whole.min(WRITE_BYTES));
        for part in self.tail[..whole].chunks(buffer.len()) {
            wait::check_cancel().map_err(txn::Error::from)?;
            buffer[..part.len()].copy_from_slice(part);
            file.write(self.written, &buffer[..part.len()])?;
            self.written += part.len() as u64;
        }
        self.tail.drain(..whole);
        self.tail.shrink_to(2 * WRITE_BYTES);
        Ok(())
    }

    /// The record at a place, and the place of the one behind it. None at the end.
    pub fn read<'r>(
        &'r self,
        place: u64,
        reader: &'r mut RecordReader,
    ) -> Result<Option<(&'r [u8], u64)>> {
        if place >= self.end() {
            return Ok(None);
        }
        let (length, from) = self.length(place, reader)?;
        let next = from + length as u64;
        if next > self.end() {
            return Err(damaged());
        }
        if from >= self.written {
            let at = (from - self.written) as usize;
            return Ok(Some((&self.tail[at..at + length], next)));
        }
        if reader.holds(from, length, self.life) {
            let at = (from - reader.start) as usize;
            return Ok(Some((&reader.window[at..at + length], next)));
        }
        let mut record = std::mem::take(&mut reader.record);
        record.resize(length, 0);
        self.take(from, &mut record, reader)?;
        reader.record = record;
        Ok(Some((&reader.record, next)))
    }

    /// The place of the record behind the one at `place`, which is there.
    pub fn skip(&self, place: u64, reader: &mut RecordReader) -> Result<u64> {
        let (length, from) = self.length(place, reader)?;
        Ok(from + length as u64)
    }

    /// The length of the record at a place, and where its bytes begin.
    fn length(&self, place: u64, reader: &mut RecordReader) -> Result<(usize, u64)> {
        let mut length = [0; LENGTH];
        self.take(place, &mut length, reader)?;
        Ok((u32::from_le_bytes(length) as usize, place + LENGTH as u64))
    }

    /// Copies bytes of the stream.
    fn take(&self, mut from: u64, mut out: &mut [u8], reader: &mut RecordReader) -> Result<()> {
        while !out.is_empty() {
            let there = match from >= self.written {
                true => self.tail.get((from - self.written) as usize..),
                false => {
                    if !reader.holds(from, 1, self.life) {
                        self.fill(from, reader)?;
                    }
                    reader.window[..reader.filled].get((from - reader.start) as usize..)
                }
            };
            let there = there
                .filter(|there| !there.is_empty())
                .ok_or_else(damaged)?;
            let n = there.len().min(out.len());
            out[..n].copy_from_slice(&there[..n]);
            out = &mut out[n..];
            from += n as u64;
        }
        Ok(())
    }

    /// Reads the file from the sector of `from` on.
    fn fill(&self, from: u64, reader: &mut RecordReader) -> Result<()> {
        wait::check_cancel().map_err(txn::Error::from)?;
        let file = self.file.as_ref().ok_or_else(damaged)?;
        let start = from / SECTOR as u64 * SECTOR as u64;
        let goes_on = reader.life == self.life
            && reader.filled > 0
            && from == reader.start + reader.filled as u64;
        let wanted = match goes_on || start == 0 {
            true => READ_AHEAD,
            false => READ_NEAR,
        };
        let len = (self.written - start).min(wanted as u64) as usize;
        if reader.window.len() < len {
            reader.window.resize(len);
        }
        reader.filled = 0;
        let p = temp_parameters(file, start, len);
        let buffer = &mut reader.window[..len];
        wait::during(Event::DirectPathReadTemp, p, || {
            file.file.read_at(start, buffer)
        })?;
        (reader.start, reader.filled, reader.life) = (start, len, self.life);
        Ok(())
    }
}

impl RecordReader {
    /// Forgets what was read, for the next records may be those of another stream.
    pub fn forget(&mut self) {
        self.filled = 0;
    }

    fn holds(&self, from: u64, length: usize, life: u64) -> bool {
        self.life == life
            && from >= self.start
            && from + length as u64 <= self.start + self.filled as u64
    }
}

/// What is read back is not checked otherwise: the file is this process's own.
fn damaged() -> Error {
    Error::Corrupt("a temporary file does not hold what was written to it".to_string())
}
