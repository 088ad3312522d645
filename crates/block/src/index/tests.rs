//! Compares random changes of one block with a sorted map. Each change is also replayed from the
//! start, as recovery would.

use super::*;
use crate::{FileId, HEADER_SIZE, ObjectId, Op, apply};
use std::collections::BTreeMap;

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
        (self.next() % n as u64) as usize
    }
}

type Model = BTreeMap<Vec<u8>, Option<Stamp>>;

/// A block, its expected contents, and every change since it was formatted.
struct Subject {
    block: Box<BlockBuf>,
    model: Model,
    log: Vec<(Op, Vec<u8>)>,
}

const DBA: Dba = Dba::new(FileId(1), 33);

fn formatted(op: Op, payload: &[u8]) -> Box<BlockBuf> {
    let mut b = BlockBuf::zeroed();
    b.format(DBA, ObjectId(7), op.formats().unwrap());
    apply(op, &mut b, payload).unwrap();
    b
}

impl Subject {
    fn new(contents: Vec<u8>) -> Subject {
        let block = formatted(Op::IndexFormat, &contents);
        Subject {
            block,
            model: Model::new(),
            log: vec![(Op::IndexFormat, contents)],
        }
    }
    fn view(&self) -> IndexBlock<'_> {
        IndexBlock::new(&self.block).unwrap()
    }
    fn apply(&mut self, op: Op, payload: Vec<u8>) {
        apply(op, &mut self.block, &payload).unwrap();
        self.log.push((op, payload));
    }
    fn verify(&self) {
        let v = self.view();
        v.check().unwrap();
        let found: Vec<_> = (0..v.count())
            .map(|i| (v.key(i), v.entry(i).marked()))
            .collect();
        let wanted: Vec<_> = self.model.iter().map(|(k, s)| (k.clone(), *s)).collect();
        assert_eq!(found, wanted);
    }
    fn verify_replay(&self) {
        let mut again = formatted(self.log[0].0, &self.log[0].1);
        for (op, payload) in &self.log[1..] {
            apply(*op, &mut again, payload).unwrap();
        }
        assert!(again.0 == self.block.0, "redo gives another block");
    }
    fn insert(&mut self, key: &[u8]) -> bool {
        let v = self.view();
        let (at, equal) = v.search(key);
        assert_eq!(equal, self.model.contains_key(key));
        match v.room_for(key) {
            _ if equal => return false,
            Room::Full => return false,
            Room::AfterPrefix(len) => {
                self.apply(Op::IndexSetPrefix, set_prefix_payload(len).to_vec())
            }
            Room::Fits => {}
        }
        let v = self.view();
        let mut payload = Vec::new();
        insert_payload(&mut payload, &v, at, key, None);
        self.apply(Op::IndexInsert, payload);
        self.model.insert(key.to_vec(), None);
        true
    }
    /// Splits the block for `new`, and returns the right half as a subject of its own.
    fn split(&mut self, new: &[u8]) -> Subject {
        let v = self.view();
        let (pos, _) = v.search(new);
        let (split, sep) = v.split_point(pos, new);
        let mut right = Subject::new(v.right_half(split, &sep));
        let truncate = truncate_payload(split, DBA.plus(1), &sep);
        self.apply(Op::IndexTruncate, truncate);
        right.model = self.model.split_off(&sep);
        right
    }
}

fn random_key(rng: &mut Rng, kind: usize) -> Vec<u8> {
    let mut key = match kind {
        0 => format!("common/prefix/{:06}", rng.below(2000)).into_bytes(),
        1 => vec![rng.below(3) as u8; rng.below(5)],
        2 => (0..rng.below(MAX_KEY - ROW_ID_LEN))
            .map(|i| if i < 800 { 7 } else { rng.next() as u8 })
            .collect(),
        _ => (0..rng.below(40)).map(|_| rng.next() as u8).collect(),
    };
    push_row_id(&mut key, RowId(rng.next() % 4));
    key
}

fn run(seed: u64, kind: usize) {
    println!("seed {seed} kind {kind}");
    let mut rng = Rng(seed);
    let mut s = Subject::new(Builder::new(0, &[], None, Dba::NONE, None).finish());
    for step in 0..1500 {
        let key = random_key(&mut rng, kind);
        if s.view().side(&key) != Side::Here {
            continue;
        }
        let (at, equal) = s.view().search(&key);
        match (equal, rng.below(4)) {
            (true, 0) => {
                s.apply(Op::IndexRemove, remove_payload([at]));
                s.model.remove(&key);
            }
            (true, 1) => {
                s.apply(Op::IndexMark, unmark_payload(at).to_vec());
                s.model.insert(key, None);
            }
            (true, _) if s.view().free() >= 8 || s.view().entry(at).has_stamp_room() => {
                let stamp = Stamp(rng.next() | 1);
                s.apply(Op::IndexMark, mark_payload(at, stamp).to_vec());
                s.model.insert(key, Some(stamp));
            }
            (true, _) => {}
            (false, _) => {
                if !s.insert(&key) {
                    let mut right = s.split(&key);
                    right.verify();
                    let home = if s.view().side(&key) == Side::Here {
                        &mut s
                    } else {
                        &mut right
                    };
                    if !home.insert(&key) {
                        assert!(home.view().high().is_none(), "no room after a split");
                    }
                    right.verify();
                    if rng.below(2) == 0 {
                        s.verify_replay();
                        s = right;
                    }
                }
            }
        }
        if step % 16 == 0 {
            s.verify();
        }
    }
    s.verify();
    s.verify_replay();
}

#[test]
fn random_changes_match_a_map_and_replay_to_the_same_bytes() {
    for seed in 0..12 {
        (0..4).for_each(|kind| run(seed, kind));
    }
}

#[test]
fn undone_changes_leave_the_entries_as_they_were() {
    let mut s = Subject::new(Builder::new(0, &[], None, Dba::NONE, None).finish());
    for i in 0..50u64 {
        let mut key = i.to_be_bytes().to_vec();
        push_row_id(&mut key, RowId(i));
        assert!(s.insert(&key));
    }
    let before = s.model.clone();
    let old = Stamp(77);
    s.apply(Op::IndexMark, mark_payload(3, old).to_vec());
    s.apply(Op::IndexMark, unmark_payload(3).to_vec());
    // Other entries fill the block. The mark can be put back all the same, because the room for it
    // stayed.
    for i in 100..u64::MAX {
        let mut key = i.to_be_bytes().to_vec();
        push_row_id(&mut key, RowId(i));
        if !s.insert(&key) {
            break;
        }
    }
    s.apply(Op::IndexMark, mark_payload(3, old).to_vec());
    assert_eq!(s.view().entry(3).marked(), Some(old));
    s.apply(Op::IndexMark, unmark_payload(3).to_vec());
    let added: Vec<usize> = (50..s.view().count()).rev().collect();
    s.apply(Op::IndexRemove, remove_payload(added));
    s.model = before;
    s.verify();
    s.verify_replay();
}

#[test]
fn several_entries_in_one_change() {
    let mut rng = Rng(5);
    let mut s = Subject::new(Builder::new(0, &[], None, Dba::NONE, None).finish());
    for _ in 0..20 {
        // Some keys stand alone, some follow each other.
        let mut keys: Vec<_> = (0..12).map(|_| random_key(&mut rng, 3)).collect();
        let near = keys[0].clone();
        keys.extend((0..rng.below(20) as u8).map(|n| [&near[..], &[n]].concat()));
        keys.sort();
        keys.dedup();
        keys.retain(|k| !s.model.contains_key(k));
        let mut many = InsertRuns::default();
        for key in &keys {
            let (at, _) = s.view().search(key);
            if many.push(&s.view(), at, key) {
                s.model.insert(key.clone(), None);
            }
        }
        s.apply(Op::IndexInsertRuns, many.payload);
        s.verify();
    }
    s.verify_replay();
}

#[test]
fn inner_blocks_lead_to_the_child_that_covers_a_key() {
    let mut s = Subject::new({
        let mut b = Builder::new(1, b"b", Some(b"x"), DBA.plus(9), None);
        for (k, c) in [("b", 1), ("f", 2), ("foo", 3), ("m", 4)] {
            b.push(k.as_bytes(), Some(DBA.plus(c).0));
        }
        b.finish()
    });
    let child =
        |s: &Subject, k: &str| s.view().child_for(k.as_bytes()).unwrap().1.block() - DBA.block();
    assert_eq!(
        ["b", "e", "f", "fon", "foo", "foot", "lz", "m", "w"].map(|k| child(&s, k)),
        [1, 1, 2, 2, 3, 3, 3, 4, 4]
    );
    let before =
        |s: &Subject, k: Option<&str>| s.view().child_before(k.map(str::as_bytes)).unwrap().0;
    assert_eq!(
        (
            before(&s, Some("f")),
            before(&s, Some("fa")),
            before(&s, None)
        ),
        (0, 1, 3)
    );
    let mut payload = Vec::new();
    insert_payload(&mut payload, &s.view(), 4, b"p", Some(DBA.plus(5)));
    s.apply(Op::IndexInsert, payload);
    s.apply(
        Op::IndexSetChild,
        set_child_payload(1, DBA.plus(3)).to_vec(),
    );
    assert_eq!(
        ["b", "f", "foo", "m", "p"].map(|k| child(&s, k)),
        [1, 3, 3, 4, 5]
    );
    s.apply(Op::IndexSetLow, set_low_payload(b"a", DBA.plus(8)));
    s.view().check().unwrap();
    assert_eq!(["a", "b", "e"].map(|k| child(&s, k)), [8, 1, 1]);
    s.apply(
        Op::IndexSetChild,
        set_child_payload(2, DBA.plus(7)).to_vec(),
    );
    assert_eq!(["b", "f", "foo", "m"].map(|k| child(&s, k)), [1, 7, 7, 4]);
    s.view().check().unwrap();
    s.verify_replay();
}

#[test]
fn the_last_block_is_split_nine_to_one() {
    let mut s = Subject::new(Builder::new(0, &[], None, Dba::NONE, None).finish());
    let mut splits = 0;
    for i in 0u64.. {
        let mut key = i.to_be_bytes().to_vec();
        push_row_id(&mut key, RowId(i));
        if !s.insert(&key) {
            let total = s.view().count();
            let mut right = s.split(&key);
            let left = s.view().count();
            assert!(
                left * 100 / total >= 85 && right.view().count() > 0,
                "{left} of {total} stay"
            );
            assert!(right.insert(&key));
            s = right;
            splits += 1;
            if splits == 4 {
                assert!(total > 450, "only {total} entries of a bigint fit a leaf");
                return;
            }
        }
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let mut rng = Rng(11);
    let mut s = Subject::new(Builder::new(0, b"a", Some(b"zz"), DBA.plus(1), None).finish());
    for _ in 0..60 {
        let mut key = random_key(&mut rng, 0);
        key[0] = b'c';
        s.insert(&key);
    }
    for _ in 0..20_000 {
        let mut b = s.block.clone();
        for _ in 0..1 + rng.below(3) {
            let span = if rng.below(2) == 0 {
                600
            } else {
                BLOCK_SIZE - HEADER_SIZE
            };
            let at = HEADER_SIZE + rng.below(span);
            b.0[at] = rng.next() as u8;
        }
        let Some(v) = IndexBlock::new(&b) else {
            continue;
        };
        let _ = v.check();
        let _ = (v.search(b"common"), v.child_for(b"cow"), v.side(b"q"));
        (0..v.count()).for_each(|i| drop(v.key(i)));
        let payload: Vec<u8> = (0..rng.below(40)).map(|_| rng.below(4) as u8).collect();
        for op in (200..=215).flat_map(Op::from_u16) {
            let mut c = b.clone();
            let _ = apply(op, &mut c, &payload);
        }
    }
}

#[test]
fn freed_blocks_come_back_in_order() {
    let mut b = formatted(Op::IndexMetaFormat, &[]);
    for i in 0..MAX_FREE_BLOCKS as u32 {
        let free = FreeBlock {
            dba: DBA.plus(i),
            at: crate::Scn(i as u64),
        };
        apply(Op::IndexMetaPush, &mut b, &meta_push_payload(free)).unwrap();
    }
    assert!(MetaBlock(&b).is_full());
    assert!(apply(Op::IndexMetaPush, &mut b, &[0; 16]).is_err());
    for i in 0..MAX_FREE_BLOCKS as u32 {
        assert_eq!(MetaBlock(&b).get(0).dba, DBA.plus(i));
        apply(Op::IndexMetaPop, &mut b, &meta_pop_payload(DBA.plus(i))).unwrap();
    }
    assert!(apply(Op::IndexMetaPop, &mut b, &meta_pop_payload(DBA)).is_err());
}
