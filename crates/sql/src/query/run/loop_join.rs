//! Nested loops: for each row of the outer side the inner side is opened again, with the outer
//! row's registers to use.

use std::sync::Arc;

use super::loop_ahead::OuterAhead;
use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::query::plan::{JoinKind, LoopJoin};
use crate::session::Core;

pub struct LoopRun {
    plan: Arc<LoopJoin>,
    outer: Box<dyn Operator>,
    inner: Box<dyn Operator>,
    inner_open: bool,
    matched: bool,
    ahead: Option<OuterAhead>,
}

impl LoopRun {
    pub fn new(plan: &Arc<LoopJoin>, measured: bool) -> LoopRun {
        LoopRun {
            plan: plan.clone(),
            outer: operator(&plan.outer, measured),
            inner: operator(&plan.inner, measured),
            inner_open: false,
            matched: false,
            ahead: OuterAhead::new(plan),
        }
    }

    fn next_outer(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        if let Some(ahead) = &mut self.ahead
            && (core.engine.asks_ahead() || !ahead.is_empty())
            && let Some(inner) = self.inner.as_table()
        {
            return ahead.next(&mut *self.outer, inner.parts(), core, frame);
        }
        self.outer.next(core, frame)
    }
}

impl Operator for LoopRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.inner_open = false;
        self.ahead.iter_mut().for_each(OuterAhead::begin);
        self.outer.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        loop {
            if !self.inner_open {
                if !self.next_outer(core, frame)? {
                    return Ok(false);
                }
                self.inner.open(core, frame)?;
                (self.inner_open, self.matched) = (true, false);
            }
            while self.inner.next(core, frame)? {
                if let Some(on) = &self.plan.on
                    && !frame.holds(on, core)?
                {
                    continue;
                }
                self.matched = true;
                return Ok(true);
            }
            self.inner_open = false;
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
            if self.plan.kind == JoinKind::Left && !self.matched {
                frame.set_null(&self.plan.inner_registers);
                return Ok(true);
            }
        }
    }
}
