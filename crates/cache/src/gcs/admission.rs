//! The right to latch a block once before it is recalled (R7).

use super::state::Cause;
use crate::Cache;
use block::Dba;
use fusion::ids::Waiter;

/// The right to latch a block once before it is recalled (R7). Dropping it, after the latch, gives
/// it back.
pub(crate) struct Admission<'a> {
    pub(super) cache: &'a Cache,
    pub(super) dba: Dba,
    pub(super) waiter: u64,
}

impl<'a> Admission<'a> {
    /// Takes the right apart, for a caller that gives it back itself.
    pub(super) fn into_parts(self) -> (&'a Cache, Dba, u64) {
        let parts = (self.cache, self.dba, self.waiter);
        std::mem::forget(self);
        parts
    }
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        let (dba, waiter) = (self.dba, Waiter(self.waiter));
        self.cache.with_state(dba, |s| {
            self.cache.step(s, Cause::default(), |shard, out| {
                shard.latched(dba, waiter, out);
            });
        });
    }
}
