//! Groups of a pipeline's rows: each worker has its own, which are merged at the end.

use std::sync::Arc;

use super::batch::Batch;
use super::keys::Groups;
use super::program::{Grouping, Program};
use super::scan::{Collect, Counted, Work, run};
use super::state::{Rows, States};
use super::{Stop, tables};
use crate::exec::profile::Took;
use crate::query::plan::Group;
use crate::query::run::Frame;
use crate::session::Core;

/// Groups of one worker.
struct Part {
    groups: Groups,
    states: Vec<States>,
    /// Groups of the rows at hand.
    numbers: Vec<u32>,
}

/// The groups, as they are given.
pub struct Output {
    plan: Arc<Grouping>,
    part: Part,
    threads: usize,
    counted: Counted,
    /// Numbers of groups in the order of their first rows.
    order: Vec<u32>,
    next: usize,
}

impl Collect for Part {
    type Plan = Arc<Grouping>;

    fn new(plan: &Self::Plan) -> Part {
        let mut states: Vec<States> = plan.calls.iter().map(States::new).collect();
        if plan.keys.is_empty() {
            // One group, even of no rows.
            states.iter_mut().for_each(|s| s.resize(1));
        }
        Part {
            groups: Groups::new(&plan.key_types()),
            states,
            numbers: Vec::new(),
        }
    }

    fn add(&mut self, plan: &Self::Plan, batch: &mut Batch, first: u64) -> Result<(), Stop> {
        let rows = match plan.keys.is_empty() {
            true => Rows::All,
            false => {
                let numbers = &mut self.numbers;
                self.groups.find(&plan.keys, batch, first, numbers)?;
                let groups = self.groups.len();
                self.states.iter_mut().for_each(|s| s.resize(groups));
                Rows::Each(&self.numbers)
            }
        };
        for (call, states) in plan.calls.iter().zip(&mut self.states) {
            states.add(call, batch, rows)?;
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.groups.memory() + self.states.iter().map(States::memory).sum::<usize>()
    }
}

/// Computes all groups.
pub fn compute(
    mut program: Program,
    core: &mut Core,
    frame: &mut Frame,
    measured: bool,
) -> Result<Output, Stop> {
    tables::make(&mut program.pipeline, program.memory, core, frame, measured)?;
    let plan = Arc::new(program.groups);
    let work = Work {
        pipeline: program.pipeline,
        plan: plan.clone(),
        memory: program.memory,
        stretches: plan.is_ordered(),
    };
    let snapshot = frame.snapshot;
    let collected = run::<Part>(work, core, &snapshot)?;
    let threads = collected.threads;
    let part = merged(&plan, collected.parts)?;
    let mut order: Vec<u32> = match plan.keys.is_empty() {
        false => (0..part.groups.len() as u32).collect(),
        true => vec![0],
    };
    order.sort_unstable_by_key(|n| part.groups.firsts.get(*n as usize));
    Ok(Output {
        plan,
        part,
        threads,
        counted: collected.counted,
        order,
        next: 0,
    })
}

/// Puts the workers' groups together.
fn merged(plan: &Grouping, parts: Vec<Part>) -> Result<Part, Stop> {
    let mut parts = parts.into_iter();
    let Some(mut all) = parts.next() else {
        return Err(crate::Error::internal("no worker").into());
    };
    let grouped = !plan.keys.is_empty();
    for part in parts {
        let numbers = match grouped {
            true => all.groups.merge(&part.groups)?,
            false => vec![0],
        };
        let groups = if grouped { all.groups.len() } else { 1 };
        let both = all.states.iter_mut().zip(&part.states);
        for ((states, other), call) in both.zip(&plan.calls) {
            states.resize(groups);
            states.merge(call, other, &numbers)?;
        }
    }
    for states in &all.states {
        states.check()?;
    }
    Ok(all)
}

impl Output {
    /// Puts the next group into the registers; false if there is none.
    pub fn next(&mut self, plan: &Group, frame: &mut Frame) -> Result<bool, Stop> {
        let Some(number) = self.order.get(self.next) else {
            return Ok(false);
        };
        let number = *number as usize;
        self.next += 1;
        if !self.plan.keys.is_empty() {
            let values = self.part.groups.values(number)?;
            let registers = plan.keys.iter().chain(&plan.decided);
            for ((_, register), value) in registers.zip(values) {
                frame.set(*register, value);
            }
        }
        let calls = self.plan.calls.iter().zip(&self.part.states);
        for ((call, states), aggregate) in calls.zip(&plan.aggregates) {
            frame.set(aggregate.into, states.result(call, number)?);
        }
        Ok(true)
    }

    /// Threads that read the table.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// What the threads beside the session's own took.
    pub fn of_workers(&self) -> Took {
        Took {
            gets: self.counted.gets,
            reads: self.counted.reads,
            ..Took::default()
        }
    }
}
