//! What lasts: sizes under churn, the tree after a crash at any record, threads at once, and speed.

use super::*;

/// A queue: rows come at the top and go at the bottom, for ever. Its index must neither grow nor
/// lose blocks.
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
            assert!(
                report.empty_leaves <= 3,
                "round {round}: {} empty leaves",
                report.empty_leaves
            );
        }
        assert!(sizes[59] <= sizes[20], "the segment grows: {sizes:?}");
    }
}

#[test]
fn random_deletes_shrink_the_tree_and_inserts_fill_it_again() {
    let tree = Memory::tree();
    let mut rng = Rng(17);
    let mut sizes = Vec::new();
    for _ in 0..12 {
        let mut txn = tree.store().begin();
        let keys: BTreeSet<u64> = (0..1500).map(|_| rng.below(1 << 40)).collect();
        keys.iter()
            .for_each(|&k| drop(tree.insert(&mut txn, &long_key_rising(k), rid(k)).unwrap()));
        tree.store().commit(txn);
        let mut txn = tree.store().begin();
        keys.iter()
            .for_each(|&k| _ = tree.mark(&mut txn, &long_key_rising(k), rid(k)).unwrap());
        tree.store().commit(txn);
        tree.store().raise_horizon();
        let mut order: Vec<u64> = keys.into_iter().collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        order
            .iter()
            .for_each(|&k| _ = tree.purge(&long_key_rising(k)).unwrap());
        let report = verify(&tree);
        assert_eq!(report.entries, 0);
        sizes.push(tree.store().0.next.load(SeqCst));
    }
    assert!(
        sizes[11] <= sizes[2] + sizes[2] / 4,
        "the segment grows: {sizes:?}"
    );
}

/// After a restart a segment gives out what lies behind its last formatted block. A block that was
/// given back without ever having been formatted would then be in use twice, as in an index built
/// over few rows.
#[test]
fn a_block_that_was_not_needed_is_formatted_before_it_is_given_back() {
    let tree = Memory::tree();
    let mut builder = tree.build();
    builder.push(&full(&int_key(1), rid(1))).unwrap();
    builder.finish().unwrap();
    let report = verify(&tree);
    assert_eq!(report.free_blocks, 1);
    for i in 0..tree.store().0.next.load(SeqCst) {
        assert!(
            i == 0 || !tree.store().bytes(i).is_unformatted(),
            "block {i} was given out"
        );
    }
}

#[test]
fn every_prefix_of_the_redo_is_a_sound_tree() {
    let tree = Memory::tree();
    *tree.store().0.redo.lock() = Some(Vec::new());
    tree.create().unwrap();
    let mut txn = tree.store().begin();
    for i in 0..120u64 {
        tree.insert(&mut txn, &long_key_rising(i * 7919 % 120), rid(i))
            .unwrap();
    }
    tree.store().commit(txn);
    let mut txn = tree.store().begin();
    (0..110u64).for_each(|i| {
        _ = tree
            .mark(&mut txn, &long_key_rising(i * 7919 % 120), rid(i))
            .unwrap()
    });
    tree.store().commit(txn);
    tree.store().raise_horizon();
    (0..110u64).for_each(|k| _ = tree.purge(&long_key_rising(k)).unwrap());
    let redo = tree.store().0.redo.lock().take().unwrap();
    let final_tree = Tree::new(tree.store().replay(&redo), OBJECT, HEADER);
    for i in 0..tree.store().0.next.load(SeqCst) {
        assert!(
            tree.store().bytes(i).0 == final_tree.store().bytes(i).0,
            "block {i} differs after replay"
        );
    }
    for cut in 2..=redo.len() {
        let crashed = Tree::new(tree.store().replay(&redo[..cut]), OBJECT, HEADER);
        let before = scan(&crashed, false);
        assert_eq!(scan(&crashed, true), before, "after {cut} records");
        assert_eq!(
            crashed.verify(|_, _, _| ()).unwrap().problems,
            Vec::<String>::new(),
            "after {cut} records"
        );
        if cut % 7 != 0 {
            continue;
        }
        // Work goes on: what was left half done is passed or completed.
        let mut txn = crashed.store().begin();
        for i in 0..130u64 {
            crashed
                .insert(&mut txn, &long_key_rising(i), rid(1000 + i))
                .unwrap();
        }
        crashed.store().commit(txn);
        let report = verify(&crashed);
        assert!(report.entries >= before.iter().filter(|e| !e.1).count() + 130);
    }
}

#[test]
fn threads_at_once_leave_what_they_committed() {
    (0..4).for_each(|seed| at_once(seed, 1));
}

/// Lets threads insert, mark, roll back, purge and scan at once, on long keys so that blocks split
/// and die all the time. The threads are spread over `instances` instances.
pub(super) fn at_once(seed: u64, instances: u64) {
    {
        println!("seed {seed}, {instances} instances");
        let tree = Memory::tree();
        tree.store().0.refuse.store(7, SeqCst);
        let of_instance = |id: u64| {
            let store = tree.store().instance((id % instances) as u32);
            Tree::new(store, OBJECT, HEADER)
        };
        let (committed, live) = (Mutex::new(Model::new()), AtomicUsize::new(4));
        let writer = &|id: u64| {
            let tree = of_instance(id);
            let mut rng = Rng(seed * 100 + id);
            let mut mine = Model::new();
            for _ in 0..150 {
                let mut txn = tree.store().begin();
                let mut changed = mine.clone();
                for _ in 0..1 + rng.below(12) {
                    // The keys of all writers mingle. Each writer has row ids of its own.
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
                let alive = out
                    .iter()
                    .any(|(found, marked)| *found == r && marked.is_none());
                assert_eq!(alive, mine.get(&full(&key, r)) == Some(&false));
            }
            committed
                .lock()
                .unwrap()
                .extend(mine.into_iter().filter(|(_, marked)| !marked));
            live.fetch_sub(1, SeqCst);
        };
        std::thread::scope(|s| {
            (0..4).for_each(|id| drop(s.spawn(move || writer(id))));
            s.spawn(|| {
                let tree = of_instance(seed + 1);
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
        let found: Model = scan(&tree, false)
            .into_iter()
            .filter(|(_, marked)| !marked)
            .collect();
        assert!(
            found == *committed.lock().unwrap(),
            "the tree differs from what was committed"
        );
        let report = verify(&tree);
        println!("{report:?}");
    }
}

/// Measures look-ups: `cargo test --release -p access lookup_speed -- --ignored --nocapture`.
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
        println!(
            "height {}: {} ns a lookup",
            verify(&tree).height,
            start.elapsed().as_nanos() / 1_000_000
        );
        let start = std::time::Instant::now();
        assert_eq!(scan(&tree, false).len() as u64, n);
        println!(
            "{} ns an entry scanned",
            start.elapsed().as_nanos() as u64 / n
        );
    }
    let n = 1_000_000u64;
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    let start = std::time::Instant::now();
    (0..n).for_each(|i| {
        _ = tree
            .insert(
                &mut txn,
                &int_key(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                rid(i),
            )
            .unwrap()
    });
    println!(
        "{} ns a random insert",
        start.elapsed().as_nanos() as u64 / n
    );
}
