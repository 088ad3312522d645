//! What a tree needs from the layers below, as one trait: blocks under latches, logged changes,
//! fresh blocks, verdicts.
//!
//! The instance's implementation is [`live::Live`](super::live). The tests run the same tree over
//! plain memory, where latches can be made to fail and every change is checked against its replay.
//!
//! **Invariant (R7).** `read`, `write`, `write_new`, `fresh`, `reserve`, `prepare` and `alloc` may
//! wait and are called with no latch held. Everything else never waits for anything but a latch,
//! and the `try_` forms not even for that.
//!
//! Among instances, a block that nobody has latched may be taken away at any time. A `try_` form
//! then fails until the form that waits brings the block again, in the needed mode (`read` is not
//! enough for `try_write`). A caller whose try fails lets go of everything and does that.

use block::{BlockBuf, Dba, LogPos, Op, RowId, Scn, Stamp};

use crate::Result;

/// What is known of the transaction that delete-marked an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Committed, and no snapshot can see the row as it was before: the entry may go.
    Purgeable,
    /// Committed, or the asking transaction itself: the entry no longer stands for a row.
    Dead,
    /// Undecided: another transaction, which may still roll back.
    Undecided,
}

/// The kinds of an index's undo records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum UndoKind {
    Insert = 200,
    Revive = 201,
    Mark = 202,
    // 203 is not used again: it was an insertion of several entries, each with its whole key.
    InsertRun = 204,
}

impl UndoKind {
    pub fn from_u16(v: u16) -> Option<UndoKind> {
        Some(match v {
            200 => UndoKind::Insert,
            201 => UndoKind::Revive,
            202 => UndoKind::Mark,
            204 => UndoKind::InsertRun,
            _ => return None,
        })
    }
}

/// The part of one block in a record without undo.
pub struct Step<'g, W> {
    pub guard: &'g mut W,
    pub op: Op,
    pub payload: &'g [u8],
}

/// The progress of a rollback, as a step of it is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// After this step the undo record is dealt with.
    Last,
    /// More steps are to come: after a crash the record is undone again.
    More,
}

/// A block for a tree to use, to which nothing leads and which nobody else was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spare {
    /// A block that was never used.
    New(Dba),
    /// A block that was of this tree before, and is a dead one until it is formatted again.
    /// Everyone who comes by sees it as dead. An instance goes on giving out the blocks of its last
    /// extent behind the last formatted one, and that may be this block.
    Used(Dba),
}

impl Spare {
    pub fn dba(self) -> Dba {
        match self {
            Spare::New(dba) | Spare::Used(dba) => dba,
        }
    }
}

pub trait Store: Sync {
    type Read<'s>: std::ops::Deref<Target = BlockBuf>
    where
        Self: 's;
    type Write<'s>: std::ops::Deref<Target = BlockBuf>
    where
        Self: 's;
    /// A spare block in memory, not latched yet.
    type Fresh<'s>
    where
        Self: 's;
    /// The transaction that changes entries.
    type Txn;
    /// Room for one undo record.
    type Slot;
    /// A place in a transaction's undo, while it is rolled back.
    type Undoing;

    fn read(&self, dba: Dba) -> Result<Self::Read<'_>>;
    fn write(&self, dba: Dba) -> Result<Self::Write<'_>>;
    /// Latches a block shared, only if it is in memory, in the mode that is needed, and its latch
    /// free.
    fn try_read(&self, dba: Dba) -> Option<Self::Read<'_>>;
    fn try_write(&self, dba: Dba) -> Option<Self::Write<'_>>;
    /// Latches exclusively a block that the caller was given and whose contents do not matter.
    fn write_new(&self, dba: Dba) -> Result<Self::Write<'_>>;
    fn fresh(&self, block: Spare) -> Result<Self::Fresh<'_>>;
    /// Latches a fresh block while others are latched, only if that needs no waiting.
    fn try_latch<'s>(&'s self, fresh: &Self::Fresh<'s>) -> Option<Self::Write<'s>>;

    /// Waits until there is room for redo: `block::record::MAX_RECORD` bytes. That is more than all
    /// that is logged under one hold of latches (a split root with three blocks, or the small steps
    /// of a purge, a shorter prefix and an insertion).
    fn reserve(&self) -> Result<()>;
    /// Reserves room for redo as `reserve` does, for a thread that must not wait. False if it would
    /// have to.
    fn try_reserve(&self) -> bool;
    /// Logs and applies a change that is never undone, as one record. Returns the position up to
    /// which the log must be durable for the change to survive a crash.
    fn change(&self, steps: &mut [Step<'_, Self::Write<'_>>]) -> Result<LogPos>;

    /// Waits until there is room for redo, as `reserve` does, and for an undo record.
    fn prepare(&self, txn: &mut Self::Txn, undo_len: usize) -> Result<Self::Slot>;
    /// Logs and applies a change of entries with its undo, as one record.
    fn log(
        &self,
        txn: &mut Self::Txn,
        slot: Self::Slot,
        kind: UndoKind,
        undo: &[u8],
        step: Step<'_, Self::Write<'_>>,
    ) -> Result<()>;
    /// Logs and applies a step of a rollback.
    fn compensate(
        &self,
        txn: &mut Self::Txn,
        at: &Self::Undoing,
        progress: Progress,
        step: Step<'_, Self::Write<'_>>,
    ) -> Result<()>;
    fn stamp(&self, txn: &Self::Txn) -> Stamp;
    /// What is known of the transaction behind `stamp`. `txn` is the asking transaction, if there
    /// is one.
    fn fate(&self, stamp: Stamp, txn: Option<&Self::Txn>) -> Fate;

    /// A block of the tree's segment that nobody else has.
    fn alloc(&self) -> Result<Dba>;
    fn now(&self) -> Scn;
    fn horizon(&self) -> Scn;
}

/// An entry that stands in the way of a unique key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub rid: RowId,
    /// The stamp of the transaction that marked the entry, if it is marked.
    pub marked: Option<Stamp>,
}
