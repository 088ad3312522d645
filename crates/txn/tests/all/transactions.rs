//! Transactions end to end on one instance: visibility, savepoints, waiting, undo reuse,
//! truncation, the bank.

use crate::common::*;
use block::*;
use seam::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use storage::Faults;
use testkit::waiting::until;
use txn::*;

const CAP: u32 = 4096;

fn bank(cap: u32) -> Instance {
    let i = Instance::open(&create(), cap).unwrap();
    i.load(100).unwrap();
    i
}

fn total() -> i64 {
    accounts().count() as i64 * 100
}

#[test]
fn snapshots_see_what_they_should() {
    let i = bank(CAP);
    let (mut writer, mut rc, mut rr) = (i.session(), i.session(), i.session());
    let row = account(3);
    rr.begin(Isolation::RepeatableRead);
    assert_eq!(i.fetch(&rr.statement(), row).unwrap(), 100);
    i.add(&mut writer, row, 5, LockWait::NoWait).unwrap();
    let own = writer.statement();
    i.add(&mut writer, row, 7, LockWait::NoWait).unwrap();
    assert_eq!(
        i.fetch(&own, row).unwrap(),
        105,
        "a statement does not see what it changes itself"
    );
    assert_eq!(i.fetch(&writer.statement(), row).unwrap(), 112);
    let before = rc.statement();
    assert_eq!(i.fetch(&before, row).unwrap(), 100);
    let e = writer.commit().unwrap();
    assert!(e > before.scn);
    assert_eq!(
        i.fetch(&before, row).unwrap(),
        100,
        "a snapshot does not change its mind"
    );
    assert_eq!(i.fetch(&rc.statement(), row).unwrap(), 112);
    rc.end_statement();
    rr.end_statement();
    assert_eq!(
        i.fetch(&rr.statement(), row).unwrap(),
        100,
        "REPEATABLE READ keeps its snapshot"
    );
    assert!(i.manager.horizon() < e);
    assert_eq!(rr.commit().unwrap(), Scn::ZERO);
    drop(rr);
    assert!(i.manager.horizon() >= e);
    i.stop();
}

#[test]
fn savepoints_undo_what_came_after_and_give_back_their_locks() {
    let i = bank(CAP);
    let (mut t, mut other) = (i.session(), i.session());
    i.add(&mut t, account(1), 1, LockWait::NoWait).unwrap();
    let savepoint = t.savepoint();
    t.lock_table(ObjectId(9), LockMode::X, LockWait::NoWait)
        .unwrap();
    for n in 0..400 {
        i.add(&mut t, account(n), 10, LockWait::NoWait).unwrap();
    }
    t.rollback_to(&savepoint, &i).unwrap();
    other
        .lock_table(ObjectId(9), LockMode::X, LockWait::NoWait)
        .unwrap();
    assert_eq!(i.fetch(&t.statement(), account(1)).unwrap(), 101);
    i.add(&mut t, account(1), 1, LockWait::NoWait).unwrap();
    t.rollback_to(&savepoint, &i).unwrap();
    t.commit().unwrap();
    assert_eq!(i.total(&other.statement()).unwrap(), total() + 1);
    i.add(&mut t, account(1), 50, LockWait::NoWait).unwrap();
    i.rollback(&mut t).unwrap();
    assert_eq!(i.total(&other.statement()).unwrap(), total() + 1);
    drop((t, other));
    assert!(i.manager.locks().is_empty() && i.manager.transactions().is_empty());
    i.stop();
}

/// The waiter wants the row, not the end of the transaction that had changed it.
#[test]
fn a_rollback_to_a_savepoint_lets_the_waiters_of_its_rows_go() {
    let i = bank(CAP);
    let mut holder = i.session();
    i.add(&mut holder, account(1), 1, LockWait::NoWait).unwrap();
    let savepoint = holder.savepoint();
    i.add(&mut holder, account(2), 1, LockWait::NoWait).unwrap();
    let waits = |n: usize| {
        let locks = i.manager.locks();
        locks
            .iter()
            .filter(|l| l.requested != LockMode::Null)
            .count()
            == n
    };
    thread::scope(|s| {
        let mut threads = Vec::new();
        for n in 1..3 {
            let i = &i;
            threads.push(s.spawn(move || {
                let mut t = i.session();
                i.add(&mut t, account(2), 10, LockWait::Forever).unwrap();
                t.commit().unwrap();
            }));
            until("a wait", || waits(n));
        }
        let stays = s.spawn(|| {
            let mut t = i.session();
            i.add(&mut t, account(1), 10, LockWait::Forever).unwrap();
            t.commit().unwrap();
        });
        until("a third wait", || waits(3));
        holder.rollback_to(&savepoint, &i).unwrap();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(i.fetch(&i.session().statement(), account(2)).unwrap(), 120);
        until("a wait for what is still held", || waits(1));
        assert!(!stays.is_finished());
        holder.commit().unwrap();
        stays.join().unwrap();
    });
    assert_eq!(i.fetch(&i.session().statement(), account(1)).unwrap(), 111);
    assert!(i.manager.locks().is_empty());
    i.stop();
}

/// Between a session's look at a row and its wait, the change that it saw is undone.
#[test]
fn a_rollback_to_a_savepoint_before_the_wait_is_noticed() {
    let i = bank(CAP);
    let (mut holder, mut waiter) = (i.session(), i.session());
    i.add(&mut holder, account(1), 1, LockWait::NoWait).unwrap();
    for _ in 0..2 {
        let savepoint = holder.savepoint();
        i.add(&mut holder, account(2), 1, LockWait::NoWait).unwrap();
        holder.rollback_to(&savepoint, &i).unwrap();
        let id = holder.id();
        waiter
            .wait_for_row(id, account(2), LockWait::Forever)
            .unwrap();
        let soon = Instant::now() + Duration::from_millis(5);
        let again = waiter.wait_for_row(id, account(2), LockWait::Until(soon));
        assert!(matches!(again, Err(Error::LockTimeout)), "{again:?}");
    }
    i.rollback(&mut holder).unwrap();
    drop((holder, waiter));
    assert!(i.manager.locks().is_empty());
    i.stop();
}

#[test]
fn a_row_is_waited_for_in_order_and_a_dropped_session_is_rolled_back() {
    let i = bank(CAP);
    let mut holder = i.session();
    i.add(&mut holder, account(0), 1, LockWait::NoWait).unwrap();
    let mut impatient = i.session();
    assert!(matches!(
        i.add(&mut impatient, account(0), 1, LockWait::NoWait),
        Err(Error::LockNotAvailable(_))
    ));
    drop(impatient);
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|s| {
        for n in 0..3 {
            let (i, order) = (&i, &order);
            s.spawn(move || {
                let mut t = i.session();
                i.add(&mut t, account(0), 10, LockWait::Forever).unwrap();
                order.lock().unwrap().push(n);
                t.commit().unwrap();
            });
            while i
                .manager
                .locks()
                .iter()
                .filter(|l| l.requested != LockMode::Null)
                .count()
                <= n
            {
                thread::yield_now();
            }
        }
        drop(holder);
        assert_eq!(i.manager.rollback_dead(&i).unwrap(), 1);
    });
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    assert_eq!(i.fetch(&i.session().statement(), account(0)).unwrap(), 130);
    assert!(i.manager.locks().is_empty());
    i.stop();
}

#[test]
fn rows_locked_crosswise_have_one_victim_within_a_second() {
    let i = bank(CAP);
    let barrier = std::sync::Barrier::new(3);
    let started = Instant::now();
    let victims: usize = thread::scope(|s| {
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let (i, barrier) = (&i, &barrier);
                s.spawn(move || {
                    let mut t = i.session();
                    i.add(&mut t, account(n), 1, LockWait::Forever).unwrap();
                    barrier.wait();
                    let got = i.add(&mut t, account((n + 1) % 3), -1, LockWait::Forever);
                    match got {
                        Ok(()) => t.commit().map(|_| 0).unwrap(),
                        Err(Error::Deadlock(_)) => i.rollback(&mut t).map(|()| 1).unwrap(),
                        Err(e) => panic!("{e}"),
                    }
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(victims, 1);
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(i.total(&i.session().statement()).unwrap(), total());
    i.stop();
}

/// Transfers, rollbacks, deadlocks, checkpoints and truncation go on at once. Every snapshot sees
/// the same total.
#[test]
fn money_is_conserved_to_every_snapshot() {
    let i = bank(256);
    let stop = AtomicBool::new(false);
    let (transfers, sums, too_old) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|s| {
        for seed in 1..=3 {
            let (i, stop, transfers) = (&i, &stop, &transfers);
            s.spawn(move || {
                let mut rng = Rng(seed * 7919);
                let mut t = i.session();
                while !stop.load(Ordering::Relaxed) {
                    transfer(i, &mut t, &mut rng);
                    transfers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let (i, stop, sums, too_old) = (&i, &stop, &sums, &too_old);
            s.spawn(move || {
                let mut t = i.session();
                while !stop.load(Ordering::Relaxed) {
                    t.begin(isolation);
                    for _ in 0..5 {
                        let snapshot = t.statement();
                        match i.total(&snapshot) {
                            Ok(sum) => assert_eq!(sum, total(), "{snapshot:?}"),
                            Err(Error::SnapshotTooOld(_)) => {
                                too_old.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(e) => panic!("{e}"),
                        }
                        sums.fetch_add(1, Ordering::Relaxed);
                        t.end_statement();
                    }
                    t.commit().unwrap();
                }
            });
        }
        for _ in 0..30 {
            thread::sleep(Duration::from_millis(40));
            i.manager.maintain().unwrap();
            i.cache.checkpoint().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let n = |a: &AtomicU64| a.load(Ordering::Relaxed);
    assert!(
        n(&transfers) > 100 && n(&sums) > 100,
        "{} transfers, {} sums",
        n(&transfers),
        n(&sums)
    );
    assert!(
        n(&too_old) * 2 < n(&sums),
        "{} of {} snapshots too old",
        n(&too_old),
        n(&sums)
    );
    assert_eq!(i.total(&i.session().statement()).unwrap(), total());
    assert!(i.manager.statistics().undo.file_blocks <= 257);
    assert!(i.manager.locks().is_empty());
    i.stop();
}

fn transfer(i: &Instance, t: &mut Transaction, rng: &mut Rng) {
    let amount = rng.below(10) as i64;
    let (a, b) = (account(rng.next()), account(rng.next()));
    let result = i
        .add(t, a, -amount, LockWait::Forever)
        .and_then(|()| i.add(t, b, amount, LockWait::Forever));
    match result {
        Ok(()) if rng.below(5) > 0 => drop(t.commit().unwrap()),
        Ok(()) | Err(Error::Deadlock(_)) => i.rollback(t).unwrap(),
        Err(e) => panic!("{e}"),
    }
}

/// The file keeps its size, however much undo is written, as long as nobody needs that undo.
#[test]
fn undo_is_used_again_and_bounded_by_its_cap() {
    let i = bank(512);
    let mut t = i.session();
    let mut churn = |rounds: usize| {
        for n in 0..rounds {
            for k in 0..40 {
                i.add(
                    &mut t,
                    account(k),
                    if n % 2 == 0 { 1 } else { -1 },
                    LockWait::NoWait,
                )
                .unwrap();
            }
            t.commit().unwrap();
        }
    };
    churn(600);
    let free_running = i.manager.statistics().undo.file_blocks;
    assert!(
        free_running <= 129,
        "{free_running} blocks for undo that nobody needs"
    );
    // An old snapshot keeps its undo until the cap. Then the snapshot fails, and work goes on.
    let mut old = i.session();
    old.begin(Isolation::RepeatableRead);
    let snapshot = old.statement();
    let expected = i.fetch(&snapshot, account(0)).unwrap();
    churn(200);
    assert_eq!(i.fetch(&snapshot, account(0)).unwrap(), expected);
    churn(2200);
    assert!(matches!(
        i.fetch(&snapshot, account(0)),
        Err(Error::SnapshotTooOld(_))
    ));
    assert!(i.manager.statistics().undo.file_blocks <= 513);
    i.stop();
}

/// A full disk is a cap. A writer takes undo that an old snapshot needs, which is counted, and is
/// not refused. With room again the file grows instead.
#[test]
fn on_a_full_disk_undo_is_taken_from_old_snapshots() {
    let i = bank(CAP);
    let _counted = wait::session::register(wait::session::Kind::User, "test");
    let stolen = || wait::stat::get(wait::Stat::UndoStolen);
    let mut t = i.session();
    let mut churn = |rounds: u64| {
        for n in 0..rounds * 40 {
            let by = if n % 80 < 40 { 1 } else { -1 };
            i.add(&mut t, account(n % 40), by, LockWait::NoWait)
                .unwrap();
            if n % 40 == 39 {
                t.commit().unwrap();
            }
        }
    };
    churn(100);
    let mut old = i.session();
    old.begin(Isolation::RepeatableRead);
    let snapshot = old.statement();
    let expected = i.fetch(&snapshot, account(0)).unwrap();
    let blocks = || i.manager.statistics().undo.file_blocks;
    let before = blocks();
    i.storage.set_faults(Faults {
        capacity: Some(i.storage.used()),
        ..Faults::default()
    });
    let mut too_old = false;
    while !too_old {
        churn(1);
        too_old = match i.fetch(&snapshot, account(0)) {
            Ok(balance) => {
                assert_eq!(balance, expected);
                false
            }
            Err(Error::SnapshotTooOld(_)) => true,
            Err(e) => panic!("{e}"),
        };
        assert!(!too_old || stolen() > 0, "taken, and not counted");
    }
    assert_eq!(blocks(), before);
    i.storage.set_faults(Faults::default());
    let on_a_full_disk = stolen();
    churn(600);
    assert_eq!(stolen(), on_a_full_disk);
    assert!(blocks() > before);
    i.stop();
}

/// What active transactions hold is never taken, even at the cap. The statement fails, and its
/// rollback works.
#[test]
fn a_transaction_that_fills_undo_fails_and_rolls_back() {
    let i = bank(256);
    let mut t = i.session();
    let failed = (0..100_000).find_map(|n| i.add(&mut t, account(n), 1, LockWait::NoWait).err());
    assert!(
        matches!(failed, Some(Error::UndoFull { cap_blocks: 256 })),
        "{failed:?}"
    );
    i.rollback(&mut t).unwrap();
    assert_eq!(i.total(&t.statement()).unwrap(), total());
    t.end_statement();
    i.add(&mut t, account(0), 1, LockWait::NoWait).unwrap();
    t.commit().unwrap();
    i.stop();
}

/// Race 23 of docs/design.md. A transaction takes eight bytes while a snapshot holds the horizon,
/// and nothing once the snapshot is gone.
#[test]
fn the_status_array_is_truncated_below_the_horizon() {
    let i = bank(CAP);
    let (mut t, mut idle) = (i.session(), i.session());
    let mut run = |n| {
        for _ in 0..n {
            i.add(&mut t, account(0), 1, LockWait::NoWait).unwrap();
            t.commit().unwrap();
        }
    };
    idle.begin(Isolation::RepeatableRead);
    let snapshot = idle.statement();
    let first = i.fetch(&snapshot, account(0)).unwrap();
    run(5000);
    i.manager.maintain().unwrap();
    let bytes = i.manager.statistics().status_bytes;
    assert!((5000 * 8..5000 * 8 + 34 * 8192).contains(&bytes), "{bytes}");
    assert_eq!(i.fetch(&snapshot, account(0)).unwrap(), first);
    idle.commit().unwrap();
    i.manager.maintain().unwrap();
    run(1);
    i.manager.maintain().unwrap();
    assert!(i.control.get().threads[0].txn_truncated >= 4 * 1020);
    assert_eq!(
        i.fetch(&idle.statement(), account(0)).unwrap(),
        first + 5001
    );
    i.stop();
}

#[test]
fn purge_hints_come_back_once_nobody_needs_the_rows() {
    let i = bank(CAP);
    let (mut t, mut reader) = (i.session(), i.session());
    reader.begin(Isolation::RepeatableRead);
    reader.statement();
    i.add(&mut t, account(0), 1, LockWait::NoWait).unwrap();
    t.hint_purge(ObjectId(5), Dba::new(FileId::DATA, 9));
    t.hint_purge(ObjectId(5), Dba::new(FileId::DATA, 9));
    let e = t.commit().unwrap();
    assert!(i.manager.take_purgeable(i.manager.horizon(), 10).is_empty());
    let snapshot = reader.statement();
    let held = reader.hold(snapshot).unwrap();
    reader.commit().unwrap();
    assert!(
        i.manager.take_purgeable(i.manager.horizon(), 10).is_empty(),
        "a cursor still needs them"
    );
    held.release();
    let hint = PurgeHint {
        scn: e,
        object: ObjectId(5),
        dba: Dba::new(FileId::DATA, 9),
    };
    assert_eq!(i.manager.take_purgeable(i.manager.horizon(), 10), [hint]);
    i.stop();
}
