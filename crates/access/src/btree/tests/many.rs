//! Inserts many entries at once: runs behind, before and between what is there.

use super::*;

/// The key of one of a few streams, each of which rises.
fn stream_key(stream: u64, n: u64) -> Vec<u8> {
    let mut key = vec![1];
    key.extend_from_slice(&stream.to_be_bytes());
    key.push(1);
    key.extend_from_slice(&n.to_be_bytes());
    key
}
/// A long key, of a length that jumps: fences and prefixes change much from block to block.
fn uneven_key(stream: u64, n: u64) -> Vec<u8> {
    let mut key = stream_key(stream, n / 50);
    key.resize(key.len() + (stream as usize * 131) % 700, 7);
    key.extend_from_slice(&n.to_be_bytes());
    key
}

/// A batch of keys in order. It has runs for some of the streams, at the place they have come to,
/// or before, or scattered.
fn batch(
    rng: &mut Rng,
    ends: &mut [u64],
    key_of: fn(u64, u64) -> Vec<u8>,
    rids: u64,
) -> Vec<Vec<u8>> {
    let mut keys = BTreeSet::new();
    for _ in 0..1 + rng.below(4) {
        let stream = rng.below(ends.len() as u64);
        let end = &mut ends[stream as usize];
        let n = [3, 40, 300, 1500][rng.below(4) as usize];
        let from = match rng.below(4) {
            0 => rng.below(*end + 1) * 1000 + 1 + rng.below(900),
            _ => {
                *end += n;
                (*end - n) * 1000
            }
        };
        let step = if from % 1000 == 0 {
            1000
        } else {
            1 + rng.below(30)
        };
        keys.extend(
            (0..n).map(|i| full(&key_of(stream, from + i * step), rid(rids + rng.below(2)))),
        );
    }
    keys.into_iter().collect()
}

fn run(seed: u64, key_of: fn(u64, u64) -> Vec<u8>, streams: usize, rounds: u32) {
    println!("seed {seed}");
    let mut rng = Rng(seed);
    let tree = Memory::tree();
    tree.store()
        .0
        .refuse
        .store([0, 3, 5][seed as usize % 3], SeqCst);
    *tree.store().0.redo.lock() = Some(Vec::new());
    tree.create().unwrap();
    let (mut model, mut ends) = (Model::new(), vec![0; streams]);
    for _ in 0..rounds {
        let mut txn = tree.store().begin();
        let keys = batch(&mut rng, &mut ends, key_of, 0);
        let done = tree.insert_many(&mut txn, &keys, false).unwrap();
        assert_eq!(done, (keys.len(), None));
        let marked: Vec<_> = keys.iter().filter(|_| rng.below(20) == 0).collect();
        for key in &marked {
            let (columns, r) = block::index::split_key(key).unwrap();
            tree.mark(&mut txn, columns, r).unwrap();
        }
        if rng.below(4) == 0 {
            tree.store().rollback(txn);
        } else {
            keys.iter().for_each(|k| _ = model.insert(k.clone(), false));
            marked
                .iter()
                .for_each(|k| _ = model.insert((*k).clone(), true));
            tree.store().commit(txn);
        }
        verify_model(&tree, &model);
    }
    let redo = tree.store().0.redo.lock().take().unwrap();
    // A crash behind any record leaves a sound tree that takes more entries.
    for cut in (2..=redo.len()).filter(|_| rng.below(redo.len() as u64) < 12) {
        let crashed = Tree::new(tree.store().replay(&redo[..cut]), OBJECT, HEADER);
        let before = verify(&crashed).entries;
        let mut txn = crashed.store().begin();
        let keys: Vec<_> = (0..500)
            .map(|i| full(&key_of(1, i * 1000 + 999), rid(5)))
            .collect();
        assert_eq!(
            crashed.insert_many(&mut txn, &keys, false).unwrap(),
            (500, None)
        );
        assert_eq!(verify(&crashed).entries, before + 500);
        crashed.store().rollback(txn);
        assert_eq!(verify(&crashed).entries, before);
    }
    let whole = Tree::new(tree.store().replay(&redo), OBJECT, HEADER);
    verify_model(&whole, &model);
}

#[test]
fn runs_match_a_map_and_survive_a_crash_at_any_record() {
    (0..6).for_each(|seed| run(seed, stream_key, 5, 40));
    (6..12).for_each(|seed| run(seed, uneven_key, 6, 6));
}

/// The keys look like those of a load: many streams, each of which goes on where it ended. Leaves
/// are filled, not halved.
#[test]
fn streams_fill_their_leaves() {
    let tree = Memory::tree();
    let mut txn = tree.store().begin();
    let (streams, a_time, times) = (40, 600, 5);
    for time in 0..times {
        let key = |s, i| stream_key(s, 1_600_000_000_000 + (time * a_time + i) * 17);
        let keys: Vec<_> = (0..streams)
            .flat_map(|s| (0..a_time).map(move |i| full(&key(s, i), rid(s * 100_000 + i * 13))))
            .collect();
        assert_eq!(
            tree.insert_many(&mut txn, &keys, false).unwrap(),
            (keys.len(), None)
        );
    }
    let report = verify(&tree);
    let entries = streams * a_time * times;
    assert_eq!(report.entries as u64, entries);
    let per_leaf = entries / report.leaves as u64;
    assert!(per_leaf > 330, "{per_leaf} entries in a leaf");
    tree.store().rollback(txn);
    assert_eq!(verify(&tree).entries, 0);
}

/// Equal columns, in one batch or behind a leaf's end, are found whichever way a leaf is made.
#[test]
fn runs_of_unique_keys_stop_at_what_exists() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let tree = Memory::tree();
        tree.store()
            .0
            .refuse
            .store([0, 3][seed as usize % 2], SeqCst);
        let mut txn = tree.store().begin();
        let (mut there, mut ends) = (BTreeSet::new(), vec![0; 4]);
        for round in 0..12 {
            let keys = batch(&mut rng, &mut ends, stream_key, 2 * round);
            let columns = |k: &Vec<u8>| k[..k.len() - 8].to_vec();
            let mut at = 0;
            while at < keys.len() {
                let (n, conflicts) = tree.insert_many(&mut txn, &keys[at..], true).unwrap();
                for key in &keys[at..at + n] {
                    assert!(there.insert(columns(key)), "a duplicate went in");
                }
                at += n;
                if let Some(found) = conflicts {
                    assert!(there.contains(&columns(&keys[at])));
                    assert_eq!(found.entries.len(), 1);
                    at += 1;
                } else {
                    assert_eq!(at, keys.len());
                }
            }
        }
        assert_eq!(verify(&tree).entries, there.len());
    }
}

/// Threads load streams of their own and shared ones at once, and some roll back.
#[test]
fn threads_that_load_at_once() {
    for seed in 0..3 {
        println!("seed {seed}");
        let tree = Memory::tree();
        tree.store().0.refuse.store(7, SeqCst);
        let committed = Mutex::new(Model::new());
        let load = &|id: u64| {
            let mut rng = Rng(seed * 100 + id);
            let mut ends = vec![0; 5];
            for _ in 0..8 {
                let mut txn = tree.store().begin();
                let mut keys = batch(&mut rng, &mut ends, stream_key, 0);
                // The row ids are this thread's own.
                keys.iter_mut()
                    .for_each(|k| *k.last_mut().unwrap() = id as u8);
                keys.dedup();
                let done = tree.insert_many(&mut txn, &keys, false).unwrap();
                assert_eq!(done, (keys.len(), None));
                if rng.below(3) == 0 {
                    tree.store().rollback(txn);
                } else {
                    tree.store().commit(txn);
                    committed
                        .lock()
                        .unwrap()
                        .extend(keys.into_iter().map(|k| (k, false)));
                }
            }
        };
        std::thread::scope(|s| (1..5).for_each(|id| drop(s.spawn(move || load(id)))));
        verify_model(&tree, &committed.into_inner().unwrap());
    }
}
