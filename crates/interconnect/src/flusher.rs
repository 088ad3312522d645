//! The thread that goes on with what senders could not send at once: `lmw0`, one per instance. It waits for sockets to take more and for the end of injected delays.

use crate::link::Link;
use crate::outbox::{HandOver, Left};
use crate::{Error, Result};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use wait::Event;

pub(crate) struct Flusher {
    /// Handed over and not yet seen by the thread.
    arrived: Mutex<Vec<Work>>,
    bell: OwnedFd,
    stopping: AtomicBool,
}

struct Work {
    link: Arc<Link>,
    generation: u64,
}

impl Flusher {
    pub fn new() -> Result<Flusher> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bell = rustix::event::eventfd(0, flags)
            .map_err(|e| Error::io("create", "an event descriptor", e))?;
        Ok(Flusher {
            arrived: Mutex::default(),
            bell,
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

    /// Makes the thread look at everything again.
    pub fn ring(&self) {
        // It fails only when the counter is at its maximum: then the bell is ringing already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
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

    /// Until the bell rings, one of the sockets takes more, or the moment has come.
    fn wait(&self, full: &[Arc<crate::stream::Stream>], next: Option<Instant>) {
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        fds.extend(
            full.iter()
                .map(|s| PollFd::from_borrowed_fd(s.as_fd(), PollFlags::OUT)),
        );
        let left = next.map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let p = [0, full.len() as u64, 0];
        wait::during(Event::RdbmsIpcMessage, p, || {
            // An interrupted call looks at everything again, which does no harm; no other error can come of these descriptors.
            let _ = rustix::event::poll(&mut fds, left.as_ref());
        });
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }
}
