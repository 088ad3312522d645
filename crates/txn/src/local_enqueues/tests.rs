//! Enqueues under threads: order, cancellation, deadlines, deadlocks, and the fast path against
//! strong lockers.

use super::*;
use crate::Place;
use block::{InstanceId, RowId, Scn};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::thread;

const NAME: Resource = Resource::Name(NameClass::Advisory, 1, 0);

fn name(n: u64) -> Resource {
    Resource::Name(NameClass::Advisory, n, 0)
}

/// Runs until `n` requests stand in queues.
fn await_queued(e: &Enqueues, n: usize) {
    while e
        .rows()
        .iter()
        .filter(|r| r.requested != LockMode::Null)
        .count()
        < n
    {
        thread::yield_now();
    }
}

#[test]
fn waiters_are_served_in_order() {
    let e = Enqueues::new(InstanceId(1));
    let first = e.register();
    e.lock(
        &first,
        NAME,
        LockMode::X,
        Level::Transaction,
        LockWait::NoWait,
    )
    .unwrap();
    let (send, receive) = mpsc::channel();
    thread::scope(|s| {
        for n in 0..5 {
            let (e, send) = (&e, send.clone());
            s.spawn(move || {
                let me = e.register();
                e.lock(
                    &me,
                    NAME,
                    LockMode::X,
                    Level::Transaction,
                    LockWait::Forever,
                )
                .unwrap();
                send.send(n).unwrap();
                assert!(e.unlock(&me, NAME, LockMode::X, Level::Transaction));
            });
            await_queued(e, n + 1);
        }
        e.unlock(&first, NAME, LockMode::X, Level::Transaction);
    });
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(e.rows().is_empty());
}

#[test]
fn no_wait_and_deadlines() {
    let e = Enqueues::new(InstanceId(1));
    let (a, b) = (e.register(), e.register());
    e.lock(&a, NAME, LockMode::S, Level::Session, LockWait::NoWait)
        .unwrap();
    e.lock(&b, NAME, LockMode::S, Level::Transaction, LockWait::NoWait)
        .unwrap();
    let refused = e.lock(&b, NAME, LockMode::X, Level::Transaction, LockWait::NoWait);
    assert!(matches!(refused, Err(Error::LockNotAvailable(_))));
    let soon = LockWait::Until(Instant::now() + Duration::from_millis(30));
    assert!(matches!(
        e.lock(&b, NAME, LockMode::X, Level::Transaction, soon),
        Err(Error::LockTimeout)
    ));
    assert!(e.unlock(&a, NAME, LockMode::S, Level::Session));
    assert!(!e.unlock(&a, NAME, LockMode::S, Level::Session));
    e.lock(&b, NAME, LockMode::X, Level::Transaction, LockWait::NoWait)
        .unwrap();
}

#[test]
fn a_cancelled_waiter_leaves_the_queue() {
    let e = Enqueues::new(InstanceId(1));
    let a = e.register();
    e.lock(&a, NAME, LockMode::X, Level::Transaction, LockWait::NoWait)
        .unwrap();
    let (send, receive) = mpsc::channel();
    thread::scope(|s| {
        let waiter = s.spawn(|| {
            let session = wait::session::register(wait::session::Kind::User, "cancel me");
            send.send(session.session().sid).unwrap();
            let me = e.register();
            e.lock(
                &me,
                NAME,
                LockMode::X,
                Level::Transaction,
                LockWait::Forever,
            )
        });
        let sid = receive.recv().unwrap();
        await_queued(&e, 1);
        assert!(wait::session::cancel(sid));
        assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled(_))));
    });
    assert_eq!(e.rows().len(), 1);
}

/// Every session holds its own lock and asks for the next session's. One is soon the victim, and
/// the others get through.
fn ring(n: u64) {
    let e = Enqueues::new(InstanceId(1));
    let barrier = std::sync::Barrier::new(n as usize);
    let started = Instant::now();
    let outcomes: Vec<Result<()>> = thread::scope(|s| {
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let (e, barrier) = (&e, &barrier);
                s.spawn(move || {
                    let me = e.register();
                    e.lock(
                        &me,
                        name(i),
                        LockMode::X,
                        Level::Transaction,
                        LockWait::NoWait,
                    )
                    .unwrap();
                    barrier.wait();
                    let got = e.lock(
                        &me,
                        name((i + 1) % n),
                        LockMode::X,
                        Level::Transaction,
                        LockWait::Forever,
                    );
                    if got.is_ok() {
                        e.unlock(&me, name((i + 1) % n), LockMode::X, Level::Transaction);
                    }
                    e.unlock(&me, name(i), LockMode::X, Level::Transaction);
                    got
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "took {:?}",
        started.elapsed()
    );
    let victims: Vec<_> = outcomes
        .iter()
        .filter(|o| matches!(o, Err(Error::Deadlock(_))))
        .collect();
    assert_eq!(victims.len(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|o| o.is_ok()).count() as u64, n - 1);
}

#[test]
fn circles_of_two_three_and_five_have_one_victim_within_a_second() {
    ring(2);
    ring(3);
    ring(5);
}

/// Two rows, locked in opposite orders; the wait is for the holder's transaction, from the head of
/// the row's queue.
#[test]
fn rows_in_opposite_orders_have_one_victim() {
    let e = Enqueues::new(InstanceId(1));
    let barrier = std::sync::Barrier::new(2);
    let ended = [AtomicBool::new(false), AtomicBool::new(false)];
    let lockers = [e.register(), e.register()];
    let victims: usize = thread::scope(|s| {
        let threads: Vec<_> = (0..2)
            .map(|i| {
                let (e, barrier, ended, lockers) = (&e, &barrier, &ended, &lockers);
                s.spawn(move || {
                    let (me, other) = (&lockers[i], 1 - i);
                    let txn = |i: usize| TxnId::new(InstanceId(1), 10 + i as u64);
                    let place = Place::Row(RowId(100 + other as u64));
                    let want = Want {
                        place,
                        looked: Scn::ZERO,
                        since: Instant::now(),
                    };
                    barrier.wait();
                    e.lock(
                        me,
                        Resource::Place(place),
                        LockMode::X,
                        Level::Transaction,
                        LockWait::Forever,
                    )
                    .unwrap();
                    let active = || !ended[other].load(Ordering::SeqCst);
                    let got = e.wait_for_txn(
                        me,
                        (txn(other), want),
                        Runs::Here(Some(lockers[other].id)),
                        active,
                        || (),
                        LockWait::Forever,
                    );
                    ended[i].store(true, Ordering::SeqCst);
                    e.let_go(txn(i), None);
                    e.unlock(me, Resource::Place(place), LockMode::X, Level::Transaction);
                    usize::from(matches!(got, Err(Error::Deadlock(_))))
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(victims, 1);
    assert!(e.rows().is_empty());
}

/// Sessions that take a table by the fast path are never inside together with one that has closed
/// it and waited for those that it found.
#[test]
fn the_fast_path_never_meets_one_who_has_closed_it() {
    let e = Enqueues::new(InstanceId(1));
    let object = ObjectId(5);
    let (weak, strong) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        for mode in [LockMode::SS, LockMode::SX, LockMode::AS] {
            let (e, weak, strong, done) = (&e, &weak, &strong, &done);
            s.spawn(move || {
                let me = e.register();
                while !done.load(Ordering::SeqCst) {
                    if !e.try_fast(&me, object, mode) {
                        thread::yield_now();
                        continue;
                    }
                    weak.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(strong.load(Ordering::SeqCst), 0);
                    weak.fetch_sub(1, Ordering::SeqCst);
                    e.unlock_table(&me, object, mode);
                }
            });
        }
        let mut found = 0;
        for round in 0.. {
            found += e.close_table(object).len();
            while !e.rows().is_empty() {
                thread::yield_now();
            }
            strong.fetch_add(1, Ordering::SeqCst);
            assert_eq!(weak.load(Ordering::SeqCst), 0);
            strong.fetch_sub(1, Ordering::SeqCst);
            e.open_table(object);
            if round >= 300 && found > 0 {
                break;
            }
            thread::yield_now();
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(e.rows().is_empty());
}

#[test]
fn a_fast_lock_is_seen_in_v_lock_and_named_when_the_table_is_closed() {
    let e = Enqueues::new(InstanceId(1));
    let (a, b) = (e.register(), e.register());
    let table = ObjectId(3);
    assert!(e.try_fast(&a, table, LockMode::SX));
    assert_eq!(e.rows().len(), 1);
    assert_eq!(e.close_table(table), [(a.id, LockMode::SX)]);
    assert!(!e.try_fast(&b, table, LockMode::SS));
    assert_eq!(e.held(&a, Resource::Table(table)), LockMode::SX);
    assert!(e.unlock_table(&a, table, LockMode::SX));
    e.open_table(table);
    assert!(e.try_fast(&b, table, LockMode::SS));
    assert!(!e.unlock_table(&b, table, LockMode::SS));
    assert!(e.rows().is_empty());
}
