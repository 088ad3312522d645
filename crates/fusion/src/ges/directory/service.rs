//! Requests as their master sees them, and the one of them that is served.

use crate::ges::Mode;
use crate::ids::{RequestId, Turn};
use block::ids::InstanceId;
use std::collections::BTreeSet;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::ges) struct Request {
    pub from: InstanceId,
    pub id: RequestId,
    pub mode: Mode,
    /// What the request's owner uses already.
    pub own: Mode,
    pub patient: bool,
}

impl Request {
    /// Whether `other` waits for the end of this request's owner. False if this request waits for
    /// the end of the other's owner, too: that is a deadlock.
    pub(super) fn goes_before(&self, other: &Request) -> bool {
        other.from != self.from
            && !other.mode.compatible(self.own)
            && other.own.compatible(self.mode)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Stage {
    Runs,
    /// The requester does not wait any more.
    Cancelled,
    /// The request is in the queue again, behind one that goes before it.
    PutOff,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Service {
    pub(super) request: Request,
    pub(super) turn: Turn,
    /// Holders that have not answered their recall.
    pub(super) missing: BTreeSet<InstanceId>,
    /// How the service stands. A service that does not run any more is over when it is known what
    /// each holder has: an answer, perhaps with a value, may be under way.
    pub(super) stage: Stage,
}

impl Service {
    /// Whether an owner's use of the lock may have to end first.
    pub(super) fn may_take_long(&self) -> bool {
        self.request.patient && !self.missing.is_empty() && self.stage == Stage::Runs
    }
}
