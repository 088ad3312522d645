//! Lists of extents that are longer than a segment's header: a table of more than 31 GB, here of
//! extents without rows.

use crate::common::*;
#[allow(dead_code, reason = "the other tests use the rest")]
use access::heap::Heap;
use access::space::Space;
use block::space::{Extent, PLACES, UNIT_BLOCKS, extents, next_list};
use block::{BlockType, Dba, FileId, InstanceId, Op};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The space as another instance has it.
fn node(db: &Instance, number: u16) -> Arc<Space> {
    let space = Space::open(db.cache.clone(), FileId::DATA, InstanceId(number)).unwrap();
    space.members().set_others([InstanceId(3 - number)]);
    Arc::new(space)
}

fn lengthen(space: &Space, db: &Instance, by: usize) -> Vec<(Extent, u32)> {
    let one = |_| {
        space
            .add_extent(OBJECT, db.heap.header(), UNIT_BLOCKS)
            .unwrap()
    };
    (0..by).map(one).collect()
}

/// Checks what must hold of a list whenever an instance dies: every linked block is there, and has
/// its own extent first. Returns the list's extents.
fn whole_list(header: Dba, blocks: &Replayed) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    let mut at = Some(header);
    while let Some(dba) = at {
        let list = &blocks[&dba];
        let wanted = match dba == header {
            true => BlockType::SegmentHeader,
            false => BlockType::ExtentMap,
        };
        assert_eq!(list.block_type().unwrap(), wanted);
        assert_eq!(list.object(), OBJECT);
        let here: Vec<Extent> = extents(list).collect();
        assert_eq!(here[0].first, dba);
        all.extend(here);
        at = next_list(list);
    }
    all
}

#[test]
fn a_list_goes_on_beyond_its_header() {
    let db = Instance::new();
    let (one, header) = (node(&db, 1), db.heap.header());
    // The header, then two extent maps and a bit.
    let added = lengthen(&one, &db, 2 * PLACES + 100);
    let listed = one.extents(OBJECT, header).unwrap();
    assert_eq!(listed.len(), added.len() + 1);
    assert!(
        listed[1..].iter().eq(added.iter().map(|(e, _)| e)),
        "in order"
    );
    let own: Vec<usize> = (0..added.len()).filter(|&i| added[i].1 == 1).collect();
    assert_eq!(own, [PLACES - 2, 2 * PLACES - 3]);
    let units: BTreeSet<Dba> = one.units_of(OBJECT).unwrap().into_iter().collect();
    assert!(listed.iter().map(|e| e.first).eq(units.iter().copied()));

    // A heap that is opened on the list gives out what comes after, and reads it.
    let heap = Heap::open(one.clone(), db.txns.clone(), OBJECT, header);
    let mut txn = db.session();
    let mut rows = BTreeMap::new();
    for n in 0..3000u32 {
        let row = vec![n as u8; 500 + n as usize % 300];
        rows.insert(heap.insert(&mut txn, &row).unwrap(), row);
    }
    txn.commit().unwrap();
    let snap = txn.statement();
    let mut found = BTreeMap::new();
    for (first, n) in heap.block_runs().unwrap() {
        for i in 0..n {
            let dba = first.plus(i);
            heap.scan_block(
                &snap,
                dba,
                &cache::AskedAhead::default(),
                &mut |rid, row| {
                    found.insert(rid, row.to_vec());
                },
            )
            .unwrap();
        }
    }
    txn.end_statement();
    assert_eq!(found, rows);
    let mut problems = Vec::new();
    heap.verify(&mut |p| problems.push(p)).unwrap();
    assert_eq!(problems, Vec::<String>::new());
    db.check_replay();

    one.drop_segment(OBJECT).unwrap();
    assert_eq!(one.units_of(OBJECT).unwrap(), []);
}

/// Instances reach the end of a list's block at one time, with a crash after each record of what
/// they do.
#[test]
fn instances_lengthen_a_list_together() {
    let db = Instance::new();
    let header = db.heap.header();
    let nodes = [node(&db, 1), node(&db, 2)];
    let mut added = lengthen(&nodes[0], &db, PLACES - 22);
    let most = 2 * PLACES / nodes.len();
    let more: Vec<_> = std::thread::scope(|s| {
        let both = nodes.iter().map(|n| s.spawn(|| lengthen(n, &db, most)));
        let both: Vec<_> = both.collect();
        both.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    added.extend(more);
    let mut firsts: Vec<Dba> = added.iter().map(|(e, _)| e.first).collect();
    firsts.push(header);
    firsts.sort_unstable();
    for n in &nodes {
        let mut listed: Vec<Dba> = n
            .extents(OBJECT, header)
            .unwrap()
            .iter()
            .map(|e| e.first)
            .collect();
        listed.sort_unstable();
        assert_eq!(listed, firsts, "each extent once, for every instance");
    }
    let mut longest = 0;
    let blocks = db.replay(&mut |blocks, ops| {
        let lists = [
            Op::SegmentFormat,
            Op::SegmentAddExtent,
            Op::ExtentMapFormat,
            Op::ExtentMapAdd,
        ];
        if blocks.contains_key(&header) && ops.iter().any(|op| lists.contains(op)) {
            let list = whole_list(header, blocks);
            assert!(list.len() >= longest, "extents are only added");
            longest = list.len();
        }
    });
    assert_eq!(longest, firsts.len());
    // A block that was formatted for the list is the list's, or the first block of an extent that
    // nobody gives out.
    let maps = blocks
        .iter()
        .filter(|(_, b)| matches!(b.block_type(), Ok(BlockType::ExtentMap)));
    let taken: BTreeMap<Dba, u32> = added.iter().map(|(e, taken)| (e.first, *taken)).collect();
    for (dba, _) in maps {
        assert_eq!(taken.get(dba), Some(&1), "{dba}");
    }
    let mut problems = Vec::new();
    db.heap.verify(&mut |p| problems.push(p)).unwrap();
    assert_eq!(problems, Vec::<String>::new());
    db.check_replay();
}
