//! Readers that ask for several blocks at once.

use super::cancelled::{cancelled, cut, is_cancelled, mend};
use super::*;
use cache::AskedAhead;
use wait::session;

/// Asks for the blocks ahead and reads them. `before` are the values that were there before.
pub(super) fn read_several(cache: &Arc<Cache>, blocks: Vec<u32>, before: Vec<u64>) {
    let snapshot = cache.redo().clock().now();
    let mut ahead = AskedAhead::default();
    let wanted: Vec<Dba> = blocks.iter().map(|&b| dba(b)).collect();
    cache.ask_ahead(&wanted, snapshot, &mut ahead).unwrap();
    for b in blocks {
        let guard = cache.read_as_of_ahead(dba(b), snapshot, &ahead).unwrap();
        let (seen, before) = (rows(&guard).unwrap()[0], before[b as usize]);
        assert_eq!(guard.dba(), dba(b));
        assert!(seen >= before, "block {b}: {seen} seen, {before} there");
    }
}

/// Two instances, and eight blocks that the second one has changed once.
fn changed_by_the_second(seed: u64) -> Cluster {
    let cluster = Cluster::new(2, seed);
    load(cluster.cache(1), 1..=8);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    (1..=8).for_each(|b| increment(cluster.cache(1), b, false));
    let now = cluster.cache(1).redo().clock().now();
    cluster.cache(0).redo().clock().lift(now).unwrap();
    cluster
}

fn all() -> Vec<Dba> {
    (1..=8).map(dba).collect()
}

/// The copies of another instance's blocks come with one wait, and nobody is asked again. They are
/// good for the snapshot that they were asked with, and for no later one.
#[test]
fn copies_are_there_for_their_snapshot_alone() {
    let cluster = changed_by_the_second(7);
    let (first, second) = (cluster.cache(0), cluster.cache(1));
    let snapshot = first.redo().clock().now();
    let mut ahead = AskedAhead::default();
    first.ask_ahead(&all(), snapshot, &mut ahead).unwrap();
    let sent = cluster.nodes[0].network.sent[0].load(SeqCst);
    (1..=8).for_each(|b| increment(second, b, false));
    let now = second.redo().clock().now();
    for b in 1..=8 {
        let guard = first.read_as_of_ahead(dba(b), snapshot, &ahead).unwrap();
        assert_eq!((guard.is_copy(), rows(&guard).unwrap()[0]), (true, 1));
    }
    assert_eq!(cluster.nodes[0].network.sent[0].load(SeqCst), sent);
    first.redo().clock().lift(now).unwrap();
    for b in 1..=8 {
        let guard = first.read_as_of_ahead(dba(b), now, &ahead).unwrap();
        assert_eq!(rows(&guard).unwrap()[0], 2, "block {b}");
    }
    cluster.end();
}

/// What nobody has cached is read from disk into frames, and what is here is not asked for.
#[test]
fn what_is_on_disk_comes_into_frames() {
    let cluster = Cluster::new(2, 11);
    load(cluster.cache(1), 1..=8);
    cluster.cache(1).checkpoint().unwrap();
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    while cluster.cache(1).release_everything() > 0 {
        std::thread::yield_now();
    }
    let cache = cluster.cache(0);
    let mut ahead = AskedAhead::default();
    let snapshot = cache.redo().clock().now();
    cache.ask_ahead(&all(), snapshot, &mut ahead).unwrap();
    for b in 1..=8 {
        let here = cache.try_read(dba(b)).expect("the block is in a frame");
        assert_eq!(rows(&here).unwrap()[0], 0);
    }
    let sent = cluster.nodes[0].network.sent[0].load(SeqCst);
    cache.ask_ahead(&all(), snapshot, &mut ahead).unwrap();
    assert_eq!(cluster.nodes[0].network.sent[0].load(SeqCst), sent);
    cluster.end();
}

/// A statement that is cancelled while it waits for several blocks keeps none of them from others.
#[test]
fn a_cancelled_reader_of_several_blocks_keeps_none() {
    let cluster = changed_by_the_second(5);
    let queue = cut(&cluster);
    let read = |cache: &Arc<Cache>| {
        let snapshot = cache.redo().clock().now();
        let mut ahead = AskedAhead::default();
        session::cancellable(|| cache.ask_ahead(&all(), snapshot, &mut ahead))
    };
    assert!(is_cancelled(&cancelled(cluster.cache(0), read)));
    mend(&cluster, queue);
    for b in 1..=8 {
        increment(cluster.cache(0), b, b % 2 == 0);
        increment(cluster.cache(1), b, false);
        assert_eq!(value(cluster.cache(0), b, true), 3, "block {b}");
    }
    cluster.end();
}
