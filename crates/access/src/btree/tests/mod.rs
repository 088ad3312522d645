//! Compares the tree over plain memory with a sorted map: alone, rolled back, crashed, and from
//! several threads at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use block::index::{IndexBlock, push_row_id};
use block::{Dba, FileId, RowId, Stamp};
use seam::Rng;

mod instances;
mod lasting;
mod many;
mod unique;

use super::memory::{HEADER, Memory, OBJECT, Txn};
use super::*;

type Model = BTreeMap<Vec<u8>, bool>;

fn rid(n: u64) -> RowId {
    RowId::new(Dba::new(FileId(1), n as u32), (n >> 32) as u16)
}
fn int_key(n: u64) -> Vec<u8> {
    let mut key = vec![1];
    key.extend_from_slice(&n.to_be_bytes());
    key
}
/// A self-delimiting key, long enough that a block holds a handful.
fn long_key(n: u64) -> Vec<u8> {
    let mut key = format!(
        "{:0width$}/{n:06}",
        n % 7,
        width = 200 + (n as usize * 37) % 900
    )
    .into_bytes();
    key.push(0);
    key
}
/// A key nearly as long as can be, of a family that shares all but the end: separators are long and
/// have no common prefix.
fn huge_key(n: u64) -> Vec<u8> {
    let mut rng = Rng(n % 40);
    let mut key: Vec<u8> = (0..1500).map(|_| rng.next() as u8).collect();
    key.extend_from_slice(&n.to_be_bytes());
    key
}
fn full(key: &[u8], r: RowId) -> Vec<u8> {
    let mut full = key.to_vec();
    push_row_id(&mut full, r);
    full
}

fn scan(tree: &Tree<Memory>, backward: bool) -> Vec<(Vec<u8>, bool)> {
    let mut cursor = Cursor::new(Vec::new(), None, backward);
    let mut out = Vec::new();
    while let Some(f) = tree.next(&mut cursor).unwrap() {
        out.push((full(f.key, f.rid), f.marked.is_some()));
    }
    if backward {
        out.reverse();
    }
    out
}

fn verify(tree: &Tree<Memory>) -> TreeReport {
    let report = tree.verify(|_, _, _| ()).unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    report
}

fn verify_model(tree: &Tree<Memory>, model: &Model) -> TreeReport {
    let wanted: Vec<_> = model.iter().map(|(k, m)| (k.clone(), *m)).collect();
    assert!(
        scan(tree, false) == wanted,
        "forward scan differs from the model"
    );
    assert!(
        scan(tree, true) == wanted,
        "backward scan differs from the model"
    );
    verify(tree)
}

/// Runs one transaction of random changes, and returns the model as it is if the transaction
/// commits.
fn random_txn(
    tree: &Tree<Memory>,
    txn: &mut Txn,
    model: &mut Model,
    rng: &mut Rng,
    key_of: fn(u64) -> Vec<u8>,
    span: u64,
) {
    for _ in 0..1 + rng.below(20) {
        let (key, r) = (key_of(rng.below(span)), rid(rng.below(3)));
        let entry = full(&key, r);
        match (model.get(&entry), rng.below(3)) {
            (Some(false), 0 | 1) => {
                assert!(tree.mark(txn, &key, r).unwrap());
                model.insert(entry, true);
            }
            (found, _) => {
                let wanted = match found {
                    None => "Inserted",
                    Some(true) => "Revived",
                    Some(false) => "Present",
                };
                let outcome = tree.insert(txn, &key, r).unwrap();
                assert!(
                    format!("{outcome:?}").starts_with(wanted),
                    "{outcome:?} instead of {wanted}"
                );
                model.insert(entry, false);
            }
        }
    }
}

fn run(seed: u64, key_of: fn(u64) -> Vec<u8>, span: u64) {
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let tree = Memory::tree();
    let mut model = Model::new();
    // Not every try fails, nor every other one: a split of the root tries two latches a round and
    // would never have both.
    tree.store()
        .0
        .refuse
        .store([0, 3, 5, 7][seed as usize % 4], SeqCst);
    for round in 0..400 {
        let mut txn = tree.store().begin();
        let mut changed = model.clone();
        random_txn(&tree, &mut txn, &mut changed, &mut rng, key_of, span);
        if rng.below(3) == 0 {
            tree.store().rollback(txn);
        } else {
            tree.store().commit(txn);
            model = changed;
        }
        if rng.below(8) == 0 {
            tree.store().raise_horizon();
            let marked: Vec<_> = model
                .iter()
                .filter(|(_, m)| **m)
                .map(|(k, _)| k.clone())
                .collect();
            marked.iter().for_each(|k| _ = tree.purge(k).unwrap());
            model.retain(|_, marked| !*marked);
        }
        if round % 40 == 0 {
            // Entries purged on the way of an insertion are gone from the tree only.
            let found: BTreeSet<_> = scan(&tree, false).into_iter().map(|(k, _)| k).collect();
            model.retain(|k, marked| !*marked || found.contains(k));
            verify_model(&tree, &model);
        }
        let found: BTreeSet<_> = scan(&tree, false).into_iter().map(|(k, _)| k).collect();
        model.retain(|k, marked| !*marked || found.contains(k));
    }
    let report = verify_model(&tree, &model);
    println!(
        "{} leaves, height {}, {} entries",
        report.leaves, report.height, report.entries
    );
}

#[test]
fn random_transactions_match_a_map() {
    (0..6).for_each(|seed| run(seed, long_key, 300));
    (6..9).for_each(|seed| run(seed, int_key, 100_000));
    (9..12).for_each(|seed| run(seed, huge_key, 2000));
}

#[test]
fn rising_and_falling_keys_make_a_dense_tree_of_three_levels() {
    for falling in [false, true] {
        let tree = Memory::tree();
        let mut txn = tree.store().begin();
        let n = 300_000u64;
        for i in 0..n {
            let k = if falling { n - i } else { i };
            assert_eq!(
                tree.insert(&mut txn, &int_key(k), rid(k)).unwrap(),
                IndexOutcome::Inserted
            );
        }
        let report = verify(&tree);
        assert_eq!((report.entries, report.height), (n as usize, 3));
        // The first leaf of all has no low fence from which to take a prefix, so falling keys pack
        // less well.
        let per_leaf = if falling { 300 } else { 400 };
        assert!(
            report.leaves < n as usize / per_leaf,
            "{} leaves",
            report.leaves
        );
        let mut out = Vec::new();
        for k in [1, 2, n / 2, n - 1] {
            out.clear();
            tree.lookup(&int_key(k), &mut out).unwrap();
            assert_eq!(out, [(rid(k), None)]);
        }
    }
}

#[test]
fn ranges_have_an_inclusive_low_and_an_exclusive_high_bound() {
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    let keys: Vec<u64> = (0..5000).map(|i| i * 10).collect();
    keys.iter()
        .for_each(|&k| drop(tree.insert(&mut txn, &int_key(k), rid(k)).unwrap()));
    let mut rng = Rng(3);
    for _ in 0..300 {
        let (a, b) = (rng.below(52_000), rng.below(52_000));
        let wanted: Vec<u64> = keys
            .iter()
            .copied()
            .filter(|k| (a..b).contains(k))
            .collect();
        for backward in [false, true] {
            let mut cursor = Cursor::new(int_key(a), Some(int_key(b)), backward);
            let mut found = Vec::new();
            while let Some(f) = tree.next(&mut cursor).unwrap() {
                assert_eq!(
                    f.rid,
                    rid(u64::from_be_bytes(f.key[1..].try_into().unwrap()))
                );
                found.push(u64::from_be_bytes(f.key[1..].try_into().unwrap()));
            }
            if backward {
                found.reverse();
            }
            assert_eq!(found, wanted, "{a}..{b} backward {backward}");
        }
    }
}
fn long_key_rising(n: u64) -> Vec<u8> {
    format!("{n:0300}").into_bytes()
}

#[test]
fn a_built_tree_holds_its_entries_and_takes_more() {
    for (n, key_of) in [
        (0, int_key as fn(u64) -> Vec<u8>),
        (1, int_key),
        (70_000, int_key),
        (900, long_key_rising),
    ] {
        let tree = Memory::tree();
        let mut builder = tree.build();
        (0..n).for_each(|i| builder.push(&full(&key_of(i * 2), rid(i))).unwrap());
        builder.finish().unwrap();
        let report = verify(&tree);
        assert_eq!(report.entries as u64, n);
        let mut txn = tree.store().begin();
        (0..n).for_each(|i| drop(tree.insert(&mut txn, &key_of(i * 2 + 1), rid(i)).unwrap()));
        assert_eq!(verify(&tree).entries as u64, n * 2);
        tree.store().rollback(txn);
        assert_eq!(verify(&tree).entries as u64, n);
    }
}

#[test]
fn many_entries_in_one_record_are_undone_together() {
    let tree = Memory::tree();
    let mut rng = Rng(23);
    let mut model = Model::new();
    for round in 0..30 {
        let mut txn = tree.store().begin();
        let keys: BTreeSet<Vec<u8>> = (0..400)
            .map(|_| full(&int_key(rng.below(50_000)), rid(rng.below(2))))
            .collect();
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        assert_eq!(
            tree.insert_many(&mut txn, &keys, false).unwrap(),
            (keys.len(), None)
        );
        if round % 3 == 0 {
            tree.store().rollback(txn);
        } else {
            keys.into_iter().for_each(|k| _ = model.insert(k, false));
            tree.store().commit(txn);
        }
        verify_model(&tree, &model);
    }
}

/// A stale inner copy points to a block that was freed and reused further right. A descent that
/// gets there starts over.
#[test]
fn a_stale_pointer_to_a_reused_block_is_noticed() {
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    (0..200).for_each(|k| drop(tree.insert(&mut txn, &long_key_rising(k), rid(k)).unwrap()));
    tree.store().commit(txn);
    let guard = tree
        .read_leaf(descend::Target::Key(&long_key_rising(199)), None)
        .unwrap();
    let rightmost = guard.dba();
    assert!(IndexBlock::new(&guard).unwrap().low() > &long_key_rising(3)[..]);
    drop(guard);
    let leaf = tree
        .read_leaf(descend::Target::Key(&long_key_rising(3)), Some(rightmost))
        .unwrap();
    assert!(
        IndexBlock::new(&leaf)
            .unwrap()
            .search(&full(&long_key_rising(3), rid(3)))
            .1
    );
}

#[test]
fn keys_that_are_too_long_are_refused() {
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    let longest = vec![7; block::index::MAX_KEY - 8];
    tree.insert(&mut txn, &longest, rid(1)).unwrap();
    let e = tree
        .insert(&mut txn, &[&longest[..], &[1]].concat(), rid(1))
        .unwrap_err();
    assert!(
        matches!(
            e,
            crate::Error::KeyTooLong {
                len: 1529,
                max: 1528
            }
        ),
        "{e}"
    );
}
