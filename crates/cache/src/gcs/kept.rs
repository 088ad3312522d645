//! The right to latch a block once, kept from reading a row to changing it (R7), so that the block
//! that came for the change is still here when it is made.
//!
//! **Invariants.**
//! - A thread keeps one at most, and nothing but a latch is waited for meanwhile: it is given back
//!   before the thread's next wait of any other kind ([`wait::before_next_wait`]), before it looks
//!   at another block, when the block was changed, and with the statement's end. So a recall waits
//!   for a thread that has all that it needs, or for none.
//! - It is not kept when this instance's state is locked by its thread: whoever asks or takes a
//!   frame gives it back first.

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
    /// The block for which this thread keeps the right: looked at on every way to a block.
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

/// Gives back what this thread keeps of blocks that it looked at to change them
/// ([`Cache::read_to_change`]), if anything: to be called when it will not.
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
    // Taken out first: what is given back may send, and with that look at this again.
    let kept = KEPT.take();
    drop(kept);
}
