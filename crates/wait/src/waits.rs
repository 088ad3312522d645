//! **The** function through which everything waits, and its kin. Time is charged to the event that
//! it was spent on.

use crate::Event;
use crate::counters::bump;
use crate::remote::Served;
use crate::session::{Session, current, now_ns};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ENABLED: AtomicBool = AtomicBool::new(true);

thread_local! {
    static BEFORE_WAIT: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Calls `f` once, before this thread's next wait for anything but a latch. It serves what may be
/// kept only as long as the thread waits for nothing.
pub fn before_next_wait(f: Option<fn()>) {
    BEFORE_WAIT.set(f);
}

#[inline]
fn about_to_wait() {
    if let Some(f) = BEFORE_WAIT.take() {
        f();
    }
}

/// Turns the timing of waits off or on, to measure what it costs. Statistics and latches count on.
pub fn set_enabled(on: bool) {
    ENABLED.store(on, Relaxed);
}

/// **The** function through which everything waits. It runs `f` and charges its time to `event` in
/// this thread's session. `p` are the event's parameters.
///
/// Waits do not nest: an inner wait is charged to the inner event and ends the outer one's display.
/// A wait that ends by a panic is charged like any other: a thread that goes on afterwards must not
/// be shown waiting.
#[inline]
pub fn during<R>(event: Event, p: [u64; 3], f: impl FnOnce() -> R) -> R {
    during_as(event, p, || (f(), event))
}

/// Waits as [`during`] does if the wait's name is known only at its end. `event` is shown
/// meanwhile. The time is charged to the event that `f` returns.
#[inline]
pub fn during_as<R>(event: Event, p: [u64; 3], f: impl FnOnce() -> (R, Event)) -> R {
    about_to_wait();
    charged(event, p, f)
}

/// Waits as [`during`] does for a latch, whose holder waits for nothing. So what is given up before
/// a wait is kept.
#[inline]
pub(crate) fn during_latch(event: Event, p: [u64; 3], f: impl FnOnce()) {
    charged(event, p, || (f(), event));
}

#[inline]
fn charged<R>(event: Event, p: [u64; 3], f: impl FnOnce() -> (R, Event)) -> R {
    if !ENABLED.load(Relaxed) {
        return f().0;
    }
    let Some(session) = current() else {
        return f().0;
    };
    let mut charge = Charge {
        started: session.begin_wait(event, p),
        session: &session,
        event,
        served: None,
    };
    let (result, event) = f();
    charge.event = event;
    result
}

/// The present time, in nanoseconds of the clock of waits.
pub fn timestamp_ns() -> u64 {
    now_ns()
}

/// The system's time at a moment of the clock of waits.
pub fn wall_clock_of(at_ns: u64) -> std::time::SystemTime {
    let ago = std::time::Duration::from_nanos(now_ns().saturating_sub(at_ns));
    let now = seam::wall_clock();
    now.checked_sub(ago).unwrap_or(now)
}

/// Waits for what was asked of instance `asked` at `since` ([`timestamp_ns`]). The wait counts from
/// then on. If another instance served it, the wait is taken apart by what the instances that
/// served it say.
pub fn during_remote<R>(
    event: Event,
    p: [u64; 3],
    (asked, since): (u16, u64),
    f: impl FnOnce() -> (R, Event, Option<Served>),
) -> R {
    about_to_wait();
    if !ENABLED.load(Relaxed) {
        return f().0;
    }
    let Some(session) = current() else {
        return f().0;
    };
    session.asked.store(asked.into(), Relaxed);
    let mut charge = Charge {
        started: session.begin_wait_at(since, event, p),
        session: &session,
        event,
        served: None,
    };
    let (result, event, served) = f();
    (charge.event, charge.served) = (event, served);
    result
}

/// Runs two waits in a row between which the thread need not run. `f` returns when the first one
/// ended, by [`timestamp_ns`]; nothing if there was no second one. What comes after is charged to
/// `second`, and taken apart by what another instance says that served it. The first wait is shown
/// all the time.
pub fn during_both<R>(
    first: Event,
    second: Event,
    p: [u64; 3],
    f: impl FnOnce() -> (R, Option<(u64, Option<Served>)>),
) -> R {
    about_to_wait();
    if !ENABLED.load(Relaxed) {
        return f().0;
    }
    let Some(session) = current() else {
        return f().0;
    };
    let mut charge = Charge {
        started: session.begin_wait(first, p),
        session: &session,
        event: first,
        served: None,
    };
    let (result, first_ended) = f();
    if let Some((ended, served)) = first_ended {
        let ended = ended.max(charge.started);
        bump(&session.wait_seq, 1);
        session.counters.add_wait(first, ended - charge.started);
        if session.wants_waits() {
            session.trace_wait(first, charge.started, ended, None, None);
        }
        (charge.event, charge.started) = (second, ended);
        charge.served = served;
    }
    result
}

/// A wait under way. It is charged when it ends, however it ends.
struct Charge<'a> {
    session: &'a Session,
    event: Event,
    started: u64,
    served: Option<Served>,
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        let served = self.served.as_ref();
        self.session.end_wait(self.event, self.started, served);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote;
    use crate::session::*;

    #[test]
    fn waits_are_counted_in_the_session_and_stay_in_the_total() {
        let before = total(|c| c.waits(Event::PmonTimer));
        std::thread::spawn(|| {
            let guard = register(Kind::User, "test");
            assert_eq!(
                during(Event::PmonTimer, [1, 2, 3], || guard
                    .session()
                    .waiting()
                    .map(|w| w.params)),
                Some([1, 2, 3])
            );
            assert!(guard.session().waiting().is_none());
            assert_eq!(guard.session().counters.waits(Event::PmonTimer), 1);
        })
        .join()
        .unwrap();
        assert_eq!(total(|c| c.waits(Event::PmonTimer)), before + 1);
    }

    #[test]
    fn a_wait_for_another_instance_counts_from_the_request_and_is_taken_apart() {
        std::thread::spawn(|| {
            let guard = register(Kind::User, "remote");
            let s = guard.session();
            assert_eq!(s.last_remote(), None);
            let since = timestamp_ns();
            while timestamp_ns() < since + 1_000_000 {
                std::thread::yield_now();
            }
            let served = Served {
                instance: 7,
                messages: 2,
                flush_ns: 400_000,
                ..Served::default()
            };
            during_remote(Event::GcCurrentRequest, [1, 2, 3], (3, since), || {
                let w = s.waiting().unwrap();
                assert_eq!((w.asked, w.event), (Some(3), Event::GcCurrentRequest));
                assert!(w.for_ns >= 1_000_000);
                ((), Event::GcCurrentBlockBusy, Some(served))
            });
            let (number, w) = s.last_remote().unwrap();
            assert_eq!(
                (number, w.instance, w.event),
                (1, 7, Event::GcCurrentBlockBusy)
            );
            assert_eq!(w.total_ns, s.counters.wait_ns(Event::GcCurrentBlockBusy));
            assert_eq!(w.part_ns(remote::Part::Flush), 400_000);
            assert_eq!(w.parts_ns.iter().sum::<u64>(), w.total_ns);
            let row = remote::latencies().into_iter().find(|r| r.instance == 7);
            assert_eq!(row.unwrap().total.time_ns, w.total_ns);
            // A wait that this instance served itself has no parts, and does not hide the last one
            // that has.
            during_remote(Event::GcCurrentRequest, [0; 3], (3, timestamp_ns()), || {
                ((), Event::GcBufferBusyAcquire, None)
            });
            during(Event::PmonTimer, [0; 3], || {
                assert_eq!(s.waiting().unwrap().asked, None);
            });
            assert_eq!(s.last_remote(), Some((1, w)));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn two_waits_in_a_row_are_charged_each() {
        std::thread::spawn(|| {
            let guard = register(Kind::User, "both");
            let counted = || {
                let c = &guard.session().counters;
                [Event::PmonTimer, Event::SmonTimer].map(|e| (c.waits(e), c.wait_ns(e)))
            };
            during_both(Event::PmonTimer, Event::SmonTimer, [0; 3], || ((), None));
            let [first, second] = counted();
            assert_eq!((first.0, second), (1, (0, 0)));
            let hour = 3_600_000_000_000;
            during_both(Event::PmonTimer, Event::SmonTimer, [0; 3], || {
                let served = Served {
                    instance: 9,
                    ..Served::default()
                };
                ((), Some((timestamp_ns() + hour, Some(served))))
            });
            let [both, second] = counted();
            assert_eq!((both.0, second.0, second.1), (2, 1, 0));
            assert!(both.1 - first.1 >= hour, "{both:?} after {first:?}");
            let (_, w) = guard.session().last_remote().unwrap();
            assert_eq!((w.event, w.instance), (Event::SmonTimer, 9));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_is_given_up_before_a_wait_is_given_up_once_and_not_for_a_latch() {
        thread_local! {
            static CALLS: Cell<u32> = const { Cell::new(0) };
        }
        std::thread::spawn(|| {
            before_next_wait(Some(|| CALLS.set(CALLS.get() + 1)));
            during_latch(Event::LatchRedo, [0; 3], || ());
            assert_eq!(CALLS.get(), 0);
            during(Event::PmonTimer, [0; 3], || assert_eq!(CALLS.get(), 1));
            during(Event::PmonTimer, [0; 3], || ());
            assert_eq!(CALLS.get(), 1);
            before_next_wait(Some(|| CALLS.set(CALLS.get() + 1)));
            before_next_wait(None);
            during(Event::PmonTimer, [0; 3], || ());
            assert_eq!(CALLS.get(), 1);
        })
        .join()
        .unwrap();
    }

    /// A panic inside a wait ends the wait: the session is not shown as waiting for ever, and the
    /// wait is counted.
    #[test]
    fn a_wait_that_panics_is_over_and_counted() {
        std::thread::spawn(|| {
            let guard = register(Kind::User, "panics");
            let ended = std::panic::catch_unwind(|| {
                during(Event::PmonTimer, [0; 3], || panic!("while waiting"));
            });
            assert!(ended.is_err());
            assert!(guard.session().waiting().is_none());
            assert_eq!(guard.session().counters.waits(Event::PmonTimer), 1);
            assert_eq!(guard.session().wait_seq(), 1);
        })
        .join()
        .unwrap();
    }
}
