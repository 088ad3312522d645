//! Opening the database for an instance.
//!
//! One process at a time opens the database for an instance (`enq: DM - contention`), until that is
//! a member. It has the control file's exclusive lock only to look and to decide: what takes as
//! long as recovery does is done without it, for those who are members have to decide things, too,
//! meanwhile. In this order:
//!
//! 1. The instance's own locks are taken: another process that is this instance is refused.
//! 2. Whoever is marked up, or has an open redo thread, is tried: who holds its locks lives, who
//!    does not is dead.
//! 3. Nobody lives: all open threads are recovered. First the dead's double-write files, then one
//!    roll-forward over the merge of their redo, all of it written to the data files; then thread
//!    by thread, as the dead instance, its transactions are rolled back and it is stopped cleanly.
//!    This instance's own thread comes last and stays open: what its dead transactions changed is
//!    put back in the background, their rows locked until then.
//! 4. Somebody lives: those who are found dead, this instance's former life among them, are
//!    declared so, and the living recover their blocks (`cluster::recover`). That is waited for,
//!    without any lock, however long it takes. Then this instance's own redo, if its thread is
//!    open, is read for its undo and its transactions only: other instances may have changed all
//!    other blocks since.
//! 5. It becomes a member. If nobody else is one any more by then, or somebody has died, what was
//!    opened is closed again, and all this begins anew.
//!
//! What is waited for afterwards, until the others have let this instance in, is waited for with
//! its own locks alone.
//!
//! A crash at any point leaves threads that are open, and is recovered in the same way: a block
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
    /// Opens the database for this instance, recovering it first if it was not stopped cleanly.
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

    /// Opens the database that a host has. `config` says nothing about where the files are.
    pub fn open_on(config: Config, host: Host, progress: &dyn Progress) -> Result<Arc<Engine>> {
        let file = Arc::new(ClusterFile::open(&*host.storage)?);
        let opening = Opening::new(config, &host, progress, stand_in);
        let engine = opening.run(file, host.cluster)?;
        engine.start_background()?;
        Ok(engine)
    }
}

/// Lives the next life of a dead instance, whose blocks have been recovered, in another one's
/// process: until its transactions are rolled back.
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
    /// The instance's thread was closed.
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

    /// Recovers everything if nobody lives, and this instance's own in any case.
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
