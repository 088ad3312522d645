//! `information_schema`, as queries over the catalogs.
//!
//! A view of this module is analysed like a user's: as a subquery of FROM, with all that the
//! statement around it says of its rows. A column that its query does not give is NULL, which most
//! columns of the standard's are; one that it gives is converted to the column's type.
//! `information_schema.tables`, `columns` and `views` are made in [`super::schema`], where those of
//! one table are found by its name.

pub mod facets;

mod constraints;
mod foreign;
mod relations;
mod routines;
mod types;
mod usage;

use super::{Source, VirtualTable};
use crate::types::SqlType;

/// A view by its query, whose columns have the names of those of the view.
const fn query(
    name: &'static str,
    columns: &'static [(&'static str, SqlType)],
    text: &'static str,
) -> VirtualTable {
    VirtualTable {
        schema: "information_schema",
        name,
        columns,
        rows: Source::Query(text),
    }
}

/// The lists of views.
pub const VIEWS: [&[VirtualTable]; 6] = [
    constraints::VIEWS,
    foreign::VIEWS,
    relations::VIEWS,
    routines::VIEWS,
    types::VIEWS,
    usage::VIEWS,
];
