//! Turns the locks of an instance into its files, as recovery takes them.

use super::looks::Found;
use super::opening::Opening;
use crate::files::{self, Places};
use crate::recovery::{Apply, HeldFiles};
use crate::{Error, Result};
use block::{InstanceId, LastGroups, ThreadId};
use std::sync::Arc;
use storage::lease::{ClusterFile, Takeover};
use storage::{ControlFile, DataFiles, ReadOnly, Storage};

impl Opening<'_> {
    /// The files of this instance itself. They are made if the instance is new.
    pub(super) fn own_files(
        &self,
        file: &Arc<ClusterFile>,
        found: &Found,
    ) -> Result<HeldFiles<'_>> {
        let own = &found.own;
        let control = shared_control(file, own)?;
        let places = self.leased(own);
        files::make_instance_files(&control, &places, self.me, &self.config, self.progress)?;
        self.files_of(found, own, &[], control)
    }

    fn leased(&self, takeover: &Takeover) -> Places {
        Places {
            storage: takeover.storage(0).clone(),
            members: (1..=self.places.members.len())
                .map(|n| takeover.storage(n).clone())
                .collect(),
        }
    }

    /// The files that are needed to be the instance whose locks these are.
    pub(super) fn files_of(
        &self,
        found: &Found,
        takeover: &Takeover,
        dead: &[&Takeover],
        control: Arc<ControlFile>,
    ) -> Result<HeldFiles<'_>> {
        let state = control.get();
        let instance = takeover.victim();
        let thread = ThreadId(instance.0);
        let info = state.thread(thread).cloned().ok_or_else(|| {
            Error::Corrupt(format!("the control file has no redo thread {}", thread.0))
        })?;
        let data_files = Arc::new(DataFiles::new());
        let plain: Arc<dyn Storage> = Arc::new(ReadOnly(self.places.storage.clone()));
        let through = |owner: Option<InstanceId>| match owner {
            None => takeover.storage(0).clone(),
            Some(k) if k == instance => takeover.storage(0).clone(),
            // The roll-forward writes the undo blocks of all dead instances. All other instances'
            // files are only read.
            Some(k) => dead
                .iter()
                .find(|t| t.victim() == k)
                .map_or(plain.clone(), |t| t.storage(0).clone()),
        };
        files::open_data_files(&state, &through, &data_files)?;
        Ok(HeldFiles {
            decided: found
                .members
                .member(instance)
                .map_or(LastGroups::default(), |m| m.last_groups),
            apply: Apply::of(info.state, found.alive.is_empty()),
            config: &self.config,
            instance,
            places: self.leased(takeover),
            plain,
            fatal: self.fatal.clone(),
            state,
            info,
            control,
            data_files,
        })
    }
}

/// The control file, written under these locks and as the instance that they belong to.
pub(super) fn shared_control(
    file: &Arc<ClusterFile>,
    holder: &Takeover,
) -> Result<Arc<ControlFile>> {
    let control = Arc::new(ControlFile::open(&**holder.storage(0))?);
    control.share(file.clone());
    Ok(control)
}
