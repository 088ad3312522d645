use crate::{Dba, ObjectId};

/// What a decoder finds wrong with bytes that came from disk, redo or the network. It never panics
/// over them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    #[error("block {dba}: checksum {found:08x} found, {computed:08x} computed")]
    Checksum { dba: Dba, found: u32, computed: u32 },
    #[error("block {dba}: holds block {found} (misdirected write)")]
    Misdirected { dba: Dba, found: Dba },
    #[error("block {dba}: belongs to object {found:?}, not {wanted:?}")]
    WrongObject {
        dba: Dba,
        wanted: ObjectId,
        found: ObjectId,
    },
    #[error("format version {0} is not known to this program")]
    Version(u8),
    #[error("{0}")]
    Corrupt(String),
}

pub type Result<T> = std::result::Result<T, BlockError>;

impl BlockError {
    pub fn corrupt(what: impl Into<String>) -> BlockError {
        BlockError::Corrupt(what.into())
    }
}
