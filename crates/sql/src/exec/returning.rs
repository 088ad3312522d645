//! RETURNING: what a statement gives of the rows that it has written.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::over::run_over;
use super::select::project;
use crate::api::RowSink;
use crate::dict::Table;
use crate::error::{Error, Result};
use crate::expr::{Env, Expr};
use crate::plan::SuppliedWrite;
use crate::query::Run;
use crate::query::analyze::system::SystemColumn;
use crate::session::Core;

/// The list, over the row, and over what the table has besides if that is asked for.
#[derive(Clone, Debug)]
pub struct Returning {
    pub exprs: Vec<Expr>,
    /// Where the system columns begin, after which comes `xmax`. `None`: none is asked for.
    pub system: Option<usize>,
}

/// What was done to a row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wrote {
    /// It is new, or another version, or gone.
    Row,
    /// ON CONFLICT has locked it, and then given it another version.
    Conflicting,
}

/// A row that was written.
#[derive(Clone, Copy)]
pub struct Written<'w> {
    pub table: &'w Table,
    pub rid: RowId,
    pub wrote: Wrote,
}

impl Returning {
    /// Gives what is asked for of a row.
    pub fn give(
        &self,
        written: Written<'_>,
        core: &mut Core,
        row: &[DatumRef<'_>],
        params: &[Datum],
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let Some(system) = self.system else {
            return project(&self.exprs, core, &Env { row, params }, sink);
        };
        let Written { table, rid, wrote } = written;
        let mut values = Vec::with_capacity(SystemColumn::ALL.len() + 1);
        for column in SystemColumn::ALL {
            values.push(column.value(core, table, rid, None)?);
        }
        // PostgreSQL puts the lock there. Clients tell an update from an insertion by it.
        values.push(match wrote {
            Wrote::Row => Datum::Int8(0),
            Wrote::Conflicting => values[SystemColumn::Xmin as usize].clone(),
        });
        let mut row = row.to_vec();
        row.resize(system, DatumRef::Null);
        row.extend(values.iter().map(Datum::borrow));
        let row = &row;
        project(&self.exprs, core, &Env { row, params }, sink)
    }
}

/// RETURNING of a write that a query feeds, under way.
pub struct Returned<'r> {
    pub plan: &'r SuppliedWrite,
    pub params: &'r [Datum],
    pub snapshot: &'r Snapshot,
    /// The run of its queries, once there was a row.
    pub run: Option<Run>,
    pub sink: &'r mut dyn RowSink,
}

impl Returned<'_> {
    /// Gives what is asked for of a row that is new, has another version, or is gone, followed by
    /// what the query gave for it.
    pub fn give(&mut self, core: &mut Core, rid: RowId, row: &[DatumRef<'_>]) -> Result<()> {
        let Some(returning) = &self.plan.returning else {
            return Ok(());
        };
        let table = &self.plan.table;
        let wrote = Wrote::Row;
        let written = Written { table, rid, wrote };
        let Some(over) = &self.plan.queried else {
            return returning.give(written, core, row, self.params, self.sink);
        };
        let (mut system, mut values) = (Vec::new(), Vec::new());
        let needed = over.inputs.iter().map(|(_, e)| e.columns_needed()).max();
        if needed > Some(row.len()) {
            for column in SystemColumn::ALL {
                system.push(column.value(core, table, rid, None)?);
            }
        }
        let mut seen = row.to_vec();
        seen.extend(system.iter().map(Datum::borrow));
        let env = Env {
            row: &seen,
            params: self.params,
        };
        let run = &mut self.run;
        if !run_over(over, run, core, &env, self.snapshot, &mut values)? {
            return Err(Error::internal("a query of RETURNING that gave no row"));
        }
        seen.truncate(row.len());
        seen.extend(values.iter().map(Datum::borrow));
        returning.give(written, core, &seen, self.params, self.sink)
    }
}
