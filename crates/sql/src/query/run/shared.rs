//! WITH queries that are computed once and read as often as wanted, the recursive ones among them.
//!
//! A query's rows are computed as they are asked for, and kept. Its state stays in its slot in
//! [`super::Running`] while it runs, only its operators are taken out: the recursive part reads what
//! the last round gave from there.
//!
//! A [`With`] that is opened again keeps what its queries have come to if nothing that they depend on
//! has changed: the registers that they take from around, and the WITH queries around. These it
//! knows by the *epoch* in which it runs ([`super::Running::epoch`]): a [`With`] that begins anew
//! opens one for its input, and so does a WITH query for its operators, and for each round.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::hash_join::check_cancel;
use super::seen_rows::{Seen, SeenRows};
use super::store::{Cursor, RowStore, Values, assign, damaged};
use super::tally::read_row;
use super::{Frame, Operator, operator};
use crate::error::{Error, Result};
use crate::exec::with;
use crate::query::plan::{Register, Shared, SharedScan, With};
use crate::session::Core;

/// A WITH query under way.
pub struct SharedRun {
    plan: Arc<Shared>,
    /// Taken out while it runs.
    steps: Option<Box<Steps>>,
    rows: Option<Rows>,
    phase: Phase,
    /// What its operators run in.
    epoch: u64,
}

struct Steps {
    first: Box<dyn Operator>,
    recursive: Option<Box<dyn Operator>>,
    frame: Frame,
    key: Vec<u8>,
    row: Vec<u8>,
    unchecked: u32,
}

/// The rows of a query so far.
struct Rows {
    all: RowStore,
    /// Of a recursive query: what the last round gave, and what this one gives.
    last: RowStore,
    coming: RowStore,
    /// Of a recursive UNION without ALL.
    seen: Option<SeenRows>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Reset,
    /// The query runs, or the part of it that is not recursive.
    First,
    /// A round of the recursive part runs.
    Round,
    End,
}

impl SharedRun {
    pub fn new(
        plan: &Arc<Shared>,
        params: &[Datum],
        snapshot: Snapshot,
        measured: bool,
    ) -> SharedRun {
        let recursive = plan.recursive.as_ref();
        SharedRun {
            plan: plan.clone(),
            steps: Some(Box::new(Steps {
                first: operator(&plan.root, measured),
                recursive: recursive.map(|r| operator(&r.root, measured)),
                frame: Frame::new(params, plan.width, snapshot),
                key: Vec::new(),
                row: Vec::new(),
                unchecked: 0,
            })),
            rows: None,
            phase: Phase::Reset,
            epoch: 0,
        }
    }

    /// The query of a number.
    fn slot(core: &mut Core, number: usize) -> Result<&mut SharedRun> {
        let slot = core.running.shared.get_mut(number);
        let run = slot.and_then(|slot| slot.as_deref_mut());
        run.ok_or_else(|| Error::internal(format!("WITH query {number} is not there to run")))
    }

    fn rows(&mut self) -> Result<&mut Rows> {
        let missing = || Error::internal("a WITH query is read before it is opened");
        self.rows.as_mut().ok_or_else(missing)
    }

    /// Forgets all rows, to begin anew with what is in the registers around.
    fn reset(&mut self, around: &Frame, inputs: &[(Register, Register)], epoch: u64) -> Result<()> {
        let frame = &mut self.steps.as_mut().ok_or_else(reads_itself)?.frame;
        frame.snapshot = around.snapshot;
        for (from, to) in inputs {
            frame.registers[*to].clone_from(&around.registers[*from]);
        }
        self.rows = None;
        self.phase = Phase::Reset;
        self.epoch = epoch;
        Ok(())
    }

    /// Whether it would begin with other registers than those that it began with.
    fn differs(&self, around: &Frame, inputs: &[(Register, Register)]) -> bool {
        let Some(steps) = &self.steps else {
            return true;
        };
        let registers = &steps.frame.registers;
        inputs
            .iter()
            .any(|(from, to)| !is_same(&registers[*to], &around.registers[*from]))
    }

    /// Computes one row more, or a round of them; false if there are no more.
    fn advance(core: &mut Core, number: usize) -> Result<bool> {
        let run = SharedRun::slot(core, number)?;
        if run.phase == Phase::End {
            return Ok(false);
        }
        let plan = run.plan.clone();
        let mut steps = run.steps.take().ok_or_else(reads_itself)?;
        let around = core.running.epoch;
        core.running.epoch = SharedRun::slot(core, number)?.epoch;
        let advanced = steps.advance(core, number, &plan);
        core.running.epoch = around;
        SharedRun::slot(core, number)?.steps = Some(steps);
        advanced
    }
}

/// Whether two values are the same to the last bit, unlike equal ones: 1.0 and 1.00 are equal.
pub(super) fn is_same(a: &Datum, b: &Datum) -> bool {
    match (a, b) {
        (Datum::Numeric(a), Datum::Numeric(b)) => a.as_bytes() == b.as_bytes(),
        (Datum::Float8(a), Datum::Float8(b)) => a.to_bits() == b.to_bits(),
        (Datum::Float4(a), Datum::Float4(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

fn reads_itself() -> Error {
    Error::internal("a WITH query reads itself")
}

impl Rows {
    fn new(plan: &Shared, core: &Core) -> Rows {
        let memory = core.settings.hot().work_mem_bytes;
        let (all, round) = match plan.recursive {
            Some(_) => (memory / 2, memory / 4),
            None => (memory, 0),
        };
        let distinct = plan.recursive.as_ref().is_some_and(|r| r.distinct);
        Rows {
            all: RowStore::with_memory(core, all),
            last: RowStore::with_memory(core, round),
            coming: RowStore::with_memory(core, round),
            seen: distinct.then(|| SeenRows::new(core)),
        }
    }

    fn give(&mut self, row: &[u8], is_recursive: bool) -> Result<()> {
        if is_recursive {
            self.coming.push_bytes(row)?;
        }
        self.all.push_bytes(row)
    }
}

impl Steps {
    fn advance(&mut self, core: &mut Core, number: usize, plan: &Shared) -> Result<bool> {
        loop {
            check_cancel(&mut self.unchecked)?;
            let phase = SharedRun::slot(core, number)?.phase;
            let next = match (phase, &mut self.recursive, &plan.recursive) {
                (Phase::Reset, ..) => {
                    self.first.open(core, &mut self.frame)?;
                    let rows = Rows::new(plan, core);
                    let run = SharedRun::slot(core, number)?;
                    (run.rows, run.phase) = (Some(rows), Phase::First);
                    continue;
                }
                (Phase::First, ..) => self
                    .first
                    .next(core, &mut self.frame)?
                    .then_some(&plan.output),
                (Phase::Round, Some(operator), Some(recursive)) => operator
                    .next(core, &mut self.frame)?
                    .then_some(&recursive.output),
                _ => return Ok(false),
            };
            let given = match next {
                Some(output) => {
                    let (key, row) = (&mut self.key, &mut self.row);
                    read_row(output, &[], core, &self.frame, key, row)?;
                    take_row(core, number, plan, key, row)?
                }
                None => self.end_round(core, number)?,
            };
            if given {
                return Ok(true);
            }
        }
    }

    /// The part or the round that ran is at its end: begins the next over what it gave, or ends the
    /// query. Whether this has brought rows.
    fn end_round(&mut self, core: &mut Core, number: usize) -> Result<bool> {
        let brought = with_rows(core, number, |core, rows| {
            let before = rows.all.count();
            if let Some(mut seen) = rows.seen.take() {
                seen.finish_round(core, |row| rows.give(row, true))?;
                rows.seen = Some(seen);
            }
            std::mem::swap(&mut rows.last, &mut rows.coming);
            rows.coming.clear();
            Ok(rows.all.count() > before)
        })?;
        let run = SharedRun::slot(core, number)?;
        let over = self.recursive.is_none() || run.rows()?.last.is_empty();
        match &mut self.recursive {
            Some(recursive) if !over => {
                run.phase = Phase::Round;
                let epoch = core.running.new_epoch();
                SharedRun::slot(core, number)?.epoch = epoch;
                core.running.epoch = epoch;
                recursive.open(core, &mut self.frame)?;
            }
            _ => {
                run.phase = Phase::End;
                // Nobody asks for these any more.
                let rows = run.rows()?;
                (rows.seen, _) = (None, rows.last.clear());
            }
        }
        Ok(brought)
    }
}

/// Takes a row that the query gives. Whether it counts already.
fn take_row(core: &mut Core, number: usize, plan: &Shared, key: &[u8], row: &[u8]) -> Result<bool> {
    with_rows(core, number, |core, rows| {
        if let Some(seen) = &mut rows.seen
            && seen.add(core, key, row)? != Seen::New
        {
            return Ok(false);
        }
        rows.give(row, plan.recursive.is_some())?;
        Ok(true)
    })
}

/// Works on a query's rows, with the session to use.
fn with_rows<T>(
    core: &mut Core,
    number: usize,
    work: impl FnOnce(&Core, &mut Rows) -> Result<T>,
) -> Result<T> {
    let missing = || Error::internal("a WITH query is read before it is opened");
    let mut rows = SharedRun::slot(core, number)?
        .rows
        .take()
        .ok_or_else(missing)?;
    let done = work(core, &mut rows);
    SharedRun::slot(core, number)?.rows = Some(rows);
    done
}

/// Reads a WITH query.
pub struct SharedScanRun {
    plan: Arc<SharedScan>,
    /// Columns in their order, and where they go.
    columns: Vec<(usize, Register)>,
    cursor: Cursor,
}

impl SharedScanRun {
    pub fn new(plan: &Arc<SharedScan>) -> SharedScanRun {
        let mut columns = plan.columns.clone();
        columns.sort_unstable();
        SharedScanRun {
            plan: plan.clone(),
            columns,
            cursor: Cursor::default(),
        }
    }

    /// Puts the next of the rows so far into the registers.
    fn next_known(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let number = self.plan.number;
        let rows = match self.plan.of_statement {
            true => with::rows(core, number)?,
            false => match (&SharedRun::slot(core, number)?.rows, self.plan.last_round) {
                (None, _) => return Ok(false),
                (Some(rows), true) => &rows.last,
                (Some(rows), false) => &rows.all,
            },
        };
        let Some(row) = rows.next_bytes(&mut self.cursor)? else {
            return Ok(false);
        };
        let mut values = Values(row).enumerate();
        let mut at: Option<(usize, DatumRef<'_>)> = None;
        for (column, register) in &self.columns {
            while at.is_none_or(|(i, _)| i < *column) {
                let (i, value) = values.next().ok_or_else(damaged)?;
                at = Some((i, value?));
            }
            let (_, value) = at.ok_or_else(damaged)?;
            assign(&mut frame.registers[*register], value);
        }
        Ok(true)
    }
}

impl Operator for SharedScanRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> {
        self.cursor.rewind();
        Ok(())
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        loop {
            if self.next_known(core, frame)? {
                return Ok(true);
            }
            let more = match self.plan.of_statement {
                true => with::advance(core, self.plan.number)?,
                false => !self.plan.last_round && SharedRun::advance(core, self.plan.number)?,
            };
            if !more {
                return Ok(false);
            }
        }
    }
}

/// Runs an input with WITH queries of its own.
pub struct WithRun {
    plan: Arc<With>,
    input: Box<dyn Operator>,
    /// The epoch in which the queries began, and that of the input since then.
    epochs: Option<(u64, u64)>,
}

impl WithRun {
    pub fn new(plan: &Arc<With>, measured: bool) -> WithRun {
        WithRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            epochs: None,
        }
    }

    /// The epoch of the input. The queries begin anew if they have not run in the epoch around, or
    /// with other registers.
    fn begin(&mut self, core: &mut Core, frame: &Frame) -> Result<u64> {
        let queries = || self.plan.numbers.iter().zip(&self.plan.inputs);
        let around = core.running.epoch;
        if let Some((begun, within)) = self.epochs
            && begun == around
        {
            let mut differs = false;
            for (number, inputs) in queries() {
                differs = differs || SharedRun::slot(core, *number)?.differs(frame, inputs);
            }
            if !differs {
                return Ok(within);
            }
        }
        // All together, for one may read another.
        let within = core.running.new_epoch();
        for (number, inputs) in queries() {
            let epoch = core.running.new_epoch();
            SharedRun::slot(core, *number)?.reset(frame, inputs, epoch)?;
        }
        self.epochs = Some((around, within));
        Ok(within)
    }
}

impl Operator for WithRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        let around = core.running.epoch;
        let within = self.begin(core, frame)?;
        core.running.epoch = within;
        let opened = self.input.open(core, frame);
        core.running.epoch = around;
        opened
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let around = core.running.epoch;
        core.running.epoch = self.epochs.map_or(around, |(_, within)| within);
        let next = self.input.next(core, frame);
        core.running.epoch = around;
        next
    }
}
