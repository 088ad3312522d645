//! Running plans over the engine.

pub(crate) mod aggregate;
pub mod checks;
mod deferrable;
pub mod dml;
pub(crate) mod drive;
pub mod events;
pub mod foreign;
mod foreign_rows;
pub mod generated;
mod instead;
mod inverted;
pub(crate) mod lock;
pub mod meeting;
mod over;
pub mod policies;
pub mod profile;
pub mod returning;
pub mod row;
pub mod select;
pub mod sort;
pub mod source;
pub mod supply;
pub mod told;
pub mod transitions;
pub mod triggers;
mod upsert;
pub mod with;
