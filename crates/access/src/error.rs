use block::{BlockError, Dba, ObjectId, RowId};

/// The errors of heaps, trees, sequences and space.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Cache(#[from] cache::Error),
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error(transparent)]
    Txn(#[from] txn::Error),
    /// The data file cannot grow. SQLSTATE 53100.
    #[error("could not extend the data file: {0}")]
    DiskFull(storage::Error),
    #[error("block {header} is not the segment header of object {}", object.0)]
    WrongSegment { header: Dba, object: ObjectId },
    /// The list of extents is full. SQLSTATE 54000.
    #[error("not supported yet: segment {} has as many extents as its header has room for", object.0)]
    TooManyExtents { object: ObjectId },
    #[error("row {rid:?} of object {}: {what}", object.0)]
    HeapCorrupt {
        object: ObjectId,
        rid: RowId,
        what: String,
    },
    #[error("index {}: {what}", object.0)]
    IndexCorrupt { object: ObjectId, what: String },
    #[error("index row size {len} exceeds maximum {max}")]
    KeyTooLong { len: usize, max: usize },
    /// The sequence has reached its limit. SQLSTATE 2200H.
    #[error("nextval: reached {} value of sequence ({limit})", if *ascending { "maximum" } else { "minimum" })]
    SequenceLimit { limit: i64, ascending: bool },
    /// The value lies outside the sequence's bounds. SQLSTATE 22003.
    #[error("setval: value {value} is out of bounds for sequence ({min}..{max})")]
    SequenceBounds { value: i64, min: i64, max: i64 },
}

pub type Result<T> = std::result::Result<T, Error>;
