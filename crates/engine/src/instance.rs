//! An instance: created, opened, stopped.
//!
//! Opening: the directory is locked, torn blocks are restored from the double-write file, redo is read to its end and opened for appending (which decides when the
//! last group committed, durably), redo is applied, and the instance is open. What dead transactions changed is put back in the background, their rows locked until then.

use crate::background::Background;
use crate::recovery::{Recovery, roll_forward};
use crate::table::TableDef;
use crate::{Config, Error, Result, bootstrap};
use access::btree::BTree;
use access::heap::Heap;
use access::sequence::Sequence;
use access::space::Space;
use block::{Dba, FileId, InstanceId, LogPos, ObjectId, Scn, ThreadId};
use cache::{Cache, CheckpointClient, Writer, WriterConfig};
use parking_lot::Mutex;
use redo::{
    BatchNo, Clock, Geometry, LogEvents, LogFiles, LogWriter, Redo, RedoConfig, RedoReader,
    RestartPoint, ThreadIdentity,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use storage::{
    ControlFile, DataFiles, DirectoryLock, DoubleWrite, FailStop, FileKind, OsStorage, Storage,
    ThreadState,
};
use txn::{TxnConfig, TxnManager};

/// Hears how far something long has come. `total` is zero if nobody knows it.
pub trait Progress: Sync {
    fn step(&self, what: &str, done: u64, total: u64);
}

/// Objects that this instance has open, by id.
#[derive(Default)]
pub(crate) struct Open {
    pub heaps: HashMap<ObjectId, Arc<Heap>>,
    pub trees: HashMap<ObjectId, Arc<BTree>>,
    pub sequences: HashMap<ObjectId, Arc<Sequence>>,
}

/// A running instance.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) control: Arc<ControlFile>,
    pub(crate) redo: Arc<Redo>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) txns: Arc<TxnManager>,
    pub(crate) space: Arc<Space>,
    pub(crate) open: parking_lot::RwLock<Open>,
    pub(crate) dictionary: OnceLock<Arc<TableDef>>,
    pub(crate) recovery: Option<Recovery>,
    objects: Mutex<ObjectIds>,
    /// Held by `smon` while it works, and by a check that needs trees at rest.
    pub(crate) quiet: Mutex<()>,
    threads: Mutex<Option<Threads>>,
    _lock: Option<DirectoryLock>,
}

/// Object ids reserved but not given out.
#[derive(Default)]
struct ObjectIds {
    next: u32,
    end: u32,
}

/// Ids reserved in the control file at a time.
const OBJECT_RANGE: u32 = 64;

struct Threads {
    background: Background,
    writer: Writer,
    lgwr: LogWriter,
}

/// Names of the files of instance `k` under the database directory.
pub(crate) struct Names;

impl Names {
    pub fn double_write(instance: u16) -> String {
        format!("dw/instance{instance}_blocks.dw")
    }
    pub fn status_double_write(instance: u16) -> String {
        format!("dw/instance{instance}_status.dw")
    }
    pub fn lock(instance: u16) -> String {
        format!("lock{instance}")
    }
}

/// Whether there is a database in the directory.
pub fn exists(dir: &Path) -> bool {
    dir.join("control").exists()
}

/// A broken promise of the hardware: nothing is safe to do but to end. What is in the log is recovered at the next start.
fn stop_at_once(why: &str) -> ! {
    eprintln!("braid: the instance stops at once: {why}");
    std::process::abort();
}

/// Ends the instance at once, whatever it is doing: called with the reason when a promise of the hardware is broken.
pub use storage::Fatal;

/// What an instance stands on.
pub struct Host {
    pub storage: Arc<dyn Storage>,
    /// Where the members of the redo files are; `storage` is the first as a rule.
    pub members: Vec<Arc<dyn Storage>>,
    /// After it returns, if it does, nothing is written any more and all work fails; a real one does not return.
    pub fatal: Fatal,
    /// Keeps other processes out of the database's directory; `None` if nobody else can come.
    pub lock: Option<DirectoryLock>,
}

/// What the log tells the instance.
struct Events {
    fatal: Fatal,
    /// Weak: the cache holds the log, which holds this.
    cache: OnceLock<Weak<Cache>>,
}

impl LogEvents for Events {
    fn log_failed(&self, why: &redo::Error) {
        (self.fatal)(&format!("the redo log cannot be written: {why}"));
    }
    fn checkpoint_wanted(&self) {
        if let Some(cache) = self.cache.get().and_then(Weak::upgrade) {
            cache.want_checkpoint();
        }
    }
    fn member_lost(&self, healthy: usize) {
        eprintln!("braid: a member of the redo log cannot be written any more; {healthy} left");
    }
}

/// Keeps the checkpoint where it is until redo has been applied.
struct Gate {
    txns: OnceLock<Arc<TxnManager>>,
    open: AtomicBool,
    start: LogPos,
}

impl CheckpointClient for Gate {
    fn before_checkpoint(&self) -> cache::Result<LogPos> {
        match self.txns.get() {
            Some(txns) if self.open.load(Ordering::Acquire) => txns.before_checkpoint(),
            _ => Ok(self.start),
        }
    }
}

impl Engine {
    /// Creates a database in `config.dir`, which holds none.
    pub fn create(config: &Config, progress: &dyn Progress) -> Result<()> {
        bootstrap::create(config, progress)
    }

    /// Opens the database for this instance, recovering it first if it was not stopped cleanly.
    pub fn open(config: Config, progress: &dyn Progress) -> Result<Arc<Engine>> {
        if !exists(&config.dir) {
            return Err(Error::NoDatabase(config.dir.display().to_string()));
        }
        let owner = format!(
            "instance {} (process {})",
            config.instance,
            std::process::id()
        );
        let lock = DirectoryLock::take(&config.dir, &Names::lock(config.instance), &owner)?;
        let storage: Arc<dyn Storage> = Arc::new(OsStorage::new(&config.dir)?);
        let members = log_members(&config, &storage)?;
        let host = Host {
            storage,
            members,
            fatal: Arc::new(|why| stop_at_once(why)),
            lock: Some(lock),
        };
        Engine::open_on(config, host, progress)
    }

    /// Creates a database on a host whose storage holds nothing.
    pub fn create_on(config: &Config, host: Host, progress: &dyn Progress) -> Result<()> {
        bootstrap::create_on(config, host, progress)
    }

    /// Opens the database that a host has. `config` says nothing about where the files are.
    pub fn open_on(config: Config, host: Host, progress: &dyn Progress) -> Result<Arc<Engine>> {
        let Host {
            storage,
            members,
            fatal,
            lock,
        } = host;
        let storage: Arc<dyn Storage> = Arc::new(FailStop::new(storage, fatal.clone()));
        let instance = InstanceId(config.instance);
        let thread = ThreadId(config.instance);
        let control = Arc::new(ControlFile::open(&*storage)?);
        let state = control.get();
        let info = state.thread(thread).cloned().ok_or_else(|| {
            Error::Corrupt(format!("the control file has no redo thread {}", thread.0))
        })?;
        let identity = ThreadIdentity {
            database: state.database_id,
            database_incarnation: state.incarnation,
            thread,
        };
        let geometry = Geometry {
            files: info.log_files,
            file_bytes: info.log_file_bytes,
        };

        let files = Arc::new(DataFiles::new());
        for f in &state.files {
            files.add(f.id, storage.open(&f.path, FileKind::Data)?);
        }
        let mut double_write = DoubleWrite::open(&*storage, &Names::double_write(config.instance))?;
        let mut status_double_write =
            DoubleWrite::open(&*storage, &Names::status_double_write(config.instance))?;
        double_write.restore(&files)?;
        status_double_write.restore(&files)?;

        let start = RestartPoint {
            pos: info.checkpoint,
            batch: BatchNo(info.checkpoint_batch),
        };
        let to_read = LogFiles::open(&members, identity, geometry)?;
        let end = RedoReader::new(&to_read, start).finish()?;
        let floor = Scn(state.scn_ceiling.max(end.max_scn.0 + 1));
        let clock = Arc::new(Clock::new(floor, Scn(floor.0 + Clock::CEILING_STEP)));
        let incarnation = info.incarnation.max(end.incarnation) + 1;
        control.update(|c| {
            c.scn_ceiling = clock.ceiling().0;
            if let Some(t) = c.thread_mut(thread) {
                t.state = ThreadState::Open;
                t.incarnation = incarnation;
            }
        })?;
        let last_group = clock.tick();
        let events = Arc::new(Events {
            fatal: fatal.clone(),
            cache: OnceLock::new(),
        });
        let redo_config = RedoConfig {
            max_appenders: config.max_sessions as usize,
            ..RedoConfig::default()
        };
        let log = LogFiles::open(&members, identity, geometry)?;
        let redo = Redo::open(
            log,
            redo_config,
            clock.clone(),
            events.clone(),
            &end,
            last_group,
            incarnation,
        )?;

        let cache = Cache::new(config.buffer_bytes, files.clone(), redo.clone())?;
        assert!(
            events.cache.set(Arc::downgrade(&cache)).is_ok(),
            "invariant: the log learns of its cache once"
        );
        let gate = Arc::new(Gate {
            txns: OnceLock::new(),
            open: AtomicBool::new(false),
            start: start.pos,
        });
        let writer_config = WriterConfig {
            thread,
            recovery_target_bytes: config.recovery_target_bytes.min(geometry.capacity() / 4),
            fatal: Box::new(move |why| fatal(why)),
            notice: Box::new(|what| eprintln!("braid: {what}")),
        };
        let writer =
            cache.start_writer(writer_config, double_write, control.clone(), gate.clone())?;
        let redo_bytes = end.next.pos.0 - start.pos.0;
        let (txn_recovery, mut recovery) = roll_forward(
            &cache,
            vec![RedoReader::new(&to_read, start)],
            redo_bytes,
            progress,
        )?;

        let txn_config = TxnConfig {
            instance,
            thread,
            undo_cap_blocks: (config.undo_cap_bytes / block::BLOCK_SIZE as u64)
                .min(u64::from(block::UndoPtr::MAX_BLOCK)) as u32,
        };
        let txns = TxnManager::open(
            txn_config,
            cache.clone(),
            control.clone(),
            status_double_write,
        )?;
        redo.set_group_sink(txns.group_sink());
        recovery.transactions = txns.recover(txn_recovery, last_group)? as u64;
        assert!(
            gate.txns.set(txns.clone()).is_ok(),
            "invariant: the gate is opened once"
        );
        gate.open.store(true, Ordering::Release);
        let space = Arc::new(Space::open(cache.clone(), FileId::DATA, instance)?);
        let lgwr = LogWriter::start(&redo).map_err(|source| Error::Thread {
            name: "lgwr",
            source,
        })?;

        let clean = info.state == ThreadState::Closed;
        let engine = Arc::new(Engine {
            config,
            control,
            redo,
            cache,
            txns,
            space,
            open: Default::default(),
            dictionary: OnceLock::new(),
            recovery: (!clean).then_some(recovery),
            objects: Mutex::default(),
            quiet: Mutex::default(),
            threads: Mutex::new(None),
            _lock: lock,
        });
        if !state.bootstrap.is_empty() {
            bootstrap::open_dictionary(&engine, &state.bootstrap)?;
        }
        let background = Background::start(&engine)?;
        *engine.threads.lock() = Some(Threads {
            background,
            writer,
            lgwr,
        });
        Ok(engine)
    }

    /// What this start recovered; `None` after a clean stop.
    pub fn recovery(&self) -> Option<Recovery> {
        self.recovery
    }
    pub fn scn(&self) -> Scn {
        self.redo.clock().now()
    }
    pub fn current_scn(&self) -> Scn {
        self.scn()
    }
    pub fn instance(&self) -> u16 {
        self.config.instance
    }
    pub fn transactions(&self) -> &Arc<TxnManager> {
        &self.txns
    }
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
    pub fn redo(&self) -> &Arc<Redo> {
        &self.redo
    }

    /// The table that holds all definitions: columns id integer, kind smallint, name text, definition bytea.
    pub fn dictionary(&self) -> Arc<TableDef> {
        self.dictionary
            .get()
            .expect("invariant: an open database has its dictionary")
            .clone()
    }

    /// A new object id, never given out before, not even by another instance.
    pub fn allocate_object_id(&self) -> Result<ObjectId> {
        let mut ids = self.objects.lock();
        if ids.next == ids.end {
            let mut from = 0;
            self.control.update(|c| {
                from = c.object_ceiling;
                c.object_ceiling += OBJECT_RANGE;
            })?;
            *ids = ObjectIds {
                next: from,
                end: from + OBJECT_RANGE,
            };
        }
        ids.next += 1;
        Ok(ObjectId(ids.next - 1))
    }

    /// Writes everything that is dirty and moves the checkpoint past it.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.cache.checkpoint()?)
    }

    /// The heap of `object`, whose segment header is at `header`.
    pub(crate) fn heap(&self, object: ObjectId, header: Dba) -> Arc<Heap> {
        if let Some(heap) = self.open_heap(object) {
            return heap;
        }
        let new = || {
            Arc::new(Heap::open(
                self.space.clone(),
                self.txns.clone(),
                object,
                header,
            ))
        };
        self.open
            .write()
            .heaps
            .entry(object)
            .or_insert_with(new)
            .clone()
    }

    pub(crate) fn open_heap(&self, object: ObjectId) -> Option<Arc<Heap>> {
        self.open.read().heaps.get(&object).cloned()
    }

    pub(crate) fn tree(&self, object: ObjectId, header: Dba) -> Arc<BTree> {
        if let Some(tree) = self.open.read().trees.get(&object) {
            return tree.clone();
        }
        let new = || Arc::new(BTree::open(&self.txns, &self.space, object, header));
        self.open
            .write()
            .trees
            .entry(object)
            .or_insert_with(new)
            .clone()
    }

    pub(crate) fn sequence(&self, object: ObjectId, header: Dba) -> Arc<Sequence> {
        if let Some(sequence) = self.open.read().sequences.get(&object) {
            return sequence.clone();
        }
        let new = || Arc::new(Sequence::open(&self.txns, &self.space, object, header));
        self.open
            .write()
            .sequences
            .entry(object)
            .or_insert_with(new)
            .clone()
    }

    /// The object is gone.
    pub(crate) fn forget(&self, object: ObjectId) {
        let mut open = self.open.write();
        open.heaps.remove(&object);
        open.trees.remove(&object);
        open.sequences.remove(&object);
    }

    /// Blocks of a segment, used or not.
    pub fn segment_blocks(&self, object: ObjectId) -> Result<u64> {
        Ok(self.space.blocks_of(object)?)
    }

    /// Gives back the space of every object not in `known`: what a crash left behind between a commit and the dropping of its segments. Does nothing while other instances
    /// are up: what this one does not know may be being created there.
    pub fn drop_orphans(&self, known: &std::collections::BTreeSet<ObjectId>) -> Result<u64> {
        if !self.space.members().is_alone() {
            return Ok(0);
        }
        let own: Vec<ObjectId> = self
            .dictionary
            .get()
            .map(|d| vec![d.object, d.indexes[0].object])
            .unwrap_or_default();
        let mut dropped = 0;
        for object in self.space.owners()? {
            if !known.contains(&object) && !own.contains(&object) {
                self.space.drop_segment(object)?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// Stops cleanly: everything is written, and the next start has nothing to recover. All sessions have ended.
    pub fn stop(&self, progress: &dyn Progress) -> Result<()> {
        let Some(Threads {
            background,
            mut writer,
            lgwr,
        }) = self.threads.lock().take()
        else {
            return Ok(());
        };
        background.stop();
        progress.step(
            "checkpoint: dirty blocks",
            0,
            self.cache.dirty_frames() as u64,
        );
        self.cache.checkpoint()?;
        writer.stop();
        lgwr.stop()?;
        let thread = ThreadId(self.config.instance);
        self.control.update(|c| {
            if let Some(t) = c.thread_mut(thread) {
                t.state = ThreadState::Closed;
            }
        })?;
        Ok(())
    }
}

impl Engine {
    /// Stops without writing anything: what a crash of the process leaves behind. All sessions have ended or only fail.
    pub fn abandon(&self) {
        let Some(threads) = self.threads.lock().take() else {
            return;
        };
        threads.background.stop();
        let mut writer = threads.writer;
        writer.stop();
        drop(threads.lgwr);
    }
}

/// Directories of the members of the redo files.
pub(crate) fn log_members(
    config: &Config,
    storage: &Arc<dyn Storage>,
) -> Result<Vec<Arc<dyn Storage>>> {
    let mut members = vec![storage.clone()];
    if let Some(mirror) = &config.redo_mirror {
        members.push(Arc::new(OsStorage::new(mirror)?));
    }
    Ok(members)
}
