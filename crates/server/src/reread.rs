//! Query messages of sessions that read strings in a way of their own.

use sql::{Error, Reread};

/// The text of a Query message.
pub(crate) struct Whole<'t> {
    /// As it is run.
    pub read: &'t str,
    /// What that was made of, if not of the client's text alone.
    pub reread: Option<&'t Reread>,
}

impl Whole<'_> {
    /// An error of a piece, whose position is counted in the client's text.
    pub fn error(&self, error: Error, piece: &str) -> Error {
        let error = error.within(self.read, piece);
        match self.reread {
            Some(reread) => reread.error(error),
            None => error,
        }
    }
}
