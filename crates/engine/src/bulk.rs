//! Inserting many rows: rows by the block, index entries by the leaf.
//!
//! Rows go into the heap in small batches. Their index keys are collected, and inserted in key
//! order once there are many: a leaf then takes all of its keys under one latch, with one redo and
//! one undo record. So a unique key may be refused long after its row was given, but before the
//! statement ends.
//!
//! **Invariant.** After [`Session::finish_bulk`] every row given has its entries. If it is not
//! called, or fails, the statement has failed, and its transaction must roll back.

use crate::{Error, IndexDef, Result, Session, TableDef};
use access::heap::Heap;
use block::RowId;
use block::index::{ROW_ID_LEN, split_key};
use block::value::DatumRef;
use std::ops::Range;
use txn::Place;
use wait::segment::{self, SegmentStat};

use crate::table::{RowKey, RowKeys};

/// Bytes of rows that the heap is given at once: several blocks' worth.
const ROW_BYTES: usize = 64 << 10;
/// Bytes of keys, and of what is kept beside each key, that a session collects before it inserts
/// them.
const KEY_BYTES: usize = 32 << 20;
/// Bytes of keys that are compared at once, and the first bytes of keys among which they are
/// chosen.
const HEAD: usize = size_of::<u128>();
const LOOKED_AT: usize = 64;
/// Keys inserted between two looks at whether the statement is cancelled.
const CANCEL_CHECK_KEYS: usize = 10_000;

/// Rows on their way into a table. A `Bulk` is used with one session and one table.
#[derive(Default)]
pub struct Bulk {
    rows: Arena,
    row_ids: Vec<RowId>,
    indexes: Vec<Keys>,
    /// Whether a row can be refused for its key. If not, `numbers` and `places` stay empty.
    unique: bool,
    /// The caller's numbers of the rows whose keys are collected.
    numbers: Vec<u64>,
    /// The row ids of those rows, as far as they are in the heap.
    places: Vec<RowId>,
}

/// Byte strings, one after the other.
#[derive(Default)]
struct Arena {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    fn close(&mut self) {
        self.ends.push(self.bytes.len());
    }
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(from, &to)| &self.bytes[from..to])
    }
}

/// The keys of one index, each followed by its row id.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    keys: Vec<KeyAt>,
    /// How many of the keys have their row id. The other keys belong to rows that are not in the
    /// heap yet, and have in its place which of these their row is, from zero.
    placed: usize,
    /// Rows that are not in the heap yet.
    rows: u64,
}

/// Where a key lies in the bytes of [`Keys`].
struct KeyAt {
    /// While keys are sorted: the key's bytes at the first positions where keys differ. They decide
    /// most comparisons without a look at the rest.
    head: u128,
    from: usize,
    len: u32,
    /// Whether a column is NULL. Any number of rows may then have the key, even in a unique index.
    has_null: bool,
}

impl KeyAt {
    fn range(&self) -> Range<usize> {
        self.from..self.from + self.len as usize
    }
}

impl Keys {
    fn memory(&self) -> usize {
        self.bytes.len() + self.keys.len() * size_of::<KeyAt>()
    }

    /// Adds the key that `write` appends, if the row has one; the row id follows once it is known.
    fn push(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<Option<bool>>) -> Result<()> {
        let from = self.bytes.len();
        let row = self.rows;
        self.rows += 1;
        match write(&mut self.bytes)? {
            Some(has_null) => self.close(from, row, has_null),
            None => self.bytes.truncate(from),
        }
        Ok(())
    }

    /// Adds all keys of a row in an inverted index.
    fn push_all(&mut self, keys: RowKeys) -> Result<()> {
        let row = self.rows;
        self.rows += 1;
        keys.each(|key| {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(&key.bytes);
            self.close(from, row, key.has_null);
            Ok(())
        })
    }

    /// Ends the key that begins at `from`.
    fn close(&mut self, from: usize, row: u64, has_null: bool) {
        self.bytes.extend_from_slice(&row.to_be_bytes());
        self.keys.push(KeyAt {
            head: 0,
            from,
            len: (self.bytes.len() - from) as u32,
            has_null,
        });
    }

    /// Gives the last keys their row ids: their rows are in the heap now.
    fn place(&mut self, row_ids: &[RowId]) {
        assert!(
            self.rows == row_ids.len() as u64,
            "invariant: each row has been asked for its key in each index"
        );
        for key in &self.keys[self.placed..] {
            let end = key.range().end;
            let place = &mut self.bytes[end - ROW_ID_LEN..end];
            let row = place
                .iter()
                .fold(0, |row, byte| row << 8 | usize::from(*byte));
            place.copy_from_slice(&row_ids[row].0.to_be_bytes());
        }
        self.rows = 0;
        self.placed = self.keys.len();
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let positions = deciding_positions(bytes, &self.keys);
        for key in &mut self.keys {
            let mut head = [0; HEAD];
            for (byte, at) in head.iter_mut().zip(&positions) {
                *byte = bytes[key.from + at];
            }
            key.head = u128::from_be_bytes(head);
        }
        self.keys.sort_unstable_by(|a, b| {
            let by_head = a.head.cmp(&b.head);
            by_head.then_with(|| bytes[a.range()].cmp(&bytes[b.range()]))
        });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.keys.clear();
        self.placed = 0;
    }
}

/// The first positions, in order, at which not all keys have the same byte. A position where all
/// keys agree decides no comparison. So keys whose bytes differ at these positions compare as those
/// bytes do.
fn deciding_positions(bytes: &[u8], keys: &[KeyAt]) -> Vec<usize> {
    let shortest = keys.iter().map(|k| k.len as usize).min().unwrap_or(0);
    let mut differs = [0; LOOKED_AT];
    let looked_at = shortest.min(LOOKED_AT);
    if let Some(first) = keys.first() {
        let first = &bytes[first.from..first.from + looked_at];
        for key in keys {
            let key = &bytes[key.from..key.from + looked_at];
            for ((d, a), b) in differs.iter_mut().zip(key).zip(first) {
                *d |= a ^ b;
            }
        }
    }
    let differing = (0..looked_at).filter(|at| differs[*at] != 0);
    differing.take(HEAD).collect()
}

impl Bulk {
    pub fn new(table: &TableDef) -> Bulk {
        Bulk {
            indexes: table.indexes.iter().map(|_| Keys::default()).collect(),
            unique: table.indexes.iter().any(IndexDef::checks_at_once),
            ..Bulk::default()
        }
    }

    /// The caller's number of a row whose insertion was refused.
    pub fn number_of(&self, row: RowId) -> Option<u64> {
        let at = self.places.iter().position(|r| *r == row)?;
        self.numbers.get(at).copied()
    }
}

impl Session {
    /// Inserts a row, now or by the time of [`Session::finish_bulk`]. `number` is the caller's
    /// number of the row.
    pub fn insert_bulk(
        &mut self,
        table: &TableDef,
        bulk: &mut Bulk,
        row: &[DatumRef<'_>],
        number: u64,
    ) -> Result<()> {
        if bulk.unique {
            bulk.numbers.push(number);
        }
        block::row::encode(row, &mut bulk.rows.bytes);
        bulk.rows.close();
        let each = table.indexes.iter().zip(&mut bulk.indexes);
        for (index, keys) in each.filter(|(index, _)| index.is_written()) {
            if index.rules.inverted.is_some() {
                keys.push_all(index.keys_of(table, row)?)?;
                continue;
            }
            let value = |at: usize| Ok(row.get(at).copied().unwrap_or_default());
            keys.push(|bytes| index.push_key(table, bytes, value))?;
        }
        if bulk.rows.bytes.len() >= ROW_BYTES {
            self.place_rows(table, bulk)?;
            if bulk.indexes.iter().map(Keys::memory).sum::<usize>() >= KEY_BYTES {
                self.insert_keys(table, bulk)?;
            }
        }
        Ok(())
    }

    /// Inserts the rows and keys that are left. `bulk` is empty afterwards.
    pub fn finish_bulk(&mut self, table: &TableDef, bulk: &mut Bulk) -> Result<()> {
        self.place_rows(table, bulk)?;
        self.insert_keys(table, bulk)
    }

    fn place_rows(&mut self, table: &TableDef, bulk: &mut Bulk) -> Result<()> {
        wait::check_cancel().map_err(txn::Error::from)?;
        let heap = self.engine.heap(table.object, table.header);
        let rows: Vec<&[u8]> = bulk.rows.iter().collect();
        bulk.row_ids.clear();
        heap.insert_many(&mut self.txn, &rows, &mut bulk.row_ids)?;
        let placed = bulk.row_ids.len() as u64;
        segment::count(table.object.0, &[(SegmentStat::RowsInserted, placed)]);
        self.written.add(table.object, placed as i64, placed);
        let each = table.indexes.iter().zip(&mut bulk.indexes);
        for (_, keys) in each.filter(|(index, _)| index.is_written()) {
            keys.place(&bulk.row_ids);
        }
        if bulk.unique {
            bulk.places.extend_from_slice(&bulk.row_ids);
        }
        bulk.rows.clear();
        Ok(())
    }

    fn insert_keys(&mut self, table: &TableDef, bulk: &mut Bulk) -> Result<()> {
        let heap = self.engine.heap(table.object, table.header);
        for (at, keys) in bulk.indexes.iter_mut().enumerate() {
            keys.sort();
            // Only keys without NULL are checked in a unique index. Keys with NULL go in between,
            // one by one.
            let unique = table.indexes[at].checks_at_once();
            let alone = |a: &KeyAt, b: &KeyAt| unique && (a.has_null || b.has_null);
            for run in keys.keys.chunk_by(|a, b| !alone(a, b)) {
                let has_null = run[0].has_null;
                let run: Vec<&[u8]> = run.iter().map(|k| &keys.bytes[k.range()]).collect();
                self.insert_run(table, &heap, at, &run, has_null)?;
            }
            keys.clear();
        }
        bulk.numbers.clear();
        bulk.places.clear();
        Ok(())
    }

    /// Inserts whole keys in rising order. If `has_null` is set, there is one key only, or the
    /// index is not unique.
    fn insert_run(
        &mut self,
        table: &TableDef,
        heap: &Heap,
        at: usize,
        keys: &[&[u8]],
        has_null: bool,
    ) -> Result<()> {
        let index = &table.indexes[at];
        let tree = self.engine.tree(index.object, index.header);
        let mut done = 0;
        while done < keys.len() {
            if !(index.checks_at_once() && has_null) {
                wait::check_cancel().map_err(txn::Error::from)?;
                let some = &keys[done..keys.len().min(done + CANCEL_CHECK_KEYS)];
                let some = &some[..self.before_wanted(index, some)];
                let (n, conflicts) =
                    tree.insert_many(&mut self.txn, some, index.checks_at_once())?;
                done += n;
                if n > 0 && conflicts.is_none() {
                    continue;
                }
            }
            let (columns, rid) = split_key(keys[done])
                .ok_or_else(|| Error::Corrupt("a key has no row id".to_string()))?;
            let key = RowKey {
                bytes: columns.to_vec(),
                has_null,
            };
            self.insert_entry(table, heap, index, &key, rid)?;
            done += 1;
        }
        Ok(())
    }

    /// The number of keys before the first for which other sessions stand in line.
    fn before_wanted(&self, index: &IndexDef, keys: &[&[u8]]) -> usize {
        if !index.checks_at_once() || !self.txn.any_key_is_wanted() {
            return keys.len();
        }
        let is_wanted = |key: &&[u8]| {
            split_key(key)
                .is_some_and(|(key, _)| self.txn.is_key_wanted(Place::of_key(index.object, key)))
        };
        keys.iter().position(is_wanted).unwrap_or(keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The order holds whatever bytes keys share, at their beginning or in between, and however
        /// long they are.
        #[test]
        fn keys_are_sorted_as_their_bytes_compare(
            shared in prop::collection::vec(0u8..3, 0..70),
            parts in prop::collection::vec((prop::collection::vec(0u8..3, 0..40), 0u64..9), 0..60),
        ) {
            let mut keys = Keys::default();
            let rids: Vec<RowId> = parts.iter().map(|(_, rid)| RowId(*rid)).collect();
            for (own, _) in &parts {
                keys.push(|out| {
                    out.extend_from_slice(&own[..own.len() / 2]);
                    out.extend_from_slice(&shared);
                    out.extend_from_slice(&own[own.len() / 2..]);
                    Ok(Some(false))
                })
                .unwrap();
            }
            keys.place(&rids);
            let slices = |keys: &Keys| -> Vec<Vec<u8>> {
                keys.keys.iter().map(|k| keys.bytes[k.range()].to_vec()).collect()
            };
            let mut wanted = slices(&keys);
            wanted.sort();
            keys.sort();
            prop_assert_eq!(slices(&keys), wanted);
        }
    }
}
