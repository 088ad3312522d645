//! Running plans of the tree lane: operators that are pulled for rows.
//!
//! Each operator has a file of its own. It shares its plan and owns what changes while it runs. A
//! row is in the registers of its [`Frame`] from the call of [`Operator::next`] that gives it to
//! the next call.

mod basic;
mod hash_join;
mod json_series;
mod keep;
mod key_table;
mod keyed_rows;
mod limit;
pub(crate) mod lock;
mod loop_ahead;
mod loop_join;
mod merge_join;
mod part;
mod scan;
mod seen_rows;
mod series;
mod set_operation;
mod shared;
mod sort;
mod statement;
pub mod store;
mod subquery;
mod tally;
#[cfg(test)]
mod tests;
mod zip;

use block::value::Datum;
use engine::Snapshot;

use super::plan::{Node, Register};
use crate::error::Result;
use crate::exec::profile::StepKey;
use crate::expr::{Env, Expr};
use crate::session::Core;

pub use statement::{Run, Running, locked};

/// A register file in use.
pub struct Frame {
    /// The statement's parameters, then what the operators set.
    pub registers: Vec<Datum>,
    pub snapshot: Snapshot,
}

impl Frame {
    /// A file of `width` registers that begins with the parameters.
    pub fn new(params: &[Datum], width: usize, snapshot: Snapshot) -> Frame {
        let mut registers = Vec::with_capacity(width.max(params.len()));
        registers.extend_from_slice(params);
        registers.resize(width.max(params.len()), Datum::Null);
        Frame {
            registers,
            snapshot,
        }
    }

    pub fn env(&self) -> Env<'_> {
        Env {
            row: &[],
            params: &self.registers,
        }
    }

    /// The value of an expression over the registers.
    pub fn eval(&self, e: &Expr, core: &mut Core) -> Result<Datum> {
        Ok(e.eval(&self.env(), core)?.into_datum())
    }

    /// Whether a condition holds.
    pub fn holds(&self, e: &Expr, core: &mut Core) -> Result<bool> {
        e.holds(&self.env(), core)
    }

    pub fn set(&mut self, register: Register, value: Datum) {
        self.registers[register] = value;
    }

    /// Puts values back into the registers they were taken from.
    pub fn restore(&mut self, registers: &[Register], values: impl IntoIterator<Item = Datum>) {
        for (register, value) in registers.iter().zip(values) {
            self.registers[*register] = value;
        }
    }

    /// Copies of registers.
    pub fn take_copy(&self, registers: &[Register]) -> Vec<Datum> {
        registers
            .iter()
            .map(|r| self.registers[*r].clone())
            .collect()
    }

    pub fn set_null(&mut self, registers: &[Register]) {
        for register in registers {
            self.registers[*register] = Datum::Null;
        }
    }
}

/// A step of a plan under way.
pub trait Operator {
    /// Begins, or begins again, with the registers as they are now.
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()>;

    /// Puts the next row into the registers; false if there is none.
    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool>;

    /// The table whose rows these are, if it is one.
    fn as_table(&mut self) -> Option<&mut scan::TableRun> {
        None
    }
}

/// The operator for a node of a plan. With `measured` it notes for EXPLAIN ANALYZE what it took.
pub fn operator(node: &Node, measured: bool) -> Box<dyn Operator> {
    let made: Box<dyn Operator> = match node {
        Node::One => Box::new(basic::One::default()),
        Node::Nothing => Box::new(basic::Nothing),
        Node::Values(plan) => Box::new(basic::ValuesRun::new(plan)),
        Node::Series(plan) => Box::new(series::SeriesScan::new(plan)),
        Node::Table(plan) => Box::new(scan::TableRun::new(plan)),
        Node::View(plan) => Box::new(scan::ViewRun::new(plan)),
        Node::Shared(plan) => Box::new(shared::SharedScanRun::new(plan)),
        Node::With(plan) => Box::new(shared::WithRun::new(plan, measured)),
        Node::Filter(plan) => Box::new(basic::FilterRun::new(plan, measured)),
        Node::Compute(plan) => Box::new(basic::ComputeRun::new(plan, measured)),
        Node::Loop(plan) => Box::new(loop_join::LoopRun::new(plan, measured)),
        Node::Hash(plan) => Box::new(hash_join::HashRun::new(plan, measured)),
        Node::Keep(plan) => Box::new(keep::KeepRun::new(plan, measured)),
        Node::Group(plan) if super::vector::is_vectorized(plan) => {
            Box::new(super::vector::VectorRun::new(plan, measured))
        }
        Node::Group(plan) => Box::new(super::aggregate::GroupRun::new(plan, measured)),
        Node::Distinct(plan) => Box::new(super::aggregate::DistinctRun::new(plan, measured)),
        Node::Sort(plan) => Box::new(sort::SortRun::new(plan, measured)),
        Node::Window(plan) => Box::new(super::window::WindowRun::new(plan, measured)),
        Node::SetOperation(plan) => Box::new(set_operation::SetRun::new(plan, measured)),
        Node::Zip(plan) => Box::new(zip::ZipRun::new(plan, measured)),
        Node::Append(plan) => Box::new(basic::AppendRun::new(plan, measured)),
        Node::Limit(plan) => Box::new(limit::LimitRun::new(plan, measured)),
        Node::Lock(plan) => Box::new(lock::LockRun::new(plan, measured)),
    };
    let made: Box<dyn Operator> = match node {
        // A WITH around a step is no step of its own.
        Node::With(_) => made,
        _ => Box::new(Entered {
            key: node.key(),
            operator: made,
        }),
    };
    // Table scans measure themselves, with what their filter refuses.
    match measured && !matches!(node, Node::Table(_)) {
        true => Box::new(Measured {
            key: node.key(),
            operator: made,
        }),
        false => made,
    }
}

/// Says that the session is in an operator's step, while it is.
struct Entered {
    key: StepKey,
    operator: Box<dyn Operator>,
}

impl Operator for Entered {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        let around = core.step.get();
        core.enter_step(self.key);
        let opened = self.operator.open(core, frame);
        core.step.set(around);
        opened
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let around = core.step.get();
        core.enter_step(self.key);
        let next = self.operator.next(core, frame);
        core.step.set(around);
        next
    }

    fn as_table(&mut self) -> Option<&mut scan::TableRun> {
        self.operator.as_table()
    }
}

/// Notes what an operator took.
struct Measured {
    key: StepKey,
    operator: Box<dyn Operator>,
}

impl Operator for Measured {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        let mark = core.mark();
        let opened = self.operator.open(core, frame);
        core.measured(self.key, mark, |step| step.loops += 1);
        opened
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let mark = core.mark();
        let next = self.operator.next(core, frame);
        core.measured(self.key, mark, |step| {
            step.rows += u64::from(matches!(next, Ok(true)));
        });
        next
    }
}
