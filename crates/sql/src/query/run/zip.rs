//! Rows of several inputs side by side: ROWS FROM.

use std::sync::Arc;

use block::value::Datum;

use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::query::plan::Zip;
use crate::session::Core;

pub struct ZipRun {
    plan: Arc<Zip>,
    /// With whether it has ended.
    parts: Vec<(Box<dyn Operator>, bool)>,
    given: i64,
}

impl ZipRun {
    pub fn new(plan: &Arc<Zip>, measured: bool) -> ZipRun {
        let parts = plan.parts.iter();
        ZipRun {
            plan: plan.clone(),
            parts: parts.map(|(p, _)| (operator(p, measured), false)).collect(),
            given: 0,
        }
    }
}

impl Operator for ZipRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.given = 0;
        for (part, ended) in &mut self.parts {
            *ended = false;
            part.open(core, frame)?;
        }
        Ok(())
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        for ((part, ended), (_, registers)) in self.parts.iter_mut().zip(&self.plan.parts) {
            if *ended || part.next(core, frame)? {
                continue;
            }
            *ended = true;
            for register in registers {
                frame.set(*register, Datum::Null);
            }
        }
        if self.parts.iter().all(|(_, ended)| *ended) {
            return Ok(false);
        }
        self.given += 1;
        if let Some(register) = self.plan.ordinality {
            frame.set(register, Datum::Int8(self.given));
        }
        Ok(true)
    }
}
