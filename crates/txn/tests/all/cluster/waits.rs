//! Waits for transactions among instances, and the circles that they close.

use super::*;

const TXN_WAIT: u16 = 106;
const TXN_ENDED: u16 = 107;
const WALK: u16 = 109;
const CHECK: u16 = 110;
const TXN_UNDONE: u16 = 116;

#[test]
fn a_transaction_of_another_instance_is_waited_for() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        for commits in [true, false] {
            let mut holder = db.node(1).session();
            db.node(1)
                .add(&mut holder, of(1, 0), 1, LockWait::NoWait)
                .unwrap();
            let id = holder.id();
            let mut waiter = db.node(2).session();
            assert!(matches!(
                waiter.wait_for_row(id, of(1, 0), LockWait::NoWait),
                Err(Error::LockNotAvailable(_))
            ));
            let soon = Instant::now() + Duration::from_millis(30);
            assert!(matches!(
                waiter.wait_for_row(id, of(1, 0), LockWait::Until(soon)),
                Err(Error::LockTimeout)
            ));
            let (waits, cancel) = (db.net.sent(TXN_WAIT), std::sync::mpsc::channel());
            thread::scope(|s| {
                let (sent, db) = (cancel.0, &db);
                s.spawn(move || {
                    let guard = wait::session::register(wait::session::Kind::User, "waiter");
                    sent.send(guard.session().sid).unwrap();
                    let mut impatient = db.node(2).session();
                    assert!(matches!(
                        impatient.wait_for_row(id, of(1, 0), LockWait::Forever),
                        Err(Error::Cancelled(_))
                    ));
                });
                let sid = cancel.1.recv().unwrap();
                until("a wait", || db.net.sent(TXN_WAIT) > waits);
                assert!(wait::session::cancel(sid));
            });
            let waits = db.net.sent(TXN_WAIT);
            db.net.hold(TXN_ENDED);
            let over = AtomicBool::new(false);
            thread::scope(|s| {
                s.spawn(|| {
                    waiter
                        .wait_for_row(id, of(1, 0), LockWait::Forever)
                        .unwrap();
                    over.store(true, Ordering::SeqCst);
                });
                until("a wait", || db.net.sent(TXN_WAIT) > waits);
                db.settle();
                match commits {
                    true => drop(holder.commit().unwrap()),
                    false => db.node(1).rollback(&mut holder).unwrap(),
                }
                assert!(!over.load(Ordering::SeqCst), "it was not told yet");
                // The connection has lost what was said. The timer asks again.
                db.net.cut(1, 2);
                db.net.heal();
                db.manager(2).tick();
            });
            assert_ne!(db.manager(2).state(id), TxnState::Active);
            assert!(
                db.manager(2)
                    .locks()
                    .iter()
                    .all(|l| l.requested == LockMode::Null)
            );
            waiter.wait_for_row(id, of(1, 0), LockWait::NoWait).unwrap();
        }
    });
    db.stop();
}

/// A waiter on another instance looks again when the transaction undoes changes and goes on:
/// whether that comes while it waits, or before its wait is heard of, or what was said of it is
/// lost.
#[test]
fn a_rollback_to_a_savepoint_is_told_to_other_instances() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let mut holder = db.node(1).session();
        db.node(1)
            .add(&mut holder, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        let id = holder.id();
        let mut waiter = db.node(2).session();
        for (held, lost) in [(Some(TXN_WAIT), false), (None, false), (None, true)] {
            let savepoint = holder.savepoint();
            db.node(1)
                .add(&mut holder, of(1, 1), 1, LockWait::NoWait)
                .unwrap();
            let waits = db.net.sent(TXN_WAIT);
            if let Some(kind) = held {
                db.net.hold(kind);
            }
            if lost {
                db.net.hold(TXN_UNDONE);
            }
            thread::scope(|s| {
                let waits_for_it = s.spawn(|| {
                    waiter
                        .wait_for_row(id, of(1, 1), LockWait::Forever)
                        .unwrap();
                });
                until("a wait", || db.net.sent(TXN_WAIT) > waits);
                if held.is_none() {
                    db.settle();
                }
                let said = db.net.sent(TXN_UNDONE);
                holder.rollback_to(&savepoint, db.node(1)).unwrap();
                assert!(held.is_none() || db.net.sent(TXN_UNDONE) == said);
                if lost {
                    until("word of it", || db.net.sent(TXN_UNDONE) > said);
                    assert!(!waits_for_it.is_finished(), "it was not told yet");
                    db.net.cut(1, 2);
                    db.net.heal();
                    db.manager(2).tick();
                } else {
                    db.net.heal_kinds();
                }
                waits_for_it.join().unwrap();
            });
            assert_eq!(db.manager(1).state(id), TxnState::Active);
            // It has looked since; nothing more was undone.
            let soon = Instant::now() + Duration::from_millis(30);
            let again = waiter.wait_for_row(id, of(1, 0), LockWait::Until(soon));
            assert!(matches!(again, Err(Error::LockTimeout)), "{again:?}");
        }
        drop(waiter);
        db.node(1).rollback(&mut holder).unwrap();
    });
    db.stop();
}

/// Makes a session for each step, which holds a row of its own and waits for the row of the next.
/// Returns how each wait ended.
fn circle(db: &Db, steps: &[usize]) -> Vec<std::result::Result<(), Error>> {
    let mut sessions: Vec<Transaction> = Vec::new();
    for (n, &k) in steps.iter().enumerate() {
        let mut t = db.node(k).session();
        let row = of(k, n as u16);
        db.node(k).add(&mut t, row, 1, LockWait::NoWait).unwrap();
        sessions.push(t);
    }
    let ids: Vec<TxnId> = sessions.iter().map(Transaction::id).collect();
    thread::scope(|s| {
        let waits: Vec<_> = sessions
            .into_iter()
            .enumerate()
            .map(|(n, mut t)| {
                let next = (n + 1) % steps.len();
                let (row, holder, node) =
                    (of(steps[next], next as u16), ids[next], db.node(steps[n]));
                s.spawn(move || {
                    let waited = t.wait_for_row(holder, row, LockWait::Forever);
                    node.rollback(&mut t).unwrap();
                    waited
                })
            })
            .collect();
        waits.into_iter().map(|w| w.join().unwrap()).collect()
    })
}

/// Race 26 of docs/design.md. A deadlock is found within a second and has one victim, whether the
/// circle takes two instances or three, and whether it goes through one of them twice.
#[test]
fn a_circle_over_instances_has_one_victim_within_a_second() {
    let db = Db::new(3);
    db.net.run(seed(), || {
        for steps in [
            &[1, 2][..],
            &[1, 2, 3],
            &[1, 1, 2],
            &[1, 2, 1, 3],
            &[3, 2, 1, 2, 1],
        ] {
            let began = Instant::now();
            let ended = circle(&db, steps);
            let took = began.elapsed();
            let victims = ended
                .iter()
                .filter(|e| matches!(e, Err(Error::Deadlock(_))));
            assert_eq!(victims.count(), 1, "{steps:?}: {ended:?}");
            assert!(
                ended.iter().filter(|e| e.is_err()).count() == 1,
                "{ended:?}"
            );
            // The limit is two seconds, because others use the machine's cores, too.
            assert!(took < Duration::from_secs(2), "{steps:?} took {took:?}");
        }
    });
    db.stop();
}

/// Both sessions of a circle have found it and are about to make sure. They must choose the same
/// victim.
#[test]
fn all_who_walk_a_circle_choose_the_same_victim() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        for _ in 0..3 {
            let checks = db.net.sent(CHECK);
            db.net.hold(CHECK);
            let ended = thread::scope(|s| {
                let waits = s.spawn(|| circle(&db, &[1, 2]));
                until("two checks", || db.net.sent(CHECK) >= checks + 2);
                db.net.heal();
                waits.join().unwrap()
            });
            let victims = ended
                .iter()
                .filter(|e| matches!(e, Err(Error::Deadlock(_))));
            assert_eq!(victims.count(), 1, "{ended:?}");
        }
    });
    db.stop();
}

/// A session in the middle of the circle stands behind a lock of its own instance. A chain that is
/// no circle has no victim, however often it is looked at.
#[test]
fn walks_follow_local_locks_and_chains_have_no_victim() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let mut a = db.node(1).session();
        let mut b = db.node(1).session();
        let mut c = db.node(2).session();
        let lock = |t: &mut Transaction, wait| {
            t.advisory_lock(7, 0, false, Level::Transaction, wait)
                .map(drop)
        };
        db.node(1)
            .add(&mut b, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        db.node(2)
            .add(&mut c, of(2, 0), 1, LockWait::NoWait)
            .unwrap();
        lock(&mut a, LockWait::NoWait).unwrap();
        let (b_id, c_id, db) = (b.id(), c.id(), &db);
        thread::scope(|s| {
            // a -> c -> b -> a
            let a_waits = s.spawn(move || (a.wait_for_row(c_id, of(2, 0), LockWait::Forever), a));
            let b_waits = s.spawn(move || {
                let waited = lock(&mut b, LockWait::Forever);
                db.node(1).rollback(&mut b).unwrap();
                waited
            });
            // There is no circle yet: after three looks of each session nobody has given up.
            let walks = db.net.sent(WALK);
            until("three walks", || db.net.sent(WALK) >= walks + 3);
            assert!(!a_waits.is_finished() && !b_waits.is_finished());
            let c_waits = s.spawn(move || {
                let waited = c.wait_for_row(b_id, of(1, 0), LockWait::Forever);
                db.node(2).rollback(&mut c).unwrap();
                waited
            });
            // All sessions get on, whichever was the victim, because the victim lets go of what it
            // holds.
            let (a_ended, mut a) = a_waits.join().unwrap();
            db.node(1).rollback(&mut a).unwrap();
            let ended = [a_ended, b_waits.join().unwrap(), c_waits.join().unwrap()];
            let victims = ended
                .iter()
                .filter(|e| matches!(e, Err(Error::Deadlock(_))));
            assert_eq!(victims.count(), 1, "{ended:?}");
        });
        assert!(
            db.manager(1)
                .locks()
                .iter()
                .all(|l| l.requested == LockMode::Null)
        );
    });
    db.stop();
}
