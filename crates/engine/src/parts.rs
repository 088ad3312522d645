//! An instance put together: its files, its redo read and applied, its transactions known, open.
//!
//! ```text
//! Parts ── open: redo read, tail invalidated, roll-forward ──► Core ── know_transactions ── move_checkpoint ── engine ──► Engine
//! ```
//!
//! **Invariants.**
//! - The checkpoint stays where it is until everything that the redo says has been applied and how its transactions ended is known; beside others, until their horizons have been heard, too.
//! - What of its redo an instance applies is decided by who else may have changed the blocks since ([`Apply`]).

use crate::Error;
use crate::files::{self, Places};
use crate::instance::{Membership, Threads};
use crate::recovery::{Apply, OwnThread, Recovery, roll_forward};
use crate::temp::TempSpace;
use crate::{Config, Engine, Progress, Result, bootstrap};
use access::space::Space;
use block::{FileId, InstanceId, LastGroups, LogPos, Op, Scn, ThreadId};
use cache::{Cache, CheckpointClient, RecordHeader, Writer, WriterConfig};
use redo::{
    BatchNo, Clock, LogEvents, LogFiles, LogWriter, Redo, RedoConfig, RedoReader, RestartPoint,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use storage::{
    Control, ControlFile, DataFiles, DoubleWrite, Fatal, Storage, ThreadInfo, ThreadState,
    restore_all,
};
use txn::{TxnConfig, TxnManager, TxnRecovery};

/// An instance's files, held and open, before its redo has been read.
pub(crate) struct Parts<'a> {
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

/// An instance rolled forward, not yet open: log, cache and transactions.
pub(crate) struct Core {
    pub control: Arc<ControlFile>,
    pub redo: Arc<Redo>,
    pub cache: Arc<Cache>,
    pub txns: Arc<TxnManager>,
    temp: Arc<TempSpace>,
    plain: Arc<dyn Storage>,
    pub writer: Writer,
    pub recovery: Recovery,
    gate: Arc<Gate>,
    /// What redo says of transactions, and when the last groups took effect, until [`Core::know_transactions`].
    unfinished: Option<(TxnRecovery, LastGroups)>,
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
        tracing::error!(
            "a member of the redo log cannot be written any more, {healthy} left: bring its \
             directory back, or start without redo_mirror"
        );
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

impl Parts<'_> {
    fn thread(&self) -> ThreadId {
        ThreadId(self.instance.0)
    }

    fn start(&self) -> RestartPoint {
        RestartPoint {
            pos: self.info.checkpoint,
            batch: BatchNo(self.info.checkpoint_batch),
        }
    }

    fn log_files(&self) -> Result<LogFiles> {
        let identity = files::identity(&self.state, self.thread());
        let geometry = files::geometry(&self.info);
        Ok(LogFiles::open(&self.places.members, identity, geometry)?)
    }

    fn double_writes(&self) -> Result<[DoubleWrite; 2]> {
        let storage = &*self.places.storage;
        Ok([
            DoubleWrite::open(storage, &files::double_write(self.instance))?,
            DoubleWrite::open(storage, &files::status_double_write(self.instance))?,
        ])
    }

    /// Reads the thread to its end, opens it for appending, and applies it, together with the redo of others that are dead.
    pub fn open(self, others: &[Parts<'_>], progress: &dyn Progress) -> Result<Core> {
        let [mut double_write, mut status_double_write] = self.double_writes()?;
        let mut of_others = Vec::new();
        for other in others {
            of_others.extend(other.double_writes()?);
        }
        // A thread that was closed left nothing torn.
        if self.apply != Apply::Nothing {
            let mut all = vec![&mut double_write, &mut status_double_write];
            all.extend(&mut of_others);
            restore_all(&all, &self.data_files, |dba| {
                self.apply.takes(dba, self.instance)
            })?;
            // What a killed process has written and not synced counts as being on disk from here on.
            let is_dead = |k| k == self.instance || others.iter().any(|o| o.instance == k);
            let files = self.data_files.ids().into_iter();
            self.data_files
                .sync(files.filter(|f| f.owner().is_none_or(is_dead)))?;
        }

        let start = self.start();
        let to_read = self.log_files()?;
        if self.apply != Apply::Nothing {
            to_read.sync()?;
        }
        let end = match self.apply {
            Apply::Nothing => RedoReader::of_closed(&to_read, start).finish()?,
            Apply::OwnUndo | Apply::All => RedoReader::new(&to_read, start).finish()?,
        };
        let incarnation = self.info.incarnation.max(end.incarnation) + 1;
        let thread = self.thread();
        let (mut floor, mut ceiling) = (Scn::ZERO, Scn::ZERO);
        self.control.update(|c| {
            // Those who are up may have raised it just now.
            floor = Scn(c.scn_ceiling.max(end.max_scn.0 + 1));
            ceiling = Scn(floor.0 + Clock::CEILING_STEP);
            c.scn_ceiling = ceiling.0;
            if let Some(t) = c.thread_mut(thread) {
                t.state = ThreadState::Open;
                t.incarnation = incarnation;
            }
        })?;
        let clock = Arc::new(Clock::new(floor, ceiling));
        let last_groups = end.last_groups(self.decided, clock.tick());
        let events = Arc::new(Events {
            fatal: self.fatal.clone(),
            cache: OnceLock::new(),
        });
        let redo_config = RedoConfig {
            max_appenders: self.config.max_sessions as usize,
            ..RedoConfig::default()
        };
        let log = self.log_files()?;
        let capacity = log.geometry().capacity();
        let redo = Redo::open(
            log,
            redo_config,
            clock,
            events.clone(),
            &end,
            last_groups,
            incarnation,
        )?;
        let cache = Cache::new(
            self.config.buffer_bytes,
            self.data_files.clone(),
            redo.clone(),
        )?;
        cache.set_affinity(self.config.affinity);
        cache.defer(self.config.gc_defer);
        assert!(
            events.cache.set(Arc::downgrade(&cache)).is_ok(),
            "invariant: the log learns of its cache once"
        );
        let gate = Arc::new(Gate {
            txns: OnceLock::new(),
            open: AtomicBool::new(false),
            start: start.pos,
        });
        let fatal = self.fatal.clone();
        let writer_config = WriterConfig {
            thread,
            recovery_target_bytes: self.config.recovery_target_bytes.min(capacity / 4),
            fatal: Box::new(move |why| fatal(why)),
            notice: Box::new(|what| tracing::warn!("{what}")),
        };
        let writer = cache.start_writer(
            writer_config,
            double_write,
            self.control.clone(),
            gate.clone(),
        )?;
        let own = OwnThread {
            thread,
            start: start.pos,
            apply: self.apply,
        };
        let mut bytes = end.next.pos.0 - start.pos.0;
        let mut logs = Vec::new();
        for other in others {
            let log = other.log_files()?;
            log.sync()?;
            let end = RedoReader::new(&log, other.start()).finish()?;
            bytes += end.next.pos.0 - other.start().pos.0;
            logs.push((log, end));
        }
        let mut readers = vec![RedoReader::again(&to_read, &end)];
        readers.extend(logs.iter().map(|(log, end)| RedoReader::again(log, end)));
        let (found, recovery) = roll_forward(&cache, readers, &own, bytes, progress)?;
        if !others.is_empty() {
            write_all(&cache, progress)?;
        }

        let txn_config = TxnConfig {
            instance: self.instance,
            thread,
            undo_cap_blocks: (self.config.undo_cap_bytes / block::BLOCK_SIZE as u64)
                .min(u64::from(block::UndoPtr::MAX_BLOCK)) as u32,
        };
        let txns = TxnManager::open(
            txn_config,
            cache.clone(),
            self.control.clone(),
            status_double_write,
        )?;
        redo.set_group_sink(txns.group_sink());
        let temp = TempSpace::open(self.places.storage.clone(), self.instance.0)?;
        Ok(Core {
            control: self.control,
            redo,
            cache,
            txns,
            temp,
            plain: self.plain,
            writer,
            recovery,
            gate,
            unfinished: Some((found, last_groups)),
        })
    }
}

/// Writes every block that the merged redo has changed, while the checkpoints of all threads stay where they are: what comes next reads each thread by itself.
fn write_all(cache: &Arc<Cache>, progress: &dyn Progress) -> Result<()> {
    // A checkpoint writes what was changed before the log's end. Blocks count as changed at the thread's start, so the end must be beyond it.
    cache.mark(RecordHeader::NONE, Op::ActiveTransactions, &[], |_, _| ());
    progress.step("recovery: blocks to write", 0, cache.dirty_frames() as u64);
    cache.checkpoint()?;
    assert!(
        cache.dirty_frames() == 0,
        "invariant: nobody changes blocks during recovery"
    );
    Ok(())
}

impl Core {
    /// Takes over how the transactions of this instance's former life ended: before anybody can ask.
    pub fn know_transactions(&mut self) -> Result<()> {
        if let Some((found, last_groups)) = self.unfinished.take() {
            self.recovery.transactions = self.txns.recover(found, last_groups)? as u64;
        }
        Ok(())
    }

    /// From now on the checkpoint moves, and horizons are computed on the way: others' must have been heard.
    pub fn move_checkpoint(&self) {
        assert!(
            self.unfinished.is_none() && self.gate.txns.set(self.txns.clone()).is_ok(),
            "invariant: the checkpoint moves once, and when all redo is taken in"
        );
        self.gate.open.store(true, Ordering::Release);
    }

    /// The instance, open but for its background threads.
    pub fn engine(
        self,
        config: Config,
        recovery: Option<Recovery>,
        membership: Option<Membership>,
    ) -> Result<Arc<Engine>> {
        let instance = InstanceId(config.instance);
        let space = Arc::new(Space::open(self.cache.clone(), FileId::DATA, instance)?);
        let cpus = config.lgwr_cpus.clone();
        let lgwr = LogWriter::start_with(&self.redo, config.priority, cpus);
        let lgwr = lgwr.map_err(|source| Error::Thread {
            name: "lgwr",
            source,
        })?;
        let bootstrap = self.control.get().bootstrap;
        let engine = Arc::new(Engine {
            config,
            control: self.control,
            redo: self.redo,
            cache: self.cache,
            txns: self.txns,
            space,
            temp: self.temp,
            plain: self.plain,
            open: Default::default(),
            dictionary: OnceLock::new(),
            recovery,
            objects: Default::default(),
            dropped: Default::default(),
            quiet: Default::default(),
            threads: seam::Mutex::new(Some(Threads {
                background: None,
                writer: self.writer,
                lgwr,
            })),
            membership,
        });
        if !bootstrap.is_empty() {
            bootstrap::open_dictionary(&engine, &bootstrap)?;
        }
        Ok(engine)
    }
}
