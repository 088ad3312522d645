//! One lane to one peer: its sending end, the connection that waits to be taken over, and its
//! counters.

use crate::calls::{CREDITS, Credits};
use crate::frame::Lane;
use crate::handshake::Proved;
use crate::outbox::{Counters, Outbox};
use block::InstanceId;
use seam::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;
use wait::Event;

pub(crate) struct Link {
    pub peer: InstanceId,
    pub lane: Lane,
    pub outbox: Outbox,
    pub counters: Counters,
    pub credits: Arc<Credits>,
    incoming: Mutex<Incoming>,
    changed: Condvar,
}

#[derive(Default)]
struct Incoming {
    /// A connection that the acceptor has proved, for the lane's thread to take. A later one
    /// replaces an earlier one, which the peer has given up.
    offered: Option<Proved>,
    stopping: bool,
    /// Why the last connection ended or could not be made.
    trouble: Option<String>,
}

/// The first pause after a connection was lost or could not be made. `LONGEST_PAUSE` is the
/// longest.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The pauses between attempts to connect. They double, and begin anew once a connection has been
/// of use.
#[derive(Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    pub fn next(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10));
        self.failures += 1;
        pause.min(LONGEST_PAUSE)
    }
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

impl Link {
    pub fn new(peer: InstanceId, lane: Lane) -> Link {
        Link {
            peer,
            lane,
            outbox: Outbox::new(lane),
            counters: Counters::default(),
            credits: Arc::new(Credits::new(CREDITS)),
            incoming: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The parameters of this lane's wait events.
    pub fn params(&self) -> [u64; 3] {
        [u64::from(self.peer.0), u64::from(self.lane.0), 0]
    }

    /// Hands a connection to the lane's thread, and ends the connection that the thread has.
    pub fn offer(&self, proved: Proved) {
        let mut incoming = self.incoming.lock();
        if incoming.stopping {
            // The lane's thread is gone. A connection that nobody reads would look alive to the
            // peer.
            proved.stream.shutdown();
            return;
        }
        if let Some((_, stream)) = self.outbox.connected() {
            stream.shutdown();
        }
        if let Some(earlier) = incoming.offered.replace(proved) {
            earlier.stream.shutdown();
        }
        self.changed.notify_all();
    }

    /// Whether the connection that the lane's thread has is no longer wanted: another one has been
    /// handed over, or the peer was removed while this one was made.
    pub fn is_replaced(&self) -> bool {
        let incoming = self.incoming.lock();
        incoming.offered.is_some() || incoming.stopping
    }

    /// Waits for a connection from the acceptor. None if the mesh is stopping.
    pub fn wait_offered(&self) -> Option<Proved> {
        wait::during(Event::RdbmsIpcMessage, self.params(), || {
            let mut incoming = self.incoming.lock();
            loop {
                if incoming.stopping {
                    return None;
                }
                if let Some(p) = incoming.offered.take() {
                    return Some(p);
                }
                self.changed.wait(&mut incoming);
            }
        })
    }

    /// Pauses between attempts; the pause ends early when the mesh stops.
    pub fn pause(&self, time: Duration) {
        let until = seam::now() + time;
        wait::during(Event::RdbmsIpcMessage, self.params(), || {
            let mut incoming = self.incoming.lock();
            while !incoming.stopping {
                if self.changed.wait_until(&mut incoming, until).timed_out() {
                    return;
                }
            }
        });
    }

    pub fn stop(&self) {
        let mut incoming = self.incoming.lock();
        incoming.stopping = true;
        if let Some(offered) = incoming.offered.take() {
            offered.stream.shutdown();
        }
        self.changed.notify_all();
        drop(incoming);
        self.drop_connection();
    }

    pub fn drop_connection(&self) {
        if let Some((_, stream)) = self.outbox.connected() {
            stream.shutdown();
        }
    }

    pub fn set_trouble(&self, why: Option<String>) {
        self.incoming.lock().trouble = why;
    }
    pub fn trouble(&self) -> Option<String> {
        self.incoming.lock().trouble.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew() {
        let mut b = Backoff::default();
        let pauses: Vec<u128> = (0..8).map(|_| b.next().as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 500, 500]);
        b.reset();
        assert_eq!(b.next(), FIRST_PAUSE);
    }
}
