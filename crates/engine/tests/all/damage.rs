//! `verify` finds damage of every kind and says what it is. Each kind is planted in a copy of a
//! sound database: below the checksums, or above them in a block that is sealed again.

use crate::common::*;
use block::heap::{self, RowHead};
use block::index::{IndexBlock, remove_payload};
use block::{BLOCK_SIZE, BlockBuf, BlockType, Dba, FileId, HEADER_SIZE, Op, RowId, Stamp, UndoPtr};
use block::{apply, space, undo};
use engine::*;
use std::sync::Arc;
use storage::SimStorage;

const DATA: &str = "data/0001.dbf";
const UNDO: &str = "undo/undo1.dbf";

/// A database, cleanly stopped: a table with rows long and short, indexes of several leaves, and
/// undo of transactions of many changes.
fn sound() -> (SimStorage, Arc<TableDef>) {
    let (s, t) = create();
    let engine = open(&s).unwrap();
    let mut session = engine.session().unwrap();
    for part in 0..6 {
        session.begin(Isolation::ReadCommitted).unwrap();
        for id in part * 500..part * 500 + 500 {
            let text = match id % 100 {
                7 => "l".repeat(20_000),
                _ => format!("row {id}"),
            };
            session
                .insert(&t, &row(id, id as i32 % 100, &text))
                .unwrap();
        }
        session.commit().unwrap();
    }
    drop(session);
    engine.stop(&Quiet).unwrap();
    // Otherwise a start would mend the blocks of which the last batch of the double-write file has
    // a copy.
    let header = vec![0; 4096];
    s.overwrite("dw/instance1_blocks.dw", 0, &header);
    s.overwrite("dw/instance1_status.dw", 0, &header);
    (s, t)
}

/// Everything that a check reports. An error of the start counts as well, because it must name the
/// damage.
fn verify(s: &SimStorage, t: &Arc<TableDef>) -> Vec<String> {
    let mut problems = Vec::new();
    let engine = match open(s) {
        Ok(engine) => engine,
        Err(e) => return vec![e.to_string()],
    };
    let checked = check_all(&engine, &Quiet, &mut |p| problems.push(p), &|_| {
        Ok(vec![t.clone()])
    });
    problems.extend(checked.err().map(|e| e.to_string()));
    engine.abandon();
    problems
}

/// A database that is to be damaged.
struct Patient {
    s: SimStorage,
    t: Arc<TableDef>,
}

impl Patient {
    fn block(&self, file: &str, n: u32) -> Box<BlockBuf> {
        let bytes = self.s.contents(file).unwrap();
        let at = n as usize * BLOCK_SIZE;
        let mut b = BlockBuf::zeroed();
        b.0.copy_from_slice(&bytes[at..at + BLOCK_SIZE]);
        b
    }

    /// Numbers of the blocks that are as wanted, in order.
    fn find(&self, file: &str, wanted: impl Fn(&BlockBuf) -> bool) -> Vec<u32> {
        let blocks = (self.s.contents(file).unwrap().len() / BLOCK_SIZE) as u32;
        let found: Vec<u32> = (0..blocks)
            .filter(|&n| wanted(&self.block(file, n)))
            .collect();
        assert!(!found.is_empty(), "there is no such block");
        found
    }

    fn heap_block(&self) -> u32 {
        let object = self.t.object;
        self.find(DATA, |b| {
            b.object() == object
                && matches!(b.block_type(), Ok(BlockType::Heap))
                && heap::slots(b) > 10
        })[0]
    }

    /// The leaves of the unique index, from left to right.
    fn leaves(&self) -> Vec<u32> {
        let object = self.t.indexes[0].object;
        let mut leaves = self.find(DATA, |b| {
            b.object() == object
                && IndexBlock::new(b).is_some_and(|v| v.level() == 0 && !v.is_dead())
        });
        leaves.sort_by_key(|&n| {
            let b = self.block(DATA, n);
            IndexBlock::new(&b).unwrap().low().to_vec()
        });
        assert!(leaves.len() >= 3, "an index of several leaves");
        leaves
    }

    /// Changes a block as a bug would: its checksum is right afterwards.
    fn change(&self, file: &str, n: u32, f: impl FnOnce(&mut BlockBuf)) {
        let mut b = self.block(file, n);
        f(&mut b);
        b.seal();
        self.put(file, n, &b.0);
    }

    fn put(&self, file: &str, n: u32, bytes: &[u8]) {
        self.s.overwrite(file, n as usize * BLOCK_SIZE, bytes);
    }
}

/// The position of a part of a block in the block.
fn at(b: &BlockBuf, part: &[u8]) -> usize {
    part.as_ptr() as usize - b.0.as_ptr() as usize
}

/// The first position of a number in a block.
fn place_of(b: &BlockBuf, number: u64) -> usize {
    let bytes = number.to_le_bytes();
    let found = b.0[HEADER_SIZE..].windows(8).position(|w| w == bytes);
    HEADER_SIZE + found.expect("the number is in the block")
}

type Plant = fn(&Patient);

fn flipped_bit(p: &Patient) {
    let n = p.heap_block();
    p.s.flip_bit(DATA, n as usize * BLOCK_SIZE + 5000, 3);
}

fn misdirected_block(p: &Patient) {
    let leaves = p.leaves();
    let b = p.block(DATA, leaves[0]);
    p.put(DATA, leaves[1], &b.0);
}

fn zeroed_heap_block(p: &Patient) {
    p.put(DATA, p.heap_block(), &[0; BLOCK_SIZE]);
}

fn zeroed_leaf(p: &Patient) {
    p.put(DATA, p.leaves()[1], &[0; BLOCK_SIZE]);
}

fn entry_without_row(p: &Patient) {
    p.change(DATA, p.heap_block(), |b| {
        let slot = (0..heap::slots(b))
            .find(|&s| {
                heap::row(b, s)
                    .unwrap()
                    .is_some_and(|r| !r.head.is_piece() && !r.head.is_chained())
            })
            .unwrap();
        let mut payload = Vec::new();
        heap::prune_payload(&[slot], &[], &mut payload);
        apply(Op::HeapPrune, b, &payload).unwrap();
    });
}

fn row_without_entry(p: &Patient) {
    p.change(DATA, p.leaves()[1], |b| {
        let payload = remove_payload([3]);
        apply(Op::IndexRemove, b, &payload).unwrap();
    });
}

fn wrong_low_fence(p: &Patient) {
    p.change(DATA, p.leaves()[1], |b| {
        let low = IndexBlock::new(b).unwrap().low();
        let last = at(b, low) + low.len() - 1;
        b.0[last] -= 1;
    });
}

fn wrong_high_fence(p: &Patient) {
    p.change(DATA, p.leaves()[1], |b| {
        let high = IndexBlock::new(b).unwrap().high().unwrap();
        let last = at(b, high) + high.len() - 1;
        b.0[last] += 1;
    });
}

fn broken_sibling_link(p: &Patient) {
    let leaves = p.leaves();
    p.change(DATA, leaves[0], |b| {
        let right = IndexBlock::new(b).unwrap().right();
        let at = place_of(b, right.0);
        b.put_u64(at, Dba::new(FileId::DATA, leaves[2]).0);
    });
}

fn orphan_piece(p: &Patient) {
    let object = p.t.object;
    let roomy = |b: &BlockBuf| {
        b.object() == object && matches!(b.block_type(), Ok(BlockType::Heap)) && heap::fits(b, 100)
    };
    p.change(DATA, p.find(DATA, roomy)[0], |b| {
        let head = RowHead {
            flags: heap::PIECE,
            stamp: Stamp::committed(block::Scn(5)),
            undo: UndoPtr::NONE,
        };
        let mut payload = Vec::new();
        let mut body = RowId(0).0.to_le_bytes().to_vec();
        body.extend_from_slice(b"of nobody");
        heap::row_payload(heap::next_slot(b), head, &body, &mut payload);
        apply(Op::HeapInsert, b, &payload).unwrap();
    });
}

fn missing_piece(p: &Patient) {
    let piece = |b: &BlockBuf| {
        let is_piece = |&s: &u16| matches!(heap::row(b, s), Ok(Some(r)) if r.head.is_piece());
        (b.object() == p.t.object && matches!(b.block_type(), Ok(BlockType::Heap)))
            .then(|| (0..heap::slots(b)).find(is_piece))
            .flatten()
    };
    let n = p.find(DATA, |b| piece(b).is_some())[0];
    p.change(DATA, n, |b| {
        let mut payload = Vec::new();
        heap::prune_payload(&[piece(b).unwrap()], &[], &mut payload);
        apply(Op::HeapPrune, b, &payload).unwrap();
    });
}

fn wrong_space_map(p: &Patient) {
    let object = p.t.object;
    p.change(DATA, 0, |b| {
        let units = (0..space::MAP_UNITS).filter(|&u| space::owner(b, u) == object);
        let unit = units.max().expect("the table has units");
        b.put_u32(HEADER_SIZE + unit as usize * 4, p.t.indexes[1].object.0);
    });
}

fn broken_undo_chain(p: &Patient) {
    let n = p.find(UNDO, |b| undo::sequence(b).is_some() && undo::count(b) > 20)[0];
    p.change(UNDO, n, |b| {
        let here = Dba::new(FileId::undo(block::InstanceId(1)), n);
        let sequence = undo::sequence(b).unwrap();
        let ptr = |slot| UndoPtr::new(here, slot, sequence);
        // Record 15 points back to 14; now it points forward to 16.
        let at = place_of(b, ptr(14).0);
        b.put_u64(at, ptr(16).0);
    });
}

fn broken_undo_record(p: &Patient) {
    let n = p.find(UNDO, |b| undo::sequence(b).is_some() && undo::count(b) > 20)[0];
    p.change(UNDO, n, |b| b.put_u16(BLOCK_SIZE - 8, 9));
}

fn row_with_anothers_undo(p: &Patient) {
    p.change(DATA, p.heap_block(), |b| {
        let undo = |slot| heap::row(b, slot).unwrap().unwrap().head.undo;
        let (mine, others) = (undo(1), undo(2));
        let at = place_of(b, mine.0);
        b.put_u64(at, others.0);
    });
}

fn decayed_status(p: &Patient) {
    let file = "undo/status1.dbf";
    let n = p.find(file, |b| matches!(b.block_type(), Ok(BlockType::Status)))[0];
    p.s.flip_bit(file, n as usize * BLOCK_SIZE + 700, 0);
}

fn decayed_segment_header(p: &Patient) {
    let n = p.t.header.block() as usize;
    p.s.flip_bit(DATA, n * BLOCK_SIZE + 100, 0);
}

const PLANTS: &[(&str, Plant, &[&str])] = &[
    ("a flipped bit", flipped_bit, &["checksum"]),
    ("a misdirected block", misdirected_block, &["misdirected"]),
    (
        "a zeroed heap block",
        zeroed_heap_block,
        &["is zeros", "entries have no row"],
    ),
    (
        "a zeroed leaf",
        zeroed_leaf,
        &["is no block of level 0", "rows have no entry"],
    ),
    (
        "an entry without row",
        entry_without_row,
        &["1 entries have no row"],
    ),
    (
        "a row without entry",
        row_without_entry,
        &["1 rows have no entry"],
    ),
    ("a wrong low fence", wrong_low_fence, &["low fence is not"]),
    (
        "a wrong high fence",
        wrong_high_fence,
        &["low fence is not"],
    ),
    (
        "a broken sibling link",
        broken_sibling_link,
        &["low fence is not", "not linked"],
    ),
    ("an orphan piece", orphan_piece, &["belongs to no row"]),
    ("a missing piece", missing_piece, &["is not there"]),
    ("a wrong space map", wrong_space_map, &["by the space map"]),
    (
        "a broken undo chain",
        broken_undo_chain,
        &["the one before it"],
    ),
    ("a broken undo record", broken_undo_record, &["undo slot 3"]),
    (
        "a row with another's undo",
        row_with_anothers_undo,
        &["its undo record"],
    ),
    ("a decayed status block", decayed_status, &["checksum"]),
    (
        "a decayed segment header",
        decayed_segment_header,
        &["checksum"],
    ),
];

#[test]
fn verify_names_planted_damage_of_every_kind() {
    let (storage, t) = sound();
    let copy = || Patient {
        s: storage.after_crash(0),
        t: t.clone(),
    };
    assert_eq!(verify(&copy().s, &t), Vec::<String>::new(), "it is sound");
    let mut missed = Vec::new();
    for (what, plant, names) in PLANTS {
        let patient = copy();
        plant(&patient);
        let found = verify(&patient.s, &t);
        for name in *names {
            if !found.iter().any(|p| p.contains(name)) {
                missed.push(format!("{what}: nothing says \"{name}\": {found:#?}"));
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
