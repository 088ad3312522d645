//! What the log and its users say to each other: results of appends, groups, restart points, and the callbacks.

#[cfg(doc)]
use crate::Redo;
use crate::{BatchNo, CommitWaiter, Error, GroupEvidence};
use block::{LogPos, Scn, TxnId};
use std::time::Duration;

/// Where a record was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Position of the record's first byte.
    pub pos: LogPos,
    /// Position after its last byte: what [`crate::Redo::flush_to`] takes to make it durable.
    pub end: LogPos,
    /// The SCN drawn for it.
    pub scn: Scn,
    /// The batch that it is in; a commit record commits when the group of this batch becomes durable.
    pub batch: BatchNo,
}

/// The transactions whose commit records are in a batch.
#[derive(Debug, Default)]
pub struct GroupList(pub(crate) Vec<TxnId>);

impl GroupList {
    pub fn push(&mut self, txn: TxnId) {
        self.0.push(txn);
    }
}

/// Learns of every durable group. Implemented by `txn`.
pub trait GroupSink: Send + Sync {
    /// Batch `batch` is durable and holds the commit records of `committed` (often none). Draws and publishes the SCN at which they
    /// committed and returns it. Called exactly once per batch, in order, before anybody waiting for the batch goes on. It must not
    /// wait for anything, and must not append redo.
    fn group_durable(&self, batch: BatchNo, committed: &[TxnId]) -> Scn;

    /// A batch is closed, under the log latch: adds of each other thread the newest groups that its records may rest on and that not all instances are known to have heard of, [`block::LAST_GROUPS`] at most. Must not wait. An instance that is
    /// alone has nothing to add.
    fn evidence(&self, _out: &mut Vec<GroupEvidence>) {}

    /// These threads wait until all who must know of the commits of the durable group `batch` know of them: each is to be woken then, or at once. Must not wait.
    fn wake_when_known(&self, batch: BatchNo, waiters: Vec<CommitWaiter>);
}

/// What the log asks of the instance it belongs to. Each is called from whatever thread found out, possibly with block latches held: they may
/// only note it and wake somebody.
pub trait LogEvents: Send + Sync {
    /// The log cannot be written: the instance must stop. Called once.
    fn log_failed(&self, why: &Error);
    /// A checkpoint should advance soon; called again and again until it does.
    fn checkpoint_wanted(&self);
    /// The log goes on with `healthy` members, one less than before.
    fn member_lost(&self, healthy: usize);
}

/// Learns when what it wanted durable is so, without a thread that waits ([`Redo::want`]). Implemented by `cache`, for blocks that other instances want.
pub trait WantSink: Send + Sync {
    /// [`Redo::durable`] has reached something that was wanted. Called by whoever wrote it, possibly with block latches held. Must not wait.
    fn durable(&self);
    /// The log up to here is still wanted, and nobody is about to write it any more: a thread must. Called as the other one.
    fn writer_wanted(&self, upto: LogPos);
}

/// A batch boundary at which reading a thread can start; kept in the control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPoint {
    pub pos: LogPos,
    pub batch: BatchNo,
}

impl RestartPoint {
    /// Where a new thread begins.
    pub const FIRST: RestartPoint = RestartPoint {
        pos: LogPos(0),
        batch: BatchNo(1),
    };
}

/// How a thread is to be run.
#[derive(Clone, Copy, Debug)]
pub struct RedoConfig {
    /// Size of the log buffer: a multiple of the log block, at least four batches of [`crate::MAX_BATCH`].
    pub buffer_bytes: usize,
    /// Threads that may append at the same time (sessions and background threads). The log files keep room for a record from each.
    pub max_appenders: usize,
    /// How old a record may get before `lgwr` writes it unasked.
    pub flush_interval: Duration,
}

impl Default for RedoConfig {
    fn default() -> Self {
        RedoConfig {
            buffer_bytes: 8 << 20,
            max_appenders: 256,
            flush_interval: Duration::from_millis(200),
        }
    }
}
