//! Sessions: their users, what they do and wait for now, and their counters.
//!
//! A session is one OS thread: a user's connection or a background thread. Its [`Session`] is found
//! through thread-local storage.

use crate::counters::bump;
pub use crate::counters::{BUCKETS, Counters};
use crate::pid::MAX_SID;
use crate::priority::Got;
use crate::remote::{self, RemoteWait, Served};
use crate::segment::Segments;
pub use crate::state::State;
use crate::step::{InPlan, PlanSteps, StepPlace};
use crate::timeline::{Noted, Timeline};
use crate::trace::Tracing;
use crate::{Event, time_model};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    User,
    Background,
}

/// The error of a statement that was cancelled, by the user or by a timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("canceling statement due to user request")]
pub struct Cancelled;

const NO_EVENT: u64 = u64::MAX;

/// What is shown instead of a statement to those who may not see it; PostgreSQL's words.
pub const HIDDEN: &str = "<insufficient privilege>";

/// The user of a session, and what for. It changes seldom, so a latch will do.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Object id of the role that has proved itself; zero as long as none has.
    pub role: u32,
    /// The name of that role when it did.
    pub user: String,
    pub program: String,
    pub database: String,
    pub client: String,
    /// The address of the instance to which the client is connected.
    pub server: String,
    /// The cipher of its TLS, as OpenSSL names it; none of a connection in the clear.
    pub cipher: Option<String>,
}

/// One session.
pub struct Session {
    /// The session number. It is unique among the sessions alive, and is reused with another
    /// serial when all other numbers have been used.
    pub sid: u32,
    pub serial: u32,
    pub kind: Kind,
    pub name: String,
    /// The kernel's thread id, as in `top -H`.
    pub tid: u32,
    pub logon: SystemTime,
    /// What the session's thread had used when the session began.
    pub(crate) began: time_model::Began,
    pub counters: Counters,
    identity: Mutex<Identity>,
    sql: Mutex<Option<Arc<str>>>,
    /// The plan of the statement in `sql`, if it has one.
    plan: Mutex<Option<Arc<PlanSteps>>>,
    step: StepPlace,
    /// The transaction id. Zero for none.
    pub transaction: AtomicU64,
    /// A [`State`]. The session's own thread writes it, and the two after it.
    state: AtomicU8,
    /// When its statement began, or the last one if it is idle, in microseconds from 2000. Zero:
    /// there was none.
    query_start: AtomicI64,
    /// When the transaction began that the session was in when it last waited for its client. Zero:
    /// none.
    transaction_start: AtomicI64,
    event: AtomicU64,
    pub(crate) params: [AtomicU64; 3],
    /// When the wait began or, if the session does not wait, when the last one ended: nanoseconds
    /// of [`now_ns`].
    since_ns: AtomicU64,
    pub(crate) wait_seq: AtomicU64,
    /// The instance that the wait under way, or the last one, asked. Zero for none.
    pub(crate) asked: AtomicU32,
    pub(crate) tracing: Tracing,
    pub(crate) segments: Segments,
    pub(crate) timeline: Timeline,
    /// The session's waits that other instances served. The session's own thread writes them.
    remote: Mutex<remote::OfSession>,
    /// The priority and CPUs of the session's thread, if it asked for some.
    priority: OnceLock<Got>,
    cancel: AtomicU8,
    waiter: Mutex<Option<Arc<dyn Interrupt>>>,
    /// Whether the session is within [`cancellable`]. The session's own thread writes it.
    cancellable: AtomicBool,
}

/// Something on which a session waits, and which can make the session look around.
pub trait Interrupt: Send + Sync {
    fn interrupt(&self);
}

const CANCEL_NONE: u8 = 0;
const CANCEL_ASKED: u8 = 1;

/// What a session waits for now.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    pub event: Event,
    pub params: [u64; 3],
    pub for_ns: u64,
    /// The instance that was asked, if the wait is for another instance.
    pub asked: Option<u16>,
}

impl Session {
    fn begin_sql(&self, sql: &Arc<str>, start: i64) {
        if self.timeline.is_wanted() {
            self.timeline.note(Noted::Statement {
                text: sql.clone(),
                at_ns: now_ns(),
            });
        }
        self.segments.about(0);
        self.query_start.store(start, Relaxed);
    }

    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }
    pub fn sql(&self) -> Option<Arc<str>> {
        self.sql.lock().clone()
    }
    /// Where in the plan of its statement the session is.
    pub fn in_plan(&self) -> Option<InPlan> {
        let plan = self.plan.lock().clone()?;
        Some(self.step.of(&plan))
    }
    pub fn state(&self) -> State {
        State::of(self.state.load(Relaxed))
    }
    /// Whether the session works on a call; a user session between calls is inactive.
    pub fn is_active(&self) -> bool {
        self.state() == State::Active
    }
    pub fn query_start(&self) -> i64 {
        self.query_start.load(Relaxed)
    }
    pub fn transaction_start(&self) -> i64 {
        self.transaction_start.load(Relaxed)
    }
    /// When the transaction began that the session is in, as far as is known, in microseconds from
    /// 2000. A statement outside of one that a client has begun is one itself. Zero: there is none.
    pub fn transaction_began(&self) -> i64 {
        match (self.state(), self.transaction_start()) {
            (State::Active, 0) => self.query_start(),
            (_, start) => start,
        }
    }
    pub fn wait_seq(&self) -> u64 {
        self.wait_seq.load(Relaxed)
    }
    /// What the session waits for, if it waits. The parameters may be those of the next wait if the
    /// wait changes just now.
    pub fn waiting(&self) -> Option<Waiting> {
        let event = self.event.load(Relaxed);
        (event != NO_EVENT).then(|| Waiting {
            event: Event::ALL[event as usize],
            params: std::array::from_fn(|i| self.params[i].load(Relaxed)),
            for_ns: now_ns().saturating_sub(self.since_ns.load(Relaxed)),
            asked: match self.asked.load(Relaxed) {
                0 => None,
                instance => Some(instance as u16),
            },
        })
    }
    /// The last wait that another instance served, with its number among all waits of the session.
    pub fn last_remote(&self) -> Option<(u64, RemoteWait)> {
        self.remote.lock().last
    }
    /// The session's waits for other instances, by event and instance.
    pub fn remote_waits(&self) -> Vec<remote::SessionRow> {
        self.remote.lock().sums()
    }
    /// Has the wait under way told when it is over, if another instance serves it:
    /// [`Session::seen`]. Returns the time of this call.
    pub(crate) fn look(&self) -> u64 {
        let now = now_ns();
        self.remote.lock().look(now);
        now
    }
    pub(crate) fn seen(&self) -> Option<remote::Seen> {
        self.remote.lock().seen()
    }
    /// Nanoseconds since the last wait began or ended.
    pub fn since_ns(&self) -> u64 {
        now_ns().saturating_sub(self.since_ns.load(Relaxed))
    }
    pub(crate) fn begin_wait(&self, event: Event, p: [u64; 3]) -> u64 {
        self.begin_wait_at(now_ns(), event, p)
    }
    pub(crate) fn begin_wait_at(&self, started: u64, event: Event, p: [u64; 3]) -> u64 {
        for (to, from) in self.params.iter().zip(p) {
            to.store(from, Relaxed);
        }
        self.since_ns.store(started, Relaxed);
        self.event.store(event as u64, Relaxed);
        started
    }
    pub(crate) fn end_wait(&self, event: Event, started: u64, served: Option<&Served>) {
        let now = now_ns();
        self.event.store(NO_EVENT, Relaxed);
        self.asked.store(0, Relaxed);
        self.since_ns.store(now, Relaxed);
        bump(&self.wait_seq, 1);
        let ns = now.saturating_sub(started);
        self.counters.add_wait(event, ns);
        self.segments
            .waited(event, ns, served.and_then(|s| s.transfer.as_ref()));
        let remote = served.map(|served| {
            let began = served.since_ns.unwrap_or(started);
            let wait = RemoteWait::new(event, now.saturating_sub(began), served);
            self.remote.lock().note(self.wait_seq(), began, wait);
            remote::note(&wait, served);
            wait
        });
        if self.wants_waits() {
            self.trace_wait(event, started, now, served, remote);
        }
    }
    /// The priority and CPUs that the session's thread got, if it asked for its own.
    pub fn priority(&self) -> Option<&Got> {
        self.priority.get()
    }
    pub(crate) fn set_waiter(&self, waiter: Option<Arc<dyn Interrupt>>) {
        *self.waiter.lock() = waiter;
    }
    /// Runs a wait that ends when it is cancelled. `at` is told when to look at
    /// [`Session::cancel_asked`].
    pub fn interruptible<R>(&self, at: Arc<dyn Interrupt>, f: impl FnOnce() -> R) -> R {
        self.set_waiter(Some(at));
        let result = f();
        self.set_waiter(None);
        result
    }
    /// Whether the session's statement has been asked to end. Threads that work for the session ask
    /// this.
    pub fn cancel_asked(&self) -> bool {
        self.cancel.load(SeqCst) == CANCEL_ASKED
    }
}

struct Registry {
    /// The sessions by sid.
    alive: BTreeMap<u32, Arc<Session>>,
    last_sid: u32,
    serial: u32,
    ended: Counters,
    /// Those of them that were clients'.
    ended_users: Counters,
    ended_times: time_model::Ended,
}

impl Registry {
    fn new() -> Registry {
        Registry {
            alive: BTreeMap::new(),
            last_sid: 0,
            serial: 0,
            ended: Counters::new(),
            ended_users: Counters::new(),
            ended_times: time_model::Ended::default(),
        }
    }

    /// The session number that has not been used for longest. Whoever ends a session by its number,
    /// which somebody read a moment ago, does not end the next one to come.
    fn next_sid(&mut self) -> u32 {
        loop {
            self.last_sid = self.last_sid % MAX_SID + 1;
            if !self.alive.contains_key(&self.last_sid) {
                return self.last_sid;
            }
        }
    }
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Session>>> = const { RefCell::new(None) };
}

/// Nanoseconds of the clock of waits, which counts from the start of the machine. It is read at
/// both ends of each wait: the arithmetic of [`std::time::Instant`] would take longer than it.
#[inline]
pub(crate) fn now_ns() -> u64 {
    seam::simulated_ns().unwrap_or_else(|| {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    })
}

fn registry<R>(f: impl FnOnce(&mut Registry) -> R) -> R {
    let mut guard = REGISTRY.lock();
    f(guard.get_or_insert_with(Registry::new))
}

/// Calls `f` with this thread's session. None if the thread has no session.
#[inline]
pub fn with<R>(f: impl FnOnce(&Session) -> R) -> Option<R> {
    CURRENT
        .try_with(|c| c.borrow().as_deref().map(f))
        .ok()
        .flatten()
}

/// This thread's session.
pub fn current() -> Option<Arc<Session>> {
    CURRENT.try_with(|c| c.borrow().clone()).ok().flatten()
}

/// Registers this thread as a session until the guard is dropped.
pub fn register(kind: Kind, name: &str) -> SessionGuard {
    let session = registry(|r| {
        r.serial += 1;
        let sid = r.next_sid();
        let session = Arc::new(new_session(sid, r.serial, kind, name));
        r.alive.insert(sid, session.clone());
        session
    });
    CURRENT.with(|c| *c.borrow_mut() = Some(session.clone()));
    SessionGuard {
        session,
        _here: PhantomData,
    }
}

fn new_session(sid: u32, serial: u32, kind: Kind, name: &str) -> Session {
    Session {
        sid,
        serial,
        kind,
        name: name.to_string(),
        tid: rustix::thread::gettid().as_raw_nonzero().get() as u32,
        logon: seam::wall_clock(),
        began: time_model::Began::now(),
        counters: Counters::new(),
        identity: Mutex::new(Identity::default()),
        sql: Mutex::new(None),
        plan: Mutex::new(None),
        step: StepPlace::new(),
        transaction: AtomicU64::new(0),
        state: AtomicU8::new(match kind {
            Kind::Background => State::Active,
            Kind::User => State::Idle,
        } as u8),
        query_start: AtomicI64::new(0),
        transaction_start: AtomicI64::new(0),
        event: AtomicU64::new(NO_EVENT),
        params: Default::default(),
        since_ns: AtomicU64::new(now_ns()),
        wait_seq: AtomicU64::new(0),
        asked: AtomicU32::new(0),
        tracing: Tracing::default(),
        segments: Segments::new(),
        timeline: Timeline::default(),
        remote: Mutex::default(),
        priority: OnceLock::new(),
        cancel: AtomicU8::new(CANCEL_NONE),
        cancellable: AtomicBool::new(false),
        waiter: Mutex::new(None),
    }
}

/// Ends the session when dropped: its counters go to the instance's. It is not `Send`, because it
/// ends the session of the thread that drops it.
pub struct SessionGuard {
    session: Arc<Session>,
    _here: PhantomData<*const ()>,
}

impl SessionGuard {
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        let used = time_model::of(&self.session);
        self.session.end_timeline();
        // Before the session is gone from the list, so that no count is missing meanwhile.
        self.session.segments.end();
        registry(|r| {
            r.alive.remove(&self.session.sid);
            r.ended.fold(&self.session.counters);
            if self.session.kind == Kind::User {
                r.ended_users.fold(&self.session.counters);
            }
            r.ended_times.add(self.session.kind, &used);
        });
        let _ = CURRENT.try_with(|c| *c.borrow_mut() = None);
    }
}

/// All sessions that are alive, by sid.
pub fn list() -> Vec<Arc<Session>> {
    registry(|r| r.alive.values().cloned().collect())
}

/// The session with this number, if it is alive.
pub fn find(sid: u32) -> Option<Arc<Session>> {
    registry(|r| r.alive.get(&sid).cloned())
}

/// All sessions that are alive, and the times of those that have ended, as of one moment.
pub(crate) fn list_with_ended() -> (Vec<Arc<Session>>, time_model::Ended) {
    registry(|r| (r.alive.values().cloned().collect(), r.ended_times))
}

/// A counter of the whole instance: of the sessions that have ended and of those that are alive.
pub fn total(read: impl Fn(&Counters) -> u64) -> u64 {
    registry(|r| read(&r.ended) + r.alive.values().map(|s| read(&s.counters)).sum::<u64>())
}

/// A counter of the sessions of clients, of those that have ended, too.
pub fn total_of_users(read: impl Fn(&Counters) -> u64) -> u64 {
    registry(|r| {
        let users = r.alive.values().filter(|s| s.kind == Kind::User);
        read(&r.ended_users) + users.map(|s| read(&s.counters)).sum::<u64>()
    })
}

/// The greatest value of a counter over the instance's life.
pub fn maximum(read: impl Fn(&Counters) -> u64) -> u64 {
    registry(|r| {
        r.alive
            .values()
            .map(|s| read(&s.counters))
            .max()
            .unwrap_or(0)
            .max(read(&r.ended))
    })
}

/// Names the user, program and so on of this thread's session.
pub fn identify(identity: Identity) {
    with(|s| *s.identity.lock() = identity);
}

/// Sets the client's program, which the client may name anew at any time.
pub fn set_program(program: &str) {
    with(|s| {
        let mut identity = s.identity.lock();
        if identity.program != program {
            identity.program = program.to_string();
        }
    });
}

/// Sets the statement that this session runs from now on, and when it began, in microseconds from
/// 2000. The `Arc` belongs to the statement cache, so no copy is made.
pub fn set_sql(sql: Arc<str>, start: i64) {
    with(|s| {
        s.begin_sql(&sql, start);
        *s.sql.lock() = Some(sql);
    });
}

/// Says that this session runs the statement again that [`set_sql`] has set last.
pub fn set_sql_again(sql: &Arc<str>, start: i64) {
    with(|s| s.begin_sql(sql, start));
}

/// Sets the plan of the statement that this session runs; none if it has none.
pub fn set_plan(plan: Option<Arc<PlanSteps>>) {
    with(|s| *s.plan.lock() = plan);
}

/// Where this thread's session says in which step of a plan it is.
pub fn step_place() -> StepPlace {
    with(|s| s.step.clone()).unwrap_or_default()
}

/// Says that this session works on a call.
pub fn set_active() {
    with(|s| s.state.store(State::Active as u8, Relaxed));
}

/// Says that this session waits for its client, and when the transaction began that it is in, in
/// microseconds from 2000, or zero.
pub fn set_idle(state: State, transaction_start: i64) {
    with(|s| {
        s.state.store(state as u8, Relaxed);
        s.transaction_start.store(transaction_start, Relaxed);
    });
}

/// Notes the priority and CPUs that this session's thread got. A thread asks once.
pub(crate) fn set_priority(got: &Got) {
    with(|s| {
        s.priority.get_or_init(|| got.clone());
    });
}

pub fn set_transaction(id: u64) {
    with(|s| s.transaction.store(id, Relaxed));
}

/// Asks the session `sid` to give up its statement. What it waits for in a cancellable
/// [`crate::Waiter`] returns, and [`check_cancel`] fails until [`clear_cancel`]. False if there is
/// no such session.
pub fn cancel(sid: u32) -> bool {
    let Some(session) = find(sid) else {
        return false;
    };
    session.cancel.store(CANCEL_ASKED, SeqCst);
    // The flag is set before the waiter is looked for. A waiter looks at the flag after it has been
    // put there. So one of them sees the other.
    let waiter = session.waiter.lock().clone();
    if let Some(w) = waiter {
        w.interrupt();
    }
    true
}

/// Runs code that has no effect but its result. Within it waits for blocks of other instances also
/// end when the statement is cancelled; elsewhere they might leave half of a change behind.
pub fn cancellable<R>(f: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            with(|s| s.cancellable.store(self.0, Relaxed));
        }
    }
    let _before = with(|s| {
        let before = Before(s.cancellable.load(Relaxed));
        s.cancellable.store(true, Relaxed);
        before
    });
    f()
}

/// This thread's session, if it is within [`cancellable`].
pub fn current_cancellable() -> Option<Arc<Session>> {
    current().filter(|s| s.cancellable.load(Relaxed))
}

/// Forgets a cancellation. A statement calls it when it starts.
pub fn clear_cancel() {
    with(|s| s.cancel.store(CANCEL_NONE, SeqCst));
}

/// Fails if the statement was cancelled. Code that can run long calls it at every so many rows.
#[inline]
pub fn check_cancel() -> Result<(), Cancelled> {
    match with(|s| s.cancel.load(Relaxed) == CANCEL_ASKED) {
        Some(true) => Err(Cancelled),
        _ => Ok(()),
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn numbers_of_sessions_are_used_in_turn() {
        let mut r = Registry::new();
        let enter = |r: &mut Registry| {
            let sid = r.next_sid();
            let session = Arc::new(new_session(sid, 1, Kind::User, "in turn"));
            r.alive.insert(sid, session);
            sid
        };
        assert_eq!([enter(&mut r), enter(&mut r), enter(&mut r)], [1, 2, 3]);
        r.alive.remove(&2);
        assert_eq!(enter(&mut r), 4, "2 was used just now");
        r.last_sid = MAX_SID;
        assert_eq!(enter(&mut r), 2, "1, 3 and 4 are alive");
        assert_eq!(enter(&mut r), 5);
    }

    #[test]
    fn a_cancelled_session_notices() {
        std::thread::spawn(|| {
            let guard = register(Kind::User, "cancel");
            assert!(check_cancel().is_ok());
            assert!(cancel(guard.session().sid));
            assert_eq!(check_cancel(), Err(Cancelled));
            clear_cancel();
            assert!(check_cancel().is_ok());
        })
        .join()
        .unwrap();
    }
}
