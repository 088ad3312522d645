//! A hint for loops that wait for another thread without sleeping.

/// Marks a turn of such a loop. In a simulation the other thread runs only then.
#[inline]
pub fn spin_loop() {
    #[cfg(debug_assertions)]
    if let Some(task) = crate::sim::current() {
        return task.yield_now();
    }
    std::hint::spin_loop();
}
