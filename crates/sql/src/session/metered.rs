//! What each statement takes is counted (`statements`): from the call that executes it until its
//! end, with the commit that its Sync brings and without the time in which its client was silent.
//!
//! Statements within statements count for the one that the client sent; of EXECUTE, the prepared
//! one counts.

use std::sync::Arc;

use wait::session::Kind;
use wait::{Mark, Stat};

use super::statement::{Kind as Does, Statement};
use super::transaction::State;
use super::{Run, SqlSession};
use crate::api::{Completion, Tag};
use crate::error::Result;
use crate::parse::Utility;
use crate::statements::Call;

/// A call that is under way, or has run and whose transaction has not ended.
pub struct Meter {
    statement: Arc<Statement>,
    mark: Mark,
    is_first: bool,
    /// Set once it has run.
    ran: Option<Ran>,
}

struct Ran {
    failed: bool,
    rows: u64,
}

/// Adds to a time of the time model, which are of users' sessions.
pub(super) fn add_time(stat: Stat, ns: u64) {
    if wait::session::with(|s| s.kind) == Some(Kind::User) {
        wait::stat::add(stat, ns);
    }
}

impl SqlSession {
    /// A call begins. It is measured unless one is under way already.
    #[inline]
    pub(super) fn begin_meter(&mut self, statement: &Arc<Statement>, run: &Run) {
        let is_under_way = self.meter.as_ref().is_some_and(|m| m.ran.is_none());
        let runs_another = matches!(statement.kind, Does::Utility(Utility::Execute { .. }));
        if is_under_way || runs_another {
            return;
        }
        self.end_meter();
        self.meter = Some(Meter {
            statement: statement.clone(),
            mark: Mark::now(),
            is_first: matches!(run, Run::New),
            ran: None,
        });
    }

    /// The call has run. `statement` is the one that ran in the end: its tables may have changed.
    #[inline]
    pub(super) fn meter_ran(
        &mut self,
        called: &Arc<Statement>,
        statement: &Arc<Statement>,
        done: &Result<Completion>,
    ) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        if meter.ran.is_some() || !Arc::ptr_eq(&meter.statement, called) {
            return;
        }
        meter.statement = statement.clone();
        meter.ran = Some(Ran {
            failed: done.is_err(),
            rows: match done {
                Ok(Completion::Complete(Tag::Rows(_, n) | Tag::Insert(n))) => *n,
                _ => 0,
            },
        });
        let goes_on = matches!(done, Ok(Completion::CopyIn(_))) || self.state == State::Implicit;
        if !goes_on {
            self.end_meter();
        }
    }

    /// Its transaction has ended as well, or another call begins.
    #[inline]
    pub(super) fn end_meter(&mut self) {
        let Some(meter) = self.meter.take() else {
            return;
        };
        let Some(ran) = meter.ran else {
            // Something within it ends: it goes on.
            self.meter = Some(meter);
            return;
        };
        let spent = meter.mark.spent();
        add_time(Stat::ExecuteTime, spent.elapsed_ns);
        let call = Call {
            is_first: meter.is_first,
            failed: ran.failed,
            rows: ran.rows,
            spent,
        };
        let database = self.core.database.clone();
        (database.statements).count(&meter.statement, &mut self.core, &call);
    }
}
