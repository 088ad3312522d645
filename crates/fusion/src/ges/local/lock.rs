//! One lock of this instance: the mode kept, its users and waiters, the request under way and the
//! recall.

use crate::ges::{Effect, Mode, Owner, Resource, Value};
use crate::ids::{RequestId, Turn};
use std::collections::{BTreeMap, VecDeque};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Waiting {
    pub(super) owner: Owner,
    pub(super) mode: Mode,
    pub(super) patient: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Wanted {
    pub(super) id: RequestId,
    /// The first owner that waits for the request and has not given up. None if the request is only
    /// to bring the implied mode back.
    pub(super) owner: Option<Owner>,
    pub(super) mode: Mode,
    /// What the owner uses already.
    pub(super) own: Mode,
    pub(super) patient: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Recall {
    pub(super) turn: Turn,
    pub(super) keep: Mode,
    pub(super) patient: bool,
    /// Whether `users` has all that use the lock.
    pub(super) closed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lock {
    pub(super) mode: Mode,
    pub(super) turn: Turn,
    pub(super) id: RequestId,
    pub(super) value: Option<Value>,
    pub(super) users: BTreeMap<Owner, Mode>,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) wanted: Option<Wanted>,
    pub(super) recall: Option<Recall>,
    /// Recalls up to this turn are over, whether they have come or not.
    pub(super) voided: Turn,
    /// Whether an owner had to ask since the last tick for what the implied mode allows.
    pub(super) detour: bool,
}

impl Lock {
    pub(super) fn of(resource: Resource) -> Lock {
        Lock {
            mode: resource.implied(),
            turn: Turn::default(),
            id: RequestId::default(),
            value: None,
            users: BTreeMap::new(),
            waiting: VecDeque::new(),
            wanted: None,
            recall: None,
            voided: Turn::default(),
            detour: false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let still = self.wanted.is_none() && self.recall.is_none();
        still && self.users.is_empty() && self.waiting.is_empty()
    }

    /// What an owner uses, as far as that is known.
    pub(super) fn own(&self, owner: Owner) -> Mode {
        self.users.get(&owner).copied().unwrap_or_default()
    }

    /// Whether this owner has to wait for a recall. It need not wait for a recall that itself waits
    /// for the end of what this owner uses.
    pub(super) fn is_stopped(&self, owner: Owner) -> bool {
        let own = self.own(owner);
        self.recall.is_some_and(|r| r.keep.covers(own))
    }

    /// Whether to ask for the implied mode now, so that later owners need not ask one by one. If
    /// so, the lock lets go of what it keeps beyond the implied mode, which nobody uses then.
    pub(super) fn wants_implied(&mut self, implied: Mode) -> bool {
        let detour = std::mem::take(&mut self.detour);
        let still = self.wanted.is_none() && self.recall.is_none() && self.waiting.is_empty();
        let wants = detour && still && self.users.values().all(|m| implied.covers(*m));
        if wants {
            self.mode = self.mode.meet(implied);
        }
        wants
    }

    /// Grants the lock to waiting owners that were named as users of as much as they wait for. The
    /// session of such an owner has the lock on this instance, and asked only whether others have
    /// to make room.
    ///
    /// Left waiting, the owner would stand behind the recall, or behind a request that waits for
    /// the recall, and the recall would wait for the owner's end.
    pub(super) fn grant_the_named(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        let (users, value) = (&self.users, self.value);
        self.waiting.retain(|w| {
            let owner = w.owner;
            let has = users.get(&owner).is_some_and(|used| used.covers(w.mode));
            if has {
                out.push(Effect::Granted {
                    resource,
                    owner,
                    value,
                });
            }
            !has
        });
    }

    /// Puts owners that use the lock and want it stronger before those that hold nothing.
    pub(super) fn converters_first(&mut self) {
        let mut waiting: Vec<Waiting> = std::mem::take(&mut self.waiting).into();
        waiting.sort_by_key(|w| !self.users.contains_key(&w.owner));
        self.waiting = waiting.into();
    }
}

/// Whether a lock may be given up. A lock with a value may not: if it was asked for again before
/// the master has heard of the release, it would come back with an older value.
pub(super) fn may_go(resource: Resource, lock: &Lock) -> bool {
    let plain = resource.implied() == Mode::Null && lock.value.is_none();
    plain && lock.mode != Mode::Null && lock.is_idle()
}

/// Tells the driver if the implied mode may be used without being asked for.
pub(super) fn opened(resource: Resource, lock: &Lock, out: &mut Vec<Effect>) {
    let implied = resource.implied();
    if implied != Mode::Null && lock.mode.covers(implied) && lock.recall.is_none() {
        out.push(Effect::Opened { resource });
    }
}
