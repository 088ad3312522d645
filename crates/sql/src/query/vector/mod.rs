//! Vectorized aggregation: groups and aggregates of tables that are read as a whole, and of joins
//! of such, over batches of columns instead of rows.
//!
//! `decode` makes columns (`batch`) of stored rows, `compile`, `expr` and `condition` are
//! expressions over them. `source` says of which plans rows have this form, and `program` what is
//! computed and whether it is. A `pipeline` is a scan with what its rows go through: conditions,
//! hash joins (`join`) and conditions on subqueries (`semi`), whose build sides `tables` reads
//! before. `scan` has the workers, `groups` what they collect: by the hash table of `keys`, and of
//! each group what is in `state`. This file is the operator. It stands in the place of [`GroupRun`]
//! where a plan's groups are over a table scan, perhaps with conditions, computed columns and hash
//! joins between them. Whether it is used is decided when it is opened, by the size that the table
//! has by then and the parameter `vectorized`.
//!
//! **Invariants.**
//! - The answer is that of the row operators, and groups come in the same order. Where the row
//!   operators would give an error, or something has no form here (a numeric of too many digits),
//!   or the groups have no room in `work_mem`, it begins again with the row operators, by the same
//!   snapshot ([`Stop`]). Nothing has been given by then.
//! - Only the last digits of sums and averages of floats may be others, as soon as several threads
//!   share the work: each adds up its part of the table. The same number of threads gives the same
//!   digits.
//! - What a worker reads, it reads by a snapshot that is registered for it.

mod batch;
mod compile;
mod condition;
mod decode;
mod expr;
mod groups;
mod join;
mod keys;
mod pipeline;
mod program;
mod scan;
mod semi;
mod source;
mod state;
mod tables;

use std::sync::Arc;

use super::aggregate::GroupRun;
use super::plan::Group;
use super::run::{Frame, Operator};
use crate::error::{Error, Result};
use crate::exec::profile::{StepKey, Took, Vectors};
use crate::session::Core;

use groups::Output;
pub use program::is_vectorized;
use program::{Choice, Program, choose};

/// Why there is no answer over batches.
#[derive(Debug)]
pub enum Stop {
    /// The row operators have to answer.
    Refused(&'static str),
    /// The groups have no room in memory.
    Full,
    /// Another thread has stopped, which says why.
    Told,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

impl Stop {
    /// Why the row operators have to answer.
    fn why(&self) -> Option<&'static str> {
        match self {
            Stop::Refused(why) => Some(why),
            Stop::Full => Some("more groups than work_mem has room for"),
            Stop::Told | Stop::Failed(_) => None,
        }
    }
}

/// How a plan's groups would be computed now.
pub fn vectors(plan: &Arc<Group>, core: &mut Core) -> Result<Vectors> {
    Ok(match choose(plan, core, &[])? {
        Choice::Vectors(program) => Vectors::Threads(program.pipeline.threads),
        Choice::Rows(why) => why.map_or(Vectors::No, Vectors::Refused),
    })
}

/// The operator of a plan's groups: over batches, if it is found to be possible when it is opened.
pub struct VectorRun {
    plan: Arc<Group>,
    measured: bool,
    state: State,
}

enum State {
    Closed,
    Ready(Box<Program>),
    Given(Box<Output>),
    /// By the row operators.
    Rows(Box<GroupRun>),
}

impl VectorRun {
    pub fn new(plan: &Arc<Group>, measured: bool) -> VectorRun {
        VectorRun {
            plan: plan.clone(),
            measured,
            state: State::Closed,
        }
    }

    fn open_rows(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        let mut rows = match std::mem::replace(&mut self.state, State::Closed) {
            // It keeps what its input has kept for the next opening.
            State::Rows(rows) => rows,
            _ => Box::new(GroupRun::new(&self.plan, self.measured)),
        };
        let opened = rows.open(core, frame);
        self.state = State::Rows(rows);
        opened
    }
}

impl Operator for VectorRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        match choose(&self.plan, core, &frame.registers)? {
            Choice::Vectors(program) => {
                self.state = State::Ready(program);
                Ok(())
            }
            Choice::Rows(why) => {
                let vectors = why.map_or(Vectors::No, Vectors::Refused);
                core.vectorized(StepKey::of(&*self.plan), vectors, Took::default());
                self.open_rows(core, frame)
            }
        }
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        if let State::Ready(_) = &self.state
            && let State::Ready(program) = std::mem::replace(&mut self.state, State::Closed)
        {
            let key = StepKey::of(&*self.plan);
            match groups::compute(*program, core, frame, self.measured) {
                Ok(output) => {
                    let threads = Vectors::Threads(output.threads());
                    core.vectorized(key, threads, output.of_workers());
                    self.state = State::Given(Box::new(output));
                }
                Err(Stop::Failed(e)) => return Err(e),
                Err(stop) => {
                    let vectors = stop.why().map_or(Vectors::No, Vectors::Refused);
                    core.vectorized(key, vectors, Took::default());
                    self.open_rows(core, frame)?;
                }
            }
        }
        match &mut self.state {
            State::Given(output) => match output.next(&self.plan, frame) {
                Ok(more) => Ok(more),
                Err(Stop::Failed(e)) => Err(e),
                // Whatever could stop has been looked at before the first group was given.
                Err(stop) => Err(Error::internal(format!("groups given in part: {stop:?}"))),
            },
            State::Rows(rows) => rows.next(core, frame),
            State::Closed | State::Ready(_) => Err(Error::internal("groups that were not opened")),
        }
    }
}
