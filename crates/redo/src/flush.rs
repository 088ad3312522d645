//! Who writes and who waits: the queue of group commit.
//!
//! One thread at a time *leads*: it writes batches. Whoever comes meanwhile queues with the position it wants durable. A leader that is done
//! wakes the first thread whose wish is still open as the next leader, *then* those that were served: the disk is not idle while
//! they wake up. A thread that finds nobody leading leads at once, without touching another thread.
//!
//! A thread that waits for more than the flush of its commit, namely that others know of it, is not woken in between: it is passed on to [`GroupSink::wake_when_known`].

#[cfg(doc)]
use crate::GroupSink;
use crate::{BatchNo, Error, Result};
use seam::Mutex;
use seam::thread::Thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use wait::Event;

const WAITING: u8 = 0;
const SERVED: u8 = 1;
const LEAD: u8 = 2;
/// Durable, and known to all who must know of it.
const KNOWN: u8 = 3;

/// A thread's place in the queue.
struct Seat {
    told: AtomicU8,
    /// When the flush was over, of one that waits for more; zero if that took no time.
    flushed_ns: AtomicU64,
    thread: Thread,
}

/// A thread that waits until all who must know of its commit, which is durable, know of it.
pub struct CommitWaiter(Arc<Seat>);

impl CommitWaiter {
    pub fn wake(self) {
        self.0.tell(KNOWN);
    }

    /// The same if all knew of it as soon as it was durable: nothing was waited for but the flush.
    pub fn wake_at_once(self) {
        self.0.flushed_ns.store(0, Ordering::Relaxed);
        self.wake();
    }
}

/// What a thread waits for.
struct Waiting {
    pos: u64,
    /// Also that others know of this group, which has its commit.
    group: Option<BatchNo>,
    seat: Arc<Seat>,
}

/// A wish of a thread that calls [`FlushQueue::flush`].
pub(crate) struct Wish {
    pub pos: u64,
    pub event: Event,
    /// Whether others must know of it, and of which group it is.
    pub group: Option<BatchNo>,
}

impl Seat {
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
    /// A thread waits in one place at a time, and takes it again only after it was told.
    static SEAT: Arc<Seat> = Arc::new(Seat {
        told: AtomicU8::new(WAITING),
        flushed_ns: AtomicU64::new(0),
        thread: seam::thread::current(),
    });
}

#[derive(Default)]
struct Queue {
    /// Whether a thread leads, or has been told to.
    led: bool,
    waiting: Vec<Waiting>,
    failure: Option<String>,
}

#[derive(Default)]
pub(crate) struct FlushQueue {
    queue: Mutex<Queue>,
}

impl FlushQueue {
    /// Returns once `durable()` has reached the wish's position; leads if nobody does. `write` makes one more batch durable. Followers wait under the wish's event. `pass_on` takes
    /// those of a durable group that wait for more. True if that was waited for as well.
    pub fn flush(
        &self,
        wish: &Wish,
        durable: impl Fn() -> u64,
        mut write: impl FnMut() -> Result<()>,
        pass_on: impl Fn(BatchNo, Vec<CommitWaiter>),
    ) -> Result<bool> {
        loop {
            if durable() >= wish.pos {
                return Ok(false);
            }
            match self.lead_or_wait(wish, &durable)? {
                LEAD => {}
                KNOWN => return Ok(true),
                _ => continue,
            }
            let mut result = Ok(());
            while durable() < wish.pos && result.is_ok() {
                result = write();
            }
            self.hand_over(durable(), &result, &pass_on);
            result?;
        }
    }

    /// What the caller has been told: [`LEAD`], [`KNOWN`], or to look again.
    fn lead_or_wait(&self, wish: &Wish, durable: &impl Fn() -> u64) -> Result<u8> {
        let mut queue = self.queue.lock();
        if let Some(failure) = &queue.failure {
            return Err(Error::WriteFailed(failure.clone()));
        }
        if !queue.led {
            queue.led = true;
            return Ok(LEAD);
        }
        // The leader publishes before it locks the queue to serve: looking under the lock, we cannot miss both.
        if durable() >= wish.pos {
            return Ok(SERVED);
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
            (told, flushed)
        };
        let p = [0, wish.pos, 0];
        Ok(wait::during_both(
            wish.event,
            Event::LogFileSyncScn,
            p,
            wait,
        ))
    }

    /// The leader is done: wakes the next one, then those that have been served, all of them after a failure.
    fn hand_over(
        &self,
        durable: u64,
        result: &Result<()>,
        pass_on: &impl Fn(BatchNo, Vec<CommitWaiter>),
    ) {
        let mut served = Vec::new();
        let mut next = None;
        {
            let mut queue = self.queue.lock();
            if let Err(e) = result {
                queue.failure = Some(match e {
                    Error::WriteFailed(why) => why.clone(),
                    other => other.to_string(),
                });
                served.append(&mut queue.waiting);
            } else {
                served.extend(queue.waiting.extract_if(.., |w| w.pos <= durable));
                next = (!queue.waiting.is_empty()).then(|| queue.waiting.remove(0));
            }
            queue.led = next.is_some();
        }
        if let Some(next) = next {
            next.seat.tell(LEAD);
        }
        let mut group: Option<(BatchNo, Vec<CommitWaiter>)> = None;
        for Waiting {
            group: of, seat, ..
        } in served
        {
            let Some(of) = of.filter(|_| result.is_ok()) else {
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
                        .for_each(|(of, waiters)| pass_on(of, waiters));
                }
            }
        }
        group
            .into_iter()
            .for_each(|(of, waiters)| pass_on(of, waiters));
    }

    /// Why nothing can be written any more, if so.
    pub fn failure(&self) -> Option<Error> {
        self.queue.lock().failure.clone().map(Error::WriteFailed)
    }

    /// Lets nobody write any more and wakes all.
    pub fn fail(&self, why: String) {
        self.hand_over(0, &Err(Error::WriteFailed(why)), &|_, _| {
            unreachable!("after a failure nobody is passed on")
        });
    }
}
