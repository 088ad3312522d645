//! Running plans over the engine.

mod aggregate;
pub mod dml;
mod drive;
mod lock;
pub mod profile;
pub mod row;
pub mod select;
mod sort;
pub mod source;
pub mod supply;
mod upsert;
