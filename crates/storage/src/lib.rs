//! Shared storage: files of 4096-byte sectors with direct I/O, checked block I/O, torn-write
//! protection and the control file. Beside it: a simulated storage that crashes, tears, fails and
//! fills up.
//!
//! **Owns** the directory of a database and the layout of its files. It knows only the header and
//! the checksum of blocks.
//!
//! **Invariants.**
//! - Offsets, lengths and buffers of [`File`] are multiples of [`SECTOR`]. Direct I/O needs that;
//!   the simulation asserts it.
//! - What was written is durable after [`File::sync`] returned. Before that, any part may be lost
//!   or torn.
//! - After a failed sync nothing is known about what was written before it. The instance ends
//!   ([`lease::Lease::storage`]).

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

mod aligned;
mod control;
mod datafiles;
mod doublewrite;
mod error;
mod file;
pub mod lease;
mod os;
mod readonly;
mod sim;
mod written;

pub use aligned::AlignedBuf;
pub use control::{Control, ControlFile, DataFileInfo, ThreadInfo, ThreadState};
pub use datafiles::DataFiles;
pub use doublewrite::{DoubleWrite, Restored, TornHomes, restore_all};
pub use error::{Error, Result};
pub use file::{File, FileKind, Storage};
pub use lease::Fatal;
pub use os::OsStorage;
pub use readonly::ReadOnly;
pub use sim::{Faults, SimStorage};
pub use written::Written;

/// The unit of direct I/O in bytes.
pub const SECTOR: usize = 4096;
