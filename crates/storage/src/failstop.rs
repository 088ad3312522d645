//! A failed sync ends the instance: wrapped around a storage, so that no caller can forget it.
//!
//! **Invariant.** After a sync that failed no other call on this storage's files is made by anybody who could take it for success: `fatal` is called first, and
//! a real one does not return. (Trying again is the mistake known as "fsyncgate": the kernel reports a failure once, drops the pages, and the next sync succeeds over data
//! that is lost. With direct I/O the same holds for the device's own cache.)

use crate::{File, FileKind, Result, Storage};
use std::sync::Arc;

/// Ends the instance; hears why.
pub type Fatal = Arc<dyn Fn(&str) + Send + Sync>;

/// A storage whose first failed sync calls `fatal`. The members of a redo log are left out: a log with two outlives one, and sees to its failures itself.
pub struct FailStop {
    inner: Arc<dyn Storage>,
    fatal: Fatal,
}

impl FailStop {
    pub fn new(inner: Arc<dyn Storage>, fatal: Fatal) -> FailStop {
        FailStop { inner, fatal }
    }

    fn guard(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Guarded {
            inner: file,
            fatal: self.fatal.clone(),
        })
    }
}

fn check<T>(fatal: &Fatal, result: Result<T>) -> Result<T> {
    if let Err(e) = &result
        && e.is_sync_failure()
    {
        fatal(&e.to_string());
    }
    result
}

impl Storage for FailStop {
    fn create(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        check(&self.fatal, self.inner.create(name, kind)).map(|f| self.guard(f))
    }
    fn open(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        self.inner.open(name, kind).map(|f| self.guard(f))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        check(&self.fatal, self.inner.remove(name))
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}

struct Guarded {
    inner: Arc<dyn File>,
    fatal: Fatal,
}

impl File for Guarded {
    fn path(&self) -> &str {
        self.inner.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()> {
        check(&self.fatal, self.inner.write_at(offset, buf))
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[&[u8]]) -> Result<()> {
        check(&self.fatal, self.inner.write_vectored_at(offset, bufs))
    }
    fn sync(&self) -> Result<()> {
        check(&self.fatal, self.inner.sync())
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn allocate(&self, len: u64, zeroes: bool, progress: &mut dyn FnMut(u64)) -> Result<()> {
        check(&self.fatal, self.inner.allocate(len, zeroes, progress))
    }
    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        check(&self.fatal, self.inner.punch(offset, len))
    }
    fn locks(&self) -> Option<&dyn crate::lease::ByteLocks> {
        self.inner.locks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, Faults, SECTOR, SimStorage};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    /// The simulation does what kernels do: the failure is reported once, and what was written before is lost or not, whatever later syncs say.
    #[test]
    fn the_first_failed_sync_is_fatal_and_a_full_disk_is_not() {
        let sim = SimStorage::new();
        let told = Arc::new(AtomicU32::new(0));
        let teller = told.clone();
        let s = FailStop::new(
            Arc::new(sim.clone()),
            Arc::new(move |_| {
                teller.fetch_add(1, SeqCst);
            }),
        );
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
