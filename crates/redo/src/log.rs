//! The log buffer and group commit.

use crate::{Clock, Result};
use block::{LogPos, Scn, TxnId};
use std::sync::Arc;

/// Number of a batch within its redo thread, from 1; rises by one from batch to batch, across restarts too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BatchNo(pub u64);

/// Where a record was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Position of the record's first byte.
    pub pos: LogPos,
    /// Position after its last byte: what [`Redo::flush_to`] takes to make it durable.
    pub end: LogPos,
    /// The SCN drawn for it.
    pub scn: Scn,
    /// The batch that it is in; a commit record commits when the group of this batch becomes durable.
    pub batch: BatchNo,
}

/// The transactions whose commit records are in the open batch.
#[derive(Debug, Default)]
pub struct GroupList(Vec<TxnId>);

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
}

/// A batch boundary at which reading a thread can start; kept in the control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartPoint {
    pub pos: LogPos,
    pub batch: BatchNo,
}

/// A redo thread open for appending.
pub struct Redo {
    clock: Arc<Clock>,
}

impl Redo {
    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    /// Who is told of durable groups; set once, before the first commit. Until then e(n) is drawn from the clock alone.
    pub fn set_group_sink(&self, _sink: Arc<dyn GroupSink>) {
        todo!()
    }

    /// Puts a finished record into the log buffer: draws its SCN under the log latch, patches it in, copies it, and calls
    /// `under_latch` before the latch is let go. Does not wait for I/O if [`Redo::wait_for_space`] was called before (once per record).
    pub fn append(
        &self,
        _record: &mut [u8],
        _under_latch: impl FnOnce(Appended, &mut GroupList),
    ) -> Appended {
        todo!()
    }

    /// Waits until log files and buffer have room for a record of [`block::record::MAX_RECORD`] bytes from everybody. To be called
    /// with no latch held, once before each record. Two atomic loads when there is room.
    pub fn wait_for_space(&self) -> Result<()> {
        todo!()
    }

    /// A position at or below that of the next record.
    pub fn end(&self) -> LogPos {
        todo!()
    }

    /// Everything below this position is durable, and its groups have been announced.
    pub fn durable(&self) -> LogPos {
        todo!()
    }

    /// Returns once everything below `pos` is durable and its groups have been announced. Group commit: the first caller writes.
    pub fn flush_to(&self, _pos: LogPos) -> Result<()> {
        todo!()
    }

    /// The newest known batch boundary at or below `pos`: what the control file must hold before [`Redo::set_checkpoint`].
    pub fn restart_point(&self, _pos: LogPos) -> RestartPoint {
        todo!()
    }

    /// Frees the log below `point`, which is durable in the control file.
    pub fn set_checkpoint(&self, _point: RestartPoint) {
        todo!()
    }
}
