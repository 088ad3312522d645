//! SQL trace: a session's waits, kept one by one until its trace takes them.
//!
//! **Invariants.**
//! - A session that is not traced pays one load of its own memory for each wait.
//! - A wait is noted in memory, as it may end under a latch; files are for who takes the waits.
//! - [`WAITS_MAX`] waits are kept. What comes beyond is counted and added up, and told.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::Event;
use crate::remote::{RemoteWait, Served};
use crate::session::{self, Session};
use crate::timeline::Noted;

/// The most waits that are kept between two calls: 65,536 of about 150 bytes are 10 MB.
pub const WAITS_MAX: usize = 65_536;

/// The bit of a level that asks for bind values, and the one that asks for waits.
pub const BINDS: u8 = 4;
pub const WAITS: u8 = 8;

/// A wait that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedWait {
    pub event: Event,
    pub params: [u64; 3],
    pub elapsed_ns: u64,
    /// When it ended, by [`crate::timestamp_ns`].
    pub ended_ns: u64,
    /// The object of the block that came from another instance.
    pub object: Option<u32>,
    /// The wait in its parts, if another instance served it.
    pub remote: Option<RemoteWait>,
}

/// Waits since they were last taken.
#[derive(Default, Debug)]
pub struct Traced {
    pub waits: Vec<TracedWait>,
    /// Waits that were not kept, and their nanoseconds.
    pub left_out: u64,
    pub left_out_ns: u64,
}

/// What a session is traced for, and its waits. Only the session's own thread notes and takes; the
/// latch is for the compiler.
#[derive(Default)]
pub(crate) struct Tracing {
    level: AtomicU8,
    traced: Mutex<Traced>,
}

impl Tracing {
    #[inline]
    pub fn wants_waits(&self) -> bool {
        self.level.load(Relaxed) & WAITS != 0
    }

    #[cold]
    pub fn note(&self, wait: TracedWait) {
        let mut traced = self.traced.lock();
        if traced.waits.len() < WAITS_MAX {
            traced.waits.push(wait);
        } else {
            traced.left_out += 1;
            traced.left_out_ns += wait.elapsed_ns;
        }
    }
}

impl Session {
    /// Notes a wait for the session's trace and its timeline.
    pub(crate) fn trace_wait(
        &self,
        event: Event,
        started_ns: u64,
        ended_ns: u64,
        served: Option<&Served>,
        remote: Option<RemoteWait>,
    ) {
        let transfer = served.and_then(|s| s.transfer);
        let wait = TracedWait {
            event,
            params: std::array::from_fn(|i| self.params[i].load(Relaxed)),
            elapsed_ns: ended_ns.saturating_sub(started_ns),
            ended_ns,
            object: transfer.map(|t| t.object),
            remote,
        };
        if self.tracing.wants_waits() {
            self.tracing.note(wait);
        }
        if self.timeline.is_wanted() {
            let object = wait.object.or_else(|| self.object());
            self.timeline
                .note(Noted::Wait(TracedWait { object, ..wait }));
        }
    }

    /// Whether anybody wants to know of each wait.
    #[inline]
    pub(crate) fn wants_waits(&self) -> bool {
        self.tracing.wants_waits() | self.timeline.is_wanted()
    }

    /// The level of event 10046 at which the session is traced; zero: not.
    pub fn trace_level(&self) -> u8 {
        self.tracing.level.load(Relaxed)
    }
}

/// Sets the level at which this thread's session is traced; zero: not. Waits that nobody has taken
/// stay.
pub fn set_level(level: u8) {
    session::with(|s| s.tracing.level.store(level, Relaxed));
}

/// Processor time that this thread has used.
pub fn thread_cpu_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Takes the waits of this thread's session.
pub fn take() -> Traced {
    session::with(|s| std::mem::take(&mut *s.tracing.traced.lock())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Kind, register};

    fn on_a_session(test: impl FnOnce() + Send + 'static) {
        std::thread::spawn(|| {
            let _session = register(Kind::User, "traced");
            test();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn waits_are_kept_while_they_are_asked_for_and_in_order() {
        on_a_session(|| {
            let wait = |p1| crate::during(Event::Sleep, [p1, 0, 0], || ());
            wait(1);
            set_level(WAITS | BINDS);
            wait(2);
            crate::during_both(Event::LogFileSync, Event::LogFileSyncScn, [3, 0, 0], || {
                ((), Some((crate::timestamp_ns(), None)))
            });
            set_level(BINDS);
            wait(4);
            let taken = take();
            let told: Vec<_> = taken.waits.iter().map(|w| (w.event, w.params[0])).collect();
            let both = [(Event::LogFileSync, 3), (Event::LogFileSyncScn, 3)];
            assert_eq!(told, [&[(Event::Sleep, 2)], &both[..]].concat());
            let ended: Vec<_> = taken.waits.iter().map(|w| w.ended_ns).collect();
            assert!(ended.is_sorted(), "{ended:?}");
            assert!(take().waits.is_empty());
        });
    }

    #[test]
    fn what_is_not_kept_is_told() {
        on_a_session(|| {
            set_level(WAITS);
            for _ in 0..WAITS_MAX + 3 {
                crate::during(Event::Sleep, [0; 3], || ());
            }
            let taken = take();
            assert_eq!((taken.waits.len(), taken.left_out), (WAITS_MAX, 3));
        });
    }
}
