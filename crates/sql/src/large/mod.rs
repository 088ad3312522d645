//! Large objects: their tables, the descriptors that sessions have of them, and the functions that
//! clients call. An object is a row of `pg_catalog.pg_largeobject_object`, and its bytes are those of
//! pages of [`PAGE`] bytes, rows of `pg_catalog.pg_largeobject_page`. Both are stored as every table
//! is, so that objects are transactional and the same on every instance.
//!
//! **Invariants.**
//! - The tables are made when a database is opened that lacks them, and belong to the first
//!   superuser. They are the system's, as all tables of `pg_catalog` are: nobody changes them but
//!   the instance and these functions ([`tables`]), whatever a session's rights are.
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
pub use store::{Statements, decoded};
pub use tables::{is_of_system, is_open, is_table, make, refuse_of_system};

/// Bytes of a page: PostgreSQL's LOBLKSIZE.
pub const PAGE: u64 = 2048;
/// The size that no object exceeds, as in PostgreSQL.
pub const MAX_SIZE: u64 = i32::MAX as u64 * PAGE;

use crate::error::Error;

fn missing(oid: u32) -> Error {
    Error::new("42704", format!("large object {oid} does not exist"))
}
