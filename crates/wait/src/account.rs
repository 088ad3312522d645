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
    pub fn now() -> Mark {
        let mut mark = Mark::without_cpu();
        let waited = mark.class_ns.iter().sum();
        let known = LAST.get().at(mark.at_ns, waited);
        mark.cpu_ns = known.unwrap_or_else(|| Reading::now(mark.at_ns, waited).cpu_ns);
        mark
    }

    /// When it was, by [`crate::timestamp_ns`].
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    fn without_cpu() -> Mark {
        let counters = session::with(|s| {
            let c = &s.counters;
            (
                Class::ALL.map(|class| c.class_ns(class)),
                COUNTED.map(|stat| c.stat(stat)),
            )
        });
        let (class_ns, counted) = counters.unwrap_or_default();
        Mark {
            at_ns: now_ns(),
            cpu_ns: 0,
            class_ns,
            counted,
        }
    }

    /// What this thread has taken since.
    pub fn spent(&self) -> Spent {
        let mut end = Mark::without_cpu();
        let waited: u64 = end.class_ns.iter().sum();
        let outside = (end.at_ns - self.at_ns)
            .saturating_sub(waited.saturating_sub(self.class_ns.iter().sum()));
        end.cpu_ns = match outside < SHORT_NS {
            true => self.cpu_ns + outside,
            false => Reading::now(end.at_ns, waited).cpu_ns,
        };
        self.until(&end)
    }

    fn until(&self, end: &Mark) -> Spent {
        let class_ns = std::array::from_fn(|i| end.class_ns[i].saturating_sub(self.class_ns[i]));
        let idle = class_ns[Class::Idle as usize];
        let waits = class_ns.iter().sum::<u64>() - idle;
        let elapsed_ns = (end.at_ns - self.at_ns).saturating_sub(idle);
        let outside = elapsed_ns.saturating_sub(waits);
        let cpu_ns = end.cpu_ns.saturating_sub(self.cpu_ns).min(outside);
        Spent {
            elapsed_ns,
            cpu_ns,
            runnable_ns: outside - cpu_ns,
            class_ns,
            counted: std::array::from_fn(|i| end.counted[i].saturating_sub(self.counted[i])),
        }
    }
}

impl Spent {
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

    fn mark(at_ns: u64, cpu_ns: u64, waits: &[(Class, u64)]) -> Mark {
        let mut mark = Mark {
            at_ns,
            cpu_ns,
            class_ns: [0; CLASSES],
            counted: [0; COUNTED.len()],
        };
        for (class, ns) in waits {
            mark.class_ns[*class as usize] = *ns;
        }
        mark
    }

    #[test]
    fn time_adds_up_and_idle_waits_are_left_out() {
        let begin = mark(1000, 50, &[(Class::Idle, 7)]);
        let waits = [
            (Class::Idle, 107),
            (Class::Commit, 300),
            (Class::UserIo, 40),
        ];
        let spent = begin.until(&mark(2000, 350, &waits));
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
        let begin = mark(0, 0, &[]);
        let spent = begin.until(&mark(1000, 500, &[(Class::Commit, 800)]));
        assert_eq!((spent.cpu_ns, spent.runnable_ns), (200, 0));
        assert_eq!(spent.elapsed_ns, 1000);
    }
}
