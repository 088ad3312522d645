//! A cluster around the lanes: frames, redo, disk, sessions, and a network that delays, reorders, duplicates and loses.
//! Instances die at any point and come back. The content of a block is the number of changes made to it, so that the
//! world knows at every moment what the newest version is and which version must survive.

use super::{Closed, Effect, Lane, Message, Mode, Plan, Want};
use crate::gcs::bucket_of;
use crate::ids::{Epoch, Generation, Incarnation, Member, RequestId, Waiter};
use crate::planted::{Mutation, Planted};
use block::ids::{Dba, FileId, InstanceId, LogPos, Scn};
use std::collections::{BTreeMap, BTreeSet};

/// Bounds of a walk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Config {
    pub(super) nodes: usize,
    pub(super) blocks: u32,
    /// What sessions may want, and how many sessions there are in all.
    pub(super) wants: Vec<Want>,
    pub(super) sessions: usize,
    pub(super) crashes: usize,
    pub(super) rejoins: usize,
    pub(super) duplicates: usize,
    pub(super) breaks: usize,
    pub(super) evictions: usize,
    /// Flushes and writes that nobody asked for.
    pub(super) background: bool,
    /// Moves of a bucket to another master while everybody lives.
    pub(super) remasters: usize,
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
    /// Position of the redo of the last local change.
    redo: usize,
    closing: Option<(Option<Mode>, Generation)>,
    writing: Option<u64>,
    write_wanted: bool,
    /// Being read from disk, or recovered.
    loading: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Waiting,
    /// Let run: what it saw when it was woken. It latches the frame a moment later.
    Ready {
        version: u64,
        generation: Generation,
        /// It found the block in the cache, without asking the lane: nobody waits for it.
        hit: bool,
    },
    /// Holds a read-only copy.
    Copy {
        version: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Session {
    waiter: Waiter,
    block: Dba,
    want: Want,
    /// A reader must see at least this version: it was the newest when it asked.
    need: u64,
    stage: Stage,
    /// What disk held when it asked, for the mutation that uses it.
    early_read: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    pub(super) lane: Lane,
    incarnation: Incarnation,
    frames: BTreeMap<Dba, Frame>,
    images: BTreeMap<Dba, u64>,
    /// Writes in flight of frames that were given away under them: only a mutation does that.
    stray_writes: BTreeMap<Dba, u64>,
    redo: Vec<Vector>,
    /// Vectors dropped from the front of the thread: its checkpoint.
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
    pub(super) message: Message,
    /// Version of the bytes that travel with it.
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
    /// Durable redo of dead instances whose threads are open.
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
    Evict(usize, Dba),
    Deliver(usize),
    Duplicate(usize),
    Break(usize, usize),
    /// Whether the writes it had in flight reach disk.
    Crash(usize, bool),
    Rejoin(usize),
    Decide,
    Remaster(usize, usize),
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
            masters: (0..config.blocks.max(2) as usize)
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
        let mut lane = Lane::new(instance(n));
        lane.plant(self.config.planted);
        self.nodes[n] = Some(Node {
            lane,
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
                .map(|l| (l.from.min(l.to), l.from.max(l.to)))
                .collect();
            all.extend(pairs.into_iter().map(|(a, b)| Action::Break(a, b)));
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
        let entered = node.lane.epoch() != Epoch(0);
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
        let alive = self.nodes.iter().flatten().count();
        if self.config.crashes > 0 && alive > 1 {
            all.push(Action::Crash(n, false));
            if node.frames.values().any(|f| f.writing.is_some()) {
                all.push(Action::Crash(n, true));
            }
        }
    }

    /// What happens by itself sooner or later: no new work, no new faults.
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
            if node.lane.epoch() < self.plan.epoch && self.is_member(n) {
                all.push(Action::Enter(n));
            }
        }
        for (l, letter) in self.letters.iter().enumerate() {
            let node = self.nodes[letter.to].as_ref();
            if node.is_none_or(|node| node.lane.epoch() >= letter.epoch) {
                all.push(Action::Deliver(l));
            }
        }
        if !self.members_are_alive() {
            all.push(Action::Decide);
        }
        let recoverer = node_of(self.plan.recoverer);
        let entered = |n: &Node| n.lane.epoch() == self.plan.epoch;
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

    // ---- doing it ----

    pub(super) fn apply(&mut self, action: &Action) {
        match *action {
            Action::Start(n, block, want) => self.start_session(n, block, want),
            Action::Execute(n, waiter) => self.execute(n, waiter),
            Action::Flush(n) => {
                let node = self.nodes[n].as_mut().expect("enabled");
                node.durable = node.dropped + node.redo.len();
                let upto = LogPos(node.durable as u64);
                self.with(n, 0, |lane, out| lane.flushed(upto, out));
            }
            Action::BeginWrite(n, block) => {
                let frame = self.frame(n, block);
                frame.writing = Some(frame.version);
            }
            Action::EndWrite(n, block) => self.end_write(n, block),
            Action::Load(n, block) => self.load(n, block),
            Action::Evict(n, block) => {
                self.config.evictions -= 1;
                self.with(n, 0, |lane, out| lane.evict(block, out));
            }
            Action::Deliver(l) => self.deliver(l),
            Action::Duplicate(l) => {
                self.config.duplicates -= 1;
                let twin = self.letters[l].clone();
                self.letters.push(twin);
            }
            Action::Break(a, b) => {
                self.config.breaks -= 1;
                self.lose(a, b);
            }
            Action::Crash(n, land) => self.crash(n, land),
            Action::Rejoin(n) => {
                self.config.rejoins -= 1;
                self.start(n);
            }
            Action::Decide => self.decide(None),
            Action::Remaster(bucket, n) => {
                self.config.remasters -= 1;
                self.decide(Some((bucket, n)));
            }
            Action::Enter(n) => self.enter(n),
            Action::ReadRedo(n) => {
                self.read_redo = true;
                let blocks = self.dead.values().flatten().map(|v| v.block).collect();
                self.with(n, 0, |lane, out| lane.pass_one(blocks, out));
            }
        }
        self.truncate();
        self.check();
        self.letters.sort();
    }

    fn frame(&mut self, n: usize, block: Dba) -> &mut Frame {
        let node = self.nodes[n].as_mut().expect("enabled");
        node.frames.get_mut(&block).expect("enabled")
    }

    fn fail(&mut self, what: impl Into<String>) {
        self.violation.get_or_insert(what.into());
    }

    fn start_session(&mut self, n: usize, block: Dba, want: Want) {
        self.next_session += 1;
        let waiter = Waiter(self.next_session as u64);
        let (need, early_read) = (self.latest[&block], self.disk[&block]);
        let want = match want {
            Want::Read { .. } => Want::Read {
                snapshot: Scn(need),
            },
            other => other,
        };
        let node = self.nodes[n].as_mut().expect("enabled");
        let hit = node.frames.get(&block).filter(|f| {
            f.loading.is_none() && f.closing.is_none() && f.mode.is_some_and(|m| m >= want.mode())
        });
        let stage = hit.map_or(Stage::Waiting, |frame| Stage::Ready {
            version: frame.version,
            generation: frame.generation,
            hit: true,
        });
        let found = stage != Stage::Waiting;
        node.sessions.push(Session {
            waiter,
            block,
            want,
            need,
            stage,
            early_read,
        });
        if found {
            return;
        }
        self.with(n, 0, |lane, out| lane.request(block, want, waiter, out));
    }

    /// The session latches the frame, looks again whether the instance still owns the block, and does its work (8).
    fn execute(&mut self, n: usize, waiter: Waiter) {
        let planted = self.config.planted;
        let node = self.nodes[n].as_mut().expect("enabled");
        let at = node
            .sessions
            .iter()
            .position(|s| s.waiter == waiter)
            .expect("enabled");
        let session = node.sessions[at].clone();
        let block = session.block;
        let frame = node.frames.get_mut(&block);
        let owned = match session.stage {
            Stage::Ready { generation, .. } => frame.filter(|f| {
                f.loading.is_none()
                    && f.mode.is_some_and(|m| m >= session.want.mode())
                    && (f.generation == generation
                        || planted.breaks(Mutation::ModeWithoutGeneration))
            }),
            _ => None,
        };
        match (session.stage, owned) {
            (Stage::Copy { version }, _) => {
                node.sessions.remove(at);
                if version < session.need {
                    self.fail("R3: a reader got a copy older than its snapshot");
                }
            }
            (
                Stage::Ready {
                    version,
                    generation,
                    ..
                },
                Some(frame),
            ) => {
                // Under another generation the session's pointer leads to what the frame held when it was woken.
                let version = if frame.generation == generation {
                    frame.version
                } else {
                    version
                };
                if session.want == Want::Exclusive {
                    if version != self.latest[&block] {
                        self.fail("8: a session changed a block that had changed under it");
                        return;
                    }
                    frame.version = version + 1;
                    frame.dirty = true;
                    let after = frame.version;
                    node.redo.push(Vector { block, after });
                    frame.redo = node.dropped + node.redo.len();
                    self.latest.insert(block, after);
                } else if frame.version < session.need {
                    self.fail("a current read got an old version");
                }
                let node = self.nodes[n].as_mut().expect("enabled");
                node.sessions.remove(at);
                self.with(n, 0, |lane, out| lane.latched(block, waiter, out));
            }
            _ => {
                node.sessions[at].stage = Stage::Waiting;
                self.with(n, 0, |lane, out| {
                    lane.latched(block, waiter, out);
                    lane.request(block, session.want, waiter, out);
                });
            }
        }
    }

    fn end_write(&mut self, n: usize, block: Dba) {
        let node = self.nodes[n].as_mut().expect("enabled");
        if let Some(version) = node.stray_writes.remove(&block) {
            self.reach_disk(block, version);
            return;
        }
        let frame = self.frame(n, block);
        let version = frame.writing.take().expect("enabled");
        if frame.version == version {
            frame.dirty = false;
            frame.write_wanted = false;
        }
        let closing = frame.closing;
        self.reach_disk(block, version);
        self.with(n, 0, |lane, out| lane.wrote(block, Scn(version), out));
        if let Some((keep, generation)) = closing {
            self.close(n, block, keep, generation);
        }
    }

    fn reach_disk(&mut self, block: Dba, version: u64) {
        if self.disk[&block] > version {
            self.fail("5: an older version was written over a newer one");
        }
        self.disk.insert(block, version);
    }

    /// A read from disk, or a recovery, ends.
    fn load(&mut self, n: usize, block: Dba) {
        let mut version = self.disk[&block];
        let node = self.nodes[n].as_ref().expect("enabled");
        let recovery = node.frames[&block].loading == Some(true);
        if recovery {
            version = version.max(node.images.get(&block).copied().unwrap_or(0));
            let vectors = || self.dead.values().flatten().filter(|v| v.block == block);
            while vectors().any(|v| v.after == version + 1) {
                version += 1;
            }
        } else if self.config.planted.breaks(Mutation::ReadBeforeGrant) {
            let mut early = node.sessions.iter().filter(|s| s.block == block);
            version = early.next().map_or(version, |s| s.early_read);
        }
        if version != self.latest[&block] {
            let how = if recovery { "recovery" } else { "R4/11: disk" };
            self.fail(format!("{how} gave a version that is not the newest"));
        }
        let frame = self.frame(n, block);
        frame.loading = None;
        frame.version = version;
        frame.dirty = recovery;
        let generation = frame.generation;
        self.with(n, 0, |lane, out| {
            lane.installed(block, Scn(version), generation, out);
        });
    }

    pub(super) fn deliver(&mut self, l: usize) {
        let letter = self.letters.remove(l);
        let Some(node) = &self.nodes[letter.to] else {
            return;
        };
        let admitted = node.lane.admits(letter.epoch) == super::Admission::Now;
        if node.incarnation != letter.life || !admitted {
            return;
        }
        let from = instance(letter.from);
        self.with(letter.to, letter.bytes, |lane, out| {
            lane.message(from, letter.message, out);
        });
    }

    fn lose(&mut self, a: usize, b: usize) {
        let between = |l: &Letter| (l.from, l.to) == (a, b) || (l.from, l.to) == (b, a);
        self.letters.retain(|l| !between(l));
        for (n, peer) in [(a, b), (b, a)] {
            let both = self.nodes[a].is_some() && self.nodes[b].is_some();
            if both && self.nodes[n].as_ref().unwrap().lane.epoch() != Epoch(0) {
                self.with(n, 0, |lane, out| lane.reconnected(instance(peer), out));
            }
        }
    }

    fn crash(&mut self, n: usize, land: bool) {
        self.config.crashes -= 1;
        let node = self.nodes[n].take().expect("enabled");
        if land {
            for (&block, frame) in &node.frames {
                if let Some(version) = frame.writing {
                    self.reach_disk(block, version);
                }
            }
        }
        let durable = node.durable - node.dropped;
        let member = Member {
            instance: instance(n),
            incarnation: node.incarnation,
        };
        self.dead.insert(member, node.redo[..durable].to_vec());
        for b in 0..self.config.blocks {
            let block = dba(b);
            let survives = self.surviving_version(block);
            self.latest.insert(block, survives);
            for session in self
                .nodes
                .iter_mut()
                .flatten()
                .flat_map(|n| &mut n.sessions)
            {
                if session.block == block {
                    session.need = session.need.min(survives);
                }
            }
        }
    }

    /// What must not be lost: everything durable, and everything that a survivor holds.
    fn surviving_version(&self, block: Dba) -> u64 {
        let dead = self.dead.values().flatten();
        let living = self.nodes.iter().flatten();
        let redo = living
            .clone()
            .flat_map(|n| &n.redo[..n.durable - n.dropped])
            .chain(dead)
            .filter(|v| v.block == block)
            .map(|v| v.after);
        let frames = living
            .clone()
            .filter_map(|n| n.frames.get(&block).filter(|f| f.loading.is_none()))
            .map(|f| f.version);
        let images = living.filter_map(|n| n.images.get(&block).copied());
        redo.chain(frames)
            .chain(images)
            .chain([self.disk[&block]])
            .max()
            .expect("disk has a version")
    }

    /// Whoever holds the control file's lock decides the next epoch.
    fn decide(&mut self, remaster: Option<(usize, usize)>) {
        let alive: Vec<usize> = (0..self.config.nodes)
            .filter(|&n| self.nodes[n].is_some())
            .collect();
        self.plan.epoch = Epoch(self.plan.epoch.0 + 1);
        self.plan.members = alive
            .iter()
            .map(|&n| Member {
                instance: instance(n),
                incarnation: self.lives[n],
            })
            .collect();
        let living: Vec<InstanceId> = alive.iter().map(|&n| instance(n)).collect();
        crate::membership::assign_masters(&mut self.plan.masters, &living);
        if let Some((bucket, n)) = remaster {
            self.plan.masters[bucket] = instance(n);
        }
        self.plan.recovering = self.dead.keys().copied().collect();
        self.plan.recoverer = living[0];
        self.read_redo = self.dead.is_empty();
    }

    fn enter(&mut self, n: usize) {
        let plan = self.plan.clone();
        self.with(n, 0, |lane, out| lane.reconfigure(plan, out));
    }

    // ---- what lanes ask for ----

    /// Runs a step of a node's lane and does what it asks for. `bytes`: the version that came with a message.
    pub(super) fn with(
        &mut self,
        n: usize,
        bytes: u64,
        step: impl FnOnce(&mut Lane, &mut Vec<Effect>),
    ) {
        let mut out = Vec::new();
        step(
            &mut self.nodes[n].as_mut().expect("the living act").lane,
            &mut out,
        );
        for effect in out {
            self.effect(n, bytes, effect);
        }
    }

    fn post(&mut self, from: usize, to: InstanceId, message: Message, bytes: u64) {
        let to = node_of(to);
        let epoch = self.nodes[from]
            .as_ref()
            .expect("the living act")
            .lane
            .epoch();
        self.letters.push(Letter {
            from,
            to,
            life: self.lives[to],
            epoch,
            message,
            bytes,
        });
    }

    fn effect(&mut self, n: usize, bytes: u64, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.post(n, to, message, 0),
            Effect::ShipCurrent { to, message } => self.ship_current(n, to, message),
            Effect::ShipCopy {
                to,
                block,
                id,
                snapshot,
            } => self.ship_copy(n, to, (block, id, snapshot)),
            Effect::ReadFromDisk {
                block,
                mode,
                generation,
            } => self.install(n, block, mode, generation, Some(false), 0, false),
            Effect::Recover { block, generation } => {
                self.install(n, block, Mode::Exclusive, generation, Some(true), 0, true);
            }
            Effect::Install {
                block,
                mode,
                generation,
                dirty,
            } => self.install(n, block, mode, generation, None, bytes, dirty),
            Effect::SetMode {
                block,
                mode,
                generation,
            } => {
                let frame = self.frame(n, block);
                frame.mode = Some(mode);
                frame.generation = generation;
                frame.closing = None;
            }
            Effect::MarkDirty { block } => self.frame(n, block).dirty = true,
            Effect::Close {
                block,
                keep,
                generation,
            } => self.begin_close(n, block, keep, generation),
            Effect::FlushLog { upto } => {
                let node = self.nodes[n].as_mut().expect("the living act");
                node.flush_wanted = node.flush_wanted.max(upto.0 as usize);
            }
            Effect::Write { block } => self.write(n, block),
            Effect::KeepImage { block, version } => {
                self.remove_frame(n, block);
                let node = self.nodes[n].as_mut().expect("the living act");
                node.images.insert(block, version.0);
            }
            Effect::Discard { block } => self.remove_frame(n, block),
            Effect::Forget { block, version } => {
                let node = self.nodes[n].as_mut().expect("the living act");
                if node.images.get(&block).is_some_and(|&v| v <= version.0) {
                    node.images.remove(&block);
                }
            }
            Effect::Run { block, waiter } => self.run(n, block, waiter),
            Effect::ReadCopy { waiter, .. } => {
                if let Some(session) = self.session(n, waiter) {
                    session.stage = Stage::Copy { version: bytes };
                }
            }
            Effect::DropCopies { .. } => {} // sessions here use a copy in one step
            Effect::CloseThreads { dead } => self.close_threads(&dead),
        }
    }

    fn remove_frame(&mut self, n: usize, block: Dba) {
        let node = self.nodes[n].as_mut().expect("the living act");
        if let Some(writing) = node.frames.remove(&block).and_then(|f| f.writing) {
            node.stray_writes.insert(block, writing);
        }
    }

    fn ship_current(&mut self, n: usize, to: InstanceId, message: Message) {
        let Message::Block { block, version, .. } = message else {
            unreachable!("only blocks are shipped");
        };
        let node = self.nodes[n].as_ref().expect("the living act");
        let frame = node.frames.get(&block).map(|f| f.version);
        let here = frame.or(node.images.get(&block).copied());
        let mut unflushed = node.redo[node.durable - node.dropped..].iter();
        let early = unflushed.any(|v| v.block == block && v.after <= version.0);
        if here != Some(version.0) {
            self.fail("10: what was shipped is not what was closed");
        }
        if early {
            self.fail("R2: a current copy left before its redo was durable");
        }
        self.post(n, to, message, version.0);
    }

    fn ship_copy(&mut self, n: usize, to: InstanceId, asked: (Dba, RequestId, Scn)) {
        let (block, id, snapshot) = asked;
        let node = self.nodes[n].as_ref().expect("the living act");
        let frame = node.frames.get(&block).map(|f| f.version);
        let version = frame
            .or(node.images.get(&block).copied())
            .expect("asked for");
        // The clock of the supplier, counted in versions: it was lifted to the asker's snapshot.
        let clock = snapshot.max(Scn(version));
        self.post(n, to, Message::Copy { block, id, clock }, version);
        self.with(n, 0, |lane, out| lane.copied(block, Scn(version), out));
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a frame")]
    fn install(
        &mut self,
        n: usize,
        block: Dba,
        mode: Mode,
        generation: Generation,
        loading: Option<bool>,
        version: u64,
        dirty: bool,
    ) {
        let node = self.nodes[n].as_mut().expect("the living act");
        let frame = Frame {
            version,
            mode: Some(mode),
            generation,
            dirty,
            redo: 0,
            closing: None,
            writing: None,
            write_wanted: dirty,
            loading,
        };
        node.frames.insert(block, frame);
    }

    fn session(&mut self, n: usize, waiter: Waiter) -> Option<&mut Session> {
        let node = self.nodes[n].as_mut().expect("the living act");
        node.sessions.iter_mut().find(|s| s.waiter == waiter)
    }

    fn run(&mut self, n: usize, block: Dba, waiter: Waiter) {
        let node = self.nodes[n].as_ref().expect("the living act");
        let frame = &node.frames[&block];
        let (version, generation) = (frame.version, frame.generation);
        if let Some(session) = self.session(n, waiter) {
            session.stage = Stage::Ready {
                version,
                generation,
                hit: false,
            };
        }
    }

    fn begin_close(&mut self, n: usize, block: Dba, keep: Option<Mode>, generation: Generation) {
        let node = self.nodes[n].as_ref().expect("the living act");
        let now = node.frames[&block].generation;
        let guest = |s: &Session| {
            let woken =
                matches!(s.stage, Stage::Ready { generation, hit: false, .. } if generation == now);
            s.block == block && woken
        };
        if node.sessions.iter().any(guest) {
            self.fail("R7: a grant was recalled before its sessions had latched it");
        }
        let waits = self.frame(n, block).writing.is_some();
        if waits && !self.config.planted.breaks(Mutation::CloseDuringWrite) {
            self.frame(n, block).closing = Some((keep, generation));
        } else {
            self.close(n, block, keep, generation);
        }
    }

    fn close(&mut self, n: usize, block: Dba, keep: Option<Mode>, generation: Generation) {
        let frame = self.frame(n, block);
        frame.closing = None;
        frame.mode = keep;
        frame.generation = generation;
        let found = Closed {
            version: Scn(frame.version),
            dirty: frame.dirty,
            redo: LogPos(frame.redo as u64),
        };
        self.with(n, 0, |lane, out| lane.closed(block, generation, found, out));
    }

    fn write(&mut self, n: usize, block: Dba) {
        let node = self.nodes[n].as_mut().expect("the living act");
        let Some(frame) = node.frames.get_mut(&block) else {
            return;
        };
        let version = Scn(frame.version);
        if frame.dirty {
            frame.write_wanted = true;
            node.flush_wanted = node.flush_wanted.max(frame.redo);
        } else {
            self.with(n, 0, |lane, out| lane.wrote(block, version, out));
        }
    }

    fn close_threads(&mut self, closed: &BTreeSet<Member>) {
        for member in closed {
            for vector in self.dead.remove(member).into_iter().flatten() {
                if self.disk[&vector.block] < vector.after {
                    self.fail("18: a dead thread was closed before its changes were on disk");
                }
            }
        }
    }

    // ---- what must hold ----

    /// Every instance advances its checkpoint as far as it may, at every step: the hardest case for R5.
    fn truncate(&mut self) {
        let mut lost = false;
        for node in self.nodes.iter_mut().flatten() {
            while let Some(&Vector { block, after }) = node.redo.first() {
                let frame = node.frames.get(&block);
                let dirty = frame.is_some_and(|f| f.dirty || f.loading.is_some());
                let image = node.images.get(&block).is_some_and(|&v| v >= after);
                if node.dropped == node.durable || dirty || image {
                    break;
                }
                lost |= self.disk[&block] < after;
                node.redo.remove(0);
                node.dropped += 1;
            }
        }
        if lost {
            self.fail("R5: a checkpoint passed redo that is not on disk");
        }
    }

    fn check(&mut self) {
        for b in 0..self.config.blocks {
            let block = dba(b);
            let (mut shared, mut exclusive) = (0, 0);
            for node in self.nodes.iter().flatten() {
                let Some(frame) = node.frames.get(&block) else {
                    continue;
                };
                match frame.mode {
                    Some(Mode::Shared) => shared += 1,
                    Some(Mode::Exclusive) => exclusive += 1,
                    None => {}
                }
                let usable = frame.mode.is_some() && frame.loading.is_none();
                if usable && frame.version != self.latest[&block] {
                    self.violation
                        .get_or_insert("R1: a current copy is not the newest version".into());
                }
            }
            if exclusive > 1 || (exclusive == 1 && shared > 0) {
                self.fail("R1: an exclusive holder is not alone");
            }
        }
    }

    /// The action with the message that it is about, for reading a replayed seed.
    pub(super) fn describe(&self, action: &Action) -> String {
        match action {
            Action::Deliver(l) | Action::Duplicate(l) => {
                let letter = &self.letters[*l];
                let (from, to) = (letter.from, letter.to);
                let (epoch, message) = (letter.epoch.0, &letter.message);
                format!("{action:?} {from}->{to} e{epoch} {message:?}")
            }
            _ => format!("{action:?}"),
        }
    }

    pub(super) fn members(&self) -> &BTreeSet<Member> {
        &self.plan.members
    }

    pub(super) fn bucket(&self, block: Dba) -> usize {
        bucket_of(block, self.plan.masters.len() as u16).0 as usize
    }

    pub(super) fn images(&self) -> Vec<(usize, Dba)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .flat_map(|(n, node)| {
                let images = node.iter().flat_map(|node| node.images.keys());
                images.map(move |&b| (n, b))
            })
            .collect()
    }

    pub(super) fn recovering(&self) -> bool {
        !self.dead.is_empty()
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
