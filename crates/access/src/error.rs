use block::{BlockError, ObjectId};

/// What goes wrong in heaps, trees, sequences and space.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error("index {}: {what}", object.0)]
    IndexCorrupt { object: ObjectId, what: String },
    #[error("index row size {len} exceeds maximum {max}")]
    KeyTooLong { len: usize, max: usize },
    /// SQLSTATE 2200H.
    #[error("nextval: reached {} value of sequence ({limit})", if *ascending { "maximum" } else { "minimum" })]
    SequenceLimit { limit: i64, ascending: bool },
    /// SQLSTATE 22003.
    #[error("setval: value {value} is out of bounds for sequence ({min}..{max})")]
    SequenceBounds { value: i64, min: i64, max: i64 },
}

pub type Result<T> = std::result::Result<T, Error>;
