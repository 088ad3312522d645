//! The queue of group commit: which threads write and which wait.
//!
//! At most [`LAST_GROUPS`] threads *lead*: each writes a batch. A thread that finds its records in
//! no batch that is being written leads, if one more may. A leader that is about to take its batch
//! takes along the records of all that come meanwhile. Other threads queue with the position that
//! they want durable.
//!
//! A leader that is done first wakes the first thread whose wish is in no batch yet, as the next
//! leader. *Then* it wakes the threads that were served, so that the disk is not idle while they
//! wake up. A thread that finds no leader leads at once, without touching another thread.
//!
//! A leader whose batch is on disk before an older one is queues like all others. It keeps its
//! place as a leader until its batch counts, because until then no more may be written.
//!
//! A thread that must not wait leaves its want with the thread that writes, which tells when it is
//! done. So a block that another instance wants leaves without waking a thread that only waits for
//! the log.
//!
//! A thread may wait for more than the flush of its commit, namely that others know of the commit.
//! It is not woken in between: it is passed on to [`GroupSink::wake_when_known`].

#[cfg(doc)]
use crate::GroupSink;
use crate::{BatchNo, Error, Result};
use block::LAST_GROUPS;
use seam::Mutex;
use seam::thread::Thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use wait::Event;
use wait::remote::Served;

const WAITING: u8 = 0;
const SERVED: u8 = 1;
const LEAD: u8 = 2;
/// The commit is durable, and known to all that must know of it.
const KNOWN: u8 = 3;

/// A thread's place in the queue.
struct Seat {
    told: AtomicU8,
    /// When the flush was over, for a thread that waits for more. Zero if that took no time.
    flushed_ns: AtomicU64,
    /// The instance that knew of the commit last, for a thread that waits for more. It is kept
    /// until the thread is told.
    known: Mutex<Option<Known>>,
    thread: Thread,
}

/// What another instance said when it knew of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// How the other instance served, without the waking.
    pub by: Served,
    /// When the answer was heard, by [`wait::timestamp_ns`].
    pub at_ns: u64,
}

/// A thread that waits until all that must know of its durable commit know of it.
pub struct CommitWaiter(Arc<Seat>);

impl CommitWaiter {
    /// Wakes the thread. `known` says by which instance, if another instance was waited for.
    pub fn wake(self, known: Option<Known>) {
        *self.0.known.lock() = known;
        self.0.tell(KNOWN);
    }

    /// Wakes the thread if all knew of its commit as soon as it was durable: nothing was waited for
    /// but the flush.
    pub fn wake_at_once(self) {
        self.0.flushed_ns.store(0, Ordering::Relaxed);
        self.0.tell(KNOWN);
    }
}

/// A thread in the queue, and what it waits for.
struct Waiting {
    pos: u64,
    /// The group of the thread's commit, if it also waits until others know of it.
    group: Option<BatchNo>,
    seat: Arc<Seat>,
}

/// A wish of a thread that calls [`FlushQueue::flush`].
pub(crate) struct Wish {
    pub pos: u64,
    pub event: Event,
    /// The group of the commit, if others must know of it.
    pub group: Option<BatchNo>,
}

impl Seat {
    fn known_by(&self) -> Option<Served> {
        let known = self.known.lock().take()?;
        Some(Served {
            wake_ns: wait::timestamp_ns().saturating_sub(known.at_ns),
            ..known.by
        })
    }
    fn tell(&self, what: u8) {
        self.told.store(what, Ordering::Release);
        self.thread.unpark();
    }
    fn wait(&self) -> u8 {
        loop {
            match self.told.load(Ordering::Acquire) {
                WAITING => seam::thread::park(),
                told => return told,
            }
        }
    }
}

thread_local! {
    /// The seat of this thread. A thread waits in one place at a time, and takes the seat again
    /// only after it was told.
    static SEAT: Arc<Seat> = Arc::new(Seat {
        told: AtomicU8::new(WAITING),
        flushed_ns: AtomicU64::new(0),
        known: Mutex::new(None),
        thread: seam::thread::current(),
    });
}

/// The state of [wants](FlushQueue::want).
pub(crate) struct Told {
    /// Whether one of the wants is durable now.
    pub reached: bool,
    /// The position up to which wants are not durable and nobody is about to write them.
    pub left: Option<u64>,
}

/// Positions that threads want durable without waiting.
#[derive(Clone, Copy)]
struct Wants {
    /// No want is below this position.
    lowest: u64,
    highest: u64,
}

impl Wants {
    fn add(all: Option<Wants>, pos: u64) -> Wants {
        let (lowest, highest) = all.map_or((pos, pos), |w| (w.lowest.min(pos), w.highest.max(pos)));
        Wants { lowest, highest }
    }

    fn above(self, durable: u64) -> Option<Wants> {
        (self.highest > durable).then_some(Wants {
            lowest: self.lowest.max(durable + 1),
            ..self
        })
    }
}

/// The log, as the queue sees it.
pub(crate) trait Writes {
    /// The position below which everything is durable.
    fn durable(&self) -> u64;
    /// The position below which everything is durable or being written.
    fn issued(&self) -> u64;
    /// Writes one more batch, if `pos` is in none yet, and calls [`FlushQueue::issued`] before it
    /// does. Returns how many batches became durable, this one or others.
    fn write(&self, pos: u64) -> Result<Option<usize>>;
    /// Passes on threads whose commits are in a durable group and that wait for more.
    fn pass_on(&self, batch: BatchNo, waiters: Vec<CommitWaiter>);
    /// Tells the state of [wants](FlushQueue::want).
    fn tell(&self, told: Told);
}

#[derive(Default)]
struct Queue {
    /// The batches that are being written, and those that their leaders have not taken yet.
    leaders: usize,
    /// Whether one of the leaders has not taken its batch yet. If so, what is in the log now comes
    /// into that batch, or stands in full batches before it.
    about: bool,
    waiting: Vec<Waiting>,
    /// The wants. There are some only while they are being written, or while no more leaders may
    /// be.
    wanted: Option<Wants>,
    failure: Option<String>,
}

impl Queue {
    /// Whether a thread has to lead, and may, so that what is beyond the batches `issued` gets
    /// written.
    fn lacks_leader(&self) -> bool {
        !self.about && self.leaders < LAST_GROUPS
    }

    fn lead(&mut self) {
        self.leaders += 1;
        self.about = true;
    }

    /// Makes the first thread whose wish is in no batch yet a leader, if one is lacking.
    fn appoint(&mut self, issued: u64) -> Option<Waiting> {
        if !self.lacks_leader() {
            return None;
        }
        let first = self.waiting.iter().position(|w| w.pos > issued)?;
        self.lead();
        Some(self.waiting.remove(first))
    }

    /// The state of the wants.
    fn look_at_wants(&mut self, durable: u64, issued: u64) -> Told {
        let wanted = self.wanted.take();
        let above = wanted.and_then(|w| w.above(durable));
        let left = above.filter(|w| w.highest > issued && self.lacks_leader());
        self.wanted = above.filter(|_| left.is_none());
        Told {
            reached: wanted.is_some_and(|w| w.lowest <= durable),
            left: left.map(|w| w.highest),
        }
    }
}

#[derive(Default)]
pub(crate) struct FlushQueue {
    queue: Mutex<Queue>,
}

impl FlushQueue {
    /// Returns once the log is durable up to the wish's position. The caller leads if a leader is
    /// lacking; followers wait under the wish's event. True if the wait was also for others to know
    /// of the wish's group.
    pub fn flush(&self, wish: &Wish, log: &impl Writes) -> Result<bool> {
        loop {
            if log.durable() >= wish.pos {
                return Ok(false);
            }
            match self.lead_or_wait(wish, log)? {
                LEAD => {}
                KNOWN => return Ok(true),
                _ => continue,
            }
            match log.write(wish.pos)? {
                // The batch is on disk before an older one, whose leader finishes it too.
                Some(0) => {}
                Some(durable) => self.hand_over(durable, log),
                None => {
                    self.issued(log);
                    self.hand_over(1, log);
                }
            }
        }
    }

    /// What the caller has been told: [`LEAD`], [`KNOWN`], or to look again.
    fn lead_or_wait(&self, wish: &Wish, log: &impl Writes) -> Result<u8> {
        let mut queue = self.queue.lock();
        if let Some(failure) = &queue.failure {
            return Err(Error::WriteFailed(failure.clone()));
        }
        // Leaders publish before they lock the queue. So a look under the lock cannot miss both.
        if log.durable() >= wish.pos {
            return Ok(SERVED);
        }
        if queue.lacks_leader() && log.issued() < wish.pos {
            queue.lead();
            return Ok(LEAD);
        }
        let seat = SEAT.with(Arc::clone);
        seat.told.store(WAITING, Ordering::Relaxed);
        queue.waiting.push(Waiting {
            pos: wish.pos,
            group: wish.group,
            seat: seat.clone(),
        });
        drop(queue);
        let wait = || {
            let told = seat.wait();
            let flushed = (told == KNOWN).then(|| seat.flushed_ns.load(Ordering::Relaxed));
            let flushed = flushed.filter(|&ns| ns != 0);
            (told, flushed.map(|ns| (ns, seat.known_by())))
        };
        let p = [0, wish.pos, 0];
        Ok(wait::during_both(
            wish.event,
            Event::LogFileSyncScn,
            p,
            wait,
        ))
    }

    /// Leaves a want with the thread that writes it, or will. False if none does, or if it is
    /// durable already.
    pub fn want(&self, pos: u64, log: &impl Writes) -> bool {
        let mut queue = self.queue.lock();
        // As for threads that wait, leaders publish before they lock the queue.
        let will_be = !queue.lacks_leader() || pos <= log.issued();
        let noted = will_be && log.durable() < pos;
        if noted {
            queue.wanted = Some(Wants::add(queue.wanted, pos));
        }
        noted
    }

    /// Notes that a leader has taken its batch, or found that there is none left. A thread that
    /// came too late for the batch may lead.
    pub fn issued(&self, log: &impl Writes) {
        let (next, told) = {
            let mut queue = self.queue.lock();
            queue.about = false;
            let next = queue.appoint(log.issued());
            (next, queue.look_at_wants(log.durable(), log.issued()))
        };
        go_on(next, told, log);
    }

    /// Notes that `batches` batches have become durable: wakes the next leader, tells of the wants,
    /// then wakes the threads that have been served.
    fn hand_over(&self, batches: usize, log: &impl Writes) {
        let (served, next, told) = {
            let mut queue = self.queue.lock();
            queue.leaders -= batches;
            let (durable, issued) = (log.durable(), log.issued());
            let served: Vec<Waiting> = queue.waiting.extract_if(.., |w| w.pos <= durable).collect();
            let next = queue.appoint(issued);
            (served, next, queue.look_at_wants(durable, issued))
        };
        go_on(next, told, log);
        let mut group: Option<(BatchNo, Vec<CommitWaiter>)> = None;
        for Waiting {
            group: of, seat, ..
        } in served
        {
            let Some(of) = of else {
                seat.tell(SERVED);
                continue;
            };
            seat.flushed_ns
                .store(wait::timestamp_ns(), Ordering::Relaxed);
            match &mut group {
                Some((batch, waiters)) if *batch == of => waiters.push(CommitWaiter(seat)),
                _ => {
                    let before = group.replace((of, vec![CommitWaiter(seat)]));
                    before
                        .into_iter()
                        .for_each(|(of, waiters)| log.pass_on(of, waiters));
                }
            }
        }
        group
            .into_iter()
            .for_each(|(of, waiters)| log.pass_on(of, waiters));
    }

    /// Why nothing can be written any more, if so.
    pub fn failure(&self) -> Option<Error> {
        self.queue.lock().failure.clone().map(Error::WriteFailed)
    }

    /// Stops all writing and wakes all threads.
    pub fn fail(&self, why: String) {
        let waiting = {
            let mut queue = self.queue.lock();
            queue.failure.get_or_insert(why);
            queue.wanted = None; // the instance ends
            std::mem::take(&mut queue.waiting)
        };
        waiting.iter().for_each(|w| w.seat.tell(SERVED));
    }
}

fn go_on(next: Option<Waiting>, told: Told, log: &impl Writes) {
    if let Some(next) = next {
        next.seat.tell(LEAD);
    }
    if told.reached || told.left.is_some() {
        log.tell(told);
    }
}
