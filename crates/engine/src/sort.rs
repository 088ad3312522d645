//! Sorting more than fits in memory. Runs are sorted in memory, written to a temporary file, and
//! merged when all records are there.
//!
//! A record is a key, compared as bytes, and the rest that goes with it. Records of one key come
//! out in the order in which they went in.
//!
//! ```text
//! run, from a sector on: (key length u32 | rest length u32 | key | rest) ...
//! ```
//!
//! All runs are merged at once. Each run has a buffer. So memory is at most that of the sort, or
//! [`MIN_BUFFER`] for each run if that is more.

use crate::temp::{TempFile, TempSpace, temp_parameters};
use crate::{Error, Result};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;
use storage::{AlignedBuf, SECTOR};
use wait::Event;
use wait::longop::{LongOp, Target};

const WRITE_BYTES: usize = 1 << 20;
const MIN_BUFFER: usize = 64 << 10;
const MAX_BUFFER: usize = 1 << 20;
const LENGTHS: usize = 8;

/// Takes records in any order.
pub struct Sorter {
    space: Arc<TempSpace>,
    /// Bytes of memory that the sort may use.
    memory: usize,
    bytes: Vec<u8>,
    records: Vec<Record>,
    spilled: Option<Spilled>,
    count: u64,
}

/// Where a record lies, and the first bytes of its key. These decide most comparisons without a
/// look at the rest.
struct Record {
    head: u128,
    from: usize,
    key_len: u32,
    rest_len: u32,
}

impl Record {
    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.from..self.from + self.key_len as usize]
    }
    fn rest<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let from = self.from + self.key_len as usize;
        &bytes[from..from + self.rest_len as usize]
    }
}

/// Runs in a file: where each begins, and how long it is.
struct Spilled {
    file: TempFile,
    runs: Vec<(u64, u64)>,
    end: u64,
}

impl Sorter {
    pub(crate) fn new(space: Arc<TempSpace>, memory: usize) -> Sorter {
        Sorter {
            space,
            memory,
            bytes: Vec::new(),
            records: Vec::new(),
            spilled: None,
            count: 0,
        }
    }

    /// Adds the record whose key and rest the functions append.
    pub fn push(
        &mut self,
        key: impl FnOnce(&mut Vec<u8>),
        rest: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let from = self.bytes.len();
        key(&mut self.bytes);
        let key_len = self.bytes.len() - from;
        rest(&mut self.bytes);
        let rest_len = self.bytes.len() - from - key_len;
        let (Ok(key_u32), Ok(rest_u32)) = (u32::try_from(key_len), u32::try_from(rest_len)) else {
            return Err(Error::RecordTooLong);
        };
        // Keys that differ only behind these bytes, or by zeros at the end only, have equal heads.
        // They are compared in full.
        let mut head = [0; 16];
        let known = key_len.min(head.len());
        head[..known].copy_from_slice(&self.bytes[from..from + known]);
        self.records.push(Record {
            head: u128::from_be_bytes(head),
            from,
            key_len: key_u32,
            rest_len: rest_u32,
        });
        self.count += 1;
        if self.bytes.len() + self.records.len() * size_of::<Record>() > self.memory {
            self.spill()?;
        }
        Ok(())
    }

    /// The number of records so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.records.sort_by(|a, b| {
            let by_head = a.head.cmp(&b.head);
            by_head.then_with(|| a.key(bytes).cmp(b.key(bytes)))
        });
    }

    /// Writes the records in memory as a run.
    fn spill(&mut self) -> Result<()> {
        self.sort();
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spilled {
                file: self.space.create()?,
                runs: Vec::new(),
                end: 0,
            }),
        };
        let start = spilled.end;
        let mut out = Writer {
            spilled,
            buffer: AlignedBuf::zeroed(WRITE_BYTES),
            filled: 0,
        };
        let mut length = 0;
        for r in &self.records {
            let (key, rest) = (r.key(&self.bytes), r.rest(&self.bytes));
            out.put(&r.key_len.to_le_bytes())?;
            out.put(&r.rest_len.to_le_bytes())?;
            out.put(key)?;
            out.put(rest)?;
            length += (LENGTHS + key.len() + rest.len()) as u64;
        }
        out.flush()?;
        spilled.runs.push((start, length));
        self.bytes.clear();
        self.records.clear();
        Ok(())
    }

    /// Ends the input: all records are there.
    pub fn finish(mut self) -> Result<Sorted> {
        if self.spilled.is_some() && !self.records.is_empty() {
            self.spill()?;
        }
        let Some(spilled) = self.spilled.take() else {
            self.sort();
            return Ok(Sorted(Source::Memory {
                bytes: self.bytes,
                records: self.records.into_iter(),
            }));
        };
        let buffer = (self.memory / spilled.runs.len()).clamp(MIN_BUFFER, MAX_BUFFER);
        let buffer = buffer.next_multiple_of(SECTOR);
        self.bytes = Vec::new();
        self.records = Vec::new();
        let mut heads = BinaryHeap::with_capacity(spilled.runs.len());
        for (number, &(start, length)) in spilled.runs.iter().enumerate() {
            let mut run = Run {
                number,
                next: start,
                left: length,
                buffer: AlignedBuf::zeroed(buffer),
                at: buffer,
                key: Vec::new(),
                rest: Vec::new(),
            };
            if run.advance(&spilled.file)? {
                heads.push(run);
            }
        }
        Ok(Sorted(Source::Merged {
            file: spilled.file,
            heads,
            key: Vec::new(),
            rest: Vec::new(),
            given: 0,
            work: LongOp::begin("Sort Output", Target::Nothing, self.count, "Rows"),
        }))
    }
}

struct Writer<'s> {
    spilled: &'s mut Spilled,
    buffer: AlignedBuf,
    filled: usize,
}

impl Writer<'_> {
    fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.filled == self.buffer.len() {
                self.flush()?;
            }
            let n = bytes.len().min(self.buffer.len() - self.filled);
            self.buffer[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// Writes what is in the buffer, up to a sector's end.
    fn flush(&mut self) -> Result<()> {
        wait::check_cancel().map_err(txn::Error::from)?;
        let len = self.filled.next_multiple_of(SECTOR);
        let end = self.spilled.end;
        self.spilled.file.write(end, &self.buffer[..len])?;
        self.spilled.end += len as u64;
        self.filled = 0;
        Ok(())
    }
}

/// A run that is being read. `key` and `rest` are those of its next record.
struct Run {
    number: usize,
    /// Where to read on.
    next: u64,
    /// The bytes of records that are still to come.
    left: u64,
    buffer: AlignedBuf,
    at: usize,
    key: Vec<u8>,
    rest: Vec<u8>,
}

impl Run {
    /// Goes to the next record. False if there is none.
    fn advance(&mut self, file: &TempFile) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        let (mut key, mut rest) = (
            std::mem::take(&mut self.key),
            std::mem::take(&mut self.rest),
        );
        let mut lengths = [0; LENGTHS];
        self.take(file, &mut lengths)?;
        let [k0, k1, k2, k3, r0, r1, r2, r3] = lengths;
        let (key_len, rest_len) = (
            u32::from_le_bytes([k0, k1, k2, k3]),
            u32::from_le_bytes([r0, r1, r2, r3]),
        );
        let total = u64::from(key_len) + u64::from(rest_len) + LENGTHS as u64;
        // What is read back is not checked otherwise: the file is this process's own.
        self.left = self.left.checked_sub(total).ok_or_else(|| {
            Error::Corrupt("a temporary file does not hold what was written to it".to_string())
        })?;
        key.resize(key_len as usize, 0);
        rest.resize(rest_len as usize, 0);
        self.take(file, &mut key)?;
        self.take(file, &mut rest)?;
        (self.key, self.rest) = (key, rest);
        Ok(true)
    }

    fn take(&mut self, file: &TempFile, mut out: &mut [u8]) -> Result<()> {
        while !out.is_empty() {
            if self.at == self.buffer.len() {
                self.fill(file)?;
            }
            let n = out.len().min(self.buffer.len() - self.at);
            out[..n].copy_from_slice(&self.buffer[self.at..self.at + n]);
            self.at += n;
            out = &mut out[n..];
        }
        Ok(())
    }

    fn fill(&mut self, file: &TempFile) -> Result<()> {
        wait::check_cancel().map_err(txn::Error::from)?;
        // The last buffer of the file may be short.
        let there = file.file.len()?.saturating_sub(self.next);
        let len = (self.buffer.len() as u64).min(there) as usize;
        if len == 0 {
            return Err(Error::Corrupt("a temporary file is cut short".to_string()));
        }
        let p = temp_parameters(file, self.next, len);
        let (from, buffer) = (self.next, &mut self.buffer[..len]);
        wait::during(Event::DirectPathReadTemp, p, || {
            file.file.read_at(from, buffer)
        })?;
        self.next += len as u64;
        self.at = 0;
        Ok(())
    }
}

/// The least record counts as the greatest: `BinaryHeap` gives the greatest first.
impl Ord for Run {
    fn cmp(&self, other: &Run) -> Ordering {
        let by_key = other.key.cmp(&self.key);
        by_key.then_with(|| other.number.cmp(&self.number))
    }
}
impl PartialOrd for Run {
    fn partial_cmp(&self, other: &Run) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Run {
    fn eq(&self, other: &Run) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Run {}

/// Gives the records in order.
pub struct Sorted(Source);

enum Source {
    Memory {
        bytes: Vec<u8>,
        records: std::vec::IntoIter<Record>,
    },
    Merged {
        file: TempFile,
        heads: BinaryHeap<Run>,
        key: Vec<u8>,
        rest: Vec<u8>,
        given: u64,
        work: LongOp,
    },
}

/// Records of a sort between two notes of how far it is.
const NOTE_EVERY: u64 = 10_000;

impl Sorted {
    /// Key and rest of the next record.
    pub fn next_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.0 {
            Source::Memory { bytes, records } => {
                Ok(records.next().map(|r| (r.key(bytes), r.rest(bytes))))
            }
            Source::Merged {
                file,
                heads,
                key,
                rest,
                given,
                work,
            } => {
                *given += 1;
                if given.is_multiple_of(NOTE_EVERY) {
                    work.set(*given);
                }
                let Some(mut run) = heads.peek_mut() else {
                    return Ok(None);
                };
                std::mem::swap(key, &mut run.key);
                std::mem::swap(rest, &mut run.rest);
                if !run.advance(file)? {
                    PeekMut::pop(run);
                }
                Ok(Some((key, rest)))
            }
        }
    }
}
