//! Blocks that `dbw0` tries to write in vain.

use super::*;
use storage::Faults;

/// Longer than it takes: only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever closes a frame waits for the write of it that is in flight. One that has failed is in flight no more, however often it is tried again.
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
