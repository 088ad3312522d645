//! Files of other instances, which are read and never written. An instance that writes a file holds
//! a lock on the descriptor that it writes through ([`crate::lease`]); these descriptors have none.

use crate::{Error, File, FileKind, Result, Storage};
use std::sync::Arc;

/// A storage whose files refuse to be changed.
pub struct ReadOnly(pub Arc<dyn Storage>);

impl Storage for ReadOnly {
    fn create(&self, name: &str, _: FileKind) -> Result<Arc<dyn File>> {
        refused(name)
    }
    fn open(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>> {
        Ok(Arc::new(ReadOnlyFile(self.0.open(name, kind)?)))
    }
    fn exists(&self, name: &str) -> Result<bool> {
        self.0.exists(name)
    }
    fn remove(&self, name: &str) -> Result<()> {
        refused(name)
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

fn refused<T>(path: &str) -> Result<T> {
    Err(Error::ReadOnly {
        path: path.to_string(),
    })
}

struct ReadOnlyFile(Arc<dyn File>);

impl File for ReadOnlyFile {
    fn path(&self) -> &str {
        self.0.path()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        refused(self.path())
    }
    fn sync(&self) -> Result<()> {
        refused(self.path())
    }
    fn len(&self) -> Result<u64> {
        self.0.len()
    }
    fn allocate(&self, _: u64, _: bool, _: &mut dyn FnMut(u64)) -> Result<()> {
        refused(self.path())
    }
    fn punch(&self, _: u64, _: u64) -> Result<()> {
        refused(self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, SECTOR, SimStorage};

    #[test]
    fn everything_is_read_and_nothing_written() {
        let s = SimStorage::new();
        let mut sector = AlignedBuf::zeroed(SECTOR);
        sector.fill(3);
        s.create("f", FileKind::Data)
            .unwrap()
            .write_at(0, &sector)
            .unwrap();
        let looker = ReadOnly(Arc::new(s.clone()));
        let f = looker.open("f", FileKind::Data).unwrap();
        let mut found = AlignedBuf::zeroed(SECTOR);
        f.read_at(0, &mut found).unwrap();
        assert_eq!(found[..], sector[..]);
        let before = s.writes();
        let refusals = [
            f.write_at(0, &found).is_err(),
            f.sync().is_err(),
            f.allocate(1 << 20, false, &mut |_| {}).is_err(),
            f.punch(0, SECTOR as u64).is_err(),
            looker.create("g", FileKind::Data).is_err(),
            looker.remove("f").is_err(),
        ];
        assert_eq!(refusals, [true; 6]);
        assert_eq!((s.writes(), s.exists("f").unwrap()), (before, true));
    }
}
