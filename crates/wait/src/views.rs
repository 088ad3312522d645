//! The rows of the `v$` views that this crate's data feeds. Names and types of columns belong to
//! `sql`; the numbers are here.

use crate::session::{self, BUCKETS, Session};
use crate::{AshRow, Event, Stat, activity, ash, latch};
use std::sync::Arc;

pub use crate::latch::{LatchMissRow, LatchRow};

/// Totals of one event (`v$system_event`, and `v$session_event` with a session).
#[derive(Clone, Copy, Debug)]
pub struct EventRow {
    pub event: Event,
    pub waits: u64,
    pub time_us: u64,
    pub max_us: u64,
}

/// Totals of one event, and the part of clients' sessions (`v$system_event`).
#[derive(Clone, Copy, Debug)]
pub struct SystemEventRow {
    pub all: EventRow,
    pub users_waits: u64,
    pub users_time_us: u64,
}

/// One bucket of an event's histogram: waits shorter than `below_us` and not in a lower bucket.
#[derive(Clone, Copy, Debug)]
pub struct HistogramRow {
    pub event: Event,
    pub below_us: u64,
    pub waits: u64,
}

/// The CPU time of a thread from the scheduler (`v$process`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Schedule {
    pub cpu_us: u64,
    /// The time for which the thread was runnable without a CPU.
    pub runnable_us: u64,
}

pub fn sessions() -> Vec<Arc<Session>> {
    session::list()
}

pub fn session_events(s: &Session) -> Vec<EventRow> {
    let c = &s.counters;
    events(|event| EventRow {
        event,
        waits: c.waits(event),
        time_us: c.wait_ns(event) / 1000,
        max_us: c.max_ns(event) / 1000,
    })
}

pub fn system_events() -> Vec<SystemEventRow> {
    let all = events(|event| EventRow {
        event,
        waits: session::total(|c| c.waits(event)),
        time_us: session::total(|c| c.wait_ns(event)) / 1000,
        max_us: session::maximum(|c| c.max_ns(event)) / 1000,
    });
    let with_users = |all: EventRow| SystemEventRow {
        all,
        users_waits: session::total_of_users(|c| c.waits(all.event)),
        users_time_us: session::total_of_users(|c| c.wait_ns(all.event)) / 1000,
    };
    all.into_iter().map(with_users).collect()
}

/// The rows of all events except those that were never waited for.
fn events(row: impl Fn(Event) -> EventRow) -> Vec<EventRow> {
    Event::ALL
        .iter()
        .map(|&e| row(e))
        .filter(|r| r.waits > 0)
        .collect()
}

pub fn event_histogram() -> Vec<HistogramRow> {
    let mut rows = Vec::new();
    for &event in Event::ALL {
        for bucket in 0..BUCKETS {
            let waits = session::total(|c| c.bucket(event, bucket));
            if waits > 0 {
                rows.push(HistogramRow {
                    event,
                    below_us: 1 << bucket,
                    waits,
                });
            }
        }
    }
    rows
}

pub fn system_stats() -> Vec<(Stat, u64)> {
    Stat::ALL.iter().map(|&s| (s, system_stat(s))).collect()
}

/// The value of one of [`system_stats`].
pub fn system_stat(stat: Stat) -> u64 {
    session::total(|c| c.stat(stat))
}

pub fn session_stats(s: &Session) -> Vec<(Stat, u64)> {
    Stat::ALL
        .iter()
        .map(|&stat| (stat, s.counters.stat(stat)))
        .collect()
}

/// The latches by class (`v$latch`).
pub fn latches() -> Vec<LatchRow> {
    latch::classes()
}

pub fn latch_children() -> Vec<LatchRow> {
    latch::children()
}

pub fn latch_misses() -> Vec<LatchMissRow> {
    latch::misses()
}

pub fn active_session_history() -> Vec<AshRow> {
    ash::rows()
}

/// The samples of the last hour, added up in steps.
pub fn active_session_summary() -> Vec<activity::Step> {
    activity::steps()
}

/// The CPUs that a thread may run on, as `0,2-3`, if they are fewer than the machine has. None if
/// they are not fewer, or if the thread is gone.
pub fn cpus(tid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
    let allowed = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    let all = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    (allowed.trim() != all.trim()).then(|| allowed.trim().to_string())
}

/// What the scheduler says of a thread. Zero if the thread is gone or the kernel keeps no
/// statistics.
pub fn schedule(tid: u32) -> Schedule {
    schedule_in(&format!("/proc/self/task/{tid}/schedstat"))
}

/// The state of a thread, as the kernel tells it: `R` on a processor or runnable, `S` asleep, `D`
/// in uninterruptible sleep, `T` stopped. None if it is gone.
pub fn state(tid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).ok()?;
    // The name before it is in parentheses, and may have some itself.
    let (_, behind) = stat.rsplit_once(") ")?;
    behind.chars().next()
}

/// What the scheduler says of the thread that asks.
pub fn own_schedule() -> Schedule {
    schedule_in("/proc/thread-self/schedstat")
}

fn schedule_in(path: &str) -> Schedule {
    let Ok(text) = std::fs::read_to_string(path) else {
        return Schedule::default();
    };
    let mut ns = text
        .split_whitespace()
        .map(|w| w.parse::<u64>().unwrap_or(0));
    Schedule {
        cpu_us: ns.next().unwrap_or(0) / 1000,
        runnable_us: ns.next().unwrap_or(0) / 1000,
    }
}
