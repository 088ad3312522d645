//! The outer rows of a nested loop that are taken ahead, so that the blocks of their partners can
//! be asked of other instances at once.
//!
//! **Invariants.**
//! - It is done only where it changes nothing but time: the outer side is tables whose conditions
//!   are not volatile, and the inner side is one table by a whole unique key.
//! - The first row is taken alone, as it may be all that is wanted. Then more are taken each time.

use std::collections::VecDeque;

use block::value::Datum;
use engine::AHEAD_BLOCKS;

use super::{Frame, Operator};
use crate::error::Result;
use crate::exec::source::{TableCursor, equal_key};
use crate::expr::Expr;
use crate::plan::{Path, TableAccess};
use crate::query::plan::{LoopJoin, Node, Register};
use crate::session::Core;

pub struct OuterAhead {
    /// What the outer side sets.
    registers: Vec<Register>,
    rows: VecDeque<Vec<Datum>>,
    /// The number of rows that were taken the last time.
    last: usize,
    at_end: bool,
}

impl OuterAhead {
    /// For a loop whose outer rows can be taken ahead.
    pub fn new(plan: &LoopJoin) -> Option<OuterAhead> {
        let Node::Table(inner) = &plan.inner else {
            return None;
        };
        let mut registers = Vec::new();
        let can = inner.listed.is_none()
            && unique_key(&inner.access).is_some()
            && steady_registers(&plan.outer, &mut registers);
        can.then(|| OuterAhead {
            registers,
            rows: VecDeque::new(),
            last: 0,
            at_end: false,
        })
    }

    pub fn begin(&mut self) {
        self.rows.clear();
        (self.last, self.at_end) = (0, false);
    }

    /// Whether no row is taken ahead, nor the last one taken.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && !self.at_end
    }

    /// Puts the next outer row into the registers. `inner` is where the blocks of the partners go.
    pub fn next(
        &mut self,
        outer: &mut dyn Operator,
        (access, inner): (&TableAccess, &mut TableCursor),
        core: &mut Core,
        frame: &mut Frame,
    ) -> Result<bool> {
        if self.rows.is_empty() && !self.at_end {
            self.last = (self.last * 4).clamp(1, AHEAD_BLOCKS);
            while self.rows.len() < self.last {
                if !outer.next(core, frame)? {
                    self.at_end = true;
                    break;
                }
                self.rows.push_back(frame.take_copy(&self.registers));
            }
            self.ask(access, inner, core, frame)?;
        }
        let Some(row) = self.rows.pop_front() else {
            return Ok(false);
        };
        frame.restore(&self.registers, row);
        Ok(true)
    }

    fn ask(
        &self,
        access: &TableAccess,
        inner: &mut TableCursor,
        core: &mut Core,
        frame: &mut Frame,
    ) -> Result<()> {
        let Some((index, equal)) = unique_key(access) else {
            return Ok(());
        };
        let mut keys = Vec::with_capacity(self.rows.len());
        for row in self.rows.iter().skip(usize::from(self.rows.len() == 1)) {
            frame.restore(&self.registers, row.iter().cloned());
            keys.extend(equal_key(access, index, equal, core, &frame.env())?);
        }
        inner.ask_ahead_for(access, index, &keys, core, &frame.snapshot)
    }
}

/// The unique index and its whole key that a table is read by.
fn unique_key(access: &TableAccess) -> Option<(usize, &[Expr])> {
    match &access.path {
        Path::Index {
            index,
            equal,
            any_of,
            low: None,
            high: None,
            unique: true,
            ..
        } if any_of.is_empty() && !equal.iter().any(Expr::is_volatile) => Some((*index, equal)),
        _ => None,
    }
}

/// Collects what the rows of tables and of loops over tables set. False for other nodes, and for
/// volatile conditions.
fn steady_registers(node: &Node, registers: &mut Vec<Register>) -> bool {
    match node {
        Node::Table(table) => {
            registers.extend(table.columns.iter().map(|(_, register)| *register));
            registers.extend(table.row_id);
            registers.extend(table.system.iter().map(|(_, register)| *register));
            !table.access.filter.as_ref().is_some_and(Expr::is_volatile)
        }
        Node::Loop(join) => {
            !join.on.as_ref().is_some_and(Expr::is_volatile)
                && steady_registers(&join.outer, registers)
                && steady_registers(&join.inner, registers)
        }
        _ => false,
    }
}
