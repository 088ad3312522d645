//! A seeded simulation. Sessions on three instances draw from two sequences, one of them without a
//! cache, and commit. Meanwhile messages are reordered, doubled and lost, and instances die and
//! come back with what of their logs was durable.
//!
//! No value is drawn twice, except values that died unused. Values of the sequence without a cache
//! come in order. In the end no session waits.

use super::*;
use crate::testing::{Random, schedules, seeds};
use block::FileId;
use block::sequence::SequenceParams;

const NODES: usize = 3;
const STEPS: usize = 400;
const NOCACHE: ObjectId = ObjectId(7);
const CACHED: ObjectId = ObjectId(8);
const HEADER: Dba = Dba::new(FileId(1), 1);

#[derive(Clone)]
struct Letter {
    from: usize,
    to: usize,
    to_life: Incarnation,
    message: Message,
}

enum Job {
    Draw(Waiter),
    Serve(Serve),
    /// A commit whose mark's home has gone.
    Raise(Waiter, Mark),
}

struct Node {
    machine: Sequences,
    epoch: Epoch,
    /// Records that are not durable.
    log: Vec<(ObjectId, SequenceState)>,
    durable: u64,
    kept: VecDeque<(i64, Option<Mark>)>,
    /// The step at which this instance set the sequence with a cache, and the value. What is drawn
    /// here from that step on is no lower.
    set: (usize, i64),
    jobs: Vec<Job>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Waits,
    Has,
    Commits,
    Over,
}

struct Session {
    node: usize,
    object: ObjectId,
    began: usize,
    stage: Stage,
    value: i64,
    mark: Option<Mark>,
}

#[derive(Clone, Copy)]
struct Taken {
    node: usize,
    at: usize,
    committed: bool,
}

struct Block {
    state: SequenceState,
    holder: Option<usize>,
    /// The epoch that an instance must have entered to take the block.
    recovered_in: Epoch,
}

struct World {
    nodes: Vec<Option<Node>>,
    lives: Vec<u64>,
    letters: Vec<Letter>,
    sessions: Vec<Session>,
    blocks: BTreeMap<ObjectId, Block>,
    /// The durable state of each sequence, in whatever log it is.
    disk: BTreeMap<ObjectId, SequenceState>,
    taken: BTreeMap<(ObjectId, i64), Taken>,
    epoch: Epoch,
    random: Random,
    faults: bool,
    step: usize,
    planted: Planted,
    error: Option<String>,
    moved: u32,
    ahead: u32,
}

const START: SequenceState = SequenceState {
    draw: 0,
    mark: 1,
    exhausted: false,
};

fn member(k: usize, life: u64) -> Member {
    Member {
        instance: InstanceId(k as u16 + 1),
        incarnation: Incarnation(life),
    }
}

fn index(k: InstanceId) -> usize {
    usize::from(k.0) - 1
}

impl World {
    fn new(seed: u64, faults: bool, planted: Planted) -> World {
        let both = [NOCACHE, CACHED];
        let block = || Block {
            state: START,
            holder: None,
            recovered_in: Epoch(0),
        };
        let mut world = World {
            nodes: (0..NODES).map(|_| None).collect(),
            lives: vec![0; NODES],
            letters: Vec::new(),
            sessions: Vec::new(),
            blocks: both.iter().map(|o| (*o, block())).collect(),
            disk: both.iter().map(|o| (*o, START)).collect(),
            taken: BTreeMap::new(),
            epoch: Epoch(0),
            random: Random::new(seed),
            faults,
            step: 0,
            planted,
            error: None,
            moved: 0,
            ahead: 0,
        };
        (0..NODES).for_each(|k| world.start(k));
        world
    }

    fn fail(&mut self, what: String) {
        self.error.get_or_insert(what);
    }

    fn living(&self) -> Vec<usize> {
        (0..NODES).filter(|k| self.nodes[*k].is_some()).collect()
    }

    fn members(&self) -> Vec<Member> {
        let living = self.living();
        living.iter().map(|k| member(*k, self.lives[*k])).collect()
    }

    // ---- instances ----

    fn start(&mut self, k: usize) {
        self.lives[k] += 1;
        let mut machine = Sequences::new(member(k, self.lives[k]));
        machine.planted = self.planted;
        machine.window = 6;
        self.nodes[k] = Some(Node {
            machine,
            epoch: Epoch(0),
            log: Vec::new(),
            durable: 100 * self.lives[k],
            kept: VecDeque::new(),
            set: (0, 0),
            jobs: Vec::new(),
        });
        self.epoch.0 += 1;
        self.enter(k);
    }

    fn enter(&mut self, k: usize) {
        let (epoch, members) = (self.epoch, self.members());
        self.machine(k, |m, out| m.reconfigure(epoch, members, out));
        if let Some(node) = &mut self.nodes[k] {
            node.epoch = epoch;
        }
    }

    fn kill(&mut self, k: usize) {
        self.nodes[k] = None;
        self.epoch.0 += 1;
        for (object, block) in &mut self.blocks {
            if block.holder == Some(k) {
                block.holder = None;
                block.state = self.disk[object];
                block.recovered_in = self.epoch;
            }
        }
        self.taken.retain(|_, t| t.node != k || t.committed);
        for s in self.sessions.iter_mut().filter(|s| s.node == k) {
            s.stage = Stage::Over;
        }
    }

    fn flush(&mut self, k: usize) {
        let Some(node) = &mut self.nodes[k] else {
            return;
        };
        for (object, state) in node.log.drain(..) {
            node.durable += 1;
            let disk = self.disk.get_mut(&object).expect("both are there");
            if disk.draw < state.draw {
                *disk = state;
            }
        }
    }

    /// Makes the block this instance's, if that can be now.
    fn acquire(&mut self, k: usize, object: ObjectId) -> bool {
        let block = &self.blocks[&object];
        let epoch = self.nodes[k].as_ref().map(|n| n.epoch);
        if epoch < Some(block.recovered_in) {
            return false;
        }
        if let Some(holder) = block.holder.filter(|h| *h != k) {
            self.flush(holder); // R2
        }
        self.blocks.get_mut(&object).expect("known").holder = Some(k);
        true
    }

    fn log(&mut self, k: usize, object: ObjectId, state: SequenceState) -> LogPos {
        self.blocks.get_mut(&object).expect("known").state = state;
        let node = self.nodes[k].as_mut().expect("it has the block");
        node.log.push((object, state));
        node.machine.stands(object, state);
        LogPos(node.durable + node.log.len() as u64)
    }

    /// Takes values from the block. None if that cannot be now.
    fn take(&mut self, k: usize, object: ObjectId, wanted: u32) -> Option<Given> {
        if !self.acquire(k, object) {
            return None;
        }
        let node = self.nodes[k].as_ref()?;
        let floor = node.machine.floor(object)?;
        let block = self.blocks[&object].state;
        let base = floor.filter(|f| f.draw > block.draw).unwrap_or(block);
        let keep = object == CACHED;
        let params = SequenceParams {
            cache: if keep { 5 } else { wanted },
            ..SequenceParams::default()
        };
        let (range, state) = params.take(base).expect("there are values enough");
        let pos = self.log(k, object, state);
        let durable = LogPos(self.nodes[k].as_ref()?.durable);
        Some(Given {
            range,
            increment: 1,
            keep,
            state,
            pos,
            durable,
        })
    }

    // ---- machines ----

    fn machine(&mut self, k: usize, f: impl FnOnce(&mut Sequences, &mut Vec<Effect>)) {
        let Some(node) = &mut self.nodes[k] else {
            return;
        };
        let mut out = Vec::new();
        f(&mut node.machine, &mut out);
        for effect in out {
            self.effect(k, effect);
        }
    }

    fn effect(&mut self, k: usize, effect: Effect) {
        let node = self.nodes[k].as_mut().expect("it has just spoken");
        match effect {
            Effect::Send { to, message } => {
                if let Message::Moved { .. } = message {
                    self.moved += 1;
                }
                let to = index(to);
                let to_life = Incarnation(self.lives[to]);
                self.letters.push(Letter {
                    from: k,
                    to,
                    to_life,
                    message,
                });
            }
            Effect::Serve(serve) => node.jobs.push(Job::Serve(serve)),
            Effect::Flush { from, .. } => {
                self.flush(k);
                let durable = LogPos(self.nodes[k].as_ref().map_or(0, |n| n.durable));
                self.machine(k, |m, out| m.flushed(from, durable, out));
            }
            Effect::Keep { range, mark, .. } => {
                let values = (0..i64::from(range.count)).map(|i| (range.first + i, Some(mark)));
                node.kept.extend(values);
            }
            Effect::Told { waiter, told } => self.told(waiter, told),
        }
    }

    fn told(&mut self, waiter: Waiter, told: Told) {
        let s = &mut self.sessions[waiter.0 as usize];
        let (k, stage) = (s.node, s.stage);
        match (told, stage) {
            (_, Stage::Over) => self.fail(format!("{waiter:?} is told {told:?} and has given up")),
            (Told::Value { value, mark }, Stage::Waits) => self.has(waiter, value, Some(mark)),
            (Told::Here, Stage::Waits) => self.job(k, Job::Draw(waiter)),
            (Told::Again, Stage::Waits) => self.draw(waiter),
            (Told::Durable, Stage::Commits) => self.commit(waiter),
            (Told::Gone, Stage::Commits) => {
                let mark = s.mark.expect("it was secured");
                self.job(k, Job::Raise(waiter, mark));
            }
            _ => self.fail(format!("{waiter:?} is told {told:?} when it {stage:?}")),
        }
    }

    fn job(&mut self, k: usize, job: Job) {
        if let Some(node) = &mut self.nodes[k] {
            node.jobs.push(job);
        }
    }

    // ---- sessions ----

    fn begin(&mut self, node: usize, object: ObjectId) {
        let waiter = Waiter(self.sessions.len() as u64);
        self.sessions.push(Session {
            node,
            object,
            began: self.step,
            stage: Stage::Waits,
            value: 0,
            mark: None,
        });
        self.draw(waiter);
    }

    fn draw(&mut self, waiter: Waiter) {
        let s = &self.sessions[waiter.0 as usize];
        let (k, object) = (s.node, s.object);
        let node = self.nodes[k].as_mut().expect("sessions end with theirs");
        if object == CACHED
            && let Some((value, mark)) = node.kept.pop_front()
        {
            if node.kept.len() == 1 {
                let mut asked = false;
                self.machine(k, |m, out| asked = m.draw_ahead(object, HEADER, out));
                self.ahead += u32::from(asked);
            }
            return self.has(waiter, value, mark);
        }
        let mut begun = Begun::Here;
        self.machine(k, |m, out| begun = m.draw(object, HEADER, waiter, out));
        if begun == Begun::Here {
            self.job(k, Job::Draw(waiter));
        }
    }

    fn has(&mut self, waiter: Waiter, value: i64, mark: Option<Mark>) {
        let s = &mut self.sessions[waiter.0 as usize];
        (s.stage, s.value, s.mark) = (Stage::Has, value, mark);
        let (node, object, began) = (s.node, s.object, s.began);
        let taken = Taken {
            node,
            at: self.step,
            committed: false,
        };
        if self.taken.insert((object, value), taken).is_some() {
            self.fail(format!("{value} of {object:?} is drawn twice"));
        }
        let after = (object, value + 1)..(object, i64::MAX);
        let mut behind = self.taken.range(after);
        if object == NOCACHE
            && let Some(((_, higher), _)) = behind.find(|(_, t)| t.at < began)
        {
            self.fail(format!("{value} is drawn after {higher} was"));
        }
        let set = self.nodes[node].as_ref().map_or((0, 0), |n| n.set);
        if object == CACHED && began > set.0 && value < set.1 {
            self.fail(format!("{value} is drawn where {} was set before", set.1));
        }
    }

    /// Sets the sequence with a cache further on, if that can be done now.
    fn set(&mut self, k: usize) {
        if !self.acquire(k, CACHED) {
            return;
        }
        let floor = self.nodes[k].as_ref().and_then(|n| n.machine.floor(CACHED));
        let Some(floor) = floor else {
            return;
        };
        let block = self.blocks[&CACHED].state;
        let base = floor.filter(|f| f.draw > block.draw).unwrap_or(block);
        let to = base.mark + 10;
        let state = SequenceParams::default().set(base, to, false);
        self.log(k, CACHED, state);
        let node = self.nodes[k].as_mut().expect("it has the block");
        node.machine.set_here(CACHED);
        node.kept.clear();
        node.set = (self.step, to);
    }

    fn secure(&mut self, waiter: Waiter) {
        let s = &mut self.sessions[waiter.0 as usize];
        s.stage = Stage::Commits;
        let (k, mark) = (s.node, s.mark);
        let Some(mark) = mark.filter(|_| !self.planted.breaks(Mutation::CommitUnsecured)) else {
            return self.commit(waiter);
        };
        let mut secured = Secured::Wait;
        self.machine(k, |m, out| secured = m.secure(&mark, waiter, out));
        match secured {
            Secured::Durable => self.commit(waiter),
            Secured::Gone => self.job(k, Job::Raise(waiter, mark)),
            Secured::Wait => {}
        }
    }

    fn commit(&mut self, waiter: Waiter) {
        let s = &mut self.sessions[waiter.0 as usize];
        s.stage = Stage::Over;
        let (k, key) = (s.node, (s.object, s.value));
        self.flush(k);
        if let Some(t) = self.taken.get_mut(&key) {
            t.committed = true;
        }
    }

    fn cancel(&mut self, waiter: Waiter) {
        let s = &mut self.sessions[waiter.0 as usize];
        let (k, object, stage) = (s.node, s.object, s.stage);
        s.stage = Stage::Over;
        self.machine(k, |m, _| match stage {
            Stage::Waits => m.give_up(object, waiter),
            _ => m.give_up_waiting(waiter),
        });
        if let Some(node) = &mut self.nodes[k] {
            let other = |j: &Job| !matches!(j, Job::Draw(w) | Job::Raise(w, _) if *w == waiter);
            node.jobs.retain(other);
        }
    }

    fn run_job(&mut self, k: usize, at: usize) {
        let node = self.nodes[k].as_mut().expect("it has a job");
        match node.jobs.swap_remove(at) {
            Job::Draw(waiter) => {
                let object = self.sessions[waiter.0 as usize].object;
                match self.take(k, object, 1) {
                    Some(given) => {
                        let node = self.nodes[k].as_mut().expect("it has the block");
                        let rest = given.rest(1);
                        if given.keep {
                            let rest = (0..i64::from(rest.count)).map(|i| (rest.first + i, None));
                            node.kept.extend(rest);
                        }
                        self.has(waiter, given.value(0), None);
                    }
                    None => self.draw(waiter),
                }
            }
            Job::Serve(serve) => {
                let outcome = match self.take(k, serve.object, serve.wanted) {
                    Some(given) => Outcome::Given(given),
                    None if self.random.below(4) == 0 => Outcome::Refused,
                    None => Outcome::NotYet,
                };
                self.machine(k, |m, out| m.served(&serve, outcome, out));
            }
            Job::Raise(waiter, mark) => {
                let object = self.sessions[waiter.0 as usize].object;
                if !self.acquire(k, object) {
                    return self.job(k, Job::Raise(waiter, mark));
                }
                if self.blocks[&object].state.draw < mark.state.draw {
                    self.log(k, object, mark.state);
                }
                self.commit(waiter);
            }
        }
    }

    // ---- schedules ----

    fn deliver(&mut self, at: usize) {
        let letter = self.letters.swap_remove(at);
        if self.nodes[letter.to].is_none() || self.lives[letter.to] != letter.to_life.0 {
            return;
        }
        let from = InstanceId(letter.from as u16 + 1);
        self.machine(letter.to, |m, out| m.message(from, letter.message, out));
    }

    fn in_stage(&mut self, stage: Stage) -> Option<Waiter> {
        let found: Vec<_> = (0..self.sessions.len())
            .filter(|s| self.sessions[*s].stage == stage)
            .collect();
        (!found.is_empty()).then(|| Waiter(found[self.random.below(found.len())] as u64))
    }

    fn random_step(&mut self) {
        let living = self.living();
        let k = living[self.random.below(living.len())];
        match self.random.below(100) {
            0..24 => {
                let object = [NOCACHE, CACHED][usize::from(self.random.below(3) == 0)];
                // Mostly the first instance draws, so that homes move.
                let k = if self.random.below(2) == 0 {
                    living[0]
                } else {
                    k
                };
                self.begin(k, object);
            }
            24..58 if !self.letters.is_empty() => {
                let at = self.random.below(self.letters.len());
                if self.faults && self.random.below(12) == 0 {
                    self.letters.swap_remove(at);
                } else {
                    if self.faults && self.random.below(12) == 0 {
                        self.letters.push(self.letters[at].clone());
                    }
                    self.deliver(at);
                }
            }
            58..78 => {
                let jobs = self.nodes[k].as_ref().map_or(0, |n| n.jobs.len());
                if jobs > 0 {
                    let at = self.random.below(jobs);
                    self.run_job(k, at);
                }
            }
            78..88 => {
                if let Some(waiter) = self.in_stage(Stage::Has) {
                    self.secure(waiter);
                }
            }
            88 => {
                let stage = [Stage::Waits, Stage::Commits][self.random.below(2)];
                if let Some(waiter) = self.in_stage(stage) {
                    self.cancel(waiter);
                }
            }
            89..92 => self.flush(k),
            92..95 => self.enter(k),
            95 => self.machine(k, |m, out| m.say_again(None, out)),
            98 => self.set(k),
            96 if self.faults && living.len() > 1 => self.kill(k),
            97 if self.faults => {
                if let Some(k) = (0..NODES).find(|k| self.nodes[*k].is_none()) {
                    self.start(k);
                }
            }
            _ => {}
        }
    }

    /// Lets every message arrive and every session go on, and checks that no session is left
    /// waiting.
    fn heal(&mut self) {
        let living = self.living();
        living.iter().for_each(|k| self.enter(*k));
        self.settle();
    }

    fn settle(&mut self) {
        let living = self.living();
        for round in 0..200 {
            while !self.letters.is_empty() {
                self.deliver(0);
            }
            let mut done = true;
            for &k in &living {
                while self.nodes[k].as_ref().is_some_and(|n| !n.jobs.is_empty()) {
                    self.run_job(k, 0);
                    done = false;
                }
                self.machine(k, |m, out| m.say_again(None, out));
            }
            let waits = |s: &Session| matches!(s.stage, Stage::Waits | Stage::Commits);
            if done && round > 2 && !self.sessions.iter().any(waits) {
                return;
            }
        }
        self.fail("somebody waits for ever".to_string());
    }
}

fn walk(seed: u64, faults: bool, planted: Planted) -> Result<World, String> {
    let mut world = World::new(seed, faults, planted);
    for step in 0..STEPS {
        world.step = step;
        world.random_step();
        if let Some(error) = world.error.take() {
            return Err(format!("seed {seed}, step {step}: {error}"));
        }
    }
    world.step = STEPS;
    world.heal();
    match world.error.take() {
        Some(error) => Err(format!("seed {seed}, at the end: {error}")),
        None => Ok(world),
    }
}

#[test]
fn values_are_drawn_once_and_in_order_whoever_dies() {
    let (mut drawn, mut moved, mut ahead) = (0, 0, 0);
    for seed in seeds(schedules(4_000)) {
        match walk(seed, true, Planted::default()) {
            Ok(world) => {
                drawn += world.taken.len();
                moved += world.moved;
                ahead += world.ahead;
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(
        drawn > 0 && moved > 0 && ahead > 0,
        "{drawn} drawn, homes moved {moved} times, {ahead} requests ahead"
    );
}

/// Among instances that stay, without lost messages, cancelling alone loses values of a sequence
/// without a cache.
#[test]
fn nothing_is_lost_where_nobody_dies() {
    for seed in seeds(schedules(4_000)) {
        let world = match walk(seed, false, Planted::default()) {
            Ok(world) => world,
            Err(e) => panic!("{e}"),
        };
        let values: Vec<i64> = world
            .taken
            .keys()
            .filter(|(o, _)| *o == NOCACHE)
            .map(|(_, v)| *v)
            .collect();
        let given_up = world
            .sessions
            .iter()
            .filter(|s| s.stage == Stage::Over && s.value == 0)
            .count();
        let last = values.last().copied().unwrap_or(0) as usize;
        assert!(
            last <= values.len() + given_up,
            "seed {seed}: {values:?}, {given_up} gave up"
        );
    }
}

#[test]
fn a_rule_that_is_left_out_is_noticed() {
    for mutation in [
        Mutation::DrawUndeclared,
        Mutation::ForgetDeclarations,
        Mutation::CommitUnsecured,
        Mutation::ShareWithLateComers,
        Mutation::KeepAfterSet,
    ] {
        let planted = Planted {
            mutation: Some(mutation),
        };
        let noticed = (0..20_000).find_map(|seed| walk(seed, true, planted).err());
        assert!(noticed.is_some(), "{mutation:?} goes unnoticed");
    }
}

/// All instances compute one home. It moves to the instance that draws nearly everything, and all
/// others find it there.
#[test]
fn the_home_moves_to_who_draws_most() {
    let mut world = World::new(1, false, Planted::default());
    world.heal();
    let home = |w: &World, k: usize| w.nodes[k].as_ref().map(|n| n.machine.home(NOCACHE));
    let first = home(&world, 0).expect("it is up");
    assert!((0..NODES).all(|k| home(&world, k) == Some(first)));
    let most = (0..NODES)
        .find(|k| index(first) != *k)
        .expect("three are up");
    let third = (0..NODES)
        .find(|k| index(first) != *k && most != *k)
        .expect("three are up");
    for step in 1..10 {
        world.step = step;
        world.begin(most, NOCACHE);
        world.settle();
    }
    assert_eq!(home(&world, most), Some(InstanceId(most as u16 + 1)));
    world.begin(third, NOCACHE);
    world.settle();
    assert_eq!(home(&world, third), home(&world, most));
    let values: Vec<i64> = world.taken.keys().map(|(_, v)| *v).collect();
    assert_eq!(values, (1..=10).collect::<Vec<_>>());
    assert_eq!(world.error, None);
}
