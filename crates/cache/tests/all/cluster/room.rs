//! What it takes to fill room that comes into use on one instance, and room that was in use on
//! another.

use super::*;
use block::ObjectId;
use cache::GRANULE_BLOCKS;

const KEPT: ObjectId = ObjectId(7_777);

impl Cluster {
    /// The number of messages of an instance so far, and of those of them that had a block.
    fn sent(&self, n: usize) -> [u64; 2] {
        [0, 1].map(|i| self.nodes[n].network.sent[i].load(SeqCst))
    }
}

fn format(cache: &Arc<Cache>, block: u32, object: ObjectId) {
    cache.reserve().unwrap();
    let mut guard = cache.write_new(dba(block)).unwrap();
    for (op, payload) in [(Op::HeapFormat, Vec::new()), (Op::HeapInsert, row(0, 9))] {
        let change = Change {
            guard: &mut guard,
            op,
            object,
            payload: &payload,
        };
        cache.change(RecordHeader::NONE, &mut [change], |_, _| ());
    }
}

fn two(seed: u64) -> Cluster {
    let cluster = Cluster::new(2, seed);
    (0..2).for_each(|n| cluster.join(n));
    cluster.enter(1, &[0, 1]);
    cluster
}

#[test]
fn of_a_run_that_is_its_own_an_instance_asks_nobody() {
    let cluster = two(5);
    let fill = |blocks: std::ops::Range<u32>| {
        let before = cluster.sent(1)[0];
        blocks.for_each(|b| format(cluster.cache(1), b, OBJECT));
        cluster.sent(1)[0] - before
    };
    let granule = GRANULE_BLOCKS;
    // A newcomer takes nothing before it knows what others have. It knows that when both have
    // served it.
    fill(1..40);
    // The run is a granule and a half. Both granules are taken.
    cluster
        .cache(1)
        .master_run(OBJECT, dba(2 * granule), granule + granule / 2);
    // The session that asks first waits until the other instance has said what it has there.
    fill(2 * granule..2 * granule + 1);
    fill(3 * granule..3 * granule + 1);
    assert_eq!(fill(2 * granule + 1..2 * granule + 40), 0);
    assert_eq!(fill(3 * granule + 1..3 * granule + 40), 0);
    // A granule that is the instance's already is not taken again, and what is known of it is not
    // written over.
    cluster.cache(1).master_run(KEPT, dba(2 * granule), granule);
    let known = cluster.cache(1).granules_taken();
    let objects: Vec<_> = known.iter().map(|g| g.object).collect();
    assert_eq!(objects, [Some(OBJECT); 2]);
    // Less than half of a granule is not taken: about every second block is asked for.
    cluster
        .cache(1)
        .master_run(OBJECT, dba(5 * granule), granule / 4);
    assert!(fill(5 * granule..5 * granule + 30) > 0);
    // The other instance asks the new master.
    assert_eq!(value(cluster.cache(0), 2 * granule + 7, true), 9);
    cluster.end();
}

#[test]
fn blocks_of_what_was_dropped_are_not_fetched_from_who_had_them() {
    let cluster = two(6);
    let (one, other) = (cluster.cache(0), cluster.cache(1));
    (1..=20).for_each(|b| format(one, b, OBJECT));
    (21..=25).for_each(|b| format(one, b, KEPT));
    // Some of the blocks are cached on both.
    assert!((15..=20).all(|b| value(other, b, true) == 9));
    let dropped = [OBJECT].into();
    assert!(!one.retire(&dropped), "dirty blocks are written first");
    one.checkpoint().unwrap();
    assert!(one.retire(&dropped));
    other.checkpoint().unwrap();
    assert!(other.retire(&dropped));
    let before = cluster.sent(0)[1];
    (1..=20).for_each(|b| format(other, b, ObjectId(8_888)));
    assert_eq!(cluster.sent(0)[1], before, "a block was fetched");
    // A block that was not dropped is where it was.
    other.write(dba(21)).unwrap();
    assert_eq!(cluster.sent(0)[1], before + 1);
    assert_eq!(value(one, 3, true), 9, "as written by the other");
    cluster.end();
}
