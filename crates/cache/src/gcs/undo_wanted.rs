//! Which undo blocks of other instances the sessions wait for ([`super::undo`]).

use super::slot::Slot;
use block::{Dba, InstanceId};
use seam::HashMap;
use std::sync::Arc;

/// Requests of this instance's sessions.
#[derive(Default)]
pub(super) struct UndoWanted {
    pub last: u64,
    pub waiting: HashMap<u64, (Dba, Arc<Slot>)>,
    /// Of an instance that was gone once: the epoch in which it was.
    pub gone: HashMap<InstanceId, u64>,
}

impl UndoWanted {
    /// What it has sent in an earlier epoch is worthless.
    pub fn gone(&mut self, instance: InstanceId, epoch: u64) {
        self.gone.insert(instance, epoch);
    }
}
