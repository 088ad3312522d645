//! Errors of the buffer cache.

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error(transparent)]
    Redo(#[from] redo::Error),
    #[error("cannot get {bytes} bytes of memory for buffers: {source}")]
    Memory {
        bytes: usize,
        source: std::io::Error,
    },
    #[error("cannot start thread {name}: {source}")]
    Thread {
        name: &'static str,
        source: std::io::Error,
    },
    /// `full` says that there was no space. The checkpoint will be tried again.
    #[error("the checkpoint failed: {what}")]
    Checkpoint { what: String, full: bool },
    #[error("the instance is stopping")]
    Stopping,
    #[error(transparent)]
    Cancelled(#[from] wait::Cancelled),
    #[error("instance {} sent a message of kind {kind} that makes no sense: {why}", .from.0)]
    BadMessage {
        from: block::InstanceId,
        kind: u16,
        why: Box<wire::Bad>,
    },
    #[error("a message about blocks came to an instance that is in no cluster")]
    NotInCluster,
}

impl Error {
    /// Whether there is no room on the device. Nothing was lost then, and the request can be made
    /// again once there is room.
    pub fn is_full(&self) -> bool {
        match self {
            Error::Storage(e) => e.is_full(),
            Error::Checkpoint { full, .. } => *full,
            _ => false,
        }
    }

    /// Whether nothing has been written in vain, so that what failed can be done again later. (A
    /// failed write or sync is the end of the instance.)
    pub(crate) fn can_be_tried_again(&self) -> bool {
        self.is_full() || matches!(self, Error::Storage(e) if e.is_read_failure())
    }
}
