//! The four strengths of a lock on a row, within an instance and over two: what excludes what, who
//! waits and for how long, and what becomes of shared locks when blocks move and instances die.

use crate::common::family::{self, Watch};
use crate::common::lives::*;
use crate::common::*;
use block::RowId;
use engine::*;
use seam::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use storage::SimStorage;
use testkit::seeds::{number, seeds};
use testkit::waiting::until;

const ALL: [RowLock; 4] = [
    RowLock::KeyShare,
    RowLock::Share,
    RowLock::NoKeyUpdate,
    RowLock::Update,
];

/// PostgreSQL's table ("Conflicting Row-Level Locks" in its manual): a row for each lock that is
/// held, in the order of [`ALL`], a column for each that is asked for.
const EXCLUDES: [[bool; 4]; 4] = [
    [false, false, false, true],
    [false, false, true, true],
    [false, true, true, true],
    [true, true, true, true],
];

fn start_two() -> (SimStorage, Arc<TableDef>, [Node; 2]) {
    let (storage, t) = create();
    let nodes = [start(&storage, 1, 1), start(&storage, 2, 2)];
    (storage, t, nodes)
}

fn begin(node: &Node) -> Session {
    let mut s = node.engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    s
}

fn commit_row(node: &Node, t: &TableDef, id: i64) -> RowId {
    let mut s = begin(node);
    let rid = s.insert(t, &row(id, 1, "x")).unwrap();
    s.commit().unwrap();
    rid
}

/// Locks a row as a statement does.
fn lock(
    s: &mut Session,
    t: &TableDef,
    rid: RowId,
    lock: RowLock,
    wait: LockWait,
) -> Result<LockOutcome> {
    let snap = s.snapshot()?;
    let locked = s.lock_row(t, rid, &snap, (lock, wait), &mut Vec::new());
    s.end_statement();
    locked
}

/// Whether the lock is to be had without waiting. If so, it is had.
fn may_have(s: &mut Session, t: &TableDef, rid: RowId, how: RowLock) -> bool {
    match lock(s, t, rid, how, LockWait::NoWait) {
        Ok(LockOutcome::Locked | LockOutcome::Changed) => true,
        Err(Error::LockNotAvailable) => false,
        other => panic!("{rid:?} {how:?}: {other:?}"),
    }
}

fn update(s: &mut Session, t: &TableDef, rid: RowId, id: i64, grp: i32) -> Result<WriteOutcome> {
    let snap = s.snapshot()?;
    let done = s.update(t, rid, &row(id, grp, "x"), Some(&snap));
    s.end_statement();
    done
}

fn delete(s: &mut Session, t: &TableDef, rid: RowId) -> Result<WriteOutcome> {
    let snap = s.snapshot()?;
    let done = s.delete(t, rid, Some(&snap));
    s.end_statement();
    done
}

/// Waits until so many sessions of the instance wait for a transaction.
fn until_waiting(node: &Node, sessions: usize) {
    until("a session waits for a transaction", || {
        let locks = node.engine.transactions().locks();
        let waiting = |l: &&txn::LockRow| l.kind == "TX" && l.requested != txn::LockMode::Null;
        locks.iter().filter(waiting).count() >= sessions
    });
}

#[test]
fn each_strength_excludes_what_it_does_in_postgresql() {
    let (_, t, nodes) = start_two();
    let rid = commit_row(&nodes[0], &t, 1);
    for (holder, other) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for (held, excludes) in ALL.into_iter().zip(EXCLUDES) {
            for (wanted, excluded) in ALL.into_iter().zip(excludes) {
                let what = format!("{held:?} on {holder}, {wanted:?} on {other}");
                let (mut a, mut b) = (begin(&nodes[holder]), begin(&nodes[other]));
                assert!(may_have(&mut a, &t, rid, held), "{what}");
                assert_eq!(may_have(&mut b, &t, rid, wanted), !excluded, "{what}");
                // Skipping comes to the same.
                let mut c = begin(&nodes[other]);
                let skipped = lock(&mut c, &t, rid, wanted, LockWait::SkipLocked).unwrap();
                let third = excluded || (wanted >= RowLock::NoKeyUpdate);
                let skips = skipped == LockOutcome::Skipped;
                assert_eq!(skips, third, "{what}, {skipped:?}");
                [a, b, c].iter_mut().for_each(|s| s.rollback().unwrap());
            }
        }
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

#[test]
fn changes_take_the_lock_that_their_columns_ask_for() {
    let (_, t, nodes) = start_two();
    let rid = commit_row(&nodes[0], &t, 1);
    type Change = fn(&mut Session, &TableDef, RowId) -> Result<WriteOutcome>;
    let changes: [(Change, RowLock); 3] = [
        (|s, t, rid| update(s, t, rid, 1, 2), RowLock::NoKeyUpdate),
        (|s, t, rid| update(s, t, rid, 2, 1), RowLock::Update),
        (|s, t, rid| delete(s, t, rid), RowLock::Update),
    ];
    for (holder, other) in [(0, 0), (0, 1), (1, 0)] {
        for (n, (change, takes)) in changes.iter().enumerate() {
            for (wanted, excluded) in ALL.into_iter().zip(EXCLUDES[*takes as usize]) {
                let what = format!("change {n} on {holder}, {wanted:?} on {other}");
                let (mut a, mut b) = (begin(&nodes[holder]), begin(&nodes[other]));
                assert_eq!(change(&mut a, &t, rid).unwrap(), WriteOutcome::Done);
                assert_eq!(may_have(&mut b, &t, rid, wanted), !excluded, "{what}");
                a.rollback().unwrap();
                b.rollback().unwrap();
                // The other way round: what was locked first keeps out what must not change it.
                let (mut a, mut b) = (begin(&nodes[holder]), begin(&nodes[other]));
                assert!(may_have(&mut b, &t, rid, wanted), "{what}");
                a.set_lock_timeout(Some(std::time::Duration::from_millis(1)));
                match change(&mut a, &t, rid) {
                    Ok(WriteOutcome::Done) => assert!(!excluded, "{what}"),
                    Err(e) => assert!(excluded && e.sqlstate() == "55P03", "{what}: {e}"),
                    other => panic!("{what}: {other:?}"),
                }
                a.rollback().unwrap();
                b.rollback().unwrap();
            }
        }
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// The point of FOR KEY SHARE: what refers to a row goes on beside changes of the row, and these
/// beside it. Each sees what it saw, and nothing is lost whichever of the two ends first or undoes
/// what it did.
#[test]
fn a_key_share_and_a_change_of_no_key_wait_for_nobody() {
    let (_, t, nodes) = start_two();
    for (sharer, changer) in [(0, 0), (0, 1), (1, 0)] {
        let id = sharer as i64 * 2 + changer as i64;
        let rid = commit_row(&nodes[0], &t, id);
        let (mut a, mut b) = (begin(&nodes[changer]), begin(&nodes[sharer]));
        assert_eq!(update(&mut a, &t, rid, id, 2).unwrap(), WriteOutcome::Done);
        assert_eq!(update(&mut a, &t, rid, id, 3).unwrap(), WriteOutcome::Done);
        let snap = b.snapshot().unwrap();
        let mut newest = Vec::new();
        let how = (RowLock::KeyShare, LockWait::Wait);
        let locked = b.lock_row(&t, rid, &snap, how, &mut newest).unwrap();
        assert_eq!(
            locked,
            LockOutcome::Locked,
            "it has the version that it saw"
        );
        b.end_statement();
        // The rollback of the change leaves the lock as it is, on the same instance or another.
        a.rollback().unwrap();
        let mut c = begin(&nodes[changer]);
        assert!(!may_have(&mut c, &t, rid, RowLock::Update));
        assert!(may_have(&mut c, &t, rid, RowLock::NoKeyUpdate));
        assert_eq!(update(&mut c, &t, rid, id, 4).unwrap(), WriteOutcome::Done);
        c.commit().unwrap();
        let mut c = begin(&nodes[changer]);
        assert!(!may_have(&mut c, &t, rid, RowLock::Update));
        b.commit().unwrap();
        assert!(may_have(&mut c, &t, rid, RowLock::Update));
        c.rollback().unwrap();
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// A session that shares a row with a change under way, and looks after another has committed, gets
/// the committed version, and not what may still be undone.
#[test]
fn a_key_share_is_given_the_newest_committed_version() {
    let (_, t, nodes) = start_two();
    let rid = commit_row(&nodes[0], &t, 1);
    let mut s = begin(&nodes[1]);
    let old = s.snapshot().unwrap();
    let mut a = begin(&nodes[0]);
    update(&mut a, &t, rid, 1, 2).unwrap();
    a.commit().unwrap();
    let mut b = begin(&nodes[0]);
    update(&mut b, &t, rid, 1, 3).unwrap();
    let mut body = Vec::new();
    let how = (RowLock::KeyShare, LockWait::Wait);
    let locked = s.lock_row(&t, rid, &old, how, &mut body).unwrap();
    assert_eq!((locked, decode(&t, &body).1), (LockOutcome::Changed, 2));
    b.rollback().unwrap();
    s.rollback().unwrap();
    // At REPEATABLE READ a row that was changed since cannot be locked so either.
    let mut s = nodes[1].engine.session().unwrap();
    s.begin(Isolation::RepeatableRead).unwrap();
    let old = s.snapshot().unwrap();
    let mut a = begin(&nodes[0]);
    update(&mut a, &t, rid, 1, 5).unwrap();
    a.commit().unwrap();
    let mut b = begin(&nodes[0]);
    update(&mut b, &t, rid, 1, 6).unwrap();
    let refused = s.lock_row(&t, rid, &old, how, &mut body).unwrap_err();
    assert_eq!(refused.sqlstate(), "40001");
    s.rollback().unwrap();
    b.rollback().unwrap();
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// A waiter goes on when those who share the row let go of it: at the end of each, and at a
/// rollback to a savepoint that is older than the lock, though the transaction goes on.
#[test]
fn who_waits_for_sharers_goes_on_when_the_last_lets_go() {
    let (_, t, nodes) = start_two();
    for (sharer, waiter) in [(0, 0), (0, 1), (1, 0)] {
        let id = sharer as i64 * 2 + waiter as i64;
        let rid = commit_row(&nodes[0], &t, id);
        let mut first = begin(&nodes[sharer]);
        let mut second = begin(&nodes[waiter]);
        assert!(may_have(&mut first, &t, rid, RowLock::KeyShare));
        let savepoint = second.savepoint().unwrap();
        assert!(may_have(&mut second, &t, rid, RowLock::Share));
        let (engine, of) = (nodes[waiter].engine.clone(), t.clone());
        let deleting = std::thread::spawn(move || {
            let mut s = engine.session().unwrap();
            s.begin(Isolation::ReadCommitted).unwrap();
            let done = delete(&mut s, &of, rid);
            s.commit().unwrap();
            done
        });
        until_waiting(&nodes[waiter], 1);
        // Who comes now may share the row: nobody waits for those who wait.
        let mut third = begin(&nodes[sharer]);
        assert!(may_have(&mut third, &t, rid, RowLock::Share));
        first.commit().unwrap();
        second.rollback_to(&savepoint).unwrap();
        until_waiting(&nodes[waiter], 1);
        assert!(!deleting.is_finished());
        third.rollback().unwrap();
        assert_eq!(deleting.join().unwrap().unwrap(), WriteOutcome::Done);
        second.commit().unwrap();
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// Two that share a row and both want to change it wait for each other: one of them gives up.
#[test]
fn two_who_share_a_row_and_both_change_it_are_a_deadlock() {
    let (_, t, nodes) = start_two();
    for (one, other) in [(0, 0), (0, 1)] {
        let id = one as i64 * 2 + other as i64;
        let rid = commit_row(&nodes[0], &t, id);
        let mut sessions = [begin(&nodes[one]), begin(&nodes[other])];
        for s in &mut sessions {
            assert!(may_have(s, &t, rid, RowLock::Share));
        }
        let changing = sessions.map(|mut s| {
            let t = t.clone();
            std::thread::spawn(move || {
                let done = update(&mut s, &t, rid, id, 2).map_err(|e| e.sqlstate());
                match done {
                    Ok(_) => s.commit().unwrap(),
                    Err(_) => s.rollback().unwrap(),
                }
                done
            })
        });
        let mut done = changing.map(|c| c.join().unwrap());
        done.sort_by_key(|d| d.is_err());
        assert_eq!(done[0], Ok(WriteOutcome::Done));
        assert_eq!(done[1], Err("40P01"));
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// A session that has shared a row and changes it goes before those that wait for what it shares.
/// (PostgreSQL's `tuplelock-upgrade-no-deadlock`.)
#[test]
fn who_shares_a_row_does_not_stand_in_line_for_it() {
    let (_, t, nodes) = start_two();
    for (one, other) in [(0, 0), (0, 1), (1, 0)] {
        let id = one as i64 * 2 + other as i64;
        let rid = commit_row(&nodes[0], &t, id);
        let (mut a, mut c) = (begin(&nodes[one]), begin(&nodes[other]));
        assert!(may_have(&mut a, &t, rid, RowLock::KeyShare));
        let (engine, of) = (nodes[other].engine.clone(), t.clone());
        let waiting = std::thread::spawn(move || {
            let mut s = engine.session().unwrap();
            s.begin(Isolation::ReadCommitted).unwrap();
            let locked = lock(&mut s, &of, rid, RowLock::Update, LockWait::Wait);
            s.rollback().unwrap();
            locked
        });
        until_waiting(&nodes[other], 1);
        assert!(may_have(&mut c, &t, rid, RowLock::KeyShare));
        // What goes well with the key shares does not wait behind the session that they keep out.
        assert_eq!(update(&mut a, &t, rid, id, 2).unwrap(), WriteOutcome::Done);
        let of = t.clone();
        let changing = std::thread::spawn(move || {
            let done = update(&mut c, &of, rid, id, 3);
            c.rollback().unwrap();
            done
        });
        until_waiting(&nodes[other], 2);
        a.rollback().unwrap();
        assert_eq!(changing.join().unwrap().unwrap(), WriteOutcome::Done);
        assert_eq!(waiting.join().unwrap().unwrap(), LockOutcome::Locked);
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// A row that an instance has shared is shared again for nothing: no redo, and no block that must
/// be fetched exclusively. The change that finds nobody takes the mark away.
#[test]
fn sharing_again_costs_no_redo_and_marks_do_not_stay() {
    let (_, t, nodes) = start_two();
    let rid = commit_row(&nodes[0], &t, 1);
    let marks = |node: &Node| {
        let block = node.engine.cache().read(rid.dba()).unwrap();
        (
            block::heap::sharers(&block, rid.slot()),
            block::heap::marks(&block),
        )
    };
    let changed = |node: &Node| node.engine.cache().read(rid.dba()).unwrap().scn();
    assert_eq!(marks(&nodes[0]), (0, 0));
    for node in &nodes {
        let mut s = begin(node);
        assert!(may_have(&mut s, &t, rid, RowLock::KeyShare));
        s.commit().unwrap();
    }
    assert_eq!(marks(&nodes[0]), (0b11, 2));
    let before = changed(&nodes[0]);
    for _ in 0..3 {
        for node in &nodes {
            let mut s = begin(node);
            assert!(may_have(&mut s, &t, rid, RowLock::KeyShare));
            s.commit().unwrap();
        }
    }
    assert_eq!(changed(&nodes[0]), before, "nothing is logged for it");
    // A change of no key neither asks nor takes a mark away.
    let mut s = begin(&nodes[1]);
    update(&mut s, &t, rid, 1, 2).unwrap();
    s.commit().unwrap();
    assert_eq!(marks(&nodes[0]), (0b11, 2));
    let mut s = begin(&nodes[1]);
    assert!(may_have(&mut s, &t, rid, RowLock::Update));
    s.rollback().unwrap();
    assert_eq!(marks(&nodes[0]), (0, 3));
    let mut s = begin(&nodes[0]);
    assert!(may_have(&mut s, &t, rid, RowLock::Share));
    s.commit().unwrap();
    assert_eq!(marks(&nodes[0]), (0b1_0000, 4));
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// A shared lock is kept while its block goes through other instances and out of all caches.
#[test]
fn a_shared_lock_survives_the_moves_of_its_block() {
    let (_, t, nodes) = start_two();
    let rid = commit_row(&nodes[0], &t, 0);
    let mut s = begin(&nodes[1]);
    assert!(may_have(&mut s, &t, rid, RowLock::Share));
    let big = "x".repeat(4000);
    for node in &nodes {
        let mut filling = begin(node);
        for n in 0..1300 {
            let id = 1 + n + 2000 * i64::from(node.engine.instance());
            filling.insert(&t, &row(id, 1, &big)).unwrap();
        }
        filling.commit().unwrap();
    }
    assert!(
        nodes
            .iter()
            .all(|n| n.engine.cache().try_read(rid.dba()).is_none())
    );
    for node in &nodes {
        let mut other = begin(node);
        assert!(!may_have(&mut other, &t, rid, RowLock::NoKeyUpdate));
        other.rollback().unwrap();
    }
    s.commit().unwrap();
    let mut other = begin(&nodes[0]);
    assert!(may_have(&mut other, &t, rid, RowLock::Update));
    other.rollback().unwrap();
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// The shared locks of an instance that dies go when its transactions are over.
#[test]
fn the_shared_locks_of_the_dead_are_let_go() {
    let (storage, t, [survivor, dying]) = start_two();
    let rid = commit_row(&survivor, &t, 1);
    let unknown = commit_row(&survivor, &t, 2);
    let mut s = begin(&dying);
    assert!(may_have(&mut s, &t, rid, RowLock::KeyShare));
    assert!(may_have(&mut s, &t, unknown, RowLock::Share));
    let (engine, of) = (survivor.engine.clone(), t.clone());
    let deleting = std::thread::spawn(move || {
        let mut s = engine.session().unwrap();
        s.begin(Isolation::ReadCommitted).unwrap();
        let done = delete(&mut s, &of, rid);
        s.commit().unwrap();
        done
    });
    until_waiting(&survivor, 1);
    dying.kill(&storage);
    std::mem::forget(s);
    // Nobody has asked about this row yet. It is changed when it is decided what the dead
    // committed.
    let mut s = begin(&survivor);
    let done = update(&mut s, &t, unknown, 2, 7).unwrap();
    assert_eq!(done, WriteOutcome::Done);
    s.commit().unwrap();
    let again = start(&storage, 2, 3);
    assert_eq!(deleting.join().unwrap().unwrap(), WriteOutcome::Done);
    // What the dead one had open is shut: its next life marks anew.
    let mut s = begin(&again);
    assert!(may_have(&mut s, &t, unknown, RowLock::Share));
    let mut other = begin(&survivor);
    assert!(!may_have(&mut other, &t, unknown, RowLock::NoKeyUpdate));
    s.commit().unwrap();
    assert!(may_have(&mut other, &t, unknown, RowLock::Update));
    other.rollback().unwrap();
    for node in [survivor, again] {
        node.engine.stop(&Quiet).unwrap();
    }
}

#[derive(Default)]
struct Unwatched;

impl Watch for Unwatched {
    fn locked(&mut self, _: RowId, _: RowLock) {}
    fn savepoint(&mut self) -> usize {
        0
    }
    fn letting_go(&mut self, _: usize) {}
}

/// Sessions of both instances make children and delete parents ([`family`]). No child is ever
/// without its parent.
#[test]
fn no_child_loses_its_parent() {
    let (_, t, nodes) = start_two();
    let mut s = begin(&nodes[0]);
    family::load(&mut s, &t).unwrap();
    s.commit().unwrap();
    drop(s);
    let rounds = number("BRAID_ROUNDS", 150);
    let (next, done) = (AtomicI64::new(family::FIRST_CHILD), AtomicBool::new(false));
    let did: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let count = |what: &str| *did.lock().entry(what.into()).or_default() += 1;
    for seed in seeds("BRAID_SEED", [11]) {
        std::thread::scope(|scope| {
            let workers = (0..6u64).map(|n| {
                let (engine, t, next, count) = (&nodes[n as usize % 2].engine, &t, &next, &count);
                scope.spawn(move || {
                    let mut rng = Rng(seed * 100 + n);
                    let mut s = engine.session().unwrap();
                    for _ in 0..rounds {
                        s.begin(Isolation::ReadCommitted).unwrap();
                        let child = next.fetch_add(1, Ordering::Relaxed);
                        match family::work(&mut s, t, &mut rng, child, &mut Unwatched) {
                            Ok(_) if rng.one_in(5) => s.rollback().unwrap(),
                            Ok(did) => {
                                s.commit().unwrap();
                                count(&format!("{did:?}"));
                            }
                            Err(e) => {
                                assert_eq!(e.sqlstate(), "40P01", "seed {seed}: {e}");
                                s.rollback().unwrap();
                                count("deadlock");
                            }
                        }
                    }
                })
            });
            let workers: Vec<_> = workers.collect();
            for node in &nodes {
                let (done, t) = (&done, &t);
                scope.spawn(move || {
                    let mut s = node.engine.session().unwrap();
                    while !done.load(Ordering::SeqCst) {
                        s.begin(Isolation::ReadCommitted).unwrap();
                        let snap = s.snapshot().unwrap();
                        let wrong = family::judge(&scan(&mut s, t, &snap).unwrap());
                        assert_eq!(wrong, None, "seed {seed}");
                        s.end_statement();
                        s.commit().unwrap();
                    }
                });
            }
            let ends: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
            done.store(true, Ordering::SeqCst);
            ends.into_iter().for_each(|e| e.unwrap());
        });
    }
    let did = did.into_inner();
    eprintln!("{did:?}");
    assert!(
        ["Child", "Changed", "Parent"]
            .iter()
            .all(|d| did.contains_key(*d))
    );
    for node in &nodes {
        assert_eq!(family::judge(&contents(&node.engine, &t).unwrap()), None);
    }
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
}
