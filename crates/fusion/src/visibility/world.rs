//! A cluster around the machines: transactions, redo headers, a network that reorders, deaths and
//! recovery, and readers. The world compares the readers' verdicts with each other. The model
//! checker and the simulation both walk through it.

use super::recovery::decide_with;
use super::{
    Effect, Evidence, Header, Message, RedoFindings, ReplyId, Report, Shown, Status, Verdict,
    Visibility, evidence_of,
};
use crate::ids::GroupNo;
use crate::planted::{Mutation, Planted};
use block::ids::{InstanceId, Scn, TxnId};
use block::{LAST_GROUPS, LastGroups};
use std::collections::{BTreeMap, BTreeSet};

mod epochs;
mod readers;
mod threads;

use readers::Reader;
use threads::Thread;

/// How far the clock of an unrelated instance that commits much runs ahead of the others.
const STRIDE: u64 = 4;

/// A reply without an asker. Only whether it leaves matters.
const EVERYTHING: ReplyId = ReplyId(u64::MAX);

/// Bounds of a walk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Config {
    /// The number of instances.
    pub(super) nodes: usize,
    /// The owner of each transaction. The k-th transaction of an owner is in group k of its thread.
    pub(super) owners: Vec<usize>,
    /// The transaction that the last one rests on, if it is another. The last one begins when its
    /// owner sees that transaction, or when a client has been shown it.
    pub(super) rests_on: usize,
    pub(super) snapshots: usize,
    /// The instances, as bits, that take snapshots.
    pub(super) readers: u8,
    /// Whether the last transaction rests on a row: a block with the row of the transaction that it
    /// rests on comes to its owner, with a stamp if that is in force.
    pub(super) rests_on_a_row: bool,
    pub(super) ticks: usize,
    /// The instances, as bits, that may die: any of them, at one time. Zero if none dies.
    pub(super) mortal: u8,
    /// Whether only all mortal instances die, together.
    pub(super) die_together: bool,
    pub(super) cleanouts: bool,
    /// Whether readers may ask again about what they know already.
    pub(super) asks_again: bool,
    /// Whether the third instance hears nothing before another dies, and asks nobody. It alone has
    /// much work of its own.
    pub(super) cut_off: bool,
    pub(super) planted: Planted,
    /// Whether the last instance joins on the way.
    pub(super) joins: bool,
    /// Whether cleaned blocks are written before the header that carries their SCN is durable.
    pub(super) early_cleanout: bool,
    /// The instances, as bits, into whose memory the others put their groups.
    pub(super) memory: u8,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Body {
    Commit(Message),
    /// A block whose row of this transaction is stamped with its commit SCN.
    Cleaned(usize, Scn),
    /// The sender is in the epoch in which an instance joins, and these are the newest groups of
    /// its thread.
    Welcome(LastGroups),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Letter {
    from: usize,
    to: usize,
    epoch: u8,
    header: Header,
    body: Body,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    machine: Visibility,
    epoch: u8,
    status: Vec<Status>,
    /// The verdicts "committed" that this node has, in whatever way it got them.
    known: Vec<Option<Scn>>,
    drawing: Option<GroupNo>,
    publishing: Option<GroupNo>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    config: Config,
    nodes: Vec<Option<Node>>,
    threads: Vec<Thread>,
    letters: Vec<Letter>,
    /// Groups that stand in the memory of the pair's second instance and have not been read.
    posted: Vec<((usize, usize), Evidence)>,
    /// For each instance, the last of its groups up to which everybody has heard, as the instance
    /// has written it beside its groups.
    stable: Vec<GroupNo>,
    readers: Vec<Reader>,
    disk_stamp: Vec<Option<Scn>>,
    shown: u8,
    ticks: usize,
    reports: Vec<Option<Report>>,
    /// The newest epoch that was decided.
    epoch: u8,
    /// Whether the instance is not a member yet.
    outside: bool,
    /// The members, as bits, that have welcomed the joiner.
    welcomed: u8,
    recovered: bool,
    crashed: bool,
    pub(super) violation: Option<&'static str>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Log(usize),
    Flush(usize),
    Mark(usize),
    Publish(usize),
    Heartbeat(usize),
    Tick(usize),
    Look(usize),
    Snapshot(usize),
    Ask(usize, usize),
    Reply(usize),
    ShipCleaned(usize, usize, usize),
    CleanToDisk(usize),
    GrantDisk(usize, usize),
    Deliver(usize),
    Crash(u8),
    Join,
    EnterEpoch(usize),
    Recover,
    /// A letter will come twice. Only walks choose this action and the next one: with them models
    /// would not end.
    Duplicate(usize),
    /// A connection breaks, with all that is on its way, and is made again.
    Break(usize, usize),
}

fn instance(node: usize) -> InstanceId {
    InstanceId(node as u16 + 1)
}
fn node_of(instance: InstanceId) -> usize {
    instance.0 as usize - 1
}
fn txn_id(t: usize) -> TxnId {
    TxnId(t as u64 + 1)
}

impl Config {
    /// The group of its owner's thread that a transaction is in.
    fn group_of(&self, t: usize) -> GroupNo {
        let before = self.owners[..t].iter();
        GroupNo(1 + before.filter(|&&o| o == self.owners[t]).count() as u64)
    }

    /// The transaction that is in a group of an instance's thread.
    fn txn_in(&self, owner: usize, group: GroupNo) -> usize {
        let all = 0..self.owners.len();
        let mut own = all.filter(|&t| self.owners[t] == owner);
        own.nth(group.0 as usize - 1)
            .expect("a group has a transaction")
    }
}

impl Node {
    fn new(config: &Config, n: usize, clock: Scn, members: impl Iterator<Item = usize>) -> Node {
        let txns = config.owners.len();
        let mut machine = Visibility::new(instance(n), clock, members.map(instance));
        machine.planted = config.planted;
        Node {
            machine,
            epoch: 0,
            status: vec![Status::None; txns],
            known: vec![None; txns],
            drawing: None,
            publishing: None,
        }
    }
}

impl World {
    pub(super) fn new(config: Config) -> Self {
        let txns = config.owners.len();
        let members = 0..config.nodes - usize::from(config.joins);
        let mut nodes = vec![None; config.nodes];
        for n in members.clone() {
            nodes[n] = Some(Node::new(&config, n, Scn(1), members.clone()));
        }
        World {
            nodes,
            threads: vec![Thread::default(); config.nodes],
            letters: Vec::new(),
            posted: Vec::new(),
            stable: vec![GroupNo(0); config.nodes],
            readers: Vec::new(),
            disk_stamp: vec![None; txns],
            shown: 0,
            ticks: 0,
            reports: vec![None; config.nodes],
            epoch: 0,
            outside: config.joins,
            welcomed: 0,
            recovered: false,
            crashed: false,
            violation: None,
            config,
        }
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        for t in 0..self.config.owners.len() {
            self.txn_actions(t, &mut all);
        }
        for n in 0..self.config.nodes {
            self.thread_actions(n, &mut all);
        }
        for n in 0..self.config.nodes {
            let Some(node) = &self.nodes[n] else { continue };
            let ticks_here = !self.config.cut_off || n == 2;
            if self.ticks < self.config.ticks && ticks_here {
                all.push(Action::Tick(n));
            }
            let reads = self.config.readers & (1 << n) != 0;
            if reads && self.readers.len() < self.config.snapshots && self.works(n) {
                all.push(Action::Snapshot(n));
            }
            if node.epoch < self.epoch {
                all.push(Action::EnterEpoch(n));
            }
            if self.posted.iter().any(|((_, to), _)| *to == n) {
                all.push(Action::Look(n));
            }
            for t in (0..node.known.len()).filter(|&t| node.known[t].is_some()) {
                let ignorant = |to: &usize| {
                    let node = self.nodes[*to].as_ref();
                    node.is_some_and(|node| node.known[t].is_none())
                };
                let others = (0..self.config.nodes).filter(|&to| self.ships(t, to));
                let others = others.filter(ignorant);
                all.extend(others.map(|to| Action::ShipCleaned(n, to, t)));
            }
        }
        self.reader_actions(&mut all);
        all.extend((0..self.letters.len()).map(Action::Deliver));
        if !self.crashed {
            let up = (0..self.config.nodes).filter(|&n| self.nodes[n].is_some());
            let up: u8 = up.map(|n| 1 << n).sum();
            let mortal = self.config.mortal & up;
            let die = |mask: &u8| mask & mortal == *mask && *mask != up;
            let least = if self.config.die_together {
                mortal.max(1)
            } else {
                1
            };
            all.extend((least..=mortal).filter(die).map(Action::Crash));
        }
        if self.outside && !self.crashed {
            all.push(Action::Join);
        }
        let survivors = (0..self.config.nodes).filter(|&n| self.nodes[n].is_some());
        if self.crashed && !self.recovered && survivors.clone().all(|n| self.reports[n].is_some()) {
            all.push(Action::Recover);
        }
        all
    }

    /// The actions that go on by themselves: nobody dies, joins or begins anything.
    fn helpful_actions(&self) -> Vec<Action> {
        let first = |a: &Action| match a {
            Action::EnterEpoch(_) => Some(0),
            Action::Recover => Some(1),
            Action::Flush(_) | Action::Mark(_) | Action::Publish(_) | Action::Look(_) => Some(2),
            // A letter of an epoch that its receiver has not entered stays.
            Action::Deliver(_) => Some(3),
            _ => None,
        };
        let mut all = self.actions();
        all.retain(|a| first(a).is_some());
        all.sort_by_key(first);
        all
    }

    /// Checks progress: once every pair is connected, every reply leaves, also a reply that shows
    /// all that its instance knows of.
    pub(super) fn settle(&mut self) -> Result<(), &'static str> {
        self.config.cut_off = false;
        self.go_on()?;
        for n in self.living() {
            self.with(n, |node, out| {
                let all = Shown::UpTo(node.machine.clock());
                node.machine.gate(EVERYTHING, all, out);
            });
        }
        for _ in 0..10 {
            self.go_on()?;
            let waits = |n: &Node| !n.machine.parked_replies.is_empty();
            if !self.nodes.iter().flatten().any(waits) {
                return Ok(());
            }
            for n in self.living() {
                for peer in self.living().into_iter().filter(|&peer| peer != n) {
                    self.with(n, |node, out| node.machine.reconnected(instance(peer), out));
                }
            }
        }
        Err("a reply never leaves")
    }

    fn go_on(&mut self) -> Result<(), &'static str> {
        while let Some(action) = self.helpful_actions().first() {
            self.apply(action);
            self.violation.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn living(&self) -> Vec<usize> {
        let all = 0..self.config.nodes;
        all.filter(|&n| self.nodes[n].is_some()).collect()
    }

    /// Whether blocks with a transaction's row, cleaned out, go to this instance.
    fn ships(&self, t: usize, to: usize) -> bool {
        let rests = t == self.config.rests_on && self.config.owners.last() == Some(&to);
        self.config.cleanouts || rests && self.config.rests_on_a_row
    }

    fn joiner(&self) -> Option<usize> {
        self.config.joins.then(|| self.config.nodes - 1)
    }

    /// Whether an instance takes snapshots. A joiner does so when every instance that was a member
    /// then has welcomed it. A member that died before that is recovered first.
    fn works(&self, n: usize) -> bool {
        let hasty = self.config.planted.breaks(Mutation::JoinBesideTheDead);
        let gone = |m: usize| self.nodes[m].is_none() && (self.recovered || hasty);
        let mut others = (0..self.config.nodes).filter(|&m| Some(m) != self.joiner());
        Some(n) != self.joiner() || others.all(|m| self.welcomed & (1 << m) != 0 || gone(m))
    }

    fn heir(&self) -> usize {
        (0..self.config.nodes)
            .find(|&n| self.nodes[n].is_some())
            .expect("somebody survives")
    }

    pub(super) fn apply(&mut self, action: &Action) {
        match *action {
            Action::Log(t) => self.log(t),
            Action::Flush(t) => self.flush(t),
            Action::Mark(n) => {
                self.look_unless(Mutation::MemoryUnreadByDraws, n);
                self.with(n, |node, out| {
                    let group = node.drawing.take().expect("enabled");
                    node.machine.marked(group, out);
                });
            }
            Action::Publish(n) => self.publish(n),
            Action::Heartbeat(n) => self.heartbeat(n),
            Action::Tick(n) => {
                self.ticks += 1;
                self.with(n, |node, _| {
                    let clock = node.machine.clock();
                    node.machine.lift(Scn(clock.0 + STRIDE));
                });
            }
            Action::Look(n) => self.look(n),
            Action::Snapshot(n) => self.snapshot(n),
            Action::Ask(r, t) => self.ask(r, t),
            Action::Reply(r) => self.reply(r),
            Action::ShipCleaned(from, to, t) => self.ship_cleaned(from, to, t),
            Action::CleanToDisk(t) => {
                let owner = self.config.owners[t];
                self.disk_stamp[t] = self.nodes[owner].as_ref().expect("enabled").known[t];
            }
            // Nobody reads a block from disk without a grant. The grant's header carries evidence
            // like that of any message.
            Action::GrantDisk(r, t) => {
                let to = self.readers[r].node;
                let from = self.who_answers(to, t).expect("enabled");
                let scn = self.disk_stamp[t].expect("enabled");
                if from == to {
                    self.learn(to, t, Verdict::Committed(scn), true);
                } else {
                    self.post_once(from, to, Body::Cleaned(t, scn));
                }
            }
            Action::Deliver(l) => self.deliver(l),
            Action::Crash(mask) => self.crash(mask),
            Action::Join => self.join(),
            Action::EnterEpoch(n) => self.enter_epoch(n),
            Action::Recover => self.recover(),
            Action::Duplicate(l) => self.letters.push(self.letters[l].clone()),
            Action::Break(a, b) => self.break_connection(a, b),
        }
        self.letters.sort();
    }

    fn has_memory(&self, n: usize, epoch: u8) -> bool {
        let here = self.config.memory & (1 << n) != 0;
        here && self.nodes[n].as_ref().is_none_or(|n| n.epoch == epoch)
    }

    fn look_unless(&mut self, mutation: Mutation, n: usize) {
        if !self.config.planted.breaks(mutation) {
            self.look(n);
        }
    }

    fn look(&mut self, n: usize) {
        if self.config.memory & (1 << n) == 0 {
            return;
        }
        for from in (0..self.config.nodes).filter(|&from| from != n) {
            let here = self.posted.extract_if(.., |(pair, _)| *pair == (from, n));
            let groups: Vec<Evidence> = here.map(|(_, evidence)| evidence).collect();
            let stable = self.stable[from];
            self.with(n, |node, out| {
                node.machine
                    .read_memory(instance(from), &groups, stable, out)
            });
        }
    }

    fn ship_cleaned(&mut self, from: usize, to: usize, t: usize) {
        let scn = self.nodes[from].as_ref().expect("enabled").known[t].expect("enabled");
        self.post_once(from, to, Body::Cleaned(t, scn));
    }

    /// Posts a letter unless an equal one is on its way already. A second one would only make the
    /// model larger.
    fn post_once(&mut self, from: usize, to: usize, body: Body) {
        let twin = |l: &Letter| (l.from, l.to) == (from, to) && l.body == body;
        if !self.letters.iter().any(twin) {
            self.post(from, to, body);
        }
    }

    fn post(&mut self, from: usize, to: usize, body: Body) {
        let node = self.nodes[from].as_ref().expect("the living send");
        let letter = Letter {
            from,
            to,
            epoch: node.epoch,
            header: node.machine.header(),
            body,
        };
        self.send(letter);
    }

    fn send(&mut self, letter: Letter) {
        if !self.cut_off(letter.to) {
            self.letters.push(letter);
        }
    }

    fn cut_off(&self, n: usize) -> bool {
        self.config.cut_off && !self.crashed && n == 2
    }

    fn deliver(&mut self, l: usize) {
        let letter = self.letters.remove(l);
        let Some(node) = &self.nodes[letter.to] else {
            return;
        };
        if letter.epoch > node.epoch {
            self.letters.push(letter); // kept until the receiver is there too
            return;
        }
        if letter.epoch < node.epoch {
            return;
        }
        self.with(letter.to, |node, out| {
            node.machine
                .received(instance(letter.from), &letter.header, out);
            let status = node.status.clone();
            let look = |txn: TxnId| status[txn.0 as usize - 1];
            match letter.body {
                Body::Commit(message) => {
                    node.machine
                        .message(instance(letter.from), message, look, out);
                }
                Body::Welcome(groups) => {
                    for evidence in evidence_of(instance(letter.from), groups) {
                        node.machine.told(evidence);
                    }
                }
                Body::Cleaned(..) => {}
            }
        });
        if let (Body::Welcome(_), Some(to)) = (&letter.body, self.joiner())
            && to == letter.to
        {
            self.welcomed |= 1 << letter.from;
        }
        if let Body::Cleaned(t, scn) = letter.body {
            self.learn(letter.to, t, Verdict::Committed(scn), true);
        }
    }

    /// What may go wrong with the network.
    pub(super) fn faults(&self) -> Vec<Action> {
        let mut all: Vec<Action> = (0..self.letters.len()).map(Action::Duplicate).collect();
        for a in self.living() {
            let peers = self.living().into_iter().filter(|&b| b > a);
            all.extend(peers.map(|b| Action::Break(a, b)));
        }
        all
    }

    fn break_connection(&mut self, a: usize, b: usize) {
        let lost = |l: &Letter| [(a, b), (b, a)].contains(&(l.from, l.to));
        // A member that welcomes a joiner says so again.
        self.letters
            .retain(|l| !lost(l) || matches!(l.body, Body::Welcome(_)));
        for (n, peer) in [(a, b), (b, a)] {
            self.with(n, |node, out| {
                node.machine.reconnected(instance(peer), out);
            });
        }
    }

    /// Delivers what is under way from the nodes `from` to the nodes `to`, and the answers if those
    /// are among it.
    pub(super) fn deliver_all(&mut self, from: &[usize], to: &[usize]) {
        let arrives = |l: &Letter| from.contains(&l.from) && to.contains(&l.to);
        while let Some(l) = self.letters.iter().position(arrives) {
            self.deliver(l);
        }
    }

    /// Runs a step of a node's machine and does what the machine asks for.
    fn with(&mut self, n: usize, step: impl FnOnce(&mut Node, &mut Vec<Effect>)) {
        let mut out = Vec::new();
        step(self.nodes[n].as_mut().expect("the living act"), &mut out);
        if let Some(node) = self.nodes[n].as_ref().filter(|_| self.config.memory != 0) {
            self.stable[n] = self.stable[n].max(node.machine.stable_up_to());
        }
        for effect in out {
            self.effect(n, effect);
        }
    }

    fn effect(&mut self, n: usize, effect: Effect) {
        let node = self.nodes[n].as_mut().expect("the living act");
        match effect {
            Effect::Send {
                to,
                header,
                message,
            } => {
                let epoch = node.epoch;
                self.send(Letter {
                    from: n,
                    to: node_of(to),
                    epoch,
                    header,
                    body: Body::Commit(message),
                });
            }
            Effect::MarkPending(group) => {
                node.status[self.config.txn_in(n, group)] = Status::Pending;
                node.drawing = Some(group);
            }
            Effect::Publish(evidence) => {
                let t = self.config.txn_in(n, evidence.group);
                node.publishing = Some(evidence.group);
                node.known[t] = Some(evidence.scn);
                // Without the mark the table is written a moment later: see `publish`.
                if !self.config.planted.breaks(Mutation::PendingMark) {
                    node.status[t] = Status::Committed(evidence.scn);
                }
            }
            Effect::Release(EVERYTHING) => {}
            Effect::Release(reply) if reply.0 >= 100 => {
                let reader = &self.readers[reply.0 as usize - 100];
                for t in 0..reader.verdicts.len() {
                    if reader.verdicts[t] == Some(true) {
                        self.shown |= 1 << t;
                    }
                }
            }
            Effect::Release(reply) => self.shown |= 1 << reply.0,
            Effect::Learned { txn, verdict } => {
                self.learn(n, txn.0 as usize - 1, verdict, false);
            }
        }
    }
}
