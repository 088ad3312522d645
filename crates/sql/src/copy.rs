//! COPY FROM STDIN and TO STDOUT.

/// A COPY FROM STDIN under way.
pub struct CopyIn {
    /// Columns that the client is told of in CopyInResponse; all in text format.
    pub(crate) columns: usize,
}

impl CopyIn {
    /// How many columns each line has.
    pub fn columns(&self) -> usize {
        self.columns
    }
}
