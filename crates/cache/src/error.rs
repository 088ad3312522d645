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
    #[error("checkpoint: {0}")]
    Checkpoint(String),
    #[error("the instance is stopping")]
    Stopping,
}
