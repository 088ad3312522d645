//! Compares the block with a map of slots, by random changes. Each change is also replayed on a
//! copy.

use super::*;
use crate::{BlockType, Dba, FileId, ObjectId, Op, TxnId, apply};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn empty() -> Box<BlockBuf> {
    let mut b = BlockBuf::zeroed();
    b.format(Dba::new(FileId::DATA, 9), ObjectId(5), BlockType::Heap);
    apply(Op::HeapFormat, &mut b, &[]).unwrap();
    b
}

fn head(flags: u8, n: u64) -> RowHead {
    RowHead {
        flags,
        stamp: Stamp::txn(TxnId(n + 1)),
        undo: UndoPtr(n),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize),
    Overwrite(usize, usize),
    SetHead(usize, u8),
    Free(usize),
    Trim(usize),
    SetSharers(usize, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..60usize, 0..800usize, 0..=MAX_INLINE_BODY];
    prop_oneof![
        3 => len.clone().prop_map(Step::Insert),
        3 => (0..200usize, len).prop_map(|(s, l)| Step::Overwrite(s, l)),
        1 => (0..200usize, 0..=ALL_FLAGS).prop_map(|(s, f)| Step::SetHead(s, f)),
        2 => (0..200usize).prop_map(Step::Free),
        1 => (0..200usize).prop_map(Step::Trim),
        1 => (0..200usize, any::<u8>()).prop_map(|(s, m)| Step::SetSharers(s, m)),
    ]
}

type Model = BTreeMap<u16, (RowHead, u8, Vec<u8>)>;

/// The vector for a step, if the block admits the step. The model takes the step, too.
fn vector(block: &BlockBuf, model: &mut Model, n: u64, step: &Step) -> Option<(Op, Vec<u8>)> {
    let pick = |model: &Model, i: usize| {
        (!model.is_empty()).then(|| *model.keys().nth(i % model.len()).unwrap())
    };
    let mut payload = Vec::new();
    let op = match *step {
        Step::Insert(len) => {
            if !fits(block, len) {
                return None;
            }
            let (slot, h, body) = (next_slot(block), head(0, n), vec![n as u8; len]);
            row_payload(slot, h, &body, &mut payload);
            assert!(model.insert(slot, (h, 0, body)).is_none());
            Op::HeapInsert
        }
        Step::Overwrite(i, len) => {
            let slot = pick(model, i)?;
            if !can_overwrite(block, slot, len) {
                return None;
            }
            let (h, body) = (head(0, n), vec![n as u8; len]);
            row_payload(slot, h, &body, &mut payload);
            let row = model.get_mut(&slot).unwrap();
            (row.0, row.2) = (h, body);
            Op::HeapOverwrite
        }
        Step::SetHead(i, flags) => {
            let slot = pick(model, i)?;
            head_payload(slot, head(flags, n), &mut payload);
            model.get_mut(&slot).unwrap().0 = head(flags, n);
            Op::HeapSetHead
        }
        Step::Free(i) => {
            let slot = pick(model, i)?;
            prune_payload(&[slot], &[], &mut payload);
            model.remove(&slot);
            Op::HeapPrune
        }
        Step::Trim(i) => {
            prune_payload(&[], &[pick(model, i)?], &mut payload);
            Op::HeapPrune
        }
        Step::SetSharers(i, sharers) => {
            let slot = pick(model, i)?;
            payload.extend(sharers_payload(slot, sharers));
            model.get_mut(&slot).unwrap().1 = sharers;
            Op::HeapSetSharers
        }
    };
    Some((op, payload))
}

proptest! {
    #[test]
    fn the_block_does_what_the_map_does(steps in proptest::collection::vec(step(), 1..200)) {
        let (mut block, mut copy, mut model) = (empty(), empty(), Model::new());
        let mut marked = 0;
        for (n, step) in steps.iter().enumerate() {
            let Some((op, payload)) = vector(&block, &mut model, n as u64, step) else { continue };
            apply(op, &mut block, &payload).unwrap();
            apply(op, &mut copy, &payload).unwrap();
            marked += u32::from(op == Op::HeapSetSharers);
            prop_assert_eq!(marks(&block), marked);
            prop_assert_eq!(verify(&block), Vec::<String>::new());
            prop_assert!(block.0 == copy.0);
        }
        for slot in 0..slots(&block) {
            let found = row(&block, slot).unwrap();
            let found = found.map(|r| (r.head, sharers(&block, slot), r.body.to_vec()));
            prop_assert_eq!(found.as_ref(), model.get(&slot));
        }
    }

    #[test]
    fn no_payload_makes_a_block_panic(op in 0..6usize, payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut block = empty();
        let mut insert = Vec::new();
        row_payload(0, head(0, 1), b"row", &mut insert);
        apply(Op::HeapInsert, &mut block, &insert).unwrap();
        let op = [Op::HeapInsert, Op::HeapInsertMany, Op::HeapOverwrite, Op::HeapSetHead, Op::HeapPrune, Op::HeapSetSharers][op];
        let _ = apply(op, &mut block, &payload);
    }

    #[test]
    fn a_damaged_block_is_an_error_not_a_panic(bytes in proptest::collection::vec((HEADER_SIZE..BLOCK_SIZE, any::<u8>()), 0..40)) {
        let mut block = empty();
        for (n, len) in [10, 500, 3000].into_iter().enumerate() {
            let mut payload = Vec::new();
            row_payload(n as u16, head(0, 1), &vec![1; len], &mut payload);
            apply(Op::HeapInsert, &mut block, &payload).unwrap();
        }
        for (at, v) in bytes {
            block.0[at] = v;
        }
        for slot in 0..slots(&block).min(3000) {
            let _ = row(&block, slot);
        }
    }
}

#[test]
fn a_row_that_shrank_can_grow_back_whatever_others_insert() {
    let mut b = empty();
    let mut payload = Vec::new();
    row_payload(0, head(0, 1), &[1; 3000], &mut payload);
    apply(Op::HeapInsert, &mut b, &payload).unwrap();
    payload.clear();
    row_payload(0, head(0, 2), &[2; 10], &mut payload);
    apply(Op::HeapOverwrite, &mut b, &payload).unwrap();
    while fits(&b, 100) {
        payload.clear();
        row_payload(next_slot(&b), head(0, 3), &[3; 100], &mut payload);
        apply(Op::HeapInsert, &mut b, &payload).unwrap();
    }
    assert!(can_overwrite(&b, 0, 3000));
}
