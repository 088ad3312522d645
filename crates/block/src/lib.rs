//! The formats of everything that is persistent: block addresses, SCNs, log positions,
//! transactions, block headers, redo records, and one module per block type.
//!
//! This crate is pure: bytes in, bytes or typed values out. It does no I/O, takes no latch and
//! knows no clock.
//!
//! **Invariant (one recipe for every change).** A block is changed in two ways only. One is
//! [`apply`]ing a change vector, at run time and in recovery alike. The other is an unlogged
//! *hint*, which changes neither SCN nor meaning (cleanout, fill levels). So what recovery replays
//! is the very code that ran the first time.

pub mod array;
pub mod composite;
pub mod folded;
pub mod format;
pub mod groups;
pub mod heap;
pub mod ids;
pub mod index;
pub mod interval;
pub mod json;
pub mod key;
pub mod numeric;
pub mod record;
pub mod row;
pub mod sequence;
pub mod space;
pub mod undo;
pub mod value;

mod apply;
mod error;

pub use apply::{Op, apply};
pub use error::{BlockError, Result};
pub use format::{BLOCK_SIZE, BlockBuf, BlockType, HEADER_SIZE};
pub use groups::{LAST_GROUPS, LastGroups};
pub use ids::{
    Dba, FileId, InstanceId, LogPos, ObjectId, RowId, Scn, Stamp, ThreadId, TxnId, UndoPtr,
};
