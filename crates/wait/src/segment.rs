//! What sessions did with the blocks of each table and index (`v$segment_statistics`).
//!
//! The layer that knows the object says so before it looks at a block ([`about`]). What is counted
//! and waited for from then on is the object's: gets, reads from disk, waits for the block's
//! latch, for rows, and for blocks of other instances. Scans and rows are counted where they are
//! known, by [`count`]: of a table's object its scans and the rows that these gave, of an index's
//! object its scans, the entries that they met, and the rows that these led to.
//!
//! **Invariants.**
//! - A session's thread alone writes its counts, without a shared cache line.
//! - A session has room for [`SLOTS`] objects. Those that make room, and those of sessions that
//!   end, go to the sums of the instance under one latch, which readers hold, too: nothing is
//!   counted twice and nothing falls.
//! - Sums are kept for [`OBJECTS_MAX`] objects; further ones share a row.

use crate::counters::bump;
use crate::remote::Transfer;
use crate::session::{self, Session};
use crate::{Class, Event, Stat};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Objects of which a session counts by itself.
const SLOTS: usize = 64;
/// Slots that are looked at for an object.
const PROBES: usize = 4;
/// The most objects that have sums of their own: 16,384 of about 170 bytes.
const OBJECTS_MAX: usize = 16_384;
/// The object of what is beyond [`OBJECTS_MAX`].
pub const OTHERS: u32 = u32::MAX;

/// A statistic of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SegmentStat {
    LogicalReads,
    PhysicalReads,
    BlockChanges,
    BufferBusyWaits,
    BufferBusyTime,
    RowLockWaits,
    RowLockTime,
    GcCurrentReceived,
    GcCrReceived,
    GcWaits,
    GcTime,
    ReadTime,
    Scans,
    RowsRead,
    RowsFetched,
    RowsInserted,
    RowsUpdated,
    RowsDeleted,
}

pub const STATS: usize = 18;

impl SegmentStat {
    /// All, each at the place of its number.
    pub const ALL: [SegmentStat; STATS] = [
        SegmentStat::LogicalReads,
        SegmentStat::PhysicalReads,
        SegmentStat::BlockChanges,
        SegmentStat::BufferBusyWaits,
        SegmentStat::BufferBusyTime,
        SegmentStat::RowLockWaits,
        SegmentStat::RowLockTime,
        SegmentStat::GcCurrentReceived,
        SegmentStat::GcCrReceived,
        SegmentStat::GcWaits,
        SegmentStat::GcTime,
        SegmentStat::ReadTime,
        SegmentStat::Scans,
        SegmentStat::RowsRead,
        SegmentStat::RowsFetched,
        SegmentStat::RowsInserted,
        SegmentStat::RowsUpdated,
        SegmentStat::RowsDeleted,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SegmentStat::LogicalReads => "logical reads",
            SegmentStat::PhysicalReads => "physical reads",
            SegmentStat::BlockChanges => "db block changes",
            SegmentStat::BufferBusyWaits => "buffer busy waits",
            SegmentStat::BufferBusyTime => "buffer busy wait time (microseconds)",
            SegmentStat::RowLockWaits => "row lock waits",
            SegmentStat::RowLockTime => "row lock wait time (microseconds)",
            SegmentStat::GcCurrentReceived => "gc current blocks received",
            SegmentStat::GcCrReceived => "gc cr blocks received",
            SegmentStat::GcWaits => "gc waits",
            SegmentStat::GcTime => "gc wait time (microseconds)",
            SegmentStat::ReadTime => "physical read time (microseconds)",
            SegmentStat::Scans => "segment scans",
            SegmentStat::RowsRead => "rows read by scans",
            SegmentStat::RowsFetched => "rows fetched by index",
            SegmentStat::RowsInserted => "rows inserted",
            SegmentStat::RowsUpdated => "rows updated",
            SegmentStat::RowsDeleted => "rows deleted",
        }
    }

    /// Whether it counts nanoseconds, which are shown as microseconds.
    fn is_time(self) -> bool {
        matches!(
            self,
            SegmentStat::BufferBusyTime
                | SegmentStat::RowLockTime
                | SegmentStat::GcTime
                | SegmentStat::ReadTime
        )
    }
}

type Counts = [u64; STATS];

#[derive(Default)]
struct Slot {
    /// Zero: the slot is free.
    object: AtomicU32,
    counts: [AtomicU64; STATS],
}

/// The counts of one session, and the object that it works on.
pub(crate) struct Segments {
    object: AtomicU32,
    /// The slot of `object`; [`SLOTS`] for none, which is a slot, too, and never shown.
    at: AtomicU32,
    slots: Box<[Slot; SLOTS + 1]>,
}

impl Segments {
    pub fn new() -> Segments {
        Segments {
            object: AtomicU32::new(0),
            at: AtomicU32::new(SLOTS as u32),
            slots: Box::new(std::array::from_fn(|_| Slot::default())),
        }
    }

    /// The object that the session works on; zero for none.
    pub fn object(&self) -> u32 {
        self.object.load(Relaxed)
    }

    /// By the session's thread.
    #[inline]
    pub fn about(&self, object: u32) {
        if self.object.load(Relaxed) != object {
            self.turn_to(object);
        }
    }

    fn turn_to(&self, object: u32) {
        let at = match object {
            0 => SLOTS,
            object => self.slot_of(object),
        };
        self.at.store(at as u32, Relaxed);
        self.object.store(object, Relaxed);
    }

    fn slot_of(&self, object: u32) -> usize {
        let home = object as usize % SLOTS;
        let mut free = None;
        for at in (0..PROBES).map(|n| (home + n) % SLOTS) {
            match self.slots[at].object.load(Relaxed) {
                of if of == object => return at,
                0 if free.is_none() => free = Some(at),
                _ => {}
            }
        }
        let at = free.unwrap_or(home);
        if free.is_none() {
            sums(|sums| self.slots[at].fold(sums));
        }
        self.slots[at].object.store(object, Relaxed);
        at
    }

    #[inline]
    pub fn add(&self, stat: SegmentStat, n: u64) {
        let slot = &self.slots[self.at.load(Relaxed) as usize];
        bump(&slot.counts[stat as usize], n);
    }

    /// A wait of the session is over.
    pub fn waited(&self, event: Event, ns: u64, transfer: Option<&Transfer>) {
        use SegmentStat::*;
        match event {
            Event::BufferBusy => self.add_both(BufferBusyWaits, BufferBusyTime, ns),
            Event::EnqTx | Event::EnqTxIndex => self.add_both(RowLockWaits, RowLockTime, ns),
            Event::DbFileSequentialRead
            | Event::DbFileScatteredRead
            | Event::ReadByOtherSession => {
                self.add(ReadTime, ns);
            }
            event if event.class() == Class::Cluster => self.add_both(GcWaits, GcTime, ns),
            _ => {}
        }
        if let Some(transfer) = transfer {
            self.add(
                if transfer.current {
                    GcCurrentReceived
                } else {
                    GcCrReceived
                },
                1,
            );
        }
    }

    fn add_both(&self, count: SegmentStat, time: SegmentStat, ns: u64) {
        self.add(count, 1);
        self.add(time, ns);
    }

    /// Gives all counts to the instance's sums, by the session's thread as it ends.
    pub fn end(&self) {
        sums(|sums| self.slots[..SLOTS].iter().for_each(|slot| slot.fold(sums)));
    }
}

impl Slot {
    /// Empties the slot into the sums.
    fn fold(&self, sums: &mut Sums) {
        let object = self.object.load(Relaxed);
        if object == 0 {
            return;
        }
        let counts = self.counts();
        sums.add(object, &counts);
        self.object.store(0, Relaxed);
        self.counts.iter().for_each(|c| c.store(0, Relaxed));
    }

    fn counts(&self) -> Counts {
        std::array::from_fn(|i| self.counts[i].load(Relaxed))
    }
}

#[derive(Default)]
struct Sums(HashMap<u32, Counts>);

impl Sums {
    fn add(&mut self, object: u32, counts: &Counts) {
        let is_known = self.0.len() < OBJECTS_MAX || self.0.contains_key(&object);
        let to = self.0.entry(if is_known { object } else { OTHERS });
        for (to, from) in to.or_default().iter_mut().zip(counts) {
            *to += from;
        }
    }
}

static SUMS: Mutex<Option<Sums>> = Mutex::new(None);

fn sums<R>(f: impl FnOnce(&mut Sums) -> R) -> R {
    f(SUMS.lock().get_or_insert_with(Sums::default))
}

/// This thread's session works on this object from now on; zero: on none that is known.
#[inline]
pub fn about(object: u32) {
    session::with(|s| s.segments.about(object));
}

/// Counts for an object, whichever one the session works on, which it goes on to work on.
#[inline]
pub fn count(object: u32, counts: &[(SegmentStat, u64)]) {
    session::with(|s| {
        let works_on = s.segments.object();
        s.segments.about(object);
        for (stat, n) in counts {
            s.segments.add(*stat, *n);
        }
        s.segments.about(works_on);
    });
}

/// A block was looked at: counts it for the session, by its statistic, and for the object.
#[inline]
pub fn got(stat: Stat) {
    session::with(|s| {
        s.counters.add_stat(stat, 1);
        s.segments.add(SegmentStat::LogicalReads, 1);
    });
}

/// Blocks were read from disk.
pub fn read(blocks: u64) {
    session::with(|s| {
        s.counters.add_stat(Stat::PhysicalReads, blocks);
        s.segments.add(SegmentStat::PhysicalReads, blocks);
    });
}

/// Blocks were changed.
#[inline]
pub fn changed(blocks: u64) {
    session::with(|s| {
        s.counters.add_stat(Stat::DbBlockChanges, blocks);
        s.segments.add(SegmentStat::BlockChanges, blocks);
    });
}

/// What was counted for an object, in the order of [`SegmentStat::ALL`]; times in microseconds.
#[derive(Clone, Debug)]
pub struct SegmentRow {
    pub object: u32,
    pub values: [u64; STATS],
}

/// All objects with what all sessions counted for them since the instance was started.
pub fn rows() -> Vec<SegmentRow> {
    let mut all = sums(|sums| {
        let mut all = Sums(sums.0.clone());
        for s in session::list() {
            s.segments.add_to(&mut all);
        }
        all
    });
    let row = |(object, counts): (u32, Counts)| SegmentRow {
        object,
        values: std::array::from_fn(|i| match SegmentStat::ALL[i].is_time() {
            true => counts[i] / 1000,
            false => counts[i],
        }),
    };
    all.0.drain().map(row).collect()
}

impl Segments {
    fn add_to(&self, all: &mut Sums) {
        for slot in &self.slots[..SLOTS] {
            let object = slot.object.load(Relaxed);
            if object != 0 {
                all.add(object, &slot.counts());
            }
        }
    }
}

impl Session {
    /// The object that the session works on, if it is known.
    pub fn object(&self) -> Option<u32> {
        Some(self.segments.object()).filter(|o| *o != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Kind, register};

    fn value(object: u32, stat: SegmentStat) -> u64 {
        let row = rows().into_iter().find(|r| r.object == object);
        row.map_or(0, |r| r.values[stat as usize])
    }

    #[test]
    fn statistics_stand_at_their_numbers() {
        for (at, stat) in SegmentStat::ALL.iter().enumerate() {
            assert_eq!(*stat as usize, at);
        }
    }

    /// More objects than a session has slots for: each has what was counted for it, while the
    /// session is there and when it has ended.
    #[test]
    fn what_was_counted_stays_with_its_object() {
        const FIRST: u32 = 900_000;
        let thread = std::thread::spawn(|| {
            let _guard = register(Kind::User, "segments");
            for round in 0..3 {
                for n in 0..300 {
                    about(FIRST + n);
                    got(Stat::ConsistentGets);
                    read(u64::from(n));
                    assert_eq!(value(FIRST + n, SegmentStat::LogicalReads), round + 1);
                }
            }
            about(FIRST);
            crate::during(Event::EnqTx, [0; 3], || {});
            about(0);
            got(Stat::ConsistentGets);
        });
        thread.join().unwrap();
        for n in 0..300 {
            assert_eq!(value(FIRST + n, SegmentStat::LogicalReads), 3);
            assert_eq!(
                value(FIRST + n, SegmentStat::PhysicalReads),
                3 * u64::from(n)
            );
        }
        assert_eq!(value(FIRST, SegmentStat::RowLockWaits), 1);
        assert_eq!(value(0, SegmentStat::LogicalReads), 0);
    }

    #[test]
    fn what_is_counted_for_another_object_leaves_the_session_at_its_own() {
        const OWN: u32 = 910_000;
        // It falls into the slots of the other.
        const OTHER: u32 = OWN + SLOTS as u32;
        let thread = std::thread::spawn(|| {
            let _guard = register(Kind::User, "segments");
            about(OWN);
            count(
                OTHER,
                &[(SegmentStat::Scans, 1), (SegmentStat::RowsRead, 7)],
            );
            got(Stat::ConsistentGets);
        });
        thread.join().unwrap();
        assert_eq!(value(OTHER, SegmentStat::Scans), 1);
        assert_eq!(value(OTHER, SegmentStat::RowsRead), 7);
        assert_eq!(value(OTHER, SegmentStat::LogicalReads), 0);
        assert_eq!(value(OWN, SegmentStat::LogicalReads), 1);
    }

    #[test]
    fn objects_beyond_the_limit_share_a_row() {
        let mut sums = Sums::default();
        for object in 0..OBJECTS_MAX as u32 + 5 {
            sums.add(object + 1, &[1; STATS]);
        }
        assert_eq!(sums.0.len(), OBJECTS_MAX + 1);
        assert_eq!(sums.0[&OTHERS][0], 5);
        sums.add(1, &[1; STATS]);
        assert_eq!(sums.0[&1][0], 2);
    }
}
