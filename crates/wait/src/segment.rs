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
//! - An object that is no more has no row ([`forget`]). What was counted for it goes to the object
//!   in whose place it was, or to [`GONE`]: the total of all rows never falls.

use crate::counters::bump;
use crate::remote::Transfer;
use crate::session::{self, Session};
use crate::{Class, Event, Stat};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Objects of which a session counts by itself.
const SLOTS: usize = 64;
/// Slots that are looked at for an object.
const PROBES: usize = 4;
/// The most objects that have sums of their own: 16,384 of about 170 bytes.
const OBJECTS_MAX: usize = 16_384;
/// The object of what is beyond [`OBJECTS_MAX`].
pub const OTHERS: u32 = u32::MAX;
/// The object of what was counted for objects that are no more.
pub const GONE: u32 = u32::MAX - 1;
/// Objects that are no more of which so many are remembered before it is looked which of them a
/// session still has counts of. No more are needed: sessions have [`SLOTS`] each.
const MOVED_MIN: usize = 1024;

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
    /// How often an object had to make room: the next one is another of those that could.
    turns: AtomicU32,
    slots: Box<[Slot; SLOTS + 1]>,
}

impl Segments {
    pub fn new() -> Segments {
        Segments {
            object: AtomicU32::new(0),
            at: AtomicU32::new(SLOTS as u32),
            turns: AtomicU32::new(0),
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
        let first = object as usize % SLOTS;
        let at = match self.slots[first].object.load(Relaxed) == object && object != 0 {
            true => first,
            false => self.slot_of(object),
        };
        self.at.store(at as u32, Relaxed);
        self.object.store(object, Relaxed);
    }

    /// The slot of an object, for which another one may have to make room, but never the one that
    /// the session works on.
    fn slot_of(&self, object: u32) -> usize {
        if object == 0 {
            return SLOTS;
        }
        let slots = (0..PROBES).map(|n| (object as usize + n) % SLOTS);
        let mut free = None;
        for at in slots.clone() {
            match self.slots[at].object.load(Relaxed) {
                of if of == object => return at,
                0 if free.is_none() => free = Some(at),
                _ => {}
            }
        }
        let at = free.unwrap_or_else(|| {
            let in_use = self.at.load(Relaxed) as usize;
            let turn = self.turns.load(Relaxed) as usize;
            self.turns.store(turn.wrapping_add(1) as u32, Relaxed);
            let mut others = slots.cycle().skip(turn % PROBES);
            let at = others.find(|at| *at != in_use);
            let at = at.expect("invariant: there is more than one slot to choose from");
            sums(|sums| self.slots[at].fold(sums));
            at
        });
        self.slots[at].object.store(object, Relaxed);
        at
    }

    /// Counts for an object, while the session works on another one.
    fn count(&self, object: u32, counts: &[(SegmentStat, u64)]) {
        let at = match self.object.load(Relaxed) == object {
            true => self.at.load(Relaxed) as usize,
            false => self.slot_of(object),
        };
        for (stat, n) in counts {
            bump(&self.slots[at].counts[*stat as usize], *n);
        }
    }

    /// The objects that the session has counts of.
    fn objects(&self) -> impl Iterator<Item = u32> {
        let slots = self.slots[..SLOTS].iter();
        slots
            .map(|slot| slot.object.load(Relaxed))
            .filter(|o| *o != 0)
    }

    #[inline]
    pub fn add(&self, stat: SegmentStat, n: u64) {
        let slot = &self.slots[self.at.load(Relaxed) as usize];
        bump(&slot.counts[stat as usize], n);
    }

    /// A wait of the session is over.
    #[inline]
    pub fn waited(&self, event: Event, ns: u64, transfer: Option<&Transfer>) {
        if self.object() != 0 {
            self.waited_for(event, ns, transfer);
        }
    }

    fn waited_for(&self, event: Event, ns: u64, transfer: Option<&Transfer>) {
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

#[derive(Clone, Default)]
struct Sums {
    of: HashMap<u32, Counts>,
    /// Objects that are no more, of which a session may have counts, and the objects that these go
    /// to, which are not among them.
    moved: HashMap<u32, u32>,
    /// So many of `moved` were in use when that was last looked at.
    in_use: usize,
}

impl Sums {
    fn add(&mut self, object: u32, counts: &Counts) {
        let object = self.moved.get(&object).copied().unwrap_or(object);
        let is_known = self.of.len() < OBJECTS_MAX || self.of.contains_key(&object);
        let to = match is_known || object == GONE {
            true => object,
            false => OTHERS,
        };
        let to = self.of.entry(to).or_default();
        to.iter_mut().zip(counts).for_each(|(to, from)| *to += from);
    }

    fn forget(&mut self, object: u32, heir: u32) {
        let heir = self.moved.get(&heir).copied().unwrap_or(heir);
        if object == heir {
            return;
        }
        for to in self.moved.values_mut().filter(|to| **to == object) {
            *to = heir;
        }
        self.moved.insert(object, heir);
        if let Some(counts) = self.of.remove(&object) {
            self.add(heir, &counts);
        }
        if self.moved.len() > MOVED_MIN.max(2 * self.in_use) {
            let sessions = session::list();
            let known = sessions.iter().flat_map(|s| s.segments.objects());
            let known: HashSet<u32> = known.collect();
            self.moved.retain(|object, _| known.contains(object));
            self.in_use = self.moved.len();
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
    session::with(|s| s.segments.count(object, counts));
}

/// Objects are no more. What was counted for each goes to the object that has its place now, or to
/// [`GONE`]. Nobody counts for them any more, and no other object will have their numbers.
pub fn forget(objects: &[(u32, Option<u32>)]) {
    sums(|sums| {
        for (object, heir) in objects {
            sums.forget(*object, heir.unwrap_or(GONE));
        }
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
        let mut all = sums.clone();
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
    all.of.drain().map(row).collect()
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
        assert_eq!(sums.of.len(), OBJECTS_MAX + 1);
        assert_eq!(sums.of[&OTHERS][0], 5);
        sums.add(1, &[1; STATS]);
        assert_eq!(sums.of[&1][0], 2);
        // Those that go make room for others, and nothing of them is lost.
        for object in 1..4 {
            sums.forget(object, GONE);
        }
        assert_eq!(sums.of[&GONE][0], 4);
        sums.add(800_000, &[1; STATS]);
        assert_eq!(sums.of[&800_000][0], 1);
    }

    /// More than sums are kept of came and went. The counts of those after them were in the row of
    /// the others.
    #[test]
    fn objects_that_are_no_more_leave_their_counts_to_their_heirs() {
        let mut sums = Sums::default();
        let first = 1_000_000;
        for object in first..first + 2 * OBJECTS_MAX as u32 {
            sums.add(object, &[1; STATS]);
            sums.forget(object, object + 1);
        }
        let last = first + 2 * OBJECTS_MAX as u32;
        assert_eq!(sums.of.len(), 1);
        assert_eq!(u64::from(last - first), sums.of[&last][0]);
        assert!(sums.moved.len() <= MOVED_MIN);
    }

    /// A session that has counts of an object gives them away later.
    #[test]
    fn what_a_session_has_of_an_object_that_is_no_more_is_its_heirs() {
        const FIRST: u32 = 930_000;
        let thread = std::thread::spawn(|| {
            let _guard = register(Kind::User, "segments");
            count(FIRST, &[(SegmentStat::Scans, 3)]);
            forget(&[(FIRST, Some(FIRST + 1))]);
            assert_eq!(value(FIRST, SegmentStat::Scans), 0);
            assert_eq!(value(FIRST + 1, SegmentStat::Scans), 3);
            // So many others come and go that it is looked which are still in use.
            let others = FIRST + 10..FIRST + 10 + 2 * MOVED_MIN as u32;
            let others: Vec<_> = others.map(|object| (object, None)).collect();
            forget(&others);
            forget(&[(FIRST + 1, Some(FIRST + 2))]);
            assert_eq!(value(FIRST + 2, SegmentStat::Scans), 3);
        });
        thread.join().unwrap();
        assert_eq!(value(FIRST, SegmentStat::Scans), 0);
        assert_eq!(value(FIRST + 2, SegmentStat::Scans), 3);
    }

    /// Objects of one home: none has to give its counts away while there is room for it.
    #[test]
    fn objects_of_one_home_do_not_evict_each_other() {
        const OWN: u32 = 940_032;
        let thread = std::thread::spawn(|| {
            let guard = register(Kind::User, "segments");
            for other in 0..SLOTS as u32 {
                about(OWN + other);
            }
            let turns = || session::with(|s| s.segments.turns.load(Relaxed)).unwrap();
            about(OWN + SLOTS as u32);
            let before = turns();
            for _ in 0..100 {
                about(OWN);
                count(OWN + SLOTS as u32, &[(SegmentStat::Scans, 1)]);
                assert_eq!(guard_object(), Some(OWN));
            }
            assert!(turns() <= before + 1, "{} after {before}", turns());
            drop(guard);
        });
        thread.join().unwrap();
        assert_eq!(value(OWN + SLOTS as u32, SegmentStat::Scans), 100);
    }

    fn guard_object() -> Option<u32> {
        session::current().and_then(|s| s.object())
    }
}
