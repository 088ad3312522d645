//! Recovers other instances when none lives. For each dead instance, this process opens as that
//! instance, rolls its transactions back, and stops it cleanly.

use super::held::shared_control;
use super::looks::Found;
use super::opening::Opening;
use crate::recovery::Recovery;
use crate::{Config, Engine, Result};
use block::InstanceId;
use std::sync::Arc;
use storage::lease::{ClusterFile, Takeover};
use storage::{ThreadInfo, ThreadState};

impl Opening<'_> {
    /// Recovers and closes every open thread but this instance's own. None if there was none.
    pub(super) fn recover_others(
        &self,
        file: &Arc<ClusterFile>,
        found: &Found,
    ) -> Result<Option<Recovery>> {
        let is_open = |t: &&ThreadInfo| t.state == ThreadState::Open;
        let open: Vec<InstanceId> = found
            .state
            .threads
            .iter()
            .filter(is_open)
            .map(|t| InstanceId(t.thread.0))
            .collect();
        let mut sum: Option<Recovery> = None;
        for takeover in &found.dead {
            let k = takeover.victim();
            if open.contains(&k) {
                self.progress
                    .step(&format!("recovering instance {}", k.0), 0, 0);
                // The first recovery brings all blocks up to date. The later ones find every block
                // up to date.
                let with: Vec<_> = match sum {
                    None => open.iter().copied().filter(|o| *o != k).collect(),
                    Some(_) => Vec::new(),
                };
                let recovery = self.recover(file, found, takeover, &with)?;
                sum.get_or_insert_default().add(&recovery);
            }
            if found.was_member(k) {
                file.close(takeover, None)?;
            }
            takeover.lease().release();
        }
        Ok(sum)
    }

    /// Opens as the dead instance: rolls everything forward and its transactions back, and stops
    /// it.
    fn recover(
        &self,
        file: &Arc<ClusterFile>,
        found: &Found,
        dead: &Takeover,
        with: &[InstanceId],
    ) -> Result<Recovery> {
        let config = Config {
            instance: dead.victim().0,
            ..self.config.clone()
        };
        let control = shared_control(file, dead)?;
        let with: Vec<_> = with.iter().filter_map(|k| found.takeover(*k)).collect();
        let files = self.files_of(found, dead, &with, control)?;
        let others = with
            .iter()
            .map(|t| self.files_of(found, t, &[], files.control.clone()))
            .collect::<Result<Vec<_>>>()?;
        let mut rolled = files.roll_forward(&others, self.progress)?;
        rolled.know_transactions()?;
        rolled.move_checkpoint();
        let recovery = rolled.recovery;
        let engine = Engine::of(rolled, config, Some(recovery), None)?;
        let what = format!(
            "rolling back what instance {} had not committed",
            dead.victim().0
        );
        self.progress.step(&what, 0, 0);
        let rolled_back = engine.txns.rollback_dead(&*engine);
        // Only a rollback that has come to its end lets the instance be closed.
        match rolled_back {
            Ok(_) => engine.stop(self.progress)?,
            Err(e) => {
                engine.abandon();
                return Err(e.into());
            }
        }
        Ok(recovery)
    }
}
