//! Two instances in one process over one simulated storage. Their sessions work on the same rows.

use crate::common::*;
use engine::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use testkit::seeds::{number, seeds};

const ACCOUNTS: i64 = 12;
const BALANCE: i32 = 100;

fn big() -> Config {
    Config {
        buffer_bytes: 512 * 8192,
        ..config()
    }
}

fn load(engine: &Arc<Engine>, t: &TableDef) {
    let mut s = engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    for id in 0..ACCOUNTS {
        s.insert(t, &row(id, BALANCE, "x")).unwrap();
    }
    s.commit().unwrap();
}

/// Adds to an account as an UPDATE at READ COMMITTED or REPEATABLE READ does.
fn add(s: &mut Session, t: &TableDef, id: i64, amount: i32, pad: &str) -> Result<()> {
    let snap = s.snapshot()?;
    let mut body = Vec::new();
    let (rid, mut grp, _) = find(s, t, &snap, id)?.expect("accounts stay");
    match s.lock_row(t, rid, &snap, (RowLock::Update, LockWait::Wait), &mut body)? {
        LockOutcome::Locked => {}
        LockOutcome::Changed => grp = decode(t, &body).1,
        other => panic!("account {id}: {other:?}"),
    }
    let done = s.update(t, rid, &row(id, grp + amount, pad), None)?;
    assert_eq!(done, WriteOutcome::Done, "account {id} is locked");
    s.end_statement();
    Ok(())
}

fn sum(rows: &Model) -> i64 {
    rows.values().map(|(grp, _)| i64::from(*grp)).sum()
}

/// Both instances transfer between the same accounts. Some transfers deadlock over instances, and
/// some roll back. Every snapshot of either instance sees the whole sum, by scan and by both
/// indexes. A repeatable snapshot always sees the same rows.
#[test]
fn transfers_on_two_instances_keep_every_sum() {
    let (storage, t) = create();
    let start = |k| {
        let config = Config {
            instance: k,
            join_others: true,
            ..big()
        };
        open_meeting(config, &storage.as_client(k.into())).unwrap()
    };
    let engines = [start(1), start(2)];
    load(&engines[0], &t);
    let rounds = number("BRAID_TRANSFERS", 60);
    let (done, deadlocks, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    for seed in seeds("BRAID_SEED", [5]) {
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|n| {
                    let (engine, t) = (&engines[n as usize % 2], &t);
                    let (deadlocks, refused) = (&deadlocks, &refused);
                    scope.spawn(move || {
                        let mut rng = Rng(seed * 100 + n);
                        let mut s = engine.session().unwrap();
                        for _ in 0..rounds {
                            s.begin(match n {
                                0 => Isolation::RepeatableRead,
                                _ => Isolation::ReadCommitted,
                            })
                            .unwrap();
                            let mut account = || rng.below(ACCOUNTS as u64) as i64;
                            let (a, b) = (account(), account());
                            let amount = rng.below(20) as i32;
                            let moved = add(&mut s, t, a, -amount, "x")
                                .and_then(|()| add(&mut s, t, b, amount, "y"));
                            match moved {
                                Ok(()) if rng.one_in(6) => s.rollback().unwrap(),
                                Ok(()) => s.commit().unwrap(),
                                Err(e) => {
                                    match e.sqlstate() {
                                        "40P01" => deadlocks.fetch_add(1, Ordering::Relaxed),
                                        "40001" if n == 0 => {
                                            refused.fetch_add(1, Ordering::Relaxed)
                                        }
                                        other => panic!("seed {seed}: {other}: {e}"),
                                    };
                                    s.rollback().unwrap();
                                }
                            }
                        }
                    })
                })
                .collect();
            for (n, level) in [
                (0, Isolation::ReadCommitted),
                (1, Isolation::ReadCommitted),
                (1, Isolation::RepeatableRead),
            ] {
                let (engine, t, done) = (&engines[n], &t, &done);
                scope.spawn(move || {
                    let mut s = engine.session().unwrap();
                    while !done.load(Ordering::SeqCst) {
                        s.begin(level).unwrap();
                        let mut first = None;
                        for _ in 0..3 {
                            let snap = s.snapshot().unwrap();
                            let rows = scan(&mut s, t, &snap).unwrap();
                            assert_eq!(rows.len() as i64, ACCOUNTS);
                            assert_eq!(sum(&rows), ACCOUNTS * i64::from(BALANCE), "by scan");
                            let by_grp = by_index(&mut s, t, 1, &snap, false).unwrap();
                            assert_same(&by_grp, &rows, "by grp");
                            let by_id = by_index(&mut s, t, 0, &snap, true).unwrap();
                            assert_same(&by_id, &rows, "by id");
                            s.end_statement();
                            if level == Isolation::RepeatableRead {
                                let first = first.get_or_insert_with(|| rows.clone());
                                assert_same(&rows, first, "the same snapshot");
                            }
                        }
                        s.commit().unwrap();
                    }
                });
            }
            let ends: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
            done.store(true, Ordering::SeqCst);
            ends.into_iter().for_each(|e| e.unwrap());
        });
    }
    eprintln!("{deadlocks:?} deadlocks, {refused:?} refused");
    for engine in &engines {
        let rows = contents(engine, &t).unwrap();
        assert_eq!(sum(&rows), ACCOUNTS * i64::from(BALANCE));
    }
    engines.iter().for_each(|e| e.stop(&Quiet).unwrap());
}

/// What a client was told on one instance is on the other at once, every time.
#[test]
fn what_was_committed_on_one_is_read_on_the_other() {
    let (storage, t) = create();
    let start = |k| {
        let config = Config {
            instance: k,
            join_others: true,
            ..big()
        };
        open_meeting(config, &storage.as_client(k.into())).unwrap()
    };
    let engines = [start(1), start(2)];
    load(&engines[0], &t);
    let mut sessions: Vec<Session> = engines.iter().map(|e| e.session().unwrap()).collect();
    for n in 0..100i32 {
        let (writer, reader) = (n as usize % 2, (n as usize + 1) % 2);
        let id = i64::from(n) % ACCOUNTS;
        let s = &mut sessions[writer];
        s.begin(Isolation::ReadCommitted).unwrap();
        add(s, &t, id, 1, "x").unwrap();
        s.insert(&t, &row(1000 + i64::from(n), n, "new")).unwrap();
        s.commit().unwrap();
        let s = &mut sessions[reader];
        s.begin(Isolation::ReadCommitted).unwrap();
        let snap = s.snapshot().unwrap();
        let (_, grp, _) = find(s, &t, &snap, id).unwrap().unwrap();
        assert_eq!(grp, BALANCE + 1 + n / ACCOUNTS as i32, "round {n}");
        let new = find(s, &t, &snap, 1000 + i64::from(n)).unwrap();
        assert_eq!(new.map(|r| r.1), Some(n), "round {n}");
        s.end_statement();
        s.commit().unwrap();
    }
    drop(sessions);
    engines.iter().for_each(|e| e.stop(&Quiet).unwrap());
}

/// Real-time order. If any client was shown something, every statement that begins later sees it,
/// on any instance, whether or not the writer had been answered. Without the gate on replies a
/// reader beside the writer would be ahead of readers elsewhere.
#[test]
fn nobody_sees_less_than_somebody_was_shown_before() {
    let (storage, t) = create();
    let start = |k| {
        let config = Config {
            instance: k,
            join_others: true,
            ..big()
        };
        open_meeting(config, &storage.as_client(k.into())).unwrap()
    };
    let engines = [start(1), start(2)];
    load(&engines[0], &t);
    let rounds = number("BRAID_TRANSFERS", 100) as i32;
    let done = AtomicBool::new(false);
    let shown = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let writers = [0, 1].map(|k| {
            let (engine, t) = (&engines[k], &t);
            scope.spawn(move || {
                let mut s = engine.session().unwrap();
                for _ in 0..rounds {
                    s.begin(Isolation::ReadCommitted).unwrap();
                    add(&mut s, t, k as i64, 1, "x").unwrap();
                    s.commit().unwrap();
                }
            })
        });
        for n in 0..4 {
            let (engine, t, done, shown) = (&engines[n % 2], &t, &done, &shown);
            scope.spawn(move || {
                let mut s = engine.session().unwrap();
                while !done.load(Ordering::SeqCst) {
                    let before = [0, 1].map(|k: usize| shown[k].load(Ordering::SeqCst));
                    s.begin(Isolation::ReadCommitted).unwrap();
                    let snap = s.snapshot().unwrap();
                    let seen = [0, 1].map(|k| find(&mut s, t, &snap, k).unwrap().unwrap().1 as u64);
                    s.end_statement();
                    s.commit().unwrap();
                    for k in 0..2 {
                        assert!(
                            seen[k] >= before[k],
                            "account {k}: {seen:?} on instance {} after {before:?} was shown",
                            n % 2 + 1
                        );
                        shown[k].fetch_max(seen[k], Ordering::SeqCst);
                    }
                }
            });
        }
        let ends = writers.map(|w| w.join());
        done.store(true, Ordering::SeqCst);
        ends.into_iter().for_each(|e| e.unwrap());
    });
    let last = shown.map(|s| s.into_inner() as i32);
    assert!(
        last.iter().any(|&v| v > BALANCE),
        "{last:?}: nothing was ever seen"
    );
    engines.iter().for_each(|e| e.stop(&Quiet).unwrap());
}
