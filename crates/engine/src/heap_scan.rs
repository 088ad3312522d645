//! Scans of all rows of a table, a block at a time. They hold no latch and no pin between calls.

use std::collections::BTreeSet;
use std::sync::Arc;

use access::heap::Heap;
use block::{Dba, RowId};
use cache::AskedAhead;
use txn::Snapshot;
use wait::longop::{LongOp, Target};
use wait::segment::{self, SegmentStat};
use wait::session::cancellable;

use crate::{Result, Session};

/// Blocks read ahead at a time.
const READ_AHEAD: u32 = 64;
/// A scan of all rows of a table, a block at a time. Several scans can divide a table's blocks
/// among themselves ([`HeapScan::split`]).
#[derive(Clone)]
pub struct HeapScan {
    heap: Arc<Heap>,
    /// `None` until the first call.
    runs: Option<Vec<(Dba, u32)>>,
    run: usize,
    at: u32,
    ahead: AskedAhead,
    progress: ScanProgress,
    /// What the scan is, to those who ask how far it is.
    name: &'static str,
    counting: Counting,
}

/// What a scan counts for its table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    /// The scan itself, with its first block, and its rows.
    Scan,
    /// The rows that it reads: another part counts the scan.
    Rows,
    /// Nothing: it looks at some blocks.
    Nothing,
}

/// Blocks of a scan from which on it is told how far it has come.
const LONG_SCAN_BLOCKS: u64 = 1000;

/// How far a scan has come. The parts into which one is divided have each their own.
#[derive(Default)]
struct ScanProgress {
    has_begun: bool,
    blocks: u64,
    work: Option<LongOp>,
}

impl Clone for ScanProgress {
    fn clone(&self) -> ScanProgress {
        ScanProgress::default()
    }
}

impl ScanProgress {
    /// Before each block.
    fn advance(&mut self, name: &'static str, object: block::ObjectId, runs: &[(Dba, u32)]) {
        if !self.has_begun {
            self.has_begun = true;
            let total: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
            self.work = (total >= LONG_SCAN_BLOCKS)
                .then(|| LongOp::begin(name, Target::Object(object.0), total, "Blocks"));
        }
        if let Some(work) = &self.work
            && self.blocks.is_multiple_of(READ_AHEAD.into())
        {
            work.set(self.blocks);
        }
        self.blocks += 1;
    }

    /// All blocks have been read.
    fn end(&mut self) {
        if let Some(work) = self.work.take() {
            work.set(self.blocks);
        }
    }
}

impl HeapScan {
    pub(crate) fn new(heap: Arc<Heap>) -> HeapScan {
        HeapScan {
            heap,
            runs: None,
            run: 0,
            at: 0,
            ahead: AskedAhead::default(),
            progress: ScanProgress::default(),
            name: "Table Scan",
            counting: Counting::Scan,
        }
    }

    /// Gives the visible rows of the next block to `f`. `f` must not wait: most rows are given
    /// under the block's latch. False at the end.
    pub fn next_block(
        &mut self,
        _session: &mut Session,
        snapshot: &Snapshot,
        f: &mut dyn FnMut(RowId, &[u8]),
    ) -> Result<bool> {
        self.next_block_of(snapshot, f)
    }

    /// Like [`HeapScan::next_block`], for a worker without a session, whose snapshot is held for
    /// it.
    pub fn next_block_of(
        &mut self,
        snapshot: &Snapshot,
        f: &mut dyn FnMut(RowId, &[u8]),
    ) -> Result<bool> {
        let Some(dba) = self.advance(snapshot)? else {
            return Ok(false);
        };
        let rows = cancellable(|| self.heap.scan_block(snapshot, dba, &self.ahead, f))?;
        self.count(rows);
        Ok(true)
    }

    /// Gives the visible rows of the next block all at once, most of them under the block's latch.
    /// False at the end.
    pub fn next_rows_of(
        &mut self,
        snapshot: &Snapshot,
        f: &mut dyn FnMut(&[&[u8]]),
    ) -> Result<bool> {
        let Some(dba) = self.advance(snapshot)? else {
            return Ok(false);
        };
        let rows = cancellable(|| self.heap.scan_block_rows(snapshot, dba, &self.ahead, f))?;
        self.count(rows);
        Ok(true)
    }

    /// A block has given so many rows.
    fn count(&self, rows: u64) {
        if self.counting != Counting::Nothing {
            segment::count(self.heap.object().0, &[(SegmentStat::RowsRead, rows)]);
        }
    }

    /// The block to read next. The blocks after it are being read ahead by then.
    fn advance(&mut self, snapshot: &Snapshot) -> Result<Option<Dba>> {
        if self.runs.is_none() {
            self.runs = Some(cancellable(|| self.heap.block_runs())?);
        }
        if self.counting == Counting::Scan {
            self.counting = Counting::Rows;
            segment::count(self.heap.object().0, &[(SegmentStat::Scans, 1)]);
        }
        let runs = self.runs.as_deref().unwrap_or_default();
        let Some(&(first, n)) = runs.get(self.run) else {
            self.progress.end();
            return Ok(None);
        };
        self.progress.advance(self.name, self.heap.object(), runs);
        if self.at.is_multiple_of(READ_AHEAD) {
            let next = first.plus(self.at);
            let count = READ_AHEAD.min(n - self.at);
            self.heap.prefetch(next, count);
            if self.heap.asks_ahead() {
                let blocks: Vec<Dba> = (0..count).map(|i| next.plus(i)).collect();
                cancellable(|| self.heap.ask_ahead(snapshot, &blocks, &mut self.ahead))?;
            }
        }
        let dba = first.plus(self.at);
        self.at += 1;
        if self.at == n {
            (self.run, self.at) = (self.run + 1, 0);
        }
        Ok(Some(dba))
    }

    /// The number of blocks that the scan reads in all.
    pub fn blocks(&self) -> Result<u64> {
        Ok(cancellable(|| self.heap.block_runs())?
            .iter()
            .map(|r| u64::from(r.1))
            .sum())
    }

    /// A scan of `wanted` blocks of the table, in their order, drawn so that each is as likely as
    /// any other; and of how many they are drawn. The seed decides which.
    pub fn sampled(&self, wanted: u64, seed: u64) -> Result<(HeapScan, u64)> {
        let runs = cancellable(|| self.heap.block_runs())?;
        let total: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
        let mut draw = seam::Rng(seed);
        let (mut left, mut wanted) = (total, wanted.min(total));
        let mut drawn: Vec<(Dba, u32)> = Vec::new();
        for (first, n) in runs {
            for at in 0..n {
                // Knuth's algorithm S: of those that are left, so many are still wanted.
                if draw.below(left) < wanted {
                    match drawn.last_mut() {
                        Some((from, n)) if from.plus(*n) == first.plus(at) => *n += 1,
                        _ => drawn.push((first.plus(at), 1)),
                    }
                    wanted -= 1;
                }
                left -= 1;
            }
        }
        let sample = HeapScan {
            name: "Table Analysis",
            ..self.over(drawn)
        };
        Ok((sample, total))
    }

    /// A scan of the blocks of these numbers that are the table's, each once.
    pub fn of_blocks(&self, numbers: &BTreeSet<u32>) -> Result<HeapScan> {
        let runs = cancellable(|| self.heap.block_runs())?;
        let mut found: Vec<(Dba, u32)> = Vec::new();
        for (first, n) in runs {
            let from = first.block();
            let here = numbers.range(from..from.saturating_add(n));
            found.extend(here.map(|b| (first.plus(b - from), 1)));
        }
        Ok(self.over(found))
    }

    /// A scan of the blocks that `wanted` says yes to.
    pub fn picked(&self, wanted: &mut dyn FnMut(Dba) -> bool) -> Result<HeapScan> {
        let runs = cancellable(|| self.heap.block_runs())?;
        let blocks = (runs.iter()).flat_map(|(first, n)| (0..*n).map(|at| first.plus(at)));
        let picked = blocks.filter(|b| wanted(*b)).map(|b| (b, 1)).collect();
        Ok(self.over(picked))
    }

    fn over(&self, runs: Vec<(Dba, u32)>) -> HeapScan {
        HeapScan {
            runs: Some(runs),
            counting: Counting::Nothing,
            ..HeapScan::new(self.heap.clone())
        }
    }

    /// The scan, which counts as one of its table.
    #[must_use]
    pub fn counted(mut self) -> HeapScan {
        self.counting = Counting::Scan;
        self
    }

    /// Divides a scan that has not begun into at most `parts` scans of about the same number of
    /// blocks.
    pub fn split(&self, parts: usize) -> Result<Vec<HeapScan>> {
        let runs = cancellable(|| self.heap.block_runs())?;
        let total: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
        let share = total.div_ceil(parts as u64).max(1);
        let mut scans: Vec<HeapScan> = Vec::new();
        let mut left = 0;
        for (mut first, mut n) in runs {
            while n > 0 {
                if left == 0 {
                    let mut part = self.over(Vec::new());
                    part.counting = match scans.is_empty() {
                        true => self.counting,
                        false => Counting::Rows,
                    };
                    scans.push(part);
                    left = share;
                }
                let take = u64::from(n).min(left) as u32;
                if let Some(runs) = scans.last_mut().and_then(|s| s.runs.as_mut()) {
                    runs.push((first, take));
                }
                (first, n, left) = (first.plus(take), n - take, left - u64::from(take));
            }
        }
        Ok(scans)
    }
}
