//! Several sessions at once: snapshots are consistent, and conflicts are settled.

use crate::common::*;
use block::value::Datum;
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

#[test]
fn transfers_with_conflicts_keep_every_sum() {
    let (storage, t) = create();
    let engine = open_with(big(), &storage).unwrap();
    load(&engine, &t);
    let rounds = number("BRAID_TRANSFERS", 400);
    let (done, deadlocks, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    for seed in seeds("BRAID_SEED", [5]) {
        done.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|n| {
                    let (engine, t, deadlocks, refused) = (&engine, &t, &deadlocks, &refused);
                    scope.spawn(move || {
                        let mut rng = Rng(seed * 100 + n);
                        let mut s = engine.session().unwrap();
                        for _ in 0..rounds {
                            let level = if n == 0 {
                                Isolation::RepeatableRead
                            } else {
                                Isolation::ReadCommitted
                            };
                            s.begin(level).unwrap();
                            let (a, b) = (
                                rng.below(ACCOUNTS as u64) as i64,
                                rng.below(ACCOUNTS as u64) as i64,
                            );
                            let amount = rng.below(20) as i32;
                            let text = pad(&mut rng);
                            let moved = add(&mut s, t, a, -amount, &text)
                                .and_then(|()| add(&mut s, t, b, amount, &text));
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
            for level in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
                let (engine, t, done) = (&engine, &t, &done);
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
                            assert_same(
                                &by_index(&mut s, t, 1, &snap, false).unwrap(),
                                &rows,
                                "by grp",
                            );
                            assert_same(
                                &by_index(&mut s, t, 0, &snap, true).unwrap(),
                                &rows,
                                "by id",
                            );
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
    verify_all(&engine, &t, "after transfers").unwrap();
    engine.stop(&Quiet).unwrap();
}

/// A start removes objects without an owner. It does not if another instance has been up meanwhile:
/// that instance may have created the object, and the dictionary that was read before did not know
/// of it.
#[test]
fn what_another_instance_may_have_created_is_no_orphan() {
    let (storage, t) = create();
    let known = Default::default();
    for others_were_up in [true, false] {
        let engine = open_with(big(), &storage).unwrap();
        if others_were_up {
            let members = engine.space().members();
            members.set_others([block::InstanceId(2)]);
            members.set_others([]);
        }
        let gone = engine.drop_orphans(&known).unwrap();
        assert_eq!(gone, if others_were_up { 0 } else { 3 });
        assert_eq!(engine.segment_blocks(t.object).unwrap() > 0, others_were_up);
        engine.stop(&Quiet).unwrap();
    }
}

/// A session is about to change a row that has been changed since its snapshot. It takes a newer
/// snapshot rather than the older version, unless the snapshot is the transaction's. A change that
/// is not committed is no reason to: it may be rolled back.
#[test]
fn a_row_to_be_changed_is_newer_than_the_snapshot() {
    let (s, table) = create();
    let engine = open(&s).unwrap();
    let mut writer = engine.session().unwrap();
    writer.begin(Isolation::ReadCommitted).unwrap();
    let rid = writer.insert(&table, &row(1, 10, "a")).unwrap();
    writer.commit().unwrap();

    let mut sessions = [Isolation::ReadCommitted, Isolation::RepeatableRead].map(|isolation| {
        let mut session = engine.session().unwrap();
        session.begin(isolation).unwrap();
        let snapshot = session.snapshot().unwrap();
        (session, snapshot)
    });
    let mut look = |which: usize, may_renew| {
        let (session, snapshot) = &mut sessions[which];
        let mut body = Vec::new();
        let key = [Datum::Int8(1)];
        let sight = session.get_unique_to_change(&table, 0, &key, snapshot, may_renew, &mut body);
        match sight.unwrap() {
            Sight::Row(found) => {
                assert_eq!(found, rid);
                Some(decode(&table, &body).1)
            }
            Sight::Nothing => panic!("the row is there for every snapshot"),
            Sight::Newer => None,
        }
    };
    writer.begin(Isolation::ReadCommitted).unwrap();
    writer.update(&table, rid, &row(1, 11, "a"), None).unwrap();
    assert_eq!([look(0, true), look(1, true)], [Some(10), Some(10)]);
    writer.commit().unwrap();
    assert_eq!([look(0, true), look(1, true)], [None, Some(10)]);
    assert_eq!(look(0, false), Some(10));

    let (session, snapshot) = &mut sessions[0];
    *snapshot = session.snapshot().unwrap();
    let (mut body, key) = (Vec::new(), [Datum::Int8(1)]);
    let sight = session.get_unique_to_change(&table, 0, &key, snapshot, true, &mut body);
    assert!(matches!(sight, Ok(Sight::Row(found)) if found == rid));
    assert_eq!(decode(&table, &body).1, 11);
    for (session, _) in &mut sessions {
        session.rollback().unwrap();
    }
}
