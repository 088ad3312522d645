//! Whose waits are kept one by one (`wait::timeline`): of sessions that want it, of statements that
//! are named, and by the rule of what executions of a statement take.

use wait::session::Kind;
use wait::timeline::{self, Wanted};

use super::{Core, SqlSession};
use crate::statements::Totals;
use crate::trace::SqlId;

/// Executions of a statement by which its mean counts.
const KNOWN_EXECUTIONS: u64 = 5;
/// Nanoseconds of an execution that is slow for nobody.
const SHORT_NS: u64 = 1_000_000;

/// This thread's session wants its waits, or not any more.
pub(super) fn set(why: Wanted, on: bool) {
    wait::session::with(|s| match on {
        _ if s.kind != Kind::User || s.timeline_wanted(why) == on => {}
        true => s.want_timeline(why),
        false => s.leave_timeline(why),
    });
}

/// The statements that are named, by id.
pub(crate) fn named(text: &str) -> Vec<String> {
    let items = text.split(',').map(str::trim).filter(|i| !i.is_empty());
    items.map(str::to_string).collect()
}

/// An execution whose waits are wanted because of its statement: since when.
pub(super) struct TimedExecution(u64);

impl Core {
    /// A call of a statement begins.
    #[inline]
    pub(super) fn begin_timed(&self, text: &str) -> Option<TimedExecution> {
        match self.trace.timed.is_empty() {
            true => None,
            false => self.begin_named(text),
        }
    }

    #[cold]
    fn begin_named(&self, text: &str) -> Option<TimedExecution> {
        let id = SqlId::of(text).to_string();
        self.trace.timed.contains(&id).then(|| {
            set(Wanted::Statement, true);
            TimedExecution(wait::timestamp_ns())
        })
    }
}

impl TimedExecution {
    /// The call is over.
    #[cold]
    pub(super) fn end(self) {
        timeline::keep_since(self.0, "the statement is named".to_string());
        wait::session::with(|s| s.forget_timeline(Wanted::Statement));
    }
}

impl SqlSession {
    /// An execution has taken so long, and those of its statement before it this.
    pub(super) fn keep_if_slow(&self, since_ns: u64, elapsed_ns: u64, before: &Totals) {
        let slower = self.core.settings.hot().timeline_slower;
        if before.executions < KNOWN_EXECUTIONS || elapsed_ns < SHORT_NS {
            return;
        }
        let mean_ns = before.spent.elapsed_ns as f64 / before.executions as f64;
        if elapsed_ns as f64 > mean_ns * slower {
            let why = format!(
                "took {:.3} ms, {:.1} times the mean of {} executions",
                elapsed_ns as f64 / 1e6,
                elapsed_ns as f64 / mean_ns.max(1.0),
                before.executions
            );
            timeline::keep_since(since_ns, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_named_with_commas_between() {
        assert_eq!(named(" 0gjpt6cdt5vxb, ,b "), ["0gjpt6cdt5vxb", "b"]);
        assert!(named("").is_empty());
    }
}
