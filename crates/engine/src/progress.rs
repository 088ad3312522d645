//! How something long tells how far it has come.

/// Hears how far something long has come. `total` is zero if nobody knows it.
pub trait Progress: Sync {
    fn step(&self, what: &str, done: u64, total: u64);
    /// Whether this is still to be done: asked while others are waited for, which may be without an
    /// end.
    fn is_wanted(&self) -> bool {
        true
    }
}
