//! The undo file of this instance: its extents, who may write where, and when an extent is used
//! again.
//!
//! ```text
//! block 0: unused | extent 0: blocks 1..=16 | extent 1: blocks 17..=32 | ...
//! ```
//!
//! A session writes undo into a block of its own ([`UndoBlock`]), taken from the extent that is
//! being handed out. An extent is *held* by each session whose block is in it and by each active
//! transaction that has records in it. When nobody holds the extent and its newest transaction
//! ended at or below the horizon, nobody needs its records. Then it is used again, oldest first.
//!
//! **Invariants.**
//! - Each use of an extent has another sequence than the use before: one more than that of the
//!   first block, with which every use begins.
//! - A file that is at its cap, or on a disk that has no room for more, does not grow. Then the
//!   extent whose newest transaction is oldest is taken, although snapshots may still need it.
//!   These snapshots fail with "snapshot too old" when they meet the new sequence.
//! - What active transactions hold is never taken.
//! - Undo written before a restart is kept until all transactions it may belong to are rolled back
//!   ([`UndoSpace::release_old`]).

use crate::{Error, Result};
use block::undo::{UNDO_MAX_PAYLOAD, UNDO_RECORD_HEADER};
use block::{Dba, FileId, InstanceId, ObjectId, Op, Scn, UndoPtr, undo};
use cache::{Cache, Change, Pin, RecordHeader};
use seam::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use wait::{Event, Latch, LatchClass, Stat};

static LATCH: LatchClass = LatchClass {
    name: "undo global data",
    event: Event::LatchUndo,
};

/// Blocks in an extent.
const EXTENT: u32 = 16;
/// Extents by which the file grows at a time: 1 MiB.
const GROWTH: u32 = 8;
/// Blocks of sessions that have ended, kept for the next ones; more would keep too many extents
/// from being used again.
const SPARE_BLOCKS: usize = 32;

/// A run of blocks that is used and freed together.
pub(crate) struct Extent {
    number: u32,
    /// The number of sessions and active transactions that hold the extent. It rises from zero only
    /// while the extent is being handed out.
    holders: AtomicU32,
    /// The newest SCN at which a transaction with records in it ended. It is raised before the
    /// transaction lets go.
    newest: AtomicU64,
    /// The sequence of its present use; `None` while that is not known after a restart.
    sequence: Mutex<Option<u16>>,
}

impl Extent {
    fn first(&self, file: FileId) -> Dba {
        Dba::new(file, 1 + self.number * EXTENT)
    }
    pub(crate) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::AcqRel);
    }
    fn release(&self) {
        let before = self.holders.fetch_sub(1, Ordering::AcqRel);
        assert!(
            before > 0,
            "invariant: an undo extent is let go by its holders only"
        );
    }
    /// Notes that a transaction with records here has ended at `scn`, and lets go for it.
    pub(crate) fn end(&self, scn: Scn) {
        self.newest.fetch_max(scn.0, Ordering::AcqRel);
        self.release();
    }
    fn is_held(&self) -> bool {
        self.holders.load(Ordering::Acquire) > 0
    }
    fn newest(&self) -> Scn {
        Scn(self.newest.load(Ordering::Acquire))
    }
}

/// The block that one session writes its undo into.
pub(crate) struct UndoBlock {
    pub(crate) pin: Pin,
    pub(crate) extent: Arc<Extent>,
    sequence: u16,
    next_slot: u16,
    /// The longest payload that still fits, if any does.
    room: Option<usize>,
}

impl UndoBlock {
    /// The address of the next record.
    pub(crate) fn next(&self) -> UndoPtr {
        UndoPtr::new(self.pin.dba(), self.next_slot, self.sequence)
    }
    pub(crate) fn fits(&self, payload: usize) -> bool {
        self.room.is_some_and(|room| room >= payload)
    }
    /// Notes that a record with a payload of `payload` bytes has been added.
    pub(crate) fn added(&mut self, payload: usize) {
        self.next_slot += 1;
        let left = self
            .room
            .expect("invariant: a record was added because it fits")
            - payload;
        self.room = left.checked_sub(UNDO_RECORD_HEADER + 2);
    }
}

impl Drop for UndoBlock {
    fn drop(&mut self) {
        self.extent.release();
    }
}

#[derive(Default)]
struct State {
    /// Extents in the file, by number.
    extents: u32,
    /// Extents never used since the start, or whose undo is needed by nobody.
    free: VecDeque<Arc<Extent>>,
    /// Extents that are wholly handed out, oldest first.
    used: VecDeque<Arc<Extent>>,
    /// The extent that is being handed out, and the next block in it.
    current: Option<(Arc<Extent>, u32)>,
    /// Extents from before the restart that must stay as they are.
    old: Vec<Arc<Extent>>,
}

/// The undo file of this instance; see the module.
pub(crate) struct UndoSpace {
    file: FileId,
    cap_blocks: u32,
    cache: Arc<Cache>,
    state: Latch<State>,
    /// Held while the file grows or an extent's sequence is read: one session does that for all.
    supply: Mutex<()>,
    spare: Mutex<Vec<UndoBlock>>,
}

/// Figures for the statistics and for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoUsage {
    pub file_blocks: u32,
    pub free_blocks: u32,
    pub used_blocks: u32,
    pub cap_blocks: u32,
}

impl UndoSpace {
    /// Takes over the undo file as it is. All that is in it counts as old.
    pub(crate) fn open(
        instance: InstanceId,
        cap_blocks: u32,
        cache: Arc<Cache>,
    ) -> Result<UndoSpace> {
        let file = FileId::undo(instance);
        let extents = cache.files().blocks(file)?.saturating_sub(1) / EXTENT;
        let old = (0..extents).map(|n| extent(n, None)).collect();
        Ok(UndoSpace {
            file,
            cap_blocks,
            cache,
            state: Latch::new(
                &LATCH,
                State {
                    extents,
                    old,
                    ..State::default()
                },
            ),
            supply: Mutex::new(()),
            spare: Mutex::new(Vec::new()),
        })
    }

    /// Releases the extents from before the restart, after all their transactions are rolled back.
    /// Snapshots at or above `scn` need nothing of that undo.
    pub(crate) fn release_old(&self, scn: Scn) {
        let mut state = self.state.lock();
        let old = std::mem::take(&mut state.old);
        for extent in old.into_iter().rev() {
            extent.newest.store(scn.0, Ordering::Release);
            state.used.push_front(extent);
        }
    }

    /// A block for the caller alone, with room for a payload of `payload` bytes. The caller must
    /// hold no frame latch.
    pub(crate) fn take(&self, payload: usize, horizon: impl Fn() -> Scn) -> Result<UndoBlock> {
        assert!(
            payload <= UNDO_MAX_PAYLOAD,
            "invariant: an undo payload is at most {UNDO_MAX_PAYLOAD} bytes, not {payload}"
        );
        let spare = {
            let mut spare = self.spare.lock();
            spare
                .iter()
                .position(|b| b.fits(payload))
                .map(|at| spare.swap_remove(at))
        };
        match spare {
            Some(block) => Ok(block),
            None => self.fresh(horizon),
        }
    }

    /// Takes the block of a session that ends, for other sessions.
    pub(crate) fn give_back(&self, block: UndoBlock) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE_BLOCKS && block.fits(0) {
            spare.push(block);
        }
    }

    /// The next block, formatted for a new use.
    fn fresh(&self, horizon: impl Fn() -> Scn) -> Result<UndoBlock> {
        let (dba, extent) = loop {
            if let Some(next) = self.next_block() {
                break next;
            }
            let _supply = self.supply.try_lock().unwrap_or_else(|| {
                wait::during(
                    Event::UndoSegmentExtension,
                    [u64::from(self.file.0), 0, 0],
                    || self.supply.lock(),
                )
            });
            if self.state.lock().current.is_none() {
                let extent = self.open_extent(&horizon)?;
                self.state.lock().current = Some((extent, 0));
            }
        };
        // From here on the block holds its extent, also if what follows fails.
        let sequence = extent
            .sequence
            .lock()
            .expect("invariant: an extent is handed out with a sequence");
        let pin = match self.cache.pin_new(dba) {
            Ok(pin) => pin,
            Err(e) => {
                extent.release();
                return Err(e.into());
            }
        };
        let block = UndoBlock {
            pin,
            extent,
            sequence,
            next_slot: 0,
            room: Some(UNDO_MAX_PAYLOAD),
        };
        self.cache.reserve()?;
        let mut guard = block.pin.write();
        let payload = undo::format_payload(sequence);
        let change = Change {
            guard: &mut guard,
            op: Op::UndoFormat,
            object: ObjectId::NONE,
            payload: &payload,
        };
        self.cache
            .change(RecordHeader::NONE, &mut [change], |_, _| ());
        drop(guard);
        Ok(block)
    }

    /// The next block of the extent that is being handed out, with that extent held.
    fn next_block(&self) -> Option<(Dba, Arc<Extent>)> {
        let state = &mut *self.state.lock();
        let (extent, next) = state.current.as_mut()?;
        let (extent, dba) = (extent.clone(), extent.first(self.file).plus(*next));
        extent.hold();
        *next += 1;
        if *next == EXTENT {
            state.used.push_back(extent.clone());
            state.current = None;
        }
        Some((dba, extent))
    }

    /// An extent for a new use, with its sequence. The caller holds `supply`.
    fn open_extent(&self, horizon: &impl Fn() -> Scn) -> Result<Arc<Extent>> {
        let extent = match self.reusable(horizon) {
            Some(extent) => extent,
            None => self.grow_or_steal()?,
        };
        let known = *extent.sequence.lock();
        let last = match known {
            Some(sequence) => sequence,
            None => self.last_sequence(&extent)?,
        };
        *extent.sequence.lock() = Some(last.wrapping_add(1));
        Ok(extent)
    }

    /// The sequence of an extent's last use, which was before a restart. It is the sequence of the
    /// first block, with one exception: the use may have begun in another block, and the crash have
    /// come before the first block's format was durable.
    fn last_sequence(&self, extent: &Extent) -> Result<u16> {
        let first = extent.first(self.file);
        let of = |block: u32| Ok::<_, Error>(undo::sequence(&*self.cache.read(first.plus(block))?));
        let known = of(0)?.unwrap_or(0);
        let next = known.wrapping_add(1);
        for block in 1..EXTENT {
            if of(block)? == Some(next) {
                return Ok(next);
            }
        }
        Ok(known)
    }

    fn reusable(&self, horizon: &impl Fn() -> Scn) -> Option<Arc<Extent>> {
        if let Some(extent) = self.state.lock().free.pop_front() {
            return Some(extent);
        }
        let horizon = horizon();
        let mut state = self.state.lock();
        let at = state
            .used
            .iter()
            .position(|e| !e.is_held() && e.newest() <= horizon)?;
        state.used.remove(at)
    }

    fn grow_or_steal(&self) -> Result<Arc<Extent>> {
        let (extents, old) = {
            let state = self.state.lock();
            (state.extents, state.old.len() as u32)
        };
        // Undo that is kept over a restart does not count. Otherwise the rollback of the dead
        // transactions would starve the living.
        let failed = match (extents - old + GROWTH) * EXTENT <= self.cap_blocks {
            true => match self.grow(extents) {
                Ok(()) => {
                    return Ok(self
                        .state
                        .lock()
                        .free
                        .pop_front()
                        .expect("it has just grown"));
                }
                Err(e) => Some(e),
            },
            false => None,
        };
        self.spare.lock().clear();
        let mut state = self.state.lock();
        let oldest = (0..state.used.len())
            .filter(|&i| !state.used[i].is_held())
            .min_by_key(|&i| state.used[i].newest());
        match oldest.and_then(|at| state.used.remove(at)) {
            Some(extent) => {
                wait::stat::add(Stat::UndoStolen, 1);
                Ok(extent)
            }
            None => Err(failed.unwrap_or(Error::UndoFull {
                cap_blocks: self.cap_blocks,
            })),
        }
    }

    fn grow(&self, extents: u32) -> Result<()> {
        let wanted = extents + GROWTH;
        self.cache
            .files()
            .extend(self.file, 1 + wanted * EXTENT, &mut |_| {})?;
        let mut state = self.state.lock();
        // New blocks are zero: they were never used before.
        state
            .free
            .extend((extents..wanted).map(|n| extent(n, Some(0))));
        state.extents = wanted;
        Ok(())
    }

    /// Grows the file ahead of need, so that a session finds an extent without waiting for growth.
    /// For a background worker.
    pub(crate) fn prepare_ahead(&self, horizon: Scn) -> Result<()> {
        let _supply = self.supply.lock();
        let (ready, extents, old) = {
            let state = self.state.lock();
            let reusable = state
                .used
                .iter()
                .filter(|e| !e.is_held() && e.newest() <= horizon)
                .take(GROWTH as usize)
                .count();
            (
                state.free.len() + reusable,
                state.extents,
                state.old.len() as u32,
            )
        };
        match ready < GROWTH as usize / 2 && (extents - old + GROWTH) * EXTENT <= self.cap_blocks {
            true => self.grow(extents),
            false => Ok(()),
        }
    }

    pub(crate) fn usage(&self) -> UndoUsage {
        let state = self.state.lock();
        UndoUsage {
            file_blocks: 1 + state.extents * EXTENT,
            free_blocks: state.free.len() as u32 * EXTENT,
            used_blocks: (state.used.len() + state.old.len()) as u32 * EXTENT,
            cap_blocks: self.cap_blocks,
        }
    }
}

fn extent(number: u32, sequence: Option<u16>) -> Arc<Extent> {
    Arc::new(Extent {
        number,
        holders: AtomicU32::new(0),
        newest: AtomicU64::new(0),
        sequence: Mutex::new(sequence),
    })
}
