//! A plan's execution: its operators, its registers, and what its subqueries have come to.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::lock::is_changed;
use super::shared::SharedRun;
use super::subquery::SubqueryRun;
use super::{Frame, Operator, operator};
use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::exec::drive::Flow;
use crate::exec::sort::Spool;
use crate::exec::supply::MAX_RESTARTS;
use crate::expr::{Val, missing_parameter};
use crate::query::Plan;
use crate::query::plan::Register;
use crate::session::Core;
use crate::views::Context;

/// Subqueries and WITH queries of the statement that is running, by number. The session's while
/// the statement runs, its own while it is suspended.
#[derive(Default)]
pub struct Running {
    pub subqueries: Vec<Option<Box<SubqueryRun>>>,
    pub shared: Vec<Option<Box<SharedRun>>>,
    /// What the operators that run now are within: changed whenever the WITH queries around them
    /// begin anew, or begin a round.
    pub epoch: u64,
    /// The newest epoch.
    pub epochs: u64,
    /// Set of a statement that is running.
    pub is_statement: bool,
    /// What the statement's functions over the catalogs work in, once one has been called.
    pub context: Option<Box<Context>>,
}

impl Running {
    pub fn new_epoch(&mut self) -> u64 {
        self.epochs += 1;
        self.epochs
    }

    pub fn new(plan: &Plan, params: &[Datum], snapshot: Snapshot, measured: bool) -> Running {
        let subquery = |plan| Some(Box::new(SubqueryRun::new(plan, params, snapshot, measured)));
        let shared = |plan| Some(Box::new(SharedRun::new(plan, params, snapshot, measured)));
        Running {
            subqueries: plan.subqueries.iter().map(subquery).collect(),
            shared: plan.shared.iter().map(shared).collect(),
            epoch: 0,
            epochs: 0,
            is_statement: true,
            context: None,
        }
    }
}

/// An execution of a plan under way.
pub struct Run {
    plan: Arc<Plan>,
    operator: Box<dyn Operator>,
    frame: Frame,
    running: Running,
    opened: bool,
}

impl Run {
    /// An error if the statement has parameters without a value.
    pub fn start(
        plan: &Arc<Plan>,
        core: &Core,
        params: &[Datum],
        snapshot: Snapshot,
    ) -> Result<Run> {
        if params.len() < plan.parameters {
            return Err(missing_parameter(params.len()));
        }
        let measured = core.profile.is_some();
        Ok(Run {
            plan: plan.clone(),
            operator: operator(&plan.root, measured),
            frame: Frame::new(params, plan.width, snapshot),
            running: Running::new(plan, params, snapshot, measured),
            opened: false,
        })
    }

    /// Begins again, with other values in registers that it only reads.
    pub fn again(&mut self, inputs: impl IntoIterator<Item = (Register, Datum)>) {
        for (register, value) in inputs {
            self.frame.set(register, value);
        }
        self.opened = false;
    }

    /// What the whole run reads by.
    pub fn snapshot(&self) -> Snapshot {
        self.frame.snapshot
    }

    /// Brings rows to `take` until it wants no more; `More` at the end.
    pub fn each(
        &mut self,
        core: &mut Core,
        take: &mut dyn FnMut(&mut Core, &[DatumRef<'_>]) -> Result<Flow>,
    ) -> Result<Flow> {
        std::mem::swap(&mut core.running, &mut self.running);
        let done = self.pull(core, take);
        std::mem::swap(&mut core.running, &mut self.running);
        done
    }

    fn pull(
        &mut self,
        core: &mut Core,
        take: &mut dyn FnMut(&mut Core, &[DatumRef<'_>]) -> Result<Flow>,
    ) -> Result<Flow> {
        if !self.opened {
            self.operator.open(core, &mut self.frame)?;
            self.opened = true;
        }
        while self.operator.next(core, &mut self.frame)? {
            let env = self.frame.env();
            let values = self
                .plan
                .output
                .iter()
                .map(|e| e.eval(&env, core))
                .collect::<Result<Vec<Val<'_>>>>()?;
            let row: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
            if take(core, &row)? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::More)
    }

    /// Sends up to `max_rows` rows (0: all). Returns how many, and whether there may be more.
    pub fn run(
        &mut self,
        core: &mut Core,
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<(u64, bool)> {
        let mut sent = 0;
        let flow = self.each(core, &mut |_, row| {
            sink.row(row)?;
            sent += 1;
            Ok(match sent == max_rows as u64 {
                true => Flow::Stop,
                false => Flow::More,
            })
        })?;
        Ok((sent, flow == Flow::Stop))
    }
}

/// Runs a query that locks rows: from the beginning, if one of them has changed since its
/// snapshot. Returns its rows, which go to the client once all are locked.
pub fn locked(plan: &Arc<Plan>, core: &mut Core, params: &[Datum]) -> Result<Spool> {
    for _ in 0..MAX_RESTARTS {
        let snapshot = core.engine.snapshot()?;
        let mut kept = Spool::new(core);
        let mut run = Run::start(plan, core, params, snapshot)?;
        match run.run(core, 0, &mut kept) {
            Ok(_) => return Ok(kept),
            Err(e) if is_changed(&e) => wait::stat::add(wait::Stat::StatementRestarts, 1),
            Err(e) => return Err(e),
        }
    }
    Err(Error::new(
        "40001",
        "could not serialize access due to concurrent update",
    ))
}
