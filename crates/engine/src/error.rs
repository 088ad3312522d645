//! Errors of the engine, each with the SQLSTATE a client sees.

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("duplicate key value violates unique constraint \"{index}\"")]
    UniqueViolation { index: String, table: block::ObjectId, index_object: block::ObjectId },
    #[error("could not serialize access due to concurrent update")]
    Serialization,
    #[error("could not obtain lock on row")]
    LockNotAvailable,
    #[error("{0}")]
    Corrupt(String),
}

impl Error {
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Error::UniqueViolation { .. } => "23505",
            Error::Serialization => "40001",
            Error::LockNotAvailable => "55P03",
            Error::Corrupt(_) => "XX001",
        }
    }
}
