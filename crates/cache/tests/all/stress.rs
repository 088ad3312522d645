//! Many threads work over a cache smaller than the data. Every increment counts once, and blocks
//! never change their address. A fresh cache reads what a checkpoint wrote, with nothing left to
//! replay.

use crate::common::*;
use block::{LogPos, Op};
use cache::{Cache, Change, RecordHeader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const WRITERS: u64 = 3;
const READERS: u64 = 2;
const STEPS: u64 = 6_000;

fn change(cache: &Cache, guard: &mut cache::WriteGuard<'_>, op: Op, payload: &[u8]) -> LogPos {
    let change = Change {
        guard,
        op,
        object: OBJECT,
        payload,
    };
    cache
        .change(RecordHeader::NONE, &mut [change], |_, _| ())
        .end
}

/// Formats every block with one counter at zero.
fn load(cache: &Arc<Cache>) {
    for b in 1..=BLOCKS {
        cache.reserve().unwrap();
        let pin = cache.pin_new(dba(b)).unwrap();
        let mut guard = pin.write();
        change(cache, &mut guard, Op::HeapFormat, &[]);
        change(cache, &mut guard, Op::HeapInsert, &row(0, 0));
    }
}

/// Adds one to a counter. A pin, or none: these are the two ways to a latch.
fn increment(cache: &Arc<Cache>, block: u32, by_pin: bool) {
    cache.reserve().unwrap();
    let pin = by_pin.then(|| cache.pin(dba(block)).unwrap());
    let mut guard = match &pin {
        Some(pin) => pin.write(),
        None => cache.write(dba(block)).unwrap(),
    };
    assert_eq!(guard.dba(), dba(block));
    let value = rows(&guard).unwrap()[0];
    change(cache, &mut guard, Op::HeapOverwrite, &row(0, value + 1));
}

#[test]
fn increments_of_many_threads_are_all_counted() {
    let storage = create();
    let instance = Instance::open(&storage).unwrap();
    let cache = &instance.cache;
    load(cache);
    let counts: Vec<AtomicU64> = (0..=BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                let counts = &counts;
                s.spawn(move || {
                    let mut rng = Rng(seed);
                    for _ in 0..STEPS {
                        let n = if rng.often(50) { 5 } else { u64::from(BLOCKS) };
                        let block = 1 + rng.below(n) as u32;
                        increment(cache, block, rng.often(50));
                        // The count is raised after the change. So a reader that sees the count
                        // finds at least as much in the block.
                        counts[block as usize].fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        for seed in 0..READERS {
            let (counts, done) = (&counts, &done);
            s.spawn(move || {
                let mut rng = Rng(1000 + seed);
                while !done.load(Relaxed) {
                    let block = 1 + rng.below(u64::from(BLOCKS)) as u32;
                    if rng.often(5) {
                        cache.prefetch(dba(block), 16.min(BLOCKS + 1 - block));
                    }
                    let before = counts[block as usize].load(Relaxed);
                    let guard = cache.read(dba(block)).unwrap();
                    assert_eq!(guard.dba(), dba(block));
                    assert!(rows(&guard).unwrap()[0] >= before);
                }
            });
        }
        let finished: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, Relaxed); // also when a writer failed: the readers must end
        finished.into_iter().for_each(|r| r.unwrap());
    });
    cache.checkpoint().unwrap();
    let survived = storage.after_crash(1);
    instance.stop();

    let again = Instance::open(&survived).unwrap();
    assert_eq!(again.replayed, 0, "the checkpoint left something to replay");
    for b in 1..=BLOCKS {
        let guard = again.cache.read(dba(b)).unwrap();
        assert_eq!(
            rows(&guard).unwrap(),
            [counts[b as usize].load(Relaxed)],
            "block {b}"
        );
    }
    again.stop();
}

/// All threads ask for the same absent block at once. Some read it, some wait for that, and all see
/// it.
#[test]
fn threads_that_ask_for_the_same_absent_block_all_get_it() {
    let storage = create();
    let instance = Instance::open(&storage).unwrap();
    let cache = &instance.cache;
    load(cache);
    let start = std::sync::Barrier::new(4);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for b in 1..=BLOCKS {
                    start.wait();
                    let guard = cache.read(dba(b)).unwrap();
                    assert_eq!((guard.dba(), rows(&guard)), (dba(b), Some(vec![0])));
                }
            });
        }
    });
    instance.stop();
}

/// 27. A session that waited for log space with a latch held would let a slow log stall LMS.
#[test]
#[should_panic(expected = "invariant R7")]
fn waiting_for_log_space_with_a_latch_held_is_a_broken_invariant() {
    let storage = create();
    let instance = Instance::open(&storage).unwrap();
    let _held = instance.cache.read(dba(1)).unwrap();
    let _ = instance.cache.reserve();
}

/// R7: a block that is not cached cannot be asked for with a latch held.
#[test]
#[should_panic(expected = "invariant R7")]
fn reading_a_block_with_a_latch_held_is_a_broken_invariant() {
    let storage = create();
    let instance = Instance::open(&storage).unwrap();
    let _held = instance.cache.read(dba(1)).unwrap();
    let _ = instance.cache.read(dba(2));
}
