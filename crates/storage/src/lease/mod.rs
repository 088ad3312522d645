//! Leases: who may write, decided by the lock manager of the filesystem and nothing else.
//!
//! An instance locks a byte of its own, far beyond the end, in every file that it writes, on the very descriptor that its writes go through. *It is dead when, and only when,
//! a survivor holds all its locks* ([`Takeover`]), or a fence command has confirmed the kill ([`FenceCommand`]). No clock is asked.
//!
//! ```text
//! byte 2^62            exclusive lock of the control file: who decides about membership
//! byte 2^62 + k        instance k, in every file that it writes
//! byte 2^62 + 2^16     exclusive lock of a data file that instances share: who makes it longer
//! byte 2^62 + 2^17 + k of the control file: a process that will be instance k once what it waits for has come about
//! byte 2^62 + 2^18     of the control file: who opens the database for an instance, one at a time
//! ```
//!
//! **Invariants.**
//! - Only locks of open file descriptions are used. A record lock of POSIX would vanish when any descriptor of the file is closed. A write still in flight holds its open file, so
//!   the lock outlives a killed process until its last write is over. Descriptors are close-on-exec, and nobody forks without exec: a child that inherited one would keep the lock. (One that is about to execute its program keeps it
//!   for that moment: a dead parent's locks may be seen held a little longer, never free too early.)
//! - Within one process, and one simulation, every opening of a file is a holder of its own. [`Lease`] therefore opens each file once.
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

/// Locks of single bytes, held by one opening of a file: exclusive, not waited for, gone when the file is closed.
pub trait ByteLocks {
    /// Takes the lock. False if another opening of the file has it, here or on another host; true also if this one has it already.
    fn try_lock(&self, byte: u64) -> Result<bool>;
    fn unlock(&self, byte: u64) -> Result<()>;
    /// Whether another opening of the file has it. Good for noticing a loss; proves nothing else.
    fn held_by_other(&self, byte: u64) -> Result<bool>;
}

/// Far beyond the end of any file, and within what a signed 64-bit offset and NFS can say.
const BASE: u64 = 1 << 62;

/// Of the control file.
pub(crate) const EXCLUSIVE_BYTE: u64 = BASE;

/// Of a data file: held while it is made longer. No instance has this number.
pub(crate) const EXTEND_BYTE: u64 = BASE + (1 << 16);

/// Of the control file: the first of the bytes of those who are coming.
const COMING_BYTES: u64 = BASE + (1 << 17);

/// Of the control file: held from looking at who lives until an instance is a member.
const STARTING_BYTE: u64 = BASE + (1 << 18);

/// The byte of an instance, the same in every file.
pub fn lease_byte(instance: InstanceId) -> u64 {
    BASE + u64::from(instance.0)
}

/// A lock of a byte that was got; let go when dropped. Not left to the closing of the file: a child that another thread has just forked has a copy of the descriptor until it executes its program.
pub(crate) struct Locked {
    file: Arc<dyn File>,
    byte: u64,
}

impl Locked {
    /// None if another opening of the file has it.
    pub fn try_get(file: Arc<dyn File>, byte: u64) -> Result<Option<Locked>> {
        let got = locks_of(&*file)?.try_lock(byte)?;
        Ok(got.then_some(Locked { file, byte }))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if let Some(locks) = self.file.locks() {
            // If it cannot be let go the closing of the file does it.
            let _ = locks.unlock(self.byte);
        }
    }
}

/// The locks of a file, or an error if what it is on cannot lock.
pub(crate) fn locks_of(file: &dyn crate::File) -> Result<&dyn ByteLocks> {
    file.locks().ok_or_else(|| crate::Error::NoLocks {
        path: file.path().to_string(),
    })
}
