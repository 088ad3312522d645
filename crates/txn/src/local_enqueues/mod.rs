//! Enqueues of this instance: waiting for transactions, rows, keys, tables and names, with
//! deadlines, cancellation and deadlock detection. The lines at rows and keys are here, the queues
//! of tables and names in [`crate::global_enqueues`].
//!
//! **Owns** the lock table ([`locks`]) under one latch, and per session a few *fast slots* for the
//! weak table locks `AS`, `SS` and `SX`, of which nearly every statement takes one and which never
//! conflict with each other.
//!
//! **Fast path.** To take a weak lock a session stores it into a slot of its own, fences, and loads
//! the table's *strong counter*. Whoever closes the fast path of a table raises the counter,
//! fences, and then moves all slots of that table into the lock table. One of the two fences comes
//! first. So either the weak locker sees the counter, takes its slot back and stands in line, or
//! the closing finds the slot. Either takes a slot by compare-and-swap, so it is granted exactly
//! once.
//!
//! **Invariants.** The latch is held during no wait. A caller that may wait holds no frame latch
//! (`cache` asserts it). A grant is decided under the latch only. A wake-up is a hint to look.

mod deadlock;
mod elsewhere;
mod locks;
mod mode;
#[cfg(test)]
mod tests;
mod turns;
mod users;

pub(crate) use elsewhere::{Exit, Hop, Suspicion, Wait};
pub use locks::{Level, NameClass, Resource};
pub(crate) use locks::{LockerId, Want};
pub use mode::LockMode;
pub use users::TableUser;

use crate::global_enqueues::{Global, global, local};
use crate::ring::{MAX_TOLD, Ring, Waiting};
use crate::timing::Answered;
use crate::{Error, Result};
use block::{InstanceId, ObjectId, TxnId};
use deadlock::Edge;
use locks::{Asked, LockTable};
use seam::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use wait::{Event, Latch, LatchClass, LatchGuard, Stat, WaitResult, Waiter};

static LATCH: LatchClass = LatchClass {
    name: "enqueue hash chains",
    event: Event::LatchEnqueue,
};

/// The weak table locks that a session can hold without the lock table. Further ones go there.
const FAST_SLOTS: usize = 16;
/// The number of strong counters. Two tables that share a counter only lose the fast path together.
const STRONG: usize = 1024;

/// How long to wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    Forever,
    Until(Instant),
    NoWait,
}

/// Where the transaction runs that a session waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Runs {
    /// In this session of this instance, unless it is over.
    Here(Option<LockerId>),
    Elsewhere,
}

/// One row of `v$lock`. One of `held` and `requested` is `Null`.
#[derive(Clone, Debug)]
pub struct LockRow {
    pub sid: u32,
    /// `TX`, `TM`, `UL`, `RC`.
    pub kind: &'static str,
    pub id1: u64,
    pub id2: u64,
    pub held: LockMode,
    pub requested: LockMode,
    /// For how long. Zero for a lock held by the fast path, which does not look at the clock.
    pub held_or_waited: Duration,
    /// Whether somebody waits for it.
    pub blocking: bool,
}

impl LockRow {
    /// The lock that every transaction holds on itself.
    pub(crate) fn of_transaction(sid: u32, txn: TxnId) -> LockRow {
        let (id1, id2) = Resource::Txn(txn).ids();
        let (held, requested) = (LockMode::X, LockMode::Null);
        LockRow {
            sid,
            kind: "TX",
            id1,
            id2,
            held,
            requested,
            held_or_waited: Duration::ZERO,
            blocking: false,
        }
    }
}

/// A session as the lock table knows it.
pub(crate) struct Locker {
    pub(crate) id: LockerId,
    sid: u32,
    waiter: Arc<Waiter>,
    /// What ended its wait, if another instance did. Set before the session is woken.
    answer: Mutex<Option<Answered>>,
    /// `object << 8 | mode`, or zero if free. The owner sets it. The owner takes it away, or a
    /// strong locker under the latch.
    fast: [AtomicU64; FAST_SLOTS],
    /// Counts the session's transactions, so that who waits for one to give back its locks does not
    /// take the next one for it. Only the session writes it.
    transactions: AtomicU64,
}

impl Locker {
    pub(crate) fn sid(&self) -> u32 {
        self.sid
    }

    /// The session begins its next transaction; the one before holds nothing any more.
    pub(crate) fn begins(&self) {
        let begun = self.transactions.load(Ordering::Relaxed);
        self.transactions.store(begun + 1, Ordering::Relaxed);
    }
}

fn pack(object: ObjectId, mode: LockMode) -> u64 {
    u64::from(object.0) << 8 | mode as u64
}

struct Tables {
    locks: LockTable,
    lockers: BTreeMap<u32, Arc<Locker>>,
    /// Victims of circles over several instances, with the serial of the wait that each must give
    /// up.
    doomed: BTreeMap<u32, (u64, Ring)>,
}

/// All enqueues of an instance.
pub(crate) struct Enqueues {
    me: InstanceId,
    tables: Latch<Tables>,
    strong: Box<[AtomicU32]>,
    /// The number of sessions that wait for a transaction's end. If it is zero, an end takes no
    /// latch.
    txn_waiters: AtomicUsize,
    /// The numbers of sessions at the head of a row's line and of a key's.
    row_places: AtomicUsize,
    key_places: AtomicUsize,
    /// Looks for circles over other instances. Set when there may be some.
    suspicion: OnceLock<Suspicion>,
}

impl Enqueues {
    pub(crate) fn new(me: InstanceId) -> Enqueues {
        Enqueues {
            me,
            tables: Latch::new(
                &LATCH,
                Tables {
                    locks: LockTable::default(),
                    lockers: BTreeMap::new(),
                    doomed: BTreeMap::new(),
                },
            ),
            strong: (0..STRONG).map(|_| AtomicU32::new(0)).collect(),
            txn_waiters: AtomicUsize::new(0),
            row_places: AtomicUsize::new(0),
            key_places: AtomicUsize::new(0),
            suspicion: OnceLock::new(),
        }
    }

    /// A locker for the calling session.
    pub(crate) fn register(&self) -> Arc<Locker> {
        let sid = wait::session::with(|s| s.sid).unwrap_or(0);
        let mut t = self.tables.lock();
        let free = (1..)
            .find(|id| !t.lockers.contains_key(id))
            .expect("fewer than 2^32 sessions");
        let locker = Arc::new(Locker {
            id: LockerId(free),
            sid,
            waiter: Waiter::new(),
            answer: Mutex::default(),
            fast: Default::default(),
            transactions: AtomicU64::new(0),
        });
        t.lockers.insert(free, locker.clone());
        locker
    }

    /// Forgets a locker, which must hold nothing.
    pub(crate) fn unregister(&self, locker: &Locker) {
        self.tables.lock().lockers.remove(&locker.id.0);
    }

    /// Takes a lock that has no fast path.
    pub(crate) fn lock(
        &self,
        locker: &Locker,
        r: Resource,
        mode: LockMode,
        level: Level,
        wait: LockWait,
    ) -> Result<()> {
        wait::stat::add(Stat::EnqueueRequests, 1);
        let mut t = self.tables.lock();
        match t
            .locks
            .ask(locker.id, r, mode, level, wait != LockWait::NoWait)
        {
            Asked::Granted => Ok(()),
            Asked::Refused => Err(Error::LockNotAvailable(r.to_string())),
            Asked::Queued => {
                drop(t);
                self.wait(locker, r, mode, wait, None)
            }
        }
    }

    pub(crate) fn unlock(
        &self,
        locker: &Locker,
        r: Resource,
        mode: LockMode,
        level: Level,
    ) -> bool {
        let mut t = self.tables.lock();
        let mut wake = Vec::new();
        let held = t.locks.release(locker.id, r, mode, level, &mut wake);
        wake_after(t, wake);
        held
    }

    /// Notes a lock that the session was granted against the sessions of all instances.
    pub(crate) fn adopt(&self, locker: &Locker, r: Resource, mode: LockMode, level: Level) {
        let mut t = self.tables.lock();
        t.locks.adopt(locker.id, r, (mode, level));
    }

    /// Gives a table lock of the transaction back. Returns false if it was held by the fast path.
    pub(crate) fn unlock_table(&self, locker: &Locker, object: ObjectId, mode: LockMode) -> bool {
        let word = pack(object, mode);
        let fast = |slot: &AtomicU64| {
            slot.load(Ordering::Relaxed) == word
                && slot
                    .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        if mode.is_weak() && locker.fast.iter().any(fast) {
            return false;
        }
        let held = self.unlock(locker, Resource::Table(object), mode, Level::Transaction);
        assert!(held, "invariant: a table lock that is given back is held");
        true
    }

    /// The weakest mode that covers all that the session holds of `r` in the lock table.
    pub(crate) fn held(&self, locker: &Locker, r: Resource) -> LockMode {
        self.tables.lock().locks.held(locker.id, r)
    }

    /// Ends a table's fast path until [`Enqueues::open_table`]. Returns weak holders and modes.
    pub(crate) fn close_table(&self, object: ObjectId) -> Vec<(LockerId, LockMode)> {
        self.raise_strong(object);
        let t = self.tables.lock();
        t.locks.weak_holders(Resource::Table(object))
    }

    pub(crate) fn open_table(&self, object: ObjectId) {
        self.strong_of(object).fetch_sub(1, Ordering::SeqCst);
    }

    /// Puts a session where [`Enqueues::end_global`] finds it. The queue is another.
    pub(crate) fn await_global(&self, locker: &Locker, g: Global, mode: LockMode) {
        self.tables.lock().locks.await_global(locker.id, g, mode);
    }

    /// Waits until the session has the lock against all. `asked` is the other instance that
    /// decides.
    pub(crate) fn wait_global(
        &self,
        locker: &Locker,
        g: Global,
        mode: LockMode,
        wait: LockWait,
        asked: Option<InstanceId>,
    ) -> Result<()> {
        self.wait(locker, Resource::Global(g), mode, wait, asked)
    }

    /// Ends the session's wait for `g`, if it waits. `how` is the other instance's answer, if any.
    pub(crate) fn end_global(&self, locker: LockerId, g: Global, how: Option<Answered>) {
        let mut t = self.tables.lock();
        if t.locks.end_global(locker, g) {
            t.answered(&[locker], how);
            wake_after(t, vec![locker]);
        }
    }

    fn strong_of(&self, object: ObjectId) -> &AtomicU32 {
        &self.strong[object.0 as usize % STRONG]
    }

    /// Takes a weak table lock by the fast path, for one [`Enqueues::unlock_table`]. Returns false
    /// if the fast path is closed.
    pub(crate) fn try_fast(&self, locker: &Locker, object: ObjectId, mode: LockMode) -> bool {
        if self.strong_of(object).load(Ordering::Relaxed) != 0 {
            return false;
        }
        let Some(slot) = locker.fast.iter().find(|s| s.load(Ordering::Relaxed) == 0) else {
            return false;
        };
        let word = pack(object, mode);
        slot.store(word, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.strong_of(object).load(Ordering::SeqCst) == 0 {
            wait::stat::add(Stat::EnqueueRequests, 1);
            return true;
        }
        // A strong locker came. If it has already moved the slot into the lock table, the lock is
        // granted there.
        slot.compare_exchange(word, 0, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
    }

    /// Ends the fast path for a table and moves the fast slots that hold it into the lock table.
    fn raise_strong(&self, object: ObjectId) {
        self.strong_of(object).fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let t = &mut *self.tables.lock();
        for locker in t.lockers.values() {
            for slot in &locker.fast {
                let word = slot.load(Ordering::SeqCst);
                if word >> 8 == u64::from(object.0)
                    && word != 0
                    && slot
                        .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed)
                        .is_ok()
                {
                    let held = (LockMode::from_bits(word as u8), Level::Transaction);
                    t.locks.adopt(locker.id, Resource::Table(object), held);
                }
            }
        }
    }

    /// Waits until `txn` ends, or undoes some of its changes after the waiter looked. `stands` must
    /// say say false once either is published, which comes before [`Enqueues::let_go`]. `queued`
    /// is called once the session is in the queue.
    pub(crate) fn wait_for_txn(
        &self,
        locker: &Locker,
        (txn, want): (TxnId, Want),
        runs: Runs,
        stands: impl Fn() -> bool,
        queued: impl FnOnce(),
        wait: LockWait,
    ) -> Result<()> {
        let mut t = self.tables.lock();
        self.txn_waiters.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let result = if !stands() {
            Ok(())
        } else if wait == LockWait::NoWait {
            Err(Error::LockNotAvailable(Resource::Txn(txn).to_string()))
        } else {
            let (owner, asked) = match runs {
                Runs::Here(owner) => (owner, None),
                Runs::Elsewhere => (None, Some(txn.instance())),
            };
            t.locks.await_txn(locker.id, (txn, want), owner);
            drop(t);
            queued();
            self.wait(locker, Resource::Txn(txn), LockMode::S, wait, asked)
        };
        self.txn_waiters.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Lets go the sessions that wait for `txn`. Its end, or that it has undone changes, has been
    /// published: either the waiter has seen that, or this sees the waiter. `how`: another instance
    /// said so.
    pub(crate) fn let_go(&self, txn: TxnId, how: Option<Answered>) {
        fence(Ordering::SeqCst);
        if self.txn_waiters.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut t = self.tables.lock();
        let mut wake = Vec::new();
        t.locks.let_go(Resource::Txn(txn), &mut wake);
        t.answered(&wake, how);
        wake_after(t, wake);
    }

    /// Waits until the request is granted. `asked` is the other instance that grants it, if any.
    fn wait(
        &self,
        locker: &Locker,
        r: Resource,
        mode: LockMode,
        wait: LockWait,
        asked: Option<InstanceId>,
    ) -> Result<()> {
        let user_deadline = match wait {
            LockWait::Until(at) => Some(at),
            LockWait::Forever | LockWait::NoWait => None,
        };
        let (event, p) = event(&r, mode);
        wait::stat::add(Stat::EnqueueWaits, 1);
        if event == Event::EnqTx {
            wait::stat::add(Stat::RowLockWaits, 1);
        }
        let mut check_at = seam::now() + deadlock::FIRST_CHECK;
        let mut suspected: Option<Vec<Edge>> = None;
        let began_ns = wait::timestamp_ns();
        let served = || {
            let how = locker.answer.lock().take()?;
            Some(how.served(began_ns))
        };
        loop {
            let deadline = user_deadline.map_or(check_at, |d| d.min(check_at));
            let asked = (asked.map_or(0, |k| k.0), wait::timestamp_ns());
            let woken = locker
                .waiter
                .wait_remote(event, p, Some(deadline), asked, served);
            let mut t = self.tables.lock();
            let doomed = t.take_doom(locker.id);
            if !t.locks.is_waiting(locker.id) {
                locker.waiter.clear();
                *locker.answer.lock() = None;
                return Ok(());
            }
            let now = seam::now();
            let mut look_elsewhere = false;
            let failed = match woken {
                WaitResult::Cancelled => Some(Error::Cancelled(wait::Cancelled)),
                _ if doomed.is_some() => doomed.map(Error::deadlock),
                _ if user_deadline.is_some_and(|d| now >= d) => Some(Error::LockTimeout),
                _ if now < check_at => None,
                _ => match (deadlock::circle(&t.locks, locker.id), suspected.take()) {
                    (Some(circle), Some(before)) if circle == before => {
                        wait::stat::add(Stat::Deadlocks, 1);
                        Some(Error::deadlock(t.ring(&circle, self.me)))
                    }
                    (Some(circle), _) => {
                        suspected = Some(circle);
                        check_at = now + deadlock::SECOND_WALK;
                        None
                    }
                    (None, _) => {
                        look_elsewhere = true;
                        check_at = now + deadlock::LATER_CHECKS;
                        None
                    }
                },
            };
            if let Some(error) = failed {
                let mut wake = Vec::new();
                t.locks.give_up(locker.id, &mut wake);
                wake_after(t, wake);
                match &error {
                    Error::Deadlock(ring) => tracing::warn!("deadlock detected:\n{ring}"),
                    Error::LockTimeout => wait::stat::add(Stat::EnqueueTimeouts, 1),
                    _ => {}
                }
                return Err(error);
            }
            drop(t);
            if look_elsewhere && let Some(suspicion) = self.suspicion.get() {
                suspicion(locker.id);
            }
        }
    }

    /// Rows of `v$lock`. Takes the latch while it copies them.
    pub(crate) fn rows(&self) -> Vec<LockRow> {
        let t = self.tables.lock();
        let mut rows = Vec::new();
        for (r, lock) in &t.locks.locks {
            let elsewhere = global(*r).and_then(|g| t.locks.locks.get(&Resource::Global(g)));
            let blocking = elsewhere.is_some_and(|l| !l.queue.is_empty());
            let blocking = blocking || !lock.queue.is_empty();
            for h in &lock.holders {
                rows.push(t.row(
                    h.locker,
                    r,
                    h.mode(),
                    LockMode::Null,
                    seam::elapsed(h.since),
                    blocking,
                ));
            }
            for q in &lock.queue {
                rows.push(t.row(
                    q.locker,
                    r,
                    LockMode::Null,
                    q.mode,
                    seam::elapsed(q.since),
                    false,
                ));
            }
        }
        for locker in t.lockers.values() {
            for word in locker
                .fast
                .iter()
                .map(|s| s.load(Ordering::Acquire))
                .filter(|&w| w != 0)
            {
                let r = Resource::Table(ObjectId((word >> 8) as u32));
                rows.push(t.row(
                    locker.id,
                    &r,
                    LockMode::from_bits(word as u8),
                    LockMode::Null,
                    Duration::ZERO,
                    false,
                ));
            }
        }
        rows
    }
}

/// Lets go of the latch and then wakes the sessions whose requests were granted. A wake-up is a
/// system call, and the session that it wakes wants the latch.
fn wake_after(t: LatchGuard<'_, Tables>, lockers: Vec<LockerId>) {
    let of = |id: LockerId| t.lockers.get(&id.0).map(|l| l.waiter.clone());
    let waiters: Vec<Arc<Waiter>> = lockers.into_iter().filter_map(of).collect();
    drop(t);
    for waiter in waiters {
        waiter.wake();
    }
}

impl Tables {
    /// Notes for sessions that are let go what another instance has said, if it did.
    fn answered(&self, lockers: &[LockerId], how: Option<Answered>) {
        for locker in lockers.iter().filter_map(|id| self.lockers.get(&id.0)) {
            *locker.answer.lock() = how;
        }
    }

    fn ring(&self, circle: &[Edge], me: InstanceId) -> Ring {
        let waits = circle.iter().filter_map(|e| self.waiting(e.waiter, me));
        Ring::new(waits.take(MAX_TOLD).collect(), circle.len())
    }

    /// A session's wait, as a client is told.
    fn waiting(&self, locker: LockerId, me: InstanceId) -> Option<Waiting> {
        let (resource, request) = self.locks.request_of(locker)?;
        let sid = self.lockers.get(&locker.0).map_or(0, |l| l.sid);
        Some(Waiting::new(me, sid, resource, request.mode))
    }

    fn row(
        &self,
        id: LockerId,
        r: &Resource,
        held: LockMode,
        requested: LockMode,
        since: Duration,
        blocking: bool,
    ) -> LockRow {
        let (id1, id2) = r.ids();
        let sid = self.lockers.get(&id.0).map_or(0, |l| l.sid);
        LockRow {
            sid,
            kind: r.kind(),
            id1,
            id2,
            held,
            requested,
            held_or_waited: since,
            blocking,
        }
    }
}

/// The event that waiting for `r` is charged to. Its first parameter is name and mode, packed as
/// the field packs them.
fn event(r: &Resource, mode: LockMode) -> (Event, [u64; 3]) {
    let kind = r.kind().as_bytes();
    let name_mode = u64::from(kind[0]) << 24 | u64::from(kind[1]) << 16 | mode.of_the_field();
    let (id1, id2) = r.ids();
    let event = match r {
        Resource::Txn(_) | Resource::Place(_) | Resource::Turn(_) => Event::EnqTx,
        Resource::Table(_) => Event::EnqTm,
        Resource::Name(NameClass::Dictionary, ..) => Event::RowCacheLock,
        Resource::Name(NameClass::Advisory, ..) => Event::EnqUl,
        Resource::Global(g) => {
            let of = local(*g).expect("invariant: a lock that a session waits for has a name");
            return event(&of, mode);
        }
    };
    (event, [name_mode, id1, id2])
}
