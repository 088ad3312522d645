//! Errors of transactions, divided by what a caller would do about each.

use crate::Ring;
use block::{BlockError, TxnId, UndoPtr};

pub type Result<T> = std::result::Result<T, Error>;

/// An error that the rollback of a change met in the layer that made the change.
pub type HandlerError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This session was waiting in a circle and gave up. Its transaction must roll back.
    #[error("deadlock detected")]
    Deadlock(Box<Ring>),
    /// The lock was not free and the caller did not want to wait.
    #[error("could not obtain lock on {0}")]
    LockNotAvailable(String),
    /// The lock was not free by the time up to which the caller wanted to wait.
    #[error("canceling statement due to lock timeout")]
    LockTimeout,
    /// The sessions of the instance share as many rows as it can tell.
    #[error(
        "too many rows are locked FOR SHARE or FOR KEY SHARE: at most {}",
        crate::MOST_HELD
    )]
    TooManySharedRows,
    #[error(transparent)]
    Cancelled(#[from] wait::Cancelled),
    /// The undo that the snapshot needs has been given to newer transactions.
    #[error("snapshot too old: undo record {0:?} has been overwritten")]
    SnapshotTooOld(UndoPtr),
    /// Undo has reached its cap and active transactions hold all of it.
    #[error("undo space is full: active transactions hold all {cap_blocks} blocks")]
    UndoFull { cap_blocks: u32 },
    #[error("too many transactions or sessions: at most {limit}")]
    TooMany { limit: usize },
    /// The transaction made as many changes as undo numbers can tell apart.
    #[error("transaction {0:?} has too many changes")]
    TooManyChanges(TxnId),
    /// Putting a change back failed. The transaction stays active, to be rolled back again.
    #[error("rolling back undo record {at:?}: {source}")]
    Rollback {
        at: UndoPtr,
        #[source]
        source: HandlerError,
    },
    /// Bytes from another instance make no sense. The connection, or this instance, must end.
    #[error("a message of instance {} makes no sense: {why}", from.0)]
    BadMessage {
        from: block::InstanceId,
        why: Box<wire::Bad>,
    },
    /// Status or undo on disk is not what it must be.
    #[error("{0}")]
    Corrupt(String),
    #[error(transparent)]
    Block(#[from] BlockError),
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error(transparent)]
    Redo(#[from] redo::Error),
    #[error(transparent)]
    Cache(#[from] cache::Error),
}

impl Error {
    /// The error for a message that decodes and still cannot be meant so.
    #[cold]
    pub(crate) fn bad_message(from: block::InstanceId, why: &'static str) -> Error {
        let why = Box::new(wire::Bad::because(why));
        Error::BadMessage { from, why }
    }

    #[cold]
    pub(crate) fn deadlock(ring: Ring) -> Error {
        Error::Deadlock(Box::new(ring))
    }

    /// The circle of a deadlock.
    pub fn ring(&self) -> Option<&Ring> {
        match self {
            Error::Deadlock(ring) => Some(ring),
            _ => None,
        }
    }

    /// The SQLSTATE to tell the client. `None` leaves it to the error underneath.
    pub fn sqlstate(&self) -> Option<&'static str> {
        Some(match self {
            Error::Deadlock(_) => "40P01",
            Error::LockNotAvailable(_) | Error::LockTimeout => "55P03",
            Error::Cancelled(_) => "57014",
            Error::SnapshotTooOld(_) => "72000",
            Error::UndoFull { .. } => "53100",
            Error::TooMany { .. } => "53300",
            Error::TooManySharedRows => "53200",
            Error::TooManyChanges(_) => "54000",
            Error::BadMessage { .. } => "08P01",
            Error::Corrupt(_) | Error::Block(_) => "XX001",
            Error::Storage(e) if e.is_full() => "53100",
            Error::Rollback { .. } | Error::Storage(_) | Error::Redo(_) | Error::Cache(_) => {
                return None;
            }
        })
    }
}
