//! One attempt to open the database: what is known from its beginning on, and its waits for others.

use crate::cluster::{self, StandIn};
use crate::files::Places;
use crate::{Config, Host, Progress, Result};
use block::InstanceId;
use std::time::Duration;
use storage::Fatal;
use storage::lease::{ClusterFile, Exclusive};

/// How often a start that waits for other instances looks and reports.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// An instance that is being opened.
pub(super) struct Opening<'a> {
    pub me: InstanceId,
    pub config: Config,
    pub places: Places,
    pub fatal: Fatal,
    pub progress: &'a dyn Progress,
    /// Whether this process is another instance, which stands in for this one.
    pub stand_in: bool,
    /// The function by which this instance stands in for others once it is open.
    pub stands_in_by: StandIn,
}

impl<'a> Opening<'a> {
    /// An attempt to open an instance on a host. The host's part among others is used later.
    pub fn new(
        config: Config,
        host: &Host,
        progress: &'a dyn Progress,
        stands_in_by: StandIn,
    ) -> Opening<'a> {
        Opening {
            me: InstanceId(config.instance),
            config,
            places: Places {
                storage: host.storage.clone(),
                members: host.members.clone(),
            },
            fatal: host.fatal.clone(),
            progress,
            stand_in: false,
            stands_in_by,
        }
    }

    /// The control file's exclusive lock, for a look and a decision.
    pub fn turn<'c>(&self, file: &'c ClusterFile) -> Result<Exclusive<'c>> {
        loop {
            if let Some(turn) = file.lock(Some(seam::now() + LOOK_INTERVAL))? {
                return Ok(turn);
            }
            self.waits("waiting for the control file")?;
        }
    }

    /// Reports what the start waits for. An error once nobody wants the start any more.
    pub fn waits(&self, what: &str) -> Result<()> {
        if !self.progress.is_wanted() {
            return Err(cluster::unwanted());
        }
        self.progress.step(what, 0, 0);
        Ok(())
    }
}
