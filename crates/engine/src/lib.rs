//! One instance put together: creating and opening a database, instance recovery, sessions and
//! their transactions, tables as a heap with its indexes, background work, and stopping. `sql` sees
//! this interface.
//!
//! **Layers**, from the top; a module imports only from layers below its own (`README.md` has the
//! table): `open`, `bootstrap`, `verify`; sessions (`session`, `read`, `heap_scan`, `inverted`,
//! `write`, `upsert`, `bulk`, `deferred`, `ddl`, `undo`) with `smon` and `stop`; `instance`;
//! `recovery`; `cluster`, `services`; `sequences`, `inquiry`, `bulletin`; `host`, `files`,
//! `config`, `background`; `table`, `dictionary`, `records`, `sort`, `temp`, `progress`, `error`.
//!
//! **Invariants.**
//! - A transaction inserts the index entries of a row after the row's version, and marks old
//!   entries before it ends. So a reader that follows an unmarked entry either finds the entry's
//!   key in the version it may see, or passes the entry by.
//! - A thread that needs another block, or the verdict about another transaction, lets go of every
//!   latch first (R7).

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod background;
mod bootstrap;
mod bulk;
mod bulletin;
pub mod cluster;
mod config;
mod ddl;
mod deferred;
mod dictionary;
mod error;
mod files;
mod heap_scan;
mod host;
mod inquiry;
mod instance;
mod inverted;
mod online;
mod open;
mod progress;
mod read;
mod records;
mod recovery;
mod sequences;
pub mod services;
mod session;
mod smon;
mod sort;
mod stop;
mod table;
mod temp;
mod undo;
mod upsert;
mod verify;
mod write;
mod written;

pub use access::heap::Sight;
pub use bulk::Bulk;
pub use bulletin::{BULLETIN_MAX_BYTES, Bulletins, Hearer};
pub use cache::{AHEAD_BLOCKS, Affinity, AskedAhead, GranuleRow, PolicyEvent, PolicyRow};
pub use config::Config;
pub use error::{Error, Remedy, Result};
pub use heap_scan::HeapScan;
pub use host::{Fatal, Host};
pub use inquiry::{Answer, Inquiries, Missing, Responder};
pub use instance::{Engine, exists};
pub use inverted::{Bounds, Entries, RowsOfKeys, Wanted};
pub use progress::Progress;
pub use read::IndexScan;
pub use records::{RecordReader, Records};
pub use recovery::Recovery;
pub use session::{
    AdvisoryKey, IndexTimes, LockMode, LockWait, Nesting, ReplyGate, Savepoint, Sees, Session,
};
pub use sort::{Sorted, Sorter};
pub use table::{
    ComputeError, ComputedKey, IndexColumn, IndexDef, IndexRules, IndexStage, InvertedKeys,
    SequenceDef, TableDef,
};
pub use txn::{HeldSnapshot, Isolation, RowLock, Snapshot, TableUser};
pub use upsert::Upsert;
pub use verify::{Verified, check_all, verify};
pub use write::{LockOutcome, WriteOutcome};
pub use written::Written;
