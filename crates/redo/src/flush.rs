//! Who writes and who waits: the queue of group commit.
//!
//! One thread at a time *leads*: it writes batches. Whoever comes meanwhile queues with the position it wants durable. A leader that is done
//! wakes the first thread whose wish is still open as the next leader, *then* those that were served: the disk is not idle while
//! they wake up. A thread that finds nobody leading leads at once, without touching another thread.

use crate::{Error, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::Thread;
use wait::Event;

const WAITING: u8 = 0;
const SERVED: u8 = 1;
const LEAD: u8 = 2;

/// A thread's place in the queue.
struct Seat {
    told: AtomicU8,
    thread: Thread,
}

impl Seat {
    fn tell(&self, what: u8) {
        self.told.store(what, Ordering::Release);
        self.thread.unpark();
    }
    fn wait(&self) -> u8 {
        loop {
            match self.told.load(Ordering::Acquire) {
                WAITING => std::thread::park(),
                told => return told,
            }
        }
    }
}

thread_local! {
    /// A thread waits in one place at a time, and takes it again only after it was told.
    static SEAT: Arc<Seat> = Arc::new(Seat { told: AtomicU8::new(WAITING), thread: std::thread::current() });
}

#[derive(Default)]
struct Queue {
    /// Whether a thread leads, or has been told to.
    led: bool,
    waiting: Vec<(u64, Arc<Seat>)>,
    failure: Option<String>,
}

#[derive(Default)]
pub(crate) struct FlushQueue {
    queue: Mutex<Queue>,
}

impl FlushQueue {
    /// Returns once `durable()` has reached `pos`; leads if nobody does. `write` makes one more batch durable. Followers wait under `event`.
    pub fn flush(
        &self,
        pos: u64,
        event: Event,
        durable: impl Fn() -> u64,
        mut write: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        loop {
            if durable() >= pos {
                return Ok(());
            }
            if !self.lead_or_wait(pos, event, &durable)? {
                continue;
            }
            let mut result = Ok(());
            while durable() < pos && result.is_ok() {
                result = write();
            }
            self.hand_over(durable(), &result);
            result?;
        }
    }

    /// True: the caller leads. False: it has been served, or must look again.
    fn lead_or_wait(&self, pos: u64, event: Event, durable: &impl Fn() -> u64) -> Result<bool> {
        let mut queue = self.queue.lock();
        if let Some(failure) = &queue.failure {
            return Err(Error::WriteFailed(failure.clone()));
        }
        if !queue.led {
            queue.led = true;
            return Ok(true);
        }
        // The leader publishes before it locks the queue to serve: looking under the lock, we cannot miss both.
        if durable() >= pos {
            return Ok(false);
        }
        let seat = SEAT.with(Arc::clone);
        seat.told.store(WAITING, Ordering::Relaxed);
        queue.waiting.push((pos, seat.clone()));
        drop(queue);
        Ok(wait::during(event, [0, pos, 0], || seat.wait()) == LEAD)
    }

    /// The leader is done: wakes the next one, then those that have been served, all of them after a failure.
    fn hand_over(&self, durable: u64, result: &Result<()>) {
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
                served.extend(queue.waiting.extract_if(.., |(pos, _)| *pos <= durable));
                next = (!queue.waiting.is_empty()).then(|| queue.waiting.remove(0));
            }
            queue.led = next.is_some();
        }
        if let Some((_, seat)) = next {
            seat.tell(LEAD);
        }
        for (_, seat) in served {
            seat.tell(SERVED);
        }
    }

    /// Why nothing can be written any more, if so.
    pub fn failure(&self) -> Option<Error> {
        self.queue.lock().failure.clone().map(Error::WriteFailed)
    }

    /// Lets nobody write any more and wakes all.
    pub fn fail(&self, why: String) {
        self.hand_over(0, &Err(Error::WriteFailed(why)));
    }
}
