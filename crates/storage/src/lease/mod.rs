//! Leases decide who may write. The lock manager of the filesystem decides them, and nothing else
//! does.
//!
//! An instance locks a byte of its own, far beyond the end, in every file that it writes, on the
//! very descriptor that its writes go through. *It is dead when, and only when, a survivor holds
//! all its locks* ([`Takeover`]), or a fence command has confirmed the kill ([`FenceCommand`]). No
//! clock is asked.
//!
//! ```text
//! byte 2^62            exclusive lock of the control file: its holder decides about membership
//! byte 2^62 + k        instance k, in every file that it writes
//! byte 2^62 + 2^16     exclusive lock of a data file that instances share, to make it longer
//! byte 2^62 + 2^17 + k of the control file: a process that will be instance k once what it
//!                      waits for has come about
//! byte 2^62 + 2^18     of the control file: the process that opens the database for an instance,
//!                      one at a time
//! ```
//!
//! **Invariants.**
//! - Only locks of open file descriptions are used. A record lock of POSIX would vanish when any
//!   descriptor of the file is closed. A write still in flight holds its open file, so the lock
//!   outlives a killed process until its last write is over. Descriptors are close-on-exec, and
//!   nobody forks without exec: a child that inherited a descriptor would keep the lock. (A child
//!   that is about to execute its program keeps it for that moment. So a dead parent's locks may be
//!   seen held a little longer, never free too early.)
//! - Within one process, and one simulation, every opening of a file is a holder of its own. So
//!   [`Lease`] opens each file once.
//! - "Seen free" is not "held": only locks that one holds oneself prove anything.
//! - An error of a write, or a lock that is lost, ends the instance at once.

mod cluster;
mod fence;
mod guard;
mod hold;
pub(crate) mod os;
pub(crate) mod sim;
mod takeover;

pub use cluster::{
    Cluster, ClusterFile, Coming, Exclusive, MAX_ADDRESS_BYTES, MemberRecord, MemberState,
    RecoveredLife, Starting,
};
pub use fence::{FenceCommand, Fenced};
pub use guard::{GuardEnd, Order, Orders, guard};
pub use hold::{Fatal, Lease, OnError};
pub use takeover::{Attempt, Claim, Proof, Takeover, canary};

use crate::{File, Result};
use block::InstanceId;
use std::sync::Arc;

/// Locks of single bytes, held by one opening of a file. They are exclusive, are not waited for,
/// and are gone when the file is closed.
pub trait ByteLocks {
    /// Takes the lock. False if another opening of the file has it, here or on another host. True
    /// also if this opening has it already.
    fn try_lock(&self, byte: u64) -> Result<bool>;
    fn unlock(&self, byte: u64) -> Result<()>;
    /// Whether another opening of the file has the lock. That is good for noticing a loss, and
    /// proves nothing else.
    fn held_by_other(&self, byte: u64) -> Result<bool>;
}

/// The first byte of the locks: far beyond the end of any file, and within what a signed 64-bit
/// offset and NFS can say.
const BASE: u64 = 1 << 62;

/// The byte of the control file's exclusive lock.
pub(crate) const EXCLUSIVE_BYTE: u64 = BASE;

/// The byte of a data file that is locked while the file is made longer. No instance has this
/// number.
pub(crate) const EXTEND_BYTE: u64 = BASE + (1 << 16);

/// The byte before those of processes that are about to be instances, in the control file.
const COMING_BYTES: u64 = BASE + (1 << 17);

/// The byte of the control file that is locked from looking at who lives until an instance is a
/// member.
const STARTING_BYTE: u64 = BASE + (1 << 18);

/// The byte of an instance: one number in every file.
pub fn lease_byte(instance: InstanceId) -> u64 {
    BASE + u64::from(instance.0)
}

/// A lock of a byte that was taken. Dropping it lets the lock go. That is not left to the closing
/// of the file: a child that another thread has just forked has a copy of the descriptor until it
/// executes its program.
pub(crate) struct Locked {
    file: Arc<dyn File>,
    byte: u64,
}

impl Locked {
    /// Takes the lock of a byte. None if another opening of the file has it.
    pub fn try_get(file: Arc<dyn File>, byte: u64) -> Result<Option<Locked>> {
        let got = locks_of(&*file)?.try_lock(byte)?;
        Ok(got.then_some(Locked { file, byte }))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(locks) = self.file.locks() {
            // If the lock cannot be let go, the closing of the file does it.
            let _ = locks.unlock(self.byte);
        }
    }
}

/// The locks of a file. It is an error if the file's storage cannot lock.
pub(crate) fn locks_of(file: &dyn crate::File) -> Result<&dyn ByteLocks> {
    file.locks().ok_or_else(|| crate::Error::NoLocks {
        path: file.path().to_string(),
    })
}
