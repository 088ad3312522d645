//! A cluster around the machines: transactions, redo headers, a network that reorders, deaths and recovery, and readers
//! whose verdicts are held against each other. Both the model checker and the simulation walk through this world.

use super::recovery::decide_with;
use super::{
    Effect, Evidence, Header, Message, RedoFindings, ReplyId, Report, Shown, Status, Verdict,
    Visibility,
};
use crate::ids::GroupNo;
use crate::planted::{Mutation, Planted};
use block::ids::{InstanceId, Scn, TxnId};

mod epochs;

const GROUP: GroupNo = GroupNo(1);
/// The clock of an unrelated instance that commits much is far ahead of the others.
const STRIDE: u64 = 4;

/// Bounds of a walk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Config {
    /// Instances.
    pub(super) nodes: usize,
    /// Owner of each transaction. Transaction 1, if there is one, rests on transaction 0, or begins when a client has been shown that.
    pub(super) owners: Vec<usize>,
    pub(super) snapshots: usize,
    pub(super) ticks: usize,
    pub(super) crashes: bool,
    pub(super) cleanouts: bool,
    /// Readers may ask again about what they know already.
    pub(super) asks_again: bool,
    /// Nothing reaches the third instance before somebody dies, and it alone has much work of its own.
    pub(super) cut_off: bool,
    pub(super) planted: Planted,
    /// The last instance joins on the way.
    pub(super) joins: bool,
    /// Write cleaned blocks before the header that carries their SCN is durable.
    pub(super) early_cleanout: bool,
    /// Instances, as bits, into whose memory the others put their groups.
    pub(super) memory: u8,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Body {
    Commit(Message),
    /// A block whose row of this transaction is stamped with its commit SCN.
    Cleaned(usize, Scn),
    /// The sender is in the epoch in which somebody joins, and this is the newest group of its thread.
    Welcome(Option<Evidence>),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Letter {
    from: usize,
    to: usize,
    epoch: u8,
    header: Header,
    body: Body,
}

/// A redo thread as far as it is durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Thread {
    /// SCN of the commit record, from the moment it is in the log buffer.
    logged: Option<Scn>,
    /// The commit record is durable.
    commit: bool,
    /// e(1), once a later header carries it.
    scn: Option<Scn>,
    evidence: Vec<Evidence>,
    highest: Scn,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    machine: Visibility,
    epoch: u8,
    status: Vec<Status>,
    /// Verdicts "committed" that this node has, by whatever way.
    known: Vec<Option<Scn>>,
    drawing: Option<GroupNo>,
    publishing: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Reader {
    node: usize,
    scn: Scn,
    /// Transactions that had been shown to some client before this snapshot was taken.
    required: u8,
    asked: u8,
    verdicts: Vec<Option<bool>>,
    replied: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    config: Config,
    nodes: Vec<Option<Node>>,
    threads: Vec<Thread>,
    letters: Vec<Letter>,
    /// Groups that stand in the memory of the second of the pair and have not been read.
    posted: Vec<((usize, usize), Evidence)>,
    /// Up to which group of its own everybody has heard, as each instance has written it beside.
    stable: Vec<GroupNo>,
    readers: Vec<Reader>,
    disk_stamp: Vec<Option<Scn>>,
    shown: u8,
    ticks: usize,
    reports: Vec<Option<Report>>,
    /// The newest epoch that was decided.
    epoch: u8,
    /// Not a member yet.
    outside: bool,
    /// From whom the joiner has had its welcome.
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
            publishing: false,
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
        for (t, &owner) in self.config.owners.iter().enumerate() {
            self.owner_actions(t, owner, &mut all);
        }
        for n in 0..self.config.nodes {
            let Some(node) = &self.nodes[n] else { continue };
            let ticks_here = !self.config.cut_off || n == 2;
            if self.ticks < self.config.ticks && ticks_here {
                all.push(Action::Tick(n));
            }
            if self.readers.len() < self.config.snapshots && self.works(n) {
                all.push(Action::Snapshot(n));
            }
            if node.epoch < self.epoch {
                all.push(Action::EnterEpoch(n));
            }
            if self.posted.iter().any(|((_, to), _)| *to == n) {
                all.push(Action::Look(n));
            }
            for t in (0..node.known.len()).filter(|&t| node.known[t].is_some()) {
                let others =
                    (0..self.config.nodes).filter(|&to| to != n && self.nodes[to].is_some());
                if self.config.cleanouts {
                    all.extend(
                        others
                            .filter(|&to| self.nodes[to].as_ref().unwrap().known[t].is_none())
                            .map(|to| Action::ShipCleaned(n, to, t)),
                    );
                }
            }
        }
        self.reader_actions(&mut all);
        let cut = |l: &Letter| self.config.cut_off && !self.crashed && l.to == 2;
        let arriving = (0..self.letters.len()).filter(|&l| !cut(&self.letters[l]));
        all.extend(arriving.map(Action::Deliver));
        if self.config.crashes && !self.crashed {
            let up = (0..self.config.nodes).filter(|&n| self.nodes[n].is_some());
            let up: u8 = up.map(|n| 1 << n).sum();
            let masks = (1..up).filter(|mask| mask & up == *mask && *mask != up);
            all.extend(masks.map(Action::Crash));
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

    fn owner_actions(&self, t: usize, owner: usize, all: &mut Vec<Action>) {
        let Some(node) = &self.nodes[owner] else {
            return;
        };
        let thread = &self.threads[owner];
        let first_is_known = node.known[0].is_some() || self.shown & 1 != 0;
        if thread.logged.is_none() && (t == 0 || first_is_known) {
            all.push(Action::Log(t));
        }
        if thread.logged.is_some() && !thread.commit {
            all.push(Action::Flush(t));
        }
        if node.drawing.is_some() {
            all.push(Action::Mark(owner));
        }
        if node.publishing {
            all.push(Action::Publish(owner));
        }
        let published = node.known[t].is_some();
        if published && thread.scn.is_none() {
            all.push(Action::Heartbeat(owner));
        }
        let may_write = thread.scn.is_some() || self.config.early_cleanout;
        if self.config.cleanouts && published && may_write && self.disk_stamp[t].is_none() {
            all.push(Action::CleanToDisk(t));
        }
    }

    fn reader_actions(&self, all: &mut Vec<Action>) {
        for (r, reader) in self.readers.iter().enumerate() {
            if self.nodes[reader.node].is_none() {
                continue;
            }
            for t in 0..self.config.owners.len() {
                let again = self.config.asks_again && reader.verdicts[t].is_some();
                let unasked = reader.asked & (1 << t) == 0;
                if (unasked || again) && self.who_answers(reader.node, t).is_some() {
                    all.push(Action::Ask(r, t));
                }
                if self.disk_stamp[t].is_some()
                    && reader.verdicts[t].is_none()
                    && self.who_answers(reader.node, t).is_some()
                {
                    all.push(Action::GrantDisk(r, t));
                }
            }
            if !reader.replied && reader.verdicts.contains(&Some(true)) {
                all.push(Action::Reply(r));
            }
        }
    }

    fn joiner(&self) -> Option<usize> {
        self.config.joins.then(|| self.config.nodes - 1)
    }

    /// Whether an instance takes snapshots: who joins does so when everybody has welcomed it who was a member then. Who died before that is recovered first.
    fn works(&self, n: usize) -> bool {
        let hasty = self.config.planted.breaks(Mutation::JoinBesideTheDead);
        let gone = |m: usize| self.nodes[m].is_none() && (self.recovered || hasty);
        let mut others = (0..self.config.nodes).filter(|&m| Some(m) != self.joiner());
        Some(n) != self.joiner() || others.all(|m| self.welcomed & (1 << m) != 0 || gone(m))
    }

    /// The owner, or after its death whoever took its undo over; questions wait until then.
    fn who_answers(&self, asker: usize, t: usize) -> Option<usize> {
        let owner = self.config.owners[t];
        if self.nodes[owner].is_some() {
            return Some(owner);
        }
        let entered = self.nodes[asker].as_ref();
        let entered = entered.is_some_and(|n| n.epoch == self.epoch);
        (self.recovered && entered).then(|| self.heir())
    }

    fn heir(&self) -> usize {
        (0..self.config.nodes)
            .find(|&n| self.nodes[n].is_some())
            .expect("somebody survives")
    }

    pub(super) fn apply(&mut self, action: &Action) {
        match *action {
            Action::Log(t) => {
                let owner = self.config.owners[t];
                let node = self.nodes[owner].as_mut().expect("enabled");
                let record = Scn(node.machine.clock().0 + 1);
                node.machine.lift(record);
                self.threads[owner].logged = Some(record);
            }
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
            // Nobody reads a block from disk without a grant, whose header carries evidence as any message's does.
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
        }
        self.letters.sort();
    }

    fn flush(&mut self, t: usize) {
        let owner = self.config.owners[t];
        let node = self.nodes[owner].as_mut().expect("enabled");
        let thread = &mut self.threads[owner];
        thread.commit = true;
        thread.highest = thread.logged.expect("enabled");
        thread.evidence.extend(node.machine.evidence_for_redo());
        self.with(owner, |node, out| node.machine.group_durable(GROUP, out));
    }

    fn heartbeat(&mut self, n: usize) {
        let node = self.nodes[n].as_ref().expect("enabled");
        let thread = &mut self.threads[n];
        let t = self
            .config
            .owners
            .iter()
            .position(|&o| o == n)
            .expect("enabled");
        thread.scn = node.known[t];
        thread.highest = thread.highest.max(node.machine.clock());
        thread.evidence.extend(node.machine.evidence_for_redo());
    }

    /// Tells everybody, those by their memory that are in the same epoch. Also who has died has memory until that is known.
    fn publish(&mut self, n: usize) {
        let mut out = Vec::new();
        let node = self.nodes[n].as_mut().expect("enabled");
        node.publishing = false;
        let (status, epoch) = (node.status.clone(), node.epoch);
        let look = |txn: TxnId| status[txn.0 as usize - 1];
        node.machine.published(GROUP, look, &mut out);
        for effect in out {
            match effect {
                Effect::Send {
                    to,
                    message: Message::Announce(evidence),
                    ..
                } if self.has_memory(node_of(to), epoch) => {
                    self.posted.push(((n, node_of(to)), evidence));
                    let Evidence {
                        instance, group, ..
                    } = evidence;
                    let heard = Message::Acknowledge { instance, group };
                    self.with(n, |node, out| node.machine.message(to, heard, look, out));
                }
                other => self.effect(n, other),
            }
        }
        self.posted.sort();
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

    fn snapshot(&mut self, n: usize) {
        self.look_unless(Mutation::MemoryUnreadBySnapshots, n);
        let node = self.nodes[n].as_ref().expect("enabled");
        self.readers.push(Reader {
            node: n,
            scn: node.machine.clock(),
            required: self.shown,
            asked: 0,
            verdicts: vec![None; self.config.owners.len()],
            replied: false,
        });
    }

    fn ask(&mut self, r: usize, t: usize) {
        let (from, snapshot) = (self.readers[r].node, self.readers[r].scn);
        self.readers[r].asked |= 1 << t;
        let to = self.who_answers(from, t).expect("enabled");
        if to == from {
            self.with(from, |node, out| {
                let status = node.status.clone();
                let look = |txn: TxnId| status[txn.0 as usize - 1];
                node.machine
                    .asked(instance(from), txn_id(t), snapshot, look, out);
            });
        } else {
            let txn = txn_id(t);
            self.post(from, to, Body::Commit(Message::Ask { txn, snapshot }));
        }
    }

    fn reply(&mut self, r: usize) {
        self.readers[r].replied = true;
        let reader = self.readers[r].clone();
        let node = self.nodes[reader.node].as_ref().expect("enabled");
        let shown = (0..reader.verdicts.len())
            .filter(|&t| reader.verdicts[t] == Some(true))
            .filter_map(|t| node.known[t].or(self.disk_stamp[t]))
            .max()
            .expect("something is visible");
        self.with(reader.node, |node, out| {
            let id = ReplyId(100 + r as u64);
            node.machine.gate(id, Shown::UpTo(shown), out);
        });
    }

    fn ship_cleaned(&mut self, from: usize, to: usize, t: usize) {
        let scn = self.nodes[from].as_ref().expect("enabled").known[t].expect("enabled");
        self.post_once(from, to, Body::Cleaned(t, scn));
    }

    /// Unless the same letter is on its way already, which would only make the model larger.
    fn post_once(&mut self, from: usize, to: usize, body: Body) {
        let twin = |l: &Letter| (l.from, l.to) == (from, to) && l.body == body;
        if !self.letters.iter().any(twin) {
            self.post(from, to, body);
        }
    }

    fn post(&mut self, from: usize, to: usize, body: Body) {
        let node = self.nodes[from].as_ref().expect("the living send");
        self.letters.push(Letter {
            from,
            to,
            epoch: node.epoch,
            header: node.machine.header(),
            body,
        });
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
                Body::Welcome(Some(newest)) => node.machine.told(newest),
                Body::Welcome(None) | Body::Cleaned(..) => {}
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

    /// Delivers what is under way to these nodes, and the answers.
    pub(super) fn deliver_all(&mut self, nodes: &[usize]) {
        while let Some(l) = self.letters.iter().position(|l| nodes.contains(&l.to)) {
            self.deliver(l);
        }
    }

    /// Runs a step of a node's machine and does what it asks for.
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
        let own = self.config.owners.iter().position(|&o| o == n);
        let node = self.nodes[n].as_mut().expect("the living act");
        match effect {
            Effect::Send {
                to,
                header,
                message,
            } => {
                let epoch = node.epoch;
                self.letters.push(Letter {
                    from: n,
                    to: node_of(to),
                    epoch,
                    header,
                    body: Body::Commit(message),
                });
            }
            Effect::MarkPending(group) => {
                node.status[own.expect("only owners flush")] = Status::Pending;
                node.drawing = Some(group);
            }
            Effect::Publish(evidence) => {
                let t = own.expect("only owners flush");
                if node.status[t] == Status::Pending
                    || self.config.planted.breaks(Mutation::PendingMark)
                {
                    node.publishing = true;
                }
                node.known[t] = Some(evidence.scn);
                if self.config.planted.breaks(Mutation::PendingMark) {
                    return; // the table is written a moment later, by Release below
                }
                node.status[t] = Status::Committed(evidence.scn);
            }
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

    fn learn(&mut self, n: usize, t: usize, verdict: Verdict, from_row: bool) {
        if let (Verdict::Committed(scn), Some(node)) = (verdict, self.nodes[n].as_mut()) {
            node.known[t] = Some(scn);
        }
        for r in 0..self.readers.len() {
            let reader = &self.readers[r];
            if reader.node != n || (!from_row && reader.asked & (1 << t) == 0) {
                continue;
            }
            match verdict {
                Verdict::Committed(scn) => self.conclude(r, t, scn <= reader.scn),
                Verdict::ActiveTo(limit) if reader.scn <= limit => self.conclude(r, t, false),
                Verdict::ActiveTo(_) => {}
            }
        }
    }

    fn conclude(&mut self, r: usize, t: usize, visible: bool) {
        let reader = &mut self.readers[r];
        if reader.verdicts[t].is_some_and(|v| v != visible) {
            self.violation = Some("a snapshot changed its mind");
        }
        reader.verdicts[t] = Some(visible);
        if reader.required & (1 << t) != 0 && !visible {
            self.violation = Some("what a client had been shown is not seen by a later snapshot");
        }
        if reader.verdicts.len() > 1 && reader.verdicts[..2] == [Some(false), Some(true)] {
            self.violation = Some("a transaction is seen without the one that it rests on");
        }
    }

    /// The committing client waits at the gate from the moment its group is published.
    pub(super) fn gate_commit(&mut self, n: usize) {
        let Some(t) = self.config.owners.iter().position(|&o| o == n) else {
            return;
        };
        self.with(n, |node, out| {
            let shown = Shown::Commit(instance(n), GROUP);
            node.machine.gate(ReplyId(t as u64), shown, out);
        });
    }

    /// Finishes the delayed table write of the mutation without pending marks.
    pub(super) fn late_publish(&mut self, n: usize) {
        if let Some(t) = self.config.owners.iter().position(|&o| o == n) {
            let node = self.nodes[n].as_mut().expect("enabled");
            if let Some(scn) = node.known[t] {
                node.status[t] = Status::Committed(scn);
            }
        }
    }
}
