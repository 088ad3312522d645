//! Waiting for another instance's transaction, until it ends or undoes some of its changes: its
//! instance is asked to tell, once and again after whatever may have lost a message.
//!
//! **Invariant.** An instance that is to be told is registered before its registrar looks whether
//! the transaction has ended or undone; a session that ends a transaction, or undoes some of it,
//! publishes that before it looks which instances are to be told. Of the two fences one comes
//! first, so nobody is forgotten.
//!
//! **A rollback that the waiter's look missed.** A session looks at a row, finds the transaction's
//! stamp, and waits; the rollback to a savepoint that takes the stamp away may come in between. So
//! the waiter says what its clock showed before it looked. Its look read the block as it was before
//! the rollback; so a message of it, which carries its clock, came before the rollback to the
//! instance that undid, on the way of the block. The SCN that is drawn after the rollback is
//! therefore higher, and says that the waiter is to look again.

use super::messages::{Answer, TxnMessage};
use super::turns::{AllAsked, Asked, Claim};
use super::{Cluster, Letter};
use crate::local_enqueues::Want;
use crate::manager::TxnManager;
use crate::timing::{self, AnswerCost, Begun};
use crate::visibility::TxnState;
use crate::{Error, Place, Result};
use block::{InstanceId, TxnId};
use seam::HashMap;
use seam::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Transactions of this instance that others wait for.
#[derive(Default)]
pub(crate) struct ToTell {
    waiting: Mutex<HashMap<TxnId, AllAsked>>,
    /// Their number, so that an end that no other instance waits for takes no latch.
    count: AtomicUsize,
}

impl ToTell {
    fn add(&self, txn: TxnId, who: InstanceId, claim: Claim) {
        let mut waiting = self.waiting.lock();
        let asked = waiting.entry(txn).or_default();
        // It may ask again: it waits since it first did.
        asked
            .entry(who)
            .and_modify(|asked| asked.add(claim))
            .or_insert_with(|| Asked::new(claim));
        self.count.store(waiting.len(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn is_to_be_told(&self, txn: TxnId, who: InstanceId) -> bool {
        let waiting = self.waiting.lock();
        waiting
            .get(&txn)
            .is_some_and(|asked| asked.contains_key(&who))
    }

    fn take(&self, txn: TxnId) -> AllAsked {
        let mut waiting = self.waiting.lock();
        let who = waiting.remove(&txn).unwrap_or_default();
        self.count.store(waiting.len(), Ordering::SeqCst);
        who
    }
}

impl Cluster {
    /// Asks the transaction's instance to tell when it ends, or undoes changes after the session
    /// looked. For a session that is in the queue already.
    pub(crate) fn want_end(&self, txn: TxnId, want: &Want) {
        let message = TxnMessage::TxnWait {
            txn,
            looked: want.looked,
            place: want.place,
            waited_us: seam::elapsed(want.since).as_micros() as u64,
        };
        self.send(Letter::new(txn.instance(), &message));
    }

    /// Whether that instance is to be told of the transaction, which is this one's: a wait there
    /// for which it asked still stands, as far as this instance has said anything.
    pub(super) fn is_to_be_told(&self, txn: TxnId, who: InstanceId) -> bool {
        self.to_tell.is_to_be_told(txn, who)
    }

    /// Tells an instance that a transaction of this one has ended, or undone some of its changes,
    /// with the places at which it is its turn. `flushing_ns`: since when the transaction was
    /// waiting for the log to say that it has ended, by [`interconnect::now_ns`].
    pub(super) fn tell_one(
        &self,
        (txn, to): (TxnId, InstanceId),
        flushing_ns: Option<u64>,
        begun: &Begun,
        turns: Vec<Place>,
        state: impl Fn(TxnId) -> TxnState,
    ) {
        let waited = begun.answered(self.me);
        let flush_ns = flushing_ns.map_or(0, |at| timing::since(at.max(begun.at_ns)));
        let cost = AnswerCost {
            in_use_ns: waited.in_use_ns.saturating_sub(flush_ns),
            flush_ns,
            ..waited
        };
        let turns = turns.into();
        let answer = match state(txn) {
            TxnState::Committed(scn) => Answer::Committed(scn),
            TxnState::Aborted => Answer::Aborted,
            TxnState::Active => {
                let message = TxnMessage::TxnUndone { txn, cost, turns };
                return self.send(Letter::new(to, &message));
            }
            TxnState::Unknown => unreachable!("invariant: {txn:?} is this instance's"),
        };
        let message = TxnMessage::TxnEnded {
            txn,
            answer,
            cost,
            turns,
        };
        self.send(Letter::new(to, &message));
    }

    /// Forgets the instances that are gone. They need not be told.
    pub(super) fn forget_waiters_of_the_gone(&self) {
        let mut waiting = self.to_tell.waiting.lock();
        waiting.retain(|_, who| {
            who.retain(|i, _| self.is_up(*i));
            !who.is_empty()
        });
        self.to_tell.count.store(waiting.len(), Ordering::SeqCst);
    }
}

impl TxnManager {
    /// Notes that another instance wants to be told when a transaction of this one ends, or undoes
    /// changes after its session looked.
    pub(crate) fn end_wanted(&self, from: InstanceId, txn: TxnId, want: &Want) -> Result<()> {
        if txn.instance() != self.config.instance {
            return Err(Error::bad_message(
                from,
                "the transaction is not this instance's",
            ));
        }
        // Its session may wait again after a turn that this instance gave it.
        self.turn_over(from, want.place);
        let claim = Claim {
            place: want.place,
            since: want.since,
        };
        self.cluster.to_tell.add(txn, from, claim);
        if self.visibility.own_state(txn) != TxnState::Active
            || self.active.has_undone_since(txn, want.looked)
        {
            self.tell(txn, false, None, self.cluster.to_tell.take(txn));
        }
        Ok(())
    }

    /// A transaction of this instance has ended, or undone some of its changes, and its status and
    /// entry say so: lets its waiters go, those of other instances first, because it may be their
    /// turn. `flushing_ns`: since when the transaction was waiting for the log, by
    /// [`interconnect::now_ns`].
    #[inline]
    pub(crate) fn let_waiters_go(&self, txn: TxnId, flushing_ns: Option<u64>) {
        fence(Ordering::SeqCst);
        let to_tell = &self.cluster.to_tell;
        if to_tell.count.load(Ordering::SeqCst) != 0 {
            self.tell(txn, true, flushing_ns, to_tell.take(txn));
        }
        self.enqueues.let_go(txn, None);
    }
}

/// Whether a state says that the transaction is over.
pub(crate) fn is_over(state: TxnState) -> bool {
    matches!(state, TxnState::Committed(_) | TxnState::Aborted)
}
