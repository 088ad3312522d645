//! The file format of extended SQL trace (event 10046): its records, a writer, a reader, and the
//! tables that `tkprof` prints of it.
//!
//! **Owns** nothing: it is pure but for the `Write` and `BufRead` that it is given.
//!
//! **Invariants.**
//! - What [`write`] writes of a record, [`Reader`] reads as the same record.
//! - A line that begins like a record and is none is an error with its number. No table is made of
//!   a file with such a line, unless damaged lines are to be left out, and then the report counts
//!   them.
//! - What is this product's own stands in lines that begin with `***`, which other readers of the
//!   format skip.

mod lines;
mod profile;
mod read;
mod record;
mod report;
mod sort;
mod write;

pub use profile::{Options, Profile};
pub use read::{Entry, Error, Reader};
pub use record::{
    Bind, Call, CallKind, Close, Counts, Cursor, Lob, OpTimes, ParseError, Record, Served, Stat,
    Wait,
};
pub use sort::{SortKey, UnknownSortKey};
pub use write::{line_end_of_statement, write};
