//! Snapshots registered by sessions, and the horizon: the SCN at or above which every present and
//! future snapshot lies.
//!
//! **Invariants.** A snapshot is registered *before* its SCN is read: a session stores a lower
//! bound in its slot, fences, and reads the clock. A thread that computes the horizon reads the
//! clock, fences, and reads the slots. One of the two fences is first. So either the computation
//! sees the slot, or the snapshot's SCN is at least the clock value that bounds the computation. A
//! session that is descheduled anywhere in between loses nothing (race 23a of docs/design.md). The
//! horizon that is reported never falls.
//!
//! Among several instances each announces the horizon of its own snapshots (*own*), which binds it
//! for ever. The least of all these horizons counts (*reported*). A member that has not been heard
//! yet counts as the beginning of time, so the horizon stays where it is. The others' least is read
//! after the clock. A joiner starts above a clock value that was read after the joiner was put
//! among the others, hence above every horizon computed without it.

use block::Scn;
use redo::Clock;
use seam::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Snapshots that can be registered at a time: a session has one for its statements and one per
/// open cursor, and every parallel worker one. 16,384 slots of a cache line each take one megabyte.
pub(crate) const MAX_SNAPSHOTS: usize = 16 * 1024;
const NONE: u64 = u64::MAX;

/// One registered snapshot. A slot has a cache line of its own, because its owner writes it with
/// every statement.
#[repr(align(64))]
struct Slot(AtomicU64);

/// All registered snapshots of this instance.
pub(crate) struct Horizon {
    clock: Arc<Clock>,
    slots: Box<[Slot]>,
    /// Slots from here on were never used.
    high: AtomicUsize,
    free: Mutex<Vec<u32>>,
    /// The newest horizon of this instance's own snapshots, which others are told.
    own: AtomicU64,
    /// The least of the other members' horizons; `u64::MAX` without any.
    others: Arc<AtomicU64>,
    /// The newest horizon of all that was reported.
    reported: AtomicU64,
    /// Counts registrations copied from one slot to another. A computation that overlaps one starts
    /// over, because it could have read the new slot too early and the old one too late.
    copies: AtomicU64,
}

impl Horizon {
    pub(crate) fn new(clock: Arc<Clock>, capacity: usize) -> Horizon {
        Horizon {
            clock,
            slots: (0..capacity).map(|_| Slot(AtomicU64::new(NONE))).collect(),
            high: AtomicUsize::new(0),
            free: Mutex::new(Vec::new()),
            own: AtomicU64::new(0),
            others: Arc::new(AtomicU64::new(NONE)),
            reported: AtomicU64::new(0),
            copies: AtomicU64::new(0),
        }
    }

    /// Takes an empty slot for the caller; `None` if all are taken.
    pub(crate) fn take_slot(self: &Arc<Self>) -> Option<SnapshotSlot> {
        let mut free = self.free.lock();
        let index = free.pop().or_else(|| {
            let index = self.high.load(Ordering::Relaxed);
            (index < self.slots.len()).then(|| {
                self.high.store(index + 1, Ordering::SeqCst);
                index as u32
            })
        })?;
        Some(SnapshotSlot {
            horizon: self.clone(),
            index,
        })
    }

    /// The horizon as last computed. It costs one load and may lag.
    pub(crate) fn reported(&self) -> Scn {
        Scn(self.reported.load(Ordering::Acquire))
    }

    /// The place in which the least horizon of the other members is stored.
    pub(crate) fn others(&self) -> Arc<AtomicU64> {
        self.others.clone()
    }

    /// The horizon of this instance's own snapshots as last computed.
    pub(crate) fn own(&self) -> Scn {
        Scn(self.own.load(Ordering::Acquire))
    }

    /// Computes the horizon anew: the oldest registered snapshot, or the clock if there is none,
    /// and at most the others' horizons.
    pub(crate) fn compute(&self) -> Scn {
        loop {
            let now = self.clock.now().0;
            fence(Ordering::SeqCst);
            let copies = self.copies.load(Ordering::SeqCst);
            let high = self.high.load(Ordering::SeqCst);
            let oldest = self.slots[..high]
                .iter()
                .map(|s| s.0.load(Ordering::SeqCst))
                .min()
                .unwrap_or(NONE);
            if self.copies.load(Ordering::SeqCst) == copies {
                let own = now.min(oldest);
                self.own.fetch_max(own, Ordering::AcqRel);
                let horizon = own.min(self.others.load(Ordering::SeqCst));
                return Scn(self
                    .reported
                    .fetch_max(horizon, Ordering::AcqRel)
                    .max(horizon));
            }
            seam::hint::spin_loop();
        }
    }

    /// Number of snapshots registered now; for the statistics.
    pub(crate) fn registered(&self) -> usize {
        let high = self.high.load(Ordering::Acquire);
        self.slots[..high]
            .iter()
            .filter(|s| s.0.load(Ordering::Relaxed) != NONE)
            .count()
    }
}

/// A place to register one snapshot. Dropping it ends the registration.
pub(crate) struct SnapshotSlot {
    horizon: Arc<Horizon>,
    index: u32,
}

impl SnapshotSlot {
    fn slot(&self) -> &AtomicU64 {
        &self.horizon.slots[self.index as usize].0
    }

    /// Takes a new snapshot's SCN and registers it. It replaces what the slot held.
    #[inline]
    pub(crate) fn take(&self) -> Scn {
        let slot = self.slot();
        let bound = self.horizon.clock.now();
        slot.store(bound.0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.horizon.clock.now()
    }

    /// Ends the registration; the slot can be used again.
    #[inline]
    pub(crate) fn clear(&self) {
        self.slot().store(NONE, Ordering::Release);
    }

    /// Registers `scn`, a snapshot that is registered elsewhere and stays so until this call
    /// returns.
    pub(crate) fn copy(&self, scn: Scn) {
        self.slot().store(scn.0, Ordering::SeqCst);
        self.horizon.copies.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for SnapshotSlot {
    fn drop(&mut self) {
        self.clear();
        self.horizon.free.lock().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    fn horizon() -> (Arc<Clock>, Arc<Horizon>) {
        let clock = Arc::new(Clock::new(Scn(1), Scn(1 << 40)));
        (clock.clone(), Arc::new(Horizon::new(clock, 64)))
    }

    #[test]
    fn the_oldest_snapshot_is_the_horizon() {
        let (clock, h) = horizon();
        let (a, b) = (h.take_slot().unwrap(), h.take_slot().unwrap());
        let old = a.take();
        clock.tick();
        b.take();
        assert_eq!(h.compute(), old);
        a.clear();
        assert_eq!((h.compute(), h.registered()), (clock.now(), 1));
        drop((a, b));
        clock.tick();
        assert_eq!((h.compute(), h.registered()), (clock.now(), 0));
    }

    #[test]
    fn slots_are_used_again_and_run_out() {
        let (_, h) = horizon();
        let all: Vec<_> = std::iter::from_fn(|| h.take_slot()).collect();
        assert_eq!(all.len(), 64);
        drop(all);
        assert!(h.take_slot().is_some());
        assert_eq!(h.high.load(Ordering::Relaxed), 64);
    }

    /// Race 23a of docs/design.md: a horizon reported before or while a snapshot is being taken
    /// never exceeds it.
    #[test]
    fn no_snapshot_is_ever_below_the_horizon() {
        let (clock, h) = horizon();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let slot = h.take_slot().unwrap();
                    let mut held = h.take_slot().unwrap();
                    for round in 0..30_000u32 {
                        let scn = slot.take();
                        assert!(
                            h.reported() <= scn,
                            "horizon {:?} passed a snapshot at {scn:?}",
                            h.reported()
                        );
                        if round % 3 == 0 {
                            // The registration moves to another slot, the first is cleared.
                            held.copy(scn);
                            slot.clear();
                            std::thread::yield_now();
                            assert!(h.reported() <= scn, "horizon passed a snapshot that moved");
                            held.clear();
                        } else if round % 7 == 0 {
                            held = h.take_slot().unwrap();
                        }
                        slot.clear();
                    }
                    stop.store(true, Ordering::Relaxed);
                });
            }
            s.spawn(|| {
                let mut before = Scn::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    clock.tick();
                    let now = h.compute();
                    assert!(now >= before, "the horizon fell from {before:?} to {now:?}");
                    before = now;
                }
            });
        });
    }
}
