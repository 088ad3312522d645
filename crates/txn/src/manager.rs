//! All that the transactions of one instance share, put together.

use crate::active::{self, Active, ActiveTable};
use crate::cluster::Cluster;
use crate::global_enqueues::GlobalEnqueues;
use crate::horizon::{Horizon, MAX_SNAPSHOTS};
use crate::local_enqueues::{Enqueues, LockRow};
use crate::numbers::Numbers;
use crate::purge::{PurgeHint, PurgeQueue};
use crate::recovery::TxnRecovery;
use crate::sharers::Sharers;
use crate::status::{CHUNK, Status, StatusArray};
use crate::status_file::StatusFile;
use crate::transaction::Dead;
use crate::undo_space::{UndoSpace, UndoUsage};
use crate::visibility::Visibility;
use crate::{Error, Result, Snapshot, Transaction, TxnState, UndoHandler, Verdict};
use block::ids::StampKind;
use block::undo::{Found, UndoView};
use block::{InstanceId, LastGroups, LogPos, ObjectId, Op, Scn, Stamp, ThreadId, TxnId, UndoPtr};
use cache::{Cache, RecordHeader};
use redo::{Clock, GroupSink};
use seam::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use storage::{ControlFile, DoubleWrite};
use wait::Stat;

/// The settings of a manager.
#[derive(Clone, Copy, Debug)]
pub struct TxnConfig {
    pub instance: InstanceId,
    pub thread: ThreadId,
    /// The undo file does not grow beyond this. At the cap the oldest snapshots fail.
    pub undo_cap_blocks: u32,
}

/// An undo record, copied out of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoRecord {
    pub txn: TxnId,
    /// The transaction's record before this one.
    pub prev: UndoPtr,
    pub undo_no: u32,
    pub object: ObjectId,
    /// The access layer's number for what was done.
    pub kind: u16,
    pub payload: Vec<u8>,
}

/// One row of `v$transaction`.
#[derive(Clone, Debug)]
pub struct TransactionRow {
    pub sid: u32,
    pub txn: TxnId,
    /// Milliseconds since 1970.
    pub started_ms: u64,
    pub undo_records: u32,
    pub undo_head: UndoPtr,
}

/// Figures for the statistics.
#[derive(Clone, Copy, Debug)]
pub struct TxnStatistics {
    pub undo: UndoUsage,
    /// Transactions whose status is kept. A status is kept from the beginning of its transaction
    /// until the horizon is above the transaction's end and [`TxnManager::maintain`] has run.
    pub statuses: u64,
    /// Bytes of memory that the statuses take. Half a megabyte is given back at a time.
    pub status_bytes: usize,
    pub registered_snapshots: usize,
    pub purge_hints: usize,
    pub horizon: Scn,
}

/// The transactions of one instance; see the crate's head. All sessions share it, and each of its
/// parts has latches of its own.
pub struct TxnManager {
    pub(crate) config: TxnConfig,
    pub(crate) cache: Arc<Cache>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) control: Arc<ControlFile>,
    pub(crate) visibility: Arc<Visibility>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) horizon: Arc<Horizon>,
    pub(crate) undo: UndoSpace,
    pub(crate) enqueues: Arc<Enqueues>,
    pub(crate) sharers: Sharers,
    /// Locks of tables and names, against the sessions of all instances.
    pub(crate) ges: GlobalEnqueues,
    pub(crate) active: ActiveTable,
    pub(crate) numbers: Numbers,
    pub(crate) purge: PurgeQueue,
    status_file: Mutex<StatusFile>,
    /// Transactions without a session, which [`TxnManager::rollback_dead`] rolls back.
    pub(crate) dead: Mutex<DeadList>,
    /// Held while the dead are rolled back.
    rolling_back: Mutex<()>,
    last_checkpoint: Mutex<Option<LastCheckpoint>>,
}

#[derive(Default)]
pub(crate) struct DeadList {
    pub(crate) list: Vec<Dead>,
    /// Whether undo from before the restart is still kept.
    old_undo: bool,
}

#[derive(Clone, Copy)]
struct LastCheckpoint {
    marker: LogPos,
    /// The log's end after it.
    end: LogPos,
}

impl TxnManager {
    /// Opens the transactions of an instance whose undo and status files are among the cache's data
    /// files. The clock must stand above everything that was drawn before. `double_write` is a file
    /// for the status blocks alone, restored already.
    ///
    /// [`TxnManager::recover`] must follow before the first session, also after a clean stop.
    pub fn open(
        config: TxnConfig,
        cache: Arc<Cache>,
        control: Arc<ControlFile>,
        double_write: DoubleWrite,
    ) -> Result<Arc<TxnManager>> {
        let state = control.get();
        let thread = state.thread(config.thread).ok_or_else(|| {
            Error::Corrupt(format!(
                "thread {} is not in the control file",
                config.thread.0
            ))
        })?;
        let clock = cache.redo().clock().clone();
        let horizon = Arc::new(Horizon::new(clock.clone(), MAX_SNAPSHOTS));
        let cluster = Cluster::new(config.instance, clock.clone(), horizon.others());
        let words = StatusArray::new(thread.txn_truncated / CHUNK);
        let status_file = StatusFile::new(config.instance, cache.files().clone(), double_write);
        status_file.load(&words, thread.txn_reserved.div_ceil(CHUNK))?;
        let enqueues = Arc::new(Enqueues::new(config.instance));
        let ges = GlobalEnqueues::new(config.instance, cluster.clone(), enqueues.clone());
        let manager = TxnManager {
            config,
            visibility: Arc::new(Visibility::new(
                config.instance,
                words,
                cluster.clone(),
                clock.clone(),
            )),
            cluster,
            horizon,
            undo: UndoSpace::open(config.instance, config.undo_cap_blocks, cache.clone())?,
            enqueues,
            ges,
            sharers: Sharers::new(config.instance),
            active: ActiveTable::default(),
            numbers: Numbers::new(config.thread, control.clone(), thread.txn_reserved),
            purge: PurgeQueue::new(),
            status_file: Mutex::new(status_file),
            dead: Mutex::new(DeadList {
                list: Vec::new(),
                old_undo: true,
            }),
            rolling_back: Mutex::new(()),
            last_checkpoint: Mutex::new(None),
            cache,
            clock,
            control,
        };
        let manager = Arc::new(manager);
        let of = Arc::downgrade(&manager);
        manager.enqueues.on_suspicion(Box::new(move |locker| {
            if let Some(manager) = of.upgrade() {
                manager.suspect(locker);
            }
        }));
        Ok(manager)
    }

    /// Takes over what redo says. Returns the number of transactions that
    /// [`TxnManager::rollback_dead`] will roll back. Their rows stay locked until then, and all
    /// else goes on.
    ///
    /// `last` says when those transactions committed whose commit SCN was lost: at the SCN that was
    /// decided for their group in the cluster, otherwise above everything drawn before.
    pub fn recover(&self, recovery: TxnRecovery, last: LastGroups) -> Result<usize> {
        let outcome = recovery.finish(last)?;
        let words = &self.visibility.words;
        let (low, end) = (words.low_chunk(), self.numbers.next() / CHUNK);
        // The space is there already, except for the first chunk of the instance's first life. No
        // number of that chunk is ever drawn. The loop below ends its transactions like all others
        // that are not dead.
        self.cover_status(end)?;
        (low..end).for_each(|chunk| words.with_chunk(chunk, |_| ()));
        let check = |txn: TxnId| match txn.instance() == self.config.instance
            && txn.number() < end * CHUNK
        {
            true => Ok(()),
            false => Err(Error::Corrupt(format!(
                "redo names transaction {txn:?}, which was never drawn here"
            ))),
        };
        for (txn, e) in outcome.committed {
            check(txn)?;
            if !matches!(words.get(txn.number()), None | Some(Status::Committed(_))) {
                words.set(txn.number(), Status::Committed(e));
            }
        }
        let mut losers = Vec::new();
        for (txn, head) in outcome.losers {
            check(txn)?;
            if matches!(words.get(txn.number()), None | Some(Status::Committed(_))) {
                return Err(Error::Corrupt(format!(
                    "redo lacks the commit record of {txn:?}, which is committed"
                )));
            }
            words.set(txn.number(), Status::Active);
            losers.push((txn, head));
        }
        let numbers: seam::HashSet<u64> = losers.iter().map(|(txn, _)| txn.number()).collect();
        let now = self.clock.now();
        for number in low * CHUNK..end * CHUNK {
            if words.get(number) == Some(Status::Active) && !numbers.contains(&number) {
                words.set(number, Status::Aborted(now));
            }
        }
        let mut dead = self.dead.lock();
        for (txn, head) in losers {
            let locker = self.enqueues.register();
            let active = self.active.register(locker.id, locker.sid());
            active.begin(txn);
            active.set_head(head);
            dead.list.push(Dead::loser(txn, head, locker, active));
        }
        let count = dead.list.len();
        self.release_old_undo(&mut dead);
        Ok(count)
    }

    fn release_old_undo(&self, dead: &mut DeadList) {
        if dead.old_undo && dead.list.is_empty() {
            dead.old_undo = false;
            self.undo.release_old(self.clock.now());
        }
    }

    /// Rolls back the transactions that have lost their session or their instance, one after the
    /// other. Returns how many. For a background thread. After an error the transaction stays in
    /// the list.
    ///
    /// One thread at a time does this. A second one waits, so that no transaction that was dead
    /// before is half rolled back when that thread goes on.
    pub fn rollback_dead(self: &Arc<Self>, handler: &dyn UndoHandler) -> Result<usize> {
        let _one_at_a_time = self.rolling_back.lock();
        let mut done = 0;
        loop {
            let slot = self.horizon.take_slot().ok_or(Error::TooMany {
                limit: MAX_SNAPSHOTS,
            })?;
            let Some(next) = self.dead.lock().list.pop() else {
                break;
            };
            let mut txn = Transaction::adopt(self, next, slot);
            // If this fails, dropping the transaction puts it back into the list.
            txn.rollback(handler)?;
            done += 1;
        }
        self.release_old_undo(&mut self.dead.lock());
        Ok(done)
    }

    /// The verdict of `snapshot` on `stamp`. Takes no latch and waits for nothing.
    #[inline]
    pub fn verdict(&self, stamp: Stamp, snapshot: &Snapshot) -> Verdict {
        self.visibility.verdict(stamp, snapshot)
    }

    /// How a transaction stands as far as this instance knows. Takes no latch and waits for
    /// nothing.
    ///
    /// The answer is final unless it is active or unknown. That another instance's transaction is
    /// active may be old news; [`TxnManager::state_now`] asks.
    #[inline]
    pub fn state(&self, txn: TxnId) -> TxnState {
        self.visibility.state(txn)
    }

    /// Whether the transaction that set the stamp is known to have committed.
    pub fn is_committed(&self, stamp: Stamp) -> bool {
        self.committed_at(stamp).is_some()
    }

    /// The SCN at which the transaction that set the stamp committed. [`Scn::ZERO`] if it committed
    /// below the horizon. `None` if it has not committed, or if nothing of it is known here.
    pub fn committed_at(&self, stamp: Stamp) -> Option<Scn> {
        match stamp.kind() {
            StampKind::Committed(scn) => Some(scn),
            StampKind::Txn(txn) => match self.state(txn) {
                TxnState::Committed(scn) => Some(scn),
                TxnState::Active | TxnState::Aborted | TxnState::Unknown => None,
            },
        }
    }

    /// Whether every present and future snapshot of all instances is known to see what has this
    /// stamp. The horizon last reported decides, which may lag.
    pub fn is_below_horizon(&self, stamp: Stamp) -> bool {
        self.committed_at(stamp)
            .is_some_and(|scn| scn <= self.horizon_reported())
    }

    /// The horizon, computed now: no present or future snapshot of any instance lies below it.
    pub fn horizon(&self) -> Scn {
        self.horizon.compute()
    }

    /// The horizon as last computed: one load.
    #[inline]
    pub fn horizon_reported(&self) -> Scn {
        self.horizon.reported()
    }

    /// Publishes commits: for [`redo::Redo::set_group_sink`].
    pub fn group_sink(&self) -> Arc<dyn GroupSink> {
        self.visibility.clone()
    }

    pub fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
    pub fn instance(&self) -> InstanceId {
        self.config.instance
    }

    /// Runs `f` on the undo record at `ptr`. If the record is another instance's, `f` runs on a
    /// copy of its block. [`Error::SnapshotTooOld`] if the record has been overwritten.
    ///
    /// This may read from disk or wait for that instance: the caller must hold no latch. `f` may
    /// run under one.
    pub fn with_undo<R>(&self, ptr: UndoPtr, f: impl FnOnce(&UndoView<'_>) -> R) -> Result<R> {
        let block = self.cache.read_undo(ptr.dba())?;
        match block::undo::get(&block, ptr)? {
            Found::Record(view) => {
                wait::stat::add(Stat::ConsistentChanges, 1);
                Ok(f(&view))
            }
            Found::Reused => {
                wait::stat::add(Stat::SnapshotTooOld, 1);
                Err(Error::SnapshotTooOld(ptr))
            }
        }
    }

    /// A copy of the undo record at `ptr`. Waits and fails as [`TxnManager::with_undo`] does.
    pub fn undo_record(&self, ptr: UndoPtr) -> Result<UndoRecord> {
        self.with_undo(ptr, |v| UndoRecord {
            txn: v.txn,
            prev: v.prev,
            undo_no: v.undo_no,
            object: v.object,
            kind: v.kind,
            payload: v.payload.to_vec(),
        })
    }

    /// Takes the hints of up to `max` blocks in which something can be purged for good at
    /// `horizon`.
    pub fn take_purgeable(&self, horizon: Scn, max: usize) -> Vec<PurgeHint> {
        self.purge.take(horizon, max)
    }

    /// Takes back hints whose blocks could not be read or written.
    pub fn put_back_purgeable(&self, hints: Vec<PurgeHint>) {
        self.purge.put_back(hints);
    }

    /// Does what must be done now and then, so that sessions need not do it: computes the horizon,
    /// truncates the status array, reserves numbers and undo space. For a background thread, about
    /// once a second.
    pub fn maintain(&self) -> Result<()> {
        let horizon = self.horizon();
        self.truncate(horizon)?;
        let reserved = self
            .numbers
            .reserve_ahead(&self.visibility.words, |chunks| self.cover_status(chunks));
        // Undo space is prepared also if reserving numbers failed.
        reserved.and(self.undo.prepare_ahead(horizon))
    }

    /// Makes space in the status file for the first `chunks` chunks.
    pub(crate) fn cover_status(&self, chunks: u64) -> Result<()> {
        self.status_file.lock().cover(chunks)
    }

    fn truncate(&self, horizon: Scn) -> Result<()> {
        let words = &self.visibility.words;
        let from = words.low_chunk();
        let to = words.truncatable(horizon, self.numbers.next() / CHUNK);
        if to == from {
            return Ok(());
        }
        // "Truncated" says committed. Were the end of a rollback still in the log buffer, a crash
        // would bring its transaction back as active.
        self.cache.redo().flush_to(self.cache.redo().end())?;
        self.control.update(|c| {
            let thread = c
                .thread_mut(self.config.thread)
                .expect("invariant: an open thread is in the control file");
            thread.txn_truncated = to * CHUNK;
        })?;
        let file = self.status_file.lock();
        words.truncate(to);
        file.punch(from, to)
    }

    /// The transactions of this instance that hold a table in a mode that `mode` excludes: all
    /// that do not know of a change of the dictionary whose commit is published.
    pub fn table_users(&self, object: ObjectId, mode: crate::LockMode) -> Vec<crate::TableUser> {
        self.enqueues.table_users(object, mode)
    }

    /// Rows of `v$lock`.
    pub fn locks(&self) -> Vec<LockRow> {
        let mut rows = self.enqueues.rows();
        rows.extend(
            self.active
                .all()
                .iter()
                .map(|a| LockRow::of_transaction(a.sid, a.id())),
        );
        rows
    }

    /// Rows of `v$transaction`.
    pub fn transactions(&self) -> Vec<TransactionRow> {
        let row = |a: &Arc<Active>| TransactionRow {
            sid: a.sid,
            txn: a.id(),
            started_ms: a.started_ms.load(Ordering::Relaxed),
            undo_records: a.records.load(Ordering::Relaxed),
            undo_head: a.head(),
        };
        self.active.all().iter().map(row).collect()
    }

    pub fn statistics(&self) -> TxnStatistics {
        // The order matters: both numbers only rise, and the truncated one stays below the other.
        let truncated = self.visibility.words.low_chunk() * CHUNK;
        TxnStatistics {
            undo: self.undo.usage(),
            statuses: self.numbers.next() - truncated,
            status_bytes: self.visibility.words.memory(),
            registered_snapshots: self.horizon.registered(),
            purge_hints: self.purge.len(),
            horizon: self.horizon(),
        }
    }

    /// Logs the active transactions, makes that durable, and then writes the status words to their
    /// file.
    ///
    /// The order lets the checkpoint go up to the list's first marker. A commit record below that
    /// marker is durable when the words are written, hence its word is final.
    fn checkpoint(&self) -> Result<LogPos> {
        let mut last = self.last_checkpoint.lock();
        let redo = self.cache.redo();
        if let Some(l) = *last
            && redo.end() == l.end
        {
            return Ok(l.marker); // An idle instance does not fill its log with markers.
        }
        let mut list = Vec::new();
        let first = self
            .cache
            .mark(RecordHeader::NONE, Op::ActiveTransactions, &[], |_, _| {
                list = self.active.with_undo()
            });
        let mut end = first.end;
        for part in list.chunks(active::PER_MARKER) {
            end = self
                .cache
                .mark(
                    RecordHeader::NONE,
                    Op::ActiveTransactions,
                    &active::encode(part),
                    |_, _| (),
                )
                .end;
        }
        redo.flush_to(end)?;
        // Up to here all words are final and go into the file. A commit that comes while the file
        // is written is left to the next checkpoint, which runs even if nothing else is logged by
        // then, as at a clean stop.
        let settled = redo.durable();
        self.status_file
            .lock()
            .persist(&self.visibility.words, self.clock.now())?;
        *last = Some(LastCheckpoint {
            marker: first.pos,
            end: settled,
        });
        Ok(first.pos)
    }
}

impl cache::CheckpointClient for TxnManager {
    fn before_checkpoint(&self) -> cache::Result<LogPos> {
        self.checkpoint().map_err(|e| match e {
            Error::Storage(e) => e.into(),
            Error::Redo(e) => e.into(),
            Error::Cache(e) => e,
            e => cache::Error::Checkpoint {
                what: e.to_string(),
                full: false,
            },
        })
    }
}
