//! Who writes and who waits: the queue of group commit.
//!
//! One thread at a time *leads*: it writes batches. Whoever comes meanwhile queues with the position it wants durable. A leader that is done
//! wakes the first thread whose wish is still open as the next leader, *then* those that were served: the disk is not idle while
//! they wake up. A thread that finds nobody leading leads at once, without touching another thread.
//!
//! A thread that must not wait leaves what it wants with whoever leads, who tells of it when it is done; so a block that another instance wants leaves without waking a thread that
//! only waits for the log.
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

/// What has become of [wants](FlushQueue::want).
pub(crate) struct Told {
    /// Whether one of them is durable now.
    pub reached: bool,
    /// Up to here they are not, and nobody leads any more.
    pub left: Option<u64>,
}

/// Positions that others want who do not wait.
#[derive(Clone, Copy)]
struct Wants {
    /// None is below.
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

#[derive(Default)]
struct Queue {
    /// Whether a thread leads, or has been told to.
    led: bool,
    waiting: Vec<Waiting>,
    /// Only while somebody leads.
    wanted: Option<Wants>,
    failure: Option<String>,
}

#[derive(Default)]
pub(crate) struct FlushQueue {
    queue: Mutex<Queue>,
}

impl FlushQueue {
    /// Returns once `durable()` has reached the wish's position; leads if nobody does. `write` makes one more batch durable. Followers wait under the wish's event. `pass_on` takes
    /// those of a durable group that wait for more, `tell` is told what has become of [wants](FlushQueue::want). True if that was waited for as well.
    pub fn flush(
        &self,
        wish: &Wish,
        durable: impl Fn() -> u64,
        mut write: impl FnMut() -> Result<()>,
        pass_on: impl Fn(BatchNo, Vec<CommitWaiter>),
        tell: impl Fn(Told),
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
            self.hand_over(durable(), &result, &pass_on, &tell);
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

    /// Leaves a want with whoever leads. False if nobody does, or it is durable.
    pub fn want(&self, pos: u64, durable: impl Fn() -> u64) -> bool {
        let mut queue = self.queue.lock();
        // As for those who wait: the leader publishes before it locks the queue.
        let noted = queue.led && durable() < pos;
        if noted {
            queue.wanted = Some(Wants::add(queue.wanted, pos));
        }
        noted
    }

    /// The leader is done: wakes the next one, tells of what was wanted, then wakes those that have been served, all of them after a failure.
    fn hand_over(
        &self,
        durable: u64,
        result: &Result<()>,
        pass_on: &impl Fn(BatchNo, Vec<CommitWaiter>),
        tell: &impl Fn(Told),
    ) {
        let mut served = Vec::new();
        let mut next = None;
        let told;
        {
            let mut queue = self.queue.lock();
            if let Err(e) = result {
                queue.failure = Some(match e {
                    Error::WriteFailed(why) => why.clone(),
                    other => other.to_string(),
                });
                served.append(&mut queue.waiting);
                queue.wanted = None; // the instance ends
            } else {
                served.extend(queue.waiting.extract_if(.., |w| w.pos <= durable));
                next = (!queue.waiting.is_empty()).then(|| queue.waiting.remove(0));
            }
            queue.led = next.is_some();
            let wanted = queue.wanted.take();
            let above = wanted.and_then(|w| w.above(durable));
            queue.wanted = above.filter(|_| queue.led);
            told = Told {
                reached: wanted.is_some_and(|w| w.lowest <= durable),
                left: above.filter(|_| !queue.led).map(|w| w.highest),
            };
        }
        if let Some(next) = next {
            next.seat.tell(LEAD);
        }
        if told.reached || told.left.is_some() {
            tell(told);
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
        self.hand_over(
            0,
            &Err(Error::WriteFailed(why)),
            &|_, _| unreachable!("after a failure nobody is passed on"),
            &|_| unreachable!("after a failure nothing is wanted"),
        );
    }
}
