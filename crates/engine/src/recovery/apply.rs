//! Roll-forward: reads redo from the checkpoint on, and applies it to the blocks that lack it.
//!
//! All threads that were not closed are read as one stream by SCN. A block takes a vector if its
//! SCN is the vector's *before*. It passes over a vector that it has already. Anything else is
//! damage, and stops the start.

use crate::{Error, Progress, Result};
use block::record::Vector;
use block::{Dba, InstanceId, LogPos, ThreadId};
use cache::Cache;
use redo::{Merge, Merged, RedoReader, apply_vector};
use seam::HashSet;
use std::collections::BTreeMap;
use storage::ThreadState;
use txn::TxnRecovery;
use wait::longop::{LongOp, Target};

/// Counts of what a start recovered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    pub redo_bytes: u64,
    pub records: u64,
    /// Blocks that lacked a change.
    pub blocks: u64,
    /// Transactions that have to be rolled back.
    pub transactions: u64,
    pub elapsed_ms: u64,
    /// Redo threads that were recovered.
    pub threads: u32,
}

impl Recovery {
    /// Adds what was recovered from one more thread.
    pub(crate) fn add(&mut self, more: &Recovery) {
        self.redo_bytes += more.redo_bytes;
        self.records += more.records;
        self.blocks += more.blocks;
        self.transactions += more.transactions;
        self.elapsed_ms += more.elapsed_ms;
        self.threads += more.threads;
    }
}

/// The thread of the instance as which this process opens. What became of its transactions is
/// learnt while redo is applied. What became of the others' is learnt when their turn comes.
pub(super) struct OwnThread {
    pub thread: ThreadId,
    /// Where the thread's redo is read from. A block that only the redo of other threads has
    /// changed counts as changed at this position. That is safe: their redo is durable, and the
    /// checkpoint stays where it is until all is written.
    pub start: LogPos,
    pub apply: Apply,
}

/// Which blocks the redo of an instance that opens is applied to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Apply {
    /// All blocks: no other instance is there.
    All,
    /// Only the instance's own undo, which has waited for it. Others have recovered the other
    /// blocks of its former life and may have changed them since. Those blocks are not even looked
    /// at, for this instance has not joined yet.
    OwnUndo,
    /// No block: the instance's thread was closed, with all its changes in the data files.
    Nothing,
}

impl Apply {
    /// The blocks to which a thread's redo is applied. `alone`: no other instance lives.
    pub fn of(thread: ThreadState, alone: bool) -> Apply {
        match thread {
            ThreadState::Open if alone => Apply::All,
            ThreadState::Open => Apply::OwnUndo,
            ThreadState::New | ThreadState::Closed => Apply::Nothing,
        }
    }

    pub fn takes(self, dba: Dba, instance: InstanceId) -> bool {
        match self {
            Apply::All => true,
            Apply::OwnUndo => dba.file().owner() == Some(instance),
            Apply::Nothing => false,
        }
    }
}

impl OwnThread {
    fn instance(&self) -> InstanceId {
        InstanceId(self.thread.0)
    }
}

/// Records between two reports of progress.
const REPORT_EVERY: u64 = 1_000;

/// Applies everything that the readers have. The cache's writer may be running, but its checkpoint
/// must not move meanwhile.
pub(super) fn apply_redo(
    cache: &Cache,
    readers: Vec<RedoReader<'_>>,
    own: &OwnThread,
    total_bytes: u64,
    progress: &dyn Progress,
) -> Result<(TxnRecovery, Recovery)> {
    let started = seam::now();
    let mut txns = TxnRecovery::default();
    let mut recovery = Recovery {
        redo_bytes: total_bytes,
        threads: 1,
        ..Recovery::default()
    };
    let mut blocks = HashSet::default();
    let readers_count = readers.len();
    let mut merge = Merge::new(readers)?;
    // For each thread, where its reading began and how far it is.
    let mut read: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    let mut groups = BTreeMap::new();
    let what = match readers_count {
        1 => format!("recovery: redo of instance {} applied", own.instance().0),
        n => format!("recovery: redo of {n} instances applied"),
    };
    progress.step(&what, 0, total_bytes);
    let work = LongOp::begin(
        "Instance Recovery",
        Target::Named(what.clone()),
        total_bytes,
        "Bytes",
    );
    while let Some(merged) = merge.next_record()? {
        recovery.records += 1;
        let pos = merged.record.pos.0;
        read.entry(merged.thread.0).or_insert((pos, pos)).1 = pos;
        if recovery.records.is_multiple_of(REPORT_EVERY) {
            let done = read.values().map(|(begin, now)| now - begin).sum();
            progress.step(&what, done, total_bytes);
            work.set(done);
        }
        let mut since = own.start;
        if merged.thread == own.thread {
            since = merged.record.pos;
            txns.record(merged.batch, &merged.record)?;
            if let Some(e) = merged.group {
                groups.insert(merged.batch, e);
            }
        }
        let taken = |v: &Vector<'_>| !v.dba.is_none() && own.apply.takes(v.dba, own.instance());
        for vector in merged.record.vectors().filter(taken) {
            if replay(cache, &merged, since, &vector)? {
                blocks.insert(vector.dba);
            }
        }
    }
    groups
        .into_iter()
        .for_each(|(batch, e)| txns.group(batch, e));
    recovery.blocks = blocks.len() as u64;
    wait::stat::add(wait::Stat::RecoveryBlocks, recovery.blocks);
    recovery.elapsed_ms = seam::elapsed(started).as_millis() as u64;
    Ok((txns, recovery))
}

fn replay(cache: &Cache, merged: &Merged<'_>, since: LogPos, vector: &Vector<'_>) -> Result<bool> {
    let mut guard = cache.write(vector.dba)?;
    guard.replay(since, |block| {
        apply_vector(block, merged.record.scn, vector).map_err(|what| Error::Replay {
            thread: merged.thread.0,
            pos: merged.record.pos.0,
            dba: vector.dba,
            what,
        })
    })
}
