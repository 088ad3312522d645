//! Sessions of two or three instances want few rows and keys, give them back by a rollback to a
//! savepoint, and keep their transactions open for long. A wait must end with its reason: for as
//! long as nobody has what a session wants, the session's wait has none. And as a session has
//! nothing that others want while it waits, no deadlock is possible: one that is reported is made
//! of waits without a reason.
//!
//! The book is kept beside the engine: a session enters what it has when it has got it, and that it
//! gives it back when its rollback begins.

use super::node;
use super::shared::{Shared, Stage, pause};
use crate::common::{self, Quiet, Rng, row};
use block::RowId;
use engine::{
    Config, Engine, Isolation, LockOutcome, LockWait, Result, RowLock, Session, TableDef, Upsert,
};
use seam::sim;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Rows that are locked and changed.
const ROWS: u64 = 2;
/// Keys of rows that are put and never committed.
const KEYS: std::ops::Range<i64> = 50..52;
/// A session's own row, which its transaction keeps to its end, is this one and above.
const OWN: i64 = 100;
const TRANSACTIONS: u64 = 10;
/// How long one of three transactions stays open that has given back what others want.
const IDLE: Duration = Duration::from_secs(3);
/// The longest wait without a reason. A message may be on its way, a block, and another session
/// that is first in line.
const LONGEST: Duration = Duration::from_secs(1);
const DEADLOCK: &str = "40P01";

/// What a seed has shown.
#[derive(Clone, Copy, Default, Debug)]
pub struct Seen {
    /// Waits for what another session had.
    pub waits: u64,
    pub longest_without_reason: Duration,
    pub deadlocks: u64,
}

impl Seen {
    pub fn is_right(&self) -> bool {
        self.longest_without_reason < LONGEST && self.deadlocks == 0
    }
}

#[derive(Default)]
struct Book {
    /// Since when nobody has it, of what was had; `None`: somebody has it.
    free: BTreeMap<i64, Option<Instant>>,
    seen: Seen,
}

struct World {
    shared: Arc<Shared>,
    table: Arc<TableDef>,
    instances: u16,
    sessions: u64,
    book: Mutex<Book>,
    open: AtomicUsize,
    done: AtomicUsize,
}

impl World {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no session panics with it")
    }
}

pub fn run(seed: u64) -> Seen {
    let mut rng = Rng(seed);
    let instances = 2 + rng.below(2) as u16;
    let sessions = 2 + rng.below(2);
    let (storage, table) = common::create();
    let engine = common::open(&storage).expect("a new database opens");
    let mut s = engine.session().expect("a session");
    s.begin(Isolation::ReadCommitted).expect("it begins");
    let own = OWN..OWN + i64::from(instances) * sessions as i64;
    for id in (0..ROWS as i64).chain(own) {
        s.insert(&table, &row(id, 0, "x")).expect("a row");
    }
    s.commit().expect("a commit");
    drop(s);
    engine.stop(&Quiet).expect("it stops");
    let world = Arc::new(World {
        shared: Shared::new(storage, [0, !0][rng.below(2) as usize]),
        table,
        instances,
        sessions,
        book: Mutex::default(),
        open: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
    });
    for instance in 1..=instances {
        let (world, seed) = (world.clone(), rng.next());
        world.shared.set_stage(instance.into(), Stage::Opening);
        sim::start_in(instance.into(), "instance", move || {
            live(&world, instance, seed)
        });
    }
    while world.done.load(SeqCst) < instances.into() {
        pause(Duration::from_millis(5));
    }
    let seen = world.book().seen;
    eprintln!("seed {seed}: {sessions} sessions on each of {instances} instances, {seen:?}");
    seen
}

fn live(world: &Arc<World>, instance: u16, seed: u64) {
    let config = Config {
        instance,
        join_others: true,
        ..common::config()
    };
    let mut host = node::host(&world.shared, instance.into(), None);
    if let Some(cluster) = &mut host.cluster {
        cluster.memory = world.shared.memory_of(instance);
    }
    let engine = Engine::open_on(config, host, &Quiet).expect("it opens");
    world.open.fetch_add(1, SeqCst);
    while world.open.load(SeqCst) < world.instances.into() {
        pause(Duration::from_millis(1));
    }
    let first = OWN + i64::from(instance - 1) * world.sessions as i64;
    let sessions: Vec<_> = (first..first + world.sessions as i64)
        .map(|own| {
            let (world, engine) = (world.clone(), engine.clone());
            let rng = Rng(seed ^ (own as u64) << 32);
            seam::thread::spawn(move || session(&world, &engine, own, rng))
        })
        .collect();
    for session in sessions {
        session.join().expect("a session does not panic");
    }
    engine.stop(&Quiet).expect("it stops");
    world.done.fetch_add(1, SeqCst);
}

fn session(world: &World, engine: &Arc<Engine>, own: i64, mut rng: Rng) {
    let mut s = engine.session().expect("a session");
    let worked = work(world, &mut s, own, &mut rng);
    if let Err(e) = worked {
        assert!(e.sqlstate() == DEADLOCK, "{e}");
        world.book().seen.deadlocks += 1;
        s.rollback().expect("it rolls back");
    }
}

fn work(world: &World, s: &mut Session, own: i64, rng: &mut Rng) -> Result<()> {
    for _ in 0..TRANSACTIONS {
        s.begin(Isolation::ReadCommitted)?;
        lock(s, &world.table, own, RowLock::NoKeyUpdate)?;
        for _ in 0..1 + rng.below(8) {
            take_and_give_back(world, s, rng)?;
        }
        if rng.one_in(3) {
            pause(IDLE);
        }
        s.commit()?;
    }
    Ok(())
}

/// Takes a row or a key, keeps it for a moment, and rolls back to before.
fn take_and_give_back(world: &World, s: &mut Session, rng: &mut Rng) -> Result<()> {
    let before = s.savepoint()?;
    let wanted = match rng.below(2) {
        0 => rng.below(ROWS) as i64,
        _ => KEYS.start + rng.below((KEYS.end - KEYS.start) as u64) as i64,
    };
    let asked = seam::now();
    let was_had = world.book().free.get(&wanted) == Some(&None);
    take(&world.table, s, wanted, rng.below(2) == 0)?;
    s.end_statement();
    {
        let mut book = world.book();
        let free = book.free.insert(wanted, None);
        let free = free.map(|at| at.expect("two have the same"));
        let without_reason = free.map_or(Duration::ZERO, |at| seam::elapsed(at.max(asked)));
        let seen = &mut book.seen;
        seen.waits += u64::from(was_had);
        seen.longest_without_reason = seen.longest_without_reason.max(without_reason);
    }
    pause(Duration::from_micros(rng.below(20_000)));
    // In the rollback another session may have it before this one is told that it is done.
    world.book().free.insert(wanted, Some(seam::now()));
    s.rollback_to(&before)
}

/// Takes a row by locking or changing it, or a key by putting a row with it.
fn take(table: &Arc<TableDef>, s: &mut Session, wanted: i64, first: bool) -> Result<()> {
    let new = row(wanted, 1, "x");
    match (KEYS.contains(&wanted), first) {
        (false, true) => lock(s, table, wanted, RowLock::Update).map(|_| ()),
        (false, false) => {
            let rid = lock(s, table, wanted, RowLock::NoKeyUpdate)?;
            s.update(table, rid, &new, None).map(|_| ())
        }
        (true, true) => s.insert(table, &new).map(|_| ()),
        (true, false) => {
            let put = s.insert_unless(table, &new, &[0])?;
            assert!(!matches!(put, Upsert::Conflict(_)), "no key is committed");
            Ok(())
        }
    }
}

fn lock(s: &mut Session, table: &TableDef, id: i64, how: RowLock) -> Result<RowId> {
    let snap = s.snapshot()?;
    let (rid, ..) = common::find(s, table, &snap, id)?.expect("the row stays");
    let locked = s.lock_row(table, rid, &snap, (how, LockWait::Wait), &mut Vec::new())?;
    assert!(matches!(locked, LockOutcome::Locked | LockOutcome::Changed));
    Ok(rid)
}
