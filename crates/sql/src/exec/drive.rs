//! Bringing a plan's source rows, filtered, to whoever consumes them. The state lies in [`SourceRun`], so
//! that a consumer may stop at any row and go on later.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::profile::StepKey;
use super::row::{decode, recycle};
use super::source::TableCursor;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr, Val};
use crate::plan::{SelectPlan, Source, TableAccess};
use crate::session::Core;

#[allow(
    clippy::large_enum_variant,
    reason = "one per running statement, never in a collection"
)]
pub enum SourceRun {
    One {
        done: bool,
    },
    Values {
        at: usize,
    },
    Series {
        next: Option<i64>,
        stop: i64,
        step: i64,
    },
    Table(TableCursor),
    Loop {
        outer: TableCursor,
        inner: TableCursor,
        outer_rid: RowId,
        inner_open: bool,
        matched: bool,
    },
}

/// What the consumer of a row wants next.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum Flow {
    More,
    Stop,
}

pub type Consumer<'c> = dyn FnMut(&mut Core, RowSource<'_>) -> Result<Flow> + 'c;

/// A row on its way.
#[derive(Clone, Copy)]
pub struct RowSource<'r> {
    pub values: &'r [DatumRef<'r>],
    /// Of the tables it comes from, if any: of the only or outer one, and of the inner one, which a row of a left join may not have.
    pub rids: [RowId; 2],
}

/// Of a row that comes from no table.
const NO_ROW: RowId = RowId(0);

impl SourceRun {
    pub fn open(
        plan: &SelectPlan,
        core: &mut Core,
        env: &Env<'_>,
        snapshot: &Snapshot,
    ) -> Result<SourceRun> {
        Ok(match &plan.source {
            Source::One => SourceRun::One { done: false },
            Source::Values(_) => SourceRun::Values { at: 0 },
            Source::Series {
                start, stop, step, ..
            } => {
                let start = integer(start, core, env)?;
                let stop = integer(stop, core, env)?;
                let step = integer(step, core, env)?;
                match (start, stop, step) {
                    (_, _, Some(0)) => {
                        return Err(Error::new("22023", "step size cannot equal zero"));
                    }
                    (Some(start), Some(stop), Some(step)) => SourceRun::Series {
                        next: Some(start),
                        stop,
                        step,
                    },
                    _ => SourceRun::Series {
                        next: None,
                        stop: 0,
                        step: 1,
                    },
                }
            }
            Source::Table(access) => {
                // Rows to be locked are about to be changed: their blocks are asked for once.
                let mut cursor = match plan.locks.iter().any(|l| !l.how.lock.is_shared()) {
                    true => TableCursor::to_change(Vec::new()),
                    false => TableCursor::with_buffer(Vec::new()),
                };
                cursor.open(access, core, snapshot, env)?;
                SourceRun::Table(cursor)
            }
            Source::Loop { outer, .. } => {
                let mut cursor = TableCursor::with_buffer(Vec::new());
                cursor.open(outer, core, snapshot, env)?;
                SourceRun::Loop {
                    outer: cursor,
                    inner: TableCursor::with_buffer(Vec::new()),
                    outer_rid: NO_ROW,
                    inner_open: false,
                    matched: false,
                }
            }
        })
    }

    /// Brings rows to the consumer until it stops, or there are no more.
    pub fn drive(
        &mut self,
        plan: &SelectPlan,
        core: &mut Core,
        params: &[Datum],
        snapshot: &Snapshot,
        consumer: &mut Consumer<'_>,
    ) -> Result<Flow> {
        match (self, &plan.source) {
            (SourceRun::One { done }, _) => {
                if std::mem::replace(done, true) {
                    return Ok(Flow::More);
                }
                pass(plan, core, (&[], [NO_ROW; 2]), params, consumer)
            }
            (SourceRun::Values { at }, Source::Values(rows)) => {
                while let Some(row) = rows.get(*at) {
                    *at += 1;
                    let env = Env { row: &[], params };
                    let values = row
                        .iter()
                        .map(|e| e.eval(&env, core))
                        .collect::<Result<Vec<_>>>()?;
                    let refs: Vec<DatumRef<'_>> = values.iter().map(Val::get).collect();
                    if pass(plan, core, (&refs, [NO_ROW; 2]), params, consumer)? == Flow::Stop {
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
                    let value = if *ty == crate::SqlType::Int4 {
                        DatumRef::Int4(n as i32)
                    } else {
                        DatumRef::Int8(n)
                    };
                    if is_to_look_up(n, *step) {
                        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
                    }
                    if pass(plan, core, (&[value], [NO_ROW; 2]), params, consumer)? == Flow::Stop {
                        return Ok(Flow::Stop);
                    }
                }
                Ok(Flow::More)
            }
            (SourceRun::Table(cursor), Source::Table(access)) => {
                drive_table(cursor, access, plan, core, params, snapshot, consumer)
            }
            (
                SourceRun::Loop {
                    outer,
                    inner,
                    outer_rid,
                    inner_open,
                    matched,
                },
                Source::Loop {
                    outer: o,
                    inner: i,
                    left,
                },
            ) => {
                let mut state = LoopState {
                    outer,
                    inner,
                    outer_rid,
                    inner_open,
                    matched,
                };
                state.drive(o, i, *left, plan, core, params, snapshot, consumer)
            }
            _ => Err(Error::internal("an execution met another plan's source")),
        }
    }
}

/// Whether a series looks at its value `n` whether it is cancelled: every 4,096 values, whatever
/// the step. (The quotient moves by one with each value.)
pub fn is_to_look_up(n: i64, step: i64) -> bool {
    n.wrapping_div(step) & 0xfff == 0
}

fn integer(e: &Expr, core: &mut Core, env: &Env<'_>) -> Result<Option<i64>> {
    Ok(crate::expr::cast::integer(e.eval(env, core)?.get()))
}

/// The last filter before the consumer.
fn pass(
    plan: &SelectPlan,
    core: &mut Core,
    (values, rids): (&[DatumRef<'_>], [RowId; 2]),
    params: &[Datum],
    consumer: &mut Consumer<'_>,
) -> Result<Flow> {
    if !holds(
        plan.filter.as_ref(),
        core,
        &Env {
            row: values,
            params,
        },
    )? {
        return Ok(Flow::More);
    }
    consumer(core, RowSource { values, rids })
}

pub fn holds(filter: Option<&Expr>, core: &mut Core, env: &Env<'_>) -> Result<bool> {
    match filter {
        None => Ok(true),
        Some(f) => f.holds(env, core),
    }
}

/// Whether a row meets the filter of the access it came by.
pub fn passes(access: &TableAccess, core: &mut Core, env: &Env<'_>) -> Result<bool> {
    let passes = holds(access.filter.as_ref(), core, env)?;
    if !passes {
        core.refused_row(StepKey::of(access));
    }
    Ok(passes)
}

pub fn drive_table(
    cursor: &mut TableCursor,
    access: &TableAccess,
    plan: &SelectPlan,
    core: &mut Core,
    params: &[Datum],
    snapshot: &Snapshot,
    consumer: &mut Consumer<'_>,
) -> Result<Flow> {
    let def = access.table.engine();
    core.enter_step(StepKey::of(access));
    let mut spare: Vec<DatumRef<'static>> = core.take_spare();
    while let Some(rid) = cursor.next(access, core, snapshot)? {
        let mut values = recycle(spare);
        decode(cursor.row(), def, access.needed, &mut values)?;
        let flow = match passes(
            access,
            core,
            &Env {
                row: &values,
                params,
            },
        )? {
            true => pass(plan, core, (&values, [rid, NO_ROW]), params, consumer)?,
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

struct LoopState<'s> {
    outer: &'s mut TableCursor,
    inner: &'s mut TableCursor,
    outer_rid: &'s mut RowId,
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
        let (outer_columns, inner_columns) =
            (&outer.table.engine().columns, &inner.table.engine().columns);
        let mut spare: Vec<DatumRef<'static>> = Vec::new();
        loop {
            if !*self.inner_open {
                core.enter_step(StepKey::of(outer));
                match self.outer.next(outer, core, snapshot)? {
                    None => return Ok(Flow::More),
                    Some(rid) => *self.outer_rid = rid,
                }
                let mut values = recycle(spare);
                decode(
                    self.outer.row(),
                    outer.table.engine(),
                    outer.needed,
                    &mut values,
                )?;
                let env = Env {
                    row: &values,
                    params,
                };
                let wanted = passes(outer, core, &env)?;
                if wanted {
                    core.enter_step(StepKey::of(inner));
                    self.inner.open(inner, core, snapshot, &env)?;
                }
                spare = recycle(values);
                if !wanted {
                    continue;
                }
                (*self.inner_open, *self.matched) = (true, false);
            }
            while let Some(rid) = self.inner.next(inner, core, snapshot)? {
                let mut values = recycle(spare);
                decode(
                    self.outer.row(),
                    outer.table.engine(),
                    outer.needed,
                    &mut values,
                )?;
                decode(
                    self.inner.row(),
                    inner.table.engine(),
                    inner.needed,
                    &mut values,
                )?;
                let mut flow = Flow::More;
                if passes(
                    inner,
                    core,
                    &Env {
                        row: &values,
                        params,
                    },
                )? {
                    *self.matched = true;
                    let rids = [*self.outer_rid, rid];
                    flow = pass(plan, core, (&values, rids), params, consumer)?;
                }
                spare = recycle(values);
                if flow == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            *self.inner_open = false;
            if left && !*self.matched {
                let mut values = recycle(spare);
                decode(
                    self.outer.row(),
                    outer.table.engine(),
                    outer.needed,
                    &mut values,
                )?;
                values.resize(outer_columns.len() + inner_columns.len(), DatumRef::Null);
                let rids = [*self.outer_rid, NO_ROW];
                let flow = pass(plan, core, (&values, rids), params, consumer)?;
                spare = recycle(values);
                if flow == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
        }
    }
}
