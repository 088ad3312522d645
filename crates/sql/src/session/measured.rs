//! Now and then an execution is measured, so that `v$sql_plan` tells what the steps of a plan gave
//! beside what was expected of them: the second one of a statement that does not take long, and one
//! of [`EVERY`] of a session, unless one of the same statement was measured within the last second.
//!
//! Rows and gets are counted, and no clock is looked at. A measured execution takes longer by some
//! nanoseconds for each row of each step.

use super::statement::{Portal, Run};
use super::{SqlSession, now_micros};
use crate::api::{Completion, RowSink, Tag};
use crate::error::Result;
use crate::exec::profile::{Mark, Profile};
use crate::explain;
use crate::statements::{Actual, ActualStep};

/// Of so many executions of a session one is measured.
pub(super) const EVERY: u32 = 64;

impl SqlSession {
    /// Whether this execution is to be measured: a whole one that a client has asked for.
    #[inline]
    pub(super) fn is_measure_due(&mut self, portal: &Portal, max_rows: usize) -> bool {
        if max_rows != 0
            || !matches!(portal.run, Run::New)
            || !explain::can_run(&portal.statement.kind)
        {
            return false;
        }
        self.executions_until_measured -= 1;
        if self.executions_until_measured == 0 {
            self.executions_until_measured = EVERY;
            let known = portal.statement.known();
            return self.may_be_measured() && !known.was_measured(now_micros());
        }
        portal.statement.known().wants_measure() && self.may_be_measured()
    }

    /// Not what runs within another statement, nor what is measured anyway.
    fn may_be_measured(&self) -> bool {
        self.core.profile.is_none() && !self.is_metering()
    }

    #[cold]
    pub(super) fn execute_measured(
        &mut self,
        portal: &mut Portal,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        self.core.profile = Some(Box::new(Profile::untimed()));
        let mark = Mark::untimed();
        let done = self.execute_plain(portal, 0, sink);
        let total = mark.took();
        let profile = self.core.profile.take().unwrap_or_default();
        let Ok(Completion::Complete(Tag::Rows(_, rows) | Tag::Insert(rows))) = done else {
            return done;
        };
        // The plan that ran: its tables may have changed. The entry is that of its steps.
        let statement = portal.statement.clone();
        if let Some(entry) = statement.known().entry()
            && entry.key.role == self.core.roles.current
        {
            // A plan that cannot be shown any more has no steps.
            let steps = explain::steps(&statement.kind, &mut self.core, profile, total, rows);
            let steps = steps.unwrap_or_default();
            let step = |s: &explain::TracedStep| ActualStep {
                starts: s.loops,
                rows: s.rows,
                gets: s.took.gets,
                reads: s.took.reads,
            };
            entry.keep_measured(Actual {
                at: now_micros(),
                steps: steps.iter().map(step).collect(),
            });
        }
        done
    }
}
