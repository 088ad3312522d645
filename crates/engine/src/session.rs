//! A session's transactions and locks.

use crate::written::{self, Written, WrittenRows};
use crate::{Engine, Error, Result};
use block::{LogPos, ObjectId, Scn, TxnId};
use fusion::sequences::Mark;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use txn::{Isolation, Level, NameClass, Snapshot, Transaction};

/// The modes of table locks that PostgreSQL has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
}

impl LockMode {
    pub(crate) fn enqueue(self) -> txn::LockMode {
        match self {
            LockMode::AccessShare => txn::LockMode::AS,
            LockMode::RowShare => txn::LockMode::SS,
            LockMode::RowExclusive => txn::LockMode::SX,
            LockMode::ShareUpdateExclusive => txn::LockMode::SUX,
            LockMode::Share => txn::LockMode::S,
            LockMode::ShareRowExclusive => txn::LockMode::SSX,
            LockMode::Exclusive => txn::LockMode::EX,
            LockMode::AccessExclusive => txn::LockMode::X,
        }
    }
}

/// What to do about a row that another transaction has locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockWait {
    Wait,
    NoWait,
    SkipLocked,
}

/// The key of an advisory lock, in one of the two spaces of keys that these locks have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdvisoryKey {
    One(i64),
    Two(i32, i32),
}

impl AdvisoryKey {
    fn parts(self) -> (u64, u64) {
        match self {
            AdvisoryKey::One(k) => (k as u64, 0),
            AdvisoryKey::Two(a, b) => ((a as u32 as u64) << 32 | b as u32 as u64, 1),
        }
    }
}

/// A point that a transaction can roll back to.
#[derive(Clone, Copy)]
pub struct Savepoint {
    point: txn::Savepoint,
    drops: usize,
    written: written::Mark,
}

/// The gate between a session's rows and its client. A commit that the rows show must be known to
/// all members before the client sees them.
#[derive(Clone)]
pub struct ReplyGate {
    engine: Arc<Engine>,
    /// The field of the same name in [`Session`].
    shown: Arc<AtomicU64>,
}

impl ReplyGate {
    /// Returns once every commit that the session may have seen has been acknowledged by all
    /// members. That is a single load if there is nothing to wait for. Called by the session's
    /// thread, with no latch held.
    #[inline]
    pub fn pass(&self) {
        let shown = Scn(self.shown.load(Relaxed)).max(self.engine.txns.shown());
        self.engine.txns.gate(shown);
    }
}

/// The cost of walks through indexes, without the rows that they led to.
#[derive(Clone, Copy, Default, Debug)]
pub struct IndexTimes {
    pub entries: u64,
    pub gets: u64,
    pub time: Duration,
}

impl std::ops::AddAssign for IndexTimes {
    fn add_assign(&mut self, other: IndexTimes) {
        self.entries += other.entries;
        self.gets += other.gets;
        self.time += other.time;
    }
}

/// The way of one client to the engine. One thread at a time uses it.
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) txn: Transaction,
    active: bool,
    /// Whether the transaction has taken a snapshot or changed something. If so, its isolation
    /// level is fixed.
    used: bool,
    /// Whether the statement has looked at versions newer than its snapshot. If so, what it tells
    /// rests on all that is committed by now.
    pub(crate) saw_newest: bool,
    /// Segments whose space is given back once the transaction is committed.
    pub(crate) drops: Vec<ObjectId>,
    /// Where the log must be durable before the end of the transaction is reported: behind its
    /// draws from sequences.
    pub(crate) durable: LogPos,
    /// Marks behind values that other instances have drawn for the transaction. They must be
    /// durable before it commits.
    pub(crate) marks: Vec<(crate::SequenceDef, Mark)>,
    pub(crate) scratch: Vec<u8>,
    /// Of the transaction, or of the one before until another one begins.
    pub(crate) written: WrittenRows,
    lock_timeout: Option<Duration>,
    nesting: Nesting,
    pub(crate) index_times: Option<IndexTimes>,
    /// The highest SCN of a commit that the session may have shown. Commits that its thread has
    /// shown since this was last raised are not in it. Only the session's thread writes it.
    shown: Arc<AtomicU64>,
}

/// What statements are within. See [`Session::enter`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Within {
    /// Nothing: the statements are the client's own.
    Client,
    /// A statement that has no snapshot.
    Block,
    /// A statement whose snapshot stays registered.
    Statement,
}

/// The statements that run now, one after the other, within the same one.
#[derive(Clone, Copy, Debug)]
pub struct Nesting {
    within: Within,
    /// What the one that runs sees, if it has a snapshot.
    sees: Option<Snapshot>,
    /// What all of them see, if they see what the one around them does.
    fixed: Option<Snapshot>,
}

impl Nesting {
    /// The client's own statements.
    pub fn of_client() -> Nesting {
        Nesting {
            within: Within::Client,
            sees: None,
            fixed: None,
        }
    }
}

/// What statements see that are within another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// What there is when each begins, and what the one around it has changed so far.
    Now,
    /// What the one around them sees, of its own changes too. If that has no snapshot, it is `Now`.
    Around,
}

impl Engine {
    pub fn session(self: &Arc<Self>) -> Result<Session> {
        Ok(Session {
            engine: self.clone(),
            txn: Transaction::new(&self.txns)?,
            active: false,
            used: false,
            saw_newest: false,
            drops: Vec::new(),
            durable: LogPos(0),
            marks: Vec::new(),
            scratch: Vec::new(),
            written: WrittenRows::default(),
            lock_timeout: None,
            nesting: Nesting::of_client(),
            index_times: None,
            shown: Arc::default(),
        })
    }
}

impl Session {
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn begin(&mut self, isolation: Isolation) -> Result<()> {
        if self.active {
            // If the rollback of the transaction before has failed, it is done first, or this
            // fails, too.
            self.rollback()?;
        }
        self.written.clear();
        self.txn.begin(isolation);
        (self.active, self.used) = (true, false);
        Ok(())
    }

    /// The isolation level of the transaction; `None` outside one.
    pub fn isolation(&self) -> Option<Isolation> {
        self.active.then(|| self.txn.isolation())
    }

    /// Changes the level of a transaction that is not settled.
    pub fn set_isolation(&mut self, isolation: Isolation) {
        assert!(
            !self.used,
            "invariant: the level changes before the first snapshot"
        );
        self.txn.begin(isolation);
    }

    /// Whether the transaction has begun its work: its isolation level stays as it is.
    pub fn is_settled(&self) -> bool {
        self.used
    }

    /// A query begins: the isolation level stays as it is.
    pub fn settle(&mut self) {
        self.used = true;
    }

    /// Sets how long the session waits for a lock of any kind from now on; `None`: for ever.
    pub fn set_lock_timeout(&mut self, timeout: Option<Duration>) {
        self.lock_timeout = timeout;
    }

    /// The patience of a wait for a lock that begins now.
    pub(crate) fn lock_wait(&self) -> txn::LockWait {
        match self.lock_timeout {
            Some(timeout) => txn::LockWait::Until(seam::now() + timeout),
            None => txn::LockWait::Forever,
        }
    }

    pub fn in_transaction(&self) -> bool {
        self.active
    }

    /// Commits. Rolls back instead if values that other instances have drawn for the transaction
    /// cannot be made durable. The commit is durable when this returns.
    ///
    /// The space of segments dropped in the transaction is given back afterwards. If that fails,
    /// the commit has not failed: the next start finds the space that nobody owns
    /// ([`Engine::drop_orphans`]).
    pub fn commit(&mut self) -> Result<()> {
        if let Err(e) = self.secure_draws() {
            self.rollback()?;
            return Err(e);
        }
        self.leave_statement();
        self.txn.commit()?;
        self.flush_draws()?;
        self.pass_gate();
        self.active = false;
        wait::session::set_transaction(0);
        for object in std::mem::take(&mut self.drops) {
            self.engine.forget(object);
            if let Err(e) = self.engine.space.drop_segment(object) {
                tracing::warn!(
                    "the space of dropped object {} comes back at the next start: {e}",
                    object.0
                );
            }
        }
        Ok(())
    }

    pub fn rollback(&mut self) -> Result<()> {
        self.end_statement();
        let engine = self.engine.clone();
        self.txn.rollback(&*engine)?;
        self.marks.clear();
        self.drops.clear();
        self.written.clear();
        self.active = false;
        wait::session::set_transaction(0);
        self.flush_draws()
    }

    /// Announces the change of the dictionary by a transaction. It is called before that
    /// transaction commits, and before this instance takes its changes over. From here on other
    /// instances' pictures of the dictionary are stale. They are read again when the commit is
    /// published. May wait for a session that reads the dictionary.
    pub fn dictionary_changes(&mut self) -> Result<()> {
        Ok(self.txn.dictionary_changes()?)
    }

    fn flush_draws(&mut self) -> Result<()> {
        let durable = std::mem::take(&mut self.durable);
        if durable > self.engine.redo.durable() {
            self.engine.redo.flush_to(durable)?;
        }
        Ok(())
    }

    pub fn savepoint(&mut self) -> Result<Savepoint> {
        Ok(Savepoint {
            point: self.txn.savepoint(),
            drops: self.drops.len(),
            written: self.written.mark(),
        })
    }

    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.end_statement();
        let engine = self.engine.clone();
        self.txn.rollback_to(&savepoint.point, &*engine)?;
        self.drops.truncate(savepoint.drops);
        self.written.back_to(savepoint.written);
        Ok(())
    }

    /// Forgets a savepoint. The changes after it stay.
    pub fn release(&mut self, savepoint: &Savepoint) {
        self.written.release(savepoint.written);
    }

    /// The rows that the transaction has written so far, or that the one before has, until another
    /// one begins.
    pub fn written(&self) -> &[Written] {
        self.written.rows()
    }

    /// The rows of a table were counted as the transaction sees them: what it has inserted and
    /// deleted by now is among them, and adds nothing to them when it commits.
    pub fn live_rows_counted(&mut self, object: ObjectId) {
        let live = self.written.live(object);
        self.written.add(object, live.saturating_neg(), 0);
    }

    pub fn transaction_id(&mut self) -> Result<TxnId> {
        self.used = true;
        let id = self.txn.ensure_id()?;
        wait::session::set_transaction(id.0);
        Ok(id)
    }

    /// The snapshot of the statement that begins. It is registered until
    /// [`Session::end_statement`].
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.used = true;
        let snapshot = match (self.nesting.fixed, self.nesting.within) {
            (Some(fixed), _) => fixed,
            (None, Within::Statement) => self.txn.within(),
            (None, Within::Client | Within::Block) => self.txn.statement(),
        };
        self.nesting.sees = Some(snapshot);
        Ok(snapshot)
    }

    /// A statement goes on that was interrupted, with a snapshot that its owner keeps registered
    /// until [`Session::end_statement`]: what is within it sees what it does.
    pub fn go_on(&mut self, snapshot: Snapshot) {
        self.nesting.sees = Some(snapshot);
    }

    /// Statements begin that are within the one that runs now: their end is not its end, and
    /// nothing of them is told to the client before that. What they are within so far, to be given
    /// to [`Session::leave`].
    pub fn enter(&mut self, sees: Sees) -> Nesting {
        let within = match self.txn.has_snapshot() {
            true => Within::Statement,
            false => Within::Block,
        };
        let fixed = match (sees, within) {
            // What is around may itself be an expression of a function, which has no snapshot.
            (Sees::Around, _) => self.nesting.sees.or(self.nesting.fixed),
            (Sees::Now, _) => None,
        };
        let now = Nesting {
            within,
            sees: None,
            fixed,
        };
        std::mem::replace(&mut self.nesting, now)
    }

    /// The statements within the one that runs now are over.
    pub fn leave(&mut self, outer: Nesting) {
        if self.nesting.within == Within::Block {
            self.txn.end_statement();
        }
        self.nesting = outer;
    }

    /// The statements within the one around them see what there is now, also under REPEATABLE READ.
    pub fn see_newest(&mut self) -> Result<()> {
        self.nesting.fixed = Some(self.newest_snapshot()?);
        Ok(())
    }

    /// A snapshot of now, also under REPEATABLE READ. Definitions are checked against the rows as
    /// they are now.
    pub fn newest_snapshot(&mut self) -> Result<Snapshot> {
        self.used = true;
        Ok(match self.nesting.within {
            Within::Statement if self.txn.isolation() == Isolation::ReadCommitted => {
                self.txn.within()
            }
            _ => self.txn.newest(),
        })
    }

    /// The gate to be passed before anything leaves that this session's statements have read.
    pub fn reply_gate(&self) -> ReplyGate {
        ReplyGate {
            engine: self.engine.clone(),
            shown: self.shown.clone(),
        }
    }

    /// Ends the statement, so that its reply may leave. Returns once every instance has heard of
    /// the commits that the reply shows; one within another statement has no reply. May be called
    /// again.
    pub fn end_statement(&mut self) {
        self.leave_statement();
        if self.nesting.within == Within::Client {
            self.pass_gate();
        }
    }

    /// Ends the statement; its reply may not leave yet.
    fn leave_statement(&mut self) {
        cache::give_back_kept();
        self.nesting.sees = None;
        if self.nesting.within != Within::Statement {
            self.txn.end_statement();
        }
        let shown = match std::mem::take(&mut self.saw_newest) {
            true => self.engine.scn(),
            false => self.engine.txns.shown(),
        };
        self.raise_shown(shown);
    }

    fn raise_shown(&self, to: Scn) {
        self.shown
            .store(self.shown.load(Relaxed).max(to.0), Relaxed);
    }

    fn pass_gate(&self) {
        self.engine.txns.gate(Scn(self.shown.load(Relaxed)));
    }

    /// Keeps the statement's snapshot registered for a cursor or a worker. Only the worker's own
    /// thread knows what its verdicts show. So the session counts as having shown all that the
    /// snapshot sees.
    pub fn hold_snapshot(&self, snapshot: &Snapshot) -> Result<txn::HeldSnapshot> {
        self.raise_shown(snapshot.scn);
        Ok(self.txn.hold(*snapshot)?)
    }

    /// Locks a table until the transaction ends. Without `wait`, the error is
    /// [`Error::LockNotAvailable`] if the lock is not free.
    pub fn lock_table(&mut self, object: ObjectId, mode: LockMode, wait: bool) -> Result<()> {
        let how = if wait {
            self.lock_wait()
        } else {
            txn::LockWait::NoWait
        };
        let locked = self.txn.lock_table(object, mode.enqueue(), how);
        locked.map_err(not_available)
    }

    /// How many table locks the transaction holds: a mark for [`Session::unlock_table`].
    pub fn table_locks(&self) -> usize {
        self.txn.table_locks()
    }

    /// Gives back the locks on one table that were taken after the mark: a name turned out to mean
    /// another table. Nothing was read or written under them, and no savepoint was set since.
    pub fn unlock_table(&mut self, object: ObjectId, mark: usize) {
        self.txn.unlock_table(object, mark);
    }

    /// Keeps other transactions from using a name until this transaction ends. The name is given by
    /// its hash.
    pub fn lock_name(&mut self, hash: u64) -> Result<()> {
        let (mode, wait) = (txn::LockMode::X, self.lock_wait());
        Ok(self
            .txn
            .lock_name(NameClass::Dictionary, hash, 0, mode, wait)?)
    }

    /// Keeps others from storing another definition of an object until the transaction ends.
    pub fn lock_definition(&mut self, object: ObjectId) -> Result<()> {
        let (mode, wait) = (txn::LockMode::X, self.lock_wait());
        // Names have 0 there, and the dictionary as a whole 1.
        const DEFINITION: u64 = 2;
        let object = u64::from(object.0);
        Ok(self
            .txn
            .lock_name(NameClass::Dictionary, object, DEFINITION, mode, wait)?)
    }

    /// Takes an advisory lock. False if it is not free and `try_only` is set.
    pub fn advisory_lock(
        &mut self,
        key: AdvisoryKey,
        shared: bool,
        transaction: bool,
        try_only: bool,
    ) -> Result<bool> {
        let (key, space) = key.parts();
        let level = if transaction {
            Level::Transaction
        } else {
            Level::Session
        };
        let how = if try_only {
            txn::LockWait::NoWait
        } else {
            self.lock_wait()
        };
        Ok(self.txn.advisory_lock(key, space, shared, level, how)?)
    }

    pub fn advisory_unlock(&mut self, key: AdvisoryKey, shared: bool) -> bool {
        let (key, space) = key.parts();
        self.txn.advisory_unlock(key, space, shared)
    }

    /// Holds an object until the session ends, in whichever way: when its instance dies, too.
    /// False if another session holds it.
    pub fn hold_object(&mut self, object: ObjectId) -> Result<bool> {
        Ok(self.txn.hold_object(object.0.into())?)
    }

    pub fn advisory_unlock_all(&mut self) {
        self.txn.advisory_unlock_all();
    }
}

pub(crate) fn not_available(e: txn::Error) -> Error {
    match e {
        txn::Error::LockNotAvailable(_) => Error::LockNotAvailable,
        e => e.into(),
    }
}
