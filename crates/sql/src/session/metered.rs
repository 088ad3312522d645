//! What each statement takes is counted (`statements`): from the call that executes it until its
//! end, with the commit that its Sync brings and without the time in which its client was silent.
//!
//! Statements within statements count for the one that the client sent; of EXECUTE, the prepared
//! one counts.

use std::sync::Arc;

use wait::session::Kind;
use wait::{Mark, Stat};

use super::statement::{Kind as Does, Portal, Statement};
use super::transaction::State;
use super::{Run, SqlSession};
use crate::api::{Completion, Tag};
use crate::error::Result;
use crate::parse::Utility;
use crate::statements::Call;

/// A call that is under way, or has run and whose transaction has not ended.
pub struct Meter {
    pub(super) statement: Arc<Statement>,
    mark: Mark,
    is_first: bool,
    /// Rows that the portal had given before.
    given_before: u64,
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
    /// Whether a call is being measured, so that what begins now is a part of it.
    pub(super) fn is_metering(&self) -> bool {
        self.meter.as_ref().is_some_and(|m| m.ran.is_none())
    }

    /// A call begins. It is measured unless one is under way already.
    #[inline]
    pub(super) fn begin_meter(&mut self, portal: &Portal) {
        let statement = &portal.statement;
        let is_under_way = self.is_metering();
        let runs_another = matches!(statement.kind, Does::Utility(Utility::Execute { .. }));
        if is_under_way || runs_another {
            return;
        }
        self.end_meter();
        self.meter = Some(Meter {
            statement: statement.clone(),
            mark: Mark::now(),
            is_first: matches!(portal.run, Run::New),
            given_before: portal.sent,
            ran: None,
        });
    }

    /// The call of this statement has run. The portal's statement is the one that ran in the end:
    /// its tables may have changed.
    #[inline]
    pub(super) fn meter_ran(
        &mut self,
        called: *const Statement,
        portal: &Portal,
        done: &Result<Completion>,
    ) {
        let Some(meter) = &mut self.meter else {
            return;
        };
        if meter.ran.is_some() || Arc::as_ptr(&meter.statement) != called {
            return;
        }
        if !Arc::ptr_eq(&meter.statement, &portal.statement) {
            meter.statement = portal.statement.clone();
        }
        meter.ran = Some(Ran {
            failed: done.is_err(),
            rows: match done {
                Ok(Completion::Complete(Tag::Rows(_, n) | Tag::Insert(n))) => {
                    n.saturating_sub(meter.given_before)
                }
                Ok(Completion::Suspended) => portal.sent.saturating_sub(meter.given_before),
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
        let Some(meter) = &self.meter else {
            return;
        };
        // If it has not run, something within it ends, and it goes on.
        let Some(ran) = &meter.ran else {
            return;
        };
        let call = Call {
            is_first: meter.is_first,
            failed: ran.failed,
            rows: ran.rows,
            spent: meter.mark.spent(),
        };
        let known = meter.statement.known();
        add_time(Stat::ExecuteTime, call.spent.elapsed_ns);
        if self.core.settings.hot().timeline_slower > 0.0 && call.is_first && !call.failed {
            let before = known.entry().map(|e| e.totals()).unwrap_or_default();
            self.keep_if_slow(meter.mark.at_ns(), call.spent.elapsed_ns, &before);
        }
        // What all sessions share is not counted anew for each call: neither its holders nor a
        // clock.
        let at = self.core.statement_start + (call.spent.elapsed_ns / 1000) as i64;
        if !known.count(self.core.roles.current, &call, at) {
            let database = self.core.database.clone();
            (database.statements).count(&meter.statement, &mut self.core, &call, at);
        }
        self.meter = None;
    }
}
