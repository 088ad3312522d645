//! Several instances over one set of blocks. What one instance has latched last is not there for
//! the other, and a try that lacks the mode must be made good.

use super::*;
use block::Op;

fn on(tree: &Tree<Memory>, instance: u32) -> Tree<Memory> {
    Tree::new(tree.store().instance(instance), OBJECT, HEADER)
}

/// Gives all blocks that the tree has so far to the instance.
fn give_all_to(tree: &Tree<Memory>, instance: u32) {
    let store = tree.store().instance(instance);
    for i in 0..store.0.next.load(SeqCst) {
        drop(store.write(HEADER.plus(i)).unwrap());
    }
}

/// A key of which a block holds few: such keys have no prefix in common.
fn bulky_key(n: u64) -> Vec<u8> {
    let mut rng = Rng(n);
    let mut key: Vec<u8> = (0..600).map(|_| rng.below(255) as u8 + 1).collect();
    key.extend_from_slice(&n.to_be_bytes());
    key
}

fn transfers(tree: &Tree<Memory>) -> u64 {
    tree.store().0.transfers.load(SeqCst)
}

#[test]
fn instances_at_once_leave_what_they_committed() {
    for seed in 0..4 {
        lasting::at_once(seed, 2);
        lasting::at_once(seed, 4);
    }
}

/// A tree with a key whose dead entries span leaves, none of which can be purged.
fn spanning_key() -> (Tree<Memory>, Vec<u8>) {
    let tree = Memory::tree();
    let key = long_key_rising(7);
    for i in 0..2000 {
        let mut txn = tree.store().begin();
        tree.insert(&mut txn, &key, rid(i)).unwrap();
        tree.mark(&mut txn, &key, rid(i)).unwrap();
        tree.store().commit(txn);
    }
    assert!(verify(&tree).leaves > 3);
    (tree, key)
}

/// The home is in one instance, the leaf that takes the entry in the other. If that leaf was only
/// brought to be read, it could not be written, and the insertion would go round for ever.
#[test]
fn a_leaf_that_is_to_be_written_is_brought_to_be_written() {
    let (tree, key) = spanning_key();
    for r in [3000, 3001] {
        for from in [0, 1] {
            give_all_to(&tree, 1 - from);
            drop(on(&tree, from).write_leaf(&key).unwrap());
            let before = transfers(&tree);
            let tree = on(&tree, from);
            let mut txn = tree.store().begin();
            let outcome = tree.insert_unique(&mut txn, &key, rid(r), None);
            assert_eq!(outcome.unwrap(), IndexOutcome::Inserted);
            tree.store().rollback(txn);
            assert!(transfers(&tree) - before < 100);
        }
    }
}

/// Race 27 of docs/design.md: each of several instances has a block that another needs.
#[test]
fn instances_that_fight_for_a_spanning_key_all_advance() {
    println!("seeds 1..3");
    let (tree, key) = spanning_key();
    let owner = Mutex::new(None);
    std::thread::scope(|s| {
        for id in 1..=3u64 {
            let (tree, owner, key) = (on(&tree, id as u32), &owner, &key);
            s.spawn(move || {
                let mut inserted = 0;
                while inserted < 100 {
                    let r = rid(id * 100_000 + inserted);
                    let mut txn = tree.store().begin();
                    match tree.insert_unique(&mut txn, key, r, None).unwrap() {
                        IndexOutcome::Inserted => {
                            assert_eq!(owner.lock().unwrap().replace(id), None);
                            std::thread::yield_now();
                            assert_eq!(owner.lock().unwrap().take(), Some(id));
                            tree.mark(&mut txn, key, r).unwrap();
                            tree.store().commit(txn);
                            inserted += 1;
                        }
                        IndexOutcome::Check(_) => tree.store().rollback(txn),
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(verify(&tree).entries, 2300);
}

/// An empty leaf leaves the tree although its neighbours were last used elsewhere.
#[test]
fn leaves_are_unlinked_whoever_had_their_neighbours() {
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    (0..200).for_each(|k| drop(tree.insert(&mut txn, &bulky_key(k), rid(k)).unwrap()));
    (0..190).for_each(|k| _ = tree.mark(&mut txn, &bulky_key(k), rid(k)).unwrap());
    tree.store().commit(txn);
    tree.store().raise_horizon();
    let (one, mut freed) = (on(&tree, 1), 0);
    for k in 0..190 {
        give_all_to(&tree, 0);
        freed += one.purge(&bulky_key(k)).unwrap().blocks;
    }
    let report = verify(&tree);
    assert_eq!(report.entries, 10);
    assert!(
        freed > 10 && report.empty_leaves <= 1,
        "{freed} freed, {report:?}"
    );
}

/// A crash left a dead leaf whose range no leaf has taken over, and another instance has the
/// blocks. The search completes the work. It does not go round until it takes the tree for damaged.
#[test]
fn a_dead_leaf_is_made_good_with_its_neighbours_elsewhere() {
    let tree = Memory::tree();
    *tree.store().0.redo.lock() = Some(Vec::new());
    tree.create().unwrap();
    let mut txn = tree.store().begin();
    (0..200).for_each(|k| drop(tree.insert(&mut txn, &bulky_key(k), rid(k)).unwrap()));
    (0..190).for_each(|k| _ = tree.mark(&mut txn, &bulky_key(k), rid(k)).unwrap());
    tree.store().commit(txn);
    tree.store().raise_horizon();
    (0..190).for_each(|k| _ = tree.purge(&bulky_key(k)).unwrap());
    let redo = tree.store().0.redo.lock().take().unwrap();
    let deaths: Vec<usize> = (0..redo.len())
        .filter(|&at| redo[at].iter().any(|change| change.op == Op::IndexDead))
        .collect();
    assert!(deaths.len() > 5);
    for at in deaths {
        let crashed = Tree::new(tree.store().replay(&redo[..=at]), OBJECT, HEADER);
        give_all_to(&crashed, 1);
        let here = on(&crashed, 0);
        for k in 0..200 {
            let mut found = Vec::new();
            here.lookup(&bulky_key(k), &mut found).unwrap();
            let alive = found.iter().any(|(_, marked)| marked.is_none());
            assert_eq!(alive, k >= 190, "key {k}");
        }
        give_all_to(&crashed, 1);
        let mut txn = here.store().begin();
        for k in 0..200 {
            here.insert(&mut txn, &bulky_key(k), rid(1000 + k)).unwrap();
            if k % 8 == 0 {
                give_all_to(&crashed, 1);
            }
        }
        here.store().commit(txn);
        assert!(verify(&crashed).entries >= 200);
    }
}
