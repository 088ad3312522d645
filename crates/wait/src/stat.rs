//! Counters of what was done, per session and instance (`v$sesstat`, `v$sysstat`).

use crate::session;

macro_rules! stats {
    ($($id:ident, $name:literal;)*) => {
        /// A statistic. The unit is in the name: bytes if it says so, otherwise occurrences.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Stat { $($id),* }

        impl Stat {
            pub const ALL: &'static [Stat] = &[$(Stat::$id),*];
            pub const COUNT: usize = Stat::ALL.len();
            pub fn name(self) -> &'static str {
                match self { $(Stat::$id => $name),* }
            }
        }
    };
}

stats! {
    ConsistentGets, "consistent gets";
    DbBlockGets, "db block gets";
    DbBlockChanges, "db block changes";
    ConsistentChanges, "consistent changes";
    PhysicalReads, "physical reads";
    PhysicalWrites, "physical writes";
    PrefetchedBlocks, "physical reads cache prefetch";
    FreeBufferRequested, "free buffer requested";
    DbwrCheckpointBlocks, "DBWR checkpoint buffers written";
    CleanoutsOnly, "cleanouts only - consistent read gets";
    RedoEntries, "redo entries";
    RedoSize, "redo size (bytes)";
    RedoWrites, "redo writes";
    RedoBytesWritten, "redo bytes written";
    RedoSyncs, "redo synch writes";
    UndoBytes, "undo change vector size (bytes)";
    UserCommits, "user commits";
    UserRollbacks, "user rollbacks";
    UserCalls, "user calls";
    ExecuteCount, "execute count";
    ParseCount, "parse count (total)";
    ParseHard, "parse count (hard)";
    ParseTime, "parse time elapsed (nanoseconds)";
    ParseTimeHard, "hard parse elapsed time (nanoseconds)";
    ExecuteTime, "sql execute elapsed time (nanoseconds)";
    FetchesOfRest, "fetches of the rest of a result";
    FetchWaitTime, "time between fetches of a result (nanoseconds)";
    DirectPlans, "executions by direct plan";
    SortRows, "sorts (rows)";
    TableScanRows, "table scan rows gotten";
    TableScanBlocks, "table scan blocks gotten";
    TableFetchByRowid, "table fetch by rowid";
    IndexScans, "index scans";
    LeafSplits, "leaf node splits";
    BranchSplits, "branch node splits";
    IndexPurged, "index entries purged";
    RowsPurged, "heap rows purged";
    RowLockWaits, "row lock waits";
    EnqueueRequests, "enqueue requests";
    EnqueueWaits, "enqueue waits";
    EnqueueTimeouts, "enqueue timeouts";
    Deadlocks, "enqueue deadlocks";
    StatementRestarts, "write consistency restarts";
    BytesFromClient, "bytes received via SQL*Net from client";
    BytesToClient, "bytes sent via SQL*Net to client";
    LogonsCumulative, "logons cumulative";
    SnapshotTooOld, "snapshots failed (too old)";
    UndoStolen, "undo extents stolen unexpired";
    SequenceDraws, "sequence draws";
    SequenceMarks, "sequence marks written";
    SequenceRequests, "sequence values asked of other instances";
    SequenceValuesServed, "sequence values served to other instances";
    RecoveryBlocks, "recovery blocks changed";
    GcCurrentBlocksReceived, "gc current blocks received";
    GcCurrentBlocksServed, "gc current blocks served";
    GcCrBlocksReceived, "gc cr blocks received";
    GcBlocksAskedAhead, "gc blocks asked ahead";
    GcCrBlocksServed, "gc cr blocks served";
    GcBlockFlushes, "gc current block flushes";
    GcBlocksDeferred, "gc current blocks deferred";
    CommitBroadcastMessages, "commit broadcasts by message";
    CommitBroadcastsInMemory, "commit broadcasts in memory";
    GcMessagesSent, "gc messages sent";
    GcOwnRequests, "gc blocks asked of this instance itself";
    GcRemoteRequests, "gc blocks asked of other instances";
    GcRemasters, "gc granules remastered here";
    InterconnectRefusals, "interconnect connections refused";
    TempFiles, "temporary files made";
    TempBytes, "temporary file bytes written";
    TransactionsCommitted, "transactions of sessions committed";
    TransactionsRolledBack, "transactions of sessions rolled back";
}

/// Adds to a statistic of this thread's session. No shared counter is touched. Outside a session
/// the number is lost.
#[inline]
pub fn add(stat: Stat, n: u64) {
    session::with(|s| s.counters.add_stat(stat, n));
}

/// This session's value of a statistic. Zero outside a session.
pub fn get(stat: Stat) -> u64 {
    session::with(|s| s.counters.stat(stat)).unwrap_or(0)
}
