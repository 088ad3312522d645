//! INSERT ... ON CONFLICT: one row that may meet another with its key.

use block::value::{Datum, DatumRef};
use engine::{LockOutcome, LockWait, Snapshot, Upsert};

use super::checks::{check_constraints, check_views};
use super::dml::returned;
use super::events::{self, Cause};
use super::generated;
use super::over::run_over;
use super::policies::{self, Row};
use super::returning::{Written, Wrote};
use super::row::decode;
use super::told::write_error;
use super::triggers::{self, Before};
use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::expr::{Env, Val};
use crate::plan::conflict::Condition;
use crate::plan::{Conflict, ConflictUpdate, InsertPlan};
use crate::query::analyze::system::SystemColumn;
use crate::query::{OverRow, Run};
use crate::session::Core;

/// A checked row to be inserted, or else.
pub struct Upserted<'u> {
    pub runs: &'u mut ConflictRuns,
    pub plan: &'u InsertPlan,
    pub conflict: &'u Conflict,
    pub row: &'u [DatumRef<'u>],
    pub params: &'u [Datum],
    pub snapshot: &'u Snapshot,
}

/// The queries of an ON CONFLICT under way: begun at the first row that is met, so that what takes
/// nothing from the rows is computed once.
#[derive(Default)]
pub struct ConflictRuns {
    condition: Option<Run>,
    given: Option<Run>,
}

impl Upserted<'_> {
    /// Whether a row was inserted or changed.
    ///
    /// As in PostgreSQL, the row in the way is looked at as it is now, whatever the snapshot; REPEATABLE READ answers 40001 if the transaction does
    /// not see it.
    pub fn write(&mut self, core: &mut Core, sink: &mut dyn RowSink) -> Result<bool> {
        let (plan, conflict) = (self.plan, self.conflict);
        let table = &plan.table;
        let mut newest = Vec::new();
        loop {
            let arbiters = &conflict.arbiters;
            let met = core
                .engine
                .insert_unless(table.engine(), self.row, arbiters)
                .map_err(|e| write_error(e, table, self.row, core))?;
            let rid = match met {
                Upsert::Inserted(rid) => {
                    events::inserted(core, table, self.row)?;
                    check_views(table, &self.plan.rules, core, self.row)?;
                    let returning = self.plan.returning.as_ref();
                    returned(returning, core, (table, rid), self.row, self.params, sink)?;
                    return Ok(true);
                }
                Upsert::Conflict(rid) => rid,
            };
            let Some(update) = &conflict.update else {
                core.engine.check_seen(table.engine(), rid, self.snapshot)?;
                return Ok(false);
            };
            let set: Vec<usize> = update.set.iter().map(|(column, _)| *column).collect();
            let set = self.plan.rules.changed(&set).into_iter();
            let lock = table.engine().lock_of_update(set);
            let locked = core.engine.lock_row(
                table.engine(),
                rid,
                self.snapshot,
                (lock, LockWait::Wait),
                &mut newest,
            );
            let found = match locked {
                Ok(LockOutcome::Changed) => true,
                Ok(LockOutcome::Locked) => {
                    core.engine
                        .fetch_current(table.engine(), rid, &mut newest)?
                }
                Ok(LockOutcome::Gone | LockOutcome::Skipped) => {
                    self.refuse_own(core, rid)?;
                    false
                }
                Err(e) => {
                    self.refuse_own(core, rid)?;
                    return Err(e.into());
                }
            };
            // Whoever changed it meanwhile may have given it another key, or deleted it: then the insertion may do.
            let same = |i: &usize| {
                table.engine().indexes[*i].has_key_of(table.engine(), &newest, self.row)
            };
            let met = found
                && arbiters
                    .iter()
                    .map(same)
                    .collect::<engine::Result<Vec<bool>>>()?
                    .contains(&true);
            if met {
                return self.update(update, core, rid, &newest, sink);
            }
        }
    }

    /// A row that this very statement has written cannot be changed by it again: which of the two came first would decide.
    fn refuse_own(&self, core: &mut Core, rid: block::RowId) -> Result<()> {
        if !core.engine.is_own(self.plan.table.engine(), rid)? {
            return Ok(());
        }
        Err(Error::new(
            "21000",
            "ON CONFLICT DO UPDATE command cannot affect row a second time",
        )
        .hint(
            "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
        ))
    }

    /// The system columns of the row in the way, if a query reads them.
    fn system_columns(
        &self,
        update: &ConflictUpdate,
        core: &mut Core,
        rid: block::RowId,
    ) -> Result<Vec<Datum>> {
        let table = &self.plan.table;
        let width = 2 * table.engine().columns.len();
        let reads = |over: &OverRow| over.inputs.iter().any(|(_, e)| e.columns_needed() > width);
        if !update.queries().any(reads) {
            return Ok(Vec::new());
        }
        let columns = SystemColumn::ALL.into_iter();
        columns.map(|c| c.value(core, table, rid, None)).collect()
    }

    /// Changes the row in the way, which is locked; false if the condition does not hold.
    fn update(
        &mut self,
        update: &ConflictUpdate,
        core: &mut Core,
        rid: block::RowId,
        stored: &[u8],
        sink: &mut dyn RowSink,
    ) -> Result<bool> {
        let (plan, params) = (self.plan, self.params);
        let table = &plan.table;
        let def = table.engine();
        let columns = &def.columns;
        let mut both = Vec::with_capacity(columns.len() * 2);
        decode(stored, def, columns.len(), &mut both)?;
        both.extend_from_slice(self.row);
        let system = self.system_columns(update, core, rid)?;
        both.extend(system.iter().map(Datum::borrow));
        let env = Env { row: &both, params };
        let holds = match &update.condition {
            None => true,
            Some(Condition::Expr(e)) => e.holds(&env, core)?,
            Some(Condition::Query(over)) => {
                let run = &mut self.runs.condition;
                run_over(over, run, core, &env, self.snapshot, &mut Vec::new())?
            }
        };
        if !holds {
            return Ok(false);
        }
        let there = &both[..columns.len()];
        policies::check(table, &update.existing, core, there, Row::Conflicting)?;
        let mut given = Vec::new();
        if let Some(over) = &update.given {
            let run = &mut self.runs.given;
            run_over(over, run, core, &env, self.snapshot, &mut given)?;
        }
        both.truncate(columns.len() * 2);
        both.extend(given.iter().map(Datum::borrow));
        let env = Env { row: &both, params };
        let mut values: Vec<(usize, Val<'_>)> = Vec::with_capacity(update.set.len());
        for (column, e) in &update.set {
            values.push((*column, e.eval(&env, core)?));
        }
        let changed;
        let mut made = Vec::new();
        let mut row = both[..columns.len()].to_vec();
        for (column, value) in &values {
            row[*column] = value.get();
        }
        let old = &both[..columns.len()];
        let given = triggers::given_columns(table, &self.plan.rules, &update.set);
        let cause = Cause::update(&given);
        match triggers::before_row(core, table, cause, Some(old), Some(&row))? {
            Before::Same => {}
            Before::Skip => return Ok(false),
            Before::Row(now) => {
                changed = now;
                row = changed.iter().map(Datum::borrow).collect();
            }
        }
        generated::fill(&self.plan.rules, core, &mut row, &mut made)?;
        policies::check(table, &update.policies, core, &row, Row::New)?;
        check_constraints(table, &self.plan.rules, core, &row)?;
        core.engine
            .update(table.engine(), rid, &row, None)
            .map_err(|e| write_error(e, table, &row, core))?;
        events::updated(core, table, &given, &both[..columns.len()], &row)?;
        check_views(table, &self.plan.rules, core, &row)?;
        if let Some(returning) = &self.plan.returning {
            let wrote = Wrote::Conflicting;
            let written = Written { table, rid, wrote };
            returning.give(written, core, &row, params, sink)?;
        }
        Ok(true)
    }
}
