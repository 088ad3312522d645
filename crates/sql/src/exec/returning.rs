//! RETURNING: what a statement gives of the rows that it has written.

use block::RowId;
use block::value::{Datum, DatumRef};

use super::select::project;
use crate::api::RowSink;
use crate::dict::Table;
use crate::error::Result;
use crate::expr::{Env, Expr};
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
