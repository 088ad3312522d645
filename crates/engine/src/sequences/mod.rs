//! Sequences among instances: drives [`fusion::sequences`], which has the protocol and its reasons.
//!
//! ```text
//! session ── draw ──► machine ── message ~~~► receiving thread of the home
//!   the receiving thread takes values from the block, if that needs no wait;
//!   otherwise thread lck0 does, which may wait for the block and for the log
//!   ── message ~~~► machine ──► session
//! ```
//!
//! **Owns** the machine, under one latch, and the sessions that wait for it.
//!
//! **Invariants.**
//! - The machine's latch may be taken with a sequence's block latched, never the other way round.
//!   Messages leave with both free.
//! - Receiving threads do not wait (R8): they take values only if block and room in the log are
//!   there at once.
//! - An instance that has always been alone draws from its blocks, and takes no latch for that.

mod messages;

use crate::cluster::{Layer, Members, Worker};
use crate::{Error, Progress, Result};
use access::sequence::{Draw, Floor, Logged, Sequence, Taken};
use block::sequence::SequenceState;
use block::{BlockBuf, Dba, InstanceId, LogPos, ObjectId};
use fusion::sequences::{Begun, Effect, Given, Mark, Message, Outcome, Secured, Serve, Told};
use fusion::{Epoch, Incarnation, Waiter};
use interconnect::{Member, Parcel, Post, Route, now_ns};
use messages::SequenceCost;
use redo::Redo;
use seam::{Condvar, HashMap, Mutex};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use wait::remote::Served;
use wait::{Event, Stat, WaitResult};

/// Kinds of messages, within [`interconnect::kinds::ENGINE`].
pub(crate) const SEQUENCE_KINDS: RangeInclusive<u16> = SEQUENCE..=SEQUENCE;
const SEQUENCE: u16 = 250;

/// Requests that may wait for `lck0`. An instance has one under way for each sequence. A request
/// above the limit is refused; a wish for a flush is dropped, and asked for again.
const QUEUE_MAX: usize = 16384;

/// The place where a session waits.
struct Slot {
    told: Mutex<Option<(Told, Option<Answer>)>>,
    waiter: Arc<wait::Waiter>,
}

/// An answer: the instance that gave it, what it took there, and when it arrived here.
#[derive(Clone, Copy)]
struct Answer {
    from: InstanceId,
    spent: SequenceCost,
    at_ns: u64,
}

struct State {
    machine: fusion::sequences::Sequences,
    waiting: HashMap<Waiter, Arc<Slot>>,
    last_waiter: u64,
}

/// A task of `lck0`.
enum Job {
    Serve(Serve, u64),
    Flush(InstanceId, LogPos, u64),
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Job>,
    stop: bool,
}

/// The instance, by which a home that is asked for values opens a sequence of its own.
pub(crate) trait OpensSequences: Send + Sync {
    fn sequence(&self, object: ObjectId, header: Dba) -> Arc<Sequence>;
    /// The sequence, if it has been used on this instance.
    fn if_open(&self, object: ObjectId) -> Option<Arc<Sequence>>;
}

/// The layer of sequences; the module's head says more.
pub struct Sequences {
    redo: Arc<Redo>,
    /// Whether this instance has, or has had, company.
    active: AtomicBool,
    state: Mutex<State>,
    opener: OnceLock<Weak<dyn OpensSequences>>,
    post: OnceLock<Arc<dyn Post>>,
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    worker: Worker,
    /// This object, for the thread.
    own: Weak<Sequences>,
}

/// The way in which a session gets a value that it did not find in memory.
enum Turn {
    Has(Draw),
    Here,
    Wait(Waiter, Arc<Slot>, Option<InstanceId>),
}

/// The machine's knowledge of one sequence, for a thread that latches the sequence's block.
struct Known<'a> {
    of: &'a Sequences,
    object: ObjectId,
}

impl Floor for Known<'_> {
    fn at_least(&self) -> Option<Option<SequenceState>> {
        match self.of.is_active() {
            true => self.of.state.lock().machine.floor(self.object),
            false => Some(None),
        }
    }
    fn stands(&self, state: SequenceState) {
        if self.of.is_active() {
            self.of.state.lock().machine.stands(self.object, state);
        }
    }
    fn set(&self) {
        if self.of.is_active() {
            self.of.state.lock().machine.set_here(self.object);
        }
    }
}

fn life(m: &Member) -> fusion::Member {
    fusion::Member {
        instance: m.instance,
        incarnation: Incarnation(m.incarnation.into()),
    }
}

impl Sequences {
    pub(crate) fn new(me: Member, redo: &Arc<Redo>) -> Arc<Sequences> {
        Arc::new_cyclic(|own| Sequences {
            redo: redo.clone(),
            active: AtomicBool::new(false),
            state: Mutex::new(State {
                machine: fusion::sequences::Sequences::new(life(&me)),
                waiting: HashMap::default(),
                last_waiter: 0,
            }),
            opener: OnceLock::new(),
            post: OnceLock::new(),
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            worker: Worker::default(),
            own: own.clone(),
        })
    }

    /// The engine is there: from now on this instance serves others.
    pub(crate) fn attach(&self, opener: Weak<dyn OpensSequences>) {
        let set = self.opener.set(opener);
        assert!(set.is_ok(), "invariant: an engine is attached once");
    }

    fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    // ---- for this instance's sessions, with no latch held ----

    /// Draws the next value of a sequence. May wait for another instance.
    pub(crate) fn draw(&self, s: &Sequence, object: ObjectId, header: Dba) -> Result<Draw> {
        let known = Known { of: self, object };
        loop {
            if let Some(held) = s.next_cached() {
                if held.runs_low {
                    self.draw_ahead(object, header);
                }
                return Ok(held.draw);
            }
            let turn = match self.is_active() {
                true => self.begin(s, object, header),
                false => Turn::Here,
            };
            let told = match turn {
                Turn::Has(draw) => return Ok(draw),
                Turn::Here => Told::Here,
                Turn::Wait(waiter, slot, asked) => {
                    let told = self.wait(&slot, asked, [u64::from(object.0), 0]);
                    let mut state = self.state.lock();
                    state.waiting.remove(&waiter);
                    if told.is_err() {
                        state.machine.give_up(object, waiter);
                    }
                    drop(state);
                    told?
                }
            };
            match told {
                Told::Value { value, mark } => {
                    let logged = Logged::There(mark);
                    return Ok(Draw { value, logged });
                }
                // None: an epoch has begun. The next turn waits until it is known what was drawn
                // before the epoch.
                Told::Here => {
                    if let Some(draw) = s.draw(&known)? {
                        return Ok(draw);
                    }
                }
                Told::Again => {}
                Told::Durable | Told::Gone => panic!("invariant: these are told to who commits"),
            }
        }
    }

    fn begin(&self, s: &Sequence, object: ObjectId, header: Dba) -> Turn {
        let mut state = self.state.lock();
        // Values that were kept since then are there before the request for them is over.
        if let Some(held) = s.next_cached() {
            return Turn::Has(held.draw);
        }
        let (waiter, slot) = state.slot();
        let mut out = Vec::new();
        let begun = state.machine.draw(object, header, waiter, &mut out);
        if begun == Begun::Here {
            state.waiting.remove(&waiter);
        }
        let letters = self.carry_out(&mut state, out, None);
        drop(state);
        self.send(letters.letters, SequenceCost::default());
        match begun {
            Begun::Here => Turn::Here,
            Begun::Wait(asked) => {
                wait::stat::add(Stat::SequenceRequests, 1);
                Turn::Wait(waiter, slot, asked)
            }
        }
    }

    /// Asks for the next values before a session has to wait for them.
    fn draw_ahead(&self, object: ObjectId, header: Dba) {
        let mut asked = false;
        let done = self.step(None, |m, out| asked = m.draw_ahead(object, header, out));
        debug_assert!(done.is_ok(), "nothing is asked of this instance by itself");
        if asked {
            wait::stat::add(Stat::SequenceRequests, 1);
        }
    }

    /// Sets a sequence (`setval`).
    pub(crate) fn set(
        &self,
        s: &Sequence,
        object: ObjectId,
        (value, is_called): (i64, bool),
    ) -> Result<LogPos> {
        let known = Known { of: self, object };
        loop {
            if let Some(end) = s.set(value, is_called, &known)? {
                return Ok(end);
            }
            self.wait_ready(object)?;
        }
    }

    /// Waits until it is known what others have drawn.
    fn wait_ready(&self, object: ObjectId) -> Result<()> {
        let mut state = self.state.lock();
        let (waiter, slot) = state.slot();
        let ready = state.machine.wait_ready(waiter);
        drop(state);
        let told = match ready {
            true => Ok(Told::Again),
            false => self.wait(&slot, None, [u64::from(object.0), 0]),
        };
        self.end_wait(waiter, told).map(|_| ())
    }

    /// Ends a wait for the machine that is not for a value.
    fn end_wait(&self, waiter: Waiter, told: Result<Told>) -> Result<Told> {
        let mut state = self.state.lock();
        state.waiting.remove(&waiter);
        if told.is_err() {
            state.machine.give_up_waiting(waiter);
        }
        told
    }

    /// Waits for the mark behind a value that a transaction uses. False: the mark is durable. True:
    /// the mark is in the block, and durable once this instance's log is, up to its present end.
    pub(crate) fn secure(&self, s: &Sequence, object: ObjectId, mark: &Mark) -> Result<bool> {
        let mut state = self.state.lock();
        let (waiter, slot) = state.slot();
        let mut out = Vec::new();
        let secured = state.machine.secure(mark, waiter, &mut out);
        let letters = self.carry_out(&mut state, out, None);
        drop(state);
        self.send(letters.letters, SequenceCost::default());
        let told = match secured {
            Secured::Durable => Ok(Told::Durable),
            Secured::Gone => Ok(Told::Gone),
            Secured::Wait => {
                let of = [u64::from(object.0), mark.pos.0];
                self.wait(&slot, Some(mark.home.instance), of)
            }
        };
        let told = self.end_wait(waiter, told)?;
        if told == Told::Gone {
            s.raise(mark.state, &Known { of: self, object })?;
        }
        Ok(told == Told::Gone)
    }

    /// Forgets an object that is gone for good.
    pub(crate) fn forget(&self, object: ObjectId) {
        if self.is_active() {
            self.state.lock().machine.forget(object);
        }
    }

    fn wait(&self, slot: &Slot, asked: Option<InstanceId>, of: [u64; 2]) -> Result<Told> {
        let from = asked.map_or(0, |k| k.0);
        let p = [from.into(), of[0], of[1]];
        let since = wait::timestamp_ns();
        let result = slot
            .waiter
            .wait_remote(Event::EnqSv, p, None, (from, since), || {
                let told = slot.told.lock();
                let answer = told.as_ref().and_then(|(_, answer)| *answer)?;
                Some(Served {
                    instance: answer.from.0,
                    messages: 2,
                    queue_ns: answer.spent.queue_ns,
                    build_ns: answer.spent.build_ns,
                    flush_ns: answer.spent.flush_ns,
                    wake_ns: now_ns().saturating_sub(answer.at_ns),
                    ..Served::default()
                })
            });
        match (slot.told.lock().take(), result) {
            (Some((told, _)), _) => Ok(told),
            (None, WaitResult::Cancelled) => Err(txn::Error::Cancelled(wait::Cancelled).into()),
            (None, _) => panic!("invariant: whoever is woken was told why"),
        }
    }

    // ---- steps of the machine ----

    fn step(
        &self,
        answer: Option<Answer>,
        f: impl FnOnce(&mut fusion::sequences::Sequences, &mut Vec<Effect>),
    ) -> std::result::Result<(), String> {
        self.step_that_took(answer, SequenceCost::default(), f)
    }

    /// Takes one step of the machine and does what follows. `spent` is what making the leaving
    /// answers took.
    fn step_that_took(
        &self,
        answer: Option<Answer>,
        spent: SequenceCost,
        f: impl FnOnce(&mut fusion::sequences::Sequences, &mut Vec<Effect>),
    ) -> std::result::Result<(), String> {
        let mut state = self.state.lock();
        let mut out = Vec::new();
        f(&mut state.machine, &mut out);
        let done = self.carry_out(&mut state, out, answer);
        drop(state);
        self.send(done.letters, spent);
        for job in done.jobs {
            self.do_or_queue(job)?;
        }
        Ok(())
    }

    /// Does the effects that need no wait, no other latch and no message. Returns the rest.
    fn carry_out(&self, state: &mut State, out: Vec<Effect>, answer: Option<Answer>) -> Todo {
        let mut todo = Todo::default();
        let received_ns = || interconnect::handled_message_received_ns().unwrap_or_else(now_ns);
        for effect in out {
            match effect {
                Effect::Send { to, message } => todo.letters.push((to, message)),
                Effect::Told { waiter, told } => {
                    if let Some(slot) = state.waiting.get(&waiter) {
                        *slot.told.lock() = Some((told, answer));
                        slot.waiter.wake();
                    }
                }
                Effect::Keep {
                    object,
                    range,
                    increment,
                    mark,
                } => {
                    let opener = self.opener.get().and_then(Weak::upgrade);
                    // The asker had it open. If it is gone by now, nobody draws from it.
                    if let Some(s) = opener.and_then(|o| o.if_open(object)) {
                        s.keep(range, increment, mark);
                    }
                }
                Effect::Serve(serve) => todo.jobs.push(Job::Serve(serve, received_ns())),
                Effect::Flush { from, pos } => {
                    todo.jobs.push(Job::Flush(from, pos, received_ns()));
                }
            }
        }
        todo
    }

    fn send(&self, letters: Vec<(InstanceId, Message)>, spent: SequenceCost) {
        let Some(post) = self.post.get() else {
            return;
        };
        for (to, message) in letters {
            let mut body = Vec::with_capacity(128);
            messages::encode(&message, spent, &mut body);
            let parcel = Parcel {
                route: Route::Hash(0),
                kind: SEQUENCE,
                epoch: 0,
                body: &body,
                block: None,
            };
            post.send(to, parcel);
        }
    }

    // ---- serving ----

    /// Does a job, or leaves it to `lck0` if it needs a wait. An error: this log ends before the
    /// position.
    fn do_or_queue(&self, job: Job) -> std::result::Result<(), String> {
        match job {
            Job::Serve(serve, received_ns) => {
                let begun = now_ns();
                let taken = self.opened(&serve).and_then(|s| {
                    let known = Known {
                        of: self,
                        object: serve.object,
                    };
                    s.try_take(serve.wanted, &known)
                });
                match taken {
                    Some(taken) => self.served(&serve, Some(taken), (received_ns, begun)),
                    None => self.queue(Job::Serve(serve, received_ns)),
                }
            }
            Job::Flush(to, pos, received_ns) => {
                if pos > self.redo.end() {
                    return Err(format!("the log does not reach to {}", pos.0));
                }
                match self.redo.durable() >= pos {
                    true => self.flushed(to, (received_ns, now_ns())),
                    false => self.queue(job),
                }
            }
        }
        Ok(())
    }

    fn queue(&self, job: Job) {
        let mut inbox = self.inbox.lock();
        if inbox.queue.len() < QUEUE_MAX && !inbox.stop {
            inbox.queue.push_back(job);
            self.arrived.notify_one();
            return;
        }
        drop(inbox);
        self.refuse(&job);
    }

    /// Answers a request that is not served. The machine remembers every request that it has given
    /// out: without an answer it would never give out the same request again.
    fn refuse(&self, job: &Job) {
        if let Job::Serve(serve, received_ns) = job {
            self.served(serve, None, (*received_ns, now_ns()));
        }
    }

    fn opened(&self, serve: &Serve) -> Option<Arc<Sequence>> {
        let opener = self.opener.get()?.upgrade()?;
        Some(opener.sequence(serve.object, serve.header))
    }

    fn served(
        &self,
        serve: &Serve,
        taken: Option<access::Result<Option<Taken>>>,
        (received_ns, begun_ns): (u64, u64),
    ) {
        let outcome = match taken {
            Some(Ok(Some(taken))) => {
                wait::stat::add(Stat::SequenceValuesServed, taken.range.count.into());
                Outcome::Given(Given {
                    range: taken.range,
                    increment: taken.increment,
                    keep: taken.keep,
                    state: taken.state,
                    pos: taken.end,
                    durable: self.redo.durable(),
                })
            }
            Some(Ok(None)) => Outcome::NotYet,
            // The asker will meet the error itself, or this instance is starting.
            Some(Err(_)) | None => Outcome::Refused,
        };
        let spent = SequenceCost {
            queue_ns: begun_ns.saturating_sub(received_ns),
            build_ns: now_ns().saturating_sub(begun_ns),
            flush_ns: 0,
        };
        let done = self.step_that_took(None, spent, |m, out| m.served(serve, outcome, out));
        debug_assert!(done.is_ok(), "no request to flush comes of an answer");
    }

    fn flushed(&self, to: InstanceId, (received_ns, begun_ns): (u64, u64)) {
        let spent = SequenceCost {
            queue_ns: begun_ns.saturating_sub(received_ns),
            build_ns: 0,
            flush_ns: now_ns().saturating_sub(begun_ns),
        };
        let durable = self.redo.durable();
        let done = self.step_that_took(None, spent, |m, out| m.flushed(to, durable, out));
        debug_assert!(done.is_ok(), "no request to flush comes of an answer");
    }

    // ---- the thread lck0 ----

    fn next(&self) -> Option<Job> {
        let mut inbox = self.inbox.lock();
        loop {
            if inbox.stop {
                return None;
            }
            if let Some(job) = inbox.queue.pop_front() {
                return Some(job);
            }
            wait::during(Event::RdbmsIpcMessage, [0; 3], || {
                self.arrived.wait(&mut inbox);
            });
        }
    }

    fn work(&self, job: &Job) {
        let begun = now_ns();
        match job {
            Job::Serve(serve, received_ns) => {
                let known = Known {
                    of: self,
                    object: serve.object,
                };
                let taken = self.opened(serve).map(|s| s.take(serve.wanted, &known));
                self.served(serve, taken, (*received_ns, begun));
            }
            Job::Flush(to, pos, received_ns) => {
                // An error ends the instance, and the asker need not know more than that.
                if self.redo.flush_to(*pos).is_ok() {
                    self.flushed(*to, (*received_ns, begun));
                }
            }
        }
    }
}

impl State {
    fn slot(&mut self) -> (Waiter, Arc<Slot>) {
        self.last_waiter += 1;
        let waiter = Waiter(self.last_waiter);
        let slot = Arc::new(Slot {
            told: Mutex::new(None),
            waiter: wait::Waiter::new(),
        });
        self.waiting.insert(waiter, slot.clone());
        (waiter, slot)
    }
}

/// The rest of a step, for when the latch is free.
#[derive(Default)]
struct Todo {
    letters: Vec<(InstanceId, Message)>,
    jobs: Vec<Job>,
}

impl Layer for Sequences {
    fn join(&self, post: Arc<dyn Post>) -> Result<()> {
        assert!(
            self.post.set(post).is_ok(),
            "invariant: a cluster is joined once"
        );
        let own = self.own.clone();
        self.worker.start("lck0", own, Self::next, Self::work)
    }

    fn message(
        &self,
        from: InstanceId,
        _: u64,
        _: u16,
        body: &[u8],
        _: Option<&BlockBuf>,
    ) -> std::result::Result<(), String> {
        let told = messages::decode(body);
        let (message, spent) = told.map_err(|why| format!("nothing about sequences: {why}"))?;
        let at_ns = interconnect::handled_message_received_ns().unwrap_or_else(now_ns);
        let answer = Answer { from, spent, at_ns };
        self.step(Some(answer), |m, out| m.message(from, message, out))
    }

    fn reconnected(&self, peer: InstanceId) {
        self.say_again(Some(peer));
    }

    fn tick(&self) {
        self.say_again(None);
    }

    /// Called before the cache enters the epoch: nothing is drawn from a recovered block with old
    /// knowledge.
    fn members_changed(&self, members: &Members) -> Result<()> {
        self.active.store(true, Ordering::Release);
        let (epoch, up) = (Epoch(members.epoch), members.up.iter().map(life));
        self.step(None, |m, out| m.reconfigure(epoch, up, out))
            .map_err(Error::Cluster)
    }

    fn settled(&self, _: u64) {
        self.say_again(None);
    }

    /// Serves nobody from here on. The cache leaves next, and gives no block to a thread that would
    /// draw from it. An asker that gets no answer asks the next master.
    fn leaving(&self, _: &dyn Progress) -> Result<()> {
        self.state.lock().machine.leave();
        self.stop_serving();
        Ok(())
    }

    fn stopped(&self) {
        self.stop_serving();
    }
}

impl Sequences {
    fn stop_serving(&self) {
        self.inbox.lock().stop = true;
        self.arrived.notify_all();
        self.worker.join();
        let left = std::mem::take(&mut self.inbox.lock().queue);
        left.iter().for_each(|job| self.refuse(job));
    }

    fn say_again(&self, to: Option<InstanceId>) {
        let said = self.step(None, |m, out| m.say_again(to, out));
        debug_assert!(said.is_ok(), "nothing is asked of this instance by itself");
    }
}
