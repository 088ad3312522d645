//! Clocks. A simulation's clock moves when a step is made, and jumps when no thread can run.

use std::time::{Duration, Instant, SystemTime};

/// The monotonic clock.
#[inline]
pub fn now() -> Instant {
    #[cfg(debug_assertions)]
    if let Some(task) = crate::sim::current() {
        return task.now();
    }
    Instant::now()
}

/// The time since a moment of [`now`].
#[inline]
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// The clock on the wall.
#[inline]
pub fn wall_clock() -> SystemTime {
    #[cfg(debug_assertions)]
    if let Some(task) = crate::sim::current() {
        return task.wall_clock();
    }
    SystemTime::now()
}

/// The clock of the simulation that this thread belongs to, in nanoseconds. None outside a
/// simulation. It is for clocks of ours that count from another moment.
#[inline]
pub fn simulated_ns() -> Option<u64> {
    #[cfg(debug_assertions)]
    if let Some(task) = crate::sim::current() {
        return Some(task.now_ns());
    }
    None
}
