//! Heaps: rows in blocks, which are changed in place, with older versions in undo.
//!
//! **Invariants.**
//! - A row id is stable. A row that no longer fits its block leaves a head behind, whose body says
//!   where the row's bytes are (*chained*).
//! - Every change of a row is one record with its undo. A row of several pieces is written pieces
//!   first, head last. Pieces are rows of their own, with stamps and undo of their own, and never
//!   change.
//! - A slot is reused only if its row's deletion is committed below the horizon, or its insertion
//!   was rolled back (R7 and race 23b of docs/design.md: see `block::heap` for space).
//! - No latch is held while a version is looked up in undo, a piece is read, or log, undo or data
//!   space is waited for.

mod chain;
mod current;
mod free;
mod prune;
mod read;
mod scan;
mod share;
mod undo;
mod verify;
mod version;
mod write;

pub use read::{Newest, Sight};
pub use undo::{is_heap_undo, undo_block};
pub use verify::HeapReport;
pub use write::WriteOutcome;

use crate::space::Space;
use crate::space::segment::{self, Segment};
use crate::{Error, Result};
use block::heap::{self, MAX_INLINE_BODY, RowHead};
use block::ids::StampKind;
use block::{Dba, ObjectId, Op, RowId, Stamp};
use cache::{Cache, Change, RecordHeader, WriteGuard};
use free::{Fate, FreeBlocks, Scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use txn::{Transaction, TxnManager, TxnState, Undo};
use wait::{Event, Latch, LatchClass};

static FREE_BLOCKS: LatchClass = LatchClass {
    name: "heap free blocks",
    event: Event::LatchSpace,
};

/// The number of blocks under insertion at a time. Sessions spread over them.
const INSERT_POINTS: usize = 16;
/// The free bytes below which a block is not worth remembering.
const WORTHWHILE_BYTES: usize = block::BLOCK_SIZE / 5;
/// The least number of blocks looked through for room before another extent is added. It is an
/// eighth of what would be added, if that is more.
const SURVEY_BLOCKS: u32 = 256;
/// The number of blocks with deleted rows that are tried. If none of them gives the wanted room, a
/// new block is taken.
const RECLAIM_TRIES: usize = 32;
/// The unused bytes of a row's allocation from which on an update is worth a visit once it is
/// committed.
const WORTHWHILE_SLACK: usize = 512;

/// The kinds of the heap's undo records. The numbers are part of the format.
pub(crate) const UNDO_INSERT: u16 = 100;
pub(crate) const UNDO_INSERT_MANY: u16 = 101;
pub(crate) const UNDO_UPDATE: u16 = 102;
pub(crate) const UNDO_HEAD: u16 = 103;
/// The bytes of an undo payload before the old body.
pub(crate) const UNDO_ROW: usize = 8 + 17;

/// A heap as an instance uses it. There is one object per heap and instance.
pub struct Heap {
    space: Arc<Space>,
    txns: Arc<TxnManager>,
    segment: Segment,
    /// The addresses of the blocks under insertion, zero for none.
    points: [AtomicU64; INSERT_POINTS],
    free: Latch<FreeBlocks>,
}

impl Heap {
    pub fn open(space: Arc<Space>, txns: Arc<TxnManager>, object: ObjectId, header: Dba) -> Heap {
        Heap {
            space,
            txns,
            segment: Segment::new(object, header, 1),
            points: Default::default(),
            free: Latch::new(&FREE_BLOCKS, FreeBlocks::default()),
        }
    }

    pub fn object(&self) -> ObjectId {
        self.segment.object()
    }
    pub fn header(&self) -> Dba {
        self.segment.header()
    }
    /// The cache, for work on this heap's blocks.
    #[inline]
    fn cache(&self) -> &Arc<Cache> {
        wait::segment::about(self.object().0);
        self.space.cache()
    }

    /// Runs of blocks that may hold rows, which scans divide among themselves.
    pub fn block_runs(&self) -> Result<Vec<(Dba, u32)>> {
        self.segment.used(&self.space)
    }

    /// Inserts a row; `body` is what `block::row` made.
    pub fn insert(&self, txn: &mut Transaction, body: &[u8]) -> Result<RowId> {
        if body.len() <= MAX_INLINE_BODY {
            return self.insert_row(txn, 0, body);
        }
        let chain = self.write_pieces(txn, body)?;
        self.insert_row(txn, heap::CHAINED, &chain.encode())
    }

    pub(crate) fn insert_row(
        &self,
        txn: &mut Transaction,
        flags: u8,
        body: &[u8],
    ) -> Result<RowId> {
        let mut payload = Vec::with_capacity(body.len() + 24);
        let mut tried = Dba::NONE;
        loop {
            let slot = txn.prepare_undo(8)?;
            let dba = self.insert_block(tried, body.len())?;
            let mut guard = self.cache().write(dba)?;
            if !self.is_ours(&guard) || !heap::fits(&guard, body.len()) {
                tried = dba;
                continue;
            }
            let rid = RowId::new(dba, heap::next_slot(&guard));
            payload.clear();
            let head = RowHead {
                flags,
                stamp: txn.stamp(),
                undo: slot.ptr(),
            };
            heap::row_payload(rid.slot(), head, body, &mut payload);
            let undo = Undo {
                kind: UNDO_INSERT,
                object: self.object(),
                payload: &rid.0.to_le_bytes(),
            };
            let change = Change {
                guard: &mut guard,
                op: Op::HeapInsert,
                object: self.object(),
                payload: &payload,
            };
            txn.log(slot, &undo, &mut [change]);
            return Ok(rid);
        }
    }

    /// Inserts rows block by block, with one record and one undo record a block. Appends the row
    /// ids in the order of the rows.
    pub fn insert_many<B: AsRef<[u8]>>(
        &self,
        txn: &mut Transaction,
        rows: &[B],
        out: &mut Vec<RowId>,
    ) -> Result<()> {
        let mut payload = Vec::new();
        let mut undo = Vec::new();
        let mut slots = Vec::new();
        let mut at = 0;
        let mut tried = Dba::NONE;
        while at < rows.len() {
            if rows[at].as_ref().len() > MAX_INLINE_BODY {
                out.push(self.insert(txn, rows[at].as_ref())?);
                at += 1;
                continue;
            }
            let slot = txn.prepare_undo(8 + 2 * heap::MAX_SLOTS as usize)?;
            let dba = self.insert_block(tried, rows[at].as_ref().len())?;
            let mut guard = self.cache().write(dba)?;
            slots.clear();
            if self.is_ours(&guard) {
                fill(&guard, &rows[at..], &mut slots);
            }
            if slots.is_empty() {
                tried = dba;
                continue;
            }
            let taken = &rows[at..at + slots.len()];
            payload.clear();
            let head = RowHead {
                flags: 0,
                stamp: txn.stamp(),
                undo: slot.ptr(),
            };
            heap::many_payload(
                head,
                slots.iter().copied().zip(taken.iter().map(AsRef::as_ref)),
                &mut payload,
            );
            undo.clear();
            undo.extend_from_slice(&dba.0.to_le_bytes());
            slots
                .iter()
                .for_each(|s| undo.extend_from_slice(&s.to_le_bytes()));
            let record = Undo {
                kind: UNDO_INSERT_MANY,
                object: self.object(),
                payload: &undo,
            };
            let change = Change {
                guard: &mut guard,
                op: Op::HeapInsertMany,
                object: self.object(),
                payload: &payload,
            };
            txn.log(slot, &record, &mut [change]);
            out.extend(slots.iter().map(|&s| RowId::new(dba, s)));
            at += slots.len();
        }
        Ok(())
    }

    fn is_ours(&self, guard: &WriteGuard<'_>) -> bool {
        guard.object() == self.object() && matches!(guard.block_type(), Ok(block::BlockType::Heap))
    }

    /// The block into which this session inserts, or another one if that is `tried` and had no room
    /// for a row of `len` bytes. A new block is formatted. It is called with no latch held.
    fn insert_block(&self, tried: Dba, len: usize) -> Result<Dba> {
        let sid = wait::session::with(|s| s.sid).unwrap_or(0);
        let point = &self.points[sid as usize % INSERT_POINTS];
        let current = Dba(point.load(Relaxed));
        if !current.is_none() && current != tried {
            return Ok(current);
        }
        let wanted = heap::needs(len);
        let mut left = 0;
        if !tried.is_none() {
            left = self.prune_block(tried)?;
            if left >= wanted {
                return Ok(tried);
            }
        }
        // This is a statement of its own: the latch must not be held while a block is made.
        let taken = self.free.lock().take(wanted);
        let next = match taken {
            Some(dba) => dba,
            None => self.fresh_block(wanted)?,
        };
        self.remember_room(tried, left);
        point.store(next.0, Relaxed);
        Ok(next)
    }

    /// A block for inserting. It is one with `wanted` bytes, if deleted rows have left one or the
    /// survey finds one; otherwise a block that was never used, formatted.
    fn fresh_block(&self, wanted: usize) -> Result<Dba> {
        if let Some(dba) = self.reclaim(wanted)? {
            return Ok(dba);
        }
        if self.segment.is_exhausted(&self.space)? {
            self.survey()?;
            if let Some(dba) = self.free.lock().take(wanted) {
                return Ok(dba);
            }
        }
        let dba = self.segment.next_block(&self.space)?;
        self.free.lock().took_fresh();
        self.cache().reserve()?;
        let mut guard = self.cache().write_new(dba)?;
        let change = Change {
            guard: &mut guard,
            op: Op::HeapFormat,
            object: self.object(),
            payload: &[],
        };
        self.cache()
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
        Ok(dba)
    }

    /// A block with `wanted` bytes that rows deleted below the horizon have left. `smon` comes for
    /// such rows, too, but only now and then: in between, a queue would grow by all that goes
    /// through it.
    fn reclaim(&self, wanted: usize) -> Result<Option<Dba>> {
        if !self.free.lock().has_dead() {
            return Ok(None);
        }
        self.txns.horizon();
        for _ in 0..RECLAIM_TRIES {
            let Some(dba) = self.free.lock().take_dead(|stamp| self.fate(stamp)) else {
                return Ok(None);
            };
            let room = self.prune_block(dba)?;
            if room >= wanted {
                return Ok(Some(dba));
            }
            self.remember_room(dba, room);
        }
        Ok(None)
    }

    /// The fate of the deletions with this stamp, by the horizon that was last computed.
    fn fate(&self, stamp: Stamp) -> Fate {
        match stamp.kind() {
            _ if self.txns.is_below_horizon(stamp) => Fate::Final,
            StampKind::Txn(txn) if self.txns.state(txn) == TxnState::Aborted => Fate::Undone,
            _ => Fate::Open,
        }
    }

    /// Notes that the transaction has delete-marked a row in the block, or left much of one unused.
    /// Only the owner of the extent inserts there. In another instance's extent `smon` only makes
    /// the room, and the owner's survey finds it.
    fn note_dead(&self, txn: &mut Transaction, dba: Dba) {
        txn.hint_purge(self.object(), dba);
        if self.segment.is_ours(&self.space, dba) {
            self.free.lock().push_dead(dba, txn.stamp());
        }
    }

    /// Looks through some of the used blocks of this instance's extents for room. It is called
    /// before an extent is added, so that a heap does not grow while it has room.
    fn survey(&self) -> Result<()> {
        let (runs, extents) = self.segment.used_by_us(&self.space)?;
        let total: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
        let members = self.space.members();
        let scope = Scope {
            members: members.changes(),
            alone: members.is_alone(),
            blocks: total,
        };
        let Some(from) = (self.free.lock()).survey_from(scope, |stamp| self.fate(stamp)) else {
            return Ok(());
        };
        let at_once = SURVEY_BLOCKS.max(segment::extent_blocks(extents) / 8);
        let mut skip = from;
        let mut left = at_once;
        for (first, n) in runs {
            let here = u64::from(n).saturating_sub(skip).min(u64::from(left)) as u32;
            let start = skip.min(u64::from(n)) as u32;
            skip = skip.saturating_sub(u64::from(n));
            if here > 0 {
                self.cache().prefetch(first.plus(start), here);
                for i in start..start + here {
                    self.prune(first.plus(i))?;
                }
                left -= here;
            }
        }
        self.free
            .lock()
            .surveyed(from + u64::from(at_once - left), total);
        Ok(())
    }

    fn corrupt(&self, rid: RowId, what: impl Into<String>) -> Error {
        Error::HeapCorrupt {
            object: self.object(),
            rid,
            what: what.into(),
        }
    }
}

/// The slots for as many of the rows, from the first on, as fit into the block: its free slots,
/// then fresh ones.
fn fill<B: AsRef<[u8]>>(block: &block::BlockBuf, rows: &[B], slots: &mut Vec<u16>) {
    let mut free = heap::free_bytes(block);
    let mut free_slots = heap::free_slots(block);
    let mut fresh = heap::slots(block);
    for row in rows {
        let len = row.as_ref().len();
        let (slot, needs) = match free_slots.next() {
            Some(slot) => (slot, heap::needs_in_slot(len)),
            None => (fresh, heap::needs(len)),
        };
        if len > MAX_INLINE_BODY || needs > free {
            break;
        }
        free -= needs;
        fresh += u16::from(slot == fresh);
        slots.push(slot);
    }
}
