//! Looking for damage.

use super::Heap;
use crate::Result;
use block::heap;
use block::{BlockType, RowId};

/// What a heap was found to hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapReport {
    pub blocks: u64,
    /// Rows that are not delete-marked, pieces not counted.
    pub rows: u64,
}

impl Heap {
    /// Reads every block and reports every inconsistency within it, and every chained row whose pieces are not whole. Nobody may change the heap meanwhile.
    pub fn verify(&self, problem: &mut dyn FnMut(String)) -> Result<HeapReport> {
        let mut report = HeapReport::default();
        for (first, n) in self.block_runs()? {
            for i in 0..n {
                let dba = first.plus(i);
                if i % 64 == 0 {
                    self.prefetch(dba, 64.min(n - i));
                }
                let mut chained = Vec::new();
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
                        if row.head.is_piece() || row.head.is_deleted() {
                            continue;
                        }
                        report.rows += 1;
                        if row.head.is_chained() {
                            chained.push((RowId::new(dba, slot), row.body.to_vec()));
                        }
                    }
                }
                for (rid, chain) in chained {
                    if let Err(e) = self.read_pieces(rid, &chain, &mut Vec::new()) {
                        problem(e.to_string());
                    }
                }
            }
        }
        Ok(report)
    }
}
