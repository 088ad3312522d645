//! Space of the data file: which object owns which blocks.
//!
//! **Owns** the space maps. A segment's own list of extents begins in its header ([`list`],
//! [`segment`]).
//!
//! **Invariants.**
//! - Units are taken from what the map block says, under its exclusive latch, in the record that is
//!   logged under the latch. Only then are they used. So instances that share the block never give
//!   out a unit twice. Memory holds hints alone: where it is worth looking.
//! - A region exists once its map is formatted, which is decided under the map's own exclusive
//!   latch. Regions are added at the end and never removed.
//! - The map knows the owner. A crash between the map and the segment header leaves units that
//!   nobody uses, and that come back when the object is dropped. A crash in the middle of creating
//!   a segment is undone by the transaction's undo.
//! - The file is longer than what is owned. It is extended before units are taken, ahead of need by
//!   [`Space::preallocate`]. It never gets shorter.
//! - No latch is held while a block, the file or the log is waited for.

mod hints;
mod list;
mod map;
pub mod segment;

use crate::{Error, Result};
use block::space::{self, Extent, MAP_UNITS, REGION_BLOCKS, SegmentKind, UNIT_BLOCKS};
use block::{BLOCK_SIZE, Dba, FileId, InstanceId, ObjectId, Op};
use cache::{Cache, Change, ReadGuard, RecordHeader};
use hints::{Hints, Members};
use seam::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use txn::{Transaction, Undo};
use wait::Event;

/// The kind of undo of a segment's creation. The payload is empty; the record's object names the
/// segment.
pub const UNDO_SEGMENT_CREATE: u16 = 150;

pub struct Space {
    cache: Arc<Cache>,
    file: FileId,
    instance: InstanceId,
    hints: Hints,
    members: Members,
    /// Held while the file is extended, with no latch. A lock of the file keeps other instances
    /// out.
    extending: Mutex<()>,
}

impl Space {
    /// Opens the space of `file` as an instance uses it. An empty file is
    /// [formatted](Space::format) first.
    pub fn open(cache: Arc<Cache>, file: FileId, instance: InstanceId) -> Result<Space> {
        let space = Space {
            cache,
            file,
            instance,
            hints: Hints::default(),
            members: Members::default(),
            extending: Mutex::new(()),
        };
        space.regions()?;
        Ok(space)
    }

    /// Formats the first map of an empty file.
    pub fn format(&self) -> Result<()> {
        assert!(
            self.regions()? == 0,
            "invariant: only an empty file is formatted"
        );
        self.add_region(0)
    }

    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }
    pub fn instance(&self) -> InstanceId {
        self.instance
    }
    /// The instances that are up besides this one, as far as is known.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The number of regions. Known ones stay; there may be new ones since the last look.
    fn regions(&self) -> Result<u32> {
        loop {
            let next = self.hints.regions();
            let map = space::map_block(self.file, next);
            let in_file = map.block() < self.cache.files().blocks(self.file)?;
            if !in_file || self.cache.read(map)?.is_unformatted() {
                return Ok(next);
            }
            self.hints.found_region(next);
        }
    }

    /// Formats the map of a region, unless another instance has just done so.
    fn add_region(&self, region: u32) -> Result<()> {
        let dba = space::map_block(self.file, region);
        self.cover(dba.block() + UNIT_BLOCKS)?;
        self.cache.reserve()?;
        let mut guard = self.cache.write(dba)?;
        if guard.is_unformatted() {
            let change = Change {
                guard: &mut guard,
                op: Op::SpaceMapFormat,
                object: ObjectId::NONE,
                payload: &[],
            };
            self.cache
                .change(RecordHeader::NONE, &mut [change], |_, _| {});
        }
        drop(guard);
        self.hints.found_region(region);
        Ok(())
    }

    fn read_map(&self, region: u32) -> Result<ReadGuard<'_>> {
        Ok(self.cache.read(space::map_block(self.file, region))?)
    }

    /// Makes the file at least `blocks` long, and returns its length.
    fn cover(&self, blocks: u32) -> Result<u32> {
        let files = self.cache.files();
        let length = files.blocks(self.file)?;
        if length >= blocks {
            return Ok(length);
        }
        let _one_at_a_time = wait::during(Event::EnqHw, [0; 3], || self.extending.lock());
        self.extend(blocks)?;
        Ok(files.blocks(self.file)?)
    }

    /// Extends the file, with `extending` held.
    fn extend(&self, blocks: u32) -> Result<()> {
        if self.cache.files().blocks(self.file)? >= blocks {
            return Ok(());
        }
        let extended = self.cache.files().extend_shared(self.file, blocks);
        if extended.is_err() {
            wait::check_cancel().map_err(txn::Error::from)?;
        }
        extended.map_err(|e| match e.is_full() {
            true => Error::DiskFull(e),
            false => Error::from(e),
        })
    }

    /// Takes `blocks` (a multiple of a unit) contiguous blocks for `object`. If a transaction is
    /// given, the record also carries the undo of the segment that is being created.
    fn take(
        &self,
        object: ObjectId,
        blocks: u32,
        mut creating: Option<&mut Transaction>,
    ) -> Result<Dba> {
        let count = blocks / UNIT_BLOCKS;
        assert!(
            count > 0 && count <= MAP_UNITS && blocks.is_multiple_of(UNIT_BLOCKS),
            "invariant: extents are whole units"
        );
        loop {
            for region in self.hints.with_room(count, self.instance) {
                // A map that has nothing free is not taken away from other instances.
                let free = map::longest_free(&*self.read_map(region)?);
                if free < count {
                    self.hints.set_free(region, free);
                    continue;
                }
                if let Some(first) = self.take_in(region, object, count, creating.as_deref_mut())? {
                    return Ok(first);
                }
            }
            // Before the file grows, this looks for what other instances have given back.
            let regions = self.regions()?;
            for region in 0..regions {
                let free = map::longest_free(&*self.read_map(region)?);
                self.hints.set_free(region, free);
            }
            if self.hints.with_room(count, self.instance).is_empty() {
                self.add_region(regions)?;
            }
        }
    }

    /// Takes the first `count` free units in a row that the region's map has. None if it has none.
    fn take_in(
        &self,
        region: u32,
        object: ObjectId,
        count: u32,
        mut creating: Option<&mut Transaction>,
    ) -> Result<Option<Dba>> {
        let mut covered = self.cache.files().blocks(self.file)?;
        loop {
            let slot = match &mut creating {
                Some(txn) => Some(txn.prepare_undo(0)?),
                None => {
                    self.cache.reserve()?;
                    None
                }
            };
            let mut map = self.cache.write(space::map_block(self.file, region))?;
            let Some(unit) = map::first_fit(&map, count) else {
                let free = map::longest_free(&map);
                drop(map);
                self.hints.set_free(region, free);
                return Ok(None);
            };
            let first = space::unit_block(self.file, region, unit);
            let end = first.block() + count * UNIT_BLOCKS;
            if end > covered {
                drop(map);
                covered = self.cover(end)?;
                continue;
            }
            let payload = space::set_payload(unit, count, object);
            let mut change = [Change {
                guard: &mut map,
                op: Op::SpaceSet,
                object: ObjectId::NONE,
                payload: &payload,
            }];
            match (&mut creating, slot) {
                (Some(txn), Some(slot)) => {
                    let undo = Undo {
                        kind: UNDO_SEGMENT_CREATE,
                        object,
                        payload: &[],
                    };
                    txn.log(slot, &undo, &mut change);
                }
                _ => {
                    self.cache
                        .change(RecordHeader::NONE, &mut change, |_, _| {});
                }
            }
            let free = map::longest_free(&map);
            drop(map);
            self.hints.set_free(region, free);
            return Ok(Some(first));
        }
    }

    /// Creates a segment for `object`, which is gone again if the transaction rolls back. Returns
    /// the segment's header block.
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
        self.cache.reserve()?;
        let mut guard = self.cache.write_new(first)?;
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

    /// Takes all units from an object. The caller knows that nobody uses them any more, on any
    /// instance. A second call does nothing.
    pub fn drop_segment(&self, object: ObjectId) -> Result<()> {
        assert!(
            object != ObjectId::NONE,
            "invariant: a segment belongs to an object"
        );
        for region in 0..self.regions()? {
            // Most maps have no units of the object. They are not taken away from other instances.
            while map::next_run(&*self.read_map(region)?, object).is_some() {
                self.cache.reserve()?;
                let mut map = self.cache.write(space::map_block(self.file, region))?;
                let Some((unit, count)) = map::next_run(&map, object) else {
                    break;
                };
                let payload = space::set_payload(unit, count, ObjectId::NONE);
                let change = Change {
                    guard: &mut map,
                    op: Op::SpaceSet,
                    object: ObjectId::NONE,
                    payload: &payload,
                };
                self.cache
                    .change(RecordHeader::NONE, &mut [change], |_, _| {});
                let free = map::longest_free(&map);
                drop(map);
                self.hints.set_free(region, free);
            }
        }
        Ok(())
    }

    /// All objects that own space.
    pub fn owners(&self) -> Result<BTreeSet<ObjectId>> {
        let mut owners = BTreeSet::new();
        for region in 0..self.regions()? {
            let map = self.read_map(region)?;
            owners.extend(map::owners(&map).filter(|&o| o != ObjectId::NONE));
        }
        Ok(owners)
    }

    /// Whether the unit that a block is in belongs to the object.
    pub fn owns(&self, object: ObjectId, dba: Dba) -> Result<bool> {
        let (region, within) = (dba.block() / REGION_BLOCKS, dba.block() % REGION_BLOCKS);
        let Some(unit) = (within / UNIT_BLOCKS).checked_sub(1) else {
            return Ok(false);
        };
        if dba.file() != self.file || region >= self.hints.regions() && region >= self.regions()? {
            return Ok(false);
        }
        Ok(space::owner(&*self.read_map(region)?, unit) == object)
    }

    /// The first blocks of the units that an object owns.
    pub fn units_of(&self, object: ObjectId) -> Result<Vec<Dba>> {
        let mut units = Vec::new();
        for region in 0..self.regions()? {
            let map = self.read_map(region)?;
            let own = (0..MAP_UNITS).filter(|&u| space::owner(&map, u) == object);
            units.extend(own.map(|u| space::unit_block(self.file, region, u)));
        }
        Ok(units)
    }

    /// The number of blocks that an object owns.
    pub fn blocks_of(&self, object: ObjectId) -> Result<u64> {
        let mut units = 0;
        for region in 0..self.regions()? {
            let map = self.read_map(region)?;
            units += map::owners(&map).filter(|&o| o == object).count() as u64;
        }
        Ok(units * u64::from(UNIT_BLOCKS))
    }

    /// Extends the file so that `bytes` of it are free beyond what is owned. A background thread
    /// calls it. A full disk is not an error yet.
    pub fn preallocate(&self, bytes: u64) -> Result<()> {
        let wanted = self.end()? + (bytes / BLOCK_SIZE as u64) as u32;
        let Some(_one_at_a_time) = self.extending.try_lock() else {
            return Ok(());
        };
        match self.extend(wanted) {
            Err(Error::DiskFull(_)) => Ok(()),
            other => other,
        }
    }

    /// The block after the last owned one.
    fn end(&self) -> Result<u32> {
        for region in (0..self.regions()?).rev() {
            let map = self.read_map(region)?;
            let last = (0..MAP_UNITS)
                .rev()
                .find(|&u| space::owner(&map, u) != ObjectId::NONE);
            if let Some(unit) = last {
                return Ok(space::unit_block(self.file, region, unit).block() + UNIT_BLOCKS);
            }
        }
        Ok(UNIT_BLOCKS)
    }
}
