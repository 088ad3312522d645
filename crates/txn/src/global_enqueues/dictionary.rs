//! Whether this instance's picture of the dictionary is the present one.
//!
//! One lock stands for the whole dictionary. Its value is the SCN of the last change. An instance
//! that changes the dictionary has the lock exclusively from before the commit until the commit is
//! published. So every other instance learns by the recall that its picture is stale, before
//! anybody hears of the commit. When an instance next needs the dictionary, it reads it again,
//! under the lock, unless the value is the one at which its picture was read.
//!
//! **Invariant.** The flag says "valid" only while the instance keeps the lock shared, or has read
//! the picture since.

use super::{GlobalEnqueues, State, global};
use crate::local_enqueues::{Enqueues, Locker};
use crate::{Level, LockMode, LockWait, NameClass, Resource, Result};
use fusion::ges::Value;
use redo::Clock;
use seam::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The lock on the dictionary as a whole. Names in it have a zero in the second place.
pub(crate) const PICTURE: Resource = Resource::Name(NameClass::Dictionary, 0, 1);

#[derive(Default)]
pub(super) struct Picture {
    valid: Arc<AtomicBool>,
    /// The value at which the picture was read. Written under the machine's latch.
    of: Mutex<Option<Value>>,
}

impl Picture {
    pub(super) fn is_stale(&self) {
        self.valid.store(false, Ordering::SeqCst);
    }
}

impl GlobalEnqueues {
    /// A flag that is set as long as the picture need not be checked.
    pub(crate) fn dictionary_flag(&self) -> Arc<AtomicBool> {
        self.picture.valid.clone()
    }

    /// Reads the dictionary again if it has changed. The caller's transaction must not change it.
    pub(crate) fn refresh_dictionary<E>(
        &self,
        clock: &Clock,
        read: impl FnOnce() -> std::result::Result<(), E>,
    ) -> Result<std::result::Result<(), E>> {
        let reader = Reader {
            locker: self.enqueues.register(),
            enqueues: &self.enqueues,
            global: self,
        };
        reader.lock()?;
        let resource = global(PICTURE).expect("invariant: the dictionary is everybody's");
        let known = self.state.lock().machine.value_of(resource);
        if known.is_none() || known != *self.picture.of.lock() {
            let done = read();
            if done.is_err() {
                return Ok(done);
            }
        }
        let mut s = self.state.lock();
        let State { machine, out, .. } = &mut *s;
        if known.is_none() {
            let now = clock.now().0;
            let value = Value {
                version: now,
                data: now,
            };
            machine.value_read(resource, value, out);
        }
        *self.picture.of.lock() = machine.value_of(resource);
        if !machine.is_recalled(resource) {
            self.picture.valid.store(true, Ordering::SeqCst);
        }
        let letters = self.carry_out(&mut s);
        drop(s);
        self.send(letters);
        Ok(Ok(()))
    }

    /// Prepares a commit that changes the dictionary. The session has [`PICTURE`] exclusively, and
    /// puts the change into this instance's picture itself.
    pub(crate) fn dictionary_changes(&self, locker: &Locker, clock: &Clock) {
        let resource = global(PICTURE).expect("invariant: the dictionary is everybody's");
        let mut s = self.state.lock();
        let before = s.machine.value_of(resource);
        let owner = self.owner(locker.id);
        let after = s.machine.set_value(resource, owner, clock.now().0);
        let mut of = self.picture.of.lock();
        if before.is_some() && *of == before {
            *of = Some(after);
        }
    }
}

/// A locker for one reading.
struct Reader<'a> {
    locker: Arc<Locker>,
    enqueues: &'a Enqueues,
    global: &'a GlobalEnqueues,
}

impl Reader<'_> {
    fn lock(&self) -> Result<()> {
        let (mode, wait) = (LockMode::S, LockWait::Forever);
        let level = Level::Transaction;
        self.global.take(&self.locker, PICTURE, (mode, level), wait)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // The lock is not held if the wait for it was cancelled.
        self.enqueues
            .unlock(&self.locker, PICTURE, LockMode::S, Level::Transaction);
        self.global.lower(&self.locker, PICTURE);
        self.enqueues.unregister(&self.locker);
    }
}
