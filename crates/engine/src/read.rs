//! Cursors over rows. They hold no latch and no pin between calls.

use crate::heap_scan::HeapScan;
use crate::session::IndexTimes;
use crate::{Engine, Result, Session, TableDef};
use access::btree::{BTree, Cursor};
use access::heap::{Heap, Sight};
use block::key::{after_prefix, push_column};
use block::value::{ColType, Datum};
use block::{Dba, RowId};
use cache::{AHEAD_BLOCKS, AskedAhead};
use std::ops::Bound;
use std::sync::Arc;
use txn::{Isolation, Snapshot};
use wait::longop::{Counted, Target};
use wait::segment::{self, SegmentStat};
use wait::session::cancellable;

/// Entries of an index between two checks of whether the statement is cancelled.
pub(crate) const CANCEL_STEPS: u32 = 64;

/// Runs a part of a walk through an index, and notes what it took if that is wanted. `f` returns
/// how many entries it met.
pub(crate) fn timed<R>(
    times: Option<&mut IndexTimes>,
    f: impl FnOnce() -> Result<R>,
    entries: impl FnOnce(&R) -> u64,
) -> Result<R> {
    let Some(times) = times else { return f() };
    let gets = || {
        let stat = |s: &wait::session::Session| s.counters.stat(wait::Stat::ConsistentGets);
        wait::session::with(stat).unwrap_or(0)
    };
    let (before, started) = (gets(), seam::now());
    let done = f()?;
    times.time += seam::elapsed(started);
    times.gets += gets() - before;
    times.entries += entries(&done);
    Ok(done)
}

/// A scan of rows in the order of an index.
pub struct IndexScan {
    tree: Arc<BTree>,
    heap: Arc<Heap>,
    table: Arc<TableDef>,
    index: usize,
    cursor: Cursor,
    scratch: Vec<u8>,
    /// Entries met. After every so many, a long walk checks whether it is still wanted.
    steps: u32,
    /// For those who ask how far it is.
    walked: Counted,
    ahead: EntriesAhead,
    counted: Met,
}

/// What a walk through an index met and has not counted yet.
#[derive(Default)]
struct Met {
    has_begun: bool,
    entries: u64,
    rows: u64,
}

impl Met {
    /// Counts what was met for the index.
    fn count(&mut self, index: block::ObjectId, scans: u64) {
        let counts = [
            (SegmentStat::Scans, scans),
            (SegmentStat::RowsRead, std::mem::take(&mut self.entries)),
            (SegmentStat::RowsFetched, std::mem::take(&mut self.rows)),
        ];
        segment::count(index.0, &counts);
    }
}

impl Drop for IndexScan {
    fn drop(&mut self) {
        if self.counted.entries > 0 {
            self.counted.count(self.table.indexes[self.index].object, 0);
        }
    }
}

/// The rows of an index's next entries, whose blocks have been asked for.
#[derive(Default)]
pub(crate) struct EntriesAhead {
    pub blocks: AskedAhead,
    /// The number of entries that are still covered.
    left: usize,
    /// The number that was covered the last time: none for the first row, which may be all that is
    /// wanted, and then more each time.
    last: usize,
}

impl EntriesAhead {
    /// Called for each entry. `next` are the rows of the entry and of those that follow it.
    pub fn step(
        &mut self,
        heap: &Heap,
        snapshot: &Snapshot,
        next: impl Iterator<Item = RowId>,
    ) -> Result<()> {
        if self.left > 0 {
            self.left -= 1;
            return Ok(());
        }
        let most = (self.last * 4).clamp(1, AHEAD_BLOCKS);
        let blocks: Vec<Dba> = next.take(most).map(RowId::dba).collect();
        self.last = most;
        self.left = blocks.len().saturating_sub(1);
        Ok(heap.ask_ahead(snapshot, &blocks, &mut self.blocks)?)
    }
}

impl IndexScan {
    /// The next row that `snapshot` sees and that has the entry's key; its bytes go to `row`.
    pub fn next(
        &mut self,
        session: &mut Session,
        snapshot: &Snapshot,
        row: &mut Vec<u8>,
    ) -> Result<Option<RowId>> {
        cancellable(|| self.walk(session.index_times.as_mut(), snapshot, row))
    }

    /// Like [`IndexScan::next`], for a worker without a session, whose snapshot is held for it.
    pub fn next_of(&mut self, snapshot: &Snapshot, row: &mut Vec<u8>) -> Result<Option<RowId>> {
        self.walk(None, snapshot, row)
    }

    fn walk(
        &mut self,
        mut times: Option<&mut IndexTimes>,
        snapshot: &Snapshot,
        row: &mut Vec<u8>,
    ) -> Result<Option<RowId>> {
        let index = &self.table.indexes[self.index];
        index.check_usable(snapshot)?;
        if !std::mem::replace(&mut self.counted.has_begun, true) {
            self.counted.count(index.object, 1);
        }
        let (tree, cursor) = (&self.tree, &mut self.cursor);
        let asks_ahead = self.heap.asks_ahead();
        while let Some(found) = timed(
            times.as_deref_mut(),
            || Ok(tree.next(cursor)?),
            |found| u64::from(found.is_some()),
        )? {
            self.steps = self.steps.wrapping_add(1);
            self.walked.step();
            self.counted.entries += 1;
            if self.steps.is_multiple_of(CANCEL_STEPS) {
                self.counted.count(index.object, 0);
                wait::check_cancel().map_err(txn::Error::from)?;
            }
            let ahead = &mut self.ahead;
            if asks_ahead {
                ahead.step(&self.heap, snapshot, found.and_next())?;
            }
            let (heap, ahead) = (&self.heap, &ahead.blocks);
            let copied =
                heap.fetch_ahead_with(snapshot, found.rid, ahead, |bytes| copy(bytes, row))?;
            if copied.is_some() && index.matches(&self.table, row, found.key, &mut self.scratch)? {
                self.counted.rows += 1;
                return Ok(Some(found.rid));
            }
        }
        Ok(None)
    }
}

impl Engine {
    /// A scan of the rows between two bounds. Each bound is a prefix of the key's columns.
    pub fn index_range(
        &self,
        table: &Arc<TableDef>,
        index: usize,
        low: Bound<&[Datum]>,
        high: Bound<&[Datum]>,
        backward: bool,
    ) -> Result<IndexScan> {
        let def = &table.indexes[index];
        let (low, high) = key_range(&table.columns, def, low, high);
        let cursor = Cursor::new(low, high, backward);
        Ok(IndexScan {
            tree: self.tree(def.object, def.header),
            heap: self.heap(table.object, table.header),
            table: table.clone(),
            index,
            cursor,
            scratch: Vec::new(),
            steps: 0,
            walked: Counted::new("Index Scan", Target::Object(def.object.0), 0, "Entries"),
            ahead: EntriesAhead::default(),
            counted: Met::default(),
        })
    }
}

/// The address of an undo record in 32 bits, each of which depends on all of its 64. Numbers below
/// three have a meaning of their own in PostgreSQL.
fn number_of_version(at: u64) -> u32 {
    let mut bits = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 32;
    bits = bits.wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((bits >> 32) as u32).max(3)
}

impl Session {
    /// Notes, from now on, what walks through indexes take. [`Session::index_times`] ends that.
    pub fn time_indexes(&mut self) {
        self.index_times = Some(IndexTimes::default());
    }

    /// A number that tells the version of a row that the snapshot sees from the row's other
    /// versions, or without a snapshot the newest version; zero if there is none. See
    /// [`Heap::version`].
    pub fn row_version(
        &mut self,
        table: &TableDef,
        rid: RowId,
        snapshot: Option<&Snapshot>,
    ) -> Result<u32> {
        let heap = self.engine.heap(table.object, table.header);
        let version = cancellable(|| heap.version(rid, snapshot))?;
        Ok(version.map_or(0, |at| number_of_version(at.0)))
    }

    pub fn index_times(&mut self) -> IndexTimes {
        self.index_times.take().unwrap_or_default()
    }

    pub fn scan(&mut self, table: &Arc<TableDef>) -> HeapScan {
        HeapScan::new(self.engine.heap(table.object, table.header))
    }

    /// A scan of the rows between two bounds. Each bound is a prefix of the key's columns.
    pub fn index_range(
        &mut self,
        table: &Arc<TableDef>,
        index: usize,
        low: Bound<&[Datum]>,
        high: Bound<&[Datum]>,
        backward: bool,
    ) -> Result<IndexScan> {
        self.engine.index_range(table, index, low, high, backward)
    }

    /// Whether it is of use to ask for blocks ahead: other instances may have them.
    pub fn asks_ahead(&self) -> bool {
        self.engine.cache.is_clustered()
    }

    /// Asks other instances at once for the blocks of the rows that these whole keys lead to: for
    /// copies as of the snapshot or, without one, to change them. Looks at [`AHEAD_BLOCKS`] keys at
    /// most, and at none on a lone instance; returns how many.
    pub fn ask_ahead<'k>(
        &mut self,
        table: &TableDef,
        index: usize,
        keys: impl Iterator<Item = &'k [Datum]>,
        snapshot: Option<&Snapshot>,
        ahead: &mut AskedAhead,
    ) -> Result<usize> {
        if !self.asks_ahead() {
            return Ok(0);
        }
        let heap = self.engine.heap(table.object, table.header);
        let def = &table.indexes[index];
        let tree = self.engine.tree(def.object, def.header);
        let (mut blocks, mut entries, mut looked) = (Vec::new(), Vec::new(), 0);
        for key in keys.take(AHEAD_BLOCKS) {
            entries.clear();
            cancellable(|| tree.lookup(&prefix(&table.columns, def, key), &mut entries))?;
            blocks.extend(entries.iter().map(|(rid, _)| rid.dba()));
            looked += 1;
        }
        cancellable(|| match snapshot {
            Some(snapshot) => heap.ask_ahead(snapshot, &blocks, ahead),
            None => heap.ask_ahead_to_change(&blocks),
        })?;
        Ok(looked)
    }

    /// Reads the row that a whole key of a unique index leads to. `ahead` has what was asked for
    /// before ([`Session::ask_ahead`]).
    pub fn get_unique(
        &mut self,
        table: &TableDef,
        index: usize,
        key: &[Datum],
        snapshot: &Snapshot,
        ahead: &AskedAhead,
        row: &mut Vec<u8>,
    ) -> Result<Option<RowId>> {
        table.indexes[index].check_usable(snapshot)?;
        let found = self.look_up(table, index, key, row, |heap, rid, row| {
            let found = heap.fetch_ahead_with(snapshot, rid, ahead, |bytes| copy(bytes, row))?;
            Ok(found.map_or(Sight::Nothing, Sight::Row))
        })?;
        Ok(found.settled())
    }

    /// Looks up a row that the caller is about to change. [`Sight::Newer`] is returned only if
    /// `may_renew` is set: the statement has read nothing else yet, and would begin again with a
    /// snapshot of now.
    pub fn get_unique_to_change(
        &mut self,
        table: &TableDef,
        index: usize,
        key: &[Datum],
        snapshot: &Snapshot,
        may_renew: bool,
        row: &mut Vec<u8>,
    ) -> Result<Sight<RowId>> {
        table.indexes[index].check_usable(snapshot)?;
        // The snapshot of a whole transaction is not renewed.
        let may_renew = may_renew && self.txn.isolation() == Isolation::ReadCommitted;
        self.look_up(table, index, key, row, |heap, rid, row| {
            Ok(heap.fetch_to_change(snapshot, rid, may_renew, |bytes| copy(bytes, row))?)
        })
    }

    fn look_up(
        &mut self,
        table: &TableDef,
        index: usize,
        key: &[Datum],
        row: &mut Vec<u8>,
        fetch: impl Fn(&Heap, RowId, &mut Vec<u8>) -> Result<Sight<()>>,
    ) -> Result<Sight<RowId>> {
        let def = &table.indexes[index];
        let key = prefix(&table.columns, def, key);
        let tree = self.engine.tree(def.object, def.header);
        let heap = self.engine.heap(table.object, table.header);
        let mut entries = Vec::new();
        timed(
            self.index_times.as_mut(),
            || {
                cancellable(|| tree.lookup(&key, &mut entries))?;
                Ok(entries.len() as u64)
            },
            |n| *n,
        )?;
        let mut met = Met {
            has_begun: true,
            entries: entries.len() as u64,
            rows: 0,
        };
        let mut sight = Sight::Nothing;
        for (rid, _) in entries {
            match cancellable(|| fetch(&heap, rid, row))? {
                Sight::Row(()) if def.matches(table, row, &key, &mut self.scratch)? => {
                    met.rows = 1;
                    sight = Sight::Row(rid);
                    break;
                }
                Sight::Row(()) | Sight::Nothing => {}
                Sight::Newer => {
                    sight = Sight::Newer;
                    break;
                }
            }
        }
        met.count(def.object, 1);
        Ok(sight)
    }
}

pub(crate) fn copy(bytes: &[u8], row: &mut Vec<u8>) {
    row.clear();
    row.extend_from_slice(bytes);
}

/// From a key on, up to another one, or to the end.
pub(crate) type KeyRange = (Vec<u8>, Option<Vec<u8>>);

/// The range of an index between two bounds. Each bound is a prefix of the key's columns.
pub(crate) fn key_range(
    columns: &[ColType],
    index: &crate::IndexDef,
    low: Bound<&[Datum]>,
    high: Bound<&[Datum]>,
) -> KeyRange {
    let prefix = |values: &[Datum]| prefix(columns, index, values);
    // `None` is above every key: no key follows such a prefix.
    let low = match low {
        Bound::Unbounded => Some(Vec::new()),
        Bound::Included(v) => Some(prefix(v)),
        Bound::Excluded(v) => after_prefix(&prefix(v)),
    };
    let high = match high {
        Bound::Unbounded => None,
        Bound::Included(v) => after_prefix(&prefix(v)),
        Bound::Excluded(v) => Some(prefix(v)),
    };
    match low {
        Some(low) => (low, high),
        None => (Vec::new(), Some(Vec::new())),
    }
}

fn prefix(columns: &[ColType], index: &crate::IndexDef, values: &[Datum]) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    for (at, (c, v)) in index.columns.iter().zip(values).enumerate() {
        let ty = index.type_of(columns, at);
        push_column(&mut key, ty, c.order(), v.borrow());
    }
    key
}
