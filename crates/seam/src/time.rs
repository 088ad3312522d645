//! Clocks. A simulation's own moves when a step is made, and jumps when nobody can run.

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

/// Time since a moment of [`now`].
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

/// The clock of the simulation that this thread belongs to, in nanoseconds; none outside one. For clocks of our own that count from elsewhere.
#[inline]
pub fn simulated_ns() -> Option<u64> {
    #[cfg(debug_assertions)]
    if let Some(task) = crate::sim::current() {
        return Some(task.now_ns());
    }
    None
}
