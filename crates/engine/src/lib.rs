//! One instance put together: creating and opening a database, instance recovery, sessions and their transactions,
//! tables as a heap with its indexes, background work, and stopping. This is the interface that `sql` sees.
//!
//! **Invariants.** Index entries of a row are inserted after its version and marked before its transaction ends, so a
//! reader that follows an unmarked entry finds in the version it may see the key of the entry. Whoever needs another
//! block or another transaction's verdict lets go of every latch first (R7).

mod config;
mod error;
mod table;

pub use config::Config;
pub use error::{Error, Result};
pub use table::{IndexColumn, IndexDef, TableDef};
