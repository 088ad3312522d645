//! Parks a thread until another wakes it, with a deadline and cancellation. It is the primitive
//! under enqueues and queues.

use crate::remote::Served;
use crate::session::Interrupt;
use crate::{Event, session};
use seam::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitResult {
    Signalled,
    TimedOut,
    Cancelled,
}

/// The place where one thread waits. It is reusable. A signal stays until a wait takes it, so a
/// wake that comes before the wait is not lost.
#[derive(Default)]
pub struct Waiter {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    signalled: bool,
    interrupted: bool,
}

impl Interrupt for Waiter {
    /// Makes a cancellable wait look at its session's cancel flag.
    fn interrupt(&self) {
        self.state.lock().interrupted = true;
        self.changed.notify_one();
    }
}

impl Waiter {
    pub fn new() -> Arc<Waiter> {
        Arc::new(Waiter::default())
    }

    /// Wakes the thread that waits, or the next one that will.
    pub fn wake(&self) {
        self.state.lock().signalled = true;
        self.changed.notify_one();
    }

    /// Forgets a signal nobody waited for.
    pub fn clear(&self) {
        *self.state.lock() = State::default();
    }

    /// Waits, under `event`, until woken, until `deadline`, or until the session's statement is
    /// cancelled. A signal wins over the other two.
    pub fn wait(
        self: &Arc<Self>,
        event: Event,
        p: [u64; 3],
        deadline: Option<Instant>,
    ) -> WaitResult {
        self.wait_as(event, p, deadline, || event)
    }

    /// Waits as `wait` does, whatever becomes of the session's statement. It is for what many wait
    /// for a moment and none can do without. False if the deadline has passed.
    pub fn wait_through(&self, event: Event, p: [u64; 3], deadline: Option<Instant>) -> bool {
        crate::during(event, p, || self.park(deadline, None)) == WaitResult::Signalled
    }

    /// Waits as `wait` does if the name of the wait is known only once it is over, as for a request
    /// to another instance. `event` is shown meanwhile. The time is charged to the event that
    /// `charge` names.
    pub fn wait_as(
        self: &Arc<Self>,
        event: Event,
        p: [u64; 3],
        deadline: Option<Instant>,
        charge: impl FnOnce() -> Event,
    ) -> WaitResult {
        let session = session::current();
        if let Some(s) = &session {
            s.set_waiter(Some(self.clone()));
        }
        let result = crate::during_as(event, p, || {
            let result = self.park(deadline, session.as_deref());
            (result, charge())
        });
        if let Some(s) = &session {
            s.set_waiter(None);
        }
        result
    }

    /// Waits as `wait_as` does for an answer of another instance, `asked`, that was asked at a time
    /// of [`crate::timestamp_ns`]. At the end `served` tells which instance served, and what that
    /// took.
    pub fn wait_remote(
        self: &Arc<Self>,
        event: Event,
        p: [u64; 3],
        deadline: Option<Instant>,
        asked: (u16, u64),
        served: impl FnOnce() -> Option<Served>,
    ) -> WaitResult {
        let session = session::current();
        if let Some(s) = &session {
            s.set_waiter(Some(self.clone()));
        }
        let result = crate::during_remote(event, p, asked, || {
            let result = self.park(deadline, session.as_deref());
            (result, event, served())
        });
        if let Some(s) = &session {
            s.set_waiter(None);
        }
        result
    }

    fn park(&self, deadline: Option<Instant>, session: Option<&session::Session>) -> WaitResult {
        let mut state = self.state.lock();
        loop {
            if state.signalled {
                *state = State::default();
                return WaitResult::Signalled;
            }
            if session.is_some_and(|s| s.cancel_asked()) {
                state.interrupted = false;
                return WaitResult::Cancelled;
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(d) if seam::now() >= d => return WaitResult::TimedOut,
                Some(d) => {
                    self.changed.wait_until(&mut state, d);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wake_before_the_wait_is_not_lost() {
        let w = Waiter::new();
        w.wake();
        assert_eq!(w.wait(Event::Sleep, [0; 3], None), WaitResult::Signalled);
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(
            w.wait(Event::Sleep, [0; 3], Some(soon)),
            WaitResult::TimedOut
        );
    }

    #[test]
    fn a_wait_is_charged_to_what_it_turned_out_to_be() {
        std::thread::spawn(|| {
            let guard = session::register(session::Kind::User, "charged");
            let w = Waiter::new();
            w.wake();
            let shown = guard.session().clone();
            w.wait_as(Event::GcCrRequest, [0; 3], None, || {
                assert_eq!(shown.waiting().unwrap().event, Event::GcCrRequest);
                Event::GcCrBlock2Way
            });
            let counters = &guard.session().counters;
            assert_eq!(counters.waits(Event::GcCrRequest), 0);
            assert_eq!(counters.waits(Event::GcCrBlock2Way), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cancelled_wait_returns() {
        let (send, receive) = std::sync::mpsc::channel();
        let t = std::thread::spawn(move || {
            let guard = session::register(session::Kind::User, "waiter");
            send.send(guard.session().sid).unwrap();
            Waiter::new().wait(Event::Sleep, [0; 3], None)
        });
        assert!(session::cancel(receive.recv().unwrap()));
        assert_eq!(t.join().unwrap(), WaitResult::Cancelled);
    }
}
