//! How failed proofs of a password slow the next ones down.
//!
//! Each source has [`AT_ONCE`] places for guesses. A wrong guess takes a place for a delay that
//! doubles with every failure; its client hears that it was wrong at the end of the delay. The
//! place stays taken if the client leaves before, so leaving wins nothing, and no thread waits for
//! a client that has left. While all places are taken, no proof of the source is looked at. A
//! source that rests for [`MEMORY`] begins anew.
//!
//! **Invariants.** The table has [`MAX_SOURCES`] entries at most, beside those of connections that
//! are proving now. Nothing is waited for under its mutex.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Delay after the first failure.
const FIRST: Duration = Duration::from_millis(100);
/// Longest delay: what a guess costs a source that goes on. Below the time in which a client has to
/// prove itself.
const LONGEST: Duration = Duration::from_secs(5);
/// How long a source's failures are remembered.
const MEMORY: Duration = Duration::from_secs(300);
/// Places of a source. With the longest delay, that is how many guesses it has in 5 seconds.
const AT_ONCE: usize = 4;
/// Sources that are remembered. Beyond that the one that has rested longest is forgotten, so that
/// strangers with many addresses take no memory.
const MAX_SOURCES: usize = 10_000;

#[derive(Default)]
pub struct Guesses(Mutex<HashMap<Source, State>>);

/// An address; of IPv6 the network of 64 bits, which is one customer's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Source(u128);

struct State {
    failures: u32,
    /// Connections that are proving now.
    proving: usize,
    /// Until when wrong guesses take their places.
    taken: Vec<Instant>,
    seen: Instant,
}

impl State {
    /// Places that wrong guesses take.
    fn taken(&mut self, now: Instant) -> usize {
        self.taken.retain(|until| *until > now);
        self.taken.len()
    }
}

impl Source {
    fn of(address: IpAddr) -> Source {
        match address.to_canonical() {
            IpAddr::V4(a) => Source(a.to_bits().into()),
            IpAddr::V6(a) => Source(a.to_bits() >> 64 << 64),
        }
    }
}

/// A connection that is proving itself. Dropping it ends that.
pub struct Proving {
    guesses: Arc<Guesses>,
    source: Source,
}

impl Guesses {
    /// A connection begins to prove itself. `None`: its source has failed, and all its places are
    /// taken.
    pub fn begin(self: &Arc<Guesses>, address: IpAddr, now: Instant) -> Option<Proving> {
        let source = Source::of(address);
        let mut sources = self.0.lock();
        if !sources.contains_key(&source) && sources.len() >= MAX_SOURCES {
            forget_one(&mut sources);
        }
        let state = sources.entry(source).or_insert(State {
            failures: 0,
            proving: 0,
            taken: Vec::new(),
            seen: now,
        });
        if now.saturating_duration_since(state.seen) > MEMORY {
            state.failures = 0;
        }
        if state.failures > 0 && state.proving + state.taken(now) >= AT_ONCE {
            return None;
        }
        state.proving += 1;
        state.seen = now;
        Some(Proving {
            guesses: self.clone(),
            source,
        })
    }
}

fn forget_one(sources: &mut HashMap<Source, State>) {
    let resting = sources.iter().filter(|(_, state)| state.proving == 0);
    let oldest = resting.min_by_key(|(_, state)| state.seen);
    if let Some(source) = oldest.map(|(source, _)| *source) {
        sources.remove(&source);
    }
}

impl Proving {
    /// Whether a proof may be looked at: the source may have guessed wrongly since this connection
    /// began.
    pub fn may_guess(&self, now: Instant) -> bool {
        let mut sources = self.guesses.0.lock();
        let state = sources.get_mut(&self.source);
        state.is_none_or(|state| state.taken(now) < AT_ONCE)
    }

    /// The proof was wrong. Returns how long the client waits for that answer.
    pub fn failed(self, now: Instant) -> Duration {
        let mut sources = self.guesses.0.lock();
        let Some(state) = sources.get_mut(&self.source) else {
            return LONGEST;
        };
        state.seen = now;
        let delay = FIRST
            .saturating_mul(1 << state.failures.min(16))
            .min(LONGEST);
        state.failures += 1;
        state.taken.push(now + delay);
        delay
    }
}

impl Drop for Proving {
    fn drop(&mut self) {
        let mut sources = self.guesses.0.lock();
        if let Some(state) = sources.get_mut(&self.source) {
            state.proving -= 1;
            // Most clients never fail, and need not be remembered.
            if state.proving == 0 && state.failures == 0 {
                sources.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_failure_of_a_source_costs_more() {
        let guesses = Arc::new(Guesses::default());
        let mut now = Instant::now();
        let fail = |from: &str, now| guesses.begin(address(from), now).unwrap().failed(now);
        let mut delays = Vec::new();
        for _ in 0..8 {
            let delay = fail("10.0.0.1", now);
            delays.push(delay.as_millis() as u64);
            now += delay;
        }
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(fail("10.0.0.2", now), FIRST, "another source");
        assert_eq!(fail("2001:db8::1", now), FIRST);
        assert_eq!(fail("2001:db8::2", now), FIRST * 2, "the same customer");
        assert_eq!(fail("::ffff:10.0.0.2", now), FIRST * 2);
        now += MEMORY + FIRST;
        assert_eq!(fail("10.0.0.1", now), FIRST, "it has rested");
    }

    #[test]
    fn a_source_that_has_failed_does_not_guess_at_once() {
        let guesses = Arc::new(Guesses::default());
        let now = Instant::now();
        let from = address("10.0.0.1");
        let mut many: Vec<Proving> = (0..100)
            .map(|_| guesses.begin(from, now).expect("it has not failed"))
            .collect();
        let longest = (0..AT_ONCE)
            .map(|_| many.pop().expect("one of the hundred").failed(now))
            .max();
        // The clients that failed may have left: no other proof is looked at.
        assert!(many.iter().all(|proving| !proving.may_guess(now)));
        assert!(guesses.begin(from, now).is_none());
        assert!(guesses.begin(address("10.0.0.2"), now).is_some());
        let later = now + longest.expect("there were failures");
        assert!(many[0].may_guess(later));
        assert!(
            guesses.begin(from, later).is_none(),
            "the others are proving"
        );
        drop(many);
        let again: Vec<_> = (0..AT_ONCE).map(|_| guesses.begin(from, later)).collect();
        assert!(again.iter().all(Option::is_some));
        assert!(guesses.begin(from, later).is_none());
    }

    #[test]
    fn strangers_take_no_memory() {
        let guesses = Arc::new(Guesses::default());
        let now = Instant::now();
        drop(guesses.begin(address("10.9.9.9"), now));
        assert_eq!(guesses.0.lock().len(), 0, "it has not failed");
        for n in 0..MAX_SOURCES as u32 + 10 {
            let from = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
            guesses.begin(from, now).unwrap().failed(now);
        }
        assert_eq!(guesses.0.lock().len(), MAX_SOURCES);
    }
}
