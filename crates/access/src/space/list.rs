//! A segment's list of extents. It is in the segment's header and, when that is full, in extent
//! maps. The block before an extent map links to it.
//!
//! **Invariants.**
//! - Extents are only added, in the last block of the list and under its exclusive latch. So a
//!   reader from the header on has a list that once was whole.
//! - An extent map is the first block of an extent, which it lists first, and is formatted before
//!   it is linked to. So one record, that of the link, adds both.
//! - Instances may each have formatted an extent map for one link. One of them wins. The others add
//!   their extents where the list has come to by then. The block that they formatted is one that
//!   nobody gives out and that readers pass by.

use super::Space;
use crate::{Error, Result};
use block::space::{self, Extent, PLACES, SegmentKind};
use block::{BlockType, Dba, ObjectId, Op};
use cache::{Change, RecordHeader};

/// A block of a list, as it was read.
struct ListBlock {
    kind: SegmentKind,
    extents: Vec<Extent>,
    taken: usize,
    next: Option<Dba>,
}

impl Space {
    /// All extents that the segment at `header` lists. It is called with no latch held.
    pub fn extents(&self, object: ObjectId, header: Dba) -> Result<Vec<Extent>> {
        let mut all = Vec::new();
        self.each_list(object, header, |_, list| all.extend(list.extents))?;
        Ok(all)
    }

    /// Gives the segment another extent. Returns the extent, and how many of its first blocks the
    /// list itself has taken.
    pub fn add_extent(&self, object: ObjectId, header: Dba, blocks: u32) -> Result<(Extent, u32)> {
        // This looks before units are taken: otherwise they would be lost to everybody until the
        // object is dropped.
        let (mut tail, kind) = self.last_list(object, header)?;
        let first = self.take(object, blocks, None)?;
        let extent = Extent {
            first,
            blocks,
            instance: self.instance,
        };
        let mut own = 0;
        loop {
            let list = self.list(object, header, tail)?;
            if let Some(next) = list.next {
                tail = next;
                continue;
            }
            let link = list.taken + 1 == PLACES;
            if link && own == 0 {
                self.format_list(object, kind, extent)?;
                own = 1;
            }
            if self.add_place(object, header, tail, list.taken, extent, link)? {
                return Ok((extent, own));
            }
        }
    }

    /// Takes the next place of a list's last block. False if another session has taken it
    /// meanwhile.
    fn add_place(
        &self,
        object: ObjectId,
        header: Dba,
        tail: Dba,
        taken: usize,
        extent: Extent,
        link: bool,
    ) -> Result<bool> {
        self.cache.reserve()?;
        let mut guard = self.cache.write(tail)?;
        let op = match (guard.object() == object, guard.block_type()) {
            (true, Ok(BlockType::SegmentHeader)) => Op::SegmentAddExtent,
            (true, Ok(BlockType::ExtentMap)) => Op::ExtentMapAdd,
            _ => return Err(Error::WrongSegment { header, object }),
        };
        if space::places_taken(&guard) != taken {
            return Ok(false);
        }
        let payload = match link {
            true => space::link_payload(extent.first, self.instance),
            false => space::extent_payload(extent),
        };
        let change = Change {
            guard: &mut guard,
            op,
            object,
            payload: &payload,
        };
        self.cache
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
        Ok(true)
    }

    /// Makes an extent's first block a block of the list, with that extent as its first.
    fn format_list(&self, object: ObjectId, kind: SegmentKind, extent: Extent) -> Result<()> {
        self.cache.reserve()?;
        let mut guard = self.cache.write_new(extent.first)?;
        let payload = space::segment_payload(kind, extent);
        let change = Change {
            guard: &mut guard,
            op: Op::ExtentMapFormat,
            object,
            payload: &payload,
        };
        self.cache
            .change(RecordHeader::NONE, &mut [change], |_, _| {});
        Ok(())
    }

    /// The last block of a list.
    fn last_list(&self, object: ObjectId, header: Dba) -> Result<(Dba, SegmentKind)> {
        let mut last = None;
        self.each_list(object, header, |dba, list| {
            last = Some((dba, list.kind, list.taken, list.next));
        })?;
        match last {
            // A header from before there were extent maps may have an extent at the place of the
            // link.
            Some((_, _, PLACES, None)) => Err(Error::TooManyExtents { object }),
            Some((dba, kind, ..)) => Ok((dba, kind)),
            None => Err(Error::WrongSegment { header, object }),
        }
    }

    fn each_list(
        &self,
        object: ObjectId,
        header: Dba,
        mut f: impl FnMut(Dba, ListBlock),
    ) -> Result<()> {
        let mut seen = Vec::new();
        let mut at = Some(header);
        while let Some(dba) = at {
            // Only a damaged list comes back to where it was.
            if seen.contains(&dba) {
                return Err(Error::WrongSegment { header, object });
            }
            seen.push(dba);
            let list = self.list(object, header, dba)?;
            at = list.next;
            f(dba, list);
        }
        Ok(())
    }

    /// A block of the list of the segment at `header`.
    fn list(&self, object: ObjectId, header: Dba, dba: Dba) -> Result<ListBlock> {
        let block = self.cache.read(dba)?;
        let wanted = match dba == header {
            true => BlockType::SegmentHeader,
            false => BlockType::ExtentMap,
        };
        if block.object() != object || !matches!(block.block_type(), Ok(found) if found == wanted) {
            return Err(Error::WrongSegment { header, object });
        }
        let kind =
            space::segment_kind(&block).map_err(|_| Error::WrongSegment { header, object })?;
        Ok(ListBlock {
            kind,
            extents: space::extents(&block).collect(),
            taken: space::places_taken(&block),
            next: space::next_list(&block),
        })
    }
}
