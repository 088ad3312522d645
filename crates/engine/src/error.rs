//! Errors of the engine, each with the SQLSTATE a client sees.

use block::{ObjectId, RowId};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("duplicate key value violates unique constraint \"{index}\"")]
    UniqueViolation {
        index: String,
        table: ObjectId,
        index_object: ObjectId,
        /// The row that was refused, if it is in the heap. Its transaction can fetch it to say
        /// which key it was.
        row: Option<RowId>,
    },
    #[error("could not serialize access due to concurrent {0}")]
    Serialization(&'static str),
    #[error("could not obtain lock on row")]
    LockNotAvailable,
    #[error("sequence {} has reached its limit", object.0)]
    SequenceLimit { object: ObjectId, descending: bool },
    #[error("more than {0} temporary files at a time")]
    TooManyTempFiles(u32),
    #[error("a row of more than 4 GB cannot be sorted")]
    RecordTooLong,
    #[error("{0}")]
    Corrupt(String),
    /// The key of a row in an index cannot be computed.
    #[error("{0}")]
    Computed(crate::table::ComputeError),
    /// Something that this version does not do yet.
    #[error("{0}")]
    NotSupported(String),
    /// Other instances do not do what this one waits for.
    #[error("{0}")]
    Cluster(String),
    /// Something lies at a path that creation would write to.
    #[error("{0} is not empty, and no creation of a database has left it: nothing was changed")]
    InTheWay(String),
    #[error("no database in {0}")]
    NoDatabase(String),
    #[error("cannot start thread {name}: {source}")]
    Thread {
        name: &'static str,
        source: std::io::Error,
    },
    #[error("redo record at {pos} of thread {thread} cannot be applied to block {dba}: {what}")]
    Replay {
        thread: u16,
        pos: u64,
        dba: block::Dba,
        what: String,
    },
    #[error(transparent)]
    Access(access::Error),
    #[error(transparent)]
    Txn(txn::Error),
    #[error(transparent)]
    Cache(#[from] cache::Error),
    #[error(transparent)]
    Redo(#[from] redo::Error),
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error(transparent)]
    Block(#[from] block::BlockError),
}

impl From<txn::Error> for Error {
    fn from(e: txn::Error) -> Error {
        match e {
            txn::Error::Cache(e) => Error::Cache(e),
            txn::Error::Redo(e) => Error::Redo(e),
            txn::Error::Storage(e) => Error::Storage(e),
            e => Error::Txn(e),
        }
    }
}

impl From<access::Error> for Error {
    fn from(e: access::Error) -> Error {
        match e {
            access::Error::Txn(e) => e.into(),
            access::Error::Cache(e) => Error::Cache(e),
            access::Error::Storage(e) => Error::Storage(e),
            access::Error::Block(e) => Error::Block(e),
            e => Error::Access(e),
        }
    }
}

/// What a person who starts or verifies a database can do about an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Make room: the device or the quota is full.
    MakeRoom,
    /// Grant access: the operating system does not let this user do it.
    GrantAccess,
    /// Use another version of the program: the files have that version's formats.
    OtherVersion,
    /// Stop the instance: this must be the only process that works in the directory.
    StopInstance,
    /// Choose another directory: this one holds something else.
    ChooseDirectory,
}

impl Error {
    /// What can be done about this error, if that is known.
    pub fn remedy(&self) -> Option<Remedy> {
        let storage = match self {
            Error::Storage(e)
            | Error::Cache(
                cache::Error::Storage(e) | cache::Error::Redo(redo::Error::Storage(e)),
            )
            | Error::Redo(redo::Error::Storage(e)) => e,
            Error::InTheWay(_) => return Some(Remedy::ChooseDirectory),
            _ if self.sqlstate() == "53100" => return Some(Remedy::MakeRoom),
            _ => return None,
        };
        match storage {
            storage::Error::Full { .. } => Some(Remedy::MakeRoom),
            storage::Error::InUse { .. } => Some(Remedy::StopInstance),
            storage::Error::OtherFormat { .. } => Some(Remedy::OtherVersion),
            storage::Error::Io { source, .. }
                if source.kind() == std::io::ErrorKind::PermissionDenied
                    || source.kind() == std::io::ErrorKind::ReadOnlyFilesystem =>
            {
                Some(Remedy::GrantAccess)
            }
            _ => None,
        }
    }

    /// The circle of a deadlock.
    pub fn ring(&self) -> Option<&txn::Ring> {
        match self {
            Error::Txn(e) => e.ring(),
            _ => None,
        }
    }

    /// The SQLSTATE that a client is told: class 53 if something has run out, 40 for a transaction
    /// that may be tried again, XX for damage.
    pub fn sqlstate(&self) -> &'static str {
        match self {
            Error::UniqueViolation { .. } => "23505",
            Error::TooManyTempFiles(_) => "53400",
            Error::RecordTooLong => "54000",
            Error::Serialization(_) => "40001",
            Error::LockNotAvailable => "55P03",
            Error::SequenceLimit { .. } => "2200H",
            Error::NoDatabase(_) => "3D000",
            Error::InTheWay(_) => "58P02",
            Error::NotSupported(_) => "0A000",
            Error::Cluster(_) => "57P03",
            Error::Block(_) | Error::Replay { .. } | Error::Corrupt(_) => "XX001",
            Error::Access(e) => of_access(e),
            Error::Txn(e) => of_txn(e),
            Error::Cache(e) => of_cache(e),
            Error::Redo(e) => of_redo(e),
            Error::Storage(e) => of_storage(e),
            Error::Thread { .. } => "53000",
            // The caller knows its own error.
            Error::Computed(_) => "XX000",
        }
    }

    /// Whether this is a failed sync ([`storage::Error::Sync`]).
    pub(crate) fn is_sync_failure(&self) -> bool {
        match self {
            Error::Storage(e)
            | Error::Cache(
                cache::Error::Storage(e) | cache::Error::Redo(redo::Error::Storage(e)),
            )
            | Error::Redo(redo::Error::Storage(e)) => e.is_sync_failure(),
            _ => false,
        }
    }
}

fn of_access(e: &access::Error) -> &'static str {
    match e {
        access::Error::DiskFull(_) => "53100",
        access::Error::TooManyExtents { .. } | access::Error::KeyTooLong { .. } => "54000",
        access::Error::SequenceLimit { .. } => "2200H",
        access::Error::SequenceBounds { .. } => "22003",
        access::Error::Txn(e) => of_txn(e),
        access::Error::Cache(e) => of_cache(e),
        access::Error::Storage(e) => of_storage(e),
        access::Error::Block(_)
        | access::Error::WrongSegment { .. }
        | access::Error::HeapCorrupt { .. }
        | access::Error::IndexCorrupt { .. } => "XX001",
    }
}

fn of_txn(e: &txn::Error) -> &'static str {
    match e {
        txn::Error::Cache(e) => of_cache(e),
        txn::Error::Redo(e) => of_redo(e),
        txn::Error::Storage(e) => of_storage(e),
        // The cause is the error that the engine's own handler of undo met.
        txn::Error::Rollback { source, .. } => source
            .downcast_ref::<access::Error>()
            .map_or("XX001", of_access),
        e => e.sqlstate().unwrap_or("XX000"),
    }
}

fn of_cache(e: &cache::Error) -> &'static str {
    match e {
        e if e.is_full() => "53100",
        cache::Error::Cancelled(_) => "57014",
        cache::Error::Storage(e) => of_storage(e),
        _ => "58030",
    }
}

fn of_redo(e: &redo::Error) -> &'static str {
    match e {
        redo::Error::Storage(e) => of_storage(e),
        _ => "58030",
    }
}

fn of_storage(e: &storage::Error) -> &'static str {
    match e {
        e if e.is_full() => "53100",
        storage::Error::Cancelled(_) => "57014",
        storage::Error::InUse { .. } => "55006",
        storage::Error::Block { .. } => "XX001",
        _ => "58030",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_fails_with_the_state_of_what_it_met() {
        let state = |source: txn::HandlerError| {
            let at = block::UndoPtr::NONE;
            Error::from(txn::Error::Rollback { at, source }).sqlstate()
        };
        let device = access::Error::Storage(storage::Error::Crashed);
        assert_eq!(state(Box::new(device)), "58030");
        assert_eq!(state("undo of a row is cut short".into()), "XX001");
    }
}
