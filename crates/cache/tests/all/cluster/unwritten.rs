//! Blocks that `dbw0` tries to write in vain.

use super::*;
use storage::Faults;

/// Longer than anything here takes. Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A thread that closes a frame waits for the write of it that is in flight. A failed write is no
/// longer in flight, however often it is tried again.
#[test]
fn a_block_that_cannot_be_written_can_leave() {
    let cluster = Arc::new(Cluster::new(2, 3));
    load(cluster.cache(0), 1..=1);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);

    let own = &cluster.nodes[0].instance.storage;
    own.set_faults(Faults {
        fail_from_read: Some(own.reads() + 1),
        fail_reads: u64::MAX,
        ..Faults::default()
    });
    let tried = cluster.cache(0).checkpoint();
    assert!(tried.is_err(), "the double-write file can be read");

    let (done, is_done) = channel();
    let other = cluster.clone();
    let session = std::thread::spawn(move || {
        increment(other.cache(1), 1, false);
        done.send(()).unwrap();
    });
    let waited = is_done.recv_timeout(PATIENCE);
    assert!(waited.is_ok(), "the other instance does not get the block");
    assert_eq!(value(cluster.cache(1), 1, true), 1);
    own.set_faults(Faults::default());
    session.join().unwrap();
    Arc::into_inner(cluster).unwrap().end();
}

/// Some blocks of a batch are home, and there was no room for the others. The batch is brought home
/// before anything else. Another instance must not write a newer version of these blocks meanwhile,
/// or the old one would land on it. (In place, a write needs room on a copy-on-write file system.)
#[test]
fn a_block_of_a_batch_that_is_half_home_does_not_leave() {
    let cluster = Arc::new(Cluster::new(2, 3));
    load(cluster.cache(0), 1..=5);
    cluster.cache(0).checkpoint().unwrap();
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    // The blocks are no neighbours, so each comes home by a write of its own.
    [1, 5]
        .into_iter()
        .for_each(|b| increment(cluster.cache(0), b, false));
    cluster.data.set_faults(Faults {
        fail_from_write: Some(cluster.data.writes() + 2),
        fail_writes: u64::MAX,
        fail_for_room: true,
        ..Faults::default()
    });
    let tried = cluster.cache(0).checkpoint();
    assert!(tried.is_err(), "there is room for the second block");

    let (done, is_done) = channel();
    let other = cluster.clone();
    let session = std::thread::spawn(move || {
        increment(other.cache(1), 1, false);
        // The thread that looks whether the block is already here may be gone.
        let _ = done.send(());
        other.cache(1).checkpoint().unwrap();
    });
    let left = is_done.recv_timeout(Duration::from_millis(300)).is_ok();
    cluster.data.set_faults(Faults::default());
    session.join().unwrap();
    increment(cluster.cache(0), 5, false);
    cluster.cache(0).checkpoint().unwrap();
    assert!(
        !left,
        "it left while an older version of it was to be written"
    );
    let on_disk = recovered(&cluster.data, &[]);
    assert_eq!((on_disk[1], on_disk[5]), (2, 2));
    Arc::into_inner(cluster).unwrap().end();
}
