//! Running a SELECT: rows are driven from the source through filter, locks, grouping and order into the sink, and may
//! stop and go on at any row.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::aggregate::States;
use super::drive::{Consumer, RowSource, SourceRun, drive_table};
use super::lock::{Locking, kept, kept_columns, to_keep};
use super::profile::StepKey;
use super::sort::{Rows, Sorter};
use super::source::TableCursor;
use crate::api::RowSink;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr, Val};
use crate::plan::{Path, SelectPlan, Source};
use crate::session::Core;

pub use super::drive::Flow;

/// An execution of a plan under way.
pub struct SelectRun {
    snapshot: Snapshot,
    source: SourceRun,
    /// Rows computed as a whole, by grouping or ordering: still to be sent, or to be locked first.
    ready: Option<Rows>,
    to_skip: u64,
    /// Rows that LIMIT still allows.
    left: u64,
    /// The row that was given last, by its ids in the tables of the source, if rows are given as
    /// they are read.
    last: Option<[RowId; 2]>,
}

/// Takes the output rows of a query that feeds another step.
pub type Taker<'t> = dyn FnMut(&mut Core, &[DatumRef<'_>]) -> Result<Flow> + 't;

/// Runs a plan that can give one row at most, found by its key, at once: no run is set up for it. Returns the number
/// of rows; `None` if the plan is not of this kind.
pub fn run_point(
    plan: &SelectPlan,
    core: &mut Core,
    params: &[Datum],
    sink: &mut dyn RowSink,
) -> Result<Option<u64>> {
    let Source::Table(access) = &plan.source else {
        return Ok(None);
    };
    let Path::Index {
        unique: true,
        any_of,
        ..
    } = &access.path
    else {
        return Ok(None);
    };
    let plain = any_of.is_empty()
        && plan.aggregate.is_none()
        && plan.locks.is_empty()
        && plan.limit.is_none()
        && plan.offset.is_none();
    if !plain {
        return Ok(None);
    }
    let snapshot = core.engine.snapshot()?;
    core.enter_step(StepKey::of(access));
    let mut cursor = TableCursor::with_buffer(core.take_row_buffer());
    cursor.open(access, core, &snapshot, &Env { row: &[], params })?;
    let mut sent = 0;
    drive_table(
        &mut cursor,
        access,
        plan,
        core,
        params,
        &snapshot,
        &mut |core, row| {
            sent += 1;
            project(
                &plan.output,
                core,
                &Env {
                    row: row.values,
                    params,
                },
                sink,
            )?;
            Ok(Flow::Stop)
        },
    )?;
    core.put_row_buffer(cursor.into_buffer());
    Ok(Some(sent))
}

impl SelectRun {
    pub fn start(
        plan: &SelectPlan,
        core: &mut Core,
        params: &[Datum],
        snapshot: Snapshot,
    ) -> Result<SelectRun> {
        let env = Env { row: &[], params };
        let left = count(plan.limit.as_ref(), core, &env, "LIMIT")?.unwrap_or(u64::MAX);
        let to_skip = count(plan.offset.as_ref(), core, &env, "OFFSET")?.unwrap_or(0);
        let source = SourceRun::open(plan, core, &env, &snapshot)?;
        Ok(SelectRun {
            snapshot,
            source,
            ready: None,
            to_skip,
            left,
            last: None,
        })
    }

    /// The row of a table from which the row that was given last was made.
    pub fn row_of(&self, plan: &SelectPlan, table: u32) -> Option<RowId> {
        let accesses = plan.source.accesses();
        let place = accesses.iter().position(|a| a.table.oid == table)?;
        self.last.map(|rids| rids[place])
    }

    /// What the whole run reads by.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// Sends up to `max_rows` rows (0: all). Returns how many, and whether there may be more.
    pub fn run(
        &mut self,
        plan: &SelectPlan,
        core: &mut Core,
        params: &[Datum],
        max_rows: usize,
        sink: &mut dyn RowSink,
    ) -> Result<(u64, bool)> {
        let most = if max_rows == 0 {
            u64::MAX
        } else {
            max_rows as u64
        };
        if streams(plan) {
            return self.stream(plan, core, params, most, sink);
        }
        if self.ready.is_none() {
            self.ready = Some(self.compute(plan, core, params)?);
        }
        let Some(ready) = &mut self.ready else {
            return Ok((0, false));
        };
        core.enter_step(plan.computed_by());
        let mut sent = 0;
        while self.left > 0 {
            if sent == most {
                return Ok((sent, true));
            }
            let Some(row) = ready.next_row()? else { break };
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
    pub fn feed(
        &mut self,
        plan: &SelectPlan,
        core: &mut Core,
        params: &[Datum],
        take: &mut Taker<'_>,
    ) -> Result<()> {
        if !streams(plan) {
            let mut rows = self.compute(plan, core, params)?;
            while let Some(row) = rows.next_row()? {
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
        self.each(plan, core, params, &mut |core, row| {
            if to_skip > 0 {
                to_skip -= 1;
                return Ok(Flow::More);
            }
            let env = Env {
                row: row.values,
                params,
            };
            let values = plan
                .output
                .iter()
                .map(|e| e.eval(&env, core))
                .collect::<Result<Vec<Val<'_>>>>()?;
            let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
            left -= 1;
            let flow = take(core, &refs)?;
            Ok(if left == 0 { Flow::Stop } else { flow })
        })?;
        Ok(())
    }

    fn stream(
        &mut self,
        plan: &SelectPlan,
        core: &mut Core,
        params: &[Datum],
        most: u64,
        sink: &mut dyn RowSink,
    ) -> Result<(u64, bool)> {
        let mut sent = 0;
        if self.left == 0 {
            return Ok((0, false));
        }
        let (mut to_skip, mut left, mut last) = (self.to_skip, self.left, self.last);
        let flow = self.each(plan, core, params, &mut |core, row| {
            if to_skip > 0 {
                to_skip -= 1;
                return Ok(Flow::More);
            }
            project(
                &plan.output,
                core,
                &Env {
                    row: row.values,
                    params,
                },
                sink,
            )?;
            sent += 1;
            left -= 1;
            last = Some(row.rids);
            Ok(if sent == most || left == 0 {
                Flow::Stop
            } else {
                Flow::More
            })
        })?;
        (self.to_skip, self.left, self.last) = (to_skip, left, last);
        Ok((sent, flow == Flow::Stop && left > 0))
    }

    /// Brings the source's rows, locked and in order if they are to be, to the consumer.
    fn each(
        &mut self,
        plan: &SelectPlan,
        core: &mut Core,
        params: &[Datum],
        consumer: &mut Consumer<'_>,
    ) -> Result<Flow> {
        let snapshot = self.snapshot;
        if plan.locks.is_empty() {
            return self.source.drive(plan, core, params, &snapshot, consumer);
        }
        let mut locking = Locking::new(plan, params, snapshot);
        if plan.order.is_empty() {
            let lock = &mut |core: &mut Core, row: RowSource<'_>| locking.take(core, row, consumer);
            return self.source.drive(plan, core, params, &snapshot, lock);
        }
        let mut sorted = match self.ready.take() {
            Some(sorted) => sorted,
            None => self.compute(plan, core, params)?,
        };
        let mut flow = Flow::More;
        while flow == Flow::More
            && let Some(row) = sorted.next_row()?
        {
            let values: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
            flow = locking.take(core, kept(&values)?, consumer)?;
        }
        self.ready = Some(sorted);
        Ok(flow)
    }

    /// Reads the whole input of a grouped or ordered query.
    fn compute(&mut self, plan: &SelectPlan, core: &mut Core, params: &[Datum]) -> Result<Rows> {
        let mark = core.mark();
        // Of rows that are still to be locked nobody knows how many that will leave.
        let keep = match plan.locks.is_empty() {
            true => self.left.saturating_add(self.to_skip),
            false => u64::MAX,
        };
        let columns = kept_columns(plan);
        let mut sorter = Sorter::new(core, &plan.order, keep);
        match &plan.aggregate {
            None => {
                self.source
                    .drive(plan, core, params, &self.snapshot, &mut |core, row| {
                        match plan.locks.is_empty() {
                            true => {
                                let row = row.values;
                                let env = Env { row, params };
                                sorter.push(core, &plan.order, &plan.output, &env)?;
                            }
                            false => {
                                let row = &to_keep(row);
                                let env = Env { row, params };
                                sorter.push(core, &plan.order, &columns, &env)?;
                            }
                        }
                        Ok(Flow::More)
                    })?;
            }
            Some(aggregate) => {
                let mut states = States::new(aggregate);
                self.source
                    .drive(plan, core, params, &self.snapshot, &mut |core, row| {
                        let row = row.values;
                        states.add(aggregate, core, &Env { row, params })?;
                        Ok(match states.is_found(aggregate) {
                            true => Flow::Stop,
                            false => Flow::More,
                        })
                    })?;
                core.enter_step(StepKey::of(aggregate));
                let row = states.finish(aggregate)?;
                let values: Vec<DatumRef<'_>> = row.iter().map(Datum::borrow).collect();
                let row = values.as_slice();
                let env = Env { row, params };
                let passes = match &aggregate.having {
                    Some(having) => having.test(&env, core)? == Some(true),
                    None => true,
                };
                if passes {
                    sorter.push(core, &plan.order, &plan.output, &env)?;
                }
                core.measured(StepKey::of(aggregate), mark.clone(), |step| {
                    step.loops += 1;
                    step.rows += u64::from(passes);
                    step.removed += u64::from(!passes);
                });
            }
        }
        core.enter_step(plan.computed_by());
        let rows = sorter.finish()?;
        core.measured(StepKey::of(&plan.order), mark, |step| {
            step.loops += 1;
            step.rows += rows.count();
        });
        Ok(rows)
    }
}

/// Whether rows are projected one by one as they come, be it from a sort whose rows are locked on the way.
fn streams(plan: &SelectPlan) -> bool {
    plan.aggregate.is_none() && (plan.order.is_empty() || !plan.locks.is_empty())
}

/// Evaluates the output columns and hands them to the sink.
pub fn project(
    output: &[Expr],
    core: &mut Core,
    env: &Env<'_>,
    sink: &mut dyn RowSink,
) -> Result<()> {
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
    let values = output
        .iter()
        .map(|e| e.eval(env, core))
        .collect::<Result<Vec<Val<'_>>>>()?;
    let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
    sink.row(&refs)
}

const INLINE_COLUMNS: usize = 16;

pub fn count(
    e: Option<&Expr>,
    core: &mut Core,
    env: &Env<'_>,
    clause: &str,
) -> Result<Option<u64>> {
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
