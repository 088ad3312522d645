//! Columns that every table has besides its own: `ctid`, `tableoid`, `xmin`.
//!
//! A scan makes them where they are asked for; in its rows they follow the table's columns.
//! Decision 0072 says what they mean here.

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::Snapshot;

use super::scope::Column;
use crate::bind::Typed;
use crate::dict::Table;
use crate::error::Result;
use crate::expr::Expr;
use crate::query::plan::{Register, TableScan};
use crate::session::Core;
use crate::types::SqlType;

/// The place of each among them is its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SystemColumn {
    Ctid,
    TableOid,
    Xmin,
}

impl SystemColumn {
    pub const ALL: [SystemColumn; 3] = [
        SystemColumn::Ctid,
        SystemColumn::TableOid,
        SystemColumn::Xmin,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SystemColumn::Ctid => "ctid",
            SystemColumn::TableOid => "tableoid",
            SystemColumn::Xmin => "xmin",
        }
    }

    pub fn ty(self) -> SqlType {
        match self {
            SystemColumn::Ctid => SqlType::Tid,
            SystemColumn::TableOid => SqlType::Oid,
            SystemColumn::Xmin => SqlType::Xid,
        }
    }

    /// The column as a scope has it.
    pub fn named(self, table: &str, register: Register) -> Column {
        Column {
            table: table.to_string(),
            name: self.name().to_string(),
            value: Typed::new(Expr::Column(register), self.ty()),
            origin: (0, 0),
            merged: false,
            whole: false,
        }
    }

    /// Its value in a row, the version that the snapshot sees or without one the newest.
    pub fn value(
        self,
        core: &mut Core,
        table: &Table,
        rid: RowId,
        snapshot: Option<&Snapshot>,
    ) -> Result<Datum> {
        Ok(match self {
            SystemColumn::Ctid => Datum::Int8(tid(rid)),
            SystemColumn::TableOid => Datum::Int8(table.oid.into()),
            SystemColumn::Xmin => {
                let version = core.engine.row_version(table.engine(), rid, snapshot)?;
                Datum::Int8(i64::from(version))
            }
        })
    }
}

/// A row's place as a `tid`: all rows are in one file, and PostgreSQL's slots begin at 1.
pub fn tid(rid: RowId) -> i64 {
    (i64::from(rid.dba().block()) << 16) + i64::from(rid.slot()) + 1
}

/// The number of the block that a `tid` names.
pub fn block_of(tid: i64) -> Option<u32> {
    u32::try_from(tid >> 16).ok()
}

impl TableScan {
    /// Appends those of a row that are wanted, and NULLs for the others.
    pub fn system_values(
        &self,
        core: &mut Core,
        rid: RowId,
        snapshot: &Snapshot,
        values: &mut Vec<DatumRef<'_>>,
    ) -> Result<()> {
        for column in SystemColumn::ALL {
            let wanted = self.system.iter().any(|(c, _)| *c == column);
            let value = match wanted {
                true => column.value(core, &self.access.table, rid, Some(snapshot))?,
                false => Datum::Null,
            };
            values.push(match value {
                Datum::Int8(v) => DatumRef::Int8(v),
                _ => DatumRef::Null,
            });
        }
        Ok(())
    }
}
