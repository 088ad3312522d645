//! The one place where a change vector meets a block.

use crate::{BlockBuf, BlockError, Result};

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// What a change vector does. The numbers are part of the redo format: never reused, never changed.
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
    // Heap blocks: 100..199.
    HeapInsert = 100,
    // Undo blocks: 300..399.
    /// Starts a new use of an undo block; formats it.
    UndoFormat = 300,
    /// Adds one undo record.
    UndoAppend = 301,
}

/// Applies `op` to a block. The caller has checked the block's SCN and sets it afterwards.
/// Called with the block latched exclusively (run time) or owned (recovery).
pub fn apply(op: Op, block: &mut BlockBuf, payload: &[u8]) -> Result<()> {
    match op {
        Op::UndoFormat => crate::undo::apply_format(block, payload),
        Op::UndoAppend => crate::undo::apply_append(block, payload),
        Op::Commit | Op::RollbackEnd | Op::ActiveTransactions => Err(BlockError::corrupt(format!(
            "{op:?} is a marker and changes no block"
        ))),
        Op::HeapInsert => Ok(()),
    }
}
