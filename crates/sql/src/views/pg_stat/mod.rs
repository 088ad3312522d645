//! PostgreSQL's statistics views. Their counts are the sums over all instances that answer
//! ([`super::usage`]); the client is warned of one that does not.
//!
//! A column for which Braid has nothing says what PostgreSQL's says of what never happened: zero or
//! NULL. `docs/operating.md` lists them.

mod absent;
mod database;
pub mod functions;
mod progress;
mod tables;

use super::VirtualTable;

pub const VIEWS: [&[VirtualTable]; 4] = [
    tables::VIEWS,
    database::VIEWS,
    progress::VIEWS,
    absent::VIEWS,
];
