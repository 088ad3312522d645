//! The tables of a pipeline's joins, which are made before its rows are read.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::Stop;
use super::batch::Batch;
use super::expr::Value;
use super::join::{Build, Collected, Join, Kept, Table};
use super::pipeline::Pipeline;
use super::scan::{Collect, Work, run};
use crate::query::run::Frame;
use crate::session::Core;

/// What a build side's rows become.
struct Plan {
    keys: Vec<Value>,
    values: Vec<Value>,
    kept: Vec<Kept>,
    /// Rows without a partner are wanted too.
    keep_all: bool,
    /// Of each key one row is enough.
    one_each: bool,
}

/// Rows of a build side that one worker collects: those of each batch apart, with the position of
/// the first.
struct Part {
    parts: Vec<(u64, Collected)>,
    memory: usize,
}

impl Collect for Part {
    type Plan = Arc<Plan>;

    fn new(_: &Arc<Plan>) -> Part {
        Part {
            parts: Vec::new(),
            memory: 0,
        }
    }

    fn add(&mut self, plan: &Arc<Plan>, batch: &mut Batch, first: u64) -> Result<(), Stop> {
        // Rows that lie one behind the other in the table are kept together.
        match self.parts.last() {
            Some((begin, _)) if begin >> 32 == first >> 32 => {}
            _ => self.parts.push((first, Collected::new(&plan.kept))),
        }
        if let Some((_, collected)) = self.parts.last_mut() {
            self.memory -= collected.memory();
            let flags = (plan.keep_all, plan.one_each);
            collected.add(&plan.keys, &plan.values, flags, batch)?;
            self.memory += collected.memory();
        }
        Ok(())
    }

    fn memory(&self) -> usize {
        self.memory
    }
}

/// Reads the build sides of all joins.
pub fn make(
    pipeline: &mut Pipeline,
    memory: usize,
    core: &mut Core,
    frame: &mut Frame,
    measured: bool,
) -> Result<(), Stop> {
    // Rows of build sides without a partner come even if nothing else does.
    let keeps = pipeline.joins().any(|join| join.matched.is_some());
    make_semis(pipeline, memory, core, measured)?;
    for join in pipeline.joins_mut() {
        make_table(join, memory, core, frame, measured)?;
        if let Some(matched) = &mut join.matched {
            matched.resize_with(join.table.rows(), AtomicBool::default);
        }
        if join.is_barren() && !keeps {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads the build sides of subqueries, each in the subquery's own registers.
fn make_semis(
    pipeline: &mut Pipeline,
    memory: usize,
    core: &mut Core,
    measured: bool,
) -> Result<(), Stop> {
    for semi in pipeline.semis_mut() {
        core.with_subquery(semi.subquery, |core, _, frame| {
            make_table(&mut semi.join, memory, core, frame, measured)
        })?;
    }
    Ok(())
}

/// Reads the build side of a join.
fn make_table(
    join: &mut Join,
    memory: usize,
    core: &mut Core,
    frame: &mut Frame,
    measured: bool,
) -> Result<(), Stop> {
    let width = join.keys.len();
    let collected = match std::mem::replace(&mut join.build, Build::Read) {
        Build::Read => return Ok(()),
        Build::Rows(side) => join.rows(&side, memory, core, frame, measured)?,
        Build::Batches(mut build, keys, values) => {
            make(&mut build, memory, core, frame, measured)?;
            let kept = join.kept.iter();
            let values = kept.map(|k| values.get(k.number).cloned().flatten());
            let Some(values) = values.collect::<Option<Vec<Value>>>() else {
                return Err(crate::Error::internal("a column that nobody computes").into());
            };
            let plan = Arc::new(Plan {
                keys,
                values,
                kept: join.kept.clone(),
                keep_all: join.keeps_all(),
                one_each: join.one_each,
            });
            collect(*build, plan, memory, core, frame)?
        }
    };
    join.table = Table::of(collected, width, memory)?;
    Ok(())
}

fn collect(
    pipeline: Pipeline,
    plan: Arc<Plan>,
    memory: usize,
    core: &mut Core,
    frame: &mut Frame,
) -> Result<Collected, Stop> {
    let work = Work {
        pipeline,
        plan: plan.clone(),
        memory,
        stretches: false,
    };
    let snapshot = frame.snapshot;
    let found = run::<Part>(work, core, &snapshot)?;
    let mut parts: Vec<(u64, Collected)> = found.parts.into_iter().flat_map(|p| p.parts).collect();
    parts.sort_unstable_by_key(|(first, _)| *first);
    let mut all = Collected::new(&plan.kept);
    for (_, part) in parts {
        all.append(part)?;
    }
    Ok(all)
}
