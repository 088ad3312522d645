//! What a thread has computed of passwords: for tests that compare the steps of two exchanges, of
//! which a client may not tell one from the other.

use std::cell::Cell;

/// Steps of this thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Steps {
    /// HMACs and hashes.
    pub hashes: u64,
    /// Rounds of the hash of a password.
    pub rounds: u64,
    /// Verifiers read from their text, and made into it.
    pub verifiers: u64,
    /// Bytes that were drawn at random.
    pub random_bytes: u64,
}

thread_local! {
    static STEPS: Cell<Steps> = const {
        Cell::new(Steps { hashes: 0, rounds: 0, verifiers: 0, random_bytes: 0 })
    };
}

pub(crate) fn note(change: impl FnOnce(&mut Steps)) {
    STEPS.with(|steps| {
        let mut now = steps.get();
        change(&mut now);
        steps.set(now);
    });
}

/// Calls `f`, and says which steps it took.
pub fn steps_of<R>(f: impl FnOnce() -> R) -> (R, Steps) {
    STEPS.with(|steps| steps.set(Steps::default()));
    let result = f();
    (result, STEPS.with(Cell::get))
}
