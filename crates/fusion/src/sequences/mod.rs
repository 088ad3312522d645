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
//! - `setval` forgets what its instance keeps, and what is on its way to be kept there: of a request that was sent before, only those get values who waited then.
//! - A request is executed once as long as its home lives: the answer to an instance's last one is remembered. With the home's death, values may be lost, none given twice.
//! - An answer counts only if the life that gave it is a member.

mod asking;
mod members;
mod message;
mod serving;
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
    /// Who shares the request, in order; None: has given up. Nobody: it was made ahead.
    sharing: Vec<Option<Waiter>>,
    /// Who came after it was sent.
    waiting: VecDeque<Waiter>,
}

#[derive(Clone, Copy)]
struct Request {
    id: RequestId,
    to: Member,
    hops: u8,
    /// This instance has set the sequence since: what nobody waited for is not kept.
    outdated: bool,
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
        if self.is_ready() && self.draws_here(object) && !self.asking.contains_key(&object) {
            self.count(object, self.me.instance, 1);
            return Begun::Here;
        }
        let asking = self.asking.entry(object);
        let asking = asking.or_insert_with(|| Asking::new(header));
        asking.waiting.push_back(waiter);
        if asking.request.is_none() {
            self.ask(object, out);
        }
        let request = self.asking.get(&object).and_then(|a| a.request);
        Begun::Wait(request.map(|r| r.to.instance))
    }

    /// Values of a sequence with a cache, drawn from steadily, run low: asks for the next ones before anybody waits for them. Returns whether another instance is asked.
    pub fn draw_ahead(&mut self, object: ObjectId, header: Dba, out: &mut Vec<Effect>) -> bool {
        if !self.is_ready() || self.draws_here(object) || self.asking.contains_key(&object) {
            return false;
        }
        self.asking.insert(object, Asking::new(header));
        self.request(object, self.home(object), 0, out);
        true
    }

    /// With the block latched, and before what is kept is forgotten: this instance has set the sequence.
    pub fn set_here(&mut self, object: ObjectId) {
        if self.planted.breaks(Mutation::KeepAfterSet) {
            return;
        }
        let asking = self.asking.get_mut(&object);
        if let Some(request) = asking.and_then(|a| a.request.as_mut()) {
            request.outdated = true;
        }
    }

    /// Nobody else is asked, if all are ready.
    fn draws_here(&self, object: ObjectId) -> bool {
        let may_ask = self.unsure.len() < UNSURE_MAX || self.unsure.contains_key(&object);
        self.home(object) == self.me.instance || !may_ask
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
}

impl Asking {
    fn new(header: Dba) -> Asking {
        Asking {
            header,
            request: None,
            sharing: Vec::new(),
            waiting: VecDeque::new(),
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
