//! Requests for which a session waits, and where the time of a request went.
//!
//! **Invariants.** A request has at most one outcome: whoever takes it out of the table decides the
//! outcome. A landing belongs either to the table, or to the receiving thread that is filling it,
//! or to the session that got it back. A handler never waits for a call (R8); this is asserted.

use crate::frame::{Lane, Member, ServiceTimes};
use crate::service::{Block, Landing};
use crate::{Error, Result};
use seam::HashMap;
use seam::Mutex;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use wait::{Event, WaitResult, Waiter};

/// The most requests that this instance may have outstanding at one lane of one peer. The answers,
/// with a block each, are 2 MiB; this bounds the peer's queue to this instance.
pub const CREDITS: u32 = 256;

/// The answer to a call.
pub struct Reply {
    pub from: Member,
    pub kind: u16,
    pub epoch: u64,
    pub message: Vec<u8>,
    pub block: Block<'static>,
    /// The landing that the session offered, if no block was put into it.
    pub unused: Option<Box<dyn Landing>>,
    pub provenance: Provenance,
}

/// Where the time of one request went, in nanoseconds. The parts add up to the total.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provenance {
    pub served_by: Member,
    pub total_ns: u64,
    /// The way from the session's send to the server's receive. In a 3-way transfer it leads over
    /// the master.
    pub out_ns: u64,
    pub queue_ns: u64,
    pub pin_ns: u64,
    pub build_ns: u64,
    pub flush_ns: u64,
    /// The time that the server took beyond the parts above.
    pub other_ns: u64,
    pub back_ns: u64,
    /// The time from the arrival of the answer until the session runs again.
    pub wake_ns: u64,
}

/// The moments of a call at both of its ends. `offset` is how far the server's clock is ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    pub sent_ns: u64,
    pub arrived_ns: u64,
    pub woken_ns: u64,
    pub service: ServiceTimes,
    pub answered_ns: u64,
    pub offset_ns: i64,
}

impl Provenance {
    /// Takes a call's time apart. The server's durations are taken as they are. The rest of the
    /// round trip is split between out and back by the clocks' offset, as far as that is plausible.
    pub(crate) fn of(served_by: Member, m: Moments) -> Provenance {
        let total_ns = m.woken_ns.saturating_sub(m.sent_ns);
        let trip_ns = m.arrived_ns.saturating_sub(m.sent_ns).min(total_ns);
        let serving = m.answered_ns.saturating_sub(m.service.received_ns);
        let serving = serving.min(trip_ns);
        let wire = trip_ns - serving;
        let received_here = m.service.received_ns.wrapping_sub(m.offset_ns as u64);
        let out = received_here.wrapping_sub(m.sent_ns) as i64;
        let out_ns = (out.max(0) as u64).min(wire);
        let mut left = serving;
        let mut part = |ns: u64| {
            let ns = ns.min(left);
            left -= ns;
            ns
        };
        Provenance {
            served_by,
            total_ns,
            out_ns,
            queue_ns: part(m.service.queue_ns),
            pin_ns: part(m.service.pin_ns),
            build_ns: part(m.service.build_ns),
            flush_ns: part(m.service.flush_ns),
            other_ns: left,
            back_ns: wire - out_ns,
            wake_ns: total_ns - trip_ns,
        }
    }
}

/// An answer as it arrived. The session adds its own moments.
pub(crate) struct Answer {
    pub from: Member,
    pub kind: u16,
    pub epoch: u64,
    pub message: Vec<u8>,
    pub block: Block<'static>,
    pub service: ServiceTimes,
    pub answered_ns: u64,
    pub arrived_ns: u64,
    pub offset_ns: i64,
}

pub(crate) struct Call {
    to: Member,
    lane: Lane,
    waiter: Arc<Waiter>,
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    landing: Option<Box<dyn Landing>>,
    outcome: Option<Result<Answer>>,
}

const SHARDS: usize = 16;

/// The calls that have no outcome yet, by request number.
#[derive(Default)]
pub(crate) struct Calls {
    last: AtomicU64,
    open: [Mutex<HashMap<u64, Arc<Call>>>; SHARDS],
    late: AtomicU64,
}

thread_local! {
    static HANDLING: Cell<bool> = const { Cell::new(false) };
    /// When the message was read that this thread hands to the service now. Zero if it hands over
    /// none.
    static RECEIVED_NS: Cell<u64> = const { Cell::new(0) };
    static WAITER: Arc<Waiter> = Waiter::new();
}

/// Marks this thread as one that handles messages from now on: it may not wait.
pub(crate) fn forbid_waiting() {
    HANDLING.set(true);
}

/// Runs the handler of a message that was read at `received_ns`.
pub(crate) fn handling<R>(received_ns: u64, handler: impl FnOnce() -> R) -> R {
    RECEIVED_NS.set(received_ns);
    let result = handler();
    RECEIVED_NS.set(0);
    result
}

/// When the message was read that this thread handles now, by the clock of [`crate::now_ns`].
/// Services measure by it what they take. None if the thread handles none.
pub fn handled_message_received_ns() -> Option<u64> {
    Some(RECEIVED_NS.get()).filter(|at| *at > 0)
}

fn assert_may_wait() {
    assert!(
        !HANDLING.get(),
        "invariant: a thread that handles messages never waits (R8)"
    );
}

impl Calls {
    /// Draws a number that no other request of this incarnation has.
    pub fn draw(&self) -> u64 {
        self.last.fetch_add(1, Relaxed) + 1
    }

    fn shard(&self, id: u64) -> &Mutex<HashMap<u64, Arc<Call>>> {
        &self.open[id as usize % SHARDS]
    }

    pub fn begin(
        &self,
        id: u64,
        to: Member,
        lane: Lane,
        landing: Option<Box<dyn Landing>>,
    ) -> Arc<Call> {
        assert_may_wait();
        let call = Arc::new(Call {
            to,
            lane,
            waiter: WAITER.with(Arc::clone),
            slot: Mutex::new(Slot {
                landing,
                outcome: None,
            }),
        });
        let before = self.shard(id).lock().insert(id, call.clone());
        assert!(before.is_none(), "invariant: request {id} is made once");
        call
    }

    /// The memory into which the receiving thread puts the block of this answer.
    pub fn landing_for(
        &self,
        id: u64,
        fits: impl Fn(&mut Box<dyn Landing>) -> bool,
    ) -> Option<Box<dyn Landing>> {
        let call = self.shard(id).lock().get(&id).cloned()?;
        let mut slot = call.slot.lock();
        slot.landing.take_if(|l| fits(l))
    }

    pub fn finish(&self, id: u64, outcome: Result<Answer>) {
        let Some(call) = self.shard(id).lock().remove(&id) else {
            // The session gave up, or its request was driven again and answered twice.
            self.late.fetch_add(1, Relaxed);
            return;
        };
        call.slot.lock().outcome = Some(outcome);
        call.waiter.wake();
    }

    /// The number of answers that nobody waited for any more.
    pub fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }

    /// Fails the calls that `which` names.
    pub fn fail(&self, which: impl Fn(Member, Lane) -> bool, why: &dyn Fn(Member) -> Error) {
        for shard in &self.open {
            let lost: Vec<(u64, Member)> = shard
                .lock()
                .iter()
                .filter(|(_, c)| which(c.to, c.lane))
                .map(|(&id, c)| (id, c.to))
                .collect();
            for (id, to) in lost {
                self.finish(id, Err(why(to)));
            }
        }
    }

    /// Waits for the outcome. The wait is shown as `event`; `charge` names the event that it turned
    /// out to be.
    pub fn wait(
        &self,
        id: u64,
        call: &Call,
        event: Event,
        p: [u64; 3],
        deadline: Option<Instant>,
        charge: &dyn Fn(&Answer) -> Event,
    ) -> (Result<Answer>, Option<Box<dyn Landing>>) {
        loop {
            let result = call.waiter.wait_as(event, p, deadline, || {
                match call.slot.lock().outcome.as_ref() {
                    Some(Ok(answer)) => charge(answer),
                    _ => event,
                }
            });
            // The waiter belongs to the thread: a call given up earlier may still wake it.
            if result == WaitResult::Signalled && call.slot.lock().outcome.is_none() {
                continue;
            }
            if result != WaitResult::Signalled && self.shard(id).lock().remove(&id).is_some() {
                let landing = call.slot.lock().landing.take();
                let why = match result {
                    WaitResult::TimedOut => Error::TimedOut,
                    _ => Error::Cancelled(wait::Cancelled),
                };
                return (Err(why), landing);
            }
            let mut slot = call.slot.lock();
            match slot.outcome.take() {
                Some(outcome) => return (outcome, slot.landing.take()),
                // The call has just been taken out of the table. The outcome follows at once, with
                // a wake.
                None => continue,
            }
        }
    }
}

/// Bounds the requests outstanding at one lane of one peer. Sessions get credits in the order in
/// which they come.
pub(crate) struct Credits {
    state: Mutex<CreditState>,
}

struct CreditState {
    free: u32,
    waiting: VecDeque<Arc<Waiter>>,
}

impl Credits {
    pub fn new(n: u32) -> Credits {
        Credits {
            state: Mutex::new(CreditState {
                free: n,
                waiting: VecDeque::new(),
            }),
        }
    }

    /// Takes a credit. If there is none, the session waits for one under `gc send ticket`.
    pub fn take(self: &Arc<Self>, p: [u64; 2], deadline: Option<Instant>) -> Result<Credit> {
        assert_may_wait();
        let waiter = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Credit(self.clone()));
            }
            let waiter = Waiter::new();
            state.waiting.push_back(waiter.clone());
            waiter
        };
        let result = waiter.wait(Event::GcsSendTicket, [p[0], p[1], 1], deadline);
        if result == WaitResult::Signalled {
            return Ok(Credit(self.clone()));
        }
        let mut state = self.state.lock();
        match state.waiting.iter().position(|w| Arc::ptr_eq(w, &waiter)) {
            Some(i) => {
                state.waiting.remove(i);
            }
            // The credit was handed to this session just as it gave up: it goes to the next
            // session.
            None => state.give_back(),
        }
        Err(match result {
            WaitResult::TimedOut => Error::TimedOut,
            _ => Error::Cancelled(wait::Cancelled),
        })
    }
}

impl CreditState {
    fn give_back(&mut self) {
        match self.waiting.pop_front() {
            Some(next) => next.wake(),
            None => self.free += 1,
        }
    }
}

/// The right to have one request outstanding. Dropping it gives it back.
pub struct Credit(Arc<Credits>);

impl Drop for Credit {
    fn drop(&mut self) {
        self.0.state.lock().give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::InstanceId;
    use std::time::Duration;

    fn member() -> Member {
        Member {
            instance: InstanceId(2),
            incarnation: 1,
        }
    }

    #[test]
    fn the_parts_of_a_call_add_up_whatever_the_clocks_say() {
        for (offset_ns, received_ns) in [
            (0, 1_100),
            (5_000, 6_100),
            (-700, 400),
            (0, 9),
            (0, 1 << 60),
        ] {
            let m = Moments {
                sent_ns: 1_000,
                arrived_ns: 2_000,
                woken_ns: 2_050,
                service: ServiceTimes {
                    received_ns,
                    queue_ns: 10,
                    pin_ns: 20,
                    build_ns: 30,
                    flush_ns: 40,
                },
                answered_ns: received_ns.saturating_add(300),
                offset_ns,
            };
            let p = Provenance::of(member(), m);
            let sum = p.out_ns
                + p.queue_ns
                + p.pin_ns
                + p.build_ns
                + p.flush_ns
                + p.other_ns
                + p.back_ns
                + p.wake_ns;
            assert_eq!((p.total_ns, sum), (1_050, 1_050));
            assert_eq!((p.wake_ns, p.flush_ns, p.other_ns), (50, 40, 200));
            if received_ns.wrapping_sub(offset_ns as u64) == 1_100 {
                assert_eq!((p.out_ns, p.back_ns), (100, 600));
            }
        }
    }

    #[test]
    fn credits_are_handed_on_in_order_and_not_lost() {
        let credits = Arc::new(Credits::new(1));
        let held = credits.take([0; 2], None).unwrap();
        let soon = Some(Instant::now() + Duration::from_millis(1));
        assert!(matches!(credits.take([0; 2], soon), Err(Error::TimedOut)));
        let other = credits.clone();
        let waiting = std::thread::spawn(move || other.take([0; 2], None).map(drop));
        while credits.state.lock().waiting.is_empty() {
            std::thread::yield_now();
        }
        drop(held);
        waiting.join().unwrap().unwrap();
        assert_eq!(credits.state.lock().free, 1);
    }

    #[test]
    fn a_handler_that_would_wait_is_stopped() {
        let r = std::thread::spawn(|| {
            forbid_waiting();
            let _ = Arc::new(Credits::new(1)).take([0; 2], None);
        })
        .join();
        assert!(r.is_err());
    }
}
