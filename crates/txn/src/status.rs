//! The status array: one word per transaction of this instance, in memory, read without latches.
//!
//! Word: value in the upper 62 bits, tag in the lower two.
//!
//! | tag | meaning | value |
//! |---|---|---|
//! | 0 | active, or a number not drawn yet | 0 |
//! | 1 | committed | commit SCN |
//! | 2 | committing: the commit record is in the log buffer | number of its batch |
//! | 3 | aborted and wholly rolled back | SCN at the end of the rollback |
//!
//! A *chunk* of words fills one block of the status file ([`crate::status_file`]). A *segment* of
//! chunks is the unit in which memory is taken and given back.
//!
//! **Invariants.** Words go 0 -> 2 -> 1 or 0 -> 3, never back while the instance runs. Numbers
//! below `low` are truncated. Each of them ended below the horizon and counts as committed, because
//! nothing refers to a transaction that was rolled back before the oldest snapshot was taken.

use arc_swap::ArcSwap;
use block::{BLOCK_SIZE, HEADER_SIZE, Scn};
use redo::BatchNo;
use seam::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Words in a chunk: as many as fit the body of a block.
pub(crate) const CHUNK: u64 = ((BLOCK_SIZE - HEADER_SIZE) / 8) as u64;
/// Chunks in a segment: half a megabyte of memory.
const SEGMENT: u64 = 64;

const _: () = assert!(CHUNK == 1020);

/// A status word taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    Active,
    Committed(Scn),
    Committing(BatchNo),
    Aborted(Scn),
}

impl Status {
    pub(crate) fn pack(self) -> u64 {
        let (value, tag) = match self {
            Status::Active => return 0,
            Status::Committed(scn) => (scn.0, 1),
            Status::Committing(batch) => (batch.0, 2),
            Status::Aborted(scn) => (scn.0, 3),
        };
        assert!(
            value < 1 << 62,
            "invariant: SCNs and batch numbers stay below 2^62"
        );
        value << 2 | tag
    }

    pub(crate) fn unpack(word: u64) -> Status {
        match (word & 3, word >> 2) {
            (0, _) => Status::Active,
            (1, value) => Status::Committed(Scn(value)),
            (2, value) => Status::Committing(BatchNo(value)),
            (_, value) => Status::Aborted(Scn(value)),
        }
    }
}

/// The words of [`CHUNK`] transactions.
pub(crate) struct Chunk {
    words: [AtomicU64; CHUNK as usize],
    /// Whether a word changed since the chunk was last written to the status file. It is set after
    /// the word changes, and cleared before the words are read.
    changed: AtomicBool,
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            words: [const { AtomicU64::new(0) }; CHUNK as usize],
            changed: AtomicBool::new(false),
        })
    }

    /// Whether words changed since the last call. The mark is cleared.
    pub(crate) fn take_changed(&self) -> bool {
        self.changed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn set_changed(&self) {
        self.changed.store(true, Ordering::Release);
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = Status> + '_ {
        self.words
            .iter()
            .map(|w| Status::unpack(w.load(Ordering::Acquire)))
    }
}

struct Segment {
    chunks: [OnceLock<Box<Chunk>>; SEGMENT as usize],
}

struct Directory {
    /// Number of the first segment.
    first: u64,
    segments: Vec<Arc<Segment>>,
}

/// The array. Reading takes no latch. `growth` is held while segments are added or dropped.
pub(crate) struct StatusArray {
    directory: ArcSwap<Directory>,
    /// Transaction numbers below this are truncated. A multiple of [`CHUNK`].
    low: AtomicU64,
    growth: Mutex<()>,
}

impl StatusArray {
    /// An array whose numbers below `low_chunk * CHUNK` are truncated.
    pub(crate) fn new(low_chunk: u64) -> StatusArray {
        StatusArray {
            directory: ArcSwap::from_pointee(Directory {
                first: low_chunk / SEGMENT,
                segments: Vec::new(),
            }),
            low: AtomicU64::new(low_chunk * CHUNK),
            growth: Mutex::new(()),
        }
    }

    /// Number of the first chunk that is not truncated.
    pub(crate) fn low_chunk(&self) -> u64 {
        self.low.load(Ordering::Acquire) / CHUNK
    }

    /// The word of transaction `number`; `None` when it is truncated.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<Status> {
        if number < self.low.load(Ordering::Acquire) {
            return None;
        }
        let directory = self.directory.load();
        let chunk = number / CHUNK;
        let Some(at) = (chunk / SEGMENT).checked_sub(directory.first) else {
            return None; // The segment went after `low` was read: truncated.
        };
        let word = directory
            .segments
            .get(at as usize)
            .and_then(|s| s.chunks[(chunk % SEGMENT) as usize].get())
            .map(|c| c.words[(number % CHUNK) as usize].load(Ordering::Acquire));
        Some(Status::unpack(word.unwrap_or(0)))
    }

    /// Sets the word of a transaction. Its chunk must exist ([`StatusArray::with_chunk`]).
    pub(crate) fn set(&self, number: u64, status: Status) {
        let directory = self.directory.load();
        let chunk = number / CHUNK;
        let at = (chunk / SEGMENT)
            .checked_sub(directory.first)
            .expect("invariant: no truncated transaction ends");
        let chunk = directory
            .segments
            .get(at as usize)
            .and_then(|s| s.chunks[(chunk % SEGMENT) as usize].get());
        let chunk =
            chunk.expect("invariant: the chunk of a number is made before the number is drawn");
        chunk.words[(number % CHUNK) as usize].store(status.pack(), Ordering::Release);
        if !matches!(status, Status::Committing(_)) {
            chunk.set_changed();
        }
    }

    /// Makes the chunk if it does not exist, and runs `f` on it. The chunk must not be truncated.
    pub(crate) fn with_chunk<R>(&self, chunk: u64, f: impl FnOnce(&Chunk) -> R) -> R {
        let segment = self.segment(chunk / SEGMENT);
        f(segment.chunks[(chunk % SEGMENT) as usize].get_or_init(Chunk::new))
    }

    /// Runs `f` on every chunk that exists, in order, with its number.
    pub(crate) fn each_chunk<E>(
        &self,
        mut f: impl FnMut(u64, &Chunk) -> Result<(), E>,
    ) -> Result<(), E> {
        let directory = self.directory.load_full();
        for (i, segment) in directory.segments.iter().enumerate() {
            for (j, chunk) in segment.chunks.iter().enumerate() {
                let number = (directory.first + i as u64) * SEGMENT + j as u64;
                if let Some(chunk) = chunk.get()
                    && number >= self.low_chunk()
                {
                    f(number, chunk)?;
                }
            }
        }
        Ok(())
    }

    fn segment(&self, wanted: u64) -> Arc<Segment> {
        let find = || {
            let directory = self.directory.load();
            let at = wanted
                .checked_sub(directory.first)
                .expect("invariant: no truncated chunk is made again");
            directory.segments.get(at as usize).cloned()
        };
        if let Some(segment) = find() {
            return segment;
        }
        let _growth = self.growth.lock();
        if let Some(segment) = find() {
            return segment;
        }
        let old = self.directory.load_full();
        let mut segments = old.segments.clone();
        while old.first + (segments.len() as u64) <= wanted {
            segments.push(Arc::new(Segment {
                chunks: [const { OnceLock::new() }; SEGMENT as usize],
            }));
        }
        let segment = segments.last().expect("one was pushed").clone();
        self.directory.store(Arc::new(Directory {
            first: old.first,
            segments,
        }));
        segment
    }

    /// The highest chunk that [`StatusArray::truncate`] may be given, `limit` at most: everything
    /// below it ended at or below `horizon`. No number of a chunk below `limit` may still be drawn.
    pub(crate) fn truncatable(&self, horizon: Scn, limit: u64) -> u64 {
        let mut chunk = self.low_chunk();
        while chunk < limit {
            let ended = |s: Status| match s {
                Status::Committed(scn) | Status::Aborted(scn) => scn <= horizon,
                Status::Active | Status::Committing(_) => false,
            };
            if !self.with_chunk(chunk, |c| c.words().all(ended)) {
                break;
            }
            chunk += 1;
        }
        chunk
    }

    /// Forgets every chunk below `chunk`. All its transactions count as committed from now on.
    pub(crate) fn truncate(&self, chunk: u64) {
        let _growth = self.growth.lock();
        self.low.fetch_max(chunk * CHUNK, Ordering::AcqRel);
        let old = self.directory.load_full();
        let drop = ((chunk / SEGMENT).saturating_sub(old.first) as usize).min(old.segments.len());
        if drop > 0 {
            let (first, segments) = (old.first + drop as u64, old.segments[drop..].to_vec());
            self.directory
                .store(Arc::new(Directory { first, segments }));
        }
    }

    /// Bytes of memory that the words take; for the statistics.
    pub(crate) fn memory(&self) -> usize {
        let directory = self.directory.load();
        let chunks: usize = directory
            .segments
            .iter()
            .map(|s| s.chunks.iter().filter(|c| c.get().is_some()).count())
            .sum();
        chunks * size_of::<Chunk>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_pinned() {
        assert_eq!(Status::Committed(Scn(5)).pack(), 21);
        assert_eq!(Status::Committing(BatchNo(5)).pack(), 22);
        assert_eq!(Status::Aborted(Scn(5)).pack(), 23);
        for status in [
            Status::Active,
            Status::Committed(Scn(9)),
            Status::Committing(BatchNo(1)),
            Status::Aborted(Scn(2)),
        ] {
            assert_eq!(Status::unpack(status.pack()), status);
        }
    }

    #[test]
    fn chunks_come_and_go_while_others_read() {
        let array = StatusArray::new(3);
        let first = 3 * CHUNK;
        let last = first + 200 * CHUNK;
        std::thread::scope(|s| {
            s.spawn(|| {
                for n in first..last {
                    if n % CHUNK == 0 {
                        array.with_chunk(n / CHUNK, |_| ());
                    }
                    array.set(n, Status::Committed(Scn(n)));
                    if n % (10 * CHUNK) == 0 && n > first + 100 * CHUNK {
                        array.truncate(array.truncatable(Scn(n - 90 * CHUNK), n / CHUNK));
                    }
                }
            });
            s.spawn(|| {
                for n in (first..last).step_by(7) {
                    match array.get(n) {
                        None | Some(Status::Active) => {}
                        Some(status) => assert_eq!(status, Status::Committed(Scn(n))),
                    }
                }
            });
        });
        assert_eq!(array.get(first), None);
        assert_eq!(array.get(last - 1), Some(Status::Committed(Scn(last - 1))));
        assert_eq!(array.get(last + 5 * CHUNK * SEGMENT), Some(Status::Active));
        assert!(array.memory() < 210 * size_of::<Chunk>());
    }

    #[test]
    fn an_active_transaction_stops_truncation() {
        let array = StatusArray::new(0);
        for n in 0..3 * CHUNK {
            array.with_chunk(n / CHUNK, |_| ());
            if n != CHUNK + 5 {
                array.set(n, Status::Committed(Scn(10)));
            }
        }
        assert_eq!(array.truncatable(Scn(9), 3), 0);
        assert_eq!(array.truncatable(Scn(10), 3), 1);
        array.set(CHUNK + 5, Status::Aborted(Scn(20)));
        assert_eq!(array.truncatable(Scn(10), 3), 1);
        assert_eq!(array.truncatable(Scn(20), 3), 3);
        assert_eq!(array.truncatable(Scn(20), 2), 2);
    }
}
