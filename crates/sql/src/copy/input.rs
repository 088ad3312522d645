//! COPY FROM STDIN: lines to rows, rows to the engine in bulk.

use std::sync::Arc;

use block::value::{Datum, DatumRef};
use charset::Encoding;
use wait::longop::{LongOp, Target as About};

use super::lines::{Fields, Lines, NullRules};
use super::output::{chosen_columns, flags};
use super::{binary, filter};
use crate::api::Tag;
use crate::bind::{ParamTypes, names};
use crate::dict::trigger::Op;
use crate::dict::{Relation, Table, View};
use crate::error::{Error, Result};
use crate::exec::checks::check_row;
use crate::exec::dml::BulkRows;
use crate::exec::events::{self, Cause};
use crate::exec::foreign;
use crate::exec::generated;
use crate::exec::row::recycle;
use crate::exec::triggers::{self, Before};
use crate::expr::{Env, Expr, Val};
use crate::parse::utility::TableLock;
use crate::parse::{CopyFormat, CopyHeader, CopyOptions, CopySpec, CopyWhat};
use crate::pgtype;
use crate::plan::{Planner, RowRules};
use crate::session::{Core, SqlSession, Timer};
use crate::types::SqlType;

/// Characters of a line or value shown with an error, as PostgreSQL has it.
const MAX_SHOWN_CHARS: usize = 100;

/// A COPY FROM under way.
pub struct CopyIn {
    lines: Lines,
    /// In their place, if the data is binary.
    binary: Option<binary::Rows>,
    input: Input,
    /// None of a view, whose rows its triggers take.
    bulk: Option<BulkRows>,
    /// Encoding of the data.
    encoding: Encoding,
    /// The statement's time runs until its data ends.
    timer: Option<Timer>,
    work: LongOp,
    rows: u64,
    /// The end marker of the old protocol was read: what follows is ignored.
    ended: bool,
}

/// What makes a row of a line.
struct Input {
    table: Arc<Table>,
    options: CopyOptions,
    /// Where each field goes.
    targets: Vec<Target>,
    nulls: NullRules,
    /// Values of columns that are not in the data.
    defaults: Vec<(usize, Expr)>,
    /// WHERE: rows of which it is not true are left out.
    condition: Option<Expr>,
    rules: RowRules,
    fields: Fields,
    /// Memory of the last row, without values.
    values: Vec<Val<'static>>,
    refs: Vec<DatumRef<'static>>,
}

/// Whether a row was stored, and memory for the next one.
type Stored = (bool, Vec<DatumRef<'static>>);

struct Target {
    column: usize,
    ty: SqlType,
    typmod: i32,
}

/// Refuses COPY FROM where row-level security would ask something of each row, as PostgreSQL does.
fn refuse_secured(core: &Core, table: &Table) -> Result<()> {
    let dict = core.dict();
    let params = ParamTypes::none(&dict);
    let needs = &params.needs;
    needs.run_by(core.roles.current, core.settings.hot().row_security);
    match needs.policies_of(&dict, table)? {
        None => Ok(()),
        Some(_) => {
            let message = "COPY FROM not supported with row-level security";
            Err(Error::new("0A000", message).hint("Use INSERT statements instead."))
        }
    }
}

impl CopyIn {
    /// The format of each column: 0 for text, 1 for binary.
    pub fn formats(&self) -> Vec<i16> {
        vec![i16::from(self.binary.is_some()); self.input.targets.len()]
    }

    pub(crate) fn begin(core: &mut Core, spec: &CopySpec) -> Result<CopyIn> {
        let CopyWhat::Table { name, columns } = &spec.what else {
            return Err(Error::internal("COPY FROM a query"));
        };
        let table = core
            .locked_relation(name, TableLock::RowExclusive, false, |found| match found {
                Relation::Table(table) if table.materialized.is_some() => {
                    let message = format!("cannot copy to materialized view \"{}\"", table.name);
                    Err(Error::new("42809", message))
                }
                Relation::Table(table) => Ok(Some(table.clone())),
                Relation::View(view) => into_view(view).map(Some),
                _ => Ok(None),
            })?
            .ok_or_else(|| names::no_relation(name))?;
        if !core.dict().is_temporary(table.schema) {
            core.refuse_if_read_only("COPY FROM")?;
        }
        if spec.options.freeze && !core.is_own_segment(&table) {
            return Err(Error::new(
                "55000",
                "cannot perform COPY FREEZE because the table was not created or truncated in the current subtransaction",
            ));
        }
        let columns = chosen_columns(&table, columns)?;
        core.check_insert(&table, &columns)?;
        refuse_secured(core, &table)?;
        let dict = core.dict();
        let params = ParamTypes::none(&dict);
        let planner = Planner::alone(&dict, &params);
        let mut defaults = Vec::new();
        for (at, c) in table.columns.iter().enumerate() {
            if !columns.contains(&at) {
                defaults.push((at, planner.default(c)?));
            }
        }
        let rules = planner.rules_of_input(&table)?.given_columns(&columns);
        let target = |&column: &usize| Target {
            column,
            ty: table.columns[column].ty(),
            typmod: table.columns[column].typmod,
        };
        let targets = columns.iter().map(target).collect();
        let o = &spec.options;
        let nulls = NullRules {
            force_null: flags(&table, &columns, o.force_null.as_ref(), "FORCE_NULL")?,
            force_not_null: flags(
                &table,
                &columns,
                o.force_not_null.as_ref(),
                "FORCE_NOT_NULL",
            )?,
        };
        let condition = spec.condition.as_ref();
        let condition = condition.map(|c| filter::bind(&dict, &table, c));
        let condition = condition.transpose()?;
        triggers::statement(core, &table, Cause::of(Op::Insert), true)?;
        Ok(CopyIn {
            lines: Lines::new(o),
            binary: o.binary.then(binary::Rows::new),
            bulk: match core.dict().view_by_oid(table.oid) {
                None => Some(BulkRows::new(&table)),
                Some(_) => None,
            },
            encoding: o.encoding.unwrap_or(core.io.encoding),
            timer: None,
            work: LongOp::begin("Copy", About::Object(table.segment), 0, "Rows"),
            rows: 0,
            ended: false,
            input: Input {
                options: o.clone(),
                targets,
                nulls,
                defaults,
                condition,
                rules,
                fields: Fields::default(),
                values: Vec::new(),
                refs: Vec::new(),
                table,
            },
        })
    }

    /// The timer of the statement, which is over when its data is.
    pub(crate) fn keep_timer(&mut self, timer: Timer) {
        self.timer = Some(timer);
    }

    fn explain(&self, e: Error) -> Error {
        match &self.timer {
            Some(timer) => timer.explain(e),
            None => e,
        }
    }

    pub(super) fn take(&mut self, core: &mut Core, data: &[u8]) -> Result<()> {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        self.work.set(self.rows);
        if let Some(rows) = &mut self.binary {
            rows.push(data)?;
            return self.whole_rows(core);
        }
        if !self.encoding.converts() {
            self.lines.push(data)?;
            return self.whole_lines(core);
        }
        let mut text = String::new();
        let converted = self.encoding.decode_prefix(data, &mut text);
        self.lines.push(text.as_bytes())?;
        self.whole_lines(core)?;
        // The lines before it are good; none of what stands behind the old end marker is looked at.
        match converted {
            Err(e) if !self.ended => Err(self.input.at(e.into(), self.lines.number() + 1)),
            _ => Ok(()),
        }
    }

    fn whole_rows(&mut self, core: &mut Core) -> Result<()> {
        let Some(rows) = &mut self.binary else {
            return Ok(());
        };
        loop {
            match rows.next(self.input.targets.len()) {
                Ok(true) => {
                    let made = self.input.binary_row(core, rows, self.bulk.as_mut())?;
                    self.rows += u64::from(made);
                }
                Ok(false) => return Ok(()),
                Err(wrong) => return Err(self.input.of_field(wrong, rows.number())),
            }
        }
    }

    fn whole_lines(&mut self, core: &mut Core) -> Result<()> {
        while let Some(line) = self.lines.next() {
            let checked = self.lines.check_end();
            checked.map_err(|e| self.input.at(e, self.lines.number()))?;
            self.line(core, line)?;
        }
        Ok(())
    }

    fn line(&mut self, core: &mut Core, (from, to): (usize, usize)) -> Result<()> {
        let number = self.lines.number();
        let line = &self.lines.bytes()[from..to];
        if self.ended {
            return Ok(());
        }
        if number == 1 && self.input.options.header != CopyHeader::No {
            return self.input.header(line).map_err(|e| self.input.at(e, 1));
        }
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        if self.input.options.format == CopyFormat::Text && line.starts_with(b"\\.") {
            let e = Error::new("22P04", "end-of-copy marker corrupt");
            return Err(self.input.at(e, number));
        }
        let made = self.input.row(core, line, number, self.bulk.as_mut())?;
        self.rows += u64::from(made);
        Ok(())
    }

    pub(super) fn finish(&mut self, core: &mut Core) -> Result<u64> {
        if self.lines.in_quote() {
            let e = Error::new("22P04", "unterminated CSV quoted field");
            let line = self.lines.unfinished();
            let line = line.map_or(&[][..], |(from, to)| &self.lines.bytes()[from..to]);
            return Err(self.input.shown(e, line, self.lines.number()));
        }
        if let Some(line) = self.lines.rest() {
            self.line(core, line)?;
        }
        if let Some(rows) = &mut self.binary {
            let end = rows.end();
            end.map_err(|wrong| self.input.of_field(wrong, rows.number()))?;
        }
        if let Some(bulk) = &mut self.bulk {
            let done = bulk.finish(&self.input.table, core);
            done.map_err(|(e, line)| self.input.at(e, line))?;
        }
        triggers::statement(core, &self.input.table, Cause::of(Op::Insert), false)?;
        foreign::fire(core)?;
        Ok(self.rows)
    }
}

impl Input {
    /// Reads a line, checks the row, and gives it to the engine; false if it is left out.
    fn row(
        &mut self,
        core: &mut Core,
        line: &[u8],
        number: u64,
        bulk: Option<&mut BulkRows>,
    ) -> Result<bool> {
        // Before anything is made of it: bytes that were escaped are looked at below.
        let plain = pgtype::utf8(line).map_err(|e| self.at(e, number))?;
        let done = self.fields.split(line, &self.options, &self.nulls);
        done.map_err(|e| self.shown(e, line, number))?;
        let given = self.fields.ranges.len();
        if given > self.targets.len() {
            let e = Error::new("22P04", "extra data after last expected column");
            return Err(self.shown(e, line, number));
        }
        let source = self.fields.source(line);
        // Delimiters are ASCII: what lies between them in good text is good text.
        let whole = match std::ptr::eq(source, line) {
            true => plain,
            false => pgtype::utf8(source).map_err(|e| self.shown(e, line, number))?,
        };
        let mut values = recycle_values(std::mem::take(&mut self.values));
        values.resize(self.table.columns.len(), Val::NULL);
        for (range, target) in self.fields.ranges.iter().zip(&self.targets) {
            let Some((from, to)) = *range else { continue };
            let text = &whole[from..to];
            read_field(&mut values[target.column], target, text, core).map_err(|e| {
                let name = &self.table.columns[target.column].name;
                e.context_if_none(format!(
                    "COPY {}, line {number}, column {name}: \"{}\"",
                    self.table.name,
                    cut(text)
                ))
            })?;
        }
        if let Some(missing) = self.targets.get(given) {
            let name = &self.table.columns[missing.column].name;
            let message = format!("missing data for column \"{name}\"");
            return Err(self.shown(Error::new("22P04", message), line, number));
        }
        let refs = std::mem::take(&mut self.refs);
        let stored = self.store(core, &mut values, refs, (Some(line), number), bulk)?;
        self.values = recycle_values(values);
        Ok(self.is_made(stored))
    }

    /// Reads a row of a binary file, and does with it as [`Input::row`].
    fn binary_row(
        &mut self,
        core: &mut Core,
        rows: &binary::Rows,
        bulk: Option<&mut BulkRows>,
    ) -> Result<bool> {
        let mut values = recycle_values(std::mem::take(&mut self.values));
        values.resize(self.table.columns.len(), Val::NULL);
        for (at, (range, target)) in rows.fields.iter().zip(&self.targets).enumerate() {
            let Some((from, to)) = *range else { continue };
            let bytes = &rows.bytes()[from..to];
            read_binary(&mut values[target.column], target, bytes, core)
                .map_err(|e| self.of_field((e, Some(at)), rows.number()))?;
        }
        let refs = std::mem::take(&mut self.refs);
        let stored = self.store(core, &mut values, refs, (None, rows.number()), bulk)?;
        self.values = recycle_values(values);
        Ok(self.is_made(stored))
    }

    /// Keeps the memory of a row; whether there was one.
    fn is_made(&mut self, (made, refs): Stored) -> bool {
        self.refs = refs;
        made
    }

    /// Checks a row of which the columns of the data are read, and gives it to the engine; false if
    /// the condition or a trigger leaves it out.
    fn store<'v>(
        &'v self,
        core: &mut Core,
        values: &mut [Val<'v>],
        refs: Vec<DatumRef<'static>>,
        (line, number): (Option<&[u8]>, u64),
        bulk: Option<&mut BulkRows>,
    ) -> Result<Stored> {
        for (at, e) in &self.defaults {
            values[*at] = e.eval(&Env::EMPTY, core)?;
        }
        let changed;
        let mut made = Vec::new();
        let mut refs = recycle(refs);
        refs.extend(values.iter().map(Val::get));
        if let Some(condition) = &self.condition {
            let env = Env {
                row: &refs,
                params: &[],
            };
            let met = condition.test(&env, core);
            if met.map_err(|e| self.placed(e, line, number))? != Some(true) {
                return Ok((false, recycle(refs)));
            }
        }
        let Some(bulk) = bulk else {
            let cause = Cause::of(Op::Insert);
            triggers::instead_of(core, &self.table, cause, None, Some(&refs))
                .map_err(|e| self.placed(e, line, number))?;
            return Ok((true, recycle(refs)));
        };
        match triggers::before_row(core, &self.table, Cause::of(Op::Insert), None, Some(&refs))
            .map_err(|e| self.placed(e, line, number))?
        {
            Before::Same => {}
            Before::Skip => {
                return Ok((false, recycle(refs)));
            }
            Before::Row(now) => {
                changed = now;
                refs.clear();
                refs.extend(changed.iter().map(Datum::borrow));
            }
        }
        generated::fill(&self.rules, core, &mut refs, &mut made)
            .map_err(|e| self.placed(e, line, number))?;
        if !self.rules.is_empty() {
            check_row(&self.table, &self.rules, core, &refs)
                .map_err(|e| self.placed(e, line, number))?;
        }
        bulk.push(&self.table, core, &refs, number)
            .map_err(|(e, line)| self.at(e, line))?;
        events::inserted(core, &self.table, &refs).map_err(|e| self.at(e, number))?;
        Ok((true, recycle(refs)))
    }

    /// Says at which line something went wrong, and shows it.
    fn shown(&self, e: Error, line: &[u8], number: u64) -> Error {
        let text = String::from_utf8_lossy(line);
        e.context_if_none(format!(
            "COPY {}, line {number}: \"{}\"",
            self.table.name,
            cut(&text)
        ))
    }

    /// The same, if there is a line to be shown.
    fn placed(&self, e: Error, line: Option<&[u8]>, number: u64) -> Error {
        match line {
            Some(line) => self.shown(e, line, number),
            None => self.at(e, number),
        }
    }

    /// Says at which field of which row something went wrong.
    fn of_field(&self, (e, field): binary::OfField, number: u64) -> Error {
        let target = field.and_then(|at| self.targets.get(at));
        let Some(target) = target else {
            return self.at(e, number);
        };
        let name = &self.table.columns[target.column].name;
        let table = &self.table.name;
        e.context_if_none(format!("COPY {table}, line {number}, column {name}"))
    }

    /// The line of names: ignored, or compared.
    fn header(&mut self, line: &[u8]) -> Result<()> {
        if self.options.header != CopyHeader::Match {
            return Ok(());
        }
        self.fields.split(line, &self.options, &self.nulls)?;
        let (given, wanted) = (self.fields.ranges.len(), self.targets.len());
        if given != wanted {
            let e = Error::new(
                "22P04",
                format!("wrong number of fields in header line: got {given}, expected {wanted}"),
            );
            return Err(self.shown(e, line, 1));
        }
        let source = self.fields.source(line);
        let fields = self.fields.ranges.iter().zip(&self.targets);
        for (n, (range, target)) in (1..).zip(fields) {
            let name = &self.table.columns[target.column].name;
            let got = match *range {
                None => None,
                Some((from, to)) => Some(pgtype::utf8(&source[from..to])?),
            };
            if got != Some(name) {
                let got = match got {
                    Some(got) => format!("got \"{got}\""),
                    None => format!("got null value (\"{}\")", self.options.null),
                };
                return Err(Error::new(
                    "22P04",
                    format!(
                        "column name mismatch in header line field {n}: {got}, expected \"{name}\""
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Says at which line something went wrong; zero: at none.
    fn at(&self, e: Error, line: u64) -> Error {
        if line == 0 {
            return e;
        }
        e.context_if_none(format!("COPY {}, line {line}", self.table.name))
    }
}

/// A view as the table whose rows its triggers take.
fn into_view(view: &Arc<View>) -> Result<Arc<Table>> {
    if view.triggers.iter().any(|t| t.is_instead(Op::Insert)) {
        return Ok(Arc::new(view.as_table()));
    }
    let message = format!("cannot copy to view \"{}\"", view.name);
    let hint = "To enable copying to a view, provide an INSTEAD OF INSERT trigger.";
    Err(Error::new("42809", message).hint(hint))
}

/// Reads a field that is not NULL. Values of the common types are made where they stay: one that is handed on through a `Result<Val>` is copied in other pieces
/// than it was stored in, which was a seventh of a load's time.
fn read_field<'t>(slot: &mut Val<'t>, target: &Target, text: &'t str, core: &Core) -> Result<()> {
    let limit = usize::try_from(target.typmod - 4).ok();
    *slot = match target.ty {
        SqlType::Int4 => Val::Ref(DatumRef::Int4(pgtype::parse_integer(text)?)),
        SqlType::Int8 => Val::Ref(DatumRef::Int8(pgtype::parse_integer(text)?)),
        SqlType::Float8 => Val::Ref(DatumRef::Float8(pgtype::parse_float8(text)?)),
        SqlType::Text | SqlType::Varchar | SqlType::Char if limit.is_none() => {
            Val::Ref(DatumRef::Text(text))
        }
        // Short enough by its bytes alone.
        SqlType::Varchar if limit.is_some_and(|l| text.len() <= l) => {
            Val::Ref(DatumRef::Text(text))
        }
        _ => {
            let value: Datum = pgtype::text_in_typmod(target.ty, target.typmod, text, &core.io)?;
            Val::Own(if target.typmod >= 0 {
                pgtype::apply_typmod(target.ty, target.typmod, value, false)?
            } else {
                value
            })
        }
    };
    Ok(())
}

/// The same of a binary field.
fn read_binary<'t>(
    slot: &mut Val<'t>,
    target: &Target,
    bytes: &'t [u8],
    core: &Core,
) -> Result<()> {
    let encoding = core.io.encoding;
    *slot = match (target.ty, bytes) {
        (SqlType::Int4, [a, b, c, d]) => {
            Val::Ref(DatumRef::Int4(i32::from_be_bytes([*a, *b, *c, *d])))
        }
        (SqlType::Text | SqlType::Varchar, _) if target.typmod < 0 && !encoding.converts() => {
            Val::Ref(DatumRef::Text(pgtype::utf8(bytes)?))
        }
        _ => {
            let value = pgtype::binary_in(target.ty, bytes, encoding)?;
            Val::Own(match target.typmod >= 0 {
                true => pgtype::apply_typmod(target.ty, target.typmod, value, false)?,
                false => value,
            })
        }
    };
    Ok(())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}

/// As [`recycle`] for values that may be their own.
fn recycle_values<'a, 'b>(mut values: Vec<Val<'a>>) -> Vec<Val<'b>> {
    values.clear();
    values.into_iter().map(|_| Val::NULL).collect()
}

impl SqlSession {
    /// A piece of the data, cut anywhere. An error fails the transaction; the rest of the data is to be thrown away.
    pub fn copy_in_data(&mut self, copy: &mut CopyIn, data: &[u8]) -> Result<()> {
        let done = copy.take(&mut self.core, data).map_err(|e| copy.explain(e));
        if let Err(e) = &done {
            self.failed_by(e);
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
                let e = copy.explain(e);
                self.failed_by(&e);
                Err(e)
            }
        }
    }

    /// CopyFail, or the client broke the protocol: the transaction fails. Gives the error to answer with.
    pub fn copy_in_fail(&mut self, copy: Box<CopyIn>, reason: &str) -> Error {
        self.fail();
        let number = match &copy.binary {
            Some(rows) => rows.number() + 1,
            None => copy.lines.number() + 1,
        };
        copy.input.at(
            Error::new("57014", format!("COPY from stdin failed: {reason}")),
            number,
        )
    }
}
