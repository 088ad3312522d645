//! Sessions of two or three instances want one row, again and again: who gets it, and how many come
//! before a session that came later than it.
//!
//! Every step is drawn from a seed: how many sessions each instance has, how long each keeps the
//! row and how long it stays away. What is fair is said by [`Seen::is_fair`].

use super::node;
use super::shared::{Shared, Stage, pause};
use crate::common::{self, Quiet, Rng, row};
use engine::{Config, Engine, Isolation, LockOutcome, LockWait, RowLock, TableDef};
use seam::sim;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often each session gets the row.
const TURNS: u64 = 25;
/// A row is kept for longer than another instance needs to take it, most times.
const LONG_US: u64 = 10_000;
/// No session may wait for longer.
const LONGEST_US: u64 = 1_000_000;

struct World {
    shared: Arc<Shared>,
    table: Arc<TableDef>,
    instances: u16,
    sessions: [u64; 4],
    keeps_us: u64,
    stays_away_us: u64,
    askings: AtomicU64,
    /// When each session asked that got the row, by the count of askings, in the order in which
    /// they got it.
    got: Mutex<Vec<u64>>,
    longest_us: AtomicU64,
    open: AtomicUsize,
    done: AtomicUsize,
}

/// What a seed has shown.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    sessions: u64,
    keeps_us: u64,
    /// The most sessions that came later and went before one and the same.
    overtaken: u64,
    longest_us: u64,
}

impl Seen {
    /// A session may be overtaken while the row is free, and while word of that is under way: that
    /// is bounded by the number of sessions where the row is kept for longer than a message and a
    /// block take. Where it is kept for less, an instance makes many changes for each time that the
    /// block moves, and what is bounded is the wait.
    pub fn is_fair(&self) -> bool {
        let is_kept = self.keeps_us >= LONG_US;
        self.longest_us < LONGEST_US && (!is_kept || self.overtaken <= 4 * self.sessions)
    }
}

pub fn run(seed: u64) -> Seen {
    let (storage, table) = common::create();
    let engine = common::open(&storage).expect("a new database opens");
    let mut s = engine.session().expect("a session");
    s.begin(Isolation::ReadCommitted).expect("it begins");
    s.insert(&table, &row(0, 0, "x")).expect("a row");
    s.commit().expect("a commit");
    drop(s);
    engine.stop(&Quiet).expect("it stops");
    let mut rng = Rng(seed);
    let instances = 2 + rng.below(2) as u16;
    let world = Arc::new(World {
        shared: Shared::new(storage, [0, !0][rng.below(2) as usize]),
        table,
        instances,
        sessions: [(); 4].map(|()| 1 + rng.below(4)),
        keeps_us: [50, 1_000, LONG_US][rng.below(3) as usize],
        stays_away_us: [10, 500, 5_000][rng.below(3) as usize],
        askings: AtomicU64::new(0),
        got: Mutex::default(),
        longest_us: AtomicU64::new(0),
        open: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
    });
    for instance in 1..=instances {
        let (world, seed) = (world.clone(), rng.next());
        let process = instance.into();
        world.shared.set_stage(process, Stage::Opening);
        sim::start_in(process, "instance", move || live(&world, instance, seed));
    }
    while world.done.load(SeqCst) < instances.into() {
        pause(Duration::from_millis(5));
    }
    let sessions = world.sessions[..instances.into()].iter().sum();
    let got = world.got.lock().expect("no session panics here");
    assert_eq!(got.len() as u64, sessions * TURNS, "seed {seed}");
    let earlier_askers_after = |n: usize| {
        let before = got[..n].iter();
        before.filter(|&&asked| asked > got[n]).count() as u64
    };
    let overtaken = (0..got.len()).map(earlier_askers_after).max().unwrap_or(0);
    let longest_us = world.longest_us.load(SeqCst);
    eprintln!(
        "seed {seed}: {:?} sessions on {instances} instances keep it {} us and stay away {} us: \
         overtaken {overtaken} times at most, waited {longest_us} us at most",
        &world.sessions[..instances.into()],
        world.keeps_us,
        world.stays_away_us
    );
    Seen {
        sessions,
        keeps_us: world.keeps_us,
        overtaken,
        longest_us,
    }
}

fn live(world: &Arc<World>, instance: u16, seed: u64) {
    let config = Config {
        instance,
        join_others: true,
        ..common::config()
    };
    let host = node::host(&world.shared, instance.into(), None);
    let engine = Engine::open_on(config, host, &Quiet).expect("it opens");
    world.open.fetch_add(1, SeqCst);
    while world.open.load(SeqCst) < world.instances.into() {
        pause(Duration::from_millis(1));
    }
    let sessions: Vec<_> = (0..world.sessions[usize::from(instance) - 1])
        .map(|n| {
            let (world, engine) = (world.clone(), engine.clone());
            let rng = Rng(seed ^ n << 32);
            seam::thread::spawn(move || session(&world, &engine, rng))
        })
        .collect();
    for session in sessions {
        session.join().expect("a session does not panic");
    }
    engine.stop(&Quiet).expect("it stops");
    world.done.fetch_add(1, SeqCst);
}

fn session(world: &World, engine: &Arc<Engine>, mut rng: Rng) {
    let mut s = engine.session().expect("a session");
    let mut body = Vec::new();
    for _ in 0..TURNS {
        pause(Duration::from_micros(rng.below(world.stays_away_us)));
        let asked = world.askings.fetch_add(1, SeqCst);
        let began = seam::now();
        s.begin(Isolation::ReadCommitted).expect("it begins");
        let snap = s.snapshot().expect("a snapshot");
        let found = common::find(&mut s, &world.table, &snap, 0).expect("it reads");
        let (rid, ..) = found.expect("the row stays");
        let locked = s.lock_row(
            &world.table,
            rid,
            &snap,
            (RowLock::Update, LockWait::Wait),
            &mut body,
        );
        let locked = locked.expect("no deadlock, and nobody cancels");
        assert!(matches!(locked, LockOutcome::Locked | LockOutcome::Changed));
        let waited = seam::elapsed(began).as_micros() as u64;
        world.longest_us.fetch_max(waited, SeqCst);
        world
            .got
            .lock()
            .expect("no session panics here")
            .push(asked);
        pause(Duration::from_micros(rng.below(world.keeps_us)));
        s.update(&world.table, rid, &row(0, asked as i32, "x"), None)
            .expect("it is locked");
        s.end_statement();
        s.commit().expect("a commit");
    }
}
