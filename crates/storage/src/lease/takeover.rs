//! Proof that an instance can write no more, and the canary that finds mounts on which such a proof would be worth nothing.

use super::{Fenced, Locked, lease_byte, locks_of};
use crate::{Error, FileKind, Result, Storage};
use block::InstanceId;

/// All locks of an instance, held by a survivor. Kept until the dead one's thread is closed: as long as it lives the instance cannot start again and no other survivor can recover it.
pub struct Takeover {
    victim: InstanceId,
    _locks: Vec<Locked>,
}

/// What came of trying to take over.
pub enum Attempt {
    Dead(Takeover),
    /// Somebody has the victim's lock of this file: itself, a write of it that is still in flight, or another survivor. Nothing is kept.
    Held(String),
}

impl Takeover {
    /// Tries to take all locks of `victim`: `files` are all that it may write, in an order that is the same for every survivor (that of the control file), so that of two survivors the
    /// first lock decides. Does not wait.
    pub fn attempt(
        storage: &dyn Storage,
        victim: InstanceId,
        files: &[(String, FileKind)],
    ) -> Result<Attempt> {
        assert!(
            !files.is_empty(),
            "invariant: an instance that writes no file cannot be proved dead"
        );
        let mut held = Vec::with_capacity(files.len());
        for (name, kind) in files {
            let file = storage.open(name, *kind)?;
            let path = file.path().to_string();
            match Locked::try_get(file, lease_byte(victim))? {
                Some(lock) => held.push(lock),
                None => return Ok(Attempt::Held(path)),
            }
        }
        Ok(Attempt::Dead(Takeover {
            victim,
            _locks: held,
        }))
    }

    pub fn victim(&self) -> InstanceId {
        self.victim
    }
}

/// That an instance is dead.
pub enum Proof<'a> {
    Locks(&'a Takeover),
    Fence(&'a Fenced),
}

impl Proof<'_> {
    pub fn victim(&self) -> InstanceId {
        match self {
            Proof::Locks(t) => t.victim(),
            Proof::Fence(f) => f.victim(),
        }
    }
}

/// Tries a living peer's locks from this host, and must be refused everywhere: a mount whose locks are local to the host would let survivors believe anything. The caller makes sure, before and after,
/// that the peer lives: an error in that case says what is wrong with the mount.
pub fn canary(storage: &dyn Storage, peer: InstanceId, files: &[(String, FileKind)]) -> Result<()> {
    let byte = lease_byte(peer);
    for (name, kind) in files {
        let file = storage.open(name, *kind)?;
        let locks = locks_of(&*file)?;
        if locks.try_lock(byte)? {
            locks.unlock(byte)?;
            return Err(Error::LocksAreLocal {
                path: file.path().to_string(),
                peer: peer.0,
            });
        }
    }
    Ok(())
}
