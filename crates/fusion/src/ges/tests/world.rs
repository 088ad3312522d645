//! The world of enqueues: instances with their users, a network, deaths, and the dictionary's
//! truth.

use super::super::mode::MODES;
use super::super::*;
use crate::ids::Incarnation;
use crate::membership::assign_masters;
use crate::planted::{Mutation, Planted};
use crate::testing::Random;
use block::ids::TxnId;
use std::collections::BTreeMap;

pub(super) const NODES: usize = 3;

/// The resources of the world. The last one is implied: weak owners use it without asking while
/// their instance's lane lets them.
pub(super) const RESOURCES: [Resource; 3] =
    [Resource(0), Resource(1), Resource(Resource::IMPLIED | 2)];
pub(super) const TABLE: Resource = RESOURCES[2];
/// The only resource with a value.
pub(super) const VALUED: Resource = RESOURCES[0];

#[derive(Clone)]
pub(super) struct Letter {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) life: Incarnation,
    pub(super) epoch: Epoch,
    pub(super) message: Message,
}

#[derive(Clone)]
pub(super) struct User {
    pub(super) node: usize,
    pub(super) owner: Owner,
    pub(super) resource: Resource,
    pub(super) mode: Mode,
    pub(super) granted: bool,
    pub(super) patient: bool,
    /// Whether the owner uses the implied mode, unknown to the lane.
    pub(super) implied: bool,
    /// The stronger mode that the owner waits for, while it has the lock.
    pub(super) converts: Option<Mode>,
    /// The number of the owner's wait, if it waits.
    pub(super) wait: Option<u64>,
    /// The waits that everybody concerned knew of when the owner came, and that it excludes.
    behind: Vec<u64>,
}

impl User {
    /// What the owner has or waits for.
    fn target(&self) -> Mode {
        self.mode.join(self.converts.unwrap_or_default())
    }
}

pub(super) struct World {
    pub(super) nodes: Vec<Option<Enqueues>>,
    pub(super) lives: Vec<Incarnation>,
    pub(super) letters: Vec<Letter>,
    pub(super) users: Vec<User>,
    /// What the dictionary says: the number of changes made under the resource's exclusive lock.
    pub(super) truth: BTreeMap<Resource, u64>,
    /// The newest epoch that was decided. Each instance enters it by itself.
    pub(super) epoch: Epoch,
    pub(super) members: BTreeSet<Member>,
    pub(super) masters: Vec<InstanceId>,
    pub(super) random: Random,
    pub(super) next_owner: u64,
    last_wait: u64,
    pub(super) faults: u32,
    pub(super) planted: Planted,
    /// The number of locks in one message.
    pub(super) part: usize,
    /// Instances whose lane has closed the implied resource.
    pub(super) closed: BTreeSet<usize>,
    pub(super) denied: Vec<Owner>,
    /// The locks that the dead had, while nobody knows when the last commits of the dead took
    /// effect.
    pub(super) in_doubt: Vec<(Resource, Mode)>,
    /// The waits of which everybody concerned knows, because no message was under way since.
    known: BTreeSet<u64>,
    /// Whether nothing gets lost, so that what is not under way has come.
    lossless: bool,
    pub(super) violation: Option<&'static str>,
}

pub(super) fn instance(node: usize) -> InstanceId {
    InstanceId(node as u16 + 1)
}

impl World {
    pub(super) fn new(seed: u64, faults: u32, planted: Planted) -> Self {
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
            last_wait: 0,
            faults,
            planted,
            part: if seed.is_multiple_of(2) { PART } else { 1 },
            closed: BTreeSet::new(),
            denied: Vec::new(),
            in_doubt: Vec::new(),
            known: BTreeSet::new(),
            lossless: faults == 0,
            violation: None,
        };
        for n in 0..NODES {
            world.start(n);
        }
        world.new_epoch();
        world.all_enter();
        world
    }

    pub(super) fn start(&mut self, n: usize) {
        self.lives[n].0 += 1;
        let mut lane = Enqueues::new(instance(n));
        lane.plant(self.planted);
        lane.speak_in_parts_of(self.part);
        self.nodes[n] = Some(lane);
        self.closed.remove(&n);
    }

    /// Decides an epoch. The living enter it later, one after the other.
    pub(super) fn new_epoch(&mut self) {
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

    /// The instances that have not entered the newest epoch.
    pub(super) fn behind(&self) -> Vec<usize> {
        let is_behind = |n: &usize| self.epoch_of(*n).is_some_and(|e| e < self.epoch);
        (0..NODES).filter(is_behind).collect()
    }

    pub(super) fn epoch_of(&self, n: usize) -> Option<Epoch> {
        self.nodes[n].as_ref().map(Enqueues::epoch)
    }

    pub(super) fn enter_epoch(&mut self, n: usize) {
        let plan = Plan {
            epoch: self.epoch,
            members: self.members.clone(),
            masters: self.masters.clone(),
            in_doubt: !self.in_doubt.is_empty(),
        };
        self.with(n, |lane, out| lane.reconfigure(plan, out));
    }

    pub(super) fn all_enter(&mut self) {
        self.behind().into_iter().for_each(|n| self.enter_epoch(n));
    }

    pub(super) fn die(&mut self, n: usize) {
        self.nodes[n] = None;
        let of_dead = self.users.extract_if(.., |u| u.node == n);
        let locked = of_dead.filter(|u| u.granted).map(|u| (u.resource, u.mode));
        self.in_doubt.extend(locked);
        self.new_epoch();
    }

    /// Decides when the last commits of the dead took effect, when all instances are in the epoch
    /// without the dead.
    pub(super) fn recovered(&mut self) {
        self.all_enter();
        if !self.in_doubt.is_empty() {
            self.in_doubt.clear();
            self.new_epoch();
        }
    }

    pub(super) fn with(&mut self, n: usize, step: impl FnOnce(&mut Enqueues, &mut Vec<Effect>)) {
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

    /// Notes a denial. The owner has no more than before: it may have been named as a user
    /// meanwhile.
    pub(super) fn denied(&mut self, n: usize, resource: Resource, owner: Owner) {
        let this = |u: &User| (u.owner, u.resource) == (owner, resource);
        self.users.retain(|u| !this(u) || u.granted);
        let mut has = Mode::Null;
        for user in self.users.iter_mut().filter(|u| this(u)) {
            user.converts = None;
            user.wait = None;
            has = user.mode;
        }
        self.denied.push(owner);
        self.with(n, |lane, out| lane.lower(resource, (owner, has), out));
    }

    /// Ends the use of the implied mode on this instance, and names its users.
    pub(super) fn close(&mut self, n: usize, resource: Resource) {
        let used = self.name_implied(n, resource);
        if resource == TABLE {
            self.closed.insert(n);
        }
        self.with(n, |lane, out| lane.closed(resource, &used, out));
    }

    /// Asks for a lock as a session does: the table is closed for a strong owner.
    fn acquire(
        &mut self,
        n: usize,
        resource: Resource,
        (owner, mode, patient): (Owner, Mode, bool),
    ) {
        let strong = resource == TABLE && !Mode::SubExclusive.compatible(mode);
        let used = match strong {
            true => self.name_implied(n, resource),
            false => Vec::new(),
        };
        if strong {
            self.closed.insert(n);
        }
        self.with(n, |lane, out| {
            if strong {
                lane.closed(resource, &used, out);
            }
            lane.acquire(resource, (owner, mode, patient), out);
        });
    }

    /// Takes note that all messages have come. So everybody knows who waits.
    pub(super) fn is_quiet(&mut self) {
        if self.lossless && self.letters.is_empty() {
            self.known = self.users.iter().filter_map(|u| u.wait).collect();
        }
    }

    /// From now on owners may pass those that wait.
    pub(super) fn known_no_more(&mut self) {
        self.known.clear();
        self.users.iter_mut().for_each(|u| u.behind.clear());
    }

    pub(super) fn name_implied(&mut self, n: usize, resource: Resource) -> Vec<(Owner, Mode)> {
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

    pub(super) fn granted(
        &mut self,
        n: usize,
        resource: Resource,
        owner: Owner,
        value: Option<Value>,
    ) {
        let truth = self.truth[&resource];
        let mut users = self.users.iter_mut();
        let Some(user) = users.find(|u| u.owner == owner && u.resource == resource) else {
            self.violation = Some("granted to an owner that is gone");
            return;
        };
        user.granted = true;
        user.wait = None;
        if let Some(mode) = user.converts.take() {
            user.mode = user.mode.join(mode);
            user.implied = false;
        }
        let behind = std::mem::take(&mut user.behind);
        let waits = self.users.iter().filter_map(|u| u.wait);
        if waits.into_iter().any(|w| behind.contains(&w)) {
            self.violation = Some("an owner has a lock past another that came before");
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

    pub(super) fn check(&mut self) {
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

    pub(super) fn begin(&mut self) {
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
        let mode = MODES[1 + self.random.below(MODES.len() - 1)];
        let patient = self.random.below(5) > 0;
        self.enter(owner, resource, mode, patient);
    }

    /// Lets an owner want a lock as a session does. Weak users of an open implied resource tell
    /// nobody.
    pub(super) fn enter(&mut self, owner: Owner, resource: Resource, mode: Mode, patient: bool) {
        let n = owner.instance().0 as usize - 1;
        let weak = Mode::SubExclusive.covers(mode);
        let implied = weak && resource == TABLE && !self.closed.contains(&n);
        let excludes = |u: &&User| u.resource == resource && !u.target().compatible(mode);
        let waits = self.users.iter().filter(excludes).filter_map(|u| u.wait);
        let behind: Vec<u64> = waits.filter(|w| self.known.contains(w)).collect();
        let wait = self.next_wait();
        self.users.push(User {
            node: n,
            owner,
            resource,
            mode,
            granted: false,
            patient,
            implied,
            converts: None,
            wait: Some(wait),
            behind,
        });
        match implied {
            true => self.granted(n, resource, owner, None),
            false => self.acquire(n, resource, (owner, mode, patient)),
        }
    }

    fn next_wait(&mut self) -> u64 {
        self.last_wait += 1;
        self.last_wait
    }

    /// Lets an owner that has a lock want a stronger one, or give up wanting it.
    pub(super) fn convert(&mut self, at: usize) {
        let user = self.users[at].clone();
        let (resource, owner) = (user.resource, user.owner);
        if user.converts.is_some() {
            self.users[at].converts = None;
            self.users[at].wait = None;
            self.with(user.node, |lane, out| {
                lane.lower(resource, (owner, user.mode), out);
            });
            return;
        }
        let mode = MODES[1 + self.random.below(MODES.len() - 1)];
        let patient = self.random.below(5) > 0;
        self.want_more(at, mode, patient);
    }

    /// Lets an owner that has a lock want a stronger one.
    pub(super) fn want_more(&mut self, at: usize, mode: Mode, patient: bool) {
        let (n, resource, owner) = {
            let user = &self.users[at];
            (user.node, user.resource, user.owner)
        };
        if self.users[at].implied && Mode::SubExclusive.covers(mode) {
            self.users[at].mode = self.users[at].mode.join(mode);
            return self.check();
        }
        let wait = self.next_wait();
        self.users[at].converts = Some(mode);
        self.users[at].wait = Some(wait);
        self.acquire(n, resource, (owner, mode, patient));
    }

    pub(super) fn end(&mut self, at: usize) {
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

    pub(super) fn deliver(&mut self, at: usize, keep: bool) {
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

    pub(super) fn fault(&mut self) {
        self.faults -= 1;
        let n = self.random.below(NODES);
        match self.random.below(5) {
            0 if self.nodes.iter().flatten().count() > 1 && self.nodes[n].is_some() => self.die(n),
            4 => self.recovered(),
            // An instance that missed a death from which the dead one has come back ends itself.
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

    pub(super) fn timers(&mut self) {
        for n in 0..NODES {
            if self.nodes[n].is_some() {
                self.with(n, |lane, out| lane.timer(out));
            }
        }
    }

    pub(super) fn step(&mut self, work: bool) {
        self.is_quiet();
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
                // A waiter gives up now and then; an owner that has the lock ends sooner or later.
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
