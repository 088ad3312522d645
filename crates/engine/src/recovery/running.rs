//! The parts that run while redo is applied: the log, the cache, and `dbw0`, whose checkpoint stays
//! where it is.

use super::HeldFiles;
use super::own_log::OpenLog;
use crate::Result;
use crate::progress::{self, Progress};
use block::{LogPos, Op};
use cache::{Cache, CheckpointClient, RecordHeader, Writer, WriterConfig};
use redo::Redo;
use std::sync::{Arc, OnceLock};
use storage::DoubleWrite;
use txn::TxnManager;

/// Log, cache and writer of an instance whose redo is being applied.
pub(super) struct Running {
    pub redo: Arc<Redo>,
    pub cache: Arc<Cache>,
    pub writer: Writer,
    pub gate: Arc<Gate>,
}

impl Running {
    pub fn start(of: &HeldFiles<'_>, log: OpenLog, double_write: DoubleWrite) -> Result<Running> {
        let cache = Cache::new(
            of.config.buffer_bytes,
            of.data_files.clone(),
            log.redo.clone(),
        )?;
        cache.set_affinity(of.config.affinity);
        cache.defer(of.config.gc_defer);
        log.set_cache(&cache);
        let gate = Arc::new(Gate {
            txns: OnceLock::new(),
            start: of.start().pos,
        });
        let fatal = of.fatal.clone();
        let config = WriterConfig {
            thread: of.thread(),
            recovery_target_bytes: of.config.recovery_target_bytes.min(log.capacity / 4),
            fatal: Box::new(move |why| fatal(why)),
            notice: Box::new(|what| tracing::warn!("{what}")),
        };
        let control = of.control.clone();
        let writer = cache.start_writer(config, double_write, control, gate.clone())?;
        Ok(Running {
            redo: log.redo,
            cache,
            writer,
            gate,
        })
    }

    /// Writes every block that the merged redo has changed, while the checkpoints of all threads
    /// stay where they are. The next step reads each thread by itself.
    pub fn write_all(&self, progress: &dyn Progress) -> Result<()> {
        let cache = &self.cache;
        // A checkpoint writes the blocks that were changed before the log's end. Blocks count as
        // changed at the thread's start, so the end must be beyond the start.
        cache.mark(RecordHeader::NONE, Op::ActiveTransactions, &[], |_, _| ());
        progress::checkpoint(cache, "recovery: blocks written", progress)?;
        assert!(
            cache.dirty_frames() == 0,
            "invariant: nobody changes blocks during recovery"
        );
        Ok(())
    }
}

/// Keeps the checkpoint where it is until redo has been applied.
pub(super) struct Gate {
    /// Set when the gate is open.
    txns: OnceLock<Arc<TxnManager>>,
    start: LogPos,
}

impl Gate {
    /// Lets the checkpoint go as far as the transactions allow, from now on. False if the gate was
    /// open before.
    pub fn open(&self, txns: Arc<TxnManager>) -> bool {
        self.txns.set(txns).is_ok()
    }
}

impl CheckpointClient for Gate {
    fn before_checkpoint(&self) -> cache::Result<LogPos> {
        match self.txns.get() {
            Some(txns) => txns.before_checkpoint(),
            None => Ok(self.start),
        }
    }
}
