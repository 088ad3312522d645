//! The bell wakes a thread that waits for sockets. It is an event descriptor among theirs, or a
//! flag in a simulation, whose sockets have no descriptors.

use crate::socket::Socket;
use crate::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use std::os::fd::OwnedFd;
use std::time::Instant;

pub(crate) enum Bell {
    Descriptor(OwnedFd),
    #[cfg(debug_assertions)]
    Simulated {
        rung: seam::Mutex<bool>,
        changed: seam::Condvar,
    },
}

/// How often a thread asks a simulated socket for room.
#[cfg(debug_assertions)]
const SIMULATED_POLL: std::time::Duration = std::time::Duration::from_micros(200);

impl Bell {
    pub fn new() -> Result<Bell> {
        #[cfg(debug_assertions)]
        if seam::sim::is_simulated() {
            return Ok(Bell::Simulated {
                rung: seam::Mutex::new(false),
                changed: seam::Condvar::new(),
            });
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        rustix::event::eventfd(0, flags)
            .map(Bell::Descriptor)
            .map_err(|e| Error::io("create", "an event descriptor", e))
    }

    pub fn ring(&self) {
        match self {
            // The write fails only when the counter is at its maximum: then the bell is ringing
            // already.
            Bell::Descriptor(fd) => {
                let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
            }
            #[cfg(debug_assertions)]
            Bell::Simulated { rung, changed } => {
                *rung.lock() = true;
                changed.notify_one();
            }
        }
    }

    /// Waits until the bell rings, one of the sockets takes more, or the moment has come. The bell
    /// has stopped ringing when this returns.
    pub fn wait<'a>(&self, full: impl Iterator<Item = &'a Socket>, until: Option<Instant>) {
        match self {
            Bell::Descriptor(fd) => {
                let mut fds = vec![PollFd::new(fd, PollFlags::IN)];
                fds.extend(
                    full.filter_map(Socket::descriptor)
                        .map(|s| PollFd::from_borrowed_fd(s, PollFlags::OUT)),
                );
                let left = until.map(|due| {
                    let left = due.saturating_duration_since(seam::now());
                    Timespec {
                        tv_sec: left.as_secs() as i64,
                        tv_nsec: i64::from(left.subsec_nanos()),
                    }
                });
                // After an interrupted call the caller looks at everything again, which does no
                // harm. These descriptors give no other error.
                let _ = rustix::event::poll(&mut fds, left.as_ref());
                let mut count = [0; 8];
                let _ = rustix::io::read(fd, &mut count);
            }
            #[cfg(debug_assertions)]
            Bell::Simulated { rung, changed } => {
                let soon = (full.count() > 0).then(|| seam::now() + SIMULATED_POLL);
                let until = [soon, until].into_iter().flatten().min();
                let mut rung = rung.lock();
                while !*rung {
                    match until {
                        None => changed.wait(&mut rung),
                        Some(until) if changed.wait_until(&mut rung, until).timed_out() => break,
                        Some(_) => {}
                    }
                }
                *rung = false;
            }
        }
    }
}
