//! The queues of table locks, among the sessions of one instance and of several: who stands behind
//! whom, and circles that are broken by letting a session pass.

use crate::common::db::*;
use crate::locks::{T, U, is_free, victims, wants, with_db};
use block::ObjectId;
use std::sync::mpsc;
use std::thread;
use testkit::waiting::until;
use txn::*;

/// How many sessions of all instances wait for a lock.
fn waiting(db: &Db) -> usize {
    let rows = (1..=db.nodes.len()).flat_map(|k| db.manager(k).locks());
    rows.filter(|r| r.requested != LockMode::Null).count()
}

/// Waits until so many sessions stand in queues and every instance knows of them.
fn until_waiting(db: &Db, n: usize) {
    until("sessions wait", || waiting(db) == n);
    db.settle();
}

/// A session waits for a user of its own instance. From then on no session of any instance gets
/// what excludes it, though others may use the table without asking. What excludes nobody is free.
#[test]
fn a_waiter_of_one_instance_is_not_passed_on_another() {
    with_db(3, |db| {
        for (object, user_on, waiter_on) in [(T, 1, 1), (U, 1, 2), (ObjectId(72), 2, 1)] {
            let mut user = db.node(user_on).session();
            user.lock_table(object, LockMode::SX, LockWait::Forever)
                .unwrap();
            thread::scope(|s| {
                let waiter = s.spawn(|| {
                    let mut t = db.node(waiter_on).session();
                    t.lock_table(object, LockMode::S, LockWait::Forever)
                        .unwrap();
                    t.commit().unwrap();
                });
                until_waiting(db, 1);
                for k in 1..=3 {
                    let mut t = db.node(k).session();
                    assert!(!is_free(&mut t, object, LockMode::SX), "on {k}");
                    assert!(is_free(&mut t, object, LockMode::SS), "on {k}");
                    t.commit().unwrap();
                }
                let mut more = db.node(user_on).session();
                assert!(
                    is_free(&mut user, object, LockMode::SUX),
                    "it has the table"
                );
                assert!(!is_free(&mut more, object, LockMode::SUX));
                user.commit().unwrap();
                waiter.join().unwrap();
            });
            let mut t = db.node(3).session();
            t.lock_table(object, LockMode::SX, LockWait::Forever)
                .unwrap();
            t.commit().unwrap();
        }
    });
}

/// Sessions of two instances that want a table alone get it in the order in which they came, also
/// when they come by turns.
#[test]
fn sessions_are_served_in_the_order_in_which_they_came() {
    with_db(2, |db| {
        for instances in [[1, 2, 1, 2, 2, 1], [1, 1, 2, 1, 2, 2]] {
            let mut user = db.node(1).session();
            user.lock_table(T, LockMode::SX, LockWait::Forever).unwrap();
            let (send, receive) = mpsc::channel();
            thread::scope(|s| {
                for (n, k) in instances.into_iter().enumerate() {
                    let send = send.clone();
                    s.spawn(move || {
                        let mut t = db.node(k).session();
                        t.lock_table(T, LockMode::X, LockWait::Forever).unwrap();
                        send.send(n).unwrap();
                        t.commit().unwrap();
                    });
                    until_waiting(db, n + 1);
                }
                user.commit().unwrap();
            });
            let order: Vec<usize> = receive.try_iter().collect();
            assert_eq!(order, [0, 1, 2, 3, 4, 5], "{instances:?}");
        }
    });
}

/// PostgreSQL's isolation spec deadlock-soft: two sessions read a table each, two others want the
/// tables alone, and the first two want to read the other table, too. They wait for each other only
/// because they stand behind the others.
#[test]
fn a_circle_over_places_in_queues_is_no_deadlock() {
    with_db(3, |db| {
        for [d1, d2, e1, e2] in [
            [1, 1, 1, 1],
            [1, 2, 1, 2],
            [1, 2, 2, 1],
            [1, 2, 3, 3],
            [1, 1, 2, 3],
        ] {
            let (mut one, mut two) = (db.node(d1).session(), db.node(d2).session());
            one.lock_table(T, LockMode::AS, LockWait::Forever).unwrap();
            two.lock_table(U, LockMode::AS, LockWait::Forever).unwrap();
            thread::scope(|s| {
                let alone = |k: usize, object| {
                    s.spawn(move || {
                        let mut t = db.node(k).session();
                        t.lock_table(object, LockMode::X, LockWait::Forever)
                            .unwrap();
                        t.commit().unwrap();
                    })
                };
                let others = [alone(e1, T), alone(e2, U)];
                until_waiting(db, 2);
                let waits = vec![
                    (d1, one, wants(U, LockMode::AS)),
                    (d2, two, wants(T, LockMode::AS)),
                ];
                assert_eq!(
                    victims(db, waits),
                    Vec::<usize>::new(),
                    "{:?}",
                    [d1, d2, e1, e2]
                );
                others.into_iter().for_each(|o| o.join().unwrap());
            });
        }
    });
}

/// PostgreSQL's isolation spec deadlock-soft-2: a session has to pass two others that stand in one
/// queue.
#[test]
fn a_session_passes_all_who_stand_in_its_way() {
    with_db(2, |db| {
        for [k1, k2, k3, k4] in [[1, 1, 1, 1], [1, 2, 1, 2], [1, 2, 2, 2], [1, 2, 1, 1]] {
            let (mut one, mut two) = (db.node(k1).session(), db.node(k2).session());
            one.lock_table(T, LockMode::SUX, LockWait::Forever).unwrap();
            two.lock_table(U, LockMode::AS, LockWait::Forever).unwrap();
            thread::scope(|s| {
                let two = s.spawn(move || {
                    two.lock_table(T, LockMode::SUX, LockWait::Forever).unwrap();
                    two.commit().unwrap();
                });
                until_waiting(db, 1);
                let others = [(k3, 2), (k4, 3)].map(|(k, n)| {
                    let other = s.spawn(move || {
                        let mut t = db.node(k).session();
                        t.lock_table(U, LockMode::X, LockWait::Forever).unwrap();
                        t.commit().unwrap();
                    });
                    until_waiting(db, n);
                    other
                });
                one.lock_table(U, LockMode::SUX, LockWait::Forever).unwrap();
                assert!(others.iter().all(|o| !o.is_finished()));
                one.commit().unwrap();
                two.join().unwrap();
                others.into_iter().for_each(|o| o.join().unwrap());
            });
        }
    });
}

/// A circle that also leads over a place in a queue, but does not need it, has a victim.
#[test]
fn two_who_want_more_of_one_table_have_one_victim() {
    with_db(2, |db| {
        for [a, b] in [[1, 1], [1, 2]] {
            let waits = [a, b].map(|k| {
                let mut t = db.node(k).session();
                t.lock_table(T, LockMode::SX, LockWait::Forever).unwrap();
                (k, t, wants(T, LockMode::X))
            });
            assert_eq!(victims(db, waits.into()).len(), 1, "{a} and {b}");
        }
        for k in 1..=2 {
            assert!(db.manager(k).locks().is_empty());
        }
    });
}
