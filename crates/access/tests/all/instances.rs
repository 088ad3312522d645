//! Several instances' spaces, heaps, trees and sequences over one set of blocks. Each instance has
//! memory of its own, and what it remembers must not count. They share one cache, which stands for
//! coherent caches, and one transaction manager.

use crate::common::*;
use access::btree::{BTree, Cursor, IndexOutcome, is_index_undo};
use access::heap::{Heap, is_heap_undo};
use access::sequence::{Alone, Sequence};
use access::space::segment::extent_blocks;
use access::space::{Space, UNDO_SEGMENT_CREATE};
use block::sequence::SequenceParams;
use block::space::{SegmentKind, UNIT_BLOCKS};
use block::{Dba, FileId, InstanceId, ObjectId, RowId, UndoPtr};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::*};
use storage::{FileKind, OsStorage, Storage};
use testkit::scratch::Scratch;
use testkit::seeds::seed_or;
use txn::{HandlerError, Transaction, UndoHandler, UndoRecord};

const TREE: ObjectId = ObjectId(20_001);
const SEQUENCE: ObjectId = ObjectId(20_002);

/// The things that one instance has in memory.
struct Node {
    number: u16,
    space: Arc<Space>,
    heap: Heap,
    tree: BTree,
    sequence: Sequence,
}

struct World {
    db: Instance,
    headers: [Dba; 3],
    next_object: AtomicU32,
}

impl World {
    fn new(db: Instance) -> World {
        let mut txn = db.session();
        let mut create = |object, kind| db.space.create_segment(&mut txn, object, kind).unwrap();
        let tree = create(TREE, SegmentKind::Index);
        let sequence = create(SEQUENCE, SegmentKind::Sequence);
        txn.commit().unwrap();
        let world = World {
            headers: [db.heap.header(), tree, sequence],
            db,
            next_object: AtomicU32::new(30_000),
        };
        let first = world.node(1, 1);
        first.tree.create().unwrap();
        let params = SequenceParams {
            start: 10,
            ..SequenceParams::default()
        };
        first.sequence.create(&params).unwrap();
        world
    }

    /// An instance as it is after its start, when `up` instances in all are up.
    fn node(&self, number: u16, up: u16) -> Node {
        let cache = self.db.cache.clone();
        let space = Space::open(cache, FileId::DATA, InstanceId(number)).unwrap();
        let others = (1..=up).filter(|n| *n != number).map(InstanceId);
        space.members().set_others(others);
        let (space, txns) = (Arc::new(space), &self.db.txns);
        let [heap, tree, sequence] = self.headers;
        Node {
            number,
            heap: Heap::open(space.clone(), txns.clone(), OBJECT, heap),
            tree: BTree::open(txns, &space, TREE, tree),
            sequence: Sequence::open(txns, &space, SEQUENCE, sequence),
            space,
        }
    }

    fn object(&self) -> ObjectId {
        ObjectId(self.next_object.fetch_add(1, Relaxed))
    }

    /// Checks that every owned unit is owned by an object of these, and that each object has what
    /// it is said to have.
    fn check_space(&self, nodes: &[Node], claims: &Claims) {
        let claims = claims.0.lock().unwrap();
        for node in nodes {
            for (object, units) in &claims.by_object {
                let mut found = node.space.units_of(*object).unwrap();
                found.sort();
                assert!(found.iter().eq(units), "units of {object:?}");
                assert!(units.iter().all(|u| node.space.owns(*object, *u).unwrap()));
                let blocks = units.len() as u64 * u64::from(UNIT_BLOCKS);
                assert_eq!(node.space.blocks_of(*object).unwrap(), blocks);
            }
            let own = [OBJECT, TREE, SEQUENCE];
            let known: BTreeSet<_> = claims.by_object.keys().chain(&own).copied().collect();
            assert_eq!(node.space.owners().unwrap(), known);
        }
    }
}

/// Dispatches undo of every kind, by an instance.
struct Handler<'a>(&'a Node);
impl UndoHandler for Handler<'_> {
    fn undo(
        &self,
        txn: &mut Transaction,
        record: &UndoRecord,
        at: UndoPtr,
    ) -> Result<(), HandlerError> {
        let Handler(node) = self;
        match record.kind {
            UNDO_SEGMENT_CREATE => node.space.drop_segment(record.object)?,
            kind if is_heap_undo(kind) => node.heap.undo(txn, record, at)?,
            kind => {
                assert!(is_index_undo(kind));
                let tree = &node.tree;
                tree.undo(txn, &record.prev, kind, &record.payload)?
            }
        }
        Ok(())
    }
}

/// The units that were given to each object: none twice.
#[derive(Default)]
struct Claims(Mutex<ClaimsInner>);
#[derive(Default)]
struct ClaimsInner {
    units: BTreeSet<Dba>,
    by_object: BTreeMap<ObjectId, BTreeSet<Dba>>,
}

impl Claims {
    fn claim(&self, object: ObjectId, first: Dba, blocks: u32) {
        let mut claims = self.0.lock().unwrap();
        for i in (0..blocks).step_by(UNIT_BLOCKS as usize) {
            let unit = first.plus(i);
            assert!(claims.units.insert(unit), "unit {unit} was given twice");
            claims.by_object.entry(object).or_default().insert(unit);
        }
    }
    /// Gives up an object's claims. It comes before the space is given back: afterwards others may
    /// have it.
    fn release(&self, object: ObjectId) {
        let mut claims = self.0.lock().unwrap();
        for unit in claims.by_object.remove(&object).unwrap_or_default() {
            claims.units.remove(&unit);
        }
    }
}

/// An instance over a file of the system, for files of several regions: they are reserved, not
/// written.
fn over_big_file(name: &str) -> (Scratch, Instance) {
    let dir = Scratch::new(name);
    let file = OsStorage::new(&dir).unwrap().create("data", FileKind::Data);
    let instance = Instance::on(file.unwrap());
    (dir, instance)
}

/// All instances create, roll back, grow and drop segments at once, over several regions, which
/// they also add.
#[test]
fn no_unit_is_given_twice() {
    const NODES: u16 = 3;
    let seed = seed_or("BRAID_SEED", 1);
    let (_file, db) = over_big_file("units");
    let world = World::new(db);
    let claims = Claims::default();
    let nodes: Vec<Node> = (1..=NODES).map(|n| world.node(n, NODES)).collect();
    std::thread::scope(|s| {
        for (at, node) in nodes.iter().chain(&nodes).enumerate() {
            let (world, claims) = (&world, &claims);
            s.spawn(move || {
                let mut rng = Rng(seed * 100 + at as u64);
                let mut txn = world.db.session();
                let mut mine: Vec<(ObjectId, Dba)> = Vec::new();
                for _ in 0..150 {
                    match rng.below(8) {
                        0..3 => {
                            let object = world.object();
                            let header = node
                                .space
                                .create_segment(&mut txn, object, SegmentKind::Heap)
                                .unwrap();
                            claims.claim(object, header, extent_blocks(0));
                            if rng.below(3) == 0 {
                                claims.release(object);
                                txn.rollback(&Handler(node)).unwrap();
                            } else {
                                txn.commit().unwrap();
                                mine.push((object, header));
                            }
                        }
                        3..6 if !mine.is_empty() => {
                            let (object, header) = mine[rng.below(mine.len() as u64) as usize];
                            // Some extents are most of a region.
                            let blocks = [8, 8, 128, 1024, 8192, 12_000][rng.below(6) as usize];
                            if blocks > 1024 && rng.below(4) > 0 {
                                continue;
                            }
                            let (e, _) = node.space.add_extent(object, header, blocks).unwrap();
                            assert_eq!((e.instance.0, e.blocks), (node.number, blocks));
                            claims.claim(object, e.first, blocks);
                        }
                        _ if mine.len() > 3 => {
                            let at = rng.below(mine.len() as u64) as usize;
                            let (object, _) = mine.swap_remove(at);
                            claims.release(object);
                            node.space.drop_segment(object).unwrap();
                        }
                        _ => {}
                    }
                }
            });
        }
    });
    world.check_space(&nodes, &claims);
    let fresh = [world.node(NODES + 1, NODES + 1)];
    world.check_space(&fresh, &claims);
    // Any session finds what was given back, before the file grows.
    let length = || world.db.cache.files().blocks(FileId::DATA).unwrap();
    let before = length();
    assert!(
        before > 2 * 16_008,
        "{before} blocks: one region was enough"
    );
    let objects: Vec<ObjectId> = claims.0.lock().unwrap().by_object.keys().copied().collect();
    for object in objects {
        claims.release(object);
        nodes[0].space.drop_segment(object).unwrap();
    }
    let mut txn = world.db.session();
    for node in nodes.iter().chain(&fresh) {
        let object = world.object();
        let header = node
            .space
            .create_segment(&mut txn, object, SegmentKind::Heap)
            .unwrap();
        claims.claim(object, header, extent_blocks(0));
        if before > 4 * 16_008 || node.number == 1 {
            let (e, _) = node.space.add_extent(object, header, 12_000).unwrap();
            claims.claim(object, e.first, e.blocks);
        }
    }
    txn.commit().unwrap();
    assert_eq!(length(), before, "the file grew while it had room");
    world.check_space(&nodes, &claims);
    world.db.check_replay();
}

fn row(number: u64) -> Vec<u8> {
    let mut rng = Rng(number);
    let len = 20 + rng.below(600) as usize;
    let mut row = number.to_le_bytes().to_vec();
    row.resize(len, number as u8);
    row
}

fn key(number: u64) -> Vec<u8> {
    let mut rng = Rng(number);
    let mut key: Vec<u8> = (0..200).map(|_| rng.below(255) as u8 + 1).collect();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

fn rows_of(world: &World, node: &Node) -> BTreeMap<RowId, Vec<u8>> {
    let mut session = world.db.session();
    let snap = session.statement();
    let mut rows = BTreeMap::new();
    for (first, n) in node.heap.block_runs().unwrap() {
        for i in 0..n {
            let put = &mut |rid: RowId, row: &[u8]| {
                assert!(rows.insert(rid, row.to_vec()).is_none(), "{rid:?} twice")
            };
            node.heap
                .scan_block(&snap, first.plus(i), &cache::AskedAhead::default(), put)
                .unwrap();
        }
    }
    rows
}

type Model = BTreeMap<RowId, u64>;

/// Runs one session's transactions on an instance. It also deletes rows that others have inserted
/// elsewhere.
fn work(world: &World, node: &Node, all: &Mutex<Model>, numbers: &Mutex<BTreeSet<i64>>, seed: u64) {
    let mut rng = Rng(seed);
    let mut txn = world.db.session();
    let mut drawn = Vec::new();
    for step in 0..60 {
        let snap = txn.statement();
        let mut inserted = Vec::new();
        for _ in 0..rng.below(60) {
            let number = rng.next() >> 1;
            let rid = node.heap.insert(&mut txn, &row(number)).unwrap();
            let outcome = node.tree.insert_unique(&mut txn, &key(number), rid, None);
            assert_eq!(outcome.unwrap(), IndexOutcome::Inserted);
            inserted.push((rid, number));
            if rng.below(4) == 0 {
                drawn.push(node.sequence.draw(&Alone).unwrap().unwrap().value);
            }
        }
        // The rows are taken out of the model first: nobody else deletes them.
        let taken: Vec<_> = {
            let mut all = all.lock().unwrap();
            let some: Vec<_> = all.keys().copied().filter(|_| rng.below(8) == 0).collect();
            let some = some.into_iter().take(12);
            some.filter_map(|rid| all.remove_entry(&rid)).collect()
        };
        let snap = txn::Snapshot {
            scn: world.db.txns.clock().now(),
            own: txn.ensure_id().unwrap(),
            ..snap
        };
        for (rid, number) in &taken {
            let outcome = node.heap.delete(&mut txn, &snap, *rid).unwrap();
            assert_eq!(outcome, access::heap::WriteOutcome::Done);
            assert!(node.tree.mark(&mut txn, &key(*number), *rid).unwrap());
        }
        txn.end_statement();
        let stays = if rng.below(4) == 0 {
            txn.rollback(&Handler(node)).unwrap();
            taken
        } else {
            txn.commit().unwrap();
            inserted
        };
        all.lock().unwrap().extend(stays);
        if step % 6 == 0 {
            let horizon = world.db.txns.horizon();
            for hint in world.db.txns.take_purgeable(horizon, 100) {
                match hint.object {
                    OBJECT => node.heap.prune(hint.dba).unwrap(),
                    _ => drop(node.tree.purge_block(hint.dba).unwrap()),
                }
            }
        }
    }
    let mut numbers = numbers.lock().unwrap();
    for n in drawn {
        assert!(numbers.insert(n), "{n} was drawn twice");
    }
}

/// Rows, entries and draws from three instances that are started again now and then. Nothing is
/// lost, nothing is there twice, and each instance inserts into extents of its own.
#[test]
fn what_all_insert_and_delete_is_there_for_all() {
    const NODES: u16 = 3;
    let seed = seed_or("BRAID_SEED", 2);
    let world = World::new(Instance::new());
    let (all, numbers) = (Mutex::new(Model::new()), Mutex::default());
    for round in 0..3 {
        let nodes: Vec<Node> = (1..=NODES).map(|n| world.node(n, NODES)).collect();
        let before = all.lock().unwrap().clone();
        std::thread::scope(|s| {
            for (at, node) in nodes.iter().chain(&nodes).enumerate() {
                let (world, all, numbers) = (&world, &all, &numbers);
                let seed = seed * 1000 + round * 10 + at as u64;
                s.spawn(move || work(world, node, all, numbers, seed));
            }
        });
        let model = all.lock().unwrap();
        let wanted: BTreeMap<RowId, Vec<u8>> = model.iter().map(|(&r, &n)| (r, row(n))).collect();
        assert!(wanted.len() > before.len() + 100);
        for node in &nodes {
            assert!(
                rows_of(&world, node) == wanted,
                "rows differ on {}",
                node.number
            );
            let mut problems = Vec::new();
            node.heap.verify(&mut |p| problems.push(p)).unwrap();
            assert_eq!(problems, Vec::<String>::new());
            let report = node.tree.verify(|_, _, _| ()).unwrap();
            assert_eq!(report.problems, Vec::<String>::new());
            let (mut cursor, mut alive) = (Cursor::new(Vec::new(), None, false), 0);
            while let Some(found) = node.tree.next(&mut cursor).unwrap() {
                if found.marked.is_none() {
                    let number = model.get(&found.rid).copied();
                    assert_eq!(number.map(key).as_deref(), Some(found.key));
                    alive += 1;
                }
            }
            assert_eq!(alive, model.len());
        }
    }
    world.db.check_replay();
}

/// The owner of the extent that a block is in, by the header.
fn owner_of(world: &World, rid: RowId) -> u16 {
    let header = world.db.cache.read(world.headers[0]).unwrap();
    let mut extents = block::space::extents(&header);
    let dba = rid.dba();
    let extent = extents.find(|e| e.first <= dba && dba < e.first.plus(e.blocks));
    extent.unwrap().instance.0
}

#[test]
fn each_instance_inserts_into_extents_of_its_own() {
    let world = World::new(Instance::new());
    let nodes = [world.node(1, 2), world.node(2, 2)];
    let mut txn = world.db.session();
    let mut rows = Vec::new();
    for n in 0..3000 {
        let node = &nodes[n as usize % 2];
        let rid = node.heap.insert(&mut txn, &row(n)).unwrap();
        assert_eq!(owner_of(&world, rid), node.number);
        rows.push(rid);
    }
    txn.commit().unwrap();
    // The second instance deletes what the first has inserted. Only the first inserts there again.
    let snap = txn.statement();
    for rid in rows.iter().step_by(2) {
        nodes[1].heap.delete(&mut txn, &snap, *rid).unwrap();
    }
    txn.end_statement();
    txn.commit().unwrap();
    for hint in (world.db.txns).take_purgeable(world.db.txns.horizon(), usize::MAX) {
        nodes[1].heap.prune(hint.dba).unwrap();
    }
    for n in 0..1000 {
        let rid = nodes[1].heap.insert(&mut txn, &row(n)).unwrap();
        assert_eq!(owner_of(&world, rid), 2);
    }
    txn.commit().unwrap();
    // While the first instance is down, its room is the second's.
    nodes[1].space.members().set_others([]);
    let mut elsewhere = 0;
    for n in 0..3000 {
        let rid = nodes[1].heap.insert(&mut txn, &row(n)).unwrap();
        elsewhere += u32::from(owner_of(&world, rid) == 1);
    }
    txn.commit().unwrap();
    assert!(
        elsewhere > 500,
        "{elsewhere} rows went where there was room"
    );
}

/// One instance fills a queue, the other empties it. The instance that fills it has no note of what
/// was deleted, and must find it.
#[test]
fn a_queue_between_instances_keeps_its_size() {
    let world = World::new(Instance::new());
    let [giver, taker] = [world.node(1, 2), world.node(2, 2)];
    let mut txn = world.db.session();
    let (mut queue, mut sizes) = (Vec::new(), Vec::new());
    for round in 0..60u64 {
        for n in 0..500 {
            queue.push(giver.heap.insert(&mut txn, &row(round * 500 + n)).unwrap());
        }
        txn.commit().unwrap();
        let snap = txn.statement();
        let gone = queue.len().saturating_sub(500);
        for rid in queue.drain(..gone) {
            taker.heap.delete(&mut txn, &snap, rid).unwrap();
        }
        txn.end_statement();
        txn.commit().unwrap();
        for hint in (world.db.txns).take_purgeable(world.db.txns.horizon(), usize::MAX) {
            taker.heap.prune(hint.dba).unwrap();
        }
        sizes.push(giver.space.blocks_of(OBJECT).unwrap());
    }
    assert!(
        sizes[59] <= 4 * sizes[2] && sizes[59] == sizes[40],
        "the segment grows: {sizes:?}"
    );
}

/// The paper's walk-through, with instances that come and go.
#[test]
fn ranges_of_a_sequence_are_drawn_by_turns() {
    let world = World::new(Instance::new());
    let draw = |node: &Node, n| -> Vec<i64> {
        (0..n)
            .map(|_| node.sequence.draw(&Alone).unwrap().unwrap().value)
            .collect()
    };
    let [one, two] = [world.node(1, 2), world.node(2, 2)];
    assert_eq!(draw(&one, 1), [10]);
    assert_eq!(draw(&two, 20), (30..50).collect::<Vec<_>>());
    assert_eq!(draw(&one, 19), (11..30).collect::<Vec<_>>());
    assert_eq!(draw(&one, 1), [50]);
    assert_eq!(draw(&two, 1), [70]);
    // The state is the block's, whichever instance asks.
    let state = |node: &Node| node.sequence.state().unwrap().1.mark;
    assert_eq!((state(&one), state(&two)), (90, 90));
    two.sequence.set(1000, true, &Alone).unwrap();
    assert_eq!(draw(&world.node(1, 2), 1), [1001]);
    assert_eq!((state(&one), state(&two)), (1021, 1021));
    assert_eq!(draw(&two, 1), [1021]);
}
