//! LIMIT, OFFSET, FETCH FIRST.

use std::sync::Arc;

use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::exec::aggregate::encode;
use crate::exec::select::count;
use crate::query::plan::Limit;
use crate::session::Core;

pub struct LimitRun {
    plan: Arc<Limit>,
    input: Box<dyn Operator>,
    to_skip: u64,
    left: u64,
    /// With ties: what the last row has that others must have too, as bytes that are equal if the
    /// values are.
    last: Option<Vec<u8>>,
}

impl LimitRun {
    pub fn new(plan: &Arc<Limit>, measured: bool) -> LimitRun {
        LimitRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            to_skip: 0,
            left: 0,
            last: None,
        }
    }

    fn tie(&self, core: &mut Core, frame: &Frame) -> Result<Option<Vec<u8>>> {
        let Some(ties) = &self.plan.ties else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        for e in ties {
            encode(e.eval(&frame.env(), core)?.get(), &mut bytes);
        }
        Ok(Some(bytes))
    }
}

impl Operator for LimitRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        let env = frame.env();
        self.left = count(self.plan.limit.as_ref(), core, &env, "LIMIT")?.unwrap_or(u64::MAX);
        self.to_skip = count(self.plan.offset.as_ref(), core, &env, "OFFSET")?.unwrap_or(0);
        self.last = None;
        if self.left > 0 {
            self.input.open(core, frame)?;
        }
        Ok(())
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        if self.left == 0 {
            let Some(last) = self.last.take() else {
                return Ok(false);
            };
            if self.input.next(core, frame)? && self.tie(core, frame)?.as_ref() == Some(&last) {
                self.last = Some(last);
                return Ok(true);
            }
            return Ok(false);
        }
        while self.to_skip > 0 {
            if !self.input.next(core, frame)? {
                self.left = 0;
                return Ok(false);
            }
            self.to_skip -= 1;
        }
        if !self.input.next(core, frame)? {
            self.left = 0;
            return Ok(false);
        }
        self.left -= 1;
        if self.left == 0 {
            self.last = self.tie(core, frame)?;
        }
        Ok(true)
    }
}
