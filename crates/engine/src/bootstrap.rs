//! Creating a database: its files, and the dictionary's own table.

use crate::instance::{Host, Names, log_members};
use crate::table::{IndexColumn, IndexDef, TableDef};
use crate::{Config, Engine, Error, Progress, Result};
use block::value::ColType;
use block::{Dba, FileId, InstanceId, LogPos, ObjectId, Scn, ThreadId};
use redo::{Geometry, LogFiles, RestartPoint, ThreadIdentity};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use storage::{
    Control, ControlFile, DataFileInfo, DoubleWrite, FileKind, OsStorage, Storage, ThreadInfo,
    ThreadState,
};

const DICTIONARY: ObjectId = ObjectId(1);
const DICTIONARY_INDEX: ObjectId = ObjectId(2);
/// First SCN of a database: zero stays below everything.
const FIRST_SCN: u64 = 1000;

/// Creates the files, opens the database once, makes the dictionary's segments in it, and stops it. The control file with the dictionary's addresses comes last, so
/// a creation that was interrupted leaves no database.
pub(crate) fn create(config: &Config, progress: &dyn Progress) -> Result<()> {
    let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(&config.dir)?);
    if ControlFile::exists(&*storage)? {
        return Err(Error::Corrupt(format!(
            "{} holds a database already",
            config.dir.display()
        )));
    }
    remove_leftovers(config, &*storage)?;
    let members = log_members(config, &storage)?;
    create_files(config, &*storage, &members, progress)?;
    finish(Engine::open(small(config), progress)?, progress)
}

/// The same on a host whose storage holds nothing.
pub(crate) fn create_on(config: &Config, host: Host, progress: &dyn Progress) -> Result<()> {
    create_files(config, &*host.storage, &host.members, progress)?;
    finish(Engine::open_on(small(config), host, progress)?, progress)
}

fn small(config: &Config) -> Config {
    Config {
        buffer_bytes: config.buffer_bytes.min(64 << 20),
        ..config.clone()
    }
}

fn finish(engine: Arc<Engine>, progress: &dyn Progress) -> Result<()> {
    create_dictionary(&engine)?;
    engine.stop(progress)
}

fn create_files(
    config: &Config,
    storage: &dyn Storage,
    members: &[Arc<dyn Storage>],
    progress: &dyn Progress,
) -> Result<()> {
    let instance = InstanceId(config.instance);
    let identity = ThreadIdentity {
        database: database_id(),
        database_incarnation: 1,
        thread: ThreadId(config.instance),
    };
    let geometry = Geometry {
        files: config.redo_files,
        file_bytes: config.redo_file_bytes,
    };
    let total = u64::from(config.redo_files) * config.redo_file_bytes * members.len() as u64;
    let mut done_before = 0;
    let mut last = 0;
    LogFiles::create(members, identity, geometry, &mut |done| {
        if done < last {
            done_before += last;
        }
        last = done;
        progress.step("redo files written", done_before + done, total);
    })?;
    DoubleWrite::create(storage, &Names::double_write(config.instance))?;
    DoubleWrite::create(storage, &Names::status_double_write(config.instance))?;
    let files = data_files(instance);
    for f in &files {
        storage.create(&f.path, FileKind::Data)?;
    }
    let control = Control {
        database_id: identity.database,
        incarnation: 1,
        scn_ceiling: FIRST_SCN,
        object_ceiling: ObjectId::FIRST_USER.0,
        bootstrap: Vec::new(),
        threads: vec![ThreadInfo {
            thread: identity.thread,
            state: ThreadState::Closed,
            incarnation: 0,
            log_files: config.redo_files,
            log_file_bytes: config.redo_file_bytes,
            checkpoint: LogPos(RestartPoint::FIRST.pos.0),
            checkpoint_batch: RestartPoint::FIRST.batch.0,
            txn_reserved: 0,
            txn_truncated: 0,
        }],
        files,
    };
    ControlFile::create(storage, control)?;
    Ok(())
}

/// Files of a creation that did not come to its control file.
fn remove_leftovers(config: &Config, storage: &dyn Storage) -> Result<()> {
    let mut names: Vec<String> = data_files(InstanceId(config.instance))
        .into_iter()
        .map(|f| f.path)
        .collect();
    names.push(Names::double_write(config.instance));
    names.push(Names::status_double_write(config.instance));
    for n in names {
        if storage.exists(&n)? {
            storage.remove(&n)?;
        }
    }
    for dir in std::iter::once(&config.dir).chain(&config.redo_mirror) {
        let redo = dir.join("redo");
        if redo.exists() {
            std::fs::remove_dir_all(&redo).map_err(|e| {
                Error::Corrupt(format!(
                    "cannot remove {}, left by an interrupted creation: {e}",
                    redo.display()
                ))
            })?;
        }
    }
    Ok(())
}

fn data_files(instance: InstanceId) -> Vec<DataFileInfo> {
    vec![
        DataFileInfo {
            id: FileId::DATA,
            path: "data/0001.dbf".to_string(),
        },
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

/// Told apart by the time of creation and the process: enough to notice a redo file of another database.
fn database_id() -> u64 {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()).rotate_left(48)
}

fn create_dictionary(engine: &Arc<Engine>) -> Result<()> {
    engine.space.format()?;
    let mut session = engine.session()?;
    session.begin(crate::Isolation::ReadCommitted)?;
    let heap = session.create_heap(DICTIONARY)?;
    let index = session.create_index_segment(DICTIONARY_INDEX)?;
    session.commit()?;
    drop(session);
    engine
        .control
        .update(|c| c.bootstrap = vec![heap.0, index.0])?;
    Ok(())
}

/// The dictionary's table from the addresses in the control file.
pub(crate) fn open_dictionary(engine: &Engine, bootstrap: &[u64]) -> Result<()> {
    let &[heap, index] = bootstrap else {
        return Err(Error::Corrupt(
            "the control file has no addresses of the dictionary".to_string(),
        ));
    };
    let table = TableDef {
        missing: Vec::new(),
        object: DICTIONARY,
        header: Dba(heap),
        columns: vec![ColType::Int4, ColType::Int2, ColType::Text, ColType::Bytea],
        indexes: vec![IndexDef {
            object: DICTIONARY_INDEX,
            header: Dba(index),
            columns: vec![IndexColumn {
                column: 0,
                descending: false,
                nulls_first: false,
            }],
            unique: true,
            name: "dictionary_pkey".to_string(),
            created: Scn::ZERO,
        }],
    };
    assert!(
        engine.dictionary.set(Arc::new(table)).is_ok(),
        "invariant: the dictionary is opened once"
    );
    Ok(())
}
