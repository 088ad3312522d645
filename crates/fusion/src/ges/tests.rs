//! A seeded simulation of the enqueue service: owners on three instances lock, convert, change values and let go, some by an implied mode of which nobody
//! is told, while messages are reordered, doubled and lost, and instances die and come back.

use super::mode::MODES;
use super::*;
use crate::ids::Incarnation;
use crate::membership::assign_masters;
use crate::planted::{Mutation, Planted};
use crate::testing::{Random, schedules, seeds};
use block::ids::TxnId;
use std::collections::BTreeMap;

const NODES: usize = 3;

/// The last one is implied: weak owners use it without asking while their instance's lane lets them.
const RESOURCES: [Resource; 3] = [Resource(0), Resource(1), Resource(Resource::IMPLIED | 2)];
const TABLE: Resource = RESOURCES[2];
/// Only this one has a value.
const VALUED: Resource = RESOURCES[0];

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
    patient: bool,
    /// By the implied mode, unknown to the lane.
    implied: bool,
    /// It has the lock and waits for it in this mode.
    converts: Option<Mode>,
}

struct World {
    nodes: Vec<Option<Enqueues>>,
    lives: Vec<Incarnation>,
    letters: Vec<Letter>,
    users: Vec<User>,
    /// What the dictionary says: the number of changes made under the resource's exclusive lock.
    truth: BTreeMap<Resource, u64>,
    /// The newest epoch that was decided, which each enters by itself.
    epoch: Epoch,
    members: BTreeSet<Member>,
    masters: Vec<InstanceId>,
    random: Random,
    next_owner: u64,
    faults: u32,
    planted: Planted,
    /// Locks in one message.
    part: usize,
    /// Instances whose lane has closed the implied resource.
    closed: BTreeSet<usize>,
    denied: Vec<Owner>,
    /// What the dead had locked of whose last commits nobody knows yet when they took effect.
    in_doubt: Vec<(Resource, Mode)>,
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
            truth: RESOURCES.map(|r| (r, 0)).into(),
            epoch: Epoch(0),
            members: BTreeSet::new(),
            masters: (0..NODES).map(instance).collect(),
            random: Random::new(seed),
            next_owner: 0,
            faults,
            planted,
            part: if seed.is_multiple_of(2) { PART } else { 1 },
            closed: BTreeSet::new(),
            denied: Vec::new(),
            in_doubt: Vec::new(),
            violation: None,
        };
        for n in 0..NODES {
            world.start(n);
        }
        world.new_epoch();
        world.all_enter();
        world
    }

    fn start(&mut self, n: usize) {
        self.lives[n].0 += 1;
        let mut lane = Enqueues::new(instance(n));
        lane.plant(self.planted);
        lane.speak_in_parts_of(self.part);
        self.nodes[n] = Some(lane);
        self.closed.remove(&n);
    }

    /// An epoch is decided; those who live will enter it, one after the other.
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
    }

    /// Who has not entered the newest epoch.
    fn behind(&self) -> Vec<usize> {
        let is_behind = |n: &usize| self.epoch_of(*n).is_some_and(|e| e < self.epoch);
        (0..NODES).filter(is_behind).collect()
    }

    fn epoch_of(&self, n: usize) -> Option<Epoch> {
        self.nodes[n].as_ref().map(Enqueues::epoch)
    }

    fn enter_epoch(&mut self, n: usize) {
        let plan = Plan {
            epoch: self.epoch,
            members: self.members.clone(),
            masters: self.masters.clone(),
            in_doubt: !self.in_doubt.is_empty(),
        };
        self.with(n, |lane, out| lane.reconfigure(plan, out));
    }

    fn all_enter(&mut self) {
        self.behind().into_iter().for_each(|n| self.enter_epoch(n));
    }

    fn die(&mut self, n: usize) {
        self.nodes[n] = None;
        let of_dead = self.users.extract_if(.., |u| u.node == n);
        let locked = of_dead.filter(|u| u.granted).map(|u| (u.resource, u.mode));
        self.in_doubt.extend(locked);
        self.new_epoch();
    }

    /// It is decided when the last commits of the dead took effect: when all are in the epoch without them.
    fn recovered(&mut self) {
        self.all_enter();
        if !self.in_doubt.is_empty() {
            self.in_doubt.clear();
            self.new_epoch();
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
                        epoch: self.epoch_of(n).expect("alive"),
                        message,
                    });
                }
                Effect::Granted {
                    resource,
                    owner,
                    value,
                } => self.granted(n, resource, owner, value),
                Effect::Denied { owner, resource } => self.denied(n, resource, owner),
                Effect::Close { resource } => self.close(n, resource),
                Effect::Opened { resource } => {
                    assert_eq!(resource, TABLE);
                    self.closed.remove(&n);
                }
            }
        }
    }

    /// Who is denied has no more than before: it may have been named as a user meanwhile.
    fn denied(&mut self, n: usize, resource: Resource, owner: Owner) {
        let this = |u: &User| (u.owner, u.resource) == (owner, resource);
        self.users.retain(|u| !this(u) || u.granted);
        let mut has = Mode::Null;
        for user in self.users.iter_mut().filter(|u| this(u)) {
            user.converts = None;
            has = user.mode;
        }
        self.denied.push(owner);
        self.with(n, |lane, out| lane.lower(resource, (owner, has), out));
    }

    /// The implied mode ends on this instance; whoever uses it is named.
    fn close(&mut self, n: usize, resource: Resource) {
        let mut used = self.name_implied(n, resource);
        if resource == TABLE && self.closed.insert(n) {
            used.extend(self.weak_that_wait(n));
        }
        self.with(n, |lane, out| lane.closed(resource, &used, out));
    }

    fn name_implied(&mut self, n: usize, resource: Resource) -> Vec<(Owner, Mode)> {
        if self.planted.breaks(Mutation::IgnoreImplied) {
            return Vec::new();
        }
        let mut used = Vec::new();
        for u in self.users.iter_mut() {
            if u.implied && u.node == n && u.resource == resource {
                u.implied = false;
                used.push((u.owner, u.mode));
            }
        }
        used
    }

    /// Sessions have a lock against those of their own instance before they ask for it: a weak one that nobody here excludes is named as used.
    fn weak_that_wait(&self, n: usize) -> Vec<(Owner, Mode)> {
        let here = |u: &&User| u.node == n && u.resource == TABLE;
        let waits = |u: &&User| !u.granted && Mode::SubExclusive.covers(u.mode);
        let has = |u: &&User| {
            let others = self
                .users
                .iter()
                .filter(here)
                .filter(|o| o.owner != u.owner);
            let mut modes = others.map(|o| o.mode.join(o.converts.unwrap_or_default()));
            modes.all(|m| m.compatible(u.mode))
        };
        let used = self.users.iter().filter(here).filter(waits).filter(has);
        used.map(|u| (u.owner, u.mode)).collect()
    }

    fn granted(&mut self, n: usize, resource: Resource, owner: Owner, value: Option<Value>) {
        let truth = self.truth[&resource];
        let mut users = self.users.iter_mut();
        let Some(user) = users.find(|u| u.owner == owner && u.resource == resource) else {
            self.violation = Some("granted to an owner that is gone");
            return;
        };
        user.granted = true;
        if let Some(mode) = user.converts.take() {
            user.mode = user.mode.join(mode);
        }
        if value.is_some_and(|v| v.data != truth) {
            self.violation = Some("an old value is taken for valid");
        }
        if value.is_none() && resource == VALUED {
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
            let of_dead = |d: &(Resource, Mode)| d.0 == a.resource && !d.1.compatible(a.mode);
            if self.in_doubt.iter().any(of_dead) {
                self.violation =
                    Some("what the dead may have changed is locked before it is known");
            }
        }
    }

    fn begin(&mut self) {
        let n = self.random.below(NODES);
        if self.nodes[n].is_none() {
            return;
        }
        self.next_owner += 1;
        if !self.nodes[n].as_ref().is_some_and(|l| l.is_established()) {
            return;
        }
        let owner = TxnId::new(instance(n), self.next_owner);
        let resource = RESOURCES[self.random.below(RESOURCES.len())];
        let mode = MODES[1 + self.random.below(5)];
        let patient = self.random.below(5) > 0;
        self.enter(owner, resource, mode, patient);
    }

    /// As a session does: weak users of an open implied resource tell nobody, unless a strong one is there.
    fn enter(&mut self, owner: Owner, resource: Resource, mode: Mode, patient: bool) {
        let n = owner.instance().0 as usize - 1;
        let weak = matches!(mode, Mode::SubShared | Mode::SubExclusive);
        let strong_here = |u: &User| {
            let mode = u.mode.join(u.converts.unwrap_or_default());
            u.node == n && u.resource == resource && !Mode::SubExclusive.covers(mode)
        };
        let implied = weak
            && resource == TABLE
            && !self.closed.contains(&n)
            && !self.users.iter().any(strong_here);
        self.users.push(User {
            node: n,
            owner,
            resource,
            mode,
            granted: implied,
            patient,
            implied,
            converts: None,
        });
        if implied {
            self.check();
            return;
        }
        let used = self.name_implied(n, resource);
        self.with(n, |lane, out| {
            lane.closed(resource, &used, out);
            lane.acquire(resource, (owner, mode, patient), out);
        });
    }

    /// Somebody who has a lock wants a stronger one, or gives up wanting it.
    fn convert(&mut self, at: usize) {
        let user = self.users[at].clone();
        let (resource, owner) = (user.resource, user.owner);
        if user.converts.is_some() {
            self.users[at].converts = None;
            self.with(user.node, |lane, out| {
                lane.lower(resource, (owner, user.mode), out);
            });
            return;
        }
        let mode = MODES[1 + self.random.below(5)];
        let patient = self.random.below(5) > 0;
        self.users[at].converts = Some(mode);
        let used = self.name_implied(user.node, resource);
        self.with(user.node, |lane, out| {
            lane.closed(resource, &used, out);
            lane.acquire(resource, (owner, mode, patient), out);
        });
    }

    fn end(&mut self, at: usize) {
        let user = self.users[at].clone();
        if user.granted
            && user.mode == Mode::Exclusive
            && user.resource == VALUED
            && self.random.below(2) == 0
        {
            let truth = self.truth.get_mut(&user.resource).expect("all are there");
            *truth += 1;
            let data = *truth;
            self.with(user.node, |lane, _| {
                lane.set_value(user.resource, user.owner, data);
            });
            self.violation = self.violation.or(match user.implied {
                true => Some("exclusive by implication"),
                false => None,
            });
        }
        self.users.remove(at);
        if user.implied {
            return;
        }
        let give_up = self.random.below(8) == 0;
        self.with(user.node, |lane, out| {
            lane.release(user.resource, user.owner, out);
            if give_up {
                lane.with_locks(out, |l, m, out| l.give_up(user.resource, m, out));
            }
        });
    }

    fn deliver(&mut self, at: usize, keep: bool) {
        let letter = if keep {
            self.letters[at].clone()
        } else {
            self.letters.swap_remove(at)
        };
        let current = self.epoch_of(letter.to) == Some(letter.epoch);
        if current && self.lives[letter.to] == letter.life {
            self.with(letter.to, |lane, out| {
                lane.message(instance(letter.from), letter.message, out);
            });
        }
    }

    fn fault(&mut self) {
        self.faults -= 1;
        let n = self.random.below(NODES);
        match self.random.below(5) {
            0 if self.nodes.iter().flatten().count() > 1 && self.nodes[n].is_some() => self.die(n),
            4 => self.recovered(),
            // Who misses a death of which the dead one has come back ends itself.
            1 if self.nodes[n].is_none() => {
                self.all_enter();
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
        let behind = self.behind();
        match self.random.below(12) {
            5 if !behind.is_empty() => {
                let n = behind[self.random.below(behind.len())];
                self.enter_epoch(n);
            }
            0 | 1 if work => self.begin(),
            2 if work && self.faults > 0 && self.random.below(4) == 0 => self.fault(),
            3 | 4 if !self.users.is_empty() => {
                let at = self.random.below(self.users.len());
                // A waiter gives up now and then; who has the lock ends sooner or later.
                let gives_up = work && self.users[at].patient && self.random.below(8) == 0;
                let converts = self.users[at].converts.is_some();
                let convert = work && self.users[at].granted && self.random.below(4) == 0;
                if convert || converts {
                    self.convert(at);
                } else if self.users[at].granted || gives_up {
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
    world.recovered();
    world.all_enter();
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
        (Mutation::IgnoreImplied, 0),
        (Mutation::ConvertersQueue, 0),
        (Mutation::NewcomersTakeAll, 12),
        (Mutation::ValueOutlivesWriter, 12),
        (Mutation::GrantInDoubt, 12),
    ] {
        let planted = Planted {
            mutation: Some(mutation),
        };
        let noticed = (0..5_000).find_map(|seed| walk(seed, faults, planted).err());
        println!("{mutation:?}: {noticed:?}");
        assert!(noticed.is_some(), "{mutation:?} is not noticed");
    }
}

mod ways;

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

    fn has(&self, owner: Owner) -> bool {
        self.users.iter().any(|u| u.owner == owner && u.granted)
    }

    fn leave(&mut self, owner: Owner) {
        let at = self.users.iter().position(|u| u.owner == owner);
        self.end(at.expect("it is there"));
    }
}

fn owner(node: usize, number: u64) -> Owner {
    TxnId::new(instance(node), number)
}

/// DDL wants a table's lock while readers come and go on another instance that keeps it: the recall stops new local
/// grants, so the DDL waits only for the readers of that moment.
#[test]
fn a_recall_stops_new_local_grants() {
    for resource in [RESOURCES[0], TABLE] {
        let run = |mutation| {
            let mut world = World::new(1, 0, Planted { mutation });
            world.run();
            let (reader, ddl, late) = (owner(1, 1), owner(2, 3), owner(1, 2));
            let mut granted = Vec::new();
            for (owner, mode) in [
                (reader, Mode::SubShared),
                (ddl, Mode::Exclusive),
                (late, Mode::SubShared),
            ] {
                world.enter(owner, resource, mode, true);
                world.run();
                granted.push(world.has(owner));
            }
            granted
        };
        assert_eq!(run(None), [true, false, false]);
        assert_eq!(run(Some(Mutation::GrantDuringRecall)), [true, false, true]);
    }
}

/// What an instance keeps costs no message when it is used again; what is implied not even the first time.
#[test]
fn a_kept_lock_sends_nothing() {
    for (resource, implied) in [(RESOURCES[0], false), (TABLE, true)] {
        let mut world = World::quiet();
        for round in 1..4 {
            world.enter(owner(1, round), resource, Mode::SubExclusive, true);
            assert_eq!(world.letters.is_empty(), round > 1 || implied);
            world.run();
            world.leave(owner(1, round));
        }
    }
}

/// After a strong lock weak ones ask once, and then use what is implied again.
#[test]
fn the_implied_mode_comes_back_with_the_first_who_asks() {
    let mut world = World::quiet();
    world.enter(owner(0, 1), TABLE, Mode::Exclusive, true);
    world.run();
    assert!(world.has(owner(0, 1)));
    assert_eq!(world.closed, [1, 2].into());
    world.enter(owner(1, 2), TABLE, Mode::SubShared, true);
    world.run();
    assert!(!world.has(owner(1, 2)));
    world.leave(owner(0, 1));
    world.run();
    assert!(world.has(owner(1, 2)));
    world.enter(owner(1, 3), TABLE, Mode::SubExclusive, true);
    world.run();
    assert!(world.has(owner(1, 3)));
    assert_eq!(world.closed, [2].into());
    world.enter(owner(1, 4), TABLE, Mode::SubExclusive, true);
    assert!(world.has(owner(1, 4)) && world.letters.is_empty());
}

/// Readers alone get it back as well: who asks for less than the implied mode is given no more, but the next tick asks for all of it.
#[test]
fn the_implied_mode_comes_back_where_nobody_changes_anything() {
    for strong in [Mode::Exclusive, Mode::Shared, Mode::SharedSubExclusive] {
        let mut world = World::quiet();
        let (ddl, reader) = (owner(0, 1), owner(1, 2));
        world.enter(ddl, TABLE, strong, true);
        world.run();
        world.leave(ddl);
        world.enter(reader, TABLE, Mode::SubShared, true);
        world.run();
        assert!(world.has(reader) && world.closed.contains(&1));
        world.leave(reader);
        world.timers();
        world.run();
        assert!(!world.closed.contains(&1), "after {strong:?}");
        world.enter(owner(1, 3), TABLE, Mode::SubShared, true);
        assert!(world.has(owner(1, 3)) && world.letters.is_empty());
    }
}

/// Also to the one that had the strong lock, once its use is over. As long as it is used nobody is disturbed, nor turned away for it.
#[test]
fn nobody_is_disturbed_for_the_implied_mode() {
    let mut world = World::quiet();
    let strong = owner(0, 1);
    world.enter(strong, TABLE, Mode::Shared, true);
    world.run();
    for (n, number) in [(0, 10), (1, 11), (0, 12), (1, 13)] {
        world.enter(owner(n, number), TABLE, Mode::SubShared, true);
        world.run();
        world.leave(owner(n, number));
        world.timers();
        // Before the answers, which deny the implied mode: this is another request.
        let other = owner(1, number + 10);
        world.enter(other, TABLE, Mode::Shared, false);
        world.run();
        assert!(world.has(other) && world.has(strong));
        assert!(world.denied.is_empty() && world.closed.contains(&1));
        world.leave(other);
    }
    world.leave(strong);
    for n in [0, 1] {
        world.enter(owner(n, 30), TABLE, Mode::SubShared, true);
        world.run();
        world.leave(owner(n, 30));
        world.timers();
        world.run();
        assert!(!world.closed.contains(&n));
    }
}

/// Who will not wait gets what others keep but do not use, and is told so if they do use it.
#[test]
fn who_is_not_patient_is_told_at_once() {
    let mut world = World::quiet();
    let (user, other) = (owner(0, 1), owner(1, 2));
    world.enter(user, RESOURCES[0], Mode::Exclusive, true);
    world.run();
    world.enter(other, RESOURCES[0], Mode::Shared, false);
    world.run();
    assert_eq!(world.denied, [other]);
    world.leave(user);
    world.enter(other, RESOURCES[0], Mode::Shared, false);
    world.run();
    assert!(world.has(other));
    // Nor does anybody wait behind somebody patient.
    world.enter(user, RESOURCES[0], Mode::Exclusive, true);
    world.run();
    world.enter(owner(2, 3), RESOURCES[0], Mode::Shared, false);
    world.run();
    assert_eq!(world.denied, [other, owner(2, 3)]);
    world.leave(other);
    world.run();
    assert!(world.has(user));
}

/// Whoever waited is gone: what was asked for him is taken back, and those it was recalled from go on.
#[test]
fn a_request_that_nobody_waits_for_keeps_nobody_waiting() {
    for lost in [false, true] {
        let mut world = World::quiet();
        let (user, ddl, other) = (owner(1, 1), owner(2, 2), owner(1, 3));
        world.enter(user, TABLE, Mode::SubExclusive, true);
        world.enter(ddl, TABLE, Mode::Exclusive, true);
        world.run();
        world.enter(other, TABLE, Mode::SubExclusive, true);
        world.run();
        assert!(!world.has(other));
        world.leave(ddl);
        if lost {
            world.letters.clear();
            world.timers();
        }
        world.run();
        assert!(world.has(other) && world.has(user));
    }
}

/// Somebody who comes while a table is locked strongly does not believe that he may use it.
#[test]
fn a_newcomer_learns_what_is_locked() {
    let mut world = World::quiet();
    world.die(2);
    world.all_enter();
    world.run();
    world.enter(owner(0, 1), TABLE, Mode::Shared, true);
    world.run();
    world.start(2);
    world.new_epoch();
    world.all_enter();
    assert!(!world.nodes[2].as_ref().unwrap().is_established());
    world.run();
    assert!(world.nodes[2].as_ref().unwrap().is_established());
    world.enter(owner(2, 2), TABLE, Mode::SubExclusive, true);
    world.run();
    assert!(!world.has(owner(2, 2)));
    world.leave(owner(0, 1));
    world.run();
    assert!(world.has(owner(2, 2)));
}

/// Who is alone needs nobody, and keeps nothing that would have to be told to the next one.
#[test]
fn a_lone_instance_keeps_nothing() {
    let mut lane = Enqueues::new(instance(0));
    lane.establish();
    let mut out = Vec::new();
    for resource in RESOURCES {
        lane.acquire(resource, (owner(0, 1), Mode::Exclusive, true), &mut out);
        assert!(matches!(out.pop(), Some(Effect::Granted { .. })));
        lane.release(resource, owner(0, 1), &mut out);
        assert!(out.iter().all(|e| matches!(e, Effect::Opened { .. })));
        out.clear();
    }
    assert_eq!(lane.locks.kept(None).count(), 0);
    assert_eq!(lane.directory.len(), 0);
}

/// E9. Beyond a number the locks that nobody uses go, but not the one whose value is known here.
#[test]
fn e9_unused_locks_are_given_up_but_not_one_with_a_value() {
    let mut world = World::quiet();
    let mut use_once = |resource, number| {
        world.truth.entry(resource).or_default();
        world.enter(owner(1, number), resource, Mode::Exclusive, true);
        world.run();
        world.leave(owner(1, number));
        world.run();
    };
    use_once(VALUED, 1);
    // Some are given up as they are let go.
    let many = super::local::MAX_IDLE as u64 * 5 / 4;
    (2..many).for_each(|n| use_once(Resource(n as _), n));
    let kept = |world: &World| -> Vec<Resource> {
        let locks = &world.nodes[1].as_ref().expect("it is up").locks;
        locks.kept(None).map(|k| k.resource).collect()
    };
    let before = kept(&world).len();
    assert!(before > super::local::MAX_IDLE);
    world.with(1, |lane, out| lane.timer(out));
    world.run();
    let after = kept(&world);
    assert!(after.len() <= before / 2 + 1, "{} of {before}", after.len());
    assert!(after.contains(&VALUED));
    assert_eq!(world.violation, None);
}
