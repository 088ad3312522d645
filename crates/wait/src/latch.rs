//! Latches that count: gets, misses and sleeps per child, and where the sleeper came from.
//!
//! A latch protects memory for a moment and is never held while waiting for anything but another
//! latch. The fast path is one try. Only a failed try counts a miss, looks at the time, and sleeps
//! under the class's event.
//!
//! The holder of a [`Latch`] or [`RwLatch`] counts its gets inside. Gets of buffer frames'
//! [`RawRwLatch`] are not counted: that counter would be the one shared cache line on the way of
//! every read. Their misses and sleeps are counted in the class.

use crate::Event;
use lock_api::{RawMutex as _, RawRwLock as _};
use parking_lot::Mutex;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// A kind of latch, as a static: its name as in `v$latch`, and the event under which its sleepers
/// wait.
pub struct LatchClass {
    pub name: &'static str,
    pub event: Event,
}

/// The counts of one child.
#[derive(Default)]
pub struct LatchCounts {
    pub gets: AtomicU64,
    pub misses: AtomicU64,
    pub sleeps: AtomicU64,
    pub wait_ns: AtomicU64,
}

struct Child {
    class: &'static LatchClass,
    number: u32,
    counts: LatchCounts,
}

/// One row of `v$latch_children`.
#[derive(Clone, Debug)]
pub struct LatchRow {
    pub name: &'static str,
    pub child: u32,
    pub gets: u64,
    pub misses: u64,
    pub sleeps: u64,
    pub wait_us: u64,
}

/// One row of `v$latch_misses`: sleeps by the place in the code that asked.
#[derive(Clone, Debug)]
pub struct LatchMissRow {
    pub name: &'static str,
    pub location: String,
    pub sleeps: u64,
}

#[derive(Default)]
struct Registry {
    children: Vec<Weak<Child>>,
    next_number: HashMap<&'static str, u32>,
    /// The counts of children that are gone, by class name, so that totals never fall.
    gone: HashMap<&'static str, [u64; 4]>,
    misses: HashMap<(&'static str, &'static str, u32), u64>,
}

static REGISTRY: Mutex<Option<Registry>> = Mutex::new(None);

fn registry<R>(f: impl FnOnce(&mut Registry) -> R) -> R {
    f(REGISTRY.lock().get_or_insert_with(Registry::default))
}

impl Child {
    fn new(class: &'static LatchClass) -> Arc<Child> {
        registry(|r| {
            let number = r.next_number.entry(class.name).or_default();
            *number += 1;
            let child = Arc::new(Child {
                class,
                number: *number,
                counts: LatchCounts::default(),
            });
            if r.children.len() == r.children.capacity() {
                r.children.retain(|c| c.strong_count() > 0);
            }
            r.children.push(Arc::downgrade(&child));
            child
        })
    }
    fn row(&self) -> LatchRow {
        let c = &self.counts;
        LatchRow {
            name: self.class.name,
            child: self.number,
            gets: c.gets.load(Relaxed),
            misses: c.misses.load(Relaxed),
            sleeps: c.sleeps.load(Relaxed),
            wait_us: c.wait_ns.load(Relaxed) / 1000,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let row = self.row();
        registry(|r| {
            let gone = r.gone.entry(row.name).or_default();
            for (to, from) in gone
                .iter_mut()
                .zip([row.gets, row.misses, row.sleeps, row.wait_us])
            {
                *to += from;
            }
        });
    }
}

/// All children that are alive.
pub(crate) fn children() -> Vec<LatchRow> {
    // The children are upgraded under the registry's latch and dropped outside it: dropping the
    // last reference takes that latch, too.
    let alive: Vec<Arc<Child>> =
        registry(|r| r.children.iter().filter_map(Weak::upgrade).collect());
    alive.iter().map(|c| c.row()).collect()
}

/// The totals by class, with the children that are gone. `child` is zero.
pub(crate) fn classes() -> Vec<LatchRow> {
    let mut rows: HashMap<&'static str, LatchRow> = HashMap::new();
    let blank = |name| LatchRow {
        name,
        child: 0,
        gets: 0,
        misses: 0,
        sleeps: 0,
        wait_us: 0,
    };
    for c in children() {
        let row = rows.entry(c.name).or_insert_with(|| blank(c.name));
        row.gets += c.gets;
        row.misses += c.misses;
        row.sleeps += c.sleeps;
        row.wait_us += c.wait_us;
    }
    registry(|r| {
        for (name, gone) in &r.gone {
            let row = rows.entry(name).or_insert_with(|| blank(name));
            row.gets += gone[0];
            row.misses += gone[1];
            row.sleeps += gone[2];
            row.wait_us += gone[3];
        }
    });
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|r| r.name);
    rows
}

pub(crate) fn misses() -> Vec<LatchMissRow> {
    let mut rows: Vec<_> = registry(|r| {
        r.misses
            .iter()
            .map(|(&(name, file, line), &sleeps)| LatchMissRow {
                name,
                location: format!("{file}:{line}"),
                sleeps,
            })
            .collect()
    });
    rows.sort_by_key(|r| std::cmp::Reverse(r.sleeps));
    rows
}

/// The slow path of every latch: it waits by `wait`, and charges the wait.
#[cold]
fn sleep(child: &Child, place: &'static Location<'static>, wait: impl FnOnce()) {
    child.counts.misses.fetch_add(1, Relaxed);
    child.counts.sleeps.fetch_add(1, Relaxed);
    let before = seam::now();
    crate::waits::during_latch(child.class.event, [0, u64::from(child.number), 0], wait);
    child
        .counts
        .wait_ns
        .fetch_add(seam::elapsed(before).as_nanos() as u64, Relaxed);
    registry(|r| {
        *r.misses
            .entry((child.class.name, place.file(), place.line()))
            .or_default() += 1
    });
}

/// A mutual exclusion latch around the data it protects.
pub struct Latch<T> {
    raw: seam::RawMutex,
    child: Arc<Child>,
    data: UnsafeCell<T>,
}

// SAFETY: the raw mutex gives out the data to one thread at a time, as `std::sync::Mutex` does.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    pub fn new(class: &'static LatchClass, data: T) -> Latch<T> {
        Latch {
            raw: seam::RawMutex::INIT,
            child: Child::new(class),
            data: UnsafeCell::new(data),
        }
    }

    #[track_caller]
    #[inline]
    pub fn lock(&self) -> LatchGuard<'_, T> {
        if !self.raw.try_lock() {
            sleep(&self.child, Location::caller(), || self.raw.lock());
        }
        self.guard()
    }

    pub fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        self.raw.try_lock().then(|| self.guard())
    }

    /// The guard of a raw mutex that has just been taken.
    fn guard(&self) -> LatchGuard<'_, T> {
        let gets = &self.child.counts.gets;
        gets.store(gets.load(Relaxed) + 1, Relaxed); // written by the holder only
        LatchGuard {
            latch: self,
            _here: PhantomData,
        }
    }
}

/// A held latch. It is not `Send`: the thread that took the latch lets it go. It is shared between
/// threads only if the data may be.
pub struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    _here: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives out `&T` and nothing else.
unsafe impl<T: Sync> Sync for LatchGuard<'_, T> {}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while the raw mutex is held.
        unsafe { &*self.latch.data.get() }
    }
}
impl<T> DerefMut for LatchGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { &mut *self.latch.data.get() }
    }
}
impl<T> Drop for LatchGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this guard holds the mutex.
        unsafe { self.latch.raw.unlock() }
    }
}

/// A shared/exclusive latch around the data it protects. A locked instruction counts shared gets:
/// use this latch if readers are few, and an atomic pointer swap if they are many.
pub struct RwLatch<T> {
    inner: seam::RwLock<T>,
    child: Arc<Child>,
}

impl<T> RwLatch<T> {
    pub fn new(class: &'static LatchClass, data: T) -> RwLatch<T> {
        RwLatch {
            inner: seam::RwLock::new(data),
            child: Child::new(class),
        }
    }

    #[track_caller]
    pub fn read(&self) -> seam::RwLockReadGuard<'_, T> {
        self.child.counts.gets.fetch_add(1, Relaxed);
        let place = Location::caller();
        self.inner.try_read().unwrap_or_else(|| {
            let mut guard = None;
            sleep(&self.child, place, || guard = Some(self.inner.read()));
            guard.expect("invariant: the wait ends with the latch held")
        })
    }

    #[track_caller]
    pub fn write(&self) -> seam::RwLockWriteGuard<'_, T> {
        self.child.counts.gets.fetch_add(1, Relaxed);
        let place = Location::caller();
        self.inner.try_write().unwrap_or_else(|| {
            let mut guard = None;
            sleep(&self.child, place, || guard = Some(self.inner.write()));
            guard.expect("invariant: the wait ends with the latch held")
        })
    }
}

/// A latch without data and without counts of its own, for buffer frames: eight bytes. Misses and
/// sleeps go to the given [`LatchGroup`].
pub struct RawRwLatch {
    raw: seam::RawRwLock,
}

/// The counts of all frames' latches.
pub struct LatchGroup {
    child: Arc<Child>,
}

impl LatchGroup {
    pub fn new(class: &'static LatchClass) -> LatchGroup {
        LatchGroup {
            child: Child::new(class),
        }
    }
}

impl Default for RawRwLatch {
    fn default() -> Self {
        RawRwLatch::new()
    }
}

impl RawRwLatch {
    pub const fn new() -> RawRwLatch {
        RawRwLatch {
            raw: seam::RawRwLock::INIT,
        }
    }

    #[inline]
    pub fn try_lock_shared(&self) -> bool {
        self.raw.try_lock_shared()
    }
    #[inline]
    pub fn try_lock_exclusive(&self) -> bool {
        self.raw.try_lock_exclusive()
    }
    /// Takes the latch shared. It waits under the group's event; `p` are the event's parameters.
    #[track_caller]
    #[inline]
    pub fn lock_shared(&self, group: &LatchGroup) {
        if !self.raw.try_lock_shared() {
            sleep(&group.child, Location::caller(), || self.raw.lock_shared());
        }
    }
    #[track_caller]
    #[inline]
    pub fn lock_exclusive(&self, group: &LatchGroup) {
        if !self.raw.try_lock_exclusive() {
            sleep(&group.child, Location::caller(), || {
                self.raw.lock_exclusive()
            });
        }
    }

    /// # Safety
    /// The calling thread holds the latch shared.
    #[inline]
    pub unsafe fn unlock_shared(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.raw.unlock_shared() }
    }

    /// # Safety
    /// The calling thread holds the latch exclusively.
    #[inline]
    pub unsafe fn unlock_exclusive(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.raw.unlock_exclusive() }
    }

    /// Turns an exclusive hold into a shared one without letting a writer in between.
    ///
    /// # Safety
    /// The calling thread holds the latch exclusively.
    pub unsafe fn downgrade(&self) {
        use lock_api::RawRwLockDowngrade;
        // SAFETY: by this function's contract.
        unsafe { self.raw.downgrade() }
    }

    pub fn is_locked_exclusive(&self) -> bool {
        self.raw.is_locked_exclusive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CLASS: LatchClass = LatchClass {
        name: "test latch",
        event: Event::LatchFree,
    };

    /// Tells whether a type is `Send` or `Sync`: an inherent constant, if its bound holds, goes
    /// before the trait's.
    struct IsSend<T>(PhantomData<T>);
    struct IsSync<T>(PhantomData<T>);
    trait Not {
        const YES: bool = false;
    }
    impl<T> Not for IsSend<T> {}
    impl<T> Not for IsSync<T> {}
    impl<T: Send> IsSend<T> {
        const YES: bool = true;
    }
    impl<T: Sync> IsSync<T> {
        const YES: bool = true;
    }

    /// A guard is `Sync` only if its data is. Otherwise safe code could share the guard of a
    /// `Latch<Cell<u64>>` among threads, which would lose each other's updates.
    #[test]
    fn guards_stay_with_their_thread_and_are_shared_only_if_the_data_may_be() {
        use std::cell::Cell;
        let send = [
            IsSend::<u64>::YES,
            IsSend::<LatchGuard<'static, u64>>::YES,
            IsSend::<crate::session::SessionGuard>::YES,
        ];
        assert_eq!(send, [true, false, false]);
        let sync = [
            IsSync::<Latch<Cell<u64>>>::YES,
            IsSync::<LatchGuard<'static, Cell<u64>>>::YES,
            IsSync::<LatchGuard<'static, u64>>::YES,
        ];
        assert_eq!(sync, [true, false, true]);
    }

    #[test]
    fn gets_and_sleeps_are_counted_per_child() {
        let latch = Arc::new(Latch::new(&CLASS, 0u64));
        let held = latch.lock();
        let other = latch.clone();
        let t = std::thread::spawn(move || *other.lock() += 1);
        while latch.child.counts.misses.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        drop(held);
        t.join().unwrap();
        assert_eq!(*latch.lock(), 1);
        let row = children()
            .into_iter()
            .find(|c| c.name == "test latch" && c.child == latch.child.number)
            .unwrap();
        assert_eq!((row.gets, row.misses, row.sleeps), (3, 1, 1));
        assert!(
            misses()
                .iter()
                .any(|m| m.name == "test latch" && m.location.contains("latch.rs"))
        );
    }

    #[test]
    fn totals_survive_the_latch() {
        static GONE: LatchClass = LatchClass {
            name: "gone latch",
            event: Event::LatchFree,
        };
        drop(Latch::new(&GONE, ()).lock());
        {
            let latch = Latch::new(&GONE, ());
            drop(latch.lock());
        }
        assert_eq!(
            classes()
                .iter()
                .find(|c| c.name == "gone latch")
                .unwrap()
                .gets,
            2
        );
    }
}
