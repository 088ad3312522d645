//! Queries that a write runs for each of its rows.

use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::drive::Flow;
use crate::error::Result;
use crate::expr::Env;
use crate::query::{OverRow, Run};
use crate::session::Core;

/// Runs a query for a row; true if it has a row, whose values it adds to `values`. `run` is kept
/// from row to row, so that what takes nothing from the rows is computed once.
pub fn run_over(
    over: &OverRow,
    run: &mut Option<Run>,
    core: &mut Core,
    env: &Env<'_>,
    snapshot: &Snapshot,
    values: &mut Vec<Datum>,
) -> Result<bool> {
    let inputs = over.inputs.iter().map(|(register, value)| {
        let value = value.eval(env, core)?.into_datum();
        Ok((*register, value))
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let run = match run {
        Some(run) => run,
        None => run.insert(Run::start(&over.plan, core, env.params, *snapshot)?),
    };
    run.again(inputs);
    let flow = run.each(core, &mut |_, row| {
        values.extend(row.iter().map(DatumRef::to_datum));
        Ok(Flow::Stop)
    })?;
    Ok(flow == Flow::Stop)
}
