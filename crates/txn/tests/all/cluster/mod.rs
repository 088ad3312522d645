//! Transactions among several instances: commits, verdicts, the gate on replies, the horizon,
//! waits. Each instance has data blocks of its own, and no block moves. The instances share status
//! only, by messages over a network that reorders. `BRAID_TXN_SEED` replays a seed.

mod enqueues;
mod memory;
mod provenance;
mod waits;

use crate::common::db::*;
use crate::common::net::Net;
use crate::common::*;
use block::*;
use seam::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::waiting::until;
use txn::*;

// Kinds of messages, as the protocol numbers them.
const ANNOUNCE: u16 = 100;
const STABLE_WANTED: u16 = 102;
const ASK: u16 = 104;
const ANSWER: u16 = 105;

/// An account of instance `k`.
fn of(k: usize, n: u16) -> RowId {
    RowId::new(Dba::new(FileId::DATA, k as u32), n % ROWS)
}

fn verdict(m: &TxnManager, txn: TxnId, snapshot: Scn) -> bool {
    let snapshot = Snapshot::at(snapshot);
    loop {
        match m.verdict(Stamp::txn(txn), &snapshot) {
            Verdict::Visible => return true,
            Verdict::Invisible => return false,
            Verdict::OwnCheckUndo => unreachable!("the snapshot has no transaction"),
            Verdict::Ask(asked) => {
                assert_eq!(asked, txn);
                m.learn(txn, snapshot.scn).unwrap();
            }
        }
    }
}

#[test]
fn a_commit_is_seen_by_the_snapshots_of_another_instance_that_come_after_it() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let (one, two) = (db.manager(1), db.manager(2));
        let mut writer = db.node(1).session();
        let mut reader = db.node(2).session();
        db.node(1)
            .add(&mut writer, of(1, 0), 5, LockWait::NoWait)
            .unwrap();
        let id = writer.id();
        let before = reader.statement();
        assert_eq!(
            two.verdict(Stamp::txn(id), &before),
            Verdict::Ask(id),
            "nothing is known, and nothing is guessed"
        );
        assert!(!two.is_committed(Stamp::txn(id)));
        assert_eq!(two.learn(id, before.scn).unwrap(), TxnState::Active);
        assert_eq!(two.verdict(Stamp::txn(id), &before), Verdict::Invisible);
        let asked = db.net.sent(ASK);
        assert!(!verdict(two, id, before.scn));
        assert_eq!(db.net.sent(ASK), asked, "a scan asks once");
        let e = writer.commit().unwrap();
        assert!(e > before.scn);
        assert!(two.clock().now() >= e, "acknowledged before the client is");
        assert!(
            !verdict(two, id, before.scn),
            "a snapshot does not change its mind"
        );
        reader.end_statement();
        let after = reader.statement();
        assert!(verdict(two, id, after.scn));
        assert_eq!(two.state(id), TxnState::Committed(e));
        assert!(verdict(one, id, after.scn));
        // A transaction that was rolled back is final, too.
        db.node(1)
            .add(&mut writer, of(1, 1), 5, LockWait::NoWait)
            .unwrap();
        let id = writer.id();
        db.node(1).rollback(&mut writer).unwrap();
        assert_eq!(two.learn(id, after.scn).unwrap(), TxnState::Aborted);
        assert_eq!(two.state(id), TxnState::Aborted);
    });
    db.stop();
}

/// A group of a dead instance does not count if an instance hears of it after it has told the
/// others that it had not heard. Nobody could say that all know such a group, and replies would
/// wait for that.
#[test]
fn what_the_dead_said_counts_for_nothing_once_the_epoch_is_entered() {
    let db = Db::new(3);
    db.net.run(seed(), || {
        let mut writer = db.node(1).session();
        db.node(1)
            .add(&mut writer, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        db.net.hold(ANNOUNCE);
        let announced = db.net.sent(ANNOUNCE);
        let ids = [2, 3].map(InstanceId);
        let dead = Departed {
            in_limbo: &[InstanceId(1)],
            in_doubt: false,
        };
        thread::scope(|s| {
            s.spawn(move || drop(writer.commit()));
            until("announcements", || db.net.sent(ANNOUNCE) == announced + 2);
            for k in [2, 3] {
                db.manager(k).members_changed(2, &ids, dead).unwrap();
            }
            db.manager(3).settled();
            db.net.deliver_held(ANNOUNCE, 1);
            let now = db.manager(2).clock().now();
            let left = AtomicBool::new(false);
            thread::scope(|s| {
                s.spawn(|| {
                    db.manager(2).gate(now);
                    left.store(true, Ordering::SeqCst);
                });
                db.manager(2).tick();
                db.settle();
                let done = Instant::now() + Duration::from_secs(20);
                while !left.load(Ordering::SeqCst) && Instant::now() < done {
                    thread::yield_now();
                }
                let in_time = left.load(Ordering::SeqCst);
                // Nobody has died in this test, so all must be let go.
                for (k, departed) in [(1, Departed::default()), (2, dead), (3, dead)] {
                    let alone = [InstanceId(k as u16)];
                    db.manager(k).members_changed(3, &alone, departed).unwrap();
                    db.manager(k).settled();
                }
                assert!(in_time, "a reply waits for one who is gone");
            });
        });
    });
    // The instances' books differ now, so there is no clean stop.
    std::mem::forget(db);
}

/// Without the broadcast, or without waiting for its acknowledgement, the client of one instance
/// would read old data on the other.
#[test]
fn the_client_is_answered_when_all_have_acknowledged() {
    let db = Db::new(3);
    db.net.run(seed(), || {
        let mut writer = db.node(1).session();
        db.node(1)
            .add(&mut writer, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        let id = writer.id();
        db.net.hold(ANNOUNCE);
        let answered = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                writer.commit().unwrap();
                answered.store(true, Ordering::SeqCst);
            });
            until("publication", || {
                db.manager(1).state(id) != TxnState::Active
            });
            // The row is free: the next holder of its lock need not wait for the network.
            let mut next = db.node(1).session();
            db.node(1)
                .add(&mut next, of(1, 0), 1, LockWait::NoWait)
                .unwrap();
            next.rollback(db.node(1)).unwrap();
            assert!(!answered.load(Ordering::SeqCst));
            db.net.cut(1, 3);
            db.net.heal_kinds();
            until("one acknowledgement", || db.net.is_quiet());
            assert!(
                !answered.load(Ordering::SeqCst),
                "instance 3 has not acknowledged"
            );
            db.net.heal();
            db.manager(1).reconnected(InstanceId(3));
        });
        assert!(answered.load(Ordering::SeqCst));
        let asked = db.net.sent(ASK);
        assert_eq!(
            db.manager(2).state(id),
            db.manager(1).state(id),
            "the announcement names it"
        );
        assert_eq!(db.net.sent(ASK), asked);
        assert!((2..=3).all(|k| verdict(db.manager(k), id, db.manager(k).clock().now())));
    });
    db.stop();
}

/// A reply that shows a commit of which not everybody has heard waits as the commit itself does, on
/// the commit's instance and on others.
#[test]
fn replies_that_show_what_not_all_have_heard_of_wait() {
    let db = Db::new(3);
    db.net.run(seed(), || {
        let mut writer = db.node(1).session();
        db.node(1)
            .add(&mut writer, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        let id = writer.id();
        let old = db.manager(2).clock().now();
        db.net.cut(1, 3);
        thread::scope(|s| {
            s.spawn(|| writer.commit().unwrap());
            until("publication", || {
                db.manager(1).state(id) != TxnState::Active
            });
            let shown = AtomicU64::new(0);
            thread::scope(|s| {
                for k in 1..=2 {
                    let (db, shown) = (&db, &shown);
                    s.spawn(move || {
                        let m = db.manager(k);
                        m.gate(old); // what was before is shown at once
                        m.gate(m.shown()); // nothing, though a snapshot of now would see the commit
                        until("sight", || verdict(m, id, m.clock().now()));
                        m.gate(m.shown());
                        shown.fetch_add(1, Ordering::SeqCst);
                    });
                }
                until("the question", || db.net.sent(STABLE_WANTED) > 0);
                db.settle();
                assert_eq!(shown.load(Ordering::SeqCst), 0);
                db.net.heal();
                for k in [1, 3] {
                    db.manager(k).reconnected(InstanceId(4 - k as u16));
                }
            });
            assert_eq!(shown.load(Ordering::SeqCst), 2);
            let third = db.manager(3);
            assert!(verdict(third, id, third.clock().now()));
        });
    });
    db.stop();
}

/// Sessions ask for verdicts over and over while transactions commit and roll back on all
/// instances. No verdict changes, and a session that begins after a client was told of a commit
/// sees it.
#[test]
fn no_snapshot_changes_its_mind() {
    let seed = seed();
    for together in [0, 2, 3] {
        eprintln!("instances on one machine: {together}");
        no_snapshot_changes_its_mind_over(Net::with_together(1..=together), seed);
    }
}

fn no_snapshot_changes_its_mind_over(net: Arc<Net>, seed: u64) {
    const ROUNDS: u64 = 60;
    let db = Db::over(net, 3);
    db.net.run(seed, || {
        let acknowledged: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let newest: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let done = AtomicU64::new(0);
        thread::scope(|s| {
            for k in 1..=3usize {
                let (db, acknowledged, newest, done) = (&db, &acknowledged, &newest, &done);
                s.spawn(move || {
                    let mut rng = Rng(seed.wrapping_mul(k as u64) | 1);
                    let mut t = db.node(k).session();
                    for n in 0..ROUNDS {
                        db.node(k)
                            .add(&mut t, of(k, n as u16), 1, LockWait::NoWait)
                            .unwrap();
                        let id = t.id();
                        newest[k - 1].store(id.0, Ordering::SeqCst);
                        thread::yield_now();
                        if rng.below(4) == 0 {
                            db.node(k).rollback(&mut t).unwrap();
                        } else {
                            t.commit().unwrap();
                            acknowledged[k - 1].store(id.0, Ordering::SeqCst);
                        }
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                });
                s.spawn(move || {
                    let m = db.manager(k);
                    let mut t = db.node(k).session();
                    while done.load(Ordering::SeqCst) < 3 {
                        let told: Vec<u64> = acknowledged
                            .iter()
                            .map(|a| a.load(Ordering::SeqCst))
                            .collect();
                        let snapshot = t.statement().scn;
                        for txn in told.into_iter().filter(|&t| t != 0).map(TxnId) {
                            assert!(verdict(m, txn, snapshot), "{txn:?} was acknowledged before");
                        }
                        for of in newest {
                            let txn = TxnId(of.load(Ordering::SeqCst));
                            if txn.is_none() {
                                continue;
                            }
                            let first = verdict(m, txn, snapshot);
                            while matches!(m.state_now(txn).unwrap(), TxnState::Active)
                                && done.load(Ordering::SeqCst) < 3
                            {
                                thread::yield_now();
                            }
                            assert_eq!(verdict(m, txn, snapshot), first, "{txn:?} at {snapshot:?}");
                        }
                        t.end_statement();
                    }
                });
            }
        });
    });
    db.stop();
}

#[test]
fn a_question_whose_answer_was_lost_is_asked_again() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let mut t = db.node(1).session();
        db.node(1)
            .add(&mut t, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        let id = t.id();
        db.net.hold(ANSWER);
        thread::scope(|s| {
            let learner = s.spawn(|| db.manager(2).state_now(id).unwrap());
            until("an answer", || db.net.sent(ANSWER) > 0);
            db.net.cut(1, 2);
            db.net.heal();
            db.manager(2).reconnected(InstanceId(1));
            assert_eq!(learner.join().unwrap(), TxnState::Active);
        });
        t.commit().unwrap();
    });
    db.stop();
}

/// The next life of a dead instance answers what the dead one was asked, as soon as all are in its
/// epoch. The asker must not wait for a tick: all instances keep their undo for its snapshot.
#[test]
fn the_next_life_is_asked_again_when_all_have_entered() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let mut t = db.node(1).session();
        db.node(1)
            .add(&mut t, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        let id = t.id();
        let (one, two) = (db.manager(1), db.manager(2));
        let ids = [1, 2].map(InstanceId);
        two.members_changed(
            2,
            &ids[1..],
            Departed {
                in_limbo: &ids[..1],
                in_doubt: false,
            },
        )
        .unwrap();
        thread::scope(|s| {
            let learner = s.spawn(|| two.state_now(id).unwrap());
            let asked = db.net.sent(ASK);
            until("a question", || db.net.sent(ASK) > asked);
            db.settle();
            for m in [two, one] {
                m.members_changed(3, &ids, Departed::default()).unwrap();
            }
            db.settle();
            assert!(!learner.is_finished(), "who answered it?");
            two.settled();
            let deadline = Instant::now() + Duration::from_secs(10);
            while !learner.is_finished() && Instant::now() < deadline {
                thread::yield_now();
            }
            let in_time = learner.is_finished();
            two.tick(); // otherwise a failure would wait for ever
            assert_eq!(learner.join().unwrap(), TxnState::Active);
            assert!(in_time, "it was answered after a tick only");
        });
        t.commit().unwrap();
    });
    db.stop();
}

/// Purge and truncation stop at the oldest snapshot of all instances. A member that has not been
/// heard yet counts as the beginning of time. 23a: a parallel worker goes on reading after its
/// coordinator's session is gone, also where another instance purges. So does a worker to which it
/// has handed the snapshot on.
#[test]
fn a_worker_whose_coordinator_is_gone_keeps_its_snapshot() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let (one, two) = (db.manager(1), db.manager(2));
        let mut coordinator = db.node(2).session();
        let snapshot = coordinator.statement();
        let worker = coordinator.hold(snapshot).unwrap();
        let another = worker.another().unwrap();
        drop(coordinator);
        let mut writer = db.node(1).session();
        let tick = || {
            for _ in 0..2 {
                two.tick();
                one.tick();
                db.settle();
            }
        };
        for left in [Some(worker), Some(another), None] {
            for n in 0..20 {
                db.node(1)
                    .add(&mut writer, of(1, n), 1, LockWait::NoWait)
                    .unwrap();
                writer.commit().unwrap();
            }
            tick();
            assert_eq!(one.horizon() > snapshot.scn, left.is_none());
            left.into_iter().for_each(HeldSnapshot::release);
        }
    });
    db.stop();
}

#[test]
fn the_horizon_is_the_least_of_all_members() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let (one, two) = (db.manager(1), db.manager(2));
        let mut reader = db.node(2).session();
        reader.begin(Isolation::RepeatableRead);
        let old = reader.statement().scn;
        let mut writer = db.node(1).session();
        for n in 0..20 {
            db.node(1)
                .add(&mut writer, of(1, n), 1, LockWait::NoWait)
                .unwrap();
            writer.commit().unwrap();
        }
        let tick = || {
            for _ in 0..2 {
                two.tick();
                one.tick();
                db.settle();
            }
        };
        tick();
        assert!(one.horizon() <= old && two.horizon() <= old);
        reader.commit().unwrap();
        tick();
        assert!(one.horizon() > old && one.horizon_reported() > old);
        // A third instance joins. The horizon stays where it is before that instance was heard.
        let before = one.horizon();
        let ids = [1, 2, 3].map(InstanceId);
        one.members_changed(2, &ids, Departed::default()).unwrap();
        two.members_changed(2, &ids, Departed::default()).unwrap();
        db.node(1)
            .add(&mut writer, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        db.node(1).rollback(&mut writer).unwrap();
        tick();
        assert_eq!(one.horizon(), before);
        one.members_changed(3, &ids[..2], Departed::default())
            .unwrap();
        two.members_changed(3, &ids[..2], Departed::default())
            .unwrap();
        tick();
        assert!(one.horizon() > before);
    });
    db.stop();
}

/// An instance that is down was closed cleanly, so its status file says everything. When it comes
/// back it is asked again.
#[test]
fn the_status_of_an_instance_that_is_down_is_read_from_its_file() {
    let mut db = Db::new(2);
    let control = db.node(2).control.clone();
    let (committed, aborted, e) = db.net.clone().run(seed(), || {
        let mut t = db.node(2).session();
        db.node(2)
            .add(&mut t, of(2, 0), 1, LockWait::NoWait)
            .unwrap();
        let committed = t.id();
        // The announcement is lost. What is said after a reconnection names no transactions.
        db.net.cut(1, 2);
        let announced = db.net.sent(ANNOUNCE);
        let e = thread::scope(|s| {
            let commit = s.spawn(|| t.commit().unwrap());
            until("announcement", || db.net.sent(ANNOUNCE) > announced);
            db.net.heal();
            for k in [1, 2] {
                db.manager(k).reconnected(InstanceId(3 - k as u16));
            }
            commit.join().unwrap()
        });
        db.node(2)
            .add(&mut t, of(2, 0), 1, LockWait::NoWait)
            .unwrap();
        let aborted = t.id();
        db.node(2).rollback(&mut t).unwrap();
        drop(t);
        let two = db.nodes.pop().unwrap();
        two.manager.leave();
        two.checkpoint();
        two.stop();
        let one = db.manager(1);
        one.members_changed(2, &[InstanceId(1)], Departed::default())
            .unwrap();
        assert_eq!(one.state(committed), TxnState::Unknown);
        let asked = db.net.sent(ASK);
        assert_eq!(one.learn(committed, e).unwrap(), TxnState::Committed(e));
        assert_eq!(one.state(aborted), TxnState::Aborted);
        assert_eq!(db.net.sent(ASK), asked, "nobody is there to be asked");
        // On a lone instance a commit waits for nobody.
        let mut t = db.node(1).session();
        db.node(1)
            .add(&mut t, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        t.commit().unwrap();
        (committed, aborted, e)
    });
    let ids = [1, 2].map(InstanceId);
    let storage = db.node(1).storage.clone();
    db.net.clone().run(seed(), || {
        let two = Instance::open_member(&storage, control, 2, CAP, |m| {
            db.net.connect(m);
            db.manager(1)
                .members_changed(3, &ids, Departed::default())
                .unwrap();
            m.members_changed(3, &ids, Departed::default()).unwrap();
        })
        .unwrap();
        let (one, asked) = (db.manager(1), db.net.sent(ASK));
        assert_eq!(one.state_now(committed).unwrap(), TxnState::Committed(e));
        assert_eq!(one.state_now(aborted).unwrap(), TxnState::Aborted);
        assert_eq!(db.net.sent(ASK), asked + 2);
        db.nodes.push(two);
    });
    db.stop();
}

/// V2: the asked instance lifts its clock to the snapshot first, whatever the header said.
/// Otherwise the transaction could commit below a snapshot that was told "active".
#[test]
fn whoever_is_asked_commits_above_the_askers_snapshot() {
    let db = Db::new(2);
    db.net.run(seed(), || {
        let one = db.manager(1);
        let mut t = db.node(1).session();
        db.node(1)
            .add(&mut t, of(1, 0), 1, LockWait::NoWait)
            .unwrap();
        let snapshot = Scn(one.clock().now().0 + 1000);
        let question = [t.id().0.to_le_bytes(), snapshot.0.to_le_bytes()].concat();
        one.message(InstanceId(2), 1, ASK, &question, None).unwrap();
        assert!(t.commit().unwrap() > snapshot);
    });
    db.stop();
}

/// A message from a broken peer is an error, never a panic. It never moves the clock implausibly.
#[test]
fn nonsense_is_refused() {
    let db = Db::new(2);
    let one = db.manager(1);
    let from = InstanceId(2);
    let mut rng = Rng(seed() | 1);
    let mut refused = 0;
    for _ in 0..20_000 {
        let kind = 100 + rng.below(14) as u16;
        let bytes: Vec<u8> = (0..rng.below(40))
            .map(|_| rng.next() as u8 & 0x83)
            .collect();
        refused += usize::from(one.message(from, 1, kind, &bytes, None).is_err());
        refused += usize::from(one.header_arrived(from, 1, &bytes).is_err());
    }
    assert!(refused > 30_000, "{refused}");
    let mut header = Vec::new();
    db.manager(2).header_into(&mut header);
    let far = one.clock().now().0 + redo::Clock::MAX_JUMP * 2;
    header[..8].copy_from_slice(&far.to_le_bytes());
    assert!(one.header_arrived(from, 1, &header).is_err());
    assert!(one.clock().now().0 < far);
    db.stop();
}
