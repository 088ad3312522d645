//! Writes to views that INSTEAD OF triggers do: the view's query finds the rows, and each goes to
//! the triggers, as it was and as it is to be.

use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::checks::check_views;
use super::dml::returned;
use super::drive::Flow;
use super::events::Cause;
use super::returning::Returned;
use super::select::SelectRun;
use super::triggers;
use crate::api::RowSink;
use crate::dict::trigger::Op;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr, Val};
use crate::plan::supply::Change;
use crate::plan::{InsertPlan, InsertSource, SuppliedWrite};
use crate::query;
use crate::session::Core;

/// Inserts the rows of a statement; returns how many the triggers did not leave out.
pub fn insert(
    plan: &InsertPlan,
    core: &mut Core,
    params: &[Datum],
    snapshot: Snapshot,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let mut count = 0;
    let mut take = |core: &mut Core, row: &[Expr], values: &[DatumRef<'_>]| -> Result<()> {
        let env = Env {
            row: values,
            params,
        };
        count += u64::from(insert_row(plan, row, core, &env, sink)?);
        Ok(())
    };
    match &plan.source {
        InsertSource::Rows(rows) => rows.iter().try_for_each(|row| take(core, row, &[]))?,
        InsertSource::Query(select, row) => {
            let mut run = SelectRun::start(select, core, params, snapshot)?;
            run.feed(select, core, params, &mut |core, values| {
                take(core, row, values)?;
                Ok(Flow::More)
            })?;
        }
        InsertSource::Fed(query, rows) => {
            query::Run::start(query, core, params, snapshot)?.each(core, &mut |core, values| {
                rows.iter().try_for_each(|row| take(core, row, values))?;
                Ok(Flow::More)
            })?;
        }
    }
    Ok(count)
}

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
    let new: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    let made = triggers::instead_of(core, &plan.table, Cause::of(Op::Insert), None, Some(&new))?;
    let Some(made) = made else {
        return Ok(false);
    };
    let made: Vec<DatumRef<'_>> = made.iter().map(Datum::borrow).collect();
    check_views(&plan.table, &plan.rules, core, &made)?;
    let at = (&*plan.table, block::RowId(0));
    returned(plan.returning.as_ref(), core, at, &made, env.params, sink)?;
    Ok(true)
}

/// Gives the rows that the query finds to the triggers; returns how many these did not leave out.
pub fn write(
    plan: &SuppliedWrite,
    core: &mut Core,
    params: &[Datum],
    snapshot: &Snapshot,
    sink: &mut dyn RowSink,
) -> Result<u64> {
    let mut count = 0;
    let mut returned = Returned {
        plan,
        params,
        snapshot,
        run: None,
        sink,
    };
    query::Run::start(&plan.query, core, params, *snapshot)?.each(core, &mut |core, given| {
        count += u64::from(change(&mut returned, core, given)?);
        Ok(Flow::More)
    })?;
    Ok(count)
}

fn change(returned: &mut Returned<'_>, core: &mut Core, given: &[DatumRef<'_>]) -> Result<bool> {
    let Returned { plan, params, .. } = *returned;
    let Some(DatumRef::Composite(row)) = given.first().copied() else {
        return Err(Error::internal(
            "a row of a view that is to be written is none",
        ));
    };
    let table = &plan.table;
    let mut both: Vec<DatumRef<'_>> = row.values().collect();
    let width = both.len();
    if width != table.columns.len() {
        return Err(Error::internal(
            "a row of a view has other columns than the view",
        ));
    }
    both.extend_from_slice(given);
    let made = match &plan.change {
        Change::Delete => {
            let old = &both[..width];
            let gone = triggers::instead_of(core, table, Cause::of(Op::Delete), Some(old), None)?;
            if gone.is_none() {
                return Ok(false);
            }
            None
        }
        Change::Update(set) => {
            let env = Env { row: &both, params };
            let mut values: Vec<(usize, Val<'_>)> = Vec::with_capacity(set.len());
            for (column, e) in set {
                values.push((*column, e.eval(&env, core)?));
            }
            let old = &both[..width];
            let mut new = old.to_vec();
            for (column, value) in &values {
                new[*column] = value.get();
            }
            let given: Vec<usize> = set.iter().map(|(column, _)| *column).collect();
            let cause = Cause::update(&given);
            let made = triggers::instead_of(core, table, cause, Some(old), Some(&new))?;
            let Some(made) = made else {
                return Ok(false);
            };
            Some(made)
        }
        Change::Merge(_) => return Err(Error::internal("a MERGE of a view")),
    };
    if let Some(made) = &made {
        for (slot, value) in both.iter_mut().zip(made) {
            *slot = value.borrow();
        }
        check_views(table, &plan.rules, core, &both[..width])?;
    }
    returned.give(core, block::RowId(0), &both)?;
    Ok(true)
}
