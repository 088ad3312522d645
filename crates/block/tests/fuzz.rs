//! Gives hostile bytes to every decoder of what is on disk and in redo. The result is an error,
//! never a panic, and never more memory than the bytes themselves account for.
//!
//! The bytes are seeded: `BRAID_SEED` replays a run, `BRAID_FUZZ` sets the rounds (default 30,000;
//! a campaign: 10,000,000).

use block::heap::{self, RowHead};
use block::index::{Builder, Content, IndexBlock, MetaBlock};
use block::key::{self, Order};
use block::numeric::NumericRef;
use block::record::{Record, RecordWriter, set_scn};
use block::row::{self, RowReader};
use block::sequence::SequenceParams;
use block::space::{self, Extent, SegmentKind};
use block::undo::{self, UndoView};
use block::value::{ColType, DatumRef};
use block::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let n = self.below(most);
        (0..n).map(|_| self.next() as u8).collect()
    }
}

fn seed() -> u64 {
    let given = std::env::var("BRAID_SEED").ok();
    given.map_or(1, |s| s.parse().expect("BRAID_SEED is a number"))
}

fn rounds() -> u64 {
    let given = std::env::var("BRAID_FUZZ").ok();
    given.map_or(30_000, |s| s.parse().expect("BRAID_FUZZ is a number"))
}

/// Damages bytes as a bug or an attacker would: bits, extreme numbers where numbers stand, cuts,
/// and pieces of the bytes themselves.
fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, may_cut: bool) {
    for _ in 0..1 + rng.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.below(bytes.len());
        match rng.below(if may_cut { 6 } else { 4 }) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5)],
            2 => {
                let to = (at + 2).min(bytes.len());
                bytes[at..to].fill([0, 0xff][rng.below(2)]);
            }
            3 => {
                let n = rng.below(16).min(bytes.len() - at);
                let from = rng.below(bytes.len() - n + 1);
                bytes.copy_within(from..from + n, at);
            }
            4 => bytes.truncate(at),
            _ => {
                let more = rng.bytes(40);
                bytes.extend(more);
            }
        }
    }
}

/// Runs `f`. A panic is reported with what led to it.
fn no_panic(what: &str, seed: u64, round: u64, f: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(f)).is_err() {
        panic!("BRAID_SEED={seed}, round {round}: {what} panicked");
    }
}

/// All types that there are.
fn types() -> Vec<ColType> {
    (0..=u8::MAX).filter_map(ColType::from_u8).collect()
}

fn sample_row(rng: &mut Rng) -> Vec<u8> {
    let text = "x".repeat(rng.below(300));
    let raw = rng.bytes(40);
    let mut values = Vec::new();
    for _ in 0..1 + rng.below(6) {
        values.push(match rng.below(6) {
            0 => DatumRef::Null,
            1 => DatumRef::Int4(rng.next() as i32),
            2 => DatumRef::Int8(rng.next() as i64),
            3 => DatumRef::Text(&text),
            4 => DatumRef::Bytea(&raw),
            _ => DatumRef::Float8(f64::from_bits(rng.next())),
        });
    }
    let mut out = Vec::new();
    row::encode(&values, &mut out);
    out
}

#[test]
fn rows_keys_and_numbers() {
    let (seed, mut rng) = (seed(), Rng(seed()));
    let all = types();
    for round in 0..rounds() {
        let mut bytes = sample_row(&mut rng);
        if rng.below(4) == 0 {
            bytes = rng.bytes(64);
        } else if rng.below(4) > 0 {
            damage(&mut rng, &mut bytes, true);
        }
        let types: Vec<ColType> = (0..1 + rng.below(6))
            .map(|_| all[rng.below(all.len())])
            .collect();
        no_panic("a row decoder", seed, round, || {
            if let Ok(mut reader) = RowReader::new(&bytes) {
                for ty in &types {
                    if reader.skip(*ty).is_err() || reader.value(*ty).is_err() {
                        break;
                    }
                }
            }
            for k in 0..types.len() {
                let _ = row::column(&bytes, &types, k);
            }
        });
        no_panic("a number decoder", seed, round, || {
            if let Ok(n) = NumericRef::from_bytes(&bytes) {
                let _ = n.to_bigdecimal();
            }
        });
        let orders = [Order::ASC, Order::DESC];
        let ordered: Vec<_> = types.iter().map(|&t| (t, orders[rng.below(2)])).collect();
        no_panic("a key decoder", seed, round, || {
            let _ = key::decode(&bytes, &ordered);
            let _ = key::after_prefix(&bytes);
            let _ = index::split_key(&bytes);
        });
    }
}

#[test]
fn records() {
    let (seed, mut rng) = (seed(), Rng(seed() + 1));
    for round in 0..rounds() {
        let mut bytes = Vec::new();
        let mut w = RecordWriter::new(&mut bytes, TxnId(rng.next()), UndoPtr(rng.next()));
        for _ in 0..rng.below(4) {
            let payload = rng.bytes(100);
            let dba = Dba::new(FileId::DATA, rng.below(1000) as u32);
            w.vector(dba, ObjectId(7), Op::HeapInsert, Some(Scn(5)), &payload);
        }
        w.marker(Op::Commit, &[]);
        w.finish();
        set_scn(&mut bytes, Scn(9));
        damage(&mut rng, &mut bytes, true);
        no_panic("a redo record's decoder", seed, round, || {
            if let Ok((record, len)) = Record::parse(&bytes, LogPos(0)) {
                assert!(len <= bytes.len());
                let payloads: usize = record.vectors().map(|v| v.payload.len()).sum();
                assert!(payloads <= bytes.len());
            }
        });
    }
}

fn heap_payload(slot: u16, body: &[u8]) -> Vec<u8> {
    let head = RowHead {
        flags: 0,
        stamp: Stamp(5),
        undo: UndoPtr::NONE,
    };
    let mut p = Vec::new();
    heap::row_payload(slot, head, body, &mut p);
    p
}

fn leaf(rng: &mut Rng) -> Vec<u8> {
    let mut list = Builder::new(0, b"b", Some(b"x"), Dba::NONE, None);
    for k in 0..rng.below(30) as u64 {
        let mut key = format!("m{k:05}").into_bytes();
        index::push_row_id(&mut key, RowId(k));
        list.push(&key, (rng.below(3) == 0).then_some(77));
    }
    list.finish()
}

fn inner(rng: &mut Rng) -> Vec<u8> {
    let mut list = Builder::new(1, b"b", Some(b"x"), Dba::NONE, None);
    list.push(b"b", Some(9));
    for k in 0..rng.below(30) as u64 {
        list.push(format!("m{k:05}").as_bytes(), Some(k + 10));
    }
    list.finish()
}

/// A sound block of each type, with some contents.
fn sound(rng: &mut Rng) -> Box<BlockBuf> {
    let dba = Dba::new(FileId::DATA, 1 + rng.below(1000) as u32);
    let mut b = BlockBuf::zeroed();
    let extent = Extent {
        first: dba,
        blocks: 8,
        instance: InstanceId(1),
    };
    let (op, payload) = match rng.below(8) {
        0 => (Op::HeapFormat, Vec::new()),
        1 => (Op::IndexFormat, leaf(rng)),
        2 => (Op::IndexFormat, inner(rng)),
        3 => (Op::UndoFormat, undo::format_payload(3).to_vec()),
        4 => (Op::SpaceMapFormat, Vec::new()),
        5 => (
            Op::SegmentFormat,
            space::segment_payload(SegmentKind::Heap, extent),
        ),
        6 => (
            Op::ExtentMapFormat,
            space::segment_payload(SegmentKind::Index, extent),
        ),
        _ => (
            Op::SequenceFormat,
            SequenceParams::default().encode().to_vec(),
        ),
    };
    let kind = op.formats().expect("each of these formats");
    b.format(dba, ObjectId(7), kind);
    apply(op, &mut b, &payload).expect("a sound block");
    for n in 0..rng.below(20) as u16 {
        let body = rng.bytes(300);
        if kind == BlockType::Heap && heap::fits(&b, body.len()) {
            let payload = heap_payload(heap::next_slot(&b), &body);
            apply(Op::HeapInsert, &mut b, &payload).expect("it fits");
        }
        if kind == BlockType::Undo {
            let record = UndoView {
                txn: TxnId(5),
                prev: UndoPtr::NONE,
                undo_no: u32::from(n),
                object: ObjectId(7),
                kind: 100,
                payload: &body,
            };
            let mut p = Vec::new();
            undo::append_payload(UndoPtr::new(dba, n, 3), &record, &mut p);
            apply(Op::UndoAppend, &mut b, &p).expect("it fits");
        }
    }
    b
}

/// Looks at a block in every way, for its type or another: from `verify` to a reader that trusts
/// nothing but the checksum.
fn look(b: &BlockBuf) {
    let _ = b.check(b.dba());
    for slot in 0..heap::slots(b).min(5000) {
        let _ = heap::row(b, slot);
        let _ = heap::slack(b, slot);
        let _ = heap::can_overwrite(b, slot, 100);
    }
    let _ = heap::verify(b);
    if matches!(b.block_type(), Ok(BlockType::Heap)) {
        let _ = (heap::next_slot(b), heap::fits(b, 10));
        let _ = heap::free_slots(b).count();
    }
    if let Some(v) = IndexBlock::new(b) {
        let _ = v.check();
    }
    if matches!(b.block_type(), Ok(BlockType::IndexMeta)) {
        let list = MetaBlock(b);
        (0..list.count()).for_each(|i| {
            let _ = list.get(i);
        });
    }
    if let Some(sequence) = undo::sequence(b) {
        let _ = undo::check(b);
        for slot in 0..undo::count(b).min(UndoPtr::MAX_SLOT) {
            let at = Dba::new(FileId::DATA, 1); // the caller has checked the address
            let _ = undo::get(b, UndoPtr::new(at, slot, sequence));
        }
        let _ = undo::room(b);
    }
    let _ = (space::extents(b).count(), space::segment_kind(b));
    let _ = space::next_list(b);
    let _ = block::sequence::read(b);
}

#[test]
fn damaged_blocks() {
    let (seed, mut rng) = (seed(), Rng(seed() + 2));
    for round in 0..rounds() / 4 {
        let mut b = sound(&mut rng);
        let from = if rng.below(3) == 0 { 1 } else { HEADER_SIZE };
        let upto = [from + 64, BLOCK_SIZE][rng.below(2)];
        let mut part = b.0[from..upto].to_vec();
        damage(&mut rng, &mut part, false);
        b.0[from..upto].copy_from_slice(&part);
        no_panic("a look at a damaged block", seed, round, || look(&b));
    }
}

/// A damaged payload, as some operation could have it.
fn payload(rng: &mut Rng) -> Vec<u8> {
    let mut p = match rng.below(8) {
        0 => {
            let n = rng.below(200);
            heap_payload(rng.below(30) as u16, &vec![7; n])
        }
        1 => {
            let mut p = Vec::new();
            heap::prune_payload(&[rng.below(30) as u16, 2], &[3], &mut p);
            p
        }
        2 => leaf(rng),
        3 => inner(rng),
        4 => index::remove_payload([rng.below(30)]),
        5 => index::mark_payload(rng.below(30), Stamp(9)).to_vec(),
        6 => SequenceParams::default().encode().to_vec(),
        _ => rng.bytes(80),
    };
    damage(rng, &mut p, true);
    p
}

/// Vectors as they stand in redo meet a block of any type, sound or (one in four) unsound under a
/// right checksum.
#[test]
fn hostile_vectors() {
    let (seed, mut rng) = (seed(), Rng(seed() + 3));
    let ops: Vec<Op> = (0..1000).filter_map(|n| Op::from_u16(n).ok()).collect();
    for round in 0..rounds() {
        let mut b = sound(&mut rng);
        let damaged = rng.below(4) == 0;
        if damaged {
            let mut part = b.0[HEADER_SIZE..].to_vec();
            damage(&mut rng, &mut part, false);
            b.0[HEADER_SIZE..].copy_from_slice(&part);
        }
        let op = ops[rng.below(ops.len())];
        let p = payload(&mut rng);
        let what = format!(
            "{op:?} on a {:?} block, damaged: {damaged},",
            b.block_type()
        );
        no_panic(&what, seed, round, || {
            if apply(op, &mut b, &p).is_ok() {
                look(&b);
            }
        });
    }
}

#[test]
fn contents_of_index_blocks() {
    let (seed, mut rng) = (seed(), Rng(seed() + 4));
    for round in 0..rounds() {
        let mut bytes = match rng.below(2) {
            0 => leaf(&mut rng),
            _ => inner(&mut rng),
        };
        damage(&mut rng, &mut bytes, true);
        no_panic("contents of an index block", seed, round, || {
            if let Ok(content) = Content::parse(&bytes) {
                let mut b = BlockBuf::zeroed();
                b.format(Dba::new(FileId::DATA, 3), ObjectId(7), BlockType::Index);
                if content.lay_out(&mut b).is_ok() {
                    look(&b);
                }
            }
        });
    }
}
