//! A table as the engine sees it: a heap, its columns' types, and its indexes. Names live in `sql`.

use block::key::{Order, push_column};
use block::row::RowReader;
use block::value::{ColType, Datum, DatumRef};
use block::{Dba, ObjectId, Scn};

use crate::{Error, Result};
use txn::{RowLock, Snapshot};

#[derive(Clone, Debug)]
pub struct TableDef {
    pub object: ObjectId,
    /// Segment header of the heap.
    pub header: Dba,
    pub columns: Vec<ColType>,
    pub indexes: Vec<IndexDef>,
    /// The values of columns in rows that are older than the column, by the column's position. NULL
    /// if there is none.
    pub missing: Vec<Datum>,
}

impl TableDef {
    /// The value of a column in a row that is too old to have the column.
    pub fn missing(&self, column: usize) -> DatumRef<'_> {
        self.missing
            .get(column)
            .map_or(DatumRef::Null, Datum::borrow)
    }

    /// Reads a column of a stored row.
    pub fn column<'a>(&'a self, row: &'a [u8], at: usize) -> Result<DatumRef<'a>> {
        let stored = block::row::column(row, &self.columns, at)?;
        Ok(stored.unwrap_or_else(|| self.missing(at)))
    }

    /// Whether a change of a stored row to `row` changes what a foreign key may refer to: a column
    /// of a unique index.
    pub(crate) fn changes_key(&self, stored: &[u8], row: &[DatumRef<'_>]) -> Result<bool> {
        for index in self.indexes.iter().filter(|i| i.unique) {
            for c in &index.columns {
                if self.column(stored, c.column)? != row.get(c.column).copied().unwrap_or_default()
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The lock that an update takes which gives these columns other values, before it is known
    /// whether the values are others.
    pub fn lock_of_update(&self, mut columns: impl Iterator<Item = usize>) -> RowLock {
        let is_key = |at| {
            let mut unique = self.indexes.iter().filter(|i| i.unique);
            unique.any(|i| i.columns.iter().any(|c| c.column == at))
        };
        match columns.any(is_key) {
            true => RowLock::Update,
            false => RowLock::NoKeyUpdate,
        }
    }
}

#[derive(Clone, Debug)]
pub struct IndexDef {
    pub object: ObjectId,
    /// Segment header of the B-link tree.
    pub header: Dba,
    pub columns: Vec<IndexColumn>,
    pub unique: bool,
    /// The name that is reported when a unique index refuses a key.
    pub name: String,
    /// The SCN from which on snapshots may use the index. The index does not know all versions that
    /// older snapshots may see.
    pub created: Scn,
    pub rules: IndexRules,
}

/// What makes an index another than that of an ordinary key.
#[derive(Clone, Debug, Default)]
pub struct IndexRules {
    /// Of a unique index: that a key has one row is checked by the caller, after the fact
    /// ([`crate::Session::has_several_rows`]). Until then any number of rows may have it.
    pub deferrable: bool,
    /// In a unique index NULL equals NULL.
    pub nulls_not_distinct: bool,
}

impl IndexDef {
    /// Whether a key that another row has is refused as its entry is made.
    pub(crate) fn checks_at_once(&self) -> bool {
        self.unique && !self.rules.deferrable
    }

    /// An error if the snapshot may see versions that the index does not know.
    #[inline]
    pub(crate) fn check_usable(&self, snapshot: &Snapshot) -> Result<()> {
        match self.created <= snapshot.scn {
            true => Ok(()),
            false => Err(Error::Serialization("creation of an index")),
        }
    }
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
    /// Whether a column is NULL that equals nothing. A unique index allows any number of such rows.
    pub has_null: bool,
}

impl IndexDef {
    /// The key of these column values of a table's row. Trailing values that are missing are NULL.
    pub(crate) fn key_of(&self, columns: &[ColType], row: &[DatumRef<'_>]) -> RowKey {
        let mut key = RowKey {
            bytes: Vec::with_capacity(32),
            has_null: false,
        };
        for c in &self.columns {
            let v = row.get(c.column).copied().unwrap_or_default();
            key.has_null |= v.is_null() && !self.rules.nulls_not_distinct;
            push_column(&mut key.bytes, columns[c.column], c.order(), v);
        }
        key
    }

    /// The key of a stored row.
    pub(crate) fn key_of_stored(&self, table: &TableDef, row: &[u8]) -> Result<RowKey> {
        let mut key = RowKey {
            bytes: Vec::with_capacity(32),
            has_null: false,
        };
        for c in &self.columns {
            let v = table.column(row, c.column)?;
            key.has_null |= v.is_null() && !self.rules.nulls_not_distinct;
            push_column(&mut key.bytes, table.columns[c.column], c.order(), v);
        }
        Ok(key)
    }

    /// Whether a stored row has the key of another row of the table. NULL equals nothing.
    pub fn has_key_of(
        &self,
        table: &TableDef,
        stored: &[u8],
        row: &[DatumRef<'_>],
    ) -> Result<bool> {
        let key = self.key_of(&table.columns, row);
        Ok(!key.has_null && self.key_of_stored(table, stored)?.bytes == key.bytes)
    }

    /// Whether a stored row has this key.
    pub(crate) fn matches(
        &self,
        table: &TableDef,
        row: &[u8],
        key: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<bool> {
        scratch.clear();
        for c in &self.columns {
            let v = table.column(row, c.column)?;
            push_column(scratch, table.columns[c.column], c.order(), v);
        }
        Ok(scratch[..] == *key)
    }
}

/// A sequence as the engine sees it. Its parameters are in its own block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceDef {
    pub object: ObjectId,
    pub header: Dba,
}

/// Reads all columns of a stored row.
pub(crate) fn decode<'a>(table: &'a TableDef, row: &'a [u8]) -> Result<Vec<DatumRef<'a>>> {
    let mut r = RowReader::new(row)?;
    if r.columns() > table.columns.len() {
        return Err(Error::Corrupt(format!(
            "a row has {} columns, its table {}",
            r.columns(),
            table.columns.len()
        )));
    }
    let value = |(at, &ty)| Ok(r.value(ty)?.unwrap_or_else(|| table.missing(at)));
    table.columns.iter().enumerate().map(value).collect()
}
