//! Opening the database for an instance.
//!
//! One process at a time opens the database for an instance (`enq: DM - contention`), until that
//! instance is a member. The process has the control file's exclusive lock only to look and to
//! decide. What takes as long as recovery is done without the lock, because members have to decide
//! things meanwhile, too. The order is:
//!
//! 1. The process takes the instance's own locks. If another process is this instance, the start is
//!    refused.
//! 2. It tries the locks of every instance that is marked up or has an open redo thread. An
//!    instance whose locks are held lives; an instance whose locks are free is dead.
//! 3. If no instance lives, it recovers all open threads. It starts with the double-write files of
//!    the dead. One roll-forward over the merge of their redo follows, and all of that is written
//!    to the data files. Then it opens thread by thread as the dead instance, rolls its
//!    transactions back and stops it cleanly. This instance's own thread comes last and stays open.
//!    What its dead transactions changed is put back in the background; their rows stay locked
//!    until then.
//! 4. If an instance lives, those that are found dead, also this instance's former life, are
//!    declared dead, and the living recover their blocks (`cluster::recover`). The process waits
//!    for that without any lock, however long it takes. Then it reads this instance's own redo, if
//!    its thread is open, for its undo and its transactions only: other instances may have changed
//!    all other blocks since.
//! 5. The instance becomes a member. If no other is a member any more by then, or one has died,
//!    what was opened is closed again, and all of this begins anew.
//!
//! Afterwards the instance waits until the others have let it in. During that wait it has its own
//! locks only.
//!
//! A crash at any point leaves threads that are open. They are recovered in the same way: a block
//! that has a change already passes it over, and a rollback goes on where the last one was.

mod dead;
mod held;
mod join;
mod looks;
mod meet;
mod opening;

use crate::cluster::ClusterHost;
use crate::host::{cluster_host, log_members, stop_at_once};
use crate::recovery::{Recovery, RolledForward};
use crate::{Config, Engine, Error, Host, Progress, Result, exists};
use looks::Found;
use meet::{close_again, retreat};
use opening::Opening;
use std::sync::Arc;
use storage::lease::ClusterFile;
use storage::{OsStorage, Storage, ThreadState};

impl Engine {
    /// Opens the database for this instance. Recovers the instance first if it was not stopped
    /// cleanly.
    pub fn open(config: Config, progress: &dyn Progress) -> Result<Arc<Engine>> {
        if !exists(&config.dir) {
            return Err(Error::NoDatabase(config.dir.display().to_string()));
        }
        let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(&config.dir)?);
        let host = Host {
            members: log_members(&config, &storage)?,
            storage,
            fatal: Arc::new(|why| stop_at_once(why)),
            cluster: cluster_host(&config)?,
        };
        Engine::open_on(config, host, progress)
    }

    /// Opens the database of a host. `config` does not say where the files are.
    pub fn open_on(config: Config, host: Host, progress: &dyn Progress) -> Result<Arc<Engine>> {
        let file = Arc::new(ClusterFile::open(&*host.storage)?);
        let opening = Opening::new(config, &host, progress, stand_in);
        let engine = opening.run(file, host.cluster)?;
        engine.start_background()?;
        Ok(engine)
    }
}

/// Lives the next life of a dead instance, whose blocks have been recovered, in another instance's
/// process, until its transactions are rolled back.
fn stand_in(config: Config, host: Host, progress: &dyn Progress) -> Result<()> {
    let file = Arc::new(ClusterFile::open(&*host.storage)?);
    let opening = Opening {
        stand_in: true,
        ..Opening::new(config, &host, progress, stand_in)
    };
    opening.run(file, host.cluster)?.stop(progress)
}

/// This instance, rolled forward.
struct Opened {
    rolled: RolledForward,
    recovery: Option<Recovery>,
    /// Whether the instance's thread was closed.
    clean: bool,
}

impl Opening<'_> {
    fn run(self, file: Arc<ClusterFile>, host: Option<ClusterHost>) -> Result<Arc<Engine>> {
        let _coming = match self.stand_in {
            true => None,
            false => file.coming(self.me)?,
        };
        let (opened, membership) = loop {
            let (starting, found, contact) = self.admitted(&file, host.as_ref())?;
            let opened = self.roll_forward(&file, &found)?;
            match self.become_member(&file, &found, contact)? {
                Some(membership) => break (opened, membership),
                None => {
                    close_again(opened.rolled, opened.clean, self.me)?;
                    found.own.lease().release();
                    drop(starting);
                }
            }
        };
        let Opened {
            rolled,
            recovery,
            clean,
        } = opened;
        if let Some(host) = host
            && let Err(e) = self.meet_the_others(&rolled, &membership, host)
        {
            retreat(rolled, &membership, clean)?;
            return Err(e);
        }
        rolled.move_checkpoint();
        let engine = Engine::of(rolled, self.config, recovery, Some(membership))?;
        if let Some(cluster) = engine.cluster() {
            cluster.attach(&engine.space, engine.opens_sequences());
        }
        Ok(engine)
    }

    /// Rolls this instance forward. If no other instance lives, recovers all the others first.
    fn roll_forward(&self, file: &Arc<ClusterFile>, found: &Found) -> Result<Opened> {
        let mut recovery = None;
        if found.alive.is_empty() {
            recovery = self.recover_others(file, found)?;
        }
        let own = self.own_files(file, found)?;
        let clean = own.info.state == ThreadState::Closed;
        let mut rolled = own.roll_forward(&[], self.progress)?;
        rolled.know_transactions()?;
        if !clean {
            recovery.get_or_insert_default().add(&rolled.recovery);
        }
        Ok(Opened {
            rolled,
            recovery,
            clean,
        })
    }
}
