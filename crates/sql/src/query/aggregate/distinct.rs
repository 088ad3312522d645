//! SELECT DISTINCT and DISTINCT ON.

use std::collections::HashSet;
use std::sync::Arc;

use block::value::{Datum, DatumRef};
use wait::longop::{Counted, Target};

use super::ordered::{Records, SET_ENTRY};
use crate::error::Result;
use crate::exec::aggregate::encode;
use crate::exec::sort::{read_row, write_row};
use crate::query::plan::Distinct;
use crate::query::run::{Frame, Operator, operator};
use crate::session::Core;

/// So many rows pass between two looks at a cancel request.
const CANCEL_EVERY: u64 = 1024;

/// Gives the first row of each key.
///
/// Without an order rows pass as they come, while their keys are kept in memory. Once that is full,
/// rows with further keys are sorted by key, and come last.
pub struct DistinctRun {
    plan: Arc<Distinct>,
    input: Box<dyn Operator>,
    seen: HashSet<Box<[u8]>>,
    seen_bytes: usize,
    rows: u64,
    /// How many rows have come, for those who ask how far it is.
    taken: Counted,
    rest: Rest,
    key: Vec<u8>,
    /// Of sorted rows: the key of the last that was given.
    last: Option<Vec<u8>>,
}

/// Rows whose keys found no room.
enum Rest {
    None,
    Coming(engine::Sorter),
    Sorted(Records),
}

impl DistinctRun {
    pub fn new(plan: &Arc<Distinct>, measured: bool) -> DistinctRun {
        DistinctRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            seen: HashSet::new(),
            seen_bytes: 0,
            rows: 0,
            taken: Counted::new("Distinct", Target::Nothing, 0, "Rows"),
            rest: Rest::None,
            key: Vec::new(),
            last: None,
        }
    }

    fn set_key(&mut self, core: &mut Core, frame: &Frame) -> Result<()> {
        self.key.clear();
        for e in &self.plan.keys {
            encode(e.eval(&frame.env(), core)?.get(), &mut self.key);
        }
        Ok(())
    }

    /// Whether the row is the first of its key. It may be put aside instead.
    fn is_first(&mut self, core: &mut Core, frame: &Frame) -> Result<bool> {
        if self.plan.sorted {
            return Ok(match &mut self.last {
                Some(last) if *last == self.key => false,
                Some(last) => {
                    std::mem::swap(last, &mut self.key);
                    true
                }
                none => {
                    *none = Some(self.key.clone());
                    true
                }
            });
        }
        if self.seen.contains(self.key.as_slice()) {
            return Ok(false);
        }
        let memory = core.settings.hot().work_mem_bytes;
        if self.seen_bytes < memory / 4 * 3 && matches!(self.rest, Rest::None) {
            self.seen_bytes += self.key.len() + SET_ENTRY;
            self.seen.insert(self.key.as_slice().into());
            return Ok(true);
        }
        if matches!(self.rest, Rest::None) {
            self.rest = Rest::Coming(core.engine.sorter(memory / 4));
        }
        if let Rest::Coming(sorter) = &mut self.rest {
            let key = &self.key;
            let row: Vec<DatumRef<'_>> = self
                .plan
                .registers
                .iter()
                .map(|r| frame.registers[*r].borrow())
                .collect();
            sorter.push(|out| out.extend_from_slice(key), |out| write_row(&row, out))?;
        }
        Ok(false)
    }

    /// The first row of the next of the keys that were put aside.
    fn next_of_rest(&mut self) -> Result<Option<Vec<Datum>>> {
        if let Rest::Coming(_) = &self.rest
            && let Rest::Coming(sorter) = std::mem::replace(&mut self.rest, Rest::None)
        {
            self.seen = HashSet::new();
            let mut records = Records::new(sorter.finish()?);
            records.advance()?;
            self.rest = Rest::Sorted(records);
        }
        let Rest::Sorted(records) = &mut self.rest else {
            return Ok(None);
        };
        if !records.is_there() {
            return Ok(None);
        }
        let row = read_row(records.rest())?;
        self.key.clear();
        self.key.extend_from_slice(records.key());
        while records.is_there() && records.key() == self.key {
            records.advance()?;
        }
        Ok(Some(row))
    }
}

impl Operator for DistinctRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.seen.clear();
        self.taken.end();
        self.seen_bytes = 0;
        self.rest = Rest::None;
        self.last = None;
        self.input.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        // The input is not asked again behind its end.
        while !matches!(self.rest, Rest::Sorted(_)) && self.input.next(core, frame)? {
            self.rows += 1;
            self.taken.step();
            if self.rows.is_multiple_of(CANCEL_EVERY) {
                wait::check_cancel().map_err(|_| crate::session::cancelled())?;
            }
            self.set_key(core, frame)?;
            if self.is_first(core, frame)? {
                return Ok(true);
            }
        }
        match self.next_of_rest()? {
            Some(row) => {
                frame.restore(&self.plan.registers, row);
                Ok(true)
            }
            None => Ok(false),
        }
    }
}
