//! The files of an instance whose locks this process holds, and what is read of its redo thread.

use super::Apply;
use crate::files::{self, Places};
use crate::{Config, Result};
use block::{InstanceId, LastGroups, ThreadId};
use redo::{BatchNo, LogFiles, RedoReader, RestartPoint, ThreadEnd};
use std::sync::Arc;
use storage::{Control, ControlFile, DataFiles, Fatal, Storage, ThreadInfo};

/// An instance's files, held under its locks and open, before its redo has been read.
pub(crate) struct HeldFiles<'a> {
    pub config: &'a Config,
    pub instance: InstanceId,
    pub places: Places,
    /// The files of all instances, to be read.
    pub plain: Arc<dyn Storage>,
    pub fatal: Fatal,
    pub state: Control,
    pub info: ThreadInfo,
    pub control: Arc<ControlFile>,
    pub data_files: Arc<DataFiles>,
    pub apply: Apply,
    /// When the last groups of the thread's last life took effect, if survivors have decided that.
    pub decided: LastGroups,
}

/// The redo thread of another dead instance, read to its end.
pub(super) struct DeadThread {
    log: LogFiles,
    end: ThreadEnd,
    /// From its checkpoint to its end.
    pub bytes: u64,
}

impl DeadThread {
    /// A reader of the same redo once more.
    pub fn again(&self) -> RedoReader<'_> {
        RedoReader::again(&self.log, &self.end)
    }
}

impl HeldFiles<'_> {
    pub fn thread(&self) -> ThreadId {
        ThreadId(self.instance.0)
    }

    /// Where the thread's redo is read from: its checkpoint.
    pub fn start(&self) -> RestartPoint {
        RestartPoint {
            pos: self.info.checkpoint,
            batch: BatchNo(self.info.checkpoint_batch),
        }
    }

    /// The thread's files, opened anew.
    pub(super) fn log_files(&self) -> Result<LogFiles> {
        let identity = files::identity(&self.state, self.thread());
        let geometry = files::geometry(&self.info);
        Ok(LogFiles::open(&self.places.members, identity, geometry)?)
    }

    /// Reads the thread as that of a dead instance. It is synced first: the instance may have been
    /// killed between writing and syncing, and blocks are about to be written that rest on it.
    pub(super) fn dead_thread(&self) -> Result<DeadThread> {
        let log = self.log_files()?;
        log.sync()?;
        let start = self.start();
        let end = RedoReader::new(&log, start).finish()?;
        let bytes = end.next.pos.0 - start.pos.0;
        Ok(DeadThread { log, end, bytes })
    }
}
