//! One resource at its master: what each instance has, and the requests in their order.
//!
//! **Invariants**
//! 1. What `holders` says of an instance is what the instance has, or more. A grant that may be
//!    under way counts beside it.
//! 2. A request is granted when no other instance has what excludes its mode, and no request before
//!    it does. So requests that do not exclude each other do not wait for each other.
//! 3. A new request stands behind all, with one exception, that of PostgreSQL's queue: before the
//!    first that waits for the end of what the request's owner uses.
//! 4. Every holder is told what is wanted by the requests of others that its mode excludes, by the
//!    last of them as well as by the first.

use crate::ges::message::{Effect, Message, Resource, Statement, Value};
use crate::ges::{Against, Mode, Modes};
use crate::ids::{RequestId, Turn};
use crate::planted::{Mutation, Planted};
use block::ids::InstanceId;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::ges) struct Request {
    pub from: InstanceId,
    pub id: RequestId,
    /// What the request's owner is to have.
    pub mode: Mode,
    /// What the owner uses already.
    pub own: Mode,
    pub patient: bool,
}

impl Request {
    /// Whether `other` waits for the end of this request's owner. False if this request waits for
    /// the end of the other's owner, too: that is a deadlock.
    fn goes_before(&self, other: &Request) -> bool {
        !other.mode.compatible(self.own) && other.own.compatible(self.mode)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Place {
    pub(super) request: Request,
    /// The grant that is under way: its turn, and the mode that the instance has with it.
    pub(super) grant: Option<(Turn, Mode)>,
    /// Whether the request was let pass another because of a circle. It is passed by none for that.
    moved: bool,
}

/// What a holder was told last, and what it has not given room to since.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Told {
    pub(super) turn: Turn,
    wanted: Modes,
    patient: bool,
    answered: bool,
}

/// The requests of an instance that are over.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Over {
    /// All below this one.
    floor: RequestId,
    /// Others, with whether they were denied.
    ids: BTreeMap<RequestId, bool>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Entry {
    pub(super) holders: BTreeMap<InstanceId, Mode>,
    /// The number of the last statement of each instance.
    pub(super) heard: BTreeMap<InstanceId, u64>,
    over: BTreeMap<InstanceId, Over>,
    pub(super) queue: Vec<Place>,
    pub(super) told: BTreeMap<InstanceId, Told>,
    pub(super) value: Option<Value>,
}

/// How a request that comes is to be handled.
pub(super) enum Arrival {
    New,
    /// A late copy, or a copy of one that waits.
    Known,
    Denied,
}

impl Entry {
    pub(super) fn of(
        holders: BTreeMap<InstanceId, Mode>,
        heard: BTreeMap<InstanceId, u64>,
    ) -> Entry {
        Entry {
            holders,
            heard,
            ..Entry::default()
        }
    }

    fn mode_of(&self, instance: InstanceId) -> Mode {
        self.holders.get(&instance).copied().unwrap_or_default()
    }

    /// Forgets what was under way, and what is known of holders.
    pub(super) fn begin_epoch(&mut self, holders: BTreeMap<InstanceId, Mode>) {
        let value = self.value;
        *self = Entry {
            value,
            ..Entry::of(holders, BTreeMap::new())
        };
    }

    /// Records what an instance says it has, unless it has said something later.
    pub(super) fn says(&mut self, from: InstanceId, now: Statement, value: Option<Value>) {
        let heard = self.heard.entry(from).or_default();
        if now.number <= *heard {
            return;
        }
        *heard = now.number;
        // Perhaps the instance has had what is granted to it.
        let granted = self.queue.iter().filter(|p| p.request.from == from);
        let granted = granted.filter_map(|p| p.grant).map(|g| g.1);
        let before = granted.fold(self.mode_of(from), Mode::join);
        if before == Mode::Exclusive && now.has != Mode::Exclusive && value.is_none() {
            self.value = None; // the answer with the value was lost, or is late
        }
        match now.has {
            Mode::Null => self.holders.remove(&from),
            mode => self.holders.insert(from, mode),
        };
        self.value = self.value.max(value);
        if let Some(told) = self.told.get_mut(&from) {
            told.wanted = told.wanted.excluding(now.has);
            if told.wanted.is_empty() {
                self.told.remove(&from);
            }
        }
    }

    /// Notes that a holder has answered what it was told.
    pub(super) fn answered(&mut self, from: InstanceId, turn: Turn) {
        if let Some(told) = self.told.get_mut(&from) {
            told.answered |= turn >= told.turn;
        }
    }

    pub(super) fn arrival(&mut self, request: &Request, floor: RequestId) -> Arrival {
        let Request { from, id, .. } = *request;
        let over = self.over.entry(from).or_default();
        over.floor = over.floor.max(floor);
        over.ids.retain(|id, _| *id >= over.floor);
        match over.ids.get(&id) {
            Some(true) => return Arrival::Denied,
            Some(false) => return Arrival::Known,
            None if id < over.floor => return Arrival::Known,
            None => {}
        }
        match self.position(from, id) {
            Some(_) => Arrival::Known,
            None => Arrival::New,
        }
    }

    pub(super) fn position(&self, from: InstanceId, id: RequestId) -> Option<usize> {
        let same = |p: &Place| (p.request.from, p.request.id) == (from, id);
        self.queue.iter().position(same)
    }

    /// Puts a new request into the queue.
    pub(super) fn insert(&mut self, request: Request, planted: Planted) {
        let place = match planted.breaks(Mutation::ConvertersQueue) {
            true => self.queue.len(),
            false => self.place(&request, self.queue.len()),
        };
        let (grant, moved) = (None, false);
        self.queue.insert(
            place,
            Place {
                request,
                grant,
                moved,
            },
        );
    }

    /// Where in the queue a request stands that would otherwise stand at `place`.
    fn place(&self, request: &Request, place: usize) -> usize {
        let before = |p: &Place| p.grant.is_none() && request.goes_before(&p.request);
        let mut ahead = self.queue.iter().take(place);
        ahead.position(before).unwrap_or(place)
    }

    /// Takes note that the owner of a request uses more than was known.
    pub(super) fn said_again(&mut self, request: &Request, planted: Planted) {
        let Some(at) = self.position(request.from, request.id) else {
            return;
        };
        let own = self.queue[at].request.own;
        let more = own != request.own && request.own.covers(own);
        if self.queue[at].grant.is_some() || !more || planted.breaks(Mutation::ConvertersQueue) {
            return;
        }
        let mut this = self.queue.remove(at);
        this.request = *request;
        self.queue.insert(self.place(request, at), this);
    }

    /// Lets one request pass another that stands ahead of it.
    pub(super) fn pass(
        &mut self,
        (from, id): (InstanceId, RequestId),
        by: (InstanceId, RequestId),
    ) {
        let Some(at) = self.position(from, id) else {
            return;
        };
        if self.queue[at].grant.is_some() || self.queue[at].moved {
            return;
        }
        if let Some(other) = self.position(by.0, by.1).filter(|other| at < *other) {
            let mut passes = self.queue.remove(other);
            passes.moved = true;
            self.queue.insert(at, passes);
        }
    }

    /// Takes a request out of the queue.
    pub(super) fn end(&mut self, at: usize, denied: bool) {
        let Request { from, id, .. } = self.queue.remove(at).request;
        self.over.entry(from).or_default().ids.insert(id, denied);
    }

    /// Whether a grant for the instance is under way.
    pub(super) fn is_granted(&self, instance: InstanceId) -> bool {
        let under_way = |p: &Place| p.request.from == instance && p.grant.is_some();
        self.queue.iter().any(under_way)
    }

    /// Whether a request ahead, or a grant under way, excludes the request at this place.
    fn is_behind(&self, at: usize) -> bool {
        let Request { from, mode, .. } = self.queue[at].request;
        let excludes = |(n, p): (usize, &Place)| match p.grant {
            Some((_, granted)) if p.request.from != from => !granted.compatible(mode),
            _ => n < at && !p.request.mode.compatible(mode),
        };
        self.queue.iter().enumerate().any(excludes)
    }

    /// The instances that have what excludes the request at this place.
    fn against(&self, at: usize) -> impl Iterator<Item = InstanceId> {
        let Request { from, mode, .. } = self.queue[at].request;
        let holders = self.holders.iter();
        holders
            .filter(move |(i, m)| **i != from && !m.compatible(mode))
            .map(|(i, _)| *i)
    }

    /// Whether a request without patience would have to wait for the end of an owner's use: behind
    /// a patient one, or for a holder that has said what it has.
    fn must_deny(&self, at: usize) -> bool {
        let Place { request, grant, .. } = self.queue[at];
        if request.patient || grant.is_some() {
            return false;
        }
        let behind = |p: &Place| {
            let waits = p.grant.is_none() && p.request.patient;
            waits && !p.request.mode.compatible(request.mode)
        };
        let in_use = |i: InstanceId| {
            let told = self.told.get(&i);
            told.is_some_and(|t| t.answered && t.wanted.contains(request.mode))
        };
        self.queue.iter().take(at).any(behind) || self.against(at).any(in_use)
    }

    /// Denies what must be denied and grants what can be granted.
    pub(super) fn serve(
        &mut self,
        resource: Resource,
        turn: &mut impl FnMut() -> Turn,
        out: &mut Vec<Effect>,
    ) {
        while let Some(at) = (0..self.queue.len()).find(|at| self.must_deny(*at)) {
            let Request { from, id, .. } = self.queue[at].request;
            self.end(at, true);
            let message = Message::Denied { resource, id };
            out.push(Effect::Send { to: from, message });
        }
        for at in 0..self.queue.len() {
            let from = self.queue[at].request.from;
            if self.is_granted(from) || self.is_behind(at) || self.against(at).next().is_some() {
                continue;
            }
            let turn = turn();
            let mode = self.mode_of(from).join(self.queue[at].request.mode);
            self.queue[at].grant = Some((turn, mode));
            self.tell(from, turn, self.wanted_of(from, mode), true);
            self.send_grant(resource, at, out);
        }
    }

    /// What other instances' requests want that excludes `mode`.
    fn wanted_of(&self, holder: InstanceId, mode: Mode) -> Modes {
        let others = self.queue.iter().filter(|p| p.grant.is_none());
        let others = others.filter(|p| p.request.from != holder);
        let wanted: Modes = others.map(|p| p.request.mode).collect();
        wanted.excluding(mode)
    }

    fn tell(&mut self, holder: InstanceId, turn: Turn, wanted: Modes, patient: bool) {
        let told = Told {
            turn,
            wanted,
            patient,
            answered: false,
        };
        match wanted.is_empty() {
            true => self.told.remove(&holder),
            false => self.told.insert(holder, told),
        };
    }

    /// Tells holders what is wanted, as far as that has changed.
    pub(super) fn recall(
        &mut self,
        resource: Resource,
        first_only: bool,
        turn: &mut impl FnMut() -> Turn,
        out: &mut Vec<Effect>,
    ) {
        let holders: Vec<(InstanceId, Mode)> = self.holders.iter().map(|(i, m)| (*i, *m)).collect();
        let told: Vec<InstanceId> = self.told.keys().copied().collect();
        let gone = told.iter().filter(|i| !self.holders.contains_key(i));
        let gone: Vec<(InstanceId, Mode)> = gone.map(|i| (*i, Mode::Null)).collect();
        for (to, mode) in holders.into_iter().chain(gone) {
            if self.is_granted(to) {
                continue; // it is told with the grant, or once that has come
            }
            let mut wanted = self.wanted_of(to, mode);
            if first_only {
                let first = self.queue.iter().find(|p| p.grant.is_none());
                let first: Modes = first.map(|p| p.request.mode).into_iter().collect();
                wanted = first.excluding(mode);
            }
            let hurries = |p: &Place| {
                let against = p.request.from != to && !mode.compatible(p.request.mode);
                p.grant.is_none() && !p.request.patient && against
            };
            let patient = !self.queue.iter().any(hurries);
            let known = match self.told.get(&to) {
                Some(t) => t.wanted == wanted && (patient || !t.patient),
                None => wanted.is_empty(),
            };
            if !known {
                self.tell(to, turn(), wanted, patient);
                let turn = self.told.get(&to).map_or_else(&mut *turn, |t| t.turn);
                let message = Message::Recall {
                    resource,
                    turn,
                    wanted,
                    patient,
                };
                out.push(Effect::Send { to, message });
            }
        }
    }

    /// Sends the grant of this place, for the first time or again.
    fn send_grant(&self, resource: Resource, at: usize, out: &mut Vec<Effect>) {
        let Place { request, grant, .. } = self.queue[at];
        let Some((turn, mode)) = grant else {
            return;
        };
        let to = request.from;
        // What the instance has exclusively may have a newer value than is known here.
        let knows = self.mode_of(to) != Mode::Exclusive;
        let told = self.told.get(&to).filter(|t| t.turn == turn);
        let message = Message::Grant {
            resource,
            id: request.id,
            turn,
            mode,
            value: self.value.filter(|_| knows),
            wanted: told.map(|t| t.wanted).unwrap_or_default(),
        };
        out.push(Effect::Send { to, message });
    }

    /// Says again what is under way, and asks whether requests are still waited for.
    pub(super) fn drive(&self, resource: Resource, out: &mut Vec<Effect>) {
        for (at, place) in self.queue.iter().enumerate() {
            self.send_grant(resource, at, out);
            let Request { from, id, .. } = place.request;
            if place.grant.is_none() {
                let message = Message::Waits { resource, id };
                out.push(Effect::Send { to: from, message });
            }
        }
        // What an instance is told with a grant must not overtake it.
        let waits = |to: &&InstanceId| !self.is_granted(**to);
        for &to in self.told.keys().filter(waits) {
            self.recall_again(resource, to, out);
        }
    }

    pub(super) fn recall_again(&self, resource: Resource, to: InstanceId, out: &mut Vec<Effect>) {
        if let Some(told) = self.told.get(&to) {
            let message = Message::Recall {
                resource,
                turn: told.turn,
                wanted: told.wanted,
                patient: told.patient,
            };
            out.push(Effect::Send { to, message });
        }
    }

    /// Which instances stand against a request, and how.
    pub(super) fn blockers(&self, from: InstanceId, id: RequestId) -> Vec<(InstanceId, Against)> {
        let Some(at) = self.position(from, id) else {
            return Vec::new();
        };
        let mode = self.queue[at].request.mode;
        let holders = self.against(at).map(|i| (i, Against::Use(mode)));
        let ahead = self.queue.iter().take(at);
        let ahead = ahead.filter(|p| !p.request.mode.compatible(mode));
        let ahead = ahead.map(|p| {
            let (id, soft) = (p.request.id, !p.moved);
            (p.request.from, Against::Ahead { id, soft })
        });
        holders.chain(ahead).collect()
    }
}
