//! Rows from nowhere, conditions, computed columns.

use std::sync::Arc;

use super::series::Counter;
use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::query::plan::{Append, Compute, Filter, Values};
use crate::session::Core;
use block::value::Datum;

/// One row that sets no register.
#[derive(Default)]
pub struct One {
    given: bool,
}

impl Operator for One {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> {
        self.given = false;
        Ok(())
    }

    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> {
        Ok(!std::mem::replace(&mut self.given, true))
    }
}

pub struct Nothing;

impl Operator for Nothing {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> {
        Ok(())
    }

    fn next(&mut self, _: &mut Core, _: &mut Frame) -> Result<bool> {
        Ok(false)
    }
}

pub struct ValuesRun {
    plan: Arc<Values>,
    at: usize,
}

impl ValuesRun {
    pub fn new(plan: &Arc<Values>) -> ValuesRun {
        ValuesRun {
            plan: plan.clone(),
            at: 0,
        }
    }
}

impl Operator for ValuesRun {
    fn open(&mut self, _: &mut Core, _: &mut Frame) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let Some(row) = self.plan.rows.get(self.at) else {
            return Ok(false);
        };
        self.at += 1;
        for (e, register) in row.iter().zip(&self.plan.into) {
            let value = frame.eval(e, core)?;
            frame.set(*register, value);
        }
        Ok(true)
    }
}

/// Runs its parts one after the other.
pub struct AppendRun {
    parts: Vec<Box<dyn Operator>>,
    at: usize,
}

impl AppendRun {
    pub fn new(plan: &Append, measured: bool) -> AppendRun {
        AppendRun {
            parts: plan.parts.iter().map(|p| operator(p, measured)).collect(),
            at: 0,
        }
    }
}

impl Operator for AppendRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.at = 0;
        match self.parts.first_mut() {
            Some(first) => first.open(core, frame),
            None => Ok(()),
        }
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        while let Some(part) = self.parts.get_mut(self.at) {
            if part.next(core, frame)? {
                return Ok(true);
            }
            self.at += 1;
            if let Some(next) = self.parts.get_mut(self.at) {
                next.open(core, frame)?;
            }
        }
        Ok(false)
    }
}

pub struct FilterRun {
    plan: Arc<Filter>,
    input: Box<dyn Operator>,
}

impl FilterRun {
    pub fn new(plan: &Arc<Filter>, measured: bool) -> FilterRun {
        FilterRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
        }
    }
}

impl Operator for FilterRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.input.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        while self.input.next(core, frame)? {
            if frame.holds(&self.plan.condition, core)? {
                return Ok(true);
            }
            core.refused_row(crate::exec::profile::StepKey::of(&*self.plan));
        }
        Ok(false)
    }
}

/// Computes columns; with functions that give several rows, as many rows as the longest gives.
pub struct ComputeRun {
    plan: Arc<Compute>,
    input: Box<dyn Operator>,
    /// The series of the input's row, while they go on.
    series: Vec<Counter>,
}

impl ComputeRun {
    pub fn new(plan: &Arc<Compute>, measured: bool) -> ComputeRun {
        ComputeRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            series: Vec::new(),
        }
    }

    /// Sets the next values of the series; false if all are at their end.
    fn step(&mut self, core: &Core, frame: &mut Frame) -> Result<bool> {
        let mut any = false;
        for (counter, series) in self.series.iter_mut().zip(&self.plan.series) {
            let row = counter.next_row(core)?;
            any |= row.is_some();
            if let Some(register) = series.ordinality {
                let is_there = row.as_ref().map(|_| Datum::Bool(true));
                frame.set(register, is_there.unwrap_or(Datum::Null));
            }
            let (value, more) = row.unwrap_or_default();
            frame.set(series.into, value);
            let more = more.into_iter().chain(std::iter::repeat(Datum::Null));
            for (register, value) in series.more.iter().zip(more) {
                frame.set(*register, value);
            }
        }
        Ok(any)
    }

    fn compute(&self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        for (register, e) in &self.plan.columns {
            let value = frame.eval(e, core)?;
            frame.set(*register, value);
        }
        Ok(())
    }
}

impl Operator for ComputeRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.series.clear();
        self.input.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        if self.plan.series.is_empty() {
            if !self.input.next(core, frame)? {
                return Ok(false);
            }
            self.compute(core, frame)?;
            return Ok(true);
        }
        loop {
            if self.step(core, frame)? {
                self.compute(core, frame)?;
                return Ok(true);
            }
            if !self.input.next(core, frame)? {
                return Ok(false);
            }
            let plan = self.plan.clone();
            self.series = plan
                .series
                .iter()
                .map(|series| Counter::start(series, core, frame))
                .collect::<Result<_>>()?;
        }
    }
}
