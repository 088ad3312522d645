//! Stands in for an instance that died and does not come back. A survivor's process lives the dead
//! instance's next life until its transactions are rolled back.
//!
//! The stand-in is an instance like any other, with its own log, a small cache and its own
//! connections. It joins, and leaves cleanly. So what a dead instance left needs no code beyond
//! that of a start and a stop.
//!
//! **Invariants.**
//! - Only the recoverer stands in. It does so only for instances whose blocks have been recovered,
//!   and not while a process says that it will be that instance.
//! - A stand-in waits for nobody when its own process is about to end.
//! - The control file makes the stand-in the instance, by the locks of its files. A process that
//!   comes later waits until the stand-in has left.

use super::state::Cluster;
use crate::Result;
use block::InstanceId;
use std::sync::Arc;

impl Cluster {
    /// Starts a stand-in for each instance whose blocks are recovered and which does not come back
    /// by itself.
    pub(super) fn stand_in_for_the_lost(self: &Arc<Self>) -> Result<()> {
        let members = self.members();
        if members.in_limbo.is_empty() || members.recoverer() != self.me.instance {
            return Ok(());
        }
        let is_dead = |k: &InstanceId| members.dead.iter().any(|m| m.instance == *k);
        let lost: Vec<_> = members
            .in_limbo
            .iter()
            .copied()
            .filter(|k| !is_dead(k))
            .collect();
        for k in self.heirs.due(&lost) {
            if !self.file.is_coming(k)? {
                self.stand_in(k)?;
            }
        }
        Ok(())
    }

    fn stand_in(self: &Arc<Self>, k: InstanceId) -> Result<()> {
        let cluster = self.clone();
        let run = move || match cluster.heirs.live_for(k, &cluster.places, &cluster.fatal) {
            Ok(()) => tracing::info!("what instance {} left is rolled back", k.0),
            Err(e) => {
                tracing::warn!(
                    "what instance {} left cannot be rolled back yet, and is tried again: {e}",
                    k.0
                );
                cluster.heirs.put_off(k);
            }
        };
        let heir =
            wait::thread::spawn_named("heir", run).map_err(|source| crate::Error::Thread {
                name: "heir",
                source,
            })?;
        self.heirs.works(k, heir);
        Ok(())
    }
}
