//! The rows of the two tables of a foreign key: the one that is referenced, by its unique index,
//! and those that reference it, by an index if there is one.

use std::ops::Bound;
use std::sync::Arc;

use block::RowId;
use block::value::{Datum, DatumRef};
use engine::{AskedAhead, IndexColumn, Isolation, LockOutcome, LockWait, RowLock, Snapshot};

use super::meeting::Pair;
use super::row::decode;
use crate::dict::{ForeignKey, Table};
use crate::error::{Error, Result};
use crate::pgtype::IoSettings;
use crate::session::Core;

/// How the columns of a key are compared with those that they reference.
pub(super) fn pairs(child: &Table, parent: &Table, key: &ForeignKey) -> Result<Vec<Pair>> {
    let columns = key.columns.iter().zip(&key.parent_columns);
    columns
        .map(|(&c, &p)| Pair::of_key(child.columns[c].ty(), parent.columns[p].ty()))
        .collect()
}

/// What the referenced columns have in the row that these values of the referencing ones mean;
/// `None`: there can be no such row.
pub(super) fn referenced_values(
    core: &Core,
    (child, parent): (&Table, &Table),
    key: &ForeignKey,
    values: &[Datum],
) -> Result<Option<Vec<Datum>>> {
    let pairs = pairs(child, parent, key)?;
    let of = |(pair, value): (&Pair, &Datum)| pair.referenced(value, &core.io);
    pairs.iter().zip(values).map(of).collect()
}

/// The referenced row that the snapshot sees, by the unique index. The values are those of its own
/// columns.
pub(super) fn referenced(
    core: &mut Core,
    parent: &Table,
    key: &ForeignKey,
    values: &[Datum],
    snapshot: &Snapshot,
    row: &mut Vec<u8>,
) -> Result<Option<RowId>> {
    let at = parent.indexes.iter().position(|i| i.oid == key.index);
    let at = at.ok_or_else(|| Error::internal("the index of a referenced key is gone"))?;
    let mut wanted = Vec::with_capacity(values.len());
    for k in &parent.indexes[at].keys {
        let place = key.parent_columns.iter().position(|c| *c == k.column);
        let place = place.ok_or_else(|| Error::internal("a referenced key has another index"))?;
        wanted.push(values[place].clone());
    }
    let ahead = AskedAhead::default();
    let found = core
        .engine
        .get_unique(parent.engine(), at, &wanted, snapshot, &ahead, row);
    Ok(found?)
}

/// Locks the referenced row, which has these values; false if there is none.
pub(super) fn lock_referenced(
    core: &mut Core,
    parent: &Table,
    key: &ForeignKey,
    values: &[Datum],
) -> Result<bool> {
    let (mut row, mut newest) = (Vec::new(), Vec::new());
    loop {
        let snapshot = match core.engine.isolation() {
            Some(Isolation::RepeatableRead) => core.engine.snapshot()?,
            _ => core.engine.newest_snapshot()?,
        };
        let Some(rid) = referenced(core, parent, key, values, &snapshot, &mut row)? else {
            return Ok(false);
        };
        let how = (RowLock::KeyShare, LockWait::Wait);
        match core
            .engine
            .lock_row(parent.engine(), rid, &snapshot, how, &mut newest)?
        {
            LockOutcome::Locked => return Ok(true),
            // What it is now is looked up by its key.
            LockOutcome::Changed | LockOutcome::Gone | LockOutcome::Skipped => {}
        }
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
    }
}

/// The bytes that keys have in common exactly if they are equal, as in an index.
pub(super) fn key_bytes<'d>(
    table: &Table,
    columns: &[usize],
    value: impl Fn(usize) -> DatumRef<'d>,
) -> Vec<u8> {
    let order = IndexColumn {
        column: 0,
        descending: false,
        nulls_first: false,
    }
    .order();
    let mut bytes = Vec::with_capacity(16);
    for (at, &column) in columns.iter().enumerate() {
        block::key::push_column(&mut bytes, table.engine().columns[column], order, value(at));
    }
    bytes
}

/// Whether two versions of a row have the same key.
pub(super) fn same_key(
    table: &Table,
    columns: &[usize],
    a: &[DatumRef<'_>],
    b: &[DatumRef<'_>],
) -> bool {
    key_bytes(table, columns, |at| a[columns[at]]) == key_bytes(table, columns, |at| b[columns[at]])
}

/// The rows that reference the row with these values, `most` of them at most.
pub(super) fn referencing(
    core: &mut Core,
    (child, parent): (&Arc<Table>, &Table),
    key: &ForeignKey,
    values: &[Datum],
    snapshot: &Snapshot,
    most: usize,
) -> Result<Vec<RowId>> {
    let pairs = pairs(child, parent, key)?;
    if pairs.iter().all(Pair::is_one_to_one) {
        let of = |(pair, value): (&Pair, &Datum)| pair.referencing(value, &core.io);
        let own: Option<Vec<Datum>> = pairs.iter().zip(values).map(of).collect::<Result<_>>()?;
        return match own {
            Some(own) => rows(core, child, &key.columns, &own, snapshot, most),
            None => Ok(Vec::new()),
        };
    }
    let io = core.io.clone();
    scanned(core, child, snapshot, most, &|row| {
        references(&pairs, key, row, values, &io)
    })
}

/// Whether a row of the referencing table references the row with these values.
pub(super) fn references(
    pairs: &[Pair],
    key: &ForeignKey,
    row: &[DatumRef<'_>],
    values: &[Datum],
    io: &IoSettings,
) -> Result<bool> {
    for ((pair, &column), value) in pairs.iter().zip(&key.columns).zip(values) {
        if row[column].is_null() || !pair.are_equal(&row[column].to_datum(), value, io)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rows of a table that have these values in these columns, `most` of them at most.
pub(super) fn rows(
    core: &mut Core,
    table: &Arc<Table>,
    columns: &[usize],
    own: &[Datum],
    snapshot: &Snapshot,
    most: usize,
) -> Result<Vec<RowId>> {
    let def = table.engine().clone();
    let mut found = Vec::new();
    let leads = |i: &crate::dict::Index| {
        let first: Vec<usize> = i
            .keys
            .iter()
            .take(columns.len())
            .map(|k| k.column)
            .collect();
        i.is_valid_order()
            && i.predicate.is_none()
            && first.len() == columns.len()
            && columns.iter().all(|c| first.contains(c))
    };
    // A snapshot of now is above the SCN of any index that others can see.
    if let Some(at) = table.indexes.iter().position(leads) {
        let keys = table.indexes[at].keys.iter().take(columns.len());
        let place = |k: &crate::dict::IndexKey| columns.iter().position(|c| *c == k.column);
        let low: Vec<Datum> = keys.filter_map(place).map(|p| own[p].clone()).collect();
        let (from, to) = (Bound::Included(&low[..]), Bound::Included(&low[..]));
        let mut scan = core.engine.index_range(&def, at, from, to, false)?;
        let mut row = Vec::new();
        while let Some(rid) = scan.next(&mut core.engine, snapshot, &mut row)? {
            found.push(rid);
            if found.len() == most {
                break;
            }
        }
        return Ok(found);
    }
    let wanted = key_bytes(table, columns, |at| own[at].borrow());
    scanned(core, table, snapshot, most, &|row| {
        Ok(key_bytes(table, columns, |at| row[columns[at]]) == wanted)
    })
}

/// The rows of a table that are wanted, once there are `most` of them no more.
fn scanned(
    core: &mut Core,
    table: &Table,
    snapshot: &Snapshot,
    most: usize,
    wanted: &dyn Fn(&[DatumRef<'_>]) -> Result<bool>,
) -> Result<Vec<RowId>> {
    let def = table.engine().clone();
    let mut found = Vec::new();
    let mut scan = core.engine.scan(&def);
    let mut failed = None;
    loop {
        wait::check_cancel().map_err(|_| crate::session::cancelled())?;
        let more = scan.next_block(&mut core.engine, snapshot, &mut |rid, bytes| {
            let mut row = Vec::new();
            let decoded = decode(bytes, &def, def.columns.len(), &mut row);
            match decoded.and_then(|()| wanted(&row)) {
                Ok(true) => found.push(rid),
                Ok(false) => {}
                Err(e) => failed = Some(e),
            }
        })?;
        if let Some(e) = failed {
            return Err(e);
        }
        if !more || found.len() >= most {
            return Ok(found);
        }
    }
}
