//! What a piece of a session's work has taken: elapsed time in its parts, and what was counted.
//!
//! **Invariant.** Elapsed time is the processor's, the waits' by class, and the rest, in which the
//! thread was runnable without a processor. Idle waits are no part of it. A wait's own system call
//! is the wait's: processor time counts up to what the waits leave.

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
            cpu_ns: thread_cpu_ns(),
            class_ns,
            counted,
        }
    }

    /// What this thread has taken since.
    pub fn spent(&self) -> Spent {
        self.until(&Mark::now())
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
