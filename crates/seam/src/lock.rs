//! The locks of builds with debug assertions: those of `parking_lot`, in which a thread of a
//! simulation never waits.

use crate::sim::{self, Key, Task, Woken};
use lock_api::RawMutex as _;
use std::time::{Duration, Instant};

pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

fn key<T>(of: &T) -> Key {
    Key::Lock(std::ptr::from_ref(of).addr())
}

/// Tries until the lock is got. A thread that lets the lock go makes the waiters try again.
fn acquire(task: Task, key: Key, until: Option<Instant>, try_lock: impl Fn() -> bool) -> bool {
    task.point();
    while !try_lock() {
        if task.block(key, until) == Woken::InTime {
            continue;
        }
        return try_lock();
    }
    true
}

pub struct RawMutex {
    inner: parking_lot::RawMutex,
}

// SAFETY: exclusion is that of the lock inside, which every way to hold this one takes.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "what the trait asks for"
    )]
    const INIT: RawMutex = RawMutex {
        inner: parking_lot::RawMutex::INIT,
    };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        match sim::current() {
            None => self.inner.lock(),
            Some(task) => {
                acquire(task, key(self), None, || self.inner.try_lock());
            }
        }
    }
    #[inline]
    fn try_lock(&self) -> bool {
        if let Some(task) = sim::current() {
            task.point();
        }
        self.inner.try_lock()
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.inner.unlock() }
        if let Some(task) = sim::current() {
            task.released(key(self));
        }
    }
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.try_lock_until(crate::now() + timeout)
    }
    fn try_lock_until(&self, timeout: Instant) -> bool {
        match sim::current() {
            None => self.inner.try_lock_until(timeout),
            Some(task) => acquire(task, key(self), Some(timeout), || self.inner.try_lock()),
        }
    }
}

pub struct RawRwLock {
    inner: parking_lot::RawRwLock,
}

// SAFETY: exclusion is that of the lock inside, which every way to hold this one takes.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(
        clippy::declare_interior_mutable_const,
        reason = "what the trait asks for"
    )]
    const INIT: RawRwLock = RawRwLock {
        inner: parking_lot::RawRwLock::INIT,
    };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        match sim::current() {
            None => self.inner.lock_shared(),
            Some(task) => {
                acquire(task, key(self), None, || self.inner.try_lock_shared());
            }
        }
    }
    #[inline]
    fn try_lock_shared(&self) -> bool {
        if let Some(task) = sim::current() {
            task.point();
        }
        self.inner.try_lock_shared()
    }
    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.inner.unlock_shared() }
        if let Some(task) = sim::current() {
            task.released(key(self));
        }
    }
    #[inline]
    fn lock_exclusive(&self) {
        match sim::current() {
            None => self.inner.lock_exclusive(),
            Some(task) => {
                acquire(task, key(self), None, || self.inner.try_lock_exclusive());
            }
        }
    }
    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        if let Some(task) = sim::current() {
            task.point();
        }
        self.inner.try_lock_exclusive()
    }
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.inner.unlock_exclusive() }
        if let Some(task) = sim::current() {
            task.released(key(self));
        }
    }
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
    fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.inner.downgrade() }
        if let Some(task) = sim::current() {
            task.released(key(self));
        }
    }
}

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition variable. Outside a simulation a waiter takes `gate` before it lets its mutex go,
/// and a notifier takes it, too. So no notification falls between the two.
#[derive(Default)]
pub struct Condvar {
    gate: parking_lot::Mutex<()>,
    told: parking_lot::Condvar,
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar {
            gate: parking_lot::Mutex::new(()),
            told: parking_lot::Condvar::new(),
        }
    }

    fn key(&self) -> Key {
        Key::Condition(std::ptr::from_ref(self).addr())
    }

    pub fn notify_one(&self) -> bool {
        match sim::current() {
            Some(task) => task.notify(self.key(), false) > 0,
            None => {
                let _gate = self.gate.lock();
                self.told.notify_one()
            }
        }
    }

    pub fn notify_all(&self) -> usize {
        match sim::current() {
            Some(task) => task.notify(self.key(), true),
            None => {
                let _gate = self.gate.lock();
                self.told.notify_all()
            }
        }
    }

    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_for_notice(guard, None);
    }

    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        until: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for_notice(guard, Some(until))
    }

    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        // A time beyond what the clock can express means for ever.
        self.wait_for_notice(guard, crate::now().checked_add(time))
    }

    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        time: Duration,
    ) -> WaitTimeoutResult {
        let until = crate::now().checked_add(time);
        let mut result = WaitTimeoutResult(false);
        while !result.timed_out() && condition(guard) {
            result = self.wait_for_notice(guard, until);
        }
        WaitTimeoutResult(result.timed_out() && condition(guard))
    }

    fn wait_for_notice<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        until: Option<Instant>,
    ) -> WaitTimeoutResult {
        // SAFETY: the guard says that the raw mutex is held. It is let go here and taken again
        // before this returns. Nobody uses the guard meanwhile.
        let raw = unsafe { MutexGuard::mutex(guard).raw() };
        let Some(task) = sim::current() else {
            let mut gate = self.gate.lock();
            // SAFETY: as above.
            unsafe { raw.inner.unlock() }
            let timed_out = match until {
                None => {
                    self.told.wait(&mut gate);
                    false
                }
                Some(until) => self.told.wait_until(&mut gate, until).timed_out(),
            };
            drop(gate);
            raw.inner.lock();
            return WaitTimeoutResult(timed_out);
        };
        // No other thread runs between the two, so no notification is lost.
        // SAFETY: as above.
        unsafe { raw.inner.unlock() }
        task.wake(key(raw));
        let woken = task.block(self.key(), until);
        raw.lock();
        WaitTimeoutResult(woken == Woken::TooLate)
    }
}
