//! Drawing from sequences among instances.
//!
//! The truth about a sequence is its block. An instance that takes values moves the mark there,
//! with the block exclusive and the move logged. If every instance did so for itself, the block
//! would travel with every draw, and a log would be flushed each time (R2). So a sequence has a
//! *home*. The others ask it for values by a message, as many at a time as they have sessions
//! waiting, and the block stays.
//!
//! ```text
//! session ── draw ──► its machine ── Draw, wanted ──► home's machine ── Serve ──► block
//!    ◄── Told ──────────┴─────────◄── Drawn, values, mark ──┘
//! commit ── secure ──► machine ── Flush ──► home's log
//!                      home gone: an instance that was given values raises the mark in the block
//! ```
//!
//! The choice of the home is a matter of speed only. Everybody computes the same home; it moves to
//! the instance that draws most. An instance that asks the wrong one is told so. An instance that
//! was sent on twice is served wherever it asks. If it can reach no home it draws from the block.
//! Because of the block no value is given twice, however many instances believe to be home.
//!
//! **Invariants.**
//! - A transaction that uses a value commits only when the mark behind the value is durable. The
//!   mark is in the transaction's own log, which has the record before the commit. Or it is in the
//!   home's log, for which the transaction waits ([`Sequences::secure`]). Or, if the home has gone,
//!   it is in the block, which the transaction raises to the state that it was given.
//! - If a home died, what it gave may be in no log. The instances that were given it remember it.
//!   At the beginning of an epoch every member declares what it remembers, and nobody takes values
//!   from a block before all have declared ([`Sequences::floor`]). An instance that takes values
//!   starts from the higher of block and declarations. The draw number orders the states of a
//!   sequence.
//! - A drawer finds out with the block latched whether it may draw. So no instance draws from a
//!   block that was recovered after a death with the knowledge of before the death: the machine
//!   enters an epoch before the cache does.
//! - Without a cache, values go to sessions that waited when the request was sent, in their order.
//!   A value that nobody takes any more is lost. So a value drawn after another was returned is
//!   behind it.
//! - `setval` forgets what its instance keeps, and what is on its way to be kept there. Of a
//!   request that was sent before, only sessions that waited then get values.
//! - A request is executed once as long as its home lives: the answer to an instance's last request
//!   is remembered. With the home's death values may be lost, but none is given twice.
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

/// The number of draws after which a home looks at which instances drew.
const WINDOW: u32 = 256;
/// The most values in one answer: more than an instance has sessions.
const WANTED_MAX: u32 = 4096;
/// The number of times that an instance is sent on. After that it is served wherever it asks.
const HOPS_MAX: u8 = 2;
/// The most sequences of which this instance has values that may be durable in no log. The limit
/// makes the declaration fit a message. The instance draws from the block of any further sequence.
const UNSURE_MAX: usize = 8192;
/// The most sequences whose homes, use and last answers are remembered. A forgotten entry costs
/// messages, or values if a request comes twice.
const REMEMBERED_MAX: usize = 8192;

/// What a session that wants a value does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// Draw from the block.
    Here,
    /// Wait until told. Another instance is asked, and named here, or none is asked yet.
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
    /// The sessions that share the request, in order; None for one that has given up. Empty if the
    /// request was made ahead of need.
    sharing: Vec<Option<Waiter>>,
    /// The sessions that came after the request was sent.
    waiting: VecDeque<Waiter>,
}

#[derive(Clone, Copy)]
struct Request {
    id: RequestId,
    to: Member,
    hops: u8,
    /// Whether this instance has set the sequence since. If so, values that no session waited for
    /// are not kept.
    outdated: bool,
}

/// How many values each instance drew since the home last looked.
#[derive(Default)]
struct Use {
    draws: u32,
    by: BTreeMap<InstanceId, u32>,
}

/// One instance's machine for sequences (see the module).
pub struct Sequences {
    me: Member,
    epoch: Epoch,
    /// The members, this instance among them.
    members: BTreeMap<InstanceId, Incarnation>,
    /// The newest epoch in which each other member has declared.
    declared: BTreeMap<InstanceId, Epoch>,
    /// The states that sequences have reached at least, by what others have declared.
    floors: HashMap<ObjectId, SequenceState>,
    /// Marks that this instance was given and that may be durable in no log.
    unsure: BTreeMap<ObjectId, Mark>,
    /// The position up to which the log of each other member's present life is durable.
    durable: BTreeMap<InstanceId, LogPos>,
    /// The homes of sequences whose home has moved.
    homes: HashMap<ObjectId, InstanceId>,
    used: HashMap<ObjectId, Use>,
    asking: BTreeMap<ObjectId, Asking>,
    /// The last request of each instance, with its answer; None while it is being served.
    answered: HashMap<(InstanceId, ObjectId), (RequestId, Option<Message>)>,
    /// Requests that came before every member had declared.
    parked: BTreeMap<(InstanceId, ObjectId), Serve>,
    /// Sessions that wait for another instance's log.
    commits: Vec<(Waiter, Mark)>,
    /// Sessions that wait until values may be taken.
    patient: Vec<Waiter>,
    last_id: u64,
    leaving: bool,
    /// Draws after which a home looks: [`WINDOW`], fewer in tests.
    window: u32,
    planted: Planted,
}

impl Sequences {
    /// A machine that is alone until it is told otherwise.
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
            // This way two lives of an instance never give a request the same number.
            last_id: me.incarnation.0 << 32,
            leaving: false,
            window: WINDOW,
            planted: Planted::default(),
        }
    }

    // ---- for sessions ----

    /// Draws a value for a session that found none that is kept.
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

    /// Asks for the next values of a sequence with a cache before anybody waits for them, because
    /// those kept run low and are drawn steadily. Returns whether another instance is asked.
    pub fn draw_ahead(&mut self, object: ObjectId, header: Dba, out: &mut Vec<Effect>) -> bool {
        if !self.is_ready() || self.draws_here(object) || self.asking.contains_key(&object) {
            return false;
        }
        self.asking.insert(object, Asking::new(header));
        self.request(object, self.home(object), 0, out);
        true
    }

    /// Notes that this instance has set the sequence. The driver calls this with the block latched,
    /// and before what is kept is forgotten.
    pub fn set_here(&mut self, object: ObjectId) {
        if self.planted.breaks(Mutation::KeepAfterSet) {
            return;
        }
        let asking = self.asking.get_mut(&object);
        if let Some(request) = asking.and_then(|a| a.request.as_mut()) {
            request.outdated = true;
        }
    }

    /// Whether this instance asks no other, if all members are ready.
    fn draws_here(&self, object: ObjectId) -> bool {
        let may_ask = self.unsure.len() < UNSURE_MAX || self.unsure.contains_key(&object);
        self.home(object) == self.me.instance || !may_ask
    }

    /// Takes back the wish of a session that does not want a value any more.
    pub fn give_up(&mut self, object: ObjectId, waiter: Waiter) {
        if let Some(asking) = self.asking.get_mut(&object) {
            asking.waiting.retain(|w| *w != waiter);
            for w in &mut asking.sharing {
                w.take_if(|w| *w == waiter);
            }
        }
    }

    /// The state that the sequence has reached at least. None: values cannot be taken now, because
    /// some member may know more than the block. The driver asks with the block latched
    /// exclusively, before it takes values from it.
    pub fn floor(&self, object: ObjectId) -> Option<Option<SequenceState>> {
        if !self.is_ready() && !self.planted.breaks(Mutation::DrawUndeclared) {
            return None;
        }
        let mine = self.unsure.get(&object).map(|m| m.state);
        let theirs = self.floors.get(&object).copied();
        Some([mine, theirs].into_iter().flatten().max_by_key(|s| s.draw))
    }

    /// Notes the state that the block has now, logged by this instance or durably. The block is
    /// still latched.
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

    /// Whether values may be taken from blocks now. If not, the session is told [`Told::Again`]
    /// when they may.
    pub fn wait_ready(&mut self, waiter: Waiter) -> bool {
        let ready = self.is_ready();
        if !ready {
            self.patient.push(waiter);
        }
        ready
    }

    /// Secures the mark of another instance for a session that is about to commit what rests on it.
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

    /// Forgets a session that does not wait any more, to commit or until values may be taken.
    pub fn give_up_waiting(&mut self, waiter: Waiter) {
        self.commits.retain(|(w, _)| *w != waiter);
        self.patient.retain(|w| *w != waiter);
    }

    /// Forgets a sequence that is gone for good.
    pub fn forget(&mut self, object: ObjectId) {
        self.floors.remove(&object);
        self.unsure.remove(&object);
        self.homes.remove(&object);
        self.used.remove(&object);
        self.answered.retain(|(_, o), _| *o != object);
    }

    /// Notes that this instance is about to leave: the others draw for themselves.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    // ---- homes ----

    /// The instance that is asked for values of a sequence.
    pub fn home(&self, object: ObjectId) -> InstanceId {
        let moved = self.homes.get(&object).copied();
        moved
            .filter(|home| self.members.contains_key(home))
            .unwrap_or_else(|| self.first_home(object))
    }

    /// The home by rendezvous hashing: the same at every instance that has the same members.
    fn first_home(&self, object: ObjectId) -> InstanceId {
        let weight = |k: &InstanceId| mix(u64::from(object.0) << 16 | u64::from(k.0));
        let home = self.members.keys().copied().max_by_key(weight);
        home.expect("invariant: an instance is a member of its own epoch")
    }

    /// Counts draws at their home. The home may move to `by`, if `by` has drawn three quarters.
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
        // Only the instance that is drawing now can be told at once.
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

/// The finishing steps of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
