//! Keeps the rows of an input that is the same each time, and gives them again.
//!
//! Rows are taken from the input as they are asked for, for the reader may stop early.

use std::sync::Arc;

use block::value::Datum;

use super::shared::is_same;
use super::store::{Cursor, RowStore};
use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::query::plan::Keep;
use crate::session::Core;

pub struct KeepRun {
    plan: Arc<Keep>,
    input: Box<dyn Operator>,
    /// None before the first opening.
    rows: Option<RowStore>,
    cursor: Cursor,
    /// What the registers were that the rows depend on.
    made_for: Vec<Datum>,
    /// The input has given all.
    complete: bool,
}

impl KeepRun {
    pub fn new(plan: &Arc<Keep>, measured: bool) -> KeepRun {
        KeepRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            rows: None,
            cursor: Cursor::default(),
            made_for: Vec::new(),
            complete: false,
        }
    }
}

impl Operator for KeepRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.cursor.rewind();
        let depends = &self.plan.depends;
        let now = depends.iter().map(|r| &frame.registers[*r]);
        if self.rows.is_some() && self.made_for.iter().zip(now).all(|(a, b)| is_same(a, b)) {
            return Ok(());
        }
        self.made_for = frame.take_copy(&self.plan.depends);
        self.input.open(core, frame)?;
        self.rows = Some(RowStore::new(core));
        self.cursor = Cursor::default();
        self.complete = false;
        Ok(())
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let Some(rows) = &mut self.rows else {
            return Ok(false);
        };
        if rows.next_into(&mut self.cursor, frame, &self.plan.registers)? {
            return Ok(true);
        }
        if self.complete {
            return Ok(false);
        }
        // The registers hold the input's last row, from where it goes on.
        if !self.input.next(core, frame)? {
            self.complete = true;
            return Ok(false);
        }
        rows.push_registers(frame, &self.plan.registers)?;
        rows.to_end(&mut self.cursor);
        Ok(true)
    }
}
