//! Asking other instances who shares a row ([`crate::sharers`]).
//!
//! **Invariants.**
//! - An instance that is asked waits for nothing. A question is said again after whatever may have
//!   lost it or its answer; to answer it twice does no harm.
//! - Of an instance that is no member only the last life's locks can be meant, and those are gone.
//!   But while it is undecided when the last commits of a dead instance took effect, a row that it
//!   may have shared is not given to anybody, as no lock of it is (E10 of `fusion`): the change
//!   could otherwise be visible without what it was kept from.

use super::messages::TxnMessage;
use super::{Cluster, Letter};
use crate::sharers::{RowLock, Told, marks_of};
use crate::timing::{AnswerCost, Answered};
use crate::{Error, Result};
use block::{InstanceId, RowId};
use seam::{HashMap, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use wait::{Event, WaitResult, Waiter};

/// A session that waits for answers.
struct Question {
    waiter: Arc<Waiter>,
    row: RowId,
    lock: RowLock,
    /// The marks that name the instances that are asked.
    marks: u8,
    answers: BTreeMap<InstanceId, Told>,
    /// What the newest answer took.
    how: Option<Answered>,
}

#[derive(Default)]
struct State {
    last: u64,
    open: HashMap<u64, Question>,
    /// Instances that are dead, of which it is undecided when their last commits took effect.
    in_doubt: Vec<InstanceId>,
}

/// The questions that are open.
#[derive(Default)]
pub(crate) struct SharersAsked {
    state: Mutex<State>,
}

impl Cluster {
    /// Whether another instance, which must be asked, may have put one of these marks on a row.
    pub(crate) fn has_sharers(&self, marks: u8) -> bool {
        marks != 0 && !seam::planted("nobody is asked who shares a row") && {
            let state = self.sharers_asked.state.lock();
            self.meant(marks, &state).next().is_some()
        }
    }

    /// The other instances that may have put one of the marks on a row.
    fn meant<'a>(
        &'a self,
        marks: u8,
        state: &'a State,
    ) -> impl Iterator<Item = InstanceId> + use<'a> {
        let all = self.others().into_iter().chain(state.in_doubt.clone());
        all.filter(move |&i| marks & marks_of(i) != 0)
    }

    /// Asks the instances that `marks` name who of them shares the row and excludes `lock`. The
    /// answer has one holder, if there is any, and the marks that still mean something, of them
    /// all.
    pub(crate) fn ask_sharers(&self, (row, lock): (RowId, RowLock), marks: u8) -> Result<Told> {
        assert_eq!(
            cache::latches_held(),
            0,
            "invariant R7: nobody asks another instance with a latch held"
        );
        let waiter = Waiter::new();
        let question = Question {
            waiter: waiter.clone(),
            row,
            lock,
            marks,
            answers: BTreeMap::new(),
            how: None,
        };
        let number = {
            let mut state = self.sharers_asked.state.lock();
            state.last += 1;
            let number = state.last;
            state.open.insert(number, question);
            number
        };
        let began_ns = wait::timestamp_ns();
        self.ask_for_sharers(number, |_| true);
        let result = self.await_sharers(number, &waiter, (row, began_ns));
        self.sharers_asked.state.lock().open.remove(&number);
        result
    }

    fn await_sharers(
        &self,
        number: u64,
        waiter: &Arc<Waiter>,
        (row, began_ns): (RowId, u64),
    ) -> Result<Told> {
        let served = || {
            let mut state = self.sharers_asked.state.lock();
            let how = state.open.get_mut(&number)?.how.take()?;
            Some(how.served(began_ns))
        };
        loop {
            let missing = {
                let state = self.sharers_asked.state.lock();
                let question = &state.open[&number];
                let mut all = Told::default();
                let mut missing = None;
                for instance in self.meant(question.marks, &state) {
                    match question.answers.get(&instance) {
                        Some(told) if told.holder.is_none() => all.open |= told.open,
                        Some(told) => return Ok(*told),
                        None => missing = Some(instance),
                    }
                }
                match missing {
                    Some(instance) => instance,
                    None => return Ok(all),
                }
            };
            let asked = (missing.0, wait::timestamp_ns());
            let p = [u64::from(missing.0), 0, row.0];
            let waited = waiter.wait_remote(Event::GcTransactionTable, p, None, asked, served);
            if waited == WaitResult::Cancelled {
                return Err(wait::Cancelled.into());
            }
        }
    }

    /// Asks the instances of `of` that have not answered.
    fn ask_for_sharers(&self, number: u64, of: impl Fn(InstanceId) -> bool) {
        let letters: Vec<Letter> = {
            let state = self.sharers_asked.state.lock();
            let Some(question) = state.open.get(&number) else {
                return;
            };
            let open = |i: &InstanceId| of(*i) && !question.answers.contains_key(i);
            let asked = self.meant(question.marks, &state).filter(open);
            let message = TxnMessage::SharersWanted {
                question: number,
                row: question.row,
                lock: question.lock,
            };
            asked.map(|to| Letter::new(to, &message)).collect()
        };
        letters.into_iter().for_each(|l| self.send(l));
    }

    /// Says every open question to `peer` again.
    pub(super) fn ask_for_sharers_again(&self, peer: InstanceId) {
        let open: Vec<u64> = {
            let state = self.sharers_asked.state.lock();
            state.open.keys().copied().collect()
        };
        for number in open {
            self.ask_for_sharers(number, |i| i == peer);
        }
    }

    /// Notes the dead of which it is undecided when their last commits took effect.
    pub(super) fn sharers_in_doubt(&self, in_doubt: &[InstanceId]) {
        self.sharers_asked.state.lock().in_doubt = in_doubt.to_vec();
    }

    /// Notes that again, after the members have changed. Sessions that wait for the answer of an
    /// instance that is gone look again.
    pub(super) fn sharers_of_the_gone(&self, in_doubt: &[InstanceId]) {
        self.sharers_in_doubt(in_doubt);
        let mut state = self.sharers_asked.state.lock();
        for question in state.open.values_mut() {
            question.answers.retain(|&i, _| self.is_up(i));
            question.waiter.wake();
        }
    }

    /// Answers another instance's question.
    pub(crate) fn sharers_wanted(&self, from: InstanceId, question: u64, told: Told) {
        let Told { holder, open } = told;
        let cost = AnswerCost::at_once(self.me);
        let message = TxnMessage::Sharers {
            question,
            holder,
            open,
            cost,
        };
        self.send(Letter::new(from, &message));
    }

    /// Takes in an answer.
    pub(crate) fn sharers_told(
        &self,
        from: InstanceId,
        (question, told, cost): (u64, Told, AnswerCost),
    ) -> Result<()> {
        if told.holder.is_some_and(|holder| holder.instance() != from) {
            let why = "a transaction that shares a row is not the sender's";
            return Err(Error::bad_message(from, why));
        }
        let how = Answered::now(cost);
        let mut state = self.sharers_asked.state.lock();
        if let Some(question) = state.open.get_mut(&question) {
            question.answers.insert(from, told);
            question.how = Some(how);
            question.waiter.wake();
        }
        Ok(())
    }
}
