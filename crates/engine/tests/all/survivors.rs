//! Instances of one process over one simulated storage are killed under load, one after the other.
//! The others go on and recover what the dead one left, and its next life joins them.
//!
//! A killed instance is cut off from the others and from the storage. Its threads wait for ever, or
//! fail, and are left behind.

use crate::common::lives::*;
use crate::common::*;
use block::InstanceId;
use engine::*;
use seam::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use storage::lease::{Lease, OnError};
use storage::{Faults, FileKind, SimStorage};
use testkit::seeds::{number, seeds};
use testkit::waiting::until;

const ACCOUNTS: i64 = 12;
const BALANCE: i32 = 100;

/// Keeps what an instance reports while it starts.
#[derive(Default)]
struct Says(Mutex<Vec<String>>);

impl Progress for Says {
    fn step(&self, what: &str, _: u64, _: u64) {
        self.0.lock().push(what.to_string());
    }
}

/// Holds up a start the first time that it reads its redo, until it is let go.
#[derive(Default)]
struct HeldUp {
    /// Whether the start has come so far, and whether it may go on.
    at: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl HeldUp {
    fn until_there(&self) {
        let mut at = self.at.lock();
        while !at.0 {
            let late = self.changed.wait_until(&mut at, seam::now() + PATIENCE);
            assert!(!late.timed_out(), "it does not come so far");
        }
    }
    fn let_go(&self) {
        self.at.lock().1 = true;
        self.changed.notify_all();
    }
}

impl Progress for HeldUp {
    fn step(&self, what: &str, _: u64, _: u64) {
        if !what.starts_with("recovery: redo of ") {
            return;
        }
        let mut at = self.at.lock();
        at.0 = true;
        self.changed.notify_all();
        while !at.1 {
            self.changed.wait(&mut at);
        }
    }
}

/// What clients were told.
#[derive(Default)]
struct Told {
    /// Rows whose insertion was acknowledged.
    inserted: Mutex<BTreeSet<i64>>,
    /// Rows whose commit is under way or over.
    tried: Mutex<BTreeSet<i64>>,
    transfers: AtomicU64,
    deadlocks: AtomicU64,
    stop: AtomicBool,
}

fn add(s: &mut Session, t: &TableDef, id: i64, amount: i32) -> Result<()> {
    let snap = s.snapshot()?;
    let mut body = Vec::new();
    let (rid, mut grp, _) = find(s, t, &snap, id)?.expect("accounts stay");
    match s.lock_row(t, rid, &snap, (RowLock::Update, LockWait::Wait), &mut body)? {
        LockOutcome::Locked => {}
        LockOutcome::Changed => grp = decode(t, &body).1,
        other => panic!("account {id}: {other:?}"),
    }
    let done = s.update(t, rid, &row(id, grp + amount, "x"), None)?;
    assert_eq!(done, WriteOutcome::Done, "account {id} is locked");
    s.end_statement();
    Ok(())
}

/// Makes a transfer and inserts a row, in one transaction.
fn transaction(s: &mut Session, t: &TableDef, rng: &mut Rng, own: i64) -> Result<()> {
    s.begin(Isolation::ReadCommitted)?;
    let mut account = || rng.below(ACCOUNTS as u64) as i64;
    let (a, b) = (account(), account());
    let amount = rng.below(20) as i32;
    add(s, t, a, -amount)?;
    s.insert(t, &row(own, amount, "own"))?;
    s.end_statement();
    add(s, t, b, amount)?;
    s.commit()
}

/// A client of a node, until the node is killed or all is over. It sees no error but deadlocks.
fn client(
    node: &Node,
    t: &Arc<TableDef>,
    told: &Arc<Told>,
    seed: u64,
    first: i64,
) -> std::thread::JoinHandle<()> {
    let (engine, killed) = (node.engine.clone(), node.killed.clone());
    let (t, told) = (t.clone(), told.clone());
    std::thread::spawn(move || {
        let mut rng = Rng(seed);
        let mut s = engine.session().unwrap();
        let mut own = first;
        while !told.stop.load(Ordering::SeqCst) {
            own += 1;
            if rng.one_in(8) {
                // The masters of blocks change all the time, too.
                let block = block::Dba::new(block::FileId::DATA, rng.below(512) as u32);
                engine.transactions().cache().remaster(block);
            }
            told.tried.lock().insert(own);
            let done = transaction(&mut s, &t, &mut rng, own);
            let dead = killed.load(Ordering::SeqCst);
            match done {
                Ok(()) => {
                    told.inserted.lock().insert(own);
                    told.transfers.fetch_add(1, Ordering::SeqCst);
                }
                Err(_) if dead => return std::mem::forget((s, engine)),
                Err(e) if e.sqlstate() == "40P01" => {
                    told.deadlocks.fetch_add(1, Ordering::SeqCst);
                    s.rollback().unwrap();
                }
                Err(e) => panic!(
                    "seed {seed}, instance {}: {}: {e}",
                    engine.instance(),
                    e.sqlstate()
                ),
            }
        }
    })
}

/// Waits until clients have made so many more transactions.
fn work(told: &Told, transactions: u64) {
    let enough = told.transfers.load(Ordering::SeqCst) + transactions;
    until("transactions go on", || {
        told.transfers.load(Ordering::SeqCst) >= enough
    });
}

/// Checks accounts and rows as one statement sees them. Sums are kept, nothing acknowledged is
/// lost, and nothing is there that was not tried. A transfer and its row are there together or not
/// at all.
fn check(engine: &Arc<Engine>, t: &Arc<TableDef>, told: &Told, what: &str) {
    let acknowledged = told.inserted.lock().clone();
    let mut s = engine.session().unwrap();
    s.begin(Isolation::ReadCommitted).unwrap();
    let snap = s.snapshot().unwrap();
    let rows = scan(&mut s, t, &snap).unwrap();
    let by_id = by_index(&mut s, t, 0, &snap, false).unwrap();
    assert_same(&by_id, &rows, what);
    s.end_statement();
    s.commit().unwrap();
    let tried = told.tried.lock().clone();
    let (accounts, own): (Vec<_>, Vec<_>) = rows.iter().partition(|(id, _)| **id < ACCOUNTS);
    let sum: i64 = accounts.iter().map(|(_, (grp, _))| i64::from(*grp)).sum();
    assert_eq!(sum, ACCOUNTS * i64::from(BALANCE), "{what}");
    let own: BTreeSet<i64> = own.iter().map(|(id, _)| **id).collect();
    let lost: Vec<_> = acknowledged.difference(&own).collect();
    assert!(lost.is_empty(), "{what}: acknowledged and lost: {lost:?}");
    assert!(own.is_subset(&tried), "{what}");
}

fn killing(instances: u16, kills: u64, seed: u64) {
    eprintln!("BRAID_SEED={seed}");
    let mut rng = Rng(seed);
    let (s, t) = create();
    let mut nodes: Vec<Node> = (1..=instances).map(|k| start(&s, k, k.into())).collect();
    let mut loader = nodes[0].engine.session().unwrap();
    loader.begin(Isolation::ReadCommitted).unwrap();
    for id in 0..ACCOUNTS {
        loader.insert(&t, &row(id, BALANCE, "x")).unwrap();
    }
    loader.commit().unwrap();
    drop(loader);
    let told: Arc<Told> = Arc::default();
    let mut clients = Vec::new();
    let mut born = 0;
    let mut employ = |node: &Node, clients: &mut Vec<_>| {
        for _ in 0..2 {
            born += 1;
            clients.push((
                node.killed.clone(),
                client(node, &t, &told, seed * 100 + born, born as i64 * 1_000_000),
            ));
        }
    };
    nodes.iter().for_each(|n| employ(n, &mut clients));
    for life in 1..=kills {
        work(&told, 20 + rng.below(60));
        let at = rng.below(nodes.len() as u64) as usize;
        let victim = nodes.remove(at);
        let k = victim.engine.instance();
        let what = format!("BRAID_SEED={seed}, kill {life}, of instance {k}");
        eprintln!("{what}");
        victim.kill(&s);
        // Some of the time the dead instance's next life begins at once. Some of the time the
        // others must work without it first.
        let in_between = rng.one_in(2).then(|| rng.below(20));
        if in_between.is_some() {
            until("it is known to be dead", || {
                nodes
                    .iter()
                    .all(|n| n.engine.cluster().unwrap().members().up.len() == nodes.len())
            });
        }
        nodes.push(start(&s, k, k as u32 + 100 * life as u32));
        employ(nodes.last().unwrap(), &mut clients);
        work(&told, 40);
        check(
            &nodes[rng.below(nodes.len() as u64) as usize].engine,
            &t,
            &told,
            &what,
        );
    }
    told.stop.store(true, Ordering::SeqCst);
    for (killed, client) in clients {
        if !killed.load(Ordering::SeqCst) {
            client.join().unwrap();
        }
    }
    let what = format!("BRAID_SEED={seed}, at the end");
    nodes
        .iter()
        .for_each(|n| check(&n.engine, &t, &told, &what));
    eprintln!(
        "{:?} transactions, {:?} deadlocks",
        told.transfers, told.deadlocks
    );
    nodes.iter().for_each(|n| n.engine.stop(&Quiet).unwrap());
    let engine = open(&s).unwrap();
    check(&engine, &t, &told, &what);
    verify_all(&engine, &t, &what).unwrap();
    engine.stop(&Quiet).unwrap();
}

#[test]
fn one_of_two_dies_and_the_other_goes_on() {
    for seed in seeds("BRAID_SEED", [1, 2]) {
        killing(2, number("BRAID_KILLS", 3), seed);
    }
}

#[test]
fn one_of_three_dies_and_the_others_go_on() {
    for seed in seeds("BRAID_SEED", [3]) {
        killing(3, number("BRAID_KILLS", 3), seed);
    }
}

/// Makes the accounts. A transaction that will not end has changed one of them, and its change is
/// durable.
fn leave_unfinished(engine: &Arc<Engine>, t: &TableDef) {
    let mut lost = engine.session().unwrap();
    lost.begin(Isolation::ReadCommitted).unwrap();
    for id in 0..ACCOUNTS {
        lost.insert(t, &row(id, BALANCE, "x")).unwrap();
    }
    lost.commit().unwrap();
    lost.begin(Isolation::ReadCommitted).unwrap();
    add(&mut lost, t, 3, 5).unwrap();
    // Another commit makes the redo of the first change durable.
    let mut other = engine.session().unwrap();
    other.begin(Isolation::ReadCommitted).unwrap();
    add(&mut other, t, 4, 7).unwrap();
    other.commit().unwrap();
    std::mem::forget((lost, other));
}

/// Nobody starts the dead instance again. A survivor lives its next life for as long as it takes to
/// roll back what it left. Its row locks go, and its commits are known.
#[test]
fn what_a_lost_instance_left_is_rolled_back_by_another() {
    let (s, t) = create();
    let one = start_with(&s, 1, 1, true);
    let two = start_with(&s, 2, 2, true);
    leave_unfinished(&two.engine, &t);
    two.kill(&s);

    let mut left = one.engine.session().unwrap();
    left.begin(Isolation::ReadCommitted).unwrap();
    add(&mut left, &t, 3, 1).unwrap();
    left.commit().unwrap();
    let rows = contents(&one.engine, &t).unwrap();
    assert_eq!((rows[&3].0, rows[&4].0), (BALANCE + 1, BALANCE + 7));
    until("its stand-in has left", || {
        one.engine.cluster().unwrap().members().in_limbo.is_empty()
            && one.engine.cluster().unwrap().members().is_alone()
    });
    // The stand-in has its locks as long as it waits, on its way out, until the others have met an
    // epoch without it. An instance that comes meanwhile waits as well.
    let leaver = Lease::new(InstanceId(2), Arc::new(|why| panic!("{why}")));
    let held = leaver.storage(Arc::new(s.as_client(21)), OnError::EndInstance);
    until("its locks have gone", || {
        held.open("control", FileKind::Control).is_ok()
    });
    let says: Arc<Says> = Arc::default();
    let coming = std::thread::spawn({
        let (s, says) = (s.clone(), says.clone());
        move || start_telling(&s, 2, 22, true, &*says)
    });
    let waits = |said: &String| said.contains("another instance rolls back");
    until("it says that it waits", || {
        assert!(!coming.is_finished(), "it does not wait");
        says.0.lock().iter().any(waits)
    });
    drop((held, leaver));
    let two = coming.join().unwrap();
    assert!(two.engine.recovery().is_none(), "it was stopped cleanly");
    assert_same(
        &contents(&two.engine, &t).unwrap(),
        &rows,
        "its own next life",
    );
    drop(left);
    [two, one]
        .iter()
        .for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// A stand-in that cannot read something, wherever it has come to, is found dead like any instance,
/// and another follows it. If a stand-in that fails on its way out stayed a member, in a process
/// that lives, what it stood in for would never be rolled back.
#[test]
fn a_stand_in_that_fails_is_followed_by_another() {
    for nth in [1, 3, 6, 9] {
        let (s, t) = create();
        let one = start_with(&s, 1, 1, true);
        let two = start_with(&s, 2, 2, true);
        leave_unfinished(&two.engine, &t);
        let members = || one.engine.cluster().unwrap().members();
        let is_over = || members().in_limbo.is_empty() && members().is_alone();
        let stands_in = |m: &interconnect::Member| m.instance == InstanceId(2) && m.incarnation > 1;
        two.kill(&s);
        until("its stand-in is a member, or has been", || {
            members().up.iter().any(stands_in) || is_over()
        });
        s.set_faults(Faults {
            client: Some(1),
            fail_from_read: Some(s.reads() + nth),
            fail_reads: 1,
            ..Faults::default()
        });
        until("what it left is rolled back", is_over);
        // The stand-in may need fewer reads.
        s.set_faults(Faults::default());
        let mut left = one.engine.session().unwrap();
        left.begin(Isolation::ReadCommitted).unwrap();
        add(&mut left, &t, 3, 1).unwrap();
        left.commit().unwrap();
        drop(left);
        one.engine.stop(&Quiet).unwrap();
    }
}

/// An instance dies of whose commits all members knew when another came. No message about these
/// commits ever told the survivor when they took effect, and its snapshots are older than the dead
/// instance's next life.
#[test]
fn a_joiner_sees_what_was_committed_before_it_came() {
    let (s, t) = create();
    let first = start(&s, 1, 1);
    let mut of_first = first.engine.session().unwrap();
    of_first.begin(Isolation::ReadCommitted).unwrap();
    of_first.insert(&t, &row(1, 1, "before")).unwrap();
    of_first.commit().unwrap();
    std::mem::forget(of_first);

    let second = start_with(&s, 2, 2, true);
    let mut session = second.engine.session().unwrap();
    session.begin(Isolation::RepeatableRead).unwrap();
    let snap = session.snapshot().unwrap();
    first.kill(&s);
    let found = find(&mut session, &t, &snap, 1).unwrap();
    assert!(
        found.is_some(),
        "a snapshot taken after the commit lacks it"
    );
    session.end_statement();
    session.commit().unwrap();
    drop(session);
    second.engine.stop(&Quiet).unwrap();
}

/// An instance dies in the middle of a write to its log. What others read there may not be on disk
/// yet. They bring blocks forward over it, and then the power is lost.
#[test]
fn what_survivors_read_of_a_log_is_durable_before_they_write_blocks() {
    let (s, t) = create();
    let survivor = start(&s, 1, 1);
    let victim = start(&s, 2, 2);
    s.set_faults(Faults {
        lying_files: Some("redo/thread2"),
        ..Faults::default()
    });
    let mut undecided = victim.engine.session().unwrap();
    undecided.begin(Isolation::ReadCommitted).unwrap();
    let mut committed = victim.engine.session().unwrap();
    committed.begin(Isolation::ReadCommitted).unwrap();
    for id in 0..20 {
        undecided.insert(&t, &row(2 * id, 1, "undecided")).unwrap();
        committed
            .insert(&t, &row(2 * id + 1, 1, "committed"))
            .unwrap();
    }
    committed.commit().unwrap();
    std::mem::forget((undecided, committed));
    victim.kill(&s);
    s.set_faults(Faults::default());
    until("recovery of the blocks", || {
        let members = survivor.engine.cluster().unwrap().members();
        members.dead.is_empty() && members.in_limbo == [block::InstanceId(2)]
    });
    for seed in 0..8 {
        let after = s.after_crash(seed);
        let engine = open(&after).unwrap();
        let rows = contents(&engine, &t).unwrap();
        let wanted = (0..20).map(|id| 2 * id + 1);
        assert!(rows.keys().copied().eq(wanted), "seed {seed}: {rows:?}");
        verify_all(&engine, &t, &format!("seed {seed}")).unwrap();
        engine.stop(&Quiet).unwrap();
    }
    survivor.engine.stop(&Quiet).unwrap();
}

/// The last survivor stops while it recovers what the other left. A block that both have changed
/// went from it to the dead one. Only its past image has the changes that it logged itself.
#[test]
fn who_stops_while_another_is_recovered_leaves_nothing_unwritten() {
    let (s, t) = create();
    let victim = start(&s, 1, 1);
    let survivor = start(&s, 2, 2);
    let pad = "changed by turns".repeat(200);
    let mut of_survivor = survivor.engine.session().unwrap();
    of_survivor.begin(Isolation::ReadCommitted).unwrap();
    for id in 0..200 {
        of_survivor.insert(&t, &row(id, 0, &pad)).unwrap();
    }
    of_survivor.commit().unwrap();
    let mut of_victim = victim.engine.session().unwrap();
    for s in [&mut of_survivor, &mut of_victim] {
        s.begin(Isolation::ReadCommitted).unwrap();
        (0..200).for_each(|id| add(s, &t, id, 1).unwrap());
        s.commit().unwrap();
    }
    std::mem::forget(of_victim);
    drop(of_survivor);
    victim.kill(&s);
    let cluster = survivor.engine.cluster().unwrap().clone();
    while cluster.members().dead.is_empty() {
        std::thread::yield_now();
    }
    survivor.engine.stop(&Quiet).unwrap();
    let engine = open(&s).unwrap();
    let rows = contents(&engine, &t).unwrap();
    assert!(rows.keys().copied().eq(0..200));
    assert!(rows.values().all(|(grp, _)| *grp == 2));
    verify_all(&engine, &t, "in the end").unwrap();
    engine.stop(&Quiet).unwrap();
}

/// Starts an instance, and waits until it reads its redo.
fn start_slowly(
    s: &SimStorage,
    k: u16,
    client: u32,
) -> (Arc<HeldUp>, std::thread::JoinHandle<Node>) {
    let held: Arc<HeldUp> = Arc::default();
    let coming = std::thread::spawn({
        let (s, held) = (s.clone(), held.clone());
        move || start_telling(&s, k, client, true, &*held)
    });
    held.until_there();
    (held, coming)
}

fn insert(node: &Node, t: &TableDef, id: i64) {
    let mut session = node.engine.session().unwrap();
    session.begin(Isolation::ReadCommitted).unwrap();
    session.insert(t, &row(id, 1, "x")).unwrap();
    session.commit().unwrap();
    std::mem::forget(session);
}

/// A start takes as long as there is redo to be read. Meanwhile the members need the control file:
/// to change it, to declare an instance dead, to say that it is recovered.
#[test]
fn a_start_that_takes_long_keeps_nobody_from_the_control_file() {
    let (s, t) = create();
    let [one, two, three] = [1, 2, 3].map(|k| start(&s, k, k.into()));
    insert(&two, &t, 2);
    insert(&three, &t, 3);
    let recovered = |lost: &[u16]| {
        let members = one.engine.cluster().unwrap().members();
        let lost: Vec<_> = lost.iter().map(|k| InstanceId(*k)).collect();
        members.dead.is_empty() && members.in_limbo == lost
    };
    two.kill(&s);
    until("2 is recovered", || recovered(&[2]));
    let (held, coming) = start_slowly(&s, 2, 22);

    let of_one = one.engine.clone();
    let changes = std::thread::spawn(move || of_one.allocate_object_id().unwrap());
    until("the control file is changed", || changes.is_finished());
    changes.join().unwrap();
    three.kill(&s);
    until("3 is recovered", || recovered(&[2, 3]));

    held.let_go();
    let two = coming.join().unwrap();
    let three = start(&s, 3, 33);
    for node in [&one, &two, &three] {
        let rows = contents(&node.engine, &t).unwrap();
        assert!(rows.keys().copied().eq([2, 3]), "{rows:?}");
    }
    [three, two, one]
        .iter()
        .for_each(|n| n.engine.stop(&Quiet).unwrap());
}

/// An instance was opened as one among others. Once it has read its redo, none of them is left. So
/// it begins anew: alone, and with all that the others left.
#[test]
fn a_start_that_finds_the_others_gone_begins_anew() {
    let (s, t) = create();
    let [one, two, three] = [1, 2, 3].map(|k| start(&s, k, k.into()));
    insert(&two, &t, 2);
    insert(&three, &t, 3);
    two.kill(&s);
    until("2 is recovered", || {
        let members = one.engine.cluster().unwrap().members();
        members.dead.is_empty() && members.in_limbo == [InstanceId(2)]
    });
    let (held, coming) = start_slowly(&s, 2, 22);
    insert(&one, &t, 1);
    [&three, &one]
        .iter()
        .for_each(|n| n.engine.stop(&Quiet).unwrap());
    held.let_go();
    let two = coming.join().unwrap();
    assert!(two.engine.cluster().unwrap().members().is_alone());
    let rows = contents(&two.engine, &t).unwrap();
    assert!(rows.keys().copied().eq([1, 2, 3]), "{rows:?}");
    verify_all(&two.engine, &t, "alone").unwrap();
    two.engine.stop(&Quiet).unwrap();
}

/// Others die while an instance reads its redo, and one of them is still to be recovered when the
/// instance comes to join.
#[test]
fn a_start_does_not_join_beside_one_who_died_meanwhile() {
    let (s, t) = create();
    let [one, two, three] = [1, 2, 3].map(|k| start(&s, k, k.into()));
    (0..20).for_each(|id| insert(&three, &t, 10 + id));
    insert(&two, &t, 2);
    two.kill(&s);
    until("2 is recovered", || {
        let members = one.engine.cluster().unwrap().members();
        members.dead.is_empty() && members.in_limbo == [InstanceId(2)]
    });
    let (held, coming) = start_slowly(&s, 2, 22);
    three.kill(&s);
    one.kill(&s);
    held.let_go();
    let two = coming.join().unwrap();
    let rows = contents(&two.engine, &t).unwrap();
    let wanted = std::iter::once(2).chain((0..20).map(|id| 10 + id));
    assert!(rows.keys().copied().eq(wanted), "{rows:?}");
    until("what the others left is rolled back", || {
        let members = two.engine.cluster().unwrap().members();
        members.is_alone() && members.in_limbo.is_empty()
    });
    verify_all(&two.engine, &t, "in the end").unwrap();
    two.engine.stop(&Quiet).unwrap();
}
