//! Tables and views.

use std::sync::Arc;

use block::value::{Datum, DatumRef};

use super::part::{Drawn, part};
use super::{Frame, Operator};
use crate::error::Result;
use crate::exec::drive::passes;
use crate::exec::row::{decode, recycle};
use crate::exec::source::TableCursor;
use crate::expr::{Env, compare, md5};
use crate::plan::TableAccess;
use crate::query::plan::{TableScan, ViewScan};
use crate::session::Core;
use crate::views::{Context, sequence_row, view_oid};

pub struct TableRun {
    plan: Arc<TableScan>,
    cursor: TableCursor,
    /// Read by the keys that a subquery gives.
    by_list: bool,
    /// A sample of rows.
    drawn: Option<Drawn>,
    spare: Vec<DatumRef<'static>>,
}

impl TableRun {
    pub fn new(plan: &Arc<TableScan>) -> TableRun {
        TableRun {
            plan: plan.clone(),
            cursor: TableCursor::with_buffer(Vec::new()),
            by_list: false,
            drawn: None,
            spare: Vec::new(),
        }
    }

    /// Opens the scan at the keys that its subquery gives, if these are few enough.
    fn open_listed(&mut self, core: &mut Core, frame: &Frame) -> Result<bool> {
        let Some(listed) = &self.plan.listed else {
            return Ok(false);
        };
        let Some(rows) = core.subquery_rows(listed.subquery, listed.most)? else {
            return Ok(false);
        };
        let mut keys = Vec::with_capacity(rows.len());
        for row in rows {
            if let [value] = row.as_slice()
                && let Some(key) = TableCursor::first_key(&listed.access, value.borrow())?
            {
                keys.push(vec![key]);
            }
        }
        keys.sort_by(|a, b| {
            let order = compare(b[0].borrow(), a[0].borrow());
            order.unwrap_or(std::cmp::Ordering::Equal)
        });
        keys.dedup();
        let snapshot = &frame.snapshot;
        self.cursor.open_at(&listed.access, keys, core, snapshot)?;
        Ok(true)
    }
}

impl TableRun {
    /// What it is read by, and with.
    pub fn parts(&mut self) -> (&TableAccess, &mut TableCursor) {
        (&self.plan.access, &mut self.cursor)
    }
}

impl Operator for TableRun {
    fn as_table(&mut self) -> Option<&mut TableRun> {
        Some(self)
    }

    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.by_list = self.open_listed(core, frame)?;
        if self.by_list {
            return Ok(());
        }
        if let Some((scan, drawn)) = part(&self.plan, core, frame)? {
            self.drawn = drawn;
            self.cursor.open_scan(&self.plan.access, scan, core);
            return Ok(());
        }
        let Frame {
            registers,
            snapshot,
        } = frame;
        let env = Env {
            row: &[],
            params: registers,
        };
        self.cursor.open(&self.plan.access, core, snapshot, &env)
    }

    fn next(&mut self, core: &mut Core, frame: &mut Frame) -> Result<bool> {
        let access = match &self.plan.listed {
            Some(listed) if self.by_list => &listed.access,
            _ => &self.plan.access,
        };
        let def = access.table.engine();
        loop {
            let Some(rid) = self.cursor.next(access, core, &frame.snapshot)? else {
                return Ok(false);
            };
            if self.drawn.as_ref().is_some_and(|drawn| !drawn.has_row(rid)) {
                continue;
            }
            let mut values = recycle(std::mem::take(&mut self.spare));
            decode(self.cursor.row(), def, access.needed, &mut values)?;
            if !self.plan.system.is_empty() {
                self.plan
                    .system_values(core, rid, &frame.snapshot, &mut values)?;
            }
            let env = Env {
                row: &values,
                params: &frame.registers,
            };
            let passed = passes(access, core, &env)?;
            if passed {
                for (column, register) in &self.plan.columns {
                    set(&mut frame.registers[*register], values[*column]);
                }
                for (column, register) in &self.plan.system {
                    let value = values[def.columns.len() + *column as usize];
                    frame.set(*register, value.to_datum());
                }
                if let Some(register) = self.plan.row_id {
                    frame.set(register, Datum::Int8(rid.0 as i64));
                }
            }
            self.spare = recycle(values);
            if passed {
                return Ok(true);
            }
        }
    }
}

/// Puts a value where another was, in the same memory if it is text.
fn set(place: &mut Datum, value: DatumRef<'_>) {
    match (place, value) {
        (Datum::Text(old), DatumRef::Text(new)) => {
            old.clear();
            old.push_str(new);
        }
        (place, value) => *place = value.to_datum(),
    }
}

/// A virtual table, whose rows are made when it is opened.
pub struct ViewRun {
    plan: Arc<ViewScan>,
    /// Made once for a statement, though it may be opened often; by each opening, if they are
    /// looked up. All are of the state of things at the first.
    rows: Option<crate::views::Rows>,
    context: Option<Context>,
    at: usize,
}

impl ViewRun {
    pub fn new(plan: &Arc<ViewScan>) -> ViewRun {
        ViewRun {
            plan: plan.clone(),
            rows: None,
            context: None,
            at: 0,
        }
    }
}

impl Operator for ViewRun {
    fn open(&mut self, core: &mut Core, frame: &mut Frame) -> Result<()> {
        self.at = 0;
        let wanted = match &self.plan.lookup {
            Some(lookup) => lookup.wanted(&frame.eval(&lookup.value, core)?),
            None => None,
        };
        let known = self.context.as_ref().map(|context| &context.wanted);
        if self.rows.is_none() || known != Some(&wanted) {
            let mut context = match self.context.take() {
                Some(context) => context,
                None => Context::new(core),
            };
            context.wanted = wanted;
            self.rows = Some(match &self.plan.of {
                Some(sequence) => sequence_row(&context, sequence)?,
                None => self.plan.view.read_in(core, &context)?,
            });
            for warning in context.take_warnings() {
                core.notice("WARNING", "01000", warning);
            }
            self.context = Some(context);
        }
        Ok(())
    }

    fn next(&mut self, _: &mut Core, frame: &mut Frame) -> Result<bool> {
        let Some(row) = self.rows.as_ref().and_then(|rows| rows.get(self.at)) else {
            return Ok(false);
        };
        self.at += 1;
        for (column, register) in &self.plan.columns {
            frame.registers[*register] = row[*column].clone();
        }
        if let Some(register) = self.plan.tableoid {
            let number = match &self.plan.of {
                Some(sequence) => Some(sequence.oid),
                None => view_oid(self.plan.view.schema, self.plan.view.name),
            };
            frame.set(register, Datum::Int8(number.unwrap_or(0).into()));
        }
        if let Some(register) = self.plan.xmin {
            let version = row_version(row);
            frame.set(register, Datum::Int8(version.into()));
        }
        Ok(true)
    }
}

/// The version of a catalog's row: a number made of its values. Below 3 are numbers of PostgreSQL
/// that stand for no transaction.
fn row_version(row: &[Datum]) -> u32 {
    md5::words(format!("{row:?}").as_bytes())[0].max(3)
}
