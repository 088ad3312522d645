//! Leases over simulated storage, with the faults that a real filesystem shows too seldom.

use block::InstanceId;
use seam::Mutex;
use std::sync::Arc;
use storage::lease::{
    Attempt, Claim, Cluster, ClusterFile, FenceCommand, Lease, MemberState, OnError, Order, Orders,
    Proof, Takeover, canary, lease_byte,
};
use storage::{
    AlignedBuf, Control, ControlFile, Error, Fatal, Faults, File, FileKind, SECTOR, SimStorage,
    Storage,
};

const ONE: InstanceId = InstanceId(1);
const TWO: InstanceId = InstanceId(2);
const THREE: InstanceId = InstanceId(3);

fn files() -> Vec<(String, FileKind)> {
    vec![
        ("control".to_string(), FileKind::Control),
        ("data".to_string(), FileKind::Data),
        ("log".to_string(), FileKind::Log),
    ]
}

/// A storage with those files, for client 0.
fn world() -> SimStorage {
    let s = SimStorage::new();
    ControlFile::create(&s, Control::default()).unwrap();
    for (name, kind) in &files()[1..] {
        let f = s.create(name, *kind).unwrap();
        f.allocate(4 * SECTOR as u64, true, &mut |_| {}).unwrap();
    }
    s
}

/// An instance that runs as a client of the storage.
struct Instance {
    lease: Arc<Lease>,
    files: Vec<Arc<dyn File>>,
    ended: Arc<Mutex<Vec<String>>>,
}

fn start(s: &SimStorage, id: InstanceId, client: u32) -> storage::Result<Instance> {
    let ended = Arc::new(Mutex::new(Vec::new()));
    let tell = ended.clone();
    let fatal: Fatal = Arc::new(move |why| tell.lock().push(why.to_string()));
    let lease = Lease::new(id, fatal);
    let through = lease.storage(Arc::new(s.as_client(client)), OnError::EndInstance);
    let files = files()
        .iter()
        .map(|(name, kind)| through.open(name, *kind))
        .collect::<storage::Result<Vec<_>>>()?;
    Ok(Instance {
        lease,
        files,
        ended,
    })
}

/// Starts an instance as the client of its own number.
fn instance(s: &SimStorage, id: InstanceId) -> Instance {
    start(s, id, u32::from(id.0)).unwrap()
}

fn sector(v: u8) -> AlignedBuf {
    let mut b = AlignedBuf::zeroed(SECTOR);
    b.fill(v);
    b
}

fn attempt(s: &SimStorage, by: InstanceId, victim: InstanceId) -> Attempt {
    let claim = Claim {
        storage: Arc::new(s.as_client(u32::from(by.0))),
        on_error: OnError::Tell,
        files: files(),
    };
    Takeover::attempt(victim, Arc::new(|why| panic!("{why}")), &[claim]).unwrap()
}

fn dead(a: Attempt) -> Takeover {
    match a {
        Attempt::Dead(t) => t,
        Attempt::Held(file) => panic!("{file} is held"),
    }
}

fn held_at(a: Attempt) -> String {
    match a {
        Attempt::Dead(_) => panic!("nobody holds the locks"),
        Attempt::Held(file) => file,
    }
}

#[test]
fn an_instance_is_dead_when_and_only_when_a_survivor_holds_all_its_locks() {
    let s = world();
    let _one = instance(&s, ONE);
    let two = instance(&s, TWO);
    two.lease.check().unwrap();
    assert_eq!(held_at(attempt(&s, ONE, TWO)), "control");
    s.kill_client(2);
    let takeover = dead(attempt(&s, ONE, TWO));
    assert_eq!(takeover.victim(), TWO);
    // A restart and another survivor both find the locks taken, as long as the takeover lasts.
    let refused = start(&s, TWO, 22).err().unwrap();
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    assert_eq!(held_at(attempt(&s, THREE, TWO)), "control");
    drop(takeover);
    start(&s, TWO, 22).unwrap();
}

/// Race 14 of docs/design.md: an asynchronous write can outlive its process, and its lock with it.
/// Nobody reads the redo before that write is over.
#[test]
fn a_write_in_flight_keeps_the_locks_of_a_killed_process() {
    let s = world();
    let two = instance(&s, TWO);
    s.kill_client_writing(2);
    assert!(two.files[2].write_at(0, &sector(7)).is_err());
    assert_eq!(held_at(attempt(&s, ONE, TWO)), "control");
    // The kernel closes the files; the write in flight keeps them open.
    drop(two);
    assert_eq!(held_at(attempt(&s, ONE, TWO)), "control");
    assert!(s.settle(2));
    let _proof = dead(attempt(&s, ONE, TWO));
    let mut b = AlignedBuf::zeroed(SECTOR);
    let log = s.as_client(1).open("log", FileKind::Log).unwrap();
    log.read_at(0, &mut b).unwrap();
    assert!(
        b.iter().all(|&v| v == 7),
        "the last write is seen, not raced with"
    );
    assert!(!s.settle(2));
}

#[test]
fn a_revoked_client_ends_at_its_next_write_and_writes_nothing() {
    let s = world();
    let two = instance(&s, TWO);
    two.files[1].write_at(0, &sector(1)).unwrap();
    s.revoke_client(2);
    let _proof = dead(attempt(&s, ONE, TWO));
    assert!(two.files[1].write_at(0, &sector(2)).is_err());
    assert_eq!(two.ended.lock().len(), 1, "the instance was ended");
    assert_eq!(s.contents("data").unwrap()[0], 1);
}

#[test]
fn a_lost_lock_ends_the_instance_whether_somebody_took_it_or_not() {
    for taken in [false, true] {
        for (name, _) in files() {
            let s = world();
            let two = instance(&s, TWO);
            two.lease.check().unwrap();
            assert!(s.lose_lock(&name, lease_byte(TWO)));
            let other = s.as_client(9).open(&name, FileKind::Data).unwrap();
            if taken {
                assert!(other.locks().unwrap().try_lock(lease_byte(TWO)).unwrap());
            }
            let found = two.lease.check().unwrap_err();
            assert!(
                matches!(&found, Error::LockLost { path, instance: 2 } if *path == name),
                "{found}"
            );
            assert!(two.ended.lock()[0].contains("is lost"));
        }
    }
}

/// Locks that are free in part prove nothing, and an attempt that fails leaves nothing locked.
#[test]
fn a_failed_attempt_keeps_nothing() {
    let s = world();
    let _two = instance(&s, TWO);
    assert!(s.lose_lock("control", lease_byte(TWO)) && s.lose_lock("data", lease_byte(TWO)));
    assert_eq!(held_at(attempt(&s, ONE, TWO)), "log");
    assert_eq!(held_at(attempt(&s, THREE, TWO)), "log");
    s.kill_client(2);
    let _proof = dead(attempt(&s, THREE, TWO));
}

#[test]
fn the_canary_finds_locks_that_do_not_reach_the_other_host() {
    let s = world();
    let _one = instance(&s, ONE);
    canary(&s.as_client(2), ONE, &files()).unwrap();
    // This is a mount with locks of its own: it has the files and not the locks.
    let local = world();
    let e = canary(&local.as_client(2), ONE, &files()).unwrap_err();
    assert!(matches!(e, Error::LocksAreLocal { peer: 1, .. }), "{e}");
    // One file of several is enough to tell.
    s.lose_lock("log", lease_byte(ONE));
    let e = canary(&s.as_client(2), ONE, &files()).unwrap_err();
    assert!(matches!(e, Error::LocksAreLocal { path, .. } if path == "log"));
}

#[test]
fn a_lease_opens_each_file_once_and_a_second_process_is_refused() {
    let s = world();
    let _one = instance(&s, ONE);
    let again = start(&s, ONE, 5).err().unwrap();
    assert!(again.to_string().contains("instance 1"), "{again}");
    let lease = Lease::new(TWO, Arc::new(|why| panic!("{why}")));
    let through = lease.storage(Arc::new(s.as_client(2)), OnError::Tell);
    let a = through.open("data", FileKind::Data).unwrap();
    let b = through.open("data", FileKind::Data).unwrap();
    assert!(Arc::ptr_eq(&a, &b));
    let other = through.open("data", FileKind::Log);
    assert!(other.is_err(), "with other durability");
    drop(through.create("new", FileKind::Data).unwrap());
    let exists = through.create("new", FileKind::Data);
    assert!(matches!(exists, Err(Error::Exists { .. })));
    let looker = s.as_client(9).open("new", FileKind::Data).unwrap();
    let locks = looker.locks().unwrap();
    assert!(locks.held_by_other(lease_byte(TWO)).unwrap());
    through.remove("new").unwrap();
    assert_eq!(lease.paths(), ["data"]);
    // With this storage errors are the caller's business. The end of the instance would panic.
    s.set_faults(Faults {
        fail_from_write: Some(s.writes() + 1),
        fail_writes: 1,
        ..Faults::default()
    });
    assert!(a.write_at(0, &sector(1)).is_err());
}

#[test]
fn a_full_disk_does_not_end_the_instance() {
    let s = world();
    let two = instance(&s, TWO);
    s.set_faults(Faults {
        full_from_write: Some(0),
        ..Faults::default()
    });
    let full = two.files[1].allocate(64 * SECTOR as u64, false, &mut |_| {});
    assert!(full.unwrap_err().is_full());
    assert!(two.ended.lock().is_empty());
}

fn states(c: &Cluster) -> Vec<(u16, u32, MemberState)> {
    c.members
        .iter()
        .map(|m| (m.instance.0, m.incarnation, m.state))
        .collect()
}

#[test]
fn epochs_and_incarnations_follow_what_was_decided() {
    use MemberState::{Dead, Down, Up};
    let s = world();
    let (one, two) = (instance(&s, ONE), instance(&s, TWO));
    let mine = ClusterFile::open(&s.as_client(1)).unwrap();
    let theirs = ClusterFile::open(&s.as_client(2)).unwrap();
    assert_eq!(mine.read().unwrap(), Cluster::default());
    let (me, c) = mine.join(&one.lease, "127.0.0.1:5601", None).unwrap();
    assert_eq!((me.incarnation, c.epoch), (1, 1));
    let (_, c) = theirs.join(&two.lease, "127.0.0.1:5602", None).unwrap();
    assert_eq!((c.epoch, states(&c)), (2, vec![(1, 1, Up), (2, 1, Up)]));
    // This is a clean stop and another start.
    let c = theirs.leave(TWO, 1, None).unwrap();
    assert_eq!((c.epoch, states(&c)), (3, vec![(1, 1, Up), (2, 1, Down)]));
    let (_, c) = theirs.join(&two.lease, "127.0.0.1:5602", None).unwrap();
    assert_eq!((c.epoch, states(&c)), (4, vec![(1, 1, Up), (2, 2, Up)]));
    assert!(theirs.leave(TWO, 1, None).is_err(), "that life is over");
    // This instance is killed, proved dead, and declared so.
    s.kill_client(2);
    let proof = dead(attempt(&s, ONE, TWO));
    let c = mine.declare_dead(&[Proof::Locks(&proof)], None).unwrap();
    assert_eq!((c.epoch, states(&c)), (5, vec![(1, 1, Up), (2, 2, Dead)]));
    let same = mine.declare_dead(&[Proof::Locks(&proof)], None).unwrap();
    assert_eq!(same.epoch, 5, "nothing has changed");
    assert!(matches!(
        mine.leave(TWO, 2, None),
        Err(Error::Membership(_))
    ));
    // A second death comes in the middle: the recoverer's. A third instance goes on with both.
    s.kill_client(1);
    drop((proof, one, two, mine, theirs));
    let three = instance(&s, THREE);
    let its = ClusterFile::open(&s.as_client(3)).unwrap();
    its.join(&three.lease, "127.0.0.1:5603", None).unwrap();
    let (first, second) = (dead(attempt(&s, THREE, ONE)), dead(attempt(&s, THREE, TWO)));
    let proofs = [Proof::Locks(&first), Proof::Locks(&second)];
    let c = its.declare_dead(&proofs, None).unwrap();
    assert_eq!(
        (c.epoch, states(&c)),
        (7, vec![(1, 1, Dead), (2, 2, Dead), (3, 1, Up)])
    );
    its.close(&second, None).unwrap();
    assert!(its.close(&second, None).is_err(), "closed already");
    drop((first, second));
    // The recovered instance comes back in a new life. The other one must be recovered first.
    let again = start(&s, TWO, 22).unwrap();
    let (me, c) = its.join(&again.lease, "elsewhere:1", None).unwrap();
    assert_eq!((me.incarnation, c.epoch), (3, 9));
    let early = start(&s, ONE, 11).unwrap();
    let e = its.join(&early.lease, "", None).unwrap_err();
    assert!(e.to_string().contains("must be recovered"), "{e}");
}

#[test]
fn a_fence_command_is_proof_for_the_life_that_it_ended_only() {
    let s = world();
    let two = instance(&s, TWO);
    let c = ClusterFile::open(&s.as_client(1)).unwrap();
    c.join(&two.lease, "", None).unwrap();
    let fence = FenceCommand::new(&["true".to_string()]).unwrap();
    let declare = |instance, incarnation| {
        let fenced = fence.run(instance, incarnation, "").unwrap();
        c.declare_dead(&[Proof::Fence(&fenced)], None)
    };
    assert!(declare(TWO, 7).is_err(), "another life");
    assert!(declare(THREE, 1).is_err(), "never a member");
    let after = declare(TWO, 1).unwrap();
    assert_eq!(states(&after), [(2, 1, MemberState::Dead)]);
}

#[test]
fn who_holds_the_control_file_too_long_is_reported_and_who_dies_gives_it_up() {
    let s = world();
    let a = ClusterFile::open(&s.as_client(1)).unwrap();
    let b = ClusterFile::open(&s.as_client(2)).unwrap();
    a.exclusive(None, || {
        let soon = std::time::Instant::now() + std::time::Duration::from_millis(20);
        let e = b.exclusive(Some(soon), || Ok(())).unwrap_err();
        assert!(e.to_string().contains("for too long"), "{e}");
        Ok(())
    })
    .unwrap();
    b.exclusive(None, || Ok(())).unwrap();
    let died: storage::Result<()> = a.exclusive(None, || {
        s.kill_client(1);
        Ok(())
    });
    assert!(died.is_err());
    b.exclusive(None, || Ok(())).unwrap();
}

/// Power is lost at every write of a series of decisions. What is found is the last decision, or
/// the one that was being written.
#[test]
fn a_crash_at_any_decision_leaves_the_old_membership_or_the_new() {
    let decisions = |s: &SimStorage, done: &mut Vec<Cluster>| -> storage::Result<()> {
        let c = ClusterFile::open(s)?;
        done.push(c.read()?);
        let lease = Lease::new(ONE, Arc::new(|_| {}));
        let through = lease.storage(Arc::new(s.clone()), OnError::Tell);
        through.open("data", FileKind::Data)?;
        for _ in 0..4 {
            let (me, joined) = c.join(&lease, "somewhere:1", None)?;
            done.push(joined);
            done.push(c.leave(ONE, me.incarnation, None)?);
        }
        Ok(())
    };
    let mut all = Vec::new();
    let s = world();
    let before = s.writes();
    decisions(&s, &mut all).unwrap();
    let writes = s.writes() - before;
    assert_eq!((all.len(), writes), (9, 16));
    for at in 1..=writes {
        for seed in 0..20 {
            let s = world();
            s.set_faults(Faults {
                crash_at_write: Some(s.writes() + at),
                ..Faults::default()
            });
            let mut done = Vec::new();
            assert!(decisions(&s, &mut done).is_err() && s.crashed());
            let after = ClusterFile::open(&s.after_crash(seed)).unwrap();
            let found = after.read().unwrap();
            let last = done.len() - 1;
            assert!(
                found == all[last] || found == all[last + 1],
                "write {at}, seed {seed}: {found:?}"
            );
        }
    }
}

/// A decayed slot must not bring back a former membership: an incarnation could be given out twice.
#[test]
fn a_slot_that_decays_does_not_bring_back_a_former_membership() {
    for decisions in 1..=2 {
        for slot in [64 << 10, 80 << 10] {
            let s = world();
            let one = instance(&s, ONE);
            let c = ClusterFile::open(&s.as_client(1)).unwrap();
            let mut last = c.join(&one.lease, "", None).unwrap().1;
            if decisions == 2 {
                last = c.leave(ONE, 1, None).unwrap();
            }
            s.flip_bit("control", slot + 30, 1);
            assert_eq!(c.read().unwrap(), last);
        }
    }
}

/// An instance that reads orders needs no room on the disk, nor does one that gives an order in a
/// database that was made with room for orders. So an instance can join on a full disk.
#[test]
fn orders_are_read_on_a_full_disk_and_given_where_room_was_prepared() {
    let order = Order {
        instance: TWO,
        incarnation: 4,
        by: ONE,
        epoch: 9,
    };
    for prepared in [true, false] {
        let s = world();
        if prepared {
            Orders::open(&s).unwrap().prepare().unwrap();
        }
        s.set_faults(Faults {
            capacity: Some(s.used()),
            ..Faults::default()
        });
        let orders = Orders::open(&s).unwrap();
        assert_eq!(orders.read(TWO).unwrap(), None);
        let given = orders.give(order);
        let other = Orders::open(&s.as_client(3)).unwrap();
        if prepared {
            given.unwrap();
        } else {
            assert!(matches!(given, Err(Error::Full { .. })), "{given:?}");
            assert_eq!(other.read(TWO).unwrap(), None);
            s.set_faults(Faults::default());
            orders.give(order).unwrap();
        }
        assert_eq!(other.read(TWO).unwrap(), Some(order));
        assert_eq!(other.read(ONE).unwrap(), None);
    }
}

#[test]
fn orders_are_read_back_and_a_torn_one_is_none() {
    let s = world();
    let orders = Orders::open(&s).unwrap();
    assert_eq!(orders.read(TWO).unwrap(), None);
    let order = Order {
        instance: TWO,
        incarnation: 4,
        by: ONE,
        epoch: 9,
    };
    orders.give(order).unwrap();
    let other = Orders::open(&s.as_client(3)).unwrap();
    assert_eq!(other.read(TWO).unwrap(), Some(order));
    assert_eq!(other.read(ONE).unwrap(), None);
    for byte in 0..28 {
        s.flip_bit("evict", SECTOR + byte, 1);
        assert_eq!(other.read(TWO).unwrap(), None, "byte {byte}");
        s.flip_bit("evict", SECTOR + byte, 1);
    }
    assert_eq!(other.read(TWO).unwrap(), Some(order));
}
