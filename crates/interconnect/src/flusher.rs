//! The thread `lmw0`, one per instance, which goes on with what senders could not send at once. It
//! waits for sockets to take more and for the end of injected delays.

use crate::Result;
use crate::bell::Bell;
use crate::link::Link;
use crate::outbox::{HandOver, Left};
use seam::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use wait::Event;

pub(crate) struct Flusher {
    /// Work that was handed over and that the thread has not seen yet.
    arrived: Mutex<Vec<Work>>,
    bell: Bell,
    stopping: AtomicBool,
}

struct Work {
    link: Arc<Link>,
    generation: u64,
}

impl Flusher {
    pub fn new() -> Result<Flusher> {
        Ok(Flusher {
            arrived: Mutex::default(),
            bell: Bell::new()?,
            stopping: AtomicBool::new(false),
        })
    }

    pub fn take(&self, link: &Arc<Link>, handed: HandOver) {
        self.arrived.lock().push(Work {
            link: link.clone(),
            generation: handed.0,
        });
        self.ring();
    }

    /// Makes the thread look at all its work again.
    pub fn ring(&self) {
        self.bell.ring();
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.ring();
    }

    pub fn run(&self) {
        let mut work: Vec<Work> = Vec::new();
        while !self.stopping.load(Ordering::Acquire) {
            work.append(&mut self.arrived.lock());
            let mut full = Vec::new();
            let mut next: Option<Instant> = None;
            let mut more = false;
            work.retain(|w| match w.link.outbox.write_queued(w.generation) {
                Left::Nothing | Left::Gone => false,
                Left::Full => {
                    full.extend(w.link.outbox.connected().map(|(_, stream)| stream));
                    true
                }
                Left::Held(due) => {
                    next = [next, due].into_iter().flatten().min();
                    true
                }
                Left::More => {
                    more = true;
                    true
                }
            });
            if !more {
                self.wait(&full, next);
            }
        }
    }

    /// Waits until the bell rings, one of the sockets takes more, or the moment has come.
    fn wait(&self, full: &[Arc<crate::stream::Stream>], next: Option<Instant>) {
        let p = [0, full.len() as u64, 0];
        wait::during(Event::RdbmsIpcMessage, p, || {
            self.bell.wait(full.iter().map(|s| s.socket()), next);
        });
    }
}
