//! The undo blocks of other instances for which sessions wait ([`super::undo`]).

use super::slot::Slot;
use block::{Dba, InstanceId};
use seam::HashMap;
use std::sync::Arc;

/// The requests of this instance's sessions for undo blocks of others.
#[derive(Default)]
pub(super) struct UndoWanted {
    pub last: u64,
    pub waiting: HashMap<u64, (Dba, Arc<Slot>)>,
    /// The last epoch in which each instance was gone, if it ever was.
    pub gone: HashMap<InstanceId, u64>,
}

impl UndoWanted {
    /// Notes that an instance is gone. What it sent in an earlier epoch is worthless.
    pub fn gone(&mut self, instance: InstanceId, epoch: u64) {
        self.gone.insert(instance, epoch);
    }
}
