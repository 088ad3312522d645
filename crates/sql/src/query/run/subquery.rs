//! Subqueries within expressions. Each has a register file of its own and is opened again for each
//! row that asks for it, unless what it depends on has not changed.

use std::collections::HashMap;
use std::sync::Arc;

use block::value::Datum;
use engine::Snapshot;

use super::shared::is_same;
use super::{Frame, Operator, operator};
use crate::error::{Error, Result};
use crate::exec::aggregate::encode;
use crate::expr::{Expr, Val, compare};
use crate::query::plan::{Hashed, Subquery, SubqueryKind};
use crate::session::Core;

pub struct SubqueryRun {
    plan: Arc<Subquery>,
    operator: Box<dyn Operator>,
    frame: Frame,
    /// The inputs it ran with last, and what it gave.
    last: Option<(Vec<Datum>, Datum)>,
    table: Table,
}

/// The rows of a subquery that are found by hash.
enum Table {
    /// Not made yet.
    Open,
    Made {
        rows: HashMap<Vec<u8>, Vec<Datum>>,
        /// Rows with a NULL in them, which equal nothing for sure.
        unknown: Vec<Vec<Datum>>,
    },
    /// Larger than `work_mem`.
    TooLarge,
}

impl SubqueryRun {
    pub fn new(
        plan: &Arc<Subquery>,
        params: &[Datum],
        snapshot: Snapshot,
        measured: bool,
    ) -> SubqueryRun {
        SubqueryRun {
            plan: plan.clone(),
            operator: operator(&plan.root, measured),
            frame: Frame::new(params, plan.width, snapshot),
            last: None,
            table: Table::Open,
        }
    }

    /// Its value for these inputs.
    pub fn value(&mut self, core: &mut Core, inputs: Vec<Datum>) -> Result<Datum> {
        if let Some((known, value)) = &self.last
            && self.plan.stable
            && known.iter().zip(&inputs).all(|(a, b)| is_same(a, b))
        {
            return Ok(value.clone());
        }
        let value = self.compute(core, &inputs)?;
        self.last = Some((inputs, value.clone()));
        Ok(value)
    }

    fn compute(&mut self, core: &mut Core, inputs: &[Datum]) -> Result<Datum> {
        let plan = self.plan.clone();
        if let SubqueryKind::Compared {
            hashed: Some(hashed),
            all,
            ..
        } = &plan.kind
            && let Some(found) = self.look_up(hashed, core, inputs)?
        {
            // `x <> ALL (..)` is hashed as the opposite of `x = ANY (..)`.
            return Ok(truth(found.map(|found| found != *all)));
        }
        for (register, value) in plan.inputs.iter().zip(inputs) {
            self.frame.set(*register, value.clone());
        }
        self.operator.open(core, &mut self.frame)?;
        match &plan.kind {
            SubqueryKind::Exists => Ok(Datum::Bool(self.operator.next(core, &mut self.frame)?)),
            SubqueryKind::Scalar(e) => self.only_row(e, core),
            SubqueryKind::Compared { test, all, .. } => self.compared(test, *all, core),
        }
    }

    fn only_row(&mut self, e: &Expr, core: &mut Core) -> Result<Datum> {
        if !self.operator.next(core, &mut self.frame)? {
            return Ok(Datum::Null);
        }
        let value = self.frame.eval(e, core)?;
        match self.operator.next(core, &mut self.frame)? {
            false => Ok(value),
            true => Err(Error::new(
                "21000",
                "more than one row returned by a subquery used as an expression",
            )),
        }
    }

    fn compared(&mut self, test: &Expr, all: bool, core: &mut Core) -> Result<Datum> {
        let mut unknown = false;
        while self.operator.next(core, &mut self.frame)? {
            match test.test(&self.frame.env(), core)? {
                Some(holds) if holds != all => return Ok(Datum::Bool(!all)),
                Some(_) => {}
                None => unknown = true,
            }
        }
        Ok(truth((!unknown).then_some(all)))
    }

    /// Whether the inputs are among the rows (`Some(None)`: not known); `None` if that cannot be
    /// looked up.
    fn look_up(
        &mut self,
        hashed: &Hashed,
        core: &mut Core,
        inputs: &[Datum],
    ) -> Result<Option<Option<bool>>> {
        if matches!(self.table, Table::Open) {
            self.table = self.make_table(hashed, core)?;
        }
        let Table::Made { rows, unknown } = &self.table else {
            return Ok(None);
        };
        let wanted: Vec<&Datum> = hashed.inputs.iter().map(|i| &inputs[*i]).collect();
        if rows.is_empty() && unknown.is_empty() {
            return Ok(Some(Some(false)));
        }
        if wanted.iter().any(|v| v.is_null()) {
            // Unknown, if any row may be equal as far as is known.
            for row in rows.values().chain(unknown) {
                if may_equal(&wanted, row)? {
                    return Ok(Some(None));
                }
            }
            return Ok(Some(Some(false)));
        }
        let mut key = Vec::new();
        wanted.iter().for_each(|v| encode(v.borrow(), &mut key));
        if rows.contains_key(&key) {
            return Ok(Some(Some(true)));
        }
        for row in unknown {
            if may_equal(&wanted, row)? {
                return Ok(Some(None));
            }
        }
        Ok(Some(Some(false)))
    }

    fn rows(&mut self, core: &mut Core, most: usize) -> Result<Option<Vec<Vec<Datum>>>> {
        let plan = self.plan.clone();
        let SubqueryKind::Compared {
            hashed: Some(hashed),
            ..
        } = &plan.kind
        else {
            return Ok(None);
        };
        if matches!(self.table, Table::Open) {
            self.table = self.make_table(hashed, core)?;
        }
        Ok(match &self.table {
            Table::Made { rows, .. } if rows.len() <= most => {
                Some(rows.values().cloned().collect())
            }
            _ => None,
        })
    }

    fn make_table(&mut self, hashed: &Hashed, core: &mut Core) -> Result<Table> {
        let (mut rows, mut unknown) = (HashMap::new(), Vec::new());
        let memory = core.settings.hot().work_mem_bytes;
        let mut bytes = 0;
        self.operator.open(core, &mut self.frame)?;
        while self.operator.next(core, &mut self.frame)? {
            let row = hashed
                .rows
                .iter()
                .map(|e| self.frame.eval(e, core))
                .collect::<Result<Vec<_>>>()?;
            let mut key = Vec::new();
            row.iter().for_each(|v| encode(v.borrow(), &mut key));
            bytes += 2 * key.len() + row.len() * size_of::<Datum>() + 64;
            if bytes > memory {
                return Ok(Table::TooLarge);
            }
            match row.iter().any(Datum::is_null) {
                true => unknown.push(row),
                false => {
                    rows.insert(key, row);
                }
            }
        }
        Ok(Table::Made { rows, unknown })
    }
}

/// Whether no column tells two rows apart.
fn may_equal(wanted: &[&Datum], row: &[Datum]) -> Result<bool> {
    for (a, b) in wanted.iter().zip(row) {
        if !a.is_null() && !b.is_null() && compare(a.borrow(), b.borrow())?.is_ne() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn truth(value: Option<bool>) -> Datum {
    value.map_or(Datum::Null, Datum::Bool)
}

impl Core {
    /// The rows of a hashed subquery, each once and without those that have a NULL, if they are no
    /// more than `most`.
    pub fn subquery_rows(&mut self, number: usize, most: usize) -> Result<Option<Vec<Vec<Datum>>>> {
        let missing = || Error::internal(format!("subquery {number} is not there to run"));
        let slot = self.running.subqueries.get_mut(number);
        let mut run = slot.and_then(Option::take).ok_or_else(missing)?;
        let rows = run.rows(self, most);
        if let Some(slot) = self.running.subqueries.get_mut(number) {
            *slot = Some(run);
        }
        rows
    }

    /// The value of a subquery of the statement that is running.
    pub fn subquery_value(&mut self, number: usize, inputs: Vec<Datum>) -> Result<Val<'static>> {
        let missing = || Error::internal(format!("subquery {number} is not there to run"));
        let slot = self.running.subqueries.get_mut(number);
        // Taken out while it runs, for it runs others.
        let mut run = slot.and_then(Option::take).ok_or_else(missing)?;
        let value = run.value(self, inputs);
        if let Some(slot) = self.running.subqueries.get_mut(number) {
            *slot = Some(run);
        }
        value.map(Val::Own)
    }
}
