//! Leases between real processes: killed, stopped, with other descriptors and children of their
//! own.
//!
//! The test binary starts itself again; [`child`] runs in the other process.

use block::InstanceId;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use storage::lease::{
    Attempt, Claim, ClusterFile, GuardEnd, Lease, OnError, Order, Orders, Proof, Takeover, canary,
    guard,
};
use storage::{AlignedBuf, Control, ControlFile, Error, FileKind, OsStorage, SECTOR, Storage};

const MODE: &str = "BRAID_LEASE_CHILD";
const DIR: &str = "BRAID_LEASE_DIR";
const TWO: InstanceId = InstanceId(2);
const ROUNDS: u64 = 60;

fn files() -> Vec<(String, FileKind)> {
    vec![
        ("control".to_string(), FileKind::Control),
        ("data".to_string(), FileKind::Data),
        ("log".to_string(), FileKind::Log),
    ]
}

struct World(PathBuf);

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl World {
    fn new(name: &str) -> World {
        let dir = std::env::temp_dir().join(format!("braid-lease-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let w = World(dir);
        let s = w.storage();
        ControlFile::create(&s, Control::default()).unwrap();
        for (name, kind) in &files()[1..] {
            let f = s.create(name, *kind).unwrap();
            f.allocate(SECTOR as u64, true, &mut |_| {}).unwrap();
        }
        w
    }
    fn storage(&self) -> OsStorage {
        OsStorage::new(&self.0).unwrap()
    }
    fn attempt(&self) -> Attempt {
        let claim = Claim {
            storage: Arc::new(self.storage()),
            on_error: OnError::Tell,
            files: files(),
        };
        Takeover::attempt(TWO, Arc::new(|why| panic!("{why}")), &[claim]).unwrap()
    }
    fn is_held(&self) -> bool {
        matches!(self.attempt(), Attempt::Held(_))
    }
}

/// The other process, which answers each line with a line.
struct Other {
    process: Child,
    /// The pipe to the other process, which ends when this is closed.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Other {
    fn start(world: &World, mode: &str) -> Other {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env(MODE, mode)
            .env(DIR, &world.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut other = Other {
            process,
            ask,
            answers,
        };
        other.hear("READY");
        other
    }
    fn hear(&mut self, what: &str) -> String {
        let mut line = String::new();
        while !line.contains(what) {
            line.clear();
            let n = self.answers.read_line(&mut line).unwrap();
            assert!(n > 0, "the other process ended without saying {what}");
            assert!(!line.contains("LOST"), "the other process lost its locks");
        }
        line
    }
    fn ask(&mut self, what: &str, answer: &str) -> String {
        writeln!(self.ask.as_mut().unwrap(), "{what}").unwrap();
        self.hear(answer)
    }
    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }
    fn signal(&self, s: Signal) {
        rustix::process::kill_process(self.pid(), s).unwrap();
    }
    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Runs the body of the other process, and is not a test by itself.
#[test]
fn child() {
    let (Ok(mode), Ok(dir)) = (std::env::var(MODE), std::env::var(DIR)) else {
        return;
    };
    let storage = Arc::new(OsStorage::new(Path::new(&dir)).unwrap());
    let lease = Lease::new(TWO, Arc::new(|why| println!("ENDED {why}")));
    let through = lease.storage(storage.clone(), OnError::EndInstance);
    let hold = || {
        for (name, kind) in files() {
            through.open(&name, kind).unwrap();
        }
    };
    let mut grandchild = None;
    let mut posix = None;
    match &mode[..] {
        "hold" => hold(),
        "closes-another" => {
            hold();
            for (name, kind) in files() {
                drop(storage.open(&name, kind).unwrap());
            }
        }
        "has-a-child" => {
            hold();
            let mut sleep = Command::new("sleep");
            sleep.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
            grandchild = Some(sleep.spawn().unwrap());
        }
        "posix" => posix = Some(posix_lock(Path::new(&dir))),
        "counts" => count(&*storage),
        "joins" => {
            hold();
            let cluster = ClusterFile::open(&*storage).unwrap();
            cluster.join(&lease, "h:1", None).unwrap();
        }
        "waits" => {}
        other => panic!("no mode {other}"),
    }
    println!("READY");
    for line in std::io::stdin().lines() {
        match &line.unwrap()[..] {
            "check" if lease.check().is_ok() => println!("HELD"),
            "check" => println!("LOST"),
            "grandchild" => println!("PID {}", grandchild.as_ref().map_or(0, Child::id)),
            other => panic!("no question {other}"),
        }
    }
    drop(posix);
}

/// Takes a record lock of POSIX, then closes another descriptor of the file.
fn posix_lock(dir: &Path) -> std::fs::File {
    let open = || std::fs::File::options().write(true).open(dir.join("data"));
    let f = open().unwrap();
    rustix::fs::fcntl_lock(&f, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    drop(open().unwrap());
    f
}

/// Reads a number, adds one and writes it, without any care but the lock.
fn count(storage: &dyn Storage) {
    let cluster = ClusterFile::open(storage).unwrap();
    let file = storage.open("data", FileKind::Data).unwrap();
    let mut b = AlignedBuf::zeroed(SECTOR);
    for _ in 0..ROUNDS {
        cluster
            .exclusive(None, || {
                file.read_at(0, &mut b)?;
                let n = u64::from_le_bytes(b[..8].try_into().unwrap());
                std::thread::yield_now();
                b[..8].copy_from_slice(&(n + 1).to_le_bytes());
                file.write_at(0, &b)
            })
            .unwrap();
    }
}

#[test]
fn a_killed_instance_is_proved_dead_and_stays_out_until_its_locks_are_let_go() {
    let w = World::new("kill");
    let mut two = Other::start(&w, "hold");
    two.ask("check", "HELD");
    assert!(w.is_held());
    canary(&w.storage(), TWO, &files()).unwrap();
    two.kill();
    let died = canary(&w.storage(), TWO, &files());
    assert!(
        matches!(died, Err(Error::LocksAreLocal { .. })),
        "the caller makes sure that the peer lives"
    );
    let Attempt::Dead(takeover) = w.attempt() else {
        panic!("it was waited for: its locks are free")
    };
    let lease = Lease::new(TWO, Arc::new(|why| panic!("{why}")));
    let through = lease.storage(Arc::new(w.storage()), OnError::EndInstance);
    let refused = through.open("data", FileKind::Data);
    assert!(matches!(refused, Err(Error::InUse { .. })));
    drop(takeover);
    through.open("data", FileKind::Data).unwrap();
}

/// A stopped process would finish its write when it wakes, so it is not dead.
#[test]
fn a_stopped_instance_keeps_its_locks() {
    let w = World::new("stop");
    let mut two = Other::start(&w, "hold");
    two.signal(Signal::STOP);
    let waited = rustix::process::waitpid(Some(two.pid()), WaitOptions::UNTRACED).unwrap();
    assert!(waited.unwrap().1.stopped());
    for _ in 0..10 {
        assert!(w.is_held());
    }
    two.signal(Signal::CONT);
    two.ask("check", "HELD");
    assert!(w.is_held());
}

#[test]
fn closing_another_descriptor_of_the_file_loses_nothing() {
    let w = World::new("close");
    let mut two = Other::start(&w, "closes-another");
    assert!(w.is_held());
    two.ask("check", "HELD");
    // This shows what happens with the record locks of POSIX.
    let w = World::new("posix");
    let _two = Other::start(&w, "posix");
    let f = std::fs::File::options()
        .write(true)
        .open(w.0.join("data"))
        .unwrap();
    rustix::fs::fcntl_lock(&f, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("the lock of the other process has vanished");
}

/// Descriptors are close-on-exec: a surviving child does not keep the locks of its dead parent.
#[test]
fn a_child_process_does_not_inherit_the_locks() {
    let w = World::new("child");
    let mut two = Other::start(&w, "has-a-child");
    let said = two.ask("grandchild", "PID ");
    let pid = said.split("PID ").nth(1).unwrap().trim().parse().unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    assert!(w.is_held());
    two.kill();
    // The child has the locks until it executes its program, which on a busy machine may be just
    // now.
    let began = std::time::Instant::now();
    let mut held = true;
    while held && began.elapsed() < Duration::from_secs(60) {
        held = w.is_held();
    }
    rustix::process::test_kill_process(pid).expect("the grandchild lives");
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert!(!held);
}

#[test]
fn decisions_of_several_processes_are_made_one_after_the_other() {
    let w = World::new("count");
    let others: Vec<Other> = std::thread::scope(|s| {
        let started: Vec<_> = (0..3)
            .map(|_| s.spawn(|| Other::start(&w, "counts")))
            .collect();
        started.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let mut b = AlignedBuf::zeroed(SECTOR);
    let data = w.storage().open("data", FileKind::Data).unwrap();
    data.read_at(0, &mut b).unwrap();
    let n = u64::from_le_bytes(b[..8].try_into().unwrap());
    assert_eq!(n, ROUNDS * others.len() as u64);
}

#[test]
fn the_guard_kills_the_life_that_is_ordered_to_end_and_no_other() {
    let w = World::new("guard");
    let mut two = Other::start(&w, "joins");
    let mine = ClusterFile::open(&w.storage()).unwrap();
    let before = mine.read().unwrap();
    assert_eq!(before.member(TWO).unwrap().incarnation, 1);
    let orders = Orders::open(&w.storage()).unwrap();
    let order = |incarnation| Order {
        instance: TWO,
        incarnation,
        by: InstanceId(1),
        epoch: before.epoch,
    };
    // These orders are for a life before this one, and for another instance.
    orders.give(order(0)).unwrap();
    orders
        .give(Order {
            instance: InstanceId(3),
            ..order(9)
        })
        .unwrap();
    let child = rustix::process::pidfd_open(two.pid(), PidfdFlags::empty()).unwrap();
    let its = Orders::open(&w.storage()).unwrap();
    let guarding = || guard(&its, TWO, 0, child.as_fd(), Duration::from_millis(1));
    let end = std::thread::scope(|s| {
        let guarding = s.spawn(guarding);
        // Orders are read many times meanwhile, and the child lives.
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(30) {
            two.ask("check", "HELD");
        }
        orders.give(order(1)).unwrap();
        guarding.join().unwrap().unwrap()
    });
    assert_eq!(end, GuardEnd::Evicted(order(1)));
    // The child is killed and gone, but only the locks prove it.
    let Attempt::Dead(proof) = w.attempt() else {
        panic!("its locks are gone with it")
    };
    let after = mine.declare_dead(&[Proof::Locks(&proof)], None).unwrap();
    assert_eq!(after.epoch, before.epoch + 1);
    mine.close(&proof, None).unwrap();
}

#[test]
fn the_guard_says_when_its_child_has_ended_by_itself() {
    let w = World::new("ended");
    let mut two = Other::start(&w, "waits");
    let child = rustix::process::pidfd_open(two.pid(), PidfdFlags::empty()).unwrap();
    let orders = Orders::open(&w.storage()).unwrap();
    drop(two.ask.take());
    let end = guard(&orders, TWO, 0, child.as_fd(), Duration::from_millis(5)).unwrap();
    assert_eq!(end, GuardEnd::Exited);
}
