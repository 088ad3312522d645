//! INSERT, UPDATE and DELETE.
//!
//! Rows to be written are found by the statement's snapshot. Under READ COMMITTED a row that somebody changed since is
//! locked in its newest version, and written only if that version still meets the condition; under REPEATABLE READ the
//! engine answers 40001.

use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{LockOutcome, LockWait, RowLock, Snapshot, WriteOutcome};
use wait::longop::{Counted, Target};

use super::checks::{check_row, check_views};
use super::drive::{Flow, holds, passes};
use super::events::{self, Cause};
use super::generated;
use super::instead;
use super::lock::lock;
use super::profile::StepKey;
use super::returning::{Returning, Written, Wrote};
use super::row::{decode, recycle};
use super::select::SelectRun;
use super::source::TableCursor;
use super::told::{of_table, write_error};
use super::triggers::{self, Before};
use super::upsert::{ConflictRuns, Upserted};
use crate::api::RowSink;
use crate::dict::Table;
use crate::dict::trigger::Op;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr, Val};
use crate::plan::{DeletePlan, InsertPlan, InsertSource, TableAccess, UpdatePlan};
use crate::query;
use crate::session::Core;

pub fn insert(
    plan: &InsertPlan,
    core: &mut Core,
    params: &[Datum],
    snapshot: Snapshot,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    core.enter_step(plan.step());
    if plan.table.view.is_some() {
        return instead::insert(plan, core, params, snapshot, sink);
    }
    match &plan.source {
        InsertSource::Rows(rows) => {
            let env = Env { row: &[], params };
            if let ([row], None) = (rows.as_slice(), &plan.conflict) {
                return Ok(u64::from(insert_row(plan, row, core, &env, sink)?));
            }
            let mut feed = Feed::new(plan, params, snapshot);
            for row in rows {
                feed.take(row, core, &env, sink)?;
            }
            feed.finish(core)
        }
        InsertSource::Query(select, row) => {
            let mut run = SelectRun::start(select, core, params, snapshot)?;
            let mut feed = Feed::new(plan, params, snapshot);
            run.feed(select, core, params, &mut |core, values| {
                let reading = core.step.get();
                core.enter_step(plan.step());
                let env = Env {
                    row: values,
                    params,
                };
                feed.take(row, core, &env, sink)?;
                core.step.set(reading);
                Ok(Flow::More)
            })?;
            core.enter_step(plan.step());
            feed.finish(core)
        }
        InsertSource::Fed(query, rows) => {
            let mut feed = Feed::new(plan, params, snapshot);
            query::Run::start(query, core, params, snapshot)?.each(core, &mut |core, values| {
                let env = Env {
                    row: values,
                    params,
                };
                for row in rows {
                    feed.take(row, core, &env, sink)?;
                }
                Ok(Flow::More)
            })?;
            feed.finish(core)
        }
    }
}

/// Rows that are written to a table, for those who ask how far it is.
pub fn written(what: &'static str, table: &Table) -> Counted {
    Counted::new(what, Target::Object(table.segment), 0, "Rows")
}

/// Inserts a row; false if a trigger has it left out.
fn insert_row(
    plan: &InsertPlan,
    row: &[Expr],
    core: &mut Core,
    env: &Env<'_>,
    sink: &mut dyn RowSink,
) -> Result<bool> {
    let mut values: Vec<Val<'_>> = Vec::with_capacity(row.len());
    for e in row {
        values.push(e.eval(env, core)?);
    }
    let changed;
    let mut made = Vec::new();
    let mut refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    match triggers::before_row(core, &plan.table, Cause::of(Op::Insert), None, Some(&refs))? {
        Before::Same => {}
        Before::Skip => return Ok(false),
        Before::Row(now) => {
            changed = now;
            refs = changed.iter().map(Datum::borrow).collect();
        }
    }
    generated::fill(&plan.rules, core, &mut refs, &mut made)?;
    check_row(&plan.table, &plan.rules, core, &refs)?;
    insert_values(plan, &refs, core, env.params, sink)?;
    Ok(true)
}

/// Inserts a checked row.
fn insert_values(
    plan: &InsertPlan,
    row: &[DatumRef<'_>],
    core: &mut Core,
    params: &[Datum],
    sink: &mut dyn RowSink,
) -> Result<()> {
    let table = &plan.table;
    let rid = core
        .engine
        .insert(table.engine(), row)
        .map_err(|e| write_error(e, table, row, core))?;
    events::inserted(core, table, row)?;
    check_views(table, &plan.rules, core, row)?;
    let returning = plan.returning.as_ref();
    returned(returning, core, (table, rid), row, params, sink)
}

/// Rows of an INSERT on their way into the table.
struct Feed<'f> {
    plan: &'f InsertPlan,
    params: &'f [Datum],
    snapshot: Snapshot,
    bulk: BulkRows,
    runs: ConflictRuns,
    refs: Vec<DatumRef<'static>>,
    count: u64,
    /// Rows that have come, for those who ask how far it is.
    taken: Counted,
}

impl<'f> Feed<'f> {
    fn new(plan: &'f InsertPlan, params: &'f [Datum], snapshot: Snapshot) -> Feed<'f> {
        Feed {
            plan,
            params,
            snapshot,
            bulk: BulkRows::new(&plan.table),
            runs: ConflictRuns::default(),
            refs: Vec::new(),
            count: 0,
            taken: written("INSERT", &plan.table),
        }
    }

    /// Takes the row that the expressions give.
    fn take(
        &mut self,
        row: &[Expr],
        core: &mut Core,
        env: &Env<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let plan = self.plan;
        self.taken.step();
        let before = plan.table.has_triggers(Op::Insert, true, true);
        if before && plan.conflict.is_none() {
            // What the triggers look at has the rows before this one in it.
            self.count += u64::from(insert_row(plan, row, core, env, sink)?);
            return Ok(());
        }
        let changed;
        let mut made = Vec::new();
        let mut values: Vec<Val<'_>> = Vec::with_capacity(row.len());
        for e in row {
            values.push(e.eval(env, core)?);
        }
        let mut refs = recycle(std::mem::take(&mut self.refs));
        refs.extend(values.iter().map(Val::get));
        match triggers::before_row(core, &plan.table, Cause::of(Op::Insert), None, Some(&refs))? {
            Before::Same => {}
            Before::Skip => {
                self.refs = recycle(refs);
                return Ok(());
            }
            Before::Row(now) => {
                changed = now;
                refs.clear();
                refs.extend(changed.iter().map(Datum::borrow));
            }
        }
        generated::fill(&plan.rules, core, &mut refs, &mut made)?;
        check_row(&plan.table, &plan.rules, core, &refs)?;
        if let Some(conflict) = &plan.conflict {
            let mut new = Upserted {
                runs: &mut self.runs,
                plan,
                conflict,
                row: &refs,
                params: self.params,
                snapshot: &self.snapshot,
            };
            self.count += u64::from(new.write(core, sink)?);
            self.refs = recycle(refs);
            return Ok(());
        }
        self.count += 1;
        // A row in bulk has no place yet.
        if plan.returning.as_ref().is_some_and(|r| r.system.is_some()) {
            insert_values(plan, &refs, core, self.params, sink)?;
            self.refs = recycle(refs);
            return Ok(());
        }
        self.bulk
            .push(&plan.table, core, &refs, self.count)
            .map_err(|(e, _)| e)?;
        events::inserted(core, &plan.table, &refs)?;
        check_views(&plan.table, &plan.rules, core, &refs)?;
        let at = (&*plan.table, RowId(0));
        returned(plan.returning.as_ref(), core, at, &refs, self.params, sink)?;
        self.refs = recycle(refs);
        Ok(())
    }

    fn finish(mut self, core: &mut Core) -> Result<u64> {
        self.bulk
            .finish(&self.plan.table, core)
            .map_err(|(e, _)| e)?;
        Ok(self.count)
    }
}

/// Checked rows on their way into a table in bulk. An error comes with the number of the row that it is about; zero: of none.
pub struct BulkRows(engine::Bulk);

impl BulkRows {
    pub fn new(table: &Table) -> BulkRows {
        BulkRows(engine::Bulk::new(table.engine()))
    }

    /// `number` is the caller's for the row. The error may be about an earlier one.
    pub fn push(
        &mut self,
        table: &Table,
        core: &mut Core,
        row: &[DatumRef<'_>],
        number: u64,
    ) -> std::result::Result<(), (Error, u64)> {
        // A key that is checked after the fact is looked up once its entry is there.
        if table.indexes.iter().any(|i| i.deferrable) {
            let done = core.engine.insert(table.engine(), row);
            let done = done.map_err(|e| write_error(e, table, row, core));
            return done.map(|_| ()).map_err(|e| (e, number));
        }
        core.engine
            .insert_bulk(table.engine(), &mut self.0, row, number)
            .map_err(|e| self.error(e, table, core, number))
    }

    /// Writes what is left.
    pub fn finish(
        &mut self,
        table: &Table,
        core: &mut Core,
    ) -> std::result::Result<(), (Error, u64)> {
        core.engine
            .finish_bulk(table.engine(), &mut self.0)
            .map_err(|e| self.error(e, table, core, 0))
    }

    /// The row that a bulk insert was refused for is in the table by then.
    fn error(&self, e: engine::Error, table: &Table, core: &mut Core, number: u64) -> (Error, u64) {
        let engine::Error::UniqueViolation { row: Some(rid), .. } = e else {
            return (e.into(), number);
        };
        let number = self.0.number_of(rid).unwrap_or(number);
        let (mut stored, mut row) = (Vec::new(), Vec::new());
        let def = table.engine();
        let columns = &def.columns;
        let error = match core.engine.fetch_current(table.engine(), rid, &mut stored) {
            Ok(true) => match decode(&stored, def, columns.len(), &mut row) {
                Ok(()) => write_error(e, table, &row, core),
                Err(e) => e,
            },
            Ok(false) => of_table(Error::from(e), table, core),
            Err(e) => e.into(),
        };
        (error, number)
    }
}

pub fn update(
    plan: &UpdatePlan,
    core: &mut Core,
    params: &[Datum],
    mut snapshot: Snapshot,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let table = &plan.access.table;
    let def = table.engine();
    let columns = &def.columns;
    let mut cursor = TableCursor::to_change(core.take_row_buffer());
    let env = Env { row: &[], params };
    open_to_change(&mut cursor, &plan.access, core, &mut snapshot, &env)?;
    let set: Vec<usize> = plan.set.iter().map(|(column, _)| *column).collect();
    let lock_as = def.lock_of_update(plan.rules.changed(&set).into_iter());
    let mut spare = core.take_spare();
    let mut newest = Vec::new();
    let mut count = 0;
    let mut done = written("UPDATE", table);
    while let Some(rid) = cursor.next(&plan.access, core, &snapshot)? {
        let mut values = recycle(spare);
        decode(cursor.row(), def, columns.len(), &mut values)?;
        if passes(
            &plan.access,
            core,
            &Env {
                row: &values,
                params,
            },
        )? {
            core.enter_step(plan.step());
            done.step();
            let mut outcome = match table.has_triggers(Op::Update, true, true) {
                false => write_update(plan, core, params, rid, &values, Some(&snapshot), sink)?,
                true => match triggers::lock_first(core, table, (rid, lock_as), &snapshot)? {
                    LockOutcome::Locked => {
                        write_update(plan, core, params, rid, &values, None, sink)?
                    }
                    LockOutcome::Changed => WriteOutcome::Changed,
                    LockOutcome::Gone | LockOutcome::Skipped => WriteOutcome::Gone,
                },
            };
            if outcome == WriteOutcome::Changed
                && lock_newest(&plan.access, core, (rid, lock_as), &snapshot, &mut newest)?
            {
                let mut current = Vec::with_capacity(columns.len());
                decode(&newest, def, columns.len(), &mut current)?;
                if holds(
                    plan.condition.as_ref(),
                    core,
                    &Env {
                        row: &current,
                        params,
                    },
                )? {
                    outcome = write_update(plan, core, params, rid, &current, None, sink)?;
                }
            }
            count += u64::from(outcome == WriteOutcome::Done);
            core.enter_step(StepKey::of(&plan.access));
        }
        spare = recycle(values);
    }
    core.put_spare(spare);
    core.put_row_buffer(cursor.into_buffer());
    Ok(count)
}

/// Places a cursor of rows to be changed. All parts of a statement have one snapshot, so that none of
/// them may take another.
fn open_to_change(
    cursor: &mut TableCursor,
    access: &TableAccess,
    core: &mut Core,
    snapshot: &mut Snapshot,
    env: &Env<'_>,
) -> Result<()> {
    core.enter_step(StepKey::of(access));
    match core.with.is_some() {
        true => cursor.open(access, core, snapshot, env),
        false => cursor.open_to_change(access, core, snapshot, env),
    }
}

/// Locks a row that changed under us; false if it is gone.
fn lock_newest(
    access: &TableAccess,
    core: &mut Core,
    (rid, lock_as): (RowId, RowLock),
    snapshot: &Snapshot,
    newest: &mut Vec<u8>,
) -> Result<bool> {
    let how = (lock_as, LockWait::Wait);
    match lock(core, &access.table, rid, snapshot, how, newest)? {
        LockOutcome::Changed => Ok(true),
        LockOutcome::Gone | LockOutcome::Skipped => Ok(false),
        // Whoever changed it rolled back meanwhile: the version is again the one we saw.
        LockOutcome::Locked => Ok(core
            .engine
            .fetch_current(access.table.engine(), rid, newest)?),
    }
}

/// Makes the new version of a row from the old one. Without a snapshot the row is locked by us already.
fn write_update(
    plan: &UpdatePlan,
    core: &mut Core,
    params: &[Datum],
    rid: RowId,
    old: &[DatumRef<'_>],
    snapshot: Option<&Snapshot>,
    sink: &mut dyn RowSink,
) -> Result<WriteOutcome> {
    let table = &plan.access.table;
    let env = Env { row: old, params };
    let mut new_values: Vec<(usize, Val<'_>)> = Vec::with_capacity(plan.set.len());
    for (column, e) in &plan.set {
        new_values.push((*column, e.eval(&env, core)?));
    }
    let changed;
    let mut made = Vec::new();
    let mut row: Vec<DatumRef<'_>> = old.to_vec();
    for (column, value) in &new_values {
        row[*column] = value.get();
    }
    let given = triggers::given_columns(table, &plan.rules, &plan.set);
    let cause = Cause::update(&given);
    match triggers::before_row(core, table, cause, Some(old), Some(&row))? {
        Before::Same => {}
        Before::Skip => return Ok(WriteOutcome::Gone),
        Before::Row(now) => {
            changed = now;
            row = changed.iter().map(Datum::borrow).collect();
        }
    }
    generated::fill(&plan.rules, core, &mut row, &mut made)?;
    check_row(table, &plan.rules, core, &row)?;
    let outcome = core
        .engine
        .update(table.engine(), rid, &row, snapshot)
        .map_err(|e| write_error(e, table, &row, core))?;
    if outcome == WriteOutcome::Done {
        events::updated(core, table, &given, old, &row)?;
        check_views(table, &plan.rules, core, &row)?;
        let returning = plan.returning.as_ref();
        returned(returning, core, (table, rid), &row, params, sink)?;
    }
    Ok(outcome)
}

pub fn delete(
    plan: &DeletePlan,
    core: &mut Core,
    params: &[Datum],
    mut snapshot: Snapshot,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let table = &plan.access.table;
    let def = table.engine();
    let columns = &def.columns;
    let mut cursor = TableCursor::to_change(core.take_row_buffer());
    let env = Env { row: &[], params };
    open_to_change(&mut cursor, &plan.access, core, &mut snapshot, &env)?;
    let mut spare = core.take_spare();
    let mut newest = Vec::new();
    let mut count = 0;
    let mut done = written("DELETE", table);
    while let Some(rid) = cursor.next(&plan.access, core, &snapshot)? {
        let mut values = recycle(spare);
        decode(cursor.row(), def, columns.len(), &mut values)?;
        if passes(
            &plan.access,
            core,
            &Env {
                row: &values,
                params,
            },
        )? {
            core.enter_step(plan.step());
            done.step();
            let mut outcome = delete_row(core, table, rid, &values, Some(&snapshot))?;
            if outcome == WriteOutcome::Done {
                events::deleted(core, table, &values)?;
                let returning = plan.returning.as_ref();
                returned(returning, core, (table, rid), &values, params, sink)?;
            } else if outcome == WriteOutcome::Changed
                && lock_newest(
                    &plan.access,
                    core,
                    (rid, RowLock::Update),
                    &snapshot,
                    &mut newest,
                )?
            {
                let mut current = Vec::with_capacity(columns.len());
                decode(&newest, def, columns.len(), &mut current)?;
                if holds(
                    plan.condition.as_ref(),
                    core,
                    &Env {
                        row: &current,
                        params,
                    },
                )? {
                    outcome = delete_row(core, table, rid, &current, None)?;
                    if outcome == WriteOutcome::Done {
                        events::deleted(core, table, &current)?;
                        let returning = plan.returning.as_ref();
                        returned(returning, core, (table, rid), &current, params, sink)?;
                    }
                }
            }
            count += u64::from(outcome == WriteOutcome::Done);
            core.enter_step(StepKey::of(&plan.access));
        }
        spare = recycle(values);
    }
    core.put_spare(spare);
    core.put_row_buffer(cursor.into_buffer());
    Ok(count)
}

/// Deletes a row, unless a trigger has it stay. Without a snapshot the row is locked by us already.
pub fn delete_row(
    core: &mut Core,
    table: &Arc<Table>,
    rid: RowId,
    row: &[DatumRef<'_>],
    snapshot: Option<&Snapshot>,
) -> Result<WriteOutcome> {
    let mut snapshot = snapshot;
    if table.has_triggers(Op::Delete, true, true) {
        if let Some(seen) = snapshot.take() {
            match triggers::lock_first(core, table, (rid, RowLock::Update), seen)? {
                LockOutcome::Locked => {}
                LockOutcome::Changed => return Ok(WriteOutcome::Changed),
                LockOutcome::Gone | LockOutcome::Skipped => return Ok(WriteOutcome::Gone),
            }
        }
        let before = triggers::before_row(core, table, Cause::of(Op::Delete), Some(row), None)?;
        if let Before::Skip = before {
            return Ok(WriteOutcome::Gone);
        }
    }
    Ok(core.engine.delete(table.engine(), rid, snapshot)?)
}

/// What RETURNING gives of a row that is new, has another version, or is gone.
pub fn returned(
    returning: Option<&Returning>,
    core: &mut Core,
    (table, rid): (&Table, RowId),
    row: &[DatumRef<'_>],
    params: &[Datum],
    sink: &mut dyn RowSink,
) -> Result<()> {
    let wrote = Wrote::Row;
    let written = Written { table, rid, wrote };
    match returning {
        None => Ok(()),
        Some(returning) => returning.give(written, core, row, params, sink),
    }
}
