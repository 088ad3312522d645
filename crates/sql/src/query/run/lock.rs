//! FOR UPDATE and its kin. Rows are locked in their order, one by one, before LIMIT counts them.
//!
//! A row that has another committed version than the query saw makes the statement begin again
//! with a new snapshot, as Oracle does it ([`Changed`]): joins and subqueries are then as
//! consistent with the row as with each other. What is locked by then stays so.

use std::sync::Arc;

use block::RowId;
use block::value::Datum;
use engine::LockOutcome;

use super::{Frame, Operator, operator};
use crate::error::{Error, Result};
use crate::exec::lock::{lock, wait_of};
use crate::query::plan::Lock;
use crate::session::Core;

/// The error, never seen by a client, that says that a row has changed since the snapshot.
pub fn changed() -> Error {
    Error::new(CHANGED, "a row to be locked has changed")
}

/// Whether an error is [`changed`].
pub fn is_changed(e: &Error) -> bool {
    e.sqlstate() == CHANGED
}

/// Not a SQLSTATE that a client can meet.
const CHANGED: &str = "BR001";

pub struct LockRun {
    plan: Arc<Lock>,
    input: Box<dyn Operator>,
    newest: Vec<u8>,
}

impl LockRun {
    pub fn new(plan: &Arc<Lock>, measured: bool) -> LockRun {
        LockRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            newest: Vec::new(),
        }
    }

    /// Locks the rows of which the current one is made; false: it is gone, or to be skipped.
    fn lock(&mut self, core: &mut Core, frame: &Frame) -> Result<bool> {
        for locked in &self.plan.tables {
            let rid = match &frame.registers[locked.row_id] {
                Datum::Int8(id) => RowId(*id as u64),
                // The nullable side of an outer join has no row here.
                Datum::Null => continue,
                other => return Err(Error::internal(format!("{other:?} as a row's id"))),
            };
            let how = (locked.wanted.lock, wait_of(locked.wanted.how));
            let snapshot = &frame.snapshot;
            match lock(core, &locked.table, rid, snapshot, how, &mut self.newest)? {
                LockOutcome::Locked => {}
                LockOutcome::Changed => return Err(changed()),
                LockOutcome::Gone | LockOutcome::Skipped => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Operator for LockRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.input.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        while self.input.next(core, frame)? {
            if self.lock(core, frame)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
