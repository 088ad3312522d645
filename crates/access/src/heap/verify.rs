//! Looks for damage.

use super::Heap;
use super::undo::is_about;
use crate::Result;
use block::heap::{self, RowHead};
use block::ids::StampKind;
use block::{BlockType, RowId};
use seam::HashSet;

/// What `verify` found in a heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapReport {
    pub blocks: u64,
    /// The rows that are not delete-marked, pieces not counted.
    pub rows: u64,
}

impl Heap {
    /// Reads every block and reports every inconsistency within it. It also reports every chained
    /// row whose pieces are not whole, every piece that belongs to no row, and every row whose undo
    /// is another's. Nobody may change the heap meanwhile, and no transaction may be active.
    pub fn verify(&self, problem: &mut dyn FnMut(String)) -> Result<HeapReport> {
        let mut report = HeapReport::default();
        let (mut pieces, mut owned) = (HashSet::default(), HashSet::default());
        for (first, n) in self.block_runs()? {
            for i in 0..n {
                let dba = first.plus(i);
                if i % 64 == 0 {
                    self.prefetch(dba, 64.min(n - i));
                }
                let (mut chained, mut heads) = (Vec::new(), Vec::new());
                {
                    let block = match self.cache().read(dba) {
                        Ok(b) => b,
                        Err(e) => {
                            problem(format!("object {}: {e}", self.object().0));
                            continue;
                        }
                    };
                    if block.is_unformatted() || block.object() != self.object() {
                        continue;
                    }
                    // The block belongs to the list of extents, or was formatted for the list in
                    // vain.
                    if matches!(block.block_type(), Ok(BlockType::ExtentMap)) {
                        continue;
                    }
                    report.blocks += 1;
                    if !matches!(block.block_type(), Ok(BlockType::Heap)) {
                        problem(format!("block {dba} is no heap block"));
                        continue;
                    }
                    heap::verify(&block)
                        .into_iter()
                        .for_each(|p| problem(format!("block {dba}: {p}")));
                    for slot in 0..heap::slots(&block) {
                        let Ok(Some(row)) = heap::row(&block, slot) else {
                            continue;
                        };
                        let rid = RowId::new(dba, slot);
                        if !row.head.undo.is_none() {
                            heads.push((rid, row.head));
                        }
                        if row.head.is_deleted() {
                            continue;
                        }
                        if row.head.is_piece() {
                            pieces.insert(rid);
                            continue;
                        }
                        report.rows += 1;
                        if row.head.is_chained() {
                            chained.push((rid, row.body.to_vec()));
                        }
                    }
                }
                for (rid, chain) in chained {
                    let read = self.each_piece(rid, &chain, &mut |at, _| {
                        owned.insert(at);
                    });
                    if let Err(e) = read {
                        problem(e.to_string());
                    }
                }
                for (rid, head) in heads {
                    if let Some(what) = self.wrong_undo(rid, head) {
                        problem(format!("row {rid:?} of object {}: {what}", self.object().0));
                    }
                }
            }
        }
        let mut orphans: Vec<_> = pieces.difference(&owned).collect();
        orphans.sort();
        for rid in orphans {
            problem(format!(
                "object {}: piece {rid:?} belongs to no row",
                self.object().0
            ));
        }
        Ok(report)
    }

    /// What is wrong with the undo record that a row's head names. A record that is gone by now is
    /// no fault: nobody needs it.
    fn wrong_undo(&self, rid: RowId, head: RowHead) -> Option<String> {
        let record = match self.txns.undo_record(head.undo) {
            Err(txn::Error::SnapshotTooOld(_)) => return None,
            Err(e) => return Some(format!("its undo record {:?}: {e}", head.undo)),
            Ok(record) => record,
        };
        let by_whom = match head.stamp.kind() {
            StampKind::Txn(txn) => txn == record.txn,
            StampKind::Committed(_) => true,
        };
        let ours = record.object == self.object() && is_about(&record, rid) && by_whom;
        (!ours).then(|| {
            format!(
                "its undo record {:?} is of {:?}, object {}",
                head.undo, record.txn, record.object.0
            )
        })
    }
}
