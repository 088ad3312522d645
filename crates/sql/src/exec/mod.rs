//! Running plans over the engine.

mod aggregate;
pub mod dml;
mod drive;
pub mod found;
mod lock;
pub mod profile;
pub mod row;
pub mod select;
pub mod sort;
pub mod source;
pub mod supply;
mod upsert;
