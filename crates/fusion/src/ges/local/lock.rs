//! One lock of this instance: the mode kept, its users, its queue, and what others want.
//!
//! **Invariant.** The queue has the *admitted* waiters first. An admitted waiter's place is settled
//! among instances: its instance has the mode that it needs, and it waits for owners of its own
//! instance only. The others have a request at the master, which decides when they are admitted.

use crate::ges::{Effect, Mode, Modes, Owner, Resource, Value};
use crate::ids::{RequestId, Turn};
use crate::planted::{Mutation, Planted};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Waiting {
    pub(super) owner: Owner,
    /// What the owner is to have, with what it uses already.
    pub(super) mode: Mode,
    pub(super) patient: bool,
    /// The request at the master; the default if none was needed.
    pub(super) id: RequestId,
    pub(super) admitted: bool,
    /// Whether the waiter was moved in the queue because of a circle. It is not moved back.
    pub(super) moved: bool,
}

/// What owners elsewhere wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Wants {
    pub(super) turn: Turn,
    /// The modes that exclude the mode kept here.
    pub(super) modes: Modes,
    pub(super) patient: bool,
    pub(super) answered: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lock {
    pub(super) mode: Mode,
    /// The turn and the id of the last grant.
    pub(super) turn: Turn,
    pub(super) id: RequestId,
    /// Recalls up to this turn are over.
    pub(super) heard: Turn,
    pub(super) value: Option<Value>,
    pub(super) users: BTreeMap<Owner, Mode>,
    pub(super) waiting: Vec<Waiting>,
    /// The request that is only to bring the implied mode back.
    pub(super) reopening: Option<RequestId>,
    pub(super) wants: Option<Wants>,
    /// Whether the driver has answered a closing, so that `users` has all that use the lock.
    pub(super) closed: bool,
    /// Whether an owner had to ask since the last tick for what the implied mode allows.
    pub(super) detour: bool,
}

impl Lock {
    pub(super) fn of(resource: Resource) -> Lock {
        Lock {
            mode: resource.implied(),
            turn: Turn::default(),
            id: RequestId::default(),
            heard: Turn::default(),
            value: None,
            users: BTreeMap::new(),
            waiting: Vec::new(),
            reopening: None,
            wants: None,
            closed: false,
            detour: false,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        let still = self.reopening.is_none() && self.wants.is_none();
        still && self.users.is_empty() && self.waiting.is_empty()
    }

    /// What an owner uses, as far as that is known.
    pub(super) fn own(&self, owner: Owner) -> Mode {
        self.users.get(&owner).copied().unwrap_or_default()
    }

    /// The number of admitted waiters, which stand in front.
    pub(super) fn admitted(&self) -> usize {
        self.waiting.iter().take_while(|w| w.admitted).count()
    }

    /// The users that keep an owner from having `mode`.
    pub(super) fn users_against(&self, owner: Owner, mode: Mode) -> impl Iterator<Item = Owner> {
        let against = move |(o, m): &(&Owner, &Mode)| **o != owner && !m.compatible(mode);
        self.users.iter().filter(against).map(|(o, _)| *o)
    }

    /// Whether an owner that uses `own` has to wait for owners elsewhere, or for a request of this
    /// instance, before it may have `mode`. It need not wait for those that wait for its own end.
    pub(super) fn is_stopped(&self, own: Mode, mode: Mode) -> bool {
        let stops = |m: Mode| !m.compatible(mode) && m.compatible(own);
        let mut elsewhere = self.wants.iter().flat_map(|w| w.modes.iter());
        let mut asked = self.waiting.iter().filter(|w| !w.admitted);
        elsewhere.any(stops) || asked.any(|w| stops(w.mode))
    }

    /// Puts a waiter among the admitted: before the first that waits for the end of what it uses,
    /// otherwise behind all.
    pub(super) fn admit(&mut self, waiting: Waiting) {
        let own = self.own(waiting.owner);
        let end = self.admitted();
        let mut admitted = self.waiting.iter().take(end);
        let place = admitted.position(|w| !w.mode.compatible(own));
        let admitted = Waiting {
            admitted: true,
            ..waiting
        };
        self.waiting.insert(place.unwrap_or(end), admitted);
    }

    /// The weakest mode that users and admitted waiters need.
    pub(super) fn needed(&self, planted: Planted) -> Mode {
        let users = self.users.values().copied();
        let users = users.filter(|_| !planted.breaks(Mutation::RecallFromUsers));
        let admitted = self.waiting.iter().filter(|w| w.admitted).map(|w| w.mode);
        let admitted = admitted.filter(|_| !planted.breaks(Mutation::RecallFromWaiters));
        users.chain(admitted).fold(Mode::Null, Mode::join)
    }

    /// What may be kept by an instance that needs so much: all but what excludes a wanted mode, if
    /// the need allows that mode.
    pub(super) fn keeps(&self, wanted: Modes, needed: Mode) -> Mode {
        let allowed = wanted.iter().filter(|m| needed.compatible(*m));
        allowed.fold(self.mode, Mode::keep_beside)
    }

    /// Takes note of what is wanted elsewhere. Returns whether the driver has to close the
    /// resource.
    pub(super) fn want(
        &mut self,
        resource: Resource,
        (turn, wanted): (Turn, Modes),
        patient: bool,
    ) -> bool {
        let modes = wanted.excluding(self.mode);
        self.heard = turn;
        self.wants = (!modes.is_empty()).then_some(Wants {
            turn,
            modes,
            patient,
            answered: false,
        });
        !self.closed && self.is_shut(resource)
    }

    /// Whether what others want does not allow that the resource is used without being asked for.
    pub(super) fn is_shut(&self, resource: Resource) -> bool {
        let implied = resource.implied();
        let shuts = |w: Wants| implied == Mode::Null || !w.modes.excluding(implied).is_empty();
        self.wants.is_some_and(shuts)
    }

    /// Whether to ask for the implied mode now, so that later owners need not ask one by one. If
    /// so, the lock lets go of what it keeps beyond the implied mode, which nobody uses then.
    pub(super) fn wants_implied(&mut self, implied: Mode) -> bool {
        let detour = std::mem::take(&mut self.detour);
        let still = self.reopening.is_none() && self.wants.is_none() && self.waiting.is_empty();
        let wants = detour && still && self.users.values().all(|m| implied.covers(*m));
        if wants {
            self.mode = self.mode.meet(implied);
        }
        wants
    }

    /// Opens a closed resource once nobody uses or wants what excludes the implied mode.
    pub(super) fn open(&mut self, resource: Resource, out: &mut Vec<Effect>) {
        let implied = resource.implied();
        if !self.closed || self.is_shut(resource) {
            return;
        }
        let waiting = self.waiting.iter().map(|w| w.mode);
        let mut here = self.users.values().copied().chain(waiting);
        if implied == Mode::Null {
            self.closed = false;
        } else if self.mode.covers(implied) && here.all(|m| m.compatible(implied)) {
            self.closed = false;
            out.push(Effect::Opened { resource });
        }
    }
}

/// Whether a lock may be given up. A lock with a value may not: if it was asked for again before
/// the master has heard of the release, it would come back with an older value.
pub(super) fn may_go(resource: Resource, lock: &Lock) -> bool {
    let plain = resource.implied() == Mode::Null && lock.value.is_none();
    plain && lock.mode != Mode::Null && lock.is_idle()
}
