//! The files of an instance whose locks this process holds, and what recovery reads of its redo
//! thread.

use super::Apply;
use crate::files::{self, Places};
use crate::{Config, Result};
use block::{InstanceId, LastGroups, ThreadId};
use redo::{BatchNo, LogFiles, RedoReader, RestartPoint, ThreadEnd};
use std::sync::Arc;
use storage::{Control, ControlFile, DataFiles, Fatal, Storage, ThreadInfo};

/// An instance's files: held under its locks, open, and with the redo not read yet.
pub(crate) struct HeldFiles<'a> {
    pub config: &'a Config,
    pub instance: InstanceId,
    pub places: Places,
    /// The files of all instances, for reading.
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
    /// Bytes from the thread's checkpoint to its end.
    pub bytes: u64,
}

impl DeadThread {
    /// A second reader of the same redo.
    pub fn again(&self) -> RedoReader<'_> {
        RedoReader::again(&self.log, &self.end)
    }
}

impl HeldFiles<'_> {
    pub fn thread(&self) -> ThreadId {
        ThreadId(self.instance.0)
    }

    /// Where recovery begins to read the thread: its checkpoint.
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

    /// Reads the thread as that of a dead instance. The thread is synced first: the instance may
    /// have been killed between writing and syncing, and blocks that rest on this redo are about to
    /// be written.
    pub(super) fn dead_thread(&self) -> Result<DeadThread> {
        let log = self.log_files()?;
        log.sync()?;
        let start = self.start();
        let end = RedoReader::new(&log, start).finish()?;
        let bytes = end.next.pos.0 - start.pos.0;
        Ok(DeadThread { log, end, bytes })
    }
}
