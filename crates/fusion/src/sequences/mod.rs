//! Drawing from sequences among instances.
//!
//! The truth about a sequence is its block: who takes values moves the mark there, with the block exclusive and the move logged. If every instance did so for itself the block would travel with every
//! draw, and a log would be flushed each time (R2). So a sequence has a *home*: the others ask it for values by a message, as many at a time as they have sessions waiting, and the block stays.
//!
//! ```text
//! session ── draw ──► its machine ── Draw, wanted ──► home's machine ── Serve ──► block
//!    ◄── Told ──────────┴─────────◄── Drawn, values, mark ──┘
//! commit ── secure ──► machine ── Flush ──► home's log          home gone: the mark is raised in the block by whoever was given values
//! ```
//!
//! Who is home is a matter of speed only. Everybody computes the same one; it moves to who draws most, and who asks the wrong one is told so. Whoever is asked twice too often, or cannot reach a
//! home, draws from the block. No value is given twice however many believe to be home, because of the block.
//!
//! **Invariants.**
//! - A transaction that uses a value commits only when the mark behind it is durable: in its own log, which has the record before the commit; in the home's, which it waits for ([`Sequences::secure`]);
//!   or, if the home has gone, in the block, which it raises to the state that it was given.
//! - What was given by a home that died and is in no log is remembered by whom it was given to. At the beginning of an epoch everybody declares what it remembers, and nobody takes values from a block before
//!   all have ([`Sequences::floor`]); who takes starts from the higher of block and declarations. States of a sequence are ordered by their draw number.
//! - Drawers find out whether they may with the block latched. So a block that was recovered after a death is not drawn from with the knowledge of before it: the machine enters an epoch before the cache does.
//! - Without a cache, values are given to sessions that waited when the request was sent, in their order, and what nobody takes any more is lost: a value drawn after another was returned is behind it.
//! - A request is executed once as long as its home lives: the answer to an instance's last one is remembered. With the home's death, values may be lost, none given twice.
//! - An answer counts only if the life that gave it is a member.

mod message;
#[cfg(test)]
mod tests;

pub use message::{Effect, Given, Mark, Message, Outcome, Serve, Told};

use crate::planted::{Mutation, Planted};
use crate::{Epoch, Incarnation, Member, RequestId, Waiter};
use block::sequence::SequenceState;
use block::{Dba, InstanceId, LogPos, ObjectId};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Draws after which a home looks who drew them.
const WINDOW: u32 = 256;
/// Values in one answer: more than an instance has sessions.
const WANTED_MAX: u32 = 4096;
/// Who was sent on so often is served wherever it asks.
const HOPS_MAX: u8 = 2;
/// Sequences of which this instance has values that may be in no log durably: what it declares fits a message. Of further ones it draws from the block.
const UNSURE_MAX: usize = 8192;
/// Sequences of which homes, use and last answers are remembered. What is forgotten costs messages, or values when a request comes twice.
const REMEMBERED_MAX: usize = 8192;

/// What a session that wants a value does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// Draw from the block.
    Here,
    /// Wait until told; another instance is asked, or none yet. Which.
    Wait(Option<InstanceId>),
}

/// What a session that is about to commit does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Secured {
    Durable,
    Gone,
    Wait,
}

/// The sessions of this instance that want values of one sequence.
struct Asking {
    header: Dba,
    request: Option<Request>,
    /// Who shares the request, in order; None: has given up.
    sharing: Vec<Option<Waiter>>,
    /// Who came after it was sent.
    waiting: VecDeque<Waiter>,
}

#[derive(Clone, Copy)]
struct Request {
    id: RequestId,
    to: Member,
    hops: u8,
}

/// Who drew how many values since the home last looked.
#[derive(Default)]
struct Use {
    draws: u32,
    by: BTreeMap<InstanceId, u32>,
}

/// See the module.
pub struct Sequences {
    me: Member,
    epoch: Epoch,
    /// This instance among them.
    members: BTreeMap<InstanceId, Incarnation>,
    /// The newest epoch in which each of the others has declared.
    declared: BTreeMap<InstanceId, Epoch>,
    /// Where sequences stand at least, by what others have declared.
    floors: HashMap<ObjectId, SequenceState>,
    /// What this instance was given and may be in no log durably.
    unsure: BTreeMap<ObjectId, Mark>,
    /// How far the logs of the others' present lives are durable.
    durable: BTreeMap<InstanceId, LogPos>,
    /// Where homes have moved.
    homes: HashMap<ObjectId, InstanceId>,
    used: HashMap<ObjectId, Use>,
    asking: BTreeMap<ObjectId, Asking>,
    /// The last request of each instance, and its answer; none: it is being served.
    answered: HashMap<(InstanceId, ObjectId), (RequestId, Option<Message>)>,
    /// Requests that came before everybody had declared.
    parked: BTreeMap<(InstanceId, ObjectId), Serve>,
    /// Sessions that wait for another's log.
    commits: Vec<(Waiter, Mark)>,
    /// Sessions that wait until values may be taken.
    patient: Vec<Waiter>,
    last_id: u64,
    leaving: bool,
    /// [`WINDOW`].
    window: u32,
    planted: Planted,
}

impl Sequences {
    /// Alone, until told otherwise.
    pub fn new(me: Member) -> Sequences {
        Sequences {
            me,
            epoch: Epoch(0),
            members: BTreeMap::from([(me.instance, me.incarnation)]),
            declared: BTreeMap::new(),
            floors: HashMap::new(),
            unsure: BTreeMap::new(),
            durable: BTreeMap::new(),
            homes: HashMap::new(),
            used: HashMap::new(),
            asking: BTreeMap::new(),
            answered: HashMap::new(),
            parked: BTreeMap::new(),
            commits: Vec::new(),
            patient: Vec::new(),
            // Two lives of an instance never give a request the same number.
            last_id: me.incarnation.0 << 32,
            leaving: false,
            window: WINDOW,
            planted: Planted::default(),
        }
    }

    // ---- for sessions ----

    /// A session wants a value and found none that is kept.
    pub fn draw(
        &mut self,
        object: ObjectId,
        header: Dba,
        waiter: Waiter,
        out: &mut Vec<Effect>,
    ) -> Begun {
        let home = self.home(object);
        let may_ask = self.unsure.len() < UNSURE_MAX || self.unsure.contains_key(&object);
        let is_here = home == self.me.instance || !may_ask;
        if self.is_ready() && is_here && !self.asking.contains_key(&object) {
            self.count(object, self.me.instance, 1);
            return Begun::Here;
        }
        let asking = self.asking.entry(object).or_insert_with(|| Asking {
            header,
            request: None,
            sharing: Vec::new(),
            waiting: VecDeque::new(),
        });
        asking.waiting.push_back(waiter);
        if asking.request.is_none() {
            self.ask(object, out);
        }
        let request = self.asking.get(&object).and_then(|a| a.request);
        Begun::Wait(request.map(|r| r.to.instance))
    }

    /// It does not want it any more.
    pub fn give_up(&mut self, object: ObjectId, waiter: Waiter) {
        if let Some(asking) = self.asking.get_mut(&object) {
            asking.waiting.retain(|w| *w != waiter);
            for w in &mut asking.sharing {
                w.take_if(|w| *w == waiter);
            }
        }
    }

    /// Asked with the block latched exclusively, before values are taken from it: where the sequence stands at least. None: not now, some may know more than the block.
    pub fn floor(&self, object: ObjectId) -> Option<Option<SequenceState>> {
        if !self.is_ready() && !self.planted.breaks(Mutation::DrawUndeclared) {
            return None;
        }
        let mine = self.unsure.get(&object).map(|m| m.state);
        let theirs = self.floors.get(&object).copied();
        Some([mine, theirs].into_iter().flatten().max_by_key(|s| s.draw))
    }

    /// With the block still latched: it has this state now, logged by this instance or durably.
    pub fn stands(&mut self, object: ObjectId, state: SequenceState) {
        if self
            .unsure
            .get(&object)
            .is_some_and(|m| m.state.draw <= state.draw)
        {
            self.unsure.remove(&object);
        }
        if self
            .floors
            .get(&object)
            .is_some_and(|f| f.draw <= state.draw)
        {
            self.floors.remove(&object);
        }
    }

    /// Whether values may be taken from blocks now; otherwise the session is told [`Told::Again`] when they may.
    pub fn wait_ready(&mut self, waiter: Waiter) -> bool {
        let ready = self.is_ready();
        if !ready {
            self.patient.push(waiter);
        }
        ready
    }

    /// A session is about to commit what rests on a mark of another instance.
    pub fn secure(&mut self, mark: &Mark, waiter: Waiter, out: &mut Vec<Effect>) -> Secured {
        if !self.is_member(mark.home) {
            return Secured::Gone;
        }
        if self.is_durable(mark) {
            return Secured::Durable;
        }
        self.commits.push((waiter, *mark));
        self.ask_flush(mark.home.instance, out);
        Secured::Wait
    }

    /// It does not wait to commit, or until values may be taken, any more.
    pub fn give_up_waiting(&mut self, waiter: Waiter) {
        self.commits.retain(|(w, _)| *w != waiter);
        self.patient.retain(|w| *w != waiter);
    }

    /// The object is gone for good.
    pub fn forget(&mut self, object: ObjectId) {
        self.floors.remove(&object);
        self.unsure.remove(&object);
        self.homes.remove(&object);
        self.used.remove(&object);
        self.answered.retain(|(_, o), _| *o != object);
    }

    /// This instance is about to leave: the others draw for themselves.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    // ---- who is home ----

    /// Who is asked for values of a sequence.
    pub fn home(&self, object: ObjectId) -> InstanceId {
        let moved = self.homes.get(&object).copied();
        moved
            .filter(|home| self.members.contains_key(home))
            .unwrap_or_else(|| self.first_home(object))
    }

    /// By rendezvous hashing: the same for everybody who has the same members.
    fn first_home(&self, object: ObjectId) -> InstanceId {
        let weight = |k: &InstanceId| mix(u64::from(object.0) << 16 | u64::from(k.0));
        let home = self.members.keys().copied().max_by_key(weight);
        home.expect("invariant: an instance is a member of its own epoch")
    }

    /// Counts draws at their home; it may move to `by`, if that has drawn three quarters.
    fn count(&mut self, object: ObjectId, by: InstanceId, draws: u32) {
        make_room(&mut self.used);
        let used = self.used.entry(object).or_default();
        used.draws = used.draws.saturating_add(draws);
        let of = used.by.entry(by).or_default();
        *of = of.saturating_add(draws);
        if used.draws < self.window {
            return;
        }
        let most = used
            .by
            .iter()
            .max_by_key(|(_, n)| **n)
            .map(|(k, n)| (*k, *n));
        let all = used.draws;
        self.used.remove(&object);
        // Only who is drawing now can be told at once.
        if let Some((most, n)) = most
            && most == by
            && n >= all - all / 4
        {
            make_room(&mut self.homes);
            self.homes.insert(object, most);
        }
    }

    // ---- asking ----

    /// Sends the request of who waits, if there is none under way.
    fn ask(&mut self, object: ObjectId, out: &mut Vec<Effect>) {
        let (ready, home) = (self.is_ready(), self.home(object));
        let Some(asking) = self.asking.get_mut(&object) else {
            return;
        };
        if asking.request.is_some() {
            return;
        }
        if asking.waiting.is_empty() {
            self.asking.remove(&object);
            return;
        }
        if !ready {
            return;
        }
        if home == self.me.instance {
            let waiting = self.asking.remove(&object).map(|a| a.waiting);
            self.draw_here(object, waiting.into_iter().flatten(), out);
            return;
        }
        let n = asking.waiting.len().min(WANTED_MAX as usize);
        asking.sharing = asking.waiting.drain(..n).map(Some).collect();
        self.request(object, home, 0, out);
    }

    fn draw_here(
        &mut self,
        object: ObjectId,
        waiters: impl Iterator<Item = Waiter>,
        out: &mut Vec<Effect>,
    ) {
        for waiter in waiters {
            self.count(object, self.me.instance, 1);
            let told = Told::Here;
            out.push(Effect::Told { waiter, told });
        }
    }

    /// Has those who share a request ask `to`.
    fn request(&mut self, object: ObjectId, to: InstanceId, hops: u8, out: &mut Vec<Effect>) {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        let incarnation = self.members[&to];
        let Some(asking) = self.asking.get_mut(&object) else {
            return;
        };
        asking.request = Some(Request {
            id,
            to: Member {
                instance: to,
                incarnation,
            },
            hops,
        });
        self.send_request(object, out);
    }

    fn send_request(&self, object: ObjectId, out: &mut Vec<Effect>) {
        let Some(asking) = self.asking.get(&object) else {
            return;
        };
        let Some(request) = asking.request else {
            return;
        };
        let message = Message::Draw {
            id: request.id,
            object,
            header: asking.header,
            wanted: asking.sharing.len() as u32,
            anyway: request.hops >= HOPS_MAX,
        };
        let to = request.to.instance;
        out.push(Effect::Send { to, message });
    }

    /// The request `id` to `from`, if it is under way.
    fn under_way(&mut self, from: InstanceId, object: ObjectId, id: RequestId) -> Option<Request> {
        let request = self.asking.get(&object)?.request?;
        (request.id == id && request.to.instance == from).then_some(request)
    }

    fn drawn(
        &mut self,
        (object, from): (ObjectId, Member),
        id: RequestId,
        (given, home): (Given, InstanceId),
        out: &mut Vec<Effect>,
    ) {
        if !self.is_member(from) {
            return;
        }
        self.heard_durable(from.instance, given.durable, out);
        if self.under_way(from.instance, object, id).is_none() {
            return;
        }
        make_room(&mut self.homes);
        self.homes.insert(object, home);
        let mark = Mark {
            home: from,
            pos: given.pos,
            state: given.state,
        };
        if !self.is_durable(&mark) {
            let known = self.unsure.entry(object).or_insert(mark);
            if known.state.draw <= given.state.draw {
                *known = mark;
            }
        }
        let Some(asking) = self.asking.get_mut(&object) else {
            return;
        };
        asking.request = None;
        if self.planted.breaks(Mutation::ShareWithLateComers) {
            let late = asking.waiting.drain(..).map(Some);
            asking.sharing.splice(0..0, late);
        }
        let mut next = 0;
        let mut left = std::mem::take(&mut asking.sharing).into_iter();
        for slot in left.by_ref().take(given.range.count as usize) {
            match slot {
                Some(waiter) => {
                    let value = given.value(next);
                    let told = Told::Value { value, mark };
                    out.push(Effect::Told { waiter, told });
                }
                // Kept in order: what is given up is the last of a kept range.
                None if given.keep => continue,
                None => {}
            }
            next += 1;
        }
        // The sequence gave fewer than were wanted.
        for waiter in left.flatten().collect::<Vec<_>>().into_iter().rev() {
            asking.waiting.push_front(waiter);
        }
        if given.keep && next < given.range.count {
            out.push(Effect::Keep {
                object,
                range: given.rest(next),
                increment: given.increment,
                mark,
            });
            let told = Told::Again;
            let again = asking.waiting.drain(..);
            out.extend(again.map(|waiter| Effect::Told { waiter, told }));
        }
        self.ask(object, out);
    }

    fn moved(
        &mut self,
        (from, object, id): (InstanceId, ObjectId, RequestId),
        home: InstanceId,
        out: &mut Vec<Effect>,
    ) {
        let Some(request) = self.under_way(from, object, id) else {
            return;
        };
        if !self.members.contains_key(&home) {
            // Of another epoch: one of the two will know better soon, or `from` serves it.
            return self.request(object, from, HOPS_MAX, out);
        }
        make_room(&mut self.homes);
        self.homes.insert(object, home);
        if home == self.me.instance {
            return self.sharers_draw_here(object, out);
        }
        self.request(object, home, request.hops.saturating_add(1), out);
    }

    fn sharers_draw_here(&mut self, object: ObjectId, out: &mut Vec<Effect>) {
        if let Some(asking) = self.asking.get_mut(&object) {
            asking.request = None;
            let sharing = std::mem::take(&mut asking.sharing);
            self.draw_here(object, sharing.into_iter().flatten(), out);
        }
        self.ask(object, out);
    }

    // ---- serving ----

    fn asked(&mut self, serve: Serve, anyway: bool, out: &mut Vec<Effect>) {
        let Serve {
            from, id, object, ..
        } = serve;
        let send = |message| Effect::Send { to: from, message };
        match self.answered.get(&(from, object)) {
            Some((last, _)) if id < *last => return,
            Some((last, answer)) if *last == id => {
                out.extend(answer.clone().map(send));
                return;
            }
            _ => {}
        }
        let home = self.home(object);
        let answer = match () {
            () if self.leaving => Message::Refused { id, object },
            () if home != self.me.instance && !anyway => Message::Moved { id, object, home },
            () => return self.begin_serving(serve, out),
        };
        self.answer(&serve, answer, out);
    }

    /// Remembered, so that a request that comes again does not have a second effect.
    fn answer(&mut self, serve: &Serve, message: Message, out: &mut Vec<Effect>) {
        make_room(&mut self.answered);
        let key = (serve.from, serve.object);
        self.answered.insert(key, (serve.id, Some(message.clone())));
        let to = serve.from;
        out.push(Effect::Send { to, message });
    }

    fn begin_serving(&mut self, serve: Serve, out: &mut Vec<Effect>) {
        let key = (serve.from, serve.object);
        if !self.is_ready() {
            self.parked.insert(key, serve);
            return;
        }
        make_room(&mut self.answered);
        self.answered.insert(key, (serve.id, None));
        out.push(Effect::Serve(serve));
    }

    /// What came of serving a request.
    pub fn served(&mut self, serve: &Serve, outcome: Outcome, out: &mut Vec<Effect>) {
        let Serve {
            from, id, object, ..
        } = *serve;
        if !self.members.contains_key(&from) {
            return;
        }
        let message = match outcome {
            Outcome::NotYet => {
                self.answered.remove(&(from, object));
                return self.begin_serving(*serve, out);
            }
            Outcome::Refused => Message::Refused { id, object },
            Outcome::Given(given) => {
                self.count(object, from, given.range.count.min(serve.wanted));
                Message::Drawn {
                    id,
                    object,
                    incarnation: self.me.incarnation,
                    given,
                    home: self.home(object),
                }
            }
        };
        self.answer(serve, message, out);
    }

    /// This instance's log is durable up to there, as `to` wanted to know.
    pub fn flushed(&self, to: InstanceId, durable: LogPos, out: &mut Vec<Effect>) {
        let incarnation = self.me.incarnation;
        let message = Message::Flushed {
            incarnation,
            durable,
        };
        out.push(Effect::Send { to, message });
    }

    // ---- durable ----

    fn is_member(&self, m: Member) -> bool {
        self.members.get(&m.instance) == Some(&m.incarnation)
    }

    fn is_durable(&self, mark: &Mark) -> bool {
        let durable = self.durable.get(&mark.home.instance);
        self.is_member(mark.home) && durable.is_some_and(|d| *d >= mark.pos)
    }

    fn heard_durable(&mut self, instance: InstanceId, pos: LogPos, out: &mut Vec<Effect>) {
        let known = self.durable.entry(instance).or_default();
        if *known >= pos {
            return;
        }
        *known = pos;
        let unsure = std::mem::take(&mut self.unsure);
        let unsure = unsure.into_iter().filter(|(_, m)| !self.is_durable(m));
        self.unsure = unsure.collect();
        self.tell_commits(out);
    }

    fn tell_commits(&mut self, out: &mut Vec<Effect>) {
        let commits = std::mem::take(&mut self.commits);
        for (waiter, mark) in commits {
            let told = match () {
                () if !self.is_member(mark.home) => Told::Gone,
                () if self.is_durable(&mark) => Told::Durable,
                () => {
                    self.commits.push((waiter, mark));
                    continue;
                }
            };
            out.push(Effect::Told { waiter, told });
        }
    }

    /// Asks an instance for as much as anybody waits for.
    fn ask_flush(&self, to: InstanceId, out: &mut Vec<Effect>) {
        let of = self.commits.iter().filter(|(_, m)| m.home.instance == to);
        if let Some(pos) = of.map(|(_, m)| m.pos).max() {
            let message = Message::Flush { pos };
            out.push(Effect::Send { to, message });
        }
    }

    // ---- messages and members ----

    /// A message of a member.
    pub fn message(&mut self, from: InstanceId, message: Message, out: &mut Vec<Effect>) {
        let Some(&life) = self.members.get(&from) else {
            // It knows of an epoch that this instance does not know yet, or has been parted from. What it says of its memory counts in any case.
            if let Message::Declare { epoch, states } = message {
                self.hear_declaration(from, epoch, states, out);
            }
            return;
        };
        match message {
            Message::Draw {
                id,
                object,
                header,
                wanted,
                anyway,
            } => {
                let wanted = wanted.clamp(1, WANTED_MAX);
                let serve = Serve {
                    from,
                    id,
                    object,
                    header,
                    wanted,
                };
                self.asked(serve, anyway, out);
            }
            Message::Drawn {
                id,
                object,
                incarnation,
                given,
                home,
            } => {
                let from = Member {
                    instance: from,
                    incarnation,
                };
                self.drawn((object, from), id, (given, home), out);
            }
            Message::Moved { id, object, home } => self.moved((from, object, id), home, out),
            Message::Refused { id, object } => {
                if self.under_way(from, object, id).is_some() {
                    self.sharers_draw_here(object, out);
                }
            }
            Message::Declare { epoch, states } => self.hear_declaration(from, epoch, states, out),
            Message::DeclareWanted => self.declare(from, out),
            Message::Flush { pos } => out.push(Effect::Flush { from, pos }),
            Message::Flushed {
                incarnation,
                durable,
            } => {
                if incarnation == life {
                    self.heard_durable(from, durable, out);
                }
            }
        }
    }

    fn hear_declaration(
        &mut self,
        from: InstanceId,
        epoch: Epoch,
        states: Vec<(ObjectId, SequenceState)>,
        out: &mut Vec<Effect>,
    ) {
        for (object, state) in states {
            let floor = self.floors.entry(object).or_insert(state);
            if floor.draw < state.draw && !self.planted.breaks(Mutation::ForgetDeclarations) {
                *floor = state;
            }
        }
        if self.planted.breaks(Mutation::ForgetDeclarations) {
            self.floors.clear();
        }
        let newest = self.declared.entry(from).or_insert(epoch);
        *newest = epoch.max(*newest);
        self.go_on(out);
    }

    fn declare(&self, to: InstanceId, out: &mut Vec<Effect>) {
        let states = self.unsure.iter().map(|(o, m)| (*o, m.state)).collect();
        let epoch = self.epoch;
        let message = Message::Declare { epoch, states };
        out.push(Effect::Send { to, message });
    }

    fn others(&self) -> impl Iterator<Item = InstanceId> + '_ {
        let me = self.me.instance;
        self.members.keys().copied().filter(move |k| *k != me)
    }

    /// Everybody has said in this epoch what it remembers.
    pub fn is_ready(&self) -> bool {
        let has_declared = |k| self.declared.get(&k).is_some_and(|e| *e >= self.epoch);
        self.others().all(has_declared)
    }

    /// Does what has waited for everybody to declare.
    fn go_on(&mut self, out: &mut Vec<Effect>) {
        if !self.is_ready() {
            return;
        }
        let told = Told::Again;
        let patient = self.patient.drain(..);
        out.extend(patient.map(|waiter| Effect::Told { waiter, told }));
        for serve in std::mem::take(&mut self.parked).into_values() {
            self.begin_serving(serve, out);
        }
        let objects: Vec<ObjectId> = self.asking.keys().copied().collect();
        objects.into_iter().for_each(|o| self.ask(o, out));
    }

    /// A new epoch, before the cache enters it. `members`: everybody who is up, this instance included.
    pub fn reconfigure(
        &mut self,
        epoch: Epoch,
        members: impl IntoIterator<Item = Member>,
        out: &mut Vec<Effect>,
    ) {
        let members = members.into_iter().map(|m| (m.instance, m.incarnation));
        let before = std::mem::replace(&mut self.members, members.collect());
        self.epoch = epoch;
        let stays = |k: &InstanceId| {
            let now = self.members.get(k);
            now.is_some() && now == before.get(k)
        };
        self.durable.retain(|k, _| stays(k));
        self.answered.retain(|(k, _), _| stays(k));
        self.parked.retain(|(k, _), _| stays(k));
        self.homes.clear();
        self.used.clear();
        let others: BTreeSet<InstanceId> = self.others().collect();
        self.declared.retain(|k, _| others.contains(k));
        others.iter().for_each(|to| self.declare(*to, out));
        let objects: Vec<ObjectId> = self.asking.keys().copied().collect();
        for object in objects {
            self.ask_in_new_epoch(object, out);
        }
        self.tell_commits(out);
        others.iter().for_each(|to| self.ask_flush(*to, out));
        self.go_on(out);
    }

    /// A request to who has gone is made again, to whoever is home now.
    fn ask_in_new_epoch(&mut self, object: ObjectId, out: &mut Vec<Effect>) {
        let Some(to) = self.asking.get(&object).and_then(|a| a.request) else {
            return;
        };
        if self.is_member(to.to) {
            return self.send_request(object, out);
        }
        if let Some(asking) = self.asking.get_mut(&object) {
            asking.request = None;
            let sharing = std::mem::take(&mut asking.sharing);
            for waiter in sharing.into_iter().rev().flatten() {
                asking.waiting.push_front(waiter);
            }
        }
    }

    /// Says again what may have been lost, to all or to one.
    pub fn say_again(&self, to: Option<InstanceId>, out: &mut Vec<Effect>) {
        let meant = |k: InstanceId| to.is_none_or(|to| to == k);
        for (object, asking) in &self.asking {
            if asking.request.is_some_and(|r| meant(r.to.instance)) {
                self.send_request(*object, out);
            }
        }
        for to in self.others().filter(|k| meant(*k)) {
            self.ask_flush(to, out);
            if self.declared.get(&to).is_none_or(|e| *e < self.epoch) {
                let message = Message::DeclareWanted;
                out.push(Effect::Send { to, message });
                self.declare(to, out);
            }
        }
    }
}

fn make_room<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>) {
    if map.len() >= REMEMBERED_MAX {
        map.clear();
    }
}

/// splitmix64's finish.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
