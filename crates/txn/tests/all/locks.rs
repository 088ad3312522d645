//! Locks among several instances: tables, names, advisory keys, the picture of the dictionary, and
//! deadlocks over them. `BRAID_TXN_SEED` replays the order of messages.

use crate::common::db::*;
use crate::common::*;
use block::{Dba, FileId, InstanceId, ObjectId, RowId};
use seam::{Mutex, Rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::waiting::until;
use txn::*;

const GES: u16 = 114;
pub const T: ObjectId = ObjectId(70);
pub const U: ObjectId = ObjectId(71);
/// The limit for a deadlock to be found. It is above a second because others use the machine's
/// cores, too.
const SOON: Duration = Duration::from_secs(2);

fn of(k: usize, n: u16) -> RowId {
    RowId::new(Dba::new(FileId::DATA, k as u32), n % ROWS)
}

fn now() -> LockWait {
    LockWait::NoWait
}

pub fn is_free(t: &mut Transaction, object: ObjectId, mode: LockMode) -> bool {
    match t.lock_table(object, mode, now()) {
        Ok(()) => true,
        Err(Error::LockNotAvailable(_)) => false,
        Err(e) => panic!("{e}"),
    }
}

pub fn with_db(n: u16, f: impl FnOnce(&Db)) {
    let db = Db::new(n);
    db.net.run(seed(), || {
        let until = Instant::now() + Duration::from_secs(30);
        for node in &db.nodes {
            assert!(node.manager.wait_established(until));
        }
        db.settle();
        f(&db);
    });
    db.stop();
}

#[test]
fn weak_table_locks_say_nothing_and_strong_ones_exclude_them_everywhere() {
    with_db(3, |db| {
        let before = db.net.sent(GES);
        let mut sessions: Vec<_> = (1..=3).map(|k| db.node(k).session()).collect();
        for t in &mut sessions {
            t.lock_table(T, LockMode::SX, now()).unwrap();
            t.lock_table(T, LockMode::SS, now()).unwrap();
        }
        assert_eq!(db.net.sent(GES), before);
        let mut ddl = db.node(1).session();
        assert!(!is_free(&mut ddl, T, LockMode::X), "others use it");
        assert!(is_free(&mut ddl, U, LockMode::X));
        for t in &mut sessions {
            t.commit().unwrap();
        }
        assert!(is_free(&mut ddl, T, LockMode::X));
        for t in &mut sessions {
            assert!(!is_free(t, T, LockMode::SS));
        }
        ddl.commit().unwrap();
        for t in &mut sessions {
            assert!(is_free(t, T, LockMode::SX));
            t.commit().unwrap();
        }
        db.settle();
        let before = db.net.sent(GES);
        for t in &mut sessions {
            assert!(is_free(t, T, LockMode::SX));
            t.commit().unwrap();
        }
        assert_eq!(db.net.sent(GES), before, "the implied lock is back");
    });
}

/// PostgreSQL's table "Conflicting Lock Modes", row by row.
const MATRIX: [(LockMode, [bool; 8]); 8] = {
    use LockMode::*;
    const N: bool = false;
    const C: bool = true;
    [
        (AS, [N, N, N, N, N, N, N, C]),
        (SS, [N, N, N, N, N, N, C, C]),
        (SX, [N, N, N, N, C, C, C, C]),
        (SUX, [N, N, N, C, C, C, C, C]),
        (S, [N, N, C, C, N, C, C, C]),
        (SSX, [N, N, C, C, C, C, C, C]),
        (EX, [N, C, C, C, C, C, C, C]),
        (X, [C, C, C, C, C, C, C, C]),
    ]
};

/// All 64 pairs of modes, of sessions of one instance and of two, on a table that nobody has locked
/// before and again on the same one.
#[test]
fn modes_exclude_each_other_as_in_postgresql_here_and_elsewhere() {
    with_db(2, |db| {
        let mut object = 1000;
        for (held, row) in MATRIX {
            for ((wanted, _), conflicts) in MATRIX.into_iter().zip(row) {
                object += 1;
                let table = ObjectId(object);
                for (a, b) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
                    let (mut one, mut two) = (db.node(a).session(), db.node(b).session());
                    one.lock_table(table, held, LockWait::Forever).unwrap();
                    let free = is_free(&mut two, table, wanted);
                    let pair = format!("{held:?} on {a}, {wanted:?} on {b}");
                    assert_eq!(free, !conflicts, "{pair}");
                    one.commit().unwrap();
                    let soon = LockWait::Until(Instant::now() + Duration::from_secs(10));
                    let late = two.lock_table(table, wanted, soon);
                    assert!(late.is_ok(), "{pair}: {late:?}");
                    two.commit().unwrap();
                }
            }
        }
    });
}

/// A strong locker waits for those who use the table when it comes, and for nobody who comes later.
#[test]
fn a_recall_stops_new_grants_and_strong_lockers_do_not_starve() {
    with_db(2, |db| {
        let mut user = db.node(2).session();
        let mut ddl = db.node(1).session();
        user.lock_table(T, LockMode::SX, now()).unwrap();
        thread::scope(|s| {
            let ddl = s.spawn(|| {
                ddl.lock_table(T, LockMode::X, LockWait::Forever).unwrap();
                ddl.commit().unwrap();
            });
            let mut late = db.node(2).session();
            until("the table is closed", || {
                let free = is_free(&mut late, T, LockMode::SX);
                late.commit().unwrap();
                !free
            });
            assert!(!ddl.is_finished());
            user.commit().unwrap();
            late.lock_table(T, LockMode::SX, LockWait::Forever).unwrap();
            late.commit().unwrap();
            ddl.join().unwrap();
        });
    });
}

#[test]
fn advisory_locks_hold_among_instances() {
    with_db(2, |db| {
        let (mut a, mut b) = (db.node(1).session(), db.node(2).session());
        let lock = |t: &mut Transaction, key, shared, level| {
            t.advisory_lock(key, 0, shared, level, now()).unwrap()
        };
        let (session, transaction) = (Level::Session, Level::Transaction);
        assert!(lock(&mut a, 7, false, session));
        assert!(lock(&mut a, 7, false, session), "as often as it likes");
        assert!(!lock(&mut b, 7, true, transaction));
        assert!(lock(&mut b, 8, false, transaction));
        a.commit().unwrap();
        b.commit().unwrap();
        assert!(!lock(&mut b, 7, true, session), "it outlives transactions");
        assert!(a.advisory_unlock(7, 0, false));
        assert!(!lock(&mut b, 7, true, session), "it was taken twice");
        assert!(a.advisory_unlock(7, 0, false));
        assert!(!a.advisory_unlock(7, 0, false));
        assert!(lock(&mut b, 7, true, session));
        assert!(lock(&mut a, 7, true, transaction), "shared");
        assert!(lock(&mut a, 8, false, transaction));
        assert!(!lock(&mut b, 7, false, session), "others share it");
        a.commit().unwrap();
        assert!(lock(&mut b, 7, false, session));
        drop(b);
        assert!(lock(&mut a, 7, false, session), "its session has ended");
        let soon = LockWait::Until(Instant::now() + Duration::from_millis(50));
        let mut c = db.node(2).session();
        let late = c.advisory_lock(7, 0, true, transaction, soon);
        assert!(matches!(late, Err(Error::LockTimeout)), "{late:?}");
        a.advisory_unlock_all();
        assert!(lock(&mut c, 7, true, transaction));
        c.commit().unwrap();
    });
}

pub type Waiting = Box<dyn FnOnce(&mut Transaction) -> Result<()> + Send>;

/// Runs the waits of a circle at once and returns the victims. The transaction of a victim is
/// rolled back, and the others end well.
pub fn victims(db: &Db, waits: Vec<(usize, Transaction, Waiting)>) -> Vec<usize> {
    let began = Instant::now();
    let ended = thread::scope(|s| {
        let threads: Vec<_> = waits
            .into_iter()
            .map(|(k, mut t, wait)| {
                s.spawn(move || {
                    let waited = wait(&mut t);
                    db.node(k).rollback(&mut t).unwrap();
                    waited
                })
            })
            .collect();
        let joined = threads.into_iter().map(|t| t.join().unwrap());
        joined.collect::<Vec<_>>()
    });
    assert!(began.elapsed() < SOON, "it took {:?}", began.elapsed());
    let mut victims = Vec::new();
    for (n, e) in ended.into_iter().enumerate() {
        match e {
            Ok(()) => {}
            Err(Error::Deadlock(_)) => victims.push(n),
            Err(e) => panic!("{e}"),
        }
    }
    victims
}

pub fn wants(object: ObjectId, mode: LockMode) -> Waiting {
    Box::new(move |t| t.lock_table(object, mode, LockWait::Forever))
}

#[test]
fn c26_deadlocks_over_tables_and_keys_have_one_victim_within_a_second() {
    with_db(3, |db| {
        // Each session has a table and wants the other's.
        for (a, b) in [(1, 2), (2, 3), (3, 1)] {
            let (mut one, mut two) = (db.node(a).session(), db.node(b).session());
            one.lock_table(T, LockMode::X, LockWait::Forever).unwrap();
            two.lock_table(U, LockMode::X, LockWait::Forever).unwrap();
            let waits = vec![
                (a, one, wants(U, LockMode::SX)),
                (b, two, wants(T, LockMode::SS)),
            ];
            assert_eq!(victims(db, waits).len(), 1);
        }
        // Both sessions use a table and want it for themselves.
        let waits = [1, 2].map(|k| {
            let mut t = db.node(k).session();
            t.lock_table(T, LockMode::SX, LockWait::Forever).unwrap();
            (k, t, wants(T, LockMode::X))
        });
        assert_eq!(victims(db, waits.into()).len(), 1);
        // Three keys over three instances.
        let waits = [1, 2, 3].map(|k: usize| {
            let mut t = db.node(k).session();
            let key = k as u64;
            t.advisory_lock(key, 0, false, Level::Transaction, now())
                .unwrap();
            let next = key % 3 + 1;
            let wait: Waiting = Box::new(move |t| {
                t.advisory_lock(next, 0, false, Level::Transaction, LockWait::Forever)
                    .map(drop)
            });
            (k, t, wait)
        });
        assert_eq!(victims(db, waits.into()).len(), 1);
    });
}

/// DDL waits for a lock that another instance keeps. The lock's user there waits for a row of the
/// DDL's session.
#[test]
fn c23e_ddl_waits_for_a_kept_lock_whose_user_waits_for_a_row_of_the_ddl() {
    with_db(2, |db| {
        let (mut ddl, mut user) = (db.node(1).session(), db.node(2).session());
        db.node(1).add(&mut ddl, of(1, 0), 1, now()).unwrap();
        user.lock_table(T, LockMode::SX, now()).unwrap();
        let id = ddl.id();
        let waits: Vec<(_, _, Waiting)> = vec![
            (1, ddl, wants(T, LockMode::X)),
            (
                2,
                user,
                Box::new(move |t| t.wait_for_row(id, of(1, 0), LockWait::Forever)),
            ),
        ];
        assert_eq!(victims(db, waits).len(), 1);
    });
}

/// DDL waits for a user of the table. The user waits for a session of its own instance, which wants
/// the table and is kept back by the DDL's request alone. As in PostgreSQL it is let pass.
#[test]
fn who_is_kept_back_by_a_recall_is_let_pass_in_a_circle() {
    with_db(2, |db| {
        let ddl = db.node(1).session();
        let (mut user, mut late) = (db.node(2).session(), db.node(2).session());
        user.lock_table(T, LockMode::SX, now()).unwrap();
        db.node(2).add(&mut late, of(2, 0), 1, now()).unwrap();
        let id = late.id();
        let mut probe = db.node(2).session();
        let waits: Vec<(_, _, Waiting)> = vec![
            (1, ddl, wants(T, LockMode::X)),
            (
                2,
                user,
                Box::new(move |t| t.wait_for_row(id, of(2, 0), LockWait::Forever)),
            ),
            (
                2,
                late,
                Box::new(move |t| {
                    until("the recall", || {
                        let free = is_free(&mut probe, T, LockMode::SS);
                        probe.commit().unwrap();
                        !free
                    });
                    t.lock_table(T, LockMode::SX, LockWait::Forever)
                }),
            ),
        ];
        assert_eq!(victims(db, waits), Vec::<usize>::new());
    });
}

/// Sessions of three instances take three locks each of five, in any mode. Nobody ever has what
/// excludes another, deadlocks end, and with an order there are none.
#[test]
fn locks_under_load_exclude_and_deadlocks_end() {
    let rounds = std::env::var("BRAID_TXN_ROUNDS").map_or(40, |n| n.parse().unwrap());
    for ordered in [false, true] {
        with_db(3, |db| {
            let held: Arc<Mutex<Vec<(ObjectId, LockMode, usize)>>> = Arc::default();
            let deadlocks = AtomicU64::new(0);
            thread::scope(|s| {
                for n in 0..6usize {
                    let (held, deadlocks) = (held.clone(), &deadlocks);
                    s.spawn(move || {
                        let node = db.node(n % 3 + 1);
                        let mut rng = Rng(n as u64 + 17);
                        let mut t = node.session();
                        for _ in 0..rounds {
                            let mut wanted: Vec<_> = (0..3)
                                .map(|_| {
                                    let mode = LockMode::ALL[1 + rng.below(8) as usize];
                                    (ObjectId(80 + rng.below(5) as u32), mode)
                                })
                                .collect();
                            if ordered {
                                wanted.sort();
                                wanted.dedup_by_key(|w| w.0);
                            }
                            for (object, mode) in wanted {
                                match t.lock_table(object, mode, LockWait::Forever) {
                                    Ok(()) => {
                                        let mut held = held.lock();
                                        for (o, m, who) in held.iter() {
                                            let excludes =
                                                *o == object && *who != n && m.conflicts(mode);
                                            assert!(!excludes, "{object:?}: {m:?} and {mode:?}");
                                        }
                                        held.push((object, mode, n));
                                    }
                                    Err(Error::Deadlock(_)) => {
                                        deadlocks.fetch_add(1, Ordering::Relaxed);
                                        break;
                                    }
                                    Err(e) => panic!("{e}"),
                                }
                            }
                            held.lock().retain(|h| h.2 != n);
                            node.rollback(&mut t).unwrap();
                        }
                    });
                }
            });
            let deadlocks = deadlocks.into_inner();
            assert_eq!(deadlocks > 0, !ordered, "{deadlocks} deadlocks");
            for k in 1..=3 {
                assert!(db.manager(k).locks().is_empty());
            }
        });
    }
}

/// One session locks tables weakly and then more strongly, while others of all instances want them
/// alone. It goes before them, as in PostgreSQL, and there is no deadlock.
#[test]
fn one_who_wants_more_of_what_others_wait_for_is_no_deadlock() {
    with_db(3, |db| {
        let inside: [AtomicU64; 4] = Default::default();
        thread::scope(|s| {
            for n in 0..6u64 {
                let inside = &inside;
                s.spawn(move || {
                    let node = db.node(n as usize % 3 + 1);
                    let mut rng = Rng(n + 5);
                    let mut t = node.session();
                    for _ in 0..60 {
                        let at = rng.below(4) as usize;
                        let object = ObjectId(70 + at as u32);
                        let modes: &[LockMode] = match n {
                            0 => &[LockMode::SX, LockMode::SSX, LockMode::X],
                            _ => &[LockMode::X],
                        };
                        for mode in modes {
                            let locked = t.lock_table(object, *mode, LockWait::Forever);
                            locked.unwrap_or_else(|e| panic!("session {n}, {mode:?}: {e}"));
                        }
                        let others = inside[at].fetch_add(1, Ordering::SeqCst);
                        assert_eq!(others, 0, "somebody else has {object:?}");
                        inside[at].fetch_sub(1, Ordering::SeqCst);
                        node.rollback(&mut t).unwrap();
                    }
                });
            }
        });
    });
}

/// A connection breaks while sessions ask for locks. Everything is said again.
#[test]
fn lost_messages_are_said_again() {
    with_db(2, |db| {
        let (mut a, mut b) = (db.node(1).session(), db.node(2).session());
        for round in 0..10u32 {
            let object = ObjectId(90 + round);
            db.net.cut(1, 2);
            thread::scope(|s| {
                let waits = [&mut a, &mut b].map(|t| {
                    s.spawn(move || {
                        t.lock_table(object, LockMode::X, LockWait::Forever)
                            .unwrap();
                        t.commit().unwrap();
                    })
                });
                // The session whose instance is not the master waits for the other.
                until("somebody waits", || {
                    let waits = |k| db.manager(k).locks();
                    (1..=2).any(|k| waits(k).iter().any(|l| l.requested != LockMode::Null))
                });
                db.net.heal();
                for (k, peer) in [(1, 2), (2, 1)] {
                    db.manager(k).reconnected(InstanceId(peer));
                }
                waits.into_iter().for_each(|w| w.join().unwrap());
            });
        }
    });
}

/// A change of the dictionary makes every other picture stale before anybody hears of its commit.
/// The dictionary is read again when it is needed, and once.
#[test]
fn the_dictionary_is_read_again_by_everybody_but_who_changed_it() {
    with_db(2, |db| {
        let reads = [AtomicU64::new(0), AtomicU64::new(0)];
        let look = |k: usize| {
            let flag = db.manager(k).dictionary_flag().unwrap();
            if !flag.load(Ordering::SeqCst) {
                let read = || {
                    reads[k - 1].fetch_add(1, Ordering::SeqCst);
                    Ok::<(), Error>(())
                };
                db.manager(k).refresh_dictionary(read).unwrap().unwrap();
            }
            reads[k - 1].load(Ordering::SeqCst)
        };
        assert_eq!([look(1), look(2), look(1), look(2)], [1, 1, 1, 1]);
        for round in 0..5u64 {
            let mut t = db.node(1).session();
            t.dictionary_changes().unwrap();
            t.commit().unwrap();
            assert_eq!([look(2), look(2)], [round + 2; 2], "changed elsewhere");
            assert_eq!(look(1), 1, "who changed it knows");
        }
        let mut t = db.node(2).session();
        t.dictionary_changes().unwrap();
        t.commit().unwrap();
        assert_eq!([look(1), look(2)], [2, 6]);
    });
}
