//! Order.

use std::sync::Arc;

use super::{Frame, Operator, operator};
use crate::error::Result;
use crate::exec::select::count;
use crate::exec::sort::{Rows, Sorter};
use crate::expr::Expr;
use crate::query::plan::Sort;
use crate::session::Core;

pub struct SortRun {
    plan: Arc<Sort>,
    input: Box<dyn Operator>,
    /// What is kept of each row.
    kept: Vec<Expr>,
    rows: Option<Rows>,
}

impl SortRun {
    pub fn new(plan: &Arc<Sort>, measured: bool) -> SortRun {
        SortRun {
            plan: plan.clone(),
            input: operator(&plan.input, measured),
            kept: plan.registers.iter().map(|r| Expr::Param(*r)).collect(),
            rows: None,
        }
    }
}

impl Operator for SortRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.rows = None;
        self.input.open(core, frame)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        if self.rows.is_none() {
            let env = frame.env();
            let limit = count(self.plan.limit.as_ref(), core, &env, "LIMIT")?;
            let offset = count(self.plan.offset.as_ref(), core, &env, "OFFSET")?;
            let most = limit.map_or(u64::MAX, |l| l.saturating_add(offset.unwrap_or(0)));
            let mut sorter = Sorter::new(core, &self.plan.keys, most);
            while self.input.next(core, frame)? {
                sorter.push(core, &self.plan.keys, &self.kept, &frame.env())?;
            }
            self.rows = Some(sorter.finish()?);
        }
        match self.rows.as_mut().map(Rows::next_row).transpose()? {
            Some(Some(row)) => {
                frame.restore(&self.plan.registers, row);
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}
