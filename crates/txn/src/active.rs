//! The active transactions and the head of each one's undo, which a checkpoint logs.
//!
//! **Invariant.** Id and head change under the log latch only, in step with the record that changes
//! them. The one exception is the first store of the id, which comes before any record. So a copy
//! taken under that latch is right for the log position at which it is taken.

use crate::local_enqueues::LockerId;
use block::{BlockError, Scn, TxnId, UndoPtr};
use seam::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The entry of a session or of a dead transaction.
pub(crate) struct Active {
    pub(crate) locker: LockerId,
    pub(crate) sid: u32,
    id: AtomicU64,
    head: AtomicU64,
    /// Undo records written, for `v$transaction`.
    pub(crate) records: AtomicU32,
    /// Milliseconds since 1970.
    pub(crate) started_ms: AtomicU64,
    /// An SCN drawn after the transaction's last rollback to a savepoint was finished; zero if
    /// there was none.
    undone: AtomicU64,
}

impl Active {
    pub(crate) fn id(&self) -> TxnId {
        TxnId(self.id.load(Ordering::Acquire))
    }
    pub(crate) fn head(&self) -> UndoPtr {
        UndoPtr(self.head.load(Ordering::Acquire))
    }
    /// Begins a transaction of which nothing is logged yet.
    pub(crate) fn begin(&self, id: TxnId) {
        let now = seam::wall_clock()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        self.started_ms
            .store(now.as_millis() as u64, Ordering::Relaxed);
        self.records.store(0, Ordering::Relaxed);
        self.undone.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.id.store(id.0, Ordering::Release);
    }
    /// Sets the head of the undo. The caller holds the log latch.
    pub(crate) fn set_head(&self, head: UndoPtr) {
        self.head.store(head.0, Ordering::Release);
    }
    /// The transaction has undone some of its changes and goes on. `at` was drawn after that.
    pub(crate) fn set_undone(&self, at: Scn) {
        self.undone.store(at.0, Ordering::SeqCst);
    }
    /// Ends the transaction. The caller holds the log latch, or the transaction has logged nothing.
    pub(crate) fn end(&self) {
        self.id.store(0, Ordering::Release);
        self.head.store(0, Ordering::Release);
    }
}

/// All entries. The latch is held while a few words of each entry are copied.
#[derive(Default)]
pub(crate) struct ActiveTable {
    entries: Mutex<Vec<Arc<Active>>>,
}

impl ActiveTable {
    pub(crate) fn register(&self, locker: LockerId, sid: u32) -> Arc<Active> {
        let active = Arc::new(Active {
            locker,
            sid,
            id: AtomicU64::new(0),
            head: AtomicU64::new(0),
            records: AtomicU32::new(0),
            started_ms: AtomicU64::new(0),
            undone: AtomicU64::new(0),
        });
        self.entries.lock().push(active.clone());
        active
    }

    pub(crate) fn unregister(&self, active: &Arc<Active>) {
        self.entries.lock().retain(|a| !Arc::ptr_eq(a, active));
    }

    /// The transactions that have undo, with their heads. The caller holds the log latch.
    pub(crate) fn with_undo(&self) -> Vec<(TxnId, UndoPtr)> {
        let entries = self.entries.lock();
        entries
            .iter()
            .map(|a| (a.id(), a.head()))
            .filter(|(id, head)| !id.is_none() && !head.is_none())
            .collect()
    }

    /// The session in which `txn` runs.
    pub(crate) fn owner(&self, txn: TxnId) -> Option<LockerId> {
        self.entries
            .lock()
            .iter()
            .find(|a| a.id() == txn)
            .map(|a| a.locker)
    }

    /// Whether the transaction has undone some of its changes since the clock showed `looked`:
    /// what a session saw of its changes then may be gone. False of a transaction that is over.
    pub(crate) fn has_undone_since(&self, txn: TxnId, looked: Scn) -> bool {
        let entries = self.entries.lock();
        let mut undone = entries.iter().filter(|a| a.id() == txn);
        undone.any(|a| a.undone.load(Ordering::SeqCst) > looked.0)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Active>> {
        self.entries
            .lock()
            .iter()
            .filter(|a| !a.id().is_none())
            .cloned()
            .collect()
    }
}

/// Entries in one marker: 16 KB of a record's 32.
pub(crate) const PER_MARKER: usize = 1024;

/// The payload of an `ActiveTransactions` marker: transaction and head, 16 bytes each.
pub(crate) fn encode(list: &[(TxnId, UndoPtr)]) -> Vec<u8> {
    list.iter()
        .flat_map(|(txn, head)| [txn.0.to_le_bytes(), head.0.to_le_bytes()].concat())
        .collect()
}

pub(crate) fn decode(payload: &[u8]) -> Result<Vec<(TxnId, UndoPtr)>, BlockError> {
    if !payload.len().is_multiple_of(16) {
        return Err(BlockError::corrupt(
            "a list of active transactions is cut short",
        ));
    }
    let u64_at = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes"));
    Ok(payload
        .chunks_exact(16)
        .map(|e| (TxnId(u64_at(&e[..8])), UndoPtr(u64_at(&e[8..]))))
        .collect())
}
