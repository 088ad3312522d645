//! The locks that an instance holds itself, and the storage through which it opens files. No file
//! is written without its lock, and no failed write is passed over.
//!
//! **Invariants.**
//! - After a write or sync that failed, for any reason but want of space, nobody makes another call
//!   on these files that he could take for success: `fatal` is called first, and in production it
//!   does not return. (Trying again is the mistake known as "fsyncgate": the kernel reports a
//!   failure once, drops the pages, and the next sync succeeds over data that is lost. With direct
//!   I/O the device's own cache does that. And an instance that cannot write may have been fenced.)
//! - After [`Lease::release`] nothing is written through it.

use super::{Locked, lease_byte, locks_of};
use crate::{Error, File, FileKind, Result, Storage};
use block::InstanceId;
use seam::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends the instance; its argument says why.
pub type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// The meaning of a write's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnError {
    /// The instance ends: an instance that cannot write may have been fenced.
    EndInstance,
    /// The caller decides: a redo log with two members outlives the loss of one.
    Tell,
}

/// An instance's lease. While it lives, every file opened through [`Lease::storage`] stays open and
/// locked.
pub struct Lease {
    instance: InstanceId,
    fatal: Fatal,
    /// Whether the locks have been given back. Then nothing is written any more.
    released: Arc<AtomicBool>,
    /// The open files by storage and name. It is locked while a file is opened, so that each is
    /// opened once.
    files: Mutex<BTreeMap<(usize, String), Held>>,
    storages: Mutex<Vec<Arc<dyn Storage>>>,
}

struct Held {
    kind: FileKind,
    file: Arc<dyn File>,
    /// A second opening of the file, to look at the lock from outside.
    probe: Arc<dyn File>,
}

impl Lease {
    pub fn new(instance: InstanceId, fatal: Fatal) -> Arc<Lease> {
        Arc::new(Lease {
            instance,
            fatal,
            released: Arc::default(),
            files: Mutex::default(),
            storages: Mutex::default(),
        })
    }

    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// The storage through which this instance opens its files, in place of `storage`. A file whose
    /// lock another process has is refused with [`Error::InUse`].
    pub fn storage(
        self: &Arc<Self>,
        storage: Arc<dyn Storage>,
        on_error: OnError,
    ) -> Arc<dyn Storage> {
        let mut storages = self.storages.lock();
        storages.push(storage.clone());
        Arc::new(LeasedStorage {
            lease: self.clone(),
            number: storages.len() - 1,
            inner: storage,
            on_error,
        })
    }

    /// Checks that every lock is still held. A lost one ends the instance. The instance calls it
    /// every now and then; errors of writes tell sooner.
    pub fn check(&self) -> Result<()> {
        let byte = lease_byte(self.instance);
        let files = self.files.lock();
        for held in files.values() {
            // The holder sees that nobody else has the lock, and another opening sees that somebody
            // has it: then it is ours.
            let result = (|| {
                let taken = locks_of(&*held.file)?.held_by_other(byte)?;
                Ok(!taken && locks_of(&*held.probe)?.held_by_other(byte)?)
            })();
            let why = match result {
                Ok(true) => continue,
                Ok(false) => Error::LockLost {
                    path: held.file.path().to_string(),
                    instance: self.instance.0,
                },
                Err(e) => e,
            };
            (self.fatal)(&why.to_string());
            return Err(why);
        }
        Ok(())
    }

    /// Gives all locks back. The instance has stopped, and what still has its files open can no
    /// longer write them.
    pub fn release(&self) {
        let mut files = self.files.lock();
        self.released.store(true, Ordering::SeqCst);
        for held in std::mem::take(&mut *files).into_values() {
            if let Some(locks) = held.file.locks() {
                // If the lock cannot be let go, the closing of the file does it.
                let _ = locks.unlock(lease_byte(self.instance));
            }
        }
    }

    /// The files that are locked, for messages and views.
    pub fn paths(&self) -> Vec<String> {
        self.files
            .lock()
            .values()
            .map(|h| h.file.path().to_string())
            .collect()
    }

    fn hold(
        &self,
        storage: &LeasedStorage,
        name: &str,
        kind: FileKind,
        create: bool,
    ) -> Result<Arc<dyn File>> {
        let key = (storage.number, name.to_string());
        let mut files = self.files.lock();
        if self.released.load(Ordering::SeqCst) {
            return Err(Error::LockLost {
                path: name.to_string(),
                instance: self.instance.0,
            });
        }
        if let Some(held) = files.get(&key) {
            if create {
                return Err(Error::Exists {
                    path: held.file.path().to_string(),
                });
            }
            if held.kind == kind {
                return Ok(held.file.clone());
            }
            return Err(Error::Control(format!(
                "{} is open as {:?}, it cannot be opened as {kind:?} under the same lease",
                held.file.path(),
                held.kind
            )));
        }
        let file = if create {
            storage.inner.create(name, kind)?
        } else {
            storage.inner.open(name, kind)?
        };
        let Some(lock) = Locked::try_get(file.clone(), lease_byte(self.instance))? else {
            return Err(Error::InUse {
                path: file.path().to_string(),
                by: format!(
                    "another process that is instance {}, or an instance that recovers it",
                    self.instance.0
                ),
            });
        };
        let file: Arc<dyn File> = Arc::new(LeasedFile {
            _lock: lock,
            inner: file,
            instance: self.instance,
            fatal: self.fatal.clone(),
            released: self.released.clone(),
            on_error: storage.on_error,
        });
        let held = Held {
            kind,
            file: file.clone(),
            probe: storage.inner.open(name, kind)?,
        };
        files.insert(key, held);
        Ok(file)
    }
}

struct LeasedStorage {
    lease: Arc<Lease>,
    number: usize,
    inner: Arc<dyn Storage>,
    on_error: OnError,
}

impl LeasedStorage {
    fn check<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result
            && self.on_error == OnError::EndInstance
            && e.is_sync_failure()
        {
            (self.lease.fatal)(&e.to_string());
        }
        result
    }
}

impl Storage for LeasedStorage {
    fn create(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        self.check(self.lease.hold(self, name, kind, true))
    }
    fn open(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        self.lease.hold(self, name, kind, false)
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        let mut files = self.lease.files.lock();
        self.check(self.inner.remove(name))?;
        files.remove(&(self.number, name.to_string()));
        Ok(())
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// A file that is written only under its lock, and whose failed writes end the instance.
struct LeasedFile {
    _lock: Locked,
    inner: Arc<dyn File>,
    instance: InstanceId,
    fatal: Fatal,
    released: Arc<AtomicBool>,
    on_error: OnError,
}

impl LeasedFile {
    fn write<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.released.load(Ordering::SeqCst) {
            return Err(Error::LockLost {
                path: self.inner.path().to_string(),
                instance: self.instance.0,
            });
        }
        let result = f();
        if let Err(e) = &result
            && self.on_error == OnError::EndInstance
            && !e.is_full()
        {
            (self.fatal)(&e.to_string());
        }
        result
    }
}

impl File for LeasedFile {
    fn path(&self) -> &str {
        self.inner.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        self.write(|| self.inner.write_at(offset, buf))
    }
    fn sync(&self) -> Result<()> {
        self.write(|| self.inner.sync())
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn allocate(&self, len: u64, zeroes: bool, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.write(|| self.inner.allocate(len, zeroes, progress))
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.write(|| self.inner.punch(offset, len))
    }
    fn locks(&self) -> Option<&dyn super::ByteLocks> {
        self.inner.locks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, Faults, SECTOR, SimStorage};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// The simulation does what kernels do. The failure is reported once, and what was written
    /// before is lost or not, whatever later syncs say.
    #[test]
    fn the_first_failed_sync_is_fatal_and_a_full_disk_is_not() {
        let sim = SimStorage::new();
        let told = Arc::new(AtomicU32::new(0));
        let teller = told.clone();
        let lease = Lease::new(
            InstanceId(1),
            Arc::new(move |_| {
                teller.fetch_add(1, SeqCst);
            }),
        );
        let s = lease.storage(Arc::new(sim.clone()), OnError::EndInstance);
        let data = s.create("data", FileKind::Data).unwrap();
        let log = s.create("control", FileKind::Control).unwrap();
        let mut sector = AlignedBuf::zeroed(SECTOR);
        sector.fill(1);
        for f in [&data, &log] {
            f.allocate(SECTOR as u64, true, &mut |_| {}).unwrap();
        }
        sim.set_faults(Faults {
            capacity: Some(2 * SECTOR as u64),
            ..Faults::default()
        });
        let full = data.allocate(2 * SECTOR as u64, false, &mut |_| {});
        assert!(full.unwrap_err().is_full());
        assert_eq!(told.load(SeqCst), 0);

        data.write_at(0, &sector).unwrap();
        sim.set_faults(Faults {
            fail_from_sync: Some(sim.syncs() + 1),
            fail_syncs: 1,
            ..Faults::default()
        });
        assert!(data.sync().unwrap_err().is_sync_failure());
        assert_eq!(told.load(SeqCst), 1);
        data.sync().unwrap();
        let lost = (0..64).any(|seed| {
            let after = sim.after_crash(seed);
            let mut found = AlignedBuf::zeroed(SECTOR);
            let f = after.open("data", FileKind::Data).unwrap();
            f.read_at(0, &mut found).unwrap();
            found[..] != sector[..]
        });
        assert!(
            lost,
            "a sync that succeeds after one that failed proves nothing"
        );

        sim.set_faults(Faults {
            fail_from_sync: Some(sim.syncs() + 1),
            fail_syncs: 1,
            ..Faults::default()
        });
        assert!(log.write_at(0, &sector).unwrap_err().is_sync_failure());
        assert_eq!(
            told.load(SeqCst),
            2,
            "a write that is durable when it returns"
        );
    }
}
