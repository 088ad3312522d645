//! Execution of portals.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::cursors::Again;
use super::nested;
use super::statement::{Kind, Portal, Run};
use super::timeout::Timer;
use super::transaction::State;
use super::utility;
use super::{Core, SqlSession};
use crate::api::{Completion, RowSink, Tag};
use crate::ddl::Values;
use crate::error::{Error, Result};
use crate::exec::foreign;
use crate::exec::select::{SelectRun, run_point};
use crate::exec::sort::Spool;
use crate::explain;
use crate::plan::SelectPlan;
use crate::plan::with::Part;
use crate::query;

/// For how long this session has waited for its client.
fn idle_ns() -> u64 {
    wait::session::with(|s| s.counters.class_ns(wait::Class::Idle)).unwrap_or(0)
}

impl SqlSession {
    /// Runs the portal until its end or `max_rows` rows (0: all). An error fails the transaction.
    pub fn execute(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        if self.core.is_trace_due() {
            return self.execute_traced(portal, max_rows, sink);
        }
        match self.is_measure_due(portal, max_rows) {
            true => self.execute_measured(portal, sink),
            false => self.execute_plain(portal, max_rows, sink),
        }
    }

    /// The same without a look at tracing.
    pub(super) fn execute_plain(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        let hot = self.core.settings.hot();
        let timer = Timer::start(hot.statement_timeout_ms)?;
        self.core.engine.set_lock_timeout(hot.lock_timeout());
        let called = Arc::as_ptr(&portal.statement);
        if hot.logging.has_statements() && matches!(portal.run, Run::New) {
            self.log_statement(portal);
        }
        self.begin_meter(portal);
        self.watch(&portal.statement, hot);
        let timed = self.core.begin_timed(portal.statement.text());
        let mut done = self.try_execute(portal, max_rows, sink);
        self.core.step.leave();
        if let Some(timed) = timed {
            timed.end();
        }
        done = done.map_err(|e| timer.explain(e));
        match &mut done {
            Ok(Completion::CopyIn(copy)) => copy.keep_timer(timer),
            Ok(_) => self.pipelined = self.state == State::Implicit,
            Err(e) => {
                portal.run = Run::Done;
                portal.hold = None;
                self.failed_by(e);
            }
        }
        self.watch_ran(&done);
        self.meter_ran(called, portal, &done);
        done
    }

    fn try_execute(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        self.refuse_if_failed(&portal.statement)?;
        wait::stat::add(wait::Stat::ExecuteCount, 1);
        match portal.run {
            Run::New => {
                portal.mark = self.core.mark;
                self.core.statement_start = super::now_micros();
                let sent = self.client_text.as_ref();
                let text = sent.unwrap_or_else(|| portal.statement.text());
                self.core.show_sql(text);
                self.start_portal(portal, max_rows, sink)
            }
            Run::Done => Ok(Completion::Complete(Tag::Rows("SELECT", 0))),
            _ => {
                self.show_resumed(portal);
                self.resume(portal, max_rows, sink)
            }
        }
    }

    /// Shows what is gone on with: another statement may have run since. A cursor's query is shown
    /// as the FETCH that it runs for, with its own plan.
    fn show_resumed(&mut self, portal: &Portal) {
        if !explain::can_run(&portal.statement.kind) {
            return;
        }
        let called = self.meter.as_ref().map(|meter| &meter.statement);
        if called.is_some_and(|called| Arc::ptr_eq(called, &portal.statement))
            && let Some(text) = &portal.shown
        {
            self.core.statement_start = super::now_micros();
            self.core.show_sql(text);
        }
        self.core.show_plan(&portal.statement);
    }

    fn start_portal(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        if let Kind::Utility(_) = portal.statement.kind {
            self.core.refresh()?;
            let statement = portal.statement.clone();
            let ran = self.run_utility(portal, max_rows, sink);
            // The statement may itself have begun the transaction that others now share.
            if let Kind::Utility(u) = &statement.kind
                && u.takes_snapshot()
                && self.state == State::Implicit
            {
                self.core.engine.settle();
            }
            return ran.map_err(|e| utility::outside(e, &statement));
        }
        if let Kind::Empty = portal.statement.kind {
            return Ok(Completion::Empty);
        }
        self.ensure_transaction()?;
        if let Kind::Call(_) = portal.statement.kind {
            return self.call(portal, max_rows, sink);
        }
        self.core.engine.settle();
        self.core.refresh()?;
        self.make_current(portal)?;
        let statement = portal.statement.clone();
        self.core.show_plan(&statement);
        self.core.check_permitted(statement.asked())?;
        self.refuse_writes(&statement)?;
        match &statement.kind {
            Kind::Select(plan) => {
                self.core.trace_executed();
                if let Some(sent) = run_point(plan, &mut self.core, &portal.params, sink)? {
                    self.end_of_statement();
                    portal.run = Run::Done;
                    return Ok(Completion::Complete(Tag::Rows("SELECT", sent)));
                }
                let snapshot = self.core.engine.snapshot()?;
                portal.run = self.begin_select(portal, plan, snapshot)?;
                self.resume(portal, max_rows, sink)
            }
            Kind::Insert(plan) => self.write(
                portal,
                plan.returning.is_some(),
                max_rows,
                sink,
                Tag::Insert,
                |core, params, sink| written(&statement.kind, core, params, sink),
            ),
            Kind::Update(plan) => self.write(
                portal,
                plan.returning.is_some(),
                max_rows,
                sink,
                |n| Tag::Rows("UPDATE", n),
                |core, params, sink| written(&statement.kind, core, params, sink),
            ),
            Kind::Delete(plan) => self.write(
                portal,
                plan.returning.is_some(),
                max_rows,
                sink,
                |n| Tag::Rows("DELETE", n),
                |core, params, sink| written(&statement.kind, core, params, sink),
            ),
            Kind::Supplied(plan) => self.write(
                portal,
                plan.returning.is_some(),
                max_rows,
                sink,
                |n| Tag::Rows(plan.command(), n),
                |core, params, sink| written(&statement.kind, core, params, sink),
            ),
            Kind::With(plan) => self.write(
                portal,
                plan.main.returns_rows(),
                max_rows,
                sink,
                |n| match plan.told() {
                    Part::Insert(_) => Tag::Insert(n),
                    part => Tag::Rows(part.command(), n),
                },
                |core, params, sink| written(&statement.kind, core, params, sink),
            ),
            Kind::Ddl(statement) => {
                let given = Values {
                    types: portal.statement.params(),
                    values: &portal.params,
                };
                let ran = self.run_ddl(statement, portal.statement.text(), given);
                let tag = ran.map_err(|e| e.located(portal.statement.text()))?;
                self.end_of_statement();
                portal.run = Run::Done;
                Ok(Completion::Complete(tag))
            }
            Kind::Tree(plan) if plan.locks_rows() => self.write(
                portal,
                true,
                max_rows,
                sink,
                |n| Tag::Rows("SELECT", n),
                |core, params, sink| query::run::locked(plan, core, params)?.send(sink),
            ),
            Kind::Tree(plan) => {
                let snapshot = self.core.engine.snapshot()?;
                let run = query::Run::start(plan, &self.core, &portal.params, snapshot)?;
                portal.run = Run::Tree(Box::new(run));
                self.core.trace_executed();
                self.resume(portal, max_rows, sink)
            }
            Kind::Utility(_) | Kind::Empty | Kind::Call(_) => {
                Err(Error::internal("a utility statement among plans"))
            }
        }
    }

    /// CALL. Outside of a block, and if no other statement shares its transaction, the procedure
    /// may end that.
    fn call(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        self.core.refresh()?;
        self.make_current(portal)?;
        let statement = portal.statement.clone();
        let Kind::Call(plan) = &statement.kind else {
            return Err(Error::internal("a procedure that is none"));
        };
        let alone = self.is_alone();
        let params = std::mem::take(&mut portal.params);
        let called = self.core.may_end(alone, |core| core.call(plan, &params));
        portal.params = params;
        let row = called?;
        foreign::fire(&mut self.core)?;
        self.end_of_statement();
        let tag = Tag::Plain("CALL");
        portal.run = Run::Rows(row.into_iter().collect::<Vec<_>>().into(), tag);
        self.resume(portal, max_rows, sink)
    }

    /// Whether the transaction is the statement's own.
    pub(super) fn is_alone(&self) -> bool {
        self.state == State::Implicit && !self.pipelined
    }

    /// Refuses a statement that writes, or locks rows, if the transaction is read-only.
    fn refuse_writes(&self, statement: &super::Statement) -> Result<()> {
        let command = statement.writing_command();
        self.core.refuse_writes(command, &statement.tables)
    }

    fn begin_select(
        &mut self,
        portal: &Portal,
        plan: &SelectPlan,
        snapshot: Snapshot,
    ) -> Result<Run> {
        let (core, params) = (&mut self.core, &portal.params);
        let run = SelectRun::start(plan, core, params, snapshot)?;
        Ok(Run::Select(Box::new(run)))
    }

    /// Runs a write. Its RETURNING rows go to the client as they come, unless it wants only some: then the write is
    /// finished first, and the rows wait.
    fn write(
        &mut self,
        portal: &mut Portal,
        returning: bool,
        max_rows: usize,
        sink: &mut dyn RowSink,
        tag: impl Fn(u64) -> Tag,
        work: impl FnOnce(&mut Core, &[Datum], &mut dyn RowSink) -> Result<u64>,
    ) -> Result<Completion> {
        if returning && max_rows > 0 {
            let mut kept = Spool::new(&self.core);
            let count = work(&mut self.core, &portal.params, &mut kept)?;
            foreign::fire(&mut self.core)?;
            self.end_of_statement();
            portal.run = Run::Rows(kept.finish()?, tag(count));
            return self.resume(portal, max_rows, sink);
        }
        let count = work(&mut self.core, &portal.params, sink)?;
        foreign::fire(&mut self.core)?;
        self.end_of_statement();
        portal.run = Run::Done;
        Ok(Completion::Complete(tag(count)))
    }

    fn resume(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        if let Some(before_ns) = portal.idle_before_ns.take() {
            wait::stat::add(wait::Stat::FetchesOfRest, 1);
            wait::stat::add(
                wait::Stat::FetchWaitTime,
                idle_ns().saturating_sub(before_ns),
            );
        }
        if let Some(snapshot) = portal.run.snapshot() {
            self.core.engine.go_on(snapshot);
        }
        let (sent, more) = match &mut portal.run {
            Run::Select(run) => {
                let Kind::Select(plan) = &portal.statement.kind else {
                    return Err(Error::internal("a run without its plan"));
                };
                run.run(plan, &mut self.core, &portal.params, max_rows, sink)?
            }
            Run::Tree(run) => {
                self.core.held = portal.hold.take();
                let ran = run.run(&mut self.core, max_rows, sink);
                portal.hold = self.core.held.take();
                ran?
            }
            Run::Rows(rows, tag) => {
                let tag = *tag;
                let most = if max_rows == 0 { usize::MAX } else { max_rows };
                for _ in 0..most {
                    let Some(row) = rows.next_row()? else { break };
                    let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
                    sink.row(&refs)?;
                }
                if rows.count() > 0 {
                    self.wait_for_client(portal);
                    return Ok(Completion::Suspended);
                }
                portal.run = Run::Done;
                return Ok(Completion::Complete(tag));
            }
            Run::New | Run::Done => return Ok(Completion::Complete(Tag::Rows("SELECT", 0))),
        };
        portal.sent = sent;
        if more {
            self.suspend(portal)?;
            return Ok(Completion::Suspended);
        }
        portal.run = Run::Done;
        portal.hold = None;
        self.end_of_statement();
        Ok(Completion::Complete(Tag::Rows("SELECT", sent)))
    }

    /// The statement is over for now: its snapshot makes room for the next one's, so the portal has
    /// a registration of its own.
    fn suspend(&mut self, portal: &mut Portal) -> Result<()> {
        if let (Some(snapshot), None) = (portal.run.snapshot(), &portal.hold) {
            portal.hold = Some(self.core.engine.hold_snapshot(&snapshot)?);
        }
        self.wait_for_client(portal);
        self.end_of_statement();
        Ok(())
    }

    /// Keeps what the portal goes on with once its client asks for more.
    fn wait_for_client(&self, portal: &mut Portal) {
        portal.idle_before_ns = Some(idle_ns());
        portal.shown.clone_from(&self.core.shown);
    }

    /// Lets the statement's snapshot go.
    pub(super) fn end_of_statement(&mut self) {
        self.core.engine.end_statement();
    }

    /// Begins the execution of a query without sending a row: a cursor's snapshot is that of its
    /// declaration. `twice`: it is registered once more, for another run of the query.
    pub(super) fn begin_portal(
        &mut self,
        portal: &mut Portal,
        twice: bool,
    ) -> Result<Option<Again>> {
        portal.mark = self.core.mark;
        self.make_current(portal)?;
        let statement = portal.statement.clone();
        self.core.check_permitted(statement.asked())?;
        self.refuse_writes(&statement)?;
        // Where rows are locked before any is given, that is done now.
        if let Kind::Tree(plan) = &statement.kind
            && plan.locks_rows()
        {
            let rows = query::run::locked(plan, &mut self.core, &portal.params)?.finish()?;
            self.end_of_statement();
            let tag = Tag::Rows("SELECT", rows.count());
            portal.run = Run::Rows(rows, tag);
            return Ok(None);
        }
        let snapshot = self.core.engine.snapshot()?;
        portal.run = match &statement.kind {
            Kind::Select(plan) => self.begin_select(portal, plan, snapshot)?,
            Kind::Tree(plan) => {
                let run = query::Run::start(plan, &self.core, &portal.params, snapshot)?;
                Run::Tree(Box::new(run))
            }
            _ => return Err(Error::internal("a cursor of what is no query")),
        };
        let again = match twice {
            true => Some(Again {
                snapshot,
                hold: self.core.engine.hold_snapshot(&snapshot)?,
            }),
            false => None,
        };
        self.suspend(portal)?;
        Ok(again)
    }

    pub(super) fn resume_rows(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        self.resume(portal, max_rows, sink)
    }
}

/// Runs a plan that writes.
fn written(kind: &Kind, core: &mut Core, params: &[Datum], sink: &mut dyn RowSink) -> Result<u64> {
    let count = nested::write(kind, core, params, sink)?;
    count.ok_or_else(|| Error::internal("a plan that writes nothing among those that do"))
}

/// A sink that keeps the rows.
#[derive(Default)]
pub struct Keep {
    pub rows: Vec<Vec<Datum>>,
}

impl RowSink for Keep {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        self.rows.push(row.iter().map(DatumRef::to_datum).collect());
        Ok(())
    }
}
