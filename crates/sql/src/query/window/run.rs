//! The operator: reads a partition as far as its functions ask, and gives each row with their
//! values.
//!
//! **Invariants.**
//! - The registers hold what the input gave last when it is asked for more: operators below may
//!   still need it.
//! - Arguments are computed in the rows that a function looks at, and in no others, so that an
//!   error in a row outside of all frames does not come up.

use std::sync::Arc;

use block::value::{Datum, DatumRef};

use super::call::CallRun;
use super::frame::{Current, Extent, FrameRun, Partition};
use super::rows::{Reader, Rows};
use super::sliding::Take;
use crate::error::Result;
use crate::expr::{Expr, Val, compare};
use crate::query::plan::Window;
use crate::query::run::{Frame, Operator, operator};
use crate::session::Core;

/// After so many rows looked at comes a look for a cancel request.
const CANCEL_EVERY: u32 = 4096;

pub struct WindowRun {
    plan: Arc<Window>,
    measured: bool,
    /// None before the first opening.
    source: Option<Source>,
    /// Each different frame once.
    frames: Vec<FrameRun>,
    extents: Vec<Extent>,
    calls: Vec<CallRun>,
    /// Whether no call needs rows before the current one's peers.
    forgets: bool,
    /// The row that was given last.
    current: Option<Current>,
    values: Vec<Datum>,
    started: bool,
}

impl WindowRun {
    pub fn new(plan: &Arc<Window>, measured: bool) -> WindowRun {
        let mut frames: Vec<FrameRun> = Vec::new();
        let mut calls = Vec::with_capacity(plan.calls.len());
        for (number, call) in plan.calls.iter().enumerate() {
            let known = frames.iter().position(|f| *f.plan() == call.frame);
            let frame = known.unwrap_or_else(|| {
                frames.push(FrameRun::new(&call.frame, &plan.order));
                frames.len() - 1
            });
            calls.push(CallRun::new(plan, number, frame));
        }
        // Whose error comes first, if several have one.
        calls.sort_by_key(CallRun::is_aggregate);
        let forgets = calls.iter().all(|c| !c.looks_back(&frames[c.frame]));
        WindowRun {
            plan: plan.clone(),
            measured,
            source: None,
            extents: vec![Extent::default(); frames.len()],
            frames,
            values: vec![Datum::Null; calls.len()],
            calls,
            forgets,
            current: None,
            started: false,
        }
    }

    fn start(&mut self, core: &mut Core, frame: &Frame) -> Result<()> {
        for run in &mut self.frames {
            let value =
                |e: Option<&Expr>, core: &mut Core| e.map(|e| frame.eval(e, core)).transpose();
            let start = value(run.plan().start.distance(), core)?;
            let end = value(run.plan().end.distance(), core)?;
            run.set_distances(start, end, &core.io)?;
        }
        self.started = true;
        Ok(())
    }

    /// Goes to the next row; false if there is none.
    fn advance(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let Some(source) = &mut self.source else {
            return Ok(false);
        };
        if let Some(current) = &mut self.current {
            let next = current.row + 1;
            if self.forgets && source.rows.count() == next {
                source.rows.forget();
            }
            let mut rows = View::new(source, core, frame);
            if rows.exists(next)? {
                current.go(next, &mut rows)?;
                return Ok(true);
            }
        }
        if !source.begin(core, frame)? {
            self.current = None;
            return Ok(false);
        }
        self.frames.iter_mut().for_each(FrameRun::restart);
        self.calls.iter_mut().for_each(CallRun::restart);
        let current = self.current.insert(Current::default());
        current.go(0, &mut View::new(source, core, frame))?;
        Ok(true)
    }

    fn compute(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        let (Some(source), Some(current)) = (&mut self.source, &mut self.current) else {
            return Ok(());
        };
        let mut rows = View::new(source, core, frame);
        for (number, run) in self.frames.iter_mut().enumerate() {
            let used = |c: &CallRun| c.frame == number && c.has_frame();
            if self.calls.iter().any(used) {
                self.extents[number] = run.extent(current, &mut rows)?;
            }
        }
        for call in &mut self.calls {
            let of = (&self.frames[call.frame], self.extents[call.frame]);
            self.values[call.number()] = call.value(current, of, &mut rows)?;
        }
        rows.load(current.row)?;
        for (call, value) in self.plan.calls.iter().zip(&mut self.values) {
            frame.set(call.into, std::mem::take(value));
        }
        Ok(())
    }
}

impl Operator for WindowRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.current = None;
        self.started = false;
        let source = self.source.get_or_insert_with(|| {
            let input = operator(&self.plan.input, self.measured);
            Source::new(&self.plan, input, Rows::new(core))
        });
        source.reset();
        source.input.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        if !self.started {
            self.start(core, frame)?;
        }
        if !self.advance(core, frame)? {
            return Ok(false);
        }
        self.compute(core, frame)?;
        Ok(true)
    }
}

/// The input, and the rows of the partition as far as they have been read.
struct Source {
    plan: Arc<Window>,
    input: Box<dyn Operator>,
    rows: Rows,
    /// Whether a frame goes by the values of the order's key, which are then kept with each row.
    ranged: bool,
    /// Keys of the partition, or of the next once its first row has come.
    partition: Vec<Datum>,
    /// Keys of the row that came last.
    order: Vec<Datum>,
    /// The group of the row that came last.
    group: u64,
    /// The first row of the next partition.
    pending: Option<Vec<Datum>>,
    /// The partition has been read to its end.
    complete: bool,
    /// The input has.
    over: bool,
    /// The row that is in the registers.
    at: Option<u64>,
    reader: Reader,
    /// Reads the row that came last.
    last: Reader,
    looked: u32,
}

impl Source {
    fn new(plan: &Arc<Window>, input: Box<dyn Operator>, rows: Rows) -> Source {
        Source {
            plan: plan.clone(),
            input,
            rows,
            ranged: plan.calls.iter().any(|c| c.frame.has_range_distance()),
            partition: vec![Datum::Null; plan.partition.len()],
            order: vec![Datum::Null; plan.order.len()],
            group: 0,
            pending: None,
            complete: true,
            over: false,
            at: None,
            reader: Reader::default(),
            last: Reader::default(),
            looked: 0,
        }
    }

    fn reset(&mut self) {
        self.rows.clear();
        self.pending = None;
        (self.complete, self.over, self.at) = (true, false, None);
    }

    /// Begins the next partition; false if there is none.
    fn begin(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        match self.pending.take() {
            Some(row) => frame.restore(&self.plan.registers, row),
            None => {
                if self.over || !self.input.next(core, frame)? {
                    self.over = true;
                    return Ok(false);
                }
                change(self.plan.partition.iter(), &mut self.partition, core, frame)?;
            }
        }
        self.rows.clear();
        self.complete = false;
        self.keep(core, frame)?;
        Ok(true)
    }

    /// Keeps the row that is in the registers.
    fn keep(&mut self, core: &mut Core, frame: &Frame) -> Result<()> {
        let keys = self.plan.order.iter().map(|k| &k.expr);
        let changed = change(keys, &mut self.order, core, frame)?;
        let number = self.rows.count();
        self.group = match (number, changed) {
            (0, _) => 0,
            (_, true) => self.group + 1,
            (_, false) => self.group,
        };
        let key = match (self.ranged, self.order.first()) {
            (true, Some(key)) => key.borrow(),
            _ => DatumRef::Null,
        };
        self.rows
            .push(self.group, key, frame, &self.plan.registers)?;
        self.at = Some(number);
        Ok(())
    }

    /// Reads the partition's next row, if it has one.
    fn read(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.look()?;
        let last = self.rows.count() - 1;
        if self.at != Some(last) {
            let registers = &self.plan.registers;
            self.rows.load(last, &mut self.last, frame, registers)?;
        }
        self.at = None;
        if !self.input.next(core, frame)? {
            (self.complete, self.over) = (true, true);
            return Ok(());
        }
        if change(self.plan.partition.iter(), &mut self.partition, core, frame)? {
            self.pending = Some(frame.take_copy(&self.plan.registers));
            self.complete = true;
            return Ok(());
        }
        self.keep(core, frame)
    }

    /// Puts a row into the registers.
    fn load(&mut self, n: u64, frame: &mut Frame) -> Result<()> {
        self.look()?;
        if self.at != Some(n) {
            self.rows
                .load(n, &mut self.reader, frame, &self.plan.registers)?;
            self.at = Some(n);
        }
        Ok(())
    }

    fn look(&mut self) -> Result<()> {
        self.looked += 1;
        if self.looked == CANCEL_EVERY {
            self.looked = 0;
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
        Ok(())
    }
}

/// Computes keys. True if one differs from what it was.
fn change<'e>(
    keys: impl Iterator<Item = &'e Expr>,
    known: &mut [Datum],
    core: &mut Core,
    frame: &Frame,
) -> Result<bool> {
    let mut changed = false;
    for (e, known) in keys.zip(known) {
        let value = e.eval(&frame.env(), core)?;
        let equal = match (value.get(), known.borrow()) {
            (DatumRef::Null, DatumRef::Null) => true,
            (DatumRef::Null, _) | (_, DatumRef::Null) => false,
            (value, known) => compare(value, known)?.is_eq(),
        };
        if !equal {
            changed = true;
            *known = value.into_datum();
        }
    }
    Ok(changed)
}

/// The partition, with what it takes to read on and to compute.
struct View<'a> {
    source: &'a mut Source,
    core: &'a mut Core,
    frame: &'a mut Frame,
}

impl<'a> View<'a> {
    fn new(source: &'a mut Source, core: &'a mut Core, frame: &'a mut Frame) -> View<'a> {
        View {
            source,
            core,
            frame,
        }
    }

    fn load(&mut self, n: u64) -> Result<()> {
        self.source.load(n, self.frame)
    }
}

impl Partition for View<'_> {
    fn exists(&mut self, n: u64) -> Result<bool> {
        while self.source.rows.count() <= n && !self.source.complete {
            self.source.read(self.core, self.frame)?;
        }
        Ok(n < self.source.rows.count())
    }

    fn count(&mut self) -> Result<u64> {
        while !self.source.complete {
            self.source.read(self.core, self.frame)?;
        }
        Ok(self.source.rows.count())
    }

    fn group(&mut self, n: u64, reader: &mut Reader) -> Result<u64> {
        self.source.look()?;
        self.source.rows.group(n, reader)
    }

    fn key(&mut self, n: u64, reader: &mut Reader) -> Result<Datum> {
        self.source.look()?;
        self.source.rows.key(n, reader)
    }
}

impl super::call::Rows for View<'_> {
    fn arg(&mut self, call: usize, arg: usize, row: u64) -> Result<Datum> {
        self.load(row)?;
        let call = &self.source.plan.calls[call];
        self.frame.eval(&call.args[arg], self.core)
    }

    fn args(&mut self, call: usize, row: u64, take: &mut Take<'_>) -> Result<()> {
        self.load(row)?;
        let call = &self.source.plan.calls[call];
        if let Some(filter) = &call.filter
            && !self.frame.holds(filter, self.core)?
        {
            return Ok(());
        }
        let env = self.frame.env();
        match call.args.as_slice() {
            [] => take(&[]),
            [only] => take(&[only.eval(&env, self.core)?.get()]),
            several => {
                let values = several
                    .iter()
                    .map(|e| e.eval(&env, self.core))
                    .collect::<Result<Vec<Val<'_>>>>()?;
                let values: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
                take(&values)
            }
        }
    }
}
