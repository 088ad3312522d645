//! What of a plan's groups is computed over batches, and whether it is.

use std::sync::Arc;

use block::value::Datum;
use engine::TableDef;

use super::Stop;
use super::batch::{Batch, Decoder, Type};
use super::compile::Compiler;
use super::condition::{Condition, TRUE};
use super::expr::Value;
use super::state::Call;
use crate::error::Error;
use crate::exec::profile::StepKey;
use crate::expr::Expr;
use crate::plan::Path;
use crate::query::aggregate::{Aggregate, AggregateCall};
use crate::query::plan::{Group, Node, Register, TableScan};
use crate::session::{Core, Vectorized};

/// Blocks from which on batches are faster than rows, what it takes to begin included.
const LARGE_BLOCKS: u64 = 32;
/// Blocks of each thread at least: what it takes to start one is made up for.
const THREAD_BLOCKS: u64 = 256;

/// The aggregation of one opening.
pub struct Program {
    pub decoder: Decoder,
    /// All must hold, in this order.
    pub filter: Vec<Condition>,
    pub keys: Vec<Value>,
    pub calls: Vec<Call>,
    pub threads: usize,
    /// Bytes that the groups may take.
    pub memory: usize,
    pub table: Arc<TableDef>,
    /// By which EXPLAIN knows the scan.
    pub scanned: StepKey,
}

pub enum Choice {
    Vectors(Box<Program>),
    /// Row by row; and why, if it was tried.
    Rows(Option<&'static str>),
}

/// What a plan's groups are over, and what the registers are over the table's columns.
struct Source<'p> {
    scan: &'p TableScan,
    /// Registers that are computed, with what they are computed of.
    computed: Vec<(Register, Expr)>,
    /// In the order in which they are checked.
    conditions: Vec<Expr>,
}

impl Source<'_> {
    /// An expression over the registers as one over the table's columns.
    fn over_columns(&self, e: &Expr) -> Expr {
        let mut e = e.clone();
        e.replace(&mut |e| match e {
            Expr::Param(register) => {
                let read = |(_, r): &&(usize, Register)| r == register;
                let column = self.scan.columns.iter().find(read);
                let computed = || self.computed.iter().find(|(r, _)| r == register);
                match column {
                    Some((column, _)) => Some(Expr::Column(*column)),
                    None => computed().map(|(_, e)| e.clone()),
                }
            }
            _ => None,
        });
        e
    }
}

/// The scan that groups are over, if they are of a form that batches have.
fn source(group: &Group) -> Option<Source<'_>> {
    let all: Vec<usize> = (0..group.keys.len()).collect();
    let plain = |a: &AggregateCall| !a.distinct && a.order.is_empty() && a.args.len() <= 1;
    if group.sets != [all]
        || !group.grouping.is_empty()
        || !group.decided.is_empty()
        || !group.aggregates.iter().all(plain)
    {
        return None;
    }
    input(&group.input)
}

fn input(node: &Node) -> Option<Source<'_>> {
    match node {
        Node::Table(scan) => {
            let whole = matches!(scan.access.path, Path::Full);
            (whole && scan.listed.is_none() && scan.row_id.is_none()).then(|| Source {
                scan,
                computed: Vec::new(),
                conditions: scan.access.filter.iter().cloned().collect(),
            })
        }
        Node::Filter(filter) => {
            let mut source = input(&filter.input)?;
            let condition = source.over_columns(&filter.condition);
            source.conditions.push(condition);
            Some(source)
        }
        Node::Compute(compute) if compute.series.is_empty() => {
            let mut source = input(&compute.input)?;
            for (register, e) in &compute.columns {
                let e = source.over_columns(e);
                source.computed.push((*register, e));
            }
            Some(source)
        }
        _ => None,
    }
}

/// Whether a plan's groups may be computed over batches, as far as its form says.
pub fn is_vectorized(group: &Group) -> bool {
    source(group).is_some()
}

/// Decides how groups are computed, with the registers as they are.
pub fn choose(plan: &Arc<Group>, core: &mut Core, registers: &[Datum]) -> Result<Choice, Error> {
    let vectorized = core.settings.hot().vectorized;
    let Some(source) = source(plan) else {
        return Ok(Choice::Rows(None));
    };
    if vectorized == Vectorized::Off {
        return Ok(Choice::Rows(None));
    }
    let blocks = core
        .engine
        .scan(source.scan.access.table.engine())
        .blocks()?;
    if vectorized == Vectorized::Auto && blocks < LARGE_BLOCKS {
        return Ok(Choice::Rows(None));
    }
    let threads = threads(core, blocks);
    match compile(plan, &source, core, registers, threads) {
        Ok(program) => Ok(Choice::Vectors(Box::new(program))),
        Err(Stop::Failed(e)) => Err(e),
        Err(stop) => Ok(Choice::Rows(stop.why())),
    }
}

/// The session's own thread, and as many workers as it may have.
fn threads(core: &Core, blocks: u64) -> usize {
    let workers: usize = core
        .settings
        .get("max_parallel_workers_per_gather")
        .parse()
        .unwrap_or(0);
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let parts = usize::try_from(blocks / THREAD_BLOCKS).unwrap_or(usize::MAX);
    (workers + 1).min(processors).min(parts).max(1)
}

fn compile(
    plan: &Arc<Group>,
    source: &Source<'_>,
    core: &mut Core,
    registers: &[Datum],
    threads: usize,
) -> Result<Program, Stop> {
    let table = &source.scan.access.table;
    let memory = core.settings.hot().work_mem_bytes;
    let mut compiler = Compiler {
        core,
        table,
        registers,
        columns: Vec::new(),
    };
    let mut filter = Vec::new();
    for condition in &source.conditions {
        compiler.conjuncts(condition, &mut filter)?;
    }
    let mut keys = Vec::new();
    for (key, _) in &plan.keys {
        keys.push(compiler.stored(&source.over_columns(key))?);
    }
    if keys.len() > u64::BITS as usize {
        return Err(Stop::Refused("many keys"));
    }
    let mut calls = Vec::new();
    for call in &plan.aggregates {
        let argument = match call.args.first() {
            Some(e) if call.function == Aggregate::Count => {
                Some(compiler.stored(&source.over_columns(e))?)
            }
            Some(e) => Some(compiler.value(&source.over_columns(e))?),
            None => None,
        };
        let filter = match &call.filter {
            Some(e) => Some(compiler.condition(&source.over_columns(e))?),
            None => None,
        };
        calls.push(Call::new(call.function, argument, filter)?);
    }
    Ok(Program {
        decoder: Decoder::new(table.engine(), &compiler.columns),
        filter,
        keys,
        calls,
        threads,
        memory,
        table: table.engine().clone(),
        scanned: StepKey::of(&source.scan.access),
    })
}

impl Program {
    pub fn key_types(&self) -> Vec<Type> {
        self.keys.iter().map(|k| k.ty).collect()
    }

    /// Whether what each thread reads decides on last digits.
    pub fn is_ordered(&self) -> bool {
        self.calls.iter().any(Call::is_ordered)
    }

    /// Leaves the rows of a batch for which the filter holds.
    pub fn filter(&self, batch: &mut Batch) -> Result<(), Stop> {
        let mut conditions = self.filter.as_slice();
        while let Some((first, rest)) = conditions.split_first() {
            let mut truth = first.eval(batch)?;
            conditions = rest;
            // What cannot stop is looked at together.
            while let Some((next, rest)) = conditions.split_first()
                && !next.can_stop()
            {
                let more = next.eval(batch)?;
                truth.iter_mut().zip(more).for_each(|(t, m)| *t = m.min(*t));
                conditions = rest;
            }
            if truth.iter().any(|t| *t != TRUE) {
                let keep: Vec<bool> = truth.iter().map(|t| *t == TRUE).collect();
                batch.keep(&keep);
            }
        }
        Ok(())
    }
}
