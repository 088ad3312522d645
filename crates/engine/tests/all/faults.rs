//! Faults that an instance outlives (a full disk, a read that fails once), and those that must end
//! it (a panic in a thread of its own).

use crate::common::world::*;
use crate::common::*;
use engine::*;
use std::sync::Arc;
use storage::{Faults, File, FileKind, SimStorage, Storage};
use testkit::seeds::{number, seeds};

/// From write `at` on nothing grows. Statements fail with 53100 and are rolled back on the full
/// disk. What was acknowledged is there. With room again, everything goes on. Returns how many
/// statements failed.
fn fills_up(base: &(SimStorage, Base), seed: u64, at: u64) -> u64 {
    let what = format!("BRAID_SEED={seed}, full from write {at}");
    let (storage, base) = base;
    let (mut rng, mut expected) = (Rng(seed), Expected::new());
    let s = storage.after_crash(0);
    s.set_faults(Faults {
        full_from_write: Some(at),
        ..Faults::default()
    });
    let engine = open(&s).unwrap_or_else(|e| panic!("{what}: cannot start: {e}"));
    let mut failed = 0;
    let mut loser = engine.session().unwrap();
    loser.begin(Isolation::ReadCommitted).unwrap();
    let mut session = engine.session().unwrap();
    for n in 0..60 {
        let full = |e: Error| match e.sqlstate() {
            "53100" => 1,
            other => panic!("{what}: {other}: {e}"),
        };
        let lost = lose(&engine, &mut loser, base, &mut rng);
        failed += lost.map_or_else(full, |()| 0);
        if let Err(e) = step(&engine, &mut session, base, &mut expected, &mut rng) {
            failed += full(e);
            assert!(
                expected.under_way.is_none(),
                "{what}: a commit needs no space"
            );
            let undone = session.rollback();
            undone.unwrap_or_else(|e| panic!("{what}: rollback {n}: {e}"));
        }
        if n % 16 == 15 {
            let checkpoint = engine.checkpoint();
            checkpoint.unwrap_or_else(|e| panic!("{what}: checkpoint: {e}"));
            let undone = loser.rollback();
            undone.unwrap_or_else(|e| panic!("{what}: rollback of the other: {e}"));
            loser.begin(Isolation::ReadCommitted).unwrap();
        }
    }
    let rows = contents(&engine, &base.table).unwrap();
    assert_same(&rows, &expected.acknowledged.rows, &what);
    // Half of the runs crash on the full disk, and start on it.
    let (engine, s) = match rng.one_in(2) {
        true => {
            drop((loser, session));
            engine.abandon();
            let after = s.after_crash(rng.next());
            after.set_faults(Faults {
                full_from_write: Some(0),
                ..Faults::default()
            });
            let engine = open(&after).unwrap_or_else(|e| panic!("{what}: cannot start again: {e}"));
            check(
                &engine,
                base,
                &mut expected,
                &format!("{what}, started while full"),
            )
            .unwrap();
            (engine, after)
        }
        false => {
            loser.rollback().unwrap();
            drop((loser, session));
            (engine, s)
        }
    };
    s.set_faults(Faults::default());
    work(&engine, base, &mut expected, &mut rng, 12)
        .unwrap_or_else(|e| panic!("{what}, with room again: {}: {e}", e.sqlstate()));
    check(
        &engine,
        base,
        &mut expected,
        &format!("{what}, with room again"),
    )
    .unwrap();
    engine.stop(&Quiet).unwrap();
    failed
}

#[test]
fn a_disk_that_is_full_from_any_write_on() {
    let base = create_world();
    for seed in seeds("BRAID_SEED", [4]) {
        let mut rng = Rng(seed);
        // One in so many is tried; BRAID_FAULT_EVERY=1 tries all.
        let every = number("BRAID_FAULT_EVERY", 8);
        let (mut at, mut failed) = (1, 0);
        while at < 200 {
            failed += fills_up(&base, seed, at);
            at += 1 + rng.below(2 * every - 1);
        }
        eprintln!("{failed} statements failed");
        assert!(failed > 0, "no disk was ever full");
    }
}

/// The first life of an instance needs room for its files, or it is refused. If it opened without
/// room for its first status block, it could not stop: the checkpoint has to write that block.
#[test]
fn a_new_instance_on_a_full_disk_is_refused_or_can_stop() {
    let (s, table) = create();
    let config = Config {
        instance: 2,
        ..config()
    };
    let (mut capacity, mut refused) = (s.used(), 0);
    let engine = loop {
        s.set_faults(Faults {
            capacity: Some(capacity),
            ..Faults::default()
        });
        match open_with(config.clone(), &s) {
            Ok(engine) => break engine,
            Err(e) => assert_eq!(e.sqlstate(), "53100", "with {capacity} bytes: {e}"),
        }
        refused += 1;
        capacity += 100 << 10;
    };
    assert!(refused > 0, "its files take no room");
    contents(&engine, &table).unwrap();
    engine.stop(&Quiet).expect("a stop needs no room");
    s.set_faults(Faults::default());
    let engine = open_with(config, &s).unwrap();
    verify_all(&engine, &table, "with room again").unwrap();
    engine.stop(&Quiet).unwrap();
}

/// A read that fails once fails the statement that made it, if one did, and nothing else: no commit
/// is in doubt, and the work goes on.
#[test]
fn a_read_that_fails_once() {
    let (storage, base) = create_world();
    for seed in seeds("BRAID_SEED", [6]) {
        let mut rng = Rng(seed);
        let every = number("BRAID_FAULT_EVERY", 6);
        // A longer life comes first, so that there is more than the cache holds.
        let grown = storage.after_crash(0);
        let mut start = Expected::new();
        let engine = open(&grown).unwrap();
        work(&engine, &base, &mut start, &mut Rng(seed), 80).unwrap();
        engine.abandon();
        let grown = grown.after_crash(1);
        let (mut at, mut failed) = (1, 0u64);
        loop {
            let what = format!("BRAID_SEED={seed}, read {at} fails");
            let s = grown.after_crash(0);
            s.set_faults(Faults {
                fail_from_read: Some(at),
                fail_reads: 1,
                ..Faults::default()
            });
            let (mut rng_of_life, mut expected) = (Rng(seed ^ at), start.clone());
            let engine = match open(&s) {
                Ok(engine) => engine,
                Err(_) => {
                    failed += 1;
                    open(&s).unwrap_or_else(|e| panic!("{what}: the second start: {e}"))
                }
            };
            let mut session = engine.session().unwrap();
            for _ in 0..12 {
                let done = step(
                    &engine,
                    &mut session,
                    &base,
                    &mut expected,
                    &mut rng_of_life,
                );
                if let Err(e) = done {
                    assert_eq!(e.sqlstate(), "58030", "{what}: {e}");
                    failed += 1;
                    assert!(
                        expected.under_way.is_none(),
                        "{what}: a commit reads nothing"
                    );
                    // The failing read may be that of the rollback itself, which is tried again.
                    if session.rollback().is_err() {
                        session.rollback().unwrap_or_else(|e| panic!("{what}: {e}"));
                    }
                }
            }
            drop(session);
            let came = s.reads() >= at;
            if check(&engine, &base, &mut expected, &what).is_err() {
                failed += 1;
                check(&engine, &base, &mut expected, &what)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            engine.stop(&Quiet).unwrap();
            if !came {
                break;
            }
            at += 1 + rng.below(2 * every - 1);
        }
        eprintln!("{at} reads, {failed} errors");
        assert!(failed > 0, "no read ever failed");
    }
}

/// Counts the rows in the table's blocks that are deleted and not yet purged.
fn dead_rows(engine: &Arc<Engine>, t: &TableDef) -> usize {
    let (space, txns) = (engine.space().clone(), engine.transactions().clone());
    let heap = access::heap::Heap::open(space, txns, t.object, t.header);
    let runs = heap.block_runs().unwrap();
    let blocks = runs
        .iter()
        .flat_map(|(first, n)| (0..*n).map(|k| block::Dba::new(first.file(), first.block() + k)));
    let dead = |dba| {
        let block = engine.cache().read(dba).unwrap();
        let slots = 0..block::heap::slots(&block);
        let rows = slots.filter_map(|slot| block::heap::row(&block, slot).unwrap());
        rows.filter(|row| row.head.is_deleted()).count()
    };
    blocks.map(dead).sum()
}

/// A background purge that cannot read a block keeps the hints that come after it in the batch. If
/// it lost them, dead rows would stay until somebody happened to write to their blocks.
#[test]
fn a_purge_that_cannot_read_tries_again() {
    let (s, t) = create();
    let engine = open(&s).unwrap();
    let mut session = engine.session().unwrap();
    // These are more rows than the cache holds.
    let (rows, text) = (6000, "x".repeat(400));
    session.begin(Isolation::ReadCommitted).unwrap();
    for id in 0..rows {
        session.insert(&t, &row(id, 1, &text)).unwrap();
    }
    session.commit().unwrap();
    let mut holder = engine.session().unwrap();
    holder.begin(Isolation::RepeatableRead).unwrap();
    holder.snapshot().unwrap();
    session.begin(Isolation::ReadCommitted).unwrap();
    let snapshot = session.snapshot().unwrap();
    for id in 0..rows {
        let (rid, ..) = find(&mut session, &t, &snapshot, id).unwrap().unwrap();
        let deleted = session.delete(&t, rid, Some(&snapshot)).unwrap();
        assert_eq!(deleted, WriteOutcome::Done, "row {id}");
    }
    session.commit().unwrap();
    assert_eq!(
        dead_rows(&engine, &t),
        rows as usize,
        "the holder keeps them"
    );

    let failing = s.reads() + 1;
    s.set_faults(Faults {
        fail_from_read: Some(failing),
        fail_reads: 1 << 40,
        ..Faults::default()
    });
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let in_time = || assert!(std::time::Instant::now() < deadline, "it takes too long");
    holder.rollback().unwrap();
    while s.reads() < failing + 40 {
        in_time();
        std::thread::yield_now();
    }
    s.set_faults(Faults::default());
    while dead_rows(&engine, &t) > 0 {
        in_time();
        std::thread::yield_now();
    }
    engine.stop(&Quiet).unwrap();
}

/// A rollback that cannot read what it needs is not over, and the session's next transaction begins
/// with it. A transaction that began beside it would end the instance by an assertion.
#[test]
fn after_a_rollback_that_failed_the_next_transaction_begins_with_it() {
    let (s, t) = create();
    let engine = open(&s).unwrap();
    let mut session = engine.session().unwrap();
    // These are more rows than the cache holds: the first ones are not there when they are taken
    // back.
    let (rows, text) = (6000, "x".repeat(400));
    session.begin(Isolation::ReadCommitted).unwrap();
    for id in 0..rows {
        session.insert(&t, &row(id, 1, &text)).unwrap();
    }
    s.set_faults(Faults {
        fail_from_read: Some(s.reads() + 1),
        fail_reads: 1 << 40,
        ..Faults::default()
    });
    assert!(session.rollback().is_err());
    assert!(session.begin(Isolation::ReadCommitted).is_err());
    s.set_faults(Faults::default());
    session.begin(Isolation::ReadCommitted).unwrap();
    let snapshot = session.snapshot().unwrap();
    assert!(find(&mut session, &t, &snapshot, 0).unwrap().is_none());
    session.commit().unwrap();
    drop(session);
    engine.stop(&Quiet).unwrap();
}

/// A storage on which one thread panics at whatever it does with a file.
struct PanicsIn {
    inner: Arc<dyn Storage>,
    thread: String,
}

impl PanicsIn {
    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(PanickingFile {
            inner: file,
            thread: self.thread.clone(),
        })
    }
}

impl Storage for PanicsIn {
    fn create(&self, name: &str, kind: FileKind) -> storage::Result<Arc<dyn File>> {
        self.inner.create(name, kind).map(|f| self.wrap(f))
    }
    fn open(&self, name: &str, kind: FileKind) -> storage::Result<Arc<dyn File>> {
        self.inner.open(name, kind).map(|f| self.wrap(f))
    }
    fn exists(&self, name: &str) -> storage::Result<bool> {
        self.inner.exists(name)
    }
    fn remove(&self, name: &str) -> storage::Result<()> {
        self.inner.remove(name)
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

struct PanickingFile {
    inner: Arc<dyn File>,
    thread: String,
}

impl PanickingFile {
    fn here(&self) -> &dyn File {
        if std::thread::current().name() == Some(&self.thread) {
            panic!("{} broke an invariant", self.thread);
        }
        &*self.inner
    }
}

impl File for PanickingFile {
    fn path(&self) -> &str {
        self.inner.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> storage::Result<()> {
        self.here().read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> storage::Result<()> {
        self.here().write_at(offset, buf)
    }
    fn sync(&self) -> storage::Result<()> {
        self.here().sync()
    }
    fn len(&self) -> storage::Result<u64> {
        self.here().len()
    }
    fn allocate(
        &self,
        len: u64,
        zeroes: bool,
        progress: &mut dyn FnMut(u64),
    ) -> storage::Result<()> {
        self.here().allocate(len, zeroes, progress)
    }
    fn punch(&self, offset: u64, len: u64) -> storage::Result<()> {
        self.here().punch(offset, len)
    }
    fn locks(&self) -> Option<&dyn storage::lease::ByteLocks> {
        self.inner.locks()
    }
}

const CHILD: &str = "BRAID_TEST_CHILD";
const SIGABRT: i32 = 6;

/// Works until the thread ends the process.
fn work_until_it_panics(thread: &str) {
    let (sim, base) = create_world();
    let storage: Arc<dyn Storage> = Arc::new(PanicsIn {
        inner: Arc::new(sim),
        thread: thread.to_string(),
    });
    let host = Host {
        members: vec![storage.clone()],
        storage,
        fatal: Arc::new(|why| panic!("ended in another way: {why}")),
        cluster: None,
    };
    let engine = Engine::open_on(config(), host, &Quiet).unwrap();
    let mut s = engine.session().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    for n in 0.. {
        s.begin(Isolation::ReadCommitted).unwrap();
        s.insert(&base.table, &row(n, 1, "x")).unwrap();
        if n % 100 == 0 {
            s.commit().unwrap();
            // No transaction commits meanwhile, so lgwr has to write what is in the log.
            s.begin(Isolation::ReadCommitted).unwrap();
            s.insert(&base.table, &row(-10 - n, 1, "x")).unwrap();
            std::thread::park_timeout(std::time::Duration::from_millis(20));
        }
        s.rollback().unwrap();
        assert!(std::time::Instant::now() < deadline, "it goes on");
    }
}

/// An instance whose `dbw0`, `lgwr` or `smon` panics must not go on without it, or with what it
/// left half done.
#[test]
fn a_panic_in_any_background_thread_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;
    if let Ok(thread) = std::env::var(CHILD) {
        return work_until_it_panics(&thread);
    }
    for thread in ["dbw0", "lgwr", "smon"] {
        let test = "a_panic_in_any_background_thread_ends_the_process";
        let mut child = testkit::child::command(module_path!(), test);
        let output = child.env(CHILD, thread).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(SIGABRT), "{thread}: {said}");
        assert!(
            said.contains(&format!("{thread} broke an invariant")),
            "{thread}: {said}"
        );
    }
}
