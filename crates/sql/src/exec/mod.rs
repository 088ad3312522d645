//! Running plans over the engine.

mod aggregate;
pub mod dml;
pub mod row;
pub mod select;
mod sort;
mod source;
