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
    victims: Vec<Owner>,
    over: Vec<Owner>,
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
            victims: Vec::new(),
            over: Vec::new(),
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
                Effect::TxnWaitedFor { .. } => {}
                Effect::TxnOver { waiter, .. } => self.over.push(waiter),
                Effect::Deadlock { owner } => self.victims.push(owner),
            }
        }
    }

    fn granted(&mut self, n: usize, resource: Resource, owner: Owner, value: Option<Value>) {
        let truth = self.truth[&resource];
        let mut users = self.users.iter_mut();
        let Some(user) = users.find(|u| u.owner == owner && u.resource == resource) else {
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

impl World {
    fn quiet() -> Self {
        let mut world = World::new(1, 0, Planted::default());
        world.run();
        world
    }

    /// Delivers everything, in any order.
    fn run(&mut self) {
        while !self.letters.is_empty() {
            let at = self.random.below(self.letters.len());
            self.deliver(at, false);
        }
    }

    fn lock(&mut self, owner: Owner, resource: u64, mode: Mode) {
        let (node, resource) = (owner.instance().0 as usize - 1, Resource(resource));
        self.users.push(User {
            node,
            owner,
            resource,
            mode,
            granted: false,
        });
        self.with(node, |lane, out| lane.acquire(resource, owner, mode, out));
    }

    fn at(&mut self, owner: Owner, step: impl FnOnce(&mut Enqueues, &mut Vec<Effect>)) {
        self.with(owner.instance().0 as usize - 1, step);
    }
}

fn owner(node: usize, number: u64) -> Owner {
    TxnId::new(instance(node), number)
}

/// Each has one table and wants the other's. Whoever is suspected first, the younger one is the victim.
#[test]
fn c26_a_deadlock_of_two_instances_is_found_and_has_one_victim() {
    for suspect in [0, 1] {
        let mut world = World::quiet();
        let owners = [owner(1, 1), owner(2, 2)];
        world.lock(owners[0], 0, Mode::Exclusive);
        world.lock(owners[1], 1, Mode::Exclusive);
        world.run();
        world.lock(owners[0], 1, Mode::Shared);
        world.lock(owners[1], 0, Mode::Shared);
        world.run();
        world.at(owners[suspect], |lane, out| {
            lane.suspect(owners[suspect], out)
        });
        world.run();
        assert_eq!(world.victims, [owners[1]]);
    }
}

/// A chain of waiters is no deadlock.
#[test]
fn c26_who_only_waits_is_no_victim() {
    let mut world = World::quiet();
    world.lock(owner(0, 1), 0, Mode::Exclusive);
    world.run();
    world.lock(owner(1, 2), 1, Mode::Exclusive);
    world.run();
    world.lock(owner(1, 2), 0, Mode::Exclusive);
    world.lock(owner(2, 3), 1, Mode::Exclusive);
    world.run();
    for waiter in [owner(1, 2), owner(2, 3)] {
        world.at(waiter, |lane, out| lane.suspect(waiter, out));
        world.run();
    }
    assert_eq!(world.victims, []);
}

/// The first walk finds a cycle; before the second comes by, one of the waits ends and another begins. Each edge existed,
/// the cycle of the second walk is not the one of the first: nobody is a victim.
#[test]
fn c26_a_cycle_that_changed_between_two_walks_has_no_victim() {
    let mut world = World::quiet();
    let (a, b) = (owner(1, 1), owner(2, 2));
    world.lock(a, 0, Mode::Exclusive);
    world.lock(b, 1, Mode::Exclusive);
    world.run();
    world.lock(a, 1, Mode::Shared);
    world.lock(b, 0, Mode::Shared);
    world.run();
    world.at(a, |lane, out| lane.suspect(a, out));
    // Step by step, until the walk has been at b for the first time.
    let second = |w: &World| {
        let walks = |l: &&Letter| matches!(&l.message, Message::Walk(p) if p.is_second());
        w.letters.iter().filter(walks).count() > 0
    };
    while !second(&world) {
        world.deliver(0, false);
    }
    world.at(b, |lane, out| lane.release(Resource(0), b, out)); // its wait times out ...
    world.at(b, |lane, out| {
        lane.acquire(Resource(0), b, Mode::Shared, out)
    }); // ... and it tries again
    world.run();
    assert_eq!(world.victims, []);
    world.at(a, |lane, out| lane.suspect(a, out));
    world.run();
    assert_eq!(world.victims, [b], "the new cycle is one as well");
}

/// DDL waits for a table lock that another instance keeps; the reader behind it there waits for a row of the DDL's
/// transaction. The walk has to expand the kept lock into its users, and a wait for a transaction into its owner.
#[test]
fn c23e_ddl_waits_for_a_kept_lock_whose_user_waits_for_a_row_of_the_ddl() {
    let mut world = World::quiet();
    let (ddl, reader) = (owner(1, 1), owner(2, 2));
    world.lock(reader, 0, Mode::SubShared);
    world.run();
    world.at(reader, |lane, out| lane.wait_for_txn(reader, ddl, out));
    world.lock(ddl, 0, Mode::Exclusive);
    world.run();
    world.at(ddl, |lane, out| lane.suspect(ddl, out));
    world.run();
    assert_eq!(world.victims, [reader]);
}

/// The end of a transaction reaches its waiters, also if the question was lost with its connection.
#[test]
fn a_wait_for_a_transaction_ends_with_it() {
    let mut world = World::quiet();
    let (holder, waiter) = (owner(0, 1), owner(1, 2));
    world.at(waiter, |lane, out| lane.wait_for_txn(waiter, holder, out));
    world.letters.clear(); // the connection breaks
    world.timers();
    world.run();
    assert_eq!(world.over, []);
    world.at(holder, |lane, out| lane.txn_ended(holder, out));
    world.run();
    assert_eq!(world.over, [waiter]);
}

/// Owners take two locks each, in any order: they deadlock all the time. With the walk everybody ends, as a victim or not;
/// if all take them in the same order, nobody is a victim.
#[test]
fn deadlocks_under_load_are_all_found_and_none_is_invented() {
    let mut victims = 0;
    for seed in seeds(schedules(300)) {
        for ordered in [false, true] {
            let mut world = World::new(seed, 0, Planted::default());
            let mut wanting: Vec<(Owner, [u64; 2], usize)> = Vec::new();
            for number in 1..12 {
                let first = world.random.next() % RESOURCES;
                let mut pair = [first, (first + 1 + world.random.next() % 2) % RESOURCES];
                if ordered {
                    pair.sort();
                }
                wanting.push((owner(world.random.below(NODES), number), pair, 0));
            }
            for round in 0..20_000 {
                if wanting.is_empty() {
                    break;
                }
                load_step(&mut world, &mut wanting, round);
                assert_eq!(world.violation, None, "BRAID_FUSION_SEED={seed} replays it");
            }
            assert!(
                wanting.is_empty(),
                "BRAID_FUSION_SEED={seed} replays it: {wanting:?}"
            );
            victims += world.victims.len();
            assert!(
                !ordered || world.victims.is_empty(),
                "BRAID_FUSION_SEED={seed}"
            );
        }
    }
    assert!(victims > 0, "the load never deadlocks");
}

fn load_step(world: &mut World, wanting: &mut Vec<(Owner, [u64; 2], usize)>, round: usize) {
    if !world.letters.is_empty() && world.random.below(4) > 0 {
        let at = world.random.below(world.letters.len());
        world.deliver(at, false);
        return;
    }
    if wanting.is_empty() {
        return;
    }
    let at = world.random.below(wanting.len());
    let (owner, pair, taken) = wanting[at];
    let mine = |u: &User| u.owner == owner;
    let waits = world.users.iter().any(|u| mine(u) && !u.granted);
    let dead = world.victims.contains(&owner);
    if (taken == 2 && !waits) || dead {
        wanting.remove(at);
        world.users.retain(|u| u.owner != owner);
        for resource in pair {
            world.at(owner, |lane, out| {
                lane.release(Resource(resource), owner, out)
            });
        }
    } else if !waits {
        world.lock(owner, pair[taken], Mode::Exclusive);
        wanting[at].2 += 1;
    } else if round.is_multiple_of(7) {
        world.at(owner, |lane, out| lane.suspect(owner, out));
    }
}
