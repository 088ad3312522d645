//! Heaps over real transactions, against a model; and the stories of hangs.

use crate::common::*;
use access::heap::{Newest, WriteOutcome};
use block::RowId;
use std::collections::BTreeMap;
use testkit::seeds::{given, seeds};
use txn::{HeldSnapshot, Isolation, RowLock, Savepoint, Snapshot, Transaction};

/// A body that tells its length and number apart from others.
fn body(number: u64, len: usize) -> Vec<u8> {
    let number = number % 1_000_003;
    (0..len)
        .map(|i| (number as usize * 131 + i * 7 + len) as u8)
        .collect()
}

fn commit_rows(db: &Instance, rows: &[Vec<u8>]) -> Vec<RowId> {
    let mut txn = db.session();
    let rids = rows
        .iter()
        .map(|r| db.heap.insert(&mut txn, r).unwrap())
        .collect();
    txn.commit().unwrap();
    rids
}

fn all(db: &Instance, snap: &Snapshot) -> BTreeMap<RowId, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for (first, n) in db.heap.block_runs().unwrap() {
        for i in 0..n {
            let put = &mut |rid: RowId, row: &[u8]| {
                assert!(rows.insert(rid, row.to_vec()).is_none(), "{rid:?} twice")
            };
            db.heap
                .scan_block(snap, first.plus(i), &cache::AskedAhead::default(), put)
                .unwrap();
        }
    }
    rows
}

/// The block under insertion has room worth remembering, but not enough for the next row. It must
/// not be tried for ever.
#[test]
fn rows_of_a_third_of_a_block_find_another_block() {
    let db = Instance::new();
    for len in [3000, 5, 2000, 7800, 20, 3, 4000, 11] {
        let rows: Vec<_> = (0..40).map(|n| body(n, len)).collect();
        let rids = commit_rows(&db, &rows);
        let snap = db.session().statement();
        for (rid, row) in rids.iter().zip(&rows) {
            assert_eq!(
                db.heap
                    .fetch_with(&snap, *rid, <[u8]>::to_vec)
                    .unwrap()
                    .as_ref(),
                Some(row)
            );
        }
    }
    db.check_replay();
}

/// A block with free slots has room, but not at its end. Bulk inserts must not try it for ever.
#[test]
fn a_bulk_insert_after_one_that_was_rolled_back() {
    let db = Instance::new();
    let rows: Vec<_> = (0..3000).map(|n| body(n, 40)).collect();
    let mut blocks = Vec::new();
    for _ in 0..4 {
        let mut txn = db.session();
        db.heap
            .insert_many(&mut txn, &rows, &mut Vec::new())
            .unwrap();
        txn.rollback(&db).unwrap();
        blocks.push(
            db.heap
                .block_runs()
                .unwrap()
                .iter()
                .map(|r| r.1)
                .sum::<u32>(),
        );
    }
    assert!(
        blocks[3] <= blocks[0] + 8,
        "the space of what was rolled back is used again: {blocks:?}"
    );
    let mut rids = Vec::new();
    let mut txn = db.session();
    db.heap.insert_many(&mut txn, &rows, &mut rids).unwrap();
    txn.commit().unwrap();
    let found = all(&db, &db.session().statement());
    assert_eq!(found.len(), rows.len());
    assert!(rids.iter().zip(&rows).all(|(rid, row)| found[rid] == *row));
    db.check_replay();
}

#[test]
fn a_table_that_is_emptied_and_filled_keeps_its_size() {
    let db = Instance::new();
    let rows: Vec<_> = (0..2000).map(|n| body(n, 100)).collect();
    let mut sizes = Vec::new();
    for round in 0..6 {
        let rids = commit_rows(&db, &rows);
        let mut txn = db.session();
        let snap = txn.statement();
        for rid in rids {
            assert_eq!(
                db.heap.delete(&mut txn, &snap, rid).unwrap(),
                WriteOutcome::Done
            );
        }
        txn.commit().unwrap();
        let horizon = db.txns.horizon();
        for hint in db.txns.take_purgeable(horizon, 10_000) {
            db.heap.prune(hint.dba).unwrap();
        }
        sizes.push(
            db.heap
                .block_runs()
                .unwrap()
                .iter()
                .map(|r| r.1)
                .sum::<u32>(),
        );
        assert!(
            all(&db, &db.session().statement()).is_empty(),
            "round {round}"
        );
    }
    assert!(sizes[5] <= sizes[0] + 8, "{sizes:?}");
}

#[test]
fn a_row_of_16_megabytes() {
    let db = Instance::new();
    let row = body(1, 16 << 20);
    let rid = commit_rows(&db, std::slice::from_ref(&row))[0];
    let snap = db.session().statement();
    assert!(
        db.heap
            .fetch_with(&snap, rid, |r| r == row)
            .unwrap()
            .unwrap()
    );
}

/// Race 23b of docs/design.md: T1 shrinks a row, T2 fills the block, T1 rolls back.
#[test]
fn what_shrinks_can_grow_back() {
    let db = Instance::new();
    let rids = commit_rows(&db, &(0..8).map(|n| body(n, 900)).collect::<Vec<_>>());
    let (mut t1, mut t2) = (db.session(), db.session());
    let snap = t1.statement();
    for rid in &rids {
        assert_eq!(
            db.heap
                .update(&mut t1, &snap, *rid, b"small", RowLock::NoKeyUpdate)
                .unwrap(),
            WriteOutcome::Done
        );
    }
    let filler: Vec<_> = (0..200).map(|n| body(n, 50)).collect();
    for row in &filler {
        db.heap.insert(&mut t2, row).unwrap();
    }
    t2.commit().unwrap();
    t1.rollback(&db).unwrap();
    let found = all(&db, &db.session().statement());
    for (n, rid) in rids.iter().enumerate() {
        assert_eq!(found[rid], body(n as u64, 900));
    }
    db.check_replay();
}

type Rows = BTreeMap<RowId, Vec<u8>>;
/// The new versions by row, None for deleted ones.
type Changes = BTreeMap<RowId, Option<Vec<u8>>>;

/// The strongest lock on each row that a transaction has locked or changed.
type Locks = BTreeMap<RowId, RowLock>;

/// A transaction of the model, with what it sees of itself.
struct Open {
    txn: Transaction,
    changes: Changes,
    locks: Locks,
    savepoint: Option<(Savepoint, Changes, Locks)>,
}

const ALL_LOCKS: [RowLock; 4] = [
    RowLock::KeyShare,
    RowLock::Share,
    RowLock::NoKeyUpdate,
    RowLock::Update,
];

fn view(committed: &Rows, changes: &Changes) -> Rows {
    let mut rows = committed.clone();
    for (rid, change) in changes {
        match change {
            Some(row) => drop(rows.insert(*rid, row.clone())),
            None => drop(rows.remove(rid)),
        }
    }
    rows
}

fn length(rng: &mut Rng) -> usize {
    match rng.below(40) {
        0 => rng.below(40_000) as usize,
        1..4 => rng.below(8_000) as usize,
        4..10 => rng.below(12) as usize,
        _ => rng.below(400) as usize,
    }
}

fn random_run(seed: u64, steps: usize) {
    let db = Instance::new();
    let mut rng = Rng(seed);
    let mut committed = Rows::new();
    let mut old: Vec<(HeldSnapshot, Rows)> = Vec::new();
    let mut open: Vec<Open> = (0..4)
        .map(|_| Open {
            txn: db.session(),
            changes: BTreeMap::new(),
            locks: BTreeMap::new(),
            savepoint: None,
        })
        .collect();
    for step in 0..steps {
        let what = format!("seed {seed} step {step}");
        let who = rng.below(4) as usize;
        let locked_by_others: Vec<(RowId, RowLock)> = open
            .iter()
            .enumerate()
            .filter(|(i, _)| *i != who)
            .flat_map(|(_, o)| o.locks.iter().map(|(rid, lock)| (*rid, *lock)))
            .collect();
        let Open {
            txn,
            changes,
            locks,
            savepoint,
        } = &mut open[who];
        let snap = txn.statement();
        let mine = view(&committed, changes);
        let pick = |rng: &mut Rng| {
            mine.keys()
                .nth(rng.below(mine.len().max(1) as u64) as usize)
                .copied()
        };
        match rng.below(100) {
            0..25 => {
                let row = body(rng.next(), length(&mut rng));
                let rid = db.heap.insert(txn, &row).unwrap();
                assert!(!mine.contains_key(&rid), "{what}: {rid:?} is taken");
                changes.insert(rid, Some(row));
                locks.insert(rid, RowLock::Update);
            }
            25..32 => {
                let n = 1 + rng.below(60);
                let rows: Vec<_> = (0..n).map(|_| body(rng.next(), length(&mut rng))).collect();
                let mut rids = Vec::new();
                db.heap.insert_many(txn, &rows, &mut rids).unwrap();
                locks.extend(rids.iter().map(|rid| (*rid, RowLock::Update)));
                changes.extend(rids.into_iter().zip(rows.into_iter().map(Some)));
            }
            kind @ 32..78 => {
                let Some(rid) = pick(&mut rng) else { continue };
                let row = body(rng.next(), length(&mut rng));
                let lock = match kind {
                    32..50 => RowLock::NoKeyUpdate,
                    50..66 => RowLock::Update,
                    _ => ALL_LOCKS[rng.below(4) as usize],
                };
                let outcome = match kind {
                    32..56 => db.heap.update(txn, &snap, rid, &row, lock),
                    56..66 => db.heap.delete(txn, &snap, rid),
                    _ => db.heap.lock(txn, &snap, rid, lock),
                }
                .unwrap();
                let mut others = locked_by_others.iter();
                match others.any(|(of, has)| *of == rid && has.conflicts(lock)) {
                    true => assert!(
                        matches!(outcome, WriteOutcome::Busy(_) | WriteOutcome::Shared { .. }),
                        "{what}: {outcome:?}"
                    ),
                    false => {
                        assert_eq!(outcome, WriteOutcome::Done, "{what}: {rid:?} {lock:?}");
                        let has = locks.entry(rid).or_insert(lock);
                        *has = lock.max(*has);
                        match kind {
                            32..56 => drop(changes.insert(rid, Some(row))),
                            56..66 => drop(changes.insert(rid, None)),
                            _ => {}
                        }
                    }
                }
            }
            78..84 => {
                txn.end_statement();
                txn.commit().unwrap();
                committed = view(&committed, changes);
                (*changes, *locks, *savepoint) = Default::default();
            }
            84..88 => {
                txn.rollback(&db).unwrap();
                (*changes, *locks, *savepoint) = Default::default();
            }
            88..90 => {
                *savepoint = Some((txn.savepoint(), changes.clone(), locks.clone()));
            }
            90..92 => {
                if let Some((to, was, had)) = savepoint.take() {
                    txn.rollback_to(&to, &db).unwrap();
                    (*changes, *locks) = (was, had);
                }
            }
            // If it had changes of its own, it would follow what becomes of them.
            92..94 if changes.is_empty() => old.push((txn.hold(snap).unwrap(), mine.clone())),
            94..96 if !old.is_empty() => {
                let (held, _) = old.swap_remove(rng.below(old.len() as u64) as usize);
                held.release();
            }
            _ => {
                assert_eq!(all(&db, &snap), mine, "{what}: what the transaction sees");
                for rid in mine.keys() {
                    let row = db.heap.fetch_with(&snap, *rid, <[u8]>::to_vec).unwrap();
                    assert_eq!(row.as_ref(), mine.get(rid), "{what}: {rid:?}");
                }
                for (held, rows) in &old {
                    assert_eq!(&all(&db, &held.snapshot()), rows, "{what}: an old snapshot");
                }
                let horizon = db.txns.horizon();
                for hint in db.txns.take_purgeable(horizon, 20) {
                    db.heap.prune(hint.dba).unwrap();
                }
            }
        }
        open[who].txn.end_statement();
    }
    for mut o in open {
        o.txn.rollback(&db).unwrap();
    }
    old.clear();
    assert_eq!(
        all(&db, &db.session().statement()),
        committed,
        "seed {seed}: the end"
    );
    let mut problems = Vec::new();
    let report = db.heap.verify(&mut |p| problems.push(p)).unwrap();
    assert_eq!(
        (problems, report.rows),
        (Vec::new(), committed.len() as u64),
        "seed {seed}"
    );
    db.check_replay();
}

#[test]
fn interleaved_transactions_agree_with_the_model() {
    // One that is replayed goes on for longer.
    let steps = if given("BRAID_SEED").is_some() {
        3000
    } else {
        1500
    };
    seeds("BRAID_SEED", 1..=6).for_each(|seed| random_run(seed, steps));
}

#[test]
fn repeatable_read_learns_of_newer_versions() {
    let db = Instance::new();
    let rids = commit_rows(&db, &[body(1, 50), body(2, 50)]);
    let mut reader = db.session();
    reader.begin(Isolation::RepeatableRead);
    let snap = reader.statement();
    let mut writer = db.session();
    let now = writer.statement();
    assert_eq!(
        db.heap
            .update(&mut writer, &now, rids[0], b"new", RowLock::NoKeyUpdate)
            .unwrap(),
        WriteOutcome::Done
    );
    assert_eq!(
        db.heap
            .update(&mut reader, &snap, rids[0], b"x", RowLock::NoKeyUpdate)
            .unwrap(),
        WriteOutcome::Busy(writer.id())
    );
    db.heap.delete(&mut writer, &now, rids[1]).unwrap();
    writer.commit().unwrap();
    assert_eq!(
        db.heap
            .update(&mut reader, &snap, rids[0], b"x", RowLock::NoKeyUpdate)
            .unwrap(),
        WriteOutcome::Changed
    );
    assert_eq!(
        db.heap
            .update(&mut reader, &snap, rids[1], b"x", RowLock::NoKeyUpdate)
            .unwrap(),
        WriteOutcome::Gone
    );
    assert_eq!(all(&db, &snap)[&rids[1]], body(2, 50));
}

/// A lock is no change: a session that held one and committed makes nobody's snapshot stale.
#[test]
fn a_lock_that_was_let_go_does_not_change_the_row() {
    let db = Instance::new();
    let rids = commit_rows(&db, &[body(1, 50), body(2, 50)]);
    let mut reader = db.session();
    reader.begin(Isolation::RepeatableRead);
    let snap = reader.statement();
    for _ in 0..3 {
        let mut locker = db.session();
        let now = locker.statement();
        for rid in &rids {
            assert_eq!(
                db.heap
                    .lock(&mut locker, &now, *rid, RowLock::Update)
                    .unwrap(),
                WriteOutcome::Done
            );
        }
        locker.commit().unwrap();
    }
    let mut writer = db.session();
    let now = writer.statement();
    assert_eq!(
        db.heap
            .update(&mut writer, &now, rids[1], b"new", RowLock::NoKeyUpdate)
            .unwrap(),
        WriteOutcome::Done
    );
    writer.commit().unwrap();
    assert_eq!(
        db.heap
            .update(&mut reader, &snap, rids[0], b"x", RowLock::NoKeyUpdate)
            .unwrap(),
        WriteOutcome::Done
    );
    assert_eq!(
        db.heap
            .update(&mut reader, &snap, rids[1], b"x", RowLock::NoKeyUpdate)
            .unwrap(),
        WriteOutcome::Changed
    );
    reader.rollback(&db).unwrap();
    assert_eq!(all(&db, &db.session().statement())[&rids[0]], body(1, 50));
}

/// Sessions move amounts between rows and retry when a row is busy. Nothing is lost, in whatever
/// block they meet.
#[test]
fn threads_conserve_the_sum() {
    const ROWS: u64 = 40;
    let db = Instance::new();
    let row = |amount: i64, pad: usize| [&amount.to_le_bytes()[..], &vec![7; pad]].concat();
    let amount = |row: &[u8]| i64::from_le_bytes(row[..8].try_into().unwrap());
    let rids = commit_rows(&db, &(0..ROWS).map(|_| row(100, 50)).collect::<Vec<_>>());
    let sum = |snap: &Snapshot| all(&db, snap).values().map(|r| amount(r)).sum::<i64>();
    std::thread::scope(|s| {
        for seed in 1..=4u64 {
            let (db, rids) = (&db, &rids);
            s.spawn(move || {
                let _session = wait::session::register(wait::session::Kind::User, "mover");
                let mut rng = Rng(seed);
                let mut txn = db.session();
                let mut moved = 0;
                while moved < 300 {
                    let snap = txn.statement();
                    let pair = [rng.below(ROWS), rng.below(ROWS)].map(|n| rids[n as usize]);
                    let changes = [-1, 1];
                    let done = pair[0] != pair[1]
                        && pair.iter().zip(changes).all(|(rid, by)| {
                            let old = db
                                .heap
                                .fetch_with(&snap, *rid, |r| amount(r))
                                .unwrap()
                                .unwrap();
                            let new = row(old + by, rng.below(600) as usize);
                            db.heap
                                .update(&mut txn, &snap, *rid, &new, RowLock::NoKeyUpdate)
                                .unwrap()
                                == WriteOutcome::Done
                        });
                    txn.end_statement();
                    match done && rng.below(5) > 0 {
                        true => drop(txn.commit().unwrap()),
                        false => txn.rollback(db).unwrap(),
                    }
                    moved += u32::from(done);
                }
            });
        }
        s.spawn(|| {
            let mut txn = db.session();
            for _ in 0..200 {
                let snap = txn.statement();
                assert_eq!(sum(&snap), 100 * ROWS as i64);
                txn.end_statement();
            }
        });
    });
    assert_eq!(sum(&db.session().statement()), 100 * ROWS as i64);
    db.check_replay();
}

/// A long row's pieces go when the transaction that wrote them rolls back, and other rows take
/// their slots. A session that reads the newest version meanwhile is neither told of damage ("piece
/// is not there") nor given the other row's bytes.
#[test]
fn the_newest_version_of_a_long_row_that_is_rolled_back() {
    let db = Instance::new();
    let (short, long) = (body(1, 40), body(2, 30_000));
    let rid = commit_rows(&db, std::slice::from_ref(&short))[0];
    let done = std::sync::atomic::AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = [0u64; 2];
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        let Newest::Row { body, .. } = db.heap.newest(rid).unwrap() else {
                            panic!("the row is there all the time");
                        };
                        match &body {
                            b if *b == short => seen[0] += 1,
                            b if *b == long => seen[1] += 1,
                            b => panic!("a version of {} bytes that nobody wrote", b.len()),
                        }
                    }
                    seen
                })
            })
            .collect();
        let other = scope.spawn(|| {
            for n in 0..600 {
                let mut txn = db.session();
                let row = db.heap.insert(&mut txn, &body(n, 25_000)).unwrap();
                assert!(matches!(db.heap.newest(row), Ok(Newest::Row { .. })));
                txn.rollback(&db).unwrap();
            }
        });
        for _ in 0..1500 {
            let mut txn = db.session();
            let snap = txn.statement();
            let outcome = db
                .heap
                .update(&mut txn, &snap, rid, &long, RowLock::NoKeyUpdate)
                .unwrap();
            assert_eq!(outcome, WriteOutcome::Done);
            assert!(matches!(db.heap.newest(rid), Ok(Newest::Row { body, .. }) if body == long));
            txn.rollback(&db).unwrap();
        }
        other.join().unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        readers
            .into_iter()
            .map(|r| r.join().unwrap())
            .fold([0, 0], |a, b| [a[0] + b[0], a[1] + b[1]])
    });
    eprintln!("{seen:?} times the short and the long version");
}
