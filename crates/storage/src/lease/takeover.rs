//! The proof that an instance can write no more, and the canary that finds mounts on which such a
//! proof would be worth nothing.

use super::{Fenced, Lease, OnError, lease_byte, locks_of};
use crate::{Error, Fatal, FileKind, Result, Storage};
use block::InstanceId;
use std::sync::Arc;

/// Files of one storage that an instance may write.
pub struct Claim {
    pub storage: Arc<dyn Storage>,
    pub on_error: OnError,
    pub files: Vec<(String, FileKind)>,
}

/// All locks of an instance.
///
/// If a survivor holds them, they prove that the instance is dead, and are the right to write its
/// files in its place. If the instance itself holds them, they are its own lease, and prove that
/// its former life is over. They are kept until the dead one's thread is closed. As long as they
/// live, the instance cannot start again and no other survivor can recover it.
pub struct Takeover {
    lease: Arc<Lease>,
    storages: Vec<Arc<dyn Storage>>,
}

/// The result of an attempt to take over.
pub enum Attempt {
    Dead(Takeover),
    /// An opening other than this one has the victim's lock of this file: the victim itself, a
    /// write of it that is still in flight, or another survivor. Nothing is kept.
    Held(String),
}

impl Takeover {
    /// Tries to take all locks of `victim`, without waiting.
    ///
    /// `claims` name all files that the victim may write, in an order that is the same for every
    /// survivor (that of the control file). So of two survivors the first lock decides. A file that
    /// is named and not there has never been written. `fatal` is for the code that writes the files
    /// through [`Takeover::storage`].
    pub fn attempt(victim: InstanceId, fatal: Fatal, claims: &[Claim]) -> Result<Attempt> {
        let lease = Lease::new(victim, fatal);
        let mut storages = Vec::with_capacity(claims.len());
        for claim in claims {
            let storage = lease.storage(claim.storage.clone(), claim.on_error);
            for (name, kind) in &claim.files {
                if !storage.exists(name)? {
                    continue;
                }
                match storage.open(name, *kind) {
                    Ok(_) => {}
                    Err(Error::InUse { path, .. }) => return Ok(Attempt::Held(path)),
                    Err(e) => return Err(e),
                }
            }
            storages.push(storage);
        }
        assert!(
            !lease.paths().is_empty(),
            "invariant: an instance that writes no file cannot be proved dead"
        );
        Ok(Attempt::Dead(Takeover { lease, storages }))
    }

    pub fn victim(&self) -> InstanceId {
        self.lease.instance()
    }

    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// The storage through which the files of a claim are written.
    pub fn storage(&self, claim: usize) -> &Arc<dyn Storage> {
        &self.storages[claim]
    }
}

/// The proof that an instance is dead.
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

/// Tries a living peer's locks from this host, and must be refused for every file. A mount whose
/// locks are local to the host would let survivors believe anything. The caller makes sure, before
/// and after, that the peer lives. An error in that case says what is wrong with the mount.
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
