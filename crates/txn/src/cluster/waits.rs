//! Waiting for the end of another instance's transaction. The transaction's instance is asked to
//! tell. It is asked again after anything that may have lost a message.
//!
//! **Invariant.** An instance that is to be told is registered before anybody looks whether the
//! transaction has ended. A session that ends a transaction publishes the end before it looks which
//! instances are to be told. One of the two fences comes first, so no instance is forgotten.

use super::messages::{Answer, TxnMessage};
use super::{Cluster, Letter};
use crate::timing::{self, AnswerCost, Begun};
use crate::visibility::TxnState;
use crate::{Error, Result};
use block::{InstanceId, TxnId};
use seam::HashMap;
use seam::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Transactions of this instance whose end others wait for.
#[derive(Default)]
pub(crate) struct ToTell {
    /// For each transaction the instances to tell, with the time when each asked.
    waiting: Mutex<HashMap<TxnId, BTreeMap<InstanceId, Begun>>>,
    /// Their number, so that an end that no other instance waits for takes no latch.
    count: AtomicUsize,
}

impl ToTell {
    fn add(&self, txn: TxnId, who: InstanceId) {
        let mut waiting = self.waiting.lock();
        let who_asked = waiting.entry(txn).or_default();
        // An instance may ask again: it has waited since it first asked.
        who_asked.entry(who).or_insert_with(Begun::now);
        self.count.store(waiting.len(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    fn take(&self, txn: TxnId) -> BTreeMap<InstanceId, Begun> {
        let mut waiting = self.waiting.lock();
        let who = waiting.remove(&txn).unwrap_or_default();
        self.count.store(waiting.len(), Ordering::SeqCst);
        who
    }
}

impl Cluster {
    /// Asks the transaction's instance to tell when it ends. The session that waits must be in the
    /// queue already.
    pub(crate) fn want_end(&self, txn: TxnId) {
        self.send(Letter::new(txn.instance(), &TxnMessage::TxnWait { txn }));
    }

    /// Notes that another instance wants to be told when a transaction of this one ends.
    pub(crate) fn end_wanted(
        &self,
        from: InstanceId,
        txn: TxnId,
        state: impl Fn(TxnId) -> TxnState,
    ) -> Result<()> {
        if txn.instance() != self.me {
            return Err(Error::bad_message(
                from,
                "the transaction is not this instance's",
            ));
        }
        self.to_tell.add(txn, from);
        if state(txn) != TxnState::Active {
            self.tell_end(txn, None, &state);
        }
        Ok(())
    }

    /// Tells other instances that a transaction of this instance has ended. Its status already says
    /// so. `flushing_ns` is when the transaction began to wait for the log, by
    /// [`interconnect::now_ns`].
    #[inline]
    pub(crate) fn txn_ended(
        &self,
        txn: TxnId,
        flushing_ns: Option<u64>,
        state: impl Fn(TxnId) -> TxnState,
    ) {
        fence(Ordering::SeqCst);
        if self.to_tell.count.load(Ordering::SeqCst) != 0 {
            self.tell_end(txn, flushing_ns, &state);
        }
    }

    #[cold]
    fn tell_end(&self, txn: TxnId, flushing_ns: Option<u64>, state: &impl Fn(TxnId) -> TxnState) {
        let answer = match state(txn) {
            TxnState::Committed(scn) => Answer::Committed(scn),
            TxnState::Aborted => Answer::Aborted,
            TxnState::Active | TxnState::Unknown => {
                unreachable!("invariant: {txn:?} has ended, and is this instance's")
            }
        };
        for (to, begun) in self.to_tell.take(txn) {
            let waited = begun.answered(self.me);
            let flush_ns = flushing_ns.map_or(0, |at| timing::since(at.max(begun.at_ns)));
            let cost = AnswerCost {
                in_use_ns: waited.in_use_ns.saturating_sub(flush_ns),
                flush_ns,
                ..waited
            };
            self.send(Letter::new(to, &TxnMessage::TxnEnded { txn, answer, cost }));
        }
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

/// Whether a state says that the transaction is over.
pub(crate) fn is_over(state: TxnState) -> bool {
    matches!(state, TxnState::Committed(_) | TxnState::Aborted)
}
