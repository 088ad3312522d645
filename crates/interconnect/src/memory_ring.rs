//! A ring in a shared region. One instance writes records into it; another reads each record once,
//! in order, when it likes.
//!
//! ```text
//! words 0-1   token            8   tail: words ever written       16   head: words ever read
//!                              9   mark: the writer's own           (the reader's line)
//!             (the writer's line)
//!
//! words 32... records, each a word with its length and so many words; they wrap around
//! ```
//!
//! **Invariants.** `head <= tail <= head + capacity`. What stands below the tail is whole: a reader
//! that has seen the tail finds the records (release, acquire). A reader that has had a message of
//! the writer, or hears of it, sees every tail and mark that the writer stored before the message
//! left. One thread at a time writes and one at a time reads; their owners see to that.

use crate::memory::{REGION_WORDS, Region, TOKEN_WORDS};
use std::sync::atomic::{AtomicU64, Ordering, fence};

const TAIL: usize = 8;
const MARK: usize = 9;
const HEAD: usize = 16;
const RECORDS: usize = 32;
const CAPACITY: u64 = (REGION_WORDS - RECORDS) as u64;
/// The most words in a record: many of the largest records fit.
pub const MAX_RECORD_WORDS: usize = 1024;

const _: () = assert!(TOKEN_WORDS <= TAIL && 4 * MAX_RECORD_WORDS < CAPACITY as usize);

fn word(region: &Region, at: u64) -> &AtomicU64 {
    &region.words()[RECORDS + (at % CAPACITY) as usize]
}

/// The result of putting a record into the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The record is there, and the reader finds it when it looks.
    There,
    /// The record is there, but the reader has not looked for long: it should be told to.
    MoreThanHalfFull,
    /// There is no room for the record.
    Full,
}

/// The writer's end.
pub struct RingWriter {
    region: Region,
    tail: u64,
}

impl RingWriter {
    /// A writer that goes on where the previous writer has stopped.
    pub fn new(region: Region) -> RingWriter {
        let tail = region.words()[TAIL].load(Ordering::Acquire);
        RingWriter { region, tail }
    }

    /// Puts a record of at most [`MAX_RECORD_WORDS`] words into the ring.
    pub fn put(&mut self, record: &[u64]) -> Put {
        assert!(
            record.len() <= MAX_RECORD_WORDS,
            "invariant: a record has at most {MAX_RECORD_WORDS} words"
        );
        let head = self.region.words()[HEAD].load(Ordering::Acquire);
        // A reader's head cannot be above the tail. If it is, the ring is taken for full, and the
        // record goes another way.
        let used = self.tail.checked_sub(head).unwrap_or(CAPACITY);
        let needed = record.len() as u64 + 1;
        if used + needed > CAPACITY {
            return Put::Full;
        }
        let length = [record.len() as u64];
        for (&value, at) in length.iter().chain(record).zip(self.tail..) {
            word(&self.region, at).store(value, Ordering::Relaxed);
        }
        self.tail += needed;
        self.store(TAIL, self.tail);
        match used + needed > CAPACITY / 2 {
            true => Put::MoreThanHalfFull,
            false => Put::There,
        }
    }

    /// Sets a number that the reader sees beside the records.
    pub fn set_mark(&mut self, mark: u64) {
        self.store(MARK, mark);
    }

    /// Stores a word. The store has left this processor when this returns: every observer sees what
    /// the caller does next after it.
    fn store(&self, at: usize, value: u64) {
        self.region.words()[at].store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// What a reader has read: everything below `tail`, and the mark.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Seen {
    pub tail: u64,
    pub mark: u64,
}

/// The reader's end.
pub struct RingReader {
    region: Region,
}

/// An error: the region contains something that its writer cannot have put there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbled;

impl RingReader {
    pub fn new(region: Region) -> RingReader {
        RingReader { region }
    }

    /// What is in the ring by now.
    #[inline]
    pub fn look(&self) -> Seen {
        let line = &self.region.words()[TAIL..=MARK];
        // The mark is read first: a mark is set after the records that it speaks of.
        let mark = line[MARK - TAIL].load(Ordering::Acquire);
        let tail = line[0].load(Ordering::Acquire);
        Seen { tail, mark }
    }

    /// Hands over the records between two looks. After that the writer may overwrite them.
    pub fn read(&self, from: u64, to: u64, mut each: impl FnMut(&[u64])) -> Result<(), Garbled> {
        let mut record = Vec::new();
        let mut at = from;
        if to.checked_sub(from).is_none_or(|n| n > CAPACITY) {
            return Err(Garbled);
        }
        while at < to {
            let length = word(&self.region, at).load(Ordering::Relaxed);
            if length > MAX_RECORD_WORDS as u64 || at + 1 + length > to {
                return Err(Garbled);
            }
            let words = at + 1..at + 1 + length;
            at = words.end;
            record.clear();
            record.extend(words.map(|w| word(&self.region, w).load(Ordering::Relaxed)));
            each(&record);
        }
        self.region.words()[HEAD].store(to, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Registry, SharedMemory};
    use std::thread;

    fn pair() -> (RingWriter, RingReader) {
        let memory = Registry::default();
        let (key, region) = memory.create().unwrap();
        let writer = RingWriter::new(memory.open(key).unwrap());
        (writer, RingReader::new(region))
    }

    fn all(reader: &RingReader, seen: &mut Seen) -> Vec<Vec<u64>> {
        let mut got = Vec::new();
        let now = reader.look();
        let read = reader.read(seen.tail, now.tail, |r| got.push(r.to_vec()));
        assert_eq!(read, Ok(()));
        *seen = now;
        got
    }

    #[test]
    fn records_are_read_once_and_in_order() {
        let (mut writer, reader) = pair();
        let mut seen = Seen::default();
        assert_eq!(reader.look(), seen);
        assert_eq!(writer.put(&[1, 2, 3]), Put::There);
        assert_eq!(writer.put(&[]), Put::There);
        writer.set_mark(9);
        assert_eq!(all(&reader, &mut seen), [vec![1, 2, 3], vec![]]);
        assert_eq!(seen.mark, 9);
        assert!(all(&reader, &mut seen).is_empty());
    }

    #[test]
    fn a_full_ring_refuses_and_goes_on_when_it_was_read() {
        let (mut writer, reader) = pair();
        let mut seen = Seen::default();
        for round in 0..3 {
            let record = [round; 100];
            let puts: Vec<Put> = std::iter::from_fn(|| Some(writer.put(&record)))
                .take_while(|&p| p != Put::Full)
                .collect();
            assert_eq!(puts.len() as u64, CAPACITY / 101);
            let there = puts.iter().filter(|&&p| p == Put::There).count();
            assert_eq!(there as u64, CAPACITY / 2 / 101);
            let got = all(&reader, &mut seen);
            assert_eq!(got.len(), puts.len());
            assert!(got.iter().all(|r| *r == record));
        }
    }

    #[test]
    fn another_writer_goes_on_where_the_first_stopped() {
        let memory = Registry::default();
        let (key, region) = memory.create().unwrap();
        let reader = RingReader::new(region);
        let mut seen = Seen::default();
        for n in 0..3 {
            let mut writer = RingWriter::new(memory.open(key).unwrap());
            assert_eq!(writer.put(&[n]), Put::There);
        }
        assert_eq!(all(&reader, &mut seen), [vec![0], vec![1], vec![2]]);
    }

    #[test]
    fn what_no_writer_writes_is_noticed() {
        let (mut writer, reader) = pair();
        assert_eq!(writer.put(&[1, 2]), Put::There);
        let nothing = |_: &[u64]| ();
        assert_eq!(
            reader.read(5, 4, nothing),
            Err(Garbled),
            "a tail that falls"
        );
        assert_eq!(reader.read(0, 1 << 40, nothing), Err(Garbled));
        assert_eq!(
            reader.read(0, 2, nothing),
            Err(Garbled),
            "a record beyond the tail"
        );
        word(&reader.region, 0).store(1 << 50, Ordering::Relaxed);
        assert_eq!(reader.read(0, 3, nothing), Err(Garbled));
        // A reader's head that cannot be is tested, too.
        reader.region.words()[HEAD].store(1 << 50, Ordering::Relaxed);
        assert_eq!(writer.put(&[1]), Put::Full);
    }

    #[test]
    fn two_threads_lose_nothing() {
        let (mut writer, reader) = pair();
        thread::scope(|s| {
            s.spawn(move || {
                for n in 0..200_000u64 {
                    let record = vec![n; (n % 7) as usize];
                    while writer.put(&record) == Put::Full {
                        thread::yield_now();
                    }
                }
            });
            let (mut seen, mut n) = (Seen::default(), 0u64);
            while n < 200_000 {
                for record in all(&reader, &mut seen) {
                    assert_eq!(record, vec![n; (n % 7) as usize]);
                    n += 1;
                }
                thread::yield_now();
            }
        });
    }
}
