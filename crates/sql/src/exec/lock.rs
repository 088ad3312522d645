//! FOR UPDATE and its kin.
//!
//! As in PostgreSQL, rows are locked after they were sorted and before LIMIT counts them: one by one, as whoever asks for rows takes them. One that has changed
//! since the snapshot is judged by the condition again as it is now, and is given on so, at the place in the order that its old version had.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{LockOutcome, LockWait, RowLock, Snapshot};

use super::drive::{Consumer, Flow, RowSource, holds};
use super::row::decode;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr};
use crate::plan::{LockRows, SelectPlan};
use crate::session::Core;

/// Locks rows on their way to a consumer.
pub struct Locking<'p> {
    plan: &'p SelectPlan,
    params: &'p [Datum],
    snapshot: Snapshot,
    /// Of each table, the row's newest version, if that is another one.
    newest: [Vec<u8>; 2],
}

impl<'p> Locking<'p> {
    pub fn new(plan: &'p SelectPlan, params: &'p [Datum], snapshot: Snapshot) -> Locking<'p> {
        Locking {
            plan,
            params,
            snapshot,
            newest: Default::default(),
        }
    }

    /// Locks a row and gives it on, unless it is gone, to be skipped, or no longer what was asked for.
    pub fn take(
        &mut self,
        core: &mut Core,
        row: RowSource<'_>,
        consumer: &mut Consumer<'_>,
    ) -> Result<Flow> {
        let accesses = self.plan.source.accesses();
        let mut changed = [false; 2];
        for l in &self.plan.locks {
            let (rid, newest) = (row.rids[l.place], &mut self.newest[l.place]);
            match lock(
                core,
                &accesses[l.place].table,
                rid,
                &self.snapshot,
                (l.how.lock, wait_of(l.how.how)),
                newest,
            )? {
                LockOutcome::Locked => {}
                LockOutcome::Changed => changed[l.place] = true,
                LockOutcome::Gone | LockOutcome::Skipped => return Ok(Flow::More),
            }
        }
        if changed == [false; 2] {
            return consumer(core, row);
        }
        let mut values = row.values.to_vec();
        for (place, access) in accesses.into_iter().enumerate() {
            if changed[place] {
                let def = access.table.engine();
                let mut own = Vec::with_capacity(def.columns.len());
                decode(&self.newest[place], def, def.columns.len(), &mut own)?;
                values[access.offset..][..own.len()].copy_from_slice(&own);
            }
        }
        let env = Env {
            row: &values,
            params: self.params,
        };
        if !holds(self.plan.condition.as_ref(), core, &env)? {
            return Ok(Flow::More);
        }
        let row = RowSource {
            values: &values,
            rids: row.rids,
        };
        consumer(core, row)
    }
}

/// What a row that is sorted before it is locked is kept as: its columns, and its row ids.
pub fn kept_columns(plan: &SelectPlan) -> Vec<Expr> {
    (0..plan.source.width() + 2).map(Expr::Column).collect()
}

/// The row of which [`kept_columns`] are the columns.
pub fn to_keep<'r>(row: RowSource<'r>) -> Vec<DatumRef<'r>> {
    let rids = row.rids.map(|rid| DatumRef::Int8(rid.0 as i64));
    row.values.iter().copied().chain(rids).collect()
}

/// The row back again.
pub fn kept<'r>(values: &'r [DatumRef<'r>]) -> Result<RowSource<'r>> {
    match values.split_last_chunk::<2>() {
        Some((values, &[DatumRef::Int8(outer), DatumRef::Int8(inner)])) => Ok(RowSource {
            values,
            rids: [RowId(outer as u64), RowId(inner as u64)],
        }),
        _ => Err(Error::internal(
            "a row to be locked came back without its id",
        )),
    }
}

pub fn wait_of(how: LockRows) -> LockWait {
    match how {
        LockRows::Wait => LockWait::Wait,
        LockRows::NoWait => LockWait::NoWait,
        LockRows::SkipLocked => LockWait::SkipLocked,
    }
}

pub fn lock(
    core: &mut Core,
    table: &Table,
    rid: RowId,
    snapshot: &Snapshot,
    how: (RowLock, LockWait),
    newest: &mut Vec<u8>,
) -> Result<LockOutcome> {
    core.engine
        .lock_row(table.engine(), rid, snapshot, how, newest)
        .map_err(|e| match e {
            engine::Error::LockNotAvailable => Error::new(
                "55P03",
                format!(
                    "could not obtain lock on row in relation \"{}\"",
                    table.name
                ),
            ),
            other => other.into(),
        })
}
