//! Space of data files: which object owns which unit of blocks, and which extents a segment has.
//!
//! ```text
//! A data file is regions of REGION_BLOCKS blocks. The first block of a region is its space map;
//! units follow from the eighth block on.
//! space map, body: owner u32 of each unit, zero for none
//! segment header, body: places taken u32 | kind u8 | reserved 3
//!                       | places, 12 bytes each: first block u64 | blocks u24 and instance u8
//! extent map, body: as a segment header's
//!
//! Each place holds an extent. If the last place of a block has no blocks, it is a link: the list
//! goes on in the extent map at its address, which is the first block of the extent map's own first
//! extent.
//!
//! **Invariant.** The map is the truth about ownership. A segment's list of extents is set after
//! the map. After a crash between the two it may lack units that the map gives the object. Dropping
//! a segment goes by the map, so such units come back then.

use crate::{
    BLOCK_SIZE, BlockBuf, BlockError, Dba, FileId, HEADER_SIZE, InstanceId, ObjectId, Result,
};

/// The blocks in a unit, which is the smallest extent: 64 KiB.
pub const UNIT_BLOCKS: u32 = 8;
/// The units in a region.
pub const MAP_UNITS: u32 = 2000;
/// The blocks of a region: one unit for its map, and the units that the map is of. 125 MiB.
pub const REGION_BLOCKS: u32 = (MAP_UNITS + 1) * UNIT_BLOCKS;

const _: () = assert!(HEADER_SIZE + MAP_UNITS as usize * 4 <= BLOCK_SIZE);

const COUNT_AT: usize = HEADER_SIZE;
const KIND_AT: usize = HEADER_SIZE + 4;
const EXTENTS_AT: usize = HEADER_SIZE + 8;
const EXTENT: usize = 12;
/// The places in a block of a segment's list of extents. The last is kept for the link to the next
/// block.
pub const PLACES: usize = (BLOCK_SIZE - EXTENTS_AT) / EXTENT;

/// The space map of region `n` of a file.
pub fn map_block(file: FileId, region: u32) -> Dba {
    Dba::new(file, region * REGION_BLOCKS)
}

/// The first block of a unit of a region.
pub fn unit_block(file: FileId, region: u32, unit: u32) -> Dba {
    Dba::new(file, region * REGION_BLOCKS + (unit + 1) * UNIT_BLOCKS)
}

pub fn owner(map: &BlockBuf, unit: u32) -> ObjectId {
    ObjectId(map.u32_at(HEADER_SIZE + unit as usize * 4))
}

/// The payload of `SpaceSet`: `count` units from `from` on belong to `owner`, or to nobody.
pub fn set_payload(from: u32, count: u32, owner: ObjectId) -> [u8; 8] {
    let mut p = [0; 8];
    p[..2].copy_from_slice(&(from as u16).to_le_bytes());
    p[2..4].copy_from_slice(&(count as u16).to_le_bytes());
    p[4..].copy_from_slice(&owner.0.to_le_bytes());
    p
}

pub(crate) fn apply_set(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let p: &[u8; 8] = payload
        .try_into()
        .map_err(|_| BlockError::corrupt("space payload has another length"))?;
    let (from, count) = (
        u16::from_le_bytes([p[0], p[1]]) as u32,
        u16::from_le_bytes([p[2], p[3]]) as u32,
    );
    let owner = u32::from_le_bytes(p[4..].try_into().expect("four bytes"));
    if from + count > MAP_UNITS {
        return Err(BlockError::corrupt("space payload goes beyond the region"));
    }
    for unit in from..from + count {
        block.put_u32(HEADER_SIZE + unit as usize * 4, owner);
    }
    Ok(())
}

/// The purpose of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SegmentKind {
    Heap = 1,
    Index = 2,
    Sequence = 3,
}

/// Contiguous blocks of a segment, used by one instance for its inserts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub first: Dba,
    pub blocks: u32,
    pub instance: InstanceId,
}

impl Extent {
    fn encode(self) -> [u8; EXTENT] {
        let mut b = [0; EXTENT];
        b[..8].copy_from_slice(&self.first.0.to_le_bytes());
        b[8..].copy_from_slice(&(self.blocks | u32::from(self.instance.0) << 24).to_le_bytes());
        b
    }
    fn decode(b: &[u8]) -> Extent {
        let packed = u32::from_le_bytes(b[8..12].try_into().expect("four bytes"));
        Extent {
            first: Dba(u64::from_le_bytes(b[..8].try_into().expect("eight bytes"))),
            blocks: packed & 0x00ff_ffff,
            instance: InstanceId((packed >> 24) as u16),
        }
    }
}

/// The number of places taken in a block of a segment's list.
pub fn places_taken(list: &BlockBuf) -> usize {
    (list.u32_at(COUNT_AT) as usize).min(PLACES)
}

fn places(list: &BlockBuf) -> impl Iterator<Item = Extent> + '_ {
    let end = EXTENTS_AT + places_taken(list) * EXTENT;
    list.0[EXTENTS_AT..end]
        .chunks_exact(EXTENT)
        .map(Extent::decode)
}

/// The extents in a block of a segment's list.
pub fn extents(list: &BlockBuf) -> impl Iterator<Item = Extent> + '_ {
    places(list).filter(|e| e.blocks > 0)
}

/// The block in which the list goes on.
pub fn next_list(list: &BlockBuf) -> Option<Dba> {
    let last = places(list).nth(PLACES - 1)?;
    (last.blocks == 0).then_some(last.first)
}

pub fn segment_kind(header: &BlockBuf) -> Result<SegmentKind> {
    match header.0[KIND_AT] {
        1 => Ok(SegmentKind::Heap),
        2 => Ok(SegmentKind::Index),
        3 => Ok(SegmentKind::Sequence),
        k => Err(BlockError::corrupt(format!(
            "segment kind {k} is not known"
        ))),
    }
}

/// The payload of `SegmentFormat` and `ExtentMapFormat`: a list with its first extent.
pub fn segment_payload(kind: SegmentKind, first: Extent) -> Vec<u8> {
    let mut p = vec![kind as u8];
    p.extend_from_slice(&first.encode());
    p
}

/// The payload of `SegmentAddExtent` and `ExtentMapAdd`.
pub fn extent_payload(extent: Extent) -> [u8; EXTENT] {
    extent.encode()
}

/// The payload of `SegmentAddExtent` and `ExtentMapAdd` for the last place: the list goes on in the
/// extent map at `next`.
pub fn link_payload(next: Dba, instance: InstanceId) -> [u8; EXTENT] {
    let link = Extent {
        first: next,
        blocks: 0,
        instance,
    };
    link.encode()
}

pub(crate) fn apply_segment_format(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let Some((&kind, extent)) = payload.split_first() else {
        return Err(BlockError::corrupt("segment payload is empty"));
    };
    block.0[KIND_AT] = kind;
    segment_kind(block)?;
    apply_add_extent(block, extent)
}

pub(crate) fn apply_add_extent(block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let n = block.u32_at(COUNT_AT) as usize;
    if payload.len() != EXTENT || n >= PLACES {
        return Err(BlockError::corrupt("extent cannot be added"));
    }
    if Extent::decode(payload).blocks == 0 && n + 1 < PLACES {
        return Err(BlockError::corrupt("a list goes on before it is full"));
    }
    let at = EXTENTS_AT + n * EXTENT;
    block.0[at..at + EXTENT].copy_from_slice(payload);
    block.put_u32(COUNT_AT, n as u32 + 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockType, Op, apply};

    #[test]
    fn units_have_owners() {
        let mut b = BlockBuf::zeroed();
        b.format(map_block(FileId::DATA, 1), ObjectId(0), BlockType::SpaceMap);
        apply(Op::SpaceSet, &mut b, &set_payload(3, 2, ObjectId(77))).unwrap();
        let owners: Vec<_> = (2..6).map(|u| owner(&b, u).0).collect();
        assert_eq!(owners, [0, 77, 77, 0]);
        assert!(apply(Op::SpaceSet, &mut b, &set_payload(1999, 2, ObjectId(1))).is_err());
    }

    #[test]
    fn a_segment_lists_its_extents() {
        let extent = |n, blocks| Extent {
            first: Dba::new(FileId::DATA, n),
            blocks,
            instance: InstanceId(3),
        };
        let mut b = BlockBuf::zeroed();
        b.format(
            Dba::new(FileId::DATA, 8),
            ObjectId(5),
            BlockType::SegmentHeader,
        );
        apply(
            Op::SegmentFormat,
            &mut b,
            &segment_payload(SegmentKind::Index, extent(8, 8)),
        )
        .unwrap();
        apply(
            Op::SegmentAddExtent,
            &mut b,
            &extent_payload(extent(4096, 8192)),
        )
        .unwrap();
        assert_eq!(
            extents(&b).collect::<Vec<_>>(),
            [extent(8, 8), extent(4096, 8192)]
        );
        assert_eq!(segment_kind(&b).unwrap(), SegmentKind::Index);
        let next = Dba::new(FileId::DATA, 16);
        let link = link_payload(next, InstanceId(3));
        for n in 2..PLACES - 1 {
            let early = apply(Op::SegmentAddExtent, &mut b, &link);
            assert!(early.is_err(), "a link in the midst of the list");
            apply(
                Op::SegmentAddExtent,
                &mut b,
                &extent_payload(extent(n as u32, 8)),
            )
            .unwrap();
        }
        // The contents of the last place decide whether the list goes on.
        assert_eq!((places_taken(&b), next_list(&b)), (PLACES - 1, None));
        let mut old = b.clone();
        apply(Op::SegmentAddExtent, &mut b, &link).unwrap();
        assert_eq!(
            (extents(&b).count(), next_list(&b)),
            (PLACES - 1, Some(next))
        );
        apply(
            Op::SegmentAddExtent,
            &mut old,
            &extent_payload(extent(1, 8)),
        )
        .unwrap();
        assert_eq!((extents(&old).count(), next_list(&old)), (PLACES, None));
        for mut full in [b, old] {
            assert!(apply(Op::SegmentAddExtent, &mut full, &link).is_err());
        }
    }
}
