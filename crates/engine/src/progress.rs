//! Reports of how far a long task has come.

use cache::Cache;
use std::time::Duration;

/// Hears how far a long task has come. `total` is zero if nobody knows it.
pub trait Progress: Sync {
    fn step(&self, what: &str, done: u64, total: u64);
    /// Whether the task is still wanted. A task asks this while it waits for others, which may last
    /// for ever.
    fn is_wanted(&self) -> bool {
        true
    }
}

/// How often a checkpoint says how far it is: to know it, all frames are looked at.
const CHECKPOINT_LOOK: Duration = Duration::from_millis(500);

/// Writes all dirty blocks, and reports how many of them are written.
pub(crate) fn checkpoint(cache: &Cache, what: &str, progress: &dyn Progress) -> cache::Result<()> {
    let total = cache.dirty_frames();
    let mut due = seam::now() + CHECKPOINT_LOOK;
    cache.checkpoint_watched(|| {
        if seam::now() >= due {
            due = seam::now() + CHECKPOINT_LOOK;
            // Blocks may be changed meanwhile, so more may be dirty than there were.
            let done = total.saturating_sub(cache.dirty_frames());
            progress.step(what, done as u64, total as u64);
        }
    })
}
