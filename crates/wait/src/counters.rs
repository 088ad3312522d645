//! What a session counts: statistics, waits, and how long these were.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::{Class, Event, Stat};

/// The number of buckets of the histogram. Bucket b counts waits under 2^b microseconds; the last
/// counts all longer ones (over 17 minutes).
pub const BUCKETS: usize = 31;

/// Counters that one thread writes and any thread reads.
pub struct Counters {
    stats: [AtomicU64; Stat::COUNT],
    waits: [AtomicU64; Event::COUNT],
    wait_ns: [AtomicU64; Event::COUNT],
    max_ns: [AtomicU64; Event::COUNT],
    /// The sum of `wait_ns` of each class's events.
    class_ns: [AtomicU64; Class::ALL.len()],
    /// The sum of `class_ns`.
    waited_ns: AtomicU64,
    histogram: Box<[[AtomicU32; BUCKETS]; Event::COUNT]>,
}

/// Adds without a locked instruction: only the owning thread writes.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            stats: std::array::from_fn(|_| AtomicU64::new(0)),
            waits: std::array::from_fn(|_| AtomicU64::new(0)),
            wait_ns: std::array::from_fn(|_| AtomicU64::new(0)),
            max_ns: std::array::from_fn(|_| AtomicU64::new(0)),
            class_ns: std::array::from_fn(|_| AtomicU64::new(0)),
            waited_ns: AtomicU64::new(0),
            histogram: Box::new(std::array::from_fn(|_| {
                std::array::from_fn(|_| AtomicU32::new(0))
            })),
        }
    }
    #[inline]
    pub(crate) fn add_stat(&self, stat: Stat, n: u64) {
        bump(&self.stats[stat as usize], n);
    }
    #[inline]
    pub fn stat(&self, stat: Stat) -> u64 {
        self.stats[stat as usize].load(Relaxed)
    }
    pub fn waits(&self, event: Event) -> u64 {
        self.waits[event as usize].load(Relaxed)
    }
    pub fn wait_ns(&self, event: Event) -> u64 {
        self.wait_ns[event as usize].load(Relaxed)
    }
    pub fn max_ns(&self, event: Event) -> u64 {
        self.max_ns[event as usize].load(Relaxed)
    }
    #[inline]
    pub fn class_ns(&self, class: Class) -> u64 {
        self.class_ns[class as usize].load(Relaxed)
    }
    /// Nanoseconds of the waits of each class, in the order of [`Class::ALL`].
    #[inline]
    pub(crate) fn of_classes(&self) -> &[AtomicU64; Class::ALL.len()] {
        &self.class_ns
    }
    /// Nanoseconds of all waits.
    #[inline]
    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Relaxed)
    }
    pub fn bucket(&self, event: Event, bucket: usize) -> u64 {
        u64::from(self.histogram[event as usize][bucket].load(Relaxed))
    }

    pub(crate) fn add_wait(&self, event: Event, ns: u64) {
        let e = event as usize;
        bump(&self.waits[e], 1);
        bump(&self.wait_ns[e], ns);
        bump(&self.class_ns[event.class() as usize], ns);
        bump(&self.waited_ns, ns);
        if ns > self.max_ns[e].load(Relaxed) {
            self.max_ns[e].store(ns, Relaxed);
        }
        let bucket = &self.histogram[e][bucket_of(ns)];
        bucket.store(bucket.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Adds another session's counters to these. The caller is the only writer of these.
    pub(crate) fn fold(&self, other: &Counters) {
        for (to, from) in self.stats.iter().zip(&other.stats) {
            bump(to, from.load(Relaxed));
        }
        for (to, from) in self.class_ns.iter().zip(&other.class_ns) {
            bump(to, from.load(Relaxed));
        }
        bump(&self.waited_ns, other.waited_ns());
        for e in 0..Event::COUNT {
            bump(&self.waits[e], other.waits[e].load(Relaxed));
            bump(&self.wait_ns[e], other.wait_ns[e].load(Relaxed));
            self.max_ns[e].fetch_max(other.max_ns[e].load(Relaxed), Relaxed);
            for (to, from) in self.histogram[e].iter().zip(&other.histogram[e]) {
                to.store(to.load(Relaxed).wrapping_add(from.load(Relaxed)), Relaxed);
            }
        }
    }
}

pub(crate) fn bucket_of(ns: u64) -> usize {
    let us = ns / 1000;
    ((64 - us.leading_zeros()) as usize).min(BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_microseconds() {
        assert_eq!(
            [0, 999, 1000, 1999, 2000, 4000].map(bucket_of),
            [0, 0, 1, 1, 2, 3]
        );
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
