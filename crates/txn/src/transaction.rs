//! A session's transaction: its identity, undo, snapshot, commit and rollback. Locks are in
//! [`crate::locking`].
//!
//! **Order of a change.** [`Transaction::prepare_undo`] comes first, with no latch held: it draws
//! the transaction's number, finds room in the session's own undo block and waits for log space.
//! Then the caller latches the block that it wants to change and calls [`Transaction::log`], which
//! puts the change and its undo into one record. The address of the undo record is known in
//! between, so the change can carry it.
//!
//! **Invariants.** Undo numbers rise and are never given twice, not even after a rollback to a
//! savepoint. Each step of a rollback logs the head it leaves, so no step is undone twice, whenever
//! the instance dies. A transaction that has changed something ends by [`Transaction::commit`] or
//! [`Transaction::rollback`]. If it is dropped instead, a background thread rolls it back, and it
//! keeps its locks until then.

use crate::active::Active;
use crate::horizon::{MAX_SNAPSHOTS, SnapshotSlot};
use crate::local_enqueues::{LockMode, Locker, Resource};
use crate::manager::{TxnManager, UndoRecord};
use crate::purge;
use crate::sharers::RowLock;
use crate::status::Status;
use crate::undo_space::{Extent, UndoBlock};
use crate::{Error, HandlerError, Place, Result, Snapshot, TxnState};
use block::undo::{UNDO_MAX_PAYLOAD, UndoView, append_payload};
use block::{Dba, ObjectId, Op, RowId, Scn, Stamp, TxnId, UndoPtr};
use cache::{Change, RecordHeader};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wait::Stat;
use wait::longop::{Counted, Target};

/// What a transaction sees of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isolation {
    /// Each statement has a snapshot of its own.
    ReadCommitted,
    /// All statements have the first one's snapshot.
    RepeatableRead,
}

/// Puts one change back. The layer that knows the kinds of undo implements it.
pub trait UndoHandler {
    /// Undoes `record`, which is `txn`'s newest undo and stands at `at`.
    ///
    /// The handler calls [`Transaction::reserve_log`], latches the blocks that the record names,
    /// and logs the change with [`Transaction::log_compensation`] and `record.prev`. If the change
    /// takes several records, [`Transaction::log_partial`] logs all but the last. After a crash the
    /// handler may be called for the same record again and must find out how far it came. If there
    /// is nothing to do, it need not log anything. It needs no space that anybody could have taken.
    fn undo(
        &self,
        txn: &mut Transaction,
        record: &UndoRecord,
        at: UndoPtr,
    ) -> std::result::Result<(), HandlerError>;
}

/// Undo to be written with a change.
#[derive(Clone, Copy, Debug)]
pub struct Undo<'a> {
    /// The access layer's number for what was done.
    pub kind: u16,
    pub object: ObjectId,
    pub payload: &'a [u8],
}

/// Room for one undo record at a known address. Not using it costs nothing.
#[derive(Debug)]
#[must_use]
pub struct UndoSlot {
    ptr: UndoPtr,
    max_payload: usize,
}

impl UndoSlot {
    /// Where the record will be.
    pub fn ptr(&self) -> UndoPtr {
        self.ptr
    }
}

/// A point to roll back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    undo_no: u32,
    pub(crate) tables: usize,
    pub(crate) names: usize,
    shared: usize,
}

/// Keeps a snapshot registered beyond its statement: for a cursor, or for a worker on another
/// thread.
pub struct HeldSnapshot {
    snapshot: Snapshot,
    slot: SnapshotSlot,
    manager: Arc<TxnManager>,
}

impl HeldSnapshot {
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }
    /// Registers the snapshot once more.
    pub fn another(&self) -> Result<HeldSnapshot> {
        hold(&self.manager, self.snapshot)
    }
    /// Ends this registration, as dropping it does.
    pub fn release(self) {
        drop(self.slot);
    }
}

/// Registers `snapshot` in a slot of its own. The caller has registered it already.
fn hold(manager: &Arc<TxnManager>, snapshot: Snapshot) -> Result<HeldSnapshot> {
    let slot = manager.horizon.take_slot().ok_or(Error::TooMany {
        limit: MAX_SNAPSHOTS,
    })?;
    slot.copy(snapshot.scn);
    Ok(HeldSnapshot {
        snapshot,
        slot,
        manager: manager.clone(),
    })
}

/// A session's transactions, one after the other; see the module. A session has one of these.
pub struct Transaction {
    pub(crate) manager: Arc<TxnManager>,
    pub(crate) locker: Arc<Locker>,
    active: Arc<Active>,
    slot: SnapshotSlot,
    isolation: Isolation,
    /// The registered snapshot.
    scn: Option<Scn>,
    id: TxnId,
    head: UndoPtr,
    /// The number of the next undo record.
    undo_no: u32,
    /// Whether a record carries this transaction's id.
    logged: bool,
    undo: Option<UndoBlock>,
    /// Extents with records of this transaction, each held.
    extents: Vec<Arc<Extent>>,
    pub(crate) tables: Vec<(ObjectId, LockMode)>,
    pub(crate) names: Vec<(Resource, LockMode)>,
    /// Locks that outlive the transaction.
    pub(crate) session_names: Vec<(Resource, LockMode)>,
    /// The rows that the transaction shares, in the order in which it came to.
    pub(crate) shared: Vec<(RowId, RowLock)>,
    /// The row or key whose line this session heads, and since when it has wanted it.
    pub(crate) place: Option<(Place, Instant)>,
    /// Whether those who share that row have made the session wait.
    pub(crate) stopped_by_sharers: bool,
    /// What the clock showed when the session's last wait for a transaction was over, and so before
    /// it looked at anything that the next such wait is for.
    pub(crate) looked: Scn,
    purge: Vec<(ObjectId, Dba)>,
    scratch: Vec<u8>,
}

/// What is left of a transaction whose session or instance is gone.
pub(crate) struct Dead {
    id: TxnId,
    head: UndoPtr,
    undo_no: u32,
    locker: Arc<Locker>,
    active: Arc<Active>,
    extents: Vec<Arc<Extent>>,
    tables: Vec<(ObjectId, LockMode)>,
    names: Vec<(Resource, LockMode)>,
    shared: Vec<(RowId, RowLock)>,
    place: Option<(Place, Instant)>,
    stopped_by_sharers: bool,
}

impl Dead {
    /// What is left of a transaction of a former life of the instance. It holds no extents, because
    /// all undo of that life is kept. Its locks are its stamps.
    pub(crate) fn loser(
        id: TxnId,
        head: UndoPtr,
        locker: Arc<Locker>,
        active: Arc<Active>,
    ) -> Dead {
        let (extents, tables, names) = (Vec::new(), Vec::new(), Vec::new());
        Dead {
            id,
            head,
            undo_no: 0,
            locker,
            active,
            extents,
            tables,
            names,
            shared: Vec::new(),
            place: None,
            stopped_by_sharers: false,
        }
    }
}

impl Transaction {
    /// A transaction for the calling session. It must be made in the session's thread.
    pub fn new(manager: &Arc<TxnManager>) -> Result<Transaction> {
        let slot = manager.horizon.take_slot().ok_or(Error::TooMany {
            limit: MAX_SNAPSHOTS,
        })?;
        let locker = manager.enqueues.register();
        let active = manager.active.register(locker.id, locker.sid());
        let (extents, tables, names) = (Vec::new(), Vec::new(), Vec::new());
        let blank = Dead {
            id: TxnId::NONE,
            head: UndoPtr::NONE,
            undo_no: 0,
            locker,
            active,
            extents,
            tables,
            names,
            shared: Vec::new(),
            place: None,
            stopped_by_sharers: false,
        };
        Ok(Transaction::adopt(manager, blank, slot))
    }

    pub(crate) fn adopt(manager: &Arc<TxnManager>, dead: Dead, slot: SnapshotSlot) -> Transaction {
        Transaction {
            manager: manager.clone(),
            locker: dead.locker,
            active: dead.active,
            slot,
            isolation: Isolation::ReadCommitted,
            scn: None,
            id: dead.id,
            head: dead.head,
            undo_no: dead.undo_no,
            logged: !dead.id.is_none(),
            undo: None,
            extents: dead.extents,
            tables: dead.tables,
            names: dead.names,
            session_names: Vec::new(),
            shared: dead.shared,
            place: dead.place,
            stopped_by_sharers: dead.stopped_by_sharers,
            looked: Scn::ZERO,
            purge: Vec::new(),
            scratch: Vec::new(),
        }
    }

    pub fn manager(&self) -> &Arc<TxnManager> {
        &self.manager
    }

    /// Sets how the transaction that is about to start sees others, and does nothing else. The
    /// transaction gets its snapshot from its first statement and its number from its first change.
    pub fn begin(&mut self, isolation: Isolation) {
        assert!(
            self.id.is_none() && self.scn.is_none(),
            "invariant: a transaction begins when the one before has ended"
        );
        if self.tables.is_empty() {
            self.locker.begins();
        }
        self.isolation = isolation;
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The transaction's id, or [`TxnId::NONE`] until the first change.
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// The number of the next undo record: the limit of a snapshot that sees all changes made so
    /// far.
    pub fn undo_no(&self) -> u32 {
        self.undo_no
    }

    /// Whether anything has been logged that a rollback or commit has to deal with.
    pub fn has_changes(&self) -> bool {
        self.logged
    }

    /// The stamp that this transaction puts on its changes. It must have a number.
    pub fn stamp(&self) -> Stamp {
        Stamp::txn(self.id)
    }

    /// Gives the transaction a number if it has none. May write the control file.
    pub fn ensure_id(&mut self) -> Result<TxnId> {
        if self.id.is_none() {
            let number = self
                .manager
                .numbers
                .draw(&self.manager.visibility.words, |chunks| {
                    self.manager.cover_status(chunks)
                })?;
            self.id = TxnId::new(self.manager.config.instance, number);
            self.active.begin(self.id);
            wait::session::set_transaction(self.id.0);
        }
        Ok(self.id)
    }

    // ---- snapshots ----

    /// The snapshot of a statement that starts now. It stays registered until
    /// [`Transaction::end_statement`], or to the transaction's end under REPEATABLE READ.
    #[inline]
    pub fn statement(&mut self) -> Snapshot {
        let scn = match (self.isolation, self.scn) {
            (Isolation::RepeatableRead, Some(scn)) => scn,
            _ => {
                self.manager.cluster.look();
                *self.scn.insert(self.slot.take())
            }
        };
        Snapshot {
            scn,
            own: self.id,
            own_limit: self.undo_no,
        }
    }

    /// A snapshot of now, whatever the isolation level is. It serves a statement that defines what
    /// all rows must meet, or all that an index must have. The registered snapshot is
    /// [`Transaction::statement`]'s, which is no newer.
    pub fn newest(&mut self) -> Snapshot {
        let registered = self.statement();
        self.manager.cluster.look();
        Snapshot {
            scn: self.manager.clock.now(),
            ..registered
        }
    }

    /// Whether a snapshot is registered: that of a statement under way, or the transaction's.
    pub fn has_snapshot(&self) -> bool {
        self.scn.is_some()
    }

    /// The snapshot of a statement within another one, whose own stays registered. Under READ
    /// COMMITTED it is one of now, which is no older.
    pub fn within(&mut self) -> Snapshot {
        let (Some(scn), Isolation::ReadCommitted) = (self.scn, self.isolation) else {
            return self.statement();
        };
        self.manager.cluster.look();
        Snapshot {
            scn: self.manager.clock.now().max(scn),
            own: self.id,
            own_limit: self.undo_no,
        }
    }

    /// Ends the statement: gives up its place in a line and its READ COMMITTED snapshot.
    #[inline]
    pub fn end_statement(&mut self) {
        self.leave_place();
        if self.isolation == Isolation::ReadCommitted && self.scn.take().is_some() {
            self.slot.clear();
        }
    }

    /// Keeps `snapshot`, the present one of a statement or transaction, registered beyond that.
    pub fn hold(&self, snapshot: Snapshot) -> Result<HeldSnapshot> {
        assert!(
            self.scn.is_some_and(|scn| scn <= snapshot.scn),
            "invariant: a snapshot that is held is registered already"
        );
        hold(&self.manager, snapshot)
    }

    // ---- changes ----

    /// Makes room for an undo record with a payload of at most `max_payload` bytes, which are at
    /// most [`UNDO_MAX_PAYLOAD`]. Waits for log space: the caller must hold no latch.
    pub fn prepare_undo(&mut self, max_payload: usize) -> Result<UndoSlot> {
        assert!(
            max_payload <= UNDO_MAX_PAYLOAD,
            "invariant: an undo payload is at most {UNDO_MAX_PAYLOAD} bytes, not {max_payload}"
        );
        let id = self.ensure_id()?;
        if self.undo_no == u32::MAX {
            return Err(Error::TooManyChanges(id));
        }
        let block = match self.undo.take() {
            Some(block) if block.fits(max_payload) => block,
            full => {
                drop(full);
                self.manager
                    .undo
                    .take(max_payload, || self.manager.horizon())?
            }
        };
        let ptr = self.undo.insert(block).next();
        self.manager.cache.reserve()?;
        Ok(UndoSlot { ptr, max_payload })
    }

    /// Logs and applies `changes` and the undo in one record. Never waits. At most one of the
    /// blocks may be one that others want; the record formats the rest. Returns the record's SCN,
    /// which the changed blocks have now.
    pub fn log(&mut self, slot: UndoSlot, undo: &Undo<'_>, changes: &mut [Change<'_, '_>]) -> Scn {
        assert!(
            undo.payload.len() <= slot.max_payload,
            "invariant: undo fits the room prepared for it"
        );
        // From this record on, the sessions that wait for the row that this session waited for wait
        // for this transaction.
        self.leave_row();
        let block = self.undo.as_mut().expect("invariant: undo is prepared");
        assert!(
            block.next() == slot.ptr,
            "invariant: a slot is used once, and before the next is prepared"
        );
        if !self
            .extents
            .last()
            .is_some_and(|e| Arc::ptr_eq(e, &block.extent))
        {
            block.extent.hold();
            self.extents.push(block.extent.clone());
        }
        let view = UndoView {
            txn: self.id,
            prev: self.head,
            undo_no: self.undo_no,
            object: undo.object,
            kind: undo.kind,
            payload: undo.payload,
        };
        self.scratch.clear();
        append_payload(slot.ptr, &view, &mut self.scratch);
        let mut guard = block.pin.write();
        let append = Change {
            guard: &mut guard,
            op: Op::UndoAppend,
            object: ObjectId::NONE,
            payload: &self.scratch,
        };
        let header = RecordHeader {
            txn: self.id,
            undo_head: slot.ptr,
        };
        let active = &self.active;
        let appended = self
            .manager
            .cache
            .change_with(header, changes, &mut [append], |_, _| {
                active.set_head(slot.ptr)
            });
        drop(guard);
        block.added(undo.payload.len());
        self.head = slot.ptr;
        self.undo_no += 1;
        self.logged = true;
        active.records.fetch_add(1, Ordering::Relaxed);
        wait::stat::add(Stat::UndoBytes, self.scratch.len() as u64);
        appended.scn
    }

    /// Waits for log space, before a change that needs no undo. The caller must hold no latch.
    pub fn reserve_log(&self) -> Result<()> {
        Ok(self.manager.cache.reserve()?)
    }

    /// Logs the step of a rollback that completes one undo record. `prev` is that record's `prev`.
    pub fn log_compensation(&mut self, prev: UndoPtr, changes: &mut [Change<'_, '_>]) -> Scn {
        let header = RecordHeader {
            txn: self.id,
            undo_head: prev,
        };
        let active = &self.active;
        let appended = self
            .manager
            .cache
            .change(header, changes, |_, _| active.set_head(prev));
        self.head = prev;
        appended.scn
    }

    /// Logs a change under the transaction's id that leaves its undo as it is. It is a step of a
    /// rollback that is not the last for its undo record, or a change that is not undone.
    pub fn log_partial(&mut self, changes: &mut [Change<'_, '_>]) -> Scn {
        let header = RecordHeader {
            txn: self.id,
            undo_head: self.head,
        };
        self.logged = true;
        self.manager.cache.change(header, changes, |_, _| ()).scn
    }

    /// Remembers that the block has something to purge once this transaction is committed and below
    /// the horizon.
    pub fn hint_purge(&mut self, object: ObjectId, dba: Dba) {
        let known = self.purge.iter().rev().take(8).any(|h| *h == (object, dba));
        if !known && self.purge.len() < purge::PER_TRANSACTION {
            self.purge.push((object, dba));
        }
    }

    // ---- ends ----

    /// Commits. Returns when the commit is durable, published and known to all instances. The
    /// result is the SCN at which it became visible, or [`Scn::ZERO`] if nothing was changed. An
    /// error means that the log failed and the instance must stop: nobody knows the outcome.
    pub fn commit(&mut self) -> Result<Scn> {
        if !self.logged {
            self.abandon_number();
            self.finish(Scn::ZERO, None);
            return Ok(Scn::ZERO);
        }
        self.manager.cache.reserve()?;
        let (id, manager) = (self.id, &self.manager);
        let header = RecordHeader {
            txn: id,
            undo_head: self.head,
        };
        let appended = manager.cache.mark(header, Op::Commit, &[], |at, group| {
            group.push(id);
            manager.visibility.committing(id, at.batch);
            self.active.end();
        });
        // If other instances are up, the client is answered when each of them knows of the commit.
        let hasty = seam::planted("a commit is answered before others know of it");
        let among_others = manager.cluster.is_active();
        let to_be_known = among_others && !hasty;
        let flushing_ns = among_others.then(interconnect::now_ns);
        let known = manager.cache.redo().flush_commit(appended, to_be_known)?;
        let TxnState::Committed(e) = manager.state(id) else {
            panic!("invariant: {id:?} is committed once its commit record is durable");
        };
        if !self.purge.is_empty() {
            manager.purge.push(e, self.purge.drain(..));
        }
        wait::stat::add(Stat::UserCommits, 1);
        self.finish(e, flushing_ns);
        // By now row locks are free and others see the commit.
        if !known && !hasty {
            self.manager.cluster.wait_for_group(appended.batch, e);
        }
        Ok(e)
    }

    /// Undoes everything and ends the transaction. After an error the transaction is still there,
    /// to be rolled back again.
    pub fn rollback(&mut self, handler: &dyn UndoHandler) -> Result<()> {
        self.undo_down_to(0, handler)?;
        if self.logged {
            self.manager.cache.reserve()?;
            let header = RecordHeader {
                txn: self.id,
                undo_head: UndoPtr::NONE,
            };
            self.manager
                .cache
                .mark(header, Op::RollbackEnd, &[], |_, _| self.active.end());
            wait::stat::add(Stat::UserRollbacks, 1);
        }
        self.abandon_number();
        self.finish(self.manager.clock.now(), None);
        Ok(())
    }

    /// A point that [`Transaction::rollback_to`] can come back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            undo_no: self.undo_no,
            tables: self.tables.len(),
            names: self.names.len(),
            shared: self.shared.len(),
        }
    }

    /// Undoes all changes since the savepoint, and gives back the locks taken since. Sessions of
    /// any instance that wait for this transaction look again at what they wait for. After an error
    /// the whole transaction must roll back.
    pub fn rollback_to(&mut self, savepoint: &Savepoint, handler: &dyn UndoHandler) -> Result<()> {
        let undone = self.undo_down_to(savepoint.undo_no, handler)?;
        if self.unshare(savepoint.shared) || undone {
            self.active.set_undone(self.manager.clock.tick());
            if !seam::planted("a rollback to a savepoint tells nobody") {
                self.manager.let_waiters_go(self.id, None);
            }
        }
        self.unlock_since(savepoint.tables, savepoint.names);
        Ok(())
    }

    /// Undoes, newest first, every change with an undo number of `first` or above. False: there was
    /// none.
    fn undo_down_to(&mut self, first: u32, handler: &dyn UndoHandler) -> Result<bool> {
        let before = self.head;
        // Changes that were taken back already have numbers, too: there may be less to do.
        let changes = u64::from(self.undo_no.saturating_sub(first));
        let mut undone = Counted::new("Transaction Rollback", Target::Nothing, changes, "Changes");
        while !self.head.is_none() {
            let at = self.head;
            let record = match self.manager.undo_record(at) {
                Err(Error::SnapshotTooOld(_)) => {
                    return Err(Error::Corrupt(format!(
                        "undo of the active transaction {:?} at {at:?} is gone",
                        self.id
                    )));
                }
                other => other?,
            };
            if record.txn != self.id {
                return Err(Error::Corrupt(format!(
                    "undo at {at:?} belongs to {:?}, not {:?}",
                    record.txn, self.id
                )));
            }
            if record.undo_no < first {
                break;
            }
            handler
                .undo(self, &record, at)
                .map_err(|source| Error::Rollback { at, source })?;
            // The handler has logged the step, or there was nothing to do. After a crash it finds
            // again that there is nothing to do.
            assert!(
                self.head == at || self.head == record.prev,
                "invariant: a rollback goes from record to record"
            );
            self.head = record.prev;
            undone.step();
        }
        Ok(self.head != before)
    }

    /// Sets the status word to aborted, for a transaction of which nothing is left.
    fn abandon_number(&mut self) {
        if !self.id.is_none() {
            let now = self.manager.clock.now();
            self.manager
                .visibility
                .words
                .set(self.id.number(), Status::Aborted(now));
            self.active.end();
        }
    }

    /// Gives back what the ended transaction held and prepares for the next one. The status word
    /// says already how it ended. No snapshot at or above `end` needs its undo. `flushing_ns` is
    /// when it began to wait for the log, if another instance may want to know.
    fn finish(&mut self, end: Scn, flushing_ns: Option<u64>) {
        self.extents.drain(..).for_each(|extent| extent.end(end));
        self.unshare(0);
        if !self.id.is_none() {
            self.manager.let_waiters_go(self.id, flushing_ns);
            wait::session::set_transaction(0);
        }
        self.unlock_transaction();
        if self.scn.take().is_some() {
            self.slot.clear();
        }
        self.id = TxnId::NONE;
        self.head = UndoPtr::NONE;
        self.undo_no = 0;
        self.logged = false;
        self.purge.clear();
        self.isolation = Isolation::ReadCommitted;
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if let Some(block) = self.undo.take() {
            self.manager.undo.give_back(block);
        }
        self.unlock_session();
        if self.logged {
            let dead = Dead {
                id: self.id,
                head: self.head,
                undo_no: self.undo_no,
                locker: self.locker.clone(),
                active: self.active.clone(),
                extents: std::mem::take(&mut self.extents),
                tables: std::mem::take(&mut self.tables),
                names: std::mem::take(&mut self.names),
                shared: std::mem::take(&mut self.shared),
                place: self.place.take(),
                stopped_by_sharers: self.stopped_by_sharers,
            };
            self.manager.dead.lock().list.push(dead);
            return;
        }
        self.abandon_number();
        self.finish(Scn::ZERO, None);
        self.manager.active.unregister(&self.active);
        self.manager.enqueues.unregister(&self.locker);
    }
}
