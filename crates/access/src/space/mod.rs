//! Space of the data file: which object owns which blocks.
//!
//! **Owns** the space maps and their picture in memory. A segment's own list of extents is in its header ([`segment`]).
//!
//! **Invariants.**
//! - Units are taken in memory first, under the latch, then in the map by a logged record; only then are they used. The latch is not held while
//!   waiting for disk.
//! - The map knows the owner. A crash between the map and the segment header leaves units that nobody uses but that come back when the object is
//!   dropped; a crash in the middle of creating a segment is undone by the transaction's undo.
//! - The file is longer than what is owned: it is extended before units are taken, ahead of need by [`Space::preallocate`].

pub mod segment;

use crate::{Error, Result};
use block::space::{self, Extent, MAP_UNITS, REGION_BLOCKS, SegmentKind, UNIT_BLOCKS};
use block::{BLOCK_SIZE, Dba, FileId, InstanceId, ObjectId, Op};
use cache::{Cache, Change, RecordHeader};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use txn::{Transaction, Undo};
use wait::{Event, Latch, LatchClass};

static SPACE: LatchClass = LatchClass {
    name: "space management",
    event: Event::LatchSpace,
};

/// Undo of a segment's creation: the payload is empty, the object says which.
pub const UNDO_SEGMENT_CREATE: u16 = 150;

/// Owners of units, 0 for free: the maps in memory.
struct Regions {
    owners: Vec<Vec<u32>>,
    /// Where to look first: no unit before is free. (region, unit)
    low: (usize, usize),
}

pub struct Space {
    cache: Arc<Cache>,
    file: FileId,
    instance: InstanceId,
    regions: Latch<Regions>,
    /// Held while the file is extended, with no other latch.
    extending: Mutex<()>,
}

impl Space {
    /// Reads the maps.
    pub fn open(cache: Arc<Cache>, file: FileId, instance: InstanceId) -> Result<Space> {
        let space = Space::blank(cache, file, instance);
        let blocks = space.cache.files().blocks(file)?;
        let mut owners = Vec::new();
        for region in 0..blocks.div_ceil(REGION_BLOCKS) {
            let map = space.cache.read(space::map_block(file, region))?;
            if map.is_unformatted() {
                break;
            }
            owners.push((0..MAP_UNITS).map(|u| space::owner(&map, u).0).collect());
        }
        space.regions.lock().owners = owners;
        Ok(space)
    }

    fn blank(cache: Arc<Cache>, file: FileId, instance: InstanceId) -> Space {
        let regions = Latch::new(
            &SPACE,
            Regions {
                owners: Vec::new(),
                low: (0, 0),
            },
        );
        Space {
            cache,
            file,
            instance,
            regions,
            extending: Mutex::new(()),
        }
    }

    /// Formats the first map of an empty file.
    pub fn format(&self) -> Result<()> {
        assert!(
            self.regions.lock().owners.is_empty(),
            "invariant: only an empty file is formatted"
        );
        self.add_region()
    }

    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
    pub fn instance(&self) -> InstanceId {
        self.instance
    }

    /// Formats the map of the next region.
    fn add_region(&self) -> Result<()> {
        let _one_at_a_time = wait::during(Event::EnqHw, [0; 3], || self.extending.lock());
        let region = self.regions.lock().owners.len() as u32;
        let dba = space::map_block(self.file, region);
        self.cover(dba.block() + UNIT_BLOCKS)?;
        self.cache.reserve()?;
        let pin = self.cache.pin_new(dba)?;
        let mut guard = pin.write();
        let change = Change {
            guard: &mut guard,
            op: Op::SpaceMapFormat,
            object: ObjectId::NONE,
            payload: &[],
        };
        self.cache
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
        drop(guard);
        self.regions.lock().owners.push(vec![0; MAP_UNITS as usize]);
        Ok(())
    }

    /// Makes the file at least `blocks` long. Called with `extending` held.
    fn cover(&self, blocks: u32) -> Result<()> {
        if self.cache.files().blocks(self.file)? >= blocks {
            return Ok(());
        }
        self.cache
            .files()
            .extend(self.file, blocks, &mut |_| {})
            .map_err(|e| match e.is_full() {
                true => Error::DiskFull(e),
                false => Error::from(e),
            })
    }

    /// Takes `blocks` (a multiple of a unit) contiguous blocks for `object` in memory and in the map. With a transaction, the same record carries the undo of
    /// the segment that is being created.
    fn take(
        &self,
        object: ObjectId,
        blocks: u32,
        creating: Option<&mut Transaction>,
    ) -> Result<Dba> {
        let count = blocks / UNIT_BLOCKS;
        assert!(
            count > 0 && count <= MAP_UNITS && blocks.is_multiple_of(UNIT_BLOCKS),
            "invariant: extents are whole units"
        );
        let (region, unit) = loop {
            if let Some(found) = self.regions.lock().take(object, count as usize) {
                break found;
            }
            self.add_region()?;
        };
        let first = space::unit_block(self.file, region, unit);
        let result = self.log_taken(object, first, region, (unit, count), creating);
        if result.is_err() {
            self.regions.lock().set(region, unit, count, ObjectId::NONE);
        }
        result.map(|()| first)
    }

    fn log_taken(
        &self,
        object: ObjectId,
        first: Dba,
        region: u32,
        (unit, count): (u32, u32),
        creating: Option<&mut Transaction>,
    ) -> Result<()> {
        {
            let _one_at_a_time = wait::during(Event::EnqHw, [0; 3], || self.extending.lock());
            self.cover(first.block() + count * UNIT_BLOCKS)?;
        }
        let pin = self.cache.pin(space::map_block(self.file, region))?;
        let payload = space::set_payload(unit, count, object);
        match creating {
            None => {
                self.cache.reserve()?;
                let mut guard = pin.write();
                let change = Change {
                    guard: &mut guard,
                    op: Op::SpaceSet,
                    object: ObjectId::NONE,
                    payload: &payload,
                };
                self.cache
                    .change(RecordHeader::NONE, &mut [change], |_, _| {});
            }
            Some(txn) => {
                let slot = txn.prepare_undo(0)?;
                let mut guard = pin.write();
                let change = Change {
                    guard: &mut guard,
                    op: Op::SpaceSet,
                    object: ObjectId::NONE,
                    payload: &payload,
                };
                txn.log(
                    slot,
                    &Undo {
                        kind: UNDO_SEGMENT_CREATE,
                        object,
                        payload: &[],
                    },
                    &mut [change],
                );
            }
        }
        Ok(())
    }

    /// Creates a segment for `object`; gone again if the transaction rolls back. Returns its header block.
    pub fn create_segment(
        &self,
        txn: &mut Transaction,
        object: ObjectId,
        kind: SegmentKind,
    ) -> Result<Dba> {
        let blocks = segment::extent_blocks(0);
        let first = self.take(object, blocks, Some(txn))?;
        let extent = Extent {
            first,
            blocks,
            instance: self.instance,
        };
        let pin = self.cache.pin_new(first)?;
        self.cache.reserve()?;
        let mut guard = pin.write();
        let payload = space::segment_payload(kind, extent);
        let change = Change {
            guard: &mut guard,
            op: Op::SegmentFormat,
            object,
            payload: &payload,
        };
        self.cache
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
        Ok(first)
    }

    /// Gives the segment at `header` another extent.
    pub fn add_extent(&self, object: ObjectId, header: Dba, blocks: u32) -> Result<Extent> {
        // Looked at before units are taken: they would be lost to everybody until the object is dropped.
        if space::extent_count(&*self.cache.read(header)?) == space::MAX_EXTENTS {
            return Err(Error::TooManyExtents { object });
        }
        let first = self.take(object, blocks, None)?;
        let extent = Extent {
            first,
            blocks,
            instance: self.instance,
        };
        let pin = self.cache.pin(header)?;
        self.cache.reserve()?;
        let mut guard = pin.write();
        if guard.object() != object {
            return Err(Error::WrongSegment { header, object });
        }
        if space::extent_count(&guard) == space::MAX_EXTENTS {
            return Err(Error::TooManyExtents { object });
        }
        let payload = space::extent_payload(extent);
        let change = Change {
            guard: &mut guard,
            op: Op::SegmentAddExtent,
            object,
            payload: &payload,
        };
        self.cache
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
        Ok(extent)
    }

    /// Takes all units from an object. Whoever calls knows that nobody uses them any more. Does nothing the second time.
    pub fn drop_segment(&self, object: ObjectId) -> Result<()> {
        assert!(
            object != ObjectId::NONE,
            "invariant: a segment belongs to an object"
        );
        let runs = self.regions.lock().runs(object);
        for (region, unit, count) in runs {
            let pin = self.cache.pin(space::map_block(self.file, region))?;
            self.cache.reserve()?;
            let payload = space::set_payload(unit, count, ObjectId::NONE);
            let mut guard = pin.write();
            let change = Change {
                guard: &mut guard,
                op: Op::SpaceSet,
                object: ObjectId::NONE,
                payload: &payload,
            };
            self.cache
                .change(RecordHeader::NONE, &mut [change], |_, _| {});
            drop(guard);
            self.regions.lock().set(region, unit, count, ObjectId::NONE);
        }
        Ok(())
    }

    /// All objects that own space.
    pub fn owners(&self) -> BTreeSet<ObjectId> {
        let regions = self.regions.lock();
        regions
            .owners
            .iter()
            .flatten()
            .filter(|&&o| o != 0)
            .map(|&o| ObjectId(o))
            .collect()
    }

    /// Whether the unit that a block is in belongs to the object.
    pub fn owns(&self, object: ObjectId, dba: Dba) -> bool {
        let (region, within) = (dba.block() / REGION_BLOCKS, dba.block() % REGION_BLOCKS);
        let unit = (within / UNIT_BLOCKS).checked_sub(1);
        let regions = self.regions.lock();
        let owners = regions.owners.get(region as usize);
        dba.file() == self.file
            && unit
                .and_then(|u| owners?.get(u as usize))
                .is_some_and(|&o| o == object.0)
    }

    /// First blocks of the units that an object owns.
    pub fn units_of(&self, file: FileId, object: ObjectId) -> Vec<Dba> {
        let runs = self.regions.lock().runs(object);
        runs.into_iter()
            .flat_map(|(region, unit, n)| {
                (unit..unit + n).map(move |u| space::unit_block(file, region, u))
            })
            .collect()
    }

    /// Blocks that an object owns.
    pub fn blocks_of(&self, object: ObjectId) -> u64 {
        let regions = self.regions.lock();
        let units = regions
            .owners
            .iter()
            .flatten()
            .filter(|&&o| o == object.0)
            .count() as u64;
        units * u64::from(UNIT_BLOCKS)
    }

    /// Extends the file so that `bytes` of it are free beyond what is owned. For a background thread; a full disk is not an error
    /// yet.
    pub fn preallocate(&self, bytes: u64) -> Result<()> {
        let used = self.regions.lock().end(self.file);
        let wanted = used + (bytes / BLOCK_SIZE as u64) as u32;
        let Some(_one_at_a_time) = self.extending.try_lock() else {
            return Ok(());
        };
        match self.cover(wanted) {
            Err(Error::DiskFull(_)) => Ok(()),
            other => other,
        }
    }
}

impl Regions {
    /// First fit; marks what it finds.
    fn take(&mut self, object: ObjectId, count: usize) -> Option<(u32, u32)> {
        let (low_region, low_unit) = self.low;
        for region in low_region..self.owners.len() {
            let owners = &mut self.owners[region];
            let mut from = if region == low_region { low_unit } else { 0 };
            while let Some(start) = owners[from..]
                .iter()
                .position(|&o| o == 0)
                .map(|i| from + i)
            {
                let free = owners[start..]
                    .iter()
                    .take(count)
                    .take_while(|&&o| o == 0)
                    .count();
                if free == count {
                    owners[start..start + count].fill(object.0);
                    if count == 1 {
                        self.low = (region, start + 1);
                    }
                    return Some((region as u32, start as u32));
                }
                from = start + free;
            }
        }
        None
    }

    fn set(&mut self, region: u32, unit: u32, count: u32, object: ObjectId) {
        let (from, to) = (unit as usize, (unit + count) as usize);
        self.owners[region as usize][from..to].fill(object.0);
        if object == ObjectId::NONE {
            self.low = self.low.min((region as usize, from));
        }
    }

    fn runs(&self, object: ObjectId) -> Vec<(u32, u32, u32)> {
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        for (region, owners) in self.owners.iter().enumerate() {
            for (unit, _) in owners.iter().enumerate().filter(|&(_, &o)| o == object.0) {
                match runs.last_mut() {
                    Some((r, u, n)) if *r == region as u32 && *u + *n == unit as u32 => *n += 1,
                    _ => runs.push((region as u32, unit as u32, 1)),
                }
            }
        }
        runs
    }

    /// Block after the last owned one.
    fn end(&self, file: FileId) -> u32 {
        let last = self
            .owners
            .iter()
            .enumerate()
            .rev()
            .find_map(|(r, o)| o.iter().rposition(|&o| o != 0).map(|u| (r, u)));
        last.map_or(UNIT_BLOCKS, |(r, u)| {
            space::unit_block(file, r as u32, u as u32).block() + UNIT_BLOCKS
        })
    }
}
