//! Locks among instances (`txn::global_enqueues`).

use super::*;

const GES: u16 = 114;
const ROUNDS: u32 = 12;

/// R6. A message that a master said in one epoch is not taken for one of the next epoch, in which
/// another instance masters the lock. That holds also if the next epoch begins while the message is
/// being sent. Otherwise two instances would hold a table exclusively. (Found by the simulation of
/// whole instances: rows without an entry in an index that was being built.)
#[test]
fn what_was_said_in_one_epoch_does_not_leave_as_of_the_next() {
    let db = Db::new(3);
    let ids = [1, 2, 3].map(InstanceId);
    let mut recalls_of_two = 0;
    db.net.run(seed(), || {
        for round in 1..=ROUNDS {
            let (epoch, manager) = (u64::from(round), db.manager(1).clone());
            // All instances know what the others have, and from now on nobody but the session says
            // anything.
            (1..=3).for_each(|k| db.manager(k).tick());
            db.settle();
            db.net.hold(GES);
            // The next epoch has begun here when the first of the messages leaves.
            db.net.before_next(GES, move || {
                manager
                    .members_changed(epoch + 1, &ids, Departed::default())
                    .unwrap();
            });
            thread::scope(|s| {
                let locking = s.spawn(|| {
                    let _session = wait::session::register(wait::session::Kind::User, "ddl");
                    let mut ddl = db.node(1).session();
                    let table = ObjectId(1000 + round);
                    ddl.lock_table(table, LockMode::X, LockWait::Forever)
                        .unwrap();
                    ddl.commit().unwrap();
                });
                until("a wait for the others", || {
                    let waits = |s: &wait::session::Session| {
                        s.waiting().is_some_and(|w| w.event == wait::Event::EnqTm)
                    };
                    let all = wait::session::list();
                    all.iter().any(|s| s.name == "ddl" && waits(s))
                });
                let before = db.net.epochs_under_way(GES);
                let before = before.iter().filter(|e| **e == epoch).count();
                assert!(
                    before > 0,
                    "what was asked in epoch {epoch} is of that epoch"
                );
                // If this instance is the master, it recalls what the two others have by
                // implication.
                recalls_of_two += u32::from(before == 2);
                for k in [2, 3] {
                    db.manager(k)
                        .members_changed(epoch + 1, &ids, Departed::default())
                        .unwrap();
                }
                db.net.heal();
                while !locking.is_finished() {
                    (1..=3).for_each(|k| db.manager(k).tick());
                    thread::yield_now();
                }
            });
        }
    });
    assert!(recalls_of_two > 0, "it masters some of {ROUNDS} tables");
    db.stop();
}
