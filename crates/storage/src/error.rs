use block::BlockError;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("cannot {what} {path} at byte {offset}: {source}")]
    Io {
        what: &'static str,
        path: String,
        offset: u64,
        source: std::sync::Arc<std::io::Error>,
    },
    /// A sync failed, so nothing is known about what was written to the file since it was last
    /// synced. Asking again would not tell: the kernel reports such a failure once and may have
    /// dropped the data. The instance must end ([`crate::lease::Lease::storage`]).
    #[error("cannot make what was written to {path} durable: {source}")]
    Sync {
        path: String,
        source: std::sync::Arc<std::io::Error>,
    },
    #[error("{path} is cut short: {wanted} bytes wanted at byte {offset}, the file ends before")]
    Short {
        path: String,
        offset: u64,
        wanted: usize,
    },
    #[error("no space left for {path}: {wanted} bytes wanted at byte {offset}")]
    Full {
        path: String,
        offset: u64,
        wanted: u64,
    },
    #[error("{path}: {source}")]
    Block { path: String, source: BlockError },
    #[error("no data file {0} in this database")]
    NoFile(u16),
    #[error("control file: {0}")]
    Control(String),
    /// `what` of the database has a format that this program does not read.
    #[error("{path}: {what} has format {found}, this braid reads {known}: the database was made by {} braid", if found < known { "an older" } else { "a newer" })]
    OtherFormat {
        path: String,
        what: &'static str,
        found: u32,
        known: u32,
    },
    #[error("{path} is in use by {by}")]
    InUse { path: String, by: String },
    #[error("{path} belongs to another instance and is not written by this one")]
    ReadOnly { path: String },
    #[error("{path} already exists")]
    Exists { path: String },
    #[error("{path} is on storage that has no locks for bytes")]
    NoLocks { path: String },
    #[error("the lock of instance {instance} on {path} is lost: others may believe it dead")]
    LockLost { path: String, instance: u16 },
    #[error(
        "{path}: the lock of instance {peer}, which lives, could be taken from here: the mount keeps locks to itself, and several instances must not use it"
    )]
    LocksAreLocal { path: String, peer: u16 },
    #[error("membership: {0}")]
    Membership(String),
    #[error("fence command {command} failed: {why}")]
    Fence { command: String, why: String },
    #[error(transparent)]
    Cancelled(#[from] wait::Cancelled),
    /// The simulated machine has lost its power.
    #[error("simulated crash")]
    Crashed,
}

impl Error {
    /// An error of the operating system. It is [`Error::Full`] if there is no space left.
    pub fn io(what: &'static str, path: &str, offset: u64, e: std::io::Error) -> Error {
        if matches!(
            e.kind(),
            std::io::ErrorKind::StorageFull
                | std::io::ErrorKind::QuotaExceeded
                | std::io::ErrorKind::FileTooLarge
        ) {
            return Error::Full {
                path: path.to_string(),
                offset,
                wanted: 0,
            };
        }
        Error::Io {
            what,
            path: path.to_string(),
            offset,
            source: std::sync::Arc::new(e),
        }
    }
    /// The error of a failed sync, whatever the reason. "No space left" at that point means that
    /// data is lost, not that it can be written later.
    pub(crate) fn sync(path: &str, e: std::io::Error) -> Error {
        Error::Sync {
            path: path.to_string(),
            source: std::sync::Arc::new(e),
        }
    }
    pub fn is_sync_failure(&self) -> bool {
        matches!(self, Error::Sync { .. })
    }
    /// Whether there is no room on the device or within the quota. Nothing was lost then, and the
    /// request can be made again once there is room.
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Full { .. })
    }
    /// Whether the disk did not give what is on it. Nothing was changed.
    pub fn is_read_failure(&self) -> bool {
        matches!(self, Error::Io { what: "read", .. })
    }
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    }
}
