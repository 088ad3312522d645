//! COPY FROM STDIN: lines to rows, rows to the engine in batches.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use engine::Bulk;

use super::lines::{Fields, Lines};
use crate::api::Tag;
use crate::bind::{ParamTypes, names};
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::exec::dml::{check_row, finish_bulk, insert_bulk};
use crate::expr::{Env, Expr};
use crate::parse::utility::TableLock;
use crate::parse::{CopyOptions, CopySpec, CopyWhat};
use crate::pgtype;
use crate::plan::{Planner, RowRules};
use crate::session::{Core, SqlSession};
use crate::types::SqlType;

/// How often a cancel request is looked for.
const CANCEL_CHECK_ROWS: u64 = 1000;

/// A COPY FROM STDIN under way.
pub struct CopyIn {
    table: Arc<Table>,
    options: CopyOptions,
    /// Where each field goes, with its type.
    targets: Vec<(usize, SqlType, i32)>,
    /// Values of columns that are not in the data.
    defaults: Vec<(usize, Expr)>,
    rules: RowRules,
    lines: Lines,
    fields: Fields,
    row: Vec<Datum>,
    bulk: Bulk,
    line_number: u64,
    rows: u64,
    /// The end marker of the old protocol was read: what follows is ignored.
    ended: bool,
}

impl CopyIn {
    /// How many columns each line has; all in text format.
    pub fn columns(&self) -> usize {
        self.targets.len()
    }

    pub(crate) fn begin(core: &mut Core, spec: &CopySpec) -> Result<CopyIn> {
        let CopyWhat::Table { name, columns } = &spec.what else {
            return Err(Error::internal("COPY FROM a query"));
        };
        let table = loop {
            let table = core
                .dict()
                .table(name)
                .cloned()
                .ok_or_else(|| names::no_relation(name))?;
            core.lock_table(table.oid, TableLock::RowExclusive, false)?;
            if core
                .dict()
                .table(name)
                .is_some_and(|now| Arc::ptr_eq(now, &table))
            {
                break table;
            }
        };
        let columns = super::output::chosen_columns(&table, columns)?;
        let params = ParamTypes::default();
        let dict = core.dict();
        let planner = Planner {
            dict: &dict,
            params: &params,
        };
        let mut defaults = Vec::new();
        for (at, c) in table.columns.iter().enumerate() {
            if !columns.contains(&at) {
                defaults.push((at, planner.default(c)?));
            }
        }
        let rules = planner.rules(&table)?;
        let targets = columns
            .iter()
            .map(|&at| (at, table.columns[at].ty(), table.columns[at].typmod))
            .collect();
        Ok(CopyIn {
            lines: Lines::new(&spec.options),
            options: spec.options.clone(),
            targets,
            defaults,
            rules,
            fields: Fields::default(),
            row: Vec::new(),
            bulk: Bulk::new(table.engine()),
            line_number: 0,
            rows: 0,
            ended: false,
            table,
        })
    }

    fn take(&mut self, core: &mut Core, data: &[u8]) -> Result<()> {
        self.lines.push(data)?;
        while let Some(line) = self.lines.next() {
            self.line(core, line)?;
        }
        Ok(())
    }

    fn line(&mut self, core: &mut Core, (from, to): (usize, usize)) -> Result<()> {
        self.line_number += 1;
        if self.ended || self.options.header && self.line_number == 1 {
            return Ok(());
        }
        let line = &self.lines.bytes()[from..to];
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        let mut row = std::mem::take(&mut self.row);
        read_row(
            &mut self.fields,
            line,
            &self.options,
            &self.targets,
            &self.table,
            core,
            &mut row,
        )
        .and_then(|()| self.insert(core, &mut row))
        .map_err(|e| {
            e.detail_if_none(format!(
                "COPY {}, line {}",
                self.table.name, self.line_number
            ))
        })?;
        self.row = row;
        self.rows += 1;
        if self.rows.is_multiple_of(CANCEL_CHECK_ROWS) {
            wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        }
        Ok(())
    }

    fn insert(&mut self, core: &mut Core, row: &mut [Datum]) -> Result<()> {
        for (at, e) in &self.defaults {
            row[*at] = e.eval(&Env::EMPTY, core)?.into_datum();
        }
        let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
        check_row(&self.table, &self.rules, core, &refs)?;
        insert_bulk(&self.table, core, &mut self.bulk, &refs)
    }

    fn finish(&mut self, core: &mut Core) -> Result<u64> {
        if self.lines.in_quote() {
            return Err(Error::new("22P04", "unterminated CSV quoted field"));
        }
        if let Some(line) = self.lines.rest() {
            self.line(core, line)?;
        }
        finish_bulk(&self.table, core, &mut self.bulk)?;
        Ok(self.rows)
    }
}

/// Reads a line into `row`, NULL where it says nothing.
fn read_row(
    fields: &mut Fields,
    line: &[u8],
    options: &CopyOptions,
    targets: &[(usize, SqlType, i32)],
    table: &Table,
    core: &Core,
    row: &mut Vec<Datum>,
) -> Result<()> {
    fields.split(line, options)?;
    if fields.ranges.len() > targets.len() {
        return Err(Error::new("22P04", "extra data after last expected column"));
    }
    if fields.ranges.len() < targets.len() {
        let (at, ..) = targets[fields.ranges.len()];
        return Err(Error::new(
            "22P04",
            format!("missing data for column \"{}\"", table.columns[at].name),
        ));
    }
    row.clear();
    row.resize(table.columns.len(), Datum::Null);
    for (range, (at, ty, typmod)) in fields.ranges.iter().zip(targets) {
        let Some((from, to)) = *range else { continue };
        let text = pgtype::utf8(&fields.text[from..to])?;
        let value = pgtype::text_in(*ty, text, &core.io)?;
        row[*at] = if *typmod >= 0 {
            pgtype::apply_typmod(*ty, *typmod, value, false)?
        } else {
            value
        };
    }
    Ok(())
}

impl SqlSession {
    /// A piece of the data, cut anywhere. An error fails the transaction; the rest of the data is to be thrown away.
    pub fn copy_in_data(&mut self, copy: &mut CopyIn, data: &[u8]) -> Result<()> {
        let done = copy.take(&mut self.core, data);
        if done.is_err() {
            self.fail();
        }
        done
    }

    /// CopyDone: writes what is left.
    pub fn copy_in_finish(&mut self, mut copy: Box<CopyIn>) -> Result<Tag> {
        match copy.finish(&mut self.core) {
            Ok(rows) => {
                self.core.engine.end_statement();
                Ok(Tag::Rows("COPY", rows))
            }
            Err(e) => {
                self.fail();
                Err(e)
            }
        }
    }

    /// CopyFail, or the client broke the protocol: the transaction fails. Gives the error to answer with.
    pub fn copy_in_fail(&mut self, copy: Box<CopyIn>, reason: &str) -> Error {
        self.fail();
        let rows = copy.line_number;
        Error::new("57014", format!("COPY from stdin failed: {reason}"))
            .detail(format!("COPY {}, line {rows}", copy.table.name))
    }
}
