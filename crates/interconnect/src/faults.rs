//! Faults that tests inject between two instances. Each end has its own faults: they concern what
//! this instance sends to a peer, reads from it, and connects. So a cut can be in one direction
//! only.
//!
//! The path of a message looks at one flag if no fault is set.

use block::InstanceId;
use seam::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The fault on the way to one peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fault {
    /// How much later every frame leaves.
    pub delay: Duration,
    /// Whether the way is cut: nothing leaves, and no connection is made or accepted. What was sent
    /// is kept, as TCP does, until the cut is healed or the connection drops.
    pub cut: bool,
    /// Whether this instance reads nothing from the LMS lanes: the peer's frames stay in the
    /// buffers, which fill up. The control lane goes on.
    pub deaf: bool,
    /// How many of the last frames of each lane are sent again on the next connection, as a peer
    /// sees it if requests are driven again.
    pub repeat: usize,
}

/// The faults of an interconnect, shared with the test that torments it (see the module).
#[derive(Default)]
pub struct Faults {
    armed: AtomicBool,
    by_peer: Mutex<BTreeMap<u16, Fault>>,
    changed: Condvar,
}

/// Why a frame does not leave now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    Cut,
    Until(Instant),
}

impl Faults {
    /// Replaces the fault on the way to `peer`. Use [`crate::Interconnect::set_fault`], which also
    /// wakes the threads that wait because of the old fault.
    pub(crate) fn set(&self, peer: InstanceId, fault: Fault) {
        let mut by_peer = self.by_peer.lock();
        by_peer.insert(peer.0, fault);
        let any = by_peer.values().any(|f| *f != Fault::default());
        self.armed.store(any, Ordering::Release);
        self.changed.notify_all();
    }

    pub(crate) fn get(&self, peer: InstanceId) -> Fault {
        if !self.armed.load(Ordering::Acquire) {
            return Fault::default();
        }
        self.by_peer
            .lock()
            .get(&peer.0)
            .copied()
            .unwrap_or_default()
    }

    pub(crate) fn hold(&self, peer: InstanceId) -> Option<Hold> {
        let fault = self.get(peer);
        match fault {
            Fault { cut: true, .. } => Some(Hold::Cut),
            Fault { delay, .. } if !delay.is_zero() => Some(Hold::Until(seam::now() + delay)),
            _ => None,
        }
    }

    /// Returns once `peer` may be read from, or once `stopped` says so.
    pub(crate) fn wait_while_deaf(&self, peer: InstanceId, stopped: impl Fn() -> bool) {
        if !self.get(peer).deaf {
            return;
        }
        let mut by_peer = self.by_peer.lock();
        while by_peer.get(&peer.0).is_some_and(|f| f.deaf) && !stopped() {
            self.changed.wait(&mut by_peer);
        }
    }

    /// Lets [`Faults::wait_while_deaf`] ask again.
    pub(crate) fn wake(&self) {
        let _by_peer = self.by_peer.lock();
        self.changed.notify_all();
    }
}
