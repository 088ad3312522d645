//! Subqueries within expressions. Each has a register file of its own and is opened again for each
//! row that asks for it, unless what it depends on has not changed.

use std::collections::HashMap;
use std::sync::Arc;

use block::value::Datum;
use engine::Snapshot;

use super::hash_join::key;
use super::keyed_rows::{Builder, KeyedRows};
use super::shared::is_same;
use super::{Frame, Operator, operator};
use crate::error::{Error, Result};
use crate::exec::aggregate::encode;
use crate::expr::{Expr, Val, compare};
use crate::query::plan::{Hashed, Keyed, Subquery, SubqueryKind};
use crate::session::Core;

pub struct SubqueryRun {
    plan: Arc<Subquery>,
    operator: Box<dyn Operator>,
    frame: Frame,
    /// The inputs it ran with last, and what it gave.
    last: Option<(Vec<Datum>, Datum)>,
    table: Table,
    keyed: ByKey,
    measured: bool,
}

/// The rows of a subquery that are found by the key that its inputs make.
enum ByKey {
    /// Not read yet, after so many runs.
    After(u64),
    Made {
        rows: Box<KeyedRows>,
        /// What an aggregate is of no rows, once that was asked for.
        of_none: Option<Datum>,
    },
    /// Reading them failed: rows that nobody asked for are not to fail the statement.
    Never,
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
    /// More than `work_mem`: keys alone.
    Large {
        keys: KeyedRows,
        unknown: Vec<Vec<Datum>>,
    },
    /// Rows with NULLs alone are more than `work_mem`.
    TooLarge,
}

/// The rows that a subquery's value is made of: of its plan, or of a key.
enum Rows<'r> {
    All,
    /// Without rows if the key has a NULL.
    OfKey(&'r Keyed, Option<&'r mut KeyedRows>),
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
            keyed: ByKey::After(0),
            measured,
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
        if let Some(keyed) = &plan.keyed
            && self.is_by_key(keyed, core)?
        {
            return self.of_key(&plan, keyed, core);
        }
        self.operator.open(core, &mut self.frame)?;
        self.of_rows(&plan, &mut Rows::All, core)
    }

    /// What the rows come to.
    fn of_rows(&mut self, plan: &Subquery, rows: &mut Rows<'_>, core: &mut Core) -> Result<Datum> {
        match &plan.kind {
            SubqueryKind::Exists => Ok(Datum::Bool(self.next(rows, core)?)),
            SubqueryKind::Scalar(e) => self.only_row(e, rows, core),
            SubqueryKind::Compared { test, all, .. } => self.compared(test, *all, rows, core),
        }
    }

    fn next(&mut self, rows: &mut Rows<'_>, core: &mut Core) -> Result<bool> {
        match rows {
            Rows::All => self.operator.next(core, &mut self.frame),
            Rows::OfKey(_, None) => Ok(false),
            Rows::OfKey(plan, Some(rows)) => {
                while rows.next(&mut self.frame, &plan.registers)? {
                    wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                    match &plan.residual {
                        Some(condition) if !self.frame.holds(condition, core)? => {}
                        _ => return Ok(true),
                    }
                }
                Ok(false)
            }
        }
    }

    /// Whether the rows are there by key: once it has run as often as reading all of them costs.
    fn is_by_key(&mut self, plan: &Keyed, core: &mut Core) -> Result<bool> {
        match &mut self.keyed {
            ByKey::Never => return Ok(false),
            ByKey::Made { .. } => return Ok(true),
            ByKey::After(runs) if *runs < plan.after => {
                *runs += 1;
                return Ok(false);
            }
            ByKey::After(_) => {}
        }
        match self.read_keyed(plan, core) {
            Ok(rows) => {
                self.keyed = ByKey::Made {
                    rows: Box::new(rows),
                    of_none: None,
                };
                Ok(true)
            }
            Err(e) if e.sqlstate().starts_with("22") => {
                self.keyed = ByKey::Never;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    fn read_keyed(&mut self, plan: &Keyed, core: &mut Core) -> Result<KeyedRows> {
        let mut input = operator(&plan.root, self.measured);
        let one_each = plan.registers.is_empty() && plan.residual.is_none();
        let exists = matches!(self.plan.kind, SubqueryKind::Exists);
        let mut builder = Builder::new(core, exists && one_each);
        let mut bytes = Vec::new();
        input.open(core, &mut self.frame)?;
        while input.next(core, &mut self.frame)? {
            if key(&plan.keys, core, &self.frame, &mut bytes)? {
                builder.add(core, &bytes, &self.frame, &plan.registers)?;
            }
        }
        builder.finish(core)
    }

    /// Its value by the rows of the key that the inputs make.
    fn of_key(&mut self, plan: &Subquery, keyed: &Keyed, core: &mut Core) -> Result<Datum> {
        let mut bytes = Vec::new();
        // A NULL equals nothing.
        let known = key(&keyed.inputs, core, &self.frame, &mut bytes)?;
        let ByKey::Made { mut rows, of_none } = std::mem::replace(&mut self.keyed, ByKey::Never)
        else {
            return Err(Error::internal("rows by key that were not read"));
        };
        let value = match known {
            true => rows.find(&bytes).and_then(|()| {
                let mut rows = Rows::OfKey(keyed, Some(&mut rows));
                match keyed.grouped {
                    true => self.group(plan, &mut rows, core),
                    false => self.of_rows(plan, &mut rows, core).map(Some),
                }
            }),
            false if keyed.grouped => Ok(None),
            false => self
                .of_rows(plan, &mut Rows::OfKey(keyed, None), core)
                .map(Some),
        };
        let (value, of_none) = match (value, of_none) {
            (Ok(Some(value)), of_none) => (Ok(value), of_none),
            (Ok(None), Some(value)) => (Ok(value.clone()), Some(value)),
            (Ok(None), None) => {
                // Without rows of the key it is the same for all inputs.
                let value = self
                    .operator
                    .open(core, &mut self.frame)
                    .and_then(|()| self.of_rows(plan, &mut Rows::All, core));
                let of_none = value.as_ref().ok().cloned();
                (value, of_none)
            }
            (Err(e), of_none) => (Err(e), of_none),
        };
        self.keyed = ByKey::Made { rows, of_none };
        value
    }

    /// The value of a key's group, if it has one.
    fn group(
        &mut self,
        plan: &Subquery,
        rows: &mut Rows<'_>,
        core: &mut Core,
    ) -> Result<Option<Datum>> {
        let SubqueryKind::Scalar(e) = &plan.kind else {
            return Err(Error::internal("groups of a subquery that is no value"));
        };
        match self.next(rows, core)? {
            true => self.frame.eval(e, core).map(Some),
            false => Ok(None),
        }
    }

    fn only_row(&mut self, e: &Expr, rows: &mut Rows<'_>, core: &mut Core) -> Result<Datum> {
        if !self.next(rows, core)? {
            return Ok(Datum::Null);
        }
        let value = self.frame.eval(e, core)?;
        match self.next(rows, core)? {
            false => Ok(value),
            true => Err(Error::new(
                "21000",
                "more than one row returned by a subquery used as an expression",
            )),
        }
    }

    fn compared(
        &mut self,
        test: &Expr,
        all: bool,
        rows: &mut Rows<'_>,
        core: &mut Core,
    ) -> Result<Datum> {
        let mut unknown = false;
        while self.next(rows, core)? {
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
        let wanted: Vec<&Datum> = hashed.inputs.iter().map(|i| &inputs[*i]).collect();
        if let Table::Large { keys, unknown } = &mut self.table {
            return look_up_large(keys, unknown, &wanted, &mut self.frame);
        }
        let Table::Made { rows, unknown } = &self.table else {
            return Ok(None);
        };
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
        let mut large: Option<Builder> = None;
        let memory = core.settings.hot().work_mem_bytes;
        let (mut bytes, mut unknown_bytes) = (0, 0);
        self.operator.open(core, &mut self.frame)?;
        while self.operator.next(core, &mut self.frame)? {
            let row = hashed
                .rows
                .iter()
                .map(|e| self.frame.eval(e, core))
                .collect::<Result<Vec<_>>>()?;
            let mut key = Vec::new();
            row.iter().for_each(|v| encode(v.borrow(), &mut key));
            match row.iter().any(Datum::is_null) {
                // One column is a NULL like any other.
                true if row.len() == 1 && !unknown.is_empty() => continue,
                true => {
                    unknown_bytes += row_bytes(&key, &row);
                    unknown.push(row);
                }
                false => match &mut large {
                    Some(builder) => builder.add(core, &key, &self.frame, &[])?,
                    None => {
                        bytes += row_bytes(&key, &row);
                        rows.insert(key, row);
                    }
                },
            }
            if unknown_bytes > memory {
                return Ok(Table::TooLarge);
            }
            if bytes > memory {
                bytes = 0;
                let mut builder = Builder::new(core, true);
                for (key, _) in rows.drain() {
                    builder.add(core, &key, &self.frame, &[])?;
                }
                large = Some(builder);
            }
        }
        Ok(match large {
            None => Table::Made { rows, unknown },
            Some(builder) => Table::Large {
                keys: builder.finish(core)?,
                unknown,
            },
        })
    }
}

/// Memory that a row takes in a table.
fn row_bytes(key: &[u8], row: &[Datum]) -> usize {
    2 * key.len() + size_of_val(row) + 64
}

/// As [`SubqueryRun::look_up`], among more rows than are kept in memory.
fn look_up_large(
    keys: &mut KeyedRows,
    unknown: &[Vec<Datum>],
    wanted: &[&Datum],
    frame: &mut Frame,
) -> Result<Option<Option<bool>>> {
    if wanted.iter().any(|v| v.is_null()) {
        // Of one column any row may be equal; of several all would have to be looked at.
        return Ok((wanted.len() == 1).then_some(None));
    }
    let mut key = Vec::new();
    wanted.iter().for_each(|v| encode(v.borrow(), &mut key));
    keys.find(&key)?;
    if keys.next(frame, &[])? {
        return Ok(Some(Some(true)));
    }
    for row in unknown {
        if may_equal(wanted, row)? {
            return Ok(Some(None));
        }
    }
    Ok(Some(Some(false)))
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
    /// The plan of a subquery of the statement that is running.
    pub fn subquery_plan(&self, number: usize) -> Option<Arc<Subquery>> {
        let run = self.running.subqueries.get(number)?.as_ref()?;
        Some(run.plan.clone())
    }

    /// Calls `f` with a subquery of the statement that is running, and its registers.
    pub fn with_subquery<T, E: From<Error>>(
        &mut self,
        number: usize,
        f: impl FnOnce(&mut Core, &Subquery, &mut Frame) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let missing = || Error::internal(format!("subquery {number} is not there to run"));
        let slot = self.running.subqueries.get_mut(number);
        let mut run = slot.and_then(Option::take).ok_or_else(missing)?;
        let plan = run.plan.clone();
        let done = f(self, &plan, &mut run.frame);
        if let Some(slot) = self.running.subqueries.get_mut(number) {
            *slot = Some(run);
        }
        done
    }

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
