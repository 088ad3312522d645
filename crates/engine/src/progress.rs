//! Reports of how far a long task has come.

/// Hears how far a long task has come. `total` is zero if nobody knows it.
pub trait Progress: Sync {
    fn step(&self, what: &str, done: u64, total: u64);
    /// Whether the task is still wanted. A task asks this while it waits for others, which may last
    /// for ever.
    fn is_wanted(&self) -> bool {
        true
    }
}
