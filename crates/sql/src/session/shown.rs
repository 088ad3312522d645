//! What others see of a session: its statement (`v$session`), and the plan in which those who
//! sample it look up its step.

use std::sync::Arc;

use super::{Core, Statement};

impl Core {
    /// Shows the statement's plan to those who sample the session.
    pub(super) fn show_plan(&mut self, statement: &Statement) {
        if statement.known().has_steps(self.shown_plan.as_ref()) {
            return;
        }
        let database = self.database.clone();
        let steps = database.statements.steps(statement, self);
        self.shown_plan = steps.clone();
        wait::session::set_plan(steps);
    }

    /// Shows the statement in `v$session` from now on.
    pub fn show_sql(&mut self, text: &Arc<str>) {
        let start = self.statement_start;
        if start == self.shown_since && self.shown.as_ref().is_some_and(|s| Arc::ptr_eq(s, text)) {
            return;
        }
        self.shown_since = start;
        if self.shown.as_ref().is_some_and(|s| Arc::ptr_eq(s, text)) {
            wait::session::set_sql_again(text, start);
            return;
        }
        if self.shown_plan.is_some() {
            self.shown_plan = None;
            wait::session::set_plan(None);
        }
        self.shown = Some(text.clone());
        wait::session::set_sql(text.clone(), start);
    }
}
