//! Running a query that feeds another step.

use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::drive::Flow;
use crate::error::Result;
use crate::olap;
use crate::plan::Feed;
use crate::query;
use crate::session::{Core, Keep};

/// Takes the rows of a query that feeds another step.
pub type Taker<'t> = dyn FnMut(&mut Core, &[DatumRef<'_>]) -> Result<Flow> + 't;

/// Brings every row of the query to `take`, until it wants no more.
pub fn feed(
    feed: &Feed,
    core: &mut Core,
    params: &[Datum],
    snapshot: Snapshot,
    take: &mut Taker<'_>,
) -> Result<Flow> {
    match feed {
        Feed::Tree(plan) => query::Run::start(plan, core, params, snapshot)?.each(core, take),
        Feed::General(query) => {
            let mut run = olap::start(query, core, params, snapshot)?;
            each(&mut run, core, take)
        }
    }
}

/// Brings every row of the general lane's run to `take`.
pub fn each(run: &mut olap::Run, core: &mut Core, take: &mut Taker<'_>) -> Result<Flow> {
    // One at a time: they may be large.
    let mut one = Keep::default();
    loop {
        let (_, more) = run.run(core, 1, &mut one)?;
        if let Some(row) = one.rows.pop() {
            let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
            if take(core, &refs)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        if !more {
            return Ok(Flow::More);
        }
    }
}
