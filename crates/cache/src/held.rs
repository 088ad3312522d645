//! How many frame latches a thread holds (R7).

use std::cell::Cell;

thread_local! {
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// Frame latches this thread holds.
pub fn latches_held() -> u32 {
    HELD.get()
}

/// Rule R7: to be called by whatever may wait.
#[track_caller]
pub(crate) fn assert_none_held(what: &str) {
    assert!(
        HELD.get() == 0,
        "invariant R7: {what} with {} frame latches held",
        HELD.get()
    );
}

/// A frame latch was taken.
pub(crate) fn count() {
    HELD.set(HELD.get() + 1);
}

/// One was let go.
pub(crate) fn uncount() {
    HELD.set(HELD.get() - 1);
}
