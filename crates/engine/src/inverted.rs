//! Reading inverted indexes, which have any number of keys of a row, and several indexes for one
//! row: the row ids of several keys are brought together first, and then the rows are read in the
//! order of the table.
//!
//! **Invariants.**
//! - The rows found are all that the snapshot sees with the keys, and perhaps others: entries of
//!   other versions lead to a row, and keys whose entries are too many are left out. The caller
//!   checks each row.
//! - An entry of a version is there as long as a snapshot may see the version, as in any index
//!   ([`crate::write`]).

use crate::read::{CANCEL_STEPS, EntriesAhead, KeyRange, copy, key_range, timed};
use crate::session::IndexTimes;
use crate::{IndexDef, Result, Session, TableDef};
use access::btree::{BTree, Cursor};
use access::heap::Heap;
use block::key::after_prefix;
use block::value::Datum;
use block::{ObjectId, RowId};
use std::ops::Bound;
use std::sync::Arc;
use txn::Snapshot;
use wait::segment::{self, SegmentStat};
use wait::session::cancellable;

/// Entries that are read of a key, at first, to find out which of several keys has the fewest.
const FIRST_LOOK: usize = 256;
/// By how much more of each key is read next.
const NEXT_LOOK: usize = 8;
/// How many times as many entries as rows may be wanted are read, of all keys together, before the
/// table is read instead. Two keys that nearly as many rows have can then thin out each other.
const ENTRIES_PER_ROW: usize = 2;

/// Which rows of an inverted index are wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Those with a key.
    Key(Vec<u8>),
    /// Those that are in all of these.
    All(Vec<Wanted>),
    /// Those that are in one of these.
    Any(Vec<Wanted>),
    /// Rows of which the index knows nothing: all.
    Unknown,
}

/// Entries of an index that is not inverted: those of each of these ranges.
pub struct Entries {
    /// Position in the table's list of indexes.
    pub index: usize,
    /// In the order of the index. Each bound is a prefix of the key's columns.
    pub ranges: Vec<Bounds>,
}

/// The ends of a range of keys.
pub type Bounds = (Bound<Vec<Datum>>, Bound<Vec<Datum>>);

/// Rows in the order of their row ids.
pub struct RowsOfKeys {
    index: ObjectId,
    heap: Arc<Heap>,
    rows: Vec<RowId>,
    at: usize,
    ahead: EntriesAhead,
    /// Rows that were given, which are counted for the index in the end.
    given: u64,
}

impl Drop for RowsOfKeys {
    fn drop(&mut self) {
        segment::count(self.index.0, &[(SegmentStat::RowsFetched, self.given)]);
    }
}

/// An index that is being read.
struct Reader<'r> {
    tree: Arc<BTree>,
    times: Option<&'r mut IndexTimes>,
    /// Entries that were read.
    entries: usize,
    /// Entries that may be read, of all keys together.
    most_entries: usize,
}

impl Reader<'_> {
    /// The rows that are wanted, in order. `None`: the index does not say, or not by reading at
    /// most so many entries of each key, or the entries that may be read are spent.
    fn rows(&mut self, wanted: &Wanted, most: usize) -> Result<Option<Vec<RowId>>> {
        match wanted {
            Wanted::Unknown => Ok(None),
            // The entries of a key come in the order of their row ids.
            Wanted::Key(key) => self.of_range((key.clone(), after_prefix(key)), most),
            Wanted::Any(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    let Some(rows) = self.rows(part, most.saturating_sub(all.len()))? else {
                        return Ok(None);
                    };
                    all.extend(rows);
                }
                all.sort_unstable();
                all.dedup();
                Ok(Some(all))
            }
            Wanted::All(parts) => match parts.as_slice() {
                [] => Ok(None),
                [part] => self.rows(part, most),
                parts => self.common(parts, most),
            },
        }
    }

    /// The rows that are in all of these: those of the one with the fewest entries, without what
    /// is not in those others that have not very many more.
    fn common(&mut self, parts: &[Wanted], most: usize) -> Result<Option<Vec<RowId>>> {
        let mut look = FIRST_LOOK.min(most);
        let (fewest, mut rows) = 'found: loop {
            for (at, part) in parts.iter().enumerate() {
                if let Some(rows) = self.rows(part, look)? {
                    break 'found (at, rows);
                }
            }
            if look >= most || self.is_spent() {
                return Ok(None);
            }
            look = look.saturating_mul(NEXT_LOOK).min(most);
        };
        for (_, part) in parts.iter().enumerate().filter(|(at, _)| *at != fewest) {
            if rows.is_empty() || self.is_spent() {
                break;
            }
            let worth = (rows.len() * NEXT_LOOK).max(FIRST_LOOK).min(most);
            if let Some(others) = self.rows(part, worth)? {
                rows.retain(|row| others.binary_search(row).is_ok());
            }
        }
        Ok(Some(rows))
    }

    /// The rows of the entries of these ranges, in the order of the row ids.
    fn of_ranges(
        &mut self,
        ranges: impl Iterator<Item = KeyRange>,
        most: usize,
    ) -> Result<Option<Vec<RowId>>> {
        let mut all = Vec::new();
        for range in ranges {
            let Some(rows) = self.of_range(range, most.saturating_sub(all.len()))? else {
                return Ok(None);
            };
            all.extend(rows);
        }
        all.sort_unstable();
        all.dedup();
        Ok(Some(all))
    }

    /// Counts for the index what was met.
    fn count(&self, index: &IndexDef) {
        let met = (SegmentStat::RowsRead, self.entries as u64);
        segment::count(index.object.0, &[(SegmentStat::Scans, 1), met]);
    }

    fn is_spent(&self) -> bool {
        self.entries >= self.most_entries
    }

    /// The rows of the entries from a key on, up to another one, in the order of the entries.
    fn of_range(&mut self, (low, high): KeyRange, most: usize) -> Result<Option<Vec<RowId>>> {
        let tree = &self.tree;
        let most = most.min(self.most_entries - self.entries);
        let read = || {
            let mut cursor = Cursor::new(low, high, false);
            let mut rows = Vec::new();
            loop {
                if rows.len().is_multiple_of(CANCEL_STEPS as usize) {
                    wait::check_cancel().map_err(txn::Error::from)?;
                }
                let Some(found) = tree.next(&mut cursor)? else {
                    break;
                };
                if rows.len() == most {
                    return Ok((None, most));
                }
                rows.push(found.rid);
            }
            let count = rows.len();
            Ok((Some(rows), count))
        };
        let times = self.times.as_deref_mut();
        let (rows, read) = timed(times, read, |(_, read)| *read as u64)?;
        self.entries += read;
        Ok(rows)
    }
}

impl RowsOfKeys {
    /// The next row that the snapshot sees; its bytes go to `row`.
    pub fn next(
        &mut self,
        _session: &mut Session,
        snapshot: &Snapshot,
        row: &mut Vec<u8>,
    ) -> Result<Option<RowId>> {
        cancellable(|| self.walk(snapshot, row))
    }

    fn walk(&mut self, snapshot: &Snapshot, row: &mut Vec<u8>) -> Result<Option<RowId>> {
        let asks_ahead = self.heap.asks_ahead();
        while let Some(rid) = self.rows.get(self.at).copied() {
            if (self.at as u32).is_multiple_of(CANCEL_STEPS) {
                wait::check_cancel().map_err(txn::Error::from)?;
            }
            if asks_ahead {
                let next = self.rows[self.at..].iter().copied();
                self.ahead.step(&self.heap, snapshot, next)?;
            }
            self.at += 1;
            let ahead = &self.ahead.blocks;
            let copy = |bytes: &[u8]| copy(bytes, row);
            let found = self.heap.fetch_ahead_with(snapshot, rid, ahead, copy)?;
            if found.is_some() {
                self.given += 1;
                return Ok(Some(rid));
            }
        }
        Ok(None)
    }
}

impl Session {
    /// The rows that are wanted of an inverted index, and perhaps others. `None`: the index does
    /// not tell which, or only by more entries than fit so many bytes; all rows are to be read.
    pub fn rows_of_keys(
        &mut self,
        table: &TableDef,
        index: &IndexDef,
        wanted: &Wanted,
        snapshot: &Snapshot,
        memory_bytes: usize,
    ) -> Result<Option<RowsOfKeys>> {
        index.check_usable(snapshot)?;
        let most = memory_bytes / size_of::<RowId>();
        let mut reader = Reader {
            tree: self.engine.tree(index.object, index.header),
            times: self.index_times.as_mut(),
            entries: 0,
            most_entries: most.saturating_mul(ENTRIES_PER_ROW),
        };
        let rows = cancellable(|| reader.rows(wanted, most))?;
        reader.count(index);
        Ok(rows.map(|rows| self.rows_by(table, index, rows)))
    }

    /// The rows that entries of each of these indexes lead to, and perhaps others. `None`: the row
    /// ids of two of the indexes do not fit into so many bytes; all rows are to be read.
    pub fn rows_in_common(
        &mut self,
        table: &TableDef,
        parts: &[Entries],
        snapshot: &Snapshot,
        memory_bytes: usize,
    ) -> Result<Option<RowsOfKeys>> {
        let most = memory_bytes / size_of::<RowId>() / 2;
        let mut common: Option<Vec<RowId>> = None;
        for part in parts {
            let index = &table.indexes[part.index];
            index.check_usable(snapshot)?;
            let mut reader = Reader {
                tree: self.engine.tree(index.object, index.header),
                times: self.index_times.as_mut(),
                entries: 0,
                most_entries: most,
            };
            let ranges = part.ranges.iter();
            let ranges = ranges.map(|(low, high)| range(table, index, low, high));
            let rows = cancellable(|| reader.of_ranges(ranges, most))?;
            reader.count(index);
            let Some(rows) = rows else {
                return Ok(None);
            };
            match &mut common {
                None => common = Some(rows),
                Some(common) => common.retain(|row| rows.binary_search(row).is_ok()),
            }
            if common.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
        }
        let first = parts.first().map(|part| &table.indexes[part.index]);
        Ok(common
            .zip(first)
            .map(|(rows, index)| self.rows_by(table, index, rows)))
    }

    fn rows_by(&self, table: &TableDef, index: &IndexDef, rows: Vec<RowId>) -> RowsOfKeys {
        RowsOfKeys {
            index: index.object,
            heap: self.engine.heap(table.object, table.header),
            rows,
            at: 0,
            ahead: EntriesAhead::default(),
            given: 0,
        }
    }
}

fn range(
    table: &TableDef,
    index: &IndexDef,
    low: &Bound<Vec<Datum>>,
    high: &Bound<Vec<Datum>>,
) -> KeyRange {
    let [low, high] = [low, high].map(|bound| bound.as_ref().map(Vec::as_slice));
    key_range(&table.columns, index, low, high)
}
