//! Instances in one process that meet over a real interconnect on loopback and share one simulated
//! storage. They join, send messages, leave, come back, die and hang.

use crate::common::*;
use block::{BlockBuf, InstanceId};
use engine::cluster::{ClusterHost, Eviction, Layer, MemberState, Members};
use engine::*;
use interconnect::{Bound, Fault, Parcel, Route, Secret};
use seam::{Condvar, Mutex};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::lease::{Orders, lease_byte};
use storage::{Faults, SimStorage, Storage};
use testkit::seeds::{number, seeds};

/// Longer than anything here takes on a loaded machine. Only a failing test waits for so long.
const PATIENCE: Duration = Duration::from_secs(60);
const HEARTBEAT: Duration = Duration::from_millis(20);
/// A kind of messages that only this test has.
const NOTE: u16 = 290;

/// What the protocol of an instance has been told.
#[derive(Default)]
struct Book {
    notes: Vec<(InstanceId, u64, Vec<u8>, Option<u8>)>,
    members: Vec<Members>,
    settled: Vec<u64>,
    left: bool,
    ended: Vec<String>,
}

#[derive(Default)]
struct Recorder {
    book: Mutex<Book>,
    changed: Condvar,
}

impl Recorder {
    fn write(&self, f: impl FnOnce(&mut Book)) {
        f(&mut self.book.lock());
        self.changed.notify_all();
    }
    /// Waits until the book is as wanted.
    fn until(&self, what: &str, f: impl Fn(&Book) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut book = self.book.lock();
        while !f(&book) {
            assert!(
                !self.changed.wait_until(&mut book, deadline).timed_out(),
                "waited in vain: {what}"
            );
        }
    }
}

impl Layer for Recorder {
    fn message(
        &self,
        from: InstanceId,
        epoch: u64,
        kind: u16,
        body: &[u8],
        block: Option<&BlockBuf>,
    ) -> std::result::Result<(), String> {
        assert_eq!(kind, NOTE);
        if body == b"nonsense" {
            return Err("that is nonsense".to_string());
        }
        let first = block.map(|b| b.0[0]);
        self.write(|b| b.notes.push((from, epoch, body.to_vec(), first)));
        Ok(())
    }
    fn reconnected(&self, _: InstanceId) {
        self.changed.notify_all();
    }
    fn tick(&self) {}
    fn members_changed(&self, members: &Members) -> Result<()> {
        self.write(|b| b.members.push(members.clone()));
        Ok(())
    }
    fn settled(&self, epoch: u64) {
        self.write(|b| b.settled.push(epoch));
    }
    fn leaving(&self, _: &dyn Progress) -> Result<()> {
        self.write(|b| b.left = true);
        Ok(())
    }
}

fn secret(text: &str) -> Secret {
    Secret::new(format!("the secret of this test: {text}").as_bytes()).unwrap()
}

struct Node {
    engine: Arc<Engine>,
    book: Arc<Recorder>,
}

impl Node {
    fn note(&self, to: u16, body: &[u8], block: Option<&BlockBuf>) {
        let cluster = self.engine.cluster().unwrap();
        let parcel = Parcel {
            route: Route::Hash(7),
            kind: NOTE,
            epoch: cluster.members().epoch,
            body,
            block,
        };
        cluster.post().send(InstanceId(to), parcel);
    }
    fn up(&self) -> Vec<(u16, u32)> {
        let members = self.engine.cluster().unwrap().members();
        let number = |m: &interconnect::Member| (m.instance.0, m.incarnation);
        members.up.iter().map(number).collect()
    }
    fn stop(&self) {
        self.engine.stop(&Quiet).unwrap();
    }
    /// Silences the instance.
    fn silence(&self) {
        let cluster = self.engine.cluster().unwrap();
        cluster.interconnect().unwrap().stop();
    }
}

fn start(s: &SimStorage, k: u16, client: u32, secret_text: &str) -> Result<Node> {
    start_with(s, k, client, secret_text, Eviction::default())
}

fn start_with(
    s: &SimStorage,
    k: u16,
    client: u32,
    secret_text: &str,
    eviction: Eviction,
) -> Result<Node> {
    let book: Arc<Recorder> = Arc::default();
    let storage: Arc<dyn Storage> = Arc::new(s.as_client(client));
    let bound = Bound::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let ended = book.clone();
    let host = Host {
        members: vec![storage.clone()],
        storage,
        fatal: Arc::new(move |why| ended.write(|b| b.ended.push(why.to_string()))),
        cluster: Some(ClusterHost {
            heartbeat: HEARTBEAT,
            eviction,
            stands_in: false,
            layers: vec![(NOTE..=NOTE, book.clone())],
            ..ClusterHost::new(bound, secret(secret_text))
        }),
    };
    let config = Config {
        instance: k,
        join_others: true,
        ..config()
    };
    let engine = Engine::open_on(config, host, &Quiet)?;
    Ok(Node { engine, book })
}

/// An instance that has lived before finds all its files. So it joins others also on a full disk,
/// where members cannot make the file of eviction orders.
#[test]
fn members_join_on_a_full_disk() {
    let (s, _) = create();
    // Each instance starts alone, so nothing is made that only several instances need.
    for k in [2, 1] {
        let alone = start(&s, k, k.into(), "a").unwrap();
        alone.engine.stop(&Quiet).unwrap();
    }
    s.set_faults(Faults {
        capacity: Some(s.used()),
        ..Faults::default()
    });
    let one = start(&s, 1, 1, "a").unwrap();
    let two = start(&s, 2, 2, "a").unwrap();
    assert_eq!(one.up().len(), 2);
    for node in [two, one] {
        node.engine.stop(&Quiet).unwrap();
    }
}

#[test]
fn members_join_talk_leave_and_come_back() {
    let (s, _) = create();
    let one = start(&s, 1, 1, "a").unwrap();
    assert!(one.up() == [(1, 3)] && one.book.book.lock().members.is_empty());
    let two = start(&s, 2, 2, "a").unwrap();
    // When the joiner is open, all know it.
    assert_eq!(one.up(), [(1, 3), (2, 1)]);
    assert_eq!(two.up(), one.up());
    let epoch = two.engine.cluster().unwrap().members().epoch;
    one.book
        .until("the epoch is settled", |b| b.settled == [epoch]);
    one.note(2, b"hello", None);
    let mut block = BlockBuf::zeroed();
    block.0.fill(9);
    two.note(1, b"a block", Some(&block));
    two.book.until("a note", |b| {
        b.notes == [(InstanceId(1), epoch, b"hello".to_vec(), None)]
    });
    one.book.until("a block", |b| {
        b.notes == [(InstanceId(2), epoch, b"a block".to_vec(), Some(9))]
    });
    // A message that nobody understands costs the connection, which is made again.
    one.note(2, b"nonsense", None);
    let again = Instant::now() + PATIENCE;
    while two.book.book.lock().notes.len() < 2 {
        assert!(Instant::now() < again, "the connection does not come back");
        one.note(2, b"again", None);
        std::thread::yield_now();
    }
    two.stop();
    assert!(two.book.book.lock().left);
    one.book.until("instance 2 has left", |b| {
        b.members.last().is_some_and(Members::is_alone)
    });
    let third = start(&s, 3, 3, "a").unwrap();
    let two = start(&s, 2, 22, "a").unwrap();
    for node in [&one, &two, &third] {
        assert_eq!(node.up(), [(1, 3), (2, 2), (3, 1)]);
        let settled = node.engine.cluster().unwrap().members().epoch;
        node.book
            .until("all three", |b| b.settled.last() == Some(&settled));
    }
    third.note(1, b"from three", None);
    two.note(3, b"from two", None);
    one.book.until("three's note", |b| {
        b.notes.iter().any(|n| n.0 == InstanceId(3))
    });
    third.book.until("two's note", |b| {
        b.notes.iter().any(|n| n.0 == InstanceId(2))
    });
    one.stop();
    two.book.until("instance 1 has left", |b| {
        b.members.last().is_some_and(|m| m.up.len() == 2)
    });
    two.stop();
    third.stop();
    for node in [&one, &two, &third] {
        assert!(node.book.book.lock().ended.is_empty());
    }
}

/// Transactions of two instances work on one table, in turn. Whatever one has committed the other
/// sees at once, by every way to it. Members leave cleanly and come back meanwhile.
#[test]
fn what_one_commits_the_other_sees() {
    for seed in seeds("BRAID_SEED", [1, 2]) {
        let mut rng = Rng(seed);
        let (s, table) = create();
        let mut model = Model::new();
        let one = start(&s, 1, 1, "a").unwrap();
        for life in 0..3 {
            let two = start(&s, 2, 20 + life, "a").unwrap();
            for turn in 0..number("BRAID_ROUNDS", 12) {
                let what = format!("BRAID_SEED={seed}, life {life}, turn {turn}");
                let writer = if rng.one_in(2) { &one } else { &two };
                let mut session = writer.engine.session().unwrap();
                let mut new = model.clone();
                session.begin(Isolation::ReadCommitted).unwrap();
                changes(&mut session, &table, &mut new, &mut rng, 4, 30)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                if rng.one_in(4) {
                    session.rollback().unwrap();
                } else {
                    session.commit().unwrap();
                    model = new;
                }
                drop(session);
                for node in [&one, &two] {
                    let found =
                        contents(&node.engine, &table).unwrap_or_else(|e| panic!("{what}: {e}"));
                    let k = node.engine.instance();
                    assert_same(&found, &model, &format!("{what}, seen by instance {k}"));
                }
            }
            two.stop();
        }
        one.stop();
        // One instance is alone, and has the statuses of an instance that is down.
        let engine = open(&s).unwrap();
        assert_same(&contents(&engine, &table).unwrap(), &model, "alone");
        verify_all(&engine, &table, "alone").unwrap();
        engine.stop(&Quiet).unwrap();
    }
}

#[test]
fn who_has_another_secret_is_refused_before_it_is_a_member() {
    let (s, _) = create();
    let one = start(&s, 1, 1, "a").unwrap();
    let refused = start(&s, 2, 2, "b").err().unwrap();
    assert!(
        refused.to_string().contains("another cluster secret"),
        "{refused}"
    );
    assert_eq!(one.up(), [(1, 3)]);
    let two = start(&s, 2, 3, "a").unwrap();
    let same = start(&s, 2, 4, "a").err().unwrap();
    assert!(
        matches!(&same, Error::Storage(storage::Error::InUse { .. })),
        "{same}"
    );
    let version = Config {
        instance: 3,
        join_others: false,
        ..config()
    };
    let alone = open_with(version, &s).err().unwrap();
    assert_eq!(alone.sqlstate(), "0A000", "{alone}");
    two.stop();
    one.stop();
}

/// A joiner that does not see a living member's locks is on a mount that keeps locks to itself. It
/// would take a living member for dead one day.
#[test]
fn who_does_not_see_a_members_locks_is_refused() {
    let (s, _) = create();
    let one = start(&s, 1, 1, "a").unwrap();
    assert!(s.lose_lock("data/0001.dbf", lease_byte(InstanceId(1))));
    let refused = start(&s, 2, 2, "a").err().unwrap();
    let local = matches!(
        &refused,
        Error::Storage(storage::Error::LocksAreLocal { peer: 1, .. })
    );
    assert!(local, "{refused}");
    assert_eq!(one.up(), [(1, 3)]);
    // The member has noticed that its lock is gone, or will notice. It must write no more.
    one.book.until("its end", |b| !b.ended.is_empty());
    std::mem::forget(one.engine);
}

/// A member that is silent but has its locks is waited for. Once the locks are free the member is
/// dead, and the other goes on.
#[test]
fn silence_is_no_death_and_free_locks_are() {
    let (s, _) = create();
    let one = start(&s, 1, 1, "a").unwrap();
    let two = start(&s, 2, 2, "a").unwrap();
    let cut = Fault {
        cut: true,
        ..Fault::default()
    };
    let interconnect = one.engine.cluster().unwrap().interconnect().unwrap();
    interconnect.set_fault(InstanceId(2), cut).unwrap();
    one.engine
        .cluster()
        .unwrap()
        .interconnect()
        .unwrap()
        .drop_connections(InstanceId(2))
        .unwrap();
    // This is several times as long as it takes to become suspicious.
    std::thread::park_timeout(HEARTBEAT * 100);
    assert!(one.book.book.lock().ended.is_empty() && two.book.book.lock().ended.is_empty());
    interconnect
        .set_fault(InstanceId(2), Fault::default())
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while two.book.book.lock().notes.is_empty() {
        assert!(
            Instant::now() < deadline,
            "the connection does not come back"
        );
        one.note(2, b"there?", None);
        std::thread::yield_now();
    }
    // The process is killed: its locks go, and it answers nothing.
    s.kill_client(2);
    two.silence();
    one.book.until("instance 2 is dead and recovered", |b| {
        let lonely = |m: &Members| m.is_alone() && m.in_limbo == [InstanceId(2)];
        b.members.iter().any(|m| lonely(m) && m.dead.len() == 1)
            && b.members
                .last()
                .is_some_and(|m| lonely(m) && m.dead.is_empty())
    });
    assert!(one.book.book.lock().ended.is_empty());
    // No survivor is left to recover instance 2: the start recovers both.
    s.kill_client(1);
    let again = start(&s, 2, 22, "a").unwrap();
    let recovery = again.engine.recovery().expect("two threads were open");
    assert_eq!((recovery.threads, again.up()), (2, vec![(2, 2)]));
    again.stop();
}

/// A start that finds one member dead and another alive declares the death. It joins when the
/// living member has recovered the blocks of the dead one.
#[test]
fn a_start_declares_the_dead_and_waits_for_their_recovery() {
    let (s, _) = create();
    let one = start(&s, 1, 1, "a").unwrap();
    let two = start(&s, 2, 2, "a").unwrap();
    // Its connections stay, so only a start finds out that it is dead.
    s.kill_client(2);
    let three = start(&s, 3, 3, "a").unwrap();
    assert_eq!(three.up(), [(1, 3), (3, 1)]);
    assert_eq!(
        three.engine.cluster().unwrap().members().in_limbo,
        [InstanceId(2)]
    );
    assert!(three.engine.recovery().is_none(), "its own thread is new");
    two.silence();
    let again = start(&s, 2, 22, "a").unwrap();
    assert!(again.engine.recovery().is_some_and(|r| r.threads == 1));
    for node in [&one, &three, &again] {
        assert_eq!(node.up(), [(1, 3), (2, 2), (3, 1)]);
        assert!(node.book.book.lock().ended.is_empty());
    }
    [again, three, one].iter().for_each(Node::stop);
}

/// An instance that starts looks at the dead, and gets their locks for that. It does not keep the
/// locks while it waits to be let in: the next life of a dead instance may be starting, too.
#[test]
fn who_waits_to_be_let_in_keeps_nobody_else_out() {
    let (s, _) = create();
    let [one, two, three] = [1, 2, 3].map(|k| start(&s, k, k.into(), "a").unwrap());
    s.kill_client(3);
    three.silence();
    one.book.until("3 is recovered", |b| {
        let last = b.members.last();
        last.is_some_and(|m| m.dead.is_empty() && m.in_limbo == [InstanceId(3)])
    });
    // Instance 2 has its locks and says nothing, so no joiner is let in.
    two.silence();
    let state = |k| {
        let records = one.engine.cluster().unwrap().records().unwrap();
        records.member(InstanceId(k)).map(|m| m.state)
    };
    let begin = |k: u16, client| {
        let s = s.clone();
        let thread = std::thread::spawn(move || start(&s, k, client, "a"));
        let deadline = Instant::now() + PATIENCE;
        while state(k) != Some(MemberState::Up) && !thread.is_finished() {
            assert!(Instant::now() < deadline, "{k} does not join");
            std::thread::park_timeout(Duration::from_millis(2));
        }
        thread
    };
    let coming = [begin(4, 4), begin(3, 33)];
    s.kill_client(2);
    let [four, again] = coming.map(|thread| thread.join().unwrap().unwrap());
    [again, four, one].iter().for_each(Node::stop);
}

/// Two living instances do not hear each other. The end of one is ordered, that of the other is
/// not. Only when its guard has ended it is it dead, and its work is recovered.
#[test]
fn of_two_that_are_cut_apart_one_is_ended() {
    let (s, _) = create();
    let soon = Eviction {
        misscount: Duration::from_secs(1),
        fence: None,
    };
    let one = start_with(&s, 1, 1, "a", soon.clone()).unwrap();
    let two = start_with(&s, 2, 2, "a", soon).unwrap();
    let cut = Fault {
        cut: true,
        ..Fault::default()
    };
    for (node, peer) in [(&one, 2), (&two, 1)] {
        let interconnect = node.engine.cluster().unwrap().interconnect().unwrap();
        interconnect.set_fault(InstanceId(peer), cut).unwrap();
        interconnect.drop_connections(InstanceId(peer)).unwrap();
    }
    let orders = Orders::open(&s).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let order = loop {
        assert!(Instant::now() < deadline, "nobody's end is ordered");
        if let Some(order) = orders.read(InstanceId(2)).unwrap() {
            break order;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    };
    assert_eq!((order.incarnation, order.by), (1, InstanceId(1)));
    assert!(
        one.book
            .book
            .lock()
            .members
            .iter()
            .all(|m| m.dead.is_empty())
    );
    // Without a guard, the instance finds the order when it would give one itself.
    two.book.until("it has read the order", |b| {
        b.ended
            .iter()
            .any(|why| why.contains("instance 1 has ordered the end"))
    });
    assert_eq!(orders.read(InstanceId(1)).unwrap(), None);
    s.kill_client(2);
    two.silence();
    one.book.until("2 is recovered", |b| {
        let last = b.members.last();
        last.is_some_and(|m| m.is_alone() && m.dead.is_empty() && !m.in_limbo.is_empty())
    });
    assert!(one.book.book.lock().ended.is_empty());
    one.stop();
}

/// An instance that cannot read the files that all share ends after as long as the others would
/// wait for a silent one. The others go on with what it leaves.
#[test]
fn who_cannot_read_for_long_ends() {
    let (s, _) = create();
    let eviction = Eviction {
        misscount: Duration::from_secs(1),
        ..Eviction::default()
    };
    let [one, two] =
        [1, 2].map(|k| start_with(&s, k, k.into(), "a", eviction.clone()).expect("it starts"));
    s.set_faults(Faults {
        client: Some(1),
        fail_from_read: Some(s.reads() + 1),
        fail_reads: u64::MAX,
        ..Faults::default()
    });
    one.book.until("it ends itself", |b| !b.ended.is_empty());
    let why = one.book.book.lock().ended[0].clone();
    assert!(why.starts_with("it cannot see to the members"), "{why}");
    s.kill_client(1);
    one.silence();
    two.book.until("it is recovered", |b| {
        let last = b.members.last();
        last.is_some_and(|m| m.is_alone() && m.dead.is_empty())
    });
    assert!(two.book.book.lock().ended.is_empty());
    two.stop();
}

/// A member that is to recover the dead for all others, and can make nothing durable, ends.
/// Otherwise it would try for ever, and the others would wait.
#[test]
fn who_cannot_recover_the_dead_leaves_it_to_another() {
    let (s, _) = create();
    let [one, two, three] = [1, 2, 3].map(|k| start(&s, k, k.into(), "a").unwrap());
    s.set_faults(Faults {
        client: Some(1),
        fail_from_sync: Some(s.syncs() + 1),
        fail_syncs: u64::MAX,
        syncs_can_be_repeated: true,
        ..Faults::default()
    });
    let end = |node: &Node, client| {
        s.kill_client(client);
        node.silence();
    };
    end(&three, 3);
    one.book.until("it ends itself", |b| !b.ended.is_empty());
    let why = one.book.book.lock().ended[0].clone();
    assert!(why.starts_with("it cannot "), "{why}");
    end(&one, 1);
    two.book.until("both are recovered", |b| {
        let last = b.members.last();
        last.is_some_and(|m| m.is_alone() && m.dead.is_empty() && m.in_limbo.len() == 2)
    });
    assert!(two.book.book.lock().ended.is_empty());
    two.stop();
}
