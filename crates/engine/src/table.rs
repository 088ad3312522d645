//! A table as the engine sees it: a heap, its columns' types, and its indexes. Names live in `sql`.

use block::key::{Order, push_column};
use block::row::RowReader;
use block::value::{ColType, DatumRef};
use block::{Dba, ObjectId, Scn};

use crate::{Error, Result};

#[derive(Clone, Debug)]
pub struct TableDef {
    pub object: ObjectId,
    /// Segment header of the heap.
    pub header: Dba,
    pub columns: Vec<ColType>,
    pub indexes: Vec<IndexDef>,
}

#[derive(Clone, Debug)]
pub struct IndexDef {
    pub object: ObjectId,
    /// Segment header of the B-link tree.
    pub header: Dba,
    pub columns: Vec<IndexColumn>,
    pub unique: bool,
    /// Name reported when a unique index refuses a key.
    pub name: String,
    /// Snapshots below this SCN do not use the index: it does not know the versions they may see.
    pub created: Scn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexColumn {
    /// Position in the table, from 0.
    pub column: usize,
    pub descending: bool,
    pub nulls_first: bool,
}

impl IndexColumn {
    pub fn order(&self) -> Order {
        Order {
            descending: self.descending,
            nulls_first: self.nulls_first,
        }
    }
}

/// The key of a row in an index.
pub(crate) struct RowKey {
    pub bytes: Vec<u8>,
    /// A NULL is among the columns: a unique index lets any number of such rows be.
    pub has_null: bool,
}

impl IndexDef {
    /// The key of these column values of a table's row; missing trailing values are NULL.
    pub(crate) fn key_of(&self, columns: &[ColType], row: &[DatumRef<'_>]) -> RowKey {
        let mut key = RowKey {
            bytes: Vec::with_capacity(32),
            has_null: false,
        };
        for c in &self.columns {
            let v = row.get(c.column).copied().unwrap_or_default();
            key.has_null |= v.is_null();
            push_column(&mut key.bytes, columns[c.column], c.order(), v);
        }
        key
    }

    /// The key of a stored row.
    pub(crate) fn key_of_stored(&self, columns: &[ColType], row: &[u8]) -> Result<RowKey> {
        let mut key = RowKey {
            bytes: Vec::with_capacity(32),
            has_null: false,
        };
        for c in &self.columns {
            let v = block::row::column(row, columns, c.column)?.unwrap_or_default();
            key.has_null |= v.is_null();
            push_column(&mut key.bytes, columns[c.column], c.order(), v);
        }
        Ok(key)
    }

    /// Whether a stored row has the same key as another row of the table; NULL equals nothing.
    pub fn has_key_of(
        &self,
        table: &TableDef,
        stored: &[u8],
        row: &[DatumRef<'_>],
    ) -> Result<bool> {
        let key = self.key_of(&table.columns, row);
        Ok(!key.has_null && self.key_of_stored(&table.columns, stored)?.bytes == key.bytes)
    }

    /// Whether a stored row has this key.
    pub(crate) fn matches(
        &self,
        columns: &[ColType],
        row: &[u8],
        key: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<bool> {
        scratch.clear();
        for c in &self.columns {
            let v = block::row::column(row, columns, c.column)?.unwrap_or_default();
            push_column(scratch, columns[c.column], c.order(), v);
        }
        Ok(scratch[..] == *key)
    }
}

/// All columns of a stored row, NULL for those it is too old to have.
pub(crate) fn decode<'a>(columns: &[ColType], row: &'a [u8]) -> Result<Vec<DatumRef<'a>>> {
    let mut r = RowReader::new(row)?;
    if r.columns() > columns.len() {
        return Err(Error::Corrupt(format!(
            "a row has {} columns, its table {}",
            r.columns(),
            columns.len()
        )));
    }
    columns
        .iter()
        .map(|&ty| Ok(r.value(ty)?.unwrap_or_default()))
        .collect()
}
