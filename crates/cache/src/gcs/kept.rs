//! The right to latch a block once, kept from reading a row to changing it (R7). So the block that
//! came for the change is still here when the change is made.
//!
//! **Invariants.**
//! - A thread keeps one such right at most, and waits for nothing but a latch meanwhile. The right
//!   is given back before the thread's next wait of any other kind ([`wait::before_next_wait`]),
//!   before the thread looks at another block, when it has changed the block, and at the
//!   statement's end. So a recall waits for a thread that has all that it needs, or for none.
//! - The right is not kept while the thread has this instance's state latched. A thread that asks
//!   for a block or takes a frame gives it back first.

use super::admission::Admission;
use super::state::Cause;
use crate::Cache;
use block::Dba;
use fusion::ids::Waiter;
use std::cell::{Cell, RefCell};
use std::sync::Weak;

struct Kept {
    cache: Weak<Cache>,
    dba: Dba,
    waiter: u64,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // Without a cache there is nobody who waits for the block.
        let Some(cache) = self.cache.upgrade() else {
            return;
        };
        let (dba, waiter) = (self.dba, Waiter(self.waiter));
        cache.with_state(dba, |s| {
            cache.step(s, Cause::default(), |shard, out| {
                shard.latched(dba, waiter, out);
            });
        });
    }
}

thread_local! {
    /// The block for which this thread keeps the right. Every way to a block looks at it.
    static OF: Cell<Option<Dba>> = const { Cell::new(None) };
    static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
}

/// Keeps the right. The caller has latched the block, and will again.
pub(crate) fn keep(admission: Admission<'_>) {
    give_back();
    let (cache, dba, waiter) = admission.into_parts();
    let cache = cache.this.get().cloned().unwrap_or_default();
    KEPT.set(Some(Kept { cache, dba, waiter }));
    OF.set(Some(dba));
    wait::before_next_wait(Some(give_back));
}

/// Gives back the right that this thread keeps for a block that it looked at to change it
/// ([`Cache::read_to_change`]), if any. Called when the thread will not change it.
#[inline]
pub fn give_back() {
    if OF.get().is_some() {
        give_back_now();
    }
}

/// Gives back the right that is kept, unless it is for this block.
#[inline]
pub(crate) fn give_back_unless(dba: Dba) {
    if OF.get().is_some_and(|of| of != dba) {
        give_back_now();
    }
}

/// Gives back the right that is kept if it is for this block.
#[inline]
pub(crate) fn give_back_of(dba: impl FnOnce() -> Dba) {
    if OF.get().is_some_and(|of| of == dba()) {
        give_back_now();
    }
}

#[cold]
fn give_back_now() {
    OF.set(None);
    wait::before_next_wait(None);
    // The right is taken out first: giving it back may send, and sending looks here again.
    let kept = KEPT.take();
    drop(kept);
}
