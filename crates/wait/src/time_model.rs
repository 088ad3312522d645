//! The time model: what sessions spent their time on, by session and for the instance
//! (`v$sess_time_model`, `v$sys_time_model`).
//!
//! A session's DB time is its life without its idle waits. It is the processor's, the waits', the
//! time for which the scheduler had the thread runnable without a processor, and a rest. The rest
//! is in no wait's name: where it is more than a few per cent, something blocks that nobody named.
//!
//! **Invariant.** The parts of [`Times`] add up to its DB time.

use crate::session::{self, Kind, Session, now_ns};
use crate::views::{self, Schedule};
use crate::{Class, Stat};

/// What a session's thread had used, and the time, when the session began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Began {
    at_ns: u64,
    schedule: Schedule,
}

impl Began {
    pub fn now() -> Began {
        Began {
            at_ns: now_ns(),
            schedule: views::own_schedule(),
        }
    }
}

/// Times in microseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Times {
    pub db_us: u64,
    /// Processor time outside of waits.
    pub cpu_us: u64,
    /// Processor time within waits: of their system calls, mostly. A part of `waits_us`.
    pub cpu_in_waits_us: u64,
    pub waits_us: u64,
    /// Runnable without a processor, outside of waits.
    pub runnable_us: u64,
    /// Neither of these.
    pub unaccounted_us: u64,
}

impl Times {
    fn of(db_us: u64, waits_us: u64, used: Schedule) -> Times {
        let waits_us = waits_us.min(db_us);
        let outside = db_us - waits_us;
        let cpu_us = used.cpu_us.min(outside);
        let runnable_us = used.runnable_us.min(outside - cpu_us);
        Times {
            db_us,
            cpu_us,
            cpu_in_waits_us: used.cpu_us - cpu_us,
            waits_us,
            runnable_us,
            unaccounted_us: outside - cpu_us - runnable_us,
        }
    }

    pub fn add(&mut self, other: &Times) {
        self.db_us += other.db_us;
        self.cpu_us += other.cpu_us;
        self.cpu_in_waits_us += other.cpu_in_waits_us;
        self.waits_us += other.waits_us;
        self.runnable_us += other.runnable_us;
        self.unaccounted_us += other.unaccounted_us;
    }

    /// Processor time, also that within waits.
    pub fn all_cpu_us(&self) -> u64 {
        self.cpu_us + self.cpu_in_waits_us
    }
}

/// The times of sessions that have ended.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Ended {
    user: Times,
    background: Times,
}

impl Ended {
    pub fn add(&mut self, kind: Kind, times: &Times) {
        match kind {
            Kind::User => self.user.add(times),
            Kind::Background => self.background.add(times),
        }
    }
}

/// The times of a session until now.
pub fn of(s: &Session) -> Times {
    let now = now_ns();
    let under_way = s.waiting().map_or((0, 0), |w| match w.event.class() {
        Class::Idle => (w.for_ns, 0),
        _ => (0, w.for_ns),
    });
    let idle = s.counters.class_ns(Class::Idle) + under_way.0;
    let waits: u64 = Class::ALL
        .iter()
        .filter(|class| **class != Class::Idle)
        .map(|class| s.counters.class_ns(*class))
        .sum();
    let used = views::schedule(s.tid);
    let used = Schedule {
        cpu_us: used.cpu_us.saturating_sub(s.began.schedule.cpu_us),
        runnable_us: (used.runnable_us).saturating_sub(s.began.schedule.runnable_us),
    };
    let db_ns = now.saturating_sub(s.began.at_ns).saturating_sub(idle);
    Times::of(db_ns / 1000, (waits + under_way.1) / 1000, used)
}

/// The times of the instance: of its users' sessions, and of its background threads.
pub fn of_instance() -> (Times, Times) {
    let (alive, mut sums) = session::list_with_ended();
    for s in &alive {
        sums.add(s.kind, &of(s));
    }
    (sums.user, sums.background)
}

/// A session's times by the field's names, in microseconds. Those of parsing and execution are
/// parts of DB time, too, and do not count for background threads.
pub fn named(kind: Kind, times: &Times, stat: impl Fn(Stat) -> u64) -> Vec<(&'static str, u64)> {
    match kind {
        Kind::Background => vec![
            ("background elapsed time", times.db_us),
            ("background cpu time", times.all_cpu_us()),
        ],
        Kind::User => vec![
            ("DB time", times.db_us),
            ("DB CPU", times.all_cpu_us()),
            ("CPU outside of waits", times.cpu_us),
            ("non-idle wait time", times.waits_us),
            ("run queue time", times.runnable_us),
            ("unaccounted time", times.unaccounted_us),
            ("parse time elapsed", stat(Stat::ParseTime) / 1000),
            ("hard parse elapsed time", stat(Stat::ParseTimeHard) / 1000),
            ("sql execute elapsed time", stat(Stat::ExecuteTime) / 1000),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    #[test]
    fn the_parts_add_up_whatever_the_scheduler_says() {
        for (db, waits, cpu, runnable) in [
            (1000, 300, 500, 100),
            (1000, 300, 900, 100),
            (1000, 300, 500, 900),
            (1000, 1300, 500, 0),
            (0, 0, 5, 5),
        ] {
            let used = Schedule {
                cpu_us: cpu,
                runnable_us: runnable,
            };
            let t = Times::of(db, waits, used);
            let sum = t.cpu_us + t.waits_us + t.runnable_us + t.unaccounted_us;
            assert_eq!(sum, t.db_us, "{t:?}");
            assert_eq!(t.all_cpu_us(), cpu);
        }
    }

    /// A session that blocks where nobody named a wait shows it.
    #[test]
    fn a_wait_without_a_name_is_unaccounted() {
        let blocked = |named: bool| {
            std::thread::spawn(move || {
                let guard = session::register(Kind::User, "unnamed");
                let (send, receive) = std::sync::mpsc::channel();
                let waker = std::thread::spawn(move || {
                    let until = now_ns() + 30_000_000;
                    while now_ns() < until {
                        std::thread::yield_now();
                    }
                    send.send(()).unwrap();
                });
                match named {
                    true => crate::during(Event::EnqUl, [0; 3], || receive.recv().unwrap()),
                    false => receive.recv().unwrap(),
                }
                waker.join().unwrap();
                of(guard.session())
            })
            .join()
            .unwrap()
        };
        let (named, unnamed) = (blocked(true), blocked(false));
        assert!(named.waits_us >= 29_000, "{named:?}");
        assert!(unnamed.waits_us == 0, "{unnamed:?}");
        let rest = unnamed.unaccounted_us + unnamed.runnable_us;
        assert!(rest >= 25_000, "{unnamed:?}");
    }

    #[test]
    fn what_ended_sessions_took_stays() {
        let before = of_instance().0;
        let taken = std::thread::spawn(|| {
            let guard = session::register(Kind::User, "ended");
            let until = now_ns() + 3_000_000;
            while now_ns() < until {}
            of(guard.session()).db_us
        });
        let taken = taken.join().unwrap();
        assert!(taken >= 3000);
        assert!(of_instance().0.db_us >= before.db_us + taken);
    }
}
