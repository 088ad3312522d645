//! The counts and memories of which instance uses which granule ([`super::affinity`]).

use block::{Dba, InstanceId, ObjectId};
use fusion::ids::Granule;
use seam::HashMap;
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

/// The most rows that the policy's view remembers.
const MAX_HISTORY: usize = 1000;

/// When a granule gets another master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity {
    /// Requests are counted for so long, then looked at. If it is zero nothing is moved.
    pub window: Duration,
    /// The number of requests for a granule in a window, below which the granule stays where it is.
    pub minimum: u32,
    /// The share of these requests, in percent, from which on an instance becomes the master.
    pub percent: u32,
}

impl Default for Affinity {
    fn default() -> Affinity {
        Affinity {
            window: Duration::from_secs(10),
            minimum: 100,
            percent: 80,
        }
    }
}

/// Requests for blocks of a granule, by instance. There are few instances.
pub(super) type Users = Vec<(InstanceId, u32)>;

/// The requests that a shard counts.
#[derive(Default)]
pub(super) struct Uses(pub(super) HashMap<Granule, Users>);

/// What the policy decided, or did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyEvent {
    /// This instance takes a granule that it uses most.
    Take,
    /// The instance offers a granule of its own to the instance that uses it most.
    Offer,
    /// The instance serves a granule that it took.
    Opened,
}

/// A line of the policy's history.
#[derive(Clone, Debug)]
pub struct PolicyRow {
    pub at: SystemTime,
    pub event: PolicyEvent,
    pub first: Dba,
    /// The object of a block of the granule that is cached, if one is.
    pub object: Option<ObjectId>,
    /// The instance that is to be the master.
    pub target: InstanceId,
    /// Requests counted in the last window, and of them the target's.
    pub requests: u32,
    pub of_target: u32,
    /// How long the granule's blocks waited, in the row of a granule that is served.
    pub frozen: Option<Duration>,
}

/// A granule that an instance took.
#[derive(Clone, Debug)]
pub struct GranuleRow {
    pub first: Dba,
    pub blocks: u32,
    pub object: Option<ObjectId>,
    pub master: InstanceId,
    /// The former master. `None` if it was the masters of its blocks' hash buckets, or is not known
    /// here.
    pub previous: Option<InstanceId>,
    /// Moves that this instance has heard of.
    pub moves: u32,
    /// When the last move was. `None` if that was before this instance came.
    pub moved: Option<SystemTime>,
    /// Why the granule was taken: the requests in a window, and of them the master's. Only the
    /// master knows it.
    pub reason: Option<(u32, u32)>,
}

/// What is remembered of a granule.
#[derive(Clone, Default)]
pub(super) struct Moves {
    pub(super) previous: Option<InstanceId>,
    pub(super) count: u32,
    pub(super) at: Option<SystemTime>,
    pub(super) since: Option<Instant>,
    pub(super) object: Option<ObjectId>,
    pub(super) reason: Option<(u32, u32)>,
}

#[derive(Default)]
pub(super) struct Policy {
    pub(super) settings: Affinity,
    pub(super) window_began: Option<Instant>,
    pub(super) moves: HashMap<Granule, Moves>,
    pub(super) history: VecDeque<PolicyRow>,
}

impl Policy {
    pub(super) fn say(&mut self, row: PolicyRow) {
        if self.history.len() == MAX_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(row);
    }
}
