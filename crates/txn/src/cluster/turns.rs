//! Turns at a place, a row or a unique key, that sessions of several instances wait for.
//!
//! When a transaction ends, or undoes some of its changes, its instance knows the sessions that
//! wait for it: its own in the lines at their places, and of each other instance the first session
//! in the line at each place, with the time for which that session has wanted the row or key. A
//! session of the transaction's own instance needs neither a message nor the block, so it would
//! always be the fastest. Therefore the place goes to the session that has waited longest. If that
//! is another instance's, the place is *promised* to it, and sessions of this instance let it pass
//! until the other instance says that its turn is over. If it is this instance's, the others hear
//! of the transaction when that session has had its turn.
//!
//! **Owns** the promises that this instance has made, and the turns that others have given it.
//!
//! **Invariants.**
//! - A promise only delays. It holds for [`PATIENCE`] at most, whatever is lost or dies; a row is
//!   changed by the rules of row locks and a key put by those of its index, promise or not.
//! - An instance that was given a turn says that it is over when the session at the head of the
//!   place's line leaves the line or waits again, and at once if there is none.
//! - A place is one instance's turn at a time. An instance whose every claim is another's turn
//!   hears of the transaction when such a turn is over, or when it asks again, within a second. So
//!   no wait of it lacks its edge in a deadlock for longer.

use super::Letter;
use super::messages::TxnMessage;
use crate::Place;
use crate::manager::TxnManager;
use crate::timing::Begun;
use block::{InstanceId, TxnId};
use seam::{HashMap, Mutex};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

/// How long sessions let another instance's session pass. A turn takes a message and a block; this
/// is for what is lost, and for an instance that gets no processor.
const PATIENCE: Duration = Duration::from_millis(250);

/// A place at whose line here an instance's first session stands, and since when it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    pub place: Place,
    pub since: Instant,
}

/// An instance that waits for a transaction of this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    /// When it first asked.
    pub begun: Begun,
    /// One for each place that it has told.
    pub claims: Vec<Claim>,
}

impl Asked {
    pub(super) fn new(claim: Claim) -> Asked {
        Asked {
            begun: Begun::now(),
            claims: vec![claim],
        }
    }

    /// The instance asks again, or for another place. A place at which its session stands keeps the
    /// time since which a session there has.
    pub(super) fn add(&mut self, claim: Claim) {
        match self.claims.iter_mut().find(|c| c.place == claim.place) {
            Some(known) => known.since = claim.since,
            None => self.claims.push(claim),
        }
    }
}

/// The instances that are to be told of a transaction.
pub(crate) type AllAsked = BTreeMap<InstanceId, Asked>;

/// To which instance each place goes first, of those at which other instances wait. `here`: since
/// when the first session of this instance, `me`, has stood there.
fn first_turns(
    me: InstanceId,
    asked: &AllAsked,
    here: impl Fn(Place) -> Option<Instant>,
) -> BTreeMap<Place, InstanceId> {
    let mut first: BTreeMap<Place, (Instant, InstanceId)> = BTreeMap::new();
    for (&instance, asked) in asked {
        for claim in &asked.claims {
            let one = (claim.since, instance);
            let first = first.entry(claim.place).or_insert(one);
            *first = one.min(*first);
        }
    }
    let among_all = |(place, (since, to)): (Place, (Instant, InstanceId))| {
        let is_first = here(place).is_none_or(|here| since < here);
        (place, if is_first { to } else { me })
    };
    first.into_iter().map(among_all).collect()
}

struct Promise {
    to: InstanceId,
    until: Instant,
    /// Told when the turn is over.
    then: Vec<(TxnId, InstanceId, Asked)>,
}

#[derive(Default)]
struct State {
    /// Also promises to this instance itself, which only put others off.
    made: HashMap<Place, Promise>,
    given: HashMap<Place, InstanceId>,
}

/// See the module. The latch is a leaf: nothing is called with it held.
pub(crate) struct Turns {
    me: InstanceId,
    state: Mutex<State>,
    /// Promises made to other instances, so that a change of a row takes no latch if there are
    /// none.
    made: AtomicUsize,
    /// Turns of this instance, given by others or by itself.
    given: AtomicUsize,
}

/// The turns of this instance at a place that are over.
#[derive(Default)]
struct Taken {
    given_by: Option<InstanceId>,
    own: Option<Promise>,
}

impl Turns {
    /// Whether any place is promised to another instance.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.made.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn new(me: InstanceId) -> Turns {
        Turns {
            me,
            state: Mutex::default(),
            made: AtomicUsize::new(0),
            given: AtomicUsize::new(0),
        }
    }

    /// Counts again after a change.
    fn count(&self, state: &State) {
        let own = state.made.values().filter(|p| p.to == self.me).count();
        self.made.store(state.made.len() - own, Ordering::SeqCst);
        self.given.store(state.given.len() + own, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The other instance that a place is promised to, and until when.
    pub(crate) fn promised(&self, place: Place) -> Option<(InstanceId, Instant)> {
        let state = self.state.lock();
        let promise = state.made.get(&place).filter(|p| p.to != self.me)?;
        Some((promise.to, promise.until))
    }

    /// Promises a place. Instances that wait for an older promise of it wait for this one.
    fn promise(&self, place: Place, to: InstanceId) {
        let mut state = self.state.lock();
        let until = seam::now() + PATIENCE;
        let promise = state.made.entry(place).or_insert(Promise {
            to,
            until,
            then: Vec::new(),
        });
        (promise.to, promise.until) = (to, until);
        self.count(&state);
    }

    /// Puts an instance off until the turn at the place is over. The instance comes back if it is.
    fn put_off(&self, place: Place, late: (TxnId, InstanceId, Asked)) -> Option<Asked> {
        let mut state = self.state.lock();
        match state.made.get_mut(&place) {
            Some(promise) => {
                promise.then.push(late);
                None
            }
            None => Some(late.2),
        }
    }

    /// Takes the promises that `is_over` says are.
    fn take(&self, is_over: impl Fn(Place, &Promise) -> bool) -> Vec<(Place, Promise)> {
        let mut state = self.state.lock();
        let over = state
            .made
            .extract_if(|place, p| is_over(*place, p))
            .collect();
        self.count(&state);
        over
    }

    fn give(&self, place: Place, by: InstanceId) {
        let mut state = self.state.lock();
        state.given.insert(place, by);
        self.count(&state);
    }

    /// This instance's turns at the place are over, if it has any.
    fn end_own(&self, place: Place) -> Taken {
        fence(Ordering::SeqCst);
        if self.given.load(Ordering::SeqCst) == 0 {
            return Taken::default();
        }
        let mut state = self.state.lock();
        let own = state.made.get(&place).is_some_and(|p| p.to == self.me);
        let taken = Taken {
            given_by: state.given.remove(&place),
            own: own.then(|| state.made.remove(&place)).flatten(),
        };
        self.count(&state);
        taken
    }
}

impl TxnManager {
    /// The session at the head of the place's line has left it, or waits again. Never waits, and
    /// may be called under latches.
    #[inline]
    pub(crate) fn turn_taken(&self, place: Place) {
        let taken = self.cluster.turns.end_own(place);
        if let Some(by) = taken.given_by {
            let message = TxnMessage::TurnOver { place };
            self.cluster.send(Letter::new(by, &message));
        }
        if let Some(promise) = taken.own {
            self.turns_are_over(vec![(place, promise)]);
        }
    }

    /// Tells instances of a transaction of this one, which has ended or undone some of its changes
    /// as its status and entry say. Places that go to them first are promised to them. `just`: it
    /// did so just now, so that instances which would only be in the way of others' turns are put
    /// off.
    pub(super) fn tell(&self, txn: TxnId, just: bool, flushing_ns: Option<u64>, asked: AllAsked) {
        let (me, cluster) = (self.config.instance, &self.cluster);
        let first = match seam::planted("rows go to the fastest") {
            true => BTreeMap::new(),
            false => first_turns(me, &asked, |place| self.enqueues.wanted_since(place)),
        };
        for (&place, &to) in first.iter().filter(|(_, to)| just || **to != me) {
            cluster.turns.promise(place, to);
        }
        for (to, mut asked) in asked {
            let turns: Vec<Place> = asked
                .claims
                .iter()
                .filter(|c| first.get(&c.place) == Some(&to))
                .map(|c| c.place)
                .collect();
            if just && turns.is_empty() && !first.is_empty() {
                let place = asked.claims[0].place;
                match cluster.turns.put_off(place, (txn, to, asked)) {
                    None => continue,
                    Some(back) => asked = back,
                }
            }
            cluster.tell_one((txn, to), flushing_ns, &asked.begun, turns, |txn| {
                self.visibility.own_state(txn)
            });
        }
    }

    /// Takes turns at places that another instance gives to this one.
    pub(crate) fn turns_given(&self, by: InstanceId, places: &[Place]) {
        for &place in places {
            self.cluster.turns.give(place, by);
            if self.enqueues.wanted_since(place).is_none() {
                self.turn_taken(place);
            }
        }
    }

    /// That instance's turn at the place is over.
    pub(crate) fn turn_over(&self, of: InstanceId, place: Place) {
        let over = self.cluster.turns.take(|r, p| r == place && p.to == of);
        self.turns_are_over(over);
    }

    /// Promises that nobody has kept in time are made no more.
    pub(crate) fn expire_turns(&self) {
        let now = seam::now();
        self.turns_are_over(self.cluster.turns.take(|_, p| p.until <= now));
    }

    /// Promises to instances that are gone are made no more.
    pub(crate) fn forget_turns_of_the_gone(&self) {
        let gone = |_: Place, p: &Promise| !self.cluster.is_up(p.to);
        self.turns_are_over(self.cluster.turns.take(gone));
    }

    fn turns_are_over(&self, over: Vec<(Place, Promise)>) {
        for (place, promise) in over {
            self.enqueues.end_turn(place);
            for (txn, to, asked) in promise.then {
                if self.cluster.is_up(to) {
                    self.tell(txn, false, None, AllAsked::from([(to, asked)]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Dba, FileId, RowId};

    fn row(n: u32) -> Place {
        Place::Row(RowId::new(Dba::new(FileId::DATA, n), 0))
    }

    #[test]
    fn a_row_goes_to_the_session_that_has_waited_longest() {
        let start = seam::now();
        let at = |ms| start + Duration::from_millis(ms);
        let claim = |n, ms| Claim {
            place: row(n),
            since: at(ms),
        };
        let asked = |claims: &[Claim]| Asked {
            begun: Begun::now(),
            claims: claims.to_vec(),
        };
        let (two, three) = (InstanceId(2), InstanceId(3));
        let all = AllAsked::from([
            (two, asked(&[claim(1, 5), claim(2, 9), claim(3, 7)])),
            (three, asked(&[claim(1, 6), claim(2, 8)])),
        ]);
        let here = |r: Place| match r {
            r if r == row(2) => Some(at(10)),
            r if r == row(3) => Some(at(7)),
            _ => None,
        };
        let me = InstanceId(1);
        let first = first_turns(me, &all, here);
        // Of two that have waited equally long the one that is here goes first.
        let turns = [(row(1), two), (row(2), three), (row(3), me)];
        assert_eq!(first, BTreeMap::from(turns));
    }

    #[test]
    fn promises_are_over_when_the_turn_is_or_in_time() {
        let turns = Turns::new(InstanceId(1));
        assert!(!turns.any() && turns.promised(row(1)).is_none());
        turns.promise(row(1), InstanceId(2));
        turns.promise(row(2), InstanceId(3));
        assert!(turns.any());
        assert_eq!(turns.promised(row(1)).map(|p| p.0), Some(InstanceId(2)));
        let of_another = turns.take(|r, p| r == row(1) && p.to == InstanceId(3));
        assert!(of_another.is_empty());
        let later = seam::now() + 2 * PATIENCE;
        assert_eq!(turns.take(|_, p| p.until <= later).len(), 2);
        assert!(!turns.any());
    }

    #[test]
    fn a_turn_of_this_instance_ends_once() {
        let turns = Turns::new(InstanceId(1));
        assert_eq!(turns.end_own(row(1)).given_by, None);
        turns.give(row(1), InstanceId(2));
        assert_eq!(turns.end_own(row(2)).given_by, None);
        assert_eq!(turns.end_own(row(1)).given_by, Some(InstanceId(2)));
        assert_eq!(turns.end_own(row(1)).given_by, None);
    }

    /// Nobody lets this instance's own session pass, and those that it puts off hear when its turn
    /// is over.
    #[test]
    fn a_promise_to_this_instance_only_puts_others_off() {
        let turns = Turns::new(InstanceId(1));
        turns.promise(row(1), InstanceId(1));
        assert!(!turns.any() && turns.promised(row(1)).is_none());
        let claim = Claim {
            place: row(1),
            since: seam::now(),
        };
        let late = (TxnId(7), InstanceId(2), Asked::new(claim));
        assert!(turns.put_off(row(1), late.clone()).is_none());
        assert!(turns.put_off(row(2), late).is_some());
        let own = turns.end_own(row(1)).own.expect("a promise");
        assert_eq!(own.then.len(), 1);
        assert!(turns.end_own(row(1)).own.is_none());
    }
}
