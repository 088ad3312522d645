//! What a piece of a session's work has taken: elapsed time in its parts, and what was counted.
//!
//! **Invariant.** Elapsed time is the processor's, the waits' by class, and the rest, in which the
//! thread was runnable without a processor. Idle waits are no part of it. A wait's own system call
//! is the wait's: processor time counts up to what the waits leave.
//!
//! The processor's clock of a thread is a system call, which a statement of some microseconds would
//! feel twice. It is asked at the end of what took [`SHORT_NS`] or more outside of waits; what is
//! shorter has hardly been kept from a processor, and counts as its time. At a beginning it is
//! asked if it was not for [`KNOWN_NS`]; meanwhile the thread is taken to have run whenever it did
//! not wait.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use crate::session::{self, now_ns};
use crate::trace::thread_cpu_ns;
use crate::{Class, Stat};

const CLASSES: usize = Class::ALL.len();

/// The statistics that are counted for statements.
const COUNTED: [Stat; 8] = [
    Stat::ConsistentGets,
    Stat::DbBlockGets,
    Stat::PhysicalReads,
    Stat::DbBlockChanges,
    Stat::RedoEntries,
    Stat::RedoSize,
    Stat::GcCrBlocksReceived,
    Stat::GcCurrentBlocksReceived,
];

/// A scheduler that takes the processor away keeps it for longer.
const SHORT_NS: u64 = 100_000;
const KNOWN_NS: u64 = 1_000_000;

/// When the processor's clock of this thread was asked last, what it said, and how long the session
/// had waited by then.
#[derive(Clone, Copy, Default)]
struct Reading {
    at_ns: u64,
    cpu_ns: u64,
    waited_ns: u64,
}

thread_local! {
    static LAST: Cell<Reading> = Cell::default();
}

impl Reading {
    fn now(at_ns: u64, waited_ns: u64) -> Reading {
        let reading = Reading {
            at_ns,
            cpu_ns: thread_cpu_ns(),
            waited_ns,
        };
        LAST.set(reading);
        reading
    }

    /// What the clock says at a moment, if it was asked so shortly before that this is known.
    fn at(&self, at_ns: u64, waited_ns: u64) -> Option<u64> {
        let since = at_ns.saturating_sub(self.at_ns);
        let waited = waited_ns.saturating_sub(self.waited_ns);
        (since < KNOWN_NS).then(|| self.cpu_ns + since.saturating_sub(waited))
    }
}

/// Where this thread's session stood at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at_ns: u64,
    cpu_ns: u64,
    /// The sum of `class_ns`.
    waited_ns: u64,
    class_ns: [u64; CLASSES],
    counted: [u64; COUNTED.len()],
}

/// What was taken since a [`Mark`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Spent {
    /// Without idle waits.
    pub elapsed_ns: u64,
    /// Outside of waits.
    pub cpu_ns: u64,
    /// Neither on a processor nor in a wait.
    pub runnable_ns: u64,
    class_ns: [u64; CLASSES],
    counted: [u64; COUNTED.len()],
}

impl Mark {
    /// The present moment. Outside a session nothing is counted.
    #[inline]
    pub fn now() -> Mark {
        let mut mark = Mark {
            at_ns: now_ns(),
            cpu_ns: 0,
            waited_ns: 0,
            class_ns: [0; CLASSES],
            counted: [0; COUNTED.len()],
        };
        session::with(|s| {
            mark.waited_ns = s.counters.waited_ns();
            for (to, ns) in mark.class_ns.iter_mut().zip(s.counters.of_classes()) {
                *to = ns.load(Relaxed);
            }
            for (i, to) in mark.counted.iter_mut().enumerate() {
                *to = s.counters.stat(COUNTED[i]);
            }
        });
        let known = LAST.get().at(mark.at_ns, mark.waited_ns);
        mark.cpu_ns = known.unwrap_or_else(|| Reading::now(mark.at_ns, mark.waited_ns).cpu_ns);
        mark
    }

    /// When it was, by [`crate::timestamp_ns`].
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// What this thread has taken since. Most statements wait for nothing: then no class is looked
    /// at.
    #[inline]
    pub fn spent(&self) -> Spent {
        let mut spent = Spent::default();
        let mut waited_ns = self.waited_ns;
        session::with(|s| {
            waited_ns = s.counters.waited_ns();
            if waited_ns != self.waited_ns {
                let classes = self.class_ns.iter().zip(s.counters.of_classes());
                for (to, (from, ns)) in spent.class_ns.iter_mut().zip(classes) {
                    *to = ns.load(Relaxed).saturating_sub(*from);
                }
            }
            for (i, to) in spent.counted.iter_mut().enumerate() {
                *to = (s.counters.stat(COUNTED[i])).saturating_sub(self.counted[i]);
            }
        });
        let at_ns = now_ns();
        let waited = waited_ns.saturating_sub(self.waited_ns);
        let outside = (at_ns - self.at_ns).saturating_sub(waited);
        let cpu_ns = match outside < SHORT_NS {
            true => outside,
            false => Reading::now(at_ns, waited_ns)
                .cpu_ns
                .saturating_sub(self.cpu_ns),
        };
        spent.add_up(at_ns - self.at_ns, cpu_ns);
        spent
    }
}

impl Spent {
    /// Divides the time that was taken, idle waits included, now that the waits are known.
    #[inline]
    fn add_up(&mut self, taken_ns: u64, cpu_ns: u64) {
        let idle = self.class_ns[Class::Idle as usize];
        let waits = self.class_ns.iter().sum::<u64>() - idle;
        self.elapsed_ns = taken_ns.saturating_sub(idle);
        let outside = self.elapsed_ns.saturating_sub(waits);
        self.cpu_ns = cpu_ns.min(outside);
        self.runnable_ns = outside - self.cpu_ns;
    }

    pub fn waited_ns(&self, class: Class) -> u64 {
        self.class_ns[class as usize]
    }

    /// Of one of the statistics that are counted for statements; zero of others.
    pub fn stat(&self, stat: Stat) -> u64 {
        let at = COUNTED.iter().position(|s| *s == stat);
        at.map_or(0, |at| self.counted[at])
    }

    /// Buffer gets of both kinds.
    pub fn gets(&self) -> u64 {
        self.stat(Stat::ConsistentGets) + self.stat(Stat::DbBlockGets)
    }

    pub fn add(&mut self, other: &Spent) {
        self.elapsed_ns += other.elapsed_ns;
        self.cpu_ns += other.cpu_ns;
        self.runnable_ns += other.runnable_ns;
        for (to, from) in self.class_ns.iter_mut().zip(other.class_ns) {
            *to += from;
        }
        for (to, from) in self.counted.iter_mut().zip(other.counted) {
            *to += from;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(taken_ns: u64, cpu_ns: u64, waits: &[(Class, u64)]) -> Spent {
        let mut spent = Spent::default();
        for (class, ns) in waits {
            spent.class_ns[*class as usize] = *ns;
        }
        spent.add_up(taken_ns, cpu_ns);
        spent
    }

    #[test]
    fn time_adds_up_and_idle_waits_are_left_out() {
        let waits = [
            (Class::Idle, 100),
            (Class::Commit, 300),
            (Class::UserIo, 40),
        ];
        let spent = spent(1000, 300, &waits);
        assert_eq!(spent.elapsed_ns, 900);
        assert_eq!(spent.cpu_ns, 300);
        assert_eq!(spent.runnable_ns, 260);
        assert_eq!(spent.waited_ns(Class::Commit), 300);
    }

    #[test]
    fn the_clock_is_known_for_a_while_after_it_was_asked() {
        let asked = Reading {
            at_ns: 1000,
            cpu_ns: 50,
            waited_ns: 10,
        };
        assert_eq!(asked.at(1700, 410), Some(50 + 300));
        assert_eq!(asked.at(1000 + KNOWN_NS, 410), None);
    }

    #[test]
    fn what_is_short_and_waits_for_nothing_is_the_processors() {
        let spent = Mark::now().spent();
        assert!(spent.elapsed_ns >= SHORT_NS || spent.runnable_ns == 0);
        let begun = Mark::now();
        while now_ns() - begun.at_ns < 20 * SHORT_NS {
            std::hint::spin_loop();
        }
        let spent = begun.spent();
        assert!(spent.cpu_ns > 0 && spent.cpu_ns + spent.runnable_ns == spent.elapsed_ns);
    }

    /// A thread that writes within its wait uses the processor for it: that time must not be
    /// counted twice.
    #[test]
    fn the_processor_time_of_a_wait_is_the_waits() {
        let spent = spent(1000, 500, &[(Class::Commit, 800)]);
        assert_eq!((spent.cpu_ns, spent.runnable_ns), (200, 0));
        assert_eq!(spent.elapsed_ns, 1000);
    }

    #[test]
    fn what_was_waited_for_is_told_by_its_class() {
        std::thread::spawn(|| {
            let _session = session::register(session::Kind::User, "marked");
            let begun = Mark::now();
            crate::during(crate::Event::LogFileSync, [0; 3], || {
                let from = now_ns();
                while now_ns() - from < 1000 {
                    std::hint::spin_loop();
                }
            });
            crate::stat::add(Stat::RedoEntries, 3);
            let spent = begun.spent();
            assert!(spent.waited_ns(Class::Commit) >= 1000);
            assert!(spent.elapsed_ns >= spent.waited_ns(Class::Commit));
            assert_eq!(spent.stat(Stat::RedoEntries), 3);
            assert_eq!(begun.spent().waited_ns(Class::UserIo), 0);
        })
        .join()
        .expect("the thread");
    }
}
