//! What a session does for its SQL trace: finds out whether it is traced, and measures its calls.

use std::sync::Arc;

use sqltrace::CallKind;

use super::statement::{Kind, Portal, Run, Statement};
use super::{Core, SqlSession, now_micros};
use crate::api::{Completion, RowSink, Tag};
use crate::error::{Error, Result};
use crate::exec::profile::{Mark, Profile, Took};
use crate::explain;
use crate::trace::{CallMark, Ended, Head, Listed, Traced, Tracer};
use block::value::DatumRef;

/// Microseconds between 1970 and 2000.
const UNIX_TO_PG_MICROS: i64 = 946_684_800_000_000;

/// What the steps of a traced execution have taken so far.
#[derive(Default)]
pub(crate) struct TracedRun {
    profile: Box<Profile>,
    total: Took,
    rows: u64,
}

/// A sink that counts.
pub(super) struct Counting<'s> {
    pub sink: &'s mut dyn RowSink,
    pub rows: u64,
}

impl RowSink for Counting<'_> {
    fn row(&mut self, row: &[DatumRef<'_>]) -> Result<()> {
        self.rows += 1;
        self.sink.row(row)
    }
    fn copy_data(&mut self, data: &[u8]) -> Result<()> {
        self.sink.copy_data(data)
    }
    fn copy_out_begin(&mut self, formats: &[i16]) -> Result<()> {
        self.sink.copy_out_begin(formats)
    }
}

impl SqlSession {
    /// Parses a statement of a session that may be traced.
    #[cold]
    pub(super) fn analysed_traced(
        &mut self,
        sql: &str,
        param_oids: &[u32],
    ) -> Result<Arc<Statement>> {
        let around = self.core.trace.level_around();
        if !self.core.follow_trace(sql) {
            return self.analysed_plain(sql, param_oids);
        }
        self.core.with_tracer(|t, _| {
            t.begin(None);
            t.deeper();
        });
        let from = CallMark::now();
        let parsed = self.analysed_plain(sql, param_oids);
        let to = CallMark::now();
        self.core.with_tracer(|t, core| {
            t.less_deep();
            let statement = match &parsed {
                Ok(statement) => statement,
                Err(e) => return t.error(None, sql, core.roles.current, e),
            };
            let traced = Traced::Sent(statement.clone());
            core.open_cursor(t, &traced, &statement.kind, &from);
            t.call(&Ended {
                kind: CallKind::Parse,
                statement: &traced,
                from,
                to,
                rows: 0,
            });
        });
        self.core.trace.back_to_level(around);
        parsed
    }

    /// `ALTER SESSION SET EVENTS '10046 ..'`: the parameters that say the same.
    pub(super) fn trace_event(&mut self, level: u8) -> Result<Tag> {
        self.ensure_transaction()?;
        let core = &mut self.core;
        match level {
            0 => core.set_parameter("sql_trace", Some("off"), false)?,
            level => {
                core.set_parameter("sql_trace_level", Some(&level.to_string()), false)?;
                core.set_parameter("sql_trace", Some("on"), false)?;
            }
        }
        Ok(Tag::Plain("ALTER SESSION"))
    }

    /// Executes a portal of a session that may be traced.
    #[cold]
    pub(super) fn execute_traced(
        &mut self,
        portal: &mut Portal,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<Completion> {
        let statement = portal.statement.clone();
        let around = self.core.trace.level_around();
        if matches!(portal.run, Run::Done) || !self.core.follow_trace(statement.text()) {
            return self.execute_plain(portal, max_rows, sink);
        }
        let outer = self.core.trace.put_away();
        let is_first = matches!(portal.run, Run::New);
        let traced = Traced::Sent(statement.clone());
        let wants_plan = self.core.begin_traced(portal, &traced, is_first);
        let from = CallMark::now();
        self.core.trace.executing = is_first.then(|| (traced.clone(), from));
        let mark = wants_plan.then(Mark::now);
        let mut counting = Counting { sink, rows: 0 };
        let done = self.execute_plain(portal, max_rows, &mut counting);
        let call = TracedCall {
            traced,
            from,
            executed: self.core.trace.executed.take(),
            to: CallMark::now(),
            rows: counting.rows,
            is_first,
        };
        if let Some(mark) = mark {
            let rows = rows_of(&done).unwrap_or(call.rows);
            self.core.keep_traced(&mut portal.traced, mark.took(), rows);
        }
        let plan = match done {
            Ok(Completion::Suspended) => None,
            _ => portal.traced.take(),
        };
        let ended = EndedCall {
            call: &call,
            written: rows_of(&done),
            error: done.as_ref().err(),
        };
        self.core.end_traced(&ended, &portal.statement.kind, plan);
        self.core.trace.put_back(outer);
        self.core.trace.back_to_level(around);
        self.core.end_trace_if_off();
        done
    }
}

/// A call that has run.
pub(super) struct TracedCall {
    pub traced: Traced,
    pub from: CallMark,
    pub executed: Option<CallMark>,
    pub to: CallMark,
    pub rows: u64,
    pub is_first: bool,
}

/// What has come of it.
pub(super) struct EndedCall<'c> {
    pub call: &'c TracedCall,
    /// Rows that a write has changed.
    pub written: Option<u64>,
    pub error: Option<&'c Error>,
}

impl Core {
    /// Whether the session is traced, or has to find out.
    #[inline]
    pub(super) fn is_trace_due(&self) -> bool {
        self.trace.is_armed
            | (self.settings.trace_level() != 0)
            | (self.trace.seen != self.database.trace_changes())
    }

    /// Begins, changes or ends the trace as it is wanted now. Whether a call of this statement is
    /// traced, which it is within one that is: the end of that is written at a level that is not
    /// lower than the level of its beginning.
    fn follow_trace(&mut self, text: &str) -> bool {
        let changes = self.database.trace_changes();
        if self.trace.seen != changes {
            self.trace.seen = changes;
            self.look_at_switches();
        }
        let of_statement = self.trace.statements.level_of_text(text);
        let level = self.trace.level | self.settings.trace_level() | of_statement;
        let level = level | self.trace.level_around().unwrap_or(0);
        let stays = level != 0 || !self.trace.statements.is_empty();
        self.trace.is_refused &= stays;
        match &mut self.trace.tracer {
            Some(tracer) if stays => tracer.set_level(level),
            Some(_) => self.trace.tracer = None,
            None if level != 0 && !self.trace.is_refused => self.begin_trace(level),
            None => {}
        }
        self.trace.is_armed = self.trace.tracer.is_some() || !self.trace.statements.is_empty();
        level != 0 && self.trace.tracer.is_some()
    }

    /// What others want traced.
    fn look_at_switches(&mut self) {
        let listed = |name: &str| {
            let text = self.database.params().text(name);
            // It was checked when it was set.
            Listed::parse(name, &text).unwrap_or_default()
        };
        let by_service = listed("sql_trace_services").level(&self.database_name);
        self.trace.statements = listed("sql_trace_statements");
        let timed = self.database.params().text("wait_timeline_statements");
        self.trace.timed = super::timed::named(&timed);
        let by_order = own_session().map_or(0, |own| self.database.switches.level(own));
        self.trace.level = by_service | by_order;
    }

    pub(super) fn begin_trace(&mut self, level: u8) {
        let head = Head {
            instance: self.database.engine().instance(),
            pid: self.database.own_pid(),
            session: own_session().unwrap_or_default(),
            service: self.database_name.clone(),
            program: self.settings.get("application_name"),
            now: now_utc(),
        };
        let limit = self.settings.get("max_dump_file_size");
        let limit = limit.parse().unwrap_or(0);
        let begun = match self.database.params().dir() {
            Some(dir) => Tracer::begin_file(dir, limit, &head).map_err(|e| e.to_string()),
            None => Err("there is no database directory".to_string()),
        };
        match begun {
            Ok(mut tracer) => {
                tracer.set_level(level);
                self.trace.tracer = Some(Box::new(tracer));
            }
            Err(why) => {
                self.trace.is_refused = true;
                let told = format!("could not open the session's trace file: {why}");
                self.notice("WARNING", "58030", told);
            }
        }
    }

    /// Ends the trace if the call that is over, or one within it, has switched it off.
    fn end_trace_if_off(&mut self) {
        if self.trace.level_around().is_some() {
            return;
        }
        let of_session = self.trace.level | self.settings.trace_level();
        if of_session == 0 && self.trace.statements.is_empty() {
            self.trace.tracer = None;
            self.trace.is_armed = false;
        }
    }

    /// The session ends: its trace with it, and what others wanted of it.
    pub(super) fn end_trace(&mut self) {
        self.trace.tracer = None;
        if let Some(own) = own_session() {
            self.database.switches.forget(own);
        }
    }

    /// Works with the tracer, if there is one and it is on; afterwards the client is told if its
    /// file has failed.
    pub(super) fn with_tracer(&mut self, work: impl FnOnce(&mut Tracer, &mut Core)) {
        let Some(mut tracer) = self.trace.tracer.take() else {
            return;
        };
        if tracer.level() != 0 {
            work(&mut tracer, self);
        }
        if let Some(why) = tracer.take_failure() {
            self.notice("WARNING", "58030", why);
        }
        self.trace.tracer = Some(tracer);
    }

    /// Makes sure that the file knows the statement.
    pub(super) fn open_cursor(
        &mut self,
        t: &mut Tracer,
        traced: &Traced,
        kind: &Kind,
        at: &CallMark,
    ) {
        if t.cursor(traced).is_none() {
            let users = (self.roles.current, self.roles.session);
            let hash = explain::outlined(kind, self).hash.into();
            t.open(traced, hash, users, at.at_ns());
        }
    }

    /// A call of the portal begins. Whether its plan is to be measured.
    fn begin_traced(&mut self, portal: &Portal, traced: &Traced, is_first: bool) -> bool {
        let kind = &portal.statement.kind;
        let wants_plan = self.begin_call(traced, kind, is_first || portal.traced.is_some());
        self.with_tracer(|t, core| {
            if is_first
                && t.wants_binds()
                && !portal.params.is_empty()
                && let Some(number) = t.cursor(traced).map(|cursor| cursor.number)
            {
                t.binds(number, portal.statement.params(), &portal.params, &core.io);
            }
        });
        self.measure_plan(wants_plan, &portal.traced);
        wants_plan
    }

    /// A call begins, maybe within another one. Whether its plan is to be measured, which it is if
    /// that is there from its first row on.
    pub(super) fn begin_call(&mut self, traced: &Traced, kind: &Kind, is_whole: bool) -> bool {
        let mut wants_plan = false;
        self.with_tracer(|t, core| {
            t.begin(None);
            core.open_cursor(t, traced, kind, &CallMark::now());
            t.begin(Some(traced));
            let has_plan = t.cursor(traced).is_none_or(|cursor| cursor.has_plan);
            wants_plan = core.profile.is_none() && explain::can_run(kind) && !has_plan && is_whole;
            t.deeper();
        });
        wants_plan
    }

    /// Measures the steps of the call that begins, behind what was measured of it.
    pub(super) fn measure_plan(&mut self, wants_plan: bool, kept: &Option<Box<TracedRun>>) {
        if wants_plan {
            let kept = kept.as_ref().map(|run| run.profile.clone());
            self.profile = Some(kept.unwrap_or_default());
        }
    }

    /// The execution is over, and its fetch begins.
    #[inline]
    pub(super) fn trace_executed(&mut self) {
        if self.trace.tracer.is_some() {
            self.end_execution();
        }
    }

    /// Writes the execution of the call under way, before the calls that its fetch causes.
    #[cold]
    fn end_execution(&mut self) {
        let Some((traced, from)) = self.trace.executing.take() else {
            return;
        };
        let to = CallMark::now();
        self.with_tracer(|t, _| {
            t.less_deep();
            t.call(&Ended {
                kind: CallKind::Exec,
                statement: &traced,
                from,
                to,
                rows: 0,
            });
            t.deeper();
        });
        self.trace.executed = Some(to);
    }

    /// Adds what a call took to what the steps of its statement have taken.
    pub(super) fn keep_traced(&mut self, kept: &mut Option<Box<TracedRun>>, took: Took, rows: u64) {
        let mut run = kept.take().unwrap_or_default();
        run.profile = self.profile.take().unwrap_or_default();
        run.total.time += took.time;
        run.total.gets += took.gets;
        run.total.reads += took.reads;
        run.rows += rows;
        *kept = Some(run);
    }

    /// Writes a call that has run, and the plan if that is over.
    pub(super) fn end_traced(
        &mut self,
        ended: &EndedCall<'_>,
        kind: &Kind,
        plan: Option<Box<TracedRun>>,
    ) {
        let call = ended.call;
        self.trace.executing = None;
        self.with_tracer(|t, core| {
            t.less_deep();
            // Many statements within it may have taken its number away.
            core.open_cursor(t, &call.traced, kind, &call.from);
            let (of, from, rows) = match (call.is_first, call.executed) {
                (true, None) => {
                    let rows = ended.written.unwrap_or(call.rows);
                    (CallKind::Exec, call.from, rows)
                }
                (true, Some(executed)) => (CallKind::Fetch, executed, call.rows),
                (false, _) => (CallKind::Fetch, call.from, call.rows),
            };
            t.call(&Ended {
                kind: of,
                statement: &call.traced,
                from,
                to: call.to,
                rows,
            });
            if let Some(e) = ended.error {
                let user = core.roles.current;
                t.error(Some(&call.traced), call.traced.text(), user, e);
            }
            if let Some(run) = plan {
                core.trace_plan(t, &call.traced, kind, *run);
            }
            if t.depth() == 0 {
                t.flush();
            }
        });
    }

    fn trace_plan(&mut self, t: &mut Tracer, traced: &Traced, kind: &Kind, run: TracedRun) {
        let steps = explain::steps(kind, self, run.profile, run.total, run.rows);
        if let (Some(cursor), Ok(steps)) = (t.cursor(traced), steps) {
            cursor.has_plan = true;
            let number = cursor.number;
            t.plan(number, &steps);
        }
    }

    /// A transaction is about to end. If that is traced: whether it has written.
    pub(super) fn trace_transaction(&self) -> Option<bool> {
        self.trace.tracer.as_ref()?;
        let id =
            |s: &wait::session::Session| s.transaction.load(std::sync::atomic::Ordering::Relaxed);
        Some(wait::session::with(id).unwrap_or(0) != 0)
    }

    pub(super) fn trace_transaction_end(&mut self, rolled_back: bool, read_only: bool) {
        self.with_tracer(|t, _| t.transaction_end(rolled_back, read_only));
    }
}

/// Rows that a write has changed; `None` for what gives its rows to a client.
fn rows_of(done: &Result<Completion>) -> Option<u64> {
    match done {
        Ok(Completion::Complete(Tag::Insert(n))) => Some(*n),
        Ok(Completion::Complete(Tag::Rows(tag, n))) if *tag != "SELECT" => Some(*n),
        _ => None,
    }
}

fn own_session() -> Option<(u32, u32)> {
    wait::session::with(|s| (s.sid, s.serial))
}

/// The time as trace files have it, in UTC.
fn now_utc() -> String {
    let micros = now_micros().saturating_add(UNIX_TO_PG_MICROS);
    let time = chrono::DateTime::from_timestamp_micros(micros).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}
