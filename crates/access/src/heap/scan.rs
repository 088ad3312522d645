//! Reads all rows of a block at once.

use super::Heap;
use super::read::Version;
use crate::Result;
use block::heap;
use block::{BlockBuf, Dba, RowId, Scn, Stamp};
use cache::AskedAhead;
use txn::{Snapshot, Verdict};
use wait::{Stat, stat};

impl Heap {
    /// Gives `f` every row of the block that the snapshot sees. A block that is not the heap's
    /// gives none. `ahead` has copies that were asked for before ([`Heap::ask_ahead`]). `f` runs
    /// under the block's latch for most rows, so it must not wait. Returns how many rows it gave.
    pub fn scan_block(
        &self,
        snap: &Snapshot,
        dba: Dba,
        ahead: &AskedAhead,
        f: &mut dyn FnMut(RowId, &[u8]),
    ) -> Result<u64> {
        let mut later = Vec::new();
        let (lost, given) = loop {
            let lost = self.cache().copies_lost();
            let block = self.cache().read_as_of_ahead(dba, snap.scn, ahead)?;
            later.clear();
            if !block.is_copy() {
                let given = self.visible_rows(snap, dba, &block, &mut *f, &mut later)?;
                break (lost, given);
            }
            let mut rows = Vec::with_capacity(usize::from(heap::slots(&block)));
            let row = |rid, row| rows.push((rid, row));
            let given = self.visible_rows(snap, dba, &block, row, &mut later)?;
            if self.cache().copies_lost() == lost {
                rows.into_iter().for_each(|(rid, row)| f(rid, row));
                break (lost, given);
            }
        };
        Ok(given + self.later_rows(snap, lost, later, f)?)
    }

    /// Gives the rows of the block at once, for readers that take them apart column by column. Rows
    /// whose visible version is not the one in the block come one by one after them. Returns how
    /// many there were.
    pub fn scan_block_rows(
        &self,
        snap: &Snapshot,
        dba: Dba,
        ahead: &AskedAhead,
        f: &mut dyn FnMut(&[&[u8]]),
    ) -> Result<u64> {
        let mut later = Vec::new();
        let (lost, given) = loop {
            let lost = self.cache().copies_lost();
            let block = self.cache().read_as_of_ahead(dba, snap.scn, ahead)?;
            later.clear();
            let mut rows = Vec::with_capacity(usize::from(heap::slots(&block)));
            let given =
                self.visible_rows(snap, dba, &block, |_, row| rows.push(row), &mut later)?;
            if !block.is_copy() || self.cache().copies_lost() == lost {
                f(&rows);
                break (lost, given);
            }
        };
        Ok(given + self.later_rows(snap, lost, later, &mut |_, row| f(&[row]))?)
    }

    /// The rows that the snapshot sees as they are in the block, and how many these are. The others
    /// are put aside until the latch is free.
    #[inline]
    fn visible_rows<'b>(
        &self,
        snap: &Snapshot,
        dba: Dba,
        block: &'b BlockBuf,
        mut f: impl FnMut(RowId, &'b [u8]),
        later: &mut Vec<(RowId, Version)>,
    ) -> Result<u64> {
        if block.object() != self.object()
            || !matches!(block.block_type(), Ok(block::BlockType::Heap))
        {
            return Ok(0);
        }
        let (mut rows, mut given) = (0, 0);
        // A stamp and whether it is visible. At first it is a visible one, committed before all
        // time.
        let mut known = (Stamp::committed(Scn::ZERO), true);
        for slot in 0..heap::slots(block) {
            let Some(row) = heap::row(block, slot)? else {
                continue;
            };
            if row.head.is_piece() {
                continue;
            }
            rows += 1;
            // Neighbours mostly come from one transaction, and a verdict stands.
            if known.0 != row.head.stamp {
                // A row whose verdict must be asked for is looked at again when the latch is free.
                let verdict = self.txns.verdict(row.head.stamp, snap);
                known = (row.head.stamp, matches!(verdict, Verdict::Visible));
            }
            let visible = known.1;
            if visible && row.head.is_deleted() {
                continue;
            }
            let rid = RowId::new(dba, slot);
            match visible && !row.head.is_chained() {
                true => {
                    given += 1;
                    f(rid, row.body);
                }
                false => later.push((
                    rid,
                    Version {
                        head: row.head,
                        body: row.body.to_vec(),
                    },
                )),
            }
        }
        stat::add(Stat::TableScanBlocks, 1);
        stat::add(Stat::TableScanRows, rows);
        Ok(given)
    }

    /// Reads the rows that were put aside. `lost` is what [`cache::Cache::copies_lost`] said before
    /// the rows were read. Once a copy's maker is gone, what the copy told of the rows is worth
    /// nothing; then each row is read anew. Returns how many the snapshot sees.
    fn later_rows(
        &self,
        snap: &Snapshot,
        lost: u64,
        later: Vec<(RowId, Version)>,
        f: &mut dyn FnMut(RowId, &[u8]),
    ) -> Result<u64> {
        let mut given = 0;
        for (rid, mut version) in later {
            let seen = self.resolve(snap, rid, &mut version);
            if self.cache().copies_lost() != lost {
                let found = self.fetch_with(snap, rid, |row| f(rid, row))?;
                given += u64::from(found.is_some());
            } else if seen? {
                f(rid, &version.body);
                given += 1;
            }
        }
        Ok(given)
    }

    /// Reads blocks ahead of a scan.
    pub fn prefetch(&self, first: Dba, n: u32) {
        self.cache().prefetch(first, n);
    }
}
