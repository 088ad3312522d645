//! The commit cache: what this instance learnt of other instances' transactions. It is a bounded,
//! set-associative table that is read without latches.
//!
//! ```text
//! bucket (64 bytes): version | key, value | key, value | key, value
//! ```
//!
//! **Invariants.**
//! - A writer makes a bucket's version odd, changes the bucket, and makes the version even again,
//!   higher than before. A reader that finds the version odd, or another version after reading, has
//!   read nothing. So a value is never taken for another transaction's.
//! - "Committed" and "aborted" are for ever and are never replaced by "active". "Active" is for
//!   snapshots up to the SCN kept with it, which only rises.
//! - Forgetting an entry costs a question.

use super::messages::Answer;
use block::{Scn, TxnId};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The buckets of an instance's cache. They take 4 MB and have room for 196,608 transactions.
const BUCKETS: usize = 1 << 16;
const WAYS: usize = 3;
/// How often a reader looks again at a bucket that is being changed, before it says that it knows
/// nothing.
const TRIES: usize = 16;

#[repr(align(64))]
struct Bucket {
    version: AtomicU64,
    /// Keys and values in turn. A key of zero is free.
    words: [AtomicU64; 2 * WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

pub(crate) struct CommitCache {
    buckets: Box<[Bucket]>,
}

fn pack(answer: Answer) -> u64 {
    match answer {
        Answer::ActiveTo(scn) => scn.0 << 2,
        Answer::Committed(scn) => scn.0 << 2 | 1,
        Answer::Aborted => 3,
    }
}

fn unpack(word: u64) -> Answer {
    match word & 3 {
        0 => Answer::ActiveTo(Scn(word >> 2)),
        1 => Answer::Committed(Scn(word >> 2)),
        _ => Answer::Aborted,
    }
}

impl CommitCache {
    pub(crate) fn new() -> CommitCache {
        CommitCache::of(BUCKETS)
    }

    fn of(buckets: usize) -> CommitCache {
        let bucket = |_| Bucket {
            version: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; 2 * WAYS],
        };
        CommitCache {
            buckets: (0..buckets).map(bucket).collect(),
        }
    }

    fn bucket(&self, txn: TxnId) -> &Bucket {
        // Neighbouring numbers go to neighbouring buckets; instances are spread.
        let hash = (txn.0 ^ (txn.0 >> 48).wrapping_mul(0x9e37_79b9)) as usize;
        &self.buckets[hash % self.buckets.len()]
    }

    /// What is known of `txn`; `None` if nothing is.
    #[inline]
    pub(crate) fn get(&self, txn: TxnId) -> Option<Answer> {
        let bucket = self.bucket(txn);
        for _ in 0..TRIES {
            let version = bucket.version.load(Ordering::Acquire);
            if version & 1 == 1 {
                seam::hint::spin_loop();
                continue;
            }
            let found = (0..WAYS).find_map(|way| {
                (bucket.words[2 * way].load(Ordering::Relaxed) == txn.0)
                    .then(|| bucket.words[2 * way + 1].load(Ordering::Relaxed))
            });
            fence(Ordering::Acquire);
            if bucket.version.load(Ordering::Relaxed) == version {
                return found.map(unpack);
            }
        }
        None
    }

    /// Remembers what the instance of `txn` said of it.
    pub(crate) fn put(&self, txn: TxnId, answer: Answer) {
        let bucket = self.bucket(txn);
        let version = loop {
            let version = bucket.version.load(Ordering::Relaxed);
            let odd = version & 1 == 1;
            if !odd
                && bucket
                    .version
                    .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                break version;
            }
            // The other writer stores a few words; it may have lost its CPU.
            seam::thread::yield_now();
        };
        fence(Ordering::Release);
        let key = |way: usize| bucket.words[2 * way].load(Ordering::Relaxed);
        let way = (0..WAYS)
            .find(|&w| key(w) == txn.0)
            .or_else(|| (0..WAYS).find(|&w| key(w) == 0))
            .unwrap_or((version / 2) as usize % WAYS);
        let (key, value) = (&bucket.words[2 * way], &bucket.words[2 * way + 1]);
        let known =
            (key.load(Ordering::Relaxed) == txn.0).then(|| unpack(value.load(Ordering::Relaxed)));
        let keep = match (known, answer) {
            (Some(Answer::Committed(_) | Answer::Aborted), _) => true,
            (Some(Answer::ActiveTo(known)), Answer::ActiveTo(new)) => known >= new,
            _ => false,
        };
        if !keep {
            key.store(txn.0, Ordering::Relaxed);
            value.store(pack(answer), Ordering::Relaxed);
        }
        bucket.version.store(version + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::InstanceId;

    fn txn(n: u64) -> TxnId {
        TxnId::new(InstanceId(2), n)
    }

    #[test]
    fn final_answers_stay_and_active_ones_rise() {
        let c = CommitCache::of(4);
        c.put(txn(1), Answer::ActiveTo(Scn(10)));
        c.put(txn(1), Answer::ActiveTo(Scn(7)));
        assert_eq!(c.get(txn(1)), Some(Answer::ActiveTo(Scn(10))));
        c.put(txn(1), Answer::Committed(Scn(12)));
        c.put(txn(1), Answer::ActiveTo(Scn(20)));
        assert_eq!(c.get(txn(1)), Some(Answer::Committed(Scn(12))));
        assert_eq!(c.get(txn(5)), None);
        c.put(txn(5), Answer::Aborted);
        c.put(txn(5), Answer::ActiveTo(Scn(20)));
        assert_eq!(c.get(txn(5)), Some(Answer::Aborted));
    }

    /// No value that is read is another transaction's, although many transactions share few buckets
    /// and entries are thrown out all the time.
    #[test]
    fn no_value_is_taken_for_another_transactions() {
        let c = CommitCache::of(2);
        let hits = std::sync::atomic::AtomicUsize::new(0);
        let running = std::sync::atomic::AtomicUsize::new(2);
        std::thread::scope(|s| {
            for seed in 0..2u64 {
                let (c, running) = (&c, &running);
                s.spawn(move || {
                    let mut x = seed + 88172645463325252;
                    for _ in 0..400_000 {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        let n = x % 16;
                        c.put(txn(n), Answer::Committed(Scn(1000 + n)));
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            s.spawn(|| {
                let mut n = 0;
                while running.load(Ordering::SeqCst) > 0 {
                    n = (n + 1) % 16;
                    if let Some(answer) = c.get(txn(n)) {
                        assert_eq!(answer, Answer::Committed(Scn(1000 + n)));
                        hits.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        });
        assert!(hits.into_inner() > 0, "nothing was ever found");
    }
}
