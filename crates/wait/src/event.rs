//! The names of what can be waited for. They are the field's own, with their classes and the
//! meaning of the three parameters.

/// The class of an event, as the field uses classes. `Idle` waits are left out of "where did the
/// time go".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    UserIo,
    SystemIo,
    Commit,
    Concurrency,
    Application,
    Configuration,
    Network,
    Scheduler,
    Cluster,
    Other,
    Idle,
}

impl Class {
    /// All classes, each at the place of its number.
    pub const ALL: [Class; 11] = [
        Class::UserIo,
        Class::SystemIo,
        Class::Commit,
        Class::Concurrency,
        Class::Application,
        Class::Configuration,
        Class::Network,
        Class::Scheduler,
        Class::Cluster,
        Class::Other,
        Class::Idle,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Class::UserIo => "User I/O",
            Class::SystemIo => "System I/O",
            Class::Commit => "Commit",
            Class::Concurrency => "Concurrency",
            Class::Application => "Application",
            Class::Configuration => "Configuration",
            Class::Network => "Network",
            Class::Scheduler => "Scheduler",
            Class::Cluster => "Cluster",
            Class::Other => "Other",
            Class::Idle => "Idle",
        }
    }
}

macro_rules! events {
    ($($id:ident, $name:literal, $class:ident, [$p1:literal, $p2:literal, $p3:literal];)*) => {
        /// What a session waits for.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Event { $($id),* }

        impl Event {
            pub const ALL: &'static [Event] = &[$(Event::$id),*];
            pub const COUNT: usize = Event::ALL.len();

            pub fn name(self) -> &'static str {
                match self { $(Event::$id => $name),* }
            }
            pub fn class(self) -> Class {
                match self { $(Event::$id => Class::$class),* }
            }
            /// The meaning of p1, p2 and p3. Empty for a parameter that is not used.
            pub fn params(self) -> [&'static str; 3] {
                match self { $(Event::$id => [$p1, $p2, $p3]),* }
            }
        }
    };
}

events! {
    DbFileSequentialRead, "db file sequential read", UserIo, ["file#", "block#", "blocks"];
    DbFileScatteredRead, "db file scattered read", UserIo, ["file#", "block#", "blocks"];
    DbFileParallelWrite, "db file parallel write", SystemIo, ["requests", "blocks", ""];
    DbFileSync, "db file sync", SystemIo, ["file#", "", ""];
    DoubleWriteSync, "double write sync", SystemIo, ["blocks", "", ""];
    DataFileInit, "Data file init write", UserIo, ["file#", "block#", "blocks"];
    DirectPathWriteTemp, "direct path write temp", UserIo, ["file#", "block#", "blocks"];
    DirectPathReadTemp, "direct path read temp", UserIo, ["file#", "block#", "blocks"];
    ControlFileRead, "control file sequential read", SystemIo, ["", "", ""];
    ControlFileWrite, "control file parallel write", SystemIo, ["files", "", ""];
    LogFileSync, "log file sync", Commit, ["batch", "position", ""];
    LogFileSyncScn, "log file sync: SCN ordering", Concurrency, ["instance", "batch", "scn"];
    LogFileParallelWrite, "log file parallel write", SystemIo, ["files", "bytes", ""];
    LogFileRead, "log file sequential read", SystemIo, ["thread", "position", "bytes"];
    LogBufferSpace, "log buffer space", Configuration, ["", "", ""];
    LogFileSwitchCheckpoint, "log file switch (checkpoint incomplete)", Configuration, ["", "", ""];
    BufferBusy, "buffer busy waits", Concurrency, ["file#", "block#", "mode"];
    ReadByOtherSession, "read by other session", UserIo, ["file#", "block#", ""];
    FreeBuffer, "free buffer waits", Configuration, ["file#", "block#", ""];
    LatchCacheChains, "latch: cache buffers chains", Concurrency, ["address", "child", "tries"];
    LatchLru, "latch: cache buffers lru chain", Concurrency, ["address", "child", "tries"];
    LatchRedo, "latch: redo allocation", Concurrency, ["address", "child", "tries"];
    LatchEnqueue, "latch: enqueue hash chains", Concurrency, ["address", "child", "tries"];
    LatchRowCache, "latch: row cache objects", Concurrency, ["address", "child", "tries"];
    LatchSharedPool, "latch: shared pool", Concurrency, ["address", "child", "tries"];
    LatchUndo, "latch: undo global data", Concurrency, ["address", "child", "tries"];
    LatchSpace, "latch: space management", Concurrency, ["address", "child", "tries"];
    LatchFree, "latch free", Other, ["address", "child", "tries"];
    EnqTx, "enq: TX - row lock contention", Application, ["name|mode", "transaction", "object"];
    EnqTxIndex, "enq: TX - index contention", Concurrency, ["name|mode", "transaction", "object"];
    EnqTm, "enq: TM - contention", Application, ["name|mode", "object #", "table/partition"];
    EnqUl, "enq: UL - contention", Application, ["name|mode", "id", ""];
    EnqSq, "enq: SQ - contention", Configuration, ["name|mode", "object #", ""];
    EnqSv, "enq: SV - contention", Cluster, ["instance", "object #", "log position"];
    EnqHw, "enq: HW - contention", Configuration, ["name|mode", "object #", ""];
    EnqCf, "enq: CF - contention", Other, ["name|mode", "", ""];
    EnqDm, "enq: DM - contention", Other, ["name|mode", "", ""];
    FenceCommand, "fence command", Cluster, ["instance", "", ""];
    RowCacheLock, "row cache lock", Concurrency, ["cache id", "mode", "request"];
    UndoSegmentExtension, "undo segment extension", Configuration, ["segment#", "", ""];
    NetFromClient, "SQL*Net message from client", Idle, ["driver id", "#bytes", ""];
    NetToClient, "SQL*Net message to client", Network, ["driver id", "#bytes", ""];
    NetMoreToClient, "SQL*Net more data to client", Network, ["driver id", "#bytes", ""];
    NetMoreFromClient, "SQL*Net more data from client", Network, ["driver id", "#bytes", ""];
    PxDeqMessage, "PX Deq: Execute Reply", Idle, ["sleeptime/senderid", "passes", ""];
    ParallelWorker, "PX Deq: Execution Msg", Idle, ["", "", ""];
    RdbmsIpcMessage, "rdbms ipc message", Idle, ["timeout", "", ""];
    PmonTimer, "pmon timer", Idle, ["duration", "", ""];
    SmonTimer, "smon timer", Idle, ["sleep time", "failed", ""];
    LibraryCacheLoad, "library cache load lock", Concurrency, ["", "", ""];
    InstanceRecovery, "instance recovery read", SystemIo, ["thread", "position", ""];
    GcCrRequest, "gc cr request", Cluster, ["file#", "block#", "class#"];
    GcCurrentRequest, "gc current request", Cluster, ["file#", "block#", "class#"];
    GcMultiBlockRequest, "gc cr multi block request", Cluster, ["file#", "block#", "blocks"];
    GcCrBlock2Way, "gc cr block 2-way", Cluster, ["file#", "block#", "class#"];
    GcCrBlock3Way, "gc cr block 3-way", Cluster, ["file#", "block#", "class#"];
    GcCrBlockBusy, "gc cr block busy", Cluster, ["file#", "block#", "class#"];
    GcCrBlockCongested, "gc cr block congested", Cluster, ["file#", "block#", "class#"];
    GcCrGrant2Way, "gc cr grant 2-way", Cluster, ["file#", "block#", "class#"];
    GcCrFailure, "gc cr failure", Cluster, ["file#", "block#", "class#"];
    GcCurrentBlock2Way, "gc current block 2-way", Cluster, ["file#", "block#", "class#"];
    GcCurrentBlock3Way, "gc current block 3-way", Cluster, ["file#", "block#", "class#"];
    GcCurrentBlockBusy, "gc current block busy", Cluster, ["file#", "block#", "class#"];
    GcCurrentBlockCongested, "gc current block congested", Cluster, ["file#", "block#", "class#"];
    GcCurrentGrant2Way, "gc current grant 2-way", Cluster, ["file#", "block#", "class#"];
    GcCurrentGrantBusy, "gc current grant busy", Cluster, ["file#", "block#", "class#"];
    GcBufferBusyAcquire, "gc buffer busy acquire", Cluster, ["file#", "block#", "class#"];
    GcBufferBusyRelease, "gc buffer busy release", Cluster, ["file#", "block#", "class#"];
    GcTransactionTable, "gc transaction table", Cluster, ["instance", "transaction", "scn"];
    GcRemaster, "gc remaster", Cluster, ["file#", "block#", "class#"];
    GcDirectoryFrozen, "gcs resource directory to be unfrozen", Cluster, ["", "", ""];
    GcsSendTicket, "gcs send ticket", Cluster, ["instance", "lane", "tickets"];
    GcsRemoteMessage, "gcs remote message", Idle, ["instance", "lane", ""];
    GesRemoteMessage, "ges remote message", Idle, ["instance", "lane", ""];
    Sleep, "PL/SQL lock timer", Idle, ["duration", "", ""];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_stand_at_their_numbers() {
        for (at, class) in Class::ALL.iter().enumerate() {
            assert_eq!(*class as usize, at);
        }
        assert_eq!(Class::ALL.len(), Class::Idle as usize + 1);
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Event::ALL.iter().map(|e| e.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Event::COUNT);
    }
}
