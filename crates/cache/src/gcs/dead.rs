//! What an epoch says of its members and its dead, and what the dead have left behind.

use block::InstanceId;
use redo::DeadRedo;
use std::sync::Arc;
use storage::TornHomes;

/// A member of the cluster in one of its lives.
pub type ClusterMember = (InstanceId, u32);

/// What a change of epoch decides. It is the same for all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconfiguration {
    pub epoch: u64,
    pub members: Vec<ClusterMember>,
    /// The dead whose redo threads are open and not recovered.
    pub dead: Vec<ClusterMember>,
    /// The dead, and those that have been recovered and have not come back to life. Their undo is
    /// not up to date, so sessions wait for it.
    pub in_limbo: Vec<InstanceId>,
    /// The member that says when the dead are recovered. Any member if nobody is dead.
    pub recoverer: InstanceId,
}

/// What the dead have left on the storage.
pub struct DeadThreads {
    /// All their redo threads, each from its checkpoint to its end.
    pub redo: Arc<DeadRedo>,
    /// Their double-write files.
    pub torn: TornHomes,
}

/// A listener that is told that these threads are needed no more. All blocks that they name are on
/// synced disk (private blocks are the stand-in's). Receiving threads call it, with latches held.
pub type ThreadsClosed = Box<dyn Fn(u64, &[ClusterMember]) + Send + Sync>;

/// What the epoch says of the dead.
#[derive(Default)]
pub(super) struct Dead {
    pub members: Vec<ClusterMember>,
    pub in_limbo: Vec<InstanceId>,
    pub recoverer: Option<InstanceId>,
    pub threads: Option<Arc<DeadThreads>>,
}

impl Dead {
    pub fn in_limbo(&self, instance: InstanceId) -> bool {
        self.in_limbo.contains(&instance)
    }

    /// Whether blocks can be brought back.
    pub fn is_known(&self) -> bool {
        self.members.is_empty() || self.threads.is_some()
    }
}
