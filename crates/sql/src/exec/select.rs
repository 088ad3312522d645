//! Running a SELECT: rows are driven from the source through filter, locks, grouping and order into the sink, and may
//! stop and go on at any row.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{LockOutcome, LockWait, Snapshot};

use super::aggregate::Groups;
use super::row::{decode, recycle};
use super::sort::Sorter;
use super::source::TableCursor;
use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr, Val};
use crate::plan::{LockRows, Path, SelectPlan, Source, TableAccess};
use crate::session::Core;

/// An execution of a plan under way.
pub struct SelectRun {
    snapshot: Snapshot,
    source: SourceRun,
    /// Rows computed as a whole, by grouping or ordering: still to be sent.
    ready: Option<std::vec::IntoIter<Vec<Datum>>>,
    to_skip: u64,
    /// Rows that LIMIT still allows.
    left: u64,
}

enum SourceRun {
    One { done: bool },
    Values { at: usize },
    Series { next: Option<i64>, stop: i64, step: i64 },
    Table(TableCursor),
    Loop { outer: TableCursor, inner: TableCursor, inner_open: bool, matched: bool },
}

/// What the consumer of a row wants next.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum Flow {
    More,
    Stop,
}

/// Takes the output rows of a query that feeds another step.
pub type Taker<'t> = dyn FnMut(&mut Core, &[DatumRef<'_>]) -> Result<Flow> + 't;

type Consumer<'c> = dyn FnMut(&mut Core, RowSource<'_>) -> Result<Flow> + 'c;

/// A row on its way: values, and the row id if it is a single table's.
#[derive(Clone, Copy)]
pub struct RowSource<'r> {
    pub values: &'r [DatumRef<'r>],
}

/// Runs a plan that can give one row at most, found by its key, at once: no run is set up for it. Returns the number
/// of rows; `None` if the plan is not of this kind.
pub fn run_point(plan: &SelectPlan, core: &mut Core, params: &[Datum], sink: &mut dyn RowSink) -> Result<Option<u64>> {
    let Source::Table(access) = &plan.source else { return Ok(None) };
    let Path::Index { unique: true, any_of, .. } = &access.path else { return Ok(None) };
    let plain = any_of.is_empty() && plan.aggregate.is_none() && plan.lock.is_none() && plan.limit.is_none() && plan.offset.is_none();
    if !plain {
        return Ok(None);
    }
    let snapshot = core.engine.snapshot()?;
    let mut cursor = TableCursor::with_buffer(core.take_row_buffer());
    cursor.open(access, core, &snapshot, &Env { row: &[], params })?;
    let mut sent = 0;
    drive_table(&mut cursor, access, plan, core, params, &snapshot, &mut |core, row| {
        sent += 1;
        project(&plan.output, core, &Env { row: row.values, params }, sink)?;
        Ok(Flow::Stop)
    })?;
    core.put_row_buffer(cursor.into_buffer());
    Ok(Some(sent))
}

impl SelectRun {
    pub fn start(plan: &SelectPlan, core: &mut Core, params: &[Datum], snapshot: Snapshot) -> Result<SelectRun> {
        let env = Env { row: &[], params };
        let left = count(plan.limit.as_ref(), core, &env, "LIMIT")?.unwrap_or(u64::MAX);
        let to_skip = count(plan.offset.as_ref(), core, &env, "OFFSET")?.unwrap_or(0);
        let source = SourceRun::open(&plan.source, core, &env, &snapshot)?;
        Ok(SelectRun { snapshot, source, ready: None, to_skip, left })
    }

    /// Sends up to `max_rows` rows (0: all). Returns how many, and whether there may be more.
    pub fn run(&mut self, plan: &SelectPlan, core: &mut Core, params: &[Datum], max_rows: usize, sink: &mut dyn RowSink) -> Result<(u64, bool)> {
        let most = if max_rows == 0 { u64::MAX } else { max_rows as u64 };
        if plan.aggregate.is_none() && plan.order.is_empty() {
            return self.stream(plan, core, params, most, sink);
        }
        if self.ready.is_none() {
            self.ready = Some(self.compute(plan, core, params)?.into_iter());
        }
        let Some(ready) = &mut self.ready else { return Ok((0, false)) };
        let mut sent = 0;
        while self.left > 0 {
            if sent == most {
                return Ok((sent, true));
            }
            let Some(row) = ready.next() else { break };
            if self.to_skip > 0 {
                self.to_skip -= 1;
                continue;
            }
            let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
            sink.row(&refs)?;
            self.left -= 1;
            sent += 1;
        }
        Ok((sent, false))
    }

    /// Brings every output row to `take`, which has no client behind it.
    pub fn feed(&mut self, plan: &SelectPlan, core: &mut Core, params: &[Datum], take: &mut Taker<'_>) -> Result<()> {
        if plan.aggregate.is_some() || !plan.order.is_empty() {
            for row in self.compute(plan, core, params)? {
                if self.left == 0 {
                    break;
                }
                if self.to_skip > 0 {
                    self.to_skip -= 1;
                    continue;
                }
                self.left -= 1;
                let refs: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
                take(core, &refs)?;
            }
            return Ok(());
        }
        let (mut to_skip, mut left) = (self.to_skip, self.left);
        if left == 0 {
            return Ok(());
        }
        self.source.drive(plan, core, params, &self.snapshot, &mut |core, row| {
            if to_skip > 0 {
                to_skip -= 1;
                return Ok(Flow::More);
            }
            let env = Env { row: row.values, params };
            let values = plan.output.iter().map(|e| e.eval(&env, core)).collect::<Result<Vec<Val<'_>>>>()?;
            let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
            left -= 1;
            let flow = take(core, &refs)?;
            Ok(if left == 0 { Flow::Stop } else { flow })
        })?;
        Ok(())
    }

    fn stream(&mut self, plan: &SelectPlan, core: &mut Core, params: &[Datum], most: u64, sink: &mut dyn RowSink) -> Result<(u64, bool)> {
        let mut sent = 0;
        if self.left == 0 {
            return Ok((0, false));
        }
        let (mut to_skip, mut left) = (self.to_skip, self.left);
        let flow = self.source.drive(plan, core, params, &self.snapshot, &mut |core, row| {
            if to_skip > 0 {
                to_skip -= 1;
                return Ok(Flow::More);
            }
            project(&plan.output, core, &Env { row: row.values, params }, sink)?;
            sent += 1;
            left -= 1;
            Ok(if sent == most || left == 0 { Flow::Stop } else { Flow::More })
        })?;
        (self.to_skip, self.left) = (to_skip, left);
        Ok((sent, flow == Flow::Stop && left > 0))
    }

    /// Reads the whole input of a grouped or ordered query.
    fn compute(&mut self, plan: &SelectPlan, core: &mut Core, params: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        let keep = self.left.saturating_add(self.to_skip);
        let mut sorter = Sorter::new(&plan.order, keep);
        match &plan.aggregate {
            None => {
                self.source.drive(plan, core, params, &self.snapshot, &mut |core, row| {
                    let env = Env { row: row.values, params };
                    sorter.push(core, &plan.order, &plan.output, &env)?;
                    Ok(Flow::More)
                })?;
            }
            Some(aggregate) => {
                let mut groups = Groups::new(aggregate);
                self.source.drive(plan, core, params, &self.snapshot, &mut |core, row| {
                    groups.add(aggregate, core, &Env { row: row.values, params })?;
                    Ok(Flow::More)
                })?;
                groups.finish(aggregate, |row| {
                    let values: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
                    let env = Env { row: &values, params };
                    if let Some(having) = &aggregate.having
                        && having.test(&env, core)? != Some(true)
                    {
                        return Ok(());
                    }
                    sorter.push(core, &plan.order, &plan.output, &env)
                })?;
            }
        }
        Ok(sorter.finish())
    }
}

/// Evaluates the output columns and hands them to the sink.
pub fn project(output: &[Expr], core: &mut Core, env: &Env<'_>, sink: &mut dyn RowSink) -> Result<()> {
    // Rows of plain columns, the usual case, need no values of their own.
    if output.iter().all(|e| matches!(e, Expr::Column(_))) && output.len() <= INLINE_COLUMNS {
        let mut row = [DatumRef::Null; INLINE_COLUMNS];
        for (slot, e) in row.iter_mut().zip(output) {
            if let Expr::Column(i) = e {
                *slot = env.row[*i];
            }
        }
        return sink.row(&row[..output.len()]);
    }
    let values = output.iter().map(|e| e.eval(env, core)).collect::<Result<Vec<Val<'_>>>>()?;
    let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    sink.row(&refs)
}

const INLINE_COLUMNS: usize = 16;

fn count(e: Option<&Expr>, core: &mut Core, env: &Env<'_>, clause: &str) -> Result<Option<u64>> {
    let Some(e) = e else { return Ok(None) };
    match e.eval(env, core)?.get() {
        DatumRef::Null => Ok(None),
        DatumRef::Int8(n) if n >= 0 => Ok(Some(n as u64)),
        _ => {
            let state = if clause == "LIMIT" { "2201W" } else { "2201X" };
            Err(Error::new(state, format!("{clause} must not be negative")))
        }
    }
}

impl SourceRun {
    fn open(source: &Source, core: &mut Core, env: &Env<'_>, snapshot: &Snapshot) -> Result<SourceRun> {
        Ok(match source {
            Source::One => SourceRun::One { done: false },
            Source::Values(_) => SourceRun::Values { at: 0 },
            Source::Series { start, stop, step, .. } => {
                let start = integer(start, core, env)?;
                let stop = integer(stop, core, env)?;
                let step = integer(step, core, env)?;
                match (start, stop, step) {
                    (_, _, Some(0)) => return Err(Error::new("22023", "step size cannot equal zero")),
                    (Some(start), Some(stop), Some(step)) => SourceRun::Series { next: Some(start), stop, step },
                    _ => SourceRun::Series { next: None, stop: 0, step: 1 },
                }
            }
            Source::Table(access) => {
                let mut cursor = TableCursor::with_buffer(Vec::new());
                cursor.open(access, core, snapshot, env)?;
                SourceRun::Table(cursor)
            }
            Source::Loop { outer, .. } => {
                let mut cursor = TableCursor::with_buffer(Vec::new());
                cursor.open(outer, core, snapshot, env)?;
                SourceRun::Loop { outer: cursor, inner: TableCursor::with_buffer(Vec::new()), inner_open: false, matched: false }
            }
        })
    }

    /// Brings rows to the consumer until it stops, or there are no more.
    fn drive(&mut self, plan: &SelectPlan, core: &mut Core, params: &[Datum], snapshot: &Snapshot, consumer: &mut Consumer<'_>) -> Result<Flow> {
        match (self, &plan.source) {
            (SourceRun::One { done }, _) => {
                if std::mem::replace(done, true) {
                    return Ok(Flow::More);
                }
                pass(plan.filter.as_ref(), core, &[], params, consumer)
            }
            (SourceRun::Values { at }, Source::Values(rows)) => {
                while let Some(row) = rows.get(*at) {
                    *at += 1;
                    let env = Env { row: &[], params };
                    let values = row.iter().map(|e| e.eval(&env, core)).collect::<Result<Vec<_>>>()?;
                    let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
                    if pass(plan.filter.as_ref(), core, &refs, params, consumer)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
                Ok(Flow::More)
            }
            (SourceRun::Series { next, stop, step }, Source::Series { ty, .. }) => {
                while let Some(n) = *next {
                    if if *step > 0 { n > *stop } else { n < *stop } {
                        break;
                    }
                    *next = n.checked_add(*step);
                    let value = if *ty == crate::SqlType::Int4 { DatumRef::Int4(n as i32) } else { DatumRef::Int8(n) };
                    if n & 0xfff == 0 {
                        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                    }
                    if pass(plan.filter.as_ref(), core, &[value], params, consumer)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
                Ok(Flow::More)
            }
            (SourceRun::Table(cursor), Source::Table(access)) => match plan.lock {
                None => drive_table(cursor, access, plan, core, params, snapshot, consumer),
                Some(how) => drive_locked(cursor, access, plan, how, core, params, snapshot, consumer),
            },
            (SourceRun::Loop { outer, inner, inner_open, matched }, Source::Loop { outer: o, inner: i, left }) => {
                let mut state = LoopState { outer, inner, inner_open, matched };
                state.drive(o, i, *left, plan, core, params, snapshot, consumer)
            }
            _ => Err(Error::internal("an execution met another plan's source")),
        }
    }
}

fn integer(e: &Expr, core: &mut Core, env: &Env<'_>) -> Result<Option<i64>> {
    Ok(crate::expr::cast::integer(e.eval(env, core)?.get()))
}

/// The last filter before the consumer.
fn pass(filter: Option<&Expr>, core: &mut Core, values: &[DatumRef<'_>], params: &[Datum], consumer: &mut Consumer<'_>) -> Result<Flow> {
    if !holds(filter, core, &Env { row: values, params })? {
        return Ok(Flow::More);
    }
    consumer(core, RowSource { values })
}

pub fn holds(filter: Option<&Expr>, core: &mut Core, env: &Env<'_>) -> Result<bool> {
    match filter {
        None => Ok(true),
        Some(f) => Ok(f.test(env, core)? == Some(true)),
    }
}

fn drive_table(
    cursor: &mut TableCursor,
    access: &TableAccess,
    plan: &SelectPlan,
    core: &mut Core,
    params: &[Datum],
    snapshot: &Snapshot,
    consumer: &mut Consumer<'_>,
) -> Result<Flow> {
    let columns = &access.table.engine().columns;
    let mut spare: Vec<DatumRef<'static>> = core.take_spare();
    while cursor.next(access, core, snapshot)?.is_some() {
        let mut values = recycle(spare);
        decode(cursor.row(), columns, access.needed, &mut values)?;
        let flow = match holds(access.filter.as_ref(), core, &Env { row: &values, params })? {
            true => pass(plan.filter.as_ref(), core, &values, params, consumer)?,
            false => Flow::More,
        };
        spare = recycle(values);
        if flow == Flow::Stop {
            core.put_spare(spare);
            return Ok(Flow::Stop);
        }
    }
    core.put_spare(spare);
    Ok(Flow::More)
}

/// FOR UPDATE: each row is locked, and if it changed since the snapshot, looked at again as it is now.
#[allow(clippy::too_many_arguments)]
fn drive_locked(
    cursor: &mut TableCursor,
    access: &TableAccess,
    plan: &SelectPlan,
    how: LockRows,
    core: &mut Core,
    params: &[Datum],
    snapshot: &Snapshot,
    consumer: &mut Consumer<'_>,
) -> Result<Flow> {
    let columns = &access.table.engine().columns;
    let wait = match how {
        LockRows::Wait => LockWait::Wait,
        LockRows::NoWait => LockWait::NoWait,
        LockRows::SkipLocked => LockWait::SkipLocked,
    };
    let mut newest = Vec::new();
    while let Some(rid) = cursor.next(access, core, snapshot)? {
        {
            let mut values = Vec::with_capacity(columns.len());
            decode(cursor.row(), columns, access.needed, &mut values)?;
            if !holds(access.filter.as_ref(), core, &Env { row: &values, params })? {
                continue;
            }
        }
        let changed = match lock(core, access, rid, snapshot, wait, &mut newest)? {
            LockOutcome::Locked => false,
            LockOutcome::Changed => true,
            LockOutcome::Gone | LockOutcome::Skipped => continue,
        };
        let bytes = if changed { newest.as_slice() } else { cursor.row() };
        let mut values = Vec::with_capacity(columns.len());
        decode(bytes, columns, columns.len(), &mut values)?;
        if changed && !holds(plan.condition.as_ref(), core, &Env { row: &values, params })? {
            continue;
        }
        if consumer(core, RowSource { values: &values })? == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    Ok(Flow::More)
}

pub fn lock(core: &mut Core, access: &TableAccess, rid: RowId, snapshot: &Snapshot, wait: LockWait, newest: &mut Vec<u8>) -> Result<LockOutcome> {
    core.engine.lock_row(access.table.engine(), rid, snapshot, wait, newest).map_err(|e| match e {
        engine::Error::LockNotAvailable => {
            Error::new("55P03", format!("could not obtain lock on row in relation \"{}\"", access.table.name))
        }
        other => other.into(),
    })
}

struct LoopState<'s> {
    outer: &'s mut TableCursor,
    inner: &'s mut TableCursor,
    inner_open: &'s mut bool,
    matched: &'s mut bool,
}

impl LoopState<'_> {
    #[allow(clippy::too_many_arguments)]
    fn drive(
        &mut self,
        outer: &TableAccess,
        inner: &TableAccess,
        left: bool,
        plan: &SelectPlan,
        core: &mut Core,
        params: &[Datum],
        snapshot: &Snapshot,
        consumer: &mut Consumer<'_>,
    ) -> Result<Flow> {
        let (outer_columns, inner_columns) = (&outer.table.engine().columns, &inner.table.engine().columns);
        let mut spare: Vec<DatumRef<'static>> = Vec::new();
        loop {
            if !*self.inner_open {
                if self.outer.next(outer, core, snapshot)?.is_none() {
                    return Ok(Flow::More);
                }
                let mut values = recycle(spare);
                decode(self.outer.row(), outer_columns, outer.needed, &mut values)?;
                let env = Env { row: &values, params };
                let wanted = holds(outer.filter.as_ref(), core, &env)?;
                if wanted {
                    self.inner.open(inner, core, snapshot, &env)?;
                }
                spare = recycle(values);
                if !wanted {
                    continue;
                }
                (*self.inner_open, *self.matched) = (true, false);
            }
            while self.inner.next(inner, core, snapshot)?.is_some() {
                let mut values = recycle(spare);
                decode(self.outer.row(), outer_columns, outer.needed, &mut values)?;
                decode(self.inner.row(), inner_columns, inner.needed, &mut values)?;
                let mut flow = Flow::More;
                if holds(inner.filter.as_ref(), core, &Env { row: &values, params })? {
                    *self.matched = true;
                    flow = pass(plan.filter.as_ref(), core, &values, params, consumer)?;
                }
                spare = recycle(values);
                if flow == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            *self.inner_open = false;
            if left && !*self.matched {
                let mut values = recycle(spare);
                decode(self.outer.row(), outer_columns, outer.needed, &mut values)?;
                values.resize(outer_columns.len() + inner_columns.len(), DatumRef::Null);
                let flow = pass(plan.filter.as_ref(), core, &values, params, consumer)?;
                spare = recycle(values);
                if flow == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
        }
    }
}
