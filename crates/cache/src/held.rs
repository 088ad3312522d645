//! The number of frame latches that a thread holds (R7).

use std::cell::Cell;

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// The number of frame latches that this thread holds.
pub fn latches_held() -> u32 {
    HELD.get()
}

/// Asserts rule R7: no frame latch is held. Everything that may wait calls this.
#[track_caller]
pub(crate) fn assert_none_held(what: &str) {
    assert!(
        HELD.get() == 0,
        "invariant R7: {what} with {} frame latches held",
        HELD.get()
    );
}

/// Notes that a frame latch was taken.
pub(crate) fn count() {
    HELD.set(HELD.get() + 1);
}

/// Notes that a frame latch was let go.
pub(crate) fn uncount() {
    HELD.set(HELD.get() - 1);
}
