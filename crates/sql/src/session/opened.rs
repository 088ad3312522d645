//! Cursors that bodies open: their queries are nested statements, and run within the statement that
//! asks for rows.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use engine::{HeldSnapshot, Snapshot};

use super::cursors::Again;
use super::nested::Nested;
use super::statement::{Portal, Run};
use super::traced::TracedRun;
use super::traced_within::Way;
use super::{Core, Kind};
use crate::api::{ColumnDesc, RowSink, Tag};
use crate::error::{Error, Result};
use crate::exec::select::SelectRun;
use crate::exec::sort::Spool;
use crate::pl::Discard;
use crate::query;

/// What a cursor is opened with. The query has been found to be current, and a cursor to be for it
/// ([`Core::check_cursor`]).
pub struct ToOpen {
    pub nested: Arc<Nested>,
    pub params: Vec<Datum>,
    /// SCROLL or NO SCROLL, if it is said.
    pub scroll: Option<bool>,
}

/// The query of an opened cursor.
pub(super) struct Opened {
    nested: Arc<Nested>,
    params: Vec<Datum>,
    pub scroll: Option<bool>,
    pub run: Run,
    /// The snapshot that it reads, and what keeps that; none of rows that are made already.
    snapshot: Option<Snapshot>,
    hold: Option<HeldSnapshot>,
    /// What its steps have taken so far, if it is traced.
    traced: Option<Box<TracedRun>>,
}

impl Opened {
    pub fn kind(&self) -> &Kind {
        &self.nested.kind
    }

    pub fn columns(&self) -> Option<&[ColumnDesc]> {
        self.nested.columns.as_deref()
    }

    /// Whether the query may be run again with its snapshot, so that the cursor moves back.
    pub fn may_begin_again(&self) -> bool {
        let is_read = self.nested.writing_command().is_none();
        self.snapshot.is_some() && self.scroll != Some(false) && is_read
    }
}

impl Core {
    /// Begins the query of a cursor. Also says whether all its rows are made already.
    pub(super) fn begin_opened(&mut self, cursor: ToOpen) -> Result<(Opened, bool)> {
        let ToOpen {
            nested,
            params,
            scroll,
        } = cursor;
        let mut opened = Opened {
            nested,
            params,
            scroll,
            run: Run::New,
            snapshot: None,
            hold: None,
            traced: None,
        };
        let is_whole = match opened.kind() {
            Kind::Select(_) => false,
            Kind::Tree(plan) => plan.locks_rows(),
            _ => true,
        };
        if is_whole {
            let mut kept = Spool::new(self);
            let nested = opened.nested.clone();
            self.run_nested(&nested, &opened.params, 0, &mut kept)?;
            opened.run = Run::Rows(kept.finish()?, Tag::Rows("FETCH", 0));
            return Ok((opened, true));
        }
        self.engine.settle();
        let snapshot = self.engine.snapshot()?;
        opened.run = self.started_traced(&mut opened, snapshot)?;
        opened.hold = Some(self.engine.hold_snapshot(&snapshot)?);
        opened.snapshot = Some(snapshot);
        self.engine.end_statement();
        Ok((opened, false))
    }

    /// Refuses what no cursor is for.
    pub fn check_cursor(&mut self, cursor: &ToOpen) -> Result<()> {
        let nested = &*cursor.nested;
        self.check_nested(nested)?;
        if !nested.is_query() {
            let command = nested.writing_command().unwrap_or("utility");
            let message = format!("cannot open {command} query as cursor");
            return Err(Error::new("42P11", message));
        }
        let locks = nested.writing_command().is_some();
        if locks && cursor.scroll == Some(true) {
            let what = "DECLARE SCROLL CURSOR ... FOR UPDATE is not supported";
            let detail = "Scrollable cursors must be READ ONLY.";
            return Err(Error::new("0A000", what).detail(detail));
        }
        Ok(())
    }

    /// Begins the query of a cursor, in a session that may be traced.
    fn started_traced(&mut self, opened: &mut Opened, snapshot: Snapshot) -> Result<Run> {
        if !self.is_trace_due() {
            return self.started(opened, snapshot);
        }
        let (nested, mut kept) = (opened.nested.clone(), None);
        let way = Way {
            is_first: true,
            kept: &mut kept,
            written: &|_| None,
            is_over: &|_| false,
        };
        let begun = self.traced_within(&nested, way, &mut Discard, |core, _| {
            core.started(opened, snapshot)
        });
        opened.traced = kept;
        begun
    }

    fn started(&mut self, opened: &Opened, snapshot: Snapshot) -> Result<Run> {
        let nested = opened.nested.clone();
        self.start_query(&nested.kind, &opened.params, snapshot)
    }

    /// Begins the query of a cursor that a client has declared again, with its snapshot.
    pub(super) fn restart_portal(&mut self, portal: &mut Portal, again: Again) -> Result<()> {
        let statement = portal.statement.clone();
        portal.run = self.start_query(&statement.kind, &portal.params, again.snapshot)?;
        portal.hold = Some(again.hold);
        Ok(())
    }

    fn start_query(&mut self, kind: &Kind, params: &[Datum], snapshot: Snapshot) -> Result<Run> {
        match kind {
            Kind::Select(plan) => {
                let run = SelectRun::start(plan, self, params, snapshot)?;
                Ok(Run::Select(Box::new(run)))
            }
            Kind::Tree(plan) => {
                let run = query::Run::start(plan, self, params, snapshot)?;
                Ok(Run::Tree(Box::new(run)))
            }
            _ => Err(Error::internal("a cursor of what is no query")),
        }
    }

    /// Begins a query again from its first row, with the same snapshot; false if that is not for
    /// it.
    pub(super) fn begin_again(&mut self, opened: &mut Opened) -> Result<bool> {
        let Some(snapshot) = opened.snapshot.filter(|_| opened.may_begin_again()) else {
            return Ok(false);
        };
        opened.run = self.started(opened, snapshot)?;
        Ok(true)
    }

    /// Runs the query of an opened cursor up to so many rows more (0: all); whether it has ended.
    pub(super) fn pull_opened(
        &mut self,
        opened: &mut Opened,
        most: usize,
        sink: &mut dyn RowSink,
    ) -> Result<bool> {
        if !self.is_trace_due() {
            return self.pull_plain(opened, most, sink);
        }
        let (nested, mut kept) = (opened.nested.clone(), opened.traced.take());
        let way = Way {
            is_first: false,
            kept: &mut kept,
            written: &|_| None,
            is_over: &|ended| *ended,
        };
        let pulled = self.traced_within(&nested, way, sink, |core, sink| {
            core.pull_plain(opened, most, sink)
        });
        opened.traced = kept;
        pulled
    }

    /// The same without a look at tracing.
    fn pull_plain(
        &mut self,
        opened: &mut Opened,
        most: usize,
        sink: &mut dyn RowSink,
    ) -> Result<bool> {
        let (nested, params) = (opened.nested.clone(), std::mem::take(&mut opened.params));
        let pulled = self.pull(
            (&nested.kind, &params),
            (&mut opened.run, &mut opened.hold),
            most,
            sink,
        );
        opened.params = params;
        let more = pulled?;
        self.engine.end_statement();
        Ok(!more)
    }

    /// The same of a cursor that a client has declared.
    pub(super) fn pull_portal(
        &mut self,
        portal: &mut Portal,
        most: usize,
        sink: &mut dyn RowSink,
    ) -> Result<bool> {
        let (statement, params) = (portal.statement.clone(), std::mem::take(&mut portal.params));
        let pulled = self.pull(
            (&statement.kind, &params),
            (&mut portal.run, &mut portal.hold),
            most,
            sink,
        );
        portal.params = params;
        let more = pulled?;
        if !more {
            (portal.run, portal.hold) = (Run::Done, None);
        }
        self.engine.end_statement();
        Ok(!more)
    }

    /// Runs a query whose snapshot is held; whether there may be more rows.
    fn pull(
        &mut self,
        (kind, params): (&Kind, &[Datum]),
        (run, hold): (&mut Run, &mut Option<HeldSnapshot>),
        most: usize,
        sink: &mut dyn RowSink,
    ) -> Result<bool> {
        if let Some(snapshot) = run.snapshot() {
            self.engine.go_on(snapshot);
        }
        match (run, kind) {
            (Run::Select(run), Kind::Select(plan)) => {
                Ok(run.run(plan, self, params, most, sink)?.1)
            }
            (Run::Tree(run), _) => {
                self.held = hold.take();
                let ran = run.run(self, most, sink);
                *hold = self.held.take();
                Ok(ran?.1)
            }
            (Run::Rows(rows, _), _) => {
                let most = if most == 0 { usize::MAX } else { most };
                for _ in 0..most {
                    let Some(row) = rows.next_row()? else { break };
                    let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
                    sink.row(&refs)?;
                }
                Ok(rows.count() > 0)
            }
            (Run::Done, _) => Ok(false),
            (Run::Select(_) | Run::New, _) => Err(Error::internal("a run without its plan")),
        }
    }
}
