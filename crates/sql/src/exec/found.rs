//! Locks the rows that a query of the general lane finds.
//!
//! As with a direct plan's, rows are locked in their order, one by one, before LIMIT counts them. But if under READ COMMITTED one of them has changed since
//! the snapshot, the query begins again with a new one, as Oracle does it; what is locked by then stays so. Rows go to the client once all are locked.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{LockOutcome, Snapshot};

use super::drive::Flow;
use super::feed::feed;
use super::lock::{lock, wait_of};
use super::select::count;
use super::sort::Spool;
use super::supply::MAX_RESTARTS;
use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::expr::Env;
use crate::plan::FoundRows;
use crate::session::Core;

/// Runs the query; returns how many rows it gave.
pub fn run(
    plan: &FoundRows,
    core: &mut Core,
    params: &[Datum],
    sink: &mut dyn RowSink,
) -> Result<u64> {
    for _ in 0..MAX_RESTARTS {
        let snapshot = core.engine.snapshot()?;
        if let Some(kept) = attempt(plan, core, params, &snapshot)? {
            return kept.send(sink);
        }
        wait::stat::add(wait::Stat::StatementRestarts, 1);
    }
    Err(Error::new(
        "40001",
        "could not serialize access due to concurrent update",
    ))
}

/// `None`: a row has changed since the snapshot.
fn attempt(
    plan: &FoundRows,
    core: &mut Core,
    params: &[Datum],
    snapshot: &Snapshot,
) -> Result<Option<Spool>> {
    let env = Env { row: &[], params };
    let mut left = count(plan.limit.as_ref(), core, &env, "LIMIT")?.unwrap_or(u64::MAX);
    let mut to_skip = count(plan.offset.as_ref(), core, &env, "OFFSET")?.unwrap_or(0);
    let mut kept = Spool::new(core);
    if left == 0 {
        return Ok(Some(kept));
    }
    let mut changed = false;
    feed(&plan.query, core, params, *snapshot, &mut |core, given| {
        match lock_all(plan, core, snapshot, given)? {
            LockOutcome::Locked => {}
            LockOutcome::Gone | LockOutcome::Skipped => return Ok(Flow::More),
            LockOutcome::Changed => {
                changed = true;
                return Ok(Flow::Stop);
            }
        }
        if to_skip > 0 {
            to_skip -= 1;
            return Ok(Flow::More);
        }
        let row: Vec<DatumRef<'_>> = plan.columns.iter().map(|at| given[*at]).collect();
        kept.row(&row)?;
        left -= 1;
        Ok(if left == 0 { Flow::Stop } else { Flow::More })
    })?;
    Ok((!changed).then_some(kept))
}

/// Locks the rows of which one of the query's is made.
fn lock_all(
    plan: &FoundRows,
    core: &mut Core,
    snapshot: &Snapshot,
    given: &[DatumRef<'_>],
) -> Result<LockOutcome> {
    let mut newest = Vec::new();
    for l in &plan.locks {
        let Some(DatumRef::Int8(id)) = given.get(l.id).copied() else {
            return Err(Error::internal("a row to be locked has no id"));
        };
        let rid = RowId(id as u64);
        let how = (l.how.lock, wait_of(l.how.how));
        match lock(core, &l.table, rid, snapshot, how, &mut newest)? {
            LockOutcome::Locked => {}
            other => return Ok(other),
        }
    }
    Ok(LockOutcome::Locked)
}
