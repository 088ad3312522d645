//! Four sessions of one instance, or of each of two, keep a row or a unique key by turns, and one
//! of another instance wants it: what that one gets of its share, and how long it waits at most. A
//! key is kept by a row that is put and rolled back: by a plain insert, by one that puts its row
//! unless the key is taken, or in bulk, whichever a session is for.
//!
//! A case says where the one is, whose sessions change other rows of the row's block meanwhile, and
//! who masters the block. How fast the network and the disk are is drawn from a seed.
//!
//! Where work beside is decides what the one would get if rows went to the fastest. The block goes
//! to the sessions that change rows of it. If they are of the instance of the four, the block is
//! there when a transaction of these ends, and the next of the four always comes before the one. If
//! there is no such work, the one that waits has fetched the block to look at the row, and it is
//! the one that has the row at hand. Who masters the block changes nothing.

use super::node;
use super::shared::{Shared, Stage, pause};
use crate::common::{self, Quiet, Rng, row};
use engine::{
    Affinity, Bulk, Config, Engine, Isolation, LockOutcome, LockWait, RowLock, TableDef, Upsert,
};
use seam::sim;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long the sessions go on.
const SPAN: Duration = Duration::from_secs(4);
/// How long each of those that are many keeps the row.
const KEPT: Duration = Duration::from_millis(10);
const MANY: usize = 4;
/// Sessions of an instance that change other rows of the block.
const BESIDE: i64 = 2;
/// The row that is wanted. Sessions beside have rows of their own.
const WANTED: i64 = 0;
/// The key that is wanted.
const KEY: i64 = 100;

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub instances: u16,
    /// Whether a key is wanted, not a row.
    pub key: bool,
    /// The instance of the one.
    pub lone: u16,
    /// The instances whose sessions change other rows of the block, as bits by their numbers.
    pub beside: u16,
    /// The instance that masters the block.
    pub master: u16,
}

impl Case {
    /// All cases of so many instances.
    pub fn all(instances: u16, key: bool) -> impl Iterator<Item = Case> {
        let numbers = move || 1..=instances;
        let every = move |lone| (0..1u16 << instances).map(move |bits| (lone, bits << 1));
        numbers().flat_map(every).flat_map(move |(lone, beside)| {
            numbers().map(move |master| Case {
                instances,
                key,
                lone,
                beside,
                master,
            })
        })
    }

    /// Whether there is work beside where the many are, and nowhere else.
    pub fn is_beside_the_many(&self) -> bool {
        self.beside == ((1 << (self.instances + 1)) - 2) & !(1 << self.lone)
    }

    fn sessions(&self, instance: u16) -> usize {
        if instance == self.lone { 1 } else { MANY }
    }
}

/// What a seed has shown.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// What the one got of its share of all changes of the row.
    pub share: f64,
    /// The longest wait of the one.
    pub longest: Duration,
    /// The longest wait of one of the many.
    pub longest_of_many: Duration,
}

impl Seen {
    pub fn is_fair(&self) -> bool {
        self.share >= 0.5 && self.longest.max(self.longest_of_many) < Duration::from_secs(1)
    }
}

struct World {
    shared: Arc<Shared>,
    table: Arc<TableDef>,
    case: Case,
    /// Changes of the row by all, and by the one.
    changes: [AtomicU64; 2],
    /// The longest waits of the many and of the one.
    longest: Mutex<[Duration; 2]>,
    met: AtomicUsize,
    done: AtomicUsize,
}

pub fn run(seed: u64, case: Case) -> Seen {
    let (storage, table) = common::create();
    let engine = common::open(&storage).expect("a new database opens");
    let mut s = engine.session().expect("a session");
    s.begin(Isolation::ReadCommitted).expect("it begins");
    for id in WANTED..=BESIDE * i64::from(case.instances) {
        s.insert(&table, &row(id, 0, "x")).expect("a row");
    }
    s.commit().expect("a commit");
    drop(s);
    engine.stop(&Quiet).expect("it stops");
    let world = Arc::new(World {
        shared: Shared::new(storage, [0, !0][Rng(seed).below(2) as usize]),
        table,
        case,
        changes: Default::default(),
        longest: Mutex::default(),
        met: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
    });
    for instance in 1..=case.instances {
        let world = world.clone();
        world.shared.set_stage(instance.into(), Stage::Opening);
        sim::start_in(instance.into(), "instance", move || live(&world, instance));
    }
    while world.done.load(SeqCst) < case.instances.into() {
        pause(Duration::from_millis(5));
    }
    let [all, lone] = [0, 1].map(|k: usize| world.changes[k].load(SeqCst) as f64);
    let [longest_of_many, longest] = *world.longest.lock().expect("no session panics here");
    let sessions: usize = (1..=case.instances).map(|i| case.sessions(i)).sum();
    let share = lone * sessions as f64 / all;
    eprintln!(
        "seed {seed}, {case:?}: the one got {share:.2} of its share of {all} changes, and waited \
         {longest:?} at most, one of the many {longest_of_many:?}"
    );
    Seen {
        share,
        longest,
        longest_of_many,
    }
}

fn live(world: &Arc<World>, instance: u16) {
    let config = Config {
        instance,
        join_others: true,
        // Masters stay where the case says.
        affinity: Affinity {
            window: Duration::ZERO,
            ..Affinity::default()
        },
        ..common::config()
    };
    let mut host = node::host(&world.shared, instance.into(), None);
    if let Some(cluster) = &mut host.cluster {
        cluster.memory = world.shared.memory_of(instance);
    }
    let engine = Engine::open_on(config, host, &Quiet).expect("it opens");
    meet(world, 1);
    if instance == world.case.master {
        let mut s = engine.session().expect("a session");
        s.begin(Isolation::ReadCommitted).expect("it begins");
        let snap = s.snapshot().expect("a snapshot");
        let found = common::find(&mut s, &world.table, &snap, WANTED).expect("it reads");
        let (wanted, ..) = found.expect("the row stays");
        s.commit().expect("it ends");
        engine.transactions().cache().remaster(wanted.dba());
    }
    meet(world, 2);
    let until = seam::now() + SPAN;
    let is_lone = instance == world.case.lone;
    let mut sessions = Vec::new();
    for n in 0..world.case.sessions(instance) {
        let (world, engine) = (world.clone(), engine.clone());
        sessions.push(seam::thread::spawn(move || {
            while seam::now() < until {
                let kept = (!is_lone).then_some(KEPT);
                let waited = match world.case.key {
                    true => put(&world, &engine, n, kept),
                    false => change(&world, &engine, WANTED, kept),
                };
                world.changes[0].fetch_add(1, SeqCst);
                if is_lone {
                    world.changes[1].fetch_add(1, SeqCst);
                }
                let mut longest = world.longest.lock().expect("no session panics here");
                let longest = &mut longest[usize::from(is_lone)];
                *longest = waited.max(*longest);
            }
        }));
    }
    let beside = world.case.beside & 1 << instance != 0;
    for n in (1..=BESIDE).filter(|_| beside) {
        let (world, engine) = (world.clone(), engine.clone());
        let id = n + BESIDE * i64::from(instance - 1);
        sessions.push(seam::thread::spawn(move || {
            while seam::now() < until {
                change(&world, &engine, id, None);
            }
        }));
    }
    for session in sessions {
        session.join().expect("a session does not panic");
    }
    // Nobody leaves while others work.
    meet(world, 3);
    engine.stop(&Quiet).expect("it stops");
    world.done.fetch_add(1, SeqCst);
}

/// Waits until all instances have come here for that time.
fn meet(world: &World, time: usize) {
    world.met.fetch_add(1, SeqCst);
    while world.met.load(SeqCst) < time * usize::from(world.case.instances) {
        pause(Duration::from_millis(1));
    }
}

/// Changes a row, keeps it for a while, and commits. Returns how long it took to get the row.
fn change(world: &World, engine: &Arc<Engine>, id: i64, keep: Option<Duration>) -> Duration {
    let mut s = engine.session().expect("a session");
    let began = seam::now();
    s.begin(Isolation::ReadCommitted).expect("it begins");
    let snap = s.snapshot().expect("a snapshot");
    let found = common::find(&mut s, &world.table, &snap, id).expect("it reads");
    let (rid, ..) = found.expect("the row stays");
    let how = (RowLock::NoKeyUpdate, LockWait::Wait);
    let locked = s.lock_row(&world.table, rid, &snap, how, &mut Vec::new());
    let locked = locked.expect("no deadlock, and nobody cancels");
    assert!(matches!(locked, LockOutcome::Locked | LockOutcome::Changed));
    let waited = seam::elapsed(began);
    s.update(&world.table, rid, &row(id, 1, "x"), None)
        .expect("it is locked");
    s.end_statement();
    if let Some(time) = keep {
        pause(time);
    }
    s.commit().expect("a commit");
    waited
}

/// Puts a row with the key, keeps it for a while, and rolls back. Returns how long it took to get
/// the key.
fn put(world: &World, engine: &Arc<Engine>, n: usize, keep: Option<Duration>) -> Duration {
    let mut s = engine.session().expect("a session");
    let began = seam::now();
    s.begin(Isolation::ReadCommitted).expect("it begins");
    let (t, new) = (&world.table, row(KEY, 0, "x"));
    let done = match n % MANY {
        1 => s.insert_unless(t, &new, &[0]).map(|put| {
            assert!(matches!(put, Upsert::Inserted(_)));
        }),
        2 => {
            let mut bulk = Bulk::new(t);
            s.insert_bulk(t, &mut bulk, &new, 1)
                .and_then(|()| s.finish_bulk(t, &mut bulk))
        }
        _ => s.insert(t, &new).map(|_| ()),
    };
    done.expect("nobody commits the key");
    let waited = seam::elapsed(began);
    s.end_statement();
    if let Some(time) = keep {
        pause(time);
    }
    s.rollback().expect("it rolls back");
    waited
}
