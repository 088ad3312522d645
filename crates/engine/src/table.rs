//! A table as the engine sees it: a heap, its columns' types, and its indexes. Names live in `sql`.

use block::key::{Order, push_column};
use block::row::RowReader;
use block::value::{ColType, Datum, DatumRef};
use block::{Dba, ObjectId, Scn};
use std::sync::Arc;

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

    /// The indexes that get an entry of a row that is written.
    pub(crate) fn written(&self) -> impl Iterator<Item = &IndexDef> {
        self.indexes.iter().filter(|i| i.is_written())
    }

    /// Whether a change of a stored row to `row` changes what a foreign key may refer to: a column
    /// of a unique index.
    pub(crate) fn changes_key(&self, stored: &[u8], row: &[DatumRef<'_>]) -> Result<bool> {
        for at in 0..self.columns.len() {
            if !self.is_key(at) {
                continue;
            }
            if !is_kept(self, stored, row, at)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a unique index has something of a column.
    fn is_key(&self, at: usize) -> bool {
        let mut unique = self.indexes.iter().filter(|i| i.unique);
        unique.any(|i| i.uses(at))
    }

    /// The lock that an update takes which gives these columns other values, before it is known
    /// whether the values are others.
    pub fn lock_of_update(&self, mut columns: impl Iterator<Item = usize>) -> RowLock {
        match columns.any(|at| self.is_key(at)) {
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

/// How far an index is that is made, or dropped, while rows change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexStage {
    /// Every row has its entry.
    #[default]
    Whole,
    /// Writers make their entries. Those of rows that are older than it are missing as long as
    /// nobody has supplied them: nobody reads it.
    Partial,
    /// Nobody writes to it, or reads it.
    Leaving,
}

/// What makes an index another than that of an ordinary key.
#[derive(Clone, Debug, Default)]
pub struct IndexRules {
    pub stage: IndexStage,
    /// Of a unique index: that a key has one row is checked by the caller, after the fact
    /// ([`crate::Session::has_several_rows`]). Until then any number of rows may have it.
    pub deferrable: bool,
    /// In a unique index NULL equals NULL.
    pub nulls_not_distinct: bool,
    /// Where a key is not just columns, or not every row has one.
    pub computed: Option<Arc<dyn ComputedKey>>,
    /// Of an inverted index: the keys of a row, of which it has any number. It is read by
    /// [`crate::Session::rows_of_keys`] only, and is not unique.
    pub inverted: Option<Arc<dyn InvertedKeys>>,
}

/// What a caller's function of a row fails with.
pub type ComputeError = Box<dyn std::error::Error + Send + Sync>;

/// The keys of an index on expressions, or of the rows that meet a condition. The same row has the
/// same key for ever, on every instance.
pub trait ComputedKey: std::fmt::Debug + Send + Sync {
    /// The types of the key's columns.
    fn types(&self) -> &[ColType];
    /// The key of a row, if the index has the row.
    fn key(&self, row: &[DatumRef<'_>]) -> std::result::Result<Option<Vec<Datum>>, ComputeError>;
    /// Whether the key depends on a column of the table.
    fn uses(&self, column: usize) -> bool;
}

/// The keys of an inverted index. The same row has the same keys for ever, on every instance.
pub trait InvertedKeys: std::fmt::Debug + Send + Sync {
    /// The keys of a row in rising order, each once. No key is the beginning of another.
    fn keys(&self, row: &[DatumRef<'_>]) -> std::result::Result<Vec<Vec<u8>>, ComputeError>;
    /// Whether the keys depend on a column of the table.
    fn uses(&self, column: usize) -> bool;
}

impl IndexDef {
    /// Whether a key that another row has is refused as its entry is made.
    pub(crate) fn checks_at_once(&self) -> bool {
        self.unique && !self.rules.deferrable
    }

    /// Whether who writes rows changes its entries.
    pub(crate) fn is_written(&self) -> bool {
        self.rules.stage != IndexStage::Leaving
    }

    /// Whether the index has something of a column of its table.
    pub fn uses(&self, column: usize) -> bool {
        match (&self.rules.inverted, &self.rules.computed) {
            (Some(inverted), _) => inverted.uses(column),
            (None, Some(computed)) => computed.uses(column),
            (None, None) => self.columns.iter().any(|c| c.column == column),
        }
    }

    /// The type of a column of the key.
    pub(crate) fn type_of(&self, columns: &[ColType], at: usize) -> ColType {
        match &self.rules.computed {
            Some(computed) => computed.types()[at],
            None => columns[self.columns[at].column],
        }
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

/// Keys of a row between two looks at whether the statement is cancelled.
const CANCEL_CHECK_KEYS: usize = 1_000;

/// The key of a row in an index.
pub(crate) struct RowKey {
    pub bytes: Vec<u8>,
    /// Whether a column is NULL that equals nothing. A unique index allows any number of such rows.
    pub has_null: bool,
}

/// The keys of a row in an index: of an inverted one any number, of another at most one.
pub(crate) enum RowKeys {
    One(Option<RowKey>),
    /// In rising order, each once.
    Many(Vec<Vec<u8>>),
}

impl RowKeys {
    /// The keys that are not among `others`, and those of `others` that are not among these. Both
    /// are of one index.
    fn parted_from(self, others: RowKeys) -> (RowKeys, RowKeys) {
        match (self, others) {
            (RowKeys::One(Some(a)), RowKeys::One(Some(b))) if a.bytes == b.bytes => {
                (RowKeys::One(None), RowKeys::One(None))
            }
            (RowKeys::Many(mut a), RowKeys::Many(mut b)) => {
                let all = a.clone();
                a.retain(|key| b.binary_search(key).is_err());
                b.retain(|key| all.binary_search(key).is_err());
                (RowKeys::Many(a), RowKeys::Many(b))
            }
            both => both,
        }
    }

    /// Calls `f` for each key.
    pub(crate) fn each(self, mut f: impl FnMut(RowKey) -> Result<()>) -> Result<()> {
        let keys = match self {
            RowKeys::One(key) => return key.map_or(Ok(()), f),
            RowKeys::Many(keys) => keys,
        };
        for (at, bytes) in keys.into_iter().enumerate() {
            if (at + 1).is_multiple_of(CANCEL_CHECK_KEYS) {
                wait::check_cancel().map_err(txn::Error::from)?;
            }
            f(RowKey {
                bytes,
                has_null: false,
            })?;
        }
        Ok(())
    }

    /// Whether a key is among these.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        match self {
            RowKeys::One(own) => own.as_ref().is_some_and(|own| own.bytes == key),
            RowKeys::Many(keys) => keys.binary_search_by(|k| k[..].cmp(key)).is_ok(),
        }
    }
}

impl IndexDef {
    /// Appends the key of a row; returns whether it has a NULL that equals nothing. `None`: the
    /// index does not have the row. Not for an inverted index.
    pub(crate) fn push_key<'v>(
        &self,
        table: &TableDef,
        out: &mut Vec<u8>,
        value: impl Fn(usize) -> Result<DatumRef<'v>>,
    ) -> Result<Option<bool>> {
        let Some(computed) = &self.rules.computed else {
            let mut has_null = false;
            for c in &self.columns {
                let v = value(c.column)?;
                has_null |= v.is_null();
                push_column(out, table.columns[c.column], c.order(), v);
            }
            return Ok(Some(has_null && !self.rules.nulls_not_distinct));
        };
        let row = (0..table.columns.len()).map(value);
        let row = row.collect::<Result<Vec<_>>>()?;
        let Some(key) = computed.key(&row).map_err(Error::Computed)? else {
            return Ok(None);
        };
        for ((c, ty), v) in self.columns.iter().zip(computed.types()).zip(&key) {
            push_column(out, *ty, c.order(), v.borrow());
        }
        let has_null = key.iter().any(Datum::is_null);
        Ok(Some(has_null && !self.rules.nulls_not_distinct))
    }

    /// The key of a row. Trailing values that are missing are NULL. `None`: the index does not have
    /// the row.
    pub(crate) fn key_of(&self, table: &TableDef, row: &[DatumRef<'_>]) -> Result<Option<RowKey>> {
        let mut bytes = Vec::with_capacity(32);
        let value = |at: usize| Ok(row.get(at).copied().unwrap_or_default());
        let has_null = self.push_key(table, &mut bytes, value)?;
        Ok(has_null.map(|has_null| RowKey { bytes, has_null }))
    }

    /// The key of a stored row. `None`: the index does not have the row.
    pub(crate) fn key_of_stored(&self, table: &TableDef, row: &[u8]) -> Result<Option<RowKey>> {
        let mut bytes = Vec::with_capacity(32);
        let has_null = self.push_key(table, &mut bytes, |at| table.column(row, at))?;
        Ok(has_null.map(|has_null| RowKey { bytes, has_null }))
    }

    /// All keys of a row, of which `value` gives the columns.
    fn keys_by<'v>(
        &self,
        table: &TableDef,
        value: impl Fn(usize) -> Result<DatumRef<'v>>,
    ) -> Result<RowKeys> {
        if let Some(inverted) = &self.rules.inverted {
            let row = (0..table.columns.len()).map(value);
            let row = row.collect::<Result<Vec<_>>>()?;
            return Ok(RowKeys::Many(inverted.keys(&row).map_err(Error::Computed)?));
        }
        let mut bytes = Vec::with_capacity(32);
        let has_null = self.push_key(table, &mut bytes, value)?;
        let key = has_null.map(|has_null| RowKey { bytes, has_null });
        Ok(RowKeys::One(key))
    }

    /// All keys of a row. Trailing values that are missing are NULL.
    pub(crate) fn keys_of(&self, table: &TableDef, row: &[DatumRef<'_>]) -> Result<RowKeys> {
        let value = |at: usize| Ok(row.get(at).copied().unwrap_or_default());
        self.keys_by(table, value)
    }

    /// All keys of a stored row.
    pub(crate) fn keys_of_stored(&self, table: &TableDef, row: &[u8]) -> Result<RowKeys> {
        self.keys_by(table, |at| table.column(row, at))
    }

    /// The keys that a row loses, and those that it gains, by the change of a stored row to `row`.
    pub(crate) fn changed_keys(
        &self,
        table: &TableDef,
        stored: &[u8],
        row: &[DatumRef<'_>],
    ) -> Result<(RowKeys, RowKeys)> {
        if self.rules.inverted.is_some() && !self.uses_changed(table, stored, row)? {
            return Ok((RowKeys::One(None), RowKeys::One(None)));
        }
        let before = self.keys_of_stored(table, stored)?;
        let after = self.keys_of(table, row)?;
        Ok(before.parted_from(after))
    }

    /// Whether a change of a stored row to `row` changes a column that the keys depend on.
    fn uses_changed(&self, table: &TableDef, stored: &[u8], row: &[DatumRef<'_>]) -> Result<bool> {
        for at in (0..table.columns.len()).filter(|at| self.uses(*at)) {
            if !is_kept(table, stored, row, at)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a stored row has the key of another row of the table. NULL equals nothing.
    pub fn has_key_of(
        &self,
        table: &TableDef,
        stored: &[u8],
        row: &[DatumRef<'_>],
    ) -> Result<bool> {
        let (key, other) = (self.key_of(table, row)?, self.key_of_stored(table, stored)?);
        Ok(match (key, other) {
            (Some(key), Some(other)) => !key.has_null && other.bytes == key.bytes,
            _ => false,
        })
    }

    /// Whether a stored row has this key. Not for an inverted index.
    pub(crate) fn matches(
        &self,
        table: &TableDef,
        row: &[u8],
        key: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<bool> {
        scratch.clear();
        let known = self.push_key(table, scratch, |at| table.column(row, at))?;
        Ok(known.is_some() && scratch[..] == *key)
    }
}

/// Whether a change of a stored row to `row` leaves a column as it is, bit by bit. Of values that
/// are equal for SQL, such as 1.0 and 1.00, keys on expressions may differ.
fn is_kept(table: &TableDef, stored: &[u8], row: &[DatumRef<'_>], at: usize) -> Result<bool> {
    let after = row.get(at).copied().unwrap_or_default();
    Ok(table.column(stored, at)?.is_identical(after))
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
