//! How transactions of other instances stand. An instance that is up is asked. For an instance that
//! is down its status file is read.

use super::messages::{Answer, TxnMessage};
use super::{Cluster, Letter};
use crate::status::{Status, StatusArray};
use crate::timing::{AnswerCost, Answered};
use crate::visibility::TxnState;
use crate::{Error, Result};
use block::{InstanceId, Scn, TxnId};
use seam::HashMap;
use seam::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use wait::{Event, WaitResult, Waiter};

/// The status words of instances that are down, as their files have them. They are complete and
/// final, because an instance that is down was closed cleanly or has been recovered.
#[derive(Default)]
pub(crate) struct Down {
    words: arc_swap::ArcSwap<BTreeMap<InstanceId, Arc<StatusArray>>>,
    /// Held while a file is read, and while members change.
    loading: Mutex<()>,
}

impl Down {
    fn get(&self, instance: InstanceId) -> Option<Arc<StatusArray>> {
        self.words.load().get(&instance).cloned()
    }

    /// Forgets the words of the instances `whom`, which are not down any more.
    pub(super) fn forget(&self, whom: impl Fn(InstanceId) -> bool) {
        let _change = self.loading.lock();
        let mut words = BTreeMap::clone(&self.words.load());
        words.retain(|i, _| !whom(*i));
        self.words.store(Arc::new(words));
    }

    /// Keeps the words of an instance, which `load` reads. Does nothing if they are here already or
    /// the instance is not down. The caller that changes the members drops the words of the
    /// instances that are not down then.
    pub(crate) fn ensure(
        &self,
        instance: InstanceId,
        is_down: impl Fn() -> bool,
        load: impl FnOnce() -> Result<StatusArray>,
    ) -> Result<()> {
        if self.get(instance).is_some() {
            return Ok(());
        }
        let _change = self.loading.lock();
        if !is_down() || self.get(instance).is_some() {
            return Ok(());
        }
        let loaded = Arc::new(load()?);
        let mut words = BTreeMap::clone(&self.words.load());
        words.insert(instance, loaded);
        self.words.store(Arc::new(words));
        Ok(())
    }
}

/// A session that waits for an answer.
struct Question {
    waiter: Arc<Waiter>,
    /// The snapshot that the answer must serve.
    snapshot: Scn,
    /// The answer is kept here, too: the cache may have thrown it out by the time its asker looks.
    answer: Option<(Answer, Answered)>,
}

#[derive(Default)]
pub(crate) struct Questions {
    open: Mutex<HashMap<TxnId, Vec<Question>>>,
}

impl Questions {
    /// The questions to `peer` that are not answered.
    pub(super) fn of(&self, peer: InstanceId) -> Vec<(TxnId, Scn)> {
        let open = self.open.lock();
        let his = open.iter().filter(|(txn, _)| txn.instance() == peer);
        his.filter_map(|(&txn, asked)| Some((txn, asked.iter().map(|q| q.snapshot).max()?)))
            .collect()
    }

    fn answered(&self, txn: TxnId, answer: Answer, how: Answered) {
        for q in self.open.lock().get_mut(&txn).into_iter().flatten() {
            if serves(answer, q.snapshot) {
                q.answer = Some((answer, how));
                q.waiter.wake();
            }
        }
    }

    /// Wakes the sessions that asked an instance which is down now. They look elsewhere.
    pub(super) fn of_the_down(&self, is_down: impl Fn(InstanceId) -> bool) {
        let open = self.open.lock();
        for (_, asked) in open.iter().filter(|(txn, _)| is_down(txn.instance())) {
            asked.iter().for_each(|q| q.waiter.wake());
        }
    }

    fn answer(&self, txn: TxnId, of: &Arc<Waiter>) -> Option<(Answer, Answered)> {
        let open = self.open.lock();
        let mut asked = open.get(&txn)?.iter();
        asked.find(|q| Arc::ptr_eq(&q.waiter, of))?.answer
    }

    fn forget(&self, txn: TxnId, of: &Arc<Waiter>) {
        let mut open = self.open.lock();
        if let Some(asked) = open.get_mut(&txn) {
            asked.retain(|q| !Arc::ptr_eq(&q.waiter, of));
            if asked.is_empty() {
                open.remove(&txn);
            }
        }
    }
}

fn serves(answer: Answer, snapshot: Scn) -> bool {
    !matches!(answer, Answer::ActiveTo(to) if to < snapshot)
}

impl Cluster {
    /// What is known here of another instance's transaction, for a snapshot. Without a snapshot it
    /// is about now, and "active" may be old news. Never waits.
    pub(crate) fn state(&self, txn: TxnId, snapshot: Option<Scn>) -> TxnState {
        let learnt = self.learnt.get().and_then(|learnt| learnt.get(txn));
        match learnt {
            Some(Answer::Committed(scn)) => return TxnState::Committed(scn),
            Some(Answer::Aborted) => return TxnState::Aborted,
            Some(Answer::ActiveTo(to)) if snapshot.is_some_and(|x| x <= to) => {
                return TxnState::Active;
            }
            _ => {}
        }
        match (self.down.get(txn.instance()), learnt) {
            (Some(words), _) => match words.get(txn.number()) {
                None => TxnState::Committed(Scn::ZERO),
                Some(Status::Committed(scn)) => TxnState::Committed(scn),
                // There is no word of its end: it ended without having changed anything that lasts.
                Some(Status::Aborted(_) | Status::Active | Status::Committing(_)) => {
                    TxnState::Aborted
                }
            },
            (None, Some(_)) if snapshot.is_none() => TxnState::Active,
            (None, _) => TxnState::Unknown,
        }
    }

    /// Asks the transaction's instance and waits for an answer that serves `snapshot`. If that
    /// instance is dead, its next life answers: it gets the question again when it is a member.
    /// [`TxnState::Unknown`] if the instance is down.
    pub(crate) fn ask_and_wait(&self, txn: TxnId, snapshot: Scn) -> Result<TxnState> {
        let waiter = Waiter::new();
        let question = Question {
            waiter: waiter.clone(),
            snapshot,
            answer: None,
        };
        let mut open = self.questions.open.lock();
        open.entry(txn).or_default().push(question);
        drop(open);
        let began_ns = wait::timestamp_ns();
        self.ask(txn, snapshot);
        let p = [u64::from(txn.instance().0), txn.0, snapshot.0];
        let served = || {
            let (_, how) = self.questions.answer(txn, &waiter)?;
            Some(how.served(began_ns))
        };
        let result = loop {
            match self
                .questions
                .answer(txn, &waiter)
                .map(|(answer, _)| answer)
            {
                Some(Answer::Committed(scn)) => break Ok(TxnState::Committed(scn)),
                Some(Answer::Aborted) => break Ok(TxnState::Aborted),
                Some(Answer::ActiveTo(_)) => break Ok(TxnState::Active),
                None if self.is_down(txn.instance()) => break Ok(TxnState::Unknown),
                None => {}
            }
            let asked = (txn.instance().0, wait::timestamp_ns());
            let waited = waiter.wait_remote(Event::GcTransactionTable, p, None, asked, served);
            if waited == WaitResult::Cancelled {
                break Err(wait::Cancelled.into());
            }
        };
        self.questions.forget(txn, &waiter);
        result
    }

    pub(super) fn ask(&self, txn: TxnId, snapshot: Scn) {
        let question = TxnMessage::Ask { txn, snapshot };
        self.send(Letter::new(txn.instance(), &question));
    }

    /// Answers another instance's question about a transaction of this instance. `state` looks into
    /// the words.
    pub(crate) fn asked(
        &self,
        from: InstanceId,
        (txn, snapshot): (TxnId, Scn),
        state: impl FnOnce(TxnId) -> TxnState,
    ) -> Result<()> {
        if txn.instance() != self.me {
            return Err(Error::bad_message(
                from,
                "the transaction is not this instance's",
            ));
        }
        // The clock is lifted first (V2). Then "active" is final for the asker.
        self.clock.lift(snapshot)?;
        let answer = match state(txn) {
            TxnState::Committed(scn) => Answer::Committed(scn),
            TxnState::Aborted => Answer::Aborted,
            TxnState::Active => Answer::ActiveTo(snapshot),
            TxnState::Unknown => unreachable!("an instance knows its own transactions"),
        };
        let cost = AnswerCost::at_once(self.me);
        self.send(Letter::new(from, &TxnMessage::Answer { txn, answer, cost }));
        Ok(())
    }

    /// Takes in what an instance says of a transaction of its own.
    pub(crate) fn answered(
        &self,
        from: InstanceId,
        (txn, answer, cost): (TxnId, Answer, AnswerCost),
    ) -> Result<Answered> {
        let how = Answered::now(cost);
        if txn.instance() != from {
            return Err(Error::bad_message(
                from,
                "the transaction is not the sender's",
            ));
        }
        if let Answer::ActiveTo(scn) | Answer::Committed(scn) = answer {
            self.clock.lift(scn)?;
        }
        if let Some(learnt) = self.learnt.get() {
            learnt.put(txn, answer);
        }
        self.questions.answered(txn, answer, how);
        Ok(how)
    }
}
