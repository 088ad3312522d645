//! Large objects: their tables, the descriptors that sessions have of them, and the functions that
//! clients call. An object is a row of `pg_largeobjects.object`, and its bytes are those of pages of
//! [`PAGE`] bytes, rows of `pg_largeobjects.page`. Both are ordinary tables, so that objects are
//! transactional and the same on every instance.
//!
//! **Invariants.**
//! - The tables are made when a database is opened that lacks them, and belong to the first
//!   superuser. Sessions reach them by the functions and catalogs alone, unless a superuser does.
//! - What runs on them runs by that superuser's rights ([`store`]), and mentions no function: a
//!   function of a user's must not be what is called so.
//! - A descriptor ends with its transaction, or with the savepoint after which it was opened.
//! - A page has at most [`PAGE`] bytes; bytes that no page has below the object's end are zeros.

mod calls;
mod commands;
mod descriptors;
mod files;
mod grants;
mod store;
mod tables;

pub use calls::{LargeFunc, overloads};
pub use commands::alter_owner;
pub use descriptors::Descriptors;
pub use grants::{drop_owned, grant, reasons, reassign};
pub use store::{Plans, decoded};
pub use tables::{SCHEMA, make};

/// Bytes of a page: PostgreSQL's LOBLKSIZE.
pub const PAGE: u64 = 2048;
/// The size that no object exceeds, as in PostgreSQL.
pub const MAX_SIZE: u64 = i32::MAX as u64 * PAGE;

use crate::error::Error;

fn missing(oid: u32) -> Error {
    Error::new("42704", format!("large object {oid} does not exist"))
}
