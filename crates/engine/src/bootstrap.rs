//! Creating a database: its files, and the dictionary's own table.

use crate::dictionary::{DICTIONARY, DICTIONARY_INDEX};
use crate::files::{self, Places};
use crate::host::log_members;
use crate::{Config, Engine, Error, Host, Progress, Result};
use block::{InstanceId, ObjectId, ThreadId};
use redo::{Geometry, ThreadIdentity};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use storage::lease::Orders;
use storage::{Control, ControlFile, FileKind, OsStorage, Storage, ThreadState};
use txn::Isolation;

/// First SCN of a database. Zero stays below every SCN.
const FIRST_SCN: u64 = 1000;

impl Engine {
    /// Creates a database in `config.dir`, which holds none: makes the files, opens the database
    /// once, makes the dictionary's segments in it, and stops it. The control file with the
    /// dictionary's addresses comes last. So an interrupted creation leaves no database.
    pub fn create(config: &Config, progress: &dyn Progress) -> Result<()> {
        let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(&config.dir)?);
        if ControlFile::exists(&*storage)? {
            return Err(Error::Corrupt(format!(
                "{} holds a database already",
                config.dir.display()
            )));
        }
        let places = Places {
            members: log_members(config, &storage)?,
            storage,
        };
        make_place(config, &places)?;
        create_files(config, &places, progress)?;
        remove_marks(config)?;
        finish(Engine::open(small(config), progress)?, progress)
    }

    /// Creates a database on a host whose storage holds nothing.
    pub fn create_on(config: &Config, host: Host, progress: &dyn Progress) -> Result<()> {
        let places = Places {
            storage: host.storage.clone(),
            members: host.members.clone(),
        };
        create_files(config, &places, progress)?;
        finish(Engine::open_on(small(config), host, progress)?, progress)
    }
}

fn small(config: &Config) -> Config {
    Config {
        buffer_bytes: config.buffer_bytes.min(64 << 20),
        // Nobody else can have a database that is not complete yet.
        interconnect: None,
        ..config.clone()
    }
}

fn finish(engine: Arc<Engine>, progress: &dyn Progress) -> Result<()> {
    create_dictionary(&engine)?;
    engine.stop(progress)
}

fn create_files(config: &Config, places: &Places, progress: &dyn Progress) -> Result<()> {
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
    files::create_redo(places, identity, geometry, progress)?;
    files::create_own(&*places.storage, instance)?;
    let shared = files::shared_data_files();
    for f in &shared {
        places.storage.create(&f.path, FileKind::Data)?;
    }
    let control = Control {
        database_id: identity.database,
        incarnation: 1,
        scn_ceiling: FIRST_SCN,
        object_ceiling: ObjectId::FIRST_USER.0,
        bootstrap: Vec::new(),
        threads: vec![files::new_thread(instance, config, ThreadState::Closed)],
        files: shared
            .into_iter()
            .chain(files::own_data_files(instance))
            .collect(),
    };
    Orders::open(&*places.storage)?.prepare()?;
    ControlFile::create(&*places.storage, control)?;
    Ok(())
}

/// Directories in the database directory that creation fills. A redo mirror has the first of them
/// only.
static FILLED: [&str; 4] = ["redo", "data", "undo", "dw"];

/// The mark that creation puts into each directory before its first file, and removes after the
/// control file is written. It holds the path of the database. Files without the mark belong to
/// somebody else.
const MARK: &str = "creating";

fn failed(what: &'static str, path: &Path, e: std::io::Error) -> Error {
    Error::Storage(storage::Error::io(what, &path.display().to_string(), 0, e))
}

/// The directories that creation writes into, each with the names in it that creation fills.
fn roots(config: &Config) -> Vec<(&Path, &'static [&'static str])> {
    let mirror = config.redo_mirror.iter().map(|m| (&**m, &FILLED[..1]));
    std::iter::once((&*config.dir, &FILLED[..]))
        .chain(mirror)
        .collect()
}

fn mark_text(config: &Config) -> Result<String> {
    let dir = std::fs::canonicalize(&config.dir).map_err(|e| failed("read", &config.dir, e))?;
    Ok(dir.display().to_string())
}

/// Whether a creation of this database has left its mark in `root`.
fn is_marked(config: &Config, root: &Path) -> Result<bool> {
    let mark = root.join(MARK);
    match std::fs::read(&mark) {
        Ok(text) => Ok(text == mark_text(config)?.as_bytes()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(failed("read", &mark, e)),
    }
}

/// Removes what an interrupted creation has left, and marks the directories. It is an error if
/// something is in the way that no creation has left.
fn make_place(config: &Config, places: &Places) -> Result<()> {
    for (root, filled) in roots(config) {
        if !is_marked(config, root)? {
            refuse_foreign(root, filled)?;
        }
    }
    remove_leftovers(config, places)?;
    let text = mark_text(config)?;
    for (root, _) in roots(config) {
        let mark = root.join(MARK);
        std::fs::write(&mark, &text)
            .and_then(|()| std::fs::File::open(&mark)?.sync_all())
            .and_then(|()| std::fs::File::open(root)?.sync_all())
            .map_err(|e| failed("write", &mark, e))?;
    }
    Ok(())
}

/// Removes the marks. A mark that stays does no harm: a directory with a control file is never
/// cleared, nor is a mirror whose mark names another directory.
fn remove_marks(config: &Config) -> Result<()> {
    for (root, _) in roots(config) {
        let mark = root.join(MARK);
        std::fs::remove_file(&mark).map_err(|e| failed("remove", &mark, e))?;
    }
    Ok(())
}

/// An error if a directory that creation fills holds anything. An empty directory is in nobody's
/// way: it may be where another disk is mounted.
fn refuse_foreign(root: &Path, filled: &[&str]) -> Result<()> {
    for path in filled.iter().map(|name| root.join(name)) {
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(Error::InTheWay(path.display().to_string()));
            }
            Err(e) => return Err(failed("read", &path, e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| failed("read", &path, e))?;
            if entry.file_name() != "lost+found" {
                return Err(Error::InTheWay(path.display().to_string()));
            }
        }
    }
    Ok(())
}

/// Removes the files of a creation that was interrupted before it wrote its control file.
fn remove_leftovers(config: &Config, places: &Places) -> Result<()> {
    if is_marked(config, &config.dir)? {
        files::remove_leftovers(places, InstanceId(config.instance), 0)?;
        for f in files::shared_data_files() {
            if places.storage.exists(&f.path)? {
                places.storage.remove(&f.path)?;
            }
        }
    }
    for (root, _) in roots(config) {
        let redo = root.join("redo");
        if is_marked(config, root)? && redo.exists() {
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

/// An id made of the time of creation and the process. That suffices to notice a redo file of
/// another database.
fn database_id() -> u64 {
    let nanos = seam::wall_clock()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()).rotate_left(48)
}

fn create_dictionary(engine: &Arc<Engine>) -> Result<()> {
    engine.space.format()?;
    let mut session = engine.session()?;
    session.begin(Isolation::ReadCommitted)?;
    let heap = session.create_heap(DICTIONARY)?;
    let index = session.create_index_segment(DICTIONARY_INDEX)?;
    session.commit()?;
    drop(session);
    engine
        .control
        .update(|c| c.bootstrap = vec![heap.0, index.0])?;
    Ok(())
}
