//! The files of a database: which of them belong to one instance, and how those are made when the
//! instance first comes.
//!
//! **Invariant.** A file is named in the control file before it is written. So survivors know all
//! files whose locks prove an instance dead. The control file names data files one by one, and the
//! redo and double-write files by the instance's thread. A thread in state [`ThreadState::New`] has
//! files that are not complete; they are made anew.

use crate::{Config, Progress, Result};
use block::{FileId, InstanceId, LogPos, ThreadId};
use redo::{Geometry, LogFiles, RestartPoint, ThreadIdentity};
use std::sync::Arc;
use storage::lease::{Claim, OnError};
use storage::{
    Control, ControlFile, DataFileInfo, DataFiles, DoubleWrite, FileKind, Storage, ThreadInfo,
    ThreadState,
};

const CONTROL: &str = "control";

/// The double-write file of an instance's blocks.
pub(crate) fn double_write(instance: InstanceId) -> String {
    format!("dw/instance{}_blocks.dw", instance.0)
}
/// The double-write file of an instance's transaction status.
pub(crate) fn status_double_write(instance: InstanceId) -> String {
    format!("dw/instance{}_status.dw", instance.0)
}

/// The data file that all instances write.
pub(crate) fn shared_data_files() -> Vec<DataFileInfo> {
    vec![DataFileInfo {
        id: FileId::DATA,
        path: "data/0001.dbf".to_string(),
    }]
}

/// The data files of one instance.
pub(crate) fn own_data_files(instance: InstanceId) -> Vec<DataFileInfo> {
    vec![
        DataFileInfo {
            id: FileId::undo(instance),
            path: format!("undo/undo{}.dbf", instance.0),
        },
        DataFileInfo {
            id: FileId::status(instance),
            path: format!("undo/status{}.dbf", instance.0),
        },
    ]
}

/// The thread record of an instance that has never been open.
pub(crate) fn new_thread(instance: InstanceId, config: &Config, state: ThreadState) -> ThreadInfo {
    ThreadInfo {
        thread: ThreadId(instance.0),
        state,
        incarnation: 0,
        log_files: config.redo_files,
        log_file_bytes: config.redo_file_bytes,
        checkpoint: LogPos(RestartPoint::FIRST.pos.0),
        checkpoint_batch: RestartPoint::FIRST.batch.0,
        txn_reserved: 0,
        txn_truncated: 0,
    }
}

pub(crate) fn geometry(thread: &ThreadInfo) -> Geometry {
    Geometry {
        files: thread.log_files,
        file_bytes: thread.log_file_bytes,
    }
}

pub(crate) fn identity(state: &Control, thread: ThreadId) -> ThreadIdentity {
    ThreadIdentity {
        database: state.database_id,
        database_incarnation: state.incarnation,
        thread,
    }
}

/// Where the files of a database are: its directory, and the members of its redo files.
#[derive(Clone)]
pub(crate) struct Places {
    pub storage: Arc<dyn Storage>,
    pub members: Vec<Arc<dyn Storage>>,
}

impl Places {
    /// All files that an instance may write, in the order in which its locks are taken. The log
    /// handles errors of the redo files, because it outlives the loss of a member.
    pub fn claims(&self, state: &Control, instance: InstanceId) -> Vec<Claim> {
        let mut files = vec![(CONTROL.to_string(), FileKind::Control)];
        files.extend(
            state
                .files
                .iter()
                .filter(|f| f.id.owner().is_none_or(|owner| owner == instance))
                .map(|f| (f.path.clone(), FileKind::Data)),
        );
        files.extend(
            [double_write(instance), status_double_write(instance)]
                .map(|name| (name, FileKind::Data)),
        );
        let thread = ThreadId(instance.0);
        let logs: Vec<_> = state
            .thread(thread)
            .into_iter()
            .flat_map(|t| LogFiles::names(thread, t.log_files))
            .map(|name| (name, FileKind::Log))
            .collect();
        let of_storage = Claim {
            storage: self.storage.clone(),
            on_error: OnError::EndInstance,
            files,
        };
        let of_member = |storage: &Arc<dyn Storage>| Claim {
            storage: storage.clone(),
            on_error: OnError::Tell,
            files: logs.clone(),
        };
        std::iter::once(of_storage)
            .chain(self.members.iter().map(of_member))
            .collect()
    }
}

/// Names a new instance's files in the control file and makes them, if that has not been done or
/// was interrupted. `places` are written under the instance's lease.
pub(crate) fn make_instance_files(
    control: &ControlFile,
    places: &Places,
    instance: InstanceId,
    config: &Config,
    progress: &dyn Progress,
) -> Result<()> {
    let thread = ThreadId(instance.0);
    match control.get().thread(thread).map(|t| t.state) {
        Some(ThreadState::Closed | ThreadState::Open) => return Ok(()),
        Some(ThreadState::New) => {}
        None => control.update(|c| {
            c.threads
                .push(new_thread(instance, config, ThreadState::New));
            c.files.extend(own_data_files(instance));
        })?,
    }
    let state = control.get();
    let Some(info) = state.thread(thread) else {
        return Ok(());
    };
    remove_leftovers(places, instance, info.log_files)?;
    create_redo(places, identity(&state, thread), geometry(info), progress)?;
    create_own(&*places.storage, instance)?;
    control.update(|c| {
        if let Some(t) = c.thread_mut(thread) {
            t.state = ThreadState::Closed;
        }
    })?;
    Ok(())
}

pub(crate) fn create_redo(
    places: &Places,
    identity: ThreadIdentity,
    geometry: Geometry,
    progress: &dyn Progress,
) -> Result<()> {
    let total = u64::from(geometry.files) * geometry.file_bytes * places.members.len() as u64;
    let mut done_before = 0;
    let mut last = 0;
    LogFiles::create(&places.members, identity, geometry, &mut |done| {
        if done < last {
            done_before += last;
        }
        last = done;
        progress.step("redo files written", done_before + done, total);
    })?;
    Ok(())
}

/// Makes the double-write, undo and status files of an instance.
pub(crate) fn create_own(storage: &dyn Storage, instance: InstanceId) -> Result<()> {
    DoubleWrite::create(storage, &double_write(instance))?;
    DoubleWrite::create(storage, &status_double_write(instance))?;
    for f in own_data_files(instance) {
        storage.create(&f.path, FileKind::Data)?;
    }
    Ok(())
}

/// Removes the files of an instance whose creation was interrupted.
pub(crate) fn remove_leftovers(
    places: &Places,
    instance: InstanceId,
    log_files: u32,
) -> Result<()> {
    let mut names: Vec<String> = own_data_files(instance)
        .into_iter()
        .map(|f| f.path)
        .collect();
    names.extend([double_write(instance), status_double_write(instance)]);
    let logs = LogFiles::names(ThreadId(instance.0), log_files);
    let of_members = logs.flat_map(|n| places.members.iter().map(move |m| (m, n.clone())));
    for (storage, name) in names
        .into_iter()
        .map(|n| (&places.storage, n))
        .chain(of_members)
    {
        if storage.exists(&name)? {
            storage.remove(&name)?;
        }
    }
    Ok(())
}

/// Opens the data files. `through` gives the storage by which an instance's own files are reached,
/// and for `None` the storage of the files that all instances write. The files of an instance that
/// is just being added may not be there yet.
pub(crate) fn open_data_files(
    state: &Control,
    through: &dyn Fn(Option<InstanceId>) -> Arc<dyn Storage>,
    files: &DataFiles,
) -> Result<()> {
    let known = files.ids();
    for f in state.files.iter().filter(|f| !known.contains(&f.id)) {
        let storage = through(f.id.owner());
        let new = f.id.owner().is_some_and(|k| {
            let thread = state.thread(ThreadId(k.0));
            thread.is_none_or(|t| t.state == ThreadState::New)
        });
        if !new {
            files.add(f.id, storage.open(&f.path, FileKind::Data)?);
        }
    }
    Ok(())
}
