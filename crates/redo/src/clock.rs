//! The SCN clock: a 64-bit Lamport clock, one per instance.
//!
//! Invariants:
//! - The clock never runs backwards, and never passes its *ceiling*, a value that the control file
//!   holds durably. A restarted instance starts at the ceiling, so it can never draw an SCN that it
//!   drew before the crash.
//! - [`Clock::lift`] accepts only plausible values: one bad message must not use up the SCNs of all
//!   time.

use crate::{Error, Result};
use block::Scn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Called, once per ceiling, when half of the way to the ceiling has been used. It runs in whatever
/// thread drew the SCN, perhaps under the log latch. So it may only wake a thread that raises the
/// ceiling.
pub type CeilingHook = Box<dyn Fn(Scn) + Send + Sync>;

/// The SCN clock of an instance (see the module).
pub struct Clock {
    now: AtomicU64,
    /// Half of the way to the ceiling, or `u64::MAX` once the hook has been called for this
    /// ceiling.
    alarm: AtomicU64,
    ceiling: AtomicU64,
    hook: OnceLock<CeilingHook>,
}

impl Clock {
    /// How far ahead of the clock a new ceiling is put. At ten million records a second, half of it
    /// lasts three minutes, and two thousand million restarts use up all SCNs.
    pub const CEILING_STEP: u64 = 1 << 32;
    /// The farthest that one message may lift the clock. An instance that restarted some hundred
    /// times, unheard by this one, may be so far ahead.
    pub const MAX_JUMP: u64 = 1 << 40;

    /// A clock that stands at `start`. Both values come from the control file (`start` is the
    /// former ceiling, or above).
    pub fn new(start: Scn, ceiling: Scn) -> Clock {
        assert!(
            start < ceiling && ceiling <= Scn::MAX,
            "invariant: the clock starts below its ceiling"
        );
        Clock {
            now: AtomicU64::new(start.0),
            alarm: AtomicU64::new(half_way(start.0, ceiling.0)),
            ceiling: AtomicU64::new(ceiling.0),
            hook: OnceLock::new(),
        }
    }

    /// Sets the hook. The keeper of the control file does this, once.
    pub fn on_ceiling_near(&self, hook: CeilingHook) {
        assert!(
            self.hook.set(hook).is_ok(),
            "invariant: the ceiling hook is set once"
        );
    }

    /// The newest SCN drawn or heard of.
    #[inline]
    pub fn now(&self) -> Scn {
        Scn(self.now.load(Ordering::SeqCst))
    }

    /// Draws the next SCN.
    #[inline]
    pub fn tick(&self) -> Scn {
        let scn = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        if scn >= self.alarm.load(Ordering::Relaxed) {
            self.near_ceiling(scn);
        }
        Scn(scn)
    }

    /// Lifts the clock to at least `to`: an SCN read from a message, a block or redo.
    pub fn lift(&self, to: Scn) -> Result<()> {
        let now = self.now();
        if to <= now {
            return Ok(());
        }
        if to.0 - now.0 > Self::MAX_JUMP {
            return Err(Error::ImplausibleScn { now, to });
        }
        let ceiling = self.ceiling();
        if to >= ceiling {
            return Err(Error::AboveCeiling { to, ceiling });
        }
        self.now.fetch_max(to.0, Ordering::SeqCst);
        if to.0 >= self.alarm.load(Ordering::Relaxed) {
            self.near_ceiling(to.0);
        }
        Ok(())
    }

    /// The SCN that the clock must not reach before a higher one is durable.
    pub fn ceiling(&self) -> Scn {
        Scn(self.ceiling.load(Ordering::Acquire))
    }

    /// The ceiling to make durable next, before [`Clock::raise_ceiling`].
    pub fn next_ceiling(&self) -> Scn {
        let next = self
            .now()
            .0
            .saturating_add(Self::CEILING_STEP)
            .max(self.ceiling().0);
        assert!(next < Scn::MAX.0, "SCNs are exhausted");
        Scn(next)
    }

    /// Takes note that `to` is durable as the ceiling. Values below the present ceiling are
    /// ignored.
    pub fn raise_ceiling(&self, to: Scn) {
        assert!(to <= Scn::MAX);
        if self.ceiling.fetch_max(to.0, Ordering::AcqRel) < to.0 {
            self.alarm
                .store(half_way(self.now().0, to.0), Ordering::Release);
        }
    }

    #[cold]
    fn near_ceiling(&self, scn: u64) {
        // Going on would let a restarted instance draw the same SCNs again. The process ends here,
        // which loses nothing that is durable.
        assert!(
            scn < self.ceiling().0,
            "invariant: SCN {scn} was drawn at or above the durable ceiling"
        );
        // The first thread that gets here silences the alarm, but only up to the ceiling: that
        // assertion must stay armed.
        let alarm = self.alarm.load(Ordering::Acquire);
        let ceiling = self.ceiling().0;
        if scn >= alarm
            && alarm < ceiling
            && self
                .alarm
                .compare_exchange(alarm, ceiling, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            && let Some(hook) = self.hook.get()
        {
            hook(Scn(scn));
        }
    }
}

fn half_way(now: u64, ceiling: u64) -> u64 {
    now + (ceiling - now) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn ticks_rise_and_lifts_never_lower() {
        let c = Clock::new(Scn(10), Scn(1000));
        assert_eq!(c.tick(), Scn(11));
        c.lift(Scn(50)).unwrap();
        c.lift(Scn(20)).unwrap();
        assert_eq!((c.now(), c.tick()), (Scn(50), Scn(51)));
    }

    #[test]
    fn implausible_jumps_and_the_ceiling_are_refused() {
        let c = Clock::new(Scn(10), Scn(Clock::MAX_JUMP * 4));
        assert!(matches!(
            c.lift(Scn(11 + Clock::MAX_JUMP)),
            Err(Error::ImplausibleScn { .. })
        ));
        let c = Clock::new(Scn(10), Scn(100));
        assert!(matches!(c.lift(Scn(100)), Err(Error::AboveCeiling { .. })));
        c.raise_ceiling(Scn(200));
        c.lift(Scn(100)).unwrap();
        assert_eq!(c.now(), Scn(100));
    }

    #[test]
    fn the_hook_is_called_once_per_ceiling() {
        let c = Clock::new(Scn(0), Scn(100));
        let calls = Arc::new(AtomicUsize::new(0));
        let seen = calls.clone();
        c.on_ceiling_near(Box::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
        }));
        (0..80).for_each(|_| assert!(c.tick() > Scn::ZERO));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        c.raise_ceiling(Scn(200));
        (0..80).for_each(|_| assert!(c.tick() > Scn::ZERO));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    #[should_panic(expected = "durable ceiling")]
    fn the_ceiling_is_never_passed() {
        let c = Clock::new(Scn(0), Scn(10));
        (0..20).for_each(|_| assert!(c.tick() > Scn::ZERO));
    }
}
