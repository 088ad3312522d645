//! The interface between the log and its users: results of appends, groups, restart points, and the
//! callbacks.

#[cfg(doc)]
use crate::Redo;
use crate::{BatchNo, CommitWaiter, Error, GroupEvidence};
use block::{LogPos, Scn, TxnId};
use std::time::Duration;

/// The place of an appended record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The position of the record's first byte.
    pub pos: LogPos,
    /// The position after the record's last byte. [`crate::Redo::flush_to`] takes it to make the
    /// record durable.
    pub end: LogPos,
    /// The SCN drawn for the record.
    pub scn: Scn,
    /// The batch that the record is in. A commit record commits when the group of this batch
    /// becomes durable.
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

/// Hears of every durable group. `txn` implements it.
pub trait GroupSink: Send + Sync {
    /// Draws and publishes the SCN at which `committed` committed, and returns it. Batch `batch` is
    /// durable and holds their commit records (often none).
    ///
    /// It is called exactly once per batch, in order, before any thread that waits for the batch
    /// goes on. It must not wait for anything, and must not append redo.
    fn group_durable(&self, batch: BatchNo, committed: &[TxnId]) -> Scn;

    /// Adds evidence to a batch that is closed. From each other thread it adds the newest groups
    /// that the batch's records may rest on and that not all instances are known to have heard of,
    /// [`block::LAST_GROUPS`] at most.
    ///
    /// It is called under the log latch and must not wait. An instance that is alone has nothing to
    /// add.
    fn evidence(&self, _out: &mut Vec<GroupEvidence>) {}

    /// Takes over threads that wait until all that must know of the commits of the durable group
    /// `batch` know of them. Each is to be woken then, or at once. It must not wait.
    fn wake_when_known(&self, batch: BatchNo, waiters: Vec<CommitWaiter>);
}

/// What the log asks of its instance. The thread that found the cause calls, possibly with block
/// latches held. So the methods may only note the event and wake a thread.
pub trait LogEvents: Send + Sync {
    /// The log cannot be written: the instance must stop. Called once.
    fn log_failed(&self, why: &Error);
    /// A checkpoint should advance soon; called again and again until it does.
    fn checkpoint_wanted(&self);
    /// The log goes on with `healthy` members, one fewer than before.
    fn member_lost(&self, healthy: usize);
}

/// Hears when what it wanted durable is so, without a thread that waits ([`Redo::want`]). `cache`
/// implements it, for blocks that other instances want.
pub trait WantSink: Send + Sync {
    /// [`Redo::durable`] has reached something that was wanted. The thread that wrote it calls,
    /// possibly with block latches held. It must not wait.
    fn durable(&self);
    /// The log up to `upto` is still wanted, and nobody is about to write it any more: a thread
    /// must. It is called as `durable` is, and must not wait.
    fn writer_wanted(&self, upto: LogPos);
}

/// A batch boundary at which the reading of a thread can start. The control file keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPoint {
    pub pos: LogPos,
    pub batch: BatchNo,
}

impl RestartPoint {
    /// The beginning of a new thread.
    pub const FIRST: RestartPoint = RestartPoint {
        pos: LogPos(0),
        batch: BatchNo(1),
    };
}

/// The parameters of a redo thread.
#[derive(Clone, Copy, Debug)]
pub struct RedoConfig {
    /// The size of the log buffer: a multiple of the log block, at least four batches of
    /// [`crate::MAX_BATCH`].
    pub buffer_bytes: usize,
    /// The number of threads that may append at one time (sessions and background threads). The log
    /// files keep room for a record from each.
    pub max_appenders: usize,
    /// The age that a record may reach before `lgwr` writes it unasked.
    pub flush_interval: Duration,
    /// How much longer each write takes, as on a slow disk; zero but in tests and labs.
    pub write_delay: Duration,
}

impl Default for RedoConfig {
    fn default() -> Self {
        RedoConfig {
            buffer_bytes: 8 << 20,
            max_appenders: 256,
            flush_interval: Duration::from_millis(200),
            write_delay: Duration::ZERO,
        }
    }
}
