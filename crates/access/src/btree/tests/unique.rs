//! Uniqueness: checked and kept, alone and from several threads.

use super::*;

#[test]
fn a_unique_key_is_refused_while_another_entry_may_be_alive() {
    let tree = Memory::tree();
    let (mut t1, mut t2) = (tree.store().begin(), tree.store().begin());
    let key = int_key(5);
    assert_eq!(
        tree.insert_unique(&mut t1, &key, rid(1), None).unwrap(),
        IndexOutcome::Inserted
    );
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t2, &key, rid(2), None).unwrap() else {
        panic!("inserted twice")
    };
    assert_eq!(
        c.entries,
        [Conflict {
            rid: rid(1),
            marked: None
        }]
    );
    // T1 deletes its own row: for T1 the key is free, for T2 it is undecided.
    tree.mark(&mut t1, &key, rid(1)).unwrap();
    assert_eq!(
        tree.insert_unique(&mut t1, &key, rid(3), None).unwrap(),
        IndexOutcome::Inserted
    );
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t2, &key, rid(2), None).unwrap() else {
        panic!("inserted twice")
    };
    assert_eq!(
        c.entries.iter().map(|c| c.rid).collect::<Vec<_>>(),
        [rid(1), rid(3)]
    );
    assert_eq!(c.entries[0].marked, Some(Stamp::txn(t1.id)));
    tree.mark(&mut t1, &key, rid(3)).unwrap();
    tree.store().commit(t1);
    assert_eq!(
        tree.insert_unique(&mut t2, &key, rid(2), None).unwrap(),
        IndexOutcome::Inserted
    );
    // Vouching holds for the versions of the leaves that were seen, and for no others.
    let mut t3 = tree.store().begin();
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t3, &key, rid(4), None).unwrap() else {
        panic!("inserted twice")
    };
    let mut other = tree.store().begin();
    assert_eq!(
        tree.insert(&mut other, &key, rid(2)).unwrap(),
        IndexOutcome::Present
    );
    assert!(matches!(
        tree.insert_unique(&mut t3, &key, rid(4), Some(&c)).unwrap(),
        IndexOutcome::Check(_)
    ));
    let IndexOutcome::Check(c) = tree.insert_unique(&mut t3, &key, rid(4), None).unwrap() else {
        panic!("inserted twice")
    };
    assert_eq!(
        tree.insert_unique(&mut t3, &key, rid(4), Some(&c)).unwrap(),
        IndexOutcome::Inserted
    );
}

#[test]
fn many_unique_entries_stop_at_the_first_that_may_exist() {
    let tree = Memory::tree();
    let mut t1 = tree.store().begin();
    tree.insert_unique(&mut t1, &int_key(700), rid(9), None)
        .unwrap();
    let mut t2 = tree.store().begin();
    let mut keys: Vec<_> = (0..1000).map(|k| full(&int_key(k), rid(k))).collect();
    let (done, conflicts) = tree.insert_many(&mut t2, &keys, true).unwrap();
    assert_eq!(
        (done, conflicts.unwrap().entries),
        (
            700,
            vec![Conflict {
                rid: rid(9),
                marked: None
            }]
        )
    );
    tree.store().rollback(t1);
    assert_eq!(
        tree.insert_many(&mut t2, &keys[700..], true).unwrap(),
        (300, None)
    );
    // A duplicate among the new ones is found as well.
    keys = vec![full(&int_key(2000), rid(1)), full(&int_key(2000), rid(2))];
    let (done, conflicts) = tree.insert_many(&mut t2, &keys, true).unwrap();
    assert_eq!((done, conflicts.unwrap().entries[0].rid), (1, rid(1)));
    tree.store().rollback(t2);
    assert_eq!(verify(&tree).entries, 0);
}

/// T1 deletes a row, its slot is reused with an equal key, and T3 deletes again. What T1's deletion
/// would allow to purge must stay.
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
    assert_eq!(
        tree.insert(&mut t2, &key, rid(1)).unwrap(),
        IndexOutcome::Revived(stamp)
    );
    tree.store().commit(t2);
    let mut t3 = tree.store().begin();
    tree.mark(&mut t3, &key, rid(1)).unwrap();
    tree.store().commit(t3);
    assert_eq!(tree.purge(&key).unwrap().entries, 0);
    tree.store().raise_horizon();
    assert_eq!(tree.purge(&key).unwrap().entries, 1);
}

/// One key has more dead entries than a leaf holds: the check covers all its leaves.
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
        assert!(matches!(
            tree.insert_unique(&mut t1, &key, rid(alive), None).unwrap(),
            IndexOutcome::Revived(_)
        ));
        for other in [0, 30, 1999, 2500] {
            let mut t2 = tree.store().begin();
            let outcome = tree.insert_unique(&mut t2, &key, rid(other), None).unwrap();
            let expected = if other == alive { "Present" } else { "Check" };
            assert!(
                format!("{outcome:?}").starts_with(expected),
                "{outcome:?} for {other} with {alive} alive"
            );
        }
        tree.store().rollback(t1);
    }
}

/// Many transactions fight for few unique keys. No two are ever alive.
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
                            assert_eq!(
                                owners[k as usize].lock().unwrap().replace(id),
                                None,
                                "two own key {k}"
                            );
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
