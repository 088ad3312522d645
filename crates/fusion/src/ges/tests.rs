//! A seeded simulation of the enqueue service: owners on three instances lock, convert, change values and let go, while
//! messages are reordered, doubled and lost, and instances die and come back.

use super::mode::MODES;
use super::*;
use crate::ids::Incarnation;
use crate::membership::assign_masters;
use crate::planted::{Mutation, Planted};
use crate::testing::{Random, schedules, seeds};
use block::ids::TxnId;
use std::collections::BTreeMap;

const NODES: usize = 3;
const RESOURCES: u64 = 3;

#[derive(Clone)]
struct Letter {
    from: usize,
    to: usize,
    life: Incarnation,
    epoch: Epoch,
    message: Message,
}

#[derive(Clone)]
struct User {
    node: usize,
    owner: Owner,
    resource: Resource,
    mode: Mode,
    granted: bool,
}

struct World {
    nodes: Vec<Option<Enqueues>>,
    lives: Vec<Incarnation>,
    letters: Vec<Letter>,
    users: Vec<User>,
    /// What the dictionary says: the number of changes made under the resource's exclusive lock.
    truth: BTreeMap<Resource, u64>,
    epoch: Epoch,
    members: BTreeSet<Member>,
    masters: Vec<InstanceId>,
    random: Random,
    next_owner: u64,
    faults: u32,
    planted: Planted,
    violation: Option<&'static str>,
}

fn instance(node: usize) -> InstanceId {
    InstanceId(node as u16 + 1)
}

impl World {
    fn new(seed: u64, faults: u32, planted: Planted) -> Self {
        let mut world = World {
            nodes: vec![None; NODES],
            lives: vec![Incarnation(0); NODES],
            letters: Vec::new(),
            users: Vec::new(),
            truth: (0..RESOURCES).map(|r| (Resource(r), 0)).collect(),
            epoch: Epoch(0),
            members: BTreeSet::new(),
            masters: (0..RESOURCES as usize)
                .map(|r| instance(r % NODES))
                .collect(),
            random: Random::new(seed),
            next_owner: 0,
            faults,
            planted,
            violation: None,
        };
        for n in 0..NODES {
            world.start(n);
        }
        world.new_epoch();
        world
    }

    fn start(&mut self, n: usize) {
        self.lives[n].0 += 1;
        let mut lane = Enqueues::new(instance(n));
        lane.plant(self.planted);
        self.nodes[n] = Some(lane);
    }

    /// All survivors enter the epoch; what they say to each other in it still comes in any order.
    fn new_epoch(&mut self) {
        self.epoch.0 += 1;
        let alive: Vec<usize> = (0..NODES).filter(|&n| self.nodes[n].is_some()).collect();
        let member = |&n: &usize| Member {
            instance: instance(n),
            incarnation: self.lives[n],
        };
        self.members = alive.iter().map(member).collect();
        let living: Vec<InstanceId> = alive.iter().map(|&n| instance(n)).collect();
        assign_masters(&mut self.masters, &living);
        for n in alive {
            let (epoch, members, masters) =
                (self.epoch, self.members.clone(), self.masters.clone());
            self.with(n, |lane, out| {
                lane.reconfigure(epoch, members, masters, out)
            });
        }
    }

    fn with(&mut self, n: usize, step: impl FnOnce(&mut Enqueues, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        step(self.nodes[n].as_mut().expect("alive"), &mut out);
        for effect in out {
            match effect {
                Effect::Send { to, message } => {
                    let to = to.0 as usize - 1;
                    self.letters.push(Letter {
                        from: n,
                        to,
                        life: self.lives[to],
                        epoch: self.epoch,
                        message,
                    });
                }
                Effect::Granted {
                    resource,
                    owner,
                    value,
                } => self.granted(n, resource, owner, value),
            }
        }
    }

    fn granted(&mut self, n: usize, resource: Resource, owner: Owner, value: Option<Value>) {
        let truth = self.truth[&resource];
        let Some(user) = self.users.iter_mut().find(|u| u.owner == owner) else {
            self.violation = Some("granted to an owner that is gone");
            return;
        };
        user.granted = true;
        let mode = user.mode;
        if mode != Mode::Null && value.is_some_and(|v| v.data != truth) {
            self.violation = Some("an old value is taken for valid");
        }
        if value.is_none() && mode != Mode::Null {
            let read = Value {
                version: truth + 1,
                data: truth,
            };
            self.with(n, |lane, out| lane.value_read(resource, read, out));
        }
        self.check();
    }

    fn check(&mut self) {
        let granted: Vec<&User> = self.users.iter().filter(|u| u.granted).collect();
        for (i, a) in granted.iter().enumerate() {
            for b in &granted[i + 1..] {
                if a.resource == b.resource && !a.mode.compatible(b.mode) {
                    self.violation = Some("two owners have modes that exclude each other");
                }
            }
        }
    }

    fn begin(&mut self) {
        let n = self.random.below(NODES);
        if self.nodes[n].is_none() {
            return;
        }
        self.next_owner += 1;
        let owner = TxnId::new(instance(n), self.next_owner);
        let resource = Resource(self.random.next() % RESOURCES);
        let mode = MODES[1 + self.random.below(5)];
        self.users.push(User {
            node: n,
            owner,
            resource,
            mode,
            granted: false,
        });
        self.with(n, |lane, out| lane.acquire(resource, owner, mode, out));
    }

    fn end(&mut self, at: usize) {
        let user = self.users[at].clone();
        if user.granted && user.mode == Mode::Exclusive && self.random.below(2) == 0 {
            let truth = self.truth.get_mut(&user.resource).expect("all are there");
            *truth += 1;
            let data = *truth;
            self.with(user.node, |lane, _| {
                lane.set_value(user.resource, user.owner, data);
            });
        }
        self.users.remove(at);
        self.with(user.node, |lane, out| {
            lane.release(user.resource, user.owner, out);
        });
    }

    fn deliver(&mut self, at: usize, keep: bool) {
        let letter = if keep {
            self.letters[at].clone()
        } else {
            self.letters.swap_remove(at)
        };
        let current = self.lives[letter.to] == letter.life && letter.epoch == self.epoch;
        if current && self.nodes[letter.to].is_some() {
            self.with(letter.to, |lane, out| {
                lane.message(instance(letter.from), letter.message, out);
            });
        }
    }

    fn fault(&mut self) {
        self.faults -= 1;
        let n = self.random.below(NODES);
        match self.random.below(4) {
            0 if self.nodes.iter().flatten().count() > 1 && self.nodes[n].is_some() => {
                self.nodes[n] = None;
                self.users.retain(|u| u.node != n);
                self.new_epoch();
            }
            1 if self.nodes[n].is_none() => {
                self.start(n);
                self.new_epoch();
            }
            2 if !self.letters.is_empty() => {
                let at = self.random.below(self.letters.len());
                self.deliver(at, true);
            }
            _ => {
                let (a, b) = (n, (n + 1) % NODES);
                self.letters
                    .retain(|l| (l.from, l.to) != (a, b) && (l.from, l.to) != (b, a));
                self.timers();
            }
        }
    }

    fn timers(&mut self) {
        for n in 0..NODES {
            if self.nodes[n].is_some() {
                self.with(n, |lane, out| lane.timer(out));
            }
        }
    }

    fn step(&mut self, work: bool) {
        match self.random.below(12) {
            0 | 1 if work => self.begin(),
            2 if work && self.faults > 0 && self.random.below(4) == 0 => self.fault(),
            3 | 4 if !self.users.is_empty() => {
                let at = self.random.below(self.users.len());
                // A waiter gives up now and then; who has the lock ends sooner or later.
                if self.users[at].granted || (work && self.random.below(8) == 0) {
                    self.end(at);
                }
            }
            _ if !self.letters.is_empty() => {
                let at = self.random.below(self.letters.len());
                self.deliver(at, false);
            }
            _ => {}
        }
    }
}

fn walk(seed: u64, faults: u32, planted: Planted) -> Result<(), String> {
    let mut world = World::new(seed, faults, planted);
    for _ in 0..400 {
        world.step(true);
        if let Some(violation) = world.violation {
            return Err(format!("{violation} (BRAID_FUSION_SEED={seed} replays it)"));
        }
    }
    for _ in 0..40 {
        for _ in 0..300 {
            world.step(false);
        }
        if let Some(violation) = world.violation {
            return Err(format!("{violation} (BRAID_FUSION_SEED={seed} replays it)"));
        }
        if world.users.is_empty() {
            return Ok(());
        }
        world.timers();
    }
    Err(format!(
        "somebody waits for ever (BRAID_FUSION_SEED={seed} replays it)"
    ))
}

#[test]
fn enqueues_exclude_what_they_should_and_everybody_is_served() {
    for seed in seeds(schedules(3_000)) {
        walk(seed, 0, Planted::default()).unwrap();
        walk(seed, 12, Planted::default()).unwrap();
    }
}

#[test]
fn every_rule_of_enqueues_left_out_is_noticed() {
    for (mutation, faults) in [
        (Mutation::RecallFromUsers, 0),
        (Mutation::ValueOutlivesWriter, 12),
    ] {
        let planted = Planted {
            mutation: Some(mutation),
        };
        let noticed = (0..5_000).find_map(|seed| walk(seed, faults, planted).err());
        println!("{mutation:?}: {noticed:?}");
        assert!(noticed.is_some(), "{mutation:?} is not noticed");
    }
}

/// DDL wants a table's lock while readers come and go on another instance that keeps it: the recall stops new local
/// grants, so the DDL waits only for the readers of that moment.
#[test]
fn a_recall_stops_new_local_grants() {
    let run = |mutation| {
        let mut world = World::new(1, 0, Planted { mutation });
        let (table, reader, late, ddl) = (
            Resource(0),
            TxnId::new(instance(1), 1),
            TxnId::new(instance(1), 2),
            TxnId::new(instance(2), 3),
        );
        let mut granted = Vec::new();
        let mut enter = |world: &mut World, n: usize, owner, mode| {
            world.users.push(User {
                node: n,
                owner,
                resource: table,
                mode,
                granted: false,
            });
            world.with(n, |lane, out| lane.acquire(table, owner, mode, out));
            while !world.letters.is_empty() {
                world.deliver(0, false);
            }
            granted.push(
                world
                    .users
                    .iter()
                    .find(|u| u.owner == owner)
                    .unwrap()
                    .granted,
            );
        };
        enter(&mut world, 1, reader, Mode::SubShared);
        enter(&mut world, 2, ddl, Mode::Exclusive);
        enter(&mut world, 1, late, Mode::SubShared);
        granted
    };
    assert_eq!(run(None), [true, false, false]);
    assert_eq!(run(Some(Mutation::GrantDuringRecall)), [true, false, true]);
}

/// What an instance keeps costs no message when it is used again.
#[test]
fn a_kept_lock_sends_nothing() {
    let mut world = World::new(1, 0, Planted::default());
    while !world.letters.is_empty() {
        world.deliver(0, false);
    }
    let (table, node) = (Resource(0), 1);
    for round in 1..4 {
        let owner = TxnId::new(instance(node), round);
        world.users.push(User {
            node,
            owner,
            resource: table,
            mode: Mode::SubExclusive,
            granted: false,
        });
        world.with(node, |lane, out| {
            lane.acquire(table, owner, Mode::SubExclusive, out)
        });
        assert_eq!(world.letters.is_empty(), round > 1);
        while !world.letters.is_empty() {
            world.deliver(0, false);
        }
        world.end(0);
    }
}
