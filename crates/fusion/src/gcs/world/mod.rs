//! A cluster around the shards: frames, redo, disk, sessions, and a network that delays, reorders,
//! duplicates and loses messages. Instances die at any point and come back.
//!
//! The content of a block is the number of changes made to it. So the world knows at every moment
//! what the newest version is and which version must survive.

mod effects;
mod steps;

use super::{Closed, Effect, Message, Mode, Plan, Shard, Want};
use crate::gcs::bucket_of;
use crate::ids::{Epoch, Generation, Granule, Incarnation, Member, RequestId, Term, Waiter};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, FileId, InstanceId, LogPos, Scn};
use std::collections::{BTreeMap, BTreeSet};

/// Bounds of a walk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Config {
    pub(super) nodes: usize,
    pub(super) blocks: u32,
    /// What sessions may want. The length is the number of sessions.
    pub(super) wants: Vec<Want>,
    pub(super) sessions: usize,
    pub(super) crashes: usize,
    pub(super) rejoins: usize,
    pub(super) duplicates: usize,
    pub(super) breaks: usize,
    pub(super) evictions: usize,
    /// How many reads fail. A read fails for all sessions that wait for the block on that instance.
    pub(super) failed_reads: usize,
    /// Whether flushes and writes happen that nobody asked for.
    pub(super) background: bool,
    /// How many times a bucket moves to another master while all instances live.
    pub(super) remasters: usize,
    /// How many times an instance takes a granule within an epoch.
    pub(super) takes: usize,
    /// The number of blocks in a granule, as a power of two.
    pub(super) granule_shift: u32,
    /// The number of declarations in one message.
    pub(super) part: usize,
    pub(super) planted: Planted,
}

/// One change of a block in a redo thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Vector {
    block: Dba,
    after: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Frame {
    version: u64,
    mode: Option<Mode>,
    generation: Generation,
    dirty: bool,
    /// The position of the redo of the last local change.
    redo: usize,
    closing: Option<(Option<Mode>, Generation)>,
    writing: Option<u64>,
    write_wanted: bool,
    /// Set while the frame is read from disk, or recovered.
    loading: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Waiting,
    /// The session was let run. It holds what it saw when it was woken, and latches the frame a
    /// moment later.
    Ready {
        version: u64,
        generation: Generation,
        /// Whether the session found the block in the cache without asking the shard. If so, nobody
        /// waits for it.
        hit: bool,
    },
    /// The session holds a read-only copy.
    Copy {
        version: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Session {
    waiter: Waiter,
    block: Dba,
    want: Want,
    /// The version that a reader must see at least: the newest when it asked.
    need: u64,
    stage: Stage,
    /// What disk held when the session asked, for the mutation that uses it.
    early_read: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) shard: Shard,
    incarnation: Incarnation,
    frames: BTreeMap<Dba, Frame>,
    images: BTreeMap<Dba, u64>,
    /// Writes in flight of frames that were given away under them. Only a mutation does that.
    stray_writes: BTreeMap<Dba, u64>,
    redo: Vec<Vector>,
    /// The number of vectors dropped from the front of the thread: its checkpoint.
    dropped: usize,
    durable: usize,
    flush_wanted: usize,
    sessions: Vec<Session>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Letter {
    pub(super) from: usize,
    pub(super) to: usize,
    life: Incarnation,
    epoch: Epoch,
    term: Term,
    pub(super) message: Message,
    /// The version of the bytes that travel with the message.
    bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) config: Config,
    pub(super) nodes: Vec<Option<Node>>,
    lives: Vec<Incarnation>,
    pub(super) letters: Vec<Letter>,
    disk: BTreeMap<Dba, u64>,
    latest: BTreeMap<Dba, u64>,
    /// The durable redo of dead instances whose threads are open.
    dead: BTreeMap<Member, Vec<Vector>>,
    plan: Plan,
    read_redo: bool,
    next_session: usize,
    pub(super) violation: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Start(usize, Dba, Want),
    Execute(usize, Waiter),
    Flush(usize),
    BeginWrite(usize, Dba),
    EndWrite(usize, Dba),
    Load(usize, Dba),
    FailRead(usize, Dba),
    Evict(usize, Dba),
    Deliver(usize),
    Duplicate(usize),
    Break(usize, usize),
    /// An instance dies. The flag says whether its writes in flight reach disk.
    Crash(usize, bool),
    Rejoin(usize),
    Decide,
    Remaster(usize, usize),
    Take(usize, Granule),
    Enter(usize),
    ReadRedo(usize),
}

pub(super) fn instance(node: usize) -> InstanceId {
    InstanceId(node as u16 + 1)
}
fn node_of(instance: InstanceId) -> usize {
    instance.0 as usize - 1
}
pub(super) fn dba(block: u32) -> Dba {
    Dba::new(FileId::DATA, block)
}

impl World {
    pub(super) fn new(config: Config) -> Self {
        let plan = Plan {
            epoch: Epoch(0),
            members: BTreeSet::new(),
            masters: (0..config.blocks as usize)
                .map(|b| instance(b % config.nodes))
                .collect(),
            recovering: BTreeSet::new(),
            recoverer: instance(0),
        };
        let mut world = World {
            nodes: vec![None; config.nodes],
            lives: vec![Incarnation(0); config.nodes],
            letters: Vec::new(),
            disk: (0..config.blocks).map(|b| (dba(b), 0)).collect(),
            latest: (0..config.blocks).map(|b| (dba(b), 0)).collect(),
            dead: BTreeMap::new(),
            plan,
            read_redo: true,
            next_session: 0,
            violation: None,
            config,
        };
        for n in 0..world.config.nodes {
            world.start(n);
        }
        world.decide(None);
        for n in 0..world.config.nodes {
            world.enter(n);
        }
        while !world.letters.is_empty() {
            world.deliver(0);
        }
        world
    }

    fn start(&mut self, n: usize) {
        self.lives[n] = Incarnation(self.lives[n].0 + 1);
        let mut shard = Shard::new(instance(n));
        shard.plant(self.config.planted);
        shard.declare_in_parts_of(self.config.part);
        shard.with_granules_of(self.config.granule_shift);
        self.nodes[n] = Some(Node {
            shard,
            incarnation: self.lives[n],
            frames: BTreeMap::new(),
            images: BTreeMap::new(),
            stray_writes: BTreeMap::new(),
            redo: Vec::new(),
            dropped: 0,
            durable: 0,
            flush_wanted: 0,
            sessions: Vec::new(),
        });
    }

    // ---- what can happen ----

    pub(super) fn actions(&self) -> Vec<Action> {
        let mut all = self.helpful_actions();
        for n in 0..self.config.nodes {
            match &self.nodes[n] {
                None if self.config.rejoins > 0 => all.push(Action::Rejoin(n)),
                None => {}
                Some(node) => self.new_work(n, node, &mut all),
            }
        }
        if self.config.duplicates > 0 {
            all.extend((0..self.letters.len()).map(Action::Duplicate));
        }
        if self.config.breaks > 0 {
            let pairs: BTreeSet<_> = self
                .letters
                .iter()
                .filter(|l| l.from != l.to)
                .map(|l| (l.from.min(l.to), l.from.max(l.to)))
                .collect();
            all.extend(pairs.into_iter().map(|(a, b)| Action::Break(a, b)));
        }
        // As in the engine, the dead are recovered first; then an epoch begins without open threads
        // of the dead.
        let recovered = !self.plan.recovering.is_empty() && self.dead.is_empty();
        if self.config.takes > 0 && recovered && self.members_are_alive() {
            all.push(Action::Decide);
        }
        if self.config.remasters > 0 && self.members_are_alive() {
            for bucket in 0..self.plan.masters.len() {
                let others = (0..self.config.nodes).filter(|&n| {
                    self.nodes[n].is_some() && self.plan.masters[bucket] != instance(n)
                });
                all.extend(others.map(|n| Action::Remaster(bucket, n)));
            }
        }
        all
    }

    fn new_work(&self, n: usize, node: &Node, all: &mut Vec<Action>) {
        let entered = node.shard.epoch() != Epoch(0);
        if entered && self.next_session < self.config.sessions {
            for b in 0..self.config.blocks {
                for &want in &self.config.wants {
                    all.push(Action::Start(n, dba(b), want));
                }
            }
        }
        if self.config.evictions > 0 {
            let clean = node.frames.iter().filter(|(_, f)| f.evictable());
            all.extend(clean.map(|(&b, _)| Action::Evict(n, b)));
        }
        if self.config.failed_reads > 0 {
            let reading = node.frames.iter().filter(|(_, f)| f.loading == Some(false));
            all.extend(reading.map(|(&b, _)| Action::FailRead(n, b)));
        }
        if self.config.takes > 0 && entered {
            let granules = (0..self.config.blocks).map(|b| node.shard.granule_of(dba(b)));
            let granules: BTreeSet<Granule> = granules.collect();
            let can = |&g: &Granule| node.shard.clone().take(g, &mut Vec::new());
            let taken = granules.into_iter().filter(can);
            all.extend(taken.map(|g| Action::Take(n, g)));
        }
        let alive = self.nodes.iter().flatten().count();
        if self.config.crashes > 0 && alive > 1 {
            all.push(Action::Crash(n, false));
            if node.frames.values().any(|f| f.writing.is_some()) {
                all.push(Action::Crash(n, true));
            }
        }
    }

    /// The actions that happen by themselves sooner or later: no new work, no new faults.
    pub(super) fn helpful_actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            for session in &node.sessions {
                if session.stage != Stage::Waiting {
                    all.push(Action::Execute(n, session.waiter));
                }
            }
            let end = node.dropped + node.redo.len();
            let background = self.config.background && node.durable < end;
            if node.flush_wanted > node.durable || background {
                all.push(Action::Flush(n));
            }
            for (&b, frame) in &node.frames {
                if frame.loading.is_some() {
                    all.push(Action::Load(n, b));
                }
                let asked = frame.write_wanted || self.config.background;
                if frame.writable() && asked && frame.redo <= node.durable {
                    all.push(Action::BeginWrite(n, b));
                }
                if frame.writing.is_some() {
                    all.push(Action::EndWrite(n, b));
                }
            }
            let stray = node.stray_writes.keys();
            all.extend(stray.map(|&b| Action::EndWrite(n, b)));
            if node.shard.epoch() < self.plan.epoch && self.is_member(n) {
                all.push(Action::Enter(n));
            }
        }
        for (l, letter) in self.letters.iter().enumerate() {
            let node = self.nodes[letter.to].as_ref();
            if node.is_none_or(|node| node.shard.epoch() >= letter.epoch) {
                all.push(Action::Deliver(l));
            }
        }
        if !self.members_are_alive() {
            all.push(Action::Decide);
        }
        let recoverer = node_of(self.plan.recoverer);
        let entered = |n: &Node| n.shard.epoch() == self.plan.epoch;
        if !self.read_redo && self.nodes[recoverer].as_ref().is_some_and(entered) {
            all.push(Action::ReadRedo(recoverer));
        }
        all
    }

    fn is_member(&self, n: usize) -> bool {
        let (instance, incarnation) = (instance(n), self.lives[n]);
        self.plan.members.contains(&Member {
            instance,
            incarnation,
        })
    }

    fn members_are_alive(&self) -> bool {
        (0..self.config.nodes).all(|n| self.nodes[n].is_some() == self.is_member(n))
            && self.plan.members.len() == self.nodes.iter().flatten().count()
    }

    pub(super) fn pending(&self) -> bool {
        self.nodes.iter().flatten().any(|n| !n.sessions.is_empty())
    }
}

impl Frame {
    fn evictable(&self) -> bool {
        !self.dirty && self.loading.is_none() && self.writing.is_none() && self.closing.is_none()
    }
    fn writable(&self) -> bool {
        self.dirty && self.loading.is_none() && self.writing.is_none()
    }
}
