//! The tree over plain memory, against a sorted map: alone, rolled back, crashed, and from several threads at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use block::index::{IndexBlock, push_row_id};
use block::{Dba, FileId, RowId, Stamp};

use super::memory::{HEADER, Memory, OBJECT, Txn};
use super::*;

type Model = BTreeMap<Vec<u8>, bool>;

struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn rid(n: u64) -> RowId {
    RowId::new(Dba::new(FileId(1), n as u32), (n >> 32) as u16)
}
fn int_key(n: u64) -> Vec<u8> {
    let mut key = vec![1];
    key.extend_from_slice(&n.to_be_bytes());
    key
}
/// Long enough that a block holds a handful, self-delimiting.
fn long_key(n: u64) -> Vec<u8> {
    let mut key = format!("{:0width$}/{n:06}", n % 7, width = 200 + (n as usize * 37) % 900).into_bytes();
    key.push(0);
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
    assert!(scan(tree, false) == wanted, "forward scan differs from the model");
    assert!(scan(tree, true) == wanted, "backward scan differs from the model");
    verify(tree)
}

/// One transaction of random changes; returns the model as it is if it commits.
fn random_txn(tree: &Tree<Memory>, txn: &mut Txn, model: &mut Model, rng: &mut Rng, key_of: fn(u64) -> Vec<u8>, span: u64) {
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
                assert!(format!("{outcome:?}").starts_with(wanted), "{outcome:?} instead of {wanted}");
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
    tree.store().0.refuse.store(seed % 4, SeqCst);
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
            let marked: Vec<_> = model.iter().filter(|(_, m)| **m).map(|(k, _)| k.clone()).collect();
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
    println!("{} leaves, height {}, {} entries", report.leaves, report.height, report.entries);
}

#[test]
fn random_transactions_match_a_map() {
    (0..6).for_each(|seed| run(seed, long_key, 300));
    (6..9).for_each(|seed| run(seed, int_key, 100_000));
}

#[test]
fn rising_and_falling_keys_make_a_dense_tree_of_three_levels() {
    for falling in [false, true] {
        let tree = Memory::tree();
        let mut txn = tree.store().begin();
        let n = 300_000u64;
        for i in 0..n {
            let k = if falling { n - i } else { i };
            assert_eq!(tree.insert(&mut txn, &int_key(k), rid(k)).unwrap(), IndexOutcome::Inserted);
        }
        let report = verify(&tree);
        assert_eq!((report.entries, report.height), (n as usize, 3));
        // The first leaf of all has no low fence to take a prefix from, so falling keys pack less well.
        let per_leaf = if falling { 300 } else { 400 };
        assert!(report.leaves < n as usize / per_leaf, "{} leaves", report.leaves);
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
    keys.iter().for_each(|&k| drop(tree.insert(&mut txn, &int_key(k), rid(k)).unwrap()));
    let mut rng = Rng(3);
    for _ in 0..300 {
        let (a, b) = (rng.below(52_000), rng.below(52_000));
        let wanted: Vec<u64> = keys.iter().copied().filter(|k| (a..b).contains(k)).collect();
        for backward in [false, true] {
            let mut cursor = Cursor::new(int_key(a), Some(int_key(b)), backward);
            let mut found = Vec::new();
            while let Some(f) = tree.next(&mut cursor).unwrap() {
                assert_eq!(f.rid, rid(u64::from_be_bytes(f.key[1..].try_into().unwrap())));
                found.push(u64::from_be_bytes(f.key[1..].try_into().unwrap()));
            }
            if backward {
                found.reverse();
            }
            assert_eq!(found, wanted, "{a}..{b} backward {backward}");
        }
    }
}

/// A queue: rows come at the top and go at the bottom, for ever. Its index must not grow, nor lose blocks.
#[test]
fn a_queue_keeps_its_size() {
    for key_of in [int_key as fn(u64) -> Vec<u8>, long_key_rising] {
        let tree = Memory::tree();
        let (mut first, mut last, mut sizes) = (0u64, 0u64, Vec::new());
        for round in 0..60 {
            let mut txn = tree.store().begin();
            for _ in 0..1500 {
                tree.insert(&mut txn, &key_of(last), rid(last)).unwrap();
                last += 1;
            }
            let gone = first..last.saturating_sub(1000);
            for k in gone.clone() {
                tree.mark(&mut txn, &key_of(k), rid(k)).unwrap();
            }
            tree.store().commit(txn);
            tree.store().raise_horizon();
            for k in gone.clone() {
                tree.purge(&full(&key_of(k), rid(k))).unwrap();
            }
            first = gone.end.max(first);
            let report = verify(&tree);
            sizes.push(tree.store().0.next.load(SeqCst));
            assert_eq!(report.entries as u64, last - first);
            assert!(report.empty_leaves <= 3, "round {round}: {} empty leaves", report.empty_leaves);
        }
        assert!(sizes[59] <= sizes[20], "the segment grows: {sizes:?}");
    }
}
fn long_key_rising(n: u64) -> Vec<u8> {
    format!("{n:0300}").into_bytes()
}

#[test]
fn random_deletes_shrink_the_tree_and_inserts_fill_it_again() {
    let tree = Memory::tree();
    let mut rng = Rng(17);
    let mut sizes = Vec::new();
    for _ in 0..12 {
        let mut txn = tree.store().begin();
        let keys: BTreeSet<u64> = (0..1500).map(|_| rng.below(1 << 40)).collect();
        keys.iter().for_each(|&k| drop(tree.insert(&mut txn, &long_key_rising(k), rid(k)).unwrap()));
        tree.store().commit(txn);
        let mut txn = tree.store().begin();
        keys.iter().for_each(|&k| _ = tree.mark(&mut txn, &long_key_rising(k), rid(k)).unwrap());
        tree.store().commit(txn);
        tree.store().raise_horizon();
        let mut order: Vec<u64> = keys.into_iter().collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        order.iter().for_each(|&k| _ = tree.purge(&long_key_rising(k)).unwrap());
        let report = verify(&tree);
        assert_eq!(report.entries, 0);
        sizes.push(tree.store().0.next.load(SeqCst));
    }
    assert!(sizes[11] <= sizes[2] + sizes[2] / 4, "the segment grows: {sizes:?}");
}

#[test]
fn every_prefix_of_the_redo_is_a_sound_tree() {
    let tree = Memory::tree();
    *tree.store().0.redo.lock() = Some(Vec::new());
    tree.create().unwrap();
    let mut txn = tree.store().begin();
    for i in 0..120u64 {
        tree.insert(&mut txn, &long_key_rising(i * 7919 % 120), rid(i)).unwrap();
    }
    tree.store().commit(txn);
    let mut txn = tree.store().begin();
    (0..110u64).for_each(|i| _ = tree.mark(&mut txn, &long_key_rising(i * 7919 % 120), rid(i)).unwrap());
    tree.store().commit(txn);
    tree.store().raise_horizon();
    (0..110u64).for_each(|k| _ = tree.purge(&long_key_rising(k)).unwrap());
    let redo = tree.store().0.redo.lock().take().unwrap();
    let final_tree = Tree::new(tree.store().replay(&redo), OBJECT, HEADER);
    for i in 0..tree.store().0.next.load(SeqCst) {
        assert!(tree.store().bytes(i).0 == final_tree.store().bytes(i).0, "block {i} differs after replay");
    }
    for cut in 2..=redo.len() {
        let crashed = Tree::new(tree.store().replay(&redo[..cut]), OBJECT, HEADER);
        let before = scan(&crashed, false);
        assert_eq!(scan(&crashed, true), before, "after {cut} records");
        assert_eq!(crashed.verify(|_, _, _| ()).unwrap().problems, Vec::<String>::new(), "after {cut} records");
        if cut % 7 != 0 {
            continue;
        }
        // Life goes on: what was left half done is passed or completed.
        let mut txn = crashed.store().begin();
        for i in 0..130u64 {
            crashed.insert(&mut txn, &long_key_rising(i), rid(1000 + i)).unwrap();
        }
        crashed.store().commit(txn);
        let report = verify(&crashed);
        assert!(report.entries >= before.iter().filter(|e| !e.1).count() + 130);
    }
}

#[test]
fn a_built_tree_holds_its_entries_and_takes_more() {
    for (n, key_of) in [(0, int_key as fn(u64) -> Vec<u8>), (1, int_key), (70_000, int_key), (900, long_key_rising)] {
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
        let keys: BTreeSet<Vec<u8>> = (0..400).map(|_| full(&int_key(rng.below(50_000)), rid(rng.below(2)))).collect();
        let keys: Vec<Vec<u8>> = keys.into_iter().collect();
        assert_eq!(tree.insert_many(&mut txn, &keys, false).unwrap(), (keys.len(), None));
        if round % 3 == 0 {
            tree.store().rollback(txn);
        } else {
            keys.into_iter().for_each(|k| _ = model.insert(k, false));
            tree.store().commit(txn);
        }
        verify_model(&tree, &model);
    }
}

#[test]
fn a_unique_key_is_refused_while_another_entry_may_be_alive() {
    let tree = Memory::tree();
    let (mut t1, mut t2) = (tree.store().begin(), tree.store().begin());
    let key = int_key(5);
    assert_eq!(tree.insert_unique(&mut t1, &key, rid(1), None).unwrap(), IndexOutcome::Inserted);
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t2, &key, rid(2), None).unwrap() else { panic!("inserted twice") };
    assert_eq!(c.entries, [Conflict { rid: rid(1), marked: None }]);
    // T1 deletes its own row: for itself the key is free, for T2 undecided.
    tree.mark(&mut t1, &key, rid(1)).unwrap();
    assert_eq!(tree.insert_unique(&mut t1, &key, rid(3), None).unwrap(), IndexOutcome::Inserted);
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t2, &key, rid(2), None).unwrap() else { panic!("inserted twice") };
    assert_eq!(c.entries.iter().map(|c| c.rid).collect::<Vec<_>>(), [rid(1), rid(3)]);
    assert_eq!(c.entries[0].marked, Some(Stamp::txn(t1.id)));
    tree.mark(&mut t1, &key, rid(3)).unwrap();
    tree.store().commit(t1);
    assert_eq!(tree.insert_unique(&mut t2, &key, rid(2), None).unwrap(), IndexOutcome::Inserted);
    // Vouching holds for the versions of the leaves that were seen, no others.
    let mut t3 = tree.store().begin();
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t3, &key, rid(4), None).unwrap() else { panic!("inserted twice") };
    let mut other = tree.store().begin();
    assert_eq!(tree.insert(&mut other, &key, rid(2)).unwrap(), IndexOutcome::Present);
    assert!(matches!(tree.insert_unique(&mut t3, &key, rid(4), Some(&c)).unwrap(), IndexOutcome::Check(_)));
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t3, &key, rid(4), None).unwrap() else { panic!("inserted twice") };
    assert_eq!(tree.insert_unique(&mut t3, &key, rid(4), Some(&c)).unwrap(), IndexOutcome::Inserted);
}

#[test]
fn many_unique_entries_stop_at_the_first_that_may_exist() {
    let tree = Memory::tree();
    let mut t1 = tree.store().begin();
    tree.insert_unique(&mut t1, &int_key(700), rid(9), None).unwrap();
    let mut t2 = tree.store().begin();
    let mut keys: Vec<_> = (0..1000).map(|k| full(&int_key(k), rid(k))).collect();
    let (done, conflicts) = tree.insert_many(&mut t2, &keys, true).unwrap();
    assert_eq!((done, conflicts.unwrap().entries), (700, vec![Conflict { rid: rid(9), marked: None }]));
    tree.store().rollback(t1);
    assert_eq!(tree.insert_many(&mut t2, &keys[700..], true).unwrap(), (300, None));
    // A duplicate among the new ones is found as well.
    keys = vec![full(&int_key(2000), rid(1)), full(&int_key(2000), rid(2))];
    let (done, conflicts) = tree.insert_many(&mut t2, &keys, true).unwrap();
    assert_eq!((done, conflicts.unwrap().entries[0].rid), (1, rid(1)));
    tree.store().rollback(t2);
    assert_eq!(verify(&tree).entries, 0);
}

/// T1 deletes a row, its slot is reused with the same key, T3 deletes again: what T1's deletion would allow to purge must stay.
#[test]
fn a_purge_for_an_earlier_deletion_spares_a_later_one() {
    let tree = Memory::tree();
    let key = int_key(9);
    let mut t0 = tree.store().begin();
    tree.insert(&mut t0, &key, rid(1)).unwrap();
    tree.store().commit(t0);
    let mut t1 = tree.store().begin();
    tree.mark(&mut t1, &key, rid(1)).unwrap();
    let stamp = Stamp::txn(t1.id);
    tree.store().commit(t1);
    tree.store().raise_horizon();
    let mut t2 = tree.store().begin();
    assert_eq!(tree.insert(&mut t2, &key, rid(1)).unwrap(), IndexOutcome::Revived(stamp));
    tree.store().commit(t2);
    let mut t3 = tree.store().begin();
    tree.mark(&mut t3, &key, rid(1)).unwrap();
    tree.store().commit(t3);
    assert_eq!(tree.purge(&key).unwrap().entries, 0);
    tree.store().raise_horizon();
    assert_eq!(tree.purge(&key).unwrap().entries, 1);
}

/// One key with more dead entries than a leaf holds: the check covers all its leaves.
#[test]
fn a_unique_key_spanning_leaves_is_checked_in_all_of_them() {
    let tree = Memory::tree();
    let key = long_key_rising(7);
    for i in 0..2000 {
        let mut txn = tree.store().begin();
        tree.insert(&mut txn, &key, rid(i)).unwrap();
        tree.mark(&mut txn, &key, rid(i)).unwrap();
        tree.store().commit(txn);
    }
    assert!(verify(&tree).leaves > 3);
    for alive in [0, 900, 1999] {
        let mut t1 = tree.store().begin();
        assert!(matches!(tree.insert_unique(&mut t1, &key, rid(alive), None).unwrap(), IndexOutcome::Revived(_)));
        for other in [0, 30, 1999, 2500] {
            let mut t2 = tree.store().begin();
            let outcome = tree.insert_unique(&mut t2, &key, rid(other), None).unwrap();
            let expected = if other == alive { "Present" } else { "Check" };
            assert!(format!("{outcome:?}").starts_with(expected), "{outcome:?} for {other} with {alive} alive");
        }
        tree.store().rollback(t1);
    }
}

/// A stale inner copy points to a block that was freed and reused further right: whoever gets there starts over.
#[test]
fn a_stale_pointer_to_a_reused_block_is_noticed() {
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    (0..200).for_each(|k| drop(tree.insert(&mut txn, &long_key_rising(k), rid(k)).unwrap()));
    tree.store().commit(txn);
    let guard = tree.read_leaf(descend::Target::Key(&long_key_rising(199)), None).unwrap();
    let rightmost = guard.dba();
    assert!(IndexBlock::new(&guard).unwrap().low() > &long_key_rising(3)[..]);
    drop(guard);
    let leaf = tree.read_leaf(descend::Target::Key(&long_key_rising(3)), Some(rightmost)).unwrap();
    assert!(IndexBlock::new(&leaf).unwrap().search(&full(&long_key_rising(3), rid(3))).1);
}

#[test]
fn keys_that_are_too_long_are_refused() {
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    let longest = vec![7; block::index::MAX_KEY - 8];
    tree.insert(&mut txn, &longest, rid(1)).unwrap();
    let e = tree.insert(&mut txn, &[&longest[..], &[1]].concat(), rid(1)).unwrap_err();
    assert!(matches!(e, crate::Error::KeyTooLong { len: 1529, max: 1528 }), "{e}");
}

/// Threads insert, mark, roll back, purge and scan at once, on long keys so that blocks split and die all the time.
#[test]
fn threads_at_once_leave_what_they_committed() {
    for seed in 0..4u64 {
        println!("seed {seed}");
        let tree = Memory::tree();
        tree.store().0.refuse.store(7, SeqCst);
        let (committed, live) = (Mutex::new(Model::new()), AtomicUsize::new(4));
        let writer = &|id: u64| {
            let mut rng = Rng(seed * 100 + id);
            let mut mine = Model::new();
            for _ in 0..150 {
                let mut txn = tree.store().begin();
                let mut changed = mine.clone();
                for _ in 0..1 + rng.below(12) {
                    // Keys of all writers mingle; each has row ids of its own.
                    let (key, r) = (long_key(rng.below(150)), rid(id * 1000 + rng.below(3)));
                    let entry = full(&key, r);
                    if changed.get(&entry) == Some(&false) && rng.below(2) == 0 {
                        assert!(tree.mark(&mut txn, &key, r).unwrap());
                        changed.insert(entry, true);
                    } else {
                        tree.insert(&mut txn, &key, r).unwrap();
                        changed.insert(entry, false);
                    }
                }
                if rng.below(4) == 0 {
                    tree.store().rollback(txn);
                } else {
                    tree.store().commit(txn);
                    mine = changed;
                }
                let (key, r) = (long_key(rng.below(150)), rid(id * 1000));
                let mut out = Vec::new();
                tree.lookup(&key, &mut out).unwrap();
                let alive = out.iter().any(|(found, marked)| *found == r && marked.is_none());
                assert_eq!(alive, mine.get(&full(&key, r)) == Some(&false));
            }
            committed.lock().unwrap().extend(mine.into_iter().filter(|(_, marked)| !marked));
            live.fetch_sub(1, SeqCst);
        };
        std::thread::scope(|s| {
            (0..4).for_each(|id| drop(s.spawn(move || writer(id))));
            s.spawn(|| {
                let mut rng = Rng(seed + 999);
                while live.load(SeqCst) > 0 {
                    tree.store().raise_horizon();
                    (0..50).for_each(|_| _ = tree.purge(&long_key(rng.below(150))).unwrap());
                    let keys = scan(&tree, rng.below(2) == 0);
                    assert!(keys.windows(2).all(|w| w[0].0 < w[1].0), "a scan goes back");
                }
            });
        });
        tree.store().raise_horizon();
        let found: Model = scan(&tree, false).into_iter().filter(|(_, marked)| !marked).collect();
        assert!(found == *committed.lock().unwrap(), "the tree differs from what was committed");
        let report = verify(&tree);
        println!("{report:?}");
    }
}

/// Many transactions fight for few unique keys: never are two alive.
#[test]
fn threads_at_once_never_share_a_unique_key() {
    println!("seed 0");
    let tree = Memory::tree();
    let owners: Vec<Mutex<Option<u64>>> = (0..20).map(|_| Mutex::new(None)).collect();
    std::thread::scope(|s| {
        for id in 1..=4u64 {
            let (tree, owners) = (&tree, &owners);
            s.spawn(move || {
                let mut rng = Rng(id);
                for n in 0..2000u64 {
                    let k = rng.below(20);
                    let (key, r) = (long_key(k), rid(id * 100_000 + n));
                    let mut txn = tree.store().begin();
                    match tree.insert_unique(&mut txn, &key, r, None).unwrap() {
                        IndexOutcome::Inserted => {
                            assert_eq!(owners[k as usize].lock().unwrap().replace(id), None, "two own key {k}");
                            std::thread::yield_now();
                            assert_eq!(owners[k as usize].lock().unwrap().take(), Some(id));
                            if rng.below(2) == 0 {
                                tree.mark(&mut txn, &key, r).unwrap();
                                tree.store().commit(txn);
                            } else {
                                tree.store().rollback(txn);
                            }
                        }
                        IndexOutcome::Check(_) => tree.store().rollback(txn),
                        other => panic!("{other:?}"),
                    }
                    if n % 500 == 0 {
                        tree.store().raise_horizon();
                    }
                }
            });
        }
    });
    verify(&tree);
}

/// `cargo test --release -p access lookup_speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn lookup_speed() {
    for n in [20_000, 1_000_000u64] {
        let tree = Memory::tree();
        let mut builder = tree.build();
        (0..n).for_each(|i| builder.push(&full(&int_key(i), rid(i))).unwrap());
        builder.finish().unwrap();
        let (mut rng, mut out, mut key) = (Rng(1), Vec::new(), int_key(0));
        let start = std::time::Instant::now();
        for _ in 0..1_000_000 {
            out.clear();
            let k = rng.below(n);
            key[1..].copy_from_slice(&k.to_be_bytes());
            tree.lookup(&key, &mut out).unwrap();
            assert_eq!(out[0].0, rid(k));
        }
        println!("height {}: {} ns a lookup", verify(&tree).height, start.elapsed().as_nanos() / 1_000_000);
        let start = std::time::Instant::now();
        assert_eq!(scan(&tree, false).len() as u64, n);
        println!("{} ns an entry scanned", start.elapsed().as_nanos() as u64 / n);
    }
    let n = 1_000_000u64;
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    let start = std::time::Instant::now();
    (0..n).for_each(|i| _ = tree.insert(&mut txn, &int_key(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)), rid(i)).unwrap());
    println!("{} ns a random insert", start.elapsed().as_nanos() as u64 / n);
}
