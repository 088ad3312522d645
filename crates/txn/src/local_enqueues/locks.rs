//! The lock table: the holders of each lock, and its waiters in order. Pure: the latch around it is
//! [`super::Enqueues`]'s.
//!
//! **Invariants.**
//! - Requests are granted in order. A request that conflicts with an earlier waiter waits behind
//!   it. Tables and names have their queues in [`crate::global_enqueues`]; here only their holders
//!   are noted.
//! - A session waits for one thing at a time.
//! - An entry without holders and waiters does not exist.

use super::mode::{LockMode, MODES};
use crate::Place;
use crate::global_enqueues::{Global, local};
use block::{ObjectId, Scn, TxnId};
use seam::HashMap;
use std::collections::VecDeque;
use std::time::Instant;

/// What can be locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Resource {
    /// That a transaction lets go of what it has changed. Nobody is granted it: its waiters are let
    /// go when the transaction ends, or undoes changes and goes on, to look again.
    Txn(TxnId),
    /// The first place in the line for a row or key. The session that has it waits for the holder.
    /// An early release of row locks would hand the row over here.
    Place(Place),
    /// A turn of another instance's session at a row or key. It is granted to nobody. Sessions that
    /// let the other pass are let go when it is over.
    Turn(Place),
    Table(ObjectId),
    Name(NameClass, u64, u64),
    /// A table or name as all instances lock it. It is granted to nobody here. A waiter is let go
    /// when [`crate::global_enqueues`] has granted it.
    Global(Global),
}

/// Kinds of named enqueues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NameClass {
    /// Names and definitions in the dictionary.
    Dictionary,
    /// `pg_advisory_lock` and the like.
    Advisory,
}

impl Resource {
    /// Whether sessions hold it; otherwise they are only let go.
    fn is_granted(&self) -> bool {
        !matches!(
            self,
            Resource::Txn(_) | Resource::Turn(_) | Resource::Global(_)
        )
    }

    /// The two letters of `v$lock`.
    pub fn kind(&self) -> &'static str {
        match self {
            Resource::Txn(_) | Resource::Place(_) | Resource::Turn(_) => "TX",
            Resource::Table(_) => "TM",
            Resource::Name(NameClass::Dictionary, ..) => "RC",
            Resource::Name(NameClass::Advisory, ..) => "UL",
            Resource::Global(g) => local(*g).map_or("", |r| r.kind()),
        }
    }

    /// The two numbers of `v$lock`.
    pub fn ids(&self) -> (u64, u64) {
        match *self {
            Resource::Txn(txn) => (txn.0, 0),
            Resource::Place(place) | Resource::Turn(place) => place.ids(),
            Resource::Table(object) => (u64::from(object.0), 0),
            Resource::Name(_, a, b) => (a, b),
            Resource::Global(g) => local(g).map_or((0, 0), |r| r.ids()),
        }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Resource::Txn(txn) => write!(f, "transaction {txn:?}"),
            Resource::Place(place) => write!(f, "{place}"),
            Resource::Turn(place) => write!(f, "another instance's turn at {place}"),
            Resource::Table(object) => write!(f, "relation {}", object.0),
            Resource::Name(NameClass::Dictionary, a, b) => {
                write!(f, "dictionary entry {a:x}.{b:x}")
            }
            Resource::Name(NameClass::Advisory, a, _) => write!(f, "advisory lock {a}"),
            Resource::Global(g) => match local(*g) {
                Some(r) => write!(f, "{r} on another instance"),
                None => write!(f, "lock {:x}", g.0),
            },
        }
    }
}

/// How long a lock is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Transaction,
    Session,
}

/// A session in the lock table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct LockerId(pub(crate) u32);

pub(crate) struct Holder {
    pub(crate) locker: LockerId,
    /// How often each mode was granted, for the transaction and for the session.
    counts: [[u32; MODES]; 2],
    pub(crate) since: Instant,
}

impl Holder {
    pub(crate) fn modes(&self) -> impl Iterator<Item = LockMode> + '_ {
        LockMode::ALL
            .into_iter()
            .filter(|&m| self.counts.iter().any(|c| c[m as usize] > 0))
    }
    fn conflicts(&self, mode: LockMode) -> bool {
        self.modes().any(|m| m.conflicts(mode))
    }
    /// The strongest mode held, for display.
    pub(crate) fn mode(&self) -> LockMode {
        self.modes().max().unwrap_or(LockMode::Null)
    }
}

/// What a session wants that waits for a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub place: Place,
    /// What the clock showed before the session looked at what it wants.
    pub looked: Scn,
    /// Since when the session has wanted it.
    pub since: Instant,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) locker: LockerId,
    pub(crate) mode: LockMode,
    level: Level,
    /// The serial of the wait. No two waits ever have the same, so an edge of a circle is the same
    /// if its serial is.
    pub(crate) serial: u64,
    /// For a wait for a transaction, the session that it runs in.
    owner: Option<LockerId>,
    /// Of a transaction that is waited for: what the waiter wants of it.
    pub(crate) want: Option<Want>,
    pub(crate) since: Instant,
}

#[derive(Default)]
pub(crate) struct Lock {
    pub(crate) holders: Vec<Holder>,
    pub(crate) queue: VecDeque<Request>,
}

impl Lock {
    /// Whether a new request can be granted at once.
    fn is_free_for(&self, locker: LockerId, mode: LockMode) -> bool {
        let mut waiters = self.queue.iter();
        !waiters.any(|q| q.mode.conflicts(mode)) && self.free_for(locker, mode)
    }

    fn free_for(&self, locker: LockerId, mode: LockMode) -> bool {
        !self
            .holders
            .iter()
            .any(|h| h.locker != locker && h.conflicts(mode))
    }
}

/// All locks that are not held by a session's fast path.
#[derive(Default)]
pub(crate) struct LockTable {
    pub(crate) locks: HashMap<Resource, Lock>,
    waiting: HashMap<LockerId, Resource>,
    serial: u64,
}

/// A session that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocker {
    pub(crate) locker: LockerId,
    /// Whether the blocker holds the resource in a mode that excludes the waiter's. Otherwise it
    /// stands ahead in the queue, or keeps a session waiting that stands there.
    pub(crate) directly: bool,
}

/// The outcome of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    Granted,
    Queued,
    Refused,
}

impl LockTable {
    /// Asks for a lock. If `queue` is set and the lock is not free, the request stands in line.
    pub(crate) fn ask(
        &mut self,
        locker: LockerId,
        r: Resource,
        mode: LockMode,
        level: Level,
        queue: bool,
    ) -> Asked {
        let lock = self.locks.entry(r).or_default();
        if lock.is_free_for(locker, mode) {
            grant(lock, locker, (mode, level), seam::now());
            return Asked::Granted;
        }
        if !queue {
            return Asked::Refused;
        }
        let request = self.request(locker, mode, level);
        let lock = self.locks.get_mut(&r).expect("it was just looked at");
        lock.queue.push_back(request);
        self.waiting.insert(locker, r);
        Asked::Queued
    }

    /// Waits in line until a transaction that runs in the session `owner` lets its waiters go.
    pub(crate) fn await_txn(
        &mut self,
        locker: LockerId,
        (txn, want): (TxnId, Want),
        owner: Option<LockerId>,
    ) {
        let request = Request {
            owner,
            want: Some(want),
            ..self.request(locker, LockMode::S, Level::Transaction)
        };
        self.locks
            .entry(Resource::Txn(txn))
            .or_default()
            .queue
            .push_back(request);
        self.waiting.insert(locker, Resource::Txn(txn));
    }

    /// Stands where [`LockTable::let_go`] finds it.
    pub(crate) fn await_turn(&mut self, locker: LockerId, r: Resource) {
        let request = self.request(locker, LockMode::X, Level::Transaction);
        self.locks.entry(r).or_default().queue.push_back(request);
        self.waiting.insert(locker, r);
    }

    /// Since when the first holder has the lock, or has wanted it if it is a place in line.
    pub(crate) fn held_since(&self, r: Resource) -> Option<Instant> {
        self.locks.get(&r)?.holders.first().map(|h| h.since)
    }

    /// Puts a request where [`LockTable::end_global`] finds it.
    pub(crate) fn await_global(&mut self, locker: LockerId, g: Global, mode: LockMode) {
        let request = self.request(locker, mode, Level::Transaction);
        let lock = self.locks.entry(Resource::Global(g)).or_default();
        lock.queue.push_back(request);
        self.waiting.insert(locker, Resource::Global(g));
    }

    /// Lets one waiter go. Returns false if it does not wait for `g`.
    pub(crate) fn end_global(&mut self, locker: LockerId, g: Global) -> bool {
        let r = Resource::Global(g);
        if self.waiting.get(&locker) != Some(&r) {
            return false;
        }
        self.waiting.remove(&locker);
        if let Some(lock) = self.locks.get_mut(&r) {
            lock.queue.retain(|q| q.locker != locker);
            if lock.queue.is_empty() {
                self.locks.remove(&r);
            }
        }
        true
    }

    /// The lockers that hold `r` in a weak mode, with the strongest such mode of each.
    pub(crate) fn weak_holders(&self, r: Resource) -> Vec<(LockerId, LockMode)> {
        let holders = self.locks.get(&r).into_iter().flat_map(|l| &l.holders);
        let weak = |h: &Holder| Some((h.locker, h.modes().filter(|m| m.is_weak()).max()?));
        holders.filter_map(weak).collect()
    }

    /// The weakest mode that covers all that the session holds of `r`.
    pub(crate) fn held(&self, locker: LockerId, r: Resource) -> LockMode {
        let holders = self.locks.get(&r).into_iter().flat_map(|l| &l.holders);
        let own = holders.filter(|h| h.locker == locker);
        own.flat_map(Holder::modes)
            .fold(LockMode::Null, LockMode::join)
    }

    fn request(&mut self, locker: LockerId, mode: LockMode, level: Level) -> Request {
        self.serial += 1;
        Request {
            locker,
            mode,
            level,
            serial: self.serial,
            owner: None,
            want: None,
            since: seam::now(),
        }
    }

    /// Lets the sessions go that wait for a transaction or a turn; they are put into `wake`.
    pub(crate) fn let_go(&mut self, r: Resource, wake: &mut Vec<LockerId>) {
        let lock = self.locks.remove(&r);
        for request in lock.into_iter().flat_map(|l| l.queue) {
            self.waiting.remove(&request.locker);
            wake.push(request.locker);
        }
    }

    /// What a session waits for.
    pub(crate) fn request_of(&self, locker: LockerId) -> Option<(Resource, &Request)> {
        let r = *self.waiting.get(&locker)?;
        let mut queue = self.locks[&r].queue.iter();
        queue.find(|q| q.locker == locker).map(|q| (r, q))
    }

    pub(crate) fn is_waiting(&self, locker: LockerId) -> bool {
        self.waiting.contains_key(&locker)
    }

    /// Gives up the wait of `locker`. Sessions behind it that can go on now are put into `wake`.
    pub(crate) fn give_up(&mut self, locker: LockerId, wake: &mut Vec<LockerId>) {
        let r = self
            .waiting
            .remove(&locker)
            .expect("invariant: only a waiter gives up");
        let lock = self
            .locks
            .get_mut(&r)
            .expect("invariant: a waiter is in a queue");
        lock.queue.retain(|q| q.locker != locker);
        self.serve(r, wake);
    }

    /// Takes back one grant. Sessions that can go on now are put into `wake`. Returns false if the
    /// lock is not held.
    pub(crate) fn release(
        &mut self,
        locker: LockerId,
        r: Resource,
        mode: LockMode,
        level: Level,
        wake: &mut Vec<LockerId>,
    ) -> bool {
        let Some(lock) = self.locks.get_mut(&r) else {
            return false;
        };
        let Some(at) = lock.holders.iter().position(|h| h.locker == locker) else {
            return false;
        };
        let count = &mut lock.holders[at].counts[level as usize][mode as usize];
        if *count == 0 {
            return false;
        }
        *count -= 1;
        if lock.holders[at].modes().next().is_none() {
            lock.holders.swap_remove(at);
        }
        self.serve(r, wake);
        true
    }

    /// Notes a lock that its holder was granted elsewhere, or took by its fast path.
    pub(crate) fn adopt(&mut self, locker: LockerId, r: Resource, held: (LockMode, Level)) {
        grant(self.locks.entry(r).or_default(), locker, held, seam::now());
    }

    /// Grants, in order, what can be granted.
    fn serve(&mut self, r: Resource, wake: &mut Vec<LockerId>) {
        let Some(lock) = self.locks.get_mut(&r) else {
            return;
        };
        let (mut at, mut ahead) = (0, LockMode::Null);
        while at < lock.queue.len() && r.is_granted() {
            let q = &lock.queue[at];
            if q.mode.conflicts(ahead) || !lock.free_for(q.locker, q.mode) {
                ahead = ahead.join(q.mode);
                at += 1;
                continue;
            }
            let q = lock.queue.remove(at).expect("it is there");
            self.waiting.remove(&q.locker);
            wake.push(q.locker);
            let since = match r {
                Resource::Place(_) => q.since,
                _ => seam::now(),
            };
            grant(lock, q.locker, (q.mode, q.level), since);
        }
        if lock.holders.is_empty() && lock.queue.is_empty() {
            self.locks.remove(&r);
        }
    }

    /// The sessions that keep `locker` waiting, for a walk that began at `start`. Returns what it
    /// waits for and the serial of its wait.
    ///
    /// Of the sessions ahead in the queue only `start` is named. The others wait for this very
    /// resource and nothing else, so they lead to its holders, and those are named in their place.
    /// That keeps a walk over a row with a thousand waiters short.
    pub(crate) fn blockers(
        &self,
        locker: LockerId,
        start: LockerId,
        out: &mut Vec<Blocker>,
    ) -> Option<(Resource, u64)> {
        let r = *self.waiting.get(&locker)?;
        let lock = &self.locks[&r];
        let at = lock
            .queue
            .iter()
            .position(|q| q.locker == locker)
            .expect("invariant: a waiter is in its queue");
        let request = &lock.queue[at];
        if let Resource::Txn(_) = r {
            out.extend(request.owner.map(|locker| Blocker {
                locker,
                directly: true,
            }));
            return Some((r, request.serial));
        }
        if let Resource::Global(_) | Resource::Turn(_) = r {
            return Some((r, request.serial));
        }
        let mut modes = vec![request.mode];
        for before in lock.queue.iter().take(at).rev() {
            if modes.iter().any(|m| m.conflicts(before.mode)) {
                if !modes.contains(&before.mode) {
                    modes.push(before.mode);
                }
                if before.locker == start {
                    out.push(Blocker {
                        locker: start,
                        directly: false,
                    });
                }
            }
        }
        for h in lock.holders.iter().filter(|h| h.locker != locker) {
            let directly = h.conflicts(request.mode);
            if directly || modes.iter().any(|&m| h.conflicts(m)) {
                out.push(Blocker {
                    locker: h.locker,
                    directly,
                });
            }
        }
        Some((r, request.serial))
    }
}

fn grant(lock: &mut Lock, locker: LockerId, (mode, level): (LockMode, Level), since: Instant) {
    let at = lock
        .holders
        .iter()
        .position(|h| h.locker == locker)
        .unwrap_or_else(|| {
            lock.holders.push(Holder {
                locker,
                counts: [[0; MODES]; 2],
                since,
            });
            lock.holders.len() - 1
        });
    lock.holders[at].counts[level as usize][mode as usize] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockMode::*;
    use proptest::prelude::*;

    const T: Resource = Resource::Table(ObjectId(7));
    fn l(n: u32) -> LockerId {
        LockerId(n)
    }

    #[test]
    fn grants_are_in_order_and_nobody_is_overtaken() {
        let mut t = LockTable::default();
        let ask = |t: &mut LockTable, n, m| t.ask(l(n), T, m, Level::Transaction, true);
        assert_eq!(ask(&mut t, 1, SX), Asked::Granted);
        assert_eq!(ask(&mut t, 2, X), Asked::Queued);
        assert_eq!(ask(&mut t, 3, SX), Asked::Queued, "SX would starve X");
        let mut wake = Vec::new();
        assert!(t.release(l(1), T, SX, Level::Transaction, &mut wake));
        assert_eq!(wake, [l(2)]);
        assert!(t.release(l(2), T, X, Level::Transaction, &mut wake));
        assert_eq!(wake, [l(2), l(3)]);
        assert!(t.release(l(3), T, SX, Level::Transaction, &mut wake) && t.locks.is_empty());
    }

    #[test]
    fn whoever_gives_up_lets_others_pass() {
        let mut t = LockTable::default();
        t.ask(l(1), T, SX, Level::Transaction, true);
        t.ask(l(2), T, X, Level::Transaction, true);
        t.ask(l(3), T, SX, Level::Transaction, true);
        let mut wake = Vec::new();
        t.give_up(l(2), &mut wake);
        assert_eq!(wake, [l(3)]);
    }

    proptest! {
        /// In random requests no two holders ever conflict, and no request waits that could be
        /// granted.
        #[test]
        fn holders_never_conflict_and_nobody_waits_for_nothing(steps in proptest::collection::vec((0u32..6, 0usize..MODES, 0u8..3), 1..200)) {
            let mut t = LockTable::default();
            let mut held: Vec<(LockerId, LockMode)> = Vec::new();
            let mut asked: HashMap<LockerId, LockMode> = HashMap::default();
            for (n, m, what) in steps {
                let (who, mode) = (l(n), LockMode::ALL[m]);
                let mut wake = Vec::new();
                if t.is_waiting(who) {
                    if what == 2 {
                        t.give_up(who, &mut wake);
                        asked.remove(&who);
                    }
                } else if !held.iter().any(|h| h.0 == who) {
                    match t.ask(who, T, mode, Level::Transaction, true) {
                        Asked::Granted => held.push((who, mode)),
                        _ => { asked.insert(who, mode); }
                    }
                } else {
                    let at = held.iter().position(|h| h.0 == who).unwrap();
                    let (_, mode) = held.swap_remove(at);
                    prop_assert!(t.release(who, T, mode, Level::Transaction, &mut wake));
                }
                for w in wake {
                    held.push((w, asked.remove(&w).unwrap()));
                }
                for (i, a) in held.iter().enumerate() {
                    for b in &held[..i] {
                        prop_assert!(a.0 == b.0 || !a.1.conflicts(b.1), "{a:?} and {b:?}");
                    }
                }
                for &w in asked.keys() {
                    let mut blockers = Vec::new();
                    prop_assert!(t.blockers(w, w, &mut blockers).is_some());
                    prop_assert!(!blockers.is_empty(), "{w:?} waits for nobody");
                }
            }
        }
    }
}
