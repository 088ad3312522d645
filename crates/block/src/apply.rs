//! The one place where a change vector meets a block.

use crate::{BlockBuf, BlockError, BlockType, Result};

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// The operation of a change vector. The numbers are part of the redo format: they are
        /// never reused and never changed.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u16)]
        pub enum Op { $($(#[$doc])* $name = $value),* }

        impl Op {
            pub fn from_u16(v: u16) -> Result<Op> {
                match v {
                    $($value => Ok(Op::$name),)*
                    _ => Err(BlockError::corrupt(format!("redo operation {v} is not known"))),
                }
            }
        }
    };
}

ops! {
    // Markers: no block.
    Commit = 1,
    RollbackEnd = 2,
    ActiveTransactions = 3,
    /// Changes nothing: only the header of its batch is wanted.
    Heartbeat = 4,
    // Heap blocks: 100..199. See `heap`.
    /// Puts a row into a free slot.
    HeapInsert = 100,
    /// Formats an empty block.
    HeapFormat = 101,
    /// Puts rows with one head into free slots.
    HeapInsertMany = 102,
    /// Gives a row another head and body.
    HeapOverwrite = 103,
    /// Gives a row another head.
    HeapSetHead = 104,
    /// Frees slots, and trims rows to their bodies.
    HeapPrune = 105,
    /// Says which instances may have sharers of a row.
    HeapSetSharers = 106,
    // Index blocks: 200..299. See `index`.
    /// Formats a fresh block of a tree with its contents.
    IndexFormat = 200,
    IndexInsert = 201,
    // 202 is not used again: it was an insertion of several entries, each with its position.
    /// Delete-marks an entry with a stamp, or takes the mark away.
    IndexMark = 203,
    IndexRemove = 204,
    /// Leaves the left half of a split.
    IndexTruncate = 205,
    /// Gives a root that was split new contents.
    IndexReplace = 206,
    IndexSetRight = 207,
    IndexSetLow = 208,
    IndexDead = 209,
    IndexSetChild = 210,
    /// Formats an empty list of freed blocks.
    IndexMetaFormat = 211,
    IndexMetaPush = 212,
    IndexMetaPop = 213,
    IndexSetPrefix = 214,
    /// Inserts entries in runs that follow each other.
    IndexInsertRuns = 215,
    // Undo blocks: 300..399.
    /// Formats an undo block for a new use.
    UndoFormat = 300,
    /// Adds one undo record.
    UndoAppend = 301,
    // Space: 400..499. See `space`.
    /// Formats an empty space map.
    SpaceMapFormat = 400,
    /// Gives units to an object, or to nobody.
    SpaceSet = 401,
    /// Formats a segment header with its first extent.
    SegmentFormat = 410,
    SegmentAddExtent = 411,
    /// Formats a further block of a segment's list of extents, with its first extent.
    ExtentMapFormat = 412,
    ExtentMapAdd = 413,
    // Sequences: 500..599.
    /// Formats a sequence, which stands at its start.
    SequenceFormat = 500,
    /// Moves the high-water mark.
    SequenceMark = 501,
}

impl Op {
    /// The type of block that a formatting operation makes of whatever was there. None for other
    /// operations. `apply` then meets a block that has just been given a fresh header
    /// ([`BlockBuf::format`]).
    pub fn formats(self) -> Option<BlockType> {
        match self {
            Op::IndexFormat => Some(BlockType::Index),
            Op::IndexMetaFormat => Some(BlockType::IndexMeta),
            Op::UndoFormat => Some(BlockType::Undo),
            Op::HeapFormat => Some(BlockType::Heap),
            Op::SpaceMapFormat => Some(BlockType::SpaceMap),
            Op::SegmentFormat => Some(BlockType::SegmentHeader),
            Op::ExtentMapFormat => Some(BlockType::ExtentMap),
            Op::SequenceFormat => Some(BlockType::Sequence),
            _ => None,
        }
    }
}

impl Op {
    /// The type of block that the operation is for. None for markers.
    pub fn block_type(self) -> Option<BlockType> {
        match self as u16 {
            100..200 => Some(BlockType::Heap),
            300..400 => Some(BlockType::Undo),
            412..414 => Some(BlockType::ExtentMap),
            410..500 => Some(BlockType::SegmentHeader),
            400..410 => Some(BlockType::SpaceMap),
            500..600 => Some(BlockType::Sequence),
            _ => match self {
                Op::IndexMetaFormat | Op::IndexMetaPush | Op::IndexMetaPop => {
                    Some(BlockType::IndexMeta)
                }
                Op::Commit | Op::RollbackEnd | Op::ActiveTransactions | Op::Heartbeat => None,
                _ => Some(BlockType::Index),
            },
        }
    }
}

/// Applies `op` to a block. The caller has checked the block's SCN and sets it afterwards. The
/// block is latched exclusively (run time) or owned (recovery).
pub fn apply(op: Op, block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    let found = block.block_type()?;
    if op.block_type().is_some_and(|wanted| wanted != found) {
        return Err(BlockError::corrupt(format!(
            "{op:?} meets a {found:?} block"
        )));
    }
    match op {
        Op::IndexFormat | Op::IndexReplace => crate::index::apply_replace(block, payload),
        Op::IndexInsert => crate::index::apply_insert(block, payload),
        Op::IndexInsertRuns => crate::index::apply_insert_runs(block, payload),
        Op::IndexMark => crate::index::apply_mark(block, payload),
        Op::IndexRemove => crate::index::apply_remove(block, payload),
        Op::IndexTruncate => crate::index::apply_truncate(block, payload),
        Op::IndexSetRight => crate::index::apply_set_right(block, payload),
        Op::IndexSetLow => crate::index::apply_set_low(block, payload),
        Op::IndexDead => crate::index::apply_dead(block, payload),
        Op::IndexSetChild => crate::index::apply_set_child(block, payload),
        Op::IndexSetPrefix => crate::index::apply_set_prefix(block, payload),
        Op::IndexMetaFormat => Ok(()),
        Op::IndexMetaPush => crate::index::apply_meta_push(block, payload),
        Op::IndexMetaPop => crate::index::apply_meta_pop(block, payload),
        Op::SequenceFormat => crate::sequence::apply_format(block, payload),
        Op::SequenceMark => crate::sequence::apply_mark(block, payload),
        Op::UndoFormat => crate::undo::apply_format(block, payload),
        Op::UndoAppend => crate::undo::apply_append(block, payload),
        Op::Commit | Op::RollbackEnd | Op::ActiveTransactions | Op::Heartbeat => Err(
            BlockError::corrupt(format!("{op:?} is a marker and changes no block")),
        ),
        Op::HeapFormat => crate::heap::apply_format(block),
        Op::HeapInsert => crate::heap::apply_insert(block, payload),
        Op::HeapInsertMany => crate::heap::apply_insert_many(block, payload),
        Op::HeapOverwrite => crate::heap::apply_overwrite(block, payload),
        Op::HeapSetHead => crate::heap::apply_set_head(block, payload),
        Op::HeapSetSharers => crate::heap::apply_set_sharers(block, payload),
        Op::HeapPrune => crate::heap::apply_prune(block, payload),
        Op::SpaceMapFormat => Ok(()),
        Op::SpaceSet => crate::space::apply_set(block, payload),
        Op::SegmentFormat | Op::ExtentMapFormat => {
            crate::space::apply_segment_format(block, payload)
        }
        Op::SegmentAddExtent | Op::ExtentMapAdd => crate::space::apply_add_extent(block, payload),
    }
}
