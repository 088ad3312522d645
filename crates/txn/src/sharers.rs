//! Locks on rows that sessions share: FOR SHARE and FOR KEY SHARE.
//!
//! A lock that excludes others of its kind is a stamp in the row. Shared locks have no room there.
//! Each instance knows those of its own sessions, in memory, and the row says which instances may
//! have some: its *marks* ([`block::heap::sharers`]), a bit for each of the two kinds and each
//! class of instances. A session that wants to change a row, or to lock it against others, looks at
//! the marks; where they say nothing, as on nearly every row, it has paid a comparison. Otherwise
//! it looks here, asks the instances that the marks name ([`crate::cluster`]), and waits for a
//! transaction that holds the row, if there is one, as it waits for one whose stamp is on the row.
//!
//! **Why nobody is overlooked.** A session may share a row without marking it only if it finds the
//! mark, and its instance has the row *open* for that kind of lock. It looks at both with the
//! current block latched. An instance that is asked, and has no session that holds the row so,
//! shuts the row: the next that wants to share it has to mark it again, which the block counts
//! ([`block::heap::marks`]). So if an asker has been answered "nobody", and the count is as it was
//! before the question, nobody has shared the row since who was not asked about; the asker has the
//! block latched exclusively when it compares, and puts its stamp on the row under that latch.
//! Sessions of its own instance it looks for under the latch.
//!
//! **Owns** the shared locks of this instance's sessions, and which rows are open.
//!
//! **Invariants.**
//! - A mark may be stale; it is never missing. A mark is logged before its lock counts. If an
//!   instance dies before that is durable, its sessions' locks die with it.
//! - A lock counts as long as its transaction is active. It goes with its transaction, or with a
//!   rollback to a savepoint that is older.
//! - The latch is a leaf, and is taken under frame latches. Nothing waits under it.
//! - There are at most [`MOST_HELD`] locks, and [`MOST_IDLE`] rows that are open for nobody.

use crate::Place;
use crate::{Error, LockWait, Result, Transaction, TxnState};
use block::{InstanceId, RowId, TxnId};
use seam::{HashMap, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most shared locks that the sessions of an instance have at a time: some 200 MB of memory.
pub const MOST_HELD: usize = 2 << 20;
/// The most rows that stay open when nobody holds them any more, so that the next session needs to
/// mark nothing. Those open for longest are shut first.
const MOST_IDLE: usize = 64 << 10;

/// The strengths of a lock on a row, PostgreSQL's ("Row-Level Locks" in its manual). Each excludes
/// what the weaker ones exclude.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RowLock {
    /// The row, with its key, is to stay.
    KeyShare = 0,
    /// The row is to stay as it is.
    Share = 1,
    /// The row is to be changed, but for its key.
    NoKeyUpdate = 2,
    /// The row is to be deleted, or its key changed.
    Update = 3,
}

impl RowLock {
    pub fn conflicts(self, other: RowLock) -> bool {
        let (weak, strong) = (self.min(other), self.max(other));
        match strong {
            RowLock::Update => true,
            RowLock::NoKeyUpdate => weak >= RowLock::Share,
            RowLock::Share | RowLock::KeyShare => false,
        }
    }

    /// Whether others may have it at the same time.
    pub fn is_shared(self) -> bool {
        self <= RowLock::Share
    }

    /// The marks of what shares a row and excludes this.
    #[inline]
    pub fn excluded_by(self) -> u8 {
        match self {
            RowLock::KeyShare | RowLock::Share => 0,
            RowLock::NoKeyUpdate => SHARE,
            RowLock::Update => SHARE | KEY_SHARE,
        }
    }

    /// The mark of a shared lock of an instance.
    fn mark(self, instance: InstanceId) -> u8 {
        let class = 1 << (instance.0.wrapping_sub(1) % CLASSES);
        match self {
            RowLock::KeyShare => class,
            _ => class << CLASSES,
        }
    }
}

/// The number of classes of instances. Up to so many instances each has bits of its own.
const CLASSES: u16 = 4;
/// The marks of all instances for each kind of lock.
const KEY_SHARE: u8 = 0x0f;
const SHARE: u8 = 0xf0;

/// The marks that an instance may have put on rows.
pub(crate) fn marks_of(instance: InstanceId) -> u8 {
    RowLock::KeyShare.mark(instance) | RowLock::Share.mark(instance)
}

#[derive(Default)]
struct Row {
    /// The marks that this instance need not make again.
    open: u8,
    holders: Vec<(TxnId, RowLock)>,
}

#[derive(Default)]
struct State {
    rows: HashMap<RowId, Row>,
    held: usize,
    /// Rows that nobody held when they were put here, the first ones first.
    idle: VecDeque<RowId>,
    /// For each row how many sessions want it that had to wait for somebody who shares it.
    waits: HashMap<RowId, usize>,
}

/// See the module.
pub(crate) struct Sharers {
    me: InstanceId,
    state: Mutex<State>,
    /// How many rows are in `waits`.
    waited: AtomicUsize,
}

/// What an instance says of a row.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    /// A transaction that holds the row.
    pub holder: Option<TxnId>,
    /// The instance's marks that still mean something.
    pub open: u8,
}

impl Sharers {
    pub(crate) fn new(me: InstanceId) -> Sharers {
        Sharers {
            me,
            state: Mutex::default(),
            waited: AtomicUsize::new(0),
        }
    }

    fn is_open(&self, row: RowId, lock: RowLock) -> bool {
        let state = self.state.lock();
        let mark = lock.mark(self.me);
        state.rows.get(&row).is_some_and(|r| r.open & mark != 0)
    }

    /// Adds a lock, which the transaction notes. `marks` are the row's, as the latched block has
    /// them; `fresh`: it has just been given the mark. `None` if it must be marked first. False if
    /// the transaction has such a lock already.
    fn add(
        &self,
        (row, lock): (RowId, RowLock),
        txn: TxnId,
        marks: u8,
        fresh: bool,
    ) -> Result<Option<bool>> {
        let mark = lock.mark(self.me);
        let mut state = self.state.lock();
        let open = state.rows.get(&row).map_or(0, |r| r.open);
        if marks & mark == 0 || (!fresh && open & mark == 0) {
            return Ok(None);
        }
        if state.held >= MOST_HELD {
            return Err(Error::TooManySharedRows);
        }
        let State { rows, held, .. } = &mut *state;
        let at = rows.entry(row).or_default();
        at.open |= mark;
        if at.holders.iter().any(|h| h.0 == txn && h.1 >= lock) {
            return Ok(Some(false));
        }
        at.holders.push((txn, lock));
        *held += 1;
        Ok(Some(true))
    }

    fn remove(&self, row: RowId, lock: RowLock, txn: TxnId) {
        let mut state = self.state.lock();
        let State {
            rows, held, idle, ..
        } = &mut *state;
        let at = rows
            .get_mut(&row)
            .expect("invariant: a row that is held is known");
        let holder = at.holders.iter().position(|h| *h == (txn, lock));
        at.holders
            .swap_remove(holder.expect("invariant: a lock that is given back is held"));
        *held -= 1;
        if !at.holders.is_empty() {
            return;
        }
        match at.open {
            0 => drop(rows.remove(&row)),
            _ => idle.push_back(row),
        }
        if idle.len() > MOST_IDLE
            && let Some(first) = idle.pop_front()
            && rows.get(&first).is_some_and(|r| r.holders.is_empty())
        {
            rows.remove(&first);
        }
    }

    /// A transaction of this instance other than `but` that holds the row and excludes `lock`. If
    /// there is none, the row is shut for what would exclude `lock`, save for what `but` holds.
    pub(crate) fn look(
        &self,
        (row, lock): (RowId, RowLock),
        but: TxnId,
        is_active: impl Fn(TxnId) -> bool,
    ) -> Told {
        let mut state = self.state.lock();
        let Some(at) = state.rows.get_mut(&row) else {
            return Told::default();
        };
        let against = |h: &&(TxnId, RowLock)| h.0 != but && h.1.conflicts(lock);
        // A transaction that is about to give its locks back has ended, and waiting for it would
        // not wait.
        let mut holders = at.holders.iter().filter(against);
        let holder = holders.find(|h| is_active(h.0)).map(|h| h.0);
        if holder.is_some() {
            let open = at.open;
            return Told { holder, open };
        }
        let held = at.holders.iter().filter(|h| is_active(h.0));
        let held = held.fold(0, |marks, h| marks | h.1.mark(self.me));
        at.open &= held | !lock.excluded_by();
        let open = at.open;
        if at.holders.is_empty() && open == 0 {
            state.rows.remove(&row);
        }
        Told { holder, open }
    }

    fn holds(&self, row: RowId, txn: TxnId) -> bool {
        let state = self.state.lock();
        let at = state.rows.get(&row);
        at.is_some_and(|r| r.holders.iter().any(|h| h.0 == txn))
    }

    /// A session begins to wait for somebody who shares the row, or wants the row no more.
    pub(crate) fn count_wait(&self, row: RowId, begins: bool) {
        let mut state = self.state.lock();
        let waits = state.waits.entry(row).or_default();
        match begins {
            true => *waits += 1,
            false => *waits -= 1,
        }
        if *waits == 0 {
            state.waits.remove(&row);
        }
        self.waited.store(state.waits.len(), Ordering::Relaxed);
    }

    /// Whether a session that wants the row had to wait for somebody who shares it. A session that
    /// came later need not wait for that, if its lock goes well with it.
    pub(crate) fn is_waited_for(&self, row: RowId) -> bool {
        self.waited.load(Ordering::Relaxed) != 0 && self.state.lock().waits.contains_key(&row)
    }
}

impl Transaction {
    /// Whether a row may be shared without being marked, as far as can be said without looking at
    /// the row.
    pub fn may_share_unmarked(&self, row: RowId, lock: RowLock) -> bool {
        self.manager.sharers.is_open(row, lock)
    }

    /// The marks of a row, with that for a shared lock of this instance among them.
    pub fn marked(&self, marks: u8, lock: RowLock) -> u8 {
        marks | lock.mark(self.manager.config.instance)
    }

    /// Shares a row. The current block is latched, and `marks` are the row's in it; `fresh`: they
    /// have just been set there. False: the row must be marked first.
    pub fn share(&mut self, row: RowId, lock: RowLock, marks: u8, fresh: bool) -> Result<bool> {
        let added = (self.manager.sharers).add((row, lock), self.id(), marks, fresh)?;
        if added == Some(true) {
            self.shared.push((row, lock));
        }
        if added.is_some() {
            self.leave_row();
        }
        Ok(added.is_some())
    }

    /// A transaction of this instance that shares the row and excludes `lock`, and the marks of
    /// this instance that mean something. The caller has the block latched exclusively, if no other
    /// session of this instance may come to share the row before it has put its stamp there.
    pub fn sharer_here(&self, row: RowId, lock: RowLock) -> (Option<TxnId>, u8) {
        let manager = &self.manager;
        let is_active = |txn| manager.visibility.own_state(txn) == TxnState::Active;
        let told = manager.sharers.look((row, lock), self.id(), is_active);
        (told.holder, told.open)
    }

    /// Whether other instances must be asked that have put these marks on a row.
    pub fn must_ask_sharers(&self, lock: RowLock, marks: u8) -> bool {
        self.manager.cluster.has_sharers(marks & lock.excluded_by())
    }

    /// Asks other instances as [`Transaction::sharer_here`] asks this one. May wait for them: the
    /// caller must hold no latch.
    pub fn sharer_elsewhere(
        &self,
        row: RowId,
        lock: RowLock,
        marks: u8,
    ) -> Result<(Option<TxnId>, u8)> {
        let marks = marks & lock.excluded_by();
        let told = self.manager.cluster.ask_sharers((row, lock), marks)?;
        Ok((told.holder, told.open))
    }

    /// Waits until `holder`, which shares the row, has ended or has given locks back. Then the
    /// caller looks at the row again. `has_row`: this transaction has its own stamp on the row. The
    /// caller must hold no latch.
    ///
    /// A session that has a lock on the row already stands in no line: who stands there may wait
    /// for that lock.
    pub fn wait_for_sharer(
        &mut self,
        holder: TxnId,
        row: RowId,
        has_row: bool,
        wait: LockWait,
    ) -> Result<()> {
        if has_row || self.shares(row) {
            return self.wait_out_of_line(holder, row, wait);
        }
        // Said before it stands in line, where it would be in the way of others.
        let manager = self.manager.clone();
        manager.sharers.count_wait(row, true);
        let waited = self.wait_for_row(holder, row, wait);
        let in_line = self.place.is_some_and(|at| at.0 == Place::Row(row));
        match in_line && !self.stopped_by_sharers {
            true => self.stopped_by_sharers = true,
            false => manager.sharers.count_wait(row, false),
        }
        waited
    }

    /// Whether this transaction shares the row.
    pub(crate) fn shares(&self, row: RowId) -> bool {
        !self.shared.is_empty() && self.manager.sharers.holds(row, self.id())
    }

    /// Gives back all shared locks but the first `keep`. True if there were any.
    pub(crate) fn unshare(&mut self, keep: usize) -> bool {
        let id = self.id();
        let any = self.shared.len() > keep;
        for (row, lock) in self.shared.drain(keep..) {
            self.manager.sharers.remove(row, lock, id);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Dba, FileId};

    const ME: InstanceId = InstanceId(2);

    fn row(n: u32) -> RowId {
        RowId::new(Dba::new(FileId::DATA, n), 3)
    }

    fn txn(n: u64) -> TxnId {
        TxnId::new(ME, n)
    }

    /// An asker that has been told "nobody" hears of whoever comes later by a new mark.
    #[test]
    fn a_row_that_was_shut_must_be_marked_again() {
        let sharers = Sharers::new(ME);
        let (share, marks) = ((row(1), RowLock::Share), RowLock::Share.mark(ME));
        let asked = |by| sharers.look((row(1), by), TxnId::NONE, |_| true);
        // The mark alone may be that of a former life, or of another instance of the class.
        assert_eq!(sharers.add(share, txn(1), marks, false).unwrap(), None);
        assert_eq!(sharers.add(share, txn(1), marks, true).unwrap(), Some(true));
        assert_eq!(
            sharers.add(share, txn(2), marks, false).unwrap(),
            Some(true)
        );
        assert_eq!(
            sharers.add(share, txn(2), 0, false).unwrap(),
            None,
            "unmarked"
        );
        let key = (row(1), RowLock::KeyShare);
        let all = marks | RowLock::KeyShare.mark(ME);
        assert_eq!(
            sharers.add(key, txn(3), all, false).unwrap(),
            None,
            "another kind"
        );
        assert_eq!(asked(RowLock::NoKeyUpdate).holder, Some(txn(1)));
        sharers.remove(row(1), RowLock::Share, txn(1));
        assert_eq!(asked(RowLock::NoKeyUpdate).holder, Some(txn(2)));
        sharers.remove(row(1), RowLock::Share, txn(2));
        assert_eq!(sharers.add(key, txn(3), all, true).unwrap(), Some(true));
        let told = asked(RowLock::NoKeyUpdate);
        assert_eq!((told.holder, told.open), (None, all & KEY_SHARE));
        assert_eq!(
            sharers.add(share, txn(1), all, false).unwrap(),
            None,
            "shut"
        );
        assert_eq!(
            sharers.add(key, txn(4), all, false).unwrap(),
            Some(true),
            "open"
        );
        assert_eq!(asked(RowLock::Update).holder, Some(txn(3)));
        // What a transaction holds itself is not in its way, and stays open.
        sharers.remove(row(1), RowLock::KeyShare, txn(4));
        let own = sharers.look((row(1), RowLock::Update), txn(3), |_| true);
        assert_eq!((own.holder, own.open), (None, all & KEY_SHARE));
        // One that has ended is in nobody's way before it has given its locks back.
        let ended = sharers.look((row(1), RowLock::Update), TxnId::NONE, |_| false);
        assert_eq!((ended.holder, ended.open), (None, 0));
        sharers.remove(row(1), RowLock::KeyShare, txn(3));
        assert!(sharers.state.lock().rows.is_empty());
    }

    #[test]
    fn rows_that_nobody_holds_do_not_stay_open_without_end() {
        let sharers = Sharers::new(ME);
        let marks = RowLock::KeyShare.mark(ME);
        for n in 0..MOST_IDLE as u32 + 100 {
            let key = (row(n), RowLock::KeyShare);
            assert_eq!(sharers.add(key, txn(1), marks, true).unwrap(), Some(true));
            sharers.remove(row(n), RowLock::KeyShare, txn(1));
        }
        assert!(!sharers.is_open(row(99), RowLock::KeyShare));
        assert!(sharers.is_open(row(100), RowLock::KeyShare));
        let state = sharers.state.lock();
        assert_eq!((state.rows.len(), state.idle.len()), (MOST_IDLE, MOST_IDLE));
    }

    #[test]
    fn marks_tell_kinds_and_classes_apart() {
        let all: Vec<u8> = (1..=4).map(|n| marks_of(InstanceId(n))).collect();
        assert_eq!(all, [0x11, 0x22, 0x44, 0x88]);
        assert_eq!(marks_of(InstanceId(5)), marks_of(InstanceId(1)));
        assert_eq!(RowLock::NoKeyUpdate.excluded_by() & KEY_SHARE, 0);
    }
}
