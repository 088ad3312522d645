//! The interface of storage to the rest of the engine. [`crate::OsStorage`] and
//! [`crate::SimStorage`] implement it.

use crate::Result;
use std::sync::Arc;

/// How a file is used, which decides how it is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    Data,
    /// Each write is durable when it returns.
    Log,
    Control,
}

/// The directory of one database. Names of files are relative, with `/`.
pub trait Storage: Send + Sync {
    /// Creates a file that must not exist. Its directory is made if need be. The name is durable
    /// when this returns.
    fn create(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>>;
    fn open(&self, name: &str, kind: FileKind) -> Result<Arc<dyn File>>;
    fn exists(&self, name: &str) -> Result<bool>;
    fn remove(&self, name: &str) -> Result<()>;
    /// Where this storage is, for messages.
    fn describe(&self) -> String;
}

/// An open file. Offsets, lengths and memory are aligned to [`crate::SECTOR`]. Threads may use it
/// at the same time; callers avoid overlapping writes.
pub trait File: Send + Sync {
    fn path(&self) -> &str;
    /// Fills `buf`. It is an error if the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
    /// Makes what was written before durable.
    fn sync(&self) -> Result<()>;
    fn len(&self) -> Result<u64>;
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Makes the file at least `len` bytes long, durably, with space reserved and zeros where it
    /// grew. `zeroes` writes the zeros out, for files whose later writes must not touch the
    /// filesystem's metadata. `progress` is told the bytes done.
    fn allocate(&self, len: u64, zeroes: bool, progress: &mut dyn FnMut(u64)) -> Result<()>;
    /// Gives the space of a range back. The range then reads as zeros.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;
    /// The locks of bytes of this file, held by this opening of it. None if the storage has no
    /// locks.
    fn locks(&self) -> Option<&dyn crate::lease::ByteLocks> {
        None
    }
}
